//! The load generator: users on connections, each with one request at a time, or requests at a
//! fixed rate whatever the replies do. Every reply's status and body is checked.

mod h1;
mod h2;
mod pace;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

use super::body::{self, Bodies};
use super::glu::Ledger;
use super::process;
use super::stats::{Failure, Stats};
use super::tokens::{Share, Tokens};
use crate::units::Streams;
use pace::Pace;

/// How long all connections may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(30);
/// How long it may take to present every token once.
const SHOW_MAX: Duration = Duration::from_secs(60);
/// What a user waits before it connects again.
const RECONNECT: Duration = Duration::from_millis(10);

const WARM_UP: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;

/// What the generator does.
#[derive(Clone)]
pub(crate) struct Plan {
    pub address: SocketAddr,
    pub is_h2: bool,
    pub tls: Option<Arc<rustls::ClientConfig>>,
    pub path: String,
    pub streams: Streams,
    /// Requests a second in all; without it each user sends when its reply has come.
    pub rate: Option<f64>,
    pub bodies: Bodies,
    /// What follows for the same user and with the same number: the rest of a dialogue, over
    /// HTTP/1.1.
    pub dialogue: Option<Dialogue>,
    /// The status of a good reply.
    pub status: u16,
    /// Where good replies are noted.
    pub ledger: Option<Arc<Ledger>>,
    /// What stands in `Authorization`, over HTTP/1.1.
    pub tokens: Option<Arc<Tokens>>,
    /// The cores of the generator; one thread on each.
    pub cores: Vec<usize>,
}

/// The requests behind the first one of a dialogue.
#[derive(Clone)]
pub(crate) struct Dialogue {
    pub rest: Vec<Bodies>,
    /// How long the user thinks before each of them.
    pub think: Duration,
    /// Over which time the users begin, one after the other: all at once they would go on in waves,
    /// which no crowd of subscribers does.
    pub stagger: Duration,
    /// Whether a dialogue counts once, with the latency of its last reply; else each reply counts.
    pub counts_once: bool,
}

/// What one thread's connections share.
struct Work {
    plan: Plan,
    phase: Arc<AtomicU8>,
    ready: Arc<AtomicUsize>,
    stats: Mutex<Stats>,
    /// The number in the next request.
    next: AtomicU64,
    /// The first of the numbers.
    begin: u64,
    /// Which tokens are those of this thread.
    share: Option<Share>,
    pace: Option<Pace>,
    /// Which connections have had a reply in the window.
    replied: Vec<AtomicBool>,
}

impl Work {
    fn stats(&self) -> MutexGuard<'_, Stats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// What stands in `Authorization` of the request with this number.
    fn token(&self, number: u64) -> Option<&[u8]> {
        let (tokens, share) = self.plan.tokens.as_ref().zip(self.share)?;
        let is_saved = tokens.is_cold && self.phase.load(Ordering::Relaxed) != MEASURE;
        let index = match is_saved {
            true => share.first(),
            false => share.index(number),
        };
        Some(tokens.get(index))
    }

    /// Whether every token has been sent that may be sent twice.
    fn has_shown_tokens(&self) -> bool {
        let is_cold = self.plan.tokens.as_ref().is_none_or(|it| it.is_cold);
        // The last ones may be on their way.
        let users = self.plan.streams.users() as u64;
        let sent = self.next.load(Ordering::Relaxed) - self.begin;
        is_cold
            || self
                .share
                .is_none_or(|it| it.is_done(sent.saturating_sub(users)))
    }

    /// Notes a good reply of connection `index`, and counts it when the window is open.
    fn reply(&self, index: usize, number: u64, started: Instant, now: Instant) {
        if let Some(ledger) = &self.plan.ledger {
            ledger.acknowledge(number);
        }
        if self.phase.load(Ordering::Relaxed) == MEASURE {
            self.stats().reply(now.saturating_duration_since(started));
            if let Some(flag) = self.replied.get(index) {
                flag.store(true, Ordering::Relaxed);
            }
        }
    }

