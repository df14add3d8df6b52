//! The vectors of Wycheproof for JSON Web Signatures and Keys; `tests/data/json_web_*.json` are
//! theirs, with their licence. All that are invalid must be refused, all that are valid taken, but
//! for those that are named here with the reason.

use access::jwt::{Algorithm, Compact, Key, KeySet};
use serde_json::{Map, Value};

const PUBLISHED_SECRET: &str = "a set of an issuer has public keys only";
const WRONG_NAME: &str = "the key says ES521, which is no algorithm: P-521 is used with ES512";
const OTHER_ALGORITHM: &str = "the key is for PS256, the token of RFC 7520 says PS384";
const NO_BASE64URL: &str = "`?` is no character of base64url, and one token has one spelling";
const SAME_AS_VALID: &str = "byte for byte the token of case 357, which is valid";

/// Cases of signatures that we see in another way than the vectors.
const SIGNATURES: &[(u64, &str)] = &[
    (346, OTHER_ALGORITHM),
    (347, WRONG_NAME),
    (350, OTHER_ALGORITHM),
    (351, WRONG_NAME),
    (367, SAME_AS_VALID),
    (370, SAME_AS_VALID),
    (372, NO_BASE64URL),
    (373, NO_BASE64URL),
];

/// Cases of keys that we see in another way than the vectors.
const KEYS: &[(u64, &str)] = &[
    (2, PUBLISHED_SECRET),
    (13, PUBLISHED_SECRET),
    (14, PUBLISHED_SECRET),
    (15, PUBLISHED_SECRET),
];

fn groups(text: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(text).unwrap();
    all["testGroups"].as_array().unwrap().clone()
}

/// Compares every case with what `is_taken` says of its group and token.
fn compare(text: &str, exceptions: &[(u64, &str)], is_taken: impl Fn(&Value, &str) -> bool) {
    let (mut count, mut wrong, mut used) = (0, Vec::new(), Vec::new());
    for group in groups(text) {
        for case in group["tests"].as_array().unwrap() {
            let (number, token) = (
                case["tcId"].as_u64().unwrap(),
                case["jws"].as_str().unwrap(),
            );
            count += 1;
            if is_taken(&group, token) == (case["result"] == "valid") {
                continue;
            }
            used.push(number);
            if !exceptions.iter().any(|(known, _)| *known == number) {
                wrong.push(format!("{number} {} {}", case["comment"], case["result"]));
            }
        }
    }
    assert!(count > 20, "only {count} cases");
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (number, reason) in exceptions {
        assert!(
            used.contains(number),
            "{number} is as it should be: {reason}"
        );
    }
}

fn key_of(jwk: &Map<String, Value>) -> Option<Key> {
    let algorithm = jwk.get("alg").and_then(Value::as_str);
    if jwk["kty"] != "oct" {
        return Key::of_jwk(jwk, Algorithm::Rs256).ok();
    }
    use base64ct::{Base64UrlUnpadded, Encoding as _};
    let secret = Base64UrlUnpadded::decode_vec(jwk["k"].as_str().unwrap()).unwrap();
    Key::of_secret(&secret, Algorithm::of(algorithm?)?).ok()
}

fn is_signed(keys: &KeySet, token: &str) -> bool {
    Compact::parse(token.as_bytes()).is_ok_and(|it| keys.verify(&it).is_ok())
}

#[test]
fn signatures_are_judged_as_wycheproof_does() {
    let text = include_str!("../data/json_web_signature_test.json");
    compare(text, SIGNATURES, |group, token| {
        let public = group.get("public").and_then(Value::as_object);
        let jwk = public.or_else(|| group["private"].as_object()).unwrap();
        key_of(jwk).is_some_and(|key| is_signed(&KeySet::of(vec![key]), token))
    });
}

#[test]
fn sets_of_keys_are_judged_as_wycheproof_does() {
    let text = include_str!("../data/json_web_key_test.json");
    compare(text, KEYS, |group, token| {
        let set = group
            .get("public")
            .or_else(|| group.get("private"))
            .unwrap();
        let parsed = KeySet::parse(set.to_string().as_bytes(), Algorithm::Rs256);
        parsed.is_ok_and(|(keys, _)| is_signed(&keys, token))
    });
}

/// What [`SAME_AS_VALID`] says.
#[test]
fn two_invalid_signatures_are_the_token_of_a_valid_one() {
    let text = include_str!("../data/json_web_signature_test.json");
    let all = groups(text);
    let cases = all
        .iter()
        .flat_map(|group| group["tests"].as_array().unwrap());
    let token = |number: u64| {
        let case = cases.clone().find(|case| case["tcId"] == number).unwrap();
        case["jws"].as_str().unwrap().to_owned()
    };
    assert!(token(357) == token(367) && token(357) == token(370));
}
