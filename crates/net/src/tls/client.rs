//! How an upstream is reached over TLS: whom to trust, which name to ask for, which certificate of
//! our own to show.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;

use super::verify::Verifier;
use super::{Identity, MinVersion, Protocol, Roots, TlsError, provider};

/// How many upstream sessions can be resumed.
const SESSIONS_MAX: usize = 256;

/// The SHA-256 hash of a certificate's public key (RFC 7469, section 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin(pub [u8; 32]);

/// What makes an upstream's certificate good.
#[derive(Clone, Debug)]
pub enum Trust {
    /// A chain to one of these authorities and the right name; when there are pins, one of them
    /// too.
    Chain(Roots, Vec<Pin>),
    /// One of these public keys, whoever has signed it and for whichever name.
    Pinned(Vec<Pin>),
}

/// How an upstream is reached over TLS.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// What makes its certificate good.
    pub trust: Trust,
    /// The certificate that we show when asked.
    pub identity: Option<Identity>,
    /// Protocols that we offer, the preferred one first.
    pub protocols: Vec<Protocol>,
    /// The lowest version.
    pub min_version: MinVersion,
}

/// The client side of TLS for one upstream.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
}

impl Client {
    /// Puts the settings to use. `name` is the one that the certificate must have and that is asked
    /// for (SNI): a DNS name or an address.
    ///
    /// # Errors
    /// When the name is none, or the settings cannot be used.
    pub fn new(name: &str, settings: ClientSettings) -> Result<Self, TlsError> {
        let ClientSettings {
            trust,
            identity,
            protocols,
            min_version,
        } = settings;
        let name = server_name(name)?;
        let unusable =
            |error: &dyn std::fmt::Display| TlsError::new(error.to_string(), "look at `tls`");
        let provider = provider();
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(min_version.versions())
            .map_err(|error| unusable(&error))?;
        let builder = match trust {
            Trust::Chain(roots, pins) if pins.is_empty() => builder.with_root_certificates(roots.0),
            trust => builder
                .dangerous()
                .with_custom_certificate_verifier(Verifier::new(trust, &provider)?),
        };
        let mut config = match identity {
            Some(identity) => {
                let identity = SingleCertAndKey::from((*identity.certified).clone());
                builder.with_client_cert_resolver(Arc::new(identity))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = Protocol::ids(&protocols);
        config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        Ok(Self {
            config: Arc::new(config),
            name,
        })
    }

    /// The same for another name: an upstream's next endpoint. Sessions are shared.
    ///
    /// # Errors
    /// When the name is none.
    pub fn for_name(&self, name: &str) -> Result<Self, TlsError> {
        Ok(Self {
            config: Arc::clone(&self.config),
            name: server_name(name)?,
        })
    }

    /// The same with HTTP/1.1 as the only protocol that is offered. Sessions are shared.
    pub(crate) fn for_http1(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = Protocol::ids(&[Protocol::Http1]);
        Self {
            config: Arc::new(config),
            name: self.name.clone(),
        }
    }

    /// The settings as a driver of a database takes them, which does TLS by itself. The name that
    /// the certificate must have is not among them.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// Whether both are one: made of the same settings, for the same name.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.name == other.name
    }
}

fn server_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(name.to_owned()).map_err(|error| {
        let hint = "write a DNS name or an address as `server_name`";
        TlsError::new(format!("the server name cannot be used: {error}"), hint)
    })
}
