//! What a connection counts.

use component::state::States;

use super::*;
use crate::counts::Counts;
use crate::settings::Payload;
use crate::testing::{endpoint_settings, memory};
use crate::websocket::session::Options;
use crate::websocket::testing::{FakeClient, FakeServices, Wire};

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
        let _endpoint = directory.put(&topic, endpoint_settings(&listen), counts);
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
