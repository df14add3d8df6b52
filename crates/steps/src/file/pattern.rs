//! Patterns of file names.

use std::ffi::OsStr;

/// The most patterns that braces may stand for.
const CHOICES_MAX: usize = 100;

/// Endings of files that are not complete yet.
const UNFINISHED: [&str; 2] = [".tmp", ".part"];

/// Which file names are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// One of these fits.
    choices: Vec<Vec<Token>>,
}

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// Any letters, none too.
    Any,
    /// One letter.
    One,
    /// This letter.
    Letter(char),
    /// One letter within one of the ranges, or in none of them.
    Set(bool, Vec<(char, char)>),
}

impl Default for Pattern {
    /// All names.
    fn default() -> Self {
        Self {
            choices: vec![vec![Token::Any]],
        }
    }
}

impl Pattern {
    /// Reads a pattern. What is wrong with it, and what to write instead.
    pub fn read(text: &str) -> Result<Self, (String, &'static str)> {
        let shown = text.escape_debug();
        if text.is_empty() {
            return Err((
                "`pattern` is empty".to_owned(),
                "write `*` or leave it out for all files",
            ));
        }
        if text.contains('/') || text.contains(char::is_control) {
            let message = format!("`{shown}` is not a pattern of names");
            return Err((
                message,
                "write a pattern for the name alone, such as `*.json`",
            ));
        }
        if is_never_taken(text) {
            let message = format!("`{shown}` fits no file that is taken");
            let hint = "names that begin with `.` or end with `.tmp` or `.part` are left alone";
            return Err((message, hint));
        }
        let texts = expand(text).map_err(|why| (format!("`{shown}`: {why}"), BRACES))?;
        let choices = texts.iter().map(|text| tokens(text));
        let choices: Option<_> = choices.collect();
        let choices = choices.ok_or_else(|| {
            let message = format!("`{shown}`: a `[` is never closed");
            (
                message,
                "write `[a-c]`, `[!a]`, or `[[]` for the letter itself",
            )
        })?;
        Ok(Self { choices })
    }

    /// Whether a file of this name is taken.
    pub fn takes(&self, name: &OsStr) -> bool {
        let name = name.to_string_lossy();
        if is_never_taken(&name) {
            return false;
        }
        let letters: Vec<char> = name.chars().collect();
        self.choices.iter().any(|tokens| fits(tokens, &letters))
    }
}

const BRACES: &str = "write `*.{json,xml}`, or `[{]` for the letter itself";

/// Whether a name is hidden or that of a file that is being written.
fn is_never_taken(name: &str) -> bool {
    let is_unfinished = |ending: &&str| {
        let at = name.len().saturating_sub(ending.len());
        name.get(at..)
            .is_some_and(|it| it.eq_ignore_ascii_case(ending))
    };
    name.starts_with('.') || UNFINISHED.iter().any(is_unfinished)
}

/// The patterns that a pattern with braces stands for.
fn expand(text: &str) -> Result<Vec<String>, &'static str> {
    let mut done = Vec::new();
    let mut open = vec![text.to_owned()];
    while let Some(text) = open.pop() {
        let Some(start) = brace(&text) else {
            done.push(text);
            if done.len() > CHOICES_MAX {
                return Err("it stands for more than 100 patterns");
            }
            continue;
        };
        let (before, rest) = text.split_at(start);
        let Some((inner, behind)) = rest.get(1..).and_then(|rest| rest.split_once('}')) else {
            return Err("a `{` is never closed");
        };
        if inner.contains('{') {
            return Err("braces within braces");
        }
        let choices = inner.split(',');
        open.extend(
            choices
                .rev()
                .map(|choice| format!("{before}{choice}{behind}")),
        );
        if open.len() > CHOICES_MAX {
            return Err("it stands for more than 100 patterns");
        }
    }
    Ok(done)
}

