//! For tests: services with a clock that stands still until a test moves it.

use std::cell::Cell;
use std::future::poll_fn;
#[cfg(test)]
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
#[cfg(test)]
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use config::{Report, Spanned};
use message::{Fault, Reply, Request};

use crate::handler::{Call, Callee, LocalFuture, Services, Work};
use crate::intake::DeadLetterTarget;
use crate::resources::Resources;
use crate::state::States;

/// Services with a clock of their own; nothing else is there.
pub struct FakeServices {
    start: Instant,
    passed: Rc<Cell<Duration>>,
    resources: Resources,
}

impl Default for FakeServices {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            passed: Rc::default(),
            resources: Resources::default(),
        }
    }
}

impl FakeServices {
    /// Moves the clock.
    pub fn pass(&self, time: Duration) {
        self.passed.set(self.passed.get() + time);
    }
}

impl Services for FakeServices {
    fn call<'a>(&'a self, _: Call<'a>) -> LocalFuture<'a, Result<Reply, Fault>> {
        Box::pin(async { Ok(Reply::new(200)) })
    }

    fn sleep(&self, time: Duration) -> LocalFuture<'static, ()> {
        let (passed, until) = (Rc::clone(&self.passed), self.passed.get() + time);
        Box::pin(poll_fn(move |_| match passed.get() >= until {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }))
    }

    fn now(&self) -> Instant {
        self.start + self.passed.get()
    }

    fn wall(&self) -> Duration {
        self.passed.get()
    }

    fn random(&self) -> f64 {
        0.0
    }

    fn flow(&self, _: &str) -> Option<Arc<dyn Callee>> {
        None
    }

    fn spawn(&self, _: Work) {}

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> LocalFuture<'static, ()> {
        work();
        Box::pin(async {})
    }

    fn resources(&self) -> &Resources {
        &self.resources
    }
}

/// Finds a store for dead letters that keeps none, for files that are loaded and not run.
pub fn no_dead_letters(
    _: &Spanned<String>,
    _: (&States, &mut Report),
) -> Option<Arc<dyn DeadLetterTarget>> {
    struct Nowhere;
    impl DeadLetterTarget for Nowhere {
        fn name(&self) -> &str {
            "nowhere"
        }

        fn keep<'a>(
            &'a self,
            _: Request,
            _: &'a dyn Services,
        ) -> LocalFuture<'a, Result<(), Fault>> {
            Box::pin(async { Err(Fault::of_status(503)) })
        }
    }
    Some(Arc::new(Nowhere))
}

/// What a future gives when it is polled once.
#[cfg(test)]
pub(crate) fn poll_once<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Option<F::Output> {
    let mut context = Context::from_waker(Waker::noop());
    match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Reads a value of a file; its problems, as code and message.
#[cfg(test)]
pub(crate) fn read_value<T>(
    yaml: &str,
    read: impl FnOnce(&config::Node, &mut Report) -> Option<T>,
) -> Result<T, Vec<String>> {
    let (mut sources, mut report) = (config::Sources::default(), Report::default());
    let text = format!("key: {yaml}\n");
    let source = sources.add("f", text.as_bytes(), &mut report).unwrap();
    let documents = config::parse(&sources, source, &mut report);
    let read = read(documents[0].get("key").unwrap(), &mut report);
    let problems = report.diagnostics().iter();
    let problems = problems.map(|it| format!("{} {}", it.code(), it.message()));
    read.ok_or_else(|| problems.collect())
}
