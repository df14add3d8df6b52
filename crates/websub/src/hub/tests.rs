//! A hub in single situations; `schedules` has it in random ones.

mod schedules;

use super::*;

const TOPIC: &str = "http://t.example/news";

fn at(seconds: u64) -> Moment {
    Moment {
        wall: Duration::from_secs(1_700_000_000 + seconds),
        at: Duration::from_secs(seconds),
    }
}

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

fn wanted(callback: &str) -> Subscribe {
    Subscribe {
        topic: TOPIC.into(),
        callback: url(callback),
        lease: None,
        secret: None,
    }
}

/// A hub, and what it has asked.
struct Bench {
    hub: Hub,
    numbers: u64,
}

impl Bench {
    fn new(limits: Limits) -> Self {
        let settings = Settings {
            limits,
            ..Settings::default()
        };
        Self {
            hub: Hub::new(settings),
            numbers: 0,
        }
    }

    fn subscribe(&mut self, callback: &str, caller: &str, now: u64) -> Result<(), Refusal> {
        self.hub
            .subscribe(wanted(callback), &caller.into(), at(now))
    }

    fn unsubscribe(&mut self, callback: &str, now: u64) {
        let key = (TOPIC.into(), url(callback));
        self.hub.unsubscribe(key, &"c".into(), at(now)).unwrap();
    }

    fn next(&mut self, now: u64) -> Option<Verification> {
        let numbers = &mut self.numbers;
        self.hub.next(at(now), || {
            *numbers += 1;
            Some(format!("challenge-{numbers}"))
        })
    }

    fn say_yes(&mut self, asked: &Verification, now: u64) -> Verdict {
        let challenge = challenge(asked);
        let answer = Answer::Reply(200, challenge.as_bytes());
        self.hub.answered(asked.id, answer, at(now))
    }

    fn say_no(&mut self, asked: &Verification, now: u64) -> Verdict {
        self.hub
            .answered(asked.id, Answer::Reply(404, b""), at(now))
    }

    /// Subscribes and confirms.
    fn have(&mut self, callback: &str, now: u64) {
        self.subscribe(callback, "c", now).unwrap();
        let asked = self.next(now).unwrap();
        assert_eq!(self.say_yes(&asked, now), Verdict::Subscribed);
    }

    fn has(&self, callback: &str) -> bool {
        self.hub.get(TOPIC, callback).is_some()
    }
}

fn challenge(asked: &Verification) -> String {
    parameter(asked, "hub.challenge").unwrap()
}

fn parameter(asked: &Verification, name: &'static str) -> Option<String> {
    let form = crate::form::Form::parse(asked.query.as_bytes()).unwrap();
    form.all(name).last().map(str::to_owned)
}

#[test]
fn a_callback_is_asked_and_says_yes() {
    let mut bench = Bench::new(Limits::default());
    let callback = "http://s.example/cb?x=1&hub.mode=own";
    bench.subscribe(callback, "c", 0).unwrap();
    assert!(!bench.has(callback) && bench.hub.changes().is_empty());
    let asked = bench.next(0).unwrap();
    assert_eq!(asked.callback.as_str(), callback);
    assert_eq!(
        asked.query,
        "x=1&hub.mode=own&hub.mode=subscribe&hub.topic=http%3A%2F%2Ft.example%2Fnews\
         &hub.challenge=challenge-1&hub.lease_seconds=864000"
    );
    assert_eq!(bench.next(0), None);
    assert_eq!(bench.say_yes(&asked, 5), Verdict::Subscribed);
    let subscription = bench.hub.get(TOPIC, callback).unwrap();
    assert_eq!(subscription.expires, 1_700_000_000 + 5 + 864_000);
    // The answer counts once.
    assert_eq!(bench.say_yes(&asked, 6), Verdict::Over);
    let [Change::Put(record)] = &bench.hub.changes()[..] else {
        panic!("one change");
    };
    assert_eq!((&*record.callback, &*record.topic), (callback, TOPIC));
}

