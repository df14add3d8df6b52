//! The state of one connection, its output and its events.

mod control;
mod receive;
mod send;
mod streams;

use std::collections::VecDeque;
use std::time::Instant;

use message::memory::Cover;

use super::error::{Code, ConnectionError};
use super::flow::{ReceiveWindow, SendWindow};
use super::frame::{self, Header};
use super::head::{Fields, Head};
use super::hpack::{Decoder, Encoder};
use super::limits::{Guard, Limits};
use super::settings::{self, PeerSettings};
use super::stream::{ResetHere, StreamId, Streams};

/// How many heads are kept for their memory.
const SPARE_HEADS: usize = 128;
/// A spare head with more memory than this is dropped.
const SPARE_HEAD_MAX: usize = 8 * 1024;
/// Written output is dropped once there is as much of it.
const WRITTEN_MAX: usize = 32 * 1024;

/// Which side of the connection an engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It answers requests.
    Server,
    /// It sends requests.
    Client,
}

/// What has happened on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A head is there for [`Engine::take_head`]: of a request at a server, of an interim or final
    /// response at a client. `end` tells that nothing follows it.
    Head {
        /// The stream it came on.
        stream: StreamId,
        /// Whether nothing follows the head.
        end: bool,
    },
    /// There is more to read, or the end came: see [`Engine::readable`].
    Data {
        /// The stream it came on.
        stream: StreamId,
    },
    /// The stream is over before its end, by the peer or by an error. It is to be released.
    /// After a response that came whole, NO_ERROR only means that the rest of the request is not
    /// wanted (RFC 9113, section 8.1): then what was received can still be read.
    Reset {
        /// The stream that is over.
        stream: StreamId,
        /// Why.
        code: Code,
    },
    /// The stream is over because the head of its response, or its trailers, are above the limits
    /// (`header_list`, `fields`): it has been reset, and is to be released. Nothing of the head is
    /// there, so that no field of it can be lost unseen.
    TooLarge {
        /// The stream that is over.
        stream: StreamId,
    },
    /// There is room again on a stream that would not take all data.
    Writable {
        /// The stream that has room.
        stream: StreamId,
    },
    /// The peer takes no more streams (RFC 9113, section 6.8). Streams above `last` that this
    /// side opened are reset with REFUSED_STREAM.
    GoAway {
        /// The last stream that the peer answers.
        last: StreamId,
        /// Why.
        code: Code,
    },
    /// The peer's settings came: see [`Engine::peer`].
    Settings,
    /// The answer to [`Engine::ping`] came.
    Pong,
}

/// A header block that goes on in CONTINUATION frames.
#[derive(Debug)]
struct Partial {
    stream: StreamId,
    is_end: bool,
    is_self_dependent: bool,
    frames: u32,
    /// The number of the HEADERS frame.
    begun: u64,
    block: Vec<u8>,
}

/// One HTTP/2 connection.
#[derive(Debug)]
pub struct Engine {
    is_client: bool,
    limits: Limits,
    peer: PeerSettings,
    /// Bytes to be written, from `out_start` on.
    out: Vec<u8>,
    out_start: usize,
    /// How much of what waits may be replies to control frames.
    control_waiting: usize,
    events: VecDeque<Event>,
    decoder: Decoder,
    encoder: Encoder,
    streams: Streams,
    /// Streams that count against the limit of the side that opens them.
    open: u32,
    /// The highest stream that the peer has opened.
    last_peer: StreamId,
    /// The stream that is opened here next.
    next_local: StreamId,
    send_window: SendWindow,
    receive_window: ReceiveWindow,
    /// Bytes of all streams that were received and not yet consumed.
    unread: usize,
    /// What they take of the memory for bodies.
    memory: Cover,
    partial: Option<Partial>,
    /// How many whole frames were received.
    frames: u64,
    /// How many HEADERS and DATA frames were put into the output.
    messages: u64,
    /// Streams that wait for the connection's window or for output to be written.
    blocked: VecDeque<StreamId>,
    /// Counts the times that data was sent.
    turn: u64,
    reset_here: ResetHere,
    guard: Guard,
    spare_heads: Vec<Head>,
    /// How much of the client's preface is still to come.
    preface_left: usize,
    has_settings: bool,
    has_settings_event: bool,
    is_acknowledged: bool,
    has_sent_goaway: bool,
    /// The last stream of the peer that is served while going away.
    last_served: StreamId,
    /// The last stream of this side that the peer serves, after its GOAWAY.
    peer_last: Option<StreamId>,
    ping: Option<[u8; 8]>,
    failed: Option<ConnectionError>,
}

