//! Signed bodies before a door.

use aws_lc_rs::hmac;
use component::state::States;
use message::{Body, Request};

use crate::testing::{START, Worker, door, down, outcome, request, run};

const SECRET: &str = "a secret that both share";
const OTHER: &str = "one that nobody shares";

fn sign(secret: &str, text: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, text.as_bytes());
    tag.as_ref().iter().map(|it| format!("{it:02x}")).collect()
}

fn github(body: &str) -> Request {
    let value = format!("sha256={}", sign(SECRET, body));
    with_body(request(&[("X-Hub-Signature-256", &value)]), body)
}

fn stripe(body: &str, time: u64) -> Request {
    let tag = sign(SECRET, &format!("{time}.{body}"));
    let value = format!("t={time},v1={tag}");
    with_body(request(&[("Stripe-Signature", &value)]), body)
}

fn with_body(mut request: Request, body: &str) -> Request {
    request.body = Body::from(body.as_bytes().to_vec());
    request
}

fn way(settings: &str, secret: &str) -> String {
    format!("ways: {{ hook: {{ hmac: {{ {settings}, secret: {secret} }} }} }}\nauth: hook\n")
}

fn nobody(_: &Request) -> (std::time::Duration, Result<message::Reply, message::Fault>) {
    (std::time::Duration::ZERO, down())
}

#[test]
fn a_body_is_asked_for_when_the_head_is_right() {
    let yaml = way("scheme: stripe", SECRET);
    let door = door(&yaml, &States::default()).unwrap();
    assert!(door.reads_body() && !door.needs_message());
    run(nobody, |worker: Worker| async move {
        let judge = async |mut request: Request| {
            request.body = Body::Unread;
            worker.outcome(&*door, &request).await
        };
        assert_eq!(judge(stripe("{}", START - 300)).await, "body");
        assert_eq!(judge(stripe("{}", START - 301)).await, "401");
        assert_eq!(judge(stripe("{}", START + 301)).await, "401");
        assert_eq!(judge(request(&[])).await, "401");
        assert_eq!(judge(request(&[("Stripe-Signature", "t=x")])).await, "401");
        let twice = [("Stripe-Signature", "t=1"), ("Stripe-Signature", "t=1")];
        assert_eq!(judge(request(&twice)).await, "400");
        let unknown = worker.judge(&*door, &request(&[])).await.unwrap_err();
        let challenge = unknown.headers.get("WWW-Authenticate").unwrap();
        assert_eq!(
            challenge,
            br#"HMAC realm="intertie", header="stripe-signature""#
        );
    });
}

