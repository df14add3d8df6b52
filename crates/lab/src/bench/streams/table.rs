//! The table on stdout.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use super::case::Case;
use super::cells;
use super::results::{Results, Row};

/// Prints the rows of one case.
///
/// # Errors
/// When stdout takes nothing.
pub(super) fn print_case(case: &Case, rows: &[Row]) -> anyhow::Result<()> {
    print(&case_text(case, rows))
}

/// Prints who was left out, and where the files are.
///
/// # Errors
/// When stdout takes nothing.
pub(super) fn print_end(results: &Results, folder: &Path) -> anyhow::Result<()> {
    let mut text = String::new();
    for it in &results.left_out {
        // invariant: writing to a String does not fail.
        let _ = writeln!(
            text,
            "left out of {}: {}: {}",
            it.scenario,
            it.system.name(),
            it.reason
        );
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

fn case_text(case: &Case, rows: &[Row]) -> String {
    let head = cells::head(case).iter().map(|name| (*name).to_owned());
    let mut lines: Vec<Vec<String>> = vec![head.collect()];
    lines.extend(rows.iter().map(cells::cells));
    lines.extend(cells::published_cells(case));
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..cells::head(case).len()).map(width).collect();
    let mut text = format!("\n{}: {}\n", case.scenario, case.label());
    for line in &lines {
        let padded =
            line.iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, width))| match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                });
        let padded: Vec<String> = padded.collect();
        let _ = writeln!(text, "  {}", padded.join("  ").trim_end());
    }
    for line in cells::sentences(case, &rows.iter().collect::<Vec<_>>()) {
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
        let text = case_text(case, &rows);
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
