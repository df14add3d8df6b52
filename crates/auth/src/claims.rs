//! What a credential claims: who the caller is, and the claims as expressions see them.

use std::sync::Arc;

use access::jwt::scopes;
use component::access::Caller;
use expr::value::{array, float, integer, object, text};
use serde_json::{Map, Value as Json};

/// The caller that claims tell of. The first of these claims that is there says who it is; none
/// when that is empty.
pub(crate) fn caller(
    way: &Arc<str>,
    ids: &[&str],
    plan: Option<&str>,
    claims: &Map<String, Json>,
) -> Option<Caller> {
    let claim = |name: &str| claims.get(name).and_then(Json::as_str);
    let id = ids.iter().copied().find_map(claim);
    let id = id.filter(|it| !it.is_empty())?;
    let mut caller = Caller::new(way, id, members(claims));
    caller.scopes = scopes(claims).map(str::to_owned).collect();
    caller.plan = plan.and_then(claim).map(Into::into);
    Some(caller)
}

/// Claims as a value of an expression.
fn members(claims: &Map<String, Json>) -> expr::Value {
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
