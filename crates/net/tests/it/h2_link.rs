//! Links over real sockets: what streams, handles and the driver's owner see of each other.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use net::Connection;
use net::http2::{
    Driver, Limits, Link, OpenError, RequestLine, Role, Stream, StreamError, Suspicion,
};
use net::pool::PoolWaker;
use net::stream_observer::StreamObserver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::*;

const LINE: RequestLine<'_> = RequestLine {
    method: b"POST",
    scheme: b"http",
    authority: b"a",
    path: b"/",
};

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .unwrap()
        .block_on(async { tokio::time::timeout(Duration::from_secs(30), test).await })
        .unwrap();
}

async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = TcpStream::connect(address).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

fn link(stream: TcpStream, role: Role, limits: Limits) -> (Link, Driver, Arc<PoolWaker>) {
    let address = stream.peer_addr().unwrap();
    let connection = Connection::new(stream, address).unwrap();
    let pool = Arc::<PoolWaker>::default();
    let queue = Rc::new(StreamObserver::waking(&pool));
    let (link, driver) = Link::new(connection, role, limits, queue);
    (link, driver, pool)
}

/// A server of raw frames that has sent its settings, and a client's link to it.
async fn raw() -> (TcpStream, Link, Driver, Arc<PoolWaker>) {
    let (client, mut server) = sockets().await;
    let settings = frame(SETTINGS, 0, 0, b"");
    server.write_all(&settings).await.unwrap();
    let (link, driver, queue) = link(client, Role::Client, Limits::default());
    (server, link, driver, queue)
}

/// Runs the driver; the task ends when it does.
fn spawn(mut driver: Driver) -> tokio::task::JoinHandle<()> {
    tokio::task::spawn_local(async move {
        while poll_fn(|context| driver.poll_next(context)).await.is_some() {}
    })
}

/// Runs the driver beside something else.
async fn beside<T>(driver: &mut Driver, other: impl Future<Output = T>) -> T {
    let mut other = Box::pin(other);
    poll_fn(|context| {
        let _ = driver.poll_next(context);
        other.as_mut().poll(context)
    })
    .await
}

async fn error(stream: &Stream) -> StreamError {
    poll_fn(|context| match stream.fate(context) {
        Some(error) => Poll::Ready(error),
        None => Poll::Pending,
    })
    .await
}

/// Whether the pool has been woken since the last time.
fn is_called(pool: &PoolWaker) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    pool.poll(&mut context).is_ready()
}

/// Reads frames until there is one of this kind.
async fn read_until(socket: &mut TcpStream, kind: u8) -> Vec<u8> {
    let mut input = Vec::new();
    loop {
        let start = if input.starts_with(PREFACE) {
            PREFACE.len()
        } else {
            0
        };
        let mut rest = input.get(start..).unwrap_or_default();
        while rest.len() >= 9 {
            let length = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
            if rest.len() < 9 + length {
                break;
            }
            if rest[3] == kind {
                return rest[9..9 + length].to_vec();
            }
            rest = &rest[9 + length..];
        }
        assert!(socket.read_buf(&mut input).await.unwrap() > 0);
    }
}

#[test]
fn a_suspected_link_takes_no_streams_until_something_comes() {
    run(async {
        let (mut server, link, mut driver, queue) = raw().await;
        let (stream, _) = link.open_with(LINE, [], b"", true).unwrap();
        is_called(&queue);
        link.suspect();
        assert!(is_called(&queue));
        assert_eq!(link.may_open(), Err(OpenError::Suspected));
        assert_eq!(link.open(LINE, [], true).unwrap_err(), OpenError::Suspected);
        assert!(!link.is_over() && driver.suspicion() == Some(Suspicion::Overdue(1)));
        // The stream goes on, and an answer to PING is as good as any frame.
        let ping = beside(&mut driver, read_until(&mut server, PING)).await;
        is_called(&queue);
        server.write_all(&frame(PING, 1, 0, &ping)).await.unwrap();
        let well = poll_fn(|context| {
            let _ = driver.poll_next(context);
            match driver.suspicion() {
                None => Poll::Ready(()),
                Some(_) => Poll::Pending,
            }
        });
        well.await;
        assert!(is_called(&queue) && link.may_open().is_ok());
        link.suspect();
        link.suspect();
        assert_eq!(driver.suspicion(), Some(Suspicion::Overdue(2)));
        let head = frame(HEADERS, 5, 1, b"\x88");
        server.write_all(&head).await.unwrap();
        let head = beside(&mut driver, poll_fn(|context| stream.poll_head(context)));
        assert_eq!(head.await.unwrap().status(), 200);
        assert!(driver.suspicion().is_none() && link.may_open().is_ok());
    });
}

