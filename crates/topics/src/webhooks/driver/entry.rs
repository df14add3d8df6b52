//! One endpoint while it is served.

#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::super::machine::{Action, Machine, Notice, Now, Outcome, Range, Resting, Span, Stopped};
use super::super::plan::{EndpointPlan, Subscriber};
use super::super::reports::{DeadLetters, Reports};
use super::super::state::{Bell, Command, Stored};
use super::super::view::Shown;
use super::held::Held;
use super::{Page, Parcel, Report};
use crate::event::EventId;
use crate::log::Log;
use crate::topic::Topic;
use crate::view::Mode;

/// The machine of an endpoint.
enum Served {
    /// Another one serves the endpoint.
    Elsewhere,
    /// It has nothing to do, and takes little memory.
    Resting(Resting),
    Active(Box<Active>),
}

/// A machine with what it needs.
struct Active {
    machine: Machine,
    /// What has been offered and not been sent.
    held: Held,
    /// What has been read for it alone.
    page: VecDeque<Rc<Shown>>,
    /// The last failure, in words for the log.
    last_failure: Option<String>,
    /// The same for its owner and the operational topic: without the addresses of a host that a
    /// user has chosen.
    last_failure_for_owner: Option<String>,
    /// Why requests have been refused last, by their first event: others fail meanwhile.
    refusals: BTreeMap<u64, String>,
    /// Whether the machine waits for a note.
    waits_for_note: bool,
    /// Who waits for the note of a version.
    asked: Vec<(u64, oneshot::Sender<()>)>,
    /// The cursor of the record that was made last.
    recorded: u64,
    /// What the machine had begun when its plan was [renewed](Entry::renew): up to this number.
    begun_before: u64,
}

impl Active {
    /// Frees what it has been offered: it is offered again.
    fn forget_offered(&mut self) {
        self.held = Held::default();
        self.page = VecDeque::new();
    }

    fn new(machine: Machine) -> Box<Self> {
        Box::new(Self {
            machine,
            held: Held::default(),
            page: VecDeque::new(),
            last_failure: None,
            last_failure_for_owner: None,
            refusals: BTreeMap::new(),
            waits_for_note: false,
            asked: Vec::new(),
            recorded: u64::MAX,
            begun_before: 0,
        })
    }
}

/// One endpoint while it is served.
pub(super) struct Entry {
    pub plan: Arc<EndpointPlan>,
    /// The number of its view.
    view: u32,
    /// Rung for the endpoint, while it belongs to this driver or the driver wants to have it.
    bell: Option<Arc<Bell>>,
    /// Whether it belongs to this driver.
    has_it: bool,
    served: Served,
    is_paging: bool,
    /// Whether it waits for a place among the requests to its host.
    pub waits_for_host: bool,
    /// How many requests are under way that began when it had not taken the one before.
    pub begun_unproven: u32,
    /// How many requests are under way, where it has a host that a user has named.
    pub under_way: u32,
    /// Whether it has to be looked at.
    pub is_ready: bool,
    /// Whether it waits for what comes next in its view's ring.
    pub is_waiting: bool,
    /// Whether the driver knows that something has to be noted.
    is_dirty: bool,
    is_behind: bool,
    /// Whether nothing more is begun for it: its subscription has changed or is deleted.
    pub is_retired: bool,
    /// Whether its subscription is deleted: nothing is noted of it any more.
    pub is_deleted: bool,
    /// When its timer rings.
    timer: Option<NonZeroU64>,
    /// What has not been reported of it, once there was something.
    pub reports: Option<Box<Reports>>,
}

impl Entry {
    pub fn new(plan: Arc<EndpointPlan>, view: usize) -> Self {
        Self {
            plan,
            // There are fewer views than endpoints.
            view: u32::try_from(view).unwrap_or(u32::MAX),
            bell: None,
            has_it: false,
            served: Served::Elsewhere,
            is_paging: false,
            waits_for_host: false,
            begun_unproven: 0,
            under_way: 0,
            is_ready: true,
            is_waiting: false,
            is_dirty: false,
            is_behind: false,
            is_retired: false,
            is_deleted: false,
            timer: None,
            reports: None,
        }
    }

    /// Goes on by another plan of the same endpoint: the subscriber of a hub has just confirmed
    /// that it wants what comes. So it is asked again at once, whatever it has answered before.
    pub fn renew(&mut self, plan: Arc<EndpointPlan>) {
        self.plan = plan;
        match &mut self.served {
            // What rests has nothing under way.
            Served::Elsewhere | Served::Resting(_) => {}
            Served::Active(active) => {
                let machine = &mut active.machine;
                active.begun_before = machine.last_number();
                if machine.down().is_some() || machine.stopped().is_some() {
                    machine.resume();
                }
            }
        }
    }

