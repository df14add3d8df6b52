//! The budget of failed checks.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use access::guessing::{Budget, FailedChecks};
use fastrand::Rng;

const BUDGET: Budget = Budget {
    burst: 3,
    refill: Duration::from_secs(10),
    addresses_max: 1000,
};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn after_the_budget_no_check_is_made_until_some_of_it_is_back() {
    let begin = Instant::now();
    let mut checks = FailedChecks::new(BUDGET, begin);
    let (bad, good) = (address("192.0.2.1"), address("192.0.2.2"));
    for second in 0..3 {
        assert_eq!(checks.look(bad, begin + seconds(second)), Ok(()));
        checks.failed(bad, begin + seconds(second));
    }
    let now = begin + seconds(3);
    assert_eq!(checks.look(bad, now), Err(seconds(7)));
    assert_eq!(checks.look(good, now), Ok(()));
    // Asking costs nothing: who waits is let in.
    for _ in 0..100 {
        assert!(checks.look(bad, now).is_err());
    }
    assert_eq!(checks.look(bad, begin + seconds(10)), Ok(()));
    checks.failed(bad, begin + seconds(10));
    assert_eq!(checks.look(bad, begin + seconds(10)), Err(seconds(10)));
    // Everything is back, and nothing is remembered.
    checks.failed(good, begin + seconds(100));
    assert_eq!(checks.len(), 1);
}

#[test]
fn checks_that_take_long_are_counted_from_their_begin() {
    let now = Instant::now();
    let mut checks = FailedChecks::new(BUDGET, now);
    let caller = address("2001:db8::1");
    for _ in 0..3 {
        assert_eq!(checks.take(caller, now), Ok(()));
    }
    assert_eq!(checks.take(caller, now), Err(seconds(10)));
    checks.give_back(caller, now);
    assert_eq!(checks.take(caller, now), Ok(()));
    assert!(checks.take(caller, now).is_err());
    for _ in 0..3 {
        checks.give_back(caller, now);
    }
    assert!(checks.is_empty());
    // Nothing is owed to whoever gives back what was forgotten.
    checks.give_back(caller, now);
    assert!(checks.is_empty());
}

#[test]
fn networks_of_hosts_share_a_budget_and_others_do_not() {
    let now = Instant::now();
    for (one, other, is_shared) in [
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff", true),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
        ("192.0.2.1", "192.0.2.2", false),
        ("192.0.2.1", "::ffff:192.0.2.1", true),
        ("192.0.2.1", "64:ff9b::192.0.2.1", true),
        ("64:ff9b::192.0.2.1", "64:ff9b::192.0.2.2", false),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", false),
        ("0.0.0.1", "2001:db8::1", false),
    ] {
        let mut checks = FailedChecks::new(BUDGET, now);
        (0..3).for_each(|_| checks.failed(address(one), now));
        assert!(checks.look(address(one), now).is_err(), "{one}");
        let refused = checks.look(address(other), now).is_err();
        assert_eq!(refused, is_shared, "{one} {other}");
    }
}

#[test]
fn who_has_failed_most_is_forgotten_last() {
    let now = Instant::now();
    let budget = Budget {
        addresses_max: 100,
        ..BUDGET
    };
    let mut checks = FailedChecks::new(budget, now);
    let attacker = address("192.0.2.1");
    (0..3).for_each(|_| checks.failed(attacker, now));
    for number in 0..100_000_u128 {
        let other = IpAddr::V6(Ipv6Addr::from(0x2001_0db8 << 96 | number << 64));
        checks.failed(other, now);
        assert!(checks.len() <= 100);
    }
    assert_eq!(checks.look(attacker, now), Err(seconds(10)));
}

#[test]
fn budgets_beyond_reason_do_no_harm() {
    let now = Instant::now();
    let (least, most) = (Duration::ZERO, Duration::MAX);
    for (burst, refill, addresses_max) in [(0, least, 0), (u32::MAX, most, usize::MAX)] {
        let budget = Budget {
            burst,
            refill,
            addresses_max,
        };
        let mut checks = FailedChecks::new(budget, now);
        for second in 0..100 {
            let now = now + seconds(second);
            let _ = checks.take(address("192.0.2.1"), now);
            checks.failed(address("192.0.2.2"), now);
            checks.give_back(address("192.0.2.1"), now);
        }
    }
}

