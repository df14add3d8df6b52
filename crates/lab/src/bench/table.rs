//! The table on stdout.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use super::glu::facts::{self, Landmark};
use super::published;
use super::results::{Case, Results, Row};
use super::scenario::{Scenario, System};

const HEAD: [&str; 14] = [
    "system",
    "req/s",
    "mean ms",
    "stddev",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "max",
    "errors",
    "CPU us/req",
    "core",
    "load",
    "MB peak/settled",
];
/// The last column: the CPU time of Intertie for that of this system.
pub(crate) const RATIO: &str = "intertie/it";

/// Prints the rows of one case.
pub(super) fn print_case(scenario: &Scenario, case: &Case, rows: &[Row]) -> anyhow::Result<()> {
    print(&case_text(scenario, case, rows))
}

/// Prints who was left out, scenario, system and reason of each, and where the files are.
///
/// # Errors
/// When stdout takes nothing.
pub(super) fn print_end<'a>(
    left_out: impl Iterator<Item = [&'a str; 3]>,
    folder: &Path,
) -> anyhow::Result<()> {
    let mut text = String::new();
    for [scenario, system, reason] in left_out {
        // invariant: writing to a String does not fail.
        let _ = writeln!(text, "left out of {scenario}: {system}: {reason}");
    }
    let files = ["report.html", "results.json"].map(|name| folder.join(name));
    let _ = writeln!(text, "{}\n{}", files[0].display(), files[1].display());
    print(&text)
}

/// Prints a text.
///
/// # Errors
/// When stdout takes nothing.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// The table of a case, with the names of its columns.
fn lines(case: &Case, rows: &[Row]) -> Vec<Vec<String>> {
    let mut lines = vec![HEAD.map(str::to_owned).to_vec()];
    if let Some(first) = lines.first_mut() {
        first.push(RATIO.to_owned());
    }
    let ours = rows.iter().find(|row| row.system == System::Intertie);
    lines.extend(rows.iter().map(|row| cells(row, ours)));
    if let Some(row) = published::find(case) {
        lines.push(published_cells(&[
            (1, format!("{:.0}", row.throughput)),
            (2, format!("{:.2}", row.mean)),
            (3, format!("{:.2}", row.stddev)),
            (6, format!("{:.2}", row.p99)),
            (9, format!("{:.0}", row.errors)),
        ]));
    }
    lines.extend(facts::landmarks(case).iter().map(landmark));
    lines
}

fn case_text(scenario: &Scenario, case: &Case, rows: &[Row]) -> String {
    let lines = lines(case, rows);
    let mut text = format!("\n{}: {}\n", scenario.title, case.label());
    text.push_str(&aligned(&lines));
    for line in facts::lines(case, &rows.iter().collect::<Vec<_>>()) {
        let _ = writeln!(text, "  {line}");
    }
    for row in rows {
        for warning in &row.warnings {
            let _ = writeln!(text, "  note, {}: {warning}", row.system.name());
        }
        if row.repeated > 0 {
            let name = row.system.name();
            let _ = writeln!(text, "  note, {name}: {} samples taken again", row.repeated);
        }
    }
    text
}

/// A published row, in which only some columns are known.
fn published_cells(known: &[(usize, String)]) -> Vec<String> {
    let cell = |index: usize| known.iter().find(|(at, _)| *at == index);
    let text = |index: usize| {
        cell(index)
            .map_or("-", |(_, text)| text.as_str())
            .to_owned()
    };
    let first = ["(published)".to_owned()];
    first
        .into_iter()
        .chain((1..=HEAD.len()).map(text))
        .collect()
}

fn landmark(row: &Landmark) -> Vec<String> {
    let mut known = vec![(1, format!("{:.0}", row.tps))];
    known.extend(row.error_percent.map(|percent| (9, format!("{percent} %"))));
    known.extend(row.cpu().map(|cpu| (10, format!("<{cpu:.0}"))));
    published_cells(&known)
}

