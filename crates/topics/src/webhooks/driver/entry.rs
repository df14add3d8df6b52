//! One endpoint while it is served.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::super::machine::{Action, Machine, Notice, Now, Outcome, Range, Span, Stopped};
use super::super::plan::{EndpointPlan, Subscriber};
use super::super::reports::{DeadLetters, Reports};
use super::super::state::{Bell, Command, EndpointState, Stored};
use super::super::view::Shown;
use super::held::Held;
use super::{Page, Parcel, Report};
use crate::event::EventId;
use crate::log::Log;
use crate::topic::Topic;
use crate::view::Mode;

/// An endpoint that belongs to this driver, or that it wants to have, until this is dropped.
struct Claim {
    state: Arc<EndpointState>,
    bell: Arc<Bell>,
    has_it: bool,
}

impl Claim {
    fn new(state: &Arc<EndpointState>, bell: &Arc<Bell>) -> Self {
        Self {
            state: Arc::clone(state),
            bell: Arc::clone(bell),
            has_it: false,
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.state.give_back(&self.bell, self.has_it);
    }
}

/// One endpoint while it is served.
pub(super) struct Entry {
    pub plan: Arc<EndpointPlan>,
    /// The number of its view.
    pub view: usize,
    claim: Option<Claim>,
    /// Absent while another one serves the endpoint.
    machine: Option<Machine>,
    /// What has been offered and not been sent.
    held: Held,
    /// What has been read for it alone.
    page: VecDeque<Rc<Shown>>,
    is_paging: bool,
    /// Whether it waits for a place among the requests to its host.
    pub waits_for_host: bool,
    /// How many requests are under way that began when it had not taken the one before.
    pub begun_unproven: usize,
    /// How many requests are under way, where it has a host that a user has named.
    pub under_way: usize,
    /// Whether it has to be looked at.
    pub is_ready: bool,
    /// Whether it waits for what comes next in its view's ring.
    pub is_waiting: bool,
    /// Whether the driver knows that something has to be noted.
    is_dirty: bool,
    /// Whether its machine waits for a note.
    waits_for_note: bool,
    is_behind: bool,
    /// Whether nothing more is begun for it: its subscription has changed or is deleted.
    pub is_retired: bool,
    /// Whether its subscription is deleted: nothing is noted of it any more.
    pub is_deleted: bool,
    /// When its timer rings.
    timer: Option<u64>,
    /// Who waits for the note of a version.
    asked: Vec<(u64, oneshot::Sender<()>)>,
    /// Why something has failed last, for the log.
    last_failure: Option<String>,
    /// The same for its owner and the operational topic: without the addresses of a host that a
    /// user has chosen.
    pub last_failure_for_owner: Option<String>,
    /// Why requests have been refused last, by their first event: others fail meanwhile.
    refusals: BTreeMap<u64, String>,
    /// What has not been reported of it, once there was something.
    pub reports: Option<Box<Reports>>,
    /// The cursor of the record that was made last.
    recorded: u64,
    /// What the machine had begun when its plan was [renewed](Entry::renew): up to this number.
    begun_before: u64,
}

impl Entry {
    pub fn new(plan: Arc<EndpointPlan>, view: usize) -> Self {
        Self {
            plan,
            view,
            claim: None,
            machine: None,
            held: Held::default(),
            page: VecDeque::new(),
            is_paging: false,
            waits_for_host: false,
            begun_unproven: 0,
            under_way: 0,
            is_ready: true,
            is_waiting: false,
            is_dirty: false,
            waits_for_note: false,
            is_behind: false,
            is_retired: false,
            is_deleted: false,
            timer: None,
            asked: Vec::new(),
            last_failure: None,
            last_failure_for_owner: None,
            refusals: BTreeMap::new(),
            reports: None,
            recorded: u64::MAX,
            begun_before: 0,
        }
    }

    /// Goes on by another plan: the subscriber of a hub has just confirmed that it wants what
    /// comes. So it is asked again at once, whatever it has answered before.
    pub fn renew(&mut self, plan: Arc<EndpointPlan>) {
        self.plan = plan;
        let Some(machine) = &mut self.machine else {
            return;
        };
        self.begun_before = machine.last_number();
        if machine.down().is_some() || machine.stopped().is_some() {
            machine.resume();
        }
    }

    /// Whether the endpoint belongs to this driver.
    pub fn is_taken(&self) -> bool {
        self.machine.is_some()
    }

    /// The same, and nothing is under way.
    pub fn is_idle(&self) -> bool {
        let is_told_of = self.reports.as_ref().is_some_and(|it| it.is_under_way);
        self.machine.as_ref().is_some_and(|it| !it.is_busy()) && !is_told_of
    }