    /// The number of its view.
    pub fn view(&self) -> usize {
        self.view as usize
    }

    /// The machine, unless it rests or is another one's.
    fn machine(&self) -> Option<&Machine> {
        self.awake().map(|it| &it.machine)
    }

    /// What there is of it while it does not rest.
    fn awake(&self) -> Option<&Active> {
        match &self.served {
            Served::Active(active) => Some(active),
            Served::Elsewhere | Served::Resting(_) => None,
        }
    }

    /// The same, to change it.
    fn active(&mut self) -> Option<&mut Active> {
        match &mut self.served {
            Served::Active(active) => Some(active),
            Served::Elsewhere | Served::Resting(_) => None,
        }
    }

    /// The same, and it rests no longer. None while another one serves the endpoint.
    fn waken(&mut self) -> Option<&mut Active> {
        if let Served::Resting(resting) = &self.served {
            let machine = Machine::wake(Arc::clone(&self.plan.policy), resting);
            self.served = Served::Active(Active::new(machine));
        }
        self.active()
    }

    /// Has it rest when it has nothing to do.
    fn rest(&mut self) {
        if let Served::Active(active) = &self.served
            && active.page.is_empty()
            && active.asked.is_empty()
            && let Some(resting) = active.machine.rest()
        {
            self.served = Served::Resting(resting);
        }
    }

    /// Whether the endpoint belongs to this driver.
    pub fn is_taken(&self) -> bool {
        !matches!(self.served, Served::Elsewhere)
    }

    /// The same, and nothing is under way.
    pub fn is_idle(&self) -> bool {
        let is_told_of = self.reports.as_ref().is_some_and(|it| it.is_under_way);
        let is_busy = self.machine().is_some_and(Machine::is_busy);
        self.is_taken() && !is_busy && !is_told_of
    }

    /// Whether one that is retired can go: nothing is under way, and its record is written.
    pub fn is_done(&self) -> bool {
        let is_busy = self.machine().is_some_and(Machine::is_busy);
        let is_noted = self.machine().is_none_or(|it| !it.is_dirty());
        let is_busy = is_busy || self.reports.as_ref().is_some_and(|it| it.is_under_way);
        !is_busy && !self.is_paging && (is_noted || self.is_deleted)
    }

    /// Whether its driver counts it among those that are behind.
    pub fn counts_as_behind(&self) -> bool {
        self.is_behind
    }

    /// Gives the endpoint back, when what is stored of it has been noted or that has failed. What
    /// has been asked for is done in any case, and is answered only when it is noted.
    pub fn release(&mut self, is_noted: bool, now: Now) {
        let served = std::mem::replace(&mut self.served, Served::Elsewhere);
        if !matches!(served, Served::Elsewhere) {
            let mut reports = self.reports.take();
            if let Some(reports) = &mut reports {
                reports.stop_clock(now.us);
            }
            let is_noted = is_noted || matches!(served, Served::Resting(_));
            self.plan.state.hand_over(reports, is_noted);
        }
        self.give_back();
        if let Served::Active(active) = served {
            for (_, answer) in active.asked.into_iter().filter(|_| is_noted) {
                // Whoever has asked may have left.
                let _ = answer.send(());
            }
        }
    }

    /// Leaves the endpoint to others, if it was this driver's, and wants it no more.
    fn give_back(&mut self) {
        let has_it = std::mem::take(&mut self.has_it);
        if let Some(bell) = self.bell.take() {
            self.plan.state.give_back(&bell, has_it);
        }
    }

    /// Takes the endpoint, if it is free. Whether it belongs to this driver.
    pub fn prepare(&mut self, log: &Log, (bell, at): (&Arc<Bell>, usize), now: Now) -> bool {
        if self.is_taken() {
            return true;
        }
        let state = &self.plan.state;
        self.bell.get_or_insert_with(|| Arc::clone(bell));
        self.has_it = state.take(bell, at);
        if !self.has_it {
            return false;
        }
        let is_chain = self.plan.policy.batch.is_some() || self.plan.view.mode == Mode::Patch;
        state.set_chain(is_chain);
        let mut machine = restore(&self.plan, log, now);
        state.show(&machine);
        let (reports, owes_note) = state.take_over();
        if owes_note {
            machine.owe_note();
        }
        self.served = Served::Active(Active::new(machine));
        self.rest();
        self.reports = reports.map(|mut it| {
            it.start_clock(now.us);
            it
        });
        true
    }

