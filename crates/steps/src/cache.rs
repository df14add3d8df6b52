//! `cache`: keeps the result of steps by a key, and passes them over while it is there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use component::block::Block;
use component::content::Content;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::{Services, until};
use component::state::{Measure, State};
use component::step::{Next, Progress, Step};
use config::{ByteSize, Node, Spanned};
use lru::LruCache;
use message::{Fault, Kind, Of};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::codes::BAD_BRANCH;
use crate::key::{self, KeyTemplate};
use crate::{kept, range};
use component::steps::Steps;
use config::AnyValue;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "cache",
    summary: "Caches the result of steps.",
    documentation: include_str!("cache.md"),
    example: include_str!("cache.yaml"),
    schema: config::schema_for::<CacheConfig>,
    build,
};

/// What is kept, for how long, and what makes it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CacheConfig {
    /// The cache key: a string with `${ }`, or a list of such strings. Messages with the same key
    /// get the same result.
    #[allow(dead_code, reason = "read from the tree, which knows the places")]
    key: AnyValue,
    /// Whether all callers of a flow with `auth` share the results. By default each caller
    /// (`$auth.way` and `$auth.id`) has its own, and gets nothing that was made for another one.
    #[schemars(extend("default" = false))]
    #[allow(dead_code, reason = "read from the tree, as in other steps")]
    shared: Option<bool>,
    /// How long a result is fresh, from `1ms` to `366d`.
    ttl: Spanned<config::Duration>,
    /// How long after `ttl` a stale result may be used if the steps fail because of the other
    /// system (stale-if-error). Without it, stale results are not used.
    stale: Option<Spanned<config::Duration>>,
    /// The largest number of results, from 1 to 10000000. The least recently used one is evicted
    /// first.
    #[schemars(extend("default" = 10000))]
    max: Option<Spanned<u64>>,
    /// The memory for all results together, from `1KiB` to `64GiB`.
    #[schemars(extend("default" = "64MiB"))]
    memory: Option<Spanned<ByteSize>>,
    /// The largest result that is cached, from `1B` to `1GiB`.
    #[schemars(extend("default" = "1MiB"))]
    body_max: Option<Spanned<ByteSize>>,
    /// How long a message waits for another one with the same key whose steps are in progress, from
    /// `1ms` to `1d`. Then it runs the steps itself.
    #[schemars(extend("default" = "5s"))]
    wait: Option<Spanned<config::Duration>>,
    /// The steps that compute the result, which is the body that they leave.
    #[allow(dead_code, reason = "read from the tree, which knows the places")]
    steps: Steps,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let cache = read(node, context);
    // Also when there is a problem, or each use of the name would be another one.
    let slot = context.scope.declare("cache")?;
    let cache = Cache { slot, ..cache? };
    Some(Box::new(cache))
}

fn read(node: &Node, context: &mut BuildContext<'_>) -> Option<Cache> {
    let config: CacheConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let settings = settings(&config, context);
    let key = node.get("key").and_then(|node| key::read(node, context));
    let is_shared = key::read_shared(node, context);
    let steps = node.get("steps")?;
    let block = context.inner_branch("cache", steps);
    if block.as_ref().is_some_and(Block::ends_flow) {
        let message = "steps that always end the flow leave nothing to keep";
        let diagnostic = context.report.error(BAD_BRANCH, steps.span, message);
        diagnostic.hint("put the `reply` behind `cache`");
    }
    let (key, block) = (key?, block?);
    (context.problems() == before).then(|| {
        // Other steps may make another result of the same message.
        let made_of = (settings, node.to_json().to_string());
        let table = context.state("cache", made_of, || Table::new(settings));
        Cache {
            key,
            is_shared,
            block,
            slot: 0,
            settings,
            table,
        }
    })
}

