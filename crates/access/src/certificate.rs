//! Callers with a certificate of their own (mutual TLS): what a certificate says, and which ones a
//! flow takes.
//!
//! The handshake has checked the chain, the signatures and the list of revoked ones before anything
//! here is asked; what came in `Client-Cert` (RFC 9440) a trusted proxy has checked. Here it is
//! only looked at whom a certificate belongs to.

mod header;
mod name;
mod rules;

use std::time::Duration;

use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

pub use header::{HeaderProblem, client_cert};
pub use name::{DistinguishedName, NameProblem};
pub use rules::{IdSource, Refused, Rules};

use crate::sha256::sha256;

/// The most bytes of a certificate.
pub const CERTIFICATE_MAX: usize = 16 * 1024;
/// The most alternative names of a certificate.
pub const NAMES_MAX: usize = 100;

/// What a certificate says about its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Whose it is.
    pub subject: DistinguishedName,
    /// Who has signed it.
    pub issuer: DistinguishedName,
    /// Its DNS names, in lower case.
    pub dns: Vec<String>,
    /// Its URIs, such as SPIFFE IDs.
    pub uris: Vec<String>,
    /// Its addresses of mail.
    pub emails: Vec<String>,
    /// The SHA-256 of all of it: what tokens are bound to (RFC 8705, `x5t#S256`).
    pub fingerprint: [u8; 32],
    /// From when on it is good, in seconds since 1970.
    pub not_before: u64,
    /// Until when, that second included.
    pub not_after: u64,
}

/// The certificate cannot be read, or says more than one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It has more than [`CERTIFICATE_MAX`] bytes or more than [`NAMES_MAX`] names.
    TooLong,
    /// It is no certificate in DER.
    Der,
    /// A name has control characters, or bytes that are no text.
    Name,
    /// It has a SPIFFE ID and another URI: such a one must be refused (SPIFFE X.509-SVID, section
    /// 2).
    Spiffe,
}

impl Certificate {
    /// Reads a certificate in DER, to its last byte.
    ///
    /// # Errors
    /// Why it says nothing that could be relied on.
    pub fn parse(der: &[u8]) -> Result<Self, Malformed> {
        if der.len() > CERTIFICATE_MAX {
            return Err(Malformed::TooLong);
        }
        let certificate = x509_cert::Certificate::from_der(der).map_err(|_| Malformed::Der)?;
        let body = certificate.tbs_certificate;
        let name = |name| DistinguishedName::of(name).map_err(|NameProblem| Malformed::Name);
        let seconds = |time: Duration| time.as_secs();
        let mut found = Self {
            subject: name(&body.subject)?,
            issuer: name(&body.issuer)?,
            dns: Vec::new(),
            uris: Vec::new(),
            emails: Vec::new(),
            fingerprint: sha256(der),
            not_before: seconds(body.validity.not_before.to_unix_duration()),
            not_after: seconds(body.validity.not_after.to_unix_duration()),
        };
        // Two extensions of one kind are refused by this, too.
        let alternatives = body.get::<SubjectAltName>().map_err(|_| Malformed::Der)?;
        let alternatives = alternatives.map(|(_, names)| names.0).unwrap_or_default();
        if alternatives.len() > NAMES_MAX {
            return Err(Malformed::TooLong);
        }
        for name in &alternatives {
            found.add(name)?;
        }
        let is_spiffe = |uri: &String| has_scheme(uri, "spiffe");
        match found.uris.len() > 1 && found.uris.iter().any(is_spiffe) {
            true => Err(Malformed::Spiffe),
            false => Ok(found),
        }
    }

    /// Whether it is good at this second.
    #[must_use]
    pub fn is_current(&self, now: u64) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }

    fn add(&mut self, name: &GeneralName) -> Result<(), Malformed> {
        let (text, names) = match name {
            GeneralName::DnsName(name) => (name.as_str(), &mut self.dns),
            GeneralName::UniformResourceIdentifier(name) => (name.as_str(), &mut self.uris),
            GeneralName::Rfc822Name(name) => (name.as_str(), &mut self.emails),
            _ => return Ok(()),
        };
        if text.is_empty() || !text.bytes().all(|it| it.is_ascii_graphic()) {
            return Err(Malformed::Name);
        }
        names.push(match name {
            GeneralName::DnsName(_) => text.to_ascii_lowercase(),
            _ => text.to_owned(),
        });
        Ok(())
    }
}

fn has_scheme(uri: &str, scheme: &str) -> bool {
    let before = uri.split_once(':');
    before.is_some_and(|(it, _)| it.eq_ignore_ascii_case(scheme))
}
