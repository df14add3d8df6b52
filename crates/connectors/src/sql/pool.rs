//! The connections to a database that one worker keeps: bounded in number, lent to one message at
//! a time in the order of asking, and lent again only while they are known to be clean.

mod lease;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use component::handler::{LocalFuture, Services, within};
use component::resources::Resource;
use component::vital::vital;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use crate::sql::error::{Class, SqlError};
use crate::sql::measures::Counted;
use crate::sql::session::{Driver, Session};
use crate::sql::{Database, drivers};
use lease::GRACE;
pub(crate) use lease::{BrokenTransaction, Lease};

/// How many connections one worker makes at a time.
const CONNECTING_MAX: usize = 2;
/// How many may wait for each connection.
const WAITING_MAX: usize = 1000;
/// After so long without use a connection is asked for a sign of life before it is used.
const PING_AFTER: Duration = Duration::from_secs(30);
/// After so long without use a connection is closed.
const IDLE_MAX: Duration = Duration::from_secs(300);
/// A connection older than this is closed when its use is over: servers that have moved get their
/// share, and what a server keeps for it goes.
const AGE_MAX: Duration = Duration::from_secs(1800);
/// How often idle connections are looked at.
const SWEEP: Duration = Duration::from_secs(30);

/// The connections of one worker.
pub(crate) struct Pool {
    database: Arc<Database>,
    driver: &'static dyn Driver,
    size: usize,
    places: Arc<Semaphore>,
    /// For those that connect.
    turns: Semaphore,
    idle: RefCell<Vec<Idle>>,
    is_closed: Cell<bool>,
    waiting: Cell<usize>,
}

struct Idle {
    session: Box<dyn Session>,
    born: Instant,
    since: Instant,
}

/// The pool of this worker for a database.
///
/// # Errors
/// When this build has no driver for it.
pub(crate) fn of(database: &Arc<Database>, services: &dyn Services) -> Result<Rc<Pool>, SqlError> {
    let Some(driver) = drivers::of(database.dialect) else {
        return Err(SqlError::new(Class::Refused, "this build has no driver"));
    };
    let share = services.share().of(database.limits.pool as usize).max(1);
    let resources = services.resources();
    Ok(resources.get(database, Database::settings, || {
        // A copy: the pool ends when nobody else has the database of a plan.
        let own = Arc::new(Database::clone(database));
        Pool::new(&own, driver, share)
    }))
}

impl Pool {
    /// An empty pool for at most so many connections.
    pub fn new(database: &Arc<Database>, driver: &'static dyn Driver, size: usize) -> Rc<Self> {
        let pool = Rc::new(Self {
            database: Arc::clone(database),
            driver,
            size,
            places: Arc::new(Semaphore::new(size)),
            turns: Semaphore::new(CONNECTING_MAX),
            idle: RefCell::default(),
            is_closed: Cell::new(false),
            waiting: Cell::new(0),
        });
        pool.start_sweeping(SWEEP);
        pool
    }

    /// Closes at this interval what has been idle for long, as long as there is the pool.
    fn start_sweeping(self: &Rc<Self>, interval: Duration) {
        let pool = Rc::downgrade(self);
        let sweep = async move {
            loop {
                sleep(interval).await;
                match pool.upgrade() {
                    Some(pool) => pool.sweep(),
                    None => return,
                }
            }
        };
        tokio::task::spawn_local(vital("idle connections to a database", sweep));
    }

    /// Lends a connection, made when none is idle.
    ///
    /// # Errors
    /// When all are in use for too long, or none can be made.
    pub async fn lend(self: &Rc<Self>, services: &dyn Services) -> Result<Lease, SqlError> {
        let place = self.place(services).await?;
        loop {
            let Some(idle) = self.take() else {
                return self.connect(place, services).await;
            };
            let is_long = idle.since.elapsed() >= PING_AFTER;
            let mut lease = Lease::new(self, idle.session, idle.born, Rc::clone(&place));
            if is_long && lease.ping(services).await.is_err() {
                lease.close();
                continue;
            }
            return Ok(lease);
        }
    }

