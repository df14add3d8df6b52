//! SHA-256 of a whole text, as an array.

use aws_lc_rs::digest::{SHA256, digest};

/// The 32 bytes of the hash.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    for (to, from) in hash.iter_mut().zip(digest(&SHA256, bytes).as_ref()) {
        *to = *from;
    }
    hash
}
