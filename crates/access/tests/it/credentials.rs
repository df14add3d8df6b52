//! Credentials in requests, and the challenges for those that are refused.

use std::borrow::Cow;

use access::api_keys::KEY_MAX;
use access::credentials::{
    BASIC_MAX, BasicBuffer, Challenges, Credential, Failure, KeyPlace, PROOF_MAX, Presented,
    Problem, Scheme, Wanted, find,
};
use access::jwt::TOKEN_MAX;
use base64ct::{Base64, Encoding as _};
use fastrand::Rng;

/// Everything that can be looked for.
fn all() -> Wanted {
    let mut wanted = Wanted::default();
    for scheme in [Scheme::Bearer, Scheme::Basic, Scheme::Dpop] {
        wanted.scheme(scheme);
    }
    wanted.token_parameter();
    assert_eq!(wanted.key_field("X-Api-Key"), Ok(KeyPlace::Field(0)));
    assert_eq!(wanted.key_field("apikey"), Ok(KeyPlace::Field(1)));
    assert_eq!(wanted.key_field("x-api-key"), Ok(KeyPlace::Field(0)));
    assert_eq!(wanted.key_parameter("api_key"), Ok(KeyPlace::Parameter(0)));
    wanted
}

fn of_schemes(schemes: &[Scheme]) -> Wanted {
    let mut wanted = Wanted::default();
    schemes.iter().for_each(|&it| wanted.scheme(it));
    wanted
}

fn ask<'a>(
    fields: &'a [(&str, &str)],
    query: &'a str,
    wanted: &Wanted,
) -> Result<Presented<'a>, Problem> {
    let fields = fields
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    find(fields, Some(query.as_bytes()), wanted)
}

fn authorization(value: &str) -> Result<Option<String>, Problem> {
    let fields = [("authorization", value)];
    ask(&fields, "", &all()).map(|it| it.credential.map(shown))
}

fn shown(credential: Credential<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    match credential {
        Credential::Bearer(token) => format!("bearer {}", text(&token)),
        Credential::Dpop { token, proof } => format!("dpop {} {}", text(token), text(proof)),
        Credential::ApiKey { place, key } => format!("{place:?} {}", text(&key)),
        Credential::Basic(basic) => match basic.decode(&mut BasicBuffer::default()) {
            Ok(it) => format!("basic {} / {}", text(it.user), text(it.password)),
            Err(problem) => format!("basic {problem:?}"),
        },
    }
}

#[test]
fn the_syntax_of_authorization_is_strict_but_for_case_and_spaces() {
    let found = |text: &str| Ok(Some(text.to_owned()));
    for (value, expected) in [
        ("Bearer a.b-c_d~e+f/g==", found("bearer a.b-c_d~e+f/g==")),
        ("bEARER   abc", found("bearer abc")),
        (" Bearer abc\t", found("bearer abc")),
        ("Basic YW5uOnM6ZWNyZXQ=", found("basic ann / s:ecret")),
        ("basic Og==", found("basic  / ")),
        ("Basic YW5u", found("basic Malformed")),
        ("Basic YTpi", found("basic a / b")),
        // Other spellings: without padding, and with bits that no byte has.
        ("Basic YW46cw", found("basic Malformed")),
        ("Basic YW46cx==", found("basic Malformed")),
        // ann, colon, a tab
        ("Basic YW5uOgk=", found("basic Malformed")),
        ("", Err(Problem::Malformed)),
        (" ", Err(Problem::Malformed)),
        ("Bearer", Err(Problem::Malformed)),
        ("Bearer ", Err(Problem::Malformed)),
        ("Bearer\tabc", Err(Problem::Malformed)),
        ("Bearer abc def", Err(Problem::Malformed)),
        ("Bearer abc, Basic def", Err(Problem::Malformed)),
        ("Bearer abc,def", Err(Problem::Malformed)),
        ("Bearer =", Err(Problem::Malformed)),
        ("Bearer a=b", Err(Problem::Malformed)),
        ("Bearer \"abc\"", Err(Problem::Malformed)),
        ("Bearer ab\u{0}c", Err(Problem::Malformed)),
        ("Bearer äbc", Err(Problem::Malformed)),
        ("Bearer:abc", Err(Problem::Malformed)),
        ("Basic", Err(Problem::Malformed)),
        ("DPoP abc", Err(Problem::Proof)),
        ("=", Err(Problem::Malformed)),
        // Schemes that nobody looks for are left alone, whatever stands behind them.
        ("Digest username=\"a\", realm=\"b\"", Ok(None)),
        ("Negotiate", Ok(None)),
        ("Bearerabc", Ok(None)),
        ("abc", Ok(None)),
    ] {
        assert_eq!(authorization(value), expected, "{value:?}");
    }
}

