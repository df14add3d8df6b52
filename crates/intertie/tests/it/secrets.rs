//! Secrets from all three sources are put to use, and nothing that the process writes shows one.
//!
//! To try another way out, add a flow to [`FLOWS`], send what triggers it in [`provoke`], or add a
//! broken file to [`BROKEN`]: everything written is searched for every value.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use testkit::{Process, RawClient, StrictBackend, TempDir, free_port, wait_until};

use crate::support::{command, get, post, repository};

/// The key of the encrypted file, a secret itself.
const KEY: &str = "e2e-key-of-the-file-Zk4";
/// Secrets by source, each with a part that stands in no other text.
const ENV: [(&str, &str); 5] = [
    ("E2E_PART", "http://h:e2e-port-Yk1/e2e"),
    ("E2E_PATH", "e2e-env-path-Qx7"),
    ("E2E_HOST", "e2e-env-host-qx8"),
    ("E2E_ODD", "e2e \"odd\\env\" <&> pä/ß+?%=Qx9"),
    (
        "E2E_URL",
        "http://e2e-user:e2e-passw%2Frd@e2e-db-host:e2e-port/e2e?x",
    ),
];
const FOLDER: [(&str, &str); 2] = [
    ("FILE_TOKEN", "e2e-file-token-Wm1"),
    (
        "tls.key",
        "-----BEGIN KEY-----\nE2ELINE+ONE/OF/THE/KEY+Wm2\nE2ELINE+TWO/OF/IT+Wm3\n-----END KEY-----",
    ),
];
const SEALED: [(&str, &str); 2] = [
    ("SEALED_TOKEN", "e2e-sealed-token-Bv5"),
    ("SEALED_ODD", "e2e:sealed\todd'Bv6"),
];
/// Parts that must not be seen, however they are quoted: the end of each value as it is and
/// percent-encoded, parts of a URL and of a key, and values that were cut.
const PARTS: [&str; 17] = [
    "Yk1",
    "Qx7",
    "qx8",
    "Qx9",
    "%51%78%39",
    "Wm1",
    "%57%6d%31",
    "Wm2",
    "Wm3",
    "Bv5",
    "Bv6",
    "Zk4",
    "e2e-passw/rd",
    "e2e-passw%2Frd",
    "e2e-port",
    "e2e-file-token-",
    "e2e-sealed-token-",
];

/// The flows that run; `PORT` and `BACKEND` are put in.
const FLOWS: &str = r#"
engine:
  log: { level: debug, format: FORMAT, access: true }
  secrets:
    env: [E2E_PART, E2E_PATH, E2E_HOST, E2E_ODD, E2E_URL]
    folder: ./run/secrets
    file: ./s.enc
---
flow: used
use:
  one: { http: "http://127.0.0.1:BACKEND/${ $secret.E2E_PATH }/${ $secret.FILE_TOKEN }" }
from: { http: GET 127.0.0.1:PORT/used }
steps:
  - forward: one:/${ $env.NOT_A_HOLE }x
---
flow: refused
use:
  gone: { http: "http://127.0.0.1:1/${ $secret.E2E_PATH }" }
from: { http: any 127.0.0.1:PORT/refused }
steps:
  - log: { with: [method, path, query, headers, body] }
  - forward: gone:/x
---
flow: unresolved
use:
  lost:
    http: "http://${ $secret.E2E_HOST }.invalid/${ $secret.SEALED_TOKEN }"
    health: { path: "/${ $secret.FILE_TOKEN }", every: 20ms, timeout: 500ms, unhealthy: 1 }
