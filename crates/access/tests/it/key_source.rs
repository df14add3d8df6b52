//! When keys are fetched, in many seeded orders of what can happen.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use access::jwt::{Algorithm, Fetch, Key, KeySet, KeySource, Lookup, Times};
use fastrand::Rng;

/// Sets that differ by one secret only.
fn set(number: u8) -> KeySet {
    KeySet::of(vec![
        Key::of_secret(&[number; 32], Algorithm::Hs256).unwrap(),
    ])
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn generation(source: &KeySource, now: Instant) -> Option<u64> {
    source.keys(now).map(|it| it.generation())
}

#[test]
fn keys_are_fetched_at_once_then_regularly() {
    let begin = Instant::now();
    let mut source = KeySource::new(Times::default());
    assert!(source.keys(begin).is_none());
    let fetch = source.poll(begin).unwrap();
    assert!(source.poll(begin).is_none(), "one is under way");
    assert!(source.fetched(&fetch, begin + seconds(1), set(0)));
    let first = generation(&source, begin + seconds(1));
    assert!(source.poll(begin + seconds(600)).is_none());
    let fetch = source.poll(begin + seconds(601)).unwrap();
    assert!(source.fetched(&fetch, begin + seconds(602), set(0)));
    assert_eq!(
        generation(&source, begin + seconds(602)),
        first,
        "they are the same"
    );
    let fetch = source.poll(begin + seconds(1202)).unwrap();
    assert!(source.fetched(&fetch, begin + seconds(1202), set(1)));
    assert!(generation(&source, begin + seconds(1202)) > first);
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
            let seen = generation(&source, now);
            match source.unknown_key(seen, now) {
                Lookup::Fetch(fetch) => {
                    fetches += 1;
                    source.fetched(&fetch, now, set(0));
                }
                other => assert_eq!(other, Lookup::Refuse),
            }
        }
        now += Duration::from_millis(100);
    }
    assert_eq!(fetches, 59, "one after each pause of 5 s");
}

#[test]
fn who_has_seen_older_keys_looks_once_more() {
    let now = Instant::now();
    let mut source = KeySource::new(Times::default());
    let fetch = source.poll(now).unwrap();
    source.fetched(&fetch, now, set(0));
    assert_eq!(source.unknown_key(None, now), Lookup::Retry);
    let seen = generation(&source, now);
    assert_eq!(source.unknown_key(seen, now), Lookup::Refuse);
    let Lookup::Fetch(fetch) = source.unknown_key(seen, now + seconds(5)) else {
        panic!("it is time for a fetch");
    };
    source.fetched(&fetch, now + seconds(5), set(1));
    assert_eq!(source.unknown_key(seen, now + seconds(5)), Lookup::Retry);
}

#[test]
fn old_keys_are_good_for_a_day_and_then_there_are_none() {
    let begin = Instant::now();
    let mut source = KeySource::new(Times::default());
    let fetch = source.poll(begin).unwrap();
    source.fetched(&fetch, begin, set(0));
    let mut now = begin + seconds(600);
    for _ in 0..20_000 {
        let fetch = source.poll(now).unwrap();
        // No keys at all are no better than no answer.
        match now.elapsed().as_secs() % 2 {
            0 => source.failed(&fetch, now),
            _ => assert!(!source.fetched(&fetch, now, KeySet::default())),
        }
        assert_eq!(source.keys(now).is_some(), now < begin + seconds(24 * 3600));
        now = source.next().unwrap();
    }
    assert_eq!(source.unknown_key(None, now - seconds(1)), Lookup::Refuse);
    let fetch = source.poll(now).unwrap();
    source.fetched(&fetch, now, set(0));
    assert!(source.keys(now).is_some());
}

/// Who watches for keys that are withdrawn goes by the last ones, however old they have become.
#[test]
fn keys_are_withdrawn_by_the_issuer_and_not_by_its_absence() {
    let now = Instant::now();
    let mut source = KeySource::new(Times::default());
    let old = Key::of_secret(&[0; 32], Algorithm::Hs256).unwrap();
    assert!(!source.has_withdrawn(&old) && source.last_generation().is_none());
    let fetch = source.poll(now).unwrap();
    source.fetched(&fetch, now, set(0));
    let first = source.last_generation();
    let late = now + seconds(25 * 3600);
    assert!(source.keys(late).is_none() && source.generation(late).is_none());
    assert!(!source.has_withdrawn(&old) && source.last_generation() == first);
    let fetch = source.poll(late).unwrap();
    source.fetched(&fetch, late, set(1));
    assert!(source.has_withdrawn(&old) && source.last_generation() > first);
}

#[test]
fn an_empty_set_takes_no_good_keys_away() {
    let now = Instant::now();
    let mut source = KeySource::new(Times::default());
    let fetch = source.poll(now).unwrap();
    source.fetched(&fetch, now, set(0));
    let first = generation(&source, now);
    let fetch = source.poll(now + seconds(600)).unwrap();
    assert!(!source.fetched(&fetch, now + seconds(600), KeySet::default()));
    assert_eq!(generation(&source, now + seconds(600)), first);
    assert_eq!(
        source.next(),
        Some(now + seconds(605)),
        "it counts as a failure"
    );
}

