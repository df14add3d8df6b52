//! Forwarding a request that came by HTTP/1.1 to an upstream that speaks HTTP/2. Its head has been
//! written for HTTP/1.1 by then: it is read once more, and what is in it sent as HTTP/2.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use message::{Field, Method};
use net::http1::{BodyDecoder, Framing, Piece, RequestHead, ResponseHead, Version};
use net::http2::{Head, Link, Stream};
use tokio::time::Instant;

use crate::bridge::{Bridge, Flow, Http1Side, ReplyHead, Side, is_stream};
use crate::date::DateField;
use crate::events::{self, Done, Events};
use crate::exchange::{Failed, Failure};
use crate::forward::{INTERIM_MAX, head_limits};
use crate::h2_forward::{invalid, is_dead, open};
use crate::request_head::{ForwardTarget, Http2Head, Lines, write_decimal};
use crate::response_head::{
    self, ClientSide, ClientVersion, needs_date, passes_interim, relayed_fields,
};
use crate::session::{After, Served, Session};
use crate::stream::{OpenStream, Streams};
use crate::upstream::Lease;

/// Sends the request, whose head and the beginning of whose body lie in `out`, and relays the
/// reply.
pub(crate) async fn forward(
    session: &mut Session,
    (target, method): (&ForwardTarget, &Method),
    (link, lease): (&Link, &Lease),
    out: &[u8],
    streams: Streams<'_>,
) -> Result<Done<Served>, Failed> {
    if session.head.upgrades_to_websocket {
        return Err(refused(Failure::NoUpgrade));
    }
    let limits = head_limits(&session.settings.limits);
    let (head, up, decoder) = translate(out, limits).map_err(refused)?;
    let upstream = open(link, target, method, &head, &up)?;
    let timeouts = session.settings.timeouts;
    let own = &target.plan.timeouts;
    let closes = session.closes_after_this();
    let mut response = ResponseHead::default();
    let client = Http1Side::new(&mut session.client, decoder, Vec::new());
    let mut bridge = Bridge {
        client: Some(Side::Http1(client)),
        upstream: Side::Http2(&upstream),
        up,
        down: Flow::default(),
        deadline: &session.deadline,
        response: &mut response,
        method,
        limits,
        body_time: own.body.unwrap_or(timeouts.body),
        response_time: own.response.unwrap_or(timeouts.response),
        upload_failed: None,
        seen_progress: u64::MAX,
    };
    let asked = Asked {
        method: &session.head.method,
        version: session.head.version,
        closes,
        stream_time: timeouts.stream,
        streams,
        date: &session.worker.date,
    };
    let result = receive(&mut bridge, target, &asked, lease).await;
    let uploaded = bridge.up.finished && bridge.upload_failed.is_none();
    let received = bridge.down.moved;
    session.now = Instant::now();
    if is_dead(&result, &session.deadline) {
        // It may be dead: nobody else shall wait for it.
        link.go_away();
    }
    let (status, after) = match result? {
        Received::Relayed(status, after) => (status, after),
        Received::GoesOn(goes_on) => {
            return begin_events(session, upstream, *goes_on, streams).await;
        }
    };
    let after = match after {
        After::Keep if !uploaded => After::Close,
        after => after,
    };
    Ok(Done::Served(Served {
        status,
        after,
        received,
    }))
}

/// What has become of a reply.
enum Received {
    /// It has been relayed: its status, and what becomes of the client's connection.
    Relayed(u16, After),
    /// It is an event stream.
    GoesOn(Box<GoesOn>),
}

/// An event stream whose head is about to be written.
struct GoesOn {
    status: u16,
    closes: bool,
    is_coded: bool,
    open: OpenStream,
    head: Vec<u8>,
}

async fn begin_events(
    session: &mut Session,
    upstream: Stream,
    goes_on: GoesOn,
    streams: Streams<'_>,
) -> Result<Done<Served>, Failed> {
    let GoesOn {
        status,
        closes,
        is_coded,
        open,
        head,
    } = goes_on;
    if session.write_all(&head).await.is_err() {
        return Err(refused(Failure::ClientGone));
    }
    let source = events::Source::Http2(upstream);
    let events = Events::new(source, is_coded, &session.worker, streams);
    Ok(Done::Events(Box::new(events::Begun {
        events,
        open,
        status,
        closes,
    })))
}

