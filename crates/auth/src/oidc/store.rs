//! The sessions of a way: in memory for all workers, and in the data folder, so that a restart logs
//! nobody out.
//!
//! In the data folder a session stands under the hash of its identifier, encrypted by a key that is
//! made of it: only the browser's cookie opens it. The ends of sessions that the provider reports
//! are noted beside them, for those that nobody has asked for since the start.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use access::oidc::{Found, LOGOUT_TOKEN_SECONDS, Limits, Sealer, Session, SessionKey, Sessions};
use access::signed_body::{Replay, Replays};
use component::access::Caller;
use component::handler::{Services, within};
use component::state::{Measure, State};
use steps::KeyedUse;
use tokio::sync::watch;

/// The table of the data folder.
const TABLE: &str = "oidc";
/// The most sessions of a way in memory, and about the most bytes of them.
const COUNT_MAX: usize = 100_000;
const BYTES_MAX: usize = 256 * 1024 * 1024;
/// How many identifiers are remembered that are no session's.
const MISSED_MAX: usize = 10_000;
/// How many logins are remembered that have ended, so that no answer is taken twice.
const ENDED_MAX: usize = 100_000;
/// How many logout tokens are remembered.
const LOGOUTS_MAX: usize = 100_000;
/// How long the data folder may take.
const DISK: Duration = Duration::from_secs(5);

/// What is made of a session.
pub(super) struct Live {
    pub caller: Arc<Caller>,
    /// When it was last written to the data folder, in seconds since 1970.
    pub saved: AtomicU64,
}

/// A session that is good.
pub(super) type Good = Found<Arc<Live>>;

pub(super) struct SessionStore {
    sessions: Mutex<Sessions<Arc<Live>>>,
    /// Seals logins in progress.
    pub sealer: Sealer,
    /// Logins that have ended, and logout tokens that have acted.
    ended: Mutex<Replays>,
    logouts: Mutex<Replays>,
    missed: Mutex<VecDeque<SessionKey>>,
    /// Sessions that are being renewed, each with what changes when that has ended.
    renewing: Mutex<HashMap<SessionKey, watch::Receiver<()>>>,
    logins: AtomicU64,
    ends: AtomicU64,
}

fn lock<T>(inner: &Mutex<T>) -> MutexGuard<'_, T> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SessionStore {
    pub fn new(sealer: Sealer) -> Self {
        Self {
            sessions: Mutex::default(),
            sealer,
            ended: Mutex::new(Replays::for_seconds(access::oidc::LOGIN_SECONDS, ENDED_MAX)),
            // Both clocks may differ by the skew.
            logouts: Mutex::new(Replays::for_seconds(2 * LOGOUT_TOKEN_SECONDS, LOGOUTS_MAX)),
            missed: Mutex::default(),
            renewing: Mutex::default(),
            logins: AtomicU64::new(0),
            ends: AtomicU64::new(0),
        }
    }

    /// Notes that the login of this state has ended; whether that is the first time.
    pub fn end_login(&self, state: &str, now: u64) -> bool {
        lock(&self.ended).take(state.as_bytes(), now) == Replay::New
    }

    /// Notes that a logout token acts; whether that is the first time.
    pub fn take_logout(&self, id: &str, now: u64) -> bool {
        lock(&self.logouts).take(id.as_bytes(), now) == Replay::New
    }

    /// The logout token has not acted: its sender may repeat it.
    pub fn forget_logout(&self, id: &str) {
        lock(&self.logouts).forget(id.as_bytes());
    }

    pub fn get(&self, key: &SessionKey, now: u64, idle: u64) -> Option<Good> {
        lock(&self.sessions).get(key, now, limits(idle))
    }

    /// Puts a session in that was last used at this time.
    pub fn put(&self, key: SessionKey, session: Session, caller: Arc<Caller>, times: Times) {
        let live = Arc::new(Live {
            caller,
            saved: AtomicU64::new(times.seen),
        });
        let seen = (times.seen, times.now);
        lock(&self.sessions).put(key, (Arc::new(session), live), seen, limits(times.idle));
    }

    pub fn count_login(&self) {
        self.logins.fetch_add(1, Ordering::Relaxed);
    }

    /// The same session with newer claims; `false` when it has ended meanwhile.
    pub fn renew(&self, key: &SessionKey, session: Session, caller: Arc<Caller>, now: u64) -> bool {
        let live = Arc::new(Live {
            caller,
            saved: AtomicU64::new(now),
        });
        lock(&self.sessions).renew(key, Arc::new(session), live)
    }

    pub fn remove(&self, key: &SessionKey) -> Option<Arc<Session>> {
        let removed = lock(&self.sessions).remove(key);
        if removed.is_some() {
            self.ends.fetch_add(1, Ordering::Relaxed);
        }
        removed
    }

    /// Ends sessions, and gives their keys.
    pub fn end(&self, subject: Option<&str>, session: Option<&str>) -> Vec<SessionKey> {
        let ended = lock(&self.sessions).end(subject, session);
        self.ends.fetch_add(ended.len() as u64, Ordering::Relaxed);
        ended
    }

    /// Whether this key was looked for and is no session's.
    pub fn is_missed(&self, key: &SessionKey) -> bool {
        lock(&self.missed).contains(key)
    }

    pub fn miss(&self, key: SessionKey) {
        let mut missed = lock(&self.missed);
        if missed.len() >= MISSED_MAX {
            missed.pop_front();
        }
        missed.push_back(key);
    }

    /// Begins to renew a session: gives what ends it, or what waits for who has begun before.
    pub fn begin_renewal(
        self: &Arc<Self>,
        key: SessionKey,
    ) -> (watch::Receiver<()>, Option<Renewal>) {
        let mut renewing = lock(&self.renewing);
        if let Some(ended) = renewing.get(&key) {
            return (ended.clone(), None);
        }
        let (sender, ended) = watch::channel(());
        renewing.insert(key, ended.clone());
        let renewal = Renewal {
            store: Arc::clone(self),
            key,
            _ended: sender,
        };
        (ended, Some(renewal))
    }
}

