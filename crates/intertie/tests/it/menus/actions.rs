//! Actions that happen once, and what else is kept of a subscriber from one session to the next.

use std::time::Instant;

use super::*;

/// How often the engine is killed; the variable INTERTIE_MENU_KILLS makes it more.
const KILLS: usize = 10;

/// A shop that sells once for each `Idempotency-Key`, and knows what it has sold. Each sale takes a
/// while.
struct Shop {
    backend: StrictBackend,
    /// Method and key of each request.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Shop {
    fn new(delay: Duration) -> Self {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&asked);
        let backend = StrictBackend::answering(move |received| {
            let is_sale = received.method == "POST";
            let what = if is_sale { "sale" } else { "question" };
            let mut log = log.lock().unwrap();
            log.push(what.to_owned());
            let keys = received.headers.iter();
            let keys = keys.filter(|(name, _)| name.eq_ignore_ascii_case("idempotency-key"));
            log.extend(keys.map(|(_, key)| key.clone()));
            drop(log);
            if is_sale {
                thread::sleep(delay);
            }
            b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\nContent-Type: application/json\r\n\r\n{\"number\": 77}"
                .to_vec()
        });
        Self { backend, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn sales(&self) -> usize {
        self.asked().iter().filter(|it| *it == "sale").count()
    }
}

fn buying(port: u16, shop: u16) -> String {
    format!(
        r##"
menu: airtime
use: {{ shop: {{ http: "http://127.0.0.1:{shop}" }} }}
from: {{ ussd: {{ http: "POST 127.0.0.1:{port}/ussd", gateway: africas-talking, codes: {{ "*123#": start }} }} }}
languages: [en, sw]
sessions: {{ resume: 5m }}
keys: {{ home: {{ key: "00", text: {{ en: Home, sw: Nyumbani }} }} }}
screens:
  start:
    text: {{ en: Airtime, sw: Muda }}
    options:
      - {{ text: {{ en: Buy, sw: Nunua }}, go: amount }}
      - {{ text: {{ en: Kiswahili, sw: Kiswahili }}, language: sw, go: start }}
  amount:
    text: {{ en: "How much?", sw: "Kiasi gani?" }}
    input: {{ as: amount, number: {{ min: 1, max: 500 }} }}
    go: buy
  buy:
    do:
      - http: {{ to: "shop:/sales", method: POST, headers: {{ Idempotency-Key: "${{ $ussd.action }}" }}, body: {{ amount: "${{ $amount }}" }} }}
        as: sold
    once: {{ wait: 1s, unsure: ask }}
    text: {{ en: "Bought ${{ $amount }}: ${{ $sold.number }}.", sw: "Umenunua ${{ $amount }}: ${{ $sold.number }}." }}
    end: true
  ask:
    do:
      - http: {{ to: "shop:/sales/${{ $ussd.action }}", method: GET }}
        as: found
    text: {{ en: "Did you buy ${{ $amount }}?", sw: "Umenunua ${{ $amount }}?" }}
    options:
      - {{ text: {{ en: Try again, sw: Tena }}, go: buy }}
      - {{ text: {{ en: Done, sw: Basi }}, go: bye }}
  bye: {{ text: {{ en: Bye, sw: Kwaheri }}, end: true }}
"##
    )
}

struct Counter {
    folder: TempDir,
    port: u16,
    shop: Shop,
}

impl Counter {
    fn new(delay: Duration) -> Self {
        let (folder, port, shop) = (TempDir::new(), free_port(), Shop::new(delay));
        folder.write("flows/menu.yaml", &buying(port, shop.backend.port()));
        Self { folder, port, shop }
    }

    fn run(&self) -> Engine {
        let data = self.folder.path().join("data").display().to_string();
        Engine::run(&[&self.folder.path().join("flows")], &["--data", &data])
    }

    /// Runs an engine that is killed in the sale that the session `s1` begins.
    fn crash_in_sale(&self) {
        let mut engine = self.run();
        self.send("s1", "");
        self.send("s1", "1");
        let client = send_away(self.port, "s1", NUMBER, "1*50");
        testkit::wait_until("the sale begins", || self.shop.sales() == 1);
        engine.process.signal("KILL");
        engine.process.wait();
        drop(client);
    }

    /// The idempotency keys of all sales.
    fn keys(&self) -> Vec<String> {
        let mut asked = self.shop.asked();
        asked.retain(|it| !["sale", "question"].contains(&it.as_str()));
        asked
    }

    fn send(&self, session: &str, text: &str) -> String {
        self.send_of(session, NUMBER, text)
    }

    fn send_of(&self, session: &str, number: &str, text: &str) -> String {
        let head = format!("sessionId={session}&phoneNumber={number}&serviceCode=*123%23");
        let response = post(self.port, "/ussd", FORM, &format!("{head}&text={text}"));
        assert_eq!(response.status, 200, "{}", response.text());
        response.text()
    }
}

const START: &str = "CON Airtime\n1. Buy\n2. Kiswahili";
const PENDING: &str = "END Please wait a moment, then dial again.";

#[test]
fn a_slow_action_is_waited_for_and_told_when_its_subscriber_dials_again() {
    let counter = Counter::new(Duration::from_secs(9));
    let engine = counter.run();
    assert_eq!(counter.send("s1", ""), START);
    counter.send("s1", "1");
    let start = Instant::now();
    assert_eq!(counter.send("s1", "1*50"), PENDING);
    assert!(
        start.elapsed() < Duration::from_secs(8),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(counter.send("s1", "1*50"), PENDING, "the request again");
    assert_eq!(counter.send("s2", ""), PENDING, "dialled again");
    // Somebody else is not held up.
    assert_eq!(counter.send_of("s9", "%2B254711000009", ""), START);
    testkit::wait_until("the sale", || {
        counter.send(&format!("s{:?}", Instant::now()), "") == "END Bought 50: 77."
    });
    // The network may have lost the reply: it is told once more to who dials at once.
    assert_eq!(counter.send("s4", ""), "END Bought 50: 77.");
    assert_eq!(counter.send("s5", ""), START, "it is told twice at most");
    assert_eq!(counter.shop.sales(), 1);
    // The next one is another action.
    counter.send("s5", "1");
    assert_eq!(counter.send("s5", "1*60"), PENDING);
    let keys = counter.keys();
    assert_eq!(keys.len(), 2);
    assert_ne!(keys[0], keys[1]);
    engine.stop();
}

#[test]
fn an_action_that_a_crash_interrupts_is_not_begun_again() {
    let counter = Counter::new(Duration::from_secs(5));
    counter.crash_in_sale();
    let engine = counter.run();
    let ask = "CON Did you buy 50?\n1. Try again\n2. Done\n00. Home";
    // By the repeated request, by a new session, and once more.
    assert_eq!(counter.send("s1", "1*50"), ask);
    assert_eq!(counter.send("s1", "1*50"), ask);
    assert_eq!(counter.send("s2", ""), ask);
    assert_eq!(counter.shop.sales(), 1);
    // Whoever tries again does so under the same id.
    assert_eq!(counter.send("s2", "1"), PENDING);
    assert_eq!(counter.shop.sales(), 2);
    let keys = counter.keys();
    assert_eq!((keys.len(), &keys[0]), (2, &keys[1]));
    testkit::wait_until("the sale", || {
        counter.send(&format!("s{:?}", Instant::now()), "") == "END Bought 50: 77."
    });
    assert_eq!(counter.send("s5", ""), "END Bought 50: 77.");
    assert_eq!(counter.send("s6", ""), START);
    engine.stop();
}

#[test]
fn a_result_whose_reply_nobody_took_waits_for_the_next_dial() {
    let counter = Counter::new(Duration::from_millis(600));
    let engine = counter.run();
    counter.send("s1", "");
    counter.send("s1", "1");
    // The gateway gives up before the sale is over.
    let client = send_away(counter.port, "s1", NUMBER, "1*50");
    testkit::wait_until("the sale begins", || counter.shop.sales() == 1);
    drop(client);
    // That reply does not count as one of the two that are told at most.
    assert_eq!(counter.send("s2", ""), "END Bought 50: 77.");
    assert_eq!(counter.send("s3", ""), "END Bought 50: 77.");
    assert_eq!(counter.send("s4", ""), START);
    assert_eq!(counter.shop.sales(), 1);
    engine.stop();
}

#[test]
fn other_choices_behind_an_unsure_action_are_another_action() {
    let counter = Counter::new(Duration::from_secs(1));
    let text = buying(counter.port, counter.shop.backend.port());
    let more = text.replace(
        "      - { text: { en: Done, sw: Basi }, go: bye }",
        "      - { text: { en: Another, sw: Nyingine }, go: amount }\n      - { text: { en: Done, \
         sw: Basi }, go: bye }",
    );
    assert_ne!(text, more);
    counter.folder.write("flows/menu.yaml", &more);
    counter.crash_in_sale();
    let engine = counter.run();
    assert!(counter.send("s2", "").starts_with("CON Did you buy 50?"));
    assert!(counter.send("s2", "2").starts_with("CON How much?"));
    counter.send("s2", "2*60");
    testkit::wait_until("the sale", || counter.keys().len() == 2);
    let keys = counter.keys();
    assert_ne!(keys[0], keys[1], "60 is not 50 once more");
    engine.stop();
}

#[test]
fn whoever_begins_anew_behind_an_unsure_action_buys_under_another_id() {
    let counter = Counter::new(Duration::from_secs(1));
    counter.crash_in_sale();
    let engine = counter.run();
    assert!(counter.send("s2", "").starts_with("CON Did you buy 50?"));
    assert_eq!(counter.send("s2", "00"), START);
    counter.send("s2", "00*1");
    counter.send("s2", "00*1*60");
    testkit::wait_until("the sale", || counter.keys().len() == 2);
    let keys = counter.keys();
    assert_ne!(keys[0], keys[1], "another purchase");
    engine.stop();
}

#[test]
fn an_unsure_action_is_over_when_its_subscriber_has_come_to_an_end() {
    let counter = Counter::new(Duration::from_secs(1));
    counter.crash_in_sale();
    let engine = counter.run();
    assert!(counter.send("s2", "").starts_with("CON Did you buy 50?"));
    assert_eq!(counter.send("s2", "2"), "END Bye");
    assert_eq!(counter.send("s3", ""), START);
    assert_eq!(counter.shop.sales(), 1);
    engine.stop();
}

/// Sends what buys something and does not wait for the answer.
fn send_away(port: u16, session: &str, number: &str, text: &str) -> testkit::RawClient {
    let head = format!("sessionId={session}&phoneNumber={number}&serviceCode=*123%23");
    let body = format!("{head}&text={text}");
    let mut client = testkit::RawClient::connect(port);
    client.send(format!(
        "POST /ussd HTTP/1.1\r\nHost: a\r\nContent-Type: {FORM}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    client
}

#[test]
fn kills_at_any_moment_buy_nothing_twice() {
    let kills = std::env::var("INTERTIE_MENU_KILLS").map(|it| it.parse().unwrap());
    let counter = Counter::new(Duration::from_millis(8));
    let mut engine = counter.run();
    let (mut asked, mut told) = (0, 0);
    for round in 0..kills.unwrap_or(KILLS) {
        let number = format!("%2B2547{round:08}");
        let send = |session: &str, text: &str| counter.send_of(session, &number, text);
        let before = counter.shop.sales();
        assert_eq!(send("s1", ""), START);
        send("s1", "1");
        let client = send_away(counter.port, "s1", &number, "1*50");
        // From before the first step to behind the reply.
        thread::sleep(Duration::from_micros((round as u64 * 7919) % 45_000));
        engine.process.signal("KILL");
        engine.process.wait();
        drop(client);
        engine = counter.run();
        let again = send("s1", "1*50");
        if again.starts_with("CON Did you buy 50?") {
            asked += 1;
            assert_eq!(send("s1", "1*50*2"), "END Bye");
        } else {
            told += 1;
            assert_eq!(again, "END Bought 50: 77.", "{round}");
        }
        // Who was told may be told once more, and once again where the engine ended in between.
        let mut dials = ["s2", "s3", "s4"].into_iter().map(|it| send(it, ""));
        let over = dials.position(|it| it == START);
        let most = if again.starts_with("END") { 2 } else { 0 };
        assert!(over.is_some_and(|it| it <= most), "{round}: {over:?}");
        let sales = counter.shop.sales() - before;
        assert!(sales <= 1, "{round}: {sales} sales");
        assert!(sales == 1 || again.starts_with("CON"), "{round}: {again}");
    }
    println!("asked {asked} times, told {told} times");
    engine.stop();
}

#[test]
fn the_language_is_remembered_and_a_dropped_session_goes_on() {
    let counter = Counter::new(Duration::ZERO);
    let mut engine = counter.run();
    counter.send("s1", "");
    assert_eq!(counter.send("s1", "2"), "CON Muda\n1. Nunua\n2. Kiswahili");
    assert_eq!(counter.send("s1", "2*1"), "CON Kiasi gani?\n00. Nyumbani");
    engine.process.signal("KILL");
    engine.process.wait();
    engine = counter.run();
    // The connection is lost; the same subscriber dials.
    assert_eq!(
        counter.send("s2", ""),
        "CON Karibu tena.\nKiasi gani?\n00. Nyumbani"
    );
    assert_eq!(counter.send("s2", "50"), "END Umenunua 50: 77.");
    assert_eq!(counter.send("s2b", ""), "END Umenunua 50: 77.");
    // It came to its end: there is nothing to go on with, and the language stays.
    assert_eq!(counter.send("s3", ""), "CON Muda\n1. Nunua\n2. Kiswahili");
    // The first screen is no place to go on from.
    assert_eq!(counter.send("s4", ""), "CON Muda\n1. Nunua\n2. Kiswahili");
    counter.send("s4", "1");
    assert_eq!(
        counter.send("s5", ""),
        "CON Karibu tena.\nKiasi gani?\n00. Nyumbani"
    );
    assert_eq!(counter.send("s5", "00"), "CON Muda\n1. Nunua\n2. Kiswahili");
    assert_eq!(
        counter.send_of("s6", "%2B254711000009", ""),
        START,
        "somebody else"
    );
    engine.stop();
}

#[test]
fn steps_follow_a_session_that_the_network_has_ended() {
    let (folder, port) = (TempDir::new(), free_port());
    let (backend, taken) = shop(Duration::ZERO);
    let text = menu(port, backend.port(), "hubtel").replace(
        "screens:",
        "on_end:\n  - map: '{ left: $amount, of: $msisdn }'\n  - http: { to: \"shop:/left/${ $ussd.session }\", method: POST }\nscreens:",
    );
    let file = folder.write("menu.yaml", &text);
    let data = folder.path().join("data").display().to_string();
    let engine = Engine::run(&[&file], &["--data", &data]);
    let send = |kind: &str, message: &str, sequence: u64| {
        let body = format!(
            r#"{{"Type":"{kind}","Message":"{message}","ServiceCode":"123","Operator":"mtn",
                "Sequence":{sequence},"SessionId":"h1","Mobile":"233244000001"}}"#
        );
        post(port, "/ussd", "application/json", &body).text()
    };
    send("Initiation", "*123#", 1);
    send("Response", "1", 2);
    send("Response", "50", 3);
    send("Timeout", "", 4);
    send("Timeout", "", 4);
    send("Release", "", 5);
    let left = r#"{"left":50,"of":"+233244000001"}"#;
    assert_eq!(*taken.lock().unwrap(), [left], "once");
    engine.stop();
}

#[test]
fn a_result_that_cannot_be_shown_does_not_lock_its_subscriber_out() {
    let counter = Counter::new(Duration::ZERO);
    let text = buying(counter.port, counter.shop.backend.port());
    let broken = text.replace("Bought ${ $amount }", "Bought ${ $amount | error }");
    assert_ne!(text, broken);
    counter.folder.write("flows/menu.yaml", &broken);
    let engine = counter.run();
    counter.send("s1", "");
    counter.send("s1", "1");
    let failed = "END The service is not available. Please try again later.";
    assert_eq!(counter.send("s1", "1*50"), failed);
    // It is tried twice more, for a file can be mended meanwhile.
    assert_eq!(counter.send("s2", ""), failed);
    assert_eq!(counter.send("s3", ""), failed);
    assert_eq!(counter.send("s4", ""), START);
    assert_eq!(counter.shop.sales(), 1);
    let log = engine.stop();
    assert!(log.contains("the result of an action is given up"), "{log}");
}

#[test]
fn an_action_that_the_menu_cannot_show_is_told_before_anything_begins() {
    let counter = Counter::new(Duration::from_secs(2));
    counter.crash_in_sale();
    let text = buying(counter.port, counter.shop.backend.port());
    let renamed = text
        .replace("  buy:\n", "  purchase:\n")
        .replace("go: buy", "go: purchase");
    counter.folder.write("flows/menu.yaml", &renamed);
    let engine = counter.run();
    let lost = "END What became of your last request cannot be shown here. Please ask our service.";
    assert_eq!(counter.send("s2", ""), lost);
    assert_eq!(counter.send("s3", ""), lost, "once more, at once");
    assert_eq!(counter.send("s4", ""), START);
    assert_eq!(counter.shop.sales(), 1);
    let log = engine.stop();
    assert!(log.contains("the menu has changed"), "{log}");
}

/// The menu of [`buying`] from which purchases were taken in a hurry.
fn without_buying(port: u16, shop: u16) -> String {
    let text = buying(port, shop);
    let (from, to) = (text.find("  buy:\n"), text.find("  bye:"));
    let gone = &text[from.unwrap()..to.unwrap()];
    text.replace(gone, "")
        .replace("go: buy", "go: bye")
        .replace("en: Airtime", "en: Closed")
}

#[test]
fn an_action_is_told_also_by_a_menu_that_has_none_any_more() {
    const LOST: &str =
        "END What became of your last request cannot be shown here. Please ask our service.";
    let without_once = |port, shop| {
        let text = buying(port, shop).replace("    once: { wait: 1s, unsure: ask }\n", "");
        text.split("  ask:").next().unwrap().to_owned()
    };
    type Menu = fn(u16, u16) -> String;
    let menus: [(Menu, &str); 2] = [
        (without_buying, "CON Closed\n1. Buy\n2. Kiswahili"),
        (without_once, START),
    ];
    for (menu, first) in menus {
        let counter = Counter::new(Duration::from_secs(1));
        counter.crash_in_sale();
        let text = menu(counter.port, counter.shop.backend.port());
        assert!(!text.contains("once:"), "{text}");
        counter.folder.write("flows/menu.yaml", &text);
        let engine = counter.run();
        assert_eq!(counter.send("s2", ""), LOST);
        assert_eq!(counter.send("s3", ""), LOST, "once more, at once");
        assert_eq!(counter.send("s4", ""), first);
        assert_eq!(counter.shop.sales(), 1);
        engine.stop();
    }
}

#[test]
fn an_action_runs_on_when_a_reload_takes_it_from_the_menu() {
    let counter = Counter::new(Duration::from_secs(20));
    let engine = counter.run();
    counter.send("s0", "");
    counter.send("s1", "");
    counter.send("s1", "1");
    let client = send_away(counter.port, "s1", NUMBER, "1*50");
    testkit::wait_until("the sale begins", || counter.shop.sales() == 1);
    let text = without_buying(counter.port, counter.shop.backend.port());
    counter.folder.write("flows/menu.yaml", &text);
    engine.process.signal("HUP");
    testkit::wait_until("it is loaded", || {
        let session = format!("s{:?}", Instant::now());
        let shown = counter.send_of(&session, "%2B254711000009", "");
        shown.starts_with("CON Closed")
    });
    assert_eq!(counter.send("s2", ""), PENDING, "dialled");
    assert_eq!(counter.send("s0", "1"), PENDING, "a key of another session");
    drop(client);
    drop(engine);
}

/// Two sessions that go on from the same choices would buy twice.
#[test]
fn a_session_that_was_resumed_is_over() {
    let counter = Counter::new(Duration::ZERO);
    let engine = counter.run();
    let resumed = "CON Welcome back.\nHow much?\n00. Home";
    counter.send("s1", "");
    counter.send("s1", "1");
    assert_eq!(counter.send("s2", ""), resumed);
    assert_eq!(counter.send("s3", ""), resumed);
    // They are closed behind the reply.
    thread::sleep(Duration::from_millis(500));
    let over = "END The session is over. Please dial again.";
    assert_eq!(counter.send("s1", "1*50"), over);
    assert_eq!(counter.send("s2", "50"), over);
    assert_eq!(counter.send("s3", "50"), "END Bought 50: 77.");
    assert_eq!(counter.shop.sales(), 1);
    engine.stop();
}

#[test]
fn a_language_that_is_gone_ends_no_session_and_loses_no_result() {
    let counter = Counter::new(Duration::ZERO);
    let engine = counter.run();
    counter.send("s1", "");
    counter.send("s1", "2");
    assert!(counter.send("s1", "2*1").starts_with("CON Kiasi gani?"));
    engine.stop();
    let text = buying(counter.port, counter.shop.backend.port());
    let french = text.replace("sw", "fr");
    counter.folder.write("flows/menu.yaml", &french);
    let engine = counter.run();
    assert_eq!(counter.send("s1", "2*1*50"), "END Bought 50: 77.");
    engine.stop();
}

#[test]
fn a_session_of_a_screen_that_is_gone_is_over() {
    let counter = Counter::new(Duration::ZERO);
    let engine = counter.run();
    counter.send("s1", "");
    assert!(counter.send("s1", "1").starts_with("CON How much?"));
    engine.stop();
    let text = buying(counter.port, counter.shop.backend.port());
    let changed = text
        .replace("  amount:\n", "  sum:\n")
        .replace("go: amount", "go: sum")
        .replace(
            "\"*123#\": start",
            "\"*123#\": start, \"*123*{amount}#\": sum",
        );
    counter.folder.write("flows/menu.yaml", &changed);
    let engine = counter.run();
    // What is typed is no code that is dialled, whatever codes there are.
    let over = "END The session is over. Please dial again.";
    assert_eq!(counter.send("s1", "1*50"), over);
    assert_eq!(counter.shop.sales(), 0);
    engine.stop();
}

#[test]
fn no_text_is_lost_on_the_pages_of_a_resumed_screen() {
    let counter = Counter::new(Duration::ZERO);
    let words: Vec<String> = (0..40).map(|it| format!("word{it}")).collect();
    let text = buying(counter.port, counter.shop.backend.port());
    let long = text.replace("en: \"How much?\"", &format!("en: \"{}\"", words.join(" ")));
    // None of them is a key of the pages.
    let long = long.replace("max: 500", "max: 90");
    counter.folder.write("flows/menu.yaml", &long);
    let engine = counter.run();
    counter.send("s1", "");
    counter.send("s1", "1");
    let mut shown = counter.send("s2", "");
    let mut typed = String::new();
    while shown.contains("98. More") {
        typed = if typed.is_empty() {
            "98".to_owned()
        } else {
            format!("{typed}*98")
        };
        let next = counter.send("s2", &typed);
        shown = format!("{}{next}", shown.replace("98. More", ""));
        assert!(typed.len() < 60, "{shown}");
    }
    for word in &words {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    engine.stop();
}

/// What a first action has found out is not said of the second one.
#[test]
fn a_result_is_shown_with_the_variables_of_its_own_action() {
    let (folder, port) = (TempDir::new(), free_port());
    let refuses = Arc::new(Mutex::new(true));
    let shop = StrictBackend::answering(move |_| {
        let status = match std::mem::take(&mut *refuses.lock().unwrap()) {
            true => "402 No Funds",
            false => "200 OK",
        };
        format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let text = format!(
        r##"
menu: airtime
use: {{ shop: {{ http: "http://127.0.0.1:{}" }} }}
from: {{ ussd: {{ http: "POST 127.0.0.1:{port}/ussd", gateway: africas-talking, codes: {{ "*123#": start }} }} }}
languages: [en]
screens:
  start: {{ text: Airtime, options: [ {{ text: Buy, go: buy }} ] }}
  buy:
    do:
      - set: {{ problem: "${{ null }}" }}
      - http: {{ to: "shop:/sales", method: POST }}
        on_error: [ {{ on: 4xx, steps: [ {{ set: {{ problem: no funds }} }} ] }} ]
    once: {{ unsure: ask }}
    text: "Result: ${{ $problem // \"sold\" }}"
    options: [ {{ text: Again, go: start }}, {{ text: Bye, go: bye }} ]
  ask: {{ text: Nobody knows, end: true }}
  bye: {{ text: Bye, end: true }}
"##,
        shop.port()
    );
    let file = folder.write("menu.yaml", &text);
    let data = folder.path().join("data").display().to_string();
    let engine = Engine::run(&[&file], &["--data", &data]);
    let send = |text: &str| {
        let head = format!("sessionId=s1&phoneNumber={NUMBER}&serviceCode=*123%23");
        post(port, "/ussd", FORM, &format!("{head}&text={text}")).text()
    };
    send("");
    assert_eq!(send("1"), "CON Result: no funds\n1. Again\n2. Bye");
    assert_eq!(send("1*1"), "CON Airtime\n1. Buy");
    assert_eq!(send("1*1*1"), "CON Result: sold\n1. Again\n2. Bye");
    engine.stop();
}

/// The gateway did not wait for a result, and asked again: the key that follows is a key.
#[test]
fn a_result_that_a_repeated_request_has_told_is_not_told_once_more() {
    let counter = Counter::new(Duration::from_millis(600));
    let text = buying(counter.port, counter.shop.backend.port());
    let at = text.find("    text: { en: \"Bought").unwrap();
    let more = "    options: [ { text: { en: Bye, sw: Kwaheri }, go: bye } ]\n";
    let text = text[..at].to_owned() + &text[at..].replacen("    end: true\n", more, 1);
    counter.folder.write("flows/menu.yaml", &text);
    let engine = counter.run();
    counter.send("s1", "");
    counter.send("s1", "1");
    drop(send_away(counter.port, "s1", NUMBER, "1*50"));
    testkit::wait_until("the sale begins", || counter.shop.sales() == 1);
    thread::sleep(Duration::from_millis(800));
    let result = counter.send("s1", "1*50");
    assert!(result.starts_with("CON Bought 50: 77."), "{result}");
    assert_eq!(counter.send("s1", "1*50*1"), "END Bye");
    // Nor to whoever dials again.
    assert_eq!(counter.send("s2", ""), START);
    assert_eq!(counter.shop.sales(), 1);
    engine.stop();
}

/// Where a repeated request cannot be told from a key, it may not stand for having seen a result.
#[test]
fn a_result_that_nobody_took_is_told_to_a_request_that_looks_like_a_key() {
    let counter = Counter::new(Duration::from_millis(600));
    let text = buying(counter.port, counter.shop.backend.port());
    let at = text.find("    text: { en: \"Bought").unwrap();
    let more = "    options: [ { text: { en: Bye, sw: Kwaheri }, go: bye } ]\n";
    let text = text[..at].to_owned() + &text[at..].replacen("    end: true\n", more, 1);
    let text = text.replace("\"POST 127", "\"GET 127");
    let text = text.replace("gateway: africas-talking", "gateway: get");
    counter.folder.write("flows/menu.yaml", &text);
    let engine = counter.run();
    let path =
        |kind: u8, text: &str| format!("/ussd?type={kind}&session=q1&msisdn={NUMBER}&text={text}");
    let send = |kind: u8, text: &str| crate::support::get(counter.port, &path(kind, text)).text();
    assert!(send(1, "*123%23").starts_with("CON Airtime"));
    assert!(send(2, "1").starts_with("CON How much?"));
    let mut client = testkit::RawClient::connect(counter.port);
    client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", path(2, "1")));
    testkit::wait_until("the sale begins", || counter.shop.sales() == 1);
    drop(client);
    thread::sleep(Duration::from_millis(800));
    let result = send(2, "1");
    assert!(result.starts_with("CON Bought 1: 77."), "{result}");
    assert_eq!(send(2, "1"), "END Bye");
    engine.stop();
}

/// A gateway that reports the end of a session before it answers the request with the last screen.
#[test]
fn the_end_of_a_session_cuts_off_no_screen_that_is_sent() {
    let counter = Counter::new(Duration::ZERO);
    let sent: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&sent);
    let gateway = StrictBackend::answering(move |received| {
        let text = String::from_utf8(received.body.clone()).unwrap();
        let is_result = text.contains("Bought");
        log.lock().unwrap().push(text);
        if is_result {
            thread::sleep(Duration::from_millis(1_500));
        }
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let text = buying(counter.port, counter.shop.backend.port());
    let use_gateway = format!(
        "use: {{ gw: {{ http: \"http://127.0.0.1:{}\" }}, shop:",
        gateway.port()
    );
    let text = text.replace("use: { shop:", &use_gateway).replace(
        "languages:",
        "answers: { do: [ { http: { to: \"gw:/\", method: POST, body: \"${ .text }\" } } ] }\nlanguages:",
    );
    counter.folder.write("flows/menu.yaml", &text);
    let engine = counter.run();
    let send = |session: &str, more: &str| {
        let head = format!("sessionId={session}&phoneNumber={NUMBER}&serviceCode=*123%23");
        let response = post(counter.port, "/ussd", FORM, &format!("{head}&{more}"));
        assert_eq!(response.status, 202, "{}", response.text());
    };
    let wait_for = |count: usize| {
        testkit::wait_until("a screen is sent", || sent.lock().unwrap().len() >= count);
        sent.lock().unwrap()[count - 1].clone()
    };
    send("s1", "text=");
    wait_for(1);
    send("s1", "text=1");
    wait_for(2);
    send("s1", "text=1*50");
    // It is told to who dials at once, and no more than that.
    for (count, session) in [(3, "s1"), (4, "s2")] {
        assert!(wait_for(count).contains("Bought 50"));
        send(session, "status=Success");
        thread::sleep(Duration::from_millis(1_800));
        let next = if session == "s1" { "s2" } else { "s3" };
        send(next, "text=");
    }
    assert!(
        wait_for(5).contains("Airtime"),
        "{:?}",
        sent.lock().unwrap()
    );
    engine.stop();
}

#[test]
fn actions_are_checked() {
    let sound = buying(8080, 8081);
    for (from, to, message) in [
        (
            "unsure: ask }",
            "unsure: nowhere }",
            "there is no screen `nowhere`",
        ),
        ("{ wait: 1s, unsure: ask }", "{ wait: 1s }", "unsure"),
        ("wait: 1s", "wait: 5m", "from 1s to 1m"),
        (
            "codes: { \"*123#\": start }",
            "codes: { \"*123#\": start, \"*123*{amount}#\": buy }",
            "would begin the action of `buy` again",
        ),
        ("resume: 5m", "resume: 5s", "from 10s to 1d"),
        (
            "    text: { en: \"How much?\"",
            "    once: { unsure: ask }\n    text: { en: \"How much?\"",
            "without `do`",
        ),
        (
            "keys: { home: { key: \"00\", text: { en: Home, sw: Nyumbani } } }",
            "",
            "a way to begin anew",
        ),
    ] {
        assert!(sound.contains(from), "{from}");
        let folder = TempDir::new();
        let file = folder.write("menu.yaml", &sound.replacen(from, to, 1));
        let (status, report) = checked(&file);
        assert_eq!(status, Some(1), "{to}\n{report}");
        assert!(report.contains(message), "{to}\n{report}");
    }
}

#[test]
fn a_text_has_the_form_of_its_pattern() {
    let file = |pattern: &str| {
        format!(
            r##"
menu: meter
from: {{ ussd: {{ http: POST 127.0.0.1:8080/ussd, gateway: get, codes: {{ "*1#": meter }} }} }}
languages: [en]
screens:
  meter:
    text: Meter?
    input: {{ as: meter, text: {{ pattern: '{pattern}' }} }}
    go: done
  done: {{ text: "${{ $meter }}", end: true }}
tests:
  - name: one
    dialogue:
      - dial: "*1#"
      - {{ reply: KE12345, contains: Please try again }}
      - {{ reply: xKE123456, contains: Please try again }}
      - {{ reply: KE123456, expect: KE123456, ends: true }}
"##
        )
    };
    let folder = TempDir::new();
    let sound = folder.write("menu.yaml", &file("[A-Z]{2}[0-9]{6}|\\d{3}"));
    let result = output(&["test", sound.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&result.stdout).into_owned();
    assert_eq!(result.status.code(), Some(0), "{told}");
    // Screens are counted: both of them were shown.
    assert!(told.contains("100 % of branches"), "{told}");
    let broken = folder.write("menu.yaml", &file("[A-Z"));
    let (status, told) = checked(&broken);
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("not a regular expression"), "{told}");
}

#[test]
fn dialogues_repeat_requests_and_end_sessions() {
    let folder = TempDir::new();
    let text = format!(
        r##"{}on_end: [ {{ http: {{ to: "shop:/left", method: POST }} }} ]
tests:
  - name: one
    mock: {{ shop: {{ body: {{}} }} }}
    dialogue:
      - {{ dial: "*123#", contains: Airtime }}
      - {{ again: true, contains: Airtime }}
      - {{ reply: 1, expect: "How much?" }}
      - {{ again: true, expect: "How much?" }}
      - {{ end: true, ends: true }}
      - {{ again: true, ends: true }}
      - {{ reply: 1, contains: The session is over, ends: true }}
    expect: {{ calls: {{ shop: 1 }} }}
"##,
        menu(8080, 8081, "get")
    );
    let file = folder.write("menu.yaml", &text);
    let result = output(&["test", file.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&result.stdout).into_owned();
    assert_eq!(result.status.code(), Some(0), "{told}");
    let broken = text.replacen("- { again: true, c", "- { again: true, end: true, c", 1);
    let file = folder.write("menu.yaml", &broken);
    let (status, told) = checked(&file);
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("a turn dials, replies, repeats"), "{told}");
}

#[test]
fn screens_and_options_that_no_test_reaches_are_told() {
    let folder = TempDir::new();
    let text = format!(
        "{}tests:\n  - name: one\n    dialogue:\n      - {{ dial: \"*123#\", contains: Airtime }}\n      - {{ reply: 0, ends: true }}\n",
        menu(8080, 8081, "get")
    );
    let file = folder.write("menu.yaml", &text);
    let result = output(&["test", file.to_str().unwrap(), "--coverage"]);
    let told = String::from_utf8_lossy(&result.stdout).into_owned();
    for part in [
        "screen amount",
        "option of start to amount",
        "screen bought",
    ] {
        assert!(told.contains(part), "{part}\n{told}");
    }
    assert!(
        !told.contains("screen start") && !told.contains("screen bye"),
        "{told}"
    );
}
