//! One subscriber of a channel: first what is for it alone, then the ring's bytes as they come.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use component::access::Validity;
use component::stream::StopReason;

use crate::channel::{Channel, StreamEnd};
use crate::seats::{Lost, Next, Outlet};

/// After how many writes others have their turn.
const WRITES_MAX: u32 = 8;

/// A subscriber of a channel. Dropping it gives its place back.
pub(crate) struct Reader {
    channel: Rc<Channel>,
    key: u32,
    /// What is written before the ring's bytes: it is for this subscriber alone.
    own: Bytes,
    /// What that counts for in the memory of those with expressions, until all of it is written.
    held: u64,
}

/// Why [`Reader::poll_read`] comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadEnd {
    /// The subscriber has missed something: [`Reader::skip`].
    Behind(Lost),
    /// The stream has to end, between two frames unless the subscriber is too slow.
    End(StreamEnd),
}

impl Reader {
    /// A subscriber that does not read from the ring yet. Its stream ends in that many ticks.
    pub fn new(channel: &Rc<Channel>, ticks: Option<u32>) -> Self {
        Self {
            key: channel.enter(ticks),
            channel: Rc::clone(channel),
            own: Bytes::new(),
            held: 0,
        }
    }

    /// Has the stream end when the subscriber's credential expires or is revoked.
    pub fn hold_to(&self, validity: Option<Arc<Validity>>) {
        if let Some(validity) = validity {
            self.channel.hold_to(self.key, validity);
        }
    }

    /// The channel.
    pub fn channel(&self) -> &Rc<Channel> {
        &self.channel
    }

    /// Goes on from this offset of the ring, behind bytes of its own.
    pub fn join(&mut self, own: Bytes, at: u64) {
        self.put_own(own);
        self.channel.place(self.key, at);
    }

    /// Lets the subscriber have events up to this one.
    pub fn open_window(&self, sequence: u64) {
        self.channel.open_window(self.key, sequence);
    }

    /// Ends the stream for what its connection says, once it is not within a frame.
    pub fn finish(&self, reason: StopReason) {
        self.channel.finish_one(self.key, StreamEnd::of(reason));
    }

    /// Goes on behind what has been missed, as the policy says.
    pub fn skip(&mut self, lost: Lost) {
        let (own, at) = self.channel.beyond(self.key, lost);
        self.join(own, at);
    }

    /// Writes what there is. Ready only when somebody has to decide something.
    pub fn poll_read(
        &mut self,
        outlet: &mut (impl Outlet + ?Sized),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<ReadEnd>> {
        for _ in 0..WRITES_MAX {
            if !self.own.is_empty() {
                if let Some(end) = ready!(self.poll_own(outlet, context))? {
                    return Poll::Ready(Ok(ReadEnd::End(end)));
                }
                continue;
            }
            match self.channel.step(self.key, outlet, context)? {
                Next::Wait => return Poll::Pending,
                Next::Again => {}
                Next::Behind(lost) => return Poll::Ready(Ok(ReadEnd::Behind(lost))),
                Next::End(end) => return Poll::Ready(Ok(ReadEnd::End(end))),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes some of the subscriber's own bytes. Gives a reason not to go on with that.
    fn poll_own(
        &mut self,
        outlet: &mut (impl Outlet + ?Sized),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<StreamEnd>>> {
        let end = self.channel.end(self.key);
        if let Some(end @ (StreamEnd::Slow | StreamEnd::Stalled)) = end {
            return Poll::Ready(Ok(Some(end)));
        }
        let wrote = outlet.poll_write(context, &self.own);
        let pending = wrote.is_pending().then(|| outlet.records_taken());
        self.channel.note_other(self.key, pending, context);
        let count = ready!(wrote)?;
        self.channel.count_bytes(count as u64);
        // What is written is given back, however long the rest waits.
        self.own = self.own.slice(count.min(self.own.len())..);
        if self.own.is_empty() {
            self.hold(0);
        }
        Poll::Ready(Ok(None))
    }

    /// Has bytes of the subscriber's own written, and nothing else.
    pub fn put_own(&mut self, bytes: Bytes) {
        self.own = bytes;
        self.hold(self.own.len() as u64);
    }

    fn hold(&mut self, bytes: u64) {
        let before = std::mem::replace(&mut self.held, bytes);
        if before != bytes {
            self.channel.hold_own(before, bytes);
        }
    }

    /// What the stream has to end for, once it is not within a frame.
    pub fn end(&self) -> Option<StreamEnd> {
        self.channel.end(self.key)
    }

    /// Waits for something that the stream has to end for, while nothing is written.
    pub fn poll_end(&self, context: &Context<'_>) -> Poll<StreamEnd> {
        self.channel.note_other(self.key, None, context);
        self.end().map_or(Poll::Pending, Poll::Ready)
    }

    /// Writes the subscriber's own bytes. Ready with a reason to end the stream, or when all is
    /// written.
    pub fn poll_write_own(
        &mut self,
        outlet: &mut (impl Outlet + ?Sized),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<StreamEnd>>> {
        while !self.own.is_empty() {
            if let Some(end) = ready!(self.poll_own(outlet, context))? {
                return Poll::Ready(Ok(Some(end)));
            }
        }
        Poll::Ready(Ok(self.end()))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.hold(0);
        self.channel.leave(self.key);
    }
}