/// When a session was used, in seconds since 1970, and how long it may stand still.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub seen: u64,
    pub now: u64,
    pub idle: u64,
}

fn limits(idle: u64) -> Limits {
    Limits {
        idle,
        count_max: COUNT_MAX,
        bytes_max: BYTES_MAX,
    }
}

/// A renewal under way; dropped, it frees whoever waits.
pub(super) struct Renewal {
    store: Arc<SessionStore>,
    key: SessionKey,
    _ended: watch::Sender<()>,
}

impl Drop for Renewal {
    fn drop(&mut self) {
        lock(&self.store.renewing).remove(&self.key);
    }
}

impl State for SessionStore {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let sessions = lock(&self.sessions).len() as f64;
        vec![
            Measure::count(
                "auth_logins_total",
                "Logins that made a session.",
                &self.logins,
            ),
            Measure::count(
                "auth_logouts_total",
                "Sessions that were ended by a logout.",
                &self.ends,
            ),
            Measure {
                name: "auth_sessions",
                help: "Sessions in memory.",
                value: sessions,
            },
        ]
    }
}

/// The sessions in the data folder.
pub(super) struct Disk {
    keyed: KeyedUse,
    /// Who has the sessions: the provider and the client.
    context: String,
}

impl Disk {
    pub fn new(keyed: KeyedUse, context: String) -> Self {
        Self { keyed, context }
    }

    /// Whether the folder is open.
    pub fn is_open(&self) -> bool {
        self.keyed.keyed().is_some()
    }

    /// Writes a session with when it was last used. One that cannot be written is lost with the
    /// process, which is logged.
    pub async fn save(&self, id: &[u8], session: &Session, seen: u64, services: &dyn Services) {
        let Some(keyed) = self.keyed.keyed() else {
            return;
        };
        let text = serde_json::to_vec(&(seen, session)).unwrap_or_default();
        let sealer = Sealer::of_secret("intertie session", id);
        let sealed = sealer.and_then(|it| it.seal(self.context.as_bytes(), &text));
        let Some(sealed) = sealed else {
            return log("it cannot be encrypted");
        };
        let value = [&session.ends.to_be_bytes()[..], &sealed].concat();
        let put = keyed.put(TABLE, name(b's', &Session::key(id)).into(), value.into());
        match within(DISK, services, put).await {
            Some(Ok(())) => {}
            Some(Err(refusal)) => log(&refusal.to_string()),
            None => log("the disk takes too long"),
        }
    }

