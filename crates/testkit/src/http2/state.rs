//! What one side knows of an HTTP/2 connection, and what frames do to it.

use std::collections::{BTreeMap, VecDeque};

use super::hpack::Decoder;
use super::{FRAME_MAX, Role, check, flag, frame, kind};
use crate::http1::Fields;

/// The window of a stream and of the connection at the beginning (section 6.9.2).
const WINDOW: i64 = 65_535;

/// What one side knows of a stream.
#[derive(Debug, Default)]
pub struct StreamState {
    /// The heads that have come: interim ones, the final one, trailers.
    pub heads: Vec<Fields>,
    /// How many of them have been taken by the test.
    pub heads_taken: usize,
    /// Content that has not been taken.
    pub data: Vec<u8>,
    /// How much has come in all.
    pub received: usize,
    /// Whether the peer has sent all of it.
    pub remote_end: bool,
    /// Whether this side has.
    pub local_end: bool,
    /// The code of the peer's RST_STREAM.
    pub peer_reset: Option<u32>,
    /// Whether this side has reset it.
    pub was_reset: bool,
    /// The request's method, for a client: a reply to HEAD has no content.
    pub method: String,
    send_window: i64,
    receive_window: i64,
}

impl StreamState {
    /// Whether neither side sends any more.
    pub fn is_closed(&self) -> bool {
        self.peer_reset.is_some() || self.was_reset || (self.remote_end && self.local_end)
    }

    /// Where the final head is among the heads.
    pub fn final_head(&self) -> Option<usize> {
        self.heads.iter().position(|it| !check::is_interim(it))
    }
}

/// What one side knows of a connection.
pub struct State {
    role: Role,
    /// Bytes to be written.
    pub out: Vec<u8>,
    /// Whether others are being written.
    pub is_writing: bool,
    /// All streams there have been.
    pub streams: BTreeMap<u32, StreamState>,
    /// Streams that a client has opened and no test has taken.
    pub opened: VecDeque<u32>,
    /// Why the connection has ended.
    pub ended: Option<String>,
    /// The peer's GOAWAY: the last stream and the code.
    pub goaway: Option<(u32, u32)>,
    /// What the peer has done wrong.
    pub violations: Vec<String>,
    next: u32,
    send_window: i64,
    receive_window: i64,
    peer_initial_window: i64,
    decoder: Decoder,
    /// A head whose CONTINUATION is to come: its stream, flags, and what has come of it.
    partial: Option<(u32, u8, Vec<u8>)>,
}

impl State {
    pub(super) fn new(role: Role) -> Self {
        Self {
            role,
            out: Vec::new(),
            is_writing: false,
            streams: BTreeMap::new(),
            opened: VecDeque::new(),
            ended: None,
            goaway: None,
            violations: Vec::new(),
            next: 1,
            send_window: WINDOW,
            receive_window: WINDOW,
            peer_initial_window: WINDOW,
            decoder: Decoder::default(),
            partial: None,
        }
    }

