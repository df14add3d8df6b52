//! What is done once for each key, also by an engine that is killed and started again.

use std::path::Path;

use testkit::{StrictBackend, TempDir, free_port, wait_until};

use crate::support::{Engine, post};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\ndone";

/// A flow for each of these settings, at `/NAME`, that asks a back end once for each key.
fn flows(port: u16, backend: u16, settings: &[(&str, &str)]) -> String {
    let flow = |(name, settings): &(&str, &str)| {
        format!(
            "---\nflow: {name}\nfrom: {{ http: \"POST 127.0.0.1:{port}/{name}\" }}\nsteps:\n\
             \x20 - idempotent:\n      key: \"${{ .id }}\"\n      {settings}\n      steps:\n\
             \x20       - http: {{ to: \"http://127.0.0.1:{backend}/{name}\", method: POST }}\n\
             \x20 - reply: {{ status: 201, headers: {{ X-Again: \"${{ $duplicate }}\" }} }}\n"
        )
    };
    let all: String = settings.iter().map(flow).collect();
    format!("engine: {{}}\n{all}")
}

fn run(folder: &Path, data: &Path) -> Engine {
    Engine::run(&[folder], &["--data", &data.display().to_string()])
}

fn kill(mut engine: Engine) {
    engine.process.signal("KILL");
    engine.process.wait();
}

/// How often the back end was asked by a flow.
fn calls(backend: &StrictBackend, name: &str) -> usize {
    let requests = backend.requests();
    let path = format!("/{name}");
    requests.iter().filter(|it| it.target == path).count()
}

#[test]
fn a_key_is_known_when_the_engine_has_been_killed() {
    let (folder, data) = (TempDir::new(), TempDir::new());
    let backend = StrictBackend::answering(|_| OK.to_vec());
    let port = free_port();
    let settings = [
        ("usual", "replay: true"),
        ("disk", "durability: disk"),
        ("memory", "durability: memory"),
        ("short", "window: 1ms"),
    ];
    folder.write("flow.yaml", &flows(port, backend.port(), &settings));
    let ask = |name: &str| {
        let body = r#"{"id":"a"}"#;
        let reply = post(port, &format!("/{name}"), "application/json", body);
        assert_eq!(reply.status, 201, "{}", reply.text());
        let again = reply.header("x-again").unwrap().to_owned();
        (again, reply.text())
    };
    let first = |text: &str| ("false".to_owned(), text.to_owned());
    let again = |text: &str| ("true".to_owned(), text.to_owned());
    let engine = run(folder.path(), data.path());
    for (name, _) in settings {
        assert_eq!(ask(name), first("done"), "{name}");
    }
    kill(engine);
    let engine = run(folder.path(), data.path());
    // Without `replay` the body stays as it is.
    assert_eq!(ask("usual"), again("done"));
    assert_eq!(ask("disk").0, "true");
    assert_eq!(ask("memory"), first("done"));
    assert_eq!(ask("short"), first("done"));
    let counts = ["usual", "disk", "memory", "short"].map(|name| calls(&backend, name));
    assert_eq!(counts, [1, 1, 2, 2]);
    // In good order, too.
    engine.stop();
    let engine = run(folder.path(), data.path());
    assert_eq!(ask("usual"), again("done"));
    engine.stop();
}

#[test]
fn no_folder_is_made_for_keys_that_nobody_wants_on_the_disk() {
    let folder = TempDir::new();
    let backend = StrictBackend::answering(|_| OK.to_vec());
    let data = folder.path().join("none");
    for (settings, is_made) in [("window: 1h", false), ("durability: disk", true)] {
        let (place, port) = (TempDir::new(), free_port());
        place.write(
            "flow.yaml",
            &flows(port, backend.port(), &[("a", settings)]),
        );
        let engine = run(place.path(), &data);
        wait_until("it answers", || {
            post(port, "/a", "application/json", r#"{"id":1}"#).status == 201
        });
        engine.stop();
        assert_eq!(data.exists(), is_made, "{settings}");
    }
}
