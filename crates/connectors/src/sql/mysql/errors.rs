//! What kind of failure a number of MySQL or MariaDB is.

use std::io::ErrorKind;

use mysql_async::{DriverError, Error, IoError, ServerError};

use crate::sql::error::{Class, SqlError};

/// Why no connection came about.
pub fn of_connecting(error: Error) -> SqlError {
    match error {
        Error::Server(error) => {
            let class = match error.code {
                // Too many connections, of all or of this user; too many failures; stopping.
                1040 | 1129 | 1203 | 1226 | 1053 => Class::Busy,
                _ => Class::Refused,
            };
            of_server(&error, class)
        }
        // What TLS says of the server's certificate comes so.
        Error::Io(IoError::Io(error)) if error.kind() == ErrorKind::InvalidData => {
            SqlError::new(Class::Refused, error)
        }
        Error::Io(IoError::Io(error)) => SqlError::new(Class::Unreachable, error),
        Error::Io(IoError::Tls(error)) => SqlError::new(Class::Refused, error),
        Error::Driver(error) => SqlError::new(Class::Refused, advice(&error)),
        error => SqlError::new(Class::Unreachable, error),
    }
}

fn advice(error: &DriverError) -> String {
    match error {
        DriverError::NoClientSslFlagFromServer => {
            "the server does not speak TLS: `tls` asks for it".to_owned()
        }
        DriverError::CleartextPluginDisabled => {
            "the server wants the password in clear text, which is never sent".to_owned()
        }
        DriverError::UnknownAuthPlugin { name } => {
            let name = name.escape_debug();
            format!("this build does not know the server's way of login, `{name}`")
        }
        error => error.to_string(),
    }
}

/// Why a statement failed, and whether the connection is of no use any more.
pub fn of_running(error: Error) -> (SqlError, bool) {
    match error {
        Error::Server(error) => {
            let class = class(error.code);
            let mut found = of_server(&error, class);
            // Of a wait for a lock the statement alone is rolled back; alone it has no effect.
            found.is_without_effect |= error.code == 1205;
            (found, class == Class::Lost)
        }
        Error::Driver(DriverError::StmtParamsMismatch { required, supplied }) => {
            let message = format!("the statement has {required} parameters, not {supplied}");
            (SqlError::new(Class::Statement, message), true)
        }
        Error::Driver(DriverError::PacketTooLarge) => {
            let message = "a packet of more than 64 MiB";
            (SqlError::new(Class::TooLarge, message), true)
        }
        Error::Driver(DriverError::LocalInfile(_)) => {
            let message = "the server asked for a file of ours, which it never gets";
            (SqlError::new(Class::Statement, message), true)
        }
        error => (lost(&error), true),
    }
}

/// What the client says of the connection, without its own words around it.
fn lost(error: &Error) -> SqlError {
    match error {
        Error::Io(IoError::Io(error)) => SqlError::new(Class::Lost, error),
        error => SqlError::new(Class::Lost, error),
    }
}

fn of_server(error: &ServerError, class: Class) -> SqlError {
    let code = format!("{} ({})", error.code, error.state);
    SqlError::new(class, &error.message).with_code(code)
}

/// The numbers that both servers have below 2000, and those that one has above (MySQL Server Error
/// Message Reference; MariaDB Error Code Reference).
fn class(code: u16) -> Class {
    match code {
        1022 | 1062 | 1169 | 1586 => Class::Unique,
        1216 | 1217 | 1451 | 1452 | 1557 | 1761 | 1762 => Class::ForeignKey,
        1048 | 1263 | 1364 => Class::NotNull,
        3819 | 4025 => Class::Check,
        1213 | 1614 => Class::Deadlock,
        1020 | 3101 => Class::Serialization,
        1205 | 1317 | 1969 | 3024 | 3572 => Class::Timeout,
        1053 | 1152 | 1158..=1161 | 1184 | 1927 | 2006 | 2013 | 4031 => Class::Lost,
        _ => Class::Statement,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: u16) -> Error {
        Error::Server(ServerError {
            code,
            message: "why".to_owned(),
            state: "HY000".to_owned(),
        })
    }

    #[test]
    fn numbers_have_their_classes() {
        let cases = [
            (1062, Class::Unique),
            (1452, Class::ForeignKey),
            (1048, Class::NotNull),
            (4025, Class::Check),
            (1213, Class::Deadlock),
            (1205, Class::Timeout),
            (1317, Class::Timeout),
            (1064, Class::Statement),
            (1927, Class::Lost),
        ];
        for (code, class) in cases {
            let (error, is_broken) = of_running(server(code));
            assert_eq!(error.class, class, "{code}");
            assert_eq!(
                error.code.as_deref(),
                Some(format!("{code} (HY000)").as_str())
            );
            assert_eq!(is_broken, class == Class::Lost, "{code}");
        }
        assert!(of_running(server(1205)).0.is_without_effect);
        assert_eq!(of_connecting(server(1045)).class, Class::Refused);
        assert_eq!(of_connecting(server(1040)).class, Class::Busy);
    }
}
