//! Cells that do not hold yet.

/// A row, and the columns in which it fails: their names, `*` for each part that does not matter.
const KNOWN: &[(&str, &str)] = &[];

/// Whether a cell is one of them.
pub fn is_known(row: &str, column: &str) -> bool {
    KNOWN
        .iter()
        .any(|(known, pattern)| *known == row && fits(pattern, column))
}

fn fits(pattern: &str, column: &str) -> bool {
    let mut parts = column.split('-');
    pattern
        .split('-')
        .all(|it| parts.next().is_some_and(|part| it == "*" || it == part))
}
