//! A disk that does not keep what it is given: `fsync` fails, by a library that is put before the
//! system's (`LD_PRELOAD`).

use std::fs;
use std::path::{Path, PathBuf};

use testkit::{StrictBackend, TempDir, free_port, wait_until};

use crate::support::{Engine, library, post};

/// As long as the file `$FAILS` is there `fsync` fails: of files and folders, or of folders alone
/// when the file begins with `d`.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static int fails(int fd) {
  char *name = getenv("FAILS"); FILE *file = name ? fopen(name, "r") : 0;
  if (!file) return 0;
  int kind = fgetc(file); fclose(file);
  struct stat about;
  if (kind == 'd' && (fstat(fd, &about) || !S_ISDIR(about.st_mode))) return 0;
  errno = EIO; return 1;
}
int fdatasync(int fd) { return fails(fd) ? -1 : syscall(SYS_fdatasync, fd); }
int fsync(int fd) { return fails(fd) ? -1 : syscall(SYS_fsync, fd); }
"#;

/// A folder whose disk can be made to fail.
pub struct Disk {
    folder: TempDir,
    library: PathBuf,
}

impl Disk {
    pub fn new() -> Self {
        let folder = TempDir::new();
        let library = library(&folder, SHIM);
        Self { folder, library }
    }

    pub fn run(&self, flows: &str) -> Engine {
        let file = self.folder.write("flows.yaml", flows);
        let (data, fails) = (self.folder.path().join("data"), self.file());
        let text = |path: &Path| path.display().to_string();
        let variables = [("LD_PRELOAD", text(&self.library)), ("FAILS", text(&fails))];
        let variables = variables.each_ref().map(|it| (it.0, it.1.as_str()));
        Engine::run_in(&[&file], &["--data", &text(&data)], &variables)
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("fails")
    }

    pub fn fail(&self, what: &str) {
        fs::write(self.file(), what).unwrap();
    }
}

#[test]
fn health_and_readiness_are_over_after_a_failed_fsync() {
    let backend = StrictBackend::start();
    let disk = Disk::new();
    // `idempotent` goes on with keys in memory, and says so in the log.
    for (name, refuses, flows) in [
        (
            "store",
            true,
            "flow: take\nfrom: { http: \"POST 127.0.0.1:PORT/in\" }\nsteps:\n\
             \x20 - store: { in: orders }\n---\nflow: deliver\nfrom: { store: orders }\nsteps:\n\
             \x20 - http: POST http://127.0.0.1:BACKEND/orders\n",
        ),
        (
            "topic",
            true,
            "topic: orders\npayload: event\npublish:\n  http: POST 127.0.0.1:PORT/in\n",
        ),
        (
            "idempotent",
            false,
            "flow: once\nfrom: { http: \"POST 127.0.0.1:PORT/in\" }\nsteps:\n\
             \x20 - idempotent:\n      key: \"${ .id }\"\n      durability: disk\n      steps:\n\
             \x20       - http: POST http://127.0.0.1:BACKEND/orders\n",
        ),
    ] {
        let port = free_port();
        let flows = flows.replace("PORT", &port.to_string());
        let engine = disk.run(&flows.replace("BACKEND", &backend.port().to_string()));
        let send = |id: u32| post(port, "/in", "application/json", &format!("{{\"id\":{id}}}"));
        assert!(send(1).status < 300, "{name}: {}", engine.process.output());
        let pages = || ["/health", "/ready"].map(|page| engine.get(page).status);
        assert_eq!(pages(), [200, 200], "{name}");
        disk.fail("all");
        assert_eq!(send(2).status >= 500, refuses, "{name}");
        wait_until("it says so", || pages() == [503, 503]);
        // What the disk has is not known: it stays so when the disk works again.
        fs::remove_file(disk.file()).unwrap();
        assert_eq!(send(3).status >= 500, refuses, "{name}");
        assert_eq!(pages(), [503, 503], "{name}");
        engine.stop();
    }
}

#[test]
fn a_file_leaves_for_another_file_system_when_its_name_is_on_the_disk_there() {
    let (disk, elsewhere) = (Disk::new(), TempDir::elsewhere());
    let done = elsewhere.path();
    let input = disk.folder.path().join("in");
    fs::create_dir(&input).unwrap();
    let engine = disk.run(&format!(
        "flow: take\nfrom:\n  file: {{ folder: \"{}\", done: \"{}\", every: 100ms }}\nsteps:\n\
         \x20 - log: {{ message: taken }}\n",
        input.display(),
        done.display()
    ));
    disk.fail("d");
    fs::write(input.join("order"), "1").unwrap();
    engine.process.wait_for("cannot be moved");
    let processing = input.join(".processing/order");
    let stays = processing.exists();
    fs::remove_file(disk.file()).unwrap();
    wait_until("it has been moved", || !processing.exists());
    engine.stop();
    let names = fs::read_dir(done).unwrap();
    let names: Vec<_> = names.map(|it| it.unwrap().file_name()).collect();
    assert!(stays, "a crash could take the only name that it has");
    assert_eq!(names, ["order"]);
}
