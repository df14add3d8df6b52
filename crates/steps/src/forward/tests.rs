//! Plans as YAML makes them, and a forward in the middle of a flow.

use super::*;
use crate::testing::MIDDLE;
use crate::testing::{FakeServices, LAST, Place, assert_problems, build, exchange, lines, run};
use message::Reply;

fn plan(yaml: &str, place: Place) -> ForwardPlan {
    let step = build(&DEFINITION, yaml, place).unwrap_or_else(|found| panic!("{yaml}: {found:?}"));
    ForwardPlan::clone(step.forwards().unwrap())
}

#[test]
fn the_short_form_has_the_defaults() {
    let plan = plan("http://backend:8688/a?b=1", LAST);
    assert_eq!(plan.upstream.authority(), "backend:8688");
    assert_eq!(
        (plan.path.as_str(), plan.query.as_deref()),
        ("/a", Some("b=1"))
    );
    assert_eq!(plan.method, None);
    assert_eq!(plan.host_field, HostField::Target);
    assert!(plan.x_forwarded && !plan.forwarded && !plan.appends_rest);
    assert_eq!(plan.via.as_deref(), Some("intertie"));
    assert!(plan.request_fields.is_empty() && plan.reply_fields.is_empty());
}

#[test]
fn a_connection_brings_its_upstream_and_the_beginning_of_the_path() {
    let plan = plan("PUT crm:/customers/7?a=b", LAST);
    assert_eq!(plan.upstream.authority(), "crm.example:81");
    assert_eq!(plan.path, "/api/customers/7");
    assert_eq!(plan.query.as_deref(), Some("a=b"));
}

#[test]
fn an_https_target_has_tls_and_both_protocols() {
    let upstream = plan("https://backend/", LAST).upstream;
    assert!(upstream.tls.is_some());
    assert_eq!(upstream.protocols, [Protocol::Http2, Protocol::Http1]);
    let yaml = "
to: https://backend:8443/
protocols: [http/1.1]
tls:
  ca: ca.pem
  cert: me.pem
  key: me.key
  server_name: other.example
  pin: [sha256:00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF]
  min_version: '1.3'
";
    let upstream = plan(yaml, LAST).upstream;
    assert_eq!(upstream.protocols, [Protocol::Http1]);
    let tls = upstream.tls.clone().unwrap();
    assert_eq!(tls.ca.unwrap().path, "ca.pem");
    assert_eq!(tls.identity.unwrap().key.path, "me.key");
    assert_eq!(tls.server_name.as_deref(), Some("other.example"));
    assert_eq!(tls.pins[0][..3], [0x00, 0x11, 0x22]);
}

#[test]
fn what_a_star_matched_is_appended() {
    assert!(
        plan(
            "PUT http://b/a",
            Place {
                rest: true,
                is_last: true
            }
        )
        .appends_rest
    );
    assert_eq!(plan("PUT http://b/a", LAST).method, Some(Method::Put));
}

#[test]
fn the_mapping_says_the_rest() {
    let yaml = "
to: http://[::1]:81/x
method: PUT
host: api.example:8080
headers:
  set: { X-A: 1.50, X-B: true, X-C: text }
  remove: [Cookie]
reply_headers: { remove: [Server], set: { Cache-Control: no-store } }
forwarded: both
via: gate
timeouts: { connect: 1s, response: 250ms }
";
    let plan = plan(yaml, LAST);
    assert_eq!(
        (plan.upstream.authority().as_str(), plan.method),
        ("[::1]:81", Some(Method::Put))
    );
    assert_eq!(plan.host_field, HostField::Fixed("api.example:8080".into()));
    let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected = [set("X-A", "1.50"), set("X-B", "true"), set("X-C", "text")];
    assert_eq!(plan.request_fields.set, expected);
    assert_eq!(plan.request_fields.remove, ["Cookie"]);
    assert_eq!(plan.reply_fields.set, [set("Cache-Control", "no-store")]);
    assert_eq!(plan.reply_fields.remove, ["Server"]);
    assert!(plan.x_forwarded && plan.forwarded);
    assert_eq!(plan.via.as_deref(), Some("gate"));
    assert_eq!(plan.timeouts.connect, Some(Duration::from_secs(1)));
    assert_eq!(plan.timeouts.response, Some(Duration::from_millis(250)));
    assert_eq!(plan.timeouts.body, None);
}

