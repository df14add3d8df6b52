//! Tokens: when they are asked for, how, and for how long they are used.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use component::connection::HttpConnection;
use component::credentials::Unsigned;
use component::state::States;
use message::{Fault, Headers, Reply, Request};

use super::*;
use crate::testing::{FakeServices, http_connection};
use crate::under_way::UnderWay;

/// A connection with these keys under `oauth2`.
fn connection(keys: &str) -> Arc<HttpConnection> {
    let yaml = format!(
        "{{ http: http://api.example, auth: {{ oauth2: {{ token_url: http://id.example/t?x=1, \
         client_id: me, client_secret: \"s3:c rt\"{keys} }} }} }}"
    );
    http_connection("api", &yaml, &States::default()).unwrap()
}

/// A system that gives the tokens `1`, `2` and so on, each for an hour, and takes only those that
/// this says; and what it was asked.
fn system(takes: impl Fn(u32) -> bool + 'static) -> (FakeServices, Rc<RefCell<Vec<Request>>>) {
    let asked = Rc::new(RefCell::new(Vec::new()));
    let (kept, given) = (Rc::clone(&asked), Cell::new(0u32));
    let services = FakeServices::scripted(move |request| {
        kept.borrow_mut().push(request.clone());
        if request.headers.get("Content-Type") == Some(b"application/x-www-form-urlencoded") {
            given.set(given.get() + 1);
            let body = format!(
                "{{\"access_token\":\"{}\",\"expires_in\":3600}}",
                given.get()
            );
            let reply = Reply::with_content(200, "application/json", body.into_bytes());
            return (Duration::from_millis(50), Ok(reply));
        }
        let token = request.headers.get("Authorization").unwrap_or_default();
        let token = String::from_utf8_lossy(token).replace("Bearer ", "");
        let status = if takes(token.parse().unwrap()) {
            204
        } else {
            401
        };
        (Duration::ZERO, Ok(Reply::new(status)))
    });
    (services, asked)
}

/// The `Authorization` of the next request.
async fn value(connection: &HttpConnection, services: &FakeServices) -> Result<String, Fault> {
    let credentials = connection.credentials.as_ref().unwrap();
    let grant = credentials.grant(&Unsigned::default(), services).await?;
    let [(name, value)] = &grant.lines[..] else {
        panic!("{grant:?}");
    };
    assert_eq!(*name, "Authorization");
    Ok(value.clone())
}

fn request() -> Request {
    Request {
        method: Method::Get,
        path: String::new(),
        query: None,
        parameters: Vec::new(),
        headers: Headers::new(),
        body: Body::Empty,
        peer: std::net::Ipv4Addr::LOCALHOST.into(),
        proxy: None,
        is_secure: false,
        certificate: None,
        caller: None,
    }
}

/// Asks a system for a path, and once more with another token when one is refused, as requests do;
/// the last status.
async fn ask(connection: &HttpConnection, services: &FakeServices) -> Result<u16, Fault> {
    let credentials = connection.credentials.as_ref().unwrap();
    let mut grant = credentials.grant(&Unsigned::default(), services).await?;
    let mut is_second = false;
    loop {
        let mut headers = Headers::new();
        for (name, value) in &grant.lines {
            headers.append(name, value);
        }
        let request = Request {
            path: "/a".to_owned(),
            headers,
            ..request()
        };
        let (_, reply) = services.answer(&request);
        let reply = reply?;
        let wall = services.wall();
        let is_refused = credentials.refuses(&grant, reply.status, reply.headers.view(), wall);
        if is_second || !is_refused {
            return Ok(reply.status);
        }
        let renewed = credentials.grant(&Unsigned::default(), services).await?;
        if renewed == grant {
            return Ok(reply.status);
        }
        (grant, is_second) = (renewed, true);
    }
}

/// The same for two at a time.
async fn two(
    connection: &HttpConnection,
    services: &FakeServices,
) -> (Result<String, Fault>, Result<String, Fault>) {
    let mut under_way = UnderWay::new();
    under_way.push(Box::pin(value(connection, services)));
    under_way.push(Box::pin(value(connection, services)));
    let first = poll_fn(|context| under_way.poll(context)).await;
    (first, poll_fn(|context| under_way.poll(context)).await)
}

