//! Tests of `http`.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use component::exchange::{Exchange, FlowContext};
use component::step::{Next, Step};
use message::{Fault, Kind, Origin, Reply, Request};

use super::DEFINITION;
use crate::testing::{
    FakeServices, LAST, assert_problems, build, exchange, lines, run, sound, sound_flow,
};

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// A worker that keeps the requests that it sends.
fn recorder(reply: Reply) -> (FakeServices, Rc<RefCell<Vec<Request>>>) {
    script(vec![reply])
}

/// The same with one reply after the other; the last one stays.
fn script(replies: Vec<Reply>) -> (FakeServices, Rc<RefCell<Vec<Request>>>) {
    let asked = Rc::new(RefCell::new(Vec::new()));
    let kept = Rc::clone(&asked);
    let services = FakeServices::scripted(move |request| {
        let mut kept = kept.borrow_mut();
        let reply = replies.get(kept.len()).or(replies.last()).unwrap();
        kept.push(request.clone());
        (Duration::ZERO, Ok(reply.clone()))
    });
    (services, asked)
}

fn reply(status: u16, fields: &[(&str, &str)], body: &str) -> Reply {
    let mut reply = Reply::new(status);
    for (name, value) in fields {
        reply.headers.append(name, value);
    }
    reply.body = body.as_bytes().to_vec().into();
    reply
}

/// Runs the step on a JSON message: the request that it sends.
fn sent(yaml: &str, body: &str) -> Request {
    let step = sound(&DEFINITION, yaml);
    let (services, asked) = recorder(Reply::new(204));
    let mut message = exchange(&[JSON], body.as_bytes());
    let next = run(&*step, &mut message, &services);
    assert!(matches!(next, Ok(Next::Continue)), "{yaml}: {next:?}");
    let mut asked = asked.take();
    assert_eq!(asked.len(), 1, "{yaml}");
    asked.remove(0)
}

fn fails(yaml: &str, body: &str) -> Fault {
    let step = sound(&DEFINITION, yaml);
    let (services, asked) = recorder(Reply::new(204));
    let mut message = exchange(&[JSON], body.as_bytes());
    let fault = run(&*step, &mut message, &services).expect_err(yaml);
    assert!(asked.borrow().is_empty(), "{yaml}");
    fault
}

fn answered(yaml: &str, replies: Vec<Reply>) -> (Exchange, Result<Next, Fault>, Vec<Request>) {
    let step: Box<dyn Step> = sound(&DEFINITION, yaml);
    let (services, asked) = script(replies);
    let mut message = exchange(&[JSON], b"{\"id\": 7}");
    let next = run(&*step, &mut message, &services);
    let asked = asked.take();
    (message, next, asked)
}

#[test]
fn the_method_is_what_is_written_or_follows_from_the_body() {
    for (yaml, method, body) in [
        ("crm:/x", "GET", ""),
        ("GET crm:/x", "GET", ""),
        ("POST crm:/x", "POST", "{\"id\":7}"),
        ("PATCH crm:/x", "PATCH", "{\"id\":7}"),
        ("DELETE crm:/x", "DELETE", ""),
        ("{ to: crm:/x }", "GET", ""),
        ("{ to: crm:/x, body: { a: 1 } }", "POST", "{\"a\":1}"),
        ("{ to: crm:/x, body: null }", "GET", ""),
        ("{ to: crm:/x, method: PUT }", "PUT", "{\"id\":7}"),
        ("{ to: crm:/x, method: PUT, body: null }", "PUT", ""),
        ("{ to: crm:/x, method: GET, body: a }", "GET", "a"),
    ] {
        let request = sent(yaml, "{\"id\":7}");
        assert_eq!(request.method.as_str(), method, "{yaml}");
        let sent = String::from_utf8_lossy(request.body.as_bytes()).into_owned();
        assert_eq!(sent, body, "{yaml}");
    }
}

