//! What a client meets before a flow: the PROXY protocol, networks, CORS, security headers.

use std::process::Command;
use std::time::Duration;

use testkit::{Authority, RawClient, StrictBackend, TempDir, free_port, wait_until};

use crate::support::{Engine, get};

fn run(text: &str) -> (TempDir, Engine) {
    let folder = TempDir::new();
    let authority = Authority::new("ours");
    let issued = authority.issue(&["localhost"]);
    folder.write("ca.pem", authority.pem());
    folder.write("server.pem", &issued.cert);
    folder.write("server.key", &issued.key);
    folder.write("flow.yaml", text);
    let engine = Engine::run(&[folder.path()], &[]);
    (folder, engine)
}

fn curl(folder: &TempDir, arguments: &[&str]) -> (bool, String) {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--include", "--max-time", "10"])
        .arg("--cacert")
        .arg(folder.path().join("ca.pem"))
        .args(arguments)
        .output()
        .expect("curl is missing: `cargo xtask test` installs it");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout))
}

/// The values of a field in what curl shows, in order.
fn fields<'a>(shown: &'a str, name: &str) -> Vec<&'a str> {
    let head = shown.split("\r\n\r\n").next().unwrap_or_default();
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines
        .filter(|it| it.0.eq_ignore_ascii_case(name))
        .map(|it| it.1)
        .collect()
}

/// A header of version 2 for a client with this address.
fn v2(client: [u8; 4]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend(client);
    header.extend([127, 0, 0, 1, 0x30, 0x39, 0, 80]);
    header
}

const WHO: &str = "GET /who HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1\r\n\r\n";

fn proxied(port: u16, listener: &str, settings: &str, more: &str) -> String {
    format!(
        "engine:\n  log: {{ access: true, format: json }}\n  {settings}\n  listeners:\n    \
         \"127.0.0.1:{port}\": {listener}\n---\n\
         flow: who\nfrom: {{ http: GET 127.0.0.1:{port}/who }}\nsteps:\n  \
         - reply: {{ body: \"${{ $in.peer }}\" }}\n{more}"
    )
}

