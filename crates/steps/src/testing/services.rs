//! A worker for tests. Its clock stands still while anything can go on, and then goes to the next
//! time that somebody waits for; futures are only polled when they have been woken.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use component::forward::ForwardPlan;
use component::handler::{Call, Callee, LocalFuture, Services, Work};
use component::resources::Resources;
use message::{Fault, Kind, Origin, Reply, Request};

/// What another system does with a request: after this time, this.
pub(crate) type Answer = (Duration, Result<Reply, Fault>);

/// Decides on a reply by the request.
pub(crate) type Script = Box<dyn Fn(&Request) -> Answer>;

/// A worker that answers every call and keeps what it was asked.
#[derive(Default)]
pub(crate) struct FakeServices {
    pub resources: Resources,
    /// The reply to every call; none is a connection that fails.
    pub reply: Option<Reply>,
    /// Decides on the reply by the request, when it is there.
    pub script: Option<Script>,
    /// Host, body of each call.
    pub calls: RefCell<Vec<(String, Vec<u8>)>>,
    /// How the requests of these calls get where they go.
    pub plans: RefCell<Vec<Arc<ForwardPlan>>>,
    /// The flows that can be called.
    pub flows: Vec<(&'static str, Arc<dyn Callee>)>,
    /// The times that somebody waits for.
    pub clock: Rc<Clock>,
    /// Work that has not begun.
    pub works: RefCell<Vec<Work>>,
    /// When the future of the last [`FakeServices::run_to_end`] was done.
    pub done_at: Cell<Duration>,
    /// How much work was done beside the worker, and the rounds of its expressions.
    pub beside: Cell<(usize, u64)>,
    /// How long what is done beside the worker takes.
    pub beside_time: Cell<Duration>,
    /// The most rounds of expressions that a flow has done on the worker in one poll.
    pub most_rounds: Cell<u64>,
}

/// A clock that goes from one time that somebody waits for to the next.
pub(crate) struct Clock {
    start: Instant,
    passed: Cell<Duration>,
    timers: RefCell<Vec<(u64, Duration, Option<Waker>)>>,
    timers_made: Cell<u64>,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            passed: Cell::default(),
            timers: RefCell::default(),
            timers_made: Cell::default(),
        }
    }
}

/// Takes a timer away that nobody waits for any more.
struct Timer {
    clock: Rc<Clock>,
    number: u64,
}

impl Drop for Timer {
    fn drop(&mut self) {
        let mut timers = self.clock.timers.borrow_mut();
        timers.retain(|(number, ..)| *number != self.number);
    }
}

impl Clock {
    fn sleep(self: &Rc<Self>, time: Duration) -> LocalFuture<'static, ()> {
        let (number, at) = (self.timers_made.get(), self.passed.get() + time);
        self.timers_made.set(number + 1);
        self.timers.borrow_mut().push((number, at, None));
        let clock = Rc::clone(self);
        let timer = Timer { clock, number };
        Box::pin(poll_fn(move |context| {
            if timer.clock.passed.get() >= at {
                return Poll::Ready(());
            }
            let mut timers = timer.clock.timers.borrow_mut();
            for (_, _, waker) in timers.iter_mut().filter(|it| it.0 == timer.number) {
                *waker = Some(context.waker().clone());
            }
            Poll::Pending
        }))
    }

    /// How many wait for a time.
    pub fn timers(&self) -> usize {
        self.timers.borrow().len()
    }

    /// Goes to the next time that somebody waits for.
    pub fn advance(&self) {
        let passed = self.passed.get();
        let mut timers = self.timers.borrow_mut();
        let next = timers.iter().map(|(_, at, _)| *at);
        let next = next.filter(|at| *at > passed).min();
        let next = next.expect("somebody waits for what never comes");
        self.passed.set(next);
        let due = timers.iter_mut().filter(|(_, at, _)| *at <= next);
        let wakers: Vec<Waker> = due.filter_map(|(_, _, waker)| waker.take()).collect();
        drop(timers);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Whether a task has been woken.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A future with its waker.
struct Task<F> {
    future: Option<F>,
    woken: Arc<Woken>,
}

impl<F: Future + Unpin> Task<F> {
    fn new(future: F) -> Self {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let future = Some(future);
        Self { future, woken }
    }

    /// Polls it when it has been woken. The future is dropped when it is done.
    fn poll(&mut self) -> Option<F::Output> {
        if !self.woken.0.swap(false, Ordering::Relaxed) {
            return None;
        }
        let waker = Waker::from(Arc::clone(&self.woken));
        let future = Pin::new(self.future.as_mut()?);
        match future.poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => {
                self.future = None;
                Some(output)
            }
            Poll::Pending => None,
        }
    }

    fn is_woken(&self) -> bool {
        self.future.is_some() && self.woken.0.load(Ordering::Relaxed)
    }
}

