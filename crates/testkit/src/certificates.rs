//! Certificates made on the spot: an authority, and what it issues.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};

/// An authority of certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub cert: String,
    /// Its key.
    pub key: String,
}

/// What the certificate of a client says about it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientNames<'a> {
    /// The attributes of the subject, by the numbers of their types, in the order of the
    /// certificate.
    pub subject: &'a [(&'a [u64], &'a str)],
    /// Alternative names: DNS names.
    pub dns: &'a [&'a str],
    /// Alternative names: URIs.
    pub uris: &'a [&'a str],
    /// Alternative names: addresses of mail.
    pub emails: &'a [&'a str],
}

impl Authority {
    /// An authority of this name.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Its own certificate, PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for these names and addresses, for both sides of TLS.
    pub fn issue(&self, names: &[&str]) -> Issued {
        self.issue_with(names, |_| {})
    }

    /// A certificate of a client.
    pub fn issue_client(&self, names: &ClientNames<'_>) -> Issued {
        self.issue_with(&[], |params| {
            params.distinguished_name = DistinguishedName::new();
            for (kind, value) in names.subject {
                let kind = DnType::from_oid(kind);
                let value = DnValue::Utf8String((*value).to_owned());
                params.distinguished_name.push(kind, value);
            }
            let text = |text: &&str| (**text).try_into().unwrap();
            let dns = names.dns.iter().map(|it| SanType::DnsName(text(it)));
            let uris = names.uris.iter().map(|it| SanType::URI(text(it)));
            let emails = names.emails.iter().map(|it| SanType::Rfc822Name(text(it)));
            params.subject_alt_names = dns.chain(uris).chain(emails).collect();
        })
    }

    /// One that has ended long ago.
    pub fn issue_expired(&self, names: &[&str]) -> Issued {
        self.issue_with(names, |params| {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        })
    }

    /// One that begins to hold in the far future.
    pub fn issue_future(&self, names: &[&str]) -> Issued {
        self.issue_with(names, |params| {
            params.not_before = date_time_ymd(3000, 1, 1);
            params.not_after = date_time_ymd(3001, 1, 1);
        })
    }

    fn issue_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Issued {
            cert: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}