fn refused(failure: Failure) -> Failed {
    Failed {
        failure,
        repeatable: false,
    }
}

/// What the client's request says about its reply.
struct Asked<'a> {
    method: &'a Method,
    version: Version,
    closes: bool,
    stream_time: Duration,
    streams: Streams<'a>,
    date: &'a DateField,
}

/// Reads a request that was written for HTTP/1.1: its head, what is there of its body, and the
/// decoder of what is still to come.
fn translate(
    out: &[u8],
    limits: net::http1::HeadLimits,
) -> Result<(Http2Head, Flow, BodyDecoder), Failure> {
    let mut parsed = RequestHead::default();
    // Our own lines stand beside the client's, so there may be a few more of them.
    let roomy = net::http1::HeadLimits {
        bytes: limits.bytes * 2,
        fields: 256,
    };
    match parsed.parse(out, roomy) {
        Ok(true) => {}
        Ok(false) => return Err(invalid("the head is not whole")),
        Err(error) => return Err(Failure::Invalid(error)),
    }
    let mut head = Http2Head::default();
    head.path.extend_from_slice(parsed.path(out));
    if let Some(query) = parsed.query(out) {
        head.path.push(b'?');
        head.path.extend_from_slice(query);
    }
    for (field, name, value) in parsed.headers(out).iter() {
        match field {
            Field::Host => head.authority.extend_from_slice(value),
            field if field.is_hop_by_hop() => {}
            _ => head.fields.copy(name, value, None),
        }
    }
    let mut decoder = BodyDecoder::new(parsed.framing, limits);
    let body = out.get(parsed.length..).unwrap_or_default();
    let content = decode(&mut decoder, body)?;
    let taken = decoder.is_done();
    Ok((head, Flow::begin(content, taken, None), decoder))
}

fn decode(decoder: &mut BodyDecoder, body: &[u8]) -> Result<Bytes, Failure> {
    let mut rest = body;
    let mut content = Vec::new();
    loop {
        let piece = decoder
            .next(rest)
            .map_err(|error| Failure::ClientInvalid(error.0))?;
        let count = match piece {
            Piece::End | Piece::NeedMore => return Ok(content.into()),
            Piece::Data(count) => {
                content.extend_from_slice(rest.get(..count).unwrap_or_default());
                count
            }
            Piece::Overhead(count) | Piece::Skip(count) => count,
        };
        rest = rest.get(count..).unwrap_or_default();
    }
}

/// Waits for the reply and relays it, interim ones first. Returns its status and what becomes of
/// the client's connection.
async fn receive(
    bridge: &mut Bridge<'_>,
    target: &ForwardTarget,
    asked: &Asked<'_>,
    lease: &Lease,
) -> Result<Received, Failed> {
    for _ in 0..INTERIM_MAX {
        let head = poll_fn(|context| bridge.poll_reply(context)).await;
        let head = match head.map_err(|failure| bridge.failed(failure))? {
            ReplyHead::Http2(head) => head,
            ReplyHead::Http1 => return Err(bridge.failed(invalid("a reply of another kind"))),
        };
        if head.is_interim() {
            if passes_interim(
                head.status(),
                ClientVersion::Http1(asked.version),
                &target.plan,
            ) {
                stage_head(bridge, target, asked, &head, Framing::None);
            }
            continue;
        }
        lease.succeed();
        bridge.deadline.lift();
        let goes_on = go_on(bridge, target, asked, &head);
        if let Some(goes_on) = goes_on.map_err(|failure| bridge.failed(failure))? {
            return Ok(Received::GoesOn(Box::new(goes_on)));
        }
        let (status, after) = relay(bridge, target, asked, &head).await;
        return Ok(Received::Relayed(status, after));
    }
    Err(bridge.failed(invalid("too many interim replies")))
}