    /// Whether one that is retired can go: nothing is under way, and its record is written.
    pub fn is_done(&self) -> bool {
        let is_busy = self.machine.as_ref().is_some_and(Machine::is_busy);
        let is_noted = self.machine.as_ref().is_none_or(|it| !it.is_dirty());
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
        if self.machine.take().is_some() {
            let mut reports = self.reports.take();
            if let Some(reports) = &mut reports {
                reports.stop_clock(now.us);
            }
            self.plan.state.hand_over(reports, is_noted);
        }
        self.claim = None;
        for (_, answer) in self.asked.drain(..).filter(|_| is_noted) {
            // Whoever has asked may have left.
            let _ = answer.send(());
        }
    }

    /// Takes the endpoint, if it is free. Whether it belongs to this driver.
    pub fn prepare(&mut self, log: &Log, (bell, at): (&Arc<Bell>, usize), now: Now) -> bool {
        if self.machine.is_some() {
            return true;
        }
        let state = &self.plan.state;
        let claim = self.claim.get_or_insert_with(|| Claim::new(state, bell));
        claim.has_it = state.take(bell, at);
        if !claim.has_it {
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
        self.machine = Some(machine);
        self.reports = reports.map(|mut it| {
            it.start_clock(now.us);
            it
        });
        true
    }

    /// Does what operators want. Whether one waits for the note.
    pub fn obey(&mut self, now: Now) -> bool {
        let Some(machine) = &mut self.machine else {
            return false;
        };
        for (command, answer) in self.plan.state.take_commands() {
            match command {
                Command::Pause => machine.pause(),
                Command::Resume => machine.resume(),
                Command::Replay(range) => machine.replay(range),
            }
            if machine.is_dirty() {
                let (_, version) = machine.record(now);
                self.asked.push((version, answer));
            } else {
                // It was so before, and that is on the disk. Whoever has asked may have left.
                let _ = answer.send(());
            }
            let (topic, endpoint) = (&*self.plan.state.topic, &*self.plan.state.name);
            match command {
                Command::Pause => tracing::info!(target: "topics", topic, endpoint, "paused"),
                Command::Resume => tracing::info!(target: "topics", topic, endpoint, "resumed"),
                Command::Replay(Range { first, last }) => tracing::info!(
                    target: "topics", topic, endpoint, first, last, "events are sent again"
                ),
            }
        }
        !self.asked.is_empty()
    }

    /// The event that it wants to be offered next.
    pub fn wanted(&mut self) -> Option<u64> {
        if self.is_waiting || self.is_paging {
            return None;
        }
        let machine = self.machine.as_ref()?;
        machine.wants().then(|| machine.next())
    }

    /// An event that has been read for it alone.
    pub fn page_front(&mut self, number: u64) -> Option<Rc<Shown>> {
        while let Some(front) = self.page.front() {
            match front.id.sequence.cmp(&number) {
                std::cmp::Ordering::Less => drop(self.page.pop_front()),
                std::cmp::Ordering::Equal => return self.page.pop_front(),
                std::cmp::Ordering::Greater => return None,
            }
        }
        None
    }

    /// Whether events have to be read for it, which is noted then.
    pub fn begin_page(&mut self) -> bool {
        self.page.clear();
        !std::mem::replace(&mut self.is_paging, true)
    }

    /// Takes events that have been read for it.
    pub fn paged(&mut self, page: Page, now: Now) {
        self.is_paging = false;
        match page {
            Page::Events(events) => self.page = events.into(),
            Page::Gone { first } => {
                if let Some(machine) = &mut self.machine {
                    machine.offer_gap(first.saturating_sub(1), now);
                }
            }
            Page::Unusable => {}
        }
    }

    /// Offers it an event.
    pub fn offer(&mut self, shown: &Rc<Shown>, now: Now) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        // What is done comes by again after a rewind. Nobody would take it.
        let is_done = machine.is_done(shown.id.sequence);
        machine.offer(shown.item(), now);
        if !is_done && !shown.is_left_out() {
            self.held.push(shown);
        }
    }

    /// What there is to do.
    pub fn next_action(&mut self, now: Now) -> Action {
        let Some(machine) = &mut self.machine else {
            return Action::Wait(None);
        };
        let next = machine.next();
        let action = machine.poll(now);
        let is_rewound = machine.next() < next;
        self.waits_for_note = action == Action::Note;
        if is_rewound {
            self.forget_offered();
        }
        action
    }

    /// All that is not done is offered again: it is held again then, and what comes next in the
    /// ring is not what the endpoint wants.
    fn forget_offered(&mut self) {
        self.is_waiting = false;
        self.held = Held::default();
        self.page = VecDeque::new();
    }

    /// Events of it with what is held of them.
    pub fn parcel(&mut self, topic: &Arc<Topic>, span: Span) -> Parcel {
        let machine = self.machine.as_ref();
        Parcel {
            topic: Arc::clone(topic),
            plan: Arc::clone(&self.plan),
            span,
            done: machine.map_or_else(Vec::new, |it| it.done_within(span)),
            shown: self.held.take(span),
        }
    }

