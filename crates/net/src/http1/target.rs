//! Request targets (RFC 9112, section 3.2) and host names: only what everybody reads alike.

/// Whether this is a path or query that may be forwarded: visible ASCII without the characters
/// that implementations treat differently, and every `%` followed by two hexadecimal digits other
/// than `00`.
pub fn is_target(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&byte| !ORDINARY[usize::from(byte)]) {
        let escape = rest.get(at + 1..at + 3).unwrap_or_default();
        let is_escape = rest.get(at) == Some(&b'%')
            && escape.len() == 2
            && escape.iter().all(u8::is_ascii_hexdigit)
            && escape != b"00";
        if !is_escape {
            return false;
        }
        rest = rest.get(at + 3..).unwrap_or_default();
    }
    true
}

/// Whether this is a path: it begins with `/`, passes [`is_target`], and has no `.` or `..`
/// segment, plain or percent-encoded, which would mean another path to whoever resolves it.
pub fn is_path(bytes: &[u8]) -> bool {
    bytes.first() == Some(&b'/') && is_target(bytes) && !has_dot_segment(bytes)
}

/// Characters of a path or query that need no thought: those of RFC 3986 and the few more that
/// browsers and clients send unescaped. Not `"`, `#`, `<`, `>`, `\` and `%`.
pub(super) const ORDINARY: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        table[byte] = !matches!(byte as u8, b'"' | b'#' | b'<' | b'>' | b'\\' | b'%');
        byte += 1;
    }
    table
};

fn has_dot_segment(path: &[u8]) -> bool {
    let dots = memchr::memchr2_iter(b'.', b'%', path).next();
    dots.is_some()
        && path.split(|&byte| byte == b'/').any(|segment| {
            let mut rest = segment;
            let mut dots = 0;
            loop {
                if let Some(tail) = rest.strip_prefix(b".") {
                    rest = tail;
                } else if let Some((b"%2e" | b"%2E", tail)) = rest.split_at_checked(3) {
                    rest = tail;
                } else {
                    break;
                }
                dots += 1;
            }
            rest.is_empty() && (1..=2).contains(&dots)
        })
}

/// Whether this may stand in a `Host` field: a name or address of visible ASCII, and a port
/// (RFC 9110, section 7.2). It may not be empty.
pub fn is_host(bytes: &[u8]) -> bool {
    let other = bytes.iter().position(|&byte| !HOST[usize::from(byte)]);
    match bytes.split_at(other.unwrap_or(bytes.len())) {
        (b"", _) => is_literal_host(bytes),
        (_, rest) => is_port(rest),
    }
}

/// Whether this is nothing, or a colon and a port.
fn is_port(bytes: &[u8]) -> bool {
    match bytes.split_first() {
        None => true,
        Some((b':', digits)) => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        Some(_) => false,
    }
}

/// Whether this is an IPv6 address in brackets, and perhaps a port.
fn is_literal_host(bytes: &[u8]) -> bool {
    let Some(end) = memchr::memchr(b']', bytes) else {
        return false;
    };
    let (literal, port) = bytes.split_at(end + 1);
    let address = literal
        .strip_prefix(b"[")
        .and_then(|host| host.strip_suffix(b"]"));
    let is_address = |address: &[u8]| {
        let text = std::str::from_utf8(address);
        text.is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
    };
    address.is_some_and(is_address) && is_port(port)
}

/// Characters of a host name.
const HOST: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x80 {
        let character = byte as u8;
        let is_mark = matches!(character, b'-' | b'.' | b'_' | b'~');
        table[byte] = character.is_ascii_alphanumeric() || is_mark;
        byte += 1;
    }
    table
};

/// Whether two hosts of the scheme `http` are the same: case does not count, nor does port 80.
pub fn host_matches(one: &[u8], other: &[u8]) -> bool {
    let plain = |host: &[u8]| host.strip_suffix(b":80").map(<[u8]>::to_vec);
    let (left, right) = (plain(one), plain(other));
    left.as_deref()
        .unwrap_or(one)
        .eq_ignore_ascii_case(right.as_deref().unwrap_or(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_others_read_differently_are_refused() {
        let refused = [
            "",
            "a",
            "/..",
            "/a/../b",
            "/a/..",
            "/./a",
            "/%2e%2E/a",
            "/a/%2e",
            "/.%2e",
            "/a\\b",
            "/a#b",
            "/%",
            "/%0",
            "/%zz",
            "/%00",
            "/a b",
            "/\u{e4}",
            "/\u{7f}",
            "/a\"",
            "/<a>",
        ];
        for path in refused {
            assert!(!is_path(path.as_bytes()), "{path:?}");
        }
        let taken = [
            "/",
            "//",
            "/a/...",
            "/.well-known/x",
            "/a.b/c..d",
            "/%2e%2e%2e",
            "/a%2Fb",
            "/~u/@x",
            "/a;b=c,d/[e]|{f}",
            "/%E4",
        ];
        for path in taken {
            assert!(is_path(path.as_bytes()), "{path:?}");
        }
    }

    #[test]
    fn hosts_are_names_or_addresses_with_a_port() {
        for host in [
            "a",
            "a.b:80",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:8080",
            "a_b.c",
            "a:",
        ] {
            assert!(is_host(host.as_bytes()), "{host:?}");
        }
        for host in [
            "",
            ":80",
            "a b",
            "a,b",
            "a/b",
            "u@a",
            "a:b",
            "a:1234567",
            "[::1",
            "::1",
            "[x]",
            "a\\",
        ] {
            assert!(!is_host(host.as_bytes()), "{host:?}");
        }
    }

    #[test]
    fn the_default_port_and_case_do_not_matter() {
        assert!(host_matches(b"Example.com", b"example.COM:80"));
        assert!(!host_matches(b"example.com:8080", b"example.com"));
        assert!(!host_matches(b"a", b"b"));
    }
}
