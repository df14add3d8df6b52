//! Walks the table of cases that `docs/json-xml.md` shows parts of.

use expr::convert::{ConvertError, ConvertErrorKind, JsonToXml, Root, XmlRoot, XmlToJson};
use serde_json::Value;

fn kind_name(kind: ConvertErrorKind) -> &'static str {
    match kind {
        ConvertErrorKind::Syntax => "syntax",
        ConvertErrorKind::Unmappable => "unmappable",
        ConvertErrorKind::TooDeep => "too deep",
        ConvertErrorKind::TooLarge => "too large",
        ConvertErrorKind::Forbidden => "forbidden",
        ConvertErrorKind::Stopped => "stopped",
    }
}

fn text(result: Result<(), ConvertError>, out: Vec<u8>) -> Result<String, (String, String)> {
    match result {
        Ok(()) => Ok(String::from_utf8(out).unwrap()),
        Err(error) => {
            assert!(out.is_empty(), "an error leaves nothing behind");
            Err((kind_name(error.kind).to_owned(), error.path))
        }
    }
}

fn to_xml(options: &JsonToXml, json: &str) -> Result<String, (String, String)> {
    let mut out = Vec::new();
    let result = options.convert(json.as_bytes(), &mut out);
    text(result, out)
}

fn to_json(options: &XmlToJson, xml: &str) -> Result<String, (String, String)> {
    let mut out = Vec::new();
    let result = options.convert(xml.as_bytes(), &mut out);
    text(result, out)
}

#[test]
fn every_case_of_the_table_holds() {
    let table: Vec<Value> =
        serde_json::from_str(include_str!("../json_xml_cases.json")).expect("the table is JSON");
    assert!(table.len() >= 120, "{} cases", table.len());
    for case in &table {
        let field = |name: &str| case.get(name).and_then(Value::as_str);
        let (input, found) = match (field("json"), field("from_xml")) {
            (Some(json), _) => (json, to_xml(&JsonToXml::default(), json)),
            (None, Some(xml)) => (xml, to_json(&XmlToJson::default(), xml)),
            (None, None) => panic!("a case without input: {case}"),
        };
        match (field("xml").or(field("to_json")), field("error")) {
            (Some(expected), None) => assert_eq!(found.as_deref(), Ok(expected), "{input}"),
            (None, Some(kind)) => {
                let (found_kind, path) = found.expect_err(input);
                assert_eq!(found_kind, kind, "{input}");
                if let Some(expected) = field("path") {
                    assert_eq!(path, expected, "{input}");
                }
            }
            _ => panic!("a case without expectation: {case}"),
        }
    }
}

#[test]
fn options_change_names_and_the_root() {
    let named = JsonToXml {
        root: Root::Named("order".to_owned()),
        item: "line".to_owned(),
        attribute_prefix: "-".to_owned(),
        text_key: "$".to_owned(),
        declaration: true,
        ..JsonToXml::default()
    };
    let declaration = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";
    for (json, xml) in [
        ("{\"a\":1}", "<order><a>1</a></order>"),
        ("{\"-v\":1}", "<order v=\"1\"/>"),
        ("[1]", "<order><line>1</line></order>"),
        ("5", "<order>5</order>"),
        ("null", "<order/>"),
        (
            "{\"a\":{\"-x\":1,\"$\":2}}",
            "<order><a x=\"1\">2</a></order>",
        ),
    ] {
        assert_eq!(
            to_xml(&named, json),
            Ok(format!("{declaration}{xml}")),
            "{json}"
        );
    }
    let dropped = XmlToJson {
        root: XmlRoot::Drop,
        arrays: vec!["line".to_owned()],
        numbers: true,
        attribute_prefix: "-".to_owned(),
        text_key: "$".to_owned(),
        ..XmlToJson::default()
    };
    for (xml, json) in [
        ("<o><line>1</line></o>", "{\"line\":[1]}"),
        ("<o a='true'>1.50</o>", "{\"-a\":true,\"$\":1.50}"),
        (
            "<o><n>007</n><n>-1e5</n><n>x</n></o>",
            "{\"n\":[\"007\",-1e5,\"x\"]}",
        ),
        ("<o/>", "null"),
    ] {
        assert_eq!(to_json(&dropped, xml), Ok(json.to_owned()), "{xml}");
    }
}

#[test]
fn limits_are_kept() {
    let deep = JsonToXml {
        depth_max: 3,
        ..JsonToXml::default()
    };
    assert!(to_xml(&deep, "{\"a\":{\"b\":{\"c\":1}}}").is_ok());
    assert_eq!(
        to_xml(&deep, "{\"a\":{\"b\":{\"c\":{}}}}").unwrap_err().0,
        "too deep"
    );
    let small = JsonToXml {
        output_max: 20,
        ..JsonToXml::default()
    };
    assert_eq!(
        to_xml(&small, &format!("[{}1]", "1,".repeat(50)))
            .unwrap_err()
            .0,
        "too large"
    );
    let deep = XmlToJson {
        depth_max: 2,
        ..XmlToJson::default()
    };
    assert_eq!(
        to_json(&deep, "<a><b><c/></b></a>").unwrap_err().0,
        "too deep"
    );
    let small = XmlToJson {
        output_max: 20,
        ..XmlToJson::default()
    };
    let xml = format!("<a>{}</a>", "<b>1</b>".repeat(50));
    assert_eq!(to_json(&small, &xml).unwrap_err().0, "too large");
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let mut out = Vec::new();
    assert!(
        JsonToXml::default()
            .convert(b"{\"a\":\"\xff\"}", &mut out)
            .is_err()
    );
    assert!(
        XmlToJson::default()
            .convert(b"<a>\xff</a>", &mut out)
            .is_err()
    );
    assert!(
        XmlToJson::default()
            .convert(b"\xff\xfe<\0a\0/\0>\0", &mut out)
            .is_err()
    );
    assert!(out.is_empty());
}
