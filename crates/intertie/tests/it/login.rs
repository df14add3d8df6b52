//! Browsers that log in at an OpenID provider, over HTTP: what the back end sees, what a restart
//! leaves, and what the provider ends while the engine is away.

use std::sync::{Arc, Mutex};

use serde_json::json;
use testkit::{Response, StrictBackend, TempDir, free_port};

use crate::auth::{Signer, ask, now};
use crate::support::{Engine, output, post};

/// A provider that takes every code, and gives tokens for the login whose nonce it was told.
struct Provider {
    backend: StrictBackend,
    signer: Arc<Signer>,
    nonce: Arc<Mutex<String>>,
}

impl Provider {
    fn start() -> Self {
        let signer = Arc::new(Signer::new("a"));
        let nonce = Arc::new(Mutex::new(String::new()));
        let (signs, known) = (Arc::clone(&signer), Arc::clone(&nonce));
        let backend = StrictBackend::answering(move |request| {
            let url = format!("http://{}", request.header("Host").unwrap_or_default());
            let (status, body) = match request.target.as_str() {
                "/.well-known/openid-configuration" => (
                    "200 OK",
                    json!({ "issuer": url, "jwks_uri": format!("{url}/keys"),
                        "authorization_endpoint": format!("{url}/auth"),
                        "token_endpoint": format!("{url}/token") }),
                ),
                "/keys" => ("200 OK", json!({ "keys": [signs.jwk()] })),
                "/token" => {
                    let claims = json!({ "nonce": *known.lock().unwrap(), "sid": "there",
                        "iat": now() });
                    let token = signs.token(&url, claims);
                    ("200 OK", json!({ "access_token": "a", "id_token": token }))
                }
                _ => ("404 Not Found", json!({})),
            };
            let body = body.to_string();
            let length = body.len();
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
        });
        Self {
            backend,
            signer,
            nonce,
        }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.backend.port())
    }

    /// Says that sessions have ended.
    fn end(&self, port: u16, id: &str) -> u16 {
        let event = json!({ "http://schemas.openid.net/event/backchannel-logout": {} });
        let claims = json!({ "events": event, "jti": id, "iat": now(), "sid": "there" });
        let token = self.signer.token(&self.url(), claims);
        let form = "application/x-www-form-urlencoded";
        let body = format!("logout_token={token}");
        post(port, "/backchannel", form, &body).status
    }
}

/// A folder with flows behind a login.
struct Site {
    provider: Provider,
    back: StrictBackend,
    folder: TempDir,
    port: u16,
}

impl Site {
    fn new() -> Self {
        let (provider, back) = (Provider::start(), StrictBackend::start());
        let (folder, port) = (TempDir::new(), free_port());
        folder.write("flows.yaml", &flows(port, &provider.url(), back.port()));
        Self {
            provider,
            back,
            folder,
            port,
        }
    }

    fn start(&self) -> Engine {
        let data = self.folder.path().join("data");
        let file = self.folder.path().join("flows.yaml");
        Engine::run(&[&file], &["--data", &data.to_string_lossy()])
    }

    fn get(&self, path: &str, cookies: &str) -> Response {
        let fields = [("Accept", "text/html"), ("Cookie", cookies)];
        ask(self.port, &format!("GET {path}"), &fields)
    }

    /// Logs in; gives the session's cookie.
    fn log_in(&self) -> String {
        let sent = self.get("/orders/1?a=1", "theme=dark");
        assert_eq!(sent.status, 303, "{}", sent.text());
        let url = sent.header("Location").unwrap();
        let of = |name: &str| {
            let found = url.split(['?', '&']).find_map(|it| it.strip_prefix(name));
            found.unwrap().to_owned()
        };
        *self.provider.nonce.lock().unwrap() = of("nonce=");
        let login = first_cookie(&sent);
        let back = format!("/login/callback?code=c&state={}", of("state="));
        let returned = self.get(&back, &login);
        assert_eq!(returned.status, 303, "{}", returned.text());
        let target = format!("http://localhost:{}/orders/1?a=1", self.port);
        assert_eq!(returned.header("Location"), Some(&*target));
        first_cookie(&returned)
    }
}

fn first_cookie(response: &Response) -> String {
    let line = response.all("Set-Cookie")[0];
    line.split(';').next().unwrap().to_owned()
}

fn flows(port: u16, issuer: &str, back: u16) -> String {
    format!(
        "engine:\n  listen: \"127.0.0.1:{port}\"\n  auth:\n    staff: {{ oidc: {{ issuer: \
         \"{issuer}\", client_id: shop, public_url: \"http://localhost:{port}\", \
         backchannel_logout: /backchannel }} }}\n---\n\
         flow: orders\nfrom: {{ http: \"any /*\" }}\nauth: staff\n\
         steps: [ forward: \"http://127.0.0.1:{back}/\" ]\n---\n\
         flow: who\nfrom: {{ http: \"any /who\" }}\nauth: staff\n\
         steps: [ map: \"[$auth.id, $headers.cookie]\", reply: {{}} ]\n"
    )
}

