//! Everybody on a worker who sees the same topics in the same way. Each event is encoded once, into
//! a ring; each reader has a place in it, and nothing else of its own.

mod end;
mod evaluated;
mod opening;

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use component::access::Validity;
use component::stream::StopReason;
use net::websocket::{Role, Writer};

use crate::branch::Branch;
use crate::document::Document;
use crate::event::{Event, EventId};
use crate::expressions::Held;
use crate::frame::{self, IdForm, Kind, Part, Wire};
use crate::gzip::Gzip;
use crate::profile::axway;
use crate::ring::{Ring, Segment};
use crate::seats::{Lost, Next, Outlet, Seats};
use crate::tally::{Count, Tally};
use crate::view::{Shown, View};

pub(crate) use end::{StreamEnd, invalid_data};
use opening::Opening;

/// How many bytes that all have read are kept for those who come back.
const TAIL: u64 = 64 * 1024;
/// The largest buffer that a channel with expressions keeps for its next frame: what it keeps does
/// not count in the memory that it waits for with others.
const SCRATCH_MAX: usize = 16 * 1024;
/// How many bytes readers write who are woken together.
const WOKEN_BYTES: u64 = 512 * 1024;

/// What becomes of a reader that is further behind than a ring keeps.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    serde::Deserialize,
    serde::Serialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Policy {
    /// It gets the newest snapshot and goes on from there.
    Conflate,
    /// It is told how many events it has missed, and goes on with the oldest that is kept.
    Drop,
    /// Its stream ends, and it may come back to go on where it was.
    Disconnect,
}

/// What tells channels of a worker apart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChannelKey {
    /// How frames are written.
    pub wire: Wire,
    /// How places are written.
    pub ids: IdForm,
    /// What is seen of each topic.
    pub views: Vec<View>,
}

impl ChannelKey {
    /// Whether its readers have sent expressions.
    pub fn is_asked_for(&self) -> bool {
        let mut expressions = self.views.iter().filter_map(|it| it.expressions.as_ref());
        expressions.any(|it| it.is_asked_for())
    }
}

/// What a channel does with time, in ticks of its branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// After how many ticks without a byte a heartbeat comes.
    pub heartbeat: u32,
    /// After how many ticks a reader is cut that has taken nothing.
    pub stalled_max: u32,
    /// How many bytes a reader may be behind.
    pub bytes_max: u64,
    /// What becomes of one that is further behind.
    pub policy: Policy,
}

/// A place in the ring, and what those have who have all before it.
#[derive(Debug)]
pub(crate) struct Moment {
    /// The offset.
    pub at: u64,
    /// The last event of each topic.
    pub places: Vec<EventId>,
}

/// One of the topics of a channel.
struct Member {
    branch: Rc<Branch>,
    view: View,
    /// The place of those who have all that is in the ring.
    last: Cell<EventId>,
    /// The document that they have, where patches are made of what a `select` gives.
    before: RefCell<Option<Document>>,
    /// The last snapshot that they have, where there are expressions: these may be behind.
    latest: RefCell<Option<Arc<Event>>>,
    /// The frame of the newest snapshot, for those who come and those who have to skip to it.
    newest: RefCell<Option<(EventId, Bytes)>>,
}

/// The time of day, in seconds since 1970.
fn wall_seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// Everybody on a worker who sees the same topics in the same way.
pub(crate) struct Channel {
    key: ChannelKey,
    pace: Pace,
    members: Vec<Member>,
    ring: RefCell<Ring>,
    seats: RefCell<Seats>,
    gzip: Option<RefCell<Gzip>>,
    /// What one who came in this tick has got, for all who come together.
    opening: RefCell<Option<Opening>>,
    /// Ticks since the last byte.
    silent: Cell<u32>,
    /// Ticks since the beginning.
    ticks: Cell<u32>,
    scratch: RefCell<(String, Vec<u8>)>,
    /// What has been written since it was last told.
    bytes: Cell<u64>,
    delivered: Cell<u64>,
    /// The same for each topic, where there are several.
    tally: Option<RefCell<Tally>>,
    is_over: Cell<bool>,
    /// The memory of channels with expressions, which these have together.
    held: Option<Held>,
    /// How many bytes wait for one reader alone each, where there are expressions.
    own: Cell<u64>,
    /// What the ring has forgotten and readers have begun, where there are expressions.
    begun: RefCell<Vec<Weak<Segment>>>,
    /// What those who read it are called in errors that all of them get, once there is one.
    subscription: OnceCell<String>,
}

