//! What the tests of sources share: services with a clock that a test moves, a flow that does what
//! a test says, and a source that runs one poll at a time.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use component::connection::Connections;
use component::definition::Surroundings;
use component::evaluation::Evaluation;
use component::handler::{Call, Callee, LocalFuture, Services, Work};
use component::resources::Resources;
use component::source::{Source, SourceContext, SourceDefinition, Started};
use component::state::States;
use config::{Report, Sources};
use jiff::Timestamp;
use message::{Fault, Reply, Request};

/// Builds the source from the YAML under its key, or tells every problem as `CODE line:column` and
/// its message.
pub(crate) fn build(
    definition: &SourceDefinition,
    yaml: &str,
    states: &States,
) -> Result<Arc<dyn Source>, Vec<String>> {
    let (mut sources, mut report) = (Sources::default(), Report::default());
    let file = sources
        .add("test.yaml", yaml.as_bytes(), &mut report)
        .unwrap();
    let nodes = config::parse(&sources, file, &mut report);
    let flow: Arc<str> = "test".into();
    let surroundings = Surroundings {
        files: &|_, name| Err(format!("{name} is not there")),
        folder: &|_| std::path::PathBuf::new(),
        states,
        dead_letters: crate::store::dead_letters,
    };
    let mut context = SourceContext {
        report: &mut report,
        flow: &flow,
        connections: &Connections::default(),
        read_http: &|_, _| None,
        evaluation: &Evaluation::default(),
        surroundings: &surroundings,
    };
    let source = (definition.build)(&nodes[0], &mut context);
    let problems: Vec<String> = report
        .diagnostics()
        .iter()
        .map(|problem| {
            let start = problem.span().map_or(0, |span| span.start);
            let (line, column) = sources.position(file, start);
            let code = problem.code().as_str();
            assert!(code < "IT02" || problem.hint_text().is_some(), "{yaml}");
            // The words of `config` are its own matter.
            let message = if code < "IT02" { "" } else { problem.message() };
            format!("{code} {line}:{column} {message}")
                .trim_end()
                .to_owned()
        })
        .collect();
    assert_eq!(
        source.is_none(),
        !problems.is_empty(),
        "{yaml}: {problems:?}"
    );
    source.ok_or(problems)
}

/// Checks a table of broken YAML texts and the problems they have.
pub(crate) fn assert_problems(definition: &SourceDefinition, cases: &[(&str, &[&str])]) {
    for (yaml, expected) in cases {
        match build(definition, yaml, &States::default()) {
            Ok(_) => panic!("no problem in {yaml}"),
            Err(found) => assert_eq!(found, *expected, "{yaml}"),
        }
    }
}

/// What the admin port shows under a name.
pub(crate) fn measure(states: &States, name: &str) -> f64 {
    let measures = states.measures(Instant::now());
    let mut found = measures.iter().filter(|(_, it)| it.name == name);
    found.next().map_or(f64::NAN, |(_, measure)| measure.value)
}

/// Services with a clock that a test moves. Work that may block is done at once.
pub(crate) struct Clock {
    start: Instant,
    passed: Rc<Cell<Duration>>,
    /// The time of day at the start.
    wall: Cell<Timestamp>,
    /// When somebody wants to be woken.
    timers: RefCell<Vec<Duration>>,
    /// The longest sleep so far.
    pub longest: Cell<Duration>,
    pub random: Cell<f64>,
    pub resources: Resources,
}

impl Clock {
    /// A clock that stands at this time of day.
    pub fn at(wall: &str) -> Self {
        Self {
            start: Instant::now(),
            passed: Rc::default(),
            wall: Cell::new(wall.parse().unwrap()),
            timers: RefCell::default(),
            longest: Cell::default(),
            random: Cell::new(0.0),
            resources: Resources::default(),
        }
    }

    /// Puts the time of day forward or back.
    pub fn put(&self, seconds: i64) {
        let seconds = jiff::SignedDuration::from_secs(seconds);
        self.wall.set(self.wall.get() + seconds);
    }

    /// Lets time pass in which nobody does anything.
    pub fn pass(&self, time: Duration) {
        self.passed.set(self.passed.get() + time);
    }

    /// The next time at which somebody wants to be woken, up to a limit.
    fn next(&self, limit: Duration) -> Option<Duration> {
        let mut timers = self.timers.borrow_mut();
        timers.retain(|at| *at > self.passed.get());
        timers.iter().min().copied().filter(|at| *at <= limit)
    }
}

