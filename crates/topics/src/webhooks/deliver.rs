//! What is done beside the loop that decides: requests, dead letters, reading.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use component::handler::{Call, Services};
use message::{Fault, Reply, Request};
use steps::status_fault;
use steps::store::StoreWriter;

use super::attempts::{Attempt, WebhookId, redacted};
use super::machine::{DeadLetterReason, Outcome, Span};
use super::plan::{EndpointPlan, Outgoing};
use super::post::{Post, RequestBuild};
use super::reports::DeadLetters;
use super::times::now_ms;
use super::view::{Shown, ViewPlan, Viewer};
use crate::frame::Kind;
use crate::topic::{History, Topic};

/// How long nothing is done about a topic that cannot be read.
pub(super) const PAUSE: Duration = Duration::from_secs(5);
/// How long the body of a reply is waited for: nothing depends on it.
pub(super) const BODY_TIME: Duration = Duration::from_secs(1);
/// The most bytes of a reply that are kept: enough to say in a log what is wrong.
const REPLY_MAX: u64 = 1024;
/// How much of a reply a log shows.
const SHOWN_MAX: usize = 200;
/// How many bytes of events are read at once that are sent again.
const AGAIN_BYTES: usize = 1 << 20;

/// Events of an endpoint, and what there is of them in memory.
pub(super) struct Parcel {
    pub topic: Arc<Topic>,
    pub plan: Arc<EndpointPlan>,
    pub span: Span,
    /// What between its bounds is done, and does not belong to it: first and last of each run. The
    /// view left these events out when the batch was begun.
    pub done: Vec<(u64, u64)>,
    pub shown: Vec<Rc<Shown>>,
}

/// What has come of a request, and what a log says of it.
pub(super) struct Report {
    pub outcome: Outcome,
    pub reason: Option<String>,
    /// The same where owners of the endpoint may read it.
    pub reason_for_owner: Option<String>,
    /// The status of the reply, where there was one.
    status: Option<u16>,
    /// What owners of the endpoint may see of it.
    shown: Bytes,
    /// The dead letters that its events have become. Boxed because they are rare and every report
    /// would carry them.
    pub dead_letters: Option<Box<DeadLetters>>,
}

/// Events of one request, up to so many bytes: a change of the view may have made those of a batch
/// larger that was begun before.
struct Gathered {
    most: usize,
    bytes: usize,
    shown: Vec<Rc<Shown>>,
}

impl Gathered {
    fn up_to(most: usize) -> Self {
        Self {
            most,
            bytes: 0,
            shown: Vec::new(),
        }
    }

    /// Adds events. One has its place whatever its size.
    ///
    /// # Errors
    /// When they are too many bytes, with the last one that has its place. That need not be the one
    /// before the event that does not fit: events between them may be left out, and a batch cannot
    /// end with an event that is not sent with it.
    fn add_all(&mut self, shown: impl IntoIterator<Item = Rc<Shown>>) -> Result<(), Outcome> {
        for one in shown {
            self.bytes += one.bytes();
            if self.bytes > self.most
                && let Some(fitting) = self.shown.last()
            {
                let last = fitting.id.sequence;
                return Err(Outcome::TooLarge { last });
            }
            self.shown.push(one);
        }
        Ok(())
    }
}

impl From<Outcome> for Report {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            reason: None,
            reason_for_owner: None,
            status: None,
            shown: Bytes::new(),
            dead_letters: None,
        }
    }
}

impl Report {
    /// So many events have become the dead letter of this id, in a store if there is one.
    fn stored((id, count): (String, u64), reason: String, store: Option<&str>) -> Self {
        let dead_letters = DeadLetters {
            count,
            event: id,
            reason,
            store: store.map(str::to_owned),
        };
        Self {
            dead_letters: Some(Box::new(dead_letters)),
            ..Outcome::DeadLetterStored.into()
        }
    }
}

