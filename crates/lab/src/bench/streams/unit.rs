//! What comes on a stream, one by one: server-sent events (WHATWG HTML section 9.2.6) and WebSocket
//! messages in one frame.

use crate::websocket::{self, BINARY, TEXT};

/// An event, a message or something that is neither.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unit<'a> {
    /// The bytes that it takes.
    pub size: usize,
    pub id: &'a [u8],
    /// The event's name; empty: it has none.
    pub name: &'a [u8],
    /// `None`: a comment, a heartbeat, a control frame.
    pub data: Option<Data<'a>>,
}

/// The data of an event: nearly always one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Data<'a> {
    One(&'a [u8]),
    Lines(Vec<u8>),
}

impl Data<'_> {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::One(line) => line,
            Self::Lines(lines) => lines,
        }
    }
}

/// The event block that begins here, to its empty line; `None` while it is incomplete.
pub(super) fn event(bytes: &[u8]) -> Option<Unit<'_>> {
    let mut unit = Unit::default();
    loop {
        let rest = bytes.get(unit.size..)?;
        let length = memchr::memchr(b'\n', rest)?;
        let line = rest.get(..length)?;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        unit.size += length + 1;
        if line.is_empty() {
            return Some(unit);
        }
        field(line, &mut unit);
    }
}

fn field<'a>(line: &'a [u8], unit: &mut Unit<'a>) {
    let (name, value) = match memchr::memchr(b':', line) {
        Some(at) => line.split_at(at),
        None => (line, &[][..]),
    };
    let value = value.strip_prefix(b":").unwrap_or(value);
    let value = value.strip_prefix(b" ").unwrap_or(value);
    match name {
        b"id" => unit.id = value,
        b"event" => unit.name = value,
        b"data" => {
            unit.data = Some(match unit.data.take() {
                None => Data::One(value),
                Some(before) => Data::Lines([before.bytes(), b"\n", value].concat()),
            });
        }
        _ => {}
    }
}

/// The WebSocket message that begins here; `None` while it is incomplete.
///
/// # Errors
/// When it is in several frames or masked, which no server under test does.
pub(super) fn message(bytes: &[u8]) -> Result<Option<Unit<'_>>, &'static str> {
    let Some(head) = websocket::head(bytes) else {
        return Ok(None);
    };
    if !head.is_final || head.mask.is_some() || head.has_reserved {
        return Err("a frame that is masked, compressed or not final");
    }
    let Some(payload) = bytes.get(head.size..head.end()) else {
        return Ok(None);
    };
    let is_message = matches!(head.opcode, TEXT | BINARY);
    Ok(Some(Unit {
        size: head.end(),
        data: is_message.then_some(Data::One(payload)),
        ..Unit::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_when_they_are_whole() {
        let text = b"id: 7\nevent: patch\ndata: [1]\n\n";
        for length in 0..text.len() {
            assert_eq!(event(&text[..length]), None);
        }
        let read = event(text).unwrap();
        assert_eq!((read.id, read.name), (&b"7"[..], &b"patch"[..]));
        assert_eq!(
            (read.data, read.size),
            (Some(Data::One(b"[1]")), text.len())
        );
    }

    #[test]
    fn other_forms_are_understood() {
        let read =
            event(b": comment\r\nid:8\r\ndata:a\r\ndata: b\r\nretry: 5\r\nx\r\n\r\n").unwrap();
        assert_eq!(read.id, b"8");
        assert_eq!(read.data.unwrap().bytes(), b"a\nb");
        let heartbeat = event(b":\n\n").unwrap();
        assert_eq!((heartbeat.data, heartbeat.size), (None, 3));
    }

    #[test]
    fn messages_are_frames() {
        let mut bytes = Vec::new();
        websocket::write_head(TEXT, 3, None, &mut bytes);
        bytes.extend_from_slice(b"abc");
        for length in 0..bytes.len() {
            assert_eq!(message(&bytes[..length]), Ok(None));
        }
        let read = message(&bytes).unwrap().unwrap();
        assert_eq!((read.data, read.size), (Some(Data::One(b"abc")), 5));
        assert!(message(&[0x01, 0]).is_err());
        assert_eq!(message(&[0x89, 0]).unwrap().unwrap().data, None);
    }
}