#[test]
fn who_has_signed_comes_in_with_what_was_signed() {
    let yaml = way("scheme: stripe", &format!("[{OTHER}, {SECRET}]"));
    let door = door(&yaml, &States::default()).unwrap();
    run(nobody, |worker: Worker| async move {
        let judged = worker.judge(&*door, &stripe("{}", START)).await;
        let admitted = judged.unwrap().unwrap();
        assert_eq!(admitted.strip, None);
        let shown = admitted.caller.value().to_string();
        let claims = format!(r#"{{"scheme":"stripe","timestamp":{START}}}"#);
        let who = r#"{"way":"hook","id":"hook","scopes":[],"plan":null,"claims":"#;
        assert_eq!(shown, format!("{who}{claims}}}"));
        let mut other = stripe("{}", START);
        other.body = Body::from(b"{ }".to_vec());
        assert_eq!(worker.outcome(&*door, &other).await, "401");
        // More than a worker hashes at once.
        let large = "x".repeat(300_000);
        assert_eq!(worker.outcome(&*door, &stripe(&large, START)).await, "hook");
    });
}

#[test]
fn a_request_is_taken_once_unless_it_fails() {
    for scheme in ["github", "stripe"] {
        let states = States::default();
        let yaml = way(&format!("scheme: {scheme}, tolerance: 1m"), SECRET);
        let door = door(&yaml, &states).unwrap();
        let reloaded = self::door(
            &yaml.replace(SECRET, &format!("[{SECRET}, {OTHER}]")),
            &states,
        );
        let reloaded = reloaded.unwrap();
        run(nobody, |worker: Worker| async move {
            let request = |body| match scheme {
                "github" => github(body),
                _ => stripe(body, START),
            };
            let take = async || worker.judge(&*door, &request("{}")).await;
            let first = take().await.unwrap().unwrap();
            // While it is under way, its sender shall try later.
            let again = take().await.unwrap_err();
            assert_eq!(again.status, 409);
            assert!(again.headers.get("Retry-After").is_some());
            first.settlement.unwrap().settle(false);
            let second = take().await.unwrap().unwrap();
            // As when its client has disconnected.
            drop(second);
            let third = take().await.unwrap().unwrap();
            third.settlement.unwrap().settle(true);
            assert_eq!(outcome(take().await), "200");
            // After a reload, too, with another secret beside.
            assert_eq!(worker.outcome(&*reloaded, &request("{}")).await, "200");
            assert_eq!(worker.outcome(&*reloaded, &request("{} ")).await, "hook");
            tokio::time::sleep(std::time::Duration::from_secs(121)).await;
            // GitHub's have no time: when it is forgotten, it comes in.
            let expected = if scheme == "github" { "hook" } else { "401" };
            assert_eq!(outcome(take().await), expected);
        });
        let names: Vec<_> = states.measures(std::time::Instant::now());
        let repeated =
            |it: &&(_, component::state::Measure)| it.1.name == "auth_repeated_requests_total";
        let found = names.iter().find(repeated).map(|it| it.1.value);
        assert_eq!(found, None, "no flow has it any more");
    }
}

#[test]
fn what_was_taken_stays_taken_when_a_reload_changes_the_tolerance() {
    for (before, after) in [("1m", "10m"), ("10m", "1m")] {
        let states = States::default();
        let with = |tolerance: &str| {
            let yaml = way(&format!("scheme: stripe, tolerance: {tolerance}"), SECRET);
            door(&yaml, &states).unwrap()
        };
        let (first, second) = (with(before), with(after));
        run(nobody, |worker: Worker| async move {
            // As far ahead as both allow: with ten minutes it could come for eleven.
            let request = stripe("{}", START + 60);
            let taken = worker.judge(&*first, &request).await.unwrap().unwrap();
            taken.settlement.unwrap().settle(true);
            assert_eq!(worker.outcome(&*second, &request).await, "200");
            tokio::time::sleep(std::time::Duration::from_secs(650)).await;
            let wide = if before == "10m" { &first } else { &second };
            assert_eq!(worker.outcome(&**wide, &request).await, "200");
        });
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let problems = |yaml: &str| match door(yaml, &States::default()) {
        Ok(_) => panic!("no problem in {yaml}"),
        Err(problems) => problems,
    };
    let short = problems(&way("scheme: github", "short"));
    assert_eq!(
        short,
        ["IT0700 `secret` cannot be used: it has less than 16 bytes and could be guessed"]
    );
    for tolerance in ["0s", "25h"] {
        let found = problems(&way(
            &format!("scheme: slack, tolerance: {tolerance}"),
            SECRET,
        ));
        assert!(found[0].starts_with("IT0700 `tolerance`"), "{found:?}");
    }
    let passes = way("scheme: github", SECRET).replace("} } }", "}, pass: true } }");
    assert_eq!(
        problems(&passes),
        ["IT0700 `pass` has no effect here: everything is passed on"]
    );
    let one = |name: &str| format!("  {name}: {{ hmac: {{ scheme: github, secret: {SECRET} }} }}");
    let two = format!(
        "ways:\n{}\n{}\nauth: {{ any: [a, b] }}\n",
        one("a"),
        one("b")
    );
    assert_eq!(
        problems(&two),
        ["IT0704 `b` is never used: `a` gets the same requests"]
    );
}

#[test]
fn wrong_signatures_of_an_address_are_not_checked_without_end() {
    let door = door(&way("scheme: github", SECRET), &States::default()).unwrap();
    run(nobody, |worker: Worker| async move {
        let forged = |at: usize| {
            let mut request = github("{}");
            request.body = Body::from(format!("{{\"at\":{at}}}").into_bytes());
            request
        };
        for at in 0..20 {
            assert_eq!(worker.outcome(&*door, &forged(at)).await, "401");
        }
        assert_eq!(worker.outcome(&*door, &forged(20)).await, "429");
        // Nobody's body is read for it.
        let mut unread = forged(21);
        unread.body = Body::Unread;
        assert_eq!(worker.outcome(&*door, &unread).await, "429");
        // What is missing costs nothing and is no guess.
        assert_eq!(worker.outcome(&*door, &request(&[])).await, "401");
        let mut elsewhere = github("{}");
        elsewhere.peer = [192, 0, 2, 7].into();
        assert_eq!(worker.outcome(&*door, &elsewhere).await, "hook");
        tokio::time::sleep(std::time::Duration::from_secs(7)).await;
        assert_eq!(worker.outcome(&*door, &github("{ }")).await, "hook");
    });
}
