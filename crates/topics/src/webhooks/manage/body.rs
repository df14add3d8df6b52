//! What requests say: the members of a webhook, and how much of a list somebody wants.

use message::{Fault, Request};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Managed, compile};
use crate::keys;
use crate::source::Start;
use crate::view::Mode;
use crate::webhooks::subscriptions::record::{RequestKey, ViewText};

/// The most bytes of a URL.
pub(super) const URL_MAX: usize = 2048;
/// The most characters of a description.
pub(super) const DESCRIPTION_MAX: usize = 500;
/// The most characters of an `Idempotency-Key`.
pub(super) const KEY_MAX: usize = 256;
/// How long the secret before may sign beside the new one, in seconds: by default and at most.
pub(super) const OVERLAP: u64 = 24 * 3600;
pub(super) const OVERLAP_MAX: u64 = 7 * 24 * 3600;
/// How many webhooks a page has: by default and at most.
pub(super) const PAGE: usize = 50;
pub(super) const PAGE_MAX: usize = 200;

/// The members of a webhook that callers set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Members {
    pub url: String,
    pub description: Option<String>,
    pub view: ViewText,
}

/// The body of a creation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Created {
    url: String,
    description: Option<String>,
    mode: Option<Mode>,
    filter: Option<Box<str>>,
    select: Option<Box<str>>,
    #[serde(default)]
    start: Start,
}

/// The body of a rotation.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rotated {
    overlap: Option<u64>,
}

fn not_understood(error: &serde_json::Error) -> Fault {
    // What it says of members and types is about the request alone.
    Fault::invalid(format!("the body cannot be understood: {error}"))
}

/// Whether the body of a request has one of these media types.
fn check_type(request: &Request, types: &[&str]) -> Result<(), Fault> {
    let media_type = request.headers.get("Content-Type").unwrap_or_default();
    let mut parts = media_type.split(|it| *it == b';');
    let essence = parts.next().unwrap_or_default().trim_ascii();
    let is_one = |it: &&str| essence.eq_ignore_ascii_case(it.as_bytes());
    match types.iter().any(is_one) {
        true => Ok(()),
        false => {
            let detail = format!("the body has to be {}", types.join(" or "));
            Err(Fault::invalid(detail).with_status(415))
        }
    }
}

/// Reads the members of a new webhook, and where it starts.
///
/// # Errors
/// What is wrong with the request.
pub(super) fn created(request: &Request, managed: &Managed) -> Result<(Members, Start), Fault> {
    check_type(request, &["application/json"])?;
    let body = request.body.as_bytes();
    let created: Created = serde_json::from_slice(body).map_err(|it| not_understood(&it))?;
    let usual = managed.modes.first().copied().unwrap_or(Mode::Event);
    let members = Members {
        url: created.url,
        description: created.description,
        view: ViewText {
            mode: created.mode.unwrap_or(usual),
            filter: created.filter,
            select: created.select,
        },
    };
    members.check(managed)?;
    Ok((members, created.start))
}

/// Applies the merge patch (RFC 7396) of a request to the members of a webhook.
///
/// # Errors
/// What is wrong with the request.
pub(super) fn patched(
    request: &Request,
    before: Members,
    managed: &Managed,
) -> Result<Members, Fault> {
    check_type(
        request,
        &["application/merge-patch+json", "application/json"],
    )?;
    let body = request.body.as_bytes();
    let patch: Map<String, Value> =
        serde_json::from_slice(body).map_err(|it| not_understood(&it))?;
    let mut members = before;
    for (name, value) in patch {
        let text = match value {
            Value::Null => None,
            Value::String(text) => Some(text),
            _ => return Err(Fault::invalid(format!("`{name}` is a text or null"))),
        };
        match (&*name, text) {
            ("url", Some(text)) => members.url = text,
            ("url", None) => return Err(Fault::invalid("a webhook has a `url`")),
            ("description", text) => members.description = text,
            ("filter", text) => members.view.filter = text.map(Into::into),
            ("select", text) => members.view.select = text.map(Into::into),
            ("mode", text) => {
                let usual = managed.modes.first().map(|it| it.name());
                let text = text.as_deref().or(usual).unwrap_or_default();
                let unknown = || Fault::invalid("there is no such `mode`");
                members.view.mode = Mode::of_name(text).ok_or_else(unknown)?;
            }
            _ => {
                let name: String = name.chars().take(40).collect();
                return Err(Fault::invalid(format!("`{name}` cannot be changed")));
            }
        }
    }
    members.check(managed)?;
    Ok(members)
}

