//! Random schedules of flows that share few connections: each reads its own rows only, and each
//! transaction happens whole or not at all. First against a server whose connections are a queue of
//! replies, where a future that is dropped leaves its reply to the next one and everything is
//! decided by a seed; then against real servers.

mod servers;

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use component::handler::LocalFuture;
use expr::value;
use fastrand::Rng;

use super::*;
use crate::sql::measures::Measures;
use crate::sql::pool::Pool;
use crate::sql::session::{Doing, Driver, Procedure, Session, Wants};
use crate::sql::{Decimals, Limits, Place, Texts};
use crate::testing::StandIn;

thread_local! {
    static RANDOM: RefCell<Rng> = const { RefCell::new(Rng::with_seed(0)) };
    /// What is committed on the server.
    static COMMITTED: RefCell<BTreeSet<i64>> = const { RefCell::new(BTreeSet::new()) };
}

fn random<T>(work: impl FnOnce(&mut Rng) -> T) -> T {
    RANDOM.with_borrow_mut(work)
}

/// The driver of the server.
struct Queued;

impl Driver for Queued {
    fn connect(&self, _: &Arc<Database>) -> Doing<'static, Box<dyn Session>> {
        Box::pin(async { Ok(Box::<QueuedSession>::default() as Box<dyn Session>) })
    }

    fn call(&self, _: &Procedure) -> Result<(String, Vec<String>), String> {
        Err("there are none".to_owned())
    }
}

/// One connection.
#[derive(Default)]
struct QueuedSession {
    /// What the server has sent and nobody has read.
    replies: VecDeque<Result<i64, SqlError>>,
    /// What the open transaction has written, on the server.
    open: Option<Vec<i64>>,
    in_transaction: bool,
    is_aborted: bool,
    is_broken: bool,
}

impl QueuedSession {
    /// The server runs something whole and answers, whether anybody waits or not.
    fn serve(&mut self, text: &str, number: i64) {
        let deadlock = || Err(SqlError::new(Class::Deadlock, "deadlock"));
        let reply = match text {
            "begin" => {
                self.open = Some(Vec::new());
                Ok(0)
            }
            "commit" => {
                let written = self.open.take().unwrap_or_default();
                COMMITTED.with_borrow_mut(|all| all.extend(written));
                Ok(0)
            }
            "rollback" => {
                self.open = None;
                Ok(0)
            }
            "write" if self.open.is_some() && random(|it| it.u8(..8) == 0) => {
                self.open = None;
                deadlock()
            }
            "write" => {
                match &mut self.open {
                    Some(open) => open.push(number),
                    None => drop(COMMITTED.with_borrow_mut(|all| all.insert(number))),
                }
                Ok(number)
            }
            _ => Ok(number),
        };
        self.replies.push_back(reply);
    }

    async fn ask(&mut self, text: &str, number: i64) -> Result<i64, SqlError> {
        self.serve(text, number);
        if random(|it| it.u8(..40) == 0) {
            self.open = None;
            self.is_broken = true;
            return Err(SqlError::new(Class::Lost, "cut"));
        }
        for _ in 0..random(|it| it.u8(..4)) {
            tokio::task::yield_now().await;
        }
        let reply = self.replies.pop_front();
        self.is_aborted = self.in_transaction && self.open.is_none();
        reply.unwrap_or_else(|| Err(SqlError::new(Class::Lost, "there is no reply")))
    }
}

impl Session for QueuedSession {
    fn run<'a>(
        &'a mut self,
        statement: &'a Statement,
        arguments: &'a [Value],
        sink: &'a mut dyn Sink,
    ) -> Doing<'a, Done> {
        Box::pin(async move {
            let number = arguments.first().and_then(value::scalar_text);
            let number = number.and_then(|it| it.parse().ok()).unwrap_or(-1);
            let found = self.ask(&statement.text, number).await?;
            sink.begin()?;
            let row = value::object([("n".to_owned(), value::integer(found))]);
            assert_eq!(sink.row(row, 8)?, Wants::More);
            Ok(Done::default())
        })
    }

    fn begin(&mut self, _: Option<Isolation>) -> Doing<'_, ()> {
        (self.in_transaction, self.is_aborted) = (true, false);
        Box::pin(async { self.ask("begin", 0).await.map(drop) })
    }

    fn commit(&mut self) -> Doing<'_, ()> {
        Box::pin(async {
            self.ask("commit", 0).await?;
            self.in_transaction = false;
            Ok(())
        })
    }

    fn rollback(&mut self) -> Doing<'_, ()> {
        Box::pin(async {
            self.ask("rollback", 0).await?;
            self.in_transaction = false;
            Ok(())
        })
    }

    fn ping(&mut self) -> Doing<'_, ()> {
        Box::pin(async { self.ask("ping", 0).await.map(drop) })
    }

    fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn is_aborted(&self) -> bool {
        self.is_aborted
    }

    fn recover(mut self: Box<Self>) -> LocalFuture<'static, Option<Box<dyn Session>>> {
        Box::pin(async move {
            if random(Rng::bool) {
                return None;
            }
            tokio::task::yield_now().await;
            self.replies.clear();
            (self.open, self.in_transaction, self.is_aborted) = (None, false, false);
            Some(self as Box<dyn Session>)
        })
    }

    fn close(self: Box<Self>) -> LocalFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

