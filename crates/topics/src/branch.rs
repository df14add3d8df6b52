//! What one worker has of a topic: it takes the events as they come, once for all subscribers of
//! the worker, and hands them to the channels.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use component::access::revocations;
use component::handler::LocalFuture;
use component::resources::Resource;
use component::vital::vital;
use message::Fault;
use tokio::sync::{Mutex, oneshot};
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep};

use crate::channel::{Channel, ChannelKey, Pace, Policy, StreamEnd};
use crate::counts::Counts;
use crate::event::{Event, EventId};
use crate::expressions::{Evaluator, Expressions, Item, TimeSlice};
use crate::mailbox::Mailbox;
use crate::topic::{Attached, Topic};
use crate::view::View;

/// How often heartbeats and stalled readers are looked at.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// For how many ticks a worker stays with a topic that nobody subscribes to.
const IDLE_TICKS: u32 = 10;
/// Of the time in which all subscribers had their turn, the part in which more events are waited
/// for: those that come meanwhile go into one write for each subscriber.
const REST_PART: u32 = 8;
/// The shortest rest that is worth a timer, and the longest.
const REST: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(5));
/// The most channels for each different combination of expressions: the same can be asked for over
/// several protocols, compressed and not, and together with other topics.
const CHANNELS_EACH: usize = 4;

/// What one worker has of a topic.
pub(crate) struct Branch {
    topic: Arc<Topic>,
    counts: Arc<Counts>,
    /// The last event that has come, whatever it was.
    last: Cell<EventId>,
    /// The last event of a topic of snapshots.
    latest: RefCell<Option<Arc<Event>>>,
    /// Those without expressions, which get every event at once.
    channels: RefCell<Vec<Weak<Channel>>>,
    /// Those with expressions, which get what these have made of it later.
    evaluated: RefCell<Vec<Weak<Channel>>>,
    evaluator: Evaluator,
    is_attached: Cell<bool>,
    is_closed: Cell<bool>,
    /// Held while the worker comes to the topic.
    coming: Mutex<()>,
    carrier: RefCell<Option<Waker>>,
    /// Those who wait until an event has come that the topic has had already.
    expecting: RefCell<Vec<Waker>>,
    /// What ends the watch for revocations with the branch; there when somebody has come whose
    /// credential may be revoked.
    watch: RefCell<Option<oneshot::Sender<()>>>,
}

impl Branch {
    /// A branch without a subscriber.
    pub fn new(topic: Arc<Topic>, counts: Arc<Counts>, evaluator: Evaluator) -> Rc<Self> {
        let none = EventId {
            epoch: 0,
            sequence: 0,
        };
        Rc::new(Self {
            topic,
            counts,
            last: Cell::new(none),
            latest: RefCell::default(),
            channels: RefCell::default(),
            evaluated: RefCell::default(),
            evaluator,
            is_attached: Cell::new(false),
            is_closed: Cell::new(false),
            coming: Mutex::new(()),
            carrier: RefCell::default(),
            expecting: RefCell::default(),
            watch: RefCell::default(),
        })
    }

    /// The topic.
    pub fn topic(&self) -> &Arc<Topic> {
        &self.topic
    }

    /// The topic's name.
    pub fn name(&self) -> &str {
        self.topic.name()
    }

    /// What is counted of its subscribers.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// The expressions of its subscribers.
    pub fn evaluator(&self) -> &Evaluator {
        &self.evaluator
    }

    /// The last event that has come, which channels without expressions have; sequence 0 before the
    /// first.
    pub fn last(&self) -> EventId {
        self.last.get()
    }

    /// From now on, ends streams at once whose credential is revoked.
    pub fn watch_revocations(self: &Rc<Self>) {
        let mut ended = match &mut *self.watch.borrow_mut() {
            Some(_) => return,
            none => {
                let (watch, ended) = oneshot::channel();
                *none = Some(watch);
                ended
            }
        };
        let (branch, mut revocations) = (Rc::downgrade(self), revocations());
        // What has been revoked before is seen by whoever takes a seat.
        let watch = async move {
            loop {
                let mut changed = pin!(revocations.changed());
                let is_there = poll_fn(|context| match Pin::new(&mut ended).poll(context) {
                    Poll::Ready(_) => Poll::Ready(false),
                    Poll::Pending => changed.as_mut().poll(context).map(|it| it.is_ok()),
                });
                let is_there = is_there.await;
                let Some(branch) = branch.upgrade().filter(|_| is_there) else {
                    return;
                };
                branch.all().iter().for_each(|it| it.finish_revoked());
            }
        };
        tokio::task::spawn_local(vital("revocations of a topic", watch));
    }

