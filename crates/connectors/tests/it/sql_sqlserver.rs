//! The driver of SQL Server against Iridium.

use std::time::Duration;

use connectors::sql::Dialect::SqlServer;
use connectors::sql::error::Class;
use connectors::sql::session::Isolation;
use connectors::sql::session::Session;
use connectors::sql::{Database, Texts};
use expr::value::{self, Value};
use testkit::servers::Iridium;
use testkit::tds::{self, ScriptedTds, TdsReply};

use crate::sql_session::{
    Kept, call, change, connect, database, failure, keep, lines, on_worker, rows, statement, text,
    tls, try_connect,
};

fn at(server: &Iridium) -> Database {
    let who = (Iridium::USER, Iridium::PASSWORD);
    database(SqlServer, server.port(), who)
}

#[test]
fn types_come_from_an_engine() {
    on_worker(async {
        let mut session = connect(at(Iridium::shared())).await;
        let cases = [
            (
                "select 1 as a, N'äöü €' as b, null as c",
                r#"{"a":1,"b":"äöü €","c":null}"#,
            ),
            (
                "select cast(1 as bit) b, cast(255 as tinyint) t, cast(-5 as smallint) s,
                 cast(-9223372036854775808 as bigint) i",
                r#"{"b":true,"t":255,"s":-5,"i":-9223372036854775808}"#,
            ),
            (
                "select cast(12345678901234567890.0123456789 as decimal(30,10)) d,
                 cast(-0.05 as numeric(5,2)) n",
                r#"{"d":12345678901234567890.0123456789,"n":-0.05}"#,
            ),
            (
                "select cast(0.1 as real) r, cast(1e300 as float) f",
                r#"{"r":0.1,"f":1e300}"#,
            ),
            (
                "select cast('6F9619FF-8B86-D011-B42D-00C04FC964FF' as uniqueidentifier) u",
                r#"{"u":"6f9619ff-8b86-d011-b42d-00c04fc964ff"}"#,
            ),
            (
                "select cast(0xff00 as varbinary(10)) v, cast('<a>1</a>' as xml) x",
                r#"{"v":"/wA=","x":"<a>1</a>"}"#,
            ),
        ];
        for (query, expected) in cases {
            assert_eq!(rows(&mut *session, query, &[]).await, expected);
        }
        session.close().await;
    });
}

/// What would become SQL if it were pasted.
const NASTY: &[&str] = &[
    "'; drop table bound; --",
    "' or 1=1 --",
    "]; drop table bound; --",
    "@P1 @@version",
    "ä€𝄞 \u{202e}\r\n\\",
    "",
];

