//! URLs of brokers, databases and services (RFC 3986). They hold passwords: no message shows any
//! part of one, and a password is a secret from the moment it has been read.

use component::text::{check_path, check_query, parse_authority};
use config::{Node, Report, Span};
use message::secret;

use crate::codes::BAD_ADDRESS;

/// A server that a URL names.
#[derive(Clone, PartialEq, Eq)]
pub struct Server {
    /// Whether the scheme asks for TLS.
    pub is_secure: bool,
    /// Name or IP address, IPv6 without brackets.
    pub host: String,
    /// The port, the scheme's own when the URL has none.
    pub port: u16,
    /// Who asks.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// What follows the host, as it stands in the URL: empty, or begins with `/`.
    pub path: String,
}

/// A scheme: its name, its port, and whether it asks for TLS.
pub(crate) type Scheme = (&'static str, u16, bool);

/// Reads a URL with one of these schemes. Every problem is reported, without the URL.
pub(crate) fn read(node: &Node, schemes: &[Scheme], report: &mut Report) -> Option<Server> {
    let problem = match node.as_str() {
        Some(text) => match parse(text, schemes) {
            Ok(server) => return Some(server),
            Err(problem) => problem,
        },
        None => Problem::new(
            "the address is a URL",
            format!("write `{}://host`", first(schemes)),
        ),
    };
    problem.put(node.span, report);
    None
}

/// What is wrong with a URL.
pub(crate) struct Problem {
    message: String,
    hint: String,
}

impl Problem {
    pub fn new(message: &str, hint: impl Into<String>) -> Self {
        Self {
            message: message.to_owned(),
            hint: hint.into(),
        }
    }

    /// Puts it into the report at a place.
    pub fn put(self, span: Span, report: &mut Report) {
        report
            .error(BAD_ADDRESS, span, self.message)
            .hint(self.hint);
    }
}

fn first(schemes: &[Scheme]) -> &str {
    schemes.first().map_or("", |(name, ..)| name)
}

fn parse(text: &str, schemes: &[Scheme]) -> Result<Server, Problem> {
    let is_blank = |it: char| it.is_whitespace() || it.is_control();
    if text.contains(is_blank) {
        let hint = "is there a line break at its end? A space in a URL is `%20`";
        return Err(Problem::new("the URL has spaces or line breaks", hint));
    }
    let names: Vec<String> = schemes
        .iter()
        .map(|(name, ..)| format!("`{name}://`"))
        .collect();
    let found = text.split_once("://").and_then(|(name, rest)| {
        let known = |scheme: &&Scheme| name.eq_ignore_ascii_case(scheme.0);
        Some((schemes.iter().find(known)?, rest))
    });
    let Some((&(_, port, is_secure), rest)) = found else {
        let hint = format!("it begins with {}", names.join(" or "));
        return Err(Problem::new(
            "the URL is not of a scheme that this connection has",
            hint,
        ));
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let (who, place) = match authority.rsplit_once('@') {
        Some((who, place)) => (Some(who), place),
        None => (None, authority),
    };
    let (user, password) = read_who(who)?;
    let no_host = || Problem::new("the URL has no host", "write `//host` or `//host:port`");
    let bad_place = |_| {
        let hint = "a host is a name, an IPv4 address, or an IPv6 address in brackets; `/`, `?`, \
                    `#` and `@` in a password are percent-encoded";
        Problem::new("the URL's host or port is none", hint)
    };
    let (host, given) = parse_authority(place).map_err(bad_place)?;
    let path = read_tail(tail)?;
    Ok(Server {
        is_secure,
        host: host.ok_or_else(no_host)?,
        port: given.unwrap_or(port),
        user,
        password,
        path,
    })
}

/// User and password.
type Who = (Option<String>, Option<String>);

fn read_who(who: Option<&str>) -> Result<Who, Problem> {
    let Some(who) = who else {
        return Ok((None, None));
    };
    let (user, password) = match who.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (who, None),
    };
    let wrong = || {
        let hint = "`%` is followed by two hexadecimal digits; write `%25` for `%` itself";
        Problem::new("the URL's user or password is not well encoded", hint)
    };
    let password = match password {
        Some(text) => {
            secret::register(text);
            let plain = decode(text).ok_or_else(wrong)?;
            secret::register(&plain);
            Some(plain)
        }
        None => None,
    };
    let user = decode(user).ok_or_else(wrong)?;
    Ok((Some(user).filter(|user| !user.is_empty()), password))
}

fn read_tail(tail: &str) -> Result<String, Problem> {
    if tail.contains(['?', '#']) {
        let hint = "settings stand beside the URL, as keys of the connection";
        return Err(Problem::new("the URL has a query or a fragment", hint));
    }
    let is_sound = tail.is_empty() || check_path(tail).is_ok();
    if !is_sound {
        let hint = "what follows the host begins with `/` and is percent-encoded";
        return Err(Problem::new("the URL's path is none", hint));
    }
    Ok(tail.to_owned())
}

const HTTP: [Scheme; 2] = [("https", 443, true), ("http", 80, false)];

/// Reads the URL of an HTTP service, which may have a query.
pub(crate) fn read_http(node: &Node, report: &mut Report) -> Option<Endpoint> {
    match http(node.as_str().unwrap_or_default()) {
        Ok(endpoint) => Some(endpoint),
        Err(problem) => {
            problem.put(node.span, report);
            None
        }
    }
}

/// The same for a text of another file.
pub(crate) fn parse_http(text: &str) -> Option<Endpoint> {
    http(text).ok()
}

fn http(text: &str) -> Result<Endpoint, Problem> {
    let (text, query) = match text.split_once('?') {
        Some((text, query)) => (text, Some(query)),
        None => (text, None),
    };
    let server = parse(text, &HTTP)?;
    if server.user.is_some() || server.password.is_some() {
        let hint = "who asks is said beside the URL, not in it";
        return Err(Problem::new("the URL has a user name or password", hint));
    }
    if query.is_some_and(|query| check_query(query).is_err()) {
        let hint = "it is percent-encoded";
        return Err(Problem::new("the URL's query is none", hint));
    }
    Ok(Endpoint {
        server,
        query: query.map(str::to_owned),
    })
}

/// The URL of an HTTP service.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Server and path.
    pub server: Server,
    /// Without `?`.
    pub query: Option<String>,
}

