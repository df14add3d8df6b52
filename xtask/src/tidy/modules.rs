//! Dead files: every Rust file of a crate is reached from its entry by `mod` lines.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::code::Code;
use super::{File, Problems};

pub(super) fn check(files: &[File], problems: &mut Problems) {
    let sources: Vec<&File> = files
        .iter()
        .filter(|file| file.is("rs") && is_of_crate(&file.path))
        .collect();
    let mut reached: BTreeSet<&Path> = BTreeSet::new();
    let entries = sources.iter().filter(|file| is_entry(&file.path));
    let mut waiting: Vec<&File> = entries.copied().collect();
    while let Some(file) = waiting.pop() {
        if reached.insert(&file.path) {
            let named = modules(file);
            waiting.extend(sources.iter().filter(|it| named.contains(&it.path)));
        }
    }
    for file in sources {
        if !reached.contains(file.path.as_path()) {
            problems.add(&file.path, 1, "no `mod` line leads here");
        }
    }
}

/// Whether the file lies in `src`, or in the folder of a test binary.
fn is_of_crate(path: &Path) -> bool {
    let parts: Vec<_> = path.iter().collect();
    parts.iter().any(|part| *part == "src" || *part == "tests")
}

fn is_entry(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(Path::new(""));
    let is_named = path
        .file_name()
        .is_some_and(|name| name == "lib.rs" || name == "main.rs");
    // tests/x.rs is a binary of its own, and so is tests/x/main.rs.
    let is_test = folder.ends_with("tests") && !folder.iter().any(|part| part == "src");
    is_named && !folder.iter().any(|part| part == "tests")
        || is_test
        || (is_named && folder.parent().is_some_and(|it| it.ends_with("tests")))
}

/// The files that a file's `mod` lines may mean.
fn modules(file: &File) -> BTreeSet<PathBuf> {
    let folder = file.path.parent().unwrap_or(Path::new(""));
    let folder = match file.path.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") | None => folder.to_path_buf(),
        Some(stem) => folder.join(stem),
    };
    let mut named = BTreeSet::new();
    for line in Code::new(&file.text).lines {
        let Some(rest) = line.trim().strip_suffix(';') else {
            continue;
        };
        let mut words = rest.split_ascii_whitespace().rev();
        if let (Some(name), Some("mod")) = (words.next(), words.next()) {
            named.insert(folder.join(format!("{name}.rs")));
            named.insert(folder.join(name).join("mod.rs"));
        }
    }
    named
}
