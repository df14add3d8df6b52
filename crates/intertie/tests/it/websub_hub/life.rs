//! Renewals, ends, failures and restarts.

use super::*;

/// 103: a renewal replaces the state once it is confirmed, and not before.
#[test]
fn a_renewal_counts_when_it_is_confirmed() {
    let (place, subscriber) = (Place::new("{}"), Subscriber::new());
    let engine = place.run();
    let callback = subscriber.callback("/cb");
    place.subscribe(&callback, &[("hub.secret", "first secret")]);
    wait_for_subscriptions(&engine, 1);
    place.subscribe(&callback, &[("hub.secret", "second secret")]);
    assert_eq!(subscriber.question(2).mode(), "subscribe");
    let signed_with = |number: usize, secret: &str| {
        place.publish(&number.to_string());
        let received = subscriber.wait_for(number).remove(number - 1);
        let expected = signature("sha256", secret, &received.body);
        received.header("X-Hub-Signature") == Some(&*expected)
    };
    let mut number = 0;
    wait_long("the second secret signs", || {
        number += 1;
        signed_with(number, "second secret")
    });
    subscriber.answer_verifications(404);
    place.subscribe(&callback, &[("hub.secret", "third secret")]);
    subscriber.question(3);
    assert!(signed_with(number + 1, "second secret"));
    assert_eq!(count(&engine), 1.0);
    engine.stop();
}

/// 104: the end is verified, too.
#[test]
fn an_end_counts_when_it_is_confirmed() {
    let (place, subscriber, other) = (Place::new("{}"), Subscriber::new(), Subscriber::new());
    let engine = place.run();
    let callback = subscriber.callback("/cb");
    place.subscribe(&callback, &[]);
    wait_for_subscriptions(&engine, 1);
    subscriber.answer_verifications(299);
    let reply = place.order("unsubscribe", &callback, &[]);
    assert_eq!(reply.status, 202);
    let question = subscriber.question(2);
    assert_eq!(
        (question.mode(), question.get("hub.lease_seconds")),
        ("unsubscribe", None)
    );
    place.publish("1");
    subscriber.wait_for(1);
    // Some seconds after a callback has said no it is not asked again.
    wait_long("it is asked again", || {
        subscriber.answer_verifications(200);
        place.order("unsubscribe", &callback, &[]).status == 202
    });
    wait_for_subscriptions(&engine, 0);
    place.publish("2");
    // Another subscriber gets it, so that the first would have.
    place.subscribe(&other.callback("/"), &[]);
    wait_for_subscriptions(&engine, 1);
    place.publish("3");
    assert_eq!(text(&other.wait_for(1)[0]), "3");
    assert_eq!(subscriber.accepted().len(), 1);
    engine.stop();
}

#[test]
fn a_lease_ends_in_time() {
    let (place, subscriber) = (Place::new("{ lease_min: 1s }"), Subscriber::new());
    let engine = place.run();
    place.subscribe(&subscriber.callback("/"), &[("hub.lease_seconds", "1")]);
    subscriber.question(1);
    let begun = Instant::now();
    wait_long("the lease is over", || count(&engine) == 0.0);
    // Not when subscriptions are looked through next.
    assert!(begun.elapsed() < Duration::from_secs(15));
    engine.stop();
}

#[test]
fn deliveries_that_fail_come_again_and_410_ends_the_subscription() {
    let place = Place::new(&format!("{{ {QUICK} }}"));
    let (failing, fine) = (Subscriber::new(), Subscriber::new());
    let engine = place.run();
    place.subscribe(&failing.callback("/"), &[]);
    place.subscribe(&fine.callback("/"), &[]);
    wait_for_subscriptions(&engine, 2);
    failing.answer_deliveries(500);
    place.publish("1");
    wait_long("it is tried again", || failing.attempts() >= 3);
    // One that fails delays no other.
    fine.wait_for(1);
    // A redirect is no success, and not followed.
    failing.answer_deliveries(302);
    let before = failing.attempts();
    wait_long("it is tried again", || failing.attempts() >= before + 2);
    failing.answer_deliveries(200);
    failing.wait_for(1);
    // What it refuses for good it does not get, and the next it does.
    failing.answer_deliveries(400);
    let before = failing.attempts();
    place.publish("2");
    wait_long("it has refused three times", || {
        failing.attempts() >= before + 3
    });
    failing.answer_deliveries(200);
    place.publish("3");
    let bodies = |it: &Subscriber| it.accepted().iter().map(text).collect::<Vec<_>>();
    wait_long("the next one comes", || {
        bodies(&failing).last().is_some_and(|it| it == "3")
    });
    failing.answer_deliveries(410);
    place.publish("4");
    wait_for_subscriptions(&engine, 1);
    fine.wait_for(4);
    assert_eq!(bodies(&fine), ["1", "2", "3", "4"]);
    engine.stop();
}

