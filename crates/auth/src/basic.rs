//! Users with passwords (RFC 7617). A check takes milliseconds of a processor on purpose, so it
//! runs beside the workers, in a bounded queue, and once for all who wait for the same.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use access::basic::{
    Candidate, CheckId, CheckQueue, Entry, Identity, NotChecked, User, Users, VerifiedUsers, Waiter,
};
use access::credentials::{Basic, BasicBuffer};
use component::access::{Caller, RequestHead};
use component::audit::Audit;
use component::definition::Surroundings;
use component::handler::{Services, within};
use component::source::SourcePlan;
use component::state::{Measure, State, StateKey};
use config::{Report, Spanned};
use tokio::sync::watch;

use crate::config::BasicConfig;
use crate::credential::{Carrier, Credential};
use crate::failed_checks::Guesses;
use crate::in_force::InForce;
use crate::key_file::{WatchedFile, read_file, shared_file, source_name, watch_file};
use crate::revocation::{FileEntry, Revocations};
use crate::way::{Check, Checked, Properties, Rejection, Way};

/// How many passwords are checked at a time, each with up to 256 MiB.
const RUNNING_MAX: usize = 2;
/// How many requests wait for checks beside them.
const WAITING_MAX: usize = 200;
/// How long a request waits for a check.
const WAIT: Duration = Duration::from_secs(15);
/// How many users are remembered whose password was right.
const REMEMBERED_MAX: usize = 10_000;

/// Users of a file.
pub(crate) struct BasicWay {
    properties: Properties,
    file: Arc<WatchedFile<Users>>,
    in_force: InForce<Arc<WatchedFile<Users>>>,
    checks: Arc<Checks>,
    revocations: Arc<Revocations>,
    audit: Arc<Audit>,
    guesses: Arc<Guesses>,
}

/// What a check has said.
type Verdict = Result<Option<Arc<User>>, NotChecked>;
type Told = watch::Sender<Option<Verdict>>;

/// The checks of the passwords of one file, in this process.
pub(crate) struct Checks {
    /// None when the system has no random bytes: then nobody comes in.
    inner: Option<Mutex<Inner>>,
    made: AtomicU64,
    refused: AtomicU64,
}

struct Inner {
    queue: CheckQueue<Job>,
    verified: VerifiedUsers,
    told: HashMap<CheckId, Told>,
}

/// A check to be made.
struct Job {
    candidate: Candidate,
    password: Vec<u8>,
    identity: Identity,
    generation: u64,
    /// Whose budget of failed checks it counts against.
    peer: IpAddr,
}

impl Default for Checks {
    fn default() -> Self {
        let verified = VerifiedUsers::new(REMEMBERED_MAX, VerifiedUsers::KEEP);
        let inner = verified.map(|verified| {
            Mutex::new(Inner {
                queue: CheckQueue::new(RUNNING_MAX, WAITING_MAX),
                verified,
                told: HashMap::new(),
            })
        });
        Self {
            inner,
            made: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }
}

impl Checks {
    fn inner(&self) -> Option<MutexGuard<'_, Inner>> {
        let inner = self.inner.as_ref()?;
        Some(inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State for Checks {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        vec![
            Measure::count(
                "auth_password_checks_total",
                "Passwords that were checked.",
                &self.made,
            ),
            Measure::count(
                "auth_password_checks_refused_total",
                "Passwords that were not checked, for too many checks were waiting.",
                &self.refused,
            ),
        ]
    }
}

/// One that waits for a check, for as long as this lives.
struct Waiting<'a> {
    checks: &'a Checks,
    waiter: Waiter,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let check = self.waiter.check();
        if let Some(mut inner) = self.checks.inner()
            && inner.queue.leave(self.waiter).is_some()
        {
            inner.told.remove(&check);
        }
    }
}

impl BasicWay {
    /// Reads the way and its file. Every problem is reported.
    pub fn read(
        name: &Arc<str>,
        config: &Spanned<BasicConfig>,
        passes: bool,
        surroundings: &Surroundings<'_>,
        report: &mut Report,
    ) -> Option<Self> {
        let users = &config.value.users;
        let hint = "`intertie keys user` makes the file and its entries, and so does `htpasswd -B`";
        let parsed = read_file::<Users>(users, &(), hint, surroundings, report)?;
        let path = surroundings.path(users);
        let key = |kind| StateKey::shared(&path.to_string_lossy(), kind);
        let states = surroundings.states;
        let file = shared_file(
            &source_name(name),
            (key("users"), path.clone()),
            ((), parsed),
            states,
        );
        Some(Self {
            properties: Properties {
                passes,
                ..Properties::new(name, Carrier::Basic)
            },
            file,
            in_force: InForce::of(name, "users", states),
            checks: states.get(key("password_checks"), Checks::default),
            revocations: Revocations::of(states),
            audit: Audit::of(states),
            guesses: Guesses::of(states),
        })
    }

    fn caller(&self, user: &Arc<User>) -> Arc<Caller> {
        let mut caller = Caller::new(
            &self.properties.name,
            user.id.as_str(),
            expr::value::object([]),
        );
        caller.scopes.clone_from(&user.scopes);
        caller.plan = user.plan.as_deref().map(Into::into);
        // Its streams end with any change of the user, such as of the password.
        let (in_force, user) = (self.in_force.clone(), Arc::clone(user));
        let is_known = move || in_force.admits(|file| file.content().has(&user));
        caller.revocable = Some(Arc::new(FileEntry {
            revocations: Arc::clone(&self.revocations),
            is_known,
        }));
        Arc::new(caller)
    }

