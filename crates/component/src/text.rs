//! The texts that triggers and targets are made of: methods, hosts, ports, paths and queries
//! (RFC 9110, RFC 3986).
//!
//! Triggers and targets share these rules, so that both refuse the same things with the same
//! words. Nothing here looks a name up.

use std::net::{Ipv4Addr, Ipv6Addr};

use message::{Headers, Method};

/// Why a text is no method, host, port, path or query, in words for the author of a flow file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// What is wrong: lower case, no full stop.
    pub message: String,
    /// What to write instead, where that is plain.
    pub hint: Option<String>,
}

impl TextError {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The methods of RFC 9110 and RFC 5789 that can be taken.
const STANDARD_METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE",
];

/// Reads a request method (RFC 9110, section 9.1). Methods are case-sensitive and all that are in
/// use are in capitals, so other letters are taken for a mistake, and so is an unknown method that
/// is nearly a known one.
///
/// # Errors
/// When the text is no token, holds lower-case letters, looks mistyped or is `CONNECT`.
pub fn parse_method(text: &str) -> Result<Method, TextError> {
    if text.is_empty() {
        return Err(TextError::new("a method is missing"));
    }
    if !Headers::is_name(text) {
        return Err(
            TextError::new(format!("`{}` is not a method", text.escape_debug()))
                .with_hint("a method is a word such as GET or POST"),
        );
    }
    let capitals = text.to_ascii_uppercase();
    if capitals != text {
        return Err(
            TextError::new(format!("`{text}` is not a method")).with_hint(format!(
                "did you mean `{capitals}`? methods are in capitals"
            )),
        );
    }
    if text == "CONNECT" {
        return Err(TextError::new(
            "the method CONNECT opens tunnels and is refused",
        ));
    }
    match Method::from_token(text) {
        Method::Other(_) => match config::suggest(text, STANDARD_METHODS) {
            Some(near) => Err(TextError::new(format!("`{text}` is not a method"))
                .with_hint(format!("did you mean `{near}`?"))),
            None => Ok(Method::Other(text.into())),
        },
        known => Ok(known),
    }
}

/// Reads a TCP port: decimal digits, 1 to 65535.
///
/// # Errors
/// When the text is anything else.
pub fn parse_port(text: &str) -> Result<u16, TextError> {
    if text.is_empty() {
        return Err(TextError::new("the port is missing behind `:`"));
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(
            TextError::new(format!("`{}` is not a port", text.escape_debug()))
                .with_hint("a port is a number from 1 to 65535"),
        );
    }
    match text.parse::<u16>() {
        Ok(port) if port > 0 && !text.starts_with('0') => Ok(port),
        _ => Err(TextError::new(format!("the port {text} is out of range"))
            .with_hint("a port is a number from 1 to 65535, without leading zeros")),
    }
}

/// Reads a host: a name, an IPv4 address or an IPv6 address in brackets. The result is in lower
/// case and canonical, an IPv6 address without its brackets.
///
/// # Errors
/// When the text is none of these (RFC 3986, section 3.2.2; RFC 1123, section 2.1, and `_`, which
/// container networks use).
pub fn parse_host(text: &str) -> Result<String, TextError> {
    if let Some(inner) = text.strip_prefix('[') {
        return parse_bracketed(text, inner);
    }
    if text.contains(':') {
        return Err(
            TextError::new(format!("`{}` is not a host", text.escape_debug()))
                .with_hint("an IPv6 address stands in brackets, such as `[::1]`"),
        );
    }
    if looks_like_ipv4(text) {
        return text
            .parse::<Ipv4Addr>()
            .map(|address| address.to_string())
            .map_err(|_| {
                TextError::new(format!("`{}` is not an IPv4 address", text.escape_debug()))
            });
    }
    match name_problem(text) {
        Some(problem) => Err(problem),
        None => Ok(text.to_ascii_lowercase()),
    }
}

fn parse_bracketed(text: &str, inner: &str) -> Result<String, TextError> {
    inner
        .strip_suffix(']')
        .and_then(|address| address.parse::<Ipv6Addr>().ok())
        .map(|address| address.to_string())
        .ok_or_else(|| {
            TextError::new(format!("`{}` is not an IPv6 address", text.escape_debug()))
                .with_hint("an IPv6 address looks like `[::1]`, without a zone")
        })
}

