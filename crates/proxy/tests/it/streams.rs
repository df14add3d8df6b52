//! Replies that go on: what their feeds and their clients see of each other.

use std::future::poll_fn;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::plan::RouteTarget;
use component::settings::Settings;
use component::stream::{Client, Feed, poll_gone, write_all};
use component::stream_limits::{StreamLimits, StreamSettings};
use message::{Body, Fault, Headers, Reply, Request};
use net::http2::{Limits, Link, RequestLine, Role};
use testkit::wire::{ClientTls, Wire};
use testkit::{Authority, RawClient, wait_until};
use tokio::time::timeout;

use crate::support::{Proxy, short};

type Run = Arc<dyn Fn(Box<dyn Client>) -> LocalFuture<'static, ()> + Send + Sync>;

/// A handler whose replies go on.
struct Streaming {
    status: u16,
    run: Run,
    limits: Option<Arc<StreamLimits>>,
}

struct Running(Run);

impl Feed for Running {
    fn run<'a>(
        self: Box<Self>,
        client: Box<dyn Client>,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, ()> {
        (self.0)(client)
    }
}

impl Handler for Streaming {
    fn reads_body(&self) -> bool {
        false
    }

    fn stream_limits(&self) -> Option<&Arc<StreamLimits>> {
        self.limits.as_ref()
    }

    fn handle<'a>(
        &'a self,
        _: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        let mut headers = Headers::new();
        headers.append("Content-Type", "text/event-stream");
        headers.append("Content-Length", "7");
        headers.append("Upgrade", "websocket");
        let reply = Reply {
            status: self.status,
            headers,
            body: Body::Empty,
        };
        let feed = Box::new(Running(Arc::clone(&self.run)));
        Box::pin(async { Ok(Outcome::Stream(reply, feed)) })
    }
}

fn streaming(
    status: u16,
    run: impl Fn(Box<dyn Client>) -> LocalFuture<'static, ()> + Send + Sync + 'static,
) -> Streaming {
    Streaming {
        status,
        run: Arc::new(run),
        limits: None,
    }
}

/// Writes what belongs to the client's framing and ends properly.
fn greeting(mut client: Box<dyn Client>) -> LocalFuture<'static, ()> {
    Box::pin(async move {
        let bytes: &[u8] = match client.is_chunked() {
            true => b"2\r\nhi\r\n",
            false => b"hi",
        };
        write_all(&mut *client, bytes).await.unwrap();
        poll_fn(|context| client.poll_finish(context))
            .await
            .unwrap();
    })
}

