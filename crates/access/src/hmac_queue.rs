//! HMAC-SHA256 (RFC 2104, FIPS 180-4) of messages that are ready at the same time.
//!
//! One hash is a chain of instructions that wait for each other, so a core can compute four
//! independent ones in the time of two, and more where its registers are wider. An event that goes
//! to many webhooks has to be signed for each of them with another key: these messages wait for
//! each other for as long as it takes to look at what else is ready, and are hashed together.

#[cfg(test)]
mod tests;

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use aws_lc_rs::{digest, hmac};
use bytes::Bytes;
use tape_sha256::{Message, hash_messages, lane_width};

/// The bytes of a block of SHA-256.
const BLOCK: usize = 64;
/// The bytes of a tag.
const TAG: usize = 32;
/// Fewer messages than this are faster one after the other.
const TOGETHER_MIN: usize = 4;
/// How large the bodies are that wait for others.
const TOGETHER_BYTES: RangeInclusive<usize> = 2 << 10..=64 << 10;
/// When messages wait for no others: as many bytes take about 40 microseconds, and beyond so many
/// messages none gets cheaper.
const BYTES_MAX: usize = 128 << 10;
const COUNT_MAX: usize = 32;

/// A tag of HMAC-SHA256.
pub type Tag = [u8; TAG];

/// A key of HMAC-SHA256, in the form in which one message is signed and in that for several.
pub struct HmacKey {
    key: hmac::Key,
    /// The key as the block that both hashes begin with, before the padding is added to it.
    block: [u8; BLOCK],
}

/// Without the key.
impl fmt::Debug for HmacKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("HmacKey")
    }
}

impl HmacKey {
    /// The key with these bytes.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        let mut block = [0; BLOCK];
        match block.get_mut(..secret.len()) {
            Some(start) => start.copy_from_slice(secret),
            // A key that is longer than a block is replaced by its digest (RFC 2104, section 2).
            None => {
                let hashed = digest::digest(&digest::SHA256, secret);
                block[..TAG].copy_from_slice(hashed.as_ref());
            }
        }
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, secret),
            block,
        }
    }

    /// The tag of a message in parts.
    #[must_use]
    pub fn sign(&self, parts: &[&[u8]]) -> Tag {
        // The key's two blocks have been hashed already: this copies their state.
        let mut context = hmac::Context::with_key(&self.key);
        parts.iter().for_each(|part| context.update(part));
        let mut tag = [0; TAG];
        tag.copy_from_slice(context.sign().as_ref());
        tag
    }

    /// The block that the inner hash begins with, and the one of the outer hash.
    fn padded(&self) -> ([u8; BLOCK], [u8; BLOCK]) {
        let with = |padding: u8| self.block.map(|byte| byte ^ padding);
        (with(0x36), with(0x5c))
    }
}

/// The messages of one thread that are signed together.
#[derive(Debug, Default)]
pub struct HmacQueue {
    /// The round that the next message joins, if it is waited for.
    open: RefCell<Weak<Round>>,
}

impl HmacQueue {
    /// Signs the message that is `start` and `body`, together with those that other tasks of this
    /// thread bring before this one is polled for the second time. Small messages are not worth
    /// that, and large ones would hold up everything else.
    pub fn sign(&self, key: &Arc<HmacKey>, start: &str, body: &Bytes) -> Signing {
        if !TOGETHER_BYTES.contains(&body.len()) {
            return Signing(Progress::Signed(key.sign(&[start.as_bytes(), body])));
        }
        let mut open = self.open.borrow_mut();
        let round = match open.upgrade().filter(|it| it.is_open()) {
            Some(round) => round,
            None => {
                let round = Rc::default();
                *open = Rc::downgrade(&round);
                round
            }
        };
        Signing(Progress::Waiting {
            at: round.join(Job::new(key, start, body)),
            round,
            is_polled: false,
        })
    }
}

/// A message that is being signed. Of those that wait for each other, whichever is polled for the
/// second time first computes the tags of all: one that is dropped before is missed by nobody.
#[derive(Debug)]
pub struct Signing(Progress);

#[derive(Debug)]
enum Progress {
    Signed(Tag),
    Waiting {
        round: Rc<Round>,
        /// Its place in the round.
        at: usize,
        is_polled: bool,
    },
}

