//! `stub ws-reverse`: a WebSocket server that answers each text message with its letters in reverse
//! order, as the back end of WSO2's tests does, or as it came.

use std::io;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::request::{self, Request};
use super::serve::Service;
use crate::websocket::{self, BINARY, CLOSE, CONTINUATION, Head, PING, PONG, TEXT};
use crate::wire::Buffer;

/// The longest message that is answered.
const MESSAGE_MAX: usize = 16 * 1024 * 1024;
/// Status codes of RFC 6455 section 7.4.1.
const PROTOCOL_ERROR: u16 = 1002;
const NOT_UTF8: u16 = 1007;
const TOO_BIG: u16 = 1009;

/// What is done with messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reverser {
    /// Whether messages come back as they are.
    pub is_echo: bool,
}

impl Service for Reverser {
    async fn connection(self: Arc<Self>, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = Buffer::default();
        while let Some(request) = request::read(&mut stream, &mut input).await? {
            match handshake(&request) {
                Ok(head) => {
                    stream.write_all(head.as_bytes()).await?;
                    return self.converse(stream, input).await;
                }
                Err(refusal) => stream.write_all(refusal.as_bytes()).await?,
            }
            if request.is_last() {
                break;
            }
        }
        stream.shutdown().await
    }
}

/// The answer to a handshake (RFC 6455 section 4.2), or to what is none.
fn handshake(request: &Request) -> Result<String, &'static str> {
    let is_asked = request.lists("upgrade", "websocket") && request.lists("connection", "upgrade");
    if request.method != "GET" || !is_asked || request.is_old {
        return Err("HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\n\
            Connection: Upgrade\r\nContent-Length: 0\r\n\r\n");
    }
    if request.field("sec-websocket-version") != Some(b"13") {
        return Err(
            "HTTP/1.1 426 Upgrade Required\r\nSec-WebSocket-Version: 13\r\n\
            Content-Length: 0\r\n\r\n",
        );
    }
    let Some(key) = request.field("sec-websocket-key") else {
        return Err("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    };
    Ok(format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\n\r\n",
        websocket::accept(key)
    ))
}

/// A message whose frames are still coming.
#[derive(Default)]
struct Partial {
    opcode: u8,
    bytes: Vec<u8>,
}

impl Reverser {
    /// Answers messages until the connection is closed; all answers that one read makes possible
    /// go out in one write.
    async fn converse(&self, mut stream: TcpStream, mut input: Buffer) -> io::Result<()> {
        let mut partial = Partial::default();
        let mut out = Vec::new();
        loop {
            let ended = loop {
                match self.frame(&mut input, &mut partial, &mut out) {
                    Ok(true) => {}
                    Ok(false) => break None,
                    Err(status) => break Some(status),
                }
            };
            if let Some(status) = ended {
                close(status, &mut out);
            }
            stream.write_all(&out).await?;
            out.clear();
            if ended.is_some() {
                return stream.shutdown().await;
            }
            if !input.read(&mut stream).await? {
                return Ok(());
            }
        }
    }

    /// Takes the next frame; false when it is not whole.
    ///
    /// # Errors
    /// With the status of the close that must follow; 0 is the client's own, which has been
    /// answered.
    fn frame(
        &self,
        input: &mut Buffer,
        partial: &mut Partial,
        out: &mut Vec<u8>,
    ) -> Result<bool, u16> {
        let Some(head) = websocket::head(input.bytes()) else {
            return Ok(false);
        };
        let key = check(&head, partial)?;
        let Some(payload) = input.bytes().get(head.size..head.end()) else {
            return Ok(false);
        };
        let mut payload = payload.to_vec();
        websocket::mask(&mut payload, key);
        input.take(head.end());
        match head.opcode {
            PING => answer(PONG, &payload, out),
            PONG => {}
            CLOSE => {
                answer(CLOSE, payload.get(..2).unwrap_or_default(), out);
                return Err(0);
            }
            _ => {
                if head.opcode != CONTINUATION {
                    partial.opcode = head.opcode;
                }
                partial.bytes.extend_from_slice(&payload);
                if head.is_final {
                    let whole = std::mem::take(partial);
                    self.message(&whole, out)?;
                }
            }
        }
        Ok(true)
    }

    fn message(&self, whole: &Partial, out: &mut Vec<u8>) -> Result<(), u16> {
        if whole.opcode == BINARY {
            answer(BINARY, &whole.bytes, out);
            return Ok(());
        }
        let text = std::str::from_utf8(&whole.bytes).map_err(|_| NOT_UTF8)?;
        if self.is_echo {
            answer(TEXT, &whole.bytes, out);
        } else if text.is_ascii() {
            websocket::write_head(TEXT, text.len(), None, out);
            out.extend(whole.bytes.iter().rev());
        } else {
            let reversed: String = text.chars().rev().collect();
            answer(TEXT, reversed.as_bytes(), out);
        }
        Ok(())
    }
}

/// The mask of a frame that a client may send now.
fn check(head: &Head, partial: &Partial) -> Result<[u8; 4], u16> {
    let is_control = head.opcode >= CLOSE;
    let is_known = matches!(
        head.opcode,
        CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG
    );
    let is_short = head.is_final && head.length <= 125;
    let goes_on = head.opcode == CONTINUATION;
    let has_begun = partial.opcode != 0;
    if head.has_reserved || !is_known || (is_control && !is_short) {
        return Err(PROTOCOL_ERROR);
    }
    if !is_control && goes_on != has_begun {
        return Err(PROTOCOL_ERROR);
    }
    if head.length > MESSAGE_MAX - partial.bytes.len().min(MESSAGE_MAX) {
        return Err(TOO_BIG);
    }
    head.mask.ok_or(PROTOCOL_ERROR)
}

fn answer(opcode: u8, payload: &[u8], out: &mut Vec<u8>) {
    websocket::write_head(opcode, payload.len(), None, out);
    out.extend_from_slice(payload);
}

fn close(status: u16, out: &mut Vec<u8>) {
    if status != 0 {
        websocket::write_head(CLOSE, 2, None, out);
        out.extend_from_slice(&status.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
