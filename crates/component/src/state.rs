//! What steps remember from one message to the next: breakers, throttles, caches. It outlives a
//! reload as long as the step stays as it is, and the admin port shows it.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A number that the admin port shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// The name without the engine's prefix, such as `breaker_state`; that of a count ends with
    /// `_total`.
    pub name: &'static str,
    /// What it says, for the help text.
    pub help: &'static str,
    /// The number.
    pub value: f64,
}

impl Measure {
    /// What has been counted so far.
    pub fn count(name: &'static str, help: &'static str, counter: &AtomicU64) -> Self {
        let value = counter.load(Ordering::Relaxed) as f64;
        Self { name, help, value }
    }
}

/// What a step remembers.
pub trait State: Any + Send + Sync {
    /// What the admin port shows of it.
    fn measures(&self, _now: Instant) -> Vec<Measure> {
        Vec::new()
    }

    /// Whether it is kept although no flow has it, as what is open for the whole process.
    fn stays(&self) -> bool {
        false
    }
}

/// Where a state belongs.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct StateKey {
    /// The flow's name.
    pub flow: Arc<str>,
    /// What logs call the step.
    pub step: Arc<str>,
    /// What it is, such as `breaker`.
    pub kind: &'static str,
    /// The settings it was made with: a state of other settings is another one.
    pub settings: String,
}

impl StateKey {
    /// Of something that belongs to no flow: all of this kind and name are the same.
    pub fn shared(name: &str, kind: &'static str) -> Self {
        Self {
            flow: "".into(),
            step: name.into(),
            kind,
            settings: String::new(),
        }
    }
}

/// Without the settings, which may hold a password.
impl fmt::Debug for StateKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            flow, step, kind, ..
        } = self;
        write!(formatter, "{kind} of {flow} {step}")
    }
}

/// All states of the process.
#[derive(Default)]
pub struct States(Mutex<Known>);

/// The states by their keys: a start asks for one for each of thousands of topics.
#[derive(Clone, Default)]
struct Known {
    states: HashMap<StateKey, (u64, Arc<dyn State>)>,
    /// How many have been made: they are shown in that order.
    made: u64,
}

impl Known {
    /// Forgets those that no flow has any more.
    fn tidy(&mut self) {
        self.states
            .retain(|_, (_, state)| Arc::strong_count(state) > 1 || state.stays());
    }
}

impl States {
    /// The state that belongs there, made when it is not there yet.
    pub fn get<T: State>(&self, key: StateKey, make: impl FnOnce() -> T) -> Arc<T> {
        let mut known = self.known();
        if let Some((_, state)) = known.states.get(&key) {
            let state: Arc<dyn Any + Send + Sync> = Arc::clone(state) as _;
            if let Ok(state) = state.downcast::<T>() {
                return state;
            }
        }
        let state = Arc::new(make());
        known.made += 1;
        let number = known.made;
        known.states.insert(key, (number, Arc::clone(&state) as _));
        state
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy for loading files into: it has the states that are there, and keeps to itself those
    /// that the load makes. When the load is refused it is dropped and leaves no trace.
    pub fn stage(&self) -> Self {
        Self(Mutex::new(self.known().clone()))
    }

    /// Takes over what has been made in a staged copy.
    pub fn commit(&self, staged: Self) {
        let staged = staged
            .0
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let mut known = self.known();
        known.tidy();
        known.made = known.made.max(staged.made);
        known.states.extend(staged.states);
    }

    /// What the admin port shows: each measure with the flow and step it belongs to. Forgets the
    /// states that no flow has any more.
    pub fn measures(&self, now: Instant) -> Vec<(StateKey, Measure)> {
        let mut known = self.known();
        known.tidy();
        let mut all: Vec<_> = known.states.iter().collect();
        all.sort_by_key(|(_, (number, _))| *number);
        let all = all.into_iter().flat_map(|(key, (_, state))| {
            let measures = state.measures(now).into_iter();
            measures.map(|measure| (key.clone(), measure))
        });
        all.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count(u32);

    impl State for Count {
        fn measures(&self, _: Instant) -> Vec<Measure> {
            vec![Measure {
                name: "count",
                help: "A count.",
                value: f64::from(self.0),
            }]
        }
    }

    fn key(settings: &str) -> StateKey {
        StateKey {
            flow: "orders".into(),
            step: "1 (cache)".into(),
            kind: "cache",
            settings: settings.to_owned(),
        }
    }

    #[test]
    fn a_state_is_kept_while_its_settings_stay() {
        let states = States::default();
        let first = states.get(key("a"), || Count(1));
        assert_eq!(states.get(key("a"), || Count(2)).0, 1);
        assert_eq!(states.get(key("b"), || Count(3)).0, 3);
        assert_eq!(states.measures(Instant::now()).len(), 1);
        drop(first);
        assert_eq!(states.measures(Instant::now()).len(), 0);
    }

    #[test]
    fn a_state_that_is_open_for_the_process_stays() {
        struct Open(bool);
        impl State for Open {
            fn stays(&self) -> bool {
                self.0
            }
        }
        for is_open in [false, true] {
            let states = States::default();
            drop(states.get(key("a"), || Open(is_open)));
            states.measures(Instant::now());
            assert_eq!(states.get(key("a"), || Open(false)).0, is_open);
        }
    }

    #[test]
    fn what_a_refused_load_makes_leaves_no_trace() {
        let states = States::default();
        let first = states.get(key("a"), || Count(1));
        let refused = states.stage();
        assert_eq!(refused.get(key("a"), || Count(2)).0, 1);
        let made = refused.get(key("b"), || Count(3));
        drop(refused);
        assert_eq!(states.measures(Instant::now()).len(), 1);
        assert_eq!(states.get(key("b"), || Count(4)).0, 4);
        let taken = states.stage();
        let other = taken.get(key("c"), || Count(5));
        states.commit(taken);
        assert_eq!(states.get(key("c"), || Count(6)).0, 5);
        assert_eq!(states.measures(Instant::now()).len(), 2, "of `a` and `c`");
        drop((first, made, other));
        assert_eq!(states.measures(Instant::now()).len(), 0);
    }
}
