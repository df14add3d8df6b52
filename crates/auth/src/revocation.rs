//! Credentials that are refused although they are good, and the streams that end because of that.
//!
//! [`Revocations`] has the deny list, which every door asks, and the validity of each credential
//! that has opened a stream. When the list or a file of keys changes, all of these are looked at
//! once ([`Revocations::sweep`]); requests only ever look for themselves.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::time::{Instant, SystemTime};

use access::deny::{Change, Denied, DenyList, FileEntries, Kind, LogoutEntry, NotAdded, Source};
use bytes::Bytes;
use component::access::{Caller, Revocable, Validity, notify_streams};
use component::audit::{Audit, Event, EventKind};
use component::state::{Measure, State, StateKey, States};

/// The most entries that the admin API may make. Logouts may make as many beside them.
pub const DENIED_MAX: usize = 100_000;
/// By how many seconds clocks may differ at most: the bound of `clock_skew` of every way.
pub const CLOCK_SKEW_MAX: u64 = 600;

/// What is denied, and the credentials that have opened streams.
pub struct Revocations {
    denied: RwLock<DenyList>,
    /// Whether the list is in force and has an entry: all that most requests look at.
    has_denied: AtomicBool,
    is_on: AtomicBool,
    /// One more for each plan that has a deny list.
    needed: Arc<()>,
    changes: tokio::sync::Mutex<()>,
    open: Mutex<OpenCredentials>,
    refused: AtomicU64,
    revoked: AtomicU64,
    /// Told which credentials were revoked; absent in tests.
    audit: OnceLock<Arc<Audit>>,
}

/// The credentials that have opened streams.
#[derive(Default)]
struct OpenCredentials {
    all: HashMap<Identity, OpenCredential>,
    /// With how many entries those are looked for next that have no stream any more.
    tidy_at: usize,
}

/// What tells one credential from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    way: Arc<str>,
    ids: CredentialIds,
    expires: Option<u64>,
    /// The keyed hash of a token that is known only by its issuer, or the fingerprint of the key
    /// that has signed it.
    token: Option<[u8; 32]>,
}

/// The identifiers by which an entry of the deny list may name a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CredentialIds {
    /// The claim `jti`.
    pub token: Option<Arc<str>>,
    /// The claim `sub`.
    pub subject: Option<Arc<str>>,
    /// Who calls.
    pub id: Option<Arc<str>>,
    /// The id of an API key or user.
    pub key: Option<Arc<str>>,
    /// The session at the issuer: the claims `iss` and `sid`.
    pub session: Option<Arc<str>>,
    /// Who has logged in where: the claims `iss` and `sub`.
    pub login: Option<Arc<str>>,
    /// When it was issued, in seconds since 1970.
    pub issued: Option<u64>,
}

/// A credential that has opened a stream.
struct OpenCredential {
    validity: std::sync::Weak<Validity>,
    /// Whether the file that it was admitted by still has it, or the key that has signed it.
    is_known: Option<IsKnown>,
}

/// Says whether a file still has a credential, or an issuer the key that has signed it.
pub(crate) type IsKnown = Box<dyn Fn() -> bool + Send + Sync>;

/// The time of day, in seconds since 1970.
fn wall() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

impl Default for Revocations {
    fn default() -> Self {
        Self {
            denied: RwLock::new(DenyList::new(DENIED_MAX, CLOCK_SKEW_MAX)),
            has_denied: AtomicBool::new(false),
            is_on: AtomicBool::new(false),
            needed: Arc::default(),
            changes: tokio::sync::Mutex::default(),
            open: Mutex::default(),
            refused: AtomicU64::new(0),
            revoked: AtomicU64::new(0),
            audit: OnceLock::new(),
        }
    }
}

impl Revocations {
    /// Those of the process.
    #[must_use]
    pub fn of(states: &States) -> Arc<Self> {
        let own = states.get(StateKey::shared("", "revocations"), Self::default);
        own.audit.get_or_init(|| Audit::of(states));
        own
    }

