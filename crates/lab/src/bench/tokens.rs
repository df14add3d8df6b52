//! An issuer of JSON Web Tokens for a measurement: its key as engines read it, and tokens that all
//! have the same length.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ED25519, EcdsaKeyPair,
    Ed25519KeyPair, KeyPair, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use super::process;
use crate::stamp;

/// `iss` and `aud` of all tokens.
pub(crate) const ISSUER: &str = "https://issuer.example";
pub(crate) const AUDIENCE: &str = "lab";
/// How many tokens are presented in turn where each is to be known already.
pub(crate) const IN_TURN: usize = 10_000;
/// How many signatures are checked to know what one check costs.
const CHECKED: usize = 500;
/// How long the answer to one request may take.
const ASK_MAX: Duration = Duration::from_secs(5);
/// How long tokens are good for that are not to expire, in seconds.
const LIFE: u64 = 24 * 3600;

/// How tokens are signed (RFC 7518, RFC 8037).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Rs256,
    Es256,
    EdDsa,
}

impl Algorithm {
    /// The value of `alg`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }

    /// More tokens than a core can verify in a second, the rest of a request's cost included.
    pub fn per_second_max(self) -> usize {
        match self {
            Self::Rs256 => 45_000,
            Self::Es256 | Self::EdDsa => 25_000,
        }
    }
}

enum SigningKey {
    Rsa(Box<RsaKeyPair>),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

/// Files with the public key of an issuer.
#[derive(Clone, Debug)]
pub(crate) struct KeyFiles {
    /// A JWK set (RFC 7517).
    pub jwks: PathBuf,
    /// The same key in PEM, as `SubjectPublicKeyInfo`.
    pub pem: PathBuf,
}

impl KeyFiles {
    /// Where they are in a folder.
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            jwks: folder.join("jwks.json"),
            pem: folder.join("issuer.pem"),
        }
    }
}

impl KeyFiles {
    /// Puts the JWK set beside a flow file, which may name no file elsewhere.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn copy_jwks(&self, folder: &Path) -> anyhow::Result<()> {
        let copy = Self::in_folder(folder).jwks;
        let copied = fs::copy(&self.jwks, &copy);
        copied.with_context(|| format!("cannot write {}", copy.display()))?;
        Ok(())
    }
}

/// Who signs tokens.
pub(crate) struct Issuer {
    key: SigningKey,
    algorithm: Algorithm,
}

