//! The driver of MySQL and MariaDB, on `mysql_async`: one connection a session, its pool unused.

mod arguments;
mod errors;
mod procedure;
mod session;
mod values;

use std::sync::Arc;

use mysql_async::{ClientIdentity, Conn, Opts, OptsBuilder, SslOpts};

use crate::sql::error::{Class, SqlError};
use crate::sql::session::{Doing, Driver, Procedure, Session};
use crate::sql::{Database, Place};
use crate::tls::Tls;
use session::MySqlSession;

/// The largest row that is read, and the largest statement with its arguments that is sent: a
/// packet of the protocol. The limits of a step are lower.
const PACKET_MAX: usize = 64 * 1024 * 1024;

/// How many statements a connection keeps prepared.
const PREPARED_MAX: usize = 128;

/// The driver.
pub struct MySql;

impl Driver for MySql {
    fn connect(&self, database: &Arc<Database>) -> Doing<'static, Box<dyn Session>> {
        let options = options(database);
        let database = Arc::clone(database);
        Box::pin(async move {
            let options = options?;
            let connected = Conn::new(options.clone()).await;
            let mut connection = connected.map_err(errors::of_connecting)?;
            let server = session::server(&mut connection).await;
            let session = MySqlSession::new(connection, options, database, server);
            Ok(Box::new(session) as _)
        })
    }

    /// `call name`; the places of the parameters are made of what the server says of them.
    fn call(&self, procedure: &Procedure) -> Result<(String, Vec<String>), String> {
        if procedure.name.split('.').count() > 2 {
            return Err("a procedure of MySQL is `name` or `database.name`".to_owned());
        }
        let text = procedure::call(&procedure.name);
        Ok((text, procedure.arguments.clone()))
    }
}

/// What is said when connecting. Clear-text passwords are never sent, whatever the server asks
/// for; neither are files (`LOAD DATA LOCAL`), for nobody handles such a request.
fn options(database: &Database) -> Result<Opts, SqlError> {
    let Place::Server(server) = &database.place else {
        return Err(SqlError::new(
            Class::Unreachable,
            "the database is on no server",
        ));
    };
    let tls = database.tls.as_ref().map(ssl_options).transpose()?;
    let options = OptsBuilder::default()
        .ip_or_hostname(&server.host)
        .tcp_port(server.port)
        .user(server.user.clone())
        .pass(server.password.clone())
        .db_name(database.name.clone())
        .prefer_socket(false)
        .enable_cleartext_plugin(false)
        .secure_auth(true)
        .tcp_nodelay(true)
        .tcp_keepalive(Some(KEEPALIVE))
        .stmt_cache_size(PREPARED_MAX)
        .max_allowed_packet(Some(PACKET_MAX))
        .wait_timeout(Some(WAIT))
        // As other databases count: the rows that an `update` finds, also when they are so already.
        .client_found_rows(true)
        .connect_attribute("program_name", "intertie")
        // A `timestamp` is a moment: it comes and goes in UTC.
        .init(vec!["set time_zone = '+00:00'"])
        .ssl_opts(tls);
    Ok(options.into())
}

/// When the system asks a silent server for a sign of life.
const KEEPALIVE: std::time::Duration = std::time::Duration::from_secs(30);

/// Seconds after which the client would think a connection idle; the pool decides that.
const WAIT: usize = 28_800;

fn ssl_options(tls: &Tls) -> Result<SslOpts, SqlError> {
    let roots = tls.authorities().map_err(|error| {
        let message = format!("{}: {}", error.message, error.hint);
        SqlError::new(Class::Refused, message)
    })?;
    let identity = tls
        .identity
        .as_ref()
        .map(|(chain, key)| ClientIdentity::new(chain.to_vec().into(), key.to_vec().into()));
    Ok(SslOpts::default()
        .with_disable_built_in_roots(true)
        .with_root_certs(roots.into_iter().map(Into::into).collect())
        .with_client_identity(identity)
        .with_danger_tls_hostname_override(tls.server_name.clone()))
}
