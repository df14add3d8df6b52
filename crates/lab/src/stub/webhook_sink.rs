//! `stub webhook-sink`: takes webhooks and WebSub deliveries for many endpoints, each a path, and
//! keeps what is needed to say afterwards what has come: nothing is judged while posts arrive.

mod conduct;
mod ledger;
mod post;
mod report;
mod signature;
#[cfg(test)]
mod tests;

use std::io;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::alarm::Alarm;
use super::serve::Service;
use crate::stamp;
use crate::wire::Buffer;
use conduct::{Act, Conduct, query};
use ledger::Ledger;
use post::{Head, Method};
use report::Asked;
pub use report::{Latency, Report, Signatures};

const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// How a sink answers, and what it keeps.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SinkArgs {
    #[command(flatten)]
    conduct: Conduct,
    /// What posts are signed with, as the sender has it (`whsec_...` for Standard Webhooks): the
    /// report says how many signatures are good. `{}` in it stands for the last segment of the
    /// path.
    #[arg(long, value_name = "SECRET")]
    secret: Option<String>,
    /// The header that names the event; a repetition has the same value.
    #[arg(long, value_name = "NAME", default_value = "webhook-id")]
    id_header: String,
    /// The header that says when the event was published, in microseconds since 1970, where its
    /// body does not.
    #[arg(long, value_name = "NAME", default_value = "x-published-at")]
    at_header: String,
    /// The memory for what signatures are checked with, in MiB; what comes beyond it is not
    /// checked.
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    keep: usize,
}

/// Takes posts.
pub(super) struct Sink {
    args: SinkArgs,
    tls: Option<TlsAcceptor>,
    begun: Instant,
    alarm: Arc<Alarm>,
    ledger: Mutex<Ledger>,
}

