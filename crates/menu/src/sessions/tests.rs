//! Sessions in memory: one request at a time, bounds, and what is forgotten.

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

#[tokio::test]
async fn memory_does_what_every_store_does() {
    let services = FakeServices::default();
    let store = Embedded::new(None, [0; 32], |_, _| false);
    let suite = Suite {
        store: &store,
        services: &services,
        pass: &|time| {
            services.pass(time);
            Box::pin(async {})
        },
    };
    suite.run().await.unwrap();
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
    assert_eq!(phones.sessions.locks().len(), 0);
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
