//! The examples of the page on expressions.

use expr::{Limits, function_names};

use super::support::{World, compiled, parsed};

const PAGE: &str = include_str!("../../../../docs/expressions.md");

/// The cells of the rows whose every example cell is code.
fn rows(columns: usize) -> Vec<Vec<String>> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `"));
    let rows = rows.map(|line| {
        let line = line.trim_matches('|').replace("\\|", "\u{1}");
        let cells = line
            .split('|')
            .map(|cell| cell.trim().trim_matches('`').replace('\u{1}', "|"));
        cells.collect::<Vec<_>>()
    });
    rows.filter(|cells| cells.len() == columns).collect()
}

fn check(input: &str, code: &str, expected: &str) {
    let result = compiled(code).evaluate(&parsed(input), &World, &Limits::default());
    match result {
        Ok(value) => assert_eq!(value.to_string(), expected, "{code} of {input}"),
        Err(error) => panic!("{code} of {input}: {error}"),
    }
}

#[test]
fn the_examples_give_what_the_page_says() {
    for cells in rows(3) {
        check(&cells[0], &cells[1], &cells[2]);
    }
    for cells in rows(5) {
        check(&cells[2], &cells[3], &cells[4]);
    }
}

#[test]
fn every_function_that_is_added_has_a_row() {
    let rows = rows(5);
    let listed: Vec<(&str, &str)> = rows
        .iter()
        .map(|it| (it[0].as_str(), it[1].as_str()))
        .collect();
    let functions = function_names().into_iter();
    let functions = functions.map(|(name, what)| (name, what.trim_matches('`')));
    assert_eq!(listed, functions.collect::<Vec<_>>());
}
