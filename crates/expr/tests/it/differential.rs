//! Random documents against `serde_json` and an independent slow converter.

use std::fmt::Write;

use expr::convert::{ConvertErrorKind, JsonToXml, XmlToJson};
use fastrand::Rng;
use quick_xml::events::Event;
use serde_json::Value;

fn random_scalar(random: &mut Rng) -> String {
    let scalars = [
        "null",
        "true",
        "false",
        "0",
        "-1.50",
        "1e9",
        "\"\"",
        "\"x\"",
        "\"a<b&c>\\\"\"",
        "\"\\u00e9\\n\"",
        "\"  \"",
        "\"\\ud83d\\ude00\"",
        "12345678901234567890",
    ];
    scalars[random.usize(..scalars.len())].to_owned()
}

fn random_value(random: &mut Rng, depth: usize) -> String {
    let kinds = if depth == 0 { 2 } else { 6 };
    match random.u8(..kinds) {
        0 | 1 => random_scalar(random),
        2 | 3 => {
            let items: Vec<_> = (0..random.u8(..4))
                .map(|_| random_value(random, depth - 1))
                .collect();
            format!("[{}]", items.join(","))
        }
        _ => random_object(random, depth),
    }
}

fn random_object(random: &mut Rng, depth: usize) -> String {
    let names = [
        "a",
        "b",
        "long-name",
        "c",
        "@x",
        "@y",
        "#content",
        " d ",
        "é",
    ];
    let mut members = Vec::new();
    let mut used = Vec::new();
    for _ in 0..random.u8(..5) {
        let name = names[random.usize(..names.len())];
        if used.contains(&name) {
            continue;
        }
        used.push(name);
        let is_scalar = name.starts_with('@') || name == "#content";
        let value = if is_scalar {
            random_scalar(random)
        } else {
            random_value(random, depth - 1)
        };
        members.push(format!("\"{name}\": {value}"));
    }
    format!("{{{}}}", members.join(" , "))
}

/// The rules again, over a tree and without care for speed. None for what cannot be mapped.
fn reference(json: &str) -> Option<String> {
    let value: Value = serde_json::from_str(json).unwrap();
    let mut inner = String::new();
    let mut attributes = String::new();
    let mut wraps = false;
    match &value {
        Value::Object(members) => {
            wraps = members.len() > 1 || members.values().any(Value::is_array);
            let own = members.keys().filter(|key| key.starts_with('@')).count();
            if own > 0 && own == members.len() {
                return None;
            }
            content(members, &mut attributes, &mut inner);
        }
        Value::Array(items) => {
            wraps = true;
            items
                .iter()
                .for_each(|item| element("item", item, &mut inner));
        }
        scalar => inner.push_str(&escape(scalar, false)),
    }
    if !wraps {
        return Some(inner);
    }
    let empty = inner.is_empty();
    Some(if empty {
        format!("<root{attributes}/>")
    } else {
        format!("<root{attributes}>{inner}</root>")
    })
}

fn content(members: &serde_json::Map<String, Value>, attributes: &mut String, inner: &mut String) {
    for (key, value) in members {
        let key = key.trim();
        if let Some(name) = key.strip_prefix('@') {
            write!(attributes, " {name}=\"{}\"", escape(value, true)).unwrap();
        } else if key == "#content" {
            inner.push_str(&escape(value, false));
        } else if let Value::Array(items) = value {
            items.iter().for_each(|item| element(key, item, inner));
        } else {
            element(key, value, inner);
        }
    }
}

fn element(name: &str, value: &Value, out: &mut String) {
    let (mut attributes, mut inner) = (String::new(), String::new());
    let mut forced_open = false;
    match value {
        Value::Object(members) => {
            content(members, &mut attributes, &mut inner);
            forced_open = members.contains_key("#content");
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| element("item", item, &mut inner)),
        scalar => inner = escape(scalar, false),
    }
    if inner.is_empty() && !forced_open {
        write!(out, "<{name}{attributes}/>").unwrap();
    } else {
        write!(out, "<{name}{attributes}>{inner}</{name}>").unwrap();
    }
}

