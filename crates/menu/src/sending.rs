//! Screens that are sent to the gateway in requests of their own: those of a menu with `answers`,
//! and the first ones of sessions that flows begin (`push`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use component::block::Block;
use component::dialogue::{Push as Wanted, Pushed, Screen as Shown, SessionEvent, SessionInput};
use component::exchange::Exchange;
use component::handler::{Services, until};
use expr::Value;
use expr::jq::Expression;
use message::{Fault, Kind, Origin, Reply};

use crate::answering::{Answering, log_failure, run_block_on};
use crate::gateway::{SESSION_MAX, msisdn};
use crate::mask::masked_fault;
use crate::plan::{Acknowledge, Acknowledgement, Answers};
use crate::session::Session;
use crate::sessions::RecordKey;
use crate::step::{Answered, Core, internal};

/// How many requests are acknowledged and not answered yet.
#[derive(Default)]
pub(crate) struct Unanswered(Arc<AtomicUsize>);

/// One of them.
struct Ticket(Arc<AtomicUsize>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Unanswered {
    /// One more, unless there are so many.
    fn take(&self, max: usize) -> Option<Ticket> {
        let ticket = Ticket(Arc::clone(&self.0));
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        (before < max).then_some(ticket)
    }
}

impl Acknowledgement {
    fn to_reply(&self) -> Reply {
        match self.body.is_empty() {
            true => Reply::new(self.status),
            false => Reply::with_content(
                self.status,
                &self.content_type,
                self.body.clone().into_bytes(),
            ),
        }
    }
}

/// The session that a screen is of.
#[derive(Clone, Copy)]
struct Of<'a> {
    session: &'a str,
    msisdn: &'a str,
}

