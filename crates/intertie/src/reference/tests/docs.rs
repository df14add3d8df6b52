//! The blocks of the book: flow files load, JSON parses, commands have the options that they are
//! given. `tests/it/docs.rs` runs the tests that stand in blocks.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use config::{Report, Sources};

use super::{codes, repository, whole};
use crate::cli::Cli;

/// What may stand behind the three backquotes of a block.
const LANGUAGES: &[&str] = &[
    "yaml",            // a flow file, or a list of steps
    "yaml,kubernetes", // YAML of other programs: only its syntax is checked
    "yaml,connect",
    "yaml,camel",
    "json",
    "sh",
    "text",
    "sql",
    "xml",
    "java",
    "js", // `cargo xtask interop browsers` runs the script
    "ini",
    "nginx",
    "haproxy",
    "dockerfile",
];

/// A fenced block of a page, files that it includes put in.
struct Block {
    /// The page, and its line.
    place: String,
    language: String,
    text: String,
    /// The file that it shows, if it shows one.
    file: Option<PathBuf>,
}

/// The Markdown files of the book. Decisions and results are no part of it, and what stands on
/// pages of error codes is checked with the codes.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !matches!(&*name, "decisions" | "results" | "errors") {
            pages(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

fn blocks_of(page: &Path) -> Vec<Block> {
    let text = fs::read_to_string(page).unwrap();
    let blocks = testkit::markdown_blocks(&text).into_iter();
    let fences = text.lines().filter(|it| it.trim_start().starts_with("```"));
    assert_eq!(fences.count(), 2 * blocks.len(), "{}", page.display());
    let blocks = blocks.map(|block| {
        let mut whole = Block {
            place: format!("{}:{}", page.display(), block.line),
            language: block.language,
            text: String::new(),
            file: None,
        };
        for line in block.text.lines() {
            include(page, line, &mut whole);
        }
        whole
    });
    blocks.collect()
}

/// Adds a line, or the file that it includes.
fn include(page: &Path, line: &str, block: &mut Block) {
    let file = line
        .strip_prefix("{{#include ")
        .and_then(|rest| rest.strip_suffix("}}"));
    let Some(file) = file else {
        block.text.push_str(line);
        block.text.push('\n');
        return;
    };
    let path = page.with_file_name(file);
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {file}: {error}", block.place));
    block.text.push_str(&text);
    block.file = Some(path);
}

fn book() -> Vec<Block> {
    let mut found = vec![repository().join("README.md")];
    pages(&repository().join("docs"), &mut found);
    found.iter().flat_map(|page| blocks_of(page)).collect()
}

#[test]
fn every_flow_file_of_the_book_loads() {
    let mut broken = Vec::new();
    let book = book();
    for block in book.iter().filter(|block| block.language == "yaml") {
        let name = match &block.file {
            Some(file) => file.display().to_string(),
            None => block.place.clone(),
        };
        let text = match name.strip_suffix(".test.yaml") {
            // Tests are about the flows of the file beside them.
            Some(stem) => {
                let flows = fs::read_to_string(format!("{stem}.yaml")).unwrap();
                format!("{flows}---\n{}", block.text)
            }
            None => whole(&block.text),
        };
        let codes = codes(&name, &text);
        if !codes.is_empty() {
            broken.push(format!("{}: {codes:?}\n{}", block.place, block.text));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(book.len() > 150, "{} blocks", book.len());
}

#[test]
fn every_other_block_of_the_book_is_what_it_says() {
    for block in book() {
        let place = &block.place;
        assert!(
            LANGUAGES.contains(&block.language.as_str()),
            "{place}: a block of the language `{}`",
            block.language
        );
        match block.language.as_str() {
            "json" => {
                let parsed = serde_json::from_str::<serde_json::Value>(&block.text);
                assert!(parsed.is_ok(), "{place}: {parsed:?}");
            }
            "sh" => commands(place, &block.text),
            language if language.starts_with("yaml,") => {
                let (mut sources, mut report) = (Sources::default(), Report::default());
                let source = sources.add("other", block.text.as_bytes(), &mut report);
                config::parse(&sources, source.unwrap(), &mut report);
                assert!(!report.has_errors(), "{place}: {report:?}");
            }
            _ => {}
        }
    }
}

/// Every call of the program has a command and options that it knows.
fn commands(place: &str, text: &str) {
    let text = text.replace("\\\n", " ");
    for line in text.lines() {
        let Some(at) = line.find("intertie ") else {
            continue;
        };
        let is_call = at == 0 || line[..at].ends_with(['$', ' ', '/']);
        if !is_call || line.starts_with(['#', ' ']) || line.contains("curl") {
            continue;
        }
        let is_end = |word: &&str| !matches!(*word, "|" | ">" | "<" | "&" | "&&" | "#" | "2>&1");
        let words: Vec<&str> = line[at..].split_whitespace().take_while(is_end).collect();
        let known = words.get(1).is_some_and(|word| is_command(word));
        if known && let Err(error) = Cli::try_parse_from(&words) {
            let is_help = !error.use_stderr();
            assert!(is_help, "{place}: {line}\n{error}");
        }
    }
}

/// Whether a word behind the program's name is a command at all, and not prose.
fn is_command(word: &str) -> bool {
    use clap::CommandFactory;
    Cli::command().find_subcommand(word).is_some()
}

#[test]
fn the_summary_calls_error_pages_as_they_call_themselves() {
    let docs = repository().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let entries = summary.lines().filter_map(|line| {
        let (title, page) = line.trim().strip_prefix("- [")?.split_once("](errors/")?;
        Some((title, page.strip_suffix(')')?))
    });
    let mut count = 0;
    for (title, page) in entries.filter(|(_, page)| page.starts_with("IT")) {
        let text = fs::read_to_string(docs.join("errors").join(page)).unwrap();
        let own = text.lines().next().unwrap_or_default();
        assert_eq!(own, format!("# {title}"), "{page}");
        count += 1;
    }
    assert!(count > 100, "{count}");
}
