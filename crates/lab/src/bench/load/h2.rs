//! Users over one HTTP/2 connection (RFC 9113): a client that sends the same fields each time, so
//! that its header blocks are four indices (RFC 7541), and that writes once for all requests which
//! the replies of one read make possible.

mod frame;

use std::collections::HashMap;
use std::time::Instant;

use anyhow::{bail, ensure};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::Work;
use crate::bench::body::{Expected, Numbered};
use crate::bench::stats::Failure;
use crate::wire::Buffer;
use frame::{Frame, Kind};

/// What the peer may send on one stream, and on the connection, before it must wait.
const WINDOW: u32 = 16 * 1024 * 1024;
const CONNECTION_WINDOW: u32 = 1 << 30;

/// A request that waits for its reply.
struct Slot {
    started: Instant,
    number: u64,
    /// The status, once the head of the reply has come.
    is_good: Option<bool>,
    body: Vec<u8>,
}

/// Limits that the peer has set.
struct Limits {
    stream_window: i64,
    streams: usize,
    table: u32,
}

struct Client<'a> {
    work: &'a Work,
    index: usize,
    out: Vec<u8>,
    slots: HashMap<u32, Slot>,
    spare: Vec<Vec<u8>>,
    next_id: u32,
    /// The fields, once they are in the peer's table.
    indexed: Option<Vec<u8>>,
    sent: Numbered,
    expected: Expected,
    limits: Limits,
    window: i64,
    received: u32,
    has_settings: bool,
    now: Instant,
}

/// Sends requests until the connection ends.
pub(super) async fn run<S>(mut stream: S, work: &Work, index: usize) -> anyhow::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut input = Buffer::default();
    let mut client = Client::new(work, index);
    frame::put_preface(&mut client.out, WINDOW, CONNECTION_WINDOW);
    loop {
        if client.has_settings && work.pace.is_none() {
            while client.has_room() {
                let now = client.now;
                client.start(now)?;
            }
        }
        if !client.out.is_empty() {
            stream.write_all(&client.out).await?;
            stream.flush().await?;
            client.out.clear();
        }
        let is_open = match &work.pace {
            Some(pace) if client.has_settings && client.has_room() => tokio::select! {
                biased;
                is_open = input.read(&mut stream) => is_open?,
                due = pace.next() => {
                    client.start(due)?;
                    continue;
                }
            },
            _ => input.read(&mut stream).await?,
        };
        ensure!(is_open, "the peer closed the connection");
        client.now = Instant::now();
        while let Some((frame, taken)) = Frame::read(input.bytes())? {
            client.take(frame)?;
            input.take(taken);
        }
    }
}

impl<'a> Client<'a> {
    fn new(work: &'a Work, index: usize) -> Self {
        Self {
            work,
            index,
            out: Vec::new(),
            slots: HashMap::new(),
            spare: Vec::new(),
            next_id: 1,
            indexed: None,
            sent: work.plan.bodies.sent.clone(),
            expected: work.plan.bodies.expected.clone(),
            limits: Limits {
                stream_window: 65_535,
                streams: usize::MAX,
                table: 4096,
            },
            window: 65_535,
            received: 0,
            has_settings: false,
            now: Instant::now(),
        }
    }

    /// Whether another request may begin.
    fn has_room(&self) -> bool {
        let streams = self.work.plan.streams.each.min(self.limits.streams);
        self.slots.len() < streams && self.window >= self.sent.len() as i64
    }

    fn start(&mut self, started: Instant) -> anyhow::Result<()> {
        let length = self.sent.len();
        ensure!(
            length <= frame::DATA_MAX,
            "the body is too long for one frame"
        );
        ensure!(
            length as i64 <= self.limits.stream_window,
            "the peer's window is too small"
        );
        let id = self.next_id;
        self.next_id += 2;
        match &self.indexed {
            Some(block) => frame::put_headers(&mut self.out, id, block),
            None => self.put_first_headers(id),
        }
        let number = self.work.next_number();
        frame::put_data(&mut self.out, id, self.sent.with(number));
        self.window -= length as i64;
        let slot = Slot {
            started,
            number,
            is_good: None,
            body: self.spare.pop().unwrap_or_default(),
        };
        self.slots.insert(id, slot);
        Ok(())
    }

