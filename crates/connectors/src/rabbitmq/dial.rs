//! How a connection to a broker is made: a host, TLS, the handshake, and what is declared.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use amqp::{Event, Handshake, Login, Method, Progress, Receiver, Tuned, write};
use net::Connection;
use net::tls::Client;
use tokio::net::TcpStream;

use super::connection::Rabbitmq;
use super::topology;
use crate::url::Server;

/// The most bytes of a frame: what RabbitMQ proposes.
const FRAME_MAX: u32 = 131_072;
/// The longest that declarations may take.
const DECLARE_TIME: Duration = Duration::from_secs(30);
/// The most bytes of a message that is kept.
pub(super) const BODY_MAX: u64 = 128 << 20;

/// A connection that has been agreed on.
pub(super) struct Link {
    pub connection: Connection,
    pub receiver: Receiver,
    pub tuned: Tuned,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) struct Refusal {
    /// Whether the broker has answered and does not want us, so that waiting hardly helps.
    pub is_final: bool,
    pub cause: String,
}

impl Refusal {
    fn passing(cause: impl ToString) -> Self {
        Self {
            is_final: false,
            cause: cause.to_string(),
        }
    }

    fn last(cause: impl ToString) -> Self {
        Self {
            is_final: true,
            cause: cause.to_string(),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::passing(error)
    }
}

impl From<amqp::Error> for Refusal {
    fn from(error: amqp::Error) -> Self {
        Self::last(error)
    }
}

/// Makes connections to the hosts of a cluster, in turn.
pub(super) struct Dialer {
    broker: Arc<Rabbitmq>,
    next: usize,
    /// The client sides of TLS: sessions are taken up again.
    clients: Vec<Option<Client>>,
}

impl Dialer {
    pub fn new(broker: &Arc<Rabbitmq>, next: usize) -> Self {
        Self {
            broker: Arc::clone(broker),
            next,
            clients: vec![None; broker.servers.len()],
        }
    }

    /// Tries each host once.
    pub async fn connect(&mut self) -> Result<Link, Refusal> {
        let mut last = Refusal::passing("there is no host");
        for _ in 0..self.broker.servers.len() {
            let at = self.next % self.broker.servers.len().max(1);
            self.next = at + 1;
            let broker = Arc::clone(&self.broker);
            let Some(server) = broker.servers.get(at) else {
                continue;
            };
            let time = broker.connect_timeout;
            let place = format!("{}:{}", server.host, server.port);
            let made = match tokio::time::timeout(time, self.connect_to(at, server)).await {
                Ok(made) => made,
                Err(_) => Err(Refusal::passing(format!("no answer within {time:?}"))),
            };
            let made = match made {
                Ok(link) => declare(link, &broker).await,
                Err(refusal) => Err(refusal),
            };
            match made {
                Ok(link) => return Ok(link),
                Err(refusal) => {
                    last = Refusal {
                        cause: format!("{place}: {}", refusal.cause),
                        ..refusal
                    };
                }
            }
        }
        Err(last)
    }

    async fn connect_to(&mut self, at: usize, server: &Server) -> Result<Link, Refusal> {
        let client = match server.is_secure {
            true => Some(self.client(at, server)?),
            false => None,
        };
        let host = (server.host.as_str(), server.port);
        let addresses = tokio::net::lookup_host(host).await?;
        let mut last = Refusal::passing("the name has no address");
        for address in addresses {
            let stream = match TcpStream::connect(address).await {
                Ok(stream) => stream,
                Err(error) => {
                    last = error.into();
                    continue;
                }
            };
            let connection = match &client {
                None => Connection::new(stream, address)?,
                Some(client) => {
                    let mut connection = Connection::begin_tls(stream, address, client)?;
                    poll_fn(|context| connection.poll_handshake(context))
                        .await
                        .map_err(|error| Refusal::last(format!("TLS: {error}")))?;
                    connection
                }
            };
            return shake(connection, login(&self.broker, server)).await;
        }
        Err(last)
    }

