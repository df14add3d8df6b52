//! Operations that change webhooks or have something sent to them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component::audit::EventKind;
use component::egress::Refusal as EgressRefusal;
use component::handler::Services;
use message::{Fault, Kind, Origin};

use super::super::Managed;
use super::super::body::Members;
use super::super::probe::{new_secret, new_subscription_id};
use super::super::wishes::Header;
use super::{Operations, conflict, missing, not_written};
use crate::event::EventId;
use crate::profile::Profile;
use crate::source::Start as StartAt;
use crate::webhooks::attempts::Attempt;
use crate::webhooks::delivery::Delivery;
use crate::webhooks::replay::Wanted;
use crate::webhooks::state::{Command, Stored};
use crate::webhooks::subscriptions::headers::HeaderLine;
use crate::webhooks::subscriptions::record::{
    Details, NewSubscription, Owner, RequestKey, SECRETS_MAX, Subscription,
};
use crate::webhooks::subscriptions::registry::{Known, Refusal, Start};
use crate::webhooks::subscriptions::{Changing, Reserving};
use crate::webhooks::times::now_ms;

/// How long a pause or its end may take, the note on the disk included.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a change waits for another one of the same subscription, and how often.
const CHANGE_PAUSE: Duration = Duration::from_millis(10);
const CHANGE_TURNS: u32 = 200;

/// A webhook that somebody wants to have.
pub(in super::super) struct Creation {
    pub members: Members,
    pub start: StartAt,
    /// The `Idempotency-Key` of the request.
    pub key: Option<RequestKey>,
    /// In whose manner it is made, where that is not our own.
    pub profile: Option<Profile>,
}

fn refused(refusal: &Refusal, managed: &Managed) -> Fault {
    let full = |detail: &'static str| {
        Fault::new(Kind::Unavailable, Origin::Engine, detail)
            .with_retry_after(Duration::from_secs(60))
    };
    match refusal {
        Refusal::TooMany => {
            let detail = format!("a caller has at most {} webhooks", managed.per_caller);
            Fault::new(Kind::Forbidden, Origin::Client, detail)
        }
        Refusal::Full => full("the topic has as many webhooks as it can"),
        Refusal::TooManyViews => full("the topic has as many different expressions as it can"),
        Refusal::OtherRequest => {
            let detail = "the `Idempotency-Key` has come with another request before";
            Fault::invalid(detail).with_status(422)
        }
        Refusal::InProgress => conflict("the request with this `Idempotency-Key` is under way")
            .with_retry_after(Duration::from_secs(1)),
    }
}

/// How events are sent, as it is kept: absent where it is the default.
fn custom_delivery(delivery: Delivery) -> Option<Delivery> {
    Some(delivery).filter(|it| *it != Delivery::default())
}

/// When a URL that is new is asked whether it wants events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Challenge {
    /// Behind the reply.
    InBackground,
    /// Before it: the caller hears how the URL has answered.
    Awaited,
}

/// What else a change does.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct UpdateOptions {
    pub challenge: Challenge,
    /// Whether the webhook is paused, too.
    pub pauses: bool,
}