#[test]
fn the_client_is_who_the_proxy_protocol_says() {
    let (port, backend) = (free_port(), StrictBackend::start());
    let forward = format!(
        "---\nflow: on\nfrom: {{ http: POST 127.0.0.1:{port}/on }}\n\
         steps: [ forward: http://127.0.0.1:{}/on ]\n",
        backend.port()
    );
    let (_folder, engine) = run(&proxied(
        port,
        "{ proxy_protocol: any, trusted_proxies: [127.0.0.1] }",
        "",
        &forward,
    ));
    let v1 = b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 80\r\n".to_vec();
    let mapped = b"PROXY TCP6 ::ffff:203.0.113.9 ::1 4711 80\r\n".to_vec();
    let six = b"PROXY TCP6 2001:db8::9 ::1 4711 80\r\n".to_vec();
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec();
    for (header, client) in [
        (v1.clone(), "203.0.113.9"),
        (mapped, "203.0.113.9"),
        (six, "2001:db8::9"),
        (v2([203, 0, 113, 9]), "203.0.113.9"),
        (local, "127.0.0.1"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
    ] {
        // The client that the header names is no trusted proxy: its own fields are not believed,
        // but those of the balancer's own connection are.
        let expected = match client {
            "127.0.0.1" => "1.1.1.1",
            client => client,
        };
        let mut whole = RawClient::connect(port);
        whole.send([header.as_slice(), WHO.as_bytes()].concat());
        assert_eq!(whole.response().text(), expected);
        whole.send(WHO);
        assert_eq!(
            whole.response().text(),
            expected,
            "once for each connection"
        );
        let mut pieces = RawClient::connect(port);
        pieces.send_slowly(&header, 5, Duration::from_millis(5));
        pieces.send(WHO);
        assert_eq!(pieces.response().text(), expected);
    }
    let mut client = RawClient::connect(port);
    client.send(v1);
    client.send(
        "POST /on HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1\r\nContent-Length: 2\r\n\r\nok",
    );
    assert_eq!(client.response().status, 200);
    let request = backend.requests().remove(0);
    assert_eq!(request.all("X-Forwarded-For"), ["203.0.113.9"]);
    drop(client);
    let name = "intertie_connections_refused_by_proxy_protocol_total";
    assert_eq!(engine.metric(name), 0.0);
    let mut plain = RawClient::connect(port);
    plain.send(WHO);
    assert!(plain.is_closed(), "a connection without a header");
    let mut cut = RawClient::connect(port);
    cut.send("PROXY TC");
    cut.finish();
    assert!(cut.is_closed());
    let mut check = RawClient::connect(port);
    check.finish();
    assert!(check.is_closed(), "a health check by TCP");
    wait_until("both are counted", || engine.metric(name) == 2.0);
    let output = engine.stop();
    let peers = output
        .lines()
        .filter(|line| line.contains("\"peer\":\"203.0.113.9\""));
    assert!(peers.count() >= 5, "{output}");
}

#[test]
fn headers_of_others_than_the_balancers_are_refused_and_late_ones_too() {
    let port = free_port();
    let listener = "{ proxy_protocol: v2, trusted_proxies: [127.0.0.9] }";
    let (_folder, engine) = run(&proxied(port, listener, "", ""));
    let mut client = RawClient::connect(port);
    client.send(v2([203, 0, 113, 9]));
    client.send(WHO);
    assert!(client.is_closed(), "the peer is not listed");
    let name = "intertie_connections_refused_by_proxy_protocol_total";
    wait_until("it is counted", || engine.metric(name) == 1.0);
    engine.stop();

    let port = free_port();
    let settings = "timeouts: { head: 300ms }";
    let listener = "{ proxy_protocol: v2, trusted_proxies: [127.0.0.0/8] }";
    let (_folder, engine) = run(&proxied(port, listener, settings, ""));
    let mut late = RawClient::connect(port);
    assert!(late.is_closed(), "nothing comes");
    let mut version_1 = RawClient::connect(port);
    version_1.send(format!("PROXY TCP4 203.0.113.9 10.0.0.1 4711 80\r\n{WHO}"));
    assert!(version_1.is_closed());
    wait_until("both are counted", || engine.metric(name) == 2.0);
    let mut sound = RawClient::connect(port);
    sound.send([&v2([203, 0, 113, 9])[..], WHO.as_bytes()].concat());
    assert_eq!(sound.response().text(), "203.0.113.9");
    // A drain does not wait for headers.
    let _waiting = RawClient::connect(port);
    engine.stop();
}

#[test]
fn the_header_stands_before_tls_and_limits_go_by_the_client_in_it() {
    let port = free_port();
    let text = format!(
        "engine:\n  limits: {{ connections_per_address: 1 }}\n  listeners:\n    \
         \"127.0.0.1:{port}\": {{ proxy_protocol: v1, trusted_proxies: [127.0.0.1], \
         networks: {{ deny: [198.51.100.0/24] }} }}\n---\n\
         flow: who\nfrom:\n  http:\n    listen: 127.0.0.1:{port}\n    path: /who\n    \
         tls: {{ cert: server.pem, key: server.key }}\nsteps:\n  \
         - reply: {{ body: \"${{ $in.peer }}\" }}\n"
    );
    let (folder, engine) = run(&text);
    let url = format!("https://localhost:{port}/who");
    for version in ["--http1.1", "--http2"] {
        // curl writes its own address.
        let (_, shown) = curl(&folder, &["--ipv4", "--haproxy-protocol", version, &url]);
        assert!(shown.ends_with("\r\n\r\n127.0.0.1"), "{shown}");
    }
    let (reached, _) = curl(&folder, &["--ipv4", &url]);
    assert!(!reached, "TLS without a header");
    let mut first = RawClient::connect(port);
    first.send("PROXY TCP4 203.0.113.9 10.0.0.1 1 443\r\n");
    let refused = "intertie_connections_refused_by_address_total";
    let mut second = RawClient::connect(port);
    second.send("PROXY TCP4 203.0.113.8 10.0.0.1 1 443\r\n");
    assert!(
        second.stays_silent(Duration::from_millis(100)),
        "another address"
    );
    assert_eq!(engine.metric(refused), 0.0);
    let mut again = RawClient::connect(port);
    again.send("PROXY TCP4 203.0.113.9 10.0.0.1 2 443\r\n");
    assert!(again.is_closed(), "the same address");
    assert_eq!(engine.metric(refused), 1.0);
    let mut denied = RawClient::connect(port);
    denied.send("PROXY TCP4 198.51.100.7 10.0.0.1 2 443\r\n");
    assert!(denied.is_closed());
    assert_eq!(
        engine.metric("intertie_connections_refused_by_network_total"),
        1.0
    );
    drop((first, second));
    engine.stop();
}

#[test]
fn http_2_with_prior_knowledge_comes_behind_the_header() {
    let port = free_port();
    let text = format!(
        "engine:\n  listeners:\n    \"127.0.0.1:{port}\": {{ proxy_protocol: any, \
         trusted_proxies: [127.0.0.1] }}\n---\n\
         flow: who\nfrom:\n  http: {{ listen: \"127.0.0.1:{port}\", path: /who, protocols: [h2, http/1.1] }}\n\
         steps:\n  - reply: {{ body: \"${{ $in.peer }}\" }}\n"
    );
    let (folder, engine) = run(&text);
    let url = format!("http://127.0.0.1:{port}/who");
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let (_, shown) = curl(&folder, &["--haproxy-protocol", version, &url]);
        assert!(shown.ends_with("\r\n\r\n127.0.0.1"), "{shown}");
    }
    engine.stop();
}

