//! Lingering close (RFC 9112, section 9.6): a client's HTTP/1.1 connection that we end is read
//! until the client closes it too. Closing at once would answer what the client still sends with a
//! reset, and its kernel would throw away a reply that the client has not read yet: a refusal of an
//! upload that goes on, above all.
//!
//! Time bounds it, not bytes, as in nginx (`lingering_timeout`, `lingering_time`): an upload that
//! has been refused may be as large as it likes, and its client may look for the reply only when
//! all of it is sent.

use std::task::{Context, Poll};
use std::time::Duration;

use component::long_work::poll_yield;
use net::Connection;
use net::deadline::Deadline;
use tokio::time::Instant;

use crate::worker::Worker;

/// How long a client may take.
#[derive(Clone, Copy)]
struct Bounds {
    /// While it sends nothing.
    idle: Duration,
    /// In all.
    total: Duration,
    /// From when the engine stops.
    drain: Duration,
}

const BOUNDS: Bounds = Bounds {
    idle: Duration::from_secs(5),
    total: Duration::from_secs(30),
    drain: Duration::from_secs(2),
};

/// How often a connection is read before others have a turn.
const READS_MAX: usize = 16;

/// Begins with a connection whose end is written.
pub(crate) fn begin(deadline: &Deadline) {
    begin_within(deadline, BOUNDS);
}

fn begin_within(deadline: &Deadline, bounds: Bounds) {
    let now = Instant::now();
    deadline.lift();
    deadline.cap(now, bounds.total);
    deadline.set(now, bounds.idle);
}

/// Says that nothing more comes, then does what [`poll`] does. A client that reads nothing may hold
/// up the alert that says so over TLS (`close_notify`, RFC 8446, section 6.1), but not for longer
/// than it may be silent.
pub(crate) fn poll_end(
    connection: &mut Connection,
    is_finished: &mut bool,
    (deadline, worker): (&Deadline, &Worker),
    context: &mut Context<'_>,
) -> Poll<()> {
    if !*is_finished {
        match connection.poll_finish(context) {
            Poll::Ready(Ok(())) => *is_finished = true,
            Poll::Ready(Err(_)) => return Poll::Ready(()),
            Poll::Pending => return deadline.poll(context),
        }
    }
    poll(connection, deadline, worker, context)
}

/// Drops what the client sends. Ready when it has closed the connection, or its time is over.
pub(crate) fn poll(
    connection: &mut Connection,
    deadline: &Deadline,
    worker: &Worker,
    context: &mut Context<'_>,
) -> Poll<()> {
    if worker.is_draining() {
        deadline.cap(Instant::now(), BOUNDS.drain);
    }
    poll_discard(connection, deadline, BOUNDS, context)
}

