//! How fast messages come to the disk: `cargo test --release -p journal speed -- --ignored
//! --nocapture`.

use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::LocalSet;

use super::crash::ROOM;
use super::waiting::wait;
use crate::outbox::{Options, Order, Outbox, Settle};
use crate::{DataFolder, Room};

const TIME: Duration = Duration::from_secs(5);

const MUCH: Room = Room {
    count: u64::MAX,
    bytes: u64::MAX,
};

fn store(name: &str) -> (std::path::PathBuf, Outbox) {
    let path = std::env::temp_dir().join(format!("intertie-speed-{}-{name}", std::process::id()));
    let disk = DataFolder::take(&path).unwrap().store().unwrap();
    (path, Outbox::open(disk, Options::default()).unwrap())
}

/// Has `concurrent` tasks on two threads do something again and again. Gives how often in all.
fn run<F, W>(outbox: &Outbox, concurrent: usize, work: F) -> u64
where
    F: Fn(Rc<Outbox>) -> W + Clone + Send + 'static,
    W: Future<Output = u64> + 'static,
{
    let workers: Vec<_> = (0..2.min(concurrent))
        .map(|worker| {
            let (outbox, work) = (outbox.clone(), work.clone());
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap();
                LocalSet::new().block_on(&runtime, async move {
                    let outbox = Rc::new(outbox);
                    let mine = concurrent / 2 + usize::from(worker == 0 && concurrent % 2 == 1);
                    let tasks: Vec<_> = (0..mine.max(1))
                        .map(|_| tokio::task::spawn_local(work(Rc::clone(&outbox))))
                        .collect();
                    let mut count = 0;
                    for task in tasks {
                        count += task.await.unwrap();
                    }
                    count
                })
            })
        })
        .collect();
    workers.into_iter().map(|it| it.join().unwrap()).sum()
}

#[test]
#[ignore = "measures"]
fn speed_of_appends() {
    for size in [100, 1024, 16 * 1024] {
        for concurrent in [1, 100, 400] {
            let (path, outbox) = store(&format!("{size}-{concurrent}"));
            let body = Bytes::from(vec![7; size]);
            let end = Instant::now() + TIME;
            let count = run(&outbox, concurrent, move |outbox| {
                let body = body.clone();
                async move {
                    let mut count = 0;
                    while Instant::now() < end {
                        outbox
                            .append("q", Bytes::new(), body.clone(), MUCH)
                            .await
                            .unwrap();
                        count += 1;
                    }
                    count
                }
            });
            println!(
                "{size} bytes, {concurrent} at a time: {} appends/s",
                count / TIME.as_secs()
            );
            outbox.close();
            std::fs::remove_dir_all(path).unwrap();
        }
    }
}

#[test]
#[ignore = "measures"]
fn speed_of_deliveries_and_of_opening() {
    let (path, outbox) = store("whole");
    let body = Bytes::from(vec![7; 1024]);
    let (end, room) = (Instant::now() + TIME, ROOM);
    let count = run(&outbox, 400, move |outbox| {
        let body = body.clone();
        async move {
            let mut count = 0;
            while Instant::now() < end {
                if outbox
                    .append("q", Bytes::new(), body.clone(), room)
                    .await
                    .is_ok()
                {
                    let taken = outbox.take("q", Order::None, 1).await.unwrap();
                    for delivery in taken {
                        delivery.settle(Settle::Done).await.unwrap();
                        count += 1;
                    }
                }
            }
            count
        }
    });
    println!(
        "400 at a time: {} stored, taken and done/s",
        count / TIME.as_secs()
    );
    let body = Bytes::from(vec![7; 1024]);
    run(&outbox, 400, move |outbox| {
        let body = body.clone();
        async move {
            for _ in 0..500 {
                outbox
                    .append("q", Bytes::new(), body.clone(), MUCH)
                    .await
                    .unwrap();
            }
            0
        }
    });
    outbox.close();
    drop(outbox);
    let start = Instant::now();
    let disk = DataFolder::take(&path).unwrap().store().unwrap();
    let outbox = Outbox::open(disk, Options::default()).unwrap();
    let waiting = outbox.stats("q").waiting;
    println!(
        "{waiting} messages of 1 KiB opened in {:?}",
        start.elapsed()
    );
    assert!(wait(outbox.list("q", true)).unwrap().is_empty());
    outbox.close();
    std::fs::remove_dir_all(path).unwrap();
}
