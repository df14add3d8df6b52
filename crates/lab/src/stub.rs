//! `intertie stub`: back ends that answer at once, after a while, or at fixed instants, so that
//! something else is measured.

mod alarm;
mod date;
mod h1;
mod h2;
mod renewing;
mod request;
mod serve;
mod soap;
mod sse;
mod webhook_sink;
mod ws_reverse;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::document::{self, Shape};
use crate::pki::{self, Identity};
use crate::units;
use renewing::{Renewal, Renewing};
use sse::{Beginning, Clock, Emitter};
use webhook_sink::{Sink, SinkArgs};
use ws_reverse::Reverser;

use alarm::Alarm;

pub use soap::WSDL;
pub use webhook_sink::{Latency as SinkLatency, Report as SinkReport, Signatures};

/// Arguments of `intertie stub`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    kind: Kind,
}

impl Args {
    fn from_line<'a>(line: impl Iterator<Item = &'a str>) -> clap::error::Result<Self> {
        use clap::{Args as _, FromArgMatches as _};
        let command = Self::augment_args(clap::Command::new("stub"));
        Self::from_arg_matches(&command.try_get_matches_from(line)?)
    }
}

#[derive(Debug, clap::Subcommand)]
enum Kind {
    /// Answer 200 with the body and the Content-Type of the request.
    Echo {
        #[command(flatten)]
        server: ServerArgs,
        /// How long every answer waits.
        #[arg(long, value_parser = units::duration, default_value = "0ms")]
        delay: Duration,
    },
    /// Answer like `echo`, but only after a while: a slow back end.
    Delay {
        #[command(flatten)]
        server: ServerArgs,
        /// How long every answer waits.
        #[arg(long = "time", value_parser = units::duration, default_value = "3s")]
        delay: Duration,
    },
    /// A SOAP service, 1.1 and 1.2: operations CheckStock and Echo, described at `?wsdl`.
    ///
    /// CheckStock says of each item, an element with the attribute `sku` and a `qty`, whether it is
    /// there: up to 100 are. The item FAULT is answered with a fault.
    Soap {
        #[command(flatten)]
        server: ServerArgs,
        /// How long every answer waits.
        #[arg(long, value_parser = units::duration, default_value = "0ms")]
        delay: Duration,
    },
    /// Emit server-sent events, each with its number as `id` and the instant for which it was
    /// scheduled in its data.
    ///
    /// The data is `{"n":NUMBER,"at":MICROSECONDS,"h":"HASH","p":"..."}`; `at` counts from 1970. A
    /// client that sends Last-Event-ID goes on behind that event. Clear text, HTTP/1.1.
    Sse {
        #[command(flatten)]
        listen: ListenArgs,
        /// The distance between events.
        #[arg(long, value_parser = units::duration, default_value = "1s")]
        every: Duration,
        /// The bytes of an event's data.
        #[arg(long, default_value_t = 82)]
        size: usize,
        /// How many events there are; 0: they have no end.
        #[arg(long, default_value_t = 0)]
        count: u64,
        /// Where instants are counted from.
        #[arg(long, value_enum, default_value = "connection")]
        clock: Clock,
    },
    /// Answer each WebSocket text message with its letters in reverse order.
    ///
    /// Binary messages come back as they are. Clear text, any path.
    WsReverse {
        #[command(flatten)]
        listen: ListenArgs,
        /// Answer text messages as they came.
        #[arg(long)]
        echo: bool,
    },
    /// Take webhooks and WebSub deliveries at any path, each an endpoint of its own, and report at
    /// GET /report what has come.
    ///
    /// The report counts duplicates, what came out of order and what is missing, wrong signatures
    /// and latencies, by bodies as `stub sse` has them. DELETE /report forgets all of it. A GET
    /// with hub.challenge is answered with that. A URL may say itself how it is answered:
    /// /e/17?status=500, ?delay=2s, ?hang, ?flap=2s, ?close, ?deny. GET /count is the number of
    /// posts. HTTP/1.1.
    WebhookSink {
        #[command(flatten)]
        listen: ListenArgs,
        #[command(flatten)]
        tls: TlsArgs,
        #[command(flatten)]
        sink: SinkArgs,
    },
    /// Serve JSON documents at /documents/N of which a part is new at each tick.
    ///
    /// Each holds its number, the tick's number and the tick's instant in microseconds since 1970.
    /// ETag and If-None-Match are understood; /ticks says how far each document is. Clear text.
    RenewingJson {
        #[command(flatten)]
        listen: ListenArgs,
        /// The bytes of a document.
        #[arg(long, default_value_t = 1024)]
        #[arg(value_parser = clap::value_parser!(u32).range(
            document::BYTES_MIN as i64..=document::BYTES_MAX as i64
        ))]
        size: u32,
        /// How many percent of a document's members are new at each tick.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u8).range(0..=100))]
        percent: u8,
        /// The distance between ticks.
        #[arg(long, value_parser = units::duration, default_value = "1s")]
        every: Duration,
        /// When documents are renewed.
        #[arg(long, value_enum, default_value = "tick")]
        renew: Renewal,
    },
}

