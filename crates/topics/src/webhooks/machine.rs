//! One endpoint as a state machine: what is sent to it next and when, and what becomes of an
//! answer. It does no input or output and has no clock, so that tests can run it through any
//! schedule of answers, crashes and restarts.
//!
//! Events are offered to it in order ([`Machine::offer`]), [`Machine::poll`] says what to do, and
//! [`Machine::finished`] takes what has come of it. All up to `cursor` is done; beyond it lie at
//! most [`WINDOW`] events, of which some may be done already. [`Machine::record`] is what has to
//! outlive the process.

mod backoff;
mod done;
mod failures;
mod queue;
mod record;
mod replay;
mod resting;
mod rewind;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use component::resilience::Backoff;
use serde::{Deserialize, Serialize};

use self::backoff::Throttled;
use self::queue::{Content, Due, Pending};
use self::record::AttemptState;
pub(crate) use self::record::{Disabled, Down, Record, Stopped};
pub use self::replay::Range;
pub(super) use self::resting::Resting;

/// How far beyond the cursor events are looked at.
pub(super) const WINDOW: u64 = 1024;
/// How long it takes until a dead letter is tried again that its store has not taken.
const DEAD_LETTER_PAUSE: u64 = 5_000_000;

/// The time: since some moment, in microseconds, and of day, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Now {
    pub us: u64,
    pub wall_ms: u64,
}

/// Which events of an endpoint wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// All.
    All,
    /// Those with the same key.
    ByKey,
    /// None.
    None,
}

/// Several events in one request: it is sent when there are so many events or bytes, and so long
/// after the first event at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Batch {
    pub count: usize,
    pub bytes: usize,
    /// In microseconds.
    pub time: u64,
}

/// How often requests are made: so many in a period, `burst` of them at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Throttle {
    pub requests: u64,
    /// In microseconds.
    pub per: u64,
    pub burst: u64,
}

/// How an endpoint is served.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policy {
    pub order: Order,
    /// How many requests may be under way at a time.
    pub concurrent: usize,
    pub batch: Option<Batch>,
    pub throttle: Option<Throttle>,
    pub backoff: Backoff,
    /// How often an event that is refused is sent again.
    pub times: u32,
    /// After how long of being down it is disabled, in milliseconds.
    pub disable_after: u64,
    /// Whether the event that could not be sent for that long is left out, and the next one tried,
    /// in place of disabling the endpoint.
    pub drops: bool,
}

/// An event as an endpoint's view shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// It is left out.
    LeftOut,
    /// It has so many bytes, and perhaps a key that orders it among others.
    Shown { bytes: usize, key: Option<u64> },
    /// An expression has failed on it: it cannot be sent.
    Failed { key: Option<u64> },
}

/// Events of an endpoint: all that are not done between two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub first: u64,
    pub last: u64,
    /// How many of them are sent.
    pub count: usize,
    /// Whether they are a batch, also of one. A batch that was begun stays one when the endpoint
    /// gets no batches any more: its id and its bounds are known to the receiver.
    pub is_batch: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Send these events. `is_whole`: the receiver has no document that a patch applies to.
    Send {
        number: u64,
        span: Span,
        is_whole: bool,
    },
    /// Tell the receiver that these events are gone from the log; of how many events that is not
    /// known when `count` is 0.
    SendGap { number: u64, span: Span },
    /// Store these events as a dead letter.
    DeadLetter {
        number: u64,
        span: Span,
        why: DeadLetterReason,
    },
    /// Have the record written now: the bounds of a batch must not be other ones after a crash.
    Note,
    /// Nothing, until something happens or it is that time.
    Wait(Option<u64>),
}

/// Why events become a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeadLetterReason {
    /// The receiver has refused them as often as it is asked.
    Refused,
    /// An expression has failed.
    Expression,
}

