//! What a command's answer is to the flow.

use bytes::Bytes;
use expr::{Value, value};
use message::{Fault, Kind, Origin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::Action;

/// The most levels of a JSON text that is read.
const DEPTH_MAX: usize = 256;

/// How texts that the server keeps are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Format {
    /// As text; bytes when they are no UTF-8.
    #[default]
    Text,
    /// As JSON: its value. What is none is an error.
    Json,
    /// As bytes.
    Bytes,
}

/// What kind of answer a command gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// One kept text, or null.
    Kept,
    /// Several kept texts.
    List,
    /// Kept texts by name.
    Object,
    /// A number.
    Count,
    /// Whether something was there or done.
    Done,
    /// A name that the server has given.
    Name,
}

/// An answer of the server, free of the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Nothing.
    Nothing,
    /// It has been done.
    Okay,
    /// A number.
    Number(i64),
    /// A kept text.
    Text(Bytes),
    /// Several answers.
    List(Vec<Self>),
}

impl Action {
    /// What kind of answer the command gets.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Get | Self::HashGet(_) | Self::Pop(..) => Outcome::Kept,
            Self::Range(..) | Self::SetMembers => Outcome::List,
            Self::HashAll => Outcome::Object,
            Self::Set { .. }
            | Self::Delete
            | Self::Exists
            | Self::Expire(_)
            | Self::HashDelete(_) => Outcome::Done,
            Self::Append(..) => Outcome::Name,
            Self::Increment(_)
            | Self::HashSet(_)
            | Self::Push(..)
            | Self::Length
            | Self::SetAdd(_)
            | Self::SetRemove(_)
            | Self::Publish(_) => Outcome::Count,
        }
    }
}

impl Outcome {
    /// The value that the flow gets.
    ///
    /// # Errors
    /// `connection` for an answer that such a command never gets; `stored-value` raised for a text
    /// that is not of the format.
    pub fn of_answer(self, answer: Answer, format: Format) -> Result<Value, Fault> {
        match (self, answer) {
            (Self::Kept, Answer::Nothing) => Ok(Value::Null),
            (Self::Kept, Answer::Text(bytes)) => format.read(bytes),
            (Self::List, Answer::List(items)) => {
                let items = items
                    .into_iter()
                    .map(text_of)
                    .map(|bytes| format.read(bytes?));
                Ok(value::array(items.collect::<Result<Vec<_>, _>>()?))
            }
            (Self::Object, Answer::List(items)) => object(items, format),
            (Self::Count, Answer::Number(number)) => Ok(value::integer(number)),
            (Self::Done, Answer::Number(number)) => Ok(Value::Bool(number > 0)),
            (Self::Done, Answer::Okay) => Ok(Value::Bool(true)),
            (Self::Done, Answer::Nothing) => Ok(Value::Bool(false)),
            (Self::Name, Answer::Text(bytes)) => Format::Text.read(bytes),
            _ => Err(odd()),
        }
    }

    /// What whoever stands in for the server says, when it is something that the command can give.
    ///
    /// # Errors
    /// `connection` when it is not.
    pub fn of_stand_in(self, said: Value) -> Result<Value, Fault> {
        let is_sound = match self {
            Self::Kept => true,
            Self::List => matches!(said, Value::Arr(_)),
            Self::Object => matches!(said, Value::Obj(_)),
            Self::Count => matches!(said, Value::Num(_)),
            Self::Done => matches!(said, Value::Bool(_)),
            Self::Name => matches!(said, Value::TStr(_)),
        };
        match is_sound {
            true => Ok(said),
            false => Err(odd()),
        }
    }
}

fn object(items: Vec<Answer>, format: Format) -> Result<Value, Fault> {
    let mut members = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let (Some(name), Some(item)) = (items.next(), items.next()) {
        let name = String::from_utf8(text_of(name)?.to_vec()).map_err(|_| {
            let detail = "a field's name in the store is not UTF-8".to_owned();
            Fault::raised("stored-value", None, detail)
        })?;
        members.push((name, format.read(text_of(item)?)?));
    }
    Ok(value::object(members))
}

fn text_of(answer: Answer) -> Result<Bytes, Fault> {
    match answer {
        Answer::Text(bytes) => Ok(bytes),
        _ => Err(odd()),
    }
}

fn odd() -> Fault {
    let detail = "the store's answer is none that the command can have";
    Fault::new(Kind::Connection, Origin::Upstream, detail)
}

impl Format {
    /// A kept text as a value.
    ///
    /// # Errors
    /// `stored-value` raised when it is not of this format.
    pub fn read(self, bytes: Bytes) -> Result<Value, Fault> {
        match self {
            Self::Text => Ok(match std::str::from_utf8(&bytes) {
                Ok(_) => Value::utf8_str(bytes),
                Err(_) => value::bytes(bytes),
            }),
            Self::Bytes => Ok(value::bytes(bytes)),
            Self::Json => {
                let parsed = expr::json::parse(&bytes, DEPTH_MAX);
                parsed.map_err(|error| {
                    let detail = "what the store keeps is not JSON".to_owned();
                    Fault::raised("stored-value", None, detail).with_cause(error)
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(outcome: Outcome, answer: Answer, format: Format) -> String {
        match outcome.of_answer(answer, format) {
            Ok(value) => format!("{} {}", value::kind(&value), value::shown(&value)),
            Err(fault) => fault.name().to_owned(),
        }
    }

    #[test]
    fn answers_become_values_of_their_kind() {
        let text = |text: &str| Answer::Text(Bytes::copy_from_slice(text.as_bytes()));
        let kept = |answer, format| shown(Outcome::Kept, answer, format);
        assert_eq!(kept(Answer::Nothing, Format::Json), "null null");
        assert_eq!(kept(text("7"), Format::Text), "string \"7\"");
        assert_eq!(kept(text("7"), Format::Json), "number 7");
        assert_eq!(kept(text("{"), Format::Json), "stored-value");
        assert_eq!(kept(Answer::Okay, Format::Text), "connection");
        assert!(kept(Answer::Text(Bytes::from_static(&[0xff])), Format::Text).starts_with("bytes"));
        assert!(kept(text("a"), Format::Bytes).starts_with("bytes"));
        let done = |answer| shown(Outcome::Done, answer, Format::Text);
        assert_eq!(done(Answer::Nothing), "boolean false");
        assert_eq!(done(Answer::Okay), "boolean true");
        assert_eq!(done(Answer::Number(0)), "boolean false");
        let fields = Answer::List(vec![text("a"), text("1"), text("b"), text("[]")]);
        let object = shown(Outcome::Object, fields, Format::Json);
        assert_eq!(object, "object {\"a\":1,\"b\":[]}");
        let odd = Answer::List(vec![Answer::Nothing]);
        assert_eq!(shown(Outcome::List, odd, Format::Text), "connection");
    }
}
