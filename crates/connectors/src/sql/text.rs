//! Values of databases that have no kind of their own in JSON.

use expr::Value;
use expr::value;

/// The shortest digits that stand for the number. JSON has no others than numbers.
#[cfg_attr(
    not(any(feature = "postgres", feature = "sqlite")),
    allow(dead_code, reason = "other drivers have no such numbers")
)]
pub(crate) fn float<T: std::fmt::Debug + Into<f64> + Copy>(number: T) -> Value {
    let wide: f64 = number.into();
    match wide {
        wide if wide.is_nan() => value::text("NaN"),
        f64::INFINITY => value::text("Infinity"),
        f64::NEG_INFINITY => value::text("-Infinity"),
        _ => value::number(&format!("{number:?}")),
    }
}

/// Base64 with padding (RFC 4648, section 4).
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |at: usize| group.get(at).copied().map_or(0, u32::from);
        let number = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let digit = (number >> (18 - 6 * place) & 63) as usize;
            let digit = DIGITS.get(digit).copied().map_or('=', char::from);
            text.push(if place > group.len() { '=' } else { digit });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_base64() {
        for (plain, expected) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(plain.as_bytes()), expected);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0x00, 0x3e]), "//4APg==");
    }

    #[test]
    fn numbers_keep_their_shortest_digits() {
        let shown = |number: Value| value::shown(&number);
        assert_eq!(shown(float(0.1_f32)), "0.1");
        assert_eq!(shown(float(1e300_f64)), "1e300");
        assert_eq!(shown(float(f64::NEG_INFINITY)), "\"-Infinity\"");
    }
}
