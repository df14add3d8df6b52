//! Schemas of how events are sent, as callers say it and as it is shown.

use serde_json::{Map, Value, json};

use crate::webhooks::manage::wishes::{HEADERS_MAX, MASK};

const TIME: &str = "^[0-9]+(ms|s|m|h|d)$";
const SIZE: &str = "^[0-9]+(B|kB|KiB|MB|MiB|GB|GiB)$";

fn number(most: u64, usual: Option<u64>, description: &str) -> Value {
    let mut schema = json!({
        "type": ["integer", "null"],
        "minimum": 1,
        "maximum": most,
        "description": description,
    });
    if let (Some(usual), Some(members)) = (usual, schema.as_object_mut()) {
        members.insert("default".to_owned(), usual.into());
    }
    schema
}

fn text(pattern: &str, usual: &str, description: &str) -> Value {
    json!({
        "type": ["string", "null"],
        "pattern": pattern,
        "default": usual,
        "description": description,
    })
}

fn batch() -> Value {
    json!({
        "type": ["object", "null"],
        "additionalProperties": false,
        "description": "Several events in one request, as a JSON array: it is sent when one of the \
                        limits is reached. `bytes` times `concurrent` is bounded.",
        "properties": {
            "count": number(1000, Some(100), "The largest number of events."),
            "bytes": text(SIZE, "256KiB", "Their approximate size, from 1KiB to 16MiB."),
            "time": text(TIME, "1s", "How long the first one waits, from 1ms to 1h."),
        },
    })
}

fn throttle() -> Value {
    json!({
        "type": ["object", "null"],
        "additionalProperties": false,
        "description": "Limits the rate of requests.",
        "properties": {
            "requests": number(1_000_000, None, "The number of requests in a period; required."),
            "per": text(TIME, "1s", "The period, from 1ms to 1d."),
            "burst": number(1_000_000, Some(1), "How many may come at once, up to `requests`."),
        },
    })
}

/// What callers set, and read, of how events are sent.
pub(super) fn members() -> Map<String, Value> {
    let ordered = json!({
        "type": ["boolean", "string", "null"],
        "enum": [true, "by-key", false, null],
        "default": true,
        "description": "Which events are kept in order: all, those with the same `key`, or none.",
    });
    let key = json!({
        "type": ["string", "null"],
        "description": "The ordering key for `by-key`: a jq expression, where the topic allows \
                        expressions.",
    });
    let cloudevents = json!({
        "type": ["string", "null"],
        "enum": ["structured", "binary", null],
        "description": "Sends events as CloudEvents 1.0.",
    });
    let headers = json!({
        "type": ["object", "null"],
        "maxProperties": HEADERS_MAX,
        "additionalProperties": { "type": ["string", "number", "boolean", "null"] },
        "description": format!(
            "Header lines of the requests. Their values are shown as `{MASK}`. In a change, a line \
             that is not named stays and `null` removes one."
        ),
    });
    let concurrent = "How many requests may be in progress at a time where not all events are in \
                      order. The file may allow less.";
    let members = [
        ("ordered", ordered),
        ("key", key),
        ("concurrent", number(100, Some(8), concurrent)),
        ("batch", batch()),
        ("throttle", throttle()),
        ("cloudevents", cloudevents),
        ("headers", headers),
    ];
    let members = members.into_iter();
    members
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect()
}
