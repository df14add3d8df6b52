//! HMAC-SHA256 (RFC 2104, FIPS 180-4) of messages that are ready at the same time.
//!
//! Each instruction of a hash waits for the one before it, so a core computes four independent
//! hashes in the time of two, and more of them where its vector registers are wider (multi-buffer
//! hashing). An event that goes to many webhooks is signed for each of them with another key. A
//! task that signs yields once, and all messages that other tasks have queued by then are hashed
//! in one batch.

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

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tape_sha256::{Message, hash_messages, lane_width};

use crate::sha256::sha256;

/// The bytes of a block of SHA-256.
const BLOCK: usize = 64;
/// `ipad` and `opad` of RFC 2104.
const INNER_PAD: u8 = 0x36;
const OUTER_PAD: u8 = 0x5c;
/// The bytes of a tag.
const TAG: usize = 32;
/// Fewer messages than this are faster to sign one by one.
const BATCH_MIN: usize = 4;
/// The sizes of bodies that are queued: smaller ones gain nothing, larger ones take long.
const BODY_BYTES: RangeInclusive<usize> = 2 << 10..=64 << 10;
/// From this size on a batch is closed as soon as its messages fill all SIMD lanes. With SHA
/// extensions it takes about 40 microseconds.
const BATCH_BYTES: usize = 128 << 10;
/// From this size on a batch is closed even if lanes stay empty: while it is hashed, no other task
/// of the worker runs.
const BATCH_BYTES_MAX: usize = 512 << 10;
/// The most messages of a batch: a multiple of every backend's number of lanes.
const BATCH_COUNT: usize = 32;

/// A tag of HMAC-SHA256.
pub type Tag = [u8; TAG];

/// A key of HMAC-SHA256.
pub struct HmacKey {
    /// The key with zeros up to the size of a block, which makes the same tags.
    block: [u8; BLOCK],
    /// The states of the inner and the outer hash after the key's block. A message that is signed
    /// alone continues copies of them, which for a small one takes a quarter less time than a MAC
    /// object of aws-lc. Computed for the first such message.
    states: OnceLock<[Sha256; 2]>,
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
            None => block[..TAG].copy_from_slice(&sha256(secret)),
        }
        Self {
            block,
            states: OnceLock::new(),
        }
    }

    /// The tag of a message in parts.
    #[must_use]
    pub fn sign(&self, parts: &[&[u8]]) -> Tag {
        let begun = |pad| Sha256::new().chain_update(self.padded(pad));
        let new = || [begun(INNER_PAD), begun(OUTER_PAD)];
        let [mut inner, outer] = self.states.get_or_init(new).clone();
        parts.iter().for_each(|part| inner.update(part));
        outer.chain_update(inner.finalize()).finalize().into()
    }

    /// The first block of one of the two hashes (RFC 2104, section 2).
    fn padded(&self, pad: u8) -> [u8; BLOCK] {
        self.block.map(|byte| byte ^ pad)
    }
}

/// The queue of one thread for messages that are signed in batches.
#[derive(Debug, Default)]
pub struct HmacQueue {
    /// The latest batch, as long as a message of it is awaited.
    open: RefCell<Weak<Batch>>,
}

impl HmacQueue {
    /// Whether a message with this body is signed together with others. Otherwise it is signed at
    /// once.
    #[must_use]
    pub fn is_batched(body: &Bytes) -> bool {
        // A processor with a single lane has nothing that is faster than one after the other.
        BODY_BYTES.contains(&body.len()) && lane_width() > 1
    }

    /// Signs the message `start` followed by `body`, in one batch with messages that other tasks of
    /// this thread queue before the first future of the batch is polled for the second time. Small
    /// and large messages are signed at once.
    pub fn sign(&self, key: &Arc<HmacKey>, start: &str, body: &Bytes) -> Signing {
        if !Self::is_batched(body) {
            return Signing(SigningState::Signed(key.sign(&[start.as_bytes(), body])));
        }
        let mut open = self.open.borrow_mut();
        let batch = match open.upgrade().filter(|it| it.is_open()) {
            Some(batch) => batch,
            None => {
                let batch = Rc::default();
                *open = Rc::downgrade(&batch);
                batch
            }
        };
        Signing(SigningState::Waiting {
            at: batch.join(QueuedMessage::new(key, start, body)),
            batch,
            is_polled: false,
        })
    }
}

/// A future of the tag of a message. The first future of a batch that is polled for the second time
/// computes the tags of the whole batch, so any of them may be dropped.
#[derive(Debug)]
pub struct Signing(SigningState);

#[derive(Debug)]
enum SigningState {
    Signed(Tag),
    Waiting {
        batch: Rc<Batch>,
        /// Its place in the batch.
        at: usize,
        is_polled: bool,
    },
}

impl Future for Signing {
    type Output = Tag;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Tag> {
        match &mut self.0 {
            SigningState::Signed(tag) => Poll::Ready(*tag),
            SigningState::Waiting {
                is_polled, batch, ..
            } if !*is_polled && !batch.is_closed.get() => {
                *is_polled = true;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            SigningState::Waiting { batch, at, .. } => Poll::Ready(batch.tag(*at, tags)),
        }
    }
}

/// Messages that are signed together.
#[derive(Debug, Default)]
struct Batch {
    messages: RefCell<Vec<QueuedMessage>>,
    /// How large their bodies are together.
    bytes: Cell<usize>,
    /// Set when the tags are computed: no more messages may join.
    is_closed: Cell<bool>,
    tags: OnceCell<Vec<Tag>>,
}

impl Batch {
    /// Whether more messages may join the batch.
    fn is_open(&self) -> bool {
        let (count, bytes) = (self.messages.borrow().len(), self.bytes.get());
        let is_full = count >= BATCH_COUNT || bytes >= BATCH_BYTES_MAX;
        let is_enough = bytes >= BATCH_BYTES && count.is_multiple_of(lane_width());
        !self.is_closed.get() && !is_full && !is_enough
    }