    /// Whether a plan has a deny list, so that its entries have to be restored.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        Arc::strong_count(&self.needed) > 1
    }

    /// Whether the deny list is in force.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// What a plan with a deny list holds.
    pub(crate) fn need(&self) -> Arc<()> {
        Arc::clone(&self.needed)
    }

    /// Puts the deny list in force with the entries that were kept. Those that have expired are
    /// forgotten.
    pub fn begin(&self, entries: Vec<Denied>) {
        let now = wall();
        let mut denied = self.denied_mut();
        for entry in entries {
            denied.replay(Change::Add(entry), now);
        }
        drop(denied);
        self.set_on(true);
    }

    /// Puts the deny list in force, or out of it.
    pub(crate) fn set_on(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Release);
        self.note_change();
    }

    /// Takes the entries of the operator's file in the place of those that it had before.
    pub(crate) fn set_file(&self, entries: Arc<FileEntries>) {
        let before = self.denied_mut().set_file(entries);
        drop(before);
        self.note_change();
    }

    /// Adds an entry, which is in force at once: open streams that it concerns end.
    ///
    /// # Errors
    /// When there are too many entries, or it has expired.
    pub fn add(&self, entry: Denied) -> Result<(), NotAdded> {
        self.denied_mut().add(entry, wall())?;
        self.note_change();
        Ok(())
    }

    /// Adds what an issuer says that has ended, as [`DenyList::log_out`] does.
    ///
    /// # Errors
    /// When it has expired.
    pub(crate) fn log_out(&self, entry: Denied, now: u64) -> Result<LogoutEntry, NotAdded> {
        let logged_out = self.denied_mut().log_out(entry, now)?;
        self.note_change();
        Ok(logged_out)
    }

    /// One who changes the list at a time, so that the data folder and the memory have the changes
    /// in the same order.
    pub async fn change(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.changes.lock().await
    }

    /// Removes an entry of the admin API; false when there is none.
    pub fn remove(&self, kind: Kind, name: &str) -> bool {
        let removed = self.denied_mut().remove(kind, name).is_some();
        self.note_change();
        removed
    }

    /// Whether an entry of this source names it.
    #[must_use]
    pub fn has(&self, source: Source, kind: Kind, name: &str) -> bool {
        let denied = self.denied();
        denied.find_in(source, kind, name, wall()).is_some()
    }

    /// The entries in force, ordered by what they name: at most so many of those behind `after`.
    #[must_use]
    pub fn entries(&self, after: Option<(Kind, &str)>, most: usize) -> Vec<(Source, Denied)> {
        self.entries_at(wall(), after, most)
    }

    /// The same at this time, in seconds since 1970.
    pub(crate) fn entries_at(
        &self,
        now: u64,
        after: Option<(Kind, &str)>,
        most: usize,
    ) -> Vec<(Source, Denied)> {
        let denied = self.denied();
        let is_behind = |it: &Denied| after.is_none_or(|after| (it.kind, &*it.name) > after);
        let all = denied.entries(now);
        let mut all: Vec<_> = all.filter(|(_, it)| is_behind(it)).collect();
        let order =
            |left: &(Source, &Denied), right: &(Source, &Denied)| place(*left).cmp(&place(*right));
        if all.len() > most {
            // There may be a million, of which a few are shown.
            all.select_nth_unstable_by(most, order);
            all.truncate(most);
        }
        all.sort_unstable_by(order);
        let all = all.into_iter();
        all.map(|(source, it)| (source, it.clone())).collect()
    }

    /// Forgets entries that have expired.
    pub(crate) fn forget(&self) {
        if self.has_denied.load(Ordering::Relaxed) {
            self.denied_mut().forget(wall());
            self.note_denied();
        }
    }

    fn note_denied(&self) {
        // Under the lock, so that the last change has the last word.
        let denied = self.denied_mut();
        let has_denied = self.is_on() && !denied.is_empty();
        self.has_denied.store(has_denied, Ordering::Release);
    }

    fn note_change(&self) {
        self.note_denied();
        self.sweep();
    }

    fn denied(&self) -> RwLockReadGuard<'_, DenyList> {
        self.denied.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn denied_mut(&self) -> RwLockWriteGuard<'_, DenyList> {
        self.denied.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, OpenCredentials> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the deny list has a credential. `ids` is called only when the list has
    /// entries.
    #[inline]
    pub(crate) fn is_denied(
        &self,
        ids: impl FnOnce() -> CredentialIds,
        now: &dyn Fn() -> u64,
    ) -> bool {
        if !self.has_denied.load(Ordering::Relaxed) {
            return false;
        }
        let is_denied = ids().are_denied(&self.denied(), now());
        if is_denied {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        is_denied
    }

    /// The validity of a credential that opens a stream. One that has been revoked meanwhile is
    /// revoked already.
    pub(crate) fn watch(
        &self,
        caller: &Caller,
        (ids, token): (CredentialIds, Option<[u8; 32]>),
        is_known: Option<IsKnown>,
    ) -> Arc<Validity> {
        let identity = Identity {
            way: Arc::clone(&caller.way),
            ids,
            expires: caller.expires,
            token,
        };
        let mut open = self.open();
        // Those who change what is looked at here look at the entries afterwards.
        let is_known_now = is_known.as_ref().is_none_or(|it| it());
        let is_denied = || {
            self.has_denied.load(Ordering::Acquire) && {
                identity.ids.are_denied(&self.denied(), wall())
            }
        };
        if !is_known_now || is_denied() {
            let revoked = Validity::new(caller.expires);
            revoked.revoke();
            return Arc::new(revoked);
        }
        let shared = open.all.get(&identity).and_then(|it| it.validity.upgrade());
        if let Some(shared) = shared.filter(|it| !it.is_revoked()) {
            return shared;
        }
        let validity = Arc::new(Validity::new(caller.expires));
        let entry = OpenCredential {
            validity: Arc::downgrade(&validity),
            is_known,
        };
        open.all.insert(identity, entry);
        open.tidy();
        validity
    }

    /// Revokes the credentials with open streams that are denied, or that their files do not have
    /// any more.
    pub(crate) fn sweep(&self) {
        let mut open = self.open();
        let has_denied = self.has_denied.load(Ordering::Acquire);
        let denied = self.denied();
        let now = wall();
        let mut revoked = 0;
        open.all.retain(|identity, it| {
            let Some(validity) = it.validity.upgrade() else {
                return false;
            };
            let is_known = it.is_known.as_ref().is_none_or(|is_known| is_known());
            let is_valid = is_known && !(has_denied && identity.ids.are_denied(&denied, now));
            if !is_valid {
                validity.revoke();
                revoked += 1;
                let reason = if is_known { "denied" } else { "removed" };
                self.audit_revoked(&identity.way, identity.ids.caller(), reason);
            }
            is_valid
        });
        drop(denied);
        drop(open);
        self.end_streams(revoked);
    }

    /// Ends what a session has opened.
    pub(crate) fn end_session(&self, key: &[u8; 32]) {
        self.end_where("session_ended", |identity| {
            identity.token.as_ref() == Some(key)
        });
    }

    /// Ends what this way has let in that belongs to a login, a session, or both, by their names
    /// at the issuer.
    pub(crate) fn end_logins(&self, way: &str, login: Option<&str>, session: Option<&str>) {
        self.end_where("logged_out", |Identity { way: of, ids, .. }| {
            let is = |wanted: Option<&str>, name: &Option<Arc<str>>| {
                wanted.is_none_or(|wanted| name.as_deref() == Some(wanted))
            };
            let is_any = login.is_some() || session.is_some();
            is_any && **of == *way && is(login, &ids.login) && is(session, &ids.session)
        });
    }

    fn end_where(&self, reason: &str, is_ended: impl Fn(&Identity) -> bool) {
        let mut revoked = 0;
        self.open().all.retain(|identity, it| {
            if !is_ended(identity) {
                return true;
            }
            if let Some(validity) = it.validity.upgrade() {
                validity.revoke();
                self.audit_revoked(&identity.way, identity.ids.caller(), reason);
                revoked += 1;
            }
            false
        });
        self.end_streams(revoked);
    }

    /// Tells the audit stream that a credential with open streams was revoked.
    pub(crate) fn audit_revoked(&self, way: &Arc<str>, id: Option<&Arc<str>>, reason: &str) {
        if let Some(audit) = self.audit.get() {
            audit.record(|| {
                let event = Event::success(EventKind::AccessRevoked).because(reason);
                event.by(Some(Arc::clone(way)), id.cloned())
            });
        }
    }

    /// Counts credentials that have been revoked, and has their streams end.
    pub(crate) fn end_streams(&self, revoked: u64) {
        if revoked > 0 {
            self.revoked.fetch_add(revoked, Ordering::Relaxed);
            notify_streams();
        }
    }
}

