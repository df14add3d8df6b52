//! Whose keys are kept apart.

use component::state::States;

use crate::testing::door;

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
