//! What every WebSocket connection of a client needs, whoever feeds it: messages are read and
//! written, pings sent and answered, silent and stalled clients left, and the connection ended in
//! order.
//!
//! A session is polled by one task, whose wakers it keeps. It holds no buffer while nothing waits.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use component::handler::{LocalFuture, Services};
use component::long_work::poll_yield;
use component::stream::{Client, StopReason};
use net::websocket::{
    CloseCode, Deflate, Event, Kind, Limits, Reader, Role, Violation, Writer, frames_end,
};

/// How long a client may take nothing of what waits for it.
const STALL: Duration = Duration::from_secs(60);
/// How long the closing handshake and the end of the connection may take.
const FAREWELL: Duration = Duration::from_secs(5);
/// With more bytes than this waiting nothing more is read: a client that sends pings and does not
/// read the answers has to wait.
const WAITING_MAX: usize = 64 * 1024;

/// How many frames a task reads before other tasks have their turn.
const TURN: usize = 64;
/// A message counts as so many frames, for it starts a flow or an order, and as one more for each
/// of so many bytes, which count when they come, too: a message may be as long as is allowed.
const MESSAGE_COST: usize = 8;
const FRAME_BYTES: usize = 1024;

/// What a session goes by.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The most bytes of a message.
    pub message_max: usize,
    /// What the handshake has agreed on about compression.
    pub deflate: Option<Deflate>,
    /// After how long a silence of the client it is asked whether it is there, and how long it may
    /// take to answer.
    pub ping: Duration,
}

/// A WebSocket connection of a client.
pub struct Session {
    client: Box<dyn Client>,
    reader: Reader,
    writer: Writer,
    stage: Stage,
    /// Whether our close frame is written or waits.
    has_closed: bool,
    /// Frames for this client alone, and how much of them is written.
    own: Vec<u8>,
    written: usize,
    shared: Shared,
    watch: Watch,
    /// How many frames may still be read in this turn.
    turn: usize,
}

/// How far the connection is.
#[derive(Clone, Debug, PartialEq)]
enum Stage {
    Open,
    /// The client has said that it ends the connection.
    Closed(Option<CloseCode>),
    /// The client has broken the protocol or does not answer: it is told and left.
    Broken,
    /// There is no connection any more.
    Gone,
}

/// Where writing of frames stands that many clients get.
#[derive(Default)]
struct Shared {
    /// How much of a frame is not written yet: nothing else may come before it.
    rest: usize,
    /// Whether a write waits, which must be repeated with the same bytes.
    waits: bool,
}

/// Whether the client is there and takes what it gets.
struct Watch {
    ping: Duration,
    timer: Option<LocalFuture<'static, ()>>,
    /// How long nothing has come.
    silent: Duration,
    /// Whether something has come since the timer was set, or nobody has read.
    heard: bool,
    /// Whether somebody waits for what comes.
    is_reading: bool,
    /// Whether a ping is not answered yet.
    asked: bool,
    /// When bytes began to wait of which none has been taken since.
    stalled: Option<Instant>,
    /// The TLS records that the socket had taken when that was last looked at, in bytes.
    records: u64,
}

impl Session {
    /// Takes over a connection behind the handshake.
    pub fn new(client: Box<dyn Client>, options: Options) -> Self {
        let limits = Limits::of_message(options.message_max);
        Self {
            client,
            reader: Reader::new(Role::Server, limits, options.deflate),
            writer: Writer {
                role: Role::Server,
                deflate: options.deflate,
            },
            stage: Stage::Open,
            has_closed: false,
            own: Vec::new(),
            written: 0,
            shared: Shared::default(),
            turn: TURN,
            watch: Watch {
                ping: options.ping,
                timer: None,
                silent: Duration::ZERO,
                heard: false,
                is_reading: false,
                asked: false,
                stalled: None,
                records: 0,
            },
        }
    }

