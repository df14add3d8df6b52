//! What SQLite's failures mean, by its result codes (<https://www.sqlite.org/rescode.html>).

use rusqlite::{Error, ErrorCode, ffi};

use crate::sql::error::{Class, SqlError};

/// A failure to open the file.
pub(super) fn of_opening(error: &Error) -> SqlError {
    let class = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Class::Busy,
        Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure) => Class::Unreachable,
        _ => Class::Refused,
    };
    describe(class, error)
}

/// A failure of a statement; it has no effect then.
pub(super) fn of_statement(error: &Error) -> SqlError {
    let extended = error.sqlite_error().map_or(0, |it| it.extended_code);
    let class = match extended {
        ffi::SQLITE_CONSTRAINT_UNIQUE
        | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
        | ffi::SQLITE_CONSTRAINT_ROWID => Class::Unique,
        ffi::SQLITE_CONSTRAINT_FOREIGNKEY => Class::ForeignKey,
        ffi::SQLITE_CONSTRAINT_NOTNULL => Class::NotNull,
        ffi::SQLITE_CONSTRAINT_CHECK | ffi::SQLITE_CONSTRAINT_TRIGGER => Class::Check,
        ffi::SQLITE_BUSY_SNAPSHOT => Class::Serialization,
        _ => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Class::Busy,
            Some(ErrorCode::OperationInterrupted) => Class::Timeout,
            Some(ErrorCode::TooBig) => Class::TooLarge,
            _ => Class::Statement,
        },
    };
    describe(class, error)
}

fn describe(class: Class, error: &Error) -> SqlError {
    // The name of the file stays out of it.
    let message = match error {
        Error::SqliteFailure(code, None) => code.to_string(),
        Error::SqliteFailure(code, Some(_)) if class == Class::Unreachable => code.to_string(),
        Error::SqliteFailure(_, Some(message)) => message.clone(),
        Error::InvalidPath(_) => "the file's name is none".to_owned(),
        error => error.to_string(),
    };
    let made = SqlError::new(class, message).without_effect();
    match error.sqlite_error() {
        Some(code) => made.with_code(code.extended_code.to_string()),
        None => made,
    }
}
