//! A caller that the lock of a topic has let in to its webhooks, whichever interface is called.

use std::sync::Arc;

use component::access::{Caller, ReplyField};
use component::handler::Services;
use message::{Fault, Origin, RateLimit, Reply, Request};

use super::Managed;
use super::operations::Client;
use crate::access::{self, Entered};
use crate::caller_limits::{self, seen};
use crate::endpoint::Endpoint;
use crate::webhooks::subscriptions::record::Owner;

/// A caller of the webhooks of a topic, and what its reply has beside what it asks for.
pub(super) struct Admission {
    pub endpoint: Arc<Endpoint>,
    caller: Arc<Caller>,
    limits: Vec<(&'static str, String)>,
    fields: Vec<ReplyField>,
}

impl Admission {
    /// Takes the credentials out of a request that has been admitted.
    ///
    /// # Errors
    /// When there is no caller, whom `missing` tells that nothing is there.
    pub fn of(
        entered: Entered,
        request: &mut Request,
        missing: impl FnOnce() -> Fault,
    ) -> Result<Self, Fault> {
        let entered = vec![entered];
        let fields = access::reply_fields(&entered);
        let (endpoints, callers) = access::enter(entered, request);
        let endpoint = endpoints.into_iter().next();
        let caller = callers.into_iter().next().flatten();
        // The file has been refused when there is no lock.
        let (endpoint, caller) = endpoint.zip(caller).ok_or_else(missing)?;
        Ok(Self {
            endpoint,
            caller,
            limits: Vec::new(),
            fields,
        })
    }

    /// Has the request pass the limits of its caller, which are those of the topic. Where a path
    /// can name something of any topic, only a caller that may see it gets here: otherwise the
    /// limits would tell which names exist.
    ///
    /// # Errors
    /// When a limit is exceeded.
    pub async fn pass_limits(
        &mut self,
        request: &Request,
        services: &dyn Services,
    ) -> Result<(), Fault> {
        let Some(gate) = &self.endpoint.limits.subscribe else {
            return Ok(());
        };
        let seen = seen(request, Some(&self.caller));
        let passed = caller_limits::enter(gate, &seen, services).await?;
        let all = passed.fields.iter();
        let lines = all.flat_map(|it| RateLimit::fields(it));
        let lines = lines.map(|(name, value)| (name, value.to_owned()));
        self.limits = lines.collect();
        Ok(())
    }

    /// Who calls.
    ///
    /// # Errors
    /// As [`Owner::of`].
    pub fn client(&self, managed: &Managed, services: &dyn Services) -> Result<Client, Fault> {
        let now = services.wall().as_secs_f64();
        let operators = managed.operators.as_ref();
        Ok(Client {
            owner: Owner::of(&self.caller)?,
            is_operator: operators.is_some_and(|it| it.has(&self.caller, now)),
        })
    }

    /// The reply with what it tells of limits and credentials.
    pub fn complete(self, mut reply: Reply) -> Reply {
        for (name, value) in self.limits {
            reply.headers.append(name, value);
        }
        for (name, value) in self.fields {
            if reply.headers.get(name).is_none() {
                reply.headers.append(name, value);
            }
        }
        reply
    }
}

/// Logs why a request for the webhooks of a topic has failed.
pub(super) fn log_failure(managed: &Managed, fault: &Fault) {
    let (topic, error) = (&**managed.topic.name(), fault.to_string());
    match fault.origin {
        Origin::Client => {
            tracing::debug!(target: "topics", topic, error, "a request is refused");
        }
        Origin::Upstream | Origin::Engine => {
            tracing::warn!(target: "topics", topic, error, "a request for webhooks has failed");
        }
    }
}
