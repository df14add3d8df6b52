//! The short form of an HTTP trigger: `METHOD [host]:port/path`.

use component::text::parse_authority;
use component::trigger::{ListenAddress, Methods, PathPattern};

use super::{methods, path};
use crate::codes::{BAD_LISTEN, BAD_TRIGGER};
use crate::problem::Problem;

const FORM: &str = "write METHOD [host]:port/path, such as `POST :8080/orders` or `GET /health`";

/// What the short form says.
#[derive(Debug, PartialEq)]
pub(super) struct Text {
    pub methods: Methods,
    /// Absent when only a path is given: then `engine.listen` decides.
    pub listen: Option<ListenAddress>,
    pub path: PathPattern,
}

/// Reads the short form. All problems are told.
pub(super) fn parse(text: &str) -> Result<Text, Vec<Problem>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (methods, address) = match words.as_slice() {
        [address] => (Ok(Methods::Any), *address),
        [names, address] if !names.ends_with(',') => (methods::parse(names), *address),
        [] => {
            return Err(vec![
                Problem::new(BAD_TRIGGER, "the trigger is empty").with_hint(FORM),
            ]);
        }
        words => return Err(vec![too_many_words(words)]),
    };
    let mut problems = Vec::new();
    let mut keep = |found: Vec<Problem>| problems.extend(found);
    let methods = methods.map_err(&mut keep).ok();
    let place = parse_place(address).map_err(&mut keep).ok();
    match (methods, place) {
        (Some(methods), Some((listen, path))) => Ok(Text {
            methods,
            listen,
            path,
        }),
        _ => Err(problems),
    }
}

fn too_many_words(words: &[&str]) -> Problem {
    let problem = Problem::new(BAD_TRIGGER, "too many spaces in the trigger");
    if words
        .iter()
        .any(|word| word.ends_with(',') || word.starts_with(','))
    {
        return problem.with_hint("methods are listed without spaces: `GET,POST`");
    }
    problem.with_hint(FORM)
}

type Place = (Option<ListenAddress>, PathPattern);

fn parse_place(text: &str) -> Result<Place, Vec<Problem>> {
    if text.contains("://") {
        let problem = Problem::new(BAD_TRIGGER, "a trigger is not a URL");
        return Err(vec![problem.with_hint(FORM)]);
    }
    let Some((authority, _)) = text.split_once('/') else {
        let shown = text.escape_debug();
        let problem = Problem::new(BAD_TRIGGER, format!("`{shown}` has no path"));
        let hint = if text.contains(':') {
            format!("every path of it is `{shown}/*`")
        } else {
            FORM.into()
        };
        return Err(vec![problem.with_hint(hint)]);
    };
    let pattern = text.get(authority.len()..).unwrap_or_default();
    let listen = match authority {
        "" => Ok(None),
        authority => parse_listen(authority).map(Some),
    };
    match (listen, path::parse(pattern)) {
        (Ok(listen), Ok(pattern)) => Ok((listen, pattern)),
        (listen, pattern) => Err(listen
            .err()
            .into_iter()
            .chain(pattern.err().unwrap_or_default())
            .collect()),
    }
}

/// Reads a listening address: `:8080`, `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`.
pub(crate) fn parse_listen(text: &str) -> Result<ListenAddress, Problem> {
    match parse_authority(text) {
        Ok((host, Some(port))) => Ok(ListenAddress { host, port }),
        Ok((_, None)) => {
            let shown = text.escape_debug();
            let problem = Problem::new(BAD_LISTEN, format!("`{shown}` has no port"));
            Err(problem
                .with_hint("a listening address is `host:port`, or `:port` for all interfaces"))
        }
        Err(error) => Err(Problem::of_text(BAD_LISTEN, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let text = parse(text).unwrap();
        let listen = text
            .listen
            .map_or("engine".to_owned(), |listen| listen.to_string());
        let methods = match text.methods {
            Methods::Any => "any".to_owned(),
            Methods::Only(list) => list
                .iter()
                .map(|method| method.as_str())
                .collect::<Vec<_>>()
                .join(","),
        };
        format!("{methods} {listen} {}", text.path)
    }

    #[test]
    fn short_forms_are_read() {
        let cases = [
            ("POST :9090/passthrough", "POST :9090 /passthrough"),
            ("any :8080/files/*", "any :8080 /files/*"),
            (
                "GET,POST localhost:8080/a/{id}",
                "GET,POST localhost:8080 /a/{id}",
            ),
            ("GET /health", "GET engine /health"),
            (":9090/x", "any :9090 /x"),
            ("/", "any engine /"),
            ("PUT [::1]:80/a:b", "PUT [::1]:80 /a:b"),
            ("PURGE  10.0.0.1:1/", "PURGE 10.0.0.1:1 /"),
        ];
        for (text, expected) in cases {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let cases: &[(&str, &[&str])] = &[
            ("", &["IT0211 the trigger is empty"]),
            ("POST", &["IT0211 `POST` has no path"]),
            ("POST :8080", &["IT0211 `:8080` has no path"]),
            (
                "GET, POST :8080/a",
                &["IT0211 too many spaces in the trigger"],
            ),
            ("GET, :8080/a", &["IT0211 too many spaces in the trigger"]),
            ("GET :8080 /a", &["IT0211 too many spaces in the trigger"]),
            ("GET http://a/b", &["IT0211 a trigger is not a URL"]),
            ("post :8080/a", &["IT0212 `post` is not a method"]),
            ("GET :0/a", &["IT0213 the port 0 is out of range"]),
            ("GET :65536/a", &["IT0213 the port 65536 is out of range"]),
            ("GET localhost/a", &["IT0213 `localhost` has no port"]),
            ("GET ::1:80/a", &["IT0213 `::1:80` is not a host"]),
            ("GET :8080/a?b=1", &["IT0214 a path pattern has no query"]),
            (
                "get :x/{",
                &[
                    "IT0212 `get` is not a method",
                    "IT0213 `x` is not a port",
                    "IT0214 `{` is not a whole `{name}`",
                ],
            ),
        ];
        for (text, expected) in cases {
            let problems = parse(text).expect_err(text);
            let found: Vec<String> = problems
                .iter()
                .map(|problem| format!("{} {}", problem.code, problem.message))
                .collect();
            assert_eq!(found, *expected, "{text}");
        }
    }
}