/// Whether the last label is a number, decimal or hexadecimal: then the text can only be meant as
/// an IPv4 address (RFC 3986, section 3.2.2; RFC 1123, section 2.1; WHATWG URL, section 3.5).
/// Resolvers take `0x7f000001` for 127.0.0.1.
fn looks_like_ipv4(text: &str) -> bool {
    let last = text.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x").or(last.strip_prefix("0X"));
    let is_hexadecimal =
        hexadecimal.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let is_decimal = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
    is_decimal || is_hexadecimal
}

fn name_problem(text: &str) -> Option<TextError> {
    if text.is_empty() {
        return Some(TextError::new("the host is missing"));
    }
    if !text.is_ascii() {
        let problem = TextError::new(format!("`{}` is not a host name", text.escape_debug()));
        return Some(problem.with_hint("write an international name in its `xn--` form"));
    }
    let bad_label = |label: &str| {
        label.is_empty()
            || label.len() > 63
            || label.starts_with('-')
            || label.ends_with('-')
            || !label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    if text.len() > 253 || text.split('.').any(bad_label) {
        return Some(TextError::new(format!(
            "`{}` is not a host name",
            text.escape_debug()
        )));
    }
    None
}

/// Splits `host`, `host:port`, `[v6]:port` or `:port`. An empty host and a missing port are
/// `None`.
///
/// # Errors
/// When host or port are malformed.
pub fn parse_authority(text: &str) -> Result<(Option<String>, Option<u16>), TextError> {
    let host_end = match text.strip_prefix('[').and_then(|inner| inner.find(']')) {
        Some(at) => at + 2,
        None => match text.matches(':').count() {
            0 => text.len(),
            // Left to right, so that what is behind the first colon is shown as the bad port.
            1 => text.find(':').unwrap_or(text.len()),
            _ => return parse_host(text).map(|host| (Some(host), None)),
        },
    };
    let (host, port) = text.split_at_checked(host_end).unwrap_or((text, ""));
    let port = match port.strip_prefix(':') {
        Some(port) => Some(parse_port(port)?),
        None if port.is_empty() => None,
        None => {
            let text = text.escape_debug();
            return Err(TextError::new(format!("`{text}` is not a host and port")));
        }
    };
    let host = if host.is_empty() {
        None
    } else {
        Some(parse_host(host)?)
    };
    Ok((host, port))
}

/// Checks a whole path: begins with `/`, allowed characters and well-formed percent-encoding
/// (RFC 3986, section 3.3), no dot segments.
///
/// # Errors
/// With the first thing that is wrong.
pub fn check_path(path: &str) -> Result<(), TextError> {
    let Some(segments) = path.strip_prefix('/') else {
        return Err(TextError::new("a path begins with `/`"));
    };
    segments.split('/').try_for_each(check_segment)
}

/// Checks one segment of a path, as [`check_path`] does.
///
/// # Errors
/// With the first thing that is wrong.
pub fn check_segment(segment: &str) -> Result<(), TextError> {
    check_characters(segment, "path", is_path_byte)?;
    let dots = segment.to_ascii_lowercase().replace("%2e", ".");
    if dots == "." || dots == ".." {
        let problem = TextError::new(format!("`{segment}` as a segment of the path"));
        return Err(problem.with_hint("write the path without dot segments"));
    }
    Ok(())
}

/// Checks a query, without its `?` (RFC 3986, section 3.4).
///
/// # Errors
/// With the first thing that is wrong.
pub fn check_query(query: &str) -> Result<(), TextError> {
    check_characters(query, "query", |byte| {
        is_path_byte(byte) || b"/?".contains(&byte)
    })
}

/// `pchar` of RFC 3986, section 3.3, without percent-encoding.
fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte)
}

fn check_characters(
    text: &str,
    place: &str,
    allowed: impl Fn(u8) -> bool,
) -> Result<(), TextError> {
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        if character == '%' {
            let digits = rest.as_str().as_bytes().get(..2);
            if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                let problem = TextError::new(format!("malformed percent-encoding in the {place}"));
                return Err(problem
                    .with_hint("`%` is followed by two hexadecimal digits; itself it is `%25`"));
            }
            if digits == Some(b"00") {
                return Err(TextError::new(format!(
                    "`%00` is not allowed in the {place}"
                )));
            }
        } else if !u8::try_from(character).is_ok_and(&allowed) {
            return Err(refused_character(character, place));
        }
    }
    Ok(())
}

