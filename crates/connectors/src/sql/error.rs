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

    /// The fault of a step. `connection` is its name under `use:`; `repeats` is whether the
    /// statement changes nothing.
    pub fn fault(self, connection: &str, repeats: bool) -> Fault {
        let code = self.code.as_deref().map(|it| format!(" {it}"));
        let cause = format!(
            "connection `{connection}`:{} {}",
            code.unwrap_or_default(),
            self.message
        );
        let fault = self.kind().with_cause(cause);
        let may_help = matches!(
            self.class,
            Class::Unreachable
                | Class::Busy
                | Class::Lost
                | Class::Timeout
                | Class::Serialization
                | Class::Deadlock
        );
        let retry = match (may_help, self.is_without_effect, repeats) {
            (false, ..) | (true, false, false) => Retry::No,
            (true, true, _) => Retry::Yes,
            (true, false, true) => Retry::IfRepeatable,
        };
        fault.with_retry(retry)
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
            Class::Timeout => {
                let detail = "the database took too long";
                Fault::new(Kind::Timeout, Origin::Upstream, detail)
            }
            Class::Argument => Fault::expression(""),
            Class::Character => Fault::invalid("a text has a character that cannot be stored"),
            Class::Unique => raised("unique-violation", 409, "such a row is there already"),
            Class::ForeignKey => raised("foreign-key-violation", 409, "a row it needs is missing"),
            Class::NotNull => raised("not-null-violation", 422, "a value is missing"),
            Class::Check => raised("check-violation", 422, "a value is not allowed"),
            Class::Serialization => raised("serialization-failure", 503, "others were quicker"),
            Class::Deadlock => raised("deadlock", 503, "others were quicker"),
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

    fn fault(class: Class, repeats: bool) -> (String, u16, Retry) {
        let fault = SqlError::new(class, "why").fault("db", repeats);
        assert_eq!(fault.cause.as_deref(), Some("connection `db`: why"));
        (fault.name().to_owned(), fault.status, fault.retry)
    }

    #[test]
    fn failures_have_their_names_and_retries() {
        let is = |name: &str, status, retry| (name.to_owned(), status, retry);
        for repeats in [true, false] {
            let found = fault(Class::Unreachable, repeats);
            assert_eq!(found, is("connection", 502, Retry::Yes));
            let found = fault(Class::Deadlock, repeats);
            assert_eq!(found, is("deadlock", 503, Retry::Yes));
            let found = fault(Class::Unique, repeats);
            assert_eq!(found, is("unique-violation", 409, Retry::No));
        }
        assert_eq!(fault(Class::Lost, false), is("connection", 502, Retry::No));
        let found = fault(Class::Character, true);
        assert_eq!(found, is("invalid", 400, Retry::No));
        let repeatable = is("timeout", 504, Retry::IfRepeatable);
        assert_eq!(fault(Class::Timeout, true), repeatable);
        let found = SqlError::new(Class::Busy, "x").with_code("53300");
        let found = found.fault("db", false);
        assert_eq!(found.cause.as_deref(), Some("connection `db`: 53300 x"));
        assert!(found.retry_after.is_some());
    }
}
