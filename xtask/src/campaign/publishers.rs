//! Clients that send as long as they are there, and note what the engine has answered for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::books::{Books, Way};
use super::client;

/// How many send at a time.
const PUBLISHERS: usize = 4;

pub struct Publishers {
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Publishers {
    /// Sends by these ways in turn, until it is dropped or stopped.
    pub fn start(books: &Arc<Books>, port: u16, ways: &'static [Way], padding: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..PUBLISHERS).map(|of| {
            let (stop, books) = (Arc::clone(&stop), Arc::clone(books));
            thread::spawn(move || {
                for way in ways.iter().cycle().skip(of) {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    publish_one(&books, port, *way, padding);
                }
            })
        });
        Self {
            threads: threads.collect(),
            stop,
        }
    }

    /// Ends them, and waits until all is noted that they were told.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Publishers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

/// What is sent with a number: the databases keep `p` beside it.
pub fn body(number: u64, padding: usize) -> String {
    let padding = "x".repeat(padding);
    format!("{{\"n\":{number},\"p\":\"p{number}{padding}\"}}")
}

fn publish_one(books: &Books, port: u16, way: Way, padding: usize) {
    let number = books.next();
    match client::ask(port, "POST", way.path(), &body(number, padding)) {
        Ok(reply) if reply.status < 300 => {
            let id = reply.body.split_once("\"id\":\"");
            let id = id.and_then(|(_, rest)| rest.split('"').next());
            books.acknowledge(way, id.unwrap_or_default(), number);
        }
        // The engine is away, or refuses.
        _ => thread::sleep(Duration::from_millis(5)),
    }
}
