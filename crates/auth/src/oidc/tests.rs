//! Browsers that log in at a provider that does what a test says.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use access::deny::{Denied, Kind};
use access::jwt::{Algorithm, Signer};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64ct::{Base64, Base64UrlUnpadded, Encoding as _};
use component::access::{AccessPage, Admitted, Door};
use component::audit::Audit;
use component::audit::limiter::LimiterSettings;
use component::cookies;
use component::handler::Outcome;
use component::state::States;
use message::{Body, CertificateSource, ClientCertificate, Fault, Headers, Method, Reply, Request};
use serde_json::{Value as Json, json};

use crate::revocation::Revocations;
use crate::testing::{START, Worker, door, down, json as answer, outcome, request, run};

const SECOND: Duration = Duration::from_secs(1);
const SETTINGS: &str = "issuer: http://id.example, client_id: shop, client_secret: hush, \
    public_url: \"http://localhost:8080\", logout: /logout, signed_out: /bye, \
    backchannel_logout: /backchannel, scope: openid offline_access";

fn yaml(settings: &str) -> String {
    format!("ways: {{ staff: {{ oidc: {{ {settings} }} }} }}\nauth: staff\n")
}

/// A provider.
#[derive(Clone)]
struct Provider(Rc<ProviderState>);

struct ProviderState {
    signer: Signer,
    jwks: String,
    /// The claims of the next ID token beside the usual ones; null leaves one out.
    claims: RefCell<Json>,
    /// What the token endpoint answers in place of tokens.
    error: RefCell<Option<String>>,
    /// The nonce and the verifier's challenge of the login under way.
    nonce: RefCell<String>,
    /// Scheme and host of the keys, by the description.
    keys_at: std::cell::Cell<&'static str>,
    names_issuer: std::cell::Cell<bool>,
    is_down: std::cell::Cell<bool>,
}

