//! `idempotent`: runs steps once for each key (Idempotent Receiver).

mod disk;
mod record;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use component::block::Block;
use component::content::Content;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::state::{Measure, State};
use component::step::{Next, Progress, Step};
use config::{ByteSize, Node, Spanned};
use expr::Value;
use lru::LruCache;
use message::{Fault, Kind, Origin, Reply};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::disk::Disk;
use self::record::Stored;
use crate::codes::{BAD_BRANCH, NO_EFFECT};
use crate::key::{self, KeyTemplate};
use crate::{kept, range};
use component::steps::Steps;
use config::AnyValue;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "idempotent",
    summary: "Runs steps once for each key.",
    documentation: include_str!("idempotent.md"),
    example: include_str!("idempotent.yaml"),
    schema: config::schema_for::<IdempotentConfig>,
    build,
};

/// How many keys under way are passed by in the search for one that can be forgotten.
const PASSED_MAX: usize = 64;

/// How messages are told apart, and what is done once for each.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct IdempotentConfig {
    /// The idempotency key: a string with `${ }`, or a list of such strings. A message whose key is
    /// null or empty fails with `invalid`.
    #[allow(dead_code, reason = "read from the tree, which knows the places")]
    key: AnyValue,
    /// Whether all callers of a flow with `auth` share the keys. By default each caller
    /// (`$auth.way` and `$auth.id`) has its own: a key that another one has used is new.
    #[schemars(extend("default" = false))]
    #[allow(dead_code, reason = "read from the tree, as in other steps")]
    shared: Option<bool>,
    /// How long a key is remembered after the end of its steps, from `1ms` to `366d`.
    #[schemars(extend("default" = "24h"))]
    window: Option<Spanned<config::Duration>>,
    /// The largest number of keys, from 1 to 10000000. The oldest one is forgotten first.
    #[schemars(extend("default" = 100000))]
    max: Option<Spanned<u64>>,
    /// The steps for the first message with a key. If they fail, the key is forgotten.
    #[allow(dead_code, reason = "read from the tree, which knows the places")]
    steps: Steps,
    /// The steps for a duplicate. Without them the flow continues with the duplicate's own body.
    #[allow(dead_code, reason = "read from the tree, which knows the places")]
    on_duplicate: Option<Steps>,
    /// Whether a duplicate gets the result of the first message: the body that its steps left, or
    /// the reply that ended the flow.
    #[schemars(extend("default" = false))]
    replay: Option<Spanned<bool>>,
    /// With `replay`: the largest result that is kept, from `1B` to `1GiB`.
    #[schemars(extend("default" = "1MiB"))]
    body_max: Option<Spanned<ByteSize>>,
    /// With `replay`: the memory for all results together, from `1KiB` to `64GiB`.
    #[schemars(extend("default" = "64MiB"))]
    memory: Option<Spanned<ByteSize>>,
    /// Where keys are kept: on the `disk`, in the data folder, or in `memory`, where they are lost
    /// when the process ends. The default is `disk` if there is a data folder.
    durability: Option<Spanned<Durability>>,
}

/// Where keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Durability {
    Disk,
    Memory,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let step = read(node, context);
    // Also when there is a problem, or each use of the name would be another one.
    let slot = context.scope.declare("duplicate")?;
    let step = Idempotent { slot, ..step? };
    Some(Box::new(step))
}

fn read(node: &Node, context: &mut BuildContext<'_>) -> Option<Idempotent> {
    let config: IdempotentConfig = config::decode(node, context.report)?;
    let before = context.problems();
    let settings = settings(&config, context);
    let replays = config.replay.as_ref().is_some_and(|replay| replay.value);
    refuse_contradictions(node, replays, context);
    let key = node.get("key").and_then(|node| key::read(node, context));
    let is_shared = key::read_shared(node, context);
    let steps = node.get("steps")?;
    let block = context.inner_branch("idempotent", steps);
    let on_duplicate = match node.get("on_duplicate") {
        Some(steps) => Some(context.inner_branch("on_duplicate", steps)?),
        None => None,
    };
    let (key, block) = (key?, block?);
    (context.problems() == before).then(|| {
        let durability = config.durability.as_ref().map(|it| it.value);
        let key_json = node.get("key").map(Node::to_json);
        let disk = Disk::of(durability, &key_json, context);
        let made_of = (settings, replays, durability, key_json);
        let table = context.state("idempotent", made_of, || Table::new(settings, disk));
        Idempotent {
            key,
            is_shared,
            block,
            on_duplicate,
            replays,
            slot: 0,
            settings,
            table,
        }
    })
}

