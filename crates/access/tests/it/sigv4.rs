//! The published test suite of AWS Signature Version 4; `tests/data/aws_sig_v4_test_suite.json` has
//! all of its requests, with what they are made of on the way. Its licence lies beside it.

use access::sigv4::{Request, Signer, hash};
use serde_json::Value;

/// The parts of a request as the suite writes it: a field's line may go on in the next one.
fn parse(text: &str) -> (&str, &str, Vec<(String, String)>, &str) {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let (line, fields) = head.split_once('\n').unwrap();
    let (method, rest) = line.split_once(' ').unwrap();
    let (target, _) = rest.rsplit_once(' ').unwrap();
    let mut lines: Vec<(String, String)> = Vec::new();
    for line in fields.lines() {
        match line.split_once(':').filter(|_| !line.starts_with(' ')) {
            Some((name, value)) => lines.push((name.to_owned(), value.to_owned())),
            None => {
                let last = lines.last_mut().unwrap();
                last.1 = format!("{}\n{line}", last.1);
            }
        }
    }
    (method, target, lines, body)
}

#[test]
fn the_published_suite_is_signed_as_published() {
    let suite = include_str!("../data/aws_sig_v4_test_suite.json");
    let suite: Vec<Value> = serde_json::from_str(suite).unwrap();
    assert_eq!(suite.len(), 34);
    let signer = Signer::new(
        "AKIDEXAMPLE",
        "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        "us-east-1",
        "service",
    );
    let time = "20150830T123600Z";
    for case in &suite {
        let text = |name: &str| case[name].as_str().unwrap();
        let name = text("name");
        let (method, target, mut fields, body) = parse(text("request"));
        if name == "get-vanilla-with-session-token" {
            // Of the credentials, which go into the request before it is signed.
            let token = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";
            fields.push(("X-Amz-Security-Token".to_owned(), token.to_owned()));
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let fields: Vec<(&str, &[u8])> = fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        let payload = hash(body.as_bytes());
        let request = Request {
            method,
            path: path.as_bytes(),
            query: query.as_bytes(),
            fields: &fields,
            payload: &payload,
        };
        let canonical = signer.canonical(&request);
        assert_eq!(
            String::from_utf8_lossy(&canonical),
            text("canonical"),
            "{name}"
        );
        let signed = signer.string_to_sign(&canonical, time);
        assert_eq!(signed, text("string_to_sign"), "{name}");
        let value = signer.authorization(&request, time);
        assert_eq!(value, text("authorization"), "{name}");
    }
}
