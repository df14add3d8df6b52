//! Programs of the system that tests and measurements use: installed when missing.

use std::path::PathBuf;

use crate::command::{Failure, program};

/// A program and the Debian package that has it.
#[derive(Clone, Copy)]
pub struct Needed {
    pub name: &'static str,
    pub package: &'static str,
}

/// What the tests use.
pub const FOR_TESTS: &[Needed] = &[
    Needed {
        name: "curl",
        package: "curl",
    },
    Needed {
        name: "nginx",
        package: "nginx-light",
    },
];

/// What `cargo xtask measure` uses.
pub const FOR_MEASURING: &[Needed] = &[
    Needed {
        name: "haproxy",
        package: "haproxy",
    },
    Needed {
        name: "wrk",
        package: "wrk",
    },
    Needed {
        name: "taskset",
        package: "util-linux",
    },
];

/// Makes sure that the programs are there. As root they are installed; otherwise the failure says
/// what to install.
pub fn ensure(needed: &[Needed]) -> Result<(), Failure> {
    let missing: Vec<&str> = needed
        .iter()
        .filter(|it| find(it.name).is_none())
        .map(|it| it.package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages = missing.join(" ");
    let is_root = program("id")
        .args(["-u"])
        .output()
        .is_ok_and(|id| id.trim() == "0");
    if !is_root {
        return Err(Failure::new(format!(
            "missing: {packages}\nas root: apt-get update && apt-get install {packages}"
        )));
    }
    program("apt-get").args(["update", "-qq"]).run()?;
    program("apt-get")
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(&missing)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .run()?;
    match needed.iter().find(|it| find(it.name).is_none()) {
        None => Ok(()),
        Some(it) => Err(Failure::new(format!("{} is still missing", it.name))),
    }
}

/// Where a program is: in a folder of the search path, or where Debian keeps servers.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}
