//! The message of a flow that a message of a queue becomes.

use amqp::{Deliver, Message, Properties, Received, Table, Value};
use component::intake::Incoming;
use component::source::has_succeeded;
use message::{Body, Fault, Field, Headers, Kind, Origin, Reply, Request, memory};

use crate::rabbitmq::consumers::{Delivery, Ticket};
use crate::rabbitmq::dial::BODY_MAX;
use crate::rabbitmq::hub::Hub;

/// The headers that the copy of a message has in a dead-letter queue: where it was published to
/// first, the queue that it was taken from, how often its flow has failed, why it failed last, and
/// how long it might have waited.
const EXCHANGE: &str = "x-intertie-exchange";
const KEY: &str = "x-intertie-key";
const QUEUE: &str = "x-intertie-queue";
const FAILURES: &str = "x-intertie-failures";
const REASON: &str = "x-intertie-reason";
const EXPIRATION: &str = "x-intertie-expiration";
/// The most bytes of a reason in a header: headers have to fit into one frame.
const REASON_MAX: usize = 1024;
/// The header of a flow's reply that has its status.
pub(crate) const STATUS: &str = "status";
/// What quorum queues count in (<https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling>).
const DELIVERY_COUNT: &str = "x-delivery-count";

/// A message of a queue that has not been settled yet.
pub(super) struct QueueMessage<'a> {
    pub queue: &'a str,
    pub message: &'a Message,
    /// None when they cannot be read.
    pub facts: Option<Facts<'a>>,
    /// Which run of the flow was the last one, from 1.
    pub attempt: u32,
    /// How often the flow had failed before.
    pub failed_before: u32,
    /// The error reply of the last run, when somebody waits for it.
    pub error_reply: Option<Box<Reply>>,
    is_answered: bool,
    hub: &'a Hub,
    ticket: &'a Ticket,
}

impl<'a> QueueMessage<'a> {
    /// A message of this queue. `is_answered` says whether error replies are wanted.
    pub fn new(delivery: &'a Delivery, queue: &'a str, is_answered: bool, hub: &'a Hub) -> Self {
        let Delivery { message, ticket } = delivery;
        let facts = match message.received() {
            Ok(Received::Delivered(deliver)) => Facts::read(message, deliver),
            Ok(Received::Returned(_)) | Err(_) => None,
        };
        Self {
            queue,
            message,
            facts,
            attempt: 0,
            failed_before: 0,
            error_reply: None,
            is_answered,
            hub,
            ticket,
        }
    }
}

