//! Escapes in JSON strings (RFC 8259, section 7).

/// Decodes the escape at the beginning of `text`, whose first byte is the backslash. Gives the
/// character and how many bytes the escape takes: 2, 6, or 12 for a surrogate pair.
///
/// # Errors
/// A message when there is no such escape, or a surrogate without its other half: JSON texts that
/// only some readers accept are refused.
pub fn decode_escape(text: &[u8]) -> Result<(char, usize), &'static str> {
    let kind = text.get(1).copied().unwrap_or_default();
    let character = match kind {
        b'"' | b'\\' | b'/' => char::from(kind),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode_escape(text),
        _ => return Err(UNKNOWN),
    };
    Ok((character, 2))
}

const UNKNOWN: &str = "an escape that does not exist";

fn unicode_escape(text: &[u8]) -> Result<(char, usize), &'static str> {
    const LONE: &str = "half of a surrogate pair";
    let first = code_unit(text)?;
    if let Some(character) = char::from_u32(first) {
        return Ok((character, 6));
    }
    let low = text.get(6..).unwrap_or_default();
    if first >= 0xdc00 || !low.starts_with(b"\\u") {
        return Err(LONE);
    }
    let second = code_unit(low)?;
    if !(0xdc00..0xe000).contains(&second) {
        return Err(LONE);
    }
    let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
    let character = char::from_u32(code).ok_or(LONE)?;
    Ok((character, 12))
}

/// The four digits behind `\u`.
fn code_unit(text: &[u8]) -> Result<u32, &'static str> {
    let digits = text.get(2..6).ok_or(UNKNOWN)?;
    let add = |value, digit: &u8| Some(value << 4 | char::from(*digit).to_digit(16)?);
    digits.iter().try_fold(0, add).ok_or(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_give_their_character_and_length() {
        for (text, character, length) in [
            (r"\n", '\n', 2),
            (r"\/x", '/', 2),
            (r"\u00e9", 'é', 6),
            (r"\uD83D\uDE00 ", '😀', 12),
        ] {
            assert_eq!(decode_escape(text.as_bytes()), Ok((character, length)));
        }
    }

    #[test]
    fn broken_escapes_are_refused() {
        for text in [r"\", r"\x", r"\u12", r"\u12g4", r"\u+123", r"\uD83D\u12"] {
            assert_eq!(decode_escape(text.as_bytes()), Err(UNKNOWN), "{text}");
        }
        for text in [r"\uDE00", r"\uD83D", r"\uD83D\n", r"\uD83D\uD83D"] {
            let lone = Err("half of a surrogate pair");
            assert_eq!(decode_escape(text.as_bytes()), lone, "{text}");
        }
    }
}
