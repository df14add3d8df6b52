//! The source of a folder at work: it looks, takes files, runs flows on them, and moves them on.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use component::content::Format;
use component::handler::{LocalFuture, Services};
use component::intake::{Intake, IntakePlan, Settlement};
use component::resilience::Backoff;
use component::source::{Source, Started};
use message::memory::{self, NoRoom, Reservation};

use super::Settings;
use super::disk::{Claim, Found, LISTED_MAX, Listing, Taken, Verdict, compare};
use super::message::FileMessage;
use super::state::FileState;
use super::watch::{Bell, Watch};
use crate::folder::place::too_large_for_memory;
use crate::under_way::{UnderWay, blocking};

/// The shortest time from one look at the folder to the next.
const GAP: Duration = Duration::from_millis(50);
/// How long to wait when somebody else works on a file.
const BUSY: Duration = Duration::from_secs(1);
/// How long to wait after the first failure with a file, and the longest wait.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(300));
/// How often is looked whether there is room for a file.
const LOOK: Duration = Duration::from_millis(100);
/// How often the log tells that a folder cannot be read.
const TELL: Duration = Duration::from_secs(60);

/// The source.
pub(super) struct FileSource {
    pub settings: Settings,
    pub state: Arc<FileState>,
    pub plan: Arc<IntakePlan>,
}

impl Source for FileSource {
    fn run<'a>(
        &'a self,
        flow: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            let worker = Worker {
                source: self,
                flow,
                services,
                stopping: Cell::new(false),
                intake: Intake::new(flow, &self.plan),
                memory: RefCell::default(),
            };
            Work::new(&worker).run(stop).await;
        })
    }

    fn decode(&self) -> Option<Format> {
        self.settings.decode
    }
}

/// What is known of a file that has not been taken.
struct Seen {
    size: u64,
    modified: SystemTime,
    /// Since when it has been so.
    since: Instant,
}

/// A file that has to wait.
struct Later {
    until: Instant,
    /// How often it has failed.
    failures: u32,
}

/// How the work on a file has ended.
struct Ended {
    name: OsString,
    how: How,
}

enum How {
    /// It is where it belongs, or has gone, or stays where it is until the source starts anew.
    Settled,
    /// It is to be looked at anew.
    Again,
    /// Somebody else works on it.
    Busy,
    /// It could not be read or taken.
    Failed(io::Error),
}

/// What works on one file.
struct Worker<'a> {
    source: &'a FileSource,
    flow: &'a Arc<dyn Started>,
    services: &'a dyn Services,
    stopping: Cell<bool>,
    intake: Intake,
    /// Its part of the budget for bodies.
    memory: RefCell<memory::Intake>,
}

