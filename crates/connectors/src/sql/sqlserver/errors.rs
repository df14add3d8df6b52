//! What kind of failure a number of SQL Server is (Database Engine events and errors).

use tiberius::error::{Error, IoErrorKind, TokenError};

use crate::sql::error::{Class, SqlError};

/// Errors of this class and above end the connection.
const FATAL: u8 = 20;

/// Why no connection came about.
pub fn of_connecting(error: Error) -> SqlError {
    match error {
        Error::Server(error) => {
            let class = match error.code() {
                // Too many connections or requests; starting, stopping, or not there for now.
                17142
                | 17148
                | 17187..=17191
                | 17197
                | 17809
                | 17830
                | 10928
                | 10929
                | 18461
                | 40197
                | 40501
                | 40613 => Class::Busy,
                _ => Class::Refused,
            };
            of_server(&error, class)
        }
        Error::Tls(message) => SqlError::new(Class::Refused, without_advice(&message)),
        Error::Io {
            kind: IoErrorKind::InvalidData,
            message,
        } => SqlError::new(Class::Refused, message),
        Error::Io { message, .. } => SqlError::new(Class::Unreachable, message),
        Error::Protocol(message) => SqlError::new(Class::Refused, advice(&message)),
        Error::Routing { .. } => SqlError::new(
            Class::Unreachable,
            "the server sends us on for a second time",
        ),
        error => SqlError::new(Class::Refused, error),
    }
}

/// The client's words of what its own functions could do instead are of no use here.
fn without_advice(message: &str) -> &str {
    let end = message.find(" To connect anyway");
    end.and_then(|end| message.get(..end)).unwrap_or(message)
}

fn advice(message: &str) -> String {
    match message.contains("encryption level") {
        true => {
            "the server does not speak TLS: `encrypt: off` would send everything, the password \
                 too, in clear text"
                .to_owned()
        }
        false => message.to_owned(),
    }
}

/// Why a statement failed, and whether the connection is of no use any more.
pub fn of_running(error: Error) -> (SqlError, bool) {
    match error {
        Error::Server(error) => {
            let class = match (class(error.code(), error.message()), error.class() >= FATAL) {
                (Class::Statement, true) => Class::Lost,
                (class, _) => class,
            };
            (
                of_server(&error, class),
                error.class() >= FATAL || class == Class::Lost,
            )
        }
        Error::Io { message, .. } => (SqlError::new(Class::Lost, message), true),
        error => (SqlError::new(Class::Lost, error), true),
    }
}

fn of_server(error: &TokenError, class: Class) -> SqlError {
    let at = match error.procedure() {
        "" => String::new(),
        procedure => format!(" ({procedure}, line {})", error.line()),
    };
    let message = format!("{}{at}", error.message());
    SqlError::new(class, message).with_code(error.code().to_string())
}

fn class(code: u32, message: &str) -> Class {
    match code {
        2601 | 2627 => Class::Unique,
        547 if is_of_check(message) => Class::Check,
        547 => Class::ForeignKey,
        515 => Class::NotNull,
        1205 => Class::Deadlock,
        3960 | 3961 | 41302 | 41305 | 41325 | 41839 => Class::Serialization,
        1222 | 3617 => Class::Timeout,
        596 | 6005 | 10928 | 10929 | 40143 | 40197 | 40501 | 40540 | 40613 => Class::Lost,
        _ => Class::Statement,
    }
}

/// Number 547 is of references and of conditions. The message says which, before it quotes names;
/// the word is the same in every language of the server.
fn is_of_check(message: &str) -> bool {
    let words = message.split('"').next();
    words.is_some_and(|words| words.contains("CHECK"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_classes() {
        let cases = [
            (2627, Class::Unique),
            (2601, Class::Unique),
            (515, Class::NotNull),
            (1205, Class::Deadlock),
            (3960, Class::Serialization),
            (1222, Class::Timeout),
            (208, Class::Statement),
            (50_000, Class::Statement),
        ];
        for (code, expected) in cases {
            assert_eq!(class(code, ""), expected, "{code}");
        }
        let check = "The INSERT statement conflicted with the CHECK constraint \"FK_a\".";
        let key = "The INSERT statement conflicted with the FOREIGN KEY constraint \"CHECK\".";
        let used = "The DELETE statement conflicted with the REFERENCE constraint \"CHECK\".";
        assert_eq!(class(547, check), Class::Check);
        assert_eq!(class(547, key), Class::ForeignKey);
        assert_eq!(class(547, used), Class::ForeignKey);
    }
}