#[test]
fn only_success_with_the_exact_challenge_is_a_yes() {
    let answers = [
        Answer::Nothing,
        Answer::Reply(200, b""),
        Answer::Reply(200, b"challenge-1 "),
        Answer::Reply(200, b"challenge-10"),
        Answer::Reply(199, b"challenge-1"),
        Answer::Reply(301, b"challenge-1"),
        Answer::Reply(404, b"challenge-1"),
        Answer::Reply(500, b"challenge-1"),
    ];
    for answer in answers {
        let mut bench = Bench::new(Limits::default());
        bench.subscribe("http://s/", "c", 0).unwrap();
        let asked = bench.next(0).unwrap();
        let verdict = bench.hub.answered(asked.id, answer, at(1));
        assert_eq!(verdict, Verdict::Failed, "{answer:?}");
        assert!(!bench.has("http://s/") && bench.hub.changes().is_empty());
    }
}

#[test]
fn leases_are_within_their_bounds() {
    let settings = Settings {
        lease: 100,
        lease_min: 50,
        lease_max: 200,
        ..Settings::default()
    };
    for (asked, granted) in [
        (None, 100),
        (Some(1), 50),
        (Some(60), 60),
        (Some(u64::MAX), 200),
    ] {
        let mut bench = Bench::new(Limits::default());
        bench.hub.set(settings.clone());
        let request = Subscribe {
            lease: asked,
            ..wanted("http://s/")
        };
        bench.hub.subscribe(request, &"c".into(), at(0)).unwrap();
        let asked = bench.next(0).unwrap();
        let lease = parameter(&asked, "hub.lease_seconds").unwrap();
        assert_eq!(lease, granted.to_string());
        bench.say_yes(&asked, 10);
        assert_eq!(bench.hub.next_end(), Some(1_700_000_010 + granted));
        assert!(bench.hub.expire(at(9 + granted)).is_empty());
        assert_eq!(bench.hub.expire(at(10 + granted)).len(), 1);
        assert!(!bench.has("http://s/"));
        assert_eq!(bench.hub.counts(), (0, 0));
        assert!(matches!(bench.hub.changes()[1], Change::Remove { .. }));
    }
}

/// A lease that began within a second ended with that second's beginning.
#[test]
fn a_lease_lasts_as_long_as_was_said() {
    let mut bench = Bench::new(Limits::default());
    bench.subscribe("http://s/", "c", 0).unwrap();
    let asked = bench.next(0).unwrap();
    let lease: u64 = parameter(&asked, "hub.lease_seconds")
        .unwrap()
        .parse()
        .unwrap();
    let part = Duration::from_millis(300);
    let later = |seconds: u64| Moment {
        wall: at(seconds).wall + part,
        at: at(seconds).at + part,
    };
    let yes = challenge(&asked);
    let answer = Answer::Reply(200, yes.as_bytes());
    bench.hub.answered(asked.id, answer, later(10));
    assert!(bench.hub.expire(at(10 + lease)).is_empty());
    assert_eq!(bench.hub.expire(at(11 + lease)).len(), 1);
}

