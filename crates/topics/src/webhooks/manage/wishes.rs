//! How events are sent to a webhook and with which header lines, as requests say it: with the keys
//! that files have, decoded and judged by the same code.

use config::{Node, Report};
use message::{Fault, Field};
use serde_json::{Map, Value, json};

use crate::view::Mode;
use crate::webhooks::config::EndpointConfig;
use crate::webhooks::delivery::Delivery;
use crate::webhooks::envelope::CloudEvents;
use crate::webhooks::machine::Order;
use crate::webhooks::post;
use crate::webhooks::subscriptions::headers::HeaderLine;
use crate::webhooks::subscriptions::record::ViewText;

/// The members that say how events are sent.
pub(super) const DELIVERY: [&str; 6] = [
    "ordered",
    "key",
    "concurrent",
    "batch",
    "throttle",
    "cloudevents",
];
/// The most header lines of a webhook, the most bytes of a name, of a value, and of all together:
/// they are kept in memory, sealed.
pub(super) const HEADERS_MAX: usize = 20;
const NAME_MAX: usize = 100;
const VALUE_MAX: usize = 4096;
const BYTES_MAX: usize = 8192;
/// What stands in place of the value of a header.
pub(super) const MASK: &str = "***";

/// Names that say what a request is, who has signed it, which way it has come or where it ends: the
/// receiver believes them, so that only the engine writes them. In small letters, with `-` for `_`,
/// since servers that work like CGI take both for the same.
const RESERVED: &[&str] = &[
    "cdn-loop",
    "client-cert",
    "client-cert-chain",
    "content-length",
    "trailer",
    "via",
];
/// The same for all names that begin so.
const RESERVED_PREFIXES: &[&str] = &[
    "ce-",
    "proxy-",
    "webhook-",
    "x-axway-streams-",
    "x-hub-signature",
    "x-intertie-",
];

/// A header line that a webhook is to have.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Header {
    /// One that it has.
    Kept(HeaderLine),
    /// One with this name and this value.
    New(String, String),
}

impl Header {
    fn name(&self) -> &str {
        match self {
            Self::Kept(line) => &line.name,
            Self::New(name, _) => name,
        }
    }

    /// How many bytes it has, as far as that is known.
    fn size(&self) -> usize {
        match self {
            Self::Kept(line) => line.name.len() + line.value_len(),
            Self::New(name, value) => name.len() + value.len(),
        }
    }
}

/// What requests say, decoded.
pub(super) struct Said {
    pub delivery: Delivery,
    pub key: Option<Box<str>>,
    pub cloudevents: Option<CloudEvents>,
    headers: Vec<(String, String)>,
}

/// Takes those of the members out that say how events are sent.
pub(super) fn take_delivery(given: &mut Map<String, Value>) -> Map<String, Value> {
    let all = DELIVERY.iter().filter_map(|name| given.remove_entry(*name));
    all.collect()
}

/// Applies a merge patch (RFC 7396).
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(target) = target.as_object_mut() else {
        return;
    };
    for (name, value) in patch {
        match value {
            Value::Null => drop(target.remove(&name)),
            value => merge(target.entry(name).or_insert(Value::Null), value),
        }
    }
}