impl Worker<'_> {
    /// Takes a file, runs the flow on it and moves it on.
    async fn process(&self, found: Found) -> Ended {
        let name = found.name.clone();
        let how = self.try_process(found).await;
        Ended { name, how }
    }

    async fn try_process(&self, found: Found) -> How {
        let Settings {
            folders, body_max, ..
        } = &self.source.settings;
        let (folders, body_max, name) = (Arc::clone(folders), *body_max, found.name.clone());
        let is_left = found.is_left;
        let room = match self.until_room(&found).await {
            Ok(room) => room,
            Err(how) => return how,
        };
        let claim = blocking(self.services, move || folders.claim(&found, body_max)).await;
        let Taken {
            body,
            modified,
            file,
        } = match claim {
            Some(Ok(Claim::Taken(taken))) => taken,
            Some(Ok(Claim::Gone)) => return How::Settled,
            Some(Ok(Claim::Changed)) => return How::Again,
            Some(Ok(Claim::Busy)) => return How::Busy,
            Some(Err(error)) => return How::Failed(error),
            None => return How::Failed(io::Error::other("the work has panicked")),
        };
        let state = &self.source.state;
        if !is_left {
            // Another file of this name, which somebody has taken away.
            state.settle(&name);
        }
        let body = match room {
            Some(room) => room.hold(body),
            None => Bytes::from(body),
        };
        // A flow that has run before a reload does not run again.
        let verdict = match state.decided(&name) {
            Some(verdict) => verdict,
            None => match self.run_flow(&name, body, modified).await {
                Some(verdict) => verdict,
                // Left among those under way, and not locked any more: as after a crash, whoever
                // takes files from here next takes it first.
                None => return How::Settled,
            },
        };
        self.settle(&name, &verdict).await;
        drop(file);
        How::Settled
    }

    /// Waits until the budget for bodies has room for a file, unless the source has to end before.
    async fn until_room(&self, found: &Found) -> Result<Option<Reservation>, How> {
        loop {
            let taken = self.memory.borrow_mut().take(found.size);
            match taken {
                Ok(room) => return Ok(room),
                Err(NoRoom::Never) => {
                    let limit = memory::bodies().limit();
                    return Err(How::Failed(too_large_for_memory(limit)));
                }
                Err(NoRoom::Now { .. }) if self.intake.is_over() => return Err(How::Again),
                Err(NoRoom::Now { is_new }) => {
                    if is_new {
                        tracing::warn!(
                            target: "flow",
                            flow = &**self.flow.name(),
                            "files wait for memory: limits.body_memory is used up"
                        );
                    }
                    self.services.sleep(LOOK).await;
                }
            }
        }
    }

    /// Has the flow run on a file. What becomes of the file then; `None` when nothing does for now.
    async fn run_flow(&self, name: &OsStr, body: Bytes, modified: SystemTime) -> Option<Verdict> {
        let decode = self.source.settings.decode;
        let mut message = FileMessage::new(name, body, modified, decode);
        let processed = self.intake.process(&mut message, self.services).await;
        match processed.settlement {
            Settlement::Acknowledge => Some(Verdict::Done),
            Settlement::Reject { failed, reason } => {
                let id = name.to_string_lossy();
                self.intake
                    .dead_letter_kept((&id, "the folder"), failed, &reason);
                Some(Verdict::Failed(message.failure(failed)))
            }
            // A file is held here for as long as it is retried, and never put back.
            Settlement::PutBack(_) | Settlement::Release => None,
        }
    }

    /// Moves a file on. Tries until it works or the source has to end.
    async fn settle(&self, name: &OsStr, verdict: &Verdict) {
        let mut failures = 0;
        loop {
            let folders = Arc::clone(&self.source.settings.folders);
            let (name_there, verdict_there) = (name.to_owned(), verdict.clone());
            let time = super::message::stamp(self.services.wall());
            let work = move || folders.settle(&name_there, &verdict_there, &time);
            let error = match blocking(self.services, work).await {
                Some(Ok(())) => return self.source.state.settle(name),
                Some(Err(error)) => error,
                None => io::Error::other("the work has panicked"),
            };
            self.source.state.decide(name, verdict.clone());
            self.tell(name, &error, "a file that is through cannot be moved");
            if self.stopping.get() {
                return;
            }
            failures += 1;
            self.pause(BACKOFF.delay_after(failures, 0.0)).await;
        }
    }

    /// Waits for a while, or until the source has to end.
    async fn pause(&self, time: Duration) {
        let mut sleep = self.services.sleep(time);
        poll_fn(|context| match self.stopping.get() {
            true => Poll::Ready(()),
            false => sleep.as_mut().poll(context),
        })
        .await;
    }

    fn tell(&self, name: &OsStr, error: &io::Error, what: &str) {
        self.source.state.errors.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            target: "flow",
            flow = &**self.flow.name(),
            file = %name.to_string_lossy().escape_debug(),
            %error,
            "{what}"
        );
    }
}

/// What a look at the folder gives.
type Look = Result<(Listing, Option<notify::Result<Watch>>), io::Error>;

/// Why the source goes on.
enum Event {
    Stop,
    Ended(Ended),
    Looked(Option<Look>),
    Ring,
    Time,
}

