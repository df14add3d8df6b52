//! What the admin port shows of a connection, all workers together.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use component::state::{Measure, State};

/// What is counted of a connection.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub connected: AtomicI64,
    pub blocked: AtomicI64,
    pub unconfirmed: AtomicI64,
    pub published: AtomicI64,
    pub returned: AtomicI64,
    pub nacked: AtomicI64,
    pub delivered: AtomicI64,
    pub redelivered: AtomicI64,
    pub reconnects: AtomicI64,
}

/// What one worker has counted since it last told.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub unconfirmed: i64,
    pub published: i64,
    pub returned: i64,
    pub nacked: i64,
    pub delivered: i64,
    pub redelivered: i64,
}

impl Counts {
    /// Tells what has been counted.
    pub fn flush(&mut self, figures: &Figures) {
        let all = [
            (&mut self.unconfirmed, &figures.unconfirmed),
            (&mut self.published, &figures.published),
            (&mut self.returned, &figures.returned),
            (&mut self.nacked, &figures.nacked),
            (&mut self.delivered, &figures.delivered),
            (&mut self.redelivered, &figures.redelivered),
        ];
        for (count, figure) in all {
            if *count != 0 {
                figure.fetch_add(std::mem::take(count), Ordering::Relaxed);
            }
        }
    }
}

impl State for Figures {
    fn measures(&self, _now: Instant) -> Vec<Measure> {
        let measure = |name, help, value: &AtomicI64| Measure {
            name,
            help,
            value: value.load(Ordering::Relaxed) as f64,
        };
        vec![
            measure(
                "rabbitmq_connected",
                "Open connections to the broker.",
                &self.connected,
            ),
            measure(
                "rabbitmq_blocked",
                "Connections on which the broker takes no messages for now.",
                &self.blocked,
            ),
            measure(
                "rabbitmq_unconfirmed",
                "Messages that the broker has not confirmed yet.",
                &self.unconfirmed,
            ),
            measure(
                "rabbitmq_published_total",
                "Messages that the broker has confirmed.",
                &self.published,
            ),
            measure(
                "rabbitmq_returned_total",
                "Messages that no queue wanted.",
                &self.returned,
            ),
            measure(
                "rabbitmq_nacked_total",
                "Messages that the broker has not taken.",
                &self.nacked,
            ),
            measure(
                "rabbitmq_delivered_total",
                "Messages that came for flows.",
                &self.delivered,
            ),
            measure(
                "rabbitmq_redelivered_total",
                "Messages that may have come before.",
                &self.redelivered,
            ),
            measure(
                "rabbitmq_reconnects_total",
                "Connections that were lost and are made anew.",
                &self.reconnects,
            ),
        ]
    }
}
