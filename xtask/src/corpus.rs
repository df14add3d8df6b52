//! Documents of others that are too many to keep here: a folder of WSDL and XML files is read as
//! the corpora of the tests are, and a list says which of them do not pass, and why.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Failure, cargo};

const USAGE: &str = "\
cargo xtask corpus wsdl|xml FOLDER

Reads all files of the folder and of those below: `wsdl` compiles all operations of `*.wsdl`,
`xml` converts every file to JSON, back, and to the same JSON again. `FOLDER/excluded.txt` has a
line for each file that does not pass: its path, a blank, and a part of the message. The chore
fails when a file fails that is not listed, or passes although it is, or says something else.";

/// A kind of documents, and the test that reads a folder of them.
#[derive(Debug, PartialEq, Eq)]
struct Kind {
    package: &'static str,
    target: &'static [&'static str],
    test: &'static str,
}

const WSDL: Kind = Kind {
    package: "connectors",
    target: &["--lib"],
    test: "wsdl_files_of_a_folder_compile",
};

const XML: Kind = Kind {
    package: "expr",
    target: &["--test", "it"],
    test: "xml_files_of_a_folder_go_both_ways",
};

/// Reads the folder that the arguments name.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    let (kind, folder) = read(arguments)?;
    let folder = fs::canonicalize(&folder)
        .map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
    cargo(root)
        // Of some files every operation needs thousands of types.
        .args(["test", "--release", "--package", kind.package])
        .args(kind.target)
        .args(["--", "--ignored", "--nocapture", kind.test])
        .env("CORPUS", &folder.to_string_lossy())
        .run()
}

fn read(arguments: &[String]) -> Result<(Kind, PathBuf), Failure> {
    let (kind, folder) = match arguments {
        [kind, folder] => (kind.as_str(), folder),
        _ => return Err(Failure::new(USAGE)),
    };
    let kind = match kind {
        "wsdl" => WSDL,
        "xml" => XML,
        _ => return Err(Failure::new(USAGE)),
    };
    Ok((kind, PathBuf::from(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_kind_and_a_folder_are_read() {
        let read_words = |it: &[&str]| read(&words(it)).ok();
        let folder = PathBuf::from("/a");
        assert_eq!(read_words(&["wsdl", "/a"]), Some((WSDL, folder.clone())));
        assert_eq!(read_words(&["xml", "/a"]), Some((XML, folder)));
        for wrong in [&[][..], &["wsdl"], &["json", "/a"], &["xml", "/a", "/b"]] {
            assert_eq!(read_words(wrong), None, "{wrong:?}");
        }
    }

    /// The names of tests are only words here: they must be those of tests that exist.
    #[test]
    fn the_tests_exist() {
        let root = crate::root();
        for (kind, file) in [
            (WSDL, "crates/connectors/src/soap/wsdl/tests/corpus.rs"),
            (XML, "crates/expr/tests/it/corpus.rs"),
        ] {
            let text = fs::read_to_string(root.join(file)).unwrap();
            assert!(text.contains(&format!("fn {}()", kind.test)), "{file}");
        }
    }
}
