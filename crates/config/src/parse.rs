//! YAML text to trees with places. Everything that could make a small file large or a parser
//! deep is bounded: nesting, nodes after aliases are expanded, anchors.

mod surrogates;

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Tag};

use crate::codes;
use crate::node::{Entry, Node, Value};
use crate::report::Report;
use crate::scalar;
use crate::source::{SourceId, Sources, Span};

/// The most levels of lists and mappings within each other.
const DEPTH_MAX: usize = 64;
/// The most values of a file, those that aliases stand for counted each time.
const NODES_MAX: usize = 200_000;

/// Reads the documents of a file; empty ones are left out. What is wrong goes into the report;
/// documents before the first syntax error are returned all the same.
pub fn parse(sources: &Sources, source: SourceId, report: &mut Report) -> Vec<Node> {
    let text = sources.text(source);
    let mut builder = Builder {
        offsets: Offsets::new(text),
        source,
        stack: Vec::new(),
        anchors: HashMap::new(),
        nodes: 0,
        documents: Vec::new(),
        report,
    };
    if let Some(offset) = first_deep_flow(text) {
        let span = Span {
            source,
            start: offset,
            end: offset + 1,
        };
        builder.too_deep(span);
        return Vec::new();
    }
    let joined = surrogates::join(text);
    let mut parser = Parser::new_from_str(joined.as_ref().map_or(text, |it| &it.text));
    if let Some(joined) = &joined {
        builder.offsets.starts.clone_from(&joined.starts);
    }
    while let Some(event) = parser.next_event() {
        let go_on = match event {
            Ok((event, span)) => {
                let event = restored(event, span, joined.as_ref());
                let span = builder.offsets.span(source, span);
                builder.take(event, span)
            }
            Err(error) => {
                builder.syntax_error(&error, text);
                false
            }
        };
        if !go_on {
            break;
        }
    }
    builder.documents
}

/// An event with the text of a scalar as it was given.
fn restored<'t>(
    event: Event<'t>,
    span: saphyr_parser::Span,
    joined: Option<&surrogates::Joined>,
) -> Event<'t> {
    match (event, joined) {
        (Event::Scalar(text, style, anchor, tag), Some(joined))
            if style != ScalarStyle::DoubleQuoted =>
        {
            let place = span.start.index()..span.end.index();
            Event::Scalar(joined.restore(text, place), style, anchor, tag)
        }
        (event, _) => event,
    }
}

/// Where brackets are nested too deeply to be handed to the parser at all. Counts brackets in
/// quotes and comments too, so its bound is far above the real one.
fn first_deep_flow(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, byte) in text.bytes().enumerate() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX * 16 {
            return Some(offset);
        }
    }
    None
}

/// Bytes of the characters that the parser counts.
struct Offsets {
    /// Empty when all characters have one byte.
    starts: Vec<usize>,
    length: usize,
}

impl Offsets {
    fn new(text: &str) -> Self {
        let starts = if text.is_ascii() {
            Vec::new()
        } else {
            text.char_indices().map(|(offset, _)| offset).collect()
        };
        Self {
            starts,
            length: text.len(),
        }
    }

    fn byte(&self, index: usize) -> usize {
        if self.starts.is_empty() {
            return index.min(self.length);
        }
        self.starts.get(index).copied().unwrap_or(self.length)
    }

    fn span(&self, source: SourceId, span: saphyr_parser::Span) -> Span {
        let start = self.byte(span.start.index());
        let end = self.byte(span.end.index()).max(start);
        Span { source, start, end }
    }
}

/// Builds trees from events, without recursion.
struct Builder<'a> {
    offsets: Offsets,
    source: SourceId,
    stack: Vec<Frame>,
    /// Complete values with an anchor, and how many nodes each has.
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
    documents: Vec<Node>,
    report: &'a mut Report,
}

/// A list or mapping that is being read.
struct Frame {
    span: Span,
    anchor: usize,
    /// How many nodes the file had before it.
    nodes_before: usize,
    kind: FrameKind,
}

enum FrameKind {
    Sequence(Vec<Node>),
    Mapping {
        entries: Vec<Entry>,
        places: HashMap<String, Span>,
        key: Option<(String, Span)>,
    },
}

