//! Who wakes the receiver and when, and that nothing is lost between threads.

use super::*;

use std::collections::HashMap;

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.build().unwrap()
}

fn is_asleep<T>(sender: &Sender<T>) -> bool {
    sender.0.state().receiver == ReceiverState::Asleep
}

fn until_asleep<T>(sender: &Sender<T>) {
    while !is_asleep(sender) {
        thread::yield_now();
    }
}

/// A thread that tells which commands it has found together.
fn batches() -> (Sender<u32>, thread::JoinHandle<Vec<Vec<u32>>>) {
    let (sender, receiver) = channel();
    let thread = thread::spawn(move || {
        let mut batches = Vec::new();
        while let Ok(first) = receiver.recv() {
            batches.push(iter::once(first).chain(receiver.try_iter()).collect());
        }
        batches
    });
    (sender, thread)
}

#[test]
fn what_a_turn_of_a_worker_sends_comes_together() {
    let (sender, receiver) = batches();
    until_asleep(&sender);
    runtime().block_on(async {
        let tasks = (0..50).map(|number| {
            let sender = sender.clone();
            tokio::spawn(async move { sender.send(number).unwrap() })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
    drop(sender);
    assert_eq!(receiver.join().unwrap(), [(0..50).collect::<Vec<_>>()]);
}

#[test]
fn what_no_worker_sends_comes_at_once() {
    let (sender, receiver) = batches();
    for number in 0..3 {
        until_asleep(&sender);
        sender.send(number).unwrap();
    }
    until_asleep(&sender);
    drop(sender);
    assert_eq!(receiver.join().unwrap(), [[0], [1], [2]]);
}

#[test]
fn a_runtime_that_ends_before_the_turn_wakes_the_receiver() {
    let (sender, receiver) = batches();
    until_asleep(&sender);
    let runtime = runtime();
    runtime.block_on(async { sender.send(7).unwrap() });
    drop(runtime);
    until_asleep(&sender);
    drop(sender);
    assert_eq!(receiver.join().unwrap(), [[7]]);
}

#[test]
fn a_worker_does_not_wait_for_the_turn_of_another_one() {
    let (sender, receiver) = batches();
    until_asleep(&sender);
    let runtime = runtime();
    let context = runtime.enter();
    // Nobody runs the task that is to wake the receiver.
    sender.send(1).unwrap();
    thread::sleep(Duration::from_millis(20));
    assert!(matches!(
        sender.0.state().receiver,
        ReceiverState::Called(_)
    ));
    thread::scope(|scope| {
        scope.spawn(|| sender.send(2).unwrap());
    });
    until_asleep(&sender);
    drop(context);
    drop((sender, runtime));
    assert_eq!(receiver.join().unwrap(), [[1, 2]]);
}

#[test]
fn both_ends_are_told_that_the_other_is_gone() {
    let (sender, receiver) = channel();
    let copy = sender.clone();
    sender.send(1).unwrap();
    drop(sender);
    assert_eq!(receiver.recv(), Ok(1));
    assert_eq!(
        receiver.recv_timeout(Duration::ZERO),
        Err(RecvTimeoutError::Timeout)
    );
    copy.send(2).unwrap();
    drop(copy);
    assert_eq!(receiver.recv_timeout(Duration::MAX), Ok(2));
    assert_eq!(receiver.recv(), Err(RecvError));
    assert_eq!(receiver.try_recv(), None);

    let (sender, receiver) = channel();
    let held = Arc::new(());
    sender.send(Arc::clone(&held)).unwrap();
    drop(receiver);
    assert_eq!(Arc::strong_count(&held), 1);
    assert!(sender.send(Arc::clone(&held)).is_err());
}

/// Workers and other threads send in any order, and the receiver sleeps and wakes: as long as it
/// sleeps while there is something for it, somebody is going to wake it.
#[test]
fn somebody_wakes_the_receiver_in_every_schedule() {
    let threads: Vec<ThreadId> = (0..3)
        .map(|_| thread::spawn(|| thread::current().id()).join().unwrap())
        .collect();
    for seed in 0..2000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut receiver = ReceiverState::Awake;
        let mut waiting = 0;
        // Who wakes it at the end of the turn, and how often.
        let mut calls: HashMap<ThreadId, u32> = HashMap::new();
        for _ in 0..100 {
            let thread = threads[random.usize(..threads.len())];
            match random.u8(..4) {
                0 | 1 => {
                    waiting += 1;
                    match receiver.command_queued(thread, random.bool()) {
                        Wakeup::None | Wakeup::Immediate => {}
                        Wakeup::EndOfTurn => *calls.entry(thread).or_default() += 1,
                    }
                }
                2 => {
                    let called = calls.remove(&thread).is_some();
                    if called {
                        receiver.mark_awake();
                    }
                }
                _ if receiver == ReceiverState::Awake => {
                    waiting = 0;
                    receiver = ReceiverState::Asleep;
                }
                // By itself.
                _ => receiver = ReceiverState::Awake,
            }
            let is_safe = match receiver {
                ReceiverState::Awake => true,
                ReceiverState::Asleep => waiting == 0,
                ReceiverState::Called(thread) => calls.contains_key(&thread),
                ReceiverState::Gone => false,
            };
            assert!(is_safe, "seed {seed}: {waiting} wait, nobody wakes");
        }
    }
}

#[test]
fn nothing_is_lost_or_out_of_order_between_threads() {
    const EACH: u32 = 20_000;
    let (sender, receiver) = channel();
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let sender = sender.clone();
            thread::spawn(move || {
                let send = |number| sender.send((thread, number)).unwrap();
                match thread {
                    0 | 1 => (0..EACH).for_each(send),
                    // Workers.
                    _ => runtime().block_on(async {
                        for number in 0..EACH {
                            send(number);
                            if number % 7 == 0 {
                                tokio::task::yield_now().await;
                            }
                        }
                    }),
                }
            })
        })
        .collect();
    drop(sender);
    let mut next = [0; 4];
    while let Ok((thread, number)) = receiver.recv() {
        assert_eq!(next[thread], number);
        next[thread] += 1;
    }
    assert_eq!(next, [EACH; 4]);
    threads.into_iter().for_each(|it| it.join().unwrap());
}
