//! The driver of MySQL against MariaDB.

use std::time::Duration;

use connectors::sql::Database;
use connectors::sql::Decimals;
use connectors::sql::Dialect::MySql;
use connectors::sql::error::Class;
use connectors::sql::session::{ArgumentsFrom, Isolation};
use expr::value::{self, Value};
use testkit::servers::MariaDb;

use crate::sql_session::{
    Kept, call, change, connect, database, failure, keep, lines, on_worker, rows, statement, text,
    tls, try_connect,
};

/// A database of its own on the server that all tests share.
fn own(name: &str) -> Database {
    let server = MariaDb::shared();
    server.run(&format!("create database {name}"));
    Database {
        name: Some(name.to_owned()),
        ..at(server)
    }
}

fn at(server: &MariaDb) -> Database {
    database(MySql, server.port(), ("app", MariaDb::PASSWORD))
}

#[test]
fn every_type_has_its_json() {
    let database = own("types");
    MariaDb::shared().run(
        "create table types.t (
           ti tinyint, t1 tinyint(1), tu tinyint unsigned, si smallint, mi mediumint, i int,
           bi bigint, bu bigint unsigned, f float, d double, de decimal(30,10), y year,
           da date, t time(6), dt datetime(6), ts timestamp(3), b1 bit(1), b64 bit(64),
           c char(3), v varchar(20), l varchar(20) character set latin1, x text, e enum('a','b'),
           s set('x','y'), bin binary(3), vb varbinary(10), bl blob, j json, g geometry);
         set time_zone = '+02:00';
         insert into types.t values (
           -128, 1, 255, -32768, 8388607, -2147483648,
           -9223372036854775808, 18446744073709551615, 0.1, 1e300, 12345678901234567890.0123456789,
           2026, '2026-01-31', '-838:59:58.5', '2026-01-31 12:00:00.5', '2026-01-31 12:00:00.25',
           1, 0xffffffffffffffff, 'abc', 'äö\\u', 'äé', 'text', 'b', 'x,y', 'ab', 0xff00, 0xfe,
           '{\"a\": [1.0, null]}', point(1, 2));
         insert into types.t () values ();
         insert into types.t (dt, da) values ('2026-12-31 23:59:59', '2026-12-31')",
    );
    on_worker(async {
        let mut session = connect(database).await;
        let found = rows(&mut *session, "select * from t", &[]).await;
        let found: Vec<&str> = found.lines().collect();
        assert_eq!(
            found[0],
            r#"{"ti":-128,"t1":1,"tu":255,"si":-32768,"mi":8388607,"i":-2147483648,"#.to_owned()
                + r#""bi":-9223372036854775808,"bu":18446744073709551615,"f":0.1,"d":1e300,"#
                + r#""de":12345678901234567890.0123456789,"y":2026,"da":"2026-01-31","#
                + r#""t":"-838:59:58.5","dt":"2026-01-31T12:00:00.5","#
                + r#""ts":"2026-01-31T10:00:00.25Z","b1":1,"b64":18446744073709551615,"#
                + r#""c":"abc","v":"äöu","l":"äé","x":"text","e":"b","s":"x,y","bin":"YWIA","#
                + r#""vb":"/wA=","bl":"/g==","j":"{\"a\": [1.0, null]}","#
                + r#""g":"AAAAAAEBAAAAAAAAAAAA8D8AAAAAAAAAQA=="}"#
        );
        assert!(found[1].contains(r#""ti":null"#) && found[1].ends_with(r#""g":null}"#));
        assert!(found[2].contains(r#""da":"2026-12-31""#), "{}", found[2]);
        assert!(
            found[2].contains(r#""dt":"2026-12-31T23:59:59""#),
            "{}",
            found[2]
        );
        session.close().await;
    });
}

#[test]
fn decimals_may_be_texts() {
    let database = Database {
        decimals: Decimals::Text,
        ..at(MariaDb::shared())
    };
    on_worker(async {
        let mut session = connect(database).await;
        let found = rows(
            &mut *session,
            "select 1.50 a, cast(2 as decimal) b, 1e0 c",
            &[],
        )
        .await;
        assert_eq!(found, r#"{"a":"1.50","b":"2","c":1.0}"#);
    });
}

/// What would become SQL if it were pasted.
const NASTY: &[&str] = &[
    "'; drop table t; -- ",
    "\\'; drop table t; -- ",
    "\" or 1=1 #",
    "\0\n\r\u{1a}%_\\",
    "ä€𝄞 \u{202e}",
    "",
];

#[test]
fn arguments_are_bound_and_never_pasted() {
    let database = own("bound");
    on_worker(async {
        let mut session = connect(database).await;
        let session = &mut *session;
        change(
            session,
            "create table t (id int, v text character set utf8mb4)",
        )
        .await;
        for (id, nasty) in NASTY.iter().enumerate() {
            let arguments = [value::integer(id as i64), text(nasty)];
            let insert = statement("insert into t values (?, ?)", &["id", "v"]);
            let (_, done) = keep(session, &insert, &arguments).await.unwrap();
            assert_eq!(done.changed, 1);
            let select = statement("select v from t where v = ? and id = ?", &["v", "id"]);
            let arguments = [text(nasty), value::integer(id as i64)];
            let (kept, _) = keep(session, &select, &arguments).await.unwrap();
            assert_eq!(value::get(&kept.sets[0][0], "v"), Some(&text(nasty)));
        }
        let arguments = [
            Value::Null,
            Value::Bool(true),
            value::number("18446744073709551615"),
            value::number("12345678901234567890.0123456789"),
            value::number("1e-3"),
            value::bytes(vec![0xff, 0].into()),
        ];
        let found = rows(
            session,
            "select ? a, ? b, ? c, cast(? as decimal(30,10)) d, ? e, cast(? as binary) f",
            &arguments,
        );
        assert_eq!(
            found.await,
            r#"{"a":null,"b":1,"c":18446744073709551615,"#.to_owned()
                + r#""d":12345678901234567890.0123456789,"e":0.001,"f":"/wA="}"#
        );
        let odd = statement("select ?", &["a"]);
        let error = keep(session, &odd, &[value::array([])])
            .await
            .err()
            .unwrap();
        assert_eq!(error.class, Class::Argument);
        assert!(!session.is_broken());
        assert_eq!(
            rows(session, "select count(*) n from t", &[]).await,
            r#"{"n":6}"#
        );
    });
}

#[test]
fn failures_have_their_classes_and_the_session_goes_on() {
    let database = own("failures");
    on_worker(async {
        let mut session = connect(database).await;
        let session = &mut *session;
        change(session, "create table p (id int primary key)").await;
        change(
            session,
            "create table t (id int primary key, p int references p (id), n int not null,
             constraint small check (n < 10))",
        )
        .await;
        change(session, "insert into p values (1)").await;
        change(session, "insert into t values (1, 1, 1)").await;
        let cases = [
            (
                "insert into t values (1, 1, 1)",
                Class::Unique,
                "1062 (23000)",
            ),
            (
                "insert into t values (2, 7, 1)",
                Class::ForeignKey,
                "1452 (23000)",
            ),
            ("delete from p", Class::ForeignKey, "1451 (23000)"),
            (
                "insert into t values (3, 1, null)",
                Class::NotNull,
                "1048 (23000)",
            ),
            (
                "insert into t (id) values (3)",
                Class::NotNull,
                "1364 (HY000)",
            ),
            (
                "insert into t values (4, 1, 10)",
                Class::Check,
                "4025 (23000)",
            ),
            ("selec 1", Class::Statement, "1064 (42000)"),
            ("select * from nothing", Class::Statement, "1146 (42S02)"),
            (
                "set statement max_statement_time=0.1 for select sleep(30)",
                Class::Timeout,
                "",
            ),
        ];
        for (text, class, code) in cases {
            let error = failure(session, text).await;
            assert_eq!(error.class, class, "{text}: {error:?}");
            let found = error.code.unwrap_or_default();
            assert!(found.starts_with(code), "{text}: {found}");
            assert!(!session.is_broken(), "{text}");
        }
        let two = failure(session, "select 1 a, 2 a").await;
        assert_eq!(two.class, Class::Unsupported, "{two:?}");
        // The little that was left of it has been read.
        assert!(!session.is_broken());
        assert_eq!(rows(session, "select 7 a", &[]).await, r#"{"a":7}"#);
    });
}

#[test]
fn rows_that_an_update_finds_are_counted() {
    let database = own("counts");
    on_worker(async {
        let mut session = connect(database).await;
        let session = &mut *session;
        change(session, "create table t (id int primary key, n int)").await;
        assert_eq!(
            change(session, "insert into t values (1, 1), (2, 1)").await,
            2
        );
        assert_eq!(change(session, "update t set n = 1").await, 2);
        assert_eq!(change(session, "delete from t where id > 1").await, 1);
        let (kept, done) = keep(session, &statement("select * from t", &[]), &[])
            .await
            .unwrap();
        assert_eq!(
            (lines(&kept.sets[0]).as_str(), done.changed),
            (r#"{"id":1,"n":1}"#, 0)
        );
        let returning = statement("insert into t values (3, 4) returning id", &[]);
        let (kept, _) = keep(session, &returning, &[]).await.unwrap();
        assert_eq!(lines(&kept.sets[0]), r#"{"id":3}"#);
    });
}

#[test]
fn transactions_are_kept_apart() {
    let database = own("transactions");
    let again = || Database {
        name: Some("transactions".to_owned()),
        ..at(MariaDb::shared())
    };
    on_worker(async {
        let mut one = connect(database).await;
        let mut other = connect(again()).await;
        let count = "select count(*) n from t";
        change(&mut *one, "create table t (id int primary key, n int)").await;
        for isolation in [
            None,
            Some(Isolation::ReadUncommitted),
            Some(Isolation::ReadCommitted),
            Some(Isolation::RepeatableRead),
            Some(Isolation::Snapshot),
            Some(Isolation::Serializable),
        ] {
            one.begin(isolation).await.unwrap();
            change(&mut *one, "insert into t values (1, 1)").await;
            assert_eq!(
                rows(&mut *other, count, &[]).await,
                r#"{"n":0}"#,
                "{isolation:?}"
            );
            one.rollback().await.unwrap();
            assert_eq!(
                rows(&mut *one, count, &[]).await,
                r#"{"n":0}"#,
                "{isolation:?}"
            );
        }
        one.begin(None).await.unwrap();
        change(&mut *one, "insert into t values (1, 1), (2, 2)").await;
        one.commit().await.unwrap();
        assert_eq!(rows(&mut *other, count, &[]).await, r#"{"n":2}"#);
        // Each holds a row that the other wants.
        one.begin(None).await.unwrap();
        other.begin(None).await.unwrap();
        change(&mut *one, "update t set n = 5 where id = 1").await;
        change(&mut *other, "update t set n = 6 where id = 2").await;
        let (first, second) = (
            statement("update t set n = 5 where id = 2", &[]),
            statement("update t set n = 6 where id = 1", &[]),
        );
        let (mut sink, mut other_sink) = (Kept::default(), Kept::default());
        let both = futures_util::future::join(
            one.run(&first, &[], &mut sink),
            other.run(&second, &[], &mut other_sink),
        );
        let (first, second) = both.await;
        assert_ne!(first.is_ok(), second.is_ok(), "{first:?} {second:?}");
        // The server says that it has rolled all of the one back, and the other not.
        assert_eq!(one.is_aborted(), first.is_err());
        assert_eq!(other.is_aborted(), second.is_err());
        let error = first.err().or(second.err()).unwrap();
        assert_eq!(error.class, Class::Deadlock, "{error:?}");
        one.rollback().await.unwrap();
        other.rollback().await.unwrap();
        // A lock that is not given up.
        change(&mut *other, "set innodb_lock_wait_timeout = 1").await;
        one.begin(None).await.unwrap();
        other.begin(None).await.unwrap();
        change(&mut *one, "update t set n = 7").await;
        let error = failure(&mut *other, "update t set n = 8").await;
        assert_eq!(
            (error.class, error.is_without_effect),
            (Class::Timeout, true)
        );
        // Only the statement is rolled back.
        assert!(!other.is_aborted());
        one.rollback().await.unwrap();
        other.rollback().await.unwrap();
        // A statement that commits by itself ends the transaction.
        one.begin(None).await.unwrap();
        let error = failure(&mut *one, "create table u (id int)").await;
        assert_eq!(error.class, Class::Statement, "{error:?}");
        assert!(one.is_aborted() && !one.is_broken());
        one.rollback().await.unwrap();
        assert!(!one.is_aborted());
    });
}

#[test]
fn decimals_are_compared_exactly() {
    let database = own("exact");
    on_worker(async {
        let mut session = connect(database).await;
        let session = &mut *session;
        change(session, "create table t (d decimal(30,10))").await;
        let (one, next) = (
            "12345678901234567890.0123456789",
            "12345678901234567890.0123456788",
        );
        change(session, &format!("insert into t values ({one}), ({next})")).await;
        let equal = "select count(*) n from t where d = ?";
        let found = rows(session, equal, &[value::number(one)]).await;
        assert_eq!(found, r#"{"n":1}"#);
    });
}

#[test]
fn a_timestamp_that_was_read_goes_back_as_a_moment() {
    let database = own("moments");
    on_worker(async {
        let mut session = connect(database).await;
        let session = &mut *session;
        change(session, "create table t (ts timestamp(3), v varchar(30))").await;
        let read = [text("2026-01-31T10:00:00.25Z")];
        for (column, kind) in [("ts", "datetime"), ("v", "varchar")] {
            let mut made = statement("create or replace table u as select ? as x", &["c"]);
            made.arguments_from = Some(ArgumentsFrom {
                query: "select ts, v from t where ts > ?".to_owned(),
                cursor: Some(column.to_owned()),
            });
            keep(session, &made, &read).await.unwrap();
            let asked = "select data_type t from information_schema.columns \
                         where table_schema = 'moments' and table_name = 'u'";
            let found = rows(session, asked, &[]).await;
            assert_eq!(found, format!(r#"{{"t":"{kind}"}}"#));
        }
    });
}

#[test]
fn a_batch_costs_no_connection() {
    on_worker(async {
        let mut session = connect(own("batches")).await;
        let session = &mut *session;
        let mut batch = statement("select seq from seq_1_to_1000000", &[]);
        batch.rows_max = Some(3);
        let (kept, _) = keep(session, &batch, &[]).await.unwrap();
        assert_eq!(kept.sets[0].len(), 3);
        let all = "select count(*) n from (select seq from seq_1_to_1000) s union all select 1";
        assert_eq!(rows(session, all, &[]).await.lines().count(), 2);
        // One that is refused near its end is read to it.
        let mut sink = Kept {
            rows_max: Some(10),
            ..Kept::default()
        };
        let some = statement("select seq from seq_1_to_100", &[]);
        let ended = session.run(&some, &[], &mut sink).await;
        assert_eq!(ended.err().map(|error| error.class), Some(Class::TooLarge));
        assert!(!session.is_broken());
        assert_eq!(rows(session, "select 7 a", &[]).await, r#"{"a":7}"#);
    });
}

/// A balancer that leads the first connection to the first server and all others to the second.
fn balancer(ports: [u16; 2]) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for (at, client) in listener.incoming().enumerate() {
            let client = client.unwrap();
            let server = std::net::TcpStream::connect(("127.0.0.1", ports[at.min(1)])).unwrap();
            let ways = [
                (client.try_clone().unwrap(), server.try_clone().unwrap()),
                (server, client),
            ];
            for (mut from, mut to) in ways {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    port
}

#[test]
fn behind_a_balancer_nobody_elses_statement_is_killed() {
    let servers = [MariaDb::start(), MariaDb::start()];
    let balanced = balancer([servers[0].port(), servers[1].port()]);
    on_worker(async {
        let id = |found: String| -> i64 {
            let digits: String = found.chars().filter(char::is_ascii_digit).collect();
            digits.parse().unwrap()
        };
        let ask = "select connection_id() i";
        // Somebody else on the other server, with the same number.
        let mut others = connect(at(&servers[1])).await;
        let theirs = id(rows(&mut *others, ask, &[]).await);
        while id(servers[0].run("select connection_id()")) < theirs - 1 {}
        let who = ("app", MariaDb::PASSWORD);
        let mut session = connect(database(MySql, balanced, who)).await;
        let mut ours = id(rows(&mut *session, ask, &[]).await);
        while id(rows(&mut *others, ask, &[]).await) < ours {
            others = connect(at(&servers[1])).await;
        }
        let theirs = id(rows(&mut *others, ask, &[]).await);
        while ours < theirs {
            let again = balancer([servers[0].port(), servers[1].port()]);
            session = connect(database(MySql, again, who)).await;
            ours = id(rows(&mut *session, ask, &[]).await);
        }
        assert_eq!(ours, theirs);
        let slow = statement("select sleep(2) as a", &[]);
        let (mut sink, mut their_sink) = (Kept::default(), Kept::default());
        let mut their_work = others.run(&slow, &[], &mut their_sink);
        let time = Duration::from_millis(200);
        assert!(tokio::time::timeout(time, &mut their_work).await.is_err());
        let work = session.run(&slow, &[], &mut sink);
        assert!(tokio::time::timeout(time, work).await.is_err());
        assert!(session.recover().await.is_none());
        their_work.await.unwrap();
        // A statement of `sleep` that is killed gives 1.
        assert_eq!(lines(&their_sink.sets[0]), r#"{"a":0}"#);
    });
}

/// How many statements with this text run on the server.
fn running(text: &str) -> String {
    let sql = format!(
        "select count(*) from information_schema.processlist
         where info like '%{text}%' and info not like '%processlist%'"
    );
    MariaDb::shared().run(&sql).trim().to_owned()
}

#[test]
fn a_statement_that_is_given_up_ends_on_the_server() {
    on_worker(async {
        let mut session = connect(at(MariaDb::shared())).await;
        let slow = statement("select sleep(600) as slow_one", &[]);
        let mut sink = Kept::default();
        let work = session.run(&slow, &[], &mut sink);
        let time = Duration::from_millis(300);
        assert!(tokio::time::timeout(time, work).await.is_err());
        assert_eq!(running("slow_one"), "1");
        assert!(session.recover().await.is_none());
        testkit::wait_until("it has ended", || running("slow_one") == "0");
    });
}

#[test]
fn a_large_result_is_read_no_faster_than_it_is_wanted() {
    let database = own("large");
    let again = || Database {
        name: Some("large".to_owned()),
        ..at(MariaDb::shared())
    };
    on_worker(async {
        let mut session = connect(database).await;
        let many = "select seq, repeat('x', 1000) as large_one from seq_1_to_50000";
        let many = statement(many, &[]);
        let mut sink = Kept {
            drains: Some(0),
            ..Kept::default()
        };
        session.run(&many, &[], &mut sink).await.unwrap();
        assert_eq!((sink.sets[0].len(), sink.drains), (50_000, Some(50_000)));
        assert!(sink.size > 50_000_000, "{}", sink.size);
        // One that is refused is stopped on the server, and what is left of it is not read.
        let endless = "select a.seq x, repeat('x', 1000) as endless_one
                       from seq_1_to_1000000 a, seq_1_to_1000000 b";
        let mut sink = Kept {
            rows_max: Some(10),
            ..Kept::default()
        };
        let ended = session.run(&statement(endless, &[]), &[], &mut sink).await;
        assert_eq!(ended.err().map(|error| error.class), Some(Class::TooLarge));
        assert!(session.is_broken());
        session.close().await;
        testkit::wait_until("it has ended", || running("endless_one") == "0");
        let mut session = connect(again()).await;
        let huge = "select repeat('x', 15000000) a";
        let (kept, _) = keep(&mut *session, &statement(huge, &[]), &[])
            .await
            .unwrap();
        assert_eq!(lines(&kept.sets[0]).len(), 15_000_008);
    });
}

#[test]
fn procedures_give_sets_and_parameters() {
    let database = own("procedures");
    MariaDb::shared().run(
        "delimiter //
         create procedure procedures.two (in a int, out b decimal(12,2), inout C varchar(20))
         begin select a as first, c as was; select 2 as second union select 3;
         set b = a + 0.25; set c = concat(c, '!'); end//
         create procedure procedures.none () begin end//
         create procedure procedures.odd (out b int) begin set b = 1; select 5 as b; end//
         create procedure procedures.two_odd (out b int)
         begin set b = 1; select 5 as b union select 6; select 7 as b; end//
         create procedure procedures.bad (in a int)
         begin select 1 as fine; select * from nowhere; end//",
    );
    on_worker(async {
        let mut session = connect(database).await;
        let session = &mut *session;
        let outs = [("c", "varchar(20)"), ("b", "decimal(12,2)")];
        let two = call(MySql, "procedures.two", &["c", "a"], &outs);
        for _ in 0..2 {
            let arguments = [text("'; x"), value::integer(1)];
            let (kept, done) = keep(session, &two, &arguments).await.unwrap();
            assert_eq!(kept.sets.len(), 2);
            assert_eq!(lines(&kept.sets[0]), r#"{"first":1,"was":"'; x"}"#);
            assert_eq!(lines(&kept.sets[1]), "{\"second\":2}\n{\"second\":3}");
            let expected = [("c", text("'; x!")), ("b", value::number("1.25"))];
            let expected = expected.map(|(name, value)| (name.to_owned(), value));
            assert_eq!(done.outs, expected);
        }
        let (kept, done) = keep(session, &call(MySql, "none", &[], &[]), &[])
            .await
            .unwrap();
        assert_eq!((kept.sets.len(), done.outs.len()), (0, 0));
        // What comes out has the same name as a column, or nobody asks for it.
        for (outs, count) in [(&[("b", "int")][..], 1), (&[], 0)] {
            let (kept, done) = keep(session, &call(MySql, "odd", &[], outs), &[])
                .await
                .unwrap();
            assert_eq!(
                (kept.sets.len(), lines(&kept.sets[0]).as_str()),
                (1, r#"{"b":5}"#)
            );
            assert_eq!(done.outs.len(), count);
            let call = call(MySql, "two_odd", &[], outs);
            let (kept, done) = keep(session, &call, &[]).await.unwrap();
            let sets: Vec<usize> = kept.sets.iter().map(Vec::len).collect();
            assert_eq!((sets, done.outs.len()), (vec![2, 1], count));
        }
        let bad = call(MySql, "bad", &["a"], &[]);
        let error = keep(session, &bad, &[Value::Null]).await;
        let error = error.map(|(kept, _)| kept.sets).unwrap_err();
        assert_eq!(error.code.as_deref(), Some("1146 (42S02)"), "{error:?}");
        for (name, arguments) in [("nobody", &[][..]), ("two", &["a"]), ("none", &["a"])] {
            let values = vec![value::integer(1); arguments.len()];
            let error = keep(session, &call(MySql, name, arguments, &[]), &values).await;
            let error = error.map(|(kept, done)| (kept.sets, done));
            assert_eq!(error.unwrap_err().class, Class::Statement, "{name}");
        }
        assert!(!session.is_broken());
    });
}

#[test]
fn the_server_gets_no_file_of_ours() {
    let database = own("files");
    on_worker(async {
        let mut session = connect(database).await;
        change(&mut *session, "create table t (a text)").await;
        let error = failure(
            &mut *session,
            "load data local infile '/etc/hostname' into table t",
        );
        let error = error.await;
        assert_eq!(error.class, Class::Statement, "{error:?}");
        assert!(session.is_broken());
    });
}

/// Why a database cannot be connected to. No password is shown.
async fn refusal(database: Database) -> (Class, String) {
    let error = try_connect(database).await.err().expect("it lets us in");
    for secret in [MariaDb::PASSWORD, "wrong-secret"] {
        assert!(!format!("{error:?}").contains(secret), "{error:?}");
        let fault = error.clone().fault("db");
        assert!(!format!("{fault:?} {fault}").contains(secret), "{fault:?}");
    }
    (error.class, error.message)
}

#[test]
fn nobody_gets_in_who_may_not() {
    let server = MariaDb::shared();
    on_worker(async {
        let port = server.port();
        let (class, message) = refusal(database(MySql, port, ("app", "wrong-secret"))).await;
        assert_eq!(class, Class::Refused, "{message}");
        let (class, message) = refusal(database(MySql, port, ("nobody", "wrong-secret"))).await;
        assert_eq!(class, Class::Refused, "{message}");
        let unknown = Database {
            name: Some("nowhere".to_owned()),
            ..at(server)
        };
        let (class, message) = refusal(unknown).await;
        assert_eq!(
            (class, message.as_str()),
            (Class::Refused, "Unknown database 'nowhere'")
        );
        let closed = database(MySql, testkit::free_port(), ("app", MariaDb::PASSWORD));
        let (class, message) = refusal(closed).await;
        assert_eq!(class, Class::Unreachable, "{message}");
    });
}

#[test]
fn tls_needs_a_good_certificate() {
    let server = MariaDb::shared();
    server.run("create user secure identified by 'secret' require ssl");
    let at_port = || database(MySql, server.port(), ("secure", "secret"));
    on_worker(async {
        let (class, message) = refusal(at_port()).await;
        assert_eq!(class, Class::Refused, "{message}");
        let good = Database {
            tls: Some(tls(server.authority())),
            ..at_port()
        };
        let mut session = connect(good).await;
        let found = rows(&mut *session, "show status like 'ssl_version'", &[]).await;
        assert_eq!(
            found,
            r#"{"Variable_name":"Ssl_version","Value":"TLSv1.3"}"#
        );
        let other = testkit::Authority::new("other");
        let system = connectors::Tls::default();
        let named = connectors::Tls {
            server_name: Some("db.example".to_owned()),
            ..tls(server.authority())
        };
        for bad in [tls(other.pem()), system, named] {
            let (class, message) = refusal(Database {
                tls: Some(bad),
                ..at_port()
            })
            .await;
            assert_eq!(class, Class::Refused, "{message}");
            assert!(
                message.contains("certificate") || message.contains("authorities"),
                "{message}"
            );
        }
    });
}

#[test]
fn a_server_that_was_killed_is_noticed_and_found_again() {
    let mut server = MariaDb::start();
    let again = database(MySql, server.port(), ("app", MariaDb::PASSWORD));
    on_worker(async {
        let mut session = connect(at(&server)).await;
        let mut waiting = connect(at(&server)).await;
        session.begin(None).await.unwrap();
        let slow = statement("select sleep(600) a", &[]);
        let mut sink = Kept::default();
        let mut work = waiting.run(&slow, &[], &mut sink);
        let time = Duration::from_millis(200);
        assert!(tokio::time::timeout(time, &mut work).await.is_err());
        server.restart();
        assert_eq!(work.await.err().map(|it| it.class), Some(Class::Lost));
        assert!(waiting.is_broken());
        let error = session.ping().await.err().unwrap();
        assert_eq!(error.class, Class::Lost, "{error:?}");
        assert!(session.is_broken());
        session.close().await;
        let mut session = connect(again).await;
        session.ping().await.unwrap();
        assert_eq!(rows(&mut *session, "select 1 a", &[]).await, r#"{"a":1}"#);
    });
}
