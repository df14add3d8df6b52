//! Publishing by HTTP: one event, several as lines, or several as a list.

use std::sync::Arc;

use bytes::Bytes;
use component::access::Caller;
use component::document::{DeclaredRoute, DocumentContext, Entrance, Guard};
use component::edge::RouteEdge;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::limits::Gate;
use component::trigger::Methods;
use config::Node;
use message::{Fault, Headers, Method, Reply, Request};

use crate::access::Lock;
use crate::caller_limits::CallerLimits;
use crate::codes::BAD_PUBLISHER;
use crate::document::Document;
use crate::topic::{BATCH_BYTES_MAX, For, KEY_MAX, Publication, Receipt, Topic, in_time};

/// Room for the commas, brackets and line breaks of a batch.
const AROUND: u64 = 64 << 10;
/// A byte of a batch costs as much as so many of one large event: each event has a checksum, a
/// place and a receipt.
const BATCH_COST: usize = 8;

/// Reads the `http` of a topic's `publish`. Every problem is reported. `lock` is that of
/// `publish.auth`: `None` when the document has none, `Some(None)` for `auth: none`.
pub(crate) fn read(
    (node, lock): (&Node, Option<&Option<Lock>>),
    (edge, limits): (RouteEdge, &CallerLimits),
    topic: &Arc<Topic>,
    context: &mut DocumentContext<'_>,
) -> Option<DeclaredRoute> {
    let mut entrance = context.entrances.read_http(node, context.report)?;
    let before = context.report.errors();
    check_methods(&entrance, context);
    if let Some(decode) = node.entry("decode") {
        let message = "`decode` has no effect: events are JSON";
        context
            .report
            .error(BAD_PUBLISHER, decode.key_span, message)
            .hint("leave it out");
    }
    let largest = topic.settings().body_max as u64;
    match node.get("body_max") {
        None => entrance.http.body_max = largest.max(BATCH_BYTES_MAX as u64) + AROUND,
        Some(own) if entrance.http.body_max < largest => {
            let message = "`body_max` of the requests is less than that of the topic";
            context
                .report
                .error(BAD_PUBLISHER, own.span, message)
                .hint("give the topic a smaller `body_max`, or leave this one out");
        }
        Some(_) => {}
    }
    let guard = Guard {
        verb: "publish to",
        doors: Vec::new(),
        says_auth: lock.is_some(),
        publishes: true,
    };
    let lock = match lock {
        Some(own) => own.clone(),
        None => {
            let name = format!("publish of topic {}", topic.name());
            Lock::of_listener(&entrance.http.listen, (&name, None), context)
        }
    };
    (context.report.errors() == before).then(|| DeclaredRoute {
        entrance,
        edge,
        handler: Arc::new(Publisher {
            topic: Arc::clone(topic),
            gate: limits.publish.as_ref().map(Arc::clone),
        }),
        door: lock.map(|it| Arc::clone(it.door())),
        pages: Vec::new(),
        reads_certificate: false,
        guard,
    })
}

fn check_methods(entrance: &Entrance, context: &mut DocumentContext<'_>) {
    let is_ours = |method: &Method| matches!(method, Method::Post | Method::Put);
    let is_sound = match &entrance.http.methods {
        Methods::Any => false,
        Methods::Only(methods) => methods.iter().all(is_ours),
    };
    if !is_sound {
        let message = "events are published by `POST` or `PUT`";
        context
            .report
            .error(BAD_PUBLISHER, entrance.span, message)
            .hint("write `POST :8080/topics/NAME`, or `POST,PUT :8080/topics/NAME`");
    }
}

/// Takes events for a topic.
struct Publisher {
    topic: Arc<Topic>,
    gate: Option<Arc<Gate>>,
}

impl Handler for Publisher {
    fn reads_body(&self) -> bool {
        true
    }

    fn gate(&self) -> Option<&Arc<Gate>> {
        self.gate.as_ref()
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(self.publish(request, services))
    }
}

impl Publisher {
    async fn publish(&self, request: Request, services: &dyn Services) -> Result<Outcome, Fault> {
        let form = Form::of(&request)?;
        let key = read_key(&request.headers)?;
        let caller = Caller::of(&request).filter(|_| key.is_some());
        let publisher = For::client(request.peer, services).with_keys_of(caller)?;
        let admission = services.admission();
        let body = match request.body {
            message::Body::Bytes(bytes) => bytes,
            _ => Bytes::new(),
        };
        let reply = match form {
            Form::One => {
                if let Some(admission) = admission {
                    admission.publish(1, body.len() as u64, services.now())?;
                }
                let publishing = self.topic.publish_for(publisher, Publication { body, key });
                let receipt = in_time(&self.topic, services, publishing).await?;
                let mut reply = answer(&receipt);
                reply.headers.append("Event-Id", receipt.id.to_string());
                reply
            }
            form => {
                let size = body.len().saturating_mul(BATCH_COST);
                let (admission, now) = (admission.cloned(), services.now());
                let make = move || {
                    let bytes = body.len() as u64;
                    let events = split(form, body)?;
                    if let Some(admission) = admission {
                        admission.publish(events.len() as u64, bytes, now)?;
                    }
                    let numbered = events.into_iter().enumerate();
                    let publications = numbered.map(|(number, body)| Publication {
                        body,
                        key: key.as_deref().map(|key| item_key(key, number)),
                    });
                    Ok(publications.collect())
                };
                let publishing = async {
                    let prepared = self.topic.prepare(publisher, size, make).await?;
                    self.topic.submit(publisher.client, prepared).await
                };
                let receipts = in_time(&self.topic, services, publishing).await?;
                answer_all(&receipts)
            }
        };
        Ok(Outcome::Reply(reply))
    }
}

