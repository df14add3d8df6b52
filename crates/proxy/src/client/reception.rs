//! The first moments of a client connection: TLS is agreed on, and which protocol is spoken.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use net::Connection;
use net::deadline::Deadline;
use net::tls::Protocol;
use tokio::time::Instant;

use crate::client::h2_session;
use crate::client::session::Session;
use crate::stream::HandOver;
use crate::worker::{Listener, Worker};

/// How an HTTP/2 connection begins (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Takes a new connection in and serves it to its end, or until a stream takes it over.
pub(crate) async fn receive(
    worker: Rc<Worker>,
    listener: Rc<Listener>,
    client: Connection,
) -> Option<HandOver> {
    let mut client = client;
    let (takes_h1, takes_h2) = listener.takes();
    let protocol = if client.is_tls() {
        let deadline = worker.deadlines.add();
        if !shake_hands(&worker, &mut client, &deadline).await {
            return None;
        }
        client.protocol().unwrap_or(Protocol::Http1)
    } else if takes_h2 {
        let deadline = worker.deadlines.add();
        match first_words(&worker, &listener, &mut client, &deadline).await {
            Some(protocol) => protocol,
            None => return None,
        }
    } else {
        Protocol::Http1
    };
    match protocol {
        Protocol::Http2 if takes_h2 => {
            h2_session::serve(worker, listener, client).await;
            None
        }
        // A listener for HTTP/2 alone has nothing to say in HTTP/1.1.
        Protocol::Http1 if takes_h1 => Session::new(worker, listener, client).run().await,
        _ => None,
    }
}

/// False when there is no agreement.
async fn shake_hands(worker: &Worker, client: &mut Connection, deadline: &Deadline) -> bool {
    deadline.set(Instant::now(), worker.settings().timeouts.head);
    let result = poll_fn(|context| {
        if let Poll::Ready(result) = client.poll_handshake(context) {
            return Poll::Ready(Some(result));
        }
        deadline.poll(context).map(|()| None)
    });
    let cause = match result.await {
        Some(Ok(())) => {
            if client.is_resumed() {
                worker.metrics.tls_resumptions.add(1);
            }
            return true;
        }
        Some(Err(error)) => error.to_string(),
        None => "it took too long".to_owned(),
    };
    worker.metrics.handshake_failures.add(1);
    let peer = client.peer();
    tracing::debug!(target: "proxy", %peer, cause, "no TLS with a client");
    false
}

/// Which protocol a client in clear text begins with; none when it leaves or says nothing.
async fn first_words(
    worker: &Worker,
    listener: &Listener,
    client: &mut Connection,
    deadline: &Deadline,
) -> Option<Protocol> {
    deadline.set(Instant::now(), worker.settings().timeouts.idle);
    let mut has_begun = false;
    poll_fn(|context| {
        loop {
            let bytes = client.input.bytes();
            let known = bytes.len().min(PREFACE.len());
            if bytes.get(..known) != PREFACE.get(..known) {
                return Poll::Ready(Some(Protocol::Http1));
            }
            if known == PREFACE.len() {
                return Poll::Ready(Some(Protocol::Http2));
            }
            if known > 0 && !std::mem::replace(&mut has_begun, true) {
                deadline.set(Instant::now(), worker.settings().timeouts.head);
            }
            let is_over = worker.is_draining() || listener.is_closed();
            match client.poll_fill(context) {
                Poll::Ready(Ok(count)) if count > 0 => {}
                Poll::Ready(_) => return Poll::Ready(None),
                // Whoever has said nothing is not waiting for anything.
                Poll::Pending if is_over && known == 0 => return Poll::Ready(None),
                Poll::Pending => return deadline.poll(context).map(|()| None),
            }
        }
    })
    .await
}
