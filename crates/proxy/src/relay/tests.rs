//! Seeded schedules of the relay: one exchange between a client and a back end that give and take
//! bytes as the seed says, answer before they have read the request, stop reading, cut and close.
//!
//! `RELAY_SCHEDULES` says how many, `RELAY_SEED` where they begin.

mod over_http2;

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use component::forward::ForwardPlan;
use component::upstream::UpstreamPlan;
use fastrand::Rng;
use message::{HeadersView, Method};
use net::deadline::{Deadline, Deadlines};
use net::http1::{
    BodyDecoder, BodyReader, BodyWriter, End, Framing, HeadLimits, Piece, ResponseHead,
    TransferError,
};
use net::{Buffer, Output, Transport};

use super::downstream_http1::Http1Downstream;
use super::downstream_http2::Http2Downstream;
use super::exchange::{Exchange, Reply, Terms};
use super::failure::{ClientGone, Failed, Failure};
use super::send::{Order, send};
use super::upstream_http1::Http1Upstream;
use super::{Download, Downstream, Progress, ReplyHead, Sink, Source, Times};
use crate::upstream::request_head::{CameBy, Outgoing, SentBy};

const SCHEDULES: u64 = 100_000;
const LIMITS: HeadLimits = HeadLimits {
    bytes: 8192,
    fields: 64,
};
const CLIENT_HEAD: &[u8] = b"POST /client HTTP/1.1\r\nHost: a\r\n\r\n";
const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n";
/// More polls than any schedule needs that does not stand still.
const POLLS_MAX: usize = 50_000;

/// So many letters.
pub(crate) fn random_bytes(random: &mut Rng, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.u8(b'a'..=b'z')).collect()
}

/// One end of a connection, with what the other side will do.
struct Wire {
    random: Rng,
    input: Buffer,
    /// What the other side sends, and how much of it has come.
    incoming: Vec<u8>,
    arrived: usize,
    /// It is sent once so many bytes have been written here.
    trigger: usize,
    /// Whether the other side closes behind it.
    closes: bool,
    /// The other side takes no more than this.
    capacity: usize,
    /// What the other side has got, and what waits here as TLS records would.
    written: Vec<u8>,
    records: Vec<u8>,
    has_records: bool,
}

impl Wire {
    fn new(random: &mut Rng, incoming: Vec<u8>, trigger: usize) -> Self {
        Self {
            has_records: random.bool(),
            random: random.clone(),
            input: Buffer::default(),
            incoming,
            arrived: 0,
            trigger,
            closes: false,
            capacity: usize::MAX,
            written: Vec::new(),
            records: Vec::new(),
        }
    }

    /// What has come and not been used, and what is still to come.
    fn unused(&self) -> Vec<u8> {
        [self.input.bytes(), &self.incoming[self.arrived..]].concat()
    }

    fn take_records(&mut self) -> bool {
        let room = self.capacity - self.written.len().min(self.capacity);
        let most = room.min(self.records.len());
        let count = self.random.usize(1..=20_000).min(most);
        self.written.extend(self.records.drain(..count));
        count > 0
    }
}

impl Output for Wire {
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.has_records {
            if self.poll_flush(context).is_pending() {
                return Poll::Pending;
            }
            let count = bytes.len().min(16_384);
            self.records.extend_from_slice(&bytes[..count]);
            return Poll::Ready(Ok(count));
        }
        let room = self.capacity - self.written.len().min(self.capacity);
        if self.random.u8(..3) == 0 || room == 0 {
            return Poll::Pending;
        }
        let most = [1, 50, 5_000, 50_000][self.random.usize(..4)];
        let count = bytes.len().min(most).min(room);
        self.written.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        !self.has_records
    }

    fn poll_write_vectored(
        &mut self,
        context: &mut Context<'_>,
        slices: [&[u8]; 2],
    ) -> Poll<io::Result<usize>> {
        self.poll_write(context, &slices.concat())
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.records.is_empty() {
            self.take_records();
        }
        match self.records.is_empty() {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }
}

