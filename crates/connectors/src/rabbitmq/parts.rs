//! The parts of messages as flow files say them: where a message goes, its body and its headers.
//! What `publish` and `request` share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use amqp::{SHORT_MAX, Table};
use bytes::Bytes;
use component::content::Content;
use component::definition::BuildContext;
use component::exchange::Exchange;
use component::handler::Services;
use component::value_template::ValueTemplate;
use config::{Node, Span, Spanned};
use expr::Value;
use expr::template::Template;
use expr::value;
use message::{Body, Fault, Headers};

use crate::codes::BAD_PUBLISH;
use crate::named;

/// Where messages go.
pub(super) enum Place {
    /// To an exchange, with a routing key.
    Exchange(Arc<str>, Option<Template>),
    /// To queues, one after the other, by the default exchange.
    Queues(Vec<String>, AtomicUsize),
}

/// The keys that say where messages go.
pub(super) struct PlaceConfig<'a> {
    pub exchange: Option<&'a Spanned<String>>,
    pub key: Option<&'a Spanned<String>>,
    pub queue: Option<&'a Spanned<String>>,
    pub queues: Option<&'a Spanned<Vec<Spanned<String>>>>,
    /// Where the step stands.
    pub span: Span,
}

impl Place {
    /// Reads where messages go. Every problem is reported.
    pub fn read(config: &PlaceConfig<'_>, context: &mut BuildContext<'_>) -> Option<Self> {
        let (queue, queues) = (config.queue, config.queues);
        let ways = [config.exchange.is_some(), queue.is_some(), queues.is_some()];
        if ways.into_iter().filter(|it| *it).count() != 1 {
            let message = "a message goes to an exchange, to a queue, or to queues in turn";
            context
                .report
                .error(BAD_PUBLISH, config.span, message)
                .hint("write one of `exchange`, `queue` and `queues`");
            return None;
        }
        if let Some(exchange) = config.exchange {
            check_exchange(exchange, config.key, context);
            let key = read_short("key", config.key, context);
            return Some(Self::Exchange(exchange.value.as_str().into(), key));
        }
        if let Some(key) = config.key {
            context
                .report
                .error(
                    BAD_PUBLISH,
                    key.span,
                    "`key` has no effect: a queue is named",
                )
                .hint("leave it out, or name an exchange");
        }
        let names: Vec<&Spanned<String>> = match queues {
            Some(queues) => queues.value.iter().collect(),
            None => queue.into_iter().collect(),
        };
        if let Some(queues) = queues.filter(|it| it.value.is_empty()) {
            context
                .report
                .error(BAD_PUBLISH, queues.span, "there is no queue")
                .hint("name at least one");
        }
        for name in &names {
            check_queue(name, context);
        }
        let names = names.into_iter().map(|name| name.value.clone());
        Some(Self::Queues(names.collect(), AtomicUsize::new(0)))
    }

