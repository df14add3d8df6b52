//! Browsers that log in at an OpenID provider, over HTTP: what the back end sees, what a restart
//! leaves, and what the provider ends while the engine is away.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::http2::{frame, hpack};
use testkit::{RawClient, Response, StrictBackend, TempDir, free_port};

use crate::audit::events;
use crate::auth::{Signer, ask, now};
use crate::support::{Engine, output, post};

/// A provider that takes every code, and gives tokens for the login whose nonce it was told.
struct Provider {
    backend: StrictBackend,
    signer: Arc<Signer>,
    nonce: Arc<Mutex<String>>,
    /// The session of its tokens.
    session: Arc<Mutex<String>>,
    /// Who logs in.
    subject: Arc<Mutex<String>>,
}

impl Provider {
    fn start() -> Self {
        let signer = Arc::new(Signer::new("a"));
        let nonce = Arc::new(Mutex::new(String::new()));
        let session = Arc::new(Mutex::new("there".to_owned()));
        let (signs, known) = (Arc::clone(&signer), Arc::clone(&nonce));
        let given = Arc::clone(&session);
        let subject = Arc::new(Mutex::new("ann".to_owned()));
        let who = Arc::clone(&subject);
        let backend = StrictBackend::answering(move |request| {
            let url = format!("http://{}", request.header("Host").unwrap_or_default());
            let (status, body) = match request.target.as_str() {
                "/.well-known/openid-configuration" => (
                    "200 OK",
                    json!({ "issuer": url, "jwks_uri": format!("{url}/keys"),
                        "authorization_endpoint": format!("{url}/auth"),
                        "token_endpoint": format!("{url}/token"),
                        "end_session_endpoint": format!("{url}/end") }),
                ),
                "/keys" => ("200 OK", json!({ "keys": [signs.jwk()] })),
                "/token" => {
                    let claims = json!({ "nonce": *known.lock().unwrap(),
                        "sub": *who.lock().unwrap(), "sid": *given.lock().unwrap(),
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
            session,
            subject,
        }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.backend.port())
    }

    /// Says that sessions have ended.
    fn end(&self, port: u16, id: &str) -> u16 {
        let claims = json!({ "jti": id, "sid": *self.session.lock().unwrap() });
        self.log_out(port, claims)
    }

    /// The same with these claims.
    fn log_out(&self, port: u16, claims: Value) -> u16 {
        let event = json!({ "http://schemas.openid.net/event/backchannel-logout": {} });
        let mut all = json!({ "events": event, "iat": now() });
        all.as_object_mut()
            .unwrap()
            .extend(claims.as_object().unwrap().clone());
        let token = self.signer.token(&self.url(), all);
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

    /// The same with an audit log.
    fn audited() -> Self {
        let site = Self::new();
        let text = flows(site.port, &site.provider.url(), site.back.port());
        let audit = "engine:\n  audit: { file: audit.jsonl }\n";
        site.folder
            .write("flows.yaml", &text.replace("engine:\n", audit));
        site
    }

    /// Why sessions have ended, and whose, by the audit log.
    fn ended(&self) -> Vec<(String, String)> {
        let all = events(&self.folder.path().join("audit.jsonl")).into_iter();
        let ended = all.filter(|it| it["event"] == "session.ended");
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        ended
            .map(|it| (text(&it["reason"]), text(&it["actor"]["id"])))
            .collect()
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

    /// Begins a login; gives its cookie and its state.
    fn begin(&self) -> (String, String) {
        let sent = self.get("/orders/1?a=1", "theme=dark");
        assert_eq!(sent.status, 303, "{}", sent.text());
        let url = sent.header("Location").unwrap();
        let of = |name: &str| {
            let found = url.split(['?', '&']).find_map(|it| it.strip_prefix(name));
            found.unwrap().to_owned()
        };
        *self.provider.nonce.lock().unwrap() = of("nonce=");
        (first_cookie(&sent), of("state="))
    }

    /// Logs in; gives the session's cookie.
    fn log_in(&self) -> String {
        let (login, state) = self.begin();
        let back = format!("/login/callback?code=c&state={state}");
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
         logout: /logout, backchannel_logout: /backchannel }} }}\n---\n\
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

/// The statuses of replies to requests that come in one packet on one connection.
fn ask_at_once(port: u16, cookie: &str, paths: &[&str]) -> Vec<u16> {
    let mut client = RawClient::connect(port);
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    for (number, path) in (0_u32..).zip(paths) {
        let fields = [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "shop.example"),
            (":path", *path),
            ("accept", "text/html"),
            ("cookie", cookie),
        ];
        bytes.extend(frame(1, 5, 2 * number + 1, &hpack::encode(fields)));
    }
    client.send(bytes);
    let mut decoder = hpack::Decoder::default();
    let mut statuses = vec![0; paths.len()];
    while statuses.contains(&0) {
        let head = client.exactly(9);
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let payload = client.exactly(length as usize);
        match head[3] {
            4 if head[4] == 0 => client.send(frame(4, 1, 0, &[])),
            1 => {
                let fields = decoder.decode(&payload).unwrap();
                let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                statuses[stream as usize / 2] = fields[0].1.parse().unwrap();
            }
            3 | 7 => panic!("{head:?} {payload:?}"),
            _ => {}
        }
    }
    statuses
}

#[test]
fn a_logout_wins_over_requests_that_are_reading_the_session() {
    let site = Site::new();
    let mut text = flows(site.port, &site.provider.url(), site.back.port());
    for path in ["/*", "/who"] {
        let long = format!("{{ method: any, path: {path}, protocols: [h2, http/1.1] }}");
        text = text.replace(&format!("\"any {path}\""), &long);
    }
    site.folder.write("flows.yaml", &text);
    let engine = site.start();
    let sessions: Vec<String> = (0..10).map(|_| site.log_in()).collect();
    engine.stop();
    // They stand in the data folder alone now.
    let engine = site.start();
    for session in &sessions {
        let statuses = ask_at_once(site.port, session, &["/who", "/logout"]);
        assert_eq!(statuses[1], 303);
        assert_eq!(site.get("/who", session).status, 303, "{statuses:?}");
    }
    engine.stop();
}

/// Restarts an engine, if that is asked for.
fn restarted(site: &Site, engine: Engine, is_asked: bool) -> Engine {
    match is_asked {
        true => {
            engine.stop();
            site.start()
        }
        false => engine,
    }
}

#[test]
fn a_browser_that_logs_out_is_out_also_after_restarts() {
    for restarts in [false, true] {
        let site = Site::audited();
        let engine = site.start();
        let (session, other) = (site.log_in(), site.log_in());
        let engine = restarted(&site, engine, restarts);
        let out = site.get("/logout", &session);
        assert_eq!(out.status, 303, "{}", out.text());
        let to = out.header("Location").unwrap();
        let begin = format!(
            "{}/end?client_id=shop&id_token_hint=ey",
            site.provider.url()
        );
        assert!(to.starts_with(&begin), "{to}");
        let cookie = out.header("Set-Cookie").unwrap();
        assert!(
            cookie.starts_with("intertie-staff=; Max-Age=0;"),
            "{cookie}"
        );
        // A copy of the cookie opens nothing.
        assert_eq!(site.get("/who", &session).status, 303, "{restarts}");
        let engine = restarted(&site, engine, true);
        assert_eq!(site.get("/who", &session).status, 303, "{restarts}");
        assert_eq!(site.get("/who", &other).status, 200, "{restarts}");
        // Whoever is out already is told the same, and there is nothing to end.
        let out = site.get("/logout", &session);
        assert_eq!(out.status, 303);
        assert!(!out.header("Location").unwrap().contains("id_token_hint"));
        engine.stop();
        assert_eq!(site.ended(), [("by_user".to_owned(), "ann".to_owned())]);
    }
}

#[test]
fn the_provider_ends_a_session_or_a_person_also_around_restarts() {
    for (claims, is_of_person) in [
        (json!({ "jti": "1", "sid": "there", "sub": null }), false),
        (json!({ "jti": "2", "sid": null, "sub": "ann" }), true),
        (json!({ "jti": "3", "sid": "there", "sub": "ann" }), false),
    ] {
        for restarts in [false, true] {
            let site = Site::audited();
            let engine = site.start();
            let one = site.log_in();
            *site.provider.session.lock().unwrap() = "elsewhere".to_owned();
            let two = site.log_in();
            *site.provider.subject.lock().unwrap() = "bob".to_owned();
            let other = site.log_in();
            let engine = restarted(&site, engine, restarts);
            assert_eq!(site.provider.log_out(site.port, claims.clone()), 200);
            let check = || {
                let statuses = [&one, &two, &other].map(|it| site.get("/who", it).status);
                let of_two = if is_of_person { 303 } else { 200 };
                assert_eq!(statuses, [303, of_two, 200], "{claims} {restarts}");
            };
            check();
            let engine = restarted(&site, engine, true);
            check();
            let metric = |name: &str| engine.measured(name, &[]);
            assert_eq!(metric("intertie_auth_logouts_total"), Some(0.0));
            engine.stop();
            let subject = claims["sub"].as_str().unwrap_or_default().to_owned();
            assert_eq!(site.ended(), [("by_provider".to_owned(), subject)]);
        }
    }
}

#[test]
fn failed_logins_and_refused_logouts_are_told() {
    let site = Site::audited();
    let engine = site.start();
    let back =
        |query: &str, cookie: &str| site.get(&format!("/login/callback?{query}"), cookie).status;
    assert_eq!(back("code=c0de&state=x", ""), 400);
    let (login, state) = site.begin();
    assert_eq!(
        back(&format!("error=access_denied&state={state}"), &login),
        403
    );
    let (login, state) = site.begin();
    *site.provider.nonce.lock().unwrap() = "another".to_owned();
    assert_eq!(back(&format!("code=c0de&state={state}"), &login), 400);
    assert_eq!(back(&format!("code=c0de&state={state}"), &login), 400);
    // Pages of other sites.
    let session = site.log_in();
    let elsewhere = |request: &str| {
        let fields = [("Cookie", &*session), ("Sec-Fetch-Site", "cross-site")];
        ask(site.port, request, &fields).status
    };
    assert_eq!(elsewhere("GET /logout"), 403);
    assert_eq!(elsewhere("POST /who"), 403);
    assert_eq!(site.get("/who", &session).status, 200);
    // Logouts that the provider has not sent.
    assert_eq!(
        site.provider
            .log_out(site.port, json!({ "jti": "1", "aud": "other" })),
        400
    );
    assert_eq!(site.provider.end(site.port, "2"), 200);
    assert_eq!(site.provider.end(site.port, "2"), 400);
    engine.stop();
    let path = site.folder.path().join("audit.jsonl");
    let all = events(&path);
    let refused = all.iter().filter(|it| it["event"] == "access.refused");
    let refused: Vec<_> = refused
        .map(|it| {
            assert_eq!(it["actor"]["way"], "staff", "{it}");
            let text = |name: &str| it[name].as_str().unwrap();
            (
                text("reason"),
                it["status"].as_u64().unwrap(),
                text("target"),
            )
        })
        .collect();
    assert_eq!(
        refused,
        [
            ("login_state", 400, "login"),
            ("login_refused", 403, "login"),
            ("login_nonce", 400, "login"),
            ("login_replayed", 400, "login"),
            ("logout_cross_site", 403, "login"),
            ("cross_site", 403, "flow who"),
            ("logout_audience", 400, "login"),
            ("logout_replayed", 400, "login"),
        ]
    );
    let text = std::fs::read_to_string(path).unwrap();
    for secret in ["c0de", &*state, session.split_once('=').unwrap().1, "eyJ"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[test]
fn a_logout_that_cannot_be_denied_still_ends_sessions_that_a_restart_has_left() {
    let site = Site::new();
    // Too long for the deny list.
    *site.provider.session.lock().unwrap() = "s".repeat(600);
    let text = flows(site.port, &site.provider.url(), site.back.port());
    let text = text.replace("engine:\n", "engine:\n  deny: {}\n");
    site.folder.write("flows.yaml", &text);
    let engine = site.start();
    let session = site.log_in();
    engine.stop();
    let engine = site.start();
    assert_eq!(site.provider.end(site.port, "1"), 503);
    assert_eq!(site.get("/orders/1", &session).status, 303);
    engine.stop();
}

#[test]
fn topics_serve_the_login_pages_of_their_auth() {
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
    let mut stream = RawClient::connect(topic);
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
