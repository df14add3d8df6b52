//! The page of a run: one HTML file without scripts.

use std::fmt::Write as _;

use super::case::{Case, SCENARIOS};
use super::cells;
use super::results::{Results, Row};
use super::system::System;
use crate::bench::report::text::{escape, grouped, percent};
use crate::bench::report::{STYLE, systems};

/// What the suite does, for whoever reads the page alone.
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

/// The page.
pub(in crate::bench) fn html(results: &Results) -> String {
    let machine = &results.machine;
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>Intertie streams benchmark</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <main>\n<header>\n<h1>Intertie streams benchmark</h1>\n<p class=\"lead\">{}, {} cores, \
         Linux {}. Begun {}; {} rounds of {} s after {} s of warm-up.</p>\n</header>\n",
        escape(&machine.processor),
        machine.cores,
        escape(&machine.kernel),
        escape(&results.started),
        results.method.rounds,
        results.method.seconds,
        results.method.warm_up,
    );
    page.push_str(&contents(results));
    let _ = write!(
        page,
        "<section id=\"method\">\n<h2>Method</h2>\n{METHOD}<p>Samples in which others used more \
         than {} of a core were taken again.</p>\n<dl><dt>Cores</dt><dd>{}</dd><dt>Memory</dt>\
         <dd>{} MiB</dd><dt>Command</dt><dd><code>{}</code></dd></dl>\n</section>\n",
        percent(results.method.foreign_max),
        escape(&machine.layout),
        grouped(machine.memory_mib as f64),
        escape(&results.command),
    );
    for (name, title) in measured(results) {
        scenario(&mut page, results, name, title);
    }
    page.push_str(&systems(&results.systems));
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn measured(results: &Results) -> impl Iterator<Item = (&'static str, &'static str)> {
    let has = |name: &str| {
        let failed = results.left_out.iter().filter(|it| it.is_failure);
        let mut named = failed.map(|it| &it.scenario);
        results.rows.iter().any(|row| row.case.scenario == name) || named.any(|it| it == name)
    };
    SCENARIOS.into_iter().filter(move |(name, _)| has(name))
}

fn contents(results: &Results) -> String {
    let mut text = String::from("<nav><ul>\n<li><a href=\"#method\">Method</a></li>\n");
    for (name, _) in measured(results) {
        // invariant: writing to a String does not fail.
        let _ = writeln!(text, "<li><a href=\"#{name}\">{name}</a></li>");
    }
    text.push_str("<li><a href=\"#systems\">Systems</a></li>\n</ul></nav>\n");
    text
}

fn scenario(page: &mut String, results: &Results, name: &str, title: &str) {
    // invariant: writing to a String does not fail.
    let _ = writeln!(page, "<section id=\"{name}\">\n<h2>{}</h2>", escape(title));
    let left_out = results.left_out.iter().filter(|it| it.scenario == name);
    let reasons = left_out.map(|it| format!("{} ({})", it.system.name(), escape(&it.reason)));
    let reasons: Vec<String> = reasons.collect();
    if !reasons.is_empty() {
        let _ = writeln!(
            page,
            "<p class=\"soft\">Left out: {}.</p>",
            reasons.join("; ")
        );
    }
    let mut cases: Vec<&Case> = Vec::new();
    for row in results.rows.iter().filter(|row| row.case.scenario == name) {
        if !cases.contains(&&row.case) {
            cases.push(&row.case);
        }
    }
    for case in cases {
        let rows = results.rows.iter().filter(|row| row.case == *case);
        table(page, case, &rows.collect::<Vec<_>>(), &results.rows);
    }
    page.push_str("</section>\n");
}

fn table(page: &mut String, case: &Case, rows: &[&Row], all: &[Row]) {
    let _ = write!(
        page,
        "<h3>{}</h3>\n<div class=\"wide\"><table>\n<thead><tr>",
        escape(&case.label())
    );
    for name in cells::head(case) {
        let _ = write!(page, "<th>{}</th>", escape(name));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for (row, cells) in rows.iter().zip(cells::cells(rows)) {
        let class = match row.system {
            System::Intertie => " class=\"ours\"",
            _ => "",
        };
        line(page, class, &cells, !row.is_good());
    }
    if let Some(cells) = cells::published_cells(case) {
        line(page, " class=\"published\"", &cells, false);
    }
    page.push_str("</tbody></table></div>\n");
    for sentence in cells::sentences(case, rows, all) {
        let _ = writeln!(page, "<p>{}.</p>", escape(&sentence));
    }
    notes(page, rows);
}

fn line(page: &mut String, class: &str, cells: &[String], is_bad: bool) {
    let _ = write!(page, "<tr{class}>");
    for (column, cell) in cells.iter().enumerate() {
        let class = if is_bad && column == 0 {
            " class=\"bad\""
        } else {
            ""
        };
        let _ = write!(page, "<td{class}>{}</td>", escape(cell));
    }
    page.push_str("</tr>\n");
}

fn notes(page: &mut String, rows: &[&Row]) {
    let mut notes = Vec::new();
    for row in rows {
        let name = row.system.name();
        notes.extend(
            row.warnings
                .iter()
                .map(|warning| format!("{name}: {warning}.")),
        );
        if row.repeated > 0 {
            notes.push(format!(
                "{name}: {} samples were taken again.",
                row.repeated
            ));
        }
    }
    if !notes.is_empty() {
        let notes = notes
            .iter()
            .map(|note| format!("<li>{}</li>\n", escape(note)));
        let notes: String = notes.collect();
        let _ = write!(page, "<ul class=\"notes\">\n{notes}</ul>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::tests::{cases, row};
    use super::super::results::SUITE;
    use super::*;
    use crate::bench::outcome::{LeftOut, Machine, Method, RunFacts, SystemFacts};

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
        let page = html(&results());
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
        assert_eq!(html(&read), html(&results()));
    }
}
