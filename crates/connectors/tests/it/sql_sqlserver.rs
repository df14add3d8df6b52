//! The driver of SQL Server against Iridium.

use std::time::Duration;

use connectors::sql::Database;
use connectors::sql::Decimals;
use connectors::sql::Dialect::SqlServer;
use connectors::sql::error::Class;
use connectors::sql::session::Isolation;
use expr::value::{self, Value};
use testkit::servers::Iridium;

use crate::sql_session::{
    Kept, call, change, connect, database, failure, keep, lines, on_worker, rows, statement, text,
    tls, try_connect,
};

fn at(server: &Iridium) -> Database {
    let who = (Iridium::USER, Iridium::PASSWORD);
    database(SqlServer, server.port(), who)
}

#[test]
fn spike() {
    on_worker(async {
        let mut session = connect(at(Iridium::shared())).await;
        for q in [
            "select 1 as a, N'äöü' as b",
            "select cast(12345678901234567890.0123456789 as decimal(30,10)) d, cast(-0.05 as numeric(5,2)) n",
            "select cast('2026-01-31' as date) d",
            "select cast('12:34:56.1234567' as time) t",
            "select cast('2026-01-31 12:34:56.1234567' as datetime2) d2",
            "select cast('2026-01-31T12:34:56.003' as datetime) dt",
            "select cast('2026-01-31 12:34' as smalldatetime) dt",
            "select cast('2026-01-31 12:34:56 +02:00' as datetimeoffset) o",
            "select cast(1 as bit) b, cast(255 as tinyint) ti, cast(-5 as smallint) si, cast(-9223372036854775808 as bigint) bi",
            "select cast(0.1 as real) r, cast(1e300 as float) f",
            "select cast(12.5 as money) m, cast(1.5 as smallmoney) sm",
            "select newid() id, cast('6F9619FF-8B86-D011-B42D-00C04FC964FF' as uniqueidentifier) u",
            "select cast('<a>1</a>' as xml) x, cast(7 as sql_variant) v, cast('abc' as sql_variant) w",
            "select cast(0xff00 as varbinary(10)) vb, 0x00ff lit",
            "select replicate(cast('x' as varchar(max)), 20000) m",
            "select null n",
            "select @@version v, @@spid s, @@trancount tc, db_name() db",
            "create table sp1 (id int primary key, n nvarchar(20) not null)",
            "insert into sp1 values (1, 'x'), (2, 'y')",
            "update sp1 set n = 'z'",
            "insert into sp1 output inserted.id values (3, 'q')",
            "insert into sp1 values (1, 'x')",
            "insert into sp1 values (9, null)",
            "select * from nowhere",
            "selec 1",
            "select 1/0 as a",
            "throw 50001, 'mine', 1",
            "raiserror('hello', 16, 1)",
            "throw 2627, 'x', 1",
            "select 1 a; select 2 b",
            "declare @x int = 5; select @x as y",
            "create procedure pr @a int, @b decimal(12,2) output as begin select @a as first; set @b = @a + 0.25; end",
            "declare @o decimal(12,2); exec pr @a = 4, @b = @o output; select @o as o",
            "if @@trancount > 0 rollback tran",
            "set transaction isolation level serializable",
            "waitfor delay '00:00:01'",
            "select @@rowcount rc",
            "select count(*) c from sys.objects",
        ] {
            let mut kept = Kept::default();
            let s = statement(q, &[]);
            let done = session.run(&s, &[], &mut kept).await;
            let sets: Vec<String> = kept
                .sets
                .iter()
                .map(|it| {
                    let l = lines(it);
                    l.chars().take(200).collect()
                })
                .collect();
            println!("{q}\n   => {sets:?} {done:?} {}", session.is_broken());
            if session.is_broken() {
                session = connect(at(Iridium::shared())).await;
            }
        }
        let args = [
            Value::Null,
            Value::Bool(true),
            value::integer(5),
            value::number("12.50"),
            value::number("1e3"),
            text("'; drop--ä"),
            value::bytes(vec![0xff, 0].into()),
            text(&"x".repeat(5000)),
            value::number("18446744073709551615"),
        ];
        for (i, a) in args.iter().enumerate() {
            let mut kept = Kept::default();
            let s = statement("select @P1 as a", &["x"]);
            let done = session.run(&s, std::slice::from_ref(a), &mut kept).await;
            let sets: Vec<String> = kept
                .sets
                .iter()
                .map(|it| lines(it).chars().take(100).collect())
                .collect();
            println!("arg {i} => {sets:?} {done:?}");
            if session.is_broken() {
                session = connect(at(Iridium::shared())).await;
            }
        }
    });
}
