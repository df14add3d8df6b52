//! The well-behaved client: a few connections of each kind, each with a request every 25 ms whose
//! answer has to be right to the byte.

mod conversations;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::attacker::Ports;
use super::histogram::Histogram;
use super::processes;
use crate::campaign::books::lock;

/// Between two requests of a connection.
const EACH: Duration = Duration::from_millis(25);
/// An answer that comes later shows that the server is still busy with something else.
const IN_TIME: Duration = Duration::from_millis(200);
/// The errors of a phase that are shown.
const SHOWN: usize = 3;

/// Whom the client asks, and from which address.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    pub address: IpAddr,
    pub ports: Ports,
    /// Whether bodies come back; if not, it says hello.
    pub echoes: bool,
    /// Whether doors stand before all that is asked for.
    pub has_doors: bool,
    /// Header lines with the credential.
    pub fields: &'static str,
}

/// A conversation with a server.
trait Conversation {
    /// Asks once, and checks the answer.
    fn ask(&mut self, number: u64) -> io::Result<()>;
}

/// A kind of client.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    open: fn(Server) -> io::Result<Box<dyn Conversation>>,
}

/// What the client has seen for a while.
#[derive(Clone, Debug, Default)]
pub struct Phase {
    pub latencies: Histogram,
    pub errors: u64,
    /// The first of them.
    pub shown: Vec<String>,
    /// How many kinds of clients there were.
    pub kinds: usize,
    /// The kind whose 99th percentile is the highest, with it.
    pub worst: Option<(&'static str, Duration)>,
}

impl Phase {
    pub fn add(&mut self, more: Self) {
        self.latencies.add(&more.latencies);
        self.kinds = self.kinds.max(more.kinds);
        self.worst = [self.worst, more.worst]
            .into_iter()
            .flatten()
            .max_by_key(|worst| worst.1);
        self.add_errors(more);
    }

    /// Adds the errors of a time whose latencies say nothing.
    pub fn add_errors(&mut self, more: Self) {
        self.errors += more.errors;
        self.shown.extend(more.shown);
        self.shown.truncate(SHOWN);
    }

    /// Whether every kind had its answers in time for so long.
    pub fn is_in_time(&self, time: Duration) -> bool {
        let due = time.as_millis() / EACH.as_millis() * self.kinds as u128;
        let is_late = self.latencies.max() > IN_TIME;
        // Some are due at the edges.
        self.errors == 0 && !is_late && u128::from(self.latencies.count()) * 10 >= due * 9
    }
}

#[derive(Default)]
struct Records {
    kinds: Vec<(&'static str, Histogram)>,
    phase: Phase,
}

pub struct Good {
    is_over: Arc<AtomicBool>,
    records: Arc<Mutex<Records>>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Good {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            // One that has panicked said so.
            let _ = thread.join();
        }
    }
}

impl Good {
    /// Starts all kinds that the server can serve.
    pub fn start(server: Server) -> Self {
        let mut good = Self {
            is_over: Arc::default(),
            records: Arc::default(),
            threads: Vec::new(),
        };
        let kinds = match (server.echoes, server.has_doors) {
            (true, false) => conversations::ALL,
            (true, true) => conversations::DOORS,
            (false, _) => conversations::HTTP1,
        };
        let threads = kinds.iter().enumerate().map(|(at, kind)| {
            lock(&good.records)
                .kinds
                .push((kind.name, Histogram::default()));
            let (kind, records) = (*kind, Arc::clone(&good.records));
            let is_over = Arc::clone(&good.is_over);
            let count = kinds.len() as u32;
            thread::spawn(move || {
                processes::run_first();
                thread::sleep(EACH * at as u32 / count);
                work(server, kind, at, &records, &is_over);
            })
        });
        good.threads = threads.collect();
        good
    }

    /// What was seen since the last time.
    pub fn take(&self) -> Phase {
        let mut records = lock(&self.records);
        let mut phase = std::mem::take(&mut records.phase);
        phase.kinds = records.kinds.len();
        for (name, histogram) in &mut records.kinds {
            let histogram = std::mem::take(histogram);
            let p99 = histogram.percentile(99);
            if phase.worst.is_none_or(|worst| worst.1 < p99) {
                phase.worst = Some((name, p99));
            }
            phase.latencies.add(&histogram);
        }
        phase
    }
}

/// Asks again and again. A request that has to wait for the one before it has waited since it was
/// due.
fn work(server: Server, kind: Kind, at: usize, records: &Mutex<Records>, is_over: &AtomicBool) {
    let start = Instant::now();
    let mut conversation = None;
    for number in 0.. {
        let due = start + EACH * number;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if is_over.load(Ordering::SeqCst) {
            return;
        }
        let asked = match &mut conversation {
            Some(conversation) => Ok(conversation),
            None => (kind.open)(server).map(|opened| conversation.insert(opened)),
        };
        let asked = asked.and_then(|conversation| conversation.ask(u64::from(number)));
        let mut records = lock(records);
        if let Some((_, histogram)) = records.kinds.get_mut(at) {
            histogram.record(due.elapsed());
        }
        if let Err(error) = asked {
            conversation = None;
            records.phase.errors += 1;
            if records.phase.shown.len() < SHOWN {
                let name = kind.name;
                records
                    .phase
                    .shown
                    .push(format!("{name}, request {number}: {error}"));
            }
        }
    }
}
