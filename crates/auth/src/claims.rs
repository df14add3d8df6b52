//! What a credential claims: who the caller is, and the claims as expressions see them.

use std::sync::Arc;

use access::jwt::{Verified, scopes};
use component::access::{Caller, ClaimsText};
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
    let Told { id, scopes, plan } = Told::by(claims, ids, plan)?;
    let mut caller = Caller::new(way, id, members(claims));
    (caller.scopes, caller.plan) = (scopes, plan);
    Some(caller)
}

/// The same of a verified token. What its claims say beside that is read when it is asked for:
/// tokens are kept, and their text takes a fraction of the memory.
pub(crate) fn caller_of_token(
    way: &Arc<str>,
    id: &str,
    plan: Option<&str>,
    token: Verified,
) -> Option<Caller> {
    let Told { id, scopes, plan } = Told::by(token.claims(), &[id], plan)?;
    let claims = ClaimsText {
        text: token.into_payload().into(),
        read,
    };
    let mut caller = Caller::with_claims_text(way, id, claims);
    (caller.scopes, caller.plan) = (scopes, plan);
    Some(caller)
}

/// What claims tell of a caller.
struct Told {
    id: Arc<str>,
    scopes: Vec<String>,
    plan: Option<Arc<str>>,
}

impl Told {
    fn by(claims: &Map<String, Json>, ids: &[&str], plan: Option<&str>) -> Option<Self> {
        let claim = |name: &str| claims.get(name).and_then(Json::as_str);
        let id = ids.iter().copied().find_map(claim);
        Some(Self {
            id: id.filter(|it| !it.is_empty())?.into(),
            scopes: scopes(claims).map(str::to_owned).collect(),
            plan: plan.and_then(claim).map(Into::into),
        })
    }
}

/// Reads claims that have been read before. What is no object has none.
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
