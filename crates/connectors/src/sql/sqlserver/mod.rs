//! The driver of Microsoft SQL Server, on `tiberius`: TDS 7.4 (MS-TDS).

mod arguments;
mod errors;
mod procedure;
mod session;
mod stream;
mod values;

use std::sync::Arc;

use tiberius::{AuthMethod, Client, Config, EncryptionLevel, error::Error};
use tokio::net::TcpStream;
use tokio_util::compat::TokioAsyncWriteCompatExt as _;

use crate::sql::error::{Class, SqlError};
use crate::sql::session::{Doing, Driver, Procedure, Session};
use crate::sql::{Database, Place};
use crate::url::Server;
use session::SqlServerSession;
use stream::Metered;

/// The driver.
pub struct SqlServer;

impl Driver for SqlServer {
    fn connect(&self, database: &Arc<Database>) -> Doing<'static, Box<dyn Session>> {
        let database = Arc::clone(database);
        Box::pin(async move {
            let Place::Server(server) = &database.place else {
                let message = "the database is on no server";
                return Err(SqlError::new(Class::Unreachable, message));
            };
            if server.user.is_none() {
                let message = "the URL has no user: a Windows login cannot be used";
                return Err(SqlError::new(Class::Refused, message));
            }
            let found = open(&database, server, (&server.host, server.port)).await;
            let session = match found {
                // A cluster or Azure sends us to another of its servers; once.
                Err(Error::Routing { host, port }) => open(&database, server, (&host, port)).await,
                found => found,
            };
            let session = session.map_err(errors::of_connecting)?;
            Ok(Box::new(session) as _)
        })
    }

    fn call(&self, procedure: &Procedure) -> Result<(String, Vec<String>), String> {
        procedure::call(procedure)
    }
}

async fn open(
    database: &Arc<Database>,
    server: &Server,
    (host, port): (&str, u16),
) -> Result<SqlServerSession, Error> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let (stream, meter) = Metered::new(stream);
    let client = Client::connect(config(database, server, host), stream.compat_write()).await?;
    Ok(SqlServerSession::new(client, meter, Arc::clone(database)))
}

/// What is said when connecting. All waits are limited by whoever waits.
fn config(database: &Database, server: &Server, host: &str) -> Config {
    let mut config = Config::new();
    config.host(host);
    config.port(server.port);
    config.application_name("intertie");
    config.handshake_timeout(None);
    config.command_timeout(None);
    if let Some(name) = &database.name {
        config.database(name);
    }
    let user = server.user.clone().unwrap_or_default();
    let password = server.password.clone().unwrap_or_default();
    config.authentication(AuthMethod::sql_server(user, password));
    let Some(tls) = &database.tls else {
        config.encryption(EncryptionLevel::NotSupported);
        return config;
    };
    config.encryption(EncryptionLevel::Required);
    if let Some(ca) = &tls.ca {
        config.trust_cert_ca_bundle(ca.to_vec());
    }
    if let Some(name) = &tls.server_name {
        config.hostname_in_certificate(name);
    }
    config
}
