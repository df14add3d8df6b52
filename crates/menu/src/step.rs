//! The one step of a menu: a message of the gateway in, a screen out.

use std::sync::Arc;
use std::time::Duration;

use component::definition::BuildContext;
use component::dialogue::{
    MEDIA_TYPE, NEUTRAL_MEDIA_TYPE, Screen as Shown, SessionEvent, SessionInput,
};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Entry, Next, Progress, Step};
use config::Node;
use expr::Value;
use journal::Durability;
use message::{Fault, Kind, Origin, Reply};

use crate::answering::{Answering, News};
use crate::machine::{self, Received};
use crate::outbox::Queued;
use crate::plan::Plan;
use crate::pushing;
use crate::read;
use crate::sending::Unanswered;
use crate::session::Session;
use crate::sessions::{Entered, RecordKey, Sessions, Stored};

/// Makes the step of a menu.
pub(crate) fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let plan = read::read(node, context)?;
    let gateway = node.get("from")?.get("ussd")?.get("gateway")?;
    let gateway = gateway.as_str().unwrap_or("described");
    let is_shared = plan.sessions_in.is_some();
    let states = Some(context.surroundings.states).filter(|_| !is_shared);
    let menu = Arc::clone(context.flow);
    // Made before it is known whether it is needed: states are locked while one is made.
    let made = Sessions::new(states, &menu);
    // The same ones whatever the gateway is: actions belong to subscribers.
    let sessions = context.state("sessions", is_shared, || made);
    Some(Box::new(Menu(Arc::new(Core {
        plan,
        gateway: gateway.into(),
        sessions,
        unanswered: Unanswered::default(),
    }))))
}

/// The step.
struct Menu(Arc<Core>);

impl Step for Menu {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(async move {
            let (body, _) = exchange.body()?;
            let input = SessionInput::from_bytes(body.as_bytes());
            let input = input.ok_or_else(|| Fault::invalid("this is no message of a gateway"))?;
            let sender = exchange.request.headers.get("Content-Type");
            let is_tool = sender == Some(NEUTRAL_MEDIA_TYPE.as_bytes());
            // What was typed may be secret: from here on it is where it is needed, and nowhere
            // else.
            exchange.set_value(Value::Null);
            let core = &self.0;
            core.sessions.bound(core.plan.sessions_max);
            let reply = match (&input.event, &core.plan.answers) {
                (SessionEvent::Push(wanted), _) => {
                    let pushed = core.push(&input, wanted, exchange, services).await?;
                    Reply::with_content(200, MEDIA_TYPE, pushed.to_bytes())
                }
                (_, Some(answers)) if services.stands_in() => {
                    // In tests the screen is looked at beside what is sent.
                    let shown = core.answer_now(answers, &input, exchange, services).await?;
                    shown.to_reply()
                }
                (_, Some(answers)) if !is_tool => {
                    core.answer_apart(answers, input, exchange, services).await
                }
                _ => {
                    let answered = core.answer(&input, exchange, services).await?;
                    // Behind the steps the gateway may be gone: a result is told to nobody then.
                    let is_taken = services.is_awaited();
                    core.note(answered.news, is_taken, services).await;
                    answered.shown.to_reply()
                }
            };
            Ok(Next::Reply(reply))
        }))
    }

    fn waits(&self) -> bool {
        true
    }

    fn entries(&self) -> Vec<Entry> {
        let plan = &self.0.plan;
        let screens = plan.push.iter().flat_map(|it| &it.screens);
        let entries = screens.filter_map(|(screen, variables)| {
            let name = Arc::clone(&plan.screen(*screen)?.name);
            let variables = Arc::clone(variables);
            Some(Entry { name, variables })
        });
        entries.collect()
    }
}

/// A menu at work.
pub(crate) struct Core {
    pub plan: Plan,
    gateway: Arc<str>,
    pub sessions: Arc<Sessions>,
    pub unanswered: Unanswered,
}

/// The answer to a message, which its session has been kept with.
pub(crate) struct Answered {
    pub shown: Shown,
    /// What is noted of the subscriber when it is known whether the screen has been taken.
    pub news: News,
    /// The screen's place in the queue of its session, when screens are sent (`answers`) and not
    /// returned in the reply.
    pub queued: Option<Queued>,
}

impl Answered {
    fn new(shown: Shown, news: News) -> Self {
        let queued = None;
        Self {
            shown,
            news,
            queued,
        }
    }

    /// A screen that is no news of a session.
    pub fn plain(text: String) -> Self {
        Self::new(Shown { text, ends: true }, News::default())
    }
}

impl Core {
    /// The key of a session.
    pub fn key(&self, session: &str, msisdn: &str) -> RecordKey {
        RecordKey::session(&self.gateway, session, msisdn)
    }

