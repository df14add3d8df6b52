//! What a door spends on a token that it has not seen before, beside the check of its signature,
//! which cannot be avoided. Both are measured in turns, microseconds apart: on a shared machine the
//! check of one signature takes twice the time of another, and a difference of two samples says
//! nothing.
//!
//! ```sh
//! cargo bench -p auth --bench new_token --profile dist
//! ```

#![allow(
    clippy::unwrap_used,
    reason = "a benchmark that cannot go on fails by panicking"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use access::jwt::{Algorithm, Compact, KeySet, Signer};
use auth::{DEFINITION, codes};
use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair,
};
use base64ct::{Base64, Base64UrlUnpadded, Encoding as _};
use component::access::{Door, Judgement, RequestHead};
use component::state::States;
use message::Request;
use serde_json::{Value, json};

use testing::{START, Worker};

#[path = "../src/testing.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod testing;

/// Pairs of each algorithm. The first few hundred warm up.
const PAIRS: usize = 3_000;
const WARM_UP: usize = 500;

/// A private key (PKCS #8) and its public key (JWK).
fn key(algorithm: Algorithm) -> (Vec<u8>, Value) {
    let text = Base64UrlUnpadded::encode_string;
    match algorithm {
        Algorithm::Rs256 => {
            let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
            let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
            // `RSAPublicKey` (RFC 8017, appendix A.1.1) of 2048 bits: nine bytes, the modulus of
            // 256, and the exponent 65537.
            let modulus = text(&pair.public_key().as_ref()[9..265]);
            let jwk = json!({ "kty": "RSA", "n": modulus, "e": "AQAB" });
            (der.as_ref().to_vec(), jwk)
        }
        Algorithm::Es256 => {
            let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
            let der = pair.to_pkcs8v1().unwrap();
            // The uncompressed point (SEC 1, section 2.3.3).
            let point = pair.public_key().as_ref();
            let (x, y) = (text(&point[1..33]), text(&point[33..65]));
            let jwk = json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y });
            (der.as_ref().to_vec(), jwk)
        }
        _ => {
            let pair = Ed25519KeyPair::generate().unwrap();
            let der = pair.to_pkcs8().unwrap();
            let x = text(pair.public_key().as_ref());
            let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "x": x });
            (der.as_ref().to_vec(), jwk)
        }
    }
}

/// The tokens of an issuer.
struct Issuer {
    signer: Signer,
    /// What it publishes (RFC 7517).
    jwks: String,
}

impl Issuer {
    fn new(algorithm: Algorithm) -> Self {
        let (der, mut jwk) = key(algorithm);
        jwk["kid"] = "key".into();
        let der = Base64::encode_string(&der);
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{der}\n-----END PRIVATE KEY-----\n");
        Self {
            signer: Signer::from_pem(pem.as_bytes(), algorithm, Some("key")).unwrap(),
            jwks: json!({ "keys": [jwk] }).to_string(),
        }
    }

    /// A token with the claims of an access token (RFC 9068).
    fn token(&self, client: usize) -> String {
        let claims = json!({
            "iss": "https://issuer.example", "aud": "lab", "sub": format!("client-{client:08}"),
            "client_id": "intertie-bench", "iat": START, "exp": START + 3_600,
            "jti": format!("{client:016x}"), "scope": "orders.read orders.write",
        });
        self.signer.sign(claims.as_object().unwrap()).unwrap()
    }

    /// The request of a client.
    fn request(&self, client: usize) -> Request {
        let token = format!("Bearer {}", self.token(client));
        testing::request(&[
            ("Content-Type", "application/json"),
            ("Authorization", &token),
        ])
    }

    fn door(&self) -> Arc<dyn Door> {
        let yaml = "ways: { tokens: { jwt: { issuer: \"https://issuer.example\", audience: lab, \
                    jwks: jwks.json } } }\nauth: tokens\n";
        let files = [("jwks.json", self.jwks.as_str())];
        testing::door_with_files(yaml, &files, &States::default()).unwrap()
    }
}

/// How long something takes, in microseconds.
fn time<T>(work: impl FnOnce() -> T) -> f64 {
    let begin = Instant::now();
    let result = black_box(work());
    let time = begin.elapsed();
    drop(result);
    time.as_secs_f64() * 1e6
}

/// What a door takes for a token that is new to it, in microseconds.
fn judge(door: &dyn Door, request: &Request, worker: &Worker) -> f64 {
    let head = RequestHead::of(request);
    time(|| {
        let recalled = door.recall(head, worker);
        assert!(recalled.is_none());
        let judged = door.judge(head, worker);
        assert!(matches!(judged, Judgement::Ready(Ok(_))));
        judged
    })
}

/// Both for tokens of an algorithm, in turns: the whole, and the signature alone.
fn measure(algorithm: Algorithm, worker: &Worker) -> Vec<(f64, f64)> {
    let issuer = Issuer::new(algorithm);
    let door = issuer.door();
    let (keys, _) = KeySet::parse(issuer.jwks.as_bytes(), algorithm).unwrap();
    let pairs = (0..PAIRS).map(|number| {
        let request = issuer.request(2 * number);
        let other = issuer.token(2 * number + 1);
        let compact = Compact::parse(other.as_bytes()).unwrap();
        let check = || time(|| keys.verify(&compact).unwrap());
        match number % 2 {
            0 => {
                let whole = judge(&*door, &request, worker);
                (whole, check())
            }
            _ => {
                let signature = check();
                (judge(&*door, &request, worker), signature)
            }
        }
    });
    pairs.skip(WARM_UP).collect()
}

/// The value below which this part of the values lies.
fn quantile(values: impl Iterator<Item = f64>, part: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[(values.len() as f64 * part) as usize]
}

fn main() {
    println!("us for a new token   whole  signature    rest: p10   median      p90");
    testing::run(
        |_| (Duration::ZERO, testing::down()),
        |worker| async move {
            for algorithm in [Algorithm::Rs256, Algorithm::Es256, Algorithm::EdDsa] {
                let pairs = measure(algorithm, &worker);
                let whole = quantile(pairs.iter().map(|it| it.0), 0.5);
                let signature = quantile(pairs.iter().map(|it| it.1), 0.5);
                let rest = |part| quantile(pairs.iter().map(|it| it.0 - it.1), part);
                let [low, median, high] = [0.1, 0.5, 0.9].map(rest);
                println!(
                    "{:<16} {whole:>9.1} {signature:>10.1} {low:>12.1} {median:>8.1} {high:>8.1}",
                    algorithm.name()
                );
            }
        },
    );
}
