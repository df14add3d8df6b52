//! Texts that nobody can guess.

use std::fmt::Write as _;

use aws_lc_rs::rand;

/// 256 random bits as 64 hexadecimal digits; `None` when the system has none.
pub fn token() -> Option<String> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).ok()?;
    let mut text = String::with_capacity(64);
    for byte in bytes {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Some(text)
}

/// Whether a text looks like one of these.
pub fn is_token(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 64 && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ() {
        let (one, other) = (token().unwrap(), token().unwrap());
        assert!(is_token(&one) && is_token(&other));
        assert_ne!(one, other);
        assert!(!is_token("") && !is_token(&one[1..]) && !is_token(&one.replace(|_| true, "G")));
    }
}
