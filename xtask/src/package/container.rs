//! The files of a container: the binary, the libraries it is linked with, the authorities that TLS
//! trusts, and nothing else. `podman build` of the folder needs no network.

use std::fs;
use std::path::{Path, PathBuf};

use super::Package;
use crate::command::{Failure, program};

/// The authorities of the machine that makes the container.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Who runs it: nobody that has a name elsewhere.
pub(super) const USER: &str = "65532";

impl Package {
    /// Makes the folder that a container is built from, and an archive of it.
    pub(super) fn container(&self) -> Result<(), Failure> {
        let folder = self.out.join("container");
        let root = folder.join("rootfs");
        for part in ["usr/bin", "etc/intertie", "var/lib/intertie", "tmp"] {
            fs::create_dir_all(root.join(part))?;
        }
        let binary = root.join("usr/bin/intertie");
        fs::copy(self.staged().join("bin/intertie"), &binary)?;
        for library in libraries(&program("ldd").args([&binary]).output()?) {
            put(&library, &root)?;
        }
        put(Path::new(AUTHORITIES), &root)?;
        let (passwd, group) = (
            format!("intertie:x:{USER}:{USER}::/var/lib/intertie:/usr/sbin/nologin\n"),
            format!("intertie:x:{USER}:\n"),
        );
        fs::write(root.join("etc/passwd"), passwd)?;
        fs::write(root.join("etc/group"), group)?;
        let owner = format!("{USER}:{USER}");
        let data = root.join("var/lib/intertie");
        // Without the right to do it the volume belongs to whoever builds the container.
        let _ = program("chown")
            .args([owner.as_ref(), data.as_os_str()])
            .output();
        super::copy_all(&self.staged().join("share"), &root.join("usr/share"))?;
        fs::copy(self.staged().join("LICENSE"), root.join("LICENSE"))?;
        fs::copy(
            self.source("container/Containerfile"),
            folder.join("Containerfile"),
        )?;
        let name = format!(
            "intertie-{}-{}-container.tar.gz",
            self.version,
            std::env::consts::ARCH
        );
        program("tar")
            .args(["--sort=name", "--numeric-owner"])
            .args([format!("--mtime={} 00:00:00Z", self.date)])
            .args(["-C".as_ref(), self.out.as_os_str(), "-czf".as_ref()])
            .args([self.out.join(name).as_os_str(), "container".as_ref()])
            .run()
    }
}

/// The files of libraries, as `ldd` names them.
fn libraries(text: &str) -> Vec<PathBuf> {
    let words = text.split_ascii_whitespace();
    words
        .filter(|it| it.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}

/// Copies a file, not the link that leads to it, to where it is here.
fn put(file: &Path, root: &Path) -> Result<(), Failure> {
    let to = root.join(file.strip_prefix("/").unwrap_or(file));
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(file, to)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_with_a_file() {
        let text = "\tlinux-vdso.so.1 (0x7f)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x7f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        let expected = ["/lib/x/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(libraries(text), expected.map(PathBuf::from));
    }
}
