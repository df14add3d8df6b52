//! Endpoints in any schedule of answers, losses, crashes and restarts that a seed makes, and in
//! some that are chosen.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;

use super::*;

fn policy(order: Order) -> Policy {
    Policy {
        order,
        concurrent: match order {
            Order::All => 1,
            _ => 4,
        },
        batch: None,
        throttle: None,
        backoff: Backoff {
            jitter: 0.2,
            ..Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60))
        },
        times: 2,
        disable_after: 3_600_000,
        drops: false,
    }
}

/// What is under way.
struct UnderWay {
    number: u64,
    span: Span,
    is_gap: bool,
    is_dead_letter: bool,
}

/// An endpoint with its log and its receiver.
struct World {
    random: Rng,
    policy: Arc<Policy>,
    machine: Machine,
    now: Now,
    /// The events of the log by their numbers, from 1.
    log: Vec<Item>,
    /// The oldest that is kept.
    first: u64,
    under_way: Vec<UnderWay>,
    /// What is on the disk: cursor and record.
    disk: (u64, Record),
    /// What is being written there.
    writing: Option<((u64, Record), u64)>,
    /// What the receiver has taken since the last start of the process.
    taken: BTreeSet<u64>,
    /// What it has ever taken, or been told is gone, or what became a dead letter.
    settled: BTreeSet<u64>,
    /// The bounds of batches that have been sent and not yet been taken.
    bounds: BTreeMap<u64, u64>,
    repeated: usize,
    dropped: usize,
    crashes: usize,
    /// How often it had nothing to do.
    rests: usize,
    /// How often events are still sent again.
    replays: usize,
}

impl World {
    fn new(seed: u64, policy: Policy) -> Self {
        let policy = Arc::new(policy);
        Self {
            random: Rng::with_seed(seed),
            machine: Machine::new(Arc::clone(&policy), 1),
            policy,
            now: Now {
                us: 1_000_000,
                wall_ms: 1_700_000_000_000,
            },
            log: Vec::new(),
            first: 1,
            under_way: Vec::new(),
            disk: (0, Record::default()),
            writing: None,
            taken: BTreeSet::new(),
            settled: BTreeSet::new(),
            bounds: BTreeMap::new(),
            repeated: 0,
            dropped: 0,
            crashes: 0,
            rests: 0,
            replays: 3,
        }
    }

    fn pass(&mut self, us: u64) {
        self.now.us += us;
        self.now.wall_ms += us.div_ceil(1000);
    }

    fn item(&self, number: u64) -> Item {
        self.log[number as usize - 1]
    }

    fn key(&self, number: u64) -> Option<u64> {
        match self.item(number) {
            Item::Shown { key, .. } | Item::Failed { key } => key,
            Item::LeftOut => None,
        }
    }

    fn publish(&mut self) {
        let key = Some(self.random.u64(..4)).filter(|it| *it > 0);
        let item = match self.random.u8(..10) {
            0 => Item::LeftOut,
            1 => Item::Failed { key },
            _ => Item::Shown {
                bytes: self.random.usize(1..=100),
                key,
            },
        };
        self.log.push(item);
    }

    /// Offers what there is and begins what can be begun.
    fn work(&mut self) {
        loop {
            while self.machine.wants() && self.machine.next() <= self.log.len() as u64 {
                let next = self.machine.next();
                match next < self.first {
                    true => self.machine.offer_gap(self.first - 1, self.now),
                    false => self.machine.offer(self.item(next), self.now),
                }
            }
            match self.machine.poll(self.now) {
                Action::Send {
                    number,
                    span,
                    is_whole: _,
                } => self.send(number, span),
                Action::SendGap { number, span } => self.under_way.push(UnderWay {
                    number,
                    span,
                    is_gap: true,
                    is_dead_letter: false,
                }),
                Action::DeadLetter { number, span, .. } => self.under_way.push(UnderWay {
                    number,
                    span,
                    is_gap: false,
                    is_dead_letter: true,
                }),
                Action::Note => self.write(),
                Action::Wait(_) => break,
            }
            let sent = self
                .under_way
                .iter()
                .filter(|it| !it.is_dead_letter)
                .count();
            assert!(sent <= self.policy.concurrent, "{sent} at a time");
        }
    }

