//! Config structs from YAML, and every problem of a document at once.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::*;
use crate::{ByteSize, Duration, Sources, Spanned, parse};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Server {
    name: Spanned<String>,
    port: u16,
    #[serde(default)]
    idle: Option<Duration>,
    body: Option<ByteSize>,
    #[serde(default)]
    level: Level,
    shade: Option<Shade>,
    tags: Option<Vec<String>>,
    nested: Option<Nested>,
}

#[derive(Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Level {
    #[default]
    Info,
    Debug,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Shade {
    /// As blood.
    Red,
    /// As the sky.
    Blue,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nested {
    ratio: f64,
}

fn decode_text(text: &str) -> (Option<Server>, Vec<String>) {
    let mut sources = Sources::default();
    let mut report = Report::default();
    let id = sources.add("t.yaml", text.as_bytes(), &mut report).unwrap();
    let documents = parse(&sources, id, &mut report);
    let server = decode(&documents[0], &mut report);
    let problems = report.diagnostics().iter().map(|problem| {
        let (line, column) = sources.position(id, problem.span().unwrap().start);
        let hint = problem.hint_text().unwrap_or("-");
        format!(
            "{line}:{column} {} {} | {hint}",
            problem.code(),
            problem.message()
        )
    });
    (server, problems.collect())
}

#[test]
fn a_good_document_becomes_the_struct() {
    let text =
        "name: a\nport: 0x50\nidle: 5s\nbody: 1MiB\nlevel: debug\ntags: [x]\nnested: {ratio: 1}\n";
    let (server, problems) = decode_text(text);
    assert_eq!(problems, Vec::<String>::new());
    let server = server.unwrap();
    assert_eq!((server.name.value.as_str(), server.port), ("a", 80));
    assert_eq!(&text[server.name.span.start..server.name.span.end], "a");
    assert_eq!(server.idle.unwrap().0.as_secs(), 5);
    assert_eq!(server.body.unwrap().0, 1 << 20);
    assert_eq!(
        (server.level, server.nested.unwrap().ratio),
        (Level::Debug, 1.0)
    );
    assert_eq!(server.tags.unwrap(), ["x"]);
}

#[test]
fn all_problems_are_told_with_their_places_and_hints() {
    let (server, problems) = decode_text(
        "nam: a\nport: 70000\nidle: 5\nbody: 1 MB\nlevel: debg\ntags: x\nnested: {ratio: '1'}\n",
    );
    assert!(server.is_none());
    let expected = [
        "1:1 IT0111 unknown key `nam` | did you mean `name`?",
        "2:7 IT0115 70000 is not from 0 to 65535 | -",
        "3:7 IT0116 expected a duration such as `5s`, found a number | \
         say which unit: `5s` or `5ms`",
        "4:7 IT0117 `1 MB` is not a size such as `512B`, `256KiB` or `1MiB` | -",
        "5:8 IT0114 `debg` is not one of `info`, `debug` | did you mean `debug`?",
        "6:7 IT0112 expected a list, found a string | -",
        "7:17 IT0112 expected a number, found a string | -",
        "1:1 IT0113 `name` is missing | -",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn all_values_of_an_enumeration_that_may_be_left_out_are_named() {
    let (_, problems) = decode_text("name: a\nport: 1\nshade: blu\n");
    let expected = "3:8 IT0114 `blu` is not one of `red`, `blue` | did you mean `blue`?";
    assert_eq!(problems, [expected]);
    for (text, is_there) in [("shade: null", false), ("shade: blue", true)] {
        let (server, _) = decode_text(&format!("name: a\nport: 1\n{text}\n"));
        assert_eq!(server.unwrap().shade.is_some(), is_there);
    }
}

#[test]
fn text_that_looks_like_something_else_gets_a_hint() {
    let (_, problems) = decode_text("name: 5\nport: 1\n");
    assert_eq!(
        problems,
        ["1:7 IT0112 expected a string, found a number | put it in quotes: \"5\""]
    );
    let (_, problems) = decode_text("name: true\nport: 1\n");
    assert_eq!(
        problems,
        ["1:7 IT0112 expected a string, found a boolean | put it in quotes: \"true\""]
    );
    let (_, problems) = decode_text("name:\nport: 1\n");
    assert_eq!(
        problems,
        ["1:5 IT0112 expected a string, found nothing | the value is missing"]
    );
}

#[test]
fn the_reference_table_names_every_key() {
    let page = crate::describe::markdown(&schema_for::<Server>());
    for row in [
        "| `name` | string | required |",
        "| `idle` | duration |",
        "| `level` |",
    ] {
        assert!(page.contains(row), "{row} in {page}");
    }
    assert!(page.contains("### `nested`") && page.contains("| `ratio` | number | required |"));
}

#[test]
fn the_reference_table_has_no_names_of_rust_types() {
    let engine = serde_json::json!({ "properties": {
        "server": schema_for::<Server>(),
        "deny": { "type": "object", "title": "DenyConfig", "description": "The deny list." },
    } });
    let page = crate::describe::markdown(&engine);
    assert!(
        page.contains("| `deny` | mapping |  | The deny list. |"),
        "{page}"
    );
    assert!(
        !page.contains("Server") && !page.contains("DenyConfig"),
        "{page}"
    );
}

#[test]
fn the_reference_table_names_what_another_schema_defines() {
    let steps = serde_json::json!({ "properties": {
        "steps": { "type": "array", "items": { "$ref": "#/$defs/step" } },
        "names": { "type": "array", "items": { "$ref": "#/$defs/name" } },
    }, "$defs": { "name": { "type": "string" } } });
    let page = crate::describe::markdown(&steps);
    assert!(page.contains("| `steps` | list of steps |"), "{page}");
    assert!(page.contains("| `names` | list of string |"), "{page}");
}

/// How often the schema of [`Counted`] has been made.
static MADE: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug, Deserialize)]
struct Counted {
    description: String,
}

impl JsonSchema for Counted {
    fn schema_name() -> Cow<'static, str> {
        "Counted".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        MADE.fetch_add(1, Ordering::Relaxed);
        json_schema!({
            "type": "object",
            "description": "Prose.",
            "properties": { "description": { "type": "string", "title": "Prose." } },
            "additionalProperties": false
        })
    }
}

#[test]
fn the_schema_of_a_kind_is_made_once_for_all_documents() {
    let mut sources = Sources::default();
    let mut report = Report::default();
    let text = "description: a\n---\ndescription: b\n---\ndescription: 1\n";
    let id = sources.add("t.yaml", text.as_bytes(), &mut report).unwrap();
    let documents = parse(&sources, id, &mut report);
    let decoded = documents
        .iter()
        .filter_map(|document| decode::<Counted>(document, &mut report))
        .map(|counted| counted.description);
    assert_eq!(decoded.collect::<Vec<_>>(), ["a", "b"]);
    // What is a key of the document stays when the schema's prose is dropped.
    let problems = report.diagnostics().iter().map(|it| it.message());
    assert_eq!(
        problems.collect::<Vec<_>>(),
        ["expected a string, found a number"]
    );
    assert_eq!(MADE.load(Ordering::Relaxed), 1);
}
