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
        check_places(file, problems);
        check_conflicts(file, problems);
        if file.path == Path::new("ARCHITECTURE.md")
            && file.text.lines().count() > ARCHITECTURE_LINES_MAX
        {
            let message = format!("more than {ARCHITECTURE_LINES_MAX} lines");
            problems.add(&file.path, ARCHITECTURE_LINES_MAX, message);
        }
    }
    check_codes(files, problems);
    check_summary(files, problems);
}

/// Every merge conflict is resolved: generated pages would carry its markers along.
pub(super) fn check_conflicts(file: &File, problems: &mut Problems) {
    for (number, line) in file.text.lines().enumerate() {
        if ["<<<<<<< ", ">>>>>>> "]
            .iter()
            .any(|it| line.starts_with(it))
        {
            problems.add(&file.path, number + 1, "an unresolved merge conflict");
        }
    }
}

/// The book's table of contents names every page below `docs/` once. Decisions and results are for
/// those who work on the engine.
pub(super) fn check_summary(files: &[File], problems: &mut Problems) {
    let summary = Path::new("docs/SUMMARY.md");
    let Some(table) = files.iter().find(|file| file.path == summary) else {
        return;
    };
    let listed: Vec<&str> = table.text.lines().flat_map(links).collect();
    for file in files.iter().filter(|file| file.is("md")) {
        let Ok(page) = file.path.strip_prefix("docs") else {
            continue;
        };
        let is_outside = ["SUMMARY.md", "decisions", "results"];
        if is_outside.iter().any(|it| page.starts_with(it)) {
            continue;
        }
        let page = page.to_string_lossy();
        match listed.iter().filter(|it| **it == page).count() {
            1 => {}
            0 => problems.add(
                summary,
                1,
                format!("`{page}` is not in the table of contents"),
            ),
            _ => problems.add(summary, 1, format!("`{page}` stands twice")),
        }
    }
}

/// Relative links of Markdown lead to files that exist.
pub(super) fn check_links(root: &Path, file: &File, problems: &mut Problems) {
    // The prose of steps and topics becomes part of the reference, and its links are links from
    // there.
    let is_reference = [
        "crates/auth/src",
        "crates/steps",
        "crates/topics/src",
        "crates/connectors/src",
        "crates/intertie/src/reference",
    ];
    let folder = match is_reference.iter().any(|it| file.path.starts_with(it)) {
        true => Path::new("docs/reference"),
        false => file.path.parent().unwrap_or(Path::new("")),
    };
    let mut in_block = false;
    for (number, line) in file.text.lines().enumerate() {
        in_block ^= line.trim_start().starts_with("```");
        if in_block {
            continue;
        }
        for target in links(line) {
            let path = target.split('#').next().unwrap_or_default();
            let is_elsewhere = path.is_empty() || path.contains(':');
            if !is_elsewhere && !root.join(folder).join(path).exists() {
                let message = format!("the link {target} leads nowhere");
                problems.add(&file.path, number + 1, message);
            }
        }
    }
}

/// The targets of `[text](target)` and `[name]: target` on a line, but not between backquotes.
fn links(line: &str) -> Vec<&str> {
    let prose = line.split('`').step_by(2);
    let inline = prose.flat_map(|part| part.split("](").skip(1));
    let inline = inline.filter_map(|part| part.split([')', ' ']).next());
    let definition = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .and_then(|(_, target)| target.split(' ').next());
    inline.chain(definition).collect()
}

/// Paths of one machine, and hosts that a mirror may replace, are named nowhere.
pub(super) fn check_places(file: &File, problems: &mut Problems) {
    // Written in parts, so that this file does not name them itself.
    let folders = [
        concat!("/wo", "rk"),
        concat!("/ro", "ot"),
        concat!("/ho", "me"),
    ];
    let hosts = [
        concat!("index.crates", ".io"),
        concat!("static.crates", ".io"),
        concat!("proxy.golang", ".org"),
        concat!("registry.npmjs", ".org"),
        concat!("pypi.", "org"),
    ];
    // A lock file names the registry itself, in its own words.
    let is_lock = file.path.file_name().is_some_and(|it| it == "Cargo.lock");
    for (number, line) in file.text.lines().enumerate().filter(|_| !is_lock) {
        let hosts = hosts.iter().filter(|host| line.contains(**host));
        let folders = folders.iter().filter(|folder| names_folder(line, folder));
        for word in hosts.chain(folders) {
            let message = format!("names a place of one machine: {word}");
            problems.add(&file.path, number + 1, message);
        }
    }
}

/// Whether a line names this folder of the file system: not the end of an XML element, nor a part
/// of a longer path or name. `/home` alone may be a page.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let behind = line
            .get(at + folder.len()..)
            .and_then(|text| text.chars().next());
        let begins =
            before.is_none_or(|letter| !letter.is_alphanumeric() && !"<_.}-".contains(letter));
        let alone =
            behind.is_none_or(|letter| !letter.is_alphanumeric() && !"_-.>".contains(letter));
        begins && (behind == Some('/') || alone && !folder.ends_with("me"))
    })
}

/// Every code that sources define or mention has a page, and every page has a code.
pub(super) fn check_codes(files: &[File], problems: &mut Problems) {
    let mut defined: BTreeSet<String> = BTreeSet::new();
    let mut mentioned: BTreeSet<String> = BTreeSet::new();
    let mut pages: BTreeSet<String> = BTreeSet::new();
    for file in files {
        if file.is("rs") && file.path.file_name().is_some_and(|name| name == "codes.rs") {
            defined.extend(codes_in(&file.text));
        } else if file.is("rs") && file.path.starts_with("crates") {
            mentioned.extend(codes_in(&file.text));
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
    mentioned.extend(defined.iter().cloned());
    for code in mentioned.difference(&pages) {
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

/// All `IT` and four digits in a text.
fn codes_in(text: &str) -> Vec<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    let is_code = |word: &&str| {
        word.len() == 6
            && word.starts_with("IT")
            && word.bytes().skip(2).all(|byte| byte.is_ascii_digit())
    };
    words.filter(is_code).map(str::to_owned).collect()
}
