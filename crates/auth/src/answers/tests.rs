//! Questions and what is kept of their answers.

use std::time::{Duration, Instant};

use super::*;
use crate::testing::{Worker, down, run};

const SECOND: Duration = Duration::from_secs(1);

fn answer(value: u32, admits: bool, bytes: usize) -> Answer<u32> {
    Answer {
        value,
        admits,
        keep: 60 * SECOND,
        bytes,
    }
}

fn question(value: u32, time: Duration, admits: bool) -> Question<u32> {
    Box::new(move |services| {
        Box::pin(async move {
            services.sleep(time).await;
            Ok(answer(value, admits, 0))
        })
    })
}

fn answers() -> Arc<Answers<u32>> {
    Arc::new(Answers::new(KeyedHash::random().unwrap()))
}

#[test]
fn refused_strangers_push_nobody_out() {
    let now = Instant::now();
    let mut kept = Kept::default();
    let large = KEPT_MAX / 4;
    let key = |number: u8| [number; 32];
    for number in 0..6 {
        kept.put(key(number), number, now + SECOND, large, now);
        assert!(kept.bytes <= KEPT_MAX && kept.answers.len() <= 4);
    }
    let there: Vec<u8> = (0..6)
        .filter(|it| kept.get(&key(*it), now).is_some())
        .collect();
    assert_eq!(there, [2, 3, 4, 5]);
    assert_eq!(kept.get(&key(5), now + SECOND), None);
    kept.put(key(9), 9, now + 3 * SECOND, 1, now + 2 * SECOND);
    assert_eq!(
        (kept.answers.len(), kept.bytes, kept.order.len()),
        (1, 1, 1)
    );
    // The same again and again leaves nothing behind.
    for _ in 0..1000 {
        kept.put(key(9), 9, now + 3 * SECOND, 1, now);
    }
    assert_eq!((kept.answers.len(), kept.bytes), (1, 1));
    assert!(kept.order.len() < 100);
}

#[test]
fn questions_are_bounded_and_each_gets_its_turn() {
    run(
        |_| (SECOND, down()),
        |worker: Worker| async move {
            let answers = answers();
            let most = std::rc::Rc::new(std::cell::Cell::new((0, 0)));
            let mut waiting = Vec::new();
            for number in 0..QUESTIONS_MAX + 10 {
                let (answers, worker, most) = (Arc::clone(&answers), worker.clone(), most.clone());
                waiting.push(tokio::task::spawn_local(async move {
                    let question: Question<u32> = Box::new(move |services| {
                        Box::pin(async move {
                            let (now, all) = most.get();
                            most.set((now + 1, all.max(now + 1)));
                            services.sleep(SECOND).await;
                            let (now, all) = most.get();
                            most.set((now - 1, all));
                            Ok(answer(1, true, 0))
                        })
                    });
                    let key = answers.key([&number.to_be_bytes()[..]]);
                    let time = 60 * SECOND;
                    (
                        answers.ask(Some(key), time, &worker, question).await,
                        most_of(&answers),
                    )
                }));
            }
            let mut busy = 0;
            for task in waiting {
                let (answer, questions) = task.await.unwrap();
                assert!(questions <= QUESTIONS_MAX);
                match answer {
                    Ok(1) => {}
                    Err("busy") => busy += 1,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(busy, 10);
            assert!(worker.asked().is_empty());
            assert_eq!(answers.questions() + answers.waiting(), 0);
            assert_eq!(answers.measures(Instant::now())[3].value, 10.0);
        },
    );
}

fn most_of(answers: &Answers<u32>) -> usize {
    answers.questions()
}

#[test]
fn who_waits_too_long_goes_and_leaves_nothing_behind() {
    run(
        |_| (SECOND, down()),
        |worker: Worker| async move {
            let answers = answers();
            let key = answers.key([&b"a"[..]]);
            let slow = question(1, 100 * SECOND, true);
            let first = answers.ask(Some(key), SECOND, &worker, slow);
            assert_eq!(first.await, Err("timeout"));
            assert_eq!((answers.questions(), answers.waiting()), (1, 0));
            // It is still under way: nobody asks the same beside it.
            let second = answers.ask(Some(key), SECOND, &worker, question(2, SECOND, true));
            assert_eq!(second.await, Err("timeout"));
            tokio::time::sleep(100 * SECOND).await;
            assert_eq!(answers.questions(), 0);
            assert_eq!(answers.kept(&key, worker.now()), Some(1));
        },
    );
}

#[test]
fn a_newer_answer_replaces_one_of_the_other_kind() {
    run(
        |_| (SECOND, down()),
        |worker: Worker| async move {
            let answers = answers();
            let key = answers.key([&b"a"[..]]);
            let asked = answers.ask(
                Some(key),
                SECOND,
                &worker,
                question(1, Duration::ZERO, true),
            );
            assert_eq!(asked.await, Ok(1));
            tokio::time::sleep(60 * SECOND).await;
            assert_eq!(answers.kept(&key, worker.now()), None);
            let asked = answers.ask(
                Some(key),
                SECOND,
                &worker,
                question(2, Duration::ZERO, false),
            );
            assert_eq!(asked.await, Ok(2));
            assert_eq!(answers.kept(&key, worker.now()), Some(2));
            // Without a key nothing is kept.
            let asked = answers.ask(None, SECOND, &worker, question(3, Duration::ZERO, true));
            assert_eq!(asked.await, Ok(3));
            assert_eq!(answers.kept(&key, worker.now()), Some(2));
        },
    );
}
