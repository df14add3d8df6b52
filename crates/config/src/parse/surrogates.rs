//! JSON's escapes of characters beyond the Basic Multilingual Plane: `"\ud83d\ude00"` (RFC 8259,
//! section 7). YAML is a superset of JSON, but its parser refuses surrogates. Each pair becomes
//! YAML's escape of the character, `\U0001F600`, before the text is parsed. Where it was no escape,
//! in all but double quotes, it is put back.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// The length of `\ud83d\ude00`.
const PAIR: usize = 12;

/// A text whose surrogate pairs have become single escapes.
pub(super) struct Joined {
    /// The text for the parser.
    pub text: String,
    /// Where each of its characters stands in the text that was given, in bytes.
    pub starts: Vec<usize>,
    /// The replaced pairs: the character at which each begins, what stands there, and what stood.
    pairs: Vec<(usize, String, String)>,
}

/// The text with its pairs joined; `None` when it has none.
pub(super) fn join(text: &str) -> Option<Joined> {
    let mut found = pairs(text).peekable();
    found.peek()?;
    // An escape that stands nowhere in the text can be told from what was there before.
    let mut escapes: HashMap<char, Option<String>> = HashMap::new();
    let mut joined = Joined {
        text: String::with_capacity(text.len()),
        starts: Vec::with_capacity(text.len()),
        pairs: Vec::new(),
    };
    let mut from = 0;
    for (at, character) in found {
        let escape = escapes.entry(character).or_insert_with(|| {
            let code = u32::from(character);
            let forms = [format!("\\U{code:08X}"), format!("\\U{code:08x}")];
            forms.into_iter().find(|it| !text.contains(it.as_str()))
        });
        let Some(escape) = escape else {
            continue;
        };
        joined.copy(text, from..at);
        joined.pairs.push((
            joined.starts.len(),
            escape.clone(),
            text.get(at..at + PAIR).unwrap_or_default().to_owned(),
        ));
        // Characters of the escape stand for those of the pair, the last one to its end.
        joined.starts.extend((0..escape.len()).map(|it| at + it));
        joined.text.push_str(escape);
        from = at + PAIR;
    }
    joined.copy(text, from..text.len());
    Some(joined)
}

impl Joined {
    fn copy(&mut self, text: &str, range: Range<usize>) {
        let part = text.get(range.clone()).unwrap_or_default();
        let starts = part.char_indices().map(|(at, _)| range.start + at);
        self.starts.extend(starts);
        self.text.push_str(part);
    }

    /// A scalar without escapes that stands at these characters, as it was given.
    pub fn restore<'t>(&self, scalar: Cow<'t, str>, place: Range<usize>) -> Cow<'t, str> {
        let first = self.pairs.partition_point(|(at, ..)| *at < place.start);
        let pairs = self.pairs.get(first..).unwrap_or_default().iter();
        let mut pairs = pairs.take_while(|(at, ..)| *at < place.end).peekable();
        if pairs.peek().is_none() {
            return scalar;
        }
        let (mut restored, mut rest) = (String::with_capacity(scalar.len()), &*scalar);
        for (_, escape, pair) in pairs {
            if let Some((before, behind)) = rest.split_once(escape.as_str()) {
                restored.push_str(before);
                restored.push_str(pair);
                rest = behind;
            }
        }
        restored.push_str(rest);
        Cow::Owned(restored)
    }
}

/// The pairs of a text with their places and characters.
fn pairs(text: &str) -> impl Iterator<Item = (usize, char)> {
    let bytes = text.as_bytes();
    let mut from = 0;
    std::iter::from_fn(move || {
        while let Some(at) = text.get(from..)?.find('\\').map(|it| from + it) {
            if let Some(character) = pair(bytes.get(at..at + PAIR).unwrap_or_default()) {
                from = at + PAIR;
                return Some((at, character));
            }
            // A backslash that is escaped begins nothing.
            from = match bytes.get(at + 1) {
                Some(b'\\') => at + 2,
                _ => at + 1,
            };
        }
        None
    })
}

/// The character that a pair stands for.
fn pair(bytes: &[u8]) -> Option<char> {
    let unit = |bytes: &[u8]| {
        let digits = bytes.strip_prefix(b"\\u")?;
        let digits = std::str::from_utf8(digits).ok()?;
        digits
            .bytes()
            .all(|it| it.is_ascii_hexdigit())
            .then_some(())?;
        u16::from_str_radix(digits, 16).ok()
    };
    let (first, second) = bytes.split_at_checked(PAIR / 2)?;
    let units = [unit(first)?, unit(second)?];
    let mut characters = char::decode_utf16(units);
    let character = characters.next()?.ok()?;
    (u32::from(character) > 0xFFFF).then_some(character)
}