    pub(super) fn violate(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    fn add(&mut self, stream: u32) -> &mut StreamState {
        let send_window = self.peer_initial_window;
        self.streams.entry(stream).or_insert(StreamState {
            send_window,
            receive_window: WINDOW,
            ..StreamState::default()
        })
    }

    pub(super) fn open(&mut self) -> u32 {
        let stream = self.next;
        self.next += 2;
        self.add(stream);
        stream
    }

    pub(super) fn send_block(&mut self, stream: u32, block: &[u8], end: bool) {
        let mut parts = block.chunks(FRAME_MAX).peekable();
        let mut kind_now = kind::HEADERS;
        let mut flags = if end { flag::END_STREAM } else { 0 };
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                flags |= flag::END_HEADERS;
            }
            self.out.extend(frame(kind_now, flags, stream, part));
            (kind_now, flags) = (kind::CONTINUATION, 0);
        }
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.local_end |= end;
        }
    }

    /// How much content may be sent now; `Some(None)` when the stream has ended.
    pub(super) fn room(&self, stream: u32, wanted: usize, padding: u8) -> Option<Option<usize>> {
        let stream = self.streams.get(&stream)?;
        if self.ended.is_some() || stream.peer_reset.is_some() || stream.was_reset {
            return Some(None);
        }
        let padding = if padding > 0 {
            i64::from(padding) + 1
        } else {
            0
        };
        let window = stream.send_window.min(self.send_window) - padding;
        let most = usize::try_from(window.min(FRAME_MAX as i64 - padding)).unwrap_or(0);
        // What has not been written yet is bounded too.
        let has_room = self.out.len() < 4 * FRAME_MAX;
        (wanted == 0 || (most > 0 && has_room)).then_some(Some(wanted.min(most)))
    }

    pub(super) fn send_data(&mut self, stream: u32, bytes: &[u8], end: bool, padding: u8) {
        let mut flags = if end { flag::END_STREAM } else { 0 };
        let mut payload = bytes.to_vec();
        if padding > 0 {
            flags |= flag::PADDED;
            payload.insert(0, padding);
            payload.resize(payload.len() + usize::from(padding), 0);
        }
        self.out.extend(frame(kind::DATA, flags, stream, &payload));
        self.send_window -= payload.len() as i64;
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.send_window -= payload.len() as i64;
            stream.local_end |= end;
        }
    }

    pub(super) fn reset(&mut self, stream: u32, code: u32) {
        let Some(known) = self.streams.get_mut(&stream) else {
            return;
        };
        known.was_reset = true;
        self.out
            .extend(frame(kind::RST_STREAM, 0, stream, &code.to_be_bytes()));
    }

    pub(super) fn take_data(
        &mut self,
        id: u32,
        max: usize,
    ) -> Option<Result<Option<Vec<u8>>, String>> {
        let stream = self.streams.get_mut(&id)?;
        if !stream.data.is_empty() && max > 0 {
            let count = max.min(stream.data.len());
            let part = stream.data[..count].to_vec();
            stream.data.drain(..count);
            if !stream.remote_end && stream.peer_reset.is_none() {
                stream.receive_window += count as i64;
                self.credit(id, count);
            }
            return Some(Ok(Some(part)));
        }
        if stream.remote_end {
            return Some(Ok(None));
        }
        if let Some(code) = stream.peer_reset {
            return Some(Err(format!("RST_STREAM {code}")));
        }
        let ended = self.ended.as_ref();
        ended.map(|why| Err(format!("the connection ended: {why}")))
    }

    fn credit(&mut self, stream: u32, count: usize) {
        let increment = (count as u32).to_be_bytes();
        self.out
            .extend(frame(kind::WINDOW_UPDATE, 0, stream, &increment));
    }

    /// Takes whole frames; returns how many bytes they were.
    pub(super) fn receive(&mut self, input: &[u8]) -> usize {
        let mut used = 0;
        while let Some((head, rest)) = input[used..].split_at_checked(9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            if length > FRAME_MAX {
                self.violate(format!("a frame of {length} bytes"));
            }
            let Some(payload) = rest.get(..length) else {
                break;
            };
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            if let Err(violation) = self.take_frame(head[3], head[4], stream, payload) {
                self.violate(format!("stream {stream}: {violation}"));
            }
            used += 9 + length;
        }
        used
    }

    fn take_frame(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) -> Result<(), String> {
        if self.partial.is_some() && kind != kind::CONTINUATION {
            return Err(format!("a frame of type {kind} within a head"));
        }
        let number = || {
            let bytes: Result<[u8; 4], _> = payload.get(..4).unwrap_or_default().try_into();
            bytes.map(u32::from_be_bytes).map_err(|_| "too short")
        };
        match kind {
            kind::DATA => self.take_content(flags, id, unpadded(flags, payload)?, payload.len()),
            kind::HEADERS => {
                let mut block = unpadded(flags, payload)?;
                if flags & flag::PRIORITY != 0 {
                    block = block.get(5..).ok_or("no priority")?;
                }
                self.take_block(flags, id, block.to_vec())
            }
            kind::CONTINUATION => {
                let (stream, first, mut block) =
                    self.partial.take().ok_or("a stray CONTINUATION")?;
                if stream != id {
                    return Err("a CONTINUATION of another stream".to_owned());
                }
                block.extend_from_slice(payload);
                self.take_block(first | flags & flag::END_HEADERS, id, block)
            }
            kind::RST_STREAM => {
                let code = number()?;
                let stream = self
                    .streams
                    .get_mut(&id)
                    .ok_or("RST_STREAM of an idle stream")?;
                stream.peer_reset.get_or_insert(code);
                Ok(())
            }
            kind::SETTINGS => self.take_settings(flags, payload),
            kind::PING if flags & flag::ACK == 0 => {
                self.out.extend(frame(kind::PING, flag::ACK, 0, payload));
                Ok(())
            }
            kind::GOAWAY => {
                let code = payload.get(4..8).ok_or("a short GOAWAY")?;
                let code = u32::from_be_bytes([code[0], code[1], code[2], code[3]]);
                self.goaway = Some((number()?, code));
                Ok(())
            }
            kind::WINDOW_UPDATE => self.take_credit(id, number()?),
            kind::PUSH_PROMISE => Err("PUSH_PROMISE".to_owned()),
            _ => Ok(()),
        }
    }

    fn take_settings(&mut self, flags: u8, payload: &[u8]) -> Result<(), String> {
        if flags & flag::ACK != 0 {
            return Ok(());
        }
        for entry in payload.chunks_exact(6) {
            let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
            // SETTINGS_INITIAL_WINDOW_SIZE
            if u16::from_be_bytes([entry[0], entry[1]]) == 4 {
                let change = i64::from(value) - self.peer_initial_window;
                self.peer_initial_window = i64::from(value);
                for stream in self.streams.values_mut() {
                    stream.send_window += change;
                }
            }
        }
        self.out.extend(frame(kind::SETTINGS, flag::ACK, 0, &[]));
        Ok(())
    }

    fn take_credit(&mut self, id: u32, increment: u32) -> Result<(), String> {
        if increment == 0 {
            return Err("WINDOW_UPDATE of 0".to_owned());
        }
        let window = match id {
            0 => &mut self.send_window,
            id => {
                let stream = self.streams.get_mut(&id);
                &mut stream.ok_or("WINDOW_UPDATE of an idle stream")?.send_window
            }
        };
        *window += i64::from(increment);
        match *window >= 1 << 31 {
            true => Err("a window too large".to_owned()),
            false => Ok(()),
        }
    }

    fn take_content(
        &mut self,
        flags: u8,
        id: u32,
        content: &[u8],
        length: usize,
    ) -> Result<(), String> {
        self.receive_window -= length as i64;
        if self.receive_window < 0 {
            return Err("more DATA than the connection's window".to_owned());
        }
        if length > 0 {
            self.receive_window += length as i64;
            self.credit(0, length);
        }
        let stream = self.streams.get_mut(&id).ok_or("DATA of an idle stream")?;
        if stream.was_reset {
            return Ok(());
        }
        if stream.remote_end || stream.peer_reset.is_some() || stream.final_head().is_none() {
            return Err("DATA where none may be".to_owned());
        }
        stream.receive_window -= length as i64;
        if stream.receive_window < 0 {
            return Err("more DATA than the stream's window".to_owned());
        }
        stream.received += content.len();
        stream.data.extend_from_slice(content);
        stream.remote_end = flags & flag::END_STREAM != 0;
        let padding = length - content.len();
        stream.receive_window += padding as i64;
        if stream.remote_end {
            check::length(self.role, stream)?;
        } else if padding > 0 {
            self.credit(id, padding);
        }
        Ok(())
    }

    fn take_block(&mut self, flags: u8, id: u32, block: Vec<u8>) -> Result<(), String> {
        if flags & flag::END_HEADERS == 0 {
            self.partial = Some((id, flags, block));
            return Ok(());
        }
        let fields = self.decoder.decode(&block)?;
        if self.role == Role::Server && !self.streams.contains_key(&id) {
            if id.is_multiple_of(2) || self.streams.keys().any(|known| *known > id) {
                return Err("a new stream of this number may not be".to_owned());
            }
            self.add(id);
            self.opened.push_back(id);
        }
        let role = self.role;
        let stream = self
            .streams
            .get_mut(&id)
            .ok_or("HEADERS of an idle stream")?;
        if stream.was_reset {
            return Ok(());
        }
        if stream.remote_end || stream.peer_reset.is_some() {
            return Err("HEADERS behind the stream's end".to_owned());
        }
        stream.remote_end = flags & flag::END_STREAM != 0;
        let checked = check::head(role, stream, &fields);
        stream.heads.push(fields);
        checked?;
        match stream.remote_end {
            true => check::length(role, stream),
            false => Ok(()),
        }
    }
}

fn unpadded(flags: u8, payload: &[u8]) -> Result<&[u8], String> {
    if flags & flag::PADDED == 0 {
        return Ok(payload);
    }
    let (padding, rest) = payload.split_first().ok_or("no padding")?;
    let length = rest.len().checked_sub((*padding).into());
    Ok(&rest[..length.ok_or("more padding than payload")?])
}
