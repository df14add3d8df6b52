//! Conversions: never a panic, what is written is well-formed, and it can be read back.

#![no_main]

use bytes::Bytes;
use expr::convert::{JsonToXml, Root, XmlToJson};
use expr::encoding::xml_to_utf8;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let named = JsonToXml {
        root: Root::Named("r".to_owned()),
        ..JsonToXml::default()
    };
    let mut xml = Vec::new();
    if named.convert(bytes, &mut xml).is_ok() {
        check_well_formed(&xml);
        // With a root around it, everything that can be written can be read.
        let mut json = Vec::new();
        XmlToJson {
            depth_max: 200,
            ..XmlToJson::default()
        }
        .convert(&xml, &mut json)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&xml)));
        let mut again = Vec::new();
        JsonToXml {
            depth_max: 300,
            ..JsonToXml::default()
        }
        .convert(&json, &mut again)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&json)));
    }
    xml.clear();
    if JsonToXml::default().convert(bytes, &mut xml).is_err() {
        assert!(xml.is_empty());
    }
    let mut json = Vec::new();
    // In whatever encoding it says that it is.
    let read = xml_to_utf8(&Bytes::copy_from_slice(bytes), None).unwrap_or_default();
    if XmlToJson::default().convert(&read, &mut json).is_ok() {
        let mut again = Vec::new();
        let back = JsonToXml {
            depth_max: 300,
            ..JsonToXml::default()
        }
        .convert(&json, &mut again);
        // What XML says JSON says too; only undeclared prefixes are refused on the way back.
        if let Err(error) = back {
            assert!(
                error.detail.contains("prefix"),
                "{error}: {}",
                String::from_utf8_lossy(&json)
            );
        }
    }
});

fn check_well_formed(xml: &[u8]) {
    let text = std::str::from_utf8(xml).expect("UTF-8");
    let mut reader = quick_xml::Reader::from_str(text);
    loop {
        match reader.read_event() {
            Ok(quick_xml::events::Event::Eof) => return,
            Ok(_) => {}
            Err(error) => panic!("{error}: {text}"),
        }
    }
}