    /// Does what operators want. Whether one waits for the note.
    pub fn obey(&mut self, now: Now) -> bool {
        if !self.is_taken() {
            return false;
        }
        for (command, answer) in self.plan.state.take_commands() {
            let Some(Active { machine, asked, .. }) = self.waken() else {
                break;
            };
            match command {
                Command::Pause => machine.pause(),
                Command::Resume => machine.resume(),
                Command::Replay(range) => machine.replay(range),
            }
            if machine.is_dirty() {
                let (_, version) = machine.record(now);
                asked.push((version, answer));
            } else {
                // It was so before, and that is on the disk. Whoever has asked may have left.
                let _ = answer.send(());
            }
            let (topic, endpoint) = (&**self.plan.state.topic(), &*self.plan.state.name);
            match command {
                Command::Pause => tracing::info!(target: "topics", topic, endpoint, "paused"),
                Command::Resume => tracing::info!(target: "topics", topic, endpoint, "resumed"),
                Command::Replay(Range { first, last }) => {
                    let last = Some(last).filter(|it| *it != u64::MAX);
                    tracing::info!(
                        target: "topics", topic, endpoint, first, last, "events are sent again"
                    );
                }
            }
        }
        self.active().is_some_and(|it| !it.asked.is_empty())
    }

    /// The event that it wants to be offered next.
    pub fn wanted(&mut self) -> Option<u64> {
        if self.is_waiting || self.is_paging {
            return None;
        }
        match &self.served {
            Served::Elsewhere => None,
            Served::Resting(resting) => Some(resting.cursor + 1),
            Served::Active(active) => {
                let machine = &active.machine;
                machine.wants().then(|| machine.next())
            }
        }
    }

    /// An event that has been read for it alone.
    pub fn page_front(&mut self, number: u64) -> Option<Rc<Shown>> {
        let page = &mut self.active()?.page;
        while let Some(front) = page.front() {
            match front.id.sequence.cmp(&number) {
                std::cmp::Ordering::Less => drop(page.pop_front()),
                std::cmp::Ordering::Equal => return page.pop_front(),
                std::cmp::Ordering::Greater => return None,
            }
        }
        None
    }

    /// Whether events have to be read for it, which is noted then.
    pub fn begin_page(&mut self) -> bool {
        if let Some(active) = self.active() {
            active.page.clear();
        }
        !std::mem::replace(&mut self.is_paging, true)
    }

    /// Takes events that have been read for it.
    pub fn paged(&mut self, page: Page, now: Now) {
        self.is_paging = false;
        let Some(active) = self.waken() else {
            return;
        };
        match page {
            Page::Events(events) => active.page = events.into(),
            Page::Gone { first } => active.machine.offer_gap(first.saturating_sub(1), now),
            Page::Unusable => {}
        }
    }

    /// Offers it an event.
    pub fn offer(&mut self, shown: &Rc<Shown>, now: Now) {
        let Some(Active { machine, held, .. }) = self.waken() else {
            return;
        };
        // What is done comes by again after a rewind. Nobody would take it.
        let is_done = machine.is_done(shown.id.sequence);
        machine.offer(shown.item(), now);
        if !is_done && !shown.is_left_out() {
            held.push(shown);
        }
    }

    /// What there is to do.
    pub fn next_action(&mut self, now: Now) -> Action {
        let Some(active) = self.active() else {
            return Action::Wait(None);
        };
        let machine = &mut active.machine;
        let next = machine.next();
        let action = machine.poll(now);
        let is_rewound = machine.next() < next;
        active.waits_for_note = action == Action::Note;
        if is_rewound {
            self.forget_offered();
        }
        action
    }

    /// All that is not done is offered again: it is held again then, and what comes next in the
    /// ring is not what the endpoint wants.
    fn forget_offered(&mut self) {
        self.is_waiting = false;
        if let Some(active) = self.active() {
            active.forget_offered();
        }
    }

    /// Events of it with what is held of them.
    pub fn parcel(&mut self, topic: &Arc<Topic>, span: Span) -> Parcel {
        let plan = Arc::clone(&self.plan);
        let (done, shown) = match self.active() {
            Some(it) => (it.machine.done_within(span), it.held.take(span)),
            None => Default::default(),
        };
        Parcel {
            topic: Arc::clone(topic),
            plan,
            span,
            done,
            shown,
        }
    }

