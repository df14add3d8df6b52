//! The GSM 7-bit default alphabet and its extension table (3GPP TS 23.038, section 6.2.1).

/// The characters of the default alphabet that are not ASCII.
const BEYOND_ASCII: &str = "£¥èéùìòÇØøÅåΔΦΓΛΩΠΨΣΘΞÆæßÉ¤¡ÄÖÑÜ§¿äöñüà";

/// How many septets a character needs; `None` when it is outside the alphabet.
pub(super) fn septets(character: char) -> Option<usize> {
    match character {
        '\u{c}' | '^' | '{' | '}' | '\\' | '[' | '~' | ']' | '|' | '€' => Some(2),
        '`' => None,
        '\n' | '\r' | ' '..='~' => Some(1),
        _ if BEYOND_ASCII.contains(character) => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 128 codes, of which one is the escape; and ten characters behind it.
    #[test]
    fn the_alphabet_has_127_characters_and_the_extension_table_ten() {
        let all = || ('\0'..='\u{ffff}').map(septets);
        assert_eq!(all().filter(|it| *it == Some(1)).count(), 127);
        assert_eq!(all().filter(|it| *it == Some(2)).count(), 10);
    }

    #[test]
    fn septets_are_counted_by_table() {
        for (character, expected) in [
            ('a', Some(1)),
            ('@', Some(1)),
            ('é', Some(1)),
            ('€', Some(2)),
            ('{', Some(2)),
            ('`', None),
            ('ç', None),
            ('ê', None),
            ('ع', None),
        ] {
            assert_eq!(septets(character), expected, "{character}");
        }
    }
}
