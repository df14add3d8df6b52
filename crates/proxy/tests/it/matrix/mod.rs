//! The differential matrix: every fault and oddity of `rows` over both versions of HTTP on both
//! sides, by every path through the engine, in clear text and with TLS.
//!
//! After each cell other requests must be answered with their own bytes, the back end must have
//! seen nothing that is malformed or another request's, and nothing may be left in flight.
//!
//! `MATRIX_ROWS` and `MATRIX_COLUMNS` choose those whose names contain this text; with
//! `MATRIX_TIMES` each cell says how long it took.

mod backend;
mod client;
mod column;
mod content;
mod row;
mod rows;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::process::Command;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use testkit::wire::{ClientTls, ServerTls};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use crate::support::Proxy;
use backend::Backend;
use client::{Client, Seen};
use column::Column;
use row::{Outcome, Row};

/// How much content the reply to a marker has.
const MARKER_LENGTH: usize = 50;
/// No client waits longer than this.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long things may take to come to rest behind a cell.
const SETTLE: Duration = Duration::from_secs(2);
/// How many columns run at a time: most of their time is waiting.
const THREADS: usize = 8;

/// Set where the matrix itself runs.
const OWN_PROCESS: &str = "MATRIX_OWN_PROCESS";

/// A cell, and what is wrong with it.
struct CellResult {
    row: String,
    column: String,
    problems: Vec<String>,
}

/// Runs the matrix in a process of its own, for other tests measure the memory of theirs.
#[test]
fn every_row_holds_in_every_column() {
    if std::env::var_os(OWN_PROCESS).is_some() {
        return run_all();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "--nocapture"]);
    child.arg("matrix::every_row_holds_in_every_column");
    let output = child.env(OWN_PROCESS, "1").output().unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
}

fn run_all() {
    let chosen = std::env::var("MATRIX_COLUMNS").unwrap_or_default();
    let columns = Column::all();
    let columns = columns
        .into_iter()
        .filter(|it| it.to_string().contains(&chosen));
    let queue: Mutex<VecDeque<Column>> = Mutex::new(columns.collect());
    let cells: Mutex<Vec<CellResult>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(column) = { queue.lock().unwrap().pop_front() } {
                    let done = run_column(column);
                    cells.lock().unwrap().extend(done);
                }
            });
        }
    });
    report(&cells.into_inner().unwrap());
}

/// Fails with a list of all cells that are not as they should be.
fn report(cells: &[CellResult]) {
    let failed = cells.iter().filter(|it| !it.problems.is_empty());
    let mut lines: Vec<String> = failed
        .map(|it| format!("{} x {}: {}", it.row, it.column, it.problems.join("; ")))
        .collect();
    lines.sort();
    let (failed, count) = (lines.len(), cells.len());
    assert!(
        lines.is_empty(),
        "{failed} of {count} cells fail:\n{}",
        lines.join("\n")
    );
}

/// Runs all rows in one column. The engine serves them one after the other, but a row that fails
/// gets the next one a new engine.
fn run_column(column: Column) -> Vec<CellResult> {
    let chosen = std::env::var("MATRIX_ROWS").unwrap_or_default();
    let mut rows: VecDeque<(usize, Row)> = rows::all()
        .into_iter()
        .filter(|it| it.name.contains(&chosen) && (it.applies)(column))
        .enumerate()
        .collect();
    let mut cells = Vec::new();
    while !rows.is_empty() {
        let (usual, tight) = (listen(false), listen(true));
        let port = |it: &std::net::TcpListener| it.local_addr().unwrap().port();
        let proxy = column::start(column, port(&usual), port(&tight));
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let work = run_rows(column, &proxy, [usual, tight], &mut rows);
        cells.extend(runtime.block_on(LocalSet::new().run_until(work)));
    }
    cells
}

/// A listening socket. A tight one takes few bytes that are not read, and has small segments, for
/// the peer's send buffer grows with those.
fn listen(is_tight: bool) -> std::net::TcpListener {
    let listener = testkit::wire::listen(is_tight);
    listener.set_nonblocking(true).unwrap();
    listener
}

