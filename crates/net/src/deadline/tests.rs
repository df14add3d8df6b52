//! Deadlines under a clock that stands still while anything can go on.

mod model;

use super::*;

fn run(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true);
    runtime
        .build_local(Default::default())
        .unwrap()
        .block_on(test);
}

async fn passed(deadline: &Deadline) {
    poll_fn(|context| deadline.poll(context)).await;
}

#[test]
fn a_cap_bounds_whatever_is_set() {
    run(async {
        let deadlines = Deadlines::new();
        tokio::task::spawn_local(deadlines.clone().sweep());
        let deadline = deadlines.add();
        let start = Instant::now();
        deadline.cap(start, Duration::from_millis(300));
        deadline.set(start, Duration::from_secs(10));
        passed(&deadline).await;
        let elapsed = start.elapsed();
        assert!(elapsed >= Duration::from_millis(300), "{elapsed:?}");
        assert!(
            elapsed < Duration::from_millis(320) && deadline.is_over(),
            "{elapsed:?}"
        );
        deadline.lift();
        assert!(!deadline.is_over());
        deadline.set(Instant::now(), Duration::from_secs(10));
        passed(&deadline).await;
        assert!(start.elapsed() >= Duration::from_secs(10));
    });
}

/// A peer that sends something each time has its deadline set again and again, as if there were
/// more time.
#[test]
fn a_cap_that_is_over_is_not_put_off_by_being_set() {
    run(async {
        let deadlines = Deadlines::new();
        tokio::task::spawn_local(deadlines.clone().sweep());
        let (deadline, start) = (deadlines.add(), Instant::now());
        deadline.cap(start, Duration::from_millis(300));
        deadline.set(start, Duration::from_secs(10));
        poll_fn(|context| {
            let _ = deadline.poll(context);
            Poll::Ready(())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(320)).await;
        for _ in 0..3 {
            deadline.set(Instant::now(), Duration::from_secs(10));
            let now = poll_fn(|context| Poll::Ready(deadline.poll(context)));
            assert!(now.await.is_ready());
        }
        deadline.lift();
        deadline.set(Instant::now(), Duration::from_secs(10));
        passed(&deadline).await;
        assert!(start.elapsed() >= Duration::from_secs(10));
    });
}

#[test]
fn it_fires_when_it_is_due_and_not_before() {
    run(async {
        let deadlines = Deadlines::new();
        tokio::task::spawn_local(deadlines.clone().sweep());
        let deadline = deadlines.add();
        let start = Instant::now();
        deadline.set(start, Duration::from_secs(10));
        passed(&deadline).await;
        let elapsed = start.elapsed();
        assert!(elapsed >= Duration::from_secs(10), "{elapsed:?}");
        assert!(
            elapsed <= Duration::from_secs(10) + 2 * RESOLUTION,
            "{elapsed:?}"
        );
    });
}

#[test]
fn moving_it_later_or_earlier_counts() {
    run(async {
        let deadlines = Deadlines::new();
        tokio::task::spawn_local(deadlines.clone().sweep());
        let (late, early) = (deadlines.add(), deadlines.add());
        let start = Instant::now();
        late.set(start, Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(900)).await;
        late.set(Instant::now(), Duration::from_secs(60));
        early.set(Instant::now(), Duration::from_secs(3));
        passed(&early).await;
        assert_eq!(start.elapsed().as_secs(), 3);
        passed(&late).await;
        assert_eq!(start.elapsed().as_secs(), 60);
    });
}

#[test]
fn a_cleared_or_dropped_one_never_fires() {
    run(async {
        let deadlines = Deadlines::new();
        tokio::task::spawn_local(deadlines.clone().sweep());
        let first = deadlines.add();
        first.set(Instant::now(), Duration::from_secs(1));
        drop(first);
        let second = deadlines.add();
        second.set(Instant::now(), Duration::from_secs(1));
        second.clear();
        let wait = tokio::time::timeout(Duration::from_secs(100), passed(&second));
        assert!(wait.await.is_err());
    });
}

#[test]
fn the_earliest_cap_holds_until_all_are_lifted() {
    run(async {
        let deadlines = Deadlines::new();
        tokio::task::spawn_local(deadlines.clone().sweep());
        let (deadline, start) = (deadlines.add(), Instant::now());
        let seconds = Duration::from_secs;
        for cap in [10, 2, 60] {
            deadline.cap(start, seconds(cap));
        }
        deadline.set(start, seconds(60));
        passed(&deadline).await;
        assert_eq!(start.elapsed(), seconds(2), "a later cap changes nothing");
        deadline.lift();
        assert!(!deadline.is_over());
        deadline.set(start, seconds(60));
        deadline.cap(start, seconds(30));
        passed(&deadline).await;
        assert_eq!(start.elapsed(), seconds(30), "what is set is moved");
        assert!(deadline.is_over());
    });
}

#[test]
fn a_sleep_ends_when_it_is_due() {
    run(async {
        let deadlines = Deadlines::new();
        tokio::task::spawn_local(deadlines.clone().sweep());
        let start = Instant::now();
        deadlines.sleep(Duration::from_millis(250)).await;
        deadlines.sleep_until(start).await;
        let elapsed = start.elapsed();
        assert!(elapsed >= Duration::from_millis(250), "{elapsed:?}");
        assert!(elapsed <= Duration::from_millis(265), "{elapsed:?}");
    });
}

#[test]
fn a_long_sleep_delays_no_other() {
    run(async {
        let deadlines = Deadlines::new();
        tokio::task::spawn_local(deadlines.clone().sweep());
        let sleep = deadlines.sleep(Duration::from_secs(3600));
        let capped = deadlines.add();
        capped.cap(Instant::now() + Duration::from_secs(1800), Duration::ZERO);
        capped.set(Instant::now(), Duration::from_secs(7200));
        let start = Instant::now();
        let deadline = deadlines.add();
        deadline.set(start, Duration::from_millis(100));
        passed(&deadline).await;
        assert!(
            start.elapsed() < Duration::from_millis(120),
            "{:?}",
            start.elapsed()
        );
        passed(&capped).await;
        assert_eq!(start.elapsed().as_secs(), 1800);
        sleep.await;
        assert_eq!(start.elapsed().as_secs(), 3600);
    });
}