impl Operations<'_> {
    /// Has the egress guard judge a URL.
    ///
    /// # Errors
    /// When it may not be called, or is none.
    fn check_url(&self, url: &str) -> Result<(), Fault> {
        match self.services.egress(url) {
            Ok(_) => Ok(()),
            Err(refusal @ EgressRefusal::Malformed(_)) => {
                Err(Fault::invalid(refusal.detail()).with_cause(refusal))
            }
            Err(refusal) => Err(refusal.into_fault()),
        }
    }

    /// Makes a webhook. Gives it with its secret; without that when the same request has made it
    /// before.
    ///
    /// # Errors
    /// When the URL may not be called, when there may be no more webhooks, when the caller has had
    /// too many challenges sent, or when the webhook may not be on the disk.
    pub async fn create(&self, creation: Creation) -> Result<(Known, Option<String>), Fault> {
        let (managed, client, services) = (self.managed, self.client, self.services);
        let Creation {
            members,
            start,
            key,
            profile,
        } = creation;
        self.check_url(&members.url)?;
        let started = managed.subscriptions.with(|it| {
            let wanted = (&client.owner, &members.view);
            it.start(wanted, key.as_ref(), managed.bounds())
        });
        let reserved = match started.map_err(|refusal| refused(&refusal, managed))? {
            Start::Reserved(reserved) => reserved,
            Start::Before(known) => return Ok((known, None)),
        };
        let (owner, view) = (Arc::clone(&reserved.owner), Arc::clone(&reserved.view));
        let reserving = Reserving::new(&managed.subscriptions, reserved);
        self.take_challenge(&owner)?;
        let now = now_ms(services);
        let id: Arc<str> = new_subscription_id()?.into();
        let details = Details {
            description: members.description.map(Into::into),
            delivery: custom_delivery(members.delivery),
            headers: self.seal_headers(&id, members.headers)?,
            request: key,
            profile,
        };
        let mut subscription = Subscription::new(NewSubscription {
            id,
            owner,
            view,
            url: members.url.into(),
            now_ms: now,
            details,
        });
        let secret = self.add_secret(&mut subscription, (now, 0))?;
        let made = (subscription, self.stored(start)?);
        let known = managed
            .subscriptions
            .create(reserving, made, managed.keyed()?)
            .await
            .map_err(|refusal| not_written(&refusal))?;
        self.audit(EventKind::WebhookCreated, &known.subscription.id);
        self.verify_in_background(&known);
        Ok((known, Some(secret)))
    }

    /// Takes the right to send a challenge, if one is sent: a webhook whose URL was never asked
    /// would wait for ever.
    fn take_challenge(&self, owner: &Owner) -> Result<(), Fault> {
        match self.managed.challenges {
            true => self.managed.pace.take(owner, self.services.now()),
            false => Ok(()),
        }
    }

    /// Gives a subscription a new secret; the text, which is shown once.
    fn add_secret(
        &self,
        subscription: &mut Subscription,
        times: (u64, u64),
    ) -> Result<String, Fault> {
        let secret = new_secret()?;
        let of = (&**self.managed.topic.name(), &*secret);
        let added = subscription.add_secret(of, times, &self.managed.keys);
        let failed = || Fault::new(Kind::Internal, Origin::Engine, "a secret cannot be made");
        added.ok_or_else(failed)?;
        Ok(secret)
    }

    /// Gives a subscription these header lines.
    fn seal_headers(&self, id: &str, headers: Vec<Header>) -> Result<Vec<HeaderLine>, Fault> {
        let managed = self.managed;
        let of = (&**managed.topic.name(), id);
        let lines = headers.into_iter().map(|header| match header {
            Header::Kept(line) => Some(line),
            Header::New(name, value) => HeaderLine::seal(of, (&name, &value), &managed.keys),
        });
        let failed = || Fault::new(Kind::Internal, Origin::Engine, "a header cannot be sealed");
        lines.collect::<Option<_>>().ok_or_else(failed)
    }

    /// Where a new subscription begins.
    fn stored(&self, start: StartAt) -> Result<Stored, Fault> {
        let log = self.managed.topic.log()?;
        let behind = match start {
            StartAt::Latest => log.next().sequence,
            StartAt::Earliest => log.first(),
        };
        let cursor: EventId = log.id(behind.saturating_sub(1));
        Ok(Stored::at(cursor))
    }

    /// Has the URL of a subscription asked whether it wants events. The caller does not wait: its
    /// receiver may need the secret first, which the reply to the caller has.
    fn verify_in_background(&self, known: &Known) {
        if !self.managed.challenges {
            return;
        }
        let (managed, known) = (Arc::clone(self.managed), known.clone());
        self.services.spawn(Box::new(move |services| {
            Box::pin(async move {
                let topic = &**managed.topic.name();
                let endpoint = &*known.subscription.id;
                let result = verify(&managed, &known, services).await;
                if let Err(fault) = result {
                    let error = fault.to_string();
                    tracing::info!(
                        target: "topics", topic, endpoint, error,
                        "a webhook has not answered its challenge"
                    );
                }
            })
        }));
    }

    /// Changes the members of a webhook: `patch` gives them as they are to be. It is not written
    /// when nothing changes. With `pauses` it is also paused, once nothing but the disk can refuse
    /// the change, and before the change is seen.
    ///
    /// # Errors
    /// As [`Operations::settled`], what `patch` says, and as [`Operations::create`]; as
    /// [`Operations::pause`] with `pauses`; as [`Operations::verify`] where a challenge is awaited:
    /// the change has been made then.
    pub async fn update(
        &self,
        id: &str,
        patch: impl FnOnce(Members) -> Result<Members, Fault>,
        UpdateOptions { challenge, pauses }: UpdateOptions,
    ) -> Result<Known, Fault> {
        let (managed, services) = (self.managed, self.services);
        let changing = self.changing(id).await?;
        if pauses {
            self.check_verified(&changing.known)?;
        }
        let before = &changing.known.subscription;
        let members = Members::of(before);
        let patched = patch(members.clone())?;
        if patched == members {
            if pauses {
                self.pause(&changing.known).await?;
            }
            return Ok(changing.known.clone());
        }
        let members = patched;
        let is_moved = *members.url != *before.url;
        if is_moved {
            self.check_url(&members.url)?;
            self.take_challenge(&before.owner)?;
        }
        let view = managed.subscriptions.with(|it| {
            it.check_view(&members.view, managed.bounds())?;
            Ok(it.view(&members.view))
        });
        let view = view.map_err(|refusal| refused(&refusal, managed))?;
        let mut after = before.changed(now_ms(services));
        after.url = members.url.into();
        after.view = view;
        after.is_verified &= !is_moved;
        after.set_details(Details {
            description: members.description.map(Into::into),
            delivery: custom_delivery(members.delivery),
            headers: self.seal_headers(&before.id, members.headers)?,
            ..before.details().clone()
        });
        if pauses {
            self.pause(&changing.known).await?;
        }
        let known = self.write(&changing, after).await?;
        drop(changing);
        self.audit(EventKind::WebhookChanged, &known.subscription.id);
        match challenge {
            Challenge::InBackground if is_moved => self.verify_in_background(&known),
            Challenge::Awaited if is_moved && managed.challenges => {
                verify(managed, &known, services).await?;
            }
            _ => {}
        }
        Ok(known)
    }

    async fn write(&self, changing: &Changing, after: Subscription) -> Result<Known, Fault> {
        let keyed = self.managed.keyed()?;
        let written = self.managed.subscriptions.change(changing, after, keyed);
        written.await.map_err(|refusal| not_written(&refusal))
    }

    /// Deletes a webhook.
    ///
    /// # Errors
    /// As [`Operations::settled`], and when that may not be on the disk.
    pub async fn delete(&self, id: &str) -> Result<(), Fault> {
        let changing = self.changing(id).await?;
        let keyed = self.managed.keyed()?;
        let deleted = self.managed.subscriptions.delete(&changing, keyed).await;
        deleted.map_err(|refusal| not_written(&refusal))?;
        let id = &changing.known.subscription.id;
        self.audit(EventKind::WebhookDeleted, id);
        Ok(())
    }

    fn is_unverified(&self, known: &Known) -> bool {
        self.managed.challenges && !known.subscription.is_verified
    }

    fn check_verified(&self, known: &Known) -> Result<(), Fault> {
        match self.is_unverified(known) {
            true => Err(conflict("the URL has not answered a challenge yet")),
            false => Ok(()),
        }
    }

    /// Has nothing sent to a webhook until it is resumed.
    ///
    /// # Errors
    /// 409 when its URL has not answered a challenge; when that may not be on the disk.
    pub async fn pause(&self, known: &Known) -> Result<(), Fault> {
        self.check_verified(known)?;
        command(known, Command::Pause).await?;
        self.audit(EventKind::WebhookPaused, &known.subscription.id);
        Ok(())
    }

    /// Has a webhook go on, whatever it was stopped for.
    ///
    /// # Errors
    /// As [`Operations::pause`].
    pub async fn resume(&self, known: &Known) -> Result<(), Fault> {
        self.check_verified(known)?;
        command(known, Command::Resume).await?;
        self.audit(EventKind::WebhookResumed, &known.subscription.id);
        Ok(())
    }

    /// Has the URL of a webhook asked whether it wants events, unless it has answered that.
    ///
    /// # Errors
    /// 409 when it does not answer with the challenge, 429 when the caller has had too many sent.
    pub async fn verify(&self, known: &Known) -> Result<(), Fault> {
        if !self.is_unverified(known) {
            return Ok(());
        }
        self.take_challenge(&known.subscription.owner)?;
        verify(self.managed, known, self.services).await
    }

    /// Sends a request that is no event to a webhook, to try it: with this JSON text as its body,
    /// or with one of ours.
    ///
    /// # Errors
    /// 409 when its URL has not answered a challenge, 403 when it may not be called, 429 when the
    /// caller has had too many sent.
    pub async fn test(&self, known: &Known, body: Option<Bytes>) -> Result<Attempt, Fault> {
        self.check_verified(known)?;
        let (managed, subscription) = (self.managed, &known.subscription);
        managed.test(subscription, body, self.services).await
    }

    /// Has events sent again that a webhook has got.
    ///
    /// # Errors
    /// As [`Operations::pause`]; 404 when there are no such events, 429 when the caller has had too
    /// much sent.
    pub async fn replay(&self, known: &Known, wanted: Wanted) -> Result<(), Fault> {
        self.check_verified(known)?;
        let owner = &known.subscription.owner;
        self.managed.pace.take(owner, self.services.now())?;
        command(known, known.state.replay(wanted).await?).await?;
        self.audit(EventKind::WebhookReplayed, &known.subscription.id);
        Ok(())
    }

    /// Gives a webhook a new secret; the one before signs beside it for so many seconds. Gives the
    /// secret as well, which is shown once.
    ///
    /// # Errors
    /// As [`Operations::settled`]; 409 when too many sign already, and when the secret may not be
    /// on the disk.
    pub async fn rotate(&self, id: &str, overlap: u64) -> Result<(Known, String), Fault> {
        let changing = self.changing(id).await?;
        let now = now_ms(self.services);
        let before = &changing.known.subscription;
        if overlap > 0 && before.valid_secrets(now).count() >= SECRETS_MAX {
            let detail = format!(
                "{SECRETS_MAX} secrets sign already: wait until one expires, or write \
                 `overlap: 0`, which ends all of them"
            );
            return Err(Fault::invalid(detail).with_status(409));
        }
        let mut after = before.changed(now);
        let secret = self.add_secret(&mut after, (now, overlap * 1000))?;
        let known = self.write(&changing, after).await?;
        self.audit(EventKind::WebhookSecretRotated, &known.subscription.id);
        Ok((known, secret))
    }
}