fn escape(value: &Value, is_attribute: bool) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut escaped = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    if is_attribute {
        escaped = escaped.replace('"', "&quot;").replace('\n', "&#10;");
    }
    escaped
}

fn is_well_formed(xml: &str) -> bool {
    let mut reader = quick_xml::Reader::from_str(xml);
    loop {
        match reader.read_event() {
            Ok(Event::Eof) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

#[test]
fn random_documents_give_what_the_slow_converter_gives() {
    let mut random = Rng::with_seed(0x1234_5678_9abc_def1);
    let mut converted = 0;
    for _ in 0..20_000 {
        let json = random_value(&mut random, 5);
        // Numbers that a tree would respell are compared elsewhere.
        if json.contains("1e9") || json.contains("-1.50") || json.contains("1234567890") {
            continue;
        }
        let mut out = Vec::new();
        let found = JsonToXml::default().convert(json.as_bytes(), &mut out);
        match reference(&json) {
            Some(expected) => {
                assert!(found.is_ok(), "{json}: {found:?}");
                let xml = String::from_utf8(out).unwrap();
                assert_eq!(xml, expected, "{json}");
                assert!(is_well_formed(&xml), "{xml}");
                converted += 1;
            }
            None => {
                assert_eq!(
                    found.unwrap_err().kind,
                    ConvertErrorKind::Unmappable,
                    "{json}"
                );
            }
        }
    }
    assert!(converted > 5_000, "{converted}");
}

#[test]
fn mutated_json_is_accepted_exactly_when_serde_json_accepts_it() {
    let mut random = Rng::with_seed(77);
    let alphabet = b"{}[]\",:\\u0123456789abcdefntr -+.eE\x01\xc3\xa9\n";
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..60_000 {
        let mut json = random_value(&mut random, 4).into_bytes();
        for _ in 0..random.u8(..3) {
            let at = random.usize(..=json.len());
            let byte = alphabet[random.usize(..alphabet.len())];
            match random.u8(..3) {
                0 => json.insert(at, byte),
                1 if at < json.len() => json[at] = byte,
                _ => json.truncate(at.max(1)),
            }
        }
        let theirs = serde_json::from_slice::<Value>(&json);
        let mut out = Vec::new();
        match JsonToXml::default().convert(&json, &mut out) {
            Ok(()) => accepted += usize::from(theirs.is_ok()),
            Err(error) if error.kind == ConvertErrorKind::Syntax => refused += 1,
            Err(_) => continue,
        }
        let ours_is_json = !out.is_empty() || theirs.is_ok();
        let text = String::from_utf8_lossy(&json);
        // serde_json refuses numbers beyond f64; we keep their text.
        let huge = theirs
            .as_ref()
            .is_err_and(|error| error.to_string().contains("out of range"));
        assert!(
            huge || ours_is_json == theirs.is_ok() || out.is_empty(),
            "{text}"
        );
        assert!(
            huge || theirs.is_ok() || out.is_empty(),
            "{text}: {theirs:?}"
        );
    }
    assert!(
        accepted > 10_000 && refused > 10_000,
        "{accepted} {refused}"
    );
}

#[test]
fn what_comes_back_from_xml_converts_to_the_same_xml() {
    let mut random = Rng::with_seed(4242);
    let mut compared = 0;
    for _ in 0..10_000 {
        let json = format!("{{\"r\":{}}}", random_object(&mut random, 4));
        let (mut xml, mut back, mut again) = (Vec::new(), Vec::new(), Vec::new());
        if JsonToXml::default()
            .convert(json.as_bytes(), &mut xml)
            .is_err()
        {
            continue;
        }
        XmlToJson::default().convert(&xml, &mut back).expect(&json);
        let value: Value = serde_json::from_slice(&back).expect(&json);
        assert!(value.is_object());
        JsonToXml::default()
            .convert(&back, &mut again)
            .expect(&json);
        // Texts among elements move together, and siblings of one name too: compare from there on.
        let mut third = Vec::new();
        XmlToJson::default()
            .convert(&again, &mut third)
            .expect(&json);
        assert_eq!(
            String::from_utf8_lossy(&back),
            String::from_utf8_lossy(&third),
            "{json}"
        );
        compared += 1;
    }
    assert!(compared > 5_000, "{compared}");
}
