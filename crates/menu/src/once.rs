//! Actions of a session: they are noted durably before their steps begin, run whether or not
//! anybody waits, and their result waits for the subscriber. [`action`](crate::action) decides.

use std::sync::Arc;
use std::time::{Duration, Instant};

use component::exchange::Exchange;
use component::failure_lines::FailureLines;
use component::handler::{Services, until};
use message::{Fault, Kind, Origin};

use crate::action::{Action, At, Attempt, Meeting, Progress, Told, meet};
use crate::answering::{Answering, EndedAction, Led, News, log_failure, run_block, variables};
use crate::new_sessions::Claim;
use crate::plan::{Once, Plan, Screen};
use crate::session::{SIZE_MAX, Session, VARIABLES_MAX, Variables};
use crate::sessions::{ActionRun, RecordKey, Stored};
use crate::step::{Core, internal};
use crate::subscriber::Subscriber;

/// The time from one try to note the end of an action to the next: first and longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// What a session has met.
pub(crate) enum Met {
    /// Nothing.
    Nothing,
    /// An action that is done: the session is at its screen, with the result.
    Result,
    /// An action of which nobody knows what became: the session is at the screen for that.
    Unsure,
    /// An action that runs for longer than the gateway waits.
    Pending,
    /// An action of a screen that the menu does not have any more.
    Lost,
}

