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
    match aws_lc_rs::rand::fill(&mut key) {
        Ok(()) => key,
        Err(_) => key_of_hasher(),
    }
}

/// A key where the system has no random numbers left: SipHash, with a key that the system gave at
/// the start of the thread, is as good for four bytes.
#[cold]
fn key_of_hasher() -> [u8; 4] {
    let random = RandomState::new().build_hasher().finish();
    (random as u32).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn nobody_can_say_what_the_next_key_will_be() {
        for make in [masking_key, key_of_hasher] {
            let keys: Vec<[u8; 4]> = (0..4096).map(|_| make()).collect();
            // Of random ones two are the same once in 500 runs, and hardly ever more.
            assert!(keys.iter().collect::<HashSet<_>>().len() >= 4090);
            for bit in 0..32 {
                let is_set = |key: &&[u8; 4]| u32::from_ne_bytes(**key) >> bit & 1 == 1;
                let set = keys.iter().filter(is_set).count();
                // 2048 are expected with a deviation of 32.
                assert!((1748..=2348).contains(&set), "bit {bit}: {set}");
            }
            let steps = keys.iter().map(|key| u32::from_ne_bytes(*key));
            let steps = steps.clone().zip(steps.skip(1));
            let steps: HashSet<u32> = steps.map(|(a, b)| b.wrapping_sub(a)).collect();
            assert!(steps.len() >= 4085, "{}", steps.len());
        }
    }

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
