//! The results of the suite of push delivery.

use serde::{Deserialize, Serialize};

use super::case::{Case, Kind};
use super::load::Replies;
use super::system::System;
use crate::bench::clock::Used;
use crate::bench::outcome::{self, FOREIGN_MAX, Sample};
use crate::bench::stats::{Latency, median};
use crate::stub::{SinkLatency, SinkReport};

/// The name of the suite.
pub(crate) const SUITE: &str = "push";

pub(crate) type Results = outcome::Results<System, Row>;
pub(crate) type Row = outcome::Row<System, Case, Figures>;

/// One sample, or medians of some; counts are added up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Deliveries a second, from the opening of the window to its close or to the last delivery,
    /// whichever is later.
    pub throughput: f64,
    /// Milliseconds from the instant for which an event was scheduled to when the sink has all of
    /// it.
    pub latency: SinkLatency,
    /// The same for the last endpoint of each event.
    pub last: SinkLatency,
    /// The same for the answer to the publisher, the warm-up included.
    pub publish: Latency,
    /// All that was accepted, in the warm-up too.
    pub delivered: u64,
    /// Events that an endpoint has not got.
    pub missing: u64,
    /// Events that an endpoint has got more than once.
    pub duplicates: u64,
    pub disordered: u64,
    /// Deliveries out of order by a system that promises none, which are no faults.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reordered: u64,
    /// Bodies that are not what was published.
    pub changed: u64,
    /// Signatures that are wrong or not there.
    pub unsigned: u64,
    /// Signatures that could not be checked, for want of memory.
    pub unchecked: u64,
    /// Publications that were refused.
    pub refused: u64,
    pub first_error: Option<String>,
    /// Microseconds of a core for each delivery.
    pub cpu: Option<f64>,
    /// Microseconds of cores for each delivery that the system's database took, where it has one;
    /// they are no part of `cpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<f64>,
    /// The part of its core that the system used.
    pub core: Option<f64>,
    /// The part that is busy of the busiest core of publishers and sink.
    pub load_core: f64,
    /// The larger part of a core's time that others used.
    pub foreign: f64,
    /// Millions of bytes of bodies in a second.
    pub megabytes: f64,
    /// Resident bytes: before the window, at most in it, and after it.
    pub memory_before: Option<u64>,
    pub memory_peak: Option<u64>,
    pub memory_settled: Option<u64>,
    /// Seconds until all subscribers of a hub were confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscribed: Option<f64>,
    /// How often something was sent to endpoints that fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUp>,
}

/// What came of an endpoint that was away. The other figures are those of the others, while it
/// caught up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CatchUp {
    /// Seconds that it took to publish the events that waited for it.
    pub published: f64,
    /// Deliveries to it in a second: beside those to the others, and when there are no others.
    pub beside: f64,
    pub alone: f64,
    /// Seconds from its return until it had everything.
    pub seconds: f64,
    /// The latency of the others before it came back.
    pub before: SinkLatency,
}

/// What webhooks take to which nothing is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Idle {
    /// Seconds that it took to make all of them by REST.
    pub made: f64,
    /// Bytes for each when they had been made: of the proportional set size (PSS), and of the
    /// resident set size.
    pub process: f64,
    pub resident: f64,
    /// Bytes of PSS for each after a restart, beyond those of a start without webhooks.
    pub restarted: f64,
    /// Seconds from the start of the process to when it listens and knows all webhooks: without
    /// any, and with all of them.
    pub start_empty: f64,
    pub start: f64,
}

impl Figures {
    /// How many things went wrong.
    pub fn faults(&self) -> u64 {
        let wrong = self.missing + self.duplicates + self.disordered + self.changed;
        wrong + self.unsigned + self.refused
    }

    /// Enters what the sink says.
    pub fn enter_report(&mut self, report: &SinkReport) {
        self.latency = report.latency_ms.unwrap_or_default();
        self.last = report.last_of_event_ms.unwrap_or_default();
        self.enter_faults(report);
    }

    /// Enters what has come to a sink and was wrong there, beside what others say.
    pub fn enter_faults(&mut self, report: &SinkReport) {
        self.delivered += report.accepted;
        self.missing += report.missing;
        self.duplicates += report.duplicates;
        self.disordered += report.disordered;
        self.changed += report.changed;
        if let Some(signatures) = report.signatures {
            self.unsigned += signatures.bad + signatures.absent;
            self.unchecked += signatures.unchecked;
        }
        if let Some(worst) = report.worst.first() {
            self.first_error = Some(format!(
                "{}: {} accepted, {} missing, {} doubled, {} out of order",
                worst.path, worst.accepted, worst.missing, worst.duplicates, worst.disordered
            ));
        }
    }

