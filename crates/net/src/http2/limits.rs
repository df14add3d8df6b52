//! What a peer may make an engine hold or do.

use std::time::{Duration, Instant};

use super::error::{Code, ConnectionError};

/// How many WINDOW_UPDATE and PING frames sent DATA can pay for in advance.
const EARNED_MAX: u32 = 10_000;

/// The bounds on what a peer may ask for. Every one of them holds for one connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Streams that the peer may have open (RFC 9113, section 5.1.2).
    pub streams: u32,
    /// Size of a header section by RFC 9113, section 6.5.2. A larger one is told by
    /// `Head::is_too_large`; one above four times this size ends the connection.
    pub header_list: usize,
    /// Field lines of a header section.
    pub fields: usize,
    /// Size of the table that the peer may use to compress header sections.
    pub header_table: u32,
    /// Bytes that the peer may send on a stream before any is consumed.
    pub stream_window: u32,
    /// Bytes that the peer may send on all streams before any is consumed; at least 65 535.
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
    /// The size of a header section that ends the connection.
    pub(crate) fn header_list_max(&self) -> usize {
        self.header_list.saturating_mul(4)
    }

    /// Brings what goes into SETTINGS into the ranges of RFC 9113, section 6.5.2.
    pub(crate) fn sane(mut self) -> Self {
        self.frame = self.frame.clamp(16_384, 16_777_215);
        self.stream_window = self.stream_window.min(i32::MAX as u32);
        self.connection_window = self.connection_window.clamp(65_535, i32::MAX as u32);
        self
    }
}

/// Counts what a peer does in vain.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    start: Option<Instant>,
    resets: u32,
    controls: u32,
    /// WINDOW_UPDATE and PING frames that sent DATA has asked for.
    earned: u32,
}

impl Guard {
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
        self.resets += 1;
        if self.resets > limits.resets {
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
        self.controls += 1;
        if self.controls > limits.control_frames {
            return Err(ConnectionError::new(Code::CALM, "too many control frames"));
        }
        Ok(())
    }

    /// Counts a frame that is fine as an answer to DATA: WINDOW_UPDATE, or PING, with which gRPC
    /// measures the path whenever DATA comes.
    #[inline]
    pub(crate) fn answer(&mut self, limits: &Limits) -> Result<(), ConnectionError> {
        match self.earned.checked_sub(1) {
            Some(rest) => self.earned = rest,
            None => self.control(limits)?,
        }
        Ok(())
    }

    /// A DATA frame was sent: the peer may answer it with WINDOW_UPDATE for stream and connection,
    /// and with PING.
    /// Small frames in the middle of a body earn nothing, lest a peer make all frames small.
    #[inline]
    pub(crate) fn sent(&mut self, length: usize, is_end: bool) {
        if is_end || length >= 256 {
            self.earned = (self.earned + 3).min(EARNED_MAX);
        }
    }
}
