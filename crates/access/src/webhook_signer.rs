//! Signs what we send to the webhooks of others: by Standard Webhooks 1.0.0, or as GitHub does.
//! [`crate::signed_body`] is the other side of it.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64ct::{Base64, Encoding as _};
use bytes::Bytes;

use crate::hmac_queue::{HmacKey, HmacQueue, Signing};
use crate::{hex, random};

/// The most keys of one signer.
pub const KEYS_MAX: usize = 10;
/// The fewest and the most bytes of a symmetric secret of Standard Webhooks.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=512;
/// The bytes of the seed of an Ed25519 key, and of the seed with the public key behind it.
const SEED: usize = 32;
const SEED_AND_PUBLIC: usize = 64;
/// The Base64 characters of a signature of Ed25519, the longest.
const SIGNATURE_BASE64: usize = 88;

/// Signs requests with one key, or with several while receivers change from one to another.
pub struct WebhookSigner {
    scheme: Scheme,
}

enum Scheme {
    Standard(Vec<SigningKey>),
    GitHub(Arc<HmacKey>),
}

/// A key with all that can be computed before there is a message.
enum SigningKey {
    Hmac(Arc<HmacKey>),
    Ed25519(Box<Ed25519KeyPair>),
}

/// Without the keys.
impl fmt::Debug for WebhookSigner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("WebhookSigner")
    }
}

impl WebhookSigner {
    /// Signs by Standard Webhooks: secrets in Base64, `whsec_` in front of them or not, make
    /// HMAC-SHA256 signatures (`v1`); a private key of Ed25519 in Base64 behind `whsk_`, 32 bytes
    /// or 64 with the public key, makes signatures `v1a`. Each key adds a signature.
    ///
    /// # Errors
    /// A sentence about the first secret that cannot be used.
    pub fn standard(secrets: &[&str]) -> Result<Self, &'static str> {
        if secrets.is_empty() || secrets.len() > KEYS_MAX {
            return Err("there are 1 to 10 secrets");
        }
        let keys = secrets.iter().map(|text| SigningKey::read(text));
        Ok(Self {
            scheme: Scheme::Standard(keys.collect::<Result<_, _>>()?),
        })
    }

    /// Signs as GitHub does, with the secret's text as the key.
    ///
    /// # Errors
    /// A sentence about a secret that could be guessed.
    pub fn github(secret: &str) -> Result<Self, &'static str> {
        match secret.len() {
            0..16 => Err("it has less than 16 bytes and could be guessed"),
            _ => Ok(Self {
                scheme: Scheme::GitHub(Arc::new(HmacKey::new(secret.as_bytes()))),
            }),
        }
    }

    /// The name of the header field that the signature goes into.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self.scheme {
            Scheme::Standard(_) => "webhook-signature",
            Scheme::GitHub(_) => "X-Hub-Signature-256",
        }
    }

    /// The value of the field for a message with this `webhook-id`, this `webhook-timestamp` and
    /// this body. Messages that are ready at the same time are signed together.
    pub async fn sign(
        &self,
        (id, timestamp): (&str, &str),
        body: &Bytes,
        queue: &HmacQueue,
    ) -> String {
        let keys = match &self.scheme {
            Scheme::GitHub(key) => {
                let tag = queue.sign(key, "", body).await;
                return format!("sha256={}", hex::encode(&tag));
            }
            Scheme::Standard(keys) => keys,
        };
        let start = [id, ".", timestamp, "."].concat();
        // All are queued before the first is awaited, so that they go into one batch. Most have one
        // key, for which the vector stays without memory.
        let hmac = keys.iter().filter_map(SigningKey::hmac);
        let mut queued = hmac.map(|key| queue.sign(key, &start, body));
        let first = queued.next();
        let others: Vec<Signing> = queued.collect();
        let mut tags = first.into_iter().chain(others);
        let mut value = String::with_capacity(48 * keys.len());
        for key in keys {
            if !value.is_empty() {
                value.push(' ');
            }
            match key {
                SigningKey::Hmac(_) => {
                    value.push_str("v1,");
                    if let Some(tag) = tags.next() {
                        push_base64(&tag.await, &mut value);
                    }
                }
                SigningKey::Ed25519(pair) => {
                    // Ed25519 reads a message twice, so it has to lie in one piece.
                    let message = [start.as_bytes(), body].concat();
                    value.push_str("v1a,");
                    push_base64(pair.sign(&message).as_ref(), &mut value);
                }
            }
        }
        value
    }

    /// The public keys of asymmetric signatures, as receivers are given them: `whpk_` and Base64.
    #[must_use]
    pub fn public_keys(&self) -> Vec<String> {
        let keys = match &self.scheme {
            Scheme::Standard(keys) => keys.as_slice(),
            Scheme::GitHub(_) => &[],
        };
        let public = keys.iter().filter_map(|key| match key {
            SigningKey::Ed25519(pair) => {
                let key = Base64::encode_string(pair.public_key().as_ref());
                Some(format!("whpk_{key}"))
            }
            SigningKey::Hmac(_) => None,
        });
        public.collect()
    }
}

