//! Rows with a database alone: too few connections, a result that is too large, and values that
//! look like statements.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::Context;

use super::client::{self, Request};
use super::engine::Engine;
use super::load::Load;
use super::queueing::check_memory;
use super::row::Row;
use super::servers::Database;
use super::tally::Found;
use super::trial::{Lab, Trial, hidden, inspect};

const FLOW: &str = include_str!("../../../faults/database.yaml");
/// How long a statement waits for a connection, and takes.
const WAIT: Duration = Duration::from_millis(500);
const STATEMENT: Duration = Duration::from_millis(100);
/// What a loaded machine adds until the client has its reply.
const SLACK: Duration = Duration::from_secs(1);
/// Where the numbers of the crowd begin.
const CROWD: u64 = 1_000_000;

struct Pair {
    engine: Engine,
    database: Database,
}

impl Pair {
    fn start(lab: &Lab) -> anyhow::Result<Self> {
        let database = Database::start(&lab.folder, &lab.cores)?;
        let secrets = [("DB_URL", database.url())];
        let engine = lab.engine(FLOW, &secrets, &[], false)?;
        Ok(Self { engine, database })
    }

    /// Compares what was acknowledged with what is in the table.
    fn compare(&self, acknowledged: &HashSet<u64>, row: &mut Row) -> anyhow::Result<()> {
        let mut found = Found::default();
        self.database
            .orders()?
            .into_iter()
            .for_each(|it| found.add(it));
        row.comparison = Some(found.compare(acknowledged));
        Ok(())
    }
}

pub(super) fn pool(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let mut pair = Pair::start(lab)?;
    let mut job = lab.job(&pair.engine, "/slow");
    job.users = 1;
    let mut crowd = job.clone();
    (crowd.users, crowd.first) = (lab.users, CROWD);
    let mut trial = Trial::start(lab, job)?;
    let mut seen = None;
    trial.fault(|| {
        let load = Load::start(crowd, hidden())?;
        thread::sleep(lab.calm);
        seen = Some(load.finish());
        Ok(())
    })?;
    let mut acknowledged = trial.finish(row).acknowledged;
    let seen = seen.context("no crowd")?;
    row.add(&seen);
    let (good, refused) = (seen.acknowledged.len(), seen.count("503"));
    let text = format!("{good} good, {refused} with 503");
    row.check(
        "some of the crowd are served",
        good > 0 && refused > 0,
        text,
    );
    let others = row.refusals();
    let is_only = row.refused.keys().all(|kind| kind == "503");
    row.check("nobody gets anything but 503", is_only, others);
    let longest = seen.longest();
    let is_in_time = longest < WAIT + STATEMENT + SLACK;
    row.check(
        "replies come within `wait`",
        is_in_time,
        format!("{longest:.2?}"),
    );
    acknowledged.extend(seen.acknowledged);
    pair.compare(&acknowledged, row)?;
    inspect(row, &mut pair.engine, &["orders-db"])?;
    check_memory(row);
    Ok(())
}

pub(super) fn huge_result(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let mut pair = Pair::start(lab)?;
    for _ in 0..5 {
        let reply = send(row, pair.engine.listen, &Request::post("/huge", "{}"))?;
        let is_refused = reply.status >= 500;
        row.check(
            "a fault, not the result",
            is_refused,
            reply.status.to_string(),
        );
    }
    let body = r#"{"id":1,"note":"after"}"#;
    let reply = send(row, pair.engine.listen, &Request::post("/notes", body))?;
    row.check(
        "the next request is served",
        reply.is_good(),
        reply.status.to_string(),
    );
    pair.compare(&HashSet::from([1]), row)?;
    inspect(row, &mut pair.engine, &["orders-db"])?;
    check_memory(row);
    Ok(())
}

/// Values that would be something else, were they not bound.
fn strange_notes() -> Vec<String> {
    let mut notes: Vec<String> = [
        "'; drop table orders; --",
        "' or '1'='1",
        "\" or \"\"=\"",
        "\\'; select pg_sleep(60); --",
        "$1 $2 :id :note ? @p1",
        "$$ x $$; delete from orders; $tag$ $tag$",
        "${ $secret.DB_URL }",
        "${ .id }",
        "E'\\x27' /* */ -- ;",
        "line one\nline two\r\n\ttab",
        "\u{1F600} \u{202E} \u{00e9} \u{0301} \u{fffd}",
        "",
        " ",
        "null",
        "%s%n%00",
    ]
    .map(str::to_owned)
    .to_vec();
    notes.push("'".repeat(64 * 1024));
    notes
}

