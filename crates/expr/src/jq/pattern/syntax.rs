//! From the syntax of Oniguruma, as jq uses it, to the one that the engine reads: what both have
//! with different meanings is written so that it means what jq says, or refused.

use std::iter::Peekable;
use std::str::CharIndices;

/// The pattern as the engine reads it.
///
/// # Errors
/// When it has what means another thing there, and cannot be said.
pub(super) fn translated(pattern: &str) -> Result<String, String> {
    let mut reader = Reader {
        pattern,
        rest: pattern.char_indices().peekable(),
        out: String::with_capacity(pattern.len() + 8),
    };
    reader.read()?;
    Ok(reader.out)
}

struct Reader<'p> {
    pattern: &'p str,
    rest: Peekable<CharIndices<'p>>,
    out: String,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<(), String> {
        let mut before = '(';
        while let Some((at, character)) = self.rest.next() {
            match character {
                '\\' => self.escape(),
                '[' => self.class()?,
                '+' if matches!(before, '*' | '+' | '?') => {
                    return Err("invalid regex: there are no possessive quantifiers".to_owned());
                }
                '{' if !self.is_interval(at) => self.out.push_str("\\{"),
                other => self.out.push(other),
            }
            // `(?` begins a group, and does not repeat.
            before = match (before, character) {
                ('(', '?') | (_, '\\') => ' ',
                _ => character,
            };
        }
        Ok(())
    }

    fn escape(&mut self) {
        match self.rest.next() {
            // Ends of words for the engine, and nothing special in jq.
            Some((_, character @ ('<' | '>'))) => self.out.push(character),
            Some((_, character)) => {
                self.out.extend(['\\', character]);
                // What stands in braces names a class or a character.
                if matches!(character, 'p' | 'P' | 'x' | 'u' | 'U')
                    && self.rest.next_if(|it| it.1 == '{').is_some()
                {
                    self.out.push('{');
                }
            }
            None => self.out.push('\\'),
        }
    }

    /// Whether `{` begins how often something is repeated; else it stands for itself.
    fn is_interval(&self, at: usize) -> bool {
        let behind = self.pattern.get(at + 1..).unwrap_or_default();
        let Some((inside, _)) = behind.split_once('}') else {
            return false;
        };
        let (least, most) = inside.split_once(',').unwrap_or((inside, "0"));
        let is_digits = |text: &str| text.bytes().all(|it| it.is_ascii_digit());
        !least.is_empty() && is_digits(least) && is_digits(most)
    }

    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.rest.next_if(|it| it.1 == '^').is_some() {
            self.out.push('^');
        }
        if self.rest.next_if(|it| it.1 == ']').is_some() {
            self.out.push_str("\\]");
        }
        let mut before = ' ';
        while let Some((at, character)) = self.rest.next() {
            match character {
                ']' => {
                    self.out.push(']');
                    return Ok(());
                }
                '\\' => self.escape(),
                '[' => self.bracket(at)?,
                // Two of these are an operation on classes for the engine.
                '&' | '-' | '~' if before == character => self.out.extend(['\\', character]),
                other => self.out.push(other),
            }
            before = if character == '\\' { ' ' } else { character };
        }
        Ok(())
    }

    /// A bracket within a class: the name of a class of POSIX, or itself.
    fn bracket(&mut self, at: usize) -> Result<(), String> {
        let behind = self.pattern.get(at + 1..).unwrap_or_default();
        let name = behind.strip_prefix(':').and_then(|it| it.split_once(":]"));
        let Some((name, _)) = name else {
            self.out.push_str("\\[");
            return Ok(());
        };
        let (negation, bare) = match name.strip_prefix('^') {
            Some(bare) => ("^", bare),
            None => ("", name),
        };
        let members =
            posix(bare).ok_or_else(|| format!("invalid regex: there is no class [:{bare}:]"))?;
        self.out.extend(["[", negation, members, "]"]);
        for _ in 0..name.chars().count() + 3 {
            self.rest.next();
        }
        Ok(())
    }
}

/// What Oniguruma takes for a class of POSIX, in Unicode.
fn posix(name: &str) -> Option<&'static str> {
    Some(match name {
        "alnum" => r"\p{Alphabetic}\p{Nd}",
        "alpha" => r"\p{Alphabetic}",
        "ascii" => r"\x00-\x7f",
        "blank" => r"\p{Zs}\t",
        "cntrl" => r"\p{Cc}",
        "digit" => r"\p{Nd}",
        "graph" => r"\P{Z}&&\P{C}&&\S",
        "lower" => r"\p{Lowercase}",
        "print" => r"\p{Zs}\P{Z}&&\P{C}",
        "punct" => r"\p{P}$+<=>^`|~",
        "space" => r"\s",
        "upper" => r"\p{Uppercase}",
        "word" => r"\w",
        "xdigit" => r"0-9a-fA-F",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::translated;

    #[test]
    fn what_means_another_thing_is_written_so_that_it_means_the_same() {
        for (pattern, expected) in [
            (r"a\<b", "a<b"),
            (r"\\<", r"\\<"),
            ("[]a]", r"[\]a]"),
            ("[^]a]", r"[^\]a]"),
            ("[a[b]]", r"[a\[b]]"),
            ("[a&&b]", r"[a&\&b]"),
            ("[[:alpha:]_]", r"[[\p{Alphabetic}]_]"),
            ("[[:^digit:]]", r"[[^\p{Nd}]]"),
            ("a{b}{,2}{1,2}{3}{4,}", r"a\{b}\{,2}{1,2}{3}{4,}"),
            (r"(?<x>a)+?b*\++", r"(?<x>a)+?b*\++"),
            (r"\[[:alpha:]", r"\[[:alpha:]"),
            (r"\p{L}\x{e9}\d{b}", r"\p{L}\x{e9}\d\{b}"),
        ] {
            assert_eq!(translated(pattern).as_deref(), Ok(expected), "{pattern}");
        }
        for pattern in ["a++", "a*+b", "a?+", "[[:nonsense:]]"] {
            assert!(translated(pattern).is_err(), "{pattern}");
        }
    }
}