#[test]
fn a_body_is_sent_with_what_describes_it() {
    for (yaml, content_type, body) in [
        ("POST crm:/x", "application/json", "{\"id\": 7}"),
        (
            "{ to: crm:/x, body: { n: \"${ .id }\" } }",
            "application/json",
            "{\"n\":7}",
        ),
        (
            "{ to: crm:/x, body: \"n ${ .id }\" }",
            "text/plain; charset=utf-8",
            "n 7",
        ),
        (
            "{ to: crm:/x, headers: { Content-Type: application/x-www-form-urlencoded }, \
             body: { a: \"b&c\" } }",
            "application/x-www-form-urlencoded",
            "a=b%26c",
        ),
        (
            "{ to: crm:/x, headers: { Content-Type: text/xml }, body: { a: { b: \"<\" } } }",
            "text/xml",
            "<a><b>&lt;</b></a>",
        ),
        (
            "{ to: crm:/x, headers: { Content-Type: text/csv }, body: \"a,b\" }",
            "text/csv",
            "a,b",
        ),
    ] {
        let request = sent(yaml, "{\"id\": 7}");
        let found = request
            .headers
            .get("Content-Type")
            .map(String::from_utf8_lossy);
        assert_eq!(found.as_deref(), Some(content_type), "{yaml}");
        assert_eq!(
            String::from_utf8_lossy(request.body.as_bytes()),
            body,
            "{yaml}"
        );
    }
}

#[test]
fn nothing_of_the_clients_request_goes_along() {
    let step = sound(&DEFINITION, "GET crm:/x");
    let (services, asked) = recorder(Reply::new(204));
    let mut message = exchange(&[("Cookie", "a"), ("Authorization", "b"), JSON], b"{}");
    run(&*step, &mut message, &services).unwrap();
    assert_eq!(lines(&asked.borrow()[0].headers), [""; 0]);
    assert_eq!(asked.borrow()[0].query, None);
}

#[test]
fn a_compressed_body_goes_on_with_its_coding() {
    let step = sound(&DEFINITION, "POST crm:/x");
    let (services, asked) = recorder(Reply::new(204));
    let mut message = exchange(&[("Content-Encoding", "gzip"), JSON], b"packed");
    run(&*step, &mut message, &services).unwrap();
    let lines = lines(&asked.borrow()[0].headers);
    assert_eq!(
        lines,
        ["Content-Encoding: gzip", "Content-Type: application/json"]
    );
}

#[test]
fn headers_are_made_of_values_and_null_leaves_one_out() {
    let yaml = "{ to: crm:/x, headers: { X-Id: \"n-${ .id }\", X-No: \"${ .no }\", X-N: 7 } }";
    let request = sent(yaml, "{\"id\":7}");
    assert_eq!(lines(&request.headers), ["X-Id: n-7", "X-N: 7"]);
    let yaml = "{ to: crm:/x, headers: { X-Id: \"${ .id }\" } }";
    for value in ["a\\r\\nX-Evil: 1", "a\\nb", "a\\u0000", "a\\u007f"] {
        let fault = fails(yaml, &format!("{{\"id\": \"{value}\"}}"));
        assert_eq!((fault.name(), fault.status), ("invalid", 400), "{value}");
    }
    for value in ["[1]", "{}"] {
        let fault = fails(yaml, &format!("{{\"id\": {value}}}"));
        assert_eq!((fault.name(), fault.status), ("invalid", 400), "{value}");
    }
}

#[test]
fn parameters_are_added_to_the_query() {
    let body = r#"{"tags": ["a b", "c&d"], "n": null, "x": "é"}"#;
    for (yaml, query) in [
        (
            "{ to: crm:/x, query: { a: 1, t: \"${ .tags }\" } }",
            Some("a=1&t=a%20b&t=c%26d"),
        ),
        (
            "{ to: \"crm:/x?q=1\", query: { \"a b\": \"${ .x }\" } }",
            Some("q=1&a%20b=%C3%A9"),
        ),
        ("{ to: crm:/x, query: { n: \"${ .n }\" } }", None),
        (
            "{ to: crm:/x, query: { dry: true, e: \"\" } }",
            Some("dry=true&e="),
        ),
        ("{ to: \"crm:/x?a=${ .x }\" }", Some("a=%C3%A9")),
    ] {
        assert_eq!(sent(yaml, body).query.as_deref(), query, "{yaml}");
    }
    let fault = fails("{ to: crm:/x, query: { o: { a: \"${ .x }\" } } }", body);
    assert_eq!(fault.name(), "invalid");
}

