//! One message of a session while it is answered: what was typed leads to a screen, its steps run,
//! and it is shown.

use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use component::block::Block;
use component::dialogue::Screen as Shown;
use component::exchange::Exchange;
use component::failure_lines::FailureLines;
use component::handler::Services;
use component::step::Next;
use expr::Value;
use message::{Fault, Kind, Origin};

use crate::action::Attempt;
use crate::machine::{MenuKey, Notice, Position, Turned};
use crate::mask;
use crate::once::Met;
use crate::plan::{Choice, Input, Plan, Screen, ScreenId, Target, Then};
use crate::render::{self, Rendered};
use crate::session::{Session, Variables};
use crate::sessions::RecordKey;
use crate::step::{Core, internal};
use crate::subscriber::Subscriber;

/// The most screens that are passed within one reply.
const PASSED_MAX: usize = 32;
/// The deepest nesting of a kept value.
const DEPTH_MAX: usize = 256;
/// The most bytes of a kept value.
const VALUE_MAX: usize = 64 * 1024;

/// A message of a session while it is answered.
pub(crate) struct Answering<'a> {
    pub menu: &'a Arc<Core>,
    pub plan: &'a Plan,
    pub exchange: &'a mut Exchange,
    pub services: &'a dyn Services,
    pub session: Session,
    pub key: RecordKey,
    /// The gateway's id of the session, and the number.
    pub id: &'a str,
    pub msisdn: &'a str,
    /// The id of the action whose result the session had shown before this message.
    pub shown: Option<String>,
    /// The attempt of which it had said before this message that nobody knows what became.
    pub heard: Option<Attempt>,
    /// What is noted of the subscriber when the session has been kept.
    pub ended: EndedAction,
    /// What is noted of the subscriber behind the reply.
    pub news: News,
}

/// What has become of the action of a subscriber, whoever takes the reply.
#[derive(Debug, Default)]
pub(crate) struct EndedAction {
    /// The attempt whose result has been seen.
    pub seen: Option<Attempt>,
    /// The attempt of which nobody knows what became, and that its subscriber has given up.
    pub given_up: Option<Attempt>,
    /// The id of the action whose result could not be rendered.
    pub untold: Option<String>,
}

/// What there is to note of a subscriber when somebody has taken the reply.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// The session, and its subscriber.
    pub session: Option<(RecordKey, RecordKey)>,
    /// The id of the action whose result is in the reply.
    pub told: Option<String>,
    /// The attempt of which the reply says, at the end of the session, that nobody knows what
    /// became.
    pub given_up: Option<Attempt>,
    /// Whether the session begins with the message.
    pub begins: bool,
    /// The session that it goes on with, which is over then.
    pub resumed: Option<RecordKey>,
    /// The language that was chosen, which is remembered.
    pub language: Option<Arc<str>>,
}

/// Where a message leads.
pub(crate) enum Led {
    /// The screen where the session is, or was led to, is entered.
    Enter,
    /// It has been entered, and its steps have run.
    Entered,
    /// The same screen is shown, perhaps another page of it.
    Stay,
    /// The session ends with a text.
    End(String),
}

impl<'a> Answering<'a> {
    /// A message of a session: `id` is the gateway's id of that, beside its key and the number.
    pub fn new(
        menu: &'a Arc<Core>,
        (key, id, msisdn): (RecordKey, &'a str, &'a str),
        session: Session,
        exchange: &'a mut Exchange,
        services: &'a dyn Services,
    ) -> Self {
        Self {
            menu,
            plan: &menu.plan,
            exchange,
            services,
            session,
            key,
            id,
            msisdn,
            shown: None,
            heard: None,
            ended: EndedAction::default(),
            news: News::default(),
        }
    }

    /// What is to be noted when the reply is there.
    pub fn into_news(self) -> News {
        let subscriber = RecordKey::subscriber(self.msisdn);
        News {
            session: Some((self.key, subscriber)),
            ..self.news
        }
    }

    /// Whether the screen that is shown asks for something secret.
    pub fn asks_secret(&self) -> bool {
        let screen = self.plan.screen(self.session.position.screen);
        match screen.map(|it| &it.then) {
            Some(Then::Input(input, _)) => input.rule.is_secret(),
            _ => false,
        }
    }

    /// Begins a session; whether it is one.
    pub async fn begin(&mut self, dialled: &str) -> (Shown, bool) {
        let Some((screen, values)) = self.plan.codes.find(dialled) else {
            let text = self.plan.messages.unknown.text(0).to_owned();
            return (Shown { text, ends: true }, false);
        };
        let values: Vec<(usize, String)> = values
            .into_iter()
            .map(|(slot, value)| (slot, value.to_owned()))
            .collect();
        self.session.position = Position::start(screen);
        let shown = self.show_first(values).await;
        (self.or_failed(shown), true)
    }

