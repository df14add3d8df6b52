//! How long a driver waits for a server that does not end statements by itself.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::sql::Database;
use crate::sql::error::{Class, SqlError};
use crate::sql::session::Statement;

/// How long it waits: for a whole statement, or, when its rows are worked on while they come, for
/// each of them.
pub(crate) struct Patience {
    limit: Duration,
    until: Option<Instant>,
}

impl Patience {
    /// From now on.
    pub fn new(database: &Database, statement: &Statement) -> Self {
        let limit = database.limits.statement_timeout;
        let until = (!statement.is_streamed).then(|| Instant::now() + limit);
        Self { limit, until }
    }

    /// Waits for something.
    ///
    /// # Errors
    /// When it takes too long. It was dropped then.
    pub async fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T, SqlError> {
        let left = match self.until {
            Some(until) => until.saturating_duration_since(Instant::now()),
            None => self.limit,
        };
        timeout(left, work).await.map_err(|_| {
            let what = match self.until {
                Some(_) => "longer than",
                None => "no further row within",
            };
            SqlError::new(Class::Timeout, format_args!("{what} {:?}", self.limit))
        })
    }
}