/// Where an entry stands in a listing: those of the file behind those of the admin API.
fn place((source, entry): (Source, &Denied)) -> (Kind, &str, bool) {
    (entry.kind, &entry.name, source == Source::File)
}

impl OpenCredentials {
    /// Forgets those without a stream, now and then.
    fn tidy(&mut self) {
        const LEAST: usize = 64;
        if self.all.len() > self.tidy_at.max(LEAST) {
            self.all.retain(|_, it| it.validity.strong_count() > 0);
            self.tidy_at = self.all.len() * 2;
        }
    }
}

impl CredentialIds {
    /// Those of a token.
    pub fn of_token(caller: &Caller) -> Self {
        let of_issuer = |name| {
            let claim = caller.claim(name)?;
            Some(name_at(caller.claim("iss")?, claim))
        };
        Self {
            token: caller.claim("jti").map(Arc::from),
            subject: caller.claim("sub").map(Arc::from),
            id: Some(Arc::clone(&caller.id)),
            key: None,
            session: of_issuer("sid"),
            login: of_issuer("sub"),
            issued: caller.seconds("iat"),
        }
    }

    /// That of an API key or user.
    pub fn of_key(caller: &Caller) -> Self {
        Self {
            id: Some(Arc::clone(&caller.id)),
            key: Some(Arc::clone(&caller.id)),
            ..Self::default()
        }
    }

