//! Certificates made on the spot: an authority, and what it issues.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair,
    RevokedCertParams, SanType, SerialNumber, date_time_ymd,
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
    /// The number of the certificate, for lists of revoked ones.
    pub serial: Vec<u8>,
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

    /// A certificate of a client of this DNS name that is good for so many seconds from now on.
    pub fn issue_for_seconds(&self, name: &str, seconds: u64) -> Issued {
        let since_1970 = |seconds| date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
        self.issue_with(&[name], |params| {
            params.not_before = since_1970(now() - 60);
            params.not_after = since_1970(now() + seconds);
        })
    }

    /// A list of these revoked certificates in PEM. It is good for so many seconds from now on, or
    /// has ended an hour ago when these are 0.
    pub fn revoke(&self, all: &[&Issued], seconds: u64) -> String {
        let since_1970 = |seconds| date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
        let list = CertificateRevocationListParams {
            this_update: since_1970(now() - 7200),
            next_update: since_1970(match seconds {
                0 => now() - 3600,
                seconds => now() + seconds,
            }),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: all
                .iter()
                .map(|it| RevokedCertParams {
                    serial_number: SerialNumber::from_slice(&it.serial),
                    revocation_time: since_1970(now() - 7200),
                    reason_code: None,
                    invalidity_date: None,
                })
                .collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
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
        let mut serial = vec![0; 16];
        aws_lc_rs::rand::fill(&mut serial).unwrap();
        // A positive number that begins with no zero.
        serial[0] = 1;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Issued {
            serial,
            cert: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_secs()
}
