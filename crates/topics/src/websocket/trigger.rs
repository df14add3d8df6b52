//! `from: websocket`: a client connects, and each of its messages starts the flow.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use component::audit::Audit;
use component::content::Format;
use component::endpoint::{EndpointDefinition, Envelope, Note, Opened};
use component::source::SourceContext;
use config::{ByteSize, Node, Report, Spanned};
use message::{Fault, Headers, Kind, Method, Origin, Reply, Request};
use net::websocket::{Handshake, Terms};
use schemars::JsonSchema;
use serde::Deserialize;

use super::codes::{BAD_ORIGIN, BAD_SUBPROTOCOL, WEBSOCKET_RANGE};
use super::conversation::Conversation;
use super::session::Options;
use crate::origin::{Caller, audit_page_of_flow};

/// The definition of the trigger.
pub const DEFINITION: EndpointDefinition = EndpointDefinition {
    name: "websocket",
    summary: "Starts a flow with each message of a WebSocket client.",
    documentation: include_str!("trigger.md"),
    example: include_str!("trigger.yaml"),
    schema: config::schema_for::<WebSocketConfig>,
    has_body: false,
    build,
};

const MESSAGE: RangeInclusive<u64> = 1..=64 << 20;
const MESSAGE_MAX: u64 = 1 << 20;
const PING: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
const PING_PERIOD: Duration = Duration::from_secs(30);
const CONCURRENT: RangeInclusive<u64> = 1..=1000;

/// Fields of the handshake that say nothing about its messages.
const HANDSHAKE_FIELDS: [&str; 9] = [
    "Connection",
    "Upgrade",
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Version",
    "Sec-WebSocket-Extensions",
    "Sec-WebSocket-Protocol",
    "Content-Type",
    "Content-Length",
    "Transfer-Encoding",
];

/// Takes messages of WebSocket clients and answers them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WebSocketConfig {
    /// How messages are decoded: `json`, `xml`, `form`, `csv`, `text` or `bytes`. The default is a
    /// string for a text message and bytes for a binary one.
    decode: Option<Format>,
    /// The largest message, from 1B to 64MiB; a larger one closes the connection with 1009.
    #[schemars(extend("default" = "1MiB"))]
    message_max: Option<Spanned<ByteSize>>,
    /// The supported subprotocols. The first one that the client offers and that is listed here is
    /// chosen; it is in `$headers["sec-websocket-protocol"]`.
    #[serde(default)]
    subprotocols: Vec<Spanned<String>>,
    /// Whether messages are compressed for clients that offer it (`permessage-deflate`).
    #[serde(default)]
    compression: bool,
    /// A client that is silent for this time is pinged, and has the same time to answer. From 1s to
    /// 1h.
    #[schemars(extend("default" = "30s"))]
    ping: Option<Spanned<config::Duration>>,
    /// The number of messages of one connection that may be in progress at a time, from 1 to 1000.
    /// With 1 they are answered in order; with more, each as soon as it is done.
    #[schemars(extend("default" = 1))]
    concurrent: Option<Spanned<u64>>,
    /// Further origins whose pages may connect, such as `https://app.example`, or `*` for all;
    /// browsers on other pages get 403. Pages of the same scheme, host and port may always connect,
    /// and so may clients that are not browsers.
    #[serde(default)]
    origins: Vec<Spanned<String>>,
}

/// The trigger of one flow.
struct Endpoint {
    decode: Option<Format>,
    message_max: usize,
    subprotocols: Vec<String>,
    compression: bool,
    ping: Duration,
    concurrent: usize,
    origins: Vec<String>,
    flow: Arc<str>,
    /// Told which pages are refused.
    audit: Arc<Audit>,
}

fn build(node: &Node, context: &mut SourceContext<'_>) -> Option<Arc<dyn Envelope>> {
    let config: WebSocketConfig = config::decode(node, context.report)?;
    let report = &mut *context.report;
    let before = report.errors();
    let endpoint = Endpoint {
        decode: config.decode,
        message_max: message_max(config.message_max.as_ref(), report),
        subprotocols: subprotocols(config.subprotocols, report),
        compression: config.compression,
        ping: ping(config.ping.as_ref(), report),
        concurrent: concurrent(config.concurrent.as_ref(), report),
        origins: origins(config.origins, report),
        flow: Arc::clone(context.flow),
        audit: Audit::of(context.surroundings.states),
    };
    (report.errors() == before).then(|| Arc::new(endpoint) as Arc<dyn Envelope>)
}

fn message_max(value: Option<&Spanned<ByteSize>>, report: &mut Report) -> usize {
    let size = value.map_or(MESSAGE_MAX, |it| it.value.0);
    if let Some(value) = value.filter(|_| !MESSAGE.contains(&size)) {
        report
            .error(
                WEBSOCKET_RANGE,
                value.span,
                "`message_max` is outside its range",
            )
            .hint("from 1B to 64MiB");
    }
    size as usize
}

