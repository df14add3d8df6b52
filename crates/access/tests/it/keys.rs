//! Which of the keys that are published are used.

use access::jwt::{Algorithm, Key, KeyProblem, KeySet, KeySetError};
use serde_json::{Value, json};

use crate::issuer::{base64, issuer};

fn problem(jwk: &Value) -> Option<KeyProblem> {
    Key::of_jwk(jwk.as_object().unwrap(), Algorithm::Rs256).err()
}

fn changed(jwk: Value, changes: Value) -> Value {
    let mut jwk = jwk;
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => jwk.as_object_mut().unwrap().remove(name),
            _ => jwk
                .as_object_mut()
                .unwrap()
                .insert(name.clone(), value.clone()),
        };
    }
    jwk
}

#[test]
fn a_key_is_used_with_one_algorithm() {
    let of = |jwk: &Value, rsa| {
        let key = Key::of_jwk(jwk.as_object().unwrap(), rsa).unwrap();
        key.algorithm()
    };
    let keys = issuer();
    assert_eq!(of(&keys.rsa_jwk(), Algorithm::Ps512), Algorithm::Rs256);
    let unnamed = changed(keys.rsa_jwk(), json!({ "alg": null }));
    assert_eq!(of(&unnamed, Algorithm::Ps512), Algorithm::Ps512);
    assert_eq!(of(&keys.ec_jwk(), Algorithm::Rs256), Algorithm::Es256);
    assert_eq!(of(&keys.ed_jwk(), Algorithm::Rs256), Algorithm::EdDsa);
}

#[test]
fn what_cannot_be_used_is_told_apart() {
    use KeyProblem::{Algorithm as Unknown, Malformed, Purpose, Secret, Weak};
    let keys = issuer();
    let (rsa, ec, ed) = (keys.rsa_jwk(), keys.ec_jwk(), keys.ed_jwk());
    let modulus = |bytes: usize, last: u8| {
        let mut number = vec![0xa5; bytes];
        number[bytes - 1] = last;
        base64(&number)
    };
    for (jwk, changes, expected) in [
        (&rsa, json!({ "use": "enc" }), Purpose),
        (&rsa, json!({ "key_ops": ["sign"] }), Purpose),
        (&rsa, json!({ "key_ops": "verify" }), Purpose),
        (&rsa, json!({ "alg": "none" }), Unknown),
        (&rsa, json!({ "alg": "HS256" }), Unknown),
        (&rsa, json!({ "alg": "ES256" }), Unknown),
        (&rsa, json!({ "alg": "RSA-OAEP" }), Unknown),
        (&rsa, json!({ "alg": 1 }), Malformed),
        (&rsa, json!({ "kid": 1 }), Malformed),
        (&rsa, json!({ "kty": "oct" }), Unknown),
        (&rsa, json!({ "kty": null }), Malformed),
        (&rsa, json!({ "n": null }), Malformed),
        (&rsa, json!({ "n": "%%" }), Malformed),
        (&rsa, json!({ "n": modulus(128, 1) }), Weak),
        (&rsa, json!({ "n": modulus(1025, 1) }), Weak),
        (&rsa, json!({ "n": modulus(256, 2) }), Weak),
        (&rsa, json!({ "n": "" }), Weak),
        (&rsa, json!({ "e": "AQ" }), Weak),
        (&rsa, json!({ "e": "Aw" }), Weak),
        (&rsa, json!({ "e": "AQAA" }), Weak),
        (&rsa, json!({ "e": "" }), Weak),
        (&rsa, json!({ "e": base64(&[0xff; 200]) }), Weak),
        (&rsa, json!({ "e": "BAAAAAE" }), Weak),
        (&rsa, json!({ "d": "AQAB" }), Secret),
        (&rsa, json!({ "p": "AQAB" }), Secret),
        (&ec, json!({ "d": "AQAB" }), Secret),
        (&ec, json!({ "crv": "P-384" }), Malformed),
        (&ec, json!({ "crv": "secp256k1" }), Unknown),
        (&ec, json!({ "alg": "ES384" }), Unknown),
        (&ec, json!({ "x": base64(&[0; 32]) }), Malformed),
        (&ec, json!({ "x": base64(&[0; 31]) }), Malformed),
        (
            &ec,
            json!({ "x": base64(&[0; 32]), "y": base64(&[0; 32]) }),
            Malformed,
        ),
        (&ed, json!({ "crv": "Ed448" }), Unknown),
        (&ed, json!({ "crv": "X25519" }), Unknown),
        (&ed, json!({ "x": base64(&[9; 31]) }), Malformed),
        (&ed, json!({ "alg": "ES256" }), Unknown),
    ] {
        assert_eq!(
            problem(&changed(jwk.clone(), changes.clone())),
            Some(expected),
            "{changes}"
        );
    }
    let secret = json!({ "kty": "oct", "k": base64(&[1; 64]), "alg": "HS256" });
    assert_eq!(problem(&secret), Some(Secret));
    // Java's zero in front of the number.
    let rsa_modulus = keys.rsa_der()[8..265].to_vec();
    assert_eq!(
        problem(&changed(rsa, json!({ "n": base64(&rsa_modulus) }))),
        None
    );
}

