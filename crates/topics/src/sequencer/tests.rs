//! Workers that take nothing hold up their own topics alone: a lane against a model, by seeded
//! schedules and with a clock of its own.

use std::collections::HashMap;

use component::state::States;

use super::*;
use crate::event::Event;
use crate::hub::Hub;
use crate::mailbox::{BYTES_MAX, Mailbox, PATIENCE};
use crate::prepare;
use crate::settings::{Durability, Payload, Settings};
use crate::testing::publication;
use crate::topic::Topic;

/// Numbers by chance, the same in every run of a seed (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A worker's mailbox of a topic.
struct Reader {
    mailbox: Mailbox,
    /// The number of the event that comes next.
    next: u64,
    /// Whether it takes nothing.
    is_stuck: bool,
    /// When it has last taken all there was.
    taken_at: Instant,
}

/// What waits for its receipt.
type Answer = oneshot::Receiver<Result<Vec<Receipt>, Fault>>;

struct Model {
    lane: Lane,
    topics: Vec<Arc<Topic>>,
    readers: HashMap<(usize, usize), Reader>,
    answers: Vec<Vec<Answer>>,
    now: Instant,
    dice: Dice,
    lost: usize,
}

impl Model {
    async fn new(seed: u64) -> Self {
        let states = States::default();
        let hub = Hub::of(&states);
        let settings = Settings {
            payload: Payload::Event,
            durability: Durability::Memory,
            ..Settings::default()
        };
        let topics = ["a", "b", "c"].map(|name| hub.declare(name, settings, &states));
        hub.open().await.unwrap();
        Self {
            lane: Lane::default(),
            answers: topics.iter().map(|_| Vec::new()).collect(),
            topics: topics.into(),
            readers: HashMap::new(),
            now: Instant::now(),
            dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            lost: 0,
        }
    }

    fn log(&self, topic: usize) -> Arc<Log> {
        Arc::clone(self.topics[topic].log().unwrap())
    }

    fn turn(&mut self) {
        self.lane
            .turn(&mut Context::from_waker(Waker::noop()), self.now);
    }

    fn publish(&mut self, topic: usize, size: usize) {
        let log = self.log(topic);
        let body = format!("\"{}\"", "x".repeat(size));
        let publications = vec![publication(&body)];
        let items = prepare::all(&log, self.topics[topic].settings(), publications).unwrap();
        let place = log.sequencer.reserve(log.durability, size, false).unwrap();
        let (answer, receipts) = oneshot::channel();
        self.lane.waiting.push_back(Submission {
            log,
            items,
            answer,
            place,
        });
        self.answers[topic].push(receipts);
    }

    async fn attach(&mut self, at: (usize, usize)) {
        let attached = self.topics[at.0].attach().await.unwrap();
        let reader = Reader {
            mailbox: attached.mailbox,
            next: attached.next.sequence,
            is_stuck: self.dice.below(3) == 0,
            taken_at: self.now,
        };
        self.readers.insert(at, reader);
    }

    /// Takes what a worker has of a topic: in order, without a gap, or it has been lost.
    fn take(&mut self, at: (usize, usize)) {
        let Some(reader) = self.readers.get_mut(&at) else {
            return;
        };
        let mut events: Vec<Arc<Event>> = Vec::new();
        let polled = reader
            .mailbox
            .poll_take(&mut Context::from_waker(Waker::noop()), &mut events);
        for event in events {
            assert_eq!(event.id.sequence, reader.next);
            reader.next += 1;
        }
        if let Poll::Ready(Err(_)) = polled {
            let waited = self.now - reader.taken_at;
            assert!(waited >= PATIENCE, "lost after {waited:?}");
            self.lost += 1;
            self.readers.remove(&at);
        } else {
            reader.taken_at = self.now;
        }
    }

