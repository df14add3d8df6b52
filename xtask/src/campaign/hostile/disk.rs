//! What the disk takes while an attack lasts: a few bytes are appended to a file beside the
//! engine's data and synchronised, again and again. An event of a topic on the disk cannot be
//! faster.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::histogram::Histogram;
use super::processes;
use crate::campaign::books::lock;
use crate::command::Failure;

/// Between two writes.
const EACH: Duration = Duration::from_millis(100);

pub struct Disk {
    is_over: Arc<AtomicBool>,
    latencies: Arc<Mutex<Histogram>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // One that has panicked said so.
            let _ = thread.join();
        }
    }
}

impl Disk {
    pub fn start(folder: &Path) -> Result<Self, Failure> {
        let mut file = File::create(folder.join("disk"))?;
        let (is_over, latencies) = (Arc::default(), Arc::default());
        let (ends, records) = (
            Arc::<AtomicBool>::clone(&is_over),
            Arc::<Mutex<Histogram>>::clone(&latencies),
        );
        let thread = thread::spawn(move || {
            processes::run_first();
            while !ends.load(Ordering::SeqCst) {
                let start = Instant::now();
                // A disk that takes nothing shows in the engine's answers.
                if file.write_all(b"0123456789").is_ok() && file.sync_data().is_ok() {
                    lock(&records).record(start.elapsed());
                }
                thread::sleep(EACH);
            }
        });
        Ok(Self {
            is_over,
            latencies,
            thread: Some(thread),
        })
    }

    /// What was seen since the last time.
    pub fn take(&self) -> Histogram {
        std::mem::take(&mut *lock(&self.latencies))
    }
}