#[test]
fn a_stream_that_is_given_up_before_anything_came_has_the_link_asked_for_a_sign_of_life() {
    run(async {
        let (mut server, link, mut driver, _queue) = raw().await;
        // The server's settings are something that arrives.
        let ping = frame(PING, 0, 0, b"settled?");
        server.write_all(&ping).await.unwrap();
        beside(&mut driver, read_until(&mut server, PING)).await;
        let stream = link.open(LINE, [], true).unwrap();
        beside(&mut driver, read_until(&mut server, HEADERS)).await;
        drop(stream);
        // Others may go on meanwhile: most of those who leave early are impatient.
        assert!(driver.suspicion() == Some(Suspicion::Probed(1)) && link.may_open().is_ok());
        let ping = beside(&mut driver, read_until(&mut server, PING)).await;
        let again = link.open(LINE, [], true).unwrap();
        drop(again);
        assert!(driver.suspicion() == Some(Suspicion::Probed(1)) && link.may_open().is_ok());
        server.write_all(&frame(PING, 1, 0, &ping)).await.unwrap();
        let well = poll_fn(|context| {
            let _ = driver.poll_next(context);
            match driver.suspicion() {
                None => Poll::Ready(()),
                Some(_) => Poll::Pending,
            }
        });
        well.await;
        // It has said that it lives. To be asked again and again is what servers of gRPC end a
        // connection for, unless they have sent a reply meanwhile.
        drop(link.open(LINE, [], true).unwrap());
        assert_eq!(driver.suspicion(), None);
        let answered = link.open(LINE, [], true).unwrap();
        let head = frame(HEADERS, 5, 7, b"\x88");
        server.write_all(&head).await.unwrap();
        let head = beside(&mut driver, poll_fn(|context| answered.poll_head(context)));
        assert_eq!(head.await.unwrap().status(), 200);
        drop(link.open(LINE, [], true).unwrap());
        assert_eq!(driver.suspicion(), Some(Suspicion::Probed(2)));
        // A reply that is overdue is another matter: it has a bound of its own.
        link.suspect();
        assert_eq!(driver.suspicion(), Some(Suspicion::Overdue(3)));
    });
}

#[test]
fn a_stream_that_is_given_up_behind_others_replies_asks_nothing() {
    run(async {
        let (mut server, link, mut driver, _queue) = raw().await;
        let (given_up, answered) = (link.open(LINE, [], true), link.open(LINE, [], true));
        let (given_up, answered) = (given_up.unwrap(), answered.unwrap());
        server
            .write_all(&frame(HEADERS, 5, 3, b"\x88"))
            .await
            .unwrap();
        let head = beside(&mut driver, poll_fn(|context| answered.poll_head(context)));
        assert_eq!(head.await.unwrap().status(), 200);
        drop((given_up, answered));
        assert_eq!(driver.suspicion(), None);
    });
}