fn poll_discard(
    connection: &mut Connection,
    deadline: &Deadline,
    bounds: Bounds,
    context: &mut Context<'_>,
) -> Poll<()> {
    // A deadline that is moved has not passed before the next sweep: the cap is looked at itself.
    if deadline.is_over() {
        return Poll::Ready(());
    }
    for read in 0..READS_MAX {
        let waiting = connection.input.len();
        connection.input.consume(waiting);
        match connection.poll_fill(context) {
            Poll::Ready(Ok(count)) if count > 0 => {}
            Poll::Ready(_) => return Poll::Ready(()),
            Poll::Pending => {
                if read > 0 {
                    deadline.set(Instant::now(), bounds.idle);
                }
                return deadline.poll(context);
            }
        }
    }
    poll_yield(context);
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::time::SystemTime;

    use component::resources::Share;
    use net::deadline::Deadlines;
    use net::tls::Identity;
    use testkit::Authority;
    use testkit::wire::{ClientTls, Wire};
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::worker::Engine;

    const SHORT: Bounds = Bounds {
        idle: Duration::from_millis(100),
        total: Duration::from_millis(500),
        drain: Duration::from_millis(50),
    };

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())
            .unwrap()
            .block_on(test);
    }

    /// Both ends of a connection.
    async fn pair() -> (TcpStream, (TcpStream, SocketAddr)) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        (stream, listener.accept().await.unwrap())
    }

    /// A client, and the time that its connection lingered.
    async fn linger(bounds: Bounds, client: impl AsyncFnOnce(TcpStream)) -> Duration {
        let (stream, (server, peer)) = pair().await;
        let mut connection = Connection::new(server, peer).unwrap();
        let deadlines = Deadlines::new();
        tokio::task::spawn_local(deadlines.clone().sweep());
        let deadline = deadlines.add();
        let begun = Instant::now();
        begin_within(&deadline, bounds);
        let mut client = std::pin::pin!(client(stream));
        let mut is_done = false;
        poll_fn(|context| {
            is_done = is_done || client.as_mut().poll(context).is_ready();
            poll_discard(&mut connection, &deadline, bounds, context)
        })
        .await;
        begun.elapsed()
    }

    #[test]
    fn a_client_may_send_as_much_as_it_likes() {
        run(async {
            let mut is_sent = false;
            linger(BOUNDS, async |mut stream: TcpStream| {
                stream.write_all(&vec![0; 64 << 20]).await.unwrap();
                is_sent = true;
            })
            .await;
            assert!(is_sent);
        });
    }

    #[test]
    fn a_client_that_does_not_stop_is_left_in_the_end() {
        run(async {
            let time = linger(SHORT, async |mut stream: TcpStream| {
                while stream.write_all(&[0; 1024]).await.is_ok() {
                    tokio::time::sleep(SHORT.idle / 10).await;
                }
            });
            assert!(time.await >= SHORT.total);
        });
    }

    #[test]
    fn a_client_that_is_silent_is_left_earlier() {
        run(async {
            let bounds = Bounds {
                total: Duration::from_secs(3600),
                ..SHORT
            };
            let time = linger(bounds, async |stream: TcpStream| {
                std::future::pending::<()>().await;
                drop(stream);
            });
            assert!(time.await >= bounds.idle);
        });
    }

    /// A connection over TLS whose client has shaken hands.
    async fn secure_pair() -> (Wire, Connection) {
        let authority = Authority::new("test");
        let issued = authority.issue(&["localhost"]);
        let (cert, key) = (issued.cert.as_bytes(), issued.key.as_bytes());
        let server = net::tls::Server::new(net::tls::ServerSettings {
            identities: vec![Identity::from_pem(cert, key, SystemTime::now()).unwrap()],
            client_auth: net::tls::ClientAuth::None,
            revoked: net::tls::RevocationLists::default(),
            protocols: vec![net::tls::Protocol::Http1],
            min_version: net::tls::MinVersion::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let tls = ClientTls::new(&authority, &["http/1.1"]);
        let connecting =
            tokio::task::spawn_local(async move { Wire::connect(port, Some(&tls)).await.unwrap() });
        let (accepted, peer) = listener.accept().await.unwrap();
        let mut connection = Connection::accept_tls(accepted, peer, &server.unwrap()).unwrap();
        poll_fn(|context| connection.poll_handshake(context))
            .await
            .unwrap();
        (connecting.await.unwrap(), connection)
    }

    /// Writes until the socket takes no more.
    async fn fill(connection: &mut Connection) {
        let mut written = 1;
        while written > 0 {
            written = 0;
            poll_fn(|context| {
                while let Poll::Ready(count) = connection.poll_write(context, &[0; 16_384]) {
                    written += count.unwrap();
                }
                Poll::Ready(())
            })
            .await;
            // The runtime has sockets refuse a task that has done much, too.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Nothing is left to be written but `close_notify`, and the socket takes no more.
    #[test]
    fn a_client_that_reads_nothing_does_not_hold_the_end_up() {
        run(async {
            let (client, mut connection) = secure_pair().await;
            fill(&mut connection).await;
            assert!(!connection.is_flushed());
            let worker = Worker::new(Share::WHOLE, Arc::new(Engine::new(None)));
            tokio::task::spawn_local(worker.deadlines.clone().sweep());
            let (deadline, mut is_finished) = (worker.deadlines.add(), false);
            let begun = Instant::now();
            begin_within(&deadline, SHORT);
            poll_fn(|context| {
                let owners = (&deadline, &*worker);
                poll_end(&mut connection, &mut is_finished, owners, context)
            })
            .await;
            let time = begun.elapsed();
            assert!(!is_finished, "the client cannot have been told");
            assert!(time >= SHORT.idle && time < BOUNDS.idle, "{time:?}");
            drop(client);
        });
    }

    /// Tasks that yield all the time must not keep the runtime from its sockets: it would look at
    /// them after 61 turns otherwise.
    #[test]
    fn sockets_are_looked_at_between_tasks_that_yield() {
        use std::cell::Cell;
        use std::io::Write;
        use std::rc::Rc;

        use tokio::io::AsyncReadExt;

        run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let mut peer = std::net::TcpStream::connect(address).unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            let has_come = Rc::new(Cell::new(false));
            let reader = Rc::clone(&has_come);
            tokio::task::spawn_local(async move {
                stream.read_u8().await.unwrap();
                reader.set(true);
            });
            let yielding = |has_come: &Rc<Cell<bool>>| {
                let has_come = Rc::clone(has_come);
                tokio::task::spawn_local(async move {
                    while !has_come.get() {
                        component::long_work::yield_now().await;
                    }
                })
            };
            let others = [yielding(&has_come), yielding(&has_come)];
            for _ in 0..200 {
                component::long_work::yield_now().await;
            }
            peer.write_all(b"a").unwrap();
            let mut turns = 0;
            while !has_come.get() {
                component::long_work::yield_now().await;
                turns += 1;
            }
            assert!(turns <= 5, "{turns} turns");
            for other in others {
                other.await.unwrap();
            }
        });
    }
}
