//! `stub renewing-json`: documents for pollers, `/documents/{n}`, of which a part is new at each
//! tick or at each request, with the tick's number and instant inside; `/ticks` says how far each
//! is.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::request::{self, Request};
use super::serve::Service;
use super::sse::Beginning;
use crate::document::{Document, Shape};
use crate::stamp;
use crate::wire::Buffer;

/// More documents than this are not kept.
const DOCUMENTS_MAX: usize = 10_000;

/// When documents are renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Renewal {
    /// At fixed instants from the start of the stub.
    Tick,
    /// At each request; the instant is when the request came.
    Call,
}

/// Documents that renew themselves.
pub(super) struct Renewing {
    pub shape: Shape,
    pub every: Duration,
    pub renewal: Renewal,
    start: Beginning,
    documents: Mutex<BTreeMap<u32, Document>>,
}

impl Renewing {
    pub fn new(shape: Shape, every: Duration, renewal: Renewal) -> Self {
        Self {
            shape,
            every,
            renewal,
            start: Beginning::now(),
            documents: Mutex::new(BTreeMap::new()),
        }
    }

    fn documents(&self) -> MutexGuard<'_, BTreeMap<u32, Document>> {
        self.documents
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a document as it is now, unless it is the one that is known. Returns its tick.
    fn take(&self, number: u32, known: impl Fn(u64) -> bool, out: &mut Vec<u8>) -> Option<u64> {
        let mut documents = self.documents();
        if documents.len() >= DOCUMENTS_MAX && !documents.contains_key(&number) {
            return None;
        }
        let new = || Document::new(self.shape, number, self.start.at);
        let document = documents.entry(number).or_insert_with(new);
        match self.renewal {
            Renewal::Call => document.renew(stamp::now()),
            Renewal::Tick => self.catch_up(document),
        }
        if !known(document.tick) {
            document.write(out);
        }
        Some(document.tick)
    }

    /// Renews a document for all ticks that have passed.
    fn catch_up(&self, document: &mut Document) {
        let passed = self.start.instant.elapsed().as_nanos() / self.every.as_nanos().max(1);
        let every = stamp::micros(self.every);
        while u128::from(document.tick) < passed {
            let next = document.tick + 1;
            document.renew(self.start.at.saturating_add(every.saturating_mul(next)));
        }
    }

    fn answer(&self, request: &Request, out: &mut Vec<u8>) {
        if request.method != "GET" && request.method != "HEAD" {
            return head("405 Method Not Allowed", "Allow: GET\r\n", 0, out);
        }
        let mut body = Vec::new();
        if request.path == "/ticks" {
            body = self.ticks().into_bytes();
            head(
                "200 OK",
                "Content-Type: application/json\r\n",
                body.len(),
                out,
            );
        } else {
            let number = request.path.strip_prefix("/documents/");
            let number = number.and_then(|text| text.parse::<u32>().ok());
            let known = |tick: u64| {
                let tag = number.map(|number| tag(number, tick));
                tag.is_some_and(|tag| request.lists("if-none-match", &tag))
            };
            let tick = number.and_then(|number| self.take(number, known, &mut body));
            let Some((number, tick)) = number.zip(tick) else {
                return head("404 Not Found", "", 0, out);
            };
            let fields = format!(
                "Content-Type: application/json\r\nCache-Control: no-cache\r\nETag: {}\r\n",
                tag(number, tick)
            );
            match known(tick) {
                true => return head_alone("304 Not Modified", &fields, out),
                false => head("200 OK", &fields, body.len(), out),
            }
        }
        if request.method == "GET" {
            out.extend_from_slice(&body);
        }
    }

    /// How far each document is: `{"1":17}`.
    fn ticks(&self) -> String {
        let mut text = String::from("{");
        for (index, (number, document)) in self.documents().iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            // invariant: writing to a String does not fail.
            let _ = write!(text, "{comma}\"{number}\":{}", document.tick);
        }
        text.push('}');
        text
    }
}

fn tag(number: u32, tick: u64) -> String {
    format!("\"{number}-{tick}\"")
}

fn head(status: &str, fields: &str, length: usize, out: &mut Vec<u8>) {
    let length = format!("{fields}Content-Length: {length}\r\n");
    head_alone(status, &length, out);
}

fn head_alone(status: &str, fields: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("HTTP/1.1 {status}\r\n{fields}\r\n").as_bytes());
}

impl Service for Renewing {
    async fn connection(self: Arc<Self>, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let (mut input, mut out) = (Buffer::default(), Vec::new());
        while let Some(request) = request::read(&mut stream, &mut input).await? {
            self.answer(&request, &mut out);
            stream.write_all(&out).await?;
            out.clear();
            if request.is_last() {
                break;
            }
        }
        stream.shutdown().await
    }
}

#[cfg(test)]
mod tests;
