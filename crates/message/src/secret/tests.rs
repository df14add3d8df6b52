//! The register is one of the whole process, and tests run side by side: each has values of its
//! own.

use std::borrow::Cow;

use super::*;

#[test]
fn text_without_a_secret_is_left_as_it_is() {
    register("left-alone-secret");
    assert!(matches!(redact("nothing to see"), Cow::Borrowed(_)));
    assert!(matches!(redact_bytes(b"\xff nothing"), Cow::Borrowed(_)));
    assert_eq!(redact(""), "");
}

#[test]
fn a_secret_is_replaced_wherever_it_stands() {
    register("wherever-1");
    assert_eq!(redact("wherever-1"), "***");
    assert_eq!(
        redact("a wherever-1, wherever-1wherever-1 b"),
        "a ***, ****** b"
    );
    assert_eq!(&*redact_bytes(b"\xffwherever-1\xfe"), b"\xff***\xfe");
}

#[test]
fn short_values_are_not_registered() {
    register("q~z");
    register(" q~z ");
    register("");
    assert_eq!(redact("q~z  q~z "), "q~z  q~z ");
    assert!(is_long_enough("äöüß") && !is_long_enough("äöü") && !is_long_enough("ab  "));
}

#[test]
fn secrets_that_overlap_leave_nothing() {
    register_all(["overlap-one-two", "two-three-lap", "one-tw"]);
    assert_eq!(redact("<overlap-one-two-three-lap>"), "<***>");
    assert_eq!(redact("<one-two-three-lap>"), "<***>");
}

#[test]
fn encoded_forms_are_replaced() {
    register("pä/ss +w?rd&<\"1");
    let value = "pä/ss +w?rd&<\"1";
    for encoded in [
        "cMOkL3NzICt3P3JkJjwiMQ==",
        "cMOkL3NzICt3P3JkJjwiMQ",
        "p%C3%A4%2Fss%20%2Bw%3Frd%26%3C%221",
        "p%c3%a4%2fss%20%2bw%3frd%26%3c%221",
        "p%C3%A4%2Fss+%2Bw%3Frd%26%3C%221",
        "p%C3%A4%2Fss%20+w%3Frd&%3C%221",
        "p%C3%A4/ss%20+w?rd&%3C%221",
        "70c3a42f7373202b773f7264263c2231",
        "70C3A42F7373202B773F7264263C2231",
        "pä/ss +w?rd&<\\\"1",
        "pä/ss +w?rd&<\\\\\\\"1",
        "pä/ss +w?rd&amp;&lt;&quot;1",
        "pä/ss +w?rd&amp;&lt;\"1",
        "%70%c3%a4%2f%73%73%20%2b%77%3f%72%64%26%3c%22%31",
        value,
    ] {
        let redacted = redact(encoded);
        assert!(
            ["***", "***=="].contains(&&*redacted),
            "{encoded}: {redacted}"
        );
    }
    let json = serde_json::json!({ "a": format!("x: {value:?}") }).to_string();
    assert_eq!(redact(&json), r#"{"a":"x: \"***\""}"#);
}

#[test]
fn a_secret_within_longer_base64_is_replaced() {
    use base64ct::{Base64, Encoding};
    register("within-base64-secret");
    let whole = Base64::encode_string(b"within-base64-secret");
    for user in ["", "u", "us", "use", "a-long-user-name"] {
        for behind in ["", "b", "be", "behind"] {
            let text = format!("{user}:within-base64-secret{behind}");
            let encoded = Base64::encode_string(text.as_bytes());
            let redacted = redact(&encoded);
            assert!(redacted.contains("***"), "{text}: {redacted}");
            let shown = redacted.len() - 3;
            let others = encoded.len() - whole.len();
            assert!(shown <= others + 4, "{text}: {redacted}");
        }
    }
}

#[test]
fn the_password_of_a_url_counts_by_itself() {
    register("postgres://app:s%40cret-pw@db.example:5432/x");
    assert_eq!(
        redact("login of app with s@cret-pw failed"),
        "login of app with *** failed"
    );
    assert_eq!(redact("s%40cret-pw"), "***");
    assert_eq!(redact("db.example:5432"), "db.example:5432");
}

#[test]
fn lines_of_a_key_count_by_themselves() {
    let line = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg";
    let key = format!("-----BEGIN PRIVATE KEY-----\n{line}\nQm9i\n-----END PRIVATE KEY-----\n");
    register(&key);
    assert_eq!(redact(&key), "***");
    assert_eq!(redact(&format!("key: {key:?}")), "key: \"***\"");
    assert_eq!(redact(line), "***");
    assert_eq!(
        redact("-----BEGIN PRIVATE KEY-----"),
        "-----BEGIN PRIVATE KEY-----"
    );
}

#[test]
fn a_secret_that_was_cut_is_found() {
    register("cut-at-the-end-token");
    assert_eq!(
        redact("a cut-at-the-end-toke b cut-at-the-end- c"),
        "a *** b *** c"
    );
    assert_eq!(redact("cut-at-the-end"), "cut-at-the-end");
    let value: String = (0..200).map(|at| format!("ä{at}")).collect();
    register(&value);
    assert_eq!(redact(&value), "***");
    let cut: String = value.chars().take(150).collect();
    assert_eq!(
        redact(&format!("{cut}... (9000 bytes)")),
        "***... (9000 bytes)"
    );
    // Ends, for bytes, within a character that begins like the next of the secret.
    assert_eq!(redact(&format!("{cut}öx")).replace("öx", "x"), "***x");
}

#[test]
fn names_of_headers_tell_whether_their_values_are_secret() {
    let secret = [
        "Authorization",
        "Proxy-Authorization",
        "Proxy-Status",
        "Cookie",
        "SET-COOKIE",
        "X-Api-Key",
        "apikey",
        "X-Auth-Token",
        "X-Amz-Security-Token",
        "X-Hub-Signature-256",
        "X-CSRF-Token",
        "x-session-id",
        "X-Client-Secret",
        "X-User-Password",
        "X-Goog-Iap-Jwt-Assertion",
        "Ocp-Apim-Subscription-Key",
        "WWW-Authenticate",
        "Credentials",
    ];
    for name in secret {
        assert!(is_secret_header(name.as_bytes()), "{name}");
    }
    for name in [
        "Accept",
        "Host",
        "X-Request-Id",
        "Content-Type",
        "traceparent",
        "X-Proxy",
    ] {
        assert!(!is_secret_header(name.as_bytes()), "{name}");
    }
}
