//! The members of JSON objects that requests have as bodies.

use std::fmt;

use message::Fault;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value};

/// The members of a JSON object, each of which comes once: of a name that comes twice others could
/// read the other value.
struct Object(Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor).map(Self)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Map<String, Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut members = Map::new();
        while let Some((name, value)) = access.next_entry::<String, Value>()? {
            if members.contains_key(&name) {
                let name = shortened(&name);
                return Err(A::Error::custom(format!("`{name}` comes twice")));
            }
            members.insert(name, value);
        }
        Ok(members)
    }
}

/// As much of a name as is repeated to whoever has sent it.
pub(super) fn shortened(name: &str) -> String {
    let is_shown = |it: &char| !it.is_control();
    name.chars().filter(is_shown).take(40).collect()
}

/// The members of a body, which is a JSON object.
///
/// # Errors
/// When it is none.
pub(super) fn object(body: &[u8]) -> Result<Map<String, Value>, Fault> {
    let read: Result<Object, _> = serde_json::from_slice(body);
    read.map(|it| it.0).map_err(|error| {
        // What it says is about the request alone.
        Fault::invalid(format!("the body is not a JSON object: {error}"))
    })
}

/// Takes the text of a member out; none when it is null or not there.
///
/// # Errors
/// When it is no text.
pub(super) fn take_text(
    members: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<String>, Fault> {
    match members.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Fault::invalid(format!("`{name}` is a text"))),
    }
}

/// Refuses members that are left.
///
/// # Errors
/// When there are some.
pub(super) fn check_rest(members: &Map<String, Value>) -> Result<(), Fault> {
    match members.keys().next() {
        None => Ok(()),
        Some(name) => {
            let name = shortened(name);
            Err(Fault::invalid(format!("there is no member `{name}`")))
        }
    }
}