fn refused_character(character: char, place: &str) -> TextError {
    let mut bytes = [0; 4];
    let encoded: String = character
        .encode_utf8(&mut bytes)
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect();
    let shown = character.escape_debug();
    TextError::new(format!("`{shown}` is not allowed in the {place}"))
        .with_hint(format!("write it percent-encoded: `{encoded}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_tokens_in_capitals() {
        assert_eq!(parse_method("GET"), Ok(Method::Get));
        assert_eq!(
            parse_method("M-SEARCH"),
            Ok(Method::Other("M-SEARCH".into()))
        );
        for text in [
            "", "post", "Get", "CONNECT", "GET,", "G T", "GÉT", "connect",
        ] {
            assert!(parse_method(text).is_err(), "{text}");
        }
        let hint = parse_method("post").unwrap_err().hint.unwrap();
        assert!(hint.contains("`POST`"), "{hint}");
    }

    #[test]
    fn hosts_are_checked_and_made_canonical() {
        let good = [
            ("backend", "backend"),
            ("Api.Example.COM", "api.example.com"),
            ("my_service-1", "my_service-1"),
            ("10.0.0.7", "10.0.0.7"),
            ("[::1]", "::1"),
            ("[2001:DB8:0:0::1]", "2001:db8::1"),
        ];
        for (text, host) in good {
            assert_eq!(parse_host(text).as_deref(), Ok(host), "{text}");
        }
        let bad = [
            "",
            "a b",
            "a..b",
            ".a",
            "a.",
            "-a",
            "a-",
            "10.0.0.256",
            "1.2.3",
            "01.2.3.4",
            "0x7f000001",
            "127.0.0.0x1",
            "0X",
            "::1",
            "[::1",
            "[::1%eth0]",
            "[127.0.0.1]",
            "käse",
            "a/b",
            "user@a",
            "a\u{0}",
            "${x}",
        ];
        for text in bad {
            assert!(parse_host(text).is_err(), "{text}");
        }
        assert!(parse_host(&"a".repeat(64)).is_err());
        assert!(parse_host(&"a.".repeat(130)).is_err());
    }

    #[test]
    fn ports_are_decimal_numbers_in_range() {
        assert_eq!(parse_port("1"), Ok(1));
        assert_eq!(parse_port("65535"), Ok(65535));
        for text in [
            "",
            "0",
            "65536",
            "99999999999999999999",
            "+80",
            "80 ",
            "0x50",
            "080",
            "８０",
        ] {
            assert!(parse_port(text).is_err(), "{text}");
        }
    }

    #[test]
    fn authorities_are_split() {
        type Parts = (Option<&'static str>, Option<u16>);
        let good: &[(&str, Parts)] = &[
            (":8080", (None, Some(8080))),
            ("localhost:80", (Some("localhost"), Some(80))),
            ("a", (Some("a"), None)),
            ("[::1]:9", (Some("::1"), Some(9))),
            ("[::1]", (Some("::1"), None)),
            ("", (None, None)),
        ];
        for (text, parts) in good {
            let (host, port) = parse_authority(text).unwrap();
            assert_eq!((host.as_deref(), port), *parts, "{text}");
        }
        for text in [
            ":", "a:", "a:b", "::1", "[::1]x", "[::1]:", "a:1:2", ":8080:", "é:1", "[", "[]",
        ] {
            assert!(parse_authority(text).is_err(), "{text}");
        }
    }

    #[test]
    fn paths_and_queries_are_checked() {
        for path in [
            "/",
            "/a",
            "/a//b/",
            "/%7Ea",
            "/a;b=1,2",
            "/.well-known/x",
            "/a...b",
            "/@:",
        ] {
            assert_eq!(check_path(path), Ok(()), "{path}");
        }
        let bad = [
            "",
            "a",
            "/a b",
            "/a?b",
            "/a#b",
            "/é",
            "/%",
            "/%2",
            "/%zz",
            "/%00",
            "/.",
            "/a/..",
            "/%2e%2E/b",
            "/.%2e",
            "/a\\b",
            "/a\"",
            "/{a}",
            "/a\nb",
            "/%é0",
        ];
        for path in bad {
            assert!(check_path(path).is_err(), "{path}");
        }
        assert_eq!(check_query("a=1&b=/x?y"), Ok(()));
        assert!(check_query("a#b").is_err());
        assert_eq!(
            check_path("/é").unwrap_err().hint.as_deref(),
            Some("write it percent-encoded: `%C3%A9`")
        );
    }
}
