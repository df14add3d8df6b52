//! Empties a queue while it is being filled, and notes each message: a queue that only grows would
//! measure the broker's disk, and messages that are merely counted could be the wrong ones.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::super::body::{self, Expected};
use super::amqp::Client;
use super::ledger::{Delivered, Ledger};

/// How long one look for messages takes.
const PATIENCE: Duration = Duration::from_millis(50);
/// With everything found, how long nothing more must come.
const QUIET: Duration = Duration::from_millis(300);
/// With something missing, how long nothing more must come before it counts as lost.
const LOST: Duration = Duration::from_secs(10);

/// A thread that empties a queue.
pub(super) struct Drain {
    ledger: Arc<Ledger>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Drain {
    /// Begins.
    ///
    /// # Errors
    /// When the broker cannot be spoken to.
    pub fn start(
        broker: SocketAddr,
        queue: &str,
        expected: Expected,
        ledger: &Arc<Ledger>,
    ) -> anyhow::Result<Self> {
        let consumer = Client::connect(broker)?.consume(queue, PATIENCE)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, told) = (Arc::clone(ledger), Arc::clone(&stop));
        let thread = thread::Builder::new().name("drain".to_owned());
        let thread = thread.spawn(move || {
            let (mut consumer, mut expected) = (consumer, expected);
            while !told.load(Ordering::Relaxed) {
                if let Some(message) = consumer.next()? {
                    match body::number(message) {
                        Some(number) if expected.is(number, message) => shared.find(number),
                        _ => shared.find_wrong(),
                    }
                }
            }
            Ok(())
        })?;
        Ok(Self {
            ledger: Arc::clone(ledger),
            stop,
            thread: Some(thread),
        })
    }

    /// Waits until all that was acknowledged has been found, or nothing comes any more.
    ///
    /// # Errors
    /// When the broker ended the connection.
    pub fn finish(mut self) -> anyhow::Result<Delivered> {
        let mut last = (self.ledger.finds(), Instant::now());
        let mut delivered;
        loop {
            thread::sleep(PATIENCE);
            let finds = self.ledger.finds();
            if finds != last.0 {
                last = (finds, Instant::now());
            }
            delivered = self.ledger.delivered();
            let patience = if delivered.missing == 0 { QUIET } else { LOST };
            let has_ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            if last.1.elapsed() >= patience || has_ended {
                break;
            }
        }
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let joined = thread.join();
            joined.map_err(|_| anyhow::anyhow!("the thread that drains panicked"))??;
        }
        Ok(delivered)
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
