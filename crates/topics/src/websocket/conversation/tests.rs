//! Conversations with a flow that answers what it is told to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use component::endpoint::Conversation as _;
use message::{Headers, Method};
use net::websocket::Event;

use super::super::testing::{FakeClient, FakeServices, Wire, poll};
use super::*;

/// A flow: `wait N` is answered when the test says so, `fail` fails, `nothing` gives nothing,
/// `bytes` gives bytes; anything else comes back.
#[derive(Default)]
struct Flow {
    detaches: AtomicBool,
    under_way: AtomicUsize,
    most: AtomicUsize,
    done: Mutex<HashMap<String, bool>>,
}

struct UnderWay<'a>(&'a Flow);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Flow {
    fn allow(&self, text: &str) {
        self.done.lock().unwrap().insert(text.to_owned(), true);
    }

    async fn answer(&self, request: Request) -> Result<Reply, Fault> {
        let now = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        let _under_way = UnderWay(self);
        let content_type = request.headers.get("Content-Type").unwrap().to_vec();
        let text = String::from_utf8_lossy(request.body.as_bytes()).into_owned();
        if text.starts_with("wait") {
            poll_fn(|_| match self.done.lock().unwrap().contains_key(&text) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
        }
        match text.as_str() {
            "fail" => Err(Fault::invalid("so not")),
            "nothing" => Ok(Reply::new(204)),
            "bytes" => Ok(Reply::with_content(
                200,
                "application/pdf",
                b"%PDF".to_vec(),
            )),
            _ => {
                let mut reply = Reply::new(200);
                reply.headers.append("Content-Type", content_type);
                reply.body = request.body;
                Ok(reply)
            }
        }
    }
}

impl Started for Flow {
    fn name(&self) -> &Arc<str> {
        unreachable!("nobody asks")
    }

    fn start<'a>(
        &'a self,
        request: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Reply, Fault>> {
        Box::pin(self.answer(request))
    }