#[test]
fn every_byte_of_a_token_is_looked_at() {
    for length in 1..20 {
        for at in 0..length {
            for byte in 0..=255_u8 {
                let mut value = b"Bearer ".to_vec();
                value.resize(value.len() + length, b'a');
                value[7 + at] = byte;
                let found = find(
                    [(&b"authorization"[..], &value[..])].into_iter(),
                    None,
                    &all(),
                );
                let is_plain = byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
                // Padding, and white space around the value.
                let is_end = at > 0 && at + 1 == length && b"= \t\n\x0c\r".contains(&byte);
                let is_start = at == 0 && length > 1 && byte == b' ';
                let is_good = is_plain || is_end || is_start;
                assert_eq!(found.is_ok(), is_good, "{byte} at {at} of {length}");
            }
        }
    }
}

#[test]
fn a_user_may_be_of_any_encoding() {
    let encoded = Base64::encode_string(b"\xe4nn:\xff");
    let value = format!("Basic {encoded}");
    let fields = [("Authorization", value.as_str())];
    let presented = ask(&fields, "", &all()).unwrap();
    let Some(Credential::Basic(basic)) = presented.credential else {
        panic!("{presented:?}");
    };
    let mut buffer = BasicBuffer::default();
    let decoded = basic.decode(&mut buffer).unwrap();
    assert!(decoded.user == b"\xe4nn" && decoded.password == b"\xff");
}

#[test]
fn what_is_too_long_is_refused() {
    let of =
        |scheme: &str, length: usize| authorization(&format!("{scheme} {}", "a".repeat(length)));
    assert!(of("Bearer", TOKEN_MAX).is_ok());
    assert_eq!(of("Bearer", TOKEN_MAX + 1), Err(Problem::TooLong));
    let basic = |length: usize| {
        let text = format!("a:{}", "b".repeat(length - 2));
        authorization(&format!("Basic {}", Base64::encode_string(text.as_bytes())))
    };
    assert!(
        basic(BASIC_MAX)
            .unwrap()
            .unwrap()
            .starts_with("basic a / b")
    );
    assert_eq!(basic(BASIC_MAX + 1), Err(Problem::TooLong));
    let key = "k".repeat(KEY_MAX + 1);
    assert!(ask(&[("apikey", &key[1..])], "", &all()).is_ok());
    assert_eq!(ask(&[("apikey", &key)], "", &all()), Err(Problem::TooLong));
    let proof = "p".repeat(PROOF_MAX + 1);
    let with = |proof| ask(&[("authorization", "DPoP t"), ("dpop", proof)], "", &all()).map(|_| ());
    assert_eq!(with(&proof[1..]), Ok(()));
    assert_eq!(with(&proof), Err(Problem::Proof));
    let query = format!("access_token={}", "%61".repeat(TOKEN_MAX + 1));
    assert_eq!(ask(&[], &query, &all()), Err(Problem::TooLong));
}

#[test]
fn a_request_has_one_credential() {
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, Result<&'a str, Problem>);
    let cases: [Case<'_>; 20] = [
        (&[], "", Ok("")),
        (&[("X-API-KEY", " itk_1 ")], "", Ok("Field(0) itk_1")),
        (&[], "a=b&api_key=itk%5F1", Ok("Parameter(0) itk_1")),
        (&[], "access%5Ftoken=a%2Bb+c&", Ok("bearer a+b+c")),
        (
            &[],
            "access_token=a&access_token=a",
            Err(Problem::SeveralCredentials),
        ),
        (
            &[],
            "access_token=a&%61ccess_token=b",
            Err(Problem::SeveralCredentials),
        ),
        (&[], "access_token", Err(Problem::Malformed)),
        (&[], "access_token=a%2", Err(Problem::Malformed)),
        (&[], "access_token=%C3%A4", Err(Problem::Malformed)),
        (&[], "api_key=a%20b", Err(Problem::Malformed)),
        (&[], "api_key=a%2", Err(Problem::Malformed)),
        (
            &[],
            "xaccess_token=a&access_tokenx=b&Access_token=c",
            Ok(""),
        ),
        (&[("X-Api-Key", "")], "", Err(Problem::Malformed)),
        (&[("X-Api-Key", "a b")], "", Err(Problem::Malformed)),
        (
            &[("X-Api-Key", "a"), ("x-api-key", "a")],
            "",
            Err(Problem::SeveralCredentials),
        ),
        (
            &[("X-Api-Key", "a"), ("Authorization", "Bearer b")],
            "",
            Err(Problem::SeveralCredentials),
        ),
        (
            &[("Authorization", "Bearer b")],
            "access_token=b",
            Err(Problem::SeveralCredentials),
        ),
        (
            &[("Authorization", "Bearer a"), ("authorization", "Bearer a")],
            "",
            Err(Problem::RepeatedAuthorization),
        ),
        (
            &[
                ("Authorization", "Negotiate a"),
                ("authorization", "Bearer a"),
            ],
            "",
            Err(Problem::RepeatedAuthorization),
        ),
        (
            &[("Authorization", "Negotiate a"), ("apikey", "k")],
            "",
            Ok("Field(1) k"),
        ),
    ];
    for (fields, query, expected) in cases {
        let found = ask(fields, query, &all());
        let found = found.map(|it| it.credential.map(shown).unwrap_or_default());
        assert_eq!(found, expected.map(str::to_owned), "{fields:?} {query}");
    }
}

