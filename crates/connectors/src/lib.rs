//! Connections to brokers, databases and SOAP services, and the steps that use them: one folder an
//! outside system.
//!
//! A connection without a driver says so in [`ConnectionDefinition::missing`]: `intertie run`
//! refuses flows that use one, and tests answer for the other system, as they do for all. Adding a
//! system is a folder and its lines in [`ALL`], [`SOURCES`] and [`CONNECTIONS`].

mod ask;
mod bounds;
pub mod codes;
mod named;
pub mod rabbitmq;
pub mod soap;
pub mod sql;
#[cfg(test)]
mod testing;
mod tls;
mod url;

use component::definition::{ConnectionDefinition, StepDefinition};
use component::source::SourceDefinition;

pub use url::Server;

/// Every step, in the order of the reference pages.
pub const ALL: &[StepDefinition] = &[
    rabbitmq::publish::DEFINITION,
    rabbitmq::request::DEFINITION,
    sql::step::DEFINITION,
    soap::step::DEFINITION,
];

/// Every kind of source.
pub const SOURCES: &[SourceDefinition] = &[rabbitmq::source::DEFINITION];

/// Every kind of connection.
pub const CONNECTIONS: &[ConnectionDefinition] = &[
    rabbitmq::connection::DEFINITION,
    sql::server::SQLSERVER,
    sql::server::POSTGRES,
    sql::server::MYSQL,
    sql::sqlite::DEFINITION,
    soap::connection::DEFINITION,
];