#[test]
fn a_renewal_that_fails_leaves_the_subscription_as_it_was() {
    let mut bench = Bench::new(Limits::default());
    bench.have("http://s/", 0);
    let before = bench.hub.get(TOPIC, "http://s/").cloned();
    let request = Subscribe {
        lease: Some(60),
        secret: Secret::new("other"),
        ..wanted("http://s/")
    };
    bench
        .hub
        .subscribe(request.clone(), &"x".into(), at(10))
        .unwrap();
    let asked = bench.next(10).unwrap();
    assert_eq!(bench.hub.get(TOPIC, "http://s/").cloned(), before);
    assert_eq!(bench.say_no(&asked, 10), Verdict::Failed);
    assert_eq!(bench.hub.get(TOPIC, "http://s/").cloned(), before);
    // The callback has a rest.
    let refusal = bench.subscribe("http://s/", "c", 11).unwrap_err();
    assert_eq!((refusal.status, refusal.retry_after), (429, Some(10)));
    bench.hub.subscribe(request, &"c".into(), at(20)).unwrap();
    let asked = bench.next(20).unwrap();
    bench.say_yes(&asked, 20);
    let after = bench.hub.get(TOPIC, "http://s/").unwrap();
    assert_eq!(after.secret, Secret::new("other"));
    assert_eq!(after.expires, 1_700_000_080);
    // Without a secret there is none.
    bench.have("http://s/", 30);
    assert_eq!(bench.hub.get(TOPIC, "http://s/").unwrap().secret, None);
    assert_eq!(bench.hub.counts(), (1, 0));
}

#[test]
fn unsubscribing_is_verified_too() {
    let mut bench = Bench::new(Limits::default());
    bench.unsubscribe("http://s/", 0);
    assert_eq!(bench.next(0), None, "nobody is asked about nothing");
    bench.have("http://s/", 0);
    bench.unsubscribe("http://s/", 1);
    let asked = bench.next(1).unwrap();
    assert_eq!(
        parameter(&asked, "hub.mode").as_deref(),
        Some("unsubscribe")
    );
    assert_eq!(parameter(&asked, "hub.lease_seconds"), None);
    bench.say_no(&asked, 1);
    assert!(bench.has("http://s/"));
    bench.unsubscribe("http://s/", 20);
    let asked = bench.next(20).unwrap();
    assert_eq!(bench.say_yes(&asked, 20), Verdict::Unsubscribed);
    assert!(!bench.has("http://s/"));
}

#[test]
fn the_newest_request_counts() {
    let mut bench = Bench::new(Limits::default());
    for lease in [60, 70, 80] {
        let request = Subscribe {
            lease: Some(lease),
            ..wanted("http://s/")
        };
        bench.hub.subscribe(request, &"c".into(), at(0)).unwrap();
    }
    assert_eq!(bench.hub.counts(), (0, 1));
    let first = bench.next(0).unwrap();
    assert_eq!(
        parameter(&first, "hub.lease_seconds").as_deref(),
        Some("80")
    );
    assert_eq!(bench.next(0), None);
    // While the callback is asked the others wait behind it, and the last of them is left.
    for lease in [90, 100] {
        let request = Subscribe {
            lease: Some(lease),
            ..wanted("http://s/")
        };
        bench.hub.subscribe(request, &"c".into(), at(0)).unwrap();
    }
    assert_eq!((bench.next(0), bench.hub.counts()), (None, (0, 2)));
    bench.say_yes(&first, 0);
    let second = bench.next(0).unwrap();
    assert_eq!(
        parameter(&second, "hub.lease_seconds").as_deref(),
        Some("100")
    );
    bench.say_yes(&second, 0);
    assert_eq!(bench.hub.counts(), (1, 0));
    assert_eq!(bench.hub.next_end(), Some(1_700_000_100));
}

#[test]
fn hosts_that_say_no_are_left_alone() {
    let mut bench = Bench::new(Limits::default());
    // From many callers: a botnet.
    for number in 0..250 {
        let callback = format!("http://victim.example/{number}");
        bench
            .subscribe(&callback, &format!("c{number}"), 0)
            .unwrap();
    }
    let mut asked = 0;
    while let Some(verification) = bench.next(0) {
        bench.say_no(&verification, 0);
        asked += 1;
    }
    assert_eq!((asked, bench.hub.dropped()), (200, 50));
    assert_eq!(bench.hub.counts(), (0, 0));
    let refusal = bench
        .subscribe("http://Victim.example:81/x", "d", 1)
        .unwrap_err();
    assert_eq!((refusal.status, refusal.retry_after), (429, Some(3)));
    bench.subscribe("http://other.example/", "d", 1).unwrap();
    // One is forgotten after another.
    bench.subscribe("http://victim.example/x", "d", 3).unwrap();
    assert!(bench.next(3).is_some());
}

