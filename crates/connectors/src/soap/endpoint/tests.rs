//! Requests that are refused, and the pages of `GET`.

use bytes::Bytes;
use component::connection::Connections;
use component::definition::Surroundings;
use component::evaluation::Evaluation;
use component::state::States;
use config::{Report, Sources};
use message::Headers;

use crate::soap::names;

use super::*;

const ERP: &[u8] = include_bytes!("../testdata/erp.wsdl");

fn endpoint(yaml: &str) -> Result<Arc<dyn Around>, Vec<String>> {
    let (mut sources, mut report) = (Sources::default(), Report::default());
    let source = sources.add("t.yaml", yaml.as_bytes(), &mut report).unwrap();
    let node = config::parse(&sources, source, &mut report).remove(0);
    let states = States::default();
    let mut context = SourceContext {
        report: &mut report,
        flow: &"test".into(),
        connections: &Connections::default(),
        read_http: &|_, _| None,
        evaluation: &Evaluation::default(),
        surroundings: &Surroundings {
            files: &|_, name| match name {
                "erp.wsdl" => Ok(Bytes::from_static(ERP)),
                "a/main.wsdl" => Ok(Bytes::from(String::from_utf8_lossy(ERP).replace(
                    "<wsdl:types>",
                    "<wsdl:import namespace='u' location='../b/other.wsdl'/><wsdl:types>",
                ))),
                "b/other.wsdl" => Ok(Bytes::from_static(
                    b"<definitions xmlns='http://schemas.xmlsoap.org/wsdl/'/>",
                )),
                _ => Err("it is not there".to_owned()),
            },
            folder: &|_| std::path::PathBuf::new(),
            states: &states,
            dead_letters: component::testing::no_dead_letters,
        },
    };
    let built = (DEFINITION.build)(&node, &mut context);
    let told = report.diagnostics().iter();
    built.ok_or(told.map(|it| it.message().to_owned()).collect())
}

fn request(method: Method, query: Option<&str>, lines: &[(&str, &str)], body: &str) -> Request {
    let mut headers = Headers::new();
    headers.append("Host", "shop.example:8080");
    lines
        .iter()
        .for_each(|(name, value)| headers.append(name, value));
    Request {
        method,
        path: "/ws".into(),
        query: query.map(str::to_owned),
        parameters: Vec::new(),
        headers,
        body: body.as_bytes().to_vec().into(),
        peer: [127, 0, 0, 1].into(),
        proxy: None,
        is_secure: false,
        certificate: None,
        caller: None,
    }
}

/// Status and text of a request that never reaches the flow.
fn refused(endpoint: &dyn Around, lines: &[(&str, &str)], body: &str) -> (u16, String) {
    match endpoint.open(request(Method::Post, None, lines, body)) {
        Opened::Reply(reply) => (
            reply.status,
            String::from_utf8_lossy(reply.body.as_bytes()).into_owned(),
        ),
        Opened::Message(request, _) => panic!("taken: {:?}", request.body),
        Opened::Stream(..) => panic!("SOAP has no streams"),
    }
}

fn envelope(header: &str, body: &str) -> String {
    format!(
        "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/' \
         xmlns='urn:example:erp:types'><e:Header>{header}</e:Header><e:Body>{body}</e:Body>\
         </e:Envelope>"
    )
}

#[test]
fn what_is_no_request_is_a_fault() {
    let endpoint = endpoint("{ wsdl: erp.wsdl, port: Erp11 }").unwrap();
    let xml = [("Content-Type", "text/xml")];
    let ping = envelope("", "<Ping>1</Ping>");
    let v12 = ping.replace("http://schemas.xmlsoap.org/soap/envelope/", names::SOAP12);
    let none = ping.replace("http://schemas.xmlsoap.org/soap/envelope/", "urn:none");
    let must = envelope(
        "<x:S xmlns:x='u:x' e:mustUnderstand='1'/>",
        "<Ping>1</Ping>",
    );
    for (body, expected) in [
        (
            "<a>",
            "Client</faultcode><faultstring>an element has no end tag",
        ),
        ("<!DOCTYPE a><a/>", "a document type declaration"),
        ("<html/>", "it is no SOAP envelope but `html`"),
        (
            v12.as_str(),
            "VersionMismatch</faultcode><faultstring>this service speaks SOAP 1.1",
        ),
        (none.as_str(), "VersionMismatch</faultcode>"),
        (
            must.as_str(),
            "MustUnderstand</faultcode><faultstring>the header block `S`",
        ),
        (
            &envelope("", "<Pin/>"),
            "there is no operation for a body with `Pin`",
        ),
        (
            &envelope("", "<Ping>x</Ping>"),
            "is an integer within its range",
        ),
        (
            &envelope("", "<Ping>1</Ping><Ping>1</Ping>"),
            "the body holds several elements",
        ),
        (
            &envelope("<Trace><a/></Trace>", "<CheckStock/>"),
            "the header is wrong: `Trace.a` has text and no elements",
        ),
    ] {
        let (status, text) = refused(&*endpoint, &xml, body);
        assert!(
            status == 500 && text.contains(expected),
            "{body}: {status} {text}"
        );
    }
    let lines = [("Content-Type", "text/xml"), ("SOAPAction", "\"add\"")];
    let (_, text) = refused(&*endpoint, &lines, &ping);
    assert!(
        text.contains("the action is that of no operation with this body"),
        "{text}"
    );
    let (status, _) = refused(&*endpoint, &[("Content-Type", "application/json")], "{}");
    assert_eq!(status, 415);
    let (_, text) = refused(
        &*endpoint,
        &[("Content-Type", "multipart/related; a=b")],
        "",
    );
    assert!(text.contains("attachments"), "{text}");
}

