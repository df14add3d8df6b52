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
    let turns = entry.value.as_sequence().unwrap_or_default();
    let mut session = 0;
    let turns = turns.iter().enumerate().filter_map(|(at, node)| {
        if node.get("dial").is_some() {
            session += 1;
        } else if at == 0 {
            reading.refuse(node.span, "a dialogue begins with `dial`", "");
        }
        read_turn(node, session, base?, reading)
    });
    turns.collect()
}

fn read_turn(node: &Node, session: u32, base: &Request, reading: &mut Reading<'_>) -> Option<Turn> {
    let event = match (node.get("dial"), node.get("reply")) {
        (Some(code), None) => SessionEvent::Dial(reading.text(code)),
        (None, Some(reply)) => SessionEvent::Reply {
            text: reading.text(reply),
            sequence: None,
        },
        _ => {
            let message = "a turn either dials or replies";
            reading.refuse(node.span, message, "write `dial` or `reply`");
            return None;
        }
    };
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
