//! An entry of a stream, and the message that it becomes.

use base64::Engine as _;
use bytes::Bytes;
use message::Request;
use message::memory::Reservation;
use redis::Value;
use serde_json::{Map, Value as Json, json};

use crate::redis::delivery;
use crate::redis::source::StreamSettings;

/// An entry of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its id.
    pub id: String,
    /// Its fields, in order.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether it has been given to somebody before.
    pub is_claimed: bool,
}

/// A list of entries as the server gives it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    /// Those that are still in the stream.
    pub entries: Vec<Entry>,
    /// The ids of those that have been deleted from the stream and are still pending.
    pub deleted: Vec<String>,
    /// The id of the last one, deleted or not.
    pub last: Option<String>,
}

/// Reads a list of entries. An entry that has been deleted has an id and no fields; what is no
/// entry is left out.
pub(super) fn read_all(value: Value, is_claimed: bool) -> Batch {
    let mut batch = Batch::default();
    let Value::Array(items) = value else {
        return batch;
    };
    for item in items {
        let Value::Array(parts) = item else {
            continue;
        };
        let mut parts = parts.into_iter();
        let id = parts.next().and_then(bytes).map(String::from_utf8);
        let Some(Ok(id)) = id else {
            continue;
        };
        batch.last = Some(id.clone());
        match parts.next() {
            Some(Value::Array(flat)) => {
                if let Some(fields) = read_fields(flat) {
                    batch.entries.push(Entry {
                        id,
                        fields,
                        is_claimed,
                    });
                }
            }
            _ => batch.deleted.push(id),
        }
    }
    batch
}

/// Fields, of which the server lists name and value in turn.
fn read_fields(flat: Vec<Value>) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut fields = Vec::with_capacity(flat.len() / 2);
    let mut flat = flat.into_iter();
    while let (Some(name), Some(value)) = (flat.next(), flat.next()) {
        fields.push((bytes(name)?, bytes(value)?));
    }
    Some(fields)
}

/// The bytes of a text.
pub(super) fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

impl Entry {
    /// How many bytes its fields take.
    pub fn size(&self) -> usize {
        let fields = self.fields.iter();
        fields.map(|(name, value)| name.len() + value.len()).sum()
    }

    /// The message, whose body keeps what is reserved for it.
    pub fn request(&self, settings: &StreamSettings, room: Option<Reservation>) -> Request {
        let parameters = [
            ("stream", settings.stream.as_str()),
            ("id", self.id.as_str()),
        ];
        let (body, decode) = match &settings.field {
            Some(field) => (self.field(field), settings.decode),
            None => {
                let body = self.object().to_string().into_bytes();
                (body, component::content::Format::Json)
            }
        };
        let body = match room {
            Some(room) => room.hold(body),
            None => Bytes::from(body),
        };
        delivery::request(&settings.stream, body, decode, &parameters)
    }

    fn field(&self, name: &str) -> Vec<u8> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(field, _)| field == name.as_bytes());
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    }

    /// All fields; what is no UTF-8 is an object with its Base64.
    fn object(&self) -> Json {
        let mut members = Map::new();
        for (name, value) in &self.fields {
            let shown = match std::str::from_utf8(value) {
                Ok(text) => Json::from(text),
                Err(_) => {
                    json!({ "base64": base64::engine::general_purpose::STANDARD.encode(value) })
                }
            };
            members.insert(String::from_utf8_lossy(name).into_owned(), shown);
        }
        members.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn deleted_entries_are_told_apart() {
        let fields = Value::Array(vec![
            text("a"),
            text("1"),
            text("b"),
            Value::BulkString(vec![0xff]),
        ]);
        let listed = Value::Array(vec![
            Value::Array(vec![text("1-0"), fields]),
            Value::Array(vec![text("2-0"), Value::Nil]),
            Value::Nil,
        ]);
        let Batch {
            entries,
            deleted,
            last,
        } = read_all(listed, true);
        assert_eq!(entries.len(), 1);
        assert_eq!(
            (deleted, last),
            (vec!["2-0".to_owned()], Some("2-0".to_owned()))
        );
        assert!(entries[0].is_claimed);
        assert_eq!(
            entries[0].object().to_string(),
            r#"{"a":"1","b":{"base64":"/w=="}}"#
        );
        assert_eq!(entries[0].field("a"), b"1");
        assert_eq!(entries[0].field("none"), b"");
        assert_eq!(read_all(Value::Nil, false), Batch::default());
    }
}
