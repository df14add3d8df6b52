//! A subscription beside scripted hubs, and beside hubs that fail at random.

use fastrand::Rng;

use super::*;

const HUB: &str = "https://hub.example/";
const TOPIC: &str = "https://t.example/news?a=1&b=2";

fn at(seconds: f64) -> Moment {
    let at = Duration::from_secs_f64(seconds);
    Moment {
        wall: Duration::from_secs(1_700_000_000) + at,
        at,
    }
}

fn urls() -> (Url, Url) {
    (Url::parse(HUB).unwrap(), Url::parse(TOPIC).unwrap())
}

fn query(mode: &str, topic: &str, others: &[(&'static str, &str)]) -> String {
    let mut query = String::new();
    for (name, value) in [("hub.mode", mode), ("hub.topic", topic)]
        .iter()
        .chain(others)
    {
        crate::form::push(name, value, &mut query);
    }
    query
}

fn verification(mode: &str, lease: &str) -> String {
    query(
        mode,
        TOPIC,
        &[("hub.challenge", "c h&x"), ("hub.lease_seconds", lease)],
    )
}

fn confirmed() -> Intent {
    Intent::Confirmed("c h&x".to_owned())
}

fn asked(now: f64) -> Subscriber {
    let mut subscriber = Subscriber::new(100, true, None);
    assert_eq!(subscriber.step(at(now), 0.5), Step::Ask(Mode::Subscribe));
    subscriber.begin(Mode::Subscribe, urls(), at(now));
    subscriber
}

#[test]
fn what_is_asked_for_is_confirmed_and_renewed() {
    let mut subscriber = asked(0.0);
    assert_eq!(
        subscriber.step(at(1.0), 0.5),
        Step::Wait(Duration::from_secs(59))
    );
    subscriber.accepted(at(2.0));
    assert_eq!(subscriber.lease(at(2.0)), None);
    assert_eq!(
        subscriber.intent(&verification("subscribe", "90"), at(3.0), 0.5),
        confirmed()
    );
    let lease = subscriber.lease(at(3.0)).unwrap();
    assert_eq!((lease.hub.as_str(), lease.ends), (HUB, at(93.0).wall));
    assert_eq!(
        subscriber.step(at(4.0), 0.5),
        Step::Wait(Duration::from_secs(59))
    );
    assert_eq!(subscriber.step(at(63.0), 0.5), Step::Ask(Mode::Subscribe));
    // The hub may repeat its question, with another challenge, for its answer may be lost.
    let again = verification("subscribe", "80").replace("c%20h", "other");
    let again = subscriber.intent(&again, at(20.0), 0.5);
    assert_eq!(again, Intent::Confirmed("other&x".to_owned()));
    subscriber.begin(Mode::Subscribe, urls(), at(63.0));
    subscriber.failed(at(64.0), 0.5);
    assert!(subscriber.lease(at(99.0)).is_some(), "it is what it was");
    assert!(subscriber.lease(at(100.0)).is_none());
}

#[test]
fn hubs_may_verify_before_they_answer() {
    let mut subscriber = asked(0.0);
    subscriber.intent(&verification("subscribe", "90"), at(1.0), 0.5);
    subscriber.accepted(at(2.0));
    assert_eq!(
        subscriber.step(at(3.0), 0.5),
        Step::Wait(Duration::from_secs(58))
    );
    let mut subscriber = asked(0.0);
    subscriber.intent(&verification("subscribe", "90"), at(1.0), 0.5);
    assert!(!subscriber.failed(at(2.0), 0.5), "its answer was lost");
    assert_eq!(
        (subscriber.failures(), subscriber.lease(at(3.0)).is_some()),
        (0, true)
    );
}

#[test]
fn nothing_else_is_confirmed() {
    let good = verification("subscribe", "90");
    let with = |from: &str, to: &str| good.replace(from, to);
    for (query, refused) in [
        (with("subscribe", "unsubscribe"), "not asked for"),
        (with("subscribe", "resubscribe"), "unknown mode"),
        (with("hub.mode=subscribe&", ""), "unknown mode"),
        (with("news", "olds"), "another topic"),
        (with("https%3A", "http%3A"), "another topic"),
        (with("hub.topic", "topic"), "no topic"),
        (with("c%20h%26x", ""), "no challenge"),
        (with("hub.challenge", "challenge"), "no challenge"),
        (with("c%20h%26x", &"x".repeat(4097)), "no challenge"),
        (with("90", "-1"), "malformed lease"),
        (with("90", "1.5"), "malformed lease"),
        (format!("{good}&hub.mode=subscribe"), "malformed"),
        (format!("{good}&hub.lease_seconds=1"), "malformed"),
        (format!("{good}&%"), "malformed"),
        (String::new(), "no topic"),
    ] {
        let mut subscriber = asked(0.0);
        let intent = subscriber.intent(&query, at(1.0), 0.5);
        assert_eq!(intent, Intent::Refused(refused), "{query}");
        assert_eq!(subscriber.last_lease(), None);
    }
    // Nor what is right but was not asked for, or too long ago.
    let mut subscriber = Subscriber::new(100, true, None);
    assert_eq!(
        subscriber.intent(&good, at(1.0), 0.5),
        Intent::Refused("not asked for")
    );
    let mut subscriber = asked(0.0);
    assert_eq!(
        subscriber.intent(&good, at(600.0), 0.5),
        Intent::Refused("not asked for")
    );
}

#[test]
fn leases_without_end_or_sense_are_bounded() {
    for (lease, seconds) in [("", 100), ("0", 100), ("1", 1), ("99999999999", LEASE_MAX)] {
        let mut subscriber = asked(0.0);
        subscriber.intent(&verification("subscribe", lease), at(0.0), 0.5);
        let ends = subscriber.last_lease().unwrap().ends;
        assert_eq!(ends, at(seconds as f64).wall, "{lease}");
    }
    // A lease of a second is renewed once a second, not in a circle.
    let mut subscriber = asked(0.0);
    subscriber.intent(&verification("subscribe", "1"), at(0.0), 0.5);
    assert_eq!(
        subscriber.step(at(0.0), 0.5),
        Step::Wait(Duration::from_secs(1))
    );
    assert_eq!(subscriber.step(at(1.0), 0.5), Step::Ask(Mode::Subscribe));
}

#[test]
fn failures_back_off() {
    let mut subscriber = Subscriber::new(100, true, None);
    let (mut now, mut waits) = (0.0, Vec::new());
    for _ in 0..14 {
        assert_eq!(subscriber.step(at(now), 0.5), Step::Ask(Mode::Subscribe));
        subscriber.begin(Mode::Subscribe, urls(), at(now));
        assert!(subscriber.failed(at(now), 0.5));
        let mut waited = 0.0;
        while let Step::Wait(wait) = subscriber.step(at(now), 0.5) {
            now += wait.as_secs_f64();
            waited += wait.as_secs_f64();
        }
        waits.push(waited);
    }
    assert_eq!(waits[..4], [1.0, 2.0, 4.0, 8.0]);
    assert_eq!(waits[12..], [3600.0, 3600.0]);
    assert_eq!(subscriber.failures(), 14);
    // No hub at all is a failure like another.
    subscriber.not_found(at(now), 0.0);
    assert_eq!(subscriber.failures(), 15);
}

#[test]
fn a_hub_that_accepts_and_does_not_verify_has_failed() {
    let mut subscriber = asked(0.0);
    subscriber.accepted(at(5.0));
    assert_eq!(
        subscriber.step(at(64.0), 0.5),
        Step::Wait(Duration::from_secs(1))
    );
    assert_eq!(subscriber.step(at(65.0), 0.5), Step::Unverified);
    assert_eq!(
        subscriber.step(at(65.0), 0.5),
        Step::Wait(Duration::from_secs(1))
    );
    // It may come late.
    assert_eq!(
        subscriber.intent(&verification("subscribe", "90"), at(66.0), 0.5),
        confirmed()
    );
    assert_eq!(subscriber.failures(), 0);
}

#[test]
fn a_request_that_was_given_up_is_made_again_at_once() {
    let mut subscriber = asked(0.0);
    subscriber.abandoned();
    assert_eq!(subscriber.step(at(1.0), 0.5), Step::Ask(Mode::Subscribe));
    let late = subscriber.intent(&verification("subscribe", "90"), at(2.0), 0.5);
    assert_eq!((late, subscriber.failures()), (confirmed(), 0));
    subscriber.abandoned();
    assert!(
        matches!(subscriber.step(at(3.0), 0.5), Step::Wait(_)),
        "it is confirmed"
    );
}

#[test]
fn other_settings_hold_from_then_on() {
    let mut subscriber = asked(0.0);
    assert!(subscriber.failed(at(0.0), 0.5));
    subscriber.set(200, true);
    assert!(
        matches!(subscriber.step(at(0.0), 0.5), Step::Wait(_)),
        "it has failed all the same"
    );
    subscriber.set(200, false);
    let late = subscriber.intent(&verification("subscribe", "90"), at(1.0), 0.5);
    assert_eq!(late, Intent::Refused("not asked for"));
    subscriber.set(200, true);
    assert_eq!(subscriber.step(at(1.0), 0.5), Step::Ask(Mode::Subscribe));
    subscriber.begin(Mode::Subscribe, urls(), at(1.0));
    subscriber.intent(&verification("subscribe", ""), at(1.0), 0.5);
    assert_eq!(subscriber.last_lease().unwrap().ends, at(201.0).wall);
}

#[test]
fn a_denial_ends_the_subscription_and_is_told() {
    let mut subscriber = asked(0.0);
    let denied = query("denied", TOPIC, &[("hub.reason", "not\nyou")]);
    let other = query("denied", "https://t.example/", &[]);
    assert_eq!(
        subscriber.intent(&other, at(1.0), 0.5),
        Intent::Refused("another topic")
    );
    let told = subscriber.intent(&denied, at(1.0), 0.5);
    assert_eq!(told, Intent::Denied(Some("not\nyou".to_owned())));
    assert_eq!(
        subscriber.step(at(1.0), 0.5),
        Step::Wait(Duration::from_secs(60))
    );
    let after = subscriber.intent(&verification("subscribe", "90"), at(2.0), 0.5);
    assert_eq!(after, Intent::Refused("not asked for"));
    // Later, too.
    let mut subscriber = asked(0.0);
    subscriber.intent(&verification("subscribe", "90"), at(1.0), 0.5);
    subscriber.intent(&query("denied", TOPIC, &[]), at(50.0), 0.5);
    assert_eq!(subscriber.last_lease(), None);
    assert_eq!(subscriber.step(at(110.0), 0.5), Step::Ask(Mode::Subscribe));
}

#[test]
fn what_is_not_wanted_any_more_is_ended() {
    let mut subscriber = asked(0.0);
    subscriber.intent(&verification("subscribe", "90"), at(0.0), 0.5);
    let lease = subscriber.last_lease().cloned();
    let mut subscriber = Subscriber::new(100, false, lease);
    assert_eq!(subscriber.step(at(1.0), 0.5), Step::Ask(Mode::Unsubscribe));
    subscriber.begin(Mode::Unsubscribe, urls(), at(1.0));
    let other = subscriber.intent(&verification("subscribe", "90"), at(2.0), 0.5);
    assert_eq!(other, Intent::Refused("not asked for"));
    assert_eq!(
        subscriber.intent(&verification("unsubscribe", ""), at(2.0), 0.5),
        confirmed()
    );
    assert_eq!(subscriber.step(at(2.0), 0.5), Step::Wait(LOOK));
    // A lease that is over ends by itself.
    let mut subscriber = Subscriber::new(100, false, None);
    assert_eq!(subscriber.step(at(1.0), 0.5), Step::Wait(LOOK));
}

#[test]
fn a_restart_goes_on_with_the_lease() {
    let mut subscriber = asked(0.0);
    subscriber.intent(&verification("subscribe", "90"), at(0.0), 0.5);
    let lease = subscriber.last_lease().cloned();
    let mut subscriber = Subscriber::new(100, true, lease.clone());
    assert_eq!(
        subscriber.step(at(30.0), 0.5),
        Step::Wait(Duration::from_secs(30))
    );
    assert_eq!(subscriber.step(at(60.0), 0.5), Step::Ask(Mode::Subscribe));
    let mut subscriber = Subscriber::new(100, true, lease);
    assert_eq!(subscriber.step(at(90.0), 0.5), Step::Ask(Mode::Subscribe));
}

/// Hubs that refuse, verify late or never, deny, and answer what was not asked; engines that are
/// started again. What must hold: a lease is what the last verification said; nothing is confirmed
/// that was not asked for within the last ten minutes; requests are at least 0.8 s apart, and while
/// all fail ever further; and with a hub that works there is a lease, and none ends.
#[test]
fn random_hubs_do_no_harm() {
    for seed in 0..500 {
        let mut random = Rng::with_seed(seed);
        let mut subscriber = Subscriber::new(100, true, None);
        let (mut now, mut last_asked) = (0.0, None::<f64>);
        let (mut is_up, mut ended) = (random.bool(), 0);
        let mut had_lease = false;
        for step in 0..400 {
            if step == 300 {
                is_up = true;
            } else if step < 300 && random.u8(..20) == 0 {
                is_up = !is_up;
            }
            let jitter = random.f64();
            match subscriber.step(at(now), jitter) {
                Step::Wait(wait) => {
                    assert!(!wait.is_zero() && wait <= LOOK.max(VERIFY_TIME));
                    now += wait.as_secs_f64();
                }
                Step::Unverified => {}
                Step::Ask(mode) => {
                    assert_eq!(mode, Mode::Subscribe);
                    if let Some(last) = last_asked {
                        assert!(now - last >= 0.79, "seed {seed}: {now} after {last}");
                    }
                    last_asked = Some(now);
                    subscriber.begin(mode, urls(), at(now));
                    let behaviour = if is_up { 0 } else { random.u8(..5) };
                    if matches!(behaviour, 0 | 1) {
                        subscriber.accepted(at(now));
                    }
                    match behaviour {
                        0 => {
                            let intent = verification("subscribe", "90");
                            now += f64::from(random.u8(..5));
                            assert_eq!(subscriber.intent(&intent, at(now), jitter), confirmed());
                            let ends = subscriber.last_lease().unwrap().ends;
                            assert_eq!(ends, at(now + 90.0).wall);
                        }
                        1 => {}
                        2 => {
                            let denied = query("denied", TOPIC, &[]);
                            subscriber.intent(&denied, at(now), jitter);
                            assert_eq!(subscriber.last_lease(), None);
                        }
                        _ => assert!(subscriber.failed(at(now), jitter)),
                    }
                }
            }
            let is_asked = last_asked.is_some_and(|it| now < it + 600.0);
            if !is_asked {
                let before = subscriber.last_lease().cloned();
                let intent = subscriber.intent(&verification("subscribe", "5"), at(now), 0.5);
                assert_eq!(intent, Intent::Refused("not asked for"), "seed {seed}");
                assert_eq!(subscriber.last_lease().cloned(), before);
            }
            if random.u8(..50) == 0 {
                // Requests are spaced by the process: it is not started again all the time.
                let lease = subscriber.last_lease().cloned();
                subscriber = Subscriber::new(100, true, lease);
                (last_asked, now) = (None, now + 1.0);
            }
            if step > 380 {
                ended += usize::from(had_lease && subscriber.lease(at(now)).is_none());
                had_lease = subscriber.lease(at(now)).is_some();
            }
        }
        assert!(had_lease && ended == 0, "seed {seed}: {ended}");
    }
}
