//! The source at work: it reads events, runs the flow on each, and remembers how far it has come.

use std::collections::{BTreeSet, VecDeque};
use std::future::{Future as _, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use component::handler::{LocalFuture, Services};
use component::intake::{Incoming, Intake, IntakePlan, Settlement};
use component::source::{Source, Started};
use message::{Fault, Headers, Request};
use tokio::sync::watch;

use super::{Mode, Start};
use crate::event::{Content, Event};
use crate::log::{Log, Slot};
use crate::topic::{History, Topic};

/// About how many bytes of events are read at once.
const READ_MAX: usize = 1 << 20;
/// How long nothing is read after that has failed, and nothing noted after that has.
const PAUSE: Duration = Duration::from_secs(5);

/// The source.
pub(crate) struct TopicSource {
    pub topic: Arc<Topic>,
    pub mode: Mode,
    pub start: Start,
    pub cursor: String,
    pub concurrent: usize,
    pub plan: Arc<IntakePlan>,
}

impl Source for TopicSource {
    fn run<'a>(
        &'a self,
        flow: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(self.deliver_all(flow, services, stop))
    }
}

/// How many events are missing before one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missed {
    Count(u64),
    Unknown,
}

/// An event that the flow has to see.
struct Due {
    event: Arc<Event>,
    missed: Missed,
}

/// The same as a message.
struct Delivery<'a> {
    source: &'a TopicSource,
    due: Due,
}

impl Incoming for Delivery<'_> {
    fn id(&self) -> String {
        self.due.event.id.to_string()
    }

    fn request(&mut self, attempt: u32) -> Result<Request, Fault> {
        Ok(self.source.request(&self.due, attempt))
    }
}

/// What is under way and what is to be done.
struct Work<'a> {
    log: Arc<Log>,
    /// The next event that has to be read.
    next: u64,
    /// What is missing before that.
    missed: Missed,
    queue: VecDeque<Due>,
    under_way: Vec<LocalFuture<'a, (u64, bool)>>,
    numbers: BTreeSet<u64>,
    /// The last event that the flow has begun with.
    begun: u64,
    /// Up to which event it is noted that all is done.
    noted: u64,
    reading: Option<LocalFuture<'a, Result<History, Fault>>>,
    noting: Option<LocalFuture<'a, Result<u64, String>>>,
    published: Published,
    intake: Rc<Intake>,
    _place: CursorPlace,
}

/// How far a topic has come, as last looked at.
struct Published {
    /// The number of the next event that will be published, when that was looked at last.
    next: u64,
    changes: watch::Receiver<u64>,
}

impl Published {
    /// Looks again.
    fn look(&mut self) -> u64 {
        self.next = *self.changes.borrow_and_update();
        self.next
    }

    /// Ready when something has been published since the last look, which may be now already: the
    /// publisher is on another thread.
    fn more(&self) -> impl Future<Output = ()> + use<> {
        let mut changes = self.changes.clone();
        async move {
            if changes.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }
}

/// Why the source goes on.
enum Happened {
    Stop,
    Ended(u64, bool),
    Read(Result<History, Fault>),
    Noted(Result<u64, String>),
    Published,
}

impl Work<'_> {
    /// Up to which event all is done.
    fn done(&self) -> u64 {
        self.numbers.first().map_or(self.begun, |first| first - 1)
    }

