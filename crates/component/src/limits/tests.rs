//! Limits against a model that keeps every request there has been, and over threads.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use message::Headers;

use super::*;
use crate::exchange::FlowContext;
use crate::state::{State as _, StateKey, States};

fn window(count: u64, per: Duration, burst: u64) -> WindowSettings {
    WindowSettings { count, per, burst }
}

fn limiter(windows: &[WindowSettings], patience: Patience) -> (Arc<KeptLimits>, Arc<Limiter>) {
    let states = States::default();
    let settings = LimiterSettings {
        windows: windows.to_vec(),
        patience,
        callers_max: 10_000,
    };
    let place = StateKey::shared("test", "limit");
    let limiter = KeptLimits::limiter(&states, place, &settings);
    (KeptLimits::of(&states), limiter)
}

/// Every unit that a caller has been given: a request is let in when no time up to now has more
/// than its burst and what its rate allows.
#[derive(Default)]
struct Model(Vec<(u64, u64)>);

impl Model {
    fn has_room(&self, window: WindowSettings, now: u64, units: u64) -> bool {
        let per = window.per.as_nanos();
        let mut sum = u128::from(units);
        let mut fits = sum <= u128::from(window.burst);
        for (at, units) in self.0.iter().rev() {
            sum += u128::from(*units);
            let allowed =
                u128::from(window.burst) * per + u128::from(now - at) * u128::from(window.count);
            fits &= sum * per <= allowed;
        }
        fits
    }
}

#[test]
fn a_limit_does_what_a_model_does_that_keeps_every_request() {
    let seconds = Duration::from_secs;
    let mut admitted = 0;
    for seed in 1..=40 {
        let mut random = Rng::with_seed(seed);
        // Rates whose distances are whole ticks, so that nothing is rounded.
        let rates = [1, 2, 5, 10, 20, 100, 1000];
        let mut rate = || rates[random.usize(..7)];
        let windows = [
            window(rate(), seconds(1), 1 + rate() / 3),
            window(rate() * 60, seconds(60), 40),
        ];
        let (kept, limiter) = limiter(&windows, Patience::default());
        let origin = Instant::now();
        let mut now = 0;
        let mut models: Vec<Model> = (0..3).map(|_| Model::default()).collect();
        for _ in 0..600 {
            now += random.u64(..60_000_000);
            let number = random.usize(..3);
            let units = 1 + random.u64(..3).min(windows[0].burst - 1);
            let caller = kept.hash(Id::Value(&[number as u8]));
            let at = origin + Duration::from_nanos(now);
            let model = &mut models[number];
            let expected = windows.iter().all(|it| model.has_room(*it, now, units));
            let taken = limiter.take(caller, units, at).is_ok();
            assert_eq!(taken, expected, "seed {seed} at {now}");
            match taken && random.u8(..5) == 0 {
                true => limiter.give_back(caller, units),
                false if taken => model.0.push((now, units)),
                false => {}
            }
            admitted += u32::from(taken);
        }
    }
    assert!(admitted > 1000);
}

