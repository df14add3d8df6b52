//! The `in:` of a test: the message that starts the flow.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use component::access::{Caller, Door};
use component::text::{TextError, check_path, check_query, parse_method};
use component::trigger::{HttpTrigger, Methods, PathPattern, Segment};
use component::value_template::ValueTemplate;
use config::{Node, Span};
use expr::Value;
use message::{Headers, Method, Request};

use super::reading::{Field, Reading, encode, given};
use crate::codes::{BAD_TEST, UNKNOWN_IN_TEST};
use crate::trigger::Trigger;

/// The parameters of a path.
type Parameters = Vec<(Box<str>, String)>;

/// Reads the message. Every problem is reported; `None` when there was one.
pub(super) fn read(
    case: &Node,
    (trigger, door): (Option<&Trigger>, Option<&Arc<dyn Door>>),
    reading: &mut Reading<'_>,
) -> Option<Request> {
    let nothing = Node {
        value: config::Value::Null,
        span: case.get("name").map_or(case.span, |name| name.span),
    };
    let node = given(case, "in").unwrap_or(&nothing);
    let http = trigger.and_then(Trigger::http);
    let mut headers = read_headers(node, reading);
    let payload = reading.payload(node);
    let (body, content_type) = match (payload.file, payload.value) {
        (Some(bytes), _) => (bytes, payload.content_type),
        (None, value) => {
            let value = fixed(value.as_ref(), node.get("body"), reading)?;
            let given = headers.get("Content-Type").map(String::from_utf8_lossy);
            let media_type = payload.content_type.as_deref().or(given.as_deref());
            encode(&value, media_type)
                .map_err(|error| reading.refuse(node.span, error, ""))
                .ok()?
        }
    };
    if let Some(content_type) = content_type.filter(|_| headers.get("Content-Type").is_none()) {
        headers.append("Content-Type", content_type);
    }
    let method = read_method(node, http, !body.is_empty(), reading);
    let (path, parameters) = read_path(node, http, reading)?;
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (path, None),
    };
    let query = read_query(node, query, reading);
    Some(Request {
        method: method?,
        path,
        query,
        parameters,
        headers,
        body: body.into(),
        peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
        proxy: None,
        is_secure: false,
        certificate: None,
        caller: read_caller(node, door, reading).map(|caller| Arc::new(caller) as _),
    })
}

/// Who has sent it.
fn read_caller(
    node: &Node,
    door: Option<&Arc<dyn Door>>,
    reading: &mut Reading<'_>,
) -> Option<Caller> {
    // `none` is nobody.
    let auth = given(node, "auth").filter(|it| it.as_mapping().is_some())?;
    let text = |name: &str| auth.get(name).and_then(Node::as_str);
    let claims = match given(auth, "claims") {
        Some(claims) => reading.fixed(claims)?,
        None => expr::value::object([]),
    };
    let ways = door.map(|door| door.way_names()).unwrap_or_default();
    let way: Arc<str> = match (auth.get("way"), ways.first()) {
        (Some(said), _) => {
            let name = said.as_str()?;
            if !ways.is_empty() && !ways.iter().any(|it| **it == *name) {
                let message = format!("the flow knows nobody by a way `{}`", name.escape_debug());
                let names: Vec<&str> = ways.iter().map(|it| &**it).collect();
                let hint = format!("its `auth` names {}", names.join(", "));
                let diagnostic = reading.report.error(UNKNOWN_IN_TEST, said.span, message);
                diagnostic.hint(hint);
            }
            name.into()
        }
        (None, Some(first)) => Arc::clone(first),
        (None, None) => "test".into(),
    };
    let mut caller = Caller::new(&way, text("id")?, claims);
    let scopes = auth.get("scopes").and_then(Node::as_sequence);
    let scopes = scopes.unwrap_or_default().iter();
    caller.scopes = scopes.filter_map(Node::as_str).map(str::to_owned).collect();
    caller.plan = text("plan").map(Into::into);
    Some(caller)
}

fn fixed(
    template: Option<&ValueTemplate>,
    node: Option<&Node>,
    reading: &mut Reading<'_>,
) -> Option<Value> {
    match (template, node) {
        (Some(ValueTemplate::Fixed(value)), _) => Some(value.clone()),
        (Some(_), Some(node)) => reading.fixed(node),
        // Without a value there is no body; or its problem has been reported.
        _ => Some(Value::Null),
    }
}

/// The texts of a field: one, or several of a list.
fn texts(field: &Field, reading: &mut Reading<'_>) -> Vec<String> {
    let value = match &field.value {
        None => return Vec::new(),
        Some(ValueTemplate::Fixed(value)) => value,
        Some(_) => {
            let message = "no expression can stand here";
            reading.refuse(field.span, message, "write the value itself");
            return Vec::new();
        }
    };
    let one = std::slice::from_ref(value);
    let items = expr::value::as_array(value).unwrap_or(one).iter();
    let texts: Vec<_> = items.filter_map(expr::value::scalar_text).collect();
    texts.into_iter().map(Into::into).collect()
}

fn read_headers(node: &Node, reading: &mut Reading<'_>) -> Headers {
    let mut headers = Headers::new();
    for field in reading.headers(node.get("headers")) {
        for text in texts(&field, reading) {
            match Headers::is_name(&field.name) && Headers::is_value(text.as_bytes()) {
                true => headers.append(&field.name, text),
                false => reading.refuse(field.span, "this cannot stand in a header", ""),
            }
        }
    }
    headers
}

