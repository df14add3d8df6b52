//! Flows that use SQLite.

use std::thread;

use serde_json::{Value, json};
use testkit::{Response, TempDir, free_port, wait_until};

use crate::support::{Engine, post};

/// An engine with flows on one port, and a file for the database.
struct Shop {
    engine: Engine,
    port: u16,
    folder: TempDir,
}

impl Shop {
    /// Runs flows on a new database. In the text `PORT` and `FILE` stand for port and file.
    fn run(flows: &str) -> Self {
        let folder = TempDir::new();
        let port = free_port();
        let engine = start(&folder, port, flows);
        Self {
            engine,
            port,
            folder,
        }
    }

    fn send(&self, path: &str, body: &Value) -> Response {
        post(self.port, path, "application/json", &body.to_string())
    }

    fn ok(&self, path: &str, body: &Value) -> Value {
        let reply = self.send(path, body);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        serde_json::from_str(&reply.text()).unwrap()
    }
}

fn start(folder: &TempDir, port: u16, flows: &str) -> Engine {
    let database = folder.path().join("shop.db");
    let text = flows
        .replace("PORT", &port.to_string())
        .replace("FILE", &database.display().to_string());
    Engine::run(&[&folder.write("flows.yaml", &text)], &[])
}

/// A flow that runs steps on the connection `db`.
fn flow(name: &str, steps: &str) -> String {
    format!(
        "---\nflow: {name}\nuse:\n  db: {{ sqlite: \"FILE\", statement_timeout: 5s }}\n\
         from: {{ http: \"POST 127.0.0.1:PORT/{name}\" }}\nsteps:\n{steps}"
    )
}

fn sql(query: &str, rest: &str) -> String {
    let query = serde_json::to_string(query).unwrap();
    let args = match query.contains(":a") {
        true => "args: { a: \"${ . }\" }, ",
        false => "",
    };
    format!("  - sql: {{ to: db, query: {query}, {args}{rest} }}\n")
}

const CREATE: &str = "create table if not exists t (a unique, b text)";

#[test]
fn values_are_kept_and_failures_named() {
    let put = "insert into t values (:a, 'x') returning a, typeof(a) as kind, zeroblob(2) as raw, \
               b, null as absent";
    let shop = Shop::run(
        &[
            flow("create", &sql(CREATE, "rows: none")),
            flow("put", &sql(put, "rows: one")),
            flow("all", &sql("select a from t order by rowid", "")),
            flow(
                "count",
                &sql("update t set b = 'y' where a is not :a", "rows: count"),
            ),
            flow("bad", &sql("select a from nowhere", "")),
        ]
        .concat(),
    );
    shop.send("/create", &json!(0));
    let nasty = "'; drop table t; --\u{0}\u{fe}";
    for (value, kind) in [
        (json!(9_007_199_254_740_993_i64), "integer"),
        (json!(1.5), "real"),
        (json!(nasty), "text"),
        (json!(""), "text"),
    ] {
        let expected = json!({"a": value, "kind": kind, "raw": "AAA=", "b": "x", "absent": null});
        assert_eq!(shop.ok("/put", &value), expected);
    }
    let again = shop.send("/put", &json!(1.5));
    assert_eq!(again.status, 409, "{}", again.text());
    assert_eq!(shop.ok("/count", &json!("")), json!(3));
    assert_eq!(shop.ok("/all", &json!(0)).as_array().unwrap().len(), 4);
    assert_eq!(shop.send("/bad", &json!(0)).status, 500);
    let large = post(shop.port, "/put", "application/json", "9223372036854775808");
    assert_eq!(large.status, 400);
    assert!(
        large.text().contains("a number that SQLite does not keep"),
        "{}",
        large.text()
    );
    let output = shop.engine.stop();
    assert!(
        output.contains("connection `db`: 1 no such table: nowhere"),
        "{output}"
    );
}