/// Decodes what is said of delivery, of a webhook that says this already, and of new header lines.
///
/// # Errors
/// What is wrong with it, in the words in which files are refused.
pub(super) fn decode(
    (before, patch): (Map<String, Value>, Map<String, Value>),
    headers: Map<String, Value>,
    mode: Mode,
) -> Result<Said, Fault> {
    let says = |name: &str| patch.contains_key(name);
    let (says_order, says_key) = (says("ordered"), says("key"));
    let says_concurrent = says("concurrent");
    let mut merged = Value::Object(before);
    merge(&mut merged, Value::Object(patch));
    let mut merged = match merged {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    // What was said before and has no meaning under another order goes with that order.
    let ordered = merged.get("ordered");
    let is_by_key = ordered.is_some_and(|it| it == "by-key");
    let is_in_order = ordered.is_none_or(|it| *it == true);
    if says_order && !says_key && !is_by_key {
        merged.remove("key");
    }
    if says_order && !says_concurrent && is_in_order {
        merged.remove("concurrent");
    }
    if !headers.is_empty() {
        merged.insert("headers".to_owned(), Value::Object(headers));
    }
    // An endpoint of a file has one. That of the webhook is judged by the egress guard.
    merged.insert("url".to_owned(), "https://receiver.example/".into());
    let tree = Node::of_json(&Value::Object(merged));
    let mut report = Report::default();
    let config: Option<EndpointConfig> = config::decode(&tree, &mut report);
    let said = config.map(|config| Said {
        delivery: Delivery::read(&config, (mode, tree.span), &mut report),
        key: config.key.map(|it| it.value.into()),
        cloudevents: config.cloudevents.map(|it| it.value),
        headers: steps::read_headers(tree.get("headers"), post::RESERVED, &mut report),
    });
    match (refusal(&report, &tree), said) {
        (None, Some(said)) => Ok(said),
        (Some(refusal), _) => Err(refusal),
        (None, None) => Err(Fault::invalid("the members cannot be read")),
    }
}

/// The first problem of a report as whoever has sent the request reads it.
fn refusal(report: &Report, tree: &Node) -> Option<Fault> {
    let first = report.diagnostics().first()?;
    let mut detail = first.message().to_owned();
    if let Some(path) = first.span().and_then(|span| tree.path_of(span)) {
        detail = format!("`{path}`: {detail}");
    }
    if let Some(hint) = first.hint_text() {
        detail = format!("{detail} ({hint})");
    }
    Some(Fault::invalid(detail))
}

/// How events are sent to a webhook, as it is shown.
pub(super) fn shown(delivery: &Delivery, view: &ViewText) -> Map<String, Value> {
    let (ordered, concurrent) = match delivery.order {
        Order::All => (json!(true), Value::Null),
        Order::ByKey => (json!("by-key"), json!(delivery.concurrent)),
        Order::None => (json!(false), json!(delivery.concurrent)),
    };
    let time = |us: u64| config::Duration(std::time::Duration::from_micros(us)).to_string();
    let batch = delivery.batch.map_or(Value::Null, |it| {
        let bytes = config::ByteSize(it.bytes as u64).to_string();
        json!({ "count": it.count, "bytes": bytes, "time": time(it.time) })
    });
    let throttle = delivery.throttle.map_or(
        Value::Null,
        |it| json!({ "requests": it.requests, "per": time(it.per), "burst": it.burst }),
    );
    let members = [
        ("ordered", ordered),
        ("key", json!(view.key)),
        ("concurrent", concurrent),
        ("batch", batch),
        ("throttle", throttle),
        ("cloudevents", json!(view.cloudevents)),
    ];
    let members = members.into_iter();
    members
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// What is said of delivery without what is not, so that it can be decoded again.
pub(super) fn said(delivery: &Delivery, view: &ViewText) -> Map<String, Value> {
    let mut members = shown(delivery, view);
    members.retain(|_, value| !value.is_null());
    members
}

/// What a request says of header lines: those that are to be set. Those that are to go are taken
/// out of the ones that there are.
///
/// # Errors
/// What is wrong with it.
pub(super) fn header_patch(
    said: Option<Value>,
    headers: &mut Vec<Header>,
) -> Result<Map<String, Value>, Fault> {
    let lines = match said {
        None => return Ok(Map::new()),
        Some(Value::Null) => {
            headers.clear();
            return Ok(Map::new());
        }
        Some(Value::Object(lines)) => lines,
        Some(_) => {
            let detail = "`headers` is an object with names and values";
            return Err(Fault::invalid(detail));
        }
    };
    let long = |name: &String| name.len() > NAME_MAX;
    if lines.len() > HEADERS_MAX || lines.keys().any(long) {
        return Err(too_many());
    }
    let mut new = Map::new();
    for (name, value) in lines {
        // A line of before may have a name that is reserved since: it can be removed.
        if !value.is_null() {
            check_name(&name)?;
        }
        headers.retain(|it| !it.name().eq_ignore_ascii_case(&name) || !value.is_null());
        if value == MASK {
            let detail = format!(
                "`{MASK}` stands in place of the value of `{name}`: leave the header out to keep it"
            );
            return Err(Fault::invalid(detail));
        }
        if !value.is_null() {
            new.insert(name, value);
        }
    }
    Ok(new)
}

fn too_many() -> Fault {
    Fault::invalid(format!(
        "`headers` has at most {HEADERS_MAX} lines, a name {NAME_MAX} bytes, a value {VALUE_MAX}, \
         and all together {BYTES_MAX}"
    ))
}

/// Refuses a name that only the engine may write.
fn check_name(name: &str) -> Result<(), Fault> {
    let plain = name.to_ascii_lowercase().replace('_', "-");
    let field = Field::of(plain.as_bytes());
    let is_reserved = RESERVED.contains(&&*plain)
        || RESERVED_PREFIXES.iter().any(|it| plain.starts_with(it))
        || post::RESERVED.contains(&&*plain)
        || field.is_forwarding()
        || field.is_framing()
        || field.is_hop_by_hop();
    match is_reserved {
        true => {
            let name = name.escape_debug();
            let detail = format!("the header `{name}` is set by the engine (leave it out)");
            Err(Fault::invalid(detail))
        }
        false => Ok(()),
    }
}

/// Sets header lines that have been decoded among those that there are.
///
/// # Errors
/// When there are too many, or too large ones.
pub(super) fn set_headers(said: &mut Said, headers: &mut Vec<Header>) -> Result<(), Fault> {
    if said.headers.is_empty() {
        return Ok(());
    }
    for (name, value) in std::mem::take(&mut said.headers) {
        if value.len() > VALUE_MAX {
            return Err(too_many());
        }
        let is_it = |it: &&mut Header| it.name().eq_ignore_ascii_case(&name);
        match headers.iter_mut().find(is_it) {
            Some(place) => *place = Header::New(name, value),
            None => headers.push(Header::New(name, value)),
        }
    }
    let bytes: usize = headers.iter().map(Header::size).sum();
    match headers.len() > HEADERS_MAX || bytes > BYTES_MAX {
        true => Err(too_many()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(members) => members,
            _ => panic!("{value}"),
        }
    }

    fn decoded(before: Value, patch: Value) -> Result<Value, String> {
        let of = (members(before), members(patch));
        let said = decode(of, Map::new(), Mode::Event).map_err(|it| it.detail.to_string())?;
        let view = ViewText {
            mode: Mode::Event,
            filter: None,
            select: None,
            key: said.key,
            cloudevents: said.cloudevents,
        };
        let mut shown = shown(&said.delivery, &view);
        shown.retain(|_, value| !value.is_null());
        Ok(Value::Object(shown))
    }

    #[test]
    fn a_patch_is_merged_and_defaults_are_filled_in() {
        let batch = json!({ "count": 100, "bytes": "256KiB", "time": "1s" });
        for (before, patch, after) in [
            (json!({}), json!({}), json!({ "ordered": true })),
            (
                json!({}),
                json!({ "batch": {} }),
                json!({ "ordered": true, "batch": batch }),
            ),
            (
                json!({ "batch": { "count": 7, "bytes": "1MiB", "time": "5s" } }),
                json!({ "batch": { "bytes": null, "time": "90s" } }),
                json!({ "ordered": true, "batch": { "count": 7, "bytes": "256KiB", "time": "90s" } }),
            ),
            (
                json!({ "ordered": "by-key", "key": ".a", "concurrent": 3 }),
                json!({ "ordered": true, "throttle": { "requests": 5, "burst": 2 } }),
                json!({ "ordered": true, "throttle": { "requests": 5, "per": "1s", "burst": 2 } }),
            ),
            (
                json!({ "ordered": "by-key", "key": ".a", "concurrent": 3 }),
                json!({ "ordered": false, "cloudevents": "binary" }),
                json!({ "ordered": false, "concurrent": 3, "cloudevents": "binary" }),
            ),
        ] {
            let shown = decoded(before.clone(), patch.clone());
            assert_eq!(shown, Ok(after.clone()), "{before} and {patch}");
            // What is shown is read as what it is.
            assert_eq!(decoded(after.clone(), json!({})), Ok(after));
        }
    }

    #[test]
    fn a_refusal_names_the_member_and_what_to_do() {
        for (patch, expected) in [
            (
                json!({ "batch": { "count": 5, "time": 3 } }),
                "`batch.time`: expected a duration such as `5s`, found a number (say which unit: \
                 `3s` or `3ms`)",
            ),
            (
                json!({ "throttle": { "requests": 0 } }),
                "`throttle.requests`: `requests` is 0, outside its range (from 1 to 1000000)",
            ),
        ] {
            assert_eq!(decoded(json!({}), patch), Err(expected.to_owned()));
        }
    }

    #[test]
    fn header_lines_are_merged_by_their_names_whatever_their_letters() {
        let new = |name: &str, value: &str| Header::New(name.to_owned(), value.to_owned());
        let mut headers = vec![new("X-A", "1"), new("X-B", "2")];
        let patch = json!({ "x-a": "3", "X-b": null, "X-C": 4 });
        let set = header_patch(Some(patch), &mut headers).unwrap_or_default();
        let of = (Map::new(), Map::new());
        let Ok(mut said) = decode(of, set, Mode::Event) else {
            panic!("they are good");
        };
        assert!(set_headers(&mut said, &mut headers).is_ok());
        assert!(headers == [new("x-a", "3"), new("X-C", "4")]);
        assert!(header_patch(Some(Value::Null), &mut headers).is_ok());
        assert!(headers.is_empty());
    }
}
