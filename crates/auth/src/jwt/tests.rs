//! Whose keys are kept apart, and which tokens are known.

use std::time::Duration;

use access::jwt::Signer;
use component::access::RequestHead;
use component::state::States;
use serde_json::json;

use crate::testing::{START, door, down, request, run};

/// How many sets of keys these ways have together.
fn sets(ways: &[&str]) -> usize {
    let states = States::default();
    let doors = ways.iter().map(|way| {
        let yaml = format!("{way}\nauth: tokens\n");
        door(&yaml, &states).unwrap_or_else(|problems| panic!("{problems:?}"))
    });
    let _doors: Vec<_> = doors.collect();
    let measures = states.measures(std::time::Instant::now());
    let sets = measures.iter().filter(|(_, it)| it.name == "auth_keys");
    sets.count()
}

fn way(settings: &str) -> String {
    format!("ways: {{ tokens: {{ jwt: {{ audience: us, {settings} }} }} }}")
}

#[test]
fn keys_outlive_a_reload_that_does_not_change_whose_they_are() {
    let jwks = way("issuer: a, jwks: \"https://id.example/keys?app=1\", tls: { ca: ca.pem }");
    let moved = format!("# A line more.\n\n{jwks}");
    assert_eq!(sets(&[&jwks, &jwks, &moved]), 1);
    for other in [
        jwks.replace("app=1", "app=2"),
        jwks.replace("ca.pem", "other.pem"),
        jwks.replace("ca: ca.pem", "server_name: id"),
        jwks.replace("/keys", "/others"),
        jwks.replace("issuer: a", "issuer: a, algorithm: PS256"),
    ] {
        assert_eq!(sets(&[&jwks, &other]), 2, "{other}");
    }
    // Both descriptions are at one place, and each has to name its issuer.
    let discovery = way("issuer: https://id.example/realm");
    let other = way("issuer: https://id.example/realm/");
    assert_eq!(sets(&[&discovery, &other]), 2);
}

#[test]
fn a_token_that_some_worker_knows_is_taken_by_all_from_an_address_that_sends_wrong_ones() {
    const SECRET: &str = "a secret of the issuer that has more than 32 bytes";
    let yaml = way(&format!("issuer: id, secret: \"{SECRET}\"")) + "\nauth: tokens\n";
    let door = door(&yaml, &States::default()).unwrap();
    let token = |name: &str, secret: &str| {
        let claims = json!({ "iss": "id", "aud": "us", "sub": name, "exp": START + 600 });
        let signer = Signer::from_secret(secret.as_bytes());
        let token = signer.sign(claims.as_object().unwrap()).unwrap();
        request(&[("Authorization", &format!("Bearer {token}"))])
    };
    run(
        |_| (Duration::ZERO, down()),
        |first| async move {
            let known = token("ann", SECRET);
            assert_eq!(first.outcome(&*door, &known).await, "ann");
            for number in 0..25 {
                let forged = token(&number.to_string(), "another secret of more than 32 bytes");
                let outcome = first.outcome(&*door, &forged).await;
                assert_eq!(outcome, if number < 20 { "401" } else { "429" });
            }
            let second = first.beside();
            for worker in [&first, &second] {
                assert_eq!(worker.outcome(&*door, &known).await, "ann");
                // Whoever comes for the first time could be guessing.
                let unknown = token("bob", SECRET);
                assert_eq!(worker.outcome(&*door, &unknown).await, "429");
            }
        },
    );
}

#[test]
fn a_door_recalls_tokens_that_it_has_verified_and_nothing_else() {
    const SECRET: &str = "a secret of the issuer that has more than 32 bytes";
    let ways = way(&format!("issuer: id, secret: \"{SECRET}\""));
    let yaml = format!("{ways}\nauth: {{ any: [tokens], scopes: [read] }}\n");
    let door = door(&yaml, &States::default()).unwrap();
    let signer = Signer::from_secret(SECRET.as_bytes());
    let token = |name: &str, scope: &str| {
        let claims = json!({
            "iss": "id", "aud": "us", "sub": name, "scope": scope, "exp": START + 600
        });
        signer.sign(claims.as_object().unwrap()).unwrap()
    };
    let shown = |fields: &[&str]| {
        let fields = fields.iter().map(|it| ("Authorization", *it));
        request(&fields.collect::<Vec<_>>())
    };
    run(
        |_| (Duration::ZERO, down()),
        |worker| async move {
            let recalled = |request: &message::Request| {
                let judged = door.recall(RequestHead::of(request), &worker);
                judged.map(|it| it.map_err(|reply| reply.status))
            };
            let ann = format!("Bearer {}", token("ann", "read"));
            let bob = format!("bearer  {}", token("bob", "write"));
            for presented in [&ann, &bob] {
                assert!(
                    recalled(&shown(&[presented])).is_none(),
                    "it is not known yet"
                );
            }
            assert_eq!(worker.outcome(&*door, &shown(&[&ann])).await, "ann");
            assert_eq!(worker.outcome(&*door, &shown(&[&bob])).await, "403");
            let admitted = recalled(&shown(&[&ann])).unwrap().unwrap();
            assert_eq!(&*admitted.caller.id, "ann");
            assert_eq!(recalled(&shown(&[&bob])).unwrap().unwrap_err(), 403);
            // What a door has not seen is judged whole: no token, part of one, more than one.
            for (fields, status) in [
                (vec![], "401"),
                (vec!["Bearer "], "400"),
                (vec!["Bearer a b"], "400"),
                (vec![&ann[..ann.len() - 1]], "401"),
                (vec![&*format!("{ann} x")], "400"),
                (vec![&*format!("{ann}\u{e4}")], "400"),
                (vec![&*ann, &*ann], "400"),
                (vec![&*ann.replace("Bearer", "Basic")], "401"),
            ] {
                let request = shown(&fields);
                assert!(recalled(&request).is_none(), "{fields:?}");
                assert_eq!(worker.outcome(&*door, &request).await, status, "{fields:?}");
            }
            tokio::time::sleep(Duration::from_secs(700)).await;
            assert!(recalled(&shown(&[&ann])).is_none(), "it has expired");
            assert_eq!(worker.outcome(&*door, &shown(&[&ann])).await, "401");
        },
    );
}
