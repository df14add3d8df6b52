//! Credentials that tests present: signed tokens and hashes of keys.

use aws_lc_rs::{digest, hmac};

/// A JSON Web Token (RFC 7519) with these claims, a JSON object, signed with HS256.
pub fn hs256_token(secret: &str, claims: &str) -> String {
    let header = base64url(br#"{"alg":"HS256","typ":"JWT"}"#);
    let signed = format!("{header}.{}", base64url(claims.as_bytes()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", base64url(signature.as_ref()))
}

/// The SHA-256 of a key in hexadecimal digits, as files of API keys have it.
pub fn sha256_hex(key: &str) -> String {
    let hash = digest::digest(&digest::SHA256, key.as_bytes());
    hash.as_ref().iter().map(|it| format!("{it:02x}")).collect()
}

/// Base64 for URLs without padding (RFC 4648, section 5).
fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three
            .iter()
            .fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for place in 0..=three.len() {
            let index = bits >> (18 - 6 * place) & 63;
            text.push(char::from(ALPHABET[index as usize]));
        }
    }
    text
}