#[test]
fn two_workers_let_in_exactly_what_one_would() {
    for (callers, seconds) in [(1, 20), (50, 3)] {
        let windows = [window(100, Duration::from_secs(1), 100)];
        let (kept, limiter) = limiter(&windows, Patience::default());
        let admitted = AtomicU64::new(0);
        let origin = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for millisecond in (0..=seconds * 1000).step_by(5) {
                        let now = origin + Duration::from_millis(millisecond);
                        for caller in 0..callers {
                            let caller = kept.hash(Id::Value(&[caller]));
                            while limiter.take(caller, 1, now).is_ok() {
                                admitted.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
        });
        // A worker whose clock is behind finds nothing; the last time counts for both.
        let expected = u64::from(callers) * (100 + 100 * seconds);
        assert_eq!(admitted.into_inner(), expected);
    }
}

#[test]
fn what_is_too_much_waits_within_bounds_or_is_refused() {
    let windows = [window(10, Duration::from_secs(1), 1)];
    let patience = Patience {
        wait: Duration::from_millis(500),
        queue: Some(2),
    };
    let (kept, limiter) = limiter(&windows, patience);
    let (now, caller) = (Instant::now(), kept.hash(Id::Everybody));
    let wait = || limiter.take(caller, 1, now).map(|it| it.as_millis());
    assert_eq!((wait(), wait(), wait()), (Ok(0), Ok(100), Ok(200)));
    let refused = wait().unwrap_err();
    assert_eq!(refused.free_in.as_millis(), 100, "then the first has gone");
    limiter.give_back(caller, 1);
    assert_eq!(wait(), Ok(200), "the place of one that has left");
}

#[test]
fn callers_beyond_the_table_share_one_bucket() {
    let states = States::default();
    let settings = LimiterSettings {
        windows: vec![window(2, Duration::from_secs(60), 2)],
        patience: Patience::default(),
        callers_max: 64,
    };
    let limiter = KeptLimits::limiter(&states, StateKey::shared("x", "limit"), &settings);
    let kept = KeptLimits::of(&states);
    let now = Instant::now();
    let mut admitted = 0;
    for number in 0..10_000u32 {
        let caller = kept.hash(Id::Value(&number.to_le_bytes()));
        admitted += u32::from(limiter.take(caller, 1, now).is_ok());
    }
    assert_eq!(admitted, 64 + 2);
    let measures = limiter.measures(now);
    let value = |name| measures.iter().find(|it| it.name == name).unwrap().value;
    assert_eq!(value("limits_callers"), 64.0);
    assert_eq!(value("limits_table_full_total"), 10_000.0 - 64.0);
    let first = kept.hash(Id::Value(&0u32.to_le_bytes()));
    assert!(
        limiter.take(first, 1, now).is_ok(),
        "known callers are not touched"
    );
}

#[test]
fn long_windows_are_taken_over_from_an_earlier_life() {
    let windows = [window(5, Duration::from_secs(3600), 5)];
    let (kept, first) = limiter(&windows, Patience::default());
    let (caller, other) = (kept.hash(Id::Value(b"a")), kept.hash(Id::Value(b"b")));
    for _ in 0..5 {
        assert!(first.take(caller, 1, Instant::now()).is_ok());
    }
    assert!(first.take(other, 1, Instant::now()).is_ok());
    let snapshots = first.changed();
    assert!(first.changed().is_empty(), "nothing has changed since");
    let (next, second) = limiter(&windows, Patience::default());
    assert_eq!(next.set_key(kept.key()), kept.key());
    for snapshot in &snapshots {
        assert!(second.restore(&snapshot.bytes));
        assert!(!second.restore(snapshot.bytes.get(1..).unwrap()));
    }
    assert!(
        second
            .take(next.hash(Id::Value(b"a")), 1, Instant::now())
            .is_err()
    );
    for _ in 0..4 {
        assert!(
            second
                .take(next.hash(Id::Value(b"b")), 1, Instant::now())
                .is_ok()
        );
    }
    assert!(
        second
            .take(next.hash(Id::Value(b"b")), 1, Instant::now())
            .is_err()
    );
    assert_eq!(kept.all().len(), 1);
    assert_eq!((kept.take_new().len(), kept.take_new().len()), (1, 0));
}

/// A gate with a limit for all and one for each address or key.
fn gate(headers: bool) -> Gate {
    let everybody = limiter(
        &[window(4, Duration::from_secs(60), 4)],
        Patience::default(),
    );
    let each = limiter(&[window(2, Duration::from_secs(1), 2)], Patience::default());
    let throttled = |name: &str, by, limiter| Throttled {
        name: name.into(),
        by,
        limiter,
    };
    Gate {
        context: FlowContext::new("test").into(),
        kept: everybody.0,
        throttles: vec![
            throttled("all", Who::Everybody, everybody.1),
            throttled("each", Who::Header("x-key".into()), each.1),
        ],
        plan: None,
        headers,
    }
}

#[test]
fn a_gate_counts_a_request_by_all_limits_or_by_none() {
    let gate = gate(true);
    assert!(!gate.needs_evaluation());
    let now = Instant::now();
    let enter = |key: Option<&str>, address: &str| {
        let mut headers = Headers::new();
        if let Some(key) = key {
            headers.append("X-Key", key);
        }
        let address: IpAddr = address.parse().unwrap();
        let visit = Visit {
            hidden: None,
            caller: None,
            address,
            headers: headers.view(),
            now,
        };
        gate.enter(&visit).map(|entered| entered.finish(now).fields)
    };
    let told = enter(Some("a"), "192.0.2.1").unwrap().unwrap();
    assert_eq!(told.policy, "\"all\";q=4;w=60, \"each\";q=2;w=1");
    assert_eq!(told.left, "\"all\";r=3;t=15, \"each\";r=1;t=1");
    assert!(enter(Some("a"), "192.0.2.2").is_ok());
    let refused = enter(Some("a"), "192.0.2.3").unwrap_err();
    let message::Of::Limit(told) = &refused.of else {
        panic!("{refused}");
    };
    assert_eq!(told.exceeded.as_deref(), Some("each"));
    assert_eq!(
        told.left, "\"all\";r=2;t=30, \"each\";r=0;t=1",
        "given back"
    );
    assert!(enter(None, "2001:db8::1").is_ok());
    assert!(enter(None, "2001:db8::2").is_ok(), "of one network");
    assert_eq!(enter(None, "192.0.2.9").unwrap_err().status, 429);
}

#[test]
fn a_request_that_leaves_while_it_waits_is_not_counted() {
    let gate = gate(false);
    let headers = Headers::new();
    let visit = Visit {
        hidden: None,
        caller: None,
        address: [192, 0, 2, 1].into(),
        headers: headers.view(),
        now: Instant::now(),
    };
    for _ in 0..10 {
        drop(gate.enter(&visit).unwrap_or_else(|fault| panic!("{fault}")));
    }
    let counted = (0..10).filter(|_| {
        gate.enter(&visit)
            .is_ok_and(|it| it.finish(visit.now).fields.is_none())
    });
    assert_eq!(counted.count(), 2);
}

/// As it is where the credential has been taken out of the message before.
#[test]
fn a_credential_that_goes_no_further_counts_nobody() {
    let gate = gate(false);
    let now = Instant::now();
    let enter = |key: &str, hidden| {
        let mut headers = Headers::new();
        headers.append("X-Key", key);
        let visit = Visit {
            hidden,
            caller: None,
            address: [192, 0, 2, 1].into(),
            headers: headers.view(),
            now,
        };
        gate.enter(&visit).map(|it| drop(it.finish(now)))
    };
    assert!(enter("a", Some("x-key")).is_ok());
    assert!(enter("b", Some("x-key")).is_ok());
    let refused = enter("c", Some("x-key")).unwrap_err();
    assert_eq!(refused.status, 429, "all by the address");
    assert!(enter("c", Some("authorization")).is_ok());
}
