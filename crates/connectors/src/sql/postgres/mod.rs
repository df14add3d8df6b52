//! The driver of PostgreSQL, on `tokio-postgres`: its connection runs as a task of the worker.

mod bind;
mod cancel;
mod failure;
mod prepared;
mod read;
mod session;
mod time;

use std::sync::Arc;

use component::handler::LocalFuture;
use net::tls::Client as TlsClient;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{CancelToken, Client, Config, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::sql::error::{Class, SqlError};
use crate::sql::postgres::session::PgSession;
use crate::sql::session::{Doing, Driver, Procedure, Session};
use crate::sql::{Database, Place};

/// The driver.
pub struct Postgres;

impl Driver for Postgres {
    fn connect(&self, database: &Arc<Database>) -> Doing<'static, Box<dyn Session>> {
        let database = Arc::clone(database);
        Box::pin(async move {
            let connector = Connector::new(&database)?;
            let client = connector.connect(&database).await?;
            let session = PgSession::start(client, connector, database).await?;
            Ok(Box::new(session) as Box<dyn Session>)
        })
    }

    /// Arguments by name; what only comes out is given as null (PostgreSQL 14 and later).
    fn call(&self, procedure: &Procedure) -> Result<(String, Vec<String>), String> {
        let names = procedure.arguments.clone();
        let mut arguments: Vec<String> = Vec::new();
        for (at, name) in names.iter().enumerate() {
            arguments.push(format!("{name} => ${}", at + 1));
        }
        for out in &procedure.outs {
            if !names.contains(&out.name) {
                arguments.push(format!("{} => null::{}", out.name, out.sql_type));
            }
        }
        let text = format!("call {}({})", procedure.name, arguments.join(", "));
        Ok((text, names))
    }
}

/// How connections to a server are made, those that stop a statement too.
#[derive(Clone)]
struct Connector {
    host: String,
    port: u16,
    tls: Option<Secure>,
}

/// TLS under the name that the certificate must have, whatever the host is called.
#[derive(Clone)]
struct Secure {
    connect: MakeRustlsConnect,
    name: String,
}

impl<S> MakeTlsConnect<S> for Secure
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = <MakeRustlsConnect as MakeTlsConnect<S>>::Stream;
    type TlsConnect = <MakeRustlsConnect as MakeTlsConnect<S>>::TlsConnect;
    type Error = <MakeRustlsConnect as MakeTlsConnect<S>>::Error;

    fn make_tls_connect(&mut self, _host: &str) -> Result<Self::TlsConnect, Self::Error> {
        MakeTlsConnect::<S>::make_tls_connect(&mut self.connect, &self.name)
    }
}

impl Connector {
    fn new(database: &Database) -> Result<Self, SqlError> {
        let Place::Server(server) = &database.place else {
            let message = "the database is on no server";
            return Err(SqlError::new(Class::Unreachable, message));
        };
        let made = |tls| Self {
            host: server.host.clone(),
            port: server.port,
            tls,
        };
        let Some(tls) = &database.tls else {
            return Ok(made(None));
        };
        let client = tls.client(&server.host);
        let client: TlsClient = client.map_err(|error| {
            let message = format!("TLS: {}; {}", error.message, error.hint);
            SqlError::new(Class::Refused, message)
        })?;
        let name = tls.server_name.as_ref().unwrap_or(&server.host).clone();
        let connect = MakeRustlsConnect::new((*client.config()).clone());
        Ok(made(Some(Secure { connect, name })))
    }

    async fn connect(&self, database: &Database) -> Result<Client, SqlError> {
        let mut config = config(database);
        match &self.tls {
            None => open(&config, NoTls).await,
            Some(secure) => {
                config.ssl_mode(SslMode::Require);
                open(&config, secure.clone()).await
            }
        }
    }

    /// Asks the server to stop what a connection does, and waits until it has told its process. It
    /// may come too late.
    fn cancel(&self, token: CancelToken) -> LocalFuture<'static, ()> {
        let connector = self.clone();
        Box::pin(async move {
            if let Err(error) = cancel::cancel(connector, token).await {
                tracing::debug!(target: "sql", "a statement cannot be stopped: {error}");
            }
        })
    }
}

fn config(database: &Database) -> Config {
    let mut config = Config::new();
    config
        .application_name("intertie")
        .ssl_mode(SslMode::Disable);
    if let Place::Server(server) = &database.place {
        let user = server.user.as_deref().unwrap_or("postgres");
        config.host(&server.host).port(server.port).user(user);
        config.dbname(database.name.as_deref().unwrap_or(user));
        if let Some(password) = &server.password {
            config.password(password);
        }
    }
    config
}

async fn open<T>(config: &Config, tls: T) -> Result<Client, SqlError>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: 'static,
{
    let connected = config.connect(tls).await;
    let (client, connection) = connected.map_err(|error| failure::of_connecting(&error))?;
    tokio::task::spawn_local(async move {
        // Whoever waits for an answer is told of the failure.
        if let Err(error) = connection.await {
            tracing::debug!(target: "sql", "a connection to PostgreSQL ended: {error}");
        }
    });
    Ok(client)
}
