//! One row of the table: what was done and what was seen, and whether that is good.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::load::{Event, Record};
use super::tally::Comparison;

/// How much of the rate before a fault counts as the old one.
const OLD_RATE: f64 = 0.5;
/// The window in which a rate is counted, and by how much it is moved.
const WINDOW: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(50);

/// One row.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Row {
    pub name: String,
    /// The way of the messages.
    pub path: String,
    /// What was done.
    pub fault: String,
    pub sent: u64,
    /// Requests with a 2xx reply, or messages that were in the queue at the beginning.
    pub acknowledged: u64,
    /// Other ends, by status or by what came instead of a reply.
    pub refused: BTreeMap<String, u64>,
    /// What became of the messages, where they go anywhere.
    pub comparison: Option<Comparison>,
    /// One for each time that the fault was there.
    pub recoveries: Vec<Recovery>,
    /// The longest wait of a client, in milliseconds.
    pub longest_ms: f64,
    /// The most messages that a service had at once, where that is bounded.
    pub most_in_flight: Option<u64>,
    /// The most memory of the engine, in bytes.
    pub memory_peak: u64,
    /// How often something secret was shown, in the log, the metrics and replies.
    pub secrets_shown: u64,
    /// Bodies of failures, some of each kind.
    pub samples: BTreeMap<String, Vec<String>>,
    pub checks: Vec<Check>,
    /// Why the row could not be done.
    pub error: Option<String>,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// Something that must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Check {
    pub what: String,
    pub is_good: bool,
    /// What was seen.
    pub seen: String,
}

/// How long it took until things went well again, from the end of the fault, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Recovery {
    /// How long the fault lasted.
    pub fault_ms: f64,
    /// The first success.
    pub first_ms: Option<f64>,
    /// The beginning of the first second without a failure and with half of the old rate.
    pub steady_ms: Option<f64>,
}

/// When a fault was there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Since when things went well before it.
    pub since: Instant,
    pub begin: Instant,
    pub end: Instant,
}

impl Row {
    /// Notes something that must hold.
    pub fn check(&mut self, what: impl Into<String>, is_good: bool, seen: impl Into<String>) {
        self.checks.push(Check {
            what: what.into(),
            is_good,
            seen: seen.into(),
        });
    }

    /// Adds what users saw.
    pub fn add(&mut self, record: &Record) {
        self.sent += record.sent;
        self.acknowledged += record.acknowledged.len() as u64;
        for (kind, count) in &record.refused {
            *self.refused.entry(kind.clone()).or_default() += count;
        }
        self.longest_ms = self.longest_ms.max(milliseconds(record.longest()));
        self.secrets_shown += record.leaks;
        for (kind, texts) in &record.samples {
            let samples = self.samples.entry(kind.clone()).or_default();
            samples.extend(texts.iter().cloned());
        }
        if record.count("503") > 0 {
            let without = record.without_retry_after;
            let seen = format!("{without} of {} without", record.count("503"));
            self.check("every 503 has Retry-After", without == 0, seen);
        }
    }

    /// What does not hold, in words.
    pub fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.error.iter().cloned().collect();
        if let Some(it) = self.comparison.as_ref().filter(|it| it.lost > 0) {
            problems.push(format!("{} lost, such as {:?}", it.lost, it.first_lost));
        }
        if self.secrets_shown > 0 {
            problems.push(format!("a secret is shown {} times", self.secrets_shown));
        }
        if self.recoveries.iter().any(|it| it.steady_ms.is_none()) {
            problems.push("not steady again".to_owned());
        }
        let failed = self.checks.iter().filter(|check| !check.is_good);
        problems.extend(failed.map(|check| format!("not: {} ({})", check.what, check.seen)));
        problems
    }

    pub fn is_good(&self) -> bool {
        self.problems().is_empty()
    }

    /// The number of replies of a class such as 5xx, without those of one status.
    pub fn refusals(&self) -> String {
        let texts = self.refused.iter();
        let texts: Vec<String> = texts
            .map(|(kind, count)| format!("{kind}: {count}"))
            .collect();
        match texts.is_empty() {
            true => "none".to_owned(),
            false => texts.join(", "),
        }
    }
}

