//! The flows of the design: they are checked completely, and run.

use std::process::Output;

use testkit::{Authority, Process, TempDir, free_port};

use crate::support::{command, output, post};

const FLOWS: &str = include_str!("../data/design-flows.yaml");
const SECRETS: [(&str, &str); 3] = [
    ("MQ_URL", "amqp://shop:mq-passw0rd@mq.example/shop"),
    ("DB_URL", "sqlserver://shop:db-passw0rd@db.example/shop"),
    ("CRM_TOKEN", "token-of-the-crm"),
];

/// The flows as they stand in the design, as far as this build has their steps.
fn flows() -> String {
    let list = output(&["list"]);
    let list = String::from_utf8(list.stdout).unwrap();
    let has = |verb: &str| list.contains(&format!("\n  {verb} "));
    let mut flows = FLOWS.to_owned();
    if !has("validate") {
        flows = flows.replace("  - validate: { schema: ./schemas/order.json }\n", "");
    }
    if !has("parallel") {
        flows = in_a_row(&flows).replace("$got.", "$in.body.");
    }
    flows
}

/// What stands side by side under `parallel`, one after the other.
fn in_a_row(flows: &str) -> String {
    let around = [
        "  - parallel:",
        "      customer:",
        "      stock:",
        "      account:",
    ];
    let lines = flows
        .lines()
        .filter(|line| *line != "    as: got" && !around.iter().any(|it| line.starts_with(it)));
    let lines = lines.map(|line| match line.strip_prefix("        - ") {
        Some(step) => format!("  - {step}\n"),
        None => format!("{}\n", line.replacen("          ", "    ", 1)),
    });
    lines.collect()
}

fn folder() -> TempDir {
    let folder = TempDir::new();
    folder.write("flows.yaml", &flows());
    folder.write("schemas/order.json", r#"{ "type": "object" }"#);
    let wsdl = include_str!("../data/failures/erp.wsdl");
    folder.write("wsdl/erp.wsdl", wsdl);
    let engine = "engine: { secrets: { env: [MQ_URL, DB_URL, CRM_TOKEN] } }\n";
    folder.write("engine.yaml", engine);
    let issued = Authority::new("design").issue(&["localhost"]);
    folder.write("server.pem", &issued.cert);
    folder.write("server.key", &issued.key);
    folder
}

fn run(arguments: &[&str], folder: &TempDir) -> Output {
    let mut command = command();
    command.args(arguments).arg(folder.path()).envs(SECRETS);
    command.output().unwrap()
}

#[test]
fn the_flows_are_sound() {
    let folder = folder();
    let checked = run(&["check", "--format", "json"], &folder);
    let problems = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(problems, "");
    assert_eq!(checked.status.code(), Some(0));
}

#[test]
fn the_flows_run_and_say_what_they_cannot_reach() {
    let ports = [free_port(), free_port(), free_port()];
    let mut text = flows();
    for (old, new) in [":9090", ":8443", ":8080"].iter().zip(ports) {
        text = text.replace(old, &format!("127.0.0.1:{new}"));
    }
    // A host that nobody has would be asked for by name.
    text = text.replace("$secret.MQ_URL", "$secret.NEAR_URL");
    let folder = folder();
    folder.write("flows.yaml", &text);
    let engine = "engine: { secrets: { env: [NEAR_URL, DB_URL, CRM_TOKEN] } }\n";
    folder.write("engine.yaml", engine);
    let near = format!("amqp://shop:mq-passw0rd@127.0.0.1:{}/shop", free_port());
    let mut command = command();
    command.args(["run", "--admin", "off"]).arg(folder.path());
    command.envs(SECRETS).env("NEAR_URL", near);
    let mut engine = Process::start(&mut command);
    engine.wait_for_port(ports[2]);
    let reply = post(
        ports[2],
        "/orders",
        "application/json",
        "{\"orderId\": 7, \"country\": \"se\"}",
    );
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(reply.header("Retry-After"), Some("5"));
    engine.signal("TERM");
    assert_eq!(engine.wait().code(), Some(0));
    let told = engine.output();
    assert!(told.contains("mq"), "{told}");
    assert!(!told.contains("mq-passw0rd"), "{told}");
}
