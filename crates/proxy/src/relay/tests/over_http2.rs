//! The same with HTTP/2 on one side or on both. One connection of each side serves all schedules of
//! a world, so that whatever one of them leaves behind is in the way of those that follow.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use component::plan::ListenerPlan;
use component::resources::Share;
use component::settings::Settings;
use component::trigger::ListenAddress;
use message::Field;
use net::Connection;
use net::http2::{Code, Fields, Limits, Link, RequestLine, Role, Stream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{spawn_local, yield_now};

use super::*;
use crate::client::h2_request::{Origin, StreamSession};
use crate::client::listener::{Acceptor, Listener, Service};
use crate::relay::downstream_http2::Inbound;
use crate::relay::upstream_http2::Http2Upstream;
use crate::router::Table;
use crate::worker::{Engine, Worker};

/// What a peer may send on a stream before it is taken: the smallest one is full again and again.
const WINDOWS: [u32; 3] = [400, 16_384, 1 << 20];
/// The longest content that goes through the smallest window.
const CONTENT_MAX: [usize; 3] = [4_000, 40_000, 40_000];

/// Both ends of an HTTP/2 connection.
struct Pair {
    client: Link,
    server: Link,
    /// What the server's end has been asked for.
    opened: Rc<RefCell<VecDeque<Stream>>>,
}

impl Pair {
    async fn new(window: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let near = TcpStream::connect(address).await.unwrap();
        let (far, peer) = listener.accept().await.unwrap();
        let limits = Limits {
            stream_window: window,
            // More is given up here than by any client that means well.
            resets: u32::MAX,
            control_frames: u32::MAX,
            ..Limits::default()
        };
        let near = Connection::new(near, address).unwrap();
        let (client, mut driver) = Link::new(near, Role::Client, limits, Rc::default());
        spawn_local(async move {
            while poll_fn(|context| driver.poll_next(context)).await.is_some() {}
        });
        let far = Connection::new(far, peer).unwrap();
        let (server, mut driver) = Link::new(far, Role::Server, limits, Rc::default());
        let opened = Rc::<RefCell<VecDeque<Stream>>>::default();
        let queue = Rc::clone(&opened);
        spawn_local(async move {
            while let Some(stream) = poll_fn(|context| driver.poll_next(context)).await {
                queue.borrow_mut().push_back(stream);
            }
        });
        Self {
            client,
            server,
            opened,
        }
    }

    fn open(&self, path: &[u8], fields: &[(Field, &[u8], &[u8])], is_end: bool) -> Stream {
        let line = RequestLine {
            method: b"POST",
            scheme: b"http",
            authority: b"a",
            path,
        };
        let stream = self.client.open(line, fields.iter().copied(), is_end);
        stream.unwrap()
    }

    /// The request for this path, when it has come. Others have been given up before they came.
    fn accept(&self, path: &[u8]) -> Option<(Stream, net::http2::Head)> {
        loop {
            let stream = self.opened.borrow_mut().pop_front()?;
            let head = stream.take_head();
            if let Some(head) = head.filter(|head| head.path() == path) {
                return Some((stream, head));
            }
        }
    }

    /// Waits until nothing is left of any stream, and the connection takes another one.
    async fn rests(&self) {
        let links = [&self.client, &self.server];
        for _ in 0..POLLS_MAX {
            self.opened.borrow_mut().clear();
            let is_idle = |link: &&Link| link.stream_count() == 0 && link.is_idle();
            if links.iter().all(is_idle) {
                assert_eq!(self.client.may_open(), Ok(()));
                return;
            }
            yield_now().await;
        }
        let counts = links.map(Link::stream_count);
        panic!("{counts:?} streams are left");
    }
}

/// A worker between a client and a back end, and its connections to both.
struct World {
    worker: Rc<Worker>,
    listener: Rc<Listener>,
    deadlines: Deadlines,
    front: Pair,
    back: Pair,
    content_max: usize,
}

impl World {
    async fn new(window: u32, content_max: usize) -> Self {
        let worker = Worker::new(Share::WHOLE, Arc::new(Engine::new(None)));
        let mut settings = Settings::default();
        settings.limits.h2.stream_window = window;
        let address = ListenAddress {
            host: None,
            port: 1,
        };
        let plan = ListenerPlan {
            address: address.clone(),
            tls: None,
            protocols: Vec::new(),
            edge: Default::default(),
            routes: Vec::new(),
        };
        let registry = &worker.engine.registry;
        let service = Service {
            table: Rc::new(Table::new(&plan, 0, registry, &worker.upstreams)),
            tls: None,
            takes_h2: true,
            takes_h1: true,
            settings: Rc::new(settings),
            entry: None,
        };
        Self {
            listener: Acceptor::new(address, service).listener(),
            worker,
            deadlines: Deadlines::new(),
            front: Pair::new(window).await,
            back: Pair::new(window).await,
            content_max,
        }
    }

    fn session(&self, stream: Stream) -> StreamSession {
        let origin = Origin {
            peer: [127, 0, 0, 1].into(),
            is_secure: false,
            certificate: None,
        };
        let owners = (Rc::clone(&self.worker), Rc::clone(&self.listener));
        StreamSession::new(owners.0, owners.1, stream, origin)
    }
}

fn content(random: &mut Rng, most: usize) -> Vec<u8> {
    let length = [0, 1, most / 10, most][random.usize(..4)];
    let length = random.usize(..=length);
    random_bytes(random, length)
}

/// The far end of a stream, which gives and takes a little at each step.
struct FarEnd {
    random: Rng,
    /// None before it is there, and once it has been given up.
    stream: Option<Stream>,
    outgoing: Vec<u8>,
    sent: usize,
    /// Whether what it sends has no end.
    is_cut: bool,
    has_sent_end: bool,
    received: Vec<u8>,
    has_end: bool,
    /// It takes no more than this.
    capacity: usize,
}

impl FarEnd {
    fn new(random: &mut Rng, outgoing: Vec<u8>) -> Self {
        Self {
            random: random.fork(),
            stream: None,
            outgoing,
            sent: 0,
            is_cut: false,
            has_sent_end: false,
            received: Vec::new(),
            has_end: false,
            capacity: usize::MAX,
        }
    }

    fn send(&mut self) {
        let Some(stream) = &self.stream else { return };
        if self.has_sent_end || self.random.u8(..3) == 0 {
            return;
        }
        let rest = &self.outgoing[self.sent..];
        let count = rest.len().min(self.random.usize(1..=9_000));
        let is_last = count == rest.len() && !self.is_cut;
        // A stream that is over is noticed elsewhere.
        if let Ok(taken) = stream.send(&rest[..count], is_last) {
            self.sent += taken;
            self.has_sent_end = is_last && taken == count;
        }
    }

    fn take(&mut self) {
        let Some(stream) = &self.stream else { return };
        if self.random.u8(..3) == 0 {
            return;
        }
        let room = self.capacity - self.received.len();
        let most = self.random.usize(1..=9_000).min(room);
        let received = &mut self.received;
        self.has_end |= stream.read(|bytes, end| {
            let count = bytes.len().min(most);
            received.extend_from_slice(&bytes[..count]);
            (count, end && count == bytes.len())
        });
    }

    /// Whether the other side has given the stream up.
    fn is_given_up(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let fate = |stream: &Stream| stream.fate(&mut context).is_some();
        self.stream.as_ref().is_some_and(fate)
    }

    fn is_done(&self) -> bool {
        self.has_end && self.has_sent_end
    }
}

/// A client over HTTP/2.
struct FarClient {
    end: FarEnd,
    status: u16,
    steps: usize,
    /// The step at which it gives its request up.
    leaves_at: usize,
}

impl FarClient {
    fn step(&mut self) {
        self.steps += 1;
        if self.steps > self.leaves_at {
            self.end.stream = None;
        }
        self.end.send();
        self.end.take();
        self.read_heads();
    }

    fn read_heads(&mut self) {
        let Some(stream) = &self.end.stream else {
            return;
        };
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Ok(head)) = stream.poll_head(&mut context) {
            if head.status() >= 200 {
                self.status = head.status();
            }
            stream.recycle(head);
        }
    }

    fn has_left(&self) -> bool {
        self.end.stream.is_none()
    }

    /// Goes on until it has the whole reply, or knows that there is none.
    async fn end(&mut self) {
        let mut steps = 0;
        while !self.has_left() && !self.end.has_end && !self.end.is_given_up() {
            self.step();
            yield_now().await;
            steps += 1;
            assert!(steps < POLLS_MAX, "the client waits for ever");
        }
        // A reset may have come in one piece with a head.
        self.read_heads();
    }
}

