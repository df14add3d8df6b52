//! Logins of browsers, and what attackers make of them (RFC 9700, section 4; OpenID Connect Core
//! 1.0, section 16).

use access::jwt::{Algorithm, Refused};
use access::oidc::browser::Fetch;
use access::oidc::{
    Callback, Description, DescriptionProblem, Expected, IdTokenProblem, IdTokenRules,
    LOGIN_SECONDS, Limits, Login, LoginProblem, LogoutOf, LogoutTokenProblem, LogoutTokenRules,
    LogoutWritten, Session, SessionKey, Sessions, TokenAnswer, TokenProblem, local_target,
    with_parameters,
};
use access::sealer::Sealer;
use fastrand::Rng;
use serde_json::{Value, json};

use crate::issuer::{AUDIENCE, ISSUER, NOW, Signer, claims, issuer};

const RS256: Signer<'_> = Signer::Rsa(Algorithm::Rs256);

fn login() -> Login {
    Login::begin("/orders?page=2".to_owned(), NOW).unwrap()
}

fn finish(
    login: &Login,
    query: &str,
    names_issuer: bool,
    now: u64,
) -> Result<String, LoginProblem> {
    let callback = Callback::parse(query)?;
    let code = login.finish(&callback, (ISSUER, names_issuer), now);
    code.map(str::to_owned)
}

#[test]
fn an_answer_is_taken_for_the_login_that_this_browser_has_begun() {
    let (login, other) = (login(), login());
    let state = login.state();
    let good = format!("code=c%2B1&state={state}&session_state=x");
    assert_eq!(finish(&login, &good, false, NOW), Ok("c+1".to_owned()));
    let named = format!("{good}&iss=https%3A%2F%2Fid.example");
    assert_eq!(finish(&login, &named, true, NOW), Ok("c+1".to_owned()));
    let evil = format!("{good}&iss=https%3A%2F%2Fevil.example");
    let attacks = [
        // Another browser's answer (RFC 9700, 4.7), none, an empty one, a prefix.
        (
            format!("code=c&state={}", other.state()),
            LoginProblem::State,
        ),
        ("code=c".to_owned(), LoginProblem::Malformed),
        ("code=c&state=".to_owned(), LoginProblem::State),
        (
            format!("code=c&state={}", &state[..20]),
            LoginProblem::State,
        ),
        // Mixed-up providers (RFC 9700, 4.4).
        (evil.clone(), LoginProblem::Issuer),
        (format!("{good}&iss="), LoginProblem::Issuer),
        (
            format!("{good}&iss=https%3A%2F%2Fid.example%2F"),
            LoginProblem::Issuer,
        ),
        // Two of one parameter (RFC 6749, 3.1).
        (format!("{good}&code=d"), LoginProblem::Malformed),
        (format!("{good}&state={state}"), LoginProblem::Malformed),
        (format!("{good}&st%61te=x"), LoginProblem::Malformed),
        // Neither a code nor an error, or both.
        (format!("state={state}"), LoginProblem::Malformed),
        (format!("code=&state={state}"), LoginProblem::Malformed),
        (
            format!("{good}&error=access_denied"),
            LoginProblem::Malformed,
        ),
        (
            format!("error=access_denied&state={state}"),
            LoginProblem::Refused,
        ),
        (
            format!("code={}&state={state}", "c".repeat(5000)),
            LoginProblem::Malformed,
        ),
        (format!("code=%ff&state={state}"), LoginProblem::Malformed),
    ];
    for (query, problem) in attacks {
        assert_eq!(finish(&login, &query, false, NOW), Err(problem), "{query}");
    }
    // A provider that names itself always does so.
    assert_eq!(finish(&login, &good, true, NOW), Err(LoginProblem::Issuer));
    // The error of another provider is no refusal of this one.
    let mixed = format!("error=access_denied&state={state}&iss=https%3A%2F%2Fevil.example");
    assert_eq!(
        finish(&login, &mixed, false, NOW),
        Err(LoginProblem::Issuer)
    );
    let late = NOW + LOGIN_SECONDS;
    assert!(finish(&login, &good, false, late - 1).is_ok());
    assert_eq!(finish(&login, &good, false, late), Err(LoginProblem::State));
}

