//! What becomes of rows whose flow fails, and of those that the driver does not give.

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use component::connection::{Connection, Connections};
use component::definition::Surroundings;
use component::evaluation::Evaluation;
use component::handler::{LocalFuture, Services};
use component::intake::DeadLetterTarget;
use component::source::{Source, SourceContext, Started};
use component::state::States;
use config::{Report, Spanned};
use message::{Fault, Reply, Request};
use testkit::tds::{self, ScriptedTds, TdsReply};

use super::DEFINITION;
use crate::testing::{StandIn, connect, parse, source};

/// More than the driver reads of a row in tests.
const LARGE: usize = 5 << 20;

/// A flow that notes the rows that it gets, and fails with some.
struct Flow {
    name: Arc<str>,
    rows: Mutex<Vec<String>>,
    /// How the rows begin with which it fails.
    failing: &'static str,
}

impl Started for Flow {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn start<'a>(
        &'a self,
        request: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Reply, Fault>> {
        let row = String::from_utf8_lossy(request.body.as_bytes()).into_owned();
        let fails = !self.failing.is_empty() && row.starts_with(self.failing);
        self.rows.lock().unwrap().push(row);
        Box::pin(async move {
            match fails {
                true => Ok(Reply::new(422)),
                false => Ok(Reply::new(200)),
            }
        })
    }
}

/// The last row that the database has been told to be done.
type Cursor = Arc<Mutex<u8>>;

thread_local! {
    /// What was kept as a dead letter, and where the cursor was then.
    static LETTERS: RefCell<Vec<(u8, Request)>> = const { RefCell::new(Vec::new()) };
    static CURSOR: RefCell<Cursor> = RefCell::default();
}

/// Keeps dead letters for the test, at the third attempt.
struct Letters(Mutex<u32>);

impl DeadLetterTarget for Letters {
    fn name(&self) -> &str {
        "store dead-letters"
    }

    fn keep<'a>(
        &'a self,
        letter: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let mut attempts = self.0.lock().unwrap();
            *attempts += 1;
            if *attempts < 3 {
                return Err(Fault::of_status(503));
            }
            let cursor = CURSOR.with_borrow(|it| *it.lock().unwrap());
            LETTERS.with_borrow_mut(|it| it.push((cursor, letter)));
            Ok(())
        })
    }
}

fn dead_letters(
    name: &Spanned<String>,
    _: (&States, &mut Report),
) -> Option<Arc<dyn DeadLetterTarget>> {
    assert_eq!(name.value, "dead-letters");
    Some(Arc::new(Letters(Mutex::default())))
}

/// An `int` and a `varchar(max)`, whose values come in chunks (MS-TDS, section 2.2.5.2.3).
const INT: &[u8] = &[0x26, 4];
const TEXT: &[u8] = b"\xa7\xff\xff\x09\x04\xd0\x00\x34";

fn int(number: u8) -> Vec<u8> {
    vec![4, number, 0, 0, 0]
}

fn text(size: usize) -> Vec<u8> {
    let chunk = [&(size as u32).to_le_bytes()[..], &vec![b'x'; size]].concat();
    [&(size as u64).to_le_bytes()[..], &chunk, &[0; 4]].concat()
}

fn answer(columns: &[(&str, &[u8])], rows: &[Vec<u8>]) -> TdsReply {
    let done = tds::done(0xfd, 0x10, rows.len() as u64);
    TdsReply::Tokens([tds::columns(columns), rows.concat(), done].concat())
}

/// A table of four rows, the third of which may be large. The cursor is what has been noted last.
fn server(third: usize, cursor: Cursor) -> ScriptedTds {
    ScriptedTds::start(move |request| {
        let mut cursor = cursor.lock().unwrap();
        let behind = (1..=4).filter(|it| it > &*cursor);
        let text_of = |number| text(if number == 3 { third } else { 1 });
        if request.text.contains("top (1)") {
            let rows: Vec<_> = behind.map(|it| tds::row(&[&int(it)])).take(1).collect();
            return answer(&[("a", INT)], &rows);
        }
        if request.text.contains("select a, t") {
            let rows = behind.map(|it| tds::row(&[&int(it), &text_of(it)]));
            return answer(&[("a", INT), ("t", TEXT)], &rows.collect::<Vec<_>>());
        }
        if request.text.contains("select value") {
            let value = [&[1, 0][..], &[b'0' + *cursor]].concat();
            let kind = b"\xa7\x08\x00\x09\x04\xd0\x00\x34";
            return answer(&[("value", kind)], &[tds::row(&[&value])]);
        }
        if request.text.contains("update") {
            *cursor += 1;
        }
        TdsReply::Tokens(tds::done(0xfd, 0x10, 1))
    })
}