fn read_query(node: &Node, mut query: Option<String>, reading: &mut Reading<'_>) -> Option<String> {
    let mut members = Vec::new();
    for field in reading.fields(node.get("query")) {
        let items = texts(&field, reading).into_iter().map(expr::value::text);
        members.push((field.name, expr::value::array(items)));
    }
    let form = expr::format::to_form(&expr::value::object(members), usize::MAX).unwrap_or_default();
    if !form.is_empty() {
        let before = query.take().map(|query| query + "&").unwrap_or_default();
        query = Some(before + &String::from_utf8_lossy(&form));
    }
    query
}

fn read_method(
    node: &Node,
    http: Option<&HttpTrigger>,
    has_body: bool,
    reading: &mut Reading<'_>,
) -> Option<Method> {
    let only = match http.map(|http| &http.methods) {
        Some(Methods::Only(only)) => only.as_slice(),
        _ => &[],
    };
    let Some(said) = given(node, "method") else {
        let usual = if has_body { Method::Post } else { Method::Get };
        return Some(only.first().cloned().unwrap_or(usual));
    };
    let method = match parse_method(said.as_str().unwrap_or_default()) {
        Ok(method) => method,
        Err(error) => return refuse_text(error, said.span, reading),
    };
    let implied = method == Method::Head && only.contains(&Method::Get);
    if !only.is_empty() && !only.contains(&method) && !implied {
        let names: Vec<&str> = only.iter().map(Method::as_str).collect();
        let message = format!("the flow does not take {}", method.as_str());
        let hint = format!("its trigger names {}", names.join(", "));
        reading.refuse(said.span, message, &hint);
    }
    Some(method)
}

fn refuse_text<T>(error: TextError, span: Span, reading: &mut Reading<'_>) -> Option<T> {
    let hint = error.hint.unwrap_or_default();
    reading.refuse(span, error.message, &hint);
    None
}

/// The path with its query, and its parameters.
fn read_path(
    node: &Node,
    http: Option<&HttpTrigger>,
    reading: &mut Reading<'_>,
) -> Option<(String, Parameters)> {
    let Some(said) = given(node, "path") else {
        let Some(pattern) = http.map(|http| &http.path) else {
            return Some(("/".to_owned(), Vec::new()));
        };
        let path = pattern.to_string();
        if let Some(parameters) = match_path(pattern, &path).filter(|it| it.is_empty()) {
            return Some((path, parameters));
        }
        let message = format!("the test does not say a path for `{pattern}`");
        let hint = format!(
            "write `in: {{ path: {} }}`",
            pattern.shape().replace("{}", "7")
        );
        reading
            .report
            .error(BAD_TEST, node.span, message)
            .hint(hint);
        return None;
    };
    let text = said.as_str().unwrap_or_default();
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    if let Err(error) = check_path(path).and_then(|()| check_query(query)) {
        return refuse_text(error, said.span, reading);
    }
    let Some(http) = http else {
        return Some((text.to_owned(), Vec::new()));
    };
    match match_path(&http.path, path) {
        Some(parameters) => Some((text.to_owned(), parameters)),
        None => {
            let message = format!("the flow does not take the path `{path}`");
            let hint = format!("its trigger takes `{}`", http.path);
            reading.refuse(said.span, message, &hint);
            None
        }
    }
}

/// The parameters of a path that a pattern takes.
fn match_path(pattern: &PathPattern, path: &str) -> Option<Parameters> {
    if pattern.segments.is_empty() && !pattern.rest {
        return (path == "/").then(Vec::new);
    }
    let mut parameters = Parameters::new();
    let mut left = path;
    for segment in &pattern.segments {
        let behind = left.strip_prefix('/')?;
        let end = behind.find('/').unwrap_or(behind.len());
        let (found, after) = behind.split_at_checked(end)?;
        match segment {
            Segment::Literal(text) if text == found => {}
            Segment::Parameter(name) if !found.is_empty() => {
                parameters.push((name.as_str().into(), found.to_owned()));
            }
            _ => return None,
        }
        left = after;
    }
    if pattern.rest {
        let rest = left.strip_prefix('/')?;
        parameters.push(("rest".into(), rest.to_owned()));
        left = "";
    }
    left.is_empty().then_some(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(segments: &[&str], rest: bool) -> PathPattern {
        let segments = segments.iter().map(|text| match text.strip_prefix(':') {
            Some(name) => Segment::Parameter(name.to_owned()),
            None => Segment::Literal((*text).to_owned()),
        });
        PathPattern {
            segments: segments.collect(),
            rest,
        }
    }

    #[test]
    fn paths_are_matched_as_requests_are() {
        let orders = pattern(&["orders", ":id"], false);
        let found = match_path(&orders, "/orders/7").unwrap();
        assert_eq!(found, [("id".into(), "7".to_owned())]);
        for path in ["/orders", "/orders/", "/orders/7/lines", "/stock/7"] {
            assert!(match_path(&orders, path).is_none(), "{path}");
        }
        let files = pattern(&["files"], true);
        let found = match_path(&files, "/files/a/b").unwrap();
        assert_eq!(found, [("rest".into(), "a/b".to_owned())]);
        assert!(match_path(&files, "/files").is_none());
        assert!(match_path(&pattern(&[], false), "/").is_some());
        assert!(match_path(&pattern(&[], false), "/a").is_none());
        assert!(match_path(&pattern(&[], true), "/a").is_some());
    }
}