    /// Why it is disabled and since when, if that has not been reported.
    pub fn unreported(&self) -> Option<(Stopped, u64)> {
        self.machine()?.unreported()
    }

    /// Why something has failed last, in words for its owner.
    pub fn failure(&self) -> &str {
        let failure = self
            .awake()
            .and_then(|it| it.last_failure_for_owner.as_deref());
        failure.unwrap_or_default()
    }

    /// It has been reported that it is disabled since then.
    pub fn set_reported(&mut self, since: u64) {
        if let Some(active) = self.active() {
            active.machine.set_reported(since);
        }
    }

    /// Has it reported that these events are gone.
    pub fn add_gap(&mut self, span: Span) {
        if self.plan.websub().is_none() {
            let machine = self.machine();
            let done = machine.map_or_else(Vec::new, |it| it.done_within(span));
            self.reports.get_or_insert_default().add_gap(span, &done);
        }
    }

    /// Has dead letters reported, if there are some.
    pub fn add_dead_letters(&mut self, dead_letters: Option<DeadLetters>) {
        if let Some(dead_letters) = dead_letters {
            let reports = self.reports.get_or_insert_default();
            reports.add_dead_letters(dead_letters);
        }
    }

    /// Why the request that begins with this event has been refused, in words for its owner.
    pub fn refusal(&self, first: u64) -> String {
        let known = self.awake().and_then(|it| it.refusals.get(&first));
        known
            .cloned()
            .unwrap_or_else(|| "refused before a restart or a change".to_owned())
    }

    /// Takes what an action has come to.
    pub fn finished(&mut self, (number, mut report): (u64, Report), now: Now, random: f64) {
        let Some(active) = self.active() else {
            return;
        };
        if report.outcome == Outcome::Gone && number <= active.begun_before {
            // It was sent before the subscriber has confirmed that it wants more.
            report.outcome = Outcome::Down { retry_after: None };
        }
        if report.reason.is_some() {
            active.last_failure = report.reason;
            active
                .last_failure_for_owner
                .clone_from(&report.reason_for_owner);
        }
        let Active {
            machine, refusals, ..
        } = active;
        if let Some(first) = machine.first_of(number)
            && report.outcome == Outcome::Refused
        {
            refusals.insert(first, report.reason_for_owner.unwrap_or_default());
        }
        machine.finished(number, report.outcome, now, random);
        refusals.retain(|first, _| !machine.is_done(*first));
        let notices = machine.take_notices();
        self.plan.state.note_outcome(&report.outcome);
        for notice in notices {
            self.log_notice(notice);
        }
    }

    /// The last failure, in words for the log.
    fn last_failure(&self) -> &str {
        let failure = self.awake().and_then(|it| it.last_failure.as_deref());
        failure.unwrap_or_default()
    }

    fn log_notice(&self, notice: Notice) {
        if let Some(subscriber) = self.plan.websub() {
            return self.log_hub_notice(subscriber, notice);
        }
        let (topic, endpoint) = (&**self.plan.state.topic(), &*self.plan.state.name);
        let reason = self.last_failure();
        match notice {
            Notice::IsDown => tracing::warn!(
                target: "topics", topic, endpoint, reason,
                "a webhook is down: its events wait"
            ),
            Notice::IsUp { after } => {
                let after_ms = after;
                tracing::info!(target: "topics", topic, endpoint, after_ms, "a webhook is back");
            }
            Notice::Disabled(Stopped::Gone) => tracing::error!(
                target: "topics", topic, endpoint, reason,
                "a webhook is disabled: it has answered 410"
            ),
            Notice::Disabled(_) => tracing::error!(
                target: "topics", topic, endpoint, reason,
                "a webhook is disabled: it was down for too long"
            ),
            Notice::Refused {
                tries,
                is_last: false,
            } => tracing::warn!(
                target: "topics", topic, endpoint, reason, tries, "a webhook refuses an event"
            ),
            // It is logged when the dead letter is stored.
            Notice::Refused { is_last: true, .. } => {}
            Notice::GapSkipped => tracing::error!(
                target: "topics", topic, endpoint, reason,
                "a webhook refuses to be told that events are missing"
            ),
            Notice::Dropped => tracing::error!(
                target: "topics", topic, endpoint, reason,
                "a webhook does not get an event: it was down for too long"
            ),
        }
    }