fn refuse_contradictions(node: &Node, replays: bool, context: &mut BuildContext<'_>) {
    if let (true, Some(steps)) = (replays, node.entry("on_duplicate")) {
        let message = "`replay` and `on_duplicate` both say what a duplicate gets";
        let diagnostic = context.report.error(BAD_BRANCH, steps.key_span, message);
        diagnostic.hint("leave one of them out");
    }
    for name in ["body_max", "memory"] {
        if let (false, Some(entry)) = (replays, node.entry(name)) {
            let message = format!("`{name}` has no effect without `replay`");
            let diagnostic = context.report.error(NO_EFFECT, entry.key_span, message);
            diagnostic.hint("write `replay: true`, or leave it out");
        }
    }
}

fn settings(config: &IdempotentConfig, context: &mut BuildContext<'_>) -> Settings {
    let report = &mut *context.report;
    let (memory, body_max) = (config.memory.as_ref(), config.body_max.as_ref());
    Settings {
        window: match &config.window {
            Some(time) => range::age("window", time, report),
            None => Duration::from_secs(24 * 3600),
        },
        max: range::count("max", config.max.as_ref(), 1..=10_000_000, 100_000, report),
        body_max: range::size("body_max", body_max, range::ONE, 1 << 20, report),
        memory: range::size("memory", memory, range::ALL, 64 << 20, report),
    }
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    window: Duration,
    max: usize,
    body_max: usize,
    memory: usize,
}

/// The step.
struct Idempotent {
    key: KeyTemplate,
    /// Whether callers have the same keys.
    is_shared: bool,
    block: Block,
    on_duplicate: Option<Block>,
    replays: bool,
    /// Where `$duplicate` goes.
    slot: usize,
    settings: Settings,
    table: Arc<Table>,
}

/// What became of the first message of a key.
#[derive(Clone)]
enum Outcome {
    /// Its steps left this.
    Content(Content),
    /// The same, as the disk has kept it.
    Stored(Reply),
    /// Its steps ended the flow with this.
    Reply(Reply),
    /// It is not known any more.
    Forgotten,
}

enum Entry {
    UnderWay,
    Done {
        until: Instant,
        result: Outcome,
        weight: usize,
    },
}

/// The keys. All workers share them.
struct Table {
    settings: Settings,
    inner: Mutex<Inner>,
    disk: Option<Disk>,
    firsts: AtomicU64,
    duplicates: AtomicU64,
    refused: AtomicU64,
    evicted: AtomicU64,
    unwritten: AtomicU64,
}

struct Inner {
    /// In the order in which they were done: each is as long remembered as the others.
    entries: LruCache<String, Entry>,
    /// About how many bytes the results take.
    bytes: usize,
    /// Keys that are forgotten here and not on the disk yet, where that has them.
    gone: Vec<String>,
    has_disk: bool,
}

/// What a key is.
enum Seen<'a> {
    First(Claim<'a>),
    Duplicate(Outcome),
    UnderWay,
    /// There is no room for another one.
    Full,
}

/// A key under way. Dropped before its steps have succeeded, they have failed or been given up, and
/// the key is forgotten. Dropped behind that, before its result is there, the key is remembered
/// without a result: its steps must not be run again.
struct Claim<'a> {
    table: &'a Table,
    key: &'a str,
    /// When its steps have succeeded.
    succeeded: Option<Success>,
    is_open: bool,
}

/// When the steps of a key have succeeded.
#[derive(Clone, Copy)]
struct Success {
    now: Instant,
    /// The same by the time of day.
    wall: Duration,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        match self.succeeded {
            Some(at) if self.is_open => self.table.remember_without_result(self, at),
            None if self.is_open => drop(self.table.lock().entries.pop(self.key)),
            _ => {}
        }
    }
}

impl Claim<'_> {
    /// Its steps have succeeded. The key is remembered from now on.
    fn end(&mut self, inner: &mut Inner, (result, weight): (Outcome, usize), now: Instant) {
        self.is_open = false;
        let until = now + self.table.settings.window;
        inner.put(
            self.key.to_owned(),
            (result, weight),
            until,
            &self.table.settings,
        );
    }
}

