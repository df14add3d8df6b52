//! Rows in which the engine cannot get in anywhere: passwords are wrong, or nobody is there.

use std::time::Duration;

use super::super::process;
use super::client::Request;
use super::database::send;
use super::engine::Engine;
use super::row::Row;
use super::servers::{Broker, Database, PASSWORD, USER};
use super::trial::{Lab, inspect};

const FLOW: &str = include_str!("../../../faults/unreachable.yaml");
/// The longest that a client may wait for the news.
const NEWS_MAX: f64 = 5000.0;

/// A password that begins like the right one, so that it is looked for, too.
fn wrong() -> String {
    format!("{PASSWORD}-wrong")
}

pub(super) fn wrong_credentials(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let broker = Broker::start(&lab.folder, &lab.cores)?;
    let database = Database::start(&lab.folder, &lab.cores)?;
    let [mq, db] = [broker.url(), database.url()].map(|url| url.replace(PASSWORD, &wrong()));
    refused(lab, row, mq, db)
}

pub(super) fn unreachable(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let (mq, db) = (process::free_address()?, process::free_address()?);
    let mq = format!("amqp://{USER}:{PASSWORD}@{mq}");
    let db = format!("postgres://{USER}:{PASSWORD}@{db}/{USER}");
    refused(lab, row, mq, db)
}

/// All requests that need the broker or the database fail in time, with reasons; others do not.
fn refused(lab: &Lab, row: &mut Row, mq: String, db: String) -> anyhow::Result<()> {
    let secrets = [("MQ_URL", mq), ("DB_URL", db)];
    let mut engine = lab.engine(FLOW, &secrets, &[], false)?;
    // The first ones may come before the first try to connect is over.
    for _ in 0..3 {
        for path in ["/broker", "/database"] {
            ask(row, &engine, path)?;
        }
        std::thread::sleep(Duration::from_millis(300));
    }
    let reply = send(row, engine.listen, &Request::post("/echo", r#"{"id":1}"#))?;
    row.check(
        "a flow without them goes on",
        reply.is_good(),
        reply.status.to_string(),
    );
    let longest = row.longest_ms;
    row.check(
        "the news comes in time",
        longest < NEWS_MAX,
        format!("{longest} ms"),
    );
    inspect(row, &mut engine, &["orders-mq", "orders-db"])
}

fn ask(row: &mut Row, engine: &Engine, path: &str) -> anyhow::Result<()> {
    let reply = send(row, engine.listen, &Request::post(path, r#"{"id":1}"#))?;
    let is_ours = (502..=504).contains(&reply.status);
    row.check(
        format!("{path}: 502, 503 or 504"),
        is_ours,
        reply.status.to_string(),
    );
    let text = reply.text();
    let names_address = text.contains("127.0.0.1");
    row.check(
        format!("{path}: the reply names no address"),
        !names_address,
        text,
    );
    Ok(())
}
