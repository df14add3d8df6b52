//! The Huffman code of HPACK (RFC 7541, section 5.2 and appendix B).
//!
//! The code is canonical, so the lengths of the codes say all; every table is computed from them
//! at compile time.

use super::DecodeError;

/// The length in bits of every symbol's code; symbol 256 ends a string and never occurs.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11,
    10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8,
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5,
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21,
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25,
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26,
    28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];
const LENGTH_MIN: usize = 5;
const LENGTH_MAX: usize = 30;
const END: u16 = 256;
/// How many bits one look into [`FAST`] takes.
const FAST_BITS: u32 = 10;

/// The symbols in the order of their codes, and where each length begins.
struct Canon {
    sorted: [u16; 257],
    /// The first code of each length, moved to the top of 32 bits.
    first: [u32; LENGTH_MAX + 1],
    /// The place of that code's symbol in `sorted`.
    place: [u16; LENGTH_MAX + 1],
    /// The code behind the last one of each length, moved to the top of 32 bits.
    limit: [u64; LENGTH_MAX + 1],
    codes: [u32; 257],
}

const CANON: Canon = canon();
static FAST: [Fast; 1 << FAST_BITS] = fast();
static CODES: [u32; 257] = CANON.codes;
static SORTED: [u16; 257] = CANON.sorted;
static FIRST: [u32; LENGTH_MAX + 1] = CANON.first;
static PLACE: [u16; LENGTH_MAX + 1] = CANON.place;
static LIMIT: [u64; LENGTH_MAX + 1] = CANON.limit;

/// What the next bits say: one or two symbols, or none when the code is longer.
#[derive(Clone, Copy)]
struct Fast {
    symbols: [u8; 2],
    count: u8,
    bits: u8,
}

const fn canon() -> Canon {
    let mut canon = Canon {
        sorted: [0; 257],
        first: [0; LENGTH_MAX + 1],
        place: [0; LENGTH_MAX + 1],
        limit: [0; LENGTH_MAX + 1],
        codes: [0; 257],
    };
    let (mut code, mut place, mut length) = (0u64, 0, LENGTH_MIN);
    while length <= LENGTH_MAX {
        canon.first[length] = (code << (32 - length)) as u32;
        canon.place[length] = place as u16;
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] as usize == length {
                canon.sorted[place] = symbol as u16;
                canon.codes[symbol] = code as u32;
                code += 1;
                place += 1;
            }
            symbol += 1;
        }
        canon.limit[length] = code << (32 - length);
        code <<= 1;
        length += 1;
    }
    canon
}

/// The symbol at the top of `window` and its length, when that is at most `most`; else 0.
const fn short(window: u32, most: usize) -> (u8, usize) {
    let mut length = LENGTH_MIN;
    while length <= most {
        if (window as u64) < CANON.limit[length] {
            let step = (window - CANON.first[length]) >> (32 - length);
            let symbol = CANON.sorted[CANON.place[length] as usize + step as usize];
            return (symbol as u8, length);
        }
        length += 1;
    }
    (0, 0)
}

const fn fast() -> [Fast; 1 << FAST_BITS] {
    let none = Fast {
        symbols: [0; 2],
        count: 0,
        bits: 0,
    };
    let mut table = [none; 1 << FAST_BITS];
    let mut index = 0;
    while index < table.len() {
        let window = (index as u32) << (32 - FAST_BITS);
        let (symbol, length) = short(window, FAST_BITS as usize);
        if length > 0 {
            let (next, more) = short(window << length, FAST_BITS as usize - length);
            table[index] = Fast {
                symbols: [symbol, next],
                count: if more > 0 { 2 } else { 1 },
                bits: (length + more) as u8,
            };
        }
        index += 1;
    }
    table
}

/// Appends the decoded text of `input` to `out`.
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let start = out.len();
    // No code is shorter than five bits; two more places let a pair be written at once.
    out.resize(start + input.len() * 8 / LENGTH_MIN + 2, 0);
    let count = fill(input, out.get_mut(start..).unwrap_or_default())?;
    out.truncate(start + count);
    Ok(())
}

