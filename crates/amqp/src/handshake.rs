//! How both sides agree on a connection (section 2.2.4): who asks, limits, the virtual host.

use crate::error::Error;
use crate::frame::{FRAME_MIN, PROTOCOL_HEADER};
use crate::method::{Method, Start, Tune};
use crate::write;
use crate::{Table, Value};

/// Who asks for what.
#[derive(Clone)]
pub struct Login {
    /// Name and password; without them the broker goes by the certificate (EXTERNAL).
    pub user: Option<(String, String)>,
    /// The virtual host.
    pub vhost: String,
    /// What the broker's console calls the connection.
    pub name: String,
    /// What the client is, and its version.
    pub product: (&'static str, &'static str),
    /// The seconds from one heartbeat to the next.
    pub heartbeat: u16,
    /// The most bytes of a frame that we take.
    pub frame_max: u32,
}

/// What both sides have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// The most channels, their numbers beginning with 1.
    pub channel_max: u16,
    /// The most bytes of a frame.
    pub frame_max: u32,
    /// The seconds from one heartbeat to the next; 0 is never.
    pub heartbeat: u16,
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The broker is to answer.
    Waits,
    /// The connection is open.
    Open(Tuned),
    /// The broker does not want it: the code and the words that it says.
    Refused(u16, String),
    /// The broker offers no way to say who we are that we know.
    NoMechanism,
}

/// The client's side.
pub struct Handshake {
    login: Login,
    state: State,
}

enum State {
    Start,
    Tune,
    Open(Tuned),
    Over,
}

impl Handshake {
    /// Begins: writes what a client says first.
    pub fn new(login: Login, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(PROTOCOL_HEADER);
        Self {
            login,
            state: State::Start,
        }
    }

    /// Takes a method on channel 0 and writes the answer.
    ///
    /// # Errors
    /// When it is not its turn, or the broker speaks another version.
    pub fn take(&mut self, method: &Method<'_>, out: &mut Vec<u8>) -> Result<Progress, Error> {
        match (&self.state, method) {
            (_, Method::ConnectionClose(closed)) => {
                write::connection_close_ok(out);
                self.state = State::Over;
                let text = String::from_utf8_lossy(closed.text).into_owned();
                Ok(Progress::Refused(closed.code, text))
            }
            (State::Start, Method::ConnectionStart(start)) => self.started(start, out),
            (State::Tune, Method::ConnectionTune(tune)) => self.tuned(*tune, out),
            (State::Open(tuned), Method::ConnectionOpenOk) => {
                let tuned = *tuned;
                self.state = State::Over;
                Ok(Progress::Open(tuned))
            }
            _ => Err(Error::Unexpected),
        }
    }

    fn started(&mut self, start: &Start<'_>, out: &mut Vec<u8>) -> Result<Progress, Error> {
        if start.version != (0, 9) {
            return Err(Error::Version);
        }
        let (mechanism, response) = match &self.login.user {
            // RFC 4616: an empty identity, the name and the password.
            Some((user, password)) => ("PLAIN", format!("\0{user}\0{password}")),
            None => ("EXTERNAL", String::new()),
        };
        let mut offered = start.mechanisms.split(|&byte| byte == b' ');
        if !offered.any(|it| it == mechanism.as_bytes()) {
            self.state = State::Over;
            return Ok(Progress::NoMechanism);
        }
        let properties = self.properties();
        write::connection_start_ok(out, &properties, mechanism, response.as_bytes())
            .map_err(|_| Error::Syntax)?;
        self.state = State::Tune;
        Ok(Progress::Waits)
    }

    fn properties(&self) -> Table {
        let mut capabilities = Table::default();
        for name in [
            "publisher_confirms",
            "consumer_cancel_notify",
            "basic.nack",
            "connection.blocked",
            "authentication_failure_close",
            "exchange_exchange_bindings",
        ] {
            capabilities.set(name, true);
        }
        let mut properties = Table::default();
        properties.set("product", self.login.product.0);
        properties.set("version", self.login.product.1);
        properties.set("platform", "Rust");
        properties.set("connection_name", self.login.name.as_str());
        properties.set("capabilities", Value::Table(capabilities));
        properties
    }

    fn tuned(&mut self, tune: Tune, out: &mut Vec<u8>) -> Result<Progress, Error> {
        let lower = |theirs: u32, ours: u32| match theirs {
            0 => ours,
            theirs => theirs.min(ours),
        };
        let channel_max = lower(tune.channel_max.into(), u16::MAX.into()) as u16;
        let heartbeat = lower(tune.heartbeat.into(), self.login.heartbeat.into()) as u16;
        let tuned = Tuned {
            channel_max,
            frame_max: lower(tune.frame_max, self.login.frame_max).max(FRAME_MIN),
            heartbeat,
        };
        let answer = Tune {
            channel_max,
            frame_max: tuned.frame_max,
            heartbeat,
        };
        write::connection_tune_ok(out, answer);
        write::connection_open(out, &self.login.vhost).map_err(|_| Error::Syntax)?;
        self.state = State::Open(tuned);
        Ok(Progress::Waits)
    }
}