    /// Whether the connection is over, or the client is to be left: nothing more is to be done for
    /// it but [`Session::end`].
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Broken | Stage::Gone)
    }

    /// Begins a turn of the task that feeds the connection: to be called whenever it is polled. A
    /// client that always has frames ready would keep others from theirs otherwise.
    pub fn begin_turn(&mut self) {
        self.turn = TURN;
    }

    /// How many bytes of TLS records the socket has taken, see [`Client::records_taken`].
    pub fn records_taken(&self) -> u64 {
        self.client.records_taken()
    }

    /// How many bytes for this client alone wait to be written.
    pub fn waiting(&self) -> usize {
        self.own.len() - self.written
    }

    /// The next message; `None` when no more come: the client has ended the connection, or it
    /// [is over](Session::is_over). Not polling it holds the client back. What it answers by itself
    /// waits for [`Session::poll_flush`].
    /// Pending, too, when this turn has had its share of frames: the task is woken after others.
    pub fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Option<(Kind, Bytes)>> {
        self.watch.is_reading = false;
        while self.stage == Stage::Open {
            if self.waiting() > WAITING_MAX {
                return Poll::Pending;
            }
            if self.turn == 0 {
                poll_yield(context);
                return Poll::Pending;
            }
            if self.client.input().is_empty() {
                match self.client.poll_fill(context) {
                    Poll::Pending => {
                        self.watch.is_reading = true;
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(Ok(0) | Err(_)) => {
                        self.stage = Stage::Gone;
                        break;
                    }
                }
            }
            let before = self.reader.buffered();
            match self.reader.read(self.client.input()) {
                Ok((used, event)) => {
                    self.client.consume(used);
                    self.watch.asked = false;
                    let cost = match &event {
                        Some(Event::Message(_, payload)) => {
                            MESSAGE_COST + payload.len() / FRAME_BYTES
                        }
                        _ => {
                            let made = self.reader.buffered().saturating_sub(before);
                            1 + used.max(made) / FRAME_BYTES
                        }
                    };
                    self.turn = self.turn.saturating_sub(cost);
                    if let Some(message) = event.and_then(|event| self.take(event)) {
                        return Poll::Ready(Some(message));
                    }
                }
                Err(violation) => self.break_off(violation),
            }
        }
        Poll::Ready(None)
    }

    fn take(&mut self, event: Event) -> Option<(Kind, Bytes)> {
        match event {
            Event::Message(kind, payload) => {
                self.watch.heard = true;
                return Some((kind, payload));
            }
            Event::Ping(payload) if !self.has_closed => {
                self.watch.heard = true;
                self.writer.pong(&payload, &mut self.own);
            }
            Event::Ping(_) | Event::Pong(_) => {}
            Event::Close(why) => self.stage = Stage::Closed(why.map(|(code, _)| code)),
        }
        None
    }

    /// Tells the client what it has done. Whoever feeds the connection leaves it then.
    fn break_off(&mut self, violation: Violation) {
        tracing::debug!(target: "websocket", peer = %self.client.peer(), "{violation}");
        self.close(violation.code, violation.reason);
        self.stage = Stage::Broken;
    }

    /// Puts a message for this client alone behind what waits, unless nothing may be sent any more:
    /// whether it does. A text must be UTF-8.
    pub fn send(&mut self, kind: Kind, payload: &[u8]) -> bool {
        if !self.has_closed {
            self.writer.message(kind, payload, &mut self.own);
        }
        !self.has_closed
    }

    /// Puts a close frame behind what waits; nothing can be sent after it.
    pub fn close(&mut self, code: CloseCode, reason: &str) {
        if !self.has_closed {
            self.has_closed = true;
            self.writer.close(Some(code), reason, &mut self.own);
        }
    }

    /// Writes what waits for this client alone. While a part of a shared frame is written it is
    /// pending: the rest of that comes first.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.shared.rest > 0 || self.shared.waits {
            return Poll::Pending;
        }
        let was_full = self.waiting() > WAITING_MAX;
        while self.waiting() > 0 && self.stage != Stage::Gone {
            let bytes = self.own.get(self.written..).unwrap_or_default();
            let result = ready!(self.client.poll_write(context, bytes));
            self.written += self.note_written(result).unwrap_or_default();
        }
        self.own = Vec::new();
        self.written = 0;
        if was_full {
            // The client has been held back, and nothing else says that it may be read again.
            context.waker().wake_by_ref();
        }
        if self.stage != Stage::Gone {
            // An error shows with the next write or read.
            let _ = ready!(self.client.poll_flush(context));
        }
        Poll::Ready(())
    }

    /// Writes some of these bytes: frames of which each is the same for many clients, the last of
    /// them whole. What a call before has begun must come first. Ready with how many bytes are
    /// written: 0 when the connection [is over](Session::is_over), or nothing may be sent any more.
    pub fn poll_write_shared(&mut self, context: &mut Context<'_>, frames: &[u8]) -> Poll<usize> {
        if self.shared.rest == 0 && !self.shared.waits {
            ready!(self.poll_flush(context));
            if self.has_closed || self.stage == Stage::Gone {
                return Poll::Ready(0);
            }
        }
        let result = self.client.poll_write(context, frames);
        self.shared.waits = result.is_pending();
        let count = self.note_written(ready!(result)).unwrap_or_default();
        let begun = self.shared.rest;
        self.shared.rest = match count.checked_sub(begun) {
            _ if count == frames.len() => 0,
            None => begun - count,
            Some(past) => {
                let rest = frames.get(begun..).unwrap_or_default();
                frames_end(rest, past).saturating_sub(past)
            }
        };
        Poll::Ready(count)
    }

    fn note_written(&mut self, result: io::Result<usize>) -> Option<usize> {
        self.watch.stalled = None;
        if result.is_err() {
            self.stage = Stage::Gone;
        }
        result.ok()
    }

    /// As [`Client::stop_reason`].
    pub fn stop_reason(&self) -> StopReason {
        self.client.stop_reason()
    }

    /// As [`Client::poll_stop`].
    pub fn poll_stop(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.client.poll_stop(context)
    }

    /// Sends pings and sees whether they are answered, and whether the client takes what waits for
    /// it: `has_more` says whether shared frames do. Ready when the connection is over.
    pub fn poll_watch(
        &mut self,
        context: &mut Context<'_>,
        services: &dyn Services,
        has_more: bool,
    ) -> Poll<()> {
        while !self.is_over() {
            let period = self.watch.ping.min(STALL);
            let timer = &mut self.watch.timer;
            let timer = timer.get_or_insert_with(|| services.sleep(period));
            ready!(timer.as_mut().poll(context));
            self.watch.timer = None;
            self.look(services.now(), period, has_more);
        }
        Poll::Ready(())
    }

    fn look(&mut self, now: Instant, period: Duration, has_more: bool) {
        let waits = self.waiting() > 0 || has_more;
        let records = self.records_taken();
        if records != self.watch.records {
            self.watch.records = records;
            self.watch.stalled = None;
        }
        match self.watch.stalled {
            None if waits => self.watch.stalled = Some(now),
            Some(since) if waits && now.saturating_duration_since(since) >= STALL => {
                tracing::debug!(target: "websocket", peer = %self.client.peer(), "takes nothing");
                self.stage = Stage::Gone;
                return;
            }
            _ => {}
        }
        // Nobody knows whether a client is there that is held back.
        if std::mem::take(&mut self.watch.heard) || !self.watch.is_reading {
            self.watch.asked = false;
            self.watch.silent = Duration::ZERO;
            return;
        }
        self.watch.silent += period;
        if self.watch.silent < self.watch.ping {
            return;
        }
        self.watch.silent = Duration::ZERO;
        if self.watch.asked {
            self.break_off(Violation {
                code: CloseCode::INTERNAL,
                reason: "no answer to a ping",
            });
        } else if !self.has_closed {
            self.watch.asked = true;
            self.writer.ping(b"", &mut self.own);
        }
    }

    /// Ends the connection in order, in a bounded time: writes what waits, says and hears that it
    /// ends (RFC 6455, section 7.1), and closes it.
    pub async fn end(&mut self, services: &dyn Services) {
        if self.stage == Stage::Gone || self.shared.rest > 0 {
            return;
        }
        if let Stage::Closed(code) = &self.stage
            && !self.has_closed
        {
            self.has_closed = true;
            self.writer.close(*code, "", &mut self.own);
        }
        self.close(CloseCode::NORMAL, "");
        let mut timer = services.sleep(FAREWELL);
        poll_fn(|context| match self.poll_farewell(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => timer.as_mut().poll(context),
        })
        .await;
    }

    fn poll_farewell(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.begin_turn();
        ready!(self.poll_flush(context));
        while self.stage == Stage::Open {
            // Messages that come now count no more.
            ready!(self.poll_message(context));
        }
        if self.stage == Stage::Gone {
            return Poll::Ready(());
        }
        // How it ended is nobody's business any more.
        self.client.poll_finish(context).map(drop)
    }
}

#[cfg(test)]
mod tests;