impl Members {
    /// Checks all but the URL's target, which the egress guard judges.
    fn check(&self, managed: &Managed) -> Result<(), Fault> {
        if self.url.len() > URL_MAX {
            return Err(Fault::invalid(format!(
                "a `url` has at most {URL_MAX} bytes"
            )));
        }
        let description = self.description.as_deref().unwrap_or_default();
        if description.chars().count() > DESCRIPTION_MAX {
            let detail = format!("a `description` has at most {DESCRIPTION_MAX} characters");
            return Err(Fault::invalid(detail));
        }
        let view = &self.view;
        if !managed.modes.contains(&view.mode) {
            let names: Vec<&str> = managed.modes.iter().map(|it| it.name()).collect();
            let detail = format!("`mode` is one of: {}", names.join(", "));
            return Err(Fault::invalid(detail));
        }
        for (name, text) in [("filter", &view.filter), ("select", &view.select)] {
            let Some(text) = text else {
                continue;
            };
            let Some(bounds) = managed.expressions else {
                return Err(Fault::invalid("the topic does not allow expressions"));
            };
            if text.len() > bounds.length {
                let detail = format!("`{name}` has at most {} bytes", bounds.length);
                return Err(Fault::invalid(detail));
            }
            compile(name, text).map_err(Fault::invalid)?;
        }
        Ok(())
    }
}

/// Reads how long the secret before signs beside the new one, in seconds.
///
/// # Errors
/// What is wrong with the request.
pub(super) fn overlap(request: &Request) -> Result<u64, Fault> {
    let body = request.body.as_bytes();
    if body.is_empty() {
        return Ok(OVERLAP);
    }
    check_type(request, &["application/json"])?;
    let rotated: Rotated = serde_json::from_slice(body).map_err(|it| not_understood(&it))?;
    let overlap = rotated.overlap.unwrap_or(OVERLAP);
    match overlap <= OVERLAP_MAX {
        true => Ok(overlap),
        false => {
            let detail = format!("`overlap` is at most {OVERLAP_MAX} seconds");
            Err(Fault::invalid(detail))
        }
    }
}

/// Which part of a list a request wants: behind which id, and how many.
///
/// # Errors
/// What is wrong with the query.
pub(super) fn page(query: Option<&str>) -> Result<(String, usize), Fault> {
    let (mut after, mut limit) = (None, None);
    for part in query.unwrap_or_default().split('&') {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let place = match name {
            "after" => &mut after,
            "limit" => &mut limit,
            // Others may carry credentials.
            _ => continue,
        };
        if place.replace(value).is_some() {
            return Err(Fault::invalid(format!("`{name}` comes twice")));
        }
    }
    let limit = limit.map_or(Ok(PAGE), str::parse);
    let limit = limit.ok().filter(|it| (1..=PAGE_MAX).contains(it));
    let wrong = || Fault::invalid(format!("`limit` is a number from 1 to {PAGE_MAX}"));
    let limit = limit.ok_or_else(wrong)?;
    let after = after.unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match after.chars().all(is_name) && after.len() <= 200 {
        true => Ok((after.to_owned(), limit)),
        false => Err(Fault::invalid("`after` is the `next` of the page before")),
    }
}

/// The `Idempotency-Key` of a request, if it has one, with the request, as digests.
///
/// # Errors
/// When it is none.
pub(super) fn request_key(request: &Request) -> Result<Option<RequestKey>, Fault> {
    let view = request.headers.view();
    let is_key = |name: &[u8]| name.eq_ignore_ascii_case(b"Idempotency-Key");
    let mut values = view.iter().filter(|it| is_key(it.1)).map(|it| it.2);
    let Some(key) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() || key.is_empty() || key.len() > KEY_MAX {
        let detail = format!("`Idempotency-Key` comes once and has 1 to {KEY_MAX} bytes");
        return Err(Fault::invalid(detail));
    }
    Ok(Some(RequestKey {
        key: short_digest(key),
        body: short_digest(request.body.as_bytes()),
    }))
}

/// 128 bits of a SHA-256.
fn short_digest(bytes: &[u8]) -> String {
    let digest = keys::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