    /// Who calls.
    fn caller(&self) -> Option<&Arc<str>> {
        self.id.as_ref().or(self.subject.as_ref())
    }

    fn are_denied(&self, denied: &DenyList, now: u64) -> bool {
        let login = self.login.as_ref();
        if login.is_some_and(|it| denied.has_login(it, self.issued, now)) {
            return true;
        }
        let all = [
            (Kind::Token, &self.token),
            (Kind::Subject, &self.subject),
            (Kind::Subject, &self.id),
            (Kind::Key, &self.key),
            (Kind::Session, &self.session),
        ];
        let mut all = all
            .into_iter()
            .filter_map(|(kind, it)| Some((kind, it.as_deref()?)));
        all.any(|(kind, name)| denied.find(kind, name, now).is_some())
    }
}

/// The table of the keyed state that has the entries that were made while the engine ran.
pub const DENIED_TABLE: &str = "denied";

/// The key of an entry in [`DENIED_TABLE`].
#[must_use]
pub fn denied_key(kind: Kind, name: &str) -> Bytes {
    Bytes::from(format!("{}/{name}", kind.name()).into_bytes())
}

/// The row of an entry in [`DENIED_TABLE`]: its key and its line.
#[must_use]
pub fn denied_row(entry: &Denied) -> (Bytes, Bytes) {
    let line = Change::Add(entry.clone()).to_line();
    (
        denied_key(entry.kind, &entry.name),
        line.into_bytes().into(),
    )
}

/// The name of a session or subject at an issuer, whose URL has no space.
pub(crate) fn name_at(issuer: &str, name: &str) -> Arc<str> {
    format!("{issuer} {name}").into()
}

/// Tokens that say themselves who calls, and callers of whom another system says so.
pub(crate) struct Tokens(pub Arc<Revocations>);

impl Revocable for Tokens {
    fn is_denied(&self, caller: &Caller, now: &dyn Fn() -> u64) -> bool {
        self.0.is_denied(|| CredentialIds::of_token(caller), now)
    }

    fn validity(&self, caller: &Caller) -> Arc<Validity> {
        self.0
            .watch(caller, (CredentialIds::of_token(caller), None), None)
    }
}

/// An entry of a file by which somebody has been admitted.
pub(crate) struct FileEntry<F> {
    pub revocations: Arc<Revocations>,
    /// Says whether the file still has it.
    pub is_known: F,
}

impl<F: Fn() -> bool + Clone + Send + Sync + 'static> Revocable for FileEntry<F> {
    fn is_denied(&self, caller: &Caller, now: &dyn Fn() -> u64) -> bool {
        self.revocations
            .is_denied(|| CredentialIds::of_key(caller), now)
    }

    fn validity(&self, caller: &Caller) -> Arc<Validity> {
        let ids = (CredentialIds::of_key(caller), None);
        let is_known = Box::new(self.is_known.clone());
        self.revocations.watch(caller, ids, Some(is_known))
    }
}

impl State for Revocations {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        let entries = self.denied().entries(wall()).count();
        let open = self.open().all.len();
        vec![
            Measure {
                name: "auth_denied_entries",
                help: "Entries of the deny list.",
                value: entries as f64,
            },
            Measure::count(
                "auth_denied_total",
                "Requests whose credential is on the deny list.",
                &self.refused,
            ),
            Measure {
                name: "auth_open_credentials",
                help: "Credentials that have opened streams.",
                value: open as f64,
            },
            Measure::count(
                "auth_revoked_total",
                "Credentials that were revoked while they had open streams.",
                &self.revoked,
            ),
        ]
    }
}

#[cfg(test)]
mod tests;