impl Recovery {
    /// Reads it from what happened until `until`.
    pub fn of(span: Span, until: Instant, events: &[Event]) -> Self {
        let after = |event: &&Event| event.at >= span.end && event.at <= until;
        let goods = events.iter().filter(after).filter(|event| event.is_good);
        let first = goods.map(|event| event.at - span.end).min();
        Self {
            fault_ms: milliseconds(span.end - span.begin),
            first_ms: first.map(milliseconds),
            steady_ms: steady(span, until, events).map(milliseconds),
        }
    }
}

fn steady(span: Span, until: Instant, events: &[Event]) -> Option<Duration> {
    let before = span
        .begin
        .saturating_duration_since(span.since)
        .as_secs_f64();
    let goods = events
        .iter()
        .filter(|event| event.is_good && event.at >= span.since && event.at < span.begin);
    let wanted = OLD_RATE * goods.count() as f64 / before.max(0.001) * WINDOW.as_secs_f64();
    let mut late: Vec<&Event> = events.iter().filter(|event| event.at >= span.end).collect();
    late.sort_by_key(|event| event.at);
    let mut begin = span.end;
    while begin + WINDOW <= until {
        let from = late.partition_point(|event| event.at < begin);
        let to = late.partition_point(|event| event.at < begin + WINDOW);
        let window = late.get(from..to).unwrap_or_default();
        let is_good = window.iter().all(|event| event.is_good);
        if let Some(first) = window.first()
            && is_good
            && window.len() as f64 >= wanted
        {
            return Some(first.at - span.end);
        }
        begin += STEP;
    }
    None
}

pub(super) fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event each 10 ms for so many seconds; good ones but in a gap.
    fn events(start: Instant, seconds: u64, gap: std::ops::Range<u64>) -> Vec<Event> {
        let all = (0..seconds * 100).map(|number| Event {
            at: start + Duration::from_millis(number * 10),
            wait: Duration::from_millis(10),
            is_good: !gap.contains(&number),
        });
        all.collect()
    }

    #[test]
    fn recovery_is_told_by_what_happened() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let span = Span {
            since: start,
            begin: start + 3 * second,
            end: start + 4 * second,
        };
        let all = events(start, 8, 300..450);
        let recovery = Recovery::of(span, start + 8 * second, &all);
        assert_eq!(recovery.first_ms, Some(500.0));
        assert_eq!(recovery.steady_ms, Some(500.0));
        assert_eq!(recovery.fault_ms, 1000.0);
        // Nothing good any more.
        let none = Recovery::of(span, start + 8 * second, &events(start, 8, 300..900));
        assert_eq!((none.first_ms, none.steady_ms), (None, None));
        // A tenth of the old rate is not the old one.
        let rare = all.iter().enumerate();
        let is_kept = |index: usize| index < 300 || index.is_multiple_of(10);
        let rare: Vec<Event> = rare
            .filter(|(at, _)| is_kept(*at))
            .map(|it| *it.1)
            .collect();
        assert_eq!(
            Recovery::of(span, start + 8 * second, &rare).steady_ms,
            None
        );
    }

    #[test]
    fn problems_are_told() {
        let mut row = Row::default();
        assert!(row.is_good());
        row.check("it holds", true, "");
        assert!(row.is_good());
        row.check("it holds too", false, "no");
        row.secrets_shown = 1;
        row.recoveries.push(Recovery::default());
        row.comparison = Some(Comparison {
            lost: 1,
            first_lost: vec![7],
            ..Comparison::default()
        });
        let problems = row.problems();
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert_eq!(problems[3], "not: it holds too (no)");
        assert_eq!(row.refusals(), "none");
    }

    #[test]
    fn what_users_saw_is_added() {
        let mut record = Record {
            sent: 5,
            without_retry_after: 1,
            ..Record::default()
        };
        record.refused.insert("503".to_owned(), 2);
        let mut row = Row::default();
        row.add(&record);
        row.add(&record);
        assert_eq!((row.sent, row.refusals().as_str()), (10, "503: 4"));
        assert!(!row.is_good());
    }
}