    /// Whatever happens first.
    async fn happens(&mut self, stop: &mut LocalFuture<'static, ()>) -> Happened {
        let has_all = self.next >= self.published.next;
        let mut published = Box::pin(self.published.more());
        poll_fn(|context| {
            if stop.as_mut().poll(context).is_ready() {
                return Poll::Ready(Happened::Stop);
            }
            if let Poll::Ready(happened) = self.poll(context) {
                return Poll::Ready(happened);
            }
            match has_all {
                true => published
                    .as_mut()
                    .poll(context)
                    .map(|()| Happened::Published),
                false => Poll::Pending,
            }
        })
        .await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Happened> {
        for at in 0..self.under_way.len() {
            if let Some(future) = self.under_way.get_mut(at)
                && let Poll::Ready((number, is_done)) = future.as_mut().poll(context)
            {
                drop(self.under_way.swap_remove(at));
                return Poll::Ready(Happened::Ended(number, is_done));
            }
        }
        if let Some(reading) = &mut self.reading
            && let Poll::Ready(read) = reading.as_mut().poll(context)
        {
            self.reading = None;
            return Poll::Ready(Happened::Read(read));
        }
        if let Some(noting) = &mut self.noting
            && let Poll::Ready(noted) = noting.as_mut().poll(context)
        {
            self.noting = None;
            return Poll::Ready(Happened::Noted(noted));
        }
        Poll::Pending
    }
}

impl TopicSource {
    async fn deliver_all(
        &self,
        flow: &Arc<dyn Started>,
        services: &dyn Services,
        mut stop: LocalFuture<'static, ()>,
    ) {
        let Some(mut work) = self.begin(flow, services, &mut stop).await else {
            return;
        };
        // What polls while somebody listens polls for a flow too.
        let _listener = self.topic.listen();
        loop {
            self.go_on(&mut work, services);
            match work.happens(&mut stop).await {
                Happened::Stop => break,
                Happened::Published => {}
                Happened::Ended(number, is_done) => end(&mut work, number, is_done),
                Happened::Read(read) => self.take(&mut work, read, services),
                Happened::Noted(noted) => self.note_noted(&mut work, noted, services),
            }
        }
        self.finish(work, services).await;
    }

