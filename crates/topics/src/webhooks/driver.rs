//! Serves the endpoints of a topic on one worker: it hands the topic's events to their state
//! machines, does what these say, and notes where they are. It decides only; requests, reading and
//! writing are tasks of their own that report to its [`Inbox`], so that no endpoint waits for
//! another.

mod entries;
mod entry;
mod held;
mod hosts;
mod inbox;
mod names;
mod passing;
mod reporting;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use component::handler::{LocalFuture, Services, within};
use component::resources::Share;
use journal::{Change, Keyed};
use tokio::sync::watch;

use self::entries::Entries;
use self::hosts::Hosts;
use self::inbox::{Inbox, Message};
use self::passing::Passing;
use super::deliver::{self, Page, Parcel, Report};
use super::machine::{Action, DeadLetterReason, Now, Outcome, Span};
use super::manage::Managed;
use super::plan::EndpointPlan;
use super::roster::Arrivals;
use super::state::Bell;
use super::times::now_ms;
use super::view::{Ring, ViewPlan, Viewer};
use crate::hub::Hub;
use crate::log::Log;
use crate::settings::Durability;
use crate::topic::{Listener, Topic};

/// How long changes are gathered before they are noted together.
const NOTE_AFTER: u64 = 50_000;
/// How long nothing is noted after that has failed.
const NOTE_AGAIN: u64 = 5_000_000;
/// How long the last note may take.
const LAST_NOTE: Duration = Duration::from_secs(5);
/// How many endpoints are looked at before others of the worker have their turns.
const TURN: usize = 64;
/// How many bytes of events are read at once for endpoints that are up to date.
const LIVE_BYTES: usize = 1 << 20;
/// How many bytes of events all endpoints together may have read that are further behind, and how
/// many one of them reads at least and at most.
const BEHIND_BYTES: usize = 16 << 20;
const PAGE_BYTES: (usize, usize) = (16 << 10, 256 << 10);

/// What endpoints share that see the same.
struct View {
    plan: Arc<ViewPlan>,
    ring: Ring,
    /// Absent while events are read for it.
    viewer: Option<Viewer>,
    is_extending: bool,
    /// The endpoints that wait for what comes next in the ring.
    waiting: Vec<usize>,
    /// How many endpoints have it. One that none has is free for another one.
    users: usize,
}

/// What a driver serves.
pub(crate) struct Served<'a> {
    pub topic: &'a Arc<Topic>,
    pub hub: &'a Hub,
    /// The endpoints of a file that belong to the worker.
    pub files: Vec<Arc<EndpointPlan>>,
    /// The subscriptions of users, of which it serves those that belong to the worker.
    pub managed: Option<&'a Arc<Managed>>,
    pub share: Share,
}

/// Serves endpoints.
pub(crate) struct Driver {
    topic: Arc<Topic>,
    log: Arc<Log>,
    /// Where it is noted how far endpoints are; nowhere for a topic in memory.
    keyed: Option<Keyed>,
    entries: Entries,
    managed: Option<Arc<Managed>>,
    share: Share,
    views: Vec<View>,
    /// The endpoints that have to be looked at.
    ready: VecDeque<usize>,
    timers: BinaryHeap<Reverse<(u64, usize)>>,
    began: Instant,
    bell: Arc<Bell>,
    inbox: Rc<Inbox>,
    /// The endpoints of which something has to be noted.
    dirty: Vec<usize>,
    /// When that has to be done.
    note_at: Option<u64>,
    is_noting: bool,
    published: watch::Receiver<u64>,
    /// What that was when rings were extended last.
    seen: u64,
    /// How many endpoints have events in memory because they are behind.
    behind: usize,
    /// Endpoints that come and go meanwhile.
    passing: Passing,
    hosts: Hosts,
    is_stopping: bool,
    _listener: Listener,
}