    fn client(&mut self, at: usize, server: &Server) -> Result<Client, Refusal> {
        if let Some(Some(client)) = self.clients.get(at) {
            return Ok(client.clone());
        }
        let made = self.broker.tls.client(&server.host);
        let client = made.map_err(|error| Refusal::last(format!("TLS: {}", error.message)))?;
        if let Some(place) = self.clients.get_mut(at) {
            *place = Some(client.clone());
        }
        Ok(client)
    }
}

fn login(broker: &Rabbitmq, server: &Server) -> Login {
    let has_certificate = server.is_secure && broker.tls.identity.is_some();
    let user = match (&server.user, has_certificate) {
        (Some(user), _) => Some((user.clone(), server.password.clone().unwrap_or_default())),
        (None, true) => None,
        // As all clients of RabbitMQ have it.
        (None, false) => Some(("guest".to_owned(), "guest".to_owned())),
    };
    Login {
        user,
        vhost: broker.vhost.clone(),
        name: broker.name.clone(),
        product: ("Intertie", env!("CARGO_PKG_VERSION")),
        heartbeat: u16::try_from(broker.heartbeat.as_secs()).unwrap_or(u16::MAX),
        frame_max: FRAME_MAX,
    }
}

async fn shake(mut connection: Connection, login: Login) -> Result<Link, Refusal> {
    let mut receiver = Receiver::new(FRAME_MAX, BODY_MAX);
    let mut out = Vec::new();
    let mut handshake = Handshake::new(login, &mut out);
    loop {
        send(&mut connection, &mut out).await?;
        let bytes = connection.input.bytes();
        let Some((event, count)) = receiver.next(bytes)? else {
            receive(&mut connection).await?;
            continue;
        };
        let progress = match &event {
            Event::Method(0, method) => handshake.take(method, &mut out)?,
            Event::Heartbeat => Progress::Waits,
            _ => return Err(amqp::Error::Unexpected.into()),
        };
        connection.input.consume(count);
        match progress {
            Progress::Waits => {}
            Progress::Open(tuned) => {
                receiver.set_frame_max(tuned.frame_max);
                return Ok(Link {
                    connection,
                    receiver,
                    tuned,
                });
            }
            Progress::Refused(code, text) => {
                // So that the broker has our answer; it matters no more.
                let _ = send(&mut connection, &mut out).await;
                let cause = format!("the broker refuses the connection: {code} {text}");
                // A broker that starts or stops says 320 or 541.
                let is_final = matches!(code, 403 | 530);
                return Err(Refusal { is_final, cause });
            }
            Progress::NoMechanism => {
                let cause = "the broker does not take this way to say who asks";
                return Err(Refusal::last(cause));
            }
        }
    }
}

/// Declares one thing after the other, so that the one that fails can be named.
async fn declare(mut link: Link, broker: &Rabbitmq) -> Result<Link, Refusal> {
    if broker.declarations.is_empty() {
        return Ok(link);
    }
    let work = declare_all(&mut link, broker);
    match tokio::time::timeout(DECLARE_TIME, work).await {
        Ok(done) => done?,
        Err(_) => return Err(Refusal::passing("what is declared takes too long")),
    }
    Ok(link)
}

async fn declare_all(link: &mut Link, broker: &Rabbitmq) -> Result<(), Refusal> {
    let channel = topology::CHANNEL;
    let mut out = Vec::new();
    write::channel_open(&mut out, channel);
    answered(link, &mut out, "channel").await?;
    for declaration in &broker.declarations {
        declaration.write(&mut out);
        answered(link, &mut out, &declaration.label).await?;
    }
    write::channel_close(&mut out, channel);
    answered(link, &mut out, "channel").await
}

/// Sends what was written and waits for the answer.
async fn answered(link: &mut Link, out: &mut Vec<u8>, label: &str) -> Result<(), Refusal> {
    send(&mut link.connection, out).await?;
    loop {
        let bytes = link.connection.input.bytes();
        let Some((event, count)) = link.receiver.next(bytes)? else {
            receive(&mut link.connection).await?;
            continue;
        };
        let result = match &event {
            Event::Method(0, Method::ConnectionClose(closed))
            | Event::Method(_, Method::ChannelClose(closed)) => {
                let text = String::from_utf8_lossy(closed.text);
                let cause = format!("{label} cannot be declared: {} {text}", closed.code);
                Some(Err(Refusal::last(cause)))
            }
            Event::Method(topology::CHANNEL, _) => Some(Ok(())),
            _ => None,
        };
        link.connection.input.consume(count);
        if let Some(result) = result {
            return result;
        }
    }
}

async fn send(connection: &mut Connection, out: &mut Vec<u8>) -> io::Result<()> {
    let mut rest = out.as_slice();
    while !rest.is_empty() {
        let count = poll_fn(|context| connection.poll_write(context, rest)).await?;
        rest = rest.get(count..).unwrap_or_default();
    }
    out.clear();
    poll_fn(|context| connection.poll_flush(context)).await
}

async fn receive(connection: &mut Connection) -> io::Result<()> {
    match poll_fn(|context| connection.poll_fill(context)).await? {
        0 => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the broker has closed the connection",
        )),
        _ => Ok(()),
    }
}
