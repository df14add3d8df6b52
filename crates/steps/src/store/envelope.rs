//! What is stored of a message: its head as JSON, then its body.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use message::{Body, Headers, Method, Request};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

/// The version of what is stored.
const VERSION: u8 = 1;

/// Names of header fields and parameters whose values are shown to nobody.
const MASK: &str = "***";

/// The head of a message.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    method: String,
    path: String,
    query: Option<String>,
    parameters: Vec<(Box<str>, String)>,
    /// Each byte of a value is one letter: values need not be UTF-8.
    headers: Vec<(String, String)>,
    peer: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proxy: Option<IpAddr>,
    is_secure: bool,
}

/// What is stored of a message.
pub(super) fn encode(request: &Request) -> Vec<u8> {
    let letters = |bytes: &[u8]| bytes.iter().map(|byte| char::from(*byte)).collect();
    let headers = request.headers.view().iter();
    let head = Head {
        method: request.method.as_str().to_owned(),
        path: request.path.clone(),
        query: request.query.clone(),
        parameters: request.parameters.clone(),
        headers: headers
            .map(|(_, name, value)| (letters(name), letters(value)))
            .collect(),
        peer: Some(request.peer),
        proxy: request.proxy,
        is_secure: request.is_secure,
    };
    // Nothing in it is what JSON cannot say.
    let head = serde_json::to_vec(&head).unwrap_or_default();
    let body = request.body.as_bytes();
    let mut bytes = Vec::with_capacity(5 + head.len() + body.len());
    bytes.push(VERSION);
    bytes.extend((head.len() as u32).to_le_bytes());
    bytes.extend(head);
    bytes.extend_from_slice(body);
    bytes
}

/// The message that is stored there.
///
/// # Errors
/// When it is none, or one of another version.
pub(super) fn decode(bytes: &Bytes) -> Result<Request, &'static str> {
    let (head, body) = split(bytes)?;
    let mut headers = Headers::new();
    for (name, value) in &head.headers {
        let value: Vec<u8> = value.chars().map(|c| c as u8).collect();
        headers.append(name, value);
    }
    Ok(Request {
        method: Method::from_token(&head.method),
        path: head.path,
        query: head.query,
        parameters: head.parameters,
        headers,
        body: Body::from(body),
        peer: head.peer.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        proxy: head.proxy,
        is_secure: head.is_secure,
        certificate: None,
        caller: None,
    })
}

fn split(bytes: &Bytes) -> Result<(Head, Bytes), &'static str> {
    let damaged = "it is not what was stored";
    match bytes.first() {
        Some(&VERSION) => {}
        Some(_) => return Err("it was stored by another version of intertie"),
        None => return Err(damaged),
    }
    let size = bytes.get(1..5).and_then(|it| it.first_chunk());
    let size = size.map_or(0, |it| u32::from_le_bytes(*it)) as usize;
    let head = bytes.get(5..).and_then(|rest| rest.get(..size));
    let head = head.and_then(|head| serde_json::from_slice(head).ok());
    Ok((head.ok_or(damaged)?, bytes.slice(5 + size..)))
}

/// A stored message for people: its head without secrets, its body as text where it is text.
///
/// # Errors
/// When it is none, or one of another version.
pub fn describe(bytes: &Bytes) -> Result<Json, &'static str> {
    use base64::Engine as _;
    let (head, body) = split(bytes)?;
    let headers = head.headers.into_iter().map(|(name, value)| {
        let is_secret = crate::dead_letter::is_secret(&name.to_ascii_lowercase());
        let value = if is_secret { MASK.to_owned() } else { value };
        (name, Json::from(value))
    });
    let headers: Vec<Json> = headers.map(|(name, value)| json!([name, value])).collect();
    let (kind, text) = match std::str::from_utf8(&body) {
        Ok(text) => ("text", text.to_owned()),
        Err(_) => {
            let text = base64::engine::general_purpose::STANDARD.encode(&body);
            ("base64", text)
        }
    };
    let parameters = head.parameters.iter().map(|(name, value)| {
        let is_secret = crate::dead_letter::is_secret(&name.to_ascii_lowercase());
        let value = if is_secret { MASK } else { value.as_str() };
        (name.to_string(), Json::from(value))
    });
    let parameters: serde_json::Map<String, Json> = parameters.collect();
    Ok(json!({
        "method": head.method,
        "path": head.path,
        "query": head.query.as_deref().map(crate::dead_letter::masked_query),
        "parameters": parameters,
        "headers": headers,
        "body": { kind: text },
    }))
}