impl Parcel {
    /// The events, from memory or from the log.
    async fn take_shown(&mut self, services: &dyn Services) -> Result<Vec<Rc<Shown>>, Outcome> {
        let shown = std::mem::take(&mut self.shown);
        if shown.len() == 1 && self.span.count == 1 {
            return Ok(shown);
        }
        if shown.len() == self.span.count {
            let mut all = Gathered::up_to(self.plan.batch_max());
            all.add_all(shown)?;
            return Ok(all.shown);
        }
        // Boxed to keep the future of other requests small.
        Box::pin(self.read_shown(services)).await
    }

    /// The events from the log.
    async fn read_shown(&self, services: &dyn Services) -> Result<Vec<Rc<Shown>>, Outcome> {
        let mut all = Gathered::up_to(self.plan.batch_max());
        let Span { first, last, .. } = self.span;
        let mut at = first;
        let mut viewer = Viewer::new(&self.plan.view);
        while at <= last {
            // A single event is mostly small, and what is read behind it is of no use.
            let bytes = if last > first { AGAIN_BYTES } else { 1 };
            match page(&self.topic, &mut viewer, (at, bytes), services).await {
                Page::Events(events) => {
                    let Some(next) = events.last().map(|it| it.id.sequence + 1) else {
                        return Err(Outcome::Aborted);
                    };
                    at = next;
                    all.add_all(events.into_iter().filter(|it| self.has(it)))?;
                }
                Page::Gone { .. } => return Err(Outcome::Lost),
                Page::Unusable => return Err(Outcome::Aborted),
            }
        }
        Ok(all.shown)
    }

    /// Whether an event of the log belongs to it.
    fn has(&self, shown: &Shown) -> bool {
        let number = shown.id.sequence;
        let is_in = |(first, last): &(u64, u64)| (*first..=*last).contains(&number);
        number <= self.span.last && !shown.is_left_out() && !self.done.iter().any(is_in)
    }

    async fn post(&mut self, is_whole: bool, services: &dyn Services) -> Result<Post, Outcome> {
        let shown = self.take_shown(services).await?;
        let bounds = (
            self.topic.id(self.span.first),
            self.topic.id(self.span.last),
        );
        // What is not shown any more after a change of the view is not sent.
        let is_batch = self.span.is_batch;
        Post::events(&self.plan, (&shown, is_batch), (bounds, is_whole)).ok_or(Outcome::Delivered)
    }

    /// Sends the events.
    pub async fn send(&mut self, is_whole: bool, services: &dyn Services) -> Report {
        let post = match self.post(is_whole, services).await {
            Ok(post) => post,
            Err(outcome) => return outcome.into(),
        };
        let report = send(&self.plan, &post, services).await;
        if report.outcome == Outcome::Delivered {
            self.count_in(&self.plan.state.counts().delivered);
        }
        report
    }

    /// Adds its events to a counter.
    fn count_in(&self, counter: &AtomicU64) {
        counter.fetch_add(self.span.count as u64, Ordering::Relaxed);
    }

    /// Tells the endpoint that the events are missing.
    pub async fn send_gap(self, services: &dyn Services) -> Report {
        if self.plan.websub().is_some() {
            // A hub has no word for it: the next content is whole.
            self.count_in(&self.plan.state.counts().gaps);
            return Outcome::NotSent.into();
        }
        let id = |it| self.topic.id(it);
        let post = Post::gap(&self.plan, self.span, id, now_ms(services));
        let report = send(&self.plan, &post, services).await;
        if report.outcome == Outcome::Delivered {
            self.count_in(&self.plan.state.counts().gaps);
        }
        report
    }

