//! Tokens that somebody might try: forged, confused, replayed, malformed, outdated. Each is refused
//! for its own reason; beside them stand odd ones that are right and must be taken.
//!
//! With `ATTACKS_FILE` the list is written to this file as JSON, with the issuer's keys, so that
//! other libraries can judge it too.

use access::jwt::Refused::{
    Algorithm as WrongAlgorithm, Audience as WrongAudience, Confirmation, Critical, Expired,
    Issuer, Malformed, NoExpiry, NotYet, Signature, Type, UnknownKey,
};
use access::jwt::{Algorithm, Audience, Presented, Refused, Rules, verify};
use serde_json::{Value, json};

use crate::issuer::{AUDIENCE, ISSUER, NOW, Signer, base64, claims, issuer};

struct Attack {
    name: String,
    token: String,
    expected: Result<(), Refused>,
}

const RSA: &str = r#"{"alg":"RS256","kid":"rsa","typ":"JWT"}"#;
const EC: &str = r#"{"alg":"ES256","kid":"ec"}"#;
const ED: &str = r#"{"alg":"EdDSA","kid":"ed"}"#;
const OTHER_AUDIENCE: &str = "other.example";
const RS256: Signer<'_> = Signer::Rsa(Algorithm::Rs256);

pub fn rules() -> Rules {
    let audiences = vec![AUDIENCE.to_owned(), OTHER_AUDIENCE.to_owned()];
    Rules::new(vec![ISSUER.to_owned()], Audience::OneOf(audiences))
}

/// Puts a token on the list.
fn add(
    list: &mut Vec<Attack>,
    name: impl Into<String>,
    token: impl Into<String>,
    expected: Result<(), Refused>,
) {
    list.push(Attack {
        name: name.into(),
        token: token.into(),
        expected,
    });
}

/// Puts a token of this header on the list, whose claims are right.
fn with_header(
    list: &mut Vec<Attack>,
    name: &str,
    header: &str,
    signer: Signer<'_>,
    expected: Result<(), Refused>,
) {
    let token = issuer().token(header, &claims(json!({})), signer);
    add(list, format!("{name}: {header}"), token, expected);
}

/// Puts a token on the list that is signed as it should be, with some claims changed.
fn with_claims(list: &mut Vec<Attack>, changes: Value, expected: Result<(), Refused>) {
    let name = format!("claims {changes}");
    let token = issuer().token(RSA, &claims(changes), RS256);
    add(list, name, token, expected);
}

fn all() -> Vec<Attack> {
    let mut list = Vec::new();
    sound(&mut list);
    no_signature(&mut list);
    confused_keys(&mut list);
    headers(&mut list);
    broken_signatures(&mut list);
    spellings(&mut list);
    times(&mut list);
    parties(&mut list);
    list
}