impl Answering<'_> {
    /// Comes to the screen of an action: it begins, unless another one has.
    ///
    /// # Errors
    /// When what is noted cannot be read or written.
    pub async fn act(&mut self, screen: &Screen) -> Result<Met, Fault> {
        self.meet(At::Screen(&screen.name)).await
    }

    /// Hears, wherever the session is, what became of an action; `None` when there is none.
    ///
    /// # Errors
    /// When what is noted cannot be read or written.
    pub async fn hear(&mut self) -> Result<Option<Led>, Fault> {
        if !self.plan.has_actions && !self.session.had_actions {
            return Ok(None);
        }
        Ok(match self.meet(At::Elsewhere).await? {
            Met::Nothing => {
                // None begins any more in a menu without actions.
                self.session.had_actions = false;
                None
            }
            Met::Result => Some(Led::Entered),
            Met::Unsure => Some(Led::Enter),
            Met::Pending => Some(self.pending()),
            Met::Lost => Some(self.lost()),
        })
    }

    /// What is said of an action that the menu can show nothing of: whatever became of it, nothing
    /// begins before its subscriber has been told.
    pub fn lost(&self) -> Led {
        let language = self.session.position.language;
        Led::End(self.plan.messages.lost.text(language).to_owned())
    }

    /// What is said while an action runs.
    pub fn pending(&self) -> Led {
        let language = self.session.position.language;
        Led::End(self.plan.messages.pending.text(language).to_owned())
    }

    async fn meet(&mut self, at: At<'_>) -> Result<Met, Fault> {
        let (menu, services) = (self.menu, self.services);
        let shared = self.plan.sessions_in.as_ref();
        let subscriber = RecordKey::subscriber(self.msisdn);
        // Of messages before this one: no steps begin again before their subscriber was told.
        let mut heard = self.heard.clone();
        let (mut waited_until, mut has_waited) = (None, false);
        loop {
            let mut entered = menu.sessions.enter(subscriber, shared, services).await?;
            let mut known = Subscriber::decode(entered.stored())?;
            self.settle_seen(&mut known, has_waited);
            if known.action.is_none() && at == At::Elsewhere {
                return Ok(Met::Nothing);
            }
            let run = menu.sessions.begin(subscriber, shared, services).await?;
            let noted = known.action.as_ref();
            let at = match (at, noted) {
                (At::Screen(_), Some(noted)) if self.has_other_choices(noted)? => At::OtherChoices,
                (at, _) => at,
            };
            let met = meet(noted, (run.is_none(), has_waited), heard.as_ref(), at);
            match (met, known.action.take()) {
                (Meeting::Nothing, _) => return Ok(Met::Nothing),
                (Meeting::Gone, _) => return Ok(Met::Pending),
                (Meeting::Begin | Meeting::Repeat, noted) => {
                    let again = noted.filter(|_| met == Meeting::Repeat);
                    let run = run.ok_or_else(|| internal("an action begins while one runs"))?;
                    let action = self.prepare(next_attempt(again))?;
                    known.action = Some(action.clone());
                    entered.keep(self.kept(&known)).await?;
                    drop(entered);
                    self.start(action, run);
                    (heard, has_waited) = (None, true);
                }
                (Meeting::Wait, noted) => {
                    drop(entered);
                    let until = waited_until.get_or_insert_with(|| self.wait_of(noted.as_ref()));
                    let left = until.saturating_duration_since(services.now());
                    if left.is_zero() {
                        return Ok(Met::Pending);
                    }
                    menu.sessions.wait(subscriber, left, services).await;
                    has_waited = true;
                }
                (Meeting::Show, Some(noted)) => {
                    let met = if self.take_over(&noted)? {
                        Met::Result
                    } else {
                        Met::Lost
                    };
                    self.news.told = Some(noted.id);
                    return Ok(met);
                }
                (Meeting::Unsure, Some(mut noted)) => {
                    noted.progress = Progress::Unsure;
                    if !self.come_to_unsure(&noted)? {
                        self.news.told = Some(noted.id);
                        return Ok(Met::Lost);
                    }
                    known.action = Some(noted);
                    entered.keep(self.kept(&known)).await?;
                    return Ok(Met::Unsure);
                }
                (Meeting::Show | Meeting::Unsure, None) => {
                    return Err(internal("an action that is none"));
                }
            }
        }
    }

    /// What is kept of the subscriber from now on.
    fn kept(&self, known: &Subscriber) -> Stored {
        known.encode(self.services.wall(), self.plan)
    }

    /// Whether something that the subscriber chooses has another value than when an action began.
    fn has_other_choices(&self, noted: &Action) -> Result<bool, Fault> {
        let Some(then) = Session::of_text(&noted.session, self.plan) else {
            return Ok(true);
        };
        let now = variables(self.plan, self.exchange)?;
        let value = |variables: &Variables, name: &str| {
            let mut found = variables.iter().filter(|(known, _)| **known == *name);
            found.next().map(|(_, json)| json.clone())
        };
        let mut chosen = self.plan.slots.chosen.iter();
        Ok(chosen.any(|name| value(&now, name) != value(&then.variables, name)))
    }

    /// Forgets an action whose result the subscriber has seen. Whoever has waited for it has not,
    /// though somebody else was told.
    fn settle_seen(&mut self, known: &mut Subscriber, has_waited: bool) {
        let (session, now) = (self.key.to_text(), self.services.wall());
        let dials = self.news.begins || has_waited;
        let of = (&*session, self.shown.as_deref());
        let seen = known.action.take_if(|it| it.is_seen(of, dials, now));
        if let Some(seen) = seen {
            self.ended.seen = Some(seen.attempt());
        }
    }

    /// Leads the session to the screen for an action of which nobody knows what became; false when
    /// the menu has it no more.
    fn come_to_unsure(&mut self, noted: &Action) -> Result<bool, Fault> {
        let Some(unsure) = self.once_of(noted).map(|it| it.unsure) else {
            warn_changed(noted);
            return Ok(false);
        };
        if !self.take_over(noted)? {
            return Ok(false);
        }
        self.session.is_unsure = true;
        self.session.position.history.clear();
        self.session.position.pass_on(unsure);
        Ok(true)
    }

    fn once_of(&self, action: &Action) -> Option<&Once> {
        let screen = self.plan.find(&action.screen)?;
        self.plan.screen(screen)?.once.as_ref()
    }

    /// Until when an action is waited for.
    fn wait_of(&self, action: Option<&Action>) -> Instant {
        let here = self.plan.screen(self.session.position.screen);
        let once = action.and_then(|it| self.once_of(it));
        let once = once.or_else(|| here?.once.as_ref());
        self.services.now() + once.map_or(Duration::ZERO, |it| it.wait)
    }

    /// What is noted of an action before its steps begin.
    fn prepare(&mut self, attempt: Attempt) -> Result<Action, Fault> {
        let Attempt { id, repeats } = attempt;
        self.session.action = Some(id.clone());
        self.session.repeats = repeats;
        self.session.is_unsure = false;
        self.set_built_in();
        self.save()?;
        let screen = self.plan.screen(self.session.position.screen);
        Ok(Action {
            id,
            screen: screen.map_or_else(String::new, |it| it.name.to_string()),
            progress: Progress::Begun,
            repeats,
            failures: 0,
            told: None,
            session: text_of(&self.session, self.plan)?,
        })
    }

    /// Starts the steps of an action that has been noted, on a message of their own.
    fn start(&mut self, action: Action, run: ActionRun) {
        let mut exchange = self.exchange.clone();
        // What is held for the message ends with it.
        exchange.held.clear();
        let task = Task {
            menu: Arc::clone(self.menu),
            exchange,
            session: self.session.clone(),
            msisdn: self.msisdn.to_owned(),
            action,
            _run: run,
        };
        self.services
            .spawn(Box::new(move |services| Box::pin(task.run(services))));
    }

    /// Goes on with the session of an action; false when it cannot be read any more.
    fn take_over(&mut self, action: &Action) -> Result<bool, Fault> {
        let Some(session) = Session::of_text(&action.session, self.plan) else {
            warn_changed(action);
            return Ok(false);
        };
        self.session.position = session.position;
        self.session.variables = session.variables;
        self.session.action = Some(action.id.clone());
        self.session.repeats = action.repeats;
        self.session.is_unsure = false;
        self.restore()?;
        Ok(true)
    }
}

