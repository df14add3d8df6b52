//! Tests of `validate`.

use crate::testing::{FILES, FakeServices, LAST, assert_problems, build, exchange, run, sound};
use std::sync::atomic::AtomicBool;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use component::step::{Next, Progress, Step};
use message::Fault;

mod suite;

use super::DEFINITION;
use super::metered::{Budget, Metered, MeteredJson};

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn check(step: &dyn Step, body: &str) -> Result<(), Fault> {
    let mut exchange = exchange(&[JSON], body.as_bytes());
    match run(step, &mut exchange, &FakeServices::default())? {
        Next::Continue => Ok(()),
        other => panic!("{other:?}"),
    }
}

fn detail(step: &dyn Step, body: &str) -> String {
    let fault = check(step, body).expect_err(body);
    assert_eq!((fault.name(), fault.status), ("invalid", 400), "{fault}");
    fault.detail.into_owned()
}

fn schema(yaml: &str) -> Box<dyn Step> {
    sound(&DEFINITION, &format!("schema: {yaml}"))
}

const ORDER: &str = r#"{ type: object, required: [id], additionalProperties: false, properties: {
    id: { type: string, maxLength: 5 }, at: { type: string, format: date-time },
    lines: { type: array, items: { properties: { qty: { type: integer, minimum: 0 } } } } } }"#;

#[test]
fn what_fits_goes_on_as_it_is() {
    let step = schema(ORDER);
    let body = r#"{"id": "a", "at": "2026-01-01T00:00:00Z", "lines": [{"qty": 1.0}]}"#;
    let mut message = exchange(&[JSON], body.as_bytes());
    assert!(run(&*step, &mut message, &FakeServices::default()).is_ok());
    assert_eq!(message.content.raw(), Some(body.as_bytes()));
    assert!(step.reads_body() && !step.waits() && !step.ends_flow());
}

