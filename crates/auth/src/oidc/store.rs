//! The sessions of a way: in memory for all workers, and in the data folder, so that a restart logs
//! nobody out.
//!
//! In the data folder a session stands under the hash of its identifier, encrypted by a key that is
//! made of it: only the browser's cookie opens it. The ends of sessions that the provider reports
//! are noted beside them, for those that nobody has asked for since the start.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Display;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use access::deny::Denied;
use access::oidc::{
    LOGOUT_TOKEN_SECONDS, Limits, LogoutOf, LogoutUnderWay, LogoutWritten, Session, SessionKey,
    SessionRead, Sessions, StoredSession,
};
use access::sealer::Sealer;
use access::signed_body::{Replay, Replays};
use component::access::Caller;
use component::handler::{Services, within};
use component::state::{Measure, State};
use steps::KeyedStateHandle;
use tokio::sync::watch;

use crate::revocation::{DENIED_TABLE, denied_key, denied_row};

/// The table of the data folder.
const TABLE: &str = "oidc";
/// The most sessions of a way in memory, and about the most bytes of them.
const COUNT_MAX: usize = 100_000;
const BYTES_MAX: usize = 256 * 1024 * 1024;
/// The most sessions of one person: whoever logs in again and again would fill the disk.
const SUBJECT_MAX: usize = 100;
/// Upper bound of the identifiers that are remembered as unknown: the data folder is not read for
/// them again.
const MISSED_MAX: usize = 10_000;
/// How many logins are remembered that have got tokens, so that no answer is taken twice.
const ENDED_MAX: usize = 100_000;
/// How many logout tokens are remembered.
const LOGOUTS_MAX: usize = 100_000;
/// How long the data folder may take.
const DISK: Duration = Duration::from_secs(5);

/// What the engine keeps beside a stored session.
pub(super) struct SessionState {
    pub caller: Arc<Caller>,
    /// When it was last written to the data folder, in seconds since 1970.
    pub saved: AtomicU64,
}

/// A session that is neither over nor idle for too long.
pub(super) type LiveSession = StoredSession<Arc<SessionState>>;

pub(super) struct SessionStore {
    sessions: Mutex<Sessions<Arc<SessionState>>>,
    /// Seals logins in progress.
    pub sealer: Sealer,
    /// Logins that have got tokens or are ending, and logout tokens that have acted.
    ended: Mutex<Replays>,
    logouts: Mutex<Replays>,
    missed: Mutex<Missed>,
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

    /// Ends the login of this state. Only one attempt at a time is made, and none when the provider
    /// has given tokens for one.
    ///
    /// # Errors
    /// Why not, in a word.
    pub fn end_login(self: &Arc<Self>, state: &str, now: u64) -> Result<EndingLogin, NotEnded> {
        match lock(&self.ended).take(state.as_bytes(), now) {
            Replay::New => Ok(EndingLogin {
                store: Arc::clone(self),
                state: Some(state.to_owned()),
            }),
            Replay::Seen => Err(NotEnded::Replayed),
            Replay::Full => Err(NotEnded::Full),
        }
    }

    /// Notes that a logout token acts; whether that is the first time.
    pub fn take_logout(&self, id: &str, now: u64) -> bool {
        lock(&self.logouts).take(id.as_bytes(), now) == Replay::New
    }

    /// The logout token has not acted: its sender may repeat it.
    pub fn forget_logout(&self, id: &str) {
        lock(&self.logouts).forget(id.as_bytes());
    }

    pub fn get(&self, key: &SessionKey, now: u64, idle: u64) -> Option<LiveSession> {
        lock(&self.sessions).get(key, now, limits(idle))
    }

    /// Whether a session is in memory.
    pub fn has(&self, key: &SessionKey) -> bool {
        lock(&self.sessions).contains(key)
    }

    /// Begins to read a session: a logout wins that begins from now on.
    pub fn begin_read(self: &Arc<Self>) -> Reading {
        Reading {
            read: Some(lock(&self.sessions).begin_read()),
            store: Arc::clone(self),
        }
    }

