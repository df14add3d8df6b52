//! Requests that change webhooks or have something sent to them.

use std::sync::Arc;
use std::time::Duration;

use component::audit::EventKind;
use component::egress::Refusal as EgressRefusal;
use component::handler::Services;
use message::{Fault, Kind, Origin, Reply, Request};
use serde_json::{Value, json};

use super::super::probe::{new_id, new_secret, now_ms};
use super::super::{Managed, body, show};
use super::{Action, Client, ManageHandler, Named, conflict, missing, not_written};
use crate::event::EventId;
use crate::source::Start as StartAt;
use crate::webhooks::delivery::Delivery;
use crate::webhooks::manage::body::Members;
use crate::webhooks::manage::wishes::Header;
use crate::webhooks::state::{Command, Stored};
use crate::webhooks::subscriptions::headers::HeaderLine;
use crate::webhooks::subscriptions::record::{ID_PREFIX, Owner, SECRETS_MAX, Subscription};
use crate::webhooks::subscriptions::registry::{Known, Refusal, Start};
use crate::webhooks::subscriptions::{Changing, Reserving};

/// How long a pause or its end may take, the note on the disk included.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a change waits for another one of the same subscription, and how often.
const CHANGE_PAUSE: Duration = Duration::from_millis(10);
const CHANGE_TURNS: u32 = 200;

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

/// What is kept of how events are sent: nothing where they are sent as to most.
fn shared_delivery(delivery: Delivery) -> Option<Box<Delivery>> {
    (delivery != Delivery::default()).then(|| Box::new(delivery))
}

/// Has the egress guard judge a URL.
fn check_url(url: &str, services: &dyn Services) -> Result<(), Fault> {
    match services.egress(url) {
        Ok(_) => Ok(()),
        Err(refusal @ EgressRefusal::Malformed(_)) => {
            Err(Fault::invalid(refusal.detail()).with_cause(refusal))
        }
        Err(refusal) => Err(refusal.into_fault()),
    }
}

impl ManageHandler {
    pub(super) async fn create(
        &self,
        request: &Request,
        client: &Client,
        services: &dyn Services,
    ) -> Result<Reply, Fault> {
        let managed = &self.managed;
        let (members, start) = body::created(request, managed)?;
        check_url(&members.url, services)?;
        let key = body::request_key(request)?;
        let started = managed.subscriptions.with(|it| {
            let wanted = (&client.owner, &members.view);
            it.start(wanted, key.as_ref(), managed.bounds())
        });
        let reserved = match started.map_err(|refusal| refused(&refusal, managed))? {
            Start::Reserved(reserved) => reserved,
            Start::Before(known) => {
                let content = self.shown(&known, client, services);
                return Ok(show::resource(200, &known, &content));
            }
        };
        let (owner, view) = (Arc::clone(&reserved.owner), Arc::clone(&reserved.view));
        let reserving = Reserving::new(&managed.subscriptions, reserved);
        self.take_challenge(&owner, services)?;
        let now = now_ms(services);
        let mut subscription = Subscription {
            id: new_id(ID_PREFIX)?.into(),
            owner,
            view,
            url: members.url.into(),
            description: members.description.map(Into::into),
            delivery: shared_delivery(members.delivery),
            headers: Box::default(),
            secrets: Box::default(),
            version: 1,
            created: now,
            updated: now,
            is_verified: false,
            request: key.map(Box::new),
        };
        let secret = self.add_secret(&mut subscription, (now, 0))?;
        self.seal_headers(&mut subscription, members.headers)?;
        let made = (subscription, self.stored(start)?);
        let known = managed
            .subscriptions
            .create(reserving, made, managed.keyed()?)
            .await
            .map_err(|refusal| not_written(&refusal))?;
        self.audit(EventKind::WebhookCreated, request, &known.subscription.id);
        self.verify_in_background(&known, services);
        let mut content = self.shown(&known, client, services);
        reveal(&mut content, &secret);
        let mut reply = show::resource(201, &known, &content);
        let location = format!("{}/{}", request.path, known.subscription.id);
        reply.headers.append("Location", location);
        Ok(reply)
    }