/// Where the first brace is that is not within `[ ]`.
fn brace(text: &str) -> Option<usize> {
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '{' => return Some(at),
            '[' => {
                // The first letter of a set may be `]` itself.
                letters.next();
                letters.by_ref().find(|(_, letter)| *letter == ']');
            }
            _ => {}
        }
    }
    None
}

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '*' if tokens.last() == Some(&Token::Any) => {}
            '*' => tokens.push(Token::Any),
            '?' => tokens.push(Token::One),
            '[' => {
                let is_not = letters.next_if_eq(&'!').is_some();
                let mut ranges = Vec::new();
                loop {
                    let first = letters.next()?;
                    if first == ']' && !ranges.is_empty() {
                        break;
                    }
                    let mut ahead = letters.clone();
                    let is_range = ahead.next() == Some('-') && ahead.peek() != Some(&']');
                    let last = match is_range {
                        true => {
                            letters.next();
                            letters.next()?
                        }
                        false => first,
                    };
                    ranges.push((first, last));
                }
                tokens.push(Token::Set(is_not, ranges));
            }
            letter => tokens.push(Token::Letter(letter)),
        }
    }
    Some(tokens)
}

/// Whether a name fits, in time that grows with the product of both lengths at most.
fn fits(tokens: &[Token], name: &[char]) -> bool {
    let (mut token, mut letter) = (0, 0);
    // Where the last `*` stands, and how far it reaches so far.
    let mut star: Option<(usize, usize)> = None;
    while let Some(&this) = name.get(letter) {
        let fits = match tokens.get(token) {
            Some(Token::Any) => {
                star = Some((token, letter));
                token += 1;
                continue;
            }
            Some(Token::One) => true,
            Some(Token::Letter(wanted)) => *wanted == this,
            Some(Token::Set(is_not, ranges)) => {
                let is_in = ranges.iter().any(|&(from, to)| (from..=to).contains(&this));
                is_in != *is_not
            }
            None => false,
        };
        if fits {
            token += 1;
            letter += 1;
        } else if let Some((at, reached)) = star {
            star = Some((at, reached + 1));
            token = at + 1;
            letter = reached + 1;
        } else {
            return false;
        }
    }
    tokens
        .get(token..)
        .is_some_and(|rest| rest.iter().all(|token| *token == Token::Any))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_patterns() {
        for (pattern, name, expected) in [
            ("*", "a.json", true),
            ("*.json", "a.json", true),
            ("*.json", "a.json.bak", false),
            ("*.json", ".a.json", false),
            ("*", "a.TMP", false),
            ("*", "a.part", false),
            ("*", "part", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[!a-c]x", "dx", true),
            ("[]]x", "]x", true),
            ("[a-]x", "-x", true),
            ("[{]x", "{x", true),
            ("*.{json,xml}", "a.xml", true),
            ("*.{json,xml}", "a.csv", false),
            ("{a,b}{1,2}", "b1", true),
            ("*a*b*a", "xxabxbya", true),
            ("*a*b*a", "xxabxbyb", false),
            ("å*", "ål", true),
        ] {
            let read = Pattern::read(pattern).unwrap();
            assert_eq!(read.takes(OsStr::new(name)), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for (pattern, message) in [
            ("", "`pattern` is empty"),
            ("a/*", "`a/*` is not a pattern of names"),
            ("*.tmp", "`*.tmp` fits no file that is taken"),
            (".*", "`.*` fits no file that is taken"),
            ("[a", "`[a`: a `[` is never closed"),
            ("{a", "`{a`: a `{` is never closed"),
            ("{a,{b,c}}", "`{a,{b,c}}`: braces within braces"),
            (
                "{0,1}{0,1}{0,1}{0,1}{0,1}{0,1}{0,1}",
                "`{0,1}{0,1}{0,1}{0,1}{0,1}{0,1}{0,1}`: it stands for more than 100 patterns",
            ),
        ] {
            assert_eq!(Pattern::read(pattern).unwrap_err().0, message);
        }
    }
}
