//! What a credential claims: who the caller is, and the claims as expressions see them.

use std::sync::Arc;

use access::jwt::{Claims, Signed, scopes};
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
    let value = members(claims);
    caller_with(way, ids, plan, claims, move || value)
}

/// The caller of a verified token. Tokens are cached, and the text of their claims takes a fraction
/// of the memory that `$auth.claims` takes, which is made of it when an expression asks.
pub(crate) fn caller_of_token(
    way: &Arc<str>,
    id: &str,
    plan: Option<&str>,
    token: &Signed<'_>,
) -> Option<Caller> {
    let text: Box<[u8]> = token.payload.into();
    caller_with(way, &[id], plan, token.claims, move || read(&text))
}

fn caller_with(
    way: &Arc<str>,
    ids: &[&str],
    plan: Option<&str>,
    claims: &impl Claims,
    value: impl FnOnce() -> expr::Value + Send + 'static,
) -> Option<Caller> {
    let claim = |name: &str| claims.text(name);
    let id = ids.iter().copied().find_map(claim);
    let id = id.filter(|it| !it.is_empty())?;
    let mut caller = Caller::with_lazy_claims(way, id, value);
    caller.scopes = scopes(claims).map(str::to_owned).collect();
    caller.plan = plan.and_then(claim).map(Into::into);
    Some(caller)
}

/// Parses the claims of a token, which were parsed before to verify it.
fn read(text: &[u8]) -> expr::Value {
    let claims: Map<String, Json> = serde_json::from_slice(text).unwrap_or_default();
    members(&claims)
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