#[test]
fn the_path_stands_behind_that_of_the_connection() {
    assert_eq!(
        sent("GET crm:/a/${ .id }", "{\"id\":\"b/c\"}").path,
        "/api/a/b%2Fc"
    );
    assert_eq!(sent("GET http://a.example/a", "{}").path, "/a");
    assert_eq!(
        fails("GET crm:/a/${ .id }", "{\"id\":\"..\"}").name(),
        "invalid"
    );
}

#[test]
fn the_reply_becomes_the_body_and_its_head_a_variable() {
    let flow = sound_flow(
        "- http: GET crm:/x\n- map: '{ a: .a, s: $reply.status, h: $reply.headers.\"x-a\" }'",
    );
    let fields = [JSON, ("X-A", "1")];
    let (services, _) = recorder(reply(201, &fields, "{\"a\": 1.50}"));
    let result = flow.run("{}", &services).unwrap();
    assert_eq!(result, "{\"a\":1.50,\"s\":201,\"h\":\"1\"}");
}

#[test]
fn a_body_is_read_as_the_step_says() {
    let yaml = "{ to: crm:/x, decode: json }";
    let (mut message, next, _) = answered(
        yaml,
        vec![reply(200, &[("Content-Type", "text/plain")], "[1]")],
    );
    next.unwrap();
    assert_eq!(expr::value::shown(message.value().unwrap()), "[1]");
    let (mut message, next, _) = answered(yaml, vec![reply(200, &[], "{")]);
    next.unwrap();
    assert_eq!(message.value().unwrap_err().name(), "connection");
}

#[test]
fn a_status_that_is_not_expected_is_a_failure() {
    for (yaml, status, name) in [
        ("crm:/x", 200, None),
        ("crm:/x", 299, None),
        ("crm:/x", 302, Some("3xx")),
        ("crm:/x", 404, Some("4xx")),
        ("crm:/x", 503, Some("5xx")),
        ("{ to: crm:/x, expect: [2xx, 404] }", 404, None),
        ("{ to: crm:/x, expect: [404] }", 200, Some("status")),
        ("{ to: crm:/x, expect: [4xx] }", 499, None),
        ("{ to: crm:/x, expect: [4xx] }", 500, Some("5xx")),
    ] {
        let (message, next, _) = answered(yaml, vec![reply(status, &[], "why")]);
        let fault = next.err();
        assert_eq!(fault.as_ref().map(Fault::name), name, "{yaml} {status}");
        let reply = message.reply.as_ref().unwrap();
        assert_eq!(
            (reply.status, reply.content.raw()),
            (status, Some(&b"why"[..]))
        );
        match fault {
            Some(fault) => assert_eq!((fault.status, fault.seen_status()), (502, status)),
            None => assert_eq!(message.content.raw(), Some(&b"why"[..])),
        }
    }
}

#[test]
fn a_failure_says_when_to_come_back() {
    for (text, seconds) in [("7", Some(7)), ("soon", None)] {
        let (_, next, _) = answered("crm:/x", vec![reply(503, &[("Retry-After", text)], "")]);
        let wait = next.unwrap_err().retry_after;
        assert_eq!(wait, seconds.map(Duration::from_secs));
    }
}

#[test]
fn a_connection_that_fails_fails_the_step() {
    let step = sound(&DEFINITION, "POST crm:/x");
    let mut message = exchange(&[JSON], b"{}");
    let fault = run(&*step, &mut message, &FakeServices::default()).unwrap_err();
    assert_eq!((fault.name(), fault.status), ("connection", 502));
    assert_eq!(message.content.raw(), Some(&b"{}"[..]));
}

#[test]
fn redirects_are_followed_on_the_same_host_only() {
    let yaml = "{ to: crm:/x, redirects: 2 }";
    let there = |to: &str| reply(307, &[("Location", to)], "");
    for (location, path, query) in [
        ("/y", "/y", None),
        ("/y?a=1#f", "/y", Some("a=1")),
        ("http://crm.example:81/z", "/z", None),
        ("http://crm.example:81", "/", None),
        ("http://crm.example:81//a", "//a", None),
    ] {
        let (_, next, asked) = answered(yaml, vec![there(location), Reply::new(204)]);
        assert!(next.is_ok(), "{location}");
        assert_eq!(asked[1].path, path, "{location}");
        assert_eq!(asked[1].query.as_deref(), query, "{location}");
        assert_eq!(asked[1].parameters[0].1, path[1..]);
    }
    for location in [
        "http://other.example/",
        "https://crm.example:81/",
        "//other.example/",
        "http://crm.example:812/",
        "http://crm.example:81.evil.example/",
        "http://crm.example:81@evil.example/",
        "relative",
        "/a b",
        "/\u{1}",
    ] {
        let (_, next, asked) = answered(yaml, vec![there(location)]);
        let fault = next.expect_err(location);
        assert_eq!(fault.name(), "connection", "{location}");
        assert_eq!(asked.len(), 1, "{location}");
    }
}

