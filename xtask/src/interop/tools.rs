//! The clients: those of Debian by name; h2spec, the packages of Python and those of Node in the
//! target folder, where the next run finds them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Failure, program, target};
use crate::servers::Needed;

/// The latest version that the module proxy has; later ones are no valid modules.
const H2SPEC: &str = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible";

/// What every run uses.
pub const ALWAYS: &[Needed] = &[
    Needed {
        name: "openssl",
        packages: &["openssl"],
    },
    Needed {
        name: "python3",
        packages: &["python3-venv"],
    },
    Needed {
        name: "timeout",
        packages: &["coreutils"],
    },
];

const A_CHROMIUM: Needed = Needed {
    name: "chromium",
    packages: &["chromium"],
};

const A_CURL: Needed = Needed {
    name: "curl",
    packages: &["curl"],
};

pub const CHROMIUM: &[Needed] = &[A_CHROMIUM];

pub const CURL: &[Needed] = &[A_CURL];

pub const GO: &[Needed] = &[Needed {
    name: "go",
    packages: &["golang-go"],
}];

pub const NGHTTP: &[Needed] = &[
    Needed {
        name: "nghttp",
        packages: &["nghttp2-client"],
    },
    Needed {
        name: "h2load",
        packages: &["nghttp2-client"],
    },
];

/// Publishers and subscribers of topics.
pub const TOPICS: &[Needed] = &[A_CHROMIUM, A_CURL, NODE, NPM];

/// Pages behind a lock.
pub const BROWSERS: &[Needed] = &[A_CHROMIUM, A_CURL];

/// Pictures of the book.
pub const PICTURES: &[Needed] = &[A_CHROMIUM, NODE];

/// Another judge of tokens.
pub const TOKENS: &[Needed] = &[NODE, NPM];

/// Back ends that forgive odd paths, each in its own way.
pub const SPELLINGS: &[Needed] = &[
    NODE,
    NPM,
    NGINX,
    Needed {
        name: "catalina.sh",
        packages: &["tomcat10-common", "tomcat9-common"],
    },
];

/// OpenID providers.
pub const IDENTITY: &[Needed] = &[
    NODE,
    NPM,
    Needed {
        name: "java",
        packages: &["openjdk-17-jre-headless", "default-jre-headless"],
    },
    Needed {
        name: "mvn",
        packages: &["maven"],
    },
    Needed {
        name: "unzip",
        packages: &["unzip"],
    },
];

const NODE: Needed = Needed {
    name: "node",
    packages: &["nodejs"],
};

const NPM: Needed = Needed {
    name: "npm",
    packages: &["npm"],
};

const NGINX: Needed = Needed {
    name: "nginx",
    packages: &["nginx-light", "nginx"],
};

/// Clients and back ends that meet with the engine between them. Go must be 1.25 or later.
pub const PEERS: &[Needed] = &[
    A_CURL,
    NODE,
    NPM,
    Needed {
        name: "go",
        packages: &["golang-go"],
    },
    Needed {
        name: "javac",
        packages: &["openjdk-17-jdk-headless", "default-jdk-headless"],
    },
    NGINX,
    Needed {
        name: "apache2",
        packages: &["apache2"],
    },
    // The module for TLS brings the server.
    Needed {
        name: "lighttpd",
        packages: &["lighttpd-mod-openssl"],
    },
    Needed {
        name: "caddy",
        packages: &["caddy"],
    },
];

/// Where client and back-end scripts lie.
pub fn scripts(root: &Path) -> PathBuf {
    root.join("xtask/interop")
}

/// A Python that has the packages of `requirements.txt`.
pub fn python(root: &Path) -> Result<PathBuf, Failure> {
    let folder = target(root)?.join("interop/venv");
    let wanted = scripts(root).join("requirements.txt");
    let (python, installed) = (folder.join("bin/python"), folder.join("requirements.txt"));
    if python.is_file() && fs::read(&installed).ok() == Some(fs::read(&wanted)?) {
        return Ok(python);
    }
    let arguments = ["-m", "venv", "--clear"].map(Into::into);
    let made = program("python3").args(arguments.into_iter().chain([folder.clone()]));
    made.run()?;
    let arguments = ["-m", "pip", "install", "--quiet", "-r"].map(PathBuf::from);
    let filled = program(&python).args(arguments.into_iter().chain([wanted.clone()]));
    filled.run()?;
    fs::copy(&wanted, &installed)?;
    Ok(python)
}

/// A folder that has the packages of `package-lock.json`.
pub fn node(root: &Path) -> Result<PathBuf, Failure> {
    let folder = target(root)?.join("interop/node");
    let wanted = scripts(root).join("package-lock.json");
    let installed = folder.join("installed.json");
    if fs::read(&installed).ok() == Some(fs::read(&wanted)?) {
        return Ok(folder);
    }
    fs::create_dir_all(&folder)?;
    for name in ["package.json", "package-lock.json"] {
        fs::copy(scripts(root).join(name), folder.join(name))?;
    }
    let arguments = ["ci", "--no-audit", "--no-fund", "--prefix"].map(PathBuf::from);
    program("npm")
        .args(arguments.into_iter().chain([folder.clone()]))
        .run()?;
    fs::copy(&wanted, &installed)?;
    Ok(folder)
}

/// h2spec, built when it is not there.
pub fn h2spec(root: &Path) -> Result<PathBuf, Failure> {
    let folder = target(root)?.join("interop");
    let h2spec = folder.join("bin/h2spec");
    if !h2spec.is_file() {
        program("go")
            .args(["install", H2SPEC])
            .env("GOPATH", &folder.join("go").to_string_lossy())
            .env("GOBIN", &folder.join("bin").to_string_lossy())
            .env("GOFLAGS", "-modcacherw")
            .run()?;
    }
    Ok(h2spec)
}
