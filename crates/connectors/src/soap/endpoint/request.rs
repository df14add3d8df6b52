//! Requests: the envelope is opened, the operation found, and its body checked.

use expr::json;
use expr::value::{self, Value};
use expr::xml::Element;
use message::{Body, Field, Reply, Request};

use super::reply::{Code, fault};
use super::{Asked, Endpoint, Served};
use crate::soap::envelope::{Envelope, NoEnvelope, body_value};
use crate::soap::wsdl::{Operation, Version};

/// The header that tells a flow which operation it is.
const OPERATION: &str = "Soap-Operation";
/// The header that has the declared blocks of the SOAP header, as JSON.
const BLOCKS: &str = "Soap-Header";
/// The most bytes of the value of a member.
const SIZE_MAX: usize = 1 << 30;

/// Why a request is refused, ready to be sent.
type Refused = Box<Reply>;

/// The message to the flow, and what its reply must know.
pub(super) fn open(endpoint: &Endpoint, mut request: Request) -> Result<(Request, Asked), Refused> {
    let version = version_of(endpoint, &request)?;
    let refuse = |version, code, reason: &str| Box::new(fault(version, code, reason, None));
    let bytes = match &request.body {
        Body::Bytes(bytes) => bytes.clone(),
        Body::Empty | Body::Unread => {
            return Err(refuse(version, Code::Client, "there is no body"));
        }
    };
    let content_type = request.headers.view().first(Field::ContentType);
    let envelope = Envelope::read(&bytes, content_type.unwrap_or_default()).map_err(|error| {
        let code = match error {
            NoEnvelope::Version => Code::VersionMismatch,
            NoEnvelope::Other(_) => Code::Client,
        };
        refuse(version, code, error.reason())
    })?;
    let found = endpoint
        .served
        .iter()
        .position(|it| it.version == envelope.version);
    let Some((number, served)) = found.and_then(|at| Some((at, endpoint.served.get(at)?))) else {
        let reason = format!("this service speaks SOAP {}", version.number());
        return Err(refuse(version, Code::VersionMismatch, &reason));
    };
    let version = served.version;
    let client = |reason: &str| refuse(version, Code::Client, reason);
    let action = action(&request, version);
    let at = find(served, &envelope, action.as_deref()).map_err(|it| client(&it))?;
    let Some(operation) = served.operations.get(at) else {
        return Err(client("there is no such operation"));
    };
    let blocks = read_blocks(operation, &envelope)
        .map_err(|(code, reason)| refuse(version, code, &reason))?;
    let (shape, model) = (&operation.input, &operation.model);
    let content = body_value(shape, model, operation.is_rpc, &envelope.body)
        .map_err(|error| client(&format!("the body is none that the service takes: {error}")))?;
    put(&mut request, &content, "application/json")
        .ok_or_else(|| client("the body is too large"))?;
    request.headers.set(OPERATION, operation.name.as_bytes());
    request.headers.remove(BLOCKS);
    if let Some(blocks) = blocks {
        let text = ascii_json(&blocks).ok_or_else(|| client("the header is too large"))?;
        request.headers.set(BLOCKS, text);
    }
    let asked = Asked {
        served: number,
        operation: at,
    };
    Ok((request, asked))
}

/// The version that a request seems to be in, for faults before its envelope has been read.
fn version_of(endpoint: &Endpoint, request: &Request) -> Result<Version, Refused> {
    let first = endpoint
        .served
        .first()
        .map_or(Version::V11, |it| it.version);
    let media_type = request
        .headers
        .view()
        .first(Field::ContentType)
        .unwrap_or_default();
    let media_type = String::from_utf8_lossy(media_type).to_ascii_lowercase();
    let wanted = match media_type.split(';').next().unwrap_or_default().trim() {
        "text/xml" | "application/xml" => Version::V11,
        "application/soap+xml" => Version::V12,
        "multipart/related" => {
            let reason = "attachments (MTOM or SwA) are not supported";
            return Err(Box::new(fault(first, Code::Client, reason, None)));
        }
        _ => {
            let mut reply = fault(
                first,
                Code::Client,
                "the Content-Type is none of SOAP",
                None,
            );
            reply.status = 415;
            return Err(Box::new(reply));
        }
    };
    let has = |version| endpoint.served.iter().any(|it| it.version == version);
    Ok(if has(wanted) { wanted } else { first })
}