impl Channel {
    /// A channel that begins with the next events of these topics.
    pub fn new(key: ChannelKey, mut pace: Pace, branches: &[Rc<Branch>]) -> Rc<Self> {
        let member = |(branch, view): (&Rc<Branch>, &View)| Member {
            branch: Rc::clone(branch),
            view: view.clone(),
            last: Cell::new(branch.last()),
            before: RefCell::default(),
            latest: RefCell::new(branch.latest()),
            newest: RefCell::default(),
        };
        let members: Vec<Member> = branches.iter().zip(&key.views).map(member).collect();
        let next = members.first().map_or(1, |it| it.last.get().sequence + 1);
        let is_gzip = matches!(key.wire, Wire::Sse { gzip: true, .. });
        let is_plain = key.views.iter().all(View::is_plain);
        if !is_plain && members.len() > 1 && pace.policy == Policy::Conflate {
            // What a reader misses of one topic may be behind what the ring has of another.
            pace.policy = Policy::Disconnect;
        }
        for expressions in key.views.iter().filter_map(|it| it.expressions.as_ref()) {
            expressions.add_channel();
        }
        let memory = branches.first().filter(|_| !is_plain);
        let channel = Self {
            held: memory.map(|it| Held::new(it.evaluator().memory())),
            own: Cell::new(0),
            begun: RefCell::default(),
            pace,
            ring: RefCell::new(Ring::new(next, pace.bytes_max)),
            seats: RefCell::default(),
            gzip: is_gzip.then(|| RefCell::new(Gzip::new())),
            opening: RefCell::default(),
            silent: Cell::new(0),
            ticks: Cell::new(0),
            scratch: RefCell::default(),
            bytes: Cell::new(0),
            delivered: Cell::new(0),
            tally: (members.len() > 1).then(|| RefCell::new(Tally::new(members.len()))),
            is_over: Cell::new(false),
            subscription: OnceCell::new(),
            members,
            key,
        };
        Rc::new(channel)
    }

    /// Whether its streams have been ended.
    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// What tells it apart.
    pub fn key(&self) -> &ChannelKey {
        &self.key
    }

    /// Whether it is one of exactly these topics.
    pub fn is_of(&self, branches: &[Rc<Branch>]) -> bool {
        let same = |(member, branch): (&Member, &Rc<Branch>)| Rc::ptr_eq(&member.branch, branch);
        self.members.len() == branches.len() && self.members.iter().zip(branches).all(same)
    }

    /// The number of its topics.
    pub fn width(&self) -> usize {
        self.members.len()
    }

    /// One of its topics.
    pub fn branch(&self, member: usize) -> Option<&Rc<Branch>> {
        self.members.get(member).map(|it| &it.branch)
    }

    fn member_of(&self, branch: &Rc<Branch>) -> Option<(usize, &Member)> {
        let mut members = self.members.iter().enumerate();
        members.find(|it| Rc::ptr_eq(&it.1.branch, branch))
    }

    /// Takes an event of one of the topics into the ring, where there are no expressions. Nobody is
    /// woken yet.
    pub fn take(&self, branch: &Rc<Branch>, event: &Event) {
        if let Some((at, member)) = self.member_of(branch) {
            let shown = member.view.next(event);
            self.take_shown(at, event.id, shown);
        }
    }