#[test]
fn whoever_closes_a_host_closes_it_to_those_that_fail_and_not_to_newcomers() {
    let mut bench = Bench::new(Limits::default());
    let mut asked = 0;
    for number in 0..100 {
        let callback = format!("http://shared.example/{number}");
        let _ = bench.subscribe(&callback, &format!("c{}", number % 10), 0);
        while let Some(verification) = bench.next(0) {
            bench.say_no(&verification, 0);
            asked += 1;
        }
    }
    assert_eq!(
        asked,
        10 + 20,
        "the first of each caller, and 20 of all others"
    );
    assert!(bench.subscribe("http://shared.example/x", "c1", 1).is_err());
    bench
        .subscribe("http://shared.example/new", "newcomer", 1)
        .unwrap();
    let verification = bench.next(1).unwrap();
    assert_eq!(bench.say_yes(&verification, 1), Verdict::Subscribed);
    // A caller is a newcomer again when its failures are forgotten.
    assert!(bench.subscribe("http://shared.example/x", "c1", 90).is_ok());
}

#[test]
fn callers_that_name_callbacks_which_say_no_are_refused() {
    let mut bench = Bench::new(Limits::default());
    for number in 0..20 {
        let callback = format!("http://victim{number}.example/");
        bench.subscribe(&callback, "c", 0).unwrap();
        let asked = bench.next(0).unwrap();
        bench.say_no(&asked, 0);
    }
    assert_eq!(
        bench.subscribe("http://a/", "c", 1).unwrap_err().status,
        429
    );
    assert!(bench.subscribe("http://a/", "d", 1).is_ok());
}

#[test]
fn what_a_caller_has_can_be_renewed_though_others_of_its_address_fail() {
    let mut bench = Bench::new(Limits::default());
    bench.have("http://s.example/", 0);
    for number in 0..20 {
        let callback = format!("http://victim{number}.example/");
        bench.subscribe(&callback, "c", 0).unwrap();
        let asked = bench.next(0).unwrap();
        bench.say_no(&asked, 0);
    }
    assert!(bench.subscribe("http://new.example/", "c", 1).is_err());
    bench.subscribe("http://s.example/", "c", 1).unwrap();
    let asked = bench.next(1).unwrap();
    assert_eq!(bench.say_yes(&asked, 1), Verdict::Subscribed);
}

#[test]
fn strangers_do_not_keep_a_subscription_from_being_renewed() {
    let mut bench = Bench::new(Limits::default());
    bench.have("http://s.example/real", 0);
    for number in 0..250 {
        let callback = format!("http://s.example/{number}");
        let _ = bench.subscribe(&callback, &format!("c{number}"), 1);
    }
    while let Some(asked) = bench.next(1) {
        bench.say_no(&asked, 1);
    }
    assert!(bench.subscribe("http://s.example/new", "d", 2).is_err());
    bench.have("http://s.example/real", 2);
}

#[test]
fn hosts_have_turns_and_a_number_of_requests_at_a_time() {
    let limits = Limits {
        in_flight: 3,
        in_flight_per_host: 2,
        ..Limits::default()
    };
    let mut bench = Bench::new(limits);
    for number in 0..5 {
        bench
            .subscribe(&format!("http://slow/{number}"), "c", 0)
            .unwrap();
    }
    bench.subscribe("http://quick/", "d", 0).unwrap();
    let hosts = |bench: &mut Bench| {
        let mut hosts = Vec::new();
        while let Some(asked) = bench.next(0) {
            hosts.push(asked);
        }
        hosts
    };
    let asked = hosts(&mut bench);
    let names: Vec<&str> = asked.iter().map(|it| &**it.callback.host()).collect();
    assert_eq!(names, ["slow", "quick", "slow"]);
    bench.say_yes(&asked[1], 0);
    assert_eq!(hosts(&mut bench), [], "the slow one has two already");
    bench.say_yes(&asked[0], 0);
    assert_eq!(hosts(&mut bench).len(), 1);
}

