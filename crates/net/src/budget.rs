//! Turns: how much is done for one connection before the others of its worker are served. A socket
//! has megabytes ready when its other side sends without a pause, and as frames without content or
//! chunks of a byte they would keep the worker busy for many milliseconds.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};

/// What a turn may cost: about a quarter of a millisecond, and some milliseconds where bytes are
/// encrypted.
const BUDGET: u32 = 4096;
/// The cost of one step of decoding a body: a chunk's size line, or its data.
pub const PIECE: u32 = 1;
/// The cost of a frame.
pub(crate) const FRAME: u32 = 4;
/// The cost of what is read at once, which may be hundreds of TLS records.
pub(crate) const READ: u32 = 256;

/// Has a task woken when others have had their turns.
pub type Yield = fn(&mut Context<'_>);

thread_local! {
    static YIELD: Cell<Yield> = const { Cell::new(yield_to_ready) };
}

/// Sets how the connections of this thread let others have their turns: by default all that have
/// are woken together, so that each of many waits for all others.
pub fn yield_by(yielding: Yield) {
    YIELD.set(yielding);
}

/// Polling tokio's `yield_now` once schedules the task again, after all tasks that are ready and
/// the events of sockets.
fn yield_to_ready(context: &mut Context<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(context);
}

/// The turn of one connection, or of a message on it.
#[derive(Debug, Default)]
pub struct Turn {
    spent: u32,
}

impl Turn {
    /// Adds what something costs, such as [`PIECE`].
    #[inline]
    pub fn spend(&mut self, cost: u32) {
        self.spent = self.spent.saturating_add(cost);
    }

    /// Whether others come first.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.spent >= BUDGET
    }

    /// Lets others have their turns.
    pub async fn give_way(&mut self) {
        self.spent = BUDGET;
        poll_fn(|context| match self.gives_way(context) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }

    /// Whether others come first: the task is woken when they have had their turns, and the caller
    /// is pending until then.
    #[inline]
    pub(crate) fn gives_way(&mut self, context: &mut Context<'_>) -> bool {
        if !self.is_over() {
            return false;
        }
        self.end();
        YIELD.get()(context);
        true
    }

    /// Ends when there is nothing to do.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.spent = 0;
    }
}
