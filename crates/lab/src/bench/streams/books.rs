//! What is written down while a window is open: latencies from the instant that was fixed, the time
//! until the last subscriber has an event, and how publishers were answered.

use std::time::Duration;

use super::reader::Arrivals;
use crate::bench::publisher::Answers;
use crate::bench::stats::Stats;
use crate::stamp;

/// How much of a bad answer is kept.
const SHOWN: usize = 400;

/// The instants of a measurement, in microseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    pub open: u64,
    pub close: u64,
}

impl Window {
    fn has(&self, at: u64) -> bool {
        (self.open..self.close).contains(&at)
    }
}

/// Everything that is timed.
pub(super) struct Books {
    pub window: Window,
    /// From the instant for which an event was scheduled to when a subscriber has it.
    pub latency: Stats,
    /// The same for the last subscriber of each event.
    pub burst: Stats,
    /// The same for the answer to its publisher.
    pub publish: Stats,
    /// How late the calls of a poller come, by the period counted from its first.
    pub late: Stats,
    /// The distance between events of a topic.
    period: u64,
    /// The instant of the first event of each topic.
    first: Vec<Option<u64>>,
    now: u64,
    pub refused: u64,
    pub first_refusal: Option<String>,
}

impl Books {
    /// Empty books for so many topics with events at this distance, in microseconds.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn new(topics: usize, period: u64) -> anyhow::Result<Self> {
        Ok(Self {
            window: Window::default(),
            latency: Stats::new()?,
            burst: Stats::new()?,
            publish: Stats::new()?,
            late: Stats::new()?,
            period,
            first: vec![None; topics],
            now: 0,
            refused: 0,
            first_refusal: None,
        })
    }

    /// The time from an instant until now; nothing when the instant is still to come.
    fn since(&self, at: u64) -> Duration {
        Duration::from_micros(self.now.saturating_sub(at))
    }

    /// How far an event is behind its topic's schedule, which its first event began.
    fn lateness(&mut self, topic: usize, at: u64) -> Option<Duration> {
        let first = *self.first.get_mut(topic)?.get_or_insert(at);
        let elapsed = at.checked_sub(first)?;
        let ticks = (elapsed + self.period / 2).checked_div(self.period)?;
        Some(Duration::from_micros(
            elapsed.saturating_sub(ticks * self.period),
        ))
    }
}

impl Arrivals for Books {
    fn received(&mut self) {
        self.now = stamp::now();
    }

    fn arrived(&mut self, topic: usize, at: u64, is_last: bool) {
        if !self.window.has(at) {
            return;
        }
        self.latency.reply(self.since(at));
        if is_last {
            self.burst.reply(self.since(at));
            if let Some(late) = self.lateness(topic, at) {
                self.late.reply(late);
            }
        }
    }
}

impl Answers for Books {
    fn answered(&mut self, at: u64, status: u16, reply: &[u8]) {
        self.now = stamp::now();
        if !(200..300).contains(&status) {
            self.refused += 1;
            self.first_refusal.get_or_insert_with(|| {
                let start = reply.get(..reply.len().min(SHOWN)).unwrap_or_default();
                String::from_utf8_lossy(start).into_owned()
            });
        } else if self.window.has(at) {
            self.publish.reply(self.since(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_scheduled_in_the_window_counts() {
        let mut books = Books::new(1, 0).unwrap();
        books.window = Window {
            open: 100,
            close: 200,
        };
        books.now = 350;
        for at in [99, 100, 199, 200] {
            books.arrived(0, at, at == 199);
        }
        assert_eq!((books.latency.replies(), books.burst.replies()), (2, 1));
        assert!((books.burst.latency().max - 0.151).abs() < 0.001);
        books.answered(150, 202, b"");
        books.answered(150, 503, b"busy");
        assert_eq!((books.publish.replies(), books.refused), (1, 1));
        assert_eq!(books.first_refusal.as_deref(), Some("busy"));
    }

    #[test]
    fn calls_are_late_by_their_own_schedule() {
        let mut books = Books::new(2, 1000).unwrap();
        let late = |books: &mut Books, topic: usize, at: u64| {
            books.lateness(topic, at).unwrap().as_micros()
        };
        assert_eq!(late(&mut books, 0, 5000), 0);
        assert_eq!(late(&mut books, 0, 6003), 3);
        assert_eq!(late(&mut books, 0, 9400), 400);
        // Early, counted from a first call that was late.
        assert_eq!(late(&mut books, 0, 6990), 0);
        assert_eq!(late(&mut books, 1, 5100), 0);
        assert_eq!(books.lateness(2, 1), None);
    }
}
