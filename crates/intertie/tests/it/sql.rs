//! Flows that use a real PostgreSQL.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::thread;

use serde_json::{Value, json};
use testkit::servers::Postgres;
use testkit::{Response, TempDir, free_port, wait_until};

use crate::support::{Engine, output, post};

/// One server for all tests; each has a database of its own.
pub static SERVER: LazyLock<Postgres> = LazyLock::new(Postgres::start);

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
    let args = if query.contains(":a") && !rest.contains("args") {
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
    assert_eq!(wrong.status, 400);
    assert!(
        wrong.text().contains("the argument `a`"),
        "{}",
        wrong.text()
    );
    let metrics = shop.engine.get("/metrics").text();
    assert!(metrics.contains("intertie_sql_connections{"), "{metrics}");
    shop.stop();
}

#[test]
fn values_keep_every_digit_in_both_directions() {
    let url = SERVER.database("types");
    let columns = "select 9223372036854775807::int8 as big, 0.10::numeric as small, \
        -12345678901234567890.123456789::numeric as long, 1.5::float4 as f4, 0.1::float8 as f8, \
        'NaN'::float8 as nan, true as yes, null::int as nothing, 'ä\"\\'::text as words, \
        '\\xdeadbeef'::bytea as raw, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid as id, \
        '{\"a\": [1.50, null]}'::jsonb as j, '2024-02-29'::date as d, '12:30:00.5'::time as t, \
        '2024-02-29 12:30:00.123456+02'::timestamptz as at, '2024-02-29 12:30:00'::timestamp as \
        local, interval '1 year 2 days 03:04:05' as i, '10.0.0.1/8'::inet as net, \
        array[[1,2],[3,null]] as grid, '{}'::text[] as empty, '[1,5)'::int4range as r, \
        B'101' as bits, 'a'::\"char\" as c, '08:00:2b:01:02:03'::macaddr as mac, \
        'happy'::mood as mood, row(1,'x')::pair as pair";
    SERVER.sql("types", "create type mood as enum ('sad','happy')");
    SERVER.sql("types", "create type pair as (a int, b text)");
    SERVER.sql(
        "types",
        "create table kept (n numeric, b int8, at timestamptz, j jsonb, raw bytea, \
        tags text[], id uuid, i interval, r int4range, m mood)",
    );
    let keep = "insert into kept select n, b, at, j, raw, tags, id, i, r, m from \
        (values (:n::numeric, :b::int8, :at::timestamptz, :j::jsonb, :raw::bytea, :tags::text[], \
        :id::uuid, :i::interval, :r::int4range, :m::mood)) v (n, b, at, j, raw, tags, id, i, r, m) \
        returning *, raw = '\\x6162' as same";
    let args = "n: \"${ .n }\", b: \"${ .b }\", at: \"${ .at }\", j: \"${ .j }\", raw: \
        \"${ .raw }\", tags: \"${ .tags }\", id: \"${ .id }\", i: \"${ .i }\", r: \"${ .r }\", \
        m: \"${ .m }\"";
    let flows = flow("types", &url, columns, "rows: one")
        + &flow(
            "keep",
            &url,
            keep,
            &format!("rows: one, args: {{ {args} }}"),
        )
        + &flow(
            "point",
            &url,
            "select 1 as a, '(1,2)'::point as place",
            "rows: one",
        )
        + &flow("twice", &url, "select 1 as a, 2 as a", "rows: one");
    let shop = Shop::run(&flows);
    let text = shop.post("/types", &json!(0)).text();
    for part in [
        "\"big\":9223372036854775807",
        "\"small\":0.10",
        "\"long\":-12345678901234567890.123456789",
        "\"f4\":1.5,\"f8\":0.1,\"nan\":\"NaN\",\"yes\":true,\"nothing\":null",
        "\"words\":\"ä\\\"\\\\\",\"raw\":\"3q2+7w==\"",
        "\"id\":\"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11\",\"j\":{\"a\":[1.50,null]}",
        "\"d\":\"2024-02-29\",\"t\":\"12:30:00.5\",\"at\":\"2024-02-29T10:30:00.123456Z\"",
        "\"local\":\"2024-02-29T12:30:00\",\"i\":\"P1Y2DT3H4M5S\",\"net\":\"10.0.0.1/8\"",
        "\"grid\":[[1,2],[3,null]],\"empty\":[],\"r\":\"[1,5)\",\"bits\":\"101\",\"c\":\"a\"",
        "\"mac\":\"08:00:2b:01:02:03\",\"mood\":\"happy\",\"pair\":{\"a\":1,\"b\":\"x\"}",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let sent = r#"{"n":1234567890123456789012.50,"b":9007199254740993,"at":"2024-02-29T12:00:00+02:00",
        "j":{"deep":[1]},"raw":"ab","tags":["a,b","\"q\"",null],"i":"P1DT2H","r":"[1,5)",
        "id":"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11","m":"sad"}"#;
    let kept = post(shop.port, "/keep", "application/json", sent).text();
    for part in [
        "\"n\":1234567890123456789012.50,\"b\":9007199254740993,\"at\":\"2024-02-29T10:00:00Z\"",
        "\"j\":{\"deep\":[1]},\"raw\":\"YWI=\",\"tags\":[\"a,b\",\"\\\"q\\\"\",null]",
        "\"i\":\"P1DT2H\",\"r\":\"[1,5)\",\"m\":\"sad\",\"same\":true",
    ] {
        assert!(kept.contains(part), "{part} is not in {kept}");
    }
    assert_eq!(shop.post("/point", &json!(0)).status, 502);
    assert_eq!(shop.post("/twice", &json!(0)).status, 502);
    let output = shop.stop();
    assert!(
        output.contains("column `place`: the type point has no form"),
        "{output}"
    );
    assert!(output.contains("two columns have the name `a`"), "{output}");
}