impl Services for Clock {
    fn call<'a>(&'a self, _: Call<'a>) -> LocalFuture<'a, Result<Reply, Fault>> {
        Box::pin(async { Ok(Reply::new(200)) })
    }

    fn sleep(&self, time: Duration) -> LocalFuture<'static, ()> {
        let (passed, until) = (Rc::clone(&self.passed), self.passed.get() + time);
        self.timers.borrow_mut().push(until);
        self.longest.set(self.longest.get().max(time));
        Box::pin(poll_fn(move |_| match passed.get() >= until {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }))
    }

    fn now(&self) -> Instant {
        self.start + self.passed.get()
    }

    fn wall(&self) -> Duration {
        let wall = self.wall.get().as_duration();
        Duration::try_from(wall).unwrap() + self.passed.get()
    }

    fn random(&self) -> f64 {
        self.random.get()
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

/// What a flow makes of a message.
type Act = Box<dyn Fn(&Request) -> Result<Reply, Fault> + Send + Sync>;

/// A flow that does what a test says.
pub(crate) struct FakeFlow {
    name: Arc<str>,
    act: Act,
    /// How many runs may end; the others wait.
    allowed: AtomicUsize,
    pub requests: Mutex<Vec<Request>>,
    ended: AtomicUsize,
}

impl FakeFlow {
    /// A flow whose runs end at once.
    pub fn new(
        act: impl Fn(&Request) -> Result<Reply, Fault> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: "test".into(),
            act: Box::new(act),
            allowed: AtomicUsize::new(usize::MAX),
            requests: Mutex::default(),
            ended: AtomicUsize::new(0),
        })
    }

    /// A flow that succeeds.
    pub fn good() -> Arc<Self> {
        Self::new(|_| Ok(Reply::new(204)))
    }

    /// Lets so many runs end, counted from the first.
    pub fn allow(&self, count: usize) {
        self.allowed.store(count, Ordering::Relaxed);
    }

    /// How many runs have begun.
    pub fn begun(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// How many are under way.
    pub fn under_way(&self) -> usize {
        self.begun() - self.ended.load(Ordering::Relaxed)
    }

    /// What all messages say of themselves.
    pub fn told<T>(&self, tell: impl Fn(&Request) -> T) -> Vec<T> {
        self.requests.lock().unwrap().iter().map(tell).collect()
    }
}

impl Started for FakeFlow {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn start<'a>(
        &'a self,
        request: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Reply, Fault>> {
        let number = self.begun();
        self.requests.lock().unwrap().push(request.clone());
        Box::pin(async move {
            poll_fn(|_| match number < self.allowed.load(Ordering::Relaxed) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
            self.ended.fetch_add(1, Ordering::Relaxed);
            (self.act)(&request)
        })
    }
}

/// A source that runs.
pub(crate) struct Running<'a> {
    clock: &'a Clock,
    future: LocalFuture<'a, ()>,
    stop: Rc<Cell<bool>>,
    pub has_ended: bool,
}

impl<'a> Running<'a> {
    /// Starts a source.
    pub fn start(
        source: &'a Arc<dyn Source>,
        flow: &'a Arc<dyn Started>,
        clock: &'a Clock,
    ) -> Self {
        let stop = Rc::new(Cell::new(false));
        let stopped = Rc::clone(&stop);
        let stopped = poll_fn(move |_| match stopped.get() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
        let mut running = Self {
            clock,
            future: source.run(flow, clock, Box::pin(stopped)),
            stop,
            has_ended: false,
        };
        running.poll();
        running
    }

    /// Lets the source do what there is to do now.
    pub fn poll(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        if !self.has_ended {
            self.has_ended = self.future.as_mut().poll(&mut context).is_ready();
        }
    }

    /// Lets time pass; the source wakes whenever it wants to.
    pub fn advance(&mut self, time: Duration) {
        let target = self.clock.passed.get() + time;
        self.poll();
        while let Some(at) = self.clock.next(target) {
            self.clock.passed.set(at);
            self.poll();
        }
        self.clock.passed.set(target);
        self.poll();
    }

    /// Tells it to stop.
    pub fn stop(&mut self) {
        self.stop.set(true);
        self.poll();
    }
}
