//! The connection of one worker to a server: made when it is first needed, shared by all commands
//! at a time, made again when it has broken. While the server cannot be reached, commands fail at
//! once, and a new try is made after a while.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use component::handler::{Services, within};
use component::resilience::Backoff;
use component::resources::Resource;
use message::Fault;
use net::Wire;
use net::tls::Client;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Cmd, ProtocolVersion, RedisConnectionInfo, Value};
use tokio::sync::Mutex;
use tokio::task::AbortHandle;

use super::command::Sent;
use super::connection::Redis;
use super::failure;
use super::outcome::Answer;

/// The time from one try to connect to the next: first and longest.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(50), Duration::from_secs(5));
/// The time from one try of `pop` with `wait` to the next: first and longest.
const PAUSE: Backoff = Backoff::doubling(Duration::from_millis(10), Duration::from_millis(200));

/// Gives the server a command over the worker's connection. An answer of nothing is asked for again
/// for so long.
///
/// # Errors
/// `connection`, `timeout`, `unavailable`, and what the server says, raised as `wrong-type` or
/// `redis-error`.
pub async fn ask(
    server: &Arc<Redis>,
    services: &dyn Services,
    sent: &Sent,
    wait: Option<Duration>,
) -> Result<Answer, Fault> {
    let mut command = Cmd::new();
    for argument in &sent.arguments {
        command.arg(argument.as_slice());
    }
    let link = link(server, services);
    let until = wait.map(|wait| services.now() + wait);
    let mut tries = 0;
    loop {
        let answer = answer(link.command(&command, services).await?);
        let left = until.map(|until| until.saturating_duration_since(services.now()));
        match left.filter(|left| !left.is_zero()) {
            Some(left) if answer == Some(Answer::Nothing) => {
                tries += 1;
                services
                    .sleep(PAUSE.delay_after(tries, 0.0).min(left))
                    .await;
            }
            _ => return answer.ok_or_else(|| link.odd()),
        }
    }
}

/// An answer free of the driver; `None` for one that no command of ours gets.
fn answer(value: Value) -> Option<Answer> {
    Some(match value {
        Value::Nil => Answer::Nothing,
        Value::Okay => Answer::Okay,
        Value::Int(number) => Answer::Number(number),
        Value::BulkString(bytes) => Answer::Text(bytes.into()),
        Value::SimpleString(text) => Answer::Text(text.into_bytes().into()),
        Value::Array(items) => Answer::List(items.into_iter().map(answer).collect::<Option<_>>()?),
        _ => return None,
    })
}

/// The connection of this worker to a server.
pub(super) fn link(server: &Arc<Redis>, services: &dyn Services) -> Rc<Link> {
    let settings = |server: &Redis| server.settings();
    let make = || Rc::new(Link::new(server));
    services.resources().get(server, settings, make)
}

impl Redis {
    /// All that makes a difference to a connection.
    fn settings(&self) -> String {
        let server = &self.server;
        let who = (&server.user, &server.password);
        let tls = (&self.tls.ca, &self.tls.identity, &self.tls.server_name);
        let place = (server.is_secure, &server.host, server.port, self.database);
        let times = (self.connect_timeout, self.timeout);
        format!("redis {:?}", (&self.name, place, who, tls, times))
    }
}

/// The connection of one worker to a server.
pub(super) struct Link {
    server: Redis,
    tls: OnceCell<Client>,
    live: RefCell<Option<Rc<Live>>>,
    /// Held by whoever connects; the others wait.
    connecting: Mutex<()>,
    down: RefCell<Option<Down>>,
}

/// Why there is no connection.
struct Down {
    failures: u32,
    until: Instant,
    fault: Fault,
}

impl Resource for Link {}

impl Link {
    fn new(server: &Redis) -> Self {
        Self {
            server: server.clone(),
            tls: OnceCell::new(),
            live: RefCell::default(),
            connecting: Mutex::new(()),
            down: RefCell::default(),
        }
    }

    /// Gives a command and waits for its answer.
    pub async fn command(&self, command: &Cmd, services: &dyn Services) -> Result<Value, Fault> {
        let live = self.live(services).await?;
        let time = self.server.timeout;
        let result = live.command(command, time, services).await;
        self.look_at(&live);
        result
    }

    /// Forgets a connection that is of no use any more. Others that wait on it go on waiting.
    fn look_at(&self, used: &Rc<Live>) {
        let mut live = self.live.borrow_mut();
        let is_same = live.as_ref().is_some_and(|live| Rc::ptr_eq(live, used));
        if is_same && used.is_over.get() {
            *live = None;
        }
    }

    fn usable(&self) -> Option<Rc<Live>> {
        let live = self.live.borrow();
        live.as_ref().filter(|live| !live.is_over.get()).cloned()
    }