    /// Looks whether the password was right a short time ago, else begins a check of it.
    fn enter<'a>(
        &'a self,
        credential: &[u8],
        peer: IpAddr,
        services: &'a dyn Services,
    ) -> Result<Check<'a>, Rejection> {
        let mut buffer = BasicBuffer::default();
        let presented = Basic::new(credential).decode(&mut buffer);
        let presented = presented.map_err(|problem| Rejection::Invalid(problem.name()))?;
        let (users, now) = (self.file.content(), services.now());
        let unavailable = Rejection::Unavailable("no_random_bytes");
        let mut inner = self.checks.inner().ok_or(unavailable)?;
        let identity = inner.verified.identity(presented);
        if let Some(user) = inner.verified.get(&identity, &users, now) {
            return Ok(Check::Ready(Ok(self.caller(&user).into())));
        }
        let candidate = users.candidate(presented.user);
        let candidate = candidate.ok_or(Rejection::Invalid("no_users"))?;
        self.guesses.take(peer, now)?;
        let generation = users.generation();
        let job = Job {
            candidate,
            password: presented.password.to_vec(),
            identity,
            generation,
            peer,
        };
        let (waiter, begun) = match inner.queue.enter(identity, generation, job) {
            Entry::Start(waiter, job) => (waiter, Some(job)),
            Entry::Wait(waiter) => (waiter, None),
            Entry::Refuse(_) => {
                self.guesses.give_back(peer, now);
                self.checks.refused.fetch_add(1, Ordering::Relaxed);
                return Err(Rejection::Unavailable("too_many_checks"));
            }
        };
        let check = waiter.check();
        let is_new = !inner.told.contains_key(&check);
        let told = inner.told.entry(check).or_insert_with(|| Told::new(None));
        let end = told.subscribe();
        drop(inner);
        if !is_new && begun.is_none() {
            // One check, one failure.
            self.guesses.give_back(peer, now);
        }
        let waiting = Waiting {
            checks: &self.checks,
            waiter,
        };
        if let Some(job) = begun {
            self.start(check, job, services);
        }
        Ok(Check::Pending(Box::pin(self.wait(waiting, end, services))))
    }

    async fn wait(
        &self,
        waiting: Waiting<'_>,
        mut end: watch::Receiver<Option<Verdict>>,
        services: &dyn Services,
    ) -> Checked {
        let verdict = within(WAIT, services, end.wait_for(Option::is_some)).await;
        drop(waiting);
        let verdict = verdict.and_then(Result::ok);
        match verdict.and_then(|it| it.clone()) {
            Some(Ok(Some(user))) => Ok(self.caller(&user).into()),
            Some(Ok(None)) => Err(Rejection::Invalid("password")),
            Some(Err(NotChecked)) => Err(Rejection::Unavailable("no_memory")),
            None => Err(Rejection::Unavailable("check_too_slow")),
        }
    }

    /// Makes a check, and those that waited for its place. Not in the time of the request, for no
    /// hash stops in the middle.
    fn start(&self, check: CheckId, job: Job, services: &dyn Services) {
        let (checks, guesses) = (Arc::clone(&self.checks), Arc::clone(&self.guesses));
        services.spawn(Box::new(move |services| {
            Box::pin(async move {
                let mut next = Some((check, job));
                while let Some((check, job)) = next {
                    next = make(check, job, (&checks, &guesses), services).await;
                }
            })
        }));
    }
}

/// Makes one check and tells those who wait for it; the next one.
async fn make(
    check: CheckId,
    job: Job,
    (checks, guesses): (&Arc<Checks>, &Arc<Guesses>),
    services: &dyn Services,
) -> Option<(CheckId, Job)> {
    let done = Arc::new(Mutex::new(None));
    let (slot, candidate) = (Arc::clone(&done), job.candidate.clone());
    let password = job.password;
    services
        .blocking(Box::new(move || {
            let verdict = candidate.check(&password);
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(verdict);
        }))
        .await;
    checks.made.fetch_add(1, Ordering::Relaxed);
    let verdict = done.lock().unwrap_or_else(PoisonError::into_inner).take();
    // A check that has panicked says nothing about the password.
    let verdict = verdict.unwrap_or(Err(NotChecked));
    let now = services.now();
    if !matches!(verdict, Ok(None)) {
        guesses.give_back(job.peer, now);
    }
    let mut inner = checks.inner()?;
    if let Ok(Some(user)) = &verdict {
        inner.verified.put(job.identity, user, job.generation, now);
    }
    let finished = inner.queue.finish(check);
    if let Some(told) = inner.told.remove(&check) {
        told.send_replace(Some(verdict));
    }
    finished.next
}

impl Way for BasicWay {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn check<'a>(
        &'a self,
        credential: Credential<'a>,
        head: RequestHead<'a>,
        services: &'a dyn Services,
    ) -> Check<'a> {
        let entered = self.enter(&credential.value, head.peer, services);
        entered.unwrap_or_else(|rejection| Check::Ready(Err(rejection)))
    }

    fn source(&self) -> Option<SourcePlan> {
        let (in_force, file) = (self.in_force.clone(), Arc::clone(&self.file));
        Some(watch_file(
            &self.properties.name,
            &self.file,
            (&self.revocations, &self.audit),
            move |revocations| in_force.set(&file, revocations),
        ))
    }
}