#[test]
fn what_a_client_orders_of_aws_is_dropped_before_it_is_signed() {
    for yaml in [
        "PUT files:/a".to_owned(),
        "{ to: 'files:/a', headers: { set: { X-Amz-Acl: private } } }".to_owned(),
    ] {
        let edits = plan(&yaml, LAST).request_fields;
        for name in ["X-Amz-Acl", "x-amz-copy-source", "X-AMZ-", "x-amz-date"] {
            assert!(edits.drops(name.as_bytes()), "{name}");
        }
        for name in ["x-amz", "X-Amzn-Trace-Id", "Content-Type"] {
            assert!(!edits.drops(name.as_bytes()), "{name}");
        }
    }
    let plain = plan("PUT crm:/a", LAST).request_fields;
    assert!(!plain.drops(b"x-amz-acl"));
}

#[test]
fn hosts_and_proxy_headers_can_be_chosen() {
    let with = |more: &str| plan(&format!("{{ to: 'http://b/', {more} }}"), LAST);
    assert_eq!(with("host: keep").host_field, HostField::Keep);
    assert_eq!(with("host: target").host_field, HostField::Target);
    assert_eq!(with("via: false").via, None);
    let flags = |plan: ForwardPlan| (plan.x_forwarded, plan.forwarded);
    assert_eq!(flags(with("forwarded: none")), (false, false));
    assert_eq!(flags(with("forwarded: rfc7239")), (false, true));
    assert_eq!(flags(with("forwarded: x-forwarded")), (true, false));
    let own = with("forwarded: none, via: false, headers: { set: { Via: x, X-Forwarded-For: y } }");
    assert_eq!(own.request_fields.set.len(), 2);
}

#[test]
fn every_problem_is_told_at_its_place() {
    let cases: &[(&str, &[&str])] = &[
        ("5", &["IT0112 1:1"]),
        ("cmr:/a", &["IT0251 1:1 there is no connection `cmr`"]),
        (
            "{ to: queue:/a }",
            &["IT0251 1:7 `queue` is no `http` connection"],
        ),
        (
            "{ to: 'crm:/a', tls: {}, protocols: [h2] }",
            &[
                "IT0245 1:22 a connection of `use:` has its own settings",
                "IT0245 1:37 a connection of `use:` has its own settings",
            ],
        ),
        (
            "{ to: 'http://a', tls: {} }",
            &["IT0241 1:24 `tls` has no effect on an `http` URL"],
        ),
        (
            "{ to: 'https://a', tls: { cert: c, pin: [sha1:00], verify: pin, ca: c } }",
            &[
                "IT0241 1:25 `cert` and `key` belong together",
                "IT0241 1:42 a pin is `sha256:` and 64 hexadecimal digits",
                "IT0241 1:69 `ca` has no effect with `verify: pin`",
            ],
        ),
        (
            "{ to: 'https://a', tls: { verify: pin }, protocols: [] }",
            &[
                "IT0241 1:25 `verify: pin` needs a `pin`",
                "IT0252 1:53 `protocols` is empty",
            ],
        ),
        (
            "{ to: 'http://a', protocols: [h2, http/1.1] }",
            &["IT0252 1:30 without TLS nobody can choose between protocols"],
        ),
        (
            "PUT ws://a",
            &["IT0620 1:1 a WebSocket handshake is a `GET`"],
        ),
        (
            "{ to: 'wss://a', protocols: [h2, http/1.1], timeouts: { body: 1s } }",
            &[
                "IT0620 1:29 a WebSocket handshake goes over HTTP/1.1",
                "IT0245 1:63 a WebSocket handshake has no body",
            ],
        ),
        (
            "http://${ .host }/a",
            &["IT0240 1:1 a value cannot decide which host is asked"],
        ),
        ("{ method: PUT }", &["IT0113 1:1"]),
        (
            "{ to: 'PUT http://a/' }",
            &["IT0240 1:7 a URL has no spaces"],
        ),
        ("{ to: 'http://a/', tto: 1 }", &["IT0111 1:20"]),
        (
            "{ to: 'http://a/', method: put, host: 'http://a', via: a b }",
            &[
                "IT0240 1:28 `put` is not a method",
                "IT0244 1:39 `http://a` is not a host",
                "IT0244 1:56 `a b` cannot stand in `Via`",
            ],
        ),
        (
            "{ to: 'http://a/', headers: { set: { Host: x, Content-Length: 1, te: x }, \
             remove: [Connection, a b] } }",
            &[
                "IT0243 1:84 the header `Connection` belongs to the engine",
                "IT0242 1:96 `a b` is not a header name",
                "IT0243 1:38 the header `Host` belongs to the engine",
                "IT0243 1:47 the header `Content-Length` belongs to the engine",
                "IT0243 1:66 the header `te` belongs to the engine",
            ],
        ),
        (
            "{ to: 'http://a/', headers: { set: { X-Forwarded-For: x, Via: y, \
             A: \"b\\r\\nc\", a: 1 } } }",
            &[
                "IT0243 1:38 the header `X-Forwarded-For` belongs to the engine",
                "IT0243 1:58 the header `Via` belongs to the engine",
                "IT0242 1:69 this value cannot be sent in a header",
            ],
        ),
        (
            "{ to: 'http://a/', headers: { set: { A: b, a: c } } }",
            &["IT0242 1:44 the header `a` stands twice"],
        ),
        (
            "{ to: 'http://a/', timeouts: { connect: 0s, body: 25h } }",
            &[
                "IT0250 1:41 this time-out is outside its range",
                "IT0250 1:51 this time-out is outside its range",
            ],
        ),
    ];
    assert_problems(&DEFINITION, cases);
}

