//! Config values that are read from the YAML tree; these types only describe them to the schema.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Any YAML value.
#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "describes the key to the schema")]
pub(crate) struct AnyValue(IgnoredAny);

impl JsonSchema for AnyValue {
    fn schema_name() -> Cow<'static, str> {
        "Any".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({})
    }
}
