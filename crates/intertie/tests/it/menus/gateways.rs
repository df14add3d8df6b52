//! Gateways beside Africa's Talking and Hubtel: by query, by XML, and as a file describes them.

use testkit::RawClient;

use super::*;

fn engine_with(gateway: &str, method: &str) -> (TempDir, StrictBackend, u16, Engine) {
    let (folder, port) = (TempDir::new(), free_port());
    let (backend, _) = shop(Duration::ZERO);
    let text = menu(port, backend.port(), "GATEWAY")
        .replace("\"POST 127", &format!("\"{method} 127"))
        .replace("gateway: GATEWAY", gateway);
    let file = folder.write("menu.yaml", &text);
    let data = folder.path().join("data").display().to_string();
    let engine = Engine::run(&[&file], &["--data", &data]);
    (folder, backend, port, engine)
}

fn get(port: u16, target: &str) -> String {
    let mut client = RawClient::connect(port);
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let response = client.response();
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.header("cache-control"), Some("no-store"));
    response.text()
}

#[test]
fn a_gateway_may_send_queries() {
    let (_folder, _backend, port, engine) = engine_with("gateway: get", "GET");
    let send = |kind: &str, text: &str, sequence: u64| {
        get(
            port,
            &format!(
                "/ussd?type={kind}&session=q1&msisdn=%2B254711000001&text={text}&sequence={sequence}"
            ),
        )
    };
    assert_eq!(send("1", "*123%23", 1), "CON Airtime\n1. Buy\n0. Exit");
    assert_eq!(send("2", "1", 2), "CON How much?");
    assert_eq!(send("reply", "1", 2), "CON How much?", "the request again");
    assert_eq!(send("2", "0", 3), "CON Please try again.\nHow much?");
    assert_eq!(send("4", "", 4), "END ");
    assert!(send("2", "5", 5).starts_with("END The session is over."));
    for target in [
        "/ussd",
        "/ussd?type=1&msisdn=%2B254711000001&text=*123%23",
        "/ussd?type=1&session=a&msisdn=nobody&text=*123%23",
        "/ussd?type=&session=a&msisdn=%2B254711000001&text=1",
        "/ussd?type=%EF%BC%92&session=a&msisdn=%2B254711000001&text=1",
        "/ussd?type=2&session=a&msisdn=%2B254711000001&text=1&sequence=-1",
        "/ussd?type=2&session=a&msisdn=%2B254711000001&text=1&sequence=abc",
    ] {
        let mut client = RawClient::connect(port);
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.response().status, 400, "{target}");
    }
    engine.stop();
}

#[test]
fn a_gateway_may_speak_xml() {
    let (_folder, _backend, port, engine) = engine_with("gateway: xml, line_breaks: crlf", "POST");
    let send = |kind: u8, message: &str| {
        let body = format!(
            "<?xml version=\"1.0\"?><ussd><msisdn>254711000001</msisdn><sessionid>x1</sessionid>\
             <type>{kind}</type><msg>{message}</msg></ussd>"
        );
        let response = post(port, "/ussd", "text/xml", &body);
        assert_eq!(response.status, 200, "{}", response.text());
        response.text()
    };
    assert_eq!(
        send(1, "*123#"),
        "<ussd><sessionid>x1</sessionid><type>2</type><msg>Airtime\r\n1. Buy\r\n0. Exit</msg></ussd>"
    );
    assert_eq!(
        send(2, "0"),
        "<ussd><sessionid>x1</sessionid><type>3</type><msg>Goodbye</msg></ussd>"
    );
    let response = post(
        port,
        "/ussd",
        "text/xml",
        "<ussd><msisdn>&hostile;</msisdn></ussd>",
    );
    assert_eq!(response.status, 400);
    engine.stop();
}

