//! The opening handshake (RFC 6455, section 4), of both sides.

use aws_lc_rs::digest;
use base64ct::{Base64, Encoding};
use message::{Fault, Field, Headers, HeadersView, Method, Reply, Request};

use super::deflate::Deflate;
use super::extensions;

/// What is hashed behind the key (RFC 6455, section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const KEY: &str = "Sec-WebSocket-Key";
const VERSION: &str = "Sec-WebSocket-Version";
const ACCEPT: &str = "Sec-WebSocket-Accept";
const PROTOCOL: &str = "Sec-WebSocket-Protocol";
const EXTENSIONS: &str = "Sec-WebSocket-Extensions";

/// What a server wants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms<'a> {
    /// The subprotocols that it speaks. Of those that the client offers the first of them is taken.
    pub subprotocols: &'a [String],
    /// Whether messages may be compressed.
    pub compresses: bool,
}

/// A handshake that has succeeded.
#[derive(Debug)]
pub struct Handshake {
    /// The reply to the client: 101 with its fields, without `Connection`, which whoever sends it
    /// writes.
    pub reply: Reply,
    /// The subprotocol that is spoken.
    pub subprotocol: Option<String>,
    /// How messages are compressed.
    pub deflate: Option<Deflate>,
}

impl Handshake {
    /// Reads a client's request (RFC 6455, section 4.2.1) and answers it (4.2.2).
    ///
    /// # Errors
    /// The reply that refuses it: 400 when it is malformed, 426 when it asks for no WebSocket, or
    /// for another version than 13.
    pub fn accept(request: &Request, terms: Terms<'_>) -> Result<Self, Box<Reply>> {
        let headers = request.headers.view();
        let asks = request.method == Method::Get
            && has_token(headers, Field::Upgrade, "websocket")
            && has_token(headers, Field::Connection, "upgrade");
        if !asks {
            return Err(refused(426, "this address is for WebSocket connections"));
        }
        let versions: Vec<&[u8]> = lines(headers, VERSION).collect();
        if versions != [b"13".as_slice()] {
            return Err(refused(426, "the version of WebSocket is 13"));
        }
        let mut keys = lines(headers, KEY);
        let key = keys.next().filter(|key| is_key(key));
        let (Some(key), None) = (key, keys.next()) else {
            return Err(refused(
                400,
                "the Sec-WebSocket-Key is missing or malformed",
            ));
        };
        let Some(offers) = extensions::read(lines(headers, EXTENSIONS)) else {
            return Err(refused(400, "the Sec-WebSocket-Extensions are malformed"));
        };
        let deflate = terms
            .compresses
            .then(|| extensions::accept(&offers))
            .flatten();
        let subprotocol = choose(headers, terms.subprotocols);
        let mut reply = Reply::new(101);
        reply.headers.append("Upgrade", "websocket");
        reply.headers.append(ACCEPT, accept_value(key));
        if let Some(name) = &subprotocol {
            reply.headers.append(PROTOCOL, name);
        }
        if let Some((_, answer)) = &deflate {
            reply.headers.append(EXTENSIONS, answer);
        }
        Ok(Self {
            reply,
            subprotocol,
            deflate: deflate.map(|(deflate, _)| deflate),
        })
    }
}

/// The problem in words; with 426 also what to ask for (RFC 9110, section 15.5.22; RFC 6455,
/// section 4.4).
fn refused(status: u16, detail: &'static str) -> Box<Reply> {
    let mut reply = Fault::invalid(detail).with_status(status).to_reply();
    if status == 426 {
        reply.headers.append("Upgrade", "websocket");
        reply.headers.append(VERSION, "13");
    }
    Box::new(reply)
}

fn lines<'a>(headers: HeadersView<'a>, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    headers
        .iter()
        .filter(move |(_, found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, _, value)| value.trim_ascii())
}

