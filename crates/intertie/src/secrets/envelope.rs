//! The encrypted file: a head of text lines, an empty line, and base64.
//!
//! ```text
//! intertie-secrets 1
//! key pbkdf2-hmac-sha256 600000 SALT
//! cipher aes-256-gcm NONCE
//!
//! TEXT AND TAG
//! ```
//!
//! The key of the cipher is made of the user's key and a new salt of 16 bytes by PBKDF2 (RFC 8018)
//! with as many rounds as OWASP's Password Storage Cheat Sheet asks for; the text is sealed by
//! AES-256-GCM (NIST SP 800-38D) with a new nonce of 12 bytes and the three lines of the head as
//! additional data, so nobody can change either without the key.

use std::num::NonZeroU32;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::{pbkdf2, rand};
use base64ct::{Base64, Encoding};

use super::Problem;
use super::key::Key;

const VERSION: &str = "intertie-secrets 1";
const KEY: &str = "key pbkdf2-hmac-sha256 ";
const CIPHER: &str = "cipher aes-256-gcm ";
const SALT_LENGTH: usize = 16;
const NONCE_LENGTH: usize = 12;
/// How long the lines of the text are.
const LINE: usize = 76;
/// Rounds of the key's derivation. Fewer are refused: a file that asks for them was not written by
/// us. More would only make a start slow.
const ROUNDS: u32 = 600_000;
const ROUNDS_MAX: u32 = 10_000_000;

/// Whether this may be an encrypted file.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(VERSION.as_bytes())
}

/// Encrypts a text.
pub(super) fn seal(text: &str, key: &Key) -> Result<String, Problem> {
    let failed = |_| Problem::new("it cannot be encrypted", "the system has no random numbers");
    let (mut salt, mut nonce) = ([0; SALT_LENGTH], [0; NONCE_LENGTH]);
    rand::fill(&mut salt).map_err(failed)?;
    rand::fill(&mut nonce).map_err(failed)?;
    let head = format!(
        "{VERSION}\n{KEY}{ROUNDS} {}\n{CIPHER}{}\n",
        Base64::encode_string(&salt),
        Base64::encode_string(&nonce),
    );
    let mut sealed = text.as_bytes().to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    cipher(key, ROUNDS, &salt)
        .and_then(|it| it.seal_in_place_append_tag(nonce, Aad::from(&head), &mut sealed))
        .map_err(failed)?;
    let encoded = Base64::encode_string(&sealed);
    let mut file = format!("{head}\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, behind) = rest.split_at(rest.len().min(LINE));
        file.push_str(line);
        file.push('\n');
        rest = behind;
    }
    Ok(file)
}

/// Decrypts a file.
pub(super) fn open(bytes: &[u8], key: &Key) -> Result<String, Problem> {
    let parts = Parts::read(bytes).ok_or_else(|| {
        let hint = "write it with `intertie secrets encrypt`";
        Problem::new("it is no encrypted file of this version", hint)
    })?;
    let wrong = |_| {
        let hint = "decrypt it with the key that it was encrypted with";
        Problem::new("its key is another one, or the file was changed", hint)
    };
    let mut sealed = parts.sealed;
    let nonce = Nonce::assume_unique_for_key(parts.nonce);
    let text = cipher(key, parts.rounds, &parts.salt)
        .and_then(|it| {
            it.open_in_place(nonce, Aad::from(&parts.head), &mut sealed)
                .map(|text| text.to_vec())
        })
        .map_err(wrong)?;
    String::from_utf8(text).map_err(|_| Problem::new("it is not UTF-8", "encrypt it again"))
}

fn cipher(key: &Key, rounds: u32, salt: &[u8]) -> Result<LessSafeKey, Unspecified> {
    let rounds = NonZeroU32::new(rounds).ok_or(Unspecified)?;
    let mut derived = [0; 32];
    let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
    pbkdf2::derive(algorithm, rounds, salt, key.as_bytes(), &mut derived);
    UnboundKey::new(&AES_256_GCM, &derived).map(LessSafeKey::new)
}

/// What stands in a file.
struct Parts {
    head: String,
    rounds: u32,
    salt: [u8; SALT_LENGTH],
    nonce: [u8; NONCE_LENGTH],
    sealed: Vec<u8>,
}

impl Parts {
    fn read(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.replace("\r\n", "\n");
        let (head, sealed) = text.split_once("\n\n")?;
        let mut lines = head.lines();
        if lines.next() != Some(VERSION) {
            return None;
        }
        let (rounds, salt) = lines.next()?.strip_prefix(KEY)?.split_once(' ')?;
        let nonce = lines.next()?.strip_prefix(CIPHER)?;
        if lines.next().is_some() {
            return None;
        }
        let rounds = rounds.parse().ok()?;
        let sealed: String = sealed.split('\n').collect();
        let parts = Self {
            head: format!("{head}\n"),
            rounds,
            salt: Base64::decode_vec(salt).ok()?.try_into().ok()?,
            nonce: Base64::decode_vec(nonce).ok()?.try_into().ok()?,
            sealed: Base64::decode_vec(&sealed).ok()?,
        };
        (ROUNDS..=ROUNDS_MAX).contains(&rounds).then_some(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_with_its_key_and_no_other() {
        let key = Key::new("the key of this test");
        let text = "A: \"é\"\n".repeat(40);
        let sealed = seal(&text, &key).unwrap();
        assert!(is_one(sealed.as_bytes()) && sealed.is_ascii());
        assert!(sealed.lines().all(|line| line.len() <= LINE));
        assert_eq!(open(sealed.as_bytes(), &key).unwrap(), text);
        let windows = sealed.replace('\n', "\r\n");
        assert_eq!(open(windows.as_bytes(), &key).unwrap(), text);
        assert_ne!(seal(&text, &key).unwrap(), sealed);
        let problem = open(sealed.as_bytes(), &Key::new("another key")).unwrap_err();
        assert!(problem.message.contains("its key is another one"));
    }

    #[test]
    fn a_changed_file_does_not_open() {
        let key = Key::new("the key of this test");
        let sealed = seal("A: text", &key).unwrap();
        let more = sealed.replace(" 600000 ", " 600001 ");
        assert!(
            open(more.as_bytes(), &key)
                .unwrap_err()
                .message
                .contains("changed")
        );
        for changed in [
            sealed.replace(" 600000 ", " 599999 "),
            sealed.replace(" 600000 ", " 4000000000 "),
            sealed.replace("secrets 1", "secrets 2"),
            sealed.replace("aes-256-gcm", "none"),
            sealed.replace("\n\n", "\nmore\n\n"),
            sealed.replace("\n\n", "\n\n!"),
            sealed.replace("\n\n", "\n"),
            String::new(),
        ] {
            let problem = open(changed.as_bytes(), &key).unwrap_err();
            assert!(problem.message.contains("no encrypted file"), "{changed}");
        }
        assert!(open(b"\xff", &key).is_err());
    }
}