#[test]
fn a_sealed_login_opens_unchanged_for_its_way_and_key_only() {
    let (sealer, other) = (Sealer::random().unwrap(), Sealer::random().unwrap());
    let login = login();
    let cookie = login.seal(&sealer, "staff").unwrap();
    assert!(cookie.len() < 4000, "{}", cookie.len());
    let opened = Login::open(&sealer, "staff", &cookie).unwrap();
    assert_eq!(opened.verifier(), login.verifier());
    assert_eq!(opened.return_to(), "/orders?page=2");
    assert!(!cookie.contains(login.state()));
    assert!(
        Login::open(&sealer, "guests", &cookie).is_none(),
        "another way's"
    );
    assert!(
        Login::open(&other, "staff", &cookie).is_none(),
        "another key"
    );
    for at in 0..cookie.len() {
        let mut bytes = cookie.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let tampered = String::from_utf8(bytes).unwrap();
        assert!(
            Login::open(&sealer, "staff", &tampered).is_none(),
            "at {at}"
        );
    }
    for cut in [
        "",
        "A",
        &cookie[..20],
        &format!("{cookie}A"),
        "{}",
        "\u{e9}",
    ] {
        assert!(Login::open(&sealer, "staff", cut).is_none(), "{cut}");
    }
}

#[test]
fn the_challenge_is_that_of_rfc_7636() {
    // Appendix B.
    let text = r#"{"state":"s","nonce":"n","return_to":"/","expires":1,
        "verifier":"dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"}"#;
    let login: Login = serde_json::from_str(text).unwrap();
    assert_eq!(
        login.challenge(),
        "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    );
    assert!(self::login().verifier().len() >= 43);
}

#[test]
fn a_login_returns_to_this_host_only() {
    for (path, query, target) in [
        ("/", None, "/"),
        ("/a/b", Some("c=d&e=%2F"), "/a/b?c=d&e=%2F"),
        ("/a//b", None, "/a//b"),
        ("//evil.example", None, "/"),
        ("//evil.example/", Some("a"), "/"),
        ("/\\evil.example", None, "/"),
        ("/a\\b", None, "/"),
        ("/\t/evil.example", None, "/"),
        ("/\r\nSet-Cookie: a=b", None, "/"),
        ("https://evil.example", None, "/"),
        ("evil", None, "/"),
        ("", None, "/"),
        ("*", None, "/"),
        ("/\u{e9}", None, "/"),
    ] {
        assert_eq!(local_target(path, query), target, "{path}");
    }
    assert_eq!(local_target(&format!("/{}", "a".repeat(3000)), None), "/");
    let url = with_parameters(
        "https://id.example/a?b=c#d",
        &[("e", "f g&h"), ("i", "\u{e9}/")],
    );
    assert_eq!(url, "https://id.example/a?b=c&e=f%20g%26h&i=%C3%A9%2F");
}

fn check(
    changes: Value,
    header: Value,
    signer: Signer<'_>,
    expected: Expected<'_>,
) -> Result<String, IdTokenProblem> {
    let mut all = json!({ "alg": "RS256", "kid": "rsa" });
    for (name, value) in header.as_object().unwrap() {
        all[name] = value.clone();
    }
    let token = issuer().token(&all.to_string(), &claims(changes), signer);
    let rules = IdTokenRules::new(ISSUER, AUDIENCE, 30);
    let checked = rules.check(&token, &issuer().keys(), expected, NOW);
    checked.map(|it| format!("{} {:?}", it.subject, it.session))
}

fn with_nonce(nonce: &str) -> Expected<'_> {
    Expected {
        nonce,
        access_token: Some("jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y"),
        ..Expected::default()
    }
}