impl Engine {
    /// An engine at the beginning of a connection. The preface and the settings are in its output
    /// (RFC 9113, section 3.4).
    pub fn new(role: Role, limits: Limits) -> Self {
        let limits = limits.sane();
        let is_client = role == Role::Client;
        let mut out = Vec::with_capacity(256);
        if is_client {
            out.extend_from_slice(frame::PREFACE);
        }
        settings::write(&mut out, &limits, is_client);
        let more = limits.connection_window - settings::WINDOW;
        if more > 0 {
            frame::window_update(&mut out, 0, more);
        }
        Self {
            is_client,
            limits,
            peer: PeerSettings::default(),
            out,
            out_start: 0,
            control_waiting: 0,
            events: VecDeque::new(),
            decoder: Decoder::new(),
            encoder: Encoder::new(),
            streams: Streams::new(),
            open: 0,
            last_peer: 0,
            next_local: 1,
            send_window: SendWindow::new(settings::WINDOW),
            receive_window: ReceiveWindow::new(limits.connection_window),
            unread: 0,
            memory: Cover::default(),
            partial: None,
            frames: 0,
            messages: 0,
            blocked: VecDeque::new(),
            turn: 0,
            reset_here: ResetHere::new(),
            guard: Guard::new(is_client),
            spare_heads: Vec::new(),
            preface_left: if is_client { 0 } else { frame::PREFACE.len() },
            has_settings: false,
            has_settings_event: false,
            is_acknowledged: false,
            has_sent_goaway: false,
            last_served: i32::MAX as u32,
            peer_last: None,
            ping: None,
            failed: None,
        }
    }

    /// The bytes that wait to be written to the socket.
    #[inline]
    pub fn pending(&self) -> &[u8] {
        self.out.get(self.out_start..).unwrap_or_default()
    }

    /// Says that the first `count` pending bytes were written. May raise [`Event::Writable`].
    pub fn written(&mut self, count: usize) {
        self.out_start = (self.out_start + count).min(self.out.len());
        let waiting = self.out.len() - self.out_start;
        self.control_waiting = self.control_waiting.min(waiting);
        if waiting == 0 {
            self.out.clear();
            self.out_start = 0;
        } else if self.out_start > WRITTEN_MAX.max(waiting) {
            self.out.drain(..self.out_start);
            self.out_start = 0;
        }
        if !self.blocked.is_empty() && waiting < self.limits.backlog.div_ceil(2) {
            self.wake_all();
        }
    }

