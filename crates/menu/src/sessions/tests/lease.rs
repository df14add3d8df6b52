//! Leases in a store whose answers get lost.

use std::cell::RefCell;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use component::handler::{Call, Callee, LocalFuture, Work};
use component::key_value::Entry;
use component::resources::Resources;
use message::Reply;

use super::*;

/// Services that keep what is spawned until a test runs it.
#[derive(Default)]
struct Spawner {
    fake: FakeServices,
    spawned: RefCell<Vec<Work>>,
}

impl Services for Spawner {
    fn call<'a>(&'a self, call: Call<'a>) -> LocalFuture<'a, Result<Reply, Fault>> {
        self.fake.call(call)
    }

    fn sleep(&self, time: Duration) -> LocalFuture<'static, ()> {
        self.fake.sleep(time)
    }

    fn now(&self) -> Instant {
        self.fake.now()
    }

    fn wall(&self) -> Duration {
        self.fake.wall()
    }

    fn random(&self) -> f64 {
        self.fake.random()
    }

    fn flow(&self, name: &str) -> Option<Arc<dyn Callee>> {
        self.fake.flow(name)
    }

    fn spawn(&self, work: Work) {
        self.spawned.borrow_mut().push(work);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> LocalFuture<'static, ()> {
        self.fake.blocking(work)
    }

    fn resources(&self) -> &Resources {
        self.fake.resources()
    }
}

/// The tasks that run.
struct Tasks<'a> {
    services: &'a Spawner,
    running: Vec<LocalFuture<'a, ()>>,
}

impl<'a> Tasks<'a> {
    fn new(services: &'a Spawner) -> Self {
        Self {
            services,
            running: Vec::new(),
        }
    }

    /// Has all of them go on as far as they can.
    fn turn(&mut self) {
        for _ in 0..4 {
            let spawned = std::mem::take(&mut *self.services.spawned.borrow_mut());
            let spawned = spawned.into_iter().map(|work| work(self.services));
            self.running.extend(spawned);
            self.running.retain_mut(|it| poll(it.as_mut()).is_none());
        }
    }

    /// The same until a time is over.
    fn pass(&mut self, time: Duration) {
        let step = Duration::from_millis(100);
        for _ in 0..time.as_millis() / step.as_millis() {
            self.services.fake.pass(step);
            self.turn();
        }
    }

    /// What comes of a future while they run.
    fn finish<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        for _ in 0..1000 {
            if let Some(output) = poll(future.as_mut()) {
                return output;
            }
            self.pass(Duration::from_millis(100));
        }
        panic!("it does not end");
    }
}

fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<T> {
    let mut context = Context::from_waker(Waker::noop());
    match future.poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// What the store does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Right,
    /// It does what it is asked for, and gives a fault.
    Lost,
    /// It does nothing, and gives a fault.
    Refused,
}

/// A store that gives these answers one after the other, then right ones.
struct Faulty {
    store: HashedKeys,
    answers: Mutex<Vec<Answer>>,
}

impl Faulty {
    fn new(answers: &[Answer]) -> Arc<Self> {
        let mut answers = answers.to_vec();
        answers.reverse();
        Arc::new(Self {
            store: HashedKeys(Embedded::new(None, |_| Timestamp::of(Duration::MAX))),
            answers: Mutex::new(answers),
        })
    }

    async fn answer<T>(&self, work: LocalFuture<'_, Result<T, Fault>>) -> Result<T, Fault> {
        let answer = self.answers.lock().unwrap().pop().unwrap_or(Answer::Right);
        let fault = || Fault::new(Kind::Unavailable, Origin::Engine, "no answer");
        match answer {
            Answer::Right => work.await,
            Answer::Lost => work.await.and_then(|_| Err(fault())),
            Answer::Refused => Err(fault()),
        }
    }
}

impl KeyValueStore for Faulty {
    fn get<'a>(
        &'a self,
        key: &'a [u8],
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Option<Entry>, Fault>> {
        Box::pin(self.answer(self.store.get(key, services)))
    }

    fn compare_and_set<'a>(
        &'a self,
        key: &'a [u8],
        write: Write,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Option<Version>, Fault>> {
        Box::pin(self.answer(self.store.compare_and_set(key, write, services)))
    }

