//! Whether work on messages has to wait for its turn before it begins. Each piece of it is short,
//! but when many messages are ready at once, each with a piece of some milliseconds, another client
//! would wait for all of them. So those that follow a long piece yield first
//! ([`super::yield_now`]): one has its turn between any two looks at the sockets.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// From this on a piece of work is long.
const LONG: Duration = Duration::from_millis(1);
/// For so long after a long piece others may have waited behind it.
const AFTER: Duration = Duration::from_millis(50);

thread_local! {
    static LAST_LONG: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Notes how long a piece of work has taken on this worker.
pub fn note_piece(began: Instant) {
    let now = Instant::now();
    if now.saturating_duration_since(began) >= LONG {
        LAST_LONG.set(Some(now));
    }
}

/// Notes that a piece of work has been done on this worker that is long by its size.
#[cold]
pub fn note_long_piece() {
    LAST_LONG.set(Some(Instant::now()));
}

/// Whether work that may take long has to yield before it begins.
#[inline]
pub fn takes_turns() -> bool {
    LAST_LONG.get().is_some_and(is_recent)
}

#[cold]
fn is_recent(at: Instant) -> bool {
    let is_recent = at.elapsed() < AFTER;
    if !is_recent {
        LAST_LONG.set(None);
    }
    is_recent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_long_piece_takes_turns_for_a_while() {
        let now = Instant::now();
        note_piece(now);
        assert!(!takes_turns(), "it was short");
        note_piece(now.checked_sub(LONG).unwrap());
        assert!(takes_turns());
        LAST_LONG.set(now.checked_sub(AFTER));
        assert!(!takes_turns());
        assert_eq!(LAST_LONG.get(), None, "the clock is not looked at again");
    }
}
