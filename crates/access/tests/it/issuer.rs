//! An issuer with one key of each kind, for tests.

use std::sync::OnceLock;

use access::jwt::{Algorithm, KeySet};
use aws_lc_rs::encoding::{AsDer as _, EcPrivateKeyRfc5915Der, Pkcs8V1Der};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair};
use base64ct::{Base64, Base64UrlUnpadded, Encoding as _};
use serde_json::{Value, json};

/// The time at which tests judge.
pub const NOW: u64 = 1_800_000_000;
pub const ISSUER: &str = "https://id.example";
pub const AUDIENCE: &str = "intertie";

/// Who signs a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer<'a> {
    /// The issuer's RSA key, `kid` `rsa`, published for RS256.
    Rsa(Algorithm),
    /// Its key on P-256, `kid` `ec`.
    Ec,
    /// Its key of Ed25519, `kid` `ed`.
    Ed,
    /// HMAC-SHA-256 with these bytes.
    Hmac(&'a [u8]),
    /// These bytes instead of a signature.
    Bytes(&'a [u8]),
}

pub struct Issuer {
    rsa: RsaKeyPair,
    ec: EcdsaKeyPair,
    ed: Ed25519KeyPair,
}

pub fn pem(label: &str, der: &[u8]) -> String {
    let text = Base64::encode_string(der);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect();
    let lines = lines.join("\n");
    format!("-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n")
}

pub fn base64(bytes: &[u8]) -> String {
    Base64UrlUnpadded::encode_string(bytes)
}

/// The one issuer of all tests: keys of RSA take a while to make.
pub fn issuer() -> &'static Issuer {
    static ISSUER: OnceLock<Issuer> = OnceLock::new();
    ISSUER.get_or_init(|| Issuer {
        rsa: RsaKeyPair::generate(KeySize::Rsa2048).unwrap(),
        ec: EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(),
        ed: Ed25519KeyPair::generate().unwrap(),
    })
}

impl Issuer {
    /// The modulus and the exponent, as DER has them: `RSAPublicKey` (RFC 8017, appendix A.1.1).
    pub fn rsa_der(&self) -> &[u8] {
        self.rsa.public_key().as_ref()
    }

    /// The uncompressed point.
    pub fn ec_point(&self) -> &[u8] {
        self.ec.public_key().as_ref()
    }

    /// A key of its own as a PEM file: PKCS #8.
    pub fn pem(&self, signer: Signer<'_>) -> String {
        let der = match signer {
            Signer::Rsa(_) => {
                let der: Pkcs8V1Der<'_> = self.rsa.as_der().unwrap();
                der.as_ref().to_vec()
            }
            Signer::Ec => self.ec.to_pkcs8v1().unwrap().as_ref().to_vec(),
            Signer::Ed => self.ed.to_pkcs8().unwrap().as_ref().to_vec(),
            Signer::Hmac(_) | Signer::Bytes(_) => unreachable!("secrets have no such file"),
        };
        pem("PRIVATE KEY", &der)
    }

    /// The key of ECDSA as SEC 1 has it.
    pub fn ec_pem(&self) -> String {
        let der: EcPrivateKeyRfc5915Der<'_> = self.ec.private_key().as_der().unwrap();
        pem("EC PRIVATE KEY", der.as_ref())
    }

    /// What it publishes.
    pub fn jwks(&self) -> Value {
        json!({ "keys": [self.rsa_jwk(), self.ec_jwk(), self.ed_jwk()] })
    }

    pub fn rsa_jwk(&self) -> Value {
        // 2048 bits: SEQUENCE of four bytes, INTEGER of four and a zero, 256 bytes, INTEGER 65537.
        let modulus = &self.rsa_der()[9..265];
        json!({ "kty": "RSA", "kid": "rsa", "alg": "RS256", "use": "sig",
            "n": base64(modulus), "e": "AQAB" })
    }

    pub fn ec_jwk(&self) -> Value {
        let point = self.ec_point();
        json!({ "kty": "EC", "kid": "ec", "crv": "P-256",
            "x": base64(&point[1..33]), "y": base64(&point[33..]) })
    }

    pub fn ed_jwk(&self) -> Value {
        let point = self.ed.public_key().as_ref();
        json!({ "kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": base64(point) })
    }

    pub fn keys(&self) -> KeySet {
        let text = self.jwks().to_string();
        let (keys, ignored) = KeySet::parse(text.as_bytes(), Algorithm::Rs256).unwrap();
        assert!(ignored.is_empty(), "{ignored:?}");
        keys
    }

    /// Signs these bytes.
    pub fn signature(&self, signer: Signer<'_>, signed: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match signer {
            Signer::Rsa(algorithm) => {
                let padding: &dyn signature::RsaEncoding = match algorithm {
                    Algorithm::Rs256 => &signature::RSA_PKCS1_SHA256,
                    Algorithm::Rs512 => &signature::RSA_PKCS1_SHA512,
                    _ => &signature::RSA_PSS_SHA256,
                };
                let mut bytes = vec![0; self.rsa.public_modulus_len()];
                self.rsa.sign(padding, &random, signed, &mut bytes).unwrap();
                bytes
            }
            Signer::Ec => self.ec.sign(&random, signed).unwrap().as_ref().to_vec(),
            Signer::Ed => self.ed.sign(signed).as_ref().to_vec(),
            Signer::Hmac(secret) => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
                hmac::sign(&key, signed).as_ref().to_vec()
            }
            Signer::Bytes(bytes) => bytes.to_vec(),
        }
    }

    /// A token of this header and these claims, letter by letter.
    pub fn token(&self, header: &str, claims: &str, signer: Signer<'_>) -> String {
        let signed = format!(
            "{}.{}",
            base64(header.as_bytes()),
            base64(claims.as_bytes())
        );
        let signature = self.signature(signer, signed.as_bytes());
        format!("{signed}.{}", base64(&signature))
    }
}

/// The claims of a token that is as it should be, with some of them changed; null takes one out.
pub fn claims(changes: Value) -> String {
    let mut claims = json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": NOW - 10, "exp": NOW + 600,
        "scope": "orders.read orders.write",
    });
    let members = claims.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => members.remove(name),
            _ => members.insert(name.clone(), value.clone()),
        };
    }
    claims.to_string()
}
