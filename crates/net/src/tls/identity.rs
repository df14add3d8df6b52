//! Certificates and keys as they come in PEM files, checked where they are loaded: that they can
//! be read, belong together, and hold today.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_cert::crl::CertificateList;
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::time::Time;

use super::{TlsError, provider};

/// A certificate chain with its key.
#[derive(Clone, Debug)]
pub struct Identity {
    pub(super) certified: Arc<CertifiedKey>,
    names: Vec<String>,
    expires: SystemTime,
}

impl Identity {
    /// Reads a chain, the server's or client's own certificate first, and its key.
    ///
    /// # Errors
    /// When either cannot be read, they do not belong together, or the certificate does not hold
    /// at `now`.
    pub fn from_pem(chain: &[u8], key: &[u8], now: SystemTime) -> Result<Self, TlsError> {
        let chain = read_certificates(chain)?;
        let own = chain.first().ok_or_else(no_certificate)?;
        let facts = Facts::read(own)?;
        facts.check_time(now)?;
        let key = read_key(key)?;
        let key = provider()
            .key_provider
            .load_private_key(key)
            .map_err(|error| {
                let message = format!("the key cannot be used: {error}");
                TlsError::new(message, "RSA, ECDSA and Ed25519 keys can be used")
            })?;
        let (names, expires) = (facts.names, facts.not_after);
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            // Not every kind of key can tell its public half; then the handshake will show.
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
            Err(_) => {
                return Err(TlsError::new(
                    "the key does not belong to the certificate",
                    "the first certificate of the file must be the one the key was made for",
                ));
            }
        }
        Ok(Self {
            certified: Arc::new(certified),
            names,
            expires,
        })
    }

    /// The names and addresses the certificate is for, as it writes them.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// When the certificate ends.
    pub fn expires(&self) -> SystemTime {
        self.expires
    }

    /// Whether the certificate is for this name; `*` stands for one first label (RFC 6125).
    pub fn is_for(&self, name: &str) -> bool {
        self.names.iter().any(|pattern| matches(pattern, name))
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    if let Some(suffix) = pattern.strip_prefix("*.") {
        return name
            .split_once('.')
            .is_some_and(|(label, rest)| !label.is_empty() && rest.eq_ignore_ascii_case(suffix));
    }
    pattern.eq_ignore_ascii_case(name)
}

/// Certificates of authorities that others are verified with.
#[derive(Clone, Debug)]
pub struct Roots(pub(super) Arc<RootCertStore>);

impl Roots {
    /// Reads authorities from PEM.
    ///
    /// # Errors
    /// When there is none, or one cannot be read.
    pub fn from_pem(bytes: &[u8]) -> Result<Self, TlsError> {
        let mut store = RootCertStore::empty();
        for certificate in read_certificates(bytes)? {
            store.add(certificate).map_err(|error| {
                let message = format!("an authority's certificate cannot be used: {error}");
                TlsError::new(message, "it must be an X.509 version 3 certificate")
            })?;
        }
        if store.is_empty() {
            return Err(no_certificate());
        }
        Ok(Self(Arc::new(store)))
    }

    /// The authorities that the operating system trusts.
    ///
    /// # Errors
    /// When there are none.
    pub fn of_system() -> Result<Self, TlsError> {
        let mut store = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        store.add_parsable_certificates(found.certs);
        if store.is_empty() {
            return Err(no_authorities());
        }
        Ok(Self(Arc::new(store)))
    }

    /// The same for clients that make their own TLS: the certificates, DER.
    ///
    /// # Errors
    /// When there are none.
    pub fn der_of_system() -> Result<Vec<Vec<u8>>, TlsError> {
        let found = rustls_native_certs::load_native_certs().certs;
        let mut store = RootCertStore::empty();
        let usable = found.into_iter().filter(|it| store.add(it.clone()).is_ok());
        let usable: Vec<Vec<u8>> = usable.map(|it| it.to_vec()).collect();
        match usable.is_empty() {
            true => Err(no_authorities()),
            false => Ok(usable),
        }
    }
}

/// Lists of revoked certificates (RFC 5280, section 5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevocationLists {
    pub(super) lists: Vec<CertificateRevocationListDer<'static>>,
    pub(super) leaf_only: bool,
    expires: Option<SystemTime>,
}

impl RevocationLists {
    /// Without a list. `leaf_only` is whether only the client's own certificate is looked for, not
    /// those of the authorities between it and a root.
    pub fn new(leaf_only: bool) -> Self {
        Self {
            leaf_only,
            ..Self::default()
        }
    }

