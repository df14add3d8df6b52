//! What every dialect has to keep when statements are cut off in the middle: a transaction happens
//! whole or not at all, and a connection never gives one flow the rows of another.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::servers::{Iridium, MariaDb};
use testkit::{Response, TempDir, free_port};

use crate::sql::SERVER as POSTGRES;
use crate::support::{Engine, post};

/// A dialect on its server.
struct Dialect {
    name: &'static str,
    /// The connection under `use:`, without the braces.
    connection: String,
    /// An `insert` of the row `2` that takes longer than a second.
    slow_insert: &'static str,
}

fn dialects(test: &str) -> Vec<Dialect> {
    let maria = MariaDb::shared();
    maria.run(&format!("create database conform_{test}"));
    let iridium = Iridium::shared();
    vec![
        Dialect {
            name: "postgres",
            connection: format!(
                "postgres: \"{}\"",
                POSTGRES.database(&format!("conform_{test}"))
            ),
            slow_insert: "insert into t select 2 from pg_sleep(1.2)",
        },
        Dialect {
            name: "mysql",
            connection: format!("mysql: \"{}\"", maria.url(&format!("conform_{test}"))),
            slow_insert: "insert into t select 2 from (select sleep(1.2)) s",
        },
        Dialect {
            name: "sqlite",
            connection: "sqlite: \"FILE\"".to_owned(),
            slow_insert: "insert into t select 2 from (with recursive n(i) as (select 1 union all \
                          select i + 1 from n where i < 20000000) select max(i) from n)",
        },
        Dialect {
            name: "sqlserver",
            connection: format!("encrypt: off, sqlserver: \"{}\"", iridium.url("master")),
            slow_insert: "declare @i int = 0; while @i < 3000000 set @i = @i + 1; \
                          insert into t values (2)",
        },
    ]
}

/// An engine with flows on one dialect. Each of its two workers has two connections.
struct Shop {
    engine: Engine,
    port: u16,
    folder: TempDir,
}

impl Shop {
    fn run(dialect: &Dialect, flows: &str) -> Self {
        let (folder, port) = (TempDir::new(), free_port());
        let file = folder.path().join("shop.db").display().to_string();
        let head = format!(
            "engine: {{}}\nuse: {{ db: {{ {}, pool: 2 }} }}\n",
            dialect.connection
        );
        let text = format!("{head}{flows}")
            .replace("FILE", &file)
            .replace("SLOW", dialect.slow_insert)
            .replace("PORT", &port.to_string());
        let engine = Engine::run(&[&folder.write("flows.yaml", &text)], &[]);
        Self {
            engine,
            port,
            folder,
        }
    }

    fn send(&self, path: &str, body: &Value) -> Response {
        post(self.port, path, "application/json", &body.to_string())
    }

    fn rows(&self) -> Value {
        let found = self.send("/all", &json!(0));
        serde_json::from_str(&found.text()).unwrap_or_else(|_| json!(found.text()))
    }

