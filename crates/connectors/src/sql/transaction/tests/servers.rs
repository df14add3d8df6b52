//! The same schedules on real servers, whose pool goes through all of them: what one leaves behind,
//! the next finds. `INTERTIE_SQL_SCHEDULES` says how many there are for each database.

use std::collections::BTreeSet;
use std::sync::Arc;

use expr::value;
use futures_util::future::join_all;
use testkit::TempDir;
use testkit::servers::{Iridium, MariaDb, Postgres};

use super::*;
use crate::sql::sink::{Bounds, Collect};
use crate::url::Server;

fn at(dialect: Dialect, port: u16, (user, password, name): (&str, &str, &str)) -> Database {
    let server = Server {
        is_secure: false,
        host: "127.0.0.1".to_owned(),
        port,
        user: Some(user.to_owned()),
        password: Some(password.to_owned()),
        path: String::new(),
    };
    let like = Arc::into_inner(database()).unwrap();
    Database {
        dialect,
        place: Place::Server(server),
        name: Some(name.to_owned()),
        ..like
    }
}

/// A statement by itself, and the numbers that it finds.
async fn run(database: &Arc<Database>, services: &StandIn, text: &str) -> BTreeSet<i64> {
    let bounds = Bounds {
        rows_max: 1_000_000,
        bytes_max: 1 << 30,
    };
    let mut sink = Collect::new(bounds, 1);
    let mut sent = statement(text);
    sent.names.clear();
    let mut lease = pool::of(database, services)
        .unwrap()
        .lend(services)
        .await
        .unwrap();
    while let Err(error) = lease.run(&sent, &[], &mut sink, services).await {
        // The stand-in for SQL Server waits for no lock of a connection that is being closed.
        assert!(error.message.contains("lock conflict"), "{error:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let number = |row: &Value| {
        value::get(row, "n")
            .and_then(value::scalar_text)?
            .parse()
            .ok()
    };
    sink.into_rows().iter().filter_map(number).collect()
}

fn schedules(mut database: Database, pool: u32, texts: (&str, &str)) {
    database.limits.pool = pool;
    let count = std::env::var("INTERTIE_SQL_SCHEDULES").ok();
    let count: i64 = count.and_then(|it| it.parse().ok()).unwrap_or(60);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().enable_io().build().unwrap();
    let local = tokio::task::LocalSet::new();
    let database = Arc::new(database);
    let services = StandIn {
        is_timeless: true,
        ..StandIn::default()
    };
    local.block_on(&runtime, async {
        run(&database, &services, "create table w (n bigint)").await;
        for seed in 0..count {
            RANDOM.set(Rng::with_seed(seed as u64));
            let flows = (0..4).map(|at| {
                flow(Flow {
                    database: &database,
                    services: &services,
                    texts,
                    number: seed * 10_000 + at * 1000,
                })
            });
            let stories = join_all(flows).await;
            let committed = run(&database, &services, "select n from w").await;
            for story in stories.iter().flatten() {
                check(story, seed as u64, &committed);
            }
            run(&database, &services, "delete from w").await;
        }
    });
}

#[test]
fn postgres_keeps_flows_apart() {
    let server = Postgres::start();
    server.database("apart");
    let database = at(
        Dialect::Postgres,
        server.port(),
        ("postgres", server.password(), "apart"),
    );
    schedules(
        database,
        3,
        ("select $1::bigint as n", "insert into w values ($1)"),
    );
}

/// The driver of MariaDB reads what is left of an interrupted result before it sends the next
/// statement, whoever sends it. So these schedules pass for it without the mark of an interrupted
/// lease, too, and no schedule on this server can show that the mark is needed: the server that is
/// a queue of replies shows it (`a_lease_whose_statement_was_dropped_runs_nothing_more`), since the
/// lease does not know which driver it holds. What this shows is that transactions are kept apart.
#[test]
fn mariadb_keeps_flows_apart() {
    let server = MariaDb::shared();
    server.run("create database apart");
    let database = at(
        Dialect::MySql,
        server.port(),
        ("app", MariaDb::PASSWORD, "apart"),
    );
    schedules(database, 3, ("select ? as n", "insert into w values (?)"));
}

#[test]
fn sqlite_keeps_flows_apart() {
    let folder = TempDir::new();
    let file = folder.path().join("apart.db").display().to_string();
    let database = Database {
        place: Place::File(file.into()),
        ..Arc::into_inner(database()).unwrap()
    };
    schedules(database, 3, ("select ?1 as n", "insert into w values (?1)"));
}

#[test]
fn the_stand_in_for_sql_server_keeps_flows_apart() {
    let server = Iridium::start();
    let who = (Iridium::USER, Iridium::PASSWORD, "master");
    let database = at(Dialect::SqlServer, server.port(), who);
    // It does not keep transactions apart that run beside each other.
    schedules(
        database,
        1,
        ("select @P1 as n", "insert into w values (@P1)"),
    );
}