#[test]
fn what_does_not_fit_is_told_with_its_place() {
    let step = schema(ORDER);
    for (body, expected) in [
        (
            r#"{"id": "a", "lines": [{"qty": -1}]}"#,
            "/lines/0/qty: -1 is less than the minimum of 0",
        ),
        (r#"{}"#, "the body: \"id\" is a required property"),
        ("", "the body: null is not of type \"object\""),
        (
            r#"{"id": "abcdef"}"#,
            "/id: \"abcdef\" is longer than 5 characters",
        ),
        (
            r#"{"id": "a", "at": "noon"}"#,
            "/at: \"noon\" is not a \"date-time\"",
        ),
        (
            r#"{"id": 7, "lines": 8}"#,
            "/id: 7 is not of type \"string\"; /lines: 8 is not of type \"array\"",
        ),
        (
            r#"{"id": "a", "x~/\n": 1}"#,
            "the body: Additional properties are not allowed ('x~/\\n' was unexpected)",
        ),
    ] {
        assert_eq!(detail(&*step, body), expected, "{body}");
    }
}

#[test]
fn as_many_errors_are_told_as_asked_for_and_none_is_long() {
    let step = sound(
        &DEFINITION,
        "{ schema: { items: { type: string } }, max_errors: 2 }",
    );
    assert_eq!(
        detail(&*step, "[1, 2, 3]"),
        "/0: 1 is not of type \"string\"; /1: 2 is not of type \"string\"; and more"
    );
    assert!(!detail(&*step, "[1, 2]").contains("more"));
    let long = format!("[[\"{}\"]]", "x".repeat(100_000));
    let told = detail(&*step, &long);
    assert!(told.len() < 120 && told.contains("x..."), "{told}");
    let name = format!("{{\"{}\": 1}}", "y".repeat(100_000));
    let closed = schema("{ additionalProperties: false }");
    assert!(detail(&*closed, &name).len() < 400);
    let deep = schema("{ additionalProperties: { type: string } }");
    assert!(detail(&*deep, &name).len() < 800);
}

#[test]
fn a_body_that_cannot_be_read_is_invalid_before_any_schema() {
    let step = schema("true");
    let fault = check(&*step, "{").unwrap_err();
    assert_eq!((fault.name(), fault.status), ("invalid", 400));
    let mut bytes = exchange(&[], b"\xff");
    let fault = run(&*step, &mut bytes, &FakeServices::default()).unwrap_err();
    assert_eq!(fault.detail, "the body is bytes, not JSON, XML or text");
    let mut packed = exchange(&[JSON, ("Content-Encoding", "gzip")], b"x");
    let fault = run(&*step, &mut packed, &FakeServices::default()).unwrap_err();
    assert_eq!(fault.status, 415);
}

#[test]
fn forms_and_xml_are_checked_as_their_values() {
    let step = schema("{ type: object, required: [a] }");
    for (media_type, body, fits) in [
        ("application/x-www-form-urlencoded", "a=1", true),
        ("application/x-www-form-urlencoded", "b=1", false),
        ("application/xml", "<a>1</a>", true),
        ("application/xml", "<b>1</b>", false),
    ] {
        let mut message = exchange(&[("Content-Type", media_type)], body.as_bytes());
        let result = run(&*step, &mut message, &FakeServices::default());
        assert_eq!(result.is_ok(), fits, "{body}");
    }
}

#[test]
fn numbers_keep_their_meaning() {
    let whole = schema("{ type: integer }");
    for body in [
        "1",
        "-0",
        "1.0",
        "1e3",
        "18446744073709551615",
        "1e400",
        "99999999999999999999",
    ] {
        assert!(check(&*whole, body).is_ok(), "{body}");
    }
    assert!(check(&*whole, "1.5").is_err());
    let small = schema("{ maximum: 9007199254740992 }");
    assert!(check(&*small, "9007199254740992").is_ok());
    assert!(check(&*small, "9007199254740993").is_err());
    assert!(check(&*small, "1e400").is_err());
    assert!(check(&*small, "-1e400").is_ok());
}

#[test]
fn every_draft_is_known_by_its_name() {
    for (draft, items) in [
        ("http://json-schema.org/draft-04/schema#", "items"),
        ("http://json-schema.org/draft-06/schema#", "items"),
        ("http://json-schema.org/draft-07/schema#", "items"),
        ("https://json-schema.org/draft/2019-09/schema", "items"),
        (
            "https://json-schema.org/draft/2020-12/schema",
            "prefixItems",
        ),
    ] {
        let step = schema(&format!(
            "{{ $schema: \"{draft}\", {items}: [{{ type: string }}] }}"
        ));
        assert!(check(&*step, "[\"a\", 1]").is_ok(), "{draft}");
        assert!(check(&*step, "[1]").is_err(), "{draft}");
    }
}

#[test]
fn references_reach_within_the_schema_only() {
    let step = schema(
        "{ $defs: { node: { properties: { next: { $ref: \"#/$defs/node\" }, \
         v: { type: integer } } } }, $ref: \"#/$defs/node\" }",
    );
    assert!(check(&*step, r#"{"next": {"next": {"v": 1}}}"#).is_ok());
    assert!(detail(&*step, r#"{"next": {"v": ""}}"#).starts_with("/next/v: "));
    for reference in [
        "http://example.com/a.json",
        "https://example.com/a.json#/x",
        "./other.json",
        "file:///etc/passwd",
        "#/not/there",
    ] {
        let yaml = format!("schema: {{ $ref: \"{reference}\" }}");
        let problems = build(&DEFINITION, &yaml, LAST).err().unwrap();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("IT0270 1:9 "), "{problems:?}");
    }
}

#[test]
fn a_deep_body_is_checked_to_its_end() {
    let step = schema(
        "{ $defs: { node: { oneOf: [{ type: integer }, { type: array, items: \
         { $ref: \"#/$defs/node\" } }] } }, $ref: \"#/$defs/node\" }",
    );
    for (inner, fits) in [("1", true), ("\"x\"", false)] {
        let body = format!("{}{inner}{}", "[".repeat(255), "]".repeat(255));
        assert_eq!(check(&*step, &body).is_ok(), fits, "{inner}");
    }
    let mut deep = expr::value::integer(1);
    for _ in 0..600 {
        deep = expr::value::array([deep]);
    }
    let mut message = exchange(&[], b"");
    message.set_value(deep);
    let fault = run(&*step, &mut message, &FakeServices::default()).unwrap_err();
    assert_eq!(fault.detail, "the body is nested too deep");
}

/// A tree of nodes of two kinds: each branch of `anyOf` reaches the children again.
const TREE: &str = r##"{ $ref: "#/$defs/node", $defs: { node: { anyOf: [
    { properties: { kind: { const: leaf }, child: { $ref: "#/$defs/node" } } },
    { properties: { kind: { const: group }, child: { $ref: "#/$defs/node" } } } ] } } }"##;

