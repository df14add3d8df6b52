//! Sessions in memory: one request at a time, bounds, and what is forgotten.

mod disk;
mod lease;

use component::handler::LocalFuture;
use component::key_value::Entry;
use component::key_value::conformance::Suite;
use component::testing::FakeServices;

use super::*;

const MAX: usize = 100;

fn key(number: usize) -> RecordKey {
    RecordKey::session("africas-talking", &number.to_string(), "+254711000001")
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn stored(until: u64) -> Stored {
    Stored::session(
        seconds(until),
        Duration::ZERO,
        Bytes::from_static(b"session"),
    )
}

/// Sessions, and the time.
struct Phones {
    sessions: Sessions,
    services: FakeServices,
}

impl Phones {
    fn new() -> Self {
        let sessions = Sessions::new(None, "airtime");
        sessions.bound(MAX);
        Self {
            sessions,
            services: FakeServices::default(),
        }
    }

    async fn enter(&self, number: usize) -> Entered<'_> {
        let entered = self.sessions.enter(key(number), None, &self.services);
        entered.await.unwrap()
    }

    async fn keep(&self, number: usize, until: u64) -> bool {
        let mut entered = self.enter(number).await;
        entered.keep(stored(until)).await.is_ok()
    }

    async fn is_known(&self, number: usize) -> bool {
        self.enter(number).await.stored().is_some()
    }
}

#[test]
fn keys_tell_gateway_session_and_number_apart() {
    let one = RecordKey::session("a", "bc", "+1");
    for (gateway, session, msisdn) in [("ab", "c", "+1"), ("a", "bc", "+2"), ("b", "bc", "+1")] {
        assert_ne!(one, RecordKey::session(gateway, session, msisdn));
    }
    assert_eq!(one, RecordKey::session("a", "bc", "+1"));
}

/// A store of keys of any length, as the suite has them: it takes their hashes.
struct HashedKeys(Embedded);

impl KeyValueStore for HashedKeys {
    fn get<'a>(
        &'a self,
        key: &'a [u8],
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Option<Entry>, Fault>> {
        Box::pin(async move { self.0.get(&Sha256::digest(key), services).await })
    }

    fn compare_and_set<'a>(
        &'a self,
        key: &'a [u8],
        write: Write,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Option<Version>, Fault>> {
        Box::pin(async move {
            let key = Sha256::digest(key);
            self.0.compare_and_set(&key, write, services).await
        })
    }

    fn compare_and_delete<'a>(
        &'a self,
        key: &'a [u8],
        expected: Version,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<bool, Fault>> {
        Box::pin(async move {
            let key = Sha256::digest(key);
            self.0.compare_and_delete(&key, expected, services).await
        })
    }
}

/// Has a store do what the suite asks of every one.
async fn conform(store: Embedded) {
    let services = FakeServices::default();
    let suite = Suite {
        store: &HashedKeys(store),
        services: &services,
        pass: &|time| {
            services.pass(time);
            Box::pin(async {})
        },
    };
    suite.run().await.unwrap();
}

#[tokio::test]
async fn memory_does_what_every_store_does() {
    conform(Embedded::new(None, |_| Timestamp::of(Duration::MAX))).await;
}

#[tokio::test]
async fn one_request_at_a_time_works_on_a_session() {
    let phones = Phones::new();
    let mut first = phones.enter(1).await;
    let mut second = Box::pin(phones.is_known(1));
    assert!(is_pending(&mut second).await);
    first.keep(stored(60)).await.unwrap();
    assert!(is_pending(&mut second).await);
    drop(first);
    assert!(
        second.await,
        "the second request sees what the first has kept"
    );
}

/// Whether a future waits.
async fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
    })
    .await
}

#[tokio::test]
async fn what_is_not_kept_leaves_nothing() {
    let phones = Phones::new();
    for number in 0..50 {
        assert!(!phones.is_known(number).await);
    }
    assert!(phones.sessions.locks.is_empty());
    assert_eq!(phones.sessions.sessions.count(), 0);
}

#[tokio::test]
async fn sessions_are_forgotten_behind_their_time() {
    let phones = Phones::new();
    assert!(phones.keep(1, 60).await);
    // It has gone on since.
    assert!(phones.keep(1, 5000).await);
    assert!(phones.keep(2, 60).await);
    let late = 61 + LINGER.as_secs();
    phones.services.pass(seconds(late));
    assert!(phones.keep(3, late + 60).await);
    assert!(phones.is_known(1).await && phones.is_known(3).await);
    assert!(!phones.is_known(2).await);
    assert_eq!(
        phones.sessions.sessions.count(),
        2,
        "the second has made room"
    );
}

