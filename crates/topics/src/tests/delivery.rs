//! Tests of delivery as a whole, against a model: clients that read fast, slowly or not at all,
//! leave and come again, while events are published. Whatever they get is what was published, in
//! order, or they are told what they have missed.

mod expressions;
mod room;

use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use component::stream::Client;
use fastrand::Rng;

use crate::branch::Branch;
use crate::channel::{Channel, ChannelKey, Pace, Policy, StreamEnd};
use crate::document::{self, Document};
use crate::event::EventId;
use crate::frame::{IdForm, Wire};
use crate::join::{Joining, Start, Step};
use crate::reader::Reader;
use crate::settings::{Durability, Keep, Payload, Settings};
use crate::stream;
use crate::testing::{publication, with};
use crate::topic::Topic;
use crate::view::{Mode, View};

/// What a client has got, and how much more it takes.
#[derive(Default)]
struct Line {
    got: Vec<u8>,
    room: usize,
    /// What has been offered and not been taken: the next write begins with it.
    offered: Vec<u8>,
    waker: Option<Waker>,
    is_gone: bool,
    is_stopped: bool,
    is_finished: bool,
}

#[derive(Clone, Default)]
struct FakeClient(Rc<RefCell<Line>>);

impl FakeClient {
    fn open(&self, room: usize) {
        let mut line = self.0.borrow_mut();
        line.room = line.room.saturating_add(room);
        if let Some(waker) = line.waker.take() {
            waker.wake();
        }
    }

    fn leave(&self) {
        self.0.borrow_mut().is_gone = true;
        self.open(0);
    }

    /// The engine stops.
    fn stop(&self) {
        self.0.borrow_mut().is_stopped = true;
        self.open(0);
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.borrow().got.clone()).unwrap()
    }
}

