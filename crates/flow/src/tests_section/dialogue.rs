//! The `dialogue:` of a test of a menu: what the subscriber does, turn by turn, and what the phone
//! shows.

use std::time::Duration;

use component::dialogue::{MEDIA_TYPE, SessionEvent, SessionInput};
use config::{Node, Span, Spanned, Value};
use message::Request;

use super::mock::duration;
use super::reading::{Reading, given};

/// The subscriber of all dialogues, who is nobody.
const MSISDN: &str = "+15550100";
/// Keys of `in` that a dialogue leaves nothing to say for.
const SAID_BY_TURNS: [&str; 4] = ["method", "body", "file", "content_type"];

/// One turn of a dialogue.
pub struct Turn {
    /// Where it stands.
    pub span: Span,
    /// How long the subscriber takes before.
    pub after: Duration,
    /// What the gateway sends.
    pub request: Request,
    /// The text of the screen.
    pub expect: Option<Spanned<String>>,
    /// What the text of the screen contains.
    pub contains: Option<Spanned<String>>,
    /// Whether the session ends with it.
    pub ends: Option<Spanned<bool>>,
}

/// Reads the turns of a test. Every problem is reported.
pub(super) fn read(
    case: &Node,
    (is_dialogue, base): (bool, Option<&Request>),
    reading: &mut Reading<'_>,
) -> Vec<Turn> {
    let Some(entry) = case.entry("dialogue") else {
        if is_dialogue {
            let hint = "write `dialogue: [ { dial: \"*123#\", expect: \"…\" } ]`";
            reading.refuse(case.span, "a test of a menu has a `dialogue`", hint);
        }
        return Vec::new();
    };
    if !is_dialogue {
        let hint = "write `in:` and `expect:`";
        reading.refuse(entry.key_span, "only menus have dialogues", hint);
        return Vec::new();
    }
    let input = given(case, "in").and_then(Node::as_mapping);
    let said = |key: &str| SAID_BY_TURNS.contains(&key);
    for entry in input.unwrap_or_default().iter().filter(|it| said(&it.key)) {
        let message = format!("`{}` has no effect beside `dialogue`", entry.key);
        reading.refuse(entry.key_span, message, "leave it out");
    }
    let nodes = entry.value.as_sequence().unwrap_or_default();
    let mut said = Said::default();
    let mut turns = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        if at == 0 && node.get("dial").is_none() {
            reading.refuse(node.span, "a dialogue begins with `dial`", "");
        }
        turns.extend(said.read(node, base, reading));
    }
    turns
}

/// What the gateway has said so far.
#[derive(Default)]
struct Said {
    /// How many sessions there were.
    sessions: u32,
    /// The number of the last request within its session.
    sequence: u64,
    last: Option<SessionEvent>,
}

impl Said {
    fn read(
        &mut self,
        node: &Node,
        base: Option<&Request>,
        reading: &mut Reading<'_>,
    ) -> Option<Turn> {
        let event = self.event(node, reading)?;
        self.last = Some(event.clone());
        read_turn(node, (self.sessions, event), base?, reading)
    }

    fn event(&mut self, node: &Node, reading: &mut Reading<'_>) -> Option<SessionEvent> {
        let is = |key: &str| {
            node.get(key)
                .is_some_and(|it| matches!(it.value, Value::Bool(true)))
        };
        let given = [
            node.get("dial").is_some(),
            node.get("reply").is_some(),
            is("again"),
            is("end"),
        ];
        if given.iter().filter(|it| **it).count() != 1 {
            let message = "a turn dials, replies, repeats a request, or ends the session";
            let hint = "write one of `dial`, `reply`, `again: true` and `end: true`";
            reading.refuse(node.span, message, hint);
            return None;
        }
        if is("again") {
            return self.last.clone();
        }
        if is("end") {
            return Some(SessionEvent::End);
        }
        if let Some(code) = node.get("dial") {
            self.sessions += 1;
            self.sequence = 1;
            return Some(SessionEvent::Dial(reading.text(code)));
        }
        self.sequence += 1;
        Some(SessionEvent::Reply {
            text: reading.text(node.get("reply")?),
            sequence: Some(self.sequence),
        })
    }
}

fn read_turn(
    node: &Node,
    (session, event): (u32, SessionEvent),
    base: &Request,
    reading: &mut Reading<'_>,
) -> Option<Turn> {
    let input = SessionInput {
        session: session.to_string(),
        msisdn: MSISDN.to_owned(),
        event,
    };
    let mut request = base.clone();
    request.headers.set("Content-Type", MEDIA_TYPE);
    request.body = input.to_bytes().into();
    let mut text = |key| {
        let node = given(node, key)?;
        let value = reading.text(node);
        let span = node.span;
        Some(Spanned { value, span })
    };
    Some(Turn {
        span: node.span,
        after: node.get("after").and_then(duration).unwrap_or_default(),
        request,
        expect: text("expect"),
        contains: text("contains"),
        ends: node.get("ends").and_then(|node| match node.value {
            Value::Bool(value) => Some(Spanned {
                value,
                span: node.span,
            }),
            _ => None,
        }),
    })
}