impl Core {
    /// Takes a message of a gateway that gets its screen in a request of its own. The reply
    /// acknowledges the message; a problem says that it is to be repeated.
    pub async fn answer_apart(
        self: &Arc<Self>,
        answers: &Answers,
        input: SessionInput,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Reply {
        let taken = match answers.acknowledge {
            Acknowledge::Before => self.answer_later(answers, input, exchange, services),
            Acknowledge::After => {
                let answered = self.answer_now(answers, &input, exchange, services);
                answered.await.map(drop)
            }
        };
        match taken {
            Ok(()) => answers.reply.to_reply(),
            Err(fault) => {
                let what = "a message of a gateway is not acknowledged";
                log_failure(&self.plan, exchange, services, &fault, what);
                fault.to_reply()
            }
        }
    }

    /// Answers a message and sends the screen.
    ///
    /// # Errors
    /// When the session cannot be kept, or the screen not be sent.
    pub async fn answer_now(
        self: &Arc<Self>,
        answers: &Answers,
        input: &SessionInput,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Shown, Fault> {
        let Answered { shown, news } = self.answer(input, exchange, services).await?;
        if input.event == SessionEvent::End {
            return Ok(shown);
        }
        let sent = self
            .send_answer(answers, input, &shown, exchange, services)
            .await;
        self.note(news, sent.is_ok(), services).await;
        sent.map(|()| shown)
    }

    /// Has a message answered behind the reply to it.
    fn answer_later(
        self: &Arc<Self>,
        answers: &Answers,
        input: SessionInput,
        exchange: &Exchange,
        services: &dyn Services,
    ) -> Result<(), Fault> {
        let Some(ticket) = self.unanswered.take(answers.max) else {
            let detail = "too many messages of the gateway wait for their answers";
            return Err(Fault::new(Kind::Unavailable, Origin::Engine, detail));
        };
        let mut exchange = exchange.clone();
        // What is held for the message ends with it.
        exchange.held.clear();
        let task = Task {
            menu: Arc::clone(self),
            exchange,
            input,
            _ticket: ticket,
        };
        services.spawn(Box::new(move |services| Box::pin(task.run(services))));
        Ok(())
    }

    /// Sends the answer to a message.
    async fn send_answer(
        &self,
        answers: &Answers,
        input: &SessionInput,
        shown: &Shown,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<(), Fault> {
        let of = Of {
            session: &input.session,
            msisdn: &input.msisdn,
        };
        let block = (&answers.send, answers.timeout);
        self.send(block, of, shown, exchange, services).await
    }

    /// Runs the steps that send a screen, within their own time: that of the flow may be over.
    async fn send(
        &self,
        (block, timeout): (&Block, Duration),
        of: Of<'_>,
        shown: &Shown,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<(), Fault> {
        let shown_text = self.plan.line_break.put_in(shown.text.clone());
        let screen = expr::value::object([
            ("session".to_owned(), expr::value::text(of.session)),
            ("msisdn".to_owned(), expr::value::text(of.msisdn)),
            ("text".to_owned(), expr::value::text(shown_text)),
            ("ends".to_owned(), Value::Bool(shown.ends)),
        ]);
        let at = services.now() + timeout;
        exchange.deadline = Some(at);
        let steps = run_block_on(screen, block, exchange, services);
        until(Some(at), services, steps).await.unwrap_or_else(|| {
            let detail = "a screen could not be sent in time";
            Err(Fault::new(Kind::Timeout, Origin::Upstream, detail))
        })
    }

    /// Begins a session that the subscriber has not dialled for.
    ///
    /// # Errors
    /// `invalid` when the number is none; what a step or a text of the screen says, or sending it.
    pub async fn push(
        self: &Arc<Self>,
        input: &SessionInput,
        wanted: &Wanted,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Pushed, Fault> {
        let plan = &self.plan;
        let push = plan.push.as_ref();
        let push = push.ok_or_else(|| internal("the menu begins no sessions any more"))?;
        let screen = plan.find(&wanted.screen);
        let screen = screen.filter(|it| push.screens.iter().any(|(known, _)| known == it));
        let screen = screen.ok_or_else(|| internal("the menu begins no session there any more"))?;
        let msisdn = msisdn::normalise(&input.msisdn, plan.country.as_deref());
        let msisdn =
            msisdn.ok_or_else(|| Fault::invalid("the number of the subscriber is none"))?;
        let own = uuid::Uuid::new_v4().to_string();
        let id = match &push.session {
            // Nobody knows it before the gateway has chosen it.
            Some(_) => "",
            None => own.as_str(),
        };
        let key = self.key(id, &msisdn);
        let of = (key, id, msisdn.as_str());
        let mut answering = Answering::new(self, of, Session::default(), exchange, services);
        let shown = answering.begin_at(screen, &wanted.variables).await;
        let mut session = std::mem::take(&mut answering.session);
        let mut news = answering.into_news();
        let shown = shown.map_err(|fault| masked_fault(fault, plan, exchange))?;
        session.heard.is_over = shown.ends;
        session.heard.answer = Some(shown.clone());
        if push.session.is_none() {
            self.keep_pushed(key, &session, services).await?;
        }
        let block = (&push.send, push.timeout);
        let of = Of {
            session: id,
            msisdn: &msisdn,
        };
        let sent = self.send(block, of, &shown, exchange, services).await;
        let id = match (&push.session, sent) {
            (None, Ok(())) => own,
            (Some(session), Ok(())) => session_of(session, exchange, services)?,
            (kept, Err(fault)) => {
                if kept.is_none() {
                    session.heard.is_over = true;
                    self.keep_pushed(key, &session, services).await?;
                }
                self.note(news, false, services).await;
                return Err(masked_fault(fault, plan, exchange));
            }
        };
        let key = self.key(&id, &msisdn);
        if push.session.is_some() {
            self.keep_pushed(key, &session, services).await?;
        }
        news.session = Some((key, RecordKey::subscriber(&msisdn)));
        self.note(news, true, services).await;
        Ok(Pushed {
            session: id,
            msisdn,
            ends: shown.ends,
        })
    }

    async fn keep_pushed(
        &self,
        key: RecordKey,
        session: &Session,
        services: &dyn Services,
    ) -> Result<(), Fault> {
        let shared = self.plan.sessions_in.as_ref();
        let mut entered = self.sessions.enter(key, shared, services).await?;
        self.keep(&mut entered, session, services.wall()).await
    }
}

/// The session that the gateway has made, by what it has replied.
fn session_of(
    expression: &Expression,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<String, Fault> {
    let value = exchange.evaluate(expression, services)?;
    let id = expr::value::scalar_text(&value).map(Into::<String>::into);
    id.filter(|it| !it.is_empty() && it.len() <= SESSION_MAX)
        .ok_or_else(|| {
            let detail = "the gateway has not said which session it has begun";
            Fault::new(Kind::Expression, Origin::Upstream, detail)
        })
}

/// A message that has been acknowledged and is answered.
struct Task {
    menu: Arc<Core>,
    exchange: Exchange,
    input: SessionInput,
    _ticket: Ticket,
}

impl Task {
    async fn run(mut self, services: &dyn Services) {
        let menu = Arc::clone(&self.menu);
        let Some(answers) = &menu.plan.answers else {
            return;
        };
        let deadline = self.exchange.deadline;
        let answered = menu.answer(&self.input, &mut self.exchange, services);
        let answered = until(deadline, services, answered).await;
        let answered = answered.unwrap_or_else(|| {
            let detail = "the time of the menu is over";
            Err(Fault::new(Kind::Timeout, Origin::Engine, detail))
        });
        if self.input.event == SessionEvent::End {
            return;
        }
        let answered = answered.unwrap_or_else(|fault| {
            let what = "a message of a gateway has failed behind its acknowledgement";
            log_failure(&menu.plan, &self.exchange, services, &fault, what);
            let text = menu.plan.messages.failed.text(0).to_owned();
            Answered::plain(text)
        });
        let Answered { shown, news } = answered;
        let sent = menu.send_answer(answers, &self.input, &shown, &mut self.exchange, services);
        let sent = sent.await;
        menu.note(news, sent.is_ok(), services).await;
        if let Err(fault) = sent {
            let what = "a screen has not been sent to the gateway";
            log_failure(&menu.plan, &self.exchange, services, &fault, what);
        }
    }
}
