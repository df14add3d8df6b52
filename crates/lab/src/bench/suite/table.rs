//! The tables of a suite: on stdout as the run goes on, and as Markdown.

use std::fmt::Write as _;

use super::{Results, Row, Suite};
use crate::bench::outcome::Contender;
use crate::bench::table::{aligned, markdown, print};

/// All rows of a run as Markdown.
pub(in crate::bench) fn markdown_of<S: Suite>(results: &Results<S>) -> String {
    let mut tables = Vec::new();
    let mut rows = results.rows.as_slice();
    while let Some(first) = rows.first() {
        let count = rows.iter().take_while(|row| row.case == first.case).count();
        let (of_case, rest) = rows.split_at(count);
        let case = format!("{}: {}", S::scenario(&first.case), S::label(&first.case));
        tables.push((
            case,
            lines::<S>(&first.case, &of_case.iter().collect::<Vec<_>>()),
        ));
        rows = rest;
    }
    markdown(&tables, S::COLUMNS)
}

/// Prints the rows of one case, with those of the cases before it to compare them with.
///
/// # Errors
/// When stdout takes nothing.
pub(super) fn print_case<S: Suite>(
    case: &S::Case,
    rows: &[Row<S>],
    before: &[Row<S>],
) -> anyhow::Result<()> {
    print(&case_text::<S>(case, rows, before))
}

/// The table of a case, with the names of its columns.
fn lines<S: Suite>(case: &S::Case, rows: &[&Row<S>]) -> Vec<Vec<String>> {
    let head = S::head(case).iter().map(|name| (*name).to_owned());
    let mut lines: Vec<Vec<String>> = vec![head.collect()];
    lines.extend(S::cells(rows));
    lines.extend(S::published(case));
    lines
}

/// The table of a case, what it shows, and what to doubt.
pub(in crate::bench) fn case_text<S: Suite>(
    case: &S::Case,
    rows: &[Row<S>],
    before: &[Row<S>],
) -> String {
    let rows = rows.iter().collect::<Vec<_>>();
    let lines = lines::<S>(case, &rows);
    let mut text = format!("\n{}: {}\n", S::scenario(case), S::label(case));
    text.push_str(&aligned(&lines));
    for line in S::sentences(case, &rows, before) {
        // invariant: writing to a String does not fail.
        let _ = writeln!(text, "  {line}");
    }
    for row in rows {
        for warning in &row.warnings {
            let _ = writeln!(text, "  ! {}: {warning}", row.system.name());
        }
    }
    text
}