#[tokio::test]
async fn too_many_sessions_are_refused_and_those_that_ended_make_room() {
    let phones = Phones::new();
    for number in 0..MAX {
        assert!(phones.keep(number, 60).await);
    }
    phones.services.pass(seconds(1));
    assert!(!phones.keep(MAX, 60).await, "all of them live");
    phones.services.pass(seconds(1));
    // One ends.
    assert!(phones.keep(7, 2).await);
    phones.services.pass(seconds(1));
    for number in (0..MAX).filter(|it| *it != 7) {
        assert!(phones.keep(number, 100).await);
    }
    phones.services.pass(seconds(58));
    assert!(phones.keep(MAX, 60).await);
    assert!(!phones.is_known(7).await);
}

fn subscriber(number: usize) -> RecordKey {
    RecordKey::subscriber(&format!("+2547110000{number:02}"))
}

/// Keeps what is kept of a subscriber, with an action or without.
async fn keep_subscriber(phones: &Phones, number: usize, has_action: bool) -> Result<(), Fault> {
    let services = &phones.services;
    let entered = phones.sessions.enter(subscriber(number), None, services);
    let now = services.wall();
    let needed = match has_action {
        true => now + seconds(7 * 24 * 3600),
        false => Duration::ZERO,
    };
    let stored = Stored {
        until: needed,
        known: now + seconds(90 * 24 * 3600),
        bytes: Bytes::from_static(b"subscriber"),
        is_synced: true,
    };
    entered.await?.keep(stored).await
}

async fn known_subscribers(phones: &Phones) -> Vec<usize> {
    let mut known = Vec::new();
    for number in 0..20 {
        let key = subscriber(number);
        let found = phones.sessions.peek(key, None, &phones.services).await;
        if found.unwrap().is_some() {
            known.push(number);
        }
    }
    known
}

#[tokio::test]
async fn subscribers_without_an_action_make_room_the_oldest_first() {
    let phones = Phones::new();
    phones.sessions.bound(3);
    for number in [1, 2, 3] {
        phones.services.pass(seconds(1));
        let kept = keep_subscriber(&phones, number, number == 1).await;
        kept.unwrap();
    }
    phones.services.pass(seconds(1));
    keep_subscriber(&phones, 4, false).await.unwrap();
    assert_eq!(known_subscribers(&phones).await, [1, 3, 4]);
    // The third has come again: now the fourth is the oldest.
    phones.services.pass(seconds(1));
    keep_subscriber(&phones, 3, false).await.unwrap();
    keep_subscriber(&phones, 5, true).await.unwrap();
    assert_eq!(known_subscribers(&phones).await, [1, 3, 5]);
    keep_subscriber(&phones, 6, true).await.unwrap();
    assert_eq!(known_subscribers(&phones).await, [1, 5, 6]);
    let refused = keep_subscriber(&phones, 7, true).await.unwrap_err();
    assert_eq!(refused.kind, Kind::Unavailable);
    keep_subscriber(&phones, 5, true).await.unwrap();
    phones.services.pass(seconds(7 * 24 * 3600));
    keep_subscriber(&phones, 7, true).await.unwrap();
    assert_eq!(known_subscribers(&phones).await, [5, 6, 7]);
}

/// The first of them have gone on since they were listed, or are being written.
#[tokio::test]
async fn those_that_are_busy_or_have_gone_on_are_passed_over() {
    let phones = Phones::new();
    for number in 0..MAX {
        assert!(phones.keep(number, 60 + number as u64).await);
    }
    for number in 0..MAX - 2 {
        assert!(phones.keep(number, 1000).await);
    }
    phones.services.pass(seconds(60 + MAX as u64));
    let store = &phones.sessions.sessions;
    let busy = store.slots().enter(key(MAX - 2).1).await;
    assert!(phones.keep(MAX, 2000).await);
    drop(busy);
    assert!(phones.is_known(MAX - 2).await && !phones.is_known(MAX - 1).await);
    assert_eq!(store.count(), MAX);
}

/// Fewer are allowed than before.
#[tokio::test]
async fn smaller_bound_is_come_to_little_by_little() {
    let phones = Phones::new();
    for number in 0..MAX {
        assert!(phones.keep(number, 60).await);
    }
    phones.services.pass(seconds(60));
    phones.sessions.bound(10);
    for number in MAX..MAX + 10 {
        assert!(phones.keep(number, 120).await);
    }
    assert_eq!(phones.sessions.sessions.count(), 10);
}

#[tokio::test]
async fn waiters_that_are_dropped_leave_nothing() {
    let phones = Phones::new();
    let first = phones.enter(1).await;
    let mut second = Box::pin(phones.enter(1));
    assert!(is_pending(&mut second).await);
    drop(first);
    drop(second);
    assert!(phones.sessions.locks.is_empty());
    let store = &phones.sessions.sessions;
    let first = store.slots().enter([1; 32]).await;
    let mut second = Box::pin(store.slots().enter([1; 32]));
    assert!(is_pending(&mut second).await);
    drop(first);
    drop(second);
    assert_eq!(store.slots().slots(), 0);
}
