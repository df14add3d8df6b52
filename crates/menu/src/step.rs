//! The one step of a menu: a message of the gateway in, a screen out.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component::definition::BuildContext;
use component::dialogue::{Screen as Shown, SessionInput};
use component::exchange::Exchange;
use component::handler::Services;
use component::step::{Next, Progress, Step};
use config::Node;
use expr::Value;
use message::{Fault, Kind, Origin};

use crate::machine::{self, MenuKey, Position, Received, Turned};
use crate::plan::{Choice, Input, Plan, Screen, ScreenId, Target, Then};
use crate::read;
use crate::render;
use crate::session::Session;
use crate::sessions::{SessionKey, Sessions, Stored};

/// The most screens that are passed within one reply.
const PASSED_MAX: usize = 32;
/// The deepest nesting of a kept value.
const DEPTH_MAX: usize = 256;
/// The most bytes of a kept value.
const VALUE_MAX: usize = 64 * 1024;

/// Makes the step of a menu.
pub(crate) fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let plan = read::read(node, context)?;
    let gateway = node.get("from")?.get("ussd")?.get("gateway")?.as_str()?;
    let is_shared = plan.sessions_in.is_some();
    let states = Some(context.surroundings.states).filter(|_| !is_shared);
    let menu = Arc::clone(context.flow);
    // Made before it is known whether it is needed: states are locked while one is made.
    let made = Sessions::new(states, &menu);
    let sessions = context.state("sessions", (gateway, is_shared), || made);
    sessions.bound(plan.sessions_max);
    Some(Box::new(Menu {
        plan,
        gateway: gateway.into(),
        sessions,
    }))
}

/// The step.
struct Menu {
    plan: Plan,
    gateway: Arc<str>,
    sessions: Arc<Sessions>,
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
            let shown = self.answer(&input, exchange, services).await?;
            Ok(Next::Reply(shown.to_reply()))
        }))
    }

    fn waits(&self) -> bool {
        true
    }
}

/// A reply while it is made.
struct Turn<'a> {
    plan: &'a Plan,
    exchange: &'a mut Exchange,
    services: &'a dyn Services,
    session: Session,
    /// What every expression may use of the session.
    about: About<'a>,
}

/// What `$ussd` shows beside the language.
struct About<'a> {
    session: &'a str,
    msisdn: &'a str,
}

/// Where a key leads.
enum Led {
    /// The screen where the session is, or was led to, is entered.
    Enter,
    /// The same screen is shown, perhaps another page of it.
    Stay,
    /// The session ends with a text.
    End(String),
}

impl Menu {
    /// Answers one message: its session is kept before.
    async fn answer(
        &self,
        input: &SessionInput,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Shown, Fault> {
        let key = SessionKey::new(&self.gateway, &input.session, &input.msisdn);
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
        let is_typed = match machine::receive(session.as_ref().map(|it| &it.heard), &input.event) {
            Received::Again(screen) => return Ok(screen),
            Received::Unknown => return Ok(self.end(&self.plan.messages.unknown, session.as_ref())),
            Received::Over => {
                if let Some(mut session) = session.filter(|it| !it.heard.is_over) {
                    session.heard.is_over = true;
                    self.keep(&mut entered, &session, now).await?;
                }
                let text = String::new();
                return Ok(Shown { text, ends: true });
            }
            Received::Begins(dialled) => (dialled, false),
            Received::Typed(typed) => (typed, true),
        };
        let mut turn = Turn {
            plan: &self.plan,
            exchange,
            services,
            session: session.unwrap_or_default(),
            about: About {
                session: &input.session,
                msisdn: &input.msisdn,
            },
        };
        let was_secret = is_typed.1 && turn.asks_secret();
        let (shown, is_known) = match is_typed {
            (dialled, false) => turn.begin(&dialled).await,
            (typed, true) => (turn.typed(&typed).await, true),
        };
        if !is_known {
            return Ok(shown);
        }
        let mut session = turn.session;
        session.heard.note(&input.event, was_secret);
        session.heard.is_over = shown.ends;
        session.heard.answer = Some(shown.clone());
        self.keep(&mut entered, &session, services.wall()).await?;
        Ok(shown)
    }

    /// A session that ends with a message of the menu.
    fn end(&self, text: &crate::plan::PerLanguage<String>, session: Option<&Session>) -> Shown {
        let language = session.map_or(0, |it| it.position.language);
        Shown {
            text: text.text(language).to_owned(),
            ends: true,
        }
    }

    async fn keep(
        &self,
        entered: &mut crate::sessions::Entered<'_>,
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
        entered.keep(Stored::new(until, bytes)).await
    }
}

impl<'a> Turn<'a> {
    /// Whether the screen that is shown asks for something secret.
    fn asks_secret(&self) -> bool {
        let screen = self.plan.screen(self.session.position.screen);
        match screen.map(|it| &it.then) {
            Some(Then::Input(input, _)) => input.rule.is_secret(),
            _ => false,
        }
    }