/// What the request says that it is about: `SOAPAction`, or `action` of the media type (RFC 3902).
fn action(request: &Request, version: Version) -> Option<String> {
    let text = match version {
        Version::V11 => String::from_utf8_lossy(request.headers.get("SOAPAction")?).into_owned(),
        Version::V12 => {
            let media_type = request.headers.view().first(Field::ContentType)?;
            let media_type = String::from_utf8_lossy(media_type).into_owned();
            let mut parts = media_type.split(';').map(str::trim);
            let found = parts.find_map(|it| {
                let (name, value) = it.split_once('=')?;
                name.trim()
                    .eq_ignore_ascii_case("action")
                    .then(|| value.trim().to_owned())
            });
            found?
        }
    };
    let text = text.trim().trim_matches('"').to_owned();
    Some(text).filter(|it| !it.is_empty())
}

/// The operation that a body is for.
fn find(served: &Served, envelope: &Envelope, action: Option<&str>) -> Result<usize, String> {
    let first = envelope.body.first();
    let is_it = |it: &Operation| match (&it.input.body, first) {
        (Some(body), Some(first)) => body.name.names(first),
        (None, None) => true,
        _ => false,
    };
    let Some(at) = served.operations.iter().position(is_it) else {
        let name = first.map_or("nothing", |it| it.name.as_str());
        let name: String = name.chars().take(60).collect();
        return Err(format!(
            "there is no operation for a body with `{}`",
            name.escape_debug()
        ));
    };
    let declared = served.operations.get(at).map_or("", |it| &*it.action);
    match action {
        Some(action) if !declared.is_empty() && action != declared => {
            Err("the action is that of no operation with this body".to_owned())
        }
        _ => Ok(at),
    }
}

/// The declared blocks of the header by their names. Others must not want to be understood
/// (SOAP 1.1, section 4.2.3; SOAP 1.2 Part 1, section 5.4.8).
fn read_blocks(
    operation: &Operation,
    envelope: &Envelope,
) -> Result<Option<Value>, (Code, String)> {
    let namespace = envelope.version.envelope();
    let mut found = Vec::new();
    for block in &envelope.blocks {
        let declared = operation.input.headers.iter();
        let mut declared = declared.filter(|it| it.element.name.names(block));
        if let Some(shape) = declared.next() {
            let plain = without_envelope(block, namespace);
            let content = operation.model.decode(&shape.element, &plain);
            let content = content.map_err(|error| {
                let name = &shape.element.name.local;
                (
                    Code::Client,
                    format!("the header is wrong: {}", error.within(name, None)),
                )
            })?;
            found.push((shape.element.name.local.to_string(), content));
            continue;
        }
        let must = block
            .attribute_in(namespace, "mustUnderstand")
            .map(str::trim);
        if matches!(must, Some("1" | "true")) && is_for_us(block, namespace) {
            let name: String = block.name.chars().take(60).collect();
            let reason = format!(
                "the header block `{}` is not understood",
                name.escape_debug()
            );
            return Err((Code::MustUnderstand, reason));
        }
    }
    Ok(Some(value::object(found)).filter(|_| !operation.input.headers.is_empty()))
}

/// Whether a block is meant for the one who answers.
fn is_for_us(block: &Element, namespace: &str) -> bool {
    let role = ["actor", "role"]
        .into_iter()
        .find_map(|it| block.attribute_in(namespace, it));
    let role = role.unwrap_or_default();
    role.is_empty() || role.ends_with("/next") || role.ends_with("/role/ultimateReceiver")
}

/// A block without what the envelope says of it.
fn without_envelope(block: &Element, namespace: &str) -> Element {
    let mut plain = block.clone();
    plain
        .attributes
        .retain(|it| it.namespace.as_deref() != Some(namespace));
    plain
}

/// Makes a value the content of the request.
fn put(request: &mut Request, content: &Value, media_type: &str) -> Option<()> {
    let mut text = Vec::new();
    json::write(content, SIZE_MAX, &mut text).ok()?;
    for name in ["Content-Type", "Content-Encoding", "Content-Length"] {
        request.headers.remove(name);
    }
    request.headers.append("Content-Type", media_type);
    request.body = text.into();
    Some(())
}

/// JSON that can stand in a header.
fn ascii_json(content: &Value) -> Option<String> {
    let mut text = Vec::new();
    json::write(content, SIZE_MAX, &mut text).ok()?;
    let text = String::from_utf8(text).ok()?;
    let mut out = String::with_capacity(text.len());
    for unit in text.chars() {
        if unit.is_ascii() && !unit.is_ascii_control() {
            out.push(unit);
            continue;
        }
        let mut units = [0; 2];
        unit.encode_utf16(&mut units)
            .iter()
            .for_each(|it| out.push_str(&format!("\\u{it:04x}")));
    }
    Some(out)
}