#[test]
fn the_flow_gets_the_content_and_the_operation() {
    let endpoint = endpoint("{ wsdl: erp.wsdl }").unwrap();
    let lines = [
        ("Content-Type", "text/xml"),
        ("SOAPAction", "ping"),
        ("Soap-Operation", "Forged"),
        ("Soap-Header", "{}"),
    ];
    let body = envelope("<x:S xmlns:x='u:x'/>", "<Ping>1</Ping>");
    let Opened::Message(request, _) = endpoint.open(request(Method::Post, None, &lines, &body))
    else {
        panic!("it is refused");
    };
    assert_eq!(request.body.as_bytes(), b"1");
    assert_eq!(
        request.headers.get("Content-Type"),
        Some(&b"application/json"[..])
    );
    assert_eq!(request.headers.get("Soap-Operation"), Some(&b"Ping"[..]));
    assert_eq!(request.headers.get("Soap-Header"), None);
}

#[test]
fn an_operation_of_one_version_is_served_in_that_version() {
    // Only the port of SOAP 1.1 has it.
    let endpoint = endpoint("{ wsdl: erp.wsdl, operation: Ping }").unwrap();
    let ping = envelope("", "<Ping>1</Ping>");
    let xml = [("Content-Type", "text/xml")];
    let opened = endpoint.open(request(Method::Post, None, &xml, &ping));
    assert!(matches!(opened, Opened::Message(..)));
    let v12 = ping.replace("http://schemas.xmlsoap.org/soap/envelope/", names::SOAP12);
    let (_, text) = refused(&*endpoint, &xml, &v12);
    assert!(text.contains("this service speaks SOAP 1.1"), "{text}");
}

#[test]
fn all_files_are_shown_with_the_address_that_was_called() {
    let endpoint = endpoint("{ wsdl: a/main.wsdl, port: Erp11 }").unwrap();
    let page = |query: Option<&str>| match endpoint.open(request(Method::Get, query, &[], "")) {
        Opened::Reply(reply) => (
            reply.status,
            String::from_utf8_lossy(reply.body.as_bytes()).into_owned(),
        ),
        Opened::Message(..) | Opened::Stream(..) => panic!("GET reaches the flow"),
    };
    let (status, text) = page(Some("WSDL"));
    assert_eq!(status, 200);
    assert!(
        text.contains("<soap:address location=\"http://shop.example:8080/ws\"/>"),
        "{text}"
    );
    assert!(text.contains(" location=\"http://shop.example:8080/ws?file=b/other.wsdl\"/>"));
    assert!(!text.contains("erp.example"), "{text}");
    assert_eq!(page(Some("file=b%2Fother.wsdl")).0, 200);
    assert_eq!(page(Some("file=../etc/passwd")).0, 404);
    assert_eq!(page(None).0, 405);
}

#[test]
fn what_cannot_be_served_is_told() {
    for (yaml, expected) in [
        ("{ wsdl: none.wsdl }", "none.wsdl: the file cannot be read"),
        ("{ wsdl: erp.wsdl, port: Erp1 }", "there is no port `Erp1`"),
        (
            "{ wsdl: erp.wsdl, operation: Pong, port: Erp11 }",
            "there is no operation `Pong`",
        ),
        (
            "{ wsdl: erp.wsdl, operation: Pong }",
            "there is no operation `Pong`",
        ),
        (
            "{ wsdl: erp.wsdl, operation: Ping, port: Erp12 }",
            "there is no operation `Ping`",
        ),
        (
            "{ wsdl: erp.wsdl, port: Legacy }",
            "`use=\"encoded\"` is not supported",
        ),
        ("{ wsdl: erp.wsdl, patz: 1 }", "patz"),
    ] {
        let told = endpoint(yaml).err().unwrap_or_default();
        assert!(
            told.len() == 1 && told[0].contains(expected),
            "{yaml}: {told:?}"
        );
    }
}