impl Client for FakeClient {
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut line = self.0.borrow_mut();
        line.waker = Some(context.waker().clone());
        match line.is_gone {
            true => Poll::Ready(Ok(0)),
            false => Poll::Pending,
        }
    }

    fn input(&self) -> &[u8] {
        &[]
    }

    fn consume(&mut self, _: usize) {}

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut line = self.0.borrow_mut();
        let same = line.offered.len().min(bytes.len());
        assert_eq!(
            line.offered[..same],
            bytes[..same],
            "a pending write was changed"
        );
        assert!(line.offered.len() <= bytes.len(), "a pending write was cut");
        if line.room == 0 {
            line.offered = bytes[..bytes.len().min(4096)].to_vec();
            line.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        line.offered.clear();
        let count = line.room.min(bytes.len());
        line.room -= count;
        line.got.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().is_finished = true;
        Poll::Ready(Ok(()))
    }

    fn poll_stop(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut line = self.0.borrow_mut();
        line.waker = Some(context.waker().clone());
        match line.is_stopped {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    fn is_chunked(&self) -> bool {
        false
    }

    fn peer(&self) -> IpAddr {
        IpAddr::from([127, 0, 0, 1])
    }
}

/// One block of a stream of events.
#[derive(Clone, Debug, Default, PartialEq)]
struct Block {
    id: Option<String>,
    event: String,
    data: String,
}

/// The whole blocks of a stream (WHATWG HTML, section 9.2.6, for what we write).
fn blocks(text: &str) -> Vec<Block> {
    let Some(end) = text.rfind("\n\n") else {
        return Vec::new();
    };
    let parse = |part: &str| {
        let mut block = Block::default();
        for line in part.lines() {
            match line.split_once(": ") {
                Some(("id", id)) => block.id = Some(id.to_owned()),
                Some(("event", name)) => block.event = name.to_owned(),
                Some(("data", data)) => block.data = data.to_owned(),
                Some(("retry", _)) => {}
                _ => assert_eq!(line, ":", "{part}"),
            }
        }
        block
    };
    text[..end].split("\n\n").map(parse).collect()
}

fn pace(policy: Policy) -> Pace {
    Pace {
        heartbeat: 1,
        stalled_max: 1000,
        bytes_max: 16 * 1024,
        policy,
    }
}

fn key(mode: Mode) -> ChannelKey {
    ChannelKey {
        wire: Wire::Sse {
            chunked: false,
            gzip: false,
        },
        ids: IdForm::Plain,
        views: vec![View {
            mode,
            expressions: None,
        }],
    }
}

/// One stay of a client, from its coming to its leaving.
async fn stay(
    branch: Rc<Branch>,
    key: ChannelKey,
    pace: Pace,
    start: Start,
    client: FakeClient,
) -> Option<StreamEnd> {
    let mut client = client;
    branch.ready().await.unwrap();
    let channel = Branch::channel(&[branch], key, pace).unwrap();
    let mut reader = Reader::new(&channel, None);
    let joining = Joining::new(&channel, vec![start], b"retry: 1\n".to_vec());
    let end = match stream::join(&mut reader, &mut client, joining).await {
        Ok(None) => stream::deliver(&mut reader, &mut client).await,
        Ok(end) => end,
        Err(_) => None,
    };
    if let Some(end) = end {
        stream::finish(&reader, &mut client, end, Vec::new()).await;
    }
    end
}

fn local(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime
        .enable_time()
        .build_local(Default::default())
        .unwrap();
    let in_time = async { tokio::time::timeout(Duration::from_secs(120), test).await };
    runtime.block_on(in_time).unwrap();
}

async fn topic(payload: Payload, keep: u64) -> (Arc<Topic>, Rc<Branch>) {
    let topic = with(Settings {
        payload,
        durability: Durability::Memory,
        keep: Keep {
            events: keep,
            ..Keep::default()
        },
        ..Settings::default()
    })
    .await;
    let branch = crate::testing::branch(&topic);
    (topic, branch)
}

/// Waits until a client has got this.
async fn until(client: &FakeClient, wanted: &str) {
    for _ in 0..2000 {
        if client.text().contains(wanted) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no {wanted:?} in {:?}", client.text());
}

fn start_of(last: &Option<String>) -> Start {
    match last {
        Some(id) => Start::After(id.parse().unwrap()),
        None => Start::Now,
    }
}

/// What a client knows, checked against what was published.
struct Known<'a> {
    published: &'a [String],
    mode: Mode,
    last: Option<String>,
    document: Option<Document>,
    /// How often it was told of something that it has missed.
    told: usize,
    got: usize,
}

impl Known<'_> {
    fn sequence(text: &str) -> u64 {
        text.parse::<EventId>().unwrap().sequence
    }

    fn take(&mut self, block: Block) {
        let before = self.last.as_deref().map(Self::sequence);
        let now = block.id.as_deref().map(Self::sequence);
        match block.event.as_str() {
            "" => assert!(
                now.is_none() || before.is_none() || now == before,
                "{block:?}"
            ),
            "reset" => {
                assert!(!block.data.contains("\"ahead\""), "{block:?}");
                self.told += 1;
                self.document = None;
            }
            "gap" => {
                self.told += 1;
                let data = expr::json::parse(&Bytes::from(block.data.clone()), 9).unwrap();
                let text = |name| {
                    let found = expr::value::get(&data, name).unwrap();
                    expr::value::scalar_text(found).unwrap().into_owned()
                };
                let (from, to) = (text("from"), text("to"));
                assert_eq!(Some(Self::sequence(&from)), before.map(|it| it + 1));
                let count = Self::sequence(&to) + 1 - Self::sequence(&from);
                assert_eq!(
                    (text("count"), Some(to)),
                    (count.to_string(), block.id.clone())
                );
            }
            "event" => {
                self.got += 1;
                let now = now.unwrap();
                assert!(
                    before.is_none_or(|it| now == it + 1),
                    "{before:?} then {now}"
                );
                assert_eq!(block.data, self.published[now as usize - 1]);
            }
            "snapshot" => {
                self.got += 1;
                let now = now.unwrap();
                assert!(before.is_none_or(|it| now >= it), "{before:?} then {now}");
                assert_eq!(block.data, self.published[now as usize - 1]);
                self.document = Some(Document::parse(block.data.as_bytes()).unwrap());
            }
            "patch" => {
                self.got += 1;
                assert_eq!(self.mode, Mode::Patch);
                let now = now.unwrap();
                assert_eq!(before, Some(now - 1));
                let old = self.document.take().unwrap();
                let new = document::apply(&old, block.data.as_bytes(), 1 << 20).unwrap();
                assert_eq!(new.text(), self.published[now as usize - 1].as_bytes());
                self.document = Some(new);
            }
            other => panic!("{other}"),
        }
        if block.id.is_some() {
            self.last = block.id;
        }
    }
}

