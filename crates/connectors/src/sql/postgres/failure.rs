//! What PostgreSQL's failures mean, by SQLSTATE (its manual, appendix A).

use std::error::Error as _;
use std::io;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity};

use crate::sql::error::{Class, SqlError};

/// A failure to connect: nothing has been asked of the database yet.
pub(super) fn of_connecting(error: &Error) -> SqlError {
    let class = match error.as_db_error() {
        Some(found) if is_busy(found.code().code()) => Class::Busy,
        Some(_) => Class::Refused,
        None => match error.source().and_then(|it| it.downcast_ref::<io::Error>()) {
            // TLS speaks of bad data; everything else is the network's.
            Some(error) if error.kind() == io::ErrorKind::InvalidData => Class::Refused,
            Some(_) => Class::Unreachable,
            None => Class::Refused,
        },
    };
    describe(class, error).without_effect()
}

/// A failure of a statement with these arguments, in the order of its placeholders.
pub(super) fn of_statement(error: &Error, names: &[String]) -> SqlError {
    let Some(found) = error.as_db_error() else {
        return describe(Class::Lost, error);
    };
    let code = found.code().code();
    if let Some(name) = argument(found, names) {
        return SqlError::argument(name, found.message()).with_code(code);
    }
    // A statement that fails has no effect: what it did is rolled back.
    match class(code) {
        Class::Lost => describe(Class::Lost, error),
        class => describe(class, error).without_effect(),
    }
}

/// Whether the server ends the connection with it.
pub(super) fn is_fatal(error: &Error) -> bool {
    let severity = error.as_db_error().and_then(DbError::parsed_severity);
    match error.as_db_error() {
        Some(_) => matches!(severity, Some(Severity::Fatal | Severity::Panic)),
        None => true,
    }
}

/// Whether a prepared statement has to be prepared again: a table has changed, or the server has
/// forgotten it.
pub(super) fn is_stale(error: &Error) -> bool {
    let Some(found) = error.as_db_error() else {
        return false;
    };
    match found.code().code() {
        "26000" => true,
        "0A000" => found.message().contains("cached plan"),
        "XX000" => found.message().contains("cache lookup failed"),
        _ => false,
    }
}

/// The argument that the server could not read: it says the number of the parameter.
fn argument<'a>(found: &DbError, names: &'a [String]) -> Option<&'a str> {
    let place = found.where_()?;
    let (_, number) = place.split_once("parameter $")?;
    let end = number.find(|it: char| !it.is_ascii_digit());
    let number: usize = number.get(..end.unwrap_or(number.len()))?.parse().ok()?;
    names.get(number.checked_sub(1)?).map(String::as_str)
}

fn is_busy(code: &str) -> bool {
    matches!(code, "57P03" | "57P01" | "57P02") || code.starts_with("53")
}

fn class(code: &str) -> Class {
    match code {
        "23505" | "23P01" => Class::Unique,
        "23503" | "23001" => Class::ForeignKey,
        "23502" => Class::NotNull,
        "23514" | "23000" => Class::Check,
        "40001" => Class::Serialization,
        "40P01" => Class::Deadlock,
        "57014" => Class::Timeout,
        "55P03" => Class::Busy,
        "57P01" | "57P02" | "57P05" | "25P03" => Class::Lost,
        code if code.starts_with("08") => Class::Lost,
        code if code.starts_with("53") => Class::Busy,
        _ => Class::Statement,
    }
}

fn describe(class: Class, error: &Error) -> SqlError {
    let Some(found) = error.as_db_error() else {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(inner) = source {
            text = format!("{text}: {inner}");
            source = inner.source();
        }
        return SqlError::new(class, text);
    };
    let constraint = found.constraint().map(|it| format!(" (constraint {it})"));
    let message = format!("{}{}", found.message(), constraint.unwrap_or_default());
    SqlError::new(class, message).with_code(found.code().code())
}
