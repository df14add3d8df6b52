//! Plans: named sets of limits that callers are given, counted over all flows and topics.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use message::{Fault, Kind, Origin, Retry};

use super::limiter::Limiter;
use super::table::CallerHash;
use crate::state::{Measure, State};

/// The plan of callers for whom no other is there.
const DEFAULT: &str = "default";

/// A named set of limits. Each is there only when the plan names it.
pub struct Plan {
    /// Its name.
    pub name: Arc<str>,
    /// How many requests.
    pub requests: Option<Arc<Limiter>>,
    /// How many published events.
    pub events: Option<Arc<Limiter>>,
    /// How many bytes of published events.
    pub bytes: Option<Arc<Limiter>>,
    /// How many open streams at a time.
    pub connections: Option<Arc<Concurrent>>,
    /// How many subscriptions to topics at a time.
    pub subscriptions: Option<Arc<Concurrent>>,
    /// How long a stream of topics may last.
    pub stream_time: Option<Duration>,
}

impl fmt::Debug for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "plan {}", self.name)
    }
}

/// All plans by their names.
#[derive(Debug, Default)]
pub struct Plans(HashMap<Arc<str>, Arc<Plan>>);

impl Plans {
    /// These plans.
    pub fn new(plans: Vec<Arc<Plan>>) -> Self {
        let named = plans.into_iter().map(|it| (Arc::clone(&it.name), it));
        Self(named.collect())
    }

    /// The plan of this name, or the one named `default`.
    ///
    /// # Errors
    /// `forbidden` when there is neither.
    pub fn find(&self, name: Option<&str>) -> Result<&Arc<Plan>, Fault> {
        let found = name.and_then(|name| self.0.get(name));
        found.or_else(|| self.0.get(DEFAULT)).ok_or_else(|| {
            let detail = "the caller has no plan that is known here";
            let name = name.unwrap_or("null").escape_debug();
            let cause = format_args!("`engine.plans` has neither `{name}` nor `default`");
            Fault::new(Kind::Forbidden, Origin::Engine, detail).with_cause(cause)
        })
    }

    /// The plan of exactly this name.
    pub fn named(&self, name: &str) -> Option<&Arc<Plan>> {
        self.0.get(name)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Plan>> {
        self.0.values()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How many of something each caller has at a time, over all workers. Callers with none take no
/// memory.
pub struct Concurrent {
    most: usize,
    what: &'static str,
    counts: Mutex<HashMap<CallerHash, usize>>,
    refused: AtomicU64,
}

/// One of a caller's, for as long as this lives.
#[derive(Debug)]
pub struct Held {
    of: Arc<Concurrent>,
    caller: CallerHash,
}

impl fmt::Debug for Concurrent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.most, self.what)
    }
}

impl Concurrent {
    /// At most so many of this, such as `connections`.
    pub fn new(most: usize, what: &'static str) -> Self {
        Self {
            most,
            what,
            counts: Mutex::default(),
            refused: AtomicU64::new(0),
        }
    }

    /// Counts one more of a caller.
    ///
    /// # Errors
    /// `limited` when the caller has as many as may be.
    pub fn enter(self: &Arc<Self>, caller: CallerHash) -> Result<Held, Fault> {
        let mut counts = self.counts();
        let count = counts.entry(caller).or_default();
        if *count >= self.most {
            drop(counts);
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(self.exceeded());
        }
        *count += 1;
        Ok(Held {
            of: Arc::clone(self),
            caller,
        })
    }

    /// Whether a caller has as many as may be.
    pub fn is_full(&self, caller: CallerHash) -> bool {
        self.counts()
            .get(&caller)
            .is_some_and(|it| *it >= self.most)
    }

    /// The failure of one too many.
    pub fn exceeded(&self) -> Fault {
        let detail = format!("the caller's plan allows {} {}", self.most, self.what);
        Fault::new(Kind::Limited, Origin::Client, detail)
            .with_retry(Retry::Yes)
            .with_retry_after(Duration::from_secs(1))
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<CallerHash, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut counts = self.of.counts();
        if let Some(count) = counts.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.caller);
            }
        }
    }
}

impl State for Concurrent {
    fn measures(&self, _now: Instant) -> Vec<Measure> {
        vec![Measure::count(
            "limits_refused_total",
            "Requests refused.",
            &self.refused,
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_counted_for_each_caller_and_leaves_nothing_behind() {
        let streams = Arc::new(Concurrent::new(2, "connections"));
        let (one, other) = (CallerHash(1, 1), CallerHash(1, 2));
        let held: Vec<Held> = (0..2)
            .map(|_| streams.enter(one).unwrap_or_else(|_| panic!()))
            .collect();
        let fault = streams.enter(one).err().unwrap();
        assert_eq!((fault.status, fault.name()), (429, "limited"));
        assert!(streams.enter(other).is_ok() && streams.is_full(one));
        drop(held);
        assert!(streams.counts().is_empty());
        assert!(streams.enter(one).is_ok());
    }

    #[test]
    fn an_unknown_plan_is_refused_unless_there_is_a_default() {
        let plan = |name: &str| {
            Arc::new(Plan {
                name: name.into(),
                requests: None,
                events: None,
                bytes: None,
                connections: None,
                subscriptions: None,
                stream_time: None,
            })
        };
        let plans = Plans::new(vec![plan("gold")]);
        assert!(plans.find(Some("gold")).is_ok());
        for name in [Some("silver"), None] {
            let fault = plans.find(name).err().unwrap();
            assert_eq!((fault.status, fault.origin), (403, Origin::Engine));
        }
        let plans = Plans::new(vec![plan("gold"), plan("default")]);
        assert_eq!(&*plans.find(None).unwrap().name, "default");
        assert_eq!(&*plans.find(Some("gold")).unwrap().name, "gold");
    }
}
