//! The cells of a row, for the terminal and for the page, and what can be said of a case.

use super::case::{Case, Feed, Published, published};
use super::results::{Figures, Row};
use super::system::System;
use crate::bench::report::text::{grouped, megabytes, percent, short};
use crate::bench::table::RATIO;

const NONE: &str = "–";

/// The columns of a case with deliveries.
const DELIVERED: [&str; 17] = [
    "system",
    "deliveries/s",
    "p50 ms",
    "p99",
    "p99.9",
    "max",
    "last one p50",
    "publish p99",
    "errors",
    "error %",
    "CPU µs each",
    "each CPU s",
    "core",
    "load",
    "load µs each",
    "MB peak / settled",
    RATIO,
];

/// The columns of a case with idle connections.
const IDLE: [&str; 8] = [
    "system",
    "bytes each (PSS)",
    "bytes each (RSS)",
    "kernel, both ends",
    "not made",
    "core",
    "MB without",
    "MB peak / settled",
];

/// The names of the columns.
pub(super) fn head(case: &Case) -> &'static [&'static str] {
    match case.feed {
        Feed::Nothing => &IDLE,
        _ => &DELIVERED,
    }
}

/// The cells of the rows of a case, in the order of [`head`].
pub(super) fn cells(rows: &[&Row]) -> Vec<Vec<String>> {
    let ours = rows.iter().find(|row| row.system == System::Intertie);
    let of = |row: &&Row| match row.case.feed {
        Feed::Nothing => idle(row.system, &row.median),
        feed => {
            let mut cells = delivered(row.system, feed, &row.median);
            let ratio = ours.and_then(|ours| ours.cpu_for(row));
            cells.push(ratio.map_or_else(|| NONE.to_owned(), |ratio| ratio.to_string()));
            cells
        }
    };
    rows.iter().map(of).collect()
}

fn or_none(figure: Option<f64>, show: impl Fn(f64) -> String) -> String {
    figure.map_or_else(|| NONE.to_owned(), show)
}

fn memory(figures: &Figures) -> String {
    let memory = figures.memory_peak.zip(figures.memory_settled);
    let texts = memory.map(|(peak, settled)| [peak, settled].map(megabytes).join(" / "));
    texts.unwrap_or_else(|| NONE.to_owned())
}

fn delivered(system: System, feed: Feed, figures: &Figures) -> Vec<String> {
    let latency = &figures.latency;
    let is_posted = feed == Feed::Post;
    let last = (feed != Feed::Echo).then(|| figures.burst.at(50.0));
    vec![
        system.name().to_owned(),
        grouped(figures.throughput),
        short(latency.at(50.0)),
        short(latency.at(99.0)),
        short(latency.at(99.9)),
        short(latency.max),
        or_none(last, short),
        or_none(is_posted.then(|| figures.publish.at(99.0)), short),
        figures.faults().to_string(),
        short(figures.error_percent()),
        or_none(figures.cpu, short),
        or_none(
            figures.cpu.filter(|cpu| *cpu > 0.0).map(|cpu| 1e6 / cpu),
            grouped,
        ),
        or_none(figures.core, percent),
        percent(figures.load_core),
        or_none(figures.load_cost, short),
        memory(figures),
    ]
}

fn idle(system: System, figures: &Figures) -> Vec<String> {
    let of = |figure: fn(&super::results::Idle) -> f64| {
        or_none(figures.idle.as_ref().map(figure), grouped)
    };
    let before = figures.memory_before.map(megabytes);
    vec![
        system.name().to_owned(),
        of(|it| it.process),
        of(|it| it.resident),
        of(|it| it.kernel),
        figures.failed.to_string(),
        or_none(figures.core, percent),
        before.unwrap_or_else(|| NONE.to_owned()),
        memory(figures),
    ]
}

/// The published row beside a case, in the same columns.
pub(super) fn published_cells(case: &Case) -> Option<Vec<String>> {
    let row: Published = published(case)?;
    let mut cells = vec![NONE.to_owned(); head(case).len()];
    let texts = [
        (0, Some(row.whose.to_owned())),
        (1, row.throughput.map(grouped)),
        (3, row.p99_ms.map(short)),
        (5, row.max_ms.map(short)),
        (8, row.failed.map(|failed| failed.to_string())),
        (9, row.error_percent.map(short)),
    ];
    for (at, text) in texts {
        if let Some((cell, text)) = cells.get_mut(at).zip(text) {
            *cell = text;
        }
    }
    Some(cells)
}

