//! What is known of all messages without looking at the disk: where they are, whose turn it is, who
//! has one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use crate::outbox::{Order, Stats};
use crate::record::{Due, Place, Put, Record};

/// The longest wait between two attempts. A clock that was put back makes none longer.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// A message.
pub(crate) struct Entry {
    /// The queue's number.
    pub queue: usize,
    /// What its key comes down to; `None` without a key.
    key: Option<u64>,
    pub place: Place,
    /// The run that stored it; 0 for the tag of the files.
    pub epoch: u64,
    /// When it was stored, in milliseconds since 1970 began.
    pub stored: u64,
    /// When it may be taken.
    due: Instant,
    /// The same for the disk.
    pub due_wall: Due,
    pub attempts: u32,
    /// Why nobody takes it any more.
    pub dead: Option<Box<str>>,
    /// About what it takes on the disk.
    pub size: u64,
    /// Who has it.
    lease: Option<u64>,
}

/// The messages of one name.
pub(crate) struct Queue {
    pub name: String,
    order: Order,
    /// Those that somebody may take, or has.
    waiting: BTreeSet<u64>,
    /// Those that nobody takes any more.
    pub dead: BTreeSet<u64>,
    /// Those whose turn it is, or comes when they are due.
    ready: BTreeSet<(Instant, u64)>,
    /// Those that wait for each other.
    lanes: HashMap<u64, Lane>,
    /// What all of them take.
    pub bytes: u64,
    pub counts: Counts,
}

/// What has happened since the start.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub stored: u64,
    pub delivered: u64,
    pub retried: u64,
    pub buried: u64,
}

#[derive(Default)]
struct Lane {
    ids: BTreeSet<u64>,
    leased: u32,
}

/// All messages.
pub(crate) struct Index {
    pub entries: HashMap<u64, Entry>,
    pub queues: Vec<Queue>,
    names: HashMap<String, usize>,
    /// What the messages of each file take that are still needed.
    live: BTreeMap<u64, u64>,
    pub next_id: u64,
    next_lease: u64,
    /// The same moment by both clocks.
    started: (Instant, u64),
}

impl Index {
    pub fn new(now: Instant, wall: u64) -> Self {
        Self {
            entries: HashMap::new(),
            queues: Vec::new(),
            names: HashMap::new(),
            live: BTreeMap::new(),
            next_id: 1,
            next_lease: 1,
            started: (now, wall),
        }
    }

    /// The number of a queue, made when it is not there yet.
    pub fn queue(&mut self, name: &str) -> usize {
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        let number = self.queues.len();
        self.names.insert(name.to_owned(), number);
        self.queues.push(Queue {
            name: name.to_owned(),
            order: Order::None,
            waiting: BTreeSet::new(),
            dead: BTreeSet::new(),
            ready: BTreeSet::new(),
            lanes: HashMap::new(),
            bytes: 0,
            counts: Counts::default(),
        });
        number
    }

