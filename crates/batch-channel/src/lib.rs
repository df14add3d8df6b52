//! A channel of many senders, for the threads that write to the disk.
//!
//! It differs from the channel of `std` in when it wakes its receiver. A send on a worker leaves
//! that for the end of the worker's turn: a task does it, behind all that are ready. So a thread is
//! woken once for all that a turn has for it, and finds all of it at once; otherwise it is woken
//! for each command, takes the processor from the worker where they share one, and sleeps again.
//! And it is woken when the lock is free: that of `std` still has its lock then, so that its
//! receiver sleeps twice. (Measured for USSD menus on one processor: a sixth of all processor time;
//! decision 0064.)
//!
//! Threads outside a tokio runtime wake the receiver at once. So does a worker if another worker
//! has scheduled the wakeup, since that worker's turn may take longer.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::{self, Debug, Formatter};
use std::iter;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

/// Makes a channel: any number of senders, and one receiver.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel {
        state: Mutex::new(State {
            commands: VecDeque::new(),
            receiver: ReceiverState::Awake,
        }),
        wake: Condvar::new(),
        senders: AtomicUsize::new(1),
    });
    let receiver = Receiver {
        channel: Arc::clone(&channel),
        taken: RefCell::default(),
    };
    (Sender(channel), receiver)
}

struct Channel<T> {
    state: Mutex<State<T>>,
    wake: Condvar,
    senders: AtomicUsize,
}

struct State<T> {
    commands: VecDeque<T>,
    receiver: ReceiverState,
}

/// Whether the receiver has to be woken, and by whom.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReceiverState {
    /// It is running, and checks the queue before it sleeps: no wakeup is needed.
    Awake,
    /// It sleeps on an empty queue.
    Asleep,
    /// It sleeps, and the queue has commands: this worker wakes it at the end of its turn.
    Called(ThreadId),
    /// It was dropped: commands are refused.
    Gone,
}

/// What the sender of a command has to do so that the receiver gets it.
#[derive(Debug, PartialEq, Eq)]
enum Wakeup {
    /// Nothing: the receiver is running, or its wakeup is scheduled.
    None,
    /// Wake it at once.
    Immediate,
    /// Schedule a wakeup for the end of the turn.
    EndOfTurn,
}

impl ReceiverState {
    /// Records that a thread has put a command into the queue; `has_turns` if it is a worker.
    fn command_queued(&mut self, thread: ThreadId, has_turns: bool) -> Wakeup {
        match *self {
            Self::Awake | Self::Gone => Wakeup::None,
            Self::Called(other) if has_turns && other == thread => Wakeup::None,
            Self::Asleep if has_turns => {
                *self = Self::Called(thread);
                Wakeup::EndOfTurn
            }
            Self::Asleep | Self::Called(_) => {
                *self = Self::Awake;
                Wakeup::Immediate
            }
        }
    }

    /// Marks the receiver as running; returns whether it was asleep.
    fn mark_awake(&mut self) -> bool {
        let sleeps = matches!(self, Self::Asleep | Self::Called(_));
        if sleeps {
            *self = Self::Awake;
        }
        sleeps
    }
}

impl<T> Channel<T> {
    /// Nobody panics while it has the lock.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the receiver if it sleeps.
    fn wake_receiver(&self) {
        let was_asleep = self.state().receiver.mark_awake();
        // The lock is released before the receiver is notified, which needs it.
        if was_asleep {
            self.wake.notify_one();
        }
    }
}

/// Where commands are put in. Copies are the same one.
pub struct Sender<T>(Arc<Channel<T>>);