/// The source, by YAML behind that which all have.
fn sql_source(port: u16, settings: &str) -> Arc<dyn Source> {
    let yaml = format!(
        "{{ connection: db, query: 'select a, t from t where a > :cursor order by a', \
         cursor: a, every: 50ms, query_delay: 50ms, {settings} }}"
    );
    let (node, _, _, mut report) = parse(&yaml);
    let definition = crate::CONNECTIONS.iter().find(|it| it.name == "sqlserver");
    let url = format!("mssql://sa:x@127.0.0.1:{port}");
    let connection = format!("{{ sqlserver: '{url}', encrypt: off }}");
    let connections = Connections::of(vec![Connection {
        name: "db".to_owned(),
        kind: "sqlserver",
        span: node.span,
        value: connect(definition.unwrap(), &connection).unwrap(),
        key_value: None,
    }]);
    let (flow, states): (Arc<str>, _) = ("orders".into(), States::default());
    let mut context = SourceContext {
        report: &mut report,
        flow: &flow,
        connections: &connections,
        read_http: &|_, _| None,
        evaluation: &Evaluation::default(),
        surroundings: &Surroundings {
            files: &|_, name| Err(format!("{name} is not there")),
            folder: &|_| std::path::PathBuf::new(),
            states: &states,
            dead_letters,
        },
    };
    (DEFINITION.build)(&node, &mut context).unwrap()
}

/// Runs a source until its flow has had so many rows, and a little longer; how the rows begin.
async fn run(source: &Arc<dyn Source>, failing: &'static str, wanted: usize) -> Vec<String> {
    let flow = Arc::new(Flow {
        name: "orders".into(),
        rows: Mutex::default(),
        failing,
    });
    let started: Arc<dyn Started> = Arc::clone(&flow) as _;
    let services = StandIn {
        is_timed: true,
        ..StandIn::default()
    };
    let mut running = source.run(&started, &services, Box::pin(std::future::pending()));
    let mut enough = Box::pin(async {
        for _ in 0..600 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if flow.rows.lock().unwrap().len() >= wanted {
                break;
            }
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    });
    poll_fn(|context| match running.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => enough.as_mut().poll(context),
    })
    .await;
    let rows = flow.rows.lock().unwrap();
    rows.iter().map(|it| it.chars().take(7).collect()).collect()
}