    fn take_shown(&self, at: usize, id: EventId, shown: Shown<'_>) -> usize {
        if let Some(member) = self.members.get(at) {
            member.last.set(id);
        }
        let (text, out) = &mut *self.scratch.borrow_mut();
        out.clear();
        self.write_shown(at, shown, None, (text, out));
        match out.is_empty() {
            true => self.ring.borrow_mut().skip(id.sequence),
            false => self.push(Some(id.sequence), at, out),
        }
        let length = out.len();
        if self.held.is_some() && out.capacity() > SCRATCH_MAX {
            *out = Vec::new();
        }
        length
    }

    /// How many readers there are.
    pub fn readers(&self) -> u64 {
        self.seats.borrow().count()
    }

    /// What becomes of its readers when they are too slow.
    pub fn policy(&self) -> Policy {
        self.pace.policy
    }

    /// Writes what is shown of an event of a topic. `places` are those that its id says; the
    /// channel's own without.
    fn write_shown(
        &self,
        member: usize,
        shown: Shown<'_>,
        places: Option<&[EventId]>,
        (text, out): (&mut String, &mut Vec<u8>),
    ) {
        let (kind, data) = match shown {
            Shown::Nothing => return,
            Shown::Part(kind, data) => (kind, data),
            Shown::Failed(reason) => (Kind::Error, self.failure(reason).into()),
        };
        self.write_ids(places, text);
        self.write_part(member, (text, kind, &data), out);
    }

    /// What an `error` says of an event that cannot be shown.
    fn failure(&self, reason: &str) -> Vec<u8> {
        if self.key.ids == IdForm::Axway {
            let subscription = self.subscription.get_or_init(axway::subscription_id);
            return axway::event_error(subscription, reason);
        }
        let mut out = b"{\"reason\":\"expression\",\"detail\":".to_vec();
        frame::write_text(reason, &mut out);
        out.push(b'}');
        out
    }

    /// Writes one part for a topic, enclosed as the wire wants it.
    fn write_part(&self, member: usize, (id, kind, data): (&str, Kind, &[u8]), out: &mut Vec<u8>) {
        let topic = self.members.get(member).map(|it| it.branch.name());
        let names_topic = self.key.ids == IdForm::Composite || self.is_websocket();
        let part = Part {
            id,
            kind,
            topic: topic.filter(|_| names_topic),
            data,
        };
        match self.key.wire {
            Wire::Sse { .. } => frame::write_event(&part, out),
            Wire::WebSocket(deflate) => {
                let mut text = Vec::with_capacity(data.len() + 128);
                frame::write_message(&part, &mut text);
                let role = Role::Server;
                Writer { role, deflate }.message(net::websocket::Kind::Text, &text, out);
            }
        }
    }

    fn write_ids(&self, places: Option<&[EventId]>, text: &mut String) {
        let members = self.members.iter().enumerate();
        let place = |(at, member): (usize, &'_ Member)| {
            let given = places.and_then(|it| it.get(at)).copied();
            given.unwrap_or_else(|| member.last.get())
        };
        let named = members.map(|it| (it.1.branch.name(), place(it)));
        frame::write_id(self.key.ids, named, text);
    }

    /// Puts plain bytes of a topic into the ring, as the wire wants them.
    fn push(&self, event: Option<u64>, member: usize, plain: &mut Vec<u8>) {
        self.enclose(plain, self.gzip.as_ref());
        self.silent.set(0);
        self.make_room(plain.len());
        if !self.has_memory(plain.len()) {
            return;
        }
        let mut ring = self.ring.borrow_mut();
        match event {
            Some(sequence) => ring.push_event(sequence, plain),
            None => ring.push_other(plain),
        }
        if let Some(tally) = &self.tally {
            tally.borrow_mut().mark(ring.end(), member, event.is_some());
        }
        drop(ring);
        self.note_memory();
    }

