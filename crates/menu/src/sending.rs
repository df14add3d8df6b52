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

use tokio::sync::oneshot;

use crate::answering::{Answering, log_failure, run_block_on};
use crate::gateway::{is_session_id, msisdn};
use crate::mask::masked_fault;
use crate::plan::{Acknowledge, Acknowledgement, Answers, Push, ScreenId};
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
        let answered = self.answer(input, exchange, services).await?;
        let sent = self.send_answer(answers, input, &answered, exchange, services);
        let sent = sent.await;
        self.note(answered.news, matches!(sent, Ok(true)), services)
            .await;
        sent.map(|_| answered.shown)
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

    /// Sends the answer to a message; false when it is not sent, since there is a newer one of its
    /// session or the message was the end of that.
    async fn send_answer(
        &self,
        answers: &Answers,
        input: &SessionInput,
        answered: &Answered,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<bool, Fault> {
        if input.event == SessionEvent::End {
            return Ok(false);
        }
        let of = Of {
            session: &input.session,
            msisdn: &input.msisdn,
        };
        let block = (&answers.send, answers.timeout);
        let sending = self.send(block, of, &answered.shown, exchange, services);
        match &answered.queued {
            None => sending.await.map(|()| true),
            Some(queued) => match queued.send(services, sending).await {
                None => Ok(false),
                Some(sent) => sent.map(|()| true),
            },
        }
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
        let of = (msisdn.as_str(), screen, wanted);
        let (id, ends) = match &push.session {
            None => self.begin_own(push, of, exchange, services).await?,
            Some(_) => self.begin_beside(of, exchange, services).await?,
        };
        Ok(Pushed {
            session: id,
            msisdn,
            ends,
        })
    }

    /// Begins a session with an id of ours; that, and whether it ends with its first screen.
    async fn begin_own(
        self: &Arc<Self>,
        push: &Push,
        (msisdn, screen, wanted): (&str, ScreenId, &Wanted),
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<(String, bool), Fault> {
        let id = uuid::Uuid::new_v4().to_string();
        let session = Of {
            session: &id,
            msisdn,
        };
        let first = self.first_screen(session, (screen, wanted), exchange, services);
        let (mut first, shown) = first.await?;
        let key = self.key(&id, msisdn);
        // A key that comes while the screen is sent has a newer one.
        let queued = self.sessions.outbox.add(key);
        self.keep_pushed(key, &first, services).await?;
        let block = (&push.send, push.timeout);
        let sending = self.send(block, session, &shown, exchange, services);
        if let Some(Err(fault)) = queued.send(services, sending).await {
            let mut entered = self.enter(key, services).await?;
            let stored = entered.stored();
            let stored = stored.and_then(|it| Session::decode(&it.bytes, &self.plan));
            // A key shows that the screen has arrived, whatever the gateway says.
            if stored.is_none_or(|it| it.is_pushed) {
                first.heard.is_over = true;
                self.keep(&mut entered, &first, services.wall()).await?;
                return Err(masked_fault(fault, &self.plan, exchange));
            }
        }
        Ok((id, shown.ends))
    }

    /// Begins a session whose id the gateway chooses, though nobody waits for it any more: its
    /// phone may show a screen.
    async fn begin_beside(
        self: &Arc<Self>,
        (msisdn, screen, wanted): (&str, ScreenId, &Wanted),
        exchange: &Exchange,
        services: &dyn Services,
    ) -> Result<(String, bool), Fault> {
        let mut exchange = exchange.clone();
        // What is held for the message ends with it.
        exchange.held.clear();
        let (menu, msisdn, wanted) = (Arc::clone(self), msisdn.to_owned(), wanted.clone());
        let (tell, told) = oneshot::channel();
        services.spawn(Box::new(move |services| {
            Box::pin(async move {
                let of = (msisdn.as_str(), screen, &wanted);
                let begun = menu.begin_of_gateway(of, &mut exchange, services).await;
                if let Err(Err(fault)) = tell.send(begun) {
                    let what = "a session that a flow begins has failed behind the flow";
                    log_failure(&menu.plan, &exchange, services, &fault, what);
                }
            })
        }));
        let begun = told.await;
        begun.unwrap_or_else(|_| Err(internal("nobody has begun the session")))
    }

    /// Begins a session whose id the gateway chooses: it is kept when that is known.
    async fn begin_of_gateway(
        self: &Arc<Self>,
        (msisdn, screen, wanted): (&str, ScreenId, &Wanted),
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<(String, bool), Fault> {
        let push = self.plan.push.as_ref();
        let of_gateway = push.and_then(|push| Some((push, push.session.as_ref()?)));
        let (push, session) = of_gateway.ok_or_else(|| internal("ids are not the gateway's"))?;
        let pushing = &self.sessions.pushing;
        let _begun = pushing.begin(RecordKey::subscriber(msisdn));
        let unknown = Of {
            session: "",
            msisdn,
        };
        let first = self.first_screen(unknown, (screen, wanted), exchange, services);
        let (first, shown) = first.await?;
        let block = (&push.send, push.timeout);
        let sent = self.send(block, unknown, &shown, exchange, services).await;
        sent.map_err(|fault| masked_fault(fault, &self.plan, exchange))?;
        let id = session_of(session, exchange, services)?;
        let key = self.key(&id, msisdn);
        self.keep_pushed(key, &first, services).await?;
        Ok((id, shown.ends))
    }

    /// The first screen of a session that a flow begins, and the session at it.
    async fn first_screen(
        self: &Arc<Self>,
        of: Of<'_>,
        (screen, wanted): (ScreenId, &Wanted),
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<(Session, Shown), Fault> {
        let key = self.key(of.session, of.msisdn);
        let of = (key, of.session, of.msisdn);
        let mut answering = Answering::new(self, of, Session::default(), exchange, services);
        let shown = answering.begin_at(screen, &wanted.variables).await;
        let mut session = std::mem::take(&mut answering.session);
        let shown = shown.map_err(|fault| masked_fault(fault, &self.plan, exchange))?;
        session.heard.is_over = shown.ends;
        session.heard.answer = Some(shown.clone());
        Ok((session, shown))
    }

    /// Keeps a session that a flow has begun, unless there is one of its id.
    async fn keep_pushed(
        &self,
        key: RecordKey,
        session: &Session,
        services: &dyn Services,
    ) -> Result<(), Fault> {
        let mut entered = self.enter(key, services).await?;
        let now = services.wall();
        let known = entered.stored().filter(|it| it.until > now);
        let known = known.and_then(|it| Session::decode(&it.bytes, &self.plan));
        if known.is_some_and(|it| !it.heard.is_over) {
            // A key came before the gateway has said whose it is, and has begun a session.
            return Ok(());
        }
        self.keep(&mut entered, session, now).await
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
    id.filter(|it| is_session_id(it)).ok_or_else(|| {
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
        let answered = answered.unwrap_or_else(|fault| {
            let what = "a message of a gateway has failed behind its acknowledgement";
            log_failure(&menu.plan, &self.exchange, services, &fault, what);
            let text = menu.plan.messages.failed.text(0).to_owned();
            let key = menu.key(&self.input.session, &self.input.msisdn);
            let is_sent = self.input.event != SessionEvent::End;
            Answered {
                queued: is_sent.then(|| menu.sessions.outbox.add(key)),
                ..Answered::plain(text)
            }
        });
        let sent = menu.send_answer(
            answers,
            &self.input,
            &answered,
            &mut self.exchange,
            services,
        );
        let sent = sent.await;
        menu.note(answered.news, matches!(sent, Ok(true)), services)
            .await;
        if let Err(fault) = sent {
            let what = "a screen has not been sent to the gateway";
            log_failure(&menu.plan, &self.exchange, services, &fault, what);
        }
    }
}