#[test]
fn name_and_secret_stand_in_the_header_or_in_the_body() {
    let sent = |keys: &str| {
        let (services, asked) = system(|_| true);
        let token = services.run_to_end(value(&connection(keys), &services));
        assert_eq!(token.unwrap(), "Bearer 1");
        asked.borrow_mut().remove(0)
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let in_header = sent("");
    assert_eq!(
        (in_header.path.as_str(), in_header.query.as_deref()),
        ("/t", Some("x=1"))
    );
    // The pair is `me:s3%3Ac%20rt`.
    let expected: &[u8] = b"Basic bWU6czMlM0FjJTIwcnQ=";
    assert_eq!(in_header.headers.get("Authorization"), Some(expected));
    assert_eq!(
        text(in_header.body.as_bytes()),
        "grant_type=client_credentials"
    );
    let in_body = sent(", mode: body, scope: a b, parameters: { audience: 'x&y' }");
    assert_eq!(in_body.headers.get("Authorization"), None);
    assert_eq!(
        text(in_body.body.as_bytes()),
        "grant_type=client_credentials&scope=a%20b&audience=x%26y&client_id=me\
         &client_secret=s3%3Ac%20rt"
    );
}

#[test]
fn a_token_is_used_until_shortly_before_it_expires() {
    let (services, asked) = system(|_| true);
    let connection = connection(", margin: 100s");
    let tokens = services.run_to_end(async {
        let mut tokens = vec![value(&connection, &services).await.unwrap()];
        for seconds in [3400, 99, 2] {
            services.sleep(Duration::from_secs(seconds)).await;
            tokens.push(value(&connection, &services).await.unwrap());
        }
        tokens
    });
    assert_eq!(tokens, ["Bearer 1", "Bearer 1", "Bearer 1", "Bearer 2"]);
    assert_eq!(asked.borrow().len(), 2);
}

#[test]
fn whoever_needs_a_token_at_the_same_time_waits_for_one_request() {
    let (services, asked) = system(|_| true);
    let connection = connection("");
    let both = services.run_to_end(two(&connection, &services));
    assert_eq!(
        (both.0.unwrap(), both.1.unwrap()),
        ("Bearer 1".into(), "Bearer 1".into())
    );
    assert_eq!(asked.borrow().len(), 1);
}

#[test]
fn a_failure_is_that_of_all_until_the_server_is_asked_again() {
    let asked = Rc::new(Cell::new(0));
    let count = Rc::clone(&asked);
    let services = FakeServices::scripted(move |_| {
        count.set(count.get() + 1);
        let second = Reply::with_content(200, "a/b", br#"{"access_token":"x"}"#.to_vec());
        let reply = if count.get() == 1 {
            Reply::new(500)
        } else {
            second
        };
        (Duration::from_secs(1), Ok(reply))
    });
    let connection = connection("");
    let (first, second, third, fourth) = services.run_to_end(async {
        let both = two(&connection, &services).await;
        let third = value(&connection, &services).await;
        services.sleep(Duration::from_millis(500)).await;
        let fourth = value(&connection, &services).await;
        (both.0, both.1, third, fourth)
    });
    let fault = first.unwrap_err();
    assert_eq!(fault.cause.as_deref(), Some("a token for api: status 500"));
    assert_eq!(second.unwrap_err().to_string(), fault.to_string());
    assert_eq!(third.unwrap_err().to_string(), fault.to_string());
    assert_eq!((fourth.unwrap(), asked.get()), ("Bearer x".into(), 2));
}

#[test]
fn a_token_is_used_until_it_expires_when_it_cannot_be_renewed() {
    let asked = Rc::new(Cell::new(0));
    let count = Rc::clone(&asked);
    let services = FakeServices::scripted(move |_| {
        count.set(count.get() + 1);
        let token = br#"{"access_token":"1","expires_in":100}"#.to_vec();
        let reply = match count.get() {
            1 => Reply::with_content(200, "application/json", token),
            _ => Reply::new(503),
        };
        (Duration::from_millis(1), Ok(reply))
    });
    let connection = connection(", margin: 40s");
    services.run_to_end(async {
        for _ in 0..99 {
            assert_eq!(value(&connection, &services).await.unwrap(), "Bearer 1");
            services.sleep(Duration::from_secs(1)).await;
        }
        services.sleep(Duration::from_secs(1)).await;
        assert_eq!(value(&connection, &services).await.unwrap_err().status, 502);
    });
    // Within 40 seconds: after 0.5, 1, 2, 4, 8 and 16 seconds, less jitter.
    assert!((4..=9).contains(&asked.get()), "{}", asked.get());
}

#[test]
fn nobody_waits_for_a_renewal_while_a_token_is_good() {
    let (services, _) = system(|_| true);
    let connection = connection(", margin: 100s");
    let both = services.run_to_end(async {
        value(&connection, &services).await.unwrap();
        services.sleep(Duration::from_secs(3550)).await;
        two(&connection, &services).await
    });
    // The one that does not ask is done first.
    assert_eq!(both.0.unwrap(), "Bearer 1");
    assert_eq!(both.1.unwrap(), "Bearer 2");
}

#[test]
fn tokens_that_are_refused_again_and_again_are_asked_for_ever_more_seldom() {
    let (services, asked) = system(|_| false);
    let connection = connection("");
    for _ in 0..100 {
        let status = services.run_to_end(ask(&connection, &services));
        assert_eq!(status.unwrap(), 401);
        services.run_to_end(services.sleep(Duration::from_millis(100)));
    }
    let asked = asked.borrow();
    let tokens = asked.iter().filter(|it| it.path == "/t").count();
    assert!((4..=7).contains(&tokens), "{tokens} in ten seconds");
    assert_eq!(
        asked.len(),
        100 + tokens + 1,
        "nothing is sent twice in vain"
    );
}

#[test]
fn waiting_for_the_request_of_another_one_is_bounded() {
    let (services, asked) = system(|_| true);
    let connection = connection(", timeout: 2s");
    // The first one asks, and is not polled any more.
    let mut first = Box::pin(value(&connection, &services));
    let poll = first
        .as_mut()
        .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    assert!(poll.is_pending());
    let fault = services.run_to_end(value(&connection, &services));
    assert_eq!(
        (fault.unwrap_err().name(), services.done_after()),
        ("timeout", 2000)
    );
    // Dropped, it makes room for another one.
    drop(first);
    let second = services.run_to_end(value(&connection, &services));
    assert_eq!(
        (second.unwrap().as_str(), asked.borrow().len()),
        ("Bearer 2", 2)
    );
}

#[test]
fn a_token_server_that_is_slow_is_given_up() {
    let services = FakeServices::scripted(|_| (Duration::from_secs(60), Ok(Reply::new(200))));
    let connection = connection(", timeout: 2s");
    let fault = services
        .run_to_end(value(&connection, &services))
        .unwrap_err();
    assert_eq!((fault.name(), services.done_after()), ("timeout", 2000));
}

#[test]
fn another_token_is_asked_for_once_when_one_is_refused() {
    let paths = |asked: &RefCell<Vec<Request>>| -> Vec<String> {
        asked.borrow().iter().map(|it| it.path.clone()).collect()
    };
    let (services, asked) = system(|token| token == 2);
    let bank = connection("");
    let status = services.run_to_end(ask(&bank, &services));
    assert_eq!(status.unwrap(), 204);
    assert_eq!(paths(&asked), ["/t", "/a", "/t", "/a"]);
    asked.borrow_mut().clear();
    services.run_to_end(ask(&bank, &services)).unwrap();
    assert_eq!(paths(&asked), ["/a"]);

    let (services, asked) = system(|_| false);
    let status = services.run_to_end(ask(&connection(""), &services));
    assert_eq!(status.unwrap(), 401);
    assert_eq!(paths(&asked), ["/t", "/a", "/t", "/a"]);
}

#[test]
fn what_is_wrong_is_told_without_the_secret() {
    let problems = |oauth2: &str| {
        let yaml = format!("http: http://a\nauth:\n  oauth2: {{ {oauth2} }}");
        http_connection("api", &yaml, &States::default()).unwrap_err()
    };
    let rest = "client_id: me, client_secret: s3cr3t";
    assert_eq!(
        problems(&format!("token_url: 'ftp://a', {rest}")),
        ["IT0240 3:24 unknown scheme `ftp`"]
    );
    assert_eq!(
        problems(&format!("token_url: 'ws://a', {rest}")),
        ["IT0690 3:24 this is not asked over WebSocket"]
    );
    assert_eq!(
        problems("token_url: 'http://a', client_id: me, client_secret: \"s3cr3t\\n\""),
        ["IT0690 3:66 `client_secret` is empty or has a line break"]
    );
    assert_eq!(
        problems(&format!(
            "token_url: 'http://a', {rest}, parameters: {{ scope: x }}"
        )),
        ["IT0690 3:88 `scope` is no further parameter"]
    );
    let both = "http: http://a\nauth: { bearer: t0k3n, basic: { user: a, password: b } }";
    assert_eq!(
        http_connection("api", both, &States::default()).unwrap_err(),
        [
            "IT0252 2:7 `auth` is one of `bearer`, `basic` with a name without a colon, `api_key`, \
          `oauth2` and `aws_sigv4`"
        ]
    );
}

#[test]
fn debug_shows_no_secret() {
    let shown = format!("{:?}", connection(", mode: body"));
    assert!(
        shown.contains("oauth2 of api") && !shown.contains("s3"),
        "{shown}"
    );
}

#[test]
fn a_header_that_the_credentials_set_is_refused() {
    crate::testing::assert_problems(
        &crate::forward::DEFINITION,
        &[(
            "{ to: 'bank:/x', headers: { set: { authorization: x } } }",
            &["IT0691 1:27 the header `authorization` is set by the connection's `auth`"],
        )],
    );
    crate::testing::assert_problems(
        &crate::http_call::DEFINITION,
        &[(
            "{ to: 'bank:/x', headers: { authorization: x } }",
            &["IT0691 1:27 the header `authorization` is set by the connection's `auth`"],
        )],
    );
}
