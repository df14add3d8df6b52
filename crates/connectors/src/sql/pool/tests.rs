//! Tasks of a pool that panic: nobody waits for them for ever, and their places are free again.

use component::vital;
use expr::Value;

use super::*;
use crate::sql::measures::Measures;
use crate::sql::session::{Done, Isolation, Procedure, Sink, Statement};
use crate::sql::{Decimals, Dialect, Limits, Place as Location, Texts};
use crate::testing::StandIn;

thread_local! {
    /// What panics when it is done the next time.
    static PANICS: Cell<&'static str> = const { Cell::new("") };
}

fn panic_in(what: &str) {
    if PANICS.get() == what {
        PANICS.set("");
        panic!("on purpose");
    }
}

struct Panicking;

impl Driver for Panicking {
    fn connect(&self, _: &Arc<Database>) -> crate::sql::session::Doing<'static, Box<dyn Session>> {
        Box::pin(async {
            panic_in("connect");
            Ok(Box::new(PanickingSession) as Box<dyn Session>)
        })
    }

    fn call(&self, _: &Procedure) -> Result<(String, Vec<String>), String> {
        Err("there are none".to_owned())
    }
}

struct PanickingSession;

type Doing<'a, T> = crate::sql::session::Doing<'a, T>;

impl Session for PanickingSession {
    fn run<'a>(
        &'a mut self,
        _: &'a Statement,
        _: &'a [Value],
        _: &'a mut dyn Sink,
    ) -> Doing<'a, Done> {
        Box::pin(async { Ok(Done::default()) })
    }

    fn begin(&mut self, _: Option<Isolation>) -> Doing<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn commit(&mut self) -> Doing<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn rollback(&mut self) -> Doing<'_, ()> {
        Box::pin(async {
            panic_in("rollback");
            Ok(())
        })
    }

    fn ping(&mut self) -> Doing<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn is_broken(&self) -> bool {
        panic_in("is_broken");
        false
    }

    fn is_aborted(&self) -> bool {
        false
    }

    fn recover(self: Box<Self>) -> LocalFuture<'static, Option<Box<dyn Session>>> {
        Box::pin(async { None })
    }

    fn close(self: Box<Self>) -> LocalFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Runs a test with a pool of one connection. No time passes for those who wait.
fn with_pool(test: impl AsyncFn(&Rc<Pool>, &StandIn)) {
    let limits = Limits {
        pool: 1,
        wait: Duration::from_secs(5),
        connect_timeout: Duration::from_secs(5),
        statement_timeout: Duration::from_secs(5),
    };
    let database = Arc::new(Database {
        connection: "db".to_owned(),
        dialect: Dialect::Sqlite,
        place: Location::File("nothing".into()),
        name: None,
        tls: None,
        decimals: Decimals::default(),
        texts: Texts::default(),
        limits,
        measures: Arc::<Measures>::default(),
    });
    let services = StandIn {
        is_timeless: true,
        ..StandIn::default()
    };
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let builder = builder.enable_time();
    let runtime = builder.build_local(Default::default()).unwrap();
    runtime.block_on(async {
        let pool = Pool::new(&database, &Panicking, 1);
        test(&pool, &services).await;
    });
}

#[test]
fn who_waits_for_a_connection_learns_at_once_that_its_task_has_panicked() {
    with_pool(async |pool, services| {
        PANICS.set("connect");
        let error = pool.lend(services).await.err().unwrap();
        assert_eq!(error.class, Class::Unreachable);
        assert!(error.message.contains("panicked"), "{}", error.message);
        // Its place in the pool and its turn to connect are free again.
        for _ in 0..=CONNECTING_MAX {
            PANICS.set("connect");
            assert!(pool.lend(services).await.is_err());
        }
        assert!(pool.lend(services).await.is_ok());
        assert_eq!(pool.database.measures.open.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_recovery_that_panics_gives_up_its_place_and_its_connection() {
    with_pool(async |pool, services| {
        let mut lease = pool.lend(services).await.unwrap();
        lease.begin(None, services).await.unwrap();
        PANICS.set("rollback");
        drop(lease);
        // This waits for the place.
        let lease = pool.lend(services).await.unwrap();
        assert_eq!(PANICS.get(), "");
        assert_eq!(pool.database.measures.open.load(Ordering::Relaxed), 1);
        drop(lease);
    });
}

#[test]
fn a_worker_ends_whose_idle_connections_nobody_looks_after() {
    let (lost, mut reported) = tokio::sync::mpsc::unbounded_channel();
    vital::on_loss(move |name| lost.send(name).unwrap());
    with_pool(async |pool, services| {
        drop(pool.lend(services).await.unwrap());
        PANICS.set("is_broken");
        // As the pool's own task, which looks every half a minute.
        pool.start_sweeping(Duration::from_millis(1));
        while !PANICS.get().is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
    });
    assert_eq!(reported.try_recv(), Ok("idle connections to a database"));
}