    /// Begins a session; whether it is one.
    async fn begin(&mut self, dialled: &str) -> (Shown, bool) {
        let Some((screen, values)) = self.plan.codes.find(dialled) else {
            let text = self.plan.messages.unknown.text(0).to_owned();
            return (Shown { text, ends: true }, false);
        };
        let values: Vec<(usize, String)> = values
            .into_iter()
            .map(|(slot, value)| (slot, value.to_owned()))
            .collect();
        self.session.position = Position::start(screen);
        let entered = self.begin_with(values).await;
        let shown = match entered {
            Ok(led) => self.show(led).await,
            Err(fault) => Err(fault),
        };
        (self.or_failed(shown), true)
    }

    /// What was dialled for an input is checked as that; where it is refused, the input is asked
    /// for.
    async fn begin_with(&mut self, values: Vec<(usize, String)>) -> Result<Led, Fault> {
        self.set_about();
        for (slot, text) in values {
            let asked = self.plan.input_of(slot);
            let input = asked.and_then(|id| match &self.plan.screen(id)?.then {
                Then::Input(input, _) => Some((id, &**input)),
                _ => None,
            });
            let Some((id, input)) = input else {
                self.exchange.set_slot(slot, expr::value::text(text));
                continue;
            };
            match self.read_input(input, &text).await? {
                Some(value) => self.exchange.set_slot(slot, value),
                None => {
                    self.session.position = Position::start(id);
                    self.session.position.refuse();
                    return Ok(Led::Stay);
                }
            }
        }
        Ok(Led::Enter)
    }

    /// Answers what was typed.
    async fn typed(&mut self, typed: &str) -> Shown {
        let shown = match self.restore() {
            Ok(()) => match self.lead(typed).await {
                Ok(led) => self.show(led).await,
                Err(fault) => Err(fault),
            },
            Err(fault) => Err(fault),
        };
        self.or_failed(shown)
    }

    /// A failure ends the session: the subscriber is told so, the log why.
    fn or_failed(&mut self, shown: Result<Shown, Fault>) -> Shown {
        shown.unwrap_or_else(|fault| {
            self.services.failed(self.exchange, &fault);
            tracing::warn!(
                target: "flow",
                flow = &*self.exchange.context.name,
                step = fault.step.as_deref().unwrap_or_default(),
                kind = fault.name(),
                cause = fault.cause.as_deref().unwrap_or_default(),
                "a session of a menu has failed: {}", fault.detail
            );
            let text = self
                .plan
                .messages
                .failed
                .text(self.session.position.language);
            Shown {
                text: text.to_owned(),
                ends: true,
            }
        })
    }

    /// Gives names the values that they had in the session.
    fn restore(&mut self) -> Result<(), Fault> {
        self.set_about();
        for (name, json) in &self.session.variables {
            let mut kept = self.plan.slots.kept.iter();
            let slot = kept.find(|(known, _)| known == name);
            let bytes = Bytes::copy_from_slice(json);
            if let Some((_, slot)) = slot {
                let value = expr::json::parse(&bytes, DEPTH_MAX).map_err(|error| {
                    let detail = "a variable of a session cannot be read";
                    Fault::new(Kind::Internal, Origin::Engine, detail).with_cause(error)
                })?;
                self.exchange.set_slot(*slot, value);
            }
        }
        Ok(())
    }