    /// Waits until the channels have this event. The caller knows that the topic has had it, so
    /// that it is in the mailbox or about to be. `false` when no more events come.
    pub async fn reach(&self, sequence: u64) -> bool {
        poll_fn(|context| {
            if self.last.get().sequence >= sequence {
                return Poll::Ready(true);
            }
            if !self.is_attached.get() || self.is_closed.get() {
                return Poll::Ready(false);
            }
            self.expecting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Waits until a channel has this event, which has come already: one with expressions may be
    /// behind. `false` when it gets no more.
    pub async fn reach_in(&self, channel: &Channel, member: usize, sequence: u64) -> bool {
        poll_fn(|context| {
            let last = channel.last(member);
            if last.is_some_and(|it| it.sequence >= sequence) {
                return Poll::Ready(true);
            }
            if channel.is_over() || self.is_closed.get() {
                return Poll::Ready(false);
            }
            self.expecting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Has those look who wait for an event.
    fn wake_expecting(&self) {
        for waker in self.expecting.take() {
            waker.wake();
        }
    }

    /// The last snapshot that the channels have.
    pub fn latest(&self) -> Option<Arc<Event>> {
        self.latest.borrow().clone()
    }

    /// Comes to the topic, unless the worker is there already.
    ///
    /// # Errors
    /// When the topic cannot be read.
    pub async fn ready(self: &Rc<Self>) -> Result<(), Fault> {
        let coming = self.coming.lock().await;
        if self.is_attached.get() {
            return Ok(());
        }
        let attached = self.topic.attach().await?;
        let Attached {
            latest,
            next,
            mailbox,
            ..
        } = attached;
        self.last
            .set(self.topic.id(next.sequence.saturating_sub(1)));
        *self.latest.borrow_mut() = latest;
        self.is_attached.set(true);
        drop(coming);
        let carry = Rc::clone(self).carry(mailbox);
        tokio::task::spawn_local(vital("events of a topic", carry));
        Ok(())
    }

    /// Whether those who ask for this find a channel, or one may be made for them. Beyond the most
    /// channels only such may be made that differ from one that exists in what its readers'
    /// connections have agreed on (chunks, compression of WebSocket): the head of a reply has been
    /// sent before that is known.
    pub fn has_room(branches: &[Rc<Self>], key: &ChannelKey) -> bool {
        let is_like = |it: &ChannelKey| {
            it.wire.is_like(key.wire) && it.ids == key.ids && it.views == key.views
        };
        let is_plain = key.views.iter().all(View::is_plain);
        is_plain
            || !branches.iter().any(|it| it.is_full(key.is_asked_for()))
            || Self::find(branches, is_plain, is_like).is_some()
    }

    /// The channel of some branches whose key is like that.
    fn find(
        branches: &[Rc<Self>],
        is_plain: bool,
        is_it: impl Fn(&ChannelKey) -> bool,
    ) -> Option<Rc<Channel>> {
        let channels = branches.first()?.known(is_plain).borrow();
        let mut known = channels.iter().filter_map(Weak::upgrade);
        known.find(|it| !it.is_over() && is_it(it.key()) && it.is_of(branches))
    }

    /// Whether another channel with expressions would be too many: with those of subscribers, or
    /// with the operator's condition alone.
    fn is_full(&self, is_asked_for: bool) -> bool {
        let channels = self.evaluated.borrow();
        let live = channels.iter().filter_map(Weak::upgrade);
        let alike = live.filter(|it| it.key().is_asked_for() == is_asked_for);
        alike.count() >= self.evaluator.distinct_max(is_asked_for) * CHANNELS_EACH
    }

    /// The channels with expressions, or those without.
    fn known(&self, is_plain: bool) -> &RefCell<Vec<Weak<Channel>>> {
        match is_plain {
            true => &self.channels,
            false => &self.evaluated,
        }
    }

    /// The channel of some branches with this key, made when it is not there. None when one with
    /// expressions would be too many.
    pub fn channel(branches: &[Rc<Self>], key: ChannelKey, pace: Pace) -> Option<Rc<Channel>> {
        let is_plain = key.views.iter().all(View::is_plain);
        Self::find(branches, is_plain, |it| *it == key).or_else(|| {
            if branches.is_empty() || !Self::has_room(branches, &key) {
                return None;
            }
            let made = Channel::new(key, pace, branches);
            for branch in branches {
                let mut channels = branch.known(is_plain).borrow_mut();
                channels.push(Rc::downgrade(&made));
            }
            Some(made)
        })
    }

    /// Takes events and hands them on, until nobody is there any more.
    async fn carry(self: Rc<Self>, mailbox: Mailbox) {
        let mut ticks = tokio::time::interval_at(Instant::now() + TICK, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut carrier = Carrier {
            branch: &self,
            mailbox,
            ticks,
            events: Vec::new(),
            idle: 0,
            woken: Vec::new(),
            handed_on: None,
            rest: None,
        };
        poll_fn(|context| carrier.poll(context)).await;
        drop(carrier);
        self.is_attached.set(false);
        for channel in self.all() {
            channel.finish(StreamEnd::Stop);
        }
        self.wake_expecting();
    }

    fn live(channels: &RefCell<Vec<Weak<Channel>>>) -> Vec<Rc<Channel>> {
        let mut channels = channels.borrow_mut();
        channels.retain(|it| it.strong_count() > 0);
        let live = channels.iter().filter_map(Weak::upgrade);
        live.filter(|it| !it.is_over()).collect()
    }

    fn all(&self) -> Vec<Rc<Channel>> {
        let mut all = Self::live(&self.channels);
        all.extend(Self::live(&self.evaluated));
        all
    }

    /// Hands events to the channels, then wakes their readers, each once. Expressions are evaluated
    /// after that, by a task of their own.
    ///
    /// Many readers are woken in several turns. Returned are the channels that have readers left to
    /// be woken, each with the seat to go on from.
    fn hand_on(self: &Rc<Self>, events: &mut Vec<Arc<Event>>) -> Vec<(Rc<Channel>, usize)> {
        let channels = Self::live(&self.channels);
        let has_expressions = !self.evaluator.is_idle();
        for event in events.drain(..) {
            channels.iter().for_each(|it| it.take(self, &event));
            if has_expressions {
                let full = self.evaluator.put(&event);
                full.iter().for_each(|it| self.fall_behind(it));
            }
            self.last.set(event.id);
            if let crate::event::Content::Snapshot { .. } = event.content {
                *self.latest.borrow_mut() = Some(event);
            }
        }
        let more = channels.iter().filter_map(wake_some).collect();
        if has_expressions && self.evaluator.next().is_some() && self.evaluator.start() {
            let evaluate = Rc::clone(self).evaluate();
            tokio::task::spawn_local(vital("expressions of subscribers", evaluate));
        }
        self.wake_expecting();
        more
    }

    /// The channels that show what these expressions make of the events.
    fn showing(self: &Rc<Self>, expressions: &Rc<Expressions>) -> Vec<Rc<Channel>> {
        let mut channels = Self::live(&self.evaluated);
        channels.retain(|it| it.shows(self, expressions));
        channels
    }

    /// Evaluates expressions for the events that wait for them, until none does. Others have their
    /// turn in between.
    async fn evaluate(self: Rc<Self>) {
        let mut slice = TimeSlice::begin().await;
        while !self.is_closed.get()
            && let Some(expressions) = self.evaluator.next()
        {
            // One that comes meanwhile begins behind this event.
            let channels = self.showing(&expressions);
            match expressions.take().filter(|_| !channels.is_empty()) {
                Some(Item::Event(fresh)) => {
                    let evaluator = &self.evaluator;
                    let evaluated = evaluator.evaluate(&expressions, &fresh, &mut slice).await;
                    for channel in channels {
                        let bytes = channel.take_evaluated(&self, &fresh.event, &evaluated);
                        channel.wake();
                        let encoded = (&*expressions, &*fresh);
                        evaluator.charge_bytes(encoded, bytes, &mut slice).await;
                    }
                }
                Some(Item::Gap(lost)) => {
                    for channel in channels {
                        channel.take_gap(&self, lost);
                        channel.wake();
                    }
                }
                None => {}
            }
            self.wake_expecting();
        }
        self.evaluator.stop();
    }

    /// More waits for expressions than may: their subscribers are too slow.
    fn fall_behind(self: &Rc<Self>, expressions: &Rc<Expressions>) {
        let (mut policy, mut readers) = (Policy::Disconnect, 0);
        for channel in self.showing(expressions) {
            match channel.policy() {
                Policy::Disconnect => channel.cut(),
                other => {
                    policy = other;
                    readers += channel.readers();
                }
            }
        }
        expressions.fall_behind(policy, self.evaluator.queue_max());
        if policy == Policy::Conflate {
            let conflated = &self.counts.conflated;
            conflated.fetch_add(readers, Ordering::Relaxed);
        }
    }

    /// Makes room for so many bytes that wait for subscribers with expressions: what has been read
    /// is forgotten, and then the channels end that have most.
    pub fn make_room(&self, bytes: u64) {
        let memory = self.evaluator.memory();
        if memory.fits(bytes) {
            return;
        }
        let mut channels = Self::live(&self.evaluated);
        // What a stream of several topics has counts for the first.
        channels.retain(|it| it.branch(0).is_some_and(|it| std::ptr::eq(&**it, self)));
        channels.iter().for_each(|it| it.release());
        channels.sort_unstable_by_key(|it| it.held());
        while !memory.fits(bytes)
            && let Some(largest) = channels.pop()
        {
            largest.cut();
        }
        self.wake_expecting();
    }

    /// Has the channels look at the time; whether there is any.
    fn tick(self: &Rc<Self>) -> bool {
        let channels = self.all();
        for channel in &channels {
            channel.report();
            // A channel of several topics lives by the first one's time.
            if channel
                .branch(0)
                .is_some_and(|first| Rc::ptr_eq(first, self))
            {
                channel.tick();
            }
        }
        !channels.is_empty()
    }
}

/// What carries events from the mailbox to the channels.
struct Carrier<'a> {
    branch: &'a Rc<Branch>,
    mailbox: Mailbox,
    ticks: Interval,
    events: Vec<Arc<Event>>,
    /// For how many ticks nobody has been there.
    idle: u32,
    /// The channels that have readers who have not been woken yet, and from which seat on.
    woken: Vec<(Rc<Channel>, usize)>,
    /// Since when subscribers take what has been handed on.
    handed_on: Option<Instant>,
    /// Until when more events are waited for.
    rest: Option<Pin<Box<Sleep>>>,
}

impl Carrier<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.branch.is_closed.get() {
            return Poll::Ready(());
        }
        *self.branch.carrier.borrow_mut() = Some(context.waker().clone());
        while self.ticks.poll_tick(context).is_ready() {
            self.idle = match self.branch.tick() {
                true => 0,
                false => self.idle + 1,
            };
        }
        if self.idle >= IDLE_TICKS {
            return Poll::Ready(());
        }
        if !self.woken.is_empty() {
            self.wake_more(context);
            return Poll::Pending;
        }
        if let Some(since) = self.handed_on.take() {
            self.rest = rest(since.elapsed()).map(|time| Box::pin(tokio::time::sleep(time)));
        }
        if let Some(rest) = &mut self.rest {
            ready!(rest.as_mut().poll(context));
            self.rest = None;
        }
        // Those who come again find out what they have missed.
        if ready!(self.mailbox.poll_take(context, &mut self.events)).is_err() {
            return Poll::Ready(());
        }
        self.woken = self.branch.hand_on(&mut self.events);
        self.handed_on = Some(Instant::now());
        self.come_again(context);
        Poll::Pending
    }

    /// Wakes more of those who have something to read.
    fn wake_more(&mut self, context: &mut Context<'_>) {
        self.woken.retain_mut(|(channel, first)| {
            let next = channel.wake_some(*first);
            *first = next.unwrap_or_default();
            next.is_some()
        });
        self.come_again(context);
    }

    /// This task's next turn comes behind those of all whom it has woken; where more are left to be
    /// woken, also behind those for whom the sockets of the worker have something.
    fn come_again(&self, context: &mut Context<'_>) {
        match self.woken.is_empty() {
            true => context.waker().wake_by_ref(),
            false => _ = pin!(tokio::task::yield_now()).poll(context),
        }
    }
}

/// Wakes some readers of a channel. If others are left: the channel, and the seat to go on from.
fn wake_some(channel: &Rc<Channel>) -> Option<(Rc<Channel>, usize)> {
    Some((Rc::clone(channel), channel.wake_some(0)?))
}

/// How long more events are waited for when it took so long until all subscribers had these. A
/// worker that is busy with a topic's subscribers would otherwise write every event by itself, and
/// have no time for whoever publishes.
fn rest(took: Duration) -> Option<Duration> {
    let (shortest, longest) = REST;
    let rest = (took / REST_PART).min(longest);
    (rest >= shortest).then_some(rest)
}

impl Resource for Branch {
    /// The topic is served no more, or in another way: its subscribers come again.
    fn close(self: Rc<Self>) -> LocalFuture<'static, ()> {
        self.is_closed.set(true);
        if let Some(waker) = self.carrier.borrow_mut().take() {
            waker.wake();
        }
        for channel in self.all() {
            channel.finish(StreamEnd::Stop);
        }
        self.wake_expecting();
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{IdForm, Wire};
    use crate::join::{Joining, Start, Step};
    use crate::settings::Payload;
    use crate::testing::{memory, publication};
    use crate::view::Mode;

    fn channel(branch: &Rc<Branch>) -> Rc<Channel> {
        let view = View {
            mode: Mode::Event,
            expressions: None,
        };
        let key = ChannelKey {
            wire: Wire::Sse {
                chunked: false,
                gzip: false,
            },
            ids: IdForm::Plain,
            views: vec![view],
        };
        let pace = Pace {
            heartbeat: 100,
            stalled_max: 100,
            bytes_max: 1 << 20,
            policy: Policy::Disconnect,
        };
        Branch::channel(&[Rc::clone(branch)], key, pace).unwrap()
    }

    /// A subscriber gets an event from one worker and comes back to another one, which does not
    /// have it yet.
    #[tokio::test]
    async fn a_worker_that_is_behind_the_topic_waits_for_the_event() {
        for payload in [Payload::Event, Payload::Snapshot] {
            let topic = memory(payload).await;
            // Nobody takes what is in its mailbox: it rests.
            let mut attached = topic.attach().await.unwrap();
            let branch = crate::testing::branch(&topic);
            branch.last.set(EventId {
                sequence: 0,
                ..attached.next
            });
            branch.is_attached.set(true);
            let channel = channel(&branch);
            let id = topic.publish(publication("[1]")).await.unwrap().id;
            let mut joining = Joining::new(&channel, vec![Start::After(id)], Vec::new());
            let mut advance = Box::pin(joining.advance());
            let mut context = Context::from_waker(Waker::noop());
            let first = advance.as_mut().poll(&mut context);
            assert!(first.is_pending(), "{first:?}");
            let mut events = Vec::new();
            attached.mailbox.take(&mut events).await.unwrap();
            branch.hand_on(&mut events);
            let step = advance.await.unwrap();
            let Step::Join(own, at) = step else {
                panic!("{step:?}");
            };
            assert_eq!((own.as_ref(), at), (&b""[..], channel.end_of_ring()));
            // One that nobody has been given is ahead, as before.
            let later = EventId {
                sequence: id.sequence + 1,
                ..id
            };
            let mut joining = Joining::new(&channel, vec![Start::After(later)], Vec::new());
            let (Step::Join(own, _) | Step::Write(own)) = joining.advance().await.unwrap() else {
                panic!();
            };
            assert!(String::from_utf8_lossy(&own).contains("\"ahead\""));
        }
    }

    #[tokio::test]
    async fn who_waits_for_an_event_is_let_go_when_the_worker_leaves_the_topic() {
        let topic = memory(Payload::Event).await;
        let branch = crate::testing::branch(&topic);
        branch.is_attached.set(true);
        let mut waiting = Box::pin(branch.reach(7));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        Rc::clone(&branch).close().await;
        assert!(!waiting.await);
    }

    /// The branch would seem to be there for ever, and its subscribers would get nothing.
    #[tokio::test(flavor = "local")]
    #[expect(clippy::await_holding_refcell_ref, reason = "it makes the task panic")]
    async fn a_panic_of_the_task_that_hands_events_on_is_reported() {
        let topic = memory(Payload::Event).await;
        let branch = crate::testing::branch(&topic);
        let (lost, mut reported) = tokio::sync::mpsc::unbounded_channel();
        component::vital::on_loss(move |name| lost.send(name).unwrap());
        branch.ready().await.unwrap();
        // What is borrowed already cannot be borrowed again.
        let channels = branch.channels.borrow_mut();
        topic.publish(publication("[1]")).await.unwrap();
        assert_eq!(reported.recv().await, Some("events of a topic"));
        drop(channels);
    }

    #[test]
    fn only_a_worker_that_is_busy_rests() {
        let after = |micros: u64| rest(Duration::from_micros(micros)).map(|it| it.as_micros());
        assert_eq!(after(0), None);
        assert_eq!(after(3_999), None);
        assert_eq!(after(4_000), Some(500));
        assert_eq!(after(16_000), Some(2_000));
        assert_eq!(after(1_000_000), Some(5_000));
    }
}