#[test]
fn a_reply_to_head_is_no_reply_to_other_methods() {
    let refused = "the reply to `HEAD` has no body and cannot be the client's reply";
    let cases = [
        ("HEAD http://b/a", format!("IT0258 1:1 {refused}")),
        (
            "{ to: http://b/a, method: HEAD }",
            format!("IT0258 1:27 {refused}"),
        ),
    ];
    for (yaml, expected) in cases {
        assert_eq!(build(&DEFINITION, yaml, LAST).err().unwrap(), [expected]);
        assert!(build(&DEFINITION, yaml, MIDDLE).is_ok());
    }
}

#[test]
fn early_hints_are_passed_on_where_the_flow_says_so() {
    let with = |more: &str| plan(&format!("{{ to: 'http://b/'{more} }}"), LAST);
    assert!(!with("").early_hints);
    assert!(with(", early_hints: true").early_hints);
    let yaml = "{ to: 'http://a/', early_hints: true }";
    let problems = build(&DEFINITION, yaml, MIDDLE).err().unwrap();
    assert_eq!(
        problems,
        ["IT0245 1:20 `early_hints` has no effect before another step"]
    );
}

#[test]
fn reply_headers_in_the_middle_are_refused() {
    let yaml = "{ to: 'http://a/', reply_headers: { remove: [A] } }";
    let place = Place {
        rest: false,
        is_last: false,
    };
    let problems = build(&DEFINITION, yaml, place).err().unwrap();
    let expected = "IT0245 1:20 `reply_headers` has no effect before another step";
    assert_eq!(problems, [expected]);
}

#[test]
fn a_websocket_target_takes_handshakes_over_http_1_1() {
    let plain = plan("ws://b/chat?a", LAST);
    assert!(plain.websocket && plain.upstream.tls.is_none());
    assert_eq!(plain.query.as_deref(), Some("a"));
    let secure = plan("{ to: 'wss://b/' }", LAST);
    assert!(secure.websocket && secure.upstream.tls.is_some());
    assert_eq!(secure.upstream.protocols, [Protocol::Http1]);
    assert!(!plan("https://b/", LAST).websocket);
    let problems = build(&DEFINITION, "ws://b/", MIDDLE).err().unwrap();
    assert!(problems[0].starts_with("IT0620 1:1 a WebSocket target is the last"));
}

