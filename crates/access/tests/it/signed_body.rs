//! Signed bodies, by the examples of those who sign.

use access::signed_body::{Refused, Replay, Replays, Scheme, Secrets};

const NOW: u64 = 1_614_265_330;

/// Judges a request that has these fields, with the body in pieces of this size.
fn judge_in(
    scheme: Scheme,
    secrets: &[&str],
    fields: &[(&str, &str)],
    body: &[u8],
    size: usize,
) -> Result<Vec<u8>, Refused> {
    let secrets = Secrets::of(scheme, secrets).unwrap();
    let values = |name: &str| {
        let same = fields.iter().filter(|(known, _)| *known == name);
        same.map(|(_, value)| value.as_bytes()).collect()
    };
    let mut check = scheme.begin(&values, &secrets, NOW, 300)?;
    for part in body.chunks(size) {
        check.update(part);
    }
    check.end()
}

fn judge(
    scheme: Scheme,
    secret: &str,
    fields: &[(&str, &str)],
    body: &[u8],
) -> Result<Vec<u8>, Refused> {
    judge_in(scheme, &[secret], fields, body, 7)
}

/// The example of GitHub's documentation ("Validating webhook deliveries").
#[test]
fn github() {
    let secret = "It's a Secret to Everybody";
    let right = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let name = "x-hub-signature-256";
    let sign = |value: &str| judge(Scheme::GitHub, secret, &[(name, value)], b"Hello, World!");
    assert!(sign(right).is_ok());
    assert_eq!(sign(&right[7..]), Err(Refused::Malformed));
    assert_eq!(sign(&right.replace("757", "756")), Err(Refused::Signature));
    assert_eq!(
        sign(&right.replace("sha256", "sha1")),
        Err(Refused::Malformed)
    );
    let twice = [(name, right), (name, right)];
    let body = b"Hello, World!";
    assert_eq!(
        judge(Scheme::GitHub, secret, &twice, body),
        Err(Refused::Malformed)
    );
    assert_eq!(
        judge(Scheme::GitHub, secret, &[], body),
        Err(Refused::Missing)
    );
    let other = judge(Scheme::GitHub, secret, &[(name, right)], b"Hello, World?");
    assert_eq!(other, Err(Refused::Signature));
}

/// The example of Standard Webhooks' specification.
#[test]
fn standard_webhooks() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let body = br#"{"test": 2432232314}"#;
    let right = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    let sign = |id: &str, time: &str, signature: &str| {
        let fields = [
            ("webhook-id", id),
            ("webhook-timestamp", time),
            ("webhook-signature", signature),
        ];
        judge(Scheme::StandardWebhooks, secret, &fields, body)
    };
    assert_eq!(sign(id, "1614265330", right), Ok(id.as_bytes().to_vec()));
    let many = format!("v1a,xyz v1,bm90IHRoaXMgb25l {right} v2,abc");
    assert!(sign(id, "1614265330", &many).is_ok());
    assert_eq!(
        sign("another", "1614265330", right),
        Err(Refused::Signature)
    );
    assert_eq!(sign(id, "1614265331", right), Err(Refused::Signature));
    assert_eq!(sign(id, "1614265029", right), Err(Refused::Time));
    assert_eq!(sign(id, "1614265631", right), Err(Refused::Time));
    for time in [
        "",
        "-1",
        "+1614265330",
        " 1614265330",
        "1e9",
        "99999999999999999999",
    ] {
        assert_eq!(sign(id, time, right), Err(Refused::Malformed), "{time:?}");
    }
    let pointed = "v1,LyDcKpDSnovzQ3pSaRXTbEDs4KCQmeW97Qzn7lghjJ8=";
    let id_with_points = "order.created.7f3a";
    assert!(sign(id_with_points, "1614265330", pointed).is_ok());
    // Signed as `msg_a` at 1614265330 with a body that begins with `1614265331.`
    let moved = "v1,NH4edsz/w7u/jc2W+f9KYraxWuqKCwlOyZCgz1jem1I=";
    let forged = sign("msg_a.1614265330", "1614265331", moved);
    assert_eq!(forged, Err(Refused::Malformed));
    assert_eq!(sign(id, "1614265330", "v1,"), Err(Refused::Malformed));
}

