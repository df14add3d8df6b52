//! Installs each package where nothing of it was before, does the main job with it, and removes it:
//! the Debian package in a new Debian, the wheel in a new environment of Python and by `uvx`, the
//! package of npm below a new prefix and by `npx`, the container as an image that is built of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Package;
use super::image;
use super::service::{Service, setting};
use super::systemd::Machine;
use crate::command::{Failure, program};
use crate::interop::process::{Process, free_port, wait_for};
use crate::interop::report::{Outcome, Report};
use crate::servers::{self, Needed};

const TOOLS: &[Needed] = &[
    Needed::new("debootstrap", &["debootstrap"]),
    Needed::new("systemd-nspawn", &["systemd-container"]),
    Needed::new("curl", &["curl"]),
    Needed::new("npm", &["npm"]),
    Needed::new("systemd-analyze", &["systemd"]),
    Needed::new("buildah", &["buildah"]),
];

/// The package of PyPI that has `uvx`.
const UV: &str = "uv==0.13.9";

/// What the quick start of the README sends, and gets.
const SENT: &str = r#"{"order": {"@id": 7, "line": ["A1", "B7"]}}"#;
const EXPECTED: &str = r#"<order id="7"><line>A1</line><line>B7</line></order>"#;

/// Ten times the exposure that `systemd-analyze security` may find.
const EXPOSURE_MAX: &str = "30";
pub(super) const STOP_MAX: Duration = Duration::from_secs(20);

/// Does it with a folder of its own.
type Check = fn(&Package, &Path) -> Outcome;

/// Checks all packages and prints a line for each.
pub fn check(package: &Package, report: &mut Report) -> Result<(), Failure> {
    servers::ensure(TOOLS)?;
    let folder = package.out.join("check");
    fs::create_dir_all(&folder)?;
    let checks: [(&str, Check); 8] = [
        ("SHA256SUMS", sums),
        ("SBOM", sbom),
        ("archive", archive),
        ("unit", unit),
        ("Debian package", debian),
        ("wheel", wheel),
        ("npm package", npm),
        ("container", image::check),
    ];
    for (name, check) in checks {
        let place = folder.join(name.replace(' ', "-"));
        fs::create_dir_all(&place)?;
        report.add(&format!("packages: {name}"), check(package, &place));
    }
    let place = folder.join("systemd");
    fs::create_dir_all(&place)?;
    systemd(package, &place, report);
    for folder in [folder, package.out.join("work")] {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
    }
    Ok(())
}

fn sums(package: &Package, _: &Path) -> Outcome {
    let mut command = program("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]);
    command.0.current_dir(&package.out);
    command.output()
}

/// It is a CycloneDX document and lists what is linked into the binary, nothing else.
fn sbom(package: &Package, folder: &Path) -> Outcome {
    let note = program("python3")
        .args([package.source("sbom_check.py").as_os_str()])
        .args([package.file(".cdx.json", "intertie-")?.as_os_str()])
        .args([
            package.version.as_ref(),
            package.linked(folder)?.as_os_str(),
        ])
        .output()?;
    Ok(note.trim().to_owned())
}

fn archive(package: &Package, folder: &Path) -> Outcome {
    let file = package.file(".tar.gz", "intertie-")?;
    program("tar")
        .args([
            "-C".as_ref(),
            folder.as_os_str(),
            "-xzf".as_ref(),
            file.as_os_str(),
        ])
        .output()?;
    let inside = folder.join(super::names(folder)?.concat());
    for name in ["LICENSE", "README.md", "CHANGELOG.md"] {
        is_there(&inside.join(name))?;
    }
    complete(&inside, "share/zsh/site-functions/_intertie", "1")?;
    main_job(package, &inside.join("bin/intertie"), folder)
}

fn unit(package: &Package, _: &Path) -> Outcome {
    let unit = package.source("debian/intertie.service");
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let text = program("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", &threshold])
        .args([unit])
        .output()?;
    let line = text.lines().rfind(|line| line.contains("exposure"));
    Ok(line.unwrap_or_default().to_owned())
}

/// The Debian package in a new Debian, with the quick start on ports that are free here.
struct Installed {
    root: PathBuf,
    port: u16,
    /// The flow file, which an operator has edited.
    flows: PathBuf,
    text: String,
}