    fn compare_and_delete<'a>(
        &'a self,
        key: &'a [u8],
        expected: Version,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<bool, Fault>> {
        Box::pin(self.answer(self.store.compare_and_delete(key, expected, services)))
    }
}

fn is_held(store: &Faulty, services: &Spawner) -> bool {
    let found = poll(store.store.get(b"name:lease", services).as_mut());
    found.unwrap().unwrap().is_some()
}

fn shared(store: &Arc<Faulty>) -> Arc<dyn KeyValueStore> {
    Arc::clone(store) as _
}

/// Whatever the store answers, wherever it is in the life of a lease.
#[test]
fn lease_outlives_lost_answers_and_ends_with_its_holder() {
    for fault in [Answer::Lost, Answer::Refused] {
        for (before, faults) in (0..6).flat_map(|before| [(before, 1), (before, 2)]) {
            let mut answers = vec![Answer::Right; before];
            answers.extend(vec![fault; faults]);
            let (store, services) = (Faulty::new(&answers), Spawner::default());
            let mut tasks = Tasks::new(&services);
            let taken = tasks.finish(Lease::take_now(&shared(&store), b"name", &services));
            if let Ok(Some(lease)) = taken {
                for _ in 0..20 {
                    tasks.pass(seconds(1));
                    assert!(is_held(&store, &services), "{fault:?} {before} {faults}");
                }
                let other = shared(&store);
                let other = Lease::take_now(&other, b"name", &services);
                assert!(tasks.finish(other).unwrap().is_none());
                drop(lease);
            } else {
                assert!(taken.is_err() && before == 0, "{taken:?}");
            }
            tasks.pass(seconds(2));
            assert!(!is_held(&store, &services), "{fault:?} {before} {faults}");
            assert!(tasks.running.is_empty());
        }
    }
}

/// The answer is lost when it is given back.
#[test]
fn lease_is_given_back_although_an_answer_is_lost() {
    for fault in [Answer::Lost, Answer::Refused] {
        let (store, services) = (Faulty::new(&[Answer::Right, fault]), Spawner::default());
        let mut tasks = Tasks::new(&services);
        let lease = tasks.finish(Lease::take_now(&shared(&store), b"name", &services));
        drop(lease);
        tasks.pass(seconds(2));
        assert!(!is_held(&store, &services));
        assert!(tasks.running.is_empty());
    }
}

/// Whoever takes it is dropped: no lease is left without an owner.
#[test]
fn taker_that_is_dropped_leaves_no_lease() {
    for turns in 0..3 {
        let (store, services) = (Faulty::new(&[]), Spawner::default());
        let mut tasks = Tasks::new(&services);
        let shared = shared(&store);
        let mut taking = Box::pin(Lease::take(&shared, b"name", &services));
        assert!(poll(taking.as_mut()).is_none());
        (0..turns).for_each(|_| tasks.turn());
        drop(taking);
        tasks.turn();
        assert!(!is_held(&store, &services));
        let lease = tasks.finish(Lease::take_now(&shared, b"name", &services));
        assert!(lease.unwrap().is_some());
    }
}

/// An engine that was held up for longer than its lease does not take that of another one away.
#[test]
fn lease_of_another_engine_is_left_alone() {
    let (store, services) = (Faulty::new(&[]), Spawner::default());
    let mut tasks = Tasks::new(&services);
    let first = tasks.finish(Lease::take_now(&shared(&store), b"name", &services));
    assert!(first.unwrap().is_some());
    let held = tasks.finish(Lease::take_now(&shared(&store), b"name", &services));
    let held = held.unwrap().unwrap();
    services.fake.pass(seconds(6));
    // Another engine comes first.
    let write = Write {
        is_synced: false,
        expected: None,
        value: Bytes::from_static(b"another"),
        ttl: seconds(60),
    };
    let written = tasks.services;
    let written = poll(
        store
            .store
            .compare_and_set(b"name:lease", write, written)
            .as_mut(),
    );
    assert!(written.unwrap().unwrap().is_some());
    tasks.pass(seconds(5));
    assert!(tasks.running.is_empty());
    drop(held);
    tasks.pass(seconds(5));
    assert!(is_held(&store, &services));
}
