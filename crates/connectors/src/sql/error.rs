//! What a database says when a statement fails, and the one place where that becomes a fault.

use std::fmt;
use std::time::Duration;

use message::{Fault, Kind, Origin, Retry};

/// The most characters of a database's message that go to the log.
const MESSAGE_MAX: usize = 500;

/// What kind of failure a database's is. Drivers tell it by SQLSTATE or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// No connection could be made: nothing was sent.
    Unreachable,
    /// The server does not let us in: user, password or database are wrong, or it wants TLS.
    Refused,
    /// The server lets nobody in for now: too many connections, or it is starting or stopping.
    Busy,
    /// The connection broke while a statement was under way.
    Lost,
    /// The server has ended the statement, for it took too long.
    Timeout,
    /// The rows are too many or too large.
    TooLarge,
    /// There is no memory left for the rows.
    NoRoom,
    /// A value cannot be bound to its parameter.
    Argument,
    /// A text has a character that the database has no room for, whoever sent it.
    Character,
    /// A row of this key is there already.
    Unique,
    /// A row that another refers to is not there, or one that another refers to is to go.
    ForeignKey,
    /// A column that must have a value gets none.
    NotNull,
    /// A row breaks a condition of its table.
    Check,
    /// The transaction met another one; it has been rolled back and may be tried again.
    Serialization,
    /// Two transactions waited for each other; this one has been rolled back.
    Deadlock,
    /// The transaction has been rolled back because a statement of it was given up in the middle.
    RolledBack,
    /// Anything else that the database says of the statement: syntax, unknown tables, missing
    /// rights, values out of range.
    Statement,
    /// A result that has no form as JSON: a type or bytes that no text holds.
    Unsupported,
    /// A sink has ended the statement, for a reason that it keeps.
    Stopped,
}

/// What a database, or its driver, says when something fails.
#[derive(Clone, Debug)]
pub struct SqlError {
    /// What kind of failure it is.
    pub class: Class,
    /// SQLSTATE or number, where the database has one.
    pub code: Option<String>,
    /// Words for the log: never a password, never an argument's value of our own accord.
    pub message: String,
    /// Whether certainly nothing was run: the statement was not sent, or has been rolled back.
    pub is_without_effect: bool,
}

impl SqlError {
    /// A failure of this class.
    pub fn new(class: Class, message: impl fmt::Display) -> Self {
        let message = message.to_string();
        let is_without_effect = matches!(
            class,
            Class::Unreachable
                | Class::Refused
                | Class::Busy
                | Class::Serialization
                | Class::Deadlock
                | Class::RolledBack
                | Class::Argument
                | Class::Character
        );
        Self {
            class,
            code: None,
            message: message.chars().take(MESSAGE_MAX).collect(),
            is_without_effect,
        }
    }

