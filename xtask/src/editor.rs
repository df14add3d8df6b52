//! Flow files in an editor: yaml-language-server, which most editors use, is given the JSON Schema
//! and opens every example. What it says, completes and shows is checked by `editor/check.mjs`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Failure, program};

/// The package.
const SERVER: &str = "yaml-language-server@1";

/// Installs the language server under `target/editor`, unless it is there, and runs the check.
pub(crate) fn check(root: &Path) -> Result<(), Failure> {
    let folder = root.join("target/editor");
    fs::create_dir_all(&folder)?;
    let server = folder.join("node_modules/yaml-language-server/bin/yaml-language-server");
    if !server.exists() {
        let prefix = folder.display().to_string();
        let install = [
            "install",
            "--no-audit",
            "--no-fund",
            "--prefix",
            &prefix,
            SERVER,
        ];
        program("npm").args(install).run()?;
    }
    let mut files = Vec::new();
    collect(&root.join("examples"), &mut files)?;
    collect(&root.join("crates/steps/src"), &mut files)?;
    files.sort();
    let check = root.join("xtask/src/editor/check.mjs");
    let schema = root.join("docs/reference/flow-file.schema.json");
    program("node")
        .args([check, server, schema])
        .args(files)
        .run()
}

/// All YAML files of a folder and those within.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|kind| kind == "yaml") {
            files.push(path);
        }
    }
    Ok(())
}
