//! The algorithms of signatures.

use aws_lc_rs::{hmac, signature};

/// An algorithm by which tokens are signed (RFC 7518, section 3; RFC 8037; RFC 9864). `none` is
/// not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of the registry")]
pub enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Es512,
    EdDsa,
}

impl Algorithm {
    const ALL: [(Self, &str); 13] = [
        (Self::Hs256, "HS256"),
        (Self::Hs384, "HS384"),
        (Self::Hs512, "HS512"),
        (Self::Rs256, "RS256"),
        (Self::Rs384, "RS384"),
        (Self::Rs512, "RS512"),
        (Self::Ps256, "PS256"),
        (Self::Ps384, "PS384"),
        (Self::Ps512, "PS512"),
        (Self::Es256, "ES256"),
        (Self::Es384, "ES384"),
        (Self::Es512, "ES512"),
        (Self::EdDsa, "EdDSA"),
    ];

    /// The algorithm of this name, spelled as it is registered. `Ed25519`, the name of RFC 9864,
    /// means the same as `EdDSA`, since no other curve of it is taken.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        if name == "Ed25519" {
            return Some(Self::EdDsa);
        }
        let known = Self::ALL.iter().find(|(_, known)| *known == name);
        known.map(|(algorithm, _)| *algorithm)
    }

    /// Its registered name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let known = Self::ALL.iter().find(|(known, _)| *known == self);
        known.map_or("", |(_, name)| name)
    }

    /// Whether both sides share one secret.
    #[must_use]
    pub fn is_symmetric(self) -> bool {
        self.hmac().is_some()
    }

    pub(super) fn hmac(self) -> Option<hmac::Algorithm> {
        match self {
            Self::Hs256 => Some(hmac::HMAC_SHA256),
            Self::Hs384 => Some(hmac::HMAC_SHA384),
            Self::Hs512 => Some(hmac::HMAC_SHA512),
            _ => None,
        }
    }

    /// RSA keys have 2048 to 8192 bits.
    pub(super) fn rsa(self) -> Option<&'static signature::RsaParameters> {
        match self {
            Self::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
            Self::Ps256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
            Self::Ps384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
            Self::Ps512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
            _ => None,
        }
    }

    /// The curve, the bytes of a coordinate on it, and how a signature is verified: two numbers of
    /// fixed length, never DER.
    pub(super) fn curve(
        self,
    ) -> Option<(
        &'static str,
        usize,
        &'static signature::EcdsaVerificationAlgorithm,
    )> {
        match self {
            Self::Es256 => Some(("P-256", 32, &signature::ECDSA_P256_SHA256_FIXED)),
            Self::Es384 => Some(("P-384", 48, &signature::ECDSA_P384_SHA384_FIXED)),
            Self::Es512 => Some(("P-521", 66, &signature::ECDSA_P521_SHA512_FIXED)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Algorithm;

    #[test]
    fn names_are_taken_as_they_are_registered_only() {
        for (algorithm, name) in Algorithm::ALL {
            assert_eq!(Algorithm::of(name), Some(algorithm));
            assert_eq!(algorithm.name(), name);
            assert_eq!(Algorithm::of(&name.to_lowercase()), None);
        }
        for name in [
            "none", "None", "NONE", "nOnE", "", " RS256", "ES256K", "RS1", "HS1",
        ] {
            assert_eq!(Algorithm::of(name), None, "{name:?}");
        }
        assert_eq!(Algorithm::of("Ed25519"), Some(Algorithm::EdDsa));
    }
}
