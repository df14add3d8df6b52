//! One endpoint, and what it holds, over losses, stops and changes.

use std::time::Duration;

use component::egress::Origins;
use component::resilience::Backoff;
use component::tls::UpstreamTls;

use super::super::super::machine::{Batch, Order, Outcome, Policy};
use super::super::super::plan::{Destination, Terms};
use super::super::super::state::{EndpointGroup, EndpointKind, EndpointState};
use super::super::super::subscriptions::record::Subscription;
use super::super::super::view::ViewPlan;
use super::*;
use crate::settings::Payload;
use crate::source::Start;
use crate::testing::memory;

const NOW: Now = Now {
    us: 1_000_000,
    wall_ms: 1_700_000_000_000,
};

fn view() -> ViewPlan {
    ViewPlan {
        mode: Mode::Event,
        filter: None,
        select: None,
        key: None,
        cloudevents: None,
        source: "/topics/orders".into(),
        result_max: 1 << 20,
        is_text: false,
    }
}

fn subscriber() -> Subscriber {
    Subscriber {
        terms: Arc::new(Terms {
            timeout: Duration::from_secs(1),
            dead_letters: None,
            attempts: None,
            start: Start::Latest,
        }),
        origins: Origins::new(UpstreamTls::default(), None),
        url: "https://receiver.example/".into(),
        host: "receiver.example".into(),
        links: "".into(),
        media_type: "application/json".into(),
        signed: None,
        gone: Arc::new(|| {}),
    }
}

/// An endpoint of this name that has got nothing yet of a topic whose first event has the number 1.
pub(in super::super) fn named(name: &str) -> Entry {
    entry_of(name, (Order::All, None))
}

/// The same that sends events so.
fn entry(order: Order, batch: Option<Batch>) -> Entry {
    entry_of("shop", (order, batch))
}

fn entry_of(name: &str, (order, batch): (Order, Option<Batch>)) -> Entry {
    let policy = Arc::new(Policy {
        order,
        concurrent: if order == Order::All { 1 } else { 4 },
        batch,
        throttle: None,
        backoff: Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60)),
        times: 0,
        disable_after: 3_600_000,
        drops: false,
    });
    let topic: Arc<str> = "orders".into();
    let id = EventId {
        epoch: 1,
        sequence: 0,
    };
    let group = EndpointGroup::new((&topic, &Arc::default()), EndpointKind::Webhook);
    let plan = EndpointPlan {
        state: EndpointState::unlisted(&group, name.into(), Stored::at(id)),
        view: Arc::new(view()),
        policy: Arc::clone(&policy),
        destination: Destination::WebSub(Box::new(subscriber())),
    };
    let mut entry = Entry::new(Arc::new(plan), 0);
    entry.served = Served::Active(Active::new(Machine::new(policy, 1)));
    entry
}

fn offer(entry: &mut Entry, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        assert_eq!(entry.wanted(), Some(number));
        entry.offer(&Shown::of_size(number, 10), NOW);
    }
}

/// What is sent, once all has been noted that has to be.
fn sent(entry: &mut Entry) -> (u64, Span) {
    let mut action = entry.next_action(NOW);
    if action == Action::Note
        && let Some(Active { machine, .. }) = entry.active()
    {
        let (_, version) = machine.record(NOW);
        machine.noted(version);
        action = entry.next_action(NOW);
    }
    match action {
        Action::Send { number, span, .. } | Action::SendGap { number, span } => (number, span),
        other => panic!("{other:?}"),
    }
}

fn held(entry: &mut Entry) -> &mut Held {
    &mut entry.active().unwrap().held
}

fn numbers(shown: &[Rc<Shown>]) -> Vec<u64> {
    shown.iter().map(|it| it.id.sequence).collect()
}