impl Sink {
    /// One that nothing has come to.
    pub fn new(args: SinkArgs, tls: Option<TlsAcceptor>) -> Self {
        let ledger = Ledger::new(args.secret.is_some().then_some(args.keep << 20));
        Self {
            args,
            tls,
            begun: Instant::now(),
            alarm: Arc::default(),
            ledger: Mutex::new(ledger),
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service for Sink {
    fn begin(&self) -> io::Result<()> {
        self.alarm.start()
    }

    async fn connection(self: Arc<Self>, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        match &self.tls {
            None => self.serve(stream).await,
            Some(acceptor) => {
                let stream = timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await??;
                self.serve(stream).await
            }
        }
    }
}

/// A connection that has not been closed.
struct Open<S> {
    stream: S,
    input: Buffer,
    head: Head,
    chunks: Vec<u8>,
    out: Vec<u8>,
}

impl Sink {
    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<()> {
        let mut open = Open {
            stream,
            input: Buffer::default(),
            head: Head::default(),
            chunks: Vec::new(),
            out: Vec::new(),
        };
        let mut is_told = false;
        loop {
            let mut must_tell = false;
            while let Some((taken, whole)) = post::step(
                &mut open.head,
                open.input.bytes(),
                &self.args,
                &mut open.chunks,
            )? {
                if !whole {
                    must_tell = open.head.expects_continue && !is_told;
                    break;
                }
                is_told = false;
                if self.answer(&mut open, taken).await?.is_break() {
                    return Ok(());
                }
                open.input.take(taken);
                if open.head.is_last {
                    open.stream.write_all(&open.out).await?;
                    open.stream.flush().await?;
                    return open.stream.shutdown().await;
                }
            }
            if must_tell {
                open.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                is_told = true;
            }
            // All that one read makes possible goes out in one write.
            if !open.out.is_empty() {
                open.stream.write_all(&open.out).await?;
                open.stream.flush().await?;
                open.out.clear();
            }
            if !open.input.read(&mut open.stream).await? {
                return Ok(());
            }
        }
    }

    /// Answers the request at the start of the input, of so many bytes; breaks off where the
    /// connection ends without an answer.
    async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        open: &mut Open<S>,
        taken: usize,
    ) -> io::Result<ControlFlow<()>> {
        match open.head.method {
            Method::Post => self.take_post(open, taken).await,
            Method::Get if open.head.path() == b"/count" => {
                self.send_count(open)?;
                Ok(ControlFlow::Continue(()))
            }
            Method::Get if open.head.path() == b"/report" => {
                self.send_report(open).await?;
                Ok(ControlFlow::Continue(()))
            }
            Method::Delete if open.head.path() == b"/report" => {
                self.ledger().clear();
                write_empty(&mut open.out, 204)?;
                Ok(ControlFlow::Continue(()))
            }
            Method::Get => {
                self.verify(open)?;
                Ok(ControlFlow::Continue(()))
            }
            Method::Delete | Method::Other => {
                write_empty(&mut open.out, 405)?;
                Ok(ControlFlow::Continue(()))
            }
        }
    }

    async fn take_post<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        open: &mut Open<S>,
        taken: usize,
    ) -> io::Result<ControlFlow<()>> {
        let at = stamp::now();
        let (act, delay, closes) = {
            let conduct = self.args.conduct.within(open.head.query());
            let act = conduct.act(self.begun.elapsed());
            (act, conduct.delay, conduct.close)
        };
        let bytes = open.input.bytes().get(..taken).unwrap_or_default();
        let body = open.head.body(bytes, &open.chunks);
        self.ledger().add(&open.head.post(body, at, act.status()));
        let status = match act {
            Act::Answer(status) => status,
            Act::Close => return Ok(ControlFlow::Break(())),
            Act::Hang => {
                while open.input.read(&mut open.stream).await? {
                    let length = open.input.bytes().len();
                    open.input.take(length);
                }
                return Ok(ControlFlow::Break(()));
            }
        };
        if !delay.is_zero() {
            self.alarm.wait(delay).await;
        }
        if closes {
            open.head.is_last = true;
            write!(
                open.out,
                "HTTP/1.1 {status} -\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            )?;
            return Ok(ControlFlow::Continue(()));
        }
        write_empty(&mut open.out, status)?;
        if delay.is_zero() {
            return Ok(ControlFlow::Continue(()));
        }
        // Others that came with it wait too.
        open.stream.write_all(&open.out).await?;
        open.out.clear();
        Ok(ControlFlow::Continue(()))
    }

    /// Answers the verification of intent of a hub (W3C WebSub, section 5.3), whatever the topic.
    fn verify<S>(&self, open: &mut Open<S>) -> io::Result<()> {
        let (mut mode, mut challenge) = (None, None);
        for (name, value) in query(open.head.query()) {
            match name.as_str() {
                "hub.mode" => mode = Some(value),
                "hub.challenge" => challenge = Some(value),
                _ => {}
            }
        }
        let Some(mode) = mode else {
            return write_empty(&mut open.out, 404);
        };
        let conduct = self.args.conduct.within(open.head.query());
        self.ledger().verified(&mode, conduct.deny);
        match challenge {
            Some(challenge) if !conduct.deny => {
                let length = challenge.len();
                write!(
                    open.out,
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: \
                     {length}\r\n\r\n{challenge}"
                )
            }
            // Nothing is asked of a subscriber that was denied.
            None if mode == "denied" => write_empty(&mut open.out, 204),
            _ => write_empty(&mut open.out, 404),
        }
    }

    /// How many posts have come, and how many of them were answered with 2xx: cheap, for those who
    /// wait until all have come.
    fn send_count<S>(&self, open: &mut Open<S>) -> io::Result<()> {
        let (posts, accepted) = {
            let ledger = self.ledger();
            (ledger.len() as u64 + ledger.beyond, ledger.accepted)
        };
        let body = format!("{{\"posts\":{posts},\"accepted\":{accepted}}}");
        write!(
            open.out,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n\
             {body}",
            body.len()
        )
    }

    async fn send_report<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        open: &mut Open<S>,
    ) -> io::Result<()> {
        let asked = Asked::read(open.head.query());
        let (ledger, secret) = (self.ledger().clone(), self.args.secret.clone());
        let made = tokio::task::spawn_blocking(move || {
            let report = report::make(&ledger, secret.as_deref(), asked)?;
            anyhow::Ok(serde_json::to_vec(&report)?)
        });
        let body = made.await?.map_err(io::Error::other)?;
        write!(
            open.out,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )?;
        open.out.extend_from_slice(&body);
        Ok(())
    }
}

fn write_empty(out: &mut Vec<u8>, status: u16) -> io::Result<()> {
    if status == 204 {
        // The usual answer, and one without a length (RFC 9110, section 8.6).
        out.extend_from_slice(b"HTTP/1.1 204 No Content\r\n\r\n");
        return Ok(());
    }
    write!(out, "HTTP/1.1 {status} -\r\nContent-Length: 0\r\n\r\n")
}
