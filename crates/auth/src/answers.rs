//! What other systems say about credentials: kept for its time, for all workers, and asked for once
//! at a time.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use access::KeyedHash;
use component::handler::{LocalFuture, Services, within};
use component::state::{Measure, State};
use tokio::sync::{Semaphore, watch};

/// How many questions are under way at a time.
const CONCURRENT_MAX: usize = 64;
/// How many are under way or wait for their turn.
const QUESTIONS_MAX: usize = 1024;
/// How many requests wait for answers.
const WAITING_MAX: usize = 8192;
/// The most bytes of answers that are kept: one store for those that admit and one for those that
/// do not, so that refused strangers push nothing out that others need.
const KEPT_MAX: usize = 32 * 1024 * 1024;
/// What an answer costs beside its own bytes.
const OVERHEAD: usize = 256;

/// What tells one question from another: a [`KeyedHash`].
type Key = [u8; 32];

/// What another system has answered.
pub(crate) struct Answer<V> {
    pub value: V,
    /// Whether it lets somebody in.
    pub admits: bool,
    /// How long it holds.
    pub keep: Duration,
    /// About how many bytes it has.
    pub bytes: usize,
}

/// The outcome of a question; a failure has a word for the log.
pub(crate) type Asked<V> = Result<Answer<V>, &'static str>;

/// The question itself.
pub(crate) type Question<V> =
    Box<dyn for<'a> FnOnce(&'a dyn Services) -> LocalFuture<'a, Asked<V>>>;

/// Answers of one system in this process.
pub(crate) struct Answers<V> {
    hash: KeyedHash,
    inner: Mutex<Inner<V>>,
    turns: Semaphore,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    asked: AtomicU64,
    failed: AtomicU64,
    hits: AtomicU64,
    busy: AtomicU64,
}

type Ended<V> = Option<Result<V, &'static str>>;

struct Inner<V> {
    admitting: Kept<V>,
    refusing: Kept<V>,
    /// The questions under way, each with what becomes its answer.
    open: HashMap<Key, watch::Receiver<Ended<V>>>,
    /// Questions under way, those too whose answers are not shared.
    questions: usize,
    waiting: usize,
}

/// Answers by their questions, the oldest first to go.
struct Kept<V> {
    answers: HashMap<Key, Entry<V>>,
    order: VecDeque<(Key, u64)>,
    bytes: usize,
    /// The number of the next entry.
    next: u64,
}

struct Entry<V> {
    value: V,
    until: Instant,
    bytes: usize,
    number: u64,
}

impl<V> Default for Kept<V> {
    fn default() -> Self {
        Self {
            answers: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            next: 0,
        }
    }
}

impl<V: Clone> Kept<V> {
    fn get(&self, key: &Key, now: Instant) -> Option<V> {
        let entry = self.answers.get(key)?;
        (now < entry.until).then(|| entry.value.clone())
    }

    fn put(&mut self, key: Key, value: V, until: Instant, bytes: usize, now: Instant) {
        self.remove(&key);
        while let Some((first, number)) = self.order.front().copied() {
            let entry = self.answers.get(&first).filter(|it| it.number == number);
            let goes = entry.is_none_or(|it| it.until <= now) || self.bytes + bytes > KEPT_MAX;
            if !goes {
                break;
            }
            let is_there = entry.is_some();
            self.order.pop_front();
            if is_there {
                self.remove(&first);
            }
        }
        let number = self.next;
        self.next += 1;
        self.bytes += bytes;
        self.order.push_back((key, number));
        let entry = Entry {
            value,
            until,
            bytes,
            number,
        };
        self.answers.insert(key, entry);
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.answers.remove(key) {
            self.bytes -= entry.bytes;
        }
        // Those of `order` that stand for nothing any more are as many as the rest at most.
        if self.order.len() > 2 * self.answers.len() + 16 {
            let answers = &self.answers;
            let is_there = |key: &Key, number| answers.get(key).map(|it| it.number) == Some(number);
            self.order.retain(|(key, number)| is_there(key, *number));
        }
    }
}

