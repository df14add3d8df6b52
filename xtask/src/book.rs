//! The docs as a book: mdBook makes HTML of `docs/`, and every link and anchor in it is checked.
//! Whatever mdBook warns of is an error. `--screenshots DIR` makes pictures of some pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::command::{Failure, program, target};
use crate::interop::scripts::CHROMIUM;
use crate::interop::tools::PICTURES;
use crate::{servers, tools};

/// What lies below `docs/` and is no part of the book: mdBook copies it all the same.
const OUTSIDE: &[&str] = &["decisions", "results", "book.toml"];

/// What there are pictures of: where the book starts, a guide, and a page of the reference.
const PICTURED: [&str; 3] = [
    "introduction.html",
    "guides/webhooks.html",
    "reference/http-trigger.html",
];
/// Pixels: a laptop, and a phone.
const WIDTHS: &str = "1280,390";

/// Builds the book; with `--screenshots DIR` it makes pictures of it too.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    match arguments {
        [] => build(root),
        [option, folder] if option == "--screenshots" => {
            let folder = outside(root, Path::new(folder))?;
            build(root)?;
            screenshots(root, &folder)
        }
        _ => Err(Failure::new("cargo xtask book [--screenshots DIR]")),
    }
}

/// Pictures are for looking at once: no folder of the tree, but for what git ignores.
fn outside(root: &Path, folder: &Path) -> Result<PathBuf, Failure> {
    let folder = plain(&std::path::absolute(folder)?);
    let is_inside = folder.starts_with(root) && !folder.starts_with(target(root)?);
    match is_inside {
        true => Err(Failure::new(format!(
            "{} is in the tree; pictures do not stay there",
            folder.display()
        ))),
        false => Ok(folder),
    }
}

/// Fails when a page is wider than its window.
fn screenshots(root: &Path, folder: &Path) -> Result<(), Failure> {
    servers::ensure(PICTURES)?;
    fs::create_dir_all(folder)?;
    program("node")
        .args([root.join("xtask/book/screenshots.mjs")])
        .args([CHROMIUM])
        .args([&root.join("target/book"), folder])
        .args([WIDTHS])
        .args(PICTURED)
        .run()
}

/// Builds the book into `target/book`.
pub fn build(root: &Path) -> Result<(), Failure> {
    tools::ensure(root, tools::FOR_BOOK)?;
    let book = root.join("target/book");
    for tool in tools::FOR_BOOK {
        let log = program(tools::path(root, tool)?)
            .args(["build".as_ref(), root.join("docs").as_os_str()])
            .args(["--dest-dir".as_ref(), book.as_os_str()])
            .log()?;
        let complains = |line: &&str| line.contains("WARN") || line.contains("ERROR");
        let complaints: Vec<&str> = log.lines().filter(complains).collect();
        if !complaints.is_empty() {
            return Err(Failure::new(complaints.join("\n")));
        }
    }
    for name in OUTSIDE {
        let path = book.join(name);
        match path.is_dir() {
            true => fs::remove_dir_all(path)?,
            false => drop(fs::remove_file(path)),
        }
    }
    check(&book)
}

/// A page: the anchors that it has, and where its links lead.
#[derive(Default)]
struct Page {
    anchors: BTreeSet<String>,
    links: Vec<String>,
}

/// Every link within the book leads to a file of it, and to an anchor that is there.
fn check(book: &Path) -> Result<(), Failure> {
    let mut files = Vec::new();
    collect(book, &mut files)?;
    let mut pages = BTreeMap::new();
    for file in files.iter().filter(|it| is_page(it)) {
        pages.insert(file.clone(), read(&fs::read_to_string(file)?));
    }
    let known: BTreeSet<&PathBuf> = files.iter().collect();
    let mut broken = Vec::new();
    for (file, page) in &pages {
        for link in &page.links {
            if !leads_somewhere(book, file, link, &known, &pages) {
                let file = file.strip_prefix(book).unwrap_or(file);
                broken.push(format!("{}: the link {link} leads nowhere", file.display()));
            }
        }
    }
    match broken.is_empty() {
        true => {
            let count: usize = pages.values().map(|page| page.links.len()).sum();
            eprintln!("book: {} pages, {count} links, no problem", pages.len());
            Ok(())
        }
        false => Err(Failure::new(broken.join("\n"))),
    }
}

/// The page of all pages, for printing, has the links of each relative to itself: it is not looked
/// at, nor is the frame with the table of contents.
fn is_page(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default();
    file.extension().is_some_and(|it| it == "html") && name != "print.html" && name != "toc.html"
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => collect(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

fn read(html: &str) -> Page {
    let values = |name: &str| -> Vec<String> {
        let parts = html.split(name).skip(1);
        let values = parts.filter_map(|part| part.split('"').next());
        values.map(|value| value.replace("&amp;", "&")).collect()
    };
    Page {
        anchors: values(" id=\"").into_iter().collect(),
        links: [values(" href=\""), values(" src=\"")].concat(),
    }
}

fn leads_somewhere(
    book: &Path,
    from: &Path,
    link: &str,
    known: &BTreeSet<&PathBuf>,
    pages: &BTreeMap<PathBuf, Page>,
) -> bool {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    if path.contains(':') {
        return true;
    }
    // The page for paths that do not exist names its files from the root of the site.
    let target = match path.strip_prefix('/') {
        Some(path) => book.join(path),
        None if path.is_empty() => from.to_owned(),
        None => plain(&from.with_file_name(path)),
    };
    let target = match target.is_dir() {
        true => target.join("index.html"),
        false => target,
    };
    let has_anchor = |page: &Page| anchor.is_empty() || page.anchors.contains(anchor);
    known.contains(&target) && pages.get(&target).is_none_or(has_anchor)
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_do_not_go_into_the_tree() {
        let root = Path::new("/a/tree");
        for folder in ["/a/tree", "/a/tree/docs", "/a/other/../tree/docs"] {
            assert!(outside(root, Path::new(folder)).is_err(), "{folder}");
        }
        for folder in ["/a/pictures", "/a/tree-pictures", "/a/tree/../pictures"] {
            assert!(outside(root, Path::new(folder)).is_ok(), "{folder}");
        }
    }

    #[test]
    fn links_to_pages_and_anchors_that_are_missing_are_found() {
        let book = std::env::temp_dir().join(format!("xtask-book-{}", std::process::id()));
        fs::create_dir_all(book.join("a")).unwrap();
        let write = |name: &str, text: &str| fs::write(book.join(name), text).unwrap();
        write("index.html", "<h1 id=\"top\"></h1><a href=\"a/b.html#x\">");
        write(
            "a/b.html",
            "<h2 id=\"x\"></h2><a href=\"../index.html#top\"><a href=\"#x\"><a href=\"https://e\">",
        );
        assert!(check(&book).is_ok());
        write("a/c.html", "<a href=\"b.html#y\"><a href=\"d.html\">");
        let problems = check(&book).unwrap_err().to_string();
        let expected = "a/c.html: the link b.html#y leads nowhere\n\
                        a/c.html: the link d.html leads nowhere";
        assert_eq!(problems, expected);
        fs::remove_dir_all(&book).unwrap();
    }
}