#[test]
fn what_is_bound_never_becomes_sql() {
    let url = SERVER.database("nasty");
    SERVER.sql("nasty", "create table t (a text)");
    let flows = flow(
        "put",
        &url,
        "insert into t values (:a) returning a",
        "rows: one",
    );
    let shop = Shop::run(&flows);
    let nasty = [
        "'; drop table t; --",
        "' or '1'='1",
        "\\'; drop table t; --",
        "$1",
        ":a",
        "$$; drop table t; $$",
        "/* */",
        "%_\\",
        "\u{2019}; drop table t",
        "\r\n\t\u{1}",
        "1) returning (select version())",
        "NULL",
        "",
    ];
    for text in nasty {
        let reply = shop.post("/put", &json!(text));
        assert_eq!(body(&reply), json!({"a": text}));
    }
    let nul = shop.post("/put", &json!("a\u{0}b"));
    assert_eq!(nul.status, 400, "{}", nul.text());
    assert_eq!(
        SERVER.sql("nasty", "select count(*) from t"),
        nasty.len().to_string()
    );
    let told = nul.text();
    assert!(told.contains("a character that cannot be stored"), "{told}");
    shop.stop();
}

/// What the server is busy with in a database, besides this question.
fn busy(database: &str) -> String {
    SERVER.sql(
        "postgres",
        &format!(
            "select count(*) from pg_stat_activity where datname = '{database}' \
             and (state = 'active' or state like 'idle in%')"
        ),
    )
}

