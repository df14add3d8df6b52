//! The thread that gives every event its place: it takes whatever waits as one batch, has the store
//! keep it, and then shows it to everybody and answers. Topics on the disk and topics in memory
//! have a lane each, so that a slow disk holds up only those that need it.

mod batch;
mod queue;

use std::collections::VecDeque;
use std::future::Future;
use std::mem::{Discriminant, discriminant};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;
use std::time::Instant;

use allocator::Release;
use journal::Refusals;
use message::Fault;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use self::batch::Batch;
use self::queue::Queue;
use crate::log::Log;
use crate::prepare::Item;
use crate::settings::Durability;
use crate::store::StoreError;
use crate::topic::Receipt;

/// The most bytes of publications that wait, for each durability.
const WAITING_MAX: usize = 64 << 20;
/// The same for one topic, and for all while those that come have to wait for a worker: the rest is
/// for other topics.
const TOPIC_MAX: usize = WAITING_MAX / 4 * 3;
const HELD_MAX: usize = WAITING_MAX / 2;
/// The most publications, and about how many bytes, that are one batch.
const BATCH_MAX: (usize, usize) = (4096, 8 << 20);
/// How many may read what was published before at the same time.
const READERS_MAX: usize = 2;

/// Publications that belong together.
pub(crate) struct Submission {
    pub log: Arc<Log>,
    /// Who publishes it; none for what the engine does by itself.
    pub client: Option<IpAddr>,
    pub items: Vec<Item>,
    pub answer: oneshot::Sender<Result<Vec<Receipt>, Fault>>,
    pub place: Place,
}

/// What a store is asked for between two batches.
pub(crate) type Chore = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

/// Room that a publication takes while it waits.
#[derive(Debug)]
pub(crate) struct Place {
    /// What waits for the same durability, and what waits of the topic.
    waiting: [Arc<AtomicUsize>; 2],
    size: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        for waiting in &self.waiting {
            waiting.fetch_sub(self.size, Ordering::Relaxed);
        }
    }
}

enum Command {
    Publish(Submission),
    /// Something that is done between two batches.
    Chore(Durability, Chore),
    /// A store has an answer.
    Rung,
    Close,
}

/// What others have of the thread.
pub(crate) struct Sequencer {
    commands: mpsc::Sender<Command>,
    /// How many bytes wait, for the disk and for memory.
    waiting: [Arc<AtomicUsize>; 2],
    readers: Semaphore,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Sequencer {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has none.
    pub fn start() -> std::io::Result<Self> {
        let (commands, queue) = mpsc::channel();
        let bell = Arc::new(Bell {
            commands: commands.clone(),
            has_rung: AtomicBool::new(false),
        });
        let thread = std::thread::Builder::new().name("topics".to_owned());
        let thread = thread.spawn(move || Thread::new(queue, bell).run())?;
        Ok(Self {
            commands,
            waiting: Default::default(),
            readers: Semaphore::new(READERS_MAX),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Room for a publication; `None` when too much waits.
    pub fn reserve(&self, log: &Log, size: usize) -> Option<Place> {
        let is_held_up = log.is_held_up();
        let max = if is_held_up { HELD_MAX } else { WAITING_MAX };
        let waiting = self.waiting.get(lane(log.durability))?;
        let place = Place {
            waiting: [waiting, &log.waiting].map(Arc::clone),
            size,
        };
        let [all, own] = [waiting, &log.waiting].map(|it| it.fetch_add(size, Ordering::Relaxed));
        let has_room = |before: usize, max: usize| before == 0 || before + size <= max;
        (has_room(all, max) && has_room(own, TOPIC_MAX)).then_some(place)
    }

    /// Hands publications over. When the thread has ended, their answer never comes: it is dropped.
    pub fn submit(&self, submission: Submission) {
        let _ = self.commands.send(Command::Publish(submission));
    }

    /// Has something done while nothing is appended.
    pub fn chore(&self, durability: Durability, chore: Chore) {
        let _ = self.commands.send(Command::Chore(durability, chore));
    }

    /// Waits for one's turn to read what was published before.
    pub async fn reading(&self) -> Option<SemaphorePermit<'_>> {
        self.readers.acquire().await.ok()
    }

    /// Lets the thread finish what it has, and end. Whoever publishes later is refused. Blocks.
    pub fn close(&self) {
        let _ = self.commands.send(Command::Close);
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(target: "topics", "the thread that orders events has failed");
        }
    }
}

impl Drop for Sequencer {
    fn drop(&mut self) {
        // It ends by itself; nobody waits for it here, which may be its own thread.
        let _ = self.commands.send(Command::Close);
    }
}

fn lane(durability: Durability) -> usize {
    match durability {
        Durability::Disk => 0,
        Durability::Memory => 1,
    }
}

/// Wakes the thread when a store has an answer.
struct Bell {
    commands: mpsc::Sender<Command>,
    has_rung: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.has_rung.swap(true, Ordering::AcqRel) {
            let _ = self.commands.send(Command::Rung);
        }
    }
}

struct Thread {
    queue: Receiver<Command>,
    release: Release,
    bell: Arc<Bell>,
    waker: Waker,
    lanes: [Lane; 2],
    is_closing: bool,
}

/// A batch, or none for a chore, and the answer of the store that is waited for.
type Flight = (Option<Batch>, Chore);

#[derive(Default)]
struct Lane {
    waiting: Queue,
    /// Those of topics that wait for a worker, each in the order in which they came.
    held: Vec<Held>,
    chores: VecDeque<Chore>,
    flight: Option<Flight>,
    refusals: Refusals<Discriminant<StoreError>>,
}

/// The publications of a topic that wait until a worker has taken its events.
struct Held {
    log: Arc<Log>,
    submissions: VecDeque<Submission>,
    /// When it has to be looked at again at the latest.
    until: Instant,
}

impl Thread {
    fn new(queue: Receiver<Command>, bell: Arc<Bell>) -> Self {
        Self {
            queue,
            release: Release::default(),
            waker: Waker::from(Arc::clone(&bell)),
            bell,
            lanes: Default::default(),
            is_closing: false,
        }
    }