/// A back end over HTTP/2.
struct FarServer {
    end: FarEnd,
    path: Vec<u8>,
    status: u16,
    /// Whether it says how long its reply is.
    has_length: bool,
    interims: usize,
    /// It answers once it has so many bytes of the request.
    trigger: usize,
    /// Whether it refuses the request, or cuts its reply before there is a head.
    has_head: bool,
    has_answered: bool,
    /// Whether it is gone as soon as its reply is out.
    leaves_early: bool,
}

impl FarServer {
    /// A back end that does whatever back ends do.
    fn any(random: &mut Rng, path: &[u8], request_length: usize, content_max: usize) -> Self {
        let status = [200, 204][usize::from(random.u8(..4) == 0)];
        let outgoing = match status {
            204 => Vec::new(),
            _ => content(random, content_max),
        };
        let mut end = FarEnd::new(random, outgoing);
        let trigger = [0, 1, request_length / 2, request_length][random.usize(..4)];
        if trigger < request_length && random.u8(..4) == 0 {
            // It reads no further.
            end.capacity = trigger.max(1) + random.usize(..100);
        }
        let is_cut = status == 200 && random.u8(..5) == 0;
        let has_head = !is_cut || random.bool();
        if is_cut {
            end.is_cut = true;
            let length = random.usize(..=end.outgoing.len());
            end.outgoing.truncate(length);
        }
        Self {
            end,
            path: path.to_vec(),
            status,
            has_length: random.bool() && !is_cut,
            interims: random.usize(..3),
            trigger,
            has_head,
            has_answered: false,
            leaves_early: random.u8(..4) == 0,
        }
    }

