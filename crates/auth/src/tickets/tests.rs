//! Tickets and cookies in place of a token that an issuer is asked about.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use component::access::{Admitted, Door, KEEP_PRIVATE, RequestHead};
use component::state::States;
use message::{CertificateSource, ClientCertificate, Fault, Method, Reply, Request};

use super::TicketOffice;
use crate::testing::{START, Worker, door, json, request, run};

const WAYS: &str = "ways: { opaque: { introspect: { url: http://id.example/introspect, client_id: \
                    me, client_secret: secret } }, keyed: { introspect: { url: \
                    http://id.example/other, client_id: me, client_secret: secret, also_in: \
                    [query, subprotocol] } } }\n";
const PAGE: (&str, &str) = ("Origin", "https://shop.example");
const HOST: (&str, &str) = ("Host", "shop.example");

fn locked(states: &States) -> Arc<dyn Door> {
    door(&format!("{WAYS}auth: opaque\ntickets: true\n"), states).unwrap()
}

/// An issuer whose tokens are good as long as this says, for an hour.
fn issuer(
    is_good: &Rc<Cell<bool>>,
) -> impl Fn(&Request) -> (Duration, Result<Reply, Fault>) + use<> {
    let is_good = Rc::clone(is_good);
    move |_| {
        let active = is_good.get();
        let expires = START + 3600;
        let answer = format!(r#"{{"active":{active},"sub":"ann","exp":{expires}}}"#);
        (Duration::ZERO, json(200, &answer))
    }
}

fn good(_: &Request) -> (Duration, Result<Reply, Fault>) {
    issuer(&Rc::new(Cell::new(true)))(&request(&[]))
}

/// A request with these fields and this query, for `/prices` unless `path` says otherwise.
fn get(query: &str, fields: &[(&str, &str)]) -> Request {
    let mut request = request(fields);
    request.method = Method::Get;
    request.path = "/prices".to_owned();
    request.query = Some(query.to_owned());
    request
}

async fn ticket(worker: &Worker, door: &dyn Door, fields: &[(&str, &str)]) -> Result<String, u16> {
    let all = [&[("Authorization", "Bearer good")], fields].concat();
    let request = get("", &all);
    let given = door.ticket(RequestHead::of(&request), worker).await;
    let reply = given.map_err(|reply| reply.status)?;
    let text = String::from_utf8_lossy(reply.body.as_bytes()).into_owned();
    let ticket = text.split('"').nth(3).unwrap().to_owned();
    assert_eq!(
        text,
        format!("{{\"ticket\":\"{ticket}\",\"expires_in\":30}}\n")
    );
    assert_eq!(reply.headers.get("Cache-Control"), Some(&b"no-store"[..]));
    Ok(ticket)
}

/// Uses a ticket of this page; the admission, and the cookie.
async fn enter(worker: &Worker, door: &dyn Door, ticket: &str) -> (Admitted, String) {
    let request = get(&format!("a=1&ticket={ticket}"), &[PAGE]);
    let admitted = worker.judge(door, &request).await.unwrap().unwrap();
    let [private, (name, value)] = &admitted.reply_fields[..] else {
        panic!("{:?}", admitted.reply_fields);
    };
    assert_eq!((private.0, &*private.1), KEEP_PRIVATE);
    assert_eq!(*name, "set-cookie");
    let cookie = value.split(';').next().unwrap().to_owned();
    (admitted, cookie)
}

#[test]
fn a_ticket_opens_once_and_its_cookie_until_the_credential_expires() {
    let door = locked(&States::default());
    run(good, |worker| async move {
        let door = &*door;
        let ticket = ticket(&worker, door, &[PAGE]).await.unwrap();
        let (admitted, cookie) = enter(&worker, door, &ticket).await;
        assert_eq!(&*admitted.caller.id, "ann");
        // With the leeway for clocks that differ.
        assert_eq!(admitted.caller.expires, Some(START + 3630));
        let value = &admitted.reply_fields[1].1;
        let attributes = value.split_once("; ").unwrap().1;
        let expected = "Path=/prices; Max-Age=3630; HttpOnly; SameSite=Strict; Secure";
        assert_eq!(attributes, expected);
        // What goes on has neither of them.
        let both = format!("x=1; {cookie}; y=2");
        let query = format!("a=1&ticket={ticket}");
        let mut again = get(&query, &[PAGE, ("Cookie", &both)]);
        let admitted = worker.judge(door, &again).await.unwrap().unwrap();
        let [(name, value)] = &admitted.reply_fields[..] else {
            panic!("a second cookie: {:?}", admitted.reply_fields);
        };
        assert_eq!((*name, &**value), KEEP_PRIVATE);
        admitted.enter(&mut again);
        assert_eq!(again.query.as_deref(), Some("a=1"));
        assert_eq!(again.headers.get("Cookie"), Some(&b"x=1; y=2"[..]));
        // Without the cookie the ticket is worth nothing any more.
        assert_eq!(worker.outcome(door, &get(&query, &[PAGE])).await, "401");
        let alone = get("", &[PAGE, ("Cookie", &cookie)]);
        assert_eq!(worker.outcome(door, &alone).await, "ann");
        tokio::time::sleep(Duration::from_secs(3620)).await;
        assert_eq!(worker.outcome(door, &alone).await, "ann");
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(worker.outcome(door, &alone).await, "401");
    });
}

#[test]
fn a_ticket_is_good_for_30_seconds() {
    let door = locked(&States::default());
    run(good, |worker| async move {
        for (seconds, expected) in [(29, "ann"), (30, "401")] {
            let ticket = ticket(&worker, &*door, &[]).await.unwrap();
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let request = get(&format!("ticket={ticket}"), &[]);
            assert_eq!(
                worker.outcome(&*door, &request).await,
                expected,
                "{seconds}"
            );
        }
    });
}

#[test]
fn tickets_and_cookies_are_for_one_page_and_one_path() {
    let door = locked(&States::default());
    let upgrade = ("Upgrade", "websocket");
    let same = ("Sec-Fetch-Site", "same-origin");
    run(good, |worker| async move {
        for (page, fields, path, expected) in [
            (Some(PAGE), &[PAGE][..], "/prices", "ann"),
            (Some(PAGE), &[PAGE, upgrade], "/prices", "ann"),
            // An `EventSource` of the same origin says no origin.
            (Some(PAGE), &[HOST, same], "/prices", "ann"),
            (Some(PAGE), &[HOST], "/prices", "ann"),
            (
                Some(PAGE),
                &[HOST, ("Sec-Fetch-Site", "cross-site")],
                "/prices",
                "401",
            ),
            (
                Some(PAGE),
                &[HOST, ("Sec-Fetch-Site", "none")],
                "/prices",
                "401",
            ),
            (
                Some(PAGE),
                &[("Host", "api.example"), same],
                "/prices",
                "401",
            ),
            (Some(PAGE), &[HOST, same, upgrade], "/prices", "401"),
            (
                Some(PAGE),
                &[("Origin", "https://evil.example"), HOST],
                "/prices",
                "401",
            ),
            (Some(PAGE), &[("Origin", "null")], "/prices", "401"),
            (Some(PAGE), &[PAGE], "/prices/more", "401"),
            (Some(PAGE), &[PAGE], "/orders", "401"),
            (None, &[], "/prices", "ann"),
            (None, &[PAGE], "/prices", "401"),
        ] {
            let asked: Vec<_> = page.into_iter().collect();
            let ticket = ticket(&worker, &*door, &asked).await.unwrap();
            let mut request = get(&format!("ticket={ticket}"), fields);
            request.path = path.to_owned();
            let context = format!("{page:?} {fields:?} {path}");
            assert_eq!(
                worker.outcome(&*door, &request).await,
                expected,
                "{context}"
            );
            if expected == "401" {
                // Whoever had it has shown it as another page. A wrong path is a mistake.
                let right = get(&format!("ticket={ticket}"), &asked);
                let expected = if path == "/prices" { "401" } else { "ann" };
                assert_eq!(worker.outcome(&*door, &right).await, expected, "{context}");
            }
            let own = self::ticket(&worker, &*door, &asked).await.unwrap();
            let first = get(&format!("ticket={own}"), &asked);
            let admitted = worker.judge(&*door, &first).await.unwrap().unwrap();
            let cookie = admitted.successor.unwrap();
            let fields = [fields, &[("Cookie", &*cookie)]].concat();
            let mut request = get("", &fields);
            request.path = path.to_owned();
            assert_eq!(
                worker.outcome(&*door, &request).await,
                expected,
                "cookie {context}"
            );
        }
    });
}

#[test]
fn tickets_and_cookies_open_what_browsers_open_streams_by() {
    let door = locked(&States::default());
    run(good, |worker| async move {
        let own = ticket(&worker, &*door, &[PAGE]).await.unwrap();
        let (_, cookie) = enter(&worker, &*door, &own).await;
        for (method, by_cookie) in [
            (Method::Head, "ann"),
            (Method::Post, "401"),
            (Method::Put, "401"),
            (Method::Delete, "401"),
            (Method::Options, "401"),
        ] {
            let mut request = get("", &[PAGE, ("Cookie", &cookie)]);
            request.method = method.clone();
            let outcome = worker.outcome(&*door, &request).await;
            assert_eq!(outcome, by_cookie, "{method:?}");
            let unused = ticket(&worker, &*door, &[PAGE]).await.unwrap();
            let query = format!("ticket={unused}");
            let mut request = get(&query, &[PAGE]);
            request.method = method.clone();
            let outcome = worker.outcome(&*door, &request).await;
            assert_eq!(outcome, "401", "{method:?}");
            // It was not used up.
            let outcome = worker.outcome(&*door, &get(&query, &[PAGE])).await;
            assert_eq!(outcome, "ann", "{method:?}");
        }
    });
}

#[test]
fn a_request_with_two_origins_is_refused() {
    let door = locked(&States::default());
    let other = ("Origin", "https://evil.example");
    run(good, |worker| async move {
        let ticket = ticket(&worker, &*door, &[PAGE]).await.unwrap();
        let (_, cookie) = enter(&worker, &*door, &ticket).await;
        let unused = self::ticket(&worker, &*door, &[PAGE]).await.unwrap();
        for second in [other, PAGE] {
            let query = format!("ticket={unused}");
            let request = get(&query, &[PAGE, second]);
            assert_eq!(worker.outcome(&*door, &request).await, "400");
            let request = get("", &[PAGE, second, ("Cookie", &cookie)]);
            assert_eq!(worker.outcome(&*door, &request).await, "400");
            let asked = self::ticket(&worker, &*door, &[PAGE, second]).await;
            assert_eq!(asked, Err(400));
            // Without any of these it is no matter of the door.
            let token = ("Authorization", "Bearer good");
            let request = get("", &[PAGE, second, token]);
            assert_eq!(worker.outcome(&*door, &request).await, "ann");
        }
        let request = get(&format!("ticket={unused}"), &[PAGE]);
        assert_eq!(worker.outcome(&*door, &request).await, "ann");
    });
}

#[test]
fn the_credential_is_judged_again_each_time() {
    let is_good = Rc::new(Cell::new(true));
    let door = locked(&States::default());
    run(issuer(&is_good), |worker| async move {
        let ticket = ticket(&worker, &*door, &[PAGE]).await.unwrap();
        let (_, cookie) = enter(&worker, &*door, &ticket).await;
        let unused = self::ticket(&worker, &*door, &[PAGE]).await.unwrap();
        is_good.set(false);
        // For so long the answer of the issuer is kept: the token itself is taken, too.
        tokio::time::sleep(Duration::from_secs(29)).await;
        let request = get("", &[PAGE, ("Cookie", &cookie)]);
        assert_eq!(worker.outcome(&*door, &request).await, "ann");
        tokio::time::sleep(Duration::from_millis(1_001)).await;
        assert_eq!(worker.outcome(&*door, &request).await, "401");
        let request = get(&format!("ticket={unused}"), &[PAGE]);
        assert_eq!(worker.outcome(&*door, &request).await, "401");
    });
}

#[test]
fn a_ticket_beside_a_credential_or_another_ticket_is_refused() {
    let door = locked(&States::default());
    run(good, |worker| async move {
        let ticket = ticket(&worker, &*door, &[]).await.unwrap();
        let token = ("Authorization", "Bearer good");
        let query = format!("ticket={ticket}");
        assert_eq!(worker.outcome(&*door, &get(&query, &[token])).await, "400");
        let twice = format!("{query}&{query}");
        assert_eq!(worker.outcome(&*door, &get(&twice, &[])).await, "400");
        // A browser sends cookies by itself: what a page shows decides.
        let admitted = worker.judge(&*door, &get(&query, &[])).await.unwrap();
        let cookie = admitted.unwrap().successor.unwrap();
        let request = get("", &[token, ("Cookie", &cookie)]);
        let admitted = worker.judge(&*door, &request).await.unwrap().unwrap();
        assert_eq!(admitted.hidden_field(), Some("authorization"));
    });
}

#[test]
fn a_ticket_counts_before_the_certificate_of_the_connection() {
    let ways = WAYS.replacen("ways: {", "ways: { us: { mtls: {} },", 1);
    let yaml = format!("{ways}auth: {{ any: [opaque, us] }}\ntickets: true\n");
    let door = door(&yaml, &States::default()).unwrap();
    run(good, |worker| async move {
        let ticket = ticket(&worker, &*door, &[]).await.unwrap();
        let shown = |query: &str, fields: &[(&str, &str)]| {
            let mut request = get(query, fields);
            let unreadable = CertificateSource::Handshake(vec![0x30, 0]);
            request.certificate = Some(Arc::new(ClientCertificate::new(unreadable)));
            request
        };
        let query = format!("ticket={ticket}");
        let admitted = worker.judge(&*door, &shown(&query, &[])).await;
        let admitted = admitted.unwrap().unwrap();
        assert_eq!(&*admitted.caller.id, "ann");
        let cookie = admitted.successor.unwrap();
        let again = shown(&query, &[("Cookie", &*cookie)]);
        assert_eq!(worker.outcome(&*door, &again).await, "ann");
        // Without ticket and cookie it is judged.
        assert_eq!(worker.outcome(&*door, &shown("", &[])).await, "401");
        let refused = door.ticket(RequestHead::of(&shown("", &[])), &worker).await;
        assert_eq!(refused.unwrap_err().status, 400);
    });
}

#[test]
fn no_ticket_stands_for_a_token_with_a_proof_of_possession() {
    let with = |dpop: &str| {
        let ways = WAYS.replacen("secret }", &format!("secret, dpop: {dpop} }}"), 1);
        let yaml = format!("{ways}auth: opaque\ntickets: true\n");
        door(&yaml, &States::default()).unwrap()
    };
    assert!(!with("required").gives_tickets());
    let door = with("true");
    assert!(door.gives_tickets());
    run(good, |worker| async move {
        assert!(ticket(&worker, &*door, &[]).await.is_ok());
        let request = get("", &[("Authorization", "DPoP good"), ("DPoP", "a.b.c")]);
        let refused = door.ticket(RequestHead::of(&request), &worker).await;
        assert_eq!(refused.unwrap_err().status, 400);
    });
}

#[test]
fn no_ticket_stands_for_what_a_service_looks_at_itself() {
    let yaml = "ways: { tokens: { jwt: { issuer: id, audience: us, secret: a secret of more than 32 \
                bytes for all } }, service: { ask: { url: http://sso.example/, id: [x-user] } } }\n\
                auth: { any: [tokens, service] }\ntickets: true\n";
    let door = door(yaml, &States::default()).unwrap();
    assert!(door.gives_tickets());
    let served = |_: &Request| (Duration::ZERO, Ok(Reply::new(204)));
    run(served, |worker| async move {
        let request = get("", &[("Authorization", "Bearer good")]);
        assert!(worker.judge(&*door, &request).await.is_ok());
        assert_eq!(ticket(&worker, &*door, &[]).await, Err(400));
    });
}

#[test]
fn cookies_outlive_the_process_with_its_key_and_not_without() {
    let states = [(); 3].map(|()| States::default());
    let doors = states.each_ref().map(locked);
    for (states, key) in states.iter().zip([[1; 32], [1; 32], [2; 32]]) {
        let office = TicketOffice::of(states);
        assert!(office.needs_key());
        office.set_key(&key);
        assert!(!office.needs_key());
    }
    run(good, |worker| async move {
        let ticket = ticket(&worker, &*doors[0], &[PAGE]).await.unwrap();
        let (_, cookie) = enter(&worker, &*doors[0], &ticket).await;
        // The page knows nothing of a restart: its URL has the ticket.
        let query = format!("ticket={ticket}");
        let request = get(&query, &[HOST, ("Cookie", &cookie)]);
        assert_eq!(worker.outcome(&*doors[1], &request).await, "ann");
        assert_eq!(worker.outcome(&*doors[2], &request).await, "401");
    });
}

#[test]
fn refused_callers_get_no_ticket_and_tickets_of_a_caller_are_bounded() {
    let is_good = Rc::new(Cell::new(false));
    let door = locked(&States::default());
    run(issuer(&is_good), |worker| async move {
        assert_eq!(ticket(&worker, &*door, &[]).await, Err(401));
        let none = get("", &[]);
        let refused = door.ticket(RequestHead::of(&none), &worker).await;
        assert_eq!(refused.unwrap_err().status, 401);
        is_good.set(true);
        tokio::time::sleep(Duration::from_secs(6)).await;
        for _ in 0..64 {
            assert!(ticket(&worker, &*door, &[]).await.is_ok());
        }
        assert_eq!(ticket(&worker, &*door, &[]).await, Err(429));
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(ticket(&worker, &*door, &[]).await.is_ok());
    });
}

#[test]
fn guesses_use_up_the_budget_of_their_address() {
    let door = locked(&States::default());
    run(good, |worker| async move {
        let ticket = ticket(&worker, &*door, &[]).await.unwrap();
        let mut outcomes = Vec::new();
        for number in 0..30 {
            let request = get(&format!("ticket=guess{number}"), &[]);
            outcomes.push(worker.outcome(&*door, &request).await);
        }
        assert_eq!(outcomes[0], "401");
        assert_eq!(outcomes[29], "429");
        // A good one is taken all the same: there is nothing to be found out by it.
        let request = get(&format!("ticket={ticket}"), &[]);
        assert_eq!(worker.outcome(&*door, &request).await, "ann");
    });
}

#[test]
fn tokens_stand_elsewhere_only_where_the_way_says_so() {
    let states = States::default();
    let plain = door(&format!("{WAYS}auth: opaque\n"), &states).unwrap();
    let more = door(&format!("{WAYS}auth: keyed\n"), &states).unwrap();
    let names: Vec<&str> = more.secret_parameters().iter().map(|it| &**it).collect();
    assert_eq!(names, ["access_token"]);
    assert!(plain.secret_parameters().is_empty());
    run(good, |worker| async move {
        let protocols = ("Sec-WebSocket-Protocol", "chat, bearer, good");
        let upgrade = ("Upgrade", "WebSocket");
        let handshake = [protocols, upgrade];
        for mut request in [get("b=1&access_token=good", &[]), get("b=1", &handshake)] {
            assert_eq!(worker.outcome(&*plain, &request).await, "401");
            let admitted = worker.judge(&*more, &request).await.unwrap().unwrap();
            admitted.enter(&mut request);
            assert_eq!(request.query.as_deref(), Some("b=1"));
            let left = request.headers.get("Sec-WebSocket-Protocol");
            assert!(left.is_none_or(|it| it == b"chat"), "{left:?}");
        }
        let token = ("Authorization", "Bearer good");
        assert_eq!(worker.outcome(&*more, &get("", &[token])).await, "ann");
        for (query, fields) in [
            ("access_token=good", &[token][..]),
            ("access_token=good", &handshake),
            ("", &[token, protocols, upgrade]),
        ] {
            let outcome = worker.outcome(&*more, &get(query, fields)).await;
            assert_eq!(outcome, "400", "{query} {fields:?}");
        }
        // Without a handshake nobody has asked for a subprotocol.
        let mut post = get("", &handshake);
        post.method = Method::Post;
        for request in [
            get("", &[protocols]),
            get("", &[protocols, ("Upgrade", "h2c")]),
            post,
        ] {
            assert_eq!(worker.outcome(&*more, &request).await, "401");
        }
        let request = get("", &[token, protocols]);
        assert_eq!(worker.outcome(&*more, &request).await, "ann");
    });
}

#[test]
fn a_repeated_entry_of_also_in_is_reported() {
    let twice = WAYS.replace("[query, subprotocol]", "[query, query]");
    let problems = door(&format!("{twice}auth: keyed\n"), &States::default());
    let problems = problems.err().unwrap();
    assert_eq!(problems, ["IT0700 `also_in` names this twice"]);
}
