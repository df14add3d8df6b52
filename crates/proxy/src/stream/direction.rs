//! One direction of a tunnel: frames pass from one connection to the other as their bytes arrive.

use std::task::{Context, Poll};

use component::observe::Counter;
use net::http1::TransferError;

use crate::relay::pump;
use crate::relay::tap::{Rest, Tap, TapState, Tapped};
use crate::stream::byte_stream::{ByteSink, ByteSource, ByteStream};
use crate::stream::frames::{Frames, Part};
use crate::stream::gate::{Gate, Verdict};

/// One direction of a tunnel. What waits lies in the source's input buffer, and nothing more is
/// read before the sink has taken it.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    frames: Frames,
    tap: TapState<Stop>,
    /// Whether it stops between two frames.
    holds: bool,
    /// How many bytes have been read or written; tells progress.
    pub moved: u64,
}

/// Why nothing more passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The source has ended or broken.
    Source,
    /// The sink has broken.
    Sink,
    /// The next message is above the limit.
    OverLimit,
    /// What the source sends is no frame.
    Malformed,
    /// It was asked to hold, and is between two frames.
    Held,
}

impl Direction {
    /// Whether a frame of our own can be sent in this direction: none is under way, and none has
    /// said that it was the last.
    pub fn takes_a_frame(&self) -> bool {
        self.is_between() && !self.frames.has_close
    }

    /// Whether no frame is under way.
    pub fn is_between(&self) -> bool {
        self.tap.is_drained() && self.frames.is_between()
    }

    /// Stops behind the frame that is under way.
    pub fn hold(&mut self) {
        self.holds = true;
        if self.frames.is_between() {
            self.tap.stop(Stop::Held);
        }
    }

    /// Lets pass what can pass now.
    pub fn poll(
        &mut self,
        context: &mut Context<'_>,
        (source, sink): (
            &mut (impl ByteStream + ?Sized),
            &mut (impl ByteStream + ?Sized),
        ),
        gate: &mut Gate,
        counter: &Counter,
    ) -> Poll<Stop> {
        let mut from = ByteSource {
            stream: source,
            moved: &mut self.moved,
        };
        let mut frames = FrameTap {
            frames: &mut self.frames,
            holds: self.holds,
            gate,
            counter,
        };
        let mut from = Tapped::new(&mut from, &mut frames, &mut self.tap);
        let pumped = pump(context, &mut from, &mut ByteSink::new(sink));
        let stop = match (pumped, self.tap.stopped()) {
            (Poll::Ready(Err(TransferError::Sink(_))), _) => return Poll::Ready(Stop::Sink),
            (Poll::Ready(Err(TransferError::Source(_))), _) => Stop::Source,
            (_, Some(stop)) => stop,
            (_, None) => return Poll::Pending,
        };
        // What the sink holds back goes out, if it takes it now.
        match sink.poll_flush(context) {
            Poll::Ready(Err(_)) => Poll::Ready(Stop::Sink),
            _ => Poll::Ready(stop),
        }
    }
}

/// Follows the frames, counts those that carry data, and stops between two of them.
struct FrameTap<'a> {
    frames: &'a mut Frames,
    holds: bool,
    gate: &'a mut Gate,
    counter: &'a Counter,
}

impl Tap for FrameTap<'_> {
    type Stop = Stop;

    fn look(&mut self, bytes: &[u8]) -> (usize, Rest<Stop>) {
        let mut at = 0;
        let rest = loop {
            if self.holds && self.frames.is_between() {
                break Rest::Stop(Stop::Held);
            }
            match self.frames.look(bytes.get(at..).unwrap_or_default()) {
                Part::Payload(0) | Part::NeedMore => break Rest::More,
                Part::Malformed => break Rest::Stop(Stop::Malformed),
                Part::Payload(count) => {
                    self.frames.pass(count);
                    at += count;
                }
                Part::Header(header) => {
                    if header.is_data() {
                        match self.gate.ask() {
                            Verdict::Pass => self.counter.add(1),
                            Verdict::Wait => break Rest::Wait,
                            Verdict::Close => break Rest::Stop(Stop::OverLimit),
                        }
                    }
                    self.frames.enter(header);
                    at += header.length;
                }
            }
        };
        (at, rest)
    }

    fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.gate.poll(context)
    }
}

#[cfg(test)]
mod tests;
