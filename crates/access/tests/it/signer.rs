//! Tokens that we sign are taken by those who verify them.

use access::jwt::{
    Algorithm, Audience, KeyRing, KeySet, PublishedKey, ROTATION_SECONDS, Rules, Signer,
    SignerProblem, unique_id, verify,
};
use serde_json::{Map, Value, json};

use crate::issuer::{self, NOW, issuer};

fn claims() -> Map<String, Value> {
    let claims = json!({ "iss": "me", "aud": "https://id.example/token", "exp": NOW + 60 });
    claims.as_object().unwrap().clone()
}

#[test]
fn signed_tokens_verify_with_the_public_key() {
    let keys = issuer().keys();
    let (rs256, ps256) = (Algorithm::Rs256, Algorithm::Ps256);
    let rsa = issuer().pem(issuer::Signer::Rsa(rs256));
    let both = format!("{}{}", issuer::pem("CERTIFICATE", b"x"), issuer().ec_pem());
    for (pem, algorithm, key_id) in [
        (rsa.clone(), rs256, "rsa"),
        (issuer().pem(issuer::Signer::Ec), Algorithm::Es256, "ec"),
        (both, Algorithm::Es256, "ec"),
        (issuer().pem(issuer::Signer::Ed), Algorithm::EdDsa, "ed"),
    ] {
        let signer = Signer::from_pem(pem.as_bytes(), algorithm, Some(key_id)).unwrap();
        let token = signer.sign(&claims()).unwrap();
        let audience = Audience::OneOf(vec!["https://id.example/token".to_owned()]);
        let rules = Rules::new(vec!["me".to_owned()], audience);
        let verified = verify(token.as_bytes(), &keys, &rules, NOW);
        assert!(verified.is_ok(), "{algorithm:?}: {:?}", verified.err());
        assert!(format!("{signer:?}").contains(algorithm.name()));
    }
    // The issuer publishes the key for RS256 only, so that this is not verified here.
    let signer = Signer::from_pem(rsa.as_bytes(), ps256, None).unwrap();
    let token = signer.sign(&claims()).unwrap();
    assert_eq!(token.split('.').count(), 3);
}

#[test]
fn keys_that_cannot_sign_are_refused_with_the_reason() {
    let ec = issuer().ec_pem();
    let problem = |pem: &str, algorithm| Signer::from_pem(pem.as_bytes(), algorithm, None).err();
    let encrypted = issuer::pem("ENCRYPTED PRIVATE KEY", b"x");
    let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAA==\n-----END RSA PRIVATE KEY-----";
    for (pem, algorithm, expected) in [
        ("", Algorithm::Es256, SignerProblem::NoKey),
        (
            "-----BEGIN PRIVATE KEY",
            Algorithm::Es256,
            SignerProblem::NoKey,
        ),
        (
            &issuer::pem("CERTIFICATE", b"x"),
            Algorithm::Es256,
            SignerProblem::NoKey,
        ),
        (&encrypted, Algorithm::Rs256, SignerProblem::Encrypted),
        (old, Algorithm::Rs256, SignerProblem::Encrypted),
        (&ec, Algorithm::Rs256, SignerProblem::Unfit),
        (&ec, Algorithm::EdDsa, SignerProblem::Unfit),
        (&ec, Algorithm::Es512, SignerProblem::Algorithm),
        (&ec, Algorithm::Hs256, SignerProblem::Algorithm),
    ] {
        assert_eq!(
            problem(pem, algorithm),
            Some(expected),
            "{algorithm:?} {pem}"
        );
    }
}

#[test]
fn a_secret_signs_by_hs256_as_rfc_7515_does() {
    let signer = Signer::from_secret(b"k");
    let token = signer.sign(&claims()).unwrap();
    assert!(
        token.starts_with("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."),
        "{token}"
    );
    assert_ne!(unique_id(), unique_id());
}

fn rules() -> Rules {
    let audience = Audience::OneOf(vec!["https://id.example/token".to_owned()]);
    Rules::new(vec!["me".to_owned()], audience)
}

