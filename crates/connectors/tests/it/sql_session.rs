//! What the tests of database drivers share: a worker's runtime, a sink that keeps what comes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use component::handler::LocalFuture;
use connectors::sql::error::{Class, SqlError};
use connectors::sql::session::{Done, Out, Procedure, Session, Sink, Statement, Wants};
use connectors::sql::{Database, Decimals, Dialect, Limits, Place, Texts, drivers};
use connectors::{Server, Tls};
use expr::value::{self, Value};

/// Runs work as a worker does: on one thread, with tasks that stay on it. It has half a minute.
pub fn on_worker<T>(work: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_io().enable_time().build().unwrap();
    let local = tokio::task::LocalSet::new();
    let limited = async { tokio::time::timeout(Duration::from_secs(30), work).await };
    local
        .block_on(&runtime, limited)
        .expect("it takes too long")
}

/// A database as a connection of a flow file says it.
pub fn database(dialect: Dialect, port: u16, (user, password): (&str, &str)) -> Database {
    Database {
        connection: "db".to_owned(),
        dialect,
        place: Place::Server(Server {
            is_secure: false,
            host: "127.0.0.1".to_owned(),
            port,
            user: Some(user.to_owned()),
            password: Some(password.to_owned()),
            path: String::new(),
        }),
        name: None,
        tls: None,
        decimals: Decimals::Number,
        texts: Texts::default(),
        limits: Limits {
            pool: 1,
            wait: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
        },
        measures: Arc::default(),
    }
}

/// TLS that trusts this authority.
pub fn tls(authority: &str) -> Tls {
    Tls {
        ca: Some(authority.to_owned().into()),
        ..Tls::default()
    }
}

/// Connects, or why not.
pub async fn try_connect(database: Database) -> Result<Box<dyn Session>, SqlError> {
    let driver = drivers::of(database.dialect).unwrap();
    driver.connect(&Arc::new(database)).await
}

/// Connects.
pub async fn connect(database: Database) -> Box<dyn Session> {
    match try_connect(database).await {
        Ok(session) => session,
        Err(error) => panic!("{error:?}"),
    }
}

/// A sink that keeps everything, up to a number of rows.
#[derive(Default)]
pub struct Kept {
    /// The result sets, each a JSON text of its rows.
    pub sets: Vec<Vec<Value>>,
    /// The most rows.
    pub rows_max: Option<usize>,
    /// Whether each row is to be drained, and how many were.
    pub drains: Option<usize>,
    /// The bytes of all rows.
    pub size: usize,
}

impl Sink for Kept {
    fn begin(&mut self) -> Result<(), SqlError> {
        self.sets.push(Vec::new());
        Ok(())
    }

    fn row(&mut self, row: Value, size: usize) -> Result<Wants, SqlError> {
        self.size += size;
        let set = self.sets.last_mut().unwrap();
        if Some(set.len()) == self.rows_max {
            return Err(SqlError::new(Class::TooLarge, "too many rows"));
        }
        set.push(row);
        Ok(match self.drains {
            Some(_) => Wants::Drain,
            None => Wants::More,
        })
    }

    fn drain(&mut self) -> LocalFuture<'_, Result<(), SqlError>> {
        Box::pin(async {
            tokio::task::yield_now().await;
            self.drains = self.drains.map(|count| count + 1);
            Ok(())
        })
    }
}

/// A statement with these names of arguments.
pub fn statement(text: &str, names: &[&str]) -> Statement {
    Statement {
        text: text.to_owned(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Statement::default()
    }
}

/// A call of a procedure, as a flow file says it.
pub fn call(dialect: Dialect, name: &str, arguments: &[&str], outs: &[(&str, &str)]) -> Statement {
    let procedure = Procedure {
        name: name.to_owned(),
        arguments: arguments.iter().map(|name| (*name).to_owned()).collect(),
        outs: outs
            .iter()
            .map(|(name, sql_type)| Out {
                name: (*name).to_owned(),
                sql_type: (*sql_type).to_owned(),
            })
            .collect(),
    };
    let (text, names) = drivers::of(dialect).unwrap().call(&procedure).unwrap();
    Statement {
        text,
        names,
        procedure: Some(procedure),
        ..Statement::default()
    }
}

/// Runs a statement and keeps what comes.
pub async fn keep(
    session: &mut dyn Session,
    statement: &Statement,
    arguments: &[Value],
) -> Result<(Kept, Done), SqlError> {
    let mut kept = Kept::default();
    let done = session.run(statement, arguments, &mut kept).await?;
    Ok((kept, done))
}

/// The only result set of a statement, as compact JSON, one row a line.
pub async fn rows(session: &mut dyn Session, text: &str, arguments: &[Value]) -> String {
    let names: Vec<String> = (1..=arguments.len()).map(|it| format!("a{it}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match keep(session, &statement(text, &names), arguments).await {
        Ok((kept, _)) => {
            assert_eq!(kept.sets.len(), 1, "{text}");
            lines(&kept.sets[0])
        }
        Err(error) => panic!("{text}: {error:?}"),
    }
}

/// Rows as compact JSON, one a line.
pub fn lines(rows: &[Value]) -> String {
    let lines: Vec<String> = rows.iter().map(json).collect();
    lines.join("\n")
}

/// A value as JSON, whole.
pub fn json(value: &Value) -> String {
    let mut out = Vec::new();
    expr::json::write(value, 100_000_000, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// How many rows a statement has changed.
pub async fn change(session: &mut dyn Session, text: &str) -> u64 {
    match keep(session, &statement(text, &[]), &[]).await {
        Ok((_, done)) => done.changed,
        Err(error) => panic!("{text}: {error:?}"),
    }
}

/// Why a statement fails.
pub async fn failure(session: &mut dyn Session, text: &str) -> SqlError {
    match keep(session, &statement(text, &[]), &[]).await {
        Ok((kept, done)) => panic!("{text}: {:?} {done:?}", kept.sets),
        Err(error) => error,
    }
}

/// A text as a value.
pub fn text(text: &str) -> Value {
    value::text(text)
}
