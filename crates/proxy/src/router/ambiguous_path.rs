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
        let spellings: &[(&str, Ambiguity)] = &[
            // Slashes.
            ("//admin", EmptySegment),
            ("///admin", EmptySegment),
            ("/x//admin", EmptySegment),
            ("/admin//", EmptySegment),
            ("/admin//users", EmptySegment),
            ("/%2Fadmin", EscapedDelimiter),
            ("/%2fadmin", EscapedDelimiter),
            ("/x%2Fadmin", EscapedDelimiter),
            ("/admin%2F", EscapedDelimiter),
            ("/admin%2Fusers", EscapedDelimiter),
            ("/%252Fadmin", EscapedDelimiter),
            ("/%25252Fadmin", EscapedDelimiter),
            ("/%2F/admin", EscapedDelimiter),
            ("%2Fadmin", EscapedDelimiter),
            // Dot segments.
            ("/.", DotSegment),
            ("/..", DotSegment),
            ("/./admin", DotSegment),
            ("/admin/.", DotSegment),
            ("/admin/./", DotSegment),
            ("/admin/..", DotSegment),
            ("/x/../admin", DotSegment),
            ("/x/y/../../admin", DotSegment),
            ("/../admin", DotSegment),
            ("/%2e/admin", DotSegment),
            ("/%2E/admin", DotSegment),
            ("/x/%2e%2e/admin", DotSegment),
            ("/x/%2E%2e/admin", DotSegment),
            ("/x/.%2e/admin", DotSegment),
            ("/x/%2e./admin", DotSegment),
            ("/x/%2e%2e", DotSegment),
            ("/a/%61/%2e%2e/admin", DotSegment),
            ("/x/%2e%2e%2fadmin", EscapedDelimiter),
            ("/x/..%2fadmin", EscapedDelimiter),
            ("/x/..%5cadmin", EscapedDelimiter),
            ("/x/%252e%252e/admin", EscapedDelimiter),
            ("/x/%252e%252e%252fadmin", EscapedDelimiter),
            ("/admin%2e", EscapedDelimiter),
            ("/admin%2ejson", EscapedDelimiter),
            // Backslashes.
            ("/\\admin", Backslash),
            ("\\admin", Backslash),
            ("/x\\..\\admin", Backslash),
            ("/x/..\\admin", Backslash),
            ("/admin\\", Backslash),
            ("/%5Cadmin", EscapedDelimiter),
            ("/%5cadmin", EscapedDelimiter),
            ("/x%5C..%5Cadmin", EscapedDelimiter),
            ("/%255cadmin", EscapedDelimiter),
            // Path parameters.
            ("/admin;", Parameter),
            ("/admin;x", Parameter),
            ("/admin;x=y", Parameter),
            ("/;/admin", Parameter),
            ("/x;/admin", Parameter),
            ("/x/..;/admin", Parameter),
            ("/x/..;a=b/admin", Parameter),
            ("/.;/admin", Parameter),
            ("/;a=b;c=d/admin", Parameter),
            ("/admin%3B", EscapedDelimiter),
            ("/admin%3bx=y", EscapedDelimiter),
            ("/x/..%3B/admin", EscapedDelimiter),
            // Control characters.
            ("/admin%00", Control),
            ("/admin%00.html", Control),
            ("/%00/admin", Control),
            ("/admin%0a", Control),
            ("/admin%0A", Control),
            ("/admin%0d", Control),
            ("/admin%0d%0aX:%20y", Control),
            ("/admin%09", Control),
            ("/admin%1f", Control),
            ("/admin%7f", Control),
            ("/admin%c2%85", Control),
            ("/admin\0", Control),
            ("/admin\t", Control),
            // Escapes that are none.
            ("/admin%", MalformedEscape),
            ("/admin%2", MalformedEscape),
            ("/%admin", InvalidUtf8),
            ("/admin/%user", MalformedEscape),
            ("/%zz/admin", MalformedEscape),
            ("/admin%2g", MalformedEscape),
            ("/admin%g2", MalformedEscape),
            ("/%u002fadmin", MalformedEscape),
            ("/%u2215admin", MalformedEscape),
            ("/%+2fadmin", MalformedEscape),
            ("/%0x2fadmin", MalformedEscape),
            ("/admin%%", MalformedEscape),
            ("/%%32%66admin", MalformedEscape),
            ("/%2%66admin", MalformedEscape),
            // Overlong and other invalid UTF-8.
            ("/%c0%afadmin", InvalidUtf8),
            ("/%C0%AFadmin", InvalidUtf8),
            ("/%c1%9cadmin", InvalidUtf8),
            ("/x/%c0%ae%c0%ae/admin", InvalidUtf8),
            ("/%e0%80%afadmin", InvalidUtf8),
            ("/%f0%80%80%afadmin", InvalidUtf8),
            ("/%c1%81dmin", InvalidUtf8),
            ("/admin%ff", InvalidUtf8),
            ("/admin%80", InvalidUtf8),
            ("/admin%ed%a0%80", InvalidUtf8),
            ("/%e9", InvalidUtf8),
            // Characters that turn into others.
            ("/%ef%bc%8fadmin", LookAlike),
            ("/x/%ef%bc%8e%ef%bc%8e/admin", LookAlike),
            ("/%ef%bc%bcadmin", LookAlike),
            ("/%e2%88%95admin", LookAlike),
            ("/%e2%81%84admin", LookAlike),
            ("/x/%e2%80%a5/admin", LookAlike),
            ("/%ef%bc%852fadmin", LookAlike),
            ("/admin%cd%be", LookAlike),
            // Delimiters of the parts of a target.
            ("/admin%3F", EscapedDelimiter),
            ("/admin%3fx=y", EscapedDelimiter),
            ("/admin%23", EscapedDelimiter),
            ("/x%23/../admin", EscapedDelimiter),
            // Not ASCII.
            ("/adm\u{131}n", NonAscii),
            ("/\u{ff0f}admin", NonAscii),
            ("/admin\u{e9}", NonAscii),
        ];
        assert!(spellings.len() >= 100, "{}", spellings.len());
        for (path, expected) in spellings {
            assert_eq!(ambiguity(path.as_bytes()), Some(*expected), "{path}");
        }
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