fn tree(depth: usize, kind: &str) -> String {
    let groups = "{\"kind\":\"group\",\"child\":".repeat(depth);
    format!("{groups}{{\"kind\":\"{kind}\"}}{}", "}".repeat(depth))
}

#[test]
fn errors_of_recursive_alternatives_are_bounded() {
    let step = schema(TREE);
    assert!(check(&*step, &tree(200, "leaf")).is_ok());
    // 2 to the power of 30 errors, were all of them made.
    for depth in [3, 30, 200] {
        let told = detail(&*step, &tree(depth, "other"));
        assert!(told.starts_with("the body"), "{told}");
        assert!(told.contains("schema"), "{told}");
        assert!(told.len() < 500, "{told}");
    }
}

#[test]
fn errors_with_long_paths_are_bounded() {
    let step = schema("{ additionalProperties: { items: { type: string } } }");
    let name = "n".repeat(500_000);
    let body = format!("{{\"{name}\":[1{}]}}", ",1".repeat(100_000));
    let told = detail(&*step, &body);
    assert!(told.contains("is not of type"), "{told}");
    assert!(told.ends_with("; and more"), "{told}");
    assert!(told.len() < 10_000, "{}", told.len());
}

/// The result of a check that moves off the worker.
fn check_long(step: &dyn Step, body: &str) -> Result<(), Fault> {
    let mut exchange = exchange(&[JSON], body.as_bytes());
    let services = FakeServices::default();
    match step.run(&mut exchange, &services) {
        Progress::Done(_) => panic!("done on the worker"),
        Progress::Waits(future) => services.run_to_end(future).map(drop),
    }
}

#[test]
fn what_takes_long_leaves_the_worker() {
    let step = schema("{ items: { items: { type: integer, minimum: 0 } } }");
    let rows = |last: &str| {
        let row = format!("[{}0],", "0,".repeat(99));
        format!("[{}[{last}]]", row.repeat(3000))
    };
    assert!(check_long(&*step, &rows("0")).is_ok());
    let fault = check_long(&*step, &rows("-1")).unwrap_err();
    assert_eq!(fault.detail, "/3000/0: -1 is less than the minimum of 0");
}

/// Twenty that were ready at once, of some milliseconds each, held others up for all of them
/// together.
#[test]
fn behind_a_long_check_others_wait_for_their_turns() {
    let step = schema("{ items: { type: integer } }");
    let rows = format!("[{}0]", "0,".repeat(30_000));
    let long_ago = Instant::now() - Duration::from_secs(1);
    component::long_work::note_piece(long_ago);
    let mut large = exchange(&[JSON], rows.as_bytes());
    let services = FakeServices::default();
    let Progress::Waits(mut future) = step.run(&mut large, &services) else {
        panic!("it has not waited for its turn");
    };
    let mut context = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_pending());
    assert!(services.run_to_end(future).is_ok());
    assert!(check(&*step, "[1, 2]").is_ok());
    let mut small = exchange(&[JSON], b"[1, 2]");
    let progress = step.run(&mut small, &services);
    assert!(
        matches!(progress, Progress::Done(Ok(_))),
        "it needs no turn"
    );
    let mut wrong = exchange(&[JSON], b"[1, \"2\"]");
    let progress = step.run(&mut wrong, &services);
    assert!(
        matches!(progress, Progress::Done(Err(_))),
        "nor does one that is invalid"
    );
}

