//! Flows that use MariaDB, and an engine that speaks as SQL Server does.

use serde_json::{Value, json};
use testkit::servers::{Iridium, MariaDb};
use testkit::tds::{ScriptedTds, TdsReply};
use testkit::{Response, TempDir, free_port, wait_until};

use crate::support::{Engine, post};

/// Runs flows on one port; in their text `PORT` stands for it and `DB` for the connection.
fn run(connection: &str, flows: &str) -> (Engine, u16, TempDir) {
    let (folder, port) = (TempDir::new(), free_port());
    let flows = flows.replace("PORT", &port.to_string());
    let file = folder.write("flows.yaml", &flows.replace("DB", connection));
    (Engine::run(&[&file], &[]), port, folder)
}

fn send(port: u16, path: &str, body: &Value) -> Response {
    post(port, path, "application/json", &body.to_string())
}

fn body(response: &Response) -> Value {
    let text = response.text();
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{}: {text}", response.status))
}

const FLOWS: &str = r#"
engine: {}
use: { db: DB }
---
flow: add
from: { http: "POST 127.0.0.1:PORT/add" }
steps:
  - sql: { to: db, query: "insert into items values (:id, :name)", args: { id: "${ .id }", name: "${ .name }" }, rows: count }
---
flow: find
from: { http: "POST 127.0.0.1:PORT/find" }
steps:
  - sql: { to: db, query: "select id, name from items where name = :name", args: { name: "${ .name }" }, rows: one }
on_error:
  - { on: no-row, reply: { status: 404 } }
---
flow: broken
from: { http: "POST 127.0.0.1:PORT/broken" }
steps:
  - sql: { to: db, query: "select * from nowhere_at_all" }
"#;

/// What both databases do alike.
fn adds_and_finds(port: u16) {
    let nasty = "'; drop table items; -- ä€";
    assert_eq!(
        send(port, "/add", &json!({"id": 1, "name": nasty})).status,
        200
    );
    let found = send(port, "/find", &json!({ "name": nasty }));
    assert_eq!(body(&found), json!({"id": 1, "name": nasty}));
    assert_eq!(send(port, "/find", &json!({"name": "nobody"})).status, 404);
    let broken = send(port, "/broken", &json!({}));
    assert_eq!(
        (broken.status, &body(&broken)["type"]),
        (500, &json!("sql-error"))
    );
    assert!(!broken.text().contains("nowhere"), "{}", broken.text());
}

#[test]
fn flows_use_mariadb() {
    let server = MariaDb::shared();
    server.run("create database flows; create table flows.items (id int primary key, name text)");
    server.run(
        "delimiter //
         create procedure flows.price (in item int, out sum decimal(12,2))
         begin select item as asked; set sum = item * 1.25; end//",
    );
    let price = "
---
flow: price
from: { http: \"POST 127.0.0.1:PORT/price\" }
steps:
  - sql: { to: db, procedure: price, args: { item: \"${ .item }\" }, out: { sum: \"decimal(12,2)\" } }
---
flow: slow
from: { http: \"POST 127.0.0.1:PORT/slow\" }
steps:
  - { sql: { to: db, query: \"select sleep(600) as slow_flow\" }, timeout: 300ms }
";
    let connection = format!("{{ mysql: \"{}\" }}", server.url("flows"));
    let (engine, port, _folder) = run(&connection, &format!("{FLOWS}{price}"));
    adds_and_finds(port);
    let again = send(port, "/add", &json!({"id": 1, "name": "x"}));
    assert_eq!(
        (again.status, &body(&again)["type"]),
        (409, &json!("unique-violation"))
    );
    let price = send(port, "/price", &json!({"item": 4}));
    assert!(price.text().contains("5.00"), "{}", price.text());
    assert_eq!(send(port, "/slow", &json!({})).status, 504);
    let running = "select count(*) from information_schema.processlist
                   where info like '%slow_flow%' and info not like '%processlist%'";
    wait_until("it has ended", || server.run(running).trim() == "0");
    let output = engine.stop();
    assert!(output.contains("connection `db`: 1146"), "{output}");
    assert!(!output.contains(MariaDb::PASSWORD), "{output}");
}

#[test]
fn flows_use_sql_server() {
    let server = Iridium::start();
    let connection = format!(
        "{{ sqlserver: \"{}\", encrypt: off }}",
        server.url("master")
    );
    let create = "
---
flow: create
from: { http: \"POST 127.0.0.1:PORT/create\" }
steps:
  - sql: { to: db, query: \"create table items (id bigint primary key, name nvarchar(100))\", rows: none }
";
    let (engine, port, _folder) = run(&connection, &format!("{FLOWS}{create}"));
    assert_eq!(send(port, "/create", &json!({})).status, 200);
    adds_and_finds(port);
    let output = engine.stop();
    assert!(output.contains("connection `db`: 208"), "{output}");
    // The client's own lines about it are not in the log.
    assert!(!output.contains("tiberius"), "{output}");
    assert!(!output.contains(Iridium::PASSWORD), "{output}");
}

#[test]
fn who_is_not_let_in_shows_no_password() {
    let plain = ScriptedTds::start(|_| TdsReply::Silence);
    let (maria, iridium) = (MariaDb::shared(), Iridium::shared());
    let connections = [
        format!(
            "mysql: mysql://app:s3cret-word@127.0.0.1:{}/x",
            maria.port()
        ),
        format!(
            "sqlserver: mssql://sa:s3cret-word@127.0.0.1:{}, encrypt: off",
            iridium.port()
        ),
        format!(
            "sqlserver: mssql://sa:s3cret-word@127.0.0.1:{}",
            plain.port()
        ),
        format!("mysql: mysql://app:s3cret-word@127.0.0.1:{}", free_port()),
    ];
    for connection in connections {
        let (engine, port, _folder) = run(&format!("{{ {connection} }}"), FLOWS);
        let refused = send(port, "/find", &json!({"name": "x"}));
        assert_eq!(refused.status, 502, "{connection}: {}", refused.text());
        assert!(!refused.text().contains("127.0.0.1"), "{}", refused.text());
        let output = engine.stop();
        assert!(output.contains("connection `db`"), "{output}");
        assert!(!output.contains("s3cret-word"), "{output}");
    }
}

/// As text a `timestamp` has a `Z`, which MySQL does not take.
#[test]
fn a_cursor_of_the_type_timestamp_goes_back_as_a_moment() {
    let server = MariaDb::start();
    server.run(
        "create database cursors; create table cursors.t (ts timestamp(3));
         insert into cursors.t values ('2026-01-31 10:00:00.25');
         set global log_output = 'TABLE'; set global general_log = 1",
    );
    let connection = format!("{{ mysql: \"{}\" }}", server.url("cursors"));
    let flow = "flow: each\nuse: { db: DB }\nfrom:\n  sql: { connection: db, every: 50ms, \
                cursor: ts, start: \"2000-01-01T00:00:00Z\", create: true, query: \"select ts \
                from t where ts > :cursor order by ts\" }\nsteps:\n  - log: { message: row }\n";
    let (engine, _, _folder) = run(&connection, flow);
    let asked = "select argument from mysql.general_log where command_type = 'Execute' and \
                 argument like 'select ts from t where ts >%2026%'";
    wait_until("it asks for what comes behind the row", || {
        !server.run(asked).trim().is_empty()
    });
    engine.stop();
    let sent = server.run(asked);
    assert!(
        !sent.contains("2026-01-31T") && !sent.contains('Z'),
        "{sent}"
    );
}
