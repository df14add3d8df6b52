//! The credential of a connection that names topics again and again: a door judges it once, and
//! again only when its state may have changed.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use component::access::{Admitted, Caller, RequestHead};
use component::handler::Services;
use message::{Reply, Request};

use super::Lock;

/// For how long a verdict holds: files of keys and the deny list take effect within a second.
const VERDICT_TIME: Duration = Duration::from_secs(1);

/// What doors have said of the credential of one connection.
#[derive(Default)]
pub(crate) struct Verdicts(RefCell<Vec<Verdict>>);

struct Verdict {
    lock: Lock,
    until: Instant,
    outcome: Result<Arc<Caller>, Box<Reply>>,
}

/// Who wants to do something with topics.
#[derive(Clone, Copy)]
pub(crate) struct Client<'a> {
    pub request: &'a Request,
    pub services: &'a dyn Services,
    /// Verdicts on the same request, for clients that come again with it.
    pub verdicts: Option<&'a Verdicts>,
}

impl<'a> From<(&'a Request, &'a dyn Services)> for Client<'a> {
    fn from((request, services): (&'a Request, &'a dyn Services)) -> Self {
        Self {
            request,
            services,
            verdicts: None,
        }
    }
}

impl Client<'_> {
    /// What this lock's door says: `None` when it wants the body. An earlier verdict that still
    /// holds gives the caller alone, without what is to be taken out of the request.
    pub(super) async fn judge(self, lock: &Lock) -> Result<Option<Admitted>, Box<Reply>> {
        let now = self.services.now();
        if let Some(outcome) = self.verdicts.and_then(|it| it.find(lock, now, self)) {
            let admitted = |caller| Admitted {
                caller,
                strip: None,
                implied: None,
                settlement: None,
                reply_fields: Vec::new(),
                successor: None,
            };
            return outcome.map(admitted).map(Some);
        }
        let head = RequestHead::of(self.request);
        let judged = lock.door.judge(head, self.services).end().await;
        if let Some(verdicts) = self.verdicts {
            match &judged {
                Ok(Some(admitted)) => verdicts.keep(lock, now, Ok(Arc::clone(&admitted.caller))),
                Err(reply) if matches!(reply.status, 400 | 401 | 403) => {
                    verdicts.keep(lock, now, Err(reply.clone()));
                }
                // The door could not tell, or did not look.
                Ok(None) | Err(_) => {}
            }
        }
        judged
    }
}

impl Verdicts {
    fn find(
        &self,
        lock: &Lock,
        now: Instant,
        client: Client<'_>,
    ) -> Option<Result<Arc<Caller>, Box<Reply>>> {
        let verdicts = self.0.borrow();
        let is_same = |it: &&Verdict| Arc::ptr_eq(&it.lock.door, &lock.door) && now < it.until;
        let found = verdicts.iter().find(is_same)?;
        let now = || client.services.wall().as_secs();
        let is_valid = match &found.outcome {
            Ok(caller) => caller.expires.is_none_or(|at| now() < at) && !caller.is_denied(&now),
            Err(_) => true,
        };
        is_valid.then(|| found.outcome.clone())
    }

    fn keep(&self, lock: &Lock, now: Instant, outcome: Result<Arc<Caller>, Box<Reply>>) {
        let mut verdicts = self.0.borrow_mut();
        verdicts.retain(|it| now < it.until && !Arc::ptr_eq(&it.lock.door, &lock.door));
        verdicts.push(Verdict {
            lock: lock.clone(),
            until: now + VERDICT_TIME,
            outcome,
        });
    }
}
