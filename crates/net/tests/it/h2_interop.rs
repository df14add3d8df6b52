//! The engine against the `h2` crate, on either side.

use std::collections::HashMap;
use std::future::poll_fn;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use message::Field;
use net::http2::{Engine, Event, Limits, Role, StreamId};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};

type Failure = Box<dyn std::error::Error>;

/// An engine on a pipe.
struct Link {
    engine: Engine,
    reader: ReadHalf<DuplexStream>,
    writer: WriteHalf<DuplexStream>,
    input: Vec<u8>,
}

impl Link {
    fn new(role: Role, limits: Limits, pipe: DuplexStream) -> Self {
        let (reader, writer) = split(pipe);
        let engine = Engine::new(role, limits);
        Self {
            engine,
            reader,
            writer,
            input: Vec::new(),
        }
    }

    /// Reads or writes once; the answer is whether the peer is still there.
    async fn turn(&mut self) -> bool {
        let mut part = [0; 8192];
        if self.engine.pending().is_empty() {
            let read = self.reader.read(&mut part).await;
            return self.take(&part, read.unwrap_or(0));
        }
        tokio::select! {
            written = self.writer.write(self.engine.pending()) => match written {
                Ok(count) => {
                    self.engine.written(count);
                    true
                }
                Err(_) => false,
            },
            read = self.reader.read(&mut part) => self.take(&part, read.unwrap_or(0)),
        }
    }

    fn take(&mut self, part: &[u8], count: usize) -> bool {
        self.input.extend_from_slice(&part[..count]);
        let used = self.engine.receive(&self.input, Instant::now()).unwrap();
        self.input.drain(..used);
        count > 0
    }
}

fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 3) as u8).collect()
}

fn line<'a>(name: &'a str, value: &'a str) -> (Field, &'a [u8], &'a [u8]) {
    (
        Field::of(name.as_bytes()),
        name.as_bytes(),
        value.as_bytes(),
    )
}

/// Echoes: head fields, body, trailers.
async fn serve(mut link: Link) {
    while link.turn().await {
        while let Some(event) = link.engine.next_event() {
            match event {
                Event::Head { stream, .. } => {
                    let head = link.engine.take_head(stream).unwrap();
                    let fields: Vec<_> = head.fields.view().iter().collect();
                    link.engine.respond(stream, 200, fields, false).unwrap();
                    echo(&mut link.engine, stream);
                }
                Event::Data { stream } | Event::Writable { stream } => {
                    echo(&mut link.engine, stream);
                }
                Event::Reset { stream, .. } | Event::TooLarge { stream } => {
                    link.engine.release(stream)
                }
                Event::Settings | Event::GoAway { .. } | Event::Pong => {}
            }
        }
    }
}

fn echo(engine: &mut Engine, stream: StreamId) {
    let (data, is_end) = engine.readable(stream);
    let data = data.to_vec();
    let Ok(count) = engine.send_data(stream, &data, false) else {
        return;
    };
    engine.consume(stream, count);
    if !is_end || count < data.len() {
        return;
    }
    match engine.take_trailers(stream) {
        Some(trailers) => engine
            .send_trailers(stream, trailers.view().iter())
            .unwrap(),
        None => assert_eq!(engine.send_data(stream, b"", true), Ok(0)),
    }
    engine.release(stream);
}

/// One call of the `h2` crate's client.
async fn call(
    mut client: h2::client::SendRequest<Bytes>,
    length: usize,
    has_trailers: bool,
    wait: Duration,
) -> Result<(), Failure> {
    client = client.ready().await?;
    let request = Request::post("http://a.example/path")
        .header("x-thing", "some value")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(())?;
    let is_end = length == 0 && !has_trailers;
    let (response, mut sender) = client.send_request(request, is_end)?;
    let sending = async {
        let mut rest = Bytes::from(body(length));
        while !rest.is_empty() {
            sender.reserve_capacity(rest.len());
            let room = poll_fn(|context| sender.poll_capacity(context)).await;
            let part = rest.split_to(room.ok_or("closed")??.min(rest.len()));
            sender.send_data(part, rest.is_empty() && !has_trailers)?;
        }
        if has_trailers {
            let mut trailers = http::HeaderMap::new();
            trailers.insert("x-check", "fine".parse()?);
            sender.send_trailers(trailers)?;
        }
        Ok::<_, Failure>(())
    };
    let receiving = async {
        let response = response.await?;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["x-thing"], "some value");
        assert_eq!(response.headers()["cookie"], "a=1; b=2");
        let mut stream = response.into_body();
        let mut received = Vec::new();
        while let Some(part) = stream.data().await {
            let part = part?;
            received.extend_from_slice(&part);
            tokio::time::sleep(wait).await;
            stream.flow_control().release_capacity(part.len())?;
        }
        assert!(received == body(length));
        let trailers = stream.trailers().await?;
        assert_eq!(trailers.is_some(), has_trailers);
        Ok::<_, Failure>(())
    };
    tokio::try_join!(sending, receiving)?;
    Ok(())
}

async fn with_server(limits: Limits, count: usize, length: usize, wait: Duration) {
    let (near, far) = duplex(20_000);
    let local = tokio::task::LocalSet::new();
    local.spawn_local(serve(Link::new(Role::Server, limits, far)));
    local
        .run_until(async move {
            let (client, connection) = h2::client::handshake(near).await.unwrap();
            tokio::task::spawn_local(async move {
                let _ = connection.await;
            });
            let mut tasks = Vec::new();
            for number in 0..count {
                let calling = call(client.clone(), length, number % 2 == 1, wait);
                tasks.push(tokio::task::spawn_local(async move {
                    calling.await.map_err(|error| error.to_string())
                }));
            }
            for task in tasks {
                task.await.unwrap().unwrap();
            }
        })
        .await;
}

