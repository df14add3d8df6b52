//! `X-Hub-Signature`: what a hub says about the exact bytes of a delivery, with the secret of the
//! subscription (section 7.1 of the recommendation).

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;

/// The most bytes of a secret: it must have less than 200 (section 5.1).
pub const SECRET_MAX: usize = 199;
/// The most bytes of the field that are looked at.
const FIELD_MAX: usize = 256;

/// How a delivery is signed, the weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// HMAC-SHA-1, which old hubs have.
    Sha1,
    /// HMAC-SHA-256.
    #[default]
    Sha256,
    /// HMAC-SHA-384.
    Sha384,
    /// HMAC-SHA-512.
    Sha512,
}

impl Method {
    const ALL: [Self; 4] = [Self::Sha1, Self::Sha256, Self::Sha384, Self::Sha512];

    /// The name in front of a signature.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// The value of `X-Hub-Signature` with this tag.
    pub fn value(self, tag: &[u8]) -> String {
        let mut text = format!("{}=", self.name());
        for byte in tag {
            // Writing to a text cannot fail.
            let _ = fmt::Write::write_fmt(&mut text, format_args!("{byte:02x}"));
        }
        text
    }

    fn algorithm(self) -> hmac::Algorithm {
        match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

/// A secret that hub and subscriber share.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

/// Without the secret.
impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret")
    }
}

impl Secret {
    /// A secret; `None` when it is empty or has 200 bytes or more.
    pub fn new(text: &str) -> Option<Self> {
        let is_sound = (1..=SECRET_MAX).contains(&text.len());
        is_sound.then(|| Self(text.into()))
    }

    /// The text, to be sent to the hub.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The value of `X-Hub-Signature` for a body.
    pub fn sign(&self, method: Method, body: &[u8]) -> String {
        let key = hmac::Key::new(method.algorithm(), self.0.as_bytes());
        method.value(hmac::sign(&key, body).as_ref())
    }

    /// Checks the values of `X-Hub-Signature` that came with a body. Every one is looked at: hubs
    /// may sign by several methods.
    ///
    /// # Errors
    /// When none of this method or a stronger one is right.
    pub fn verify<'a>(
        &self,
        fields: impl IntoIterator<Item = &'a [u8]>,
        body: &[u8],
        weakest: Method,
    ) -> Result<Method, Unsigned> {
        let mut problem = Unsigned::Missing;
        for field in fields {
            match self.verify_one(field, body, weakest) {
                Ok(method) => return Ok(method),
                Err(found) => problem = problem.max(found),
            }
        }
        Err(problem)
    }

    fn verify_one(&self, field: &[u8], body: &[u8], weakest: Method) -> Result<Method, Unsigned> {
        let text = std::str::from_utf8(field).ok();
        let text = text.filter(|it| it.len() <= FIELD_MAX);
        let (name, digits) = text
            .and_then(|it| it.trim().split_once('='))
            .ok_or(Unsigned::Malformed)?;
        let mut methods = Method::ALL.into_iter();
        let method = methods
            .find(|it| name.eq_ignore_ascii_case(it.name()))
            .ok_or(Unsigned::Malformed)?;
        if method < weakest {
            return Err(Unsigned::Weak);
        }
        let expected = self.sign(method, body);
        let given = format!("{}={}", method.name(), digits.to_ascii_lowercase());
        match verify_slices_are_equal(expected.as_bytes(), given.as_bytes()) {
            Ok(()) => Ok(method),
            Err(_) => Err(Unsigned::Wrong),
        }
    }
}

/// Why a delivery does not count as signed. The hub is not told: it could be asked for the
/// signature of any body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unsigned {
    /// There is no signature.
    Missing,
    /// It is none, or of an unknown method.
    Malformed,
    /// Its method is weaker than the weakest that is taken.
    Weak,
    /// It is not that of the body.
    Wrong,
}

impl Unsigned {
    /// A word for logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::Weak => "weak",
            Self::Wrong => "wrong",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf %s BODY | openssl dgst -METHOD -hmac SECRET`
    const SIGNED: [&str; 4] = [
        "sha1=de7c9b85b8b78aa6bc8a7a36f70a90701c9db4d9",
        "sha256=f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8",
        "sha384=d7f4727e2c0b39ae0f1e40cc96f60242d5b7801841cea6fc592c5d3e1ae50700\
         582a96cf35e1e554995fe4e03381c237",
        "sha512=b42af09057bac1e2d41708e48a902e09b5ff7f12ab428a4fe86653c73dd248fb\
         82f948a549f7b791a5b41915ee4d1ec3935357e4e2317250d0372afa2ebeeb3a",
    ];
    const BODY: &[u8] = b"The quick brown fox jumps over the lazy dog";

    fn secret() -> Secret {
        Secret::new("key").unwrap()
    }

    #[test]
    fn signatures_are_those_of_openssl() {
        for (method, signed) in Method::ALL.into_iter().zip(SIGNED) {
            assert_eq!(secret().sign(method, BODY), signed);
            let verified = secret().verify([signed.as_bytes()], BODY, Method::Sha1);
            assert_eq!(verified, Ok(method));
            let upper = signed.to_ascii_uppercase();
            let verified = secret().verify([upper.as_bytes()], BODY, Method::Sha1);
            assert_eq!(verified, Ok(method));
        }
    }

    #[test]
    fn anything_else_is_no_signature() {
        let verify = |fields: &[&str], weakest| {
            let fields = fields.iter().map(|it| it.as_bytes());
            secret().verify(fields, BODY, weakest)
        };
        let [sha1, sha256, ..] = SIGNED;
        assert_eq!(verify(&[], Method::Sha1), Err(Unsigned::Missing));
        assert_eq!(verify(&[sha1], Method::Sha256), Err(Unsigned::Weak));
        assert_eq!(verify(&[sha256], Method::Sha512), Err(Unsigned::Weak));
        for malformed in ["", "sha256", "md5=00", &sha256.replace('=', ":")] {
            assert_eq!(verify(&[malformed], Method::Sha1), Err(Unsigned::Malformed));
        }
        let long = format!("sha256={}", "0".repeat(300));
        assert_eq!(verify(&[&long], Method::Sha1), Err(Unsigned::Malformed));
        let (short, wrong) = (&sha256[..sha256.len() - 1], sha256.replace('8', "9"));
        for wrong in [short, &wrong, "sha256="] {
            assert_eq!(verify(&[wrong], Method::Sha256), Err(Unsigned::Wrong));
        }
        // A weak one beside a good one does no harm, nor does a wrong one.
        assert_eq!(verify(&[sha1, sha256], Method::Sha256), Ok(Method::Sha256));
        assert_eq!(
            verify(&[&wrong, sha256], Method::Sha256),
            Ok(Method::Sha256)
        );
        let other = Secret::new("kez").unwrap();
        let verified = other.verify([sha256.as_bytes()], BODY, Method::Sha256);
        assert_eq!(verified, Err(Unsigned::Wrong));
    }

    #[test]
    fn secrets_have_less_than_200_bytes_and_are_not_shown() {
        assert!(Secret::new("").is_none());
        assert!(Secret::new(&"x".repeat(199)).is_some());
        assert!(Secret::new(&"x".repeat(200)).is_none());
        assert!(Secret::new(&"\u{e4}".repeat(100)).is_none());
        assert_eq!(format!("{:?}", secret()), "Secret");
    }
}