#[test]
fn a_callback_that_never_answers_has_said_no() {
    let mut bench = Bench::new(Limits::default());
    bench.subscribe("http://s/", "c", 0).unwrap();
    let asked = bench.next(0).unwrap();
    bench.hub.expire(at(29));
    assert_eq!(bench.hub.counts(), (0, 1));
    bench.hub.expire(at(30));
    assert_eq!(bench.hub.counts(), (0, 0));
    assert_eq!(bench.say_yes(&asked, 31), Verdict::Over);
    assert!(!bench.has("http://s/"));
}

#[test]
fn a_denied_subscription_is_over_whatever_is_under_way() {
    let mut bench = Bench::new(Limits::default());
    bench.have("http://s/?a", 0);
    bench.subscribe("http://s/?a", "c", 1).unwrap();
    let asked = bench.next(1).unwrap();
    let (topic, callback) = (TOPIC.into(), "http://s/?a".into());
    let denial = bench
        .hub
        .deny(&topic, &callback, Some("not for you"))
        .unwrap();
    assert_eq!(
        denial.query,
        "a&hub.mode=denied&hub.topic=http%3A%2F%2Ft.example%2Fnews&hub.reason=not%20for%20you"
    );
    assert!(!bench.has("http://s/?a"));
    assert_eq!(bench.say_yes(&asked, 2), Verdict::Over);
    assert_eq!(
        (bench.has("http://s/?a"), bench.hub.counts()),
        (false, (0, 0))
    );
    assert_eq!(bench.hub.deny(&topic, &callback, None), None);
}

#[test]
fn a_delivery_that_found_the_callback_gone_ends_what_it_belonged_to() {
    let mut bench = Bench::new(Limits::default());
    bench.have("http://s/", 0);
    let old = bench.hub.get(TOPIC, "http://s/").unwrap().version;
    bench.have("http://s/", 1);
    let (topic, callback) = (TOPIC.into(), "http://s/".into());
    assert!(!bench.hub.gone(&topic, &callback, old));
    let new = bench.hub.get(TOPIC, "http://s/").unwrap().version;
    assert!(bench.hub.gone(&topic, &callback, new));
    assert!(!bench.has("http://s/"));
    assert!(!bench.hub.gone(&topic, &callback, new));
}

#[test]
fn there_is_a_bound_on_everything() {
    let limits = Limits {
        subscriptions: 6,
        per_caller: 2,
        per_host: 3,
        pending_per_caller: 2,
        pending_per_host: 2,
        pending: 3,
        parties: 5,
        ..Limits::default()
    };
    let mut bench = Bench::new(limits.clone());
    let refused = |bench: &mut Bench, callback: &str, caller: &str| {
        let refused = bench.subscribe(callback, caller, 0).unwrap_err();
        (refused.status, refused.reason)
    };
    bench.subscribe("http://a/1", "c", 0).unwrap();
    bench.subscribe("http://a/2", "d", 0).unwrap();
    let host = "too many requests wait for the host".to_owned();
    assert_eq!(refused(&mut bench, "http://a/3", "e"), (429, host));
    bench.subscribe("http://b/1", "c", 0).unwrap();
    let caller = "too many requests wait".to_owned();
    assert_eq!(
        refused(&mut bench, "http://b/2", "c"),
        (429, caller.clone())
    );
    assert_eq!(refused(&mut bench, "http://b/2", "e"), (503, caller));
    // It does not take more to change one's mind.
    while let Some(asked) = bench.next(0) {
        bench.say_yes(&asked, 0);
    }
    assert_eq!(bench.hub.counts(), (3, 0));
    let own = "there are too many subscriptions of the caller".to_owned();
    assert_eq!(refused(&mut bench, "http://b/2", "c"), (403, own));
    bench.have("http://a/1", 0);
    bench.subscribe("http://a/3", "d", 0).unwrap();
    let host = "there are too many subscriptions on the host of the callback".to_owned();
    assert_eq!(refused(&mut bench, "http://a/4", "e"), (403, host));
    let asked = bench.next(0).unwrap();
    bench.say_yes(&asked, 0);
    for number in 1..=2 {
        bench
            .subscribe(&format!("http://d/{number}"), "e", 0)
            .unwrap();
    }
    assert_eq!(
        refused(&mut bench, "http://f/", "f").0,
        503,
        "places are kept free"
    );
    // A table that is full of those of whom something is known takes nobody else.
    let mut bench = Bench::new(Limits {
        per_caller: 100,
        subscriptions: 100,
        ..limits
    });
    for number in 0..5 {
        bench.have(&format!("http://h{number}/"), 0);
    }
    assert_eq!(refused(&mut bench, "http://h6/", "c").0, 503);
    bench.have("http://h1/2", 0);
}