impl Installed {
    fn new(package: &Package, folder: &Path) -> Result<Self, Failure> {
        let root = folder.join("root");
        new_debian(package, &root)?;
        dpkg(&root, &["-i"], Some(&package.file(".deb", "intertie_")?))?;
        let port = free_port()?;
        let flows = root.join("etc/intertie/flows.yaml");
        let text = fs::read_to_string(&flows)?.replace("8080", &port.to_string());
        fs::write(&flows, &text)?;
        // As an operator does it, and as the port may be taken here.
        let options = format!("INTERTIE_OPTIONS=--admin 127.0.0.1:{}\n", free_port()?);
        fs::write(root.join("etc/default/intertie"), options)?;
        Ok(Self {
            root,
            port,
            flows,
            text,
        })
    }

    /// The upgrade has kept the edited file.
    fn is_kept(&self) -> Result<(), Failure> {
        match fs::read_to_string(&self.flows)? == self.text {
            true => Ok(()),
            false => Err(Failure::new("the upgrade has lost an edited flow file")),
        }
    }
}

/// Installed, run as the unit says, upgraded without losing an edited file, purged without a trace.
fn debian(package: &Package, folder: &Path) -> Outcome {
    let installed = Installed::new(package, folder)?;
    let (root, port) = (&installed.root, installed.port);
    let zsh = "share/zsh/vendor-completions/_intertie";
    complete(&root.join("usr"), zsh, "1.gz")?;
    let mut service = Service::start(root, folder)?;
    ask(port)?;
    service.reload()?;
    ask(port)?;
    service.stop()?;
    let next = package.debian(&format!("{}+next1", package.version))?;
    dpkg(root, &["-i"], Some(&next))?;
    fs::remove_file(next)?;
    installed.is_kept()?;
    let service = Service::start(root, folder)?;
    ask(port)?;
    service.stop()?;
    dpkg(root, &["--purge", "intertie"], None)?;
    for folder in ["etc", "usr", "var/lib"] {
        is_gone(&root.join(folder))?;
    }
    for folder in ["etc/intertie", "var/lib/intertie", "usr/share/doc/intertie"] {
        if root.join(folder).exists() {
            return Err(Failure::new(format!("{folder} is still there")));
        }
    }
    if fs::read_to_string(root.join("etc/passwd"))?.contains("intertie") {
        return Err(Failure::new("the user is still there"));
    }
    fs::remove_dir_all(root)?;
    Ok("systemd is played: ExecStart, User, NOTIFY_SOCKET and the watchdog".to_owned())
}

/// Under a real systemd, which does not run everywhere.
fn systemd(package: &Package, folder: &Path, report: &mut Report) {
    let name = "packages: systemd";
    let outcome = match Installed::new(package, folder) {
        Err(failure) => Err(failure),
        Ok(installed) => match shorten_watchdog(&installed.root) {
            Err(failure) => Err(failure),
            Ok(()) => match Machine::boot(&installed.root, folder) {
                Ok(machine) => booted(package, &installed, &machine),
                Err(reason) => {
                    return report.skip(name, &format!("systemd cannot run here: {reason}"));
                }
            },
        },
    };
    report.add(name, outcome);
}

/// A drop-in of the unit, so that nobody waits for the watchdog's 30 s.
fn shorten_watchdog(root: &Path) -> Result<(), Failure> {
    let sooner = root.join("etc/systemd/system/intertie.service.d");
    fs::create_dir_all(&sooner)?;
    fs::write(sooner.join("sooner.conf"), "[Service]\nWatchdogSec=3s\n")?;
    Ok(())
}

/// Started at boot, reloaded, restarted by the watchdog, upgraded while it runs, and purged.
fn booted(package: &Package, installed: &Installed, machine: &Machine) -> Outcome {
    let port = installed.port;
    machine.becomes("ActiveState", "active")?;
    ask(port)?;
    machine.run(&["systemctl", "reload", "intertie"])?;
    machine.becomes("StatusText", "Serving")?;
    machine.run(&["systemctl", "kill", "--signal=STOP", "intertie"])?;
    machine.becomes("NRestarts", "1")?;
    machine.becomes("ActiveState", "active")?;
    ask(port)?;
    let before = machine.property("MainPID")?;
    let next = package.debian(&format!("{}+next1", package.version))?;
    fs::copy(&next, installed.root.join("srv/next.deb"))?;
    fs::remove_file(next)?;
    machine.run(&["dpkg", "-i", "/srv/next.deb"])?;
    machine.becomes("ActiveState", "active")?;
    if machine.property("MainPID")? == before {
        return Err(Failure::new("the old engine runs on"));
    }
    installed.is_kept()?;
    ask(port)?;
    machine.run(&["dpkg", "--purge", "intertie"])?;
    machine.becomes("ActiveState", "inactive")?;
    Ok("boot, reload, watchdog, upgrade while it runs, purge".to_owned())
}

