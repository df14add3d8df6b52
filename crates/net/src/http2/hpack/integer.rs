//! HPACK integers with a prefix (RFC 7541, section 5.1).

use super::DecodeError;

/// How many bytes may follow the prefix. Four of them carry any number that makes sense here.
const MORE_MAX: u32 = 4;

/// Reads the number whose first byte, already taken off `input`, ends in a prefix of `bits` bits.
#[inline]
pub(super) fn decode(first: u8, bits: u32, input: &mut &[u8]) -> Result<usize, DecodeError> {
    let mask = (1usize << bits) - 1;
    let prefix = usize::from(first) & mask;
    if prefix < mask {
        return Ok(prefix);
    }
    decode_more(mask, input)
}

fn decode_more(mut value: usize, input: &mut &[u8]) -> Result<usize, DecodeError> {
    for place in 0..MORE_MAX {
        let (&byte, rest) = input.split_first().ok_or(DecodeError::Malformed)?;
        *input = rest;
        value += usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(DecodeError::Malformed)
}

/// Writes `value` with a prefix of `bits` bits; `pattern` fills the bits before the prefix.
#[inline]
pub(super) fn encode(value: usize, bits: u32, pattern: u8, out: &mut Vec<u8>) {
    let mask = (1usize << bits) - 1;
    if value < mask {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(value: usize, bits: u32) -> Vec<u8> {
        let mut out = Vec::new();
        encode(value, bits, 0, &mut out);
        let mut rest = &out[1..];
        assert_eq!(decode(out[0], bits, &mut rest), Ok(value));
        assert!(rest.is_empty());
        out
    }

    #[test]
    fn examples_of_the_rfc() {
        assert_eq!(round(10, 5), [0b01010]);
        assert_eq!(round(1337, 5), [0b11111, 0b1001_1010, 0b0000_1010]);
        assert_eq!(round(42, 8), [0b0010_1010]);
    }

    #[test]
    fn edges_of_every_prefix() {
        for bits in 1..=8 {
            let mask = (1 << bits) - 1;
            for value in [
                0,
                1,
                mask - 1,
                mask,
                mask + 1,
                mask + 127,
                mask + 128,
                16_384,
                65_535,
            ] {
                round(value, bits);
            }
        }
    }

    #[test]
    fn endless_and_cut_numbers_are_refused() {
        for rest in [
            &b""[..],
            b"\x80",
            b"\x80\x80\x80\x80\x00",
            b"\xff\xff\xff\xff\x7f",
        ] {
            let mut input = rest;
            assert_eq!(decode(0x7f, 7, &mut input), Err(DecodeError::Malformed));
        }
        let mut input = &b"\xff\xff\xff\x7f"[..];
        assert_eq!(decode(0x7f, 7, &mut input), Ok(127 + (1 << 28) - 1));
    }
}
