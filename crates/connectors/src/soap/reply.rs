//! What a service answers, as a value or a failure.

use bytes::Bytes;
use std::rc::Rc;

use component::content::Content;
use component::exchange::{Exchange, ReplyHead};
use expr::value::{self, Value};
use message::{Body, Fault, Field, Headers, Kind, Origin, Reply, Retry};

use crate::soap::envelope::{Envelope, FAULT, SoapFault, body_value};
use crate::soap::wsdl::{MessageShape, Operation, Version};

/// Who answers what.
pub struct Asked<'a> {
    /// The connection.
    pub connection: &'a str,
    /// The operation.
    pub operation: &'a Operation,
    /// The version that it was asked in.
    pub version: Version,
}

/// What an answer means.
pub enum Answer {
    /// The result.
    Value(Value),
    /// A fault.
    Fault(Box<SoapFault>),
}

impl Asked<'_> {
    /// Reads an answer.
    ///
    /// # Errors
    /// When it is no SOAP, or not what the WSDL file says.
    pub fn read(&self, reply: &Reply) -> Result<Answer, Fault> {
        let is_success = (200..300).contains(&reply.status);
        let bytes = match &reply.body {
            Body::Bytes(bytes) => bytes,
            Body::Empty | Body::Unread => &Bytes::new(),
        };
        if bytes.is_empty() && is_success && self.operation.output.is_none() {
            return Ok(Answer::Value(Value::Null));
        }
        let content_type = reply.headers.view().first(Field::ContentType);
        let content_type = content_type.unwrap_or_default();
        let media_type = String::from_utf8_lossy(content_type).to_ascii_lowercase();
        let media_type = media_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned();
        let is_xml = media_type.is_empty() || media_type.ends_with("xml");
        let envelope = match is_xml && !bytes.is_empty() {
            true => Envelope::read(bytes, content_type).map_err(|error| error.reason().to_owned()),
            false => Err(no_xml(&media_type, bytes)),
        };
        let envelope = match envelope {
            Ok(envelope) => envelope,
            // The status says more than what comes with it.
            Err(_) if !is_success => return Err(self.status(reply.status, &media_type)),
            Err(reason) => return Err(self.wrong(reason)),
        };
        if let Some(fault) = envelope.fault(&self.operation.model, &self.operation.faults) {
            return Ok(Answer::Fault(Box::new(fault)));
        }
        if !is_success {
            return Err(self.status(reply.status, &media_type));
        }
        if envelope.version != self.version {
            let number = envelope.version.number();
            return Err(self.wrong(format!("it answered in SOAP {number}")));
        }
        let nothing = MessageShape::default();
        let shape = self.operation.output.as_ref().unwrap_or(&nothing);
        let (model, is_rpc) = (&self.operation.model, self.operation.is_rpc);
        match body_value(shape, model, is_rpc, &envelope.body) {
            Ok(value) => Ok(Answer::Value(value)),
            Err(error) => Err(self.wrong(error)),
        }
    }

    fn status(&self, status: u16, media_type: &str) -> Fault {
        let kind = if media_type.is_empty() {
            "nothing"
        } else {
            media_type
        };
        let kind: String = kind.chars().take(60).collect();
        let cause = format_args!(
            "{}: status {status} with {}",
            self.who(),
            kind.escape_debug()
        );
        Fault::of_status(status).with_cause(cause)
    }

    fn wrong(&self, reason: impl std::fmt::Display) -> Fault {
        let detail = "the service's answer cannot be read";
        let cause = format_args!("{}: {reason}", self.who());
        Fault::new(Kind::Connection, Origin::Upstream, detail).with_cause(cause)
    }

    fn who(&self) -> String {
        format!(
            "connection {}, operation {}",
            self.connection, self.operation.name
        )
    }

    /// The failure that a fault is.
    pub fn failure(&self, fault: &SoapFault) -> Fault {
        let reason: String = fault.reason.chars().take(500).collect();
        let code = fault.code.escape_debug();
        let cause = format_args!("{}: {code}: {}", self.who(), reason.escape_debug());
        raised(fault.type_name(), fault.blames_client()).with_cause(cause)
    }
}

fn no_xml(media_type: &str, bytes: &[u8]) -> String {
    let shown: String = media_type.chars().take(60).collect();
    if media_type == "multipart/related" {
        return "it answered with attachments (MTOM or SwA), which are not supported".to_owned();
    }
    match bytes.is_empty() {
        true => "it answered with nothing".to_owned(),
        false => format!("it answered with `{}` and no SOAP", shown.escape_debug()),
    }
}

/// The failure of this name.
fn raised(name: &str, blames_client: bool) -> Fault {
    let detail = "the service answered with a fault";
    let mut fault = Fault::raised(name, None, detail.to_owned());
    fault.origin = Origin::Upstream;
    match blames_client {
        true => fault.with_status(400),
        false => fault.with_status(502).with_retry(Retry::IfRepeatable),
    }
}

/// The failure that the answer of whoever stands in for a service is: a fault when its body has a
/// member `fault`, as `$reply.body` of a real one has.
pub fn stood_in(reply: &Reply) -> Option<Fault> {
    if (200..300).contains(&reply.status) {
        return None;
    }
    let mut content = reply.body.clone();
    let bytes = match std::mem::take(&mut content) {
        Body::Bytes(bytes) => bytes,
        _ => return Some(Fault::of_status(reply.status)),
    };
    let body = expr::json::parse(&bytes, 128).unwrap_or_default();
    let Some(name) = value::get(&body, "fault").and_then(value::as_text) else {
        return Some(Fault::of_status(reply.status));
    };
    let code = value::get(&body, "code")
        .and_then(value::as_text)
        .unwrap_or_default();
    let blames_client = matches!(code, "Client" | "Sender");
    let name = if name.is_empty() { FAULT } else { name };
    Some(raised(name, blames_client).with_cause(format_args!("a mock's fault {name}")))
}

/// Keeps an answer for `$reply`, its body as a value; the result becomes the message's body too.
pub fn keep(
    exchange: &mut Exchange,
    (status, headers): (u16, Headers),
    body: Value,
    is_result: bool,
) {
    let content = Content::of_value(body);
    if is_result {
        exchange.content = content.clone();
    }
    exchange.reply = Some(Rc::new(ReplyHead {
        status,
        headers,
        content,
    }));
}
