//! A connection that is lent to a message, and what becomes of it afterwards. Every use goes
//! through [`Lease::perform`], which marks the connection as interrupted until the reply has been
//! read to its end: a future that is dropped, or that takes too long, leaves the mark behind.

use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use component::handler::{Services, within};
use expr::Value;
use tokio::time::timeout;

use super::{Place, Pool, end};
use crate::sql::Database;
use crate::sql::error::{Class, SqlError};
use crate::sql::session::{Doing, Done, Isolation, Session, Sink, Statement};

/// How much longer than the server we wait for the end of a statement that takes too long.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// A connection that is lent. When it is dropped it goes back; when a statement was interrupted, or
/// a transaction is open, it is recovered first, or closed.
pub(crate) struct Lease {
    pool: Weak<Pool>,
    database: Arc<Database>,
    session: Option<Box<dyn Session>>,
    born: Instant,
    /// Whether something is under way, or was when its future was dropped: nobody knows what the
    /// next bytes from the server belong to.
    is_interrupted: bool,
    in_transaction: bool,
    place: Option<Rc<Place>>,
}

impl Lease {
    /// A clean connection.
    pub(super) fn new(
        pool: &Rc<Pool>,
        session: Box<dyn Session>,
        born: Instant,
        place: Rc<Place>,
    ) -> Self {
        Self {
            pool: Rc::downgrade(pool),
            database: Arc::clone(&pool.database),
            session: Some(session),
            born,
            is_interrupted: false,
            in_transaction: false,
            place: Some(place),
        }
    }

    /// Runs a statement, for at most the time that a statement may take.
    ///
    /// # Errors
    /// As [`Session::run`]; `timeout` when it takes too long.
    pub async fn run<'l>(
        &'l mut self,
        statement: &'l Statement,
        arguments: &'l [Value],
        sink: &'l mut dyn Sink,
        services: &dyn Services,
    ) -> Result<Done, SqlError> {
        let database = Arc::clone(&self.database);
        database.measures.statements.fetch_add(1, Ordering::Relaxed);
        let limit = match statement.is_streamed {
            true => None,
            false => Some(database.limits.statement_timeout + GRACE),
        };
        let done = self
            .perform(limit, services, |session| {
                session.run(statement, arguments, sink)
            })
            .await;
        if done.is_err() {
            database.measures.errors.fetch_add(1, Ordering::Relaxed);
        }
        done
    }

    /// Begins a transaction. The connection does not go back to the pool before its end.
    ///
    /// # Errors
    /// As [`Session::begin`]; `timeout` when it takes too long.
    pub async fn begin(
        &mut self,
        isolation: Option<Isolation>,
        services: &dyn Services,
    ) -> Result<(), SqlError> {
        self.in_transaction = true;
        self.short(services, |session| session.begin(isolation))
            .await
    }

    /// Commits the transaction.
    ///
    /// # Errors
    /// As [`Session::commit`]; `timeout` when it takes too long.
    pub async fn commit(&mut self, services: &dyn Services) -> Result<(), SqlError> {
        self.short(services, |session| session.commit()).await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Rolls the transaction back.
    ///
    /// # Errors
    /// As [`Session::rollback`]; `timeout` when it takes too long.
    pub async fn rollback(&mut self, services: &dyn Services) -> Result<(), SqlError> {
        self.short(services, |session| session.rollback()).await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Asks for a sign of life.
    pub(super) async fn ping(&mut self, services: &dyn Services) -> Result<(), SqlError> {
        let limit = self.database.limits.connect_timeout;
        self.perform(Some(limit), services, |session| session.ping())
            .await
    }

    /// Why nothing more can be committed on it; `None` while the transaction is open.
    pub fn broken_transaction(&self) -> Option<BrokenTransaction> {
        let session = self.session.as_deref().filter(|it| !it.is_broken());
        match session {
            _ if self.is_interrupted => Some(BrokenTransaction::Interrupted),
            None => Some(BrokenTransaction::Lost),
            Some(session) if session.is_aborted() => Some(BrokenTransaction::Aborted),
            Some(_) => None,
        }
    }

    async fn short<'l, T>(
        &'l mut self,
        services: &dyn Services,
        work: impl FnOnce(&'l mut dyn Session) -> Doing<'l, T>,
    ) -> Result<T, SqlError> {
        let limit = self.database.limits.statement_timeout + GRACE;
        self.perform(Some(limit), services, work).await
    }

    async fn perform<'l, T>(
        &'l mut self,
        limit: Option<Duration>,
        services: &dyn Services,
        work: impl FnOnce(&'l mut dyn Session) -> Doing<'l, T>,
    ) -> Result<T, SqlError> {
        let Self {
            session,
            is_interrupted,
            ..
        } = self;
        let session = session.as_deref_mut().filter(|_| !*is_interrupted);
        let Some(session) = session else {
            let message = "the connection was left in the middle of a statement";
            return Err(SqlError::new(Class::Lost, message).without_effect());
        };
        *is_interrupted = true;
        let work = work(session);
        let done = match limit {
            Some(limit) => within(limit, services, work).await,
            None => Some(work.await),
        };
        let Some(done) = done else {
            let message = format!("longer than {:?}", limit.unwrap_or_default());
            return Err(SqlError::new(Class::Timeout, message));
        };
        *is_interrupted = false;
        done
    }

    /// Closes the connection.
    pub(super) fn close(&mut self) {
        if let Some(session) = self.session.take() {
            end(&self.database, session);
        }
    }
}

/// Why a transaction cannot be committed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrokenTransaction {
    /// A statement was given up while it was under way.
    Interrupted,
    /// The connection is lost.
    Lost,
    /// The server has rolled it back, or takes nothing but its rollback.
    Aborted,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        let pool = self.pool.upgrade();
        let Some(pool) = pool.filter(|_| !session.is_broken()) else {
            return end(&self.database, session);
        };
        if !self.is_interrupted && !self.in_transaction {
            return pool.put(session, self.born);
        }
        let (born, place) = (self.born, self.place.take());
        let is_interrupted = self.is_interrupted;
        tokio::task::spawn_local(async move {
            let limit = pool.database.limits.connect_timeout;
            let mut open = OpenConnection {
                database: &pool.database,
                is_kept: false,
            };
            if let Ok(Some(session)) = timeout(limit, recover(session, is_interrupted)).await {
                open.is_kept = true;
                pool.put(session, born);
            }
            drop(place);
        });
    }
}

/// An open connection that is counted as closed unless it is kept, also when its recovery panics.
struct OpenConnection<'a> {
    database: &'a Database,
    is_kept: bool,
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            let open = &self.database.measures.open;
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The session without a transaction and with nothing under way; `None` when it is closed.
async fn recover(mut session: Box<dyn Session>, is_interrupted: bool) -> Option<Box<dyn Session>> {
    if is_interrupted {
        return session.recover().await;
    }
    if session.rollback().await.is_ok() {
        return Some(session);
    }
    session.close().await;
    None
}
