//! `bench faults`: real faults under load, one row each: what was acknowledged and lost (nothing
//! may be), what came twice, and how long it took until things went well again.

mod client;
mod complex;
mod database;
mod engine;
mod latency;
mod load;
mod outside;
mod queueing;
mod report;
mod row;
mod servers;
mod sink;
mod tally;
mod trial;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::machine;
use super::process::{self, Cores};
use super::system::Programs;
use report::Table;
use row::Row;
use trial::Lab;

/// Arguments of `intertie-bench faults`.
#[derive(Debug, clap::Args)]
pub(super) struct FaultArgs {
    /// Only rows whose names contain one of these words.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// How long a row takes about, without what starting and waiting takes: a third before the
    /// fault, the rest after it.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(6..=3600))]
    seconds: u64,
    /// How many users send at once.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=2000))]
    users: u16,
    /// The folder for faults.json, faults.md and faults.html, written after each row.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the results as JSON to this file, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keep the folders of the rows, with logs and flow files, below this one.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Show the rows and what they do, and nothing else.
    #[arg(long)]
    list: bool,
}

/// How a row is done.
type Run = fn(&Lab, &mut Row) -> anyhow::Result<()>;

/// A row of the table before it is done.
struct Fault {
    name: &'static str,
    path: &'static str,
    fault: &'static str,
    run: Run,
}

macro_rules! fault {
    ($name:literal, $path:ident, $fault:literal, $run:path) => {
        Fault {
            name: $name,
            path: $path,
            fault: $fault,
            run: $run,
        }
    };
}

const LINE: &str = "HTTP -> RabbitMQ, confirmed -> 202";
const OUTBOX: &str = "HTTP -> store -> 202; store -> RabbitMQ";
const LATENCY: &str = "RabbitMQ -> slow HTTP service";
const QUORUM: &str = "RabbitMQ, quorum queue -> slow HTTP service";
const COMPLEX: &str = "HTTP -> SQL + REST + SOAP -> SQL -> RabbitMQ -> 201";
const DATABASE: &str = "HTTP -> SQL -> 2xx";
const OUTSIDE: &str = "HTTP -> RabbitMQ; HTTP -> SQL";

const FAULTS: [Fault; 20] = [
    fault!(
        "line-broker-kill",
        LINE,
        "broker: kill -9, restart",
        queueing::line_broker_kill
    ),
    fault!(
        "line-memory-alarm",
        LINE,
        "broker: memory alarm",
        queueing::line_memory_alarm
    ),
    fault!(
        "line-engine-kill",
        LINE,
        "engine: kill -9, restart",
        queueing::line_engine_kill
    ),
    fault!(
        "outbox-engine-kill",
        OUTBOX,
        "engine: kill -9, restart; three times",
        queueing::outbox_engine_kill
    ),
    fault!(
        "outbox-broker-kill",
        OUTBOX,
        "broker: kill -9, restart",
        queueing::outbox_broker_kill
    ),
    fault!(
        "outbox-both-kill",
        OUTBOX,
        "broker: kill -9; engine meanwhile and again: kill -9; restarts",
        queueing::outbox_both_kill
    ),
    fault!(
        "latency-engine-kill",
        LATENCY,
        "engine: kill -9, restart",
        latency::engine_kill
    ),
    fault!(
        "latency-broker-kill",
        LATENCY,
        "broker: kill -9, restart",
        latency::broker_kill
    ),
    fault!(
        "latency-quorum",
        QUORUM,
        "broker: kill -9, restart",
        latency::quorum_broker_kill
    ),
    fault!(
        "latency-service-hang",
        LATENCY,
        "service: SIGSTOP, SIGCONT",
        latency::service_hang
    ),
    fault!(
        "complex-database-kill",
        COMPLEX,
        "database: kill -9, restart",
        complex::database_kill
    ),
    fault!(
        "complex-broker-kill",
        COMPLEX,
        "broker: kill -9, restart",
        complex::broker_kill
    ),
    fault!(
        "complex-engine-kill",
        COMPLEX,
        "engine: kill -9, restart",
        complex::engine_kill
    ),
    fault!(
        "soap-hang",
        COMPLEX,
        "SOAP service: SIGSTOP, SIGCONT",
        complex::soap_hang
    ),
    fault!(
        "pool-exhausted",
        DATABASE,
        "many users, 2 connections",
        database::pool
    ),
    fault!(
        "wrong-credentials",
        OUTSIDE,
        "broker and database: wrong passwords",
        outside::wrong_credentials
    ),
    fault!(
        "unreachable",
        OUTSIDE,
        "broker and database: not there",
        outside::unreachable
    ),
    fault!(
        "huge-result",
        DATABASE,
        "a result of 100 MB",
        database::huge_result
    ),
    fault!(
        "strange-values",
        DATABASE,
        "SQL as values",
        database::injection
    ),
    fault!(
        "invalid-utf8",
        DATABASE,
        "bodies that are no UTF-8",
        database::invalid_utf8
    ),
];