/// What a case shows, one sentence each; `all` are the rows of the whole run.
pub(super) fn sentences(case: &Case, rows: &[&Row], all: &[Row]) -> Vec<String> {
    let of = |system: System| {
        let row = rows.iter().find(|row| row.system == system);
        row.map(|row| &row.median)
    };
    let Some(ours) = of(System::Intertie) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    let p99 = ours.latency.at(99.0);
    if let Some(theirs) = published(case).and_then(|row| row.p99_ms) {
        lines.push(format!(
            "p99 {} ms, {:.2} of the published {} ms",
            short(p99),
            p99 / theirs,
            short(theirs)
        ));
    }
    let has_burst = !matches!(case.feed, Feed::Echo | Feed::Nothing) && case.window == 0;
    if let Some(floor) = of(System::Floor).filter(|_| has_burst) {
        let ratio = |figure: fn(&Figures) -> f64| figure(ours) / figure(floor).max(1e-6);
        lines.push(format!(
            "against the bare write loop, which is volatile: p99 {:.2}, the last subscriber of an \
             event {:.2}",
            ratio(|it| it.latency.at(99.0)),
            ratio(|it| it.burst.at(50.0)),
        ));
    }
    lines.extend(behind_jwt(rows));
    lines.extend(turnover(case, ours, all));
    let others = rows
        .iter()
        .filter(|row| !matches!(row.system, System::Intertie | System::IntertieJwt));
    for row in others {
        if let Some((our, their)) = ours.cpu.zip(row.median.cpu).filter(|(our, _)| *our > 0.0) {
            lines.push(format!(
                "deliveries for a second of CPU: {:.2} of {}",
                their / our,
                row.system.name()
            ));
        }
    }
    if case.feed == Feed::Poll {
        lines.push(format!(
            "calls of the poller were late by {} ms at p99, {} ms at most",
            short(ours.late.at(99.0)),
            short(ours.late.max)
        ));
    }
    if case.stalled > 0 {
        for row in rows {
            let cut = row.median.stalled_cut.unwrap_or(0);
            let name = row.system.name();
            lines.push(format!(
                "{name} had cut off {cut} of {} at the end",
                case.stalled
            ));
        }
    }
    lines
}

/// What tokens cost, beside the same case with everything open.
fn behind_jwt(rows: &[&Row]) -> Vec<String> {
    let of = |system: System| rows.iter().find(|row| row.system == system);
    let Some((open, locked)) = of(System::Intertie).zip(of(System::IntertieJwt)) else {
        return Vec::new();
    };
    let (before, behind) = (&open.median, &locked.median);
    let ratio = |figure: fn(&Figures) -> f64| figure(behind) / figure(before).max(1e-6);
    let cpu = locked.cpu_for(open);
    let mut lines = vec![format!(
        "behind JWT, of the figures without: CPU {}, p50 {:.2}, p99 {:.2}, deliveries {:.3}; {} \
         errors behind it and {} without",
        cpu.map_or_else(|| NONE.to_owned(), |cpu| cpu.to_string()),
        ratio(|it| it.latency.at(50.0)),
        ratio(|it| it.latency.at(99.0)),
        ratio(|it| it.throughput),
        behind.faults(),
        before.faults(),
    )];
    if let Some((before, behind)) = before.connected.zip(behind.connected) {
        lines.push(format!(
            "{} clients, each with a token of its own, were let in within {behind:.2} s; without \
             tokens within {before:.2} s",
            locked.case.users
        ));
    }
    lines
}

