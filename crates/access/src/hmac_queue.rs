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
const BATCH_MIN: usize = 4;
/// How large the bodies are that wait for others.
const BODY_BYTES: RangeInclusive<usize> = 2 << 10..=64 << 10;
/// When messages wait for no others: as many bytes take about 40 microseconds, and beyond so many
/// messages none gets cheaper.
const BATCH_BYTES: usize = 128 << 10;
const BATCH_COUNT: usize = 32;

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
    /// The batch that the next message joins, if it is waited for.
    open: RefCell<Weak<Batch>>,
}

impl HmacQueue {
    /// Signs the message that is `start` and `body`, together with those that other tasks of this
    /// thread bring before this one is polled for the second time. Small messages are not worth
    /// that, and large ones would hold up everything else.
    pub fn sign(&self, key: &Arc<HmacKey>, start: &str, body: &Bytes) -> Signing {
        if !BODY_BYTES.contains(&body.len()) {
            return Signing(Progress::Signed(key.sign(&[start.as_bytes(), body])));
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
        Signing(Progress::Waiting {
            at: batch.join(QueuedMessage::new(key, start, body)),
            batch,
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
            Progress::Signed(tag) => Poll::Ready(*tag),
            Progress::Waiting { is_polled, .. } if !*is_polled => {
                *is_polled = true;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Progress::Waiting { batch, at, .. } => Poll::Ready(batch.tag(*at)),
        }
    }
}

/// Messages that are signed together.
#[derive(Debug, Default)]
struct Batch {
    messages: RefCell<Vec<QueuedMessage>>,
    /// How large their bodies are together.
    bytes: Cell<usize>,
    tags: OnceCell<Vec<Tag>>,
}

impl Batch {
    /// Whether others may join: lanes are filled as long as that takes little time.
    fn is_open(&self) -> bool {
        let count = self.messages.borrow().len();
        let is_enough = self.bytes.get() >= BATCH_BYTES || count >= BATCH_COUNT;
        self.tags.get().is_none() && !(is_enough && count.is_multiple_of(lane_width()))
    }

    /// Adds a message: its place among the tags.
    fn join(&self, message: QueuedMessage) -> usize {
        self.bytes.set(self.bytes.get() + message.body.len());
        let mut messages = self.messages.borrow_mut();
        messages.push(message);
        messages.len() - 1
    }

    fn tag(&self, at: usize) -> Tag {
        self.tags.get_or_init(|| tags(&self.messages.take()))[at]
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
            start: [&key.padded().0, start.as_bytes()].concat(),
            body: body.clone(),
        }
    }

    fn sign_alone(&self) -> Tag {
        self.key.sign(&[&self.start[BLOCK..], &self.body])
    }
}

/// The tags of messages.
fn tags(messages: &[QueuedMessage]) -> Vec<Tag> {
    if messages.len() >= BATCH_MIN && passes_self_test() {
        return sign_batch(messages);
    }
    messages.iter().map(QueuedMessage::sign_alone).collect()
}

fn sign_batch(messages: &[QueuedMessage]) -> Vec<Tag> {
    let inner = messages.iter();
    let inner: Vec<Message<'_>> = inner
        .map(|it| Message::prefixed(&it.start, &it.body))
        .collect();
    let mut hashed = vec![[0; TAG]; messages.len()];
    hash_messages(&inner, &mut hashed);
    let blocks: Vec<[u8; BLOCK]> = messages.iter().map(|it| it.key.padded().1).collect();
    let outer = blocks.iter().zip(&hashed);
    let outer: Vec<Message<'_>> = outer
        .map(|(block, hashed)| Message::prefixed(block, hashed))
        .collect();
    let mut tags = vec![[0; TAG]; messages.len()];
    hash_messages(&outer, &mut tags);
    tags
}

/// Whether the code that hashes several messages at once on this kind of processor gives the right
/// tags. Tests have run that of their own processor only.
fn passes_self_test() -> bool {
    static PASSES: OnceLock<bool> = OnceLock::new();
    *PASSES.get_or_init(|| {
        let bytes = Bytes::from("a text that is hashed ".repeat(30));
        // Equal lengths take another way than different ones.
        let lengths = |is_equal: bool| {
            let count = 2 * BATCH_COUNT;
            (0..count).map(move |at| if is_equal { 301 } else { 7 * at })
        };
        [false, true].into_iter().all(|is_equal| {
            let messages = lengths(is_equal).map(|length| {
                let key = Arc::new(HmacKey::new(&bytes[..1 + length % 100]));
                QueuedMessage::new(&key, "1-2.3.", &bytes.slice(..length))
            });
            let messages: Vec<QueuedMessage> = messages.collect();
            let expected: Vec<Tag> = messages.iter().map(QueuedMessage::sign_alone).collect();
            sign_batch(&messages) == expected
        })
    })
}