/// Runs rows until one fails or all are done.
async fn run_rows(
    column: Column,
    proxy: &Proxy,
    listeners: [std::net::TcpListener; 2],
    rows: &mut VecDeque<(usize, Row)>,
) -> Vec<CellResult> {
    let backend = Rc::<Backend>::default();
    for listener in listeners {
        let listener = TcpListener::from_std(listener).unwrap();
        let tls: Option<ServerTls> = column::backend_tls(column);
        spawn_local(Rc::clone(&backend).serve(listener, tls, column.backend_h2));
    }
    let tls: Option<ClientTls> = column::client_tls(column);
    let mut cells = Vec::new();
    while let Some((number, row)) = rows.pop_front() {
        let client = Rc::new(Client {
            column,
            port: proxy.port,
            tls: tls.clone(),
            backend: Rc::clone(&backend),
            row: number,
            target: row.target,
            count: Cell::new(0),
            connections: RefCell::default(),
        });
        let begun = Instant::now();
        let problems = run_cell(&row, &client, proxy).await;
        if std::env::var_os("MATRIX_TIMES").is_some() {
            println!(
                "{:>6} ms {} x {column}",
                begun.elapsed().as_millis(),
                row.name
            );
        }
        let failed = !problems.is_empty();
        cells.push(CellResult {
            row: row.name,
            column: column.to_string(),
            problems,
        });
        if failed {
            break;
        }
    }
    cells
}

/// Plays one row, and looks at everything else then.
async fn run_cell(row: &Row, client: &Rc<Client>, proxy: &Proxy) -> Vec<String> {
    let backend = &client.backend;
    backend.release(false);
    let mut problems = Vec::new();
    let played = (row.play)(Rc::clone(client), Rc::clone(&row.script));
    let seen = timeout(PATIENCE, played).await;
    backend.release(true);
    let mut seen = seen.unwrap_or_else(|_| Seen {
        problem: Some("the client waited in vain".to_owned()),
        ..Seen::default()
    });
    let usable = seen.connection.take();
    problems.extend(seen.problem.clone());
    let id = format!("r{}.0", client.row);
    let after = async {
        let anew = spawn_local(mark(Rc::clone(client)));
        let same = match usable {
            Some(connection) => client.mark(connection, seen.may_close).await,
            None => Ok(()),
        };
        let anew = anew.await.unwrap();
        [anew, same, client.mark_anew().await]
    };
    match timeout(PATIENCE, after).await {
        Ok(results) => problems.extend(results.into_iter().filter_map(Result::err)),
        Err(_) => problems.push("a marker waited in vain".to_owned()),
    }
    client.close_all();
    problems.extend(settle(backend, proxy).await);
    let outcome = Outcome {
        column: client.column,
        id: &id,
        seen: &seen,
        arrivals: &backend.arrivals(&id),
    };
    problems.extend((row.check)(&outcome).err());
    problems.extend(backend.take_violations());
    problems
}

async fn mark(client: Rc<Client>) -> Result<(), String> {
    client.mark_anew().await
}

/// Waits until nothing is in flight on either side of the engine.
async fn settle(backend: &Backend, proxy: &Proxy) -> Vec<String> {
    let begun = Instant::now();
    loop {
        let metrics = proxy.metrics();
        let (open, in_flight) = (proxy.engine.connection_count(), metrics.in_flight());
        let streams = metrics.streams_open();
        let is_idle = open == 0 && in_flight == 0 && streams == 0;
        if is_idle && backend.is_quiet() {
            return Vec::new();
        }
        if begun.elapsed() > SETTLE {
            let quiet = if backend.is_quiet() { "quiet" } else { "busy" };
            return vec![format!(
                "left behind: {open} connections, {in_flight} in flight, {streams} streams, \
                 the back end is {quiet}"
            )];
        }
        sleep(Duration::from_millis(1)).await;
    }
}