    /// Keeps the values of names for the next message.
    fn save(&mut self) -> Result<(), Fault> {
        self.session.variables.clear();
        for (name, slot) in &self.plan.slots.kept {
            let value = self.exchange.slot(*slot);
            if matches!(value, Value::Null) {
                continue;
            }
            let mut json = Vec::new();
            expr::json::write(&value, VALUE_MAX, &mut json).map_err(|error| {
                let detail = "a variable of a session cannot be kept";
                let fault = Fault::new(Kind::Internal, Origin::Engine, detail);
                fault.with_cause(format_args!("${name}: {error}"))
            })?;
            self.session.variables.push((Arc::clone(name), json));
        }
        Ok(())
    }

    fn set_about(&mut self) {
        let (plan, position) = (self.plan, &self.session.position);
        let msisdn = expr::value::text(self.about.msisdn);
        let language = plan.languages.get(position.language);
        let text = |text: &str| expr::value::text(text);
        let ussd = expr::value::object([
            ("session".to_owned(), text(self.about.session)),
            ("language".to_owned(), text(language.map_or("", |it| it))),
        ]);
        self.exchange.set_slot(plan.slots.msisdn, msisdn);
        self.exchange.set_slot(plan.slots.ussd, ussd);
    }

    /// What a key, or what was typed, leads to.
    async fn lead(&mut self, typed: &str) -> Result<Led, Fault> {
        let typed = typed.trim();
        if let Some(turned) = self.turn(typed) {
            return Ok(match turned {
                Turned::Page => Led::Stay,
                Turned::Entered => Led::Enter,
                Turned::Exit => {
                    let text = self.plan.messages.exit.text(self.session.position.language);
                    Led::End(text.to_owned())
                }
            });
        }
        let screen = self.plan.screen(self.session.position.screen);
        match screen.map(|it| &it.then) {
            Some(Then::Options(choices)) => self.choose(choices, typed).await,
            Some(Then::Input(input, targets)) => self.enter_input(input, targets, typed).await,
            // The last screen of a session with several pages.
            _ => {
                self.session.position.refuse();
                Ok(Led::Stay)
            }
        }
    }

    /// Does what a key of the menu does, where that is what was typed.
    fn turn(&mut self, typed: &str) -> Option<Turned> {
        let keys = &self.plan.keys;
        let ends = self.plan.screen(self.session.position.screen);
        let ends = ends.is_some_and(|it| matches!(it.then, Then::End));
        let others = |key| Some(key).filter(|_| !ends);
        let back = keys.back.as_ref().and_then(others);
        let all = [
            (Some(&keys.more), MenuKey::More),
            (Some(&keys.page_back), MenuKey::PageBack),
            (back, MenuKey::Back),
            (keys.home.as_ref().and_then(others), MenuKey::Home),
            (keys.exit.as_ref().and_then(others), MenuKey::Exit),
        ];
        all.into_iter()
            .filter(|(key, _)| key.is_some_and(|it| it.key == typed))
            .find_map(|(_, key)| self.session.position.turn(key))
    }

    async fn choose(&mut self, choices: &'a [Choice], typed: &str) -> Result<Led, Fault> {
        let keys = &self.plan.keys;
        let offered = render::offered(choices, keys, self.exchange, self.services).await?;
        let Some(chosen) = offered.into_iter().find(|it| it.key == typed) else {
            self.session.position.refuse();
            return Ok(Led::Stay);
        };
        if let (Some(each), Some(item)) = (&chosen.choice.each, chosen.item) {
            self.exchange.set_slot(each.slot, item);
        }
        if let Some(language) = chosen.choice.language {
            self.session.position.language = language;
        }
        self.session.position.go(chosen.choice.go);
        Ok(Led::Enter)
    }