impl Issuer {
    /// Makes a key, and the files with its public half.
    ///
    /// # Errors
    /// When no key can be made or files cannot be written.
    pub fn make(algorithm: Algorithm, files: &KeyFiles) -> anyhow::Result<Self> {
        let failed = |_| anyhow!("no key for {} could be made", algorithm.name());
        let key = match algorithm {
            Algorithm::Rs256 => {
                let pair = RsaKeyPair::generate(KeySize::Rsa2048).map_err(failed)?;
                SigningKey::Rsa(Box::new(pair))
            }
            Algorithm::Es256 => {
                let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
                SigningKey::Ec(pair.map_err(failed)?)
            }
            Algorithm::EdDsa => SigningKey::Ed(Ed25519KeyPair::generate().map_err(failed)?),
        };
        let issuer = Self { key, algorithm };
        let jwks = json!({ "keys": [issuer.jwk()?] }).to_string();
        for (file, text) in [(&files.jwks, jwks), (&files.pem, issuer.pem()?)] {
            fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(issuer)
    }

    fn jwk(&self) -> anyhow::Result<serde_json::Value> {
        let text = |bytes: Option<&[u8]>| {
            let bytes = bytes.context("a public key of an unknown form")?;
            anyhow::Ok(URL_SAFE_NO_PAD.encode(bytes))
        };
        let mut jwk = match &self.key {
            SigningKey::Rsa(pair) => {
                // `RSAPublicKey` (RFC 8017, appendix A.1.1) of 2048 bits: nine bytes, the modulus
                // of 256, and the exponent 65537.
                let modulus = text(pair.public_key().as_ref().get(9..265))?;
                json!({ "kty": "RSA", "n": modulus, "e": "AQAB" })
            }
            SigningKey::Ec(pair) => {
                // The uncompressed point (SEC 1, section 2.3.3).
                let point = pair.public_key().as_ref();
                let [x, y] = [text(point.get(1..33))?, text(point.get(33..65))?];
                json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y })
            }
            SigningKey::Ed(pair) => {
                let x = text(Some(pair.public_key().as_ref()))?;
                json!({ "kty": "OKP", "crv": "Ed25519", "x": x })
            }
        };
        jwk["alg"] = self.algorithm.name().into();
        jwk["use"] = "sig".into();
        jwk["kid"] = "lab".into();
        Ok(jwk)
    }

    fn pem(&self) -> anyhow::Result<String> {
        let der: Result<PublicKeyX509Der<'_>, _> = match &self.key {
            SigningKey::Rsa(pair) => pair.public_key().as_der(),
            SigningKey::Ec(pair) => pair.public_key().as_der(),
            SigningKey::Ed(pair) => pair.public_key().as_der(),
        };
        let der = der.map_err(|_| anyhow!("the public key cannot be written"))?;
        let mut text = String::from("-----BEGIN PUBLIC KEY-----\n");
        let encoded = STANDARD.encode(der.as_ref());
        for line in encoded.as_bytes().chunks(64) {
            // invariant: base64 is ASCII, and writing to a String does not fail.
            let _ = writeln!(text, "{}", String::from_utf8_lossy(line));
        }
        text.push_str("-----END PUBLIC KEY-----\n");
        Ok(text)
    }

    /// The token of a client, with the claims of an access token (RFC 9068). It expires at this
    /// time, in seconds since 1970.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub fn token(&self, client: usize, expires: u64) -> anyhow::Result<String> {
        let header = json!({ "alg": self.algorithm.name(), "kid": "lab", "typ": "at+jwt" });
        let claims = json!({
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": format!("client-{client:08}"),
            "client_id": "intertie-bench",
            "iat": now(),
            "exp": expires,
            "jti": format!("{:016x}", stamp::hash(expires, &client.to_le_bytes())),
            "scope": "orders.read orders.write",
        });
        let part = |part: serde_json::Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let mut token = format!("{}.{}", part(header), part(claims));
        let signature = self.sign(token.as_bytes())?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(token)
    }

    fn sign(&self, text: &[u8]) -> anyhow::Result<Vec<u8>> {
        let failed = |_| anyhow!("a token could not be signed");
        let random = SystemRandom::new();
        Ok(match &self.key {
            SigningKey::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, text, &mut signature)
                    .map_err(failed)?;
                signature
            }
            SigningKey::Ec(pair) => pair.sign(&random, text).map_err(failed)?.as_ref().to_vec(),
            SigningKey::Ed(pair) => pair.sign(text).as_ref().to_vec(),
        })
    }

    /// The CPU time of verifying the signature of a token and nothing else, in microseconds, on
    /// this core or any.
    ///
    /// # Errors
    /// When the thread cannot be pinned to the core, or a signature does not verify.
    pub fn check_us(&self, tokens: &Tokens, core: Option<usize>) -> anyhow::Result<f64> {
        let public = match &self.key {
            SigningKey::Rsa(pair) => {
                ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key())
            }
            SigningKey::Ec(pair) => {
                ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key())
            }
            SigningKey::Ed(pair) => ParsedPublicKey::new(&ED25519, pair.public_key()),
        };
        let public = public.map_err(|_| anyhow!("the public key cannot be read"))?;
        let checked = (0..tokens.count().min(CHECKED)).map(|at| {
            let token = std::str::from_utf8(tokens.get(at))?;
            let (signed, signature) = token.rsplit_once('.').context("not a token")?;
            let signature = URL_SAFE_NO_PAD.decode(signature);
            anyhow::Ok((signed, signature.map_err(|_| anyhow!("not a signature"))?))
        });
        let checked: Vec<_> = checked.collect::<Result<_, _>>()?;
        let check_all = || {
            if let Some(core) = core {
                process::pin(&[core])?;
            }
            let begin = thread_time();
            for (signed, signature) in &checked {
                let is_right = public.verify_sig(signed.as_bytes(), signature);
                is_right.map_err(|_| anyhow!("a signature is wrong"))?;
            }
            let time = thread_time() - begin;
            anyhow::Ok(time.as_secs_f64() * 1e6 / checked.len().max(1) as f64)
        };
        let joined = thread::scope(|scope| scope.spawn(check_all).join());
        joined.unwrap_or_else(|_| Err(anyhow!("the thread that checks signatures panicked")))
    }

    /// Tokens of so many clients, all different, that do not expire during a measurement. It takes
    /// half a millisecond for each of RS256, so all these cores do it.
    ///
    /// # Errors
    /// When one cannot be signed.
    pub fn tokens(&self, count: usize, cores: &[usize]) -> anyhow::Result<Vec<String>> {
        let expires = now() + LIFE;
        let each = count.div_ceil(cores.len().max(1)).max(1);
        let of = |begin: usize| {
            let clients = begin..(begin + each).min(count);
            clients.map(|client| self.token(client, expires)).collect()
        };
        let parts: Vec<anyhow::Result<Vec<String>>> = thread::scope(|scope| {
            let begins = (0..count).step_by(each);
            let threads = begins.enumerate().map(|(index, begin)| {
                let core = cores.get(index).copied();
                scope.spawn(move || {
                    if let Some(core) = core {
                        process::pin(&[core])?;
                    }
                    of(begin)
                })
            });
            let threads: Vec<_> = threads.collect();
            let join = |it: thread::ScopedJoinHandle<'_, _>| match it.join() {
                Ok(part) => part,
                Err(_) => Err(anyhow!("a thread that signs tokens panicked")),
            };
            threads.into_iter().map(join).collect()
        });
        let mut tokens = Vec::with_capacity(count);
        for part in parts {
            tokens.extend(part?);
        }
        Ok(tokens)
    }
}

