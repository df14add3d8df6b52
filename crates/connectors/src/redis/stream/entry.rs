//! An entry of a stream, and the message that it becomes.

use base64::Engine as _;
use bytes::Bytes;
use component::content::Format;
use component::intake::Incoming;
use message::memory::Reservation;
use message::{Fault, Request};
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

    /// The body of its message. The fields are forgotten unless the entry may be moved to another
    /// stream.
    fn take_body(&mut self, settings: &StreamSettings) -> Vec<u8> {
        let keeps_fields = settings.dead_letters.is_some();
        let body = match &settings.field {
            Some(name) if keeps_fields => self.field(name).cloned().unwrap_or_default(),
            Some(name) => self.field(name).map(std::mem::take).unwrap_or_default(),
            None => self.object().to_string().into_bytes(),
        };
        if !keeps_fields {
            self.fields = Vec::new();
        }
        body
    }

    fn field(&mut self, name: &str) -> Option<&mut Vec<u8>> {
        let mut fields = self.fields.iter_mut();
        let found = fields.find(|(field, _)| field == name.as_bytes());
        found.map(|(_, value)| value)
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

/// An entry and its flow.
pub(super) struct Delivery<'a> {
    pub settings: &'a StreamSettings,
    pub entry: Entry,
    /// How often the entry has been given to somebody before.
    pub delivered_before: u32,
    /// What is reserved for the body, which has it from the first run on, or why the flow does not
    /// get the entry.
    pub room: Result<Option<Reservation>, Fault>,
    /// The body, which all runs of the flow and the dead letter share.
    pub body: Option<Bytes>,
}

impl Delivery<'_> {
    fn message(&mut self) -> Request {
        let body = self.body();
        let settings = self.settings;
        let decode = match settings.field {
            Some(_) => settings.decode,
            None => Format::Json,
        };
        let parameters = [
            ("stream", settings.stream.as_str()),
            ("id", self.entry.id.as_str()),
        ];
        delivery::request(&settings.stream, body, decode, &parameters)
    }

    fn body(&mut self) -> Bytes {
        if let Some(body) = &self.body {
            return body.clone();
        }
        let body = self.entry.take_body(self.settings);
        let room = self.room.as_mut().ok().and_then(Option::take);
        let body = match room {
            Some(room) => room.hold(body),
            None => Bytes::from(body),
        };
        self.body.insert(body).clone()
    }
}

impl Incoming for Delivery<'_> {
    fn id(&self) -> String {
        self.entry.id.clone()
    }

    fn request(&mut self, _: u32) -> Result<Request, Fault> {
        match &self.room {
            Ok(_) => Ok(self.message()),
            Err(fault) => Err(fault.clone()),
        }
    }

    fn delivered_before(&self) -> u32 {
        self.delivered_before
    }

    /// An entry that is too large for the flow is kept in full all the same.
    fn letter(&mut self, _: u32) -> Request {
        self.message()
    }
}

#[cfg(test)]
mod tests {
    use message::memory;

    use super::*;
    use crate::redis::source::Start;

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
            mut entries,
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
        assert_eq!(entries[0].field("a").cloned(), Some(b"1".to_vec()));
        assert_eq!(entries[0].field("none"), None);
        assert_eq!(read_all(Value::Nil, false), Batch::default());
    }

    fn delivery<'a>(settings: &'a StreamSettings, fields: &[(&str, &str)]) -> Delivery<'a> {
        let bytes = |text: &&str| text.as_bytes().to_vec();
        let fields = fields
            .iter()
            .map(|(name, value)| (bytes(name), bytes(value)));
        Delivery {
            settings,
            entry: Entry {
                id: "1-0".to_owned(),
                fields: fields.collect(),
                is_claimed: false,
            },
            delivered_before: 0,
            room: Ok(None),
            body: None,
        }
    }

    fn settings(field: Option<&str>, dead_letters: Option<&str>) -> StreamSettings {
        StreamSettings {
            stream: "s".to_owned(),
            group: "g".to_owned(),
            consumer: None,
            start: Start::New,
            batch: 1,
            concurrent: 1,
            idle: std::time::Duration::from_secs(1),
            dead_letters: dead_letters.map(str::to_owned),
            field: field.map(str::to_owned),
            decode: Format::Text,
        }
    }

    #[test]
    fn all_attempts_and_the_dead_letter_share_one_body() {
        let fields = [("a", "1"), ("b", "2")];
        for (field, expected) in [(Some("b"), "2"), (None, r#"{"a":"1","b":"2"}"#)] {
            for dead_letters in [None, Some("dead")] {
                let settings = settings(field, dead_letters);
                let mut delivery = delivery(&settings, &fields);
                let first = delivery.request(1).unwrap();
                assert_eq!(first.body.as_bytes(), expected.as_bytes());
                let place = first.body.as_bytes().as_ptr();
                for other in [delivery.request(2).unwrap(), delivery.letter(2)] {
                    assert_eq!(other.body.as_bytes().as_ptr(), place);
                }
                // Only what may be moved to another stream needs its fields.
                let kept = delivery.entry.fields.len();
                assert_eq!(kept, dead_letters.map_or(0, |_| fields.len()));
            }
        }
    }

    #[test]
    fn an_entry_that_the_flow_does_not_get_is_kept_whole() {
        let settings = settings(Some("a"), None);
        let mut delivery = delivery(&settings, &[("a", "1")]);
        delivery.room = Err(Fault::invalid("too large"));
        assert!(delivery.request(1).is_err());
        assert_eq!(delivery.letter(1).body.as_bytes(), b"1");
    }

    #[test]
    fn room_is_given_back_when_an_entry_is_settled() {
        let budget: &'static memory::Budget = Box::leak(Box::new(memory::Budget::new(1 << 20)));
        let settings = settings(Some("a"), None);
        let mut delivery = delivery(&settings, &[("a", "1")]);
        delivery.room = Ok(budget.take(100_000).ok());
        let request = delivery.request(1).unwrap();
        drop(request);
        assert_eq!(budget.used(), 100_000, "it may be needed again");
        drop(delivery);
        assert_eq!(budget.used(), 0);
    }
}
