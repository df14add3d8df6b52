//! A request's body that is in memory.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use message::Body;
use net::http1::{End, TransferError};

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