impl Transport for Wire {
    fn input(&self) -> &Buffer {
        &self.input
    }

    fn input_mut(&mut self) -> &mut Buffer {
        &mut self.input
    }

    fn poll_fill(&mut self, _: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Reading flushes, as a TLS connection does.
        self.take_records();
        let is_sent = self.written.len() >= self.trigger.min(self.capacity);
        if self.random.u8(..3) == 0 || !is_sent {
            return Poll::Pending;
        }
        let rest = &self.incoming[self.arrived..];
        if rest.is_empty() {
            return match self.closes {
                true => Poll::Ready(Ok(0)),
                false => Poll::Pending,
            };
        }
        let most = [1, 7, 300, 20_000][self.random.usize(..4)];
        let space = self.input.space();
        let count = rest.len().min(most).min(space.len());
        space[..count].copy_from_slice(&rest[..count]);
        self.input.filled(count);
        self.arrived += count;
        Poll::Ready(Ok(count))
    }

    fn is_flushed(&self) -> bool {
        self.records.is_empty()
    }
}

/// A body as it is on the wire.
struct WireBody {
    framing: Framing,
    content: Vec<u8>,
    bytes: Vec<u8>,
}

fn body(random: &mut Rng, framing: Framing) -> WireBody {
    let length = [0, 1, 300, 5_000, 40_000][random.usize(..5)];
    let length = random.usize(..=length);
    let content = match framing {
        Framing::None => Vec::new(),
        _ => random_bytes(random, length),
    };
    let framing = match framing {
        Framing::Length(_) => Framing::Length(content.len() as u64),
        framing => framing,
    };
    let bytes = match framing {
        Framing::Chunked => chunks(random, &content),
        _ => content.clone(),
    };
    WireBody {
        framing,
        content,
        bytes,
    }
}

fn chunks(random: &mut Rng, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = content;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.len().min(random.usize(1..=3000)));
        let extension = if random.u8(..4) == 0 { ";a=b" } else { "" };
        out.extend_from_slice(format!("{:x}{extension}\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
        rest = behind;
    }
    let trailer = if random.u8(..3) == 0 {
        "X-Sum: 1\r\n"
    } else {
        ""
    };
    out.extend_from_slice(format!("0\r\n{trailer}\r\n").as_bytes());
    out
}

/// The content of a body, as far as it is there, and whether that is all.
pub(crate) fn decoded(framing: Framing, bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut decoder = BodyDecoder::new(framing, LIMITS);
    let (mut content, mut rest) = (Vec::new(), bytes);
    loop {
        let count = match decoder.next(rest).unwrap() {
            Piece::End => {
                assert!(rest.is_empty(), "bytes behind the body");
                return (content, true);
            }
            Piece::NeedMore => return (content, false),
            Piece::Data(count) => {
                content.extend_from_slice(&rest[..count]);
                count
            }
            Piece::Overhead(count) | Piece::Trailers(count) | Piece::Skip(count) => count,
        };
        rest = &rest[count..];
    }
}

/// A client whose request is read by the real reader, and which takes its reply piece by piece.
struct Client {
    random: Rng,
    wire: Wire,
    framing: Framing,
    method: Method,
    reader: BodyReader,
    deadline: Deadline,
    wants_raw: bool,
    status: u16,
    download: Option<Download>,
    reply: Vec<u8>,
    has_end: bool,
    interims: usize,
}

impl Source for Client {
    fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut Context<'_>, &[u8], End<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), TransferError>> {
        self.reader.poll_take(context, &mut self.wire, take)
    }

    fn is_ended(&self) -> bool {
        self.reader.is_ended()
    }

    fn moved(&self) -> u64 {
        self.reader.moved()
    }
}

