//! Latencies by their number: buckets whose width is at most a sixteenth of their value.

use std::time::Duration;

/// Buckets of each power of two.
const STEPS: u64 = 16;

#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    max: Duration,
}

/// The bucket of so many microseconds.
fn bucket(micros: u64) -> usize {
    let power = micros.max(STEPS).ilog2() - STEPS.ilog2();
    (u64::from(power) * STEPS + (micros >> power)) as usize
}

/// The highest number of microseconds that a bucket holds.
fn end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let power = (bucket / STEPS).saturating_sub(1);
    ((bucket - power * STEPS + 1) << power) - 1
}

impl Histogram {
    pub fn record(&mut self, latency: Duration) {
        let at = bucket(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
        self.count += 1;
        self.max = self.max.max(latency);
    }

    pub fn add(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn max(&self) -> Duration {
        self.max
    }

    /// The latency that so many of a hundred do not exceed.
    pub fn percentile(&self, percent: u64) -> Duration {
        let wanted = (self.count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_micros(end(at)).min(self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_lies_in_its_bucket() {
        for micros in (0..5000).chain([65_535, 65_536, 1_000_000, 60_000_000]) {
            let at = bucket(micros);
            assert!(end(at) >= micros, "{micros}");
            assert!(end(at) <= micros + micros / STEPS, "{micros}");
            assert!(at == 0 || end(at - 1) < micros, "{micros}");
        }
    }

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(99), Duration::ZERO);
        for _ in 0..99 {
            histogram.record(Duration::from_millis(1));
        }
        histogram.record(Duration::from_secs(2));
        assert!(histogram.percentile(99) < Duration::from_micros(1064));
        assert_eq!(histogram.percentile(100), Duration::from_secs(2));
        let mut sum = Histogram::default();
        sum.add(&histogram);
        sum.record(Duration::from_secs(3));
        assert_eq!((sum.count(), sum.max()), (101, Duration::from_secs(3)));
        let p99 = sum.percentile(99).as_secs_f64();
        assert!((2.0..2.2).contains(&p99), "{p99}");
    }
}