fn has_token(headers: HeadersView<'_>, field: Field, token: &str) -> bool {
    let mut values = headers.iter().filter(|(found, _, _)| *found == field);
    values.any(|(_, _, value)| {
        let mut tokens = value.split(|&byte| byte == b',');
        tokens.any(|it| it.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    })
}

/// 16 bytes in base64.
fn is_key(key: &[u8]) -> bool {
    let mut bytes = [0; 18];
    Base64::decode(key, &mut bytes).is_ok_and(|it| it.len() == 16)
}

fn accept_value(key: &[u8]) -> String {
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key);
    hash.update(GUID);
    Base64::encode_string(hash.finish().as_ref())
}

fn choose(headers: HeadersView<'_>, ours: &[String]) -> Option<String> {
    let offered = lines(headers, PROTOCOL).flat_map(|line| line.split(|&byte| byte == b','));
    let mut offered = offered.map(<[u8]>::trim_ascii);
    let both = offered.find_map(|name| ours.iter().find(|it| it.as_bytes() == name));
    both.cloned()
}

/// A client's request for a WebSocket connection.
#[derive(Debug)]
pub struct Offer {
    key: String,
    subprotocols: Vec<String>,
    compresses: bool,
}

/// Why a server's answer is none to an [`Offer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferError(pub &'static str);

impl std::fmt::Display for OfferError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.0)
    }
}

impl std::error::Error for OfferError {}

impl Offer {
    /// A request with these subprotocols, the preferred one first, and a key of its own.
    pub fn new(subprotocols: &[String], compresses: bool) -> Self {
        let mut nonce = [0; 16];
        for part in nonce.as_chunks_mut::<4>().0 {
            *part = super::mask::masking_key();
        }
        Self {
            key: Base64::encode_string(&nonce),
            subprotocols: subprotocols.to_vec(),
            compresses,
        }
    }

    /// Appends the fields of the request (RFC 6455, section 4.1), `Connection` among them.
    pub fn put(&self, headers: &mut Headers) {
        headers.append("Connection", "Upgrade");
        headers.append("Upgrade", "websocket");
        headers.append(VERSION, "13");
        headers.append(KEY, &self.key);
        if !self.subprotocols.is_empty() {
            headers.append(PROTOCOL, self.subprotocols.join(", "));
        }
        if self.compresses {
            headers.append(EXTENSIONS, extensions::OFFER);
        }
    }

    /// Checks the server's answer (RFC 6455, section 4.1): the subprotocol and how messages are
    /// compressed.
    ///
    /// # Errors
    /// When the answer does not belong to the request.
    pub fn check(
        &self,
        status: u16,
        headers: HeadersView<'_>,
    ) -> Result<(Option<String>, Option<Deflate>), OfferError> {
        let switches = status == 101
            && has_token(headers, Field::Upgrade, "websocket")
            && has_token(headers, Field::Connection, "upgrade");
        if !switches {
            return Err(OfferError("the server does not switch to WebSocket"));
        }
        let accepts: Vec<&[u8]> = lines(headers, ACCEPT).collect();
        if accepts != [accept_value(self.key.as_bytes()).as_bytes()] {
            return Err(OfferError("the server has not read the key"));
        }
        let mut chosen = lines(headers, PROTOCOL);
        let subprotocol = match chosen.next() {
            None => None,
            Some(name) => {
                let known = self.subprotocols.iter().find(|it| it.as_bytes() == name);
                let none = OfferError("the server wants a subprotocol that was not offered");
                Some(known.cloned().ok_or(none)?)
            }
        };
        let answer = extensions::read(lines(headers, EXTENSIONS))
            .ok_or(OfferError("the server answers with malformed extensions"))?;
        if !self.compresses && !answer.is_empty() {
            return Err(OfferError(
                "the server wants extensions that were not offered",
            ));
        }
        let deflate = extensions::accepted(&answer).map_err(OfferError)?;
        Ok((subprotocol, deflate))
    }
}