    /// Deletes all rows. A server that does not stop a statement holds what that has locked until
    /// it has run it, on a busy machine for long, and refuses others meanwhile.
    fn clear(&self) {
        let start = Instant::now();
        loop {
            let cleared = self.send("/clear", &json!(0));
            if cleared.status < 300 {
                break;
            }
            let waited = start.elapsed();
            assert!(waited < Duration::from_secs(60), "{}", cleared.text());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether every flow that asks for a number of its own gets that one.
    fn reads_its_own_rows(&self) -> bool {
        (0..20).all(|number| {
            // A server that does not stop a statement keeps a connection until it has run it, on a
            // busy machine for long.
            let start = Instant::now();
            let text = loop {
                let found = self.send("/own", &json!(number));
                if found.status == 200 {
                    break found.text();
                }
                let waited = start.elapsed();
                assert!(waited < Duration::from_secs(60), "{}", found.text());
                thread::sleep(Duration::from_millis(5));
            };
            let row: Value = serde_json::from_str(&text).unwrap();
            row["n"].to_string().trim_matches('"') == number.to_string()
        })
    }

    fn stop(self) {
        self.engine.stop();
        drop(self.folder);
    }
}

const COMMON: &str = "
---
flow: create
from: { http: POST 127.0.0.1:PORT/create }
steps:
  - sql: { to: db, query: create table t (a int), rows: none }
---
flow: all
from: { http: POST 127.0.0.1:PORT/all }
steps:
  - sql: { to: db, query: select a from t order by a }
  - map: \"map(.a)\"
---
flow: clear
from: { http: POST 127.0.0.1:PORT/clear }
steps:
  - sql: { to: db, query: delete from t, rows: none }
---
flow: own
from: { http: POST 127.0.0.1:PORT/own }
steps:
  - sql: { to: db, query: \"select :n as n\", args: { n: \"${ . }\" }, rows: one }
";

/// A flow whose transaction has these steps, each one line.
fn transaction(name: &str, steps: &[&str], beside: &str) -> String {
    let steps: String = steps.iter().map(|it| format!("        {it}\n")).collect();
    format!(
        "---\nflow: {name}\nfrom: {{ http: POST 127.0.0.1:PORT/{name} }}\nsteps:\n  - transaction:\n      \
         to: db\n      steps:\n{steps}{beside}"
    )
}

const INSERT: &str = "- sql: { to: db, query: insert into t values (1), rows: none }";
const LATE: &str = "- { sql: { to: db, query: \"SLOW\", rows: none }, timeout: 250ms, \
                    fallback: { value: null } }";
const AFTER: &str = "- { sql: { to: db, query: \"select 7 as n\", rows: one }, \
                     fallback: { value: null } }";

#[test]
fn a_statement_that_timed_out_in_a_transaction_is_never_committed() {
    let flows = [
        COMMON.to_owned(),
        transaction("late", &[INSERT, LATE], ""),
        transaction("on", &[INSERT, LATE, AFTER, INSERT], ""),
        transaction(
            "race",
            &[
                INSERT,
                "- first:",
                "    - { sql: { to: db, query: \"SLOW\", rows: none } }",
                "    - delay: 250ms",
            ],
            "",
        ),
        transaction(
            "beside",
            &[
                INSERT,
                "- parallel:",
                "    a: { sql: { to: db, query: \"SLOW\", rows: none } }",
                "    b: [ delay: 250ms, { if: true, raise: { type: no, status: 422 } } ]",
                "  fallback: { value: null }",
                INSERT,
            ],
            "",
        ),
    ];
    let mut wrong = Vec::new();
    for dialect in dialects("late") {
        let shop = Shop::run(&dialect, &flows.concat());
        assert!(shop.send("/create", &json!(0)).status < 300);
        for path in ["/late", "/on", "/race", "/beside"] {
            let name = format!("{} {path}", dialect.name);
            let reply = shop.send(path, &json!(0));
            let ended = [reply.status == 503, shop.reads_its_own_rows()];
            // Nor later, when the server has come to the statement's end.
            let at_once = shop.rows();
            thread::sleep(Duration::from_millis(1500));
            let rows = [at_once, shop.rows()];
            if ended != [true; 2] || rows != [json!([]), json!([])] {
                let (status, text) = (reply.status, reply.text());
                wrong.push(format!("{name}: {status} {text} {ended:?} {rows:?}"));
            }
            shop.clear();
        }
        shop.stop();
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The flows that move one from an account to the other: each holds what the other wants.
fn moving(name: &str, inner: &str, outer: &str) -> String {
    let update = |sign: &str, name: &str| {
        format!(
            "- sql: {{ to: db, query: update acc set n = n {sign} 1 where id = :id, \
             args: {{ id: \"${{ {name} }}\" }}, rows: none }}"
        )
    };
    let (debit, credit) = (update("-", ".from"), update("+", ".to"));
    let steps = [debit.as_str(), "- delay: 300ms", credit.as_str(), inner];
    transaction(name, &steps, outer)
}

/// Moves one from each account to the other at the same time: the statuses of both.
fn both_ways(port: u16, path: &'static str) -> [u16; 2] {
    let both = [(1, 2), (2, 1)].map(|(from, to)| {
        let body = json!({ "from": from, "to": to }).to_string();
        thread::spawn(move || post(port, path, "application/json", &body).status)
    });
    let mut found = both.map(|it| it.join().unwrap());
    found.sort_unstable();
    found
}

#[test]
fn a_deadlock_takes_the_whole_transaction_with_it() {
    let retry = "retry: { on: [deadlock], times: 3, delay: 10ms }";
    let flows = [
        COMMON.to_owned(),
        moving("retried", &format!("  {retry}"), ""),
        moving("hidden", "  fallback: { value: null }", ""),
        moving(
            "handled",
            "  on_error: [ { on: any, log: { message: no } } ]",
            "",
        ),
        moving("outer", "", &format!("    {retry}\n")),
    ];
    let flows = flows.concat();
    for dialect in dialects("dead").into_iter().take(2) {
        let shop = Shop::run(&dialect, &flows);
        let run = |sql: &str| match dialect.name {
            "postgres" => POSTGRES.sql("conform_dead", sql),
            _ => MariaDb::shared().run(&format!("use conform_dead; {sql}")),
        };
        run("create table acc (id int primary key, n int)");
        run("insert into acc values (1, 100), (2, 100)");
        for path in ["/retried", "/hidden", "/handled", "/outer"] {
            let name = format!("{} {path}", dialect.name);
            // On a busy machine the one may be done before the other begins.
            let met = (0..10).any(|_| {
                run("update acc set n = 100");
                let found = both_ways(shop.port, path);
                let rows = run("select n from acc order by id");
                let rows: Vec<i32> = rows
                    .split_whitespace()
                    .map(|it| it.parse().unwrap())
                    .collect();
                assert_eq!(rows.iter().sum::<i32>(), 200, "{name}: {found:?}");
                assert!(found[0] < 300, "{name}: {found:?}");
                match path {
                    "/outer" => found[1] < 300,
                    _ => found[1] == 503,
                }
            });
            assert!(met, "{name}");
            assert!(shop.reads_its_own_rows(), "{name}");
        }
        shop.stop();
    }
}

/// What lies between a client and a server, and can be cut.
struct Cable {
    port: u16,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Cable {
    fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::<Mutex<Vec<TcpStream>>>::default();
        let all = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
                let copy = |it: &TcpStream| it.try_clone().unwrap();
                all.lock().unwrap().extend([copy(&client), copy(&server)]);
                for (mut from, mut to) in [(copy(&client), copy(&server)), (server, client)] {
                    thread::spawn(move || {
                        // However it ends, the other side sees an end too.
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Self { port, connections }
    }

    /// Cuts all connections that there are.
    fn cut(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn a_transaction_whose_connection_is_lost_leaves_nothing() {
    let again = "  retry: { on: [any], times: 2, delay: 10ms }";
    let steps = [
        INSERT,
        "- delay: 800ms",
        INSERT,
        again,
        "  fallback: { value: null }",
    ];
    let flows = [COMMON.to_owned(), transaction("cut", &steps, "")].concat();
    let [postgres, maria, _, mut sqlserver] =
        <[Dialect; 4]>::try_from(dialects("lost")).unwrap_or_else(|_| panic!("four dialects"));
    // A database within the process has no connection to lose. All tests share one of SQL Server.
    let server = Iridium::shared().port();
    let cable = Cable::to(server);
    let [direct, through] = [server, cable.port].map(|port| format!(":{port}"));
    sqlserver.connection = sqlserver.connection.replace(&direct, &through);
    let flows = ["table t ", "into t ", "from t"]
        .iter()
        .fold(flows, |flows, it| {
            flows.replace(it, &it.replace(" t", " lost"))
        });
    for dialect in [postgres, maria, sqlserver] {
        let shop = Shop::run(&dialect, &flows);
        assert!(shop.send("/create", &json!(0)).status < 300);
        let port = shop.port;
        let sent = thread::spawn(move || post(port, "/cut", "application/json", "0").status);
        thread::sleep(Duration::from_millis(300));
        match dialect.name {
            "postgres" => drop(POSTGRES.sql(
                "postgres",
                "select pg_terminate_backend(pid) from pg_stat_activity \
                 where datname = 'conform_lost'",
            )),
            "sqlserver" => cable.cut(),
            _ => {
                let ids = "select id from information_schema.processlist where db = 'conform_lost'";
                for id in MariaDb::shared().run(ids).split_whitespace() {
                    MariaDb::shared().run(&format!("kill {id}"));
                }
            }
        }
        let status = sent.join().unwrap();
        assert_eq!(status, 502, "{}", dialect.name);
        assert!(shop.reads_its_own_rows(), "{}", dialect.name);
        assert_eq!(shop.rows(), json!([]), "{}", dialect.name);
        shop.stop();
    }
}
