//! Tokens that have been verified before.

use std::rc::Rc;
use std::sync::Arc;

use access::jwt::{Audience, KeySet, Refused, Rules, Snapshot, Verifier};
use serde_json::json;

use crate::attacks::rules;
use crate::issuer::{NOW, Signer, claims, issuer};

/// A token of this subject that lives so long.
fn token(subject: &str, seconds: u64) -> String {
    let changes = json!({ "sub": subject, "exp": NOW + seconds });
    let header = r#"{"alg":"EdDSA","kid":"ed"}"#;
    issuer().token(header, &claims(changes), Signer::Ed)
}

/// Who it is, and when the token expires.
type Subject = Rc<(String, u64)>;

/// Keeps of each token whose it is.
struct SubjectVerifier(Verifier<Subject>);

impl SubjectVerifier {
    fn new(rules: Rules, bytes: usize) -> Self {
        Self(Verifier::new(Arc::new(rules), bytes))
    }

    fn verify(&mut self, token: &[u8], keys: &Snapshot, now: u64) -> Result<Subject, Refused> {
        if let Some(known) = self.0.known(token, keys.generation(), now) {
            return Ok(known.into_value());
        }
        let verified = self.0.verify(token, keys, now, |verified| {
            let subject = verified.claims.text("sub").unwrap().to_owned();
            let payload = std::str::from_utf8(verified.payload).unwrap();
            assert!(payload.contains(&subject));
            Rc::new((subject, verified.expires))
        });
        verified.map(|known| known.into_value())
    }
}

fn verifier(bytes: usize) -> SubjectVerifier {
    SubjectVerifier::new(rules(), bytes)
}

#[test]
fn a_token_is_remembered_whole_until_it_expires() {
    let (mut verifier, keys) = (verifier(100_000), Snapshot::new(issuer().keys()));
    let alice = token("alice", 60);
    let verified = verifier.verify(alice.as_bytes(), &keys, NOW).unwrap();
    let (ref subject, end) = *verified;
    assert_eq!(subject, "alice");
    let again = verifier.verify(alice.as_bytes(), &keys, end - 1).unwrap();
    assert!(Rc::ptr_eq(&verified, &again));
    let late = verifier.verify(alice.as_bytes(), &keys, end);
    assert_eq!(late.err(), Some(Refused::Expired));
    for cut in 0..alice.len() {
        let part = verifier.verify(&alice.as_bytes()[..cut], &keys, NOW);
        assert!(part.is_err(), "{cut}");
    }
    assert_eq!(
        verifier.0.remembered(),
        1,
        "what is refused is not remembered"
    );
}

#[test]
fn a_key_that_is_withdrawn_takes_its_tokens_along() {
    let (mut verifier, keys) = (verifier(100_000), Snapshot::new(issuer().keys()));
    let alice = token("alice", 60);
    assert!(verifier.verify(alice.as_bytes(), &keys, NOW).is_ok());
    let mut all = issuer().keys().keys().to_vec();
    all.retain(|it| it.id() != Some("ed"));
    let without = all.iter().map(|it| (**it).clone());
    let newer = Snapshot::new(KeySet::of(without.collect()));
    let refused = verifier.verify(alice.as_bytes(), &newer, NOW);
    assert_eq!(refused.err(), Some(Refused::UnknownKey));
    // A request that began before judges by the old keys, and leaves nothing behind.
    assert!(verifier.verify(alice.as_bytes(), &keys, NOW).is_ok());
    assert_eq!(verifier.0.remembered(), 0);
    assert!(verifier.verify(alice.as_bytes(), &newer, NOW).is_err());
}

/// The rules of one way say nothing about another's tokens, whatever both remember.
#[test]
fn each_way_has_its_own_tokens() {
    let keys = Snapshot::new(issuer().keys());
    let other = Audience::OneOf(vec!["somebody else".to_owned()]);
    let others = Rules::new(vec![crate::issuer::ISSUER.to_owned()], other);
    let (mut ours, mut theirs) = (verifier(100_000), SubjectVerifier::new(others, 100_000));
    let alice = token("alice", 60);
    assert!(ours.verify(alice.as_bytes(), &keys, NOW).is_ok());
    let refused = theirs.verify(alice.as_bytes(), &keys, NOW);
    assert_eq!(refused.err(), Some(Refused::Audience));
}

#[test]
fn it_has_a_bound_and_keeps_what_is_used() {
    let keys = Snapshot::new(issuer().keys());
    let used = token("used", 600);
    let mut verifier = verifier(used.len() * 8 * 10);
    let first = verifier.verify(used.as_bytes(), &keys, NOW).unwrap();
    for number in 0..50 {
        let other = token(&format!("{number:04}"), 600);
        verifier.verify(other.as_bytes(), &keys, NOW).unwrap();
        let again = verifier.verify(used.as_bytes(), &keys, NOW).unwrap();
        assert!(Rc::ptr_eq(&first, &again), "after {number}");
        assert!(verifier.0.remembered() <= 10);
    }
    assert!(verifier.0.remembered() >= 8);
    verifier.0.forget();
    assert_eq!(verifier.0.remembered(), 0);
}

#[test]
fn what_does_not_fit_at_all_is_verified_each_time() {
    let keys = Snapshot::new(issuer().keys());
    let mut verifier = verifier(100);
    let alice = token("alice", 60);
    for _ in 0..2 {
        assert!(verifier.verify(alice.as_bytes(), &keys, NOW).is_ok());
        assert_eq!(verifier.0.remembered(), 0);
    }
}