fn cells(row: &Row, ours: Option<&Row>) -> Vec<String> {
    let figures = &row.median;
    let latency = &figures.latency;
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let percent = |part: f64| format!("{:.0}%", part * 100.0);
    let time = |milliseconds: f64| match figures.has_latency() {
        true => format!("{milliseconds:.2}"),
        false => "-".to_owned(),
    };
    let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    let memory = figures.memory_peak.zip(figures.memory_settled);
    let memory = memory.map(|(peak, settled)| [peak, settled].map(megabytes).join("/"));
    let ratio = ours.and_then(|ours| ours.cpu_for(row));
    vec![
        row.system.name().to_owned(),
        format!("{:.0}", figures.throughput),
        time(latency.mean),
        time(latency.stddev),
        time(latency.at(50.0)),
        time(latency.at(90.0)),
        time(latency.at(99.0)),
        time(latency.at(99.9)),
        time(latency.max),
        figures.errors.to_string(),
        or_dash(figures.cpu.map(|cpu| format!("{cpu:.2}"))),
        or_dash(figures.core.map(percent)),
        percent(figures.load_core),
        or_dash(memory),
        or_dash(ratio.map(|ratio| ratio.to_string())),
    ]
}

/// Some columns of tables as Markdown, each line behind the name of its case. A bar in a cell
/// would begin another one.
pub(super) fn markdown(tables: &[(String, Vec<Vec<String>>)], columns: &[&str]) -> String {
    let row = |cells: &mut dyn Iterator<Item = String>| {
        let cells: Vec<String> = cells.map(|it| it.replace('|', "/")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = String::new();
    for (case, lines) in tables {
        let Some((head, lines)) = lines.split_first() else {
            continue;
        };
        let at = |column: &&str| head.iter().position(|name| name == column);
        let places: Vec<usize> = columns.iter().filter_map(at).collect();
        let cell = |line: &[String], at: usize| line.get(at).cloned().unwrap_or_default();
        let header: Vec<&String> = places.iter().filter_map(|at| head.get(*at)).collect();
        if text.is_empty() {
            let names = header.iter().map(|name| (*name).clone());
            text.push_str(&row(&mut ["case".to_owned()].into_iter().chain(names)));
            let rules = places.iter().enumerate();
            let rules = rules.map(|(index, _)| if index == 0 { "---" } else { "---:" }.to_owned());
            text.push_str(&row(&mut ["---".to_owned()].into_iter().chain(rules)));
        }
        for line in lines {
            let cells = places.iter().map(|at| cell(line, *at));
            text.push_str(&row(&mut [case.clone()].into_iter().chain(cells)));
        }
    }
    text
}

/// All rows of a run as Markdown.
pub(super) fn markdown_of(results: &Results) -> String {
    let mut tables: Vec<(String, Vec<Vec<String>>)> = Vec::new();
    let mut rows = results.rows.as_slice();
    while let Some(first) = rows.first() {
        let count = rows.iter().take_while(|row| row.case == first.case).count();
        let (of_case, rest) = rows.split_at(count);
        let case = format!("{}: {}", first.case.scenario, first.case.label());
        tables.push((case, lines(&first.case, of_case)));
        rows = rest;
    }
    let columns = [
        "system",
        "req/s",
        "p50",
        "p99",
        "CPU us/req",
        RATIO,
        "errors",
    ];
    markdown(&tables, &columns)
}

/// Columns under each other: the first to the left, numbers to the right.
pub(super) fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        for (index, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let _ = match index {
                0 => write!(text, "  {cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::results::testing::row;
    use super::super::scenario::HTTP;
    use super::*;

    #[test]
    fn tables_become_markdown_of_the_columns_that_are_wanted() {
        let line = |texts: [&str; 3]| texts.map(str::to_owned).to_vec();
        let table = vec![line(["system", "p50", "errors"]), line(["a|b", "1", "0"])];
        let tables = [("x".to_owned(), table.clone()), ("y".to_owned(), table)];
        let text = markdown(&tables, &["system", "errors", "absent"]);
        let wanted = "| case | system | errors |\n| --- | --- | ---: |\n\
                      | x | a/b | 0 |\n| y | a/b | 0 |\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn a_case_becomes_a_table() {
        let mut rows = [
            row(System::Intertie, &[9.0]),
            row(System::HaProxy, &[12.0]),
            row(System::Direct, &[]),
        ];
        rows[1].warnings.push("doubtful".to_owned());
        let text = case_text(&HTTP[0], &rows[0].case, &rows);
        let line = |start: &str| {
            text.lines()
                .find(|line| line.trim().starts_with(start))
                .unwrap()
        };
        assert!(line("intertie").ends_with("1.00"), "{text}");
        assert!(line("haproxy").ends_with("0.75"), "{text}");
        assert!(line("direct").ends_with('-'), "{text}");
        assert!(line("(published)").contains("19551"), "{text}");
        assert!(text.contains("note, haproxy: doubtful"), "{text}");
        assert_eq!(line("system").len(), line("haproxy").len());
    }
}
