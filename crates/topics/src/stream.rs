//! The connection of a subscriber that only listens, from its head to its end.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use component::stream::{Client, poll_gone, write_all};

use crate::channel::StreamEnd;
use crate::join::{Joining, Step};
use crate::reader::{ReadEnd, Reader};
use crate::seats::Outlet;

impl Outlet for dyn Client + '_ {
    #[inline]
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Client::poll_write(self, context, bytes)
    }

    fn records_taken(&self) -> u64 {
        Client::records_taken(self)
    }
}

/// Writes what a subscriber has missed, and has it go on in the ring. Gives a reason to end the
/// stream instead.
///
/// # Errors
/// When the connection has ended.
pub(crate) async fn join(
    reader: &mut Reader,
    client: &mut dyn Client,
    mut joining: Joining,
) -> io::Result<Option<StreamEnd>> {
    loop {
        match advance(reader, client, &mut joining).await? {
            Err(end) => return Ok(Some(end)),
            Ok(Step::Join(own, at)) => {
                reader.join(own, at);
                return Ok(None);
            }
            Ok(Step::Write(piece)) => {
                if let Some(end) = write_own(reader, client, piece).await? {
                    return Ok(Some(end));
                }
            }
            // Nothing has to be acknowledged here.
            Ok(Step::Full) => return Ok(Some(StreamEnd::Failed)),
        }
    }
}

/// Finds out what comes next for a subscriber. Expressions of which nothing is written may take the
/// whole history, and meanwhile the stream can end like any other: that is looked for before each
/// turn.
///
/// # Errors
/// When the connection has ended.
async fn advance(
    reader: &Reader,
    client: &mut dyn Client,
    joining: &mut Joining,
) -> io::Result<Result<Step, StreamEnd>> {
    let mut step = pin!(joining.advance());
    poll_fn(|context| {
        if client.poll_stop(context).is_ready() {
            reader.finish(client.stop_reason());
        }
        if let Poll::Ready(end) = reader.poll_end(context) {
            return Poll::Ready(Ok(Err(end)));
        }
        if let Poll::Ready(step) = step.as_mut().poll(context) {
            return Poll::Ready(Ok(step));
        }
        match poll_gone(client, context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Writes bytes of a subscriber's own. Gives a reason not to go on.
///
/// # Errors
/// When the connection has ended.
pub(crate) async fn write_own(
    reader: &mut Reader,
    client: &mut dyn Client,
    bytes: Bytes,
) -> io::Result<Option<StreamEnd>> {
    reader.put_own(bytes);
    poll_fn(|context| {
        if client.poll_stop(context).is_ready() {
            reader.finish(client.stop_reason());
        }
        if let Poll::Ready(done) = reader.poll_write_own(client, context) {
            return Poll::Ready(done);
        }
        match poll_gone(client, context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Writes what comes until the stream has to end, for a reason, or the client has left.
pub(crate) async fn deliver(reader: &mut Reader, client: &mut dyn Client) -> Option<StreamEnd> {
    poll_fn(|context| poll(reader, client, context)).await
}

fn poll(
    reader: &mut Reader,
    client: &mut dyn Client,
    context: &mut Context<'_>,
) -> Poll<Option<StreamEnd>> {
    if client.poll_stop(context).is_ready() {
        reader.finish(client.stop_reason());
    }
    loop {
        match reader.poll_read(client, context) {
            Poll::Ready(Ok(ReadEnd::Behind(lost))) => reader.skip(lost),
            Poll::Ready(Ok(ReadEnd::End(end))) => return Poll::Ready(Some(end)),
            Poll::Ready(Err(_)) => return Poll::Ready(None),
            Poll::Pending => break,
        }
    }
    match poll_gone(client, context) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    }
}

/// Ends a stream: last words, then the proper end. One that has taken nothing is cut.
pub(crate) async fn finish(
    reader: &Reader,
    client: &mut dyn Client,
    end: StreamEnd,
    words: Vec<u8>,
) {
    let channel = reader.channel();
    if matches!(end, StreamEnd::Slow | StreamEnd::Stalled) {
        if let Some(branch) = channel.branch(0) {
            branch.counts().note_disconnected();
        }
        return;
    }
    let words = channel.sealed(words);
    // The client may leave at any moment; there is nobody to tell then.
    let _ = say(client, &words).await;
}

async fn say(client: &mut dyn Client, words: &[u8]) -> io::Result<()> {
    let said = tokio::time::timeout(LAST_WORDS, write_all(client, words)).await;
    said.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    poll_fn(|context| client.poll_finish(context)).await
}

/// How long a client may take to read the last words.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_secs(5);
