//! SOAP against other people's: services made with spyne, clients made with zeep.

use testkit::servers::{SoapPeer, zeep};
use testkit::{TempDir, free_port};

use crate::support::{Engine, post};

/// An engine whose flows call the operations of a real service, by the WSDL files that it serves.
struct Caller {
    _peer: SoapPeer,
    _folder: TempDir,
    engine: Engine,
    port: u16,
}

impl Caller {
    fn start() -> Self {
        let peer = SoapPeer::start();
        let (folder, port) = (TempDir::new(), free_port());
        for name in ["v11", "v12", "bare"] {
            folder.write(&format!("{name}.wsdl"), &peer.wsdl(name));
        }
        let flow = |name: &str, connection: &str, call: &str, rest: &str| {
            format!(
                "flow: {name}\nuse:\n  peer: {connection}\nfrom:\n  \
                 http: POST 127.0.0.1:{port}/{name}\nsteps:\n  - soap: {{ to: peer, {call} }}\n\
                 {rest}---\n"
            )
        };
        let faults = "on_error:\n  - on: OutOfStock\n    reply: { status: 409, body: { type: \
                      '${ $error.kind }', sku: '${ $reply.body.detail.OutOfStock.sku }' } }\n  \
                      - on: soap-fault\n    reply: { status: 401, body: \
                      '${ $reply.body.reason }' }\n";
        let check = "operation: CheckStock";
        let who = "operation: Who, body: { greeting: hello }";
        let token = |digest: &str| {
            format!(
                "{{ soap: v11.wsdl, security: {{ username: me, password: 'p&ss'{digest}, \
                 timestamp: 5m }} }}"
            )
        };
        let flows = [
            flow("v11", "{ soap: v11.wsdl }", check, faults),
            flow("v12", "{ soap: v12.wsdl }", check, faults),
            flow("bare", "{ soap: bare.wsdl }", "operation: Price", ""),
            flow("digest", &token(", digest: true"), who, faults),
            flow("text", &token(""), who, faults),
            flow("nobody", "{ soap: v11.wsdl }", who, faults),
            flow(
                "hangs",
                "{ soap: v11.wsdl }",
                "operation: CheckStock",
                "limits: { time: 1s }\n",
            ),
        ];
        folder.write("flow.yaml", &flows.concat());
        let engine = Engine::run(&[folder.path()], &[]);
        Self {
            _peer: peer,
            _folder: folder,
            engine,
            port,
        }
    }

    fn ask(&self, flow: &str, body: &str) -> (u16, String) {
        let reply = post(self.port, &format!("/{flow}"), "application/json", body);
        (reply.status, reply.text().to_owned())
    }
}

