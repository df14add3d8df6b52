//! What the tests of polling share: pollers read from YAML, another system that does what a test
//! says, and a clock that jumps.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::config::{Report, Sources};
use component::connection::Connections;
use component::definition::Surroundings;
use component::evaluation::Evaluation;
use component::handler::{Call, Callee, LocalFuture, Services, Work};
use component::resources::Resources;
use component::state::States;
use message::{Fault, Reply, Request};
use tokio::sync::watch;
use tokio::time::Instant;

use super::config;
use super::memory::Last;
use super::plan::{self, Read, Surrounded};
use super::sink::{Brought, Sink};

/// What another system does with a request: after this time, this.
pub type Answer = (Duration, Result<Reply, Fault>);

/// Decides on an answer by the number of the request, from 0, and the request.
type Script = Box<dyn Fn(usize, &Request) -> Answer>;

/// Another system that does what a test says.
pub struct TestServices {
    start: Instant,
    script: Script,
    /// When it was asked, in milliseconds, and what.
    pub asked: RefCell<Vec<(u128, Request)>>,
    /// How often something was done beside the worker.
    pub beside: Cell<usize>,
    resources: Resources,
}

impl TestServices {
    /// The script gets the number of the request, from 0, and the request.
    pub fn new(script: impl Fn(usize, &Request) -> Answer + 'static) -> Self {
        Self {
            start: Instant::now(),
            script: Box::new(script),
            asked: RefCell::default(),
            beside: Cell::default(),
            resources: Resources::default(),
        }
    }

    /// One that answers at once.
    pub fn quick(script: impl Fn(usize, &Request) -> Reply + 'static) -> Self {
        Self::new(move |number, request| (Duration::ZERO, Ok(script(number, request))))
    }

    /// When it was asked, in milliseconds.
    pub fn times(&self) -> Vec<u128> {
        self.asked.borrow().iter().map(|it| it.0).collect()
    }

    /// Path and query of each request.
    pub fn targets(&self) -> Vec<String> {
        let asked = self.asked.borrow();
        let targets = asked.iter().map(|(_, request)| match &request.query {
            Some(query) => format!("{}?{query}", request.path),
            None => request.path.clone(),
        });
        targets.collect()
    }

    /// A field of each request.
    pub fn fields(&self, name: &str) -> Vec<Option<String>> {
        let asked = self.asked.borrow();
        let fields = asked.iter().map(|(_, request)| {
            let value = request.headers.get(name)?;
            Some(String::from_utf8_lossy(value).into_owned())
        });
        fields.collect()
    }
}

impl Services for TestServices {
    fn call<'a>(&'a self, call: Call<'a>) -> LocalFuture<'a, Result<Reply, Fault>> {
        let at = self.start.elapsed().as_millis();
        let number = self.asked.borrow().len();
        self.asked.borrow_mut().push((at, call.request.clone()));
        let (time, mut reply) = (self.script)(number, call.request);
        if let (Ok(found), Some(max)) = (&reply, call.body_max)
            && found.body.as_bytes().len() as u64 > max
        {
            reply = Err(super::fetch::unusable("it is larger than the limit"));
        }
        Box::pin(async move {
            if !time.is_zero() {
                tokio::time::sleep(time).await;
            }
            reply
        })
    }

    fn sleep(&self, time: Duration) -> LocalFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into_std()
    }

    fn wall(&self) -> Duration {
        Duration::from_secs(1_700_000_000) + self.start.elapsed()
    }

    fn random(&self) -> f64 {
        0.0
    }

    fn flow(&self, _: &str) -> Option<Arc<dyn Callee>> {
        None
    }

    fn spawn(&self, _: Work) {}

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> LocalFuture<'static, ()> {
        self.beside.set(self.beside.get() + 1);
        work();
        Box::pin(async {})
    }

    fn resources(&self) -> &Resources {
        &self.resources
    }
}

/// A JSON reply with header lines.
pub fn json(fields: &[(&str, &str)], body: &str) -> Reply {
    let mut reply = Reply::with_content(200, "application/json", body.as_bytes().to_vec());
    for (name, value) in fields {
        reply.headers.append(name, value);
    }
    reply
}

