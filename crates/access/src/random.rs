//! Random bytes of the system.

use aws_lc_rs::rand;
use base64ct::{Base64UrlUnpadded, Encoding as _};

/// So many random bytes; `None` when the system has none.
pub fn bytes<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).ok()?;
    Some(bytes)
}

/// 256 random bits as text of 43 characters (base64url): a state, a nonce, a code verifier, the
/// identifier of a session.
pub fn text() -> Option<String> {
    Some(Base64UrlUnpadded::encode_string(&bytes::<32>()?))
}
