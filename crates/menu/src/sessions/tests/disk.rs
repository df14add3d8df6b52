//! Sessions in a data folder: memory and disk agree whatever is dropped.

use std::path::PathBuf;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use journal::{DataFolder, Keyed};
use steps::KeyedState;
use uuid::Uuid;

use super::*;

/// A data folder that is removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("intertie-menu-{}", Uuid::new_v4())))
    }

    fn states(&self) -> States {
        let states = States::default();
        let folder = DataFolder::take(&self.0).unwrap();
        let keyed = Keyed::open(folder.keyed().unwrap()).unwrap();
        KeyedState::of(&states).open(keyed);
        states
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn a_data_folder_does_what_every_store_does() {
    let folder = Folder::new();
    let states = folder.states();
    let disk = Disk {
        state: KeyedStateHandle::new(&states, true),
        scope: Scopes::of(&states).add(hash(["airtime"])),
    };
    conform(Embedded::new(Some(disk), |_| Timestamp::of(Duration::MAX))).await;
}

/// Polls a future until it has waited so often, then drops it; whether it was done. Before each
/// poll the disk gets something to do, so that it does not answer before the future waits.
async fn drop_after<T>(waits: usize, keyed: &Keyed, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let (mut left, mut busy) = (waits, Vec::new());
    std::future::poll_fn(|context| {
        let large = Bytes::from(vec![0; 1 << 20]);
        let mut work = Box::pin(keyed.put("busy", Bytes::from_static(b"key"), large));
        // Only the future itself wakes.
        let mut asleep = Context::from_waker(Waker::noop());
        if work.as_mut().poll(&mut asleep).is_pending() {
            busy.push(work);
        }
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => {
                left -= 1;
                Poll::Pending
            }
        }
    })
    .await
}

async fn all(sessions: &Sessions, services: &FakeServices) -> Vec<Option<Bytes>> {
    let mut found = Vec::new();
    for number in 0..8 {
        let stored = sessions.peek(key(number), None, services).await.unwrap();
        found.push(stored.map(|it| it.bytes));
    }
    found
}

fn text(until: u64, text: &str) -> Stored {
    Stored::session(
        seconds(until),
        Duration::ZERO,
        Bytes::copy_from_slice(text.as_bytes()),
    )
}

/// Each await is one at which the request may be given up: when it reads, waits, writes.
#[tokio::test]
async fn memory_and_disk_agree_whatever_is_dropped() {
    let mut waits = 0;
    for (is_new, at) in [true, false]
        .into_iter()
        .flat_map(|it| [0, 1, 2, 3, 4].map(|at| (it, at)))
    {
        let folder = Folder::new();
        let states = folder.states();
        let (state, services) = (KeyedState::of(&states), FakeServices::default());
        let sessions = || {
            let sessions = Sessions::new(Some(&states), "airtime");
            sessions.bound(3);
            sessions
        };
        let before = sessions();
        for number in 0..3 {
            let mut entered = before.enter(key(number), None, &services).await.unwrap();
            entered.keep(text(60, "before")).await.unwrap();
        }
        services.pass(seconds(61));
        // It takes the place of another one, or changes one that is there.
        let number = if is_new { 5 } else { 1 };
        let sessions = [sessions(), sessions()];
        let work = async {
            let entered = sessions[0].enter(key(number), None, &services).await;
            entered.unwrap().keep(text(200, "after")).await.unwrap();
        };
        let done = drop_after(at, state.keyed().unwrap(), work).await.is_some();
        waits += usize::from(!done);
        let known = all(&sessions[0], &services).await;
        assert_eq!(known, all(&sessions[1], &services).await, "{is_new} {at}");
        let count = known.iter().flatten().count();
        assert_eq!(count, 3, "{is_new} {at}");
        let store = &sessions[0].sessions;
        assert_eq!(
            (store.count(), store.slots().slots()),
            (3, 3),
            "{is_new} {at}"
        );
        assert!(sessions[0].locks.is_empty());
        // Whatever has become of it, the next request goes on.
        let entered = sessions[0].enter(key(number), None, &services).await;
        entered.unwrap().keep(text(300, "again")).await.unwrap();
        state.close().await;
    }
    assert!(waits >= 4, "{waits}");
}

/// What could not be written is known as it is on the disk, and with its version.
#[tokio::test]
async fn failed_write_changes_nothing() {
    let folder = Folder::new();
    let states = folder.states();
    let services = FakeServices::default();
    let sessions = Sessions::new(Some(&states), "airtime");
    let mut entered = sessions.enter(key(1), None, &services).await.unwrap();
    entered.keep(text(60, "before")).await.unwrap();
    let large = Stored {
        bytes: vec![0; 17 << 20].into(),
        ..stored(60)
    };
    assert!(entered.keep(large.clone()).await.is_err());
    entered.keep(text(60, "after")).await.unwrap();
    drop(entered);
    let mut entered = sessions.enter(key(2), None, &services).await.unwrap();
    assert!(entered.keep(large).await.is_err());
    drop(entered);
    let known = all(&sessions, &services).await;
    assert_eq!(known[1], Some(Bytes::from_static(b"after")));
    assert_eq!(known[2], None);
    assert_eq!(sessions.sessions.count(), 1);
    assert_eq!(sessions.sessions.slots().slots(), 1);
}

#[tokio::test]
async fn what_menus_have_left_that_are_gone_is_deleted() {
    let folder = Folder::new();
    let states = folder.states();
    let services = FakeServices::default();
    let keep = async |menu: &str, number, until| {
        let sessions = Sessions::new(Some(&states), menu);
        let mut entered = sessions.enter(key(number), None, &services).await.unwrap();
        entered.keep(text(until, menu)).await.unwrap();
        drop(entered);
        sessions
    };
    drop(keep("gone", 1, 10).await);
    drop(keep("gone", 2, 9000).await);
    let stays = keep("stays", 3, 10).await;
    services.pass(seconds(2000));
    let (state, scopes) = (KeyedState::of(&states), Scopes::of(&states));
    let keyed = state.keyed().unwrap();
    let rows = async || keyed.scan("sessions", b"", None, 100).await.unwrap().len();
    assert_eq!(rows().await, 3);
    while scopes.sweep(keyed, services.wall()).await.unwrap() {}
    assert_eq!(rows().await, 2, "one is over, one is not, one has its menu");
    drop(stays);
}
