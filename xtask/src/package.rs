//! `cargo xtask package`: everything that is published, in `target/package`. One stripped binary
//! with its manual pages and completions, as an archive, a Debian package, a wheel, a package of
//! npm and the files of a container; with an SBOM and checksums of them all.

mod check;
mod container;
mod debian;
mod image;
mod service;
mod stage;
mod systemd;

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Failure, cargo, program, target};
use crate::dist;
use crate::interop::bench::Bench;
use crate::interop::report::Report;
use crate::servers::{self, Needed};

use check::check;

/// What makes the packages, beside the tools that every Debian has.
const TOOLS: &[Needed] = &[
    Needed::new("strip", &["binutils"]),
    Needed::new("readelf", &["binutils"]),
    Needed::new("python3", &["python3"]),
];

/// What is packaged, and where to.
pub struct Package {
    root: PathBuf,
    /// `target/package`.
    out: PathBuf,
    /// Of `Cargo.toml`.
    version: String,
    /// What `git` says of the sources.
    commit: String,
    /// The day of the commit.
    date: String,
}

/// Makes the packages; with `--check` each of them is installed, tried and removed too.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    let is_checked = match arguments {
        [] => false,
        [only] if only == "--check" => true,
        _ => return Err(Failure::new("cargo xtask package [--check]")),
    };
    let named = std::env::var_os("INTERTIE").map(PathBuf::from);
    let package = make(root, named)?;
    if !is_checked {
        return Ok(());
    }
    let mut report = Report::default();
    check(&package, &mut report)?;
    report.finish()
}

/// A part of `cargo xtask interop`: with the binary that the other checks have.
pub fn check_in_interop(bench: &Bench, report: &mut Report) {
    if !bench.has_flows() {
        return;
    }
    let checked = make(&bench.root, Some(bench.program.clone()));
    if let Err(failure) = checked.and_then(|package| check(&package, report)) {
        report.add("packages", Err(failure));
    }
}

/// Makes the packages from this binary, or from a new one.
fn make(root: &Path, binary: Option<PathBuf>) -> Result<Package, Failure> {
    servers::ensure(TOOLS)?;
    let git = |arguments: &[&str]| {
        let output = program("git").args(["-C", &root.display().to_string()]);
        output.args(arguments).output()
    };
    let package = Package {
        root: root.to_path_buf(),
        out: target(root)?.join("package"),
        version: version(&fs::read_to_string(root.join("Cargo.toml"))?)?,
        commit: git(&["rev-parse", "--short=12", "HEAD"])?.trim().to_owned(),
        date: git(&["show", "--no-patch", "--format=%cs", "HEAD"])?
            .trim()
            .to_owned(),
    };
    let binary = match binary {
        Some(binary) => std::path::absolute(binary)?,
        None => package.build()?,
    };
    if package.out.exists() {
        fs::remove_dir_all(&package.out)?;
    }
    package.stage(&binary)?;
    package.archive()?;
    package.debian(&package.version)?;
    package.wheel()?;
    package.npm()?;
    package.container()?;
    package.sbom()?;
    package.sums()?;
    Ok(package)
}

/// The version of the workspace.
fn version(manifest: &str) -> Result<String, Failure> {
    let mut lines = manifest.lines();
    let version = lines.find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    let version = version.ok_or_else(|| Failure::new("Cargo.toml names no version"))?;
    Ok(version.to_owned())
}

impl Package {
    fn build(&self) -> Result<PathBuf, Failure> {
        let version = format!("{} ({} {})", self.version, self.commit, self.date);
        dist::build(&self.root, Some(&version))
    }

    /// What all packages hold.
    fn staged(&self) -> PathBuf {
        self.out.join("stage")
    }

    /// A file of this repository that packages are made with.
    fn source(&self, name: &str) -> PathBuf {
        self.root.join("xtask/package").join(name)
    }

