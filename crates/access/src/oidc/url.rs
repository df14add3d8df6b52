//! URLs and forms as they are made for browsers and providers.

/// The most bytes of a path and query that a login returns to: sealed and encoded it has to fit
/// into a cookie of 4096 bytes (RFC 6265, section 6.1).
const TARGET_MAX: usize = 2048;

/// Parameters as `application/x-www-form-urlencoded`; every byte that is not unreserved (RFC 3986,
/// section 2.3) is escaped.
#[must_use]
pub fn form(parameters: &[(&str, &str)]) -> String {
    let mut form = String::new();
    for (name, value) in parameters {
        if !form.is_empty() {
            form.push('&');
        }
        push_escaped(name, &mut form);
        form.push('=');
        push_escaped(value, &mut form);
    }
    form
}

/// A URL with further parameters in its query, which it may have already (RFC 6749, section 3.1).
#[must_use]
pub fn with_parameters(url: &str, parameters: &[(&str, &str)]) -> String {
    let url = url.split('#').next().unwrap_or_default();
    let separator = match url.contains('?') {
        true => '&',
        false => '?',
    };
    format!("{url}{separator}{}", form(parameters))
}

fn push_escaped(text: &str, to: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |value: u8| char::from(DIGITS.get(usize::from(value)).copied().unwrap_or(b'0'));
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            to.push(char::from(byte));
        } else {
            to.push('%');
            to.push(digit(byte >> 4));
            to.push(digit(byte & 15));
        }
    }
}

/// The path and query to return to after a login, or `/` when browsers could read it as another
/// host's: they take `//host` and `/\host` as one, and drop tabs and line breaks before they look
/// (WHATWG URL standard, section 4.4).
#[must_use]
pub fn local_target(path: &str, query: Option<&str>) -> String {
    let target = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let is_local = target.starts_with('/')
        && !target.starts_with("//")
        && target.len() <= TARGET_MAX
        && target
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    match is_local {
        true => target,
        false => "/".to_owned(),
    }
}
