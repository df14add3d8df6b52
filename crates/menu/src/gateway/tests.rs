//! Requests and replies of the gateways that are known.

use std::net::{IpAddr, Ipv4Addr};

use message::Headers;

use super::*;

fn request(body: impl Into<Vec<u8>>) -> Request {
    Request {
        method: Method::Post,
        path: "/ussd".to_owned(),
        query: None,
        parameters: Vec::new(),
        headers: Headers::new(),
        body: body.into().into(),
        peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
        proxy: None,
        is_secure: false,
        certificate: None,
        caller: None,
    }
}

fn gateway(format: Format) -> Gateway {
    Gateway {
        format,
        line_break: LineBreak::Lf,
        country: None,
    }
}

fn opened(gateway: &Gateway, body: impl Into<Vec<u8>>) -> Result<(SessionInput, Note), u16> {
    match gateway.open(request(body)) {
        Opened::Message(request, note) => {
            let input = SessionInput::from_bytes(request.body.as_bytes()).unwrap();
            Ok((input, note))
        }
        Opened::Reply(reply) => Err(reply.status),
        Opened::Stream(..) => panic!("a gateway opens no streams"),
    }
}

fn closed(gateway: &Gateway, note: &Note, ends: bool) -> String {
    let text = "Hello\n1. Buy".to_owned();
    let reply = Screen { text, ends }.to_reply();
    let (reply, failure) = gateway.close(note, Ok(reply));
    assert!(failure.is_none() && reply.status == 200);
    String::from_utf8(reply.body.as_bytes().to_vec()).unwrap()
}

#[test]
fn africas_talking_tells_the_end_of_a_session() {
    let gateway = gateway(Format::AfricasTalking);
    let body = "date=2026-11-28+10%3A00%3A00&sessionId=AT_1&serviceCode=*123%23\
                &networkCode=63902&phoneNumber=%2B254711000001&status=Incomplete\
                &cost=KES+1.0&durationInMillis=9000&hopsCount=2&input=1&lastAppResponse=CON+Hi";
    let (input, _) = opened(&gateway, body).unwrap();
    assert_eq!((&*input.session, input.event), ("AT_1", SessionEvent::End));
    let neither = "sessionId=AT_1&phoneNumber=%2B254711000001&serviceCode=*123%23";
    assert_eq!(opened(&gateway, neither).unwrap_err(), 400);
}

#[test]
fn africas_talking_sends_forms_and_gets_texts() {
    let gateway = gateway(Format::AfricasTalking);
    let body = "sessionId=AT_1&phoneNumber=%2B254711000001&networkCode=63902\
                &serviceCode=*123%23&text=1*50";
    let (input, note) = opened(&gateway, body).unwrap();
    assert_eq!((&*input.session, &*input.msisdn), ("AT_1", "+254711000001"));
    let typed = SessionEvent::Typed {
        code: "*123#".to_owned(),
        text: "1*50".to_owned(),
    };
    assert_eq!(input.event, typed);
    assert_eq!(closed(&gateway, &note, false), "CON Hello\n1. Buy");
    assert_eq!(closed(&gateway, &note, true), "END Hello\n1. Buy");
    let fault = Fault::invalid("no");
    let (reply, _) = gateway.close(&note, Err(&fault));
    assert!(reply.body.as_bytes().starts_with(b"END The service"));
}

#[test]
fn hubtel_sends_and_gets_json() {
    let gateway = gateway(Format::Hubtel);
    let body = r#"{"Type":"Response","Message":"2","ServiceCode":"713","Operator":"mtn",
                   "Sequence":3,"SessionId":"h1","Mobile":"233244000001"}"#;
    let (input, note) = opened(&gateway, body).unwrap();
    let reply = SessionEvent::Reply {
        text: "2".to_owned(),
        sequence: Some(3),
    };
    assert_eq!(input.event, reply);
    let shown = r#"{"SessionId":"h1","Type":"Response","Message":"Hello\n1. Buy"}"#;
    assert_eq!(closed(&gateway, &note, false), shown);
    for (kind, expected) in [
        ("Initiation", SessionEvent::Dial("*713#".to_owned())),
        ("Timeout", SessionEvent::End),
        ("Release", SessionEvent::End),
    ] {
        let body = format!(
            r#"{{"Type":"{kind}","Message":"*713#","SessionId":"h1","Mobile":"233244000001"}}"#
        );
        assert_eq!(opened(&gateway, body).unwrap().0.event, expected);
    }
}

/// Neither a missing field nor one that is twice there, a wrong encoding or a huge text gets
/// further.
#[test]
fn requests_that_cannot_be_used_are_refused() {
    let number = "phoneNumber=254711000001";
    let code = "serviceCode=*123%23";
    let huge = format!("sessionId=1&{number}&{code}&text={}", "1*".repeat(1 << 19));
    for body in [
        String::new(),
        format!("sessionId=1&{number}&{code}"),
        format!("{number}&{code}&text="),
        format!("sessionId=&{number}&{code}&text="),
        format!("sessionId=1&sessionId=2&{number}&{code}&text="),
        format!("sessionId=1&{number}&{code}&text=1&text=2"),
        format!("sessionId=1&phoneNumber=abc&{code}&text="),
        format!("sessionId=1&{number}&{code}&text=%ff%fe"),
        format!("sessionId=1&{number}&{code}&text=1%00"),
        format!("sessionId=1&{number}&{code}&text=1%1b"),
        format!("sessionId={}&{number}&{code}&text=", "x".repeat(129)),
        format!("sessionId=1%00&{number}&{code}&text="),
        format!("sessionId=1%0d%0a&{number}&{code}&text="),
        format!("sessionId=1&{number}%00&{code}&text="),
        format!("sessionId=1&{number}&serviceCode=*123%00%23&text="),
        format!("sessionId=1%00&{number}&status=Success"),
        huge,
    ] {
        let found = opened(&gateway(Format::AfricasTalking), body.clone());
        assert_eq!(found.err(), Some(400), "{body:.100}");
    }
    for body in [
        "".to_owned(),
        "{}".to_owned(),
        "[".repeat(1 << 20),
        r#"{"Type":"Odd","SessionId":"1","Mobile":"233244000001"}"#.to_owned(),
        r#"{"Type":"Release","SessionId":"1\u0000","Mobile":"233244000001"}"#.to_owned(),
        r#"{"Type":"Release","SessionId":"1","Mobile":"233244000001\u0000"}"#.to_owned(),
        r#"{"Type":"Response","SessionId":1,"Mobile":"233244000001"}"#.to_owned(),
        r#"{"Type":"Response","Message":"\u0001","SessionId":"1","Mobile":"233244000001"}"#.into(),
        "{\"Type\":\"Response\",\"Message\":\"\u{7f}\",\"SessionId\":\"1\",\"Mobile\":\"23324400\"}"
            .to_owned(),
    ] {
        let found = opened(&gateway(Format::Hubtel), body.clone());
        assert_eq!(found.err(), Some(400), "{body:.100}");
    }
}