impl Driver {
    /// For those endpoints of a topic. None when the topic is not open.
    pub fn new(served: Served<'_>, services: &dyn Services) -> Option<Self> {
        let topic = served.topic;
        let log = Arc::clone(topic.log().ok()?);
        let is_on_disk = topic.settings().durability == Durability::Disk;
        let mut driver = Self {
            published: log.changes(),
            seen: 0,
            log,
            keyed: served.hub.keyed().filter(|_| is_on_disk).cloned(),
            entries: Entries::default(),
            managed: served.managed.cloned(),
            share: served.share,
            views: Vec::new(),
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            began: services.now(),
            bell: Arc::default(),
            inbox: Rc::default(),
            dirty: Vec::new(),
            note_at: None,
            is_noting: false,
            behind: 0,
            passing: Passing::default(),
            hosts: Hosts::default(),
            is_stopping: false,
            _listener: topic.listen(),
            topic: Arc::clone(topic),
        };
        served.files.into_iter().for_each(|plan| driver.add(plan));
        driver.add_subscribed();
        Some(driver)
    }

    fn now(&self, services: &dyn Services) -> Now {
        let since = services.now().saturating_duration_since(self.began);
        Now {
            // Zero is no time.
            us: u64::try_from(since.as_micros()).unwrap_or(u64::MAX - 1) + 1,
            wall_ms: now_ms(services),
        }
    }

    /// Serves them until it is told to stop. What is under way then goes on in the background.
    pub async fn run(mut self, services: &dyn Services, mut stop: LocalFuture<'static, ()>) {
        let mut waiting = Waiting::default();
        loop {
            self.turn(services);
            if !self.ready.is_empty() {
                tokio::task::yield_now().await;
            }
            let is_over = self.wait(&mut waiting, Some(&mut stop), services).await;
            if is_over {
                break;
            }
        }
        self.is_stopping = true;
        // A note that is under way must not come after those of whoever serves them next.
        if !self.is_noting {
            self.release_idle(services).await;
        }
        if self.has_taken() {
            services.spawn(Box::new(move |services| Box::pin(self.finish(services))));
        }
    }

    /// Waits for what is under way, and gives each endpoint back when it is done.
    async fn finish(mut self, services: &dyn Services) {
        let mut waiting = Waiting::default();
        while self.has_taken() {
            self.wait(&mut waiting, None, services).await;
            self.turn(services);
            if !self.is_noting {
                self.release_idle(services).await;
            }
        }
    }

    /// Gives endpoints back that have nothing under way, after the last note.
    async fn release_idle(&mut self, services: &dyn Services) {
        let now = self.now(services);
        let idle = self.entries.iter().filter(|(_, it)| it.is_idle());
        let idle: Vec<usize> = idle.map(|(at, _)| at).collect();
        let mut changes = self.passing.take_gone();
        for at in &idle {
            if let Some((change, _)) = self.record(*at, now) {
                changes.push(change);
            }
        }
        let mut is_noted = true;
        if let Some(keyed) = self.keyed.clone().filter(|_| !changes.is_empty()) {
            let written = within(LAST_NOTE, services, keyed.write(changes)).await;
            is_noted = matches!(written, Some(Ok(())));
            if !is_noted {
                let topic = &*self.log.name;
                tracing::warn!(target: "topics", topic, "webhooks get their last events again");
            }
        }
        for at in idle {
            if let Some(entry) = self.entries.get_mut(at) {
                if is_noted {
                    entry.show_noted();
                }
                entry.release(is_noted, now);
            }
        }
    }

    fn has_taken(&self) -> bool {
        self.entries.iter().any(|(_, it)| it.is_taken())
    }

