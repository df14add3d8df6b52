//! A request's body: in memory, or still with the client.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use component::identity::IdentityField;
use message::Body;
use net::Connection;
use net::http1::{BodyReader, End, TransferError};
use net::http2::Stream;

use super::stream::StreamReader;

/// A body in memory, of which so much has been taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    bytes: Bytes,
    taken: usize,
    pub is_ended: bool,
}

impl Content {
    fn new(bytes: Bytes) -> Self {
        Self {
            bytes,
            taken: 0,
            is_ended: false,
        }
    }

    /// A message's body; none when it is still with the client.
    pub fn of(body: &Body) -> Option<Self> {
        match body {
            Body::Unread => None,
            Body::Empty => Some(Self::default()),
            Body::Bytes(bytes) => Some(Self::new(bytes.clone())),
        }
    }

    /// All of it, what has been taken included.
    pub fn whole(&self) -> Bytes {
        self.bytes.clone()
    }

    /// How many bytes have been taken.
    pub fn taken(&self) -> u64 {
        self.taken as u64
    }

    /// Goes back to the beginning.
    pub fn rewind(&mut self) {
        self.taken = 0;
        self.is_ended = false;
    }

    /// Hands what is left to `take`.
    #[inline]
    pub fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        let rest = self.bytes.get(self.taken..).unwrap_or_default();
        let used = ready!(take(context, rest, End::End(None))).map_err(TransferError::Sink)?;
        self.is_ended = used == rest.len();
        self.taken += used;
        Poll::Ready(Ok(()))
    }
}

/// Reads a request's body off the client's side, and can go back to its beginning while it keeps
/// what was taken.
pub(crate) trait RequestReader {
    /// What it reads from.
    type Side<'a>;

    /// Hands what is there to `take`, as [`super::Source::poll_take`] does.
    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        side: Self::Side<'_>,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>>;

    fn is_ended(&self) -> bool;

    fn moved(&self) -> u64;

    /// How many bytes have been taken.
    fn taken(&self) -> u64;

    fn can_rewind(&self) -> bool;

    fn rewind(&mut self);
}

impl RequestReader for BodyReader {
    type Side<'a> = &'a mut Connection;

    #[inline]
    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        client: &mut Connection,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        Self::poll_take(self, context, client, take)
    }

    #[inline]
    fn is_ended(&self) -> bool {
        Self::is_ended(self)
    }

    fn moved(&self) -> u64 {
        Self::moved(self)
    }

    fn taken(&self) -> u64 {
        Self::taken(self)
    }

    fn can_rewind(&self) -> bool {
        Self::can_rewind(self)
    }

    fn rewind(&mut self) {
        Self::rewind(self);
    }
}

impl RequestReader for StreamReader {
    type Side<'a> = &'a Stream;

    #[inline]
    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        stream: &Stream,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        Self::poll_take(self, context, stream, take)
    }

    #[inline]
    fn is_ended(&self) -> bool {
        Self::is_ended(self)
    }

    fn moved(&self) -> u64 {
        Self::taken(self)
    }

    fn taken(&self) -> u64 {
        Self::taken(self)
    }

    fn can_rewind(&self) -> bool {
        Self::can_rewind(self)
    }

    fn rewind(&mut self) {
        Self::rewind(self);
    }
}

/// A request's body, across all attempts to send it.
pub(crate) enum RequestBody<R> {
    /// Still with the client, read by this.
    Client(R),
    /// In memory: that of a message.
    Message(Content),
}

impl<R: RequestReader> RequestBody<R> {
    /// What reads it off the client's side.
    #[inline]
    pub fn reader(&self) -> Option<&R> {
        match self {
            Self::Client(reader) => Some(reader),
            Self::Message(_) => None,
        }
    }

    /// The same, to change it.
    #[inline]
    pub fn reader_mut(&mut self) -> Option<&mut R> {
        match self {
            Self::Client(reader) => Some(reader),
            Self::Message(_) => None,
        }
    }

    /// Hands what is there to `take`, as [`super::Source::poll_take`] does. The identity header is
    /// left out of the client's trailers: what takes these for part of the head would believe it.
    #[inline]
    pub fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        side: R::Side<'_>,
        identity: Option<&IdentityField>,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        match self {
            Self::Client(reader) => reader.poll_take(context, side, |context, bytes, end| {
                let others = match (identity, end) {
                    (Some(identity), End::End(Some(trailers))) => identity.without(trailers),
                    _ => None,
                };
                match &others {
                    None => take(context, bytes, end),
                    Some(others) => take(context, bytes, End::End(Some(others.view()))),
                }
            }),
            Self::Message(content) => content.poll_take(context, take),
        }
    }

    #[inline]
    pub fn is_ended(&self) -> bool {
        match self {
            Self::Client(reader) => reader.is_ended(),
            Self::Message(content) => content.is_ended,
        }
    }

    pub fn moved(&self) -> u64 {
        match self {
            Self::Client(reader) => reader.moved(),
            Self::Message(content) => content.taken(),
        }
    }

    /// How many bytes have been taken.
    pub fn taken(&self) -> u64 {
        match self {
            Self::Client(reader) => reader.taken(),
            Self::Message(content) => content.taken(),
        }
    }

    /// All of it, when it is in memory.
    pub fn whole(&self) -> Option<Bytes> {
        match self {
            Self::Client(_) => None,
            Self::Message(content) => Some(content.whole()),
        }
    }

    pub fn can_rewind(&self) -> bool {
        self.reader().is_none_or(R::can_rewind)
    }

    pub fn rewind(&mut self) {
        match self {
            Self::Client(reader) => reader.rewind(),
            Self::Message(content) => content.rewind(),
        }
    }
}
