//! The cells of a row, for the terminal and for the page, and what can be said of a case.

use super::case::{Case, Kind, published};
use super::results::{CatchUp, Figures, Idle, Row};
use super::system::System;
use crate::bench::outcome::Contender;
use crate::bench::report::text::{grouped, megabytes, percent, short};
use crate::bench::stats::median;
use crate::bench::table::RATIO;
use crate::stub::SinkLatency;

const NONE: &str = "–";

/// The columns of a case with deliveries.
const DELIVERED: [&str; 16] = [
    "system",
    "deliveries/s",
    "p50 ms",
    "p99",
    "p99.9",
    "max",
    "last one p50",
    "publish p99",
    "errors",
    "CPU µs each",
    "each CPU s",
    "core",
    "load",
    "MB before / peak",
    "settled",
    RATIO,
];

/// The columns of a case in which nothing is sent.
const IDLE: [&str; 9] = [
    "system",
    "bytes each (PSS)",
    "bytes each (RSS)",
    "after a restart (PSS)",
    "made in s",
    "start s",
    "start without any",
    "MB",
    "errors",
];

/// The columns of a case in which an endpoint was away.
const CAUGHT_UP: [&str; 14] = [
    "system",
    "caught up /s",
    "without others",
    "all s",
    "all /s",
    "p50 ms before",
    "p50 ms meanwhile",
    "p99 before",
    "p99 meanwhile",
    "errors",
    "CPU µs each",
    "core",
    "load",
    "MB before / peak",
];

/// The names of the columns.
pub(super) fn head(case: &Case) -> &'static [&'static str] {
    match case.kind {
        Kind::Idle => &IDLE,
        Kind::Webhooks | Kind::WebSub => &DELIVERED,
        Kind::CatchUp => &CAUGHT_UP,
    }
}

/// The cells of the rows of a case, in the order of [`head`].
pub(super) fn cells(rows: &[&Row]) -> Vec<Vec<String>> {
    let ours = rows.iter().find(|row| row.system == System::Intertie);
    let of = |row: &&Row| match (&row.median.idle, &row.median.catch_up) {
        (Some(idle), _) => idle_cells(row, idle),
        (None, Some(catch_up)) => catch_up_cells(row, catch_up),
        (None, None) => {
            let ratio = ours.and_then(|ours| ours.cpu_for(row));
            let mut cells = delivered(row.system, &row.median);
            cells.push(ratio.map_or_else(|| NONE.to_owned(), |ratio| ratio.to_string()));
            cells
        }
    };
    rows.iter().map(of).collect()
}

fn or_none(figure: Option<f64>, show: impl Fn(f64) -> String) -> String {
    figure.map_or_else(|| NONE.to_owned(), show)
}

fn bytes_or_none(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| NONE.to_owned(), megabytes)
}

fn delivered(system: System, figures: &Figures) -> Vec<String> {
    let latency = &figures.latency;
    let memory = [figures.memory_before, figures.memory_peak].map(bytes_or_none);
    let each_second = figures.cpu.filter(|cpu| *cpu > 0.0).map(|cpu| 1e6 / cpu);
    vec![
        system.name().to_owned(),
        grouped(figures.throughput),
        short(latency.p50),
        short(latency.p99),
        short(latency.p999),
        short(latency.max),
        short(figures.last.p50),
        short(figures.publish.at(99.0)),
        figures.faults().to_string(),
        or_none(figures.cpu, short),
        or_none(each_second, grouped),
        or_none(figures.core, percent),
        percent(figures.load_core),
        memory.join(" / "),
        bytes_or_none(figures.memory_settled),
    ]
}

fn idle_cells(row: &Row, idle: &Idle) -> Vec<String> {
    vec![
        row.system.name().to_owned(),
        grouped(idle.process),
        grouped(idle.resident),
        grouped(idle.restarted),
        short(idle.made),
        short(idle.start),
        short(idle.start_empty),
        bytes_or_none(row.median.memory_settled),
        row.median.faults().to_string(),
    ]
}

fn catch_up_cells(row: &Row, catch_up: &CatchUp) -> Vec<String> {
    let figures = &row.median;
    let memory = [figures.memory_before, figures.memory_peak].map(bytes_or_none);
    vec![
        row.system.name().to_owned(),
        grouped(catch_up.beside),
        grouped(catch_up.alone),
        short(catch_up.seconds),
        grouped(figures.throughput),
        short(catch_up.before.p50),
        short(figures.latency.p50),
        short(catch_up.before.p99),
        short(figures.latency.p99),
        figures.faults().to_string(),
        or_none(figures.cpu, short),
        or_none(figures.core, percent),
        percent(figures.load_core),
        memory.join(" / "),
    ]
}

