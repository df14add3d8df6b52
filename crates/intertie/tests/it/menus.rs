//! Menus as gateways see them: dialogues over HTTP, requests that are repeated, late, foreign or
//! hostile, engines that are killed in the middle.

mod actions;
mod attacks;
mod dialogues;
mod gateways;
mod sending;
mod shared;
mod simulator;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use testkit::{StrictBackend, TempDir, free_port};

use crate::support::{Engine, output, post};

const NUMBER: &str = "%2B254711000001";
const FORM: &str = "application/x-www-form-urlencoded";

/// A menu that buys something at a back end.
fn menu(port: u16, backend: u16, gateway: &str) -> String {
    format!(
        r##"
menu: airtime
use: {{ shop: {{ http: "http://127.0.0.1:{backend}" }} }}
from: {{ ussd: {{ http: "POST 127.0.0.1:{port}/ussd", gateway: {gateway}, codes: {{ "*123#": start }} }} }}
languages: [en]
screens:
  start:
    text: Airtime
    options:
      - {{ text: Buy, go: amount }}
      - {{ key: "0", text: Exit, go: bye }}
  amount:
    text: How much?
    input: {{ as: amount, number: {{ min: 1, max: 500 }} }}
    go: pin
  pin:
    text: "PIN for ${{ $amount }}?"
    input: {{ as: pin, pin: {{ digits: 6 }} }}
    go: confirm
  confirm:
    do:
      - map: '{{ pin: $pin }}'
      - http: {{ to: "shop:/check", method: POST }}
        as: checked
    text: "Buy for ${{ $amount }}, ${{ $msisdn }}?"
    options: [ {{ text: Sure, go: bought }} ]
  bought:
    do:
      - map: '{{ amount: $amount, pin: $pin }}'
      - http: {{ to: "shop:/buy", method: POST }}
        as: bought
    text: "Bought ${{ $amount }}."
    end: true
  bye: {{ text: Goodbye, end: true }}
"##
    )
}

/// The exit code and the report of `intertie check`.
fn checked(file: &Path) -> (Option<i32>, String) {
    let result = output(&["check", file.to_str().unwrap()]);
    let report = String::from_utf8_lossy(&result.stdout).into_owned();
    (result.status.code(), report)
}

/// A shop that takes everything, a while for each, and remembers it.
fn shop(delay: Duration) -> (StrictBackend, Arc<Mutex<Vec<String>>>) {
    let taken: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&taken);
    let backend = StrictBackend::answering(move |received| {
        let body = String::from_utf8(received.body.clone()).unwrap();
        log.lock().unwrap().push(body);
        thread::sleep(delay);
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}".to_vec()
    });
    (backend, taken)
}

struct Place {
    folder: TempDir,
    port: u16,
    backend: StrictBackend,
    taken: Arc<Mutex<Vec<String>>>,
}

impl Place {
    fn new(gateway: &str, delay: Duration) -> Self {
        let (folder, port) = (TempDir::new(), free_port());
        let (backend, taken) = shop(delay);
        folder.write("flows/menu.yaml", &menu(port, backend.port(), gateway));
        Self {
            folder,
            port,
            backend,
            taken,
        }
    }

    fn run(&self) -> Engine {
        let data = self.folder.path().join("data").display().to_string();
        let flows = self.folder.path().join("flows");
        Engine::run(&[&flows], &["--data", &data])
    }

    /// What a request of Africa's Talking is answered with.
    fn send(&self, session: &str, number: &str, text: &str) -> String {
        let body =
            format!("sessionId={session}&phoneNumber={number}&serviceCode=*123%23&text={text}");
        let response = post(self.port, "/ussd", FORM, &body);
        assert_eq!(response.status, 200, "{}", response.text());
        response.text()
    }

    fn taken(&self) -> Vec<String> {
        self.taken.lock().unwrap().clone()
    }

    /// The files of the data folder in which this stands.
    fn files_with(&self, text: &str) -> Vec<PathBuf> {
        let mut open = vec![self.folder.path().join("data")];
        let mut found = Vec::new();
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            if bytes.windows(text.len()).any(|it| it == text.as_bytes()) {
                found.push(path);
            }
        }
        found
    }
}