/// Makes sure that a system looks at tokens: a request with one whose signature is another one's
/// must be refused with 401.
///
/// # Errors
/// When it is not.
pub(crate) fn ensure_checked(address: SocketAddr, path: &str, token: &[u8]) -> anyhow::Result<()> {
    let mut forged = token.to_vec();
    // Not the last letter, some of whose bits mean nothing.
    let at = forged.len().saturating_sub(8);
    if let Some(letter) = forged.get_mut(at) {
        *letter = if *letter == b'A' { b'B' } else { b'A' };
    }
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ASK_MAX))?;
    let forged = String::from_utf8_lossy(&forged);
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {forged}\r\n\
         Content-Length: 2\r\nConnection: close\r\n\r\n{{}}"
    );
    stream.write_all(request.as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    ensure!(
        line.split(' ').nth(1) == Some("401"),
        "a forged token was answered with {line:?}"
    );
    Ok(())
}

/// The CPU time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // invariant: it begins at zero and only grows.
    Duration::try_from(time).unwrap_or_default()
}

/// The time of day in seconds since 1970.
pub(crate) fn now() -> u64 {
    stamp::now() / 1_000_000
}

/// What the clients of the load present: tokens of one length, so that a request with one has the
/// bytes of a request with another.
pub(crate) struct Tokens {
    /// All of them, one behind the other.
    text: Vec<u8>,
    size: usize,
    /// Whether each is to be presented once. What is sent before the window opens has the first.
    pub is_cold: bool,
}

impl Tokens {
    /// Puts tokens together.
    ///
    /// # Errors
    /// When there is none, or they differ in length.
    pub fn new(tokens: &[String], is_cold: bool) -> anyhow::Result<Self> {
        let size = tokens.first().map_or(0, String::len);
        let is_even = size > 0 && tokens.iter().all(|token| token.len() == size);
        ensure!(is_even, "tokens must have one length");
        Ok(Self {
            text: tokens.concat().into_bytes(),
            size,
            is_cold,
        })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.text.len() / self.size
    }

