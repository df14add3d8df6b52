//! The container image: built by buildah, which needs neither a service nor a network, from the
//! published archive; looked at, and run as a container runs it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use super::Package;
use super::check::{STOP_MAX, ask, complete};
use super::container::USER;
use crate::command::{Failure, Program, program};
use crate::interop::process::{Process, free_port};
use crate::interop::report::Outcome;

/// The bytes of an image at most. The binary may have 37 MB (`stage.rs`), the C library and the
/// authorities have 3.
const IMAGE_MAX: u64 = 45_000_000;

/// What a container runtime reads of an image, as a template of Go.
const SETTINGS: &str = "{{with .Docker.Config}}{{.User}} {{.WorkingDir}} {{.Volumes}} \
    {{.ExposedPorts}} {{.Entrypoint}} {{.Cmd}} {{with .Healthcheck}}{{.Test}}{{end}}{{end}}";
const EXPECTED: &str = "65532:65532 /var/lib/intertie map[/var/lib/intertie:{}] \
    map[8080/tcp:{} 9900/tcp:{}] [/usr/bin/intertie] \
    [run /etc/intertie --data /var/lib/intertie --admin 0.0.0.0:9900] \
    [CMD /usr/bin/intertie health]";

pub(super) fn check(package: &Package, folder: &Path) -> Outcome {
    let archive = package.container_archive();
    program("tar")
        .args(["-C".as_ref(), folder.as_os_str()])
        .args(["-xzf".as_ref(), archive.as_os_str()])
        .output()?;
    let buildah = |words: &[&str]| {
        program("buildah")
            .args(["--root".as_ref(), folder.join("storage").as_os_str()])
            .args(["--runroot".as_ref(), folder.join("run").as_os_str()])
            .args(["--storage-driver", "vfs"])
            .args(words)
    };
    // The format of OCI has no health check.
    buildah(&["bud", "--quiet", "--isolation", "chroot"])
        .args(["--format", "docker", "--tag", "intertie"])
        .args([folder.join("container")])
        .output()?;
    let inspect = ["inspect", "--type", "image", "--format", SETTINGS];
    let settings = buildah(&inspect).args(["intertie"]).output()?;
    if settings.trim() != EXPECTED {
        return Err(Failure::new(format!("the image has {settings}")));
    }
    let container = buildah(&["from", "--pull-never", "intertie"]).output()?;
    let root = buildah(&["mount", container.trim()]).output()?;
    let root = Path::new(root.trim());
    let bytes = look(root)?;
    run(package, root, folder)?;
    buildah(&["rm", "--all"]).output()?;
    let (whole, part) = (bytes / 1_000_000, bytes / 100_000 % 10);
    Ok(format!(
        "built by buildah, {whole}.{part} MB, read-only root, user {USER}, health check"
    ))
}

/// Looks at the files of an image and returns how many bytes they have.
fn look(root: &Path) -> Result<u64, Failure> {
    complete(&root.join("usr"), "share/zsh/site-functions/_intertie", "1")?;
    for (name, owner) in [("var/lib/intertie", USER), ("var/lib", "0"), ("usr", "0")] {
        let found = fs::metadata(root.join(name))?.uid().to_string();
        if found != owner {
            let message = format!("{name} belongs to user {found}, not to {owner}");
            return Err(Failure::new(message));
        }
    }
    match size(root)? {
        bytes @ 0..=IMAGE_MAX => Ok(bytes),
        bytes => Err(Failure::new(format!(
            "the image has {bytes} bytes, more than {IMAGE_MAX}"
        ))),
    }
}

fn size(folder: &Path) -> Result<u64, Failure> {
    let mut bytes = 0;
    for name in super::names(folder)? {
        let path = folder.join(name);
        bytes += match path.is_dir() {
            true => size(&path)?,
            false => fs::symlink_metadata(path)?.len(),
        };
    }
    Ok(bytes)
}

/// The image's files as the root of a process, which cannot be written to but for the data folder,
/// and a user without rights.
fn run(package: &Package, root: &Path, folder: &Path) -> Result<(), Failure> {
    let port = free_port()?;
    let admin = format!("127.0.0.1:{}", free_port()?);
    let text = fs::read_to_string(package.root.join("examples/quickstart/flows.yaml"))?;
    let flows = root.join("etc/intertie/flows.yaml");
    fs::write(flows, text.replace("8080", &port.to_string()))?;
    let script = format!(
        "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && \
         mount -t tmpfs -o uid={USER} tmpfs \"$0/var/lib/intertie\" && \
         exec chroot --userspec={USER}:{USER} \"$0\" \"$@\""
    );
    let inside = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", &script])
            .arg(root)
            .args(words);
        command
    };
    let run = inside(&[
        "/usr/bin/intertie",
        "run",
        "/etc/intertie",
        "--data",
        "/var/lib/intertie",
        "--admin",
        &admin,
    ]);
    let health = || Program(inside(&["/usr/bin/intertie", "health", "--admin", &admin])).output();
    let mut process = Process::start(folder, "container", run)?;
    process.listens(port)?;
    ask(port)?;
    health()?;
    process.stop("TERM", STOP_MAX)?;
    match health() {
        Ok(_) => Err(Failure::new("the health check does not notice the end")),
        Err(_) => Ok(()),
    }
}
