//! Masking (RFC 6455, section 5.3): eight bytes at a time, which compilers make vectors of.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Masks or unmasks these bytes, of which the first is number `at` of its payload.
pub(super) fn apply(bytes: &mut [u8], key: [u8; 4], at: usize) {
    let mut key = key;
    key.rotate_left(at % 4);
    let [a, b, c, d] = key;
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (chunks, rest) = bytes.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ word).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}

/// Appends these bytes unmasked.
pub(super) fn append(out: &mut Vec<u8>, bytes: &[u8], key: Option<[u8; 4]>, at: usize) {
    let start = out.len();
    out.extend_from_slice(bytes);
    if let Some(key) = key {
        apply(out.get_mut(start..).unwrap_or_default(), key, at);
    }
}

/// A masking key of the system's random numbers (RFC 6455, section 10.3).
pub fn masking_key() -> [u8; 4] {
    let mut key = [0; 4];
    if aws_lc_rs::rand::fill(&mut key).is_err() {
        // Keyed by the system at the start of the thread: as good for four bytes.
        let random = RandomState::new().build_hasher().finish();
        key = (random as u32).to_ne_bytes();
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_payload_is_masked_as_the_whole_would_be() {
        let key = [0x37, 0xfa, 0x21, 0x3d];
        let plain: Vec<u8> = (0..200).collect();
        let slow: Vec<u8> = plain
            .iter()
            .enumerate()
            .map(|(at, byte)| byte ^ key[at % 4])
            .collect();
        for start in 0..20 {
            for end in start..plain.len() {
                let mut part = plain[start..end].to_vec();
                apply(&mut part, key, start);
                assert_eq!(part, slow[start..end], "{start}..{end}");
            }
        }
    }
}