/// Reads a poller, or tells every problem as `CODE line:column` and its message.
pub(super) fn read(yaml: &str, states: &States) -> Result<Read, Vec<String>> {
    let (mut sources, mut report) = (Sources::default(), Report::default());
    let file = sources
        .add("test.yaml", yaml.as_bytes(), &mut report)
        .unwrap();
    let node = ::config::parse(&sources, file, &mut report).remove(0);
    let config = config::read(&node, &[], &mut report);
    let mut surrounded = Surrounded {
        report: &mut report,
        name: &"test".into(),
        connections: &Connections::default(),
        evaluation: &Evaluation::default(),
        surroundings: &Surroundings {
            files: &|_, name| Err(format!("{name} is not there")),
            folder: &|_| std::path::PathBuf::new(),
            states,
            dead_letters: component::testing::no_dead_letters,
        },
        body_max: None,
    };
    let read = config.and_then(|config| plan::read(&node, &config, &mut surrounded));
    let problems = report.diagnostics().iter().map(|problem| {
        let start = problem.span().map_or(0, |span| span.start);
        let (line, column) = sources.position(file, start);
        let code = problem.code().as_str();
        // The words of others are their own matter.
        let message = if code < "IT06" { "" } else { problem.message() };
        let text = format!("{code} {line}:{column} {message}");
        text.trim_end().to_owned()
    });
    let problems: Vec<String> = problems.collect();
    assert_eq!(read.is_none(), !problems.is_empty(), "{yaml}: {problems:?}");
    read.ok_or(problems)
}

/// A poller that has no problem.
pub(super) fn sound(yaml: &str) -> Read {
    read(yaml, &States::default()).unwrap_or_else(|problems| panic!("{yaml}: {problems:?}"))
}

/// Somebody who takes documents while a test says so.
pub struct TestSink {
    pub start: Instant,
    pub wanted: watch::Sender<bool>,
    /// When documents came, in milliseconds, and which.
    pub taken: Mutex<Vec<(u128, String)>>,
    /// What there is on the disk.
    pub(super) disk: Mutex<Option<Last>>,
    pub place: Option<String>,
    /// Whether what is on the disk may be older than it is.
    pub lags: bool,
    /// The documents that are refused.
    pub refuses: &'static str,
}

impl Default for TestSink {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            wanted: watch::Sender::new(true),
            taken: Mutex::default(),
            disk: Mutex::default(),
            place: None,
            lags: false,
            refuses: "no document",
        }
    }
}

impl TestSink {
    /// Says whether documents are wanted.
    pub fn want(&self, wanted: bool) {
        self.wanted.send_replace(wanted);
    }

    /// The documents that have come.
    pub fn documents(&self) -> Vec<String> {
        self.taken
            .lock()
            .unwrap()
            .iter()
            .map(|it| it.1.clone())
            .collect()
    }
}

impl Sink for TestSink {
    fn is_wanted(&self) -> bool {
        *self.wanted.borrow()
    }

    fn wanted(&self) -> LocalFuture<'_, ()> {
        let mut wanted = self.wanted.subscribe();
        Box::pin(async move {
            wanted.wait_for(|wanted| *wanted).await.unwrap();
        })
    }

    fn place(&self) -> LocalFuture<'_, Option<String>> {
        Box::pin(std::future::ready(self.place.clone()))
    }

    fn may_lag(&self, _: &Last) -> bool {
        self.lags
    }

    fn remembered(&self) -> LocalFuture<'_, Option<Last>> {
        Box::pin(async { self.disk.lock().unwrap().clone() })
    }

    fn remember<'a>(&'a self, last: &'a Last) -> LocalFuture<'a, ()> {
        Box::pin(async move { *self.disk.lock().unwrap() = Some(last.clone()) })
    }

    fn take<'a>(
        &'a self,
        brought: Brought<'a>,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<bool, Fault>> {
        Box::pin(async move {
            let document = brought
                .document
                .map(|it| String::from_utf8_lossy(&it).into_owned());
            let document = document.unwrap_or_else(|| "nothing".to_owned());
            if document == self.refuses {
                return Err(Fault::invalid("it is refused"));
            }
            brought.last.place = self.place.clone();
            let mut taken = self.taken.lock().unwrap();
            let is_new = taken.last().is_none_or(|(_, last)| *last != document);
            if is_new {
                taken.push((self.start.elapsed().as_millis(), document));
            }
            Ok(is_new)
        })
    }
}

/// Runs a poller for a time, and then until it has stopped: how long that took.
pub(super) async fn run(
    read: &Read,
    sink: &TestSink,
    services: &TestServices,
    time: u64,
) -> Duration {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopped = Box::pin(async move {
        let _ = stopped.await;
    });
    let ending = async {
        tokio::time::sleep(Duration::from_millis(time)).await;
        drop(stop);
        Instant::now()
    };
    let (stopped_at, ()) = tokio::join!(ending, read.poller.run(sink, services, stopped));
    stopped_at.elapsed()
}
