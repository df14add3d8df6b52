//! What a credential claims, as expressions see it.

use expr::value::{array, float, integer, object, text};
use serde_json::{Map, Value as Json};

/// Claims as a value of an expression.
pub(crate) fn members(claims: &Map<String, Json>) -> expr::Value {
    object(
        claims
            .iter()
            .map(|(name, claim)| (name.clone(), value(claim))),
    )
}

fn value(json: &Json) -> expr::Value {
    match json {
        Json::Null => expr::Value::Null,
        Json::Bool(flag) => expr::Value::Bool(*flag),
        Json::Number(number) => match number.as_i64() {
            Some(number) => integer(number),
            None => float(number.as_f64().unwrap_or_default()),
        },
        Json::String(string) => text(string.as_str()),
        Json::Array(items) => array(items.iter().map(value)),
        Json::Object(all) => members(all),
    }
}
