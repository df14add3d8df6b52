//! Opaque tokens of open streams: their issuer is asked about each of them again when its last
//! answer holds no more, once for all streams of a token.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use component::access::{Caller, Revocable, Validity};
use component::handler::{LocalFuture, Services};
use component::state::State;

use crate::answers::Answers;
use crate::introspect::Verdict;
use crate::revocation::{CredentialIds, Revocations};
use crate::source::Periodic;

/// How often tokens are looked for whose answer holds no more.
const EVERY: Duration = Duration::from_secs(1);
/// How many are asked about at a time.
const CONCURRENT: usize = 32;
/// How soon a question is asked again that got no answer.
const AGAIN: Duration = Duration::from_secs(5);
/// After how many times the time of an answer without one the streams of a token end.
const UNCONFIRMED_MAX: u32 = 3;
/// Why the streams of a token end of which its issuer says something else than before.
const INACTIVE: &str = "inactive";

/// The tokens that have opened streams.
#[derive(Default)]
pub(crate) struct OpenTokens(Mutex<HashMap<[u8; 32], OpenToken>>);

impl State for OpenTokens {}

/// A token that has opened streams.
struct OpenToken {
    token: Arc<[u8]>,
    /// One for each that its streams share: more than one where the issuer's answers differ, as
    /// when each moves the expiry on.
    opened: Vec<Opened>,
    /// When it is looked at next; none: at once.
    next: Option<Instant>,
    /// When its issuer was last known to have confirmed it.
    confirmed: Option<Instant>,
}

/// What streams have been opened by, and as whom.
struct Opened {
    validity: Weak<Validity>,
    way: Arc<str>,
    caller: Arc<str>,
    scopes: Vec<String>,
}

impl Opened {
    /// The validity, while a stream has it.
    fn validity(&self) -> Option<Arc<Validity>> {
        self.validity.upgrade().filter(|it| !it.is_revoked())
    }

    /// Revokes it; whether there was a stream.
    fn revoke(&self) -> bool {
        let validity = self.validity();
        validity.is_some_and(|validity| {
            validity.revoke();
            true
        })
    }
}

impl OpenTokens {
    fn all(&self) -> MutexGuard<'_, HashMap<[u8; 32], OpenToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A token as its issuer knows it, for the caller that it names.
pub(crate) struct OpaqueToken {
    pub revocations: Arc<Revocations>,
    pub open: Arc<OpenTokens>,
    /// What tells it from others.
    pub key: [u8; 32],
    pub token: Arc<[u8]>,
}

impl Revocable for OpaqueToken {
    fn is_denied(&self, caller: &Caller, now: &dyn Fn() -> u64) -> bool {
        let ids = || CredentialIds::of_token(caller);
        self.revocations.is_denied(ids, now)
    }

    fn validity(&self, caller: &Caller) -> Arc<Validity> {
        let ids = (CredentialIds::of_token(caller), Some(self.key));
        let validity = self.revocations.watch(caller, ids, None);
        if validity.is_revoked() {
            return validity;
        }
        let mut all = self.open.all();
        let token = all.entry(self.key).or_insert_with(|| OpenToken {
            token: Arc::clone(&self.token),
            opened: Vec::new(),
            next: None,
            confirmed: None,
        });
        let is_it = |it: &Opened| it.validity.as_ptr() == Arc::as_ptr(&validity);
        if !token.opened.iter().any(is_it) {
            token.opened.retain(|it| it.validity().is_some());
            token.opened.push(Opened {
                validity: Arc::downgrade(&validity),
                way: Arc::clone(&caller.way),
                caller: Arc::clone(&caller.id),
                scopes: caller.scopes.clone(),
            });
            token.next = None;
        }
        validity
    }
}

/// Asks the issuer about a token, through the answers that are kept.
pub(crate) trait Asking: Send + Sync {
    /// The question, which others may wait for too.
    fn ask<'a>(
        &'a self,
        key: [u8; 32],
        token: &Arc<[u8]>,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Verdict, &'static str>>;
}

/// What asks about the tokens of open streams again.
pub(crate) struct Recheck<A> {
    pub open: Arc<OpenTokens>,
    pub answers: Arc<Answers<Verdict>>,
    pub revocations: Arc<Revocations>,
    /// How long an answer holds.
    pub check: Duration,
    pub asking: A,
}

impl<A: Asking> Recheck<A> {
    /// Tells the audit stream which credentials were revoked.
    fn audit(&self, ended: &[Opened], reason: &str) {
        for Opened { way, caller, .. } in ended {
            self.revocations.audit_revoked(way, Some(caller), reason);
        }
    }

