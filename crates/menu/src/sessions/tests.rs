//! Sessions in memory: one request at a time, bounds, and what is forgotten.

use super::*;

const MAX: usize = 100;

fn sessions() -> Arc<Sessions> {
    Arc::new(Sessions::new(&States::default(), "airtime"))
}

fn key(number: usize) -> SessionKey {
    SessionKey::new("africas-talking", &number.to_string(), "+254711000001")
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn stored(until: u64) -> Stored {
    Stored::new(seconds(until), Bytes::from_static(b"session"))
}

async fn keep(sessions: &Arc<Sessions>, number: usize, until: u64, now: u64) -> bool {
    let mut entered = sessions.enter(key(number)).await.unwrap();
    entered.keep(stored(until), seconds(now), MAX).await.is_ok()
}

async fn is_known(sessions: &Arc<Sessions>, number: usize) -> bool {
    sessions
        .enter(key(number))
        .await
        .unwrap()
        .stored()
        .is_some()
}

#[test]
fn keys_tell_gateway_session_and_number_apart() {
    let one = SessionKey::new("a", "bc", "+1");
    for (gateway, session, msisdn) in [("ab", "c", "+1"), ("a", "bc", "+2"), ("b", "bc", "+1")] {
        assert_ne!(one, SessionKey::new(gateway, session, msisdn));
    }
    assert_eq!(one, SessionKey::new("a", "bc", "+1"));
}

#[tokio::test]
async fn one_request_at_a_time_works_on_a_session() {
    let sessions = sessions();
    let mut first = sessions.enter(key(1)).await.unwrap();
    let second = {
        let sessions = Arc::clone(&sessions);
        tokio::spawn(async move { sessions.enter(key(1)).await.unwrap().stored().is_some() })
    };
    tokio::task::yield_now().await;
    assert!(!second.is_finished());
    first.keep(stored(60), seconds(0), MAX).await.unwrap();
    drop(first);
    assert!(
        second.await.unwrap(),
        "the second request sees what the first has kept"
    );
}

#[tokio::test]
async fn what_is_not_kept_leaves_nothing() {
    let sessions = sessions();
    for number in 0..50 {
        assert!(!is_known(&sessions, number).await);
    }
    assert_eq!(sessions.lock().slots.len(), 0);
}

#[tokio::test]
async fn sessions_are_forgotten_behind_their_time() {
    let sessions = sessions();
    assert!(keep(&sessions, 1, 60, 0).await);
    // It has gone on since.
    assert!(keep(&sessions, 1, 5000, 0).await);
    assert!(keep(&sessions, 2, 60, 0).await);
    let late = 61 + LINGER.as_secs();
    assert!(keep(&sessions, 3, late + 60, late).await);
    assert!(is_known(&sessions, 1).await && is_known(&sessions, 3).await);
    assert!(!is_known(&sessions, 2).await);
}

#[tokio::test]
async fn too_many_sessions_are_refused_and_those_that_ended_make_room() {
    let sessions = sessions();
    for number in 0..MAX {
        assert!(keep(&sessions, number, 60, 0).await);
    }
    assert!(!keep(&sessions, MAX, 60, 1).await, "all of them live");
    // One ends.
    assert!(keep(&sessions, 7, 2, 2).await);
    for number in 0..MAX {
        assert!(keep(&sessions, number, if number == 7 { 2 } else { 100 }, 3).await);
    }
    assert!(keep(&sessions, MAX, 60, 61).await);
    assert!(!is_known(&sessions, 7).await);
}
