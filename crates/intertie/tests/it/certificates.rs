//! Callers that are known by their client certificates: from a full handshake, in a resumed TLS
//! session and from `Client-Cert` of a trusted proxy; with revocation lists; and as the holders of
//! tokens that are bound to a certificate (RFC 8705).

use std::process::{Command, Output, Stdio};

use aws_lc_rs::digest::{SHA256, digest};
use base64ct::{Base64, Encoding as _};
use serde_json::{Value, json};
use testkit::{ClientNames, Issued, RawClient, StrictBackend, TempDir, free_port, wait_until};

use crate::auth::{Issuer, Signer, base64};
use crate::support::{Engine, TlsFolder, output, post};

/// A listener of an engine that may ask for certificates, and the clients' certificates.
struct Site {
    tls: TlsFolder,
    port: u16,
}

impl Site {
    fn new() -> Self {
        Self {
            tls: TlsFolder::new(),
            port: free_port(),
        }
    }

    /// A client of this URI.
    fn client(&self, name: &str, uri: &str) -> Issued {
        let issued = self.tls.authority.issue_client(&ClientNames {
            uris: &[uri],
            ..ClientNames::default()
        });
        self.tls.put(name, &issued);
        issued
    }

    /// Runs these documents; `TRIGGER` stands for the listener.
    fn run(&self, tls: &str, documents: &str) -> Engine {
        let tls = format!("cert: server.pem, key: server.key, client_ca: ca.pem{tls}");
        let trigger = format!("listen: 'localhost:{}', tls: {{ {tls} }}", self.port);
        self.tls.run(&documents.replace("TRIGGER", &trigger))
    }

    /// A curl that shows the certificate of this name.
    fn curl(&self, certificate: Option<&str>, arguments: &[&str]) -> Command {
        let mut command = self.tls.curl("20", arguments);
        if let Some(name) = certificate {
            let path = |extension: &str| self.tls.path(&format!("{name}.{extension}"));
            command.args(["--cert", &path("pem"), "--key", &path("key")]);
        }
        command
    }

    /// Asks for a path; gives status and body.
    fn ask(&self, who: Option<&str>, path: &str, arguments: &[&str]) -> (u16, String) {
        let mut command = self.curl(who, arguments);
        command.args(["--write-out", "\n%{http_code}"]);
        command.arg(format!("https://localhost:{}{path}", self.port));
        let output = command.output().expect("curl");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, status) = text.rsplit_once('\n').unwrap_or_default();
        (status.parse().unwrap_or(0), body.to_owned())
    }

    fn status(&self, who: Option<&str>, path: &str) -> u16 {
        self.ask(who, path, &[]).0
    }
}

const KEY: &str = "itk_0123456789abcdefghijklmnopqrstuvwxyz";

const WAYS: &str = "    shops: { mtls: { uri: spiffe://us/shop/*, issuer: CN=ours } }\n\
                    \x20   desks: { mtls: { uri: spiffe://us/desk } }\n\
                    \x20   keys: { api_key: { keys: keys } }\n";

/// A file with this key.
fn keys(key: &str) -> String {
    let hash = testkit::sha256_hex(key);
    format!("{{\"id\":\"desk-key\",\"hash\":\"sha256:{hash}\"}}\n")
}