    /// Sends the fields in full; when the peer keeps a table, they are in it from then on.
    fn put_first_headers(&mut self, id: u32) {
        let plan = &self.work.plan;
        let (authority, length) = (plan.address.to_string(), plan.bodies.sent.len().to_string());
        let fields = [
            (frame::PATH, plan.path.as_str()),
            (frame::AUTHORITY, &authority),
            (frame::CONTENT_TYPE, "application/json"),
            (frame::CONTENT_LENGTH, &length),
        ];
        let keeps = self.limits.table >= 4096;
        let block = frame::first_block(&fields, plan.tls.is_some(), keeps);
        frame::put_headers(&mut self.out, id, &block);
        if keeps {
            self.indexed = Some(frame::indexed_block(fields.len(), plan.tls.is_some()));
        }
    }

    fn take(&mut self, frame: Frame<'_>) -> anyhow::Result<()> {
        match frame.kind {
            Kind::Data => {
                self.count(frame.length);
                if let Some(slot) = self.slots.get_mut(&frame.stream) {
                    slot.body.extend_from_slice(frame.payload);
                }
            }
            Kind::Headers => {
                if let Some(slot) = self.slots.get_mut(&frame.stream) {
                    // What follows the first are trailers.
                    slot.is_good
                        .get_or_insert(frame::is_status_200(frame.payload));
                }
            }
            Kind::Settings if !frame.is_ack() => self.settings(frame.payload),
            Kind::Ping if !frame.is_ack() => frame::put_pong(&mut self.out, frame.payload),
            Kind::WindowUpdate if frame.stream == 0 => {
                self.window += i64::from(frame::number(frame.payload));
            }
            Kind::Reset => self.reset(frame.stream, frame::number(frame.payload)),
            Kind::GoAway => bail!("the peer goes away: {:02x?}", frame.payload),
            _ => {}
        }
        if frame.ends_stream() {
            self.finish(frame.stream);
        }
        Ok(())
    }

    fn reset(&mut self, id: u32, code: u32) {
        if self.slots.remove(&id).is_some() {
            let detail = || format!("the stream was reset with {code}");
            self.work.error(Failure::Connection, detail);
        }
    }

    fn finish(&mut self, id: u32) {
        let Some(mut slot) = self.slots.remove(&id) else {
            return;
        };
        if slot.is_good != Some(true) {
            self.work
                .error(Failure::Status, || "a status other than 200".to_owned());
        } else if !self.expected.is(slot.number, &slot.body) {
            self.work.error(Failure::Body, || {
                let wanted = self.expected.with(slot.number);
                let [wanted, body] = [wanted, &slot.body].map(String::from_utf8_lossy);
                format!("expected {wanted}, got {body}")
            });
        } else {
            self.work
                .reply(self.index, slot.number, slot.started, self.now);
        }
        slot.body.clear();
        self.spare.push(slot.body);
    }

    /// Gives the connection's window back when half of it is used.
    fn count(&mut self, length: usize) {
        self.received += u32::try_from(length).unwrap_or(0);
        if self.received > CONNECTION_WINDOW / 2 {
            frame::put_window(&mut self.out, self.received);
            self.received = 0;
        }
    }

    fn settings(&mut self, payload: &[u8]) {
        for entry in payload.chunks_exact(6) {
            let (name, value) = entry.split_at(2);
            let value = frame::number(value);
            match name {
                [0, 1] => self.limits.table = value,
                [0, 3] => self.limits.streams = value as usize,
                [0, 4] => self.limits.stream_window = i64::from(value),
                _ => {}
            }
        }
        frame::put_settings_ack(&mut self.out);
        if !self.has_settings {
            self.has_settings = true;
            self.now = Instant::now();
        }
    }
}
