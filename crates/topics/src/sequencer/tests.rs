//! Workers that take nothing hold up their own topics alone: a lane against a model, by seeded
//! schedules and with a clock of its own.

use std::collections::HashMap;

use component::state::States;
use fastrand::Rng;

use super::*;
use crate::event::Event;
use crate::hub::Hub;
use crate::mailbox::{BYTES_MAX, Mailbox, PATIENCE};
use crate::prepare;
use crate::settings::{Durability, Payload, Settings};
use crate::testing::publication;
use crate::topic::Topic;

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
    dice: Rng,
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
            dice: Rng::with_seed(seed),
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

    fn submission(&self, topic: usize, client: u8, size: usize) -> (Submission, Answer) {
        let log = self.log(topic);
        let body = format!("\"{}\"", "x".repeat(size));
        let publications = vec![publication(&body)];
        let items =
            prepare::all(&log, self.topics[topic].settings(), (publications, None)).unwrap();
        let place = log.sequencer.reserve(&log, size).unwrap();
        let (answer, receipts) = oneshot::channel();
        let submission = Submission {
            log,
            client: Some(IpAddr::from([127, 0, 0, client])),
            items,
            answer,
            place,
        };
        (submission, receipts)
    }

    fn publish(&mut self, topic: usize, size: usize) {
        let (submission, receipts) = self.submission(topic, 1, size);
        self.lane.waiting.push(submission);
        self.answers[topic].push(receipts);
    }

    async fn attach(&mut self, at: (usize, usize)) {
        let attached = self.topics[at.0].attach().await.unwrap();
        let reader = Reader {
            mailbox: attached.mailbox,
            next: attached.next.sequence,
            is_stuck: self.dice.u8(..3) == 0,
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
        let at = (self.dice.usize(..3), self.dice.usize(..2));
        match self.dice.u8(..10) {
            0..4 => {
                let size = self.dice.usize(1..=BYTES_MAX / 4);
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
                    true if self.dice.u8(..6) == 0 => {
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

#[test]
fn a_flood_of_publications_delays_other_clients_by_a_turn() {
    local(async {
        let mut model = Model::new(1).await;
        for size in [10, 1000, 200_000] {
            let first = model.log(0).next().sequence;
            let flood: Vec<_> = (0..100).map(|_| model.submission(0, 1, size)).collect();
            let (good, mut receipts) = model.submission(0, 2, 10);
            let all = flood.into_iter().map(|it| it.0).chain([good]);
            all.for_each(|it| model.lane.waiting.push(it));
            model.turn();
            let receipts = receipts.try_recv().unwrap().unwrap();
            let before = receipts[0].id.sequence - first;
            let most = (queue::TURN / size).min(99) as u64 + 1;
            assert!(before <= most, "{size}: {before} of the flood went first");
        }
    });
}

/// By seeded schedules: what one client publishes to one topic stays in order, and between two
/// turns of somebody who waits each of the others has had about one turn.
#[test]
fn publishers_have_their_turns_and_their_order() {
    const LARGEST: usize = 3 * queue::TURN;
    local(async {
        for seed in 1..=30 {
            let mut model = Model::new(seed).await;
            let mut waiting: HashMap<(usize, u8), VecDeque<usize>> = HashMap::new();
            // How many bytes others have had since somebody who waits had a turn.
            let mut since: HashMap<(usize, u8), usize> = HashMap::new();
            for _ in 0..400 {
                if model.dice.u8(..5) < 3 {
                    let (topic, client) = (model.dice.usize(..3), model.dice.u8(..4));
                    let most = [100, 5000, LARGEST][client as usize % 3];
                    let size = model.dice.usize(1..=most);
                    model
                        .lane
                        .waiting
                        .push(model.submission(topic, client, size).0);
                    waiting.entry((topic, client)).or_default().push_back(size);
                    continue;
                }
                let Some(next) = model.lane.waiting.pop() else {
                    assert!(waiting.is_empty(), "seed {seed}");
                    continue;
                };
                let is_of = |topic: &usize| Arc::ptr_eq(&model.log(*topic), &next.log);
                let topic = (0..3).find(is_of).unwrap();
                let Some(IpAddr::V4(address)) = next.client else {
                    panic!();
                };
                let own = (topic, address.octets()[3]);
                let sizes = waiting.get_mut(&own).unwrap();
                assert_eq!(
                    sizes.pop_front(),
                    Some(next.place.size),
                    "seed {seed}: order"
                );
                if sizes.is_empty() {
                    waiting.remove(&own);
                }
                for other in waiting.keys().filter(|it| **it != own) {
                    *since.entry(*other).or_default() += next.place.size;
                }
                // One that has had three turns at once waits for as many rounds.
                let most = 12 * (LARGEST + queue::TURN) * 4;
                let waited = since.remove(&own).unwrap_or_default();
                assert!(
                    waited <= most,
                    "seed {seed}: {waited} bytes of others went first"
                );
            }
        }
    });
}

#[test]
fn a_topic_that_is_flooded_leaves_room_for_others() {
    local(async {
        let model = Model::new(1).await;
        let (flooded, other) = (model.log(0), model.log(1));
        let mut places = Vec::new();
        while let Some(place) = flooded.sequencer.reserve(&flooded, 1 << 20) {
            places.push(place);
        }
        assert_eq!(places.len(), 48);
        assert!(other.sequencer.reserve(&other, 1 << 20).is_some());
        places.pop();
        assert!(flooded.sequencer.reserve(&flooded, 1 << 20).is_some());
        // One that is larger than the room waits for nobody.
        drop(places);
        assert!(flooded.sequencer.reserve(&flooded, 100 << 20).is_some());
    });
}