#[test]
fn redirects_are_bounded_and_none_is_followed_by_itself() {
    let there = reply(302, &[("Location", "/y")], "");
    let (_, next, asked) = answered("crm:/x", vec![there.clone()]);
    assert_eq!((next.unwrap_err().name(), asked.len()), ("3xx", 1));
    let (_, next, asked) = answered("{ to: crm:/x, redirects: 2 }", vec![there]);
    let fault = next.unwrap_err();
    assert_eq!(fault.cause.as_deref(), Some("too many redirects"));
    assert_eq!(asked.len(), 3);
    let without = reply(302, &[], "");
    let (_, next, _) = answered("{ to: crm:/x, redirects: 2 }", vec![without]);
    assert_eq!(next.unwrap_err().name(), "3xx");
}

#[test]
fn a_redirect_keeps_the_method_or_becomes_get() {
    for (status, method, expected, keeps_body) in [
        (301, "POST", "GET", false),
        (302, "POST", "GET", false),
        (302, "PUT", "PUT", true),
        (303, "PUT", "GET", false),
        (303, "HEAD", "HEAD", false),
        (307, "POST", "POST", true),
        (308, "PUT", "PUT", true),
    ] {
        let yaml = format!("{{ to: crm:/x, method: {method}, redirects: 1 }}");
        let there = reply(status, &[("Location", "/y")], "");
        let (_, next, asked) = answered(&yaml, vec![there, Reply::new(204)]);
        assert!(next.is_ok());
        assert_eq!(asked[1].method.as_str(), expected, "{status} {method}");
        assert_eq!(
            !asked[1].body.as_bytes().is_empty(),
            keeps_body,
            "{status} {method}"
        );
        let has_type = asked[1].headers.get("Content-Type").is_some();
        assert_eq!(has_type, keeps_body, "{status} {method}");
    }
}

#[test]
fn only_a_step_that_sends_the_body_reads_it() {
    for (yaml, reads) in [
        ("GET crm:/x", false),
        ("POST crm:/x", true),
        ("GET crm:/${ .id }", true),
        ("GET crm:/${ $path.id }", false),
        ("{ to: crm:/x, body: { a: 1 } }", false),
        ("{ to: crm:/x, headers: { A: \"${ .a }\" } }", true),
        ("{ to: crm:/x, query: { a: \"${ $in.body }\" } }", true),
    ] {
        let step = sound(&DEFINITION, yaml);
        assert_eq!(step.reads_body(), reads, "{yaml}");
        assert!(step.waits() && !step.ends_flow());
    }
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            (
                "\"http://${ .host }/x\"",
                &["IT0240 1:1 a value cannot decide which host is asked"],
            ),
            (
                "{ to: nobody:/x }",
                &["IT0251 1:7 there is no connection `nobody`"],
            ),
            (
                "{ to: crm:/x, redirects: 21 }",
                &["IT0257 1:26 `redirects` is outside its range"],
            ),
            (
                "{ to: crm:/x, expect: [600] }",
                &["IT0257 1:23 `expect` lists statuses from 200 to 599, or classes such as `2xx`"],
            ),
            (
                "{ to: crm:/x, expect: [1xx] }",
                &["IT0257 1:23 `expect` lists statuses from 200 to 599, or classes such as `2xx`"],
            ),
            (
                "{ to: crm:/x, query: [a] }",
                &["IT0257 1:22 `query` is a mapping, not a list"],
            ),
            (
                "{ to: crm:/x, headers: { Host: a } }",
                &["IT0243 1:26 the header `Host` belongs to the engine"],
            ),
            ("{ to: crm:/x, decode: yaml }", &["IT0114 1:23"]),
            ("{ method: GET }", &["IT0113 1:1"]),
        ],
    );
}

