//! The files of a container: the binary, the libraries it is linked with, the authorities that TLS
//! trusts, and nothing else. `podman build` of the folder needs no network.

use std::fs;
use std::os::unix::fs::PermissionsExt;
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
        for part in ["usr/bin", "etc/intertie", "var/lib", "tmp"] {
            fs::create_dir_all(root.join(part))?;
        }
        fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777))?;
        // Becomes the data folder. Owners of files are not copied into an image: the Containerfile
        // says whose it is.
        fs::create_dir_all(folder.join("data"))?;
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
        super::copy_all(&self.staged().join("share"), &root.join("usr/share"))?;
        fs::copy(self.staged().join("LICENSE"), root.join("LICENSE"))?;
        fs::copy(
            self.source("container/Containerfile"),
            folder.join("Containerfile"),
        )?;
        self.tar(&self.out, &["container"], &self.container_archive())
    }

    pub(super) fn container_archive(&self) -> PathBuf {
        let (version, platform) = (&self.version, std::env::consts::ARCH);
        let name = format!("intertie-{version}-{platform}-container.tar.gz");
        self.out.join(name)
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