impl Sink for Client {
    fn poll_accept(
        &mut self,
        _: &mut Context<'_>,
        bytes: &[u8],
        end: End<'_>,
    ) -> Poll<io::Result<usize>> {
        assert!(!self.has_end, "something comes behind the end");
        if self.random.u8(..4) == 0 {
            return Poll::Pending;
        }
        let count = bytes.len().min(self.random.usize(1..=9_000));
        self.reply.extend_from_slice(&bytes[..count]);
        self.has_end = end.is_end() && count == bytes.len();
        Poll::Ready(Ok(count))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.random.u8(..4) == 0 {
            true => Poll::Pending,
            false => Poll::Ready(Ok(())),
        }
    }

    fn sent(&self) -> u64 {
        self.reply.len() as u64
    }
}

impl Downstream for Client {
    fn request(&self) -> Outgoing<'_> {
        Outgoing {
            method: &self.method,
            query: None,
            rest: None,
            headers: HeadersView::new(&[], &[]),
            connection: None,
            framing: self.framing,
            upgrades: false,
            peer: [127, 0, 0, 1].into(),
            sent_by: SentBy::Peer(None),
            is_secure: false,
            came_by: CameBy::Http1,
            strip: &[],
            identity_field: None,
            caller: None,
        }
    }

    fn can_rewind(&self) -> bool {
        self.reader.can_rewind()
    }

    fn rewind(&mut self) {
        self.reader.rewind();
    }

    fn answered(&mut self) {
        self.reader.commit(&mut self.wire.input);
    }

    fn is_starving(&self) -> bool {
        self.reader.is_starving()
    }

    fn received(&self) -> u64 {
        self.reader.taken()
    }

    fn interim(&mut self, head: &ReplyHead<'_>, _: &ForwardPlan) {
        assert_eq!(head.status, 102);
        self.interims += 1;
    }

    fn begin_reply(
        &mut self,
        head: &ReplyHead<'_>,
        _: &ForwardPlan,
    ) -> Result<Download, ClientGone> {
        self.status = head.status;
        let download = match head.framing {
            Framing::None => Download::Nothing,
            Framing::Chunked if self.wants_raw => Download::Raw,
            _ => Download::Content,
        };
        self.download = Some(download);
        Ok(download)
    }

    fn withdraw_reply(&mut self) -> bool {
        false
    }

    fn poll_disconnected(&mut self, _: &mut Context<'_>, _: bool) -> bool {
        false
    }

    fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    fn recycle(&self, _: Vec<u8>) {}
}

/// What a back end does with one request.
struct Script {
    wire: Wire,
    status: u16,
    body: WireBody,
    interims: usize,
    /// Whether the reply says `Connection: close`.
    says_close: bool,
    /// Whether something follows the reply.
    has_more: bool,
    /// Whether the reply is cut short, and whether its head is there then.
    is_cut: bool,
    has_head: bool,
}

impl Script {
    /// A back end that does whatever back ends do.
    fn any(random: &mut Rng, request_length: usize) -> Self {
        let framing = [
            Framing::None,
            Framing::Length(0),
            Framing::Chunked,
            Framing::UntilClose,
        ][random.usize(..4)];
        let mut script = Self::answering(random, framing);
        let early = [0, 1, request_length / 2, request_length][random.usize(..4)];
        script.wire.trigger = early;
        if random.u8(..4) == 0 {
            // It reads no further.
            script.wire.capacity = early.max(1) + random.usize(..100);
        }
        script.has_more = random.u8(..8) == 0 && framing != Framing::UntilClose;
        if script.has_more {
            script
                .wire
                .incoming
                .extend_from_slice(b"HTTP/1.1 200 OK\r\n\r\n");
        } else if random.u8(..5) == 0 {
            let length = script.wire.incoming.len();
            script.cut(random.usize(..length));
        }
        script
    }

    /// Closes behind so many bytes of the reply.
    fn cut(&mut self, length: usize) {
        let heads = self.wire.incoming.len() - self.body.bytes.len();
        self.wire.incoming.truncate(length);
        self.wire.closes = true;
        self.has_head = length >= heads;
        // The end of the connection is a proper end of such a body.
        self.is_cut = !(self.has_head && self.body.framing == Framing::UntilClose);
        if !self.is_cut {
            self.body.content.truncate(length - heads);
        }
    }