/// What a client says of itself and of those before it is replaced, whatever it and the back end
/// speak: nothing in front of the engine is believed here.
#[test]
fn forwarding_fields_of_clients_are_replaced_in_every_protocol() {
    let (port, echo) = (free_port(), free_port());
    let both = "protocols: [h2, http/1.1]";
    let text = format!(
        "engine:\n  listeners:\n    \"127.0.0.1:{echo}\": {{ trusted_proxies: [127.0.0.1] }}\n---\n\
         flow: echo\nfrom: {{ http: {{ listen: \"127.0.0.1:{echo}\", path: /echo, {both} }} }}\n\
         steps:\n  - reply: {{ body: \"${{ $in.headers }}\" }}\n---\n\
         flow: h1\nfrom: {{ http: {{ listen: \"127.0.0.1:{port}\", path: /h1, {both} }} }}\n\
         steps: [ forward: http://127.0.0.1:{echo}/echo ]\n---\n\
         flow: h2\nuse: {{ b: {{ http: http://127.0.0.1:{echo}, protocols: [h2] }} }}\n\
         from: {{ http: {{ listen: \"127.0.0.1:{port}\", path: /h2, {both} }} }}\n\
         steps: [ forward: \"b:/echo\" ]\n"
    );
    let (folder, engine) = run(&text);
    let forged = [
        "X-Forwarded-For: 6.6.6.6",
        "X-Forwarded-Host: evil.example",
        "X-Forwarded-Proto: gopher",
        "X-Forwarded-Port: 6666",
        "X-Forwarded-Prefix: /evil",
        "X-Real-IP: 6.6.6.6",
        "Forwarded: for=6.6.6.6;host=evil.example",
    ];
    let forged: Vec<&str> = forged.iter().flat_map(|it| ["-H", it]).collect();
    for version in VERSIONS {
        for path in ["h1", "h2"] {
            let url = format!("http://127.0.0.1:{port}/{path}");
            let (_, shown) = curl(&folder, &[&[version, &url], &*forged].concat());
            let place = format!("{version} /{path}: {shown}");
            let (_, body) = shown.split_once("\r\n\r\n").expect(&place);
            let headers: serde_json::Value = serde_json::from_str(body).expect(&place);
            let of = |name: &str| headers[name].as_str();
            assert_eq!(of("x-forwarded-for"), Some("127.0.0.1"), "{place}");
            assert_eq!(of("x-forwarded-proto"), Some("http"), "{place}");
            for evil in ["6.6.6.6", "evil", "gopher", "6666"] {
                assert!(!body.contains(evil), "{place}");
            }
        }
    }
    engine.stop();
}

