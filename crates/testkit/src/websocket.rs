//! A WebSocket client that writes and reads frames as they are (RFC 6455): nothing is done by
//! itself, not even answering a ping.

use crate::{RawClient, Response};

/// The kinds of frames.
pub const TEXT: u8 = 1;
/// See [`TEXT`].
pub const BINARY: u8 = 2;
/// See [`TEXT`].
pub const CLOSE: u8 = 8;
/// See [`TEXT`].
pub const PING: u8 = 9;
/// See [`TEXT`].
pub const PONG: u8 = 10;

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A WebSocket connection of a client.
pub struct WebSocket {
    client: RawClient,
}

impl WebSocket {
    /// Asks for a connection with these further field lines, each with its end of line, and gives
    /// the answer, whatever it is.
    pub fn ask(port: u16, target: &str, fields: &str) -> (Response, RawClient) {
        let mut client = RawClient::connect(port);
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: localhost:{port}\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\
             {fields}\r\n"
        ));
        (client.response(), client)
    }

    /// Opens a connection.
    pub fn connect(port: u16, target: &str, fields: &str) -> (Response, Self) {
        let (response, client) = Self::ask(port, target, fields);
        assert_eq!(response.status, 101, "{response:?}");
        assert_eq!(response.header("Sec-WebSocket-Accept"), Some(ACCEPT));
        (response, Self { client })
    }

    /// Sends one frame.
    pub fn send(&mut self, kind: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | kind];
        match payload.len() {
            short @ 0..126 => frame.push(0x80 | short as u8),
            middle @ 126..0x1_0000 => {
                frame.push(0x80 | 126);
                frame.extend((middle as u16).to_be_bytes());
            }
            long => {
                frame.push(0x80 | 127);
                frame.extend((long as u64).to_be_bytes());
            }
        }
        frame.extend(MASK);
        let masked = payload.iter().zip(MASK.iter().cycle());
        frame.extend(masked.map(|(byte, mask)| byte ^ mask));
        self.client.send(frame);
    }

    /// Sends a text.
    pub fn text(&mut self, text: &str) {
        self.send(TEXT, text.as_bytes());
    }

    /// Reads one frame, which must be whole and not masked: its kind and its payload.
    pub fn frame(&mut self) -> (u8, Vec<u8>) {
        let head = self.client.exactly(2);
        assert_eq!(head[0] & 0xf0, 0x80, "a frame in parts, or a reserved bit");
        let length = match head[1] {
            126 => {
                let length = self.client.exactly(2);
                usize::from(u16::from_be_bytes([length[0], length[1]]))
            }
            127 => {
                let length = self.client.exactly(8);
                u64::from_be_bytes(length.try_into().unwrap()) as usize
            }
            short => {
                assert!(short < 126, "a frame of a server is masked");
                usize::from(short)
            }
        };
        (head[0] & 0x0f, self.client.exactly(length))
    }

    /// Reads one frame, which must be a text.
    pub fn next_text(&mut self) -> String {
        let (kind, payload) = self.frame();
        assert_eq!(kind, TEXT, "{payload:?}");
        String::from_utf8(payload).unwrap()
    }

    /// Reads one frame, which must be a close frame with a code.
    pub fn next_close(&mut self) -> u16 {
        let (kind, payload) = self.frame();
        assert_eq!(kind, CLOSE, "{payload:?}");
        u16::from_be_bytes([payload[0], payload[1]])
    }

    /// Whether the server has ended the connection and sent nothing more.
    pub fn is_closed(&mut self) -> bool {
        self.client.is_closed()
    }

    /// The bytes below.
    pub fn raw(&mut self) -> &mut RawClient {
        &mut self.client
    }
}
