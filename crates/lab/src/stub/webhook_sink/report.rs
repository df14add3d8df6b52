//! What has come to a sink, judged afterwards: what is missing, came twice or in another order, how
//! late it was, and whose signatures are wrong.

use std::collections::BTreeMap;
use std::collections::HashMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::conduct::query;
use super::ledger::{Arrival, Ledger};
use super::signature::{self, Verdict};

/// Longer latencies count as this: an hour, in microseconds.
const LATENCY_MAX: u64 = 3_600_000_000;
/// The most endpoints that are told one by one.
const WORST: usize = 20;

/// What a report is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// The numbers of the first and the last event that each endpoint should have. Without them
    /// what is missing is what lies between the first and the last that it has.
    pub first: Option<u64>,
    pub last: Option<u64>,
    /// How many endpoints there should be.
    pub endpoints: Option<u64>,
    /// Latencies count of events that were published between these instants, in microseconds since
    /// 1970.
    pub from: Option<u64>,
    pub to: Option<u64>,
}

impl Asked {
    /// Reads the query of a request.
    pub fn read(text: &[u8]) -> Self {
        let mut asked = Self::default();
        for (name, value) in query(text) {
            let place = match name.as_str() {
                "first" => &mut asked.first,
                "last" => &mut asked.last,
                "endpoints" => &mut asked.endpoints,
                "from" => &mut asked.from,
                "to" => &mut asked.to,
                _ => continue,
            };
            *place = value.parse().ok();
        }
        asked
    }
}

/// A report.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Posts that have come.
    pub posts: u64,
    /// Of these answered with 2xx.
    pub accepted: u64,
    /// Answered with another status.
    pub refused: u64,
    /// Not answered.
    pub unanswered: u64,
    /// Bytes of all bodies.
    pub bytes: u64,
    /// Bytes of the smallest body.
    pub smallest: u32,
    /// Bytes of the largest body.
    pub largest: u32,
    /// Posts of which nothing is known but that they came: there were too many.
    pub not_kept: u64,
    /// Paths that something was posted to.
    pub endpoints: u64,
    /// Events that were accepted by at least one.
    pub events: u64,
    /// Accepted again by an endpoint that had accepted them.
    pub duplicates: u64,
    /// Accepted behind one with a higher number.
    pub disordered: u64,
    /// Numbers that an endpoint lacks.
    pub missing: u64,
    /// Bodies that are not what they say they are.
    pub changed: u64,
    /// Whether they are signed, where the sink has a secret.
    pub signatures: Option<Signatures>,
    /// How often hubs have asked what was meant, by what they asked.
    pub verifications: BTreeMap<String, u64>,
    /// From publishing to each arrival that was accepted first, in milliseconds.
    pub latency_ms: Option<Latency>,
    /// From publishing to the last endpoint that accepted the event.
    pub last_of_event_ms: Option<Latency>,
    /// When the first post came, in microseconds since 1970.
    pub first_at: u64,
    /// When the last post came.
    pub last_at: u64,
    /// Endpoints with something missing, doubled or in another order, the worst first.
    pub worst: Vec<EndpointReport>,
}

/// How many signatures are good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signatures {
    /// Right.
    pub good: u64,
    /// Wrong.
    pub bad: u64,
    /// Not there.
    pub absent: u64,
    /// Not checked, for there was no room to keep what that takes.
    pub unchecked: u64,
}

/// Percentiles in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many there are.
    pub count: u64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    #[serde(rename = "p99.9")]
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let at = |percentile| histogram.value_at_quantile(percentile) as f64 / 1e3;
        (!histogram.is_empty()).then(|| Self {
            count: histogram.len(),
            mean: histogram.mean() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1e3,
        })
    }
}

/// What went wrong at one endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointReport {
    pub path: String,
    pub accepted: u64,
    pub duplicates: u64,
    pub disordered: u64,
    pub missing: u64,
}

impl EndpointReport {
    fn wrong(&self) -> u64 {
        self.duplicates + self.disordered + self.missing
    }
}

