//! The results of the suites that send requests and measure replies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::glu::Delivered;
use super::outcome::{self, FOREIGN_MAX, Sample};
use super::scenario::System;
use super::stats::{Latency, median};
use super::tokens::IN_TURN;
use crate::units::Streams;

pub(crate) type Results = outcome::Results<System, Row>;
pub(crate) type Row = outcome::Row<System, Case, Figures>;

/// What is measured: the systems of one case are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Case {
    /// The scenario's short name.
    pub scenario: String,
    pub streams: Streams,
    pub bytes: usize,
    pub delay_ms: f64,
    /// Requests a second; users send at once when there is none.
    pub rate: Option<f64>,
    /// What else it is.
    #[serde(default, skip_serializing_if = "Variant::is_plain")]
    pub variant: Variant,
}

/// What a case has that others have not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Variant {
    #[default]
    Plain,
    /// Messages come from so many queues; the users are messages in flight.
    Queues(usize),
    /// The last leg goes on behind the reply.
    Detached,
    /// So many tokens are presented in turn that have all been presented before.
    Warm,
    /// Each token is presented once.
    Cold,
    /// So many sessions stand open at the end.
    Sessions(usize),
    /// Users think so many milliseconds before each request of a dialogue but the first.
    Think(u64),
}

impl Variant {
    fn is_plain(&self) -> bool {
        *self == Self::Plain
    }
}

impl Case {
    /// The case in words, without the scenario.
    pub fn label(&self) -> String {
        let mut text = match self.streams.each {
            _ if matches!(self.variant, Variant::Queues(_)) => {
                format!("{} in flight", self.streams.users())
            }
            1 if self.streams.connections == 1 => "1 user".to_owned(),
            1 => format!("{} users", self.streams.connections),
            _ => format!("{} users ({})", self.streams.users(), self.streams),
        };
        text.push_str(&format!(", {} B", self.bytes));
        if self.delay_ms > 0.0 {
            text.push_str(&format!(", delay {} ms", self.delay_ms));
        }
        if let Some(rate) = self.rate {
            text.push_str(&format!(", {rate}/s"));
        }
        match self.variant {
            Variant::Plain => {}
            Variant::Queues(1) => text.push_str(", 1 queue"),
            Variant::Queues(count) => text.push_str(&format!(", {count} queues")),
            Variant::Detached => text.push_str(", last leg detached"),
            Variant::Warm => text.push_str(&format!(", {IN_TURN} tokens in turn, all known")),
            Variant::Think(time) => text.push_str(&format!(", {time} ms before each key")),
            Variant::Sessions(count) => text.push_str(&format!(", {count} sessions")),
            Variant::Cold => text.push_str(", a new token for each request"),
        }
        text
    }

    /// Whether the systems' speed decides the throughput.
    pub fn is_saturating(&self) -> bool {
        let waits = matches!(self.variant, Variant::Think(_) | Variant::Sessions(_));
        self.rate.is_none() && self.delay_ms == 0.0 && !waits
    }
}

/// One sample, or medians of some.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Good replies a second.
    pub throughput: f64,
    pub latency: Latency,
    pub errors: u64,
    pub errors_by_kind: BTreeMap<String, u64>,
    pub first_error: Option<String>,
    /// Requests that were due and not sent at the end.
    pub unsent: u64,
    /// Microseconds of a core for each good reply; none without a system.
    pub cpu: Option<f64>,
    /// The part of its core that the system used.
    pub core: Option<f64>,
    /// The part that is busy of the busiest core of generator and stub.
    pub load_core: f64,
    /// The larger part of a core's time that others used.
    pub foreign: f64,
    pub memory_peak: Option<u64>,
    pub memory_settled: Option<u64>,
    /// What became of the messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<Delivered>,
    /// What was in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flight: Option<Flight>,
    /// What stood open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<OpenSessions>,
    /// What it costs, right behind the sample and on the same core, to check the signature of a
    /// token and nothing else, in microseconds; where each request has a new token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_us: Option<f64>,
}

/// Sessions that stand open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct OpenSessions {
    pub count: f64,
    /// Memory for each: the proportional set size with all of them, without that with a hundredth,
    /// divided by the others.
    pub bytes_each: f64,
    /// The same behind the start.
    pub bytes_each_restarted: f64,
    /// From the start of the program, whose predecessor was killed, to the first screen.
    pub start_ms: f64,
}