#[test]
fn a_bounded_number_waits_and_those_of_one_fetch_do_not_count_for_the_next() {
    let now = Instant::now();
    let mut source = KeySource::new(Times::default());
    let fetch = source.poll(now).unwrap();
    let wait = |source: &mut KeySource, now| match source.unknown_key(None, now) {
        Lookup::Wait(waiter) => Some(waiter),
        _ => None,
    };
    let first = wait(&mut source, now).unwrap();
    for _ in 1..1000 {
        assert!(wait(&mut source, now).is_some());
    }
    assert!(wait(&mut source, now).is_none());
    source.leave(&first);
    assert!(wait(&mut source, now).is_some());
    // Nobody reports the end, and nobody of those who wait leaves.
    let later = now + seconds(10);
    assert_eq!(source.unknown_key(None, later), Lookup::Refuse, "the pause");
    assert!(!source.fetched(&fetch, later, set(0)), "it is given up");
    let Lookup::Fetch(fetch) = source.unknown_key(None, later + seconds(5)) else {
        panic!("it is time for the next fetch");
    };
    source.leave(&first);
    for _ in 0..1000 {
        assert!(wait(&mut source, later + seconds(5)).is_some());
    }
    assert!(source.fetched(&fetch, later + seconds(6), set(0)));
}

/// What a source should be, written down in the plainest way.
#[derive(Default)]
struct Model {
    /// The number of the last set that was taken, its generation, and when it was last confirmed.
    keys: Option<(u8, u64, Instant)>,
    /// The fetch that is under way began then.
    under_way: Option<Instant>,
    ended: Option<Instant>,
}

impl Model {
    fn give_up_late(&mut self, now: Instant, times: &Times) {
        if let Some(began) = self.under_way
            && now - began >= times.fetch
        {
            (self.under_way, self.ended) = (None, Some(began + times.fetch));
        }
    }

    fn begin(&mut self, now: Instant, times: &Times, seed: u64) {
        assert!(self.under_way.is_none(), "seed {seed}: two at a time");
        let is_too_soon = self.ended.is_some_and(|ended| now - ended < times.pause);
        assert!(!is_too_soon, "seed {seed}: too soon");
        self.under_way = Some(now);
    }
}

/// Whatever happens: one fetch at a time, none within the pause behind another, the answer of one
/// that was given up is not taken, keys are there for a day and no longer, and have another
/// generation if and only if they are others.
#[test]
fn it_does_as_its_model_in_twenty_thousand_schedules() {
    let times = Times::default();
    for seed in 0..20_000 {
        let mut random = Rng::with_seed(seed);
        let (mut now, mut source) = (Instant::now(), KeySource::new(times));
        let (mut model, mut open) = (Model::default(), VecDeque::<(Fetch, Instant)>::new());
        for _ in 0..60 {
            // From a moment to hours.
            now +=
                Duration::from_millis(random.u64(..8_000)) * [1, 1, 10, 5_000][random.usize(..4)];
            model.give_up_late(now, &times);
            match random.u8(..6) {
                0 | 1 => {
                    if let Some(fetch) = source.poll(now) {
                        model.begin(now, &times, seed);
                        open.push_back((fetch, now));
                    }
                }
                2 => {
                    let seen = generation(&source, now).filter(|_| random.u8(..4) > 0);
                    match source.unknown_key(seen, now) {
                        Lookup::Fetch(fetch) => {
                            model.begin(now, &times, seed);
                            open.push_back((fetch, now));
                        }
                        Lookup::Wait(waiter) => {
                            assert!(model.under_way.is_some(), "seed {seed}");
                            if random.bool() {
                                source.leave(&waiter);
                            }
                        }
                        Lookup::Retry => assert!(seen != generation(&source, now)),
                        Lookup::Refuse => {}
                    }
                }
                3 if !open.is_empty() => {
                    let at = random.usize(..open.len());
                    let (fetch, began) = open.swap_remove_back(at).unwrap();
                    source.failed(&fetch, now);
                    if model.under_way == Some(began) {
                        (model.under_way, model.ended) = (None, Some(now));
                    }
                }
                4 | 5 if !open.is_empty() => {
                    let at = random.usize(..open.len());
                    let (fetch, began) = open.swap_remove_back(at).unwrap();
                    let number = random.u8(..3);
                    let keys = if number == 2 {
                        KeySet::default()
                    } else {
                        set(number)
                    };
                    let is_taken = source.fetched(&fetch, now, keys);
                    if model.under_way == Some(began) {
                        (model.under_way, model.ended) = (None, Some(now));
                        assert_eq!(is_taken, number != 2, "seed {seed}");
                    }
                    if is_taken {
                        let current = generation(&source, now).unwrap();
                        if let Some((known, before, _)) = model.keys {
                            assert_eq!(known == number, before == current, "seed {seed}");
                        }
                        model.keys = Some((number, current, now));
                    }
                }
                _ => {}
            }
            let expected = model
                .keys
                .filter(|(_, _, fetched)| now - *fetched < times.keep);
            let expected = expected.map(|(_, generation, _)| generation);
            assert_eq!(generation(&source, now), expected, "seed {seed}");
        }
    }
}
