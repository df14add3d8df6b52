//! Doors of listeners and of the admin port, and what is kept apart for the callers behind them.

use std::time::{SystemTime, UNIX_EPOCH};

use access::api_keys::ApiKey;
use testkit::{Process, RawClient, Response, TempDir, WebSocket, free_port, wait_until};

use crate::support::{Engine, command, output};

/// A file of keys for these callers, each with these scopes; gives their keys.
fn keys<const N: usize>(
    folder: &TempDir,
    name: &str,
    callers: [(&str, &[&str]); N],
) -> [String; N] {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let made = callers.map(|(id, scopes)| {
        let (key, mut entry) = ApiKey::generate(id, now.as_secs()).unwrap();
        entry.scopes = scopes.iter().map(|it| (*it).to_owned()).collect();
        (key, entry.to_line())
    });
    let lines: Vec<&str> = made.iter().map(|it| it.1.trim_end()).collect();
    folder.write(name, &(lines.join("\n") + "\n"));
    made.map(|it| it.0)
}

/// Asks with an API key, or with none when it is empty.
fn ask(port: u16, request: &str, key: &str, fields: &str) -> Response {
    let mut client = RawClient::connect(port);
    let key = match key {
        "" => String::new(),
        key => format!("X-Api-Key: {key}\r\n"),
    };
    client.send(format!(
        "{request} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{key}{fields}Connection: close\r\n\r\n"
    ));
    client.response()
}

fn post(port: u16, path: &str, (key, fields): (&str, &str), body: &str) -> Response {
    let mut client = RawClient::connect(port);
    client.send(format!(
        "POST {path} HTTP/1.1\r\nHost: test\r\nX-Api-Key: {key}\r\n{fields}\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    ));
    client.response()
}

const WAYS: &str = "  auth:\n    partners: { api_key: { keys: partners.keys } }\n    \
                    staff: { api_key: { keys: staff.keys } }\n";

#[test]
fn the_auth_of_a_listener_holds_for_all_that_share_it() {
    let (folder, port, other) = (TempDir::new(), free_port(), free_port());
    let [partner] = keys(&folder, "partners.keys", [("shop", &[])]);
    let [staff] = keys(&folder, "staff.keys", [("ann", &[])]);
    let flow = |name: &str, more: &str| {
        format!(
            "---\nflow: {name}\nfrom: {{ http: 'GET 127.0.0.1:{port}/{name}' }}\n{more}\
             steps: [ map: '{{ id: $auth.id }}' ]\n"
        )
    };
    let topic = |name: &str, auth: &str| {
        format!(
            "---\ntopic: {name}\npayload: event\ndurability: memory\n\
             publish: {{ http: 'POST 127.0.0.1:{port}/publish/{name}' }}\nsubscribe:\n  \
             listen: '127.0.0.1:{port}'\n  profile: axway-streams\n  \
             websocket: {{ publish: true }}\n{auth}"
        )
    };
    folder.write(
        "flows.yaml",
        &[
            format!("engine:\n  listeners: {{ '127.0.0.1:{port}': {{ auth: partners }} }}\n{WAYS}"),
            flow("shared", ""),
            flow("own", "auth: staff\n"),
            flow("open", "auth: none\n"),
            topic("prices", ""),
            topic("news", "  auth: none\n"),
            format!(
                "---\nflow: elsewhere\nfrom: {{ http: 'GET 127.0.0.1:{other}/' }}\n\
                 steps: [ reply: {{ body: in }} ]\n"
            ),
        ]
        .concat(),
    );
    let engine = Engine::run(&[folder.path()], &[]);
    let get = |path: &str, key: &str| ask(port, &format!("GET {path}"), key, "").status;
    for (path, statuses) in [
        ("/shared", [401, 200, 401]),
        ("/own", [401, 401, 200]),
        ("/open", [200, 200, 200]),
    ] {
        assert_eq!(
            ["", &partner, &staff].map(|key| get(path, key)),
            statuses,
            "{path}"
        );
    }
    let refused = ask(port, "GET /shared", "", "");
    assert_eq!(
        refused.header("Content-Type"),
        Some("application/problem+json")
    );
    assert!(refused.header("WWW-Authenticate").is_some());
    assert_eq!(
        ask(port, "GET /shared", &partner, "").text(),
        r#"{"id":"shop"}"#
    );
    // Nobody shares the other address.
    assert_eq!(ask(other, "GET /", "", "").status, 200);

    // Each door of a topic.
    let sse = "/streams/subscribers/sse/api/v1/topics/prices";
    for path in ["/topics/prices/sse", "/topics/sse?topic=prices", sse] {
        assert_eq!([get(path, ""), get(path, &staff)], [401, 401], "{path}");
        let mut client = RawClient::connect(port);
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: test\r\nX-Api-Key: {partner}\r\n\r\n"
        ));
        let head = String::from_utf8(client.until(b"\r\n\r\n")).unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{path} {head}");
    }
    let http = "/streams/publishers/http-post/api/v1/topics";
    for name in ["prices", "news"] {
        let paths = [format!("/publish/{name}"), format!("{http}/{name}")];
        for path in paths {
            let status = |key: &str| post(port, &path, (key, ""), "1").status;
            let allowed = if path.starts_with(http) { 202 } else { 200 };
            assert_eq!(status("wrong-key-that-is-long-enough"), 401, "{path}");
            assert_eq!(status(&partner), allowed, "{path}");
        }
        let publish = |fields: &str| {
            let (_, mut socket) = WebSocket::connect(port, "/topics/ws", fields);
            socket.text(&format!(
                r#"{{"type":"publish","topic":"{name}","data":1}}"#
            ));
            socket.next_text()
        };
        // To open a topic for subscribers does not open it for publishers.
        let refused = publish("");
        assert!(refused.contains("unauthorized"), "{name} {refused}");
        let key = format!("X-Api-Key: {partner}\r\n");
        assert!(publish(&key).contains("\"type\":\"ack\""), "{name}");
    }
    let mut client = RawClient::connect(port);
    client.send("GET /topics/news/sse HTTP/1.1\r\nHost: test\r\n\r\n");
    let head = String::from_utf8(client.until(b"\r\n\r\n")).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    engine.stop();
}