    /// A back end that reads the request and answers.
    fn answering(random: &mut Rng, framing: Framing) -> Self {
        let body = body(random, framing);
        let status = match framing {
            Framing::None => 204,
            _ => 200,
        };
        let says_close = random.u8(..5) == 0;
        let interims = random.usize(..3);
        let mut reply = b"HTTP/1.1 102 Processing\r\nA: b\r\n\r\n".repeat(interims);
        let framing = match body.framing {
            Framing::Length(length) => format!("Content-Length: {length}\r\n"),
            Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
            Framing::None | Framing::UntilClose => String::new(),
        };
        let close = if says_close {
            "Connection: close\r\n"
        } else {
            ""
        };
        let head = format!("HTTP/1.1 {status} OK\r\n{framing}{close}\r\n");
        reply.extend_from_slice(head.as_bytes());
        reply.extend_from_slice(&body.bytes);
        let mut wire = Wire::new(random, reply, 0);
        wire.closes = body.framing == Framing::UntilClose;
        Self {
            wire,
            status,
            body,
            interims,
            says_close,
            has_more: false,
            is_cut: false,
            has_head: true,
        }
    }
}

/// One schedule: a client's request, and the back ends that it goes to.
struct Schedule {
    random: Rng,
    method: Method,
    request: WireBody,
    head: Vec<u8>,
    client: Client,
}

impl Schedule {
    fn new(seed: u64, deadlines: &Deadlines) -> Self {
        let mut random = Rng::with_seed(seed);
        let framings = [Framing::None, Framing::Length(0), Framing::Chunked];
        let framing = framings[random.usize(..3)];
        let request = body(&mut random, framing);
        let method = [Method::Post, Method::Put][random.usize(..2)].clone();
        let incoming = [CLIENT_HEAD, &request.bytes, NEXT].concat();
        let mut wire = Wire::new(&mut random, incoming, 0);
        // The head has been parsed.
        while wire.input.len() < CLIENT_HEAD.len() {
            let _ = wire.poll_fill(&mut Context::from_waker(Waker::noop()));
        }
        let head = format!("{} / HTTP/1.1\r\nHost: b\r\n\r\n", method.as_str()).into_bytes();
        let client = Client {
            random: random.clone(),
            reader: BodyReader::with_replay(request.framing, LIMITS, CLIENT_HEAD.len()),
            framing: request.framing,
            method: method.clone(),
            wire,
            deadline: deadlines.add(),
            wants_raw: random.bool(),
            status: 0,
            download: None,
            reply: Vec::new(),
            has_end: false,
            interims: 0,
        };
        Self {
            random,
            method,
            request,
            head,
            client,
        }
    }

    /// Runs one attempt. There is no result when it was dropped half-way.
    fn attempt(
        &mut self,
        script: Script,
        may_drop: bool,
    ) -> (Option<Result<Reply, Failed>>, Http1Upstream<Wire>, Facts) {
        let facts = Facts::of(&script);
        let is_chunked = self.request.framing == Framing::Chunked;
        let spare = ResponseHead::default();
        let mut up =
            Http1Upstream::begin(script.wire, self.head.clone(), is_chunked, Box::new(spare));
        let plan = plan();
        let terms = terms(&plan, &self.method);
        let drop_after = match may_drop && self.random.u8(..5) == 0 {
            true => self.random.usize(..60),
            false => POLLS_MAX,
        };
        let mut exchange = Exchange::new(&mut self.client, &mut up, terms, Progress::new(None));
        let result = {
            let mut run = pin!(exchange.run(|| {}));
            let mut context = Context::from_waker(Waker::noop());
            let mut polls = 0;
            loop {
                if let Poll::Ready(result) = run.as_mut().poll(&mut context) {
                    break Some(result);
                }
                polls += 1;
                assert!(polls < POLLS_MAX, "it stands still");
                if polls > drop_after {
                    break None;
                }
            }
        };
        let facts = Facts {
            is_sent: exchange.is_sent,
            ..facts
        };
        (result, up, facts)
    }