/// Waits until the client has left or is asked to stop.
fn waiting(left: &Arc<AtomicUsize>) -> Streaming {
    let left = Arc::clone(left);
    streaming(200, move |mut client| {
        let left = Arc::clone(&left);
        Box::pin(async move {
            let stopped = poll_fn(|context| {
                if client.poll_stop(context).is_ready() {
                    return Poll::Ready(true);
                }
                poll_gone(&mut *client, context).map(|()| false)
            });
            if stopped.await {
                let _ = poll_fn(|context| client.poll_finish(context)).await;
            } else {
                left.fetch_add(1, Ordering::SeqCst);
            }
        })
    })
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_stream_has_chunks_and_the_connection_takes_another_request() {
    let proxy = Proxy::handle(streaming(200, greeting));
    let mut client = proxy.client();
    for at in 1..=3 {
        client.send(GET);
        let response = client.response();
        assert_eq!((response.status, response.text().as_str()), (200, "hi"));
        assert_eq!(response.header("transfer-encoding"), Some("chunked"));
        assert_eq!(response.header("content-length"), None);
        assert_eq!(response.header("upgrade"), None);
        assert_eq!(response.header("connection"), None);
        assert!(response.header("date").is_some());
        let metrics = proxy.metrics();
        wait_until("it is counted", || metrics.streams_closed.get() == at);
        assert_eq!(metrics.finished[2].get(), at);
    }
    // One behind the other: what the client sends ahead is not lost.
    client.send([GET, GET].concat());
    assert_eq!(client.response().text(), "hi");
    assert_eq!(client.response().text(), "hi");
    proxy.wait_until_idle_after(client);
    assert_eq!(proxy.metrics().streams_open(), 0);
}

#[test]
fn an_old_client_gets_bytes_until_the_end_and_head_gets_the_head() {
    let proxy = Proxy::handle(streaming(200, greeting));
    let mut old = proxy.client();
    old.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let text = String::from_utf8(old.rest()).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(!head.to_ascii_lowercase().contains("transfer-encoding"));
    assert!(head.contains("Connection: close"));
    assert_eq!(body, "hi");
    let mut client = proxy.client();
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.response_to("HEAD");
    assert_eq!(response.status, 200);
    client.send(GET);
    assert_eq!(client.response().text(), "hi");
    proxy.wait_until_idle_after(client);
}

#[test]
fn a_request_that_is_not_whole_ends_with_its_stream() {
    let proxy = Proxy::handle(streaming(200, greeting));
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    let response = client.response();
    assert_eq!(response.header("connection"), Some("close"));
    assert_eq!(response.text(), "hi");
    assert!(client.is_closed());
}

#[test]
fn what_follows_a_handshake_is_input_from_the_beginning() {
    let echo = streaming(101, |mut client: Box<dyn Client>| {
        Box::pin(async move {
            assert!(!client.is_chunked());
            let ahead = client.input().to_vec();
            assert_eq!(ahead, b"ahead", "it was there before anything was read");
            while client.input().len() < 11 {
                poll_fn(|context| client.poll_fill(context)).await.unwrap();
            }
            let said = client.input().to_vec();
            client.consume(said.len());
            write_all(&mut *client, &said).await.unwrap();
            poll_fn(|context| client.poll_finish(context))
                .await
                .unwrap();
        })
    });
    let proxy = Proxy::handle(echo);
    let mut client = proxy.client();
    client.send(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nahead",
    );
    let response = client.response();
    assert_eq!(response.status, 101);
    assert_eq!(response.header("upgrade"), Some("websocket"));
    assert_eq!(response.header("connection"), Some("Upgrade"));
    client.send(" later");
    assert_eq!(client.rest(), b"ahead later");
    proxy.wait_until_idle_after(client);
    assert_eq!(proxy.metrics().finished[1].get(), 1);
}

#[test]
fn a_feed_that_only_waits_learns_that_its_client_has_left() {
    let left = Arc::new(AtomicUsize::new(0));
    let proxy = Proxy::handle(waiting(&left));
    let mut clients: Vec<RawClient> = (0..3).map(|_| proxy.client()).collect();
    for client in &mut clients {
        client.send(GET);
        client.until(b"\r\n\r\n");
    }
    wait_until("all are open", || proxy.metrics().streams_open() == 3);
    assert_eq!(left.load(Ordering::SeqCst), 0);
    drop(clients);
    wait_until("all have left", || left.load(Ordering::SeqCst) == 3);
    proxy.wait_until_idle();
}

#[test]
fn a_feed_that_gives_up_cuts_the_stream() {
    let proxy = Proxy::handle(streaming(200, |mut client: Box<dyn Client>| {
        Box::pin(async move {
            write_all(&mut *client, b"2\r\nhi\r\n").await.unwrap();
        })
    }));
    let mut client = proxy.client();
    client.send(GET);
    client.until(b"\r\n\r\n");
    assert_eq!(client.rest(), b"2\r\nhi\r\n", "there is no last chunk");
}

#[test]
fn the_drain_and_a_reload_ask_feeds_to_stop() {
    for reloads in [true, false] {
        let proxy = Proxy::handle(waiting(&Arc::default()));
        let mut client = proxy.client();
        client.send(GET);
        client.until(b"\r\n\r\n");
        wait_until("it is open", || proxy.metrics().streams_open() == 1);
        if reloads {
            proxy.serve_nothing();
        } else {
            proxy.drain();
        }
        assert_eq!(client.rest(), b"0\r\n\r\n", "it ends properly");
        if !reloads {
            proxy.join();
        }
    }
}

#[test]
fn a_feed_that_does_not_stop_is_cut_by_the_drain() {
    let deaf = streaming(200, |client: Box<dyn Client>| {
        Box::pin(async move {
            let _client = client;
            std::future::pending::<()>().await;
        })
    });
    let proxy = Proxy::handle_with(deaf, short);
    let mut client = proxy.client();
    client.send(GET);
    client.until(b"\r\n\r\n");
    proxy.drain();
    proxy.join();
    assert!(client.is_closed());
}

/// The last chunk, and what tells the end over TLS (`close_notify`), wait for a client no longer
/// than a body may stand still.
#[test]
fn a_client_that_reads_nothing_does_not_hold_the_end_of_its_stream_up() {
    for status in [200, 101] {
        let filling = streaming(status, |mut client: Box<dyn Client>| {
            Box::pin(async move {
                let piece = vec![b'x'; 16 * 1024];
                let time = Duration::from_millis(100);
                while let Ok(written) = timeout(time, write_all(&mut *client, &piece)).await {
                    written.unwrap();
                }
                let end = poll_fn(|context| client.poll_finish(context)).await;
                let _ = end.unwrap_err();
            })
        });
        let authority = Authority::new("test");
        let mut settings = Settings::default();
        settings.timeouts.body = Duration::from_millis(300);
        let target = RouteTarget::Handle {
            handler: Arc::new(filling),
            body_max: 1000,
        };
        let proxy = Proxy::behind_tls(target, &authority, settings);
        let tls = ClientTls::new(&authority, &["http/1.1"]);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let client = runtime.unwrap().block_on(async {
            let wire = Wire::connect(proxy.port, Some(&tls)).await.unwrap();
            wire.write(GET.as_bytes()).await.unwrap();
            wire
        });
        wait_until("it is open", || proxy.metrics().streams_open() == 1);
        proxy.wait_until_idle();
        assert_eq!(proxy.metrics().streams_open(), 0);
        assert!(client.is_open(), "it is the engine that has given up");
    }
}

#[test]
fn more_streams_than_the_limit_are_refused() {
    let mut handler = waiting(&Arc::default());
    handler.limits = Some(Arc::new(StreamLimits::new(StreamSettings {
        connections: Some(1),
        messages: None,
    })));
    let proxy = Proxy::handle(handler);
    let mut first = proxy.client();
    first.send(GET);
    first.until(b"\r\n\r\n");
    let mut second = proxy.client();
    second.send(GET);
    let refused = second.response();
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop(first);
    wait_until("its place is free", || proxy.metrics().streams_open() == 0);
    second.send(GET);
    second.until(b"HTTP/1.1 200 OK");
}

fn over_both(handler: Streaming) -> Proxy {
    let handler = Arc::new(handler);
    let body_max = 1000;
    Proxy::both(RouteTarget::Handle { handler, body_max })
}

/// What a client of HTTP/2 gets: the status, the content, and whether it ended properly. It leaves
/// when it has this many bytes.
pub fn over_http2(port: u16, enough: usize) -> (u16, Vec<u8>, bool) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .unwrap();
    runtime.block_on(async {
        let address = ([127, 0, 0, 1], port).into();
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let connection = net::Connection::new(stream, address).unwrap();
        let queue = Default::default();
        let (link, mut driver) = Link::new(connection, Role::Client, Limits::default(), queue);
        tokio::task::spawn_local(async move {
            while poll_fn(|context| driver.poll_next(context)).await.is_some() {}
        });
        let line = RequestLine {
            method: b"GET",
            scheme: b"http",
            authority: b"a",
            path: b"/",
        };
        let stream = link.open(line, std::iter::empty(), true).unwrap();
        let head = poll_fn(|context| stream.poll_head(context)).await.unwrap();
        assert!(head.content_length().is_none() || head.status() >= 400);
        let mut content = Vec::new();
        let whole = poll_fn(|context| {
            let end = stream.read(|bytes, end| {
                content.extend_from_slice(bytes);
                (bytes.len(), end)
            });
            if end || content.len() >= enough {
                return Poll::Ready(end);
            }
            match stream.fate(context) {
                Some(_) => Poll::Ready(false),
                None => Poll::Pending,
            }
        });
        let whole = whole.await;
        drop(stream);
        // The reset goes out.
        tokio::time::sleep(Duration::from_millis(50)).await;
        (head.status(), content, whole)
    })
}