impl Future for Signing {
    type Output = Tag;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Tag> {
        match &mut self.0 {
            Progress::Signed(tag) => Poll::Ready(*tag),
            Progress::Waiting { is_polled, .. } if !*is_polled => {
                *is_polled = true;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Progress::Waiting { round, at, .. } => Poll::Ready(round.tag(*at)),
        }
    }
}

/// Messages that are signed together.
#[derive(Debug, Default)]
struct Round {
    jobs: RefCell<Vec<Job>>,
    /// How large their bodies are together.
    bytes: Cell<usize>,
    tags: OnceCell<Vec<Tag>>,
}

impl Round {
    /// Whether others may join: lanes are filled as long as that takes little time.
    fn is_open(&self) -> bool {
        let count = self.jobs.borrow().len();
        let is_enough = self.bytes.get() >= BYTES_MAX || count >= COUNT_MAX;
        self.tags.get().is_none() && !(is_enough && count.is_multiple_of(lane_width()))
    }

    /// Adds a message: its place among the tags.
    fn join(&self, job: Job) -> usize {
        self.bytes.set(self.bytes.get() + job.body.len());
        let mut jobs = self.jobs.borrow_mut();
        jobs.push(job);
        jobs.len() - 1
    }

    fn tag(&self, at: usize) -> Tag {
        self.tags.get_or_init(|| tags(&self.jobs.take()))[at]
    }
}

/// A message with its key.
struct Job {
    key: Arc<HmacKey>,
    /// The first block of the inner hash, and the start of the message behind it.
    start: Vec<u8>,
    body: Bytes,
}

/// Without the key.
impl fmt::Debug for Job {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Job")
    }
}

impl Job {
    fn new(key: &Arc<HmacKey>, start: &str, body: &Bytes) -> Self {
        Self {
            key: Arc::clone(key),
            start: [&key.padded().0, start.as_bytes()].concat(),
            body: body.clone(),
        }
    }
}

/// The tags of messages.
fn tags(jobs: &[Job]) -> Vec<Tag> {
    if jobs.len() >= TOGETHER_MIN && is_right() {
        return together(jobs);
    }
    let alone = |job: &Job| job.key.sign(&[&job.start[BLOCK..], &job.body]);
    jobs.iter().map(alone).collect()
}

fn together(jobs: &[Job]) -> Vec<Tag> {
    let inner = jobs
        .iter()
        .map(|job| Message::prefixed(&job.start, &job.body));
    let inner: Vec<Message<'_>> = inner.collect();
    let mut hashed = vec![[0; TAG]; jobs.len()];
    hash_messages(&inner, &mut hashed);
    let blocks: Vec<[u8; BLOCK]> = jobs.iter().map(|job| job.key.padded().1).collect();
    let outer = blocks.iter().zip(&hashed);
    let outer: Vec<Message<'_>> = outer
        .map(|(block, hashed)| Message::prefixed(block, hashed))
        .collect();
    let mut tags = vec![[0; TAG]; jobs.len()];
    hash_messages(&outer, &mut tags);
    tags
}

/// Whether what hashes several messages at once on this processor does it rightly. There are as many
/// ways as there are kinds of processors, and a test only runs that of its own.
fn is_right() -> bool {
    static IS_RIGHT: OnceLock<bool> = OnceLock::new();
    *IS_RIGHT.get_or_init(|| {
        let bytes = Bytes::from("a text that is hashed ".repeat(30));
        // Equal lengths take another way than different ones.
        let lengths = |is_equal: bool| {
            let count = 2 * COUNT_MAX;
            (0..count).map(move |at| if is_equal { 301 } else { 7 * at })
        };
        [false, true].into_iter().all(|is_equal| {
            let jobs = lengths(is_equal).map(|length| {
                let key = Arc::new(HmacKey::new(&bytes[..1 + length % 100]));
                Job::new(&key, "1-2.3.", &bytes.slice(..length))
            });
            let jobs: Vec<Job> = jobs.collect();
            let right = |job: &Job| job.key.sign(&[&job.start[BLOCK..], &job.body]);
            together(&jobs)
                .iter()
                .eq(&jobs.iter().map(right).collect::<Vec<_>>())
        })
    })
}
