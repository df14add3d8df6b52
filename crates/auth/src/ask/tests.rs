//! A service that decides.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use component::access::Caller;
use component::state::States;
use message::{Fault, Reply, Request};

use crate::testing::{Worker, door, down, request, run};

const SECOND: Duration = Duration::from_secs(1);

fn yaml(more: &str) -> String {
    format!(
        "ways: {{ sso: {{ ask: {{ url: \"http://sso.example/check?x=1\"{more} }} }} }}\nauth: sso\n"
    )
}

fn reply(status: u16, fields: &[(&str, &str)]) -> Result<Reply, Fault> {
    let mut reply = Reply::with_content(status, "text/plain", b"why".to_vec());
    for (name, value) in fields {
        reply.headers.append(name, value);
    }
    Ok(reply)
}

/// Lets in who has the right cookie.
fn service(request: &Request) -> (Duration, Result<Reply, Fault>) {
    let answer = match request.headers.get("Cookie") {
        Some(b"s=right") => reply(
            202,
            &[
                ("Remote-User", "ann"),
                ("X-Scopes", "read,write admin"),
                ("X-Tenant", "shop"),
            ],
        ),
        Some(_) => reply(403, &[("Set-Cookie", "s=other"), ("Location", "/login")]),
        None => reply(401, &[("WWW-Authenticate", "Basic realm=\"sso\"")]),
    };
    (SECOND, answer)
}

fn cookie(value: &str) -> Request {
    request(&[
        ("Host", "shop.example"),
        ("Cookie", value),
        ("X-Secret", "not for the service"),
        ("X-Original-URI", "/forged"),
    ])
}

async fn caller(worker: &Worker, door: &dyn component::access::Door, it: &Request) -> String {
    let admitted = worker.judge(door, it).await.unwrap().unwrap();
    assert_eq!(admitted.strip, None);
    Caller::value(&admitted.caller).to_string()
}

#[test]
fn the_service_is_told_the_head_and_its_answer_says_who_calls() {
    let way = yaml(", scopes: X-Scopes, claims: [X-Tenant, X-Other]");
    let door = door(&way, &States::default()).unwrap();
    assert!(door.needs_message() && !door.reads_body());
    run(service, |worker: Worker| async move {
        let (one, two) = (cookie("s=right"), cookie("s=right"));
        let (one, two) = tokio::join!(caller(&worker, &*door, &one), caller(&worker, &*door, &two));
        assert_eq!(one, two);
        let who = r#"{"way":"sso","id":"ann","scopes":["read","write","admin"],"plan":null,"#;
        let claims = r#""claims":{"x-tenant":"shop"}}"#;
        assert_eq!(one, format!("{who}{claims}"));
        let asked = worker.asked();
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].query.as_deref(), Some("x=1"));
        let lines: Vec<String> = asked[0]
            .headers
            .view()
            .iter()
            .map(|(_, name, value)| {
                let text = |it| String::from_utf8_lossy(it).into_owned();
                format!("{}: {}", text(name), text(value))
            })
            .collect();
        assert_eq!(
            lines,
            [
                "cookie: s=right",
                "X-Forwarded-Method: POST",
                "X-Forwarded-Proto: http",
                "X-Forwarded-Host: shop.example",
                "X-Forwarded-Uri: /orders/7?a=1",
                "X-Forwarded-For: 127.0.0.1",
                "X-Original-Method: POST",
                "X-Original-URI: /orders/7?a=1",
                "X-Original-URL: http://shop.example/orders/7?a=1",
            ]
        );
    });
}