#[test]
fn networks_close_connections_of_a_listener_and_refuse_requests_of_a_flow() {
    let [open, closed] = [free_port(), free_port()];
    let text = format!(
        "engine:\n  listeners:\n    \"127.0.0.1:{closed}\": {{ networks: [10.0.0.0/8, \"::1\"] }}\n    \
         \"127.0.0.1:{open}\": {{ trusted_proxies: [127.0.0.1] }}\n---\n\
         flow: out\nfrom: {{ http: GET 127.0.0.1:{closed}/x }}\n\
         steps: [ reply: {{ body: out }} ]\n---\n\
         flow: in\nfrom: {{ http: GET 127.0.0.1:{open}/x }}\n\
         networks: {{ allow: [203.0.113.0/24], deny: [203.0.113.7] }}\n\
         steps: [ reply: {{ body: in }} ]\n---\n\
         topic: t\ndurability: memory\n\
         publish: {{ http: \"POST 127.0.0.1:{open}/t\", networks: [203.0.113.1] }}\n\
         subscribe: {{ listen: \"127.0.0.1:{open}\", networks: [203.0.113.2] }}\n"
    );
    let (_folder, engine) = run(&text);
    let mut outside = RawClient::connect(closed);
    outside.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(outside.is_closed());
    assert_eq!(
        engine.metric("intertie_connections_refused_by_network_total"),
        1.0
    );
    let status = |head: &str, client: &str| {
        let mut caller = RawClient::connect(open);
        caller.send(format!(
            "{head} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\nAccept: text/event-stream\r\n\
             Content-Length: 2\r\n\r\n{{}}"
        ));
        let head = caller.until(b"\r\n\r\n");
        String::from_utf8_lossy(&head)[9..12]
            .parse::<u16>()
            .unwrap()
    };
    for (head, client, expected) in [
        ("GET /x", "203.0.113.8", 200),
        ("GET /x", "::ffff:203.0.113.8", 200),
        ("GET /x", "203.0.113.7", 403),
        ("GET /x", "127.0.0.1", 403),
        ("POST /t", "203.0.113.1", 200),
        ("POST /t", "203.0.113.2", 403),
        ("GET /topics/t/sse", "203.0.113.2", 200),
        ("GET /topics/t/sse", "203.0.113.1", 403),
        ("GET /topics/sse?topic=t", "203.0.113.2", 200),
        ("GET /topics/sse?topic=t", "203.0.113.1", 403),
        ("GET /topics/t/ws", "203.0.113.1", 403),
    ] {
        assert_eq!(status(head, client), expected, "{head} {client}");
    }
    let mut caller = RawClient::connect(open);
    caller.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    let reply = caller.response();
    assert_eq!(
        reply.header("Content-Type"),
        Some("application/problem+json")
    );
    assert!(
        reply
            .text()
            .contains("requests from this address are not allowed"),
        "{}",
        reply.text()
    );
    engine.stop();
}

const SHOP: &str = "https://shop.example";

/// Flows behind both versions of HTTP, whose back end has its own ideas of CORS.
fn shop(port: u16, backend: u16) -> String {
    format!(
        "engine:\n  listeners:\n    \"127.0.0.1:{port}\":\n      cors: {{ origins: [\"https://*.pages.example\"] }}\n      \
         security_headers: {{ preset: api, headers: {{ Referrer-Policy: same-origin }} }}\n---\n\
         flow: items\nfrom:\n  http: {{ method: [GET, PUT], listen: \"127.0.0.1:{port}\", path: /items/*, \
         protocols: [h2, http/1.1] }}\n\
         cors: {{ origins: [\"{SHOP}\"], expose: [ETag], credentials: true, max_age: 1m }}\n\
         security_headers: {{ preset: page, headers: {{ X-Frame-Options: SAMEORIGIN }} }}\n\
         steps: [ forward: http://127.0.0.1:{backend}/items ]\n---\n\
         flow: fail\nfrom:\n  http: {{ method: POST, listen: \"127.0.0.1:{port}\", path: /items/*, \
         protocols: [h2, http/1.1] }}\n\
         cors: \"*\"\nsteps: [ raise: {{ type: odd, status: 409 }} ]\n---\n\
         flow: plain\nfrom:\n  http: {{ method: GET, listen: \"127.0.0.1:{port}\", path: /plain, \
         protocols: [h2, http/1.1] }}\n\
         steps: [ reply: {{ body: plain, headers: {{ Vary: Accept, Cache-Control: max-age=1 }} }} ]\n"
    )
}

const VERSIONS: [&str; 2] = ["--http1.1", "--http2-prior-knowledge"];

fn backend_with_cors() -> StrictBackend {
    StrictBackend::answering(|_| {
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nAccess-Control-Allow-Origin: *\r\n\
          access-control-allow-methods: TRACE\r\nVary: Accept-Encoding\r\nX-Frame-Options: DENY\r\n\
          ETag: \"1\"\r\n\r\nok"
            .to_vec()
    })
}

