//! What holds for every Rust file: sizes, what opens it, words that may not stay in it.

use std::path::Path;

use super::code::Code;
use super::{File, Problems};

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

/// Written in parts, so that this file does not hold them itself.
const LEFTOVERS: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("db", "g!("),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
];

/// How a test names what starts servers.
const SERVERS: &str = concat!("testkit::", "servers");

/// Calls that panic on what may well happen.
const PANICS: [&str; 4] = [".unwrap()", ".expect(", ".unwrap_err()", ".expect_err("];

pub(super) fn check(files: &[File], problems: &mut Problems) {
    for file in files.iter().filter(|file| file.is("rs")) {
        check_file(file, problems);
    }
}

/// Whether the whole file is test code.
fn is_test(path: &Path) -> bool {
    let is_test_name = path
        .file_name()
        .is_some_and(|name| name == "tests.rs" || name == "testing.rs");
    is_test_name
        || path.iter().any(|part| part == "tests" || part == "testing")
        || path.starts_with("crates/testkit")
        || path.starts_with("fuzz")
}

/// Whether the tests in a file are run before the servers have been installed.
fn is_library_without_servers(path: &Path) -> bool {
    let mut parts = path.iter().filter_map(|part| part.to_str());
    parts.next() == Some("crates")
        && parts
            .next()
            .is_some_and(|name| !crate::LIBRARIES_WITH_SERVERS.contains(&name))
        && parts.next() == Some("src")
}

pub(super) fn check_file(file: &File, problems: &mut Problems) {
    let mut code = Code::new(&file.text);
    if is_test(&file.path) {
        code.in_test.fill(true);
    }
    if !code.raw.first().is_some_and(|line| line.starts_with("//!")) {
        let message = "the file does not open with `//!` and what it is for";
        problems.add(&file.path, 1, message);
    }
    let product = code.in_test.iter().filter(|it| !**it).count();
    if product > FILE_LINES_MAX {
        let message = format!("{product} lines; at most {FILE_LINES_MAX}");
        problems.add(&file.path, FILE_LINES_MAX, message);
    }
    for (number, line) in code.raw.iter().enumerate() {
        check_line(file, &code, number, line, problems);
        if line.contains(SERVERS) && is_library_without_servers(&file.path) {
            let message = "library tests of this crate run before servers are installed: \
                           write an integration test, or see `LIBRARIES_WITH_SERVERS`";
            problems.add(&file.path, number + 1, message);
        }
    }
    check_functions(file, &code, problems);
    check_panics(file, &code, problems);
}

fn check_line(file: &File, code: &Code, number: usize, line: &str, problems: &mut Problems) {
    // Tables of test data and links cannot be broken.
    let in_test = code.in_test.get(number) == Some(&true);
    let may_be_long = in_test && line.contains('"') || line.contains("://");
    if line.chars().count() > COLUMNS_MAX && !may_be_long {
        let message = format!("more than {COLUMNS_MAX} columns");
        problems.add(&file.path, number + 1, message);
    }
    for word in LEFTOVERS {
        if line.contains(word) {
            problems.add(&file.path, number + 1, format!("`{word}` may not stay"));
        }
    }
}

fn check_functions(file: &File, code: &Code, problems: &mut Problems) {
    for (number, line) in code.lines.iter().enumerate() {
        if code.in_test.get(number) == Some(&true) || !is_function(line) {
            continue;
        }
        let length = code.item_end(number) - number + 1;
        if length > FUNCTION_LINES_MAX {
            let message = format!("{length} lines; at most {FUNCTION_LINES_MAX}");
            problems.add(&file.path, number + 1, message);
        }
    }
}

fn is_function(line: &str) -> bool {
    let Some((before, _)) = line.split_once("fn ") else {
        return false;
    };
    let modifiers = ["pub", "const", "async", "unsafe", "extern", "default"];
    before
        .split_ascii_whitespace()
        .all(|word| modifiers.contains(&word) || word.starts_with("pub(") || word.ends_with(')'))
        && !before.ends_with(|letter: char| letter.is_alphanumeric() || letter == '(')
}

fn check_panics(file: &File, code: &Code, problems: &mut Problems) {
    for (number, line) in code.lines.iter().enumerate() {
        let raw = |number: usize| code.raw.get(number).copied().unwrap_or_default();
        let is_explained = raw(number).contains("// invariant: ")
            || number > 0 && raw(number - 1).contains("// invariant: ");
        let panics = PANICS.iter().any(|call| line.contains(call));
        if panics && !is_explained && code.in_test.get(number) == Some(&false) {
            let message = "a panic; handle it, or write `// invariant: why it cannot happen`";
            problems.add(&file.path, number + 1, message);
        }
    }
}
