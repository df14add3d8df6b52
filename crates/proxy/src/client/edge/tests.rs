//! What replies get, own ones and those that are relayed.

use component::security_headers::Preset;

use super::*;

fn fields(varies: bool) -> ReplyFields {
    let cors = vec![("Access-Control-Allow-Origin", b"https://a.example".to_vec())];
    ReplyFields {
        cors: Some(cors),
        varies,
        security: None,
        is_secure: false,
    }
}

fn headers(lines: &[(&str, &str)]) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in lines {
        headers.append(name, value);
    }
    headers
}

fn shown(headers: &Headers) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let lines = headers.view().iter();
    lines
        .map(|(_, name, value)| format!("{}: {}", text(name), text(value)))
        .collect()
}

#[test]
fn own_replies_have_one_policy_and_say_once_that_they_vary() {
    type Line = (&'static str, &'static str);
    let cases: &[(&[Line], &[&str])] = &[
        (&[], &["Vary: Origin"]),
        (&[("vary", "Accept")], &["vary: Accept", "Vary: Origin"]),
        (&[("Vary", "Accept, origin")], &["Vary: Accept, origin"]),
        (&[("Vary", "*")], &["Vary: *"]),
        (&[("access-control-allow-origin", "*")], &["Vary: Origin"]),
    ];
    for (lines, expected) in cases {
        let mut headers = headers(lines);
        fields(true).put_into(&mut headers);
        let mut shown = shown(&headers);
        shown.retain(|line| line != "Access-Control-Allow-Origin: https://a.example");
        assert_eq!(shown, *expected);
    }
    let mut headers = headers(&[]);
    fields(false).put_into(&mut headers);
    assert_eq!(headers.get("Vary"), None);
}

#[test]
fn relayed_replies_keep_what_the_plan_changes_but_for_the_policy() {
    let plan = FieldEdits {
        remove: vec!["Server".to_owned()],
        set: vec![
            ("access-control-allow-origin".to_owned(), "*".to_owned()),
            ("X-Own".to_owned(), "1".to_owned()),
        ],
        ..FieldEdits::default()
    };
    let relayed = headers(&[("Vary", "Accept"), ("Vary", "Cookie")]);
    let edits = fields(true).edits(&plan, relayed.view());
    let expected = [
        ("X-Own", "1"),
        ("Access-Control-Allow-Origin", "https://a.example"),
        ("Vary", "Accept, Cookie, Origin"),
    ];
    let set = |edits: &FieldEdits| edits.set.clone();
    let owned = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(set(&edits), owned);
    assert!(edits.drops(b"server") && edits.drops(b"ACCESS-CONTROL-MAX-AGE"));
    for vary in ["Origin", "Accept,ORIGIN", "*"] {
        let relayed = headers(&[("vary", vary)]);
        let edits = fields(true).edits(&FieldEdits::default(), relayed.view());
        assert!(!edits.drops(b"vary"), "{vary}");
    }
    let removed = FieldEdits {
        remove: vec!["Vary".to_owned()],
        ..FieldEdits::default()
    };
    let edits = fields(true).edits(&removed, relayed.view());
    assert_eq!(
        edits.set.last().unwrap().1,
        "Origin",
        "what the plan removes is gone"
    );
}

#[test]
fn the_back_ends_own_security_headers_win_unless_they_are_replaced() {
    let mut security = SecurityHeaders::from(Preset::Api);
    let of = |security: &SecurityHeaders| ReplyFields {
        cors: None,
        varies: false,
        security: Some(Arc::new(security.clone())),
        is_secure: false,
    };
    let relayed = headers(&[
        ("cache-control", "max-age=5"),
        ("X-FRAME-OPTIONS", "SAMEORIGIN"),
    ]);
    let edits = of(&security).edits(&FieldEdits::default(), relayed.view());
    assert!(!edits.drops(b"Cache-Control") && !edits.drops(b"X-Frame-Options"));
    assert!(edits.drops(b"Referrer-Policy"));
    assert!(!edits.drops(b"Strict-Transport-Security"), "in clear text");
    let mut own = relayed.clone();
    of(&security).put_into(&mut own);
    assert_eq!(own.get("Cache-Control"), Some(&b"max-age=5"[..]));
    assert_eq!(own.get("Referrer-Policy"), Some(&b"no-referrer"[..]));
    let plan = FieldEdits {
        remove: vec!["X-Frame-Options".to_owned()],
        set: vec![("Cache-Control".to_owned(), "private".to_owned())],
        ..FieldEdits::default()
    };
    let edits = of(&security).edits(&plan, relayed.view());
    let set = |edits: &FieldEdits, name: &str| {
        let found = edits.set.iter().filter(|it| it.0 == name);
        found.map(|it| it.1.clone()).collect::<Vec<_>>()
    };
    assert_eq!(set(&edits, "Cache-Control"), ["private"], "the flow's own");
    assert_eq!(
        set(&edits, "X-Frame-Options"),
        ["DENY"],
        "the back end's is removed"
    );
    security.replaces = true;
    let edits = of(&security).edits(&plan, relayed.view());
    assert_eq!(set(&edits, "Cache-Control"), ["no-store"]);
    of(&security).put_into(&mut own);
    assert_eq!(own.get("Cache-Control"), Some(&b"no-store"[..]));
    assert_eq!(
        shown(&own)
            .iter()
            .filter(|it| it.starts_with("cache-control"))
            .count(),
        0
    );
}