impl Builder<'_> {
    /// Takes one event. False when reading must stop.
    fn take(&mut self, event: Event<'_>, span: Span) -> bool {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => true,
            Event::DocumentStart(_) => {
                self.anchors.clear();
                true
            }
            Event::Alias(anchor) => self.alias(anchor, span),
            Event::Scalar(text, style, anchor, tag) => {
                let value = self.scalar(&text, style, tag.as_deref(), span);
                self.nodes += 1;
                self.complete(Node { value, span }, anchor, 1)
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(tag.as_deref(), span);
                self.open(anchor, span, FrameKind::Sequence(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(tag.as_deref(), span);
                let kind = FrameKind::Mapping {
                    entries: Vec::new(),
                    places: HashMap::new(),
                    key: None,
                };
                self.open(anchor, span, kind)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span),
        }
    }

    fn open(&mut self, anchor: usize, span: Span, kind: FrameKind) -> bool {
        if self.stack.len() >= DEPTH_MAX {
            self.too_deep(span);
            return false;
        }
        let nodes_before = self.nodes;
        self.nodes += 1;
        self.stack.push(Frame {
            span,
            anchor,
            nodes_before,
            kind,
        });
        true
    }

    fn close(&mut self, end: Span) -> bool {
        let Some(frame) = self.stack.pop() else {
            return false;
        };
        let (value, last) = match frame.kind {
            FrameKind::Sequence(items) => {
                let last = items.last().map(|item| item.span.end);
                (Value::Sequence(items), last)
            }
            FrameKind::Mapping { entries, .. } => {
                let last = entries.last().map(|entry| entry.value.span.end);
                (Value::Mapping(entries), last)
            }
        };
        // The end of a block stands where the next token does; the last value is nearer. In
        // brackets it is the bracket.
        let end = if end.end > end.start {
            end.end
        } else {
            last.unwrap_or(end.end)
        };
        let span = Span {
            end: end.max(frame.span.start),
            ..frame.span
        };
        let count = self.nodes - frame.nodes_before;
        self.complete(Node { value, span }, frame.anchor, count)
    }

    /// Puts a complete value where it belongs.
    fn complete(&mut self, node: Node, anchor: usize, count: usize) -> bool {
        if self.nodes > NODES_MAX {
            let message = format!("the file has more than {NODES_MAX} values");
            self.report
                .error(codes::TOO_MANY, node.span, message)
                .hint("aliases count as often as they are used");
            return false;
        }
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), count));
        }
        let Some(frame) = self.stack.last_mut() else {
            if !matches!(node.value, Value::Null) {
                self.documents.push(node);
            }
            return true;
        };
        match &mut frame.kind {
            FrameKind::Sequence(items) => items.push(node),
            FrameKind::Mapping {
                entries,
                places,
                key,
            } => match key.take() {
                None => *key = Some(key_of(&node, self.report)),
                Some((name, key_span)) => {
                    if let Some(first) = places.get(&name) {
                        let shown = name.escape_debug();
                        self.report
                            .error(codes::DUPLICATE_KEY, key_span, format!("second `{shown}`"))
                            .also(*first, "the first one");
                    } else {
                        places.insert(name.clone(), key_span);
                        entries.push(Entry {
                            key: name,
                            key_span,
                            value: node,
                        });
                    }
                }
            },
        }
        true
    }

    fn alias(&mut self, anchor: usize, span: Span) -> bool {
        let Some((_, count)) = self.anchors.get(&anchor) else {
            let message = "an alias within the value it stands for";
            self.report
                .error(codes::TOO_MANY, span, message)
                .hint("write the value out");
            return false;
        };
        self.nodes = self.nodes.saturating_add(*count);
        if self.nodes > NODES_MAX {
            let message = format!("the file has more than {NODES_MAX} values");
            self.report
                .error(codes::TOO_MANY, span, message)
                .hint("aliases count as often as they are used");
            return false;
        }
        let Some((node, count)) = self.anchors.get(&anchor).cloned() else {
            return false;
        };
        if self.stack.len() + depth(&node) > DEPTH_MAX {
            self.too_deep(span);
            return false;
        }
        self.complete(node, 0, count)
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> Value {
        let is_text = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
        if !is_text {
            self.refuse_tag(tag, span);
        }
        if is_text || style != ScalarStyle::Plain {
            return Value::String(text.to_owned());
        }
        scalar::resolve(text).unwrap_or_else(|scalar::NotFinite| {
            let message = "a number must be finite";
            self.report
                .error(codes::BAD_NUMBER, span, message)
                .hint("quote it if it is text");
            Value::Null
        })
    }

    fn refuse_tag(&mut self, tag: Option<&Tag>, span: Span) {
        if let Some(tag) = tag {
            let shown = format!("{}{}", tag.handle, tag.suffix);
            let message = format!("the tag `{}` is not allowed", shown.escape_debug());
            self.report
                .error(codes::TAG, span, message)
                .hint("flow files use no YAML tags; leave it out");
        }
    }

    fn too_deep(&mut self, span: Span) {
        let message = format!("more than {DEPTH_MAX} levels within each other");
        self.report.error(codes::TOO_DEEP, span, message);
    }

    fn syntax_error(&mut self, error: &ScanError, text: &str) {
        let start = self.offsets.byte(error.marker().index());
        let span = Span {
            source: self.source,
            start,
            end: start + 1,
        };
        let line_start = text.get(..start).and_then(|before| before.rfind('\n'));
        let line = text
            .get(line_start.map_or(0, |at| at + 1)..)
            .unwrap_or_default();
        let line = line.lines().next().unwrap_or_default();
        let diagnostic = self
            .report
            .error(codes::SYNTAX, span, error.info().to_owned());
        if line.contains("${") {
            diagnostic.hint("YAML reads this expression as its own syntax: put it in quotes");
        } else if line.contains('\t') {
            diagnostic.hint("YAML allows no tabs for indentation: use spaces");
        }
    }
}

fn key_of(node: &Node, report: &mut Report) -> (String, Span) {
    let key = match &node.value {
        Value::String(text) if text == "<<" => {
            report
                .error(codes::MERGE_KEY, node.span, "merge keys are not allowed")
                .hint("write the entries out; `*alias` works for whole values");
            text.clone()
        }
        Value::String(text) => text.clone(),
        Value::Number(number) => number.text().to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Null | Value::Sequence(_) | Value::Mapping(_) => {
            let message = format!("a key must be plain text, not {}", node.type_name());
            report.error(codes::BAD_KEY, node.span, message);
            String::new()
        }
    };
    (key, node.span)
}

fn depth(node: &Node) -> usize {
    match &node.value {
        Value::Sequence(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Mapping(entries) => {
            1 + entries
                .iter()
                .map(|entry| depth(&entry.value))
                .max()
                .unwrap_or(0)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