/// A bucket, written down in the plainest way: its content in units of a nanosecond's refill.
#[derive(Clone, Copy)]
struct Bucket {
    content: u64,
    at: u64,
}

struct Model {
    burst: u64,
    refill: u64,
    addresses_max: usize,
    buckets: HashMap<u64, Bucket>,
}

impl Model {
    fn content(&self, key: u64, now: u64) -> u64 {
        let full = self.burst * self.refill;
        let bucket = self.buckets.get(&key);
        bucket.map_or(full, |it| (it.content + now - it.at).min(full))
    }

    fn wait(&self, key: u64, now: u64) -> Result<(), Duration> {
        match self.refill.saturating_sub(self.content(key, now)) {
            0 => Ok(()),
            wait => Err(Duration::from_nanos(wait)),
        }
    }

    fn change(&mut self, key: u64, now: u64, fails: bool) {
        let full = self.burst * self.refill;
        let all: Vec<u64> = self.buckets.keys().copied().collect();
        let mut contents: HashMap<u64, u64> =
            all.iter().map(|&it| (it, self.content(it, now))).collect();
        if !fails && !contents.contains_key(&key) {
            return;
        }
        // A full bucket is as good as none.
        contents.retain(|it, content| *content < full || !fails && *it == key);
        if !contents.contains_key(&key) && contents.len() >= self.addresses_max {
            // The fullest, and of those the lowest address.
            let fullest = contents
                .iter()
                .max_by_key(|(it, content)| (**content, u64::MAX - **it));
            let fullest = *fullest.unwrap().0;
            contents.remove(&fullest);
        }
        let content = contents.get(&key).copied().unwrap_or(full);
        let content = match fails {
            true => content.saturating_sub(self.refill),
            false => (content + self.refill).min(full),
        };
        contents.insert(key, content);
        contents.retain(|_, content| *content < full);
        let bucket = |(key, content)| (key, Bucket { content, at: now });
        self.buckets = contents.into_iter().map(bucket).collect();
    }
}

/// Whatever fails, succeeds or waits, in whichever order: the same as the model.
#[test]
fn it_does_as_its_model_in_five_thousand_schedules() {
    let begin = Instant::now();
    for seed in 0..5_000 {
        let mut random = Rng::with_seed(seed);
        let budget = Budget {
            burst: random.u32(1..=4),
            refill: Duration::from_nanos(1_000_000 + random.u64(..3)),
            addresses_max: random.usize(1..=4),
        };
        let mut model = Model {
            burst: u64::from(budget.burst),
            refill: u64::try_from(budget.refill.as_nanos()).unwrap(),
            addresses_max: budget.addresses_max,
            buckets: HashMap::new(),
        };
        let mut checks = FailedChecks::new(budget, begin);
        let mut now = 0;
        for step in 0..60 {
            let key = random.u64(..6);
            let caller = IpAddr::from(u32::try_from(key).unwrap().to_be_bytes());
            let time = begin + Duration::from_nanos(now);
            let context = format!("seed {seed}, step {step}");
            match random.u8(..6) {
                0 | 1 => {
                    checks.failed(caller, time);
                    model.change(key, now, true);
                }
                2 => {
                    let taken = checks.take(caller, time);
                    assert_eq!(taken, model.wait(key, now), "{context}");
                    if taken.is_ok() {
                        model.change(key, now, true);
                    }
                }
                3 => {
                    checks.give_back(caller, time);
                    model.change(key, now, false);
                }
                _ => now += random.u64(..2_500_000),
            }
            let time = begin + Duration::from_nanos(now);
            for key in 0..6 {
                let caller = IpAddr::from(u32::try_from(key).unwrap().to_be_bytes());
                let found = checks.look(caller, time);
                assert_eq!(found, model.wait(key, now), "{context}, address {key}");
            }
            assert!(checks.len() <= budget.addresses_max, "{context}");
        }
    }
}
