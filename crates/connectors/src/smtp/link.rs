//! The connections of one worker to a mail server: as many as its share, kept for a while.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use component::handler::{LocalFuture, Services, within};
use component::resources::Resource;
use lettre::address::Envelope;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::AsyncSmtpConnection;
use lettre::transport::smtp::extension::ClientId;
use message::{Fault, Kind, Origin, Retry};
use net::Wire;
use net::tls::Client;
use tokio::sync::Semaphore;

use super::connection::Smtp;
use super::failure;
use super::starttls::{self, Stream};

/// How long a connection is kept that nobody uses. Servers hang up after some minutes (RFC 5321,
/// section 4.5.3.2.7).
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Hands a mail over.
///
/// # Errors
/// `connection`, `timeout`, `unavailable`, `nack`, and `invalid` for a mail that this server cannot
/// take.
pub(super) async fn send(
    server: &Arc<Smtp>,
    services: &dyn Services,
    envelope: &Envelope,
    bytes: &[u8],
) -> Result<(), Fault> {
    let share = services.share();
    let settings = |server: &Smtp| server.settings();
    let make = || Rc::new(Link::new(server, share.of(server.pool).max(1)));
    let link = services.resources().get(server, settings, make);
    let sent = within(
        server.timeout,
        services,
        link.send(envelope, bytes, services),
    );
    sent.await
        .unwrap_or_else(|| Err(failure::late(&server.name)))
}

impl Smtp {
    /// All that makes a difference to a connection.
    fn settings(&self) -> String {
        let server = &self.server;
        let who = (&server.user, &server.password);
        let tls = (&self.tls.ca, &self.tls.identity, &self.tls.server_name);
        let place = (server.is_secure, self.starttls, &server.host, server.port);
        let limits = (self.pool, self.connect_timeout, self.timeout);
        format!("smtp {:?}", (&self.name, place, who, tls, limits))
    }
}

/// The connections of one worker to a server.
struct Link {
    server: Smtp,
    tls: OnceCell<Client>,
    idle: RefCell<Vec<(AsyncSmtpConnection, Instant)>>,
    places: Semaphore,
}

impl Resource for Link {
    fn close(self: Rc<Self>) -> LocalFuture<'static, ()> {
        Box::pin(async move {
            self.places.close();
            let idle = self.idle.take();
            for (mut connection, _) in idle {
                // A server that does not say goodbye must not hold us up.
                let time = Duration::from_secs(1);
                let _ = tokio::time::timeout(time, connection.quit()).await;
            }
        })
    }
}

impl Link {
    fn new(server: &Smtp, places: usize) -> Self {
        Self {
            server: server.clone(),
            tls: OnceCell::new(),
            idle: RefCell::default(),
            places: Semaphore::new(places),
        }
    }

    async fn send(
        &self,
        envelope: &Envelope,
        bytes: &[u8],
        services: &dyn Services,
    ) -> Result<(), Fault> {
        let Ok(_place) = self.places.acquire().await else {
            let detail = "the engine is stopping";
            let fault = Fault::new(Kind::Unavailable, Origin::Engine, detail);
            return Err(fault.with_retry(Retry::Yes));
        };
        let mut connection = match self.idle(services).await {
            Some(connection) => connection,
            None => self.connect(services).await?,
        };
        let sent = connection.send(envelope, bytes).await;
        match sent {
            Ok(_) => {
                let now = services.now();
                self.idle.borrow_mut().push((connection, now));
                Ok(())
            }
            Err(error) => Err(failure::of_send(&self.server.name, &error)),
        }
    }

    /// A connection that has been used and still works.
    async fn idle(&self, services: &dyn Services) -> Option<AsyncSmtpConnection> {
        loop {
            let (mut connection, since) = self.idle.borrow_mut().pop()?;
            let age = services.now().saturating_duration_since(since);
            if age > IDLE_MAX {
                continue;
            }
            let time = self.server.connect_timeout;
            let works = within(time, services, connection.test_connected()).await;
            if works == Some(true) {
                return Some(connection);
            }
        }
    }

    async fn connect(&self, services: &dyn Services) -> Result<AsyncSmtpConnection, Fault> {
        let time = self.server.connect_timeout;
        let made = within(time, services, self.try_connect()).await;
        let late = || failure::unreachable(&self.server.name, "no connection in time");
        made.unwrap_or_else(|| Err(late()))
    }

    async fn try_connect(&self) -> Result<AsyncSmtpConnection, Fault> {
        let (name, server) = (&self.server.name, &self.server.server);
        let unreachable = |error: std::io::Error| failure::unreachable(name, error);
        let hello = ClientId::default();
        let wire = Wire::connect(&server.host, server.port)
            .await
            .map_err(unreachable)?;
        let stream = if server.is_secure {
            let wire = wire.encrypt(&self.client()?).await.map_err(unreachable)?;
            Stream::fresh(wire)
        } else if self.server.starttls {
            let (hello, client) = (hello.to_string(), self.client()?);
            let begun = starttls::begin(wire, &hello, &client).await;
            begun.map_err(unreachable)?
        } else {
            Stream::fresh(wire)
        };
        let connected = AsyncSmtpConnection::connect_with_transport(Box::new(stream), &hello);
        let refused = |error| failure::refused(name, &error);
        let mut connection = connected.await.map_err(refused)?;
        if let (Some(user), Some(password)) = (&server.user, &server.password) {
            let who = Credentials::new(user.clone(), password.clone());
            let ways = [Mechanism::Plain, Mechanism::Login];
            connection.auth(&ways, &who).await.map_err(refused)?;
        }
        Ok(connection)
    }

    fn client(&self) -> Result<Client, Fault> {
        if let Some(client) = self.tls.get() {
            return Ok(client.clone());
        }
        let made = self.server.tls.client(&self.server.server.host);
        let client =
            made.map_err(|error| failure::unreachable(&self.server.name, error.message))?;
        Ok(self.tls.get_or_init(|| client).clone())
    }
}
