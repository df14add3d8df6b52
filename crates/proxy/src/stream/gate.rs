//! Lets the messages of a stream pass, counts them, and holds back those above the flow's limit.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use component::stream_limits::{Over, Pace, StreamLimits};
use net::deadline::{Deadline, Deadlines};

/// What decides about the messages of one stream.
pub(crate) struct Gate {
    limited: Option<Box<Limited>>,
}

struct Limited {
    limits: Arc<StreamLimits>,
    pace: Arc<Pace>,
    closes: bool,
    /// When the next message may pass.
    timer: Deadline,
    /// Whether the message that waits has been noted.
    is_noted: bool,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    /// It has to wait; [`Gate::poll`] wakes the task.
    Wait,
    /// It ends the stream.
    Close,
}

impl Gate {
    /// The gate of a new stream.
    pub fn new(limits: Option<&Arc<StreamLimits>>, deadlines: &Deadlines) -> Self {
        let limited = limits.and_then(|limits| {
            let over = limits.messages()?.over;
            Some(Box::new(Limited {
                limits: Arc::clone(limits),
                pace: limits.pace()?,
                closes: over == Over::Close,
                timer: deadlines.add(),
                is_noted: false,
            }))
        });
        Self { limited }
    }

    /// Decides about one message.
    #[inline]
    pub fn ask(&mut self) -> Verdict {
        match &mut self.limited {
            None => Verdict::Pass,
            Some(limited) => limited.ask(),
        }
    }

    /// Pending until the message that waits may be asked for again.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        match &self.limited {
            Some(limited) => limited.timer.poll(context),
            None => Poll::Ready(()),
        }
    }
}

impl Limited {
    fn ask(&mut self) -> Verdict {
        let Err(wait) = self.pace.take(Instant::now()) else {
            self.is_noted = false;
            return Verdict::Pass;
        };
        if self.closes {
            self.limits.note_closed();
            return Verdict::Close;
        }
        if !self.is_noted {
            self.is_noted = true;
            self.limits.note_delayed();
        }
        self.timer.set(tokio::time::Instant::now(), wait);
        Verdict::Wait
    }
}