#[test]
fn a_time_out_ends_the_statement_on_the_server() {
    let url = SERVER.database("slow");
    let slow = flow("slow", &url, "select pg_sleep(30)", "") + "    timeout: 300ms\n";
    let own = flow("own", &url, "select pg_sleep(30)", "");
    let own = own.replacen("\" }\nfrom", "\", statement_timeout: 300ms }\nfrom", 1);
    let fast = flow("fast", &url, "select 1 as a", "rows: one");
    let left = flow("left", &url, "select pg_sleep(30)", "");
    let shop = Shop::run(&(slow + &own + &fast + &left));
    assert_eq!(shop.post("/slow", &json!(0)).status, 504);
    assert_eq!(shop.post("/own", &json!(0)).status, 504);
    // A client that leaves.
    let mut client = testkit::RawClient::connect(shop.port);
    client.send("POST /left HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    wait_until("the statement runs", || busy("slow") == "1");
    drop(client);
    wait_until("nothing runs on the server", || busy("slow") == "0");
    assert_eq!(body(&shop.post("/fast", &json!(0))), json!({"a": 1}));
    shop.stop();
}

#[test]
fn a_full_pool_says_so() {
    let url = SERVER.database("crowded");
    let settings = "\", pool: 2, wait: 200ms }\nfrom";
    let flows = flow("slow", &url, "select pg_sleep(3)", "rows: none");
    let shop = Shop::run(&flows.replacen("\" }\nfrom", settings, 1));
    let port = shop.port;
    let callers = (0..8).map(|_| thread::spawn(move || post(port, "/slow", "text/plain", "")));
    let callers: Vec<_> = callers.collect();
    let replies: Vec<Response> = callers.into_iter().map(|it| it.join().unwrap()).collect();
    let full = replies.iter().filter(|it| it.status == 503).count();
    // Two workers with a connection each, whichever of them the callers come to.
    assert!((6..=7).contains(&full), "{full}");
    for reply in replies.iter().filter(|it| it.status == 503) {
        assert_eq!(reply.header("Retry-After"), Some("1"));
    }
    let output = shop.stop();
    assert!(
        output.contains("connection `db`: all 1 connections were in use"),
        "{output}"
    );
}

#[test]
fn who_is_not_let_in_is_told_without_the_password() {
    let url = SERVER.database("refused");
    SERVER.sql("postgres", "create role clerk login password 'other'");
    let wrong = SERVER.url_of("clerk", "refused");
    let unknown = SERVER.url("nowhere");
    let closed = url.replace(&SERVER.port().to_string(), &free_port().to_string());
    let no_host = url.replace("127.0.0.1", "nowhere.invalid");
    let flows = [
        flow("wrong", &wrong, "select 1", ""),
        flow("unknown", &unknown, "select 1", ""),
        flow("closed", &closed, "select 1", ""),
        flow("host", &no_host, "select 1", ""),
    ];
    let shop = Shop::run(&flows.concat());
    for path in ["/wrong", "/unknown", "/closed", "/host"] {
        let reply = shop.post(path, &json!(0));
        assert_eq!(reply.status, 502, "{path}");
        assert!(!reply.text().contains("127.0.0.1"), "{}", reply.text());
    }
    let output = shop.stop();
    assert!(
        output.contains("28P01") && output.contains("3D000"),
        "{output}"
    );
}

#[test]
fn a_result_that_is_too_large_costs_nothing_but_itself() {
    let url = SERVER.database("large");
    let query = "select repeat('x', 1000) as a from generate_series(1, 100000)";
    let flows = flow("all", &url, query, "")
        + &flow("few", &url, query, "rows_max: 10")
        + &flow("one", &url, "select 1 as a", "rows: one");
    let shop = Shop::run(&flows);
    assert_eq!(shop.post("/few", &json!(0)).status, 502);
    let before = shop.engine.process.resident_kib();
    assert_eq!(shop.post("/all", &json!(0)).status, 502);
    let after = shop.engine.process.resident_kib();
    assert!(after < before + 160_000, "{before} {after}");
    assert_eq!(body(&shop.post("/one", &json!(0))), json!({"a": 1}));
    wait_until("nothing runs on the server", || busy("large") == "0");
    let output = shop.stop();
    assert!(
        output.contains("connection `db`: the rows take more than"),
        "{output}"
    );
}

#[test]
fn many_rows_go_through_steps_in_batches() {
    let url = SERVER.database("stream");
    SERVER.sql("stream", "create table seen (n int, first int)");
    let flows = format!(
        "flow: all\nuse:\n  db: {{ postgres: \"{url}\", pool: 4 }}\n\
         from: {{ http: \"POST 127.0.0.1:PORT/all\" }}\nsteps:\n\
         \x20 - sql:\n      to: db\n      query: select a from generate_series(1, 20000) a\n\
         \x20     rows: stream\n      batch: 500\n      steps:\n\
         \x20       - if:\n            when: .[0].a == 1001 and ($query.stop != null)\n\
         \x20           then: [ raise: {{ type: enough, status: 418 }} ]\n\
         \x20       - sql:\n            to: db\n\
         \x20           query: insert into seen values (:n, :f)\n\
         \x20           args: {{ n: \"${{ length }}\", f: \"${{ .[0].a }}\" }}\n\
         \x20           rows: none\n"
    );
    let shop = Shop::run(&flows);
    assert_eq!(body(&shop.post("/all", &json!(0))), json!(20_000));
    assert_eq!(
        SERVER.sql("stream", "select count(*), sum(n), max(first) from seen"),
        "40|20000|19501"
    );
    assert_eq!(shop.post("/all?stop=1", &json!(0)).status, 418);
    assert_eq!(SERVER.sql("stream", "select count(*) from seen"), "42");
    wait_until("nothing runs on the server", || busy("stream") == "0");
    shop.stop();
}

#[test]
fn statements_of_a_transaction_happen_together_or_not_at_all() {
    let url = SERVER.database("together");
    SERVER.sql("together", "create table t (a int primary key)");
    let sql = |query: &str, args: &str| {
        format!("        - sql: {{ to: db, query: \"{query}\", {args} rows: none }}\n")
    };
    let two = sql("insert into t values (:a)", "args: { a: \"${ .a }\" },")
        + &sql("insert into t values (:b)", "args: { b: \"${ .b }\" },");
    let head = |name: &str| {
        format!(
            "---\nflow: {name}\nuse:\n  db: {{ postgres: \"{url}\", pool: 2 }}\n\
             from: {{ http: \"POST 127.0.0.1:PORT/{name}\" }}\nsteps:\n\
             \x20 - transaction:\n      to: db\n      steps:\n"
        )
    };
    // The server notes only at its end that its client has been killed.
    let sleep = sql("select pg_sleep(4)", "");
    let flows = [
        head("both") + &two,
        head("raise") + &two + "        - raise: { type: no, status: 422 }\n",
        head("reply") + &two + "        - reply: { status: 201, body: done }\n",
        head("slow") + &two + &sleep + "    timeout: 500ms\n",
        head("hidden")
            + &two.replace(
                "rows: none }\n",
                "rows: none }\n          fallback: { value: 1 }\n",
            ),
        head("beside")
            + "        - parallel:\n            x:\n"
            + &two
                .replace("        -", "              -")
                .replace(":b", ":a + 100")
                .replace("b: \"${ .b }\"", "a: \"${ .a }\"")
            + "            y:\n"
            + &two
                .replace("        -", "              -")
                .replace(":a)", ":b)")
                .replace("a: \"${ .a }\"", "b: \"${ .b }\"")
                .replacen(":b)", ":b + 200)", 1),
        head("tap")
            + &two
            + "        - wiretap:\n            steps:\n"
            + "              - sql: { to: db, query: \"insert into t values (77)\", rows: none }\n"
            + "        - delay: 300ms\n        - raise: { type: no, status: 422 }\n",
    ];
    let shop = Shop::run(&flows.concat());
    let rows = || {
        SERVER.sql(
            "together",
            "select string_agg(a::text, ',' order by a) from t",
        )
    };
    let send = |path: &str, a: i32, b: i32| shop.post(path, &json!({"a": a, "b": b})).status;
    assert_eq!(send("/both", 1, 2), 200);
    assert_eq!(rows(), "1,2");
    assert_eq!(send("/both", 3, 2), 409);
    assert_eq!(send("/raise", 3, 4), 422);
    assert_eq!(send("/slow", 3, 4), 504);
    assert_eq!(send("/hidden", 3, 2), 500);
    wait_until("nothing is open on the server", || busy("together") == "0");
    assert_eq!(rows(), "1,2");
    assert_eq!(send("/reply", 3, 4), 201);
    assert_eq!(send("/beside", 5, 6), 200);
    assert_eq!(rows(), "1,2,3,4,5,6,105,206");
    assert_eq!(send("/tap", 8, 9), 422);
    wait_until("the copy is done", || rows() == "1,2,3,4,5,6,77,105,206");
    // What is killed in the middle leaves nothing.
    let mut client = testkit::RawClient::connect(shop.port);
    client.send(
        "POST /slow HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
        Content-Length: 15\r\n\r\n{\"a\":8,\"b\":9}  ",
    );
    wait_until("the transaction is open", || busy("together") != "0");
    drop(shop);
    wait_until("nothing is open on the server", || busy("together") == "0");
    assert_eq!(rows(), "1,2,3,4,5,6,77,105,206");
}

#[test]
fn transactions_that_meet_are_run_again() {
    let url = SERVER.database("meet");
    SERVER.sql("meet", "create table t (a int); insert into t values (0)");
    let flows = format!(
        "flow: add\nuse:\n  db: {{ postgres: \"{url}\" }}\n\
         from: {{ http: \"POST 127.0.0.1:PORT/add\" }}\nsteps:\n\
         \x20 - transaction:\n      to: db\n      isolation: serializable\n      steps:\n\
         \x20       - sql: {{ to: db, query: select a from t, rows: one }}\n\
         \x20         as: t\n\
         \x20       - sql: {{ to: db, query: \"update t set a = :a\", \
         args: {{ a: \"${{ $t.a + 1 }}\" }}, rows: none }}\n\
         \x20   retry: {{ on: [serialization-failure, deadlock], times: 100, delay: 5ms, \
         delay_max: 50ms }}\n"
    );
    let shop = Shop::run(&flows);
    let port = shop.port;
    let callers = (0..4).map(|_| {
        thread::spawn(move || {
            (0..10).for_each(|_| assert_eq!(post(port, "/add", "text/plain", "").status, 204));
        })
    });
    let callers: Vec<_> = callers.collect();
    callers.into_iter().for_each(|it| it.join().unwrap());
    assert_eq!(SERVER.sql("meet", "select a from t"), "40");
    shop.stop();
}

#[test]
fn procedures_give_what_comes_out() {
    let url = SERVER.database("procedures");
    SERVER.sql(
        "procedures",
        "create schema billing; create procedure billing.close_day(day date, inout count int, \
         out total numeric) language plpgsql as $$ begin count := count + 1; total := 12.50; end $$",
    );
    let flows = format!(
        "flow: close\nuse:\n  db: {{ postgres: \"{url}\" }}\n\
         from: {{ http: \"POST 127.0.0.1:PORT/close\" }}\nsteps:\n  - sql:\n      to: db\n\
         \x20     procedure: billing.close_day\n      args: {{ day: \"${{ . }}\", count: 6 }}\n\
         \x20     out: {{ count: int, total: \"numeric(12,2)\" }}\n"
    );
    let shop = Shop::run(&flows);
    let text = shop.post("/close", &json!("2024-02-29")).text();
    assert_eq!(
        text,
        "{\"out\":{\"count\":7,\"total\":12.50},\"results\":[]}"
    );
    assert_eq!(shop.post("/close", &json!("noon")).status, 400);
    shop.stop();
}

#[test]
fn tls_is_required_and_verified_when_the_flow_says_so() {
    let url = SERVER.database("tls");
    let other = testkit::Authority::new("somebody else");
    let query = "select ssl as secure from pg_stat_ssl where pid = pg_backend_pid()";
    let with = |name: &str, tls: &str| {
        flow(name, &url, query, "rows: one").replacen(
            "\" }\nfrom",
            &format!("\", {tls} }}\nfrom"),
            1,
        )
    };
    let flows = with("plain", "pool: 1")
        + &with("secure", "tls: { ca: ca.pem }")
        + &with("named", "tls: { ca: ca.pem, server_name: localhost }")
        + &with(
            "misnamed",
            "tls: { ca: ca.pem, server_name: elsewhere.example }",
        )
        + &with("stranger", "tls: { ca: other.pem }");
    let (folder, port) = (TempDir::new(), free_port());
    folder.write("ca.pem", SERVER.authority());
    folder.write("other.pem", other.pem());
    let engine = Engine::run(&[&write(&folder, port, &flows)], &[]);
    let ask = |path: &str| post(port, path, "text/plain", "");
    assert_eq!(body(&ask("/plain")), json!({"secure": false}));
    assert_eq!(body(&ask("/secure")), json!({"secure": true}));
    assert_eq!(body(&ask("/named")), json!({"secure": true}));
    assert_eq!(ask("/misnamed").status, 502);
    assert_eq!(ask("/stranger").status, 502);
    let output = engine.stop();
    assert!(
        output.contains("connection `db`: error performing TLS handshake"),
        "{output}"
    );
}

#[test]
fn a_server_that_comes_back_is_used_again() {
    // One of its own, for others would be hit too.
    let server = Postgres::start();
    let url = server.database("back");
    let shop = Shop::run(&flow("now", &url, "select 1 as a", "rows: one"));
    let ask = || shop.post("/now", &json!(0)).status;
    assert_eq!(ask(), 200);
    server.crash();
    wait_until("the loss is told", || ask() == 502);
    server.restart();
    wait_until("it answers again", || ask() == 200);
    for _ in 0..10 {
        assert_eq!(ask(), 200);
    }
    server.stop();
    server.restart();
    wait_until("it answers again", || ask() == 200);
    let output = shop.engine.stop();
    assert!(!output.contains(server.password()), "{output}");
}

#[test]
fn a_reload_keeps_the_connections() {
    let url = SERVER.database("reload");
    let text = flow("pid", &url, "select pg_backend_pid() as pid", "rows: one").replacen(
        "\" }\nfrom",
        "\", pool: 1 }\nfrom",
        1,
    );
    let (folder, port) = (TempDir::new(), free_port());
    let file = write(&folder, port, &text);
    let engine = Engine::run(&[&file], &["--watch"]);
    let ask = || body(&post(port, "/pid", "text/plain", ""))["pid"].clone();
    let pids = || {
        (0..20)
            .map(|_| ask().to_string())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let before = pids();
    write(
        &folder,
        port,
        &(text.clone() + "  - map: \"{ pid, new: true }\"\n"),
    );
    wait_until("the new flow is there", || {
        body(&post(port, "/pid", "text/plain", ""))["new"] == json!(true)
    });
    let after = pids();
    assert!(after.union(&before).count() <= 2, "{before:?} {after:?}");
    let count = |which: &str| {
        let query = "select count(*) from pg_stat_activity where datname = 'reload'";
        SERVER.sql("postgres", &format!("{query} {which}"))
    };
    // Other settings make other connections, and the old ones are closed.
    let mut old: Vec<_> = before.union(&after).cloned().collect();
    for settings in ["pool: 2, decimals: text", "pool: 2"] {
        write(&folder, port, &text.replace("pool: 1", settings));
        let these = format!("and pid in ({})", old.join(", "));
        wait_until("the old connections are closed", || {
            ask();
            count(&these) == "0"
        });
        old = pids().into_iter().collect();
    }
    engine.stop();
    wait_until("all are closed", || count("") == "0");
}

/// Runs an engine whose flow writes each row into another table, and gives what it has written.
fn rows_flow(url: &str, source: &str) -> String {
    format!(
        "flow: copy\nuse:\n  db: {{ postgres: \"{url}\" }}\nfrom:\n  sql: {{ connection: db, \
         every: 50ms, query_delay: 50ms, {source} }}\nsteps:\n\
         \x20 - sql: {{ to: db, query: \"insert into copied values (:id)\", \
         args: {{ id: \"${{ .id }}\" }}, rows: none }}\n"
    )
}

#[test]
fn each_row_starts_the_flow_even_when_the_engine_is_killed() {
    let url = SERVER.database("source");
    SERVER.sql(
        "source",
        "create table t (id serial primary key, sent bool default false)",
    );
    SERVER.sql("source", "create table copied (id int)");
    let query = "query: select id from t where id > :cursor order by id, cursor: id, create: true, \
                 batch: 7";
    let folder = TempDir::new();
    let file = folder.write("flow.yaml", &rows_flow(&url, query));
    SERVER.sql(
        "source",
        "insert into t select from generate_series(1, 400)",
    );
    let copied = || SERVER.sql("source", "select count(distinct id) from copied");
    for least in [50, 150, 250] {
        let mut engine = Engine::run(&[&file], &[]);
        wait_until("some rows are there", || {
            copied().parse::<u32>().unwrap() >= least
        });
        engine.process.signal("KILL");
        engine.process.wait();
    }
    let engine = Engine::run(&[&file], &[]);
    wait_until("all rows are there", || copied() == "400");
    SERVER.sql("source", "insert into t select from generate_series(1, 5)");
    wait_until("new rows are there", || copied() == "405");
    engine.stop();
    // Twice only what was under way when it was killed.
    let twice = SERVER.sql("source", "select count(*) - count(distinct id) from copied");
    assert!(twice.parse::<u32>().unwrap() <= 3, "{twice}");
    let cursor = SERVER.sql("source", "select name, value from intertie_cursor");
    assert_eq!(cursor, "copy|405");
    // The same by marks.
    SERVER.sql("source", "truncate copied");
    let marks = "query: select id from t where not sent order by id, \
                 after: update t set sent = true where id = :id";
    let file = folder.write("flow.yaml", &rows_flow(&url, marks));
    let engine = Engine::run(&[&file], &[]);
    wait_until("all rows are there", || copied() == "405");
    wait_until("all rows are marked", || {
        SERVER.sql("source", "select count(*) from t where not sent") == "0"
    });
    engine.stop();
}

/// A flow that writes what is known of dead letters into the table `letters`.
fn letters_flow(url: &str) -> String {
    format!(
        "---\nflow: letters\nuse:\n  db: {{ postgres: \"{url}\" }}\n\
         from: {{ store: dead-letters }}\nsteps:\n\
         \x20 - sql: {{ to: db, query: \"insert into letters values (:id, :flow, :key, :attempts)\", \
         args: {{ id: \"${{ .id }}\", flow: \"${{ $path.dead_letter_flow }}\", \
         key: \"${{ $path.dead_letter_id }}\", \
         attempts: \"${{ $path.dead_letter_attempts | tonumber }}\" }}, rows: none }}\n"
    )
}

#[test]
fn a_row_that_fails_is_tried_again_a_dead_letter_dropped_or_the_end() {
    let url = SERVER.database("failing");
    SERVER.sql(
        "failing",
        "create table t (id int); insert into t values (1), (2), (3); \
         create table letters (id int, flow text, key text, attempts int)",
    );
    SERVER.sql("failing", "create table copied (id int check (id <> 2))");
    let source = |rest: &str| {
        let query = "query: select id from t where id > :cursor order by id, cursor: id, \
                     create: true,";
        rows_flow(&url, &format!("{query} {rest}")) + &letters_flow(&url)
    };
    let copied = || SERVER.sql("failing", "select string_agg(id::text, ',') from copied");
    let letters = || SERVER.sql("failing", "select id, flow, key, attempts from letters");
    let again = || {
        SERVER.sql("failing", "truncate copied; delete from letters");
        SERVER.sql(
            "failing",
            "update intertie_cursor set value = '1' where name = 'copy'",
        );
    };
    let folder = TempDir::new();
    let run = |rest: &str| Engine::run(&[&folder.write("flow.yaml", &source(rest))], &[]);
    let engine = run("retry: { times: 1000000, delay: 50ms, backoff: 1 }");
    let failed = "intertie_source_failed_total";
    wait_until("the second is tried again", || {
        engine.measured(failed, &[("flow", "copy")]) > Some(3.0)
    });
    assert_eq!((copied().as_str(), letters().as_str()), ("1", ""));
    assert!(engine.process.output().contains("check-violation"));
    engine.stop();
    let engine = run("retry: { times: 1, delay: 10ms }, dead_letter: stop");
    engine.process.wait_for("no further messages are taken");
    assert_eq!((copied().as_str(), letters().as_str()), ("1", ""));
    engine.stop();
    // A failure that is not among those to be retried is the last one.
    let engine = run("retry: { on: [connection], times: 9 }");
    wait_until("the third is there", || copied() == "1,3");
    wait_until("the second is a dead letter", || {
        letters() == r#"2|copy|{"id":2}|1"#
    });
    let cursor = SERVER.sql(
        "failing",
        "select value from intertie_cursor where name = 'copy'",
    );
    assert_eq!(cursor, "3");
    engine.stop();
    again();
    let engine = run("retry: { times: 0 }, dead_letter: drop");
    wait_until("the third is there", || copied() == "3");
    let dropped = engine.measured("intertie_source_dropped_total", &[("flow", "copy")]);
    assert_eq!(dropped, Some(1.0));
    assert_eq!(letters(), "");
    engine.stop();
}

#[test]
fn the_old_word_for_failures_is_refused_with_the_new_one() {
    let folder = TempDir::new();
    let query = "query: select id from t where id > :cursor order by id, cursor: id, \
                 on_failure: skip";
    let flow = rows_flow("postgres://db", query);
    let file = folder.write("flow.yaml", &flow).display().to_string();
    let checked = output(&["check", &file]);
    let told = String::from_utf8_lossy(&checked.stderr).into_owned();
    let told = told + &String::from_utf8_lossy(&checked.stdout);
    assert!(!checked.status.success(), "{told}");
    assert!(told.contains("it is called `dead_letter` now"), "{told}");
}

#[test]
fn a_row_is_not_marked_before_its_dead_letter_is_on_the_disk() {
    let url = SERVER.database("blocked");
    SERVER.sql(
        "blocked",
        "create table t (id int, done bool default false); insert into t values (1), (2); \
         create table copied (id int check (id <> 1)); \
         create table letters (id int, flow text, key text, attempts int)",
    );
    let marks = "query: select id from t where not done order by id, \
                 after: update t set done = true where id = :id, retry: { times: 0 }";
    let flows = rows_flow(&url, marks);
    let (folder, data) = (TempDir::new(), TempDir::new());
    let file = folder.write("flow.yaml", &flows);
    // Killed right after the row has failed, or before: whichever it was, the row is not lost.
    let options = ["--data", &data.path().join("data").display().to_string()];
    let mut engine = Engine::run(&[&file], &options);
    engine.process.wait_for("check-violation");
    engine.process.signal("KILL");
    engine.process.wait();
    let file = folder.write("flow.yaml", &(flows + &letters_flow(&url)));
    let engine = Engine::run(&[&file], &options);
    let letters = || SERVER.sql("blocked", "select distinct id, key from letters");
    wait_until("the first is a dead letter", || {
        letters() == r#"1|{"id":1}"#
    });
    wait_until("all are marked", || {
        SERVER.sql("blocked", "select count(*) from t where not done") == "0"
    });
    assert_eq!(SERVER.sql("blocked", "select distinct id from copied"), "2");
    engine.stop();
}

#[test]
fn a_row_whose_flow_replies_with_an_error_is_not_done() {
    let url = SERVER.database("replying");
    SERVER.sql(
        "replying",
        "create table t (id int); insert into t values (1), (2), (3); \
         create table copied (id int); create table down (yes bool); insert into down values (true)",
    );
    let query = "query: select id from t where id > :cursor order by id, cursor: id, create: true, \
                 retry: { times: 1000000, delay: 50ms, backoff: 1 }";
    let flow = rows_flow(&url, query)
        + "  - sql: { to: db, query: select yes from down, rows: one }\n    as: down\n"
        + "  - reply: { status: 502, body: the ERP is down }\n    if: $down.yes and .id == 2\n";
    let folder = TempDir::new();
    let engine = Engine::run(&[&folder.write("flow.yaml", &flow)], &[]);
    let copied = |id: i32| {
        let count = format!("select count(*) from copied where id = {id}");
        SERVER.sql("replying", &count).parse::<u32>().unwrap()
    };
    wait_until("the second is tried again", || copied(2) >= 3);
    let cursor = || SERVER.sql("replying", "select value from intertie_cursor");
    assert_eq!((cursor().as_str(), copied(1), copied(3)), ("1", 1, 0));
    SERVER.sql("replying", "update down set yes = false");
    wait_until("all are done", || cursor() == "3");
    assert_eq!(copied(3), 1);
    engine.stop();
}