    /// Keeps the events as a dead letter.
    pub async fn store_dead_letter(
        mut self,
        why: DeadLetterReason,
        reason: &str,
        services: &dyn Services,
    ) -> Report {
        if self.plan.websub().is_some() {
            // The subscriber has refused it as often as it is asked; it gets the next content.
            self.count_in(&self.plan.state.counts().dead_letters);
            return Outcome::DeadLetterStored.into();
        }
        let letter = match self.dead_letter(why, reason, services).await {
            Ok(letter) => letter,
            Err(outcome) => return outcome.into(),
        };
        let plan = &self.plan;
        let (topic, endpoint) = (&**plan.state.topic(), &*plan.state.name);
        let parameter = |name: &str| {
            let mut found = letter.parameters.iter().filter(|it| &*it.0 == name);
            found.next().map(|it| it.1.clone()).unwrap_or_default()
        };
        let (id, reason) = (parameter("event_id"), parameter("reason"));
        let counter = &plan.state.counts().dead_letters;
        if plan.is_of_user() {
            return self
                .store_dead_letter_of_user((why, letter), (&id, &reason), services)
                .await;
        }
        let count = self.span.count as u64;
        let Some(store) = &plan.terms().dead_letters else {
            tracing::error!(
                target: "topics", topic, endpoint, id, reason,
                "a webhook does not get an event, which is kept nowhere"
            );
            self.count_in(counter);
            return Report::stored((id, count), reason, None);
        };
        let name = store.name();
        match store.append(String::new(), letter, services).await {
            Ok(_) => {
                tracing::error!(
                    target: "topics", topic, endpoint, id, reason, store = name,
                    "a webhook does not get an event: it is a dead letter"
                );
                self.count_in(counter);
                Report::stored((id, count), reason, Some(name))
            }
            Err(fault) => {
                let error = fault.to_string();
                tracing::error!(
                    target: "topics", topic, endpoint, id, reason, store = name, error,
                    "a dead letter cannot be kept: the webhook waits"
                );
                Outcome::DeadLetterNotStored.into()
            }
        }
    }
}

impl Parcel {
    /// The events as a dead letter.
    async fn dead_letter(
        &mut self,
        why: DeadLetterReason,
        reason: &str,
        services: &dyn Services,
    ) -> Result<Request, Outcome> {
        if why == DeadLetterReason::Refused {
            let post = self.post(true, services).await?;
            return Ok(post.dead_letter(&self.plan, reason));
        }
        let shown = self.take_shown(services).await?;
        let failed = |it: &Rc<Shown>| Post::failed_dead_letter(&self.plan, it);
        // Where there is none it does not fail any more.
        shown.iter().find_map(failed).ok_or(Outcome::Lost)
    }

    /// Keeps the events of a webhook that a user has made as a dead letter. What its owner can do
    /// to it must not concern others: what its own expression fails on is not kept, and a store
    /// that is full loses the letter instead of having webhooks wait. Its owner is told.
    async fn store_dead_letter_of_user(
        &self,
        (why, letter): (DeadLetterReason, Request),
        (id, reason): (&str, &str),
        services: &dyn Services,
    ) -> Report {
        let state = &self.plan.state;
        let (topic, endpoint) = (&**state.topic(), &*state.name);
        let store = self.plan.terms().dead_letters.as_ref();
        let kept = match (why, store) {
            (DeadLetterReason::Expression, _) | (_, None) => false,
            (DeadLetterReason::Refused, Some(store)) => {
                let kept = store.append(String::new(), letter, services).await;
                if let Err(fault) = &kept {
                    let error = fault.to_string();
                    tracing::debug!(target: "topics", topic, endpoint, id, error, "not kept");
                }
                kept.is_ok()
            }
        };
        tracing::debug!(
            target: "topics", topic, endpoint, id, reason, kept,
            "a webhook of a user does not get an event"
        );
        let secrets = match self.plan.outgoing(services) {
            Ok(outgoing) => outgoing.secrets,
            Err(_) => Vec::new(),
        };
        let shown = redacted(reason.as_bytes(), &secrets);
        if let (DeadLetterReason::Expression, Some(attempts)) = (why, &self.plan.terms().attempts) {
            let attempt = Attempt {
                at_ms: now_ms(services),
                kind: Some(Kind::Error),
                took_ms: 0,
                id: WebhookId::Text(id.into()),
                status: None,
                is_accepted: false,
                shown: shown.clone(),
            };
            attempts.add((state.topic(), &state.name), attempt);
        }
        state.set_trouble(&format!("it has not got the event {id}: {shown}"));
        self.count_in(&state.counts().dead_letters);
        let store = store.filter(|_| kept).map(StoreWriter::name);
        let of = (id.to_owned(), self.span.count as u64);
        Report::stored(of, shown.into(), store)
    }
}