/// The source while it runs.
struct Work<'a> {
    worker: &'a Worker<'a>,
    files: UnderWay<'a, Ended>,
    look: Option<LocalFuture<'a, Option<Look>>>,
    bell: Arc<Bell>,
    watch: Option<Watch>,
    /// Whether watching is still worth a try.
    may_watch: bool,
    /// The names of the files under way.
    taken: HashSet<OsString>,
    /// Those that can be taken, in order.
    ready: VecDeque<Found>,
    seen: HashMap<OsString, Seen>,
    later: HashMap<OsString, Later>,
    next_look: Instant,
    look_began: Instant,
    /// The shortest time to the next look: more when looking takes long.
    gap: Duration,
    /// When the log has last told that the folder cannot be read.
    told: Option<Instant>,
}

impl<'a> Work<'a> {
    fn new(worker: &'a Worker<'a>) -> Self {
        let now = worker.services.now();
        Self {
            worker,
            files: UnderWay::new(),
            look: None,
            bell: Arc::default(),
            watch: None,
            may_watch: worker.source.settings.watch,
            taken: HashSet::new(),
            ready: VecDeque::new(),
            seen: HashMap::new(),
            later: HashMap::new(),
            next_look: now,
            look_began: now,
            gap: GAP,
            told: None,
        }
    }

    async fn run(mut self, mut stop: LocalFuture<'static, ()>) {
        loop {
            match self.next(&mut stop).await {
                Event::Stop => break,
                Event::Ended(ended) => self.ended(ended),
                Event::Looked(look) => self.looked(look),
                Event::Ring => {
                    let soon = self.now() + self.gap;
                    self.next_look = self.next_look.min(soon);
                }
                Event::Time => self.begin_look(),
            }
            self.fill();
        }
        self.worker.stopping.set(true);
        self.worker.intake.stop();
        while !self.files.is_empty() {
            let files = &mut self.files;
            poll_fn(|context| files.poll(context)).await;
        }
    }

    fn now(&self) -> Instant {
        self.worker.services.now()
    }

    async fn next(&mut self, stop: &mut LocalFuture<'static, ()>) -> Event {
        let wait = self.next_look.saturating_duration_since(self.now());
        let mut sleep = match &self.look {
            Some(_) => None,
            None => Some(self.worker.services.sleep(wait)),
        };
        let Self {
            files, look, bell, ..
        } = self;
        poll_fn(|context| {
            if stop.as_mut().poll(context).is_ready() {
                return Poll::Ready(Event::Stop);
            }
            if let Poll::Ready(ended) = files.poll(context) {
                return Poll::Ready(Event::Ended(ended));
            }
            if let Some(look) = look {
                return look.as_mut().poll(context).map(Event::Looked);
            }
            if bell.poll(context).is_ready() {
                return Poll::Ready(Event::Ring);
            }
            match &mut sleep {
                Some(sleep) => sleep.as_mut().poll(context).map(|()| Event::Time),
                None => Poll::Pending,
            }
        })
        .await
    }

    fn begin_look(&mut self) {
        self.look_began = self.now();
        let Settings {
            folders,
            pattern,
            order,
            ..
        } = &self.worker.source.settings;
        let (folders, pattern) = (Arc::clone(folders), Arc::clone(pattern));
        let first = (*order, LISTED_MAX);
        let wants_watch = self.may_watch && self.watch.is_none();
        let bell = Arc::clone(&self.bell);
        let work = move || {
            let listing = folders.list(&pattern, first)?;
            if !wants_watch && !listing.is_new {
                return Ok((listing, None));
            }
            let watch = Watch::new(&folders.folder, &bell);
            // What came between the list and the watch.
            let listing = folders.list(&pattern, first)?;
            Ok((listing, Some(watch)))
        };
        self.look = Some(Box::pin(blocking(self.worker.services, work)));
    }

    fn looked(&mut self, look: Option<Look>) {
        self.look = None;
        let now = self.now();
        self.gap = GAP.max(now.saturating_duration_since(self.look_began) * 4);
        self.next_look = now + self.worker.source.settings.every;
        let (listing, watch) = match look {
            Some(Ok(found)) => found,
            Some(Err(error)) => return self.cannot_look(&error),
            None => return self.cannot_look(&io::Error::other("the work has panicked")),
        };
        if self.told.take().is_some() {
            let flow = &**self.worker.flow.name();
            tracing::info!(target: "flow", flow, "the folder can be read again");
        }
        match watch.filter(|_| self.may_watch) {
            Some(Ok(watch)) => self.watch = Some(watch),
            Some(Err(error)) => {
                self.may_watch = false;
                let flow = &**self.worker.flow.name();
                tracing::warn!(
                    target: "flow", flow, %error,
                    "the folder cannot be watched, so it is looked through from time to time"
                );
            }
            None => {}
        }
        self.sort(listing, now);
    }

