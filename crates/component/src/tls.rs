//! TLS settings as flow files say them: names of files with their places, and choices. Plain data;
//! the files are read where the plan is put to use.

use std::fmt;

use config::{Span, Spanned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A protocol that a listener takes or an upstream is spoken to with.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[schemars(inline)]
pub enum Protocol {
    /// HTTP/1.1 (RFC 9112)
    #[serde(rename = "http/1.1")]
    Http1,
    /// HTTP/2 (RFC 9113)
    #[serde(rename = "h2")]
    Http2,
}

/// The minimum version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246)
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3 (RFC 8446)
    #[serde(rename = "1.3")]
    Tls13,
}

/// A file that a flow file names, relative to the flow file's folder.
#[derive(Clone)]
pub struct FileName {
    /// As it is written.
    pub path: String,
    /// Where it is written.
    pub span: Span,
}

impl From<&Spanned<String>> for FileName {
    fn from(name: &Spanned<String>) -> Self {
        Self {
            path: name.value.clone(),
            span: name.span,
        }
    }
}

/// Two files are one when they are written alike in one flow file's folder; the place is no part
/// of that.
impl PartialEq for FileName {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for FileName {}

/// Without the place, as above: keys of states are made from this.
impl fmt::Debug for FileName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.path, formatter)
    }
}

/// A certificate chain and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    /// The chain, the own certificate first.
    pub cert: FileName,
    /// The private key.
    pub key: FileName,
}

/// Whether clients of a listener show certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ClientAuth {
    /// Without a good certificate there is no connection.
    #[default]
    Required,
    /// A client may show none; one that is shown must be good.
    Optional,
}

/// Certificates of a listener's clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTls {
    /// The authorities.
    pub ca: FileName,
    /// Whether there must be one.
    pub auth: ClientAuth,
    /// Lists of revoked certificates; without any, none is looked for.
    pub crls: Vec<FileName>,
    /// Whether only the client's own certificate is looked for in the lists, not those between it
    /// and the authority.
    pub crl_leaf_only: bool,
}

/// TLS of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTls {
    /// Certificates; the first serves clients that ask for none of the others' names.
    pub identities: Vec<IdentityFiles>,
    /// What is asked of clients, when they show certificates.
    pub clients: Option<ClientTls>,
    /// The lowest version.
    pub min_version: TlsVersion,
}

/// What makes an upstream's certificate good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Verify {
    /// A chain to a trusted authority and the right name; with `pin`, a pinned key too.
    #[default]
    Chain,
    /// A pinned key alone, whoever has signed it and for whichever name.
    Pin,
}

/// TLS to an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The authorities to trust instead of the system's.
    pub ca: Option<FileName>,
    /// The certificate to show.
    pub identity: Option<IdentityFiles>,
    /// The name that the certificate must have, instead of the target's host.
    pub server_name: Option<String>,
    /// What makes the certificate good.
    pub verify: Verify,
    /// SHA-256 hashes of public keys (RFC 7469, section 2.4).
    pub pins: Vec<[u8; 32]>,
    /// The lowest version.
    pub min_version: TlsVersion,
    /// Where the settings or the URL stand.
    pub place: Option<Place>,
}

/// A place in a flow file that does not count when settings are compared.
#[derive(Clone, Copy)]
pub struct Place(pub Span);

/// Nothing of it: keys of states are made from the settings as they are shown, and are the same
/// when lines have moved.
impl fmt::Debug for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("_")
    }
}

impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Place {}
