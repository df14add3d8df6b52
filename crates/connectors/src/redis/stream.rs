//! The source of a stream, read by a group of consumers: each worker is one of them. An entry is
//! acknowledged when its flow has succeeded, so a crash loses none: the server gives it again to
//! the same consumer, or to another one that claims it after a while.

mod entry;
mod group;
mod intake;

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use component::content::Format;
use component::handler::{LocalFuture, Services};
use component::resilience::Backoff;
use component::source::{Source, Started, failure};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use message::Fault;
use message::memory::Intake;

use self::entry::Entry;
use self::group::{Claimed, Group};
use self::intake::{Held, Taken};
use super::connection::Redis;
use super::delivery::{Counts, count};
use super::source::{OnFailure, StreamSettings};

/// The time from one try to the next: first and longest.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(15));

/// The source.
pub(super) struct StreamSource {
    pub server: Arc<Redis>,
    pub settings: StreamSettings,
    pub state: Arc<Counts>,
}

impl Source for StreamSource {
    fn run<'a>(
        &'a self,
        flow: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            let concurrent = services.share().of(self.settings.concurrent);
            if concurrent == 0 {
                // The other workers have them all.
                return stop.await;
            }
            let worker = Worker {
                source: self,
                flow,
                services,
                group: Group::new(self, services),
                taken: RefCell::default(),
                is_searching: Cell::new(false),
                lapses: Cell::new(0),
                intake: RefCell::default(),
                small: Cell::new(0),
                parked: Cell::new(0),
                stopping: Cell::new(false),
            };
            worker.run(concurrent, stop).await;
        })
    }

    fn is_on_every_worker(&self) -> bool {
        true
    }

    fn decode(&self) -> Option<Format> {
        Some(match self.settings.field {
            Some(_) => self.settings.decode,
            None => Format::Json,
        })
    }
}

/// What reads and works on one worker.
struct Worker<'a> {
    source: &'a StreamSource,
    flow: &'a Arc<dyn Started>,
    services: &'a dyn Services,
    group: Group<'a>,
    /// The entries that wait here or whose flows run.
    taken: RefCell<HashSet<String>>,
    /// Whether a search for entries that other consumers have left is not over.
    is_searching: Cell<bool>,
    /// How often in a row entries could not be kept or claimed.
    lapses: Cell<u32>,
    /// Room in the budget of memory, and the bytes of small entries that have it together.
    intake: RefCell<Intake>,
    small: Cell<usize>,
    /// How many entries wait for room.
    parked: Cell<usize>,
    stopping: Cell<bool>,
}

/// Why the worker goes on.
enum Event {
    Stop,
    Came(Vec<Entry>),
    Ended,
    /// Entries in work are known to be so, and a search may have begun.
    Kept,
}

