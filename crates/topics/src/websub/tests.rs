//! The source beside a hub that does what a test says, with a clock that jumps.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::config::{Report, Sources};
use component::connection::Connections;
use component::definition::Surroundings;
use component::document::Entrance;
use component::evaluation::Evaluation;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::source::{Source, SourceContext, Started};
use component::state::States;
use component::tls::Protocol;
use component::trigger::{HttpTrigger, ListenAddress, Methods, PathPattern, Segment};
use message::{Fault, Kind, Method, Origin, Reply, Request};
use websub::form::Form;
use websub::signature::{Method as SignedBy, Secret};

use crate::poll::testing::TestServices;

const PLAIN: &str = "{ topic: 'http://t.example/news?x=1', hub: 'http://hub.example/h', \
                     callback: { http: 'POST /hooks/news', public_url: 'https://api.example/in/' }, \
                     secret: 0123456789abcdef0123 }";

/// Reads `METHOD /path`, as far as these tests need it.
fn read_http(node: &::config::Node, report: &mut Report) -> Option<Entrance> {
    let (methods, path) = node.as_str()?.split_once(' ')?;
    assert_eq!(report.errors(), 0);
    let methods = match methods {
        "any" => Methods::Any,
        methods => Methods::Only(methods.split(',').map(Method::from_token).collect()),
    };
    let segments = path.trim_end_matches("/*").split('/').skip(1);
    let segments = segments.map(|it| match it.strip_prefix('{') {
        Some(name) => Segment::Parameter(name.trim_end_matches('}').to_owned()),
        None => Segment::Literal(it.to_owned()),
    });
    Some(Entrance {
        http: HttpTrigger {
            methods,
            listen: ListenAddress {
                host: None,
                port: 8080,
            },
            path: PathPattern {
                segments: segments.collect(),
                rest: path.ends_with("/*"),
            },
            body_max: 1 << 20,
            decode: None,
        },
        tls: None,
        protocols: vec![Protocol::Http1],
        span: node.span,
    })
}

/// Builds the source, or tells every problem.
fn build(yaml: &str, states: &States) -> Result<Arc<dyn Source>, Vec<String>> {
    let (mut sources, mut report) = (Sources::default(), Report::default());
    let file = sources.add("test.yaml", yaml.as_bytes(), &mut report);
    let node = ::config::parse(&sources, file.unwrap(), &mut report).remove(0);
    let mut context = SourceContext {
        report: &mut report,
        flow: &"test".into(),
        connections: &Connections::default(),
        read_http: &read_http,
        evaluation: &Evaluation::default(),
        surroundings: &Surroundings {
            files: &|_, name| Err(format!("{name} is not there")),
            folder: &|_| std::path::PathBuf::new(),
            states,
            dead_letters: component::testing::no_dead_letters,
        },
    };
    let source = (super::SOURCE.build)(&node, &mut context);
    let problems = report.diagnostics().iter();
    let problems: Vec<String> = problems.map(|it| it.message().to_owned()).collect();
    assert_eq!(
        source.is_none(),
        !problems.is_empty(),
        "{yaml}: {problems:?}"
    );
    source.ok_or(problems)
}

fn sound(yaml: &str, states: &States) -> Arc<dyn Source> {
    build(yaml, states).unwrap_or_else(|problems| panic!("{yaml}: {problems:?}"))
}

/// A flow that notes what it gets and ends as a test says.
struct Flow {
    name: Arc<str>,
    got: Mutex<Vec<Request>>,
    /// The status that it replies with; 0 for a failure.
    status: AtomicU16,
    /// How long it takes, in seconds.
    seconds: AtomicUsize,
}

impl Flow {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            name: "test".into(),
            got: Mutex::default(),
            status: AtomicU16::new(200),
            seconds: AtomicUsize::new(0),
        })
    }

    fn bodies(&self) -> Vec<String> {
        let got = self.got.lock().unwrap();
        let bodies = got.iter().map(|it| it.body.as_bytes());
        bodies
            .map(|it| String::from_utf8(it.to_vec()).unwrap())
            .collect()
    }
}

impl Started for Flow {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn start<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Reply, Fault>> {
        self.got.lock().unwrap().push(request);
        let seconds = self.seconds.load(Ordering::Relaxed) as u64;
        let status = self.status.load(Ordering::Relaxed);
        Box::pin(async move {
            services.sleep(Duration::from_secs(seconds)).await;
            match status {
                0 => Err(Fault::new(Kind::Timeout, Origin::Upstream, "too slow")),
                status => Ok(Reply::new(status)),
            }
        })
    }
}