    fn facts(&self) -> Facts {
        Facts {
            status: self.status,
            content: self.end.outgoing.clone(),
            framing: Framing::UntilClose,
            interims: self.interims,
            says_close: false,
            has_more: false,
            is_cut: self.end.is_cut,
            has_head: self.has_head,
            is_sent: false,
        }
    }

    fn step(&mut self, pair: &Pair) {
        if self.end.stream.is_none() && !self.has_answered {
            self.end.stream = pair.accept(&self.path).map(|(stream, _)| stream);
        }
        self.end.take();
        if !self.has_answered {
            let has_enough = self.end.received.len() >= self.trigger || self.end.has_end;
            if self.end.stream.is_some() && has_enough {
                self.answer();
            }
            return;
        }
        self.end.send();
        let is_out = self.end.sent == self.end.outgoing.len();
        if let Some(stream) = &self.end.stream
            && self.end.is_cut
            && is_out
        {
            stream.reset(Code::INTERNAL);
            self.end.stream = None;
        } else if self.end.has_sent_end && self.leaves_early {
            self.end.stream = None;
        }
    }

    fn answer(&mut self) {
        self.has_answered = true;
        let Some(stream) = &self.end.stream else {
            return;
        };
        if !self.has_head {
            let codes = [Code::REFUSED, Code::INTERNAL];
            stream.reset(codes[self.end.random.usize(..2)]);
            self.end.stream = None;
            return;
        }
        for _ in 0..self.interims {
            let _ = stream.respond(102, std::iter::empty(), false);
        }
        let length = self.end.outgoing.len().to_string();
        let field = (
            Field::ContentLength,
            &b"content-length"[..],
            length.as_bytes(),
        );
        let is_end = self.status == 204;
        let fields = (self.has_length && !is_end).then_some(field);
        let _ = stream.respond(self.status, fields, is_end);
        self.end.has_sent_end = is_end;
    }