#[test]
fn what_is_offered_again_after_a_loss_is_held_once() {
    let batch = Batch {
        count: 3,
        bytes: 1000,
        time: 1,
    };
    let mut entry = entry(Order::All, Some(batch));
    offer(&mut entry, 1..=3);
    let (number, span) = sent(&mut entry);
    assert_eq!(numbers(&held(&mut entry).take(span)), [1, 2, 3]);
    offer(&mut entry, 4..=5);
    entry.is_waiting = true;
    entry.finished((number, Outcome::Lost.into()), NOW, 0.0);
    assert_eq!(entry.next_action(NOW), Action::Wait(None));
    assert_eq!(entry.wanted(), Some(1), "it waits for nothing new");
    // The log has the first two no more.
    entry.is_paging = true;
    entry.paged(Page::Gone { first: 3 }, NOW);
    offer(&mut entry, 3..=5);
    let (number, gap) = sent(&mut entry);
    offer(&mut entry, 6..=6);
    assert_eq!((gap.first, gap.last), (1, 2));
    entry.finished((number, Outcome::Delivered.into()), NOW, 0.0);
    let (number, span) = sent(&mut entry);
    assert_eq!(numbers(&held(&mut entry).take(span)), [3]);
    entry.finished((number, Outcome::Delivered.into()), NOW, 0.0);
    let (_, span) = sent(&mut entry);
    assert_eq!((span.first, span.last, span.count), (4, 6, 3));
    assert_eq!(numbers(&held(&mut entry).take(span)), [4, 5, 6]);
}

#[test]
fn one_that_is_resumed_wants_what_it_has_not_got() {
    let mut entry = entry(Order::All, None);
    offer(&mut entry, 1..=1);
    let (number, _) = sent(&mut entry);
    entry.is_waiting = true;
    let down = Outcome::Down { retry_after: None };
    entry.finished((number, down.into()), NOW, 0.0);
    entry.active().unwrap().machine.pause();
    assert_eq!(entry.next_action(NOW), Action::Wait(None));
    entry.active().unwrap().machine.resume();
    assert_eq!(entry.wanted(), Some(1));
}

#[test]
fn what_is_done_is_not_held_when_it_comes_by_again() {
    let mut entry = entry(Order::None, None);
    offer(&mut entry, 1..=3);
    let begun: Vec<(u64, Span)> = (0..3).map(|_| sent(&mut entry)).collect();
    for (number, span) in begun {
        held(&mut entry).take(span);
        let outcome = match span.first {
            2 => Outcome::Delivered,
            _ => Outcome::Lost,
        };
        entry.finished((number, outcome.into()), NOW, 0.0);
    }
    assert_eq!(entry.next_action(NOW), Action::Wait(None));
    offer(&mut entry, 1..=3);
    let span = Span {
        first: 1,
        last: 3,
        count: 3,
        is_batch: true,
    };
    assert_eq!(numbers(&held(&mut entry).take(span)), [1, 3]);
}

fn failed(outcome: Outcome, reason: &str) -> Report {
    let mut report: Report = outcome.into();
    report.reason = Some(format!("{reason}, and what only logs have"));
    report.reason_for_owner = Some(reason.to_owned());
    report
}

#[test]
fn a_dead_letter_has_the_reason_of_its_own_event() {
    let mut entry = entry(Order::None, None);
    offer(&mut entry, 1..=2);
    let (one, other) = (sent(&mut entry), sent(&mut entry));
    let refused = failed(Outcome::Refused, "status 404");
    entry.finished((one.0, refused), NOW, 0.0);
    let down = Outcome::Down { retry_after: None };
    entry.finished((other.0, failed(down, "time-out")), NOW, 0.0);
    let Action::DeadLetter { number, span, .. } = entry.next_action(NOW) else {
        panic!("it is no dead letter");
    };
    assert_eq!(span.first, 1);
    assert_eq!(entry.refusal(1), "status 404");
    assert_eq!(entry.failure(), "time-out");
    entry.finished((number, Outcome::DeadLetterStored.into()), NOW, 0.0);
    assert!(
        entry.active().unwrap().refusals.is_empty(),
        "it is not needed any more"
    );
}

fn dead_letters() -> DeadLetters {
    DeadLetters {
        count: 1,
        event: "1-1".to_owned(),
        reason: "status 404".to_owned(),
        store: None,
    }
}

#[test]
fn what_has_not_been_told_of_it_is_left_to_the_one_that_serves_it_next() {
    let mut entry = entry(Order::All, None);
    entry.add_dead_letters(Some(dead_letters()));
    assert!(entry.is_idle());
    entry.reports.as_mut().unwrap().is_under_way = true;
    assert!(!entry.is_idle(), "it may have to be told again");
    entry.reports.as_mut().unwrap().is_under_way = false;
    entry.release(true, NOW);
    let (reports, owes_note) = entry.plan.state.take_over();
    assert_eq!(reports.unwrap().due(false), Some(0));
    assert!(!owes_note && entry.plan.state.take_over().0.is_none());
}