impl Incoming for QueueMessage<'_> {
    fn id(&self) -> String {
        let facts = self.facts.as_ref();
        match facts.and_then(|it| it.properties.message_id) {
            Some(id) => String::from_utf8_lossy(id).into_owned(),
            None => {
                let tag = facts.map_or(0, |it| it.deliver.tag);
                format!("delivery {tag} of {}", self.queue)
            }
        }
    }

    fn request(&mut self, attempt: u32) -> Result<Request, Fault> {
        self.attempt = attempt;
        if self.message.is_without_body() {
            return Err(too_large(self.message.size));
        }
        match &self.facts {
            Some(facts) => Ok(facts.request(self.queue, attempt, self.message.body.clone().into())),
            None => Err(Fault::invalid(
                "the properties of the message cannot be read",
            )),
        }
    }

    fn flow_ended(&mut self, result: &Result<Reply, Fault>) {
        self.error_reply = match result {
            Ok(reply) if self.is_answered && !has_succeeded(result) => Some(reply.clone().into()),
            Ok(_) | Err(_) => None,
        };
    }

    fn delivered_before(&self) -> u32 {
        let count = self.facts.as_ref().and_then(|it| it.number(DELIVERY_COUNT));
        count.map_or(0, |count| u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn failed_before(&self) -> u32 {
        self.failed_before
    }

    fn is_gone(&self) -> bool {
        !self.hub.is_open(self.ticket)
    }

    fn letter(&mut self, attempt: u32) -> Request {
        // Empty when there was no room for it.
        let body = self.message.body.clone();
        match &self.facts {
            Some(facts) => facts.request(self.queue, attempt, body.into()),
            None => Request::of_source("RABBITMQ", Headers::new(), body),
        }
    }
}

/// Why there is no body.
fn too_large(size: u64) -> Fault {
    let (limit, of) = match size > BODY_MAX {
        true => (BODY_MAX, "a message"),
        false => (memory::bodies().limit(), "limits.body_memory"),
    };
    Fault::new(Kind::Invalid, Origin::Client, "the message is too large")
        .with_status(413)
        .with_cause(format_args!("{size} bytes; {of} has at most {limit}"))
}

/// What is known of a message beside its body.
pub(super) struct Facts<'a> {
    pub deliver: Deliver<'a>,
    pub properties: Properties<'a>,
    pub headers: Table,
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
        })
    }

    fn number(&self, name: &str) -> Option<u64> {
        match self.headers.get(name)? {
            Value::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// How often it has been delivered before, as far as can be told.
    fn deliveries_before(&self) -> u64 {
        let redelivered = u64::from(self.deliver.redelivered);
        let counted = self.number(DELIVERY_COUNT).unwrap_or_default();
        counted.max(redelivered)
    }

    /// The headers of the copy for a dead-letter queue: its own ones, without `CC` and `BCC`, by
    /// which the broker would route the copy to other queues again
    /// (<https://www.rabbitmq.com/docs/sender-selected>), and without the count of the queue that
    /// it leaves.
    pub fn headers_of_copy(&self) -> Table {
        let mut headers = self.headers.clone();
        let is_left =
            |name: &[u8]| matches!(name, b"CC" | b"BCC") || name == DELIVERY_COUNT.as_bytes();
        headers.0.retain(|(name, _)| !is_left(name));
        headers
    }

    /// Adds to them where the message comes from, how often its flow has failed and why.
    pub fn explain(&self, headers: &mut Table, queue: &str, (failed, reason): (u32, &str)) {
        let (exchange, key) = self.origin();
        let end = (0..=REASON_MAX.min(reason.len())).rev();
        let end = end.into_iter().find(|at| reason.is_char_boundary(*at));
        let reason = end.and_then(|end| reason.get(..end)).unwrap_or_default();
        let texts = [
            (EXCHANGE, exchange),
            (KEY, key),
            (QUEUE, queue.as_bytes()),
            (REASON, reason.as_bytes()),
        ];
        for (name, text) in texts {
            headers.set(name, Value::Text(text.to_vec()));
        }
        headers.set(FAILURES, i64::from(failed));
        if let Some(time) = self.properties.expiration {
            headers.set(EXPIRATION, Value::Text(time.to_vec()));
        }
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

    /// The message as this run of its flow sees it.
    pub fn request(&self, queue: &str, attempt: u32, body: Body) -> Request {
        Request {
            path: format!("/{}", encoded(queue.as_bytes())),
            parameters: self.parameters(queue, attempt),
            ..Request::of_source("RABBITMQ", self.flow_headers(), body)
        }
    }

    fn parameters(&self, queue: &str, attempt: u32) -> Vec<(Box<str>, String)> {
        let (exchange, key) = self.origin();
        let it = &self.properties;
        let deliveries = self.deliveries_before().saturating_add(attempt.into());
        let deliveries = deliveries.to_string();
        let timestamp = it.timestamp.map(|it| it.to_string());
        let redelivered = match self.deliver.redelivered || attempt > 1 {
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

    fn facts<'a>(headers: Table, properties: Properties<'a>) -> Facts<'a> {
        Facts {
            deliver: Deliver {
                consumer: b"c",
                tag: 1,
                redelivered: true,
                exchange: b"orders",
                key: b"new",
            },
            properties,
            headers,
        }
    }

    fn names(table: &Table) -> Vec<String> {
        let names = table
            .0
            .iter()
            .map(|(name, _)| String::from_utf8_lossy(name));
        let mut names: Vec<_> = names.map(|name| name.into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_copy_keeps_its_headers_but_no_other_queues_and_no_count() {
        let mut headers = Table::default();
        for name in ["CC", "BCC"] {
            headers.set(name, Value::Array(vec![Value::from("other")]));
        }
        headers.set(DELIVERY_COUNT, 7_i64);
        headers.set("cc", Value::from("a header of the sender's own"));
        let properties = Properties {
            expiration: Some(b"60000"),
            ..Properties::default()
        };
        let facts = facts(headers, properties);
        let mut copy = facts.headers_of_copy();
        assert_eq!(names(&copy), ["cc"]);
        facts.explain(&mut copy, "in", (6, &"x".repeat(5000)));
        let expected = ["cc", EXCHANGE, EXPIRATION, FAILURES, KEY, QUEUE, REASON];
        assert_eq!(names(&copy), expected);
        assert_eq!(copy.get(FAILURES), Some(&Value::Integer(6)));
        assert_eq!(copy.get(QUEUE), Some(&Value::from("in")));
        assert_eq!(copy.get(REASON), Some(&Value::from(&*"x".repeat(1024))));
    }

    #[test]
    fn deliveries_are_those_that_the_queue_counts_and_the_runs_here() {
        let deliveries = |count: Option<i64>, attempt| {
            let mut headers = Table::default();
            if let Some(count) = count {
                headers.set(DELIVERY_COUNT, count);
            }
            let facts = facts(headers, Properties::default());
            let parameters = facts.parameters("in", attempt);
            let mut found = parameters.into_iter().filter(|it| &*it.0 == "deliveries");
            found.next().unwrap().1
        };
        assert_eq!(deliveries(Some(3), 1), "4");
        assert_eq!(deliveries(Some(3), 2), "5");
        // It has been redelivered, and nobody counts.
        assert_eq!(deliveries(None, 1), "2");
    }

    #[test]
    fn values_of_paths_are_encoded() {
        assert_eq!(encoded("a/b ä".as_bytes()), "a%2Fb%20%C3%A4");
    }
}
