//! `intertie stub`: back ends that answer at once, or after a while, so that something else is
//! measured.

mod h1;
mod h2;
mod serve;

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
}

impl Options {
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
            tokio::time::sleep(delay).await;
        }
    }
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// When an address cannot be listened on, or a certificate cannot be read or made.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (server, delay) = match args.kind {
        Kind::Echo { server, delay } | Kind::Delay { server, delay } => (server, delay),
    };
    let options = Arc::new(options(&server, delay)?);
    serve::run(server.listen, usize::from(server.threads), &options)?;
    Ok(ExitCode::SUCCESS)
}

fn options(server: &ServerArgs, delay: Duration) -> anyhow::Result<Options> {
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
    })
}

#[cfg(test)]
pub(crate) mod testing;
