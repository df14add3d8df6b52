//! How fast streams are: `cargo test --release -p journal streams::speed -- --ignored --nocapture
//! --test-threads 1`.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::LocalSet;

use super::super::waiting::wait;
use super::{ALL, declare, now};
use crate::DataFolder;
use crate::streams::{NewEntry, StreamOptions, Streams};

const TIME: Duration = Duration::from_secs(4);

fn open(path: &Path) -> Streams {
    let disk = DataFolder::take(path).unwrap().topics().unwrap();
    Streams::open(disk, StreamOptions::default()).unwrap()
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("intertie-streams-{}-{name}", std::process::id()))
}

fn entry(stream: &Arc<str>, sequence: u64, body: &Bytes) -> NewEntry {
    NewEntry {
        stream: Arc::clone(stream),
        sequence,
        at_ms: now(),
        kind: u8::from(sequence % 50 == 1),
        key: Bytes::new(),
        body: body.clone(),
    }
}

/// Has so many streams appended to at a time, by tasks on two threads. Gives how often in all, and
/// how long each took.
fn appends(streams: &Streams, concurrent: usize, body: &Bytes) -> Vec<Duration> {
    let end = Instant::now() + TIME;
    let workers: Vec<_> = (0..2.min(concurrent))
        .map(|worker| {
            let (streams, body) = (streams.clone(), body.clone());
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap();
                LocalSet::new().block_on(&runtime, async move {
                    let streams = Rc::new(streams);
                    let mine = concurrent / 2 + usize::from(worker == 0 && concurrent % 2 == 1);
                    let tasks: Vec<_> = (0..mine)
                        .map(|task| {
                            let (streams, body) = (Rc::clone(&streams), body.clone());
                            let name: Arc<str> = format!("{worker}-{task}").into();
                            tokio::task::spawn_local(async move {
                                let mut sequence = streams.declare(&name, ALL).await.unwrap().next;
                                let mut took = Vec::new();
                                while Instant::now() < end {
                                    let start = Instant::now();
                                    let entries = vec![entry(&name, sequence, &body)];
                                    streams.append(entries).await.unwrap();
                                    took.push(start.elapsed());
                                    sequence += 1;
                                }
                                took
                            })
                        })
                        .collect();
                    let mut took = Vec::new();
                    for task in tasks {
                        took.extend(task.await.unwrap());
                    }
                    took
                })
            })
        })
        .collect();
    let mut took: Vec<Duration> = Vec::new();
    workers
        .into_iter()
        .for_each(|it| took.extend(it.join().unwrap()));
    took.sort();
    took
}

#[test]
#[ignore = "measures"]
fn speed_of_appends() {
    for size in [128, 1024] {
        for concurrent in [1, 100, 400] {
            let path = path(&format!("{size}-{concurrent}"));
            let streams = open(&path);
            let took = appends(&streams, concurrent, &Bytes::from(vec![7; size]));
            let stats = streams.stats();
            println!(
                "{size} B, {concurrent} at a time: {} appends/s, p50 {:?}, p99 {:?}; {} writes with \
                 fsync, {} us each",
                took.len() as u64 / TIME.as_secs(),
                took[took.len() / 2],
                took[took.len() * 99 / 100],
                stats.writes,
                stats.write_micros / stats.writes,
            );
            wait(streams.close());
            std::fs::remove_dir_all(path).unwrap();
        }
    }
}

/// Whether the system has forgotten what files have, so that they are read from the disk.
fn forget() -> bool {
    std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

#[test]
#[ignore = "measures"]
fn speed_of_batches_replay_and_start() {
    for (size, gigabyte) in [(128, 1_u64 << 30), (1024, 1 << 30)] {
        let path = path(&format!("whole-{size}"));
        let streams = open(&path);
        let name: Arc<str> = "prices".into();
        declare(&streams, &name, ALL);
        let body = Bytes::from(vec![7; size]);
        let count = gigabyte / size as u64;
        let (start, mut next) = (Instant::now(), 1);
        while next <= count {
            let entries = (next..next + 1000).map(|number| entry(&name, number, &body));
            wait(streams.append(entries.collect())).unwrap();
            next += 1000;
        }
        let took = start.elapsed();
        println!(
            "{size} B: {next} entries appended by one, 1000 at a time: {:.0}/s; {:?}",
            next as f64 / took.as_secs_f64(),
            streams.stats()
        );
        wait(streams.close());
        drop(streams);
        for is_cold in [true, false] {
            let is_cold = is_cold && forget();
            let start = Instant::now();
            let streams = open(&path);
            println!("{size} B: opened in {:?}, cold: {is_cold}", start.elapsed());
            let is_cold = is_cold && forget();
            let (start, mut from) = (Instant::now(), 1);
            loop {
                let read = streams.read(&name, from, 1 << 20).unwrap();
                let Some(last) = read.last() else {
                    break;
                };
                from = last.sequence + 1;
            }
            println!(
                "{size} B: {:.0} entries/s replayed, cold: {is_cold}",
                from as f64 / start.elapsed().as_secs_f64()
            );
            assert_eq!(from, next);
            wait(streams.close());
        }
        std::fs::remove_dir_all(path).unwrap();
    }
}