/// Text with its percent-encoding undone.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|it| !it.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMQP: [Scheme; 2] = [("amqp", 5672, false), ("amqps", 5671, true)];

    #[test]
    fn all_parts_are_read() {
        let server = parse("amqps://me:p%2Fw%40rd@[::1]:99/%2fshop", &AMQP).unwrap_or_else(|it| {
            panic!("{}", it.message);
        });
        assert!(server.is_secure);
        assert_eq!((server.host.as_str(), server.port), ("::1", 99));
        assert_eq!(server.user.as_deref(), Some("me"));
        assert_eq!(server.password.as_deref(), Some("p/w@rd"));
        assert_eq!(server.path, "/%2fshop");
        let plain = parse("AMQP://mq", &AMQP).ok().map(|it| (it.port, it.path));
        assert_eq!(plain, Some((5672, String::new())));
    }

    #[test]
    fn nothing_of_a_broken_url_is_told() {
        for text in [
            "",
            "tops3cret",
            "http://tops3cret@mq/",
            "amqp://a:tops3cret@",
            "amqp://a:tops3cret@:1",
            "amqp://a:tops3cret@mq:tops3cret",
            "amqp://a:tops3cret/@mq",
            "amqp://a:tops3cret%2@mq",
            "amqp://a:b@mq/tops3cret%",
            "amqp://a:b@mq/?tops3cret",
            "amqp://mq tops3cret",
            "amqp://mq\n",
        ] {
            let problem = parse(text, &AMQP).err();
            let problem = problem.unwrap_or_else(|| panic!("{text} has no problem"));
            assert!(!problem.message.contains("tops3cret"), "{text}");
            assert!(!problem.hint.contains("tops3cret"), "{text}");
        }
    }
}
