//! The target of a `forward`: `METHOD URL`, `URL`, or `CONNECTION:/path` in place of the URL; and
//! what makes a URL one that can be forwarded to (RFC 3986; RFC 9110, section 4.2).

use component::text::{TextError, check_path, check_query, parse_authority, parse_method};
use config::{Code, Report, Span};
use message::Method;

use crate::codes::BAD_TARGET;

/// One thing that is wrong with a target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem {
    pub code: Code,
    pub message: String,
    pub hint: Option<String>,
}

impl Problem {
    fn new(message: impl Into<String>, hint: &str) -> Self {
        let hint = Some(hint.to_owned()).filter(|hint| !hint.is_empty());
        Self {
            code: BAD_TARGET,
            message: message.into(),
            hint,
        }
    }

    fn of_text(error: TextError) -> Self {
        Self {
            code: BAD_TARGET,
            message: error.message,
            hint: error.hint,
        }
    }

    /// Puts it into the report at a place.
    pub fn put(self, span: Span, report: &mut Report) {
        let diagnostic = report.error(self.code, span, self.message);
        if let Some(hint) = self.hint {
            diagnostic.hint(hint);
        }
    }
}

/// An `http`, `https`, `ws` or `wss` URL (RFC 9110, section 4.2; RFC 6455, section 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// Whether it is `https` or `wss`.
    pub is_secure: bool,
    /// Whether it is `ws` or `wss`.
    pub is_websocket: bool,
    /// Name or IP address, IPv6 without brackets.
    pub host: String,
    pub port: u16,
    /// Begins with `/`.
    pub path: String,
    /// Without `?`.
    pub query: Option<String>,
}

/// Where a message goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// To this URL.
    Url(Url),
    /// To a connection of `use:`.
    Named {
        name: String,
        /// Begins with `/`.
        path: String,
        query: Option<String>,
    },
}

/// Reads the short form: a target, or `METHOD` and a target.
pub(crate) fn parse_short(text: &str) -> Result<(Option<Method>, Target), Vec<Problem>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [target] => parse_target(target).map(|target| (None, target)),
        [method, target] if !method.contains(':') => {
            match (parse_method(method), parse_target(target)) {
                (Ok(method), Ok(target)) => Ok((Some(method), target)),
                (method, target) => {
                    let method = method.err().map(Problem::of_text);
                    Err(method
                        .into_iter()
                        .chain(target.err().unwrap_or_default())
                        .collect())
                }
            }
        }
        [] => Err(vec![Problem::new(
            "the target is empty",
            "write a URL such as `http://127.0.0.1:8688/`",
        )]),
        _ => Err(vec![Problem::new(
            "too many spaces in the target",
            "write `URL` or `METHOD URL`; a space in a URL is `%20`",
        )]),
    }
}

/// Reads a URL or `CONNECTION:/path`.
pub(crate) fn parse_target(text: &str) -> Result<Target, Vec<Problem>> {
    let named = text.split_once(":/").filter(|(name, rest)| {
        let is_name = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
        !name.is_empty() && is_name && !rest.starts_with('/')
    });
    let Some((name, _)) = named else {
        return parse_url(text).map(Target::Url);
    };
    let tail = text.get(name.len() + 1..).unwrap_or_default();
    let mut problems = Vec::new();
    let (path, query) = read_tail(tail, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let name = name.to_owned();
    Ok(Target::Named { name, path, query })
}

/// Reads a URL. All problems are told.
pub(crate) fn parse_url(text: &str) -> Result<Url, Vec<Problem>> {
    if text.contains(|character: char| character.is_whitespace() || character.is_control()) {
        let hint = "a space in a URL is `%20`";
        return Err(vec![Problem::new("a URL has no spaces", hint)]);
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        let shown = text.escape_debug();
        let problem = Problem::new(
            format!("`{shown}` is not a URL"),
            "it begins with `http://` or `https://`, or names a connection: `crm:/path`",
        );
        return Err(vec![problem]);
    };
    let (is_secure, is_websocket) = check_scheme(scheme).map_err(|problem| vec![problem])?;
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at_checked(authority_end).unwrap_or((rest, ""));
    let mut problems = Vec::new();
    let (host, port) = read_authority(authority, &mut problems);
    let (path, query) = read_tail(tail, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(Url {
        is_secure,
        is_websocket,
        host,
        port: port.unwrap_or(if is_secure { 443 } else { 80 }),
        path,
        query,
    })
}

/// Path and query behind a host or a connection's name.
fn read_tail(tail: &str, problems: &mut Vec<Problem>) -> (String, Option<String>) {
    let (tail, fragment) = match tail.split_once('#') {
        Some((tail, _)) => (tail, true),
        None => (tail, false),
    };
    if fragment {
        let problem = Problem::new(
            "a target has no fragment",
            "leave out `#` and what follows it",
        );
        problems.push(problem);
    }
    let (path, query) = match tail.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (tail, None),
    };
    let path = if path.is_empty() { "/" } else { path };
    check_target_path(path, problems);
    if let Some(Err(error)) = query.map(check_query) {
        problems.push(Problem::of_text(error));
    }
    let query = query.filter(|query| !query.is_empty()).map(str::to_owned);
    (path.to_owned(), query)
}

/// Whether the scheme is with TLS, and whether it is one of WebSocket.
fn check_scheme(scheme: &str) -> Result<(bool, bool), Problem> {
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Ok((false, false)),
        "https" => Ok((true, false)),
        "ws" => Ok((false, true)),
        "wss" => Ok((true, true)),
        "h2" | "h2c" => Err(Problem::new(
            "a target's scheme is `http` or `https`, for HTTP/2 too",
            "say `protocols: [h2]` beside the target",
        )),
        other => {
            let shown = other.escape_debug();
            Err(Problem::new(
                format!("unknown scheme `{shown}`"),
                "a target begins with `http://` or `https://`",
            ))
        }
    }
}

