//! The suite as all suites of this kind are run and shown.

use super::case::{Case, SCENARIOS};
use super::cells;
use super::results::{Figures, Row, warnings};
use super::system::System;
use crate::bench::suite::Suite;
use crate::bench::table::RATIO;

/// Topics and WebSocket proxying.
pub(in crate::bench) struct Streams;

impl Suite for Streams {
    type System = System;
    type Case = Case;
    type Figures = Figures;

    const TITLE: &'static str = "Intertie streams benchmark";
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

    fn advice(system: System) -> &'static str {
        system.advice()
    }

    fn is_ours(system: System) -> bool {
        matches!(system, System::Intertie | System::IntertieJwt)
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

    fn sentences(case: &Case, rows: &[&Row], all: &[Row]) -> Vec<String> {
        cells::sentences(case, rows, all)
    }
}

/// What the suite does, for those who read the page alone.
const METHOD: &str = "<p>The system under test has one core; publisher, subscribers and the \
    service behind it share the other. Load is open loop: instants are fixed \
    in advance, and latency runs from the instant for which an event was \
    scheduled, by the machine's clock, to when a subscriber has all of it; \
    where documents are polled, from when the call came to their source. \
    <em>Last one</em> is the same for the last subscriber of each event. \
    <em>Errors</em> are events that were lost, not there ten seconds after the \
    window, doubled, out of order, changed or explained away by the system, \
    connections not made or cut, and publications refused: over the whole \
    sample, not only its window.</p>\n\
    <p>Every event has a number, the instant and a hash of all of it. The \
    first subscriber that has an event lets it be checked by its hash, or by \
    applying its patch and comparing the whole document with that of the \
    source; all others must have the same bytes. Where ids are an epoch and a \
    sequence, they must have no gap. Every answer of the reversing service is \
    compared letter by letter.</p>\n\
    <p><em>Floor</em> is a loop that writes the same number of bytes to the \
    same number of subscribers of as many topics, and does and keeps nothing \
    else; for WebSocket proxying a relay that reads nothing. <em>Load µs \
    each</em> is what the generator needs for a delivery, without the service \
    behind. Where the load core is busy it is the limit: compare CPU, not \
    throughput. Loopback makes the sender pay for the receiver's TCP \
    input.</p>\n\
    <p>The published rows are from other machines: Axway's of a Kubernetes \
    cluster with twenty pods, WSO2's of two processors. They stand here as \
    landmarks.</p>\n";

#[cfg(test)]
mod tests {
    use super::super::cells::tests::{cases, row};
    use super::super::results::{Results, SUITE};
    use super::*;
    use crate::bench::outcome::{LeftOut, Machine, Method, RunFacts, SystemFacts};
    use crate::bench::suite::{case_text, html};

    fn results() -> Results {
        let case = &cases("axway-sse")[0];
        let mut bad = row(case, System::Floor);
        bad.median.lost = 3;
        bad.warnings.push("3 lost".to_owned());
        Results {
            suite: SUITE.to_owned(),
            command: "intertie-bench streams".to_owned(),
            started: "now".to_owned(),
            machine: Machine::default(),
            method: Method::default(),
            systems: vec![SystemFacts {
                system: System::Intertie,
                version: "1 & 2".to_owned(),
                runs: vec![RunFacts {
                    scenario: "axway-sse".to_owned(),
                    command: "intertie run".to_owned(),
                    config: "topic: <t1>".to_owned(),
                }],
            }],
            rows: vec![row(case, System::Intertie), bad],
            left_out: vec![LeftOut {
                scenario: "idle".to_owned(),
                system: System::Nchan,
                reason: "not found".to_owned(),
                is_failure: true,
            }],
        }
    }

    #[test]
    fn the_page_has_every_part() {
        let page = html::<Streams>(&results());
        for part in [
            "<h2>Axway Streams: documents polled",
            "<tr class=\"ours\"><td>intertie</td><td>5,456</td>",
            "<td class=\"bad\">floor</td>",
            "<tr class=\"published\"><td>Axway Streams</td>",
            "<li>floor: 3 lost.</li>",
            "<p class=\"soft\">Left out: nchan (not found).</p>",
            "<dd>1 &amp; 2</dd>",
            "<pre>topic: &lt;t1&gt;</pre>",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        let count = |part: &str| page.matches(part).count();
        for tag in ["table", "section", "div", "ul", "dl", "tr", "p"] {
            let opened = count(&format!("<{tag}>")) + count(&format!("<{tag} "));
            assert_eq!(opened, count(&format!("</{tag}>")), "{tag}");
        }
    }

    #[test]
    fn results_can_be_read_again() {
        let text = serde_json::to_string(&results()).unwrap();
        let read: Results = serde_json::from_str(&text).unwrap();
        assert_eq!(html::<Streams>(&read), html::<Streams>(&results()));
    }

    #[test]
    fn tables_hold_rows_and_doubts() {
        let case = &cases("axway-sse")[0];
        let mut rows = [row(case, System::Intertie), row(case, System::Floor)];
        rows[0]
            .warnings
            .push("others used 9 % of a core".to_owned());
        let text = case_text::<Streams>(case, &rows, &[]);
        assert!(
            text.starts_with("\naxway-sse: 3000 users, SSE, 100 topics, 50000 B, every 500 ms")
        );
        assert!(text.contains("\n  intertie "), "{text}");
        assert!(text.contains("\n  Axway Streams "), "{text}");
        assert!(
            text.contains("\n  ! intertie: others used 9 % of a core\n"),
            "{text}"
        );
    }
}