    fn sent(&self) -> SentRequest<'_> {
        SentRequest {
            head: &self.head,
            framing: self.request.framing,
            content: &self.request.content,
        }
    }

    fn run(mut self) {
        // At least so many bytes go out: chunks of a request are made anew.
        let length = self.head.len() + self.request.content.len();
        let script = Script::any(&mut self.random, length);
        let (result, up, facts) = self.attempt(script, true);
        match result {
            Some(Ok(Reply::Relayed(relayed))) => {
                let is_whole = relayed.cut.is_none();
                self.check_reply(&facts, is_whole);
                self.sent()
                    .check_release(up, &facts, is_whole && facts.is_sent);
                self.check_client();
            }
            Some(Ok(_)) => panic!("no other reply was made"),
            Some(Err(failed)) => self.check_failure(failed, &up, &facts),
            // Its connection may be closed or be kept, but only with nothing left on it.
            None => self.sent().check_release(up, &facts, false),
        }
    }

    /// The client has got the reply, or as much of it as there was.
    fn check_reply(&self, facts: &Facts, is_whole: bool) {
        let client = &self.client;
        assert_eq!(
            (client.status, client.interims),
            (facts.status, facts.interims)
        );
        assert_eq!(is_whole, !facts.is_cut, "whole or cut");
        let expected = match client.download {
            Some(Download::Raw) => {
                let framing = Framing::Chunked;
                let (content, has_end) = decoded(framing, &client.reply);
                assert!(has_end || !is_whole);
                assert!(facts.content.starts_with(&content));
                assert!(!is_whole || content == facts.content);
                return;
            }
            Some(Download::Content) => &facts.content,
            _ => return assert!(client.reply.is_empty()),
        };
        assert!(expected.starts_with(&client.reply), "other bytes");
        assert!(!is_whole || (client.has_end && *expected == client.reply));
        assert!(is_whole || !client.has_end, "a part looks whole");
    }

    /// What is left of the client's input is the next request.
    fn check_client(&self) {
        if self.client.reader.is_drained() {
            assert_eq!(self.client.wire.unused(), NEXT);
        }
    }

    fn check_failure(mut self, failed: Failed, up: &Http1Upstream<Wire>, facts: &Facts) {
        let is_expected = match &failed.failure {
            Failure::Closed(_) | Failure::Invalid(_) => !facts.has_head,
            _ => false,
        };
        assert!(is_expected, "{:?}", failed.failure);
        if !failed.repeatable {
            return;
        }
        let is_safe = self.method == Method::Put || up.exchange.sent() == 0;
        assert!(is_safe, "a request is repeated that may have been acted on");
        self.client.rewind();
        self.client.interims = 0;
        let mut script = Script::answering(&mut self.random, Framing::Length(0));
        script.wire.trigger = self.head.len() + self.request.content.len();
        let (result, up, facts) = self.attempt(script, false);
        assert!(
            matches!(result, Some(Ok(Reply::Relayed(_)))),
            "the second attempt"
        );
        self.check_reply(&facts, true);
        self.sent().check_release(up, &facts, facts.is_sent);
        self.check_client();
    }
}

/// A request as a back end of HTTP/1.1 must get it.
struct SentRequest<'a> {
    head: &'a [u8],
    framing: Framing,
    content: &'a [u8],
}