#[test]
fn a_bad_auth_of_a_listener_is_reported_once() {
    let folder = TempDir::new();
    let flows = "engine:\n  listeners: { '127.0.0.1:1': { auth: AUTH } }\n  auth: { hook: { hmac: \
                 { scheme: github, secret: a secret that both share } } }\n---\n\
                 flow: a\nfrom: { http: 'GET 127.0.0.1:1/a' }\nsteps: [ reply: {} ]\n---\n\
                 flow: b\nfrom: { http: 'GET 127.0.0.1:1/b' }\nsteps: [ reply: {} ]\n";
    let topic = "---\ntopic: t\nsubscribe: { auth: none, listen: '127.0.0.1:1', \
                 websocket: { publish: true } }\n";
    for (auth, more, code) in [
        ("stuff", "", "IT0701"),
        ("{ any: [hook], scopes: ['a b'] }", "", "IT0702"),
        // A publisher over WebSocket sends no body to be signed.
        ("hook", topic, "IT0660"),
    ] {
        let text = flows.replace("AUTH", auth) + more;
        let file = folder.write("flows.yaml", &text);
        let result = output(&["check", "--format", "json", file.to_str().unwrap()]);
        let report = String::from_utf8(result.stdout).unwrap();
        assert_eq!(result.status.code(), Some(1), "{report}");
        let lines: Vec<&str> = report.lines().collect();
        assert_eq!(lines.len(), 1, "{report}");
        assert!(lines[0].contains(code), "{report}");
        assert!(lines[0].contains("\"line\":2"), "{report}");
    }
}

