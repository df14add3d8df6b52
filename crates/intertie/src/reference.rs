//! To be written.
/// The schema.
pub fn schema() -> serde_json::Value { serde_json::Value::Null }
