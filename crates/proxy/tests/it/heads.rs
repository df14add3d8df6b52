//! What becomes of heads: which fields go through, which are dropped, which are added.

use std::sync::Arc;

use component::forward::{FieldEdits, HostField};
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::plan::RouteTarget;
use component::settings::Settings;
use component::trusted_proxies::TrustedProxies;
use message::{Fault, Method, Reply, Request};
use testkit::http1::{Fields, values};
use testkit::http2::{self, Role};
use testkit::wire::Wire;
use testkit::{Action, ScriptedBackend, StrictBackend, free_port};

use crate::support::{Proxy, forward_plan};

/// As long as any (RFC 9110, section 5.6.7).
const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

#[test]
fn a_request_goes_through_without_its_connections_own_fields() {
    let backend = StrictBackend::start();
    let proxy = Proxy::to(backend.port());
    let mut client = proxy.client();
    client.send(
        "POST /a/b?c=d HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\nX-Private: 1\r\n\
         Connection: X-Private\r\nKeep-Alive: timeout=5\r\nTE: trailers\r\n\
         Proxy-Authorization: Basic eA==\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi",
    );
    let response = client.response();
    assert_eq!((response.status, response.text().as_str()), (200, "hi"));
    let request = backend.requests().remove(0);
    assert_eq!(request.target, "/a/b?c=d");
    let names: Vec<&str> = request
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["Host", "Accept", "Content-Length"]);
    assert_eq!(
        request.header("host"),
        Some(format!("127.0.0.1:{}", backend.port()).as_str())
    );
}

#[test]
fn what_a_proxy_adds_is_added() {
    let backend = StrictBackend::start();
    let proxy = Proxy::forward(
        backend.port(),
        |plan| {
            plan.x_forwarded = true;
            plan.forwarded = true;
            plan.via = Some("edge".to_owned());
            plan.host_field = HostField::Keep;
            plan.request_fields = FieldEdits {
                remove: vec!["Cookie".to_owned()],
                set: vec![("X-Tenant".to_owned(), "acme".to_owned())],
                ..FieldEdits::default()
            };
        },
        trust,
    );
    let mut client = proxy.client();
    client.send(
        "GET / HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 10.0.0.1\r\nVia: 1.0 old\r\n\
         Forwarded: for=10.0.0.1\r\nCookie: a=b\r\nX-Tenant: evil\r\nx-forwarded-for: 10.0.0.2\r\n\
         X-Forwarded-Proto: https\r\n\r\n",
    );
    assert_eq!(client.response().status, 200);
    let request = backend.requests().remove(0);
    assert_eq!(request.header("host"), Some("shop.example"));
    assert_eq!(
        request.all("x-forwarded-for"),
        ["10.0.0.1, 10.0.0.2, 127.0.0.1"]
    );
    assert_eq!(request.all("x-forwarded-host"), ["shop.example"]);
    assert_eq!(request.all("x-forwarded-proto"), ["https"]);
    assert_eq!(request.all("via"), ["1.0 old", "1.1 edge"]);
    let own = "for=127.0.0.1;host=\"shop.example\";proto=http";
    assert_eq!(request.all("forwarded"), ["for=10.0.0.1", own]);
    assert_eq!(request.all("x-tenant"), ["acme"]);
    assert_eq!(request.header("cookie"), None);
}

/// Believes what this machine says of its clients.
fn trust(settings: &mut Settings) {
    let mut trusted = TrustedProxies::default();
    trusted.add("127.0.0.0/8").unwrap();
    settings.trusted_proxies = Some(Arc::new(trusted));
}

const WAY: &str = "GET / HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 1.1.1.1, 10.0.0.1\r\n\
    X-Forwarded-Host: evil.example\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 443\r\n\
    x-real-ip: 10.0.0.1\r\nForwarded: for=10.0.0.1\r\nX-Kept: 1\r\n\r\n";

/// The names of what a proxy says of a client, and `X-Kept`.
const NAMES: [&str; 7] = [
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-Port",
    "X-Real-IP",
    "Forwarded",
    "X-Kept",
];

#[test]
fn what_is_said_of_the_way_passes_from_trusted_proxies_only() {
    let own = "for=127.0.0.1;host=\"shop.example\";proto=http";
    for (is_trusted, writes, expected) in [
        (false, false, ["", "", "", "", "", "", "1"]),
        (
            false,
            true,
            ["127.0.0.1", "shop.example", "http", "", "", own, "1"],
        ),
        (
            true,
            false,
            [
                "1.1.1.1, 10.0.0.1",
                "evil.example",
                "https",
                "443",
                "10.0.0.1",
                "for=10.0.0.1",
                "1",
            ],
        ),
        (
            true,
            true,
            [
                "1.1.1.1, 10.0.0.1, 127.0.0.1",
                "evil.example",
                "https",
                "443",
                "10.0.0.1",
                &format!("for=10.0.0.1 {own}"),
                "1",
            ],
        ),
    ] {
        let backend = StrictBackend::start();
        let proxy = Proxy::forward(
            backend.port(),
            |plan| (plan.x_forwarded, plan.forwarded) = (writes, writes),
            |settings| {
                if is_trusted {
                    trust(settings);
                }
            },
        );
        let mut client = proxy.client();
        client.send(WAY);
        assert_eq!(client.response().status, 200);
        let request = backend.requests().remove(0);
        let found = NAMES.map(|name| request.all(name).join(" "));
        assert_eq!(found, expected, "trusted: {is_trusted}, writes: {writes}");
    }
}

