//! Which certificates a flow takes, and as whom it knows their holders.

use super::{Certificate, DistinguishedName};
use crate::hex;

/// The most bytes of an id.
const ID_MAX: usize = 512;

/// Which certificates are taken, of those that the listener trusts.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    holders: Vec<Holder>,
    issuers: Vec<DistinguishedName>,
    id: Vec<IdSource>,
}

/// One way to name holders.
#[derive(Clone, Debug)]
enum Holder {
    Subject(DistinguishedName),
    CommonName(String),
    Dns(String),
    Uri(String),
    Email(String),
    Fingerprint([u8; 32]),
}

/// What of a certificate is its holder's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdSource {
    /// The first URI.
    Uri,
    /// The first DNS name.
    Dns,
    /// The first address of mail.
    Email,
    /// The common name of the subject.
    CommonName,
    /// The whole subject, as RFC 4514 writes it.
    Subject,
    /// The SHA-256 of the certificate, in hexadecimal digits.
    Fingerprint,
}

impl IdSource {
    /// Those that are tried when none is chosen. In a certificate that has none of them the
    /// fingerprint is the id, which nobody else can have.
    pub const DEFAULT: [Self; 4] = [Self::Uri, Self::Dns, Self::CommonName, Self::Fingerprint];

    fn of(self, certificate: &Certificate) -> Option<String> {
        match self {
            Self::Uri => certificate.uris.first().cloned(),
            Self::Dns => certificate.dns.first().cloned(),
            Self::Email => certificate.emails.first().cloned(),
            // Authorities that check alternative names often take any common name: none may look
            // like a URI.
            Self::CommonName => {
                let name = certificate.subject.common_name()?;
                (!name.contains(':')).then(|| name.to_owned())
            }
            Self::Subject => Some(certificate.subject.to_string()),
            Self::Fingerprint => Some(hex::encode(&certificate.fingerprint)),
        }
    }
}

/// Why a certificate is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// It is not valid yet, or no more: a connection may last longer than its certificate.
    Time,
    /// It belongs to nobody whom the rules name.
    Holder,
    /// Another authority has issued it.
    Issuer,
    /// It has nothing of what its holder is to be known by.
    Id,
}

impl Refused {
    /// A word for the log and for labels of metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Holder => "holder",
            Self::Issuer => "issuer",
            Self::Id => "id",
        }
    }
}