#[test]
fn what_was_asked_for_is_not_answered_when_its_note_has_failed() {
    for is_noted in [true, false] {
        let mut entry = entry(Order::All, None);
        let (answer, mut answered) = oneshot::channel();
        entry.active().unwrap().asked.push((1, answer));
        entry.release(is_noted, NOW);
        assert_eq!(answered.try_recv().is_ok(), is_noted);
        assert_eq!(entry.plan.state.take_over().1, !is_noted);
    }
}

/// The endpoint at the beginning of a log, before a driver has it.
fn untaken(log: &Log, batch: Option<Batch>) -> Entry {
    let mut entry = entry(Order::All, batch);
    entry.served = Served::Elsewhere;
    entry.plan.state.set_stored(Some(Stored::at(log.id(0))));
    entry
}

#[tokio::test]
async fn an_endpoint_is_taken_once_and_its_reports_go_on_by_the_next_clock() {
    let topic = memory(Payload::Event).await;
    let log = topic.log().unwrap();
    let mut one = untaken(log, None);
    let bells = [Arc::<Bell>::default(), Arc::default()];
    assert!(one.prepare(log, (&bells[0], 1), NOW));
    assert!(one.is_taken() && one.reports.is_none());
    assert!(one.prepare(log, (&bells[0], 1), NOW), "it has it");
    let mut next = Entry::new(Arc::clone(&one.plan), 0);
    let now = Now { us: 5, ..NOW };
    assert!(!next.prepare(log, (&bells[1], 2), now) && !next.is_taken());
    one.add_dead_letters(Some(dead_letters()));
    let reports = one.reports.as_mut().unwrap();
    reports.published(None, (NOW.us, true));
    let wait = reports.due(false).unwrap() - NOW.us;
    one.release(true, NOW);
    assert_eq!((bells[0].take(), bells[1].take()), (vec![], vec![2]));
    assert!(next.prepare(log, (&bells[1], 2), now));
    let due = next.reports.as_ref().unwrap().due(false);
    assert!(wait > 0 && due == Some(now.us + wait), "{due:?}");
    assert!(matches!(next.served, Served::Resting(_)), "it is noted");
}

#[tokio::test]
async fn a_batch_whose_note_has_failed_is_noted_by_the_next_driver_before_it_is_sent() {
    let topic = memory(Payload::Event).await;
    let log = topic.log().unwrap();
    let batch = Batch {
        count: 2,
        bytes: 1000,
        time: 1,
    };
    let mut one = untaken(log, Some(batch));
    let bell = Arc::default();
    assert!(one.prepare(log, (&bell, 0), NOW));
    offer(&mut one, 1..=2);
    let (number, span) = sent(&mut one);
    assert_eq!((span.first, span.last), (1, 2));
    one.finished((number, Outcome::Aborted.into()), NOW, 0.0);
    let stored = one.record(log, NOW).map(|it| it.0);
    one.plan.state.set_stored(stored);
    one.release(false, NOW);
    let mut next = Entry::new(Arc::clone(&one.plan), 0);
    assert!(next.prepare(log, (&bell, 0), NOW));
    offer(&mut next, 1..=2);
    assert_eq!(next.next_action(NOW), Action::Note);
    let (_, span) = sent(&mut next);
    assert_eq!((span.first, span.last), (1, 2));
}

fn report(outcome: Outcome) -> Report {
    outcome.into()
}

/// A subscription could end though its subscriber had just confirmed that it wants more.
#[test]
fn what_was_sent_before_a_renewal_does_not_end_the_subscription() {
    let mut entry = entry(Order::All, None);
    offer(&mut entry, 1..=1);
    let (number, _) = sent(&mut entry);
    entry.renew(Arc::clone(&entry.plan));
    entry.finished((number, report(Outcome::Gone)), NOW, 0.0);
    let machine = entry.machine().unwrap();
    assert_eq!((machine.stopped(), machine.down().is_some()), (None, true));
    // What is sent from then on does.
    let later = Now {
        us: NOW.us + 120_000_000,
        ..NOW
    };
    let Action::Send { number, .. } = entry.next_action(later) else {
        panic!("it is not tried again");
    };
    entry.finished((number, report(Outcome::Gone)), later, 0.0);
    let machine = entry.machine().unwrap();
    assert_eq!(machine.stopped(), Some(Stopped::Gone));
}

