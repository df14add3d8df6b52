//! The message of a flow that a message of a queue becomes.

use amqp::{Deliver, Message, Properties, Table, Value};
use message::{Body, Field, Headers, Request};

/// The headers that a copy of a message has which was put back, for queues that do not count
/// themselves: how often its flow has failed, and where it was published to first.
const FAILURES: &str = "x-intertie-failures";
const EXCHANGE: &str = "x-intertie-exchange";
const KEY: &str = "x-intertie-key";
/// The header of a flow's reply that has its status.
pub(crate) const STATUS: &str = "status";
/// What quorum queues count in (<https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling>).
const DELIVERY_COUNT: &str = "x-delivery-count";

/// What is known of a message beside its body.
pub(super) struct Facts<'a> {
    pub deliver: Deliver<'a>,
    pub properties: Properties<'a>,
    pub headers: Table,
    /// How often its flow has failed as far as this engine remembers.
    pub remembered: u64,
}

/// How often the flow of a message has failed before, as far as can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failures {
    pub count: u64,
    /// Whether the queue counts, or the count is 0: then it can just go back.
    pub is_counted: bool,
}

impl<'a> Facts<'a> {
    /// Those of a message; without headers when they cannot be read.
    pub fn read(message: &'a Message, deliver: Deliver<'a>) -> Option<Self> {
        let properties = message.properties().ok()?;
        let headers = properties.table().unwrap_or_default();
        Some(Self {
            deliver,
            properties,
            headers,
            remembered: 0,
        })
    }