/// What has come of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The receiver has taken it.
    Delivered,
    /// The receiver cannot take anything: no connection, a time-out, 5xx, 408, 429, 3xx. It may
    /// have asked for a wait, in microseconds.
    Down { retry_after: Option<u64> },
    /// The receiver does not take this: another 4xx.
    Refused,
    /// The receiver wants nothing any more: 410.
    Gone,
    /// There is nothing to send: the receiver was not asked.
    NotSent,
    /// The dead letter is in its store.
    DeadLetterStored,
    /// The store has not taken the dead letter.
    DeadLetterNotStored,
    /// The log does not have the events any more.
    Lost,
    /// A change has made the batch larger than requests may be: up to this event it is not.
    TooLarge { last: u64 },
    /// Nothing was done.
    Aborted,
}

/// A change that the driver logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// It takes nothing from here on.
    IsDown,
    /// It takes events again; for how long it did not, in milliseconds.
    IsUp { after: u64 },
    /// Nothing is sent to it any more.
    Disabled(Stopped),
    /// It has refused something so many times; whether that was the last.
    Refused { tries: u32, is_last: bool },
    /// It has refused to be told of a gap as often as it is asked.
    GapSkipped,
    /// It could not take an event for so long that it does not get it.
    Dropped,
}

/// How the endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Up,
    /// Until when nothing is sent, in microseconds.
    Down(Down, u64),
}

/// Something that has been begun.
#[derive(Clone, Debug)]
struct Flight {
    number: u64,
    pending: Pending,
    /// Whether it finds out how an endpoint is that was down.
    is_probe: bool,
}

/// One endpoint.
#[derive(Debug)]
pub(super) struct Machine {
    policy: Arc<Policy>,
    /// All events up to this one are done.
    cursor: u64,
    /// All events up to this one have been offered.
    end: u64,
    /// The last of them that the view shows, whether it is done or not.
    last_shown: u64,
    /// What is done beyond the cursor: first and last of each run.
    done: BTreeMap<u64, u64>,
    queue: VecDeque<Pending>,
    flights: Vec<Flight>,
    /// What is known of events that will be offered (again), by their first.
    known: BTreeMap<u64, AttemptState>,
    number: u64,
    health: Health,
    stopped: Option<Stopped>,
    /// Since when it is disabled, in milliseconds since 1970, and whether that has been reported.
    disabled: Disabled,
    /// The version of the record that has it.
    disabled_version: u64,
    /// Whether the receiver has the document that the next patch applies to.
    has_base: bool,
    throttled: Throttled,
    /// Counts the changes that have to be noted.
    version: u64,
    noted: u64,
    /// Whether nothing of the queue could be begun though there is room.
    is_hungry: bool,
    /// Whether all that is not done has to be offered again.
    rewinds: bool,
    /// Whether the receiver has to be told that events are missing of which nobody knows how many.
    misses: bool,
    notices: Vec<Notice>,
}

impl Machine {
    /// A machine at the end of a log whose next event has this number.
    #[cfg(test)]
    pub fn new(policy: Arc<Policy>, next: u64) -> Self {
        let record = Record::default();
        Self::restore(policy, next - 1, &record, Now::default())
    }

    /// The next event that has to be offered.
    pub fn next(&self) -> u64 {
        self.end + 1
    }

    /// All events up to this one are done.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Whether something is under way.
    pub fn is_busy(&self) -> bool {
        !self.flights.is_empty()
    }

    /// The number of what has been begun last.
    pub fn last_number(&self) -> u64 {
        self.number
    }

    /// The first event of what is under way with this number.
    pub fn first_of(&self, number: u64) -> Option<u64> {
        let flight = self.flights.iter().find(|it| it.number == number);
        flight.map(|it| it.pending.first)
    }

    /// Whether and why nothing is sent.
    pub fn stopped(&self) -> Option<Stopped> {
        self.stopped
    }

    /// Why it is disabled and since when, in milliseconds since 1970, if that has not been
    /// reported. It is reported when it is noted: otherwise a crash could have it disabled, and
    /// reported, a second time.
    pub fn unreported(&self) -> Option<(Stopped, u64)> {
        let is_disabled = |it: &Stopped| matches!(it, Stopped::Gone | Stopped::Down);
        let stopped = self.stopped.filter(is_disabled)?;
        let is_noted = self.noted >= self.disabled_version;
        (is_noted && !self.disabled.is_reported).then_some((stopped, self.disabled.since))
    }

