//! Proofs of possession (RFC 9449).

use access::jwt::{Algorithm, BadProof, Presented, Proof, Refused, Target, verify_proof};
use access::jwt::{Audience, Rules, verify};
use access::signed_body::{Replay, Replays};
use serde_json::{Value, json};

use crate::issuer::{AUDIENCE, ISSUER, NOW, Signer, base64, claims, issuer};

const TARGET: Target<'static> = Target {
    method: "POST",
    scheme: "https",
    authority: "api.example",
    path: "/orders/a%2Fb",
};
const TOKEN: &str = "a-token";

fn sha256(text: &str) -> String {
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    base64(hash.as_ref())
}

fn changed(mut whole: Value, changes: &Value) -> String {
    let members = whole.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => members.remove(name),
            _ => members.insert(name.clone(), value.clone()),
        };
    }
    whole.to_string()
}

/// A proof that is as it should be, with some of its header and claims changed.
fn proof(header: &Value, body: &Value, signer: Signer<'_>) -> String {
    let whole = json!({ "typ": "dpop+jwt", "alg": "ES256", "jwk": issuer().ec_jwk() });
    let right = json!({ "jti": "1", "htm": "POST", "htu": "https://api.example/orders/a%2Fb",
        "iat": NOW, "ath": sha256(TOKEN) });
    issuer().token(&changed(whole, header), &changed(right, body), signer)
}

fn judge(proof: &str) -> Result<Proof, BadProof> {
    verify_proof(proof.as_bytes(), TOKEN.as_bytes(), &TARGET, NOW, 60)
}

fn with_header(changes: Value) -> Result<(), BadProof> {
    judge(&proof(&changes, &json!({}), Signer::Ec)).map(|_| ())
}

fn with_claims(changes: Value) -> Result<(), BadProof> {
    judge(&proof(&json!({}), &changes, Signer::Ec)).map(|_| ())
}

/// The request of RFC 9449, section 7.1, and the thumbprint of section 6.1.
#[test]
fn the_example_of_the_rfc_is_right() {
    let proof = "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6Ik\
        VDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZOXpDa0RscEJoRjQyVVFVZldWQVdCR\
        nMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JE\
        QSIsImNydiI6IlAtMjU2In19.eyJqdGkiOiJlMWozVl9iS2ljOC1MQUVCIiwiaHRtIj\
        oiR0VUIiwiaHR1IjoiaHR0cHM6Ly9yZXNvdXJjZS5leGFtcGxlLm9yZy9wcm90ZWN0Z\
        WRyZXNvdXJjZSIsImlhdCI6MTU2MjI2MjYxOCwiYXRoIjoiZlVIeU8ycjJaM0RaNTNF\
        c05yV0JiMHhXWG9hTnk1OUlpS0NBcWtzbVFFbyJ9.2oW9RP35yRqzhrtNP86L-Ey71E\
        OptxRimPPToA1plemAgR6pxHF8y6-yqyVnmcw6Fy1dqd-jfxSYoMxhAJpLjA";
    let token = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU";
    let target = Target {
        method: "GET",
        scheme: "https",
        authority: "resource.example.org",
        path: "/protectedresource",
    };
    let judge = |now| verify_proof(proof.as_bytes(), token.as_bytes(), &target, now, 60);
    let right = judge(1_562_262_618).unwrap();
    assert_eq!(
        base64(&right.key),
        "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
    );
    assert!(judge(1_562_262_678).is_ok());
    assert_eq!(judge(1_562_262_679), Err(BadProof::Time));
    assert_eq!(judge(1_562_262_557), Err(BadProof::Time));
}

#[test]
fn proofs_of_every_kind_of_key_are_taken() {
    for (algorithm, jwk, signer) in [
        ("ES256", issuer().ec_jwk(), Signer::Ec),
        ("EdDSA", issuer().ed_jwk(), Signer::Ed),
        ("RS256", issuer().rsa_jwk(), Signer::Rsa(Algorithm::Rs256)),
    ] {
        let header = json!({ "alg": algorithm, "jwk": jwk });
        let right = judge(&proof(&header, &json!({}), signer)).unwrap();
        assert!(right.identity.starts_with(&right.key) && right.identity.ends_with(b"1"));
    }
    // One that names no algorithm is used with that of the proof.
    let mut jwk = issuer().rsa_jwk();
    jwk.as_object_mut().unwrap().remove("alg");
    let header = json!({ "alg": "PS256", "jwk": jwk });
    let signer = Signer::Rsa(Algorithm::Ps256);
    assert!(judge(&proof(&header, &json!({}), signer)).is_ok());
}

#[test]
fn headers_that_are_none_of_a_proof_are_refused() {
    let secret = json!({ "kty": "oct", "k": base64(&[7; 32]) });
    let mut private = issuer().ec_jwk();
    private["d"] = json!(base64(&[1; 32]));
    let mut foreign = issuer().ec_jwk();
    foreign["x"] = foreign["y"].clone();
    for (changes, problem) in [
        (json!({ "typ": null }), BadProof::Type),
        (json!({ "typ": "jwt" }), BadProof::Type),
        (json!({ "alg": "none" }), BadProof::Algorithm),
        (json!({ "alg": null }), BadProof::Algorithm),
        (json!({ "alg": "ES384" }), BadProof::Algorithm),
        (json!({ "alg": "HS256" }), BadProof::Algorithm),
        (json!({ "alg": "RS256" }), BadProof::Algorithm),
        (json!({ "jwk": null }), BadProof::Key),
        (json!({ "jwk": "x" }), BadProof::Key),
        (json!({ "jwk": secret }), BadProof::Key),
        (json!({ "jwk": private }), BadProof::Key),
        (json!({ "jwk": foreign }), BadProof::Key),
        (json!({ "jwk": issuer().ed_jwk() }), BadProof::Algorithm),
        (json!({ "crit": ["x"] }), BadProof::Malformed),
    ] {
        assert_eq!(with_header(changes.clone()), Err(problem), "{changes}");
    }
    let none = json!({});
    for signer in [Signer::Ed, Signer::Bytes(b""), Signer::Bytes(&[0; 64])] {
        assert_eq!(
            judge(&proof(&none, &none, signer)),
            Err(BadProof::Signature)
        );
    }
    for text in ["", "a.b", "a.b.c", &"a".repeat(9000)] {
        assert_eq!(judge(text), Err(BadProof::Malformed));
    }
}