impl Inner {
    /// Remembers a key. A result is never forgotten to make room for another one: whoever asks for
    /// it again relies on it.
    fn put(
        &mut self,
        key: String,
        (result, weight): (Outcome, usize),
        until: Instant,
        settings: &Settings,
    ) {
        let (result, weight) = match weight > settings.memory.saturating_sub(self.bytes) {
            true => (Outcome::Forgotten, 0),
            false => (result, weight),
        };
        self.bytes += weight;
        let entry = Entry::Done {
            until,
            result,
            weight,
        };
        let old = self.entries.put(key, entry);
        self.release(old);
    }

    fn release(&mut self, entry: Option<Entry>) {
        if let Some(Entry::Done { weight, .. }) = entry {
            self.bytes -= weight;
        }
    }

    /// Notes that the disk is to forget a key, too.
    fn forget(&mut self, key: String) {
        if self.has_disk {
            self.gone.push(key);
        }
    }

    /// Forgets keys whose time is over.
    fn expire(&mut self, now: Instant) {
        let is_over = |entry: &Entry| matches!(entry, Entry::Done { until, .. } if *until <= now);
        while self.entries.peek_lru().is_some_and(|(_, it)| is_over(it)) {
            if let Some((key, entry)) = self.entries.pop_lru() {
                self.release(Some(entry));
                self.forget(key);
            }
        }
    }

    /// Forgets the oldest key that is not under way. `false` when there is none nearby.
    fn evict(&mut self) -> bool {
        for _ in 0..PASSED_MAX.min(self.entries.len()) {
            let Some((key, entry)) = self.entries.pop_lru() else {
                break;
            };
            if matches!(entry, Entry::UnderWay) {
                self.entries.put(key, entry);
                continue;
            }
            self.release(Some(entry));
            self.forget(key);
            return true;
        }
        false
    }
}

