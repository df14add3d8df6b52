//! The egress guard over a running engine: URLs of messages, redirects, names, our own listeners,
//! and requests that come back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use testkit::servers::Tinyproxy;
use testkit::{Authority, Process, RawClient, Received, StrictBackend, TempDir, free_port};

use crate::support::{Engine, TlsFolder, at_port, command, output, post};

/// An engine that calls the URL of each message. `settings` is what `engine` says.
fn calling(port: u16, settings: &str) -> (Engine, TempDir) {
    let folder = TempDir::new();
    let engine = run(&folder, port, settings);
    (engine, folder)
}

fn run(folder: &TempDir, port: u16, settings: &str) -> Engine {
    folder.write("flow.yaml", &flow(port, settings));
    Engine::run(&[folder.path()], &[])
}

fn flow(port: u16, settings: &str) -> String {
    format!(
        "engine: {{ {settings} }}\n---\nflow: call\nfrom: {{ http: \"POST 127.0.0.1:{port}/call\" \
         }}\nsteps:\n  - http: {{ to: \"${{ .url }}\", egress: guarded, method: POST, expect: \
         [2xx, 3xx] }}\n    name: hook\n  - reply: {{ status: 200, body: {{ status: \"${{ $reply.status }}\" }} \
         }}\n"
    )
}

/// Has the engine call a URL: the status of its reply, and the text.
fn call(port: u16, url: &str) -> (u16, String) {
    let body = serde_json::json!({ "url": url }).to_string();
    let reply = post(port, "/call", "application/json", &body);
    (reply.status, reply.text())
}

/// A back end that counts what arrives.
fn backend(reply: &'static str) -> StrictBackend {
    StrictBackend::answering(move |_: &Received| reply.as_bytes().to_vec())
}

const OK: &str = "HTTP/1.1 204 No Content\r\n\r\n";

#[test]
fn no_spelling_of_the_list_gets_through() {
    let port = free_port();
    let (engine, _folder) = calling(port, "");
    for spelling in testkit::egress_spellings() {
        // What may pass leads to other people's hosts.
        if spelling.verdict == "pass" {
            continue;
        }
        let (status, text) = call(port, &spelling.url);
        let is_name = spelling.verdict == "name";
        // A name that nobody knows cannot be reached.
        let is_right = status == 403 || (is_name && matches!(status, 502 | 504));
        assert!(is_right, "{spelling:?}: {status} {text}");
    }
    // The log has one line a second.
    std::thread::sleep(Duration::from_millis(1100));
    let (status, text) = call(port, "https://localhost/");
    assert_eq!(status, 403, "{text}");
    assert!(text.contains("this address may not be called"), "{text}");
    assert!(
        !text.contains("127.0.0.1") && !text.contains("::1"),
        "{text}"
    );
    assert!(engine.metric("intertie_egress_refused_total") >= 60.0);
    let log = engine.stop();
    let tells = |text: &str| log.lines().any(|line| line.contains(text));
    assert!(tells("127.0.0.1, a loopback address") || tells("::1, a loopback address"));
    // Not each of them: nobody fills the log.
    let told = log
        .lines()
        .filter(|line| line.contains("by the egress guard"));
    assert!(told.count() < 60, "{log}");
}

#[test]
fn what_is_allowed_is_called_and_nothing_else() {
    let (allowed, denied, port) = (backend(OK), backend(OK), free_port());
    let settings = format!(
        "egress: {{ allow: [127.0.0.0/8], deny: [127.0.0.2], schemes: [http], ports: [{}, {port}] }}",
        allowed.port()
    );
    let (engine, _folder) = calling(port, &settings);
    let url = |host: &str, port: u16| format!("http://{host}:{port}/hook?a=1#x");
    for host in ["127.0.0.1", "localhost", "LOCALHOST"] {
        let (status, text) = call(port, &url(host, allowed.port()));
        assert_eq!((status, text.as_str()), (200, "{\"status\":204}"), "{host}");
    }
    let received = allowed.requests();
    assert!(received.iter().all(|it| it.target == "/hook?a=1"));
    // One pool for all spellings of one host.
    for (host, to) in [
        ("127.0.0.1", denied.port()),
        ("127.0.0.2", allowed.port()),
        ("[::ffff:127.0.0.2]", allowed.port()),
        ("[::1]", allowed.port()),
        ("10.0.0.1", allowed.port()),
    ] {
        let (status, text) = call(port, &url(host, to));
        assert_eq!(status, 403, "{host}:{to} {text}");
    }
    assert!(denied.requests().is_empty());
    drop(engine);
}