    /// Does what can be done without waiting. The turn is short, so all of it has one timestamp.
    fn turn(&mut self, services: &dyn Services) {
        let now = self.now(services);
        self.take_arrivals();
        while let Some(message) = self.inbox.take() {
            self.take(message, now, services);
        }
        for at in self.bell.take() {
            self.wake(at as usize);
        }
        while let Some(Reverse((due, at))) = self.timers.peek().copied() {
            if due > now.us {
                break;
            }
            self.timers.pop();
            if let Some(entry) = self.entries.get_mut(at) {
                entry.timer_fired(due);
            }
            self.wake(at);
        }
        self.extend_rings(services);
        for _ in 0..TURN {
            let Some(at) = self.ready.pop_front() else {
                break;
            };
            self.look_at(at, now, services);
            self.pass_on(at);
        }
        self.extend_rings(services);
        self.let_go(now);
        self.note(now, services);
    }

    /// Has an endpoint looked at.
    fn wake(&mut self, at: usize) {
        if let Some(entry) = self.entries.get_mut(at)
            && !std::mem::replace(&mut entry.is_ready, true)
        {
            self.ready.push_back(at);
        }
    }

    /// Has events read for rings for which somebody waits.
    fn extend_rings(&mut self, services: &dyn Services) {
        let published = *self.published.borrow_and_update();
        let has_more = std::mem::replace(&mut self.seen, published) != published;
        if self.is_stopping {
            return;
        }
        for at in 0..self.views.len() {
            let Some(view) = self.views.get_mut(at) else {
                continue;
            };
            let from = view.ring.end();
            if view.waiting.is_empty() || view.is_extending {
                continue;
            }
            if from >= published {
                // The ring may have begun ahead of what some of them want, before that could be
                // seen here. They read it for themselves.
                if has_more {
                    let waiting = std::mem::take(&mut view.waiting);
                    self.stop_waiting(waiting);
                }
                continue;
            }
            view.is_extending = true;
            let (topic, plan) = (Arc::clone(&self.topic), Arc::clone(&view.plan));
            let viewer = view.viewer.take();
            let fallback = Message::Extended(at, None, Page::Unusable);
            self.inbox
                .spawn(services, fallback, async move |services: &dyn Services| {
                    let wanted = (&plan, from, LIVE_BYTES);
                    let (viewer, page) = deliver::extend(&topic, viewer, wanted, services).await;
                    Message::Extended(at, Some(viewer), page)
                });
        }
    }

    fn take(&mut self, message: Message, now: Now, services: &dyn Services) {
        match message {
            Message::Finished(at, number, mut report) => {
                self.has_ended(at);
                let tells = self.topic.reports_to().is_some();
                if let Some(entry) = self.entries.get_mut(at) {
                    let dead_letters = report.dead_letters.take().filter(|_| tells);
                    entry.add_dead_letters(dead_letters.map(|it| *it));
                    // A successful delivery has no back-off, so it needs no jitter.
                    let random = match report.outcome {
                        Outcome::Delivered => 0.0,
                        _ => services.random(),
                    };
                    entry.finished((number, report), now, random);
                }
                self.wake(at);
            }
            Message::Paged(at, page) => {
                if let Some(entry) = self.entries.get_mut(at) {
                    entry.paged(page, now);
                }
                self.wake(at);
            }
            Message::Extended(at, viewer, page) => self.extended(at, viewer, page),
            Message::Noted(written, result) => self.noted(written, result, now),
            Message::Reported(at, since, failed) => self.reported((at, since), failed, now),
        }
    }

    fn extended(&mut self, at: usize, viewer: Option<Viewer>, page: Page) {
        let Some(view) = self.views.get_mut(at) else {
            return;
        };
        view.is_extending = false;
        view.viewer = viewer;
        match page {
            Page::Events(events) => view.ring.extend(events),
            // Those that wait find out about it by themselves.
            Page::Gone { first } => view.ring.restart(first.max(view.ring.end())),
            Page::Unusable => {}
        }
        let waiting = std::mem::take(&mut view.waiting);
        self.stop_waiting(waiting);
    }

