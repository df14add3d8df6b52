//! What is logged of a disk that takes nothing: that this begins and that it is over, not each
//! refusal. There are thousands a second, and the log may be on that disk.

use std::time::{Duration, Instant};

/// How long nothing is refused until the disk is said to be well again: one that is nearly full
/// takes and refuses in turn.
const CALM: Duration = Duration::from_secs(10);

/// Whether a disk refuses what is written.
#[derive(Debug, Default)]
pub(crate) struct Failing(Option<Since>);

#[derive(Debug)]
struct Since {
    /// When it has refused something last.
    last: Instant,
    /// How often, beside the first time.
    more: u64,
}

impl Failing {
    /// Notes a refusal; whether it is logged, as the first one.
    pub fn refused(&mut self, now: Instant) -> bool {
        match &mut self.0 {
            Some(since) => {
                (since.last, since.more) = (now, since.more + 1);
                false
            }
            None => {
                let (last, more) = (now, 0);
                self.0 = Some(Since { last, more });
                true
            }
        }
    }

    /// Notes that something has been written. When that says that the disk is well again, gives how
    /// many refusals were not logged.
    pub fn accepted(&mut self, now: Instant) -> Option<u64> {
        let is_over = |it: &mut Since| now.saturating_duration_since(it.last) >= CALM;
        self.0.take_if(is_over).map(|it| it.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_and_the_end_are_logged() {
        let (mut failing, mut now) = (Failing::default(), Instant::now());
        assert_eq!(failing.accepted(now), None);
        assert!(failing.refused(now));
        for _ in 0..1000 {
            now += CALM / 2;
            assert!(!failing.refused(now));
            assert_eq!(failing.accepted(now), None, "it is nearly full");
        }
        now += CALM;
        assert_eq!(failing.accepted(now), Some(1000));
        assert_eq!(failing.accepted(now), None);
        assert!(failing.refused(now), "again");
    }
}
