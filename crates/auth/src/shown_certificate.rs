//! The certificate that a client has shown, read once for all requests of its connection.

use std::sync::{Arc, Mutex, PoisonError};

use access::certificate::{Certificate, client_cert};
use component::access::{Caller, RequestHead};
use message::{CertificateSource, ClientCertificate};

use crate::mtls::HolderRules;

/// The most ways for which a certificate's caller is kept.
const CALLERS_MAX: usize = 8;

/// A certificate as it has been read, and the callers that ways have made of it.
pub(crate) struct ShownCertificate {
    /// What it says.
    pub read: Result<Certificate, Unreadable>,
    callers: Mutex<Vec<(Arc<HolderRules>, Arc<Caller>)>>,
}

/// Why a certificate says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// `Client-Cert` is there more than once, or is not what RFC 9440 says: the proxy has meant
    /// something by it.
    Field,
    /// It cannot be read, or says more than one thing.
    Certificate,
}

impl ShownCertificate {
    /// The one of a request.
    pub fn of(head: RequestHead<'_>) -> Option<Arc<Self>> {
        Self::read(head.certificate?)
    }

    fn read(shown: &ClientCertificate) -> Option<Arc<Self>> {
        shown.read(|source| Self {
            read: parse(source),
            callers: Mutex::default(),
        })
    }

    /// Its SHA-256, if it could be read (RFC 8705, section 3.1).
    pub fn fingerprint(&self) -> Option<[u8; 32]> {
        self.read.as_ref().ok().map(|it| it.fingerprint)
    }

    /// The caller that these rules have made of it before.
    pub fn caller(&self, rules: &Arc<HolderRules>) -> Option<Arc<Caller>> {
        let callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = callers.iter().find(|(it, _)| Arc::ptr_eq(it, rules));
        known.map(|(_, caller)| Arc::clone(caller))
    }

    /// Keeps the caller that these rules make of it. Rules of files that were loaded before go
    /// first.
    pub fn keep(&self, rules: &Arc<HolderRules>, caller: &Arc<Caller>) {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if callers.len() >= CALLERS_MAX {
            callers.remove(0);
        }
        callers.push((Arc::clone(rules), Arc::clone(caller)));
    }
}

fn parse(source: &CertificateSource) -> Result<Certificate, Unreadable> {
    let of_field;
    let der = match source {
        CertificateSource::Handshake(der) => der,
        CertificateSource::Field(value) => {
            let values = std::iter::once(&**value);
            let der = client_cert(values).map_err(|_| Unreadable::Field)?;
            of_field = der.ok_or(Unreadable::Field)?;
            &of_field
        }
    };
    Certificate::parse(der).map_err(|_| Unreadable::Certificate)
}
