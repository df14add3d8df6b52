//! XML files of others: those of libxml2's own tests that have less than 6,000 bytes, in
//! `tests/data/xml` with their licence. Each has to be read in its encoding as bodies are, and to
//! become JSON, XML and the same JSON again, or is named in `tests/data/xml-excluded.txt` with the
//! reason. A file that is named there and passes fails the test, so that the list stays true.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use expr::convert::{ConvertError, JsonToXml, XmlToJson};
use expr::encoding::xml_to_utf8;

use super::support::assert_published;

/// What the reasons in the list stand for: a part of the message that the engine gives.
const REASONS: &[(&str, &str)] = &[
    (
        "it has a document type declaration, which is refused",
        "a document type declaration",
    ),
    (
        "it is in EBCDIC, which is not known",
        "the encoding `EBCDIC` is not known",
    ),
];

fn converted(
    convert: impl FnOnce(&mut Vec<u8>) -> Result<(), ConvertError>,
) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let done = convert(&mut out);
    done.map(|()| out).map_err(|error| error.to_string())
}

fn goes_both_ways(xml: &Bytes) -> Result<(), String> {
    let xml = xml_to_utf8(xml, None).map_err(|error| error.to_string())?;
    let json = converted(|out| XmlToJson::default().convert(&xml, out))?;
    let again = converted(|out| JsonToXml::default().convert(&json, out));
    let again = again.map_err(|error| format!("on the way back: {error}"))?;
    let same = converted(|out| XmlToJson::default().convert(&again, out))?;
    match json == same {
        true => Ok(()),
        false => Err("becomes other JSON the second time".to_owned()),
    }
}

/// Reads all files, those in folders below too, but for licences and lists. Gives how many pass, of
/// how many, and what the exceptions of the list say and is not so, or do not say.
fn read_all(folder: &Path, list: &Path) -> (usize, usize, Vec<String>) {
    let excluded = fs::read_to_string(list).unwrap_or_default();
    let lines = excluded.lines().filter(|line| !line.starts_with('#'));
    let mut excluded: BTreeMap<&str, &str> = lines.filter_map(|it| it.split_once(' ')).collect();
    let (mut all, mut pass, mut wrong) = (0, 0, Vec::new());
    let mut paths = Vec::new();
    files(folder, &mut paths);
    for path in paths {
        let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
        all += 1;
        let outcome = goes_both_ways(&fs::read(&path).unwrap().into());
        pass += usize::from(outcome.is_ok());
        match (outcome, excluded.remove(name)) {
            (Err(error), None) => wrong.push(format!("{name} {error}")),
            (Ok(()), Some(_)) => wrong.push(format!("{name} is excluded and passes")),
            (Err(error), Some(reason)) => {
                // Shown by `cargo test -p expr --test it corpus -- --nocapture`.
                println!("{name} {reason}: {error}");
                let known = REASONS.iter().find(|(known, _)| *known == reason);
                let part = known.map_or(reason, |(_, part)| part);
                if !error.contains(part) {
                    wrong.push(format!("{name} is excluded because {reason}, and {error}"));
                }
            }
            (Ok(()), None) => {}
        }
    }
    let gone = excluded.into_keys();
    wrong.extend(gone.map(|it| format!("{it} is excluded and not there")));
    wrong.sort();
    (pass, all, wrong)
}

/// The files of a folder and of those below.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        match path.is_dir() {
            true => files(&path, found),
            false if name == "LICENSE" || name == "excluded.txt" => {}
            false => found.push(path),
        }
    }
}

#[test]
fn files_of_libxml2_go_both_ways() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let (pass, all, wrong) = read_all(&data.join("xml"), &data.join("xml-excluded.txt"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(all > 100, "{all}");
    assert_published("libxml2", pass, all);
}

/// What `cargo xtask corpus` runs.
#[test]
#[ignore = "needs a folder of files, which CORPUS names"]
fn xml_files_of_a_folder_go_both_ways() {
    let folder = std::env::var_os("CORPUS").expect("CORPUS names a folder");
    let folder = Path::new(&folder);
    let (pass, all, wrong) = read_all(folder, &folder.join("excluded.txt"));
    println!("XML: {pass} of {all} files go both ways");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
