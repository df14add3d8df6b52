//! What is counted while messages move. One writer, many readers: each worker has its own
//! counters, and the admin port adds them up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The upper bounds of the latency classes in microseconds; one more class has no bound.
pub const LATENCY_BOUNDS_US: [u64; 16] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000, 30_000_000,
];

/// A number that one thread counts up and others read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the number. Only the owning worker may call this: it is a load and a store, not an
    /// atomic addition, because a worker's counters have one writer.
    #[inline]
    pub fn add(&self, amount: u64) {
        let value = self.0.load(Ordering::Relaxed);
        self.0.store(value.wrapping_add(amount), Ordering::Relaxed);
    }

    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one flow on one worker.
#[derive(Debug, Default)]
pub struct FlowMetrics {
    /// Requests whose head has been read.
    pub started: Counter,
    /// Requests answered or given up, by status class: index 0 for those whose client left before
    /// a reply, 1 to 5 for the first digit.
    pub finished: [Counter; 6],
    /// Requests by time from head to reply's end, one counter for each class and one above.
    pub latency: [Counter; LATENCY_BOUNDS_US.len() + 1],
    /// The sum of those times in microseconds.
    pub latency_sum_us: Counter,
    /// Replies that have gone on behind their head: event streams, WebSocket.
    pub streams_opened: Counter,
    /// Those of them that have ended.
    pub streams_closed: Counter,
    /// Messages that clients have sent on streams.
    pub messages_up: Counter,
    /// Messages that have been sent to clients on streams.
    pub messages_down: Counter,
}

/// Counts a request that is under way. Dropping it counts the request as ended without a status.
#[derive(Debug)]
pub struct Started<'a>(Option<&'a FlowMetrics>);

impl Started<'_> {
    /// The request has ended with this status (0 for none) after this time.
    #[inline]
    pub fn finish(mut self, status: u16, microseconds: u64) {
        if let Some(metrics) = self.0.take() {
            metrics.finish(status, microseconds);
        }
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        if let Some(metrics) = self.0.take() {
            metrics.finish(0, 0);
        }
    }
}

impl FlowMetrics {
    /// Counts a request that begins.
    #[inline]
    pub fn start(&self) -> Started<'_> {
        self.started.add(1);
        Started(Some(self))
    }

    /// Counts a request that has ended with this status (0 for none) after this time.
    #[inline]
    pub fn finish(&self, status: u16, microseconds: u64) {
        let class = usize::from(status / 100);
        if let Some(counter) = self.finished.get(class) {
            counter.add(1);
        }
        let bound = LATENCY_BOUNDS_US
            .iter()
            .position(|bound| microseconds <= *bound);
        if let Some(counter) = self.latency.get(bound.unwrap_or(LATENCY_BOUNDS_US.len())) {
            counter.add(1);
        }
        self.latency_sum_us.add(microseconds);
    }

    /// Streams that are open.
    pub fn streams_open(&self) -> u64 {
        let closed = self.streams_closed.get();
        self.streams_opened.get().saturating_sub(closed)
    }

    /// Requests that have started and not ended.
    pub fn in_flight(&self) -> u64 {
        // Read the ends first, so that a race cannot make the difference negative.
        let ended: u64 = self.finished.iter().map(Counter::get).sum();
        self.started.get().saturating_sub(ended)
    }
}