/// Sends a request and judges the reply.
async fn send(plan: &EndpointPlan, post: &Post, services: &dyn Services) -> Report {
    let (start, at_ms) = (services.now(), now_ms(services));
    let (report, secrets) = match plan.outgoing(services) {
        Ok(outgoing) => {
            let request = match post.request(plan, at_ms / 1000, &outgoing) {
                RequestBuild::Ready(request) => request,
                RequestBuild::Pending(building) => building.await,
            };
            // The call ends with its deadline. Dropped here it could not say what has come until
            // then.
            let call = call(plan, (&request, &outgoing), start);
            let mut report = judge(services.call(call).await, services);
            // Logs and dead letters have it. Secrets of files are known to whatever writes them.
            if let Some(reason) = report.reason.as_mut().filter(|_| plan.is_of_user()) {
                *reason = redacted(reason.as_bytes(), &outgoing.secrets).into();
            }
            (report, outgoing.secrets)
        }
        Err(reason) => {
            let report = Report {
                reason: Some(reason),
                shown: Bytes::from_static(b"the URL may not be called"),
                ..Outcome::Down { retry_after: None }.into()
            };
            (report, Vec::new())
        }
    };
    let took = services.now().saturating_duration_since(start);
    record_attempt(plan, (post, report, &secrets), (at_ms, took))
}

/// The call of a request.
fn call<'a>(
    plan: &EndpointPlan,
    (request, outgoing): (&'a Request, &'a Outgoing),
    start: Instant,
) -> Call<'a> {
    Call {
        body_max: Some(REPLY_MAX),
        truncates: true,
        deadline: Some(start + plan.terms().timeout),
        body_time: Some(BODY_TIME),
        // Delivery is at least once, and each request has the id of its event.
        repeats: true,
        ..Call::new(&outgoing.forward, request, "webhook")
    }
}

/// Counts a request and keeps it among the attempts: when it was sent, in milliseconds since 1970,
/// and how long it took.
fn record_attempt(
    plan: &EndpointPlan,
    (post, mut report, secrets): (&Post, Report, &[String]),
    (at_ms, took): (u64, Duration),
) -> Report {
    report.reason_for_owner = match (plan.is_of_user(), report.status) {
        // Its log has where the address leads that the user has chosen.
        (true, None) => {
            let shown = redacted(&report.shown, secrets);
            report.reason.as_ref().map(|_| shown.into())
        }
        _ => report.reason.clone(),
    };
    let counts = plan.state.counts();
    match report.outcome {
        Outcome::Refused => counts.refused.fetch_add(1, Ordering::Relaxed),
        Outcome::Down { .. } | Outcome::Gone => counts.failed.fetch_add(1, Ordering::Relaxed),
        _ => 0,
    };
    let attempt = Attempt {
        at_ms,
        kind: Some(post.kind),
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        id: post.webhook_id(),
        status: report.status,
        is_accepted: report.outcome == Outcome::Delivered,
        shown: redacted(&report.shown, secrets),
    };
    if matches!(report.outcome, Outcome::Down { .. }) && plan.websub().is_none() {
        let status = attempt.status.map(|it| format!("status {it}"));
        plan.state
            .set_failure(status.as_deref().unwrap_or(&attempt.shown));
    }
    let of = (plan.state.topic(), &plan.state.name);
    if let Some(attempts) = &plan.terms().attempts {
        attempts.add(of, attempt);
    }
    report
}

