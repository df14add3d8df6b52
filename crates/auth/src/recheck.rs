//! Opaque tokens of open streams: their issuer is asked about each of them again when its last
//! answer holds no more, once for all streams of a token.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use component::access::{Caller, Revocable, Validity};
use component::handler::{LocalFuture, Services};
use component::source::{Source, Started};
use component::state::State;

use crate::answers::Answers;
use crate::introspect::Verdict;
use crate::revocation::{Names, Revocations};
use crate::source::wait_until;

/// How often tokens are looked for whose answer holds no more.
const EVERY: Duration = Duration::from_secs(1);
/// How many are asked about at a time.
const CONCURRENT: usize = 32;
/// How soon a question is asked again that got no answer.
const AGAIN: Duration = Duration::from_secs(5);
/// After how many times the time of an answer without one the streams of a token end.
const UNCONFIRMED_MAX: u32 = 3;

/// The tokens that have opened streams.
#[derive(Default)]
pub(crate) struct OpenTokens(Mutex<HashMap<[u8; 32], OpenToken>>);

impl State for OpenTokens {}

/// A token that has opened a stream.
struct OpenToken {
    validity: Weak<Validity>,
    token: Arc<[u8]>,
    caller: Arc<str>,
    scopes: Vec<String>,
    /// When it is looked at next; none: at once.
    next: Option<Instant>,
    /// When its issuer was last known to have confirmed it.
    confirmed: Option<Instant>,
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
        let names = || Names::of_token(caller);
        self.revocations.is_denied(names, now)
    }

    fn validity(&self, caller: &Caller) -> Arc<Validity> {
        let names = (Names::of_token(caller), Some(self.key));
        let validity = self.revocations.watch(caller, names, None);
        let mut all = self.open.all();
        let known = all.get(&self.key);
        let is_known = known.is_some_and(|it| it.validity.as_ptr() == Arc::as_ptr(&validity));
        if !is_known && !validity.is_revoked() {
            let token = OpenToken {
                validity: Arc::downgrade(&validity),
                token: Arc::clone(&self.token),
                caller: Arc::clone(&caller.id),
                scopes: caller.scopes.clone(),
                next: None,
                confirmed: None,
            };
            all.insert(self.key, token);
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
    /// The tokens whose last answer holds no more. Those with one that holds are put off until
    /// then.
    fn due(&self, now: Instant) -> Vec<([u8; 32], Arc<[u8]>)> {
        let mut due = Vec::new();
        let mut revoked = 0;
        self.open.all().retain(|key, it| {
            let Some(validity) = it.validity.upgrade().filter(|it| !it.is_revoked()) else {
                return false;
            };
            if it.next.is_some_and(|next| now < next) {
                return true;
            }
            let is_valid = match self.answers.kept_until(key, now) {
                Some((verdict, until)) => it.note(&Ok(verdict), until, now),
                None => {
                    due.push((*key, Arc::clone(&it.token)));
                    true
                }
            };
            if !is_valid {
                validity.revoke();
                revoked += 1;
            }
            is_valid
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
        let is_valid = token.note(asked, until, now) && !(asked.is_err() && is_too_long);
        if is_valid {
            return;
        }
        let token = all.remove(key);
        drop(all);
        if let Some(validity) = token.and_then(|it| it.validity.upgrade()) {
            validity.revoke();
            self.revocations.end_streams(1);
        }
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
    /// Notes what the issuer has said, and when it is looked at next. False: the token is not what
    /// it was when its streams were opened.
    fn note(
        &mut self,
        asked: &Result<Verdict, &'static str>,
        until: Instant,
        now: Instant,
    ) -> bool {
        self.next = Some(until);
        match asked {
            Ok(Ok(found)) => {
                let caller = &found.caller;
                self.confirmed = Some(now);
                caller.id == self.caller && caller.scopes == self.scopes
            }
            Ok(Err(_)) => false,
            Err(_) => {
                // The time begins when nobody has said anything yet.
                self.confirmed = self.confirmed.or(Some(now));
                true
            }
        }
    }
}

impl<A: Asking> Source for Recheck<A> {
    fn run<'a>(
        &'a self,
        _: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        mut stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            loop {
                let due = self.due(services.now());
                self.ask_all(&due, services).await;
                if !wait_until(services.now() + EVERY, &mut stop, services).await {
                    return;
                }
            }
        })
    }
}

#[cfg(test)]
mod tests;
