//! Names of elements and attributes (XML 1.0, section 2.3; Namespaces in XML 1.0, section 4).

/// Whether this is a name for an element or attribute: an XML name with at most one colon, which
/// stands between two names.
pub fn is_name(text: &str) -> bool {
    match text.split_once(':') {
        Some((prefix, local)) => is_plain_name(prefix) && is_plain_name(local),
        None => is_plain_name(text),
    }
}

/// Whether this is a name without a colon.
#[inline]
pub fn is_plain_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let Some(first) = bytes.first() else {
        return false;
    };
    if text.is_ascii() {
        return ASCII[usize::from(*first)] == START
            && bytes.iter().all(|byte| ASCII[usize::from(*byte)] != NONE);
    }
    let mut characters = text.chars();
    characters.next().is_some_and(is_start) && characters.all(|it| is_start(it) || is_rest(it))
}

const NONE: u8 = 0;
const REST: u8 = 1;
const START: u8 = 2;

const ASCII: [u8; 256] = {
    let mut table = [NONE; 256];
    let mut byte = 0;
    while byte < 128 {
        let character = byte as u8;
        table[byte] = if character.is_ascii_alphabetic() || character == b'_' {
            START
        } else if character.is_ascii_digit() || character == b'-' || character == b'.' {
            REST
        } else {
            NONE
        };
        byte += 1;
    }
    table
};

/// NameStartChar without the colon.
fn is_start(character: char) -> bool {
    matches!(character,
        'A'..='Z' | '_' | 'a'..='z' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}'
        | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}'
        | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}'
        | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}'
        | '\u{10000}'..='\u{effff}')
}

/// What NameChar has beyond NameStartChar.
fn is_rest(character: char) -> bool {
    matches!(character,
        '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_xml() {
        for name in ["a", "_", "a1", "a-b.c_d", "p:e", "ä", "名前", "a\u{b7}"] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "", "1a", "-a", ".a", "a b", "a:", ":a", "a:b:c", "a/b", "\u{b7}", "×", "a:1",
        ] {
            assert!(!is_name(name), "{name}");
        }
    }
}