impl OpenSessions {
    fn median(rounds: &[Self]) -> Self {
        let of = |figure: &dyn Fn(&Self) -> f64| median(rounds.iter().map(figure));
        Self {
            count: of(&|it| it.count),
            bytes_each: of(&|it| it.bytes_each),
            bytes_each_restarted: of(&|it| it.bytes_each_restarted),
            start_ms: of(&|it| it.start_ms),
        }
    }
}

/// Messages that wait for a slow service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Flight {
    /// How many may be in flight.
    pub wanted: f64,
    /// How many were, as the service saw it: the mean over the window.
    pub reached: f64,
    /// The throughput for what is in flight divided by the service's delay.
    pub of_ideal: f64,
    /// Memory for each message in flight, its connection to the service included: the most resident
    /// memory while watched, without that of the same system when a few messages had gone through
    /// and none was under way, divided by `reached`.
    pub bytes_each: f64,
}

impl Flight {
    fn median(rounds: &[Self]) -> Self {
        let of = |figure: &dyn Fn(&Self) -> f64| median(rounds.iter().map(figure));
        Self {
            wanted: of(&|it| it.wanted),
            reached: of(&|it| it.reached),
            of_ideal: of(&|it| it.of_ideal),
            bytes_each: of(&|it| it.bytes_each),
        }
    }
}

impl Figures {
    /// Whether replies were timed: messages in flight and sessions that stand open have no latency.
    pub fn has_latency(&self) -> bool {
        self.flight.is_none() && self.sessions.is_none()
    }
}

impl Sample for Figures {
    fn foreign(&self) -> f64 {
        self.foreign
    }

    fn cpu(&self) -> Option<f64> {
        self.cpu
    }

    fn median(rounds: &[Self]) -> Self {
        let of = |figure: &dyn Fn(&Self) -> f64| median(rounds.iter().map(figure));
        let some = |figure: &dyn Fn(&Self) -> Option<f64>| {
            let values: Vec<f64> = rounds.iter().filter_map(figure).collect();
            (!values.is_empty()).then(|| median(values.into_iter()))
        };
        let bytes = |value: Option<u64>| value.map(|bytes| bytes as f64);
        let flights: Vec<Flight> = rounds.iter().filter_map(|it| it.flight).collect();
        let sessions: Vec<OpenSessions> = rounds.iter().filter_map(|it| it.sessions).collect();
        let mut errors_by_kind = BTreeMap::new();
        for (kind, count) in rounds.iter().flat_map(|round| &round.errors_by_kind) {
            *errors_by_kind.entry(kind.clone()).or_default() += count;
        }
        Self {
            throughput: of(&|it| it.throughput),
            latency: Latency::median(&rounds.iter().map(|it| &it.latency).collect::<Vec<_>>()),
            errors: rounds.iter().map(|round| round.errors).sum(),
            errors_by_kind,
            first_error: rounds.iter().find_map(|round| round.first_error.clone()),
            unsent: of(&|it| it.unsent as f64) as u64,
            cpu: some(&|it| it.cpu),
            core: some(&|it| it.core),
            load_core: of(&|it| it.load_core),
            foreign: rounds.iter().map(|round| round.foreign).fold(0.0, f64::max),
            memory_peak: some(&|it| bytes(it.memory_peak)).map(|bytes| bytes as u64),
            memory_settled: some(&|it| bytes(it.memory_settled)).map(|bytes| bytes as u64),
            delivered: rounds
                .iter()
                .filter_map(|it| it.delivered)
                .reduce(Delivered::and),
            flight: (!flights.is_empty()).then(|| Flight::median(&flights)),
            sessions: (!sessions.is_empty()).then(|| OpenSessions::median(&sessions)),
            check_us: some(&|it| it.check_us),
        }
    }
}

/// Below this part of what the load side reaches alone it is not certain what the limit is.
const CLEARLY_MORE: f64 = 1.15;
const BUSY: f64 = 0.95;
/// The part of the wanted rate that must be reached.
const RATE_KEPT: f64 = 0.98;

