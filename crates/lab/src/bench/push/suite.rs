//! The suite as all suites of this kind are run and shown.

use super::case::{Case, SCENARIOS};
use super::cells;
use super::results::{Figures, Row, warnings};
use super::system::System;
use crate::bench::suite::Suite;
use crate::bench::table::RATIO;

/// Webhooks and a WebSub hub.
pub(in crate::bench) struct Push;

impl Suite for Push {
    type System = System;
    type Case = Case;
    type Figures = Figures;

    const TITLE: &'static str = "Intertie push benchmark";
    const METHOD: &'static str = METHOD;
    const SCENARIOS: &'static [(&'static str, &'static str)] = &SCENARIOS;
    const COLUMNS: &'static [&'static str] = &[
        "system",
        "deliveries/s",
        "p50 ms",
        "p99",
        "max",
        "CPU µs each",
        RATIO,
        "errors",
    ];

    fn scenario(case: &Case) -> &str {
        &case.scenario
    }

    fn label(case: &Case) -> String {
        case.label()
    }

    fn refuses(system: System, case: &Case) -> Option<&'static str> {
        system.refuses(case)
    }

    fn is_meant(system: System, case: &Case) -> bool {
        system.is_meant(case)
    }

    fn advice(system: System) -> &'static str {
        system.advice()
    }

    fn is_ours(system: System) -> bool {
        matches!(system, System::Intertie | System::Disturbed)
    }

    fn faults(figures: &Figures) -> u64 {
        figures.faults()
    }

    fn warnings(case: &Case, figures: &Figures) -> Vec<String> {
        warnings(case, figures)
    }

    fn head(case: &Case) -> &'static [&'static str] {
        cells::head(case)
    }

    fn cells(rows: &[&Row]) -> Vec<Vec<String>> {
        cells::cells(rows)
    }

    fn published(case: &Case) -> Option<Vec<String>> {
        cells::published_cells(case)
    }

    fn sentences(case: &Case, rows: &[&Row], _all: &[Row]) -> Vec<String> {
        cells::sentences(case, rows)
    }
}

/// What the suite does, for those who read the page alone.
const METHOD: &str = "<p>The system under test has one core; publishers and the sink, a process of \
    its own that takes all deliveries, share the other. Load is open loop: instants are fixed in \
    advance, and latency runs from the instant for which an event was scheduled, by the machine's \
    clock, to when the sink has all of it. <em>Last one</em> is the same for the last endpoint of \
    each event. Where so many events are on their way, the next one is published when all \
    endpoints together have taken enough. A sample ends when everything has come, or when nothing \
    has come for ten seconds.</p>\n\
    <p>Every event has a number, the instant and a hash of all of it; each endpoint has a path and \
    a secret of its own. When the sample is over the sink says, over all of it, its warm-up too, \
    what is missing, came twice, out of order or changed, and whose signatures are wrong: these \
    are the <em>errors</em>, and publications that were refused.</p>\n\
    <p><em>Floor</em> is a loop that sends the same bodies over kept connections, one for each \
    endpoint, and signs them where they are signed. It keeps nothing, and so nothing is on a disk \
    before it is sent. <em>Disturbed</em> is Intertie with three endpoints more: one that hangs, \
    one that answers 500, and one that is down every other two seconds; the figures are those of \
    the others.</p>\n\
    <p><em>Svix</em> is the open-source server of Svix with queue and cache in memory. The CPU \
    time is that of the server alone: its PostgreSQL, which does not wait for its disk, runs on \
    the core of the load. It promises no order within an endpoint, and so what is out of order is \
    counted and is no error.</p>\n\
    <p>The published rows are from other machines: Axway's of a Kubernetes cluster with twenty \
    pods, without signatures, of a publisher that waits for what it has published; MWARE's of two \
    processors. They stand here as landmarks.</p>\n";

#[cfg(test)]
mod tests {
    use super::super::cells::tests::{cases, row};
    use super::super::results::{Results, SUITE};
    use super::*;
    use crate::bench::outcome::{Machine, Method};
    use crate::bench::suite::{case_text, html, markdown_of};

    fn results() -> Results {
        let case = &cases("axway")[2];
        let mut bad = row(case, System::Floor);
        bad.median.missing = 3;
        bad.warnings.push("3 missing".to_owned());
        Results {
            suite: SUITE.to_owned(),
            command: "intertie-bench push".to_owned(),
            started: "now".to_owned(),
            machine: Machine::default(),
            method: Method::default(),
            systems: Vec::new(),
            rows: vec![row(case, System::Intertie), bad],
            left_out: Vec::new(),
        }
    }

    #[test]
    fn the_page_has_rows_published_rows_and_doubts() {
        let page = html::<Push>(&results());
        for part in [
            "<h2>Axway Streams: documents posted",
            "<tr class=\"ours\"><td>intertie</td><td>5,456</td>",
            "<td class=\"bad\">floor</td>",
            "<tr class=\"published\"><td>Axway Streams</td>",
            "<li>floor: 3 missing.</li>",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        let text = serde_json::to_string(&results()).unwrap();
        let read: Results = serde_json::from_str(&text).unwrap();
        assert_eq!(html::<Push>(&read), page);
    }

    #[test]
    fn tables_are_for_the_terminal_and_in_markdown() {
        let results = results();
        let text = case_text::<Push>(&results.rows[0].case, &results.rows, &[]);
        assert!(
            text.starts_with("\naxway: 750 endpoints, 1 topic"),
            "{text}"
        );
        assert!(text.contains("\n  ! floor: 3 missing\n"), "{text}");
        let markdown = markdown_of::<Push>(&results);
        assert!(
            markdown.contains("| intertie | 5,456 | 2.00 | 4.00 | 6.00 |"),
            "{markdown}"
        );
    }
}
