//! A key that signs tokens of ours and whose public key is published for those who verify them.

use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde_json::{Map, Value, json};

use super::{Algorithm, Signer, SignerProblem};
use crate::sha256::sha256;

/// A key that signs tokens, and its public key as a JWK.
pub struct PublishedKey {
    signer: Signer,
    jwk: Map<String, Value>,
}

/// Without the key.
impl fmt::Debug for PublishedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {:?}", self.id(), self.signer)
    }
}

impl PublishedKey {
    /// The private key of a PEM file: one of P-256 signs by ES256, one of Ed25519 by EdDSA.
    ///
    /// # Errors
    /// When there is no such key in it.
    pub fn from_pem(pem: &[u8]) -> Result<Self, SignerProblem> {
        let by = |algorithm| Signer::from_pem(pem, algorithm, None);
        let signer = match by(Algorithm::Es256) {
            Err(SignerProblem::Unfit) => by(Algorithm::EdDsa),
            other => other,
        };
        Self::of(signer?).ok_or(SignerProblem::Unfit)
    }

    /// A key for ES256 from PKCS #8.
    pub(super) fn from_pkcs8(der: &[u8]) -> Option<Self> {
        Self::of(Signer::from_der((der, true), Algorithm::Es256, None).ok()?)
    }

    /// The `kid` is the thumbprint of the key (RFC 7638): the same key has the same one wherever it
    /// is read, and another key never has it.
    fn of(signer: Signer) -> Option<Self> {
        let members = signer.public_members()?;
        let quoted = members
            .iter()
            .map(|(name, value)| format!("\"{name}\":\"{value}\""));
        let canonical = format!("{{{}}}", quoted.collect::<Vec<_>>().join(","));
        let id = Base64UrlUnpadded::encode_string(&sha256(canonical.as_bytes()));
        let signer = signer.with_key_id(&id);
        let members = members.into_iter();
        let mut jwk: Map<String, Value> = members
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        jwk.insert("kid".to_owned(), id.into());
        jwk.insert("alg".to_owned(), signer.algorithm().name().into());
        jwk.insert("use".to_owned(), "sig".into());
        Some(Self { signer, jwk })
    }

    /// Its `kid`.
    #[must_use]
    pub fn id(&self) -> &str {
        let id = self.jwk.get("kid").and_then(Value::as_str);
        id.unwrap_or_default()
    }

    /// The public key (RFC 7517).
    #[must_use]
    pub fn jwk(&self) -> &Map<String, Value> {
        &self.jwk
    }

    /// A token with these claims; `None` when the system has no randomness.
    #[must_use]
    pub fn sign(&self, claims: &Map<String, Value>) -> Option<String> {
        self.signer.sign(claims)
    }
}

/// Public keys as a JWK Set (RFC 7517, section 5).
#[must_use]
pub fn key_set_text<'a>(keys: impl IntoIterator<Item = &'a Map<String, Value>>) -> String {
    let keys: Vec<&Map<String, Value>> = keys.into_iter().collect();
    json!({ "keys": keys }).to_string()
}