    /// The same time for every file, so that the same sources give the same archives.
    fn tar(&self, folder: &Path, names: &[&str], archive: &Path) -> Result<(), Failure> {
        program("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
            .args([format!("--mtime={} 00:00:00Z", self.date)])
            .args(["-C".as_ref(), folder.as_os_str(), "-czf".as_ref()])
            .args([archive])
            .args(names)
            .run()
    }

    fn archive(&self) -> Result<(), Failure> {
        let name = format!("intertie-{}-{}-linux", self.version, std::env::consts::ARCH);
        let folder = self.out.join("work").join(&name);
        copy_all(&self.staged(), &folder)?;
        let archive = self.out.join(format!("{name}.tar.gz"));
        self.tar(&self.out.join("work"), &[&name], &archive)
    }

    fn wheel(&self) -> Result<(), Failure> {
        let (major, minor) = stage::glibc(&self.staged().join("bin/intertie"))?;
        let tag = format!("manylinux_{major}_{minor}_{}", std::env::consts::ARCH);
        program("python3")
            .args([self.source("wheel.py")])
            .args([&self.version, &tag])
            .args([self.staged(), self.root.join("README.md"), self.out.clone()])
            .run()
    }

    fn npm(&self) -> Result<(), Failure> {
        let folder = self.out.join("work/npm/package");
        copy_all(&self.staged(), &folder)?;
        let mut pages = names(&folder.join("share/man/man1"))?;
        pages.retain(|name| name.ends_with(".1"));
        let pages: Vec<String> = pages
            .iter()
            .map(|name| format!("\"share/man/man1/{name}\""))
            .collect();
        let cpu = match std::env::consts::ARCH {
            "x86_64" => "x64",
            "aarch64" => "arm64",
            other => other,
        };
        let text = fs::read_to_string(self.source("npm/package.json"))?
            .replace("@VERSION@", &self.version)
            .replace("@MAN@", &pages.join(", "))
            .replace("@CPU@", cpu);
        fs::write(folder.join("package.json"), text)?;
        let archive = self.out.join(format!("intertie-{}-npm.tgz", self.version));
        self.tar(&self.out.join("work/npm"), &["package"], &archive)
    }

    fn sbom(&self) -> Result<(), Failure> {
        let metadata = cargo(&self.root)
            .args(["metadata", "--locked", "--format-version", "1"])
            .args(["--filter-platform", &dist::platform()?])
            .output()?;
        let file = self.out.join("work/metadata.json");
        fs::write(&file, metadata)?;
        let sbom = self.out.join(format!("intertie-{}.cdx.json", self.version));
        let text = program("python3")
            .args([self.source("sbom.py")])
            .args([&self.version, &self.commit, &self.date])
            .args([file, self.linked(&self.out.join("work"))?])
            .output()?;
        Ok(fs::write(sbom, text)?)
    }

    /// Writes the packages that are linked into the binary into a file of a folder: a package with
    /// its version on each line. Macros and other tools of the build are none of them.
    fn linked(&self, folder: &Path) -> Result<PathBuf, Failure> {
        let tree = cargo(&self.root)
            .args(["tree", "--locked", "--package", "intertie"])
            .args(["--edges", "normal,no-proc-macro", "--prefix", "none"])
            .args(["--target", &dist::platform()?])
            .output()?;
        let file = folder.join("linked.txt");
        fs::write(&file, tree)?;
        Ok(file)
    }

    fn sums(&self) -> Result<(), Failure> {
        fs::remove_dir_all(self.out.join("work"))?;
        let mut files = names(&self.out)?;
        files.retain(|name| self.out.join(name).is_file());
        let mut command = program("sha256sum").args(&files);
        command.0.current_dir(&self.out);
        fs::write(self.out.join("SHA256SUMS"), command.output()?)?;
        println!("packages in {}", self.out.display());
        for name in files {
            let bytes = fs::metadata(self.out.join(&name))?.len();
            println!("{:>11}  {name}", bytes);
        }
        Ok(())
    }
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Result<Vec<String>, Failure> {
    let entries = fs::read_dir(folder)?;
    let names = entries.map(|it| Ok(it?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<String>, std::io::Error>>()?;
    names.sort();
    Ok(names)
}

/// Copies a folder with all that is in it.
fn copy_all(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::create_dir_all(to)?;
    for name in names(from)? {
        let (from, to) = (from.join(&name), to.join(&name));
        match from.is_dir() {
            true => copy_all(&from, &to)?,
            false => fs::copy(&from, &to).map(drop)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_workspace() {
        let manifest =
            "[workspace.package]\nversion = \"1.2.3\"\n[dependencies]\nversion = \"9\"\n";
        assert_eq!(version(manifest).unwrap(), "1.2.3");
        assert!(version("[workspace]\n").is_err());
    }
}
