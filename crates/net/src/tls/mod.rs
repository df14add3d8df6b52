//! TLS by `rustls` with `aws-lc-rs`: identities and roots read from PEM and checked when they are
//! loaded, what a listener offers, how an upstream is verified, and the encrypted stream itself.

mod client;
mod identity;
mod server;
mod stream;
mod verify;

use std::fmt;
use std::sync::Arc;

use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;

pub use client::{Client, ClientSettings, Pin, Trust};
pub use identity::{Identity, RevocationLists, Roots};
pub use server::{ClientAuth, Server, ServerSettings};
pub(crate) use stream::TlsStream;

/// An application protocol that a connection can speak (RFC 7301).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// HTTP/1.1
    Http1,
    /// HTTP/2
    Http2,
}

impl Protocol {
    fn id(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }

    fn ids(protocols: &[Self]) -> Vec<Vec<u8>> {
        protocols.iter().map(|it| it.id().to_vec()).collect()
    }
}

/// The lowest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MinVersion {
    /// TLS 1.2 (RFC 5246)
    #[default]
    Tls12,
    /// TLS 1.3 (RFC 8446)
    Tls13,
}

static TLS13_ONLY: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];

impl MinVersion {
    fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Self::Tls12 => rustls::ALL_VERSIONS,
            Self::Tls13 => &TLS13_ONLY,
        }
    }
}

/// Why certificates, keys or settings cannot be used. For whoever writes the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    /// What is wrong.
    pub message: String,
    /// What helps.
    pub hint: &'static str,
}

impl TlsError {
    fn new(message: impl Into<String>, hint: &'static str) -> Self {
        Self {
            message: message.into(),
            hint,
        }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for TlsError {}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

#[cfg(test)]
mod tests;