    async fn show_first(&mut self, values: Vec<(usize, String)>) -> Result<Shown, Fault> {
        let led = match self.arrive(!values.is_empty()).await? {
            Some(led) => led,
            None => self.begin_with(values).await?,
        };
        self.show(led).await
    }

    /// Begins a session at a screen, with values of variables as JSON.
    ///
    /// # Errors
    /// What a step or a text says: nobody is shown anything then.
    pub async fn begin_at(
        &mut self,
        screen: ScreenId,
        variables: &[(String, String)],
    ) -> Result<Shown, Fault> {
        self.session.is_pushed = true;
        self.session.position = Position::start(screen);
        let kept = self.plan.slots.kept.iter();
        self.session.variables = kept
            .filter_map(|(name, _)| {
                let (_, json) = variables.iter().find(|(it, _)| **it == **name)?;
                Some((Arc::clone(name), json.clone().into_bytes()))
            })
            .collect();
        self.session.had_actions = self.know_subscriber().await?.action.is_some();
        self.restore()?;
        self.show(Led::Enter).await
    }

    /// What is kept of the subscriber; the session is in the language of the last one.
    async fn know_subscriber(&mut self) -> Result<Subscriber, Fault> {
        let plan = self.plan;
        let (sessions, shared) = (&self.menu.sessions, plan.sessions_in.as_ref());
        let key = RecordKey::subscriber(self.msisdn);
        let stored = sessions.peek(key, shared, self.services).await?;
        let known = Subscriber::decode(stored.as_ref())?;
        if let Some(name) = &known.language {
            let mut languages = plan.languages.iter();
            let language = languages.position(|it| **it == **name);
            self.session.position.language = language.unwrap_or_default();
        }
        Ok(known)
    }

    /// Looks at what is kept of the subscriber when a code was dialled: the language, an action,
    /// and a session that was dropped.
    async fn arrive(&mut self, has_values: bool) -> Result<Option<Led>, Fault> {
        self.news.begins = true;
        let plan = self.plan;
        let (sessions, shared) = (&self.menu.sessions, plan.sessions_in.as_ref());
        let known = self.know_subscriber().await?;
        self.session.had_actions = known.action.is_some();
        if let Some(led) = self.hear().await? {
            return Ok(Some(led));
        }
        let last = known
            .session
            .as_deref()
            .and_then(RecordKey::session_of_text);
        let (Some(resume), Some(last), false) = (plan.resume, last, has_values) else {
            return Ok(None);
        };
        let stored = sessions.peek(last, shared, self.services).await?;
        let now = self.services.wall();
        let stored = stored.filter(|it| it.until.saturating_add(resume) > now);
        let dropped = stored.and_then(|it| Session::decode(&it.bytes, plan));
        let Some(dropped) = dropped.filter(Session::can_be_resumed) else {
            return Ok(None);
        };
        self.session.position = dropped.position;
        self.session.position.notice = Notice::Resumed;
        self.session.variables = dropped.variables;
        self.session.action = dropped.action;
        self.session.repeats = dropped.repeats;
        self.session.is_unsure = dropped.is_unsure;
        self.news.resumed = Some(last);
        self.restore()?;
        Ok(Some(Led::Stay))
    }

    /// Runs what the menu does when the gateway has ended a session.
    pub async fn run_on_end(&mut self) {
        let Some(block) = &self.plan.on_end else {
            return;
        };
        let mut ended = self.restore();
        if ended.is_ok() {
            ended = run_block(block, self.exchange, self.services).await;
        }
        if let Err(fault) = ended {
            let what = "what follows the end of a session has failed";
            log_failure(self.plan, self.exchange, self.services, &fault, what);
        }
    }