fn read_authority(authority: &str, problems: &mut Vec<Problem>) -> (String, Option<u16>) {
    if authority.contains('@') {
        // The text is not repeated: it may hold a password.
        let hint = "send credentials in a header: `headers: { set: { Authorization: ... } }`";
        problems.push(Problem::new(
            "a target holds no user name or password",
            hint,
        ));
        return (String::new(), None);
    }
    match parse_authority(authority) {
        Ok((Some(host), port)) => return (host, port),
        Ok((None, _)) => {
            let hint = "write a name or an address, such as `http://127.0.0.1:8688/`";
            problems.push(Problem::new("the target has no host", hint));
        }
        Err(error) => problems.push(Problem::of_text(error)),
    }
    (String::new(), None)
}

fn check_target_path(path: &str, problems: &mut Vec<Problem>) {
    if path.ends_with("/*") {
        let hint = "leave the `*` out: what the trigger's `*` matched is put behind the path";
        problems.push(Problem::new("a target has no `*`", hint));
    } else if path.contains(['{', '}']) {
        let hint = "path parameters cannot be used in targets in this version";
        problems.push(Problem::new("a target has no `{name}`", hint));
    } else if let Err(error) = check_path(path) {
        problems.push(Problem::of_text(error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read() {
        let cases = [
            (
                "http://backend:8688/service/EchoService",
                "- backend 8688 /service/EchoService -",
            ),
            ("http://backend", "- backend 80 / -"),
            ("http://backend?a=1", "- backend 80 / a=1"),
            ("http://backend/?", "- backend 80 / -"),
            ("HTTP://Back-End/A//b/", "- back-end 80 /A//b/ -"),
            ("http://[::1]:81/x?y=/z?", "- ::1 81 /x y=/z?"),
            ("PUT http://10.0.0.1/%20", "PUT 10.0.0.1 80 /%20 -"),
            ("PURGE   http://a/b", "PURGE a 80 /b -"),
            ("https://a", "- a 443 / -"),
            ("GET HTTPS://a:8443/x", "GET a 8443 /x -"),
            ("ws://a/x?y", "- a 80 /x y"),
            ("WSS://a", "- a 443 / -"),
        ];
        for (text, expected) in cases {
            let (method, target) = parse_short(text).expect(text);
            let Target::Url(url) = target else {
                panic!("{text} is no URL");
            };
            let method = method.map_or("-".to_owned(), |method| method.to_string());
            let query = url.query.as_deref().unwrap_or("-");
            let found = format!("{method} {} {} {} {query}", url.host, url.port, url.path);
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn a_connection_may_stand_for_the_beginning_of_a_url() {
        let (method, target) = parse_short("PUT crm_2:/a/b?c=d:/e").unwrap();
        let expected = Target::Named {
            name: "crm_2".into(),
            path: "/a/b".into(),
            query: Some("c=d:/e".into()),
        };
        assert_eq!((method, target), (Some(Method::Put), expected));
    }

    #[test]
    fn what_is_wrong_is_told() {
        let cases: &[(&str, &[&str])] = &[
            ("", &["IT0240 the target is empty"]),
            ("backend:80/x", &["IT0240 `backend:80/x` is not a URL"]),
            (
                "h2c://a",
                &["IT0240 a target's scheme is `http` or `https`, for HTTP/2 too"],
            ),
            ("crm:/a b", &["IT0240 too many spaces in the target"]),
            ("crm:/a/../b", &["IT0240 `..` as a segment of the path"]),
            ("GET crm:x", &["IT0240 `crm:x` is not a URL"]),
            ("ftp://a", &["IT0240 unknown scheme `ftp`"]),
            ("http:///x", &["IT0240 the target has no host"]),
            ("http://:80/x", &["IT0240 the target has no host"]),
            ("http://a:0/", &["IT0240 the port 0 is out of range"]),
            ("http://a:/", &["IT0240 the port is missing behind `:`"]),
            (
                "http://a:65536/",
                &["IT0240 the port 65536 is out of range"],
            ),
            (
                "http://u:secret@a/",
                &["IT0240 a target holds no user name or password"],
            ),
            ("http://a/b#c", &["IT0240 a target has no fragment"]),
            ("http://a/b c", &["IT0240 too many spaces in the target"]),
            ("g t http://a/", &["IT0240 too many spaces in the target"]),
            ("http://a/../b", &["IT0240 `..` as a segment of the path"]),
            (
                "http://a/%2",
                &["IT0240 malformed percent-encoding in the path"],
            ),
            ("http://a/*", &["IT0240 a target has no `*`"]),
            ("http://a/{id}", &["IT0240 a target has no `{name}`"]),
            ("http://a/é", &["IT0240 `é` is not allowed in the path"]),
            (
                "http://a/?\"",
                &["IT0240 `\\\"` is not allowed in the query"],
            ),
            ("http://1.2.3/", &["IT0240 `1.2.3` is not an IPv4 address"]),
            ("http://::1/", &["IT0240 `::1` is not a host"]),
            (
                "GET POST http://a/",
                &["IT0240 too many spaces in the target"],
            ),
            (
                "post http://a:x/%?#",
                &[
                    "IT0240 `post` is not a method",
                    "IT0240 `x` is not a port",
                    "IT0240 a target has no fragment",
                    "IT0240 malformed percent-encoding in the path",
                ],
            ),
        ];
        for (text, expected) in cases {
            let problems = parse_short(text).expect_err(text);
            let found: Vec<String> = problems
                .iter()
                .map(|problem| format!("{} {}", problem.code, problem.message))
                .collect();
            assert_eq!(found, *expected, "{text}");
        }
    }
}
