//! The results of the suite of streams.

use serde::{Deserialize, Serialize};

use super::case::{Case, Feed};
use super::system::System;
use super::turnover::Ends;
use crate::bench::clock::Used;
use crate::bench::outcome::{self, FOREIGN_MAX, Sample};
use crate::bench::stats::{Latency, median};

/// The name of the suite.
pub(crate) const SUITE: &str = "streams";

pub(crate) type Results = outcome::Results<System, Row>;
pub(crate) type Row = outcome::Row<System, Case, Figures>;

/// One sample, or medians of some; counts are added up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Deliveries, or answers, a second in the window.
    pub throughput: f64,
    /// Events published, or messages sent, a second in the window.
    pub published: f64,
    /// From the instant for which an event was scheduled to when a subscriber has all of it.
    pub latency: Latency,
    /// The same for the last subscriber of each event.
    pub burst: Latency,
    /// The same for the answer to the publisher.
    pub publish: Latency,
    /// How late a poller's calls came.
    pub late: Latency,
    /// All that came, before and after the window, too.
    pub delivered: u64,
    /// Events that were left out: later ones came.
    pub lost: u64,
    /// Events and answers that had not come ten seconds after the window.
    #[serde(default)]
    pub behind: u64,
    pub duplicates: u64,
    pub disordered: u64,
    /// Events and answers that were not what they must be.
    pub corrupt: u64,
    /// Places where the system said that something is missing.
    pub gaps: u64,
    /// Events that such places stand for.
    pub skipped: u64,
    /// Connections that were not made.
    pub failed: u64,
    /// Connections that the system ended.
    pub cut: u64,
    /// Publications that were refused or not answered.
    pub refused: u64,
    pub first_error: Option<String>,
    /// Microseconds of a core for each delivery.
    pub cpu: Option<f64>,
    /// The part of its core that the system used.
    pub core: Option<f64>,
    /// The part that is busy of the busiest core of load and stubs.
    pub load_core: f64,
    /// Microseconds of the load generator for each delivery.
    pub load_cost: Option<f64>,
    /// The larger part of a core's time that others used.
    pub foreign: f64,
    /// Millions of bytes that subscribers read in a second.
    pub megabytes: f64,
    /// Resident bytes: with all connections and no load, at most, and after the load.
    pub memory_before: Option<u64>,
    pub memory_peak: Option<u64>,
    pub memory_settled: Option<u64>,
    /// Seconds from the first connection to when the last client was let in.
    #[serde(default)]
    pub connected: Option<f64>,
    /// How streams ended whose credentials did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turnover: Option<Ends>,
    /// Memory of connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    /// How many of those that did not read were cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_cut: Option<u64>,
}

/// What idle connections take, in bytes for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Idle {
    /// Of the system's processes: what came to their proportional set size (PSS).
    pub process: f64,
    /// The same by resident set size.
    pub resident: f64,
    /// Of the kernel, for both ends of a connection, that of the load included: what came to its
    /// unreclaimable slabs and to the pages of sockets' buffers.
    pub kernel: f64,
    /// The part of a core that the system used with all of them and nothing else.
    pub core: f64,
}

impl Figures {
    /// How many things went wrong.
    pub fn faults(&self) -> u64 {
        let lost = self.lost + self.behind + self.duplicates + self.disordered + self.corrupt;
        let ends = self.turnover.as_ref().map_or(0, Ends::faults);
        lost + self.gaps + self.failed + self.cut + self.refused + ends
    }

    /// How many went wrong of all that should have come, in percent.
    pub fn error_percent(&self) -> f64 {
        let wrong = self.lost + self.behind + self.corrupt;
        100.0 * wrong as f64 / (self.delivered + wrong).max(1) as f64
    }