    /// The value of what was typed; `None` when it may not be.
    async fn read_input(&mut self, input: &Input, typed: &str) -> Result<Option<Value>, Fault> {
        let Some(value) = input.rule.read(typed) else {
            return Ok(None);
        };
        let Some(condition) = &input.condition else {
            return Ok(Some(value));
        };
        self.exchange.set_value(value.clone());
        let services = self.services;
        let holds = self
            .exchange
            .preemptible(services, |it| it.holds(condition, services));
        let holds = holds.await;
        self.exchange.set_value(Value::Null);
        Ok(holds?.then_some(value))
    }

    async fn enter_input(
        &mut self,
        input: &'a Input,
        targets: &'a [Target],
        typed: &str,
    ) -> Result<Led, Fault> {
        if let Some(value) = self.read_input(input, typed).await? {
            self.exchange.set_slot(input.slot, value);
            let screen = self.target(targets).await?;
            self.session.position.go(screen);
            return Ok(Led::Enter);
        }
        let position = &mut self.session.position;
        position.tries += 1;
        position.refuse();
        if input.tries.is_none_or(|tries| position.tries < tries) {
            return Ok(Led::Stay);
        }
        match input.after_tries {
            Some(screen) => {
                position.go(screen);
                Ok(Led::Enter)
            }
            None => {
                let text = input.invalid.as_ref().unwrap_or(&self.plan.messages.choose);
                Ok(Led::End(text.text(position.language).to_owned()))
            }
        }
    }

    /// The first screen whose condition holds.
    async fn target(&mut self, targets: &'a [Target]) -> Result<ScreenId, Fault> {
        let services = self.services;
        for target in targets {
            let Some(condition) = &target.condition else {
                return Ok(target.screen);
            };
            let holds = self
                .exchange
                .preemptible(services, |it| it.holds(condition, services));
            if holds.await? {
                return Ok(target.screen);
            }
        }
        // The loader sees to it that the last one has no condition.
        Err(internal("no screen follows"))
    }

    /// Comes to a screen that shows something, and shows it.
    async fn show(&mut self, led: Led) -> Result<Shown, Fault> {
        match led {
            Led::End(text) => return Ok(Shown { text, ends: true }),
            Led::Enter => self.enter().await?,
            Led::Stay => {}
        }
        self.set_about();
        let plan = self.plan;
        let screen = self.here()?;
        let position = self.session.position.clone();
        let pages = render::pages(plan, screen, &position, self.exchange, self.services).await?;
        let position = &mut self.session.position;
        position.pages = pages.len();
        position.page = position.page.min(pages.len() - 1);
        let is_last = position.page + 1 == pages.len();
        let text = pages.get(position.page).map(|page| page.text());
        self.save()?;
        Ok(Shown {
            text: text.unwrap_or_default(),
            ends: is_last && matches!(screen.then, Then::End),
        })
    }

    /// Runs the steps of the screen that is entered, and of those that follow it at once.
    async fn enter(&mut self) -> Result<(), Fault> {
        for _ in 0..PASSED_MAX {
            self.set_about();
            let screen = self.here()?;
            if let Some(work) = &screen.work {
                self.exchange.set_value(Value::Null);
                match work.start(self.exchange, self.services).await? {
                    Next::Continue => {}
                    Next::Reply(_) | Next::Forward(_) => {
                        return Err(internal("a step of a screen has replied"));
                    }
                }
                self.exchange.set_value(Value::Null);
            }
            let Then::Go(targets) = &screen.then else {
                return Ok(());
            };
            let next = self.target(targets).await?;
            self.session.position.pass_on(next);
        }
        Err(internal("screens follow each other without end"))
    }

    fn here(&self) -> Result<&'a Screen, Fault> {
        let screen = self.plan.screen(self.session.position.screen);
        screen.ok_or_else(|| internal("the screen is gone"))
    }
}

fn internal(detail: &'static str) -> Fault {
    Fault::new(Kind::Internal, Origin::Engine, detail)
}
