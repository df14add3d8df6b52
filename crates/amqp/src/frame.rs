//! Frames: a type, a channel, a length, so many bytes, and an end (section 4.2.3).

use crate::error::Error;

/// What a client says first (section 4.2.2).
pub const PROTOCOL_HEADER: &[u8; 8] = b"AMQP\0\0\x09\x01";
/// The least that both sides must take as a frame's length (section 4.2.3).
pub const FRAME_MIN: u32 = 4096;
/// The bytes of a frame around its payload.
pub const OVERHEAD: usize = 8;

pub(crate) const METHOD: u8 = 1;
pub(crate) const HEADER: u8 = 2;
pub(crate) const BODY: u8 = 3;
pub(crate) const HEARTBEAT: u8 = 8;
pub(crate) const END: u8 = 0xce;

/// A frame that lies in somebody else's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub kind: u8,
    pub channel: u16,
    pub payload: &'a [u8],
}

/// The first frame of these bytes and how many it takes; `None` when it is not all there.
///
/// # Errors
/// When it is no frame, or longer than `frame_max` bytes all in all.
pub(crate) fn parse(bytes: &[u8], frame_max: usize) -> Result<Option<(Frame<'_>, usize)>, Error> {
    let Some((&[kind, high, low, a, b, c, d], rest)) = bytes.split_first_chunk::<7>() else {
        // What is there tells already whether it can become a frame.
        let is_known = |&kind: &u8| matches!(kind, METHOD | HEADER | BODY | HEARTBEAT);
        return match bytes.first().is_none_or(is_known) || b"AMQP".starts_with(bytes) {
            true => Ok(None),
            false => Err(Error::Frame),
        };
    };
    if bytes.starts_with(b"AMQP") {
        // A broker that speaks another version says which one and leaves (section 4.2.2).
        return Err(Error::Version);
    }
    if !matches!(kind, METHOD | HEADER | BODY | HEARTBEAT) {
        return Err(Error::Frame);
    }
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > frame_max.saturating_sub(OVERHEAD) {
        return Err(Error::FrameSize);
    }
    match rest.get(length) {
        None => Ok(None),
        Some(&END) => {
            let frame = Frame {
                kind,
                channel: u16::from_be_bytes([high, low]),
                payload: rest.get(..length).unwrap_or_default(),
            };
            Ok(Some((frame, length + OVERHEAD)))
        }
        Some(_) => Err(Error::Frame),
    }
}

/// Writes the beginning of a frame.
pub(crate) fn begin(out: &mut Vec<u8>, kind: u8, channel: u16, length: u32) {
    let [high, low] = channel.to_be_bytes();
    let [a, b, c, d] = length.to_be_bytes();
    out.extend_from_slice(&[kind, high, low, a, b, c, d]);
}