#[test]
fn an_id_token_is_of_this_login_at_this_provider_for_this_client() {
    let ok = |changes: Value| {
        let outcome = check(changes.clone(), json!({}), RS256, with_nonce("n-1"));
        assert!(outcome.is_ok(), "{changes}: {outcome:?}");
    };
    ok(json!({ "nonce": "n-1" }));
    ok(json!({ "nonce": "n-1", "aud": [AUDIENCE] }));
    ok(json!({ "nonce": "n-1", "aud": [AUDIENCE, "other"], "azp": AUDIENCE }));
    // The example of section 3.1.3.6's hash (OpenID Connect Core 1.0, appendix A.3).
    ok(json!({ "nonce": "n-1", "at_hash": "77QmUPtjPfzWtF2AnpK9RQ" }));
    let typed = check(
        json!({ "nonce": "n-1" }),
        json!({ "typ": "JWT" }),
        RS256,
        with_nonce("n-1"),
    );
    assert_eq!(typed.unwrap(), "alice None");
    let token = IdTokenProblem::Token;
    let attacks = [
        (json!({ "nonce": "n-2" }), IdTokenProblem::Nonce),
        (json!({}), IdTokenProblem::Nonce),
        (json!({ "nonce": "" }), IdTokenProblem::Nonce),
        (json!({ "nonce": 1 }), IdTokenProblem::Nonce),
        (
            json!({ "nonce": "n-1", "aud": "other" }),
            token(Refused::Audience),
        ),
        (
            json!({ "nonce": "n-1", "aud": null }),
            token(Refused::Audience),
        ),
        (
            json!({ "nonce": "n-1", "aud": [AUDIENCE, "other"] }),
            IdTokenProblem::AuthorizedParty,
        ),
        (
            json!({ "nonce": "n-1", "azp": "other" }),
            IdTokenProblem::AuthorizedParty,
        ),
        (
            json!({ "nonce": "n-1", "iss": "https://evil.example" }),
            token(Refused::Issuer),
        ),
        (
            json!({ "nonce": "n-1", "exp": NOW - 60 }),
            token(Refused::Expired),
        ),
        (
            json!({ "nonce": "n-1", "exp": null }),
            token(Refused::NoExpiry),
        ),
        (
            json!({ "nonce": "n-1", "iat": null }),
            IdTokenProblem::IssuedAt,
        ),
        (
            json!({ "nonce": "n-1", "iat": NOW + 600 }),
            token(Refused::NotYet),
        ),
        (
            json!({ "nonce": "n-1", "sub": null }),
            IdTokenProblem::Subject,
        ),
        (
            json!({ "nonce": "n-1", "sub": "" }),
            IdTokenProblem::Subject,
        ),
        (
            json!({ "nonce": "n-1", "sub": "a".repeat(256) }),
            IdTokenProblem::Subject,
        ),
        (
            json!({ "nonce": "n-1", "at_hash": "77QmUPtjPfzWtF2AnpK9RR" }),
            IdTokenProblem::AccessToken,
        ),
        (
            json!({ "nonce": "n-1", "at_hash": 7 }),
            IdTokenProblem::AccessToken,
        ),
        (
            json!({ "nonce": "n-1", "events": {} }),
            token(Refused::Type),
        ),
        (
            json!({ "nonce": "n-1", "cnf": { "jkt": "x" } }),
            token(Refused::Confirmation),
        ),
    ];
    for (changes, problem) in attacks {
        let outcome = check(changes.clone(), json!({}), RS256, with_nonce("n-1"));
        assert_eq!(outcome, Err(problem), "{changes}");
    }
    let nonce = json!({ "nonce": "n-1" });
    let attacks = [
        (json!({ "typ": "at+jwt" }), RS256, Refused::Type),
        (json!({ "typ": "logout+jwt" }), RS256, Refused::Type),
        (
            json!({ "alg": "HS256" }),
            Signer::Hmac(b"client secret"),
            Refused::Algorithm,
        ),
        (
            json!({ "alg": "none" }),
            Signer::Bytes(b""),
            Refused::Algorithm,
        ),
        (json!({}), Signer::Bytes(b"x"), Refused::Signature),
        (json!({ "kid": "new" }), RS256, Refused::UnknownKey),
    ];
    for (header, signer, refused) in attacks {
        let outcome = check(nonce.clone(), header.clone(), signer, with_nonce("n-1"));
        assert_eq!(outcome, Err(token(refused)), "{header}");
    }
}

#[test]
fn a_refreshed_id_token_is_for_the_same_person() {
    let refreshed = |subject| Expected {
        nonce: "n-1",
        is_refreshed: true,
        subject: Some(subject),
        access_token: None,
    };
    let plain = |changes, subject| check(changes, json!({}), RS256, refreshed(subject));
    assert!(plain(json!({}), "alice").is_ok());
    assert!(plain(json!({ "nonce": "n-1" }), "alice").is_ok());
    assert_eq!(
        plain(json!({ "nonce": "n-2" }), "alice"),
        Err(IdTokenProblem::Nonce)
    );
    assert_eq!(plain(json!({}), "bob"), Err(IdTokenProblem::Subject));
}