/// Documents that are indented, and inputs without a character, are sound.
#[test]
fn white_space_and_empty_elements_of_xml_are_no_reason_to_end_anything() {
    let (_folder, _backend, port, engine) = engine_with("gateway: xml", "POST");
    let send = |kind: &str, message: &str| {
        let body = format!(
            "<ussd>\n  <msisdn> 254711000001\n  </msisdn>\n  <sessionid>\n x1 </sessionid>\n  \
             <type> {kind} </type>\n  {message}\n</ussd>"
        );
        let response = post(port, "/ussd", "text/xml", &body);
        (response.status, response.text())
    };
    let reply = |text: &str| {
        let body = format!("<ussd><sessionid>x1</sessionid><type>2</type><msg>{text}</msg></ussd>");
        (200, body)
    };
    let start = "Airtime\n1. Buy\n0. Exit";
    assert_eq!(send("1", "<msg> *123# </msg>"), reply(start));
    let again = format!("Please try again.\n{start}");
    assert_eq!(send("2", "<msg></msg>"), reply(&again));
    assert_eq!(send("2", "<msg/>"), reply(&again));
    assert_eq!(send("2", "<msg> 1\n</msg>"), reply("How much?"));
    for (kind, message) in [
        ("", "<msg>1</msg>"),
        ("２", "<msg>1</msg>"),
        ("2", ""),
        ("2", "<msg>1</msg><sequence>abc</sequence>"),
        ("2", "<msg>1</msg><sequence>-1</sequence>"),
    ] {
        assert_eq!(send(kind, message).0, 400, "{kind}, {message}");
    }
    assert_eq!(send("2", "<msg>1</msg>"), reply("PIN for 1?"));
    engine.stop();
}

