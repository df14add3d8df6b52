//! The one step of a menu: a message of the gateway in, a screen out.

use std::sync::Arc;
use std::time::Duration;

use component::definition::BuildContext;
use component::dialogue::{Screen as Shown, SessionInput};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use config::Node;
use expr::Value;
use journal::Durability;
use message::{Fault, Kind, Origin};

use crate::answering::Answering;
use crate::machine::{self, Received};
use crate::plan::Plan;
use crate::read;
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
    let sessions = context.state("sessions", (gateway, is_shared), || made);
    sessions.bound(plan.sessions_max);
    Some(Box::new(Menu(Arc::new(Core {
        plan,
        gateway: gateway.into(),
        sessions,
    }))))
}

/// The step.
struct Menu(Arc<Core>);

/// A menu at work.
pub(crate) struct Core {
    pub plan: Plan,
    gateway: Arc<str>,
    pub sessions: Arc<Sessions>,
}

impl Step for Menu {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(async move {
            let (body, _) = exchange.body()?;
            let input = SessionInput::from_bytes(body.as_bytes());
            let input = input.ok_or_else(|| Fault::invalid("this is no message of a gateway"))?;
            // What was typed may be secret: from here on it is where it is needed, and nowhere
            // else.
            exchange.set_value(Value::Null);
            let shown = self.0.answer(&input, exchange, services).await?;
            Ok(Next::Reply(shown.to_reply()))
        }))
    }

    fn waits(&self) -> bool {
        true
    }
}

impl Core {
    /// Answers one message: its session is kept before.
    async fn answer(
        self: &Arc<Self>,
        input: &SessionInput,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Shown, Fault> {
        let key = RecordKey::session(&self.gateway, &input.session, &input.msisdn);
        let shared = self.plan.sessions_in.as_ref();
        let mut entered = self.sessions.enter(key, shared, services).await?;
        let now = services.wall();
        let mut known = entered
            .stored()
            .and_then(|stored| Some((stored.until, Session::decode(&stored.bytes, &self.plan)?)));
        if let Some((until, session)) = &mut known {
            session.heard.is_over |= *until <= now;
        }
        let session = known.map(|(_, session)| session);
        let received = machine::receive(session.as_ref().map(|it| &it.heard), &input.event);
        let mut answering = Answering {
            menu: self,
            plan: &self.plan,
            exchange,
            services,
            session: session.unwrap_or_default(),
            id: &input.session,
            msisdn: &input.msisdn,
            told: None,
            untold: None,
            begins: false,
            has_chosen_language: false,
        };
        let mut was_secret = false;
        let shown = match received {
            Received::Again(screen) => return Ok(screen),
            Received::Unknown => {
                let language = answering.session.position.language;
                let text = self.plan.messages.unknown.text(language).to_owned();
                return Ok(Shown { text, ends: true });
            }
            Received::Over => {
                self.end(&mut entered, &mut answering).await?;
                let text = String::new();
                return Ok(Shown { text, ends: true });
            }
            Received::Begins(dialled) => match answering.begin(&dialled).await {
                (shown, true) => shown,
                (shown, false) => return Ok(shown),
            },
            Received::Typed(typed) => {
                was_secret = answering.asks_secret();
                answering.typed(&typed).await
            }
        };
        let session = &mut answering.session;
        session.heard.note(&input.event, was_secret);
        session.heard.is_over = shown.ends;
        session.heard.answer = Some(shown.clone());
        self.keep(&mut entered, session, services.wall()).await?;
        if let Err(fault) = answering.note_subscriber(key).await {
            // The reply stands in the session already.
            tracing::warn!(target: "menu", %fault, "what a subscriber has been told is not noted");
        }
        Ok(shown)
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

    async fn keep(
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
