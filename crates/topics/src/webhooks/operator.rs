//! What an operator sees of webhooks and does with them while the engine runs.

use std::sync::Arc;
use std::time::Duration;

use component::state::States;
use message::{Fault, Kind, Origin};
use serde_json::Value;

use super::attempts::Attempts;
use super::manage::show;
use super::replay::Wanted;
use super::state::{Command, EndpointState, Health, Registry};

/// How long a command may take, the note on the disk included.
const PATIENCE: Duration = Duration::from_secs(10);

/// A webhook as an operator sees it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The endpoint's name.
    pub name: Arc<str>,
    /// How it is.
    pub health: Health,
    /// Why nothing is sent to it, or why it has not got the last event.
    pub why: Option<Box<str>>,
    /// The last event that is done.
    pub cursor: Option<String>,
    /// How many events it has not got yet.
    pub lag: u64,
    /// The age of the oldest of them in seconds.
    pub lag_seconds: f64,
}

impl Listed {
    fn of(state: &EndpointState) -> Self {
        let (health, why) = state.health();
        let (lag, lag_seconds) = state.lag();
        Self {
            topic: Arc::clone(state.topic()),
            name: Arc::clone(&state.name),
            health,
            why: why.map(Into::into).or_else(|| state.trouble()),
            cursor: state.cursor(),
            lag,
            lag_seconds,
        }
    }
}

/// Why a command was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such webhook.
    Unknown,
    /// It may be done, but that is not on the disk.
    NotWritten,
}

impl Refused {
    /// What whoever has asked is told.
    #[must_use]
    pub fn fault(self) -> Fault {
        match self {
            Self::Unknown => Fault::invalid("there is no such webhook").with_status(404),
            Self::NotWritten => {
                let detail = "it may be done, but it could not be written: a restart forgets it";
                Fault::new(Kind::Unavailable, Origin::Engine, detail)
            }
        }
    }
}

/// All webhooks of the plan that is served, by topic and name. May read the disk.
#[must_use]
pub fn list(states: &States) -> Vec<Listed> {
    let all = Registry::of(states).all();
    all.iter().map(|it| Listed::of(it)).collect()
}

/// The last attempts to send something to a webhook, the newest first, as the REST interface shows
/// them.
///
/// # Errors
/// When there is none of this name.
pub fn attempts(states: &States, (topic, name): (&str, &str)) -> Result<Vec<Value>, Refused> {
    let state = Registry::of(states).find(topic, name);
    let state = state.ok_or(Refused::Unknown)?;
    let all = Attempts::of(states).list((state.topic(), &state.name));
    Ok(all.iter().map(show::attempt).collect())
}

/// Has a webhook pause or go on. It is done, and on the disk, when this gives how it is then.
///
/// # Errors
/// When there is none of this name, or when it is not on the disk.
pub async fn operate(
    states: &States,
    (topic, name): (&str, &str),
    command: Command,
) -> Result<Listed, Refused> {
    let state = Registry::of(states).find(topic, name);
    let state = state.ok_or(Refused::Unknown)?;
    ask(&state, command).await
}

/// Has a webhook get events again that it has got or refused, as the body of a request names them:
/// `{"event": ID}`, `{"from": ID or time, "to": ID or time}`, or `{}` for all that are kept. It is
/// on the disk that it will when this gives how it is then.
///
/// # Errors
/// When the body is none, when there is no such webhook or event (404), or when it is not on the
/// disk.
pub async fn replay(
    states: &States,
    (topic, name): (&str, &str),
    body: &[u8],
) -> Result<Listed, Fault> {
    let wanted = Wanted::read(body)?;
    let state = Registry::of(states).find(topic, name);
    let state = state.ok_or_else(|| Refused::Unknown.fault())?;
    let command = state.replay(wanted).await?;
    ask(&state, command).await.map_err(Refused::fault)
}

async fn ask(state: &EndpointState, command: Command) -> Result<Listed, Refused> {
    let asked = state.ask(command).ok_or(Refused::Unknown)?;
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(())) => Ok(Listed::of(state)),
        _ => Err(Refused::NotWritten),
    }
}
