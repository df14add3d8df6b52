//! What all packages hold: the stripped binary, what it writes of itself, and what people read.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::Package;
use crate::command::{Failure, program};

/// The goal for the stripped binary.
const BINARY_GOAL: u64 = 25_000_000;
/// The largest stripped binary that is published: 2 % above the 36.3 MB that it had when the bound
/// was set, so that a feature which makes it larger has to say so here. Lower it when the binary
/// gets smaller, in the end to the goal (decision 0002).
const BINARY_MAX: u64 = 37_000_000;

/// A shell, where the installation prefix has its completions, and what the file is called.
const SHELLS: [(&str, &str, &str); 3] = [
    ("bash", "share/bash-completion/completions", "intertie"),
    ("zsh", "share/zsh/site-functions", "_intertie"),
    ("fish", "share/fish/vendor_completions.d", "intertie.fish"),
];

impl Package {
    /// Fills the folder from which all packages are made. A binary of the profile `dist` must not
    /// be larger than [`BINARY_MAX`]; others only serve to try the packages out.
    pub(super) fn stage(&self, binary: &Path) -> Result<(), Failure> {
        let stage = self.staged();
        let own = stage.join("bin/intertie");
        let pages = stage.join("share/man/man1");
        for folder in [stage.join("bin"), pages.clone()] {
            fs::create_dir_all(folder)?;
        }
        program("strip")
            .args(["--strip-all".as_ref(), "-o".as_ref(), own.as_os_str()])
            .args([binary])
            .run()?;
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755))?;
        let bytes = fs::metadata(&own)?.len();
        println!("the stripped binary has {bytes} bytes");
        if bytes > BINARY_GOAL {
            eprintln!("warning: more than the goal of {BINARY_GOAL} bytes");
        }
        match is_dist(binary) {
            true => check_size(bytes)?,
            false => println!("its size is not checked: it is not in a folder `dist`"),
        }
        program(&own)
            .args(["man".as_ref(), pages.as_os_str()])
            .run()?;
        for (shell, folder, name) in SHELLS {
            let script = program(&own).args(["completions", shell]).output()?;
            fs::create_dir_all(stage.join(folder))?;
            fs::write(stage.join(folder).join(name), script)?;
        }
        for name in ["LICENSE", "README.md", "CHANGELOG.md"] {
            fs::copy(self.root.join(name), stage.join(name))?;
        }
        let example = stage.join("share/doc/intertie/examples/quickstart");
        super::copy_all(&self.root.join("examples/quickstart"), &example)
    }
}

/// Whether a binary was built with the profile `dist`, as it is when it is published: cargo and
/// `cargo xtask dist` name the folder after the profile.
fn is_dist(binary: &Path) -> bool {
    binary
        .parent()
        .is_some_and(|folder| folder.ends_with("dist"))
}

/// Refuses a binary that is too large to be published.
fn check_size(bytes: u64) -> Result<(), Failure> {
    match bytes {
        0..=BINARY_MAX => Ok(()),
        _ => Err(Failure::new(format!(
            "the stripped binary has {bytes} bytes, more than {BINARY_MAX}: see decision 0002"
        ))),
    }
}

/// The oldest version of the C library that has all that a binary asks of it.
pub(super) fn glibc(binary: &Path) -> Result<(u32, u32), Failure> {
    let text = program("readelf")
        .args([
            "--version-info".as_ref(),
            "--wide".as_ref(),
            binary.as_os_str(),
        ])
        .output()?;
    newest(&text).ok_or_else(|| Failure::new("the binary asks for no version of the C library"))
}

fn newest(text: &str) -> Option<(u32, u32)> {
    let versions = text.split("GLIBC_").skip(1);
    let numbers = versions.filter_map(|rest| {
        let is_part = |letter: char| letter.is_ascii_digit() || letter == '.';
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let mut parts = rest.get(..end)?.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    });
    numbers.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_of_the_profile_dist_are_known_by_their_folder() {
        let platform = "target/pgo/x86_64-unknown-linux-gnu/dist/intertie";
        for path in ["target/dist/intertie", platform] {
            assert!(is_dist(Path::new(path)), "{path}");
        }
        for path in [
            "target/release/intertie",
            "dist/target/debug/intertie",
            "dist",
        ] {
            assert!(!is_dist(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_binary_that_has_grown_is_refused() {
        assert!(check_size(BINARY_MAX).is_ok());
        assert!(check_size(BINARY_MAX + 1).is_err());
    }

    #[test]
    fn the_newest_version_that_is_asked_for_counts() {
        let text = "Name: GLIBC_2.9 Flags\n Name: GLIBC_2.34  Flags\n GLIBC_2.2.5 GCC_3.0";
        assert_eq!(newest(text), Some((2, 34)));
        assert_eq!(newest("GLIBC_PRIVATE"), None);
    }
}
