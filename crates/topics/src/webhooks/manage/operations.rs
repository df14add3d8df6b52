//! What a caller can do with the webhooks of a topic, whichever interface says it. Interfaces read
//! requests and write replies; whose a webhook is, what may be done with it and what the audit
//! stream is told is decided here. A webhook belongs to the caller that has made it: to others it
//! does not exist.

mod change;

use std::sync::Arc;
use std::time::Duration;

use component::audit::{Event as AuditEvent, EventKind};
use component::handler::Services;
use journal::Refusal as NotWritten;
use message::{Fault, Kind, Origin, Request};
use serde_json::json;

pub(super) use self::change::{Challenge, Creation, UpdateOptions};
use super::Managed;
use super::show::entity_tag;
use crate::endpoint::Endpoint;
use crate::entity_tag::{Comparison, is_listed};
use crate::webhooks::attempts::Attempt;
use crate::webhooks::plan::EndpointPlan;
use crate::webhooks::subscriptions::Changing;
use crate::webhooks::subscriptions::record::Owner;
use crate::webhooks::subscriptions::registry::{Known, Registry};

/// Who calls.
pub(super) struct Client {
    pub owner: Owner,
    pub is_operator: bool,
}

impl Client {
    /// Whether a subscription exists for this client.
    pub fn sees(&self, known: &Known) -> bool {
        self.is_operator || *known.subscription.owner == self.owner
    }
}

/// What somebody has named.
pub(super) enum Named {
    Subscription(Known),
    File(Arc<EndpointPlan>),
}

/// What a caller can do with the webhooks of a topic.
pub(super) struct Operations<'a> {
    pub endpoint: &'a Endpoint,
    pub managed: &'a Arc<Managed>,
    pub client: &'a Client,
    /// The request that is served: its `If-Match`, and where it comes from.
    pub request: &'a Request,
    pub services: &'a dyn Services,
}

/// What is said of a webhook that does not exist, or that belongs to somebody else.
fn missing() -> Fault {
    Fault::invalid("there is no such webhook").with_status(404)
}

/// What is said where the state of a webhook does not allow something.
fn conflict(detail: &'static str) -> Fault {
    Fault::invalid(detail).with_status(409)
}

fn not_written(refusal: &NotWritten) -> Fault {
    let detail = "the change may not be on the disk";
    Fault::new(Kind::Unavailable, Origin::Engine, detail)
        .with_cause(refusal)
        .with_retry_after(Duration::from_secs(5))
}

impl Operations<'_> {
    /// Tells the audit stream who has done what with a webhook.
    fn audit(&self, kind: EventKind, id: &str) {
        self.endpoint.audit.record(|| {
            let entry = json!({ "topic": &**self.managed.topic.name(), "endpoint": id });
            let event = AuditEvent::success(kind).of_request(self.request);
            event.with("entry", entry)
        });
    }

    /// Looks at those that this client sees: its own, or all.
    pub fn look<T>(&self, look: impl FnOnce(&Registry, Option<&Owner>) -> T) -> T {
        let owner = (!self.client.is_operator).then_some(&self.client.owner);
        self.managed.subscriptions.with(|it| look(it, owner))
    }

    /// The endpoints of the file, if this client may see them.
    pub fn files(&self) -> impl Iterator<Item = &Arc<EndpointPlan>> {
        let files = self.managed.files.iter();
        files.filter(|_| self.client.is_operator)
    }

    /// What an id names, if this client may see it.
    ///
    /// # Errors
    /// 404 when it may not, or when there is none.
    pub fn named(&self, id: &str) -> Result<Named, Fault> {
        if let Some(known) = self.managed.subscriptions.get(id) {
            return match self.client.sees(&known) {
                true => Ok(Named::Subscription(known)),
                false => Err(missing()),
            };
        }
        let file = self.files().find(|it| &*it.state.name == id);
        file.map(|it| Named::File(Arc::clone(it)))
            .ok_or_else(missing)
    }

    /// The subscription of this id as it is now.
    ///
    /// # Errors
    /// As [`Operations::named`], and when it is an endpoint of the file.
    pub fn subscription(&self, id: &str) -> Result<Known, Fault> {
        match self.named(id)? {
            Named::Subscription(known) => Ok(known),
            Named::File(_) => Err(missing()),
        }
    }

    /// What has been sent to an endpoint lately and what it has answered, the newest first.
    ///
    /// # Errors
    /// As [`Operations::named`].
    pub fn attempts(&self, id: &str) -> Result<Vec<Attempt>, Fault> {
        let state = match self.named(id)? {
            Named::Subscription(known) => known.state,
            Named::File(plan) => Arc::clone(&plan.state),
        };
        Ok(self.managed.attempts.list((state.topic(), &state.name)))
    }

    /// A subscription that is about to be changed.
    async fn changing(&self, id: &str) -> Result<Changing, Fault> {
        let known = match self.named(id)? {
            Named::Subscription(known) => known,
            Named::File(_) => {
                let detail = "the webhook is described in a file, and changed there";
                return Err(Fault::new(Kind::Forbidden, Origin::Client, detail));
            }
        };
        let changing = change::begin(self.managed, &known.subscription.id).await?;
        self.check_match(&changing.known)?;
        Ok(changing)
    }

    /// A subscription that something is done with that changes nothing of what is written of it,
    /// once nobody else changes that.
    ///
    /// # Errors
    /// As [`Operations::named`], 403 for an endpoint of the file, 409 when somebody else changes it
    /// for long, 412 when it is not the one that the client has read.
    pub async fn settled(&self, id: &str) -> Result<Known, Fault> {
        let changing = self.changing(id).await?;
        Ok(changing.known.clone())
    }

    /// Compares the entity tags of `If-Match` (RFC 9110, section 13.1.1), where a request has it.
    fn check_match(&self, known: &Known) -> Result<(), Fault> {
        let (headers, own) = (&self.request.headers, entity_tag(&known.subscription));
        let is_match = is_listed(headers, "If-Match", &own, Comparison::Strong);
        match is_match {
            None | Some(true) => Ok(()),
            Some(false) => {
                let detail = "the webhook has been changed since: read it again";
                Err(Fault::invalid(detail).with_status(412))
            }
        }
    }
}