#[test]
pub fn over_http2_streams_are_data_frames() {
    let proxy = over_both(streaming(200, greeting));
    let (status, content, whole) = over_http2(proxy.port, usize::MAX);
    assert_eq!((status, content.as_slice(), whole), (200, &b"hi"[..], true));
    let proxy = over_both(streaming(101, greeting));
    assert_eq!(over_http2(proxy.port, usize::MAX).0, 501);
    let cut = streaming(200, |mut client: Box<dyn Client>| {
        Box::pin(async move {
            write_all(&mut *client, b"half").await.unwrap();
        })
    });
    let proxy = over_both(cut);
    let (status, _, whole) = over_http2(proxy.port, usize::MAX);
    assert_eq!((status, whole), (200, false), "it is reset");
}

#[test]
pub fn over_http2_a_client_that_resets_has_finished_and_windows_hold() {
    let left = Arc::new(AtomicUsize::new(0));
    let (sent, told) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&left));
    let counted = Arc::clone(&sent);
    // Far more than any window: it is written as the client reads.
    let flood = streaming(200, move |mut client: Box<dyn Client>| {
        let (told, counted) = (Arc::clone(&told), Arc::clone(&counted));
        Box::pin(async move {
            let piece = vec![b'x'; 16 * 1024];
            loop {
                let wrote = poll_fn(|context| {
                    if poll_gone(&mut *client, context).is_ready() {
                        return Poll::Ready(None);
                    }
                    client.poll_write(context, &piece).map(Result::ok)
                });
                match wrote.await {
                    Some(count) => counted.fetch_add(count, Ordering::SeqCst),
                    None => break,
                };
            }
            told.fetch_add(1, Ordering::SeqCst);
        })
    });
    let proxy = over_both(flood);
    let (_, content, whole) = over_http2(proxy.port, 3_000_000);
    assert!(content.len() >= 3_000_000 && !whole);
    wait_until("it has left", || left.load(Ordering::SeqCst) == 1);
    let ahead = sent.load(Ordering::SeqCst) - content.len();
    assert!(ahead < 8_000_000, "{ahead} bytes were held for the client");
    proxy.wait_until_idle();
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse().unwrap()
}

/// The proxy and its clients are one process here; a client costs a socket and nothing else.
#[test]
fn a_quiet_stream_costs_little_memory() {
    let count: usize = match std::env::var("INTERTIE_STREAMS") {
        Ok(count) => count.parse().unwrap(),
        Err(_) => 2000,
    };
    let proxy = Proxy::handle(waiting(&Arc::default()));
    let open = |count: usize| -> Vec<TcpStream> {
        let connect = |_| {
            use std::io::{Read, Write};
            let mut stream = TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
            stream.write_all(GET.as_bytes()).unwrap();
            assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
            stream
        };
        (0..count).map(connect).collect()
    };
    // What only the first ones cost: stores of buffers, tables of the runtime.
    let first = open(count / 4);
    let before = resident_kib();
    let clients = open(count);
    let open_now = (count + count / 4) as u64;
    wait_until("all are open", || {
        proxy.metrics().streams_open() == open_now
    });
    let each = (resident_kib() - before) * 1024 / count;
    eprintln!("{count} quiet streams: {each} bytes each");
    assert!(each < 1500, "{each} bytes for each of {count}");
    drop((first, clients));
}