#[test]
fn guarded_requests_go_through_the_proxy_to_addresses_that_were_checked_here() {
    let proxy = Tinyproxy::start("BasicAuth user secret-of-the-proxy");
    let (allowed, port) = (backend(OK), free_port());
    let proxy_port = proxy.port();
    let settings = |password: &str| {
        format!(
            "egress: {{ allow: [127.0.0.1], schemes: [http], ports: [{}], proxy: {{ url: \
             \"http://127.0.0.1:{}\", user: user, password: \"{password}\" }} }}",
            allowed.port(),
            proxy_port
        )
    };
    let url = |host: &str| format!("http://{host}:{}/hook", allowed.port());
    let (engine, folder) = calling(port, &settings("secret-of-the-proxy"));
    for _ in 0..2 {
        let (status, text) = call(port, &url("localhost"));
        assert_eq!((status, text.as_str()), (200, "{\"status\":204}"));
    }
    assert_eq!(allowed.requests().len(), 2);
    // The proxy is never told a name, and is asked once by each worker.
    let asked = format!("CONNECT 127.0.0.1:{} HTTP/1.1", allowed.port());
    let asked = || proxy.log().matches(&asked).count();
    testkit::wait_until("the proxy has logged it", || asked() >= 1);
    // What may not be called is not asked of the proxy.
    assert_eq!(call(port, &url("127.0.0.2")).0, 403);
    assert!(asked() <= 2, "{}", proxy.log());
    assert!(!proxy.log().contains("127.0.0.2"), "{}", proxy.log());
    assert!(!proxy.log().contains("localhost"), "{}", proxy.log());
    let log = engine.stop();
    assert!(!log.contains("secret-of-the-proxy"), "{log}");

    let engine = run(&folder, port, &settings("wrong"));
    let (status, text) = call(port, &url("127.0.0.1"));
    assert_eq!(status, 502, "{text}");
    let log = engine.stop();
    assert!(
        log.contains("the egress proxy does not connect: it answers 401")
            || log.contains("the egress proxy does not connect: it answers 407"),
        "{log}"
    );
    drop(proxy);
    let engine = run(&folder, port, &settings("secret-of-the-proxy"));
    assert_eq!(call(port, &url("127.0.0.1")).0, 502);
    engine.stop();
    assert_eq!(allowed.requests().len(), 2);
}

#[test]
fn redirects_are_not_followed() {
    let (inner, port) = (backend(OK), free_port());
    let location = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:{}/inner\r\n\
         Content-Length: 0\r\n\r\n",
        inner.port()
    );
    let outer = StrictBackend::answering(move |_: &Received| location.clone().into_bytes());
    let settings = format!(
        "egress: {{ allow: [127.0.0.1], schemes: [http], ports: [{}] }}",
        outer.port()
    );
    let (_engine, _folder) = calling(port, &settings);
    let (status, text) = call(port, &format!("http://127.0.0.1:{}/", outer.port()));
    assert_eq!((status, text.as_str()), (200, "{\"status\":307}"));
    assert_eq!(outer.requests().len(), 1);
    assert!(inner.requests().is_empty());
}

