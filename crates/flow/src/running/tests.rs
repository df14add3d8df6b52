//! Flows run with fake steps and a fake worker.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use component::forward::{FieldEdits, ForwardTimeouts, HostField};
use component::step::Step;
use message::{Headers, Kind, Method, Origin};

/// What a fake step does.
enum Fake {
    /// Appends this text to the body, at once.
    Append(&'static str),
    /// The same, after having waited once.
    AppendLater(&'static str),
    /// Ends the flow.
    Reply,
    /// Fails.
    Fail(Option<&'static str>),
    /// Does nothing and does not look at the body.
    Idle,
    /// Forwards.
    Forward(Arc<ForwardPlan>),
}

impl Step for Fake {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, _: &'a dyn Services) -> Progress<'a> {
        let append = |exchange: &mut Exchange, text: &str| {
            let mut bytes = exchange.request.body.as_bytes().to_vec();
            bytes.extend_from_slice(text.as_bytes());
            exchange.request.body = bytes.into();
            Ok(Next::Continue)
        };
        match self {
            Self::Append(text) => Progress::Done(append(exchange, text)),
            Self::AppendLater(text) => Progress::Waits(Box::pin(async move {
                wait_once().await;
                append(exchange, text)
            })),
            Self::Reply => Progress::Done(Ok(Next::Reply(exchange.take_reply(299)))),
            Self::Fail(cause) => {
                let fault = Fault::new(Kind::Invalid, Origin::Client, "no");
                Progress::Done(Err(match cause {
                    Some(cause) => fault.with_cause(cause),
                    None => fault,
                }))
            }
            Self::Idle | Self::Forward(_) => Progress::Done(Ok(Next::Continue)),
        }
    }

    fn reads_body(&self) -> bool {
        !matches!(self, Self::Idle)
    }

    fn forwards(&self) -> Option<&Arc<ForwardPlan>> {
        match self {
            Self::Forward(plan) => Some(plan),
            _ => None,
        }
    }

    fn ends_flow(&self) -> bool {
        matches!(self, Self::Reply)
    }
}

struct NoServices;

impl Services for NoServices {
    fn call<'a>(
        &'a self,
        _: &'a Arc<ForwardPlan>,
        _: &'a Request,
    ) -> LocalFuture<'a, Result<Reply, Fault>> {
        Box::pin(async {
            Err(Fault::new(
                Kind::Connection,
                Origin::Upstream,
                "no network here",
            ))
        })
    }
}

async fn wait_once() {
    let mut waited = false;
    std::future::poll_fn(move |_| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        Poll::Pending
    })
    .await;
}

fn finish<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..100 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
    panic!("the future never ends");
}

fn plan() -> Arc<ForwardPlan> {
    Arc::new(ForwardPlan {
        upstream: Arc::new(component::upstream::UpstreamPlan::single(
            "backend", 80, None,
        )),
        path: "/".into(),
        appends_rest: false,
        query: None,
        method: None,
        host_field: HostField::Target,
        x_forwarded: true,
        forwarded: false,
        via: None,
        request_fields: FieldEdits::default(),
        reply_fields: FieldEdits::default(),
        timeouts: ForwardTimeouts::default(),
    })
}

fn flow(steps: Vec<Fake>) -> RunningFlow {
    let built = steps.into_iter().enumerate().map(|(at, step)| BuiltStep {
        label: format!("{} (fake)", at + 1),
        step: Box::new(step),
    });
    RunningFlow::new("test".into(), built.collect())
}

fn run(steps: Vec<Fake>, body: &str) -> Result<Outcome, Fault> {
    let mut headers = Headers::new();
    headers.append("Content-Type", "text/plain");
    let request = Request {
        method: Method::Post,
        path: "/".into(),
        query: None,
        parameters: Vec::new(),
        headers,
        body: body.as_bytes().to_vec().into(),
        peer: [127, 0, 0, 1].into(),
        is_secure: false,
    };
    let flow = flow(steps);
    finish(flow.handle(request, &NoServices))
}

fn reply(steps: Vec<Fake>, body: &str) -> (u16, String) {
    match run(steps, body) {
        Ok(Outcome::Reply(reply)) => (
            reply.status,
            String::from_utf8_lossy(reply.body.as_bytes()).into_owned(),
        ),
        other => panic!("no reply: {other:?}"),
    }
}

#[test]
fn steps_run_in_order() {
    let steps = vec![
        Fake::Append("1"),
        Fake::AppendLater("2"),
        Fake::Idle,
        Fake::Append("3"),
    ];
    assert_eq!(reply(steps, "0"), (200, "0123".to_owned()));
}

#[test]
fn a_flow_without_reply_answers_with_the_body_or_with_nothing() {
    assert_eq!(reply(vec![Fake::Idle], "x"), (200, "x".to_owned()));
    assert_eq!(reply(vec![Fake::Idle], ""), (204, String::new()));
    let Ok(Outcome::Reply(reply)) = run(vec![Fake::Idle], "x") else {
        panic!()
    };
    assert_eq!(reply.headers.get("Content-Type"), Some(&b"text/plain"[..]));
}

#[test]
fn a_reply_ends_the_flow() {
    assert_eq!(
        reply(vec![Fake::Reply, Fake::Append("never")], "x"),
        (299, "x".to_owned())
    );
}

#[test]
fn a_last_step_that_forwards_hands_the_request_over() {
    let steps = vec![Fake::Append("!"), Fake::Forward(plan())];
    let Ok(Outcome::Forward(plan, request)) = run(steps, "x") else {
        panic!()
    };
    assert_eq!(plan.upstream.authority(), "backend");
    assert_eq!(request.body.as_bytes(), b"x!");
}

#[test]
fn a_fault_names_the_step_for_the_log_only() {
    let causes = [
        (None, "flow test, step 2 (fake)"),
        (Some("line 3"), "flow test, step 2 (fake): line 3"),
    ];
    for (cause, expected) in causes {
        let steps = vec![Fake::Idle, Fake::Fail(cause), Fake::Append("never")];
        let fault = run(steps, "x").unwrap_err();
        assert_eq!(fault.cause.as_deref(), Some(expected));
        assert_eq!(fault.detail, "no");
        assert_eq!(fault.status, 400);
    }
}

#[test]
fn the_body_is_read_only_when_something_needs_it() {
    let cases = [
        (vec![Fake::Idle, Fake::Forward(plan())], false),
        (vec![Fake::Append(""), Fake::Forward(plan())], true),
        (vec![Fake::Forward(plan()), Fake::Forward(plan())], true),
        (vec![Fake::Idle], true),
        (vec![Fake::Idle, Fake::Reply], true),
    ];
    for (at, (steps, reads)) in cases.into_iter().enumerate() {
        assert_eq!(flow(steps).reads_body(), reads, "case {at}");
    }
}
