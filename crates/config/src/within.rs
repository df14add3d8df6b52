//! Where a part of a text lies in the file: a YAML scalar has quotes, escapes and indentation that
//! the text it stands for has not (YAML 1.2.2, sections 7.3 and 8.1).

use std::ops::Range;

use crate::source::{Sources, Span};

/// The place of a part of the text that stands at `span`. The whole place when it cannot be told.
pub(crate) fn narrow(sources: &Sources, span: Span, part: &Range<usize>) -> Span {
    let file = sources.text(span.source);
    let Some(raw) = file.get(span.start..span.end) else {
        return span;
    };
    let indent = || indent_before(file, span.start);
    let map = match raw.as_bytes().first() {
        Some(b'"') => double_quoted(raw),
        Some(b'\'') => single_quoted(raw),
        Some(b'|') => block(raw),
        Some(b'>') => return span,
        _ if raw.contains('\n') => block_content(raw, 0, indent()),
        _ => (0..=raw.len()).collect(),
    };
    let at = |offset: usize| map.get(offset).or(map.last()).copied();
    let (Some(start), Some(end)) = (at(part.start), at(part.end)) else {
        return span;
    };
    Span {
        source: span.source,
        start: span.start + start,
        end: span.start + end.max(start + 1),
    }
}

/// How far the line is indented that a place lies on.
fn indent_before(file: &str, at: usize) -> usize {
    let before = file.get(..at).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    at - line_start
}

/// For each byte of the text, where it stands in `'...'`: two quotes stand for one.
fn single_quoted(raw: &str) -> Vec<usize> {
    let mut map = Vec::new();
    let bytes = raw.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        map.push(at);
        at += if bytes.get(at..at + 2) == Some(b"''") {
            2
        } else {
            1
        };
    }
    map
}

/// For each byte of the text, where it stands in `"..."`.
fn double_quoted(raw: &str) -> Vec<usize> {
    let mut map = Vec::new();
    let mut characters = raw.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        if character != '\\' {
            map.extend((0..character.len_utf8()).map(|byte| at + byte));
            continue;
        }
        let Some((_, kind)) = characters.next() else {
            break;
        };
        let digits = match kind {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        let code: String = characters
            .by_ref()
            .take(digits)
            .map(|(_, digit)| digit)
            .collect();
        let meant = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
        let length = meant.map_or(1, char::len_utf8);
        map.extend(std::iter::repeat_n(at, length));
    }
    map
}

/// For each byte of the text, where it stands in a literal block, whose first line is its header.
fn block(raw: &str) -> Vec<usize> {
    let Some(header) = raw.find('\n') else {
        return Vec::new();
    };
    let content = raw.get(header + 1..).unwrap_or_default();
    let is_blank = |line: &&str| line.trim().is_empty();
    let indent = content
        .lines()
        .find(|line| !is_blank(line))
        .map_or(0, |line| line.len() - line.trim_start_matches(' ').len());
    let mut map = Vec::new();
    push_lines(content, header + 1, indent, &mut map);
    map
}

/// The same for lines of which the first has lost its indentation already.
fn block_content(raw: &str, start: usize, indent: usize) -> Vec<usize> {
    let first = raw.find('\n').map_or(raw.len(), |at| at + 1);
    let mut map: Vec<usize> = (start..start + first).collect();
    let rest = raw.get(first..).unwrap_or_default();
    push_lines(rest, start + first, indent, &mut map);
    map
}

fn push_lines(content: &str, start: usize, indent: usize, map: &mut Vec<usize>) {
    let mut at = start;
    for line in content.split_inclusive('\n') {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        let skipped = spaces.min(indent);
        map.extend(at + skipped..at + line.len());
        at += line.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Node;
    use crate::report::Report;

    /// What stands in the file where `part` stands in the text under `a`.
    fn found(yaml: &str, part: &str) -> String {
        let (mut sources, mut report) = (Sources::default(), Report::default());
        let source = sources.add("a.yaml", yaml.as_bytes(), &mut report).unwrap();
        let nodes = crate::parse(&sources, source, &mut report);
        let node: &Node = nodes[0].get("a").unwrap();
        let text = node.as_str().unwrap();
        let start = text.find(part).unwrap();
        let span = narrow(&sources, node.span, &(start..start + part.len()));
        sources.text(source)[span.start..span.end].to_owned()
    }

    #[test]
    fn a_part_of_a_scalar_is_found_in_the_file() {
        for yaml in [
            "a: .x | nope | .y\n",
            "a: '.x == ''q'' | nope'\n",
            "a: \".x == \\\"q\\\" \\u00e4 | nope | 1\"\n",
            "a: |\n  { x,\n    y: nope }\n",
            "a: |-\n    { x,\n\n    y: nope }\nb: 1\n",
            "b:\n  - 1\na: |\n  nope\n",
        ] {
            assert_eq!(found(yaml, "nope"), "nope", "{yaml}");
        }
    }
}