#[test]
fn a_check_ends_when_nobody_waits_for_it() {
    let value = serde_json::to_value(vec![vec!["a"; 1000]; 1000]).unwrap();
    let stop = AtomicBool::new(true);
    let budget = Budget::new(u64::MAX, Duration::from_secs(3600), false).unless(&stop);
    let node = Metered::new(&value, &budget);
    let validator = jsonschema::options_for::<MeteredJson>();
    let schema = serde_json::json!({ "items": { "items": { "type": "number" } } });
    let validator = validator.build(&schema).unwrap();
    assert!(validator.iter_errors(node).count() < 300);
    assert!(budget.is_exhausted() && budget.is_late());
}

#[test]
fn patterns_that_go_back_leave_the_worker() {
    // Each text costs 100,000 tries of the pattern: seconds, for all of them.
    let step = schema("{ items: { pattern: \"^(?=(a+)+$)\" } }");
    let texts = (0..10_000).map(|it| format!("\"{}-{it}\",", "a".repeat(40)));
    let body = format!("[{}1]", texts.collect::<String>());
    let mut exchange = exchange(&[JSON], body.as_bytes());
    let services = FakeServices::default();
    let progress = step.run(&mut exchange, &services);
    assert!(matches!(progress, Progress::Waits(_)));
}

#[test]
fn only_patterns_that_go_back_are_slow() {
    for (pattern, is_slow) in [
        (r"^[A-Z]{2}(?:-[0-9]+)*$", false),
        (r"^\d+\.\w{3,}$", false),
        (r"^(?=a)b", true),
        (r"(?<!a)b", true),
        (r"(a)\1", true),
        (r"a++b", true),
    ] {
        let schema = serde_json::json!({ "properties": { "pattern": { "pattern": pattern } } });
        assert_eq!(super::has_slow_patterns(&schema), is_slow, "{pattern}");
        let schema = serde_json::json!({ "items": [{ "patternProperties": { pattern: {} } }] });
        assert_eq!(super::has_slow_patterns(&schema), is_slow, "{pattern}");
    }
}

#[test]
fn comparing_elements_with_each_other_is_paid_for() {
    let value = serde_json::json!([["a", "b"], ["a", "c"]]);
    let schema = serde_json::json!({ "uniqueItems": true });
    let validator = jsonschema::options_for::<MeteredJson>().build(&schema);
    let validator = validator.unwrap();
    for (steps, is_exhausted) in [(4, true), (100, false)] {
        let budget = Budget::new(steps, Duration::from_secs(60), false);
        assert!(validator.is_valid(Metered::new(&value, &budget)));
        assert_eq!(budget.is_exhausted(), is_exhausted, "{steps}");
    }
}

#[test]
fn names_of_domains_outside_ascii_are_checked() {
    let step = schema("{ properties: { h: { format: idn-hostname }, m: { format: idn-email } } }");
    assert!(
        check(
            &*step,
            r#"{"h": "bücher.example", "m": "ä@bücher.example"}"#
        )
        .is_ok()
    );
    for body in [r#"{"h": "〮한국.example"}"#, r#"{"m": "2962"}"#] {
        assert!(detail(&*step, body).contains("is not a \"idn-"), "{body}");
    }
}