impl Provider {
    fn new() -> Self {
        let pair = Ed25519KeyPair::generate().unwrap();
        let der = pair.to_pkcs8().unwrap();
        let pem = Base64::encode_string(der.as_ref());
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{pem}\n-----END PRIVATE KEY-----\n");
        let x = Base64UrlUnpadded::encode_string(pair.public_key().as_ref());
        let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "1", "x": x });
        Self(Rc::new(ProviderState {
            signer: Signer::from_pem(pem.as_bytes(), Algorithm::EdDsa, Some("1")).unwrap(),
            jwks: json!({ "keys": [jwk] }).to_string(),
            claims: RefCell::new(json!({})),
            error: RefCell::default(),
            nonce: RefCell::default(),
            keys_at: std::cell::Cell::new("http://id.example"),
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
                &json!({ "issuer": base, "jwks_uri": format!("{}/jwks", self.0.keys_at.get()),
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

fn header_of(request: &Request, name: &str) -> String {
    String::from_utf8(request.headers.get(name).unwrap_or_default().to_vec()).unwrap()
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
    test_at(&yaml(settings), &States::default(), test);
}

/// The same with a door of this YAML.
fn test_at<F: Future<Output = ()>>(yaml: &str, states: &States, test: impl FnOnce(Site) -> F) {
    let provider = Provider::new();
    let serving = provider.clone();
    let door = door(yaml, states).unwrap_or_else(|it| panic!("{it:?}"));
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
        let left = cookies::pairs(request.headers.view());
        assert_eq!(left.collect::<Vec<_>>(), [(&b"theme"[..], &b"dark"[..])]);
    });
}

#[test]
fn requests_that_are_no_navigation_are_not_sent_to_log_in() {
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
fn one_person_has_a_bounded_number_of_sessions() {
    let states = States::default();
    let audit = Audit::of(&states);
    audit.set(Some(LimiterSettings::default()));
    test_at(&yaml(SETTINGS), &states, |site| async move {
        let get = |browser: &Browser| browser.request("GET", "/", &[]);
        *site.provider.0.claims.borrow_mut() = json!({ "sub": "bob" });
        let other = site.log_in().await;
        *site.provider.0.claims.borrow_mut() = json!({});
        let mut all = Vec::new();
        for _ in 0..100 {
            all.push(site.log_in().await);
        }
        let idle = site.judge(&get(&all[5])).await.unwrap().unwrap().caller;
        let stream = idle.validity().unwrap();
        tokio::time::sleep(20 * SECOND).await;
        for (number, browser) in all.iter().enumerate().filter(|it| it.0 != 5) {
            assert_eq!(site.outcome(&get(browser)).await, "ann", "{number}");
        }
        assert!(!stream.is_revoked());
        all.push(site.log_in().await);
        assert!(stream.is_revoked());
        for (number, browser) in all.iter().enumerate() {
            let expected = if number == 5 { "401" } else { "ann" };
            assert_eq!(site.outcome(&get(browser)).await, expected, "{number}");
        }
        assert_eq!(site.outcome(&get(&other)).await, "bob");
        let ended: Vec<_> = audit.take();
        let ended = ended.iter().map(|(time, it)| it.to_json(*time));
        let ended: Vec<_> = ended.filter(|it| it["event"] == "session.ended").collect();
        assert_eq!(ended.len(), 1, "{ended:?}");
        assert_eq!(
            (&ended[0]["reason"], &ended[0]["actor"]["id"]),
            (&json!("too_many"), &json!("ann"))
        );
    });
}

#[test]
fn clients_that_leave_in_the_middle_of_logins_use_up_the_budget_of_their_address() {
    test(SETTINGS, |site| async move {
        let mut limited = false;
        for _ in 0..40 {
            let mut browser = Browser::default();
            let back = site.begin(&mut browser, "/").await;
            let login = site.page(browser.page(&format!("{back}&code=guessed")));
            // The provider takes a second.
            let ended = tokio::time::timeout(SECOND / 2, login).await;
            limited |= ended.is_ok_and(|reply| reply.status == 429);
        }
        assert!(limited);
        let asked = site.worker.asked();
        let asked = asked.iter().filter(|it| it.path == "/token").count();
        assert!(asked < 30, "{asked}");
    });
}

#[test]
fn only_logins_that_have_got_tokens_are_remembered() {
    test(SETTINGS, |site| async move {
        let mut browser = Browser::default();
        let back = site.begin(&mut browser, "/").await;
        let answer = browser.page(&format!("{back}&code=c"));
        // A table of those that fail could be filled by strangers, and nobody could log in.
        *site.provider.0.error.borrow_mut() = Some("invalid_grant".to_owned());
        assert_eq!(site.page(answer.clone()).await.status, 400);
        let left = tokio::time::timeout(SECOND / 2, site.page(answer.clone())).await;
        assert!(left.is_err());
        *site.provider.0.error.borrow_mut() = None;
        // Two at a time are one.
        let both = tokio::join!(site.page(answer.clone()), site.page(answer.clone()));
        let mut statuses = [both.0.status, both.1.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [303, 400]);
        assert_eq!(site.page(answer).await.status, 400);
    });
}

#[test]
fn a_logout_at_the_provider_ends_a_login_that_is_under_way() {
    let event = json!({ "http://schemas.openid.net/event/backchannel-logout": {} });
    test(SETTINGS, |site| async move {
        let token = |id: &str, session: &str| {
            let claims = json!({ "events": event, "jti": id, "sid": session, "sub": null });
            site.provider.token(&claims)
        };
        for (id, session, status) in [("1", "at-id", 400), ("2", "elsewhere", 303)] {
            let mut browser = Browser::default();
            let back = site.begin(&mut browser, "/").await;
            let login = site.page(browser.page(&format!("{back}&code=c")));
            let logout = async {
                tokio::time::sleep(SECOND / 2).await;
                site.page(backchannel(&token(id, session))).await.status
            };
            let (login, logout) = tokio::join!(login, logout);
            assert_eq!((login.status, logout), (status, 200), "{session}");
            browser.take(&login);
            assert_eq!(browser.session().is_some(), status == 303);
        }
    });
}

#[test]
fn a_logout_that_cannot_be_looked_up_is_not_said_to_be_one() {
    test(SETTINGS, |site| async move {
        let unknown = |number: u32| {
            let cookie = format!("{number:043}");
            Browser(vec![("intertie-staff".to_owned(), cookie)])
        };
        // Somebody behind the same address guesses.
        for number in 0..30 {
            site.outcome(&unknown(number).request("GET", "/", &[]))
                .await;
        }
        let reply = site.page(unknown(99).page("/logout")).await;
        assert_eq!(
            (reply.status, header(&reply, "Set-Cookie").as_str()),
            (429, "")
        );
        assert_ne!(header(&reply, "Retry-After"), "");
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
fn streams_end_with_their_session() {
    test(SETTINGS, |site| async move {
        let get = |browser: &Browser| browser.request("GET", "/", &[]);
        let caller = async |browser: &Browser| {
            let admitted = site.judge(&get(browser)).await;
            admitted.unwrap().unwrap().caller
        };
        let second = site.log_in().await;
        // The one whose nonce the provider repeats.
        let mut first = site.log_in().await;
        let callers = [caller(&first).await, caller(&second).await];
        let streams = callers.each_ref().map(|it| it.validity().unwrap());
        // Renewed claims make no other session of it.
        tokio::time::sleep(250 * SECOND).await;
        caller(&first).await;
        tokio::time::sleep(2 * SECOND).await;
        let renewed = caller(&first).await.validity().unwrap();
        let reply = site.page(first.page("/logout")).await;
        first.take(&reply);
        let ended = || streams.each_ref().map(|it| it.is_revoked());
        assert_eq!((ended(), renewed.is_revoked()), ([true, false], true));
        // One that was let in just before.
        assert!(callers[0].validity().unwrap().is_revoked());
        // Whose session the provider ends, or renews no more.
        let third = site.log_in().await;
        let stream = caller(&third).await.validity().unwrap();
        *site.provider.0.error.borrow_mut() = Some("invalid_grant".to_owned());
        tokio::time::sleep(400 * SECOND).await;
        assert_eq!(site.outcome(&get(&third)).await, "401");
        assert_eq!((ended(), stream.is_revoked()), ([true, false], true));
        let event = json!({ "http://schemas.openid.net/event/backchannel-logout": {} });
        let now = START + 600;
        let token = json!({ "events": event, "jti": "1", "sub": null, "iat": now });
        let token = site.provider.token(&token);
        assert_eq!(site.page(backchannel(&token)).await.status, 200);
        assert_eq!(ended(), [true, true]);
    });
}

#[test]
fn a_logout_at_the_provider_denies_what_it_has_given() {
    let states = States::default();
    let revocations = Revocations::of(&states);
    revocations.begin(Vec::new());
    test_at(&yaml(SETTINGS), &states, |site| async move {
        let event = json!({ "http://schemas.openid.net/event/backchannel-logout": {} });
        let log_out = async |changes: Json| {
            let mut claims = json!({ "events": event });
            for (name, value) in changes.as_object().unwrap() {
                claims[name] = value.clone();
            }
            let token = site.provider.token(&claims);
            site.page(backchannel(&token)).await.status
        };
        let entries = || -> Vec<String> {
            let entries = revocations.entries_at(START, None, 10).into_iter();
            entries.map(|(_, it)| it.members().to_string()).collect()
        };
        assert_eq!(log_out(json!({ "jti": "1" })).await, 200);
        let until = START + 12 * 3600;
        let is_of = |line: &str, name: &str, value: &str| {
            let line: Json = serde_json::from_str(line).unwrap();
            let late = line["exp"].as_u64().unwrap();
            assert!((until..until + 60).contains(&late), "{line}");
            line[name] == value && line["reason"] == "logged out"
        };
        assert!(is_of(&entries()[0], "sid", "http://id.example at-id"));
        // Without a session it is everything of the person until then.
        let of_person = json!({ "jti": "2", "sid": null, "iat": START + 1 });
        assert_eq!(log_out(of_person).await, 200);
        let all = entries();
        assert_eq!(all.len(), 2);
        assert!(is_of(&all[1], "login", "http://id.example ann"), "{all:?}");
        assert!(all[1].contains(&format!("\"before\":{}", START + 1)));
        // Who logs in again comes in.
        *site.provider.0.claims.borrow_mut() = json!({ "sid": "new", "iat": START + 2 });
        let browser = site.log_in().await;
        let get = browser.request("GET", "/", &[]);
        assert_eq!(site.outcome(&get).await, "ann");
        assert_eq!(log_out(json!({ "jti": "3", "sid": "new" })).await, 200);
        assert_eq!(site.outcome(&get).await, "401");
    });
}

#[test]
fn logouts_are_audited_also_when_they_cannot_be_denied() {
    let states = States::default();
    Revocations::of(&states).begin(Vec::new());
    let audit = Audit::of(&states);
    audit.set(Some(LimiterSettings::default()));
    test_at(&yaml(SETTINGS), &states, |site| async move {
        let event = json!({ "http://schemas.openid.net/event/backchannel-logout": {} });
        let log_out = async |id: &str, session: Json| {
            let claims = json!({ "events": event, "jti": id, "sid": session });
            let token = site.provider.token(&claims);
            site.page(backchannel(&token)).await.status
        };
        let events = || -> Vec<Json> {
            let taken = audit.take().into_iter();
            taken.map(|(time, it)| it.to_json(time)).collect()
        };
        // No entry can name it.
        let long = Json::from("s".repeat(600));
        *site.provider.0.claims.borrow_mut() = json!({ "sid": long });
        let browser = site.log_in().await;
        events();
        assert_eq!(log_out("1", long).await, 503);
        assert_eq!(site.outcome(&browser.request("GET", "/", &[])).await, "401");
        let all = events();
        let ann = json!({ "way": "staff", "id": "ann" });
        assert_eq!(all[0]["event"], "session.ended", "{all:?}");
        assert_eq!(all[0]["reason"], "by_provider");
        assert_eq!((&all[0]["actor"], &all[0]["count"]), (&ann, &json!(1)));

        assert_eq!(log_out("2", Json::Null).await, 200);
        let all = events();
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!(all[1]["event"], "deny.added");
        assert_eq!(all[1]["reason"], "logged out");
        assert_eq!(all[1]["actor"], ann);
        assert_eq!(all[1]["request"]["path"], "/backchannel");
        assert_eq!(all[1]["entry"]["login"], "http://id.example ann");

        *site.provider.0.claims.borrow_mut() = json!({ "iat": START + 30 });
        let browser = site.log_in().await;
        events();
        assert_eq!(site.page(browser.page("/logout")).await.status, 303);
        let all = events();
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(
            (&all[0]["reason"], &all[0]["actor"]),
            (&json!("by_user"), &ann)
        );
    });
}

#[test]
fn the_deny_list_has_people_who_have_logged_in() {
    let states = States::default();
    let revocations = Revocations::of(&states);
    revocations.begin(Vec::new());
    test_at(&yaml(SETTINGS), &states, |site| async move {
        let browser = site.log_in().await;
        let get = browser.request("GET", "/", &[]);
        let caller = site.judge(&get).await.unwrap().unwrap().caller;
        let stream = caller.validity().unwrap();
        let entry = |name| Denied::new(Kind::Subject, name, None, None).unwrap();
        revocations.add(entry("bob")).unwrap();
        assert_eq!(site.outcome(&get).await, "ann");
        assert!(!stream.is_revoked());
        revocations.add(entry("ann")).unwrap();
        assert_eq!(site.outcome(&get).await, "401");
        assert!(stream.is_revoked());
        assert!(revocations.remove(Kind::Subject, "ann"));
        assert_eq!(site.outcome(&get).await, "ann");
    });
}

#[test]
fn a_browser_that_has_logged_in_by_two_ways_comes_in_by_the_one_that_is_good() {
    let both = |names: &str| {
        let other = format!("{SETTINGS}, callback: /other");
        format!(
            "ways: {{ staff: {{ oidc: {{ {SETTINGS} }} }}, guests: {{ oidc: {{ {other} }} }} }}\n\
             auth: {{ any: [{names}] }}\n"
        )
    };
    for names in ["staff, guests", "guests, staff"] {
        test_at(&both(names), &States::default(), |site| async move {
            let mut browser = Browser::default();
            *site.provider.0.nonce.borrow_mut() = String::new();
            // Whichever way invites, the sessions of the other one are as good.
            let reply = site.judge(&browser.page("/")).await.unwrap_err();
            browser.take(&reply);
            let url = header(&reply, "Location");
            *site.provider.0.nonce.borrow_mut() = parameter(&url, "nonce");
            let back = parameter(&url, "redirect_uri");
            let path = back.strip_prefix("http://localhost:8080").unwrap();
            let state = parameter(&url, "state");
            let answer = browser.page(&format!("{path}?state={state}&code=c"));
            browser.take(&site.page(answer).await);
            let own = if path == "/other" { "guests" } else { "staff" };
            assert!(names.starts_with(own));
            let name = if own == "staff" { "guests" } else { "staff" };
            let stale = (format!("intertie-{name}"), "stale".to_owned());
            for at in [0, 1] {
                let mut both = browser.clone();
                both.0.insert(at, stale.clone());
                let get = both.request("GET", "/", &[]);
                assert_eq!(site.outcome(&get).await, "ann", "{names}");
                // Neither goes further.
                let admitted = site.judge(&get).await.unwrap().unwrap();
                let mut request = get.clone();
                admitted.enter(&mut request);
                assert_eq!(request.headers.get("Cookie"), None);
            }
            // Of one way there is one: each costs a look.
            let mut many = browser.clone();
            many.0.extend([stale.clone(), stale.clone()]);
            let get = many.request("GET", "/", &[]);
            assert_eq!(site.outcome(&get).await, "400");
            let alone = Browser(vec![stale]);
            assert_eq!(site.outcome(&alone.page("/")).await, "303");
            // One cookie twice is nobody's.
            let mut twice = browser.clone();
            twice.0.push(browser.0[0].clone());
            let get = twice.request("GET", "/", &[]);
            assert_eq!(site.outcome(&get).await, "400");
        });
    }
}

#[test]
fn what_a_browser_sends_by_itself_goes_no_further_beside_another_credential() {
    const SECRET: &str = "a secret of the issuer that has more than 32 bytes";
    for (pass, left) in [
        ("", "theme=dark"),
        (", pass: true", "intertie-staff=s; theme=dark"),
    ] {
        let yaml = format!(
            "ways: {{ tokens: {{ jwt: {{ issuer: id, audience: us, secret: {SECRET} }} }}, staff: {{ \
             oidc: {{ {SETTINGS} }}{pass} }} }}\nauth: {{ any: [tokens, staff] }}\n"
        );
        test_at(&yaml, &States::default(), |site| async move {
            let claims = json!({ "iss": "id", "aud": "us", "sub": "bob", "exp": START + 600 });
            let signer = Signer::from_secret(SECRET.as_bytes());
            let token = signer.sign(claims.as_object().unwrap()).unwrap();
            let mut request = request(&[
                ("Authorization", &format!("Bearer {token}")),
                ("Cookie", "intertie-staff=s; theme=dark"),
            ]);
            let admitted = site.judge(&request).await.unwrap().unwrap();
            assert_eq!(&*admitted.caller.id, "bob");
            admitted.enter(&mut request);
            assert_eq!(request.headers.get("Authorization"), None);
            assert_eq!(header_of(&request, "Cookie"), left);
        });
    }
}

#[test]
fn a_certificate_that_nobody_knows_keeps_nobody_from_logging_in() {
    let yaml = format!(
        "ways: {{ us: {{ mtls: {{}} }}, staff: {{ oidc: {{ {SETTINGS} }} }} }}\n\
         auth: {{ any: [us, staff] }}\n"
    );
    test_at(&yaml, &States::default(), |site| async move {
        let shown = |mut request: Request| {
            let unreadable = CertificateSource::Handshake(vec![0x30, 0]);
            let certificate = ClientCertificate::new(unreadable);
            request.certificate = Some(std::sync::Arc::new(certificate));
            request
        };
        let browser = Browser::default();
        assert_eq!(site.outcome(&shown(browser.page("/"))).await, "303");
        let script = shown(browser.request("GET", "/", &[]));
        assert_eq!(site.outcome(&script).await, "401");
        let browser = site.log_in().await;
        let get = shown(browser.request("GET", "/", &[]));
        assert_eq!(site.outcome(&get).await, "ann");
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
fn keys_on_another_host_are_taken_when_jwks_origin_names_it() {
    for (settings, status) in [
        (format!("{SETTINGS}, jwks_origin: http://keys.example"), 303),
        (
            format!("{SETTINGS}, jwks_origin: http://others.example"),
            503,
        ),
        (SETTINGS.to_owned(), 503),
    ] {
        test(&settings, |site| async move {
            site.provider.0.keys_at.set("http://keys.example");
            let page = Browser::default().page("/");
            assert_eq!(site.outcome(&page).await, status.to_string());
            if status == 303 {
                site.log_in().await;
            }
        });
    }
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
        (
            format!(
                "{base}, public_url: \"https://a.example\", jwks: https://b.example/k, \
                 jwks_origin: https://b.example"
            ),
            "no effect beside `jwks`",
        ),
        (
            format!("{base}, public_url: \"https://a.example\", jwks_origin: b.example"),
            "no scheme and host",
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
