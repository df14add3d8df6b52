//! Tokens that an issuer is asked about.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use component::state::States;
use message::{Fault, Reply, Request};

use crate::testing::{START, Worker, door, down, json, request, run};

const WAY: &str = "ways: { opaque: { introspect: { url: http://id.example/introspect, client_id: \
                   me & co, client_secret: \"p:ss\" } } }\nauth: opaque\n";

fn bearer(token: &str) -> Request {
    request(&[("Authorization", &format!("Bearer {token}"))])
}

fn text(request: &Request) -> String {
    String::from_utf8_lossy(request.body.as_bytes()).into_owned()
}

const SECOND: Duration = Duration::from_secs(1);

/// A server that knows tokens beginning with `good`, after a second.
fn server(request: &Request) -> (Duration, Result<Reply, Fault>) {
    let answer = match text(request).starts_with("token=good") {
        true => json(200, r#"{"active":true,"sub":"ann","scope":"read write"}"#),
        false => json(200, r#"{"active":false}"#),
    };
    (SECOND, answer)
}

#[test]
fn a_token_is_asked_about_once_for_all_who_wait() {
    let door = door(WAY, &States::default()).unwrap();
    run(server, |worker: Worker| async move {
        let request = bearer("good/1");
        let (a, b, c) = tokio::join!(
            worker.outcome(&*door, &request),
            worker.outcome(&*door, &request),
            worker.outcome(&*door, &request)
        );
        assert_eq!([a, b, c], ["ann", "ann", "ann"]);
        let asked = worker.asked();
        assert_eq!(asked.len(), 1);
        assert_eq!(
            text(&asked[0]),
            "token=good%2F1&token_type_hint=access_token"
        );
        // `me & co` and `p:ss`, each encoded as in a form (RFC 6749, section 2.3.1).
        assert_eq!(
            asked[0].headers.get("Authorization").unwrap(),
            b"Basic bWUlMjAlMjYlMjBjbzpwJTNBc3M="
        );
        let admitted = worker.judge(&*door, &request).await.unwrap().unwrap();
        assert_eq!(admitted.caller.scopes, ["read", "write"]);
        assert!(admitted.strip.is_some());
        assert_eq!(worker.asked().len(), 1, "kept");
        tokio::time::sleep(30 * SECOND).await;
        assert_eq!(worker.outcome(&*door, &request).await, "ann");
        assert_eq!(worker.asked().len(), 2, "asked again after `check`");
    });
}

#[test]
fn a_token_that_is_not_active_is_asked_about_again_soon() {
    let door = door(WAY, &States::default()).unwrap();
    run(server, |worker: Worker| async move {
        let request = bearer("bad");
        assert_eq!(worker.outcome(&*door, &request).await, "401");
        assert_eq!(worker.outcome(&*door, &request).await, "401");
        assert_eq!(worker.asked().len(), 1);
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!(worker.outcome(&*door, &request).await, "401");
        assert_eq!(worker.asked().len(), 2);
        for token in ["", "a b", "a\u{e9}", "a\"b", &"x".repeat(20_000)] {
            let outcome = worker.outcome(&*door, &bearer(token)).await;
            assert!(["400", "401"].contains(&outcome.as_str()), "{outcome}");
        }
        assert_eq!(
            worker.asked().len(),
            2,
            "nobody is asked about what is no token"
        );
    });
}

#[test]
fn nobody_is_taken_longer_than_the_token_is_good() {
    let answer = format!(r#"{{"active":true,"sub":"ann","exp":{}}}"#, START - 20);
    let server = move |_: &Request| (Duration::ZERO, json(200, &answer));
    let door = door(WAY, &States::default()).unwrap();
    run(server, |worker: Worker| async move {
        // Within what the clocks may differ.
        assert_eq!(worker.outcome(&*door, &bearer("a")).await, "ann");
        tokio::time::sleep(9 * SECOND).await;
        assert_eq!(worker.outcome(&*door, &bearer("a")).await, "ann");
        assert_eq!(worker.asked().len(), 1);
        tokio::time::sleep(SECOND).await;
        assert_eq!(worker.outcome(&*door, &bearer("a")).await, "401");
    });
}

#[test]
fn without_an_answer_what_is_known_holds_and_the_rest_waits() {
    let is_up = Rc::new(Cell::new(true));
    let up = Rc::clone(&is_up);
    let server = move |request: &Request| match up.get() {
        true => server(request),
        false => (SECOND, down()),
    };
    let door = door(WAY, &States::default()).unwrap();
    run(server, |worker: Worker| async move {
        assert_eq!(worker.outcome(&*door, &bearer("good1")).await, "ann");
        is_up.set(false);
        assert_eq!(worker.outcome(&*door, &bearer("good1")).await, "ann");
        let other = worker.judge(&*door, &bearer("good2")).await.unwrap_err();
        assert_eq!(other.status, 503);
        assert!(other.headers.get("Retry-After").is_some());
        tokio::time::sleep(30 * SECOND).await;
        assert_eq!(worker.outcome(&*door, &bearer("good1")).await, "503");
        is_up.set(true);
        assert_eq!(worker.outcome(&*door, &bearer("good1")).await, "ann");
    });
}

#[test]
fn answers_that_say_nothing_let_nobody_in() {
    let answers: Rc<RefCell<Vec<Result<Reply, Fault>>>> = Rc::new(RefCell::new(vec![
        json(200, ""),
        json(200, r#"{"active":"true","sub":"ann"}"#),
        json(200, r#"{"active":false,"active":true,"sub":"ann"}"#),
        json(401, r#"{"active":true,"sub":"ann"}"#),
        json(500, r#"{"active":true,"sub":"ann"}"#),
        json(302, r#"{"active":true,"sub":"ann"}"#),
        json(201, r#"{"active":true,"sub":"ann"}"#),
    ]));
    let count = answers.borrow().len();
    let server = move |_: &Request| (Duration::ZERO, answers.borrow_mut().remove(0));
    let door = door(WAY, &States::default()).unwrap();
    run(server, |worker: Worker| async move {
        for number in 0..count {
            let outcome = worker.outcome(&*door, &bearer("a")).await;
            assert_eq!(outcome, "503", "{number}");
        }
        assert_eq!(worker.asked().len(), count, "a failure is not kept");
    });
}

#[test]
fn active_tokens_of_others_are_refused() {
    let way = WAY.replace(
        "client_id",
        "audience: us, issuer: [id], id: name, plan: tier, client_id",
    );
    let door = door(&way, &States::default()).unwrap();
    let server = |request: &Request| {
        let members = match text(request).as_bytes()[6] {
            b'1' => r#""iss":"id","aud":"us","name":"ann","tier":"gold""#,
            b'2' => r#""iss":"id","aud":"others","name":"ann""#,
            b'3' => r#""iss":"other","aud":"us","name":"ann""#,
            b'4' => r#""iss":"id","aud":"us","sub":"ann""#,
            _ => r#""iss":"id","aud":"us","name":"ann","cnf":{"jkt":"x"}"#,
        };
        (
            Duration::ZERO,
            json(200, &format!(r#"{{"active":true,{members}}}"#)),
        )
    };
    run(server, |worker: Worker| async move {
        let admitted = worker.judge(&*door, &bearer("1")).await.unwrap().unwrap();
        assert_eq!(admitted.caller.plan.as_deref(), Some("gold"));
        for token in ["2", "3", "4", "5"] {
            assert_eq!(
                worker.outcome(&*door, &bearer(token)).await,
                "401",
                "{token}"
            );
        }
    });
}

#[test]
fn a_question_outlives_who_asked_and_frees_who_waits_when_it_dies() {
    let door = door(WAY, &States::default()).unwrap();
    run(server, |worker: Worker| async move {
        let request = bearer("good");
        let gives_up =
            tokio::time::timeout(Duration::from_millis(500), worker.outcome(&*door, &request));
        assert!(gives_up.await.is_err());
        assert_eq!(worker.outcome(&*door, &request).await, "ann");
        assert_eq!(worker.asked().len(), 1);
        // Work that is dropped before it begins, as on a worker that stops.
        worker.drop_work(true);
        assert_eq!(worker.outcome(&*door, &bearer("good2")).await, "503");
        worker.drop_work(false);
        assert_eq!(worker.outcome(&*door, &bearer("good2")).await, "ann");
    });
}

/// What becomes of these tokens, all presented before any answer has come.
async fn at_once(
    worker: &Worker,
    door: &std::sync::Arc<dyn component::access::Door>,
    tokens: impl Iterator<Item = String>,
) -> Vec<String> {
    let judged: Vec<_> = tokens
        .map(|token| {
            let (worker, door) = (worker.clone(), std::sync::Arc::clone(door));
            let judge = async move { worker.outcome(&*door, &bearer(&token)).await };
            tokio::task::spawn_local(judge)
        })
        .collect();
    let mut outcomes = Vec::new();
    for one in judged {
        outcomes.push(one.await.unwrap());
    }
    outcomes
}

#[test]
fn a_flood_of_made_up_tokens_is_stopped_before_the_first_answer() {
    let door = door(WAY, &States::default()).unwrap();
    run(server, |worker: Worker| async move {
        let made_up = (0..50).map(|number| format!("bad{number}"));
        let outcomes = at_once(&worker, &door, made_up).await;
        let count = |status: &str| outcomes.iter().filter(|it| *it == status).count();
        assert_eq!((count("401"), count("429")), (20, 30));
        assert_eq!(worker.asked().len(), 20);
    });
}

#[test]
fn many_clients_behind_one_address_with_good_tokens_all_come_in() {
    let door = door(WAY, &States::default()).unwrap();
    run(server, |worker: Worker| async move {
        let good = (0..90).map(|number| format!("good{number}"));
        let outcomes = at_once(&worker, &door, good).await;
        assert!(outcomes.iter().all(|it| it == "ann"), "{outcomes:?}");
        // Wrong ones among them use the budget up, and what is left of it goes to the others.
        let is_bad = |number: usize| number % 10 == 3;
        let mixed = (100..160).map(|number| match is_bad(number) {
            true => format!("bad{number}"),
            false => format!("good{number}"),
        });
        let outcomes = at_once(&worker, &door, mixed).await;
        for (number, outcome) in outcomes.iter().enumerate() {
            let expected = if is_bad(number) { "401" } else { "ann" };
            assert_eq!(outcome, expected, "{number}");
        }
        // More than may wait, and than their time suffices for.
        let many = (200..800).map(|number| format!("good{number}"));
        let outcomes = at_once(&worker, &door, many).await;
        let count = |status: &str| outcomes.iter().filter(|it| *it == status).count();
        assert!(count("429") >= 600 - 256 - 20, "{}", count("429"));
        assert!(count("ann") >= 20, "{}", count("ann"));
        assert_eq!(count("429") + count("ann"), 600);
        // Nobody is left who waits.
        assert_eq!(worker.outcome(&*door, &bearer("good900")).await, "ann");
    });
}

#[test]
fn tokens_that_are_good_or_not_answered_use_nothing_up() {
    let door = door(WAY, &States::default()).unwrap();
    run(server, |worker: Worker| async move {
        let same = (0..50).map(|_| "good".to_owned());
        let outcomes = at_once(&worker, &door, same).await;
        assert!(outcomes.iter().all(|it| it == "ann"), "{outcomes:?}");
        worker.drop_work(true);
        for number in 0..30 {
            let token = format!("lost{number}");
            assert_eq!(worker.outcome(&*door, &bearer(&token)).await, "503");
        }
        worker.drop_work(false);
        for number in 0..30 {
            let token = format!("good{number}");
            assert_eq!(worker.outcome(&*door, &bearer(&token)).await, "ann");
        }
        // One failure for all who have waited for one answer.
        let same = (0..50).map(|_| "bad".to_owned());
        let outcomes = at_once(&worker, &door, same).await;
        assert!(outcomes.iter().all(|it| it == "401"), "{outcomes:?}");
        assert_eq!(worker.outcome(&*door, &bearer("good")).await, "ann");
        assert_eq!(worker.outcome(&*door, &bearer("good-after")).await, "ann");
    });
}

#[test]
fn settings_that_cannot_be_are_refused() {
    for (from, to, expected) in [
        ("client_id: me & co, ", "", "the engine must say who it is"),
        (
            "client_id",
            "bearer: x, client_id",
            "the engine must say who it is",
        ),
        (
            "client_id",
            "check: 0s, client_id",
            "`check` is not from 1s to 1h",
        ),
        (
            "client_id",
            "timeout: 2m, client_id",
            "`timeout` is not from 1ms to 1m",
        ),
        (
            "client_id",
            "audience: [], client_id",
            "`audience` is empty",
        ),
        ("me & co", "\"a\\n\"", "this is empty or has a line break"),
    ] {
        let yaml = WAY.replace(from, to);
        let Err(problems) = door(&yaml, &States::default()) else {
            panic!("no problem in {yaml}");
        };
        assert!(problems[0].contains(expected), "{problems:?}");
        assert!(!problems.concat().contains("p:ss"));
    }
}

#[test]
fn a_token_that_is_bound_to_a_key_needs_a_proof() {
    let bound = |_: &Request| {
        let cnf = r#"{"jkt":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}"#;
        let body = format!(r#"{{"active":true,"sub":"ann","token_type":"DPoP","cnf":{cnf}}}"#);
        (SECOND, json(200, &body))
    };
    for (setting, challenge) in [("", "Bearer "), (", dpop: true", "DPoP ")] {
        let yaml = WAY.replace("ss\" }", &format!("ss\"{setting} }}"));
        let door = door(&yaml, &States::default()).unwrap();
        run(bound, |worker: Worker| async move {
            let refused = worker.judge(&*door, &bearer("good")).await.unwrap_err();
            assert_eq!(refused.status, 401);
            let shown = refused.headers.get("WWW-Authenticate").unwrap();
            assert!(shown.starts_with(challenge.as_bytes()), "{setting}");
            let lines = [("Authorization", "DPoP good"), ("DPoP", "a.b.c")];
            assert_eq!(worker.outcome(&*door, &request(&lines)).await, "401");
        });
    }
}
