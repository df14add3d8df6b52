//! The load against the write loop and the emitter.
#![cfg(test)]

use super::*;
use crate::bench::process::Cores;
use crate::stub;

fn case() -> Case {
    Case {
        users: 6,
        topics: 1,
        bytes: 90,
        period_ms: 10.0,
        ..Case::default()
    }
}

fn floor() -> SocketAddr {
    let listener = stub::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || super::super::floor::serve(listener));
    address
}

fn run(fan: &mut Fan<'_>) -> Edges {
    let watch = Watch {
        cores: Cores::of_machine().unwrap(),
        system: Vec::new(),
        stubs: Vec::new(),
    };
    let plan = Plan {
        warm_up: Duration::from_millis(30),
        seconds: Duration::from_millis(300),
        watch: &watch,
        ticks: &|| Ok(Vec::new()),
    };
    fan.run(&plan).unwrap()
}

#[test]
fn everybody_gets_what_is_posted() {
    for window in [0, 3] {
        let mut case = case();
        case.window = window;
        let mut fan = Fan::new(&case, System::Floor).unwrap();
        fan.connect(System::Floor, floor()).unwrap();
        let edges = run(&mut fan);
        let published = fan.published();
        assert_eq!(fan.tally.delivered, published * 6);
        let tally = &fan.tally;
        let faults = [tally.lost, tally.behind, tally.corrupt, tally.duplicates];
        assert_eq!(faults, [0; 4]);
        assert_eq!((fan.cut, fan.books.refused), (0, 0));
        assert!(edges.delivered <= fan.tally.delivered && edges.published <= published);
        assert_eq!(fan.books.latency.replies(), fan.books.burst.replies() * 6);
        assert_eq!(fan.books.burst.replies(), fan.books.publish.replies());
        if window == 0 {
            // 33 events are due from the start to the close of the window, however busy it is.
            assert_eq!(published, 33);
        }
    }
}

#[test]
fn those_that_do_not_read_are_left_alone() {
    let mut case = case();
    case.stalled = 2;
    let mut fan = Fan::new(&case, System::Floor).unwrap();
    fan.connect(System::Floor, floor()).unwrap();
    run(&mut fan);
    assert_eq!(fan.tally.delivered, fan.published() * 6);
    assert_eq!((fan.tally.lost, fan.stalled_cut()), (0, 0));
}

#[test]
fn the_emitter_is_read_without_loss() {
    let address = stub::spawn("sse", &["--every", "5ms", "--clock", "shared"]).unwrap();
    let mut case = case();
    case.feed = Feed::Nothing;
    let mut fan = Fan::new(&case, System::Direct).unwrap();
    fan.connect(System::Direct, address).unwrap();
    while fan.tally.delivered < 60 {
        fan.rest(Duration::from_millis(50)).unwrap();
    }
    let good = fan
        .readers
        .iter()
        .all(|reader| reader.progress.missing.is_empty());
    assert!(
        good && fan.tally.corrupt == 0 && fan.tally.duplicates == 0,
        "{:?}",
        fan.tally
    );
    assert_eq!(fan.open(), 6);
}

#[test]
fn who_does_not_stream_is_not_measured() {
    let case = case();
    let mut fan = Fan::new(&case, System::Direct).unwrap();
    let error = fan
        .connect(System::Direct, stub::spawn("echo", &[]).unwrap())
        .unwrap_err();
    assert!(
        error.to_string().contains("a stream with a length"),
        "{error}"
    );
}

#[test]
fn topics_are_due_in_turn() {
    let mut case = case();
    (case.topics, case.period_ms) = (4, 1.0);
    let mut pace = Fan::new(&case, System::Floor).unwrap().schedule(10_000);
    assert_eq!(pace.step(), Some(250));
    assert_eq!(pace.due(1, 10_249).count(), 0);
    assert_eq!(
        pace.due(1, 12_300).collect::<Vec<_>>(),
        [10_250, 11_250, 12_250]
    );
    assert_eq!(pace.due(1, 12_300).count(), 0);
    case.window = 1;
    assert_eq!(
        Fan::new(&case, System::Floor).unwrap().schedule(0).step(),
        None
    );
}