    /// One of them.
    pub fn get(&self, index: usize) -> &[u8] {
        let begin = index * self.size;
        self.text.get(begin..begin + self.size).unwrap_or_default()
    }
}

/// The tokens that one thread of the load presents, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    first: usize,
    count: usize,
}

impl Share {
    /// That of a thread, of so many threads.
    pub fn of(tokens: &Tokens, thread: usize, threads: usize) -> Self {
        let at = |thread: usize| tokens.count() * thread / threads.max(1);
        Self {
            first: at(thread),
            count: (at(thread + 1) - at(thread)).max(1),
        }
    }

    /// Which token stands in the request with this number.
    pub fn index(self, number: u64) -> usize {
        self.first + usize::try_from(number % self.count as u64).unwrap_or(0)
    }

    /// Which one stands there while nothing may be used up.
    pub fn first(self) -> usize {
        self.first
    }

    /// Whether each has been presented when so many requests were made.
    pub fn is_done(self, requests: u64) -> bool {
        requests >= self.count as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::folder::Folder;

    #[test]
    fn tokens_are_different_and_have_one_length() {
        let folder = Folder::new("intertie-tokens").unwrap();
        let files = KeyFiles::in_folder(&folder);
        for algorithm in [Algorithm::Rs256, Algorithm::Es256, Algorithm::EdDsa] {
            let issuer = Issuer::make(algorithm, &files).unwrap();
            let mut made = issuer.tokens(5, &[]).unwrap();
            let tokens = Tokens::new(&made, true).unwrap();
            assert_eq!((tokens.count(), tokens.get(4)), (5, made[4].as_bytes()));
            assert!(issuer.check_us(&tokens, None).unwrap() > 1.0);
            let forged = [made[0].replace(".", ".A")];
            let forged = Tokens::new(&forged, true).unwrap();
            let error = issuer.check_us(&forged, None).unwrap_err();
            assert_eq!(error.to_string(), "a signature is wrong");
            made.sort();
            made.dedup();
            assert_eq!(made.len(), 5);
            let parts: Vec<&str> = made[0].split('.').collect();
            let claims = URL_SAFE_NO_PAD.decode(parts[1]).unwrap();
            let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
            assert_eq!(
                (&claims["iss"], &claims["aud"]),
                (&ISSUER.into(), &AUDIENCE.into())
            );
            assert!(claims["exp"].as_u64().unwrap() > now() + LIFE / 2);
            let jwks = fs::read_to_string(&files.jwks).unwrap();
            assert!(jwks.contains(algorithm.name()), "{jwks}");
            let pem = fs::read_to_string(&files.pem).unwrap();
            assert!(pem.starts_with("-----BEGIN PUBLIC KEY-----\nM"), "{pem}");
        }
    }

    #[test]
    fn a_system_that_looks_at_no_token_is_not_measured() {
        let address = crate::stub::spawn("echo", &[]).unwrap();
        let error = ensure_checked(address, "/x", b"header.claims.signature").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("answered with \"HTTP/1.1 200"), "{text}");
    }

    #[test]
    fn no_two_threads_present_one_token() {
        let made: Vec<String> = (10..21).map(|number| number.to_string()).collect();
        let tokens = Tokens::new(&made, true).unwrap();
        let mut shown = Vec::new();
        for thread in 0..3 {
            let share = Share::of(&tokens, thread, 3);
            let begun = 1000 * thread as u64;
            let count = (0..).find(|count| share.is_done(*count)).unwrap();
            shown.extend((begun..begun + count).map(|number| share.index(number)));
            assert_eq!(share.index(begun), share.index(begun + count));
        }
        shown.sort_unstable();
        assert_eq!(shown, (0..11).collect::<Vec<_>>());
        assert!(Tokens::new(&["a".to_owned(), "bc".to_owned()], false).is_err());
        assert!(Tokens::new(&[], false).is_err());
    }
}
