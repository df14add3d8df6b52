//! A user over HTTP/1.1: one write for a request, and a head that repeats itself is read once.

use std::time::Instant;

use anyhow::{Context, bail};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::Work;
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
    let (text, token_at) = request_head(work);
    let mut request = plan.bodies.sent.behind(text.as_bytes());
    let mut expected = plan.bodies.expected.clone();
    let (mut input, mut head, mut chunks) = (Buffer::default(), Head::default(), Vec::new());
    let mut now = Instant::now();
    loop {
        let started = match &work.pace {
            Some(pace) => pace.next().await,
            None => now,
        };
        let number = work.next_number();
        if let Some(token) = work.token(number) {
            request.put(token_at, token);
        }
        stream.write_all(request.with(number)).await?;
        stream.flush().await?;
        let taken = loop {
            if !input.read(&mut stream).await? {
                bail!("the connection ended within a reply");
            }
            if let Some(taken) = whole(&mut head, input.bytes(), &mut chunks)? {
                break taken;
            }
        };
        now = Instant::now();
        let bytes = input.bytes().get(..taken).unwrap_or_default();
        let body = match head.body {
            BodyLength::Chunked => chunks.as_slice(),
            _ => bytes.get(head.text.len()..).unwrap_or_default(),
        };
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
            work.reply(index, number, started, now);
        }
        input.take(taken);
        if head.is_last {
            return Ok(());
        }
        if !input.bytes().is_empty() {
            bail!("something follows the reply");
        }
    }
}

/// The head of all requests, and where a token stands in it.
fn request_head(work: &Work) -> (String, usize) {
    let plan = &work.plan;
    let mut text = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n",
        plan.path,
        plan.address,
        plan.bodies.sent.len()
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
