//! Paths that a back end may read as another path than the router does. Beside a route that asks
//! for credentials they would be a way around it: the router sends `/x/..;/admin` to an open route,
//! and a servlet container serves `/admin`.

/// What of a path implementations read differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ambiguity {
    /// `//`: many merge slashes.
    EmptySegment,
    /// `.` or `..` as a segment, of which one part may be escaped (RFC 3986, section 5.2.4).
    DotSegment,
    /// A backslash, which Windows and browsers take for a slash.
    Backslash,
    /// `;`: servlet containers cut what follows off the segment (RFC 3986, section 3.3).
    Parameter,
    /// An escaped `/`, `\`, `.`, `;`, `%`, `?` or `#`: whoever decodes before routing sees the
    /// character itself.
    EscapedDelimiter,
    /// A control character, escaped or not: NUL ends a path in C, a line break ends a log line.
    Control,
    /// A `%` that is not followed by two hexadecimal digits.
    MalformedEscape,
    /// Bytes that are not ASCII and not escaped.
    NonAscii,
    /// Escapes that decode to no UTF-8, overlong forms of ASCII among them.
    InvalidUtf8,
    /// A character that normalization (Unicode NFKC) or the code pages of Windows turn into `/`,
    /// `\`, `.`, `;` or `%`.
    LookAlike,
}

/// What is ambiguous in a path, if anything; the first of it. The path may have been normalized or
/// not: escapes of letters, digits, `-`, `_` and `~` are read by all in the same way. One trailing
/// slash and the case of letters are the back end's business.
pub(crate) fn ambiguity(path: &[u8]) -> Option<Ambiguity> {
    if !path.contains(&b'%') {
        return literal(path);
    }
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = behind.first_chunk::<2>();
        let Some(byte) = digits.and_then(|digits| hexadecimal(*digits)) else {
            return Some(Ambiguity::MalformedEscape);
        };
        if b"/\\.;%?#".contains(&byte) {
            return Some(match byte {
                b'.' if is_dot_segment(path) => Ambiguity::DotSegment,
                _ => Ambiguity::EscapedDelimiter,
            });
        }
        decoded.push(byte);
        rest = behind.get(2..).unwrap_or_default();
    }
    // What is not escaped comes first: after decoding nobody could tell.
    literal(path).or_else(|| match std::str::from_utf8(&decoded) {
        Err(_) => Some(Ambiguity::InvalidUtf8),
        Ok(text) if text.contains(LOOK_ALIKES) => Some(Ambiguity::LookAlike),
        Ok(text) if text.contains(char::is_control) => Some(Ambiguity::Control),
        Ok(_) => None,
    })
}

/// Characters that become `/`, `\`, `.`, `;` or `%` by NFKC or in a code page of Windows.
const LOOK_ALIKES: [char; 19] = [
    '\u{2024}', // one dot leader
    '\u{2025}', // two dot leader
    '\u{2026}', // horizontal ellipsis
    '\u{2044}', // fraction slash
    '\u{2215}', // division slash
    '\u{2216}', // set minus
    '\u{29f8}', // big solidus
    '\u{29f9}', // big reverse solidus
    '\u{29f5}', // reverse solidus operator
    '\u{2100}', // account of: a/c
    '\u{2105}', // care of: c/o
    '\u{037e}', // Greek question mark: ;
    '\u{fe52}', // small full stop
    '\u{fe54}', // small semicolon
    '\u{fe68}', // small reverse solidus
    '\u{ff05}', // full-width percent sign
    '\u{ff0e}', // full-width full stop
    '\u{ff0f}', // full-width solidus
    '\u{ff3c}', // full-width reverse solidus
];

/// What is ambiguous in the characters that stand there unescaped.
fn literal(path: &[u8]) -> Option<Ambiguity> {
    let found = path.iter().find_map(|byte| match byte {
        b'\\' => Some(Ambiguity::Backslash),
        b';' => Some(Ambiguity::Parameter),
        0..0x20 | 0x7f => Some(Ambiguity::Control),
        0x80.. => Some(Ambiguity::NonAscii),
        _ => None,
    });
    let is_empty = path.windows(2).any(|pair| pair == b"//");
    let empty = is_empty.then_some(Ambiguity::EmptySegment);
    let dots = is_dot_segment(path).then_some(Ambiguity::DotSegment);
    found.or(empty).or(dots)
}

/// Whether a segment is `.` or `..`, escaped or not.
fn is_dot_segment(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|segment| {
        let dots = undotted(segment).and_then(|rest| match rest {
            [] => Some(rest),
            rest => undotted(rest),
        });
        dots.is_some_and(<[u8]>::is_empty)
    })
}

/// What follows a dot at the beginning.
fn undotted(text: &[u8]) -> Option<&[u8]> {
    match text {
        [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => Some(rest),
        _ => None,
    }
}

fn hexadecimal([high, low]: [u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::Ambiguity::*;
    use super::*;

    #[test]
    fn spellings_of_a_locked_path_are_told_from_other_paths() {
        let mut count = 0;
        for line in include_str!("../../../testkit/data/path_spellings.txt").lines() {
            let Some((expected, path)) = line.split_once(' ').filter(|it| it.0 != "#") else {
                continue;
            };
            let path = path
                .replace("\\0", "\0")
                .replace("\\t", "\t")
                .replace("\\\\", "\\");
            let found = ambiguity(path.as_bytes()).map(|it| format!("{it:?}"));
            assert_eq!(found.as_deref(), Some(expected), "{path}");
            count += 1;
        }
        assert!(count >= 100, "{count}");
    }

    #[test]
    fn paths_that_everybody_reads_alike_are_not_ambiguous() {
        for path in [
            "/",
            "*",
            "/admin",
            "/admin/",
            "/admin/users/7",
            "/%61dmin",
            "/a%2Db_%5f~%7E",
            "/a%20b",
            "/a+b",
            "/caf%C3%A9",
            "/%e6%97%a5%e6%9c%ac",
            "/.well-known/acme-challenge/x",
            "/a.b/c..d/...",
            "/..x",
            "/x..",
            "/a:b@c!$&'()*,=",
            "/a%3A%40%21%24%26%2C%3D%5B%5D%22%3C",
        ] {
            assert_eq!(ambiguity(path.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn escaped_dots_are_seen_wherever_they_stand() {
        for segment in [".", "..", "%2e", "%2E", ".%2e", "%2e.", "%2E%2e"] {
            for path in [
                format!("/{segment}"),
                format!("/a/{segment}/b"),
                format!("/{segment}/"),
            ] {
                assert_eq!(ambiguity(path.as_bytes()), Some(DotSegment), "{path}");
            }
        }
        for segment in ["...", "..a", "a.", ".a", "%61"] {
            assert_eq!(
                ambiguity(format!("/{segment}/b").as_bytes()),
                None,
                "{segment}"
            );
        }
    }
}