/// Where a stub without TLS listens.
#[derive(Debug, clap::Args)]
struct ListenArgs {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8688")]
    listen: SocketAddr,
    /// Threads, each with a listener of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
}

/// How a stub speaks TLS.
#[derive(Debug, clap::Args)]
struct TlsArgs {
    /// Speak TLS; without --cert and --key a certificate is made.
    #[arg(long)]
    tls: bool,
    /// The certificate chain, as PEM.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The private key, as PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

impl TlsArgs {
    /// What accepts TLS, when it is spoken; by ALPN these protocols are offered.
    fn acceptor(&self, protocols: &[String]) -> anyhow::Result<Option<TlsAcceptor>> {
        let config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => pki::server_config(cert, key, protocols)?,
            _ if self.tls => {
                let folder = std::env::temp_dir().join(format!("stub-{}", std::process::id()));
                std::fs::create_dir_all(&folder)?;
                let made = Identity::make(&folder)?;
                println!("authority {}", made.ca.display());
                println!("certificate {}", made.cert.display());
                pki::server_config(&made.cert, &made.key, protocols)?
            }
            _ => return Ok(None),
        };
        Ok(Some(TlsAcceptor::from(config)))
    }
}

/// What a stub does, ready to serve.
enum Stub {
    Http(Arc<Options>),
    Sse(Arc<Emitter>),
    WsReverse(Arc<Reverser>),
    Renewing(Arc<Renewing>),
    WebhookSink(Arc<Sink>),
}

impl Kind {
    /// Where to listen, with how many threads, and what to do there.
    fn stub(self) -> anyhow::Result<(SocketAddr, usize, Stub)> {
        let (listen, stub) = match self {
            Self::Echo { server, delay } | Self::Delay { server, delay } => {
                return server.stub(delay, false);
            }
            Self::Soap { server, delay } => return server.stub(delay, true),
            Self::Sse {
                listen,
                every,
                size,
                count,
                clock,
            } => {
                anyhow::ensure!(!every.is_zero(), "--every must be longer than nothing");
                let emitter = Emitter {
                    every,
                    size,
                    count,
                    clock,
                    start: Beginning::now(),
                };
                (listen, Stub::Sse(Arc::new(emitter)))
            }
            Self::WsReverse { listen, echo } => (
                listen,
                Stub::WsReverse(Arc::new(Reverser { is_echo: echo })),
            ),
            Self::WebhookSink { listen, tls, sink } => {
                let tls = tls.acceptor(&["http/1.1".to_owned()])?;
                (listen, Stub::WebhookSink(Arc::new(Sink::new(sink, tls))))
            }
            Self::RenewingJson {
                listen,
                size,
                percent,
                every,
                renew,
            } => {
                anyhow::ensure!(!every.is_zero(), "--every must be longer than nothing");
                let shape = Shape::new(usize::try_from(size)?, percent);
                let renewing = Renewing::new(shape, every, renew);
                (listen, Stub::Renewing(Arc::new(renewing)))
            }
        };
        Ok((listen.listen, usize::from(listen.threads), stub))
    }
}

#[derive(Debug, clap::Args)]
struct ServerArgs {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8688")]
    listen: SocketAddr,
    #[command(flatten)]
    tls: TlsArgs,
    /// What ALPN offers, the preferred one first; `h2` alone without TLS means HTTP/2 from the
    /// first byte.
    #[arg(long, value_delimiter = ',', default_value = "h2,http/1.1")]
    #[arg(value_parser = ["http/1.1", "h2"])]
    protocols: Vec<String>,
    /// What is added to the delay at most, evenly spread.
    #[arg(long, value_parser = units::duration, default_value = "0ms")]
    delay_jitter: Duration,
    /// Threads, each with a listener of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// The bytes of the answer to a request without a body.
    #[arg(long, default_value_t = 50)]
    size: usize,
}

impl ServerArgs {
    fn stub(&self, delay: Duration, is_soap: bool) -> anyhow::Result<(SocketAddr, usize, Stub)> {
        let options = Arc::new(options(self, delay, is_soap)?);
        Ok((self.listen, usize::from(self.threads), Stub::Http(options)))
    }
}

/// What all connections share.
pub(crate) struct Options {
    delay: Duration,
    jitter: Duration,
    seed: AtomicU64,
    /// The answer to a request without a body.
    fixed: Bytes,
    tls: Option<TlsAcceptor>,
    /// Whether clear text is HTTP/2.
    clear_h2: bool,
    /// Whether it is the SOAP service that answers.
    is_soap: bool,
    /// What is counted.
    counts: Counts,
    /// Wakes those whose wait is over.
    alarm: Arc<Alarm>,
    /// Whether answers wait until they are let go.
    gate: watch::Sender<bool>,
}

/// What a stub has done so far.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests that have been read.
    pub begun: AtomicU64,
    /// Answers that have been written.
    pub done: AtomicU64,
}

