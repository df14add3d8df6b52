//! The page of a run: one HTML file without scripts.

use std::fmt::Write as _;

use super::{Results, Row, Suite};
use crate::bench::outcome::Contender;
use crate::bench::report::text::{escape, grouped, percent};
use crate::bench::report::{STYLE, systems};

/// The page.
pub(in crate::bench) fn html<S: Suite>(results: &Results<S>) -> String {
    let machine = &results.machine;
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <main>\n<header>\n<h1>{}</h1>\n<p class=\"lead\">{}, {} cores, \
         Linux {}. Begun {}; {} rounds of {} s after {} s of warm-up.</p>\n</header>\n",
        S::TITLE,
        S::TITLE,
        escape(&machine.processor),
        machine.cores,
        escape(&machine.kernel),
        escape(&results.started),
        results.method.rounds,
        results.method.seconds,
        results.method.warm_up,
    );
    page.push_str(&contents::<S>(results));
    let _ = write!(
        page,
        "<section id=\"method\">\n<h2>Method</h2>\n{}<p>Samples in which others used more \
         than {} of a core were taken again.</p>\n<dl><dt>Cores</dt><dd>{}</dd><dt>Memory</dt>\
         <dd>{} MiB</dd><dt>Command</dt><dd><code>{}</code></dd></dl>\n</section>\n",
        S::METHOD,
        percent(results.method.foreign_max),
        escape(&machine.layout),
        grouped(machine.memory_mib as f64),
        escape(&results.command),
    );
    for (name, title) in measured::<S>(results) {
        scenario::<S>(&mut page, results, name, title);
    }
    page.push_str(&systems(&results.systems));
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn measured<S: Suite>(results: &Results<S>) -> impl Iterator<Item = (&'static str, &'static str)> {
    let has = |name: &str| {
        let failed = results.left_out.iter().filter(|it| it.is_failure);
        let mut named = failed.map(|it| &it.scenario);
        let mut rows = results.rows.iter();
        rows.any(|row| S::scenario(&row.case) == name) || named.any(|it| it == name)
    };
    let scenarios = S::SCENARIOS.iter().copied();
    scenarios.filter(move |(name, _)| has(name))
}

fn contents<S: Suite>(results: &Results<S>) -> String {
    let mut text = String::from("<nav><ul>\n<li><a href=\"#method\">Method</a></li>\n");
    for (name, _) in measured::<S>(results) {
        // invariant: writing to a String does not fail.
        let _ = writeln!(text, "<li><a href=\"#{name}\">{name}</a></li>");
    }
    text.push_str("<li><a href=\"#systems\">Systems</a></li>\n</ul></nav>\n");
    text
}

fn scenario<S: Suite>(page: &mut String, results: &Results<S>, name: &str, title: &str) {
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
    let of_scenario = |row: &&Row<S>| S::scenario(&row.case) == name;
    let mut cases: Vec<&S::Case> = Vec::new();
    for row in results.rows.iter().filter(of_scenario) {
        if !cases.contains(&&row.case) {
            cases.push(&row.case);
        }
    }
    for case in cases {
        let rows = results.rows.iter().filter(|row| row.case == *case);
        table::<S>(page, case, &rows.collect::<Vec<_>>(), &results.rows);
    }
    page.push_str("</section>\n");
}

fn table<S: Suite>(page: &mut String, case: &S::Case, rows: &[&Row<S>], all: &[Row<S>]) {
    let _ = write!(
        page,
        "<h3>{}</h3>\n<div class=\"wide\"><table>\n<thead><tr>",
        escape(&S::label(case))
    );
    for name in S::head(case) {
        let _ = write!(page, "<th>{}</th>", escape(name));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for (row, cells) in rows.iter().zip(S::cells(rows)) {
        let class = match row.system == S::System::INTERTIE {
            true => " class=\"ours\"",
            false => "",
        };
        line(page, class, &cells, S::faults(&row.median) > 0);
    }
    if let Some(cells) = S::published(case) {
        line(page, " class=\"published\"", &cells, false);
    }
    page.push_str("</tbody></table></div>\n");
    for sentence in S::sentences(case, rows, all) {
        let _ = writeln!(page, "<p>{}.</p>", escape(&sentence));
    }
    notes::<S>(page, rows);
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

fn notes<S: Suite>(page: &mut String, rows: &[&Row<S>]) {
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
