//! Flows that call others, webhooks by REST, the WebSub hub, and a menu.

use std::io;

use super::{Attack, attack};
use crate::campaign::hostile::attacker::Attacker;
use crate::campaign::hostile::credentials::KEY;

pub const ATTACKS: &[Attack] = &[
    attack(
        "http-step",
        "http step",
        "bodies that a step writes as forms and XML of many times their length",
        4,
        3,
        http_step,
    ),
    attack(
        "webhooks-rest",
        "webhooks",
        "webhooks made, changed and deleted, with and without a key",
        4,
        3,
        webhooks,
    ),
    attack(
        "websub-hub",
        "WebSub",
        "subscriptions for callbacks that confirm nothing, and odd forms",
        4,
        3,
        hub,
    ),
    attack(
        "ussd-menu",
        "USSD",
        "sessions of ever other numbers, keys of any length",
        4,
        3,
        menu,
    ),
];

fn http_step(attacker: &mut Attacker) -> io::Result<()> {
    let name = "n".repeat(attacker.random.usize(1..=5_000));
    let list = "1,".repeat(attacker.random.usize(..20_000));
    let body = match attacker.random.u8(..4) {
        0 => format!("{{\"{name}\":\"{}\"}}", "%".repeat(500_000)),
        1 => format!("{{\"{name}\":[[{list}1]]}}"),
        2 => format!("[{list}1]"),
        _ => format!("{{\"{name}\":[{list}1]}}"),
    };
    let path = attacker.any(&["/call-form", "/call-xml"]);
    attacker.post_json(path, &body)
}

/// A request to the interface of webhooks, with the key of a partner or without.
fn ask(attacker: &mut Attacker, line: &str, body: &str) -> io::Result<Vec<u8>> {
    let key = attacker.any(&[KEY, KEY, KEY, "", "X-Api-Key: itk_nobody\r\n"]);
    let request = format!(
        "{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{key}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let port = attacker.ports.http;
    attacker.try_once(port, request.as_bytes())
}

fn webhooks(attacker: &mut Attacker) -> io::Result<()> {
    const HOOKS: &str = "/topics/hooks/webhooks";
    let number = attacker.random.u64(..1 << 53);
    let url = format!("http://127.0.0.1:{}/{number}", attacker.ports.back_end);
    let filter = attacker.any(&["last(range(1e18))", "[[..] | ..] | length", "(", ".a"]);
    let made = match attacker.random.u8(..6) {
        0 => ask(attacker, &format!("GET {HOOKS}?limit=100"), "")?,
        1 => ask(attacker, &format!("DELETE {HOOKS}/wh_{number:x}"), "")?,
        2 => ask(attacker, &format!("POST {HOOKS}"), &"[".repeat(100_000))?,
        3 => ask(attacker, &format!("GET {HOOKS}/openapi.json"), "")?,
        _ => {
            let body = format!("{{\"url\":\"{url}\",\"filter\":\"{filter}\"}}");
            ask(attacker, &format!("POST {HOOKS}"), &body)?
        }
    };
    // Those that were made are tried and deleted again, for a caller has only so many.
    let made = String::from_utf8_lossy(&made);
    let Some(id) = made.find("wh_").and_then(|at| made.get(at..at + 35)) else {
        return Ok(());
    };
    let id: String = id.chars().take_while(|it| *it != '"').collect();
    for action in ["test", "verify", "replay"] {
        ask(attacker, &format!("POST {HOOKS}/{id}/{action}"), "{}")?;
    }
    ask(attacker, &format!("DELETE {HOOKS}/{id}"), "").map(drop)
}

fn hub(attacker: &mut Attacker) -> io::Result<()> {
    const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";
    let number = attacker.random.u64(..1 << 53);
    let topic = format!("http://127.0.0.1:{}/topics/news", attacker.ports.http);
    let callback = format!("http://127.0.0.1:{}/{number}", attacker.ports.back_end);
    let mode = attacker.any(&["subscribe", "subscribe", "unsubscribe", "publish", "%00"]);
    let body = match attacker.random.u8(..5) {
        0 => format!("hub.mode={mode}&").repeat(20_000),
        1 => format!("hub.mode={mode}&hub.topic={topic}&hub.callback=http://10.0.0.1/{number}"),
        2 => format!(
            "hub.mode={mode}&hub.topic={topic}&hub.secret={}",
            "s".repeat(500_000)
        ),
        _ => format!(
            "hub.mode={mode}&hub.topic={topic}&hub.callback={callback}&hub.lease_seconds={number}"
        ),
    };
    attacker.post("/hub", FORM, body.as_bytes())
}

fn menu(attacker: &mut Attacker) -> io::Result<()> {
    const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";
    let number = attacker.random.u64(..1 << 53);
    let text = match attacker.random.u8(..6) {
        0 => "1*".repeat(100_000),
        1 => "9".repeat(200_000),
        2 => "%F0%9F%98%80".repeat(1_000),
        3 => "1*50".to_owned(),
        4 => "1*-1*1e999".to_owned(),
        _ => String::new(),
    };
    let body = format!(
        "sessionId={number}&phoneNumber=%2B2547{:08}&serviceCode=*123%23&text={text}",
        number % 100_000_000
    );
    attacker.post("/ussd", FORM, body.as_bytes())
}