impl SentRequest<'_> {
    /// The connection is given back exactly when nothing is left on it.
    fn check_release(&self, up: Http1Upstream<Wire>, facts: &Facts, is_done: bool) {
        let Some(released) = up.exchange.release() else {
            let keeps = !facts.says_close && facts.framing != Framing::UntilClose;
            let is_clean = is_done && keeps && !facts.has_more;
            assert!(!is_clean, "a clean connection is closed");
            return;
        };
        let wire = released.into_inner();
        assert!(!facts.is_cut && !facts.says_close);
        assert!(wire.input.is_empty() && wire.records.is_empty());
        // What comes later is seen when the connection is lent.
        assert!(wire.unused().is_empty() || facts.has_more);
        let sent = wire.written.strip_prefix(self.head).unwrap();
        let (content, is_whole) = decoded(self.framing, sent);
        assert!(is_whole && content == self.content, "another request");
    }
}

fn plan() -> ForwardPlan {
    ForwardPlan::new(UpstreamPlan::single("b", 80, None).into(), "/")
}

/// Terms under which nobody is ever late.
fn terms<'a>(plan: &'a ForwardPlan, method: &'a Method) -> Terms<'a> {
    let time = Duration::from_secs(3600);
    Terms {
        plan,
        method,
        times: Times {
            body: time,
            response: time,
            stream: time,
            rate: 0,
        },
        limits: LIMITS,
        streams: None,
        upgrades: false,
    }
}

/// What is known of a back end's reply.
struct Facts {
    status: u16,
    content: Vec<u8>,
    framing: Framing,
    interims: usize,
    says_close: bool,
    has_more: bool,
    is_cut: bool,
    has_head: bool,
    /// Whether the whole request was sent.
    is_sent: bool,
}

impl Facts {
    fn of(script: &Script) -> Self {
        Self {
            status: script.status,
            content: script.body.content.clone(),
            framing: script.body.framing,
            interims: script.interims,
            says_close: script.says_close,
            has_more: script.has_more,
            is_cut: script.is_cut,
            has_head: script.has_head,
            is_sent: false,
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn no_schedule_mixes_up_or_loses_bytes() {
    let deadlines = Deadlines::new();
    run_schedules(SCHEDULES, |seed| Schedule::new(seed, &deadlines).run());
}

/// Runs one schedule for each seed.
pub(crate) fn run_schedules(count: u64, run: impl Fn(u64)) {
    let first = number("RELAY_SEED").unwrap_or(0);
    let count = number("RELAY_SCHEDULES").unwrap_or(count);
    for seed in first..first + count {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed)));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

/// Each request that is forwarded holds one, within its session.
#[test]
fn a_request_on_its_way_is_small() {
    fn of_sending<'a, D: 'a, F>(_: impl FnOnce(&'a mut D, Order<'a>) -> F) -> usize {
        size_of::<F>()
    }
    let sizes = (
        of_sending(send::<Http1Downstream<'_>>),
        of_sending(send::<Http2Downstream<'_>>),
    );
    assert!(sizes.0 <= 928 && sizes.1 <= 928, "{sizes:?}");
}

/// A reader that is slower than the source gets chunks of a decent size, whatever it takes at a
/// time.
#[test]
fn a_slow_reader_gets_whole_chunks() {
    let mut random = Rng::with_seed(1);
    let mut wire = Wire::new(&mut random, Vec::new(), 0);
    (wire.has_records, wire.capacity) = (false, 0);
    let content = random_bytes(&mut random, 1 << 20);
    let mut writer = BodyWriter::new(Vec::new());
    writer.set_chunked(true);
    let mut context = Context::from_waker(Waker::noop());
    let mut taken = 0;
    while !writer.is_finished() {
        wire.capacity += 5_000;
        while taken < content.len()
            && let Poll::Ready(count) =
                writer.poll_accept(&mut context, &mut wire, &content[taken..], End::End(None))
        {
            taken += count.unwrap();
            if wire.written.len() == wire.capacity {
                break;
            }
        }
        let _ = writer.poll_flush(&mut context, &mut wire);
    }
    let (decoded, is_whole) = decoded(Framing::Chunked, &wire.written);
    assert!(is_whole && decoded == content);
    let overhead = wire.written.len() - content.len();
    assert!(
        overhead < content.len() / 500,
        "{overhead} bytes of framing"
    );
}
