//! Screens that are queued, sent, overtaken and dropped in any order.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};

use component::testing::FakeServices;
use fastrand::Rng;

use super::*;

const SESSIONS: u64 = 3;

/// What has left for the phone of a session: numbers of screens, and whether one is under way.
#[derive(Default)]
struct Phone {
    begun: RefCell<Vec<u64>>,
    is_busy: Cell<bool>,
}

/// The sending of a screen, which takes some time.
struct Sending {
    phone: Rc<Phone>,
    number: u64,
    left: u64,
    has_begun: bool,
}

impl Future for Sending {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if !self.has_begun {
            assert!(!self.phone.is_busy.replace(true), "two are sent at once");
            self.phone.begun.borrow_mut().push(self.number);
            self.has_begun = true;
        }
        self.left = self.left.saturating_sub(1);
        match self.left {
            0 => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.has_begun {
            self.phone.is_busy.set(false);
        }
    }
}

fn key(session: u64) -> RecordKey {
    RecordKey::session("gateway", &session.to_string(), "+254711000001")
}

type Task<'a> = (u64, u64, Pin<Box<dyn Future<Output = Option<()>> + 'a>>);

fn send<'a>(
    services: &'a FakeServices,
    queued: Queued,
    sending: Sending,
) -> Pin<Box<dyn Future<Output = Option<()>> + 'a>> {
    Box::pin(async move { queued.send(services, sending).await })
}

#[test]
fn screens_leave_in_order_and_the_newest_always() {
    for seed in 0..500 {
        let mut random = Rng::with_seed(seed);
        let services = FakeServices::default();
        let outbox = Outbox::default();
        let phones: Vec<Rc<Phone>> = (0..SESSIONS).map(|_| Rc::default()).collect();
        let mut tasks: Vec<Task<'_>> = Vec::new();
        let (mut newest, mut dropped) = ([0; SESSIONS as usize], Vec::new());
        let mut context = Context::from_waker(Waker::noop());
        for turn in 0..200 {
            let is_last_part = turn >= 120;
            match random.u8(..8) {
                0 | 1 if !is_last_part => {
                    let session = random.u64(..SESSIONS);
                    newest[session as usize] += 1;
                    let number = newest[session as usize];
                    let sending = Sending {
                        phone: Rc::clone(&phones[session as usize]),
                        number,
                        left: random.u64(1..=20),
                        has_begun: false,
                    };
                    let queued = outbox.add(key(session));
                    tasks.push((session, number, send(&services, queued, sending)));
                }
                2 if !tasks.is_empty() && random.u8(..4) == 0 => {
                    let (session, number, _) = tasks.swap_remove(random.usize(..tasks.len()));
                    dropped.push((session, number));
                }
                3 => services.pass(Duration::from_millis(200)),
                _ if !tasks.is_empty() => {
                    let at = random.usize(..tasks.len());
                    if tasks[at].2.as_mut().poll(&mut context).is_ready() {
                        drop(tasks.swap_remove(at));
                    }
                }
                _ => {}
            }
        }
        for _ in 0..100 {
            services.pass(GRACE);
            tasks.retain_mut(|(_, _, task)| task.as_mut().poll(&mut context).is_pending());
        }
        assert!(tasks.is_empty(), "seed {seed}: some are never over");
        assert!(outbox.0.is_empty(), "seed {seed}: queues are left");
        for (session, phone) in phones.iter().enumerate() {
            let begun = phone.begun.borrow();
            assert!(begun.is_sorted(), "seed {seed}: {begun:?}");
            let last = (session as u64, newest[session]);
            let is_sent = last.1 == 0 || dropped.contains(&last) || begun.last() == Some(&last.1);
            assert!(is_sent, "seed {seed}: {begun:?} without {}", last.1);
        }
    }
}

#[test]
fn a_screen_that_waits_is_given_up_for_a_newer_one() {
    let services = FakeServices::default();
    let outbox = Outbox::default();
    let phone = Rc::new(Phone::default());
    let mut context = Context::from_waker(Waker::noop());
    let queue = |number, left| {
        let sending = Sending {
            phone: Rc::clone(&phone),
            number,
            left,
            has_begun: false,
        };
        send(&services, outbox.add(key(1)), sending)
    };
    // The gateway does not answer.
    let mut first = queue(1, u64::MAX);
    assert!(first.as_mut().poll(&mut context).is_pending());
    let mut second = queue(2, 1);
    assert!(second.as_mut().poll(&mut context).is_pending());
    let mut third = queue(3, 1);
    assert!(third.as_mut().poll(&mut context).is_pending());
    assert_eq!(second.as_mut().poll(&mut context), Poll::Ready(None));
    assert!(first.as_mut().poll(&mut context).is_pending());
    services.pass(GRACE);
    assert_eq!(first.as_mut().poll(&mut context), Poll::Ready(None));
    drop(first);
    assert_eq!(third.as_mut().poll(&mut context), Poll::Ready(Some(())));
    assert_eq!(*phone.begun.borrow(), [1, 3]);
}