    /// Finds out where to begin; `None` when the source has to end before that is known.
    async fn begin<'a>(
        &'a self,
        flow: &Arc<dyn Started>,
        services: &dyn Services,
        stop: &mut LocalFuture<'static, ()>,
    ) -> Option<Work<'a>> {
        loop {
            let error = match self.position(flow).await {
                Ok(work) => return Some(work),
                Err(error) => error,
            };
            let (flow, topic) = (&**flow.name(), &**self.topic.name());
            tracing::error!(target: "flow", flow, topic, error, "nothing is delivered");
            let mut sleep = services.sleep(PAUSE);
            let is_over = poll_fn(|context| {
                if stop.as_mut().poll(context).is_ready() {
                    return Poll::Ready(true);
                }
                sleep.as_mut().poll(context).map(|()| false)
            });
            if is_over.await {
                return None;
            }
        }
    }

    async fn position<'a>(&'a self, flow: &Arc<dyn Started>) -> Result<Work<'a>, String> {
        let log = Arc::clone(self.topic.log().map_err(|fault| fault.to_string())?);
        let place = CursorPlace::take(self.topic.slot(), &self.cursor);
        let place = place.ok_or_else(|| format!("another flow has the cursor {}", self.cursor))?;
        let known = self.topic.read_cursor(&self.cursor).await?;
        let changes = log.changes();
        let published = *changes.borrow();
        let first = log.first();
        let (next, missed) = match (known, self.start) {
            (Some(last), _) => match (log.locate(last), log.epochs().end_of(last.epoch)) {
                // The log has been put back to an older state.
                (Ok(last), _) if last.sequence >= published => (published, Missed::Unknown),
                (Ok(last), _) => (last.sequence + 1, Missed::Count(0)),
                // It had come further than that state: what has been published since is new to it.
                (Err(_), Some(end)) => (end.saturating_add(1), Missed::Unknown),
                (Err(_), None) => (first, Missed::Unknown),
            },
            (None, Start::Latest) => (published, Missed::Count(0)),
            (None, Start::Earliest) => (first, Missed::Count(0)),
        };
        let is_new = known.is_none_or(|last| last != log.id(next - 1));
        if missed == Missed::Unknown {
            let (topic, cursor) = (&*log.name, &self.cursor);
            tracing::warn!(
                target: "topics", topic, cursor,
                "events may be missing: the topic is not the one that it was"
            );
        }
        Ok(Work {
            log,
            next,
            missed,
            queue: VecDeque::new(),
            under_way: Vec::new(),
            numbers: BTreeSet::new(),
            begun: next - 1,
            // The place is noted at once: what is published from now on belongs to the flow.
            noted: if is_new { u64::MAX } else { next - 1 },
            reading: None,
            noting: None,
            published: Published {
                next: published,
                changes,
            },
            intake: Rc::new(Intake::new(flow, &self.plan)),
            _place: place,
        })
    }

    /// Begins whatever can be begun.
    fn go_on<'a>(&'a self, work: &mut Work<'a>, services: &'a dyn Services) {
        while work.under_way.len() < self.concurrent
            && !work.intake.is_over()
            && let Some(due) = work.queue.pop_front()
        {
            let number = due.event.id.sequence;
            work.begun = number;
            work.numbers.insert(number);
            let delivery = self.deliver(due, Rc::clone(&work.intake), services);
            work.under_way.push(Box::pin(delivery));
        }
        let is_hungry = work.queue.len() < self.concurrent;
        let published = work.published.look();
        if is_hungry && work.reading.is_none() && work.next < published {
            let from = work.log.id(work.next);
            work.reading = Some(Box::pin(self.topic.history(from, READ_MAX)));
        }
        if work.noting.is_none() && work.done() != work.noted {
            work.noting = Some(self.note(work, None));
        }
    }

    /// Has it noted how far the flow has come, perhaps after a wait.
    fn note<'a>(
        &'a self,
        work: &Work<'_>,
        wait: Option<LocalFuture<'static, ()>>,
    ) -> LocalFuture<'a, Result<u64, String>> {
        let done = work.log.id(work.done());
        Box::pin(async move {
            if let Some(wait) = wait {
                wait.await;
            }
            self.topic.write_cursor(&self.cursor, done).await?;
            Ok(done.sequence)
        })
    }

    fn note_noted<'a>(
        &'a self,
        work: &mut Work<'a>,
        noted: Result<u64, String>,
        services: &dyn Services,
    ) {
        match noted {
            Ok(number) => work.noted = number,
            Err(error) => {
                let (topic, cursor) = (&*work.log.name, &self.cursor);
                tracing::error!(
                    target: "topics", topic, cursor, error,
                    "it is not noted how far a flow has come: after a restart it gets events again"
                );
                work.noting = Some(self.note(work, Some(services.sleep(PAUSE))));
            }
        }
    }

    fn take<'a>(
        &'a self,
        work: &mut Work<'a>,
        read: Result<History, Fault>,
        services: &'a dyn Services,
    ) {
        let topic = &*work.log.name;
        match read {
            Ok(History::Events(events)) => {
                for event in events {
                    work.next = event.id.sequence + 1;
                    let missed = std::mem::replace(&mut work.missed, Missed::Count(0));
                    work.queue.push_back(Due { event, missed });
                }
            }
            Ok(History::Gone { first, .. }) => {
                let count = first.saturating_sub(work.next);
                let cursor = &self.cursor;
                tracing::warn!(
                    target: "topics", topic, cursor, count,
                    "events are not kept any more: the flow does not get them"
                );
                work.missed = match work.missed {
                    Missed::Count(before) => Missed::Count(before + count),
                    Missed::Unknown => Missed::Unknown,
                };
                work.next = first.max(work.next);
            }
            // The log of this name is not replaced while the topic is in the plan.
            Ok(History::OtherEpoch | History::Ahead) => {
                tracing::error!(target: "topics", topic, "the topic is not the one that it was");
                work.reading = Some(pause(services));
            }
            Err(fault) => {
                let error = fault.to_string();
                tracing::error!(target: "topics", topic, error, "events cannot be read");
                work.reading = Some(pause(services));
            }
        }
    }

    /// Has the flow run on an event; the event's number, and whether the event is done.
    async fn deliver(&self, due: Due, intake: Rc<Intake>, services: &dyn Services) -> (u64, bool) {
        let number = due.event.id.sequence;
        let mut delivery = Delivery { source: self, due };
        let processed = intake.process(&mut delivery, services).await;
        let is_done = matches!(processed.settlement, Settlement::Acknowledge);
        (number, is_done)
    }

    fn request(&self, due: &Due, attempt: u32) -> Request {
        let event = &due.event;
        let is_whole = due.missed != Missed::Count(0) || self.mode != Mode::Patch;
        let (kind, media_type, body) = match &event.content {
            Content::Event(body) => ("event", "application/json", body),
            Content::Snapshot {
                patch: Some(patch), ..
            } if !is_whole => ("patch", "application/json-patch+json", patch),
            Content::Snapshot { whole, .. } => ("snapshot", "application/json", whole),
        };
        let missed = match due.missed {
            Missed::Count(count) => count.to_string(),
            Missed::Unknown => "unknown".to_owned(),
        };
        let parameters = [
            ("topic", self.topic.name().to_string()),
            ("event_id", event.id.to_string()),
            ("event_kind", kind.to_owned()),
            ("event_time", event.at_ms.to_string()),
            ("event_missed", missed),
            ("event_attempt", attempt.to_string()),
        ];
        let mut headers = Headers::new();
        headers.append("Content-Type", media_type);
        Request {
            parameters: parameters.map(|(name, value)| (name.into(), value)).into(),
            ..Request::of_source("TOPIC", headers, body.clone())
        }
    }

    /// Waits for what is under way, as long as it succeeds at once, and has it noted.
    async fn finish(&self, mut work: Work<'_>, services: &dyn Services) {
        work.reading = None;
        work.queue.clear();
        work.intake.stop();
        while !work.under_way.is_empty() || work.noting.is_some() {
            match poll_fn(|context| work.poll(context)).await {
                Happened::Ended(number, is_done) => end(&mut work, number, is_done),
                Happened::Noted(Ok(number)) => work.noted = number,
                // What is under way ends all the same; it is noted once more behind the loop.
                Happened::Noted(Err(_)) => {}
                // invariant: nothing is being read, and nobody waits for more.
                Happened::Stop | Happened::Read(_) | Happened::Published => {}
            }
        }
        if work.done() == work.noted {
            return;
        }
        let noting = self.note(&work, None);
        let noted = component::handler::within(PAUSE, services, noting).await;
        if !matches!(noted, Some(Ok(_))) {
            let (topic, cursor) = (&*work.log.name, &self.cursor);
            tracing::warn!(target: "topics", topic, cursor, "the flow gets its last events again");
        }
    }
}

