//! What a connection counts.

use component::state::States;

use super::*;
use crate::channel::{Pace, Policy};
use crate::counts::Counts;
use crate::endpoint::{Settings, WebSocket};
use crate::settings::Payload;
use crate::testing::memory;
use crate::view::Mode;
use crate::websocket::session::Options;
use crate::websocket::testing::{FakeClient, FakeServices, Wire};

fn settings(listen: &ListenAddress) -> Settings {
    Settings {
        listen: listen.clone(),
        modes: vec![Mode::Event],
        mode: Mode::Event,
        pace: Pace {
            heartbeat: 100,
            stalled_max: 100,
            bytes_max: 1 << 20,
            policy: Policy::Disconnect,
        },
        retry: std::time::Duration::from_secs(1),
        max_time: None,
        compression: false,
        origins: Vec::new(),
        connections: 10,
        allow_expressions: false,
        expression_limits: Default::default(),
        sse: true,
        websocket: Some(WebSocket {
            publish: true,
            window: None,
        }),
        is_axway: false,
    }
}

#[test]
fn a_client_that_publishes_without_end_may_subscribe_as_often_as_it_wants() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build_local(Default::default());
    runtime.unwrap().block_on(async {
        let directory = Directory::of(&States::default());
        let listen = ListenAddress {
            host: None,
            port: 1,
        };
        let topic = memory(Payload::Event).await;
        let counts = Arc::new(Counts::default());
        let _endpoint = directory.put(&topic, settings(&listen), counts);
        let scope = Scope {
            directory,
            listen,
            only: None,
            origin: Caller::of(&message::Request::of_source(
                "GET",
                message::Headers::new(),
                Vec::new(),
            )),
        };
        let (wire, services) = (Wire::new(), FakeServices::new());
        let options = Options {
            message_max: 1 << 20,
            deflate: None,
            ping: std::time::Duration::from_secs(60),
        };
        let session = Session::new(FakeClient::of(&wire), options);
        let mut connection = Connection::new(session, scope, None, &services);
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
