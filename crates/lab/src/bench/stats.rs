//! What is counted in a window, and the figures made of it.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The percentiles that are kept of a window.
pub(crate) const PERCENTILES: [f64; 7] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99];
/// Longer latencies count as this: ten minutes.
const LATENCY_MAX: u64 = 600_000_000_000;
/// The letters that are kept of the first error: some replies hold the whole state of a program.
const DETAIL_MAX: usize = 600;

/// What went wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Failure {
    /// Another status than that of a good reply.
    Status,
    /// A body that is not the expected one.
    Body,
    /// The connection ended or could not be read.
    Connection,
    /// A user got no reply in the whole window.
    NoReply,
}

impl Failure {
    fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Body => "body",
            Self::Connection => "connection",
            Self::NoReply => "no reply",
        }
    }
}

/// Counts and latencies of one window, in nanoseconds.
#[derive(Clone)]
pub(crate) struct Stats {
    latency: Histogram<u64>,
    /// How often something went wrong, by what; in the warm-up too.
    pub errors: BTreeMap<String, u64>,
    /// What the first error was.
    pub first_error: Option<String>,
    /// Requests that were due and not sent when the window ended.
    pub unsent: u64,
}

impl Stats {
    pub fn new() -> anyhow::Result<Self> {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX, 3)
            .map_err(|error| anyhow::anyhow!("histogram: {error}"))?;
        Ok(Self {
            latency,
            errors: BTreeMap::new(),
            first_error: None,
            unsent: 0,
        })
    }

    pub fn reply(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(LATENCY_MAX);
        self.latency.saturating_record(nanoseconds.max(1));
    }

    pub fn error(&mut self, failure: Failure, detail: impl FnOnce() -> String) {
        *self.errors.entry(failure.name().to_owned()).or_default() += 1;
        self.first_error
            .get_or_insert_with(|| detail().chars().take(DETAIL_MAX).collect());
    }

    /// Adds what another thread counted.
    pub fn add(&mut self, other: Self) {
        // Both have the same bounds, so that this cannot fail.
        let _ = self.latency.add(&other.latency);
        for (name, count) in other.errors {
            *self.errors.entry(name).or_default() += count;
        }
        self.unsent += other.unsent;
        if self.first_error.is_none() {
            self.first_error = other.first_error;
        }
    }

    /// How many good replies came.
    pub fn replies(&self) -> u64 {
        self.latency.len()
    }

    /// The latencies of the window.
    pub fn latency(&self) -> Latency {
        let milliseconds = |nanoseconds: f64| nanoseconds / 1e6;
        let percentile = |at: &f64| self.latency.value_at_quantile(at / 100.0) as f64;
        let percentiles = PERCENTILES.iter().map(percentile).map(milliseconds);
        Latency {
            mean: milliseconds(self.latency.mean()),
            stddev: milliseconds(self.latency.stdev()),
            percentiles: percentiles.collect(),
            max: milliseconds(self.latency.max() as f64),
        }
    }
}

/// Latencies in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub mean: f64,
    pub stddev: f64,
    /// At [`PERCENTILES`].
    pub percentiles: Vec<f64>,
    pub max: f64,
}

impl Latency {
    /// One of [`PERCENTILES`].
    pub fn at(&self, percentile: f64) -> f64 {
        let index = PERCENTILES.iter().position(|at| *at == percentile);
        let value = index.and_then(|index| self.percentiles.get(index));
        value.copied().unwrap_or(0.0)
    }

    /// The medians of each figure over rounds.
    pub fn median(rounds: &[&Self]) -> Self {
        let of = |figure: &dyn Fn(&Self) -> f64| median(rounds.iter().map(|it| figure(it)));
        let percentiles = PERCENTILES.iter().map(|at| of(&|it: &Self| it.at(*at)));
        Self {
            mean: of(&|it| it.mean),
            stddev: of(&|it| it.stddev),
            percentiles: percentiles.collect(),
            max: of(&|it| it.max),
        }
    }
}

/// The middle value, or the mean of the two in the middle; 0 of none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    match values.len() % 2 {
        0 => (at(half.saturating_sub(1)) + at(half)) / 2.0,
        _ => at(half),
    }
}

/// The interval that holds the median of what the values are samples of, with a probability of at
/// least 95 %: between two of the values, by the sign test. None of fewer than six.
pub(crate) fn median_interval(mut values: Vec<f64>) -> Option<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    // The probability that at most `below` of the values lie on one side of the median.
    let (mut below, mut probability) = (0, 0.5_f64.powi(i32::try_from(count).ok()?));
    let mut total = probability;
    while total <= 0.025 {
        probability *= (count - below) as f64 / (below + 1) as f64;
        total += probability;
        below += 1;
    }
    let first = below.checked_sub(1)?;
    Some((*values.get(first)?, *values.get(count - 1 - first)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median([].into_iter()), 0.0);
        assert_eq!(median([3.0].into_iter()), 3.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert_eq!(median([9.0, 1.0, 2.0].into_iter()), 2.0);
    }

    #[test]
    fn a_median_lies_between_the_values_that_the_sign_test_names() {
        let to = |count: u32| (1..=count).map(f64::from).collect();
        assert_eq!(median_interval(to(5)), None);
        assert_eq!(median_interval(to(6)), Some((1.0, 6.0)));
        // As tables of the test have it.
        assert_eq!(median_interval(to(20)), Some((6.0, 15.0)));
        assert_eq!(median_interval(to(30)), Some((10.0, 21.0)));
    }

    #[test]
    fn percentiles_are_those_of_the_recorded_latencies() {
        let mut stats = Stats::new().unwrap();
        for milliseconds in 1..=1000 {
            stats.reply(Duration::from_millis(milliseconds));
        }
        let latency = stats.latency();
        let near = |value: f64, wanted: f64| (value - wanted).abs() <= wanted * 0.002;
        assert_eq!(stats.replies(), 1000);
        assert!(
            near(latency.mean, 500.5) && near(latency.stddev, 288.7),
            "{latency:?}"
        );
        for (percentile, wanted) in [(50.0, 500.0), (90.0, 900.0), (99.0, 990.0), (99.9, 999.0)] {
            assert!(
                near(latency.at(percentile), wanted),
                "{percentile}: {latency:?}"
            );
        }
        assert!(near(latency.max, 1000.0));
    }

    #[test]
    fn windows_of_threads_are_added() {
        let mut one = Stats::new().unwrap();
        let mut two = one.clone();
        one.reply(Duration::from_millis(1));
        two.reply(Duration::from_millis(3));
        two.error(Failure::Body, || "first".to_owned());
        two.error(Failure::Body, || "second".to_owned());
        one.add(two);
        assert_eq!(one.replies(), 2);
        assert_eq!(one.errors["body"], 2);
        assert_eq!(one.first_error.as_deref(), Some("first"));
    }

    #[test]
    fn medians_of_rounds_are_taken_figure_by_figure() {
        let round = |mean: f64, p50: f64| Latency {
            mean,
            percentiles: [p50; PERCENTILES.len()].into(),
            ..Latency::default()
        };
        let rounds = [round(1.0, 9.0), round(2.0, 8.0), round(3.0, 7.0)];
        let median = Latency::median(&rounds.iter().collect::<Vec<_>>());
        assert_eq!(
            (median.mean, median.at(50.0), median.at(42.0)),
            (2.0, 8.0, 0.0)
        );
    }
}