    fn error(&self, failure: Failure, detail: impl FnOnce() -> String) {
        if self.phase.load(Ordering::Relaxed) != STOP {
            self.stats().error(failure, detail);
        }
    }
}

/// A generator at work.
pub(crate) struct Load {
    phase: Arc<AtomicU8>,
    go: watch::Sender<u8>,
    threads: Vec<JoinHandle<anyhow::Result<Stats>>>,
    works: Vec<Arc<Work>>,
}

impl Load {
    /// Makes all connections, then lets the users begin; nothing is counted yet.
    ///
    /// # Errors
    /// When a connection cannot be made.
    pub fn start(plan: &Plan) -> anyhow::Result<Self> {
        let phase = Arc::new(AtomicU8::new(WARM_UP));
        let ready = Arc::new(AtomicUsize::new(0));
        let (go, _) = watch::channel(WARM_UP);
        let count = plan.cores.len().clamp(1, plan.streams.connections);
        let mut load = Self {
            phase: Arc::clone(&phase),
            go,
            threads: Vec::new(),
            works: Vec::new(),
        };
        for index in 0..count {
            let work = Arc::new(work(plan, index, count, &phase, &ready)?);
            load.works.push(Arc::clone(&work));
            let core = plan.cores.get(index).copied();
            let go = load.go.subscribe();
            let thread = thread::Builder::new().name(format!("load-{index}"));
            load.threads
                .push(thread.spawn(move || run_thread(work, core, go))?);
        }
        let start = Instant::now();
        while ready.load(Ordering::Acquire) < plan.streams.connections {
            let failed = load
                .works
                .iter()
                .find_map(|work| work.stats().first_error.clone());
            if let Some(error) = failed {
                bail!("cannot connect: {error}");
            }
            if start.elapsed() > CONNECT_MAX {
                bail!(
                    "only {} connections were made",
                    ready.load(Ordering::Relaxed)
                );
            }
            thread::sleep(Duration::from_millis(2));
        }
        load.go.send_replace(MEASURE);
        Ok(load)
    }

