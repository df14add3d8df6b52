//! One window of a limit: the generic cell rate algorithm (ITU-T I.371, annex A) in integers.
//!
//! The state of a bucket is one number, the theoretical arrival time: when the bucket would be full
//! again if nothing more came. Times are ticks of 1/64 ns since the limit was made: rates up to a
//! thousand million a second are exact to 1 %, and a `u64` lasts nine years.

use std::time::Duration;

/// Ticks in a nanosecond.
const PER_NS: u64 = 64;

/// The shortest distance of two units in ticks: below it rounding would exceed 1 %.
const INTERVAL_MIN: u64 = 50;

/// The settings of a window, as they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowSettings {
    /// How many units a period.
    pub count: u64,
    /// The period.
    pub per: Duration,
    /// How many units may come at once.
    pub burst: u64,
}

/// A time as ticks. What does not fit is the greatest.
pub(crate) fn ticks(time: Duration) -> u64 {
    let nanos = time.as_secs().saturating_mul(1_000_000_000);
    nanos
        .saturating_add(time.subsec_nanos().into())
        .saturating_mul(PER_NS)
}

/// Ticks as a time, rounded up.
pub(crate) fn time(ticks: u64) -> Duration {
    Duration::from_nanos(ticks.div_ceil(PER_NS))
}

/// A window, ready to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub settings: WindowSettings,
    /// Ticks between two units that come evenly.
    interval: u64,
    /// How far ahead of now the theoretical arrival time may lie.
    tolerance: u64,
}

/// What is left of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// Units that could come at once.
    pub units: u64,
    /// How long until the bucket is full again.
    pub full_in: Duration,
}

impl WindowSettings {
    /// Whether so many a period can be counted to 1 %.
    pub fn is_exact(&self) -> bool {
        ticks(self.per) / self.count.max(1) >= INTERVAL_MIN
    }
}

impl Window {
    pub fn new(settings: WindowSettings) -> Self {
        let (per, count) = (ticks(settings.per), settings.count.max(1));
        let interval = per.saturating_add(count / 2) / count;
        let interval = interval.max(1);
        Self {
            settings,
            interval,
            tolerance: interval.saturating_mul(settings.burst.max(1)),
        }
    }

    /// The arrival time after so many units more, and how long they have to wait. More units than a
    /// burst pass when the bucket is full: they wait for their turn then, and what comes next pays.
    #[inline]
    pub fn after(&self, arrival: u64, now: u64, units: u64) -> (u64, u64) {
        let start = arrival.max(now);
        let after = start.saturating_add(self.interval.saturating_mul(units));
        let least = (after - start).max(self.tolerance);
        let wait = (after - now).saturating_sub(least);
        (after, wait)
    }

    /// The arrival time without so many units that have been taken and not used.
    pub fn before(&self, arrival: u64, units: u64) -> u64 {
        arrival.saturating_sub(self.interval.saturating_mul(units))
    }

    pub fn left(&self, arrival: u64, now: u64) -> Left {
        let debt = arrival.saturating_sub(now);
        Left {
            units: self.tolerance.saturating_sub(debt) / self.interval,
            full_in: time(debt),
        }
    }

    /// The latest arrival time that a bucket can have: for what comes from the disk.
    pub fn latest(&self, now: u64) -> u64 {
        now.saturating_add(self.tolerance)
    }

    /// How many units come within a wait.
    pub fn queue_place(&self, wait: u64) -> u64 {
        wait.div_ceil(self.interval)
    }

    /// The ticks that so many units take.
    pub fn span(&self, units: u64) -> u64 {
        self.interval.saturating_mul(units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(count: u64, per: Duration, burst: u64) -> Window {
        Window::new(WindowSettings { count, per, burst })
    }

    fn taken(window: &Window, arrival: &mut u64, now: u64) -> bool {
        let (after, wait) = window.after(*arrival, now, 1);
        if wait == 0 {
            *arrival = after;
        }
        wait == 0
    }

    #[test]
    fn a_burst_passes_at_once_and_the_rest_evenly() {
        let window = window(10, Duration::from_secs(1), 3);
        let (mut arrival, now) = (0, ticks(Duration::from_secs(5)));
        for _ in 0..3 {
            assert!(taken(&window, &mut arrival, now));
        }
        assert_eq!(time(window.after(arrival, now, 1).1).as_millis(), 100);
        let left = window.left(arrival, now);
        assert_eq!((left.units, left.full_in.as_millis()), (0, 300));
        let later = now + ticks(Duration::from_millis(100));
        assert!(taken(&window, &mut arrival, later));
        assert!(!taken(&window, &mut arrival, later));
    }

    #[test]
    fn rates_are_exact_to_one_percent_whatever_they_are() {
        let (second, day) = (Duration::from_secs(1), Duration::from_secs(86400));
        let rates = [
            (7, second),
            (9_999_999, second),
            (1 << 30, second),
            (3, day),
        ];
        for (count, per) in rates {
            let window = window(count, per, count);
            assert!(window.settings.is_exact());
            let all = window.span(count) as f64 / ticks(per) as f64;
            assert!((0.99..1.01).contains(&all), "{count} per {per:?}: {all}");
        }
        let too_many = WindowSettings {
            count: 10 << 30,
            per: second,
            burst: 1,
        };
        assert!(!too_many.is_exact());
    }

    #[test]
    fn more_units_than_a_burst_pass_a_full_bucket_and_are_paid_for() {
        let window = window(100, Duration::from_secs(1), 100);
        let now = ticks(Duration::from_secs(9));
        let (after, wait) = window.after(0, now, 250);
        assert_eq!(wait, 0);
        assert_eq!(time(window.after(after, now, 1).1).as_millis(), 1510);
    }
}
