//! The table on stdout.

use std::fmt::Write as _;

use super::case::Case;
use super::cells;
use super::results::Row;
use crate::bench::table::{aligned, print};

/// Prints the rows of one case, with those of the cases before it to compare them with.
///
/// # Errors
/// When stdout takes nothing.
pub(super) fn print_case(case: &Case, rows: &[Row], before: &[Row]) -> anyhow::Result<()> {
    print(&case_text(case, rows, before))
}

fn case_text(case: &Case, rows: &[Row], before: &[Row]) -> String {
    let head = cells::head(case).iter().map(|name| (*name).to_owned());
    let mut lines: Vec<Vec<String>> = vec![head.collect()];
    let rows = rows.iter().collect::<Vec<_>>();
    lines.extend(cells::cells(&rows));
    lines.extend(cells::published_cells(case));
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
