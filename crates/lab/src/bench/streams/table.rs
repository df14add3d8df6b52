//! The table on stdout.

use std::fmt::Write as _;

use super::case::Case;
use super::cells;
use super::results::{Results, Row};
use crate::bench::table::{RATIO, aligned, markdown, print};

/// All rows of a run as Markdown.
pub(in crate::bench) fn markdown_of(results: &Results) -> String {
    let mut tables = Vec::new();
    let mut rows = results.rows.as_slice();
    while let Some(first) = rows.first() {
        let count = rows.iter().take_while(|row| row.case == first.case).count();
        let (of_case, rest) = rows.split_at(count);
        let case = format!("{}: {}", first.case.scenario, first.case.label());
        tables.push((
            case,
            lines(&first.case, &of_case.iter().collect::<Vec<_>>()),
        ));
        rows = rest;
    }
    let columns = [
        "system",
        "deliveries/s",
        "p50 ms",
        "p99",
        "max",
        "CPU µs each",
        RATIO,
        "errors",
    ];
    markdown(&tables, &columns)
}

/// Prints the rows of one case, with those of the cases before it to compare them with.
///
/// # Errors
/// When stdout takes nothing.
pub(super) fn print_case(case: &Case, rows: &[Row], before: &[Row]) -> anyhow::Result<()> {
    print(&case_text(case, rows, before))
}

/// The table of a case, with the names of its columns.
fn lines(case: &Case, rows: &[&Row]) -> Vec<Vec<String>> {
    let head = cells::head(case).iter().map(|name| (*name).to_owned());
    let mut lines: Vec<Vec<String>> = vec![head.collect()];
    lines.extend(cells::cells(rows));
    lines.extend(cells::published_cells(case));
    lines
}

fn case_text(case: &Case, rows: &[Row], before: &[Row]) -> String {
    let rows = rows.iter().collect::<Vec<_>>();
    let lines = lines(case, &rows);
    let mut text = format!("\n{}: {}\n", case.scenario, case.label());
    text.push_str(&aligned(&lines));
    for line in cells::sentences(case, &rows, before) {
        let _ = writeln!(text, "  {line}");
    }
    for row in rows {
        for warning in &row.warnings {
            let _ = writeln!(text, "  ! {}: {warning}", row.system.name());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::cells::tests::{cases, row};
    use super::super::system::System;
    use super::*;

    #[test]
    fn tables_hold_rows_and_doubts() {
        let case = &cases("axway-sse")[0];
        let mut rows = [row(case, System::Intertie), row(case, System::Floor)];
        rows[0]
            .warnings
            .push("others used 9 % of a core".to_owned());
        let text = case_text(case, &rows, &[]);
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