#[test]
fn the_admin_port_enforces_view_and_operate() {
    let (folder, port) = (TempDir::new(), free_port());
    let [viewer, operator] = keys(
        &folder,
        "partners.keys",
        [("grafana", &["read"]), ("ann", &["read", "ops"])],
    );
    keys(&folder, "staff.keys", [("bob", &["ops"])]);
    let files = |body: &str, admin: &str| {
        let text = format!(
            "engine:\n  listen: '127.0.0.1:{port}'\n{WAYS}{admin}---\nflow: a\n\
             from: {{ http: GET / }}\nsteps: [ reply: {{ body: {body} }} ]\n"
        );
        folder.write("flows.yaml", &text);
    };
    let rules = "  admin: { view: { any: [partners], scopes: [read] }, \
                 operate: '$auth.scopes | index(\"ops\")' }\n";
    files("one", rules);
    let engine = Engine::run(&[folder.path()], &[]);
    let admin = engine.admin;
    let status = |request: &str, key: &str, fields: &str| ask(admin, request, key, fields).status;
    for path in ["GET /health", "GET /ready"] {
        assert_eq!(status(path, "", ""), 200, "{path}");
    }
    let refused = ask(admin, "GET /metrics", "", "");
    assert_eq!(refused.status, 401);
    assert_eq!(
        refused.header("Content-Type"),
        Some("application/problem+json")
    );
    assert!(refused.header("WWW-Authenticate").is_some());
    assert_eq!(status("GET /metrics", &viewer, ""), 200);
    assert_eq!(
        status("GET /metrics", "itk_nobody-knows-this-key-at-all", ""),
        401
    );
    assert_eq!(status("POST /reload", "", ""), 401);
    assert_eq!(status("POST /reload", &viewer, ""), 403);
    assert_eq!(status("GET /reload", &operator, ""), 405);
    // A page elsewhere may not use what the browser has.
    let foreign = "Origin: https://evil.example\r\n";
    assert_eq!(status("POST /reload", &operator, foreign), 403);

    files("two", rules);
    let own = format!("Origin: http://127.0.0.1:{admin}\r\n");
    assert_eq!(status("POST /reload", &operator, &own), 200);
    assert_eq!(ask(port, "GET /", "", "").text(), "two");
    assert!(engine.process.output().contains("ann"));
    folder.write("flows.yaml", "flow: [\n");
    let refused = ask(admin, "POST /reload", &operator, "");
    assert_eq!(refused.status, 409);
    assert!(refused.text().contains("problem"), "{}", refused.text());
    assert!(!refused.text().contains("flows.yaml"), "{}", refused.text());
    assert_eq!(ask(port, "GET /", "", "").text(), "two");

    // Another rule acts with the reload that brings it, and without `operate` nobody may.
    files("three", "  admin: { view: staff }\n");
    assert_eq!(status("POST /reload", &operator, ""), 200);
    assert_eq!(status("GET /metrics", &viewer, ""), 401);
    assert_eq!(status("POST /reload", &operator, ""), 404);
    engine.stop();
}

#[test]
fn the_admin_port_listens_where_the_file_says() {
    let (folder, port) = (TempDir::new(), free_port());
    let (first, second) = (free_port(), free_port());
    let files = |admin: u16| {
        let text = format!(
            "engine:\n  admin: {{ listen: '127.0.0.1:{admin}', operate: none }}\n---\nflow: a\n\
             from: {{ http: 'GET 127.0.0.1:{port}/' }}\nsteps: [ reply: {{ body: a }} ]\n"
        );
        folder.write("flows.yaml", &text);
    };
    files(first);
    let mut command = command();
    command.arg("run").arg(folder.path());
    let mut process = Process::start(&mut command);
    process.wait_for_port(first);
    wait_until("it is ready", || {
        ask(first, "GET /ready", "", "").status == 200
    });
    files(second);
    assert_eq!(ask(first, "POST /reload", "", "").status, 200);
    assert_eq!(ask(second, "GET /health", "", "").status, 200);
    assert!(std::net::TcpStream::connect(("127.0.0.1", first)).is_err());
    // An address that is taken changes nothing.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    files(taken.local_addr().unwrap().port());
    assert_eq!(ask(second, "POST /reload", "", "").status, 409);
    assert_eq!(ask(second, "GET /health", "", "").status, 200);
    process.signal("TERM");
    assert_eq!(process.wait().code(), Some(0), "{}", process.output());
}