    /// Goes on until it knows what has become of the request. Says whether the stream was reset.
    async fn end(&mut self, pair: &Pair) -> bool {
        // What has come is taken now.
        self.end.capacity = usize::MAX;
        for steps in 0.. {
            self.step(pair);
            let is_there = self.end.stream.is_some();
            let has_left = !is_there && self.has_answered;
            // One that was given up before it went out never comes.
            let never_comes = !is_there && pair.client.is_idle() && steps > 50;
            if self.end.is_given_up() {
                return true;
            }
            if has_left || self.end.is_done() || never_comes {
                break;
            }
            assert!(steps < POLLS_MAX, "the back end waits for ever");
            yield_now().await;
        }
        false
    }
}

/// Polls an exchange, with what others do between two polls. Dropped half-way, it has no result.
async fn beside<T>(
    work: impl Future<Output = T>,
    drop_after: usize,
    mut step: impl FnMut(),
) -> Option<T> {
    let mut work = pin!(work);
    let mut context = Context::from_waker(Waker::noop());
    for polls in 0.. {
        if let Poll::Ready(result) = work.as_mut().poll(&mut context) {
            return Some(result);
        }
        assert!(polls < POLLS_MAX, "it stands still");
        if polls >= drop_after {
            return None;
        }
        step();
        yield_now().await;
    }
    None
}

/// What is known of an exchange that has ended.
struct Ended {
    /// None when it was dropped half-way.
    result: Option<Result<Reply, Failed>>,
    facts: Facts,
}

impl Ended {
    /// Whether the whole reply, or a part of it, has been relayed.
    fn relayed(&self) -> Option<bool> {
        match &self.result {
            Some(Ok(Reply::Relayed(relayed))) => Some(relayed.cut.is_none()),
            Some(Ok(_)) => panic!("no other reply was made"),
            _ => None,
        }
    }

    fn check_failure(&self, method: &Method, sent: u64, has_left: bool) {
        let Some(Err(failed)) = &self.result else {
            return;
        };
        let is_expected = match &failed.failure {
            Failure::ClientGone => has_left,
            Failure::Reset(_) | Failure::Refused | Failure::Closed(_) | Failure::Invalid(_) => {
                !self.facts.has_head
            }
            _ => false,
        };
        assert!(is_expected, "{:?}", failed.failure);
        let is_refused = matches!(failed.failure, Failure::Refused);
        let is_safe = is_refused || *method == Method::Put || sent == 0;
        assert!(
            is_safe || !failed.repeatable,
            "a request is repeated that may have been acted on"
        );
    }
}

/// One schedule, whatever the versions of its client and its back end.
struct Course<'a> {
    world: &'a World,
    random: Rng,
    path: Vec<u8>,
    method: Method,
    /// The content of the request.
    content: Vec<u8>,
    drop_after: usize,
}