    /// The same of a subscription to a hub. Strangers subscribe, so what becomes of each is worth a
    /// line to those who look for it only; counters have the rest.
    fn log_hub_notice(&self, subscriber: &Subscriber, notice: Notice) {
        if notice == Notice::Disabled(Stopped::Gone) {
            (subscriber.gone)();
        }
        let (topic, subscription) = (&**self.plan.state.topic(), &*self.plan.state.name);
        let reason = self.last_failure();
        tracing::debug!(target: "websub", topic, subscription, reason, ?notice, "a subscriber");
    }

    /// Whether a timer has to be set for this time.
    pub fn needs_timer(&mut self, due: u64) -> bool {
        let is_earlier = self.timer.is_none_or(|at| due < at.get());
        if is_earlier {
            self.timer = NonZeroU64::new(due);
        }
        is_earlier
    }

    /// A timer has rung.
    pub fn timer_fired(&mut self, due: u64) {
        if self.timer == NonZeroU64::new(due) {
            self.timer = None;
        }
    }

    /// After a look at it: shows how it is, and frees what it does not need soon. Whether something
    /// has to be noted that the driver does not know of.
    pub fn settle_down(&mut self) -> bool {
        let is_dirty = match &mut self.served {
            Served::Elsewhere => return false,
            Served::Resting(resting) => {
                self.plan.state.show_at(resting.cursor);
                false
            }
            Served::Active(active) => {
                let machine = &active.machine;
                self.plan.state.show(machine);
                let is_dirty = machine.is_dirty();
                if machine.down().is_some() || machine.stopped().is_some() {
                    active.forget_offered();
                }
                is_dirty
            }
        };
        is_dirty && !std::mem::replace(&mut self.is_dirty, true)
    }

    /// What has to be noted, and which version of it that is. Nothing of one that rests: that has
    /// been noted.
    pub fn record(&mut self, log: &Log, now: Now) -> Option<(Stored, u64)> {
        if self.is_deleted {
            return None;
        }
        let active = self.active()?;
        let machine = &active.machine;
        let (record, version) = machine.record(now);
        active.recorded = machine.cursor();
        let cursor = log.id(machine.cursor()).to_string();
        Some((Stored { cursor, record }, version))
    }

    /// The record that was made last has been written.
    pub fn show_noted(&self) {
        match &self.served {
            Served::Elsewhere => {}
            Served::Resting(resting) => self.plan.state.set_noted(resting.cursor),
            Served::Active(active) => self.plan.state.set_noted(active.recorded),
        }
    }

    /// The record of this version has been written, the last one. Whether something waits for that,
    /// and whether something has changed since.
    pub fn noted(&mut self, version: u64) -> (bool, bool) {
        let Some(active) = self.active() else {
            return (false, false);
        };
        active.machine.noted(version);
        let is_dirty = active.machine.is_dirty();
        let done = active.asked.extract_if(.., |(at, _)| *at <= version);
        for (_, answer) in done {
            // Whoever has asked may have left.
            let _ = answer.send(());
        }
        let waits_for_note = active.waits_for_note;
        self.show_noted();
        self.is_dirty = is_dirty;
        let is_waited_for = waits_for_note || self.unreported().is_some();
        self.rest();
        (is_waited_for, self.is_dirty)
    }

    /// Whether it has events in memory, or has them read, because it is behind. True only for a
    /// change of that, with what it is now.
    pub fn turned_behind(&mut self) -> Option<bool> {
        let has_page = self.awake().is_some_and(|it| !it.page.is_empty());
        let is_behind = self.is_paging || has_page;
        let was_behind = std::mem::replace(&mut self.is_behind, is_behind);
        (is_behind != was_behind).then_some(is_behind)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// The machine of an endpoint where it was, as far as the log is still the one that it was.
fn restore(plan: &EndpointPlan, log: &Log, now: Now) -> Machine {
    let policy = Arc::clone(&plan.policy);
    let published = log.next().sequence;
    let stored = plan.state.stored();
    let id = stored
        .as_ref()
        .and_then(|it| it.cursor.parse::<EventId>().ok());
    let (Some(stored), Some(id)) = (stored, id) else {
        // invariant: opening the topic has made a record.
        return Machine::restore(policy, published - 1, &Default::default(), now);
    };
    let other = stored.record.in_other_log();
    let (cursor, record) = match (log.locate(id), log.epochs().end_of(id.epoch)) {
        // The log has been put back to an older state.
        (Ok(last), _) if last.sequence >= published => (published - 1, other),
        (Ok(last), _) => (last.sequence, stored.record),
        // It had come further than that state: what has been published since is new to it.
        (Err(_), Some(end)) => (end, other),
        (Err(_), None) => (log.first() - 1, other),
    };
    Machine::restore(policy, cursor, &record, now)
}
