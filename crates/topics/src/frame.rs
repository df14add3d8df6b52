//! How one thing that a subscriber is told is written: as server-sent event or as message of a
//! WebSocket.

use std::fmt::{self, Write as _};

use component::stream::StopReason;
use net::websocket::Deflate;

use crate::event::EventId;

/// What a subscriber is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A whole document.
    Snapshot,
    /// What has changed in it (RFC 6902).
    Patch,
    /// What was published.
    Event,
    /// What the subscriber asked to go on from is not there: from here on it is something else.
    Reset,
    /// Events have been left out because the subscriber was too slow.
    Gap,
    /// An event cannot be shown.
    Error,
    /// The subscriber is there from now on.
    Subscribed,
    /// The subscriber's credential has expired: nothing comes after this.
    Expired,
    /// The subscriber's credential has been revoked: nothing comes after this.
    Revoked,
}

impl Kind {
    /// What a subscriber is told whose credential is valid no more.
    pub fn of_end(reason: StopReason) -> Self {
        match reason {
            StopReason::Revoked => Self::Revoked,
            StopReason::Engine | StopReason::Expired => Self::Expired,
        }
    }

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Patch => "patch",
            Self::Event => "event",
            Self::Reset => "reset",
            Self::Gap => "gap",
            Self::Error => "error",
            Self::Subscribed => "subscribed",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

/// One thing that a subscriber is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    /// Where the subscriber is when it has this; empty to leave that as it is.
    pub id: &'a str,
    /// What it is.
    pub kind: Kind,
    /// The topic, when the stream has several.
    pub topic: Option<&'a str>,
    /// JSON without line breaks.
    pub data: &'a [u8],
}

/// How parts are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wire {
    /// Server-sent events (WHATWG HTML, section 9.2).
    Sse {
        /// Within chunks of RFC 9112, section 7.1.
        chunked: bool,
        /// As blocks of one deflate stream, each of which can be the first one.
        gzip: bool,
    },
    /// Text messages of WebSocket (RFC 6455), compressed as agreed on.
    WebSocket(Option<Deflate>),
}

impl Wire {
    /// Whether it is the same but for what only the connection says: chunks and the agreement about
    /// compression of WebSocket.
    pub fn is_like(self, other: Self) -> bool {
        match (self, other) {
            (Self::Sse { gzip: one, .. }, Self::Sse { gzip: other, .. }) => one == other,
            (Self::WebSocket(_), Self::WebSocket(_)) => true,
            _ => false,
        }
    }
}

/// A part as a server-sent event.
pub(crate) fn write_event(part: &Part<'_>, out: &mut Vec<u8>) {
    if !part.id.is_empty() {
        push_all(out, &[b"id: ", part.id.as_bytes(), b"\n"]);
    }
    push_all(out, &[b"event: ", part.kind.name().as_bytes(), b"\ndata: "]);
    match part.topic {
        Some(topic) => {
            out.extend_from_slice(b"{\"topic\":");
            write_text(topic, out);
            push_all(out, &[b",\"data\":", part.data, b"}\n\n"]);
        }
        None => push_all(out, &[part.data, b"\n\n"]),
    }
}

/// A part as the JSON text of a WebSocket message.
pub(crate) fn write_message(part: &Part<'_>, out: &mut Vec<u8>) {
    out.push(b'{');
    if !part.id.is_empty() {
        out.extend_from_slice(b"\"id\":");
        write_text(part.id, out);
        out.push(b',');
    }
    push_all(out, &[b"\"type\":\"", part.kind.name().as_bytes(), b"\","]);
    if let Some(topic) = part.topic {
        out.extend_from_slice(b"\"topic\":");
        write_text(topic, out);
        out.push(b',');
    }
    push_all(out, &[b"\"data\":", part.data, b"}"]);
}

/// Puts a chunk around what stands behind `start` (RFC 9112, section 7.1).
pub(crate) fn enclose_chunk(start: usize, out: &mut Vec<u8>) {
    let length = out.len().saturating_sub(start);
    if length == 0 {
        return;
    }
    let head = format!("{length:x}\r\n");
    // What is written for one reader may wait for it, and is not to take twice its size.
    out.reserve_exact(head.len() + 2);
    out.splice(start..start, head.bytes());
    out.extend_from_slice(b"\r\n");
}

fn push_all(out: &mut Vec<u8>, parts: &[&[u8]]) {
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// A text as JSON.
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// How the places of a stream are written, which clients give back as `Last-Event-ID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IdForm {
    /// `EPOCH-SEQUENCE`.
    Plain,
    /// Those of several topics: `NAME:EPOCH-SEQUENCE,...`, names percent-encoded.
    Composite,
    /// `UUID#SEQUENCE`, the UUID made of the topic's name and epoch.
    Axway,
}

/// Writes the place of a stream into a text that is used again and again.
pub(crate) fn write_id<'a>(
    form: IdForm,
    places: impl Iterator<Item = (&'a str, EventId)>,
    out: &mut String,
) {
    out.clear();
    for (at, (name, id)) in places.enumerate() {
        // Writing to a text cannot fail.
        let _ = match form {
            IdForm::Plain => write!(out, "{id}"),
            IdForm::Composite => {
                let comma = if at == 0 { "" } else { "," };
                write!(out, "{comma}{}:{id}", Encoded(name))
            }
            IdForm::Axway => {
                let uuid = topic_uuid(name, id.epoch);
                write!(out, "{uuid}#{}", id.sequence)
            }
        };
    }
}