/// A Debian as `debootstrap` makes it: once, and unpacked from then on.
fn new_debian(package: &Package, root: &Path) -> Result<(), Failure> {
    let release = fs::read_to_string("/etc/os-release")?;
    let suite = setting(&release, "VERSION_CODENAME")?;
    let kept = package
        .out
        .with_file_name(format!("debian-{suite}-systemd.tar"));
    if !kept.exists() {
        let place = root.with_extension("new");
        program("debootstrap")
            .args(["--variant=minbase", "--include=systemd,systemd-sysv", suite])
            .args([&place])
            .run()?;
        program("tar")
            .args(["-C".as_ref(), place.as_os_str(), "-cf".as_ref()])
            .args([kept.as_os_str(), ".".as_ref()])
            .run()?;
        fs::remove_dir_all(&place)?;
    }
    fs::create_dir_all(root)?;
    program("tar")
        .args([
            "-C".as_ref(),
            root.as_os_str(),
            "-xf".as_ref(),
            kept.as_os_str(),
        ])
        .run()
}

fn dpkg(root: &Path, arguments: &[&str], file: Option<&Path>) -> Result<(), Failure> {
    let mut words: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
    if let Some(file) = file {
        let name = file.file_name().unwrap_or_default();
        fs::copy(file, root.join("tmp").join(name))?;
        words.push(format!("/tmp/{}", name.to_string_lossy()));
    }
    program("chroot")
        .args([root])
        .args(["dpkg"])
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .output()
        .map(drop)
}