#[test]
fn a_logout_token_says_whose_sessions_have_ended() {
    const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";
    let rules = LogoutTokenRules::new(ISSUER, AUDIENCE, 30);
    let check = |changes: Value, kind: Option<&str>| {
        let mut all = json!({ "events": { EVENT: {} }, "jti": "1", "sid": "s" });
        for (name, value) in changes.as_object().unwrap() {
            all[name] = value.clone();
        }
        let mut header = json!({ "alg": "RS256", "kid": "rsa" });
        if let Some(kind) = kind {
            header["typ"] = kind.into();
        }
        let token = issuer().token(&header.to_string(), &claims(all), RS256);
        rules.check(token.as_bytes(), &issuer().keys(), NOW)
    };
    let both = check(json!({}), Some("logout+jwt")).unwrap();
    assert_eq!(
        (both.subject.as_deref(), both.session.as_deref()),
        (Some("alice"), Some("s"))
    );
    assert!(check(json!({ "sub": null }), Some("JWT")).is_ok());
    assert!(check(json!({ "sid": null }), None).is_ok());
    let token = LogoutTokenProblem::Token;
    let attacks = [
        (json!({ "events": null }), LogoutTokenProblem::Event),
        (json!({ "events": [] }), LogoutTokenProblem::Event),
        (
            json!({ "events": { EVENT: true } }),
            LogoutTokenProblem::Event,
        ),
        (
            json!({ "events": { "http://other": {} } }),
            LogoutTokenProblem::Event,
        ),
        (json!({ "nonce": "n" }), LogoutTokenProblem::Nonce),
        (
            json!({ "sub": null, "sid": null }),
            LogoutTokenProblem::Nobody,
        ),
        (json!({ "jti": null }), LogoutTokenProblem::Id),
        (json!({ "jti": "" }), LogoutTokenProblem::Id),
        (json!({ "iat": null }), LogoutTokenProblem::IssuedAt),
        (json!({ "iat": NOW - 3600 }), LogoutTokenProblem::IssuedAt),
        (json!({ "aud": "other" }), token(Refused::Audience)),
        (
            json!({ "iss": "https://evil.example" }),
            token(Refused::Issuer),
        ),
        (json!({ "exp": NOW - 60 }), token(Refused::Expired)),
    ];
    for (changes, problem) in attacks {
        assert_eq!(
            check(changes.clone(), Some("logout+jwt")),
            Err(problem),
            "{changes}"
        );
    }
    assert_eq!(check(json!({}), Some("at+jwt")), Err(token(Refused::Type)));
}

#[test]
fn only_people_who_wait_for_a_page_are_sent_to_log_in() {
    let page = Fetch {
        accept: Some(b"text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"),
        mode: Some(b"navigate"),
        destination: Some(b"document"),
        site: Some(b"none"),
        ..Fetch::default()
    };
    assert!(page.is_navigation(true));
    assert!(
        Fetch {
            mode: None,
            destination: None,
            ..page
        }
        .is_navigation(true),
        "old browsers"
    );
    for other in [
        Fetch {
            mode: Some(b"cors"),
            ..page
        },
        Fetch {
            mode: Some(b"no-cors"),
            ..page
        },
        Fetch {
            destination: Some(b"iframe"),
            ..page
        },
        Fetch {
            accept: Some(b"*/*"),
            ..page
        },
        Fetch {
            accept: Some(b"application/json, text/html2"),
            ..page
        },
        Fetch {
            accept: None,
            ..page
        },
        Fetch {
            upgrade: Some(b"websocket"),
            ..page
        },
    ] {
        assert!(!other.is_navigation(true), "{other:?}");
    }
    assert!(!page.is_navigation(false), "a form");
}

