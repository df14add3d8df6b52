//! Signs tokens of our own, by which we say to another system who we are (RFC 7523).

use std::fmt;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RSA_PSS_SHA256, RsaKeyPair,
};
use base64ct::{Base64, Base64UrlUnpadded, Encoding as _};
use serde_json::{Map, Value};

use super::Algorithm;
use crate::random;

/// The most bytes of a key file that is read.
const PEM_MAX: usize = 64 * 1024;
/// The bytes of a coordinate of P-256.
const P256_BYTES: usize = 32;

/// Signs tokens with one key.
pub struct Signer {
    algorithm: Algorithm,
    key: SigningKey,
    key_id: Option<String>,
}

enum SigningKey {
    Rsa(Box<RsaKeyPair>),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Secret(Box<hmac::Key>),
}

/// Without the key.
impl fmt::Debug for Signer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "signatures by {}", self.algorithm.name())
    }
}

/// Why a key cannot sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignerProblem {
    /// There is no private key in it.
    NoKey,
    /// The private key is encrypted.
    Encrypted,
    /// Tokens are not signed by this algorithm here.
    Algorithm,
    /// The key is not one for the algorithm, or is too weak.
    Unfit,
}

impl fmt::Display for SignerProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoKey => "there is no private key in PEM format in it",
            Self::Encrypted => "the private key is encrypted",
            Self::Algorithm => "tokens are signed by RS256, PS256, ES256 or EdDSA",
            Self::Unfit => "the private key is not one for this algorithm",
        })
    }
}

impl Signer {
    /// Signs with the private key of a PEM file: PKCS #8, PKCS #1 for RSA, or SEC 1 for ECDSA.
    /// `key_id` goes into the header of each token.
    ///
    /// # Errors
    /// When there is no such key for the algorithm.
    pub fn from_pem(
        pem: &[u8],
        algorithm: Algorithm,
        key_id: Option<&str>,
    ) -> Result<Self, SignerProblem> {
        let (label, der) = private_key(pem)?;
        Self::from_der((&der, label == "PRIVATE KEY"), algorithm, key_id)
    }