    /// Has endpoints looked at that waited for what comes next in a ring.
    fn stop_waiting(&mut self, waiting: Vec<usize>) {
        for at in waiting {
            if let Some(entry) = self.entries.get_mut(at) {
                entry.is_waiting = false;
            }
            self.wake(at);
        }
    }

    /// Hands events to an endpoint and does what its machine says.
    fn look_at(&mut self, at: usize, now: Now, services: &dyn Services) {
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        entry.is_ready = false;
        if entry.is_retired && !entry.is_taken() {
            return;
        }
        if self.is_stopping || !entry.prepare(&self.log, (&self.bell, at), now) {
            return;
        }
        if entry.is_retired {
            return self.settle_down(at, now);
        }
        let is_asked = entry.obey(now);
        // Commands and reports are no requests to its host: they wait for no place there.
        let left = match self.is_held_up(at) {
            true => Action::Wait(None),
            false => self.serve(at, now, services),
        };
        if let Action::Wait(Some(due)) = left {
            self.set_timer(at, due);
        }
        self.report(at, now, services);
        self.settle_down(at, now);
        if is_asked || left == Action::Note {
            self.note_at = Some(now.us);
        }
    }

    /// Hands events to an endpoint and begins what its machine says, as long as that can be begun.
    fn serve(&mut self, at: usize, now: Now, services: &dyn Services) -> Action {
        loop {
            self.feed(at, now, services);
            if self.has_to_finish(at) {
                return Action::Wait(None);
            }
            let Some(entry) = self.entries.get_mut(at) else {
                return Action::Wait(None);
            };
            let was_waiting = entry.is_waiting;
            let action = entry.next_action(now);
            let view = self.views.get_mut(entry.view());
            if let Some(view) = view.filter(|_| was_waiting && !entry.is_waiting) {
                view.waiting.retain(|it| *it != at);
            }
            match action {
                Action::Send {
                    number,
                    span,
                    is_whole,
                } => {
                    let parcel = entry.parcel(&self.topic, span);
                    self.has_begun(at);
                    self.send(at, (number, parcel), is_whole, services);
                }
                Action::SendGap { number, span } => {
                    self.has_begun(at);
                    self.send_gap(at, (number, span), services);
                }
                Action::DeadLetter { number, span, why } => {
                    self.has_begun(at);
                    self.store_dead_letter(at, (number, span), why, services);
                }
                // It may have been rewound, and want events again.
                _ if entry.wanted().is_some() => {}
                left => return left,
            }
        }
    }

    /// After a look at an endpoint.
    fn settle_down(&mut self, at: usize, now: Now) {
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        if entry.settle_down() {
            self.dirty.push(at);
            self.note_at.get_or_insert(now.us + NOTE_AFTER);
        }
        match entry.turned_behind() {
            Some(true) => self.behind += 1,
            Some(false) => self.behind = self.behind.saturating_sub(1),
            None => {}
        }
    }

    fn set_timer(&mut self, at: usize, due: u64) {
        if let Some(entry) = self.entries.get_mut(at)
            && entry.needs_timer(due)
        {
            self.timers.push(Reverse((due, at)));
        }
    }

