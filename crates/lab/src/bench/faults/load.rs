//! The users of a row: each sends numbered messages one after the other, whatever becomes of them,
//! and everything that happens is written down with its instant. A number is never sent twice, so
//! what arrives twice was doubled on the way.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::client::{Client, Reply, Request};

/// The longest that a user waits for a reply; a longer wait counts as none.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a user waits after a failure.
const AFTER_FAILURE: Duration = Duration::from_millis(50);
/// How many bodies of failures are kept of each kind.
const SAMPLES: usize = 3;

/// The body of the message with a number.
pub(super) type Body = Arc<dyn Fn(u64) -> Vec<u8> + Send + Sync>;

/// What the users do.
#[derive(Clone)]
pub(super) struct Job {
    pub address: SocketAddr,
    pub path: String,
    pub users: usize,
    /// What a user waits after a reply.
    pub pause: Duration,
    /// The number of the first message.
    pub first: u64,
    pub body: Body,
}

/// The end of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub at: Instant,
    pub wait: Duration,
    pub is_good: bool,
}

/// All that happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub sent: u64,
    pub acknowledged: HashSet<u64>,
    /// Ends other than 2xx: a status, `cut` (sent, and the connection ended without a reply),
    /// `no connection` or `silent` (no reply within a minute).
    pub refused: BTreeMap<String, u64>,
    pub events: Vec<Event>,
    /// Replies with status 503 and no `Retry-After`.
    pub without_retry_after: u64,
    /// Bodies of failures, some of each kind.
    pub samples: BTreeMap<String, Vec<String>>,
    /// Replies that showed what they must not.
    pub leaks: u64,
}

impl Record {
    /// The longest wait for a reply.
    pub fn longest(&self) -> Duration {
        let waits = self.events.iter().map(|event| event.wait);
        waits.max().unwrap_or_default()
    }

    /// How many requests ended with this.
    pub fn count(&self, kind: &str) -> u64 {
        self.refused.get(kind).copied().unwrap_or(0)
    }

    fn end(&mut self, number: u64, begun: Instant, reply: &Reply, hidden: &[String]) {
        self.events.push(Event {
            at: Instant::now(),
            wait: begun.elapsed(),
            is_good: reply.is_good(),
        });
        let text = reply.text();
        self.leaks += u64::from(hidden.iter().any(|secret| text.contains(secret.as_str())));
        if reply.is_good() {
            self.acknowledged.insert(number);
            return;
        }
        let is_bare = reply.status == 503 && reply.retry_after.is_none();
        self.without_retry_after += u64::from(is_bare);
        let kind = reply.status.to_string();
        self.sample(&kind, text);
        *self.refused.entry(kind).or_default() += 1;
    }

    fn fail(&mut self, begun: Instant, kind: &str, error: &anyhow::Error) {
        self.events.push(Event {
            at: Instant::now(),
            wait: begun.elapsed(),
            is_good: false,
        });
        self.sample(kind, format!("{error:#}"));
        *self.refused.entry(kind.to_owned()).or_default() += 1;
    }

    fn sample(&mut self, kind: &str, text: String) {
        let samples = self.samples.entry(kind.to_owned()).or_default();
        if samples.len() < SAMPLES && !samples.contains(&text) {
            samples.push(text);
        }
    }
}

struct Shared {
    job: Job,
    next: AtomicU64,
    is_over: AtomicBool,
    hidden: Vec<String>,
    record: Mutex<Record>,
}

impl Shared {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Users at work.
pub(super) struct Load {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Lets the users begin. What replies must not show is in `hidden`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(job: Job, hidden: Vec<String>) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            next: AtomicU64::new(job.first),
            job,
            is_over: AtomicBool::new(false),
            hidden,
            record: Mutex::default(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let users = Arc::clone(&shared);
        let thread = thread::Builder::new().name("users".to_owned());
        let thread = thread.spawn(move || runtime.block_on(all(users)))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// How many messages have been acknowledged.
    #[cfg(test)]
    pub fn acknowledged(&self) -> usize {
        self.shared.record().acknowledged.len()
    }

    /// Whether a request that ended after this instant was good.
    pub fn has_success_since(&self, since: Instant) -> bool {
        let record = self.shared.record();
        let late = record.events.iter().rev();
        let mut late = late.take_while(|event| event.at >= since);
        late.any(|event| event.is_good)
    }

    /// What has happened so far.
    pub fn events(&self) -> Vec<Event> {
        self.shared.record().events.clone()
    }

    /// Waits until all replies have come, and gives what happened.
    pub fn finish(mut self) -> Record {
        self.stop();
        self.shared.record().clone()
    }

    fn stop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it panicked of is on stderr; what it counted is what there is.
            let _ = thread.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn all(shared: Arc<Shared>) {
    let users = (0..shared.job.users).map(|_| tokio::spawn(user(Arc::clone(&shared))));
    for user in users.collect::<Vec<_>>() {
        let _ = user.await;
    }
}

async fn user(shared: Arc<Shared>) {
    let mut client = Client::new(shared.job.address);
    while !shared.is_over() {
        let begun = Instant::now();
        if let Err(error) = client.connect().await {
            shared.record().fail(begun, "no connection", &error);
            tokio::time::sleep(AFTER_FAILURE).await;
            continue;
        }
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        let request = Request::post(&shared.job.path, (shared.job.body)(number));
        shared.record().sent += 1;
        let pause = match client.ask(&request, PATIENCE).await {
            Ok(reply) => {
                shared.record().end(number, begun, &reply, &shared.hidden);
                match reply.is_good() {
                    true => shared.job.pause,
                    false => AFTER_FAILURE,
                }
            }
            Err(error) => {
                let is_silent = begun.elapsed() >= PATIENCE;
                let kind = if is_silent { "silent" } else { "cut" };
                shared.record().fail(begun, kind, &error);
                AFTER_FAILURE
            }
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::sink::Sink;
    use super::*;

    fn reply(status: u16, text: &str) -> Reply {
        Reply {
            status,
            body: text.as_bytes().to_vec(),
            ..Reply::default()
        }
    }

    #[test]
    fn ends_are_told_apart() {
        let mut record = Record::default();
        let begun = Instant::now();
        let hidden = ["pass".to_owned()];
        record.end(1, begun, &reply(202, ""), &hidden);
        record.end(2, begun, &reply(503, "busy"), &hidden);
        record.end(3, begun, &reply(502, "a pass word"), &hidden);
        record.fail(begun, "cut", &anyhow::anyhow!("ended"));
        assert_eq!(record.acknowledged, HashSet::from([1]));
        assert_eq!((record.count("503"), record.count("cut")), (1, 1));
        assert_eq!((record.without_retry_after, record.leaks), (1, 1));
        assert_eq!(record.events.len(), 4);
        assert_eq!(record.samples["502"], ["a pass word"]);
    }

    #[test]
    fn users_number_their_messages() {
        let sink = Sink::start(Duration::ZERO).unwrap();
        let job = Job {
            address: sink.address(),
            path: "/".to_owned(),
            users: 5,
            pause: Duration::from_millis(1),
            first: 1,
            body: Arc::new(|number| format!("{{\"id\":{number}}}").into_bytes()),
        };
        let load = Load::start(job, Vec::new()).unwrap();
        let begun = Instant::now();
        while load.acknowledged() < 50 && begun.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(load.has_success_since(begun));
        let record = load.finish();
        assert!(record.acknowledged.len() >= 50, "{record:?}");
        assert!(record.refused.is_empty());
        let comparison = sink.found().compare(&record.acknowledged);
        assert_eq!((comparison.lost, comparison.duplicates), (0, 0));
    }
}
