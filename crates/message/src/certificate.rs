//! The certificate that a client has shown.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The certificate that a client has shown, to us or to a trusted proxy in front of us. It is
/// shared by all requests of a connection, with what has been read from it.
pub struct ClientCertificate {
    source: CertificateSource,
    read: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// How a certificate has come here, with what it was then.
#[derive(Debug)]
pub enum CertificateSource {
    /// The client has shown it in the TLS handshake, which has checked it: DER.
    Handshake(Vec<u8>),
    /// A trusted proxy has: the value of `Client-Cert` (RFC 9440, section 2.2), not looked at yet.
    /// Several fields stand with `, ` between them, which makes them no value of that field.
    Field(Vec<u8>),
}

impl ClientCertificate {
    /// One that nobody has read.
    #[must_use]
    pub fn new(source: CertificateSource) -> Self {
        Self {
            source,
            read: OnceLock::new(),
        }
    }

    /// What has come.
    pub fn source(&self) -> &CertificateSource {
        &self.source
    }

    /// What has been made of it, made when this is first called. All callers have to make the same
    /// type: of another one this gives nothing.
    pub fn read<T: Any + Send + Sync>(
        &self,
        make: impl FnOnce(&CertificateSource) -> T,
    ) -> Option<Arc<T>> {
        let read = self.read.get_or_init(|| Arc::new(make(&self.source)));
        Arc::clone(read).downcast().ok()
    }
}

/// The source alone.
impl fmt::Debug for ClientCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.source, formatter)
    }
}
