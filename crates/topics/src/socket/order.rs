//! What clients of topics send over WebSocket, and the answers that are for one client alone.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value as Json, json};

use super::subscription::Wish;
use crate::ask::Ask;
use crate::document::Document;
use crate::view::Mode;

/// A message of a client.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
enum Received {
    Subscribe {
        topic: Option<String>,
        mode: Option<Mode>,
        from: Option<String>,
        #[serde(rename = "lastEventId")]
        last_event_id: Option<String>,
        filter: Option<String>,
        select: Option<String>,
        window: Option<u64>,
        #[serde(rename = "ref")]
        reference: Option<Json>,
    },
    Unsubscribe {
        topic: Option<String>,
        #[serde(rename = "ref")]
        reference: Option<Json>,
    },
    Publish {
        topic: Option<String>,
        #[allow(dead_code, reason = "taken from the text as it stands")]
        data: IgnoredAny,
        key: Option<String>,
        #[serde(rename = "ref")]
        reference: Option<Json>,
    },
    Ack {
        topic: Option<String>,
        id: String,
    },
    Ping {
        #[serde(rename = "ref")]
        reference: Option<Json>,
    },
}

/// What a client wants.
#[derive(Debug)]
pub(super) enum Want {
    Subscribe(Box<Wish>),
    Unsubscribe,
    Publish { data: Bytes, key: Option<String> },
    Acknowledge(String),
    Pong,
}

/// What a client wants of a topic, and what the answer names.
#[derive(Debug)]
pub(super) struct Order {
    pub want: Want,
    pub topic: Option<String>,
    pub reference: Option<Json>,
}

/// Reads a message.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(text: &Bytes) -> Result<Order, String> {
    let received = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    Ok(match received {
        Received::Subscribe {
            topic,
            mode,
            from,
            last_event_id,
            filter,
            select,
            window,
            reference,
        } => {
            if window == Some(0) {
                return Err("`window` is at least 1".to_owned());
            }
            let ask = Ask {
                topics: Vec::new(),
                mode,
                filter,
                select,
                from,
                last: last_event_id,
            };
            Order {
                want: Want::Subscribe(Box::new(Wish { ask, window })),
                topic,
                reference,
            }
        }
        Received::Unsubscribe { topic, reference } => Order {
            want: Want::Unsubscribe,
            topic,
            reference,
        },
        Received::Publish {
            topic,
            key,
            reference,
            ..
        } => Order {
            want: Want::Publish {
                data: data_of(text)?,
                key,
            },
            topic,
            reference,
        },
        Received::Ack { topic, id } => Order {
            want: Want::Acknowledge(id),
            topic,
            reference: None,
        },
        Received::Ping { reference } => Order {
            want: Want::Pong,
            topic: None,
            reference,
        },
    })
}

/// The member `data` as it stands: what is published keeps the spelling of its numbers.
fn data_of(text: &Bytes) -> Result<Bytes, String> {
    let document = Document::parse(text).map_err(|error| error.to_string())?;
    let data = document.root().member(b"data");
    let data = data.ok_or_else(|| "`data` is missing".to_owned())?;
    Ok(Bytes::copy_from_slice(data.text()))
}

/// An answer.
pub(super) fn answer(
    kind: &str,
    topic: Option<&str>,
    reference: Option<&Json>,
    more: impl IntoIterator<Item = (&'static str, Json)>,
) -> String {
    let mut answer = json!({ "type": kind });
    if let Some(members) = answer.as_object_mut() {
        if let Some(topic) = topic {
            members.insert("topic".to_owned(), topic.into());
        }
        if let Some(reference) = reference {
            members.insert("ref".to_owned(), reference.clone());
        }
        members.extend(
            more.into_iter()
                .map(|(name, value)| (name.to_owned(), value)),
        );
    }
    answer.to_string()
}

/// The answer to something that cannot be done.
pub(super) fn failure(
    topic: Option<&str>,
    reference: Option<&Json>,
    reason: &str,
    detail: &str,
) -> String {
    let data = json!({ "reason": reason, "detail": detail });
    answer("error", topic, reference, [("data", data)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_keeps_its_spelling() {
        let text = br#"{"type":"publish","data": {"a": 1.50, "b": 1e5},"ref":7}"#;
        let order = read(&Bytes::from_static(text)).unwrap();
        let Want::Publish { data, key: None } = order.want else {
            panic!("{order:?}");
        };
        assert_eq!(data, &br#"{"a":1.50,"b":1e5}"#[..]);
        assert_eq!(order.reference, Some(json!(7)));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"type":"x"}"#,
            r#"{"type":"ack"}"#,
            r#"{"type":"subscribe","topics":"a"}"#,
            r#"{"type":"subscribe","window":0}"#,
            r#"{"type":"publish"}"#,
        ] {
            assert!(read(&Bytes::from(text)).is_err(), "{text}");
        }
    }
}
