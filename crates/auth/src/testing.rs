//! For tests: doors from YAML, and a worker whose clock stands still while anything can go on.
//! Other systems are what a test says.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use component::access::{AccessNodes, Admitted, Door, DoorContext, RequestHead, TicketTarget};
use component::definition::Surroundings;
use component::evaluation::Evaluation;
use component::handler::{Call, Callee, LocalFuture, Services, Work};
use component::resources::Resources;
use component::state::States;
use config::{Report, Sources};
use message::{Fault, Headers, Kind, Origin, Reply, Request};
use tokio::task::LocalSet;

use crate::codes::CLEAR_TEXT;

/// The time of day when a test begins.
pub(crate) const START: u64 = 1_800_000_000;

/// Reads the values of `ways` and `auth`, or tells every problem as `CODE message`.
pub(crate) fn door(yaml: &str, states: &States) -> Result<Arc<dyn Door>, Vec<String>> {
    let (mut sources, mut report) = (Sources::default(), Report::default());
    let source = sources
        .add("test.yaml", yaml.as_bytes(), &mut report)
        .unwrap();
    let node = config::parse(&sources, source, &mut report).remove(0);
    let surroundings = Surroundings {
        files: &|_, name| Err(format!("{name} is not there")),
        folder: &|_| PathBuf::new(),
        states,
        dead_letters: component::testing::no_dead_letters,
    };
    let nodes = AccessNodes {
        ways: node.get("ways"),
        deny: node.get("deny"),
        identity: node.get("identity"),
    };
    let ways = crate::ways::build(nodes, &surroundings, &mut report);
    let mut context = DoorContext {
        report: &mut report,
        name: "flow test",
        evaluation: &Evaluation::default(),
        tickets: node.get("tickets").map(|_| TicketTarget::Path),
    };
    let door = ways.door(node.get("auth").unwrap(), &mut context);
    // The systems of tests are nowhere: no connection to them needs TLS.
    report.retain(|it| it.code() != CLEAR_TEXT);
    let problems = report.diagnostics().iter();
    let problems: Vec<String> = problems
        .map(|it| format!("{} {}", it.code().as_str(), it.message()))
        .collect();
    match problems.is_empty() {
        true => Ok(door.unwrap()),
        false => Err(problems),
    }
}

/// A request with these fields, its body unread.
pub(crate) fn request(lines: &[(&str, &str)]) -> Request {
    let mut headers = Headers::new();
    for (name, value) in lines {
        headers.append(name, value);
    }
    let mut request = Request::of_source("POST", headers, message::Body::Unread);
    request.path = "/orders/7".to_owned();
    request.query = Some("a=1".to_owned());
    request.method = message::Method::Post;
    request
}

/// The outcome of a judgement: who comes in, or the status of the reply.
pub(crate) fn outcome(judged: Result<Option<Admitted>, Box<Reply>>) -> String {
    match judged {
        Ok(Some(admitted)) => admitted.caller.id.to_string(),
        Ok(None) => "body".to_owned(),
        Err(reply) => reply.status.to_string(),
    }
}

/// Everything about a judgement as text, to compare two of them.
fn shown(judged: &Result<Option<Admitted>, Box<Reply>>) -> String {
    let admitted = |it: &Admitted| format!("{it:?}");
    match judged {
        Ok(judged) => format!("{:?}", judged.as_ref().map(admitted)),
        Err(reply) => format!("{reply:?}"),
    }
}

/// What another system does with a request: after this time, this.
type Script = Box<dyn Fn(&Request) -> (Duration, Result<Reply, Fault>)>;

/// A worker.
#[derive(Clone)]
pub(crate) struct Worker(Rc<Inner>);

struct Inner {
    start: tokio::time::Instant,
    resources: Resources,
    script: Script,
    /// The requests that other systems got.
    asked: RefCell<Vec<Request>>,
    /// Whether work that nobody waits for is dropped.
    drops_work: Cell<bool>,
}

/// Runs a test on a worker whose other systems do what this says.
pub(crate) fn run<F: Future<Output = ()>>(
    script: impl Fn(&Request) -> (Duration, Result<Reply, Fault>) + 'static,
    test: impl FnOnce(Worker) -> F,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async {
        let worker = Worker(Rc::new(Inner {
            start: tokio::time::Instant::now(),
            resources: Resources::default(),
            script: Box::new(script),
            asked: RefCell::default(),
            drops_work: Cell::new(false),
        }));
        test(worker).await;
    });
}

/// A failure of another system.
pub(crate) fn down() -> Result<Reply, Fault> {
    Err(Fault::new(Kind::Connection, Origin::Upstream, "down"))
}

/// A reply with a JSON body.
pub(crate) fn json(status: u16, body: &str) -> Result<Reply, Fault> {
    let body = body.as_bytes().to_vec();
    Ok(Reply::with_content(status, "application/json", body))
}

impl Worker {
    /// Another worker of the same process, whose other systems cannot be reached.
    pub fn beside(&self) -> Self {
        Self(Rc::new(Inner {
            start: self.0.start,
            resources: Resources::default(),
            script: Box::new(|_| (Duration::ZERO, down())),
            asked: RefCell::default(),
            drops_work: Cell::new(false),
        }))
    }

    pub fn asked(&self) -> Vec<Request> {
        self.0.asked.borrow().clone()
    }

    pub fn drop_work(&self, drops: bool) {
        self.0.drops_work.set(drops);
    }

    /// Has a door judge a request.
    pub async fn judge(
        &self,
        door: &dyn Door,
        request: &Request,
    ) -> Result<Option<Admitted>, Box<Reply>> {
        let head = RequestHead::of(request);
        let judge = async || door.judge(head, self).end().await;
        let Some(recalled) = door.recall(head, self) else {
            return judge().await;
        };
        let recalled = recalled.map(Some);
        // A proof of possession is good for one judgement.
        if request.headers.get("DPoP").is_none() {
            assert_eq!(shown(&recalled), shown(&judge().await));
        }
        recalled
    }

    /// The same in a word.
    pub async fn outcome(&self, door: &dyn Door, request: &Request) -> String {
        outcome(self.judge(door, request).await)
    }
}

impl Services for Worker {
    fn call<'a>(&'a self, call: Call<'a>) -> LocalFuture<'a, Result<Reply, Fault>> {
        self.0.asked.borrow_mut().push(call.request.clone());
        let (time, answer) = (self.0.script)(call.request);
        Box::pin(async move {
            tokio::time::sleep(time).await;
            answer
        })
    }

    fn sleep(&self, time: Duration) -> LocalFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn wall(&self) -> Duration {
        Duration::from_secs(START) + self.0.start.elapsed()
    }

    fn random(&self) -> f64 {
        0.5
    }

    fn flow(&self, _: &str) -> Option<Arc<dyn Callee>> {
        None
    }

    fn spawn(&self, work: Work) {
        if !self.0.drops_work.get() {
            let worker = self.clone();
            tokio::task::spawn_local(async move { work(&worker).await });
        }
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> LocalFuture<'static, ()> {
        work();
        Box::pin(async {})
    }

    fn resources(&self) -> &Resources {
        &self.0.resources
    }
}
