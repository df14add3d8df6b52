//! The table of faults: on stdout, as Markdown, and as a page of its own.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::super::outcome::Machine;
use super::super::report::{STYLE, text::escape};
use super::row::Row;

/// All rows of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Table {
    /// When it began, in UTC.
    pub started: String,
    /// How long a row takes about.
    pub seconds: u64,
    /// How many users sent at once.
    pub users: usize,
    pub machine: Machine,
    /// How the engine was built.
    pub build: String,
    pub rows: Vec<Row>,
}

const HEAD: [&str; 12] = [
    "row",
    "sent",
    "acknowledged",
    "other ends",
    "lost",
    "copies",
    "unanswered, arrived",
    "fault ms",
    "first success ms",
    "steady ms",
    "longest wait ms",
    "peak MB",
];

/// The cells of a row, in the order of [`HEAD`].
fn cells(row: &Row) -> [String; 12] {
    let compared = |figure: fn(&super::tally::Comparison) -> u64| {
        let figure = row.comparison.as_ref().map(figure);
        figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string())
    };
    let each = |figure: fn(&super::row::Recovery) -> Option<f64>| {
        let figures = row.recoveries.iter().map(|it| match figure(it) {
            Some(figure) => format!("{figure:.0}"),
            None => "never".to_owned(),
        });
        let figures: Vec<String> = figures.collect();
        if figures.is_empty() {
            "-".to_owned()
        } else {
            figures.join(" / ")
        }
    };
    [
        row.name.clone(),
        row.sent.to_string(),
        row.acknowledged.to_string(),
        row.refusals(),
        compared(|it| it.lost),
        compared(|it| it.duplicates),
        compared(|it| it.unanswered),
        each(|it| Some(it.fault_ms)),
        each(|it| it.first_ms),
        each(|it| it.steady_ms),
        format!("{:.0}", row.longest_ms),
        format!("{:.0}", row.memory_peak as f64 / 1e6),
    ]
}

/// What is told as soon as a row is done.
pub(super) fn line(row: &Row) -> String {
    let mut text = format!("{} ({:.0} s): ", row.name, row.seconds);
    let problems = row.problems();
    text.push_str(if problems.is_empty() { "good" } else { "BAD" });
    text.push('\n');
    for (name, cell) in HEAD.iter().zip(cells(row)).skip(1) {
        // invariant: writing to a String does not fail.
        let _ = writeln!(text, "    {name}: {cell}");
    }
    for problem in problems {
        let _ = writeln!(text, "    ! {}", shortened(&problem));
    }
    text
}

