//! The Debian package: a service with its configuration, made with `dpkg-deb` alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Package;
use crate::command::{Failure, program};

/// What a Debian package adds to the staged files: from where, to where, and who may do what.
const FILES: [(&str, &str, u32); 2] = [
    (
        "intertie.service",
        "usr/lib/systemd/system/intertie.service",
        0o644,
    ),
    ("default", "etc/default/intertie", 0o640),
];

const SCRIPTS: [&str; 4] = ["preinst", "postinst", "prerm", "postrm"];

/// What dpkg asks about before it overwrites it.
const CONFIGURATION: &str = "/etc/default/intertie\n/etc/intertie/flows.yaml\n";

/// Who answers for the package (Debian policy, section 5.6.2): whoever builds it, by the variables
/// that Debian's tools read (`dch(1)`). The project has no address, so the default has none either,
/// as with other packagers (nfpm).
fn maintainer() -> String {
    let named = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
    match (named("DEBFULLNAME"), named("DEBEMAIL")) {
        (Some(name), Some(address)) => format!("{name} <{address}>"),
        _ => "Unset Maintainer <unset@localhost>".to_owned(),
    }
}

impl Package {
    /// Makes the package with this version and returns its file.
    pub(super) fn debian(&self, version: &str) -> Result<PathBuf, Failure> {
        let root = self.out.join("work/debian");
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        let (major, minor) = super::stage::glibc(&self.staged().join("bin/intertie"))?;
        super::copy_all(&self.staged(), &root.join("usr"))?;
        let documents = root.join("usr/share/doc/intertie");
        for name in ["LICENSE", "README.md", "CHANGELOG.md"] {
            fs::rename(root.join("usr").join(name), documents.join(name))?;
        }
        fs::rename(documents.join("LICENSE"), documents.join("copyright"))?;
        let zsh = root.join("usr/share/zsh");
        fs::rename(zsh.join("site-functions"), zsh.join("vendor-completions"))?;
        for name in super::names(&root.join("usr/share/man/man1"))? {
            let page = root.join("usr/share/man/man1").join(name);
            program("gzip")
                .args(["-9n".as_ref(), page.as_os_str()])
                .output()?;
        }
        for (from, to, mode) in FILES {
            install(&self.source("debian").join(from), &root.join(to), mode)?;
        }
        let example = self.root.join("examples/quickstart/flows.yaml");
        install(&example, &root.join("etc/intertie/flows.yaml"), 0o644)?;
        let control = root.join("DEBIAN");
        for script in SCRIPTS {
            let from = self.source("debian").join(script);
            install(&from, &control.join(script), 0o755)?;
        }
        fs::write(control.join("conffiles"), CONFIGURATION)?;
        let architecture = architecture();
        let text = format!(
            "Package: intertie\nVersion: {version}\nArchitecture: {architecture}\n\
             Maintainer: {}\n\
             Section: net\nPriority: optional\n\
             Pre-Depends: passwd\n\
             Depends: libc6 (>= {major}.{minor}), libgcc-s1, init-system-helpers\n\
             Recommends: ca-certificates\n\
             Description: integration, proxy and streaming engine\n \
             Connects systems: proxies, transforms and orchestrates messages, described by\n \
             short YAML files that are checked before they run.\n",
            maintainer()
        );
        fs::write(control.join("control"), text)?;
        let file = self
            .out
            .join(format!("intertie_{version}_{architecture}.deb"));
        program("dpkg-deb")
            .args(["--root-owner-group", "--build"])
            .args([&root, &file])
            .run()?;
        Ok(file)
    }
}

/// What Debian calls this machine's processor.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn install(from: &Path, to: &Path, mode: u32) -> Result<(), Failure> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}