    /// Who has its receipt. A publication waits only behind a worker that is full.
    fn check(&mut self) {
        for topic in 0..self.topics.len() {
            self.answers[topic].retain_mut(|answer| match answer.try_recv() {
                Ok(receipts) => {
                    receipts.unwrap();
                    false
                }
                Err(oneshot::error::TryRecvError::Empty) => true,
                Err(error) => panic!("{error}"),
            });
            let log = self.log(topic);
            let held = log.held_until(self.now, Waker::noop());
            if held.is_none() {
                let waits = self.answers[topic].len();
                let is_told = self.lane.held.iter().any(|it| Arc::ptr_eq(&it.log, &log));
                assert!(waits == 0 || is_told, "{waits} wait for nobody");
            }
            assert!(held.is_none_or(|until| until <= self.now + PATIENCE));
        }
    }

    async fn step(&mut self) {
        let at = (self.dice.below(3) as usize, self.dice.below(2) as usize);
        match self.dice.below(10) {
            0..4 => {
                let size = 1 + self.dice.below(BYTES_MAX as u64 / 4) as usize;
                self.publish(at.0, size);
            }
            4..6 => {
                if !self.readers.get(&at).is_none_or(|it| it.is_stuck) {
                    self.take(at);
                }
            }
            6 => {
                let is_there = self.readers.contains_key(&at);
                match is_there {
                    false => self.attach(at).await,
                    true if self.dice.below(6) == 0 => {
                        self.readers.remove(&at);
                    }
                    true => {}
                }
            }
            7 => {
                if let Some(reader) = self.readers.get_mut(&at) {
                    reader.is_stuck = !reader.is_stuck;
                }
            }
            _ => self.now += PATIENCE / 8,
        }
    }
}

fn local(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().unwrap().block_on(test);
}

#[test]
fn a_worker_that_takes_nothing_holds_up_its_own_topics_and_not_for_ever() {
    local(async {
        let mut lost = 0;
        for seed in 1..=60 {
            let mut model = Model::new(seed).await;
            for _ in 0..300 {
                model.step().await;
                model.turn();
                model.check();
            }
            // In the end everybody has an answer, also behind workers that take nothing.
            for _ in 0..2 {
                model.now += 2 * PATIENCE;
                model.turn();
                model.check();
            }
            model.turn();
            model.check();
            assert!(model.lane.is_idle(), "seed {seed}");
            assert!(model.answers.iter().all(Vec::is_empty), "seed {seed}");
            let readers: Vec<_> = model.readers.keys().copied().collect();
            for at in readers {
                model.take(at);
            }
            lost += model.lost;
        }
        assert!(lost > 20, "{lost}: of little use");
    });
}

#[test]
fn a_stuck_worker_of_one_topic_does_not_keep_another_topic_waiting() {
    local(async {
        let mut model = Model::new(1).await;
        model.attach((0, 0)).await;
        for _ in 0..5 {
            model.publish(0, BYTES_MAX / 2);
            model.publish(1, 10);
            model.turn();
        }
        model.check();
        assert_eq!((model.answers[0].len(), model.answers[1].len()), (3, 0));
        // When the worker takes its events they go on, in order.
        model.take((0, 0));
        model.turn();
        model.check();
        assert!(model.answers[0].is_empty());
        model.take((0, 0));
        assert_eq!(model.readers[&(0, 0)].next, 6);
    });
}

/// Counts what is logged on this thread at the level of an error.
#[derive(Default)]
struct Errors(Arc<AtomicUsize>);

impl tracing::Subscriber for Errors {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_store_that_refuses_many_batches_is_logged_once() {
    local(async {
        let mut model = Model::new(1).await;
        // Nobody can append to what has been removed.
        let log = model.log(0);
        log.store.remove(&log.stored_as).await.unwrap();
        let errors = Arc::new(AtomicUsize::new(0));
        let refused = tracing::subscriber::with_default(Errors(Arc::clone(&errors)), || {
            let mut refused = 0;
            for _ in 0..500 {
                model.publish(0, 10);
                model.turn();
                let answer = model.answers[0].pop().unwrap().try_recv();
                refused += usize::from(answer.unwrap().is_err());
            }
            refused
        });
        assert_eq!((refused, errors.load(Ordering::Relaxed)), (500, 1));
    });
}
