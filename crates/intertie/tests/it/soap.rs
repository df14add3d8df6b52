//! SOAP against other people's: services made with spyne, clients made with zeep.

use testkit::servers::SoapPeer;
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
                      '${ $error.kind }', sku: '${ $reply.body.detail.OutOfStock.sku }' } }\n  - on: soap-fault\n    \
                      reply: { status: 401, body: '${ $reply.body.reason }' }\n";
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
            flow("hangs", "{ soap: v11.wsdl }", "operation: CheckStock", "limits: { time: 1s }\n"),
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
    for version in ["v11", "v12"] {
        let (status, text) = caller.ask(version, items);
        assert_eq!(status, 200, "{version}: {text} {}", caller.engine.process.output());
        println!("{text}");
        let gone = caller.ask(version, r#"{"item":{"@sku":"gone","qty":1}}"#);
        println!("{gone:?}");
    }
    for (flow, body) in [("bare", r#"{"@sku":"a","qty":3}"#), ("digest", "{}"), ("text", "{}"), ("nobody", "{}"), ("v11", r#"{"item":{"qty":"x","@sku":"a"}}"#),
        ("hangs", r#"{"item":{"@sku":"slow","qty":1}}"#)] {
        println!("{flow} {:?}", caller.ask(flow, body));
    }
    println!("{}", caller.engine.stop());
    panic!("look");
}
