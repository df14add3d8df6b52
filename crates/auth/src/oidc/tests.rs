//! Browsers that log in at a provider that does what a test says.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use access::jwt::{Algorithm, Signer};
use access::oidc::browser::cookies;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use component::access::{AccessPage, Admitted, Door};
use component::handler::Outcome;
use component::state::States;
use message::{Body, Fault, Headers, Method, Reply, Request};
use serde_json::{Value as Json, json};

use crate::testing::{START, Worker, door, down, json as answer, outcome, request, run};

const SECOND: Duration = Duration::from_secs(1);
const SETTINGS: &str = "issuer: http://id.example, client_id: shop, client_secret: hush, \
    public_url: \"http://localhost:8080\", logout: /logout, signed_out: /bye, \
    backchannel_logout: /backchannel, scope: openid offline_access";

fn yaml(settings: &str) -> String {
    format!("ways: {{ staff: {{ oidc: {{ {settings} }} }} }}\nauth: staff\n")
}

fn base64(bytes: &[u8], last: [char; 2]) -> String {
    let alphabet: Vec<char> = ('A'..='Z')
        .chain('a'..='z')
        .chain('0'..='9')
        .chain(last)
        .collect();
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three
            .iter()
            .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for place in 0..=three.len() {
            text.push(alphabet[(bits >> (18 - 6 * place) & 63) as usize]);
        }
    }
    text
}

/// A provider.
#[derive(Clone)]
struct Provider(Rc<Inner>);

struct Inner {
    signer: Signer,
    jwks: String,
    /// The claims of the next ID token beside the usual ones; null leaves one out.
    claims: RefCell<Json>,
    /// What the token endpoint answers in place of tokens.
    error: RefCell<Option<String>>,
    /// The nonce and the verifier's challenge of the login under way.
    nonce: RefCell<String>,
    names_issuer: std::cell::Cell<bool>,
    is_down: std::cell::Cell<bool>,
}

