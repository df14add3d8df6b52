//! One public key of an issuer, or a secret that is shared with it.

use std::fmt;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{self, ParsedPublicKey, RsaPublicKeyComponents};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde_json::{Map, Value};

use super::{Algorithm, roca};
use crate::sha256::sha256;

/// The least bits of an RSA key (RFC 7518, section 3.3).
const RSA_BITS_MIN: usize = 2048;
/// More would cost more than a signature is worth.
const RSA_BITS_MAX: usize = 8192;
/// The public exponent is odd and above 2^16 (FIPS 186-5, section 5.1), so that no padding can be
/// forged by taking roots.
const RSA_EXPONENT_MIN: u64 = 65_537;

/// The most bits of the exponent: the library takes no longer ones, for the same reason.
const RSA_EXPONENT_BITS_MAX: u32 = 33;
/// The members of a secret, and of the private part of a key (RFC 7518, section 6).
const PRIVATE: [&str; 8] = ["k", "d", "p", "q", "dp", "dq", "qi", "oth"];

/// A key and the one algorithm that it is used with (RFC 8725, section 3.1).
#[derive(Clone)]
pub struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    material: Material,
    /// What tells two keys apart.
    identity: Vec<u8>,
}

#[derive(Clone)]
enum Material {
    Public(Box<ParsedPublicKey>),
    Secret(Box<hmac::Key>),
}

/// Why a key is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyProblem {
    /// It is for another purpose, by `use` or `key_ops`.
    Purpose,
    /// Its type, curve or algorithm is not known, or they do not fit together.
    Algorithm,
    /// A member is missing, of another type, or no base64url.
    Malformed,
    /// It is a secret, or has the private part: what is published is no secret any more.
    Secret,
    /// It is too short, too long, or of a kind that can be broken.
    Weak,
    /// Another key has the same `kid` and the same algorithm.
    SameId,
}

impl KeyProblem {
    /// A sentence for the log.
    #[must_use]
    pub fn explanation(self) -> &'static str {
        match self {
            Self::Purpose => "it is not for signatures",
            Self::Algorithm => "its type, curve and algorithm are unknown or do not fit together",
            Self::Malformed => "a member is missing or malformed",
            Self::Secret => "it is a secret, and has been published",
            Self::Weak => "it is too weak, or too long",
            Self::SameId => "another key has the same `kid` and algorithm",
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut key = formatter.debug_struct("Key");
        key.field("id", &self.id)
            .field("algorithm", &self.algorithm);
        key.finish_non_exhaustive()
    }
}

/// The same key for the same use, under the same name.
impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.is_same(other)
    }
}

impl Eq for Key {}

impl Key {
    /// A secret that issuer and engine share. It has at least as many bytes as the algorithm's hash
    /// (RFC 7518, section 3.2).
    ///
    /// # Errors
    /// [`KeyProblem::Algorithm`] for one that is not symmetric, [`KeyProblem::Weak`] for a secret
    /// that is too short.
    pub fn of_secret(secret: &[u8], algorithm: Algorithm) -> Result<Self, KeyProblem> {
        let hash = algorithm.hmac().ok_or(KeyProblem::Algorithm)?;
        if secret.len() < hash.digest_algorithm().output_len() {
            return Err(KeyProblem::Weak);
        }
        Ok(Self {
            id: None,
            algorithm,
            material: Material::Secret(Box::new(hmac::Key::new(hash, secret))),
            identity: sha256(secret).to_vec(),
        })
    }

    /// The key of a JWK (RFC 7517). `rsa` is what RSA keys are used with that name no algorithm.
    ///
    /// # Errors
    /// Why it is not used.
    pub fn of_jwk(jwk: &Map<String, Value>, rsa: Algorithm) -> Result<Self, KeyProblem> {
        if PRIVATE.iter().any(|it| jwk.contains_key(*it)) {
            return Err(KeyProblem::Secret);
        }
        check_purpose(jwk)?;
        let id = optional(jwk, "kid")?.map(str::to_owned);
        let named = match optional(jwk, "alg")? {
            Some(name) => Some(Algorithm::of(name).ok_or(KeyProblem::Algorithm)?),
            None => None,
        };
        let (algorithm, public, identity) = match text(jwk, "kty")? {
            "RSA" => rsa_key(jwk, named.unwrap_or(rsa))?,
            "EC" => curve_key(jwk, named)?,
            "OKP" => edwards_key(jwk, named)?,
            _ => return Err(KeyProblem::Algorithm),
        };
        Ok(Self {
            id,
            algorithm,
            material: Material::Public(Box::new(public)),
            identity,
        })
    }

    /// `kid`
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The one algorithm that it is used with.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// What tells it from all other keys and uses, under whatever name: equal for those that
    /// [`KeySet::has`](super::KeySet::has) takes for one.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        sha256(&[self.algorithm.name().as_bytes(), b" ", &self.identity].concat())
    }

    /// Whether both are the same key for the same algorithm, whatever their `kid`.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.algorithm == other.algorithm && self.identity == other.identity
    }

    /// Whether the signature of these bytes is this key's. Of the algorithms only its own is ever
    /// used, whatever the token says.
    pub(super) fn verify(&self, signed: &[u8], signature: &[u8]) -> bool {
        match &self.material {
            Material::Public(key) => key.verify_sig(signed, signature).is_ok(),
            Material::Secret(key) => hmac::verify(key, signed, signature).is_ok(),
        }
    }
}

type Parsed = (Algorithm, ParsedPublicKey, Vec<u8>);

