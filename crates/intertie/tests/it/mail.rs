//! Flows and a real mail server.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use serde_json::Value as Json;
use testkit::servers::{MailServer, Security};
use testkit::{Authority, Issued, Response, TempDir, free_port};

use crate::support::{Engine, post};

fn issued() -> (Authority, Issued) {
    let authority = Authority::new("mail-test");
    let issued = authority.issue(&["127.0.0.1"]);
    (authority, issued)
}

/// An engine with one flow that sends a mail for each request.
fn serve(folder: &TempDir, connection: &str, mail: &str) -> (Engine, u16) {
    let port = free_port();
    let text = format!(
        "flow: post\nuse: {{ post: {connection} }}\nfrom: {{ http: POST :{port}/ }}\nsteps:\n\
         \x20 - mail: {{ via: post, from: 'Shöp <shop@example.com>', {mail} }}\n"
    );
    folder.write("flow.yaml", &text);
    (Engine::run(&[folder.path()], &[]), port)
}

fn give(port: u16, body: &Json) -> Response {
    post(port, "/", "application/json", &body.to_string())
}

fn mails(server: &MailServer) -> Vec<Json> {
    let texts = server.mails().into_iter();
    texts
        .map(|text| serde_json::from_str(&text).unwrap())
        .collect()
}

fn header(mail: &Json, name: &str) -> String {
    let headers = mail["headers"].as_array().unwrap();
    let found = headers
        .iter()
        .find(|it| it[0].as_str().unwrap().eq_ignore_ascii_case(name));
    found.map_or_else(String::new, |it| it[1].as_str().unwrap().to_owned())
}

