//! The flows of the design: they are checked completely, and refused where this build has no
//! driver for what they connect.

use std::process::Output;

use testkit::{Authority, TempDir, free_port, wait_until};

use crate::support::{Engine, command, get, output, repository};

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

fn lines(text: &[u8]) -> Vec<serde_json::Value> {
    let text = std::str::from_utf8(text).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn the_flows_are_sound_but_for_missing_drivers() {
    let folder = folder();
    let checked = run(&["check", "--format", "json"], &folder);
    let problems = lines(&checked.stdout);
    let told: Vec<_> = problems
        .iter()
        .map(|it| {
            (
                it["code"].as_str().unwrap(),
                it["message"].as_str().unwrap(),
            )
        })
        .collect();
    let missing = |name: &str, kind: &str| {
        format!("connection `{name}`: this build has no driver for {kind}")
    };
    let expected = [("erp", "soap"), ("db", "sqlserver")];
    let expected = expected.map(|(name, kind)| missing(name, kind));
    let expected: Vec<_> = expected.iter().map(|it| ("IT0306", it.as_str())).collect();
    assert_eq!(told, expected);
    assert!(problems.iter().all(|it| it["severity"] == "warning"));
    assert_eq!(checked.status.code(), Some(0));
}

#[test]
fn the_flows_are_not_run() {
    let folder = folder();
    let refused = run(&["run", "--admin", "off"], &folder);
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(text.matches("error[IT0306]").count(), 2, "{text}");
    assert!(
        !text.contains("warning") && !text.contains("started"),
        "{text}"
    );
}

#[test]
fn a_reload_that_needs_a_driver_leaves_the_old_flows() {
    let folder = TempDir::new();
    let port = free_port();
    let trigger = format!("from: {{ http: GET :{port}/a }}\n");
    let old = format!("flow: a\n{trigger}steps: [ reply: {{ body: old }} ]\n");
    let file = folder.write("a.yaml", &old);
    let engine = Engine::run(&[&file], &["--watch"]);
    let new = format!(
        "flow: a\nuse: {{ db: {{ sqlserver: 'sqlserver://a:literal-passw0rd@db/shop' }} }}\n{trigger}\
         steps: [ sql: {{ to: db, query: select 1 }}, reply: {{ body: new }} ]\n"
    );
    folder.write("a.yaml", &new);
    wait_until("it is refused", || {
        engine.process.output().contains("the old flows stay")
    });
    assert_eq!(get(port, "/a").body, b"old");
    let told = engine.stop();
    assert!(told.contains("IT0306"), "{told}");
    assert!(!told.contains("literal-passw0rd"), "{told}");
}

#[test]
fn the_page_of_missing_drivers_shows_one() {
    let page = repository().join("docs/errors/IT0306.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```yaml\n").nth(1).unwrap();
    let folder = TempDir::new();
    folder.write("page.yaml", example.split("```").next().unwrap());
    let checked = run(&["check", "--format", "json"], &folder);
    let problems = lines(&checked.stdout);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0]["code"], "IT0306");
}