fn rsa_key(jwk: &Map<String, Value>, algorithm: Algorithm) -> Result<Parsed, KeyProblem> {
    let parameters = algorithm.rsa().ok_or(KeyProblem::Algorithm)?;
    let (modulus, exponent) = (bytes(jwk, "n")?, bytes(jwk, "e")?);
    // Java's `BigInteger` writes a zero in front; other libraries take it too.
    let (n, e) = (without_zeros(&modulus), without_zeros(&exponent));
    let bits = n.len() * 8 - n.first().map_or(0, |it| it.leading_zeros() as usize);
    if !(RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits) || e.len() > 8 {
        return Err(KeyProblem::Weak);
    }
    let number = e
        .iter()
        .fold(0_u64, |all, &byte| all << 8 | u64::from(byte));
    let is_even = |number: &[u8]| number.last().is_none_or(|it| it % 2 == 0);
    let is_long = u64::BITS - number.leading_zeros() > RSA_EXPONENT_BITS_MAX;
    if number < RSA_EXPONENT_MIN || is_long || is_even(e) || is_even(n) || roca::is_vulnerable(n) {
        return Err(KeyProblem::Weak);
    }
    let key = RsaPublicKeyComponents { n, e }.to_parsed_public_key(parameters);
    let identity = [n, &[0], e].concat();
    Ok((algorithm, key.map_err(|_| KeyProblem::Malformed)?, identity))
}

fn curve_key(jwk: &Map<String, Value>, named: Option<Algorithm>) -> Result<Parsed, KeyProblem> {
    let curve = text(jwk, "crv")?;
    let algorithm = match curve {
        "P-256" => Algorithm::Es256,
        "P-384" => Algorithm::Es384,
        "P-521" => Algorithm::Es512,
        _ => return Err(KeyProblem::Algorithm),
    };
    if named.is_some_and(|it| it != algorithm) {
        return Err(KeyProblem::Algorithm);
    }
    let (_, length, verification) = algorithm.curve().ok_or(KeyProblem::Algorithm)?;
    let (x, y) = (bytes(jwk, "x")?, bytes(jwk, "y")?);
    if x.len() != length || y.len() != length {
        return Err(KeyProblem::Malformed);
    }
    // An uncompressed point (SEC 1, section 2.3.3); the library refuses one that is not on the
    // curve.
    let point = [&[4][..], &x, &y].concat();
    let key = ParsedPublicKey::new(verification, &point);
    Ok((algorithm, key.map_err(|_| KeyProblem::Malformed)?, point))
}

fn edwards_key(jwk: &Map<String, Value>, named: Option<Algorithm>) -> Result<Parsed, KeyProblem> {
    let algorithm = Algorithm::EdDsa;
    if text(jwk, "crv")? != "Ed25519" || named.is_some_and(|it| it != algorithm) {
        return Err(KeyProblem::Algorithm);
    }
    let point = bytes(jwk, "x")?;
    if point.len() != 32 {
        return Err(KeyProblem::Malformed);
    }
    if is_small_order(&point) {
        return Err(KeyProblem::Weak);
    }
    let key = ParsedPublicKey::new(&signature::ED25519, &point);
    Ok((algorithm, key.map_err(|_| KeyProblem::Malformed)?, point))
}

/// Whether a point of Ed25519 is one of the eight of small order, in any encoding: under such a key
/// one signature would fit every message.
fn is_small_order(point: &[u8]) -> bool {
    // The y-coordinates, little-endian: 0, 1, p - 1, the two of order 8, and p and p + 1, which
    // are other spellings of 0 and 1. The last bit is the sign of x.
    const ORDER_8: [u8; 32] = [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98,
        0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53,
        0xfc, 0x05,
    ];
    const ORDER_8_NEGATED: [u8; 32] = [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67,
        0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac,
        0x03, 0x7a,
    ];
    let near_p = |low: u8| {
        let mut number = [0xff; 32];
        (number[0], number[31]) = (low, 0x7f);
        number
    };
    let small = |low: u8| {
        let mut number = [0; 32];
        number[0] = low;
        number
    };
    let all = [
        small(0),
        small(1),
        near_p(0xec),
        near_p(0xed),
        near_p(0xee),
        ORDER_8,
        ORDER_8_NEGATED,
    ];
    let mut y = point.to_vec();
    if let Some(last) = y.last_mut() {
        *last &= 0x7f;
    }
    all.iter().any(|known| y == known)
}

fn check_purpose(jwk: &Map<String, Value>) -> Result<(), KeyProblem> {
    if optional(jwk, "use")?.is_some_and(|it| it != "sig") {
        return Err(KeyProblem::Purpose);
    }
    match jwk.get("key_ops") {
        None => Ok(()),
        Some(Value::Array(operations)) if operations.iter().any(|it| it == "verify") => Ok(()),
        Some(_) => Err(KeyProblem::Purpose),
    }
}

fn optional<'a>(jwk: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, KeyProblem> {
    match jwk.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(KeyProblem::Malformed),
    }
}

fn text<'a>(jwk: &'a Map<String, Value>, name: &str) -> Result<&'a str, KeyProblem> {
    optional(jwk, name)?.ok_or(KeyProblem::Malformed)
}

fn bytes(jwk: &Map<String, Value>, name: &str) -> Result<Vec<u8>, KeyProblem> {
    Base64UrlUnpadded::decode_vec(text(jwk, name)?).map_err(|_| KeyProblem::Malformed)
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|&&byte| byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}
