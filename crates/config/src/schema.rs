//! JSON Schemas of config structs.

use std::borrow::Cow;

use schemars::consts::meta_schemas;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The JSON Schema (draft 2020-12) of a type; doc comments become titles and descriptions.
///
/// Only the two functions of the type are generic: `into_root_schema_for` is 2 kB of code for
/// each of our config structs.
pub fn schema_for<T: JsonSchema>() -> serde_json::Value {
    root_schema(T::json_schema, T::schema_name)
}

fn root_schema(
    of_type: fn(&mut SchemaGenerator) -> Schema,
    name: fn() -> Cow<'static, str>,
) -> serde_json::Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = of_type(&mut generator);
    let object = schema.ensure_object();
    object.entry("title").or_insert_with(|| name().into());
    object.insert("$schema".to_owned(), meta_schemas::DRAFT2020_12.into());
    let definitions = generator.take_definitions(true);
    if !definitions.is_empty() {
        object.insert("$defs".to_owned(), definitions.into());
    }
    schema.into()
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
