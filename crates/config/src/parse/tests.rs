//! Trees and their places, and YAML that is broken or hostile.

use fastrand::Rng;

use super::*;
use crate::codes::Code;

fn parse_text(text: &str) -> (Vec<Node>, Vec<(Code, String)>) {
    let mut sources = Sources::default();
    let mut report = Report::default();
    let id = sources.add("t.yaml", text.as_bytes(), &mut report).unwrap();
    let documents = parse(&sources, id, &mut report);
    let problems = report.diagnostics().iter().map(|problem| {
        let (line, column) = sources.position(id, problem.span().unwrap().start);
        (
            problem.code(),
            format!("{line}:{column} {}", problem.message()),
        )
    });
    (documents, problems.collect())
}

fn codes_of(text: &str) -> Vec<&'static str> {
    parse_text(text)
        .1
        .into_iter()
        .map(|(code, _)| code.as_str())
        .collect()
}

#[test]
fn values_keep_their_types_and_places() {
    let text = "a: 1\r\nb: [x, 'ä: y', null]\r\n200: {c: true}\n---\n---\nd: |\n  two\n  lines\n";
    let (documents, problems) = parse_text(text);
    assert_eq!(problems, []);
    assert_eq!(documents.len(), 2, "an empty document is left out");
    let json = documents[0].to_json().to_string();
    assert_eq!(json, r#"{"a":1,"b":["x","ä: y",null],"200":{"c":true}}"#);
    assert_eq!(
        documents[1].get("d").unwrap().as_str(),
        Some("two\nlines\n")
    );
    let item = &documents[0].get("b").unwrap().as_sequence().unwrap()[1];
    assert_eq!(&text[item.span.start..item.span.end], "'ä: y'");
    let behind = documents[0].entry("200").unwrap();
    assert_eq!(
        &text[behind.key_span.start..behind.key_span.end],
        "200",
        "bytes, not characters"
    );
}

#[test]
fn surrogate_escapes_of_json_are_characters_in_double_quotes_only() {
    let text = r#"{"a": "x\ud83d\uDE00\u00e4", "b": [1, "\\ud83d\\ude00"], "c": "\U0001F600"}"#;
    let (documents, problems) = parse_text(text);
    assert_eq!(problems, []);
    let json = documents[0].to_json();
    let expected: serde_json::Value =
        serde_json::from_str(&text.replace("\\U0001F600", "😀")).unwrap();
    assert_eq!(json, expected);
    let c = documents[0].entry("c").unwrap();
    assert_eq!(
        &text[c.key_span.start..c.key_span.end],
        "\"c\"",
        "places are those of the file"
    );

    let text = "ä: \\ud83d\\ude00 '\\U0001F600\n\
                b: '\\ud83d\\ude00'\nc: |\n  \\uD83D\\ude00 \\ud83d\\ude00\nd: \"\\ud83d\\ude00\"\n";
    let (documents, problems) = parse_text(text);
    assert_eq!(problems, []);
    let text_of = |key: &str| documents[0].get(key).unwrap().as_str().unwrap();
    assert_eq!(text_of("ä"), "\\ud83d\\ude00 '\\U0001F600");
    assert_eq!(text_of("b"), "\\ud83d\\ude00");
    assert_eq!(text_of("c"), "\\uD83D\\ude00 \\ud83d\\ude00\n");
    assert_eq!(text_of("d"), "😀");

    for alone in [
        r#"a: "\ud83d""#,
        r#"a: "\ude00\ud83d""#,
        r#"a: "\ud83dx\ude00""#,
    ] {
        assert_eq!(codes_of(alone), ["IT0103"], "{alone}");
    }
}

#[test]
fn aliases_stand_for_their_values() {
    let (documents, problems) = parse_text("a: &x {k: 1}\nb: *x\nc: [*x, *x]\n");
    assert_eq!(problems, []);
    let json = documents[0].to_json().to_string();
    assert_eq!(json, r#"{"a":{"k":1},"b":{"k":1},"c":[{"k":1},{"k":1}]}"#);
}

#[test]
fn each_refusal_has_its_code_and_place() {
    let cases = [
        ("a: 1\nb: 2\na: 3\n", "IT0106", "3:1"),
        ("? [a]\n: 1\n", "IT0107", "1:3"),
        ("a: !include x\n", "IT0108", "1:"),
        ("b: {<<: {c: 1}}\n", "IT0109", "1:5"),
        ("a: .inf\n", "IT0110", "1:4"),
        ("a: 1e999\n", "IT0110", "1:4"),
        ("a: [1, 2\nb: 3\n", "IT0103", "2:"),
        ("a: b: c\n", "IT0103", "1:"),
        ("a: \"open\n", "IT0103", ""),
        ("a:\n\tb: 2\n", "IT0103", ""),
        ("a: *none\n", "IT0103", "1:"),
        ("a: &x [*x]\n", "IT0105", "1:8"),
    ];
    for (text, code, place) in cases {
        let (_, problems) = parse_text(text);
        let (found, message) = problems
            .first()
            .unwrap_or_else(|| panic!("{text:?} is taken"));
        assert_eq!(found.as_str(), code, "{text:?}");
        assert!(message.starts_with(place), "{text:?}: {message}");
    }
    assert_eq!(codes_of("a: !!str 5\n"), Vec::<&str>::new());
}

#[test]
fn depth_and_number_of_values_are_bounded() {
    assert_eq!(codes_of(&"[".repeat(100_000)), ["IT0104"]);
    assert_eq!(codes_of(&"{a: ".repeat(5_000)), ["IT0104"]);
    assert_eq!(
        codes_of(&format!("{}1{}", "[".repeat(65), "]".repeat(65))),
        ["IT0104"]
    );
    assert_eq!(
        codes_of(&format!("{}1{}", "[".repeat(64), "]".repeat(64))),
        Vec::<&str>::new()
    );
    let block: String = (0..3000)
        .map(|at| format!("{}a:\n", " ".repeat(at)))
        .collect();
    assert_eq!(codes_of(&block[..block.len().min(1_000_000)]), ["IT0104"]);
    assert_eq!(codes_of(&"- ".repeat(20_000)), ["IT0104"]);
    let laughs: String = (1..15)
        .map(|at| {
            format!(
                "a{at}: &a{at} [{}]\n",
                vec![format!("*a{}", at - 1); 9].join(",")
            )
        })
        .collect();
    assert_eq!(codes_of(&format!("a0: &a0 x\n{laughs}")), ["IT0105"]);
    let deep: String = (1..100)
        .map(|at| format!("a{at}: &a{at} [*a{}]\n", at - 1))
        .collect();
    assert_eq!(codes_of(&format!("a0: &a0 x\n{deep}")), ["IT0104"]);
}

#[test]
fn random_bytes_and_mutations_never_panic() {
    let sample =
        "flow: a\nfrom: { http: 'GET /x' }\nsteps:\n  - &s reply: { body: \"ü\\n\" }\n  - *s\n";
    let mut random = Rng::with_seed(0x9e37_79b9_7f4a_7c15);
    for _ in 0..20_000 {
        let mut bytes = sample.as_bytes().to_vec();
        for _ in 0..random.u8(1..=4) {
            let at = random.usize(..bytes.len());
            match random.u8(..3) {
                0 => bytes[at] = random.u8(..),
                1 => bytes.insert(at, b"{}[]&*!|>'\"%@`#,:-?\t\n \0"[random.usize(..23)]),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let mut sources = Sources::default();
        let mut report = Report::default();
        if let Some(id) = sources.add("t.yaml", &bytes, &mut report) {
            parse(&sources, id, &mut report);
        }
        report.render(&sources, false);
    }
}
