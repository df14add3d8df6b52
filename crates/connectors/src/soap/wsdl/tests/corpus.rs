//! WSDL files of others: those of the tests of node-soap and zeep that are small, in
//! `testdata/corpus` with their licences. All operations of the ports that a connection can use
//! have to compile, or the file is named in `testdata/corpus/excluded.txt` with the reason. A file
//! that is named there and compiles fails the test, so that the list stays true.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::Wsdl;

/// The WSDL files in a folder and those below.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.extension() {
            _ if path.is_dir() => files(&path, found),
            Some(extension) if extension == "wsdl" => found.push(path),
            _ => {}
        }
    }
}

/// How many operations compile, or what is wrong with the first that does not.
fn compiled(folder: &Path, name: &str) -> Result<usize, String> {
    let read = |name: &str| match fs::read(folder.join(name)) {
        Ok(bytes) => Ok(bytes.into()),
        Err(_) => Err("it is not there".to_owned()),
    };
    let wsdl = Wsdl::read(name, &read).map_err(|problem| problem.text())?;
    let ports = wsdl.ports(None).map_err(|problem| problem.text())?;
    let mut count = 0;
    for port in &ports {
        for name in wsdl.operations(port) {
            let operation = wsdl.operation(port, name);
            operation.map_err(|problem| problem.text())?;
            count += 1;
        }
    }
    Ok(count)
}

#[test]
fn wsdl_files_of_others_compile() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/soap/testdata/corpus");
    let excluded = fs::read_to_string(folder.join("excluded.txt")).unwrap();
    let lines = excluded.lines().filter(|line| !line.starts_with('#'));
    let mut excluded: BTreeMap<&str, &str> = lines.filter_map(|it| it.split_once(' ')).collect();
    let mut all = Vec::new();
    files(&folder, &mut all);
    let (mut pass, mut operations, mut wrong) = (0, 0, Vec::new());
    for path in &all {
        let name = path.strip_prefix(&folder).unwrap().to_str().unwrap();
        let outcome = compiled(&folder, name);
        pass += usize::from(outcome.is_ok());
        operations += outcome.as_ref().map_or(0, |count| *count);
        match (outcome, excluded.remove(name)) {
            (Err(error), None) => wrong.push(format!("{name} {error}")),
            (Ok(_), Some(_)) => wrong.push(format!("{name} is excluded and compiles")),
            // Shown by `cargo test -p connectors --lib corpus -- --nocapture`.
            (Err(error), Some(reason)) => println!("{name} {reason}: {error}"),
            (Ok(_), None) => {}
        }
    }
    println!("{pass} of {} files, {operations} operations", all.len());
    wrong.sort();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(excluded.is_empty(), "not there: {excluded:?}");
    assert!(all.len() > 70 && operations > 30, "{operations}");
}