    /// Adds the lists of a file: PEM, or one list in DER.
    ///
    /// # Errors
    /// When there is none, or one cannot be read.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
        let unreadable = |error: &dyn std::fmt::Display| {
            let message = format!("the list of revoked certificates cannot be read: {error}");
            TlsError::new(message, "`openssl ca -gencrl` makes one")
        };
        let lists = match bytes.first() {
            // How a sequence of DER begins.
            Some(0x30) => vec![CertificateRevocationListDer::from(bytes.to_vec())],
            _ => CertificateRevocationListDer::pem_slice_iter(bytes)
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| unreadable(&error))?,
        };
        if lists.is_empty() {
            return Err(unreadable(
                &"there is no `-----BEGIN X509 CRL-----` in the file",
            ));
        }
        for list in lists {
            let read = CertificateList::from_der(&list).map_err(|error| unreadable(&error))?;
            let next = read.tbs_cert_list.next_update;
            let next = next.ok_or_else(|| unreadable(&"it does not say when it ends"))?;
            let next = UNIX_EPOCH + next.to_unix_duration();
            self.expires = Some(self.expires.map_or(next, |known| known.min(next)));
            self.lists.push(list);
        }
        Ok(())
    }

    /// Whether there is none: then no certificate is looked for.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// When the first of them ends. From then on nobody comes in whose certificate it would have to
    /// be looked for in.
    pub fn expires(&self) -> Option<SystemTime> {
        self.expires
    }
}

fn no_authorities() -> TlsError {
    TlsError::new(
        "the system has no trusted authorities",
        "install the package ca-certificates, or name a file with `ca`",
    )
}

fn no_certificate() -> TlsError {
    TlsError::new(
        "there is no certificate in the file",
        "it is PEM and has lines `-----BEGIN CERTIFICATE-----`",
    )
}

fn read_certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let certificates = certificates.map_err(|error| {
        let message = format!("the certificate file is not PEM: {error}");
        TlsError::new(message, "convert DER with `openssl x509 -inform der`")
    })?;
    if certificates.is_empty() {
        return Err(no_certificate());
    }
    Ok(certificates)
}

fn read_key(bytes: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
        PemError::NoItemsFound if contains(bytes, b"ENCRYPTED") => TlsError::new(
            "the key is encrypted with a pass phrase",
            "take the pass phrase off: `openssl pkey -in KEY -out PLAIN`",
        ),
        PemError::NoItemsFound => TlsError::new(
            "there is no private key in the file",
            "it is PEM and has a line `-----BEGIN PRIVATE KEY-----`",
        ),
        error => TlsError::new(
            format!("the key file is not PEM: {error}"),
            "convert DER with `openssl pkey -inform der`",
        ),
    })
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    memchr::memmem::find(bytes, text).is_some()
}

/// What must be known of a certificate and `rustls` does not tell.
pub(super) struct Facts {
    names: Vec<String>,
    not_before: SystemTime,
    not_after: SystemTime,
    /// The `SubjectPublicKeyInfo`, as DER: what a pin is the hash of (RFC 7469, section 2.4).
    pub public_key: Vec<u8>,
}

impl Facts {
    pub fn read(certificate: &CertificateDer<'_>) -> Result<Self, TlsError> {
        let broken = |error: x509_cert::der::Error| {
            let message = format!("the certificate cannot be read: {error}");
            TlsError::new(message, "look at it with `openssl x509 -noout -text`")
        };
        let certificate = x509_cert::Certificate::from_der(certificate).map_err(broken)?;
        let body = certificate.tbs_certificate;
        let mut names = Vec::new();
        if let Some((_, alternatives)) = body.get::<SubjectAltName>().map_err(broken)? {
            names.extend(alternatives.0.iter().filter_map(name_of));
        }
        Ok(Self {
            names,
            not_before: instant(body.validity.not_before),
            not_after: instant(body.validity.not_after),
            public_key: body.subject_public_key_info.to_der().map_err(broken)?,
        })
    }

    fn check_time(&self, now: SystemTime) -> Result<(), TlsError> {
        if now > self.not_after {
            let days = days(now, self.not_after);
            let message = format!("the certificate has expired, {days} ago");
            return Err(TlsError::new(message, "renew it"));
        }
        if now < self.not_before {
            let days = days(self.not_before, now);
            let message = format!("the certificate begins to hold only in {days}");
            return Err(TlsError::new(message, "look at this machine's clock"));
        }
        Ok(())
    }
}

fn days(later: SystemTime, earlier: SystemTime) -> String {
    let seconds = later
        .duration_since(earlier)
        .map_or(0, |time| time.as_secs());
    match seconds / 86_400 {
        0 => "less than a day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

fn instant(time: Time) -> SystemTime {
    let since: Duration = time.to_unix_duration();
    UNIX_EPOCH + since
}

fn name_of(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(name.to_string()),
        GeneralName::IpAddress(bytes) => {
            let bytes = bytes.as_bytes();
            let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}
