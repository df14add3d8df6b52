//! Large values are dropped beside the workers: half a million fields take tens of milliseconds.
//!
//! Which values are large is known where they are made: by a body of more than
//! [`AT_ONCE`](super::AT_ONCE) bytes, or by work that exceeded its time slice. Others cost nothing.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, LazyLock};

use expr::Value;

use super::{STACK_LEAST, step_back};

/// How many may wait to be dropped. Each has memory that nobody counts any more, so whoever makes
/// more than can be dropped drops them itself, which slows it down.
pub(super) const WAITING_MAX: usize = 16;

/// Something that is only to be dropped.
type Garbage = Box<dyn Send>;

/// The large values of a message. While they are here, whoever drops a copy of one, or of a part of
/// it, only counts a reference down. As the last of all references they are dropped elsewhere, so
/// this is the last field of what holds them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LargeValues(Vec<Value>);

impl LargeValues {
    /// Takes a copy of a value that is large.
    pub fn hold(&mut self, value: &Value) {
        // Others are one piece of memory.
        if matches!(value, Value::Arr(_) | Value::Obj(_)) {
            self.0.push(value.clone());
        }
    }

    /// Takes a copy of what an expression has made: it may be as large as what it was made of.
    #[inline]
    pub fn hold_derived(&mut self, value: &Value) {
        if !self.0.is_empty() {
            self.hold(value);
        }
    }

    /// Has those dropped that nobody else holds.
    #[inline]
    pub fn release_unused(&mut self) {
        if !self.0.is_empty() {
            self.release();
        }
    }

    #[cold]
    fn release(&mut self) {
        let unused: Vec<Value> = self.0.extract_if(.., |it| is_unused(it)).collect();
        if !unused.is_empty() {
            drop_beside(unused);
        }
    }
}

impl Drop for LargeValues {
    fn drop(&mut self) {
        // Those that a copy of the message holds, too, are dropped with the copy.
        self.release_unused();
    }
}

/// Whether this is the only reference to a value.
fn is_unused(value: &Value) -> bool {
    match value {
        Value::Arr(items) => Arc::strong_count(items) == 1,
        Value::Obj(members) => Arc::strong_count(members) == 1,
        _ => true,
    }
}

/// Drops something on a thread that does nothing else; here, when [`WAITING_MAX`] wait already.
pub(super) fn drop_beside(garbage: impl Send + 'static) {
    static DROPPER: LazyLock<Option<SyncSender<Garbage>>> = LazyLock::new(|| {
        let (sender, receiver) = sync_channel::<Garbage>(WAITING_MAX);
        let thread = std::thread::Builder::new()
            .name("drop".to_owned())
            // Values nest.
            .stack_size(STACK_LEAST);
        let started = thread.spawn(move || {
            step_back();
            receiver.into_iter().for_each(drop);
        });
        started.ok().map(|_| sender)
    });
    // Without a thread, or if it has ended, it is dropped here, too.
    if let Some(dropper) = &*DROPPER {
        match dropper.try_send(Box::new(garbage)) {
            Ok(()) => {}
            Err(TrySendError::Full(garbage) | TrySendError::Disconnected(garbage)) => drop(garbage),
        }
    }
}
