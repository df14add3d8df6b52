//! URLs that somebody else than the author of the files has set (RFC 3986; RFC 9110, section 4.2).
//! What parsers read differently is refused, so that whoever has looked at a URL before has seen
//! the same host: Orange Tsai, "A New Era of SSRF" (2017), and the URL standard of WHATWG, whose
//! parser takes much that RFC 3986 does not.

use crate::text::{TextError, check_path, check_query, parse_authority};

use super::Refusal;

/// The longest URL.
const LENGTH_MAX: usize = 8192;

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whether it is `https`.
    pub is_secure: bool,
    /// A name in lower case, or an address in its usual spelling; IPv6 without brackets.
    pub host: String,
    /// The port, that of the scheme when the URL has none.
    pub port: u16,
    /// Begins with `/`.
    pub path: String,
    /// Without `?`.
    pub query: Option<String>,
}

impl Target {
    /// Reads a URL. The fragment is left out: it is not sent.
    pub(super) fn parse(url: &str) -> Result<Self, Refusal> {
        if url.len() > LENGTH_MAX {
            return Err(malformed("it is longer than 8 KiB"));
        }
        // Parsers of browsers drop tabs and line ends, and take `\` for `/`.
        let is_odd =
            |it: char| it.is_whitespace() || it.is_control() || it == '\\' || !it.is_ascii();
        if url.contains(is_odd) {
            return Err(malformed(
                "it has characters that no URL has; an international name is written as `xn--...`",
            ));
        }
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(malformed("it does not begin with `https://`"));
        };
        let is_secure = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            other => return Err(Refusal::Scheme(other.to_owned())),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
        if authority.contains('@') {
            // Not repeated: it may hold a password.
            return Err(malformed("it has a user name or a password"));
        }
        let (host, port) = parse_authority(authority).map_err(of_text)?;
        let Some(host) = host else {
            return Err(malformed("it has no host"));
        };
        // Some take what is before a later `@` for a password where there is no path.
        if !tail.starts_with('/') && tail.contains('@') {
            return Err(malformed("it has an `@` and no path"));
        }
        let tail = tail.split('#').next().unwrap_or_default();
        let (path, query) = match tail.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (tail, None),
        };
        let path = if path.is_empty() { "/" } else { path };
        check_path(path).map_err(of_text)?;
        query.map_or(Ok(()), check_query).map_err(of_text)?;
        Ok(Self {
            is_secure,
            host,
            port: port.unwrap_or(if is_secure { 443 } else { 80 }),
            path: path.to_owned(),
            query: query.filter(|it| !it.is_empty()).map(str::to_owned),
        })
    }
}

fn malformed(problem: &'static str) -> Refusal {
    Refusal::Malformed(problem.into())
}

fn of_text(error: TextError) -> Refusal {
    Refusal::Malformed(error.message.into())
}
