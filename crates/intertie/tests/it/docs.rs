//! The tests that stand in blocks of the book pass.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::{TempDir, markdown_blocks};

use crate::support::{output, repository};

const ERP: &str = include_str!("../data/failures/erp.wsdl");
const KEYS: &str = include_str!("../../../../examples/api-key/partners.keys");

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // What stands on the pages of error codes is wrong on purpose.
        if path.is_dir() && !path.ends_with("errors") {
            pages(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "md") {
            found.push(path);
        }
    }
}

#[test]
fn tests_in_blocks_of_the_book_pass() {
    let (mut found, mut count) = (Vec::new(), 0);
    pages(&repository().join("docs"), &mut found);
    for page in found {
        let text = fs::read_to_string(&page).unwrap();
        let blocks = markdown_blocks(&text).into_iter();
        for block in blocks.filter(|it| it.language == "yaml" && it.text.contains("\ntests:\n")) {
            let folder = TempDir::new();
            folder.write("erp.wsdl", ERP);
            folder.write("partners.keys", KEYS);
            let file = folder.write("block.yaml", &block.text);
            let result = output(&["test", file.to_str().unwrap()]);
            let report = String::from_utf8_lossy(&result.stdout);
            let place = format!("{}:{}", page.display(), block.line);
            assert!(result.status.success(), "{place}\n{report}");
            count += 1;
        }
    }
    assert!(count >= 8, "{count} blocks have tests");
}
