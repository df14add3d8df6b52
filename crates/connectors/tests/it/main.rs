//! Connectors against the real systems, which the tests start themselves.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod sql_mysql;
mod sql_session;
mod sql_sqlite;
mod sql_sqlserver;