    fn detaches(&self) -> bool {
        self.detaches.load(Ordering::Relaxed)
    }
}

fn conversation(concurrent: usize) -> Box<Conversation> {
    let mut headers = Headers::new();
    headers.append("X-Who", "me");
    Box::new(Conversation {
        head: Request {
            method: Method::Get,
            path: "/chat".into(),
            query: None,
            parameters: Vec::new(),
            headers,
            body: Body::Empty,
            peer: std::net::Ipv4Addr::LOCALHOST.into(),
            proxy: None,
            is_secure: false,
            certificate: None,
            caller: None,
        },
        options: Options {
            message_max: 100_000,
            deflate: None,
            ping: Duration::from_secs(30),
        },
        concurrent,
    })
}

/// Runs a conversation with a client that the test plays.
fn talk(concurrent: usize, flow: &Arc<Flow>, play: impl FnOnce(&Wire, &dyn Fn() -> bool)) {
    let (wire, services) = (Wire::new(), FakeServices::new());
    let feed = conversation(concurrent).with(Arc::clone(flow) as Arc<dyn Started>);
    let run = RefCell::new(feed.run(FakeClient::of(&wire), &services));
    let spawned: RefCell<Vec<LocalFuture<'_, ()>>> = RefCell::default();
    let services = &services;
    play(&wire, &|| {
        let mut spawned = spawned.borrow_mut();
        spawned.extend(
            services
                .works
                .borrow_mut()
                .drain(..)
                .map(|work| work(services)),
        );
        spawned.retain_mut(|work| poll(|context| work.as_mut().poll(context)).is_pending());
        poll(|context| run.borrow_mut().as_mut().poll(context)).is_ready()
    });
}

#[test]
fn each_message_is_answered_by_its_kind() {
    talk(1, &Arc::default(), |wire, run| {
        wire.text("hello");
        wire.text("");
        wire.send(|writer, out| writer.message(Kind::Binary, b"\xff\x00", out));
        wire.text("nothing");
        wire.text("bytes");
        wire.text("fail");
        assert!(!run());
        let events = wire.events();
        let text = |text: &'static str| Event::Message(Kind::Text, text.into());
        let binary = |bytes: &'static [u8]| Event::Message(Kind::Binary, bytes.into());
        assert_eq!(
            events[..4],
            [
                text("hello"),
                text(""),
                binary(b"\xff\x00"),
                binary(b"%PDF")
            ]
        );
        let Event::Message(Kind::Text, problem) = &events[4] else {
            panic!("{events:?}");
        };
        let problem: serde_json::Value = serde_json::from_slice(problem).unwrap();
        assert_eq!(
            (&problem["status"], &problem["detail"]),
            (&400.into(), &"so not".into())
        );
        assert_eq!(events.len(), 5);
        wire.send(|writer, out| writer.ping(b"?", out));
        assert!(!run());
        assert_eq!(wire.events(), [Event::Pong("?".into())]);
    });
}

#[test]
fn what_came_before_a_violation_is_answered() {
    talk(1, &Arc::default(), |wire, run| {
        wire.text("hello");
        wire.sent.borrow_mut().extend(b"\x91\x80\x00\x00\x00\x00");
        assert!(run());
        let texts = wire.texts();
        assert_eq!(texts[0], "hello");
        assert!(texts[1].contains("1002"), "{texts:?}");
    });
}

#[test]
fn a_client_that_reads_nothing_is_held_back() {
    talk(1, &Arc::default(), |wire, run| {
        wire.takes.set(0);
        for _ in 0..100 {
            wire.text(&"x".repeat(5000));
        }
        assert!(!run());
        for _ in 0..100 {
            wire.text("y");
        }
        assert!(!run());
        wire.takes.set(usize::MAX);
        let mut texts = 0;
        while texts < 200 {
            assert!(!run());
            let more = wire.texts().len();
            assert!(more > 0, "{texts}");
            texts += more;
        }
        assert_eq!(texts, 200);
    });
}

#[test]
fn one_at_a_time_keeps_the_order_and_reads_one_ahead() {
    let flow = Arc::new(Flow::default());
    talk(1, &flow, |wire, run| {
        for text in ["wait 1", "wait 2", "3"] {
            wire.text(text);
        }
        flow.allow("wait 2");
        assert!(!run());
        assert!(wire.events().is_empty());
        wire.text("4");
        assert!(!run());
        assert!(!wire.sent.borrow().is_empty(), "nobody reads further ahead");
        flow.allow("wait 1");
        assert!(!run());
        assert_eq!(wire.texts(), ["wait 1", "wait 2", "3", "4"]);
        assert_eq!(flow.most.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn many_at_a_time_are_answered_when_they_are_done() {
    let flow = Arc::new(Flow::default());
    talk(3, &flow, |wire, run| {
        for text in ["wait 1", "wait 2", "wait 3", "wait 4", "wait 5"] {
            wire.text(text);
        }
        assert!(!run());
        assert_eq!(flow.under_way.load(Ordering::Relaxed), 3);
        flow.allow("wait 3");
        flow.allow("wait 1");
        assert!(!run());
        assert_eq!(wire.texts(), ["wait 1", "wait 3"]);
        for text in ["wait 2", "wait 4", "wait 5"] {
            flow.allow(text);
        }
        assert!(!run());
        assert_eq!(wire.texts(), ["wait 2", "wait 4", "wait 5"]);
        assert_eq!(flow.most.load(Ordering::Relaxed), 3);
    });
}

#[test]
fn a_drain_answers_what_is_under_way() {
    let flow = Arc::new(Flow::default());
    talk(1, &flow, |wire, run| {
        wire.text("wait 1");
        wire.text("wait 2");
        assert!(!run());
        wire.stops.set(true);
        assert!(!run());
        assert!(wire.events().is_empty());
        flow.allow("wait 1");
        flow.allow("wait 2");
        wire.text("too late");
        assert!(!run());
        let texts = wire.texts();
        assert_eq!(texts[..2], ["wait 1", "wait 2"]);
        assert!(texts[2].contains("1001"), "{texts:?}");
        assert_eq!(texts.len(), 3);
        wire.send(|writer, out| writer.close(Some(CloseCode::GOING_AWAY), "", out));
        assert!(run());
        assert!(wire.is_finished.get());
    });
}

#[test]
fn a_close_waits_for_what_is_under_way() {
    let flow = Arc::new(Flow::default());
    talk(2, &flow, |wire, run| {
        wire.text("wait 1");
        wire.send(|writer, out| writer.close(Some(CloseCode::NORMAL), "", out));
        assert!(!run());
        assert!(wire.events().is_empty());
        flow.allow("wait 1");
        assert!(run());
        let texts = wire.texts();
        assert_eq!(texts[0], "wait 1");
        assert!(texts[1].contains("1000"), "{texts:?}");
    });
}

#[test]
fn what_is_under_way_ends_with_a_client_that_vanishes_unless_it_is_detached() {
    for detaches in [false, true] {
        let flow = Arc::new(Flow::default());
        flow.detaches.store(detaches, Ordering::Relaxed);
        talk(1, &flow, |wire, run| {
            wire.text("wait 1");
            assert!(!run());
            assert!(!run());
            assert_eq!(flow.under_way.load(Ordering::Relaxed), 1);
            wire.is_gone.set(true);
            assert!(run());
            let left = flow.under_way.load(Ordering::Relaxed);
            assert_eq!(left, usize::from(detaches));
        });
    }
    let flow = Arc::new(Flow::default());
    flow.detaches.store(true, Ordering::Relaxed);
    talk(1, &flow, |wire, run| {
        wire.text("hello");
        assert!(!run());
        assert!(!run());
        assert_eq!(wire.texts(), ["hello"]);
    });
}
