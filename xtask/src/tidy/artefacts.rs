//! What nobody reads does not stay in the tree: what programs leave behind when they crash, reports
//! that a command makes again, and files that are too large for a reader.

use std::path::{Path, PathBuf};

use super::Problems;

const BYTES_MAX: u64 = 64 * 1024;

/// Files that may be larger, and why.
pub(super) const LARGE: &[(&str, &str)] = &[
    ("Cargo.lock", "written by cargo"),
    ("fuzz/Cargo.lock", "written by cargo"),
    (
        "crates/access/tests/data/json_web_signature_test.json",
        "Wycheproof's vectors of signatures, as they are",
    ),
    (
        "crates/expr/tests/data/gojq.json",
        "the tests of another implementation of jq, as they are",
    ),
    (
        "crates/expr/tests/data/jaq.test",
        "the tests of another implementation of jq, as they are",
    ),
    (
        "crates/steps/tests/data/json-schema/cases.jsonl",
        "the JSON-Schema-Test-Suite, a group of tests on each line",
    ),
    (
        "docs/reference/flow-file.schema.json",
        "editors fetch it by its address; written by `intertie schema`",
    ),
];

/// What a program leaves behind that crashed, was traced, or merged something.
const LEFT_BEHIND: [&str; 7] = [
    ".dump", ".core", ".dmp", ".prof", ".profraw", ".orig", ".rej",
];

/// Where results of measurements are, and the kinds of files that may be there.
const RESULTS: &str = "docs/results";
const RESULT_KINDS: [&str; 2] = ["md", "csv"];

/// Checks all files, those too that hold no text, by their paths and sizes.
pub(super) fn check(sizes: &[(PathBuf, u64)], problems: &mut Problems) {
    for (path, bytes) in sizes {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if LEFT_BEHIND.iter().any(|end| name.ends_with(end)) || name == "core" {
            problems.add(path, 1, "a program has left this behind; remove it");
        }
        let kind = path.extension().unwrap_or_default();
        if path.starts_with(RESULTS) && !RESULT_KINDS.iter().any(|it| kind == *it) {
            let message = "results stay as pages and tables (`intertie-bench report --csv`); \
                           reports and raw results are written below target/";
            problems.add(path, 1, message);
        }
        if *bytes > BYTES_MAX && !LARGE.iter().any(|(known, _)| path == Path::new(known)) {
            let message = format!(
                "{bytes} bytes; at most {BYTES_MAX}, or a reason in xtask/src/tidy/artefacts.rs"
            );
            problems.add(path, 1, message);
        }
    }
    for (known, _) in LARGE {
        let is_large =
            |(path, bytes): &(PathBuf, u64)| path == Path::new(known) && *bytes > BYTES_MAX;
        if !sizes.iter().any(is_large) {
            let message = "is not large any more; take it from xtask/src/tidy/artefacts.rs";
            problems.add(Path::new(known), 1, message);
        }
    }
}
