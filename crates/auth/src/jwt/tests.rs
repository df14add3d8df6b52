//! Whose keys are kept apart, and which tokens are known.

use std::time::Duration;

use access::jwt::Signer;
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