    /// Offers an endpoint the events that it wants and that are in memory. What is not there is
    /// waited for, or read.
    fn feed(&mut self, at: usize, now: Now, services: &dyn Services) {
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        let Some(view) = self.views.get_mut(entry.view()) else {
            return;
        };
        while let Some(number) = entry.wanted() {
            if let Some(shown) = entry.page_front(number) {
                entry.offer(&shown, now);
                continue;
            }
            if let Some(shown) = view.ring.get(number) {
                entry.offer(&Rc::clone(shown), now);
                continue;
            }
            if number > view.ring.end() && view.waiting.is_empty() && !view.is_extending {
                // No endpoint has read the events between: the ring goes on with this one.
                view.ring.restart(number);
                view.viewer = None;
            }
            if number >= view.ring.end() || number >= *self.published.borrow() {
                if !std::mem::replace(&mut entry.is_waiting, true) {
                    view.waiting.push(at);
                }
                return;
            }
            if !entry.begin_page() {
                return;
            }
            let share = BEHIND_BYTES / (self.behind + 1);
            let bytes = share.clamp(PAGE_BYTES.0, PAGE_BYTES.1);
            let (topic, plan) = (Arc::clone(&self.topic), Arc::clone(&view.plan));
            let fallback = Message::Paged(at, Page::Unusable);
            return self
                .inbox
                .spawn(services, fallback, async move |services: &dyn Services| {
                    let mut viewer = Viewer::new(&plan);
                    let wanted = (number, bytes);
                    let page = deliver::page(&topic, &mut viewer, wanted, services).await;
                    Message::Paged(at, page)
                });
        }
    }

    fn send(
        &self,
        at: usize,
        (number, mut parcel): (u64, Parcel),
        is_whole: bool,
        services: &dyn Services,
    ) {
        let fallback = Message::aborted(at, number);
        self.inbox
            .spawn(services, fallback, async move |services: &dyn Services| {
                let report = parcel.send(is_whole, services).await;
                Message::Finished(at, number, report)
            });
    }

    fn send_gap(&mut self, at: usize, (number, span): (u64, Span), services: &dyn Services) {
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        let (topic, endpoint) = (&*self.log.name, &*entry.plan.state.name);
        let count = span.count;
        tracing::warn!(
            target: "topics", topic, endpoint, count,
            "events are not kept any more that a webhook has not got: it is told so"
        );
        let parcel = entry.parcel(&self.topic, span);
        if self.topic.reports_to().is_some() {
            entry.add_gap(span);
        }
        let fallback = Message::aborted(at, number);
        self.inbox
            .spawn(services, fallback, async move |services: &dyn Services| {
                let report = parcel.send_gap(services).await;
                Message::Finished(at, number, report)
            });
    }

    fn store_dead_letter(
        &mut self,
        at: usize,
        (number, span): (u64, Span),
        why: DeadLetterReason,
        services: &dyn Services,
    ) {
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        let reason = entry.refusal(span.first);
        let parcel = entry.parcel(&self.topic, span);
        let fallback = Message::aborted(at, number);
        self.inbox
            .spawn(services, fallback, async move |services: &dyn Services| {
                let report = parcel.store_dead_letter(why, &reason, services).await;
                Message::Finished(at, number, report)
            });
    }

    /// What has to be written of an endpoint, and which version of it that is.
    fn record(&mut self, at: usize, now: Now) -> Option<(Change, u64)> {
        let entry = self.entries.get_mut(at)?;
        let (stored, version) = entry.record(&self.log, now)?;
        let change = Change::Put {
            table: entry.plan.state.table().into(),
            key: entry.plan.state.key(),
            value: stored.to_bytes(),
        };
        entry.plan.state.set_stored(Some(stored));
        Some((change, version))
    }

    /// Has all that has changed noted, when it is time.
    fn note(&mut self, now: Now, services: &dyn Services) {
        let has_none = self.dirty.is_empty() && !self.passing.has_gone();
        if self.is_noting || has_none || self.note_at.is_none_or(|at| at > now.us) {
            return;
        }
        self.note_at = None;
        let (mut changes, mut written) = (self.passing.take_gone(), Vec::new());
        for at in std::mem::take(&mut self.dirty) {
            if let Some((change, version)) = self.record(at, now) {
                changes.push(change);
                written.push((at, version));
            }
        }
        let Some(keyed) = self.keyed.clone() else {
            return self.noted(written, Ok(()), now);
        };
        self.is_noting = true;
        let unknown = Err("it is not known whether it is written".to_owned());
        let fallback = Message::Noted(written.clone(), unknown);
        self.inbox
            .spawn(services, fallback, async move |_: &dyn Services| {
                let result = keyed.write(changes).await;
                Message::Noted(written, result.map_err(|refusal| refusal.to_string()))
            });
    }