    /// It has been reported that it is disabled since then. It may have been resumed meanwhile, and
    /// be disabled again.
    pub fn set_reported(&mut self, since: u64) {
        if self.unreported().is_some_and(|it| it.1 == since) {
            self.disabled.is_reported = true;
            self.version += 1;
        }
    }

    /// Whether it takes nothing, and since when.
    pub fn down(&self) -> Option<Down> {
        match self.health {
            Health::Up => None,
            Health::Down(down, _) => Some(down),
        }
    }

    /// Whether it has to be offered the next event, once there is one.
    pub fn wants(&self) -> bool {
        if self.stopped.is_some() || self.rewinds {
            return false;
        }
        if self.incomplete().is_some() {
            return true;
        }
        if matches!(self.health, Health::Down(..)) && !self.queue.is_empty() {
            return false;
        }
        let ahead = self.policy.batch.map_or(0, |batch| batch.count);
        let window = WINDOW.max(2 * ahead as u64);
        if self.end - self.cursor >= window {
            return false;
        }
        self.queue.len() < self.policy.concurrent + ahead || self.is_hungry
    }

    /// The batch of which not all events have been offered.
    fn incomplete(&self) -> Option<&Pending> {
        self.queue
            .back()
            .filter(|it| it.is_fixed && it.last > self.end)
    }

    /// Offers it the next event.
    pub fn offer(&mut self, item: Item, now: Now) {
        let number = self.end + 1;
        self.end = number;
        self.is_hungry = false;
        let previous = self.last_shown;
        if item != Item::LeftOut {
            self.last_shown = number;
        }
        if self.is_done(number) {
            return self.end_known_batch(number);
        }
        if let Some((first, batch)) = self.known_batch(number) {
            return self.offer_to_batch((first, batch), item, now);
        }
        let known = self.known.remove(&number).unwrap_or_default();
        let (content, key, bytes) = match item {
            Item::LeftOut => return self.mark_done(number, number),
            Item::Shown { bytes, key } => (Content::Events, key, bytes),
            Item::Failed { key } => (Content::DeadLetter(DeadLetterReason::Expression), key, 0),
        };
        let content = match known.is_dead_letter {
            true => Content::DeadLetter(DeadLetterReason::Refused),
            false => content,
        };
        self.queue.push_back(Pending {
            previous,
            tries: known.tries,
            at: known.at,
            since: now.us,
            ..Pending::one(number, (content, key, bytes))
        });
    }

    fn known_batch(&self, number: u64) -> Option<(u64, AttemptState)> {
        let (first, kept) = self.known.range(..=number).next_back()?;
        (kept.is_batch && kept.last >= number).then_some((*first, *kept))
    }

    /// Completes a batch that has been begun before and ends with this event, which is done. If the
    /// batch stayed in `known`, a later replay of its first event would make a batch of it again.
    fn end_known_batch(&mut self, number: u64) {
        let known = self.known_batch(number);
        let Some((first, _)) = known.filter(|(_, batch)| batch.last == number) else {
            return;
        };
        self.known.remove(&first);
        if self.queue.back().is_some_and(|it| it.first == first) {
            self.cut_incomplete(number);
        }
    }