#[test]
fn an_answer_holds_for_what_the_service_would_be_told_the_same() {
    let door = door(&yaml(", cache: 3s"), &States::default()).unwrap();
    run(service, |worker: Worker| async move {
        let first = cookie("s=right");
        let mut others = vec![cookie("s=right"); 4];
        others[0].method = message::Method::Get;
        others[1].path = "/orders/8".to_owned();
        others[2].query = None;
        others[3].peer = [10, 0, 0, 1].into();
        assert_eq!(worker.outcome(&*door, &first).await, "ann");
        for (at, other) in others.iter().enumerate() {
            assert_eq!(worker.asked().len(), 1 + at);
            assert_eq!(worker.outcome(&*door, other).await, "ann");
        }
        assert_eq!(worker.outcome(&*door, &others[3]).await, "ann");
        assert_eq!(worker.asked().len(), 5);
        tokio::time::sleep(3 * SECOND).await;
        assert_eq!(worker.outcome(&*door, &first).await, "ann");
        assert_eq!(worker.asked().len(), 6);
    });
    let door = self::door(&yaml(", cache: 0s"), &States::default()).unwrap();
    run(service, |worker: Worker| async move {
        let request = cookie("s=right");
        let outcomes = tokio::join!(
            worker.outcome(&*door, &request),
            worker.outcome(&*door, &request)
        );
        assert_eq!(outcomes, ("ann".to_owned(), "ann".to_owned()));
        assert_eq!(worker.asked().len(), 2, "each request is asked about");
    });
}

#[test]
fn a_refusal_is_passed_on_without_cookies() {
    let door = door(&yaml(""), &States::default()).unwrap();
    run(service, |worker: Worker| async move {
        let anonymous = request(&[("Host", "a")]);
        let reply = worker.judge(&*door, &anonymous).await.unwrap_err();
        assert_eq!(reply.status, 401);
        let field = |name: &str| reply.headers.get(name).map(<[u8]>::to_vec);
        assert_eq!(
            field("WWW-Authenticate").unwrap(),
            b"Basic realm=\"sso\"".to_vec()
        );
        assert_eq!(reply.body.as_bytes(), b"why");
        let reply = worker.judge(&*door, &cookie("s=wrong")).await.unwrap_err();
        assert_eq!(reply.status, 403);
        assert_eq!(reply.headers.get("Set-Cookie"), None);
        assert_eq!(reply.headers.get("Location"), None);
    });
}

#[test]
fn what_is_no_decision_lets_nobody_in_unless_the_file_says_so() {
    let status = Rc::new(Cell::new(0));
    for (more, failed, redirected) in [
        ("", "503", "503"),
        (", redirect: true", "503", "302"),
        (", fail: open", "", ""),
    ] {
        let door = door(&yaml(more), &States::default()).unwrap();
        let given = Rc::clone(&status);
        let service = move |_: &Request| {
            let answer = match given.get() {
                0 => down(),
                // Longer than the time-out.
                1 => return (60 * SECOND, reply(200, &[])),
                status => reply(status, &[("Location", "https://sso.example/login")]),
            };
            (Duration::ZERO, answer)
        };
        let status = Rc::clone(&status);
        run(service, |worker: Worker| async move {
            for (given, expected) in [(0, failed), (500, failed), (404, failed), (302, redirected)]
            {
                status.set(given);
                let outcome = worker.outcome(&*door, &cookie("a")).await;
                assert_eq!(outcome, expected, "{more} {given}");
            }
            // A refusal is a decision.
            status.set(403);
            assert_eq!(worker.outcome(&*door, &cookie("b")).await, "403");
        });
    }
}

#[test]
fn answers_with_two_names_and_urls_of_two_readings_are_refused() {
    let service = |request: &Request| {
        let fields = match request.headers.get("Cookie") {
            Some(b"two") => vec![("Remote-User", "ann"), ("Remote-User", "bob")],
            Some(b"bytes") => vec![("Remote-User", "\u{e9}\u{e9}")],
            _ => vec![("X-Auth-Request-User", ""), ("Remote-User", "bob")],
        };
        (Duration::ZERO, reply(200, &fields))
    };
    let door = door(&yaml(""), &States::default()).unwrap();
    run(service, |worker: Worker| async move {
        assert_eq!(worker.outcome(&*door, &cookie("two")).await, "503");
        assert_eq!(
            worker.outcome(&*door, &cookie("bytes")).await,
            "\u{e9}\u{e9}"
        );
        assert_eq!(worker.outcome(&*door, &cookie("one")).await, "bob");
        let before = worker.asked().len();
        let mut odd = cookie("one");
        odd.path = "/\u{fffd}".to_owned();
        assert_eq!(worker.outcome(&*door, &odd).await, "400");
        assert_eq!(worker.asked().len(), before);
    });
}

