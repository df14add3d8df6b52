//! A driver beside receivers that take everything.

use std::cell::Cell;

use component::forward::ForwardPlan;
use component::handler::{Call, Callee, Work};
use component::resilience::Backoff;
use component::resources::Resources;
use component::state::States;
use component::upstream::UpstreamPlan;
use expr::Expression;
use message::{Fault, Reply};
use steps::CallTarget;

use super::*;
use crate::settings::Payload;
use crate::source::Start;
use crate::testing::{memory, publication};
use crate::view::Mode;
use crate::webhooks::machine::{Order, Policy};
use crate::webhooks::plan::{Destination, Terms};
use crate::webhooks::state::{EndpointGroup, EndpointKind, EndpointState, Stored};

/// A worker whose receivers take everything.
#[derive(Clone, Default)]
struct Worker {
    resources: Rc<Resources>,
    /// How many requests there were.
    sent: Rc<Cell<usize>>,
}

impl Services for Worker {
    fn call<'a>(&'a self, _: Call<'a>) -> LocalFuture<'a, Result<Reply, Fault>> {
        self.sent.set(self.sent.get() + 1);
        Box::pin(async { Ok(Reply::new(200)) })
    }

    fn sleep(&self, time: Duration) -> LocalFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> Duration {
        Duration::from_secs(1_700_000_000)
    }

    fn random(&self) -> f64 {
        0.0
    }

    fn flow(&self, _: &str) -> Option<Arc<dyn Callee>> {
        None
    }

    fn spawn(&self, work: Work) {
        let worker = self.clone();
        tokio::task::spawn_local(async move { work(&worker).await });
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> LocalFuture<'static, ()> {
        work();
        Box::pin(std::future::ready(()))
    }

    fn resources(&self) -> &Resources {
        &self.resources
    }
}

fn policy() -> Policy {
    Policy {
        order: Order::All,
        concurrent: 1,
        batch: None,
        throttle: None,
        backoff: Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60)),
        times: 0,
        disable_after: 3_600_000,
        drops: false,
    }
}

/// An endpoint that has got nothing yet of the topic, as a file with these expressions has it.
fn endpoint(topic: &Topic, name: &str, filter: &str, select: &str) -> Arc<EndpointPlan> {
    let compile = |text: &str| {
        let scope = component::scope::Scope::default();
        Some(Expression::compile(text, &scope).unwrap())
    };
    let upstream = Arc::new(UpstreamPlan::single("receiver.example", 80, None));
    let target = CallTarget {
        plan: Arc::new(ForwardPlan::new(upstream, "/hook")),
        upstreams: Vec::new(),
    };
    let of = (topic.name(), topic.slot());
    let stored = Stored::at(topic.log().unwrap().id(0));
    let group = EndpointGroup::new(of, EndpointKind::Webhook);
    Arc::new(EndpointPlan {
        state: EndpointState::unlisted(&group, name.into(), stored),
        view: Arc::new(ViewPlan {
            mode: Mode::Event,
            filter: compile(filter),
            select: compile(select),
            key: None,
            cloudevents: None,
            source: "/topics/test".into(),
            result_max: 1 << 20,
            is_text: false,
        }),
        policy: Arc::new(policy()),
        destination: Destination::File {
            target: Box::new(target),
            signer: None,
            terms: Arc::new(Terms {
                timeout: Duration::from_secs(1),
                dead_letters: None,
                attempts: None,
                start: Start::Latest,
            }),
        },
    })
}

/// Publishes events to endpoints with these expressions until all have got all: what evaluating
/// them has cost, in rounds of about a thousand steps.
async fn rounds_of(expressions: &[(&str, &str)]) -> u64 {
    const EVENTS: usize = 5;
    let (topic, worker) = (memory(Payload::Event).await, Worker::default());
    let all = expressions.iter().enumerate();
    let files =
        all.map(|(at, (filter, select))| endpoint(&topic, &format!("e{at}"), filter, select));
    let hub = Hub::of(&States::default());
    let served = Served {
        topic: &topic,
        hub: &hub,
        files: files.collect(),
        managed: None,
        share: Share::WHOLE,
    };
    let driver = Driver::new(served, &worker).unwrap();
    let before = expr::jq::rounds();
    let work = async {
        for number in 0..EVENTS {
            topic
                .publish(publication(&number.to_string()))
                .await
                .unwrap();
        }
        while worker.sent.get() < EVENTS * expressions.len() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        () = driver.run(&worker, Box::pin(std::future::pending())) => panic!("it has ended"),
        () = work => {}
    }
    assert_eq!(worker.sent.get(), EVENTS * expressions.len());
    expr::jq::rounds() - before
}

/// An event costs an evaluation for each different view, however many endpoints have it.
#[tokio::test(flavor = "current_thread")]
async fn endpoints_with_the_same_expressions_share_their_evaluation() {
    // Some thousand steps each, so that they count.
    let costly = |more: &str| format!("(reduce range(3000) as $it (0; . + $it)) > 0 {more}");
    let (filter, other) = (costly(""), costly("and true"));
    let select = "{ value: . }";
    tokio::task::LocalSet::new()
        .run_until(async {
            let one = rounds_of(&[(&*filter, select)]).await;
            assert!(one >= 10, "{one}");
            assert_eq!(rounds_of(&[(&*filter, select); 50]).await, one);
            let mut two = vec![(&*filter, select); 25];
            two.extend([(&*other, select); 25]);
            assert_eq!(rounds_of(&two).await, 2 * one);
        })
        .await;
}