/// The published row beside a case, in the same columns.
pub(super) fn published_cells(case: &Case) -> Option<Vec<String>> {
    let row = published(case)?;
    let mut cells = vec![NONE.to_owned(); head(case).len()];
    let texts = [
        (0, Some(row.whose.to_owned())),
        (1, row.throughput.map(grouped)),
        (3, row.p99_ms.map(short)),
        (5, row.max_ms.map(short)),
        (8, row.failed.map(|failed| failed.to_string())),
    ];
    for (at, text) in texts {
        if let Some((cell, text)) = cells.get_mut(at).zip(text) {
            *cell = text;
        }
    }
    Some(cells)
}

/// What a case shows, one sentence each.
pub(super) fn sentences(case: &Case, rows: &[&Row]) -> Vec<String> {
    let of = |system: System| rows.iter().find(|row| row.system == system);
    let Some(ours) = of(System::Intertie) else {
        return Vec::new();
    };
    let figures = &ours.median;
    let mut lines = Vec::new();
    let p99 = figures.latency.p99;
    if let Some(theirs) = published(case).and_then(|row| row.p99_ms) {
        lines.push(format!(
            "p99 {} ms, {:.3} of the published {} ms",
            short(p99),
            p99 / theirs,
            short(theirs)
        ));
    }
    if let Some(floor) = of(System::Floor) {
        let cpu = ours.cpu_for(floor);
        let signs = if case.is_signed { " and signs" } else { "" };
        lines.push(format!(
            "against a loop that sends{signs} the same, which is volatile: CPU {}, p99 {:.2}",
            cpu.map_or_else(|| NONE.to_owned(), |cpu| cpu.to_string()),
            p99 / floor.median.latency.p99.max(1e-6),
        ));
    }
    lines.extend(of(System::Svix).and_then(|svix| beside_svix(ours, svix)));
    if let Some(disturbed) = of(System::Disturbed) {
        lines.push(disturbance(ours, disturbed));
    }
    if case.kind == Kind::WebSub {
        lines.push(hub(case, figures));
    }
    lines.extend(figures.catch_up.map(|it| caught_up(case, figures, &it)));
    lines
}

/// How many deliveries of Svix those of Intertie are, for the same CPU time.
fn beside_svix(ours: &Row, svix: &Row) -> Option<String> {
    let ratio = svix.cpu_for(ours)?;
    let (cpu, theirs) = (ours.median.cpu?, svix.median.cpu?);
    let database = svix.median.database.unwrap_or(0.0);
    Some(format!(
        "{ratio} times the deliveries of svix-server in a second of CPU; {:.2} times with the {} \
         µs that its database takes for each",
        (theirs + database) / cpu.max(1e-6),
        short(database),
    ))
}

/// What endpoints that fail did to the others, by rounds: neighbours in time.
fn disturbance(ours: &Row, disturbed: &Row) -> String {
    let pairs = || ours.rounds.iter().zip(&disturbed.rounds);
    let p99 = |it: &Figures| it.latency.p99;
    let moved = median(pairs().map(|(alone, beside)| p99(beside) - p99(alone)));
    let ratio = median(pairs().map(|(alone, beside)| p99(beside) / p99(alone).max(1e-6)));
    format!(
        "beside endpoints that fail, to which {} requests were sent, p99 of the others moved by \
         {moved:+.2} ms, {:+.1} % (median of {} pairs)",
        disturbed.median.tries.unwrap_or(0),
        (ratio - 1.0) * 100.0,
        pairs().count(),
    )
}

fn caught_up(case: &Case, figures: &Figures, catch_up: &CatchUp) -> String {
    let CatchUp {
        beside,
        alone,
        before,
        ..
    } = catch_up;
    let moved = |of: fn(&SinkLatency) -> f64| {
        let (before, meanwhile) = (of(before), of(&figures.latency));
        let ratio = meanwhile / before.max(1e-6) - 1.0;
        format!("{:+.2} ms, {:+.1} %", meanwhile - before, ratio * 100.0)
    };
    format!(
        "{} events, published within {} s, were delivered after {} s, at {:.2} of the rate without \
         others beside others; their latency moved meanwhile: p50 {}, p99 {}",
        grouped(case.backlog as f64),
        short(catch_up.published),
        short(catch_up.seconds),
        beside / alone.max(1e-6),
        moved(|it| it.p50),
        moved(|it| it.p99),
    )
}