#[test]
fn arguments_are_bound_and_never_pasted() {
    on_worker(async {
        let mut session = connect(at(Iridium::shared())).await;
        let session = &mut *session;
        change(session, "create table bound (id bigint, v nvarchar(100))").await;
        for (id, nasty) in NASTY.iter().enumerate() {
            let arguments = [value::integer(id as i64), text(nasty)];
            let insert = statement("insert into bound values (@P1, @P2)", &["id", "v"]);
            keep(session, &insert, &arguments).await.unwrap();
            let select = "select v from bound where v = @P2 and id = @P1";
            let select = statement(select, &["id", "v"]);
            let (kept, _) = keep(session, &select, &arguments).await.unwrap();
            assert_eq!(value::get(&kept.sets[0][0], "v"), Some(&text(nasty)));
        }
        let arguments = [Value::Null, Value::Bool(true), value::number("1e3")];
        let found = rows(session, "select @P1 a, @P2 b, @P3 c", &arguments).await;
        assert!(found.starts_with(r#"{"a":null,"b":"#), "{found}");
        let odd = statement("select @P1 a", &["a"]);
        let error = keep(session, &odd, &[value::array([])])
            .await
            .err()
            .unwrap();
        assert_eq!((error.class, session.is_broken()), (Class::Argument, false));
        assert_eq!(
            rows(session, "select count(*) n from bound", &[]).await,
            r#"{"n":6}"#
        );
    });
}

#[test]
fn an_engine_refuses_statements_and_the_session_goes_on() {
    on_worker(async {
        let mut session = connect(at(Iridium::shared())).await;
        let session = &mut *session;
        change(session, "create table refused (id int primary key)").await;
        change(session, "insert into refused values (1)").await;
        let cases = [
            ("selec 1", "102", Class::Statement),
            ("select * from nowhere", "208", Class::Statement),
            ("insert into refused values (1)", "50000", Class::Statement),
            ("select 1/0 as a", "8134", Class::Statement),
            ("throw 50001, 'mine', 1", "50001", Class::Statement),
            ("throw 2627, 'twice', 1", "2627", Class::Unique),
        ];
        for (query, code, class) in cases {
            let error = failure(session, query).await;
            assert_eq!(
                (error.code.as_deref(), error.class),
                (Some(code), class),
                "{query}"
            );
            assert!(!session.is_broken(), "{query}");
        }
        let error = failure(session, "select 1 as a, 2 as a").await;
        assert_eq!(error.class, Class::Unsupported);
        assert_eq!(rows(session, "select 1 a", &[]).await, r#"{"a":1}"#);
    });
}

#[test]
fn transactions_are_kept_apart() {
    on_worker(async {
        let mut one = connect(at(Iridium::shared())).await;
        let count = "select count(*) n from moves";
        change(&mut *one, "create table moves (id int primary key)").await;
        for isolation in [
            None,
            Some(Isolation::ReadCommitted),
            Some(Isolation::Serializable),
        ] {
            one.begin(isolation).await.unwrap();
            change(&mut *one, "insert into moves values (1)").await;
            one.rollback().await.unwrap();
            assert_eq!(
                rows(&mut *one, count, &[]).await,
                r#"{"n":0}"#,
                "{isolation:?}"
            );
        }
        one.begin(None).await.unwrap();
        change(&mut *one, "insert into moves values (1)").await;
        one.commit().await.unwrap();
        let mut other = connect(at(Iridium::shared())).await;
        assert_eq!(rows(&mut *other, count, &[]).await, r#"{"n":1}"#);
        one.ping().await.unwrap();
    });
}

#[test]
fn procedures_give_sets_and_parameters() {
    on_worker(async {
        let mut session = connect(at(Iridium::shared())).await;
        let session = &mut *session;
        change(
            session,
            "create procedure dbo.twice @a int, @b int output, @c nvarchar(20) as
             begin
             set @b = @b + @a + len(@c)
             end",
        )
        .await;
        change(
            session,
            "create procedure dbo.sets @a int, @c nvarchar(20) as
             begin
             select @a as one;
             select @c as two
             end",
        )
        .await;
        let twice = call(SqlServer, "dbo.twice", &["a", "b", "c"], &[("b", "int")]);
        let arguments = [value::integer(1), value::integer(40), text("'; --")];
        let (kept, done) = keep(session, &twice, &arguments).await.unwrap();
        assert_eq!(done.outs, [("b".to_owned(), value::integer(46))]);
        assert_eq!(kept.sets.len(), 0);
        let sets = call(SqlServer, "dbo.sets", &["a", "c"], &[]);
        let arguments = [value::integer(1), text("'; --")];
        let (kept, _) = keep(session, &sets, &arguments).await.unwrap();
        let sets: Vec<String> = kept.sets.iter().map(|it| lines(it)).collect();
        // Iridium gives the last set of a procedure only.
        assert_eq!(sets, [r#"{"two":"'; --"}"#]);
        let unknown = call(SqlServer, "dbo.nobody", &[], &[]);
        let error = keep(session, &unknown, &[]).await.err().unwrap();
        assert_eq!(error.class, Class::Statement, "{error:?}");
    });
}

/// Why a database cannot be connected to. No password is shown.
async fn refusal(database: Database) -> (Class, String) {
    let error = try_connect(database).await.err().expect("it lets us in");
    for secret in [Iridium::PASSWORD, "wrong-secret"] {
        assert!(!format!("{error:?}").contains(secret), "{error:?}");
        let fault = error.clone().fault("db");
        assert!(!format!("{fault:?} {fault}").contains(secret), "{fault:?}");
    }
    (error.class, error.message)
}

#[test]
fn nobody_gets_in_who_may_not() {
    let server = Iridium::shared();
    on_worker(async {
        let wrong = database(SqlServer, server.port(), (Iridium::USER, "wrong-secret"));
        let (class, message) = refusal(wrong).await;
        assert_eq!(class, Class::Refused, "{message}");
        let closed = database(SqlServer, testkit::free_port(), ("sa", Iridium::PASSWORD));
        let (class, message) = refusal(closed).await;
        assert_eq!(class, Class::Unreachable, "{message}");
    });
}

#[test]
fn tls_needs_a_good_certificate() {
    let authority = testkit::Authority::new("SQL Server tests");
    let issued = authority.issue(&["127.0.0.1"]);
    let server = ScriptedTds::start_with_tls(&issued, |_| TdsReply::Tokens(one_row()));
    let at_server = |tls| Database {
        tls,
        ..database(SqlServer, server.port(), ("sa", Iridium::PASSWORD))
    };
    on_worker(async {
        let mut session = connect(at_server(Some(tls(authority.pem())))).await;
        assert_eq!(rows(&mut *session, "select 1 a", &[]).await, r#"{"a":1}"#);
        session.close().await;
        let other = testkit::Authority::new("other");
        let named = connectors::Tls {
            server_name: Some("db.example".to_owned()),
            ..tls(authority.pem())
        };
        for bad in [tls(other.pem()), named] {
            let (class, message) = refusal(at_server(Some(bad))).await;
            assert_eq!(class, Class::Refused, "{message}");
            assert!(message.contains("certificate"), "{message}");
            assert!(!message.contains("Config::"), "{message}");
        }
        // A server that wants TLS gets nothing from one who does not.
        let (class, message) = refusal(at_server(None)).await;
        assert_ne!(class, Class::Busy, "{message}");
        assert_eq!(server.requests().len(), 1);
        // A server in clear text gets no password.
        let plain = ScriptedTds::start(|_| TdsReply::Tokens(one_row()));
        let plain = Database {
            tls: Some(tls(authority.pem())),
            ..database(SqlServer, plain.port(), ("sa", Iridium::PASSWORD))
        };
        let (class, message) = refusal(plain).await;
        assert_eq!(class, Class::Refused, "{message}");
        assert!(message.contains("does not speak TLS"), "{message}");
    });
}

/// A result set `a` with 1 in it, and the end.
fn one_row() -> Vec<u8> {
    let set = tds::columns(&[("a", &[0x26, 4])]);
    let row = tds::row(&[&[4, 1, 0, 0, 0]]);
    [set, row, tds::done(0xff, 0x11, 1), tds::done(0xfe, 0, 0)].concat()
}

#[test]
fn a_server_that_was_killed_is_noticed_and_found_again() {
    let mut server = Iridium::start();
    let again = at(&server);
    on_worker(async {
        let mut session = connect(at(&server)).await;
        session.begin(None).await.unwrap();
        server.restart();
        let error = session.ping().await.err().unwrap();
        assert_eq!(
            (error.class, session.is_broken()),
            (Class::Lost, true),
            "{error:?}"
        );
        session.close().await;
        let mut session = connect(again).await;
        assert_eq!(rows(&mut *session, "select 1 a", &[]).await, r#"{"a":1}"#);
    });
}

/// A session with a server that answers everything so.
async fn scripted(tokens: Vec<u8>) -> (ScriptedTds, Box<dyn Session>) {
    let server = ScriptedTds::start(move |_| TdsReply::Tokens(tokens.clone()));
    let session = connect(database(SqlServer, server.port(), ("sa", "p"))).await;
    (server, session)
}

/// Bytes as a value with its length before it.
fn sized(bytes: &[u8]) -> Vec<u8> {
    [vec![bytes.len() as u8], bytes.to_vec()].concat()
}

/// A text of a type without limit: in chunks, its length unknown before (MS-TDS, 2.2.5.2.3).
fn chunked(text: &str, chunk: usize) -> Vec<u8> {
    let mut value = 0xffff_ffff_ffff_fffe_u64.to_le_bytes().to_vec();
    for part in tds::utf16(text).chunks(chunk) {
        value.extend((part.len() as u32).to_le_bytes());
        value.extend(part);
    }
    value.extend([0; 4]);
    value
}

#[test]
fn values_come_as_the_protocol_writes_them() {
    // 900719925474.0991 and -0.0001 as numbers of ten-thousandths, the high half first.
    let money = |number: i64| {
        let high = ((number >> 32) as i32).to_le_bytes();
        sized(&[high, (number as u32).to_le_bytes()].concat())
    };
    let moment = |days: i32, parts: u32| sized(&[days.to_le_bytes(), parts.to_le_bytes()].concat());
    let max: &[u8] = &[0xe7, 0xff, 0xff, 9, 4, 0xd0, 0, 0x34];
    let long = "ä€𝄞".repeat(5000);
    let digits = [1_u8]
        .into_iter()
        .chain(99_999_999_999_999_999_999_u128.to_le_bytes());
    let digits: Vec<u8> = digits.collect();
    // 2026-01-31 is day 739646 (0x0b493e) of the calendar and day 46051 since 1900.
    let day = [0x3e, 0x49, 0x0b];
    // 12:00:00.5 in units of 100 ns: 432005000000.
    let noon = &432_005_000_000_u64.to_le_bytes()[..5];
    let cases: Vec<(&str, &[u8], Vec<u8>, String)> = vec![
        (
            "m",
            &[0x6e, 8],
            money(9_007_199_254_740_991),
            "900719925474.0991".into(),
        ),
        ("n", &[0x6e, 8], money(-1), "-0.0001".into()),
        ("d", &[0x28], sized(&day), "\"2026-01-31\"".into()),
        ("t", &[0x29, 7], sized(noon), "\"12:00:00.5\"".into()),
        (
            "e",
            &[0x2a, 7],
            sized(&[noon, &day].concat()),
            "\"2026-01-31T12:00:00.5\"".into(),
        ),
        (
            "o",
            &[0x2b, 7],
            sized(&[noon, &day, &120_i16.to_le_bytes()].concat()),
            "\"2026-01-31T14:00:00.5+02:00\"".into(),
        ),
        (
            "f",
            &[0x6f, 8],
            moment(46_051, 12_960_001),
            "\"2026-01-31T12:00:00.003\"".into(),
        ),
        (
            "g",
            &[0x6f, 8],
            moment(-53_690, 0),
            "\"1753-01-01T00:00:00\"".into(),
        ),
        ("x", max, chunked(&long, 4099), format!("\"{long}\"")),
        ("y", max, chunked("", 1), "\"\"".into()),
        ("z", max, vec![0xff; 8], "null".into()),
        (
            "p",
            &[0x6a, 17, 38, 20],
            sized(&digits),
            "0.99999999999999999999".into(),
        ),
        ("i", &[0x26, 8], vec![0], "null".into()),
    ];
    let set: Vec<(&str, &[u8])> = cases.iter().map(|case| (case.0, case.1)).collect();
    let row: Vec<&[u8]> = cases.iter().map(|case| case.2.as_slice()).collect();
    let ends = [tds::done(0xff, 0x11, 1), tds::done(0xfe, 0, 0)];
    let tokens = [tds::columns(&set), tds::row(&row), ends.concat()].concat();
    let expected = cases
        .iter()
        .map(|case| format!("\"{}\":{}", case.0, case.3));
    let expected = format!("{{{}}}", expected.collect::<Vec<_>>().join(","));
    on_worker(async {
        let (_server, mut session) = scripted(tokens).await;
        assert_eq!(rows(&mut *session, "select *", &[]).await, expected);
    });
}

#[test]
fn changes_are_counted_and_rows_that_are_read_are_not() {
    let set = [
        tds::columns(&[("a", &[0x26, 4])]),
        tds::row(&[&[4, 1, 0, 0, 0]]),
    ]
    .concat();
    let (read, changed) = (tds::done(0xff, 0x11, 5), tds::done(0xff, 0x11, 3));
    let end = tds::done(0xfe, 0, 0);
    let tokens = [set, read, changed.clone(), changed, end].concat();
    on_worker(async {
        let (server, mut session) = scripted(tokens).await;
        let batch = statement("select 1; update t set a = @P1; update t set b = 1", &["a"]);
        let (kept, done) = keep(&mut *session, &batch, &[text("x")]).await.unwrap();
        assert_eq!((kept.sets.len(), done.changed), (1, 6));
        // Here the rows are those that were changed.
        assert_eq!(
            change(&mut *session, " Insert into t output inserted.a").await,
            11
        );
        let requests = server.requests();
        assert_eq!(requests[0].kind, 3);
        assert!(requests[0].text.contains("sp_executesql"), "{requests:?}");
        assert!(
            requests[0].text.contains("@P1 nvarchar(4000)"),
            "{requests:?}"
        );
    });
}

#[test]
fn failures_have_their_classes() {
    let check = "The INSERT statement conflicted with the CHECK constraint \"c\".";
    let key = "The INSERT statement conflicted with the FOREIGN KEY constraint \"c\".";
    let cases = [
        (
            2627,
            14,
            "Violation of PRIMARY KEY constraint",
            Class::Unique,
            false,
        ),
        (
            2601,
            14,
            "Cannot insert duplicate key row",
            Class::Unique,
            false,
        ),
        (547, 16, check, Class::Check, false),
        (547, 16, key, Class::ForeignKey, false),
        (
            515,
            16,
            "Cannot insert the value NULL",
            Class::NotNull,
            false,
        ),
        (
            1205,
            13,
            "Transaction was deadlocked",
            Class::Deadlock,
            false,
        ),
        (
            3960,
            16,
            "Snapshot isolation transaction aborted",
            Class::Serialization,
            false,
        ),
        (
            1222,
            16,
            "Lock request time out period exceeded.",
            Class::Timeout,
            false,
        ),
        (208, 16, "Invalid object name 'x'.", Class::Statement, false),
        (50_000, 16, "mine", Class::Statement, false),
        (596, 21, "Cannot continue the execution", Class::Lost, true),
        (823, 24, "I/O error", Class::Lost, true),
    ];
    on_worker(async {
        for (number, severity, message, class, is_broken) in cases {
            let ends = [tds::done(0xff, 2, 0), tds::done(0xfe, 2, 0)].concat();
            let tokens = [tds::error(number, severity, message), ends].concat();
            let (_server, mut session) = scripted(tokens).await;
            let error = failure(&mut *session, "select 1").await;
            assert_eq!(
                (error.class, session.is_broken()),
                (class, is_broken),
                "{number}"
            );
            assert_eq!(error.code, Some(number.to_string()));
            assert_eq!(error.message, message);
        }
    });
}

#[test]
fn transactions_are_batches_and_leave_no_isolation_behind() {
    on_worker(async {
        let server = ScriptedTds::start(|request| {
            let end = tds::done(0xfd, 0, 0);
            TdsReply::Tokens(match request.text.contains("rollback") {
                true => [tds::error(3903, 16, "nothing is open"), end].concat(),
                false => end,
            })
        });
        let mut session = connect(database(SqlServer, server.port(), ("sa", "p"))).await;
        session.begin(Some(Isolation::Snapshot)).await.unwrap();
        session.commit().await.unwrap();
        session.begin(None).await.unwrap();
        session.rollback().await.unwrap();
        let said = server.requests();
        let said: Vec<&str> = said.iter().map(|it| it.text.trim_start()).collect();
        let expected = [
            "set transaction isolation level snapshot",
            "begin tran",
            "commit tran",
            "set transaction isolation level read committed",
            "begin tran",
            "rollback tran",
        ];
        assert_eq!(said.len(), expected.len(), "{said:?}");
        for (said, expected) in said.iter().zip(expected) {
            assert!(said.ends_with(expected), "{said}");
        }
    });
}

#[test]
fn after_a_failure_the_server_says_whether_the_transaction_is_open() {
    let count = |open: i32| {
        let set = tds::columns(&[("n", &[0x26, 4])]);
        let value = [vec![4], open.to_le_bytes().to_vec()].concat();
        [set, tds::row(&[&value]), tds::done(0xfd, 0x10, 1)].concat()
    };
    let cases = [
        (1205, 0, true),
        (2627, 1, false),
        (3930, 0, true),
        (266, 2, true),
    ];
    on_worker(async {
        for (number, open, is_aborted) in cases {
            let answer = count(open);
            let server = ScriptedTds::start(move |request| {
                let end = tds::done(0xfd, 0, 0);
                TdsReply::Tokens(match request.text.as_str() {
                    text if text.contains("trancount") => answer.clone(),
                    text if text.contains("bad") => {
                        let ends = [tds::done(0xff, 2, 0), tds::done(0xfe, 2, 0)].concat();
                        [tds::error(number, 14, "no"), ends].concat()
                    }
                    _ => end,
                })
            });
            let mut session = connect(database(SqlServer, server.port(), ("sa", "p"))).await;
            session.begin(None).await.unwrap();
            failure(&mut *session, "bad").await;
            assert_eq!(session.is_aborted(), is_aborted, "{number}");
            session.rollback().await.unwrap();
            assert!(!session.is_aborted() && !session.is_broken());
        }
    });
}

#[test]
fn a_commit_counts_when_the_isolation_cannot_be_set_back() {
    on_worker(async {
        let server = ScriptedTds::start(|request| {
            let end = tds::done(0xfd, 0, 0);
            TdsReply::Tokens(match request.text.contains("level read committed") {
                true => [tds::error(50_000, 16, "no"), end].concat(),
                false => end,
            })
        });
        let mut session = connect(database(SqlServer, server.port(), ("sa", "p"))).await;
        session.begin(Some(Isolation::Serializable)).await.unwrap();
        session.commit().await.unwrap();
        assert!(session.is_broken());
    });
}

#[test]
fn texts_of_ascii_are_varchar_where_the_connection_says_so() {
    on_worker(async {
        let server = ScriptedTds::start(|_| TdsReply::Tokens(tds::done(0xfe, 0, 0)));
        let database = Database {
            texts: Texts::Varchar,
            ..database(SqlServer, server.port(), ("sa", "p"))
        };
        let mut session = connect(database).await;
        let both = statement("update t set a = @P1 where b = @P2", &["a", "b"]);
        keep(&mut *session, &both, &[text("plain"), text("größer")])
            .await
            .unwrap();
        let sent = &server.requests()[0].text;
        assert!(
            sent.contains("@P1 varchar(8000),@P2 nvarchar(4000)"),
            "{sent}"
        );
    });
}

/// How many attentions a server has got.
fn attentions(server: &ScriptedTds) -> usize {
    let requests = server.requests();
    requests.iter().filter(|request| request.kind == 6).count()
}

#[test]
fn a_statement_that_is_given_up_gets_an_attention() {
    let server = ScriptedTds::start(|_| TdsReply::Silence);
    on_worker(async {
        let at_server = || database(SqlServer, server.port(), ("sa", "p"));
        let mut session = connect(at_server()).await;
        let (slow, mut sink) = (statement("waitfor", &[]), Kept::default());
        let work = session.run(&slow, &[], &mut sink);
        let time = Duration::from_millis(200);
        assert!(tokio::time::timeout(time, work).await.is_err());
        assert!(session.recover().await.is_none());
        assert_eq!(attentions(&server), 1);
        // The driver has a limit of its own.
        let mut patient = at_server();
        patient.limits.statement_timeout = time;
        let mut session = connect(patient).await;
        let error = session.run(&slow, &[], &mut sink).await.err().unwrap();
        assert_eq!((error.class, session.is_broken()), (Class::Timeout, true));
        assert_eq!(attentions(&server), 2);
        session.close().await;
    });
}

#[test]
fn a_result_that_is_refused_is_stopped() {
    let set = tds::columns(&[("a", &[0x26, 4])]);
    let row = tds::row(&[&[4, 1, 0, 0, 0]]);
    let many = [
        set,
        row.repeat(5000),
        tds::done(0xff, 0x11, 5000),
        tds::done(0xfe, 0, 0),
    ]
    .concat();
    on_worker(async {
        let (server, mut session) = scripted(many).await;
        let mut sink = Kept {
            rows_max: Some(10),
            ..Kept::default()
        };
        let select = statement("select a", &[]);
        let ended = session.run(&select, &[], &mut sink).await;
        assert_eq!(ended.err().map(|error| error.class), Some(Class::TooLarge));
        assert_eq!(attentions(&server), 1);
        // When the whole answer was on its way the client does not know where it ends.
        session.close().await;
        let mut session = connect(database(SqlServer, server.port(), ("sa", "p"))).await;
        let mut sink = Kept {
            drains: Some(0),
            ..Kept::default()
        };
        session.run(&select, &[], &mut sink).await.unwrap();
        assert_eq!((sink.sets[0].len(), sink.drains), (5000, Some(5000)));
    });
}

#[test]
fn nonsense_and_a_cut_end_the_connection() {
    on_worker(async {
        let server = ScriptedTds::start(move |_| TdsReply::Endless(vec![b'a'; 1 << 16]));
        let mut session = connect(database(SqlServer, server.port(), ("sa", "p"))).await;
        let error = failure(&mut *session, "select a").await;
        assert_eq!(
            (error.class, session.is_broken()),
            (Class::Lost, true),
            "{error:?}"
        );
        let cut = [tds::columns(&[("a", &[0x26, 4])]), vec![0xd1, 4, 1]].concat();
        let server = ScriptedTds::start(move |_| TdsReply::Cut(cut.clone()));
        let mut session = connect(database(SqlServer, server.port(), ("sa", "p"))).await;
        let error = failure(&mut *session, "select a").await;
        assert_eq!(
            (error.class, session.is_broken()),
            (Class::Lost, true),
            "{error:?}"
        );
    });
}

#[test]
fn what_comes_out_of_a_procedure_is_told_from_its_sets() {
    let set = |name: &str| {
        let set = [
            tds::columns(&[(name, &[0x26, 4])]),
            tds::row(&[&[4, 7, 0, 0, 0]]),
        ];
        [set.concat(), tds::done(0xff, 0x11, 1)].concat()
    };
    let status = vec![0x79, 0, 0, 0, 0];
    let ends = [status, tds::done(0xfe, 0, 0)].concat();
    let tokens = [set("b"), set("c"), set("intertie out: b"), ends].concat();
    on_worker(async {
        let (server, mut session) = scripted(tokens).await;
        let both = call(SqlServer, "dbo.both", &["a"], &[("b", "int")]);
        let (kept, done) = keep(&mut *session, &both, &[text("x")]).await.unwrap();
        let sets: Vec<String> = kept.sets.iter().map(|it| lines(it)).collect();
        assert_eq!(sets, [r#"{"b":7}"#, r#"{"c":7}"#]);
        assert_eq!(done.outs, [("b".to_owned(), value::integer(7))]);
        let text = &server.requests()[0].text;
        assert!(
            text.contains("exec [dbo].[both] @a = @P1, @b = @intertie_out1 output"),
            "{text}"
        );
    });
}