/// Made by the rule of Stripe's documentation, with another implementation of HMAC.
#[test]
fn stripe() {
    let (secret, body) = ("whsec_0123456789abcdef", br#"{"id":"evt_1"}"#);
    let right = "34f017bf8044d05e4e4879c690a6c11041da9a74edc01942c74cbad716012799";
    let sign = |value: &str| judge(Scheme::Stripe, secret, &[("stripe-signature", value)], body);
    assert!(sign(&format!("t=1614265330,v1={right}")).is_ok());
    assert!(
        sign(&format!(
            "t=1614265330, v1={}, v1={right},v0=x",
            "0".repeat(64)
        ))
        .is_ok()
    );
    assert_eq!(
        sign(&format!("t=1614265331,v1={right}")),
        Err(Refused::Signature)
    );
    assert_eq!(
        sign(&format!("t=1614265330,v0={right}")),
        Err(Refused::Malformed)
    );
    assert_eq!(sign(&format!("v1={right}")), Err(Refused::Malformed));
    let twice = format!("t=1614265330,t=1614265330,v1={right}");
    assert_eq!(sign(&twice), Err(Refused::Malformed));
    assert_eq!(
        sign(&format!("t=1614000000,v1={right}")),
        Err(Refused::Time)
    );
}

/// Made by the rule of Slack's documentation, with another implementation of HMAC.
#[test]
fn slack() {
    let (secret, body) = (
        "8f742231b10e8888abcd99yyyzzz85a5",
        b"token=xyzz0&team_id=T1DC2JH3J",
    );
    let right = "e1bbd067ff75419ac98fd50ce2e71551cd1b9adc481405f05f1c1753b2b5978f";
    let sign = |time: &str, signature: &str| {
        let fields = [
            ("x-slack-request-timestamp", time),
            ("x-slack-signature", signature),
        ];
        judge(Scheme::Slack, secret, &fields, body)
    };
    assert!(sign("1614265330", &format!("v0={right}")).is_ok());
    assert_eq!(
        sign("1614265331", &format!("v0={right}")),
        Err(Refused::Signature)
    );
    assert_eq!(
        sign("1614265330", &format!("v1={right}")),
        Err(Refused::Malformed)
    );
    assert_eq!(
        sign("1614260000", &format!("v0={right}")),
        Err(Refused::Time)
    );
}

#[test]
fn the_size_of_pieces_does_not_matter_and_old_secrets_are_taken_too() {
    let (old, new) = (
        "It's a Secret to Everybody",
        "another secret of some length",
    );
    let right = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let fields = [("x-hub-signature-256", right)];
    for size in 1..14 {
        let body = b"Hello, World!";
        assert!(judge_in(Scheme::GitHub, &[new, old], &fields, body, size).is_ok());
        let refused = judge_in(Scheme::GitHub, &[new], &fields, body, size);
        assert_eq!(refused, Err(Refused::Signature));
    }
}

#[test]
fn secrets_that_could_be_guessed_are_refused() {
    for (scheme, secret) in [
        (Scheme::GitHub, ""),
        (Scheme::Slack, "fifteen letters"),
        (Scheme::StandardWebhooks, "whsec_c2hvcnQ="),
        (Scheme::StandardWebhooks, "whsec_no base64"),
    ] {
        assert!(Secrets::of(scheme, &[secret]).is_err(), "{secret}");
    }
    assert!(Secrets::of(Scheme::GitHub, &[]).is_err());
}

/// While a sender changes secrets it signs by both: a copy with only one of the signatures is the
/// same request.
#[test]
fn a_request_is_the_same_by_whichever_secret() {
    let (old, new) = ("whsec_0123456789abcdef", "whsec_fedcba9876543210");
    let body = br#"{"id":"evt_1"}"#;
    let sign = |secret: &str| {
        use aws_lc_rs::hmac;
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let signed = [b"1614265330.".as_slice(), body].concat();
        let tag = hmac::sign(&key, &signed);
        let digits: Vec<String> = tag.as_ref().iter().map(|it| format!("{it:02x}")).collect();
        digits.concat()
    };
    let both = format!("t=1614265330,v1={},v1={}", sign(old), sign(new));
    let judge = |value: &str| {
        let fields = [("stripe-signature", value)];
        judge_in(Scheme::Stripe, &[old, new], &fields, body, 5).unwrap()
    };
    let all = judge(&both);
    assert_eq!(judge(&format!("t=1614265330,v1={}", sign(old))), all);
    assert_eq!(judge(&format!("t=1614265330,v1={}", sign(new))), all);
}

/// A signature is valid from 300 s before its time to 300 s behind it, both ends with it.
#[test]
fn a_request_is_taken_once_while_its_signature_is_valid() {
    let mut replays = Replays::new(300, 3);
    assert_eq!(replays.take(b"a", 1000), Replay::New);
    assert_eq!(replays.take(b"a", 1600), Replay::Seen);
    assert_eq!(
        replays.take(b"a", 900),
        Replay::Seen,
        "the clock was put back"
    );
    assert_eq!(
        replays.take(b"a", 1601),
        Replay::New,
        "no signature fits any more"
    );
    assert_eq!(replays.take(b"b", 1601), Replay::New);
    assert_eq!(replays.take(b"c", 1602), Replay::New);
    assert_eq!(replays.take(b"d", 1602), Replay::Full);
    assert_eq!(replays.take(b"c", 1602), Replay::Seen);
    replays.forget(b"c");
    assert_eq!(replays.take(b"c", 1603), Replay::New);
    assert_eq!(replays.take(b"d", 2203), Replay::New);
}

/// A back end that is down has every request forgotten again.
#[test]
fn what_is_forgotten_takes_no_room() {
    let mut replays = Replays::new(300, 10);
    for number in 0..10_000_u32 {
        let identity = number.to_be_bytes();
        assert_eq!(replays.take(&identity, 1000), Replay::New);
        replays.forget(&identity);
    }
    assert_eq!(replays.take(b"a", 1000), Replay::New);
    assert_eq!(replays.take(b"a", 1000), Replay::Seen);
}