impl<V: Clone + Send + Sync + 'static> Answers<V> {
    pub fn new(hash: KeyedHash) -> Self {
        Self {
            hash,
            inner: Mutex::new(Inner {
                admitting: Kept::default(),
                refusing: Kept::default(),
                open: HashMap::new(),
                questions: 0,
                waiting: 0,
            }),
            turns: Semaphore::new(CONCURRENT_MAX),
            counts: Counts::default(),
        }
    }

    /// What tells a question about these parts from others.
    pub fn key<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> Key {
        self.hash.of(parts)
    }

    fn inner(&self) -> MutexGuard<'_, Inner<V>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer, if it is known and holds.
    pub fn kept(&self, key: &Key, now: Instant) -> Option<V> {
        let found = self.inner().get(key, now);
        if found.is_some() {
            self.counts.hits.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// The answer, if it is known and holds, and until when.
    pub fn kept_until(&self, key: &Key, now: Instant) -> Option<(V, Instant)> {
        let inner = self.inner();
        let stores = [&inner.admitting, &inner.refusing];
        let mut found = stores.iter().filter_map(|it| it.answers.get(key));
        let entry = found.find(|it| now < it.until)?;
        Some((entry.value.clone(), entry.until))
    }

    /// Asks, or waits for the answer to the same question; without a key it is nobody else's. Each
    /// question may take `time` to get its turn and as long for its answer. It goes on when the
    /// request that has caused it does not, for others may wait.
    ///
    /// # Errors
    /// A word for the log when there is no answer.
    pub async fn ask(
        self: &Arc<Self>,
        key: Option<Key>,
        time: Duration,
        services: &dyn Services,
        question: Question<V>,
    ) -> Result<V, &'static str> {
        let (mut ended, asking) = self.begin(key, services.now())?;
        let _waiting = Waiting(Arc::clone(self));
        if let Some(asking) = asking {
            services.spawn(Box::new(move |services| {
                Box::pin(asking.run(time, question, services))
            }));
        } else {
            // What it holds is not held while the answer to another one is waited for.
            drop(question);
        }
        // Time for the turn, the answer, and for whoever asks to say that there is none.
        let at_most = time * 2 + Duration::from_secs(1);
        let changed = ended.wait_for(Option::is_some);
        let waited = within(at_most, services, changed).await.ok_or("timeout")?;
        match waited {
            Ok(ended) => ended.clone().unwrap_or(Err("interrupted")),
            Err(_) => Err("interrupted"),
        }
    }

    /// Counts one who waits for an answer, and begins the question when nobody has.
    #[expect(clippy::type_complexity, reason = "it is used once")]
    fn begin(
        self: &Arc<Self>,
        key: Option<Key>,
        now: Instant,
    ) -> Result<(watch::Receiver<Ended<V>>, Option<Asking<V>>), &'static str> {
        let mut inner = self.inner();
        if inner.waiting >= WAITING_MAX {
            self.counts.busy.fetch_add(1, Ordering::Relaxed);
            return Err("busy");
        }
        if let Some(key) = key {
            // It may have come since the look without this lock.
            if let Some(value) = inner.get(&key, now) {
                inner.waiting += 1;
                return Ok((watch::Sender::new(Some(Ok(value))).subscribe(), None));
            }
            if let Some(open) = inner.open.get(&key) {
                let open = open.clone();
                inner.waiting += 1;
                return Ok((open, None));
            }
        }
        if inner.questions >= QUESTIONS_MAX {
            self.counts.busy.fetch_add(1, Ordering::Relaxed);
            return Err("busy");
        }
        inner.waiting += 1;
        inner.questions += 1;
        let (sender, receiver) = watch::channel(None);
        if let Some(key) = key {
            inner.open.insert(key, receiver.clone());
        }
        let asking = Asking {
            answers: Arc::clone(self),
            key,
            sender,
        };
        Ok((receiver, Some(asking)))
    }

    /// How many questions are under way.
    #[cfg(test)]
    pub fn questions(&self) -> usize {
        self.inner().questions
    }

    /// How many requests wait.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.inner().waiting
    }
}

impl<V: Clone> Inner<V> {
    fn get(&self, key: &Key, now: Instant) -> Option<V> {
        let admitting = self.admitting.get(key, now);
        admitting.or_else(|| self.refusing.get(key, now))
    }
}

/// One that waits for an answer, for as long as this lives.
struct Waiting<V: Clone + Send + Sync + 'static>(Arc<Answers<V>>);

impl<V: Clone + Send + Sync + 'static> Drop for Waiting<V> {
    fn drop(&mut self) {
        self.0.inner().waiting -= 1;
    }
}

/// A question under way, for as long as this lives: dropped without an answer it frees whoever
/// waits.
struct Asking<V: Clone + Send + Sync + 'static> {
    answers: Arc<Answers<V>>,
    key: Option<Key>,
    sender: watch::Sender<Ended<V>>,
}

impl<V: Clone + Send + Sync + 'static> Asking<V> {
    async fn run(self, time: Duration, question: Question<V>, services: &dyn Services) {
        let answers = Arc::clone(&self.answers);
        let turn = within(time, services, answers.turns.acquire()).await;
        let asked = match turn {
            Some(Ok(_turn)) => {
                answers.counts.asked.fetch_add(1, Ordering::Relaxed);
                question(services).await
            }
            _ => Err("busy"),
        };
        self.end(asked, services.now());
    }

    fn end(self, asked: Asked<V>, now: Instant) {
        let ended = match asked {
            Ok(answer) => {
                if let Some(key) = self.key
                    && !answer.keep.is_zero()
                {
                    let mut inner = self.answers.inner();
                    // One that was kept before must not outlive this one.
                    inner.admitting.remove(&key);
                    inner.refusing.remove(&key);
                    let kept = match answer.admits {
                        true => &mut inner.admitting,
                        false => &mut inner.refusing,
                    };
                    let (value, bytes) = (answer.value.clone(), answer.bytes + OVERHEAD);
                    kept.put(key, value, now + answer.keep, bytes, now);
                }
                Ok(answer.value)
            }
            Err(problem) => {
                self.answers.counts.failed.fetch_add(1, Ordering::Relaxed);
                Err(problem)
            }
        };
        self.sender.send_replace(Some(ended));
    }
}

impl<V: Clone + Send + Sync + 'static> Drop for Asking<V> {
    fn drop(&mut self) {
        let mut inner = self.answers.inner();
        inner.questions -= 1;
        if let Some(key) = &self.key {
            inner.open.remove(key);
        }
    }
}

impl<V: Clone + Send + Sync + 'static> State for Answers<V> {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let kept = {
            let inner = self.inner();
            inner.admitting.answers.len() + inner.refusing.answers.len()
        };
        vec![
            Measure::count(
                "auth_asks_total",
                "Questions to another system about callers.",
                &self.counts.asked,
            ),
            Measure::count(
                "auth_asks_failed_total",
                "Questions about callers that got no answer.",
                &self.counts.failed,
            ),
            Measure::count(
                "auth_answer_hits_total",
                "Requests decided by an answer that was kept.",
                &self.counts.hits,
            ),
            Measure::count(
                "auth_asks_refused_total",
                "Requests refused because too many questions were under way.",
                &self.counts.busy,
            ),
            Measure {
                name: "auth_answers",
                help: "Answers about callers that are kept.",
                value: kept as f64,
            },
        ]
    }
}

#[cfg(test)]
mod tests;