/// A source with its flow and its callback.
struct Bench {
    source: Arc<dyn Source>,
    flow: Arc<Flow>,
    callback: Arc<dyn Handler>,
    services: Rc<TestServices>,
    states: States,
}

impl Bench {
    fn new(yaml: &str, script: impl Fn(usize, &Request) -> Reply + 'static) -> Self {
        let states = States::default();
        let (source, flow) = (sound(yaml, &states), Flow::new());
        let mut pages = source.pages(&(Arc::clone(&flow) as Arc<dyn Started>));
        let page = pages.remove(0);
        assert_eq!(
            page.entrance.http.path.to_string(),
            "/hooks/news/{subscription}"
        );
        Self {
            source,
            flow,
            callback: page.handler,
            services: Rc::new(TestServices::quick(script)),
            states,
        }
    }

    /// Runs the source while something is done.
    async fn during(&self, work: impl Future<Output = ()>) {
        let flow: Arc<dyn Started> = Arc::clone(&self.flow) as _;
        let never = Box::pin(std::future::pending());
        let running = self.source.run(&flow, &*self.services, never);
        tokio::select! {
            () = running => panic!("the source has ended"),
            () = work => {}
        }
    }

    fn last_form(&self) -> Form {
        let asked = self.services.asked.borrow();
        let posts = asked.iter().filter(|it| it.1.method == Method::Post);
        Form::parse(posts.last().unwrap().1.body.as_bytes()).unwrap()
    }

    fn posts(&self) -> usize {
        let asked = self.services.asked.borrow();
        asked
            .iter()
            .filter(|it| it.1.method == Method::Post)
            .count()
    }

    fn callback_url(&self) -> String {
        self.last_form()
            .one("hub.callback")
            .unwrap()
            .unwrap()
            .to_owned()
    }

