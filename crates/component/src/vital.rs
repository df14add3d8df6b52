//! Tasks that a worker cannot do without, also those of connectors. A panic ends only the task in
//! which it happens: messages would wait for ever for a connection that nobody looks after. The
//! worker ends with an error instead, and whoever supervises the process starts it again.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

type Report = Rc<dyn Fn(&'static str)>;

thread_local! {
    /// A worker is a thread.
    static REPORT: RefCell<Option<Report>> = const { RefCell::new(None) };
}

/// Has the names of vital tasks of this thread reported that panic from now on.
pub fn on_loss(report: impl Fn(&'static str) + 'static) {
    REPORT.set(Some(Rc::new(report)));
}

/// Runs a task that this thread's worker cannot do without.
pub async fn vital(name: &'static str, task: impl Future<Output = ()>) {
    let _guard = Guard(name);
    task.await;
}

struct Guard(&'static str);

impl Drop for Guard {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let report = REPORT.with_borrow(Option::clone);
        if let Some(report) = report {
            report(self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn run(task: impl Future<Output = ()>) {
        let mut task = pin!(task);
        let mut context = Context::from_waker(Waker::noop());
        let poll = || assert!(task.as_mut().poll(&mut context).is_ready());
        let _ = catch_unwind(AssertUnwindSafe(poll));
    }

    #[test]
    fn only_a_panic_is_reported() {
        let lost = Rc::new(RefCell::new(Vec::new()));
        let reported = Rc::clone(&lost);
        on_loss(move |name| reported.borrow_mut().push(name));
        run(vital("ends", async {}));
        drop(vital("never runs", async {}));
        run(vital("panics", async { panic!("on purpose") }));
        assert_eq!(*lost.borrow(), ["panics"]);
    }
}
