//! Rows in which an order asks three systems and goes into a table and a queue, and one of the
//! systems or the engine fails meanwhile.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use rustix::process::Signal;

use super::super::process::Process;
use super::engine::Engine;
use super::load::{Load, Record};
use super::queueing::{check_acknowledged, check_memory};
use super::row::{Row, milliseconds};
use super::servers::{Broker, Database};
use super::sink::Sink;
use super::tally::Found;
use super::trial::{Lab, Trial, drain, hidden, inspect};
use crate::stub::WSDL;

const FLOW: &str = include_str!("../../../faults/complex.yaml");
/// How long the SOAP service hangs: longer than the flow may take.
const HANG: Duration = Duration::from_secs(6);
/// What the flow may take, and what a loaded machine adds until the client has its reply.
const FLOW_TIME: Duration = Duration::from_secs(3);
const SLACK: Duration = Duration::from_secs(1);
/// Where the numbers of the second flow begin.
const PLAIN: u64 = 1_000_000_000;

/// Engine and all that it asks.
struct Site {
    engine: Engine,
    broker: Broker,
    database: Database,
    soap: Process,
    /// It answers until the process ends.
    _rest: Sink,
}

impl Site {
    fn start(lab: &Lab) -> anyhow::Result<Self> {
        let broker = Broker::start(&lab.folder, &lab.cores)?;
        let database = Database::start(&lab.folder, &lab.cores)?;
        let (soap, address) = lab.part(&["stub", "soap"])?;
        let rest = Sink::start(Duration::ZERO)?;
        std::fs::create_dir_all(lab.folder.join("engine"))?;
        let description = WSDL.replace("127.0.0.1:8688", &address.to_string());
        std::fs::write(lab.folder.join("engine").join("stock.wsdl"), description)?;
        let secrets = [("MQ_URL", broker.url()), ("DB_URL", database.url())];
        let text = |address: SocketAddr| address.to_string();
        let marks = [("@SOAP@", text(address)), ("@SINK@", text(rest.address()))];
        let engine = lab.engine(FLOW, &secrets, &marks, false)?;
        Ok(Self {
            engine,
            broker,
            database,
            soap,
            _rest: rest,
        })
    }

    fn trial(&self, lab: &Lab) -> anyhow::Result<Trial> {
        Trial::start(lab, lab.job(&self.engine, "/orders"))
    }

    /// Looks for all acknowledged orders in the table, and for all acknowledged messages in the
    /// queue.
    fn end(mut self, all: &[&Record], row: &mut Row, names: &[&str]) -> anyhow::Result<()> {
        let acknowledged = all
            .iter()
            .flat_map(|record| record.acknowledged.iter().copied());
        let acknowledged: HashSet<u64> = acknowledged.collect();
        let orders = acknowledged.iter().filter(|number| **number < PLAIN);
        let orders: HashSet<u64> = orders.copied().collect();
        let mut stored = Found::default();
        self.database
            .orders()?
            .into_iter()
            .for_each(|it| stored.add(it));
        let table = stored.compare(&orders);
        let queue = drain(self.broker.address, &acknowledged)?.compare(&acknowledged);
        row.check(
            "each acknowledged order is in the table",
            table.lost == 0,
            lost(table.lost),
        );
        row.check(
            "each acknowledged order is in the queue",
            queue.lost == 0,
            lost(queue.lost),
        );
        row.comparison = Some(table.and(queue));
        check_acknowledged(row);
        inspect(row, &mut self.engine, names)?;
        check_memory(row);
        Ok(())
    }
}

fn lost(count: u64) -> String {
    format!("{count} are not")
}

pub(super) fn database_kill(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let mut site = Site::start(lab)?;
    let mut trial = site.trial(lab)?;
    trial.fault(|| {
        site.database.kill();
        // Long enough for clients to notice.
        thread::sleep(Duration::from_secs(1));
        site.database.start_again()
    })?;
    let record = trial.finish(row);
    site.end(&[&record], row, &["orders-db"])
}

pub(super) fn broker_kill(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let mut site = Site::start(lab)?;
    let mut trial = site.trial(lab)?;
    trial.fault(|| {
        site.broker.kill();
        site.broker.start_again()
    })?;
    let record = trial.finish(row);
    site.end(&[&record], row, &["orders-mq"])
}

pub(super) fn engine_kill(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let mut site = Site::start(lab)?;
    let mut trial = site.trial(lab)?;
    trial.fault(|| {
        site.engine.kill();
        site.engine.start_again()
    })?;
    let record = trial.finish(row);
    site.end(&[&record], row, &[])
}

pub(super) fn soap_hang(lab: &Lab, row: &mut Row) -> anyhow::Result<()> {
    let site = Site::start(lab)?;
    let mut trial = site.trial(lab)?;
    let mut job = lab.job(&site.engine, "/plain");
    (job.users, job.first) = (10, PLAIN);
    let mut plain = None;
    trial.fault(|| {
        plain = Some(Load::start(job, hidden())?);
        site.soap.send(Signal::STOP);
        thread::sleep(HANG);
        site.soap.send(Signal::CONT);
        Ok(())
    })?;
    let record = trial.finish(row);
    let late = record.count("504");
    row.check(
        "clients get 504 while it hangs",
        late > 0,
        format!("{late}"),
    );
    let longest = record.longest();
    let is_in_time = longest < FLOW_TIME + SLACK;
    row.check(
        "replies come in the time of the flow",
        is_in_time,
        format!("{longest:.2?}"),
    );
    let plain = plain.context("no second load")?.finish();
    row.add(&plain);
    let refused: u64 = plain.refused.values().sum();
    let seen = format!(
        "{} good, {refused} refused, longest wait {} ms",
        plain.acknowledged.len(),
        milliseconds(plain.longest())
    );
    let is_free = refused == 0 && plain.longest() < Duration::from_secs(1);
    row.check("a flow without SOAP goes on", is_free, seen);
    site.end(&[&record, &plain], row, &["flow complex, step 1"])
}
