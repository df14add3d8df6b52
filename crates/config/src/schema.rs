//! JSON Schemas of config structs.

/// The JSON Schema (draft 2020-12) of a type; doc comments become titles and descriptions.
pub fn schema_for<T: schemars::JsonSchema>() -> serde_json::Value {
    schemars::generate::SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<T>()
        .into()
}