    /// Waits until no other request works on a session or subscriber, and reads the record.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn enter<'a>(
        &'a self,
        key: RecordKey,
        services: &'a dyn Services,
    ) -> Result<Entered<'a>, Fault> {
        let shared = self.plan.sessions_in.as_ref();
        self.sessions.enter(key, shared, services).await
    }

    /// Answers one message: its session is kept before.
    ///
    /// # Errors
    /// When the session cannot be read or kept. What fails in a step is a screen that says so.
    pub async fn answer(
        self: &Arc<Self>,
        input: &SessionInput,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Answered, Fault> {
        let key = self.key(&input.session, &input.msisdn);
        let mut entered = self.enter(key, services).await?;
        if entered.stored().is_none() && self.plan.push.is_some() {
            let until = services.now() + pushing::WAIT;
            let subscriber = RecordKey::subscriber(&input.msisdn);
            let pushing = &self.sessions.pushing;
            while entered.stored().is_none()
                && let Some(under_way) = pushing.under_way(subscriber, &input.event)
            {
                let left = until.saturating_duration_since(services.now());
                if left.is_zero() {
                    break;
                }
                drop(entered);
                under_way.ended(left, services).await;
                entered = self.enter(key, services).await?;
            }
        }
        let answered = self.answer_in((&mut entered, key), input, exchange, services);
        let mut answered = answered.await?;
        // Before another request works on the session: screens are sent in the same order.
        if self.plan.answers.is_some() && input.event != SessionEvent::End {
            answered.queued = Some(self.sessions.outbox.add(key));
        }
        Ok(answered)
    }

    /// The same, in a session that has been entered.
    async fn answer_in(
        self: &Arc<Self>,
        (entered, key): (&mut Entered<'_>, RecordKey),
        input: &SessionInput,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Answered, Fault> {
        let now = services.wall();
        let known = entered.stored();
        let mut session = known.and_then(|it| Session::decode(&it.bytes, &self.plan));
        if let (Some(stored), Some(session)) = (known, &mut session) {
            session.heard.is_over |= stored.until <= now;
        }
        let received = match (known, &session) {
            // The menu has changed since: whatever comes is no beginning.
            (Some(_), None) => Received::Unknown,
            (_, session) => machine::receive(session.as_ref().map(|it| &it.heard), &input.event),
        };
        let of = (key, input.session.as_str(), input.msisdn.as_str());
        let session = session.unwrap_or_default();
        let mut answering = Answering::new(self, of, session, exchange, services);
        let mut was_secret = false;
        let shown = match received {
            Received::Again(shown) => {
                // Whoever takes this reply is told what the one before has told perhaps nobody.
                answering.news.told = answering.session.heard.told.take();
                return Ok(Answered::new(shown, answering.into_news()));
            }
            Received::Unknown => {
                let language = answering.session.position.language;
                let text = self.plan.messages.unknown.text(language).to_owned();
                return Ok(Answered::plain(text));
            }
            Received::Over => {
                self.end(entered, &mut answering).await?;
                return Ok(Answered::plain(String::new()));
            }
            Received::Begins(dialled) => match answering.begin(&dialled).await {
                (shown, true) => shown,
                (shown, false) => return Ok(Answered::plain(shown.text)),
            },
            // Each input may have been for a screen of its own. Taken as one, a PIN among them
            // would become part of a text.
            Received::Several(_) if !self.plan.slots.secret.is_empty() => {
                was_secret = true;
                answering.typed(None, true).await
            }
            Received::Typed(typed) | Received::Several(typed) => {
                was_secret = answering.asks_secret();
                let is_new = match &input.event {
                    SessionEvent::Reply { sequence, .. } => sequence.is_some(),
                    _ => true,
                };
                answering.typed(Some(&typed), is_new).await
            }
        };
        let session = &mut answering.session;
        session.heard.note(&input.event, was_secret);
        session.heard.is_over = shown.ends;
        session.heard.answer = Some(shown.clone());
        session.heard.told = answering.news.told.clone();
        self.keep(entered, session, services.wall()).await?;
        let ended = std::mem::take(&mut answering.ended);
        let subscriber = RecordKey::subscriber(&input.msisdn);
        self.note_end(ended, subscriber, services).await;
        Ok(Answered::new(shown, answering.into_news()))
    }

    /// The gateway has ended a session.
    async fn end(
        &self,
        entered: &mut Entered<'_>,
        answering: &mut Answering<'_>,
    ) -> Result<(), Fault> {
        if entered.stored().is_none() || answering.session.heard.is_over {
            return Ok(());
        }
        answering.session.heard.is_over = true;
        answering.session.is_dropped = true;
        let now = answering.services.wall();
        self.keep(entered, &answering.session, now).await?;
        answering.run_on_end().await;
        Ok(())
    }

    /// Keeps a session that has been answered.
    ///
    /// # Errors
    /// When the disk or the store refuses it.
    pub async fn keep(
        &self,
        entered: &mut Entered<'_>,
        session: &Session,
        now: Duration,
    ) -> Result<(), Fault> {
        let Some(bytes) = session.encode(&self.plan) else {
            let detail = "the variables of a session are larger than 64 KiB";
            return Err(Fault::new(Kind::Internal, Origin::Engine, detail));
        };
        let until = match session.heard.is_over {
            true => now,
            false => now + self.plan.timeout,
        };
        let resume = self.plan.resume.unwrap_or_default();
        let mut stored = Stored::session(until, resume, bytes);
        // That a subscriber has heard of an action is synced too: a session of before that would
        // begin another one.
        stored.is_synced = self.plan.durability == Durability::Disk || session.action.is_some();
        entered.keep(stored).await
    }
}

/// What cannot be.
pub(crate) fn internal(detail: &'static str) -> Fault {
    Fault::new(Kind::Internal, Origin::Engine, detail)
}
