//! A line of tasks of one worker that wait for something, first come, first served.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A line of tasks. Whoever frees something calls [`Queue::wake_one`].
#[derive(Debug, Default)]
pub struct Queue {
    waiters: RefCell<VecDeque<Rc<Waiter>>>,
}

#[derive(Debug, Default)]
struct Waiter {
    called: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// A place in the line. Dropping it leaves the line; a call that was not used goes to the next.
#[derive(Debug)]
pub struct Ticket {
    queue: Rc<Queue>,
    waiter: Rc<Waiter>,
    used: bool,
}

impl Queue {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiters.borrow().len()
    }

    /// Whether nobody waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiters.borrow().is_empty()
    }

    /// Joins the line at its end.
    pub fn join(self: &Rc<Self>) -> Ticket {
        let waiter = Rc::new(Waiter::default());
        self.waiters.borrow_mut().push_back(Rc::clone(&waiter));
        Ticket {
            queue: Rc::clone(self),
            waiter,
            used: false,
        }
    }

    /// Calls the first in the line.
    #[inline]
    pub fn wake_one(&self) {
        let first = self.waiters.borrow_mut().pop_front();
        if let Some(first) = first {
            first.called.set(true);
            if let Some(waker) = first.waker.borrow_mut().take() {
                waker.wake();
            }
        }
    }

    /// Calls everybody.
    pub fn wake_all(&self) {
        while !self.is_empty() {
            self.wake_one();
        }
    }
}

impl Ticket {
    /// Ready when it is this one's turn.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.waiter.called.get() {
            self.used = true;
            return Poll::Ready(());
        }
        *self.waiter.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.waiter.called.get() {
            if !self.used {
                self.queue.wake_one();
            }
            return;
        }
        let mut waiters = self.queue.waiters.borrow_mut();
        waiters.retain(|other| !Rc::ptr_eq(other, &self.waiter));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(ticket: &mut Ticket) -> bool {
        ticket
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn the_first_to_come_is_the_first_to_be_called() {
        let queue = Rc::new(Queue::default());
        let (mut first, mut second) = (queue.join(), queue.join());
        assert!(!poll(&mut first) && !poll(&mut second));
        queue.wake_one();
        assert!(poll(&mut first) && !poll(&mut second));
        assert_eq!(queue.len(), 1);
        queue.wake_one();
        assert!(poll(&mut second));
    }

    #[test]
    fn whoever_leaves_passes_an_unused_call_on() {
        let queue = Rc::new(Queue::default());
        let (first, second, mut third) = (queue.join(), queue.join(), queue.join());
        drop(second);
        queue.wake_one();
        drop(first);
        assert!(poll(&mut third));
        assert!(queue.is_empty());
    }
}