/// What a reply means.
fn judge(replied: Result<Reply, Fault>, services: &dyn Services) -> Report {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let reply = match replied {
        Ok(reply) => reply,
        Err(fault) => {
            let retry_after = fault.retry_after.map(micros);
            return Report {
                reason: Some(fault.to_string()),
                // Without what the log has of the address.
                shown: fault.detail.as_bytes().to_vec().into(),
                ..Outcome::Down { retry_after }.into()
            };
        }
    };
    let (status, shown) = (
        Some(reply.status),
        Bytes::copy_from_slice(reply.body.as_bytes()),
    );
    let retry_after = || status_fault(&reply, services).retry_after.map(micros);
    let outcome = match reply.status {
        200..=299 => {
            return Report {
                status,
                shown,
                ..Outcome::Delivered.into()
            };
        }
        410 => Outcome::Gone,
        408 | 429 => Outcome::Down {
            retry_after: retry_after(),
        },
        400..=499 => Outcome::Refused,
        _ => Outcome::Down {
            retry_after: retry_after(),
        },
    };
    let text = String::from_utf8_lossy(reply.body.as_bytes());
    let text: String = text.trim().chars().take(SHOWN_MAX).collect();
    let code = reply.status;
    let reason = match text.is_empty() {
        true => format!("status {code}"),
        false => format!("status {code}: {text}"),
    };
    Report {
        reason: Some(reason),
        status,
        shown,
        ..outcome.into()
    }
}

/// What has been read of a topic.
pub(super) enum Page {
    Events(Vec<Rc<Shown>>),
    /// All before this event is gone.
    Gone {
        first: u64,
    },
    /// It cannot be read now, which has been logged.
    Unusable,
}

/// Reads events from a number on, about so many bytes of them, and shows them. What cannot be read
/// takes some seconds, so that it is not tried all the time.
pub(super) async fn page(
    topic: &Topic,
    viewer: &mut Viewer,
    (from, bytes): (u64, usize),
    services: &dyn Services,
) -> Page {
    let error = match topic.history(topic.id(from), bytes).await {
        Ok(History::Events(events)) => return Page::Events(viewer.show_all(&events).await),
        Ok(History::Gone { first, .. }) => return Page::Gone { first },
        // The log of this name is not replaced while the topic is in the plan.
        Ok(History::OtherEpoch | History::Ahead) => "the topic is not the one that it was".into(),
        Err(fault) => fault.to_string(),
    };
    let topic = &**topic.name();
    tracing::error!(target: "topics", topic, error, "events for webhooks cannot be read");
    services.sleep(PAUSE).await;
    Page::Unusable
}

/// Reads what follows in a ring.
pub(super) async fn extend(
    topic: &Topic,
    viewer: Option<Viewer>,
    (plan, from, bytes): (&Arc<ViewPlan>, u64, usize),
    services: &dyn Services,
) -> (Viewer, Page) {
    let mut viewer = viewer.unwrap_or_else(|| Viewer::new(plan));
    let page = page(topic, &mut viewer, (from, bytes), services).await;
    (viewer, page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(most: usize, sizes: &[usize]) -> Result<usize, Outcome> {
        let mut all = Gathered::up_to(most);
        let shown = sizes.iter().zip(1..);
        all.add_all(shown.map(|(size, number)| Shown::of_size(number, *size)))?;
        Ok(all.shown.len())
    }

    /// With what it is spawned with it takes less than 1 KiB, above which the allocator is slower.
    #[test]
    fn a_request_is_small() {
        fn size<'a, F>(_: impl FnOnce(&'a mut Parcel, bool, &'a dyn Services) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(Parcel::send);
        assert!(size <= 400, "{size}");
    }

    #[test]
    fn what_a_request_may_have_is_bounded_but_one_event_is_always_sent() {
        assert_eq!(gathered(30, &[10, 10, 10]), Ok(3));
        let cut = Err(Outcome::TooLarge { last: 2 });
        assert_eq!(gathered(29, &[10, 10, 10]), cut);
        assert_eq!(gathered(29, &[100]), Ok(1));
        let cut = Err(Outcome::TooLarge { last: 1 });
        assert_eq!(gathered(29, &[100, 1]), cut);
    }

    #[test]
    fn a_batch_that_is_too_large_is_cut_behind_an_event_of_its_own() {
        let mut all = Gathered::up_to(29);
        // 3 and 4 are left out.
        let shown = [1, 2, 5].map(|number| Shown::of_size(number, 10));
        assert_eq!(all.add_all(shown), Err(Outcome::TooLarge { last: 2 }));
    }
}