    fn number(&self, name: &str) -> Option<u64> {
        match self.headers.get(name)? {
            Value::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// How often its flow has failed before.
    pub fn failures(&self) -> Failures {
        if let Some(count) = self.number(DELIVERY_COUNT) {
            return Failures {
                count: count.max(self.remembered),
                is_counted: true,
            };
        }
        let own = self.number(FAILURES);
        let redelivered = u64::from(self.deliver.redelivered);
        let count = own.unwrap_or_default().max(redelivered);
        Failures {
            count: count.max(self.remembered),
            is_counted: own.is_none() && !self.deliver.redelivered,
        }
    }

    /// Whether these are of the same message, delivered again.
    pub fn is_same(&self, other: &Self) -> bool {
        let headers = |it: &Self| {
            let mut headers = it.headers.clone();
            let is_count = |name: &[u8]| name == DELIVERY_COUNT.as_bytes();
            headers.0.retain(|(name, _)| !is_count(name));
            headers
        };
        let (one, two) = (&self.deliver, &other.deliver);
        let properties = Properties {
            headers: other.properties.headers,
            ..self.properties
        };
        (one.exchange, one.key) == (two.exchange, two.key)
            && properties == other.properties
            && headers(self) == headers(other)
    }

    /// The headers of a copy that is put back after so many failures. Without `CC` and `BCC`, by
    /// which the broker would route the copy to other queues again
    /// (<https://www.rabbitmq.com/docs/sender-selected>).
    pub fn headers_of_copy(&self, failures: u64) -> Table {
        let mut headers = self.headers.clone();
        let is_route = |name: &[u8]| matches!(name, b"CC" | b"BCC");
        headers.0.retain(|(name, _)| !is_route(name));
        let (exchange, key) = self.origin();
        let count = i64::try_from(failures).unwrap_or(i64::MAX);
        headers.set(FAILURES, Value::Integer(count));
        headers.set(EXCHANGE, Value::Text(exchange.to_vec()));
        headers.set(KEY, Value::Text(key.to_vec()));
        headers
    }

    fn text(&self, name: &str) -> Option<&[u8]> {
        match self.headers.get(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The exchange and the key that it was published to first.
    pub fn origin(&self) -> (&[u8], &[u8]) {
        let exchange = self.text(EXCHANGE).unwrap_or(self.deliver.exchange);
        let key = self.text(KEY).unwrap_or(self.deliver.key);
        (exchange, key)
    }

    /// The message as its flow sees it.
    pub fn request(&self, queue: &str, body: Body) -> Request {
        Request {
            path: format!("/{}", encoded(queue.as_bytes())),
            parameters: self.parameters(queue),
            ..Request::of_source("RABBITMQ", self.flow_headers(), body)
        }
    }

    fn parameters(&self, queue: &str) -> Vec<(Box<str>, String)> {
        let (exchange, key) = self.origin();
        let it = &self.properties;
        let deliveries = (self.failures().count + 1).to_string();
        let timestamp = it.timestamp.map(|it| it.to_string());
        let redelivered = match self.deliver.redelivered || self.remembered > 0 {
            true => "true",
            false => "false",
        };
        let known: [(&str, Option<&[u8]>); 11] = [
            ("queue", Some(queue.as_bytes())),
            ("exchange", Some(exchange)),
            ("key", Some(key)),
            ("redelivered", Some(redelivered.as_bytes())),
            ("deliveries", Some(deliveries.as_bytes())),
            ("id", it.message_id),
            ("correlation_id", it.correlation_id),
            ("reply_to", it.reply_to),
            ("timestamp", timestamp.as_deref().map(str::as_bytes)),
            ("type", it.kind),
            ("app_id", it.app_id),
        ];
        let there = known.into_iter();
        there
            .filter_map(|(name, value)| Some((name.into(), encoded(value?))))
            .collect()
    }

    fn flow_headers(&self) -> Headers {
        let mut headers = Headers::new();
        let own = [
            ("Content-Type", self.properties.content_type),
            ("Content-Encoding", self.properties.content_encoding),
        ];
        for (name, value) in own {
            if let Some(value) = value.filter(|it| Headers::is_value(it)) {
                headers.append(name, value);
            }
        }
        for (name, value) in &self.headers.0 {
            let Some((name, value)) = header(name, value) else {
                continue;
            };
            headers.append(name, value);
        }
        headers
    }
}

/// A header as a flow can see it: one that can stand in a head of HTTP, where it may end up.
/// Control characters of texts are spaces.
pub(crate) fn header<'a>(name: &'a [u8], value: &Value) -> Option<(&'a str, String)> {
    let name = std::str::from_utf8(name).ok()?;
    let field = Field::of(name.as_bytes());
    let describes = matches!(field, Field::ContentType | Field::ContentEncoding);
    if !Headers::is_name(name) || field.is_hop_by_hop() || field.is_framing() || describes {
        return None;
    }
    let text = match value {
        Value::Bool(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Timestamp(value) => value.to_string(),
        Value::Text(text) => {
            let text = String::from_utf8_lossy(text);
            let plain = text
                .chars()
                .map(|it| if it.is_control() { ' ' } else { it });
            plain.collect::<String>().trim().to_owned()
        }
        Value::Decimal(scale, value) => decimal(*scale, *value),
        Value::Void | Value::Bytes(_) | Value::Array(_) | Value::Table(_) => return None,
    };
    Headers::is_value(text.as_bytes()).then_some((name, text))
}

fn decimal(scale: u8, value: i32) -> String {
    let digits = format!(
        "{:0width$}",
        value.unsigned_abs(),
        width = usize::from(scale) + 1
    );
    let sign = if value < 0 { "-" } else { "" };
    match digits.split_at_checked(digits.len() - usize::from(scale)) {
        Some((whole, part)) if !part.is_empty() => format!("{sign}{whole}.{part}"),
        _ => format!("{sign}{digits}"),
    }
}

/// Percent-encoded, as values of `$path` are kept.
fn encoded(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => {
                const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                let digit = |it: u8| DIGITS.get(usize::from(it)).map_or('0', |&it| it.into());
                out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_texts_that_can_stand_in_a_head() {
        let of = |name: &'static str, value: Value| header(name.as_bytes(), &value);
        let text = |it: &str| Value::from(it);
        assert_eq!(of("a", text("x\r\ny ")), Some(("a", "x  y".to_owned())));
        assert_eq!(of("a", Value::Integer(-3)), Some(("a", "-3".to_owned())));
        assert_eq!(
            of("a", Value::Decimal(2, -5)),
            Some(("a", "-0.05".to_owned()))
        );
        for name in ["a b", "", "Connection", "content-length", "Content-Type"] {
            assert_eq!(of(name, text("x")), None, "{name}");
        }
        assert_eq!(of("x-death", Value::Array(Vec::new())), None);
    }

    #[test]
    fn a_copy_keeps_its_headers_but_no_other_queues() {
        let mut headers = Table::default();
        for name in ["CC", "BCC"] {
            headers.set(name, Value::Array(vec![Value::from("other")]));
        }
        headers.set("cc", Value::from("a header of the sender's own"));
        let facts = Facts {
            deliver: Deliver {
                consumer: b"c",
                tag: 1,
                redelivered: true,
                exchange: b"orders",
                key: b"new",
            },
            properties: Properties::default(),
            headers,
            remembered: 0,
        };
        let mut copy = facts.headers_of_copy(2).0;
        copy.sort_by(|a, b| a.0.cmp(&b.0));
        let names = copy.iter().map(|it| String::from_utf8_lossy(&it.0));
        let expected = ["cc", EXCHANGE, FAILURES, KEY];
        assert_eq!(names.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn values_of_paths_are_encoded() {
        assert_eq!(encoded("a/b ä".as_bytes()), "a%2Fb%20%C3%A4");
    }
}
