//! CloudEvents 1.0: what is said of an event beside its body.

use std::fmt::Write as _;

use bytes::Bytes;
use message::Headers;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::times::rfc3339;
use super::view::{Shown, ViewPlan};
use crate::frame::Kind;

/// How an event is a CloudEvent (CloudEvents HTTP Protocol Binding 1.0.2, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum CloudEvents {
    /// In a JSON object.
    Structured,
    /// With headers.
    Binary,
}

/// What the body of an event is.
pub(super) fn media_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Patch => "application/json-patch+json",
        _ => "application/json",
    }
}

/// An event as a JSON object (JSON Event Format 1.0.2).
pub(super) fn structured(plan: &ViewPlan, shown: &Shown, (kind, body): (Kind, &[u8])) -> Bytes {
    object((shown.id_text(), &plan.source, shown.at_ms), (kind, body))
}

/// The same of its parts. Neither the id nor the source has anything in it that JSON escapes.
pub(super) fn object((id, source, at_ms): (&str, &str, u64), (kind, body): (Kind, &[u8])) -> Bytes {
    let (name, media) = (kind.name(), media_type(kind));
    let mut out = String::with_capacity(192);
    // Writing to a text does not fail.
    let _ = write!(
        out,
        "{{\"specversion\":\"1.0\",\"id\":\"{id}\",\"source\":\"{source}\",\
         \"type\":\"intertie.{name}\",\"time\":\"{}\",\"datacontenttype\":\"{media}\",\"data\":",
        time(at_ms)
    );
    let mut out = out.into_bytes();
    out.reserve_exact(body.len() + 1);
    out.extend_from_slice(body);
    out.push(b'}');
    out.into()
}

/// The headers of an event in binary mode.
pub(super) fn add_headers(
    (id, source, at_ms): (&str, &str, u64),
    kind: Kind,
    headers: &mut Headers,
) {
    headers.append("ce-specversion", "1.0");
    headers.append("ce-id", id);
    headers.append("ce-source", source);
    headers.append("ce-type", format!("intertie.{}", kind.name()));
    headers.append("ce-time", time(at_ms));
}

/// A time in milliseconds since 1970 as RFC 3339 has it.
fn time(at_ms: u64) -> String {
    rfc3339(at_ms).unwrap_or_else(|| jiff::Timestamp::MAX.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_an_object_with_its_body_in_it() {
        let made = object(
            ("1f-7", "/topics/prices", 1_700_000_000_123),
            (Kind::Patch, b"[]"),
        );
        let made: serde_json::Value = serde_json::from_slice(&made).unwrap();
        let expected = serde_json::json!({
            "specversion": "1.0", "id": "1f-7", "source": "/topics/prices",
            "type": "intertie.patch", "time": "2023-11-14T22:13:20.123Z",
            "datacontenttype": "application/json-patch+json", "data": [],
        });
        assert_eq!(made, expected);
    }
}