fn hub(case: &Case, figures: &Figures) -> String {
    let memory = figures.memory_before.zip(figures.memory_peak);
    let growth = memory.map(|(before, peak)| peak.saturating_sub(before));
    format!(
        "{} subscribers were confirmed within {} s; the last one had an event after {} ms (p50), \
         {} ms at most; memory grew by {} MB meanwhile",
        case.endpoints,
        or_none(figures.subscribed, short),
        short(figures.last.p50),
        short(figures.last.max),
        bytes_or_none(growth),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::case::Choice;
    use super::*;

    /// A row with figures that are easy to tell apart.
    pub fn row(case: &Case, system: System) -> Row {
        let slow = if system == System::Disturbed {
            1.5
        } else {
            1.0
        };
        let latency = SinkLatency {
            count: 10,
            mean: 1.0,
            p50: 2.0,
            p90: 3.0,
            p99: 4.0 * slow,
            p999: 5.0,
            max: 6.0,
        };
        let figures = Figures {
            throughput: 5455.5,
            latency,
            last: latency,
            cpu: Some(if system == System::Floor { 4.0 } else { 5.0 }),
            core: Some(0.5),
            load_core: 0.25,
            memory_before: Some(8_000_000),
            memory_peak: Some(12_000_000),
            memory_settled: Some(10_000_000),
            idle: (case.kind == Kind::Idle).then(Idle::default),
            catch_up: (case.kind == Kind::CatchUp).then(|| CatchUp {
                published: 7.0,
                beside: 900.0,
                alone: 1000.0,
                seconds: 8.0,
                before: SinkLatency {
                    p50: 1.0,
                    p99: 3.0,
                    ..SinkLatency::default()
                },
            }),
            ..Figures::default()
        };
        Row {
            case: case.clone(),
            system,
            rounds: vec![figures.clone()],
            median: figures,
            repeated: 0,
            warnings: Vec::new(),
        }
    }

    pub fn cases(scenario: &str) -> Vec<Case> {
        let choice = Choice {
            scenarios: vec![scenario.to_owned()],
            is_full: true,
            ..Choice::default()
        };
        choice.cases()
    }

    #[test]
    fn rows_have_a_cell_for_each_column() {
        for scenario in ["axway", "websub", "cost", "catch-up", "idle"] {
            let case = &cases(scenario)[0];
            let row = row(case, System::Intertie);
            assert_eq!(cells(&[&row])[0].len(), head(case).len());
            if let Some(published) = published_cells(case) {
                assert_eq!(published.len(), head(case).len());
            }
        }
        let published = published_cells(&cases("axway")[2]).unwrap();
        assert_eq!(
            (published[1].as_str(), published[3].as_str()),
            ("658", "835")
        );
    }

    #[test]
    fn cases_are_compared() {
        let case = &cases("axway")[2];
        let rows = [row(case, System::Intertie), row(case, System::Floor)];
        let lines = sentences(case, &rows.iter().collect::<Vec<_>>());
        assert_eq!(lines[0], "p99 4.00 ms, 0.005 of the published 835 ms");
        assert_eq!(
            lines[1],
            "against a loop that sends the same, which is volatile: CPU 1.25, p99 1.00"
        );
        assert!(sentences(case, &[&rows[1]]).is_empty());
    }

    #[test]
    fn svix_is_compared_with_and_without_its_database() {
        let case = &cases("cost")[0];
        let mut svix = row(case, System::Svix);
        svix.median.cpu = Some(100.0);
        svix.median.database = Some(50.0);
        svix.rounds = vec![svix.median.clone()];
        let lines = sentences(case, &[&row(case, System::Intertie), &svix]);
        let wanted = "20.00 times the deliveries of svix-server in a second of CPU; 30.00 times \
                      with the 50.0 µs that its database takes for each";
        assert_eq!(lines, [wanted]);
    }

    #[test]
    fn others_are_compared_with_and_without_endpoints_that_fail() {
        let case = &cases("disturbed")[0];
        let rows = [row(case, System::Intertie), row(case, System::Disturbed)];
        let lines = sentences(case, &rows.iter().collect::<Vec<_>>());
        assert!(lines[0].contains("moved by +2.00 ms, +50.0 %"), "{lines:?}");
    }

    #[test]
    fn a_hub_says_how_late_the_last_one_was_and_what_memory_it_took() {
        let case = &cases("websub")[0];
        let lines = sentences(case, &[&row(case, System::Intertie)]);
        assert!(
            lines[0].contains("6.00 ms at most; memory grew by 4.0 MB"),
            "{lines:?}"
        );
    }

    #[test]
    fn a_row_says_how_fast_an_endpoint_caught_up_and_what_others_noticed() {
        let case = &cases("catch-up")[0];
        let lines = sentences(case, &[&row(case, System::Intertie)]);
        let wanted = "3,600,000 events, published within 7.00 s, were delivered after 8.00 s, at \
                      0.90 of the rate without others beside others; their latency moved \
                      meanwhile: p50 +1.00 ms, +100.0 %, p99 +1.00 ms, +33.3 %";
        assert_eq!(lines, [wanted]);
    }
}
