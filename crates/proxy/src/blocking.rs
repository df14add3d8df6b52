//! The thread of a worker for work that blocks: conversions of large bodies, names that are looked
//! up, files.
//!
//! The runtime makes such threads when they are needed and ends them when they are idle. Where the
//! system has no more threads it panics, and keeps the work that nobody will do with all that it
//! holds; but as long as one thread is there, the work waits for that one. So one always is.

use std::io;
use std::panic;
use std::time::Duration;

use tokio::task::spawn_blocking;

/// How long a thread is kept that has nothing to do. The one that has waited longest is woken next,
/// so what there is to do every second keeps as many of them as come in this time; and each keeps
/// memory of its own, about half a megabyte.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(1);

/// How often one of them gets something to do, so that it stays.
const EVERY: Duration = Duration::from_millis(400);

/// Makes the first thread, and from then on keeps one. Called before the worker has anything to do.
///
/// # Errors
/// When the system has no thread.
pub(crate) fn start() -> io::Result<impl Future<Output = ()>> {
    panic::catch_unwind(|| drop(spawn_blocking(|| ())))
        .map_err(|_| io::Error::other("there is no thread for work that blocks"))?;
    Ok(async {
        loop {
            tokio::time::sleep(EVERY).await;
            drop(spawn_blocking(|| ()));
        }
    })
}