    fn send(&mut self, number: u64, span: Span) {
        // The id of a batch names its bounds alone. Were something between them done, and not sent
        // with it, the same id could stand for other events after a replay.
        let done = self.machine.done_within(span);
        let is_done = |number: u64| {
            done.iter()
                .any(|(first, last)| (*first..=*last).contains(&number))
        };
        let shown: Vec<u64> = (span.first..=span.last)
            .filter(|it| self.item(*it) != Item::LeftOut)
            .collect();
        let unsent: Vec<u64> = shown.iter().copied().filter(|it| is_done(*it)).collect();
        assert!(unsent.is_empty(), "{span:?} is without {unsent:?}");
        let is_failed = |it: &u64| matches!(self.item(*it), Item::Failed { .. });
        assert!(!shown.iter().any(is_failed), "{span:?}: {shown:?}");
        assert_eq!(shown.len(), span.count, "{span:?}: {shown:?}");
        assert!(!shown.is_empty());
        if self.policy.batch.is_none() {
            assert_eq!((span.first, span.count), (span.last, 1));
        }
        for one in &shown {
            assert!(
                !self.taken.contains(one),
                "{one} comes twice without a crash"
            );
            self.repeated += usize::from(self.settled.contains(one));
            let (item, key) = (*one, self.key(*one));
            let waits_for = |other: &u64| match self.policy.order {
                Order::All => true,
                Order::ByKey => key.is_some() && self.key(*other) == key,
                Order::None => false,
            };
            let before = (1..item).filter(|it| *it < span.first && waits_for(it));
            let missing: Vec<u64> = before
                .filter(|it| !matches!(self.item(*it), Item::LeftOut))
                .filter(|it| !self.settled.contains(it))
                .collect();
            assert_eq!(missing, [0; 0], "{item} is sent before them");
        }
        if self.policy.batch.is_some() {
            let last = *self.bounds.entry(span.first).or_insert(span.last);
            assert_eq!(last, span.last, "the batch from {} has changed", span.first);
            let (_, record) = &self.disk;
            let is_it = |it: &record::Begun| (it.first, it.last) == (span.first, span.last);
            let is_noted = record.begun.iter().any(is_it);
            assert!(
                is_noted,
                "the bounds of {span:?} are not on the disk: {:?}",
                self.disk
            );
        }
        self.under_way.push(UnderWay {
            number,
            span,
            is_gap: false,
            is_dead_letter: false,
        });
    }

    fn finish(&mut self, is_good: bool) {
        if self.under_way.is_empty() {
            return;
        }
        let at = self.random.usize(..self.under_way.len());
        let UnderWay {
            number,
            span,
            is_gap,
            is_dead_letter,
        } = self.under_way.swap_remove(at);
        let is_lost = span.first < self.first && !is_gap && self.random.bool();
        let is_batch = !is_gap && !is_dead_letter && span.first < span.last;
        let is_cut = !is_good && is_batch && self.random.u8(..8) == 0;
        let outcome = match (is_dead_letter, is_good, self.random.u8(..12)) {
            (true, true, _) | (true, false, 0..9) => Outcome::DeadLetterStored,
            (true, false, _) => Outcome::DeadLetterNotStored,
            _ if is_lost => Outcome::Lost,
            _ if is_cut => {
                // After a crash it may have the bounds that it had.
                self.bounds.remove(&span.first);
                let last = self.random.u64(span.first..span.last);
                Outcome::TooLarge { last }
            }
            (false, true, _) => Outcome::Delivered,
            (false, false, 0..5) => Outcome::Delivered,
            (false, false, 5 | 6) => Outcome::Down {
                retry_after: Some(self.random.u64(..100_000_000)),
            },
            (false, false, 7..10) => Outcome::Refused,
            (false, false, 10) => Outcome::Aborted,
            (false, false, _) => match self.random.u8(..20) == 0 {
                true => Outcome::Gone,
                false => Outcome::Down { retry_after: None },
            },
        };
        let is_settled = matches!(outcome, Outcome::Delivered | Outcome::DeadLetterStored);
        if is_settled {
            self.settled.extend(span.first..=span.last);
            if !is_gap && !is_dead_letter {
                self.taken.extend(span.first..=span.last);
            }
            self.bounds.remove(&span.first);
        }
        let random = self.random.f64();
        self.machine.finished(number, outcome, self.now, random);
        for notice in self.machine.take_notices() {
            if matches!(notice, Notice::GapSkipped | Notice::Dropped) {
                self.settled.extend(span.first..=span.last);
            }
            self.dropped += usize::from(notice == Notice::Dropped);
            let is_down = notice == Notice::Disabled(Stopped::Down);
            assert!(
                !is_down || !self.policy.drops,
                "it is disabled for being down"
            );
        }
    }

    /// Writes the record at once.
    fn write(&mut self) {
        let (record, version) = self.machine.record(self.now);
        self.disk = (self.machine.cursor(), through_json(&record));
        self.machine.noted(version);
        self.writing = None;
        self.rest();
    }

    /// What is left of a machine that has nothing to do is all there is of it.
    fn rest(&mut self) {
        let Some(resting) = self.machine.rest() else {
            return;
        };
        self.rests += 1;
        let woken = Machine::wake(Arc::clone(&self.policy), &resting);
        // What these say is about what it does not have.
        self.machine.is_hungry = false;
        self.machine.disabled_version = 0;
        assert_eq!(format!("{woken:?}"), format!("{:?}", self.machine));
        self.machine = woken;
    }

