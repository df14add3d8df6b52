//! One direction of a tunnel: frames pass from one connection to the other as their bytes arrive.

use std::io;
use std::task::{Context, Poll, ready};

use component::observe::Counter;
use component::stream::Client;
use net::Connection;

use crate::stream::frames::{Frames, Part};
use crate::stream::gate::{Gate, Verdict};

/// One side of a tunnel.
pub(crate) trait End {
    fn fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>>;
    fn input(&self) -> &[u8];
    fn consume(&mut self, count: usize);
    fn write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    fn flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl End for Connection {
    fn fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.poll_fill(context)
    }

    fn input(&self) -> &[u8] {
        self.input.bytes()
    }

    fn consume(&mut self, count: usize) {
        self.input.consume(count);
    }

    fn write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write(context, bytes)
    }

    fn flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

impl End for dyn Client + '_ {
    fn fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.poll_fill(context)
    }

    fn input(&self) -> &[u8] {
        Client::input(self)
    }

    fn consume(&mut self, count: usize) {
        Client::consume(self, count);
    }

    fn write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write(context, bytes)
    }

    fn flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

/// One direction of a tunnel. What waits lies in the source's input buffer, and nothing more is
/// read before the sink has taken it.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    frames: Frames,
    /// How many bytes at the front of the source's input may pass.
    ready: usize,
    /// Whether a message is above the limit.
    is_over: bool,
    /// Whether it stops between two frames.
    pub holds: bool,
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

/// What can be done with the input.
enum Look {
    /// Some of it may pass.
    Ready,
    /// More is needed.
    NeedMore,
    /// The next message has to wait.
    Wait,
    Stop(Stop),
}

impl Direction {
    /// Whether a frame of our own can be sent in this direction: none is under way, and none has
    /// said that it was the last.
    pub fn takes_a_frame(&self) -> bool {
        self.is_between() && !self.frames.has_close
    }

    /// Whether no frame is under way.
    pub fn is_between(&self) -> bool {
        self.ready == 0 && self.frames.is_between()
    }

    /// Lets pass what can pass now.
    pub fn poll(
        &mut self,
        context: &mut Context<'_>,
        (source, sink): (&mut (impl End + ?Sized), &mut (impl End + ?Sized)),
        gate: &mut Gate,
        counter: &Counter,
    ) -> Poll<Stop> {
        loop {
            while self.ready > 0 {
                let bytes = source.input().get(..self.ready).unwrap_or_default();
                let Ok(count) = ready!(sink.write(context, bytes)) else {
                    return Poll::Ready(Stop::Sink);
                };
                source.consume(count);
                self.ready -= count;
                self.moved += count as u64;
            }
            // What the sink holds back goes out while more is waited for.
            if let Poll::Ready(Err(_)) = sink.flush(context) {
                return Poll::Ready(Stop::Sink);
            }
            match self.look(source.input(), gate, counter) {
                Look::Ready => {}
                Look::Stop(stop) => return Poll::Ready(stop),
                Look::Wait => ready!(gate.poll(context)),
                Look::NeedMore => match ready!(source.fill(context)) {
                    Ok(count) if count > 0 => self.moved += count as u64,
                    _ => return Poll::Ready(Stop::Source),
                },
            }
        }
    }

    /// Finds out how many bytes may pass.
    fn look(&mut self, bytes: &[u8], gate: &mut Gate, counter: &Counter) -> Look {
        let mut at = 0;
        let why = loop {
            if self.holds && self.frames.is_between() {
                break Look::Stop(Stop::Held);
            }
            match self.frames.look(bytes.get(at..).unwrap_or_default()) {
                Part::Payload(0) | Part::NeedMore => break Look::NeedMore,
                Part::Malformed => break Look::Stop(Stop::Malformed),
                Part::Payload(count) => {
                    self.frames.pass(count);
                    at += count;
                }
                Part::Header(header) => {
                    if header.is_data() {
                        if let Some(why) = self.refuse(gate) {
                            break why;
                        }
                        counter.add(1);
                    }
                    self.frames.enter(header);
                    at += header.length;
                }
            }
        };
        self.ready = at;
        if at > 0 { Look::Ready } else { why }
    }

    /// Why a message cannot pass now, if it cannot.
    fn refuse(&mut self, gate: &mut Gate) -> Option<Look> {
        if !self.is_over {
            match gate.ask() {
                Verdict::Pass => return None,
                Verdict::Wait => return Some(Look::Wait),
                Verdict::Close => self.is_over = true,
            }
        }
        Some(Look::Stop(Stop::OverLimit))
    }
}
