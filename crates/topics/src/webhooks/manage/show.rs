//! Webhooks as callers see them.

use message::Reply;
use serde_json::{Map, Value, json};

use super::wishes::{self, MASK};
use crate::webhooks::attempts::Attempt;
use crate::webhooks::plan::EndpointPlan;
use crate::webhooks::state::EndpointState;
use crate::webhooks::subscriptions::headers::HeaderLine;
use crate::webhooks::subscriptions::record::{Details, Secret, Subscription};
use crate::webhooks::subscriptions::registry::Known;
use crate::webhooks::times::rfc3339;

/// What stands in place of a secret.
const MASKED: &str = "whsec_***";

/// A time of day as RFC 3339 has it.
pub(super) fn time(ms: u64) -> Value {
    rfc3339(ms).map_or(Value::Null, Into::into)
}

/// How the delivery to an endpoint is.
fn delivery(state: &EndpointState) -> (&'static str, Value) {
    let (health, why) = state.health();
    let trouble = || state.trouble().map_or(Value::Null, |it| (&*it).into());
    (health.name(), why.map_or_else(trouble, Into::into))
}

fn secret(secret: &Secret) -> Value {
    json!({
        "secret": MASKED,
        "created": time(secret.made),
        "expires": secret.until.map(time),
    })
}

/// Header lines without their values, which are shown to nobody.
pub(super) fn masked(headers: &[HeaderLine]) -> Map<String, Value> {
    let headers = headers.iter();
    headers
        .map(|it| (it.name.to_string(), MASK.into()))
        .collect()
}

/// A subscription. `challenges` is whether it has to answer a challenge first, `owner` whether it
/// is shown whose it is.
pub(super) fn subscription(known: &Known, challenges: bool, owner: bool, now_ms: u64) -> Value {
    let Subscription { id, url, view, .. } = &*known.subscription;
    let Details {
        description,
        headers,
        ..
    } = known.subscription.details();
    let (mut state, mut reason) = delivery(&known.state);
    if challenges && !known.subscription.is_verified {
        (state, reason) = ("unverified", "the URL has not answered a challenge".into());
    }
    let secrets: Vec<Value> = known
        .subscription
        .valid_secrets(now_ms)
        .map(secret)
        .collect();
    let headers = masked(headers);
    let mut shown = json!({
        "id": &**id,
        "managed_by": "api",
        "url": &**url,
        "description": description.as_deref(),
        "mode": view.mode.name(),
        "filter": view.filter.as_deref(),
        "select": view.select.as_deref(),
        "headers": headers,
        "state": state,
        "reason": reason,
        "cursor": known.state.cursor(),
        "lag": known.state.lag_events(),
        "created": time(known.subscription.created),
        "updated": time(known.subscription.updated),
        "secrets": secrets,
    });
    if let Some(members) = shown.as_object_mut() {
        members.extend(wishes::shown(&known.subscription.delivery(), view));
    }
    if owner && let Some(members) = shown.as_object_mut() {
        let owner = &known.subscription.owner;
        let owner = json!({ "way": &*owner.way, "id": &*owner.id });
        members.insert("owner".to_owned(), owner);
    }
    shown
}

/// An endpoint of a file. Its URL may hold secrets, and is not shown.
pub(super) fn file(plan: &EndpointPlan) -> Value {
    let (state, reason) = delivery(&plan.state);
    json!({
        "id": &*plan.state.name,
        "managed_by": "file",
        "mode": plan.view.mode.name(),
        "state": state,
        "reason": reason,
        "cursor": plan.state.cursor(),
        "lag": plan.state.lag_events(),
    })
}

/// A request to an endpoint, and what has come of it.
pub(in crate::webhooks) fn attempt(attempt: &Attempt) -> Value {
    json!({
        "time": time(attempt.at_ms),
        "milliseconds": attempt.took_ms,
        "event": attempt.id.to_string(),
        "status": attempt.status,
        "accepted": attempt.is_accepted,
        "reply": &*attempt.shown,
    })
}

/// The entity tag of a subscription.
pub(super) fn entity_tag(subscription: &Subscription) -> String {
    format!("\"{}\"", subscription.version)
}

/// A reply with a JSON document that nobody keeps.
pub(super) fn reply(status: u16, content: &Value) -> Reply {
    let mut text = content.to_string().into_bytes();
    text.push(b'\n');
    let mut reply = Reply::with_content(status, "application/json", text);
    reply.headers.append("Cache-Control", "no-store");
    reply
}

/// The same for one subscription, with its entity tag.
pub(super) fn resource(status: u16, known: &Known, content: &Value) -> Reply {
    let mut reply = reply(status, content);
    let tag = entity_tag(&known.subscription);
    reply.headers.append("ETag", tag);
    reply
}
