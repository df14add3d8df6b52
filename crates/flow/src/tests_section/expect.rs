//! The `expect:` of a test: what must be so when the flow has ended.

use std::time::Duration;

use bytes::Bytes;
use component::value_template::ValueTemplate;
use config::{Node, Span, Spanned};
use expr::jq::Expression;

use super::mock::{check_name, duration, whole};
use super::reading::{Field, Reading, given};
use crate::codes::UNKNOWN_IN_TEST;
use crate::suggest::did_you_mean;

/// What must be so when the flow has ended.
#[derive(Default)]
pub struct Expectations {
    /// The status of the reply.
    pub status: Option<Spanned<u64>>,
    /// The reply.
    pub reply: MessageExpectation,
    /// The calls to other systems, by name.
    pub calls: Vec<(String, Spanned<Calls>)>,
    /// The values of names of the flow, by the slots where they lie.
    pub variables: Vec<(usize, Field)>,
    /// The failure that ended the steps.
    pub error: Option<ErrorExpectation>,
    /// The least and the most time that the flow took.
    pub took: Option<Spanned<(Option<Duration>, Option<Duration>)>>,
}

/// What must be so of a message.
#[derive(Default)]
pub struct MessageExpectation {
    /// Header fields.
    pub headers: Vec<Field>,
    /// What the body is equal to.
    pub body: Option<Spanned<ValueTemplate>>,
    /// What the body must contain.
    pub contains: Option<Spanned<ValueTemplate>>,
    /// The bytes of the body.
    pub file: Option<Spanned<Bytes>>,
    /// What must hold.
    pub conditions: Vec<Spanned<Expression>>,
}

/// Calls to one system.
pub enum Calls {
    /// How many.
    Times(u64),
    /// Each in order.
    Each(Vec<CallExpectation>),
}

/// One call to another system.
pub struct CallExpectation {
    /// Where it stands.
    pub span: Span,
    /// The method.
    pub method: Option<Spanned<String>>,
    /// The path.
    pub path: Option<Spanned<ValueTemplate>>,
    /// Parameters of the query.
    pub query: Vec<Field>,
    /// Headers and content.
    pub message: MessageExpectation,
}

/// A failure.
pub struct ErrorExpectation {
    /// Where it stands.
    pub span: Span,
    /// Its kind.
    pub kind: Option<Spanned<String>>,
    /// Its status.
    pub status: Option<Spanned<u64>>,
    /// The step that failed.
    pub step: Option<Spanned<String>>,
    /// The detail that the caller sees.
    pub detail: Option<Spanned<String>>,
}

/// Reads all expectations. Every problem is reported.
pub(super) fn read(node: Option<&Node>, reading: &mut Reading<'_>) -> Expectations {
    let Some(node) = node else {
        return Expectations::default();
    };
    Expectations {
        status: number(node.get("status")),
        reply: read_message(node, true, reading),
        calls: read_calls(node.get("calls"), reading),
        variables: read_variables(node.get("variables"), reading),
        error: given(node, "error").map(read_error),
        took: node.get("took").map(read_took),
    }
}

fn read_message(node: &Node, is_reply: bool, reading: &mut Reading<'_>) -> MessageExpectation {
    let mut value = |key| {
        let node: &Node = node.get(key)?;
        let value = reading.value(node)?;
        let span = node.span;
        Some(Spanned { value, span })
    };
    let (body, contains) = (value("body"), value("body_contains"));
    let file = given(node, "file").and_then(|name| {
        let value = reading.file(name)?;
        let span = name.span;
        Some(Spanned { value, span })
    });
    MessageExpectation {
        headers: reading.headers(node.get("headers")),
        body,
        contains,
        file,
        conditions: reading.conditions(given(node, "where"), is_reply),
    }
}

fn read_calls(node: Option<&Node>, reading: &mut Reading<'_>) -> Vec<(String, Spanned<Calls>)> {
    let mut read = Vec::new();
    for entry in node.and_then(Node::as_mapping).unwrap_or_default() {
        check_name(&entry.key, entry.key_span, reading);
        let value = match entry.value.as_sequence() {
            Some(nodes) => {
                let calls = nodes.iter().map(|node| read_call(node, reading));
                Calls::Each(calls.collect())
            }
            None => {
                let times = entry.value.get("times").unwrap_or(&entry.value);
                Calls::Times(whole(times).unwrap_or_default())
            }
        };
        let span = entry.value.span;
        read.push((entry.key.clone(), Spanned { value, span }));
    }
    read
}

fn read_call(node: &Node, reading: &mut Reading<'_>) -> CallExpectation {
    let path = given(node, "path").and_then(|node| {
        let value = reading.value(node)?;
        let span = node.span;
        Some(Spanned { value, span })
    });
    CallExpectation {
        span: node.span,
        method: text(node.get("method")),
        path,
        query: reading.fields(node.get("query")),
        message: read_message(node, false, reading),
    }
}

fn read_variables(node: Option<&Node>, reading: &mut Reading<'_>) -> Vec<(usize, Field)> {
    let mut read = Vec::new();
    let entries = node.and_then(Node::as_mapping).unwrap_or_default();
    for (entry, field) in entries.iter().zip(reading.fields(node)) {
        let slot = reading
            .names
            .declared()
            .find(|(name, _)| *name == entry.key);
        if let Some((_, slot)) = slot {
            read.push((slot, field));
            continue;
        }
        let message = format!("the flow has no name `{}`", entry.key.escape_debug());
        let names = reading.names.declared().map(|(name, _)| name);
        let hint = did_you_mean(&entry.key, names);
        let hint = hint.unwrap_or_else(|| "names come from `as:` and `set:`".to_owned());
        let report = &mut *reading.report;
        report
            .error(UNKNOWN_IN_TEST, entry.key_span, message)
            .hint(hint);
    }
    read
}

fn read_error(node: &Node) -> ErrorExpectation {
    let is_mapping = node.as_mapping().is_some();
    let kind = if is_mapping {
        node.get("kind")
    } else {
        Some(node)
    };
    ErrorExpectation {
        span: node.span,
        kind: text(kind),
        status: number(node.get("status")),
        step: text(node.get("step")),
        detail: text(node.get("detail")),
    }
}

fn read_took(node: &Node) -> Spanned<(Option<Duration>, Option<Duration>)> {
    let exact = duration(node);
    let bound = |key| node.get(key).and_then(duration).or(exact);
    Spanned {
        value: (bound("at_least"), bound("at_most")),
        span: node.span,
    }
}

fn number(node: Option<&Node>) -> Option<Spanned<u64>> {
    let node = node?;
    let value = whole(node)?;
    let span = node.span;
    Some(Spanned { value, span })
}

fn text(node: Option<&Node>) -> Option<Spanned<String>> {
    let node = node?;
    let value = node.as_str()?.to_owned();
    let span = node.span;
    Some(Spanned { value, span })
}