/// Whether a token is taken by whoever has these published keys.
fn is_taken(token: &str, published: &str) -> bool {
    let (keys, ignored) = KeySet::parse(published.as_bytes(), Algorithm::Rs256).unwrap();
    assert!(ignored.is_empty());
    verify(token.as_bytes(), &keys, &rules(), NOW).is_ok()
}

#[test]
fn a_published_key_verifies_what_it_has_signed() {
    let other = KeyRing::random(NOW).unwrap().key_set(NOW);
    for (pem, algorithm) in [
        (issuer().ec_pem(), "ES256"),
        (issuer().pem(issuer::Signer::Ec), "ES256"),
        (issuer().pem(issuer::Signer::Ed), "EdDSA"),
    ] {
        let key = PublishedKey::from_pem(pem.as_bytes()).unwrap();
        assert_eq!(key.jwk()["alg"], algorithm);
        assert_eq!(key.jwk()["kid"], key.id());
        assert!(!key.jwk().contains_key("d"));
        let again = PublishedKey::from_pem(pem.as_bytes()).unwrap();
        assert_eq!(key.id(), again.id());
        let token = key.sign(&claims()).unwrap();
        let published = access::jwt::key_set_text([key.jwk()]);
        assert!(is_taken(&token, &published), "{algorithm}");
        assert!(!is_taken(&token, &other), "{algorithm}");
    }
    let rsa = issuer().pem(issuer::Signer::Rsa(Algorithm::Rs256));
    let problem = PublishedKey::from_pem(rsa.as_bytes()).err();
    assert_eq!(problem, Some(SignerProblem::Unfit));
    let problem = PublishedKey::from_pem(b"").err();
    assert_eq!(problem, Some(SignerProblem::NoKey));
}

#[test]
fn the_thumbprint_is_that_of_the_standard() {
    // RFC 8037, appendices A.1 to A.3: the key in PKCS #8, as OpenSSL writes it.
    let mut der = vec![
        0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
    ];
    der.extend([
        0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c,
        0xc4, 0x44, 0x49, 0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae,
        0x7f, 0x60,
    ]);
    let key = PublishedKey::from_pem(issuer::pem("PRIVATE KEY", &der).as_bytes()).unwrap();
    assert_eq!(
        key.jwk()["x"],
        "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    );
    assert_eq!(key.id(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
}

#[test]
fn a_key_is_published_before_it_signs_and_for_a_while_afterwards() {
    let first = KeyRing::random(NOW).unwrap();
    let before = first.key_set(NOW);
    assert!(!first.is_due(NOW + ROTATION_SECONDS - 1) && first.is_due(NOW + ROTATION_SECONDS));
    let old = first.signing().sign(&claims()).unwrap();
    let rotation = NOW + ROTATION_SECONDS;
    let second = first.rotated(rotation).unwrap();
    assert!(!second.is_due(rotation));
    let new = second.signing().sign(&claims()).unwrap();
    // Who fetched the keys before the rotation knows the key that signs now.
    assert!(is_taken(&old, &before) && is_taken(&new, &before));
    assert!(is_taken(&old, &second.key_set(rotation + 3599)));
    let later = second.key_set(rotation + 3600);
    assert!(!is_taken(&old, &later) && is_taken(&new, &later));
    // The next one of the second rotation is published already.
    let third = second.rotated(rotation + ROTATION_SECONDS).unwrap();
    assert!(is_taken(&third.signing().sign(&claims()).unwrap(), &later));
}

#[test]
fn kept_keys_are_the_same_keys() {
    let ring = KeyRing::random(NOW).unwrap().rotated(NOW).unwrap();
    let bytes = ring.to_bytes();
    let again = KeyRing::from_bytes(&bytes).unwrap();
    assert_eq!(again.key_set(NOW), ring.key_set(NOW));
    assert!(is_taken(
        &again.signing().sign(&claims()).unwrap(),
        &ring.key_set(NOW)
    ));
    assert!(again.is_due(NOW + ROTATION_SECONDS) && !again.is_due(NOW));
    for broken in [&b""[..], b"{}", &bytes[..bytes.len() - 1]] {
        assert!(KeyRing::from_bytes(broken).is_none());
    }
    let shown = format!("{ring:?}");
    assert!(shown.contains(ring.signing().id()), "{shown}");
}