    fn begin_writing(&mut self) {
        let (record, version) = self.machine.record(self.now);
        self.writing = Some(((self.machine.cursor(), through_json(&record)), version));
    }

    fn end_writing(&mut self) {
        if let Some((disk, version)) = self.writing.take() {
            self.disk = disk;
            self.machine.noted(version);
            self.rest();
        }
    }

    /// Has events sent again: from one on, or some where each is a request of its own.
    fn replay(&mut self) {
        if self.replays == 0 || self.log.is_empty() {
            return;
        }
        self.replays -= 1;
        let first = self.random.u64(1..=self.log.len() as u64);
        let has_end = self.policy.batch.is_none() && self.random.bool();
        let last = match has_end {
            true => first + self.random.u64(..10),
            false => u64::MAX,
        };
        self.machine.replay(Range { first, last });
        self.taken.retain(|it| !(first..=last).contains(it));
    }

    /// The process dies and is started again.
    fn crash(&mut self) {
        self.crashes += 1;
        self.under_way.clear();
        self.writing = None;
        let time = self.random.u64(..5_000_000);
        self.pass(time);
        let (cursor, record) = &self.disk;
        self.machine = Machine::restore(Arc::clone(&self.policy), *cursor, record, self.now);
        // What is known to be done does not come again.
        let is_known = |number: &u64| {
            let is_in = |(first, last): &(u64, u64)| (*first..=*last).contains(number);
            number <= cursor || record.done.iter().any(is_in)
        };
        self.taken.retain(is_known);
    }

    fn step(&mut self) {
        match self.random.u8(..40) {
            0..10 => self.publish(),
            10..20 => self.finish(false),
            20..25 => {
                let time = self.random.u64(..3_000_000);
                self.pass(time);
            }
            25..28 => self.begin_writing(),
            28..31 => self.end_writing(),
            31 if self.random.u8(..4) == 0 => self.crash(),
            32 if self.random.u8(..6) == 0 => {
                self.write();
                self.crash();
            }
            33 if self.random.u8(..4) == 0 => {
                let most = self.log.len() as u64 + 1 - self.first;
                self.first += self.random.u64(..=most);
                // A batch of which a part is gone has other bounds.
                self.bounds.clear();
            }
            34 if self.random.u8(..8) == 0 => self.machine.pause(),
            35 | 36 if self.machine.stopped().is_some() => self.machine.resume(),
            37 if self.random.u8(..8) == 0 => self.replay(),
            _ => {}
        }
        self.work();
    }

    /// Everything is well from here on.
    fn settle(&mut self) {
        if self.machine.stopped().is_some() {
            self.machine.resume();
        }
        for _ in 0..100_000 {
            self.work();
            if self.under_way.is_empty() {
                if self.machine.cursor() == self.log.len() as u64 {
                    return;
                }
                self.pass(1_000_000);
            }
            self.finish(true);
        }
        panic!("it does not come to an end: {:?}", self.machine);
    }

    fn check(&self) {
        for (at, item) in self.log.iter().enumerate() {
            let number = at as u64 + 1;
            let is_settled = self.settled.contains(&number) || *item == Item::LeftOut;
            assert!(is_settled, "{number} is missing: {item:?}");
        }
    }
}