#[test]
fn a_query_is_bounded_while_it_is_written() {
    let list = expr::value::array((0..100_000).map(expr::value::integer));
    let parameters = expr::value::object([("n".repeat(5000), list)]);
    let mut query = None;
    let fault = super::add_query(&parameters, &mut query).unwrap_err();
    assert_eq!(fault.name(), "invalid");
    let parameters = expr::value::object([("n".to_owned(), expr::value::integer(1))]);
    super::add_query(&parameters, &mut query).unwrap();
    assert_eq!(query.as_deref(), Some("n=1"));
}

/// A form or XML in the body is bounded like every body that the flow makes, and may be far longer
/// than what it is made of.
#[test]
fn a_body_that_the_step_writes_is_bounded_while_it_is_written() {
    for media_type in ["application/x-www-form-urlencoded", "application/xml"] {
        let yaml = format!(
            "{{ to: crm:/x, headers: {{ Content-Type: {media_type} }}, \
             body: {{ \"{}\": \"${{ . }}\" }} }}",
            "n".repeat(1000)
        );
        let step = sound(&DEFINITION, &yaml);
        for (body_max, is_sent) in [(10_000, false), (1_000_000, true)] {
            let (services, asked) = recorder(Reply::new(204));
            let body = format!("[{}1]", "1,".repeat(400));
            let mut message = exchange(&[JSON], body.as_bytes());
            let mut context = FlowContext::new("test");
            context.body_max = body_max;
            message.context = Arc::new(context);
            let result = run(&*step, &mut message, &services);
            assert_eq!(asked.borrow().len(), usize::from(is_sent), "{media_type}");
            let cause = result.err().and_then(|fault| fault.cause);
            let expected = (!is_sent).then_some("the result is too large");
            assert_eq!(cause.as_deref(), expected, "{media_type}");
            // Beside the worker when it is more than that writes at one go.
            let beside = services.beside.get().0;
            assert_eq!(beside, usize::from(is_sent), "{media_type}");
            let sent = asked.borrow().first().map(|it| it.body.as_bytes().len());
            assert!(sent.is_none_or(|it| it > 400_000), "{sent:?}");
        }
    }
}

/// Calls a URL of a message: where the request goes, and the request.
fn called(yaml: &str, lines: &[(&str, &str)], body: &str) -> Result<(String, Request), Fault> {
    let step = sound(&DEFINITION, yaml);
    let (services, asked) = recorder(Reply::new(204));
    let fields: Vec<(&str, &str)> = [&[JSON], lines].concat();
    let mut message = exchange(&fields, body.as_bytes());
    let result = run(&*step, &mut message, &services);
    let plans = services.plans.take();
    result?;
    let plan = plans.first().unwrap();
    assert!(plan.upstream.egress.is_guarded(), "{yaml}");
    let query = plan.query.as_ref().map(|it| format!("?{it}"));
    let shown = format!(
        "{}{}{}",
        plan.upstream.authority(),
        plan.path,
        query.unwrap_or_default()
    );
    Ok((shown, asked.borrow()[0].clone()))
}

#[test]
fn a_url_of_the_message_is_called_behind_the_guard() {
    let yaml = "{ to: \"${ .url }\", egress: guarded, method: POST, query: { a: \"b c\" } }";
    let body = "{\"url\": \"https://Hooks.example/x%20y?z=1#f\"}";
    let (shown, request) = called(yaml, &[], body).unwrap();
    assert_eq!(shown, "hooks.example/x%20y?z=1");
    assert_eq!(request.query.as_deref(), Some("a=b%20c"));
    assert_eq!(request.body.as_bytes(), body.as_bytes());
    let computed = "{ to: \"${ \\\"https://\\\" + .host + \\\"/x\\\" }\", egress: guarded }";
    let (shown, _) = called(computed, &[], "{\"host\": \"a.example\"}").unwrap();
    assert_eq!(shown, "a.example/x");
}