#[test]
fn a_session_acts_for_pages_of_this_origin_only() {
    const OWN: &str = "https://shop.example";
    let of = |site: Option<&'static str>, origin: Option<&'static str>| Fetch {
        site: site.map(str::as_bytes),
        origin: origin.map(str::as_bytes),
        ..Fetch::default()
    };
    for (site, origin, is_own) in [
        (Some("same-origin"), Some(OWN), true),
        (Some("same-origin"), None, true),
        (Some("none"), None, true),
        (None, Some(OWN), true),
        (None, None, false),
        (Some("cross-site"), Some(OWN), false),
        (Some("same-site"), Some("https://evil.shop.example"), false),
        (Some("same-origin"), Some("https://evil.example"), false),
        (Some("none"), Some("null"), false),
        (None, Some("null"), false),
        (None, Some("https://shop.example.evil.example"), false),
        (None, Some("http://shop.example"), false),
        (Some(""), Some(OWN), false),
        (Some("same-origin, cross-site"), Some(OWN), false),
    ] {
        assert_eq!(
            of(site, origin).is_same_origin(OWN),
            is_own,
            "{site:?} {origin:?}"
        );
    }
    let plain = Fetch::default();
    let socket = Fetch {
        upgrade: Some(b"websocket"),
        ..plain
    };
    assert!(socket.may_change("GET") && plain.may_change("POST") && plain.may_change("PROPFIND"));
    assert!(!plain.may_change("GET") && !plain.may_change("HEAD") && !plain.may_change("OPTIONS"));
}

#[test]
fn a_provider_describes_itself_and_no_other() {
    let text = |changes: Value| {
        let mut all = json!({ "issuer": ISSUER, "authorization_endpoint": "https://id.example/a",
            "token_endpoint": "https://id.example/t",
            "end_session_endpoint": "https://id.example/e",
            "authorization_response_iss_parameter_supported": true });
        for (name, value) in changes.as_object().unwrap() {
            all[name] = value.clone();
        }
        Description::parse(all.to_string().as_bytes(), ISSUER)
    };
    let good = text(json!({})).unwrap();
    assert!(good.names_issuer);
    assert_eq!(good.end_session.as_deref(), Some("https://id.example/e"));
    let endpoint = DescriptionProblem::Endpoint;
    for (changes, problem) in [
        (
            json!({ "issuer": "https://id.example/" }),
            DescriptionProblem::Issuer,
        ),
        (
            json!({ "token_endpoint": null }),
            endpoint("token_endpoint"),
        ),
        (
            json!({ "authorization_endpoint": "http://id.example/a" }),
            endpoint("authorization_endpoint"),
        ),
        (
            json!({ "authorization_endpoint": "javascript:alert(1)" }),
            endpoint("authorization_endpoint"),
        ),
        (
            json!({ "end_session_endpoint": "https://id.example/\r\nx" }),
            endpoint("end_session_endpoint"),
        ),
    ] {
        assert_eq!(text(changes.clone()), Err(problem), "{changes}");
    }
}