    /// Compresses and puts chunks around bytes of server-sent events.
    fn enclose(&self, plain: &mut Vec<u8>, gzip: Option<&RefCell<Gzip>>) {
        let Wire::Sse { chunked, .. } = self.key.wire else {
            return;
        };
        if let Some(gzip) = gzip {
            *plain = gzip.borrow_mut().block(plain);
        }
        if chunked {
            frame::enclose_chunk(0, plain);
        }
    }

    /// Forgets what all have read, and what is more than may be kept.
    fn make_room(&self, length: usize) {
        let mut ring = self.ring.borrow_mut();
        if !ring.is_turning(length) {
            return;
        }
        let mut seats = self.seats.borrow_mut();
        ring.trim(seats.slowest(), TAIL);
        while let Some(end) = ring.surplus() {
            let start = ring.start();
            seats.save_begun(&ring, end);
            let segment = ring.evict();
            if let (Some(_), Some(segment)) = (&self.held, &segment) {
                self.begun.borrow_mut().push(Rc::downgrade(segment));
            }
            seats.hand_over(segment, (start, end), self.pace.policy);
        }
    }

    /// Wakes those who wait for something to read.
    pub fn wake(&self) {
        let (mut seats, end) = (self.seats.borrow_mut(), self.ring.borrow().end());
        seats.wake_hungry(0, end, u64::MAX);
    }

    /// Wakes some of them, from this seat on: as many as write for about a millisecond. Where to go
    /// on when others of the worker have been served; `None` when nobody is left.
    pub fn wake_some(&self, first: usize) -> Option<usize> {
        let (mut seats, end) = (self.seats.borrow_mut(), self.ring.borrow().end());
        seats.wake_hungry(first, end, WOKEN_BYTES)
    }

    /// Notes that a tick has passed: heartbeats, stalled readers, those whose time is over.
    pub fn tick(&self) {
        let now = self.ticks.get().wrapping_add(1);
        self.ticks.set(now);
        self.silent.set(self.silent.get().saturating_add(1));
        // It may be large, and count in the memory of bodies.
        self.opening.take();
        if self.silent.get() >= self.pace.heartbeat {
            self.beat();
        }
        let mut seats = self.seats.borrow_mut();
        seats.look(now, self.pace.stalled_max, wall_seconds);
        let slowest = seats.slowest();
        drop(seats);
        self.ring.borrow_mut().trim(slowest, TAIL);
        self.note_memory();
        if let Some(tally) = &self.tally {
            tally.borrow_mut().forget(slowest);
        }
    }

    /// Something that keeps quiet connections open. Where events may have been left out it says how
    /// far the topic is, so that whoever comes back need not look at those again.
    fn beat(&self) {
        let (text, out) = &mut *self.scratch.borrow_mut();
        out.clear();
        match self.key.wire {
            Wire::Sse { .. } => {
                out.extend_from_slice(b":\n");
                if self.members.iter().any(|it| !it.view.is_plain()) {
                    self.write_ids(None, text);
                    out.extend_from_slice(format!("id: {text}\n").as_bytes());
                }
                out.push(b'\n');
            }
            // Each connection has pings of its own.
            Wire::WebSocket(_) => return self.silent.set(0),
        }
        self.push(None, 0, out);
        self.wake();
    }

    /// Ends a reader's stream.
    pub fn finish_one(&self, key: u32, end: StreamEnd) {
        self.seats.borrow_mut().finish_one(key, end);
    }

    /// Ends the streams of readers whose credential has been revoked.
    pub fn finish_revoked(&self) {
        self.seats.borrow_mut().finish_revoked();
    }

    /// Ends all streams. Nobody may come any more.
    pub fn finish(&self, end: StreamEnd) {
        self.is_over.set(true);
        self.seats.borrow_mut().finish_all(end);
    }

    /// A place for a reader whose stream ends in that many ticks.
    pub fn enter(&self, ticks: Option<u32>) -> u32 {
        let over_at = ticks.map(|it| self.ticks.get().wrapping_add(it));
        self.seats.borrow_mut().enter(over_at)
    }

