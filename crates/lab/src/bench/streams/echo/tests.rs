//! The load against the stub, and against one that answers otherwise.
#![cfg(test)]

use super::super::case::{Feed, Transport};
use super::*;
use crate::bench::clock::Watch;
use crate::bench::process::Cores;
use crate::stub;

fn case() -> Case {
    Case {
        transport: Transport::WebSocket,
        feed: Feed::Echo,
        users: 5,
        topics: 1,
        bytes: 300,
        period_ms: 20.0,
        ..Case::default()
    }
}

/// Runs until there are answers, or a long time has passed.
fn run(case: &Case, address: SocketAddr) -> (Tally, u64, u64) {
    for milliseconds in [200, 1000, 5000] {
        let mut echo = Echo::new(case).unwrap();
        echo.connect(System::Direct, address).unwrap();
        let watch = Watch {
            cores: Cores::of_machine().unwrap(),
            system: Vec::new(),
            stubs: Vec::new(),
        };
        let plan = Plan {
            warm_up: Duration::from_millis(20),
            seconds: Duration::from_millis(milliseconds),
            watch: &watch,
            ticks: &|| Ok(Vec::new()),
        };
        let edges = echo.run(&plan).unwrap();
        if edges.delivered > 0 || echo.tally.corrupt > 0 {
            return (
                echo.tally.clone(),
                echo.failed,
                echo.books.latency.replies(),
            );
        }
    }
    panic!("nothing came");
}

#[test]
fn answers_are_the_letters_in_reverse() {
    let (tally, failed, timed) = run(&case(), stub::spawn("ws-reverse", &[]).unwrap());
    assert_eq!(
        (tally.corrupt, tally.behind, tally.duplicates, failed),
        (0, 0, 0, 0)
    );
    assert!(timed > 0 && tally.delivered >= timed, "{tally:?}");
}

#[test]
fn other_answers_are_errors() {
    let (tally, _, timed) = run(&case(), stub::spawn("ws-reverse", &["--echo"]).unwrap());
    assert!(tally.corrupt > 0 && timed == 0, "{tally:?}");
}

#[test]
fn clients_that_are_not_let_in_are_counted() {
    let address = stub::spawn("echo", &[]).unwrap();
    let case = case();
    let mut echo = Echo::new(&case).unwrap();
    echo.connect(System::Direct, address).unwrap();
    assert_eq!(echo.failed, 5);
    assert!(
        echo.first_cut.as_deref().unwrap().contains("status 200"),
        "{:?}",
        echo.first_cut
    );
}

#[test]
fn clients_take_turns() {
    let mut pace = Pace {
        start: 10,
        period: 3000,
        clients: 2,
        next: 0,
    };
    let mut due = Vec::new();
    while let Some(it) = pace.due(4010) {
        due.push(it);
    }
    assert_eq!(due, [(0, 10), (1, 1010), (0, 3010), (1, 4010)]);
}
