//! The target of a `forward`: `METHOD URL` or `URL`, and what makes a URL one that can be
//! forwarded to (RFC 3986; RFC 9110, section 4.2).

use component::text::{TextError, check_path, check_query, parse_authority, parse_method};
use config::{Code, Report, Span};
use message::Method;

use crate::codes::{BAD_TARGET, TARGET_TLS};

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

/// An `http` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// Name or IP address, IPv6 without brackets.
    pub host: String,
    pub port: u16,
    /// Begins with `/`.
    pub path: String,
    /// Without `?`.
    pub query: Option<String>,
}

/// Reads the short form: `URL` or `METHOD URL`.
pub(crate) fn parse_target(text: &str) -> Result<(Option<Method>, Url), Vec<Problem>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [url] => parse_url(url).map(|url| (None, url)),
        [method, url] if !method.contains("://") => match (parse_method(method), parse_url(url)) {
            (Ok(method), Ok(url)) => Ok((Some(method), url)),
            (method, url) => {
                let method = method.err().map(Problem::of_text);
                Err(method
                    .into_iter()
                    .chain(url.err().unwrap_or_default())
                    .collect())
            }
        },
        [] => Err(vec![Problem::new(
            "the target is empty",
            "write `forward: http://host/path`",
        )]),
        _ => Err(vec![Problem::new(
            "too many spaces in the target",
            "write `URL` or `METHOD URL`; a space in a URL is `%20`",
        )]),
    }
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
            "it begins with `http://`",
        );
        return Err(vec![problem]);
    };
    check_scheme(scheme).map_err(|problem| vec![problem])?;
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at_checked(authority_end).unwrap_or((rest, ""));
    let mut problems = Vec::new();
    let (host, port) = read_authority(authority, &mut problems);
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
    check_target_path(path, &mut problems);
    if let Some(Err(error)) = query.map(check_query) {
        problems.push(Problem::of_text(error));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let query = query.filter(|query| !query.is_empty()).map(str::to_owned);
    Ok(Url {
        host,
        port,
        path: path.to_owned(),
        query,
    })
}

fn check_scheme(scheme: &str) -> Result<(), Problem> {
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Ok(()),
        "https" | "wss" | "h2" => Err(Problem {
            code: TARGET_TLS,
            message: "TLS upstreams are not available in this version".to_owned(),
            hint: Some("put a proxy that speaks TLS beside it, and forward to that".to_owned()),
        }),
        "ws" => Err(Problem::new(
            "a target's scheme is `http`, for WebSocket too",
            "write `http://`; an upgrade of the client is passed on",
        )),
        "h2c" => Err(Problem::new(
            "HTTP/2 upstreams are not available in this version",
            "write `http://` for HTTP/1.1",
        )),
        other => {
            let shown = other.escape_debug();
            Err(Problem::new(
                format!("unknown scheme `{shown}`"),
                "a target begins with `http://`",
            ))
        }
    }
}

fn read_authority(authority: &str, problems: &mut Vec<Problem>) -> (String, u16) {
    if authority.contains('@') {
        // The text is not repeated: it may hold a password.
        let hint = "send credentials in a header: `headers: { set: { Authorization: ... } }`";
        problems.push(Problem::new(
            "a target holds no user name or password",
            hint,
        ));
        return (String::new(), 0);
    }
    match parse_authority(authority) {
        Ok((Some(host), port)) => return (host, port.unwrap_or(80)),
        Ok((None, _)) => {
            let hint = "write a name or an address, such as `http://127.0.0.1:8688/`";
            problems.push(Problem::new("the target has no host", hint));
        }
        Err(error) => problems.push(Problem::of_text(error)),
    }
    (String::new(), 0)
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
        ];
        for (text, expected) in cases {
            let (method, url) = parse_target(text).expect(text);
            let method = method.map_or("-".to_owned(), |method| method.to_string());
            let query = url.query.as_deref().unwrap_or("-");
            let found = format!("{method} {} {} {} {query}", url.host, url.port, url.path);
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let cases: &[(&str, &[&str])] = &[
            ("", &["IT0240 the target is empty"]),
            ("backend:80/x", &["IT0240 `backend:80/x` is not a URL"]),
            (
                "https://a/b",
                &["IT0241 TLS upstreams are not available in this version"],
            ),
            (
                "wss://a/b",
                &["IT0241 TLS upstreams are not available in this version"],
            ),
            (
                "ws://a/b",
                &["IT0240 a target's scheme is `http`, for WebSocket too"],
            ),
            (
                "h2c://a",
                &["IT0240 HTTP/2 upstreams are not available in this version"],
            ),
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
            let problems = parse_target(text).expect_err(text);
            let found: Vec<String> = problems
                .iter()
                .map(|problem| format!("{} {}", problem.code, problem.message))
                .collect();
            assert_eq!(found, *expected, "{text}");
        }
    }
}
