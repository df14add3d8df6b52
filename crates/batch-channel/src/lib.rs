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
//! A thread that is not a worker wakes the receiver at once, and so does a worker that finds
//! another one about to do it: the turn of that one may take longer.

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
            receiver: Awareness::Awake,
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
    receiver: Awareness,
}

/// What the receiver knows of the commands that wait for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awareness {
    /// It will look for commands without being woken.
    Awake,
    /// It sleeps, and there is nothing for it.
    Asleep,
    /// It sleeps, and this thread wakes it at the end of its turn.
    Called(ThreadId),
    /// It takes nothing any more.
    Gone,
}

/// Who has to wake the receiver.
#[derive(Debug, PartialEq, Eq)]
enum Duty {
    /// Nobody, or somebody else.
    None,
    /// This thread, now.
    Now,
    /// This thread, at the end of its turn.
    EndOfTurn,
}

impl Awareness {
    /// Notes a command of this thread, which is a worker where its turn has an end.
    fn note(&mut self, thread: ThreadId, has_turns: bool) -> Duty {
        match *self {
            Self::Awake | Self::Gone => Duty::None,
            Self::Called(other) if has_turns && other == thread => Duty::None,
            Self::Asleep if has_turns => {
                *self = Self::Called(thread);
                Duty::EndOfTurn
            }
            Self::Asleep | Self::Called(_) => {
                *self = Self::Awake;
                Duty::Now
            }
        }
    }

    /// Whether the receiver sleeps: it does not any more.
    fn rouse(&mut self) -> bool {
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

    /// Wakes the receiver where it sleeps.
    fn rouse(&self) {
        let sleeps = self.state().receiver.rouse();
        // The lock is free by now.
        if sleeps {
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
        if state.receiver == Awareness::Gone {
            drop(state);
            return Err(SendError(command));
        }
        state.commands.push_back(command);
        if state.receiver == Awareness::Awake {
            return Ok(());
        }
        let runtime = Handle::try_current().ok();
        let duty = state
            .receiver
            .note(thread::current().id(), runtime.is_some());
        drop(state);
        match (duty, runtime) {
            (Duty::None, _) => {}
            (Duty::EndOfTurn, Some(runtime)) => {
                let call = Call(Arc::clone(&self.0));
                // A task that is made stands behind those that are ready.
                runtime.spawn(async move { drop(call) });
            }
            (Duty::Now | Duty::EndOfTurn, _) => self.0.wake.notify_one(),
        }
        Ok(())
    }
}

/// Wakes the receiver at its end, also where the task that has it is never run.
struct Call<T>(Arc<Channel<T>>);

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        self.0.rouse();
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
            self.0.rouse();
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
        state.receiver = Awareness::Asleep;
        let mut state = match left {
            Some(left) => {
                let woken = wake.wait_timeout(state, left);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
            None => wake.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        // It may have woken by itself.
        state.receiver.rouse();
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
        state.receiver = Awareness::Gone;
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
