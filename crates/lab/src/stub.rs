//! `intertie stub`: back ends that answer at once, or after a while, so that something else is
//! measured.

mod alarm;
mod h1;
mod h2;
mod serve;
mod soap;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio_rustls::TlsAcceptor;

use crate::pki::{self, Identity};
use crate::units;

use alarm::Alarm;

pub(crate) use soap::WSDL;

/// Arguments of `intertie stub`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    kind: Kind,
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
}

impl Kind {
    fn parts(self) -> (ServerArgs, Duration, bool) {
        match self {
            Self::Echo { server, delay } | Self::Delay { server, delay } => (server, delay, false),
            Self::Soap { server, delay } => (server, delay, true),
        }
    }
}

#[derive(Debug, clap::Args)]
struct ServerArgs {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8688")]
    listen: SocketAddr,
    /// Speak TLS; without --cert and --key a certificate is made.
    #[arg(long)]
    tls: bool,
    /// The certificate chain, as PEM.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The private key, as PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
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
}

/// What a stub has done so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
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
        // SplitMix64 (Steele, Lea, Flood 2014): spread evenly is all that is needed.
        let mut bits = self
            .seed
            .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let part = ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        self.delay + self.jitter.mul_f64(part)
    }

    async fn wait(&self) {
        let delay = self.next_delay();
        if !delay.is_zero() {
            self.alarm.wait(delay).await;
        }
    }
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// When an address cannot be listened on, or a certificate cannot be read or made.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (server, delay, is_soap) = args.kind.parts();
    let options = Arc::new(options(&server, delay, is_soap)?);
    serve::run(server.listen, usize::from(server.threads), &options)?;
    Ok(ExitCode::SUCCESS)
}

fn options(server: &ServerArgs, delay: Duration, is_soap: bool) -> anyhow::Result<Options> {
    let tls = match (&server.cert, &server.key) {
        (Some(cert), Some(key)) => Some(pki::server_config(cert, key, &server.protocols)?),
        _ if server.tls => {
            let folder = std::env::temp_dir().join(format!("stub-{}", std::process::id()));
            std::fs::create_dir_all(&folder)?;
            let made = Identity::make(&folder)?;
            println!("authority {}", made.ca.display());
            println!("certificate {}", made.cert.display());
            Some(pki::server_config(
                &made.cert,
                &made.key,
                &server.protocols,
            )?)
        }
        _ => None,
    };
    Ok(Options {
        delay,
        jitter: server.delay_jitter,
        seed: AtomicU64::new(u64::from(std::process::id())),
        fixed: Bytes::from(vec![b'x'; server.size]),
        clear_h2: tls.is_none() && server.protocols == ["h2"],
        tls: tls.map(TlsAcceptor::from),
        is_soap,
        counts: Counts::default(),
        alarm: Arc::default(),
    })
}

/// An echoing stub on a thread of this process, whose counts can be looked at. It lives until the
/// process ends.
pub(crate) struct Counted {
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

    /// What has been done so far.
    pub fn counts(&self) -> &Counts {
        &self.options.counts
    }
}

#[cfg(test)]
pub(crate) mod testing;