impl Rules {
    /// Takes every certificate that the listener trusts, until one of the others is called: then
    /// only those of one of the holders.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes this subject, as RFC 4514 writes it, or this common name when it has no `=`.
    ///
    /// # Errors
    /// A sentence, when it is neither.
    pub fn subject(&mut self, text: &str) -> Result<(), &'static str> {
        self.holders.push(match text.contains('=') {
            true => Holder::Subject(name(text)?),
            false => Holder::CommonName(plain(text)?.to_owned()),
        });
        Ok(())
    }

    /// Takes this DNS name, or with `*.` in front every name with one label more.
    ///
    /// # Errors
    /// A sentence, when it is none.
    pub fn dns(&mut self, text: &str) -> Result<(), &'static str> {
        let rest = text.strip_prefix("*.").unwrap_or(text);
        let is_letter = |it: u8| it.is_ascii_alphanumeric() || b"-_.".contains(&it);
        if rest.is_empty() || rest.starts_with('.') || !rest.bytes().all(is_letter) {
            return Err("it is no DNS name, with or without `*.` in front");
        }
        self.holders.push(Holder::Dns(text.to_ascii_lowercase()));
        Ok(())
    }

    /// Takes this URI to the letter, such as `spiffe://example/shop`, or with `/*` behind it
    /// everything below.
    ///
    /// # Errors
    /// A sentence, when it is none.
    pub fn uri(&mut self, text: &str) -> Result<(), &'static str> {
        let (scheme, rest) = plain(text)?.split_once(':').unwrap_or_default();
        let has_scheme = scheme.starts_with(|it: char| it.is_ascii_alphabetic());
        if !has_scheme || matches!(rest, "" | "/*" | "//*" | "///*") {
            return Err("it is no URI, with or without `/*` behind it");
        }
        self.holders.push(Holder::Uri(text.to_owned()));
        Ok(())
    }

    /// Takes this address of mail; case matters only before the `@` (RFC 5280, section 7.5).
    ///
    /// # Errors
    /// A sentence, when it is none.
    pub fn email(&mut self, text: &str) -> Result<(), &'static str> {
        match plain(text)?.rsplit_once('@') {
            Some((user, host)) if !user.is_empty() && !host.is_empty() => {
                self.holders.push(Holder::Email(text.to_owned()));
                Ok(())
            }
            _ => Err("it is no address of mail"),
        }
    }

    /// Takes the certificate of this SHA-256: 64 hexadecimal digits, with or without colons between
    /// the pairs as OpenSSL writes them.
    ///
    /// # Errors
    /// A sentence, when it is none.
    pub fn fingerprint(&mut self, text: &str) -> Result<(), &'static str> {
        let has_pairs = text.len() == 95 && text.split(':').all(|pair| pair.len() == 2);
        let digits = match has_pairs {
            true => text.replace(':', ""),
            false => text.to_owned(),
        };
        let hash = hex::decode(&digits).ok_or("it is no SHA-256: 64 hexadecimal digits")?;
        self.holders.push(Holder::Fingerprint(hash));
        Ok(())
    }

    /// Takes only certificates of this issuer, as RFC 4514 writes it; of several, one of them.
    ///
    /// # Errors
    /// A sentence, when it is none.
    pub fn issuer(&mut self, text: &str) -> Result<(), &'static str> {
        self.issuers.push(name(text)?);
        Ok(())
    }

    /// Knows holders by this and nothing else.
    pub fn id(&mut self, source: IdSource) {
        self.id = vec![source];
    }

    /// The id of the holder. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// Why the certificate is not taken.
    pub fn check(&self, certificate: &Certificate, now: u64) -> Result<String, Refused> {
        if !certificate.is_current(now) {
            return Err(Refused::Time);
        }
        if !self.issuers.is_empty() && !self.issuers.contains(&certificate.issuer) {
            return Err(Refused::Issuer);
        }
        let is_taken = |holder: &Holder| holder.is_of(certificate);
        if !self.holders.is_empty() && !self.holders.iter().any(is_taken) {
            return Err(Refused::Holder);
        }
        let sources = match self.id.is_empty() {
            true => &IdSource::DEFAULT[..],
            false => &self.id,
        };
        let id = sources.iter().find_map(|it| it.of(certificate));
        id.filter(|it| (1..=ID_MAX).contains(&it.len()))
            .ok_or(Refused::Id)
    }
}

impl Holder {
    fn is_of(&self, certificate: &Certificate) -> bool {
        match self {
            Self::Subject(name) => certificate.subject == *name,
            Self::CommonName(name) => certificate.subject.common_name() == Some(name),
            Self::Dns(name) => certificate.dns.iter().any(|it| is_dns(name, it)),
            Self::Uri(uri) => certificate.uris.iter().any(|it| is_uri(uri, it)),
            Self::Email(address) => certificate.emails.iter().any(|it| is_email(address, it)),
            Self::Fingerprint(hash) => certificate.fingerprint == *hash,
        }
    }
}

/// Both are in lower case.
fn is_dns(wanted: &str, name: &str) -> bool {
    match wanted.strip_prefix("*.") {
        // A certificate for a whole domain is no name of one of its hosts.
        Some(domain) => name
            .split_once('.')
            .is_some_and(|(label, rest)| rest == domain && !label.is_empty() && label != "*"),
        None => name == wanted,
    }
}

fn is_uri(wanted: &str, uri: &str) -> bool {
    match wanted.strip_suffix('*').filter(|it| it.ends_with('/')) {
        Some(folder) => {
            let below = uri.strip_prefix(folder);
            // What a reader of paths could take for a way out of the folder is not in it.
            let is_odd = |part: &str| matches!(part, "" | "." | "..");
            below.is_some_and(|it| !it.contains(['%', '?', '#']) && !it.split('/').any(is_odd))
        }
        None => uri == wanted,
    }
}

fn is_email(wanted: &str, address: &str) -> bool {
    let parts = wanted.rsplit_once('@').zip(address.rsplit_once('@'));
    parts.is_some_and(|((user, host), (other, at))| user == other && host.eq_ignore_ascii_case(at))
}

fn name(text: &str) -> Result<DistinguishedName, &'static str> {
    text.parse()
        .map_err(|_| "it is no distinguished name such as `CN=shop,O=Example` (RFC 4514)")
}

fn plain(text: &str) -> Result<&str, &'static str> {
    match text.is_empty() || text.len() > ID_MAX || text.chars().any(char::is_control) {
        true => Err("it must have 1 to 512 bytes, none of them control"),
        false => Ok(text),
    }
}
