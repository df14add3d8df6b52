//! What a TLS listener offers: one certificate or several by name (SNI), protocols (ALPN),
//! resumption, and whether clients show certificates of their own.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;

use super::{Identity, MinVersion, Protocol, RevocationLists, Roots, TlsError, provider};

/// How many TLS 1.2 sessions without a ticket can be resumed.
const SESSIONS_MAX: usize = 1024;

/// Whether clients show a certificate.
#[derive(Clone, Debug, Default)]
pub enum ClientAuth {
    /// They are not asked.
    #[default]
    None,
    /// They are asked; a certificate that is shown must be good.
    Optional(Roots),
    /// Without a good one there is no connection.
    Required(Roots),
}

/// What a TLS listener offers.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Certificates; a client that names none of their names gets the first.
    pub identities: Vec<Identity>,
    /// Whether clients show a certificate.
    pub client_auth: ClientAuth,
    /// The certificates of clients that are not taken any more.
    pub revoked: RevocationLists,
    /// Protocols, the preferred one first.
    pub protocols: Vec<Protocol>,
    /// The lowest version.
    pub min_version: MinVersion,
}

/// The server side of TLS, shared by all connections of a listener on all workers.
#[derive(Clone, Debug)]
pub struct Server {
    pub(super) config: Arc<ServerConfig>,
    client_auth: ClientAuth,
    revoked: RevocationLists,
    min_version: MinVersion,
}

impl Server {
    /// Puts the settings to use.
    ///
    /// # Errors
    /// When there is no certificate, or the authorities for clients cannot be used.
    pub fn new(settings: ServerSettings) -> Result<Self, TlsError> {
        let ServerSettings {
            identities,
            client_auth,
            revoked,
            protocols,
            min_version,
        } = settings;
        let unusable =
            |error: &dyn std::fmt::Display| TlsError::new(error.to_string(), "look at `tls`");
        if identities.is_empty() {
            return Err(unusable(&"a TLS listener needs a certificate"));
        }
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(min_version.versions())
            .map_err(|error| unusable(&error))?;
        let verifier = |roots: &Roots, optional: bool| {
            let roots = Arc::clone(&roots.0);
            let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
            let builder = match optional {
                true => builder.allow_unauthenticated(),
                false => builder,
            };
            let builder = match revoked.is_empty() {
                true => builder,
                // By default a list that has ended would count as a fresh one.
                false => builder
                    .with_crls(revoked.lists.iter().cloned())
                    .enforce_revocation_expiration(),
            };
            let builder = match revoked.leaf_only {
                true => builder.only_check_end_entity_revocation(),
                false => builder,
            };
            builder.build().map_err(|error| unusable(&error))
        };
        let builder = match &client_auth {
            ClientAuth::None => builder.with_no_client_auth(),
            ClientAuth::Optional(roots) => {
                builder.with_client_cert_verifier(verifier(roots, true)?)
            }
            ClientAuth::Required(roots) => {
                builder.with_client_cert_verifier(verifier(roots, false)?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(ByName(identities)));
        config.alpn_protocols = Protocol::ids(&protocols);
        config.session_storage = rustls::server::ServerSessionMemoryCache::new(SESSIONS_MAX);
        config.ticketer =
            rustls::crypto::aws_lc_rs::Ticketer::new().map_err(|error| unusable(&error))?;
        Ok(Self {
            config: Arc::new(config),
            client_auth,
            revoked,
            min_version,
        })
    }

    /// Whether the other one asks the same of clients: the same lowest version, and certificates of
    /// the same authorities that the same lists do not revoke. A connection that was made under
    /// other lists ends: its client might not get in again. Its own certificates may differ: a
    /// connection that was made with one before its renewal is as good as a new one.
    pub fn admits_like(&self, other: &Self) -> bool {
        let same_clients = match (&self.client_auth, &other.client_auth) {
            (ClientAuth::None, ClientAuth::None) => true,
            (ClientAuth::Optional(ours), ClientAuth::Optional(theirs))
            | (ClientAuth::Required(ours), ClientAuth::Required(theirs)) => {
                ours.0.roots == theirs.0.roots
            }
            _ => false,
        };
        same_clients && self.revoked == other.revoked && self.min_version == other.min_version
    }
}

/// Finds the certificate for the name a client asks for (RFC 6066, section 3).
#[derive(Debug)]
struct ByName(Vec<Identity>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello
            .server_name()
            .and_then(|name| self.0.iter().find(|identity| identity.is_for(name)));
        named
            .or(self.0.first())
            .map(|identity| Arc::clone(&identity.certified))
    }
}
