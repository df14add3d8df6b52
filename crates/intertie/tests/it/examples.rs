//! Every folder of `examples/`, over real sockets on free ports.

use std::path::PathBuf;

use testkit::{StrictBackend, TempDir, free_port};

use crate::support::{Engine, get, output, post, repository};

/// A copy of an example with its ports replaced.
fn copy(folder: &TempDir, name: &str, ports: &[(&str, u16)]) -> PathBuf {
    let source = repository().join("examples").join(name);
    for entry in std::fs::read_dir(&source).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "yaml") {
            let mut text = std::fs::read_to_string(&path).unwrap();
            for (from, to) in ports {
                assert!(text.contains(from), "{name} has {from}");
                text = text.replace(from, &format!(":{to}"));
            }
            folder.write(
                &format!("{name}/{}", path.file_name().unwrap().to_str().unwrap()),
                &text,
            );
        }
    }
    folder.path().join(name)
}

#[test]
fn every_example_is_checked() {
    for entry in std::fs::read_dir(repository().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let result = output(&["check", path.to_str().unwrap()]);
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
