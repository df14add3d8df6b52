//! The refresh token of a connection (RFC 6749, section 6): a server may hand out another one with
//! each token, and take the old one no longer. So the new one is on the disk before it is relied
//! on, and the next start goes on with it.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use component::state::{State, StateKey, States};
use journal::Keyed;
use message::{Fault, Kind, Origin, Retry};
use sha2::{Digest as _, Sha256};

use crate::keyed_state::KeyedStateHandle;

/// The table of refresh tokens.
const TABLE: &str = "oauth2";

/// Where the refresh tokens of a connection come from.
pub(super) struct Refresh {
    /// The one in the file.
    first: String,
    /// The key of its successors. Another one in the file is another key: an operator who puts a
    /// new one there begins anew.
    key: [u8; 32],
    keyed: KeyedStateHandle,
    state: Arc<RefreshState>,
}

/// The refresh token that is to be used next, the same for all connections that begin with one.
#[derive(Default)]
struct RefreshState {
    /// Held by the one who uses it.
    turn: tokio::sync::Mutex<()>,
    inner: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    /// `None` until the one that was stored has been looked for.
    token: Option<String>,
    /// Whether it is not on the disk yet, though it has taken the place of another one.
    is_unsaved: bool,
}

impl State for RefreshState {}

impl Refresh {
    pub fn new(first: &str, token_url: &str, client_id: &str, states: &States) -> Self {
        let mut hash = Sha256::new();
        for part in [token_url, client_id, first] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let key: [u8; 32] = hash.finalize().into();
        let mut settings = String::new();
        for byte in key {
            // Writing to a text cannot fail.
            let _ = write!(settings, "{byte:02x}");
        }
        let state = StateKey {
            settings,
            ..StateKey::shared(TABLE, "refresh")
        };
        Self {
            first: first.to_owned(),
            key,
            keyed: KeyedStateHandle::new(states, true),
            state: states.get(state, RefreshState::default),
        }
    }

    /// Waits until nobody else uses the refresh token: each use may make the one before it useless.
    pub async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.state.turn.lock().await
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        let inner = self.state.inner.lock();
        inner.unwrap_or_else(PoisonError::into_inner)
    }

    /// The refresh token to show next. What could not be stored before is stored now, or not.
    ///
    /// # Errors
    /// When the one that was stored cannot be read: an older one would not be taken.
    pub async fn token(&self) -> Result<String, Fault> {
        let (known, is_unsaved) = {
            let state = self.lock();
            (state.token.clone(), state.is_unsaved)
        };
        if let Some(token) = known {
            if is_unsaved {
                self.save(&token).await;
            }
            return Ok(token);
        }
        let stored = self.keyed()?.get(TABLE, &self.key).await;
        let stored = stored.map_err(unreadable)?;
        let stored = stored.and_then(|it| String::from_utf8(it.to_vec()).ok());
        let token = stored.unwrap_or_else(|| self.first.clone());
        self.lock().token = Some(token.clone());
        Ok(token)
    }

    /// A server has handed out this one, and may take no other from now on.
    pub async fn rotate(&self, token: String) {
        {
            let mut state = self.lock();
            if state.token.as_ref() == Some(&token) {
                return;
            }
            state.token = Some(token.clone());
            state.is_unsaved = true;
        }
        self.save(&token).await;
    }

    async fn save(&self, token: &str) {
        let (key, value) = (
            Bytes::copy_from_slice(&self.key),
            Bytes::copy_from_slice(token.as_bytes()),
        );
        let saved = match self.keyed() {
            Ok(keyed) => keyed.put(TABLE, key, value).await.map_err(unreadable),
            Err(fault) => Err(fault),
        };
        match saved {
            Ok(()) => self.lock().is_unsaved = false,
            Err(fault) => {
                let cause = fault.cause.unwrap_or_default();
                tracing::error!(
                    target: "oauth2", cause,
                    "a new refresh token cannot be stored: it is lost when the process ends"
                );
            }
        }
    }

    fn keyed(&self) -> Result<&Keyed, Fault> {
        self.keyed
            .keyed()
            .ok_or_else(|| unreadable("the data folder is not open"))
    }
}

fn unreadable(cause: impl std::fmt::Display) -> Fault {
    let detail = "the stored refresh token cannot be read";
    let fault = Fault::new(Kind::Unavailable, Origin::Engine, detail);
    fault.with_retry(Retry::Yes).with_cause(cause)
}