impl Course<'_> {
    /// The exchange with a back end over HTTP/2, beside whatever the client does.
    async fn over_http2(
        &mut self,
        down: &mut impl Downstream,
        client: &mut Option<FarClient>,
    ) -> Ended {
        let back = &self.world.back;
        let framing = down.request().framing;
        let has_body = !matches!(framing, Framing::None | Framing::Length(0));
        let line = RequestLine {
            method: self.method.as_str().as_bytes(),
            scheme: b"http",
            authority: b"b",
            path: &self.path,
        };
        let opened =
            Http2Upstream::open(&back.client, line, &Fields::default(), has_body, down).await;
        let Ok(mut up) = opened else {
            panic!("the connection takes no stream");
        };
        let length = self.content.len();
        let most = self.world.content_max;
        let mut server = FarServer::any(&mut self.random, &self.path, length, most);
        let facts = server.facts();
        let plan = plan();
        let terms = terms(&plan, &self.method);
        let mut exchange = Exchange::new(down, &mut up, terms, Progress::new(None));
        let result = beside(exchange.run(|| {}), self.drop_after, || {
            if let Some(client) = client {
                client.step();
            }
            server.step(back);
        });
        let result = result.await;
        let is_sent = exchange.is_sent;
        let (sent, has_left) = (up.sent(), client.as_ref().is_some_and(FarClient::has_left));
        drop(up);
        let ended = Ended {
            facts: Facts { is_sent, ..facts },
            result,
        };
        ended.check_failure(&self.method, sent, has_left);
        let was_reset = server.end(back).await;
        let end = &server.end;
        assert!(self.content.starts_with(&end.received), "other bytes");
        assert!(
            !end.has_end || end.received == self.content,
            "a part looks whole"
        );
        let is_over = ended.relayed() == Some(true) && is_sent;
        assert!(
            !is_over || !was_reset,
            "a request that was sent is given up"
        );
        ended
    }

    /// The exchange with a back end over HTTP/1.1.
    async fn over_http1(&mut self, down: &mut impl Downstream, client: &mut FarClient) -> Ended {
        let framing = down.request().framing;
        let is_chunked = framing == Framing::Chunked;
        let head = format!("{} / HTTP/1.1\r\nHost: b\r\n\r\n", self.method.as_str()).into_bytes();
        let script = Script::any(&mut self.random, head.len() + self.content.len());
        let facts = Facts::of(&script);
        let spare = Box::<ResponseHead>::default();
        let mut up = Http1Upstream::begin(script.wire, head.clone(), is_chunked, spare);
        let plan = plan();
        let terms = terms(&plan, &self.method);
        let mut exchange = Exchange::new(down, &mut up, terms, Progress::new(None));
        let work = exchange.run(|| {});
        let result = beside(work, self.drop_after, || client.step()).await;
        let is_sent = exchange.is_sent;
        let ended = Ended {
            facts: Facts { is_sent, ..facts },
            result,
        };
        ended.check_failure(&self.method, up.exchange.sent(), client.has_left());
        let sent = SentRequest {
            head: &head,
            framing,
            content: &self.content,
        };
        let is_done = ended.relayed() == Some(true) && is_sent;
        sent.check_release(up, &ended.facts, is_done);
        ended
    }

    /// A request of an HTTP/2 client.
    async fn serve_http2_client(mut self, backend_speaks_h2: bool) {
        let world = self.world;
        let has_length = self.random.bool();
        let is_end = self.content.is_empty() && self.random.bool();
        let length = self.content.len().to_string();
        let field = [(
            Field::ContentLength,
            &b"content-length"[..],
            length.as_bytes(),
        )];
        let fields = &field[..usize::from(has_length)];
        let mut end = FarEnd::new(&mut self.random, self.content.clone());
        end.stream = Some(world.front.open(&self.path, fields, is_end));
        end.has_sent_end = is_end;
        let leaves_at = match self.random.u8(..6) {
            0 => self.random.usize(..150),
            _ => usize::MAX,
        };
        let mut client = Some(FarClient {
            end,
            status: 0,
            steps: 0,
            leaves_at,
        });
        let (stream, head) = loop {
            if let Some(accepted) = world.front.accept(&self.path) {
                break accepted;
            }
            yield_now().await;
        };
        let session = world.session(stream);
        let method = self.method.clone();
        let inbound = Inbound {
            request: outgoing(&method, &head),
            path: b"/",
            content: None,
        };
        let mut down = Http2Downstream::new(&session, inbound);
        let ended = match backend_speaks_h2 {
            true => self.over_http2(&mut down, &mut client).await,
            false => self.over_http1(&mut down, client.as_mut().unwrap()).await,
        };
        drop(down);
        let relayed = ended.relayed();
        if relayed == Some(true) {
            // What of the request still comes is waited for, as `StreamSession` does.
            client.as_mut().unwrap().end().await;
        }
        drop(session);
        let mut client = client.unwrap();
        client.end().await;
        let (facts, end) = (&ended.facts, &client.end);
        assert!(facts.content.starts_with(&end.received), "other bytes");
        if let Some(is_whole) = relayed.filter(|_| !client.has_left()) {
            assert_eq!(client.status, facts.status);
            assert_eq!(is_whole, !facts.is_cut, "whole or cut");
            assert!(!is_whole || (end.has_end && end.received == facts.content));
        }
        let is_whole = !facts.is_cut && end.received == facts.content;
        assert!(!end.has_end || is_whole, "a part looks whole");
        drop((client, head));
        world.front.rests().await;
        world.back.rests().await;
    }
}