fn settings(config: &CacheConfig, context: &mut BuildContext<'_>) -> Settings {
    let report = &mut *context.report;
    let (memory, body_max) = (config.memory.as_ref(), config.body_max.as_ref());
    let wait = Duration::from_secs(5);
    Settings {
        ttl: range::age("ttl", &config.ttl, report),
        stale: match &config.stale {
            Some(time) => range::age("stale", time, report),
            None => Duration::ZERO,
        },
        max: range::count("max", config.max.as_ref(), 1..=10_000_000, 10_000, report),
        memory: range::size("memory", memory, range::ALL, 64 << 20, report),
        body_max: range::size("body_max", body_max, range::ONE, 1 << 20, report),
        wait: range::time_or("wait", config.wait.as_ref(), wait, report),
    }
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    ttl: Duration,
    stale: Duration,
    max: usize,
    memory: usize,
    body_max: usize,
    wait: Duration,
}

/// The step.
struct Cache {
    key: KeyTemplate,
    /// Whether callers have the same keys.
    is_shared: bool,
    block: Block,
    /// Where `$cache` goes.
    slot: usize,
    settings: Settings,
    table: Arc<Table>,
}

/// The results. All workers share them.
struct Table {
    settings: Settings,
    inner: Mutex<Inner>,
    hits: AtomicU64,
    misses: AtomicU64,
    stale: AtomicU64,
    evicted: AtomicU64,
}

struct Inner {
    entries: LruCache<String, Entry>,
    /// About how many bytes the entries take.
    bytes: usize,
    /// The keys whose steps are under way.
    flights: HashMap<String, Arc<FlightEnd>>,
}

struct Entry {
    content: Content,
    weight: usize,
    made: Instant,
}

/// What there is for a key.
enum Found<'a> {
    Fresh(Content),
    /// Somebody else is making it.
    UnderWay(Arc<FlightEnd>),
    Missing(Flight<'a>),
}

/// How steps that others wait for have ended.
struct FlightEnd {
    /// Closed when they have.
    ended: Semaphore,
    /// They were dropped half-way.
    was_cancelled: AtomicBool,
}

/// The steps of a key, under way for as long as this lives.
struct Flight<'a> {
    table: &'a Table,
    key: &'a str,
    end: Arc<FlightEnd>,
}

impl Flight<'_> {
    /// They have ended by themselves, with a result or a failure.
    fn land(self) {
        self.end.was_cancelled.store(false, Ordering::Relaxed);
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.table.lock().flights.remove(self.key);
        self.end.ended.close();
    }
}

