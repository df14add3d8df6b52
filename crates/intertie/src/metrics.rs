//! The counters of all workers as OpenMetrics text.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use component::observe::{Counter, FlowMetrics, LATENCY_BOUNDS_US, WorkerMetrics};
use component::state::{Measure, StateKey, States};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use proxy::Engine;

use crate::shown;

/// The counters of all workers as OpenMetrics text.
pub(crate) struct Metrics {
    registry: Registry,
}

impl Metrics {
    pub fn new(engine: &Arc<Engine>, states: &Arc<States>) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(EngineCollector(Arc::clone(engine))));
        registry.register_collector(Box::new(StateCollector(Arc::clone(states))));
        Self { registry }
    }

    /// The numbers as they are now.
    ///
    /// # Errors
    /// When they cannot be written, which is a mistake in this module.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut page = String::new();
        text::encode(&mut page, &self.registry)?;
        Ok(shown::metrics(page))
    }
}

struct EngineCollector(Arc<Engine>);

impl fmt::Debug for EngineCollector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("EngineCollector")
    }
}

/// What steps remember: breakers, throttles, caches.
struct StateCollector(Arc<States>);

impl fmt::Debug for StateCollector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("StateCollector")
    }
}

impl Collector for StateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families: BTreeMap<&str, Vec<(StateKey, Measure)>> = BTreeMap::new();
        for (key, measure) in self.0.measures(Instant::now()) {
            let members = families.entry(measure.name).or_default();
            // Connections of one name in several flows, with other settings in each.
            let same = |(known, _): &&mut (StateKey, Measure)| {
                known.flow == key.flow && known.step == key.step
            };
            match members.iter_mut().find(same) {
                Some((_, known)) => known.value += measure.value,
                None => members.push((key, measure)),
            }
        }
        for (name, members) in families {
            let counted = name.strip_suffix("_total");
            let kind = match counted {
                Some(_) => MetricType::Counter,
                None => MetricType::Gauge,
            };
            let help = members.first().map_or("", |(_, measure)| measure.help);
            let help = help.trim_end_matches('.');
            let name = format!("intertie_{}", counted.unwrap_or(name));
            let mut family = describe(&mut encoder, &name, help, kind)?;
            for (key, measure) in &members {
                let labels = [("flow", &*key.flow), ("step", &*key.step)];
                let mut member = family.encode_family(&labels)?;
                match counted {
                    Some(_) => member.encode_counter::<NoLabelSet, _, f64>(&measure.value, None)?,
                    None => member.encode_gauge(&measure.value)?,
                }
            }
        }
        Ok(())
    }
}

/// The counters of a flow on all workers.
#[derive(Default)]
struct FlowTotals {
    finished: [u64; 6],
    in_flight: u64,
    latency: [u64; LATENCY_BOUNDS_US.len() + 1],
    latency_sum_us: u64,
    streams_open: u64,
    messages_up: u64,
    messages_down: u64,
}

impl FlowTotals {
    fn add(&mut self, metrics: &FlowMetrics) {
        self.in_flight += metrics.in_flight();
        add_all(&mut self.finished, &metrics.finished);
        add_all(&mut self.latency, &metrics.latency);
        self.latency_sum_us += metrics.latency_sum_us.get();
        self.streams_open += metrics.streams_open();
        self.messages_up += metrics.messages_up.get();
        self.messages_down += metrics.messages_down.get();
    }
}

fn add_all(totals: &mut [u64], counters: &[Counter]) {
    for (total, counter) in totals.iter_mut().zip(counters) {
        *total += counter.get();
    }
}

/// The labels of status classes, by the first digit.
const CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

