//! `limits.body_memory`: what is held besides the bodies of HTTP.

mod held;
mod rabbitmq;
mod redis;

use testkit::servers::MariaDb;
use testkit::tds::{self, ScriptedTds, TdsReply};
use testkit::{RawClient, Response, TempDir, free_port, wait_until};

use crate::sql::SERVER;
use crate::support::{Engine, post};

const USED: &str = "intertie_body_memory_used_bytes";
const REFUSED: &str = "intertie_bodies_refused_total";
const MEGABYTE: usize = 1_000_000;

/// An engine with a budget of 4 MiB, of which clients can take all.
struct Site {
    engine: Engine,
    port: u16,
    folder: TempDir,
}

impl Site {
    /// In the flows `PORT`, `FOLDER` and `FILE` stand for the port, a folder and a file in it.
    fn run(flows: &str) -> Self {
        let (folder, port) = (TempDir::new(), free_port());
        let file = folder.path().join("shop.db");
        let text = format!(
            "engine: {{ listen: 127.0.0.1:PORT, limits: {{ body_memory: 4MiB }} }}\n---\n\
             flow: echo\nfrom: {{ http: \"POST /echo\" }}\nsteps: [ {{ map: length }} ]\n{flows}"
        );
        let text = text.replace("PORT", &port.to_string());
        let text = text.replace("FOLDER", &folder.path().display().to_string());
        let text = text.replace("FILE", &file.display().to_string());
        let engine = Engine::run(&[&folder.write("flows.yaml", &text)], &[]);
        Self {
            engine,
            port,
            folder,
        }
    }

    /// Requests that take the whole budget until they are dropped.
    fn fill(&self) -> Vec<RawClient> {
        let unfinished = |_| {
            let mut client = RawClient::connect(self.port);
            client.send(format!(
                "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
                 Content-Length: {MEGABYTE}\r\n\r\n\"{}",
                "y".repeat(MEGABYTE - 2)
            ));
            client
        };
        let clients = (0..4).map(unfinished).collect();
        wait_until("all is held", || self.used() >= 4.0 * 1024.0 * 1024.0);
        clients
    }

    fn used(&self) -> f64 {
        self.engine.metric(USED)
    }

    fn ask(&self, path: &str) -> Response {
        post(self.port, path, "application/json", "0")
    }
}

/// Steps whose rows of 800 KB find no room while others hold the budget, and then do.
fn rows_need_room(connection: &str, query: &str) {
    let flow = |name: &str, rest: &str, after: &str| {
        format!(
            "---\nflow: {name}\nuse:\n  db: {connection}\nfrom: {{ http: \"POST /{name}\" }}\n\
             steps:\n  - sql:\n      to: db\n      query: {query}\n{rest}{after}"
        )
    };
    let stream = "      rows: stream\n      batch: 2\n      steps: [ { map: length } ]\n";
    let flows = [
        flow("rows", "", "  - map: map(.t | length) | add\n"),
        flow("stream", stream, ""),
    ];
    let site = Site::run(&flows.concat());
    assert_eq!(site.ask("/rows").text(), "800000");
    assert_eq!(site.ask("/stream").text(), "8");
    let held = site.fill();
    for path in ["/rows", "/stream"] {
        let reply = site.ask(path);
        assert_eq!(
            (reply.status, reply.header("Retry-After")),
            (503, Some("1")),
            "{path}: {}",
            reply.text()
        );
    }
    drop(held);
    wait_until("all is given back", || site.used() == 0.0);
    assert_eq!(site.ask("/rows").text(), "800000");
    assert_eq!(site.ask("/stream").text(), "8");
    wait_until("all is given back", || site.used() == 0.0);
}

const SQLITE_ROWS: &str = "\"with recursive s(a) as (select 1 union all select a + 1 from s \
     where a < 8) select a, hex(zeroblob(50000)) as t from s\"";

#[test]
fn rows_of_sqlite_need_room() {
    rows_need_room("{ sqlite: \"FILE\" }", SQLITE_ROWS);
}

#[test]
fn rows_of_postgres_need_room() {
    let url = SERVER.database("body_memory");
    let query = "\"select a, repeat('x', 100000) as t from generate_series(1, 8) a\"";
    rows_need_room(&format!("{{ postgres: \"{url}\" }}"), query);
}

#[test]
fn rows_of_mariadb_need_room() {
    let server = MariaDb::shared();
    server.run("create database body_memory");
    let query = "\"with recursive s(a) as (select 1 union all select a + 1 from s where a < 8) \
                 select a, repeat('x', 100000) as t from s\"";
    let connection = format!("{{ mysql: \"{}\" }}", server.url("body_memory"));
    rows_need_room(&connection, query);
}