impl Table {
    fn new(settings: Settings) -> Self {
        Self {
            settings,
            inner: Mutex::new(Inner {
                entries: LruCache::unbounded(),
                bytes: 0,
                flights: HashMap::new(),
            }),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find<'a>(&'a self, key: &'a str, now: Instant) -> Found<'a> {
        let mut inner = self.lock();
        if let Some(content) = inner.get(key, now, self.settings.ttl) {
            return Found::Fresh(content);
        }
        if let Some(end) = inner.flights.get(key) {
            return Found::UnderWay(Arc::clone(end));
        }
        let end = Arc::new(FlightEnd {
            ended: Semaphore::new(0),
            was_cancelled: AtomicBool::new(true),
        });
        inner.flights.insert(key.to_owned(), Arc::clone(&end));
        Found::Missing(Flight {
            table: self,
            key,
            end,
        })
    }

    fn put(&self, key: &str, (content, weight): (Content, usize), now: Instant) {
        let weight = weight + 2 * key.len() + kept::ENTRY;
        if weight > self.settings.memory {
            return;
        }
        let mut inner = self.lock();
        let entry = Entry {
            content,
            weight,
            made: now,
        };
        inner.bytes += weight;
        if let Some(old) = inner.entries.put(key.to_owned(), entry) {
            inner.bytes -= old.weight;
        }
        while inner.entries.len() > self.settings.max || inner.bytes > self.settings.memory {
            let Some((_, old)) = inner.entries.pop_lru() else {
                break;
            };
            inner.bytes -= old.weight;
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Inner {
    /// A result that is not older than this.
    fn get(&mut self, key: &str, now: Instant, age: Duration) -> Option<Content> {
        let entry = self.entries.get(key)?;
        let is_young = now.saturating_duration_since(entry.made) < age;
        is_young.then(|| entry.content.clone())
    }
}

impl Cache {
    async fn run(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let key = exchange
            .preemptible(services, |it| {
                self.key.make_for_caller(it, self.is_shared, services)
            })
            .await?;
        let waits_until = services.now() + self.settings.wait;
        let flight = loop {
            let end = match self.table.find(&key, services.now()) {
                Found::Fresh(content) => return Ok(self.hit(content, exchange)),
                Found::Missing(flight) => break Some(flight),
                Found::UnderWay(end) => end,
            };
            let ended = until(Some(waits_until), services, end.ended.acquire()).await;
            let now = services.now();
            let found = self.table.lock().get(&key, now, self.settings.ttl);
            if let Some(content) = found {
                return Ok(self.hit(content, exchange));
            }
            // When the steps were dropped half-way, one of those who wait is the next to run them,
            // and the others wait for that one. When they have failed, each runs its own: one after
            // the other, the last would wait for the failures of all.
            if ended.is_none() || !end.was_cancelled.load(Ordering::Relaxed) {
                break None;
            }
        };
        self.table.misses.fetch_add(1, Ordering::Relaxed);
        let result = match self.block.run(exchange, services).await {
            Ok(Next::Continue) => self.keep(&key, exchange, services).await,
            Ok(end) => Ok(end),
            Err(fault) => self.stale(&key, fault, exchange, services),
        };
        // Not before the result is there for those who wait.
        if let Some(flight) = flight {
            flight.land();
        }
        result
    }

    fn hit(&self, content: Content, exchange: &mut Exchange) -> Next {
        self.table.hits.fetch_add(1, Ordering::Relaxed);
        exchange.content = content;
        exchange.set_slot(self.slot, expr::value::text("hit"));
        Next::Continue
    }

    async fn keep(
        &self,
        key: &str,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        let kept = exchange.preemptible(services, |it| kept::of(it, self.settings.body_max));
        if let Some(kept) = kept.await? {
            self.table.put(key, kept, services.now());
        }
        exchange.set_slot(self.slot, expr::value::text("miss"));
        Ok(Next::Continue)
    }

    /// An old result in the place of a failure.
    fn stale(
        &self,
        key: &str,
        fault: Fault,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        if self.settings.stale.is_zero() || !is_of_the_other(&fault) {
            return Err(fault);
        }
        let age = self.settings.ttl + self.settings.stale;
        let found = self.table.lock().get(key, services.now(), age);
        let Some(content) = found else {
            return Err(fault);
        };
        tracing::warn!(
            target: "flow",
            flow = &*exchange.context.name,
            step = fault.step.as_deref().unwrap_or_default(),
            cause = fault.cause.as_deref().unwrap_or_default(),
            "{}; an old result is used", fault.detail
        );
        self.table.stale.fetch_add(1, Ordering::Relaxed);
        exchange.content = content;
        exchange.set_slot(self.slot, expr::value::text("stale"));
        Ok(Next::Continue)
    }
}

/// Whether the other system is out of order, rather than the message or the flow (RFC 5861,
/// section 4).
fn is_of_the_other(fault: &Fault) -> bool {
    match (fault.kind, &fault.of) {
        (Kind::Timeout | Kind::Connection | Kind::Unavailable | Kind::Limited, _) => true,
        (Kind::Status, Of::Status(status)) => matches!(status, 429 | 500..),
        _ => false,
    }
}

impl Step for Cache {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.run(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        self.key.reads_body() || self.block.reads_body()
    }

    fn waits(&self) -> bool {
        true
    }
}

impl State for Table {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let inner = self.lock();
        let (entries, bytes) = (inner.entries.len() as f64, inner.bytes as f64);
        let measure = |name, help, value| Measure { name, help, value };
        vec![
            measure("cache_hits_total", "Results found.", count(&self.hits)),
            measure("cache_misses_total", "Results made.", count(&self.misses)),
            measure(
                "cache_stale_total",
                "Old results used in the place of failures.",
                count(&self.stale),
            ),
            measure("cache_entries", "Results kept.", entries),
            measure("cache_bytes", "What they take.", bytes),
            measure(
                "cache_evicted_total",
                "Results that had to make room.",
                count(&self.evicted),
            ),
        ]
    }
}

#[cfg(test)]
mod tests;