#[test]
fn a_certificate_opens_a_door_over_both_versions_and_in_resumed_sessions() {
    let site = Site::new();
    let backend = StrictBackend::start();
    site.client("one", "spiffe://us/shop/1");
    site.client("desk", "spiffe://us/desk");
    site.client("other", "spiffe://us/other");
    site.tls.folder.write("keys", &keys(KEY));
    let engine = site.run(
        ", client_auth: optional",
        &format!(
            "engine:\n  auth:\n{WAYS}---\n\
             flow: who\nfrom: {{ http: {{ path: /who, TRIGGER }} }}\nauth: shops\n\
             steps: [ map: $auth ]\n---\n\
             flow: any\nfrom: {{ http: {{ path: /any, TRIGGER }} }}\n\
             auth: {{ any: [keys, shops, desks] }}\n\
             steps: [ map: '[$auth.way, $auth.id]' ]\n---\n\
             flow: back\nfrom: {{ http: {{ path: /back, TRIGGER }} }}\nauth: shops\n\
             steps: [ forward: http://127.0.0.1:{} ]\n---\n\
             flow: open\nfrom: {{ http: {{ path: /open, TRIGGER }} }}\n\
             steps: [ map: '{{ who: $auth, cert: $headers[\"client-cert\"] }}' ]\n",
            backend.port()
        ),
    );
    for version in ["--http1.1", "--http2"] {
        let ask = |who, path| site.ask(who, path, &[version]);
        let (status, body) = ask(Some("one"), "/who");
        assert_eq!(status, 200, "{version} {body}");
        let who: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (&who["way"], &who["id"]),
            (&json!("shops"), &json!("spiffe://us/shop/1"))
        );
        assert_eq!(who["claims"]["uris"], json!(["spiffe://us/shop/1"]));
        assert_eq!(who["claims"]["issuer"], "CN=ours");
        // Nothing asks for a certificate in a request: no 401.
        for who in [None, Some("other"), Some("desk")] {
            assert_eq!(ask(who, "/who").0, 403, "{version} {who:?}");
        }
        assert_eq!(
            ask(Some("desk"), "/any").1,
            r#"["desks","spiffe://us/desk"]"#
        );
        assert_eq!(ask(Some("other"), "/any").0, 401, "{version}");
        assert_eq!(ask(None, "/any").0, 401, "{version}");
        // What the request shows itself counts, and a wrong key does not fall through.
        let with = |key: &str| {
            site.ask(
                Some("one"),
                "/any",
                &[version, "-H", &format!("X-Api-Key: {key}")],
            )
        };
        assert_eq!(with(KEY).1, r#"["keys","desk-key"]"#);
        assert_eq!(with("itk_none").0, 401, "{version}");
        // Nobody is believed who says which certificate he has shown.
        let forged = [
            version,
            "-H",
            "Client-Cert: :AA==:",
            "-H",
            "Client_Cert: :AA==:",
        ];
        assert_eq!(site.ask(Some("one"), "/back", &forged).0, 200);
        let seen = backend.requests().pop().unwrap();
        assert_eq!(
            (seen.header("Client-Cert"), seen.header("Client_Cert")),
            (None, None)
        );
        let (_, body) = site.ask(None, "/open", &forged);
        assert_eq!(body, r#"{"who":null,"cert":null}"#, "{version}");
    }
    // One process of curl takes the session up again.
    let url = format!("https://localhost:{}/any", site.port);
    let twice = [
        "--http1.1",
        "-H",
        "Connection: close",
        "-w",
        "%{http_code} ",
        "-o",
        "/dev/null",
    ];
    let mut command = site.curl(Some("one"), &twice);
    let shown = command.args([&url, &url, &url]).output().unwrap();
    let resumed = || engine.metric("intertie_tls_resumptions_total");
    assert!(
        String::from_utf8_lossy(&shown.stdout).starts_with("200 "),
        "{shown:?}"
    );
    assert!(
        !String::from_utf8_lossy(&shown.stdout).contains("403"),
        "{shown:?}"
    );
    wait_until("a session is taken up again", || resumed() > 0.0);
    engine.stop();
}

#[test]
fn a_stream_ends_with_its_certificate() {
    let site = Site::new();
    let engine = site.run(
        "",
        "engine: { auth: { tills: { mtls: { dns: till } } } }\n---\n\
         flow: who\nfrom: { http: { path: /who, TRIGGER } }\nauth: tills\n\
         steps: [ reply: { body: in } ]\n---\n\
         topic: prices\npayload: event\ndurability: memory\nsubscribe: { auth: tills, TRIGGER }\n",
    );
    site.tls
        .put("short", &site.tls.authority.issue_for_seconds("till", 8));
    let mut stream = site.curl(Some("short"), &["--no-buffer", "--http1.1"]);
    stream.arg(format!("https://localhost:{}/topics/prices/sse", site.port));
    let stream = stream.stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(site.status(Some("short"), "/who"), 200);
    let Output { stdout, .. } = stream.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&stdout);
    assert!(text.contains("expired"), "{text}");
    engine.stop();
}

