//! WSDL files of others: those of the tests of node-soap and zeep that are small, in
//! `testdata/corpus` with their licences. All operations of the ports that a connection can use
//! have to compile, or the file is named in `testdata/corpus/excluded.txt` with the reason. A file
//! that is named there and compiles fails the test, and so does one that fails for another reason,
//! so that the list stays true. `cargo xtask corpus` does the same with a folder of your own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::Wsdl;

/// What the reasons in `excluded.txt` stand for: a part of the message that the engine gives.
const REASONS: &[(&str, &str)] = &[
    (
        "it uses a prefix that it does not declare",
        "a prefix that is not declared",
    ),
    (
        "it names an element that nothing declares",
        "there is no element `",
    ),
    (
        "it names a type that nothing declares",
        "there is no type `",
    ),
    (
        "it names a message that nothing declares",
        "there is no message `",
    ),
    (
        "it names a binding that nothing declares",
        "there is no binding `",
    ),
    (
        "the binding has an operation that its port type does not have",
        "the port type has no operation `",
    ),
    (
        "its operation has no input: only operations that a client begins are supported",
        "an operation that the service begins is not supported",
    ),
    (
        "it is rpc/encoded, which is not supported",
        "`use=\"encoded\"` is not supported",
    ),
    (
        "a schema that it imports is not well-formed",
        "an element has no end tag",
    ),
    (
        "it imports a file by http, which is not read",
        "` is on another machine",
    ),
    ("it imports a file without a name", "`` names no file"),
    (
        "it is imported by another file and has no service of its own",
        "no service with a port is declared",
    ),
    (
        "a part of a document message names a type",
        "the part names no element",
    ),
    (
        "its ports are HTTP without SOAP",
        "the port does not speak SOAP",
    ),
];

/// The WSDL files in a folder and those below.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.extension() {
            _ if path.is_dir() => files(&path, found),
            Some(extension) if extension.eq_ignore_ascii_case("wsdl") => found.push(path),
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

/// What has become of the files of a folder.
#[derive(Default)]
struct Outcome {
    files: usize,
    pass: usize,
    operations: usize,
    /// What the list of exceptions says and is not so, or does not say.
    wrong: Vec<String>,
}

/// Compiles all files of a folder, which has its exceptions in `excluded.txt`.
fn compile_all(folder: &Path) -> Outcome {
    let excluded = fs::read_to_string(folder.join("excluded.txt")).unwrap_or_default();
    let lines = excluded.lines().filter(|line| !line.starts_with('#'));
    let mut excluded: BTreeMap<&str, &str> = lines.filter_map(|it| it.split_once(' ')).collect();
    let mut paths = Vec::new();
    files(folder, &mut paths);
    let mut all = Outcome::default();
    for path in &paths {
        let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
        all.files += 1;
        let error = match compiled(folder, name) {
            Ok(count) => {
                all.pass += 1;
                all.operations += count;
                None
            }
            Err(error) => Some(error),
        };
        all.wrong.extend(match (error, excluded.remove(name)) {
            (Some(error), None) => Some(format!("{name} {error}")),
            (None, Some(_)) => Some(format!("{name} is excluded and compiles")),
            (Some(error), Some(reason)) => {
                // Shown by `cargo test -p connectors --lib corpus -- --nocapture`.
                println!("{name} {reason}: {error}");
                let known = REASONS.iter().find(|(known, _)| *known == reason);
                let part = known.map_or(reason, |(_, part)| part);
                let is_so = error.contains(part);
                (!is_so).then(|| format!("{name} is excluded because {reason}, and {error}"))
            }
            (None, None) => None,
        });
    }
    let gone = excluded.into_keys();
    all.wrong
        .extend(gone.map(|it| format!("{it} is excluded and not there")));
    all.wrong.sort();
    all
}

#[test]
fn wsdl_files_of_others_compile() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/soap/testdata/corpus");
    let all = compile_all(&folder);
    assert!(all.wrong.is_empty(), "{}", all.wrong.join("\n"));
    assert!(all.files > 70 && all.operations > 30, "{}", all.operations);
    const PAGE: &str = include_str!("../../../../../../docs/conformance.md");
    let row = format!("| node-soap and zeep | {} of {} |", all.pass, all.files);
    assert!(PAGE.contains(&row), "docs/conformance.md says not: {row}");
}

/// What `cargo xtask corpus` runs.
#[test]
#[ignore = "needs a folder of files, which CORPUS names"]
fn wsdl_files_of_a_folder_compile() {
    let folder = std::env::var_os("CORPUS").expect("CORPUS names a folder");
    let all = compile_all(Path::new(&folder));
    let (pass, files, operations) = (all.pass, all.files, all.operations);
    println!("WSDL: {pass} of {files} files compile whole, {operations} operations");
    assert!(all.wrong.is_empty(), "{}", all.wrong.join("\n"));
}