impl<T: Send + 'static> Sender<T> {
    /// Puts a command behind all others. It never waits.
    ///
    /// # Errors
    /// When the receiver is gone: the command comes back.
    pub fn send(&self, command: T) -> Result<(), SendError<T>> {
        let mut state = self.0.state();
        if state.receiver == ReceiverState::Gone {
            drop(state);
            return Err(SendError(command));
        }
        state.commands.push_back(command);
        if state.receiver == ReceiverState::Awake {
            return Ok(());
        }
        let runtime = Handle::try_current().ok();
        let wakeup = state
            .receiver
            .command_queued(thread::current().id(), runtime.is_some());
        drop(state);
        match (wakeup, runtime) {
            (Wakeup::None, _) => {}
            (Wakeup::EndOfTurn, Some(runtime)) => {
                let call = WakeOnDrop(Arc::clone(&self.0));
                // A task that is made stands behind those that are ready.
                runtime.spawn(async move { drop(call) });
            }
            (Wakeup::Immediate | Wakeup::EndOfTurn, _) => self.0.wake.notify_one(),
        }
        Ok(())
    }
}

/// Wakes the receiver when it is dropped, also if the runtime ends before its task has run.
struct WakeOnDrop<T>(Arc<Channel<T>>);

impl<T> Drop for WakeOnDrop<T> {
    fn drop(&mut self) {
        self.0.wake_receiver();
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // What this thread has sent is seen by whoever sees that it sends no more.
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.wake_receiver();
        }
    }
}

impl<T> Debug for Sender<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// Where the thread takes commands from, in the order in which they came.
pub struct Receiver<T> {
    channel: Arc<Channel<T>>,
    /// What it has taken together.
    taken: RefCell<VecDeque<T>>,
}

impl<T> Receiver<T> {
    /// The next command; waits for it no longer than this.
    ///
    /// # Errors
    /// When none has come, and when none can come any more.
    pub fn recv_timeout(&self, wait: Duration) -> Result<T, RecvTimeoutError> {
        // A time beyond what the clock can tell is no bound.
        self.next(Instant::now().checked_add(wait))
    }

    /// The next command; waits for it as long as it takes.
    ///
    /// # Errors
    /// When none can come any more.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.next(None).map_err(|_| RecvError)
    }

    /// The next command, when there is one.
    pub fn try_recv(&self) -> Option<T> {
        let next = self.taken.borrow_mut().pop_front();
        next.or_else(|| self.take(&mut self.channel.state()))
    }

    /// The commands that are there.
    pub fn try_iter(&self) -> impl Iterator<Item = T> {
        iter::from_fn(|| self.try_recv())
    }

    fn next(&self, until: Option<Instant>) -> Result<T, RecvTimeoutError> {
        if let Some(command) = self.taken.borrow_mut().pop_front() {
            return Ok(command);
        }
        let mut state = self.channel.state();
        loop {
            if let Some(command) = self.take(&mut state) {
                return Ok(command);
            }
            if self.channel.senders.load(Ordering::Acquire) == 0 {
                return Err(RecvTimeoutError::Disconnected);
            }
            let left = until.map(|it| it.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(RecvTimeoutError::Timeout);
            }
            state = self.sleep(state, left);
        }
    }

    /// The next command that is there. All of them leave the channel together.
    fn take(&self, state: &mut State<T>) -> Option<T> {
        let mut taken = self.taken.borrow_mut();
        if taken.is_empty() {
            mem::swap(&mut *taken, &mut state.commands);
        }
        taken.pop_front()
    }

    /// Sleeps until it is woken, for this long at most.
    fn sleep<'a>(
        &self,
        mut state: MutexGuard<'a, State<T>>,
        left: Option<Duration>,
    ) -> MutexGuard<'a, State<T>> {
        let wake = &self.channel.wake;
        state.receiver = ReceiverState::Asleep;
        let mut state = match left {
            Some(left) => {
                let woken = wake.wait_timeout(state, left);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
            None => wake.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        // It may have woken by itself.
        state.receiver.mark_awake();
        state
    }
}

impl<T> allocator::Queue<T> for Receiver<T> {
    fn next(&self, wait: Option<Duration>) -> Result<T, RecvTimeoutError> {
        let until = wait.and_then(|wait| Instant::now().checked_add(wait));
        Receiver::next(self, until)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.channel.state();
        state.receiver = ReceiverState::Gone;
        let left = mem::take(&mut state.commands);
        drop(state);
        // Whoever waits for an answer learns that there is none. Commands may have senders.
        drop(left);
    }
}

impl<T> Debug for Receiver<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