    /// Enters what was used in the window, for so many deliveries.
    pub fn enter(&mut self, used: &Used, delivered: u64, has_system: bool) {
        let count = delivered as f64;
        let each = |seconds: f64| (delivered > 0).then(|| seconds * 1e6 / count);
        self.throughput = count / used.seconds;
        self.cpu = each(used.system).filter(|_| has_system);
        self.core = has_system.then_some(used.system / used.seconds);
        self.load_core = used.load_core;
        self.load_cost = each(used.load);
        self.foreign = used.foreign;
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
        let bytes = |figure: &dyn Fn(&Self) -> Option<u64>| {
            some(&|it| figure(it).map(|bytes| bytes as f64)).map(|bytes| bytes as u64)
        };
        let sum = |figure: &dyn Fn(&Self) -> u64| rounds.iter().map(figure).sum::<u64>();
        let latency = |figure: &dyn Fn(&Self) -> &Latency| {
            Latency::median(&rounds.iter().map(figure).collect::<Vec<_>>())
        };
        let ends: Vec<&Ends> = rounds
            .iter()
            .filter_map(|it| it.turnover.as_ref())
            .collect();
        let idle: Vec<Idle> = rounds.iter().filter_map(|it| it.idle).collect();
        Self {
            throughput: of(&|it| it.throughput),
            published: of(&|it| it.published),
            latency: latency(&|it| &it.latency),
            burst: latency(&|it| &it.burst),
            publish: latency(&|it| &it.publish),
            late: latency(&|it| &it.late),
            delivered: sum(&|it| it.delivered),
            lost: sum(&|it| it.lost),
            behind: sum(&|it| it.behind),
            duplicates: sum(&|it| it.duplicates),
            disordered: sum(&|it| it.disordered),
            corrupt: sum(&|it| it.corrupt),
            gaps: sum(&|it| it.gaps),
            skipped: sum(&|it| it.skipped),
            failed: sum(&|it| it.failed),
            cut: sum(&|it| it.cut),
            refused: sum(&|it| it.refused),
            first_error: rounds.iter().find_map(|it| it.first_error.clone()),
            cpu: some(&|it| it.cpu),
            core: some(&|it| it.core),
            load_core: of(&|it| it.load_core),
            load_cost: some(&|it| it.load_cost),
            foreign: rounds.iter().map(|it| it.foreign).fold(0.0, f64::max),
            megabytes: of(&|it| it.megabytes),
            memory_before: bytes(&|it| it.memory_before),
            memory_peak: bytes(&|it| it.memory_peak),
            memory_settled: bytes(&|it| it.memory_settled),
            connected: some(&|it| it.connected),
            turnover: (!ends.is_empty()).then(|| Ends::median(&ends)),
            idle: (!idle.is_empty()).then(|| Idle::median(&idle)),
            stalled_cut: bytes(&|it| it.stalled_cut),
        }
    }
}

impl Idle {
    fn median(rounds: &[Self]) -> Self {
        let of = |figure: &dyn Fn(&Self) -> f64| median(rounds.iter().map(figure));
        Self {
            process: of(&|it| it.process),
            resident: of(&|it| it.resident),
            kernel: of(&|it| it.kernel),
            core: of(&|it| it.core),
        }
    }
}

/// Clients should all be let in within so many seconds.
const CONNECTED_MAX: f64 = 5.0;
/// The part of a core above which the load side is the limit.
const BUSY: f64 = 0.95;
/// The part of the wanted rate that must be reached.
const RATE_KEPT: f64 = 0.98;

