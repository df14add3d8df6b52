//! The `mock:` of a test: what other systems answer.

use std::time::Duration;

use component::failure::Matcher;
use config::{Node, Span};
use expr::jq::Expression;
use message::Kind;

use super::reading::{Field, Payload, Reading, given};
use crate::codes::UNKNOWN_IN_TEST;
use crate::suggest::did_you_mean;

/// What stands in for one system or step.
pub struct Mock {
    /// The name of the connection, step or flow, or the host and port of a URL.
    pub name: String,
    /// Its answers: the first one answers whose condition holds and that is not used up.
    pub answers: Vec<Answer>,
}

/// One answer of a mock.
pub struct Answer {
    /// Where it stands.
    pub span: Span,
    /// The condition on the request.
    pub when: Option<Expression>,
    /// The largest number of answers.
    pub times: Option<u64>,
    /// How long it takes.
    pub delay: Duration,
    /// What it is.
    pub kind: AnswerKind,
}

/// What a mock answers.
pub enum AnswerKind {
    /// It fails.
    Fails(Kind),
    /// It replies.
    Replies {
        /// The status.
        status: u16,
        /// Header fields.
        headers: Vec<Field>,
        /// The content.
        payload: Payload,
    },
}

/// Reads all mocks. Every problem is reported.
pub(super) fn read(node: Option<&Node>, reading: &mut Reading<'_>) -> Vec<Mock> {
    let mut mocks = Vec::new();
    for entry in node.and_then(Node::as_mapping).unwrap_or_default() {
        check_name(&entry.key, entry.key_span, reading);
        let one = std::slice::from_ref(&entry.value);
        let nodes = entry.value.as_sequence().unwrap_or(one);
        let answers = nodes.iter().enumerate().map(|(at, node)| {
            let is_last = at + 1 == nodes.len();
            read_answer(node, is_last, reading)
        });
        mocks.push(Mock {
            name: entry.key.clone(),
            answers: answers.collect(),
        });
    }
    mocks
}

/// Reports a name that stands for nothing that the flow reaches.
pub(super) fn check_name(name: &str, span: Span, reading: &mut Reading<'_>) {
    if reading.known.has(name) {
        return;
    }
    let message = format!(
        "`{}` is neither a connection, a host nor a step of the flow",
        name.escape_debug()
    );
    let systems = reading.known.systems();
    let hint = match did_you_mean(name, reading.known.all()) {
        Some(near) => near,
        None if systems.is_empty() => "the flow reaches no other system".to_owned(),
        None => format!("the flow reaches {}", systems.join(", ")),
    };
    reading
        .report
        .error(UNKNOWN_IN_TEST, span, message)
        .hint(hint);
}

fn read_answer(node: &Node, is_last: bool, reading: &mut Reading<'_>) -> Answer {
    let when = given(node, "when");
    let times = node.get("times").and_then(whole);
    let once = (!is_last && when.is_none()).then_some(1);
    let delay = node.get("delay").and_then(duration);
    let when = when.and_then(|when| reading.condition(when, false));
    let kind = match given(node, "error") {
        Some(error) => {
            let parts = ["status", "headers", "content_type", "body", "file"];
            if let Some(part) = parts.iter().find_map(|part| node.entry(part)) {
                let message = format!("`{}` beside `error`", part.key);
                let hint = "a mock that fails does not reply: leave one of them out";
                reading.refuse(part.key_span, message, hint);
            }
            AnswerKind::Fails(kind_of(error.as_str().unwrap_or_default()))
        }
        None => AnswerKind::Replies {
            status: node.get("status").and_then(whole).unwrap_or(200) as u16,
            headers: reading.headers(node.get("headers")),
            payload: reading.payload(node),
        },
    };
    Answer {
        span: node.span,
        when: when.map(|when| when.value),
        times: times.or(once),
        delay: delay.unwrap_or_default(),
        kind,
    }
}

fn kind_of(name: &str) -> Kind {
    match Matcher::of_name(name) {
        Some(Matcher::Kind(kind)) => kind,
        // The schema has no other names.
        _ => Kind::Connection,
    }
}

/// An integer that is not negative.
pub(super) fn whole(node: &Node) -> Option<u64> {
    match &node.value {
        config::Value::Number(number) => u64::try_from(number.as_i64()?).ok(),
        _ => None,
    }
}

/// A length of time.
pub(super) fn duration(node: &Node) -> Option<Duration> {
    let time: config::Duration = node.as_str()?.parse().ok()?;
    Some(time.0)
}