#[test]
fn a_dialogue_keeps_its_screen_over_wrong_empty_and_repeated_input() {
    let place = Place::new("africas-talking", Duration::ZERO);
    let engine = place.run();
    let send = |text: &str| place.send("s1", NUMBER, text);
    let start = "CON Airtime\n1. Buy\n0. Exit";
    assert_eq!(send(""), start);
    assert_eq!(send(""), start, "a repeated dial");
    assert_eq!(send("7"), format!("CON Please try again.\n{}", &start[4..]));
    assert_eq!(send("7*1"), "CON How much?");
    assert_eq!(send("7*1"), "CON How much?", "a repeated key");
    assert_eq!(send("7"), "CON How much?", "an old request");
    assert_eq!(
        send("7*1*"),
        "CON Please try again.\nHow much?",
        "an empty input"
    );
    assert_eq!(
        send("7*1**5*0"),
        "CON Please try again.\nHow much?",
        "a star within"
    );
    assert_eq!(send("7*1**5*0*50"), "CON PIN for 50?");
    assert_eq!(
        send("7*1**5*0*50*123456"),
        "CON Buy for 50, +254711000001?\n1. Sure"
    );
    assert_eq!(send("7*1**5*0*50*123456*1"), "END Bought 50.");
    assert_eq!(
        send("7*1**5*0*50*123456*1"),
        "END Bought 50.",
        "the last request again"
    );
    assert!(send("7*1**5*0*50*123456*1*1").starts_with("END The session is over."));
    // The PIN was there for the steps of one screen.
    assert_eq!(
        place.taken(),
        [r#"{"pin":"123456"}"#, r#"{"amount":50,"pin":null}"#]
    );
    engine.stop();
}

#[test]
fn sessions_of_others_are_neither_seen_nor_continued() {
    let place = Place::new("africas-talking", Duration::ZERO);
    let engine = place.run();
    place.send("s1", NUMBER, "");
    assert_eq!(place.send("s1", NUMBER, "1"), "CON How much?");
    let other = "%2B254711000002";
    let unknown = "END The session is over. Please dial again.";
    assert_eq!(place.send("s1", other, "1*50"), unknown, "another number");
    assert_eq!(place.send("s2", NUMBER, "1*50"), unknown, "another session");
    assert_eq!(place.send("s1", other, ""), "CON Airtime\n1. Buy\n0. Exit");
    // One number, however it is written.
    assert_eq!(place.send("s1", "254711000001", "1*50"), "CON PIN for 50?");
    engine.stop();
}

#[test]
fn hostile_requests_are_refused_and_lose_no_session() {
    let place = Place::new("africas-talking", Duration::ZERO);
    let engine = place.run();
    place.send("s1", NUMBER, "");
    let head = format!("sessionId=s1&phoneNumber={NUMBER}&serviceCode=*123%23");
    let mega = "1*".repeat(1 << 19);
    for (body, status) in [
        (format!("{head}&text={mega}"), 413),
        (format!("{head}&text={}", &mega[..mega.len() / 2]), 400),
        (format!("{head}&text=%ff%fe"), 400),
        (format!("{head}&text=1%00"), 400),
        (head.replace("=s1", "=s1%00") + "&text=1", 400),
        (head.replace(NUMBER, "254711000001%00") + "&text=1", 400),
        (head.replace("123", "123%00") + "&text=1", 400),
        (format!("{head}&text=1&text=2"), 400),
        (head.clone(), 400),
        ("{\"text\":\"1\"}".to_owned(), 400),
        (format!("{head}&text={}", "9".repeat(4096)), 200),
    ] {
        let response = post(place.port, "/ussd", FORM, &body);
        assert_eq!(response.status, status, "{:.80}", body);
    }
    // The last one was a key, which is none of the screen.
    let typed = format!("{}*1", "9".repeat(4000));
    let answer = place.send("s1", NUMBER, &typed);
    assert!(answer.starts_with("CON Please try again."), "{answer}");
    engine.stop();
}

#[test]
fn a_killed_engine_finds_the_same_screen_and_variables() {
    let place = Place::new("africas-talking", Duration::ZERO);
    let mut engine = place.run();
    let mut restart = || {
        engine.process.signal("KILL");
        engine.process.wait();
        engine = place.run();
    };
    place.send("s1", NUMBER, "");
    restart();
    assert_eq!(place.send("s1", NUMBER, "1"), "CON How much?");
    assert_eq!(place.send("s1", NUMBER, "1*50"), "CON PIN for 50?");
    restart();
    assert_eq!(
        place.send("s1", NUMBER, "1*50"),
        "CON PIN for 50?",
        "the request again"
    );
    let confirm = "CON Buy for 50, +254711000001?\n1. Sure";
    assert_eq!(place.send("s1", NUMBER, "1*50*123456"), confirm);
    restart();
    assert_eq!(place.send("s1", NUMBER, "1*50*123456"), confirm);
    assert_eq!(
        place.taken().len(),
        1,
        "what was answered is not done again"
    );
    assert_eq!(place.send("s1", NUMBER, "1*50*123456*1"), "END Bought 50.");
    restart();
    assert_eq!(place.send("s1", NUMBER, "1*50*123456*1"), "END Bought 50.");
    assert_eq!(place.taken().len(), 2);
    // Neither the number nor the PIN is in the data folder or in the log.
    let log = engine.stop();
    assert_eq!(place.files_with("123456"), Vec::<PathBuf>::new());
    assert_ne!(place.files_with("amount"), Vec::<PathBuf>::new());
    assert!(
        !log.contains("123456") && !log.contains("254711000001"),
        "{log}"
    );
}

#[test]
fn requests_that_come_at_once_are_done_once() {
    let place = Place::new("africas-talking", Duration::from_millis(300));
    let engine = place.run();
    for text in ["", "1", "1*50", "1*50*123456"] {
        place.send("s1", NUMBER, text);
    }
    let answers: Vec<String> = thread::scope(|scope| {
        let send = || place.send("s1", NUMBER, "1*50*123456*1");
        let all: Vec<_> = (0..4).map(|_| scope.spawn(send)).collect();
        all.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert_eq!(answers, ["END Bought 50."; 4]);
    assert_eq!(place.taken().len(), 2);
    engine.stop();
}

#[test]
fn a_back_end_that_fails_ends_the_session_with_words() {
    let (folder, port) = (TempDir::new(), free_port());
    folder.write("menu.yaml", &menu(port, free_port(), "africas-talking"));
    let engine = Engine::run(&[&folder.path().join("menu.yaml")], &[]);
    let send = |text: &str| {
        let head = format!("sessionId=s1&phoneNumber={NUMBER}&serviceCode=*123%23");
        post(port, "/ussd", FORM, &format!("{head}&text={text}")).text()
    };
    for text in ["", "1", "1*50"] {
        send(text);
    }
    let failed = "END The service is not available. Please try again later.";
    assert_eq!(send("1*50*654321"), failed);
    assert_eq!(send("1*50*654321"), failed, "the same request again");
    let log = engine.stop();
    assert!(log.contains("a session of a menu has failed"), "{log}");
    assert!(
        !log.contains("654321") && !log.contains("254711000001"),
        "{log}"
    );
}

#[test]
fn hubtel_counts_requests() {
    let place = Place::new("hubtel", Duration::ZERO);
    let engine = place.run();
    let send = |kind: &str, message: &str, sequence: u64| {
        let body = format!(
            r#"{{"Type":"{kind}","Message":"{message}","ServiceCode":"123","Operator":"mtn",
                "Sequence":{sequence},"SessionId":"h1","Mobile":"233244000001"}}"#
        );
        let response = post(place.port, "/ussd", "application/json", &body);
        assert_eq!(response.status, 200, "{}", response.text());
        let reply: serde_json::Value = serde_json::from_str(&response.text()).unwrap();
        assert_eq!(reply["SessionId"], "h1");
        format!("{} {}", reply["Type"], reply["Message"]).replace('"', "")
    };
    assert_eq!(
        send("Initiation", "*123#", 1),
        "Response Airtime\\n1. Buy\\n0. Exit"
    );
    assert_eq!(send("Response", "1", 2), "Response How much?");
    assert_eq!(
        send("Response", "1", 2),
        "Response How much?",
        "the request again"
    );
    assert_eq!(
        send("Initiation", "*123#", 1),
        "Response How much?",
        "the first request, late"
    );
    assert_eq!(send("Response", "1", 3), "Response PIN for 1?");
    assert_eq!(send("Timeout", "", 4), "Release ");
    assert!(send("Response", "1", 5).starts_with("Release The session is over."));
    engine.stop();
}

/// What this version does not have is refused with words, not taken and ignored.
#[test]
fn menus_are_refused_that_are_open_or_ask_for_what_is_not_there() {
    let sound = menu(8080, 8081, "africas-talking");
    for (from, to, code) in [
        ("127.0.0.1:8080/ussd", "0.0.0.0:8080/ussd", "IT0800"),
        ("gateway: africas-talking", "gateway: smpp", "IT0"),
        ("http: \"POST", "http: \"GET", "IT0212"),
        (
            "languages: [en]",
            "languages: [en]\nsteps: [ { reply: {} } ]",
            "IT0",
        ),
        ("languages: [en]", "languages: [en]\non_error: []", "IT0"),
        ("text: Airtime", "text: \"Airtime ${ $pin }\"", "IT0801"),
        ("as: amount", "as: msisdn", "IT0801"),
        (
            "      - http: { to: \"shop:/buy\", method: POST }\n        as: bought",
            "      - reply: {}",
            "IT0801",
        ),
        (
            "    text: \"Bought ${ $amount }.\"\n    end: true",
            "    go: bought",
            "IT0805",
        ),
        ("as: pin, pin", "as: pin, number: {}, pin", "IT0801"),
    ] {
        assert!(sound.contains(from), "{from}");
        let folder = TempDir::new();
        let file = folder.write("menu.yaml", &sound.replacen(from, to, 1));
        let (status, report) = checked(&file);
        assert_eq!(status, Some(1), "{to}\n{report}");
        assert!(report.contains(code), "{to}\n{report}");
    }
    // With the gateway's addresses it is not open; with all others it is.
    for (networks, expected) in [
        ("[196.201.214.0/24]", Some(0)),
        ("{ deny: [196.201.214.0/24] }", Some(1)),
        ("{ allow: [0.0.0.0/0], deny: [10.0.0.0/8] }", Some(1)),
    ] {
        let folder = TempDir::new();
        let guarded = sound
            .replace("127.0.0.1:8080/ussd", "0.0.0.0:8080/ussd")
            .replace("languages:", &format!("networks: {networks}\nlanguages:"));
        let file = folder.write("menu.yaml", &guarded);
        let (status, report) = checked(&file);
        assert_eq!(status, expected, "{networks}\n{report}");
        assert_eq!(report.contains("IT0800"), expected == Some(1), "{report}");
    }
}

/// A menu whose texts come from another system: longer than a page, and lists that may be empty.
fn lists(port: u16, ask: &str) -> String {
    format!(
        r##"
menu: lists
from: {{ ussd: {{ http: "POST 127.0.0.1:{port}/ussd", gateway: africas-talking, codes: {{ "*123#": start, "*123*{{bills}}#": bills }} }} }}
languages: [en]
screens:
  start:
    do: [ {{ set: {{ long: '${{ [range(80)] | map(tostring) | join(" ") }}' }} }} ]
    text: {ask}
    input: {{ as: amount, number: {{ min: 1, max: 500 }} }}
    go: done
  bills:
    text: Your bills
    options: [ {{ text: "${{ $bill }}", each: '$bills | explode | map(select(. > 48))', as: bill, go: done }} ]
  done: {{ text: "Amount ${{ $amount }}", end: true }}
"##
    )
}

#[test]
fn keys_of_pages_are_no_numbers_while_there_are_several() {
    let (folder, port) = (TempDir::new(), free_port());
    let file = folder.write("menu.yaml", &lists(port, "\"${ $long } How much?\""));
    let data = folder.path().join("data").display().to_string();
    let engine = Engine::run(&[&file], &["--data", &data]);
    let send = |text: &str| {
        let head = format!("sessionId=s1&phoneNumber={NUMBER}&serviceCode=*123%23");
        post(port, "/ussd", FORM, &format!("{head}&text={text}")).text()
    };
    let first = send("");
    assert!(first.ends_with("98. More"), "{first}");
    let last = send("98");
    assert!(last.ends_with("How much?\n99. Back"), "{last}");
    // Pressed once too often, it is no amount.
    assert_eq!(send("98*98"), last);
    assert_eq!(send("98*98*50"), "END Amount 50");
    engine.stop();
    // Where it is known before, the menu is refused.
    let text = lists(port, &format!("\"{}\"", "much ".repeat(60)));
    let file = folder.write("fixed.yaml", &text);
    let (status, report) = checked(&file);
    assert_eq!(status, Some(1), "{report}");
    assert!(report.contains("`98` is their key `more`"), "{report}");
    assert!(report.contains("`99` is their key `back`"), "{report}");
}

#[test]
fn a_screen_without_anything_to_press_ends_its_session() {
    let (folder, port) = (TempDir::new(), free_port());
    let file = folder.write("menu.yaml", &lists(port, "How much?"));
    let data = folder.path().join("data").display().to_string();
    let engine = Engine::run(&[&file], &["--data", &data]);
    let dial = |bills: &str| {
        let head = format!("sessionId={bills}&phoneNumber={NUMBER}&serviceCode=*123*{bills}%23");
        post(port, "/ussd", FORM, &format!("{head}&text=")).text()
    };
    assert_eq!(dial("12"), "CON Your bills\n1. 49\n2. 50");
    assert_eq!(dial("00"), "END Your bills");
    engine.stop();
}