impl Collector for EngineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut flows: BTreeMap<Arc<str>, FlowTotals> = BTreeMap::new();
        for entry in self.0.registry.flows() {
            flows.entry(entry.flow).or_default().add(&entry.metrics);
        }
        encode_flows(&mut encoder, &flows)?;
        encode_streams(&mut encoder, &flows)?;
        let workers = self.0.registry.workers();
        encode_workers(&mut encoder, &workers)?;
        encode_endpoints(&mut encoder, &self.0)?;
        let help = "Panics, which are mistakes of the engine: each is in the log";
        describe(&mut encoder, "intertie_panics", help, MetricType::Counter)?
            .encode_counter::<NoLabelSet, u64, f64>(&shown::panic_count(), None)?;
        encode_body_memory(&mut encoder)?;
        let mut open = describe(
            &mut encoder,
            "intertie_connections_open",
            "Client connections that are open",
            MetricType::Gauge,
        )?;
        open.encode_gauge(&(self.0.connection_count() as i64))
    }
}

fn encode_body_memory(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let bodies = message::memory::bodies();
    for (name, help, bytes) in [
        (
            "intertie_body_memory_used_bytes",
            "Memory of bodies above 64 KiB that are held",
            bodies.used(),
        ),
        (
            "intertie_body_memory_limit_bytes",
            "The most memory of bodies that may be held (limits.body_memory)",
            bodies.limit(),
        ),
    ] {
        describe(encoder, name, help, MetricType::Gauge)?.encode_gauge(&(bytes as f64))?;
    }
    let help = "Bodies refused because the memory for bodies is used up";
    describe(
        encoder,
        "intertie_bodies_refused",
        help,
        MetricType::Counter,
    )?
    .encode_counter::<NoLabelSet, u64, f64>(&bodies.refused(), None)
}

fn encode_endpoints(encoder: &mut DescriptorEncoder<'_>, engine: &Engine) -> fmt::Result {
    let help = "Whether an endpoint that is asked how it is (`health`) is well: 1, or down: 0";
    let mut family = describe(encoder, "intertie_endpoint_up", help, MetricType::Gauge)?;
    for (upstream, endpoint, is_down) in engine.endpoint_verdicts() {
        let labels = [("upstream", &*upstream), ("endpoint", &*endpoint)];
        let up = i64::from(!is_down);
        family.encode_family(&labels)?.encode_gauge(&up)?;
    }
    Ok(())
}

fn describe<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &'e str,
    kind: MetricType,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, kind)
}

fn encode_flows(
    encoder: &mut DescriptorEncoder<'_>,
    flows: &BTreeMap<Arc<str>, FlowTotals>,
) -> fmt::Result {
    let help = "Requests that have ended, by flow and status class; none when the client left";
    let mut family = describe(encoder, "intertie_requests", help, MetricType::Counter)?;
    for (flow, totals) in flows {
        for (class, count) in CLASSES.iter().zip(totals.finished) {
            if count > 0 {
                let labels = [("flow", &**flow), ("status", class)];
                family
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
            }
        }
    }
    let help = "Requests that have begun and not ended, by flow";
    let mut family = describe(
        encoder,
        "intertie_requests_in_flight",
        help,
        MetricType::Gauge,
    )?;
    for (flow, totals) in flows {
        let labels = [("flow", &**flow)];
        family
            .encode_family(&labels)?
            .encode_gauge(&(totals.in_flight as i64))?;
    }
    let help = "Time from a request's head to its reply's end, by flow";
    let name = "intertie_request_duration_seconds";
    let mut family = describe(encoder, name, help, MetricType::Histogram)?;
    for (flow, totals) in flows {
        let seconds = |microseconds: u64| microseconds as f64 / 1e6;
        let bounds = LATENCY_BOUNDS_US.iter().map(|bound| seconds(*bound));
        let buckets: Vec<(f64, u64)> = bounds
            .chain([f64::INFINITY])
            .zip(totals.latency.iter().copied())
            .collect();
        let labels = [("flow", &**flow)];
        family
            .encode_family(&labels)?
            .encode_histogram::<NoLabelSet>(
                seconds(totals.latency_sum_us),
                totals.latency.iter().sum(),
                &buckets,
                None,
            )?;
    }
    Ok(())
}

