//! A user over HTTP/1.1: one write for a request, and a head that repeats itself is read once.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::{Plan, Work};
use crate::bench::body::{Expected, Numbered};
use crate::bench::stats::Failure;
use crate::wire::{BodyLength, Buffer, body_length, read_chunked};

const FIELDS_MAX: usize = 100;

/// What matters of a reply's head.
#[derive(Default)]
struct Head {
    /// As on the wire.
    text: Vec<u8>,
    status: u16,
    body: BodyLength,
    is_last: bool,
}

/// Sends requests until the connection ends.
pub(super) async fn run<S>(mut stream: S, work: &Work, index: usize) -> anyhow::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let plan = &work.plan;
    let mut turns = turns(work);
    let last = turns.len() - 1;
    let dialogue = plan.dialogue.as_ref();
    let think = dialogue.map_or(Duration::ZERO, |it| it.think);
    let counts_once = dialogue.is_some_and(|it| it.counts_once);
    let (mut input, mut head, mut chunks) = (Buffer::default(), Head::default(), Vec::new());
    tokio::time::sleep(wait_to_begin(plan, index)).await;
    let (mut turn, mut number, mut now) = (0, 0, Instant::now());
    loop {
        if turn > 0 && !think.is_zero() {
            tokio::time::sleep(think).await;
            now = Instant::now();
        }
        let started = match &work.pace {
            Some(pace) => pace.next().await,
            None => now,
        };
        if turn == 0 {
            number = work.next_number();
        }
        let Some(Turn {
            request,
            expected,
            token_at,
        }) = turns.get_mut(turn)
        else {
            bail!("a dialogue without a turn");
        };
        if let Some(token) = work.token(number) {
            request.put(*token_at, token);
        }
        stream.write_all(request.with(number)).await?;
        stream.flush().await?;
        let taken = reply(&mut stream, &mut input, &mut head, &mut chunks).await?;
        now = Instant::now();
        let bytes = input.bytes().get(..taken).unwrap_or_default();
        let body = match head.body {
            BodyLength::Chunked => chunks.as_slice(),
            _ => bytes.get(head.text.len()..).unwrap_or_default(),
        };
        // A dialogue that has gone wrong is given up.
        let mut next = 0;
        if head.status != plan.status {
            work.error(Failure::Status, || {
                format!("status {}: {}", head.status, String::from_utf8_lossy(body))
            });
        } else if !expected.is(number, body) {
            work.error(Failure::Body, || {
                let [wanted, body] = [expected.with(number), body].map(String::from_utf8_lossy);
                format!("expected {wanted}, got {body}")
            });
        } else {
            if turn == last || !counts_once {
                work.reply(index, number, started, now);
            }
            next = (turn + 1) % (last + 1);
        }
        turn = next;
        input.take(taken);
        if head.is_last {
            return Ok(());
        }
        ensure!(input.bytes().is_empty(), "something follows the reply");
    }
}

/// How long a user waits before the first dialogue.
fn wait_to_begin(plan: &Plan, index: usize) -> Duration {
    let stagger = plan.dialogue.as_ref().map(|it| it.stagger);
    let place = index as f64 / plan.streams.connections.max(1) as f64;
    stagger.unwrap_or_default().mul_f64(place)
}

/// Reads a whole reply, and says how long it is.
async fn reply<S: AsyncRead + Unpin>(
    stream: &mut S,
    input: &mut Buffer,
    head: &mut Head,
    chunks: &mut Vec<u8>,
) -> anyhow::Result<usize> {
    loop {
        if !input.read(stream).await? {
            bail!("the connection ended within a reply");
        }
        if let Some(taken) = whole(head, input.bytes(), chunks)? {
            return Ok(taken);
        }
    }
}

/// One request of a user, and what must come back.
struct Turn {
    request: Numbered,
    expected: Expected,
    token_at: usize,
}

/// The requests of a dialogue, one after the other; a single one where there is none.
fn turns(work: &Work) -> Vec<Turn> {
    let plan = &work.plan;
    let rest = plan.dialogue.iter().flat_map(|it| &it.rest);
    let all = std::iter::once(&plan.bodies).chain(rest);
    let turns = all.map(|bodies| {
        let (text, token_at) = request_head(work, bodies.sent.len());
        Turn {
            request: bodies.sent.behind(text.as_bytes()),
            expected: bodies.expected.clone(),
            token_at,
        }
    });
    turns.collect()
}

/// The head of a request, and where a token stands in it.
fn request_head(work: &Work, length: usize) -> (String, usize) {
    let plan = &work.plan;
    let content_type = match plan.dialogue {
        Some(_) => "application/x-www-form-urlencoded",
        None => "application/json",
    };
    let mut text = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: {content_type}\r\n\
         Content-Length: {length}\r\n",
        plan.path, plan.address,
    );
    let mut token_at = text.len();
    if let Some(token) = work.token(0) {
        text.push_str("Authorization: Bearer ");
        token_at = text.len();
        text.push_str(&String::from_utf8_lossy(token));
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    (text, token_at)
}

/// The bytes of the reply at the start, if it is whole.
fn whole(head: &mut Head, bytes: &[u8], chunks: &mut Vec<u8>) -> anyhow::Result<Option<usize>> {
    let is_known = !head.text.is_empty() && bytes.starts_with(&head.text);
    if !is_known && !read_head(head, bytes)? {
        return Ok(None);
    }
    let start = head.text.len();
    match head.body {
        BodyLength::Exactly(length) => {
            let end = start + length;
            Ok((bytes.len() >= end).then_some(end))
        }
        BodyLength::Chunked => {
            let end = read_chunked(bytes.get(start..).unwrap_or_default(), chunks)?;
            Ok(end.map(|end| start + end))
        }
        BodyLength::Unknown => bail!("a reply without a length"),
    }
}

fn read_head(head: &mut Head, bytes: &[u8]) -> anyhow::Result<bool> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut reply = httparse::Response::new(&mut fields);
    let status = reply.parse(bytes).context("a reply that cannot be read")?;
    let httparse::Status::Complete(length) = status else {
        return Ok(false);
    };
    head.status = reply.code.unwrap_or(0);
    head.body = body_length(reply.headers)?;
    head.is_last = reply.version == Some(0);
    for field in reply.headers.iter() {
        if field.name.eq_ignore_ascii_case("connection") {
            head.is_last |= field.value.eq_ignore_ascii_case(b"close");
        }
    }
    head.text.clear();
    head.text
        .extend_from_slice(bytes.get(..length).unwrap_or_default());
    Ok(true)
}