    /// A place in the pool, in the order of asking.
    async fn place(&self, services: &dyn Services) -> Result<Rc<Place>, SqlError> {
        let made = |permit| Rc::new(Place { _permit: permit });
        if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(made(permit));
        }
        let wait = self.database.limits.wait;
        if self.waiting.get() >= self.size.saturating_mul(WAITING_MAX) {
            return Err(SqlError::new(Class::Busy, "too many wait for a connection"));
        }
        let _counted = Counted::new(&self.database.measures.waiting);
        let _waiting = Waiting::new(&self.waiting);
        let permit = Arc::clone(&self.places).acquire_owned();
        match within(wait, services, permit).await {
            Some(Ok(permit)) => Ok(made(permit)),
            Some(Err(_)) => Err(SqlError::new(Class::Busy, "the pool is closed")),
            None => {
                let size = self.size;
                let message = format!("all {size} connections were in use for {wait:?}");
                Err(SqlError::new(Class::Busy, message))
            }
        }
    }

    /// Makes a connection. That goes on when whoever asked gives up, and the next one finds it
    /// idle: after an outage messages that cannot wait so long would else begin again and again.
    async fn connect(
        self: &Rc<Self>,
        place: Rc<Place>,
        services: &dyn Services,
    ) -> Result<Lease, SqlError> {
        let (pool, (tell, told)) = (Rc::clone(self), oneshot::channel());
        tokio::task::spawn_local(async move {
            let made = pool.make().await;
            let lease = made.map(|session| Lease::new(&pool, session, Instant::now(), place));
            // A lease that nobody takes any more goes back to the pool.
            drop(tell.send(lease));
        });
        let limits = &self.database.limits;
        let time = limits.wait + limits.connect_timeout;
        let late = || SqlError::new(Class::Unreachable, format!("no connection within {time:?}"));
        match within(time, services, told).await {
            Some(Ok(lease)) => lease,
            // The task ends without an answer only by a panic, which has been logged.
            Some(Err(_)) => {
                let message = "the attempt to connect has panicked";
                Err(SqlError::new(Class::Unreachable, message))
            }
            None => Err(late()),
        }
    }

    /// Makes a connection when it is its turn: a login costs this worker time, and all at once
    /// would keep each from being ready.
    async fn make(&self) -> Result<Box<dyn Session>, SqlError> {
        let _turn = self.turns.acquire().await;
        let time = self.database.limits.connect_timeout;
        let session = match timeout(time, self.driver.connect(&self.database)).await {
            Ok(session) => session?,
            Err(_) => {
                let message = format!("no connection within {time:?}");
                return Err(SqlError::new(Class::Unreachable, message));
            }
        };
        self.database.measures.open.fetch_add(1, Ordering::Relaxed);
        Ok(session)
    }

    /// The connection that was used last, so that those too many grow old.
    fn take(&self) -> Option<Idle> {
        loop {
            let idle = self.idle.borrow_mut().pop()?;
            self.database.measures.idle.fetch_sub(1, Ordering::Relaxed);
            if !idle.session.is_broken() && idle.born.elapsed() < AGE_MAX {
                return Some(idle);
            }
            end(&self.database, idle.session);
        }
    }

    fn put(&self, session: Box<dyn Session>, born: Instant) {
        if self.is_closed.get() || session.is_broken() || born.elapsed() >= AGE_MAX {
            return end(&self.database, session);
        }
        let since = Instant::now();
        self.database.measures.idle.fetch_add(1, Ordering::Relaxed);
        self.idle.borrow_mut().push(Idle {
            session,
            born,
            since,
        });
    }

    /// Closes what has been idle for long.
    fn sweep(&self) {
        let is_over = |it: &mut Idle| it.since.elapsed() >= IDLE_MAX || it.session.is_broken();
        let over: Vec<Idle> = self.idle.borrow_mut().extract_if(.., is_over).collect();
        for idle in over {
            self.database.measures.idle.fetch_sub(1, Ordering::Relaxed);
            end(&self.database, idle.session);
        }
    }
}

impl Resource for Pool {
    fn close(self: Rc<Self>) -> LocalFuture<'static, ()> {
        self.is_closed.set(true);
        let all = std::mem::take(&mut *self.idle.borrow_mut());
        let database = Arc::clone(&self.database);
        Box::pin(async move {
            for idle in all {
                database.measures.idle.fetch_sub(1, Ordering::Relaxed);
                database.measures.open.fetch_sub(1, Ordering::Relaxed);
                // A server that does not answer has no claim on the end of the process.
                let _ = timeout(GRACE, idle.session.close()).await;
            }
        })
    }
}

/// Closes a session in the background.
fn end(database: &Database, session: Box<dyn Session>) {
    database.measures.open.fetch_sub(1, Ordering::Relaxed);
    tokio::task::spawn_local(timeout(GRACE, session.close()));
}

/// A place in the pool, for as long as this lives.
struct Place {
    _permit: OwnedSemaphorePermit,
}

/// One more who waits, for as long as this lives.
struct Waiting<'a>(&'a Cell<usize>);

impl<'a> Waiting<'a> {
    fn new(number: &'a Cell<usize>) -> Self {
        number.set(number.get() + 1);
        Self(number)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests;