/// Runs a source over four rows, of which the third has so many bytes, with a flow that fails with
/// rows that begin so, until it has had so many rows; these, and where the cursor is then.
fn run_on_worker(
    settings: &str,
    (third, failing): (usize, &'static str),
    wanted: usize,
) -> (Vec<String>, u8) {
    let cursor = Cursor::default();
    CURSOR.set(Arc::clone(&cursor));
    let server = server(third, Arc::clone(&cursor));
    let source = sql_source(server.port(), settings);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build_local(Default::default());
    let rows = runtime.unwrap().block_on(run(&source, failing, wanted));
    let cursor = *cursor.lock().unwrap();
    (rows, cursor)
}

const ROWS: [&str; 4] = [r#"{"a":1,"#, r#"{"a":2,"#, r#"{"a":3,"#, r#"{"a":4,"#];

/// Those that were kept: where the cursor was then, the body, and the parameters about the failure.
fn letters() -> Vec<(u8, String, Vec<String>)> {
    let letters = LETTERS.take().into_iter().map(|(cursor, letter)| {
        let body = String::from_utf8_lossy(letter.body.as_bytes()).into_owned();
        let parameters = letter.parameters.into_iter().map(|(_, value)| value);
        (cursor, body, parameters.collect())
    });
    letters.collect()
}

#[test]
fn row_whose_flow_fails_is_a_dead_letter_before_it_is_marked() {
    let settings = "retry: { times: 2, delay: 10ms }";
    let (rows, _) = run_on_worker(settings, (1, ROWS[2]), 6);
    let expected = [0, 1, 2, 2, 2, 3].map(|at| ROWS[at]);
    assert_eq!(rows, expected);
    let letters = letters();
    assert_eq!(letters.len(), 1);
    let (cursor, body, parameters) = &letters[0];
    assert_eq!((*cursor, &**body), (2, r#"{"a":3,"t":"x"}"#));
    assert_eq!(parameters[..3], ["orders", r#"{"a":3}"#, "3"]);
    assert!(parameters[3].contains("422"), "{parameters:?}");
}

#[test]
fn row_that_is_dropped_is_marked() {
    let settings = "retry: { times: 0 }, dead_letter: drop";
    let (rows, cursor) = run_on_worker(settings, (1, ROWS[1]), 4);
    assert_eq!(rows, ROWS);
    assert_eq!(cursor, 4);
    assert_eq!(letters(), []);
}

#[test]
fn row_that_fails_stops_a_source_that_is_to_stop() {
    let settings = "retry: { times: 1, delay: 10ms }, dead_letter: stop";
    let (rows, cursor) = run_on_worker(settings, (1, ROWS[1]), 3);
    assert_eq!(rows, [ROWS[0], ROWS[1], ROWS[1]]);
    assert_eq!(cursor, 1, "it is not marked");
    assert_eq!(letters(), []);
}

#[test]
fn row_that_the_driver_does_not_give_is_passed_over_where_that_is_wanted() {
    let settings = "retry: { times: 1, delay: 10ms }, dead_letter: drop";
    let (rows, _) = run_on_worker(settings, (LARGE, ""), 3);
    assert_eq!(rows, [ROWS[0], ROWS[1], ROWS[3]]);
    assert_eq!(letters(), []);
}

#[test]
fn row_that_the_driver_does_not_give_is_a_dead_letter_of_its_marks() {
    let settings = "retry: { times: 1, delay: 10ms }";
    let (rows, _) = run_on_worker(settings, (LARGE, ""), 3);
    assert_eq!(rows, [ROWS[0], ROWS[1], ROWS[3]]);
    let letters = letters();
    assert_eq!(letters.len(), 1);
    let (cursor, body, parameters) = &letters[0];
    assert_eq!((*cursor, &**body), (2, r#"{"a":3}"#));
    assert_eq!(parameters[..3], ["orders", r#"{"a":3}"#, "2"]);
}

#[test]
fn rows_before_one_that_the_driver_does_not_give_are_worked_on() {
    for settings in [
        "retry: { times: 1000000 }",
        "retry: { times: 0 }, dead_letter: stop",
    ] {
        let (rows, cursor) = run_on_worker(settings, (LARGE, ""), 2);
        assert_eq!(rows, ROWS[..2], "{settings}");
        assert_eq!(cursor, 2, "{settings}");
    }
}

#[test]
fn invalid_settings_are_reported() {
    let problems = |settings: &str| {
        let yaml = format!(
            "{{ connection: db, query: 'select a from t where a > :cursor order by a', cursor: a, \
             {settings} }}"
        );
        let problems = source(&DEFINITION, &yaml).err().unwrap_or_default();
        let codes = problems.iter().map(|it| it[..6].to_owned());
        codes.collect::<Vec<_>>()
    };
    for sound in [
        "query_delay: 5s",
        "retry: { on: [5xx, timeout], times: 3, delay: 1s, delay_max: 1m, jitter: 0% }",
        "dead_letter: { store: failed-orders }",
        "dead_letter: stop",
    ] {
        assert_eq!(problems(sound), [""; 0], "{sound}");
    }
    for (settings, code) in [
        ("on_failure: skip", "IT0111"),
        ("dead_letter: { queue: failed-orders }", "IT0111"),
        ("retry: { times: 1000001 }", "IT0115"),
        ("retry: { delay: 2s, delay_max: 1s }", "IT0423"),
        ("query_delay: 2h", "IT0291"),
    ] {
        assert_eq!(problems(settings), [code], "{settings}");
    }
    let refused = problems("dead_letter: reject");
    assert_eq!(refused.len(), 1, "there is nobody who would keep it");
}