    /// The number of a queue that is there.
    pub fn known(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// Does what a record says that is on the disk.
    pub fn apply(&mut self, record: &Record<'_>, place: Place) {
        match record {
            Record::Put(put) => self.put(put, place),
            Record::Done(id) => drop(self.remove(*id)),
            Record::Back(id, due, attempts) => self.change(*id, |entry| {
                entry.attempts = *attempts;
                entry.due_wall = *due;
            }),
            Record::Bury(id, attempts, why) => self.change(*id, |entry| {
                entry.attempts = *attempts;
                entry.dead = Some((*why).into());
            }),
            Record::Revive(id) => self.change(*id, |entry| {
                (entry.attempts, entry.due_wall, entry.dead) = (0, Due::default(), None);
            }),
        }
    }

    fn put(&mut self, put: &Put<'_>, place: Place) {
        self.next_id = self.next_id.max(put.id + 1);
        let before = self.remove(put.id);
        let queue = self.queue(put.queue);
        let key = (!put.key.is_empty()).then(|| {
            let mut hasher = DefaultHasher::new();
            put.key.hash(&mut hasher);
            hasher.finish()
        });
        let size = (put.body.len() + put.key.len() + put.queue.len()) as u64 + 64;
        let entry = Entry {
            queue,
            key,
            place,
            epoch: put.epoch,
            stored: put.stored,
            // One that is moved waits as long as it did.
            due: before
                .as_ref()
                .map_or_else(|| self.instant(put.due), |it| it.due),
            due_wall: put.due,
            attempts: put.attempts,
            dead: put.dead.map(Into::into),
            size,
            // One that is moved to another file stays with whoever has it.
            lease: before.and_then(|entry| entry.lease),
        };
        *self.live.entry(place.segment).or_default() += size;
        self.entries.insert(put.id, entry);
        self.enter(put.id);
    }

    /// Changes a message; nobody has it any more.
    fn change(&mut self, id: u64, change: impl FnOnce(&mut Entry)) {
        self.leave(id);
        let base = self.started;
        if let Some(entry) = self.entries.get_mut(&id) {
            change(entry);
            entry.due = instant(base, entry.due_wall);
            entry.lease = None;
        }
        self.enter(id);
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        self.leave(id);
        let entry = self.entries.remove(&id)?;
        if let Some(live) = self.live.get_mut(&entry.place.segment) {
            *live = live.saturating_sub(entry.size);
        }
        Some(entry)
    }

    /// Puts a message where it belongs within its queue.
    fn enter(&mut self, id: u64) {
        let Some(entry) = self.entries.get(&id) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(entry.queue) else {
            return;
        };
        queue.bytes += entry.size;
        if entry.dead.is_some() {
            queue.dead.insert(id);
            return;
        }
        queue.waiting.insert(id);
        let Some(lane) = lane_of(queue.order, entry) else {
            if entry.lease.is_none() {
                queue.ready.insert((entry.due, id));
            }
            return;
        };
        self.in_lane(
            entry.queue,
            lane,
            |lane, is_leased| {
                lane.ids.insert(id);
                lane.leased += u32::from(is_leased);
            },
            entry.lease.is_some(),
        );
    }

    /// Takes a message out of its queue.
    fn leave(&mut self, id: u64) {
        let Some(entry) = self.entries.get(&id) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(entry.queue) else {
            return;
        };
        queue.bytes = queue.bytes.saturating_sub(entry.size);
        if queue.dead.remove(&id) {
            return;
        }
        queue.waiting.remove(&id);
        let Some(lane) = lane_of(queue.order, entry) else {
            queue.ready.remove(&(entry.due, id));
            return;
        };
        self.in_lane(
            entry.queue,
            lane,
            |lane, is_leased| {
                lane.ids.remove(&id);
                lane.leased = lane.leased.saturating_sub(u32::from(is_leased));
            },
            entry.lease.is_some(),
        );
    }

    /// Changes a lane, whose first message alone is ready, and only while nobody has one of it.
    fn in_lane(
        &mut self,
        queue: usize,
        lane: u64,
        change: impl FnOnce(&mut Lane, bool),
        leased: bool,
    ) {
        self.first_of_lane(queue, lane, false);
        if let Some(queue) = self.queues.get_mut(queue) {
            let there = queue.lanes.entry(lane).or_default();
            change(there, leased);
            if there.ids.is_empty() {
                queue.lanes.remove(&lane);
            }
        }
        self.first_of_lane(queue, lane, true);
    }

    /// Makes the first message of a lane ready, or not.
    fn first_of_lane(&mut self, queue: usize, lane: u64, is_ready: bool) {
        let Some(queue) = self.queues.get_mut(queue) else {
            return;
        };
        let Some(lane) = queue.lanes.get(&lane).filter(|lane| lane.leased == 0) else {
            return;
        };
        let Some(id) = lane.ids.first() else {
            return;
        };
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        match is_ready {
            true => queue.ready.insert((entry.due, *id)),
            false => queue.ready.remove(&(entry.due, *id)),
        };
    }

    /// Says in which order the messages of a queue are taken from now on.
    pub fn set_order(&mut self, number: usize, order: Order) {
        let Some(queue) = self
            .queues
            .get_mut(number)
            .filter(|queue| queue.order != order)
        else {
            return;
        };
        queue.order = order;
        queue.ready.clear();
        queue.lanes.clear();
        queue.bytes = 0;
        let mut ids = std::mem::take(&mut queue.waiting);
        ids.append(&mut queue.dead);
        for id in ids {
            self.enter(id);
        }
    }

    /// Takes the next message that is due. Gives its number and that of the lease.
    pub fn take(&mut self, number: usize, now: Instant) -> Option<(u64, u64)> {
        let queue = self.queues.get_mut(number)?;
        let (_, id) = queue
            .ready
            .first()
            .copied()
            .filter(|(due, _)| *due <= now)?;
        self.leave(id);
        let lease = self.next_lease;
        self.next_lease += 1;
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.lease = Some(lease);
        }
        self.enter(id);
        Some((id, lease))
    }