    /// An event of a batch that has been begun before.
    fn offer_to_batch(&mut self, (first, batch): (u64, AttemptState), item: Item, now: Now) {
        let number = self.end;
        if self.queue.back().is_none_or(|it| it.first != first) {
            let content = match batch.is_dead_letter {
                true => Content::DeadLetter(DeadLetterReason::Refused),
                false => Content::Events,
            };
            self.queue.push_back(Pending {
                last: batch.last,
                count: 0,
                is_fixed: true,
                tries: batch.tries,
                at: batch.at,
                since: now.us,
                version: batch.version,
                ..Pending::one(first, (content, None, 0))
            });
        }
        if let Item::Failed { key } = item {
            // Only another expression than before gets here. What cannot be sent is kept by itself.
            self.cut_incomplete(number - 1);
            self.known.remove(&first);
            let failed = (Content::DeadLetter(DeadLetterReason::Expression), key, 0);
            return self.queue.push_back(Pending::one(number, failed));
        }
        if let (Some(back), Item::Shown { bytes, .. }) = (self.queue.back_mut(), item) {
            back.count += 1;
            back.bytes += bytes;
        }
        if number == batch.last {
            self.known.remove(&first);
            self.cut_incomplete(number);
        }
    }

    /// Ends the last batch with this event.
    fn cut_incomplete(&mut self, last: u64) {
        let Some(back) = self.queue.back_mut().filter(|it| it.is_fixed) else {
            return;
        };
        if back.last != last {
            self.version += 1;
            back.version = self.version;
        }
        back.last = last;
        let (first, is_empty) = (back.first, back.count == 0);
        if is_empty || last < first {
            self.queue.pop_back();
        }
        if is_empty && last >= first {
            self.mark_done(first, last);
        }
    }

    /// Offers it that all events up to this one are gone from the log.
    pub fn offer_gap(&mut self, last: u64, now: Now) {
        let first = self.end + 1;
        if last < first {
            return;
        }
        if self.incomplete().is_some() {
            self.cut_incomplete(first - 1);
        }
        self.end = last;
        self.last_shown = last;
        self.is_hungry = false;
        self.has_base = false;
        self.forget_known(last);
        let count = last + 1 - first - self.count_done(first, last);
        if count == 0 {
            return self.mark_done(first, last);
        }
        self.queue.push_back(Pending {
            last,
            count: count as usize,
            since: now.us,
            ..Pending::one(first, (Content::Gap, None, 0))
        });
        self.version += 1;
    }

    fn forget_known(&mut self, last: u64) {
        let beyond = self.known.split_off(&(last + 1));
        let before = std::mem::replace(&mut self.known, beyond);
        // The part of a batch that is left is one.
        let cut = before
            .into_values()
            .find(|it| it.is_batch && it.last > last);
        if let Some(batch) = cut {
            self.version += 1;
            let version = self.version;
            // What the view leaves out of it is done already.
            let first = (last + 1..=batch.last).find(|it| !self.is_done(*it));
            let first = first.unwrap_or(batch.last);
            self.known.insert(first, AttemptState { version, ..batch });
        }
    }

    /// What to do now.
    pub fn poll(&mut self, now: Now) -> Action {
        if self.stopped.is_some() || self.rewinds {
            if self.flights.is_empty() {
                self.rewind();
            }
            if self.stopped.is_some() || self.rewinds {
                return Action::Wait(None);
            }
        }
        self.announce_unknown_gap();
        let (found, later) = self.candidate(now);
        let Some(index) = found else {
            let has_room = self.flights.len() < self.policy.concurrent;
            self.is_hungry = has_room && self.policy.order != Order::All;
            return Action::Wait(later);
        };
        if let Some(Content::DeadLetter(why)) = self.queue.get(index).map(|it| it.content) {
            return self.begin_dead_letter(index, why);
        }
        if let Health::Down(_, until) = self.health {
            if self.flights.iter().any(|it| !it.pending.is_dead_letter()) {
                return Action::Wait(None);
            }
            if now.us < until {
                return Action::Wait(Some(until));
            }
        }
        if self.flights.len() >= self.policy.concurrent {
            return Action::Wait(None);
        }
        if let Some(at) = self.throttled.wait(self.policy.throttle, now.us) {
            return Action::Wait(Some(at));
        }
        self.begin(index, now)
    }