    /// Takes the right to send a challenge, if one is sent: a webhook whose URL was never asked
    /// would wait for ever.
    fn take_challenge(&self, owner: &Owner, services: &dyn Services) -> Result<(), Fault> {
        match self.managed.challenges {
            true => self.managed.pace.take(owner, services.now()),
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
    fn seal_headers(
        &self,
        subscription: &mut Subscription,
        headers: Vec<Header>,
    ) -> Result<(), Fault> {
        let managed = &self.managed;
        let of = (&**managed.topic.name(), &*subscription.id);
        let lines = headers.into_iter().map(|header| match header {
            Header::Kept(line) => Some(line),
            Header::New(name, value) => HeaderLine::seal(of, (&name, &value), &managed.keys),
        });
        let failed = || Fault::new(Kind::Internal, Origin::Engine, "a header cannot be sealed");
        subscription.headers = lines.collect::<Option<_>>().ok_or_else(failed)?;
        Ok(())
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
    fn verify_in_background(&self, known: &Known, services: &dyn Services) {
        if !self.managed.challenges {
            return;
        }
        let (managed, known) = (Arc::clone(&self.managed), known.clone());
        services.spawn(Box::new(move |services| {
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

    pub(super) async fn update(
        &self,
        request: &Request,
        client: &Client,
        services: &dyn Services,
    ) -> Result<Reply, Fault> {
        let managed = &self.managed;
        let changing = self.changing(request, client).await?;
        let before = &changing.known.subscription;
        let members = Members {
            url: before.url.to_string(),
            description: before.description.as_deref().map(str::to_owned),
            view: (*before.view).clone(),
            delivery: before.delivery(),
            headers: before.headers.iter().cloned().map(Header::Kept).collect(),
        };
        let patched = body::patched(request, members.clone(), managed)?;
        if patched == members {
            let content = self.shown(&changing.known, client, services);
            return Ok(show::resource(200, &changing.known, &content));
        }
        let members = patched;
        let is_moved = *members.url != *before.url;
        if is_moved {
            check_url(&members.url, services)?;
            self.take_challenge(&before.owner, services)?;
        }
        let view = managed.subscriptions.with(|it| {
            it.check_view(&members.view, managed.bounds())?;
            Ok(it.view(&members.view))
        });
        let view = view.map_err(|refusal| refused(&refusal, managed))?;
        let mut after = before.changed(now_ms(services));
        after.url = members.url.into();
        after.description = members.description.map(Into::into);
        after.view = view;
        after.is_verified &= !is_moved;
        after.delivery = shared_delivery(members.delivery);
        self.seal_headers(&mut after, members.headers)?;
        let known = self.write(&changing, after).await?;
        drop(changing);
        self.audit(EventKind::WebhookChanged, request, &known.subscription.id);
        if is_moved {
            self.verify_in_background(&known, services);
        }
        let content = self.shown(&known, client, services);
        Ok(show::resource(200, &known, &content))
    }

    async fn write(&self, changing: &Changing, after: Subscription) -> Result<Known, Fault> {
        let managed = &self.managed;
        let keyed = managed.keyed()?;
        let written = managed.subscriptions.change(changing, after, keyed).await;
        written.map_err(|refusal| not_written(&refusal))
    }

    pub(super) async fn delete(&self, request: &Request, client: &Client) -> Result<Reply, Fault> {
        let changing = self.changing(request, client).await?;
        let keyed = self.managed.keyed()?;
        let deleted = self.managed.subscriptions.delete(&changing, keyed).await;
        deleted.map_err(|refusal| not_written(&refusal))?;
        let id = &changing.known.subscription.id;
        self.audit(EventKind::WebhookDeleted, request, id);
        Ok(Reply::new(204))
    }

    pub(super) async fn act(
        &self,
        action: Action,
        request: &Request,
        client: &Client,
        services: &dyn Services,
    ) -> Result<Reply, Fault> {
        if let Action::Rotate = action {
            return self.rotate(request, client, services).await;
        }
        let managed = &self.managed;
        let changing = self.changing(request, client).await?;
        let known = changing.known.clone();
        // What follows waits for others, and changes nothing that is written here.
        drop(changing);
        let is_unverified = self.managed.challenges && !known.subscription.is_verified;
        if is_unverified && action != Action::Verify {
            return Err(conflict("the URL has not answered a challenge yet"));
        }
        match action {
            Action::Pause => {
                command(&known, Command::Pause).await?;
                self.audit(EventKind::WebhookPaused, request, &known.subscription.id);
            }
            Action::Resume => {
                command(&known, Command::Resume).await?;
                self.audit(EventKind::WebhookResumed, request, &known.subscription.id);
            }
            Action::Verify if is_unverified => {
                self.take_challenge(&known.subscription.owner, services)?;
                verify(&self.managed, &known, services).await?;
            }
            Action::Test => {
                let probed = self.managed.test(&known.subscription, services).await?;
                return Ok(show::reply(200, &show::attempt(&probed.attempt)));
            }
            Action::Replay => {
                let wanted = body::replay(request)?;
                managed
                    .pace
                    .take(&known.subscription.owner, services.now())?;
                command(&known, known.state.replay(wanted).await?).await?;
                self.audit(EventKind::WebhookReplayed, request, &known.subscription.id);
            }
            Action::Verify | Action::Rotate => {}
        }
        // As it is now.
        let Named::Subscription(known) = self.named(request, client)? else {
            return Err(missing());
        };
        let content = self.shown(&known, client, services);
        Ok(show::resource(200, &known, &content))
    }

    async fn rotate(
        &self,
        request: &Request,
        client: &Client,
        services: &dyn Services,
    ) -> Result<Reply, Fault> {
        let overlap = body::overlap(request)?;
        let changing = self.changing(request, client).await?;
        let now = now_ms(services);
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
        let kind = EventKind::WebhookSecretRotated;
        self.audit(kind, request, &known.subscription.id);
        let mut content = self.shown(&known, client, services);
        reveal(&mut content, &secret);
        Ok(show::resource(200, &known, &content))
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

/// Shows the current secret, this once.
fn reveal(content: &mut Value, secret: &str) {
    if let Some(place) = content.pointer_mut("/secrets/0/secret") {
        *place = json!(secret);
    }
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