#[test]
fn a_bound_token_has_one_proof() {
    let with = |proofs: &[&str]| {
        let mut fields = vec![("Authorization", "dpop abc")];
        fields.extend(proofs.iter().map(|it| ("DPoP", *it)));
        ask(&fields, "", &all()).map(|it| it.credential.map(shown))
    };
    assert_eq!(with(&["x.y.z"]), Ok(Some("dpop abc x.y.z".to_owned())));
    for proofs in [&[][..], &["x", "x"], &[""], &["x, y"], &["x y"]] {
        assert_eq!(with(proofs), Err(Problem::Proof), "{proofs:?}");
    }
    // Beside a bearer's token a proof means nothing: the token tells whether it demands one.
    let fields = [("Authorization", "Bearer a"), ("DPoP", "x"), ("DPoP", "y")];
    assert!(ask(&fields, "", &all()).unwrap().credential.is_some());
}

#[test]
fn only_what_is_wanted_is_looked_at() {
    let fields = [
        ("Authorization", ""),
        ("Authorization", "Basic !"),
        ("X-Api-Key", ""),
        ("DPoP", ""),
    ];
    let nothing = ask(&fields, "access_token=&api_key=", &Wanted::default());
    assert_eq!(nothing, Ok(Presented::default()));
    let bearer = of_schemes(&[Scheme::Bearer]);
    let basic = [("Authorization", "Basic !"), ("X-Api-Key", "")];
    assert_eq!(
        ask(&basic, "access_token=a", &bearer),
        Ok(Presented::default())
    );
}

#[test]
fn nothing_is_copied_without_need_and_parameters_are_told() {
    let fields = [("Authorization", "Bearer abc")];
    let header = ask(&fields, "a=b", &all()).unwrap();
    assert!(matches!(
        header.credential,
        Some(Credential::Bearer(Cow::Borrowed(_)))
    ));
    assert_eq!(header.parameter, None);
    let query = "x=1&access_token=abc&y=2";
    let presented = ask(&[], query, &all()).unwrap();
    assert!(matches!(
        presented.credential,
        Some(Credential::Bearer(Cow::Borrowed(_)))
    ));
    assert_eq!(&query[presented.parameter.unwrap()], "access_token=abc");
}

#[test]
fn credentials_are_not_shown() {
    for (name, value) in [
        ("authorization", "Bearer secret"),
        ("authorization", "Basic c2VjcmV0OnNlY3JldA=="),
        ("x-api-key", "secret"),
    ] {
        let fields = [(name, value)];
        let text = format!("{:?}", ask(&fields, "", &all()).unwrap());
        assert!(!text.contains("secret") && !text.contains("115"), "{text}");
    }
}

#[test]
fn places_of_keys_have_fit_names() {
    let mut wanted = Wanted::default();
    for name in ["", "a b", "Authorization", "cookie", "DPoP", "ä", "a:"] {
        assert!(wanted.key_field(name).is_err(), "{name}");
    }
    for name in ["", "access_token", &"a".repeat(101)] {
        assert!(wanted.key_parameter(name).is_err(), "{name}");
    }
    for number in 0..16 {
        let place = wanted.key_field(&format!("k{number}"));
        assert_eq!(place, Ok(KeyPlace::Field(number)));
    }
    assert!(wanted.key_field("k16").is_err());
}