#[test]
fn a_link_whose_server_goes_away_tells_so_at_once_and_ends_with_its_last_stream() {
    run(async {
        let (mut server, link, driver, queue) = raw().await;
        let stream = link.open(LINE, [], true).unwrap();
        is_called(&queue);
        let goaway = frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
        server.write_all(&goaway).await.unwrap();
        let driving = spawn(driver);
        while !link.is_over() {
            tokio::task::yield_now().await;
        }
        assert!(is_called(&queue));
        server
            .write_all(&frame(HEADERS, 4, 1, b"\x88"))
            .await
            .unwrap();
        poll_fn(|context| stream.poll_head(context)).await.unwrap();
        assert!(!driving.is_finished());
        drop(stream);
        // The server never closes.
        driving.await.unwrap();
    });
}

#[test]
fn streams_end_with_the_driver() {
    run(async {
        let (_server, link, mut driver, queue) = raw().await;
        let stream = link.open(LINE, [], true).unwrap();
        is_called(&queue);
        beside(&mut driver, tokio::task::yield_now()).await;
        drop(driver);
        assert_eq!(error(&stream).await, StreamError::Closed);
        assert!(link.is_over() && is_called(&queue));
    });
}

#[test]
fn streams_end_with_an_error_of_the_connection_though_nothing_can_be_written() {
    run(async {
        let (mut server, link, driver, _) = raw().await;
        // Windows without end, and nothing is read.
        let windows = [
            frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]),
            frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]),
        ]
        .concat();
        server.write_all(&windows).await.unwrap();
        let stream = link.open(LINE, [], false).unwrap();
        let driving = spawn(driver);
        let piece = vec![0; 64 * 1024];
        let filled = tokio::time::timeout(Duration::from_millis(300), async {
            loop {
                let sent = poll_fn(|context| {
                    assert!(stream.fate(context).is_none());
                    match stream.send(&piece, false).unwrap() {
                        0 => Poll::Pending,
                        count => Poll::Ready(count),
                    }
                });
                sent.await;
            }
        });
        assert!(filled.await.is_err());
        server
            .write_all(&frame(SETTINGS, 0, 0, b"odd"))
            .await
            .unwrap();
        assert_eq!(error(&stream).await, StreamError::Closed);
        assert!(link.is_over() && !driving.is_finished());
    });
}

#[test]
fn heads_above_the_limits_are_told_apart() {
    run(async {
        let (mut server, link, driver, _) = raw().await;
        let stream = link.open(LINE, [], true).unwrap();
        let block = [b"\x88".as_slice(), &b"\x00\x01x\x01y".repeat(200)].concat();
        server
            .write_all(&frame(HEADERS, 5, 1, &block))
            .await
            .unwrap();
        spawn(driver);
        let head = poll_fn(|context| stream.poll_head(context)).await;
        assert_eq!(head.unwrap_err(), StreamError::TooLarge);
        assert!(link.may_open().is_ok());
    });
}

#[test]
fn a_request_and_its_body_go_out_in_one_write() {
    run(async {
        let (mut server, link, driver, _) = raw().await;
        spawn(driver);
        // Until the settings are there.
        read_until(&mut server, SETTINGS).await;
        tokio::task::yield_now().await;
        let before = link.batches();
        let (stream, taken) = link.open_with(LINE, [], b"body", true).unwrap();
        assert_eq!(taken, 4);
        assert!(stream.send(b"x", false).is_err(), "it has ended");
        assert_eq!(read_until(&mut server, DATA).await, b"body");
        let after = link.batches();
        assert_eq!(after.frames - before.frames, 2);
        assert!(after.writes - before.writes <= 1 + 1, "{after:?}");
        // What the window has no room for is left to the caller.
        let large = vec![0; 100_000];
        let (stream, taken) = link.open_with(LINE, [], &large, true).unwrap();
        assert!((60_000..65_536).contains(&taken), "{taken}");
        assert_eq!(stream.send(&large[taken..], true), Ok(0));
    });
}

/// A server that answers every request at once, with a field of this value.
async fn answer_all(mut driver: Driver, value: &'static str) {
    while let Some(stream) = poll_fn(|context| driver.poll_next(context)).await {
        tokio::task::spawn_local(async move {
            stream.take_head().unwrap();
            stream.respond(200, [line("x", value)], true).unwrap();
        });
    }
}

