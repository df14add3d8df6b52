//! Keeps cores awake: on a virtual machine a core that has nothing to do is given back to the host,
//! which takes its time to bring it back. That is in the tail of every latency below full load,
//! most of all in that of a system that needs little, and in CPU times of systems that mostly wait.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{hint, thread};

use anyhow::Context;

use super::process;

/// A process for each core that spins whenever nobody else wants the core (`SCHED_IDLE`, sched(7)).
#[derive(Debug)]
pub(crate) struct Awake {
    spinners: BTreeMap<usize, Child>,
}

impl Awake {
    /// Starts them. `own` is this program.
    ///
    /// # Errors
    /// When `chrt` of util-linux is not there, or may not set the class.
    pub fn start(own: &Path, cores: &BTreeSet<usize>) -> anyhow::Result<Self> {
        let mut spinners = BTreeMap::new();
        for core in cores {
            process::pin(&[*core])?;
            let spinner = Command::new("chrt")
                .args(["--idle", "0"])
                .arg(own)
                .arg("spin")
                .stdin(Stdio::piped())
                .spawn()
                .context("--awake needs chrt, of util-linux")?;
            spinners.insert(*core, spinner);
        }
        Ok(Self { spinners })
    }

    /// The seconds for which the core has spun.
    pub fn spun(&self, core: usize) -> f64 {
        let spinner = self.spinners.get(&core);
        spinner.map_or(0.0, |it| process::run_time(&[it.id()]))
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for spinner in self.spinners.values_mut() {
            // It may have ended, and cannot refuse.
            let _ = spinner.kill();
            let _ = spinner.wait();
        }
    }
}

/// Spins until standard input ends, which it does with whoever has started this.
///
/// # Errors
/// When standard input cannot be read.
pub(super) fn spin() -> io::Result<()> {
    let has_ended = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&has_ended);
    let reader = thread::spawn(move || {
        let read = io::stdin().read_to_end(&mut Vec::new());
        seen.store(true, Ordering::Relaxed);
        read
    });
    while !has_ended.load(Ordering::Relaxed) {
        hint::spin_loop();
    }
    match reader.join() {
        Ok(read) => read.map(drop),
        Err(_) => Ok(()),
    }
}