    /// Has a reader's stream end when its credential expires or is revoked.
    pub fn hold_to(&self, key: u32, validity: Arc<Validity>) {
        // First, so that no revocation comes between.
        self.members
            .iter()
            .for_each(|it| it.branch.watch_revocations());
        self.seats.borrow_mut().hold_to(key, validity);
    }

    /// The last words to readers of server-sent events whose credential is valid no more.
    pub fn write_invalid(&self, reason: StopReason, out: &mut Vec<u8>) {
        let (kind, data) = match self.key.ids {
            IdForm::Axway => {
                let subscription = self.subscription.get_or_init(axway::subscription_id);
                let message = reason.detail().unwrap_or_default();
                (Kind::Error, axway::end_error(subscription, message))
            }
            _ => (Kind::of_end(reason), invalid_data(reason).into_bytes()),
        };
        let part = Part {
            id: "",
            kind,
            topic: None,
            data: &data,
        };
        frame::write_event(&part, out);
    }

    /// Gives the place back.
    pub fn leave(&self, key: u32) {
        self.seats.borrow_mut().leave(key);
    }

    /// Has a reader go on from this offset.
    pub fn place(&self, key: u32, at: u64) {
        self.seats.borrow_mut().place(key, at, &self.ring.borrow());
    }

    /// Where those are who have all there is.
    pub fn end_of_ring(&self) -> u64 {
        self.ring.borrow().end()
    }

    /// The end of the ring as it is now.
    pub fn now(&self) -> Moment {
        Moment {
            at: self.end_of_ring(),
            places: self.members.iter().map(|it| it.last.get()).collect(),
        }
    }

    /// Whether all that lies behind this offset is still in the ring.
    pub fn holds(&self, at: u64) -> bool {
        self.ring.borrow().start() <= at
    }

    /// Lets a reader have events up to this one.
    pub fn open_window(&self, key: u32, sequence: u64) {
        self.seats.borrow_mut().open_window(key, sequence);
    }

    /// Where this event lies in the ring of an only topic.
    pub fn find(&self, sequence: u64) -> Option<u64> {
        self.ring.borrow().find(sequence)
    }

    /// Writes what comes next for a reader.
    ///
    /// # Errors
    /// When its connection has ended.
    #[inline]
    pub fn step(
        &self,
        key: u32,
        outlet: &mut (impl Outlet + ?Sized),
        context: &mut Context<'_>,
    ) -> io::Result<Next> {
        let ring = self.ring.borrow();
        let mut seats = self.seats.borrow_mut();
        let now = (key, self.ticks.get());
        let (next, written) = seats.step(now, &ring, outlet, context)?;
        match &self.tally {
            None => {
                self.bytes.set(self.bytes.get() + written.bytes);
                self.delivered.set(self.delivered.get() + written.events);
            }
            Some(tally) if written.bytes > 0 => {
                tally.borrow_mut().pass(seats.at(key), written.bytes);
            }
            Some(_) => {}
        }
        Ok(next)
    }

    /// What a reader has to end for.
    pub fn end(&self, key: u32) -> Option<StreamEnd> {
        self.seats.borrow_mut().end(key)
    }

    /// Notes how a write of other bytes than the ring's went, see [`Seats::note_other`].
    pub fn note_other(&self, key: u32, pending: Option<u64>, context: &Context<'_>) {
        let mut seats = self.seats.borrow_mut();
        seats.note_other((key, self.ticks.get()), pending, context);
    }

    /// Counts bytes that have been written for one reader alone. Those of several topics have been
    /// counted when they were [sealed](Channel::sealed_of).
    pub fn count_bytes(&self, count: u64) {
        if self.tally.is_none() {
            self.bytes.set(self.bytes.get() + count);
        }
    }

    /// Counts events of a topic that have been written for one reader alone.
    pub fn count_events(&self, member: usize, count: u64) {
        match &self.tally {
            None => self.delivered.set(self.delivered.get() + count),
            Some(tally) => tally.borrow_mut().add(member, 0, count),
        }
    }