/// Path and query that a target is asked for.
fn asked(yaml: &str, place: Place, rest: Option<&str>) -> (String, Option<String>) {
    let step = build(&DEFINITION, yaml, place).unwrap();
    assert!(step.forwards().is_none() && step.streams());
    let mut exchange = exchange(&[("Content-Type", "application/json")], b"{}");
    let rest = rest.map(|rest| ("rest".into(), rest.to_owned()));
    exchange.request.parameters = vec![("room".into(), "a b/c".to_owned())];
    exchange.request.parameters.extend(rest);
    let next = run(&*step, &mut exchange, &FakeServices::default());
    let Ok(Next::Forward(plan)) = next else {
        panic!("it forwards: {next:?}")
    };
    assert!(plan.appends_rest && plan.query.is_none());
    let request = &exchange.request;
    let (_, rest) = &request.parameters[0];
    (format!("{}{rest}", plan.path), request.query.clone())
}

#[test]
fn a_target_may_depend_on_the_message() {
    let starred = Place {
        rest: true,
        is_last: true,
    };
    let query = |text: &str| Some(text.to_owned());
    let cases = [
        (
            "ws://b/rooms/${ $path.room }",
            (LAST, None),
            ("/rooms/a%20b%2Fc", query("a=1")),
        ),
        (
            "{ to: 'http://b/r?room=${ $path.room }' }",
            (LAST, None),
            ("/r", query("room=a%20b%2Fc&a=1")),
        ),
        (
            "http://b/${ $path.room }",
            (starred, Some("x/y")),
            ("/a%20b%2Fc/x/y", query("a=1")),
        ),
        (
            "crm:/${ $path.room }",
            (LAST, Some("not appended")),
            ("/api/a%20b%2Fc", query("a=1")),
        ),
    ];
    for (yaml, (place, rest), (path, query)) in cases {
        assert_eq!(asked(yaml, place, rest), (path.to_owned(), query), "{yaml}");
    }
    let step = build(&DEFINITION, "http://b/${ .id }", LAST).unwrap();
    assert!(step.reads_body());
    let step = build(&DEFINITION, "http://b/${ $path.id }", LAST).unwrap();
    assert!(!step.reads_body());
}

#[test]
fn in_the_middle_the_reply_becomes_the_message() {
    let step = build(&DEFINITION, "http://backend/a", MIDDLE).unwrap();
    let mut services = FakeServices::default();
    let mut reply = Reply::with_content(201, "application/json", b"{}".to_vec());
    reply.headers.append("Set-Cookie", "secret");
    services.reply = Some(reply);
    let mut exchange = exchange(
        &[
            ("Content-Type", "text/plain"),
            ("Content-Digest", "x"),
            ("A", "1"),
        ],
        b"old",
    );
    assert!(matches!(
        run(&*step, &mut exchange, &services),
        Ok(Next::Continue)
    ));
    assert_eq!(
        *services.calls.borrow(),
        [("backend".to_owned(), b"old".to_vec())]
    );
    let request = exchange.take_request().unwrap();
    assert_eq!(request.body.as_bytes(), b"{}");
    assert_eq!(
        lines(&request.headers),
        ["A: 1", "Content-Type: application/json"]
    );
}

#[test]
fn in_the_middle_anything_but_success_is_a_fault() {
    let step = build(&DEFINITION, "http://backend/a", MIDDLE).unwrap();
    let mut services = FakeServices::default();
    for status in [300, 304, 404, 500] {
        services.reply = Some(Reply::new(status));
        let fault = run(&*step, &mut exchange(&[], b""), &services).unwrap_err();
        assert_eq!((fault.status, fault.kind), (502, message::Kind::Status));
        assert_eq!(
            fault.cause.as_deref(),
            Some(format!("status {status}").as_str())
        );
        assert!(!fault.detail.contains("backend"));
    }
    services.reply = None;
    assert_eq!(
        run(&*step, &mut exchange(&[], b""), &services)
            .unwrap_err()
            .status,
        502
    );
}