    /// The session of an identifier and when it was last used, unless it has ended.
    ///
    /// # Errors
    /// A word for the log when nobody can tell.
    pub async fn load(
        &self,
        id: &[u8],
        services: &dyn Services,
    ) -> Result<Option<(Session, u64)>, &'static str> {
        let value = self.read(name(b's', &Session::key(id)), services).await?;
        let Some((session, seen)) = value.and_then(|it| self.open(id, &it)) else {
            return Ok(None);
        };
        let by = [
            Some(self.party(b'u', &session.subject)),
            session
                .provider_session
                .as_ref()
                .map(|it| self.party(b'p', it)),
        ];
        for party in by.into_iter().flatten() {
            let ended = self.read(party, services).await?;
            let ended = ended.and_then(|it| Some(u64::from_be_bytes(*it.get(8..)?.first_chunk()?)));
            if ended.is_some_and(|at| session.began <= at) {
                return Ok(None);
            }
        }
        Ok(Some((session, seen)))
    }

    /// What [`Disk::save`] has written.
    fn open(&self, id: &[u8], value: &[u8]) -> Option<(Session, u64)> {
        let (_, sealed) = value.split_at_checked(8)?;
        let sealer = Sealer::of_secret("intertie session", id)?;
        let text = sealer.open(self.context.as_bytes(), sealed)?;
        let (seen, session): (u64, Session) = serde_json::from_slice(&text).ok()?;
        Some((session, seen))
    }

    /// Removes a session.
    pub async fn remove(&self, key: &SessionKey, services: &dyn Services) {
        let Some(keyed) = self.keyed.keyed() else {
            return;
        };
        let deleted = keyed.delete(TABLE, name(b's', key).into());
        if !matches!(within(DISK, services, deleted).await, Some(Ok(()))) {
            log("an ended session cannot be removed");
        }
    }

    /// Notes that sessions have ended that began before this time; none lives longer than `until`.
    /// Whether that is on the disk, where there is one.
    pub async fn end(
        &self,
        (subject, session): (Option<&str>, Option<&str>),
        (now, until): (u64, u64),
        services: &dyn Services,
    ) -> bool {
        let Some(keyed) = self.keyed.keyed() else {
            return true;
        };
        let party = match (session, subject) {
            (Some(session), _) => self.party(b'p', session),
            (None, Some(subject)) => self.party(b'u', subject),
            (None, None) => return true,
        };
        let value = [until.to_be_bytes(), now.to_be_bytes()].concat();
        let put = keyed.put(TABLE, party.into(), value.into());
        matches!(within(DISK, services, put).await, Some(Ok(())))
    }

    /// Removes what is over.
    pub async fn sweep(&self, services: &dyn Services) {
        let Some(keyed) = self.keyed.keyed() else {
            return;
        };
        let now = services.wall().as_secs();
        let mut after: Option<bytes::Bytes> = None;
        loop {
            let found = keyed.scan(TABLE, b"", after.as_deref(), 1000).await;
            let Ok(found) = found else {
                return log("the sessions cannot be read");
            };
            let Some((last, _)) = found.last() else {
                return;
            };
            after = Some(last.clone());
            for (key, value) in found {
                let ends = value.first_chunk().map(|it| u64::from_be_bytes(*it));
                if ends.is_none_or(|ends| ends <= now) && keyed.delete(TABLE, key).await.is_err() {
                    return log("an old session cannot be removed");
                }
            }
        }
    }

    async fn read(
        &self,
        key: Vec<u8>,
        services: &dyn Services,
    ) -> Result<Option<bytes::Bytes>, &'static str> {
        let Some(keyed) = self.keyed.keyed() else {
            return Ok(None);
        };
        match within(DISK, services, keyed.get(TABLE, &key)).await {
            Some(Ok(found)) => Ok(found),
            _ => {
                log("a session cannot be read");
                Err("no_disk")
            }
        }
    }

    /// The key of a note about a subject or a session at the provider.
    fn party(&self, kind: u8, party: &str) -> Vec<u8> {
        let text = format!("{}\n{party}", self.context);
        name(kind, &Session::key(text.as_bytes()))
    }
}

fn name(kind: u8, key: &SessionKey) -> Vec<u8> {
    [&[kind][..], key].concat()
}

fn log(problem: &str) {
    tracing::error!(target: "auth", problem, "sessions in the data folder");
}