fn database() -> Arc<Database> {
    Arc::new(Database {
        connection: "db".to_owned(),
        dialect: Dialect::Sqlite,
        place: Place::File("nothing".into()),
        name: None,
        tls: None,
        decimals: Decimals::default(),
        texts: Texts::default(),
        limits: Limits {
            pool: 2,
            wait: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(5),
        },
        measures: Arc::<Measures>::default(),
    })
}

/// A future that is dropped after this number of polls, if it is still pending then.
async fn at_most<T>(polls: u64, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut left = polls;
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// What a flow knows of one transaction.
#[derive(Debug, Default)]
struct Story {
    /// What it was told is written.
    written: Vec<i64>,
    /// What it was told, by a failure or a time-out, is not.
    refused: Vec<i64>,
    /// Whether the transaction has ended with success; `None` when nobody was told.
    ended: Option<bool>,
}

struct Flow<'a> {
    database: &'a Arc<Database>,
    services: &'a StandIn,
    /// What reads back the argument, and what writes it.
    texts: (&'a str, &'a str),
    number: i64,
}

fn statement(text: &str) -> Statement {
    Statement {
        text: text.to_owned(),
        names: vec!["n".to_owned()],
        ..Statement::default()
    }
}

impl Flow<'_> {
    fn next(&mut self) -> i64 {
        self.number += 1;
        self.number
    }

    /// Asks for a number and gets that one, or a failure.
    async fn read(&mut self) {
        let number = self.next();
        let mut sink = crate::sql::sink::First::new(1000);
        let (select, arguments) = (statement(self.texts.0), [value::integer(number)]);
        let pool = pool::of(self.database, self.services).unwrap();
        let asked = async {
            let mut lease = pool.lend(self.services).await?;
            lease
                .run(&select, &arguments, &mut sink, self.services)
                .await
        };
        let polls = random(|it| it.u64(..12));
        if let Some(Ok(_)) = at_most(polls, asked).await {
            own(sink.into_rows(), number);
        }
    }

    /// A transaction of some statements, each with a time-out, and a failure handled or tried
    /// again.
    async fn transaction(&mut self, story: &mut Story) {
        let transaction = Rc::new(Transaction::new(self.database, None));
        let _left = Left(Rc::clone(&transaction));
        for _ in 0..random(|it| it.u8(1..=4)) {
            let tries = random(|it| it.u8(1..=3));
            for _ in 0..tries {
                let (reads, number) = (random(|it| it.u8(..3) == 0), self.next());
                let text = if reads { self.texts.0 } else { self.texts.1 };
                let mut sink = crate::sql::sink::First::new(1000);
                let (sent, arguments) = (statement(text), [value::integer(number)]);
                let run = transaction.run(&sent, &arguments, &mut sink, self.services);
                let polls = random(|it| it.u64(..30));
                let is_done = matches!(at_most(polls, run).await, Some(Ok(_)));
                match (is_done, reads) {
                    (true, true) => own(sink.into_rows(), number),
                    (true, false) => story.written.push(number),
                    (false, true) => {}
                    (false, false) => story.refused.push(number),
                }
                if is_done {
                    break;
                }
            }
        }
        let is_success = random(|it| it.u8(..5) > 0);
        let ended = transaction.end(is_success, self.services).await;
        // A commit whose reply is lost may have happened.
        let is_known = !matches!(&ended, Err(error) if !error.is_without_effect);
        story.ended = is_known.then_some(ended.is_ok() && is_success);
    }
}