#[test]
fn answers_of_the_token_endpoint_are_read_strictly() {
    let good = br#"{"access_token":"a","id_token":"i","expires_in":"300","scope":"openid x"}"#;
    let good = TokenAnswer::read(200, good).unwrap();
    assert_eq!(
        (good.lifetime, good.scope.as_deref()),
        (Some(300), Some("openid x"))
    );
    for (status, body, problem) in [
        (400, r#"{"error":"invalid_grant"}"#, TokenProblem::Grant),
        (
            401,
            r#"{"error":"invalid_client"}"#,
            TokenProblem::Error("invalid_client".to_owned()),
        ),
        (
            200,
            r#"{"error":"invalid_grant","access_token":"a"}"#,
            TokenProblem::Grant,
        ),
        (200, r#"{"id_token":"i"}"#, TokenProblem::Malformed),
        (
            200,
            r#"{"access_token":"a","access_token":"b"}"#,
            TokenProblem::Malformed,
        ),
        (500, r#"{"access_token":"a"}"#, TokenProblem::Malformed),
        (200, "access_token=a", TokenProblem::Malformed),
    ] {
        assert_eq!(
            TokenAnswer::read(status, body.as_bytes()).unwrap_err(),
            problem,
            "{body}"
        );
    }
}

fn session(subject: &str, name: Option<&str>, ends: u64) -> std::sync::Arc<Session> {
    std::sync::Arc::new(Session {
        claims: json!({ "sub": subject }).as_object().unwrap().clone(),
        subject: subject.to_owned(),
        provider_session: name.map(str::to_owned),
        id_token: "i".repeat(1000),
        nonce: "n".to_owned(),
        refresh_token: None,
        scopes: Vec::new(),
        began: NOW,
        ends,
        renew_at: None,
        stale_at: None,
    })
}

/// Puts a session in that nobody logs out meanwhile.
fn put<T: Clone>(
    sessions: &mut Sessions<T>,
    one: (SessionKey, std::sync::Arc<Session>, T),
    at: u64,
    limits: Limits,
) -> Vec<SessionKey> {
    let read = sessions.begin_read();
    sessions.put(&read, one, (at, at), limits).unwrap()
}

/// Logs sessions out, and gives the keys of those that were there.
fn log_out<T: Clone>(sessions: &mut Sessions<T>, of: LogoutOf) -> Vec<SessionKey> {
    let (ended, logout) = sessions.log_out(of, NOW);
    sessions.end_logout(&logout, LogoutWritten::Stored);
    ended.into_iter().map(|(key, _)| key).collect()
}

fn party(subject: Option<&str>, session: Option<&str>) -> LogoutOf {
    LogoutOf::Party {
        subject: subject.map(str::to_owned),
        session: session.map(str::to_owned),
    }
}

#[test]
fn sessions_end_by_time_by_logout_and_when_there_are_too_many() {
    let limits = Limits {
        idle: 100,
        count_max: 3,
        bytes_max: 1 << 20,
    };
    let mut sessions = Sessions::default();
    let key = |name: &str| Session::key(name.as_bytes());
    let put_one = |sessions: &mut Sessions<()>, name: &str, who: &str, at: u64| {
        let session = session(who, Some(name), NOW + 250);
        put(sessions, (key(name), session, ()), at, limits)
    };
    put_one(&mut sessions, "a", "ann", NOW);
    assert!(sessions.get(&key("a"), NOW + 99, limits).is_some());
    assert!(
        sessions.get(&key("a"), NOW + 198, limits).is_some(),
        "its use counts"
    );
    assert!(
        sessions.get(&key("a"), NOW + 250, limits).is_none(),
        "the end of its life"
    );
    assert!(sessions.is_empty() && sessions.bytes() == 0);
    put_one(&mut sessions, "b", "bob", NOW);
    assert!(
        sessions.get(&key("b"), NOW + 100, limits).is_none(),
        "it stood still"
    );
    put_one(&mut sessions, "c", "ann", NOW);
    put_one(&mut sessions, "d", "ann", NOW + 20);
    put_one(&mut sessions, "e", "bob", NOW + 20);
    assert!(sessions.get(&key("c"), NOW + 30, limits).is_some());
    assert_eq!(
        put_one(&mut sessions, "f", "eve", NOW + 40),
        [*[key("d"), key("e")].iter().min().unwrap()]
    );
    assert_eq!(sessions.len(), 3);
    assert!(
        log_out(&mut sessions, party(Some("ann"), Some("f"))).is_empty(),
        "both are meant"
    );
    assert_eq!(log_out(&mut sessions, party(None, Some("f"))), [key("f")]);
    assert!(log_out(&mut sessions, party(None, None)).is_empty());
    assert!(log_out(&mut sessions, party(Some("ann"), None)).contains(&key("c")));
    let read = sessions.begin_read();
    assert!(
        !sessions.renew(&read, (&key("c"), session("ann", None, NOW + 9), ())),
        "it has ended"
    );
    let small = Limits {
        bytes_max: 3000,
        ..limits
    };
    let mut sessions = Sessions::default();
    for name in ["a", "b", "c"] {
        let one = (key(name), session("ann", None, NOW + 250), ());
        put(&mut sessions, one, NOW, small);
    }
    assert_eq!(sessions.len(), 1);
    assert!(sessions.bytes() <= 3000);
}

#[test]
fn a_session_that_is_logged_out_while_it_is_read_stays_out() {
    let limits = Limits {
        idle: 100,
        count_max: 3,
        bytes_max: 1 << 20,
    };
    let key = Session::key(b"a");
    let one = || (key, session("ann", Some("there"), NOW + 250), ());
    for of in [
        LogoutOf::One(key),
        party(Some("ann"), None),
        party(None, Some("there")),
        party(Some("ann"), Some("there")),
    ] {
        for is_stored_before in [false, true] {
            let mut sessions = Sessions::default();
            let read = sessions.begin_read();
            let (ended, logout) = sessions.log_out(of.clone(), NOW);
            assert!(ended.is_empty());
            if is_stored_before {
                sessions.end_logout(&logout, LogoutWritten::Stored);
            }
            let put = sessions.put(&read, one(), (NOW, NOW), limits);
            assert_eq!(put, None, "{of:?}");
            assert!(sessions.get(&key, NOW, limits).is_none());
            // Nothing of it is left for the next one.
            sessions.end_logout(&logout, LogoutWritten::Stored);
            let read = sessions.begin_read();
            assert!(sessions.put(&read, one(), (NOW, NOW), limits).is_some());
        }
        // Whoever begins to read after it has begun may see it or not.
        let mut sessions = Sessions::default();
        let (_, logout) = sessions.log_out(of.clone(), NOW);
        let read = sessions.begin_read();
        sessions.end_logout(&logout, LogoutWritten::Stored);
        assert_eq!(sessions.put(&read, one(), (NOW, NOW), limits), None);
        // One that could not be written holds on.
        let (_, logout) = sessions.log_out(of, NOW);
        let until = NOW + 250;
        sessions.end_logout(&logout, LogoutWritten::Failed { until });
        let read = sessions.begin_read();
        assert_eq!(sessions.put(&read, one(), (NOW, NOW), limits), None);
    }
    // Others are none of its business.
    let mut sessions = Sessions::default();
    let read = sessions.begin_read();
    let (_, _logout) = sessions.log_out(party(Some("bob"), None), NOW);
    let (_, _logout) = sessions.log_out(party(Some("ann"), Some("elsewhere")), NOW);
    assert!(sessions.put(&read, one(), (NOW, NOW), limits).is_some());
}

/// What the table of sessions should have, by looking at all of them each time.
#[derive(Clone)]
struct Known {
    name: u64,
    subject: String,
    seen: u64,
    ends: u64,
}

#[test]
fn the_session_table_agrees_with_a_plain_list() {
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let limits = Limits {
            idle: 40,
            count_max: 8,
            bytes_max: 1 << 30,
        };
        let (mut sessions, mut list) = (Sessions::default(), Vec::<Known>::new());
        let mut now = NOW;
        for _ in 0..400 {
            now += random.u64(..12);
            let name = random.u64(..12);
            let key = Session::key(&name.to_be_bytes());
            let subject = format!("user {}", name % 3);
            match random.u8(..6) {
                0 | 1 => {
                    let ends = now + random.u64(1..=200);
                    let whole = session(&subject, Some(&name.to_string()), ends);
                    let gone = put(&mut sessions, (key, whole, name), now, limits);
                    list.retain(|it| {
                        it.name != name && !gone.contains(&Session::key(&it.name.to_be_bytes()))
                    });
                    list.push(Known {
                        name,
                        subject: subject.clone(),
                        seen: now,
                        ends,
                    });
                }
                2 => {
                    let ended = log_out(&mut sessions, party(Some(&subject), None));
                    let count = list.len();
                    list.retain(|it| it.subject != subject);
                    assert_eq!(ended.len(), count - list.len(), "seed {seed}");
                }
                3 => {
                    let is_there = list.iter().any(|it| it.name == name);
                    let ended = log_out(&mut sessions, LogoutOf::One(key));
                    assert_eq!(!ended.is_empty(), is_there, "seed {seed}");
                    list.retain(|it| it.name != name);
                }
                _ => {
                    let found = sessions.get(&key, now, limits);
                    let at = list.iter().position(|it| it.name == name);
                    let good = at.filter(|at| {
                        let known = &list[*at];
                        now < known.ends && now < known.seen + limits.idle
                    });
                    assert_eq!(
                        found.as_ref().map(|it| it.made),
                        good.map(|_| name),
                        "seed {seed}"
                    );
                    match (good, found) {
                        (Some(at), Some(found)) if found.is_noted => list[at].seen = now,
                        (Some(_), _) => {}
                        (None, _) => list.retain(|it| it.name != name),
                    }
                }
            }
            assert_eq!(sessions.len(), list.len(), "seed {seed}");
            let mut of_subject: Vec<_> = list
                .iter()
                .filter(|it| it.subject == subject)
                .map(|it| (it.seen, Session::key(&it.name.to_be_bytes())))
                .collect();
            of_subject.sort_unstable();
            let oldest = of_subject.first().map(|it| it.1);
            let expected = oldest.filter(|_| of_subject.len() > 2);
            assert_eq!(sessions.surplus(&subject, 2), expected, "seed {seed}");
            assert!(
                sessions.len() <= limits.count_max && (list.is_empty() == (sessions.bytes() == 0))
            );
        }
    }
}