    fn announce_unknown_gap(&mut self) {
        let is_it = |it: &Pending| it.content == Content::UnknownGap;
        let is_told = |it: &Flight| is_it(&it.pending);
        if self.misses && !self.queue.iter().any(is_it) && !self.flights.iter().any(is_told) {
            let content = (Content::UnknownGap, None, 0);
            self.queue.push_front(Pending {
                count: 0,
                ..Pending::one(self.cursor, content)
            });
        }
    }

    /// The first pending that may be begun, else the time when there may be one.
    fn candidate(&self, now: Now) -> (Option<usize>, Option<u64>) {
        let order = self.policy.order;
        let tells_gap = |it: &Flight| it.pending.is_gap();
        match order {
            Order::All if !self.flights.is_empty() => return (None, None),
            Order::ByKey if self.flights.iter().any(tells_gap) => return (None, None),
            Order::All | Order::ByKey | Order::None => {}
        }
        let under_way = self.flights.iter().filter_map(|it| it.pending.key);
        let mut blocked: HashSet<u64> = match order {
            Order::ByKey => under_way.collect(),
            Order::All | Order::None => HashSet::new(),
        };
        let mut later: Option<u64> = None;
        for (index, pending) in self.queue.iter().enumerate() {
            if pending.key.is_some_and(|key| blocked.contains(&key)) {
                continue;
            }
            match self.due(index, pending, now) {
                Due::Now => return (Some(index), None),
                Due::At(at) => later = Some(later.map_or(at, |it| it.min(at))),
                Due::Incomplete => {}
            }
            match order {
                Order::All => break,
                // The events behind it make the batch, or have to wait for it.
                Order::None if self.is_forming(pending) => break,
                Order::None => {}
                // Events behind a gap wait until the receiver knows of it.
                Order::ByKey if pending.is_gap() => break,
                Order::ByKey => blocked.extend(pending.key),
            }
        }
        (None, later)
    }

    fn is_forming(&self, pending: &Pending) -> bool {
        self.policy.batch.is_some() && pending.can_join()
    }

    fn due(&self, index: usize, pending: &Pending, now: Now) -> Due {
        if pending.at > now.us {
            return Due::At(pending.at);
        }
        if pending.is_fixed && pending.last > self.end {
            return Due::Incomplete;
        }
        let Some(batch) = self.policy.batch.filter(|_| pending.can_join()) else {
            return Due::Now;
        };
        let (_, is_full) = self.gather(index, batch);
        let at = pending.since + batch.time;
        match is_full || now.us >= at {
            true => Due::Now,
            false => Due::At(at),
        }
    }

    /// How many of the queue from there on make a batch, and whether no more fit in. It has all
    /// events between its bounds that the view shows: its id names the bounds alone, and must not
    /// stand for other events when some of these are replayed.
    fn gather(&self, index: usize, batch: Batch) -> (usize, bool) {
        let (mut count, mut bytes, mut last) = (0, 0, 0);
        for pending in self.queue.range(index..) {
            let fits = count == 0 || bytes + pending.bytes <= batch.bytes;
            let follows = count == 0 || pending.previous == last;
            if count == batch.count || !fits || !follows || !pending.can_join() {
                return (count, true);
            }
            count += 1;
            bytes += pending.bytes;
            last = pending.last;
        }
        (count, count == batch.count || bytes >= batch.bytes)
    }

    fn begin(&mut self, index: usize, now: Now) -> Action {
        if let Some(batch) = self.policy.batch
            && self.queue.get(index).is_some_and(Pending::can_join)
        {
            self.form(index, batch);
        }
        let is_noted = self
            .queue
            .get(index)
            .is_none_or(|it| it.version <= self.noted);
        if !is_noted {
            return Action::Note;
        }
        let Some(pending) = self.queue.remove(index) else {
            return Action::Wait(None);
        };
        self.throttled.take(self.policy.throttle, now.us);
        let (span, is_gap) = (pending.span(), pending.is_gap());
        let is_probe = matches!(self.health, Health::Down(..));
        let number = self.take_off(pending, is_probe);
        match is_gap {
            true => Action::SendGap { number, span },
            false => Action::Send {
                number,
                span,
                is_whole: !self.has_base,
            },
        }
    }

