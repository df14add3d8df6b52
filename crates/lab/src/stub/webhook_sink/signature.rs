//! Signatures of posts: Standard Webhooks 1.0 (`webhook-signature: v1,BASE64`), WebSub
//! (`X-Hub-Signature: sha256=HEX`, section 7 of the recommendation) and GitHub's
//! (`X-Hub-Signature-256`). Which one it is, its text tells.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::ledger::ProofTexts;

/// What has come of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    Bad,
    /// There is none.
    Absent,
}

/// Whether a field has signatures.
pub(super) fn is_field(name: &str) -> bool {
    let names = [
        "webhook-signature",
        "x-hub-signature-256",
        "x-hub-signature",
    ];
    names.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// The key for an endpoint: `{}` in the secret stands for the last segment of its path.
pub(super) fn secret_of(secret: &str, path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path);
    secret.replace("{}", path.rsplit('/').next().unwrap_or_default())
}

/// Checks the signatures of a post: one that is good is enough, for while a secret is replaced
/// there are two.
pub(super) fn check(secret: &str, texts: ProofTexts<'_>, body: &[u8]) -> Verdict {
    let list = texts.signature.split(|byte| *byte == b' ');
    let mut signatures = list.filter(|it| !it.is_empty()).peekable();
    if signatures.peek().is_none() {
        return Verdict::Absent;
    }
    match signatures.any(|signature| is_good(secret, texts, signature, body)) {
        true => Verdict::Good,
        false => Verdict::Bad,
    }
}

fn is_good(secret: &str, texts: ProofTexts<'_>, signature: &[u8], body: &[u8]) -> bool {
    if let Some(encoded) = signature.strip_prefix(b"v1,") {
        let key = match secret.strip_prefix("whsec_") {
            Some(encoded) => STANDARD.decode(encoded).unwrap_or_default(),
            None => secret.as_bytes().to_vec(),
        };
        let Ok(tag) = STANDARD.decode(encoded) else {
            return false;
        };
        let parts = [texts.id, b".", texts.timestamp, b".", body];
        return verify(hmac::HMAC_SHA256, &key, &parts, &tag);
    }
    let mut parts = signature.splitn(2, |byte| *byte == b'=');
    let (method, digits) = (parts.next(), parts.next().unwrap_or_default());
    let algorithm = match method {
        Some(b"sha1") => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        Some(b"sha256") => hmac::HMAC_SHA256,
        Some(b"sha384") => hmac::HMAC_SHA384,
        Some(b"sha512") => hmac::HMAC_SHA512,
        _ => return false,
    };
    let Some(tag) = from_hex(digits) else {
        return false;
    };
    verify(algorithm, secret.as_bytes(), &[body], &tag)
}

fn verify(algorithm: hmac::Algorithm, key: &[u8], parts: &[&[u8]], tag: &[u8]) -> bool {
    let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
    parts.iter().for_each(|part| context.update(part));
    context.sign().as_ref() == tag
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs
        .iter()
        .map(byte)
        .collect::<Option<_>>()
        .filter(|_| rest.is_empty())
}
