//! JSON Schemas of config structs.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

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

/// Schemas by the address of the function that makes them: one that the compiler has merged with
/// another makes the same schema.
static MADE: LazyLock<Mutex<HashMap<usize, Arc<serde_json::Value>>>> =
    LazyLock::new(Mutex::default);

/// The schema that a function makes, without what only describes it. It is made once and kept: the
/// documents and steps of a start are thousands of a few kinds, and to make a schema costs more
/// than to check a document against it.
pub(crate) fn kept(make: fn() -> serde_json::Value) -> Arc<serde_json::Value> {
    let place = make as usize;
    let lock = || MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get(&place) {
        return Arc::clone(known);
    }
    // Not under the lock: nothing says that making one schema looks at no other.
    let mut schema = make();
    drop_prose(&mut schema);
    Arc::clone(lock().entry(place).or_insert_with(|| Arc::new(schema)))
}

/// Takes out what [`crate::check`] does not read. Most of a schema is prose.
fn drop_prose(schema: &mut serde_json::Value) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    schema.retain(|keyword, _| {
        !matches!(
            keyword.as_str(),
            "$schema" | "default" | "deprecated" | "description" | "examples" | "title"
        )
    });
    for (keyword, value) in schema.iter_mut() {
        match keyword.as_str() {
            "$defs" | "properties" => {
                let parts = value.as_object_mut();
                parts
                    .into_iter()
                    .flat_map(|it| it.values_mut())
                    .for_each(drop_prose);
            }
            "allOf" | "anyOf" | "oneOf" => {
                value
                    .as_array_mut()
                    .into_iter()
                    .flatten()
                    .for_each(drop_prose);
            }
            "additionalProperties" | "items" => drop_prose(value),
            _ => {}
        }
    }
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
