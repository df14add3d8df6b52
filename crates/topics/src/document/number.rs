//! Numbers compared by their value, whatever their spelling and size.

/// A number as `digits` times ten to the power of `exponent`; no digits for 0.
#[derive(PartialEq, Eq)]
struct Plain {
    is_negative: bool,
    digits: Vec<u8>,
    exponent: i128,
}

/// Whether two numbers of JSON have the same value.
pub(super) fn is_equal(left: &[u8], right: &[u8]) -> bool {
    left == right
        || matches!((plain(left), plain(right)), (Some(left), Some(right)) if left == right)
}

fn plain(text: &[u8]) -> Option<Plain> {
    let is_negative = text.starts_with(b"-");
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let is_exponent = |it: &u8| matches!(it, b'e' | b'E');
    let end = text.iter().position(is_exponent).unwrap_or(text.len());
    let (mantissa, power) = text.split_at(end);
    let mut exponent: i128 = match power.get(1..) {
        Some(power) => {
            let power = std::str::from_utf8(power).ok()?;
            // One that is larger is told from others by its spelling.
            i128::from(power.trim_start_matches('+').parse::<i64>().ok()?)
        }
        None => 0,
    };
    let mut digits = Vec::with_capacity(mantissa.len());
    let mut is_fraction = false;
    for byte in mantissa {
        match byte {
            b'.' => is_fraction = true,
            byte => {
                digits.push(*byte);
                exponent -= i128::from(is_fraction);
            }
        }
    }
    let zeros = digits.iter().take_while(|it| **it == b'0').count();
    digits.drain(..zeros);
    while digits.last() == Some(&b'0') {
        digits.pop();
        exponent += 1;
    }
    if digits.is_empty() {
        // 0 and -0 are equal.
        return Some(Plain {
            is_negative: false,
            digits,
            exponent: 0,
        });
    }
    Some(Plain {
        is_negative,
        digits,
        exponent,
    })
}

#[cfg(test)]
mod tests {
    use super::is_equal;

    #[test]
    fn numbers_are_equal_by_their_value() {
        let equal = |left: &str, right: &str| is_equal(left.as_bytes(), right.as_bytes());
        for (left, right) in [
            ("1", "1.0"),
            ("100", "1e2"),
            ("1E+2", "100.00"),
            ("0.001", "1e-3"),
            ("-0", "0"),
            ("0e5", "0"),
            ("12345678901234567890.5", "123456789012345678905e-1"),
        ] {
            assert!(equal(left, right), "{left} {right}");
        }
        for (left, right) in [
            ("1", "2"),
            ("1", "-1"),
            ("1", "10"),
            ("9007199254740993", "9007199254740992"),
            ("1e99999999999999999999", "1e99999999999999999998"),
        ] {
            assert!(!equal(left, right), "{left} {right}");
        }
    }
}