/// How streams ended, and whether the others noticed.
fn turnover(case: &Case, ours: &Figures, all: &[Row]) -> Vec<String> {
    let Some(ends) = &ours.turnover else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for (what, count, times) in [
        ("tokens expired", ends.expired, &ends.expiry),
        ("keys were revoked", ends.revoked, &ends.revocation),
    ] {
        if count > 0 {
            lines.push(format!(
                "{count} {what}, and streams ended after {} ms (p50), {} ms at most",
                short(times.at(50.0)),
                short(times.max)
            ));
        }
    }
    let alone = case.without_turnover();
    let is_alone = |row: &&Row| row.system == System::Intertie && row.case == alone;
    if let Some(alone) = all.iter().find(is_alone).map(|row| &row.median) {
        let ratio = |figure: fn(&Figures) -> f64| figure(ours) / figure(alone).max(1e-6);
        lines.push(format!(
            "beside the row in which no credential ends, the others had p50 {:.2}, p99 {:.2}, the \
             latest of all {:.2}, and {} errors",
            ratio(|it| it.latency.at(50.0)),
            ratio(|it| it.latency.at(99.0)),
            ratio(|it| it.latency.max),
            ours.faults() - ends.faults(),
        ));
    }
    lines
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::case::Choice;
    use super::super::turnover::Ends;
    use super::*;
    use crate::bench::stats::Latency;

    /// A row with figures that are easy to tell apart.
    pub fn row(case: &Case, system: System) -> Row {
        let latency = |p99: f64| Latency {
            mean: 1.0,
            stddev: 0.5,
            percentiles: vec![1.0, 2.0, 3.0, 4.0, p99, 6.0, 7.0],
            max: 8.0,
        };
        let figures = Figures {
            throughput: 5455.5,
            latency: latency(if system == System::Floor { 4.0 } else { 5.0 }),
            burst: latency(5.0),
            cpu: Some(if system == System::Intertie {
                5.0
            } else {
                15.0
            }),
            core: Some(0.5),
            load_core: 0.25,
            load_cost: Some(2.0),
            memory_peak: Some(12_000_000),
            memory_settled: Some(10_000_000),
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
            load_max: 1e9,
            ..Choice::default()
        };
        choice.cases()
    }

    #[test]
    fn rows_have_a_cell_for_each_column() {
        for scenario in ["axway-sse", "wso2-websocket", "saturation", "idle"] {
            let case = &cases(scenario)[0];
            let row = row(case, System::Intertie);
            assert_eq!(cells(&[&row])[0].len(), head(case).len());
            if let Some(published) = published_cells(case) {
                assert_eq!(published.len(), head(case).len());
            }
        }
        let case = &cases("axway-sse")[0];
        let published = published_cells(case).unwrap();
        assert_eq!(
            (published[1].as_str(), published[3].as_str()),
            ("5,456", "21.0")
        );
        let case = &cases("wso2-websocket")[4];
        let published = published_cells(case).unwrap();
        assert_eq!(
            (published[8].as_str(), published[9].as_str()),
            ("48", "0.00")
        );
    }

    #[test]
    fn the_cost_of_tokens_is_reported() {
        let case = &cases("wso2-sse")[0];
        let mut rows = [row(case, System::Intertie), row(case, System::IntertieJwt)];
        for (row, cpu) in rows.iter_mut().zip([5.0, 5.2]) {
            row.rounds[0].cpu = Some(cpu);
            row.median.connected = Some(cpu / 10.0);
        }
        rows[1].median.cut = 2;
        let lines = sentences(case, &rows.iter().collect::<Vec<_>>(), &[]);
        let wanted = "behind JWT, of the figures without: CPU 1.04, p50 1.00, p99 1.00, \
                      deliveries 1.000; 2 errors behind it and 0 without";
        assert_eq!(lines[0], wanted);
        let wanted = "5000 clients, each with a token of its own, were let in within 0.52 s; \
                      without tokens within 0.50 s";
        assert_eq!(lines[1..], [wanted]);
    }

    #[test]
    fn remaining_streams_are_compared_with_a_run_without_turnover() {
        let cases = cases("turnover");
        let alone = row(&cases[0], System::Intertie);
        let mut beside = row(&cases[2], System::Intertie);
        beside.median.latency.max = 12.0;
        beside.median.turnover = Some(Ends {
            expired: 80,
            revoked: 8,
            late: 1,
            ..Ends::default()
        });
        let lines = sentences(&cases[2], &[&beside], &[alone]);
        assert!(lines[0].starts_with("80 tokens expired, and"), "{lines:?}");
        assert!(lines[1].starts_with("8 keys were revoked"), "{lines:?}");
        let wanted = "p50 1.00, p99 1.00, the latest of all 1.50, and 0 errors";
        assert!(lines[2].ends_with(wanted), "{lines:?}");
        assert!(beside.median.faults() > 0);
    }

    #[test]
    fn cases_are_compared() {
        let case = &cases("axway-sse")[0];
        let rows = [row(case, System::Intertie), row(case, System::Floor)];
        let lines = sentences(case, &rows.iter().collect::<Vec<_>>(), &[]);
        assert_eq!(lines[0], "p99 5.00 ms, 0.24 of the published 21.0 ms");
        assert!(
            lines[1].contains("p99 1.25, the last subscriber of an event 1.00"),
            "{lines:?}"
        );
        assert_eq!(lines[2], "deliveries for a second of CPU: 3.00 of floor");
        assert!(lines[3].contains("late by"), "{lines:?}");
        assert!(sentences(case, &[&rows[1]], &[]).is_empty());
    }
}