/// A client that comes and goes. In the end it has all there is.
async fn live(
    workers: [Rc<Branch>; 2],
    (mode, policy): (Mode, Policy),
    seed: u64,
    published: Rc<RefCell<Vec<String>>>,
    is_done: Rc<RefCell<bool>>,
) -> (usize, usize) {
    let mut dice = Rng::with_seed(seed);
    let (mut last, mut document, mut told, mut got) = (None, None, 0, 0);
    loop {
        let client = FakeClient::default();
        let running = tokio::task::spawn_local(stay(
            Rc::clone(&workers[dice.usize(..2)]),
            key(mode),
            pace(policy),
            start_of(&last),
            client.clone(),
        ));
        let is_slow = dice.u8(..3) == 0;
        for _ in 0..dice.u8(..40) {
            let room = if is_slow { dice.usize(..200) } else { 1 << 20 };
            client.open(room);
            tokio::time::sleep(Duration::from_millis(dice.u64(..5))).await;
        }
        let is_last = *is_done.borrow() && !is_slow;
        if is_last {
            client.open(usize::MAX / 2);
            let end = format!("\"n\":{}", published.borrow().len() - 1);
            let has_all =
                last.as_deref().map(Known::sequence) == Some(published.borrow().len() as u64);
            if !has_all && mode != Mode::Patch {
                until(&client, &end).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        client.leave();
        running.await.unwrap();
        let published = published.borrow();
        let mut known = Known {
            published: &published,
            mode,
            last,
            document,
            told,
            got,
        };
        blocks(&client.text())
            .into_iter()
            .for_each(|it| known.take(it));
        (last, document, told, got) = (known.last, known.document, known.told, known.got);
        if is_last {
            assert_eq!(
                last.as_deref().map(Known::sequence),
                Some(published.len() as u64)
            );
            return (told, got);
        }
    }
}

/// A document that changes in a few places.
fn next_document(number: usize, dice: &mut Rng) -> String {
    let fill = "x".repeat(dice.usize(..300));
    format!(
        "{{\"a\":[1,{},3],\"fill\":\"{fill}\",\"same\":\"{}\",\"n\":{number}}}",
        dice.u8(..4),
        "y".repeat(400)
    )
}

fn run_model(payload: Payload, mode: Mode, policy: Policy) {
    // How far readers fall behind depends on the machine: the model is of use only when some do.
    let is_of_use = (0..10).any(|round| run_model_once(round, payload, (mode, policy)));
    assert!(is_of_use, "no reader was ever too far behind");
}

/// Whether a reader was too far behind.
fn run_model_once(round: u64, payload: Payload, (mode, policy): (Mode, Policy)) -> bool {
    let mut is_of_use = false;
    local(async {
        let (topic, branch) = topic(payload, 60).await;
        let other = crate::testing::branch(&topic);
        let published = Rc::new(RefCell::new(Vec::new()));
        let is_done = Rc::new(RefCell::new(false));
        let clients: Vec<_> = (1..=12_u64)
            .map(|seed| {
                let (published, is_done) = (Rc::clone(&published), Rc::clone(&is_done));
                let workers = [Rc::clone(&branch), Rc::clone(&other)];
                let seed = seed + 12 * round;
                tokio::task::spawn_local(live(workers, (mode, policy), seed, published, is_done))
            })
            .collect();
        let mut dice = Rng::with_seed(77 + round);
        for number in 0..500 {
            let body = next_document(number, &mut dice);
            published.borrow_mut().push(body.clone());
            topic.publish(publication(&body)).await.unwrap();
            if dice.u8(..4) == 0 {
                tokio::time::sleep(Duration::from_millis(dice.u64(..12))).await;
            }
        }
        *is_done.borrow_mut() = true;
        let (mut told, mut got) = (0, 0);
        for client in clients {
            let (its_told, its_got) = client.await.unwrap();
            told += its_told;
            got += its_got;
        }
        assert!(got > 500, "{got}");
        let conflated = |it: &Branch| it.counts().conflated.load(Ordering::Relaxed);
        let conflated = conflated(&branch) + conflated(&other);
        is_of_use = match policy {
            Policy::Conflate => conflated > 0,
            Policy::Drop | Policy::Disconnect => told > 0,
        };
    });
    is_of_use
}

#[test]
fn events_come_once_and_in_order_or_the_client_is_told_and_ended() {
    run_model(Payload::Event, Mode::Event, Policy::Disconnect);
}

#[test]
fn events_come_once_and_in_order_or_the_client_is_told_of_a_gap() {
    run_model(Payload::Event, Mode::Event, Policy::Drop);
}

#[test]
fn snapshots_are_what_was_published() {
    run_model(Payload::Snapshot, Mode::Snapshot, Policy::Conflate);
}

#[test]
fn patches_make_what_was_published() {
    run_model(Payload::Snapshot, Mode::Patch, Policy::Conflate);
}

#[test]
fn stalled_clients_hold_nobody_up_and_are_cut() {
    local(async {
        let (topic, branch) = topic(Payload::Event, 100_000).await;
        let mut pace = pace(Policy::Drop);
        pace.stalled_max = 2;
        let stalled: Vec<_> = (0..1000)
            .map(|_| {
                let client = FakeClient::default();
                let task = stay(
                    Rc::clone(&branch),
                    key(Mode::Event),
                    pace,
                    Start::Now,
                    client,
                );
                tokio::task::spawn_local(task)
            })
            .collect();
        let good = FakeClient::default();
        good.open(usize::MAX / 2);
        let running = stay(
            Rc::clone(&branch),
            key(Mode::Event),
            pace,
            Start::Now,
            good.clone(),
        );
        let running = tokio::task::spawn_local(running);
        until(&good, "id: ").await;
        for number in 0..2000 {
            topic
                .publish(publication(&format!("{{\"n\":{number}}}")))
                .await
                .unwrap();
        }
        until(&good, "{\"n\":1999}").await;
        let events = blocks(&good.text());
        assert_eq!(events.iter().filter(|it| it.event == "event").count(), 2000);
        for task in stalled {
            assert_eq!(task.await.unwrap(), Some(StreamEnd::Stalled));
        }
        good.leave();
        assert_eq!(running.await.unwrap(), None);
    });
}

#[test]
fn what_an_expression_gives_is_patched_by_itself_and_failures_are_told() {
    local(async {
        let (topic, branch) = topic(Payload::Snapshot, 100).await;
        let mut wanted = key(Mode::Patch);
        let texts = (None, Some(".a | {long: .b, same: .c}"));
        wanted.views[0].expressions = Some(expressions::combination(&branch, texts).await);
        let client = FakeClient::default();
        client.open(usize::MAX / 2);
        let pace = pace(Policy::Conflate);
        let running = stay(Rc::clone(&branch), wanted, pace, Start::Now, client.clone());
        let running = tokio::task::spawn_local(running);
        until(&client, "id: ").await;
        let long = "z".repeat(100);
        for body in [
            format!("{{\"a\":{{\"b\":1,\"c\":\"{long}\"}},\"d\":1}}"),
            format!("{{\"a\":{{\"b\":1,\"c\":\"{long}\"}},\"d\":2}}"),
            format!("{{\"a\":{{\"b\":2,\"c\":\"{long}\"}},\"d\":2}}"),
            "{\"a\":7}".to_owned(),
            format!("{{\"a\":{{\"b\":2,\"c\":\"{long}\"}},\"d\":2}}"),
        ] {
            topic.publish(publication(&body)).await.unwrap();
        }
        until(&client, "-5\n").await;
        let seen = blocks(&client.text());
        let seen: Vec<(&str, &str)> = seen
            .iter()
            .filter(|it| !it.event.is_empty())
            .map(|it| {
                (
                    it.event.as_str(),
                    it.id.as_deref().unwrap().rsplit('-').next().unwrap(),
                )
            })
            .collect();
        let expected = [
            ("snapshot", "1"),
            ("patch", "3"),
            ("error", "4"),
            ("snapshot", "5"),
        ];
        assert_eq!(seen, expected);
        assert!(
            client
                .text()
                .contains("[{\"op\":\"replace\",\"path\":\"/long\",\"value\":2}]")
        );
        client.leave();
        running.await.unwrap();
    });
}

#[test]
fn several_topics_on_one_stream_go_on_each_where_it_was() {
    local(async {
        let (events, first) = topic(Payload::Event, 100).await;
        let second = crate::testing::branch(&events);
        let (snapshots, third) = topic(Payload::Snapshot, 100).await;
        let branches = [first, third, second];
        for branch in &branches {
            branch.ready().await.unwrap();
        }
        for number in 0..5 {
            let body = format!("{{\"n\":{number}}}");
            events.publish(publication(&body)).await.unwrap();
            snapshots.publish(publication(&body)).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        let wanted = ChannelKey {
            ids: IdForm::Composite,
            views: [Mode::Event, Mode::Snapshot, Mode::Event]
                .into_iter()
                .flat_map(|mode| key(mode).views)
                .collect(),
            ..key(Mode::Event)
        };
        let channel = Branch::channel(&branches, wanted, pace(Policy::Disconnect)).unwrap();
        let epoch = |at: usize| branches[at].last().epoch;
        let after = |at: usize, sequence| {
            Start::After(EventId {
                epoch: epoch(at),
                sequence,
            })
        };
        let starts = vec![after(0, 3), after(1, 2), Start::Now];
        let mut client = FakeClient::default();
        client.open(usize::MAX / 2);
        let mut reader = Reader::new(&channel, None);
        let joining = Joining::new(&channel, starts, Vec::new());
        assert_eq!(
            stream::join(&mut reader, &mut client, joining)
                .await
                .unwrap(),
            None
        );
        let mut writing = client.clone();
        let running =
            tokio::task::spawn_local(
                async move { stream::deliver(&mut reader, &mut writing).await },
            );
        events.publish(publication("{\"n\":5}")).await.unwrap();
        until(&client, "\"n\":5").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        let seen: Vec<(String, String)> = blocks(&client.text())
            .into_iter()
            .filter(|it| !it.event.is_empty())
            .map(|it| (it.event, it.data))
            .collect();
        let data = |number| format!("{{\"topic\":\"test\",\"data\":{{\"n\":{number}}}}}");
        let of = |kind: &str, number| (kind.to_owned(), data(number));
        let expected = [
            of("snapshot", 4),
            of("event", 3),
            of("event", 4),
            of("event", 5),
            of("event", 5),
        ];
        let mut sorted = seen.clone();
        sorted.sort_by_key(|it| (it.0 != "snapshot", it.1.clone()));
        assert_eq!(sorted, expected);
        let last = blocks(&client.text())
            .into_iter()
            .rev()
            .find_map(|it| it.id)
            .unwrap();
        let ends: Vec<&str> = last
            .split(',')
            .map(|it| it.rsplit('-').next().unwrap())
            .collect();
        assert_eq!(ends, ["6", "5", "6"]);
        client.leave();
        running.await.unwrap();
    });
}

/// Events of each topic on a stream, by the ids of its blocks: each once and in order.
fn check_order(text: &str, counts: &[u64]) {
    let mut last = vec![0; counts.len()];
    for block in blocks(text).into_iter().filter(|it| it.event == "event") {
        let id = block.id.unwrap();
        let now = id
            .split(',')
            .map(|it| it.rsplit('-').next().unwrap().parse());
        let now: Vec<u64> = now.map(Result::unwrap).collect();
        let steps = now.iter().zip(&last).map(|(now, last)| now - last);
        assert_eq!(steps.sum::<u64>(), 1, "{last:?} then {now:?}");
        last = now;
    }
    assert_eq!(last, counts);
}

async fn several(count: usize) -> (Vec<Arc<Topic>>, Vec<Rc<Branch>>, Rc<Channel>) {
    let (mut topics, mut branches) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (topic, branch) = topic(Payload::Event, 10_000).await;
        branch.ready().await.unwrap();
        topics.push(topic);
        branches.push(branch);
    }
    let wanted = ChannelKey {
        ids: IdForm::Composite,
        views: (0..count).flat_map(|_| key(Mode::Event).views).collect(),
        ..key(Mode::Event)
    };
    let pace = Pace {
        bytes_max: 2 << 20,
        ..pace(Policy::Disconnect)
    };
    let channel = Branch::channel(&branches, wanted, pace).unwrap();
    (topics, branches, channel)
}

/// How busy three topics are while a subscriber comes to them.
#[derive(Clone, Copy)]
struct Busy {
    /// The events of each topic that the subscriber has missed.
    missed: u64,
    /// The size of an event.
    bytes: usize,
    /// The events that each topic gets at most for each write to the subscriber, and half of that
    /// at least.
    meanwhile: u64,
}

#[test]
fn a_stream_of_several_busy_topics_comes_to_its_ring() {
    let cases = [
        (20, 200, 5),
        // More comes during a write than goes out with it: a subscriber that tries to have the
        // newest event of each topic never has all of them.
        (80, 2000, 150),
        // During two writes the ring forgets all that it has: events of several topics have to go
        // out with one write where they are few.
        (5, 2000, 400),
    ];
    for (missed, bytes, meanwhile) in cases {
        for seed in 1..=5 {
            comes_to_its_ring(
                seed,
                Busy {
                    missed,
                    bytes,
                    meanwhile,
                },
            );
        }
    }
}

fn comes_to_its_ring(seed: u64, busy: Busy) {
    local(async move {
        let mut dice = Rng::with_seed(seed);
        let (topics, branches, channel) = several(3).await;
        // Somebody who reads nothing, for whom the ring keeps as much as it may.
        let mut slow = Reader::new(&channel, None);
        slow.join(Bytes::new(), channel.end_of_ring());
        let mut counts = vec![0; 3];
        let body = format!("\"{}\"", "x".repeat(busy.bytes));
        for (topic, count) in topics.iter().zip(&mut counts) {
            for _ in 0..busy.missed {
                topic.publish(publication(&body)).await.unwrap();
            }
            *count += busy.missed;
        }
        let starts = vec![Start::Earliest; 3];
        let mut joining = Joining::new(&channel, starts, Vec::new());
        let (mut got, mut joined) = (Vec::new(), None);
        for _ in 0..10 {
            match joining.advance().await.unwrap() {
                Step::Write(piece) => got.extend_from_slice(&piece),
                Step::Join(own, at) => {
                    got.extend_from_slice(&own);
                    joined = Some(at);
                    break;
                }
                Step::Full => panic!(),
            }
            // While that is written, each topic has more.
            for at in 0..3 {
                let half = busy.meanwhile / 2;
                for _ in 0..=half + dice.u64(..half) {
                    topics[at].publish(publication(&body)).await.unwrap();
                    counts[at] += 1;
                }
                assert!(branches[at].reach(counts[at]).await);
            }
        }
        let at = joined.expect("it never comes to the ring");
        let client = FakeClient::default();
        client.open(usize::MAX / 2);
        let mut reader = Reader::new(&channel, None);
        reader.join(got.into(), at);
        let mut writing = client.clone();
        let running =
            tokio::task::spawn_local(
                async move { stream::deliver(&mut reader, &mut writing).await },
            );
        for at in 0..3 {
            topics[at].publish(publication("\"end\"")).await.unwrap();
            counts[at] += 1;
            assert!(branches[at].reach(counts[at]).await);
        }
        while client.text().matches("\"end\"").count() < 3 {
            tokio::task::yield_now().await;
        }
        check_order(&client.text(), &counts);
        client.leave();
        running.await.unwrap();
    });
}

/// What a worker does for one event is no longer than for a few readers at a time.
#[test]
fn readers_of_large_events_let_others_go_first() {
    const READERS: usize = 100;
    const SIZE: usize = 50_000;
    local(async {
        let (topic, branch) = topic(Payload::Event, 10).await;
        let clients: Vec<_> = (0..READERS).map(|_| FakeClient::default()).collect();
        let large = Pace {
            bytes_max: 1 << 20,
            ..pace(Policy::Disconnect)
        };
        for client in &clients {
            client.open(usize::MAX / 2);
            let (branch, key) = (Rc::clone(&branch), key(Mode::Event));
            tokio::task::spawn_local(stay(branch, key, large, Start::Now, client.clone()));
        }
        for client in &clients {
            until(client, "id: ").await;
        }
        // All of them wait for what comes.
        tokio::task::yield_now().await;
        let body = format!("\"{}\"", "x".repeat(SIZE));
        // Beside what is looked at: readers may be served before the publisher is answered.
        let publish = async move { topic.publish(publication(&body)).await.unwrap() };
        tokio::task::spawn_local(publish);
        let served = || {
            let has_it = |it: &&FakeClient| it.0.borrow().got.len() > SIZE;
            clients.iter().filter(has_it).count()
        };
        let (mut before, mut most) = (served(), 0);
        while before < READERS {
            tokio::task::yield_now().await;
            let now = served();
            (most, before) = (most.max(now - before), now);
        }
        assert!((1..=15).contains(&most), "{most}");
        clients.iter().for_each(FakeClient::leave);
    });
}