fn ping(value: Option<&Spanned<config::Duration>>, report: &mut Report) -> Duration {
    let time = value.map_or(PING_PERIOD, |it| it.value.0);
    if let Some(value) = value.filter(|_| !PING.contains(&time)) {
        report
            .error(WEBSOCKET_RANGE, value.span, "`ping` is outside its range")
            .hint("from 1s to 1h");
    }
    time
}

fn concurrent(value: Option<&Spanned<u64>>, report: &mut Report) -> usize {
    let count = value.map_or(1, |it| it.value);
    if let Some(value) = value.filter(|_| !CONCURRENT.contains(&count)) {
        report
            .error(
                WEBSOCKET_RANGE,
                value.span,
                "`concurrent` is outside its range",
            )
            .hint("from 1 to 1000");
    }
    count as usize
}

/// Names of subprotocols are tokens, each once (RFC 6455, section 4.1).
fn subprotocols(names: Vec<Spanned<String>>, report: &mut Report) -> Vec<String> {
    let mut known: Vec<String> = Vec::new();
    for name in names {
        let shown = name.value.escape_debug();
        let message = match (Headers::is_name(&name.value), known.contains(&name.value)) {
            (true, false) => {
                known.push(name.value);
                continue;
            }
            (true, true) => format!("the subprotocol `{shown}` stands twice"),
            (false, _) => format!("`{shown}` is not a name for a subprotocol"),
        };
        report
            .error(BAD_SUBPROTOCOL, name.span, message)
            .hint("each has a name of its own without spaces and commas, such as `chat.v1`");
    }
    known
}

/// Origins as browsers write them (RFC 6454, section 6.2).
fn origins(list: Vec<Spanned<String>>, report: &mut Report) -> Vec<String> {
    let mut origins = Vec::new();
    for origin in list {
        if origin.value == "*" || is_origin(&origin.value) {
            origins.push(origin.value);
            continue;
        }
        let message = format!("`{}` is not an origin", origin.value.escape_debug());
        report.error(BAD_ORIGIN, origin.span, message).hint(
            "write scheme, host and, unless it is the usual one, port: `https://app.example`; or `*` for all",
        );
    }
    origins
}

fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else {
        return false;
    };
    let usual = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return false,
    };
    let is_lower = !text.contains(|it: char| it.is_ascii_uppercase());
    // Browsers leave the usual port out: one that stands there would never be met.
    let parsed = component::text::parse_authority(authority);
    is_lower && parsed.is_ok_and(|(host, port)| host.is_some() && port != Some(usual))
}

impl Endpoint {
    fn connect(&self, request: Request) -> Result<(Reply, Conversation), Box<Reply>> {
        if !Caller::of(&request).may_connect(&self.origins) {
            audit_page_of_flow(&self.audit, &self.flow, &request);
            let detail = "pages of this origin may not connect";
            let fault = Fault::new(Kind::Forbidden, Origin::Client, detail);
            return Err(Box::new(fault.to_reply()));
        }
        let terms = Terms {
            subprotocols: &self.subprotocols,
            compresses: self.compression,
        };
        let handshake = Handshake::accept(&request, terms)?;
        let mut head = request;
        head.headers = kept(&head.headers);
        if let Some(name) = &handshake.subprotocol {
            head.headers.append("Sec-WebSocket-Protocol", name);
        }
        let conversation = Conversation {
            head,
            options: Options {
                message_max: self.message_max,
                deflate: handshake.deflate,
                ping: self.ping,
            },
            concurrent: self.concurrent,
        };
        Ok((handshake.reply, conversation))
    }
}

/// The fields that every message comes with. A copy, for it is kept as long as the connection.
fn kept(headers: &Headers) -> Headers {
    let mut kept = Headers::new();
    for (_, name, value) in headers.view().iter() {
        let name = String::from_utf8_lossy(name);
        if !HANDSHAKE_FIELDS
            .iter()
            .any(|it| it.eq_ignore_ascii_case(&name))
        {
            kept.append(&name, value);
        }
    }
    kept
}

impl Envelope for Endpoint {
    fn methods(&self) -> Vec<Method> {
        vec![Method::Get]
    }

    fn decode(&self) -> Option<Format> {
        self.decode
    }

    fn streams(&self) -> bool {
        true
    }

    fn open(&self, request: Request) -> Opened {
        match self.connect(request) {
            Ok((head, conversation)) => Opened::Stream(head, Box::new(conversation)),
            Err(refusal) => Opened::Reply(*refusal),
        }
    }

    /// Never asked: no request is a message itself.
    fn close(&self, _note: &Note, end: Result<Reply, &Fault>) -> (Reply, Option<Fault>) {
        (end.unwrap_or_else(Fault::to_reply), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_written_as_browsers_write_them() {
        for origin in [
            "https://app.example",
            "http://localhost:8080",
            "https://app.example:8443",
            "http://127.0.0.1",
        ] {
            assert!(is_origin(origin), "{origin}");
        }
        for none in [
            "",
            "*",
            "null",
            "app.example",
            "https://",
            "https://app.example/",
            "https://app.example/a",
            "https://App.example",
            "https://app.example:443",
            "http://app.example:80",
            "wss://app.example",
        ] {
            assert!(!is_origin(none), "{none}");
        }
    }
}