    /// The connection, made when there is none.
    async fn live(&self, services: &dyn Services) -> Result<Rc<Live>, Fault> {
        if let Some(live) = self.usable() {
            return Ok(live);
        }
        let _turn = self.connecting.lock().await;
        if let Some(live) = self.usable() {
            return Ok(live);
        }
        if let Some(down) = &*self.down.borrow()
            && down.until > services.now()
        {
            return Err(down.fault.clone());
        }
        match self.open(services).await {
            Ok(live) => {
                let live = Rc::new(live);
                *self.live.borrow_mut() = Some(Rc::clone(&live));
                if self.down.take().is_some() {
                    let name = &self.server.name;
                    tracing::info!(target: "redis", connection = name, "connected again");
                }
                Ok(live)
            }
            Err(fault) => {
                self.note_down(&fault, services);
                Err(fault)
            }
        }
    }

    fn note_down(&self, fault: &Fault, services: &dyn Services) {
        let failures = self.down.borrow().as_ref().map_or(0, |down| down.failures) + 1;
        if failures == 1 {
            tracing::warn!(target: "redis", connection = self.server.name, %fault, "not connected");
        }
        let until = services.now() + BACKOFF.delay_after(failures, 0.0);
        let fault = fault.clone();
        *self.down.borrow_mut() = Some(Down {
            failures,
            until,
            fault,
        });
    }

    /// A connection of its own, for whoever waits on it.
    pub async fn open(&self, services: &dyn Services) -> Result<Live, Fault> {
        self.in_time(services, async {
            let wire = self.wire().await?;
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(None)
                .set_response_timeout(None);
            let made = MultiplexedConnection::new_with_config(&self.who(), wire, config).await;
            let made = made.map_err(|error| self.failed(&error))?;
            Ok(Live::new(&self.server.name, made))
        })
        .await
    }

    /// A connection for messages of channels.
    pub async fn listen(&self, services: &dyn Services) -> Result<PubSub, Fault> {
        self.in_time(services, async {
            let wire = self.wire().await?;
            let made = PubSub::new(&self.who(), wire).await;
            made.map_err(|error| self.failed(&error))
        })
        .await
    }

    async fn in_time<T>(
        &self,
        services: &dyn Services,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let time = self.server.connect_timeout;
        let late = || failure::unreachable(&self.server.name, "no connection in time");
        within(time, services, work)
            .await
            .unwrap_or_else(|| Err(late()))
    }

    async fn wire(&self) -> Result<Wire, Fault> {
        let server = &self.server.server;
        let unreachable = |error: std::io::Error| failure::unreachable(&self.server.name, error);
        let wire = Wire::connect(&server.host, server.port)
            .await
            .map_err(unreachable)?;
        if !server.is_secure {
            return Ok(wire);
        }
        let client = self.client()?;
        wire.encrypt(&client).await.map_err(unreachable)
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

    fn who(&self) -> RedisConnectionInfo {
        let server = &self.server.server;
        let mut who = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP2)
            .set_db(self.server.database)
            .set_skip_set_lib_name();
        if let Some(user) = &server.user {
            who = who.set_username(user);
        }
        if let Some(password) = &server.password {
            who = who.set_password(password);
        }
        who
    }

    fn failed(&self, error: &redis::RedisError) -> Fault {
        failure::of_error(&self.server.name, error)
    }

    /// The fault of an answer that no command of ours gets.
    pub fn odd(&self) -> Fault {
        failure::unreachable(&self.server.name, "an answer that is none")
            .with_retry(message::Retry::No)
    }

    /// The longest until a command is answered.
    pub fn timeout(&self) -> Duration {
        self.server.timeout
    }
}

/// A connection at work. It ends with its last user.
pub(super) struct Live {
    name: String,
    connection: MultiplexedConnection,
    /// Whether it is of no use for further commands.
    is_over: Rc<Cell<bool>>,
    driver: AbortHandle,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Marks a connection as over when its driver ends, by a panic too: a panic drops the driver with
/// all commands that wait for an answer, so that they fail at once, and the next command makes
/// another connection.
struct EndOfDriver(Rc<Cell<bool>>);

impl Drop for EndOfDriver {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

impl Live {
    /// Starts the driver of a connection, which reads and writes its socket.
    fn new(
        name: &str,
        (connection, driver): (MultiplexedConnection, impl Future<Output = ()> + 'static),
    ) -> Self {
        let is_over = Rc::new(Cell::new(false));
        let end = EndOfDriver(Rc::clone(&is_over));
        let task = tokio::task::spawn_local(async move {
            let _end = end;
            driver.await;
        });
        Self {
            name: name.to_owned(),
            connection,
            is_over,
            driver: task.abort_handle(),
        }
    }

    /// Gives a command and waits so long for its answer.
    pub async fn command(
        &self,
        command: &Cmd,
        time: Duration,
        services: &dyn Services,
    ) -> Result<Value, Fault> {
        let mut connection = self.connection.clone();
        let asked = command.query_async::<Value>(&mut connection);
        let result = within(time, services, asked).await;
        self.result(result)
    }

    fn result<T>(&self, result: Option<redis::RedisResult<T>>) -> Result<T, Fault> {
        match result {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => {
                if error.code().is_none() {
                    self.is_over.set(true);
                }
                Err(failure::of_error(&self.name, &error))
            }
            None => {
                // What comes late must not hold the next commands up; the server may be gone.
                self.is_over.set(true);
                Err(failure::late(&self.name))
            }
        }
    }
}

#[cfg(test)]
mod tests;