impl Options {
    /// Echoes over HTTP/1.1 in clear text, after so long.
    fn echo(delay: Duration) -> Self {
        Self {
            delay,
            jitter: Duration::ZERO,
            seed: AtomicU64::new(0),
            fixed: Bytes::new(),
            tls: None,
            clear_h2: false,
            is_soap: false,
            counts: Counts::default(),
            alarm: Arc::default(),
            gate: watch::Sender::new(false),
        }
    }

    /// Whether answers wait.
    fn is_slow(&self) -> bool {
        !self.delay.is_zero() || !self.jitter.is_zero()
    }

    /// How long the next answer waits.
    fn next_delay(&self) -> Duration {
        if self.jitter.is_zero() {
            return self.delay;
        }
        self.delay + self.jitter.mul_f64(self.random())
    }

    /// A number from 0 to 1 at random.
    fn random(&self) -> f64 {
        // SplitMix64 (Steele, Lea, Flood 2014): spread evenly is all that is needed.
        let mut bits = self
            .seed
            .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    async fn wait(&self) {
        if *self.gate.borrow() {
            // It is never dropped before it is opened.
            let _ = self.gate.subscribe().wait_for(|closed| !closed).await;
            // Not all at once, or they would come back at once for ever.
            self.alarm.wait(self.delay.mul_f64(self.random())).await;
        }
        let delay = self.next_delay();
        if !delay.is_zero() {
            self.alarm.wait(delay).await;
        }
    }
}

/// Listens as stubs do, with a long queue.
///
/// # Errors
/// When the address cannot be had.
pub fn listen(address: SocketAddr) -> anyhow::Result<std::net::TcpListener> {
    serve::listen(address, false)
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// When an address cannot be listened on, or a certificate cannot be read or made.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (listen, threads, stub) = args.kind.stub()?;
    match stub {
        Stub::Http(options) => serve::run(listen, threads, &options)?,
        Stub::Sse(emitter) => serve::run(listen, threads, &emitter)?,
        Stub::WsReverse(reverser) => serve::run(listen, threads, &reverser)?,
        Stub::Renewing(renewing) => serve::run(listen, threads, &renewing)?,
        Stub::WebhookSink(sink) => serve::run(listen, threads, &sink)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts a stub of this kind with these arguments on a free port, in a thread that lives until the
/// process ends.
///
/// # Errors
/// When the arguments are wrong, or it cannot listen.
pub fn spawn(kind: &str, arguments: &[&str]) -> anyhow::Result<SocketAddr> {
    let line = ["stub", kind].into_iter().chain(arguments.iter().copied());
    let (_, _, stub) = Args::from_line(line)?.kind.stub()?;
    let listener = serve::listen(SocketAddr::from(([127, 0, 0, 1], 0)), false)?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || match stub {
        Stub::Http(options) => serve::serve(listener, &options),
        Stub::Sse(emitter) => serve::serve(listener, &emitter),
        Stub::WsReverse(reverser) => serve::serve(listener, &reverser),
        Stub::Renewing(renewing) => serve::serve(listener, &renewing),
        Stub::WebhookSink(sink) => serve::serve(listener, &sink),
    });
    Ok(address)
}

fn options(server: &ServerArgs, delay: Duration, is_soap: bool) -> anyhow::Result<Options> {
    let tls = server.tls.acceptor(&server.protocols)?;
    Ok(Options {
        delay,
        jitter: server.delay_jitter,
        seed: AtomicU64::new(u64::from(std::process::id())),
        fixed: Bytes::from(vec![b'x'; server.size]),
        clear_h2: tls.is_none() && server.protocols == ["h2"],
        tls,
        is_soap,
        counts: Counts::default(),
        alarm: Arc::default(),
        gate: watch::Sender::new(false),
    })
}

/// An echoing stub on a thread of this process, whose counts can be looked at. It lives until the
/// process ends.
pub struct Counted {
    /// Where it listens.
    pub address: SocketAddr,
    options: Arc<Options>,
}

impl Counted {
    /// Serves on a free port, from a thread on these cores.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn start(delay: Duration, prepare: impl FnOnce() + Send + 'static) -> anyhow::Result<Self> {
        let listener = serve::listen(SocketAddr::from(([127, 0, 0, 1], 0)), false)?;
        let address = listener.local_addr()?;
        let options = Arc::new(Options::echo(delay));
        let shared = Arc::clone(&options);
        std::thread::Builder::new()
            .name("stub".to_owned())
            .spawn(move || {
                prepare();
                serve::serve(listener, &shared)
            })?;
        Ok(Self { address, options })
    }

    /// Holds answers back from here on, or lets all that wait go, spread over the delay.
    pub fn hold(&self, holds: bool) {
        self.options.gate.send_replace(holds);
    }

    /// What has been done so far.
    pub fn counts(&self) -> &Counts {
        &self.options.counts
    }
}

#[cfg(test)]
mod testing;