/// What a publisher is told of an event.
pub(crate) fn answer(receipt: &Receipt) -> Reply {
    let text = shown(receipt) + "\n";
    Reply::with_content(200, "application/json", text.into_bytes())
}

fn answer_all(receipts: &[Receipt]) -> Reply {
    let mut text = String::with_capacity(receipts.len() * 80);
    for receipt in receipts {
        text.push(if text.is_empty() { '[' } else { ',' });
        text.push_str(&shown(receipt));
    }
    text.push_str("]\n");
    Reply::with_content(200, "application/json", text.into_bytes())
}

/// A receipt as JSON. Nothing in it has to be escaped: ids are digits and a `-`.
fn shown(receipt: &Receipt) -> String {
    let Receipt {
        id,
        is_new,
        durability,
    } = receipt;
    let durability = durability.name();
    format!(r#"{{"id":"{id}","new":{is_new},"durability":"{durability}"}}"#)
}

/// What a request's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One event.
    One,
    /// One event on each line.
    Lines,
    /// A list of events.
    List,
}

impl Form {
    fn of(request: &Request) -> Result<Self, Fault> {
        let refuse = |detail: &'static str| Err(Fault::invalid(detail).with_status(415));
        let coding = request.headers.get("Content-Encoding").unwrap_or_default();
        if !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity") {
            return refuse("an event is not compressed");
        }
        let is_batch = is_batch(request.query.as_deref())?;
        let media_type = request.headers.get("Content-Type").unwrap_or_default();
        let essence = media_type
            .split(|it| *it == b';')
            .next()
            .unwrap_or_default();
        let essence = essence.trim_ascii().to_ascii_lowercase();
        match essence.as_slice() {
            b"application/x-ndjson" | b"application/ndjson" | b"application/jsonl" => {
                Ok(Self::Lines)
            }
            b"" | b"application/json" | b"text/json" if is_batch => Ok(Self::List),
            b"" | b"application/json" | b"text/json" => Ok(Self::One),
            other if other.ends_with(b"+json") => Ok(match is_batch {
                true => Self::List,
                false => Self::One,
            }),
            _ => refuse("an event is `application/json`, several are `application/x-ndjson`"),
        }
    }
}

/// Whether the query says that a list is several events.
fn is_batch(query: Option<&str>) -> Result<bool, Fault> {
    let mut values = query.unwrap_or_default().split('&').filter_map(|it| {
        let (name, value) = it.split_once('=').unwrap_or((it, ""));
        (name == "batch").then_some(value)
    });
    match (values.next(), values.next()) {
        (None, _) | (Some("false"), None) => Ok(false),
        (Some("true"), None) => Ok(true),
        _ => Err(Fault::invalid("`batch` is `true` or `false`, once")),
    }
}

/// The `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header): a quoted text, or any other
/// without its quotes.
fn read_key(headers: &Headers) -> Result<Option<Bytes>, Fault> {
    let view = headers.view();
    let is_key = |name: &[u8]| name.eq_ignore_ascii_case(b"Idempotency-Key");
    let mut values = view.iter().filter(|it| is_key(it.1)).map(|it| it.2);
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Fault::invalid("`Idempotency-Key` comes twice"));
    }
    let inner = value
        .strip_prefix(b"\"")
        .and_then(|it| it.strip_suffix(b"\""));
    let key = inner.unwrap_or(value);
    let is_sound = !key.is_empty() && key.len() <= KEY_MAX;
    match is_sound {
        true => Ok(Some(Bytes::copy_from_slice(key))),
        false => {
            let detail = format!("`Idempotency-Key` has 1 to {KEY_MAX} bytes");
            Err(Fault::invalid(detail))
        }
    }
}

/// The key of one event of a batch.
fn item_key(key: &[u8], number: usize) -> Bytes {
    Bytes::from([key, b"/", number.to_string().as_bytes()].concat())
}

/// The events of a batch.
fn split(form: Form, body: Bytes) -> Result<Vec<Bytes>, Fault> {
    let bodies: Vec<Bytes> = match form {
        Form::One => vec![body],
        Form::Lines => {
            let lines = body.split(|it| *it == b'\n').map(<[u8]>::trim_ascii);
            let lines = lines.filter(|line| !line.is_empty());
            lines.map(|line| body.slice_ref(line)).collect()
        }
        Form::List => {
            let list = Document::parse(&body)
                .map_err(|error| Fault::invalid(format!("the batch is not JSON: {error}")))?;
            let not = || Fault::invalid("a batch is a list of events");
            list.items().ok_or_else(not)?
        }
    };
    match bodies.is_empty() {
        true => Err(Fault::invalid("the batch has no event")),
        false => Ok(bodies),
    }
}
