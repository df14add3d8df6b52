//! Subscribers with expressions: what they cost others, and what becomes of those that cost much.
//! Counted in turns and steps, not in time.

use std::cell::Cell;

use super::*;
use crate::expressions::{self, ExpressionLimits, Expressions, Texts};
use crate::only::{Group, Only};
use crate::testing::branch_with;

/// The one combination of these expressions.
pub(super) async fn combination(
    branch: &Rc<Branch>,
    texts: (Option<&str>, Option<&str>),
) -> Rc<Expressions> {
    let branches = [Rc::clone(branch)];
    let mut all = expressions::combinations(&branches, &[], texts)
        .await
        .unwrap();
    all.pop().unwrap()
}

/// A subscriber who reads everything, unless its room is used up.
struct Subscriber {
    client: FakeClient,
    running: tokio::task::JoinHandle<Option<StreamEnd>>,
}

impl Subscriber {
    async fn start(
        branch: &Rc<Branch>,
        (mode, policy): (Mode, Policy),
        texts: (Option<&str>, Option<&str>),
        (start, room): (Start, usize),
    ) -> Self {
        let expressions = match texts {
            (None, None) => None,
            texts => Some(combination(branch, texts).await),
        };
        Self::with(branch, (mode, policy), expressions, (start, room)).await
    }

    async fn with(
        branch: &Rc<Branch>,
        (mode, policy): (Mode, Policy),
        expressions: Option<Rc<Expressions>>,
        (start, room): (Start, usize),
    ) -> Self {
        let mut wanted = key(mode);
        wanted.views[0].expressions = expressions;
        let client = FakeClient::default();
        client.open(room);
        let stay = stay(
            Rc::clone(branch),
            wanted,
            pace(policy),
            start,
            client.clone(),
        );
        let running = tokio::task::spawn_local(stay);
        until(&client, "id: ").await;
        Self { client, running }
    }

    /// One of a group of callers.
    async fn of_group(branch: &Rc<Branch>, group: &Group, texts: Texts<'_>) -> Self {
        let (branches, groups) = ([Rc::clone(branch)], [Some(group.clone())]);
        let all = expressions::combinations(&branches, &groups, texts).await;
        let how = (Mode::Event, Policy::Disconnect);
        let at = (Start::Now, usize::MAX / 2);
        Self::with(branch, how, all.unwrap().pop(), at).await
    }

    async fn events(branch: &Rc<Branch>, texts: (Option<&str>, Option<&str>)) -> Self {
        let how = (Mode::Event, Policy::Disconnect);
        Self::start(branch, how, texts, (Start::Now, usize::MAX / 2)).await
    }

    /// The sequences and names of what it has got.
    fn got(&self) -> Vec<(u64, String)> {
        let blocks = blocks(&self.client.text()).into_iter();
        let named = blocks.filter(|it| !it.event.is_empty());
        let read = named.map(|it| (Known::sequence(&it.id.unwrap()), it.event));
        read.collect()
    }

    async fn leave(self) -> Option<StreamEnd> {
        self.client.leave();
        self.running.await.unwrap()
    }
}

fn evaluations(branch: &Branch) -> u64 {
    branch.counts().evaluations.load(Ordering::Relaxed)
}

/// A filter that uses up a turn by itself, and holds.
fn costly(number: usize) -> String {
    format!("([range(8000)] | length) > {number}")
}

async fn publish(topic: &Topic, body: &str) {
    topic.publish(publication(body)).await.unwrap();
}

/// Waits until this is so.
async fn until_so(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what}");
}

