//! Programs of crates.io that tests and the book use: built once, into a folder beside what cargo
//! builds, where `testkit` looks for them. They are no dependencies of ours, and theirs are not in
//! our lock file.

use std::path::{Path, PathBuf};

use crate::command::{Failure, cargo, target};

/// A program, and the exact package that has it.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    pub program: &'static str,
    pub package: &'static str,
    pub version: &'static str,
    /// More arguments for `cargo install`.
    pub options: &'static [&'static str],
}

/// What the tests use.
pub const FOR_TESTS: &[Tool] = &[Tool {
    program: "iridium-server",
    package: "iridium_server",
    version: "0.1.13",
    options: &[],
}];

/// What the book is made with. The parts of it that serve and watch pages are left out.
pub const FOR_BOOK: &[Tool] = &[Tool {
    program: "mdbook",
    package: "mdbook",
    version: "0.5.4",
    options: &["--no-default-features", "--features", "search"],
}];

/// Where a program is, once it is there.
pub fn path(root: &Path, tool: &Tool) -> Result<PathBuf, Failure> {
    Ok(folder(root)?.join("bin").join(tool.program))
}

/// Makes sure that the programs are there, in these versions.
pub fn ensure(root: &Path, tools: &[Tool]) -> Result<(), Failure> {
    let folder = folder(root)?;
    for tool in tools.iter().filter(|tool| !is_there(&folder, tool)) {
        install(root, &folder, tool)?;
    }
    Ok(())
}

fn folder(root: &Path) -> Result<PathBuf, Failure> {
    Ok(target(root)?.join("tools"))
}

/// Cargo keeps a list of what it has put into a folder.
fn is_there(folder: &Path, tool: &Tool) -> bool {
    let list = std::fs::read_to_string(folder.join(".crates.toml")).unwrap_or_default();
    let entry = format!("\"{} {} ", tool.package, tool.version);
    list.contains(&entry) && folder.join("bin").join(tool.program).is_file()
}

/// As its authors have tried it (`--locked`), without optimisation: it is quick enough so. What an
/// attempt has left that was interrupted is replaced (`--force`).
fn install(root: &Path, folder: &Path, tool: &Tool) -> Result<(), Failure> {
    cargo(root)
        .args(["install", "--locked", "--force", "--debug", "--quiet"])
        .args(["--version", tool.version, "--bin", tool.program])
        .args(["--root".as_ref(), folder.as_os_str()])
        .args(tool.options)
        .args([tool.package])
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_not_there() {
        let folder = std::env::temp_dir().join(format!("xtask-tools-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        let list = "[v1]\n\"it 1.2.3 (registry+https://example)\" = [\"it-server\"]\n";
        std::fs::write(folder.join(".crates.toml"), list).unwrap();
        let tool = |version| Tool {
            program: "it-server",
            package: "it",
            version,
            options: &[],
        };
        assert!(!is_there(&folder, &tool("1.2.3")));
        std::fs::write(folder.join("bin/it-server"), "").unwrap();
        assert!(is_there(&folder, &tool("1.2.3")));
        assert!(!is_there(&folder, &tool("1.2.4")));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
