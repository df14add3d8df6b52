//! The end of work whose result nobody waits for any more: conversions, readers and writers of
//! large bodies look at the flag of [`crate::jq::stoppable`] now and then.

use crate::jq::is_stopped;

/// Bytes that are read or written between two looks at the flag: a few hundred microseconds.
pub(crate) const STEP: usize = 64 * 1024;

/// Looks at the flag once in every 64 KiB. In between, a look is one comparison.
#[derive(Debug)]
pub(crate) struct StopCheck {
    next: usize,
}

impl StopCheck {
    /// One for work that has got to `at` bytes.
    pub fn new(at: usize) -> Self {
        Self {
            next: at.saturating_add(STEP),
        }
    }

    /// Whether work that has got to `at` bytes is to end, because nobody waits for it any more.
    #[inline]
    pub fn is_stopped(&mut self, at: usize) -> bool {
        at >= self.next && self.look(at)
    }

    #[cold]
    fn look(&mut self, at: usize) -> bool {
        self.next = at.saturating_add(STEP);
        is_stopped()
    }
}

/// What fails because nobody waits for it any more.
pub(crate) const STOPPED: &str = "nobody waits for the result any more";