#[test]
fn replies_of_every_kind_tell_browsers_which_pages_may_read_them() {
    let (port, backend) = (free_port(), backend_with_cors());
    let (folder, engine) = run(&shop(port, backend.port()));
    let allowed = |shown: &str| fields(shown, "Access-Control-Allow-Origin").join("|");
    for version in VERSIONS {
        let ask = |path: &str, origin: &str, more: &[&str]| {
            let (origin, url) = (
                format!("Origin: {origin}"),
                format!("http://127.0.0.1:{port}{path}"),
            );
            let mut arguments = vec![version, "--header", &origin];
            arguments.extend(more);
            arguments.push(&url);
            curl(&folder, &arguments).1
        };
        let shown = ask("/items/1", SHOP, &[]);
        assert_eq!(allowed(&shown), SHOP, "{shown}");
        assert_eq!(fields(&shown, "Access-Control-Allow-Credentials"), ["true"]);
        assert_eq!(fields(&shown, "Access-Control-Expose-Headers"), ["ETag"]);
        assert_eq!(fields(&shown, "Access-Control-Allow-Methods"), [""; 0]);
        assert_eq!(fields(&shown, "Vary"), ["Accept-Encoding, Origin"]);
        assert_eq!(
            fields(&shown, "X-Frame-Options"),
            ["DENY"],
            "the back end's own"
        );
        assert_eq!(
            fields(&shown, "Cross-Origin-Opener-Policy"),
            ["same-origin"]
        );
        assert_eq!(fields(&shown, "Strict-Transport-Security"), [""; 0]);
        for origin in ["https://evil.example", "null", "https://a.pages.example"] {
            let shown = ask("/items/1", origin, &[]);
            assert!(shown.contains(" 200"), "{shown}");
            assert_eq!(allowed(&shown), "", "{origin}: {shown}");
            assert_eq!(fields(&shown, "Vary"), ["Accept-Encoding, Origin"]);
        }
        // A fault, another method, another path, and a flow without a policy of its own.
        let shown = ask("/items/1", SHOP, &["--request", "POST"]);
        assert!(shown.contains(" 409") && allowed(&shown) == "*", "{shown}");
        assert_eq!(fields(&shown, "Vary"), [""; 0]);
        let page = "https://a.pages.example";
        for (path, more, status, vary) in [
            (
                "/items/1",
                &["--request", "DELETE"][..],
                " 405",
                &["Origin"][..],
            ),
            ("/nothing", &[], " 404", &["Origin"]),
            ("/plain", &[], " 200", &["Accept", "Origin"]),
        ] {
            let shown = ask(path, page, more);
            assert!(shown.contains(status), "{shown}");
            assert_eq!(allowed(&shown), page, "{shown}");
            assert_eq!(fields(&shown, "Vary"), vary, "{shown}");
            assert_eq!(fields(&shown, "X-Content-Type-Options"), ["nosniff"]);
            assert_eq!(fields(&shown, "Referrer-Policy"), ["same-origin"]);
            assert_eq!(allowed(&ask(path, SHOP, more)), "");
        }
        let shown = ask("/plain", page, &[]);
        assert_eq!(
            fields(&shown, "Cache-Control"),
            ["max-age=1"],
            "the flow's own"
        );
        assert_eq!(
            fields(&ask("/nothing", page, &[]), "Cache-Control"),
            ["no-store"]
        );
    }
    // A head that is refused cannot say its origin.
    let mut odd = RawClient::connect(port);
    odd.send("GET /items HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    let reply = odd.response();
    assert_eq!((reply.status, reply.header("Vary")), (400, Some("Origin")));
    assert_eq!(reply.header("X-Content-Type-Options"), Some("nosniff"));
    drop(backend);
    engine.stop();
}

#[test]
fn preflight_requests_are_answered_before_the_flow() {
    let (port, backend) = (free_port(), backend_with_cors());
    let (folder, engine) = run(&shop(port, backend.port()));
    for version in VERSIONS {
        let ask = |path: &str, origin: &str, method: &str| {
            let url = format!("http://127.0.0.1:{port}{path}");
            let origin = format!("Origin: {origin}");
            let method = format!("Access-Control-Request-Method: {method}");
            let arguments = [
                version,
                "--request",
                "OPTIONS",
                "--header",
                &origin,
                "--header",
            ];
            let rest = [
                &*method,
                "--header",
                "Access-Control-Request-Headers: x-own",
                &url,
            ];
            curl(&folder, &[&arguments[..], &rest].concat()).1
        };
        let shown = ask("/items/1", SHOP, "PUT");
        assert!(shown.contains(" 204"), "{shown}");
        assert_eq!(fields(&shown, "Access-Control-Allow-Origin"), [SHOP]);
        assert_eq!(
            fields(&shown, "Access-Control-Allow-Methods"),
            ["GET, HEAD, PUT"]
        );
        assert_eq!(fields(&shown, "Access-Control-Allow-Headers"), ["x-own"]);
        assert_eq!(fields(&shown, "Access-Control-Max-Age"), ["60"]);
        assert_eq!(fields(&shown, "X-Content-Type-Options"), ["nosniff"]);
        let shown = ask("/items/1", "https://other.example", "POST");
        assert_eq!(
            fields(&shown, "Access-Control-Allow-Origin"),
            ["*"],
            "the flow of the method"
        );
        assert_eq!(fields(&shown, "Access-Control-Allow-Methods"), ["POST"]);
        let shown = ask("/items/1", "https://evil.example", "PUT");
        assert!(shown.contains(" 204"), "{shown}");
        assert_eq!(fields(&shown, "Access-Control-Allow-Origin"), [""; 0]);
        let shown = ask("/plain", "https://a.pages.example", "GET");
        assert_eq!(
            fields(&shown, "Access-Control-Allow-Methods"),
            ["GET, HEAD"]
        );
        // Nobody takes it: the browser gives the request up.
        assert!(ask("/items/1", SHOP, "DELETE").contains(" 405"));
        assert!(ask("/nothing", SHOP, "GET").contains(" 404"));
    }
    assert_eq!(
        backend.requests().len(),
        0,
        "no preflight request reaches the back end"
    );
    engine.stop();
}

#[test]
fn streams_and_handshakes_of_topics_go_by_the_policies_of_all_of_them() {
    let port = free_port();
    let topic = |name: &str, more: &str| {
        format!(
            "---\ntopic: {name}\ndurability: memory\nsubscribe: {{ listen: \"127.0.0.1:{port}\", \
             protocols: [h2, http/1.1]{more} }}\n"
        )
    };
    let text = topic("open", ", cors: \"*\"")
        + &topic(
            "shop",
            &format!(", cors: {{ origins: [\"{SHOP}\", \"https://b.example\"] }}"),
        )
        + &topic("none", "");
    let (folder, engine) = run(text.trim_start_matches("---\n"));
    let head = |path: &str, more: &str| {
        let mut client = RawClient::connect(port);
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nOrigin: {SHOP}\r\n{more}\r\n"
        ));
        String::from_utf8_lossy(&client.until(b"\r\n\r\n")).into_owned()
    };
    for (path, expected) in [
        ("/topics/open/sse", "*"),
        ("/topics/shop/sse", SHOP),
        ("/topics/none/sse", ""),
        ("/topics/sse?topic=open", "*"),
        ("/topics/sse?topic=open&topic=shop", SHOP),
        ("/topics/sse?topic=shop&topic=none", ""),
        ("/topics/sse?topic=gone", ""),
    ] {
        let shown = head(path, "Accept: text/event-stream\r\n");
        assert_eq!(
            fields(&shown, "Access-Control-Allow-Origin").join("|"),
            expected,
            "{path}: {shown}"
        );
    }
    // The same over HTTP/2. A stream has no end: curl gives up after a while.
    let url = format!("http://127.0.0.1:{port}/topics/shop/sse");
    let origin = format!("Origin: {SHOP}");
    let options = [
        "--http2-prior-knowledge",
        "--no-buffer",
        "--max-time",
        "1",
        "--header",
    ];
    let (_, shown) = curl(&folder, &[&options[..], &[&origin, &url]].concat());
    assert!(shown.starts_with("HTTP/2 200"), "{shown}");
    assert_eq!(fields(&shown, "Access-Control-Allow-Origin"), [SHOP]);
    let shake = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    for (path, status) in [
        ("/topics/open/ws", "101"),
        ("/topics/shop/ws", "101"),
        ("/topics/none/ws", "403"),
        ("/topics/ws", "101"),
    ] {
        let shown = head(path, shake);
        assert_eq!(&shown[9..12], status, "{path}: {shown}");
    }
    engine.stop();
}