/// Stages the head of a reply when it is an event stream that can be left to a task of its own.
fn go_on(
    bridge: &mut Bridge<'_>,
    target: &ForwardTarget,
    asked: &Asked<'_>,
    head: &Head,
) -> Result<Option<GoesOn>, Failure> {
    let fields = head.fields.view();
    let ends = head.is_end() || head.content_length().is_some() || *asked.method == Method::Head;
    if ends || !events::are_events(fields) {
        return Ok(None);
    }
    let is_sent = bridge.up.finished && bridge.upload_failed.is_none();
    if !events::check_upload(is_sent, asked.streams)? {
        return Ok(None);
    }
    let is_coded = events::is_coded(fields);
    let open = events::open(asked.streams, is_coded)?;
    let framing = match asked.version {
        Version::Http11 => Framing::Chunked,
        Version::Http10 => Framing::UntilClose,
    };
    let closes = asked.closes || framing == Framing::UntilClose;
    stage_head(bridge, target, &Asked { closes, ..*asked }, head, framing);
    let head_bytes = match &mut bridge.client {
        Some(Side::Http1(client)) => client.take_staged(),
        _ => Vec::new(),
    };
    Ok(Some(GoesOn {
        status: head.status(),
        closes,
        is_coded,
        open,
        head: head_bytes,
    }))
}

async fn relay(
    bridge: &mut Bridge<'_>,
    target: &ForwardTarget,
    asked: &Asked<'_>,
    head: &Head,
) -> (u16, After) {
    let status = head.status();
    let is_empty = head.is_end() || *asked.method == Method::Head || matches!(status, 204 | 304);
    let framing = match head.content_length() {
        _ if is_empty => Framing::None,
        Some(length) => Framing::Length(length),
        None if asked.version == Version::Http11 => Framing::Chunked,
        None => Framing::UntilClose,
    };
    let closes = asked.closes || framing == Framing::UntilClose;
    let asked = Asked { closes, ..*asked };
    stage_head(bridge, target, &asked, head, framing);
    bridge.begin_download();
    if is_stream(head.fields.view()) {
        bridge.body_time = asked.stream_time;
    }
    if let Some(Side::Http1(client)) = &mut bridge.client {
        client.chunked = framing == Framing::Chunked;
    }
    if is_empty {
        bridge.down = Flow::begin(Bytes::new(), true, None);
    }
    match poll_fn(|context| bridge.poll_relay(context)).await {
        Ok(()) if closes => (status, After::Close),
        Ok(()) => (status, After::Keep),
        Err(stopped) => {
            stopped.log();
            (status, After::Gone)
        }
    }
}

/// Writes the head of a reply for the client.
fn stage_head(
    bridge: &mut Bridge<'_>,
    target: &ForwardTarget,
    asked: &Asked<'_>,
    head: &Head,
    framing: Framing,
) {
    let Some(Side::Http1(client)) = &mut bridge.client else {
        return;
    };
    let out = &mut client.staged;
    let status = head.status();
    response_head::status_line(status, message::reason_phrase(status).as_bytes(), out);
    let edits = &target.plan.reply_fields;
    let fields = head.fields.view();
    let date = needs_date(status, fields, edits).then(|| asked.date.text(Instant::now()));
    for (field, name, value) in relayed_fields(fields, None, edits, date.as_deref()) {
        if field != Field::ContentLength {
            out.copy(name, value, None);
        }
    }
    let length = match framing {
        Framing::Length(length) => Some(length),
        // What the body would have: of a reply to HEAD, or none where one could be.
        Framing::None if *asked.method == Method::Head || status == 304 => head.content_length(),
        Framing::None if status >= 200 && status != 204 => Some(0),
        _ => None,
    };
    if let Some(length) = length {
        out.extend_from_slice(b"content-length: ");
        write_decimal(length, out);
        out.extend_from_slice(b"\r\n");
    }
    if framing == Framing::Chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    if status >= 200 {
        let side = ClientSide {
            version: asked.version,
            closes: asked.closes,
        };
        response_head::write_connection(side, out);
    }
    out.extend_from_slice(b"\r\n");
}