#[test]
fn equal_expressions_are_evaluated_once_whoever_asks() {
    local(async {
        let (topic, branch) = topic(Payload::Event, 100).await;
        let (one, other) = (Some(".a > 0"), Some("{b: .a}"));
        let mut all = Vec::new();
        for texts in [
            (one, None),
            (Some(" .a > 0\n"), None),
            (one, other),
            (None, other),
            (one, Some(".a")),
            (None, Some(".a")),
        ] {
            all.push(Subscriber::events(&branch, texts).await);
        }
        // Another wire is another channel.
        let mut compressed = key(Mode::Event);
        compressed.wire = Wire::WebSocket(None);
        compressed.views[0].expressions = Some(combination(&branch, (one, other)).await);
        let channel = Branch::channel(&[Rc::clone(&branch)], compressed, pace(Policy::Drop));
        publish(&topic, "{\"a\":1}").await;
        for subscriber in &all {
            until(&subscriber.client, "event: event").await;
        }
        until_so("the other wire has it", || {
            channel.as_ref().unwrap().end_of_ring() > 0
        })
        .await;
        assert_eq!(evaluations(&branch), 3, "one filter and two selects");
        for subscriber in all {
            assert_eq!(subscriber.leave().await, None);
        }
        drop(channel);
        assert!(
            branch.evaluator().combinations().is_empty(),
            "all are freed"
        );
    });
}

/// The group of a caller with these claims.
fn group(only: &Only, claims: &str) -> Group {
    let claims = Bytes::copy_from_slice(claims.as_bytes());
    let claims = expr::json::parse(&claims, 16).unwrap();
    only.group(Some(&component::access::Caller::new(
        &"staff".into(),
        "ann",
        claims,
    )))
}