/// Tells what a flow sees of the client.
struct Tells;

impl Handler for Tells {
    fn reads_body(&self) -> bool {
        false
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        let fields = NAMES.map(|name| request.headers.get(name).unwrap_or_default());
        let fields = fields.map(|value| String::from_utf8_lossy(value).into_owned());
        let (peer, proxy) = (request.peer, request.proxy);
        let text = format!("{peer} {proxy:?} {}", fields.join("|"));
        let reply = Reply::with_content(200, "text/plain", text.into_bytes());
        Box::pin(async move { Ok(Outcome::Reply(reply)) })
    }
}

#[test]
fn a_flow_sees_the_client_that_a_trusted_proxy_tells() {
    for (is_trusted, expected) in [
        (false, "127.0.0.1 None ||||||1"),
        (
            true,
            "10.0.0.1 Some(127.0.0.1) \
             1.1.1.1, 10.0.0.1|evil.example|https|443|10.0.0.1|for=10.0.0.1|1",
        ),
    ] {
        let target = || RouteTarget::Handle {
            handler: Arc::new(Tells),
            body_max: 1000,
        };
        let proxy = Proxy::both(target());
        let mut settings = Settings::default();
        if is_trusted {
            trust(&mut settings);
        }
        proxy.serve(target(), settings, Vec::new());
        let mut client = proxy.client();
        client.send(WAY);
        assert_eq!(client.response().text(), expected);
    }
}

#[test]
fn targets_take_the_rest_of_the_path_and_both_queries() {
    let backend = StrictBackend::start();
    for (path, appends_rest, query, request, expected) in [
        ("/", true, None, "/a/b", "/a/b"),
        ("/base", true, None, "/a/b?x=1", "/base/a/b?x=1"),
        ("/base/", true, Some("k=v"), "/a?x=1", "/base/a?k=v&x=1"),
        ("/base", true, None, "/", "/base/"),
        ("/whole", false, None, "/a/b?x=1", "/whole?x=1"),
        ("/whole", false, Some("k=v"), "/a", "/whole?k=v"),
        ("/", true, None, "/%61%2Fb%7e", "/a%2Fb~"),
    ] {
        let proxy = Proxy::forward(
            backend.port(),
            |plan| {
                plan.path = path.to_owned();
                plan.appends_rest = appends_rest;
                plan.query = query.map(str::to_owned);
            },
            |_| {},
        );
        backend.clear();
        let mut client = proxy.client();
        client.send(format!("GET {request} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.response().status, 200);
        assert_eq!(backend.requests()[0].target, expected, "{request}");
    }
}

#[test]
fn a_reply_goes_through_without_its_connections_own_fields() {
    let reply = "HTTP/1.1 201 Made Up\r\nServer: x\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\
                 Connection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=9\r\nUpgrade: h2c\r\n\
                 Proxy-Authenticate: Basic\r\nX-Old: 1\r\nContent-Length: 2\r\n\r\nok";
    let backend = ScriptedBackend::start(vec![vec![
        Action::ReadUntil(b"\r\n\r\n"),
        Action::Send(reply.as_bytes().to_vec()),
        Action::Stall,
    ]]);
    let proxy = Proxy::forward(
        backend.port(),
        |plan| {
            plan.reply_fields.remove.push("X-Old".to_owned());
            plan.reply_fields
                .set
                .push(("Server".to_owned(), "edge".to_owned()));
        },
        |_| {},
    );
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status, response.text().as_str()), (201, "ok"));
    let names: Vec<&str> = response
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "Set-Cookie",
            "Set-Cookie",
            "Content-Length",
            "Server",
            "Date"
        ]
    );
    assert_eq!(response.header("server"), Some("edge"));
}

#[test]
fn another_method_can_be_sent() {
    let backend = StrictBackend::start();
    let proxy = Proxy::forward(
        backend.port(),
        |plan| plan.method = Some(Method::Put),
        |_| {},
    );
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(client.response().text(), "hi");
    assert_eq!(backend.requests()[0].method, "PUT");
}