    /// What was dialled for an input is checked as that; where it is refused, the input is asked
    /// for.
    async fn begin_with(&mut self, values: Vec<(usize, String)>) -> Result<Led, Fault> {
        self.set_built_in();
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

    /// Answers what was typed; `None` stands for inputs of which nobody knows what screens they
    /// were for. `is_new` says that no repeated request looks like this one: what the session has
    /// shown has been seen then.
    pub async fn typed(&mut self, typed: Option<&str>, is_new: bool) -> Shown {
        self.heard = self.session.attempt();
        self.heard.take_if(|_| !self.session.is_unsure);
        let shown = self.session.shown_action().filter(|_| is_new);
        self.shown = shown.map(str::to_owned);
        let shown = self.show_next(typed).await;
        // Only now: a session that nobody answers keeps no other one from being resumed.
        self.news.begins |= std::mem::take(&mut self.session.is_pushed);
        self.or_failed(shown)
    }

    /// What became of an action is heard before a key does anything.
    async fn show_next(&mut self, typed: Option<&str>) -> Result<Shown, Fault> {
        self.restore()?;
        let led = match (self.hear().await?, typed) {
            (Some(led), _) => led,
            (None, Some(typed)) => self.lead(typed).await?,
            // The screen is shown again. It has refused nothing: that is none of its tries.
            (None, None) => {
                self.session.position.refuse();
                Led::Stay
            }
        };
        self.show(led).await
    }

    /// A failure ends the session: the subscriber is told so, the log why.
    fn or_failed(&mut self, shown: Result<Shown, Fault>) -> Shown {
        shown.unwrap_or_else(|fault| {
            self.ended.untold = self.news.told.take();
            let screen = self.plan.screen(self.session.position.screen);
            let screen = screen.map_or("", |it| &*it.name);
            let what = format_args!("a session of a menu has failed at its screen `{screen}`");
            log_failure(self.plan, self.exchange, self.services, &fault, what);
            let failed = &self.plan.messages.failed;
            let text = failed.text(self.session.position.language).to_owned();
            Shown { text, ends: true }
        })
    }

    /// Gives names the values that they had in the session: none where they had none.
    pub fn restore(&mut self) -> Result<(), Fault> {
        self.set_built_in();
        for (_, slot) in &self.plan.slots.kept {
            self.exchange.set_slot(*slot, Value::Null);
        }
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
    pub fn save(&mut self) -> Result<(), Fault> {
        self.session.variables = variables(self.plan, self.exchange)?;
        Ok(())
    }

    pub fn set_built_in(&mut self) {
        let (plan, position) = (self.plan, &self.session.position);
        let msisdn = expr::value::text(self.msisdn);
        let language = plan.languages.get(position.language);
        let text = |text: &str| expr::value::text(text);
        let ussd = expr::value::object([
            ("session".to_owned(), text(self.id)),
            ("language".to_owned(), text(language.map_or("", |it| it))),
            (
                "action".to_owned(),
                self.session.action.as_deref().map_or(Value::Null, text),
            ),
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
        // While pages are turned their keys are nothing else: `98` once too often is no amount.
        let keys = &self.plan.keys;
        let turns_pages = [&keys.more, &keys.page_back].map(|it| it.key.as_str());
        if self.session.position.pages > 1 && turns_pages.contains(&typed) {
            return Ok(Led::Stay);
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
        self.services.visit(self.exchange, chosen.choice.place);
        if let (Some(each), Some(item)) = (&chosen.choice.each, chosen.item) {
            self.exchange.set_slot(each.slot, item);
        }
        if let Some(language) = chosen.choice.language {
            self.session.position.language = language;
            self.news.language = self.plan.languages.get(language).cloned();
        }
        self.go(chosen.choice.go);
        Ok(Led::Enter)
    }

    /// The value of what was typed; `None` when it may not be.
    async fn read_input(&mut self, input: &Input, typed: &str) -> Result<Option<Value>, Fault> {
        let Some(value) = input.rule.read(typed) else {
            return Ok(None);
        };
        if input.rule.is_secret() {
            // A condition that fails may quote it: what stands there is masked.
            self.exchange.set_slot(input.slot, value.clone());
        }
        for condition in [&input.pattern, &input.condition].into_iter().flatten() {
            self.exchange.set_value(value.clone());
            let services = self.services;
            let holds = self
                .exchange
                .preemptible(services, |it| it.holds(condition, services));
            let holds = holds.await;
            self.exchange.set_value(Value::Null);
            if !holds? {
                if input.rule.is_secret() {
                    self.exchange.set_slot(input.slot, Value::Null);
                }
                return Ok(None);
            }
        }
        Ok(Some(value))
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
            self.go(screen);
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
                self.go(screen);
                Ok(Led::Enter)
            }
            None => {
                let text = input.invalid.as_ref().unwrap_or(&self.plan.messages.choose);
                Ok(Led::End(text.text(position.language).to_owned()))
            }
        }
    }

    /// Goes on to a screen. There is no way back to one with an action: that would be another one.
    fn go(&mut self, screen: ScreenId) {
        let position = &mut self.session.position;
        let left = self.plan.screen(position.screen);
        match left.is_some_and(|it| it.once.is_some()) {
            true => position.pass_on(screen),
            false => position.go(screen),
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

    /// Enters screens until one shows something, and renders that one.
    async fn show(&mut self, led: Led) -> Result<Shown, Fault> {
        let led = match led {
            Led::Enter => self.enter(false).await?,
            Led::Entered => self.enter(true).await?,
            other => other,
        };
        if let Led::End(text) = led {
            return Ok(Shown { text, ends: true });
        }
        self.set_built_in();
        let plan = self.plan;
        let screen = self.here()?;
        let position = self.session.position.clone();
        let rendered = render::render(plan, screen, &position, self.exchange, self.services);
        let Rendered { pages, ends } = rendered.await?;
        let position = &mut self.session.position;
        position.pages = pages.len();
        position.page = position.page.min(pages.len() - 1);
        let is_last = position.page + 1 == pages.len();
        let text = pages.get(position.page).map(|page| page.text());
        self.save()?;
        let ends = is_last && ends;
        if ends && self.session.is_unsure {
            let attempt = self.session.attempt();
            match attempt == self.heard {
                true => self.ended.given_up = attempt,
                false => self.news.given_up = attempt,
            }
        }
        Ok(Shown {
            text: text.unwrap_or_default(),
            ends,
        })
    }

    /// Runs the steps of the screen that is entered, unless they have run, and of those that follow
    /// it at once.
    async fn enter(&mut self, mut has_run: bool) -> Result<Led, Fault> {
        for _ in 0..PASSED_MAX {
            self.give_up_unsure()?;
            self.set_built_in();
            let screen = self.here()?;
            self.services.visit(self.exchange, screen.place);
            if !std::mem::take(&mut has_run) {
                match (&screen.once, &screen.work) {
                    (Some(_), Some(_)) => match self.act(screen).await? {
                        Met::Nothing | Met::Result => {}
                        Met::Unsure => continue,
                        Met::Pending => return Ok(self.pending()),
                        Met::Lost => return Ok(self.lost()),
                    },
                    (None, Some(work)) => run_block(work, self.exchange, self.services).await?,
                    (_, None) => {}
                }
            }
            let screen = self.here()?;
            let Then::Go(targets) = &screen.then else {
                return Ok(Led::Stay);
            };
            let next = self.target(targets).await?;
            self.session.position.pass_on(next);
        }
        Err(internal("screens follow each other without end"))
    }

    /// Whoever begins anew does not mean the action any more of which nobody knows what became: the
    /// next one has an id of its own.
    fn give_up_unsure(&mut self) -> Result<(), Fault> {
        let (screen, position) = (self.here()?, &self.session.position);
        if self.session.is_unsure && position.screen == position.home && screen.once.is_none() {
            self.ended.given_up = self.session.attempt();
            self.session.action = None;
            self.session.is_unsure = false;
        }
        Ok(())
    }

    fn here(&self) -> Result<&'a Screen, Fault> {
        let screen = self.plan.screen(self.session.position.screen);
        screen.ok_or_else(|| internal("the screen is gone"))
    }
}

/// The variables that are kept of a session, as JSON.
///
/// # Errors
/// When one is too large, or cannot be written as JSON.
pub(crate) fn variables(plan: &Plan, exchange: &Exchange) -> Result<Variables, Fault> {
    let mut variables = Vec::new();
    for (name, slot) in &plan.slots.kept {
        let value = exchange.slot(*slot);
        if matches!(value, Value::Null) {
            continue;
        }
        let mut json = Vec::new();
        expr::json::write(&value, VALUE_MAX, &mut json).map_err(|error| {
            let detail = "a variable of a session cannot be kept";
            let fault = Fault::new(Kind::Internal, Origin::Engine, detail);
            fault.with_cause(format_args!("${name}: {error}"))
        })?;
        variables.push((Arc::clone(name), json));
    }
    Ok(variables)
}

/// Logs that steps of a menu have failed, or that the engine refuses what comes.
pub(crate) fn log_failure(
    plan: &Plan,
    exchange: &Exchange,
    services: &dyn Services,
    fault: &Fault,
    what: impl Display,
) {
    static LINES: FailureLines = FailureLines::new();
    services.failed(exchange, fault);
    let Some(count) = LINES.pass(fault) else {
        return;
    };
    let cause = fault.cause.as_deref().unwrap_or_default();
    tracing::warn!(
        target: "flow",
        flow = &*exchange.context.name,
        step = fault.step.as_deref().unwrap_or_default(),
        kind = fault.name(),
        cause = &*mask::masked(cause, plan, exchange),
        count,
        "{what}: {}", mask::masked(&fault.detail, plan, exchange)
    );
}

/// Runs steps of a menu on a message without a body.
pub(crate) async fn run_block(
    block: &Block,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<(), Fault> {
    run_block_on(Value::Null, block, exchange, services).await?;
    exchange.set_value(Value::Null);
    Ok(())
}

/// Runs steps of a menu on a value; what they make of it is the value of the message then.
pub(crate) async fn run_block_on(
    value: Value,
    block: &Block,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<(), Fault> {
    exchange.set_value(value);
    match block.start(exchange, services).await? {
        Next::Continue => Ok(()),
        Next::Reply(_) | Next::Forward(_) => Err(internal("a step of a menu has replied")),
    }
}