/// A new secret for Standard Webhooks: 256 random bits in Base64 behind `whsec_`. `None` when the
/// system has no random bytes.
#[must_use]
pub fn new_secret() -> Option<String> {
    let bytes: [u8; 32] = random::bytes()?;
    Some(format!("whsec_{}", Base64::encode_string(&bytes)))
}

/// A new identifier of 128 random bits in hexadecimal. `None` when the system has no random bytes.
#[must_use]
pub fn new_id() -> Option<String> {
    Some(hex::encode(&random::bytes::<16>()?))
}

/// A new text that nobody can guess: 256 random bits (base64url). `None` when the system has no
/// random bytes.
#[must_use]
pub fn new_challenge() -> Option<String> {
    random::text()
}

/// Appends a signature of at most 64 bytes in Base64. Not in constant time: signatures are no
/// secrets. `encode_string` would clear a buffer of 1 KiB each time.
fn push_base64(signature: &[u8], out: &mut String) {
    let mut buffer = [0; SIGNATURE_BASE64];
    let length = STANDARD.encode_slice(signature, &mut buffer);
    let encoded = length.ok().and_then(|length| buffer.get(..length));
    match encoded.and_then(|it| std::str::from_utf8(it).ok()) {
        Some(text) => out.push_str(text),
        None => STANDARD.encode_string(signature, out),
    }
}

impl SigningKey {
    /// The key of HMAC-SHA256, if it is one.
    fn hmac(&self) -> Option<&Arc<HmacKey>> {
        match self {
            Self::Hmac(key) => Some(key),
            Self::Ed25519(_) => None,
        }
    }