    /// The failure that a test means by the name of a type.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let class = match name {
            "unique-violation" => Class::Unique,
            "foreign-key-violation" => Class::ForeignKey,
            "not-null-violation" => Class::NotNull,
            "check-violation" => Class::Check,
            "serialization-failure" => Class::Serialization,
            "deadlock" => Class::Deadlock,
            "rolled-back" => Class::RolledBack,
            "sql-error" => Class::Statement,
            _ => return None,
        };
        Some(Self::new(class, "a test says so"))
    }

    /// The same with the database's own code.
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// The same; certainly nothing was run.
    pub fn without_effect(mut self) -> Self {
        self.is_without_effect = true;
        self
    }

    /// The same, of the whole transaction in which it has happened: that is rolled back.
    pub fn rolled_back(mut self) -> Self {
        self.message = format!("the transaction is rolled back: {}", self.message);
        self.without_effect()
    }

    /// Whether the same statement may succeed when it is run again.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.class,
            Class::Unreachable
                | Class::Busy
                | Class::Lost
                | Class::Timeout
                | Class::NoRoom
                | Class::Serialization
                | Class::Deadlock
                | Class::RolledBack
        )
    }

    /// A result that has no form as JSON.
    pub fn unsupported(message: impl fmt::Display) -> Self {
        Self::new(Class::Unsupported, message)
    }

    /// A value that cannot be bound to the parameter of this name.
    pub fn argument(name: &str, why: impl fmt::Display) -> Self {
        let name = name.escape_debug();
        Self::new(Class::Argument, format_args!("the argument `{name}` {why}"))
    }

    /// A text with a character that the database has no room for, in the argument of this name.
    pub fn character(name: &str, why: impl fmt::Display) -> Self {
        Self {
            class: Class::Character,
            ..Self::argument(name, why)
        }
    }

    /// The fault of a step. `connection` is its name under `use:`.
    pub fn fault(self, connection: &str) -> Fault {
        let code = self.code.as_deref().map(|it| format!(" {it}"));
        let cause = format!(
            "connection `{connection}`:{} {}",
            code.unwrap_or_default(),
            self.message
        );
        let retry = match (self.is_transient(), self.is_without_effect) {
            (false, _) => Retry::No,
            (true, true) => Retry::Yes,
            (true, false) => Retry::IfRepeatable,
        };
        self.kind().with_cause(cause).with_retry(retry)
    }

    fn kind(&self) -> Fault {
        let connection = |detail| Fault::new(Kind::Connection, Origin::Upstream, detail);
        let raised = |name, status, detail: &str| {
            let mut fault = Fault::raised(name, None, detail.to_owned()).with_status(status);
            fault.origin = Origin::Upstream;
            fault
        };
        match self.class {
            Class::Unreachable => connection("the database cannot be reached"),
            Class::Refused => connection("the database does not let us in"),
            Class::Lost => connection("the connection to the database was lost"),
            Class::Unsupported => connection("the database's answer cannot be read"),
            Class::TooLarge => connection("the database's answer is too large"),
            Class::Busy => {
                let detail = "the database has no connection free";
                Fault::new(Kind::Unavailable, Origin::Upstream, detail)
                    .with_retry_after(Duration::from_secs(1))
            }
            Class::NoRoom => {
                let detail = "there is no memory left for the rows";
                Fault::new(Kind::Unavailable, Origin::Engine, detail)
                    .with_status(503)
                    .with_retry_after(Duration::from_secs(1))
            }
            Class::Timeout => {
                let detail = "the database took too long";
                Fault::new(Kind::Timeout, Origin::Upstream, detail)
            }
            // It names the argument, and says of its value why it does not fit.
            Class::Argument => Fault::invalid(self.message.clone()),
            Class::Character => Fault::invalid("a text has a character that cannot be stored"),
            Class::Unique => raised("unique-violation", 409, "such a row is there already"),
            Class::ForeignKey => raised("foreign-key-violation", 409, "a row it needs is missing"),
            Class::NotNull => raised("not-null-violation", 422, "a value is missing"),
            Class::Check => raised("check-violation", 422, "a value is not allowed"),
            Class::Serialization => raised("serialization-failure", 503, "others were quicker"),
            Class::Deadlock => raised("deadlock", 503, "others were quicker"),
            Class::RolledBack => {
                let detail = "the transaction is rolled back";
                raised("rolled-back", 503, detail)
            }
            Class::Statement => raised("sql-error", 500, "the database refused the statement"),
            Class::Stopped => {
                let detail = "the statement was ended";
                Fault::new(Kind::Internal, Origin::Engine, detail)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(class: Class) -> (String, u16, Retry) {
        let fault = SqlError::new(class, "why").fault("db");
        assert_eq!(fault.cause.as_deref(), Some("connection `db`: why"));
        (fault.name().to_owned(), fault.status, fault.retry)
    }

    #[test]
    fn failures_have_their_names_and_retries() {
        for (class, name, status, retry) in [
            (Class::Unreachable, "connection", 502, Retry::Yes),
            (Class::Deadlock, "deadlock", 503, Retry::Yes),
            (Class::RolledBack, "rolled-back", 503, Retry::Yes),
            (Class::Unique, "unique-violation", 409, Retry::No),
            (Class::Lost, "connection", 502, Retry::IfRepeatable),
            (Class::Timeout, "timeout", 504, Retry::IfRepeatable),
            (Class::NoRoom, "unavailable", 503, Retry::IfRepeatable),
            (Class::Character, "invalid", 400, Retry::No),
        ] {
            assert_eq!(fault(class), (name.to_owned(), status, retry));
        }
        let found = SqlError::new(Class::Busy, "x").with_code("53300");
        let found = found.fault("db");
        assert_eq!(found.cause.as_deref(), Some("connection `db`: 53300 x"));
        assert!(found.retry_after.is_some());
        let lost = SqlError::new(Class::Lost, "why").rolled_back().fault("db");
        assert_eq!(lost.retry, Retry::Yes);
    }
}