fn through_json(record: &Record) -> Record {
    let text = serde_json::to_string(record).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Gives how many events were left out.
fn run(policy: &Policy, seeds: std::ops::Range<u64>) -> usize {
    let seeds = match std::env::var("WEBHOOK_SEEDS") {
        Ok(count) => 0..count.parse().unwrap(),
        Err(_) => seeds,
    };
    let (mut repeated, mut dropped, mut rests) = (0, 0, 0);
    let seeds = match std::env::var("WEBHOOK_SEED") {
        Ok(seed) => seed.parse().unwrap()..seed.parse::<u64>().unwrap() + 1,
        Err(_) => seeds,
    };
    for seed in seeds {
        let result = std::panic::catch_unwind(|| {
            let mut world = World::new(seed, policy.clone());
            for _ in 0..600 {
                world.step();
            }
            world.settle();
            world.check();
            (world.repeated, world.dropped, world.rests)
        });
        match result {
            Ok((again, out, rest)) => {
                repeated += again;
                dropped += out;
                rests += rest;
            }
            Err(_) => panic!("seed {seed}"),
        }
    }
    assert!(rests > 0, "it always had something to do");
    assert!(repeated > 0, "no crash has made anything come again");
    dropped
}

/// As hubs deliver: what could not be sent for long is left out, nothing else is.
#[test]
fn what_fails_for_long_is_left_out_in_any_schedule() {
    let policy = Policy {
        disable_after: 4_000,
        drops: true,
        ..policy(Order::All)
    };
    assert!(run(&policy, 0..300) > 0, "nothing was left out");
}

#[test]
fn one_after_the_other_in_any_schedule() {
    assert_eq!(run(&policy(Order::All), 0..300), 0);
}

#[test]
fn several_at_a_time_in_any_schedule() {
    assert_eq!(run(&policy(Order::None), 0..300), 0);
}

#[test]
fn in_order_by_key_in_any_schedule() {
    assert_eq!(run(&policy(Order::ByKey), 0..300), 0);
}

#[test]
fn batches_keep_their_bounds_in_any_schedule() {
    for (order, concurrent) in [(Order::All, 1), (Order::None, 3)] {
        let batch = Batch {
            count: 5,
            bytes: 200,
            time: 500_000,
        };
        let policy = Policy {
            batch: Some(batch),
            concurrent,
            ..policy(order)
        };
        assert_eq!(run(&policy, 0..300), 0);
    }
}

#[test]
fn throttled_in_any_schedule() {
    let policy = Policy {
        throttle: Some(Throttle {
            requests: 5,
            per: 1_000_000,
            burst: 2,
        }),
        ..policy(Order::None)
    };
    assert_eq!(run(&policy, 0..200), 0);
}

/// A machine of so many events of ten bytes.
fn with_events(policy: Policy, count: u64, now: Now) -> Machine {
    let mut machine = Machine::new(Arc::new(policy), 1);
    for _ in 0..count {
        machine.offer(
            Item::Shown {
                bytes: 10,
                key: None,
            },
            now,
        );
    }
    machine
}

#[test]
fn what_is_replayed_comes_again_and_nothing_else_does() {
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let order = [Order::All, Order::None][random.usize(..2)];
        let policy = Arc::new(policy(order));
        let count = 40;
        let mut machine = Machine::new(Arc::clone(&policy), 1);
        let mut now = at(1_000_000);
        // How often each has to come at least, and how often it has.
        let mut wanted = vec![1; count + 1];
        let mut times = vec![0; count + 1];
        let mut under_way = Vec::new();
        let mut replays = 3;
        for _ in 0..10_000 {
            now.us += 100_000;
            while machine.wants() && machine.next() <= count as u64 {
                let shown = Item::Shown {
                    bytes: 10,
                    key: None,
                };
                machine.offer(shown, now);
            }
            while let Action::Send { number, span, .. } = machine.poll(now) {
                under_way.push((number, span));
            }
            assert!(machine.end >= machine.cursor, "seed {seed}");
            if !under_way.is_empty() && random.u8(..4) > 0 {
                let at = random.usize(..under_way.len());
                let (number, span) = under_way.swap_remove(at);
                let outcome = match random.u8(..5) {
                    0 => Outcome::Down { retry_after: None },
                    _ => Outcome::Delivered,
                };
                if outcome == Outcome::Delivered {
                    times[span.first as usize] += 1;
                }
                machine.finished(number, outcome, now, random.f64());
            }
            if replays > 0 && random.u8(..60) == 0 {
                replays -= 1;
                let first = random.u64(1..=count as u64);
                let last = first + random.u64(..count as u64);
                for number in first..=last.min(count as u64) {
                    // What is not done yet comes once.
                    let is_done = machine.is_done(number);
                    wanted[number as usize] = times[number as usize] + 1;
                    if under_way.iter().any(|it| it.1.first == number) && is_done {
                        panic!("seed {seed}: {number} is done and under way");
                    }
                }
                machine.replay(Range { first, last });
            }
            if random.u8(..100) == 0 && under_way.is_empty() {
                let (record, _) = machine.record(now);
                let cursor = machine.cursor();
                let record = through_json(&record);
                machine = Machine::restore(Arc::clone(&policy), cursor, &record, now);
            }
            if replays == 0 && machine.cursor() == count as u64 && under_way.is_empty() {
                break;
            }
        }
        assert_eq!(machine.cursor(), count as u64, "seed {seed}");
        assert_eq!(
            times,
            {
                let mut expected = wanted.clone();
                expected[0] = 0;
                expected
            },
            "seed {seed}"
        );
    }
}

fn at(us: u64) -> Now {
    Now {
        us,
        wall_ms: 1_000_000 + us / 1000,
    }
}