/// The counters of one worker.
#[derive(Debug, Default)]
pub struct WorkerMetrics {
    /// Client connections accepted.
    pub accepted: Counter,
    /// Client connections closed.
    pub closed: Counter,
    /// Client connections on which TLS could not be agreed on.
    pub handshake_failures: Counter,
    /// Times that an endpoint was left out because it failed.
    pub upstream_ejections: Counter,
    /// Requests that found no free connection, and no place in the queue in time.
    pub upstream_queue_refusals: Counter,
    /// Client connections on which TLS took an earlier session up again.
    pub tls_resumptions: Counter,
    /// HTTP/2 connections of clients that broke the rules or a limit.
    pub h2_errors: Counter,
    /// Client connections refused because of the limit.
    pub refused: Counter,
    /// Client connections refused because their address has too many.
    pub refused_by_address: Counter,
    /// Client connections refused because of the networks of their listener.
    pub refused_by_network: Counter,
    /// Client connections refused because they lack the header of the PROXY protocol, or come from
    /// somebody who is not trusted to write it.
    pub refused_by_proxy_protocol: Counter,
    /// Client connections refused because file descriptors are used up.
    pub refused_by_descriptors: Counter,
    /// Requests refused before they reached a flow (malformed, no route), by status class.
    pub rejected: [Counter; 6],
    /// Connections made to upstreams.
    pub upstream_connects: Counter,
    /// Connections to upstreams that could not be made.
    pub upstream_connect_failures: Counter,
    /// URLs and addresses that the egress guard has refused.
    pub egress_refused: Counter,
    /// Requests sent on a kept upstream connection.
    pub upstream_reuses: Counter,
    /// Requests sent again because a kept connection turned out closed.
    pub upstream_retries: Counter,
}

/// The counters of a flow on one worker, with their labels.
#[derive(Clone, Debug)]
pub struct FlowEntry {
    /// The flow's name.
    pub flow: Arc<str>,
    /// The worker's number.
    pub worker: usize,
    /// The counters.
    pub metrics: Arc<FlowMetrics>,
}

/// All counters of the process. They outlive a reload: a flow that keeps its name keeps its
/// numbers.
#[derive(Debug, Default)]
pub struct Registry {
    flows: Mutex<Flows>,
    workers: Mutex<Vec<Arc<WorkerMetrics>>>,
}

/// The counters of flows in the order in which they were made, and where each is.
#[derive(Debug, Default)]
struct Flows {
    entries: Vec<FlowEntry>,
    places: HashMap<(usize, Arc<str>), usize>,
}

impl Registry {
    /// The counters of a flow on a worker, made when they are not there yet.
    pub fn flow(&self, worker: usize, flow: &Arc<str>) -> Arc<FlowMetrics> {
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (worker, Arc::clone(flow));
        let place = flows.places.get(&key).copied();
        if let Some(entry) = place.and_then(|place| flows.entries.get(place)) {
            return Arc::clone(&entry.metrics);
        }
        let metrics = Arc::new(FlowMetrics::default());
        let place = flows.entries.len();
        flows.places.insert(key, place);
        flows.entries.push(FlowEntry {
            flow: Arc::clone(flow),
            worker,
            metrics: Arc::clone(&metrics),
        });
        metrics
    }

    /// The counters of a new worker.
    pub fn add_worker(&self) -> Arc<WorkerMetrics> {
        let metrics = Arc::new(WorkerMetrics::default());
        self.workers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&metrics));
        metrics
    }

    /// The counters of all flows.
    pub fn flows(&self) -> Vec<FlowEntry> {
        self.flows
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entries
            .clone()
    }

    /// The counters of all workers.
    pub fn workers(&self) -> Vec<Arc<WorkerMetrics>> {
        self.workers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_in_flight_until_it_finishes() {
        let metrics = FlowMetrics::default();
        metrics.started.add(2);
        metrics.finish(204, 300);
        assert_eq!(metrics.in_flight(), 1);
        assert_eq!(metrics.finished[2].get(), 1);
        assert_eq!(metrics.latency[1].get(), 1);
        metrics.finish(0, u64::MAX);
        assert_eq!(metrics.in_flight(), 0);
        assert_eq!(metrics.latency[LATENCY_BOUNDS_US.len()].get(), 1);
    }

    #[test]
    fn a_flow_keeps_its_counters_over_a_reload() {
        let registry = Registry::default();
        let name: Arc<str> = "orders".into();
        registry.flow(0, &name).started.add(3);
        assert_eq!(registry.flow(0, &name).started.get(), 3);
        assert_eq!(registry.flow(1, &name).started.get(), 0);
        assert_eq!(registry.flows().len(), 2);
    }
}
