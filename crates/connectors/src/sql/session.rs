//! What a driver is: how a worker connects to a database, and what one connection does. The drivers
//! of the four dialects stand behind these traits; the pool, the steps and the source before them.

use std::sync::Arc;

use component::handler::LocalFuture;
use expr::Value;
use expr::value;

use crate::sql::Database;
use crate::sql::error::SqlError;

/// A statement, made ready once when the flow is loaded. It is used by the same steps on all
/// workers; drivers may keep what they know of it by [`Statement::text`].
#[derive(Clone, Debug, Default)]
pub struct Statement {
    /// What the database is sent, with the dialect's placeholders: `$1`, `?`, `@P1`, `?1`. Of a
    /// procedure it is what [`Driver::call`] makes.
    pub text: String,
    /// The name of the argument that each placeholder stands for, in the order in which the driver
    /// binds them. `?` names an argument as often as it is used; the others number each once.
    pub names: Vec<String>,
    /// Whether it certainly changes nothing, so that it may be sent again after a failure that
    /// leaves open whether it was run.
    pub is_read_only: bool,
    /// Whether the rows are worked on while they come. The statement may then take as long as that
    /// takes: the time-out of statements holds for each wait for the server, not for the whole.
    pub is_streamed: bool,
    /// The procedure that it calls.
    pub procedure: Option<Procedure>,
    /// The most rows that are wanted of it. A driver may have the server send no more; the sink
    /// refuses more in any case.
    pub rows_max: Option<u64>,
    /// Where its arguments come from, when they are values that a query has given.
    pub arguments_from: Option<ArgumentsFrom>,
}

/// A query whose rows give the arguments of a statement: an argument is the value of the column of
/// its name. What a value was in the database can so be known again when it is bound.
#[derive(Clone, Debug)]
pub struct ArgumentsFrom {
    /// The text of the query, with the dialect's placeholders.
    pub query: String,
    /// The column that gives all arguments, whatever they are called.
    pub cursor: Option<String>,
}

/// A call of a stored procedure.
#[derive(Clone, Debug)]
pub struct Procedure {
    /// Its name, checked to be one of at most three names with points between; not quoted.
    pub name: String,
    /// The names of the arguments that go in, in the order of the flow file.
    pub arguments: Vec<String>,
    /// What comes out besides result sets. A name may be among the arguments too: it goes both
    /// ways.
    pub outs: Vec<Out>,
}

/// A parameter of a procedure that comes out.
#[derive(Clone, Debug)]
pub struct Out {
    /// Its name.
    pub name: String,
    /// Its type as the database writes it, such as `decimal(12,2)`. It has been checked to be
    /// words, digits, commas, brackets and blanks only.
    pub sql_type: String,
}

/// What a statement has done, besides the rows that the [`Sink`] was given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// How many rows it has changed, where the database says so: the sum of all its parts.
    pub changed: u64,
    /// The parameters that came out of a procedure, in the order of [`Procedure::outs`].
    pub outs: Vec<(String, Value)>,
}

/// Whether a sink wants more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// The next row.
    More,
    /// That [`Sink::drain`] is awaited before the next row is read: nothing more is read from the
    /// server until then.
    Drain,
}

/// Where rows go. An error of a sink ends the statement: the driver stops it on the server, so that
/// the connection is clean or broken, and hands the error on.
pub trait Sink {
    /// A result set begins. Called also for one without rows, but not for a part of a statement
    /// that has no columns, such as an `update`.
    ///
    /// # Errors
    /// When there may be no further one.
    fn begin(&mut self) -> Result<(), SqlError>;

    /// A row: an object as [`Columns::row`] makes it. `size` is how many bytes its values took on
    /// their way from the server.
    ///
    /// # Errors
    /// When there are too many, or they are too large.
    fn row(&mut self, row: Value, size: usize) -> Result<Wants, SqlError>;

    /// Does what must be done before further rows.
    ///
    /// # Errors
    /// When that fails.
    fn drain(&mut self) -> LocalFuture<'_, Result<(), SqlError>>;
}

/// The names of the columns of a result set.
#[derive(Clone, Debug)]
pub struct Columns(Vec<Value>);