#[test]
fn each_connection_of_a_guarded_connection_is_checked_behind_redirects_too() {
    let port = free_port();
    let (backend_port, hits) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (known, seen) = (Arc::clone(&backend_port), Arc::clone(&hits));
    let backend = StrictBackend::answering(move |request: &Received| {
        seen.lock().unwrap().push(request.target.clone());
        let to = match request.target.as_str() {
            "/same" => "/there".to_owned(),
            "/other" => format!("http://127.0.0.2:{}/there", known.lock().unwrap()),
            _ => return OK.as_bytes().to_vec(),
        };
        format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    *backend_port.lock().unwrap() = backend.port();
    let folder = TempDir::new();
    folder.write(
        "flow.yaml",
        &format!(
            "engine: {{ egress: {{ allow: [127.0.0.1], schemes: [http], ports: [{0}] }} }}\nuse:\n  \
             one: {{ http: \"http://127.0.0.1:{0}\", egress: guarded }}\n---\nflow: follow\nfrom: \
             {{ http: \"GET 127.0.0.1:{port}/{{way}}\" }}\nsteps:\n  - http: {{ to: \"one:/${{ \
             $path.way }}\", redirects: 3 }}\n---\nflow: pass\nfrom: {{ http: \"any \
             127.0.0.1:{port}/forward/*\" }}\nsteps:\n  - forward: one:/\n",
            backend.port()
        ),
    );
    let _engine = Engine::run(&[folder.path()], &[]);
    let get = |path: &str| crate::support::get(port, path).status;
    assert_eq!((get("/same"), get("/other")), (204, 502));
    assert_eq!(get("/forward/x"), 204);
    assert_eq!(*hits.lock().unwrap(), ["/same", "/there", "/other", "/x"]);
}

/// Each spelling is tried as it stands, and with scheme and port of a target that listens and that
/// the settings let through: whoever follows one of them hits it.
#[test]
fn no_spelling_of_the_list_gets_through_by_a_redirect() {
    let (inner, port) = (backend(OK), free_port());
    let both = |url: String| [at_port(&url, inner.port()), url];
    let spellings = testkit::egress_spellings().into_iter();
    let locations: Vec<String> = spellings.flat_map(|it| both(it.url)).collect();
    assert!(locations.len() >= 120);
    let answers = locations.clone();
    let outer = StrictBackend::answering(move |request: &Received| {
        let number: Option<usize> = request.target[1..].parse().ok();
        let Some(to) = number.and_then(|it| answers.get(it)) else {
            return OK.as_bytes().to_vec();
        };
        format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let folder = TempDir::new();
    folder.write(
        "flow.yaml",
        &format!(
            "engine: {{ egress: {{ allow: [127.0.0.0/8], schemes: [http], ports: [{0}, {1}] }} \
             }}\nuse:\n  one: {{ http: \"http://127.0.0.1:{0}\", egress: guarded }}\n---\nflow: \
             follow\nfrom: {{ http: \"GET 127.0.0.1:{port}/{{number}}\" }}\nsteps:\n  - http: {{ to: \
             \"one:/${{ $path.number }}\", redirects: 3 }}\n",
            outer.port(),
            inner.port()
        ),
    );
    let _engine = Engine::run(&[folder.path()], &[]);
    for (number, location) in locations.iter().enumerate() {
        let reply = crate::support::get(port, &format!("/{number}"));
        assert_eq!(reply.status, 502, "{location:?}: {}", reply.text());
    }
    assert!(inner.requests().is_empty());
    let asked = outer.requests();
    let is_redirect = |it: &Received| it.target[1..].parse::<usize>().is_ok();
    assert!(asked.iter().all(is_redirect), "nothing else is asked for");
}

#[test]
fn a_name_that_leads_to_this_machine_is_refused_for_connections_of_files_too() {
    let (backend, port) = (backend(OK), free_port());
    let folder = TempDir::new();
    folder.write(
        "flow.yaml",
        &format!(
            "engine: {{ egress: {{ schemes: [http], ports: [{0}] }} }}\nuse:\n  one: {{ http: \
             \"http://localhost:{0}\", egress: guarded }}\n  open: {{ http: \"http://localhost:{0}\" \
             }}\n---\nflow: guarded\nfrom: {{ http: \"GET 127.0.0.1:{port}/guarded\" }}\nsteps:\n  - \
             forward: one:/\n---\nflow: open\nfrom: {{ http: \"GET 127.0.0.1:{port}/open\" \
             }}\nsteps:\n  - forward: open:/\n",
            backend.port()
        ),
    );
    let _engine = Engine::run(&[folder.path()], &[]);
    let refused = crate::support::get(port, "/guarded");
    assert_eq!(refused.status, 502, "{}", refused.text());
    assert!(refused.text().contains("the back end may not be called"));
    assert!(!refused.text().contains("127.0.0.1") && !refused.text().contains("::1"));
    assert!(backend.requests().is_empty());
    assert_eq!(crate::support::get(port, "/open").status, 204);
}

#[test]
fn our_own_listeners_are_never_called() {
    let (port, all, admin_url) = (free_port(), free_port(), "/reload");
    let folder = TempDir::new();
    let text = flow(
        port,
        "egress: { allow: [127.0.0.0/8], schemes: [http], ports: [PORTS] }",
    );
    let own = format!(
        "---\nflow: own\nfrom: {{ http: \"any :{all}/*\" }}\nsteps: [ reply: {{ body: called }} ]\n"
    );
    // The admin port is known only when the engine runs: the files change, and are loaded again.
    folder.write(
        "flow.yaml",
        &(text.replace("PORTS", &format!("{port}, {all}")) + &own),
    );
    let engine = Engine::run(&[folder.path()], &["--watch"]);
    for url in [
        format!("http://127.0.0.1:{port}/call"),
        format!("http://localhost:{port}/call"),
        format!("http://127.0.0.1:{all}/x"),
        // On all interfaces every address of this machine is ours.
        format!("http://127.0.0.9:{all}/x"),
        format!("http://[::ffff:127.0.0.1]:{all}/x"),
    ] {
        let (status, text) = call(port, &url);
        assert_eq!(status, 403, "{url} {text}");
    }
    let admin = engine.admin;
    folder.write(
        "flow.yaml",
        &(text.replace("PORTS", &admin.to_string()) + &own),
    );
    testkit::wait_until("it is loaded", || {
        let (_, text) = call(port, &format!("http://127.0.0.1:{port}/call"));
        text.contains("this port")
    });
    let (status, text) = call(port, &format!("http://127.0.0.1:{admin}{admin_url}"));
    assert_eq!(status, 403, "{text}");
    let log = engine.stop();
    assert!(
        log.contains("is an address that this engine listens on"),
        "{log}"
    );
}

/// A proxy such as a load balancer stands between, so that the address is not ours.
#[test]
fn requests_that_come_back_by_way_of_others_are_refused() {
    let (port, folder) = (free_port(), TempDir::new());
    let hops = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&hops);
    let balancer = StrictBackend::answering(move |request: &Received| {
        let hop = request.all("CDN-Loop").join(", ");
        seen.lock().unwrap().push(hop.clone());
        let mut client = RawClient::connect(port);
        let body = String::from_utf8(request.body.clone()).unwrap();
        client.send(format!(
            "POST /call HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nCDN-Loop: \
             {hop}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        let status = client.response().status;
        format!("HTTP/1.1 200 OK\r\nX-Status: {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let settings = format!(
        "egress: {{ allow: [127.0.0.1], schemes: [http], ports: [{}], loop_id: shop.example }}",
        balancer.port()
    );
    let _engine = run(&folder, port, &settings);
    let url = format!("http://127.0.0.1:{}/", balancer.port());
    assert_eq!(call(port, &url).0, 200);
    assert_eq!(
        *hops.lock().unwrap(),
        ["shop.example"],
        "it came once, and was refused"
    );
    let ask = |fields: &str| {
        let mut client = RawClient::connect(port);
        let body = serde_json::json!({ "url": "https://127.0.0.1/" }).to_string();
        client.send(format!(
            "POST /call HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{fields}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        client.response().status
    };
    assert_eq!(ask("CDN-Loop: cloudflare\r\n"), 403, "the guard's refusal");
    assert_eq!(ask("cdn-loop: a, Shop.Example;x\r\n"), 508);
    assert_eq!(ask("CDN-Loop: a\r\nCDN-Loop: shop.example\r\n"), 508);
    let many = format!("CDN-Loop: {}\r\n", ["a"; 17].join(","));
    assert_eq!(ask(&many), 508);
}

#[test]
fn requests_over_http2_that_come_back_are_refused_too() {
    let tls = TlsFolder::new();
    let port = free_port();
    let engine = tls.run(&format!(
        "engine: {{ egress: {{ loop_id: shop }} }}\n---\nflow: call\nfrom: {{ http: {{ method: \
         POST, listen: \"127.0.0.1:{port}\", path: /call, tls: {{ cert: server.pem, key: \
         server.key }} }} }}\nsteps:\n  - http: {{ to: \"${{ .url }}\", egress: guarded }}\n"
    ));
    let url = format!("https://localhost:{port}/call");
    for (hop, expected) in [("other", "403"), ("other, shop", "508")] {
        let line = format!("CDN-Loop: {hop}");
        let arguments = [
            "--http2",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_version} %{http_code}",
            "--json",
            "{\"url\":\"https://10.0.0.1/\"}",
            "--header",
            &line,
            &url,
        ];
        let output = tls.curl("10", &arguments).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text, format!("2 {expected}"), "{hop}");
    }
    drop(engine);
}

#[test]
fn each_host_has_to_show_a_certificate_for_its_own_name() {
    let folder = TlsFolder::new();
    let (good, other) = (
        folder.authority.issue(&["localhost"]),
        folder.authority.issue(&["other.example"]),
    );
    let stranger = Authority::new("stranger").issue(&["localhost"]);
    let mut ports = Vec::new();
    let stubs = [("good", good), ("other", other), ("stranger", stranger)];
    let _stubs = stubs.map(|(name, issued)| {
        folder.put(name, &issued);
        let port = free_port();
        ports.push(port.to_string());
        let mut stub = Process::start(command().args([
            "stub",
            "echo",
            "--tls",
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--cert",
            &folder.path(&format!("{name}.pem")),
            "--key",
            &folder.path(&format!("{name}.key")),
        ]));
        stub.wait_for_port(port);
        stub
    });
    let port = free_port();
    let engine = folder.run(&format!(
        "engine: {{ egress: {{ allow: [127.0.0.1, \"::1\"], ports: [{}] }} }}\n---\nflow: call\n\
         from: {{ http: \"POST 127.0.0.1:{port}/call\" }}\nsteps:\n  - http: {{ to: \"${{ .url }}\", \
         egress: guarded, tls: {{ ca: ca.pem }} }}\n  - reply: {{ status: 200, body: yes }}\n",
        ports.join(", ")
    ));
    let call = |host: &str, at: usize| call(port, &format!("https://{host}:{}/", ports[at])).0;
    assert_eq!(call("localhost", 0), 200);
    assert_eq!(
        call("127.0.0.1", 0),
        502,
        "the certificate is not for the address"
    );
    assert_eq!((call("localhost", 1), call("localhost", 2)), (502, 502));
    assert_eq!(call("localhost", 0), 200);
    drop(engine);
}

#[test]
fn a_reload_changes_what_may_be_called() {
    let (backend, port) = (backend(OK), free_port());
    let folder = TempDir::new();
    let settings = |networks: &str| {
        let to = backend.port();
        format!("egress: {{ {networks}, schemes: [http], ports: [{to}] }}")
    };
    folder.write("flow.yaml", &flow(port, &settings("allow: [127.0.0.1]")));
    let engine = Engine::run(&[folder.path()], &["--watch"]);
    let url = format!("http://127.0.0.1:{}/", backend.port());
    assert_eq!(call(port, &url).0, 200);
    folder.write("flow.yaml", &flow(port, &settings("deny: [127.0.0.1]")));
    // Neither by a new connection nor by the one that is kept.
    testkit::wait_until("it is loaded", || call(port, &url).0 == 403);
    let received = backend.requests().len();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(call(port, &url).0, 403);
    assert_eq!(backend.requests().len(), received);
    drop(engine);
}

#[test]
fn what_could_never_be_called_is_told_by_check() {
    let folder = TempDir::new();
    let write = |text: &str| {
        folder.write("flow.yaml", text);
        let path = folder.path().join("flow.yaml").display().to_string();
        let output = output(&["check", &path]);
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let flow = "---\nflow: a\nfrom: { http: GET /x }\nsteps:\n  - forward: one:/\n";
    let file = |url: &str| {
        format!("engine: {{}}\nuse: {{ one: {{ http: \"{url}\", egress: guarded }} }}\n{flow}")
    };
    for (url, expected) in [
        (
            "https://10.0.0.1/",
            "`engine.egress` does not allow 10.0.0.1, a private address",
        ),
        (
            "http://a.example/",
            "`engine.egress` does not allow the scheme `http`",
        ),
        (
            "https://a.example:8443/",
            "`engine.egress` does not allow the port 8443",
        ),
    ] {
        let (code, text) = write(&file(url));
        assert_eq!(code, Some(1), "{url}");
        assert!(
            text.contains("IT0740") && text.contains(expected),
            "{url} {text}"
        );
    }
    let (code, text) = write(&file("https://a.example/"));
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = write(&format!(
        "engine: {{ egress: {{ proxy: \"http://p:1\" }} }}\n{flow}"
    ));
    assert_eq!(code, Some(1), "{text}");
}

#[test]
fn tests_of_flows_see_the_guard() {
    let folder = TempDir::new();
    let tests = "tests:
  - name: called
    in: { body: { url: \"https://hooks.example:8443/x\" } }
    mock: { hook: { status: 201 } }
    expect: { status: 200, body: { status: 201 } }
  - name: refused
    in: { body: { url: \"https://hooks.example/x\" } }
    expect: { status: 403 }
";
    let text = flow(8080, "egress: { ports: [8443] }") + tests;
    folder.write("flow.yaml", &text);
    let path = folder.path().join("flow.yaml").display().to_string();
    let output = output(&["test", &path]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}{errors}");
}