    fn begin_dead_letter(&mut self, index: usize, why: DeadLetterReason) -> Action {
        let Some(pending) = self.queue.remove(index) else {
            return Action::Wait(None);
        };
        let span = pending.span();
        let number = self.take_off(pending, false);
        Action::DeadLetter { number, span, why }
    }

    fn take_off(&mut self, pending: Pending, is_probe: bool) -> u64 {
        self.number += 1;
        self.flights.push(Flight {
            number: self.number,
            pending,
            is_probe,
        });
        self.number
    }

    /// Makes one of several: from here on its bounds stay.
    fn form(&mut self, index: usize, batch: Batch) {
        let (count, _) = self.gather(index, batch);
        let Some(last) = self.queue.get(index + count - 1).map(|it| it.last) else {
            return;
        };
        let bytes = self
            .queue
            .range(index..index + count)
            .map(|it| it.bytes)
            .sum();
        self.version += 1;
        let version = self.version;
        self.queue.drain(index + 1..index + count);
        if let Some(first) = self.queue.get_mut(index) {
            first.last = last;
            first.count = count;
            first.bytes = bytes;
            first.is_fixed = true;
            first.version = version;
        }
    }

    /// Takes the outcome of an action. `random`, from 0 to 1, is the jitter of a back-off, which
    /// [`Outcome::Delivered`] has none of.
    pub fn finished(&mut self, number: u64, outcome: Outcome, now: Now, random: f64) {
        let Some(at) = self.flights.iter().position(|it| it.number == number) else {
            return;
        };
        let flight = self.flights.swap_remove(at);
        match outcome {
            Outcome::Delivered => {
                if flight.pending.content == Content::Events {
                    self.has_base = true;
                }
                self.settle(&flight);
                self.is_up(now);
            }
            Outcome::NotSent => self.settle(&flight),
            Outcome::DeadLetterStored => {
                self.has_base = false;
                self.settle(&flight);
            }
            Outcome::DeadLetterNotStored => {
                let at = now.us + DEAD_LETTER_PAUSE;
                self.put_back(Pending {
                    at,
                    ..flight.pending
                });
            }
            Outcome::Refused => {
                self.is_up(now);
                self.refused(flight, now, random);
            }
            Outcome::Down { retry_after } if flight.is_probe && self.gives_up(now) => {
                self.drop_event(&flight, retry_after, now, random);
            }
            Outcome::Down { retry_after } => {
                self.put_back(flight.pending);
                self.has_failed((flight.is_probe, retry_after), now, random);
            }
            Outcome::Gone => {
                self.put_back(flight.pending);
                self.stop(Stopped::Gone, now);
            }
            Outcome::Lost => {
                self.put_back(flight.pending);
                self.rewinds = true;
            }
            Outcome::TooLarge { last } => self.cut(flight.pending, last),
            Outcome::Aborted => self.put_back(flight.pending),
        }
    }

    /// The changes since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// The endpoint has answered.
    fn is_up(&mut self, now: Now) {
        if let Health::Down(down, _) = self.health {
            self.health = Health::Up;
            self.version += 1;
            let after = now.wall_ms.saturating_sub(down.since);
            self.notices.push(Notice::IsUp { after });
        }
    }

    /// Sends nothing until it is resumed.
    pub fn pause(&mut self) {
        if self.stopped != Some(Stopped::Paused) {
            self.stopped = Some(Stopped::Paused);
            self.version += 1;
        }
    }

    /// Goes on at once, whatever the endpoint was stopped or waited for.
    pub fn resume(&mut self) {
        self.stopped = None;
        self.disabled = Disabled::default();
        self.health = Health::Up;
        self.queue.iter_mut().for_each(|it| it.at = 0);
        self.known.values_mut().for_each(|it| it.at = 0);
        self.version += 1;
    }

    fn put_back(&mut self, pending: Pending) {
        let at = self.queue.partition_point(|it| it.first < pending.first);
        self.queue.insert(at, pending);
    }
}