#[test]
fn a_session_opens_flows_and_goes_no_further() {
    let site = Site::new();
    let engine = site.start();
    let session = site.log_in();
    let cookies = format!("a=1; {session}; b=2");
    assert_eq!(site.get("/orders/2", &cookies).status, 200);
    let seen = site.back.requests();
    assert_eq!(seen.last().unwrap().all("Cookie"), ["a=1; b=2"]);
    assert_eq!(site.get("/orders/2", &session).status, 200);
    let seen = site.back.requests();
    assert_eq!(seen.last().unwrap().header("Cookie"), None);
    let who = site.get("/who", &cookies);
    assert_eq!(who.text(), r#"["ann","a=1; b=2"]"#);
    // The pages of the way come before `/*`.
    assert_eq!(
        site.get("/login/callback?code=c&state=x", &session).status,
        400
    );
    let log = engine.stop();
    assert!(!log.contains("code=c"), "{log}");
    assert!(site.back.violations().is_empty());
}

#[test]
fn a_session_survives_a_restart_but_not_its_end_at_the_provider() {
    let site = Site::new();
    let engine = site.start();
    let (first, second) = (site.log_in(), site.log_in());
    engine.stop();
    let stored = std::fs::read_dir(site.folder.path().join("data")).unwrap();
    let id = first.split_once('=').unwrap().1;
    for file in stored
        .map(|it| it.unwrap().path())
        .filter(|it| it.is_file())
    {
        let bytes = std::fs::read(&file).unwrap();
        for secret in [id.as_bytes(), b"\"ann\"", b"eyJ"] {
            let is_there = bytes.windows(secret.len()).any(|it| it == secret);
            assert!(
                !is_there,
                "{} has {}",
                file.display(),
                String::from_utf8_lossy(secret)
            );
        }
    }
    let engine = site.start();
    assert_eq!(site.get("/orders/1", &first).status, 200);
    engine.stop();
    // Nobody has asked for either when the provider ends them.
    let engine = site.start();
    assert_eq!(site.provider.end(site.port, "1"), 200);
    assert_eq!(site.get("/orders/1", &first).status, 303);
    engine.stop();
    let engine = site.start();
    assert_eq!(site.get("/orders/1", &second).status, 303);
    assert_eq!(
        site.get("/orders/1", &site.log_in()).status,
        200,
        "a later login"
    );
    engine.stop();
}

#[test]
fn topics_have_the_pages_of_the_login_that_their_subscribers_need() {
    let site = Site::new();
    let topic = free_port();
    let text = flows(site.port, &site.provider.url(), site.back.port());
    let more = format!(
        "---\ntopic: prices\npayload: event\nsubscribe: {{ listen: \
         \"127.0.0.1:{topic}\", auth: staff }}\n"
    );
    site.folder.write("flows.yaml", &format!("{text}{more}"));
    let engine = site.start();
    let session = site.log_in();
    let get = |path: &str, fields: &[(&str, &str)]| ask(topic, &format!("GET {path}"), fields);
    assert_eq!(get("/login/callback", &[]).status, 400, "it is there");
    assert_eq!(get("/topics/prices/sse", &[]).status, 401);
    let mut stream = testkit::RawClient::connect(topic);
    stream.send(format!(
        "GET /topics/prices/sse HTTP/1.1\r\nHost: x\r\nCookie: {session}\r\n\r\n"
    ));
    let head = stream.until(b"\r\n\r\n");
    assert!(
        head.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&head)
    );
    drop(stream);
    engine.stop();
}

#[test]
fn no_flow_may_have_the_path_of_a_page() {
    let folder = TempDir::new();
    for other in [
        "any /login/callback",
        "GET /login/callback",
        "POST /login/callback",
    ] {
        let flows = flows(8080, "http://127.0.0.1:9", 9);
        let more = format!(
            "---\nflow: other\nfrom: {{ http: \"{other}\" }}\nauth: none\nsteps: [ reply: {{}} ]\n"
        );
        folder.write("flows.yaml", &format!("{flows}{more}"));
        let path = folder.path().join("flows.yaml");
        let checked = output(&["check", &path.to_string_lossy()]);
        let said = String::from_utf8_lossy(&checked.stderr).into_owned()
            + &String::from_utf8_lossy(&checked.stdout);
        assert!(
            !checked.status.success() && said.contains("IT0217"),
            "{other}: {said}"
        );
        assert!(
            said.contains("/login/callback, which flow `other` takes already"),
            "{said}"
        );
    }
}
