//! JSON Schemas of config structs.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The JSON Schema (draft 2020-12) of a type; doc comments become titles and descriptions.
pub fn schema_for<T: JsonSchema>() -> serde_json::Value {
    schemars::generate::SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<T>()
        .into()
}

/// Any YAML value, read from the tree of nodes: this only describes it to the schema.
#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "describes the key to the schema")]
pub struct AnyValue(IgnoredAny);

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