#[test]
fn many_requests_go_out_in_few_writes_and_all_are_answered() {
    run(async {
        let (client, server) = sockets().await;
        let (server, server_driver, _) = link(server, Role::Server, Limits::default());
        let (link, driver, _) = link(client, Role::Client, Limits::default());
        tokio::task::spawn_local(answer_all(server_driver, ""));
        spawn(driver);
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let link = link.clone();
                tokio::task::spawn_local(async move {
                    for _ in 0..100 {
                        let (stream, _) = link.open_with(LINE, [], b"", true).unwrap();
                        let head = poll_fn(|context| stream.poll_head(context)).await;
                        assert_eq!(head.unwrap().status(), 200);
                        drop(stream);
                        // Not all of them keep step.
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let (requests, answers) = (link.batches(), server.batches());
        println!("requests {requests:?}, answers {answers:?}");
        assert_eq!(requests.frames, 10_000);
        assert!(requests.writes < 10_000 / 8, "{requests:?}");
        assert!(answers.writes < 10_000 / 8, "{answers:?}");
        assert!(link.is_idle() && server.is_idle());
    });
}

#[test]
fn a_lone_request_is_written_without_a_detour() {
    run(async {
        let (mut server, link, mut driver, _) = raw().await;
        beside(&mut driver, read_until(&mut server, SETTINGS)).await;
        let before = link.batches().writes;
        let _stream = link.open(LINE, [], true).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        assert!(driver.poll_next(&mut context).is_pending());
        assert_eq!(link.batches().writes, before + 1);
        // A second one lets others go first, once.
        let _second = link.open(LINE, [], true).unwrap();
        assert!(driver.poll_next(&mut context).is_pending());
        assert_eq!(link.batches().writes, before + 1);
        assert!(driver.poll_next(&mut context).is_pending());
        assert_eq!(link.batches().writes, before + 2);
    });
}

/// Answers with the request's body.
async fn echo(stream: Stream) -> Option<()> {
    stream.take_head()?;
    stream.respond(200, [], false).ok()?;
    send_back(&stream).await
}

/// Sends a stream's body back to its end.
async fn send_back(stream: &Stream) -> Option<()> {
    poll_fn(|context| {
        loop {
            let (bytes, end) = stream.read(|bytes, end| (0, (bytes.to_vec(), end)));
            let Ok(count) = stream.send(&bytes, end) else {
                return Poll::Ready(None);
            };
            stream.read(|_, _| (count, ()));
            if end && count == bytes.len() {
                return Poll::Ready(Some(()));
            }
            if count == 0 {
                return match stream.fate(context) {
                    Some(_) => Poll::Ready(None),
                    None => Poll::Pending,
                };
            }
        }
    })
    .await
}

/// Sends a body and reads the same back.
async fn exchange(link: &Link, length: usize) -> Option<usize> {
    let body = vec![5; length];
    let (stream, mut sent) = link.open_with(LINE, [], &body, true).ok()?;
    let (mut received, mut has_head) = (0, false);
    poll_fn(|context| {
        if sent < length {
            match stream.send(&body[sent..], true) {
                Ok(count) => sent += count,
                Err(_) => return Poll::Ready(None),
            }
        }
        has_head = has_head || stream.take_head().is_some();
        let end = stream.read(|bytes, end| {
            received += bytes.len();
            (bytes.len(), end)
        });
        match stream.fate(context) {
            _ if end => Poll::Ready(Some(received)),
            Some(_) => Poll::Ready(None),
            None => Poll::Pending,
        }
    })
    .await
}

/// Polls a future so many times at most, then drops it.
async fn give_up_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = Box::pin(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

#[test]
fn a_stream_may_be_dropped_at_every_await_on_either_side() {
    const LENGTH: usize = 300_000;
    run(async {
        let (client, server) = sockets().await;
        let (server, mut server_driver, _) = link(server, Role::Server, Limits::default());
        let (link, driver, _) = link(client, Role::Client, Limits::default());
        spawn(driver);
        let give_up = Rc::new(Cell::new(usize::MAX));
        let polls = Rc::clone(&give_up);
        tokio::task::spawn_local(async move {
            while let Some(stream) = poll_fn(|context| server_driver.poll_next(context)).await {
                let polls = polls.get();
                tokio::task::spawn_local(async move {
                    give_up_after(polls, echo(stream)).await;
                });
            }
        });
        let mut cut = [0, 0];
        for polls in 0..40 {
            // A client that gives up, and a server that does; each beside one that does not.
            let given_up = give_up_after(polls, exchange(&link, LENGTH)).await;
            cut[0] += usize::from(given_up.is_none());
            give_up.set(polls);
            let broken = exchange(&link, LENGTH).await;
            cut[1] += usize::from(broken.is_none());
            give_up.set(usize::MAX);
            assert_eq!(exchange(&link, LENGTH).await, Some(LENGTH));
        }
        assert!(cut.iter().all(|count| (5..40).contains(count)), "{cut:?}");
        while !link.is_idle() || !server.is_idle() {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_client_that_asks_and_does_not_read_is_not_read_any_more() {
    run(async {
        let (mut client, server) = sockets().await;
        let limits = Limits {
            control_frames: u32::MAX,
            ..Limits::default()
        };
        let (server, driver, _) = link(server, Role::Server, limits);
        let value = "v".repeat(2000).leak();
        tokio::task::spawn_local(answer_all(driver, value));
        client.write_all(PREFACE).await.unwrap();
        client.write_all(&frame(SETTINGS, 0, 0, b"")).await.unwrap();
        // Answers without a body use no window.
        let mut wanted = 0;
        for round in 0.. {
            assert!(round < 1000, "it is read for ever");
            // No more than may be open at a time.
            let first = 1 + round * 200;
            let batch: Vec<u8> = (0..100)
                .flat_map(|number| frame(HEADERS, 5, first + 2 * number, GET))
                .collect();
            wanted += 100;
            let answered = async {
                client.write_all(&batch).await.unwrap();
                while server.batches().frames < wanted {
                    tokio::task::yield_now().await;
                }
            };
            let time = Duration::from_millis(300);
            if tokio::time::timeout(time, answered).await.is_err() {
                break;
            }
        }
        // Once it reads, it is read again.
        let mut buffer = vec![0; 64 * 1024];
        while server.batches().frames < wanted {
            assert!(client.read(&mut buffer).await.unwrap() > 0);
        }
    });
}

#[test]
fn a_driver_lets_others_go_first_however_small_the_frames_are() {
    thread_local! {
        static TURNS: Cell<usize> = const { Cell::new(0) };
    }
    const FRAMES: usize = 40_000;
    run(async {
        let (mut server, link, mut driver, _) = raw().await;
        net::budget::yield_by(|context| {
            TURNS.set(TURNS.get() + 1);
            context.waker().wake_by_ref();
        });
        let stream = link.open(LINE, [], true).unwrap();
        beside(&mut driver, read_until(&mut server, HEADERS)).await;
        let frames = [
            frame(HEADERS, END_HEADERS, 1, b"\x88"),
            frame(DATA, 0, 1, b"").repeat(FRAMES),
            frame(DATA, END_STREAM, 1, b""),
        ]
        .concat();
        let written = tokio::task::spawn_local(async move {
            server.write_all(&frames).await.unwrap();
            server
        });
        let ended = poll_fn(|context| match stream.read(|_, is_end| (0, is_end)) {
            true => Poll::Ready(()),
            false => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        });
        beside(&mut driver, ended).await;
        written.await.unwrap();
        // A read of 16 KiB holds 1,820 frames, and a turn ends with it.
        let turns = TURNS.get();
        assert!((FRAMES / 4000..FRAMES / 500).contains(&turns), "{turns}");
    });
}