fn sound(list: &mut Vec<Attack>) {
    with_header(list, "RSA", RSA, RS256, Ok(()));
    with_header(list, "P-256", EC, Signer::Ec, Ok(()));
    with_header(list, "Ed25519", ED, Signer::Ed, Ok(()));
    let named = r#"{"alg":"Ed25519","kid":"ed"}"#;
    with_header(list, "the name of RFC 9864", named, Signer::Ed, Ok(()));
    with_header(list, "no kid", r#"{"alg":"ES256"}"#, Signer::Ec, Ok(()));
    let access = r#"{"alg":"ES256","kid":"ec","typ":"application/AT+JWT"}"#;
    with_header(list, "an access token", access, Signer::Ec, Ok(()));
    let spaced = "{ \"alg\" :\t\"ES256\",\r\n \"kid\" : \"\\u0065c\" }";
    with_header(list, "space and escapes", spaced, Signer::Ec, Ok(()));
}

fn no_signature(list: &mut Vec<Attack>) {
    for name in ["none", "None", "NONE", "nOnE", "none ", ""] {
        let header = json!({ "alg": name, "kid": "rsa" }).to_string();
        let refused = Err(WrongAlgorithm);
        with_header(list, "no signature", &header, Signer::Bytes(&[]), refused);
    }
    let none = r#"{"alg":"none","kid":"rsa"}"#;
    with_header(list, "none, but signed", none, RS256, Err(WrongAlgorithm));
    for header in [RSA, EC, ED] {
        let empty = Signer::Bytes(&[]);
        with_header(list, "an empty signature", header, empty, Err(Signature));
    }
    let whole = issuer().token(RSA, &claims(json!({})), RS256);
    let unsigned = whole.rsplit_once('.').unwrap().0;
    add(
        list,
        "the signature's part is missing",
        unsigned,
        Err(Malformed),
    );
    let null = r#"{"alg":null,"kid":"rsa"}"#;
    with_header(list, "null", null, RS256, Err(WrongAlgorithm));
    let listed = r#"{"alg":["RS256"],"kid":"rsa"}"#;
    with_header(list, "a list", listed, RS256, Err(WrongAlgorithm));
    let without = r#"{"kid":"rsa"}"#;
    with_header(list, "no algorithm", without, RS256, Err(WrongAlgorithm));
}

/// The public key as a secret of HMAC, in every form in which somebody may have it.
fn confused_keys(list: &mut Vec<Attack>) {
    let keys = issuer();
    let der = keys.rsa_der();
    let pem = |label: &str| {
        use base64ct::{Base64, Encoding as _};
        let text = Base64::encode_string(der);
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n").into_bytes()
    };
    let jwk = keys.rsa_jwk();
    let modulus = jwk["n"].as_str().unwrap().as_bytes();
    let forms = [
        ("DER", der.to_vec()),
        ("PEM", pem("RSA PUBLIC KEY")),
        ("PEM of another label", pem("PUBLIC KEY")),
        ("JWK", jwk.to_string().into_bytes()),
        ("JWKS", keys.jwks().to_string().into_bytes()),
        ("n", modulus.to_vec()),
        ("nothing", Vec::new()),
        ("a known secret", b"secret".to_vec()),
        ("the point", keys.ec_point().to_vec()),
    ];
    for (name, secret) in &forms {
        for kid in ["rsa", "ec", "another"] {
            let header = json!({ "alg": "HS256", "kid": kid }).to_string();
            let name = format!("{name} as the secret");
            let refused = Err(WrongAlgorithm);
            with_header(list, &name, &header, Signer::Hmac(secret), refused);
        }
    }
    let swapped = r#"{"alg":"ES256","kid":"rsa"}"#;
    with_header(
        list,
        "another's key",
        swapped,
        Signer::Ec,
        Err(WrongAlgorithm),
    );
    let swapped = r#"{"alg":"EdDSA","kid":"ec"}"#;
    with_header(
        list,
        "another's key",
        swapped,
        Signer::Ed,
        Err(WrongAlgorithm),
    );
    let padding = r#"{"alg":"PS256","kid":"rsa"}"#;
    let pss = Signer::Rsa(Algorithm::Ps256);
    with_header(
        list,
        "not the key's algorithm",
        padding,
        pss,
        Err(WrongAlgorithm),
    );
    with_header(list, "PSS, said to be PKCS #1", RSA, pss, Err(Signature));
    let longer = r#"{"alg":"RS512","kid":"rsa"}"#;
    let sha512 = Signer::Rsa(Algorithm::Rs512);
    with_header(
        list,
        "not the key's algorithm",
        longer,
        sha512,
        Err(WrongAlgorithm),
    );
}

fn headers(list: &mut Vec<Attack>) {
    let long = "k".repeat(5000);
    for kid in [
        "../../../../dev/null",
        "/dev/null",
        "rsa\0",
        "RSA",
        " rsa",
        "",
        "rsa' OR '1'='1",
        "rsa; cat /etc/passwd",
        "${jndi:ldap://x}",
        "%72sa",
        &long,
    ] {
        let header = json!({ "alg": "RS256", "kid": kid }).to_string();
        let token = issuer().token(&header, &claims(json!({})), RS256);
        let name = format!("kid {:?}", kid.get(..30).unwrap_or(kid));
        add(list, name, token, Err(UnknownKey));
    }
    for kid in ["1", "null", "[\"rsa\"]", "{\"a\":1}", "true"] {
        let header = format!("{{\"alg\":\"RS256\",\"kid\":{kid}}}");
        with_header(list, "kid is no text", &header, RS256, Err(Malformed));
    }
    let own = issuer().ec_jwk();
    for (name, value) in [
        ("jwk", own.clone()),
        ("jku", json!("https://evil.example/keys")),
        ("x5u", json!("https://evil.example/chain")),
        ("x5c", json!(["MIIB"])),
    ] {
        // The key that the header brings along fits the signature, but is not looked at.
        let header = json!({ "alg": "ES256", "kid": "mine", name: value }).to_string();
        with_header(
            list,
            "it brings its key",
            &header,
            Signer::Ec,
            Err(UnknownKey),
        );
    }
    for header in [
        r#"{"alg":"RS256","kid":"rsa","crit":["exp"],"exp":1}"#,
        r#"{"alg":"RS256","kid":"rsa","crit":[]}"#,
        r#"{"alg":"RS256","kid":"rsa","crit":null}"#,
        r#"{"alg":"RS256","kid":"rsa","crit":["b64"],"b64":false}"#,
        r#"{"alg":"RS256","kid":"rsa","b64":false}"#,
        r#"{"alg":"RS256","kid":"rsa","b64":"false"}"#,
    ] {
        with_header(list, "an extension", header, RS256, Err(Critical));
    }
    for header in [
        r#"{"alg":"RS256","kid":"rsa","alg":"none"}"#,
        r#"{"alg":"none","kid":"rsa","alg":"RS256"}"#,
        r#"{"alg":"RS256","kid":"rsa","\u0061lg":"RS256"}"#,
        r#"{"alg":"RS256","kid":"rsa","x":{"a":1,"a":2}}"#,
        r#"["RS256"]"#,
        r#""RS256""#,
        "",
        "{",
        r#"{"alg":"RS256","kid":"rsa"} x"#,
    ] {
        with_header(list, "not one object", header, RS256, Err(Malformed));
    }
    for kind in [
        "dpop+jwt",
        "logout+jwt",
        "id_token",
        "secevent+jwt",
        "jose",
        "",
        "text/jwt",
    ] {
        let header = json!({ "alg": "RS256", "kid": "rsa", "typ": kind }).to_string();
        with_header(list, "another kind", &header, RS256, Err(Type));
    }
    let number = r#"{"alg":"RS256","kid":"rsa","typ":1}"#;
    with_header(list, "another kind", number, RS256, Err(Malformed));
}

fn broken_signatures(list: &mut Vec<Attack>) {
    let order = [
        0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc,
        0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
    ];
    let (zero, one) = ([0; 32], [[0; 31].as_slice(), &[1]].concat());
    for (name, r, s) in [
        ("0 and 0", zero.as_slice(), zero.as_slice()),
        ("0 and 1", &zero, &one),
        ("1 and 0", &one, &zero),
        ("1 and 1", &one, &one),
        ("the order twice", &order, &order),
    ] {
        let name = format!("the numbers of the signature are {name}");
        with_header(
            list,
            &name,
            EC,
            Signer::Bytes(&[r, s].concat()),
            Err(Signature),
        );
    }
    let der = [&[0x30, 6, 2, 1, 1, 2, 1, 1][..], &[0; 56]].concat();
    with_header(list, "DER", EC, Signer::Bytes(&der), Err(Signature));
    for length in [1, 63, 65, 96, 132] {
        let bytes = vec![1; length];
        with_header(
            list,
            "the length",
            EC,
            Signer::Bytes(&bytes),
            Err(Signature),
        );
    }
    for bytes in [vec![0; 256], vec![1; 256], vec![0xff; 256], vec![0; 257]] {
        with_header(
            list,
            "no number of the key",
            RSA,
            Signer::Bytes(&bytes),
            Err(Signature),
        );
    }
    with_header(list, "zeros", ED, Signer::Bytes(&[0; 64]), Err(Signature));
    let identity = [&[1][..], &[0; 63]].concat();
    with_header(
        list,
        "the neutral point",
        ED,
        Signer::Bytes(&identity),
        Err(Signature),
    );
    // The second number plus the order of the group: the same signature, spelled anew.
    let token = issuer().token(ED, &claims(json!({})), Signer::Ed);
    let (signed, _) = token.rsplit_once('.').unwrap();
    let mut malleable = issuer().signature(Signer::Ed, signed.as_bytes());
    let group = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let mut carry = 0;
    for (byte, add) in malleable[32..].iter_mut().zip(group) {
        let sum = u16::from(*byte) + add + carry;
        (*byte, carry) = (sum as u8, sum >> 8);
    }
    let token = format!("{signed}.{}", base64(&malleable));
    add(list, "a malleable signature", token, Err(Signature));
    let first = issuer().token(RSA, &claims(json!({})), RS256);
    let second = issuer().token(RSA, &claims(json!({ "sub": "root" })), RS256);
    let signature = first.rsplit_once('.').unwrap().1;
    let body = second.rsplit_once('.').unwrap().0;
    add(
        list,
        "another token's signature",
        format!("{body}.{signature}"),
        Err(Signature),
    );
}

fn spellings(list: &mut Vec<Attack>) {
    let whole = issuer().token(EC, &claims(json!({})), Signer::Ec);
    let parts: Vec<&str> = whole.split('.').collect();
    let [header, payload, signature] = parts.as_slice() else {
        panic!("{whole}");
    };
    for (name, token) in [
        ("nothing", String::new()),
        ("points", "..".to_owned()),
        ("four parts", format!("{whole}.")),
        (
            "five parts",
            format!("{header}.{payload}.{payload}.{payload}.{signature}"),
        ),
        (
            "padding behind the header",
            format!("{header}=.{payload}.{signature}"),
        ),
        ("padding at the end", format!("{whole}==")),
        ("a line break", format!("{header}.{payload}.\n{signature}")),
        ("a space in front", format!(" {whole}")),
        ("a tab behind", format!("{whole}\t")),
        ("a scheme", format!("Bearer {whole}")),
        ("two tokens", format!("{whole},{whole}")),
        ("an empty header", format!(".{payload}.{signature}")),
        ("standard base64", whole.replace(['-', '_'], "+")),
        ("a zero byte", format!("{whole}\0")),
        (
            "another alphabet",
            format!("{header}.{payload}.\u{ff10}{signature}"),
        ),
        (
            "JSON",
            json!({ "payload": payload, "signature": signature }).to_string(),
        ),
        ("too long", format!("{whole}{}", "A".repeat(20_000))),
    ] {
        let is_same = token == whole;
        let expected = if is_same { Ok(()) } else { Err(Malformed) };
        add(list, name, token, expected);
    }
    // The last character of 64 bytes has four bits that no byte has.
    let last = signature.chars().last().unwrap();
    let next = char::from_u32(u32::from(last) + 1).unwrap();
    let cut = &whole[..whole.len() - 1];
    add(
        list,
        "bits that no byte has",
        format!("{cut}{next}"),
        Err(Malformed),
    );
    let doubled = claims(json!({})).replacen('{', r#"{"sub":"root","#, 1);
    let token = issuer().token(RSA, &doubled, RS256);
    add(list, "two subjects", token, Err(Malformed));
    for payload in ["[]", "null", "\"alice\"", "", "{", "{}{}"] {
        let token = issuer().token(RSA, payload, RS256);
        add(
            list,
            format!("the claims are {payload:?}"),
            token,
            Err(Malformed),
        );
    }
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(3000), "]".repeat(3000));
    add(
        list,
        "nesting",
        issuer().token(RSA, &deep, RS256),
        Err(Malformed),
    );
}

fn times(list: &mut Vec<Attack>) {
    for exp in [
        json!(NOW - 31),
        json!(NOW - 30),
        json!(1),
        json!(0),
        json!(0.5),
    ] {
        with_claims(list, json!({ "exp": exp }), Err(Expired));
    }
    with_claims(list, json!({ "exp": null }), Err(NoExpiry));
    for exp in [
        json!("1900000000"),
        json!(true),
        json!([NOW + 600]),
        json!({ "a": 1 }),
        json!(-1),
        json!(-1e300),
        json!(1e300),
        json!(253_402_300_800_u64),
        json!(u64::MAX),
        json!(9_223_372_036_854_775_807_u64),
        json!(""),
    ] {
        with_claims(list, json!({ "exp": exp }), Err(NoExpiry));
    }
    let written_null = claims(json!({})).replace(&format!("{}", NOW + 600), "null");
    let token = issuer().token(RSA, &written_null, RS256);
    add(list, "exp is null", token, Err(NoExpiry));
    let above = claims(json!({})).replace(&format!("{}", NOW + 600), "1e400");
    let token = issuer().token(RSA, &above, RS256);
    add(list, "exp is above every number", token, Err(Malformed));
    with_claims(list, json!({ "exp": NOW - 29 }), Ok(()));
    with_claims(list, json!({ "exp": NOW as f64 + 0.5 }), Ok(()));
    for name in ["nbf", "iat"] {
        with_claims(list, json!({ name: NOW + 31 }), Err(NotYet));
        with_claims(list, json!({ name: NOW + 30 }), Ok(()));
        with_claims(list, json!({ name: "0" }), Err(Malformed));
        with_claims(list, json!({ name: -1 }), Err(Malformed));
        with_claims(list, json!({ name: 1e300 }), Err(Malformed));
    }
}

fn parties(list: &mut Vec<Attack>) {
    for issuer in [
        json!(null),
        json!("https://id.example/"),
        json!("https://ID.example"),
        json!(""),
        json!("http://id.example"),
        json!([ISSUER]),
        json!(1),
        json!("https://id.example\0"),
    ] {
        with_claims(list, json!({ "iss": issuer }), Err(Issuer));
    }
    for audience in [
        json!(null),
        json!("Intertie"),
        json!("intertie "),
        json!(""),
        json!([]),
        json!({}),
        json!(["another"]),
        json!([["intertie"]]),
        json!(["intertie", 1]),
        json!({ "intertie": 1 }),
    ] {
        with_claims(list, json!({ "aud": audience }), Err(WrongAudience));
    }
    with_claims(list, json!({ "aud": ["another", "intertie"] }), Ok(()));
    with_claims(list, json!({ "aud": "other.example" }), Ok(()));
    for subject in [json!(1), json!(["alice"]), json!({}), json!(true)] {
        with_claims(list, json!({ "sub": subject }), Err(Malformed));
    }
    let logout = json!({ "http://schemas.openid.net/event/backchannel-logout": {} });
    with_claims(list, json!({ "events": logout }), Err(Type));
    with_claims(list, json!({ "jti": 1 }), Err(Malformed));
    let hash = base64(&[7; 32]);
    for demanded in [
        json!({ "x5t#S256": hash }),
        json!({ "jkt": hash }),
        json!({ "jwk": { "kty": "RSA" } }),
        json!({ "kid": "rsa" }),
        json!({}),
        json!("x"),
        json!({ "jkt": "AAAA" }),
        json!({ "jkt": hash, "x5t#S256": hash }),
        json!({ "jkt": format!("{hash}A") }),
    ] {
        with_claims(list, json!({ "cnf": demanded }), Err(Confirmation));
    }
}

#[test]
fn every_attack_is_refused_for_its_own_reason() {
    let (list, keys, rules) = (all(), issuer().keys(), rules());
    let mut wrong = Vec::new();
    for attack in &list {
        let verified = verify(attack.token.as_bytes(), &keys, &rules, NOW);
        let result = verified.and_then(|it| it.confirm(Presented::BEARER).map(drop));
        if result != attack.expected {
            let (name, expected) = (&attack.name, attack.expected);
            wrong.push(format!("{name}: {result:?} instead of {expected:?}"));
        }
    }
    let refused = list.iter().filter(|it| it.expected.is_err()).count();
    assert!(
        wrong.is_empty(),
        "{} of {}: {wrong:#?}",
        wrong.len(),
        list.len()
    );
    assert!(
        refused >= 80 && list.len() - refused >= 10,
        "{refused} of {}",
        list.len()
    );
    if let Ok(file) = std::env::var("ATTACKS_FILE") {
        let tokens: Vec<Value> = list
            .iter()
            .map(|it| {
                let refused = it.expected.err().map(Refused::name);
                json!({ "name": it.name, "token": it.token, "refused": refused })
            })
            .collect();
        let all = json!({ "now": NOW, "issuer": ISSUER, "jwks": issuer().jwks(),
            "audiences": [AUDIENCE, OTHER_AUDIENCE], "tokens": tokens });
        std::fs::write(file, all.to_string()).unwrap();
    }
}

/// One changed bit anywhere makes every token invalid.
#[test]
fn no_bit_of_a_token_can_be_changed() {
    let (keys, rules) = (issuer().keys(), rules());
    for (header, signer) in [(EC, Signer::Ec), (ED, Signer::Ed), (RSA, RS256)] {
        let token = issuer().token(header, &claims(json!({})), signer);
        assert!(verify(token.as_bytes(), &keys, &rules, NOW).is_ok());
        for place in 0..token.len() {
            for bit in 0..8 {
                let mut changed = token.clone().into_bytes();
                changed[place] ^= 1 << bit;
                let result = verify(&changed, &keys, &rules, NOW);
                assert!(result.is_err(), "byte {place}, bit {bit} of {token}");
            }
        }
    }
}

/// A token that belongs to the holder of a key is his only, and comes as such a token does.
#[test]
fn a_bound_token_is_its_holders_only() {
    let keys = issuer().keys();
    let (ours, other) = ([7; 32], [8; 32]);
    let bearer = |certificate| Presented::Bearer { certificate };
    let dpop = |key, certificate| Presented::Dpop { key, certificate };
    let every = [
        bearer(None),
        bearer(Some(ours)),
        bearer(Some(other)),
        dpop(ours, None),
        dpop(other, None),
        dpop(ours, Some(ours)),
        dpop(ours, Some(other)),
    ];
    let hash = base64(&ours);
    for (demanded, taken) in [
        (json!(null), vec![0, 1, 2]),
        (json!({ "x5t#S256": hash }), vec![1]),
        (json!({ "jkt": hash }), vec![3, 5, 6]),
        (json!({ "jkt": hash, "x5t#S256": hash }), vec![5]),
    ] {
        let token = issuer().token(RSA, &claims(json!({ "cnf": demanded })), RS256);
        let verified = verify(token.as_bytes(), &keys, &rules(), NOW).unwrap();
        let is_taken = |it: &usize| verified.confirm(every[*it]).is_ok();
        let all: Vec<usize> = (0..every.len()).filter(is_taken).collect();
        assert_eq!(all, taken, "{demanded}");
    }
}

/// The tokens of well-known issuers, as their documentation shows them.
#[test]
fn tokens_of_well_known_issuers_are_taken() {
    let keys = issuer().keys();
    let judge = |rules: &Rules, changes: Value| {
        let token = issuer().token(RSA, &claims(changes), RS256);
        verify(token.as_bytes(), &keys, rules, NOW).map(drop)
    };
    // Google: two spellings of one issuer.
    let google = ["https://accounts.google.com", "accounts.google.com"];
    let issuers = google.map(str::to_owned).to_vec();
    let rules = Rules::new(issuers, Audience::OneOf(vec![AUDIENCE.to_owned()]));
    for issuer in google {
        assert_eq!(judge(&rules, json!({ "iss": issuer })), Ok(()));
    }
    // Amazon Cognito: access tokens name the client, not an audience.
    let clients = Audience::Clients(vec!["7abc".to_owned()]);
    let rules = Rules::new(vec![ISSUER.to_owned()], clients);
    let cognito = json!({ "aud": null, "client_id": "7abc", "token_use": "access" });
    assert_eq!(judge(&rules, cognito), Ok(()));
    for client in [json!(null), json!("8abc"), json!(["7abc"])] {
        let other = json!({ "aud": "7abc", "client_id": client });
        assert_eq!(judge(&rules, other), Err(WrongAudience));
    }
    // Kubernetes: service accounts have a list of audiences and members of their own.
    let rules = self::rules();
    let pod = json!({ "aud": ["https://kubernetes.default.svc", AUDIENCE],
        "kubernetes.io": { "namespace": "shop", "pod": { "name": "a" } }, "nbf": NOW - 5 });
    assert_eq!(judge(&rules, pod), Ok(()));
    let any = Rules::new(vec![ISSUER.to_owned()], Audience::Any);
    assert_eq!(judge(&any, json!({ "aud": null })), Ok(()));
}

#[test]
fn scopes_are_read_in_every_form() {
    let read = |claims: Value| {
        let claims = claims.as_object().unwrap().clone();
        let all: Vec<String> = access::jwt::scopes(&claims).map(str::to_owned).collect();
        all.join("|")
    };
    assert_eq!(read(json!({ "scope": "a  b c" })), "a|b|c");
    assert_eq!(read(json!({ "scp": ["a", 1, "b c"] })), "a|b c");
    assert_eq!(read(json!({ "scp": "a b" })), "a|b");
    assert_eq!(read(json!({ "scope": "a", "scp": ["b"] })), "a|b");
    assert_eq!(read(json!({ "scope": ["a", "b"] })), "a|b");
    assert_eq!(read(json!({ "scope": 1 })), "");
}

#[test]
fn a_demanded_type_is_the_only_one_that_is_taken() {
    let strict = rules().with_types(&["application/AT+JWT"]);
    for (kind, expected) in [
        (r#","typ":"at+jwt""#, Ok(())),
        (r#","typ":"application/at+jwt""#, Ok(())),
        (r#","typ":"JWT""#, Err(Type)),
        ("", Err(Type)),
    ] {
        let header = format!(r#"{{"alg":"ES256","kid":"ec"{kind}}}"#);
        let token = issuer().token(&header, &claims(json!({})), Signer::Ec);
        let result = verify(token.as_bytes(), &issuer().keys(), &strict, NOW);
        assert_eq!(result.map(drop), expected, "{header}");
    }
}