/// Under a point of small order one signature fits many messages. The eight have these encodings,
/// and two of them two.
#[test]
fn points_of_small_order_are_no_keys() {
    let parse = |hex: &str| -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2);
        let byte = |it: &[u8]| u8::from_str_radix(std::str::from_utf8(it).unwrap(), 16).unwrap();
        digits.map(byte).collect()
    };
    for hex in [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    ] {
        let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "x": base64(&parse(hex)) });
        assert_eq!(problem(&jwk), Some(KeyProblem::Weak), "{hex}");
    }
}

#[test]
fn secrets_are_as_long_as_their_hash() {
    for (algorithm, length) in [
        (Algorithm::Hs256, 32),
        (Algorithm::Hs384, 48),
        (Algorithm::Hs512, 64),
    ] {
        assert!(Key::of_secret(&vec![1; length], algorithm).is_ok());
        let short = Key::of_secret(&vec![1; length - 1], algorithm);
        assert_eq!(short.err(), Some(KeyProblem::Weak));
    }
    let public = Key::of_secret(&[1; 64], Algorithm::Rs256);
    assert_eq!(public.err(), Some(KeyProblem::Algorithm));
}

/// The point of another key on P-256.
fn other_point() -> Vec<u8> {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    pair.public_key().as_ref().to_vec()
}

/// An issuer that names no keys may have another one by now.
#[test]
fn a_token_without_a_kid_is_worth_asking_for_newer_keys() {
    use access::jwt::{Compact, Refused};
    let token = issuer().token(r#"{"alg":"ES256"}"#, "{}", crate::issuer::Signer::Ec);
    let compact = Compact::parse(token.as_bytes()).unwrap();
    let other = other_point();
    let jwk = json!({ "kty": "EC", "crv": "P-256",
        "x": base64(&other[1..33]), "y": base64(&other[33..]) });
    for (keys, expected) in [
        (json!([jwk]), Err(Refused::UnknownKey)),
        (json!([issuer().rsa_jwk()]), Err(Refused::UnknownKey)),
        (json!([jwk, issuer().ec_jwk()]), Ok(())),
    ] {
        let text = json!({ "keys": keys }).to_string();
        let (set, _) = KeySet::parse(text.as_bytes(), Algorithm::Rs256).unwrap();
        assert_eq!(set.verify(&compact).map(|_| ()), expected);
    }
}

/// Secrets are told apart by what they are, so that one that is replaced takes its tokens along.
#[test]
fn two_secrets_are_two_keys() {
    let set = |byte| KeySet::of(vec![Key::of_secret(&[byte; 32], Algorithm::Hs256).unwrap()]);
    assert!(set(1).is_same(&set(1)) && !set(1).is_same(&set(2)));
}

#[test]
fn a_set_ignores_what_it_cannot_use_and_what_is_ambiguous() {
    let keys = issuer();
    let parse = |items: Value| {
        let text = json!({ "keys": items, "more": 1 }).to_string();
        let (set, ignored) = KeySet::parse(text.as_bytes(), Algorithm::Rs256).unwrap();
        (set.keys().len(), ignored)
    };
    let point = other_point();
    let other = json!({ "kty": "EC", "crv": "P-256", "kid": "ec",
        "x": base64(&point[1..33]), "y": base64(&point[33..]) });
    let (count, ignored) = parse(json!([keys.rsa_jwk(), keys.ec_jwk(), other]));
    let ambiguous = (Some("ec".to_owned()), KeyProblem::SameId);
    assert_eq!((count, ignored), (1, vec![ambiguous.clone(), ambiguous]));
    // At some issuers keys of several algorithms have one `kid`.
    let same = changed(keys.ec_jwk(), json!({ "kid": "rsa" }));
    assert_eq!(
        parse(json!([keys.rsa_jwk(), same, keys.ed_jwk()])),
        (3, vec![])
    );
    assert_eq!(parse(json!([keys.rsa_jwk(), keys.rsa_jwk()])), (1, vec![]));
    let secret = json!({ "kty": "oct", "k": "AA", "kid": "s" });
    let (count, ignored) = parse(json!([secret, 1, keys.ec_jwk()]));
    let expected = vec![
        (Some("s".to_owned()), KeyProblem::Secret),
        (None, KeyProblem::Malformed),
    ];
    assert_eq!((count, ignored), (1, expected));
    assert_eq!(parse(json!([])), (0, vec![]));
}

#[test]
fn what_is_no_set_or_too_large_is_refused() {
    let parse = |text: &str| KeySet::parse(text.as_bytes(), Algorithm::Rs256).err();
    for text in [
        "",
        "[]",
        "{}",
        r#"{"keys":{}}"#,
        r#"{"keys":[],"keys":[]}"#,
        "<html>",
    ] {
        assert_eq!(parse(text), Some(KeySetError::Malformed), "{text}");
    }
    let many = json!({ "keys": vec![json!({}); 101] }).to_string();
    assert_eq!(parse(&many), Some(KeySetError::TooLarge));
    let long = format!(r#"{{"keys":[],"x":"{}"}}"#, "x".repeat(300_000));
    assert_eq!(parse(&long), Some(KeySetError::TooLarge));
}