impl Columns {
    /// Columns of these names.
    ///
    /// # Errors
    /// When two have the same name, for one of them would be lost in an object, or one has none.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, SqlError> {
        let mut keys: Vec<Value> = Vec::new();
        for name in names {
            let key = value::text(name);
            let shown = name.escape_debug();
            if keys.contains(&key) {
                let message = format!("two columns have the name `{shown}`: rename one by `as`");
                return Err(SqlError::unsupported(message));
            }
            if name.is_empty() {
                let message = "a column has no name: give it one by `as`".to_owned();
                return Err(SqlError::unsupported(message));
            }
            keys.push(key);
        }
        Ok(Self(keys))
    }

    /// The row with these values, one for each column in their order.
    pub fn row(&self, values: impl IntoIterator<Item = Value>) -> Value {
        Value::obj(self.0.iter().cloned().zip(values).collect())
    }
}

/// How much transactions see of each other (ISO 9075).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Isolation {
    /// Sees what others have not committed yet, where the database offers that.
    ReadUncommitted,
    /// Sees what others have committed.
    ReadCommitted,
    /// Sees rows that it has read once as they were.
    RepeatableRead,
    /// Sees the database as it was at the first statement.
    Snapshot,
    /// As if one ran after the other.
    Serializable,
}

impl Isolation {
    /// As SQL writes it.
    pub fn sql(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "read uncommitted",
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Snapshot => "snapshot",
            Self::Serializable => "serializable",
        }
    }
}

/// What the work of a session gives.
pub type Doing<'a, T> = LocalFuture<'a, Result<T, SqlError>>;

/// One connection to a database, of one worker. Nobody calls it twice at a time.
///
/// A future of it may be dropped before it is ready, when a time-out has passed or the flow was
/// cancelled. The session must then not be used any more, but for [`Session::recover`].
pub trait Session {
    /// Runs a statement. `arguments` are the values of [`Statement::names`], in that order; each is
    /// bound, never pasted. Rows go to the sink as they come, in order.
    ///
    /// # Errors
    /// What the database says, what is wrong with an argument or with a column that has no form as
    /// JSON, and what the sink says. Unless [`Session::is_broken`] the session is clean again.
    fn run<'a>(
        &'a mut self,
        statement: &'a Statement,
        arguments: &'a [Value],
        sink: &'a mut dyn Sink,
    ) -> Doing<'a, Done>;

    /// Begins a transaction; without an isolation that of the server.
    ///
    /// # Errors
    /// As [`Session::run`].
    fn begin(&mut self, isolation: Option<Isolation>) -> Doing<'_, ()>;

    /// Ends a transaction with success.
    ///
    /// # Errors
    /// As [`Session::run`]; when the connection is lost nobody knows whether it is committed.
    fn commit(&mut self) -> Doing<'_, ()>;

    /// Ends a transaction without effect.
    ///
    /// # Errors
    /// As [`Session::run`].
    fn rollback(&mut self) -> Doing<'_, ()>;

    /// Asks for a sign of life, after it has been idle for long.
    ///
    /// # Errors
    /// When there is none.
    fn ping(&mut self) -> Doing<'_, ()>;

    /// Whether it cannot be used any more: the connection is lost, or in a state that nobody knows.
    fn is_broken(&self) -> bool;

    /// Whether a transaction was begun that the server has ended since, or of which it takes the
    /// rollback only. It is what the server has said after the last statement, never a guess from
    /// the kind of a failure: a statement that is run then would be in no transaction.
    fn is_aborted(&self) -> bool;

    /// Stops on the server whatever runs, after a future of the session was dropped, and rolls an
    /// open transaction back. Whoever calls it sets a limit of time. The session when it is clean
    /// again, `None` when it has been closed.
    fn recover(self: Box<Self>) -> LocalFuture<'static, Option<Box<dyn Session>>>;

    /// Ends the connection in good order.
    fn close(self: Box<Self>) -> LocalFuture<'static, ()>;
}

/// What knows how to reach databases of one dialect.
pub trait Driver: Sync {
    /// Connects. Whoever calls it sets a limit of time ([`crate::sql::Limits::connect_timeout`]),
    /// and drops the future when it is over.
    ///
    /// # Errors
    /// When the server cannot be reached or does not let us in.
    fn connect(&self, database: &Arc<Database>) -> Doing<'static, Box<dyn Session>>;

    /// The text that calls a procedure, made when the flow is loaded, and the arguments in the
    /// order in which [`Session::run`] gets them.
    ///
    /// # Errors
    /// Why it cannot be called so, for whoever writes the flow.
    fn call(&self, procedure: &Procedure) -> Result<(String, Vec<String>), String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_every_column_once() {
        let columns = Columns::new(["b", "a"]).unwrap();
        let row = columns.row([value::integer(1), Value::Null]);
        assert_eq!(value::shown(&row), r#"{"b":1,"a":null}"#);
        assert!(Columns::new(["a", "a"]).is_err());
        assert!(Columns::new([""]).is_err());
    }
}
