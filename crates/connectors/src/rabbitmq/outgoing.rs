//! A message on its way to a broker, and who waits for what becomes of it.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use amqp::{Message, Properties, TooLong};
use bytes::Bytes;
use message::Fault;

use super::hub::Hub;

/// What becomes of a message: the reply when one was asked for, nothing else, or a failure.
pub(super) type Outcome = Result<Option<Message>, Fault>;

/// How far a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has not been sent.
    Waits,
    /// It has been sent, and the broker has not confirmed it.
    Sent,
    /// It is known what has become of it, or nobody wants to know any more.
    Over,
}

/// A message on its way to a broker.
pub(super) struct Outgoing {
    pub exchange: Arc<str>,
    pub key: String,
    pub mandatory: bool,
    /// As they stand in the header.
    pub properties: Vec<u8>,
    pub body: Bytes,
    /// The number of the call whose reply is waited for.
    pub call: Option<u64>,
    pub stage: Cell<Stage>,
    /// Whether it has come back.
    pub returned: Cell<bool>,
    /// Whether nobody waits, and it is to be sent all the same.
    is_left: Cell<bool>,
    /// The tick at which it began to wait, or was sent.
    pub since: Cell<u32>,
    outcome: RefCell<Option<Outcome>>,
    waker: RefCell<Option<Waker>>,
}

/// What a message of this size costs in memory beside its body.
const OVERHEAD: usize = 512;

impl Outgoing {
    /// A message for an exchange.
    ///
    /// # Errors
    /// When the key or a text of the properties has more than 255 bytes.
    pub fn new(
        (exchange, key): (Arc<str>, String),
        mandatory: bool,
        properties: &Properties<'_>,
        body: Bytes,
    ) -> Result<Self, TooLong> {
        if key.len() > amqp::SHORT_MAX {
            return Err(TooLong);
        }
        let mut bytes = Vec::with_capacity(64);
        properties.write(&mut bytes)?;
        Ok(Self {
            exchange,
            key,
            mandatory,
            properties: bytes,
            body,
            call: None,
            stage: Cell::new(Stage::Waits),
            returned: Cell::new(false),
            is_left: Cell::new(false),
            since: Cell::new(0),
            outcome: RefCell::new(None),
            waker: RefCell::new(None),
        })
    }

    /// What it takes in memory, about.
    pub fn size(&self) -> usize {
        self.body.len() + self.properties.len() + self.key.len() + OVERHEAD
    }

    /// Tells whoever waits what has become of it; the first word holds.
    pub fn settle(&self, outcome: Outcome) {
        if self.stage.replace(Stage::Over) == Stage::Over {
            return;
        }
        *self.outcome.borrow_mut() = Some(outcome);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// Ready when it is known what has become of a message. Dropping it forgets the message, which
/// may be taken all the same.
pub(super) struct Pending {
    pub hub: Rc<Hub>,
    pub message: Rc<Outgoing>,
}

impl Pending {
    /// Nobody wants to know what becomes of it: it is sent all the same.
    pub fn leave(self) {
        self.message.is_left.set(true);
    }
}

impl Future for Pending {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        if let Some(outcome) = self.message.outcome.borrow_mut().take() {
            return Poll::Ready(outcome);
        }
        let mut waker = self.message.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(context.waker()),
            None => *waker = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.message.is_left.get() {
            self.hub.forget(&self.message);
        }
    }
}