fn sent(action: Action) -> (u64, u64) {
    match action {
        Action::Send { number, span, .. } => (number, span.first),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_that_is_down_is_probed_by_one_request_and_no_event_uses_up_its_tries() {
    let mut machine = with_events(policy(Order::None), 6, at(0));
    let begun: Vec<u64> = (0..4).map(|_| sent(machine.poll(at(0))).0).collect();
    for number in &begun {
        let down = Outcome::Down { retry_after: None };
        machine.finished(*number, down, at(1), 0.0);
    }
    assert_eq!(machine.take_notices(), [Notice::IsDown], "it is told once");
    let mut now = 1;
    for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
        let until = now + wait * 1_000_000;
        assert_eq!(machine.poll(at(until - 1)), Action::Wait(Some(until)));
        let (number, first) = sent(machine.poll(at(until)));
        assert_eq!(first, 1);
        assert_eq!(machine.poll(at(until)), Action::Wait(None), "one probe");
        machine.finished(number, Outcome::Down { retry_after: None }, at(until), 0.0);
        now = until;
    }
    let (record, _) = machine.record(at(now));
    assert!(record.begun.is_empty() && record.down.unwrap().failed == 9);
    let (number, _) = sent(machine.poll(at(now + 60_000_000)));
    machine.finished(number, Outcome::Delivered, at(now + 60_000_000), 0.0);
    let notices = machine.take_notices();
    assert!(matches!(notices[..], [Notice::IsUp { .. }]), "{notices:?}");
    let again: Vec<u64> = (0..4)
        .map(|_| sent(machine.poll(at(now + 60_000_000))).1)
        .collect();
    assert_eq!(again, [2, 3, 4, 5]);
}

#[test]
fn an_event_that_is_refused_becomes_a_dead_letter_and_the_next_goes_on() {
    let mut machine = with_events(policy(Order::All), 2, at(0));
    let mut now = 0;
    for wait in [1_000_000, 2_000_000, 0] {
        let (number, first) = sent(machine.poll(at(now)));
        assert_eq!(first, 1);
        machine.finished(number, Outcome::Refused, at(now), 0.0);
        now += wait;
        if wait > 0 {
            assert_eq!(machine.poll(at(now - 1)), Action::Wait(Some(now)));
        }
    }
    let Action::DeadLetter { number, span, why } = machine.poll(at(now)) else {
        panic!("it is no dead letter");
    };
    assert_eq!((span.first, why), (1, DeadLetterReason::Refused));
    assert_eq!(
        machine.poll(at(now)),
        Action::Wait(None),
        "not before it is kept"
    );
    machine.finished(number, Outcome::DeadLetterStored, at(now), 0.0);
    assert_eq!(sent(machine.poll(at(now))).1, 2);
    let notices = machine.take_notices();
    let is_last = |tries| Notice::Refused {
        tries,
        is_last: tries == 3,
    };
    assert_eq!(notices, [1, 2, 3].map(is_last));
}

#[test]
fn what_has_been_tried_and_when_outlives_the_process() {
    let mut machine = with_events(policy(Order::All), 1, at(0));
    let (number, _) = sent(machine.poll(at(0)));
    machine.finished(number, Outcome::Refused, at(0), 0.0);
    let (record, _) = machine.record(at(0));
    let later = at(400_000);
    let mut again = Machine::restore(Arc::new(policy(Order::All)), 0, &record, later);
    again.offer(
        Item::Shown {
            bytes: 10,
            key: None,
        },
        later,
    );
    assert_eq!(again.poll(later), Action::Wait(Some(1_000_000)));
    let (number, _) = sent(again.poll(at(1_000_000)));
    again.finished(number, Outcome::Refused, at(1_000_000), 0.0);
    assert_eq!(again.poll(at(1_000_000)), Action::Wait(Some(3_000_000)));
}

#[test]
fn it_is_disabled_after_a_time_of_being_down_and_stays_so() {
    let short = Policy {
        disable_after: 5_000,
        ..policy(Order::All)
    };
    let mut machine = with_events(short.clone(), 1, at(0));
    let mut now = 0;
    loop {
        match machine.poll(at(now)) {
            Action::Send { number, .. } => {
                machine.finished(number, Outcome::Down { retry_after: None }, at(now), 0.0);
            }
            Action::Wait(Some(until)) => now = until,
            Action::Wait(None) => break,
            other => panic!("{other:?}"),
        }
    }
    // At 0, 1, 3 and, the last time, 5 seconds.
    assert_eq!(now, 5_000_000);
    assert_eq!(machine.stopped(), Some(Stopped::Down));
    let notices = machine.take_notices();
    assert_eq!(notices, [Notice::IsDown, Notice::Disabled(Stopped::Down)]);
    let (record, _) = machine.record(at(now));
    let mut again = Machine::restore(Arc::new(short), machine.cursor(), &record, at(now));
    assert!(!again.wants() && again.poll(at(now)) == Action::Wait(None));
    again.resume();
    assert!(again.wants());
    again.offer(
        Item::Shown {
            bytes: 10,
            key: None,
        },
        at(now),
    );
    assert_eq!(sent(again.poll(at(now))).1, 1);
}

#[test]
fn an_event_is_dropped_after_a_time_and_the_next_one_tried() {
    let hub = Policy {
        disable_after: 5_000,
        drops: true,
        ..policy(Order::All)
    };
    let mut machine = with_events(hub, 2, at(0));
    let (mut now, mut sent, mut is_up) = (0, Vec::new(), false);
    loop {
        match machine.poll(at(now)) {
            Action::Send { number, span, .. } => {
                sent.push((span.first, now / 1_000_000));
                is_up |= span.first == 2 && now >= 12_000_000;
                let down = Outcome::Down { retry_after: None };
                let outcome = if is_up { Outcome::Delivered } else { down };
                machine.finished(number, outcome, at(now), 0.0);
            }
            Action::Wait(Some(until)) => now = until,
            Action::Wait(None) => break,
            other => panic!("{other:?}"),
        }
    }
    // The first is tried for five seconds; then comes the second, which has as much time.
    let firsts: Vec<u64> = sent.iter().filter(|it| it.0 == 1).map(|it| it.1).collect();
    assert_eq!(firsts, [0, 1, 3, 5]);
    assert!(
        is_up && machine.cursor() == 2 && machine.stopped().is_none(),
        "{sent:?}"
    );
    let notices = machine.take_notices();
    assert!(notices.contains(&Notice::Dropped), "{notices:?}");
    assert!(
        matches!(notices.last(), Some(Notice::IsUp { .. })),
        "{notices:?}"
    );
}

#[test]
fn gone_disables_and_what_a_pause_says_stays() {
    let mut machine = with_events(policy(Order::All), 1, at(0));
    let (number, _) = sent(machine.poll(at(0)));
    machine.finished(number, Outcome::Gone, at(0), 0.0);
    assert_eq!(machine.take_notices(), [Notice::Disabled(Stopped::Gone)]);
    machine.pause();
    assert_eq!(machine.stopped(), Some(Stopped::Paused));
    assert_eq!(machine.poll(at(0)), Action::Wait(None));
    machine.resume();
    assert_eq!((machine.stopped(), machine.next()), (None, 1));
}

#[test]
fn a_batch_is_sent_when_it_is_full_or_its_time_is_over() {
    let batched = |count, bytes| Policy {
        batch: Some(Batch {
            count,
            bytes,
            time: 100,
        }),
        ..policy(Order::All)
    };
    for (policy, events, expected) in [
        (batched(3, 1000), 3, Some(3)),
        (batched(3, 1000), 2, None),
        (batched(100, 25), 3, Some(2)),
        (batched(100, 5), 1, Some(1)),
    ] {
        let mut machine = with_events(policy, events, at(0));
        let mut action = machine.poll(at(0));
        if action == Action::Note {
            let (_, version) = machine.record(at(0));
            machine.noted(version);
            action = machine.poll(at(0));
        }
        match (action, expected) {
            (Action::Send { span, .. }, Some(count)) => assert_eq!(span.count, count),
            (Action::Wait(Some(100)), None) => {}
            other => panic!("{other:?}"),
        }
        if expected.is_none() {
            assert_eq!(machine.poll(at(100)), Action::Note);
        }
    }
}

#[test]
fn a_document_is_whole_after_anything_that_was_not_applied() {
    let mut machine = with_events(policy(Order::All), 4, at(0));
    let is_whole = |action| match action {
        Action::Send {
            number, is_whole, ..
        } => (number, is_whole),
        other => panic!("{other:?}"),
    };
    let (number, whole) = is_whole(machine.poll(at(0)));
    assert!(whole, "the first");
    machine.finished(number, Outcome::Delivered, at(0), 0.0);
    let (number, whole) = is_whole(machine.poll(at(0)));
    assert!(!whole);
    machine.finished(number, Outcome::Down { retry_after: None }, at(0), 0.0);
    let (mut number, whole) = is_whole(machine.poll(at(1_000_000)));
    assert!(!whole, "the same again");
    let mut now = 1_000_000;
    loop {
        machine.finished(number, Outcome::Refused, at(now), 0.0);
        match machine.poll(at(now)) {
            Action::Wait(Some(until)) => now = until,
            Action::DeadLetter { number, .. } => {
                break machine.finished(number, Outcome::DeadLetterStored, at(now), 0.0);
            }
            other => panic!("{other:?}"),
        }
        number = is_whole(machine.poll(at(now))).0;
    }
    let (number, whole) = is_whole(machine.poll(at(now)));
    assert!(whole, "a patch before it was not applied");
    machine.finished(number, Outcome::Delivered, at(now), 0.0);
    let (record, _) = machine.record(at(now));
    assert!(record.has_base);
}

#[test]
fn a_gap_is_told_by_itself_and_skipped_when_it_is_refused() {
    let mut machine = Machine::new(Arc::new(policy(Order::All)), 1);
    machine.offer_gap(4, at(0));
    let mut now = 0;
    loop {
        match machine.poll(at(now)) {
            Action::SendGap { number, span } => {
                assert_eq!((span.first, span.last, span.count), (1, 4, 4));
                machine.finished(number, Outcome::Refused, at(now), 0.0);
            }
            Action::Wait(Some(until)) => now = until,
            Action::Wait(None) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(machine.cursor(), 4);
    assert_eq!(machine.take_notices().last(), Some(&Notice::GapSkipped));
}

/// What is sent of a batch, once its bounds are noted.
fn sent_as_noted(machine: &mut Machine, now: Now) -> (u64, Span) {
    assert_eq!(machine.poll(now), Action::Note);
    let (_, version) = machine.record(now);
    machine.noted(version);
    match machine.poll(now) {
        Action::Send { number, span, .. } => (number, span),
        other => panic!("{other:?}"),
    }
}

fn batches_of(count: usize, order: Order) -> Policy {
    Policy {
        batch: Some(Batch {
            count,
            bytes: 1000,
            time: 100,
        }),
        ..policy(order)
    }
}

#[test]
fn a_batch_that_has_become_too_large_is_cut_and_its_rest_comes_behind_it() {
    let mut machine = with_events(batches_of(4, Order::All), 4, at(0));
    let (number, span) = sent_as_noted(&mut machine, at(0));
    assert_eq!((span.first, span.last), (1, 4));
    machine.finished(number, Outcome::TooLarge { last: 2 }, at(0), 0.0);
    assert_eq!(
        (machine.poll(at(0)), machine.next()),
        (Action::Wait(None), 1)
    );
    for _ in 0..4 {
        let (bytes, key) = (10, None);
        machine.offer(Item::Shown { bytes, key }, at(0));
    }
    let (number, span) = sent_as_noted(&mut machine, at(0));
    assert_eq!((span.first, span.last, span.count), (1, 2, 2));
    machine.finished(number, Outcome::Delivered, at(0), 0.0);
    assert_eq!(machine.poll(at(0)), Action::Wait(Some(100)), "for others");
    let (number, span) = sent_as_noted(&mut machine, at(100));
    assert_eq!((span.first, span.last, span.count), (3, 4, 2));
    machine.finished(number, Outcome::Delivered, at(100), 0.0);
    assert_eq!(machine.cursor(), 4);
}

/// A machine with four events, of which the second and the third are done, and batches of two.
fn with_done_between() -> Machine {
    let mut machine = with_events(policy(Order::None), 4, at(0));
    let begun: Vec<(u64, u64)> = (0..4).map(|_| sent(machine.poll(at(0)))).collect();
    for (number, first) in begun {
        let outcome = match first {
            2 | 3 => Outcome::Delivered,
            _ => Outcome::Aborted,
        };
        machine.finished(number, outcome, at(0), 0.0);
    }
    let (record, _) = machine.record(at(0));
    let batched = Arc::new(batches_of(2, Order::None));
    let mut machine = Machine::restore(batched, machine.cursor(), &record, at(0));
    offer_up_to(&mut machine, 4);
    machine
}

fn shown() -> Item {
    let (bytes, key) = (10, None);
    Item::Shown { bytes, key }
}

fn offer_up_to(machine: &mut Machine, last: u64) {
    while machine.next() <= last {
        machine.offer(shown(), at(0));
    }
}

/// A machine with batches of two and four events, of which its view leaves out the second and the
/// third.
fn with_left_out() -> Machine {
    let mut machine = Machine::new(Arc::new(batches_of(2, Order::All)), 1);
    offer_with_left_out(&mut machine);
    machine
}

fn offer_with_left_out(machine: &mut Machine) {
    while machine.next() <= 4 {
        let item = match machine.next() {
            2 | 3 => Item::LeftOut,
            _ => shown(),
        };
        machine.offer(item, at(0));
    }
}

#[test]
fn a_batch_goes_around_events_that_the_view_leaves_out() {
    let mut machine = with_left_out();
    let (number, span) = sent_as_noted(&mut machine, at(0));
    assert_eq!((span.first, span.last, span.count), (1, 4, 2));
    assert_eq!(machine.done_within(span), [(2, 3)]);
    machine.finished(number, Outcome::Delivered, at(0), 0.0);
    assert_eq!(machine.cursor(), 4);
}

#[test]
fn a_batch_ends_before_an_event_that_is_done_already() {
    let mut machine = with_done_between();
    let (number, span) = sent_as_noted(&mut machine, at(0));
    assert_eq!((span.first, span.last, span.count), (1, 1, 1));
    machine.finished(number, Outcome::Delivered, at(0), 0.0);
    assert_eq!(machine.cursor(), 3);
    assert_eq!(machine.poll(at(0)), Action::Wait(Some(100)), "for others");
    let (_, span) = sent_as_noted(&mut machine, at(100));
    assert_eq!((span.first, span.last, span.count), (4, 4, 1));
}

#[test]
fn a_batch_ends_before_a_dead_letter_also_when_that_is_stored() {
    let mut machine = Machine::new(Arc::new(batches_of(3, Order::None)), 1);
    machine.offer(shown(), at(0));
    machine.offer(Item::Failed { key: None }, at(0));
    machine.offer(shown(), at(0));
    let (batch, span) = sent_as_noted(&mut machine, at(0));
    assert_eq!((span.first, span.last, span.count), (1, 1, 1));
    let Action::DeadLetter { number, span, .. } = machine.poll(at(0)) else {
        panic!("it is no dead letter");
    };
    assert_eq!((span.first, span.last), (2, 2));
    machine.finished(number, Outcome::DeadLetterStored, at(0), 0.0);
    // What was under way is offered again, beside what is done.
    machine.finished(batch, Outcome::TooLarge { last: 1 }, at(0), 0.0);
    assert_eq!(machine.poll(at(0)), Action::Wait(None));
    offer_up_to(&mut machine, 3);
    let Action::Send { number, span, .. } = machine.poll(at(0)) else {
        panic!("its bounds are noted");
    };
    assert_eq!((span.first, span.last, span.count), (1, 1, 1));
    machine.finished(number, Outcome::Delivered, at(0), 0.0);
    let (_, span) = sent_as_noted(&mut machine, at(100));
    assert_eq!((span.first, span.last, span.count), (3, 3, 1));
}

#[test]
fn a_batch_that_has_failed_is_the_same_after_a_replay_and_a_change_of_the_view() {
    let mut machine = with_left_out();
    let (number, span) = sent_as_noted(&mut machine, at(0));
    assert_eq!((span.first, span.last, span.count), (1, 4, 2));
    let (first, last) = (2, u64::MAX);
    machine.replay(Range { first, last });
    machine.finished(number, Outcome::Down { retry_after: None }, at(0), 0.0);
    let (record, _) = machine.record(at(0));
    let policy = Arc::new(batches_of(2, Order::All));
    let mut machine = Machine::restore(policy, machine.cursor(), &record, at(0));
    // The view shows them now.
    offer_up_to(&mut machine, 4);
    let Action::Send { number, span, .. } = machine.poll(at(1_000_000)) else {
        panic!("its bounds are noted");
    };
    assert_eq!((span.first, span.last, span.count), (1, 4, 2));
    assert_eq!(machine.done_within(span), [(2, 3)]);
    machine.finished(number, Outcome::Delivered, at(1_000_000), 0.0);
    assert_eq!(machine.cursor(), 4);
}

#[test]
fn a_replay_sends_again_what_was_done_beside_a_batch_under_way() {
    let mut machine = with_done_between();
    let (number, span) = sent_as_noted(&mut machine, at(0));
    assert_eq!((span.first, span.last), (1, 1));
    let (first, last) = (2, u64::MAX);
    machine.replay(Range { first, last });
    machine.finished(number, Outcome::Delivered, at(0), 0.0);
    assert_eq!(machine.poll(at(0)), Action::Wait(None));
    assert_eq!((machine.cursor(), machine.next()), (1, 2));
    offer_up_to(&mut machine, 4);
    let (number, span) = sent_as_noted(&mut machine, at(0));
    assert_eq!((span.first, span.last, span.count), (2, 3, 2));
    machine.finished(number, Outcome::Delivered, at(0), 0.0);
    let (number, span) = sent_as_noted(&mut machine, at(100));
    assert_eq!((span.first, span.last), (4, 4));
    machine.finished(number, Outcome::Delivered, at(100), 0.0);
    assert_eq!(machine.cursor(), 4);
}

#[test]
fn a_replay_sends_all_again_though_the_endpoint_is_being_told_of_an_unknown_gap() {
    let record = Record {
        misses: true,
        ..Record::default()
    };
    let mut machine = Machine::restore(Arc::new(policy(Order::All)), 4, &record, at(0));
    let Action::SendGap { number, span } = machine.poll(at(0)) else {
        panic!("it is not told");
    };
    assert_eq!((span.last, span.count), (4, 0));
    let (first, last) = (2, u64::MAX);
    machine.replay(Range { first, last });
    machine.finished(number, Outcome::Delivered, at(0), 0.0);
    assert_eq!(machine.poll(at(0)), Action::Wait(None));
    assert_eq!((machine.cursor(), machine.next()), (1, 2));
    assert!(!machine.is_done(4));
    let (record, _) = machine.record(at(0));
    assert!(!record.misses, "it is told once");
}

#[test]
fn a_batch_that_ends_with_an_event_that_is_left_out_leaves_nothing_for_a_replay() {
    let mut machine = with_left_out();
    let (number, _) = sent_as_noted(&mut machine, at(0));
    machine.finished(number, Outcome::TooLarge { last: 3 }, at(0), 0.0);
    assert_eq!(machine.poll(at(0)), Action::Wait(None));
    offer_with_left_out(&mut machine);
    assert!(machine.known.is_empty(), "{:?}", machine.known);
    let (number, span) = sent_as_noted(&mut machine, at(0));
    assert_eq!((span.first, span.last, span.count), (1, 3, 1));
    machine.finished(number, Outcome::Delivered, at(0), 0.0);
    assert_eq!(machine.cursor(), 3);
}
