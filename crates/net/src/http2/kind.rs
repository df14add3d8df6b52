//! What a field line is to the head of a message, and which bytes it may have
//! (RFC 9113, sections 8.2 and 8.3).

use message::Field;

/// What the name of a field line means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `:method`
    Method,
    /// `:scheme`
    Scheme,
    /// `:authority`
    Authority,
    /// `:path`
    Path,
    /// `:status`
    Status,
    /// `cookie`, whose lines are joined (RFC 9113, section 8.2.3)
    Cookie,
    /// Any other field.
    Plain(Field),
    /// A name that makes the message malformed: not a token in lower case, an unknown pseudo
    /// field, or a field of one connection (RFC 9113, section 8.2.2).
    Refused,
}

/// A byte of a token that is not an upper-case letter (RFC 9110, section 5.6.2).
const NAME: u8 = 1;
/// A byte of a token.
const TOKEN: u8 = 2;
/// A byte of a path and query: anything visible.
const PATH: u8 = 4;
/// A byte of a host and port.
const HOST: u8 = 8;

static BYTES: [u8; 256] = bytes();

const fn bytes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let byte = at as u8;
        let is_mark = matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        );
        let is_no_host = matches!(
            byte,
            b'/' | b'?'
                | b'#'
                | b'@'
                | b'\\'
                | b'"'
                | b'<'
                | b'>'
                | b'^'
                | b'`'
                | b'{'
                | b'|'
                | b'}'
        );
        let is_visible = byte > b' ' && byte != 0x7f;
        if is_mark || byte.is_ascii_alphanumeric() {
            table[at] |= TOKEN;
            if !byte.is_ascii_uppercase() {
                table[at] |= NAME;
            }
        }
        if is_visible {
            table[at] |= PATH;
        }
        if is_visible && byte < 0x80 && !is_no_host {
            table[at] |= HOST;
        }
        at += 1;
    }
    table
}

fn all(text: &[u8], class: u8) -> bool {
    text.iter()
        .all(|&byte| BYTES[usize::from(byte)] & class != 0)
}

impl Kind {
    /// What this name means.
    pub(crate) fn of(name: &[u8]) -> Self {
        if name.first() == Some(&b':') {
            return match name {
                b":method" => Self::Method,
                b":scheme" => Self::Scheme,
                b":authority" => Self::Authority,
                b":path" => Self::Path,
                b":status" => Self::Status,
                _ => Self::Refused,
            };
        }
        if name.is_empty() || !all(name, NAME) {
            return Self::Refused;
        }
        match Field::of(name) {
            Field::Connection
            | Field::KeepAlive
            | Field::ProxyConnection
            | Field::TransferEncoding
            | Field::Upgrade => Self::Refused,
            Field::Other if name == b"cookie" => Self::Cookie,
            field => Self::Plain(field),
        }
    }

    /// Whether a line of this kind may have this value.
    pub(crate) fn allows(self, value: &[u8]) -> bool {
        match self {
            Self::Method => !value.is_empty() && all(value, TOKEN),
            Self::Scheme => is_scheme(value),
            Self::Authority => all(value, HOST),
            Self::Path => is_path(value),
            Self::Status => status(value).is_some(),
            Self::Plain(Field::Te) => value.eq_ignore_ascii_case(b"trailers"),
            Self::Plain(Field::Host) => all(value, HOST),
            Self::Plain(_) | Self::Cookie => is_value(value),
            Self::Refused => false,
        }
    }
}

fn is_scheme(value: &[u8]) -> bool {
    let is_rest = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    value.first().is_some_and(u8::is_ascii_alphabetic) && value.iter().all(is_rest)
}

fn is_path(value: &[u8]) -> bool {
    (value.first() == Some(&b'/') || value == b"*") && all(value, PATH)
}

/// The status that `:status` tells (RFC 9113, section 8.3.2). There is no 101 (section 8.6).
pub(crate) fn status(value: &[u8]) -> Option<u16> {
    let &[first @ b'1'..=b'9', second, third] = value else {
        return None;
    };
    if !second.is_ascii_digit() || !third.is_ascii_digit() {
        return None;
    }
    let digit = |byte: u8| u16::from(byte - b'0');
    let status = digit(first) * 100 + digit(second) * 10 + digit(third);
    (status != 101).then_some(status)
}

/// Whether this may be the value of a field: no control character but the tab, no white space
/// around it (RFC 9113, section 8.2.1; RFC 9110, section 5.5).
fn is_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    // Looking at every byte, whatever was found before, lets the compiler look at many at once.
    let is_bad = value.iter().fold(false, |is_bad, &byte| {
        is_bad | ((byte < b' ') & (byte != b'\t')) | (byte == 0x7f)
    });
    !is_bad && !is_blank(value.first()) && !is_blank(value.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_tokens() {
        for name in [
            "",
            "A",
            "a b",
            "a:b",
            "a\0",
            "ä",
            ":",
            ":foo",
            "connection",
            "upgrade",
        ] {
            assert_eq!(Kind::of(name.as_bytes()), Kind::Refused, "{name:?}");
        }
        assert_eq!(Kind::of(b"x-a_b.1"), Kind::Plain(Field::Other));
        assert_eq!(Kind::of(b"cookie"), Kind::Cookie);
        assert_eq!(Kind::of(b":path"), Kind::Path);
    }

    #[test]
    fn values_keep_to_their_kind() {
        let plain = Kind::Plain(Field::Other);
        for value in ["a\r\nb", "a\0", " a", "a\t", "\x7f"] {
            assert!(!plain.allows(value.as_bytes()), "{value:?}");
        }
        for value in ["", "a b\tc", "ä"] {
            assert!(plain.allows(value.as_bytes()), "{value:?}");
        }
        for value in ["", "a", "/a b", "/a\n", "**"] {
            assert!(!Kind::Path.allows(value.as_bytes()), "{value:?}");
        }
        for value in ["/", "*", "/a?b=c", "/%20"] {
            assert!(Kind::Path.allows(value.as_bytes()), "{value:?}");
        }
        for value in ["a@b", "a/b", "a b", "a\r"] {
            assert!(!Kind::Authority.allows(value.as_bytes()), "{value:?}");
        }
        assert!(Kind::Authority.allows(b"[::1]:80"));
        assert!(!Kind::Plain(Field::Te).allows(b"gzip"));
        assert!(!Kind::Method.allows(b"GE T") && Kind::Method.allows(b"PURGE"));
        assert!(!Kind::Scheme.allows(b"1a") && Kind::Scheme.allows(b"https"));
    }

    #[test]
    fn a_status_is_three_digits() {
        for value in ["", "20", "2000", "099", "2x0", "101", "+20"] {
            assert_eq!(status(value.as_bytes()), None, "{value}");
        }
        assert_eq!(status(b"200"), Some(200));
        assert_eq!(status(b"599"), Some(599));
    }
}