from: { http: any 127.0.0.1:PORT/unresolved/* }
steps:
  - forward: lost:/x
---
flow: converted
from: { http: POST 127.0.0.1:PORT/converted }
steps:
  - log: { message: as it came, with: [body] }
  - convert: { from: json, to: xml }
  - log: { level: error, with: [body] }
  - reply: { body: done }
---
flow: spoken
from: { http: GET 127.0.0.1:PORT/spoken }
steps:
  - log: "${ $secret.FILE_TOKEN } and ${ $secret.SEALED_TOKEN }"
  - set: { all: "${ [$secret.FILE_TOKEN, $secret.SEALED_TOKEN, $secret.E2E_PATH] }" }
  - choose:
      - when: $query.how == "raise"
        raise: { type: said, status: 402, detail: "no ${ $all | join(\" \") }" }
      - when: $query.how == "index"
        map: "$all | .[0].x"
      - when: $query.how == "error"
        map: "$all | error"
      - when: $query.how == "text"
        set: { b: "text of ${ $all }" }
      - otherwise:
          - http: "http://127.0.0.1:1/${ $secret.E2E_PATH }"
"#;

/// Broken files, which are checked and taken over while others run: those with problems of flows
/// together, and those with problems of certificates, which are told when flows have none.
const BROKEN: [&[&str]; 2] = [
    &[
        r#"use: { a: { http: "${ $secret.E2E_PART }" } }"#,
        r#"use: { a: { http: "${ $secret.E2E_URL }" } }"#,
        r#"use: { a: { http: "${ $secret.E2E_ODD }" } }"#,
        r#"use: { a: { http: "http://h:${ $secret.E2E_PATH }/" } }"#,
        r#"use: { a: { http: "http://h/${ $secret.SEALED_ODD }" } }"#,
        r#"use: { a: { http: "${ $secret.FILE_TOKEN }", balance: "${ $secret.E2E_PATH }" } }"#,
        r#"use: { a: { http: http://h, retries: "${ $secret.E2E_PATH }" } }"#,
        r#"use: { a: { http: http://h, queue: { time: "${ $secret.SEALED_TOKEN }" } } }"#,
        r#"use: { a: { http: "http://h/${ $secret.E2E_PATHS }" } }"#,
        r#"use: { a: { http: http://h, health: { path: "${ $secret.E2E_ODD }" } } }"#,
        "doc: pasted e2e-env-path-Qx7 by mistake\nuse: { a: { httpx: e2e-env-path-Qx7 } }",
    ],
    &[
        r#"use: { a: { http: https://h, tls: { ca: "${ $secret.FILE_TOKEN }" } } }"#,
        r#"use: { a: { http: https://h, tls: { ca: '${ $secret["tls.key"] }' } } }"#,
    ],
];

/// All values, and the key.
fn values() -> Vec<&'static str> {
    let all = ENV
        .iter()
        .chain(&FOLDER)
        .chain(&SEALED)
        .map(|(_, value)| *value);
    all.chain([KEY]).collect()
}

/// A value as it is and in the forms that every search looks for. Made here, not by the product.
fn forms(value: &str) -> Vec<String> {
    let percent = |kept: &str| {
        let encode = |byte: u8| match char::from(byte) {
            plain if plain.is_ascii_alphanumeric() || kept.contains(plain) => plain.to_string(),
            _ => format!("%{byte:02X}"),
        };
        value.bytes().map(encode).collect::<String>()
    };
    let base64 = base64(value.as_bytes());
    let json = serde_json::Value::from(value).to_string();
    let mut forms = vec![
        value.to_owned(),
        percent(""),
        percent("-._~"),
        percent("-._~:/?@+=&%"),
    ];
    forms.push(base64.trim_end_matches('=').to_owned());
    forms.push(forms[4].replace('+', "-").replace('/', "_"));
    forms.push(json.trim_matches('"').to_owned());
    forms.push(value.escape_debug().to_string());
    forms.push(
        value
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;"),
    );
    forms
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0_usize, |bits, at| {
            bits << 8 | usize::from(group.get(at).copied().unwrap_or(0))
        });
        for at in 0..4 {
            let digit = char::from(DIGITS[bits >> (18 - 6 * at) & 63]);
            encoded.push(if at <= group.len() { digit } else { '=' });
        }
    }
    encoded
}

/// Searches a text for every secret in every form, and for parts that say as much.
fn assert_hidden(what: &str, text: &str) {
    for value in values() {
        for form in forms(value) {
            assert!(!text.contains(&form), "{what} shows {form}:\n{text}");
        }
    }
    for part in PARTS {
        assert!(!text.contains(part), "{what} shows {part}:\n{text}");
    }
}

/// A folder with all sources. The encrypted file is written by the binary.
fn sources() -> TempDir {
    let folder = TempDir::new();
    for (name, value) in FOLDER {
        folder.write(&format!("run/secrets/{name}"), &format!("{value}\n"));
    }
    let lines = SEALED
        .iter()
        .map(|(name, value)| format!("{name}: {:?}\n", value));
    let file = folder.path().join("s.enc");
    let result = secrets(
        &["encrypt", file.to_str().unwrap()],
        KEY,
        &lines.collect::<String>(),
    );
    assert!(result.status.success(), "{result:?}");
    folder
}

/// Runs `intertie secrets` with a key and something on stdin.
fn secrets(arguments: &[&str], key: &str, input: &str) -> Output {
    let mut command = command();
    command.arg("secrets").args(arguments);
    let mut child = command
        .env("INTERTIE_SECRETS_KEY", key)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that fails early does not read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// The binary with the environment that the sources need.
fn with_secrets(arguments: &[&str]) -> Command {
    let mut command = command();
    command
        .args(arguments)
        .envs(ENV)
        .env("INTERTIE_SECRETS_KEY", KEY);
    command
}

fn written(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// Sends what makes the flows tell something; the replies.
fn provoke(port: u16) -> String {
    let mut replies = String::new();
    let mut take = |reply: testkit::Response| {
        let _ = writeln!(
            replies,
            "{} {:?} {}",
            reply.status,
            reply.headers,
            reply.text()
        );
    };
    for value in values() {
        let encoded = base64(format!("user:{value}").as_bytes());
        let line = value.replace('\n', " ");
        let percent: String = value.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let mut client = RawClient::connect(port);
        client.send(format!(
            "POST /refused?token={percent} HTTP/1.1\r\nHost: test\r\nX-Token: {line}\r\n\
             X-Basic: Basic {encoded}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{value}",
            value.len()
        ));
        take(client.response());
        take(get(port, &format!("/unresolved/{percent}?{percent}")));
        take(get(port, &format!("/nowhere/{percent}")));
        for how in ["raise", "index", "error", "text", "call"] {
            take(get(port, &format!("/spoken?how={how}")));
        }
        let json = serde_json::json!({ "a": value, "b": [value, format!("x {value:?}")] });
        take(post(
            port,
            "/converted",
            "application/json",
            &json.to_string(),
        ));
        take(post(
            port,
            "/converted",
            "application/json",
            &format!("{{\"{value}"),
        ));
        take(post(port, "/converted", "text/plain", value));
    }
    replies
}

struct Running {
    process: Process,
    port: u16,
    admin: u16,
}

impl Running {
    fn start(folder: &Path, flows: &str, backend: u16, format: &str) -> Self {
        let (port, admin) = (free_port(), free_port());
        let text = flows
            .replace("PORT", &port.to_string())
            .replace("BACKEND", &backend.to_string())
            .replace("FORMAT", format)
            .replace("${ $env.NOT_A_HOLE }", "");
        std::fs::write(folder.join("flow.yaml"), text).unwrap();
        let admin_address = format!("127.0.0.1:{admin}");
        let folder = folder.to_str().unwrap();
        let arguments = [
            "run",
            folder,
            "--watch",
            "--workers",
            "1",
            "--admin",
            &admin_address,
        ];
        let mut process = Process::start(&mut with_secrets(&arguments));
        process.wait_for_port(admin);
        wait_until("it is ready", || get(admin, "/ready").status == 200);
        Self {
            process,
            port,
            admin,
        }
    }

    fn stop(mut self) -> String {
        self.process.signal("TERM");
        assert_eq!(self.process.wait().code(), Some(0));
        self.process.output()
    }
}

#[test]
fn secrets_are_used_and_never_shown() {
    let backend = StrictBackend::start();
    for format in ["text", "json"] {
        let folder = sources();
        let running = Running::start(folder.path(), FLOWS, backend.port(), format);
        assert_eq!(get(running.port, "/used").status, 200);
        let target = backend.requests().last().unwrap().target.clone();
        assert_eq!(
            target, "/e2e-env-path-Qx7/e2e-file-token-Wm1/x",
            "secrets are put in"
        );
        let replies = provoke(running.port);
        assert_hidden("a reply", &replies);
        assert!(replies.contains("402 ") && replies.contains("500 "));
        assert!(replies.contains("502 ") && replies.contains("404 ") && replies.contains("400 "));
        wait_until("the endpoint is told to be down", || {
            get(running.admin, "/metrics")
                .text()
                .contains("intertie_endpoint_up{")
        });
        let metrics = get(running.admin, "/metrics").text();
        assert_hidden("/metrics", &metrics);
        assert!(metrics.contains("endpoint=\"***.invalid"), "{metrics}");
        for (number, group) in BROKEN.iter().enumerate() {
            write_broken(&folder, group);
            wait_until("the problems were told", || {
                running.process.output().matches("not reloaded").count() > number
            });
        }
        let output = running.stop();
        assert_hidden("the output", &output);
        for part in ["***", "/refused", "unresolved", "as it came", "IT0240"] {
            assert!(output.contains(part), "{part} in {output}");
        }
    }
}

/// Puts flows around these broken parts, in files that replace those of another group.
fn write_broken(folder: &TempDir, group: &[&str]) {
    let text = |number: usize, broken: &str| {
        let rest = format!("from: {{ http: GET /{number} }}\nsteps: [ forward: a:/ ]\n");
        format!("flow: broken{number}\n{broken}\n{rest}")
    };
    let texts = group
        .iter()
        .enumerate()
        .map(|(number, it)| text(number, it));
    folder.write("broken.yaml", &texts.collect::<Vec<_>>().join("---\n"));
}

#[test]
fn reports_show_no_secret() {
    let folder = sources();
    let engine = FLOWS
        .split("---\n")
        .next()
        .unwrap()
        .replace("FORMAT", "text");
    folder.write("a.yaml", &engine);
    for group in BROKEN {
        write_broken(&folder, group);
        for format in ["text", "json"] {
            let path = folder.path().to_str().unwrap();
            let result = with_secrets(&["check", "--format", format, path])
                .output()
                .unwrap();
            let text = written(&result);
            assert_eq!(result.status.code(), Some(1), "{text}");
            let problems = text.matches("broken.yaml").count();
            assert!(problems >= group.len(), "{problems} problems: {text}");
            assert_hidden("check", &text);
            for line in text.lines().filter(|_| format == "json") {
                let _: serde_json::Value = serde_json::from_str(line).expect(line);
            }
        }
    }
    folder.write("broken.yaml", "");
    let sources = ["A.txt", "E2E_PATH", "a b"].map(|name| format!("run/secrets/{name}"));
    for source in sources {
        let file = folder.write(&source, "e2e-file-token-Wm1");
        let result = with_secrets(&["check", folder.path().to_str().unwrap()])
            .output()
            .unwrap();
        assert_hidden(&source, &written(&result));
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn a_changed_secret_is_taken_over_and_a_broken_one_changes_nothing() {
    let backend = StrictBackend::start();
    let folder = sources();
    let running = Running::start(folder.path(), FLOWS, backend.port(), "text");
    let served = |value: &str| {
        assert_eq!(get(running.port, "/used").status, 200);
        backend.requests().last().unwrap().target.contains(value)
    };
    assert!(served("/e2e-file-token-Wm1/"));
    folder.write("run/secrets/FILE_TOKEN", "e2e-file-token-Wm8");
    wait_until("the new secret is used", || served("/e2e-file-token-Wm8/"));
    let file = folder.path().join("s.enc").to_str().unwrap().to_owned();
    let result = secrets(&["set", &file, "MORE"], KEY, "e2e-set-while-running");
    assert!(result.status.success(), "{result:?}");
    running.process.wait_for("a secret has changed");
    folder.write("run/secrets/E2E_PATH", "e2e-env-path-given-twice");
    running.process.wait_for("IT0304");
    assert!(served("/e2e-file-token-Wm8/"), "the old flows go on");
    let output = running.stop();
    assert_hidden("the output", &output);
    for value in ["Wm8", "e2e-set-while", "given-twice"] {
        assert!(!output.contains(value), "{value} in {output}");
    }
}

#[test]
fn the_encrypted_file_is_written_and_read_by_commands() {
    let folder = TempDir::new();
    let path = folder.path().join("s.enc");
    let file = path.to_str().unwrap();
    let plain = folder.write(
        "plain.yaml",
        "A: \"first secret\"\nB.c-d: |\n  two\n  lines\n",
    );
    let from = plain.to_str().unwrap();
    let run = |arguments: &[&str], input: &str| {
        let result = secrets(arguments, KEY, input);
        let text = written(&result);
        assert!(!text.contains(KEY), "{text}");
        (result.status.code(), text)
    };
    assert_eq!(
        run(&["encrypt", file, "--from", from], ""),
        (Some(0), String::new())
    );
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let sealed = std::fs::read_to_string(&path).unwrap();
    assert!(sealed.starts_with("intertie-secrets 1\n") && !sealed.contains("first"));
    assert_eq!(
        run(&["decrypt", file], ""),
        (Some(0), "A\nB.c-d\n".to_owned())
    );
    assert_eq!(
        run(&["set", file, "A"], "second \"secret\"\n"),
        (Some(0), String::new())
    );
    assert_eq!(
        run(&["set", file, "new"], "third secret"),
        (Some(0), String::new())
    );
    let shown = "A: \"second \\\"secret\\\"\"\nB.c-d: \"two\\nlines\\n\"\nnew: \"third secret\"\n";
    assert_eq!(
        run(&["decrypt", file, "--show"], ""),
        (Some(0), shown.to_owned())
    );
    let copy = folder.path().join("copy.enc");
    assert_eq!(run(&["encrypt", copy.to_str().unwrap()], shown).0, Some(0));
    let sealed = std::fs::read(&path).unwrap();
    for (arguments, input, told) in [
        (&["set", file, "A"][..], "abc", "fewer than 4 characters"),
        (
            &["set", file, "a b"],
            "a long value",
            "cannot be the name of a secret",
        ),
        (
            &["encrypt", file],
            "A: [hidden]",
            "line 1 of its content: the value is a list",
        ),
        (&["encrypt", from], "A: hidden", "it is left as it is"),
        (&["decrypt", from], "", "it is no encrypted file"),
        (&["decrypt", "no/such.enc"], "", "No such file"),
    ] {
        let (code, text) = run(arguments, input);
        assert_eq!(code, Some(1), "{text}");
        assert!(
            text.contains(told) && !text.contains("hidden"),
            "{told}: {text}"
        );
    }
    for (key, told) in [
        ("another key of 16 and more", "its key is another"),
        ("", "empty"),
    ] {
        let result = secrets(&["set", file, "A"], key, "a long value");
        assert_eq!(result.status.code(), Some(1));
        assert!(written(&result).contains(told), "{}", written(&result));
    }
    let result = secrets(&["encrypt", "new.enc"], "short", "A: hidden");
    assert!(written(&result).contains("fewer than 16 characters"));
    assert_eq!(
        std::fs::read(&path).unwrap(),
        sealed,
        "failures change nothing"
    );
    let mut left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    left.retain(|entry| entry.as_ref().unwrap().path().extension().is_some());
    assert_eq!(left.len(), 3, "nothing else is left: {left:?}");
}

#[test]
fn pages_of_errors_with_secrets_show_what_triggers_them() {
    for code in ["IT0303", "IT0304"] {
        let page = repository().join(format!("docs/errors/{code}.md"));
        let page = std::fs::read_to_string(page).unwrap();
        let example = page.split("```yaml\n").nth(1).unwrap();
        let folder = TempDir::new();
        let file = folder.write("example.yaml", example.split("```").next().unwrap());
        let mut command = with_secrets(&["check", "--format", "json", file.to_str().unwrap()]);
        let report = written(&command.env("CRM_TOKEN", "e2e-crm-token").output().unwrap());
        assert!(
            report.contains(&format!("\"code\":\"{code}\"")),
            "{code}: {report}"
        );
    }
}
