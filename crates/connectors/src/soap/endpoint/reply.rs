//! Replies: the end of a flow as a message or a fault.

use expr::json;
use expr::value::{self, Value};
use expr::xml::{NotXml, Writer};
use message::{Body, Fault, Kind, Origin, Reply};

use crate::soap::envelope::{FAULT, Message};
use crate::soap::wsdl::{FaultShape, Operation, Version};
use crate::soap::xsd::encode::Encoder;

/// The most bytes of a reply.
const SIZE_MAX: usize = 64 << 20;
/// The most levels of what a flow replies.
const DEPTH_MAX: usize = 256;

/// Who is to blame (SOAP 1.1, section 4.4.1; SOAP 1.2 Part 1, section 5.4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Client,
    Server,
    VersionMismatch,
    MustUnderstand,
}

impl Code {
    fn name(self, version: Version) -> &'static str {
        match (self, version) {
            (Self::Client, Version::V11) => "Client",
            (Self::Client, Version::V12) => "Sender",
            (Self::Server, Version::V11) => "Server",
            (Self::Server, Version::V12) => "Receiver",
            (Self::VersionMismatch, _) => "VersionMismatch",
            (Self::MustUnderstand, _) => "MustUnderstand",
        }
    }

    fn of_status(status: u16) -> Self {
        match status {
            400..=499 => Self::Client,
            _ => Self::Server,
        }
    }

    /// The status of HTTP (SOAP 1.1, section 6.2; SOAP 1.2 Part 2, table 20).
    fn status(self, version: Version) -> u16 {
        match (self, version) {
            (Self::Client, Version::V12) => 400,
            _ => 500,
        }
    }
}

/// A fault: its detail is an element and its content.
pub(super) fn fault(
    version: Version,
    code: Code,
    reason: &str,
    detail: Option<(&Operation, &FaultShape, &Value)>,
) -> Reply {
    let text = write_fault(version, code, reason, detail);
    // What cannot be written is left out: there is nobody else to tell.
    let text = text.or_else(|_| write_fault(version, code, "the request failed", None));
    reply(version, code.status(version), text.unwrap_or_default())
}

fn reply(version: Version, status: u16, text: String) -> Reply {
    let media_type = match version {
        Version::V11 => "text/xml; charset=utf-8",
        Version::V12 => "application/soap+xml; charset=utf-8",
    };
    Reply::with_content(status, media_type, text.into_bytes())
}

fn write_fault(
    version: Version,
    code: Code,
    reason: &str,
    detail: Option<(&Operation, &FaultShape, &Value)>,
) -> Result<String, NotXml> {
    let envelope = Some(version.envelope());
    let mut out = Writer::new(SIZE_MAX);
    out.start(envelope, "Envelope")?;
    out.start(envelope, "Body")?;
    out.start(envelope, "Fault")?;
    let code = format!("{}:{}", out.prefix(version.envelope()), code.name(version));
    // Children of a fault of SOAP 1.1 have no namespace.
    let (of_detail, name) = match version {
        Version::V11 => {
            leaf(None, "faultcode", &code, &mut out)?;
            leaf(None, "faultstring", reason, &mut out)?;
            (None, "detail")
        }
        Version::V12 => {
            out.start(envelope, "Code")?;
            leaf(envelope, "Value", &code, &mut out)?;
            out.end(envelope, "Code");
            out.start(envelope, "Reason")?;
            out.start(envelope, "Text")?;
            out.attribute(Some(expr::xml::XML_NAMESPACE), "lang", "en")?;
            out.text(reason)?;
            out.end(envelope, "Text");
            out.end(envelope, "Reason");
            (envelope, "Detail")
        }
    };
    if let Some((operation, shape, content)) = detail {
        out.start(of_detail, name)?;
        let mut encoder = Encoder {
            model: &operation.model,
            out: &mut out,
            depth: 0,
        };
        // The caller has tried it.
        let written = encoder.element(&shape.element, content);
        written.map_err(|_| NotXml::TooLarge)?;
        out.end(of_detail, name);
    }
    out.end(envelope, "Fault");
    out.end(envelope, "Body");
    out.end(envelope, "Envelope");
    Ok(out.finish())
}

fn leaf(namespace: Option<&str>, name: &str, text: &str, out: &mut Writer) -> Result<(), NotXml> {
    out.start(namespace, name)?;
    out.text(text)?;
    out.end(namespace, name);
    Ok(())
}

