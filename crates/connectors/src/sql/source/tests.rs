//! Rows that the driver does not give.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use component::connection::{Connection, Connections};
use component::handler::{LocalFuture, Services};
use component::source::Started;
use message::{Fault, Reply, Request};
use testkit::tds::{self, ScriptedTds, TdsReply};

use super::DEFINITION;
use crate::testing::{StandIn, connect, source_of};

/// More than the driver reads of a row in tests.
const LARGE: usize = 5 << 20;

/// A flow that notes the rows that it gets.
struct Flow {
    name: Arc<str>,
    rows: Mutex<Vec<String>>,
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
        self.rows.lock().unwrap().push(row);
        Box::pin(async { Ok(Reply::new(200)) })
    }
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

/// A table of four rows, the third of which is large. The cursor is what has been noted last.
fn server() -> ScriptedTds {
    let cursor = Mutex::new(0_u8);
    ScriptedTds::start(move |request| {
        let mut cursor = cursor.lock().unwrap();
        let behind = (1..=4).filter(|it| it > &*cursor);
        let text_of = |number| text(if number == 3 { LARGE } else { 1 });
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

/// Runs a source until its flow has had so many rows, or for a while; how the rows begin.
async fn run(on_failure: &str, wanted: usize) -> Vec<String> {
    let server = server();
    let yaml = format!(
        "{{ connection: db, query: 'select a, t from t where a > :cursor order by a', \
         cursor: a, every: 50ms, delay: 50ms, on_failure: {on_failure} }}"
    );
    let url = format!("mssql://sa:x@127.0.0.1:{}", server.port());
    let source = source_of(&DEFINITION, &yaml, |span| {
        let kind = "sqlserver";
        let definition = crate::CONNECTIONS
            .iter()
            .find(|it| it.name == kind)
            .unwrap();
        let yaml = format!("{{ sqlserver: '{url}', encrypt: off }}");
        Connections::of(vec![Connection {
            name: "db".to_owned(),
            kind,
            span,
            value: connect(definition, &yaml).unwrap(),
            key_value: None,
        }])
    });
    let source = source.unwrap();
    let flow = Arc::new(Flow {
        name: "orders".into(),
        rows: Mutex::default(),
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
    });
    poll_fn(|context| match running.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => enough.as_mut().poll(context),
    })
    .await;
    let rows = flow.rows.lock().unwrap();
    rows.iter().map(|it| it.chars().take(7).collect()).collect()
}

fn run_on_worker(on_failure: &str, wanted: usize) -> Vec<String> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build_local(Default::default());
    runtime.unwrap().block_on(run(on_failure, wanted))
}

#[test]
fn row_that_the_driver_does_not_give_is_passed_over_where_that_is_wanted() {
    let rows = run_on_worker("skip", 3);
    assert_eq!(rows, [r#"{"a":1,"#, r#"{"a":2,"#, r#"{"a":4,"#]);
}

#[test]
fn rows_before_one_that_the_driver_does_not_give_are_worked_on() {
    for on_failure in ["retry", "stop"] {
        let rows = run_on_worker(on_failure, 2);
        assert_eq!(rows, [r#"{"a":1,"#, r#"{"a":2,"#], "{on_failure}");
    }
}
