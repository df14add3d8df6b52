//! Finds where an expression ends within a longer text, and how deep it nests, without recursion.

/// What an expression ends at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The end of the text.
    End,
    /// A `}` that closes nothing within the expression.
    Brace,
}

/// What a text holds.
pub(crate) struct Scanned {
    /// Where the expression ends, in bytes; none when a string or bracket stays open.
    pub end: Option<usize>,
    /// An upper bound of how deep its syntax tree is.
    pub depth: usize,
}

/// Reads an expression from the start of a text.
pub(crate) fn scan(code: &str, stop: Stop) -> Scanned {
    let bytes = code.as_bytes();
    // What is open, and how many tokens its level has.
    let mut open: Vec<(u8, usize)> = Vec::new();
    let mut tokens = 0;
    let (mut sum, mut depth) = (0_usize, 0_usize);
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let in_string = matches!(open.last(), Some((b'"', _)));
        if in_string {
            match byte {
                b'"' => {
                    open.pop();
                }
                b'\\' if bytes.get(at + 1) == Some(&b'(') => {
                    open.push((b')', tokens));
                    (sum, tokens, at) = (sum + tokens, 1, at + 1);
                }
                b'\\' => at += 1,
                _ => {}
            }
            at += 1;
            continue;
        }
        match byte {
            b'#' => {
                at += comment(&bytes[at..]);
                continue;
            }
            b'"' => {
                open.push((b'"', 0));
                tokens += 1;
            }
            b'(' | b'[' | b'{' => {
                let close = match byte {
                    b'(' => b')',
                    b'[' => b']',
                    _ => b'}',
                };
                open.push((close, tokens));
                (sum, tokens) = (sum + tokens, 1);
            }
            b')' | b']' | b'}' => match open.pop() {
                Some((close, before)) if close == byte => {
                    (sum, tokens) = (sum - before, before + 1);
                }
                None if byte == b'}' && stop == Stop::Brace => {
                    let end = Some(at);
                    return Scanned { end, depth };
                }
                _ => return Scanned { end: None, depth },
            },
            _ if is_word(byte) && at > 0 && is_word(bytes[at - 1]) => {}
            b' ' | b'\n' | b'\r' | b'\t' => {}
            _ => tokens += 1,
        }
        depth = depth.max(sum + tokens);
        at += 1;
    }
    let is_whole = open.is_empty() && stop == Stop::End;
    Scanned {
        end: is_whole.then_some(code.len()),
        depth,
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// How long a comment is; a line that ends with an odd number of backslashes goes on.
fn comment(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(length) = memchr::memchr(b'\n', rest) else {
            return bytes.len();
        };
        at += length + 1;
        let line = rest.get(..length).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.iter().rev().take_while(|it| **it == b'\\').count() % 2 == 0 {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_ends_at_its_own_brace() {
        let cases = [
            ("a } b", Some(2)),
            ("{a: 1} } b", Some(7)),
            (r#""}" } b"#, Some(4)),
            (r#""\(1 | {a: "}"})" } b"#, Some(18)),
            (r#""\"}" }"#, Some(6)),
            ("1 # }\n }", Some(7)),
            ("1 # \\\n }\n }", Some(10)),
            ("{a: 1 ", None),
            ("(}", None),
            ("\"}", None),
        ];
        for (code, expected) in cases {
            assert_eq!(scan(code, Stop::Brace).end, expected, "{code}");
        }
        assert_eq!(scan("a }", Stop::End).end, None);
        assert_eq!(scan(".a", Stop::End).end, Some(2));
    }

    #[test]
    fn depth_is_an_upper_bound() {
        assert!(scan("[[[1]]]", Stop::End).depth >= 4);
        assert!(scan("1+1+1+1", Stop::End).depth >= 4);
        assert!(scan(&"-".repeat(100), Stop::End).depth >= 100);
        assert!(scan(&"[1],".repeat(100), Stop::End).depth < 500);
    }
}