    fn read(text: &str) -> Result<Self, &'static str> {
        if let Some(encoded) = text.strip_prefix("whsk_") {
            let bytes =
                Base64::decode_vec(encoded).map_err(|_| "behind `whsk_` it is not Base64")?;
            let pair = match bytes.len() {
                SEED => Ed25519KeyPair::from_seed_unchecked(&bytes),
                SEED_AND_PUBLIC => {
                    let (seed, public) = bytes.split_at(SEED);
                    Ed25519KeyPair::from_seed_and_public_key(seed, public)
                }
                _ => return Err("a key behind `whsk_` has 32 bytes, or 64 with the public key"),
            };
            let pair = pair.map_err(|_| "it is no private key of Ed25519")?;
            return Ok(Self::Ed25519(Box::new(pair)));
        }
        let encoded = text.strip_prefix("whsec_").unwrap_or(text);
        let bytes = Base64::decode_vec(encoded);
        let bytes = bytes.map_err(|_| "it is not Base64, with or without `whsec_` in front")?;
        match bytes.len() {
            length if SECRET_BYTES.contains(&length) => {
                Ok(Self::Hmac(Arc::new(HmacKey::new(&bytes))))
            }
            0..16 => Err("it has less than 16 bytes and could be guessed"),
            _ => Err("it has more than 512 bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};

    use super::*;
    use crate::signed_body::{Scheme as Checked, Secrets};

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn sign(signer: &WebhookSigner, (id, timestamp): (&str, &str), body: &[u8]) -> String {
        sign_in_turns(signer, (id, timestamp), body).0
    }

    /// Signs, and tells how often the future was polled.
    fn sign_in_turns(
        signer: &WebhookSigner,
        (id, timestamp): (&str, &str),
        body: &[u8],
    ) -> (String, usize) {
        let (queue, body) = (HmacQueue::default(), Bytes::copy_from_slice(body));
        let mut signing = pin!(signer.sign((id, timestamp), &body, &queue));
        let mut context = Context::from_waker(Waker::noop());
        let mut polls = 1;
        loop {
            match signing.as_mut().poll(&mut context) {
                Poll::Ready(value) => return (value, polls),
                Poll::Pending => polls += 1,
            }
        }
    }

    /// The example of the specification's reference implementations.
    #[test]
    fn the_published_example_is_signed_alike() {
        let signer = WebhookSigner::standard(&[SECRET]).unwrap();
        let body = br#"{"test": 2432232314}"#;
        let value = sign(
            &signer,
            ("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330"),
            body,
        );
        assert_eq!(value, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn messages_that_are_not_batched_are_signed_at_once() {
        let seed = format!("whsk_{}", Base64::encode_string(&[7; SEED]));
        let signer = WebhookSigner::standard(&[SECRET, &seed]).unwrap();
        for size in [0, 400, 3_000, 100_000] {
            let body = vec![b'x'; size];
            let polls = sign_in_turns(&signer, ("1-2", "100"), &body).1;
            assert_eq!(polls > 1, HmacQueue::is_batched(&body.into()), "{size}");
        }
    }

    #[test]
    fn each_secret_adds_a_signature_that_the_other_side_takes() {
        let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let signer = WebhookSigner::standard(&[other, SECRET]).unwrap();
        let value = sign(&signer, ("1-2", "100"), b"[]");
        assert_eq!(value.split(' ').count(), 2);
        for secret in [other, SECRET] {
            let fields = |name: &str| -> Vec<&[u8]> {
                match name {
                    "webhook-id" => vec![b"1-2"],
                    "webhook-timestamp" => vec![b"100"],
                    "webhook-signature" => vec![value.as_bytes()],
                    _ => vec![],
                }
            };
            let secrets = Secrets::of(Checked::StandardWebhooks, &[secret]).unwrap();
            let mut check = Checked::StandardWebhooks
                .begin(&fields, &secrets, 100, 5)
                .unwrap();
            check.update(b"[]");
            assert!(check.end().is_ok());
        }
    }

    #[test]
    fn several_secrets_sign_a_large_body_in_one_turn_and_in_their_order() {
        let [one, two] = ["A", "B"].map(|it| format!("whsec_{}", it.repeat(32)));
        let seed = format!("whsk_{}", Base64::encode_string(&[7; SEED]));
        let secrets = [&*one, &seed, SECRET, &two];
        let body = vec![b'x'; 9_000];
        let alone = secrets.map(|it| {
            let signer = WebhookSigner::standard(&[it]).unwrap();
            sign(&signer, ("1-2", "100"), &body)
        });
        let signer = WebhookSigner::standard(&secrets).unwrap();
        let (value, polls) = sign_in_turns(&signer, ("1-2", "100"), &body);
        assert_eq!(value, alone.join(" "));
        assert!(polls <= 2, "{polls}");
    }

    #[test]
    fn ed25519_signatures_are_valid_under_the_public_key() {
        let seed = Base64::encode_string(&[7; SEED]);
        let signer = WebhookSigner::standard(&[&format!("whsk_{seed}")]).unwrap();
        let value = sign(&signer, ("1-2", "100"), b"{}");
        let signature = Base64::decode_vec(value.strip_prefix("v1a,").unwrap()).unwrap();
        let public = signer.public_keys().remove(0);
        let public = Base64::decode_vec(public.strip_prefix("whpk_").unwrap()).unwrap();
        let mut both = vec![7; SEED];
        both.extend_from_slice(&public);
        let both = format!("whsk_{}", Base64::encode_string(&both));
        let same = WebhookSigner::standard(&[&both]).unwrap();
        assert_eq!(sign(&same, ("1-2", "100"), b"{}"), value);
        let key = UnparsedPublicKey::new(&ED25519, public);
        assert!(key.verify(b"1-2.100.{}", &signature).is_ok());
        assert!(key.verify(b"1-2.101.{}", &signature).is_err());
    }

    #[test]
    fn github_signs_the_body_alone() {
        let signer = WebhookSigner::github("It's a Secret to Everybody").unwrap();
        let expected = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        assert_eq!(sign(&signer, ("1", "2"), b"Hello, World!"), expected);
        assert_eq!(signer.field(), "X-Hub-Signature-256");
    }

    #[test]
    fn secrets_that_cannot_be_used_are_refused() {
        for secrets in [
            &[][..],
            &["whsec_short"],
            &["whsec_QUFB"],
            &["whsk_QUFB"],
            &["no base64 at all"],
            &[SECRET; 11],
        ] {
            assert!(WebhookSigner::standard(secrets).is_err(), "{secrets:?}");
        }
        assert!(WebhookSigner::github("short").is_err());
    }
}