fn encode_streams(
    encoder: &mut DescriptorEncoder<'_>,
    flows: &BTreeMap<Arc<str>, FlowTotals>,
) -> fmt::Result {
    let help = "Event streams and WebSocket connections that are open, by flow";
    let mut family = describe(encoder, "intertie_streams_open", help, MetricType::Gauge)?;
    for (flow, totals) in flows {
        let labels = [("flow", &**flow)];
        let open = totals.streams_open as i64;
        family.encode_family(&labels)?.encode_gauge(&open)?;
    }
    let help = "Events and WebSocket frames with data that were forwarded, and messages of \
                WebSocket clients with the answers of flows, by flow; up is from the client";
    let name = "intertie_stream_messages";
    let mut family = describe(encoder, name, help, MetricType::Counter)?;
    for (flow, totals) in flows {
        for (direction, count) in [("up", totals.messages_up), ("down", totals.messages_down)] {
            if count > 0 {
                let labels = [("flow", &**flow), ("direction", direction)];
                family
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
            }
        }
    }
    Ok(())
}

type Pick = fn(&WorkerMetrics) -> &Counter;

/// Counters without labels: name, help, and where it is.
const COUNTERS: [(&str, &str, Pick); 16] = [
    (
        "connections_accepted",
        "Client connections accepted",
        |worker| &worker.accepted,
    ),
    (
        "connections_refused",
        "Client connections refused by the limit",
        |worker| &worker.refused,
    ),
    (
        "connections_refused_by_address",
        "Client connections refused because their address has too many",
        |worker| &worker.refused_by_address,
    ),
    (
        "connections_refused_by_network",
        "Client connections refused because of the networks of their listener",
        |worker| &worker.refused_by_network,
    ),
    (
        "connections_refused_by_proxy_protocol",
        "Client connections refused because of the PROXY protocol",
        |worker| &worker.refused_by_proxy_protocol,
    ),
    (
        "connections_refused_by_descriptors",
        "Client connections refused because file descriptors are used up",
        |worker| &worker.refused_by_descriptors,
    ),
    (
        "tls_handshake_failures",
        "Client connections on which TLS could not be agreed on",
        |worker| &worker.handshake_failures,
    ),
    (
        "tls_resumptions",
        "Client connections on which TLS took an earlier session up again",
        |worker| &worker.tls_resumptions,
    ),
    (
        "http2_errors",
        "HTTP/2 connections of clients that broke the rules or a limit",
        |worker| &worker.h2_errors,
    ),
    (
        "upstream_ejections",
        "Times that an endpoint was left out because it failed",
        |worker| &worker.upstream_ejections,
    ),
    (
        "upstream_queue_refusals",
        "Requests that found no free connection and no place in the queue in time",
        |worker| &worker.upstream_queue_refusals,
    ),
    (
        "upstream_connects",
        "Connections made to upstreams",
        |worker| &worker.upstream_connects,
    ),
    (
        "upstream_connect_failures",
        "Connections to upstreams that failed",
        |worker| &worker.upstream_connect_failures,
    ),
    (
        "egress_refused",
        "URLs and addresses that the egress guard has refused",
        |worker| &worker.egress_refused,
    ),
    (
        "upstream_reuses",
        "Requests sent on a kept upstream connection",
        |worker| &worker.upstream_reuses,
    ),
    (
        "upstream_retries",
        "Requests repeated because a kept connection was closed",
        |worker| &worker.upstream_retries,
    ),
];

fn encode_workers(
    encoder: &mut DescriptorEncoder<'_>,
    workers: &[Arc<WorkerMetrics>],
) -> fmt::Result {
    let help = "Requests refused before they reached a flow, by status class";
    let mut family = describe(
        encoder,
        "intertie_requests_rejected",
        help,
        MetricType::Counter,
    )?;
    for (at, class) in CLASSES.iter().enumerate() {
        let counts = workers.iter().filter_map(|worker| worker.rejected.get(at));
        let count: u64 = counts.map(Counter::get).sum();
        if count > 0 {
            let labels = [("status", *class)];
            family
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
        }
    }
    for (name, help, pick) in COUNTERS {
        let count: u64 = workers.iter().map(|worker| pick(worker).get()).sum();
        let name = format!("intertie_{name}");
        describe(encoder, &name, help, MetricType::Counter)?
            .encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
    }
    Ok(())
}
