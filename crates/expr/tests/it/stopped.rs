//! What reads, writes or converts a large body ends soon after nobody waits for it any more: the
//! flag of `stoppable` is looked at every 64 KiB or so.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use expr::convert::{ConvertErrorKind, JsonToXml, XmlToJson};
use expr::jq::stoppable;
use expr::{Value, format, json, xml};

use super::support::parsed;

/// Bytes between two looks, and the longest entry behind one.
const SOON: usize = 70_000;

/// Does work whose flag is set already.
fn stopped<T>(work: impl FnOnce() -> T) -> T {
    stoppable(&Arc::new(AtomicBool::new(true)), work)
}

/// An entry, many times.
fn many(before: &str, entry: &str, behind: &str) -> String {
    format!("{before}{}{behind}", entry.repeat(400_000 / entry.len()))
}

/// A long list, a long object, long texts, and small values.
fn json_texts() -> Vec<String> {
    let members: Vec<String> = (0..30_000).map(|at| format!("\"m{at}\":\"x\"")).collect();
    vec![
        many("[", "1,", "1]"),
        many("{\"a\":[", "{\"b\":\"x\"},", "1]}"),
        format!("{{\"a\":{{{}}}}}", members.join(",")),
        many("[", &format!("\"{}\",", "x".repeat(1000)), "1]"),
    ]
}

#[test]
fn json_that_nobody_waits_for_is_not_read_to_its_end() {
    for text in json_texts() {
        let text = Bytes::from(text);
        assert!(json::parse(&text, 512).is_ok());
        let error = stopped(|| json::parse(&text, 512)).unwrap_err();
        assert_eq!(error.message, "nobody waits for the result any more");
        assert!(error.column < SOON, "{error}");
    }
}

#[test]
fn json_that_nobody_waits_for_is_not_written_to_its_end() {
    for text in json_texts() {
        let value = parsed(&text);
        let mut out = Vec::new();
        let error = stopped(|| json::write(&value, usize::MAX, &mut out)).unwrap_err();
        assert_eq!(error.message, "nobody waits for the result any more");
        assert!(json::write(&value, usize::MAX, &mut out).is_ok());
    }
}

#[test]
fn conversions_that_nobody_waits_for_end() {
    for text in json_texts() {
        let convert = || JsonToXml::default().convert(text.as_bytes(), &mut Vec::new());
        assert!(convert().is_ok());
        let error = stopped(convert).unwrap_err();
        assert_eq!(error.kind, ConvertErrorKind::Stopped);
        assert!(error.offset < SOON, "{error}");
        // What fails is not looked for again from the beginning.
        assert_eq!(error.path, "");
    }
    for text in xml_texts() {
        let convert = || XmlToJson::default().convert(text.as_bytes(), &mut Vec::new());
        assert!(convert().is_ok());
        let error = stopped(convert).unwrap_err();
        assert_eq!(error.kind, ConvertErrorKind::Stopped);
        assert!(error.offset < SOON && error.path.is_empty(), "{error}");
    }
}

fn xml_texts() -> Vec<String> {
    vec![
        many("<r>", "<a/>", "</r>"),
        many("<r>", "<a b=\"c\"><d>text</d></a>", "</r>"),
    ]
}

/// Names may be far longer in what is written than in what is read.
#[test]
fn what_is_written_counts_as_what_is_read() {
    let text = format!("{{\"{}\":[{}1]}}", "n".repeat(1000), "1,".repeat(1000));
    let convert = || JsonToXml::default().convert(text.as_bytes(), &mut Vec::new());
    assert!(convert().is_ok());
    assert_eq!(
        stopped(convert).unwrap_err().kind,
        ConvertErrorKind::Stopped
    );
}

#[test]
fn trees_that_nobody_waits_for_are_not_built() {
    for text in xml_texts() {
        assert!(xml::parse(text.as_bytes(), 9).is_ok());
        let error = stopped(|| xml::parse(text.as_bytes(), 9)).unwrap_err();
        assert_eq!(error.detail, "nobody waits for the result any more");
    }
    let write = || {
        let mut writer = xml::Writer::new(usize::MAX);
        (0..100_000).try_for_each(|_| {
            writer.start(None, "a")?;
            writer.end(None, "a");
            Ok(())
        })
    };
    assert_eq!(write(), Ok(()));
    assert_eq!(stopped(write), Err(xml::NotXml::Stopped));
}

#[test]
fn forms_and_csv_that_nobody_waits_for_are_neither_written_nor_read() {
    let list = parsed(&many("{\"name\":[", "1,", "1]}"));
    let text = parsed(&many("{\"name\":\"", "x", "\"}"));
    for value in [&list, &text] {
        let write = || format::to_form(value, usize::MAX);
        let form = write().unwrap();
        assert_eq!(stopped(write), Err(format::NotWritten::Stopped));
        assert!(stopped(|| format::from_form(&form)).is_err());
    }
    for rows in [
        many("[", "[1,2],", "[1,2]]"),
        many("[", "{\"a\":1,\"b\":2},", "{\"a\":1,\"b\":2}]"),
    ] {
        let rows = parsed(&rows);
        let write = || format::to_csv(&rows, true, usize::MAX);
        let csv = write().unwrap();
        assert_eq!(stopped(write), Err(format::NotWritten::Stopped));
        assert!(stopped(|| format::from_csv(&csv, true)).is_err());
    }
    let write = || format::to_xml(&list, usize::MAX);
    assert!(write().is_ok() && stopped(write).is_err());
}

/// The flag holds for the work of its thread, and for no other.
#[test]
fn work_of_others_goes_on() {
    let text = Bytes::from(many("[", "1,", "1]"));
    let value: Value = stopped(|| {
        let other = std::thread::spawn(move || json::parse(&text, 512));
        other.join().unwrap()
    })
    .unwrap();
    assert!(json::write(&value, usize::MAX, &mut Vec::new()).is_ok());
}