    fn cannot_look(&mut self, error: &io::Error) {
        let now = self.now();
        self.ready.clear();
        self.watch = None;
        let state = &self.worker.source.state;
        state.errors.fetch_add(1, Ordering::Relaxed);
        let is_new = self
            .told
            .is_none_or(|told| now.saturating_duration_since(told) >= TELL);
        if is_new {
            self.told = Some(now);
            let flow = &**self.worker.flow.name();
            tracing::error!(target: "flow", flow, %error, "a folder cannot be read");
        }
    }

    /// Finds out which files can be taken, and in which order.
    fn sort(&mut self, listing: Listing, now: Instant) {
        let settings = &self.worker.source.settings;
        let mut seen = HashMap::new();
        let mut ready = Vec::new();
        let names: HashSet<&OsString> = listing.files.iter().map(|found| &found.name).collect();
        self.later.retain(|name, _| names.contains(name));
        for found in listing.files {
            let is_taken = self.taken.contains(&found.name);
            if found.is_left && is_taken {
                continue;
            }
            let until = self.later.get(&found.name).map(|later| later.until);
            let may_come = !is_taken && until.is_none_or(|until| until <= now);
            if found.is_left {
                if may_come {
                    ready.push(found);
                }
                continue;
            }
            let same = self
                .seen
                .remove(&found.name)
                .filter(|seen| seen.size == found.size && seen.modified == found.modified);
            let since = same.map_or(now, |seen| seen.since);
            let stable_at = since + settings.stable;
            seen.insert(
                found.name.clone(),
                Seen {
                    size: found.size,
                    modified: found.modified,
                    since,
                },
            );
            if stable_at > now {
                self.next_look = self.next_look.min(stable_at.max(now + self.gap));
            } else if may_come {
                ready.push(found);
            }
        }
        self.seen = seen;
        self.count_waiting();
        ready.sort_unstable_by(|a, b| compare(a, b, settings.order));
        self.ready = ready.into();
    }

    /// Starts work on files while there is room.
    fn fill(&mut self) {
        let settings = &self.worker.source.settings;
        let intake = &self.worker.intake;
        if intake.is_over() || intake.is_blocked() {
            return;
        }
        while self.files.len() < settings.concurrent {
            let Some(found) = self.ready.pop_front() else {
                return;
            };
            if !self.taken.insert(found.name.clone()) {
                continue;
            }
            self.seen.remove(&found.name);
            let worker = self.worker;
            self.files.push(Box::pin(worker.process(found)));
            self.count_waiting();
        }
    }

    fn count_waiting(&self) {
        let state = &self.worker.source.state;
        let waiting = self.seen.len() as u64;
        state.waiting.store(waiting, Ordering::Relaxed);
    }

    fn ended(&mut self, ended: Ended) {
        let Ended { name, how } = ended;
        let now = self.now();
        self.taken.remove(&name);
        match how {
            How::Settled => {
                self.seen.remove(&name);
                self.later.remove(&name);
                self.count_waiting();
            }
            How::Again => {
                self.seen.remove(&name);
                self.next_look = self.next_look.min(now + self.gap);
            }
            How::Busy => {
                let failures = self.later.get(&name).map_or(0, |later| later.failures);
                let until = now + BUSY;
                self.later.insert(name, Later { until, failures });
            }
            How::Failed(error) => {
                self.worker.tell(&name, &error, "a file cannot be taken");
                let failures = self.later.get(&name).map_or(0, |later| later.failures) + 1;
                let until = now + BACKOFF.delay_after(failures, 0.0);
                self.later.insert(name, Later { until, failures });
            }
        }
    }
}