    /// The same with the bytes of the key, and whether they are PKCS #8.
    pub(super) fn from_der(
        (der, is_pkcs8): (&[u8], bool),
        algorithm: Algorithm,
        key_id: Option<&str>,
    ) -> Result<Self, SignerProblem> {
        let key = match algorithm {
            Algorithm::Rs256 | Algorithm::Ps256 => {
                let pair = match is_pkcs8 {
                    true => RsaKeyPair::from_pkcs8(der),
                    false => RsaKeyPair::from_der(der),
                };
                pair.ok().map(|pair| SigningKey::Rsa(Box::new(pair)))
            }
            Algorithm::Es256 => {
                let kind = &ECDSA_P256_SHA256_FIXED_SIGNING;
                let pair = EcdsaKeyPair::from_private_key_der(kind, der);
                pair.ok().map(SigningKey::Ec)
            }
            Algorithm::EdDsa if is_pkcs8 => {
                let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der);
                pair.ok().map(SigningKey::Ed)
            }
            Algorithm::EdDsa => None,
            _ => return Err(SignerProblem::Algorithm),
        };
        Ok(Self {
            algorithm,
            key: key.ok_or(SignerProblem::Unfit)?,
            key_id: key_id.map(str::to_owned),
        })
    }

    /// The same signer with this `kid`.
    pub(super) fn with_key_id(self, key_id: &str) -> Self {
        Self {
            key_id: Some(key_id.to_owned()),
            ..self
        }
    }

    /// The public key as the members of a JWK that its thumbprint is made of (RFC 7638, section
    /// 3.2; RFC 8037, section 2), in their order. `None` for RSA keys and secrets.
    pub(super) fn public_members(&self) -> Option<Vec<(&'static str, String)>> {
        let text = |bytes: &[u8]| Base64UrlUnpadded::encode_string(bytes);
        match &self.key {
            SigningKey::Ec(pair) => {
                // An uncompressed point (SEC 1, section 2.3.3): 4, and both coordinates.
                let [4, point @ ..] = pair.public_key().as_ref() else {
                    return None;
                };
                let (x, y) = point.split_at_checked(P256_BYTES)?;
                Some(vec![
                    ("crv", "P-256".to_owned()),
                    ("kty", "EC".to_owned()),
                    ("x", text(x)),
                    ("y", text(y)),
                ])
            }
            SigningKey::Ed(pair) => Some(vec![
                ("crv", "Ed25519".to_owned()),
                ("kty", "OKP".to_owned()),
                ("x", text(pair.public_key().as_ref())),
            ]),
            SigningKey::Rsa(_) | SigningKey::Secret(_) => None,
        }
    }

    /// What it signs by.
    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Signs with a secret that both sides share, by HS256.
    #[must_use]
    pub fn from_secret(secret: &[u8]) -> Self {
        Self {
            algorithm: Algorithm::Hs256,
            key: SigningKey::Secret(Box::new(hmac::Key::new(hmac::HMAC_SHA256, secret))),
            key_id: None,
        }
    }

    /// A token with these claims in compact form (RFC 7515, section 7.1). `None` when the system
    /// has no randomness, which some signatures need.
    #[must_use]
    pub fn sign(&self, claims: &Map<String, Value>) -> Option<String> {
        let mut header = Map::new();
        header.insert("alg".to_owned(), self.algorithm.name().into());
        header.insert("typ".to_owned(), "JWT".into());
        if let Some(key_id) = &self.key_id {
            header.insert("kid".to_owned(), key_id.as_str().into());
        }
        let part = |part: &Map<String, Value>| {
            let text = serde_json::to_vec(part).unwrap_or_default();
            Base64UrlUnpadded::encode_string(&text)
        };
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature = self.signature(signed.as_bytes())?;
        let signature = Base64UrlUnpadded::encode_string(&signature);
        Some(format!("{signed}.{signature}"))
    }

    fn signature(&self, text: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        Some(match &self.key {
            SigningKey::Rsa(pair) => {
                let padding: &'static dyn aws_lc_rs::signature::RsaEncoding = match self.algorithm {
                    Algorithm::Ps256 => &RSA_PSS_SHA256,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(padding, &random, text, &mut signature).ok()?;
                signature
            }
            SigningKey::Ec(pair) => pair.sign(&random, text).ok()?.as_ref().to_vec(),
            SigningKey::Ed(pair) => pair.sign(text).as_ref().to_vec(),
            SigningKey::Secret(key) => hmac::sign(key, text).as_ref().to_vec(),
        })
    }
}

/// A number that nobody guesses and that is never given twice, for `jti`: 128 bits as text. `None`
/// when the system has no randomness.
#[must_use]
pub fn unique_id() -> Option<String> {
    Some(Base64UrlUnpadded::encode_string(&random::bytes::<16>()?))
}

/// The first private key of a PEM file (RFC 7468): its label and its bytes.
fn private_key(pem: &[u8]) -> Result<(String, Vec<u8>), SignerProblem> {
    let text = std::str::from_utf8(pem).map_err(|_| SignerProblem::NoKey)?;
    if text.len() > PEM_MAX {
        return Err(SignerProblem::NoKey);
    }
    let mut rest = text;
    while let Some((_, begun)) = rest.split_once("-----BEGIN ") {
        let (label, behind) = begun.split_once("-----").ok_or(SignerProblem::NoKey)?;
        let end = format!("-----END {label}-----");
        let (body, after) = behind.split_once(&end).ok_or(SignerProblem::NoKey)?;
        rest = after;
        if label == "ENCRYPTED PRIVATE KEY" || body.contains("Proc-Type:") {
            return Err(SignerProblem::Encrypted);
        }
        if matches!(label, "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY") {
            let body: String = body.split_ascii_whitespace().collect();
            let der = Base64::decode_vec(&body).map_err(|_| SignerProblem::NoKey)?;
            return Ok((label.to_owned(), der));
        }
    }
    Err(SignerProblem::NoKey)
}
