//! Tokens that have been verified before.

use std::rc::Rc;

use access::jwt::{TokenCache, Verified, verify};
use serde_json::json;

use crate::attacks::rules;
use crate::issuer::{NOW, Signer, claims, issuer};

/// A verified token of this subject that lives so long.
fn token(subject: &str, seconds: u64) -> (String, Rc<Verified>) {
    let changes = json!({ "sub": subject, "exp": NOW + seconds });
    let token = issuer().token(
        r#"{"alg":"EdDSA","kid":"ed"}"#,
        &claims(changes),
        Signer::Ed,
    );
    let verified = verify(token.as_bytes(), &issuer().keys(), &rules(), NOW).unwrap();
    (token, Rc::new(verified))
}

fn subject(verified: &Verified) -> &str {
    verified.confirm(&[]).unwrap()["sub"].as_str().unwrap()
}

#[test]
fn a_token_is_found_whole_until_it_expires_or_keys_change() {
    let mut cache = TokenCache::new(100_000);
    let (alice, verified) = token("alice", 60);
    cache.put(alice.as_bytes(), 1, NOW, verified);
    let found = cache.get(alice.as_bytes(), 1, NOW).unwrap();
    assert_eq!(subject(&found), "alice");
    let end = found.expires();
    assert!(cache.get(alice.as_bytes(), 1, end - 1).is_some());
    assert!(cache.get(alice.as_bytes(), 1, end).is_none());
    for cut in 0..alice.len() {
        assert!(cache.get(&alice.as_bytes()[..cut], 1, NOW).is_none());
    }
    assert!(cache.get(alice.as_bytes(), 2, NOW).is_none());
    assert!(
        cache.get(alice.as_bytes(), 1, NOW).is_none(),
        "the key may be withdrawn"
    );
}

#[test]
fn it_has_a_bound_and_keeps_what_is_used() {
    let (used, verified) = token("used", 600);
    let room = used.len() * 10;
    let mut cache = TokenCache::new(room);
    cache.put(used.as_bytes(), 1, NOW, verified);
    for number in 0..50 {
        let (other, verified) = token(&format!("{number:04}"), 600);
        cache.put(other.as_bytes(), 1, NOW, verified);
        assert!(
            cache.get(used.as_bytes(), 1, NOW).is_some(),
            "after {number}"
        );
        assert!(cache.len() <= 10);
    }
    // All others came once: only the last of them are there.
    let (last, _) = token("0049", 600);
    assert!(cache.len() >= 8 && cache.get(last.as_bytes(), 1, NOW).is_some());
    cache.clear();
    assert!(cache.is_empty() && cache.get(used.as_bytes(), 1, NOW).is_none());
}

#[test]
fn what_does_not_fit_at_all_is_not_kept() {
    let (alice, verified) = token("alice", 60);
    let mut cache = TokenCache::new(alice.len() - 1);
    cache.put(alice.as_bytes(), 1, NOW, verified);
    assert!(cache.is_empty());
}