#[test]
fn revoked_certificates_do_not_come_in_and_open_connections_end() {
    let site = Site::new();
    let (one, two) = (
        site.client("one", "spiffe://us/shop/1"),
        site.client("two", "spiffe://us/shop/2"),
    );
    site.tls
        .folder
        .write("list.crl", &site.tls.authority.revoke(&[&two], 3600));
    let engine = site.run(
        ", client_crls: [list.crl]",
        &format!(
            "engine:\n  auth:\n{}---\n\
             flow: who\nfrom: {{ http: {{ path: /who, TRIGGER }} }}\nauth: shops\n\
             steps: [ map: $auth.id ]\n---\n\
             topic: prices\npayload: event\ndurability: memory\nsubscribe: {{ auth: shops, TRIGGER }}\n",
            "    shops: { mtls: {} }\n"
        ),
    );
    assert_eq!(site.status(Some("one"), "/who"), 200);
    assert_eq!(
        site.status(Some("two"), "/who"),
        0,
        "refused while it shakes hands"
    );
    let mut stream = site.curl(Some("one"), &["--no-buffer", "--http1.1"]);
    stream.arg(format!("https://localhost:{}/topics/prices/sse", site.port));
    let mut stream = stream.stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(site.status(Some("one"), "/who"), 200);
    assert!(stream.try_wait().unwrap().is_none());
    site.tls
        .folder
        .write("list.crl", &site.tls.authority.revoke(&[&one], 3600));
    wait_until("the stream has ended", || {
        stream.try_wait().unwrap().is_some()
    });
    assert_eq!(site.status(Some("one"), "/who"), 0);
    assert_eq!(site.status(Some("two"), "/who"), 200);
    // A list that has ended says nothing of anybody.
    site.tls
        .folder
        .write("list.crl", &site.tls.authority.revoke(&[], 0));
    wait_until("nobody comes in", || site.status(Some("two"), "/who") == 0);
    // What is no list changes nothing.
    site.tls.folder.write("list.crl", "nonsense");
    engine.process.wait_for("IT0301");
    engine.stop();
}

#[test]
fn the_client_cert_header_of_a_trusted_proxy_is_believed() {
    let site = Site::new();
    let backend = StrictBackend::start();
    let one = site.client("one", "spiffe://us/shop/1");
    let [trusted, other] = [free_port(), free_port()];
    let flow = |name: &str, port: u16| {
        format!(
            "flow: {name}\nfrom: {{ http: any 127.0.0.1:{port}/who }}\nauth: shops\n\
             steps: [ map: $auth.id ]\n---\n\
             flow: {name}-back\nfrom: {{ http: any 127.0.0.1:{port}/back }}\nauth: shops\n\
             steps: [ forward: http://127.0.0.1:{} ]\n",
            backend.port()
        )
    };
    site.tls.folder.write(
        "flow.yaml",
        &format!(
            "engine:\n  auth:\n    shops: {{ mtls: {{ uri: spiffe://us/shop/1 }} }}\n  listeners:\n    \
             \"127.0.0.1:{trusted}\": {{ trusted_proxies: [127.0.0.1], client_cert_header: true }}\n    \
             \"127.0.0.1:{other}\": {{ trusted_proxies: [192.0.2.1], client_cert_header: true }}\n---\n\
             {}---\n{}",
            flow("near", trusted),
            flow("far", other)
        ),
    );
    let engine = Engine::run(&[site.tls.folder.path()], &[]);
    let der: String = one
        .cert
        .lines()
        .filter(|it| !it.starts_with("-----"))
        .collect();
    let field = format!("Client-Cert: :{der}:\r\n");
    let ask = |port, path: &str, fields: &str| {
        let mut client = RawClient::connect(port);
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: test\r\n{fields}Connection: close\r\n\r\n"
        ));
        client.response()
    };
    assert_eq!(ask(trusted, "/who", &field).text(), "spiffe://us/shop/1");
    assert_eq!(ask(trusted, "/back", &field).status, 200);
    assert_eq!(
        backend.requests().pop().unwrap().header("Client-Cert"),
        None
    );
    assert_eq!(
        ask(other, "/who", &field).status,
        403,
        "from nobody who is trusted"
    );
    assert_eq!(ask(trusted, "/who", "").status, 403);
    for wrong in [
        format!("{field}{field}"),
        "Client-Cert: nonsense\r\n".to_owned(),
        "Client-Cert: ::\r\n".to_owned(),
    ] {
        assert_eq!(ask(trusted, "/who", &wrong).status, 400, "{wrong}");
    }
    let unreadable = format!("Client-Cert: :{}:\r\n", Base64::encode_string(b"none"));
    assert_eq!(ask(trusted, "/who", &unreadable).status, 403);
    let alike = field.replace("Client-Cert", "Client_Cert");
    assert_eq!(ask(trusted, "/who", &alike).status, 403);
    engine.stop();
}

