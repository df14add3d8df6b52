//! Flows that use a real PostgreSQL.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::servers::Postgres;
use testkit::{Process, Response, TempDir, free_port, wait_until};

use crate::support::{Engine, command, get, post};

/// One server for all tests; each has a database of its own.
static SERVER: LazyLock<Postgres> = LazyLock::new(Postgres::start);

/// An engine with flows on one port.
struct Shop {
    engine: Engine,
    port: u16,
    _folder: TempDir,
}

impl Shop {
    /// Runs the engine. In the text `PORT` stands for the port.
    fn run(flows: &str) -> Self {
        let (folder, port) = (TempDir::new(), free_port());
        let file = write(&folder, port, flows);
        let engine = Engine::run(&[&file], &[]);
        Self {
            engine,
            port,
            _folder: folder,
        }
    }

    fn post(&self, path: &str, body: &Value) -> Response {
        post(self.port, path, "application/json", &body.to_string())
    }

    fn get(&self, path: &str) -> Response {
        get(self.port, path)
    }

    /// Stops it; what it has said names no password.
    fn stop(self) -> String {
        let output = self.engine.stop();
        assert!(!output.contains(SERVER.password()), "{output}");
        output
    }
}

fn write(folder: &TempDir, port: u16, flows: &str) -> PathBuf {
    folder.write("flows.yaml", &flows.replace("PORT", &port.to_string()))
}

fn body(response: &Response) -> Value {
    let text = response.text();
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{}: {text}", response.status))
}

/// A flow that answers with what a statement gives for the argument `a`, which is the body.
fn flow(name: &str, url: &str, query: &str, rest: &str) -> String {
    let query = serde_json::to_string(query).unwrap();
    let args = if query.contains(":a") {
        "args: { a: \"${ . }\" }, "
    } else {
        ""
    };
    format!(
        "---\nflow: {name}\nuse:\n  db: {{ postgres: \"{url}\" }}\n\
         from: {{ http: \"POST 127.0.0.1:PORT/{name}\" }}\nsteps:\n\
         \x20 - sql: {{ to: db, query: {query}, {args}{rest} }}\n"
    )
}

#[test]
fn rows_come_as_they_say() {
    let url = SERVER.database("rows");
    SERVER.sql("rows", "create table t (a int primary key, b text)");
    let flows = [
        flow(
            "insert",
            &url,
            "insert into t values (:a, 'x'), (:a + 1, 'y')",
            "rows: count",
        ),
        flow(
            "many",
            &url,
            "select a, b from t where a >= :a order by a",
            "",
        ),
        flow("one", &url, "select b from t where a = :a", "rows: one"),
        flow(
            "several",
            &url,
            "select b from t where a >= :a",
            "rows: one",
        ),
        flow("none", &url, "delete from t where a = :a", "rows: none"),
    ];
    let shop = Shop::run(&flows.concat());
    assert_eq!(body(&shop.post("/insert", &json!(1))), json!(2));
    let again = shop.post("/insert", &json!(1));
    assert_eq!(
        (again.status, &body(&again)["type"]),
        (409, &json!("unique-violation"))
    );
    let all = json!([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]);
    assert_eq!(body(&shop.post("/many", &json!(0))), all);
    assert_eq!(
        body(&shop.post("/many", &json!("2"))),
        json!([{"a": 2, "b": "y"}])
    );
    assert_eq!(body(&shop.post("/one", &json!(1))), json!({"b": "x"}));
    assert_eq!(body(&shop.post("/one", &json!(9)))["type"], "no-row");
    assert_eq!(body(&shop.post("/several", &json!(0)))["type"], "many-rows");
    assert_eq!(body(&shop.post("/none", &json!(1))), json!(1));
    assert_eq!(SERVER.sql("rows", "select a from t"), "2");
    // What is no number is refused by name, and costs no connection.
    let wrong = shop.post("/one", &json!("seven"));
    assert_eq!(wrong.status, 500);
    let metrics = shop.engine.get("/metrics").text();
    assert!(metrics.contains("intertie_sql_connections{"), "{metrics}");
    let output = shop.stop();
    assert!(
        output.contains("connection `db`: 22P02 the argument `a`"),
        "{output}"
    );
}