#[test]
fn rows_above_the_whole_budget_are_too_large() {
    let query = SQLITE_ROWS.replace("a < 8", "a < 80");
    let flows = format!(
        "---\nflow: rows\nuse:\n  db: {{ sqlite: \"FILE\" }}\nfrom: {{ http: \"POST /rows\" }}\n\
         steps:\n  - sql: {{ to: db, query: {query} }}\n  - map: length\n"
    );
    let site = Site::run(&flows);
    assert_eq!(site.ask("/rows").status, 502);
    wait_until("all is given back", || site.used() == 0.0);
    let log = site.engine.stop();
    assert!(log.contains("`limits.body_memory`"), "{log}");
}

#[test]
fn a_source_waits_for_room_and_loses_no_row() {
    let flows = format!(
        "---\nflow: create\nuse:\n  db: {{ sqlite: \"FILE\" }}\n\
         from: {{ http: \"POST /create\" }}\nsteps:\n\
         \x20 - sql: {{ to: db, query: \"create table seen (a)\", rows: none }}\n\
         \x20 - sql: {{ to: db, query: \"create table t (a integer primary key, t text)\", \
         rows: none }}\n\
         ---\nflow: fill\nuse:\n  db: {{ sqlite: \"FILE\" }}\n\
         from: {{ http: \"POST /fill\" }}\nsteps:\n\
         \x20 - sql: {{ to: db, query: {}, rows: none }}\n\
         ---\nflow: seen\nuse:\n  db: {{ sqlite: \"FILE\" }}\n\
         from: {{ http: \"POST /seen\" }}\nsteps:\n\
         \x20 - sql: {{ to: db, query: \"select group_concat(a) as a from seen\", rows: one }}\n\
         ---\nflow: source\nuse:\n  db: {{ sqlite: \"FILE\" }}\nfrom:\n  sql:\n\
         \x20   connection: db\n    query: select a, t from t where a > :cursor order by a\n\
         \x20   cursor: a\n    create: true\n    every: 50ms\n    query_delay: 50ms\nsteps:\n\
         \x20 - sql: {{ to: db, query: \"insert into seen values (:a)\", \
         args: {{ a: \"${{ .a }}\" }}, rows: none }}\n",
        SQLITE_ROWS.replacen('"', "\"insert into t ", 1)
    );
    let site = Site::run(&flows);
    assert!(site.ask("/create").status < 300);
    let held = site.fill();
    let before = site.engine.metric(REFUSED);
    assert!(site.ask("/fill").status < 300);
    wait_until("the rows have found no room", || {
        site.engine.metric(REFUSED) >= before + 2.0
    });
    assert_eq!(site.ask("/seen").text(), r#"{"a":null}"#);
    drop(held);
    let all = r#"{"a":"1,2,3,4,5,6,7,8"}"#;
    wait_until("all have come", || site.ask("/seen").text() == all);
    wait_until("all is given back", || site.used() == 0.0);
}

/// A source of rows of 1 MB, of which the second is larger than the whole budget.
fn source_with_a_large_row(policy: &str, mark: &str) -> Site {
    let flows = format!(
        "---\nflow: create\nuse:\n  db: {{ sqlite: \"FILE\" }}\n\
         from: {{ http: \"POST /create\" }}\nsteps:\n\
         \x20 - sql: {{ to: db, query: \"create table seen (a)\", rows: none }}\n\
         \x20 - sql: {{ to: db, query: \"create table t (a integer primary key, t blob, done)\", \
         rows: none }}\n\
         \x20 - sql: {{ to: db, query: \"insert into t values (1, 'x', 0), \
         (2, hex(zeroblob(3000000)), 0), (3, 'y', 0)\", rows: none }}\n\
         ---\nflow: shrink\nuse:\n  db: {{ sqlite: \"FILE\" }}\n\
         from: {{ http: \"POST /shrink\" }}\nsteps:\n\
         \x20 - sql: {{ to: db, query: \"update t set t = 'z' where a = 2\", rows: none }}\n\
         ---\nflow: seen\nuse:\n  db: {{ sqlite: \"FILE\" }}\n\
         from: {{ http: \"POST /seen\" }}\nsteps:\n\
         \x20 - sql: {{ to: db, query: \"select group_concat(a) as a from seen\", rows: one }}\n\
         ---\nflow: source\nuse:\n  db: {{ sqlite: \"FILE\" }}\nfrom:\n  sql:\n\
         \x20   connection: db\n{mark}\n    {policy}\n\
         \x20   every: 50ms\n    query_delay: 50ms\nsteps:\n\
         \x20 - sql: {{ to: db, query: \"insert into seen values (:a)\", \
         args: {{ a: \"${{ .a }}\" }}, rows: none }}\n\
         ---\nflow: letters\nuse:\n  db: {{ sqlite: \"FILE\" }}\n\
         from: {{ store: dead-letters }}\nsteps:\n\
         \x20 - sql: {{ to: db, query: \"insert into seen values (:a)\", \
         args: {{ a: \"${{ .a * 100 + length }}\" }}, rows: none }}\n",
    );
    let site = Site::run(&flows);
    assert!(site.ask("/create").status < 300);
    site
}

const BY_CURSOR: &str =
    "    query: select a, t from t where a > :cursor order by a\n    cursor: a\n    create: true";
const BY_MARK: &str = "    query: select a, t from t where done = 0 order by a\n    after: update t set done = 1 where a = :a";

#[test]
fn a_row_above_the_whole_budget_is_passed_over_where_that_is_wanted() {
    for mark in [BY_CURSOR, BY_MARK] {
        let site = source_with_a_large_row("dead_letter: drop\n    retry: { times: 0 }", mark);
        let all = r#"{"a":"1,3"}"#;
        wait_until("the others have come", || site.ask("/seen").text() == all);
        let log = site.engine.stop();
        let told = log.matches("a row is too large").count();
        assert!(told == 1 && log.contains("`limits.body_memory`"), "{log}");
    }
}

#[test]
fn a_row_above_the_whole_budget_is_a_dead_letter_with_what_it_is_marked_by() {
    for mark in [BY_CURSOR, BY_MARK] {
        let site = source_with_a_large_row("retry: { times: 1, delay: 50ms }", mark);
        // The letter has one member: the number.
        wait_until("all have come", || {
            let seen = site.ask("/seen").text();
            [r#"{"a":"1,201,3"}"#, r#"{"a":"1,3,201"}"#].contains(&&*seen)
        });
        let log = site.engine.stop();
        assert_eq!(log.matches("a row is too large").count(), 2, "{log}");
    }
}

#[test]
fn a_row_above_the_whole_budget_is_read_again_until_it_fits() {
    let policy = "retry: { times: 1000000, delay: 50ms, backoff: 1 }";
    let site = source_with_a_large_row(policy, BY_CURSOR);
    wait_until("the log tells", || {
        let told = site.engine.process.output();
        told.matches("a row is too large").count() > 2
    });
    assert_eq!(site.ask("/seen").text(), r#"{"a":"1"}"#);
    assert!(site.ask("/shrink").status < 300);
    let all = r#"{"a":"1,2,3"}"#;
    wait_until("all have come", || site.ask("/seen").text() == all);
    wait_until("all is given back", || site.used() == 0.0);
}

#[test]
fn a_row_above_the_whole_budget_stops_a_source_that_is_to_stop() {
    let policy = "dead_letter: stop\n    retry: { times: 0 }";
    let site = source_with_a_large_row(policy, BY_CURSOR);
    wait_until("the log tells", || {
        let told = site.engine.process.output();
        told.contains("no further messages are taken")
    });
    assert_eq!(site.ask("/seen").text(), r#"{"a":"1"}"#);
    site.engine.stop();
}

#[test]
fn rows_of_sql_server_need_room() {
    // A `varchar(max)`, whose values come in chunks (section 2.2.5.2.3).
    let text = b"\xa7\xff\xff\x09\x04\xd0\x00\x34";
    let server = ScriptedTds::start(move |_| {
        let chunk = [&100_000_u32.to_le_bytes()[..], &[b'x'; 100_000]].concat();
        let value = [&100_000_u64.to_le_bytes()[..], &chunk, &[0; 4]].concat();
        let rows = (0..8).map(|_| tds::row(&[&value]));
        let rows: Vec<u8> = rows.flatten().collect();
        let tokens = [tds::columns(&[("t", text)]), rows, tds::done(0xfd, 0x10, 8)];
        TdsReply::Tokens(tokens.concat())
    });
    let url = format!("mssql://sa:x@127.0.0.1:{}", server.port());
    rows_need_room(
        &format!("{{ sqlserver: \"{url}\", encrypt: off }}"),
        "select t from t",
    );
}
