//! How many passwords are checked at once, and how many requests wait.

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};

use super::Identity;

/// A check that runs or waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CheckId(u64);

/// A request that waits for the end of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Waiter {
    check: CheckId,
    number: u64,
}

impl Waiter {
    /// What it waits for.
    #[must_use]
    pub fn check(self) -> CheckId {
        self.check
    }
}

/// What becomes of a request whose password is to be checked.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry<J> {
    /// The check begins now: do the job, then call [`CheckQueue::finish`].
    Start(Waiter, J),
    /// It begins when another one has ended, or has begun already for the same user and password.
    Wait(Waiter),
    /// Too much waits already: 503.
    Refuse(J),
}

/// What the end of a check brings.
#[derive(Debug, PartialEq, Eq)]
pub struct Finished<J> {
    /// Who waits for its result.
    pub waiters: Vec<Waiter>,
    /// The check that begins in its place.
    pub next: Option<(CheckId, J)>,
}

/// The checks of passwords of one process: at most so many run, so many wait, and one of the same
/// user and password is made once for all who wait for it. It does nothing itself: a job `J` is
/// whatever the caller needs to make a check.
///
/// A check belongs to nobody who waits: one that has begun goes on when its request is gone, and
/// keeps its place until it ends, for no thread can be stopped in the middle of a hash. One that
/// has not begun is dropped with its last waiter.
#[derive(Debug)]
pub struct CheckQueue<J> {
    running_max: usize,
    waiting_max: usize,
    checks: HashMap<CheckId, Check<J>>,
    /// With the generation of the users: after a change of the file a check is another one.
    by_identity: HashMap<(Identity, u64), CheckId>,
    /// Those that have not begun, the first in front. Some have been dropped.
    order: VecDeque<CheckId>,
    running: usize,
    waiters: usize,
    next: u64,
}

#[derive(Debug)]
struct Check<J> {
    key: (Identity, u64),
    /// Until it begins.
    job: Option<J>,
    waiters: HashSet<Waiter>,
}

impl<J> CheckQueue<J> {
    /// At most so many checks run at once, at least one. A request that starts none is refused when
    /// as many as both numbers together wait for a result already.
    #[must_use]
    pub fn new(running_max: usize, waiting_max: usize) -> Self {
        Self {
            running_max: running_max.max(1),
            waiting_max,
            checks: HashMap::new(),
            by_identity: HashMap::new(),
            order: VecDeque::new(),
            running: 0,
            waiters: 0,
            next: 0,
        }
    }

    /// Asks for a check of a user and password against the users of this generation.
    pub fn enter(&mut self, identity: Identity, generation: u64, job: J) -> Entry<J> {
        let key = (identity, generation);
        let known = self.by_identity.get(&key).copied();
        let starts = known.is_none() && self.running < self.running_max;
        if !starts && self.waiters >= self.running_max + self.waiting_max {
            return Entry::Refuse(job);
        }
        let id = known.unwrap_or(CheckId(self.next));
        let waiter = Waiter {
            check: id,
            number: self.next,
        };
        self.next += 1;
        self.waiters += 1;
        if let Some(check) = self.checks.get_mut(&id) {
            check.waiters.insert(waiter);
            return Entry::Wait(waiter);
        }
        let mut check = Check {
            key,
            job: None,
            waiters: HashSet::from_iter([waiter]),
        };
        self.by_identity.insert(key, id);
        if starts {
            self.running += 1;
            self.checks.insert(id, check);
            return Entry::Start(waiter, job);
        }
        check.job = Some(job);
        self.checks.insert(id, check);
        self.order.push_back(id);
        Entry::Wait(waiter)
    }

    /// A check has ended, in whatever way. Its waiters get the result, and the next one begins.
    pub fn finish(&mut self, id: CheckId) -> Finished<J> {
        let is_running = |check: &Check<J>| check.job.is_none();
        if !self.checks.get(&id).is_some_and(is_running) {
            return Finished {
                waiters: Vec::new(),
                next: None,
            };
        }
        let mut waiters: Vec<Waiter> = match self.remove(id) {
            Some(check) => check.waiters.into_iter().collect(),
            None => Vec::new(),
        };
        waiters.sort_unstable();
        self.waiters -= waiters.len();
        self.running -= 1;
        Finished {
            waiters,
            next: self.start_next(),
        }
    }

    /// A request no longer waits. `None`, or the job that is dropped with it.
    pub fn leave(&mut self, waiter: Waiter) -> Option<J> {
        let check = self.checks.get_mut(&waiter.check)?;
        if !check.waiters.remove(&waiter) {
            return None;
        }
        self.waiters -= 1;
        if check.job.is_none() || !check.waiters.is_empty() {
            return None;
        }
        let dropped = self.remove(waiter.check)?;
        self.order.retain(|it| *it != waiter.check);
        dropped.job
    }

    /// How many checks run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running
    }

    /// How many requests wait, those included whose check runs.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters
    }

    fn start_next(&mut self) -> Option<(CheckId, J)> {
        let id = self.order.pop_front()?;
        let job = self.checks.get_mut(&id)?.job.take()?;
        self.running += 1;
        Some((id, job))
    }

    fn remove(&mut self, id: CheckId) -> Option<Check<J>> {
        let check = self.checks.remove(&id)?;
        self.by_identity.remove(&check.key);
        Some(check)
    }
}
