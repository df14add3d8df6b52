//! What holds for every Rust file: sizes, what opens it, words that may not stay in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{File, Problems};

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

pub(super) fn check(files: &[File], problems: &mut Problems) {
    let sources: Vec<&File> = files.iter().filter(|file| file.is("rs")).collect();
    for file in &sources {
        check_file(file, problems);
    }
    check_reachable(&sources, problems);
}

/// Whether the whole file is test code.
fn is_test(path: &Path) -> bool {
    let is_test_name = path
        .file_name()
        .is_some_and(|name| name == "tests.rs" || name == "testing.rs");
    is_test_name
        || path.components().any(|part| part.as_os_str() == "tests")
        || path.starts_with("crates/testkit")
        || path.starts_with("fuzz")
}

pub(super) fn check_file(file: &File, problems: &mut Problems) {
    let lines: Vec<&str> = file.text.lines().collect();
    if !lines.first().is_some_and(|line| line.starts_with("//!")) {
        problems.add(
            &file.path,
            1,
            "the file does not open with `//!` and what it is for",
        );
    }
    let is_test = is_test(&file.path);
    let inline_tests = lines
        .iter()
        .position(|line| line.starts_with("#[cfg(test)]"));
    let end = if is_test {
        lines.len()
    } else {
        inline_tests.unwrap_or(lines.len())
    };
    let product = lines.get(..end).unwrap_or_default();
    if product.len() > FILE_LINES_MAX {
        let message = format!("{} lines; at most {FILE_LINES_MAX}", product.len());
        problems.add(&file.path, FILE_LINES_MAX, message);
    }
    for (number, line) in lines.iter().enumerate() {
        check_line(file, number, line, problems);
    }
    if !is_test {
        check_functions(file, product, problems);
        check_panics(file, product, problems);
    }
}

fn check_line(file: &File, number: usize, line: &str, problems: &mut Problems) {
    // Data in strings and links cannot be broken.
    let may_be_long = line.contains('"') || line.contains("http");
    if line.chars().count() > COLUMNS_MAX && !may_be_long {
        problems.add(
            &file.path,
            number + 1,
            format!("more than {COLUMNS_MAX} columns"),
        );
    }
    if file.path.starts_with("xtask") {
        return;
    }
    for word in ["TODO", "FIXME", "dbg!(", "todo!(", "unimplemented!("] {
        if line.contains(word) {
            problems.add(&file.path, number + 1, format!("`{word}` may not stay"));
        }
    }
}

fn check_functions(file: &File, lines: &[&str], problems: &mut Problems) {
    let mut open: Option<(usize, &str)> = None;
    for (number, line) in lines.iter().enumerate() {
        let indent = line
            .get(..line.len() - line.trim_start().len())
            .unwrap_or_default();
        match open {
            None if is_function(line) => open = Some((number, indent)),
            Some((start, before)) if *line == format!("{before}}}") => {
                let length = number - start + 1;
                if length > FUNCTION_LINES_MAX {
                    let message = format!("{length} lines; at most {FUNCTION_LINES_MAX}");
                    problems.add(&file.path, start + 1, message);
                }
                open = None;
            }
            Some(_)
                if line.trim_end().ends_with(';') && open.is_some_and(|(at, _)| at == number) =>
            {
                open = None;
            }
            _ => {}
        }
    }
}

fn is_function(line: &str) -> bool {
    let words = line
        .trim_start()
        .split(' ')
        .take_while(|word| *word != "fn");
    let modifiers = [
        "pub",
        "pub(crate)",
        "pub(super)",
        "const",
        "async",
        "unsafe",
    ];
    line.contains("fn ")
        && !line.trim_end().ends_with(';')
        && words.clone().count() < line.trim_start().split(' ').count()
        && words.into_iter().all(|word| modifiers.contains(&word))
}

fn check_panics(file: &File, lines: &[&str], problems: &mut Problems) {
    for (number, line) in lines.iter().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let panics = [".unwrap()", ".expect("]
            .iter()
            .any(|call| code.contains(call));
        let before = number.checked_sub(1).and_then(|before| lines.get(before));
        let is_explained = line.contains("// invariant:")
            || before.is_some_and(|before| before.contains("// invariant:"));
        if panics && !is_explained && !file.path.starts_with("xtask") {
            let message = "a panic; handle it, or write `// invariant: why it cannot happen`";
            problems.add(&file.path, number + 1, message);
        }
    }
}

/// Every file under a `src` folder is named by a `mod` line of the file above it.
fn check_reachable(sources: &[&File], problems: &mut Problems) {
    let mut reachable: BTreeSet<PathBuf> = BTreeSet::new();
    for file in sources {
        let folder = module_folder(&file.path);
        for line in file.text.lines() {
            let line = line.trim();
            let line = line
                .strip_prefix("pub(crate) ")
                .or(line.strip_prefix("pub "))
                .unwrap_or(line);
            let name = line
                .strip_prefix("mod ")
                .and_then(|rest| rest.strip_suffix(';'));
            if let Some(name) = name {
                reachable.insert(folder.join(format!("{name}.rs")));
                reachable.insert(folder.join(name).join("mod.rs"));
            }
        }
    }
    for file in sources {
        let is_entry = file
            .path
            .file_name()
            .is_some_and(|name| name == "lib.rs" || name == "main.rs");
        let in_source = file.path.components().any(|part| part.as_os_str() == "src");
        if in_source
            && !is_entry
            && !file.path.starts_with("fuzz")
            && !reachable.contains(&file.path)
        {
            problems.add(&file.path, 1, "no `mod` line leads here");
        }
    }
}

/// The folder in which a file's modules lie.
fn module_folder(path: &Path) -> PathBuf {
    let folder = path.parent().unwrap_or(Path::new(""));
    match path.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") | None => folder.to_path_buf(),
        Some(stem) => folder.join(stem),
    }
}