    async fn call(&self, request: Request) -> Reply {
        let outcome = self.callback.handle(request, &*self.services).await;
        match outcome.unwrap() {
            Outcome::Reply(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn request(&self, method: Method, token: &str, query: Option<&str>) -> Request {
        Request {
            method,
            path: format!("/hooks/news/{token}"),
            query: query.map(str::to_owned),
            parameters: vec![("subscription".into(), token.to_owned())],
            ..Request::of_source("", message::Headers::new(), message::Body::Empty)
        }
    }

    fn token(&self) -> String {
        self.callback_url().rsplit('/').next().unwrap().to_owned()
    }

    async fn verify(&self, mode: &str, seconds: &str) -> Reply {
        let query = format!(
            "hub.mode={mode}&hub.topic=http%3A%2F%2Ft.example%2Fnews%3Fx%3D1&hub.challenge=abc\
             &hub.lease_seconds={seconds}"
        );
        let token = self.token();
        self.call(self.request(Method::Get, &token, Some(&query)))
            .await
    }

    async fn deliver(&self, body: &str, signature: Option<&str>, id: Option<&str>) -> Reply {
        let token = self.token();
        let mut request = self.request(Method::Post, &token, None);
        request.body = body.as_bytes().to_vec().into();
        request.headers.append("Content-Type", "application/json");
        request.headers.append("Host", "api.example");
        if let Some(signature) = signature {
            request.headers.append("X-Hub-Signature", signature);
        }
        if let Some(id) = id {
            request.headers.append("Webhook-Id", id);
        }
        self.call(request).await
    }

    async fn signed(&self, body: &str, id: Option<&str>) -> u16 {
        let secret = self
            .last_form()
            .one("hub.secret")
            .unwrap()
            .unwrap()
            .to_owned();
        let signature = Secret::new(&secret)
            .unwrap()
            .sign(SignedBy::Sha256, body.as_bytes());
        self.deliver(body, Some(&signature), id).await.status
    }

    fn measure(&self, name: &str) -> f64 {
        let measures = self.states.measures(std::time::Instant::now());
        let mut measures = measures.into_iter().map(|it| it.1);
        measures.find(|it| it.name == name).unwrap().value
    }
}

#[test]
fn the_egress_guard_holds_for_topic_hub_and_other_origins() {
    for (more, is_guarded) in [("", false), (" egress: guarded,", true)] {
        let more = format!("{more} origins: ['https://other.example'], secret:");
        let source = sound(&PLAIN.replace(" secret:", &more), &States::default());
        let upstreams = source.upstreams();
        assert_eq!(upstreams.len(), 3);
        let guarded = upstreams.iter().filter(|it| it.egress.is_guarded());
        assert_eq!(guarded.count(), if is_guarded { 3 } else { 0 });
    }
}

async fn pass(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

fn accepted(_: usize, _: &Request) -> Reply {
    Reply::new(202)
}

#[tokio::test(start_paused = true)]
async fn a_topic_is_subscribed_to_and_its_deliveries_start_the_flow() {
    let bench = Bench::new(PLAIN, accepted);
    bench
        .during(async {
            pass(0.1).await;
            assert_eq!(bench.services.targets(), ["/h"]);
            let form = bench.last_form();
            for (name, value) in [
                ("hub.mode", "subscribe"),
                ("hub.topic", "http://t.example/news?x=1"),
                ("hub.lease_seconds", "864000"),
                ("hub.secret", "0123456789abcdef0123"),
            ] {
                assert_eq!(form.one(name), Ok(Some(value)));
            }
            let callback = bench.callback_url();
            assert!(
                callback.starts_with("https://api.example/in/hooks/news/"),
                "{callback}"
            );
            assert!(websub::random::is_token(&bench.token()));
            let reply = bench.verify("subscribe", "1000").await;
            assert_eq!((reply.status, reply.body.as_bytes()), (200, &b"abc"[..]));
            assert_eq!(reply.headers.get("Content-Type"), Some(&b"text/plain"[..]));
            assert_eq!(bench.measure("websub_lease_end"), 1_700_001_000.1);

            assert_eq!(bench.signed("{\"a\":1}", Some("e1")).await, 204);
            let got = bench.flow.got.lock().unwrap().remove(0);
            assert_eq!(got.method, Method::Other("WEBSUB".into()));
            assert_eq!(
                got.headers.get("content-type"),
                Some(&b"application/json"[..])
            );
            assert_eq!(got.headers.get("webhook-id"), Some(&b"e1"[..]));
            assert!(got.headers.get("Host").is_none());
            assert!(got.headers.get("X-Hub-Signature").is_none());
            let parameters = got.parameters.iter().map(|it| it.1.as_str());
            let expected = ["http://t.example/news?x=1", "http://hub.example/h", "e1"];
            assert_eq!(parameters.collect::<Vec<_>>(), expected);
            // Nothing more is asked of the hub before two thirds of the lease.
            pass(600.0).await;
            assert_eq!(bench.posts(), 1);
            pass(100.0).await;
            assert_eq!(bench.posts(), 2);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_is_not_signed_is_ignored_and_not_told_so() {
    let bench = Bench::new(PLAIN, accepted);
    bench
        .during(async {
            pass(0.1).await;
            bench.verify("subscribe", "1000").await;
            let secret = Secret::new("0123456789abcdef0123").unwrap();
            let weak = secret.sign(SignedBy::Sha1, b"{}");
            let other = secret.sign(SignedBy::Sha256, b"{ }");
            for signature in [None, Some("sha256="), Some(&weak), Some(&other)] {
                let reply = bench.deliver("{}", signature.map(|it| it as _), None).await;
                assert_eq!((reply.status, reply.body.as_bytes()), (204, &b""[..]));
            }
            assert!(bench.flow.bodies().is_empty());
            assert_eq!(bench.measure("websub_unsigned_total"), 4.0);
            let strong = secret.sign(SignedBy::Sha512, b"{}");
            bench.deliver("{}", Some(&strong), None).await;
            assert_eq!(bench.flow.bodies(), ["{}"]);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_weakest_signature_is_what_the_file_says() {
    let old = PLAIN.replace(" secret:", " signature: sha1, secret:");
    let bench = Bench::new(&old, accepted);
    bench
        .during(async {
            pass(0.1).await;
            bench.verify("subscribe", "1000").await;
            let secret = Secret::new("0123456789abcdef0123").unwrap();
            let weak = secret.sign(SignedBy::Sha1, b"{}");
            bench.deliver("{}", Some(&weak), None).await;
            assert_eq!(bench.flow.bodies(), ["{}"]);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_repeated_delivery_is_recognised() {
    let bench = Bench::new(PLAIN, accepted);
    bench
        .during(async {
            pass(0.1).await;
            bench.verify("subscribe", "1000").await;
            for (body, id) in [("1", Some("a")), ("1", Some("a")), ("1", Some("b"))] {
                assert_eq!(bench.signed(body, id).await, 204);
            }
            assert_eq!(bench.flow.bodies(), ["1", "1"]);
            for body in ["2", "2", "3", "2"] {
                assert_eq!(bench.signed(body, None).await, 204);
            }
            assert_eq!(bench.flow.bodies(), ["1", "1", "2", "3", "2"]);
            assert_eq!(bench.measure("websub_repeated_total"), 2.0);
            assert_eq!(bench.measure("websub_events_total"), 5.0);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_is_repeated_while_the_flow_runs_comes_again_later() {
    let bench = Bench::new(PLAIN, accepted);
    bench.flow.seconds.store(30, Ordering::Relaxed);
    bench
        .during(async {
            pass(0.1).await;
            bench.verify("subscribe", "1000").await;
            let first = bench.signed("1", None);
            let second = async {
                pass(1.0).await;
                let again = bench.signed("1", None).await;
                pass(40.0).await;
                (again, bench.signed("1", None).await)
            };
            let (first, second) = tokio::join!(first, second);
            assert_eq!((first, second), (204, (503, 204)));
            assert_eq!(bench.flow.bodies(), ["1"]);
            // One that is dropped is no longer under way.
            let given_up = tokio::time::timeout(Duration::from_secs(1), bench.signed("4", None));
            assert!(given_up.await.is_err());
            assert_eq!(bench.signed("4", None).await, 204);
            assert_eq!(bench.flow.bodies(), ["1", "4", "4"]);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_flow_lets_the_hub_try_again_whatever_it_says() {
    let bench = Bench::new(PLAIN, accepted);
    bench
        .during(async {
            pass(0.1).await;
            bench.verify("subscribe", "1000").await;
            for (status, told) in [(0, 504), (400, 500), (410, 500), (503, 503), (302, 204)] {
                bench.flow.status.store(status, Ordering::Relaxed);
                assert_eq!(
                    bench.signed(&status.to_string(), None).await,
                    told,
                    "{status}"
                );
            }
            assert_eq!(bench.measure("websub_failed_total"), 4.0);
            bench.flow.status.store(200, Ordering::Relaxed);
            assert_eq!(bench.signed("503", None).await, 204);
            assert_eq!(
                bench.flow.bodies(),
                ["0", "400", "410", "503", "302", "503"]
            );
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_but_the_own_subscription_is_confirmed() {
    let bench = Bench::new(PLAIN, accepted);
    bench
        .during(async {
            pass(0.1).await;
            let other = websub::random::token().unwrap();
            let query = "hub.mode=subscribe&hub.topic=http%3A%2F%2Ft.example%2Fnews%3Fx%3D1\
                         &hub.challenge=abc";
            let get = bench
                .call(bench.request(Method::Get, &other, Some(query)))
                .await;
            let post = bench.call(bench.request(Method::Post, &other, None)).await;
            assert_eq!((get.status, post.status), (404, 410));
            assert_eq!(bench.verify("unsubscribe", "").await.status, 404);
            let token = bench.token();
            let wrong = query.replace("news", "olds");
            for query in [None, Some(wrong.as_str())] {
                let reply = bench.call(bench.request(Method::Get, &token, query)).await;
                assert_eq!((reply.status, reply.body.as_bytes()), (404, &b""[..]));
            }
            assert_eq!(bench.measure("websub_refused_verifications_total"), 3.0);
            assert_eq!(bench.measure("websub_lease_end"), 0.0);
            // Ten minutes later nobody knows who asks.
            assert_eq!(bench.verify("subscribe", "60").await.status, 200);
        })
        .await;
}

const DISCOVERED: &str = "{ topic: 'http://t.example/news', callback: { http: POST /hooks/news, \
                          public_url: 'http://api.example' } }";

#[tokio::test(start_paused = true)]
async fn the_hub_is_found_by_the_topic_and_its_redirects() {
    let bench = Bench::new(DISCOVERED, |_, request| {
        let mut reply = Reply::new(200);
        match (request.method.as_str(), request.path.as_str()) {
            ("HEAD", _) => return Reply::new(405),
            ("GET", "/news") => {
                reply.status = 302;
                reply.headers.append("Location", "feeds/1?a=b");
            }
            ("GET", "/feeds/1") => {
                let html = "<link rel=hub href='/hub?x=1'><link rel=self href='/canonical'>";
                return Reply::with_content(200, "text/html", html.as_bytes().to_vec());
            }
            ("POST", "/hub") => {
                reply.status = 307;
                reply.headers.append("Location", "/hub2");
            }
            ("POST", "/hub2") => reply.status = 202,
            other => panic!("{other:?}"),
        }
        reply
    });
    bench
        .during(async {
            pass(0.1).await;
            let targets = bench.services.targets();
            let expected = ["/news", "/news", "/feeds/1?a=b", "/hub?x=1", "/hub2"];
            assert_eq!(targets, expected);
            let form = bench.last_form();
            assert_eq!(
                form.one("hub.topic"),
                Ok(Some("http://t.example/canonical"))
            );
            let secret = form.one("hub.secret").unwrap().unwrap();
            assert!(websub::random::is_token(secret));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_leads_to_a_host_that_the_file_does_not_name() {
    let elsewhere = |_: usize, request: &Request| {
        let mut reply = Reply::new(200);
        let links = "<http://hub.example/>; rel=hub, </news>; rel=self";
        match request.method {
            Method::Post => reply.status = 202,
            _ => reply.headers.append("Link", links),
        }
        reply
    };
    let bench = Bench::new(DISCOVERED, elsewhere);
    bench
        .during(async {
            pass(0.5).await;
            assert_eq!((bench.services.targets().len(), bench.posts()), (1, 0));
            assert_eq!(bench.measure("websub_request_failures_total"), 1.0);
        })
        .await;
    let allowed = DISCOVERED
        .replace("}}", "}")
        .replace(" } }", " }, origins: ['http://hub.example'] }");
    let bench = Bench::new(&allowed, elsewhere);
    bench.during(pass(0.5)).await;
    assert_eq!(bench.services.targets(), ["/news", "/"]);
    // Redirects neither, nor without end.
    for location in [
        "http://other.example/",
        "//t.example:81/",
        "https://t.example/",
        "/news",
    ] {
        let bench = Bench::new(DISCOVERED, move |_, _| {
            let mut reply = Reply::new(301);
            reply.headers.append("Location", location);
            reply
        });
        bench.during(pass(0.5)).await;
        assert!(
            bench.services.targets().len() <= 12 && bench.posts() == 0,
            "{location}"
        );
        assert_eq!(bench.measure("websub_request_failures_total"), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn hubs_that_refuse_are_asked_ever_more_seldom_and_others_instead() {
    let is_up = Rc::new(Cell::new(false));
    let up = Rc::clone(&is_up);
    let bench = Bench::new(DISCOVERED, move |_, request| {
        if request.method == Method::Post {
            return Reply::new(if up.get() { 202 } else { 503 });
        }
        let mut reply = Reply::new(200);
        let links = "</one>; rel=hub, </two>; rel=hub, </>; rel=self";
        reply.headers.append("Link", links);
        reply
    });
    bench
        .during(async {
            pass(20.0).await;
            let targets = bench.services.targets();
            let hubs = targets
                .iter()
                .filter(|it| *it != "/news")
                .map(String::as_str);
            let hubs: Vec<&str> = hubs.collect();
            assert_eq!(hubs, ["/one", "/two", "/one", "/two", "/one"]);
            let times: Vec<u128> = bench.services.times().into_iter().step_by(2).collect();
            // 0.8 of 1, 2, 4 and 8 seconds: the random part is 0 here.
            let expected = [0, 800, 2400, 5600, 12_000];
            let close = times
                .iter()
                .zip(expected)
                .all(|(it, at)| it.abs_diff(at) < 50);
            assert!(close, "{times:?}");
            is_up.set(true);
            pass(20.0).await;
            assert_eq!(
                bench.verify("subscribe", "100").await.status,
                404,
                "of another topic"
            );
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_counted_and_asked_about_again() {
    let bench = Bench::new(PLAIN, accepted);
    bench
        .during(async {
            pass(0.1).await;
            bench.verify("subscribe", "1000").await;
            let query = "hub.mode=denied&hub.topic=http%3A%2F%2Ft.example%2Fnews%3Fx%3D1\
                         &hub.reason=no%0Amore";
            let token = bench.token();
            let reply = bench
                .call(bench.request(Method::Get, &token, Some(query)))
                .await;
            assert_eq!(reply.status, 204);
            assert_eq!(bench.measure("websub_denied_total"), 1.0);
            assert_eq!(bench.measure("websub_lease_end"), 0.0);
            pass(50.0).await;
            assert_eq!(bench.posts(), 1);
            pass(11.0).await;
            assert_eq!(bench.posts(), 2);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_is_not_wanted_any_more_is_ended_after_a_reload() {
    let mut bench = Bench::new(PLAIN, accepted);
    bench
        .during(async {
            pass(0.1).await;
            bench.verify("subscribe", "1000").await;
        })
        .await;
    let token = bench.token();
    let off = PLAIN.replace(" secret:", " active: false, lease: 1d, secret:");
    bench.source = sound(&off, &bench.states);
    let pages = bench
        .source
        .pages(&(Arc::clone(&bench.flow) as Arc<dyn Started>));
    bench.callback = Arc::clone(&pages[0].handler);
    bench
        .during(async {
            pass(0.1).await;
            let form = bench.last_form();
            assert_eq!(form.one("hub.mode"), Ok(Some("unsubscribe")));
            assert_eq!(form.one("hub.secret"), Ok(None));
            assert_eq!(bench.token(), token, "it is the same subscription");
            let reply = bench.call(bench.request(Method::Post, &token, None)).await;
            assert_eq!(reply.status, 410);
            assert_eq!(bench.verify("subscribe", "9").await.status, 404);
            assert_eq!(bench.verify("unsubscribe", "").await.status, 200);
            assert_eq!(bench.measure("websub_lease_end"), 0.0);
            pass(10_000.0).await;
            assert_eq!(bench.posts(), 2);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_reload_while_the_hub_is_asked_asks_again_at_once() {
    let states = States::default();
    let source = sound(PLAIN, &states);
    let services = TestServices::new(|_, _| (Duration::from_secs(5), Ok(Reply::new(202))));
    let flow: Arc<dyn Started> = Flow::new();
    for expected in 1..=2 {
        let stop = Box::pin(tokio::time::sleep(Duration::from_secs(1)));
        source.run(&flow, &services, stop).await;
        assert_eq!(services.targets().len(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn other_settings_make_another_subscription() {
    let bench = Bench::new(PLAIN, accepted);
    bench.during(pass(0.1)).await;
    let token = bench.token();
    for (from, to, is_same) in [
        ("t.example", "u.example", false),
        ("hub.example", "hub2.example", false),
        ("/in/", "/out/", false),
        ("0123456789abcdef0123", "0123456789abcdef0124", false),
        (
            " secret:",
            " lease: 1d, timeout: 1s, signature: sha512, secret:",
            true,
        ),
    ] {
        let source = sound(&PLAIN.replace(from, to), &bench.states);
        let bench = Bench {
            source,
            flow: Flow::new(),
            callback: Arc::clone(&bench.callback),
            services: Rc::new(TestServices::quick(accepted)),
            states: States::default(),
        };
        bench.during(pass(200.0)).await;
        assert_eq!(bench.token() == token, is_same, "{to}");
    }
}

#[test]
fn what_cannot_work_is_refused() {
    let states = States::default();
    let refused = |from: &str, to: &str, expected: &str| {
        let yaml = PLAIN.replace(from, to);
        assert_ne!(yaml, PLAIN);
        let problems = build(&yaml, &states).err().unwrap_or_default();
        assert!(
            problems.iter().any(|it| it.contains(expected)),
            "{yaml}: {problems:?}"
        );
    };
    refused("http://t.example/news", "news", "`topic` is no URL");
    refused(
        "http://t.example/news",
        "http://u:p@t.example/",
        "user name or password",
    );
    refused("http://hub.example/h", "ftp://hub/", "`hub` is no URL");
    refused(
        "https://api.example/in/",
        "api.example",
        "`public_url` is no URL",
    );
    refused(
        "https://api.example/in/",
        "https://api.example/?x",
        "no query",
    );
    refused("POST /hooks", "GET /hooks", "hubs deliver by `POST`");
    refused("POST /hooks", "any /hooks", "hubs deliver by `POST`");
    refused("/hooks/news", "/hooks/{name}", "no variable parts");
    refused("/hooks/news", "/hooks/*", "no variable parts");
    refused("0123456789abcdef0123", "short", "16 to 199 bytes");
    let long = "x".repeat(200);
    refused("0123456789abcdef0123", &long, "16 to 199 bytes");
    refused(
        " secret:",
        " lease: 30s, secret:",
        "`lease` is 30s, outside its range",
    );
    refused(
        " secret:",
        " timeout: 2h, secret:",
        "`timeout` is 2h, outside its range",
    );
    refused(
        " secret:",
        " origins: ['http://a/b'], secret:",
        "neither path nor query",
    );
    refused(
        " secret:",
        " tls: { verify: chain }, secret:",
        "`tls` has no effect",
    );
    refused(" secret:", " colour: red, secret:", "colour");
}