pub(super) fn injection(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let mut pair = Pair::start(lab)?;
    let notes = strange_notes();
    let mut acknowledged = HashSet::new();
    for (note, number) in notes.iter().zip(1_u64..) {
        let body = serde_json::json!({ "id": number, "note": note }).to_string();
        let reply = send(row, pair.engine.listen, &Request::post("/notes", body))?;
        if reply.is_good() {
            acknowledged.insert(number);
        }
    }
    let count = acknowledged.len();
    let seen = format!("{count} of {}", notes.len());
    row.check("all are taken", count == notes.len(), seen);
    let statement = "select id || ' ' || encode(convert_to(note, 'UTF8'), 'hex') \
                     from orders order by id";
    let stored = pair.database.ask(statement)?;
    let wanted: Vec<String> = (1..).zip(&notes).map(|(id, note)| line(id, note)).collect();
    let stored: Vec<&str> = stored.lines().collect();
    let alike = stored
        .iter()
        .zip(&wanted)
        .filter(|(one, other)| *one == other);
    let (alike, all) = (alike.count(), wanted.len());
    let is_verbatim = alike == all && stored.len() == all;
    row.check(
        "stored as they were",
        is_verbatim,
        format!("{alike} of {all}"),
    );
    // No text of PostgreSQL holds it.
    let body = r#"{"id":900,"note":"a\u0000b"}"#;
    let reply = send(row, pair.engine.listen, &Request::post("/notes", body))?;
    let status = reply.status;
    row.check(
        "NUL is refused",
        (400..600).contains(&status),
        status.to_string(),
    );
    pair.compare(&acknowledged, row)?;
    inspect(row, &mut pair.engine, &[])
}

/// A row as the statement gives it.
fn line(id: usize, note: &str) -> String {
    let hex: String = note.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{id} {hex}")
}

pub(super) fn invalid_utf8(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let mut pair = Pair::start(lab)?;
    let bodies: [&[u8]; 6] = [
        b"{\"id\":1,\"note\":\"\xff\xfe\"}",
        b"{\"id\":2,\"note\":\"\xc3\"}",
        b"{\"id\":3,\"note\":\"\xed\xa0\x80\"}",
        b"{\"id\":4,\"note\":\"\xc0\xaf\"}",
        b"\x80",
        b"{\"id\":6,\"no\xfete\":1}",
    ];
    for body in bodies {
        let reply = send(row, pair.engine.listen, &Request::post("/notes", body))?;
        row.check("400", reply.status == 400, reply.status.to_string());
    }
    let body = r#"{"id":7,"note":"good"}"#;
    let reply = send(row, pair.engine.listen, &Request::post("/notes", body))?;
    row.check(
        "the next request is served",
        reply.is_good(),
        reply.status.to_string(),
    );
    let stored = pair.database.orders()?;
    let seen = format!("{stored:?}");
    row.check("nothing else is in the table", stored == [7], seen);
    pair.compare(&HashSet::from([7]), row)?;
    inspect(row, &mut pair.engine, &[])
}

/// Asks once, and counts.
pub(super) fn send(
    row: &mut Row,
    address: SocketAddr,
    request: &Request,
) -> anyhow::Result<client::Reply> {
    let begun = std::time::Instant::now();
    row.sent += 1;
    let reply = client::ask(address, request)?;
    row.longest_ms = row
        .longest_ms
        .max(super::row::milliseconds(begun.elapsed()));
    let text = reply.text();
    let shown = hidden()
        .iter()
        .filter(|secret| text.contains(secret.as_str()))
        .count();
    row.secrets_shown += shown as u64;
    if reply.is_good() {
        row.acknowledged += 1;
        return Ok(reply);
    }
    let kind = reply.status.to_string();
    let samples = row.samples.entry(kind.clone()).or_default();
    if samples.len() < 3 && !samples.contains(&text) {
        samples.push(text);
    }
    *row.refused.entry(kind).or_default() += 1;
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_compared_byte_by_byte() {
        assert_eq!(line(3, "a\u{e9}"), "3 61c3a9");
        assert!(
            strange_notes()
                .iter()
                .any(|note| note.contains("drop table"))
        );
    }
}
