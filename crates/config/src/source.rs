//! The texts of all files that are loaded together, and places in them.

use std::sync::OnceLock;

use crate::codes;
use crate::report::Report;

/// The most bytes a file may have.
const SIZE_MAX: usize = 1024 * 1024;

/// One file among [`Sources`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub(crate) u32);

/// A place in a file, in bytes of its text.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The file.
    pub source: SourceId,
    /// Where it begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

impl Span {
    /// Whether all of it lies within another place.
    pub fn is_within(self, other: Self) -> bool {
        self.source == other.source && self.start >= other.start && self.end <= other.end
    }
}

/// The texts of all files that are loaded together.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<File>,
}

#[derive(Debug)]
struct File {
    name: String,
    text: String,
    /// Where its lines begin, known when somebody asks for a place: a report may have as many
    /// places as the file has lines.
    lines: OnceLock<Vec<usize>>,
}

impl File {
    fn lines(&self) -> &[usize] {
        self.lines.get_or_init(|| {
            let ends = self.text.match_indices('\n');
            std::iter::once(0)
                .chain(ends.map(|(at, _)| at + 1))
                .collect()
        })
    }
}

impl Sources {
    /// Adds a file. Refused, with a diagnostic, when it has more than 1 MiB or is not UTF-8. A
    /// byte order mark is dropped.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        bytes: &[u8],
        report: &mut Report,
    ) -> Option<SourceId> {
        let name = name.into();
        if bytes.len() > SIZE_MAX {
            let message = format!(
                "{name}: the file has {} bytes, more than 1 MiB",
                bytes.len()
            );
            report
                .global(codes::TOO_LARGE, message)
                .hint("split it: every file of the folder is loaded");
            return None;
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                let text = text.strip_prefix('\u{feff}').unwrap_or(text);
                self.files.push(File {
                    name,
                    text: text.to_owned(),
                    lines: OnceLock::new(),
                });
                Some(SourceId(self.files.len() as u32 - 1))
            }
            Err(error) => {
                let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
                let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
                let message = format!("{name}:{line}: the file is not UTF-8");
                report
                    .global(codes::NOT_UTF8, message)
                    .hint("save it with the encoding UTF-8");
                None
            }
        }
    }

    /// The name of a file.
    pub fn name(&self, source: SourceId) -> &str {
        self.files
            .get(source.0 as usize)
            .map_or("", |file| &file.name)
    }

    /// The text of a file.
    pub fn text(&self, source: SourceId) -> &str {
        self.files
            .get(source.0 as usize)
            .map_or("", |file| &file.text)
    }

    /// Line and column of a place, both from 1; columns count characters.
    pub fn position(&self, source: SourceId, offset: usize) -> (usize, usize) {
        let Some(file) = self.files.get(source.0 as usize) else {
            return (1, 1);
        };
        let offset = floor_boundary(&file.text, offset);
        let lines = file.lines();
        // The first line begins at 0, so that there is one.
        let line = lines.partition_point(|start| *start <= offset).max(1);
        let start = lines.get(line - 1).copied().unwrap_or_default();
        let before = file.text.get(start..offset).unwrap_or_default();
        (line, before.chars().count() + 1)
    }
}

/// The nearest character boundary at or before an offset.
pub(crate) fn floor_boundary(text: &str, offset: usize) -> usize {
    let mut at = offset.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