/// Says of each row of one case what a reader should doubt.
pub(crate) fn warn(rows: &mut [Row]) {
    let direct = rows.iter().find(|row| row.system == System::Direct);
    let direct = direct.map(|row| row.median.throughput);
    for row in rows {
        let mut warnings = Vec::new();
        let figures = &row.median;
        let is_load_limit = row.case.is_saturating() && row.system != System::Direct;
        if let Some(direct) = direct.filter(|_| is_load_limit)
            && direct < CLEARLY_MORE * figures.throughput
        {
            warnings.push(format!(
                "stub and generator alone reach only {:.2} times this throughput: \
                 compare CPU per request",
                direct / figures.throughput.max(1.0)
            ));
        }
        if let Some(core) = figures.core.filter(|core| is_load_limit && *core < BUSY)
            && figures.load_core >= BUSY
        {
            warnings.push(format!(
                "stub or generator is the limit: the system used {:.0} % of its core",
                core * 100.0
            ));
        }
        if row
            .case
            .rate
            .is_some_and(|rate| figures.throughput < rate * RATE_KEPT)
        {
            warnings.push(format!(
                "the rate was not reached; {} unsent",
                figures.unsent
            ));
        }
        if figures.foreign > FOREIGN_MAX {
            warnings.push(format!(
                "others used {:.0} % of a core",
                figures.foreign * 100.0
            ));
        }
        if figures.errors > 0 {
            let first = figures.first_error.as_deref().unwrap_or_default();
            warnings.push(format!("{} errors, the first: {first}", figures.errors));
        }
        row.warnings = warnings;
    }
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests {
    use super::testing::row;
    use super::*;

    #[test]
    fn ratios_are_those_of_neighbours() {
        let one = row(System::Intertie, &[8.0, 20.0, 9.0]);
        let other = row(System::HaProxy, &[10.0, 40.0, 10.0]);
        assert_eq!(one.cpu_for(&other).unwrap().to_string(), "0.80");
        assert_eq!(one.cpu_for(&row(System::Direct, &[])), None);
    }

    #[test]
    fn a_slow_load_side_is_told() {
        let mut rows = [row(System::Intertie, &[10.0]), row(System::Direct, &[])];
        rows[0].median.throughput = 100.0;
        rows[1].median.throughput = 105.0;
        warn(&mut rows);
        assert!(rows[0].warnings[0].contains("1.05 times"), "{rows:?}");
        assert!(rows[1].warnings.is_empty());
        rows[1].median.throughput = 200.0;
        warn(&mut rows);
        assert!(rows[0].warnings.is_empty());
        rows[0].median.core = Some(0.7);
        rows[0].median.load_core = 0.99;
        rows[0].median.errors = 3;
        rows[0].median.foreign = 0.2;
        warn(&mut rows);
        assert_eq!(rows[0].warnings.len(), 3, "{rows:?}");
    }

    #[test]
    fn medians_keep_all_errors() {
        let errors = |count: u64| Figures {
            errors: count,
            errors_by_kind: [("body".to_owned(), count)].into(),
            cpu: (count > 1).then_some(4.0),
            ..Figures::default()
        };
        let median = Figures::median(&[errors(1), errors(2), errors(3)]);
        assert_eq!((median.errors, median.errors_by_kind["body"]), (6, 6));
        assert_eq!((median.cpu, median.core), (Some(4.0), None));
    }

    #[test]
    fn cases_are_told_in_words() {
        let mut case = row(System::Floor, &[]).case;
        assert_eq!(case.label(), "100 users, 50 B");
        case.streams = Streams::single(1);
        assert_eq!(case.label(), "1 user, 50 B");
        case.streams = "10x30".parse().unwrap();
        (case.delay_ms, case.rate) = (30.0, Some(500.0));
        assert_eq!(case.label(), "300 users (10x30), 50 B, delay 30 ms, 500/s");
        assert!(!case.is_saturating());
        (case.rate, case.variant) = (None, Variant::Queues(3));
        assert_eq!(case.label(), "300 in flight, 50 B, delay 30 ms, 3 queues");
        let text = serde_json::to_string(&case).unwrap();
        assert!(text.contains(r#""variant":{"queues":3}"#), "{text}");
        assert_eq!(serde_json::from_str::<Case>(&text).unwrap(), case);
    }
}