#[test]
fn pages_that_may_not_read_open_no_forwarded_websocket() {
    let (port, backend) = (free_port(), free_port());
    let text = format!(
        "flow: chat\nfrom: {{ http: GET 127.0.0.1:{port}/chat }}\n\
         cors: {{ origins: [\"{SHOP}\"] }}\nsteps: [ forward: http://127.0.0.1:{backend}/chat ]\n---\n\
         flow: back\nfrom: {{ websocket: {{ listen: \"127.0.0.1:{backend}\", path: /chat, origins: [\"*\"] }} }}\n\
         steps: [ reply: {{ body: hi }} ]\n"
    );
    let (_folder, engine) = run(&text);
    for (origin, status) in [
        (format!("Origin: {SHOP}\r\n"), 101),
        (format!("Origin: http://127.0.0.1:{port}\r\n"), 101),
        (String::new(), 101),
        ("Origin: https://evil.example\r\n".to_owned(), 403),
        ("Origin: null\r\n".to_owned(), 403),
    ] {
        let mut client = RawClient::connect(port);
        client.send(format!(
            "GET /chat HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{origin}\r\n"
        ));
        let head = String::from_utf8_lossy(&client.until(b"\r\n\r\n")).into_owned();
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status}")),
            "{origin}: {head}"
        );
    }
    engine.stop();
}

