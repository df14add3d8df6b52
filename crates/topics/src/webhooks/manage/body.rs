//! What requests say: the members of a webhook, and how much of a list somebody wants.

use std::borrow::Cow;

use message::{Fault, Request};
use serde_json::{Map, Value};
use websub::url::Url;

use super::wishes::{self, Header, take_delivery};
use super::{Managed, compile};
use crate::keys;
use crate::source::Start;
use crate::view::Mode;
use crate::webhooks::delivery::Delivery;
use crate::webhooks::members::{check_rest, object, shortened, take_text};
use crate::webhooks::replay::Wanted;
use crate::webhooks::subscriptions::record::{RequestKey, Subscription, ViewText};

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
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Members {
    pub url: String,
    pub description: Option<String>,
    pub view: ViewText,
    pub delivery: Delivery,
    pub headers: Vec<Header>,
}

/// What is said of credentials that the engine would have to fetch.
pub(super) const OAUTH2: &str =
    "OAuth 2.0 is for endpoints of files: send a fixed credential in `headers`";

/// Members that belong to endpoints of files alone, and what is said of them.
const OF_FILES: &[(&str, &str)] = &[
    ("auth", OAUTH2),
    ("oauth2", OAUTH2),
    ("tls", "`tls` is for endpoints of files"),
];

/// Refuses members that belong to endpoints of files, by saying so.
fn refuse_of_files(given: &Map<String, Value>) -> Result<(), Fault> {
    let mut all = OF_FILES.iter().filter(|it| given.contains_key(it.0));
    all.next().map_or(Ok(()), |it| Err(Fault::invalid(it.1)))
}

fn mode(text: Option<&str>, usual: Mode) -> Result<Mode, Fault> {
    let unknown = || Fault::invalid("there is no such `mode`");
    text.map_or(Ok(usual), |text| Mode::of_name(text).ok_or_else(unknown))
}

/// The media types of a merge patch (RFC 7396).
pub(super) const PATCH_TYPES: &[&str] = &["application/merge-patch+json", "application/json"];

/// Whether the body of a request has one of these media types, and is not compressed.
pub(super) fn check_type(request: &Request, types: &[&str]) -> Result<(), Fault> {
    let coding = request.headers.get("Content-Encoding").unwrap_or_default();
    if !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity") {
        let detail = "the body may not be compressed";
        return Err(Fault::invalid(detail).with_status(415));
    }
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
    let mut given = object(request.body.as_bytes())?;
    refuse_of_files(&given)?;
    let (delivery, headers) = (take_delivery(&mut given), given.remove("headers"));
    let mut text = |name| take_text(&mut given, name);
    let usual = managed.modes.first().copied().unwrap_or(Mode::Event);
    let url = text("url")?.ok_or_else(|| Fault::invalid("a webhook has a `url`"))?;
    let mut members = Members {
        url,
        description: text("description")?,
        view: ViewText {
            mode: mode(text("mode")?.as_deref(), usual)?,
            filter: text("filter")?.map(Into::into),
            select: text("select")?.map(Into::into),
            key: None,
            cloudevents: None,
        },
        delivery: Delivery::default(),
        headers: Vec::new(),
    };
    let start = match text("start")?.as_deref() {
        None | Some("latest") => Start::Latest,
        Some("earliest") => Start::Earliest,
        Some(_) => return Err(Fault::invalid("`start` is `latest` or `earliest`")),
    };
    check_rest(&given)?;
    members.apply((delivery, headers), managed)?;
    members.check(managed)?;
    Ok((members, start))
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
    check_type(request, PATCH_TYPES)?;
    let mut patch = object(request.body.as_bytes())?;
    refuse_of_files(&patch)?;
    let (delivery, headers) = (take_delivery(&mut patch), patch.remove("headers"));
    let mut members = before.clone();
    let names: Vec<String> = patch.keys().cloned().collect();
    for name in names {
        let text = take_text(&mut patch, &name);
        match &*name {
            "url" => {
                let missing = || Fault::invalid("a webhook has a `url`");
                members.url = text?.ok_or_else(missing)?;
            }
            "description" => members.description = text?,
            "filter" => members.view.filter = text?.map(Into::into),
            "select" => members.view.select = text?.map(Into::into),
            "mode" => {
                let usual = managed.modes.first().copied().unwrap_or(Mode::Event);
                members.view.mode = mode(text?.as_deref(), usual)?;
            }
            _ => {
                let name = shortened(&name);
                return Err(Fault::invalid(format!("`{name}` cannot be changed")));
            }
        }
    }
    members.apply((delivery, headers), managed)?;
    members.check(managed)?;
    members.check_move(&before.url, HEADERS[0])?;
    Ok(members)
}

impl Members {
    /// Those of a subscription.
    pub fn of(subscription: &Subscription) -> Self {
        let details = subscription.details();
        Self {
            url: subscription.url.to_string(),
            description: details.description.as_deref().map(str::to_owned),
            view: (*subscription.view).clone(),
            delivery: subscription.delivery(),
            headers: details.headers.iter().cloned().map(Header::Kept).collect(),
        }
    }

