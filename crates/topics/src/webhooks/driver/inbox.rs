//! What tasks tell the driver that has started them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Waker};

use component::handler::Services;

use super::{Page, Report, Viewer};
use crate::webhooks::machine::Outcome;
use crate::webhooks::reports::ReportEvent;

/// What a task tells.
pub(super) enum Message {
    /// What an action of an endpoint's machine has come to.
    Finished(usize, u64, Report),
    /// What has been read for an endpoint.
    Paged(usize, Page),
    /// What has been read for a view.
    Extended(usize, Option<Viewer>, Page),
    /// Records of these versions have been written.
    Noted(Vec<(usize, u64)>, Result<(), String>),
    /// An event about an endpoint has been published, which says that it is disabled since then or
    /// something else; the event when it has not.
    Reported(usize, Option<u64>, Option<ReportEvent>),
}

impl Message {
    /// An action has not been done.
    pub fn aborted(at: usize, number: u64) -> Self {
        Self::Finished(at, number, Outcome::Aborted.into())
    }
}

/// Messages of tasks.
#[derive(Default)]
pub(super) struct Inbox {
    messages: RefCell<VecDeque<Message>>,
    waker: RefCell<Option<Waker>>,
}

impl Inbox {
    pub fn take(&self) -> Option<Message> {
        self.messages.borrow_mut().pop_front()
    }

    /// Whether there is a message. Otherwise the next one wakes the task.
    pub fn poll(&self, context: &mut Context<'_>) -> bool {
        if !self.messages.borrow().is_empty() {
            return true;
        }
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(context.waker()),
            None => *waker = Some(context.waker().clone()),
        }
        false
    }

    fn put(&self, message: Message) {
        self.messages.borrow_mut().push_back(message);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Starts a task that ends with a message. `fallback` comes when it is dropped before.
    pub fn spawn(
        self: &Rc<Self>,
        services: &dyn Services,
        fallback: Message,
        task: impl AsyncFnOnce(&dyn Services) -> Message + 'static,
    ) {
        let mut answer = Answer {
            inbox: Rc::clone(self),
            message: Some(fallback),
        };
        services.spawn(Box::new(move |services| {
            // The answer is not moved into a local: an async block has room for captures and for
            // locals, and the task of a request would exceed 1 KiB, above which the allocator is
            // slower.
            Box::pin(async move { answer.replace(task(services).await) })
        }));
    }
}

/// The message of a task, which is put when this is dropped.
struct Answer {
    inbox: Rc<Inbox>,
    message: Option<Message>,
}

impl Answer {
    fn replace(&mut self, message: Message) {
        self.message = Some(message);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            self.inbox.put(message);
        }
    }
}