/// Does the rows that are asked for. Whether all are good.
///
/// # Errors
/// When no row has such a name, or files cannot be written.
pub(super) fn run(
    args: &FaultArgs,
    programs: impl FnOnce() -> anyhow::Result<Programs>,
) -> anyhow::Result<bool> {
    let is_wanted = |fault: &&Fault| {
        args.only.is_empty()
            || args
                .only
                .iter()
                .any(|word| fault.name.contains(word.as_str()))
    };
    let chosen: Vec<&Fault> = FAULTS.iter().filter(is_wanted).collect();
    ensure!(
        !chosen.is_empty(),
        "no row has such a name; --list shows them"
    );
    if args.list {
        for fault in chosen {
            super::table::print(&format!(
                "{}: {}; {}\n",
                fault.name, fault.path, fault.fault
            ))?;
        }
        return Ok(true);
    }
    let programs = programs()?;
    process::allow_files()?;
    let cores = all_cores()?;
    let mut machine = machine::facts(&cores);
    machine.layout = "everything on all cores".to_owned();
    let mut table = Table {
        started: machine::now(),
        seconds: args.seconds,
        users: args.users.into(),
        machine,
        build: programs.build().to_owned(),
        rows: Vec::new(),
    };
    for fault in chosen {
        let row = one(fault, args, &programs, &cores)?;
        super::table::print(&report::line(&row))?;
        table.rows.push(row);
        write(&table, args)?;
    }
    super::table::print(&report::text(&table))?;
    Ok(table.rows.iter().all(Row::is_good))
}

/// Everything may run everywhere: what is measured is what becomes of messages.
fn all_cores() -> anyhow::Result<Cores> {
    let mut cores = Cores::of_machine()?;
    let all: Vec<usize> = cores.beside().into_iter().chain([cores.system]).collect();
    (cores.load, cores.stub) = (all.clone(), all);
    Ok(cores)
}

fn one(fault: &Fault, args: &FaultArgs, programs: &Programs, cores: &Cores) -> anyhow::Result<Row> {
    let base = args.keep.clone().unwrap_or_else(std::env::temp_dir);
    let folder = base.join(format!("faults-{}-{}", std::process::id(), fault.name));
    fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let lab = Lab {
        binary: programs.intertie.clone(),
        own: programs.own.clone(),
        cores: cores.clone(),
        folder: folder.canonicalize()?,
        calm: Duration::from_secs_f64(args.seconds as f64 / 3.0),
        users: args.users.into(),
    };
    let mut row = Row {
        name: fault.name.to_owned(),
        path: fault.path.to_owned(),
        fault: fault.fault.to_owned(),
        ..Row::default()
    };
    let begun = Instant::now();
    if let Err(error) = (fault.run)(&lab, &mut row) {
        row.error = Some(format!("not done: {error:#}"));
    }
    row.seconds = begun.elapsed().as_secs_f64();
    if args.keep.is_none() {
        // What cannot be removed is in the folder for temporary files.
        let _ = fs::remove_dir_all(&folder);
    }
    Ok(row)
}

fn write(table: &Table, args: &FaultArgs) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(table)?;
    if let Some(file) = &args.json {
        fs::write(file, &json).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let Some(folder) = &args.out else {
        return Ok(());
    };
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let files = [
        ("faults.json", json),
        ("faults.md", report::markdown(table)),
        ("faults.html", report::html(table)),
    ];
    for (name, text) in files {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = FAULTS.iter().map(|fault| fault.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FAULTS.len());
    }
}
