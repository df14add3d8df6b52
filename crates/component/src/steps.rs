//! What keys that hold steps look like to the schema: the steps themselves are read from the tree.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// A list of steps.
#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "describes the key to the schema")]
pub struct Steps(IgnoredAny);

impl JsonSchema for Steps {
    fn schema_name() -> Cow<'static, str> {
        "Steps".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "array", "items": { "$ref": "#/$defs/step" }, "minItems": 1 })
    }
}