impl Core {
    /// Notes what has become of an action, when the session has been kept with it and before
    /// another request works on that.
    pub async fn note_end(
        &self,
        ended: EndedAction,
        subscriber: RecordKey,
        services: &dyn Services,
    ) {
        if ended.seen.is_none() && ended.given_up.is_none() && ended.untold.is_none() {
            return;
        }
        let changed = self.change(subscriber, services, |known| {
            let Some(action) = &mut known.action else {
                return;
            };
            let is_untold = ended.untold.as_deref() == Some(&*action.id);
            if action.is_over(ended.seen.as_ref(), ended.given_up.as_ref()) {
                known.action = None;
            } else if is_untold && action.progress == Progress::Done && action.fail_to_show() {
                tracing::error!(
                    target: "menu",
                    action = action.id,
                    screen = action.screen,
                    "the result of an action is given up: it could not be shown"
                );
                known.action = None;
            }
        });
        warn_unnoted(changed.await);
    }

    /// Notes, when the reply is there, what is kept of the subscriber: that the result of an action
    /// has been told, the session, and the language. `is_taken` says whether the reply has somebody
    /// who takes it: else the result of an action waits for the next dial.
    pub async fn note(self: &Arc<Self>, mut news: News, is_taken: bool, services: &dyn Services) {
        let Some(of) = news.session else {
            return;
        };
        news.told.take_if(|_| !is_taken);
        news.given_up.take_if(|_| !is_taken);
        let is_told = news.told.is_some() || news.given_up.is_some() || news.language.is_some();
        if is_told || (news.begins && self.plan.resume.is_some()) {
            self.note_now(of, news, services).await;
        } else if news.begins {
            let (session, subscriber) = of;
            self.note_later(session, subscriber, services);
        }
    }

    /// Has a session that has begun noted by a task of its own: no reply depends on how many there
    /// are, so none waits for it.
    fn note_later(
        self: &Arc<Self>,
        session: RecordKey,
        subscriber: RecordKey,
        services: &dyn Services,
    ) {
        if !self.sessions.new.add(subscriber, session.to_text()) {
            return;
        }
        let menu = Arc::clone(self);
        services.spawn(Box::new(move |services| {
            Box::pin(async move { menu.note_new(subscriber, services).await })
        }));
    }

    /// Notes the sessions of a subscriber that have begun and are not noted yet.
    async fn note_new(self: &Arc<Self>, subscriber: RecordKey, services: &dyn Services) {
        let claim = self.sessions.new.claim(subscriber);
        let mut surplus = Vec::new();
        let changed = self.change(subscriber, services, |known| {
            for session in claim.take() {
                surplus.extend(known.begin(session, self.plan.per_subscriber));
            }
        });
        match changed.await {
            Ok(()) => self.forget_all(&surplus, services),
            failed => warn_unnoted(failed),
        }
    }

