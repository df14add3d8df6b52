//! WebSocket frames of a client (RFC 6455, section 5.2).

use std::io::{self, Read};

pub const CONTINUATION: u8 = 0;
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

/// The first byte's bits beside the opcode.
pub const FIN: u8 = 0x80;
pub const COMPRESSED: u8 = 0x40;

const MASK: [u8; 4] = [0x5a, 0xa5, 0x0f, 0xf0];

/// A handshake; `more` is further header lines, each with its end.
pub fn handshake(path: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    )
}

pub const DEFLATE: &str = "Sec-WebSocket-Extensions: permessage-deflate\r\n";

/// The head of a frame whose payload would have so many bytes, with its mask.
pub fn head(first: u8, length: u64) -> Vec<u8> {
    let mut bytes = vec![first];
    match length {
        0..=125 => bytes.push(0x80 | length as u8),
        126..=0xffff => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        _ => {
            bytes.push(0x80 | 127);
            bytes.extend(length.to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes
}

pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = head(first, payload.len() as u64);
    let masked = payload.iter().zip(MASK.iter().cycle());
    bytes.extend(masked.map(|(byte, mask)| byte ^ mask));
    bytes
}

/// Reads a server's frame: its first byte and its payload.
pub fn read_frame(from: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    from.read_exact(&mut head)?;
    let [first, length] = head;
    let mut longer = [0; 8];
    let length = match length {
        126 => {
            let (_, two) = longer.split_at_mut(6);
            from.read_exact(two)?;
            u64::from_be_bytes(longer)
        }
        127 => {
            from.read_exact(&mut longer)?;
            u64::from_be_bytes(longer)
        }
        length => u64::from(length),
    };
    let mut payload = Vec::new();
    let read = from.take(length).read_to_end(&mut payload)?;
    match read as u64 == length {
        true => Ok((first, payload)),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_the_shortest_form() {
        assert_eq!(head(FIN | PING, 125), [0x89, 0xfd, 0x5a, 0xa5, 0x0f, 0xf0]);
        let two = [0x81, 0xfe, 1, 0, 0x5a, 0xa5, 0x0f, 0xf0];
        assert_eq!(head(FIN | TEXT, 256), two);
        assert_eq!(head(FIN | BINARY, 1 << 16).len(), 14);
    }

    #[test]
    fn payloads_are_masked_and_read_plain() -> io::Result<()> {
        // RFC 6455, section 5.7, with another mask.
        let hello = frame(FIN | TEXT, b"Hello");
        assert_eq!(hello.get(6..), Some(&[0x12, 0xc0, 0x63, 0x9c, 0x35][..]));
        let read = read_frame(&mut &b"\x81\x05Hello"[..])?;
        assert_eq!(read, (FIN | TEXT, b"Hello".to_vec()));
        let long = [&[0x82, 126, 1, 0][..], &[7; 256]].concat();
        assert_eq!(read_frame(&mut long.as_slice())?.1.len(), 256);
        assert!(read_frame(&mut &b"\x81\x05Hell"[..]).is_err());
        Ok(())
    }
}