#[tokio::test]
async fn a_client_of_h2_gets_its_answers() {
    let none = Duration::ZERO;
    for length in [0, 50, 20_000, 1 << 20] {
        with_server(Limits::default(), 4, length, none).await;
    }
    with_server(Limits::default(), 500, 50, none).await;
    with_server(Limits::default(), 60, 100_000, none).await;
    let small = Limits {
        stream_window: 1000,
        backlog: 3000,
        streams: 7,
        ..Limits::default()
    };
    with_server(small, 50, 30_000, none).await;
}

#[tokio::test]
async fn a_slow_client_of_h2_is_waited_for() {
    with_server(Limits::default(), 20, 300_000, Duration::from_millis(2)).await;
}

/// Echoes with the `h2` crate's server.
async fn serve_h2(pipe: DuplexStream, window: u32) -> Result<(), Failure> {
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(window)
        .max_concurrent_streams(20);
    let mut connection = builder.handshake::<_, Bytes>(pipe).await?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted?;
        tokio::task::spawn_local(async move {
            answer_h2(request, respond).await.unwrap();
        });
    }
    Ok(())
}

async fn answer_h2(
    request: Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Result<(), Failure> {
    assert_eq!(request.uri(), "http://a.example/path");
    let mut response = Response::new(());
    *response.headers_mut() = request.headers().clone();
    let mut sender = respond.send_response(response, false)?;
    let mut stream = request.into_body();
    while let Some(part) = stream.data().await {
        let mut part = part?;
        stream.flow_control().release_capacity(part.len())?;
        while !part.is_empty() {
            sender.reserve_capacity(part.len());
            let room = poll_fn(|context| sender.poll_capacity(context)).await;
            let now = part.split_to(room.ok_or("closed")??.min(part.len()));
            sender.send_data(now, false)?;
        }
    }
    match stream.trailers().await? {
        Some(trailers) => sender.send_trailers(trailers)?,
        None => sender.send_data(Bytes::new(), true)?,
    }
    Ok(())
}

struct Call {
    sent: usize,
    received: Vec<u8>,
    has_trailers: bool,
}

async fn with_client(limits: Limits, window: u32, count: usize, length: usize) {
    let (near, far) = duplex(20_000);
    let local = tokio::task::LocalSet::new();
    local.spawn_local(async move {
        let _ = serve_h2(far, window).await;
    });
    let mut link = Link::new(Role::Client, limits, near);
    local
        .run_until(async move {
            let (mut calls, mut opened, mut done) = (HashMap::new(), 0, 0);
            let sample = body(length);
            while done < count {
                assert!(link.turn().await);
                done += answers(&mut link.engine, &mut calls, &sample);
                // The server's settings say how many streams it takes.
                while opened < count && link.engine.peer().streams == 20 {
                    let Some(stream) = open(&mut link.engine) else {
                        break;
                    };
                    let has_trailers = opened % 2 == 1;
                    let mut call = Call {
                        sent: 0,
                        received: Vec::new(),
                        has_trailers,
                    };
                    push(&mut link.engine, stream, &mut call, &sample);
                    calls.insert(stream, call);
                    opened += 1;
                }
            }
            assert!(link.engine.is_idle());
        })
        .await;
}

fn open(engine: &mut Engine) -> Option<StreamId> {
    let fields = [
        line("X-Thing", "some value"),
        line("Connection", "close"),
        line("Host", "b"),
    ];
    engine
        .open(b"POST", b"http", b"a.example", b"/path", fields, false)
        .ok()
}

fn push(engine: &mut Engine, stream: StreamId, call: &mut Call, sample: &[u8]) {
    let is_end = !call.has_trailers;
    let part = &sample[call.sent..];
    let count = engine.send_data(stream, part, is_end).unwrap();
    call.sent += count;
    if count == part.len() && call.has_trailers {
        engine
            .send_trailers(stream, [line("X-Check", "fine")])
            .unwrap();
    }
}

fn answers(engine: &mut Engine, calls: &mut HashMap<StreamId, Call>, sample: &[u8]) -> usize {
    let mut done = 0;
    while let Some(event) = engine.next_event() {
        match event {
            Event::Head { stream, .. } => {
                let head = engine.take_head(stream).unwrap();
                assert_eq!(head.status(), 200);
                assert_eq!(head.fields.view().get("x-thing"), Some(&b"some value"[..]));
            }
            Event::Writable { stream } => {
                push(engine, stream, calls.get_mut(&stream).unwrap(), sample);
            }
            Event::Data { stream } => {
                let call = calls.get_mut(&stream).unwrap();
                let (data, is_end) = engine.readable(stream);
                call.received.extend_from_slice(data);
                let count = data.len();
                engine.consume(stream, count);
                if is_end {
                    assert!(call.received == sample);
                    assert_eq!(engine.take_trailers(stream).is_some(), call.has_trailers);
                    engine.release(stream);
                    done += 1;
                }
            }
            Event::Settings => {}
            other => panic!("{other:?}"),
        }
    }
    done
}

#[tokio::test]
async fn a_server_of_h2_answers() {
    for length in [0, 50, 20_000, 1 << 20] {
        with_client(Limits::default(), 65_535, 4, length).await;
    }
    with_client(Limits::default(), 65_535, 500, 50).await;
    with_client(Limits::default(), 1_000, 50, 30_000).await;
    let small = Limits {
        stream_window: 500,
        backlog: 2000,
        ..Limits::default()
    };
    with_client(small, 100_000, 50, 30_000).await;
}
