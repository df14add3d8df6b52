//! Flows that publish to a real RabbitMQ and consume from it.

pub mod client;
mod consume;
mod dead_letters;
mod outage;
mod publish;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use testkit::TempDir;
use testkit::servers::Rabbitmq;

use crate::support::Engine;

/// The broker of all tests that leave it alone. It ends with the process.
pub static BROKER: LazyLock<Rabbitmq> = LazyLock::new(|| Rabbitmq::start(""));

/// A name that no other test has.
pub fn name(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// An engine with these flows.
fn run(flows: &str) -> (Engine, TempDir) {
    let folder = TempDir::new();
    let file = folder.write("flows.yaml", flows);
    (Engine::run(&[&file], &["--watch"]), folder)
}