#[test]
fn a_proof_is_for_one_request_with_one_token_at_one_time() {
    for (changes, problem) in [
        (json!({ "jti": null }), BadProof::Malformed),
        (json!({ "jti": "" }), BadProof::Malformed),
        (json!({ "jti": 1 }), BadProof::Malformed),
        (json!({ "jti": "x".repeat(257) }), BadProof::Malformed),
        (json!({ "htm": null }), BadProof::Malformed),
        (json!({ "htu": null }), BadProof::Malformed),
        (json!({ "iat": null }), BadProof::Malformed),
        (json!({ "iat": -1 }), BadProof::Malformed),
        (json!({ "iat": "1" }), BadProof::Malformed),
        (json!({ "iat": 1e300 }), BadProof::Malformed),
        (json!({ "ath": null }), BadProof::Malformed),
        (json!({ "htm": "GET" }), BadProof::Target),
        (json!({ "htm": "post" }), BadProof::Target),
        (json!({ "iat": NOW - 61 }), BadProof::Time),
        (json!({ "iat": NOW + 61 }), BadProof::Time),
        (json!({ "ath": sha256("another") }), BadProof::Token),
        (json!({ "ath": "" }), BadProof::Token),
    ] {
        assert_eq!(with_claims(changes.clone()), Err(problem), "{changes}");
    }
    assert_eq!(
        with_claims(json!({ "iat": NOW as f64 - 59.5, "nonce": "x" })),
        Ok(())
    );
    for (uri, is_right) in [
        ("https://api.example/orders/a%2Fb?x=1#y", true),
        ("HTTPS://API.example:443/orders/a%2fb", true),
        ("https://api.example:/%6Frders/%61%2Fb", true),
        ("https://api.example/orders/a/b", false),
        ("https://api.example/orders/a%252Fb", false),
        ("https://api.example/Orders/a%2Fb", false),
        ("https://api.example/orders/a%2Fb/", false),
        ("https://api.example/x/../orders/a%2Fb", false),
        ("http://api.example/orders/a%2Fb", false),
        ("https://api.example:8443/orders/a%2Fb", false),
        ("https://user@api.example/orders/a%2Fb", false),
        ("https://api.example.evil/orders/a%2Fb", false),
        ("https:///orders/a%2Fb", false),
        ("/orders/a%2Fb", false),
        ("", false),
    ] {
        let problem = with_claims(json!({ "htu": uri }));
        let expected = if is_right {
            Ok(())
        } else {
            Err(BadProof::Target)
        };
        assert_eq!(problem, expected, "{uri}");
    }
    let root = Target { path: "", ..TARGET };
    let text = proof(
        &json!({}),
        &json!({ "htu": "https://api.example" }),
        Signer::Ec,
    );
    let judged = verify_proof(text.as_bytes(), TOKEN.as_bytes(), &root, NOW, 60);
    assert!(judged.is_ok());
}

/// All parts together: a bound token is taken with a proof of its key, once.
#[test]
fn a_bound_token_is_taken_with_a_proof_of_its_key_once() {
    let thumbprint = judge(&proof(&json!({}), &json!({}), Signer::Ec))
        .unwrap()
        .key;
    let bound = claims(json!({ "cnf": { "jkt": base64(&thumbprint) } }));
    let token = issuer().token(r#"{"alg":"EdDSA","kid":"ed"}"#, &bound, Signer::Ed);
    let audience = Audience::OneOf(vec![AUDIENCE.to_owned()]);
    let rules = Rules::new(vec![ISSUER.to_owned()], audience);
    let verified = verify(token.as_bytes(), &issuer().keys(), &rules, NOW).unwrap();
    let mut replays = Replays::new(60, 100);
    let mut take = |header: Value, id: &str, signer| {
        let body = json!({ "jti": id, "ath": sha256(&token) });
        let text = proof(&header, &body, signer);
        let right = verify_proof(text.as_bytes(), token.as_bytes(), &TARGET, NOW, 60).unwrap();
        let key = right.key;
        let presented = Presented::Dpop {
            key,
            certificate: None,
        };
        verified.confirm(presented)?;
        Ok(replays.take(&right.identity, NOW))
    };
    assert_eq!(take(json!({}), "a", Signer::Ec), Ok(Replay::New));
    assert_eq!(take(json!({}), "a", Signer::Ec), Ok(Replay::Seen));
    assert_eq!(take(json!({}), "b", Signer::Ec), Ok(Replay::New));
    let other = json!({ "alg": "EdDSA", "jwk": issuer().ed_jwk() });
    assert_eq!(take(other, "c", Signer::Ed), Err(Refused::Confirmation));
    assert_eq!(
        verified.confirm(Presented::BEARER),
        Err(Refused::Confirmation)
    );
}
