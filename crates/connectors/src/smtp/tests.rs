//! Mails as whoever stands in for the server sees them, and every problem with its place.

use super::connection;
use super::mail::DEFINITION;
use crate::testing::{StandIn, body, build, connect, exchange, run};

const REST: &str = "from: shop@example.com, subject: Hi, text: Hello";

#[test]
fn a_mail_is_shown_with_all_its_parts() {
    let yaml = "{ via: post, from: 'The shop <shop@example.com>', to: { list: '${ .to }' }, \
                cc: [a@example.com, 'B <b@example.com>'], subject: 'Order ${ .id }', \
                text: 'Hello', html: '<b>Hello</b>', headers: { X-Order: '${ .id }' }, \
                attachments: [{ name: '${ .id }.csv', type: text/csv, content: 'a,b' }] }";
    let step = build(&DEFINITION, yaml).unwrap();
    assert!(step.waits() && step.reads_body());
    let mut message = exchange(r#"{"id":7,"to":["x@example.com","y@example.com"]}"#);
    let services = StandIn::says(200, "{}");
    run(&*step, &mut message, &services).unwrap();
    let (verb, connection, seen) = services.seen.take().remove(0);
    assert_eq!((verb.as_str(), connection.as_str()), ("mail", "post"));
    let expected = r#"{"from":"The shop <shop@example.com>","to":["x@example.com","y@example.com"],"subject":"Order 7","cc":["a@example.com","B <b@example.com>"],"text":"Hello","html":"<b>Hello</b>","attachments":[{"name":"7.csv","type":"text/csv","content":"a,b"}],"headers":{"X-Order":"7"}}"#;
    assert_eq!(seen, expected);
    assert!(body(&mut message).contains("message_id"));
}

#[test]
fn nothing_that_is_no_line_gets_into_a_head() {
    let cases = [
        (
            "to: '${ .v }'",
            r#"{"v":"a@example.com\r\nBcc: b@example.com"}"#,
            "invalid",
        ),
        ("to: '${ .v }'", r#"{"v":7}"#, "invalid"),
        ("to: '${ .v }'", r#"{"v":[]}"#, "invalid"),
        (
            "to: '${ .v }'",
            r#"{"v":["a@example.com","b@example.com"]}"#,
            "invalid",
        ),
        ("to: '${ .v }'", r#"{"v":["a@example.com"]}"#, "invalid"),
        (
            "to: a@example.com, bcc: [b@example.com, '${ .v }']",
            r#"{"v":["c@example.com"]}"#,
            "invalid",
        ),
        (
            "to: { list: '${ .v }' }",
            r#"{"v":"a@example.com"}"#,
            "invalid",
        ),
        (
            "to: { list: '${ .v }' }",
            r#"{"v":[["a@example.com"]]}"#,
            "invalid",
        ),
        (
            "to: a@example.com, headers: { X-A: '${ .v }' }",
            r#"{"v":"a\nb"}"#,
            "invalid",
        ),
        (
            "to: a@example.com, attachments: [{ name: '${ .v }', content: '' }]",
            r#"{"v":"a\r\nX: y"}"#,
            "invalid",
        ),
    ];
    for (yaml, message, expected) in cases {
        let yaml = format!("{{ via: post, {REST}, {yaml} }}");
        let step = build(&DEFINITION, &yaml).unwrap();
        let services = StandIn::says(200, "{}");
        let fault = run(&*step, &mut exchange(message), &services).unwrap_err();
        assert_eq!(fault.name(), expected, "{yaml}");
        assert!(services.seen.take().is_empty());
    }
}

#[cfg(feature = "smtp")]
#[test]
fn no_value_adds_a_recipient_or_a_line() {
    use super::letter::write;
    use super::mail::Made;
    let made = |to: &str| Made {
        from: "shop@example.com".into(),
        to: vec![to.to_owned()],
        subject: "å".into(),
        text: Some("x".into()),
        ..Made::default()
    };
    let services = StandIn::default();
    for to in [
        "a@example.com, b@example.com",
        "a@example.com; b@example.com",
        "a@example.com b@example.com",
        "<a@example.com> <b@example.com>",
        "a@example.com>, <b@example.com",
        "group: a@example.com, b@example.com;",
        "a@example.com\r\nRCPT TO:<b@example.com>",
        "a",
        "",
    ] {
        let fault = write(&made(to), &services)
            .err()
            .unwrap_or_else(|| panic!("{to} is taken"));
        assert_eq!(fault.name(), "invalid", "{to}");
    }
    let mut mail = made("\"b@example.com, c\" <a@example.com>");
    mail.bcc = vec!["hidden@example.com".to_owned()];
    mail.headers = vec![("X-A".to_owned(), "å".repeat(100))];
    let letter = write(&mail, &services).unwrap();
    assert_eq!(letter.envelope.to().len(), 2);
    let text = String::from_utf8(letter.bytes).unwrap();
    assert!(text.is_ascii() && !text.contains("hidden"), "{text}");
    assert!(text.lines().all(|line| line.len() < 100), "{text}");
    assert!(letter.id.ends_with("@example.com>"), "{}", letter.id);
}

#[test]
fn every_problem_has_its_place() {
    let cases: &[(&str, &[&str])] = &[
        ("via: mq, to: a@example.com, text: x", &["IT0292"]),
        ("via: post, to: a@example.com", &["IT0470 1:1"]),
        ("via: post, to: [], text: x", &["IT0470"]),
        ("via: post, to: 7, text: x", &["IT0470"]),
        ("via: post, to: { list: a }, text: x", &["IT0470"]),
        ("via: post, to: { some: '${ . }' }, text: x", &["IT0470"]),
        ("via: post, to: [a@example.com, 7], text: x", &["IT0470"]),
        (
            "via: post, to: a, text: x, headers: { Bcc: b }",
            &["IT0470"],
        ),
        (
            "via: post, to: a, text: x, headers: { 'A b': b }",
            &["IT0470"],
        ),
        ("via: post, to: a, text: x, headers: [1]", &["IT0470"]),
        (
            "via: post, to: a, text: x, attachments: [{ name: a, type: csv }]",
            &["IT0470"],
        ),
    ];
    for (yaml, expected) in cases {
        let yaml = format!("{{ {yaml}, from: s@example.com, subject: x }}");
        let found = build(&DEFINITION, &yaml).err().unwrap_or_default();
        assert_eq!(found.len(), expected.len(), "{yaml}: {found:?}");
        for (found, expected) in found.iter().zip(*expected) {
            assert!(found.starts_with(expected), "{yaml}: {found}");
        }
    }
}

#[test]
fn servers_are_read_and_passwords_never_sent_in_clear_text() {
    let found = connect(&connection::DEFINITION, "{ smtp: 'smtp://u:passw@h' }").unwrap();
    let found = found.downcast::<connection::Smtp>().ok().unwrap();
    assert_eq!((found.server.port, found.starttls), (587, true));
    let found = connect(&connection::DEFINITION, "{ smtp: 'smtps://h' }").unwrap();
    let found = found.downcast::<connection::Smtp>().ok().unwrap();
    assert_eq!((found.server.port, found.starttls), (465, false));
    for (yaml, expected) in [
        ("{ smtp: 'smtp://u:passw@h', starttls: off }", "IT0471 1:39"),
        ("{ smtp: 'smtps://h', starttls: required }", "IT0471 1:32"),
        (
            "{ smtp: 'smtp://h', starttls: off, tls: {} }",
            "IT0298 1:41",
        ),
        ("{ smtp: 'smtp://h/x' }", "IT0290 1:9"),
        ("{ smtp: 'smtp://u@h' }", "IT0290 1:9"),
        ("{ smtp: 'http://h' }", "IT0290 1:9"),
        ("{ smtp: 'smtp://h', pool: 0 }", "IT0291 1:27"),
        ("{ smtp: 'smtp://h', timeout: 1h }", "IT0291 1:30"),
    ] {
        let found = connect(&connection::DEFINITION, yaml)
            .err()
            .unwrap_or_default();
        assert_eq!(found.len(), 1, "{yaml}: {found:?}");
        assert!(found[0].starts_with(expected), "{yaml}: {found:?}");
    }
}
