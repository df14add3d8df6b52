//! Tokens as back ends read them, when they are signed anew, and settings that are refused.

use std::path::PathBuf;

use access::jwt::{Algorithm, Audience, KeyRing, KeySet, Rules, verify};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use component::state::States;
use config::Sources;
use serde_json::json;

use super::*;
use crate::testing::{START, down, run};

/// Reads `identity`, or tells every problem.
fn read(identity: &str, states: &States) -> Result<IdentityIssuer, Vec<String>> {
    let text = format!("auth: {{}}\nidentity: {identity}\n");
    let (mut sources, mut report) = (Sources::default(), Report::default());
    let source = sources.add("test.yaml", text.as_bytes(), &mut report);
    let node = config::parse(&sources, source.unwrap(), &mut report).remove(0);
    let surroundings = Surroundings {
        files: &|_, name| Err(format!("{name} is not there")),
        folder: &|_| PathBuf::new(),
        states,
        dead_letters: component::testing::no_dead_letters,
    };
    let nodes = AccessNodes {
        ways: node.get("auth"),
        deny: None,
        identity: node.get("identity"),
    };
    let read = IdentityIssuer::read(nodes, &surroundings, &mut report);
    let problems = report.diagnostics().iter();
    read.ok_or_else(|| problems.map(|it| it.message().to_owned()).collect())
}

/// The same with keys.
fn issuer(identity: &str) -> IdentityIssuer {
    let states = States::default();
    let issuer = read(identity, &states).unwrap();
    let keys = IdentityKeys::of(&states);
    assert!(keys.is_needed());
    keys.set(KeyRing::random(START).unwrap());
    assert!(!keys.is_needed());
    issuer
}

fn caller(id: &str) -> Caller {
    let claims = expr::json::parse(
        &br#"{"email":"ann@example","n":[1,{"a":null}],"other":1}"#[..].into(),
        10,
    );
    let mut caller = Caller::new(&"staff".into(), id, claims.unwrap());
    caller.scopes = vec!["read".to_owned()];
    caller.plan = Some("gold".into());
    caller
}

fn claims(token: &str) -> Json {
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&Base64UrlUnpadded::decode_vec(part).unwrap()).unwrap()
}

#[test]
fn a_token_says_what_is_known_and_chosen() {
    let issuer = issuer("{ issuer: me, audience: orders, claims: [email, n, missing], life: 30s }");
    let identity = issuer.for_audience(None).unwrap();
    let token = identity.token(&caller("ann"), START).unwrap();
    assert_eq!(
        claims(&token),
        json!({
            "iss": "me", "aud": "orders", "sub": "ann", "iat": START, "exp": START + 30,
            "way": "staff", "scopes": ["read"], "plan": "gold",
            "claims": { "email": "ann@example", "n": [1, { "a": null }] }
        })
    );
    let shown = format!("{identity:?}");
    assert!(
        !shown.contains("PRIVATE") && shown.contains("orders"),
        "{shown}"
    );
    run(
        |_| (Duration::ZERO, down()),
        move |worker| async move {
            let (address, page) = issuer.page();
            assert_eq!((address, page.path.to_string().as_str()), (None, PATH));
            let request = Request::of_source("GET", Headers::new(), message::Body::Empty);
            let served = page.handler.handle(request, &worker).await.unwrap();
            let Outcome::Reply(reply) = served else {
                panic!("no reply");
            };
            let (keys, _) = KeySet::parse(reply.body.as_bytes(), Algorithm::Rs256).unwrap();
            let audience = Audience::OneOf(vec!["orders".to_owned()]);
            let rules = Rules::new(vec!["me".to_owned()], audience);
            assert!(verify(token.as_bytes(), &keys, &rules, START).is_ok());
        },
    );
}

#[test]
fn tokens_are_shared_for_a_quarter_of_their_life() {
    let issuer = issuer("{ audience: orders }");
    let identity = issuer.for_audience(None).unwrap();
    let (ann, bob) = (caller("ann"), caller("bob"));
    let first = identity.token(&ann, START).unwrap();
    assert_eq!(identity.token(&ann, START + 14).unwrap(), first);
    let same = issuer.for_audience(Some("orders")).unwrap();
    assert_eq!(same.token(&ann, START + 14).unwrap(), first);
    // Another request with the same credential, by a way that makes a caller for each.
    assert_eq!(identity.token(&caller("ann"), START + 14).unwrap(), first);
    let mut more = caller("ann");
    more.scopes.push("write".to_owned());
    assert_ne!(identity.token(&more, START + 14).unwrap(), first);
    assert_ne!(identity.token(&ann, START + 15).unwrap(), first);
    assert_ne!(identity.token(&bob, START).unwrap(), first);
    let other = issuer.for_audience(Some("billing")).unwrap();
    let other = other.token(&ann, START).unwrap();
    assert_eq!(claims(&other)["aud"], "billing");
}

