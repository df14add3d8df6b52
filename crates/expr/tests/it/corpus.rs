//! XML files of others: those of libxml2's own tests that have less than 6,000 bytes, in
//! `tests/data/xml` with their licence. Each has to become JSON, XML and the same JSON again, or is
//! named in `tests/data/xml-excluded.txt` with the reason. A file that is named there and passes
//! fails the test, so that the list stays true.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use expr::convert::{ConvertError, JsonToXml, XmlToJson};

fn converted(
    convert: impl FnOnce(&mut Vec<u8>) -> Result<(), ConvertError>,
) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let done = convert(&mut out);
    done.map(|()| out).map_err(|error| error.to_string())
}

fn goes_both_ways(xml: &[u8]) -> Result<(), String> {
    let json = converted(|out| XmlToJson::default().convert(xml, out))?;
    let again = converted(|out| JsonToXml::default().convert(&json, out));
    let again = again.map_err(|error| format!("on the way back: {error}"))?;
    let same = converted(|out| XmlToJson::default().convert(&again, out))?;
    match json == same {
        true => Ok(()),
        false => Err("becomes other JSON the second time".to_owned()),
    }
}

#[test]
fn files_of_libxml2_go_both_ways() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let excluded = fs::read_to_string(data.join("xml-excluded.txt")).unwrap();
    let lines = excluded.lines().filter(|line| !line.starts_with('#'));
    let mut excluded: BTreeMap<&str, &str> = lines.filter_map(|it| it.split_once(' ')).collect();
    let (mut all, mut pass, mut wrong) = (0, 0, Vec::new());
    for entry in fs::read_dir(data.join("xml")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "LICENSE" {
            continue;
        }
        all += 1;
        let outcome = goes_both_ways(&fs::read(&path).unwrap());
        pass += usize::from(outcome.is_ok());
        match (outcome, excluded.remove(name)) {
            (Err(error), None) => wrong.push(format!("{name} {error}")),
            (Ok(()), Some(_)) => wrong.push(format!("{name} is excluded and passes")),
            // Shown by `cargo test -p expr --test it corpus -- --nocapture`.
            (Err(error), Some(reason)) => println!("{name} {reason}: {error}"),
            (Ok(()), None) => {}
        }
    }
    println!("{pass} of {all}");
    wrong.sort();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(excluded.is_empty(), "not there: {excluded:?}");
    assert!(all > 100, "{all}");
}
