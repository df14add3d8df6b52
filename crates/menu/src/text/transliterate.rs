//! Characters of the GSM alphabet in place of others that look like them.

use std::borrow::Cow;

use super::gsm;

/// A replacement and the characters that it stands for.
const REPLACEMENTS: &[(&str, &str)] = &[
    ("A", "ÀÁÂÃĀĂĄ"),
    ("C", "ĆĈĊČ"),
    ("D", "ĎĐ"),
    ("E", "ÈÊËĒĔĖĘĚ"),
    ("G", "ĜĞĠĢ"),
    ("H", "ĤĦ"),
    ("I", "ÌÍÎÏĨĪĬĮİ"),
    ("J", "Ĵ"),
    ("K", "Ķ"),
    ("L", "ĹĻĽĿŁ"),
    ("N", "ŃŅŇ"),
    ("O", "ÒÓÔÕŌŎŐ"),
    ("R", "ŔŖŘ"),
    ("S", "ŚŜŞŠȘ"),
    ("T", "ŢŤŦȚ"),
    ("U", "ÙÚÛŨŪŬŮŰŲ"),
    ("W", "Ŵ"),
    ("Y", "ÝŶŸ"),
    ("Z", "ŹŻŽ"),
    ("a", "áâãāăą"),
    ("c", "ćĉċč"),
    ("Ç", "ç"),
    ("d", "ďđ"),
    ("e", "êëēĕėęě"),
    ("g", "ĝğġģ"),
    ("h", "ĥħ"),
    ("i", "íîïĩīĭįı"),
    ("j", "ĵ"),
    ("k", "ķ"),
    ("l", "ĺļľŀł"),
    ("n", "ńņň"),
    ("o", "óôõōŏő"),
    ("r", "ŕŗř"),
    ("s", "śŝşšș"),
    ("t", "ţťŧț"),
    ("u", "úûũūŭůűų"),
    ("w", "ŵ"),
    ("y", "ýÿŷ"),
    ("z", "źżž"),
    ("OE", "Œ"),
    ("oe", "œ"),
    ("'", "‘’‚‛′`´"),
    ("\"", "“”„‟″«»"),
    ("-", "‐‑‒–—―−•·"),
    ("...", "…"),
    (" ", "\u{a0}\u{2002}\u{2003}\u{2009}\u{202f}\t"),
    ("", "\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}\u{ad}"),
    ("x", "×"),
];

/// Replaces the characters outside the alphabet that have a look-alike in it; combining accents go.
/// Others stay, and make the page UCS-2.
pub fn transliterate(text: &str) -> Cow<'_, str> {
    if super::outside_alphabet(text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut replaced = String::with_capacity(text.len());
    for character in text.chars() {
        match replacement(character) {
            Some(other) => replaced.push_str(other),
            None => replaced.push(character),
        }
    }
    Cow::Owned(replaced)
}

fn replacement(character: char) -> Option<&'static str> {
    if gsm::septets(character).is_some() {
        return None;
    }
    if ('\u{300}'..='\u{36f}').contains(&character) {
        return Some("");
    }
    let mut all = REPLACEMENTS.iter();
    all.find(|(_, from)| from.contains(character))
        .map(|(to, _)| *to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_alikes_come_from_the_alphabet() {
        for (to, from) in REPLACEMENTS {
            assert_eq!(super::super::outside_alphabet(to), None, "{to}");
            let is_needless = |it: char| gsm::septets(it).is_some();
            assert_eq!(from.chars().find(|it| is_needless(*it)), None, "{to}");
        }
    }

    #[test]
    fn texts_lose_what_the_alphabet_has_not() {
        for (text, expected) in [
            ("Crédit épuisé", "Crédit épuisé"),
            ("Ça va être « bon »", "Ça va etre \" bon \""),
            ("It’s 5 – 10…", "It's 5 - 10..."),
            ("e\u{301}t\u{e9}", "eté"),
            ("مرحبا", "مرحبا"),
        ] {
            assert_eq!(transliterate(text), expected);
        }
    }
}
