//! The thread that gives every event its place: it takes whatever waits as one batch, has the store
//! keep it, and then shows it to everybody and answers. Topics on the disk and topics in memory
//! have a lane each, so that a slow disk holds up only those that need it.

mod batch;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;

use message::Fault;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use self::batch::Batch;
use crate::log::Log;
use crate::prepare::Item;
use crate::settings::Durability;
use crate::store::StoreError;
use crate::topic::Receipt;

/// The most bytes of publications that wait, for each durability.
const WAITING_MAX: usize = 64 << 20;
/// The most publications, and about how many bytes, that are one batch.
const BATCH_MAX: (usize, usize) = (4096, 8 << 20);
/// How many may read what was published before at the same time.
const READERS_MAX: usize = 2;

/// Publications that belong together.
pub(crate) struct Submission {
    pub log: Arc<Log>,
    pub items: Vec<Item>,
    pub answer: oneshot::Sender<Result<Vec<Receipt>, Fault>>,
    pub place: Place,
}

/// What a store is asked for between two batches.
pub(crate) type Chore = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

/// Room that a publication takes while it waits.
#[derive(Debug)]
pub(crate) struct Place {
    waiting: Arc<AtomicUsize>,
    size: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.size, Ordering::Relaxed);
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
    pub fn reserve(&self, durability: Durability, size: usize) -> Option<Place> {
        let waiting = self.waiting.get(lane(durability))?;
        let before = waiting.fetch_add(size, Ordering::Relaxed);
        let place = Place {
            waiting: Arc::clone(waiting),
            size,
        };
        (before == 0 || before + size <= WAITING_MAX).then_some(place)
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
    bell: Arc<Bell>,
    waker: Waker,
    lanes: [Lane; 2],
    is_closing: bool,
}

/// A batch, or none for a chore, and the answer of the store that is waited for.
type Flight = (Option<Batch>, Chore);

#[derive(Default)]
struct Lane {
    waiting: VecDeque<Submission>,
    chores: VecDeque<Chore>,
    flight: Option<Flight>,
}

impl Thread {
    fn new(queue: Receiver<Command>, bell: Arc<Bell>) -> Self {
        Self {
            queue,
            waker: Waker::from(Arc::clone(&bell)),
            bell,
            lanes: Default::default(),
            is_closing: false,
        }
    }

    fn run(mut self) {
        while let Ok(command) = self.queue.recv() {
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
                lane.turn(&mut context);
            }
            if self.is_closing && self.lanes.iter().all(Lane::is_idle) {
                return;
            }
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Publish(submission) => {
                let lane = lane(submission.log.durability);
                if let Some(lane) = self.lanes.get_mut(lane) {
                    lane.waiting.push_back(submission);
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
        self.waiting.is_empty() && self.chores.is_empty() && self.flight.is_none()
    }

    /// Goes on until a store has to be waited for or nothing is left to do.
    fn turn(&mut self, context: &mut Context<'_>) {
        loop {
            if let Some((_, answer)) = &mut self.flight {
                let Poll::Ready(result) = answer.as_mut().poll(context) else {
                    return;
                };
                match self.flight.take() {
                    Some((Some(batch), _)) => batch.finish(result),
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
            while let Some(submission) = self.waiting.pop_front() {
                batch.stage(submission);
                if batch.size() > BATCH_MAX.1 || batch.count() >= BATCH_MAX.0 {
                    break;
                }
            }
            self.flight = batch.append();
        }
    }
}

fn tell_chore(result: Result<(), StoreError>) {
    if let Err(error) = result {
        tracing::warn!(target: "topics", %error, "old events are not removed");
    }
}