    /// The session of a subject that has to end, since it has too many.
    pub fn surplus(&self, subject: &str) -> Option<SessionKey> {
        lock(&self.sessions).surplus(subject, SUBJECT_MAX)
    }

    pub fn count_login(&self) {
        self.logins.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends sessions, and keeps those out that are being read until it is told that the end is on
    /// the disk, or until this time, in seconds since 1970. Gives those that were in memory.
    pub fn log_out(
        self: &Arc<Self>,
        of: LogoutOf,
        (now, until): (u64, u64),
    ) -> (Vec<(SessionKey, Arc<Session>)>, Logout) {
        let (ended, logout) = lock(&self.sessions).log_out(of, now);
        self.ends.fetch_add(ended.len() as u64, Ordering::Relaxed);
        let logout = Logout {
            store: Arc::clone(self),
            logout,
            written: LogoutWritten::Failed { until },
        };
        (ended, logout)
    }

    /// Whether this key was looked for and is no session's.
    pub fn is_missed(&self, key: &SessionKey) -> bool {
        lock(&self.missed).keys.contains(key)
    }

    pub fn miss(&self, key: SessionKey) {
        lock(&self.missed).put(key);
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

/// Keys that are no session's. The oldest gives way.
#[derive(Default)]
struct Missed {
    keys: HashSet<SessionKey>,
    order: VecDeque<SessionKey>,
}

impl Missed {
    fn put(&mut self, key: SessionKey) {
        if !self.keys.insert(key) {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > MISSED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }
}

/// Why a login cannot end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotEnded {
    /// It has ended before, or is just ending.
    Replayed,
    /// There is no room to remember another one.
    Full,
}

/// A login that is ending. Dropped, it is forgotten: strangers can make up as many codes as they
/// like, and would fill the table.
pub(super) struct EndingLogin {
    store: Arc<SessionStore>,
    state: Option<String>,
}

impl EndingLogin {
    /// The provider has given tokens: a copy of the cookie is good for nothing any more.
    pub fn remember(mut self) {
        self.state = None;
    }
}

impl Drop for EndingLogin {
    fn drop(&mut self) {
        if let Some(state) = &self.state {
            lock(&self.store.ended).forget(state.as_bytes());
        }
    }
}

/// A session that is being read.
pub(super) struct Reading {
    store: Arc<SessionStore>,
    read: Option<SessionRead>,
}

impl Reading {
    /// Puts the session in, which was last used at this time; false when it was logged out
    /// meanwhile.
    pub fn put(
        mut self,
        key: SessionKey,
        (session, caller): (Session, Arc<Caller>),
        times: Times,
    ) -> bool {
        let Some(read) = self.read.take() else {
            return false;
        };
        let state = Arc::new(SessionState {
            caller,
            saved: AtomicU64::new(times.seen),
        });
        let seen = (times.seen, times.now);
        let one = (key, Arc::new(session), state);
        let put = lock(&self.store.sessions).put(&read, one, seen, limits(times.idle));
        put.is_some()
    }

    /// Gives the session newer claims; false when it has ended meanwhile.
    pub fn renew(
        mut self,
        key: &SessionKey,
        (session, caller): (Session, Arc<Caller>),
        now: u64,
    ) -> bool {
        let Some(read) = self.read.take() else {
            return false;
        };
        let state = Arc::new(SessionState {
            caller,
            saved: AtomicU64::new(now),
        });
        lock(&self.store.sessions).renew(&read, (key, Arc::new(session), state))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some(read) = self.read.take() {
            lock(&self.store.sessions).abandon(&read);
        }
    }
}

/// A logout until it is on the disk. Dropped before, it is remembered as long as a session may last
/// that it ends.
pub(super) struct Logout {
    store: Arc<SessionStore>,
    logout: LogoutUnderWay,
    written: LogoutWritten,
}

impl Logout {
    /// Says whether it is on the disk.
    pub fn end(mut self, is_stored: bool) {
        if is_stored {
            self.written = LogoutWritten::Stored;
        }
    }
}

impl Drop for Logout {
    fn drop(&mut self) {
        lock(&self.store.sessions).end_logout(&self.logout, self.written);
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
    keyed: KeyedStateHandle,
    /// Who has the sessions: the provider and the client.
    context: String,
}

impl Disk {
    pub fn new(keyed: KeyedStateHandle, context: String) -> Self {
        Self { keyed, context }
    }

    /// Whether the folder is open.
    pub fn is_open(&self) -> bool {
        self.keyed.keyed().is_some()
    }

    /// Writes a session with when it was last used. One that cannot be written is lost with the
    /// process, which is logged.
    pub async fn save(&self, id: &[u8], session: &Session, seen: u64, services: &dyn Services) {
        if let Some(put) = self.put(id, session, seen) {
            log_unwritten(within(DISK, services, put).await);
        }
    }

    /// The same of a session in memory. Whoever ends one removes it there first and has its row
    /// deleted afterwards. So the write is queued while it is known to be there, and a deletion is
    /// queued behind it.
    pub async fn save_live(
        &self,
        id: &[u8],
        (session, seen): (&Session, u64),
        store: &SessionStore,
        services: &dyn Services,
    ) {
        let Some(put) = self.put(id, session, seen) else {
            return;
        };
        let (mut put, key) = (pin!(put), Session::key(id));
        // It is queued when it is polled first.
        let mut queue = |context: &mut Context<'_>| {
            let sessions = lock(&store.sessions);
            let is_there = sessions.contains(&key);
            Poll::Ready(is_there.then(|| put.as_mut().poll(context)))
        };
        match poll_fn(&mut queue).await {
            None => {}
            Some(Poll::Ready(written)) => log_unwritten(Some(written)),
            Some(Poll::Pending) => log_unwritten(within(DISK, services, put).await),
        }
    }

    /// Has a session written, unless there is no data folder or it cannot be encrypted.
    fn put(
        &self,
        id: &[u8],
        session: &Session,
        seen: u64,
    ) -> Option<impl Future<Output = Result<(), impl Display>>> {
        let keyed = self.keyed.keyed()?;
        let text = serde_json::to_vec(&(seen, session)).unwrap_or_default();
        let sealer = Sealer::of_secret("intertie session", id);
        let sealed = sealer.and_then(|it| it.seal(self.context.as_bytes(), &text));
        let Some(sealed) = sealed else {
            log("it cannot be encrypted");
            return None;
        };
        let value = [&session.ends.to_be_bytes()[..], &sealed].concat();
        let key = name(b's', &Session::key(id));
        Some(keyed.put(TABLE, key.into(), value.into()))
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

    /// Removes a session. Whether that is on the disk, where there is one.
    pub async fn remove(&self, key: &SessionKey, services: &dyn Services) -> bool {
        let Some(keyed) = self.keyed.keyed() else {
            return true;
        };
        let deleted = keyed.delete(TABLE, name(b's', key).into());
        let is_removed = matches!(within(DISK, services, deleted).await, Some(Ok(())));
        if !is_removed {
            log("an ended session cannot be removed");
        }
        is_removed
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

    /// Keeps an entry of the deny list, and forgets the one that has made room for it. Whether that
    /// is on the disk, where there is one.
    pub async fn deny(
        &self,
        entry: &Denied,
        dropped: Option<&Denied>,
        services: &dyn Services,
    ) -> bool {
        let Some(keyed) = self.keyed.keyed() else {
            return true;
        };
        let (key, line) = denied_row(entry);
        let put = keyed.put(DENIED_TABLE, key, line);
        let is_kept = matches!(within(DISK, services, put).await, Some(Ok(())));
        if let Some(dropped) = dropped {
            let key = denied_key(dropped.kind, &dropped.name);
            let deleted = keyed.delete(DENIED_TABLE, key);
            if !matches!(within(DISK, services, deleted).await, Some(Ok(()))) {
                log("an entry of the deny list that has made room cannot be removed");
            }
        }
        is_kept
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

/// Logs why a session is not on the disk, if so.
fn log_unwritten<E: Display>(written: Option<Result<(), E>>) {
    match written {
        Some(Ok(())) => {}
        Some(Err(refusal)) => log(&refusal.to_string()),
        None => log("the disk takes too long"),
    }
}

fn log(problem: &str) {
    tracing::error!(target: "auth", problem, "sessions in the data folder");
}