/// The documentation lists the formats that are checked: each of them is, and no other is.
#[test]
fn the_formats_of_the_documentation_are_checked() {
    const WRONG: [(&str, &str); 19] = [
        ("date", "2026-02-30"),
        ("date-time", "2026-02-30T00:00:00Z"),
        ("time", "25:00:00Z"),
        ("duration", "P"),
        ("email", "a"),
        ("idn-email", "ä"),
        ("hostname", "-a"),
        ("idn-hostname", "-ä"),
        ("ipv4", "1.2.3.256"),
        ("ipv6", "1::2::3"),
        ("uri", "a b"),
        ("uri-reference", "a b"),
        ("uri-template", "{"),
        ("iri", "ä b"),
        ("iri-reference", "ä b"),
        ("uuid", "2eb8aa08"),
        ("json-pointer", "a"),
        ("relative-json-pointer", "a"),
        ("regex", "("),
    ];
    let text = include_str!("../validate.md");
    let (_, text) = text
        .split_once("`format` is checked, not only noted:")
        .unwrap();
    let (text, _) = text.split_once("Any other format says nothing.").unwrap();
    let listed: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    let known: Vec<&str> = WRONG.iter().map(|(format, _)| *format).collect();
    let sorted = |mut names: Vec<&'static str>| {
        names.sort_unstable();
        names
    };
    assert_eq!(sorted(listed), sorted(known));
    for (format, wrong) in WRONG {
        let step = schema(&format!("{{ format: {format} }}"));
        let body = format!("\"{wrong}\"");
        assert!(detail(&*step, &body).contains(format), "{format}");
    }
    for other in ["color", "phone", "semver", "iso-duration"] {
        let step = schema(&format!("{{ format: {other} }}"));
        assert!(check(&*step, "\"a b (\"").is_ok(), "{other}");
    }
}

#[test]
fn a_pattern_cannot_take_for_ever() {
    let step = schema("{ pattern: \"^(?=(a+)+$)(a|a)*b$\" }");
    let text = format!("\"{}\"", "a".repeat(5000));
    assert!(detail(&*step, &text).len() < 500);
}

#[test]
fn schemas_of_files_are_read_when_the_flow_is_loaded() {
    assert!(FILES.iter().any(|(name, _)| *name == "order.json"));
    let step = schema("order.json");
    assert!(detail(&*step, "{}").contains("\"id\" is a required property"));
}

#[test]
fn problems_are_told_at_their_places() {
    assert_problems(
        &DEFINITION,
        &[
            ("order.json", &["IT0112 1:1"]),
            (
                "{ schema: 7 }",
                &["IT0270 1:11 a schema is a mapping or the path of a file, not a number"],
            ),
            ("{}", &["IT0113 1:1"]),
            ("{ schema: true, max: 1 }", &["IT0111 1:17"]),
            (
                "{ schema: true, max_errors: 0 }",
                &["IT0250 1:29 `max_errors` is 0, outside its range"],
            ),
            (
                "schema:\n  properties:\n    a: { type: strin }",
                &[
                    "IT0270 3:16 \"strin\" is not valid under any of the schemas listed in the 'anyOf' keyword",
                ],
            ),
            (
                "schema:\n  properties:\n    a: { pattern: \"(\" }",
                &["IT0270 3:19 \"(\" is not a \"regex\""],
            ),
            (
                "schema: missing.json",
                &["IT0271 1:9 cannot read `missing.json`: missing.json is not there"],
            ),
            (
                "schema: broken.json",
                &[
                    "IT0270 1:9 `broken.json` is not JSON: EOF while parsing an object at line 2 column 0",
                ],
            ),
            (
                "schema: wrong.json",
                &[
                    "IT0270 1:9 `wrong.json`, /properties/a/minimum: \"x\" is not of type \"number\"",
                ],
            ),
        ],
    );
}

#[test]
fn many_small_nodes_are_not_copied_at_one_go() {
    let copied = |count: usize| {
        let value = expr::value::array((0..count).map(|_| expr::value::integer(1)));
        super::json_at_once(&value, super::AT_ONCE).is_ok_and(|it| it.is_some())
    };
    // The list is a node, too.
    let most = super::AT_ONCE / super::NODE - 1;
    assert!(copied(most) && !copied(most + 1));
}
