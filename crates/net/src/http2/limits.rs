//! What a peer may make an engine hold or do.

use std::time::{Duration, Instant};

use super::error::{Code, ConnectionError};

/// How many WINDOW_UPDATE and PING frames sent DATA can pay for in advance: a gigabyte may be under
/// way to a peer whose windows are that large.
const EARNED_MAX: u32 = 1 << 20;
/// So many bytes of sent DATA pay for one frame. Peers that open their windows in small steps do so
/// every 4 KiB, for stream and connection each.
const EARNED_PER: usize = 1024;
/// The most bytes of all streams that are held unread before the connection's window is no longer
/// given back for what is received.
const UNREAD_MAX: usize = 32 * 1024 * 1024;
/// The largest header block, and the largest decoded header section, that a back end may send. They
/// bound memory and time; sections above [`Limits::header_list`] are dropped while they are read.
const RESPONSE_BLOCK_MAX: usize = 1024 * 1024;
const RESPONSE_SECTION_MAX: usize = 16 * 1024 * 1024;

/// The bounds on what a peer may ask for. Every one of them holds for one connection. `resets`,
/// `control_frames` and `continuations` concern clients only: a back end that answers many streams
/// and hears of their ends late is no attacker, and cutting its connection cuts every request on
/// it. What it can make us hold is bounded all the same.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Streams that the peer may have open (RFC 9113, section 5.1.2).
    pub streams: u32,
    /// Size of a header section by RFC 9113, section 6.5.2. A larger one of a request is told by
    /// `Head::is_too_large`, and one above four times this size ends the connection. A larger one
    /// of a response, or of trailers, ends the stream.
    pub header_list: usize,
    /// Field lines of a header section. More of them mean the same as too large a section.
    pub fields: usize,
    /// Size of the table that the peer may use to compress header sections.
    pub header_table: u32,
    /// Bytes that the peer may send on a stream before any is consumed.
    pub stream_window: u32,
    /// Bytes that the peer may have under way on all streams together; at least 65 535. They are
    /// given back as soon as they are received, so that streams which are not read delay no other
    /// one: each of them is held back by its own window. What is held unread on one connection is
    /// at most `streams` times `stream_window`, and never more than 32 MiB (or this window, when it
    /// is larger) and this window. Above 32 MiB bytes are given back when they are consumed, and a
    /// client opens no more streams.
    pub connection_window: u32,
    /// Payload of a frame that the peer may send; 16 384 to 16 777 215.
    pub frame: u32,
    /// Streams per period that the peer may reset before they are answered, or make the engine
    /// reset by an error.
    pub resets: u32,
    /// Frames per period that carry nothing: SETTINGS, PRIORITY, empty DATA, unknown ones, those
    /// for refused and closed streams, PING and WINDOW_UPDATE that no sent DATA asked for.
    pub control_frames: u32,
    /// CONTINUATION frames of one header section.
    pub continuations: u32,
    /// Bytes of replies to control frames that may wait to be written.
    pub output: usize,
    /// Bytes of output above which no more DATA is taken.
    pub backlog: usize,
    /// The time in which `resets` and `control_frames` are counted.
    pub period: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            streams: 128,
            header_list: 32 * 1024,
            fields: 128,
            header_table: 4096,
            stream_window: 65_535,
            connection_window: 1024 * 1024,
            frame: 16_384,
            resets: 200,
            control_frames: 2000,
            continuations: 16,
            output: 32 * 1024,
            backlog: 64 * 1024,
            period: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// The size of a decoded header section that ends the connection.
    pub(crate) fn section_max(&self, is_client: bool) -> usize {
        let most = self.header_list.saturating_mul(4);
        if is_client {
            most.max(RESPONSE_SECTION_MAX)
        } else {
            most
        }
    }

    /// The size of a header block that ends the connection.
    pub(crate) fn block_max(&self, is_client: bool) -> usize {
        let most = self.header_list.saturating_mul(4);
        if is_client {
            most.max(RESPONSE_BLOCK_MAX)
        } else {
            most
        }
    }

    /// Up to so many bytes are held unread while the connection's window is given back on receipt.
    pub(crate) fn unread_max(&self) -> usize {
        UNREAD_MAX.max(self.connection_window as usize)
    }

    /// Brings what goes into SETTINGS into the ranges of RFC 9113, section 6.5.2.
    pub(crate) fn sane(mut self) -> Self {
        self.frame = self.frame.clamp(16_384, 16_777_215);
        self.stream_window = self.stream_window.min(i32::MAX as u32);
        self.connection_window = self.connection_window.clamp(65_535, i32::MAX as u32);
        self
    }
}

/// Counts what a client does in vain. A back end is not judged by counts.
#[derive(Debug)]
pub(crate) struct Guard {
    counts: bool,
    start: Option<Instant>,
    resets: u32,
    controls: u32,
    /// WINDOW_UPDATE and PING frames that sent DATA has asked for.
    earned: u32,
    /// Bytes of sent DATA that have not earned a whole frame yet.
    unpaid: usize,
}

impl Guard {
    pub(crate) fn new(is_client: bool) -> Self {
        Self {
            counts: !is_client,
            start: None,
            resets: 0,
            controls: 0,
            earned: 0,
            unpaid: 0,
        }
    }

    /// Begins a new period when the last one is over.
    #[inline]
    pub(crate) fn tick(&mut self, now: Instant, limits: &Limits) {
        match self.start {
            Some(start) if now.saturating_duration_since(start) < limits.period => {}
            _ => {
                self.start = Some(now);
                self.resets = 0;
                self.controls = 0;
            }
        }
    }

    /// Counts a stream that was opened in vain.
    pub(crate) fn reset(&mut self, limits: &Limits) -> Result<(), ConnectionError> {
        self.resets = self.resets.saturating_add(1);
        if self.counts && self.resets > limits.resets {
            return Err(ConnectionError::new(
                Code::CALM,
                "too many streams were reset",
            ));
        }
        Ok(())
    }

    /// Counts a frame that carries nothing.
    #[inline]
    pub(crate) fn control(&mut self, limits: &Limits) -> Result<(), ConnectionError> {
        self.controls = self.controls.saturating_add(1);
        if self.counts && self.controls > limits.control_frames {
            return Err(ConnectionError::new(Code::CALM, "too many control frames"));
        }
        Ok(())
    }

    /// Counts a frame that is fine as an answer to DATA: WINDOW_UPDATE, or PING, with which gRPC
    /// measures the path whenever DATA comes, or RST_STREAM for a stream that was answered.
    #[inline]
    pub(crate) fn answer(&mut self, limits: &Limits) -> Result<(), ConnectionError> {
        match self.earned.checked_sub(1) {
            Some(rest) => self.earned = rest,
            None => self.control(limits)?,
        }
        Ok(())
    }

    /// DATA was sent: the peer may answer it with WINDOW_UPDATE for stream and connection, and with
    /// PING, as often as there are [`EARNED_PER`] bytes, whatever the frames, and once for every
    /// piece that went out whole (`is_whole`), however small. A piece that was cut by the peer's
    /// window earns nothing but its bytes, lest the peer make all pieces small.
    #[inline]
    pub(crate) fn sent(&mut self, length: usize, is_whole: bool) {
        let bytes = self.unpaid + length;
        self.unpaid = bytes % EARNED_PER;
        let by_piece = if is_whole { 3 } else { 0 };
        let earned = (bytes / EARNED_PER) as u32 + by_piece;
        self.earned = (self.earned + earned).min(EARNED_MAX);
    }
}