#[test]
fn a_token_that_is_bound_to_a_certificate_is_taken_from_its_holder_alone() {
    let site = Site::new();
    let one = site.client("one", "spiffe://us/shop/1");
    site.client("two", "spiffe://us/shop/2");
    let key = Signer::new("a");
    let issuer = Issuer::new(&[&key]);
    let engine = site.run(
        ", client_auth: optional",
        &format!(
            "engine:\n  auth:\n    staff: {{ jwt: {{ issuer: \"{}\", audience: shop }} }}\n---\n\
             flow: who\nfrom: {{ http: {{ path: /who, TRIGGER }} }}\nauth: staff\n\
             steps: [ map: $auth.id ]\n",
            issuer.url()
        ),
    );
    let der: String = one
        .cert
        .lines()
        .filter(|it| !it.starts_with("-----"))
        .collect();
    let der = Base64::decode_vec(&der).unwrap();
    let hash = base64(digest(&SHA256, &der).as_ref());
    let token = key.token(&issuer.url(), json!({ "cnf": { "x5t#S256": hash } }));
    let field = format!("Authorization: Bearer {token}");
    for version in ["--http1.1", "--http2"] {
        let status = |who| site.ask(who, "/who", &[version, "-H", &field]).0;
        assert_eq!(status(Some("one")), 200, "{version}");
        assert_eq!(status(Some("two")), 401, "{version}");
        assert_eq!(status(None), 401, "{version}");
    }
    engine.stop();
}

#[test]
fn auth_that_no_caller_can_satisfy_is_refused() {
    let folder = TempDir::new();
    let check = |text: &str| {
        folder.write("flow.yaml", text);
        let shown = output(&["check", folder.path().to_str().unwrap()]);
        String::from_utf8_lossy(&shown.stdout).into_owned()
            + &String::from_utf8_lossy(&shown.stderr)
    };
    let ways = "engine: { auth: { shops: { mtls: {} } } }\n---\n";
    let flow = "flow: a\nfrom: { http: GET :8080/a }\nauth: shops\nsteps: [ reply: { body: a } ]\n";
    assert!(check(&format!("{ways}{flow}")).contains("IT0215"));
    let topic = "topic: a\npayload: event\nsubscribe: { auth: shops }\n";
    let shown = check(&format!("{ways}{topic}"));
    assert_eq!(shown.matches("IT0215").count(), 1, "{shown}");
    let header = "engine:\n  auth: { shops: { mtls: {} } }\n  listeners: { \":8080\": { \
                  client_cert_header: true } }\n---\n";
    assert!(check(&format!("{header}{flow}")).contains("IT0239"));
    let wrong = "engine: { auth: { shops: { mtls: { fingerprint: ab } } } }\n";
    assert!(check(wrong).contains("IT0700"));
}

#[test]
fn the_deny_list_has_those_who_are_known_by_certificates() {
    let site = Site::new();
    site.client("one", "spiffe://us/shop/1");
    site.client("two", "spiffe://us/shop/2");
    let engine = site.run(
        "",
        "engine:\n  auth: { shops: { mtls: { uri: spiffe://us/shop/* } } }\n  deny: {}\n  \
         admin: { operate: none }\n---\n\
         flow: who\nfrom: { http: { path: /who, TRIGGER } }\nauth: shops\n\
         steps: [ map: $auth.id ]\n",
    );
    let both = || ["one", "two"].map(|who| site.status(Some(who), "/who"));
    assert_eq!(both(), [200, 200]);
    let entry = r#"{"sub":"spiffe://us/shop/1"}"#;
    let denied = post(engine.admin, "/deny", "application/json", entry);
    assert_eq!(denied.status, 201);
    assert_eq!(both(), [403, 200]);
    engine.stop();
}
