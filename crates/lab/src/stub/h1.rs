//! The stub's side of HTTP/1.1: all answers that one read makes possible go out in one write.

use std::io;
use std::io::Write;
use std::sync::atomic::Ordering;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::{Options, date, soap};
use crate::wire::{BodyLength, Buffer, body_length, invalid, read_chunked};

const FIELDS_MAX: usize = 100;

/// What matters of a request's head.
#[derive(Default)]
struct Head {
    /// As on the wire: the next request of a connection often has the same.
    text: Vec<u8>,
    content_type: Vec<u8>,
    target: Vec<u8>,
    host: Vec<u8>,
    body: BodyLength,
    is_last: bool,
    expects_continue: bool,
}

/// Answers requests until the client goes.
pub(super) async fn serve<S>(mut stream: S, options: &Options) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut input = Buffer::default();
    let (mut head, mut chunks, mut out) = (Head::default(), Vec::new(), Vec::new());
    let mut envelope = Vec::new();
    let is_slow = options.is_slow();
    // Whether the client of the request that is being read has been told to go on.
    let mut is_told = false;
    loop {
        let mut must_tell = false;
        while let Some((taken, whole)) = step(&mut head, input.bytes(), &mut chunks)? {
            if !whole {
                must_tell = head.expects_continue && !is_told;
                break;
            }
            is_told = false;
            options.counts.begun.fetch_add(1, Ordering::Relaxed);
            let body = match head.body {
                BodyLength::Exactly(0) | BodyLength::Unknown => &[],
                BodyLength::Exactly(length) => {
                    let bytes = input.bytes().get(..taken).unwrap_or_default();
                    bytes.get(taken - length..).unwrap_or_default()
                }
                BodyLength::Chunked => chunks.as_slice(),
            };
            if options.is_soap {
                let reply = soap::answer(&head.target, &head.host, body, &mut envelope);
                write!(out, "HTTP/1.1 {} {}\r\n", reply.status, reply.reason())?;
                write_rest(&mut out, &head, reply.content_type.as_bytes(), &envelope)?;
            } else {
                let body = if body.is_empty() {
                    &options.fixed
                } else {
                    body
                };
                out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
                write_rest(&mut out, &head, &head.content_type, body)?;
            }
            input.take(taken);
            if is_slow {
                options.wait().await;
                stream.write_all(&out).await?;
                out.clear();
            }
            options.counts.done.fetch_add(1, Ordering::Relaxed);
            if head.is_last {
                stream.write_all(&out).await?;
                return stream.shutdown().await;
            }
        }
        if must_tell {
            out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            is_told = true;
        }
        if !out.is_empty() {
            stream.write_all(&out).await?;
            stream.flush().await?;
            out.clear();
        }
        if !input.read(&mut stream).await? {
            return Ok(());
        }
    }
}

/// Looks for a request at the start: the bytes that it takes, and whether it is whole.
fn step(head: &mut Head, bytes: &[u8], chunks: &mut Vec<u8>) -> io::Result<Option<(usize, bool)>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let is_known = !head.text.is_empty() && bytes.starts_with(&head.text);
    if !is_known && !read_head(head, bytes)? {
        return Ok(None);
    }
    let start = head.text.len();
    Ok(match head.body {
        BodyLength::Unknown => Some((start, true)),
        BodyLength::Exactly(length) => {
            let end = start + length;
            Some((end, bytes.len() >= end))
        }
        BodyLength::Chunked => {
            let end = read_chunked(bytes.get(start..).unwrap_or_default(), chunks)?;
            Some((start + end.unwrap_or(0), end.is_some()))
        }
    })
}

fn read_head(head: &mut Head, bytes: &[u8]) -> io::Result<bool> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let status = request
        .parse(bytes)
        .map_err(|error| invalid(&error.to_string()))?;
    let httparse::Status::Complete(length) = status else {
        return Ok(false);
    };
    head.body = body_length(request.headers)?;
    head.is_last = request.version == Some(0);
    head.expects_continue = false;
    head.content_type.clear();
    head.host.clear();
    head.target.clear();
    let target = request.path.unwrap_or_default();
    head.target.extend_from_slice(target.as_bytes());
    for field in request.headers.iter() {
        if field.name.eq_ignore_ascii_case("content-type") {
            head.content_type.extend_from_slice(field.value);
        } else if field.name.eq_ignore_ascii_case("connection") {
            head.is_last |= field.value.eq_ignore_ascii_case(b"close");
        } else if field.name.eq_ignore_ascii_case("host") {
            head.host.extend_from_slice(field.value);
        } else if field.name.eq_ignore_ascii_case("expect") {
            head.expects_continue = true;
        }
    }
    head.text.clear();
    head.text
        .extend_from_slice(bytes.get(..length).unwrap_or_default());
    Ok(true)
}

/// Writes what follows the status line.
fn write_rest(out: &mut Vec<u8>, head: &Head, content_type: &[u8], body: &[u8]) -> io::Result<()> {
    out.extend_from_slice(b"Date: ");
    out.extend_from_slice(date::now().as_bytes());
    out.extend_from_slice(b"\r\n");
    if !content_type.is_empty() {
        out.extend_from_slice(b"Content-Type: ");
        out.extend_from_slice(content_type);
        out.extend_from_slice(b"\r\n");
    }
    if head.is_last {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    write!(out, "Content-Length: {}\r\n\r\n", body.len())?;
    out.extend_from_slice(body);
    Ok(())
}
