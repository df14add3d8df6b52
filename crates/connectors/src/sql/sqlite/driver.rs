//! The driver of SQLite: each connection lives on a thread of its own, for SQLite blocks.

mod failure;
mod session;
mod thread;

use std::sync::Arc;

use crate::sql::session::{Doing, Driver, Procedure, Session};
use crate::sql::{Database, Place};

use session::SqliteSession;

/// The driver.
pub struct Sqlite;

impl Driver for Sqlite {
    fn connect(&self, database: &Arc<Database>) -> Doing<'static, Box<dyn Session>> {
        let database = Arc::clone(database);
        Box::pin(async move {
            let file = match &database.place {
                Place::File(file) => file.clone(),
                Place::Server(server) => server.path.clone().into(),
            };
            let limits = database.limits;
            let thread = thread::start(file, limits.wait).await?;
            let session = SqliteSession::new(thread, limits.statement_timeout);
            Ok(Box::new(session) as Box<dyn Session>)
        })
    }

    fn call(&self, _: &Procedure) -> Result<(String, Vec<String>), String> {
        Err("SQLite has no procedures; write the statement as `query`".to_owned())
    }
}