    /// Does what [`Core::note`] says, and waits until it is kept.
    async fn note_now(
        self: &Arc<Self>,
        (session, subscriber): (RecordKey, RecordKey),
        news: News,
        services: &dyn Services,
    ) {
        let (session, at) = (session.to_text(), services.wall().as_millis() as u64);
        let mut surplus = Vec::new();
        // Through the list of those that a task may be about to note, so that all keep their order.
        let claim = news.begins.then(|| {
            self.sessions.new.add(subscriber, session.clone());
            self.sessions.new.claim(subscriber)
        });
        let changed = self.change(subscriber, services, |known| {
            let action = known.action.as_mut();
            if let Some(action) = action.filter(|it| news.told.as_deref() == Some(&*it.id)) {
                match &action.told {
                    None => {
                        let session = session.clone();
                        action.told = Some(Told { session, at });
                    }
                    // By a request that was repeated.
                    Some(told) if told.session == session => {}
                    // It has been told twice.
                    Some(_) => known.action = None,
                }
            }
            known
                .action
                .take_if(|it| it.is_over(None, news.given_up.as_ref()));
            if let Some(language) = &news.language {
                known.language = Some(language.to_string());
            }
            for session in claim.map(Claim::take).unwrap_or_default() {
                surplus.extend(known.begin(session, self.plan.per_subscriber));
            }
        });
        let changed = changed.await;
        let is_noted = changed.is_ok();
        warn_unnoted(changed);
        // Apart: messages may still be worked on there, for as long as their steps take.
        if let Some(resumed) = news.resumed.filter(|_| is_noted) {
            let menu = Arc::clone(self);
            services.spawn(Box::new(move |services| {
                Box::pin(async move { menu.close(resumed, services).await })
            }));
        }
        if is_noted {
            self.forget_all(&surplus, services);
        }
    }

    /// Deletes surplus sessions, each in a task that waits until no request uses it.
    fn forget_all(self: &Arc<Self>, surplus: &[String], services: &dyn Services) {
        let surplus = surplus.iter();
        for session in surplus.filter_map(|it| RecordKey::session_of_text(it)) {
            let menu = Arc::clone(self);
            services.spawn(Box::new(move |services| {
                Box::pin(async move { menu.forget(session, services).await })
            }));
        }
    }

    /// Deletes a session that is one too many of its subscriber's. A report of its end that comes
    /// later is one of an unknown session, and so is a late key, unless what was typed fits a code
    /// with parameters.
    async fn forget(&self, session: RecordKey, services: &dyn Services) {
        let forgotten = async { self.enter(session, services).await?.delete().await };
        if let Err(fault) = forgotten.await {
            // It goes when its time is over.
            tracing::debug!(target: "menu", %fault, "a session too many is not forgotten");
        }
    }

    /// Ends a session that another one goes on with: two of them could act on the same choices.
    async fn close(&self, session: RecordKey, services: &dyn Services) {
        static LINES: FailureLines = FailureLines::new();
        let closed = async {
            let mut entered = self.enter(session, services).await?;
            let stored = entered.stored().map(|it| it.bytes.clone());
            let Some(mut session) = stored.and_then(|it| Session::decode(&it, &self.plan)) else {
                return Ok(());
            };
            session.heard.is_over = true;
            session.is_dropped = false;
            self.keep(&mut entered, &session, services.wall()).await
        };
        if let Err(fault) = closed.await
            && let Some(count) = LINES.pass(&fault)
        {
            tracing::warn!(
                target: "menu", %fault, count,
                "a session that was resumed is not closed"
            );
        }
    }

    /// Changes what is kept of a subscriber.
    async fn change(
        &self,
        subscriber: RecordKey,
        services: &dyn Services,
        change: impl FnOnce(&mut Subscriber),
    ) -> Result<(), Fault> {
        let mut entered = self.enter(subscriber, services).await?;
        let mut known = Subscriber::decode(entered.stored())?;
        let before = known.clone();
        change(&mut known);
        if known == before {
            return Ok(());
        }
        let mut stored = known.encode(services.wall(), &self.plan);
        // The list of sessions alone waits for no `fsync`: a crash of the machine that takes the
        // end of it takes those sessions, too.
        stored.is_synced = known.has_news(&before) || self.plan.resume.is_some();
        entered.keep(stored).await
    }
}