impl Table {
    fn new(settings: Settings, disk: Option<Disk>) -> Self {
        Self {
            settings,
            inner: Mutex::new(Inner {
                entries: LruCache::unbounded(),
                bytes: 0,
                gone: Vec::new(),
                has_disk: false,
            }),
            disk,
            firsts: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see<'a>(&'a self, key: &'a str, now: Instant) -> Seen<'a> {
        let mut inner = self.lock();
        inner.expire(now);
        match inner.entries.peek(key) {
            Some(Entry::UnderWay) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return Seen::UnderWay;
            }
            // A key under way at the end of the order hides those behind it whose time is over.
            Some(Entry::Done { until, result, .. }) if *until > now => {
                self.duplicates.fetch_add(1, Ordering::Relaxed);
                return Seen::Duplicate(result.clone());
            }
            Some(Entry::Done { .. }) | None => {}
        }
        if inner.entries.len() >= self.settings.max {
            if !inner.evict() {
                return Seen::Full;
            }
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
        self.firsts.fetch_add(1, Ordering::Relaxed);
        let old = inner.entries.put(key.to_owned(), Entry::UnderWay);
        if old.is_some() {
            inner.forget(key.to_owned());
        }
        inner.release(old);
        Seen::First(Claim {
            table: self,
            key,
            succeeded: None,
            is_open: true,
        })
    }
}

impl Idempotent {
    async fn run(&self, exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
        let key = exchange
            .preemptible(services, |it| {
                self.key.make_for_caller(it, self.is_shared, services)
            })
            .await?;
        self.table.load(services).await?;
        let mut claim = match self.table.see(&key, services.now()) {
            Seen::First(claim) => claim,
            Seen::Duplicate(result) => return self.repeat(result, exchange, services).await,
            Seen::UnderWay => {
                let detail = "a request with the same key is under way";
                let fault = Fault::raised("in-progress", None, detail.to_owned());
                let wait = Duration::from_secs(1);
                return Err(fault.with_status(409).with_retry_after(wait));
            }
            Seen::Full => {
                let detail = "too many requests are under way";
                return Err(Fault::new(Kind::Unavailable, Origin::Engine, detail)
                    .with_retry_after(Duration::from_secs(1)));
            }
        };
        let next = self.block.run(exchange, services).await?;
        // Whatever becomes of the result, and if nobody waits for it any more: the steps have
        // succeeded.
        let at = Success {
            now: services.now(),
            wall: services.wall(),
        };
        claim.succeeded = Some(at);
        let kept = exchange
            .preemptible(services, |it| self.result(&next, it))
            .await;
        let (result, stored) = kept.unwrap_or_else(|fault| {
            let at = &*exchange.at;
            tracing::error!(target: "flow", step = at, %fault, "a result cannot be kept");
            ((Outcome::Forgotten, 0), Stored::Nothing)
        });
        self.table.end(claim, (result, stored), at).await;
        exchange.set_slot(self.slot, Value::Bool(false));
        Ok(next)
    }

    /// What duplicates get of it, about how many bytes that takes, and what the disk keeps.
    fn result(
        &self,
        next: &Next,
        exchange: &mut Exchange,
    ) -> Result<((Outcome, usize), Stored), Fault> {
        let nothing = ((Outcome::Forgotten, 0), Stored::Nothing);
        if !self.replays {
            return Ok(nothing);
        }
        Ok(match next {
            Next::Reply(reply) if reply.body.as_bytes().len() <= self.settings.body_max => {
                let weight = record::weight(reply) + kept::ENTRY;
                let mut kept = reply.clone();
                kept.body = kept.body.detached();
                ((Outcome::Reply(kept.clone()), weight), Stored::Reply(kept))
            }
            Next::Continue => match kept::of(exchange, self.settings.body_max)? {
                Some((content, weight)) => {
                    let stored = Stored::Content(exchange.take_reply(200)?);
                    ((Outcome::Content(content), weight + kept::ENTRY), stored)
                }
                None => nothing,
            },
            Next::Reply(_) | Next::Forward(_) => nothing,
        })
    }

    async fn repeat(
        &self,
        result: Outcome,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        exchange.set_slot(self.slot, Value::Bool(true));
        if let Some(block) = &self.on_duplicate {
            return block.run(exchange, services).await;
        }
        match result {
            Outcome::Reply(reply) => Ok(Next::Reply(reply)),
            Outcome::Content(content) => {
                exchange.content = content;
                Ok(Next::Continue)
            }
            Outcome::Stored(reply) => {
                let content = Content::of_reply(&reply);
                exchange.content = content.in_format(exchange.context.decode);
                Ok(Next::Continue)
            }
            Outcome::Forgotten if !self.replays => Ok(Next::Continue),
            Outcome::Forgotten => {
                let detail = "a request with the same key was done, and its result is not kept";
                Err(Fault::raised("not-kept", None, detail.to_owned()).with_status(409))
            }
        }
    }
}

impl Step for Idempotent {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        Progress::Waits(Box::pin(self.run(exchange, services)))
    }

    fn reads_body(&self) -> bool {
        let on_duplicate = self.on_duplicate.as_ref();
        self.key.reads_body()
            || self.block.reads_body()
            || on_duplicate.is_some_and(Block::reads_body)
    }

    fn ends_flow(&self) -> bool {
        let on_duplicate = self.on_duplicate.as_ref();
        self.block.ends_flow() && (self.replays || on_duplicate.is_some_and(Block::ends_flow))
    }

    fn waits(&self) -> bool {
        true
    }
}

impl State for Table {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let inner = self.lock();
        let (keys, bytes) = (inner.entries.len() as f64, inner.bytes as f64);
        let measure = |name, help, value| Measure { name, help, value };
        vec![
            measure(
                "idempotent_firsts_total",
                "Messages with a new key.",
                count(&self.firsts),
            ),
            measure(
                "idempotent_duplicates_total",
                "Messages with a known key.",
                count(&self.duplicates),
            ),
            measure(
                "idempotent_refused_total",
                "Messages whose key was under way.",
                count(&self.refused),
            ),
            measure("idempotent_keys", "Keys remembered.", keys),
            measure("idempotent_bytes", "What their results take.", bytes),
            measure(
                "idempotent_evicted_total",
                "Keys forgotten before their time.",
                count(&self.evicted),
            ),
            measure(
                "idempotent_unwritten_total",
                "Keys that could not be written to the disk.",
                count(&self.unwritten),
            ),
        ]
    }
}

#[cfg(test)]
mod tests;
