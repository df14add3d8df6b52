//! Thousands of crashes at random points: what was acknowledged is there, what was done is not.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;

use super::sim::SimDisk;
use super::waiting::{soon, wait, wait_all};
use crate::outbox::{Delivery, Options, Order, Outbox, Room, Settle};

pub const ROOM: Room = Room {
    count: 10_000,
    bytes: 1 << 30,
};

pub fn options() -> Options {
    Options {
        segment_max: 3000,
        tidy_every: Duration::ZERO,
    }
}

/// What is known of a message whose storing was acknowledged or not.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    /// It is there, tried so often, dead or not.
    There(u32, bool),
    /// It is not there.
    Gone,
    /// Nobody was told.
    Unknown,
}

struct Model {
    random: Rng,
    disk: SimDisk,
    /// By the number that stands in the message.
    messages: BTreeMap<u64, Known>,
    /// The numbers that the outbox gave.
    ids: BTreeMap<u64, u64>,
    count: u64,
}

fn body(number: u64) -> Bytes {
    let size = 20 + (number * 7919) % 700;
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(size as usize, number as u8);
    Bytes::from(bytes)
}

fn number(body: &[u8]) -> u64 {
    let number = u64::from_le_bytes(*body.first_chunk().unwrap());
    assert_eq!(body, self::body(number), "the content is what was stored");
    number
}

fn queue(number: u64) -> &'static str {
    ["a", "b"][number as usize % 2]
}

impl Model {
    fn new(seed: u64) -> Self {
        Self {
            random: Rng::with_seed(seed),
            disk: SimDisk::new(seed + 1),
            messages: BTreeMap::new(),
            ids: BTreeMap::new(),
            count: 0,
        }
    }

    fn append(&mut self, outbox: &Outbox) {
        let many = self.random.u64(1..=5);
        let numbers: Vec<u64> = (0..many).map(|at| self.count + at).collect();
        self.count += many;
        let key = |number: u64| Bytes::from(format!("k{}", number % 3));
        let appends = numbers
            .iter()
            .map(|&number| outbox.append(queue(number), key(number), body(number), ROOM));
        for (number, result) in numbers.iter().zip(wait_all(appends.collect())) {
            let known = match result {
                Ok(id) => {
                    let newest = self.ids.values().max().copied().unwrap_or(0);
                    assert!(id > newest || many > 1, "numbers are given once");
                    assert!(self.ids.insert(*number, id).is_none());
                    Known::There(0, false)
                }
                Err(_) => Known::Unknown,
            };
            self.messages.insert(*number, known);
        }
    }

    fn deliver(&mut self, outbox: &Outbox) {
        let name = ["a", "b"][self.random.usize(..2)];
        let Some(Ok(taken)) = soon_if_any(outbox, name) else {
            return;
        };
        let taken: Vec<(Delivery, Settle)> = taken
            .into_iter()
            .map(|delivery| {
                let how = match self.random.u8(..10) {
                    0..6 => Settle::Done,
                    6..8 => Settle::Back(Duration::ZERO),
                    _ => Settle::Bury("no".to_owned()),
                };
                (delivery, how)
            })
            .collect();
        let settles = taken
            .iter()
            .map(|(delivery, how)| delivery.settle(how.clone()));
        let results = wait_all(settles.collect());
        for ((delivery, how), result) in taken.iter().zip(results) {
            let number = number(delivery.body.as_ref().unwrap());
            let before = self.messages[&number];
            assert_ne!(before, Known::Gone, "what is done does not come again");
            if let Known::There(attempts, is_dead) = before {
                assert_eq!((attempts, is_dead), (delivery.attempts, false));
            }
            let attempts = delivery.attempts + 1;
            let after = match (result, how) {
                (Ok(()), Settle::Done) => Known::Gone,
                (Ok(()), Settle::Back(_)) => Known::There(attempts, false),
                (Ok(()), Settle::Bury(_)) => Known::There(attempts, true),
                (Err(_), _) => Known::Unknown,
            };
            self.messages.insert(number, after);
        }
    }

    /// Compares what is there with what is known.
    fn check(&mut self, outbox: &Outbox) {
        let mut there = BTreeMap::new();
        for name in ["a", "b"] {
            for is_dead in [false, true] {
                for listed in wait(outbox.list(name, is_dead)).unwrap() {
                    let (_, body) = wait(outbox.read(name, listed.id)).unwrap();
                    let number = number(&body);
                    assert_eq!(queue(number), name);
                    assert!(there.insert(number, (listed.attempts, is_dead)).is_none());
                }
            }
        }
        for (number, known) in &mut self.messages {
            let found = there.remove(number);
            match (*known, found) {
                (Known::There(attempts, is_dead), found) => {
                    assert_eq!(
                        found,
                        Some((attempts, is_dead)),
                        "acknowledged but lost: {number}"
                    );
                }
                (Known::Gone, found) => assert_eq!(found, None, "{number} is there again"),
                (Known::Unknown, Some((attempts, is_dead))) => {
                    *known = Known::There(attempts, is_dead);
                }
                (Known::Unknown, None) => *known = Known::Gone,
            }
        }
        assert!(
            there.is_empty(),
            "there is what nobody has stored: {there:?}"
        );
    }

    fn run(&mut self, steps: u64) {
        let outbox = Outbox::open(self.disk.boxed(), options());
        let Ok(outbox) = outbox else {
            assert_eq!(self.disk.world().left, Some(0), "{:?}", outbox.err());
            return;
        };
        self.check(&outbox);
        for _ in 0..steps {
            match self.random.u8(..2) {
                0 => self.append(&outbox),
                _ => self.deliver(&outbox),
            }
        }
        outbox.close();
    }
}

/// Takes messages when there are some.
fn soon_if_any(outbox: &Outbox, name: &str) -> Option<Result<Vec<Delivery>, crate::Refusal>> {
    match outbox.stats(name).waiting {
        0 => None,
        _ => soon(3, outbox.take(name, Order::ByKey, 3)),
    }
}

#[test]
fn nothing_acknowledged_is_lost_at_any_crash() {
    let mut operations = 0;
    for seed in 0..500 {
        let mut model = Model::new(seed);
        for _ in 0..5 {
            let left = model.random.u64(1..=150);
            model.disk.world().left = Some(left);
            model.run(30);
            model.disk.crash();
        }
        model.disk.world().left = None;
        model.run(3);
        operations += model.disk.world().operations;
    }
    assert!(operations > 50_000, "{operations}");
}

#[test]
fn files_are_given_back_while_old_messages_stay() {
    let disk = SimDisk::new(1);
    let outbox = Outbox::open(disk.boxed(), options()).unwrap();
    wait(outbox.append("old", Bytes::new(), body(0), ROOM)).unwrap();
    let mut ids = HashSet::new();
    for number in 1..500 {
        let id = wait(outbox.append("a", Bytes::new(), body(number), ROOM)).unwrap();
        assert!(ids.insert(id));
        let taken = wait(outbox.take("a", Order::None, 9)).unwrap();
        assert_eq!(taken.len(), 1);
        wait(taken[0].settle(Settle::Done)).unwrap();
    }
    outbox.close();
    let size: usize = disk.world().bytes().map(|(_, bytes, _)| bytes.len()).sum();
    assert!(size < 8 * 3000, "{size}");
    let outbox = Outbox::open(disk.boxed(), options()).unwrap();
    let listed = wait(outbox.list("old", false)).unwrap();
    let (_, read) = wait(outbox.read("old", listed[0].id)).unwrap();
    assert_eq!(number(&read), 0);
}