#[test]
fn operations_of_a_real_service_are_called() {
    let caller = Caller::start();
    let items = r#"{"item":[{"qty":2,"@sku":"a","note":"now"},{"@sku":"b","qty":1}]}"#;
    let lines = concat!(
        r#"{"CheckStockResult":{"Line":[{"@sku":"a","price":19.80,"ready":"2026-01-31T12:00:00"},"#,
        r#"{"@sku":"b","price":9.90,"ready":null}]}}"#
    );
    for version in ["v11", "v12"] {
        assert_eq!(
            caller.ask(version, items),
            (200, lines.to_owned()),
            "{version}"
        );
        let gone = caller.ask(version, r#"{"item":{"@sku":"gone","qty":1}}"#);
        let fault = r#"{"type":"OutOfStock","sku":"gone"}"#;
        assert_eq!(gone, (409, fault.to_owned()), "{version}");
    }
    let price = caller.ask("bare", r#"{"@sku":"a","qty":3}"#);
    assert_eq!(price, (200, "3.30".to_owned()));
    for (flow, kind) in [("digest", "PasswordDigest"), ("text", "PasswordText")] {
        let who = format!("{{\"WhoResult\":\"hello me {kind}\"}}");
        assert_eq!(caller.ask(flow, "{}"), (200, who), "{flow}");
    }
    assert_eq!(caller.ask("nobody", "{}"), (401, "no token".to_owned()));
    let (status, text) = caller.ask("v11", r#"{"item":{"qty":"x","@sku":"a"}}"#);
    assert!(
        status == 400 && text.contains("`item[0].qty` is an integer"),
        "{text}"
    );
    let (status, _) = caller.ask("hangs", r#"{"item":{"@sku":"slow","qty":1}}"#);
    assert_eq!(status, 504);
    let told = caller.engine.stop();
    assert!(told.contains("connection peer"), "{told}");
    assert!(!told.contains("p&ss"), "{told}");
}

/// An engine that serves the operations of a WSDL file.
fn serve(folder: &TempDir, port: u16) -> Engine {
    folder.write("erp.wsdl", include_str!("../data/failures/erp.wsdl"));
    let flow = |name: &str, port_name: &str, path: &str, steps: &str| {
        format!(
            "flow: {name}\nfrom:\n  soap: {{ wsdl: erp.wsdl{port_name}, listen: \
             '127.0.0.1:{port}', path: {path} }}\nsteps:\n{steps}---\n"
        )
    };
    let steps = r#"  - choose:
      - when: $headers["soap-operation"] == "Ping"
        steps: [ reply: { body: "${ . + 0.5 }" } ]
      - when: $headers["soap-operation"] == "Add"
        steps: [ reply: { body: { sum: "${ .a + .b }" } } ]
      - when: $headers["soap-operation"] == "Notify"
        steps: [ log: "told ${ . }", reply: {} ]
  - choose:
      - when: .item[0]["@sku"] == "gone"
        steps:
          - reply:
              status: 409
              body: { fault: OutOfStock, reason: none left, detail: { sku: gone, available: 0 } }
      - when: .item[0]["@sku"] == "odd"
        steps: [ raise: { type: odd, status: 500, detail: something odd } ]
      - when: .item[0]["@sku"] == "bad"
        steps: [ reply: { body: { inStock: perhaps } } ]
  - map: |
      ($headers["soap-header"] // "{}" | fromjson | .Trace // "none") as $trace
      | { inStock: true, line: [.item[] | { "@sku": $trace, price: 9.90, ready: null }] }
"#;
    folder.write("flow.yaml", &flow("erp", "", "/ws/erp", steps));
    Engine::run(&[folder.path()], &[])
}

#[test]
fn a_real_client_calls_our_operations() {
    let (folder, port) = (TempDir::new(), free_port());
    let engine = serve(&folder, port);
    let result = zeep(&[&format!("http://127.0.0.1:{port}/ws/erp?wsdl")]);
    let told = String::from_utf8_lossy(&result.stdout).into_owned();
    let errors = String::from_utf8_lossy(&result.stderr);
    assert!(
        result.status.success(),
        "{told}\n{errors}\n{}",
        engine.process.output()
    );
    let line = r#"{"price": "9.90", "ready": null, "sku": "none"}"#;
    let detail = concat!(
        r#"[["{urn:example:erp:types}OutOfStock", [["{urn:example:erp:types}sku", "gone"], "#,
        r#"["{urn:example:erp:types}available", "0"]]]]"#
    );
    let wrong = "the body is none that the service takes: `item[0].qty` is at least 1";
    let mut expected = Vec::new();
    for (port, client, server) in [
        ("Erp11", "Client", "Server"),
        ("Erp12", "Sender", "Receiver"),
    ] {
        expected.push(format!(
            r#"["{port}", {{"inStock": true, "line": [{line}, {line}]}}]"#
        ));
        for (case, code, message, detail) in [
            ("fault", client, "none left", detail),
            ("other", server, "something odd", "[]"),
            ("wrong", client, wrong, "[]"),
            (
                "bad",
                server,
                "the flow's result is none that the service has",
                "[]",
            ),
        ] {
            let message = format!(r#""message": "{message}", "detail": {detail}"#);
            expected.push(format!(
                r#"["{port} {case}", {{"code": "n0:{code}", {message}}}]"#
            ));
        }
    }
    let line = line.replace("none", "t-1");
    expected.push(format!(
        r#"["header", {{"inStock": true, "line": [{line}]}}]"#
    ));
    expected.extend(["bare", "rpc", "one-way"].map(|it| match it {
        "bare" => r#"["bare", "7.5"]"#.to_owned(),
        "rpc" => r#"["rpc", 5]"#.to_owned(),
        _ => r#"["one-way", null]"#.to_owned(),
    }));
    assert_eq!(told.lines().collect::<Vec<_>>(), expected);
    let log = engine.stop();
    assert!(log.contains("told hello"), "{log}");
    assert!(log.contains("CheckStock: `inStock` is a boolean"), "{log}");
}
