//! Tokens that we sign are taken by those who verify them.

use access::jwt::{Algorithm, Audience, Rules, Signer, SignerProblem, unique_id, verify};
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