#[test]
fn a_url_of_the_message_that_may_not_be_called_is_refused() {
    let yaml = "{ to: \"${ .url }\", egress: guarded }";
    for (url, status, detail) in [
        (
            "\"https://127.0.0.1/\"",
            403,
            "this address may not be called",
        ),
        (
            "\"http://a.example/\"",
            403,
            "URLs with this scheme may not be called",
        ),
        (
            "\"https://a.example:22/\"",
            403,
            "URLs with this port may not be called",
        ),
        (
            "\"https://u:p@a.example/\"",
            403,
            "the URL cannot be used: it has a user name or a password",
        ),
        ("null", 400, "a URL is a text, not null"),
        (
            "[\"https://a.example/\"]",
            400,
            "a URL is a text, not array",
        ),
    ] {
        let fault = called(yaml, &[], &format!("{{\"url\": {url}}}")).unwrap_err();
        assert_eq!((fault.status, &*fault.detail), (status, detail), "{url}");
    }
}

#[test]
fn what_a_name_leads_to_is_refused_like_what_stands_in_the_url() {
    let refused = Fault::new(
        Kind::Forbidden,
        Origin::Upstream,
        "the back end may not be called",
    )
    .with_status(502)
    .with_cause("10.0.0.1, a private address");
    for (yaml, status) in [
        ("{ to: \"${ .url }\", egress: guarded }", 403),
        ("{ to: \"https://intranet/\", egress: guarded }", 502),
    ] {
        let refused = refused.clone();
        let services = FakeServices::scripted(move |_| (Duration::ZERO, Err(refused.clone())));
        let step = sound(&DEFINITION, yaml);
        let mut message = exchange(&[JSON], b"{\"url\": \"https://intranet/\"}");
        let fault = run(&*step, &mut message, &services).unwrap_err();
        assert_eq!(
            (fault.kind, fault.status),
            (Kind::Forbidden, status),
            "{yaml}"
        );
        let cause = fault.cause.unwrap();
        assert!(cause.contains("10.0.0.1"), "the log tells: {cause}");
        assert!(!fault.detail.contains("10.0.0.1"));
    }
}

#[test]
fn guarded_requests_tell_by_which_engines_they_have_come() {
    let given = "{ to: \"${ .url }\", egress: guarded }";
    let fixed = "{ to: \"https://a.example/\", egress: guarded }";
    let body = "{\"url\": \"https://a.example/\"}";
    for yaml in [given, fixed] {
        let hops = [("CDN-Loop", "one; v=1"), ("cdn-loop", "two")];
        let (_, request) = called(yaml, &hops, body).unwrap();
        assert_eq!(
            request.headers.get("CDN-Loop"),
            Some(&b"one; v=1, two"[..]),
            "{yaml}"
        );
        let (_, request) = called(yaml, &[], body).unwrap();
        assert_eq!(request.headers.get("CDN-Loop"), None, "{yaml}");
    }
    let open = sent("GET crm:/x", "{}");
    assert_eq!(open.headers.get("CDN-Loop"), None);
}

#[test]
fn a_guard_that_could_not_hold_is_told() {
    assert_problems(
        &DEFINITION,
        &[
            (
                "{ to: \"${ .url }\" }",
                &["IT0240 1:7 a value cannot decide which host is asked"],
            ),
            (
                "{ to: \"https://${ .host }/x\", egress: guarded }",
                &["IT0240 1:7 a value cannot decide which host is asked"],
            ),
            (
                "{ to: \"${ .a } ${ .b }\", egress: guarded }",
                &["IT0240 1:7 a value cannot decide which host is asked"],
            ),
            (
                "{ to: \"${ .a }/x}\", egress: guarded }",
                &["IT0240 1:7 a value cannot decide which host is asked"],
            ),
            (
                "{ to: crm:/x, egress: guarded }",
                &["IT0245 1:23 a connection of `use:` has its own settings"],
            ),
            (
                "{ to: \"${ .url }\", egress: guarded, redirects: 2 }",
                &["IT0257 1:48 redirects are not followed where the URL is a value"],
            ),
            (
                "{ to: \"${ .url }\", egress: guarded, tls: { server_name: a.example } }",
                &["IT0241 1:42 `server_name` cannot be the name of all hosts"],
            ),
        ],
    );
    let open = build(&DEFINITION, "{ to: \"https://a/\", egress: open }", LAST);
    assert!(open.is_err());
}