    /// Takes what came from the socket: every whole frame at the beginning of `input`. The answer
    /// is how many bytes were used; the rest is to be given again with more behind it, so the
    /// caller's buffer must hold a frame: [`Limits::frame`] and 9 bytes.
    pub fn receive(&mut self, input: &[u8], now: Instant) -> Result<usize, ConnectionError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.guard.tick(now, &self.limits);
        let found = self.receive_frames(input);
        if let Err(error) = found {
            self.fail(error);
        }
        found
    }

    fn receive_frames(&mut self, input: &[u8]) -> Result<usize, ConnectionError> {
        let mut rest = input;
        if self.preface_left > 0 {
            rest = self.preface(input)?;
        }
        while let Some((header, body)) = Header::parse(rest) {
            if header.length > self.limits.frame as usize {
                return Err(ConnectionError::new(
                    Code::FRAME_SIZE,
                    "a frame is too large",
                ));
            }
            let Some((payload, behind)) = body.split_at_checked(header.length) else {
                break;
            };
            self.frames += 1;
            self.frame(header, payload)?;
            rest = behind;
        }
        Ok(input.len() - rest.len())
    }

    /// Takes what there is of the client's preface (RFC 9113, section 3.4).
    fn preface<'a>(&mut self, input: &'a [u8]) -> Result<&'a [u8], ConnectionError> {
        let start = frame::PREFACE.len() - self.preface_left;
        let wanted = frame::PREFACE.get(start..).unwrap_or_default();
        let count = wanted.len().min(input.len());
        let (found, rest) = input.split_at(count);
        if !wanted.starts_with(found) {
            return Err(ConnectionError::protocol("no preface of HTTP/2"));
        }
        self.preface_left -= count;
        if self.preface_left > 0 {
            Ok(&[])
        } else {
            Ok(rest)
        }
    }

    #[inline]
    fn frame(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        if let Some(partial) = &self.partial
            && (header.kind != frame::CONTINUATION || header.stream != partial.stream)
        {
            return Err(ConnectionError::protocol("a header block is interrupted"));
        }
        if !self.has_settings && (header.kind != frame::SETTINGS || header.has(frame::ACK)) {
            return Err(ConnectionError::protocol("the first frame is not SETTINGS"));
        }
        match header.kind {
            frame::DATA => self.data(header, payload),
            frame::HEADERS => self.headers(header, payload),
            frame::PRIORITY => self.priority(header, payload),
            frame::RST_STREAM => self.rst_stream(header, payload),
            frame::SETTINGS => self.settings(header, payload),
            frame::PUSH_PROMISE => Err(ConnectionError::protocol("PUSH_PROMISE is refused")),
            frame::PING => self.ping_frame(header, payload),
            frame::GOAWAY => self.goaway(header, payload),
            frame::WINDOW_UPDATE => self.window_update(header, payload),
            frame::CONTINUATION => self.continuation(header, payload),
            // RFC 9113, section 5.5: unknown frames are ignored.
            _ => self.guard.control(&self.limits),
        }
    }

    /// The next thing that has happened.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            let event = self.events.pop_front()?;
            let stream = match event {
                Event::Head { stream, .. }
                | Event::Data { stream }
                | Event::Writable { stream }
                | Event::TooLarge { stream }
                | Event::Reset { stream, .. } => stream,
                Event::Settings => {
                    self.has_settings_event = false;
                    return Some(event);
                }
                Event::GoAway { .. } | Event::Pong => return Some(event),
            };
            // Events of streams that are gone by now mean nothing to the caller.
            let Some(stream) = self.streams.get_mut(stream) else {
                continue;
            };
            match event {
                Event::Head { .. } => stream.is_known = true,
                Event::Data { .. } => stream.has_data_event = false,
                Event::Writable { .. } => stream.has_writable_event = false,
                _ => {}
            }
            return Some(event);
        }
    }

    /// The oldest head that was received on a stream and not yet taken.
    #[inline]
    pub fn take_head(&mut self, stream: StreamId) -> Option<Head> {
        let stream = self.streams.get_mut(stream)?;
        stream.is_known = true;
        stream.heads.pop_front()
    }

    /// The trailers of a stream, which are there once its end is (RFC 9113, section 8.1).
    pub fn take_trailers(&mut self, stream: StreamId) -> Option<Fields> {
        self.streams.get_mut(stream)?.trailers.take()
    }

    /// Gives back a head that is no longer needed, so that the next one needs no new memory.
    #[inline]
    pub fn recycle(&mut self, head: Head) {
        let is_small = head.fields.bytes.capacity() <= SPARE_HEAD_MAX;
        if is_small && self.spare_heads.len() < SPARE_HEADS {
            self.spare_heads.push(head);
        }
    }

    /// What the peer has begun and not finished, other than DATA, whose `rest` the last
    /// [`Engine::receive`] did not use: its preface and settings, a header block, or a frame. The
    /// number stays the same until it is whole, so that the caller can bound the time.
    pub fn unfinished(&self, rest: &[u8]) -> Option<u64> {
        if self.failed.is_some() {
            return None;
        }
        if !self.has_settings {
            return Some(0);
        }
        if let Some(partial) = &self.partial {
            return Some(partial.begun);
        }
        let is_data = rest.get(3).is_some_and(|&kind| kind == frame::DATA);
        (!rest.is_empty() && !is_data).then_some(self.frames + 1)
    }

    /// How many whole frames were received so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// How many HEADERS and DATA frames were put into the output so far.
    pub fn message_frames(&self) -> u64 {
        self.messages
    }

    /// Frees the memory that a connection without streams can do without.
    pub fn trim(&mut self) {
        if self.streams.len() == 0 {
            self.streams = Streams::new();
            self.spare_heads = Vec::new();
            self.blocked = VecDeque::new();
        }
        if self.pending().is_empty() {
            self.out = Vec::new();
            self.out_start = 0;
        }
    }

    /// What the peer has told about itself.
    pub fn peer(&self) -> &PeerSettings {
        &self.peer
    }

    /// Whether the peer has acknowledged the settings (RFC 9113, section 6.5.3).
    pub fn is_acknowledged(&self) -> bool {
        self.is_acknowledged
    }

    /// Whether every stream is released.
    pub fn is_idle(&self) -> bool {
        self.streams.len() == 0
    }

    /// Why the connection failed, if it did.
    pub fn error(&self) -> Option<ConnectionError> {
        self.failed
    }

    /// Begins a graceful end (RFC 9113, section 6.8). A server goes on taking streams until
    /// [`Engine::finish_going_away`]; a client opens no more.
    pub fn go_away(&mut self, code: Code) {
        if self.failed.is_some() || self.has_sent_goaway {
            return;
        }
        self.has_sent_goaway = true;
        let last = if self.is_client { 0 } else { i32::MAX as u32 };
        frame::goaway(&mut self.out, last, code, b"");
    }

    /// Ends the taking of streams: those above the last one so far are refused. To be called one
    /// round trip after [`Engine::go_away`]; [`Engine::is_idle`] then tells when to close.
    pub fn finish_going_away(&mut self) {
        if self.failed.is_none() && !self.is_client && self.last_served > self.last_peer {
            self.has_sent_goaway = true;
            self.last_served = self.last_peer;
            frame::goaway(&mut self.out, self.last_peer, Code::NONE, b"");
        }
    }

    /// Asks the peer for a sign of life, [`Event::Pong`]. The answer is whether that was done:
    /// not while another one is under way.
    pub fn ping(&mut self, payload: [u8; 8]) -> bool {
        if self.ping.is_some() || self.failed.is_some() {
            return false;
        }
        self.ping = Some(payload);
        frame::ping(&mut self.out, 0, payload);
        true
    }

    /// Ends the connection for a reason of the caller's, as an error of the peer does.
    pub fn abort(&mut self, code: Code, reason: &'static str) {
        if self.failed.is_none() {
            self.fail(ConnectionError::new(code, reason));
        }
    }

    fn fail(&mut self, error: ConnectionError) {
        self.failed = Some(error);
        self.partial = None;
        frame::goaway(
            &mut self.out,
            self.last_peer,
            error.code,
            error.reason.as_bytes(),
        );
    }

    /// Counts a reply to a control frame that was put into the output.
    fn replied(&mut self, length: usize) -> Result<(), ConnectionError> {
        self.control_waiting += length;
        if self.control_waiting > self.limits.output {
            let reason = "replies to control frames are not read";
            return Err(ConnectionError::new(Code::CALM, reason));
        }
        Ok(())
    }
}
