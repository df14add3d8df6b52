//! The values of `$` names, made when an expression asks for them.

use std::borrow::Cow;

use expr::Value;
use expr::value;
use message::{Fault, Headers, Request};

use crate::access::Caller;
use crate::exchange::{Exchange, ReplyHead};
use crate::handler::Services;
use crate::scope;

/// What an expression sees of an exchange beside its content.
pub(crate) struct Variables<'a> {
    exchange: &'a Exchange,
    services: &'a dyn Services,
}

impl<'a> Variables<'a> {
    pub fn new(exchange: &'a Exchange, services: &'a dyn Services) -> Self {
        Self { exchange, services }
    }
}

impl expr::jq::Variables for Variables<'_> {
    fn get(&self, slot: usize) -> Value {
        let exchange = self.exchange;
        match slot {
            scope::IN => exchange.original_value(),
            scope::HEADERS => headers_value(&exchange.request.headers),
            scope::PATH => path_value(&exchange.request),
            scope::QUERY => query_value(exchange.request.query.as_deref()),
            scope::METHOD => value::text(exchange.request.method.as_str()),
            scope::SECRET => exchange.context.secrets.clone(),
            scope::ENV => exchange.context.env.clone(),
            scope::ERROR => exchange
                .fault
                .as_deref()
                .map(fault_value)
                .unwrap_or_default(),
            scope::REPLY => exchange
                .reply
                .as_deref()
                .map(reply_value)
                .unwrap_or_default(),
            scope::FLOW => value::text(&*exchange.context.name),
            scope::AUTH => Caller::of(&exchange.request)
                .map(|caller| caller.value().clone())
                .unwrap_or_default(),
            slot => exchange.slot(slot),
        }
    }

    fn member(&self, slot: usize, key: &str) -> Option<Value> {
        let exchange = self.exchange;
        match slot {
            scope::HEADERS => Some(header_value(&exchange.request.headers, key)),
            scope::PATH => {
                let mut parameters = exchange.request.parameters.iter();
                let found = parameters.find(|(name, _)| **name == *key);
                Some(found.map_or(Value::Null, |(_, text)| value::text(decoded(text))))
            }
            scope::REPLY => {
                let reply = exchange.reply.as_deref()?;
                match key {
                    "status" => Some(value::integer(reply.status.into())),
                    "headers" => Some(headers_value(&reply.headers)),
                    "body" => Some(reply_body(reply)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn now(&self) -> f64 {
        self.services.wall().as_secs_f64()
    }
}

/// A request as `$in` shows it.
pub(crate) fn request_value(request: &Request, body: Value) -> Value {
    let path = value::text(request.path.as_str());
    let member = |name: &str, value| (name.to_owned(), value);
    value::object([
        member("method", value::text(request.method.as_str())),
        member("path", path),
        member("query", query_value(request.query.as_deref())),
        member("headers", headers_value(&request.headers)),
        member("peer", value::text(request.peer.to_string())),
        member("body", body),
    ])
}

/// A failure as `$error` shows it.
pub fn fault_value(fault: &Fault) -> Value {
    let text = |text: &str| value::text(text);
    let step = fault.step.as_deref().map_or(Value::Null, text);
    let cause = fault.cause.as_deref().map_or(Value::Null, text);
    value::object([
        ("kind".to_owned(), text(fault.name())),
        ("step".to_owned(), step),
        (
            "status".to_owned(),
            value::integer(fault.seen_status().into()),
        ),
        ("message".to_owned(), text(&fault.detail)),
        ("cause".to_owned(), cause),
    ])
}

fn reply_value(reply: &ReplyHead) -> Value {
    value::object([
        ("status".to_owned(), value::integer(reply.status.into())),
        ("headers".to_owned(), headers_value(&reply.headers)),
        ("body".to_owned(), reply_body(reply)),
    ])
}

/// The body of a reply; null when it cannot be read.
fn reply_body(reply: &ReplyHead) -> Value {
    let mut content = reply.content.clone();
    let body = content.value(reply.headers.view());
    body.cloned().unwrap_or_default()
}

/// All lines of one name, joined as RFC 9110, section 5.3 says; null without any.
fn header_value(headers: &Headers, key: &str) -> Value {
    let mut found: Option<String> = None;
    for (_, name, line) in headers.view().iter() {
        if name.eq_ignore_ascii_case(key.as_bytes()) {
            join_line(&mut found, line);
        }
    }
    // Names are written in small letters; another spelling would find nothing in the object.
    let is_small = !key.bytes().any(|byte| byte.is_ascii_uppercase());
    found.filter(|_| is_small).map_or(Value::Null, value::text)
}

fn join_line(text: &mut Option<String>, line: &[u8]) {
    let line = String::from_utf8_lossy(line);
    match text {
        Some(text) => {
            text.push_str(", ");
            text.push_str(&line);
        }
        None => *text = Some(line.into_owned()),
    }
}

/// All header fields, their names in small letters.
pub fn headers_value(headers: &Headers) -> Value {
    let mut members: Vec<(String, Option<String>)> = Vec::new();
    for (_, name, line) in headers.view().iter() {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        match members.iter_mut().find(|(known, _)| *known == name) {
            Some((_, text)) => join_line(text, line),
            None => {
                let mut text = None;
                join_line(&mut text, line);
                members.push((name, text));
            }
        }
    }
    let members = members.into_iter();
    value::object(members.map(|(name, text)| (name, value::text(text.unwrap_or_default()))))
}

fn path_value(request: &Request) -> Value {
    let parameters = request.parameters.iter();
    value::object(parameters.map(|(name, text)| (name.to_string(), value::text(decoded(text)))))
}

/// The parameters of a query: a text, or an array of texts for a name that stands more than once.
fn query_value(query: Option<&str>) -> Value {
    let query = query.unwrap_or_default();
    expr::format::from_form(query.as_bytes()).unwrap_or_else(|_| value::object([]))
}

/// Undoes percent-encoding; what is not UTF-8 then is replaced.
#[must_use]
pub fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let hex = |at: usize| {
            after
                .get(at)
                .and_then(|&digit| char::from(digit).to_digit(16))
        };
        match (first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_name_are_joined() {
        let mut headers = Headers::new();
        headers.append("X-A", "1");
        headers.append("x-a", "2");
        headers.append("Y", "3");
        assert_eq!(
            value::shown(&headers_value(&headers)),
            "{\"x-a\":\"1, 2\",\"y\":\"3\"}"
        );
        assert_eq!(value::shown(&header_value(&headers, "x-a")), "\"1, 2\"");
        assert_eq!(value::shown(&header_value(&headers, "z")), "null");
    }

    #[test]
    fn percent_encoding_is_undone_once() {
        assert_eq!(decoded("a%20b%2525"), "a b%25");
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%e4"), "\u{fffd}");
    }
}