impl FakeServices {
    /// One whose other systems do what this says.
    pub fn scripted(script: impl Fn(&Request) -> Answer + 'static) -> Self {
        Self {
            script: Some(Box::new(script)),
            ..Self::default()
        }
    }

    /// One whose other system takes this long for each call and answers with its number, or fails
    /// in the calls of these numbers.
    pub fn counting(time: Duration, fails: impl Fn(u32) -> bool + 'static) -> Self {
        let count = Cell::new(0);
        Self::scripted(move |_| {
            count.set(count.get() + 1);
            if fails(count.get()) {
                let fault = Fault::new(Kind::Connection, Origin::Upstream, "down");
                return (time, Err(fault));
            }
            let body = count.get().to_string().into_bytes();
            (time, Ok(Reply::with_content(200, "application/json", body)))
        })
    }

    /// Lets time pass.
    pub fn pass(&self, time: Duration) {
        self.run_to_end(self.sleep(time));
    }

    /// Runs a future, and everything that it spawns, to the end.
    pub fn run_to_end<T>(&self, future: impl Future<Output = T>) -> T {
        let mut main = Task::new(Box::pin(future));
        let mut works: Vec<Task<LocalFuture<'_, ()>>> = Vec::new();
        let mut output = None;
        loop {
            let before = self.rounds();
            let polled = main.poll();
            let most = self.most_rounds.get().max(self.rounds() - before);
            self.most_rounds.set(most);
            if let Some(value) = polled {
                output = Some(value);
                self.done_at.set(self.clock.passed.get());
            }
            for work in self.works.take() {
                works.push(Task::new(work(self)));
            }
            works.iter_mut().for_each(|work| {
                work.poll();
            });
            works.retain(|work| work.future.is_some());
            let is_idle = works.is_empty() && self.works.borrow().is_empty();
            match output.take_if(|_| is_idle) {
                Some(output) => return output,
                None if main.is_woken() || works.iter().any(Task::is_woken) => {}
                None if !self.works.borrow().is_empty() => {}
                None => self.clock.advance(),
            }
        }
    }

    /// The rounds of expressions that this thread has done as a worker.
    fn rounds(&self) -> u64 {
        expr::jq::rounds() - self.beside.get().1
    }

    /// The bodies that were sent, as texts, in their order.
    pub fn sent(&self) -> Vec<String> {
        let calls = self.calls.borrow();
        let texts = calls.iter().map(|(_, body)| String::from_utf8_lossy(body));
        texts.map(std::borrow::Cow::into_owned).collect()
    }

    /// How long the clock has gone on until the future was done.
    pub fn done_after(&self) -> u128 {
        self.done_at.get().as_millis()
    }

    /// What the other system answers to a request.
    pub fn answer(&self, request: &Request) -> Answer {
        if let Some(script) = &self.script {
            return script(request);
        }
        let detail = "the upstream cannot be reached";
        let failed = || Fault::new(Kind::Connection, Origin::Upstream, detail);
        (Duration::ZERO, self.reply.clone().ok_or_else(failed))
    }
}

impl Services for FakeServices {
    fn call<'a>(&'a self, call: Call<'a>) -> LocalFuture<'a, Result<Reply, Fault>> {
        Box::pin(async move {
            let sent = call.request.body.as_bytes().to_vec();
            let asked = (call.plan.upstream.authority(), sent);
            self.calls.borrow_mut().push(asked);
            self.plans.borrow_mut().push(Arc::clone(call.plan));
            let (time, answer) = self.answer(call.request);
            if !time.is_zero() {
                self.sleep(time).await;
            }
            answer
        })
    }

    fn sleep(&self, time: Duration) -> LocalFuture<'static, ()> {
        self.clock.sleep(time)
    }

    fn now(&self) -> Instant {
        self.clock.start + self.clock.passed.get()
    }

    fn wall(&self) -> Duration {
        self.clock.passed.get()
    }

    fn random(&self) -> f64 {
        0.5
    }

    fn flow(&self, name: &str) -> Option<Arc<dyn Callee>> {
        let found = self.flows.iter().find(|(known, _)| *known == name);
        found.map(|(_, flow)| Arc::clone(flow))
    }

    fn spawn(&self, work: Work) {
        self.works.borrow_mut().push(work);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> LocalFuture<'static, ()> {
        let before = expr::jq::rounds();
        work();
        let rounds = expr::jq::rounds() - before;
        let (count, all) = self.beside.get();
        self.beside.set((count + 1, all + rounds));
        match self.beside_time.get() {
            Duration::ZERO => Box::pin(async {}),
            time => self.sleep(time),
        }
    }

    fn resources(&self) -> &Resources {
        &self.resources
    }
}