    fn noted(&mut self, written: Vec<(usize, u64)>, result: Result<(), String>, now: Now) {
        self.is_noting = false;
        if let Err(error) = &result {
            let topic = &*self.log.name;
            tracing::error!(
                target: "topics", topic, error,
                "it is not noted how far webhooks have come: after a restart they get events again"
            );
            self.note_at = Some(now.us + NOTE_AGAIN);
        }
        for (at, version) in written {
            let Some(entry) = self.entries.get_mut(at) else {
                continue;
            };
            let (is_waited_for, is_dirty) = match &result {
                Ok(()) => entry.noted(version),
                Err(_) => (false, true),
            };
            if is_dirty {
                self.dirty.push(at);
            }
            if is_waited_for {
                self.wake(at);
            }
        }
        if result.is_ok() {
            self.log.release();
        }
        if !self.dirty.is_empty() {
            self.note_at.get_or_insert(now.us + NOTE_AFTER);
        }
    }

    /// Waits until there is something to do. Whether it has to stop.
    async fn wait(
        &self,
        waiting: &mut Waiting,
        mut stop: Option<&mut LocalFuture<'static, ()>>,
        services: &dyn Services,
    ) -> bool {
        let due = self.timers.peek().map(|Reverse((due, _))| *due);
        let note = self
            .note_at
            .filter(|_| !self.is_noting)
            .filter(|_| !self.dirty.is_empty() || self.passing.has_gone());
        let due = due.into_iter().chain(note).min();
        waiting.set_timer(due.map(|due| (due, self.began)), services);
        let rung = self.bell.notify.notified();
        let mut rung = std::pin::pin!(rung);
        let is_behind = !self.ready.is_empty();
        poll_fn(|context| {
            if let Some(stop) = stop.as_deref_mut()
                && stop.as_mut().poll(context).is_ready()
            {
                return Poll::Ready(true);
            }
            let has_mail = self.inbox.poll(context);
            let is_rung = rung.as_mut().poll(context).is_ready();
            let is_due = waiting.poll_timer(context);
            let has_more = waiting.poll_published(&self.published, context);
            match has_mail || is_rung || is_due || has_more || is_behind {
                true => Poll::Ready(false),
                false => Poll::Pending,
            }
        })
        .await
    }
}

/// What the driver waits with, kept from one wait to the next.
#[derive(Default)]
struct Waiting {
    timer: Option<(u64, LocalFuture<'static, ()>)>,
    published: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Waiting {
    /// Sets the timer, unless one rings before.
    fn set_timer(&mut self, due: Option<(u64, Instant)>, services: &dyn Services) {
        let Some((due, began)) = due else {
            return;
        };
        if self.timer.as_ref().is_none_or(|(at, _)| *at > due) {
            let at = began + Duration::from_micros(due);
            self.timer = Some((due, services.sleep_until(at)));
        }
    }

    fn poll_timer(&mut self, context: &mut std::task::Context<'_>) -> bool {
        let is_due = self
            .timer
            .as_mut()
            .is_some_and(|(_, sleep)| sleep.as_mut().poll(context).is_ready());
        if is_due {
            self.timer = None;
        }
        is_due
    }

    /// Whether something has been published since this was asked before.
    fn poll_published(
        &mut self,
        published: &watch::Receiver<u64>,
        context: &mut std::task::Context<'_>,
    ) -> bool {
        let changed = self.published.get_or_insert_with(|| {
            let mut published = published.clone();
            Box::pin(async move {
                if published.changed().await.is_err() {
                    // The topic has another log: the source is started anew.
                    std::future::pending::<()>().await;
                }
            })
        });
        let is_changed = changed.as_mut().poll(context).is_ready();
        if is_changed {
            self.published = None;
        }
        is_changed
    }
}