    /// What is out of order is no fault of a system that promises no order.
    pub fn excuse_order(&mut self) {
        self.reordered = std::mem::take(&mut self.disordered);
        if self.faults() == 0 {
            self.first_error = None;
        }
    }

    /// Enters how publishers were answered.
    pub(super) fn enter_replies(&mut self, replies: Replies) {
        self.publish = replies.latency.latency();
        self.refused = replies.refused;
        if let Some(refusal) = replies.first_refusal {
            self.first_error = Some(refusal);
        }
    }

    /// Enters what was used for so many deliveries, of bodies of so many bytes.
    pub fn enter_used(&mut self, used: &Used, delivered: u64, bytes: usize) {
        let count = delivered as f64;
        self.throughput = count / used.seconds;
        self.megabytes = self.throughput * bytes as f64 / 1e6;
        self.cpu = (delivered > 0).then(|| used.system * 1e6 / count);
        self.core = Some(used.system / used.seconds);
        self.load_core = used.load_core;
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
        let idle: Vec<Idle> = rounds.iter().filter_map(|it| it.idle).collect();
        let catch_up: Vec<CatchUp> = rounds.iter().filter_map(|it| it.catch_up).collect();
        Self {
            throughput: of(&|it| it.throughput),
            latency: median_of(rounds, |it| &it.latency),
            last: median_of(rounds, |it| &it.last),
            publish: Latency::median(&rounds.iter().map(|it| &it.publish).collect::<Vec<_>>()),
            delivered: sum(&|it| it.delivered),
            missing: sum(&|it| it.missing),
            duplicates: sum(&|it| it.duplicates),
            disordered: sum(&|it| it.disordered),
            reordered: sum(&|it| it.reordered),
            changed: sum(&|it| it.changed),
            unsigned: sum(&|it| it.unsigned),
            unchecked: sum(&|it| it.unchecked),
            refused: sum(&|it| it.refused),
            first_error: rounds.iter().find_map(|it| it.first_error.clone()),
            cpu: some(&|it| it.cpu),
            database: some(&|it| it.database),
            core: some(&|it| it.core),
            load_core: of(&|it| it.load_core),
            foreign: rounds.iter().map(|it| it.foreign).fold(0.0, f64::max),
            megabytes: of(&|it| it.megabytes),
            memory_before: bytes(&|it| it.memory_before),
            memory_peak: bytes(&|it| it.memory_peak),
            memory_settled: bytes(&|it| it.memory_settled),
            subscribed: some(&|it| it.subscribed),
            tries: bytes(&|it| it.tries),
            idle: (!idle.is_empty()).then(|| Idle::median(&idle)),
            catch_up: (!catch_up.is_empty()).then(|| CatchUp::median(&catch_up)),
        }
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn median_of<T>(rounds: &[T], which: impl Fn(&T) -> &SinkLatency) -> SinkLatency {
    let of = |figure: fn(&SinkLatency) -> f64| median(rounds.iter().map(|it| figure(which(it))));
    SinkLatency {
        count: rounds.iter().map(|it| which(it).count).sum(),
        mean: of(|it| it.mean),
        p50: of(|it| it.p50),
        p90: of(|it| it.p90),
        p99: of(|it| it.p99),
        p999: of(|it| it.p999),
        max: of(|it| it.max),
    }
}

impl CatchUp {
    fn median(rounds: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(rounds.iter().map(figure));
        Self {
            published: of(|it| it.published),
            beside: of(|it| it.beside),
            alone: of(|it| it.alone),
            seconds: of(|it| it.seconds),
            before: median_of(rounds, |it| &it.before),
        }
    }
}

impl Idle {
    fn median(rounds: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(rounds.iter().map(figure));
        Self {
            made: of(|it| it.made),
            process: of(|it| it.process),
            resident: of(|it| it.resident),
            restarted: of(|it| it.restarted),
            start_empty: of(|it| it.start_empty),
            start: of(|it| it.start),
        }
    }
}

/// The part of a core above which the load side is the limit.
const BUSY: f64 = 0.95;
/// The part of the wanted rate that must be reached.
const RATE_KEPT: f64 = 0.9;

/// Says of a row what a reader should doubt.
pub(crate) fn warnings(case: &Case, figures: &Figures) -> Vec<String> {
    let mut warnings = Vec::new();
    let percent = |part: f64| part * 100.0;
    if figures.load_core >= BUSY && case.kind != Kind::Idle {
        warnings.push(format!(
            "the load is the limit: its core was busy for {:.0} % of the time, the system's for \
             {:.0} %",
            percent(figures.load_core),
            percent(figures.core.unwrap_or(0.0)),
        ));
    }
    let offered = case.offered();
    if let Some(offered) = offered.filter(|it| figures.throughput < it * RATE_KEPT) {
        warnings.push(format!(
            "{:.0} deliveries a second of {offered:.0} that were offered",
            figures.throughput
        ));
    }
    if figures.foreign > FOREIGN_MAX {
        warnings.push(format!(
            "others used {:.0} % of a core",
            percent(figures.foreign)
        ));
    }
    if figures.reordered > 0 {
        warnings.push(format!(
            "{} out of order, which is no error here: no order is promised",
            figures.reordered
        ));
    }
    if figures.unchecked > 0 {
        warnings.push(format!("{} signatures were not checked", figures.unchecked));
    }
    let counts = [
        (figures.missing, "missing"),
        (figures.duplicates, "doubled"),
        (figures.disordered, "out of order"),
        (figures.changed, "changed"),
        (figures.unsigned, "without a good signature"),
        (figures.refused, "publications refused"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if !counts.is_empty() {
        let first = figures.first_error.as_deref();
        let first = first.map_or_else(String::new, |first| format!("; the first: {first}"));
        warnings.push(format!("{}{first}", counts.join(", ")));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_keep_all_faults() {
        let figures = |missing: u64| Figures {
            missing,
            latency: SinkLatency {
                count: 10,
                p99: missing as f64,
                ..SinkLatency::default()
            },
            cpu: Some(missing as f64),
            ..Figures::default()
        };
        let median = Figures::median(&[figures(1), figures(2), figures(3)]);
        assert_eq!((median.missing, median.faults()), (6, 6));
        assert_eq!((median.latency.count, median.latency.p99), (30, 2.0));
        assert_eq!((median.cpu, median.idle), (Some(2.0), None));
    }

    #[test]
    fn reports_of_the_sink_are_entered() {
        let report = serde_json::json!({
            "posts": 7, "accepted": 6, "refused": 0, "unanswered": 1, "bytes": 1, "smallest": 1,
            "largest": 1, "not_kept": 0, "endpoints": 2, "events": 3, "duplicates": 1,
            "disordered": 2, "missing": 3, "changed": 4,
            "signatures": { "good": 1, "bad": 2, "absent": 3, "unchecked": 4 },
            "verifications": {}, "latency_ms": null, "last_of_event_ms": null, "first_at": 1,
            "last_at": 2, "worst": [{ "path": "/e/1", "accepted": 3, "duplicates": 1,
            "disordered": 2, "missing": 3 }],
        });
        let mut figures = Figures::default();
        figures.enter_report(&serde_json::from_value(report).unwrap());
        assert_eq!((figures.delivered, figures.faults()), (6, 15));
        assert_eq!(figures.unchecked, 4);
        let case = Case {
            endpoints: 10,
            period_ms: 1000.0,
            ..Case::default()
        };
        let warnings = warnings(&case, &figures);
        let wanted = [
            "0 deliveries a second of 10 that were offered",
            "4 signatures were not checked",
            "3 missing, 1 doubled, 2 out of order, 4 changed, 5 without a good signature; the \
             first: /e/1: 3 accepted, 3 missing, 1 doubled, 2 out of order",
        ];
        assert_eq!(warnings, wanted);
    }

    #[test]
    fn disorder_is_excused_where_no_order_is_promised() {
        let mut figures = Figures {
            disordered: 3,
            first_error: Some("/e/1".to_owned()),
            ..Figures::default()
        };
        figures.excuse_order();
        assert_eq!((figures.faults(), figures.reordered), (0, 3));
        assert_eq!(figures.first_error, None);
        let warnings = warnings(&Case::default(), &figures);
        let wanted = "3 out of order, which is no error here: no order is promised";
        assert_eq!(warnings, [wanted]);
        figures.missing = 1;
        assert_eq!(Figures::median(&[figures.clone(), figures]).faults(), 2);
    }

    #[test]
    fn what_is_used_is_divided_by_deliveries() {
        let used = Used {
            seconds: 2.0,
            system: 1.0,
            load: 0.5,
            load_core: 0.7,
            foreign: 0.1,
        };
        let mut figures = Figures::default();
        figures.enter_used(&used, 10_000, 400);
        assert_eq!((figures.throughput, figures.cpu), (5000.0, Some(100.0)));
        assert_eq!((figures.core, figures.megabytes), (Some(0.5), 2.0));
    }
}
