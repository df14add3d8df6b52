//! Secrets that stand in flow files though `${ $secret.NAME }` could stand in their place.

use std::net::IpAddr;

use config::{Entry, Node, Report, Span, Value};
use message::secret;

use crate::codes::PLAIN_SECRET;
use crate::document::Documents;

/// The keys of connections, webhooks and ways to know a caller whose values are secrets.
const KEYS: [&str; 8] = [
    "bearer",
    "client_secret",
    "password",
    "refresh_token",
    "secret",
    "secret_key",
    "secrets",
    "session_token",
];

/// Where secrets stand under `use:`, `subscribe.webhooks`, `engine.auth` and `engine.egress`,
/// before anything is put in. Their values are registered, so that neither a report nor a log shows
/// them.
pub(crate) fn find(documents: &Documents) -> Vec<Span> {
    let mut found = Vec::new();
    let declared = documents.declared.iter().map(|it| &it.0);
    let all = documents.flows.iter().chain(declared);
    for node in all.chain(&documents.engine).filter_map(|it| it.get("use")) {
        look(node, &mut found);
    }
    let subscribed = documents
        .declared
        .iter()
        .filter_map(|it| it.0.get("subscribe"));
    for webhooks in subscribed.filter_map(|it| it.get("webhooks")) {
        look(webhooks, &mut found);
    }
    let engine = documents.engine.as_ref().and_then(|it| it.get("engine"));
    for key in ["auth", "egress"] {
        if let Some(settings) = engine.and_then(|it| it.get(key)) {
            look(settings, &mut found);
        }
    }
    // Too short ones could not be hidden: to tell of them is to show them.
    found.retain(|it| secret::is_long_enough(it.1));
    secret::register_all(found.iter().map(|it| it.1));
    found.into_iter().map(|it| it.0).collect()
}

/// Warns about secrets at these places.
pub(crate) fn warn(places: &[Span], report: &mut Report) {
    for span in places {
        let message = "a secret stands in the file as plain text";
        report.warning(PLAIN_SECRET, *span, message).hint(
            "write \"${ $secret.NAME }\", and say under `engine.secrets` where its value comes \
             from",
        );
    }
}

/// Notes where plain secrets stand below a node.
fn look<'a>(node: &'a Node, found: &mut Vec<(Span, &'a str)>) {
    match &node.value {
        Value::Mapping(entries) => {
            for entry in entries {
                match is_secret(entry) {
                    true => note(&entry.value, found),
                    false => look_within(entry, found),
                }
            }
        }
        Value::Sequence(items) => items.iter().for_each(|item| look(item, found)),
        Value::String(text) => {
            if let Some(password) = password_of_url(text) {
                found.push((node.span, password));
            }
        }
        _ => {}
    }
}

/// The same for a value whose key says what it is: the `key` of `api_key` is a secret, that of TLS
/// a file, and of headers only `Authorization` always is one.
fn look_within<'a>(entry: &'a Entry, found: &mut Vec<(Span, &'a str)>) {
    let key = match entry.key.as_str() {
        "api_key" => entry.value.get("key"),
        "headers" => {
            let entries = entry.value.as_mapping().unwrap_or_default().iter();
            let mut same = entries.filter(|it| it.key.eq_ignore_ascii_case("authorization"));
            same.next().map(|it| &it.value)
        }
        _ => None,
    };
    if let Some(key) = key {
        note(key, found);
    }
    look(&entry.value, found);
}

fn is_secret(entry: &Entry) -> bool {
    KEYS.contains(&entry.key.as_str()) && entry.value.as_mapping().is_none()
}

/// Notes a secret, or several in a list, unless it comes from elsewhere.
fn note<'a>(node: &'a Node, found: &mut Vec<(Span, &'a str)>) {
    match &node.value {
        Value::String(text) if !text.is_empty() && !text.contains("${") => {
            found.push((node.span, text));
        }
        Value::Sequence(items) => items.iter().for_each(|item| note(item, found)),
        _ => {}
    }
}

/// The password in a URL, but for those of systems on this machine: those are for trying.
fn password_of_url(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (user, host) = authority.rsplit_once('@')?;
    let (_, password) = user.split_once(':')?;
    let name = match host.strip_prefix('[') {
        Some(host) => host.split(']').next()?,
        None => host.split(':').next()?,
    };
    let is_local = match name.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    };
    let is_plain = !password.is_empty() && !password.contains("${");
    (is_plain && !is_local).then_some(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_of_urls_are_found() {
        for (text, expected) in [
            ("amqp://shop:s3cret@broker.example/x", Some("s3cret")),
            ("postgres://shop:a:b@db:5432/x", Some("a:b")),
            ("redis://:s3cret@[2001:db8::1]:6379", Some("s3cret")),
            ("amqp://guest:guest@127.0.0.1:5672", None),
            ("amqp://guest:guest@localhost", None),
            ("amqp://guest:guest@[::1]:5672", None),
            ("amqp://shop:${ $secret.MQ }@broker.example", None),
            ("amqp://shop@broker.example", None),
            ("https://shop.example/a:b@c", None),
            ("a:b@c", None),
        ] {
            assert_eq!(password_of_url(text), expected, "{text}");
        }
    }
}
