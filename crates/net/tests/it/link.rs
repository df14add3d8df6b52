//! An HTTP/2 connection without anybody who moves its bytes.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use net::Connection;
use net::http2::{Limits, Link, OpenError, RequestLine, Role, StreamError};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn the_streams_of_a_connection_that_lost_its_driver_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let socket = TcpStream::connect(address).await.unwrap();
    let connection = Connection::new(socket, address).unwrap();
    let (link, driver) = Link::new(connection, Role::Client, Limits::default(), Rc::default());
    let request = || RequestLine {
        method: b"GET",
        scheme: b"http",
        authority: b"a",
        path: b"/",
    };
    let stream = link.open(request(), [], true).unwrap();
    let waiting = poll_fn(|context| Poll::Ready(stream.poll_head(context).is_pending()));
    assert!(waiting.await);
    drop(driver);
    let head = poll_fn(|context| stream.poll_head(context)).await;
    assert!(matches!(head, Err(StreamError::Closed)));
    assert!(matches!(
        link.open(request(), [], true),
        Err(OpenError::Closed)
    ));
    assert!(link.is_over());
}
