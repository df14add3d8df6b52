//! After `101 Switching Protocols`: bytes go both ways until both sides have finished.

use std::future::poll_fn;
use std::task::{Context, Poll};

use component::forward::FieldEdits;
use net::Connection;
use net::http1::Framing;
use tokio::time::Instant;

use crate::pipe::{Encoding, Pipe};
use crate::request_head::ForwardTarget;
use crate::response_head::{self, ClientSide};
use crate::session::{After, Served, Session};

/// Passes the switching reply on and relays until both sides have finished.
pub(crate) async fn run(
    session: &mut Session,
    target: &ForwardTarget,
    mut upstream: Connection,
    out: &mut Vec<u8>,
) -> Served {
    out.clear();
    let client = ClientSide {
        version: session.head.version,
        closes: false,
    };
    let edits: &FieldEdits = &target.plan.reply_fields;
    let bytes = upstream.input.bytes();
    response_head::write_relayed(&session.response, bytes, client, edits, out);
    upstream.input.consume(session.response.length);
    let mut received = 0;
    if session.write_all(out).await.is_ok() {
        let limits = session.head_limits();
        let mut tunnel = Tunnel {
            down: Direction::new(Pipe::new(Framing::UntilClose, Encoding::AsIs, limits)),
            up: Direction::new(Pipe::new(Framing::UntilClose, Encoding::AsIs, limits)),
            seen_progress: u64::MAX,
        };
        poll_fn(|context| tunnel.poll(context, session, &mut upstream)).await;
        received = tunnel.down.pipe.moved;
    }
    session.now = Instant::now();
    Served {
        status: 101,
        after: After::Gone,
        received,
    }
}

struct Tunnel {
    down: Direction,
    up: Direction,
    seen_progress: u64,
}

struct Direction {
    pipe: Pipe,
    finished: bool,
}

impl Tunnel {
    /// Ready when both directions have ended, one has broken, or nothing has moved for too long.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        session: &mut Session,
        upstream: &mut Connection,
    ) -> Poll<()> {
        let down = self.down.poll(context, upstream, &mut session.client);
        let up = self.up.poll(context, &mut session.client, upstream);
        match (down, up) {
            (Poll::Ready(true), Poll::Ready(true)) => return Poll::Ready(()),
            (Poll::Ready(false), _) | (_, Poll::Ready(false)) => return Poll::Ready(()),
            _ => {}
        }
        let progress = self.down.pipe.moved.wrapping_add(self.up.pipe.moved);
        if progress != self.seen_progress {
            self.seen_progress = progress;
            session
                .deadline
                .set(Instant::now(), session.settings.timeouts.stream);
        }
        session.deadline.poll(context)
    }
}

impl Direction {
    fn new(pipe: Pipe) -> Self {
        Self {
            pipe,
            finished: false,
        }
    }

    /// Ready with whether the direction has ended properly: the end was passed on too.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        source: &mut Connection,
        sink: &mut Connection,
    ) -> Poll<bool> {
        if self.finished {
            return Poll::Ready(true);
        }
        match self.pipe.poll(context, source, sink) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(_)) => Poll::Ready(false),
            Poll::Ready(Ok(())) => sink.poll_finish(context).map(|result| {
                self.finished = true;
                result.is_ok()
            }),
        }
    }
}