/// One that had answered 410 while its renewal was being written got nothing for ever.
#[test]
fn a_renewal_goes_on_with_one_that_was_gone_or_down() {
    for outcome in [Outcome::Gone, Outcome::Down { retry_after: None }] {
        let mut entry = entry(Order::All, None);
        offer(&mut entry, 1..=1);
        let (number, _) = sent(&mut entry);
        entry.finished((number, report(outcome)), NOW, 0.0);
        assert!(matches!(entry.next_action(NOW), Action::Wait(_)));
        entry.renew(Arc::clone(&entry.plan));
        if outcome == Outcome::Gone {
            // What was under way when it stopped is offered again.
            assert!(matches!(entry.next_action(NOW), Action::Wait(_)));
            offer(&mut entry, 1..=1);
        }
        assert_eq!(sent(&mut entry).1.first, 1, "{outcome:?}");
    }
}

/// A hub has no word for what is missing: nobody is asked, so nothing is known of the subscriber.
#[test]
fn a_gap_that_is_not_sent_leaves_the_back_off_of_a_subscriber() {
    let mut entry = entry(Order::All, None);
    let since = NOW.wall_ms - 1000;
    let record = crate::webhooks::machine::Record {
        down: Some(crate::webhooks::machine::Down { since, failed: 3 }),
        ..Default::default()
    };
    let policy = Arc::clone(&entry.plan.policy);
    entry.served = Served::Active(Active::new(Machine::restore(policy, 0, &record, NOW)));
    entry.paged(Page::Gone { first: 5 }, NOW);
    let later = Now {
        us: NOW.us + 120_000_000,
        ..NOW
    };
    let Action::SendGap { number, .. } = entry.next_action(later) else {
        panic!("{:?}", entry.next_action(later));
    };
    entry.finished((number, report(Outcome::NotSent)), later, 0.0);
    let machine = entry.machine().unwrap();
    assert_eq!(machine.down(), record.down);
}

/// Most of many endpoints have nothing to do: what they take of memory is bounded.
#[tokio::test]
async fn one_that_has_nothing_to_do_rests_until_there_is_an_event() {
    assert!(size_of::<Entry>() <= 128, "{} bytes", size_of::<Entry>());
    let topic = memory(Payload::Event).await;
    let log = topic.log().unwrap();
    let mut entry = untaken(log, None);
    assert!(entry.prepare(log, (&Arc::default(), 0), NOW));
    for number in 1..=3 {
        assert!(matches!(entry.served, Served::Resting(_)), "{number}");
        assert!(entry.is_idle() && entry.is_done() && !entry.settle_down());
        assert_eq!(entry.next_action(NOW), Action::Wait(None));
        offer(&mut entry, number..=number);
        let (begun, span) = sent(&mut entry);
        assert_eq!((begun, span.first), (number, number));
        entry.finished((begun, Outcome::Delivered.into()), NOW, 0.0);
        assert!(entry.settle_down(), "it has to be noted");
        let (stored, version) = entry.record(log, NOW).unwrap();
        assert_eq!(stored.cursor, log.id(number).to_string());
        assert_eq!(entry.noted(version), (false, false));
        assert_eq!(entry.plan.state.holds_behind(), Some(number));
    }
    assert!(entry.record(log, NOW).is_none(), "that is noted already");
    entry.release(true, NOW);
    assert!(!entry.is_taken());
}

#[test]
fn one_that_waits_for_something_does_not_rest() {
    let mut entry = entry(Order::All, None);
    offer(&mut entry, 1..=1);
    let (number, _) = sent(&mut entry);
    entry.rest();
    assert!(entry.active().is_some(), "a request is under way");
    let down = Outcome::Down { retry_after: None };
    entry.finished((number, down.into()), NOW, 0.0);
    let version = entry.machine().unwrap().record(NOW).1;
    entry.noted(version);
    assert!(entry.active().is_some(), "it is down");
}

/// Most endpoints have nothing to do most of the time, and there may be many.
#[test]
fn an_endpoint_that_rests_takes_few_bytes() {
    assert!(size_of::<Entry>() <= 104);
    assert!(size_of::<EndpointPlan>() <= 64);
    assert!(size_of::<EndpointState>() <= 112);
    assert!(size_of::<Subscription>() <= 104);
}