/// The table for a terminal.
pub(super) fn text(table: &Table) -> String {
    let mut lines = vec![HEAD.map(str::to_owned).to_vec()];
    lines.extend(table.rows.iter().map(|row| cells(row).to_vec()));
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let mut text = String::from("\n");
    for line in &lines {
        let padded = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let padded: Vec<String> = padded.collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    let good = table.rows.iter().filter(|row| row.is_good()).count();
    // invariant: writing to a String does not fail.
    let _ = writeln!(text, "\n{good} of {} rows are good", table.rows.len());
    text
}

/// The table for `docs/results`.
pub(super) fn markdown(table: &Table) -> String {
    let mut text = format!(
        "# Faults\n\n\
         Begun {} on {} ({} cores, Linux {}); {}; {} users, about {} s a row. Written by \
         `intertie-bench faults`; what it does and what the columns mean is said in\n\
         [the lab](../../crates/lab/README.md).\n\n",
        table.started,
        table.machine.processor,
        table.machine.cores,
        table.machine.kernel,
        table.build,
        table.users,
        table.seconds,
    );
    // invariant: writing to a String does not fail.
    let _ = writeln!(text, "| {} |", HEAD.join(" | "));
    let _ = writeln!(text, "|{}", " --- |".repeat(HEAD.len()));
    for row in &table.rows {
        let _ = writeln!(text, "| {} |", cells(row).join(" | "));
    }
    text.push_str("\n## Rows\n");
    for row in &table.rows {
        markdown_row(row, &mut text);
    }
    text
}

fn markdown_row(row: &Row, text: &mut String) {
    // invariant: writing to a String does not fail.
    let _ = writeln!(
        text,
        "\n### {}\n\n{}. Fault: {}.\n",
        row.name, row.path, row.fault
    );
    for problem in row.problems() {
        let _ = writeln!(text, "- **problem**: {}", plain(&problem));
    }
    for check in merged(row) {
        let _ = writeln!(text, "- {}", plain(&check));
    }
    for (kind, samples) in &row.samples {
        for sample in samples.iter().take(1) {
            let _ = writeln!(text, "- {kind}: `{}`", plain(sample).replace('`', "'"));
        }
    }
}

/// What holds, each thing once.
fn merged(row: &Row) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for check in row.checks.iter().filter(|check| check.is_good) {
        let text = match check.seen.is_empty() {
            true => check.what.clone(),
            false => format!("{}: {}", check.what, check.seen),
        };
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts
}

/// One short line.
fn plain(text: &str) -> String {
    let one: Vec<&str> = text.split_whitespace().collect();
    shortened(&one.join(" "))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(600) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The page.
pub(super) fn html(table: &Table) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <title>Intertie faults</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>Intertie faults</h1>\n<p class=\"lead\">{}, {} cores, Linux {}. Begun {}; {}; \
         {} users, about {} s a row.</p>\n<div class=\"wide\"><table>\n<thead><tr>",
        escape(&table.machine.processor),
        table.machine.cores,
        escape(&table.machine.kernel),
        escape(&table.started),
        escape(&table.build),
        table.users,
        table.seconds,
    );
    // invariant: writing to a String does not fail.
    HEAD.iter().for_each(|name| {
        let _ = write!(page, "<th>{name}</th>");
    });
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        page.push_str("<tr>");
        let class = if row.is_good() { "" } else { " class=\"bad\"" };
        for cell in cells(row) {
            let _ = write!(page, "<td{class}>{}</td>", escape(&cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
    for row in &table.rows {
        let _ = write!(
            page,
            "<h3>{}</h3>\n<p>{}. Fault: {}.</p>\n<ul>\n",
            escape(&row.name),
            escape(&row.path),
            escape(&row.fault)
        );
        for problem in row.problems() {
            let _ = writeln!(
                page,
                "<li><b>Problem:</b> {}</li>",
                escape(&plain(&problem))
            );
        }
        for check in merged(row) {
            let _ = writeln!(page, "<li>{}</li>", escape(&plain(&check)));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

#[cfg(test)]
mod tests {
    use super::super::row::Recovery;
    use super::super::tally::Comparison;
    use super::*;

    fn table() -> Table {
        let mut row = Row {
            name: "line".to_owned(),
            path: "HTTP -> queue".to_owned(),
            fault: "broker: <kill>".to_owned(),
            sent: 12,
            acknowledged: 10,
            comparison: Some(Comparison::default()),
            ..Row::default()
        };
        row.refused.insert("503".to_owned(), 2);
        row.recoveries.push(Recovery {
            fault_ms: 5.0,
            first_ms: Some(40.4),
            steady_ms: Some(80.0),
        });
        row.check("it stops", true, "0.1 s");
        row.check("it stops", true, "0.1 s");
        let bad = Row {
            name: "bad".to_owned(),
            error: Some("not done: why".to_owned()),
            ..Row::default()
        };
        Table {
            started: "now".to_owned(),
            seconds: 12,
            users: 100,
            machine: Machine::default(),
            build: "a build".to_owned(),
            rows: vec![row, bad],
        }
    }

    #[test]
    fn texts_hold_all_figures() {
        let text = text(&table());
        assert!(text.contains("line  12    10            503: 2"), "{text}");
        assert!(text.contains("1 of 2 rows are good"), "{text}");
        let lines: Vec<String> = table().rows.iter().map(line).collect();
        assert!(lines[0].contains("line (0 s): good\n"), "{}", lines[0]);
        assert!(lines[1].contains("BAD") && lines[1].contains("! not done: why"));
    }

    #[test]
    fn documents_hold_what_was_seen() {
        let text = markdown(&table());
        assert!(text.contains("| line | 12 | 10 | 503: 2 | 0 | 0 | 0 | 5 | 40 | 80 | 0 | 0 |"));
        assert_eq!(text.matches("- it stops: 0.1 s\n").count(), 1);
        assert!(text.contains("- **problem**: not done: why"));
        let page = html(&table());
        assert!(page.contains("broker: &lt;kill&gt;"));
        assert!(page.contains("<td class=\"bad\">bad</td>"));
    }

    #[test]
    fn results_can_be_read_again() {
        let json = serde_json::to_string(&table()).unwrap();
        let read: Table = serde_json::from_str(&json).unwrap();
        assert_eq!(read.rows.len(), 2);
    }
}
