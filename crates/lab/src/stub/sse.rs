//! `stub sse`: server-sent events (WHATWG HTML, section 9.2) at fixed instants. Each has its number
//! as its id, and in its data the instant for which it was scheduled.

use std::io;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep_until};

use super::request::{self, Request};
use super::serve::Service;
use crate::stamp;
use crate::wire::Buffer;

/// Events that are due already are written so many bytes at once.
const BATCH: usize = 64 * 1024;

/// Where instants are counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Clock {
    /// From the request: each client has a schedule of its own, and begins with event 1.
    Connection,
    /// From the start of the stub: all clients get the same events, from the next one on.
    Shared,
}

/// What the events are.
#[derive(Clone, Debug)]
pub(super) struct Emitter {
    pub every: Duration,
    /// The bytes of an event's data.
    pub size: usize,
    /// How many events there are; 0: no end.
    pub count: u64,
    pub clock: Clock,
    /// When the shared clock began.
    pub start: Beginning,
}

/// An instant, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning {
    pub instant: Instant,
    /// Microseconds since 1970.
    pub at: u64,
}

impl Beginning {
    /// Now.
    pub fn now() -> Self {
        Self {
            instant: Instant::now(),
            at: stamp::now(),
        }
    }
}

/// The events that one client gets.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    /// When event 0 would have been due.
    origin: Beginning,
    every: Duration,
    next: u64,
    /// The last event; 0: none is.
    last: u64,
}

impl Schedule {
    fn is_over(&self) -> bool {
        self.last > 0 && self.next > self.last
    }

    fn due(&self, number: u64) -> Duration {
        let nanoseconds = self.every.as_nanos().saturating_mul(u128::from(number));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

impl Emitter {
    /// What a client gets that has seen events up to `seen`, or none.
    fn schedule(&self, seen: Option<u64>) -> Schedule {
        let (origin, next) = match self.clock {
            Clock::Shared => {
                let begun = self.start.instant.elapsed().as_nanos();
                let passed = begun / self.every.as_nanos().max(1);
                let coming = u64::try_from(passed).unwrap_or(u64::MAX).saturating_add(1);
                let next = seen.map_or(coming, |seen| seen.saturating_add(1));
                // An id from the future is none of this stub's.
                (self.start, next.min(coming))
            }
            Clock::Connection => {
                let next = seen.map_or(1, |seen| seen.saturating_add(1));
                let mut schedule = Schedule {
                    origin: Beginning::now(),
                    every: self.every,
                    next,
                    last: self.count,
                };
                let before = schedule.due(next.saturating_sub(1));
                let instant = schedule.origin.instant.checked_sub(before);
                schedule.origin = Beginning {
                    instant: instant.unwrap_or(schedule.origin.instant),
                    at: schedule.origin.at.saturating_sub(stamp::micros(before)),
                };
                return schedule;
            }
        };
        Schedule {
            origin,
            every: self.every,
            next,
            last: self.count,
        }
    }

    /// Adds the events that are due, as many as one write takes.
    fn write_due(&self, schedule: &mut Schedule, is_chunked: bool, out: &mut Vec<u8>) {
        let mut event = Vec::new();
        while out.len() < BATCH && !schedule.is_over() {
            let due = schedule.due(schedule.next);
            if schedule.origin.instant + due > Instant::now() {
                return;
            }
            event.clear();
            // invariant: writing to a Vec does not fail.
            let _ = write!(event, "id: {}\ndata: ", schedule.next);
            let at = schedule.origin.at + stamp::micros(due);
            stamp::write(schedule.next, at, self.size, &mut event);
            event.extend_from_slice(b"\n\n");
            if is_chunked {
                let _ = write!(out, "{:x}\r\n", event.len());
            }
            out.extend_from_slice(&event);
            if is_chunked {
                out.extend_from_slice(b"\r\n");
            }
            schedule.next += 1;
        }
    }

    async fn emit(
        &self,
        mut schedule: Schedule,
        is_chunked: bool,
        (input, output): (&mut ReadHalf<'_>, &mut WriteHalf<'_>),
    ) -> io::Result<()> {
        let mut out = Vec::new();
        let mut ignored = [0; 512];
        while !schedule.is_over() {
            let due = schedule.origin.instant + schedule.due(schedule.next);
            tokio::select! {
                () = sleep_until(due) => {}
                // A client that goes is noticed; what it says is not.
                count = input.read(&mut ignored) => match count? {
                    0 => return Ok(()),
                    _ => continue,
                },
            }
            self.write_due(&mut schedule, is_chunked, &mut out);
            output.write_all(&out).await?;
            out.clear();
        }
        if is_chunked {
            output.write_all(b"0\r\n\r\n").await?;
        }
        Ok(())
    }
}

impl Service for Emitter {
    async fn connection(self: Arc<Self>, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = Buffer::default();
        while let Some(request) = request::read(&mut stream, &mut input).await? {
            let head = match self.refusal(&request) {
                Some(refusal) => refusal.to_owned(),
                None => head(&request),
            };
            stream.write_all(head.as_bytes()).await?;
            if self.refusal(&request).is_none() && request.method == "GET" {
                let seen = last_event_id(&request);
                let (mut read, mut write) = stream.split();
                let halves = (&mut read, &mut write);
                self.emit(self.schedule(seen), !request.is_old, halves)
                    .await?;
            }
            if request.is_last() {
                break;
            }
        }
        stream.shutdown().await
    }
}

impl Emitter {
    fn refusal(&self, request: &Request) -> Option<&'static str> {
        if request.method != "GET" && request.method != "HEAD" {
            return Some(
                "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET\r\nContent-Length: 0\r\n\r\n",
            );
        }
        // An EventSource that has got everything is told not to come again.
        let seen = last_event_id(request).unwrap_or(0);
        let is_over = self.count > 0 && seen >= self.count;
        is_over.then_some("HTTP/1.1 204 No Content\r\n\r\n")
    }
}

fn last_event_id(request: &Request) -> Option<u64> {
    let text = std::str::from_utf8(request.field("last-event-id")?).ok()?;
    text.trim().parse().ok()
}

fn head(request: &Request) -> String {
    let framing = match (request.is_old, request.is_last()) {
        (true, _) => "Connection: close\r\n",
        (_, true) => "Transfer-Encoding: chunked\r\nConnection: close\r\n",
        _ => "Transfer-Encoding: chunked\r\n",
    };
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\
         {framing}\r\n"
    )
}

#[cfg(test)]
mod tests;