#[test]
fn other_ways_come_first_and_it_is_the_last() {
    let ways = "ways:\n  sso: { ask: { url: \"http://sso.example\" } }\n  hook: { hmac: { scheme: \
                github, secret: a secret that both share } }\n  opaque: { introspect: { url: \
                \"http://id.example\", bearer: x } }\n";
    let with = |auth: &str| door(&format!("{ways}auth: {auth}\n"), &States::default());
    let problems = with("{ any: [sso, hook] }").map(|_| ()).unwrap_err();
    assert_eq!(
        problems,
        ["IT0704 `sso` takes every request: no way behind it is used"]
    );
    let door = with("{ any: [hook, opaque, sso] }").unwrap();
    assert!(door.reads_body() && door.needs_message());
    let service = |request: &Request| match request.body.as_bytes() {
        b"" => service(request),
        _ => (
            Duration::ZERO,
            crate::testing::json(200, r#"{"active":true,"sub":"token"}"#),
        ),
    };
    run(service, |worker: Worker| async move {
        assert_eq!(worker.outcome(&*door, &cookie("s=right")).await, "ann");
        let bearer = request(&[("Authorization", "Bearer t"), ("Cookie", "s=right")]);
        assert_eq!(worker.outcome(&*door, &bearer).await, "token");
        let tag = format!("sha256={}", "0".repeat(64));
        let signed = request(&[("X-Hub-Signature-256", &tag), ("Cookie", "s=right")]);
        assert_eq!(worker.outcome(&*door, &signed).await, "body");
    });
}

#[test]
fn settings_that_cannot_be_are_refused() {
    for (more, expected) in [
        (", method: PUT", "`PUT` is no method to ask with"),
        (", headers: [X-Forwarded-For]", "is not passed on"),
        (", headers: [Host]", "is not passed on"),
        (", headers: [X-Original-URI]", "is not passed on"),
        (", headers: [\"a b\"]", "is no name of a header"),
        (", id: [\"\"]", "is no name of a header"),
        (", cache: 2h", "`cache` is not from 0ms to 1h"),
    ] {
        let Err(problems) = door(&yaml(more), &States::default()) else {
            panic!("no problem in {more}");
        };
        assert!(problems[0].contains(expected), "{problems:?}");
    }
}

#[test]
fn what_an_answer_takes_is_counted() {
    let asker = super::Asker {
        way: "sso".into(),
        url: fixed_url(),
        method: message::Method::Get,
        id: vec!["remote-user".to_owned()],
        scopes: Some("x-scopes".to_owned()),
        claims: vec!["x-tenant".to_owned()],
        redirects: true,
        cache: SECOND,
        tokens: super::Arc::new(super::Tokens(super::Arc::default())),
    };
    let long = "y".repeat(30_000);
    for name in ["Remote-User", "X-Scopes", "X-Tenant"] {
        let answer = asker.read(&reply(200, &[(name, &long)]).unwrap());
        assert!(answer.is_ok_and(|it| it.bytes > 30_000), "{name}");
    }
    // Each of many short ones has a string of its own.
    let many = "y ".repeat(15_000);
    let answer = asker.read(&reply(200, &[("X-Scopes", &many)]).unwrap());
    assert!(answer.is_ok_and(|it| it.bytes > 15_000 * size_of::<String>()));
    let refusal = asker.read(&reply(302, &[("Location", &long)]).unwrap());
    assert!(refusal.is_ok_and(|it| it.bytes > 30_000));
}

fn fixed_url() -> steps::FixedUrl {
    let (mut sources, mut report) = (config::Sources::default(), config::Report::default());
    let source = sources.add("test.yaml", b"http://sso.example/", &mut report);
    let node = config::parse(&sources, source.unwrap(), &mut report).remove(0);
    let url = config::decode(&node, &mut report).unwrap();
    let how = ("auth", SECOND);
    steps::FixedUrl::read(&url, None, how, crate::codes::BAD_WAY, &mut report).unwrap()
}