fn wheel(package: &Package, folder: &Path) -> Outcome {
    let file = package.file(".whl", "intertie-")?;
    let venv = folder.join("venv");
    new_venv(&venv)?;
    let pip = venv.join("bin/pip");
    program(&pip)
        .args([
            "install",
            "--no-index",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .args([&file])
        .output()?;
    program(venv.join("bin/python"))
        .args(["-m", "intertie", "--version"])
        .output()?;
    complete(&venv, "share/zsh/site-functions/_intertie", "1")?;
    let version = main_job(package, &venv.join("bin/intertie"), folder)?;
    program(&pip)
        .args(["uninstall", "--yes", "--quiet", "intertie"])
        .output()?;
    is_gone(&venv)?;
    is_version(&version, uvx(&file, folder)?)?;
    Ok(format!("{version}, uvx too"))
}

/// The version that the program of a wheel prints when `uvx` runs it, which has a cache of its own.
fn uvx(wheel: &Path, folder: &Path) -> Outcome {
    let venv = folder.join("uv");
    new_venv(&venv)?;
    program(venv.join("bin/pip"))
        .args(["install", "--quiet", "--disable-pip-version-check", UV])
        .output()?;
    program(venv.join("bin/uvx"))
        .args(["--offline", "--no-config", "--from"])
        .args([wheel])
        .args(["intertie", "--version"])
        .env(
            "UV_CACHE_DIR",
            &folder.join("uv-cache").display().to_string(),
        )
        .output()
}

fn new_venv(folder: &Path) -> Result<(), Failure> {
    program("python3")
        .args(["-m".as_ref(), "venv".as_ref(), folder.as_os_str()])
        .output()
        .map(drop)
}

fn npm(package: &Package, folder: &Path) -> Outcome {
    let prefix = folder.join("prefix");
    let npm = |words: &[&str]| {
        program("npm")
            .args(words)
            .args(["--global".as_ref(), "--prefix".as_ref(), prefix.as_os_str()])
            .args(["--offline", "--no-audit", "--no-fund"])
    };
    let file = package.file("-npm.tgz", "intertie-")?;
    npm(&["install", &file.display().to_string()]).output()?;
    let inside = prefix.join("lib/node_modules/intertie");
    complete(&inside, "share/zsh/site-functions/_intertie", "1")?;
    // npm links the pages to where man(1) looks for them.
    is_there(&prefix.join("share/man/man1/intertie.1"))?;
    let version = main_job(package, &prefix.join("bin/intertie"), folder)?;
    npm(&["uninstall", "intertie"]).output()?;
    is_gone(&prefix)?;
    is_version(&version, npx(&file, folder)?)?;
    Ok(format!("{version}, npx too"))
}

/// The version that the program of a package prints when `npx` runs it, which has a cache of its
/// own. The file has to begin with `./` or `/`, or npx takes it for the name of a package.
fn npx(file: &Path, folder: &Path) -> Outcome {
    program("npx")
        .args(["--yes", "--offline", "--package"])
        .args([file])
        .args(["intertie", "--version"])
        .env(
            "npm_config_cache",
            &folder.join("npm-cache").display().to_string(),
        )
        .output()
}

fn is_version(wanted: &str, got: String) -> Result<(), Failure> {
    match got.trim() == wanted {
        true => Ok(()),
        false => Err(Failure::new(format!("it says `{got}` and not `{wanted}`"))),
    }
}

/// The quick start of the README, with a port that is free here.
fn main_job(package: &Package, program: &Path, folder: &Path) -> Outcome {
    let version = crate::command::program(program)
        .args(["--version"])
        .output()?;
    let flows = folder.join("flows");
    let port = free_port()?;
    crate::command::program(program)
        .args(["new".as_ref(), flows.as_os_str()])
        .output()?;
    crate::command::program(program)
        .args(["test".as_ref(), flows.as_os_str()])
        .output()?;
    let example = package.root.join("examples/quickstart/flows.yaml");
    let text = fs::read_to_string(example)?.replace("8080", &port.to_string());
    let file = folder.join("quickstart.yaml");
    fs::write(&file, text)?;
    let mut command = Command::new(program);
    command.arg("run").arg(&file).args(["--admin", "off"]);
    let mut process = Process::start(folder, "intertie", command)?;
    process.listens(port)?;
    ask(port)?;
    process.stop("TERM", STOP_MAX)?;
    Ok(version.trim().to_owned())
}

/// Does the main job and looks at what comes back.
pub(super) fn ask(port: u16) -> Result<(), Failure> {
    let url = format!("http://127.0.0.1:{port}/xml");
    let ask = || {
        program("curl")
            .args(["-sS", "--fail", "--max-time", "10", &url, "-d", SENT])
            .args(["-H", "Content-Type: application/json"])
            .output()
    };
    let got = wait_for(STOP_MAX, || Ok(ask().ok()))?;
    match got.as_deref().map(str::trim) {
        Some(EXPECTED) => Ok(()),
        other => Err(Failure::new(format!("{url} gives {other:?}"))),
    }
}

/// Manual pages and completions are in the package.
pub(super) fn complete(prefix: &Path, zsh: &str, page: &str) -> Result<(), Failure> {
    let pages = ["intertie", "intertie-run", "intertie-check"];
    for name in pages {
        is_there(&prefix.join(format!("share/man/man1/{name}.{page}")))?;
    }
    is_there(&prefix.join("share/bash-completion/completions/intertie"))?;
    is_there(&prefix.join("share/fish/vendor_completions.d/intertie.fish"))?;
    is_there(&prefix.join(zsh))
}

fn is_there(path: &Path) -> Result<(), Failure> {
    match fs::metadata(path) {
        Ok(data) if data.len() > 0 => Ok(()),
        _ => Err(Failure::new(format!("{} is missing", path.display()))),
    }
}

/// No file below a folder has the program's name in its path any more: binary, manual pages,
/// completions, the service. Empty folders may stay, for pip leaves them.
fn is_gone(folder: &Path) -> Result<(), Failure> {
    let mut left = Vec::new();
    traces(folder, false, &mut left)?;
    match left.first() {
        Some(path) => Err(Failure::new(format!(
            "{} is still there, one of {} files",
            path.display(),
            left.len()
        ))),
        None => Ok(()),
    }
}

/// Collects the files that are the program's by their own name or by that of a folder.
fn traces(folder: &Path, is_own: bool, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for name in super::names(folder)? {
        let path = folder.join(&name);
        let is_own = is_own || name.contains("intertie");
        if path.is_dir() && !path.is_symlink() {
            traces(&path, is_own, found)?;
        } else if is_own {
            found.push(path);
        }
    }
    Ok(())
}

impl Package {
    /// The package with this beginning and this end.
    fn file(&self, end: &str, beginning: &str) -> Result<PathBuf, Failure> {
        let mut names = super::names(&self.out)?.into_iter();
        let is_it = |name: &String| {
            name.starts_with(beginning) && name.ends_with(end) && !name.contains("container")
        };
        let name = names.find(is_it);
        let name = name.ok_or_else(|| Failure::new(format!("there is no {beginning}*{end}")))?;
        Ok(self.out.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_uninstall_leaves_is_found() {
        let folder = std::env::temp_dir().join(format!("xtask-check-{}", std::process::id()));
        fs::create_dir_all(folder.join("share/doc/intertie/examples")).unwrap();
        fs::create_dir_all(folder.join("bin")).unwrap();
        fs::write(folder.join("bin/python"), "").unwrap();
        assert!(is_gone(&folder).is_ok());
        std::os::unix::fs::symlink("nothing", folder.join("bin/intertie")).unwrap();
        assert!(is_gone(&folder).is_err());
        fs::remove_file(folder.join("bin/intertie")).unwrap();
        fs::write(folder.join("share/doc/intertie/examples/flows.yaml"), "").unwrap();
        assert!(is_gone(&folder).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
