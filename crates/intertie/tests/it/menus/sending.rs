//! Screens that are sent to gateways in requests of their own, and sessions that flows begin.

use super::*;

/// A gateway that takes screens: what it gets is remembered, and it answers each in turn as it is
/// told to, then with 200 and a session of its own.
fn gateway(first: &[u16]) -> (StrictBackend, Arc<Mutex<Vec<String>>>) {
    let taken: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&taken);
    let first = first.to_vec();
    let backend = StrictBackend::answering(move |received| {
        let mut log = log.lock().unwrap();
        let status = first.get(log.len()).copied().unwrap_or(200);
        log.push(String::from_utf8(received.body.clone()).unwrap());
        let body = r#"{"id":"g1"}"#;
        format!(
            "HTTP/1.1 {status} Status\r\nContent-Length: {}\r\nContent-Type: application/json\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    });
    (backend, taken)
}

fn menu_with(port: u16, gateway: u16, shop: u16, answers: &str, push: &str) -> String {
    format!(
        r##"
menu: airtime
use:
  gw: {{ http: "http://127.0.0.1:{gateway}" }}
  shop: {{ http: "http://127.0.0.1:{shop}" }}
from: {{ ussd: {{ http: "POST 127.0.0.1:{port}/ussd", gateway: africas-talking, codes: {{ "*123#": start }} }} }}
languages: [en]
{answers}
{push}
screens:
  start:
    text: Airtime
    options:
      - {{ text: Buy, go: bought }}
      - {{ key: "0", text: Exit, go: bye }}
  bought:
    do: [ {{ http: {{ to: "shop:/buy", method: POST }} }} ]
    text: Bought
    end: true
  bye: {{ text: Goodbye, end: true }}
"##
    )
}

const SEND: &str = r#"{ to: "gw:/send", method: POST, body: { to: "${ .msisdn }", id: "${ .session }", say: "${ .text }", over: "${ .ends }" } }"#;

fn answers(acknowledge: &str) -> String {
    format!(
        "answers:\n  acknowledge: {acknowledge}\n  do:\n    - http: {SEND}\n      \
         retry: {{ on: [5xx, connection], times: 3, delay: 20ms }}"
    )
}

fn dial(port: u16, text: &str) -> testkit::Response {
    let head = format!("sessionId=s1&phoneNumber={NUMBER}&serviceCode=*123%23");
    post(port, "/ussd", FORM, &format!("{head}&text={text}"))
}

fn said(text: &str, over: bool) -> String {
    format!(r#"{{"to":"+254711000001","id":"s1","say":"{text}","over":{over}}}"#)
}

#[test]
fn a_request_is_acknowledged_and_its_screen_follows() {
    let (folder, port) = (TempDir::new(), free_port());
    // The first screen is sent three times: the gateway is not well.
    let (gateway, sent) = gateway(&[503, 503]);
    let (shop, taken) = shop(Duration::from_millis(300));
    let text = menu_with(port, gateway.port(), shop.port(), &answers("before"), "");
    let file = folder.write("menu.yaml", &text);
    let data = folder.path().join("data").display().to_string();
    let engine = Engine::run(&[&file], &["--data", &data]);
    let response = dial(port, "");
    assert_eq!((response.status, response.text().as_str()), (202, ""));
    let start = said("Airtime\\n1. Buy\\n0. Exit", false);
    testkit::wait_until("the first screen", || sent.lock().unwrap().len() == 3);
    assert_eq!(*sent.lock().unwrap(), [&*start, &start, &start]);
    // The slow steps of the next one hold up no acknowledgement.
    assert_eq!(dial(port, "1").status, 202);
    assert_eq!(sent.lock().unwrap().len(), 3);
    testkit::wait_until("the last screen", || sent.lock().unwrap().len() == 4);
    assert_eq!(sent.lock().unwrap()[3], said("Bought", true));
    // A repeated request has its answer sent again, and nothing done.
    assert_eq!(dial(port, "1").status, 202);
    testkit::wait_until("the last screen again", || sent.lock().unwrap().len() == 5);
    assert_eq!(taken.lock().unwrap().len(), 1);
    // A stop waits for what has been acknowledged.
    assert_eq!(dial(port, "1").status, 202);
    engine.stop();
    assert_eq!(sent.lock().unwrap().len(), 6);
}

#[test]
fn a_request_whose_screen_cannot_be_sent_is_not_acknowledged() {
    let (folder, port) = (TempDir::new(), free_port());
    let (gateway, sent) = gateway(&[400]);
    let (shop, _) = shop(Duration::ZERO);
    let answers = answers("after") + "\n  reply: { status: 200, body: OK }";
    let text = menu_with(port, gateway.port(), shop.port(), &answers, "");
    let file = folder.write("menu.yaml", &text);
    let data = folder.path().join("data").display().to_string();
    let engine = Engine::run(&[&file], &["--data", &data]);
    let response = dial(port, "");
    assert_eq!(response.status, 502, "{}", response.text());
    let response = dial(port, "");
    assert_eq!((response.status, response.text().as_str()), (200, "OK"));
    let start = said("Airtime\\n1. Buy\\n0. Exit", false);
    assert_eq!(*sent.lock().unwrap(), [&*start, &start]);
    engine.stop();
}

/// A gateway that does not take the first screen in time: the screen that follows is sent behind
/// it, and the old one is not tried again then.
#[test]
fn an_older_screen_is_not_sent_behind_a_newer_one() {
    let (folder, port) = (TempDir::new(), free_port());
    let (gateway, sent) = gateway(&[503; 3]);
    let (shop, _) = shop(Duration::ZERO);
    let answers = answers("before").replace("delay: 20ms", "delay: 3s");
    let text = menu_with(port, gateway.port(), shop.port(), &answers, "");
    let file = folder.write("menu.yaml", &text);
    let data = folder.path().join("data").display().to_string();
    let engine = Engine::run(&[&file], &["--data", &data]);
    assert_eq!(dial(port, "").status, 202);
    testkit::wait_until("the first try", || sent.lock().unwrap().len() == 1);
    for text in ["9", "9*9", "9*9*0"] {
        assert_eq!(dial(port, text).status, 202);
    }
    let (start, bye) = (
        said("Airtime\\n1. Buy\\n0. Exit", false),
        said("Goodbye", true),
    );
    testkit::wait_until("the last screen", || sent.lock().unwrap().contains(&bye));
    // A stop waits for all that is under way.
    engine.stop();
    let sent = sent.lock().unwrap();
    assert_eq!(sent[0], start);
    assert!(sent[1..].iter().all(|it| *it == bye), "{sent:?}");
}

/// A flow that begins sessions.
fn offers(port: u16) -> String {
    format!(
        r##"
flow: offers
from: {{ http: "POST 127.0.0.1:{port}/offers" }}
steps:
  - ussd: {{ menu: airtime, screen: offer, to: "${{ .to }}", set: {{ price: "${{ .price }}" }} }}
  - reply: {{ status: 201 }}
on_error:
  - {{ on: any, reply: {{ status: 502 }} }}
"##
    )
}

fn pushing(session: &str) -> String {
    format!("push:\n  screens: {{ offer: [price] }}\n{session}  do: [ {{ http: {SEND} }} ]")
}

const OFFER: &str = r#"  offer: { text: "Data for ${ $price }?", options: [ { text: Sure, go: bought }, { text: "No", go: bye } ] }
"#;

fn push_place(
    session: &str,
    first: &[u16],
) -> (
    TempDir,
    u16,
    StrictBackend,
    Arc<Mutex<Vec<String>>>,
    StrictBackend,
) {
    let (folder, port) = (TempDir::new(), free_port());
    let (gateway, sent) = gateway(first);
    let (shop, _) = shop(Duration::ZERO);
    let menu = menu_with(port, gateway.port(), shop.port(), "", &pushing(session));
    folder.write("flows/menu.yaml", &(menu + OFFER));
    folder.write("flows/offers.yaml", &offers(port));
    (folder, port, gateway, sent, shop)
}

fn reply_of(port: u16, session: &str, text: &str) -> String {
    let head = format!("sessionId={session}&phoneNumber={NUMBER}&serviceCode=*123%23");
    post(port, "/ussd", FORM, &format!("{head}&text={text}")).text()
}

#[test]
fn a_flow_begins_a_session_on_a_phone() {
    let (folder, port, _gateway, sent, _shop) = push_place("", &[500]);
    let data = folder.path().join("data").display().to_string();
    let engine = Engine::run(&[&folder.path().join("flows")], &["--data", &data]);
    let offer = |body: &str| post(port, "/offers", "application/json", body);
    let body = r#"{"to":"254711000001","price":50}"#;
    assert_eq!(offer(body).status, 502, "the gateway fails");
    let response = offer(body);
    assert_eq!(response.status, 201, "{}", response.text());
    let made: serde_json::Value = serde_json::from_str(&response.text()).unwrap();
    let session = made["session"].as_str().unwrap().to_owned();
    assert_eq!(
        (&made["msisdn"], &made["ends"]),
        (&"+254711000001".into(), &false.into())
    );
    let screen: serde_json::Value = serde_json::from_str(&sent.lock().unwrap()[1]).unwrap();
    assert_eq!(screen["say"], "Data for 50?\n1. Sure\n2. No");
    assert_eq!(screen["id"], session.as_str());
    // It goes on as any session does, and nobody else's does.
    assert_eq!(
        reply_of(port, &session, "9"),
        "CON Please try again.\nData for 50?\n1. Sure\n2. No"
    );
    assert_eq!(reply_of(port, &session, "9*1"), "END Bought");
    // A number that is none, and a tool that asks for a session.
    assert_eq!(offer(r#"{"to":"nobody","price":50}"#).status, 502);
    let forged = r#"{"session":"x","msisdn":"+254711000001","event":{"push":{"screen":"offer","variables":[]}}}"#;
    let response = post(port, "/ussd", "application/vnd.intertie.ussd+json", forged);
    assert_eq!(response.status, 400);
    engine.stop();
}

#[test]
fn a_gateway_may_choose_the_session() {
    let (folder, port, _gateway, _sent, _shop) = push_place("  session: .id\n", &[]);
    let data = folder.path().join("data").display().to_string();
    let engine = Engine::run(&[&folder.path().join("flows")], &["--data", &data]);
    let body = r#"{"to":"254711000001","price":50}"#;
    let response = post(port, "/offers", "application/json", body);
    assert_eq!(response.status, 201, "{}", response.text());
    let made: serde_json::Value = serde_json::from_str(&response.text()).unwrap();
    assert_eq!(made["session"], "g1");
    assert_eq!(reply_of(port, "g1", "1"), "END Bought");
    engine.stop();
}

/// Somebody presses a key before the gateway has said which session it has begun.
#[test]
fn a_key_may_come_before_its_session_is_known() {
    let (folder, port) = (TempDir::new(), free_port());
    let (shop, _) = shop(Duration::ZERO);
    let pressed = Arc::new(Mutex::new(None));
    let key = Arc::clone(&pressed);
    let gateway = StrictBackend::answering(move |_| {
        let press = thread::spawn(move || reply_of(port, "g1", "1"));
        *key.lock().unwrap() = Some(press);
        thread::sleep(Duration::from_millis(500));
        let body = r#"{"id":"g1"}"#;
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11";
        format!("{head}\r\n\r\n{body}").into_bytes()
    });
    let push = pushing("  session: .id\n");
    let menu = menu_with(port, gateway.port(), shop.port(), "", &push);
    folder.write("flows/menu.yaml", &(menu + OFFER));
    folder.write("flows/offers.yaml", &offers(port));
    let data = folder.path().join("data").display().to_string();
    let engine = Engine::run(&[&folder.path().join("flows")], &["--data", &data]);
    let body = r#"{"to":"254711000001","price":50}"#;
    let response = post(port, "/offers", "application/json", body);
    assert_eq!(response.status, 201, "{}", response.text());
    let press = pressed.lock().unwrap().take().unwrap();
    assert_eq!(press.join().unwrap(), "END Bought");
    engine.stop();
}

/// The gateway has shown the screen, and says that it has not.
#[test]
fn a_session_that_goes_on_is_not_ended_by_a_gateway_that_fails_late() {
    let (folder, port) = (TempDir::new(), free_port());
    let (shop, _) = shop(Duration::ZERO);
    let id = Arc::new(Mutex::new(String::new()));
    let begun = Arc::clone(&id);
    let gateway = StrictBackend::answering(move |received| {
        let screen: serde_json::Value = serde_json::from_slice(&received.body).unwrap();
        let session = screen["id"].as_str().unwrap().to_owned();
        assert!(reply_of(port, &session, "9").contains("Please try again"));
        *begun.lock().unwrap() = session;
        b"HTTP/1.1 500 Failed\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let menu = menu_with(port, gateway.port(), shop.port(), "", &pushing(""));
    folder.write("flows/menu.yaml", &(menu + OFFER));
    folder.write("flows/offers.yaml", &offers(port));
    let data = folder.path().join("data").display().to_string();
    let engine = Engine::run(&[&folder.path().join("flows")], &["--data", &data]);
    let body = r#"{"to":"254711000001","price":50}"#;
    assert_eq!(post(port, "/offers", "application/json", body).status, 201);
    let id = id.lock().unwrap().clone();
    assert_eq!(reply_of(port, &id, "9*1"), "END Bought");
    engine.stop();
}

/// The gateway shows the screen, whether or not whoever wanted it waits.
#[test]
fn a_session_is_known_although_the_client_of_its_flow_has_left() {
    let (folder, port) = (TempDir::new(), free_port());
    let (shop, _) = shop(Duration::ZERO);
    let is_asked = Arc::new(Mutex::new(false));
    let asked = Arc::clone(&is_asked);
    let gateway = StrictBackend::answering(move |_| {
        *asked.lock().unwrap() = true;
        thread::sleep(Duration::from_millis(500));
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11";
        format!("{head}\r\n\r\n{{\"id\":\"g1\"}}").into_bytes()
    });
    let push = pushing("  session: .id\n");
    let menu = menu_with(port, gateway.port(), shop.port(), "", &push);
    folder.write("flows/menu.yaml", &(menu + OFFER));
    folder.write("flows/offers.yaml", &offers(port));
    let data = folder.path().join("data").display().to_string();
    let engine = Engine::run(&[&folder.path().join("flows")], &["--data", &data]);
    let body = r#"{"to":"254711000001","price":50}"#;
    let mut client = testkit::RawClient::connect(port);
    let head = "POST /offers HTTP/1.1\r\nHost: a\r\nContent-Type: application/json";
    let head = format!("{head}\r\nContent-Length: {}\r\n\r\n", body.len());
    client.send(head + body);
    testkit::wait_until("the gateway is asked", || *is_asked.lock().unwrap());
    drop(client);
    assert_eq!(reply_of(port, "g1", "1"), "END Bought");
    engine.stop();
}

/// A session that a flow has begun, and that nobody answers, does not take the place of one that
/// its subscriber can go on with.
#[test]
fn a_session_that_nobody_answers_keeps_none_from_being_resumed() {
    let (folder, port, _gateway, _sent, _shop) = push_place("", &[]);
    let menu = fs::read_to_string(folder.path().join("flows/menu.yaml")).unwrap();
    let menu = menu
        .replace(
            "languages: [en]",
            "languages: [en]\nsessions: { resume: 1h }\nkeys: { home: { key: \"00\", text: Start } }",
        )
        .replace("{ text: Buy, go: bought }", "{ text: Buy, go: offer }")
        .replace("${ $price }", "${ $price // 20 }");
    folder.write("flows/menu.yaml", &menu);
    let data = folder.path().join("data").display().to_string();
    let engine = Engine::run(&[&folder.path().join("flows")], &["--data", &data]);
    assert!(reply_of(port, "a1", "").starts_with("CON Airtime"));
    let offer = reply_of(port, "a1", "1");
    assert!(offer.starts_with("CON Data for"), "{offer}");
    // The network drops it.
    let end = format!("sessionId=a1&phoneNumber={NUMBER}&serviceCode=*123%23&status=Incomplete");
    assert_eq!(post(port, "/ussd", FORM, &end).status, 200);
    let body = r#"{"to":"254711000001","price":50}"#;
    assert_eq!(post(port, "/offers", "application/json", body).status, 201);
    let resumed = reply_of(port, "a2", "");
    assert!(resumed.contains("Data for"), "{resumed}");
    engine.stop();
}

#[test]
fn sending_is_checked() {
    for (from, to, message) in [
        (
            "screen: offer,",
            "screen: start,",
            "cannot be entered at `start`",
        ),
        (
            "menu: airtime,",
            "menu: airtimes,",
            "there is no menu `airtimes`",
        ),
        (
            "set: { price: \"${ .price }\" }",
            "set: {}",
            "needs a value for `price`",
        ),
        ("set: { price:", "set: { prize:", "takes no `prize` there"),
        (
            "offer: [price]",
            "offers: [price]",
            "there is no screen `offers`",
        ),
        (
            "  do: [ { http:",
            "  do: [ { reply: {} } ] #",
            "the reply to the gateway",
        ),
        (
            "screens: { offer: [price] }",
            "screens: { bought: [], offer: [price] }",
            "sound",
        ),
    ] {
        let (folder, port) = (TempDir::new(), 8080);
        let text = menu_with(port, 8081, 8082, "", &pushing("")) + OFFER;
        let text = format!("{text}---{}", offers(port));
        assert!(text.contains(from), "{from}");
        let file = folder.write("menu.yaml", &text.replacen(from, to, 1));
        let (status, report) = checked(&file);
        if message == "sound" {
            assert_eq!(status, Some(0), "{to}\n{report}");
            continue;
        }
        assert_eq!(status, Some(1), "{to}\n{report}");
        assert!(report.contains(message), "{to}\n{report}");
    }
}