#[test]
fn a_caller_without_room_renews_what_another_has() {
    let limits = Limits {
        per_caller: 1,
        ..Limits::default()
    };
    let mut bench = Bench::new(limits);
    for (callback, caller) in [("http://a/", "c"), ("http://b/", "d")] {
        bench.subscribe(callback, caller, 0).unwrap();
        let asked = bench.next(0).unwrap();
        bench.say_yes(&asked, 0);
    }
    // It is another one's when the request is accepted, too.
    assert_eq!(
        bench.subscribe("http://a/", "d", 0).unwrap_err().status,
        403
    );
    bench.subscribe("http://a/", "e", 0).unwrap();
    let first = bench.next(0).unwrap();
    bench.subscribe("http://e/", "e", 0).unwrap();
    let second = bench.next(0).unwrap();
    assert_eq!(bench.say_yes(&second, 0), Verdict::Subscribed);
    assert_eq!(bench.say_yes(&first, 1), Verdict::Subscribed);
    let renewed = bench.hub.get(TOPIC, "http://a/").unwrap();
    assert_eq!((&*renewed.caller, renewed.expires), ("c", 1_700_864_001));
}

#[test]
fn what_was_written_is_taken_up_again_unless_it_is_over() {
    let record = |callback: &str, expires: u64| Record {
        topic: TOPIC.into(),
        callback: callback.into(),
        secret: Secret::new("s"),
        caller: "c".into(),
        expires: 1_700_000_000 + expires,
    };
    let mut hub = Hub::new(Settings::default());
    let mut restore = |callback, expires| hub.restore(record(callback, expires), at(0));
    assert_eq!(restore("http://a/", 100), Restored::Active);
    // Whatever the disk has of one that is active: it may have been renewed since.
    assert_eq!(restore("http://a/", 200), Restored::Known);
    assert_eq!(restore("http://a/", 0), Restored::Known);
    assert_eq!(restore("http://b/", 0), Restored::Over);
    assert_eq!(restore("ftp://b/", 100), Restored::Over);
    // The clock has been put back: no lease is longer than it may be.
    assert_eq!(
        hub.restore(record("http://c/", 1 << 40), at(0)),
        Restored::Active
    );
    let longest = Settings::default().lease_max;
    assert_eq!(
        hub.get(TOPIC, "http://c/").unwrap().expires,
        1_700_000_000 + longest
    );
    assert_eq!((hub.counts(), hub.changes()), ((2, 0), Vec::new()));
    assert_eq!(
        hub.get(TOPIC, "http://a/").unwrap().secret,
        Secret::new("s")
    );
    assert_eq!(hub.subscriptions(TOPIC).count(), 2);
}