    /// What a reader is given that has missed something, and where it goes on then.
    pub fn beyond(&self, key: u32, lost: Lost) -> (Bytes, u64) {
        let Some(first) = self.members.first() else {
            return (Bytes::new(), self.end_of_ring());
        };
        if self.held.is_some() && self.pace.policy != Policy::Drop {
            return self.beyond_evaluated(key, first);
        }
        let (mut out, mut shares) = (Vec::new(), vec![0; self.members.len()]);
        if self.pace.policy != Policy::Drop {
            for (at, member) in self.members.iter().enumerate() {
                let conflated = &member.branch.counts().conflated;
                conflated.fetch_add(1, Ordering::Relaxed);
                let before = out.len();
                self.write_newest(at, None, &mut out);
                if let Some(share) = shares.get_mut(at) {
                    *share = (out.len() - before) as u64;
                }
            }
            return (self.sealed_of(out, &shares), self.end_of_ring());
        }
        let dropped = &first.branch.counts().dropped;
        dropped.fetch_add(lost.count, Ordering::Relaxed);
        self.write_gap(0, lost, &mut out);
        (self.sealed_of(out, &[]), self.ring.borrow().start())
    }

    fn write_gap(&self, member: usize, lost: Lost, out: &mut Vec<u8>) {
        let count = lost.count;
        let Some(only) = self.members.first().filter(|_| self.members.len() == 1) else {
            let data = format!("{{\"count\":{count}}}");
            return self.write_part(member, ("", Kind::Gap, data.as_bytes()), out);
        };
        let id = |sequence| {
            let mut text = String::new();
            let place = only.branch.topic().id(sequence);
            let named = std::iter::once((only.branch.name(), place));
            frame::write_id(self.key.ids, named, &mut text);
            text
        };
        let (from, to) = (id(lost.from), id(lost.behind.saturating_sub(1)));
        let data = format!("{{\"from\":\"{from}\",\"to\":\"{to}\",\"count\":{count}}}");
        self.write_part(0, (&to, Kind::Gap, data.as_bytes()), out);
    }

    /// Writes the newest snapshot of a topic, when it has one and the view shows it. `places` are
    /// those that its id says; the channel's own without.
    pub fn write_newest(&self, member: usize, places: Option<&[EventId]>, out: &mut Vec<u8>) {
        let Some(of) = self.members.get(member) else {
            return;
        };
        let Some(latest) = of.branch.latest() else {
            return;
        };
        let is_shared = self.members.len() == 1;
        let mut newest = of.newest.borrow_mut();
        if let Some((_, frame)) = newest.as_ref().filter(|it| is_shared && it.0 == latest.id) {
            return out.extend_from_slice(frame);
        }
        let start = out.len();
        let shown = of.view.whole(&latest);
        self.write_shown(member, shown, places, (&mut String::new(), out));
        let made = out.get(start..).unwrap_or_default();
        *newest = is_shared.then(|| (latest.id, Bytes::copy_from_slice(made)));
    }

    /// Writes an event of a topic's history for one reader, who then is at these places.
    pub fn write_past(&self, member: usize, event: &Event, places: &[EventId], out: &mut Vec<u8>) {
        let Some(of) = self.members.get(member) else {
            return;
        };
        let shown = of.view.next(event);
        self.write_shown(member, shown, Some(places), (&mut String::new(), out));
    }

    /// Writes that a reader cannot go on where it wanted to. It is at these places then.
    pub fn write_reset(&self, member: usize, places: &[EventId], reset: &Reset, out: &mut Vec<u8>) {
        let mut id = String::new();
        self.write_ids(Some(places), &mut id);
        let mut data = b"{\"reason\":".to_vec();
        frame::write_text(reset.reason, &mut data);
        for (name, value) in [
            (&b",\"requested\":"[..], &reset.requested),
            (b",\"first\":", &reset.first),
            (b",\"next\":", &reset.next),
        ] {
            data.extend_from_slice(name);
            frame::write_text(value, &mut data);
        }
        data.push(b'}');
        self.write_part(member, (&id, Kind::Reset, &data), out);
    }

