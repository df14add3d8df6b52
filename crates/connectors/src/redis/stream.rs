//! The source of a stream, read by a group of consumers: each worker is one of them. An entry is
//! acknowledged when its flow has succeeded or it is a dead letter, so a crash loses none: the
//! server gives it again to the same consumer, or to another one that claims it after a while.

mod entry;
mod group;
mod held;

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use component::content::Format;
use component::handler::{LocalFuture, Services};
use component::intake::{Intake, Settlement};
use component::resilience::Backoff;
use component::source::{Source, Started};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use message::{Fault, memory};

use self::entry::{Delivery, Entry};
use self::group::{Claimed, Group};
use self::held::{Held, Taken};
use super::connection::Redis;
use super::delivery::{Counts, Intakes, Rules, count};
use super::source::StreamSettings;

/// The time from one try to the next: first and longest.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(15));

/// The source.
pub(super) struct StreamSource {
    pub server: Arc<Redis>,
    pub settings: StreamSettings,
    pub rules: Rules,
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
                memory: RefCell::default(),
                small: Cell::new(0),
                parked: Cell::new(0),
                intakes: Intakes::new(flow, &self.rules),
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
    memory: RefCell<memory::Intake>,
    small: Cell<usize>,
    /// How many entries wait for room.
    parked: Cell<usize>,
    intakes: Intakes,
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
            let has_room = self.takes_more() && waiting.is_empty() && running.len() < most;
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
        self.intakes.stop();
        self.finish(running, keeping).await;
    }

    /// Waits until the running flows have ended. Meanwhile their entries stay claimed by this
    /// consumer.
    async fn finish<'w>(
        &'w self,
        mut running: FuturesUnordered<LocalFuture<'w, ()>>,
        mut keeping: LocalFuture<'w, ()>,
    ) {
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

    /// Whether further entries may be read: the source is not stopping or halted, no entry waits
    /// for memory, and dead letters are accepted.
    fn takes_more(&self) -> bool {
        !self.intakes.is_over() && self.parked.get() == 0 && !self.intakes.is_blocked()
    }

    /// Puts those that are not here yet behind those that wait.
    fn take(&self, entries: Vec<Entry>, waiting: &mut VecDeque<Taken>) {
        if self.intakes.is_over() {
            // They stay with the server, like all that come later.
            return;
        }
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
        let Some((entry, mut held)) = self.until_held(taken).await else {
            return;
        };
        let id = entry.id.clone();
        self.deliver(entry, &mut held).await;
        self.release(&id, held);
    }

    async fn deliver(&self, entry: Entry, held: &mut Held) {
        let Some(delivered_before) = self.delivered_before(&entry).await else {
            return;
        };
        let (intake, room) = match held {
            Held::Small(_) => (&self.intakes.usual, Ok(None)),
            Held::Large(room) => (&self.intakes.usual, Ok(room.take())),
            // It would be in memory without room for as long as it is retried.
            Held::Never => (&self.intakes.once, Err(self.too_large(&entry))),
        };
        let mut delivery = Delivery {
            settings: &self.source.settings,
            entry,
            delivered_before,
            room,
            body: None,
        };
        let processed = intake.process(&mut delivery, self.services).await;
        match processed.settlement {
            Settlement::Acknowledge => self.acknowledge(&delivery.entry).await,
            Settlement::Reject { reason, failed } => {
                self.bury(&delivery.entry, (&reason, failed), intake).await;
            }
            // Nothing is put back: entries wait here, however long. What is released stays pending.
            Settlement::PutBack(_) | Settlement::Release => {}
        }
    }

    /// How often an entry has been given to somebody before; `None` when the source has to end
    /// before that is known.
    async fn delivered_before(&self, entry: &Entry) -> Option<u32> {
        if !entry.is_claimed {
            return Some(0);
        }
        let count = self
            .until_done(async || self.group.deliveries(&entry.id).await)
            .await?;
        Some(u32::try_from(count.saturating_sub(1)).unwrap_or(u32::MAX))
    }

    async fn acknowledge(&self, entry: &Entry) {
        let ids = std::slice::from_ref(&entry.id);
        self.until_done(async || self.group.acknowledge(ids).await)
            .await;
    }

    /// Moves an entry to the stream for dead letters: it is there before it is acknowledged.
    async fn bury(&self, entry: &Entry, (reason, failed): (&str, u32), intake: &Intake) {
        // Without such a stream nothing is rejected.
        let Some(stream) = &self.source.settings.dead_letters else {
            return;
        };
        let (flow, because) = (&**self.flow.name(), (reason, failed));
        let added = intake.until_kept(
            self.services,
            async || self.counted(self.group.add_dead_letter(entry, stream, because).await),
            |fault| {
                tracing::error!(
                    target: "redis", flow, id = entry.id, stream, %fault,
                    "an entry cannot be moved to the stream for dead letters: no further entries \
                     are taken until it is"
                );
            },
        );
        if added.await.is_none() {
            return;
        }
        intake.dead_letter_kept((&entry.id, stream), failed, reason);
        self.acknowledge(entry).await;
    }

    /// Does something until it works; `None` when the source has to end before.
    async fn until_done<T>(&self, mut work: impl AsyncFnMut() -> Result<T, Fault>) -> Option<T> {
        let flow = &**self.flow.name();
        let done = self.intakes.usual.until_done(
            self.services,
            async || self.counted(work().await),
            |fault| {
                let what = "the server cannot be told what became of an entry";
                tracing::error!(target: "redis", flow, %fault, "{what}");
            },
        );
        done.await
    }

    /// Counts a failure.
    fn counted<T>(&self, result: Result<T, Fault>) -> Result<T, Fault> {
        if result.is_err() {
            count(&self.source.state.errors);
        }
        result
    }

    /// Counts a failure, and writes the first of several to the log, and then each tenth.
    fn tell(&self, fault: &Fault, failures: u32, what: &str) {
        count(&self.source.state.errors);
        if failures % 10 == 1 {
            tracing::error!(target: "redis", flow = &**self.flow.name(), %fault, "{what}");
        }
    }
}