#[test]
fn signed_tokens_are_remembered_in_two_generations() {
    let token = |name: &str, from| SignedToken {
        token: name.into(),
        from,
        until: from + 10,
    };
    let mut tokens = SignedTokens::default();
    for number in 0..SIGNED_MAX * 3 {
        let key = number.to_string();
        tokens.put(key.clone(), token(&key, 5));
        let all = tokens.newer.len() + tokens.older.len();
        assert!(all <= SIGNED_MAX * 2, "{all}");
    }
    let is_known = |number: usize, now| tokens.get(&number.to_string(), now).is_some();
    let all = (0..SIGNED_MAX * 3).map(|it| is_known(it, 5));
    let expected = (0..SIGNED_MAX * 3).map(|it| it >= SIGNED_MAX);
    assert!(all.eq(expected));
    let last = SIGNED_MAX * 3 - 1;
    assert_eq!(
        [4, 14, 15].map(|now| is_known(last, now)),
        [false, true, false]
    );
    // A newer token of the same caller is found before the older one.
    tokens.put(SIGNED_MAX.to_string(), token("new", 14));
    let found = tokens.get(&SIGNED_MAX.to_string(), 14).unwrap();
    assert_eq!(&*found.token, "new");
}

#[test]
fn a_token_is_good_no_longer_than_its_credential_but_for_five_seconds() {
    let issuer = issuer("{ audience: orders }");
    let identity = issuer.for_audience(None).unwrap();
    for (expires, expected) in [
        (START + 600, START + 60),
        (START + 20, START + 20),
        // It has expired since the caller was let in.
        (START - 10, START + 5),
    ] {
        let mut caller = caller("ann");
        caller.expires = Some(expires);
        let token = identity.token(&caller, START).unwrap();
        assert_eq!(claims(&token)["exp"], expected);
        // It is not handed out when it has expired.
        let again = identity.token(&caller, expected - 1).unwrap();
        assert!(claims(&again)["exp"].as_u64().unwrap() > expected - 1);
    }
}

#[test]
fn without_a_token_there_is_a_fault() {
    let large = issuer("{ audience: orders, claims: [email] }");
    let identity = large.for_audience(None).unwrap();
    let refused = |identity: &dyn Identity, caller: &Caller| {
        let fault = identity.token(caller, START).unwrap_err();
        (fault.kind, fault.status)
    };
    assert_eq!(refused(&*identity, &caller("")), (Kind::Forbidden, 403));
    for length in [4000, 100_000] {
        let email = expr::value::text("x".repeat(length));
        let claims = expr::value::object([("email".to_owned(), email)]);
        let caller = Caller::new(&"staff".into(), "ann", claims);
        assert_eq!(
            refused(&*identity, &caller),
            (Kind::Internal, 500),
            "{length}"
        );
    }
    let states = States::default();
    let keyless = read("{ audience: orders }", &states).unwrap();
    let identity = keyless.for_audience(None).unwrap();
    assert_eq!(
        refused(&*identity, &caller("ann")),
        (Kind::Unavailable, 503)
    );
    assert!(read("{}", &states).unwrap().for_audience(None).is_none());
}

#[test]
fn invalid_settings_are_reported() {
    let states = States::default();
    for (identity, expected) in [
        ("{ header: \"a b\" }", "`a b` cannot be the identity header"),
        ("{ header: X-Forwarded-For }", "`X-Forwarded-For` cannot be"),
        ("{ header: x_forwarded_for }", "`x_forwarded_for` cannot be"),
        ("{ header: User_Agent }", "`User_Agent` cannot be"),
        (
            "{ header: Sec-WebSocket-Key }",
            "`Sec-WebSocket-Key` cannot be",
        ),
        ("{ issuer: \"\" }", "this is empty"),
        (
            "{ claims: [\"a\\nb\"] }",
            "this is empty or has a control character",
        ),
        ("{ life: 9s }", "`life` is not from 10s to 10m"),
        ("{ keys: [] }", "`keys` names 0 files"),
        (
            "{ keys: [a.pem] }",
            "`a.pem` cannot be used: a.pem is not there",
        ),
        (
            "{ jwks: { path: /a/../b } }",
            "`/a/../b` is no path for a page",
        ),
        (
            "{ jwks: { listen: localhost } }",
            "`localhost` is no address to listen on",
        ),
    ] {
        let problems = read(identity, &states).err().unwrap();
        assert!(
            problems[0].starts_with(expected),
            "{identity}: {problems:?}"
        );
    }
    assert!(!IdentityKeys::of(&states).is_needed());
}