fn content(part: &Json) -> Vec<u8> {
    let text = part["content"].as_str().unwrap();
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

#[test]
fn a_mail_with_all_parts_arrives_over_starttls() {
    let (authority, issued) = issued();
    let server = MailServer::start(Security::StartTls, &issued);
    let folder = TempDir::new();
    folder.write("ca.pem", authority.pem());
    let connection = format!(
        "{{ smtp: 'smtp://shop:pass%2Fword1@127.0.0.1:{}', tls: {{ ca: ca.pem }} }}",
        server.port()
    );
    let mail = "to: { list: '${ .to }' }, bcc: hidden@example.com, reply_to: answers@example.com, \
                subject: '${ .subject }', text: '${ .text }', html: '<p>${ .text | @html }</p>', \
                headers: { X-Order: '${ .order }' }, attachments: [{ name: 'räksmörgås.bin', \
                type: application/zip, content: '${ .file | @base64d }' }, { name: all.json, \
                type: application/json }]";
    let (engine, port) = serve(&folder, &connection, mail);
    let text = "Grüße!\r\n.\r\n.. dots\r\nFrom here <on>\r\n".to_owned() + &"long ".repeat(500);
    let message = serde_json::json!({
        "to": ["a@example.com", "Bée <b@example.com>"], "subject": "Blåbär 🫐 ".repeat(20).trim(),
        "text": text, "order": "7-å", "file": "aGVsbG8A/3+A",
    });
    for _ in 0..2 {
        let reply = give(port, &message);
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(reply.text().contains("@example.com>"), "{}", reply.text());
    }
    let mails = mails(&server);
    assert_eq!(mails.len(), 2);
    let mail = &mails[0];
    assert_eq!(mail["encrypted"], true);
    assert_eq!(mail["defects"], serde_json::json!([]));
    assert_eq!(mail["from"], "shop@example.com");
    let to = serde_json::json!(["a@example.com", "b@example.com", "hidden@example.com"]);
    assert_eq!(mail["to"], to);
    assert_eq!(header(mail, "From"), "Shöp <shop@example.com>");
    assert_eq!(header(mail, "To"), "a@example.com, Bée <b@example.com>");
    assert_eq!(header(mail, "Reply-To"), "answers@example.com");
    assert_eq!(header(mail, "X-Order"), "7-å");
    assert_eq!(header(mail, "Bcc"), "");
    assert_eq!(
        header(mail, "Subject"),
        message["subject"].as_str().unwrap()
    );
    assert_ne!(header(mail, "Message-ID"), header(&mails[1], "Message-ID"));
    assert!(!header(mail, "Date").is_empty());
    let parts = mail["parts"].as_array().unwrap();
    let types: Vec<&str> = parts
        .iter()
        .map(|it| it["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        types,
        [
            "text/plain",
            "text/html",
            "application/zip",
            "application/json"
        ]
    );
    let plain = String::from_utf8(content(&parts[0])).unwrap();
    assert_eq!(plain.trim_end(), text.trim_end());
    assert!(
        String::from_utf8(content(&parts[1]))
            .unwrap()
            .contains("&lt;on&gt;")
    );
    assert_eq!(parts[2]["name"], "räksmörgås.bin");
    assert_eq!(content(&parts[2]), b"hello\0\xff\x7f\x80");
    assert_eq!(content(&parts[3]), message.to_string().into_bytes());
    engine.stop();
}

#[test]
fn users_and_certificates_are_checked_and_passwords_not_told() {
    let (authority, issued) = issued();
    let server = MailServer::start(Security::Tls, &issued);
    let plain = MailServer::start(Security::Plain, &issued);
    let folder = TempDir::new();
    folder.write("ca.pem", authority.pem());
    let port = free_port();
    let tls = server.port();
    let connections = [
        (
            "good",
            format!("'smtps://shop:pass%2Fword1@127.0.0.1:{tls}', tls: {{ ca: ca.pem }}"),
        ),
        (
            "wrong",
            format!("'smtps://shop:wrong-pass1@127.0.0.1:{tls}', tls: {{ ca: ca.pem }}"),
        ),
        (
            "stranger",
            format!("'smtps://shop:pass%2Fword1@127.0.0.1:{tls}'"),
        ),
        (
            "naked",
            format!("'smtp://shop:pass%2Fword1@127.0.0.1:{}'", plain.port()),
        ),
        ("down", format!("'smtps://127.0.0.1:{}'", free_port())),
        (
            "off",
            format!("'smtp://127.0.0.1:{}', starttls: off", plain.port()),
        ),
    ];
    let mut text = "engine: {}\nuse:\n".to_owned();
    for (name, connection) in &connections {
        text.push_str(&format!("  {name}: {{ smtp: {connection} }}\n"));
    }
    for (name, _) in &connections {
        text.push_str(&format!(
            "---\nflow: {name}\nfrom: {{ http: POST :{port}/{name} }}\nsteps:\n  - mail: {{ via: \
             {name}, from: s@example.com, to: a@example.com, subject: x, text: y }}\n"
        ));
    }
    folder.write("flow.yaml", &text);
    let engine = Engine::run(&[folder.path()], &[]);
    for (name, _) in &connections {
        let reply = post(port, &format!("/{name}"), "application/json", "{}");
        let expected = if ["good", "off"].contains(name) {
            200
        } else {
            502
        };
        assert_eq!(reply.status, expected, "{name}: {}", reply.text());
    }
    assert_eq!((server.mails().len(), plain.mails().len()), (1, 1));
    let log = engine.stop();
    for name in ["wrong", "stranger", "naked", "down"] {
        assert!(
            log.contains(&format!("connection `{name}`")),
            "{name}: {log}"
        );
    }
    assert!(
        log.contains("UnknownIssuer") && log.contains("does not offer STARTTLS"),
        "{log}"
    );
    assert!(
        !log.contains("word1") && !log.contains("wrong-pass1"),
        "{log}"
    );
    assert!(!log.contains("cGFzcy93b3JkMQ"), "{log}");
}

#[test]
fn refusals_are_told_apart_and_nothing_is_injected() {
    let (_, issued) = issued();
    let server = MailServer::start(Security::Plain, &issued);
    let folder = TempDir::new();
    let connection = format!(
        "{{ smtp: 'smtp://127.0.0.1:{}', starttls: off }}",
        server.port()
    );
    let mail = "to: '${ .to }', cc: { list: '${ .cc // [] }' }, subject: '${ .subject }', \
                text: '${ .text }'";
    let (engine, port) = serve(&folder, &connection, mail);
    let send = |to: Json, subject: &str, text: &str| {
        give(
            port,
            &serde_json::json!({ "to": to, "subject": subject, "text": text }),
        )
        .status
    };
    assert_eq!(send("nobody@example.com".into(), "x", "y"), 502);
    assert_eq!(send("later@example.com".into(), "x", "y"), 503);
    let both = serde_json::json!({
        "to": "a@example.com", "cc": ["nobody@example.com"], "subject": "x", "text": "y",
    });
    assert_eq!(give(port, &both).status, 502, "all or nobody");
    for list in [
        serde_json::json!(["a@example.com", "b@example.com"]),
        serde_json::json!(["a@example.com"]),
    ] {
        assert_eq!(send(list, "x", "y"), 400, "a value adds no recipient");
    }
    assert_eq!(send("å@example.com".into(), "x", "y"), 400, "no SMTPUTF8");
    for to in [
        "a@example.com, b@example.com",
        "a@example.com\r\nRCPT TO:<b@example.com>",
        "a@example.com> NOTIFY=SUCCESS <b@example.com",
        "not an address",
    ] {
        assert_eq!(send(to.into(), "x", "y"), 400, "{to}");
    }
    assert_eq!(
        send("a@example.com".into(), "x\r\nBcc: b@example.com", "y"),
        400
    );
    assert_eq!(server.mails().len(), 0);
    let text = "y\r\n.\r\nMAIL FROM:<evil@example.com>\r\nRCPT TO:<b@example.com>\r\nDATA\r\nz";
    assert_eq!(send("a@example.com".into(), "x", text), 200);
    for _ in 0..3 {
        assert_eq!(send("a@example.com".into(), "x", "\n.\nQUIT"), 200);
    }
    let mails = mails(&server);
    assert_eq!(mails.len(), 4);
    assert!(
        mails
            .iter()
            .all(|mail| mail["to"] == serde_json::json!(["a@example.com"]))
    );
    let log = engine.stop();
    assert!(
        log.contains("no such recipient") && log.contains("connection `post`"),
        "{log}"
    );
}

/// A server that says something in clear text behind its consent to TLS, as somebody on the wire
/// would (the attack of RFC 3207, section 6).
#[test]
fn what_follows_the_consent_to_tls_in_clear_text_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let say = |text: &str, stream: &mut BufReader<std::net::TcpStream>| {
                stream.get_mut().write_all(text.as_bytes()).unwrap();
                let _ = stream.read_line(&mut String::new());
            };
            say("220 hello\r\n", &mut stream);
            say("250-hello\r\n250 STARTTLS\r\n", &mut stream);
            say("220 go on\r\n250 AUTH PLAIN\r\n", &mut stream);
        }
    });
    let folder = TempDir::new();
    let connection = format!("{{ smtp: 'smtp://shop:pass-word@127.0.0.1:{server}' }}");
    let mail = "to: a@example.com, subject: x, text: y";
    let (engine, port) = serve(&folder, &connection, mail);
    assert_eq!(give(port, &serde_json::json!({})).status, 502);
    let log = engine.stop();
    assert!(log.contains("more than was asked, in clear text"), "{log}");
}