/// The reply stands in the session already: what is not noted is told once more.
fn warn_unnoted(noted: Result<(), Fault>) {
    static LINES: FailureLines = FailureLines::new();
    if let Err(fault) = noted
        && let Some(count) = LINES.pass(&fault)
    {
        tracing::warn!(target: "menu", %fault, count, "what is kept of a subscriber is not noted");
    }
}

fn warn_changed(action: &Action) {
    tracing::warn!(
        target: "menu",
        action = action.id,
        screen = action.screen,
        "an action cannot be shown: the menu has changed"
    );
}

/// A session as it is kept with an action: one that could be kept by itself, too.
fn text_of(session: &Session, plan: &Plan) -> Result<String, Fault> {
    let is_small = session.variables_size() <= VARIABLES_MAX / 2;
    let text = is_small.then(|| session.to_text(plan)).flatten();
    let text = text.filter(|it| it.len() < SIZE_MAX);
    text.ok_or_else(|| internal("the variables of an action are larger than 32 KiB"))
}

/// The next attempt at an action; the first one at another, with an id that no other one has.
fn next_attempt(again: Option<Action>) -> Attempt {
    match again {
        Some(noted) => Attempt {
            id: noted.id,
            repeats: noted.repeats.saturating_add(1),
        },
        None => Attempt {
            id: uuid::Uuid::new_v4().to_string(),
            repeats: 0,
        },
    }
}

/// The steps of an action.
struct Task {
    menu: Arc<Core>,
    exchange: Exchange,
    session: Session,
    msisdn: String,
    action: Action,
    /// Others see that it runs until its end is noted.
    _run: ActionRun,
}

impl Task {
    async fn run(mut self, services: &dyn Services) {
        let menu = Arc::clone(&self.menu);
        let plan = &menu.plan;
        let done = self.work(services).await;
        let done = done.and_then(|()| {
            self.session.variables = variables(plan, &self.exchange)?;
            text_of(&self.session, plan)
        });
        match done {
            Ok(session) => {
                self.action.progress = Progress::Done;
                self.action.session = session;
            }
            Err(fault) => {
                self.action.progress = Progress::Unsure;
                let what = format_args!("an action of a menu has failed ({})", self.action.id);
                log_failure(plan, &self.exchange, services, &fault, what);
            }
        }
        static LINES: FailureLines = FailureLines::new();
        let (mut pause, mut is_again) = (PAUSE.0, false);
        while let Err(fault) = self.note(is_again, services).await {
            is_again = true;
            if let Some(count) = LINES.pass(&fault) {
                tracing::warn!(
                    target: "menu", %fault, count, action = self.action.id,
                    "the end of an action cannot be noted yet"
                );
            }
            services.sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    async fn work(&mut self, services: &dyn Services) -> Result<(), Fault> {
        let plan = &self.menu.plan;
        let screen = plan
            .find(&self.action.screen)
            .and_then(|it| plan.screen(it));
        let (work, once) = match screen {
            Some(Screen {
                work: Some(work),
                once: Some(once),
                ..
            }) => (work, once),
            _ => return Err(internal("the screen of an action is gone")),
        };
        let at = services.now() + once.timeout;
        self.exchange.deadline = Some(at);
        let steps = run_block(work, &mut self.exchange, services);
        until(Some(at), services, steps).await.unwrap_or_else(|| {
            let fault = Fault::new(Kind::Timeout, Origin::Upstream, "an action took too long");
            Err(fault.with_cause(format_args!("longer than {:?}", once.timeout)))
        })
    }

    /// Notes the end of the action, durably. A try that failed may have noted it all the same, and
    /// its subscriber have seen it since.
    async fn note(&self, is_again: bool, services: &dyn Services) -> Result<(), Fault> {
        let subscriber = RecordKey::subscriber(&self.msisdn);
        let mut entered = self.menu.enter(subscriber, services).await?;
        let mut known = Subscriber::decode(entered.stored())?;
        let is_open = match &known.action {
            // Another engine may have taken this one for gone, and said that nobody knows.
            Some(noted) => noted.is(&self.action.attempt()) && noted.progress != Progress::Done,
            None => !is_again,
        };
        if is_open {
            known.action = Some(self.action.clone());
            let stored = known.encode(services.wall(), &self.menu.plan);
            entered.keep(stored).await?;
        }
        Ok(())
    }
}