#[test]
fn web_pages_neither_operate_the_admin_port_nor_read_what_is_denied() {
    let (folder, port) = (TempDir::new(), free_port());
    let [operator] = keys(&folder, "partners.keys", [("ann", &[])]);
    keys(&folder, "staff.keys", [("bob", &[])]);
    let files = |admin: &str| {
        let text = format!(
            "engine:\n  listen: '127.0.0.1:{port}'\n{WAYS}  deny: {{}}\n  admin: {admin}\n---\n\
             flow: a\nfrom: {{ http: GET / }}\nauth: none\nsteps: [ reply: {{ body: a }} ]\n"
        );
        folder.write("flows.yaml", &text);
    };
    files("{ operate: none, hosts: [admin.internal] }");
    let engine = Engine::run(&[folder.path()], &[]);
    let admin = engine.admin;
    let ask = |(method, target): (&str, &str), key: &str, fields: &str| {
        let mut client = RawClient::connect(admin);
        let key = match key {
            "" => String::new(),
            key => format!("X-Api-Key: {key}\r\n"),
        };
        let body = if method == "POST" {
            "{\"sub\":\"eve\"}"
        } else {
            ""
        };
        client.send(format!(
            "{method} {target} HTTP/1.1\r\n{fields}{key}Content-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ));
        client.response().status
    };
    let own = format!("Host: 127.0.0.1:{admin}\r\n");
    let requests = [
        (("POST", "/reload"), 200),
        (("POST", "/deny"), 201),
        (("GET", "/deny"), 200),
        (("DELETE", "/deny?sub=eve"), 204),
    ];
    let refused = [
        "Host: evil.example\r\n".to_owned(),
        format!("Host: evil.example:{admin}\r\nOrigin: http://evil.example:{admin}\r\n"),
        "Host: evil.example\r\nSec-Fetch-Site: same-origin\r\n".to_owned(),
        format!("{own}Sec-Fetch-Site: cross-site\r\n"),
        format!("{own}Sec-Fetch-Site: same-site\r\n"),
        format!("{own}Origin: https://evil.example\r\n"),
        format!("{own}Origin: null\r\n"),
    ];
    for fields in &refused {
        for (request, _) in requests {
            assert_eq!(ask(request, "", fields), 403, "{request:?} {fields}");
        }
        // Probes and scrapers go on.
        assert_eq!(ask(("GET", "/health"), "", fields), 200);
        assert_eq!(ask(("GET", "/metrics"), "", fields), 200);
    }
    for fields in [
        own.clone(),
        format!("Host: localhost:{admin}\r\n"),
        "Host: [::1]\r\n".to_owned(),
        "Host: admin.internal\r\n".to_owned(),
        format!("{own}Origin: http://127.0.0.1:{admin}\r\nSec-Fetch-Site: same-origin\r\n"),
    ] {
        for (request, status) in requests {
            assert_eq!(ask(request, "", &fields), status, "{request:?} {fields}");
        }
    }
    // Who shows a credential is no page that only knows a name.
    files("{ view: partners, operate: partners }");
    assert_eq!(ask(("POST", "/reload"), "", &own), 200);
    for (request, status) in requests {
        assert_eq!(ask(request, "", &own), 401, "{request:?}");
        assert_eq!(ask(request, &operator, "Host: ops.example\r\n"), status);
        for fields in &refused[3..] {
            assert_eq!(ask(request, &operator, fields), 403, "{request:?} {fields}");
        }
    }
    // The log says who has changed the list, and where nobody can be told apart from where.
    let log = engine.stop();
    let changes = log.lines().filter(|it| it.contains("\"name\":\"eve\""));
    let is_known = |line: &&str| line.contains("\"by\":\"ann\"");
    let (known, unknown): (Vec<&str>, Vec<&str>) = changes.partition(is_known);
    assert_eq!((known.len(), unknown.len()), (2, 10), "{log}");
    assert!(unknown.iter().all(|it| it.contains("127.0.0.1")), "{log}");
}

#[test]
fn bad_settings_of_the_admin_port_are_reported() {
    let folder = TempDir::new();
    let keys = "{ api_key: { keys: partners.keys } }";
    folder.write("partners.keys", "");
    let one = format!("{{ partners: {keys} }}");
    let two = format!("{{ partners: {keys}, staff: {keys} }}");
    let shown = "{ shops: { mtls: {} } }";
    let login = "{ people: { oidc: { issuer: 'https://id.example', client_id: a, public_url: \
                 'https://shop.example' } } }";
    let both = format!("{{ partners: {keys}, {}", &login[2..]);
    let signed = "{ hook: { hmac: { scheme: github, secret: a secret that both share } } }";
    for (ways, admin, expected) in [
        (&*one, "{ listen: nowhere }", "IT0213"),
        (&one, "{ view: partner }", "IT0701"),
        (&two, "{ operate: '$auth.id == \"ann\"' }", "IT0724"),
        (&two, "{ view: none, operate: '$auth.id' }", "IT0724"),
        (&one, "{ operate: '$auth.id == ' }", "IT0230"),
        (
            &one,
            "{ view: partners, operate: '$auth.id | nothing' }",
            "IT0230",
        ),
        (signed, "{ view: hook }", "IT0724"),
        (signed, "{ operate: hook }", "IT0724"),
        (shown, "{ view: shops }", "IT0724"),
        (shown, "{ operate: '$auth.id == \"a\"' }", "IT0724"),
        (login, "{ operate: people }", "IT0724"),
        (
            &both,
            "{ view: partners, operate: { any: [partners, people] } }",
            "IT0724",
        ),
        (&one, "{ hosts: ['http://a'] }", "IT0724"),
        (&one, "{ hosts: ['a:1'] }", "IT0724"),
        (&one, "{ hosts: a }", "IT01"),
        (&one, "{ hosts: [admin.internal], operate: none }", ""),
        (&one, "{ hosts: [admin.internal] }", ""),
        (
            &one,
            "{ hosts: [admin.internal], view: partners, operate: partners }",
            "IT0724",
        ),
        (&one, "{ shown: partners }", "IT0111"),
        (
            &one,
            "{ view: partners, operate: '$auth.id == \"ann\"' }",
            "",
        ),
        (&one, "{ operate: '$auth.id == \"ann\"' }", ""),
        (
            &one,
            "{ view: { any: [partners], require: '$auth.id != \"x\" # no x' }, operate: '$auth.plan == \"a\"' }",
            "",
        ),
    ] {
        let text = format!(
            "engine:\n  auth: {ways}\n  admin: {admin}\n---\n\
             flow: a\nfrom: {{ http: GET /a }}\nsteps: [ reply: {{}} ]\n"
        );
        let file = folder.write("flows.yaml", &text);
        let result = output(&["check", "--format", "json", file.to_str().unwrap()]);
        let report = String::from_utf8(result.stdout).unwrap();
        match expected {
            "" => assert!(result.status.success(), "{admin}\n{report}"),
            code => {
                assert_eq!(report.lines().count(), 1, "{admin}\n{report}");
                assert!(report.contains(code), "{admin}\n{report}");
            }
        }
    }
}

#[test]
fn cached_results_and_idempotency_keys_belong_to_their_caller() {
    let (folder, port) = (TempDir::new(), free_port());
    let [ann, bob] = keys(&folder, "partners.keys", [("ann", &[]), ("bob", &[])]);
    let flow = |name: &str, step: &str| {
        format!("---\nflow: {name}\nfrom: {{ http: POST /{name} }}\nauth: partners\nsteps:\n{step}")
    };
    let cache = |shared: &str| {
        format!(
            "  - cache: {{ key: \"${{ .id }}\", ttl: 1h,{shared} steps: [ map: '{{ who: $auth.id }}' ] }}\n"
        )
    };
    let once = |shared: &str| {
        format!(
            "  - idempotent: {{ key: \"${{ .id }}\", replay: true,{shared} \
             steps: [ map: '{{ who: $auth.id }}', reply: {{ status: 201 }} ] }}\n"
        )
    };
    folder.write(
        "flows.yaml",
        &[
            format!(
                "engine:\n  listen: '127.0.0.1:{port}'\n  \
                 auth: {{ partners: {{ api_key: {{ keys: partners.keys }} }} }}\n"
            ),
            flow("cached", &cache("")),
            flow("cached-for-all", &cache(" shared: true,")),
            flow("once", &once("")),
            flow("once-for-all", &once(" shared: true,")),
            flow("calls", "  - call: called\n"),
            format!("---\nflow: called\nfrom: call\nsteps:\n{}", cache("")),
            flow(
                "publishes",
                "  - publish: { topic: events, key: \"${ .id }\", body: 1 }\n  - map: $published.new\n",
            ),
            "---\ntopic: events\npayload: event\ndurability: memory\n\
             publish: { http: POST /events, auth: partners }\nsubscribe: { auth: partners, \
             websocket: { publish: true } }\n"
                .to_owned(),
        ]
        .concat(),
    );
    let engine = Engine::run(&[folder.path()], &[]);
    let who = |path: &str, key: &str| post(port, path, (key, ""), r#"{"id":"7"}"#).text();
    for path in ["/cached", "/once", "/calls"] {
        assert_eq!(who(path, &ann), r#"{"who":"ann"}"#, "{path}");
        assert_eq!(who(path, &bob), r#"{"who":"bob"}"#, "{path}");
        assert_eq!(who(path, &ann), r#"{"who":"ann"}"#, "{path}");
    }
    for path in ["/cached-for-all", "/once-for-all"] {
        assert_eq!(who(path, &ann), r#"{"who":"ann"}"#, "{path}");
        assert_eq!(who(path, &bob), r#"{"who":"ann"}"#, "{path}");
    }
    // The events of both are published, those of each once.
    let key = "Idempotency-Key: A1\r\n";
    let by_http = |caller: &str| {
        let reply = post(port, "/events", (caller, key), "1");
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.text().contains("\"new\":true")
    };
    assert_eq!(
        [&ann, &bob, &ann].map(|it| by_http(it)),
        [true, true, false]
    );
    let by_socket = |caller: &str| {
        let fields = format!("X-Api-Key: {caller}\r\n");
        let (_, mut socket) = WebSocket::connect(port, "/topics/ws", &fields);
        socket.text(r#"{"type":"publish","topic":"events","data":1,"key":"B1"}"#);
        let answer = socket.next_text();
        assert!(answer.contains("\"type\":\"ack\""), "{answer}");
        answer.contains("\"new\":true")
    };
    assert_eq!(
        [&ann, &bob, &bob].map(|it| by_socket(it)),
        [true, true, false]
    );
    let by_flow = |caller: &str| who("/publishes", caller);
    assert_eq!(
        [&ann, &bob, &ann].map(|it| by_flow(it)),
        ["true", "true", "false"]
    );
    engine.stop();
}

/// The problems of a file as `CODE line: message | hint`.
fn problems(folder: &TempDir, text: &str) -> Vec<String> {
    let file = folder.write("flows.yaml", text);
    let result = output(&["check", "--format", "json", file.to_str().unwrap()]);
    let report = String::from_utf8(result.stdout).unwrap();
    let is_sound = result.status.success();
    let shown = |line: &str| {
        let problem: serde_json::Value = serde_json::from_str(line).unwrap();
        let is_warning = problem["severity"] == "warning";
        assert_eq!(is_warning, is_sound, "{line}");
        let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
        format!(
            "{} {}: {} | {}",
            text("code"),
            problem["line"],
            text("message"),
            text("hint")
        )
    };
    report.lines().map(shown).collect()
}

/// The codes and lines of problems.
fn places(problems: &[String]) -> Vec<&str> {
    let place = |it: &String| it.find(':').map_or(0, |end| end);
    problems.iter().map(|it| &it[..place(it)]).collect()
}

const ISSUER: &str =
    "engine:\n  auth: { staff: { jwt: { issuer: \"https://id.example\", audience: a } } }\n";

#[test]
fn check_warns_about_what_is_open_or_in_clear_text() {
    let folder = TempDir::new();
    let flow = |name: &str, listen: &str, more: &str| {
        format!(
            "---\nflow: {name}\nfrom: {{ http: 'GET {listen}/{name}' }}\n{more}\
             steps: [ reply: {{}} ]\n"
        )
    };
    let topic = |publish: &str, subscribe: &str| {
        format!(
            "---\ntopic: t\npublish: {{ http: 'POST :8080/t'{publish} }}\n\
             subscribe: {{ listen: ':8080'{subscribe} }}\n"
        )
    };
    let none: [&str; 0] = [];
    for (text, expected) in [
        // Open beside a known way.
        (flow("a", ":8080", ""), &["IT0720 5"][..]),
        (flow("a", "0.0.0.0:8080", ""), &["IT0720 5"]),
        (flow("a", ":8080", "auth: none\n"), &none),
        (flow("a", ":8080", "networks: [10.0.0.0/8]\n"), &none),
        (flow("a", "127.0.0.1:8080", ""), &none),
        (flow("a", "localhost:8080", ""), &none),
        (topic("", ""), &["IT0720 5", "IT0720 6"]),
        (topic(", auth: none", ", auth: none"), &none),
        // Credentials without TLS, once for each address.
        (
            flow("a", ":8080", "auth: staff\n") + &flow("b", ":8080", "auth: staff\n"),
            &["IT0723 5"],
        ),
        (topic(", auth: staff", ", auth: staff"), &["IT0723 5"]),
        (flow("a", "127.0.0.1:8080", "auth: staff\n"), &none),
    ] {
        let found = problems(&folder, &format!("{ISSUER}{text}"));
        assert_eq!(places(&found), expected, "{text}\n{found:?}");
    }
    // What is in front ends TLS, or says from where clients may come.
    let locked = flow("a", ":8080", "auth: staff\n");
    for more in [
        "  trusted_proxies: [10.0.0.7]\n",
        "  listeners: { ':8080': { trusted_proxies: [10.0.0.7] } }\n",
    ] {
        let found = problems(&folder, &format!("{ISSUER}{more}{locked}"));
        assert!(found.is_empty(), "{more} {found:?}");
    }
    let open = flow("a", ":8080", "");
    let bounded =
        format!("{ISSUER}  listeners: {{ ':8080': {{ networks: [10.0.0.0/8] }} }}\n{open}");
    assert!(problems(&folder, &bounded).is_empty());
    let meant = format!("{ISSUER}  listeners: {{ ':8080': {{ auth: none }} }}\n{open}");
    assert!(problems(&folder, &meant).is_empty());
    // Nothing tells callers apart: all is meant to be open.
    assert!(problems(&folder, &open).is_empty());

    // The admin port.
    for (admin, expected) in [
        ("{ listen: ':9900', operate: none }", &["IT0720 3"][..]),
        ("{ listen: ':9900', view: staff }", &["IT0723 3"]),
        (
            "{ listen: '127.0.0.1:9900', view: staff, operate: none }",
            &none,
        ),
    ] {
        let text = format!("{ISSUER}  admin: {admin}\n{}", flow("a", "127.0.0.1:1", ""));
        let found = problems(&folder, &text);
        assert_eq!(places(&found), expected, "{admin}\n{found:?}");
    }

    // Those who decide are asked in clear text.
    let local = flow("a", "127.0.0.1:8080", "");
    let oidc = |issuer: &str| {
        format!(
            "oidc: {{ issuer: {issuer}, client_id: shop, public_url: 'http://localhost:8080' }}"
        )
    };
    for (way, expected) in [
        (
            "jwt: { issuer: 'http://id.example', audience: a }",
            &["IT0721 2"][..],
        ),
        (
            "jwt: { issuer: 'http://id.example', audience: a, jwks: 'https://id.example/keys' }",
            &none,
        ),
        (
            "jwt: { issuer: 'https://id.example', audience: a, jwks: 'http://id.example/keys' }",
            &["IT0721 2"],
        ),
        (
            "introspect: { url: 'http://id.example/', bearer: \"${ $env.PATH }\" }",
            &["IT0721 2"],
        ),
        ("ask: { url: 'http://sso.example/' }", &["IT0721 2"]),
        ("ask: { url: 'http://127.0.0.1:4180/' }", &none),
        (&oidc("'http://id.example'"), &["IT0721 2"]),
        (&oidc("'http://127.0.0.1:5556'"), &none),
        (&oidc("'https://id.example'"), &none),
        (
            &oidc("'https://id.example', token_url: 'http://id.example/token'"),
            &["IT0721 2"],
        ),
        (
            &oidc("'https://id.example', jwks: 'http://id.example/keys'"),
            &["IT0721 2"],
        ),
        (
            &oidc("'https://id.example', jwks_origin: 'http://keys.example'"),
            &["IT0721 2"],
        ),
    ] {
        let text = format!("engine:\n  auth: {{ way: {{ {way} }} }}\n  env: [PATH]\n{local}");
        let found = problems(&folder, &text);
        assert_eq!(places(&found), expected, "{way}\n{found:?}");
    }
}

#[test]
fn check_warns_about_secrets_in_files_and_does_not_show_them() {
    let folder = TempDir::new();
    let plain = "correct horse battery staple";
    let text = |bearer: &str, url: &str| {
        format!(
            "engine:\n  env: [HOME]\n  auth:\n    hook: {{ hmac: {{ scheme: github, secret: [\"{bearer}\"] }} }}\n---\n\
             flow: a\nuse:\n  crm: {{ http: \"https://crm.example\", auth: {{ bearer: \"{bearer}\" }} }}\n  \
             mq: {{ rabbitmq: \"{url}\" }}\n\
             from: {{ http: 'GET 127.0.0.1:1/' }}\nsteps: [ set: {{ password: none }}, reply: {{}} ]\n"
        )
    };
    let bad = text(plain, "amqp://shop:xyzzy-plugh@mq.example");
    let found = problems(&folder, &bad);
    assert_eq!(
        places(&found),
        ["IT0722 4", "IT0722 8", "IT0722 9"],
        "{found:?}"
    );
    let file = folder.write("flows.yaml", &bad);
    let result = output(&["check", file.to_str().unwrap()]);
    let shown = String::from_utf8(result.stdout).unwrap();
    assert!(result.status.success(), "{shown}");
    assert!(
        !shown.contains("horse") && !shown.contains("plugh"),
        "{shown}"
    );
    let good = text(
        "${ $env.HOME }-and-much-more",
        "amqp://guest:guest@localhost",
    );
    assert!(problems(&folder, &good).is_empty());
}

#[test]
fn mistakes_in_auth_are_reported_once_with_a_hint() {
    let folder = TempDir::new();
    let flow = |auth: &str| {
        format!(
            "{ISSUER}---\nflow: a\nfrom: {{ http: 'GET 127.0.0.1:1/' }}\nauth: {auth}\n\
             steps: [ reply: {{}} ]\n"
        )
    };
    for (auth, expected) in [
        (
            "[staff]",
            "IT0702 6: `auth` is the name of a way, `none` or a mapping, not a list | write `{ any: [staff] }`",
        ),
        ("false", "write `none` to let everybody in"),
        ("true", "the name of a way"),
        ("{ any: [none] }", "`auth: none`"),
        ("{ any: [staff], scope: a }", "IT0111 6: "),
        ("{ scopes: [a] }", "IT0113 6: "),
        (
            "{ any: [staff], require: \"${ $auth.claims.admin }\" }",
            "write `require: '$auth.claims.admin'`",
        ),
    ] {
        let found = problems(&folder, &flow(auth));
        assert_eq!(found.len(), 1, "{auth} {found:?}");
        assert!(found[0].contains(expected), "{auth} {found:?}");
    }
    for (way, expected) in [
        (
            "jwt: { issuer: \"https://id.example\" , audiences: a }",
            "IT0111",
        ),
        ("hmac: { scheme: github }", "IT0113"),
        (
            "hmac: { scheme: github, secret: short }",
            "openssl rand -hex 32",
        ),
        (
            "hmac: { scheme: standard-webhooks, secret: short }",
            "whsec_",
        ),
    ] {
        let text = format!(
            "engine: {{ auth: {{ way: {{ {way} }} }} }}\n---\nflow: a\n\
             from: {{ http: 'GET 127.0.0.1:1/' }}\nsteps: [ reply: {{}} ]\n"
        );
        let file = folder.write("flows.yaml", &text);
        let result = output(&["check", "--format", "json", file.to_str().unwrap()]);
        let report = String::from_utf8(result.stdout).unwrap();
        let errors: Vec<&str> = report
            .lines()
            .filter(|it| !it.contains("IT0722") && !it.contains("audience` or"))
            .collect();
        assert_eq!(errors.len(), 1, "{way} {report}");
        assert!(errors[0].contains(expected), "{way} {report}");
    }
}

#[test]
fn tests_of_a_locked_flow_say_who_calls() {
    let folder = TempDir::new();
    let file = |tests: &str| {
        folder.write(
            "flows.yaml",
            &format!(
                "engine:\n  auth:\n    staff: {{ jwt: {{ issuer: \"https://id.example\", \
                 audience: a }} }}\n    desk: {{ jwt: {{ issuer: \"https://desk.example\", audience: a }} }}\n---\n\
                 flow: a\nfrom: {{ http: 'GET /t/{{tenant}}' }}\nauth: {{ any: [staff, desk], \
                 scopes: [read], require: '$auth.claims.tenant == $path.tenant' }}\n\
                 steps: [ map: '{{ way: $auth.way, id: $auth.id }}' ]\ntests:\n{tests}"
            ),
        )
    };
    let ann = "id: ann, scopes: [read], claims: { tenant: x }";
    let good = format!(
        "  - {{ name: nobody, in: {{ path: /t/x }}, \
            expect: {{ status: 401, headers: {{ Content-Type: application/problem+json }} }} }}\n  \
         - {{ name: none, in: {{ path: /t/x, auth: none }}, \
            expect: {{ error: unauthorized }} }}\n  \
         - {{ name: few rights, \
            in: {{ path: /t/x, auth: {{ id: ann, claims: {{ tenant: x }} }} }}, \
            expect: {{ status: 403 }} }}\n  \
         - {{ name: another tenant, in: {{ path: /t/y, auth: {{ {ann} }} }}, \
            expect: {{ error: {{ kind: forbidden }} }} }}\n  \
         - {{ name: first way, in: {{ path: /t/x, auth: {{ {ann} }} }}, \
            expect: {{ status: 200, body: {{ way: staff, id: ann }} }} }}\n  \
         - {{ name: other way, in: {{ path: /t/x, auth: {{ way: desk, {ann} }} }}, \
            expect: {{ body: {{ way: desk, id: ann }} }} }}\n"
    );
    let path = file(&good);
    let result = output(&["test", path.to_str().unwrap()]);
    let report = String::from_utf8(result.stdout).unwrap();
    assert!(result.status.success(), "{report}");
    // A refusal that the test does not speak of is a failure.
    let path = file("  - { name: nobody, in: { path: /t/x } }\n");
    let result = output(&["test", path.to_str().unwrap()]);
    let report = String::from_utf8(result.stdout).unwrap();
    assert!(!result.status.success(), "{report}");
    assert!(report.contains("in.auth"), "{report}");
    for (auth, expected) in [("{ way: partners, id: ann }", "IT0229"), ("nobody", "IT01")] {
        let path = file(&format!(
            "  - {{ name: a, in: {{ path: /t/x, auth: {auth} }} }}\n"
        ));
        let result = output(&["check", "--format", "json", path.to_str().unwrap()]);
        let report = String::from_utf8(result.stdout).unwrap();
        assert!(report.contains(expected), "{auth} {report}");
        assert_eq!(report.lines().count(), 1, "{auth} {report}");
    }
}