/// A request as `StreamSession` hands it on.
fn outgoing<'a>(method: &'a Method, head: &'a net::http2::Head) -> Outgoing<'a> {
    Outgoing {
        method,
        query: None,
        rest: None,
        headers: head.fields.view(),
        connection: None,
        framing: match head.content_length() {
            _ if head.is_end() => Framing::None,
            Some(length) => Framing::Length(length),
            None => Framing::Chunked,
        },
        upgrades: false,
        peer: [127, 0, 0, 1].into(),
        sent_by: SentBy::Peer(None),
        is_secure: false,
        came_by: CameBy::Http2,
        strip: &[],
        identity_field: None,
        caller: None,
    }
}

async fn run(seed: u64, world: &World) {
    let mut random = Rng::with_seed(seed);
    let versions = random.u8(..3);
    let drop_after = match random.u8(..4) {
        0 => random.usize(..150),
        _ => usize::MAX,
    };
    let path = format!("/{seed}").into_bytes();
    if versions == 2 {
        let schedule = Schedule::new(seed, &world.deadlines);
        return serve_http1_client(schedule, world, path, drop_after).await;
    }
    let method = [Method::Post, Method::Put][random.usize(..2)].clone();
    let course = Course {
        content: content(&mut random, world.content_max),
        world,
        random,
        path,
        method,
        drop_after,
    };
    course.serve_http2_client(versions == 0).await;
}

/// A request of an HTTP/1.1 client to a back end over HTTP/2.
async fn serve_http1_client(
    mut schedule: Schedule,
    world: &World,
    path: Vec<u8>,
    drop_after: usize,
) {
    let mut course = Course {
        world,
        random: schedule.random.fork(),
        path,
        method: schedule.method.clone(),
        content: schedule.request.content.clone(),
        drop_after,
    };
    let ended = course.over_http2(&mut schedule.client, &mut None).await;
    if let Some(is_whole) = ended.relayed() {
        schedule.check_reply(&ended.facts, is_whole);
        schedule.check_client();
    }
    world.back.rests().await;
}

#[test]
fn no_schedule_over_http2_mixes_up_loses_or_leaves_anything() {
    // Sockets are looked at between any two tasks: nobody else wakes those that are polled here.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().event_interval(1);
    let runtime = runtime.build_local(Default::default()).unwrap();
    let mut worlds = Vec::new();
    runtime.block_on(async {
        for (window, content_max) in WINDOWS.into_iter().zip(CONTENT_MAX) {
            worlds.push(World::new(window, content_max).await);
        }
    });
    run_schedules(SCHEDULES, |seed| {
        let world = &worlds[seed as usize % worlds.len()];
        runtime.block_on(run(seed, world));
    });
}