#[test]
fn hsts_is_sent_over_tls_and_replaces_only_when_told_to() {
    let [port, clear] = [free_port(), free_port()];
    let backend = StrictBackend::answering(|_| {
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Frame-Options: SAMEORIGIN\r\n\r\nok".to_vec()
    });
    let text = format!(
        "flow: a\nfrom:\n  http:\n    listen: localhost:{port}\n    path: /x\n    \
         tls: {{ cert: server.pem, key: server.key }}\n\
         security_headers: {{ preset: api, replace: true }}\n\
         steps: [ forward: http://127.0.0.1:{0}/x ]\n---\n\
         flow: b\nfrom: {{ http: GET 127.0.0.1:{clear}/x }}\nsecurity_headers: api\n\
         steps: [ forward: http://127.0.0.1:{0}/x ]\n",
        backend.port()
    );
    let (folder, engine) = run(&text);
    for version in ["--http1.1", "--http2"] {
        let (_, shown) = curl(&folder, &[version, &format!("https://localhost:{port}/x")]);
        assert_eq!(
            fields(&shown, "Strict-Transport-Security"),
            ["max-age=31536000"]
        );
        assert_eq!(fields(&shown, "X-Frame-Options"), ["DENY"], "{shown}");
        assert_eq!(
            fields(&shown, "Content-Security-Policy"),
            ["default-src 'none'; frame-ancestors 'none'"]
        );
    }
    let reply = get(clear, "/x");
    assert_eq!(reply.all("X-Frame-Options"), ["SAMEORIGIN"]);
    assert_eq!(reply.header("Strict-Transport-Security"), None);
    engine.stop();
}

#[test]
fn a_reload_that_asks_more_of_connections_ends_those_that_came_before() {
    let port = free_port();
    let folder = TempDir::new();
    let flows = |listener: &str| {
        format!(
            "engine:\n  listeners: {{ \"127.0.0.1:{port}\": {listener} }}\n---\n\
             flow: a\nfrom: {{ http: GET 127.0.0.1:{port}/x }}\nsteps: [ reply: {{ body: hello }} ]\n"
        )
    };
    folder.write("flow.yaml", &flows("{ cors: \"*\" }"));
    let engine = Engine::run(&[folder.path()], &[]);
    let mut before = RawClient::connect(port);
    before.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        before.response().header("Access-Control-Allow-Origin"),
        Some("*")
    );
    folder.write("flow.yaml", &flows("{ networks: [10.0.0.0/8] }"));
    engine.process.signal("HUP");
    assert!(before.is_closed(), "it has not shown that it may");
    let refused = "intertie_connections_refused_by_network_total";
    wait_until("all workers refuse", || {
        let before = engine.metric(refused);
        for _ in 0..8 {
            let mut after = RawClient::connect(port);
            after.send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            after.rest();
        }
        engine.metric(refused) == before + 8.0
    });
    engine.stop();
}