    /// When the next message of a queue is due.
    pub fn next_due(&self, number: usize) -> Option<Instant> {
        let queue = self.queues.get(number)?;
        queue.ready.first().map(|(due, _)| *due)
    }

    /// Whether somebody has a message by this lease.
    pub fn is_leased(&self, id: u64, lease: u64) -> bool {
        self.entries
            .get(&id)
            .is_some_and(|entry| entry.lease == Some(lease))
    }

    /// Nobody has the message any more; it is as it was before.
    pub fn release(&mut self, id: u64, lease: u64) {
        if !self.is_leased(id, lease) {
            return;
        }
        self.leave(id);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.lease = None;
        }
        self.enter(id);
    }

    /// The messages of a file that are still needed.
    pub fn of_segment(&self, segment: u64) -> Vec<u64> {
        let entries = self.entries.iter();
        let mut ids: Vec<u64> = entries
            .filter(|(_, entry)| entry.place.segment == segment)
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        ids
    }

    /// What the messages of a file take that are still needed.
    pub fn live(&self, segment: u64) -> u64 {
        self.live.get(&segment).copied().unwrap_or(0)
    }

    /// What all messages take.
    pub fn live_of_all(&self) -> u64 {
        self.queues.iter().map(|queue| queue.bytes).sum()
    }

    /// Forgets a file.
    pub fn forget_segment(&mut self, segment: u64) {
        self.live.remove(&segment);
    }

    pub fn stats(&self, number: usize) -> Stats {
        let Some(queue) = self.queues.get(number) else {
            return Stats::default();
        };
        let oldest = queue.waiting.first().and_then(|id| self.entries.get(id));
        Stats {
            waiting: queue.waiting.len() as u64,
            dead: queue.dead.len() as u64,
            bytes: queue.bytes,
            oldest: oldest.map(|entry| entry.stored),
            stored: queue.counts.stored,
            delivered: queue.counts.delivered,
            retried: queue.counts.retried,
            buried: queue.counts.buried,
        }
    }

    fn instant(&self, due: Due) -> Instant {
        instant(self.started, due)
    }
}

/// A time of day as a moment of the other clock: not before the start, and not so late that a clock
/// that was put back would hold a message up.
fn instant((now, wall_now): (Instant, u64), due: Due) -> Instant {
    // Both clocks have gone on since.
    let elapsed = now.elapsed();
    let passed = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    now + elapsed + wait_until(due, wall_now.saturating_add(passed))
}

/// How long it is until then by a time of day.
pub(crate) fn wait_until(due: Due, wall: u64) -> Duration {
    let wait = Duration::from_millis(due.at.saturating_sub(wall));
    let longest = Duration::from_millis(due.wait.into()).min(WAIT_MAX);
    wait.min(longest)
}

/// The lane of a message; `None` when it waits for no other one.
fn lane_of(order: Order, entry: &Entry) -> Option<u64> {
    match order {
        Order::None => None,
        Order::ByKey => entry.key,
        Order::All => Some(0),
    }
}