#[test]
fn subscriptions_and_what_they_have_not_got_survive_a_kill() {
    let place = Place::new(&format!("{{ {QUICK} }}"));
    let subscriber = Subscriber::new();
    let mut engine = place.run();
    let secret = [("hub.secret", "a secret of the test")];
    place.subscribe(&subscriber.callback("/signed"), &secret);
    place.subscribe(&subscriber.callback("/plain"), &[]);
    wait_for_subscriptions(&engine, 2);
    place.publish("1");
    subscriber.wait_for(2);
    subscriber.answer_deliveries(503);
    place.publish("2");
    wait_long("both are tried", || subscriber.attempts() >= 4);
    engine.process.signal("KILL");
    engine.process.wait();
    let kept = place.folder.path().join("data");
    assert!(
        !holds(&kept, b"a secret of the test"),
        "a secret lies on the disk as it is"
    );
    subscriber.answer_deliveries(200);
    let engine = place.run();
    wait_for_subscriptions(&engine, 2);
    // What was not noted before the kill comes again.
    let of = |path: &str| {
        let all = subscriber.accepted();
        let own = all.iter().filter(|it| it.target == path);
        own.map(text).collect::<std::collections::BTreeSet<_>>()
    };
    let both = ["1", "2"].map(str::to_owned).into();
    wait_long("both have got both", || {
        of("/signed") == both && of("/plain") == both
    });
    let all = subscriber.accepted();
    for received in all.iter().filter(|it| it.target == "/signed") {
        let expected = signature("sha256", secret[0].1, &received.body);
        assert_eq!(received.header("X-Hub-Signature"), Some(&*expected));
    }
    // What has ended does not come back.
    assert_eq!(
        place
            .order("unsubscribe", &subscriber.callback("/plain"), &[])
            .status,
        202
    );
    wait_for_subscriptions(&engine, 1);
    engine.stop();
    let engine = place.run();
    wait_for_subscriptions(&engine, 1);
    place.publish("3");
    wait_long("it comes to one", || {
        subscriber
            .accepted()
            .iter()
            .any(|it| text(it) == "3" && it.target == "/signed")
    });
    assert!(
        !subscriber
            .accepted()
            .iter()
            .any(|it| text(it) == "3" && it.target == "/plain")
    );
    engine.stop();
}

/// Whether a file below a folder has these bytes.
fn holds(folder: &std::path::Path, bytes: &[u8]) -> bool {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|it| it.unwrap().path())
        .any(|path| match path.is_dir() {
            true => holds(&path, bytes),
            false => {
                let content = std::fs::read(&path).unwrap();
                content.windows(bytes.len()).any(|it| it == bytes)
            }
        })
}

#[test]
fn a_reload_keeps_subscriptions_and_a_moved_topic_denies_them() {
    let (place, subscriber) = (Place::new("{}"), Subscriber::new());
    let engine = place.run();
    place.subscribe(&subscriber.callback("/cb"), &[]);
    wait_for_subscriptions(&engine, 1);
    place.write("{ signature: sha512 }", "payload: event", &place.base());
    let reload = || {
        let reply = post(engine.admin, "/reload", "text/plain", "");
        assert_eq!(reply.status, 200, "{}", reply.text());
    };
    reload();
    place.publish("1");
    subscriber.wait_for(1);
    place.write("{}", "payload: event", "https://elsewhere.example");
    reload();
    let question = subscriber.question(2);
    assert_eq!(question.mode(), "denied");
    assert_eq!(question.get("hub.topic"), Some(&*place.topic()));
    assert_eq!(
        question.get("hub.reason"),
        Some("the topic has another URL now")
    );
    wait_for_subscriptions(&engine, 0);
    engine.stop();
}

/// A reload that removed the hub and a second one that restored it deleted the subscriptions from
/// memory and from the disk.
#[test]
fn subscriptions_survive_reloads_that_take_the_hub_away_and_bring_it_back() {
    for (settings, is_kept) in [("", true), ("\ndurability: memory", false)] {
        let topic = format!("payload: event{settings}");
        let (place, subscriber) = (Place::with("{}", &topic), Subscriber::new());
        // What the process knows of hubs is there as long as one of them is.
        let other = "topic: other\npayload: event\npublish: { http: POST /topics/other }\n\
                     subscribe: { via: [], websub: {} }\n";
        place.folder.write("flows/other.yaml", other);
        let mut engine = place.run();
        place.subscribe(&subscriber.callback("/cb"), &[]);
        wait_for_subscriptions(&engine, 1);
        place.publish("1");
        subscriber.wait_for(1);
        let reload = || {
            let reply = post(engine.admin, "/reload", "text/plain", "");
            assert_eq!(reply.status, 200, "{}", reply.text());
        };
        let file = place.folder.path().join("flows/topic.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let without = text.replace("  via: []\n  websub: {}\n", "  via: [sse]\n");
        assert_ne!(text, without);
        std::fs::write(&file, without).unwrap();
        reload();
        // Looking at the counters drops what no plan has.
        wait_for_subscriptions(&engine, 0);
        std::fs::write(&file, &text).unwrap();
        reload();
        wait_for_subscriptions(&engine, 1);
        place.publish("2");
        let bodies: Vec<_> = subscriber.wait_for(2).iter().map(self::text).collect();
        assert_eq!(bodies, ["1", "2"]);
        engine.process.signal("KILL");
        engine.process.wait();
        let engine = place.run();
        if is_kept {
            wait_for_subscriptions(&engine, 1);
            place.publish("3");
            wait_long("it comes behind a restart", || {
                subscriber.accepted().iter().any(|it| self::text(it) == "3")
            });
        }
        engine.stop();
    }
}