/// Requests of random parts: the number of credentials among them decides, wherever they stand.
#[test]
fn the_number_of_credentials_decides_in_ten_thousand_requests() {
    let wanted = all();
    for seed in 0..10_000 {
        let mut random = Rng::with_seed(seed);
        let (mut fields, mut pairs) = (Vec::new(), Vec::new());
        let (mut credentials, mut authorizations) = (0, 0);
        for _ in 0..random.u8(..5) {
            match random.u8(..7) {
                0 => pairs.push("access_token=t"),
                1 => pairs.push("api%5fkey=k"),
                2 => fields.push(("X-aPI-Key", "k")),
                3 => fields.push(("Authorization", "Bearer t")),
                4 => fields.push(("Authorization", "Unknown !")),
                5 => fields.push(("Accept", "Bearer t")),
                _ => pairs.push("other=t"),
            }
        }
        for (name, value) in &fields {
            authorizations += u32::from(*name == "Authorization");
            credentials += u32::from(matches!(*value, "Bearer t" | "k") && *name != "Accept");
        }
        credentials += pairs
            .iter()
            .map(|it| u32::from(*it != "other=t"))
            .sum::<u32>();
        let query = pairs.join("&");
        let found = ask(&fields, &query, &wanted);
        match (authorizations, credentials) {
            (2.., _) | (_, 2..) => assert!(found.is_err(), "seed {seed}"),
            (_, 1) => assert!(found.unwrap().credential.is_some(), "seed {seed}"),
            _ => assert_eq!(found, Ok(Presented::default()), "seed {seed}"),
        }
    }
}

#[test]
fn challenges_are_those_of_the_ways_and_tell_the_error_where_it_belongs() {
    let challenges = Challenges::new("shop \"1\"", &all()).unwrap();
    let missing = challenges.of(Failure::Credentials);
    let algorithms = "ES256 ES384 ES512 EdDSA PS256 PS384 PS512 RS256 RS384 RS512";
    assert_eq!(
        missing,
        [
            &*format!(r#"DPoP realm="shop \"1\"", algs="{algorithms}""#),
            r#"Bearer realm="shop \"1\"""#,
            r#"Basic realm="shop \"1\"", charset="UTF-8""#,
            r#"ApiKey realm="shop \"1\"", header="X-Api-Key""#,
            r#"ApiKey realm="shop \"1\"", header="apikey""#,
            r#"ApiKey realm="shop \"1\"", query="api_key""#,
        ]
    );
    let errors = |failure| -> Vec<Option<&str>> {
        let schemes = challenges.of(failure).iter().take(3);
        schemes
            .map(|it| it.split_once("error=\"")?.1.split('"').next())
            .collect()
    };
    let token = Some("invalid_token");
    assert_eq!(errors(Failure::Token(Scheme::Bearer)), [None, token, None]);
    assert_eq!(errors(Failure::Token(Scheme::Dpop)), [token, None, None]);
    assert_eq!(errors(Failure::Token(Scheme::Basic)), [None; 3]);
    let proof = Some("invalid_dpop_proof");
    assert_eq!(errors(Failure::Proof), [proof, None, None]);
    assert_eq!(
        errors(Failure::Request(Problem::Proof)),
        [proof, None, None]
    );
    for problem in Problem::ALL {
        let error = match problem.status() {
            400 => Some("invalid_request"),
            _ if problem == Problem::Proof => continue,
            _ => token,
        };
        assert_eq!(errors(Failure::Request(problem)), [error, error, None]);
    }
    let none = Challenges::new("x", &Wanted::default()).unwrap();
    assert!(none.of(Failure::Credentials).is_empty());
    for realm in ["ä", "a\r\nb", &"a".repeat(201)] {
        assert!(Challenges::new(realm, &all()).is_err());
    }
}

#[test]
fn missing_scopes_are_told_to_holders_of_tokens() {
    let wanted = of_schemes(&[Scheme::Bearer, Scheme::Basic]);
    let challenges = Challenges::new("shop", &wanted).unwrap();
    assert_eq!(
        challenges
            .insufficient_scope(&["orders.write", "b:c"])
            .unwrap(),
        [
            "Bearer realm=\"shop\", error=\"insufficient_scope\", error_description=\"The token \
          does not have the scopes that are needed\", scope=\"orders.write b:c\""
        ]
    );
    for scope in ["", "a b", "a\"b", "a\\b", "ä", "a\n"] {
        assert!(
            challenges.insufficient_scope(&["x", scope]).is_err(),
            "{scope:?}"
        );
    }
}
