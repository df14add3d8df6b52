//! What the admin port shows of the pools of a connection, of all workers together.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use component::state::{Measure, State};

/// Numbers of the pools of a connection.
#[derive(Debug, Default)]
pub struct Measures {
    pub(crate) open: AtomicI64,
    pub(crate) idle: AtomicI64,
    pub(crate) waiting: AtomicI64,
    pub(crate) statements: AtomicU64,
    pub(crate) errors: AtomicU64,
}

/// One more of something, for as long as this lives.
pub(crate) struct Counted<'a>(&'a AtomicI64);

impl<'a> Counted<'a> {
    pub fn new(number: &'a AtomicI64) -> Self {
        number.fetch_add(1, Ordering::Relaxed);
        Self(number)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl State for Measures {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let measure = |name, help, value| Measure { name, help, value };
        let gauge = |number: &AtomicI64| number.load(Ordering::Relaxed) as f64;
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed) as f64;
        vec![
            measure(
                "sql_connections",
                "Connections to a database.",
                gauge(&self.open),
            ),
            measure(
                "sql_connections_idle",
                "Connections to a database that nobody uses.",
                gauge(&self.idle),
            ),
            measure(
                "sql_waiting",
                "Messages that wait for a connection to a database.",
                gauge(&self.waiting),
            ),
            measure(
                "sql_statements_total",
                "Statements.",
                count(&self.statements),
            ),
            measure(
                "sql_errors_total",
                "Statements that failed.",
                count(&self.errors),
            ),
        ]
    }
}