impl Provider {
    fn new() -> Self {
        let pair = Ed25519KeyPair::generate().unwrap();
        let der = pair.to_pkcs8().unwrap();
        let mut pem = base64(der.as_ref(), ['+', '/']);
        while !pem.len().is_multiple_of(4) {
            pem.push('=');
        }
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{pem}\n-----END PRIVATE KEY-----\n");
        let x = base64(pair.public_key().as_ref(), ['-', '_']);
        let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "1", "x": x });
        Self(Rc::new(Inner {
            signer: Signer::from_pem(pem.as_bytes(), Algorithm::EdDsa, Some("1")).unwrap(),
            jwks: json!({ "keys": [jwk] }).to_string(),
            claims: RefCell::new(json!({})),
            error: RefCell::default(),
            nonce: RefCell::default(),
            names_issuer: std::cell::Cell::new(false),
            is_down: std::cell::Cell::new(false),
        }))
    }

    fn token(&self, changes: &Json) -> String {
        let mut claims = json!({ "iss": "http://id.example", "aud": "shop", "sub": "ann",
            "iat": START, "exp": START + 100_000, "sid": "at-id" });
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Json::Null => claims.as_object_mut().unwrap().remove(name),
                _ => claims
                    .as_object_mut()
                    .unwrap()
                    .insert(name.clone(), value.clone()),
            };
        }
        self.0.signer.sign(claims.as_object().unwrap()).unwrap()
    }

    fn serve(&self, request: &Request) -> (Duration, Result<Reply, Fault>) {
        if self.0.is_down.get() {
            return (SECOND, down());
        }
        let base = "http://id.example";
        let reply = match request.path.as_str() {
            "/.well-known/openid-configuration" => answer(
                200,
                &json!({ "issuer": base, "jwks_uri": format!("{base}/jwks"),
                    "authorization_endpoint": format!("{base}/auth"),
                    "token_endpoint": format!("{base}/token"),
                    "end_session_endpoint": format!("{base}/end"),
                    "authorization_response_iss_parameter_supported": self.0.names_issuer.get(),
                })
                .to_string(),
            ),
            "/jwks" => answer(200, &self.0.jwks),
            "/token" => match self.0.error.borrow().as_deref() {
                Some(error) => answer(400, &format!(r#"{{"error":"{error}"}}"#)),
                None => answer(200, &self.tokens()),
            },
            _ => answer(404, "{}"),
        };
        (SECOND, reply)
    }

    fn tokens(&self) -> String {
        let mut claims = json!({ "nonce": *self.0.nonce.borrow() });
        let changes = self.0.claims.borrow();
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        json!({ "access_token": "at", "id_token": self.token(&claims), "refresh_token": "r",
            "expires_in": 300, "scope": "openid orders.read" })
        .to_string()
    }
}

/// A browser with its cookies.
#[derive(Clone, Default)]
struct Browser(Vec<(String, String)>);

impl Browser {
    fn request(&self, method: &str, target: &str, fields: &[(&str, &str)]) -> Request {
        let jar: Vec<String> = self
            .0
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let jar = jar.join("; ");
        let mut fields = fields.to_vec();
        if !jar.is_empty() {
            fields.push(("Cookie", &jar));
        }
        let mut request = request(&fields);
        request.method = match method {
            "GET" => Method::Get,
            _ => Method::Post,
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        request.path = path.to_owned();
        request.query = (!query.is_empty()).then(|| query.to_owned());
        request.body = Body::Empty;
        request
    }

    fn page(&self, target: &str) -> Request {
        self.request(
            "GET",
            target,
            &[("Accept", "text/html"), ("Sec-Fetch-Mode", "navigate")],
        )
    }

    fn take(&mut self, reply: &Reply) {
        for (_, name, value) in reply.headers.view().iter() {
            if !name.eq_ignore_ascii_case(b"set-cookie") {
                continue;
            }
            let value = String::from_utf8(value.to_vec()).unwrap();
            assert!(
                value.ends_with("; Path=/; HttpOnly; SameSite=Lax"),
                "{value}"
            );
            let (name, rest) = value.split_once('=').unwrap();
            let content = rest.split(';').next().unwrap();
            self.0.retain(|it| it.0 != name);
            if !value.contains("Max-Age=0;") {
                self.0.push((name.to_owned(), content.to_owned()));
            }
        }
    }

    fn session(&self) -> Option<&str> {
        let mut found = self.0.iter().filter(|it| it.0 == "intertie-staff");
        found.next().map(|it| it.1.as_str())
    }
}

fn header(reply: &Reply, name: &str) -> String {
    String::from_utf8(reply.headers.get(name).unwrap_or_default().to_vec()).unwrap()
}

fn parameter(url: &str, name: &str) -> String {
    let query = url.split_once('?').unwrap().1;
    let pairs = query.split('&').map(|it| it.split_once('=').unwrap());
    let mut found = pairs.filter(|it| it.0 == name);
    component::access::decode_parameter(found.next().map_or("", |it| it.1))
}

/// A door and the pages beside it, in front of a provider.
struct Site {
    door: std::sync::Arc<dyn Door>,
    pages: Vec<AccessPage>,
    worker: Worker,
    provider: Provider,
}

impl Site {
    async fn judge(&self, request: &Request) -> Result<Option<Admitted>, Box<Reply>> {
        self.worker.judge(&*self.door, request).await
    }

    async fn outcome(&self, request: &Request) -> String {
        outcome(self.judge(request).await)
    }

    async fn page(&self, request: Request) -> Reply {
        let path = request.path.clone();
        let mut pages = self.pages.iter();
        let page = pages.find(|it| it.path.to_string() == path).unwrap();
        match page.handler.handle(request, &self.worker).await.unwrap() {
            Outcome::Reply(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    /// Sends a browser to the provider; gives the target of the way back, without `code`.
    async fn begin(&self, browser: &mut Browser, target: &str) -> String {
        let reply = self.judge(&browser.page(target)).await.unwrap_err();
        assert_eq!(reply.status, 303);
        browser.take(&reply);
        let url = header(&reply, "Location");
        assert!(url.starts_with("http://id.example/auth?response_type=code&client_id=shop&"));
        assert_eq!(
            parameter(&url, "redirect_uri"),
            "http://localhost:8080/login/callback"
        );
        assert_eq!(parameter(&url, "code_challenge_method"), "S256");
        assert_eq!(parameter(&url, "code_challenge").len(), 43);
        *self.provider.0.nonce.borrow_mut() = parameter(&url, "nonce");
        format!("/login/callback?state={}", parameter(&url, "state"))
    }

    async fn log_in(&self) -> Browser {
        let mut browser = Browser::default();
        let back = self.begin(&mut browser, "/orders/7?a=1").await;
        let reply = self.page(browser.page(&format!("{back}&code=c"))).await;
        assert_eq!(reply.status, 303, "{:?}", reply.body);
        browser.take(&reply);
        assert!(browser.session().is_some());
        browser
    }
}

fn test<F: Future<Output = ()>>(settings: &str, test: impl FnOnce(Site) -> F) {
    let provider = Provider::new();
    let serving = provider.clone();
    let door = door(&yaml(settings), &States::default()).unwrap_or_else(|it| panic!("{it:?}"));
    run(
        move |request| serving.serve(request),
        |worker| {
            test(Site {
                pages: door.pages(),
                door,
                worker,
                provider,
            })
        },
    );
}

#[test]
fn a_browser_logs_in_and_comes_back_to_its_page() {
    test(SETTINGS, |site| async move {
        let mut browser = Browser::default();
        let back = site.begin(&mut browser, "/orders/7?a=1").await;
        assert_eq!(browser.0.len(), 1);
        let reply = site.page(browser.page(&format!("{back}&code=a%2Fb"))).await;
        assert_eq!(
            header(&reply, "Location"),
            "http://localhost:8080/orders/7?a=1"
        );
        assert_eq!(header(&reply, "Cache-Control"), "no-store");
        browser.take(&reply);
        assert_eq!(browser.0.len(), 1, "the login is over");
        let asked = site.worker.asked();
        let token = asked.iter().find(|it| it.path == "/token").unwrap();
        assert_eq!(
            token.headers.get("Authorization").unwrap(),
            b"Basic c2hvcDpodXNo"
        );
        let form = String::from_utf8(token.body.as_bytes().to_vec()).unwrap();
        assert!(
            form.starts_with("grant_type=authorization_code&code=a%2Fb&"),
            "{form}"
        );
        assert!(form.contains("&code_verifier="));
        let admitted = site
            .judge(&browser.page("/orders/7"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&*admitted.caller.id, "ann");
        assert_eq!(admitted.caller.scopes, ["openid", "orders.read"]);
        // The back end does not see the session.
        let mut request = browser.page("/orders/7");
        let mut others = request.headers.get("Cookie").unwrap().to_vec();
        others.extend(b"; theme=dark");
        request.headers.set("Cookie", others);
        admitted.enter(&mut request);
        let left = cookies(request.headers.view().iter().map(|it| (it.1, it.2)));
        assert_eq!(left.collect::<Vec<_>>(), [(&b"theme"[..], &b"dark"[..])]);
    });
}

#[test]
fn whoever_cannot_log_in_is_refused() {
    test(SETTINGS, |site| async move {
        let browser = Browser::default();
        for fields in [
            &[("Accept", "application/json")][..],
            &[("Accept", "text/html"), ("Sec-Fetch-Mode", "cors")],
            &[],
        ] {
            let reply = site
                .judge(&browser.request("GET", "/", fields))
                .await
                .unwrap_err();
            assert_eq!(reply.status, 401);
            let challenge = header(&reply, "WWW-Authenticate");
            assert_eq!(
                challenge,
                r#"Cookie realm="intertie", cookie-name="intertie-staff""#
            );
        }
        let form = browser.request("POST", "/", &[("Accept", "text/html")]);
        assert_eq!(site.outcome(&form).await, "401");
        // One that has no session any more may log in again.
        let stale = Browser(vec![("intertie-staff".to_owned(), "old".to_owned())]);
        assert_eq!(site.outcome(&stale.page("/")).await, "303");
        assert_eq!(site.outcome(&stale.request("GET", "/", &[])).await, "401");
        site.provider.0.is_down.set(true);
        assert_eq!(
            site.outcome(&browser.page("/")).await,
            "303",
            "it is known where to"
        );
    });
    test(SETTINGS, |site| async move {
        site.provider.0.is_down.set(true);
        assert_eq!(site.outcome(&Browser::default().page("/")).await, "503");
    });
}

#[test]
fn an_answer_to_no_login_of_this_browser_brings_nobody_in() {
    test(SETTINGS, |site| async move {
        let (mut browser, mut other) = (Browser::default(), Browser::default());
        let back = site.begin(&mut browser, "/").await;
        let foreign = site.begin(&mut other, "/").await;
        for target in [
            format!("{foreign}&code=c"),
            "/login/callback?code=c".to_owned(),
            format!("{back}&code=c&code=d"),
            format!("{back}&code=c&iss=http%3A%2F%2Fevil.example"),
            "/login/callback".to_owned(),
        ] {
            let reply = site.page(browser.page(&target)).await;
            assert_eq!(reply.status, 400, "{target}");
            assert!(
                header(&reply, "Set-Cookie")
                    .find("intertie-staff=")
                    .is_none()
            );
        }
        let refused = site
            .page(browser.page(&format!("{back}&error=access_denied")))
            .await;
        assert_eq!(refused.status, 403);
        let token_requests = |site: &Site| {
            let asked = site.worker.asked();
            asked.iter().filter(|it| it.path == "/token").count()
        };
        assert_eq!(
            token_requests(&site),
            0,
            "no code has been shown to the provider"
        );
        // The nonce is that of the other login.
        let reply = site.page(browser.page(&format!("{back}&code=c"))).await;
        assert_eq!(reply.status, 400);
        assert_eq!(token_requests(&site), 1);
        // The login has ended, for copies of its cookie too.
        let nonce = site.provider.0.nonce.borrow().clone();
        let reply = site.page(browser.page(&format!("{back}&code=c"))).await;
        assert_eq!((reply.status, token_requests(&site)), (400, 1));
        *site.provider.0.nonce.borrow_mut() = nonce;
        let late = 601 * SECOND;
        tokio::time::sleep(late).await;
        let reply = site.page(other.page(&format!("{foreign}&code=c"))).await;
        assert_eq!(reply.status, 400, "too late");
    });
    test(SETTINGS, |site| async move {
        site.provider.0.names_issuer.set(true);
        let mut browser = Browser::default();
        let back = site.begin(&mut browser, "/").await;
        let copy = browser.clone();
        assert_eq!(
            site.page(browser.page(&format!("{back}&code=c")))
                .await
                .status,
            400
        );
        let named = format!("{back}&code=c&iss=http%3A%2F%2Fid.example");
        assert_eq!(site.page(browser.page(&named)).await.status, 303);
        assert_eq!(site.page(copy.page(&named)).await.status, 400, "replayed");
    });
}

#[test]
fn wrong_tokens_make_no_session() {
    for changes in [
        json!({ "aud": "other" }),
        json!({ "iss": "http://evil.example" }),
        json!({ "nonce": "other" }),
        json!({ "exp": START - 100 }),
        json!({ "azp": "other" }),
        json!({ "at_hash": "AAAA" }),
        json!({ "sub": null }),
    ] {
        test(SETTINGS, |site| async move {
            *site.provider.0.claims.borrow_mut() = changes.clone();
            let mut browser = Browser::default();
            let back = site.begin(&mut browser, "/").await;
            let reply = site.page(browser.page(&format!("{back}&code=c"))).await;
            browser.take(&reply);
            assert_eq!((reply.status, browser.session()), (400, None), "{changes}");
        });
    }
}

#[test]
fn other_sites_cannot_act_with_a_session() {
    test(SETTINGS, |site| async move {
        let browser = site.log_in().await;
        let own = ("Origin", "http://localhost:8080");
        for (fields, outcome) in [
            (&[own][..], "ann"),
            (&[("Sec-Fetch-Site", "same-origin"), own], "ann"),
            (&[], "403"),
            (&[("Origin", "http://evil.example")], "403"),
            (&[("Origin", "null")], "403"),
            (&[("Sec-Fetch-Site", "cross-site"), own], "403"),
        ] {
            let request = browser.request("POST", "/orders", fields);
            assert_eq!(site.outcome(&request).await, outcome, "{fields:?}");
        }
        let socket = [("Upgrade", "websocket"), ("Origin", "http://evil.example")];
        let handshake = browser.request("GET", "/socket", &socket);
        assert_eq!(site.outcome(&handshake).await, "403");
        assert_eq!(
            site.outcome(&browser.request("GET", "/orders", &[])).await,
            "ann"
        );
        let cross = [("Sec-Fetch-Site", "cross-site")];
        let reply = site.page(browser.request("GET", "/logout", &cross)).await;
        assert_eq!(reply.status, 403);
        assert_eq!(
            site.page(browser.request("POST", "/logout", &[]))
                .await
                .status,
            403
        );
        assert_eq!(site.outcome(&browser.request("GET", "/", &[])).await, "ann");
    });
}

#[test]
fn a_session_ends_when_it_stands_still_and_in_the_end() {
    let settings = format!("{SETTINGS}, idle: 10m, lifetime: 25m");
    test(&settings, |site| async move {
        *site.provider.0.error.borrow_mut() = None;
        let browser = site.log_in().await;
        let get = browser.request("GET", "/", &[]);
        let minutes = |count: u32| tokio::time::sleep(60 * count * SECOND);
        for _ in 0..2 {
            minutes(9).await;
            assert_eq!(site.outcome(&get).await, "ann");
        }
        minutes(7).await;
        assert_eq!(site.outcome(&get).await, "401", "the end of its life");
        let browser = site.log_in().await;
        minutes(10).await;
        assert_eq!(site.outcome(&browser.request("GET", "/", &[])).await, "401");
    });
}

#[test]
fn claims_are_renewed_and_a_session_that_the_provider_has_ended_ends() {
    test(SETTINGS, |site| async move {
        let browser = site.log_in().await;
        let get = browser.request("GET", "/", &[]);
        let asked = |site: &Site| {
            let all = site.worker.asked();
            let refreshes = all.iter().filter(|it| {
                String::from_utf8_lossy(it.body.as_bytes()).contains("grant_type=refresh_token")
            });
            refreshes.count()
        };
        tokio::time::sleep(200 * SECOND).await;
        assert_eq!(
            (site.outcome(&get).await.as_str(), asked(&site)),
            ("ann", 0)
        );
        // Before the claims are too old nobody waits for newer ones.
        *site.provider.0.claims.borrow_mut() = json!({ "team": "blue" });
        tokio::time::sleep(50 * SECOND).await;
        assert_eq!(site.outcome(&get).await, "ann");
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(asked(&site), 1);
        let caller = site.judge(&get).await.unwrap().unwrap().caller;
        assert!(format!("{:?}", caller.value()).contains("blue"));
        // Later all who come at once wait for one renewal.
        tokio::time::sleep(400 * SECOND).await;
        let both = tokio::join!(site.outcome(&get), site.outcome(&get));
        assert_eq!(
            (both.0.as_str(), both.1.as_str(), asked(&site)),
            ("ann", "ann", 2)
        );
        // Nobody goes by old claims while the provider is away, and the session goes on after.
        site.provider.0.is_down.set(true);
        tokio::time::sleep(400 * SECOND).await;
        assert_eq!(site.outcome(&get).await, "ann", "for a minute");
        site.provider.0.is_down.set(false);
        tokio::time::sleep(61 * SECOND).await;
        assert_eq!(site.outcome(&get).await, "ann");
        *site.provider.0.error.borrow_mut() = Some("invalid_grant".to_owned());
        tokio::time::sleep(400 * SECOND).await;
        assert_eq!(site.outcome(&get).await, "401");
    });
}

#[test]
fn a_refreshed_token_of_somebody_else_ends_the_session() {
    test(SETTINGS, |site| async move {
        let browser = site.log_in().await;
        *site.provider.0.claims.borrow_mut() = json!({ "sub": "eve" });
        tokio::time::sleep(400 * SECOND).await;
        assert_eq!(site.outcome(&browser.request("GET", "/", &[])).await, "401");
    });
}

#[test]
fn logging_out_ends_the_session_here_and_at_the_provider() {
    test(SETTINGS, |site| async move {
        let mut browser = site.log_in().await;
        let copy = browser.clone();
        let reply = site.page(browser.page("/logout")).await;
        browser.take(&reply);
        let url = header(&reply, "Location");
        assert!(url.starts_with("http://id.example/end?client_id=shop&id_token_hint=ey"));
        assert_eq!(
            parameter(&url, "post_logout_redirect_uri"),
            "http://localhost:8080/bye"
        );
        assert_eq!(browser.session(), None);
        assert_eq!(site.outcome(&copy.request("GET", "/", &[])).await, "401");
    });
}

fn backchannel(token: &str) -> Request {
    let mut request = request(&[("Content-Type", "application/x-www-form-urlencoded")]);
    request.path = "/backchannel".to_owned();
    request.headers = Headers::new();
    request.body = Body::from(format!("logout_token={token}").into_bytes());
    request
}

#[test]
fn the_provider_ends_sessions() {
    let event = json!({ "http://schemas.openid.net/event/backchannel-logout": {} });
    test(SETTINGS, |site| async move {
        let first = site.log_in().await;
        *site.provider.0.claims.borrow_mut() = json!({ "sid": "other" });
        let second = site.log_in().await;
        let get = |browser: &Browser| browser.request("GET", "/", &[]);
        let token = |id: &str, changes: Json| {
            let mut claims = json!({ "events": event, "jti": id });
            for (name, value) in changes.as_object().unwrap() {
                claims[name] = value.clone();
            }
            site.provider.token(&claims)
        };
        let good = token("1", json!({ "sub": null }));
        for wrong in [
            String::new(),
            "x.y.z".to_owned(),
            token("2", json!({ "nonce": "n" })),
            token("3", json!({ "aud": "other" })),
            format!("{good}&logout_token={good}"),
        ] {
            assert_eq!(site.page(backchannel(&wrong)).await.status, 400, "{wrong}");
        }
        assert_eq!(site.outcome(&get(&first)).await, "ann");
        let reply = site.page(backchannel(&good)).await;
        assert_eq!(
            (reply.status, header(&reply, "Cache-Control").as_str()),
            (200, "no-store")
        );
        assert_eq!(site.outcome(&get(&first)).await, "401");
        assert_eq!(site.outcome(&get(&second)).await, "ann");
        assert_eq!(site.page(backchannel(&good)).await.status, 400, "replayed");
        let all = token("4", json!({ "sid": null }));
        assert_eq!(site.page(backchannel(&all)).await.status, 200);
        assert_eq!(site.outcome(&get(&second)).await, "401");
    });
}

#[test]
fn other_tabs_log_in_beside_each_other_within_a_bound() {
    test(SETTINGS, |site| async move {
        let mut browser = Browser::default();
        let first = site.begin(&mut browser, "/a").await;
        let nonce = site.provider.0.nonce.borrow().clone();
        site.begin(&mut browser, "/b").await;
        *site.provider.0.nonce.borrow_mut() = nonce;
        let reply = site.page(browser.page(&format!("{first}&code=c"))).await;
        assert_eq!(header(&reply, "Location"), "http://localhost:8080/a");
        for _ in 0..20 {
            site.begin(&mut browser, "/").await;
            assert!(browser.0.len() <= 5, "{}", browser.0.len());
        }
    });
}

#[test]
fn sessions_survive_a_reload() {
    let states = States::default();
    let provider = Provider::new();
    let serving = provider.clone();
    let before = door(&yaml(SETTINGS), &states).unwrap();
    run(
        move |request| serving.serve(request),
        |worker| async move {
            let mut site = Site {
                pages: before.pages(),
                door: before,
                worker,
                provider,
            };
            let browser = site.log_in().await;
            let after = door(&yaml(&format!("{SETTINGS}, idle: 2h")), &states).unwrap();
            (site.pages, site.door) = (after.pages(), after);
            assert_eq!(site.outcome(&browser.request("GET", "/", &[])).await, "ann");
        },
    );
}

#[test]
fn settings_that_would_not_be_safe_are_refused() {
    let base = "issuer: https://id.example, client_id: shop";
    for (settings, problem) in [
        (
            format!("{base}, public_url: \"http://shop.example\""),
            "must be `https`",
        ),
        (format!("{base}, public_url: shop.example"), "no scheme"),
        (
            format!("{base}, public_url: \"https://shop.example/app\""),
            "without a path",
        ),
        (
            format!("{base}, public_url: \"https://a.example\", callback: login"),
            "no path for a page",
        ),
        (
            format!("{base}, public_url: \"https://a.example\", callback: \"/a/{{b}}\""),
            "no path",
        ),
        (
            format!("{base}, public_url: \"https://a.example\", logout: /login/callback"),
            "one path",
        ),
        (
            format!("{base}, public_url: \"https://a.example\", signed_out: /bye"),
            "no effect",
        ),
        (
            format!("{base}, public_url: \"https://a.example\", scope: profile"),
            "`openid`",
        ),
        (
            format!("{base}, public_url: \"https://a.example\", idle: 1s"),
            "`idle` is not from",
        ),
    ] {
        let problems = door(&yaml(&settings), &States::default()).err();
        let problems = problems.unwrap_or_default().join("\n");
        assert!(
            problems.contains("IT0700") && problems.contains(problem),
            "{settings}: {problems}"
        );
    }
    let both = "ways: { a: { oidc: { issuer: https://i.example, client_id: c, public_url: \
                \"https://a.example\" }, jwt: { issuer: x, audience: y } } }\nauth: a\n";
    let problems = door(both, &States::default()).err().unwrap();
    assert!(problems[0].contains("exactly one of"), "{problems:?}");
}