    /// Why it is disabled and since when, if that has not been reported.
    pub fn unreported(&self) -> Option<(Stopped, u64)> {
        self.machine.as_ref()?.unreported()
    }

    /// It has been reported that it is disabled since then.
    pub fn set_reported(&mut self, since: u64) {
        if let Some(machine) = &mut self.machine {
            machine.set_reported(since);
        }
    }

    /// Has it reported that these events are gone.
    pub fn add_gap(&mut self, span: Span) {
        if self.plan.websub().is_none() {
            let machine = self.machine.as_ref();
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
        let known = self.refusals.get(&first).cloned();
        known.unwrap_or_else(|| "refused before a restart or a change".to_owned())
    }

    /// Takes what an action has come to.
    pub fn finished(&mut self, (number, mut report): (u64, Report), now: Now, random: f64) {
        if report.outcome == Outcome::Gone && number <= self.begun_before {
            // It was sent before the subscriber has confirmed that it wants more.
            report.outcome = Outcome::Down { retry_after: None };
        }
        if report.reason.is_some() {
            self.last_failure = report.reason;
            self.last_failure_for_owner
                .clone_from(&report.reason_for_owner);
        }
        let Some(machine) = &mut self.machine else {
            return;
        };
        self.plan.state.note_outcome(&report.outcome);
        if let Some(first) = machine.first_of(number)
            && report.outcome == Outcome::Refused
        {
            self.refusals
                .insert(first, report.reason_for_owner.unwrap_or_default());
        }
        machine.finished(number, report.outcome, now, random);
        self.refusals.retain(|first, _| !machine.is_done(*first));
        let notices = machine.take_notices();
        for notice in notices {
            self.log_notice(notice);
        }
    }

    fn log_notice(&self, notice: Notice) {
        if let Some(subscriber) = self.plan.websub() {
            return self.log_hub_notice(subscriber, notice);
        }
        let (topic, endpoint) = (&*self.plan.state.topic, &*self.plan.state.name);
        let reason = self.last_failure.as_deref().unwrap_or_default();
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
        let (topic, subscription) = (&*self.plan.state.topic, &*self.plan.state.name);
        let reason = self.last_failure.as_deref().unwrap_or_default();
        tracing::debug!(target: "websub", topic, subscription, reason, ?notice, "a subscriber");
    }

    /// Whether a timer has to be set for this time.
    pub fn needs_timer(&mut self, due: u64) -> bool {
        let is_earlier = self.timer.is_none_or(|at| due < at);
        if is_earlier {
            self.timer = Some(due);
        }
        is_earlier
    }

    /// A timer has rung.
    pub fn timer_fired(&mut self, due: u64) {
        if self.timer == Some(due) {
            self.timer = None;
        }
    }

    /// After a look at it: shows how it is, and frees what it does not need soon. Whether something
    /// has to be noted that the driver does not know of.
    pub fn settle_down(&mut self) -> bool {
        let Some(machine) = &self.machine else {
            return false;
        };
        self.plan.state.show(machine);
        if machine.down().is_some() || machine.stopped().is_some() {
            self.held = Held::default();
            self.page = VecDeque::new();
        }
        machine.is_dirty() && !std::mem::replace(&mut self.is_dirty, true)
    }

    /// What has to be noted, and which version of it that is.
    pub fn record(&mut self, log: &Log, now: Now) -> Option<(Stored, u64)> {
        if self.is_deleted {
            return None;
        }
        let machine = self.machine.as_ref()?;
        let (record, version) = machine.record(now);
        self.recorded = machine.cursor();
        let cursor = log.id(machine.cursor()).to_string();
        Some((Stored { cursor, record }, version))
    }

    /// The record that was made last has been written.
    pub fn show_noted(&self) {
        self.plan.state.set_noted(self.recorded);
    }

    /// The record of this version has been written, the last one. Whether something waits for that,
    /// and whether something has changed since.
    pub fn noted(&mut self, version: u64) -> (bool, bool) {
        let Some(machine) = &mut self.machine else {
            return (false, false);
        };
        machine.noted(version);
        self.plan.state.set_noted(self.recorded);
        self.is_dirty = machine.is_dirty();
        let done = self.asked.extract_if(.., |(at, _)| *at <= version);
        for (_, answer) in done {
            // Whoever has asked may have left.
            let _ = answer.send(());
        }
        let is_waited_for = self.waits_for_note || self.unreported().is_some();
        (is_waited_for, self.is_dirty)
    }

    /// Whether it has events in memory, or has them read, because it is behind. True only for a
    /// change of that, with what it is now.
    pub fn turned_behind(&mut self) -> Option<bool> {
        let is_behind = self.is_paging || !self.page.is_empty();
        let was_behind = std::mem::replace(&mut self.is_behind, is_behind);
        (is_behind != was_behind).then_some(is_behind)
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