/// Says of a row what a reader should doubt.
pub(crate) fn warnings(case: &Case, figures: &Figures) -> Vec<String> {
    let mut warnings = Vec::new();
    let percent = |part: f64| part * 100.0;
    if figures.load_core >= BUSY && figures.idle.is_none() {
        warnings.push(format!(
            "the load is the limit: its core was busy for {:.0} % of the time, the system's for \
             {:.0} %",
            percent(figures.load_core),
            percent(figures.core.unwrap_or(0.0)),
        ));
    }
    let offered = case.offered().filter(|_| figures.idle.is_none());
    if let Some(offered) = offered.filter(|offered| figures.throughput < offered * RATE_KEPT) {
        warnings.push(format!(
            "{:.0} of {offered:.0} deliveries a second came in the window",
            figures.throughput
        ));
    }
    // Subscribers of polled documents come slowly on purpose.
    let connected = figures.connected.filter(|_| case.feed != Feed::Poll);
    if let Some(connected) = connected.filter(|it| *it > CONNECTED_MAX) {
        warnings.push(format!(
            "{} clients were let in within {connected:.1} s",
            case.users
        ));
    }
    if figures.foreign > FOREIGN_MAX {
        warnings.push(format!(
            "others used {:.0} % of a core",
            percent(figures.foreign)
        ));
    }
    let counts = [
        (figures.lost, "lost"),
        (figures.behind, "not there ten seconds after the window"),
        (figures.duplicates, "doubled"),
        (figures.disordered, "out of order"),
        (figures.corrupt, "corrupt"),
        (figures.gaps, "gaps that were told"),
        (figures.failed, "connections not made"),
        (figures.cut, "connections cut"),
        (figures.refused, "publications refused or not answered"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let mut counts: Vec<String> = counts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let ends = figures.turnover.as_ref().filter(|ends| ends.faults() > 0);
    counts.extend(ends.map(|ends| {
        format!(
            "of streams whose credentials ended {} ended too early, {} went on for two seconds, {} \
             were not told why, {} were not let in",
            ends.early, ends.late, ends.untold, ends.refused
        )
    }));
    if !counts.is_empty() {
        let first = figures.first_error.as_deref();
        let first = first.or_else(|| ends?.first_error.as_deref());
        let first = first.unwrap_or_default();
        let first = if first.is_empty() {
            String::new()
        } else {
            format!("; the first: {first}")
        };
        warnings.push(format!("{}{first}", counts.join(", ")));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_keep_all_faults() {
        let figures = |lost: u64| Figures {
            lost,
            throughput: lost as f64,
            cpu: (lost > 1).then_some(4.0),
            memory_peak: Some(lost * 10),
            ..Figures::default()
        };
        let median = Figures::median(&[figures(1), figures(2), figures(3)]);
        assert_eq!(
            (median.lost, median.throughput, median.faults()),
            (6, 2.0, 6)
        );
        assert_eq!(
            (median.cpu, median.core, median.memory_peak),
            (Some(4.0), None, Some(20))
        );
    }

    #[test]
    fn what_is_used_is_divided_by_deliveries() {
        let mut figures = Figures::default();
        let used = Used {
            seconds: 2.0,
            system: 1.0,
            load: 0.5,
            load_core: 0.7,
            foreign: 0.1,
        };
        figures.enter(&used, 100_000, true);
        assert_eq!((figures.throughput, figures.cpu), (50_000.0, Some(10.0)));
        assert_eq!((figures.core, figures.load_cost), (Some(0.5), Some(5.0)));
        figures.enter(&used, 0, false);
        assert_eq!(
            (figures.cpu, figures.core, figures.load_cost),
            (None, None, None)
        );
    }

    #[test]
    fn doubts_are_told() {
        let case = Case {
            users: 100,
            period_ms: 100.0,
            ..Case::default()
        };
        let mut figures = Figures {
            throughput: 1000.0,
            load_core: 0.5,
            ..Figures::default()
        };
        assert!(warnings(&case, &figures).is_empty());
        figures.connected = Some(5.1);
        assert_eq!(
            warnings(&case, &figures),
            ["100 clients were let in within 5.1 s"]
        );
        figures.connected = Some(4.9);
        figures.throughput = 900.0;
        figures.load_core = 0.99;
        figures.foreign = 0.2;
        (figures.lost, figures.cut) = (3, 1);
        figures.first_error = Some("end of file".to_owned());
        let warnings = warnings(&case, &figures);
        assert_eq!(warnings.len(), 4, "{warnings:?}");
        assert_eq!(
            warnings[3],
            "3 lost, 1 connections cut; the first: end of file"
        );
        assert!((figures.error_percent() - 100.0).abs() < 1e-9);
    }
}
