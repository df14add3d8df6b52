//! Events that can be checked: each has its number, the instant for which it was scheduled, and a
//! hash of all of itself, `{"n":17,"at":1763740000000000,"h":"00c0ffee00c0ffee","p":"…"}`.
//!
//! Instants are microseconds since 1970 by the machine's clock, which all processes share and every
//! JSON parser keeps exactly.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The bytes of an event without padding, when its number has one digit.
const LEAST: usize = 59;
/// The least size that any number fits into.
pub const SIZE_MIN: usize = LEAST + 19;

const HEAD: &[u8] = b"{\"n\":";
const AT: &[u8] = b",\"at\":";
const HASH: &[u8] = b",\"h\":\"";
const PADDING: &[u8] = b"\",\"p\":\"";
const END: &[u8] = b"\"}";
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Now, in microseconds since 1970.
pub fn now() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, micros)
}

/// A duration in whole microseconds.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// What an event says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The number of the event.
    pub number: u64,
    /// When it was scheduled, in microseconds since 1970.
    pub at: u64,
    /// Whether its hash is that of its bytes.
    pub is_whole: bool,
}

/// Adds an event of this size, or of the least that its number needs.
pub fn write(number: u64, at: u64, size: usize, out: &mut Vec<u8>) {
    let start = out.len();
    // invariant: writing to a Vec does not fail.
    let _ = write!(out, "{{\"n\":{number},\"at\":{at}");
    let told = out.len();
    out.extend_from_slice(HASH);
    let digits = out.len();
    out.extend_from_slice(&[b'0'; 16]);
    out.extend_from_slice(PADDING);
    let padding = out.len();
    let fixed = padding - start + END.len();
    letters(number ^ 0x5EED, size.saturating_sub(fixed), out);
    let hash = hash_of(
        out.get(start..told).unwrap_or_default(),
        out.get(padding..).unwrap_or_default(),
    );
    if let Some(room) = out.get_mut(digits..digits + 16) {
        room.copy_from_slice(format!("{hash:016x}").as_bytes());
    }
    out.extend_from_slice(END);
}

/// Reads an event that stands at the beginning of some bytes; `None` when none does.
pub fn read(bytes: &[u8]) -> Option<(Stamp, usize)> {
    let mut at = Cursor { bytes, at: 0 };
    at.skip(HEAD)?;
    let number = at.digits()?;
    at.skip(AT)?;
    let scheduled = at.digits()?;
    let told = bytes.get(..at.at)?;
    at.skip(HASH)?;
    let hash = bytes.get(at.at..at.at + 16)?;
    at.at += 16;
    at.skip(PADDING)?;
    let rest = bytes.get(at.at..)?;
    let length = memchr::memchr(b'"', rest)?;
    let padding = rest.get(..length)?;
    at.at += length;
    at.skip(END)?;
    let hash = std::str::from_utf8(hash).ok();
    let hash = hash.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let stamp = Stamp {
        number,
        at: scheduled,
        is_whole: hash == Some(hash_of(told, padding)),
    };
    Some((stamp, at.at))
}

/// The event within some bytes that a system may have put around it.
pub fn find(bytes: &[u8]) -> Option<Stamp> {
    let at = match bytes.starts_with(HEAD) {
        true => 0,
        false => memchr::memmem::find(bytes, HEAD)?,
    };
    read(bytes.get(at..)?).map(|(stamp, _)| stamp)
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn skip(&mut self, text: &[u8]) -> Option<()> {
        let is_there = self.bytes.get(self.at..)?.starts_with(text);
        self.at += text.len();
        is_there.then_some(())
    }

    fn digits(&mut self) -> Option<u64> {
        let (number, length) = number(self.bytes.get(self.at..)?)?;
        self.at += length;
        Some(number)
    }
}

/// The number at the beginning of some bytes, and its length.
pub fn number(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0_u64;
    let mut length = 0;
    while let Some(digit) = bytes.get(length).filter(|byte| byte.is_ascii_digit()) {
        number = number
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
        length += 1;
    }
    (length > 0).then_some((number, length))
}

fn hash_of(told: &[u8], padding: &[u8]) -> u64 {
    hash(hash(0x1B87_3593_CC9E_2D51, told), padding)
}

/// Mixes bytes into a hash: fast, and different when any byte is; no defence against malice.
pub fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let mut state = seed ^ (bytes.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        state = mix(state ^ u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    mix(state ^ u64::from_le_bytes(last))
}

fn mix(word: u64) -> u64 {
    let word = word.wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    word ^ (word >> 32)
}

/// Adds letters that depend on the seed.
pub fn letters(seed: u64, count: usize, out: &mut Vec<u8>) {
    let end = out.len() + count;
    let mut state = seed;
    while out.len() < end {
        // SplitMix64 (Steele, Lea, Flood 2014).
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let mut ten = [0; 10];
        for letter in &mut ten {
            *letter = LETTERS.get((bits & 63) as usize).copied().unwrap_or(b'A');
            bits >>= 6;
        }
        let room = (end - out.len()).min(ten.len());
        out.extend_from_slice(ten.get(..room).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_their_size_and_are_read_again() {
        for (number, size) in [(1, 82), (9_999_999, 82), (17, 20_000), (u64::MAX, SIZE_MIN)] {
            let mut text = Vec::new();
            write(number, 1_763_740_000_000_000, size, &mut text);
            assert_eq!(text.len(), size, "{}", String::from_utf8_lossy(&text));
            let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(value["n"], number);
            let (stamp, length) = read(&text).unwrap();
            assert_eq!((stamp.number, stamp.at), (number, 1_763_740_000_000_000));
            assert!(stamp.is_whole);
            assert_eq!(length, size);
            let around = [b"{\"pub\":{\"data\":", text.as_slice(), b",\"offset\":1}}"].concat();
            assert_eq!(find(&around), Some(stamp));
        }
    }

    #[test]
    fn any_changed_byte_is_seen() {
        let mut text = Vec::new();
        write(123, 1_763_740_000_000_000, 200, &mut text);
        for at in 0..text.len() {
            let mut other = text.clone();
            other[at] = if other[at] == b'1' { b'2' } else { b'1' };
            let seen = read(&other).filter(|(stamp, _)| stamp.is_whole);
            assert_eq!(seen, None, "byte {at}");
        }
        for length in 0..text.len() {
            assert_eq!(read(&text[..length]), None, "cut to {length}");
        }
    }

    #[test]
    fn numbers_are_read_to_their_ends() {
        assert_eq!(number(b"17,"), Some((17, 2)));
        assert_eq!(number(b"x"), None);
        assert_eq!(number(b"99999999999999999999"), None);
    }
}
