//! What holds for documents: links lead somewhere, error codes have pages, nothing names a place
//! that only one machine has.

use std::collections::BTreeSet;
use std::path::Path;

use super::{File, Problems};

const ARCHITECTURE_LINES_MAX: usize = 300;

pub(super) fn check(root: &Path, files: &[File], problems: &mut Problems) {
    for file in files {
        if file.is("md") {
            check_links(root, file, problems);
        }
        if !file.path.starts_with("xtask") {
            check_places(file, problems);
        }
        if file.path == Path::new("ARCHITECTURE.md")
            && file.text.lines().count() > ARCHITECTURE_LINES_MAX
        {
            let message = format!("more than {ARCHITECTURE_LINES_MAX} lines");
            problems.add(&file.path, ARCHITECTURE_LINES_MAX, message);
        }
    }
    check_codes(files, problems);
}

/// Relative links of Markdown lead to files that exist.
fn check_links(root: &Path, file: &File, problems: &mut Problems) {
    // The prose of steps becomes part of the reference, and its links are links from there.
    let folder = match file.path.starts_with("crates/steps") {
        true => Path::new("docs/reference"),
        false => file.path.parent().unwrap_or(Path::new("")),
    };
    for (number, line) in file.text.lines().enumerate() {
        for part in line.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default();
            let target = target.split('#').next().unwrap_or_default();
            let is_elsewhere = target.is_empty() || target.contains("://") || target.contains(' ');
            if !is_elsewhere && !root.join(folder).join(target).exists() {
                problems.add(
                    &file.path,
                    number + 1,
                    format!("the link {target} leads nowhere"),
                );
            }
        }
    }
}

/// Paths of one machine, and hosts that a mirror may replace, are named nowhere.
pub(super) fn check_places(file: &File, problems: &mut Problems) {
    // Written in parts, so that this file does not name them itself.
    let words = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("index.crates", ".io"),
        concat!("static.crates", ".io"),
        concat!("proxy.golang", ".org"),
        concat!("registry.npmjs", ".org"),
        concat!("pypi.", "org"),
    ];
    // A lock file names the registry itself, in its own words.
    if file
        .path
        .file_name()
        .is_some_and(|name| name == "Cargo.lock")
    {
        return;
    }
    for (number, line) in file.text.lines().enumerate() {
        for word in words {
            if line.contains(word) {
                problems.add(
                    &file.path,
                    number + 1,
                    format!("names a place of one machine: {word}"),
                );
            }
        }
    }
}

/// Every code that sources define has a page, and every page has a code.
pub(super) fn check_codes(files: &[File], problems: &mut Problems) {
    let mut defined: BTreeSet<String> = BTreeSet::new();
    let mut pages: BTreeSet<String> = BTreeSet::new();
    for file in files {
        if file.is("rs") && file.path.file_name().is_some_and(|name| name == "codes.rs") {
            defined.extend(codes_in(&file.text));
        }
        if file.path.starts_with("docs/errors") {
            let stem = file
                .path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if stem.starts_with("IT") {
                pages.insert(stem);
            }
        }
    }
    let folder = Path::new("docs/errors");
    for code in defined.difference(&pages) {
        problems.add(
            &folder.join(format!("{code}.md")),
            1,
            "the code has no page",
        );
    }
    for code in pages.difference(&defined) {
        problems.add(
            &folder.join(format!("{code}.md")),
            1,
            "no source defines the code",
        );
    }
}

fn codes_in(text: &str) -> Vec<String> {
    let quoted = text.split('"').skip(1).step_by(2);
    let is_code = |word: &&str| {
        word.len() == 6
            && word.starts_with("IT")
            && word.bytes().skip(2).all(|byte| byte.is_ascii_digit())
    };
    quoted.filter(is_code).map(str::to_owned).collect()
}
