//! What a broker may do to a channel, without a socket.

use std::future::Future;
use std::pin::pin;

use amqp::{Event, Properties};
use bytes::Bytes;

use super::*;
use crate::rabbitmq::connection::DEFINITION;
use crate::testing::connect;

/// A connection that is being made.
fn connecting() -> Rc<Hub> {
    let broker = connect(&DEFINITION, "{ rabbitmq: 'amqp://mq' }").unwrap();
    Rc::new(Hub {
        broker: broker.downcast().unwrap(),
        inner: RefCell::new(Inner::new()),
    })
}

/// A connection that is open.
fn hub() -> Rc<Hub> {
    let hub = connecting();
    hub.opened(Tuned {
        channel_max: 10,
        frame_max: 131_072,
        heartbeat: 0,
    });
    hub
}

/// Sends a question, or a message that is none.
fn send(hub: &Rc<Hub>, call: Option<u64>) -> Pending {
    let (place, properties) = (("".into(), "q".to_owned()), Properties::default());
    let mut message = Outgoing::new(place, true, &properties, Bytes::new()).unwrap();
    message.call = call;
    hub.publish(message).unwrap()
}

/// Sends a message with this body, when there is room for it.
fn send_body(hub: &Rc<Hub>, body: &Bytes) -> Result<Pending, Fault> {
    let (place, properties) = (("".into(), "q".to_owned()), Properties::default());
    hub.publish(Outgoing::new(place, true, &properties, body.clone()).unwrap())
}

/// What has become of a message, when it is known.
fn outcome(pending: &mut Pending) -> Option<Result<(), Fault>> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(pending).poll(&mut context) {
        Poll::Ready(outcome) => Some(outcome.map(drop)),
        Poll::Pending => None,
    }
}

fn tell(hub: &Hub, channel: u16, method: Method<'_>) -> Option<u16> {
    match hub.take(Event::Method(channel, method)) {
        Ok(over) => over,
        Err(_) => panic!("the connection is over"),
    }
}

/// Messages would wait for ever for a connection that nobody looks after.
#[test]
fn a_panic_of_the_task_that_owns_the_socket_is_reported() {
    let (lost, mut reported) = tokio::sync::mpsc::unbounded_channel();
    component::vital::on_loss(move |name| lost.send(name).unwrap());
    let broker = connect(&DEFINITION, "{ rabbitmq: 'amqp://127.0.0.1:1' }").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .unwrap();
    let broker = broker.downcast().unwrap();
    let hub = runtime.block_on(async { Hub::start(&broker) });
    // What is borrowed already cannot be borrowed again.
    let inner = hub.inner.borrow_mut();
    let name = runtime.block_on(async { reported.recv().await });
    assert_eq!(name, Some("connection to RabbitMQ"));
    drop(inner);
}

#[test]
fn a_channel_whose_consumer_of_replies_is_cancelled_is_used_no_more() {
    let hub = hub();
    let mut first = send(&hub, Some(1));
    let mut second = send(&hub, Some(2));
    // The first one is confirmed and waits for its reply.
    let ack = || Method::BasicAck {
        tag: 1,
        multiple: false,
    };
    tell(&hub, 1, ack());
    assert!(outcome(&mut first).is_none());
    tell(&hub, 1, Method::BasicCancel(b"replies"));
    for pending in [&mut first, &mut second] {
        let fault = outcome(pending).unwrap().unwrap_err();
        assert_eq!(fault.name(), "nack");
    }
    let counted = hub.inner.borrow().publishers.unconfirmed();
    assert_eq!(counted, (0, 0));
    // The next question goes to another channel, also when the number is free again.
    let mut third = send(&hub, Some(3));
    let mut plain = send(&hub, None);
    let uses = [1, 2, 3].map(|channel| hub.inner.borrow().use_of(channel));
    assert_eq!(uses, [Use::Closing, Use::Publisher(0), Use::Publisher(1)]);
    assert_eq!(tell(&hub, 1, Method::ChannelCloseOk), Some(1));
    tell(&hub, 3, ack());
    assert!(outcome(&mut plain).unwrap().is_ok());
    assert!(outcome(&mut third).is_none());
}

/// A connection is made for the first message. What comes in the same moment, such as the replies
/// of thousands of slow calls, must not fail because the broker takes a while to greet.
#[test]
fn a_burst_waits_for_the_first_connection_until_its_bytes_are_too_many() {
    let (hub, body) = (connecting(), Bytes::from_static(&[b'x'; 256]));
    let waiting: Vec<_> = (0..20_000).map(|_| send_body(&hub, &body)).collect();
    assert!(waiting.iter().all(Result::is_ok));
    let large = Bytes::from(vec![b'x'; 2 << 20]);
    let refused = send_body(&hub, &large).err().unwrap();
    assert_eq!(refused.kind, Kind::Unavailable);
    let cause = refused.cause.as_deref().unwrap();
    assert!(cause.contains("too many messages wait for the broker"));
    drop(waiting);
    assert!(send_body(&hub, &large).is_ok());
}
