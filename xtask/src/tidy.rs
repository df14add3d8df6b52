//! The rules of the house, executed. All problems are printed at once as `path:line: message`.

mod artefacts;
mod code;
mod crates;
mod docs;
mod modules;
mod sources;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crate::command::{Failure, program};

/// A problem: where, and what.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    path: PathBuf,
    line: usize,
    message: String,
}

/// All problems found so far.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, path: &Path, line: usize, message: impl Into<String>) {
        self.0.push(Problem {
            path: path.to_path_buf(),
            line,
            message: message.into(),
        });
    }
}

/// A file of the repository, by its path in it.
pub(crate) struct File {
    path: PathBuf,
    text: String,
}

impl File {
    fn is(&self, extension: &str) -> bool {
        self.path
            .extension()
            .is_some_and(|found| found == extension)
    }
}

/// Files by their paths, and how many bytes each has.
type Sizes = Vec<(PathBuf, u64)>;

/// Checks the whole repository.
pub fn run(root: &Path) -> Result<(), Failure> {
    let (files, sizes) = files(root)?;
    let mut problems = Problems::default();
    artefacts::check(&sizes, &mut problems);
    crates::check(&files, &mut problems);
    sources::check(&files, &mut problems);
    modules::check(&files, &mut problems);
    docs::check(root, &files, &mut problems);
    let Problems(mut problems) = problems;
    problems.sort();
    for Problem {
        path,
        line,
        message,
    } in &problems
    {
        eprintln!("{}:{line}: {message}", path.display());
    }
    if problems.is_empty() {
        eprintln!("tidy: {} files, no problem", files.len());
        return Ok(());
    }
    Err(Failure::new(format!("tidy: {} problems", problems.len())))
}

/// All text files that git tracks or would track, and the sizes of all files.
fn files(root: &Path) -> Result<(Vec<File>, Sizes), Failure> {
    let root_text = root.display().to_string();
    let list = program("git")
        .args([
            "-C",
            &root_text,
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output()?;
    let (mut files, mut sizes) = (Vec::new(), Vec::new());
    for name in list.lines() {
        // A file that is deleted but not committed so is still listed.
        let Ok(bytes) = std::fs::read(root.join(name)) else {
            continue;
        };
        sizes.push((name.into(), bytes.len() as u64));
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File {
                path: name.into(),
                text,
            });
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok((files, sizes))
}
