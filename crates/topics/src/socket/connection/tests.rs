//! What a connection counts.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use component::state::States;

use super::*;
use crate::caller_limits::CallerLimits;
use crate::counts::Counts;
use crate::settings::Payload;
use crate::testing::{endpoint_settings, memory};
use crate::websocket::session::Options;
use crate::websocket::testing::{FakeClient, FakeServices, Wire};

/// A connection to all topics of a listener, which has this one.
fn connection<'a>(
    topic: &Arc<Topic>,
    wire: &Rc<Wire>,
    services: &'a FakeServices,
) -> Connection<'a> {
    let directory = Directory::of(&States::default());
    let listen = ListenAddress {
        host: None,
        port: 1,
    };
    let counts = Arc::new(Counts::default());
    let endpoint = directory.put(
        topic,
        (endpoint_settings(&listen), Default::default()),
        (counts, CallerLimits::default()),
    );
    // It is served as long as the test runs.
    std::mem::forget(endpoint);
    let scope = Scope {
        directory,
        listen,
        only: None,
        origin: origin::Caller::of(&Request::of_source(
            "GET",
            message::Headers::new(),
            Vec::new(),
        )),
        handshake: None,
        client: IpAddr::from([127, 0, 0, 1]),
        head: None,
        connection: OpenConnection::default(),
        verdicts: Rc::default(),
    };
    let options = Options {
        message_max: 1 << 20,
        deflate: None,
        ping: Duration::from_secs(60),
    };
    let session = Session::new(FakeClient::of(wire), options);
    Connection::new(session, scope, None, services)
}

#[test]
fn a_client_that_publishes_without_end_may_subscribe_as_often_as_it_wants() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build_local(Default::default());
    runtime.unwrap().block_on(async {
        let topic = memory(Payload::Event).await;
        let (wire, services) = (Wire::new(), FakeServices::new());
        let mut connection = connection(&topic, &wire, &services);
        // A publication that is always under way.
        connection.works.push(Box::pin(std::future::pending()));
        let mut said = Vec::new();
        for _ in 0..2 * TOPICS_MAX {
            for order in ["subscribe", "unsubscribe"] {
                wire.text(&format!(r#"{{"type":"{order}","topic":"test"}}"#));
                said.clear();
                while said.is_empty() {
                    poll_fn(|context| {
                        assert!(connection.poll(context).is_pending());
                        Poll::Ready(())
                    })
                    .await;
                    tokio::task::yield_now().await;
                    said = wire.texts();
                }
                assert!(said.iter().all(|it| !it.contains("error")), "{said:?}");
            }
        }
        assert!(said[0].contains("unsubscribed"), "{said:?}");
    });
}

/// Says whether a task has been woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls a connection, then again as often as it is woken.
async fn run(connection: &mut Connection<'_>) {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    loop {
        let polled = connection.poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        // Who gives way is woken when the runtime has looked at sockets.
        tokio::time::sleep(Duration::from_millis(1)).await;
        if !woken.0.swap(false, Ordering::Relaxed) {
            return;
        }
    }
}

/// Answers that wait hold a client back. It has to be read again once they are written, though
/// nothing else happens: no message, no answer, no timer.
#[test]
fn a_client_that_was_held_back_is_read_again_when_its_answers_are_written() {
    const COUNT: usize = 300;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build_local(Default::default());
    runtime.unwrap().block_on(async {
        let topic = memory(Payload::Event).await;
        let (wire, services) = (Wire::new(), FakeServices::new());
        let mut connection = connection(&topic, &wire, &services);
        let padding = "x".repeat(1000);
        for number in 0..COUNT {
            wire.text(&format!(r#"{{"type":"ping","ref":"{number} {padding}"}}"#));
        }
        wire.takes.set(0);
        run(&mut connection).await;
        // The client takes everything now, and the socket says so.
        wire.takes.set(usize::MAX);
        run(&mut connection).await;
        let pongs = wire.texts();
        assert_eq!(pongs.len(), COUNT);
        let is_it = |(number, pong): (usize, &String)| pong.contains(&format!("\"{number} x"));
        assert!(pongs.iter().enumerate().all(is_it));
    });
}