    /// The text of one place of a topic.
    pub fn id_text(&self, member: usize, id: EventId) -> String {
        let name = self.members.get(member).map(|it| it.branch.name());
        let form = match self.key.ids {
            IdForm::Composite => IdForm::Plain,
            form => form,
        };
        let mut text = String::new();
        frame::write_id(
            form,
            std::iter::once((name.unwrap_or_default(), id)),
            &mut text,
        );
        text
    }

    /// Writes where a reader is when it has come, without telling it of an event.
    pub fn write_place(&self, places: &[EventId], out: &mut Vec<u8>) {
        let mut text = String::new();
        self.write_ids(Some(places), &mut text);
        if !self.is_websocket() {
            return out.extend_from_slice(format!("id: {text}\n\n").as_bytes());
        }
        let mode = self.key.views.first().map_or("", |it| it.mode.name());
        let data = format!("{{\"mode\":\"{mode}\"}}");
        self.write_part(0, (&text, Kind::Subscribed, data.as_bytes()), out);
    }

    /// Whether its readers have WebSocket connections.
    pub fn is_websocket(&self) -> bool {
        matches!(self.key.wire, Wire::WebSocket(_))
    }

    /// Bytes for one reader alone, as the wire wants them.
    pub fn sealed(&self, mut plain: Vec<u8>) -> Bytes {
        if !plain.is_empty() {
            self.enclose(&mut plain, self.gzip.as_ref());
        }
        Bytes::from(plain)
    }

    /// The same for bytes that are counted: so many of the plain ones are of each topic, the rest
    /// of the first.
    pub fn sealed_of(&self, plain: Vec<u8>, shares: &[u64]) -> Bytes {
        let length = plain.len() as u64;
        let sealed = self.sealed(plain);
        if let Some(tally) = &self.tally {
            let bytes = sealed.len() as u64;
            tally.borrow_mut().share(bytes, length, shares);
        }
        sealed
    }

    /// How the view of a topic is.
    pub fn view(&self, member: usize) -> Option<&View> {
        self.members.get(member).map(|it| &it.view)
    }

    /// The place behind which the next event of a topic comes.
    pub fn last(&self, member: usize) -> Option<EventId> {
        self.members.get(member).map(|it| it.last.get())
    }

    /// Hands over what has been counted since the last time.
    pub fn report(&self) {
        if let Some(tally) = &self.tally {
            let mut tally = tally.borrow_mut();
            let members = self.members.iter().zip(tally.take());
            return members.for_each(|(member, count)| member.report(count));
        }
        let count = Count {
            bytes: self.bytes.take(),
            events: self.delivered.take(),
        };
        if let Some(only) = self.members.first() {
            only.report(count);
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.report();
        for expressions in self
            .key
            .views
            .iter()
            .filter_map(|it| it.expressions.as_ref())
        {
            expressions.remove_channel();
        }
    }
}

/// Why a reader cannot go on where it wanted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reset {
    /// `gone`, `ahead`, `other-epoch` or `unknown`.
    pub reason: &'static str,
    /// What it wanted to go on from.
    pub requested: String,
    /// The oldest event that is kept.
    pub first: String,
    /// The event that comes next.
    pub next: String,
}

impl Member {
    fn report(&self, count: Count) {
        let counts = self.branch.counts();
        counts.bytes.fetch_add(count.bytes, Ordering::Relaxed);
        counts.deliveries.fetch_add(count.events, Ordering::Relaxed);
    }

    /// How many bytes it keeps of what expressions have made.
    fn size(&self) -> usize {
        let before = self.before.borrow();
        let newest = self.newest.borrow();
        before.as_ref().map_or(0, Document::size) + newest.as_ref().map_or(0, |it| it.1.len())
    }
}