#[test]
fn a_file_describes_any_other_gateway() {
    let described = r#"gateway: { request: {
        session: .body.request.id, msisdn: '.headers["x-msisdn"]', text: '.body.request.input // ""',
        event: 'if .body.request.new then "dial" elif .body.request.gone then "end" else "reply" end' },
      reply: { content_type: application/json, body: '${ { id: .session, say: .text, more: (.ends | not), late: (now > 1700000000) } }' } }"#;
    let (_folder, _backend, port, engine) = engine_with(described, "POST");
    let send = |body: &str| {
        let mut client = RawClient::connect(port);
        client.send(format!(
            "POST /ussd HTTP/1.1\r\nHost: a\r\nX-MSISDN: +254711000001\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        let response = client.response();
        assert_eq!(response.status, 200, "{}", response.text());
        response.text()
    };
    assert_eq!(
        send(r#"{"request":{"id":"d1","new":true,"input":"*123#"}}"#),
        r#"{"id":"d1","say":"Airtime\n1. Buy\n0. Exit","more":true,"late":true}"#
    );
    assert_eq!(
        send(r#"{"request":{"id":"d1","input":"0"}}"#),
        r#"{"id":"d1","say":"Goodbye","more":false,"late":true}"#
    );
    engine.stop();
}

#[test]
fn descriptions_are_checked() {
    let sound = menu(8080, 8081, "GATEWAY");
    for (gateway, code) in [
        ("gateway: smoke-signals", "IT0"),
        ("gateway: { request: { session: .a } }", "IT0"),
        (
            "gateway: { request: { session: '.a | nothing(1)', msisdn: .b, event: .c, text: .d }, reply: { body: x } }",
            "IT0230",
        ),
        (
            "gateway: { request: { session: .a, msisdn: .b, event: .c, text: .d }, reply: { body: '${ .text | }' } }",
            "IT0230",
        ),
        (
            "gateway: { request: { session: .a, msisdn: .b, event: .c, text: '.query | .d' }, reply: { body: x } }",
            "IT0801",
        ),
    ] {
        let folder = TempDir::new();
        let file = folder.write("menu.yaml", &sound.replace("gateway: GATEWAY", gateway));
        let (status, report) = checked(&file);
        assert_eq!(status, Some(1), "{gateway}\n{report}");
        assert!(report.contains(code), "{gateway}\n{report}");
    }
}

#[test]
fn texts_for_translators_are_checked() {
    let flow = |folder: &TempDir| {
        folder.write(
            "menu.yaml",
            "menu: hours\nfrom: { ussd: { http: POST 127.0.0.1:8080/ussd, gateway: get, codes: { \"*1#\": hours } } }\n\
             languages: [en, sw]\ntexts: ./texts\nscreens:\n  hours: { text: hours.open, end: true }\n",
        )
    };
    for (english, swahili, wanted) in [
        (
            r#"{"hours":{"open":"8 to 5"}}"#,
            Some(r#"{"hours.open":"2 hadi 11"}"#),
            None,
        ),
        (
            r#"{"hours":{"open":"8 to 5"}}"#,
            None,
            Some("texts in `sw` cannot be read"),
        ),
        (
            r#"{"hours":{"open":"8 to 5"}}"#,
            Some("{"),
            Some("texts/sw.json: EOF"),
        ),
        (
            r#"{"hours":{"open":"8 to 5"}}"#,
            Some(r#"{"hours":{"opem":"2"}}"#),
            Some("did you mean `hours.opem`?"),
        ),
        (
            r#"{"hours":{"open":8}}"#,
            Some(r#"{"hours.open":"2"}"#),
            Some("`hours.open` is no text"),
        ),
        (
            r#"{"hours":{"open":"${ $amount }"}}"#,
            Some(r#"{"hours.open":"2"}"#),
            Some("IT0230"),
        ),
    ] {
        let folder = TempDir::new();
        let file = flow(&folder);
        folder.write("texts/en.json", english);
        if let Some(swahili) = swahili {
            folder.write("texts/sw.json", swahili);
        }
        let (status, report) = checked(&file);
        assert_eq!(status, Some(i32::from(wanted.is_some())), "{report}");
        assert!(report.contains(wanted.unwrap_or_default()), "{report}");
    }
    let folder = TempDir::new();
    let file = flow(&folder);
    folder.write("texts/en.json", r#"{"hours.open":"8 to 5","old":"x"}"#);
    folder.write("texts/sw.json", r#"{"hours.open":"2 hadi 11"}"#);
    let (_, report) = checked(&file);
    assert!(
        report.contains("does not use these texts of texts/en.json: old"),
        "{report}"
    );
}

#[test]
fn what_is_typed_into_queries_is_in_no_access_log() {
    let described = r#"gateway: { request: {
        session: .query.id, msisdn: .query.phone, text: '.query["typed"]',
        event: 'if .query.new then "dial" else "reply" end' }, reply: { body: "${ .text }" } }"#;
    for (gateway, begin, typed) in [
        (
            "gateway: get",
            "type=1&session=q1&msisdn=254711000001&text=*123%23",
            "type=2&session=q1&msisdn=254711000001&text=",
        ),
        (
            described,
            "new=1&id=q1&phone=254711000001&typed=*123%23",
            "id=q1&phone=254711000001&typed=",
        ),
    ] {
        let (folder, port) = (TempDir::new(), free_port());
        let (backend, _) = shop(Duration::ZERO);
        let text = menu(port, backend.port(), "GATEWAY")
            .replace("\"POST 127", "\"GET 127")
            .replace("gateway: GATEWAY", gateway);
        let text = format!("engine: {{ log: {{ access: true }} }}\n---{text}");
        let file = folder.write("menu.yaml", &text);
        let data = folder.path().join("data").display().to_string();
        let engine = Engine::run(&[&file], &["--data", &data]);
        get(port, &format!("/ussd?{begin}"));
        get(port, &format!("/ussd?{typed}1"));
        get(port, &format!("/ussd?{typed}50"));
        let confirm = get(port, &format!("/ussd?{typed}918273"));
        assert!(confirm.contains("Buy for 50"), "{confirm}");
        let has_all = || engine.process.output().matches("/ussd?").count() == 4;
        testkit::wait_until("the access log", has_all);
        let log = engine.stop();
        assert!(
            !log.contains("918273") && !log.contains("254711000001"),
            "{log}"
        );
    }
}
