//! Deadlines against a naive model, by a seeded schedule, and what they cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Wake;

use fastrand::Rng;

use super::super::*;
use super::run;

const OPERATIONS: u32 = 150_000;
const COUNT_MAX: usize = 200;

/// A time of any magnitude up to a few hours.
fn time(random: &mut Rng) -> Duration {
    let magnitude = random.u8(..24);
    Duration::from_micros(random.u64(..=1000 << magnitude))
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A deadline, and what is to be expected of it.
struct Pair {
    deadline: Deadline,
    at: Option<Instant>,
    moved: Instant,
    /// When it was due, once it has passed.
    expired: Option<Instant>,
    waits: bool,
    cap: Option<Instant>,
    woken: Arc<Woken>,
}

impl Pair {
    fn new(deadlines: &Deadlines) -> Self {
        Self {
            deadline: deadlines.add(),
            at: None,
            moved: Instant::now(),
            expired: None,
            waits: false,
            cap: None,
            woken: Arc::default(),
        }
    }

    fn set(&mut self, now: Instant, time: Duration) {
        self.deadline.set(now, time);
        let at = (now + time).min(self.cap.unwrap_or(now + time));
        if self.expired.is_some_and(|expired| at <= expired) {
            return;
        }
        self.at = Some(at);
        self.moved = now;
        self.expired = None;
    }

    fn cap(&mut self, now: Instant, time: Duration) {
        self.deadline.cap(now, time);
        let cap = self.cap.map_or(now + time, |cap| cap.min(now + time));
        self.cap = Some(cap);
        if self.at.is_some_and(|at| at > cap) {
            self.at = Some(cap);
            self.moved = now;
        }
    }

    fn poll(&mut self) {
        let waker = Waker::from(Arc::clone(&self.woken));
        let is_ready = self.deadline.poll(&mut Context::from_waker(&waker));
        assert_eq!(is_ready.is_ready(), self.expired.is_some());
        self.waits = self.expired.is_none();
    }

    /// Compares with what must have happened by now.
    fn check(&mut self, now: Instant) {
        let is_over = self.cap.is_some_and(|cap| cap <= now);
        assert_eq!(self.deadline.is_over(), is_over);
        let is_woken = self.woken.0.swap(false, Ordering::Relaxed);
        match self.at {
            Some(at) if at > now => assert!(!is_woken, "woken early"),
            // Within the resolution it may or may not have passed.
            Some(at) if now < at.max(self.moved) + 2 * RESOLUTION => {
                self.poll_either(is_woken);
            }
            Some(_) => {
                assert_eq!(is_woken, self.waits, "woken when it is due");
                self.passed();
                self.poll();
            }
            None => assert!(!is_woken),
        }
    }

    fn poll_either(&mut self, is_woken: bool) {
        let is_ready = self.deadline.poll(&mut Context::from_waker(Waker::noop()));
        if is_ready.is_ready() {
            assert_eq!(is_woken, self.waits);
            self.passed();
        } else {
            assert!(!is_woken);
            self.poll();
        }
    }

    fn passed(&mut self) {
        self.expired = self.at.take();
        self.waits = false;
    }

    fn operate(&mut self, random: &mut Rng) {
        let now = Instant::now();
        match random.u8(..8) {
            0..=3 => self.set(now, time(random)),
            4 => {
                self.deadline.clear();
                (self.at, self.expired) = (None, None);
            }
            5 => self.cap(now, time(random)),
            6 => {
                self.deadline.lift();
                self.cap = None;
            }
            _ => self.poll(),
        }
    }
}

async fn pass(time: Duration) {
    tokio::time::advance(time).await;
    // The sweeper is woken by the clock, sweeps, and sleeps again.
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
}

async fn agree_with_the_model(seed: u64) {
    let deadlines = Deadlines::new();
    tokio::task::spawn_local(deadlines.clone().sweep());
    let mut random = Rng::with_seed(seed);
    let mut pairs: Vec<Pair> = Vec::new();
    for _ in 0..OPERATIONS {
        let count = pairs.len();
        match random.u8(..32) {
            0 if count < COUNT_MAX => pairs.push(Pair::new(&deadlines)),
            1 if count > 0 => {
                let chosen = random.usize(..count);
                pairs.swap_remove(chosen);
            }
            2 => {
                let time = time(&mut random);
                pass(time).await;
                pairs.iter_mut().for_each(|it| it.check(Instant::now()));
            }
            _ if count > 0 => {
                let chosen = random.usize(..count);
                pairs[chosen].operate(&mut random);
            }
            _ => {}
        }
    }
}

#[test]
fn seeded_schedules_agree_with_a_naive_model() {
    for seed in [0x9E37_79B9_7F4A_7C15, 0xD1B5_4A32_D192_ED03] {
        run(agree_with_the_model(seed));
    }
}

/// Counts how often a future is polled.
fn counted<T>(work: impl Future<Output = T>, count: Arc<AtomicU64>) -> impl Future<Output = T> {
    let mut work = Box::pin(work);
    poll_fn(move |context| {
        count.fetch_add(1, Ordering::Relaxed);
        work.as_mut().poll(context)
    })
}

#[test]
fn moving_deadlines_later_wakes_the_sweeper_seldom() {
    run(async {
        let (deadlines, polls) = (Deadlines::new(), Arc::new(AtomicU64::new(0)));
        tokio::task::spawn_local(counted(deadlines.clone().sweep(), Arc::clone(&polls)));
        let all: Vec<_> = (0..1000).map(|_| deadlines.add()).collect();
        for _ in 0..600 {
            for deadline in &all {
                deadline.set(Instant::now(), Duration::from_secs(30));
            }
            pass(Duration::from_millis(100)).await;
        }
        let busy = polls.load(Ordering::Relaxed);
        assert!(busy < 30, "{busy} looks in a minute");
        all.iter().for_each(Deadline::clear);
        // What is cleared is forgotten when its bucket comes up.
        pass(Duration::from_secs(60)).await;
        let before = polls.load(Ordering::Relaxed);
        for _ in 0..1000 {
            pass(Duration::from_secs(60)).await;
        }
        assert_eq!(polls.load(Ordering::Relaxed), before, "no looks when idle");
    });
}

#[test]
fn memory_is_given_back() {
    run(async {
        let deadlines = Deadlines::new();
        let capacity = || deadlines.shared.wheel.borrow().slots.capacity();
        let mut all: Vec<_> = (0..50_000).map(|_| deadlines.add()).collect();
        for deadline in &all {
            deadline.set(Instant::now(), Duration::from_secs(3600));
        }
        assert!(capacity() >= 50_000);
        // A few that stay hold no more than their own chunks.
        let kept: Vec<_> = [20_000, 40_000].map(|at| all.swap_remove(at)).into();
        drop(all);
        assert!(capacity() <= 4 * 64, "{}", capacity());
        let entries = deadlines.shared.wheel.borrow().bucket_capacity();
        assert!(entries <= 1000, "{entries}");
        drop(kept);
        assert!(capacity() <= 64, "{}", capacity());
    });
}

/// The wheel alone, with moves between the time at which buckets are due and the sweep.
#[test]
fn a_late_sweep_finds_everything_that_is_due() {
    const TICK: u64 = RESOLUTION.as_micros() as u64;
    let mut random = Rng::with_seed(0x2545_F491_4F6C_DD1D);
    let (mut wheel, mut now) = (Wheel::new(), 0);
    let ids: Vec<u32> = (0..50).map(|_| wheel.slots.add()).collect();
    for _ in 0..OPERATIONS {
        let time = time(&mut random).as_micros() as u64;
        match random.u8(..16) {
            0 => {
                now += time;
                while wheel.expire(now).is_some() {}
                for id in &ids {
                    let slot = wheel.slots.get_mut(*id).unwrap();
                    let at = slot.at;
                    let is_due = at == NEVER || at + 2 * TICK > now;
                    assert!(is_due || slot.expired, "{at} at {now}");
                }
                assert!(wheel.next() > now);
            }
            1 => now += time / 64,
            _ => {
                let id = ids[random.usize(..50)];
                if wheel.set(id, now + time) {
                    wheel.file(id, now);
                }
            }
        }
    }
}