    /// Exchange and key for a message.
    pub fn of(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<(Arc<str>, String), Fault> {
        match self {
            Self::Exchange(name, key) => {
                let key = short("key", key.as_ref(), exchange, services)?;
                Ok((Arc::clone(name), key.unwrap_or_default()))
            }
            Self::Queues(names, next) => {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let name = names.get(at % names.len().max(1));
                Ok((default_exchange(), name.cloned().unwrap_or_default()))
            }
        }
    }

    /// The template of the key.
    pub fn key(&self) -> Option<&Template> {
        match self {
            Self::Exchange(_, key) => key.as_ref(),
            Self::Queues(..) => None,
        }
    }
}

/// The exchange without a name.
pub(super) fn default_exchange() -> Arc<str> {
    thread_local! {
        static EMPTY: Arc<str> = "".into();
    }
    EMPTY.with(Arc::clone)
}

fn check_exchange(
    exchange: &Spanned<String>,
    key: Option<&Spanned<String>>,
    context: &mut BuildContext<'_>,
) {
    let hint = "put what differs into `key`, which may have `${ }`";
    if !named::is_fixed("exchange", hint, exchange, context) {
        return;
    }
    let report = &mut context.report;
    if exchange.value.len() > SHORT_MAX || exchange.value.contains(char::is_control) {
        report
            .error(BAD_PUBLISH, exchange.span, "this is no name of an exchange")
            .hint("a name has at most 255 bytes and no control characters");
    }
    let has_key = key.is_some_and(|key| !key.value.is_empty());
    if exchange.value.is_empty() && !has_key {
        report
            .error(
                BAD_PUBLISH,
                exchange.span,
                "the default exchange needs a key",
            )
            .hint("write `queue:` with the name of a queue instead");
    }
}

fn check_queue(name: &Spanned<String>, context: &mut BuildContext<'_>) {
    let hint = "name an exchange, and put what differs into `key`";
    if named::is_fixed("queue", hint, name, context) && !is_queue(&name.value) {
        context
            .report
            .error(BAD_PUBLISH, name.span, "this is no name of a queue")
            .hint("a name has 1 to 255 bytes and no control characters");
    }
}

/// Whether a queue can have this name.
pub(super) fn is_queue(name: &str) -> bool {
    !name.is_empty() && name.len() <= SHORT_MAX && !name.contains(char::is_control)
}

/// A text with `${ }` in it that AMQP calls short. Every problem is reported.
pub(super) fn read_short(
    what: &str,
    text: Option<&Spanned<String>>,
    context: &mut BuildContext<'_>,
) -> Option<Template> {
    let text = text?;
    let template = context.template(text)?;
    if template
        .literal()
        .is_some_and(|text| text.len() > SHORT_MAX)
    {
        let message = format!("`{what}` is too long");
        context
            .report
            .error(BAD_PUBLISH, text.span, message)
            .hint("at most 255 bytes");
    }
    Some(template)
}

/// Headers with `${ }` in their texts. Every problem is reported.
pub(super) fn read_headers(node: &Node, context: &mut BuildContext<'_>) -> Option<ValueTemplate> {
    let Some(entries) = node.as_mapping() else {
        let message = format!("`headers` is a mapping, not {}", node.type_name());
        context.report.error(BAD_PUBLISH, node.span, message);
        return None;
    };
    for entry in entries {
        if entry.key.is_empty() || entry.key.len() > SHORT_MAX {
            let message = "this is no name of a header";
            context
                .report
                .error(BAD_PUBLISH, entry.key_span, message)
                .hint("a name has 1 to 255 bytes");
        }
        if entry.value.as_mapping().is_some() || entry.value.as_sequence().is_some() {
            let kind = entry.value.type_name();
            let message = format!("a header is a text, a number or a boolean, not {kind}");
            context
                .report
                .error(BAD_PUBLISH, entry.value.span, message)
                .hint("write it as text: `\"${ .lines | tojson }\"`");
        }
    }
    context.value(node)
}

/// Looks at a media type. Every problem is reported.
pub(super) fn check_media_type(media_type: &Spanned<String>, context: &mut BuildContext<'_>) {
    let hint = "write it for all messages alike, or send a text of your own as `body`";
    let text = &media_type.value;
    let is_value = Headers::is_value(text.as_bytes()) && text.len() <= SHORT_MAX;
    let is_sound = text.contains('/') && is_value;
    if named::is_fixed("content_type", hint, media_type, context) && !is_sound {
        context
            .report
            .error(BAD_PUBLISH, media_type.span, "this is no media type")
            .hint("write one such as `application/json`");
    }
}

/// A text that AMQP calls short, for this message.
pub(super) fn short(
    what: &str,
    template: Option<&Template>,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<Option<String>, Fault> {
    let Some(template) = template else {
        return Ok(None);
    };
    let text = exchange.fill_text(template, services)?;
    if text.len() > SHORT_MAX {
        let detail = format!("the {what} of a message has more than 255 bytes");
        return Err(Fault::invalid(detail));
    }
    Ok(Some(text))
}

/// The headers of this message, without those that are null.
pub(super) fn made_headers(
    headers: Option<&ValueTemplate>,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<Value, Fault> {
    let Some(headers) = headers else {
        return Ok(value::object([]));
    };
    let made = headers.make(exchange, services)?;
    let mut kept = Vec::new();
    for (name, header) in value::members(&made).into_iter().flatten() {
        match header {
            Value::Null => {}
            Value::Arr(_) | Value::Obj(_) => {
                let kind = value::kind(header);
                return Err(Fault::invalid(format!(
                    "the header {name} is a text, not {kind}"
                )));
            }
            header => kept.push((name.to_owned(), header.clone())),
        }
    }
    Ok(value::object(kept))
}

/// The same as AMQP has them.
pub(super) fn made_table(
    headers: Option<&ValueTemplate>,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<Table, Fault> {
    let mut table = Table::default();
    if headers.is_none() {
        return Ok(table);
    }
    let made = made_headers(headers, exchange, services)?;
    for (name, header) in value::members(&made).into_iter().flatten() {
        let field = match header {
            Value::Bool(value) => amqp::Value::Bool(*value),
            Value::BStr(bytes) => amqp::Value::Bytes(bytes.to_vec()),
            Value::TStr(text) => amqp::Value::Text(text.to_vec()),
            number => {
                let text = value::scalar_text(number).unwrap_or_default();
                match (text.parse::<i64>(), text.parse::<f64>()) {
                    (Ok(whole), _) => amqp::Value::Integer(whole),
                    (_, Ok(float)) => amqp::Value::Float(float),
                    _ => amqp::Value::from(&*text),
                }
            }
        };
        table.0.push((name.as_bytes().to_vec(), field));
    }
    Ok(table)
}

/// A table as the properties of a message have it; none without entries.
pub(super) fn header_bytes(table: &Table) -> Result<Option<Vec<u8>>, Fault> {
    if table.0.is_empty() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let written = table.write(&mut bytes);
    written.map_err(|_| Fault::invalid("the name of a header has more than 255 bytes"))?;
    Ok(bytes.get(4..).map(<[u8]>::to_vec))
}

/// The body as whoever stands in for a broker sees it.
pub(super) fn shown_body(
    body: Option<&ValueTemplate>,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<Value, Fault> {
    if let Some(body) = body {
        return body.make(exchange, services);
    }
    let made = exchange.value().cloned();
    match made {
        Ok(Value::BStr(_)) | Err(_) => {
            let (bytes, _) = exchange.body()?;
            Ok(value::text(String::from_utf8_lossy(bytes.as_bytes())))
        }
        Ok(made) => Ok(made),
    }
}

/// A body, its media type and its coding.
pub(super) struct Made {
    pub body: Bytes,
    pub media_type: Option<Bytes>,
    pub encoding: Option<Bytes>,
}

/// The body of this message.
pub(super) fn made_body(
    body: Option<&ValueTemplate>,
    exchange: &mut Exchange,
    services: &dyn Services,
) -> Result<Made, Fault> {
    let Some(body) = body else {
        return of_content(exchange);
    };
    let made = Content::of_value(body.make(exchange, services)?);
    let own = std::mem::replace(&mut exchange.content, made);
    let made = of_content(exchange);
    exchange.content = own;
    made
}

fn of_content(exchange: &mut Exchange) -> Result<Made, Fault> {
    let (body, media_type) = exchange.body()?;
    let body = match body {
        Body::Bytes(bytes) => bytes,
        Body::Empty | Body::Unread => Bytes::new(),
    };
    Ok(Made {
        body,
        media_type,
        encoding: exchange.content_encoding(),
    })
}
