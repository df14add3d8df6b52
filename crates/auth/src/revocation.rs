//! Credentials that are refused although they are good, and the streams that end because of that.
//!
//! [`Revocations`] has the deny list, which every door asks, and the validity of each credential
//! that has opened a stream. When the list or a file of keys changes, all of these are looked at
//! once ([`Revocations::sweep`]); requests only ever look for themselves.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Instant, SystemTime};

use access::deny::{Change, Denied, DenyList, FileEntries, Kind, NotAdded, Source};
use component::access::{Caller, Revocable, Validity, notify_streams};
use component::state::{Measure, State, StateKey, States};

/// The most entries that the admin API may make.
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
    open: Mutex<OpenCredentials>,
    refused: AtomicU64,
    revoked: AtomicU64,
}

/// The credentials that have opened streams.
#[derive(Default)]
struct OpenCredentials {
    all: HashMap<Identity, Open>,
    /// With how many entries those are looked for next that have no stream any more.
    tidy_at: usize,
}

/// What tells one credential from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    way: Arc<str>,
    names: Names,
    expires: Option<u64>,
    /// The keyed hash of a token that is known only by its issuer.
    token: Option<[u8; 32]>,
}

/// By which names an entry of the deny list may mean a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Names {
    /// The claim `jti`.
    pub token: Option<Arc<str>>,
    /// The claim `sub`, or who calls.
    pub subject: Option<Arc<str>>,
    /// The id of an API key or user.
    pub key: Option<Arc<str>>,
}

/// A credential that has opened a stream.
struct Open {
    validity: std::sync::Weak<Validity>,
    /// Whether the file that it was admitted by still has it.
    is_known: Option<IsKnown>,
}

/// Says whether a file still has a credential.
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
            open: Mutex::default(),
            refused: AtomicU64::new(0),
            revoked: AtomicU64::new(0),
        }
    }
}

impl Revocations {
    /// Those of the process.
    #[must_use]
    pub fn of(states: &States) -> Arc<Self> {
        states.get(StateKey::shared("", "revocations"), Self::default)
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
    pub(crate) fn set_file(&self, entries: Vec<Denied>) {
        let entries = FileEntries::from(entries);
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
        let denied = self.denied();
        let is_behind = |it: &Denied| after.is_none_or(|after| (it.kind, &*it.name) > after);
        let all = denied.entries(wall());
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

    /// Whether the deny list has a credential. `names` are asked for only when there are entries.
    #[inline]
    pub(crate) fn is_denied(&self, names: impl FnOnce() -> Names, now: &dyn Fn() -> u64) -> bool {
        if !self.has_denied.load(Ordering::Relaxed) {
            return false;
        }
        let is_denied = names().are_denied(&self.denied(), now());
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
        (names, token): (Names, Option<[u8; 32]>),
        is_known: Option<IsKnown>,
    ) -> Arc<Validity> {
        let identity = Identity {
            way: Arc::clone(&caller.way),
            names,
            expires: caller.expires,
            token,
        };
        let mut open = self.open();
        // Those who change what is looked at here look at the entries afterwards.
        let is_known_now = is_known.as_ref().is_none_or(|it| it());
        let is_denied = || {
            self.has_denied.load(Ordering::Acquire) && {
                identity.names.are_denied(&self.denied(), wall())
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
        let entry = Open {
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
            let is_valid = is_known && !(has_denied && identity.names.are_denied(&denied, now));
            if !is_valid {
                validity.revoke();
                revoked += 1;
            }
            is_valid
        });
        drop(denied);
        drop(open);
        self.end_streams(revoked);
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

impl Names {
    /// The names of a token: its `jti`, and its `sub` or, without one, who calls.
    pub fn of_token(caller: &Caller) -> Self {
        let subject = caller.claim("sub").map(Arc::from);
        Self {
            token: caller.claim("jti").map(Arc::from),
            subject: Some(subject.unwrap_or_else(|| Arc::clone(&caller.id))),
            key: None,
        }
    }

    /// The name of an API key or user.
    pub fn of_key(caller: &Caller) -> Self {
        Self {
            key: Some(Arc::clone(&caller.id)),
            ..Self::default()
        }
    }

    fn are_denied(&self, denied: &DenyList, now: u64) -> bool {
        let all = [
            (Kind::Token, &self.token),
            (Kind::Subject, &self.subject),
            (Kind::Key, &self.key),
        ];
        let mut all = all
            .into_iter()
            .filter_map(|(kind, it)| Some((kind, it.as_deref()?)));
        all.any(|(kind, name)| denied.find(kind, name, now).is_some())
    }
}

/// Tokens that say themselves who calls, and callers of whom another system says so.
pub(crate) struct Tokens(pub Arc<Revocations>);

impl Revocable for Tokens {
    fn is_denied(&self, caller: &Caller, now: &dyn Fn() -> u64) -> bool {
        self.0.is_denied(|| Names::of_token(caller), now)
    }

    fn validity(&self, caller: &Caller) -> Arc<Validity> {
        self.0.watch(caller, (Names::of_token(caller), None), None)
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
        self.revocations.is_denied(|| Names::of_key(caller), now)
    }

    fn validity(&self, caller: &Caller) -> Arc<Validity> {
        let names = (Names::of_key(caller), None);
        let is_known = Box::new(self.is_known.clone());
        self.revocations.watch(caller, names, Some(is_known))
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