/// Takes a subscription to change it, when whoever else changes it is done.
pub(super) async fn begin(managed: &Managed, id: &str) -> Result<Changing, Fault> {
    for _ in 0..CHANGE_TURNS {
        let changing = managed.subscriptions.begin_change(id);
        if let Some(changing) = changing.map_err(|_| missing())? {
            return Ok(changing);
        }
        tokio::time::sleep(CHANGE_PAUSE).await;
    }
    Err(conflict("the webhook is being changed").with_retry_after(Duration::from_secs(1)))
}

/// Has a subscription pause or go on; it is on the disk then.
async fn command(known: &Known, command: Command) -> Result<(), Fault> {
    let late = || {
        let detail = "the change may not be on the disk";
        Fault::new(Kind::Unavailable, Origin::Engine, detail)
            .with_retry_after(Duration::from_secs(5))
    };
    let asking = async {
        // One that is new, or has changed, is taken by its worker in a moment.
        loop {
            if let Some(asked) = known.state.ask(command) {
                return asked.await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(late()),
    }
}

/// Has the URL of a subscription asked whether it wants events, and notes that it does.
async fn verify(
    managed: &Arc<Managed>,
    known: &Known,
    services: &dyn Services,
) -> Result<(), Fault> {
    if !managed.challenge(&known.subscription, services).await? {
        return Err(conflict(
            "the URL has not answered with the challenge that was sent to it",
        ));
    }
    let changing = begin(managed, &known.subscription.id).await?;
    let now = &changing.known.subscription;
    if now.url != known.subscription.url {
        return Err(conflict("the URL has been changed meanwhile"));
    }
    if now.is_verified {
        return Ok(());
    }
    let mut after = now.changed(now_ms(services));
    after.is_verified = true;
    let written = managed
        .subscriptions
        .change(&changing, after, managed.keyed()?)
        .await;
    written.map(drop).map_err(|refusal| not_written(&refusal))
}