fn own(rows: Vec<Value>, number: i64) {
    let found = rows.iter().map(|row| value::get(row, "n"));
    let found: Vec<_> = found.collect();
    assert_eq!(found, [Some(&value::integer(number))], "another flow's row");
}

async fn flow(mut flow: Flow<'_>) -> Vec<Story> {
    let mut stories = Vec::new();
    for _ in 0..3 {
        flow.read().await;
        let (mut story, polls) = (Story::default(), random(|it| it.u64(..120)));
        at_most(polls, flow.transaction(&mut story)).await;
        stories.push(story);
    }
    stories
}

fn check(story: &Story, seed: u64, committed: &BTreeSet<i64>) {
    let refused = story.refused.iter().any(|it| committed.contains(it));
    assert!(
        !refused,
        "seed {seed}: {story:?}: what was refused is committed"
    );
    let expected = match story.ended {
        Some(is_committed) => is_committed,
        None => return,
    };
    let mut written = story.written.iter();
    let is_whole = written.all(|it| committed.contains(it) == expected);
    assert!(is_whole, "seed {seed}: {story:?}: not as a whole");
}

async fn schedule(seed: u64) {
    RANDOM.set(Rng::with_seed(seed));
    COMMITTED.take();
    let (database, services) = (
        database(),
        StandIn {
            is_timeless: true,
            ..StandIn::default()
        },
    );
    let settings = Database::settings;
    let pool = services
        .resources
        .get(&database, settings, || Pool::new(&database, &Queued, 2));
    let made = |at: i32| {
        flow(Flow {
            database: &database,
            services: &services,
            texts: ("read", "write"),
            number: i64::from(at) * 1000,
        })
    };
    let flows = [made(1), made(2), made(3), made(4)];
    for story in futures_util::future::join_all(flows).await.iter().flatten() {
        COMMITTED.with_borrow(|committed| check(story, seed, committed));
    }
    drop(pool);
}

#[test]
fn every_flow_reads_its_own_rows_and_every_transaction_is_whole() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().build().unwrap();
    let local = tokio::task::LocalSet::new();
    for seed in 0..10_000 {
        local.block_on(&runtime, schedule(seed));
    }
}

/// Runs a test with a pool of one connection, for some seeds.
fn with_one_connection(test: impl AsyncFn(u64, &Rc<Pool>, &StandIn) -> bool) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().build().unwrap();
    let local = tokio::task::LocalSet::new();
    let mut useful = 0;
    for seed in 0..200 {
        RANDOM.set(Rng::with_seed(seed));
        COMMITTED.take();
        useful += local.block_on(&runtime, async {
            let services = StandIn {
                is_timeless: true,
                ..StandIn::default()
            };
            let pool = Pool::new(&database(), &Queued, 1);
            u64::from(test(seed, &pool, &services).await)
        });
    }
    assert!(useful > 20, "{useful}: of little use");
}

async fn write(lease: &mut Lease, number: i64, services: &StandIn) -> Result<Done, SqlError> {
    let mut sink = crate::sql::sink::First::new(1000);
    let (sent, arguments) = (statement("write"), [value::integer(number)]);
    lease.run(&sent, &arguments, &mut sink, services).await
}

#[test]
fn a_lease_whose_statement_was_dropped_runs_nothing_more() {
    with_one_connection(async |seed, pool, services| {
        let mut lease = pool.lend(services).await.unwrap();
        let dropped = at_most(0, write(&mut lease, 1, services)).await;
        if dropped.is_some() {
            return false;
        }
        assert!(write(&mut lease, 2, services).await.is_err(), "seed {seed}");
        COMMITTED.with_borrow(|all| assert!(!all.contains(&2), "seed {seed}"));
        true
    });
}

/// Between two statements nothing is under way, and the transaction is open all the same.
#[test]
fn a_transaction_that_is_left_between_statements_is_rolled_back() {
    with_one_connection(async |seed, pool, services| {
        let mut lease = pool.lend(services).await.unwrap();
        let is_begun = lease.begin(None, services).await.is_ok();
        if !is_begun || write(&mut lease, 1, services).await.is_err() {
            return false;
        }
        drop(lease);
        let mut lease = pool.lend(services).await.unwrap();
        let is_written = write(&mut lease, 2, services).await.is_ok();
        COMMITTED.with_borrow(|all| {
            assert!(!all.contains(&1), "seed {seed}");
            // One whose reply was lost may be written.
            assert!(!is_written || all.contains(&2), "seed {seed}");
        });
        is_written
    });
}