fn fill(mut input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    // The waiting bits lie at the top of `bits`.
    let (mut bits, mut count, mut at) = (0u64, 0u32, 0usize);
    loop {
        if count <= 32 {
            if let Some((chunk, rest)) = input.split_first_chunk::<4>() {
                bits |= u64::from(u32::from_be_bytes(*chunk)) << (32 - count);
                count += 32;
                input = rest;
            } else if let Some((&byte, rest)) = input.split_first() {
                bits |= u64::from(byte) << (56 - count);
                count += 8;
                input = rest;
                continue;
            }
        }
        if count == 0 {
            return Ok(at);
        }
        let padded = bits | (u64::MAX >> 1) >> (count - 1);
        let pair = out.get_mut(at..at + 2).ok_or(DecodeError::Malformed)?;
        let found = FAST[(padded >> (64 - FAST_BITS)) as usize];
        if found.count > 0 && u32::from(found.bits) <= count {
            pair.copy_from_slice(&found.symbols);
            at += usize::from(found.count);
            bits <<= found.bits;
            count -= u32::from(found.bits);
            continue;
        }
        let (symbol, length) = long((padded >> 32) as u32);
        if length > count {
            // What is left must be less than a byte of the end symbol's ones.
            let is_padding = count < 8 && bits.leading_ones() >= count;
            return if is_padding {
                Ok(at)
            } else {
                Err(DecodeError::Malformed)
            };
        }
        if symbol == END {
            return Err(DecodeError::Malformed);
        }
        pair[0] = symbol as u8;
        at += 1;
        bits <<= length;
        count -= length;
    }
}

/// The symbol at the top of `window` and its length, whatever that is.
fn long(window: u32) -> (u16, u32) {
    for length in LENGTH_MIN..=LENGTH_MAX {
        if u64::from(window) < LIMIT[length] {
            let step = (window - FIRST[length]) >> (32 - length);
            let place = usize::from(PLACE[length]) + step as usize;
            return (SORTED.get(place).copied().unwrap_or(END), length as u32);
        }
    }
    (END, LENGTH_MAX as u32)
}

/// How many bytes the text takes when it is encoded.
pub(super) fn encoded_len(text: &[u8]) -> usize {
    let bits: usize = text
        .iter()
        .map(|&byte| usize::from(LENGTHS[usize::from(byte)]))
        .sum();
    bits.div_ceil(8)
}

/// Appends the encoded text to `out`.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0u32);
    for &byte in text {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        bits = bits << length | u64::from(CODES[usize::from(byte)]);
        count += length;
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        out.push((bits << (8 - count)) as u8 | 0xff >> count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coded(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(text, &mut out);
        assert_eq!(out.len(), encoded_len(text));
        out
    }

    fn text(code: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let mut out = b"before".to_vec();
        decode(code, &mut out)?;
        Ok(out.split_off(6))
    }

    #[test]
    fn examples_of_the_rfc() {
        let code = [
            0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
        ];
        assert_eq!(coded(b"www.example.com"), code);
        assert_eq!(coded(b"no-cache"), [0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]);
        assert_eq!(text(&code).unwrap(), b"www.example.com");
    }

    #[test]
    fn every_byte_and_every_pair_comes_back() {
        for first in 0..=255u8 {
            assert_eq!(text(&coded(&[first])).unwrap(), [first]);
            for second in 0..=255u8 {
                let both = [first, second, first];
                assert_eq!(text(&coded(&both)).unwrap(), both);
            }
        }
        let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        assert_eq!(text(&coded(&all)).unwrap(), all);
        assert_eq!(text(b"").unwrap(), b"");
    }

    #[test]
    fn wrong_padding_and_the_end_symbol_are_refused() {
        // A whole byte of padding, zeros as padding, the end symbol, a code cut off.
        for code in [
            &b"\xff"[..],
            b"\x1f\xff",
            b"\x18",
            b"\xff\xff\xff\xff",
            b"\xfe",
            b"\x00",
        ] {
            assert_eq!(text(code), Err(DecodeError::Malformed), "{code:x?}");
        }
        assert_eq!(text(b"\x1f").unwrap(), b"a");
    }
}
