//! Every folder of `examples/`, over real sockets on free ports.

use std::path::{Path, PathBuf};

use testkit::{Authority, StrictBackend, TempDir, free_port};

use crate::support::{Engine, command, get, output, post, repository};

/// A copy of an example with its ports replaced.
fn copy(folder: &TempDir, name: &str, ports: &[(&str, u16)]) -> PathBuf {
    let source = repository().join("examples").join(name);
    for entry in std::fs::read_dir(&source).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        // What running an example has left is none of it.
        if path.is_file() && !file.contains(".db") {
            let mut text = std::fs::read_to_string(&path).unwrap();
            for (from, to) in ports.iter().filter(|_| file == "flows.yaml") {
                assert!(text.contains(from), "{name} has {from}");
                text = text.replace(from, &format!(":{to}"));
            }
            folder.write(&format!("{name}/{file}"), &text);
        }
    }
    // What the files name stands in folders beside them.
    for within in ["wsdl", "texts"] {
        for entry in std::fs::read_dir(source.join(within)).into_iter().flatten() {
            let path = entry.unwrap().path();
            let file = path.file_name().unwrap().to_str().unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            folder.write(&format!("{name}/{within}/{file}"), &text);
        }
    }
    folder.path().join(name)
}

/// Secrets of webhooks.
const HOOKS: [(&str, &str); 2] = [
    ("SHOP_HOOK", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("WAREHOUSE_HOOK", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
];

/// 32 bytes that encrypt secrets of webhooks.
const ENCRYPTION_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn every_example_is_checked() {
    for entry in std::fs::read_dir(repository().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let folder = TempDir::new();
            let path = copy(&folder, &name(&path), &[]);
            // Whoever follows the example makes these first.
            let issued = Authority::new("example").issue(&["localhost"]);
            folder.write(&format!("{}/server.pem", name(&path)), &issued.cert);
            folder.write(&format!("{}/server.key", name(&path)), &issued.key);
            let mut check = command();
            check.env("HOOK_SECRET", "what the hook's sender knows");
            check.envs(HOOKS);
            check.env("WEBHOOK_ENCRYPTION_KEY", ENCRYPTION_KEY);
            let result = check.args(["check", path.to_str().unwrap()]).output();
            let result = result.unwrap();
            let report = String::from_utf8_lossy(&result.stdout).into_owned();
            assert_eq!(result.status.code(), Some(0), "{report}");
        }
    }
}

#[test]
fn the_quick_start_needs_nothing_else() {
    let folder = TempDir::new();
    let port = free_port();
    let example = copy(&folder, "quickstart", &[(":8080", port)]);
    let engine = Engine::run(&[&example], &[]);
    let hello = get(port, "/hello");
    assert_eq!(hello.status, 200);
    assert_eq!(hello.header("content-type"), Some("application/json"));
    assert_eq!(post(port, "/echo", "text/plain", "hi").text(), "hi");
    assert_eq!(
        post(port, "/api/echo", "text/plain", "through").text(),
        "through"
    );
    let xml = post(
        port,
        "/xml",
        "application/json",
        "{\"order\":{\"@id\":7,\"line\":[\"a\",\"b\"]}}",
    );
    assert_eq!(
        xml.text(),
        "<order id=\"7\"><line>a</line><line>b</line></order>"
    );
    assert_eq!(xml.header("content-type"), Some("application/xml"));
    assert_eq!(post(port, "/xml", "application/json", "{").status, 400);
    let unmappable = post(port, "/xml", "application/json", "{\"a\":{\"b c\":1}}");
    assert_eq!(unmappable.status, 422);
    assert!(
        unmappable.text().contains("$.a[\\\"b c\\\"]"),
        "{}",
        unmappable.text()
    );
    engine.stop();
}

/// The guide to hubs shows the same files.
#[test]
fn a_websub_hub_delivers_to_a_reader_in_another_engine() {
    let folder = TempDir::new();
    let (hub_port, reader_port) = (free_port(), free_port());
    let example = copy(&folder, "websub-hub", &[(":8080", hub_port)]);
    for file in ["flows.yaml", "reader.yaml"] {
        let path = example.join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.replace(":8080", &format!(":{hub_port}"));
        let text = text.replace("8081", &reader_port.to_string());
        std::fs::write(&path, text).unwrap();
    }
    let data = |name: &str| folder.path().join(name).display().to_string();
    let hub = Engine::run(
        &[&example.join("flows.yaml")],
        &["--data", &data("hub-data")],
    );
    let own = ["--data", &data("reader-data")];
    let reader = Engine::run(&[&example.join("reader.yaml")], &own);
    let labels = [("flow", "news"), ("step", "websub")];
    testkit::wait_until("the reader is a subscriber", || {
        hub.measured("intertie_websub_hub_subscriptions", &labels) == Some(1.0)
    });
    let event = "{\"title\": \"Rain in the north\"}";
    let reply = post(hub_port, "/topics/news", "application/json", event);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reader.process.wait_for("news: Rain in the north");
    reader.stop();
    hub.stop();
}

#[test]
fn a_topic_with_webhooks_sends_its_events_signed() {
    let folder = TempDir::new();
    let port = free_port();
    let ports = [(":8080", port), (":9091", free_port())];
    let example = copy(&folder, "topic-webhooks", &ports);
    let engine = Engine::run_in(&[&example], &[], &HOOKS);
    for event in [
        "{\"order\":\"A1\",\"event\":\"paid\",\"lines\":[]}",
        "{\"order\":\"A1\",\"event\":\"unknown\"}",
        "{\"order\":\"A2\",\"event\":\"sent\"}",
    ] {
        let reply = post(port, "/orders", "application/json", event);
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    for line in [
        "the shop has got A1 paid",
        "the warehouse has got A1",
        "the shop has got A2 sent",
        "shop does not take",
    ] {
        engine.process.wait_for(line);
    }
    let output = engine.stop();
    assert!(!output.contains("the warehouse has got A2"), "{output}");
}

#[test]
fn https_in_front_of_two_back_ends() {
    let folder = TempDir::new();
    let (port, first) = (free_port(), StrictBackend::start());
    let second = StrictBackend::start();
    let ports = [
        (":8443", port),
        (":8688", first.port()),
        (":8689", second.port()),
    ];
    let path = copy(&folder, "https", &ports);
    let authority = Authority::new("example");
    let issued = authority.issue(&["localhost"]);
    folder.write("https/server.pem", &issued.cert);
    folder.write("https/server.key", &issued.key);
    let ca = folder.write("ca.pem", authority.pem());
    let engine = Engine::run(&[&path], &[]);
    for _ in 0..4 {
        let output = std::process::Command::new("curl")
            .args(["--silent", "--http2", "--data", "hello", "--cacert"])
            .arg(&ca)
            .args(["--write-out", " %{http_version}"])
            .arg(format!("https://localhost:{port}/shop/cart"))
            .output()
            .expect("curl is missing: `cargo xtask test` installs it");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "hello 2");
    }
    let requests = [first.requests(), second.requests()];
    assert!(requests.iter().all(|it| !it.is_empty()), "both have work");
    assert_eq!(requests[0][0].target, "/cart");
    engine.stop();
}

#[test]
fn passthrough_and_conversion_reach_a_back_end() {
    let folder = TempDir::new();
    let backend = StrictBackend::start();
    for (name, path, expected) in [
        (
            "passthrough",
            "/passthrough",
            "{\"size\":\"50B\",\"payload\":[\"0123456789\",\"ABCDEFGH\"]}",
        ),
        (
            "json-to-xml",
            "/transform",
            "<root><size>50B</size><payload>0123456789</payload><payload>ABCDEFGH</payload></root>",
        ),
    ] {
        let port = free_port();
        let ports = [(":9090", port), (":8688", backend.port())];
        let engine = Engine::run(&[&copy(&folder, name, &ports)], &[]);
        backend.clear();
        let body = "{\"size\":\"50B\",\"payload\":[\"0123456789\",\"ABCDEFGH\"]}";
        let response = post(port, path, "application/json", body);
        assert_eq!((response.status, response.text().as_str()), (200, expected));
        assert_eq!(backend.requests()[0].target, "/service/EchoService");
        engine.stop();
    }
    let port = free_port();
    let engine = Engine::run(&[&copy(&folder, "echo-backend", &[(":8688", port)])], &[]);
    assert_eq!(
        post(port, "/service/EchoService", "text/plain", "hi").text(),
        "hi"
    );
    engine.stop();
}

#[test]
fn the_tests_of_all_examples_pass() {
    let mut count = 0;
    for entry in std::fs::read_dir(repository().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let result = output(&["test", path.to_str().unwrap()]);
            let text = String::from_utf8_lossy(&result.stdout);
            assert!(result.status.success(), "{text}");
            assert!(text.contains(", all ok"), "{text}");
            count += 1;
        }
    }
    assert!(count >= 40, "{count} examples");
}

#[test]
fn a_new_folder_passes_its_tests_and_can_be_run() {
    let folder = TempDir::new();
    let path = folder.path().join("mine");
    let path = path.to_str().unwrap();
    assert!(output(&["new", path]).status.success());
    let result = output(&["test", path]);
    let text = String::from_utf8_lossy(&result.stdout);
    assert!(result.status.success(), "{text}");
    assert!(
        !output(&["new", path]).status.success(),
        "nothing is overwritten"
    );
    let port = free_port();
    let file = folder.path().join("mine/flows.yaml");
    let flows = std::fs::read_to_string(&file).unwrap();
    let engine = format!("engine: {{ listen: \"127.0.0.1:{port}\" }}\n---\n");
    std::fs::write(&file, engine + &flows.replace(":8080", &format!(":{port}"))).unwrap();
    let engine = Engine::run(&[Path::new(path)], &[]);
    let reply = post(
        port,
        "/orders",
        "application/json",
        "{\"sku\": \"A1\", \"qty\": 3}",
    );
    assert_eq!(reply.text(), "{\"sku\":\"A1\",\"qty\":3,\"total\":29.85}");
    assert_eq!(reply.header("location"), Some("/orders/A1"));
    engine.stop();
}