#[test]
fn many_write_at_a_time_and_transactions_hold() {
    let transfer = "  - transaction:\n      to: db\n      steps:\n\
        \x20       - sql: { to: db, query: \"select b as n from t where a = 1\", rows: one }\n\
        \x20         as: t\n\
        \x20       - sql: { to: db, query: \"update t set b = :n where a = 1\", \
        args: { n: \"${ ($t.n | tonumber) + 1 }\" }, rows: none }\n\
        \x20       - if:\n            when: . == \"no\"\n            then: [ raise: { type: no, status: 500 } ]\n";
    let shop = Shop::run(
        &[
            flow("create", &sql(CREATE, "rows: none")),
            flow("first", &sql("insert into t values (1, '0')", "rows: none")),
            flow("add", transfer),
            flow("get", &sql("select b from t where a = 1", "rows: one")),
        ]
        .concat(),
    );
    shop.send("/create", &json!(0));
    shop.send("/first", &json!(0));
    let port = shop.port;
    let callers = (0..4).map(|_| {
        thread::spawn(move || {
            for number in 0..10 {
                let body = if number % 2 == 0 { "\"yes\"" } else { "\"no\"" };
                let status = post(port, "/add", "application/json", body).status;
                assert_eq!(status, if number % 2 == 0 { 200 } else { 500 });
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    callers.into_iter().for_each(|it| it.join().unwrap());
    assert_eq!(shop.ok("/get", &json!(0)), json!({"b": "20"}));
    shop.engine.stop();
}

#[test]
fn what_takes_too_long_is_interrupted() {
    let endless = "with recursive n(i) as (select 1 union all select i + 1 from n) \
                   select max(i) as i from n";
    let rows = "with recursive n(i) as (select 1 union all select i + 1 from n) select i from n";
    let shop = Shop::run(
        &[
            flow(
                "slow",
                &(sql(endless, "rows: one") + "    timeout: 200ms\n"),
            ),
            flow("large", &sql(rows, "bytes_max: 1MiB")),
            flow("now", &sql("select 1 as a", "rows: one")),
        ]
        .concat(),
    );
    assert_eq!(shop.send("/slow", &json!(0)).status, 504);
    assert_eq!(shop.send("/large", &json!(0)).status, 502);
    assert_eq!(shop.ok("/now", &json!(0)), json!({"a": 1}));
    wait_until("nothing runs any more", || {
        let before = shop.engine.process.cpu_ns();
        thread::sleep(std::time::Duration::from_millis(200));
        shop.engine.process.cpu_ns() - before < 100_000_000
    });
    shop.engine.stop();
}

#[test]
fn what_is_committed_outlives_a_kill() {
    let flows = [
        flow("create", &sql(CREATE, "rows: none")),
        flow("put", &sql("insert into t values (:a, 'x')", "rows: count")),
        flow("all", &sql("select a from t order by a", "")),
        "---\nflow: copy\nuse:\n  db: { sqlite: \"FILE\" }\nfrom:\n  sql: { connection: db, query: \
         \"select a from t where b = 'x' order by a\", after: \"update t set b = 'done' where a = \
         :a\", every: 50ms, query_delay: 50ms }\nsteps:\n  - log: { message: \"took ${ .a }\" }\n"
            .to_owned(),
    ]
    .concat();
    let mut shop = Shop::run(&flows);
    shop.send("/create", &json!(0));
    assert_eq!(shop.ok("/put", &json!(1)), json!(1));
    shop.engine.process.wait_for("took 1");
    shop.engine.process.signal("KILL");
    shop.engine.process.wait();
    shop.engine = start(&shop.folder, shop.port, &flows);
    assert_eq!(shop.ok("/put", &json!(2)), json!(1));
    shop.engine.process.wait_for("took 2");
    assert_eq!(shop.ok("/all", &json!(0)), json!([{"a": 1}, {"a": 2}]));
    shop.engine.stop();
}

#[test]
fn a_file_that_cannot_be_opened_is_told_without_its_name() {
    let flows = flow("now", &sql("select 1 as a", "rows: one")).replace("FILE", "/nowhere/a.db");
    let shop = Shop::run(&flows);
    assert_eq!(shop.send("/now", &json!(0)).status, 502);
    let output = shop.engine.stop();
    assert!(output.contains("connection `db`: 14"), "{output}");
}
