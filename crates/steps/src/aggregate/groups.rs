//! The groups of an `aggregate` that are not complete. All workers share them.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use component::handler::Services;
use component::state::{Measure, State};
use expr::Value;
use message::{Fault, Kind, Origin};
use tokio::sync::oneshot;

/// The groups of a step that are not complete.
pub(super) struct Groups {
    count: usize,
    groups_max: usize,
    open: Mutex<Open>,
    completed: AtomicU64,
    timed_out: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
}

#[derive(Default)]
struct Open {
    groups: HashMap<Box<[u8]>, Group>,
    begun: u64,
}

struct Group {
    number: u64,
    bodies: Vec<Value>,
    /// Dropped with the group, which ends its timer.
    _timer: Option<oneshot::Sender<()>>,
}

/// What a body has become.
pub(super) enum Added {
    /// One of so many in its group, which waits for more; the first one of a group with a time has
    /// a timer.
    Waits { count: usize, timer: Option<Timer> },
    /// The last one of its group: these are all.
    Completes(Vec<Value>),
}

/// The timer of a group.
pub(super) struct Timer {
    /// The group's number: its key may come again when it is complete.
    pub number: u64,
    group_left: oneshot::Receiver<()>,
}

impl Timer {
    /// Waits until the time is over or the group is complete, and says whether it was the time.
    pub async fn passes(&mut self, time: Duration, services: &dyn Services) -> bool {
        let mut sleep = services.sleep(time);
        poll_fn(|context| {
            if Pin::new(&mut self.group_left).poll(context).is_ready() {
                return Poll::Ready(false);
            }
            sleep.as_mut().poll(context).map(|()| true)
        })
        .await
    }
}

impl Groups {
    /// Groups that this many bodies complete, and at most so many of them.
    pub fn new(count: usize, groups_max: usize) -> Self {
        Self {
            count,
            groups_max,
            open: Mutex::default(),
            completed: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a body into its group.
    ///
    /// # Errors
    /// `unavailable` when it would begin a group and there are too many.
    pub fn add(&self, key: &[u8], body: Value, is_timed: bool) -> Result<Added, Fault> {
        let mut open = self.open();
        if let Some(group) = open.groups.get_mut(key) {
            group.bodies.push(body);
            let count = group.bodies.len();
            if count < self.count {
                return Ok(Added::Waits { count, timer: None });
            }
            let group = open.groups.remove(key);
            self.completed.fetch_add(1, Ordering::Relaxed);
            let bodies = group.map(|group| group.bodies).unwrap_or_default();
            return Ok(Added::Completes(bodies));
        }
        if open.groups.len() >= self.groups_max {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let detail = "too many groups of messages are incomplete";
            let fault = Fault::new(Kind::Unavailable, Origin::Engine, detail);
            return Err(fault.with_retry_after(Duration::from_secs(1)));
        }
        let timer = open.begin(key, body, is_timed);
        Ok(Added::Waits { count: 1, timer })
    }

    /// Takes the bodies of the group of this number out, when it is still there.
    pub fn take(&self, key: &[u8], number: u64) -> Option<Vec<Value>> {
        let mut open = self.open();
        open.groups.get(key).filter(|it| it.number == number)?;
        let group = open.groups.remove(key)?;
        self.timed_out.fetch_add(1, Ordering::Relaxed);
        Some(group.bodies)
    }

    /// Notes that the steps have failed for a group.
    pub fn count_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Open {
    fn begin(&mut self, key: &[u8], body: Value, is_timed: bool) -> Option<Timer> {
        self.begun += 1;
        let number = self.begun;
        let (sender, group_left) = oneshot::channel();
        let group = Group {
            number,
            bodies: vec![body],
            _timer: is_timed.then_some(sender),
        };
        self.groups.insert(key.into(), group);
        is_timed.then_some(Timer { number, group_left })
    }
}

impl State for Groups {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let groups = self.open().groups.len() as u64;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let measure = |name, help, value| Measure {
            name,
            help,
            value: value as f64,
        };
        vec![
            measure("aggregate_groups", "Groups that are not complete.", groups),
            measure(
                "aggregate_completed_total",
                "Groups that their count has completed.",
                read(&self.completed),
            ),
            measure(
                "aggregate_timed_out_total",
                "Groups that their time has completed.",
                read(&self.timed_out),
            ),
            measure(
                "aggregate_failed_total",
                "Groups whose steps failed.",
                read(&self.failed),
            ),
            measure(
                "aggregate_refused_total",
                "Messages refused since there were too many groups.",
                read(&self.refused),
            ),
        ]
    }
}
