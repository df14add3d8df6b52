//! When keys are fetched, in many seeded orders of what can happen.

use std::time::{Duration, Instant};

use access::jwt::{Algorithm, Fetch, Key, KeySet, KeySource, Lookup, Times};

use crate::issuer::issuer;

fn set(number: u8) -> KeySet {
    let secret = Key::of_secret(&[number; 32], Algorithm::Hs256).unwrap();
    let ec = issuer().ec_jwk();
    let public = Key::of_jwk(ec.as_object().unwrap(), Algorithm::Rs256).unwrap();
    // Sets differ by how many keys they have.
    match number % 2 {
        0 => KeySet::of(vec![public]),
        _ => KeySet::of(vec![public, secret]),
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn keys_are_fetched_at_once_then_regularly() {
    let begin = Instant::now();
    let mut source = KeySource::new(Times::default());
    assert!(source.keys(begin).is_none());
    let fetch = source.poll(begin).unwrap();
    assert!(source.poll(begin).is_none(), "one is under way");
    source.fetched(&fetch, begin + seconds(1), set(0));
    let (_, generation) = source.keys(begin + seconds(1)).unwrap();
    assert!(source.poll(begin + seconds(600)).is_none());
    let fetch = source.poll(begin + seconds(601)).unwrap();
    source.fetched(&fetch, begin + seconds(602), set(0));
    assert_eq!(
        source.keys(begin + seconds(602)).unwrap().1,
        generation,
        "they are the same"
    );
    let fetch = source.poll(begin + seconds(1202)).unwrap();
    source.fetched(&fetch, begin + seconds(1202), set(1));
    assert_ne!(source.keys(begin + seconds(1202)).unwrap().1, generation);
}

#[test]
fn an_unknown_key_causes_one_fetch_in_five_seconds() {
    let mut now = Instant::now();
    let mut source = KeySource::new(Times::default());
    let fetch = source.poll(now).unwrap();
    source.fetched(&fetch, now, set(0));
    let (begin, mut fetches) = (now, 0);
    while now < begin + seconds(300) {
        // A hundred tokens with invented keys each tenth of a second.
        for _ in 0..100 {
            if source.unknown_key(now) == Lookup::Wait {
                source.leave();
            }
        }
        if let Some(fetch) = source.poll(now) {
            fetches += 1;
            source.fetched(&fetch, now, set(0));
        }
        now += Duration::from_millis(100);
    }
    assert_eq!(fetches, 59, "one after each pause of 5 s");
}

#[test]
fn old_keys_are_good_for_a_day_and_then_there_are_none() {
    let begin = Instant::now();
    let mut source = KeySource::new(Times::default());
    let fetch = source.poll(begin).unwrap();
    source.fetched(&fetch, begin, set(0));
    let mut now = begin + seconds(600);
    let mut tries = 0;
    while let Some(fetch) = source.poll(now) {
        source.failed(&fetch, now);
        assert_eq!(source.keys(now).is_some(), now < begin + seconds(24 * 3600));
        now = source.next().unwrap();
        tries += 1;
        if tries == 20_000 {
            break;
        }
    }
    assert_eq!(tries, 20_000, "it tries again and again");
    assert!(source.keys(now).is_none());
    assert_eq!(source.unknown_key(now - seconds(1)), Lookup::Refuse);
    let fetch = source.poll(now).unwrap();
    source.fetched(&fetch, now, set(0));
    assert!(source.keys(now).is_some());
}

#[test]
fn a_bounded_number_waits() {
    let now = Instant::now();
    let mut source = KeySource::new(Times::default());
    let _fetch = source.poll(now).unwrap();
    for _ in 0..1000 {
        assert_eq!(source.unknown_key(now), Lookup::Wait);
    }
    assert_eq!(source.unknown_key(now), Lookup::Refuse);
    source.leave();
    assert_eq!(source.unknown_key(now), Lookup::Wait);
}

/// A small generator of random numbers (SplitMix64), so that a failure can be repeated by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// What must hold whatever happens: one fetch at a time, none within the pause after another, the
/// answer of one that was given up is not taken, keys are never older than they may be, and the
/// generation changes if and only if the keys do.
#[test]
fn it_holds_in_twenty_thousand_schedules() {
    let (even, odd) = (set(0), set(1));
    let times = Times::default();
    for seed in 0..20_000 {
        let mut random = Random(seed);
        let begin = Instant::now();
        let (mut now, mut source) = (begin, KeySource::new(times));
        let mut open: Vec<(Fetch, Instant)> = Vec::new();
        let mut latest: Option<Instant> = None;
        let (mut last_set, mut generation, mut fresh) = (None, None, None);
        for _ in 0..40 {
            now += Duration::from_millis(random.below(8_000) * (1 + 30 * random.below(3)));
            match random.below(6) {
                0 | 1 => {
                    if let Some(fetch) = source.poll(now) {
                        if let Some(before) = latest {
                            assert!(now >= before + times.pause, "seed {seed}: too soon");
                        }
                        latest = Some(now);
                        open.push((fetch, now));
                    }
                }
                // One in two of those who wait gives up.
                2 if source.unknown_key(now) == Lookup::Wait && random.below(2) == 0 => {
                    source.leave();
                }
                3 if !open.is_empty() => {
                    let (fetch, _) = open.swap_remove(random.below(open.len() as u64) as usize);
                    source.failed(&fetch, now);
                }
                4 if !open.is_empty() => {
                    let index = random.below(open.len() as u64) as usize;
                    // Only the last one that began can still be under way.
                    let is_last = open.iter().all(|(_, began)| *began <= open[index].1);
                    let (fetch, _) = open.swap_remove(index);
                    let is_odd = random.below(2) == 0;
                    let before = source.keys(now).map(|(_, generation)| generation);
                    source.fetched(&fetch, now, if is_odd { odd.clone() } else { even.clone() });
                    let after = source.keys(now).map(|(_, generation)| generation);
                    if is_last && after.is_some() && (after != before || before.is_none()) {
                        (last_set, generation, fresh) = (Some(is_odd), after, Some(now));
                    } else if is_last && last_set == Some(is_odd) && after == generation {
                        fresh = fresh.max(Some(now));
                    }
                }
                _ => {}
            }
            if let Some((_, current)) = source.keys(now) {
                assert_eq!(Some(current), generation, "seed {seed}");
                let age = fresh.map(|it| now - it);
                assert!(age < Some(times.keep), "seed {seed}: too old");
            }
            assert!(source.next().is_none_or(|next| next <= now + times.refresh));
        }
    }
}