    /// Applies what is said of delivery and of header lines.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn apply(
        &mut self,
        (delivery, headers): (Map<String, Value>, Option<Value>),
        managed: &Managed,
    ) -> Result<(), Fault> {
        let says_delivery = !delivery.is_empty();
        // `null` has it as it is where nothing is said.
        let concurrent = delivery.get("concurrent");
        let says_concurrent = concurrent.is_some_and(|it| !it.is_null());
        let before = wishes::said(&self.delivery, &self.view);
        let new = wishes::header_patch(headers, &mut self.headers)?;
        let mut said = wishes::decode((before, delivery), new, self.view.mode)?;
        wishes::set_headers(&mut said, &mut self.headers)?;
        if says_delivery {
            managed.bounded(&mut said.delivery, says_concurrent)?;
        }
        self.delivery = said.delivery;
        self.view.key = said.key;
        self.view.cloudevents = said.cloudevents;
        Ok(())
    }

    /// Refuses that values of header lines go to another host than the one that they were written
    /// for: nobody can read them, and nobody is to learn them by changing the URL. `headers` is
    /// what the interface calls them.
    pub fn check_move(&self, before: &str, headers: &str) -> Result<(), Fault> {
        let is_kept = |it: &Header| matches!(it, Header::Kept(_));
        if *before == *self.url || !self.headers.iter().any(is_kept) {
            return Ok(());
        }
        let origins = (Url::parse(before), Url::parse(&self.url));
        match matches!(origins, (Ok(before), Ok(after)) if after.is_of_origin(&before)) {
            true => Ok(()),
            false => Err(Fault::invalid(format!(
                "the URL is of another host: write the values of `{headers}` again with it, or \
                 `{headers}: null`"
            ))),
        }
    }

    /// Checks all but the URL's target, which the egress guard judges.
    ///
    /// # Errors
    /// What is wrong with the members.
    pub fn check(&self, managed: &Managed) -> Result<(), Fault> {
        if self.url.len() > URL_MAX {
            return Err(Fault::invalid(format!(
                "a `url` has at most {URL_MAX} bytes"
            )));
        }
        if self.url.contains('#') {
            let detail = "a `url` has no fragment: it would not be sent";
            return Err(Fault::invalid(detail));
        }
        let description = self.description.as_deref().unwrap_or_default();
        if description.chars().any(is_deceptive) {
            let detail = "a `description` has no control characters";
            return Err(Fault::invalid(detail));
        }
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
        for (name, text) in [
            ("filter", &view.filter),
            ("select", &view.select),
            ("key", &view.key),
        ] {
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

/// Whether a character is not seen and changes how others are: controls, and those that change the
/// direction of a text (UAX 9).
fn is_deceptive(it: char) -> bool {
    let is_direction = matches!(it, '\u{61C}' | '\u{200E}' | '\u{200F}');
    let changes = matches!(it, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    it.is_control() || is_direction || changes
}

/// Reads how long the secret before signs beside the new one, in seconds.
///
/// # Errors
/// What is wrong with the request.
pub(super) fn overlap(request: &Request) -> Result<u64, Fault> {
    if request.body.as_bytes().is_empty() {
        return Ok(OVERLAP);
    }
    check_type(request, &["application/json"])?;
    let mut given = object(request.body.as_bytes())?;
    let overlap = given.remove("overlap").unwrap_or(Value::Null);
    check_rest(&given)?;
    if overlap.is_null() {
        return Ok(OVERLAP);
    }
    let wrong = || {
        let detail = format!("`overlap` is a number of seconds from 0 to {OVERLAP_MAX}");
        Fault::invalid(detail)
    };
    let overlap = overlap.as_u64().filter(|it| *it <= OVERLAP_MAX);
    overlap.ok_or_else(wrong)
}

/// Reads which events are to be sent again.
///
/// # Errors
/// What is wrong with the request.
pub(super) fn replay(request: &Request) -> Result<Wanted, Fault> {
    check_type(request, &["application/json"])?;
    Wanted::read(request.body.as_bytes())
}

/// Which part of a list a request wants: behind which id, and how many. `is_other` are parameters
/// that mean something else.
///
/// # Errors
/// What is wrong with the query.
pub(super) fn page(
    query: Option<&str>,
    is_other: impl Fn(&str) -> bool,
) -> Result<(String, usize), Fault> {
    let (mut after, mut limit) = (None, None);
    let parts = query.unwrap_or_default().split('&');
    for part in parts.filter(|it| !it.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let place = match name {
            "after" => &mut after,
            "limit" => &mut limit,
            other if is_other(other) => continue,
            other => {
                let name = shortened(other);
                return Err(Fault::invalid(format!("there is no parameter `{name}`")));
            }
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
        body: short_digest(&without_values(request.body.as_bytes())),
    }))
}

/// What interfaces call the header lines of a webhook.
pub(super) const HEADERS: [&str; 2] = ["headers", "webhookHeaders"];

/// A body without the values of header lines: a digest that lies on the disk could be compared with
/// those of all short credentials.
fn without_values(body: &[u8]) -> Cow<'_, [u8]> {
    let Ok(mut members) = object(body) else {
        return body.into();
    };
    let mut is_without = true;
    for name in HEADERS {
        if let Some(headers) = members.get_mut(name).and_then(Value::as_object_mut) {
            headers.values_mut().for_each(|it| *it = Value::Null);
            is_without = false;
        }
    }
    if is_without {
        return body.into();
    }
    Value::Object(members).to_string().into_bytes().into()
}

/// 128 bits of a SHA-256.
fn short_digest(bytes: &[u8]) -> String {
    let digest = keys::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
