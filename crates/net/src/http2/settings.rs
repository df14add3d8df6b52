//! The settings of both sides (RFC 9113, section 6.5).

use super::error::{Code, ConnectionError};
use super::frame;
use super::limits::Limits;

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
/// RFC 9218, section 2.1
const NO_RFC7540_PRIORITIES: u16 = 9;

/// How many streams a client opens before it knows how many it may.
const STREAMS_UNTOLD: u32 = 100;
/// The initial window of RFC 9113, section 6.9.2.
pub(crate) const WINDOW: u32 = 65_535;

/// What the peer has told about itself.
#[derive(Clone, Copy, Debug)]
pub struct PeerSettings {
    /// SETTINGS_HEADER_TABLE_SIZE
    pub header_table: u32,
    /// SETTINGS_MAX_CONCURRENT_STREAMS
    pub streams: u32,
    /// SETTINGS_INITIAL_WINDOW_SIZE
    pub stream_window: u32,
    /// SETTINGS_MAX_FRAME_SIZE
    pub frame: u32,
    /// SETTINGS_MAX_HEADER_LIST_SIZE
    pub header_list: u32,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            header_table: 4096,
            streams: STREAMS_UNTOLD,
            stream_window: WINDOW,
            frame: frame::PAYLOAD as u32,
            header_list: u32::MAX,
        }
    }
}

impl PeerSettings {
    /// Takes the payload of a SETTINGS frame. `is_first` tells the peer's first one, in which a
    /// missing number of streams means any number.
    pub(crate) fn apply(
        &mut self,
        payload: &[u8],
        is_client: bool,
        is_first: bool,
    ) -> Result<(), ConnectionError> {
        let (entries, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(ConnectionError::new(
                Code::FRAME_SIZE,
                "SETTINGS of odd size",
            ));
        }
        if is_first {
            self.streams = u32::MAX;
        }
        for &[a, b, c, d, e, f] in entries {
            let value = u32::from_be_bytes([c, d, e, f]);
            self.set(u16::from_be_bytes([a, b]), value, is_client)?;
        }
        Ok(())
    }

    fn set(&mut self, name: u16, value: u32, is_client: bool) -> Result<(), ConnectionError> {
        match name {
            HEADER_TABLE_SIZE => self.header_table = value,
            ENABLE_PUSH if value > 1 || (is_client && value == 1) => {
                return Err(ConnectionError::protocol("SETTINGS_ENABLE_PUSH"));
            }
            MAX_CONCURRENT_STREAMS => self.streams = value,
            INITIAL_WINDOW_SIZE if value > i32::MAX as u32 => {
                let reason = "SETTINGS_INITIAL_WINDOW_SIZE";
                return Err(ConnectionError::new(Code::FLOW_CONTROL, reason));
            }
            INITIAL_WINDOW_SIZE => self.stream_window = value,
            MAX_FRAME_SIZE if !(16_384..=16_777_215).contains(&value) => {
                return Err(ConnectionError::protocol("SETTINGS_MAX_FRAME_SIZE"));
            }
            MAX_FRAME_SIZE => self.frame = value,
            MAX_HEADER_LIST_SIZE => self.header_list = value,
            NO_RFC7540_PRIORITIES if value > 1 => {
                return Err(ConnectionError::protocol("SETTINGS_NO_RFC7540_PRIORITIES"));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Writes the first SETTINGS frame.
pub(crate) fn write(out: &mut Vec<u8>, limits: &Limits, is_client: bool) {
    let header_list = u32::try_from(limits.header_list).unwrap_or(u32::MAX);
    let by_role = match is_client {
        true => [(ENABLE_PUSH, 0), (NO_RFC7540_PRIORITIES, 1)],
        false => [
            (MAX_CONCURRENT_STREAMS, limits.streams),
            (NO_RFC7540_PRIORITIES, 1),
        ],
    };
    let by_both = [
        (HEADER_TABLE_SIZE, limits.header_table),
        (INITIAL_WINDOW_SIZE, limits.stream_window),
        (MAX_FRAME_SIZE, limits.frame),
        (MAX_HEADER_LIST_SIZE, header_list),
    ];
    let count = by_role.len() + by_both.len();
    frame::header(out, count * 6, frame::SETTINGS, 0, 0);
    for (name, value) in by_role.into_iter().chain(by_both) {
        out.extend_from_slice(&u16::to_be_bytes(name));
        out.extend_from_slice(&u32::to_be_bytes(value));
    }
}