/// Makes the report of all that has come.
///
/// # Errors
/// When there is no memory for histograms.
pub(super) fn make(ledger: &Ledger, secret: Option<&str>, asked: Asked) -> anyhow::Result<Report> {
    let mut report = Report {
        posts: ledger.len() as u64 + ledger.beyond,
        not_kept: ledger.beyond,
        bytes: ledger.bytes,
        endpoints: ledger.endpoints.len() as u64,
        verifications: ledger.verifications.clone(),
        signatures: secret.map(|secret| check_signatures(ledger, secret)),
        ..Report::default()
    };
    let sizes = || ledger.arrivals().map(|it| it.size);
    report.smallest = sizes().min().unwrap_or(0);
    report.largest = sizes().max().unwrap_or(0);
    let mut by_endpoint = vec![Vec::new(); ledger.endpoints.len()];
    for arrival in ledger.arrivals() {
        report.changed += u64::from(arrival.is_changed);
        match arrival.status {
            0 => report.unanswered += 1,
            _ if arrival.is_accepted() => report.accepted += 1,
            _ => report.refused += 1,
        }
        if let Some(own) = by_endpoint.get_mut(arrival.endpoint as usize)
            && arrival.is_accepted()
        {
            own.push(*arrival);
        }
    }
    report.first_at = ledger.arrivals().next().map_or(0, |it| it.at);
    report.last_at = ledger.arrivals().last().map_or(0, |it| it.at);
    let mut latencies = Latencies::new(asked)?;
    for (path, arrivals) in ledger.endpoints.iter().zip(&by_endpoint) {
        let mut endpoint = judge(arrivals, asked, &mut latencies);
        report.duplicates += endpoint.duplicates;
        report.disordered += endpoint.disordered;
        report.missing += endpoint.missing;
        if endpoint.wrong() > 0 {
            endpoint.path = String::from_utf8_lossy(path).into_owned();
            report.worst.push(endpoint);
        }
    }
    if let (Some(first), Some(last), Some(endpoints)) = (asked.first, asked.last, asked.endpoints) {
        let silent = endpoints.saturating_sub(report.endpoints);
        report.missing += silent * (last + 1).saturating_sub(first);
    }
    report.worst.sort_by_key(|it| std::cmp::Reverse(it.wrong()));
    report.worst.truncate(WORST);
    report.events = latencies.last.len() as u64;
    report.latency_ms = Latency::of(&latencies.each);
    report.last_of_event_ms = latencies.of_last()?;
    Ok(report)
}

struct Latencies {
    asked: Asked,
    each: Histogram<u64>,
    /// Of each event the latest; nothing for those that do not count.
    last: HashMap<u64, Option<u64>>,
}

impl Latencies {
    fn new(asked: Asked) -> anyhow::Result<Self> {
        Ok(Self {
            asked,
            each: histogram()?,
            last: HashMap::new(),
        })
    }

    fn add(&mut self, arrival: &Arrival) {
        let published = arrival.published;
        let is_in = published > 0
            && self.asked.from.is_none_or(|from| published >= from)
            && self.asked.to.is_none_or(|to| published < to);
        let last = self.last.entry(arrival.id).or_default();
        if is_in {
            let latency = arrival.at.saturating_sub(published);
            self.each.saturating_record(latency.max(1));
            *last = (*last).max(Some(latency));
        }
    }

    fn of_last(&self) -> anyhow::Result<Option<Latency>> {
        let mut histogram = histogram()?;
        for latency in self.last.values().flatten() {
            histogram.saturating_record((*latency).max(1));
        }
        Ok(Latency::of(&histogram))
    }
}

fn histogram() -> anyhow::Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LATENCY_MAX, 3)
        .map_err(|error| anyhow::anyhow!("histogram: {error}"))
}

/// Looks at what one endpoint has accepted, in the order in which it came.
fn judge(arrivals: &[Arrival], asked: Asked, latencies: &mut Latencies) -> EndpointReport {
    let mut endpoint = EndpointReport {
        accepted: arrivals.len() as u64,
        ..EndpointReport::default()
    };
    let mut places: Vec<(u64, usize)> = arrivals.iter().map(|it| it.id).zip(0..).collect();
    places.sort_unstable();
    let mut is_first = vec![false; arrivals.len()];
    let mut before = None;
    for (id, at) in places {
        if before.replace(id) == Some(id) {
            endpoint.duplicates += 1;
        } else if let Some(place) = is_first.get_mut(at) {
            *place = true;
        }
    }
    let firsts = arrivals
        .iter()
        .zip(is_first)
        .filter(|(_, is_first)| *is_first);
    let mut highest = 0;
    let mut numbers = Vec::new();
    for (arrival, _) in firsts {
        latencies.add(arrival);
        if arrival.number > 0 {
            endpoint.disordered += u64::from(arrival.number < highest);
            highest = highest.max(arrival.number);
            numbers.push(arrival.number);
        }
    }
    endpoint.missing = missing(numbers, asked);
    endpoint
}

/// How many numbers are not there.
fn missing(mut numbers: Vec<u64>, asked: Asked) -> u64 {
    numbers.sort_unstable();
    numbers.dedup();
    let first = asked.first.or(numbers.first().copied());
    let last = asked.last.or(numbers.last().copied());
    let (Some(first), Some(last)) = (first, last) else {
        return 0;
    };
    let there = numbers
        .iter()
        .filter(|it| (first..=last).contains(*it))
        .count();
    (last + 1)
        .saturating_sub(first)
        .saturating_sub(there as u64)
}

fn check_signatures(ledger: &Ledger, secret: &str) -> Signatures {
    let mut signatures = Signatures::default();
    let own = |path| signature::secret_of(secret, path);
    let secrets: Vec<String> = ledger.endpoints.iter().map(|path| own(path)).collect();
    for arrival in ledger.arrivals() {
        let secret = secrets.get(arrival.endpoint as usize);
        let Some(((texts, body), secret)) = ledger.proof(arrival).zip(secret) else {
            signatures.unchecked += 1;
            continue;
        };
        match signature::check(secret, texts, body) {
            Verdict::Good => signatures.good += 1,
            Verdict::Bad => signatures.bad += 1,
            Verdict::Absent => signatures.absent += 1,
        }
    }
    signatures.unchecked += ledger.beyond;
    signatures
}