    fn run(mut self) {
        while let Some(command) = self.next() {
            self.take(command);
            for _ in 0..BATCH_MAX.0 {
                match self.queue.try_recv() {
                    Ok(command) => self.take(command),
                    Err(_) => break,
                }
            }
            // Before the stores are asked: what rings from now on is another answer.
            self.bell.has_rung.store(false, Ordering::Release);
            let waker = self.waker.clone();
            let mut context = Context::from_waker(&waker);
            // Those in memory first: they wait for nothing.
            for lane in self.lanes.iter_mut().rev() {
                lane.turn(&mut context, Instant::now());
            }
            if self.is_closing && self.lanes.iter().all(Lane::is_idle) {
                return;
            }
        }
    }

    /// Waits for what is to be done, or until a worker has been waited for long enough.
    fn next(&self) -> Option<Command> {
        let held = self.lanes.iter().flat_map(|lane| &lane.held);
        let Some(until) = held.map(|held| held.until).min() else {
            return self.release.receive(&self.queue).ok();
        };
        let left = until.saturating_duration_since(Instant::now());
        self.release.look();
        match self.queue.recv_timeout(left) {
            Ok(command) => Some(command),
            Err(RecvTimeoutError::Timeout) => Some(Command::Rung),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Publish(submission) => {
                let lane = lane(submission.log.durability);
                if let Some(lane) = self.lanes.get_mut(lane) {
                    lane.waiting.push(submission);
                }
            }
            Command::Chore(durability, chore) => {
                if let Some(lane) = self.lanes.get_mut(lane(durability)) {
                    lane.chores.push_back(chore);
                }
            }
            Command::Rung => {}
            Command::Close => self.is_closing = true,
        }
    }
}

impl Lane {
    fn is_idle(&self) -> bool {
        let is_empty = self.waiting.is_empty() && self.held.is_empty();
        is_empty && self.chores.is_empty() && self.flight.is_none()
    }

    /// Goes on until a store has to be waited for or nothing is left to do.
    fn turn(&mut self, context: &mut Context<'_>, now: Instant) {
        self.release(context.waker(), now);
        loop {
            if let Some((_, answer)) = &mut self.flight {
                let Poll::Ready(result) = answer.as_mut().poll(context) else {
                    return;
                };
                match self.flight.take() {
                    Some((Some(batch), _)) => {
                        self.log_change(&batch, &result, now);
                        batch.finish(result);
                    }
                    Some((None, _)) => tell_chore(result),
                    None => {}
                }
            }
            if let Some(chore) = self.chores.pop_front() {
                self.flight = Some((None, chore));
                continue;
            }
            if self.waiting.is_empty() {
                return;
            }
            let mut batch = Batch::default();
            while let Some(submission) = self.waiting.pop() {
                let Some(submission) = self.hold(submission, context.waker(), now) else {
                    continue;
                };
                batch.stage(submission);
                if batch.size() > BATCH_MAX.1 || batch.count() >= BATCH_MAX.0 {
                    break;
                }
            }
            self.flight = batch.append();
        }
    }

    /// Logs when the store begins or ceases to refuse batches.
    fn log_change(&mut self, batch: &Batch, result: &Result<(), StoreError>, now: Instant) {
        let events = batch.events();
        match result {
            Err(error) if self.refusals.refused(discriminant(error), events, now) => {
                let topic = batch.first_topic();
                tracing::error!(
                    target: "topics", topic, events, %error,
                    "events could not be stored; more of them are counted, not logged"
                );
            }
            Err(_) => {}
            Ok(()) => {
                if let Some(refused) = self.refusals.accepted(now) {
                    tracing::info!(target: "topics", refused, "events are stored again");
                }
            }
        }
    }

    /// Puts a publication aside whose topic waits for a worker; gives back any other.
    fn hold(&mut self, submission: Submission, waker: &Waker, now: Instant) -> Option<Submission> {
        if self.held.is_empty() && !submission.log.is_held_up() {
            return Some(submission);
        }
        let same = |held: &&mut Held| Arc::ptr_eq(&held.log, &submission.log);
        if let Some(held) = self.held.iter_mut().find(same) {
            held.submissions.push_back(submission);
            return None;
        }
        let Some(until) = submission.log.held_until(now, waker) else {
            return Some(submission);
        };
        self.held.push(Held {
            log: Arc::clone(&submission.log),
            submissions: VecDeque::from([submission]),
            until,
        });
        None
    }

    /// Lets publications go on whose topics wait no more, before those that have come since.
    fn release(&mut self, waker: &Waker, now: Instant) {
        let mut at = 0;
        while let Some(held) = self.held.get_mut(at) {
            if let Some(until) = held.log.held_until(now, waker) {
                held.until = until;
                at += 1;
                continue;
            }
            let released = self.held.swap_remove(at).submissions;
            for submission in released.into_iter().rev() {
                self.waiting.push_front(submission);
            }
        }
    }
}

fn tell_chore(result: Result<(), StoreError>) {
    if let Err(error) = result {
        tracing::warn!(target: "topics", %error, "old events are not removed");
    }
}

#[cfg(test)]
mod tests;