/// Puts the end of a flow into a reply; what cannot be said comes back too.
pub(super) fn close(
    version: Version,
    operation: &Operation,
    end: Result<Reply, &Fault>,
) -> (Reply, Option<Fault>) {
    match end {
        Ok(made) if made.status < 400 => match success(version, operation, &made) {
            Ok(reply) => (reply, None),
            Err(reason) => {
                let detail = "the flow's result is none that the service has";
                let fault = Fault::new(Kind::Expression, Origin::Engine, detail);
                let fault = fault.with_cause(format_args!("{}: {reason}", operation.name));
                (
                    self::fault(version, Code::Server, detail, None),
                    Some(fault),
                )
            }
        },
        Ok(made) => failed(version, operation, &made),
        Err(fault) => {
            let code = Code::of_status(fault.status);
            let reason = if fault.detail.is_empty() {
                fault.name()
            } else {
                &fault.detail
            };
            let detail = value::object([]);
            let text = value::text(&*fault.detail);
            let shape = shape_of(operation, fault.name());
            let detail = [&detail, &text].into_iter().find_map(|content| {
                shape
                    .filter(|it| fits(operation, it, content))
                    .map(|it| (operation, it, content))
            });
            let reason = message::secret::redact(reason);
            (self::fault(version, code, &reason, detail), None)
        }
    }
}

fn success(version: Version, operation: &Operation, made: &Reply) -> Result<Reply, String> {
    let Some(shape) = &operation.output else {
        return Ok(Reply::new(202));
    };
    let body = body_of(made)?;
    let message = Message {
        version,
        model: &operation.model,
        shape,
        size_max: SIZE_MAX,
    };
    let text = message
        .write(&body, None, None)
        .map_err(|error| error.to_string())?;
    Ok(reply(version, 200, text))
}

/// What a flow replies as JSON; nothing is null.
fn body_of(made: &Reply) -> Result<Value, String> {
    match &made.body {
        Body::Bytes(bytes) => {
            let media_type = made.headers.get("Content-Type").unwrap_or_default();
            let is_text = media_type.starts_with(b"text/plain");
            if is_text {
                let text = String::from_utf8_lossy(bytes).into_owned();
                return Ok(value::text(text));
            }
            json::parse(bytes, DEPTH_MAX).map_err(|error| format!("the reply is no JSON: {error}"))
        }
        Body::Empty | Body::Unread => Ok(Value::Null),
    }
}

/// A reply with a status of failure: a fault that its body names.
fn failed(version: Version, operation: &Operation, made: &Reply) -> (Reply, Option<Fault>) {
    let body = body_of(made).unwrap_or_default();
    let text = |name: &str| value::get(&body, name).and_then(value::as_text);
    let code = match text("code") {
        Some("Client" | "Sender") => Code::Client,
        Some("Server" | "Receiver") => Code::Server,
        _ => Code::of_status(made.status),
    };
    let name = text("fault").or(text("type")).unwrap_or(FAULT);
    let plain = value::as_text(&body);
    let reason = text("reason")
        .or(text("title"))
        .or(plain)
        .unwrap_or("the request failed");
    let Some(shape) = shape_of(operation, name) else {
        return (fault(version, code, reason, None), None);
    };
    let nothing = value::object([]);
    let detail = value::get(&body, "detail").unwrap_or(&nothing);
    let detail = value::get(detail, &shape.element.name.local).unwrap_or(detail);
    if fits(operation, shape, detail) {
        return (
            fault(version, code, reason, Some((operation, shape, detail))),
            None,
        );
    }
    let what = "the detail of the flow's fault is none that the service has";
    let failure = Fault::new(Kind::Expression, Origin::Engine, what);
    let failure = failure.with_cause(format_args!("{}: fault {name}", operation.name));
    (fault(version, code, reason, None), Some(failure))
}

/// The declared fault of a name: its own, or that of its element.
fn shape_of<'a>(operation: &'a Operation, name: &str) -> Option<&'a FaultShape> {
    let mut faults = operation.faults.iter();
    faults.find(|it| *it.name == *name || *it.element.name.local == *name)
}

fn fits(operation: &Operation, shape: &FaultShape, content: &Value) -> bool {
    let mut out = Writer::new(SIZE_MAX);
    let mut encoder = Encoder {
        model: &operation.model,
        out: &mut out,
        depth: 0,
    };
    encoder.element(&shape.element, content).is_ok()
}