    /// The tokens whose last answer holds no more. Those with one that holds are put off until
    /// then.
    fn due(&self, now: Instant) -> Vec<([u8; 32], Arc<[u8]>)> {
        let mut due = Vec::new();
        let mut revoked = 0;
        self.open.all().retain(|key, it| {
            it.opened.retain(|it| it.validity().is_some());
            if it.opened.is_empty() {
                return false;
            }
            if it.next.is_some_and(|next| now < next) {
                return true;
            }
            let ended = match self.answers.kept_until(key, now) {
                Some((verdict, until)) => it.note(&Ok(verdict), until, now),
                None => {
                    due.push((*key, Arc::clone(&it.token)));
                    Vec::new()
                }
            };
            self.audit(&ended, INACTIVE);
            revoked += ended.len() as u64;
            !it.opened.is_empty()
        });
        self.revocations.end_streams(revoked);
        due
    }

    /// Takes the outcome of a question.
    fn settle(&self, key: &[u8; 32], asked: &Result<Verdict, &'static str>, now: Instant) {
        let kept = self.answers.kept_until(key, now);
        let until = match (asked, kept) {
            (Ok(_), Some((_, until))) => until,
            (Ok(_), None) => now + self.check,
            (Err(_), _) => now + self.check.min(AGAIN),
        };
        let mut all = self.open.all();
        let Some(token) = all.get_mut(key) else {
            return;
        };
        let unconfirmed = token.confirmed.map(|at| now.saturating_duration_since(at));
        let is_too_long = unconfirmed.is_some_and(|it| it > self.check * UNCONFIRMED_MAX);
        let mut ended = token.note(asked, until, now);
        if asked.is_err() && is_too_long {
            ended.append(&mut token.revoke_unless(|_| false));
        }
        if token.opened.is_empty() {
            all.remove(key);
        }
        drop(all);
        self.audit(&ended, if asked.is_ok() { INACTIVE } else { "no_answer" });
        self.revocations.end_streams(ended.len() as u64);
    }

    async fn ask_all(&self, due: &[([u8; 32], Arc<[u8]>)], services: &dyn Services) {
        let ask = |(key, token): &([u8; 32], Arc<[u8]>)| {
            let (key, asking) = (*key, self.asking.ask(*key, token, services));
            let work: LocalFuture<'_, ()> = Box::pin(async move {
                let asked = asking.await;
                self.settle(&key, &asked, services.now());
            });
            work
        };
        for part in due.chunks(CONCURRENT) {
            let mut works: Vec<_> = part.iter().map(ask).collect();
            poll_fn(|context| {
                works.retain_mut(|work| work.as_mut().poll(context).is_pending());
                match works.is_empty() {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
        }
    }
}

impl OpenToken {
    /// Notes what the issuer has said, and when it is looked at next. Revokes what is not as it was
    /// when its streams were opened, and gives that.
    fn note(
        &mut self,
        asked: &Result<Verdict, &'static str>,
        until: Instant,
        now: Instant,
    ) -> Vec<Opened> {
        self.next = Some(until);
        match asked {
            Ok(Ok(found)) => {
                let caller = &found.caller;
                self.confirmed = Some(now);
                self.revoke_unless(|it| caller.id == it.caller && caller.scopes == it.scopes)
            }
            Ok(Err(_)) => self.revoke_unless(|_| false),
            Err(_) => {
                // The time begins when nobody has said anything yet.
                self.confirmed = self.confirmed.or(Some(now));
                Vec::new()
            }
        }
    }

    /// Revokes what is not valid, and gives that of it which had a stream.
    fn revoke_unless(&mut self, is_valid: impl Fn(&Opened) -> bool) -> Vec<Opened> {
        let ended = self.opened.extract_if(.., |it| !is_valid(it));
        ended.filter(Opened::revoke).collect()
    }
}

impl<A: Asking> Periodic for Recheck<A> {
    fn turn<'a>(&'a self, _: bool, services: &'a dyn Services) -> LocalFuture<'a, Option<Instant>> {
        Box::pin(async move {
            let due = self.due(services.now());
            self.ask_all(&due, services).await;
            Some(services.now() + EVERY)
        })
    }
}

#[cfg(test)]
mod tests;