/// A text percent-encoded as in a query (RFC 3986, section 2.3).
struct Encoded<'a>(&'a str);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            match byte {
                b'-' | b'.' | b'_' | b'~' => formatter.write_char(char::from(byte))?,
                byte if byte.is_ascii_alphanumeric() => formatter.write_char(char::from(byte))?,
                byte => write!(formatter, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

/// Reads one place of a topic.
pub(crate) fn read_id(form: IdForm, name: &str, epochs: &[u64], text: &str) -> Option<EventId> {
    match form {
        IdForm::Plain | IdForm::Composite => text.parse().ok(),
        IdForm::Axway => {
            let (uuid, sequence) = text.split_once('#')?;
            let is_ours = |it: &&u64| uuid.eq_ignore_ascii_case(&topic_uuid(name, **it));
            let sequence = sequence.parse().ok()?;
            let known = epochs.iter().rev().find(is_ours).copied();
            // One of another topic or log is an id of another epoch.
            let epoch = known.unwrap_or_else(|| !epochs.last().copied().unwrap_or_default());
            Some(EventId { epoch, sequence })
        }
    }
}

/// The places of several topics: percent-encoded names and what is behind them.
pub(crate) fn read_composite(text: &str) -> Option<Vec<(String, &str)>> {
    let part = |part: &'_ str| {
        let (name, id) = part.split_once(':')?;
        Some((decoded(name)?, id.len()))
    };
    text.split(',')
        .map(|it| {
            let (name, length) = part(it)?;
            Some((name, it.get(it.len() - length..)?))
        })
        .collect()
}

/// A text without its percent-encoding; none when that is damaged or gives no UTF-8.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = rest.get(2..)?;
    }
    String::from_utf8(bytes).ok()
}

/// FNV-1a of 64 bits. It is in ids that clients keep, and of names that the flow files give.
fn name_hash(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A UUID (RFC 9562, section 5.8) that stands for a topic's log.
pub(crate) fn topic_uuid(name: &str, epoch: u64) -> String {
    let hash = name_hash(name.as_bytes());
    let high = (epoch & !0xf000) | 0x8000;
    let low = (hash & !(0b11 << 62)) | (0b10 << 62);
    uuid(high, low)
}

/// Whether an id of [`topic_uuid`] and a text are of the same name and of different logs.
pub(crate) fn is_of_same_name(own: &str, other: &str) -> bool {
    // Behind the third group it is the name alone.
    let (Some((own_log, own_name)), Some((log, name))) =
        (own.split_at_checked(18), other.split_at_checked(18))
    else {
        return false;
    };
    let is_log = |(at, byte): (usize, u8)| match at {
        8 | 13 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    name.eq_ignore_ascii_case(own_name)
        && !log.eq_ignore_ascii_case(own_log)
        && log.bytes().enumerate().all(is_log)
}

/// 128 bits as a UUID is written (RFC 9562, section 4).
pub(crate) fn uuid(high: u64, low: u64) -> String {
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(topic: Option<&'static str>) -> Part<'static> {
        Part {
            id: "3f-7",
            kind: Kind::Patch,
            topic,
            data: b"[1]",
        }
    }

    #[test]
    fn an_event_has_id_name_and_data_in_this_order() {
        let mut out = Vec::new();
        write_event(&part(None), &mut out);
        enclose_chunk(0, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "21\r\nid: 3f-7\nevent: patch\ndata: [1]\n\n\r\n");
        let mut out = Vec::new();
        write_event(&part(Some("a\"")), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("data: {\"topic\":\"a\\\"\",\"data\":[1]}\n\n"));
        let mut out = Vec::new();
        write_message(&part(Some("a")), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            r#"{"id":"3f-7","type":"patch","topic":"a","data":[1]}"#
        );
    }

    #[test]
    fn places_are_read_as_they_are_written() {
        let id = |sequence| EventId {
            epoch: 0x3f,
            sequence,
        };
        let mut text = String::new();
        let places = [("a,b", id(1)), ("ö", id(2))];
        write_id(IdForm::Composite, places.into_iter(), &mut text);
        assert_eq!(text, "a%2Cb:3f-1,%C3%B6:3f-2");
        let read = read_composite(&text).unwrap();
        assert_eq!(read, [("a,b".into(), "3f-1"), ("ö".into(), "3f-2")]);
        for bad in ["", "a", "a:1,", "%:1", "%g0:1"] {
            assert!(read_composite(bad).is_none(), "{bad}");
        }
        write_id(IdForm::Axway, [("a", id(9))].into_iter(), &mut text);
        assert_eq!(read_id(IdForm::Axway, "a", &[0x3f], &text), Some(id(9)));
        let other = read_id(IdForm::Axway, "b", &[0x3f], &text).unwrap();
        assert_ne!(other.epoch, 0x3f);
        assert_eq!(text.len(), 38);
    }

    #[test]
    fn an_id_of_an_earlier_log_is_told_from_others() {
        let own = topic_uuid("a", 0x3f);
        assert!(is_of_same_name(&own, &topic_uuid("a", 0x40).to_uppercase()));
        for other in [
            &own,
            &topic_uuid("b", 0x40),
            "a",
            "",
            &own[18..],
            &"ö".repeat(18),
        ] {
            assert!(!is_of_same_name(&own, other), "{other}");
        }
        let odd = format!("{}{}", "x".repeat(18), &own[18..]);
        assert!(!is_of_same_name(&own, &odd));
    }
}