    /// Waits until the system has seen every token that may be sent twice.
    ///
    /// # Errors
    /// When that takes too long.
    pub fn show_tokens(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        while !self.works.iter().all(|work| work.has_shown_tokens()) {
            if start.elapsed() > SHOW_MAX {
                bail!("not all tokens were presented within {SHOW_MAX:?}");
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Opens the window.
    pub fn measure(&self) {
        self.phase.store(MEASURE, Ordering::Relaxed);
    }

    /// Closes the window.
    pub fn stop(&self) {
        self.phase.store(STOP, Ordering::Relaxed);
    }

    /// Ends all connections, and returns what was counted.
    ///
    /// # Errors
    /// When a thread failed.
    pub fn finish(mut self) -> anyhow::Result<Stats> {
        self.stop();
        self.go.send_replace(STOP);
        let mut sum = Stats::new()?;
        for thread in std::mem::take(&mut self.threads) {
            let joined = thread.join();
            sum.add(joined.map_err(|_| anyhow::anyhow!("a load thread panicked"))??);
        }
        Ok(sum)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
        self.go.send_replace(STOP);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The share of one thread.
fn work(
    plan: &Plan,
    index: usize,
    count: usize,
    phase: &Arc<AtomicU8>,
    ready: &Arc<AtomicUsize>,
) -> anyhow::Result<Work> {
    let mut plan = plan.clone();
    let all = plan.streams.connections;
    plan.streams.connections = all / count + usize::from(index < all % count);
    plan.rate = plan.rate.map(|rate| rate / count as f64);
    let replied = (0..plan.streams.connections).map(|_| AtomicBool::new(false));
    // Threads begin far apart.
    let begin = index as u64 * (body::NUMBERS / count as u64);
    let share = plan.tokens.as_ref();
    Ok(Work {
        share: share.map(|tokens| Share::of(tokens, index, count)),
        begin,
        replied: replied.collect(),
        pace: plan.rate.map(Pace::new),
        phase: Arc::clone(phase),
        ready: Arc::clone(ready),
        stats: Mutex::new(Stats::new()?),
        next: AtomicU64::new(begin),
        plan,
    })
}

fn run_thread(
    work: Arc<Work>,
    core: Option<usize>,
    mut go: watch::Receiver<u8>,
) -> anyhow::Result<Stats> {
    if let Some(core) = core {
        process::pin(&[core])?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .event_interval(128)
        .build()?;
    runtime.block_on(async {
        for index in 0..work.plan.streams.connections {
            tokio::spawn(keep_connected(Arc::clone(&work), index, go.clone()));
        }
        // The sender lives until the thread is joined.
        let _ = go.wait_for(|phase| *phase != WARM_UP).await;
        let pacer = match work.pace {
            Some(_) => {
                let work = Arc::clone(&work);
                Some(thread::Builder::new().spawn(move || pace(&work))?)
            }
            None => None,
        };
        let _ = go.wait_for(|phase| *phase == STOP).await;
        // Its loop ends with the phase; what it panics of is told by the unsent requests.
        drop(pacer.map(JoinHandle::join));
        anyhow::Ok(())
    })?;
    drop(runtime);
    let unsent = work.pace.as_ref().map_or(0, Pace::waiting);
    let silent = work.replied.iter().filter(|it| !it.load(Ordering::Relaxed));
    let silent = silent.count();
    let mut stats = work.stats().clone();
    stats.unsent = unsent;
    // With a fixed rate a connection may well have nothing to do.
    if work.pace.is_none() {
        for _ in 0..silent {
            stats.error(Failure::NoReply, || "a user got no reply".to_owned());
        }
    }
    Ok(stats)
}

fn pace(work: &Work) {
    if let Some(pace) = &work.pace {
        pace.run(|| work.phase.load(Ordering::Relaxed) == STOP);
    }
}

/// One connection, made again when it ends.
async fn keep_connected(work: Arc<Work>, index: usize, mut go: watch::Receiver<u8>) {
    let mut is_first = true;
    loop {
        if let Err(error) = connect(&work, index, &mut go, &mut is_first).await {
            work.error(Failure::Connection, || format!("connection: {error:#}"));
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

/// One connection from its beginning to its end.
async fn connect(
    work: &Work,
    index: usize,
    go: &mut watch::Receiver<u8>,
    is_first: &mut bool,
) -> anyhow::Result<()> {
    let plan = &work.plan;
    let stream = TcpStream::connect(plan.address).await?;
    stream.set_nodelay(true)?;
    let Some(config) = &plan.tls else {
        began(work, go, is_first).await;
        return match plan.is_h2 {
            true => h2::run(stream, work, index).await,
            false => h1::run(stream, work, index).await,
        };
    };
    let name = ServerName::from(std::net::IpAddr::from([127, 0, 0, 1]));
    let connector = TlsConnector::from(Arc::clone(config));
    let stream = connector.connect(name, stream).await.context("TLS")?;
    let chosen = stream.get_ref().1.alpn_protocol();
    if plan.is_h2 && chosen != Some(b"h2") {
        bail!("the peer did not choose h2");
    }
    began(work, go, is_first).await;
    match plan.is_h2 {
        true => h2::run(stream, work, index).await,
        false => h1::run(stream, work, index).await,
    }
}

/// Says that the first connection is made, and waits until all are.
async fn began(work: &Work, go: &mut watch::Receiver<u8>, is_first: &mut bool) {
    if std::mem::take(is_first) {
        work.ready.fetch_add(1, Ordering::Release);
    }
    let _ = go.wait_for(|phase| *phase != WARM_UP).await;
}

#[cfg(test)]
mod tests;
