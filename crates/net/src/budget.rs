//! How much is done for one connection before the others of its worker are served. A socket has
//! megabytes ready when its other side sends without a pause. Where these are empty frames, or
//! chunks of one byte, decoding all of them at once would keep the worker busy for a long time.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};

/// What may be spent without yielding: about a quarter of a millisecond, and some milliseconds
/// where bytes are encrypted.
const BUDGET: u32 = 4096;
/// The cost of one step of decoding a body: a chunk's size line, or its data.
pub const PIECE: u32 = 1;
/// The cost of a frame.
pub(crate) const FRAME: u32 = 4;
/// The cost of what is read at once, which may be hundreds of TLS records.
pub(crate) const READ: u32 = 256;

/// Has a task woken when others have been served.
pub type Yield = fn(&mut Context<'_>);

thread_local! {
    static YIELD: Cell<Yield> = const { Cell::new(yield_to_ready) };
}

/// Sets how the connections of this thread yield: by default all that have yielded are woken
/// together, so that each of many waits for all others.
pub fn yield_by(yielding: Yield) {
    YIELD.set(yielding);
}

/// Polling tokio's `yield_now` once schedules the task again, after all tasks that are ready and
/// the events of sockets.
fn yield_to_ready(context: &mut Context<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(context);
}

/// What one connection, or a message on it, has spent since it last waited or yielded.
#[derive(Debug, Default)]
pub struct Budget {
    spent: u32,
}

impl Budget {
    /// Adds what something costs, such as [`PIECE`].
    #[inline]
    pub fn spend(&mut self, cost: u32) {
        self.spent = self.spent.saturating_add(cost);
    }

    /// Lets others be served first when all is spent.
    #[inline]
    pub async fn yield_if_spent(&mut self) {
        poll_fn(|context| match self.yields(context) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }

    /// Whether all is spent. It is refilled then, and the task is woken when others have been
    /// served: the caller is pending until then.
    #[inline]
    pub(crate) fn yields(&mut self, context: &mut Context<'_>) -> bool {
        if self.spent < BUDGET {
            return false;
        }
        self.refill();
        YIELD.get()(context);
        true
    }

    /// Starts over with nothing spent: the connection waits, so others are served meanwhile.
    #[inline]
    pub(crate) fn refill(&mut self) {
        self.spent = 0;
    }
}