#[test]
fn old_clients_get_what_they_understand() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    let backend = ScriptedBackend::start(vec![vec![
        Action::ReadUntil(b"\r\n\r\n"),
        Action::Send(chunked.as_bytes().to_vec()),
        Action::ReadUntil(b"\r\n\r\n"),
        Action::Send(chunked.as_bytes().to_vec()),
    ]]);
    let proxy = Proxy::to(backend.port());
    let mut client = proxy.client();
    client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let response = client.response();
    assert_eq!(response.header("transfer-encoding"), None);
    assert_eq!(response.header("connection"), Some("close"));
    assert_eq!(response.text(), "hi");
    assert!(client.is_closed());

    let backend = StrictBackend::start();
    let proxy = Proxy::to(backend.port());
    let mut client = proxy.client();
    for _ in 0..2 {
        client.send("GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(client.response().header("connection"), Some("keep-alive"));
    }
    client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().header("connection"), Some("close"));
    assert!(client.is_closed());
}

#[test]
fn a_reply_without_a_date_gets_one() {
    let send = |reply: &str, remove: &[&str]| {
        let backend = ScriptedBackend::start(vec![vec![
            Action::ReadUntil(b"\r\n\r\n"),
            Action::Send(reply.as_bytes().to_vec()),
            Action::Stall,
        ]]);
        let proxy = Proxy::forward(
            backend.port(),
            |plan| plan.reply_fields.remove = remove.iter().map(|it| (*it).to_owned()).collect(),
            |_| {},
        );
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let reply = client.response();
        reply.all("date").join("|")
    };
    for status in ["200 OK", "304 Not Modified", "500 No"] {
        let reply = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        let made = send(&reply, &[]);
        assert!(made.len() == DATE.len() && made.ends_with(" GMT"), "{made}");
        assert_eq!(send(&reply, &["Date"]), "");
        let reply = format!("HTTP/1.1 {status}\r\ndate: {DATE}\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(send(&reply, &[]), DATE);
    }
}

#[test]
fn options_of_the_whole_server_are_answered() {
    let backend = StrictBackend::start();
    let proxy = Proxy::to(backend.port());
    let mut client = proxy.client();
    for _ in 0..2 {
        client.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().status, 204);
    }
    assert_eq!(backend.requests().len(), 0);
}

/// A client of HTTP/2 of its own, and the head of the reply to a request.
fn head_over_http2(port: u16, method: &str, path: &str) -> Fields {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build_local(Default::default());
    runtime.unwrap().block_on(async {
        let wire = Wire::connect(port, None).await.unwrap();
        let connection = http2::Connection::start(wire, Role::Client);
        let stream = connection.open();
        let head = [
            (":method", method),
            (":scheme", "http"),
            (":authority", "a"),
            (":path", path),
        ];
        connection.send_head(stream, &head, true);
        while let Some(_part) = connection.take_data(stream, 1000).await.unwrap() {}
        connection.with(|state| {
            assert_eq!(state.violations, Vec::<String>::new());
            state.streams[&stream].heads.last().unwrap().clone()
        })
    })
}

#[test]
fn a_reply_over_http2_without_a_date_gets_one() {
    let send = |fields: &str, remove: &[&str]| {
        let backend = ScriptedBackend::start(vec![vec![
            Action::ReadUntil(b"\r\n\r\n"),
            Action::Send(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").into_bytes()),
            Action::Stall,
        ]]);
        let mut plan = forward_plan(backend.port());
        plan.reply_fields.remove = remove.iter().map(|it| (*it).to_owned()).collect();
        let proxy = Proxy::both(RouteTarget::Forward(Arc::new(plan)));
        let head = head_over_http2(proxy.port, "GET", "/");
        values(&head, "date").join("|")
    };
    let made = send("Content-Length: 0\r\n", &[]);
    assert!(made.len() == DATE.len() && made.ends_with(" GMT"), "{made}");
    assert_eq!(send("Content-Length: 0\r\n", &["Date"]), "");
    let own = format!("date: {DATE}\r\nContent-Length: 0\r\n");
    assert_eq!(send(&own, &[]), DATE);
    // A reply of our own.
    let proxy = Proxy::both(RouteTarget::Forward(Arc::new(forward_plan(free_port()))));
    let head = head_over_http2(proxy.port, "GET", "/");
    assert_eq!(values(&head, ":status"), ["502"]);
    assert_eq!(values(&head, "date").concat().len(), DATE.len());
}

#[test]
fn options_of_the_whole_server_are_answered_over_http2() {
    let backend = StrictBackend::start();
    let target = RouteTarget::Forward(Arc::new(forward_plan(backend.port())));
    let proxy = Proxy::both(target);
    let head = head_over_http2(proxy.port, "OPTIONS", "*");
    assert_eq!(values(&head, ":status"), ["204"]);
    assert_eq!(backend.requests().len(), 0);
}