#[test]
fn a_condition_is_evaluated_once_for_all_callers_of_a_group() {
    local(async {
        let (topic, branch) = topic(Payload::Event, 100).await;
        let only = Only::of_text(".t == $auth.claims.t");
        let of = |claims: &str| group(&only, claims);
        let mut all = Vec::new();
        for (claims, texts) in [
            (r#"{"t":"a","jti":1}"#, (None, None)),
            (r#"{"t":"a","jti":2}"#, (None, None)),
            (r#"{"t":"a","jti":3}"#, (None, Some(".n"))),
            (r#"{"t":"a","jti":4}"#, (Some(".n > 1"), None)),
            (r#"{"t":"b","jti":5}"#, (None, None)),
        ] {
            all.push(Subscriber::of_group(&branch, &of(claims), texts).await);
        }
        assert_eq!(branch.evaluator().combinations().len(), 4);
        publish(&topic, r#"{"t":"a","n":1}"#).await;
        publish(&topic, r#"{"t":"b","n":2}"#).await;
        publish(&topic, r#"{"t":"a","n":3}"#).await;
        for subscriber in &all[..4] {
            until(&subscriber.client, "-3\nevent: event").await;
        }
        until(&all[4].client, "-2\nevent: event").await;
        let event = |sequence: u64| (sequence, "event".to_owned());
        for (at, expected) in [&[1, 3][..], &[1, 3], &[1, 3], &[3], &[2]]
            .iter()
            .enumerate()
        {
            let expected: Vec<_> = expected.iter().map(|it| event(*it)).collect();
            assert_eq!(all[at].got(), expected, "{at}");
        }
        until_so("all are evaluated", || evaluations(&branch) >= 10).await;
        // For each event both groups, and for those of `a` its filter and its select.
        assert_eq!(evaluations(&branch), 3 * 2 + 2 * 2);
        for subscriber in all {
            assert_eq!(subscriber.leave().await, None);
        }
        assert!(branch.evaluator().combinations().is_empty());
    });
}

#[test]
fn groups_and_expressions_of_subscribers_are_bounded_each_by_themselves() {
    local(async {
        let (topic, _) = topic(Payload::Event, 100).await;
        let limits = ExpressionLimits {
            groups: 2,
            distinct: 1,
            ..ExpressionLimits::default()
        };
        let branch = branch_with(&topic, (limits, 1 << 20));
        let branches = [Rc::clone(&branch)];
        let only = Only::of_text("$auth.claims.t == .t");
        let of = |tenant: u64, texts| {
            let groups = [Some(group(&only, &format!("{{\"t\":{tenant}}}")))];
            let branches = branches.clone();
            async move { expressions::combinations(&branches, &groups, texts).await }
        };
        let mut there = Vec::new();
        for tenant in [1, 2, 1] {
            there.push(of(tenant, (None, None)).await.unwrap());
        }
        let refused = of(3, (None, None)).await.unwrap_err();
        assert_eq!(
            (refused.status, &*refused.detail),
            (503, "too many different groups of subscribers")
        );
        // Whoever comes with a filter is another matter.
        there.push(of(1, (Some(".a"), None)).await.unwrap());
        let refused = of(2, (Some(".a"), None)).await.unwrap_err();
        assert!(refused.detail.contains("expressions"), "{refused}");
        there.remove(1);
        assert!(of(3, (None, None)).await.is_ok());
    });
}

#[test]
fn others_go_on_while_costly_expressions_are_evaluated() {
    local(async {
        let (topic, branch) = topic(Payload::Event, 100).await;
        let plain = Subscriber::events(&branch, (None, None)).await;
        let mut all = Vec::new();
        for number in 0..40 {
            let text = costly(number);
            all.push(Subscriber::events(&branch, (Some(&text), None)).await);
        }
        // How often another task of the worker has its turn, and the most evaluations between two.
        let (turns, most) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0)));
        let watcher = {
            let (branch, turns, most) = (Rc::clone(&branch), Rc::clone(&turns), Rc::clone(&most));
            tokio::task::spawn_local(async move {
                loop {
                    let before = evaluations(&branch);
                    tokio::task::yield_now().await;
                    most.set(most.get().max(evaluations(&branch) - before));
                    turns.set(turns.get() + 1);
                }
            })
        };
        for number in 1..=3 {
            publish(&topic, &format!("{{\"n\":{number}}}")).await;
            until(&plain.client, &format!("{{\"n\":{number}}}")).await;
            // The plain subscriber and the publisher wait for none of them.
            assert!(evaluations(&branch) < number * 40, "{number}");
        }
        for subscriber in &all {
            until(&subscriber.client, "{\"n\":3}").await;
            let sequences: Vec<u64> = subscriber.got().iter().map(|it| it.0).collect();
            assert_eq!(sequences, [1, 2, 3]);
        }
        watcher.abort();
        assert_eq!(evaluations(&branch), 120);
        // A turn has 10,000 steps, and one evaluation that has begun.
        assert!((1..=2).contains(&most.get()), "{}", most.get());
        assert!(turns.get() >= 60, "{}", turns.get());
        plain.leave().await;
        for subscriber in all {
            assert_eq!(subscriber.leave().await, None);
        }
    });
}

#[test]
fn beyond_the_steps_of_an_event_cheap_expressions_still_come_first() {
    local(async {
        let (topic, _) = topic(Payload::Event, 100).await;
        let limits = ExpressionLimits {
            steps: 20_000,
            ..ExpressionLimits::default()
        };
        let branch = branch_with(&topic, (limits, 1 << 20));
        let mut all = Vec::new();
        for number in 0..10 {
            let text = costly(number);
            all.push(Subscriber::events(&branch, (Some(&text), None)).await);
        }
        let cheap = Subscriber::events(&branch, (Some(".n > 0"), None)).await;
        let late = || branch.counts().late_evaluations.load(Ordering::Relaxed);
        publish(&topic, "{\"n\":1}").await;
        for subscriber in &all {
            until(&subscriber.client, "{\"n\":1}").await;
        }
        let after_one = late();
        assert!((4..=10).contains(&after_one), "{after_one}");
        publish(&topic, "{\"n\":2}").await;
        while !cheap.client.text().contains("{\"n\":2}") {
            tokio::task::yield_now().await;
        }
        let done = evaluations(&branch) - 11;
        assert!(done <= 3, "{done} were evaluated before the cheap one");
        for subscriber in &all {
            until(&subscriber.client, "{\"n\":2}").await;
        }
        for subscriber in all {
            assert_eq!(subscriber.leave().await, None);
        }
        cheap.leave().await;
    });
}

/// Publishes more at once than may wait for expressions, and what a subscriber gets of it.
async fn flood(payload: Payload, (mode, policy): (Mode, Policy)) -> (Rc<Branch>, Subscriber) {
    let (topic, _) = topic(payload, 1000).await;
    let branch = branch_with(&topic, (ExpressionLimits::default(), 16 * 1024));
    let select = (None, Some("{n, pad: .pad[:10]}"));
    let how = (Start::Now, usize::MAX / 2);
    let subscriber = Subscriber::start(&branch, (mode, policy), select, how).await;
    let body = |number: u64| format!("{{\"n\":{number},\"pad\":\"{}\"}}", "x".repeat(300));
    let many = (1..=200).map(|it| publication(&body(it))).collect();
    topic
        .publish_all(crate::topic::For::default(), many)
        .await
        .unwrap();
    assert!(branch.reach(200).await);
    (branch, subscriber)
}

#[test]
fn expressions_that_are_behind_are_told_of_a_gap() {
    local(async {
        let (branch, subscriber) = flood(Payload::Event, (Mode::Event, Policy::Drop)).await;
        until(&subscriber.client, "\"n\":200").await;
        let (mut next, mut gaps, mut events) = (1, 0, 0);
        for block in blocks(&subscriber.client.text()) {
            let Some(now) = block.id.as_deref().map(Known::sequence) else {
                continue;
            };
            match block.event.as_str() {
                "gap" => {
                    assert!(block.data.contains(&format!("-{next}\"")), "{block:?}");
                    gaps += now + 1 - next;
                    next = now + 1;
                }
                "event" => {
                    assert_eq!(now, next);
                    next += 1;
                    events += 1;
                }
                _ => {}
            }
        }
        assert_eq!(gaps + events, 200);
        assert!(gaps > 50 && events > 0, "{gaps} {events}");
        let dropped = branch.counts().dropped.load(Ordering::Relaxed);
        assert_eq!(dropped, gaps);
        subscriber.leave().await;
    });
}

#[test]
fn expressions_that_are_behind_get_the_newest_snapshot() {
    local(async {
        for mode in [Mode::Snapshot, Mode::Patch] {
            let (branch, subscriber) = flood(Payload::Snapshot, (mode, Policy::Conflate)).await;
            until(&subscriber.client, "-200\n").await;
            let got = subscriber.got();
            assert!(got.len() < 100, "{got:?}");
            assert!(branch.counts().conflated.load(Ordering::Relaxed) > 0);
            subscriber.leave().await;
        }
    });
}

#[test]
fn expressions_that_are_behind_end_the_stream_which_goes_on_where_it_was() {
    local(async {
        let (branch, subscriber) = flood(Payload::Event, (Mode::Event, Policy::Disconnect)).await;
        let got = subscriber.got().len() as u64;
        assert_eq!(subscriber.running.await.unwrap(), Some(StreamEnd::Slow));
        let last = EventId {
            sequence: got,
            ..branch.last()
        };
        let again = Subscriber::start(
            &branch,
            (Mode::Event, Policy::Disconnect),
            (None, Some("{n, pad: .pad[:10]}")),
            (Start::After(last), usize::MAX / 2),
        )
        .await;
        until(&again.client, "\"n\":200").await;
        let sequences: Vec<u64> = again.got().iter().map(|it| it.0).collect();
        assert_eq!(sequences, Vec::from_iter(got + 1..=200));
        again.leave().await;
    });
}

#[test]
fn a_history_is_evaluated_in_turns() {
    local(async {
        let (topic, branch) = topic(Payload::Event, 1000).await;
        for number in 1..=60 {
            publish(&topic, &format!("{{\"n\":{number}}}")).await;
        }
        let turns = Rc::new(Cell::new(0_u64));
        let counted = Rc::clone(&turns);
        let watcher = tokio::task::spawn_local(async move {
            loop {
                counted.set(counted.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        let text = costly(0);
        let subscriber = Subscriber::start(
            &branch,
            (Mode::Event, Policy::Disconnect),
            (Some(&text), None),
            (Start::Earliest, usize::MAX / 2),
        )
        .await;
        until(&subscriber.client, "{\"n\":60}").await;
        watcher.abort();
        let sequences: Vec<u64> = subscriber.got().iter().map(|it| it.0).collect();
        assert_eq!(sequences, Vec::from_iter(1..=60));
        assert!(turns.get() >= 30, "{}", turns.get());
        subscriber.leave().await;
    });
}

/// One that was elsewhere has had more than this channel, which is behind.
#[test]
fn whoever_is_ahead_of_expressions_waits_for_them() {
    local(async {
        let (topic, branch) = topic(Payload::Event, 100).await;
        let text = costly(1);
        let first = Subscriber::events(&branch, (Some(&text), None)).await;
        for number in 1..=10 {
            publish(&topic, &format!("{{\"n\":{number}}}")).await;
        }
        assert!(branch.reach(10).await);
        let second = Subscriber::start(
            &branch,
            (Mode::Event, Policy::Disconnect),
            (Some(&text), None),
            (Start::After(branch.last()), usize::MAX / 2),
        );
        let second = second.await;
        publish(&topic, "{\"n\":11}").await;
        until(&second.client, "{\"n\":11}").await;
        assert_eq!(second.got(), [(11, "event".to_owned())]);
        until(&first.client, "{\"n\":11}").await;
        assert_eq!(first.got().len(), 11);
        first.leave().await;
        second.leave().await;
    });
}

#[test]
fn what_selects_give_is_bounded_and_those_with_most_of_it_are_disconnected() {
    local(async {
        let (topic, branch) = topic(Payload::Event, 100).await;
        let max = ExpressionLimits::default().memory;
        let mut stalled = Vec::new();
        for number in 0..60 {
            // 1 MB each, of which the client takes almost nothing.
            let text = format!("\"x{number:03}\" * 250000");
            let how = (Mode::Event, Policy::Drop);
            let texts = (None, Some(text.as_str()));
            stalled.push(Subscriber::start(&branch, how, texts, (Start::Now, 100)).await);
        }
        let small = Subscriber::events(&branch, (None, Some("{n}"))).await;
        let most = Rc::new(Cell::new(0));
        let watcher = {
            let (branch, most) = (Rc::clone(&branch), Rc::clone(&most));
            tokio::task::spawn_local(async move {
                loop {
                    most.set(most.get().max(branch.evaluator().memory().used()));
                    tokio::task::yield_now().await;
                }
            })
        };
        for number in 1..=3 {
            publish(&topic, &format!("{{\"n\":{number}}}")).await;
            until(&small.client, &format!("{{\"n\":{number}}}")).await;
        }
        until_so("all have been evaluated", || evaluations(&branch) >= 3 + 60).await;
        let mut cut = 0;
        for subscriber in stalled {
            if !subscriber.running.is_finished() {
                tokio::task::yield_now().await;
            }
            match subscriber.running.is_finished() {
                true => {
                    assert_eq!(subscriber.running.await.unwrap(), Some(StreamEnd::Slow));
                    cut += 1;
                }
                false => drop(subscriber.leave().await),
            }
        }
        watcher.abort();
        assert!(cut >= 30, "{cut}");
        assert!(most.get() > max / 2 && most.get() <= max, "{}", most.get());
        assert_eq!(small.leave().await, None);
        let memory = branch.evaluator().memory();
        until_so("all is given back", || memory.used() == 0).await;
    });
}

#[test]
fn too_many_or_too_long_expressions_are_refused() {
    local(async {
        let (topic, _) = topic(Payload::Event, 10).await;
        let limits = ExpressionLimits {
            distinct: 2,
            length: 20,
            ..ExpressionLimits::default()
        };
        let branch = branch_with(&topic, (limits, 1 << 20));
        let branches = [Rc::clone(&branch)];
        let first = combination(&branch, (Some(".a"), None)).await;
        let _second = combination(&branch, (None, Some(".a"))).await;
        let same = combination(&branch, (Some("  .a "), None)).await;
        assert!(Rc::ptr_eq(&first, &same));
        let status = async |text: &str| {
            let made = expressions::combinations(&branches, &[], (Some(text), None)).await;
            made.map(drop).map_err(|fault| fault.status)
        };
        assert_eq!(status(".b").await, Err(503));
        assert_eq!(status(&format!(".a + {}", "1".repeat(20))).await, Err(400));
        drop((first, same));
        assert_eq!(status(".b").await, Ok(()));
        assert_eq!(status(".b |").await, Err(400));
        assert_eq!(branch.evaluator().combinations().len(), 1);
    });
}

#[test]
fn an_expression_beyond_its_own_bound_is_told_for_each_event() {
    local(async {
        let (topic, branch) = topic(Payload::Event, 100).await;
        let texts = (Some("[range(100000000)] | length > .n"), None);
        let subscriber = Subscriber::events(&branch, texts).await;
        publish(&topic, "{\"n\":1}").await;
        publish(&topic, "{\"n\":2}").await;
        until(&subscriber.client, "-2\n").await;
        let got = subscriber.got();
        assert_eq!(got, [(1, "error".to_owned()), (2, "error".to_owned())]);
        let steps = branch.counts().expression_steps.load(Ordering::Relaxed);
        assert!(steps <= 2 * (expressions::STEPS_MAX + 100), "{steps}");
        subscriber.leave().await;
    });
}

/// One that reads slowly: what is behind it has been forgotten when it goes on.
async fn slow_reader(payload: Payload, (mode, policy): (Mode, Policy)) -> Vec<Block> {
    let (topic, branch) = topic(payload, 1000).await;
    let select = (None, Some("{n, pad}"));
    let how = (Start::Now, 600);
    let subscriber = Subscriber::start(&branch, (mode, policy), select, how).await;
    for number in 1..=200 {
        let body = format!("{{\"n\":{number},\"pad\":\"{number:0400}\",\"more\":1}}");
        publish(&topic, &body).await;
        until_so("it is evaluated", || evaluations(&branch) == number).await;
    }
    let used = branch.evaluator().memory().used();
    assert!((16 << 10..64 << 10).contains(&used), "{used}");
    subscriber.client.open(usize::MAX / 2);
    until(&subscriber.client, "-200\n").await;
    let seen = blocks(&subscriber.client.text());
    subscriber.leave().await;
    let memory = branch.evaluator().memory();
    until_so("all is given back", || memory.used() == 0).await;
    seen
}

#[test]
fn one_that_reads_slowly_is_told_or_given_the_newest() {
    local(async {
        let seen = slow_reader(Payload::Event, (Mode::Event, Policy::Drop)).await;
        let (mut next, mut gaps) = (1, 0);
        for block in seen.iter().filter(|it| !it.event.is_empty()) {
            let now = Known::sequence(block.id.as_deref().unwrap());
            let is_gap = block.event == "gap";
            assert!(is_gap || now == next, "{block:?}");
            gaps += usize::from(is_gap);
            next = now + 1;
        }
        assert_eq!((gaps, next), (1, 201));
        for mode in [Mode::Snapshot, Mode::Patch] {
            let seen = slow_reader(Payload::Snapshot, (mode, Policy::Conflate)).await;
            let events: Vec<_> = seen.iter().filter(|it| !it.event.is_empty()).collect();
            assert!(events.len() < 100, "{mode:?} {}", events.len());
            let last = events.last().unwrap();
            assert_eq!(last.event, "snapshot");
            assert!(last.data.starts_with("{\"n\":200,"), "{last:?}");
        }
    });
}

/// Nothing is written to it on its way, so nothing but this looks whether its stream has to end.
#[test]
fn whoever_leaves_on_the_way_to_the_ring_has_nothing_more_evaluated() {
    type Ending = (fn(&FakeClient, &Channel), Option<StreamEnd>);
    let endings: [Ending; 5] = [
        (|client, _| client.leave(), None),
        (|client, _| client.stop(), Some(StreamEnd::Stop)),
        (
            |_, channel| channel.finish(StreamEnd::Stop),
            Some(StreamEnd::Stop),
        ),
        (|_, channel| channel.cut(), Some(StreamEnd::Slow)),
        (
            |_, channel| (0..5).for_each(|_| channel.tick()),
            Some(StreamEnd::Time),
        ),
    ];
    for (number, (end, expected)) in endings.into_iter().enumerate() {
        local(async move {
            let (topic, branch) = topic(Payload::Event, 1000).await;
            for number in 1..=100 {
                publish(&topic, &format!("{{\"n\":{number}}}")).await;
            }
            branch.ready().await.unwrap();
            let mut wanted = key(Mode::Event);
            let text = costly(9000);
            let expressions = combination(&branch, (Some(&text), None)).await;
            wanted.views[0].expressions = Some(expressions);
            let pace = pace(Policy::Disconnect);
            let channel = Branch::channel(&[Rc::clone(&branch)], wanted, pace).unwrap();
            let client = FakeClient::default();
            client.open(usize::MAX / 2);
            let mut reader = Reader::new(&channel, Some(5));
            let joining = Joining::new(&channel, vec![Start::Earliest], Vec::new());
            let mut writing = client.clone();
            let running = tokio::task::spawn_local(async move {
                stream::join(&mut reader, &mut writing, joining).await
            });
            while evaluations(&branch) < 2 {
                tokio::task::yield_now().await;
            }
            end(&client, &channel);
            let ended = running.await.unwrap();
            assert!(
                evaluations(&branch) < 10,
                "{number}: {}",
                evaluations(&branch)
            );
            match expected {
                Some(end) => assert_eq!(ended.unwrap(), Some(end), "{number}"),
                None => assert!(ended.is_err(), "{number}"),
            }
            assert_eq!(channel.readers(), 0);
        });
    }
}

/// Those who are on their way go back to the history for what the ring has forgotten, each by
/// itself.
#[test]
fn a_ring_keeps_what_is_new_for_those_on_their_way_unless_memory_is_short() {
    local(async {
        let (topic, branch) = topic(Payload::Event, 100).await;
        branch.ready().await.unwrap();
        let mut wanted = key(Mode::Event);
        wanted.views[0].expressions = Some(combination(&branch, (Some(".n > 0"), None)).await);
        let pace = pace(Policy::Disconnect);
        let channel = Branch::channel(&[Rc::clone(&branch)], wanted, pace).unwrap();
        let _reader = Reader::new(&channel, None);
        for number in 1..=20 {
            publish(
                &topic,
                &format!("{{\"n\":{number}, \"pad\":\"{number:0200}\"}}"),
            )
            .await;
        }
        assert!(branch.reach_in(&channel, 0, 20).await);
        channel.tick();
        assert!(channel.find(1).is_some());
        let memory = branch.evaluator().memory();
        assert!(memory.used() > 20 * 200, "{}", memory.used());
        branch.make_room(ExpressionLimits::default().memory);
        assert_eq!((channel.find(1), memory.used()), (None, 0));
        assert!(!channel.is_over(), "nobody has to end for that");
    });
}

#[test]
fn newest_snapshots_of_many_topics_are_written_as_they_are_made() {
    local(async {
        let (mut topics, mut branches) = (Vec::new(), Vec::new());
        for number in 0..4 {
            let (topic, branch) = topic(Payload::Snapshot, 100).await;
            publish(&topic, &format!("{{\"n\":{number}}}")).await;
            branch.ready().await.unwrap();
            topics.push(topic);
            branches.push(branch);
        }
        let select = (None, Some("\"x\" * 100000"));
        let made = expressions::combinations(&branches, &[], select)
            .await
            .unwrap();
        let view = |expressions| View {
            mode: Mode::Snapshot,
            expressions: Some(expressions),
        };
        let wanted = ChannelKey {
            ids: IdForm::Composite,
            views: made.into_iter().map(view).collect(),
            ..key(Mode::Snapshot)
        };
        let channel = Branch::channel(&branches, wanted, pace(Policy::Disconnect)).unwrap();
        let mut joining = Joining::new(&channel, vec![Start::Now; 4], Vec::new());
        let mut got = Vec::new();
        loop {
            let (piece, is_last) = match joining.advance().await.unwrap() {
                Step::Write(piece) => (piece, false),
                Step::Join(own, _) => (own, true),
                Step::Full => panic!(),
            };
            assert!(piece.len() < 110_000, "{}", piece.len());
            got.extend_from_slice(&piece);
            if is_last {
                break;
            }
        }
        let got = blocks(std::str::from_utf8(&got).unwrap());
        let shown: Vec<_> = got.iter().filter(|it| it.event == "snapshot").collect();
        assert_eq!(shown.len(), 4);
        assert!(shown.iter().all(|it| it.data.len() > 100_000));
    });
}

/// Whoever asks for what others have already takes no further channel.
#[test]
fn where_there_are_as_many_channels_as_may_be_what_exists_is_shared() {
    local(async {
        let (topic, _) = topic(Payload::Event, 10).await;
        let limits = ExpressionLimits {
            distinct: 1,
            ..ExpressionLimits::default()
        };
        let branches = [branch_with(&topic, (limits, 1 << 20))];
        branches[0].ready().await.unwrap();
        let expressions = combination(&branches[0], (Some(".a"), None)).await;
        let wanted = |mode, wire| {
            let mut wanted = key(mode);
            wanted.wire = wire;
            wanted.views[0].expressions = Some(Rc::clone(&expressions));
            wanted
        };
        let sse = |chunked, gzip| Wire::Sse { chunked, gzip };
        let open = |wanted| Branch::channel(&branches, wanted, pace(Policy::Drop));
        let mut all = Vec::new();
        for (mode, gzip) in [
            (Mode::Event, false),
            (Mode::Event, true),
            (Mode::Snapshot, false),
            (Mode::Snapshot, true),
        ] {
            all.push(open(wanted(mode, sse(true, gzip))).unwrap());
        }
        let endpoint = crate::testing::endpoint(&topic);
        let ask = crate::ask::Ask {
            filter: Some(".a".to_owned()),
            mode: Some(Mode::Event),
            ..crate::ask::Ask::default()
        };
        let endpoints = [endpoint];
        let status = async |wire| {
            let views = ask
                .views((&endpoints, &[]), &branches, (wire, IdForm::Plain))
                .await;
            views.map(drop).map_err(|fault| fault.status)
        };
        // The reply's head is sent before it is known whether there are chunks.
        assert_eq!(status(sse(false, false)).await, Ok(()));
        let same = open(wanted(Mode::Event, sse(true, false))).unwrap();
        assert!(Rc::ptr_eq(&same, &all[0]));
        assert!(open(wanted(Mode::Event, sse(false, false))).is_some());
        assert_eq!(status(Wire::WebSocket(None)).await, Err(503));
        assert!(open(wanted(Mode::Event, Wire::WebSocket(None))).is_none());
        drop((same, all));
        assert_eq!(status(Wire::WebSocket(None)).await, Ok(()));
    });
}
