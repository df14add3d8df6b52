//! The engine of a campaign: a process that is started and killed, with a clock and an `fsync` that
//! the campaign decides about.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::client;
use super::flows::{self, Around};
use super::servers::Servers;
use crate::command::{Failure, program};

/// How long a start or an end may take.
const MOST: Duration = Duration::from_secs(40);

/// Fails `fsync`, or what the file says with `w` (each write to a place in a file), as long as a
/// file is there, and adds to the time of day what another one says.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
static int fails(char kind) {
  char *name = getenv("CAMPAIGN_FAIL"); FILE *file = name ? fopen(name, "r") : 0;
  if (!file) return 0;
  int said = fgetc(file); fclose(file);
  if (said != kind) return 0;
  errno = EIO; return 1;
}
int fdatasync(int fd) { return fails('s') ? -1 : syscall(SYS_fdatasync, fd); }
int fsync(int fd) { return fails('s') ? -1 : syscall(SYS_fsync, fd); }
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at) {
  return fails('w') ? -1 : syscall(SYS_pwrite64, fd, from, size, at);
}
static __thread int count; static long offset;
int clock_gettime(clockid_t id, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(id, at);
  if (id != CLOCK_REALTIME) return result;
  if (count++ % 64 == 0) {
    char *name = getenv("CAMPAIGN_CLOCK"); FILE *file = name ? fopen(name, "r") : 0; long now;
    if (file) { if (fscanf(file, "%ld", &now) == 1) offset = now; fclose(file); }
  }
  at->tv_sec += offset;
  return result;
}
"#;

pub struct Engine {
    binary: PathBuf,
    folder: PathBuf,
    pub data: PathBuf,
    pub port: u16,
    pub admin: u16,
    around: Around,
    child: Option<Child>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that is free now.
pub fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Engine {
    pub fn new(
        binary: PathBuf,
        folder: &Path,
        receiver: u16,
        servers: &Servers,
    ) -> Result<Self, Failure> {
        let source = folder.join("shim.c");
        fs::write(&source, SHIM)?;
        let (from, to) = (source.display().to_string(), folder.join("shim.so"));
        let to = to.display().to_string();
        program("cc")
            .args(["-shared", "-fPIC", "-o", &to, &from, "-ldl"])
            .run()?;
        let port = free_port()?;
        let engine = Self {
            binary,
            folder: folder.to_owned(),
            data: folder.join("data"),
            port,
            admin: free_port()?,
            around: Around {
                port,
                receiver,
                broker: servers.broker.url.clone(),
                postgres: servers.postgres.url.clone(),
                mariadb: servers.mariadb.url.clone(),
            },
            child: None,
        };
        engine.write_flows(0)?;
        Ok(engine)
    }

    /// Writes the flows; a number makes them other ones.
    pub fn write_flows(&self, number: u64) -> Result<(), Failure> {
        let text = flows::text(&self.around, number);
        fs::write(self.folder.join("flows.yaml"), text)?;
        Ok(())
    }

    pub fn fail_file(&self) -> PathBuf {
        self.folder.join("fail")
    }

    pub fn clock_file(&self) -> PathBuf {
        self.folder.join("clock")
    }

    /// What the engine has said since its last start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Starts it; false when it refuses to, and says why.
    pub fn start(&mut self) -> Result<bool, Failure> {
        let log = fs::File::create(self.folder.join("log"))?;
        let child = Command::new(&self.binary)
            .arg("run")
            .arg(self.folder.join("flows.yaml"))
            .arg("--data")
            .arg(&self.data)
            .args(["--workers", "2", "--admin"])
            .arg(format!("127.0.0.1:{}", self.admin))
            .env("LD_PRELOAD", self.folder.join("shim.so"))
            .env("CAMPAIGN_FAIL", self.fail_file())
            .env("CAMPAIGN_CLOCK", self.clock_file())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let child = self.child.insert(child);
        let start = Instant::now();
        while start.elapsed() < MOST {
            if child.try_wait()?.is_some() {
                self.child = None;
                return Ok(false);
            }
            let is_up = TcpStream::connect(("127.0.0.1", self.admin)).is_ok();
            if is_up
                && client::ask(self.admin, "GET", "/ready", "").is_ok_and(|it| it.status == 200)
            {
                return Ok(true);
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(Failure::new(format!(
            "the engine does not get ready:\n{}",
            self.log()
        )))
    }

    /// Starts it; a refusal is a failure.
    pub fn must_start(&mut self) -> Result<(), Failure> {
        match self.start()? {
            true => Ok(()),
            false => Err(Failure::new(format!("it does not start:\n{}", self.log()))),
        }
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub fn signal(&self, signal: &str) -> Result<(), Failure> {
        let Some(child) = &self.child else {
            return Ok(());
        };
        let number = child.id().to_string();
        program("kill").args(["-s", signal, &number]).output()?;
        Ok(())
    }

    /// Ends it in order.
    pub fn stop(&mut self) -> Result<(), Failure> {
        self.signal("TERM")?;
        let start = Instant::now();
        if let Some(child) = &mut self.child {
            while child.try_wait()?.is_none() {
                if start.elapsed() > MOST {
                    return Err(Failure::new("the engine does not end"));
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
        self.child = None;
        Ok(())
    }
}