impl Worker<'_> {
    async fn run(&self, most: usize, mut stop: LocalFuture<'static, ()>) {
        let mut reading: Option<LocalFuture<'_, Vec<Entry>>> = None;
        let mut claiming: Option<LocalFuture<'_, Vec<Entry>>> = None;
        let mut keeping: LocalFuture<'_, ()> = Box::pin(self.keep());
        let mut waiting: VecDeque<Taken> = VecDeque::new();
        let mut running: FuturesUnordered<LocalFuture<'_, ()>> = FuturesUnordered::new();
        loop {
            let has_room = self.parked.get() == 0 && waiting.is_empty() && running.len() < most;
            if has_room && reading.is_none() {
                reading = Some(Box::pin(self.read()));
            }
            if has_room && claiming.is_none() && self.is_searching.get() {
                claiming = Some(Box::pin(self.claim()));
            }
            let event = poll_fn(|context| {
                if stop.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Event::Stop);
                }
                if let Poll::Ready(Some(())) = running.poll_next_unpin(context) {
                    return Poll::Ready(Event::Ended);
                }
                if let Some(read) = &mut reading
                    && let Poll::Ready(entries) = read.as_mut().poll(context)
                {
                    reading = None;
                    return Poll::Ready(Event::Came(entries));
                }
                if let Some(claim) = &mut claiming
                    && let Poll::Ready(entries) = claim.as_mut().poll(context)
                {
                    claiming = None;
                    return Poll::Ready(Event::Came(entries));
                }
                if keeping.as_mut().poll(context).is_ready() {
                    keeping = Box::pin(self.keep());
                    return Poll::Ready(Event::Kept);
                }
                Poll::Pending
            })
            .await;
            match event {
                Event::Stop => break,
                Event::Came(entries) => self.take(entries, &mut waiting),
                Event::Ended | Event::Kept => {}
            }
            while running.len() < most
                && let Some(entry) = waiting.pop_front()
            {
                running.push(Box::pin(self.process(entry)));
            }
        }
        // What only waits stays with the server, which gives it again.
        drop((reading, claiming));
        self.stopping.set(true);
        loop {
            let event = poll_fn(|context| {
                if let Poll::Ready(ended) = running.poll_next_unpin(context) {
                    return Poll::Ready(ended);
                }
                if keeping.as_mut().poll(context).is_ready() {
                    keeping = Box::pin(self.keep());
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            });
            if event.await.is_none() {
                return;
            }
        }
    }

    /// Puts those that are not here yet behind those that wait.
    fn take(&self, entries: Vec<Entry>, waiting: &mut VecDeque<Taken>) {
        let mut largest = 0;
        for entry in entries {
            if self.taken.borrow_mut().insert(entry.id.clone()) {
                largest = largest.max(entry.size());
                waiting.push_back(self.hold(entry));
            }
        }
        self.adapt(largest);
    }

    /// Reads what comes next. Tries until it works.
    async fn read(&self) -> Vec<Entry> {
        let mut failures = 0;
        loop {
            match self.group.read().await {
                Ok(entries) => {
                    if failures > 0 {
                        tracing::info!(
                            target: "redis", flow = &**self.flow.name(), "the stream is read again"
                        );
                    }
                    return entries;
                }
                Err(fault) => {
                    failures += 1;
                    self.tell(&fault, failures, "a stream cannot be read");
                    self.services
                        .sleep(BACKOFF.delay_after(failures, 0.0))
                        .await;
                }
            }
        }
    }

    /// After a while: tells the server that entries here are in work, and has a search begin for
    /// those that other consumers have left.
    async fn keep(&self) {
        self.services.sleep(self.source.settings.idle / 3).await;
        let taken: Vec<String> = self.taken.borrow().iter().cloned().collect();
        match self.group.keep(&taken).await {
            Ok(()) => self.is_searching.set(true),
            Err(fault) => self.tell(&fault, self.again(), "entries cannot be kept"),
        }
    }

    /// Takes over entries that other consumers have left.
    async fn claim(&self) -> Vec<Entry> {
        match self.group.claim().await {
            Ok(Claimed { entries, is_over }) => {
                self.lapses.set(0);
                self.is_searching.set(!is_over);
                entries
            }
            Err(fault) => {
                // The next search goes on from where this one has failed.
                self.is_searching.set(false);
                let what = "entries of other consumers cannot be claimed";
                self.tell(&fault, self.again(), what);
                Vec::new()
            }
        }
    }

    /// How often in a row entries could not be kept or claimed, this time included.
    fn again(&self) -> u32 {
        self.lapses.set(self.lapses.get().saturating_add(1));
        self.lapses.get()
    }

    /// Runs the flow on an entry and tells the server what became of it.
    async fn process(&self, taken: Taken) {
        let Some(Taken { mut entry, held }) = self.until_held(taken).await else {
            return;
        };
        self.process_held(&mut entry, &held).await;
        self.release(&entry, held);
    }

    async fn process_held(&self, entry: &mut Entry, held: &Held) {
        let settings = &self.source.settings;
        if let OnFailure::Move(target, most) = &settings.on_failure
            && entry.is_claimed
        {
            // One that ends the process each time must not do so for ever.
            let tries = self.until_done(|| self.group.deliveries(&entry.id)).await;
            if tries.is_some_and(|tries| tries > *most) {
                let why = "it was given too often without an answer";
                return self.bury(entry, target, (why, *most)).await;
            }
        }
        let failure = self.run_flow(entry, held).await;
        count(match failure {
            None => &self.source.state.done,
            Some(_) => &self.source.state.failed,
        });
        match (failure, &settings.on_failure) {
            (None, _) | (Some(_), OnFailure::Acknowledge) => {
                self.until_done(|| self.group.acknowledge(std::slice::from_ref(&entry.id)))
                    .await;
            }
            (Some(_), OnFailure::Leave) => {}
            (Some(why), OnFailure::Move(target, most)) => {
                let tries = self.until_done(|| self.group.deliveries(&entry.id)).await;
                if let Some(tries) = tries.filter(|tries| tries >= most) {
                    self.bury(entry, target, (&why, tries)).await;
                }
            }
        }
    }

    /// Why the flow has not succeeded with an entry, if it has not.
    async fn run_flow(&self, entry: &mut Entry, held: &Held) -> Option<String> {
        let room = match held {
            Held::Small(_) => None,
            Held::Large(room) => room.borrow_mut().take(),
            Held::Never => return Some(self.too_large(entry)),
            // It has been waited for.
            Held::Not(_) => return Some("there is no memory left for the entry".to_owned()),
        };
        let settings = &self.source.settings;
        let request = entry.request(settings, room);
        if !matches!(settings.on_failure, OnFailure::Move(..)) {
            entry.fields = Vec::new();
        }
        let result = self.flow.start(request, self.services).await;
        failure(&result)
    }

    async fn bury(&self, entry: &Entry, target: &str, (why, tries): (&str, u64)) {
        let why = message::secret::redact(why);
        let moved = self
            .until_done(|| self.group.bury(entry, target, (&why, tries)))
            .await;
        if moved.is_some() {
            count(&self.source.state.dead);
            tracing::warn!(
                target: "redis",
                flow = &**self.flow.name(),
                id = entry.id,
                tries,
                "an entry has been moved to the stream for dead letters"
            );
        }
    }

    /// Does something until it works; `None` when the source has to end before.
    async fn until_done<T, F: Future<Output = Result<T, Fault>>>(
        &self,
        work: impl Fn() -> F,
    ) -> Option<T> {
        let mut failures = 0;
        loop {
            match work().await {
                Ok(done) => return Some(done),
                Err(fault) => {
                    failures += 1;
                    self.tell(
                        &fault,
                        failures,
                        "the server cannot be told what became of an entry",
                    );
                    if self.stopping.get() {
                        return None;
                    }
                    self.services
                        .sleep(BACKOFF.delay_after(failures, 0.0))
                        .await;
                }
            }
        }
    }

    /// Counts a failure, and writes the first of several to the log, and then each tenth.
    fn tell(&self, fault: &Fault, failures: u32, what: &str) {
        count(&self.source.state.errors);
        if failures % 10 == 1 {
            tracing::error!(target: "redis", flow = &**self.flow.name(), %fault, "{what}");
        }
    }
}
