//! Connections to brokers, databases and SOAP services, and the steps that use them: one folder an
//! outside system.
//!
//! A driver that brings other crates along is a cargo feature. Without it its flows are checked and
//! tested all the same, and `intertie run` refuses them ([`ConnectionDefinition::missing`]). Adding
//! a system is a folder and its lines in [`ALL`], [`SOURCES`] and [`CONNECTIONS`].

mod ask;
mod bounds;
pub mod codes;
mod named;
pub mod rabbitmq;
pub mod redis;
pub mod smtp;
pub mod soap;
pub mod sql;
#[cfg(test)]
mod testing;
mod tls;
mod url;

use component::definition::{ConnectionDefinition, StepDefinition};
use component::endpoint::EndpointDefinition;
use component::source::SourceDefinition;

pub use tls::Tls;
pub use url::Server;

/// Every step, in the order of the reference pages.
pub const ALL: &[StepDefinition] = &[
    rabbitmq::publish::DEFINITION,
    rabbitmq::request::DEFINITION,
    sql::step::DEFINITION,
    sql::transaction::DEFINITION,
    soap::step::DEFINITION,
    redis::step::DEFINITION,
    smtp::mail::DEFINITION,
];

/// Every kind of source.
pub const SOURCES: &[SourceDefinition] = &[
    rabbitmq::source::DEFINITION,
    sql::source::DEFINITION,
    redis::source::DEFINITION,
];

/// Every kind of trigger with a protocol of its own within HTTP.
pub const ENDPOINTS: &[EndpointDefinition] = &[soap::endpoint::DEFINITION];

/// Every kind of connection.
pub const CONNECTIONS: &[ConnectionDefinition] = &[
    rabbitmq::connection::DEFINITION,
    sql::SQLSERVER,
    sql::server::POSTGRES,
    sql::server::MYSQL,
    sql::sqlite::DEFINITION,
    soap::connection::DEFINITION,
    redis::connection::DEFINITION,
    smtp::connection::DEFINITION,
];
