//! What subscribers take of `limits.body_memory` while they get what they have missed.

use message::memory::Budget;

use super::*;

fn budget(bytes: u64) -> &'static Budget {
    Box::leak(Box::new(Budget::new(bytes)))
}

/// One small event of each of many topics: as much room as for one topic is enough.
#[test]
fn many_topics_take_no_more_room_than_what_is_written() {
    local(async {
        let (topics, branches, channel) = several(60).await;
        let body = format!("\"{}\"", "x".repeat(100));
        for (topic, branch) in topics.iter().zip(&branches) {
            topic.publish(publication(&body)).await.unwrap();
            assert!(branch.reach(1).await);
        }
        let budget = budget(1 << 20);
        let starts = vec![Start::Earliest; 60];
        let joining = Joining::new(&channel, starts, Vec::new());
        let mut joining = joining.with_budget(budget);
        let mut events = 0;
        loop {
            let (piece, is_last) = match joining.advance().await.unwrap() {
                Step::Write(piece) => (piece, false),
                Step::Join(piece, _) => (piece, true),
                Step::Full => panic!(),
            };
            events += String::from_utf8_lossy(&piece).matches("xxx\"").count();
            if is_last {
                break;
            }
        }
        assert_eq!((events, budget.refused()), (60, 0));
        drop(joining);
        assert_eq!(budget.used(), 0);
    });
}

/// While there is none, a subscriber has none.
#[test]
fn subscriber_that_waits_for_room_keeps_none() {
    local(async {
        let (topics, branches, channel) = several(2).await;
        for (topic, branch) in topics.iter().zip(&branches) {
            topic.publish(publication("\"event\"")).await.unwrap();
            assert!(branch.reach(1).await);
        }
        let budget = budget(1 << 20);
        let others = budget.take_anyway(600 << 10);
        let starts = vec![Start::Earliest; 2];
        let joining = Joining::new(&channel, starts, Vec::new());
        let mut joining = joining.with_budget(budget);
        // Where it begins takes no room.
        assert!(matches!(joining.advance().await.unwrap(), Step::Write(_)));
        let mut step = Box::pin(joining.advance());
        for _ in 0..5 {
            let wait = tokio::time::timeout(Duration::from_millis(30), &mut step);
            assert!(wait.await.is_err());
            assert_eq!(budget.used(), 600 << 10);
        }
        drop(others);
        assert!(matches!(step.await.unwrap(), Step::Join(..)));
    });
}

/// Hundreds may come at once to a snapshot of megabytes, and not read it.
#[test]
fn all_who_come_to_a_snapshot_together_hold_it_once() {
    local(async {
        let (topic, branch) = topic(Payload::Snapshot, 10).await;
        branch.ready().await.unwrap();
        let channel = {
            let (key, pace) = (key(Mode::Snapshot), pace(Policy::Disconnect));
            Branch::channel(&[Rc::clone(&branch)], key, pace).unwrap()
        };
        let budget = budget(4 << 20);
        let come = async |start, head: &str| {
            let joining = Joining::new(&channel, vec![start], head.into());
            let mut joining = joining.with_budget(budget);
            match joining.advance().await.unwrap() {
                Step::Join(own, at) => (own, at),
                step => panic!("{step:?}"),
            }
        };
        let mut earlier: Option<Bytes> = None;
        for round in 1..=3 {
            let body = format!("\"{round}{}\"", "x".repeat(600 << 10));
            topic.publish(publication(&body)).await.unwrap();
            assert!(branch.reach(round).await);
            let (first, at) = come(Start::Now, "retry: 1\n").await;
            let text = String::from_utf8_lossy(&first).into_owned();
            assert!(text.contains("retry: 1\n") && text.contains(&body));
            let used = budget.used();
            for _ in 0..20 {
                let (next, same) = come(Start::Now, "retry: 1\n").await;
                assert_eq!((next.as_ptr(), same), (first.as_ptr(), at));
            }
            assert_eq!(budget.used(), used);
            // Whoever gets something else in front of it, or comes later, has its own.
            let (other, _) = come(Start::Now, "retry: 2\n").await;
            assert_eq!(text.replace("retry: 1", "retry: 2").as_bytes(), &*other);
            let (unknown, _) = come(Start::Unknown("?".into()), "retry: 1\n").await;
            assert!(String::from_utf8_lossy(&unknown).contains("event: reset"));
            assert!(earlier.is_none_or(|it| it != first));
            earlier = Some(first);
        }
        drop(earlier);
        channel.tick();
        assert_eq!(budget.used(), 0);
    });
}
