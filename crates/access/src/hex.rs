//! Bytes as hexadecimal digits.

use std::fmt::Write as _;

/// Lower-case digits.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes of exactly `N` pairs of digits, in either case.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != N * 2 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |digit: &u8| char::from(*digit).to_digit(16);
        let [high, low] = pair else { return None };
        *byte = u8::try_from(digit(high)? << 4 | digit(low)?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn digits_are_read_as_they_are_written() {
        let bytes: [u8; 4] = [0, 0x0f, 0xa5, 0xff];
        assert_eq!(encode(&bytes), "000fa5ff");
        assert_eq!(decode::<4>("000FA5ff"), Some(bytes));
        for text in [
            "",
            "000fa5f",
            "000fa5ff0",
            "000fa5fg",
            "+0000000",
            "00 fa5ff",
            "ä0fa5ff",
        ] {
            assert_eq!(decode::<4>(text), None, "{text}");
        }
    }
}