/// A read that gives nothing after a while.
fn pause<'a>(services: &'a dyn Services) -> LocalFuture<'a, Result<History, Fault>> {
    Box::pin(async {
        services.sleep(PAUSE).await;
        Ok(History::Events(Vec::new()))
    })
}

fn end(work: &mut Work<'_>, number: u64, is_done: bool) {
    if is_done {
        work.numbers.remove(&number);
    }
}

/// A cursor that one flow has at a time.
struct CursorPlace(Arc<Slot>, String);

impl CursorPlace {
    fn take(slot: &Arc<Slot>, cursor: &str) -> Option<Self> {
        let is_new = slot.cursors().used.insert(cursor.to_owned());
        is_new.then(|| Self(Arc::clone(slot), cursor.to_owned()))
    }
}

impl Drop for CursorPlace {
    fn drop(&mut self) {
        self.0.cursors().used.remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    #[test]
    fn what_is_published_between_the_look_and_the_wait_is_not_missed() {
        let (publisher, changes) = watch::channel(1);
        let mut published = Published { next: 1, changes };
        let is_woken = |published: &Published| {
            let more = pin!(published.more());
            more.poll(&mut Context::from_waker(Waker::noop()))
                .is_ready()
        };
        assert_eq!(published.look(), 1);
        assert!(!is_woken(&published));
        publisher.send_replace(2);
        // The flow waits for as long as it likes until it looks.
        assert!(is_woken(&published) && is_woken(&published));
        assert_eq!(published.look(), 2);
        assert!(!is_woken(&published));
    }
}