    /// Adds a message: its place among the tags.
    fn join(&self, message: QueuedMessage) -> usize {
        self.bytes.set(self.bytes.get() + message.body.len());
        let mut messages = self.messages.borrow_mut();
        messages.push(message);
        messages.len() - 1
    }

    /// The tag of the message at this place; `sign` computes those of all.
    fn tag(&self, at: usize, sign: impl FnOnce(&[QueuedMessage]) -> Vec<Tag>) -> Tag {
        let tags = self.tags.get_or_init(|| {
            // Before anything that may panic: places stay those of the messages.
            self.is_closed.set(true);
            let tags = sign(&self.messages.borrow());
            self.messages.take();
            tags
        });
        tags[at]
    }
}

/// A message with its key.
struct QueuedMessage {
    key: Arc<HmacKey>,
    /// The first block of the inner hash, and the start of the message behind it.
    start: Vec<u8>,
    body: Bytes,
}

/// Without the key.
impl fmt::Debug for QueuedMessage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("QueuedMessage")
    }
}

impl QueuedMessage {
    fn new(key: &Arc<HmacKey>, start: &str, body: &Bytes) -> Self {
        Self {
            key: Arc::clone(key),
            start: [&key.padded(INNER_PAD), start.as_bytes()].concat(),
            body: body.clone(),
        }
    }

    /// How many blocks the inner hash has, with the padding of at least nine bytes.
    fn blocks(&self) -> usize {
        (self.start.len() + self.body.len() + 9).div_ceil(BLOCK)
    }

    fn sign_alone(&self) -> Tag {
        self.key.sign(&[&self.start[BLOCK..], &self.body])
    }
}

/// The tags of messages. What is hashed together has the same number of blocks, for the lanes of
/// one that is shorter would stand idle. That is so with the messages of an event.
fn tags(messages: &[QueuedMessage]) -> Vec<Tag> {
    let mut order: Vec<usize> = (0..messages.len()).collect();
    order.sort_by_key(|at| messages[*at].blocks());
    let mut tags = vec![[0; TAG]; messages.len()];
    for run in order.chunk_by(|one, other| messages[*one].blocks() == messages[*other].blocks()) {
        let of_run: Vec<&QueuedMessage> = run.iter().map(|at| &messages[*at]).collect();
        let signed = match run.len() >= BATCH_MIN && passes_self_test() {
            true => sign_batch(&of_run),
            false => of_run.iter().map(|it| it.sign_alone()).collect(),
        };
        for (at, tag) in run.iter().zip(signed) {
            tags[*at] = tag;
        }
    }
    tags
}

fn sign_batch(messages: &[&QueuedMessage]) -> Vec<Tag> {
    let inner = messages.iter();
    let inner: Vec<Message<'_>> = inner
        .map(|it| Message::prefixed(&it.start, &it.body))
        .collect();
    let mut hashed = vec![[0; TAG]; messages.len()];
    hash_messages(&inner, &mut hashed);
    let blocks: Vec<[u8; BLOCK]> = messages.iter().map(|it| it.key.padded(OUTER_PAD)).collect();
    let outer = blocks.iter().zip(&hashed);
    let outer: Vec<Message<'_>> = outer
        .map(|(block, hashed)| Message::prefixed(block, hashed))
        .collect();
    let mut tags = vec![[0; TAG]; messages.len()];
    hash_messages(&outer, &mut tags);
    tags
}

/// Whether the code that hashes several messages at once on this kind of processor gives the right
/// tags; all messages are signed alone if not. Tests have run that of their own processor only. It
/// takes some milliseconds the first time.
pub fn passes_self_test() -> bool {
    static PASSES: OnceLock<bool> = OnceLock::new();
    *PASSES.get_or_init(|| {
        let bytes = Bytes::from("a text that is hashed ".repeat(150));
        let message = |length: usize, key: usize| {
            let key = Arc::new(HmacKey::new(&bytes[..=key]));
            QueuedMessage::new(&key, "1-2.3.", &bytes.slice(..length))
        };
        // Lengths that are equal, that have the same number of blocks, and any; keys that differ,
        // pairs and one for all. Each has a way of its own, and so have lanes that stay empty.
        let ways: [fn(usize) -> (usize, usize); 6] = [
            |at| (301, at % 100),
            |at| (300 + at % 20, at % 100),
            |at| (7 * at % 500, at % 100),
            |at| (2_100, at % 100),
            |at| (301, at / 2),
            |_| (301, 0),
        ];
        let is_right = |way: fn(usize) -> (usize, usize), count: usize| {
            let messages = (0..count)
                .map(way)
                .map(|(length, key)| message(length, key));
            let messages: Vec<QueuedMessage> = messages.collect();
            let expected: Vec<Tag> = messages.iter().map(QueuedMessage::sign_alone).collect();
            sign_batch(&messages.iter().collect::<Vec<_>>()) == expected
        };
        let mut counts = 1..lane_width() + 13;
        counts.all(|count| ways.iter().all(|way| is_right(*way, count)))
    })
}
