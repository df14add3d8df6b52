//! Rust sources without what is no code: just enough of a lexer that braces, calls and `mod` lines
//! in strings and comments mislead nobody (The Rust Reference, chapters "Comments" and "Tokens").

/// The lines of a file: as written, and without comments and the contents of literals.
pub(super) struct Code<'a> {
    pub raw: Vec<&'a str>,
    pub lines: Vec<String>,
    /// Whether the line belongs to an item under `#[cfg(test)]`.
    pub in_test: Vec<bool>,
}

impl<'a> Code<'a> {
    pub fn new(text: &'a str) -> Self {
        let raw: Vec<&str> = text.lines().collect();
        let stripped = strip(text);
        let mut lines: Vec<String> = stripped.lines().map(str::to_owned).collect();
        lines.resize(raw.len(), String::new());
        let in_test = test_lines(&lines);
        Self {
            raw,
            lines,
            in_test,
        }
    }

    /// The number of the line on which the item that begins on line `start` ends: with the `;`
    /// before any body, or with the brace that closes its first one.
    pub fn item_end(&self, start: usize) -> usize {
        item_end(&self.lines, start)
    }
}

fn item_end(lines: &[String], start: usize) -> usize {
    let (mut braces, mut others) = (0_usize, 0_usize);
    for (number, line) in lines.iter().enumerate().skip(start) {
        for letter in line.chars() {
            match letter {
                '(' | '[' => others += 1,
                ')' | ']' => others = others.saturating_sub(1),
                '{' => braces += 1,
                '}' if braces <= 1 => return number,
                '}' => braces -= 1,
                ';' if braces == 0 && others == 0 => return number,
                _ => {}
            }
        }
    }
    lines.len().saturating_sub(1)
}

fn test_lines(lines: &[String]) -> Vec<bool> {
    let mut in_test = vec![false; lines.len()];
    let mut number = 0;
    while let Some(line) = lines.get(number) {
        let whole_file = line.starts_with("#![cfg(test)]");
        if !whole_file && !line.trim_start().starts_with("#[cfg(test)]") {
            number += 1;
            continue;
        }
        let is_attribute = |line: &&String| line.trim_start().starts_with('#');
        let attributes = lines.iter().skip(number).take_while(is_attribute).count();
        let end = match whole_file {
            true => lines.len().saturating_sub(1),
            false => item_end(lines, number + attributes),
        };
        in_test
            .iter_mut()
            .take(end + 1)
            .skip(number)
            .for_each(|it| *it = true);
        number = end + 1;
    }
    in_test
}

/// Takes comments and the contents of literals out; line ends stay.
fn strip(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let before = code.chars().next_back();
        let in_word = before.is_some_and(|it| it.is_alphanumeric() || it == '_');
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => string(rest),
            'r' if !in_word => raw_string(rest).unwrap_or(1),
            // `b` and `c` before a raw string are letters of their own.
            'b' | 'c' if !in_word && rest[1..].starts_with('r') => {
                raw_string(&rest[1..]).map_or(1, |length| length + 1)
            }
            '\'' => character(rest).unwrap_or(1),
            _ => first.len_utf8(),
        };
        let (taken, behind) = rest.split_at(length);
        if taken.len() == first.len_utf8() && first != '"' {
            code.push(first);
        } else {
            code.extend(taken.chars().filter(|letter| *letter == '\n'));
        }
        rest = behind;
    }
    code
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let step = if rest.starts_with("/*") {
            depth += 1;
            2
        } else if rest.starts_with("*/") {
            depth -= 1;
            2
        } else {
            rest.chars().next().map_or(1, char::len_utf8)
        };
        at += step;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

fn string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of `r"..."` or `r#"..."#`, if it is one.
fn raw_string(text: &str) -> Option<usize> {
    let behind = text.strip_prefix('r')?;
    let hashes = behind.len() - behind.trim_start_matches('#').len();
    behind.get(hashes..)?.strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let start = 1 + hashes + 1;
    let found = text.get(start..)?.find(&end);
    Some(found.map_or(text.len(), |at| start + at + end.len()))
}

/// The length of `'x'` or `'\x'`; a lifetime is none.
fn character(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    if inside.starts_with('\\') {
        let behind = inside.get(2..)?;
        return behind.find('\'').map(|at| 1 + 2 + at + 1);
    }
    let letter = inside.chars().next()?;
    let behind = inside.get(letter.len_utf8()..)?;
    behind
        .starts_with('\'')
        .then_some(1 + letter.len_utf8() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_code_is_taken_out() {
        let cases = [
            ("a // b {\nc", "a \nc"),
            ("a /* { /* } */ \n */ b", "a \n b"),
            (r#"a("{ \" }", b)"#, "a(, b)"),
            ("a(r#\"{ \" \n\"#, br\"}\", b\"{\")", "a(\n, , b)"),
            (r"a('{', '\'', '\u{7b}', b'\n')", "a(, , , b)"),
            ("fn f<'a>(x: &'a str) {", "fn f<'a>(x: &'a str) {"),
            ("for r in bar { r#type }", "for r in bar { r#type }"),
            ("'ä' 'ä", " 'ä"),
        ];
        for (text, code) in cases {
            assert_eq!(strip(text), code, "{text}");
        }
    }

    #[test]
    fn items_under_cfg_test_are_told_apart() {
        let text = "a\n#[cfg(test)]\nmod tests;\nb\n#[cfg(test)]\n#[allow(x)]\nmod t {\n  \
                    \"\n}\n\"\n  fn f() {}\n}\nc\n#[cfg(test)]\nuse a::{\n  b,\n};\nd";
        let code = Code::new(text);
        let product = code.raw.iter().zip(&code.in_test);
        let product: Vec<&str> = product
            .filter(|(_, test)| !**test)
            .map(|it| *it.0)
            .collect();
        assert_eq!(product, ["a", "b", "c", "d"]);
        assert!(Code::new("//! A.\n#![cfg(test)]\nfn f() {}").in_test[2]);
    }
}
