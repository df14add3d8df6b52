//! A client of HTTP/1.1 that asks once per connection.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

/// What was answered.
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|it| it.0.eq_ignore_ascii_case(name));
        found.map(|it| it.1.as_str())
    }
}

/// Sends a request; what comes after the head of the answer is still to be read.
fn open(port: u16, request: &str) -> io::Result<(Reply, BufReader<TcpStream>)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut reader = BufReader::new(stream);
    Ok((read_head(&mut reader)?, reader))
}

/// Reads an answer up to its body.
pub fn read_head(reader: &mut impl BufRead) -> io::Result<Reply> {
    let first = line(reader)?;
    let status = first.split(' ').nth(1).and_then(|it| it.parse().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    let mut headers = Vec::new();
    while let Some((name, value)) = line(reader)?.split_once(':') {
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    Ok(Reply {
        status,
        headers,
        body: String::new(),
    })
}

fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    match reader.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end_matches(['\r', '\n']).to_owned()),
    }
}

/// Asks, and reads the answer.
pub fn ask(port: u16, method: &str, path: &str, body: &str) -> io::Result<Reply> {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let (reply, mut reader) = open(port, &request)?;
    read_body(reply, &mut reader)
}

/// Reads the body of an answer, to the end of the connection when it has no length.
pub fn read_body(mut reply: Reply, reader: &mut impl BufRead) -> io::Result<Reply> {
    match reply
        .header("Content-Length")
        .and_then(|it| it.parse().ok())
    {
        Some(length) => {
            let mut bytes = vec![0; length];
            reader.read_exact(&mut bytes)?;
            reply.body = String::from_utf8_lossy(&bytes).into_owned();
        }
        None => drop(reader.read_to_string(&mut reply.body)?),
    }
    Ok(reply)
}

/// One event of a stream.
pub struct SseEvent {
    pub kind: String,
    pub id: String,
    pub data: String,
}

/// Reads a stream behind an event, or from its beginning, until `enough` says so or nothing comes
/// for so long.
pub fn subscribe(
    port: u16,
    path: &str,
    last: Option<&str>,
    quiet: Duration,
    mut enough: impl FnMut(SseEvent) -> bool,
) -> io::Result<()> {
    let from = match last {
        Some(last) => format!("Last-Event-ID: {last}\r\n"),
        None => String::new(),
    };
    let query = if last.is_none() { "?from=earliest" } else { "" };
    let request =
        format!("GET {path}{query} HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n{from}\r\n");
    let (reply, mut reader) = open(port, &request)?;
    if reply.status != 200 {
        return Err(io::Error::other(format!("status {}", reply.status)));
    }
    reader.get_ref().set_read_timeout(Some(quiet))?;
    let is_chunked = reply.header("Transfer-Encoding").is_some();
    let mut text = String::new();
    loop {
        let more = match is_chunked {
            true => chunk(&mut reader),
            false => line(&mut reader).map(|line| line + "\n"),
        };
        match more {
            Ok(more) if more.is_empty() => return Ok(()),
            Ok(more) => text.push_str(&more),
            // Quiet, or the engine has ended it.
            Err(_) => return Ok(()),
        }
        while let Some((event, rest)) = text.split_once("\n\n") {
            let event = self::event(event);
            let rest = rest.to_owned();
            if enough(event) {
                return Ok(());
            }
            text = rest;
        }
    }
}

/// Reads one chunk of a body.
pub fn chunk(reader: &mut impl BufRead) -> io::Result<String> {
    let size = line(reader)?;
    let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16);
    let size = size.map_err(|_| io::ErrorKind::InvalidData)?;
    let mut bytes = vec![0; size + 2];
    reader.read_exact(&mut bytes)?;
    bytes.truncate(size);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads an event, without the empty line behind it.
pub fn event(text: &str) -> SseEvent {
    let field = |name: &str| {
        let mut lines = text.lines();
        let found = lines.find_map(|it| it.strip_prefix(name)?.strip_prefix(':'));
        found.map(str::trim).unwrap_or_default().to_owned()
    };
    SseEvent {
        kind: field("event"),
        id: field("id"),
        data: field("data"),
    }
}
