//! Rounds in which the disk is full, or fails.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{Campaign, DRAIN_MAX, wait};
use crate::campaign::books::Way;
use crate::campaign::client;
use crate::campaign::publishers::body;
use crate::campaign::receiver::Mode;
use crate::command::{Failure, program};

/// How long may pass until a failing disk is told, and until it is used again.
const NOTICED_MAX: Duration = Duration::from_secs(20);

impl Campaign {
    /// Clients fill the disk; all that was taken is delivered while they go on.
    pub(super) fn full_disk(&mut self) -> Result<(), Failure> {
        let small = self.folder.join("small");
        fs::create_dir_all(&small)?;
        let at = small.display().to_string();
        let size = format!("size={}m", self.random.u8(8..20));
        let mounted = program("mount")
            .args(["-t", "tmpfs", "-o", &size, "none", &at])
            .run();
        if let Err(failure) = mounted {
            println!("        left out, no file system can be mounted: {failure}");
            return Ok(());
        }
        let played = self.on_full_disk(&small);
        self.engine.kill();
        self.engine.data = self.folder.join("data");
        program("umount").args([&at]).run()?;
        let left = played?;
        if !left.is_empty() {
            let count = left.len();
            self.books
                .lost(format!("{count} messages on a full disk are not delivered"));
        }
        // The topic of that folder is another one.
        self.books.of(Way::Topic).acknowledged.clear();
        self.last = None;
        self.engine.must_start()
    }

    fn on_full_disk(&mut self, small: &Path) -> Result<Vec<u64>, Failure> {
        self.settle()?;
        self.engine.stop()?;
        self.engine.data = small.join("data");
        self.engine.must_start()?;
        self.receiver.set(Mode::Refuses);
        let publishers = self.publish(&Way::ALONE, 3000);
        let is_full = wait(DRAIN_MAX, || {
            let number = self.books.next();
            let reply = client::ask(self.engine.port, "POST", "/orders", &body(number, 3000));
            match reply {
                Ok(reply) if reply.status == 202 => {
                    self.books.acknowledge(Way::Store, "", number);
                    false
                }
                reply => reply.is_ok_and(|it| it.status == 503),
            }
        });
        if !is_full {
            return Err(Failure::new("the disk is not full"));
        }
        self.tally.fault();
        self.pause(100, 2000);
        if self.random.bool() {
            self.kill_engine()?;
        }
        let waiting = self.books.of(Way::Store).acknowledged.clone();
        self.receiver.set(Mode::Up);
        let books = Arc::clone(&self.books);
        let left = || -> Vec<u64> {
            let store = books.of(Way::Store);
            waiting.difference(&store.arrived).copied().collect()
        };
        wait(DRAIN_MAX, || left().is_empty());
        publishers.stop();
        wait(DRAIN_MAX, || books.of(Way::Store).missing().is_empty());
        Ok(left())
    }

    /// Writes that fail for a while, and an `fsync` that fails: nothing is lost, and of the latter
    /// those are told whom supervisors ask.
    pub(super) fn failing_disk(&mut self) -> Result<(), Failure> {
        let publishers = self.publish(&Way::ALL, 0);
        self.pause(100, 600);
        self.fail("w")?;
        self.pause(100, 1500);
        if self.random.bool() {
            self.engine.kill();
            fs::remove_file(self.engine.fail_file())?;
            self.engine.must_start()?;
        } else {
            fs::remove_file(self.engine.fail_file())?;
        }
        let stored = || self.books.of(Way::Store).acknowledged.len();
        let before = stored();
        if !wait(NOTICED_MAX, || stored() > before) {
            let log = self.engine.log();
            self.books
                .lost(format!("no writes after the disk works again: {log:.2000}"));
        }
        self.fail("s")?;
        let (port, admin) = (self.engine.port, self.engine.admin);
        let is_told = wait(NOTICED_MAX, || {
            let number = self.books.next();
            let _ = client::ask(port, "POST", "/orders", &body(number, 0));
            let is_503 =
                |path| client::ask(admin, "GET", path, "").is_ok_and(|it| it.status == 503);
            is_503("/health") && is_503("/ready")
        });
        if !is_told {
            self.books
                .silent("a failed fsync is not told by /health and /ready".to_owned());
        }
        publishers.stop();
        self.engine.kill();
        fs::remove_file(self.engine.fail_file())?;
        self.engine.must_start()
    }

    /// Has writes (`w`) or syncs (`s`) fail from now on.
    fn fail(&mut self, what: &str) -> Result<(), Failure> {
        let part = self.folder.join("fail.part");
        fs::write(&part, what)?;
        fs::rename(part, self.engine.fail_file())?;
        self.tally.fault();
        Ok(())
    }
}
