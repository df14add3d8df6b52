//! Programs of the system that tests and measurements use: installed when missing.

use std::path::{Path, PathBuf};

use crate::command::{Failure, program};

/// A program, and the Debian packages of which each has it, the smallest first.
#[derive(Clone, Copy, Debug)]
pub struct Needed {
    pub name: &'static str,
    pub packages: &'static [&'static str],
}

impl Needed {
    pub const fn new(name: &'static str, packages: &'static [&'static str]) -> Self {
        Self { name, packages }
    }
}

/// What the tests use.
pub const FOR_TESTS: &[Needed] = &[
    Needed::new("curl", &["curl"]),
    Needed::new("nginx", &["nginx-light", "nginx"]),
    Needed::new("initdb", &["postgresql"]),
    Needed::new("mariadbd", &["mariadb-server"]),
    Needed::new("rabbitmq-server", &["rabbitmq-server"]),
    Needed::new("python3", &["python3"]),
    Needed::new("redis-server", &["redis-server"]),
    Needed::new("tinyproxy", &["tinyproxy-bin"]),
];

/// What the tests use of PyPI, each with its version.
const PYTHON: &[&str] = &[
    "zeep==4.3.3",
    "spyne==2.14.0",
    "lxml==6.1.3",
    "aiosmtpd==1.4.6",
    "kosoku==0.1.0",
    "websockets==17.4",
];

/// Makes sure that there is a Python with these packages, below the folder of what is built.
pub fn ensure_python(target: &Path) -> Result<(), Failure> {
    let folder = target.join("tools/python");
    let stamp = folder.join("packages");
    let wanted = PYTHON.join("\n");
    if std::fs::read_to_string(&stamp).is_ok_and(|known| known == wanted) {
        return Ok(());
    }
    let advice = |failure: Failure| {
        Failure::new(format!(
            "{failure}\nthe tests of SOAP, mail and WebSocket need Python with {}: install python3 \
             with its venv module (Debian: python3-venv) and let pip reach PyPI",
            PYTHON.join(", ")
        ))
    };
    let path = folder.display().to_string();
    let venv = || {
        program("python3")
            .args(["-m", "venv", "--clear", &path])
            .run()
    };
    if venv().is_err() {
        // Debian has the module in a package of its own.
        if is_root() {
            install(Needed::new("python3", &["python3-venv"]))?;
        }
        venv().map_err(advice)?;
    }
    let pip = folder.join("bin/pip").display().to_string();
    program(&pip)
        .args(["install", "--quiet", "--disable-pip-version-check"])
        .args(PYTHON)
        .run()
        .map_err(advice)?;
    std::fs::write(&stamp, wanted)
        .map_err(|error| Failure::new(format!("{}: {error}", stamp.display())))
}

/// What `cargo xtask interop --haproxy` puts in the engine's place.
pub const PEER: &[Needed] = &[Needed::new("haproxy", &["haproxy"])];

/// Makes sure that the programs are there. As root they are installed; otherwise the failure says
/// what to install.
pub fn ensure(needed: &[Needed]) -> Result<(), Failure> {
    let missing = missing(needed, find);
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root() {
        return Err(Failure::new(advice(&missing)));
    }
    program("apt-get").args(["update", "-qq"]).run()?;
    for it in missing {
        install(it)?;
    }
    Ok(())
}

fn missing(needed: &[Needed], find: impl Fn(&str) -> Option<PathBuf>) -> Vec<Needed> {
    let missing = needed.iter().filter(|it| find(it.name).is_none());
    missing.copied().collect()
}

fn advice(missing: &[Needed]) -> String {
    let names: Vec<&str> = missing.iter().map(|it| it.name).collect();
    let packages: Vec<&str> = missing
        .iter()
        .filter_map(|it| it.packages.first().copied())
        .collect();
    format!(
        "missing: {}\nas root: apt-get update && apt-get install -y --no-install-recommends {}",
        names.join(", "),
        packages.join(" ")
    )
}

/// Tries one package after the other: releases of Debian differ in what they have.
fn install(needed: Needed) -> Result<(), Failure> {
    for package in needed.packages {
        let installed = program("apt-get")
            .args(["install", "-y", "-qq", "--no-install-recommends", package])
            .env("DEBIAN_FRONTEND", "noninteractive")
            .run();
        match installed {
            Ok(()) if find(needed.name).is_some() => return Ok(()),
            Ok(()) => eprintln!("{package} is installed, but {} is not there", needed.name),
            Err(failure) => eprintln!("{failure}"),
        }
    }
    Err(Failure::new(format!("{} cannot be installed", needed.name)))
}

fn is_root() -> bool {
    let id = program("id").args(["-u"]).output();
    id.is_ok_and(|id| id.trim() == "0")
}

/// Where a program is: in a folder of the search path, or where Debian keeps servers.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let folders = folders.chain(versions("/usr/lib/postgresql"));
    let folders =
        folders.chain(["/usr/share/tomcat10/bin", "/usr/share/tomcat9/bin"].map(PathBuf::from));
    let mut files = folders.map(|folder| folder.join(name));
    files.find(|file: &PathBuf| Path::is_file(file))
}

/// The folders with programs of a server of which there may be several versions.
fn versions(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().join("bin")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let has_others = |name: &str| (name != "nginx").then(PathBuf::new);
        let missing = missing(FOR_TESTS, has_others);
        assert_eq!(missing.len(), 1);
        let expected = "missing: nginx\n\
            as root: apt-get update && apt-get install -y --no-install-recommends nginx-light";
        assert_eq!(advice(&missing), expected);
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(find("sh").is_some());
        assert!(find("a program that nobody has").is_none());
    }
}
