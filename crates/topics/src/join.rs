//! How a subscriber comes to a channel: from now on, or from where it was, without a gap and
//! without anything twice.
//!
//! What it has missed is read from the history in pieces and written to it alone, until the
//! channel's ring has what comes next. Whether it has, and taking the place there, is one moment
//! of a thread on which nothing else happens, so no event can come between.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use message::memory::{self, Budget, Intake, NoRoom, Reservation};

use crate::channel::{Channel, Moment, Reset, StreamEnd};
use crate::event::EventId;
use crate::mailbox::weight;
use crate::settings::Payload;
use crate::topic::History;
use crate::view::Mode;

/// About how many bytes of history are read at once.
const PIECE: usize = 256 * 1024;
/// The same where there are expressions, which each have to wait for their turn.
const PIECE_EVALUATED: usize = 16 * 1024;
/// After how many bytes that expressions have made these are written: what a subscriber has while
/// it waits for its next turn.
const OUT_EVALUATED: usize = 4 * 1024;
/// Room is reserved in multiples of this: as little as [`memory::FREE`] would not be counted.
const ROOM_STEP: usize = 2 * memory::FREE;
/// How often is looked whether there is room for what a subscriber has missed.
const LOOK: Duration = Duration::from_millis(100);
/// How long a subscriber waits until its expressions have come to the event that it has had.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a subscriber wants to begin in a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// With how things are now, or with the next event.
    Now,
    /// With the oldest event that is kept.
    Earliest,
    /// With this event.
    From(EventId),
    /// Behind this event.
    After(EventId),
    /// Behind something that is no event's id.
    Unknown(String),
}

/// What a subscriber on its way to the ring has to do next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Write this, then ask again.
    Write(Bytes),
    /// Go on at this offset of the ring, behind these bytes. At once: the next event moves it.
    Join(Bytes, u64),
    /// Wait until it may have more.
    Full,
}

/// How far a subscriber is on its way to the ring.
pub(crate) struct Joining {
    channel: Rc<Channel>,
    /// Where it wants to begin, until that has been found out.
    starts: Vec<Start>,
    /// The last event of each topic that it has.
    places: Vec<EventId>,
    /// The topics whose newest snapshot it has to get.
    newest: Vec<usize>,
    /// What has not been written yet.
    out: Vec<u8>,
    /// How many bytes of that are of each topic.
    shares: Vec<u64>,
    /// How many events it may have that it has not acknowledged.
    window: Option<u64>,
    /// The last event that it may have.
    most: Option<u64>,
    /// Where it is going to join the ring of several topics.
    target: Option<Moment>,
    room: Room,
}

/// Room in the budget for bodies for what is written next.
struct Room {
    budget: &'static Budget,
    intake: Intake,
    reserved: Option<Reservation>,
    /// How many bytes are reserved.
    bytes: usize,
}

impl Room {
    fn new(budget: &'static Budget) -> Self {
        Self {
            budget,
            intake: Intake::new(budget),
            reserved: None,
            bytes: 0,
        }
    }

    /// Has at least so many bytes reserved, but for as few as are free; whether there is room.
    fn extend(&mut self, bytes: usize) -> bool {
        if bytes <= self.bytes.max(memory::FREE) {
            return true;
        }
        let missing = (bytes - self.bytes).next_multiple_of(ROOM_STEP);
        let taken = match self.intake.take(missing as u64) {
            Ok(taken) => taken,
            Err(NoRoom::Now { .. }) => return false,
            // Nobody could ever have such a snapshot, whose size the topic allows.
            Err(NoRoom::Never) => Some(self.budget.take_anyway(missing as u64)),
        };
        match (&mut self.reserved, taken) {
            (Some(reserved), Some(taken)) => reserved.merge(taken),
            (reserved, taken) => *reserved = taken.or(reserved.take()),
        }
        self.bytes += missing;
        true
    }

    /// What is reserved; none is from then on.
    fn take(&mut self) -> Option<Reservation> {
        self.bytes = 0;
        self.reserved.take()
    }
}

impl Joining {
    /// A subscriber that begins there in the topics of a channel, behind these bytes.
    pub fn new(channel: &Rc<Channel>, starts: Vec<Start>, opening: Vec<u8>) -> Self {
        Self {
            channel: Rc::clone(channel),
            starts,
            places: Vec::new(),
            newest: Vec::new(),
            out: opening,
            shares: vec![0; channel.width()],
            window: None,
            most: None,
            target: None,
            room: Room::new(memory::bodies()),
        }
    }

    /// Has it take room in another budget.
    #[cfg(test)]
    pub fn with_budget(mut self, budget: &'static Budget) -> Self {
        self.room = Room::new(budget);
        self
    }

    /// Lets it have that many events more than it has acknowledged.
    pub fn with_window(mut self, window: Option<u64>) -> Self {
        self.window = window;
        self
    }

    /// The last event that it may have, once it has begun.
    pub fn most(&self) -> Option<u64> {
        self.most
    }

    /// Notes that it has acknowledged this event.
    pub fn acknowledge(&mut self, sequence: u64) {
        let more = self.window.map(|window| sequence.saturating_add(window));
        self.most = self.most.max(more);
    }

    /// Whether it may have the next event.
    pub fn may_go_on(&self) -> bool {
        let place = self.places.first().map(|it| it.sequence);
        self.most.is_none() || place < self.most
    }

    /// Finds out what comes next.
    ///
    /// # Errors
    /// The reason when the stream has to end.
    pub async fn advance(&mut self) -> Result<Step, StreamEnd> {
        if self.places.is_empty() {
            self.begin().await?;
        }
        loop {
            self.evaluate_newest().await?;
            if let Some(own) = self.shared_opening() {
                return Ok(Step::Join(own, self.channel.end_of_ring()));
            }
            let newest = self.newest.iter().filter_map(|it| self.channel.latest(*it));
            let newest = newest.map(|it| weight(&it)).sum();
            if !self.reserve(newest) {
                if let Some(piece) = self.before_room().await? {
                    return Ok(Step::Write(piece));
                }
                continue;
            }
            let head = self.wants_newest_only().then(|| self.out.clone());
            if let Some(at) = self.settle() {
                let own = self.seal();
                if let Some(head) = head {
                    self.channel.note_opening(&head, &own);
                }
                return Ok(Step::Join(own, at));
            }
            // Of several topics all that is missing is read first: while it is written, events of
            // one or the other come.
            let is_enough = self.channel.width() == 1 || self.has_enough();
            if !self.out.is_empty() && is_enough {
                // Meanwhile the ring may get what comes next.
                let piece = self.seal();
                return Ok(Step::Write(piece));
            }
            if !self.may_go_on() {
                if self.out.is_empty() {
                    drop(self.room.take());
                }
                return Ok(Step::Full);
            }
            if self.reserve(PIECE) {
                self.read_on().await?;
            } else if let Some(piece) = self.before_room().await? {
                return Ok(Step::Write(piece));
            }
        }
    }

    /// Whether it gets the newest snapshot, like all who come now, and nothing of the history.
    fn wants_newest_only(&self) -> bool {
        *self.newest == [0] && self.channel.width() == 1 && !self.channel.has_expressions()
    }

    /// What another one has got who came to the same snapshot: it needs no room of its own.
    fn shared_opening(&mut self) -> Option<Bytes> {
        let last = self.channel.last(0).filter(|_| self.wants_newest_only())?;
        let own = self.channel.opening(&self.out)?;
        self.out.clear();
        self.newest.clear();
        self.put(0, last);
        self.channel.count_events(0, 1);
        self.acknowledge(last.sequence);
        drop(self.room.take());
        Some(own)
    }

    /// Reserves room in the budget for bodies for what is to be written, and so many bytes more;
    /// whether there is any. What expressions make has a budget of its own.
    fn reserve(&mut self, bytes: usize) -> bool {
        self.channel.has_expressions() || self.room.extend(self.out.len() + bytes)
    }

    /// What can be written before there is room for more. Else it waits for a moment.
    async fn before_room(&mut self) -> Result<Option<Bytes>, StreamEnd> {
        if !self.out.is_empty() {
            return Ok(Some(self.seal()));
        }
        // Whoever waits keeps nothing from the others.
        drop(self.room.take());
        tokio::time::sleep(LOOK).await;
        match self.channel.is_over() {
            true => Err(StreamEnd::Stop),
            false => Ok(None),
        }
    }

    /// Whether what has not been written yet is enough to be written.
    fn has_enough(&self) -> bool {
        let enough = match self.channel.has_expressions() {
            true => OUT_EVALUATED,
            false => PIECE,
        };
        self.out.len() >= enough
    }

    /// What has not been written yet, as the wire wants it.
    fn seal(&mut self) -> Bytes {
        let sealed = self
            .channel
            .sealed_of(std::mem::take(&mut self.out), &self.shares);
        self.shares.fill(0);
        match self.room.take() {
            Some(mut room) if sealed.len() > memory::FREE => {
                room.split(sealed.len() as u64).hold(sealed)
            }
            _ => sealed,
        }
    }

    /// Notes that what is behind this place of what is to be written is of a topic.
    fn note_share(&mut self, member: usize, before: usize) {
        if let Some(share) = self.shares.get_mut(member) {
            *share += (self.out.len() - before) as u64;
        }
    }

    /// Finds out where it begins in each topic.
    async fn begin(&mut self) -> Result<(), StreamEnd> {
        let before = self.out.len();
        let members = 0..self.channel.width();
        let lasts = members.clone().filter_map(|it| self.channel.last(it));
        self.places = lasts.collect();
        let mut resets = Vec::new();
        // Whoever comes again knows where it is.
        let is_known = self.starts.iter().all(|it| matches!(it, Start::After(_)));
        for (member, start) in members.zip(std::mem::take(&mut self.starts)) {
            if let Some(reset) = self.find_start(member, &start).await? {
                resets.push((member, reset));
            }
        }
        if self.channel.is_websocket() {
            self.channel.write_place(&self.places, &mut self.out);
        }
        for (member, reset) in &resets {
            self.write_reset(*member, reset);
        }
        let first = self.places.first().map(|it| it.sequence);
        self.acknowledge(first.unwrap_or_default());
        let mut newest = self.newest.iter();
        let says_nothing = newest.all(|&it| self.channel.latest(it).is_none());
        if self.out.len() == before && says_nothing && !is_known {
            self.channel.write_place(&self.places, &mut self.out);
        }
        Ok(())
    }

    /// Finds out where it begins in a topic; tells when that is not where it wanted to.
    async fn find_start(
        &mut self,
        member: usize,
        start: &Start,
    ) -> Result<Option<Reset>, StreamEnd> {
        let channel = Rc::clone(&self.channel);
        let (Some(last), Some(view)) = (channel.last(member), channel.view(member)) else {
            return Ok(None);
        };
        let is_snapshot = payload(&self.channel, member) == Payload::Snapshot;
        let wanted = match start {
            Start::Now if is_snapshot => return Ok(self.want_newest(member, last)),
            Start::Now => return Ok(None),
            Start::Earliest => {
                let first = oldest(&self.channel, member, last.epoch).await?;
                let before = self.id(member, first - 1);
                return Ok(self.put(member, before));
            }
            Start::Unknown(text) => {
                return self
                    .reset(member, ("unknown", text.clone()))
                    .await
                    .map(Some);
            }
            Start::From(id) => EventId {
                sequence: id.sequence.saturating_sub(1),
                ..*id
            },
            Start::After(id) => *id,
        };
        let last = match wanted.epoch == last.epoch && wanted.sequence > last.sequence {
            true => self.catch_up(member, wanted.sequence).await?,
            false => last,
        };
        let located = channel.branch(member).ok_or(StreamEnd::Failed)?;
        let reason = match located.topic().locate(wanted) {
            Err(reason) => reason,
            Ok(id) if id.sequence > last.sequence => "ahead",
            // Of documents that are made for this view the last one says it all.
            Ok(id)
                if is_snapshot && id != last && (view.mode != Mode::Patch || !view.is_plain()) =>
            {
                return Ok(self.want_newest(member, last));
            }
            Ok(id) => return Ok(self.put(member, id)),
        };
        let requested = channel.id_text(member, wanted);
        self.reset(member, (reason, requested)).await.map(Some)
    }

    /// Waits until this worker has an event that another one may have shown already, when the topic
    /// has had it. The last event that the channel has then.
    async fn catch_up(&self, member: usize, sequence: u64) -> Result<EventId, StreamEnd> {
        let channel = &self.channel;
        let branch = channel.branch(member).ok_or(StreamEnd::Failed)?;
        let next = branch.topic().next().map_err(|fault| {
            tracing::warn!(target: "topics", topic = branch.name(), %fault, "subscribe");
            StreamEnd::Failed
        })?;
        if sequence < next.sequence {
            let reach = async {
                branch.reach(sequence).await && branch.reach_in(channel, member, sequence).await
            };
            let reached = tokio::time::timeout(PATIENCE, reach).await;
            if !reached.map_err(|_| StreamEnd::Slow)? {
                return Err(StreamEnd::Stop);
            }
        }
        match channel.is_over() {
            true => Err(StreamEnd::Stop),
            false => channel.last(member).ok_or(StreamEnd::Failed),
        }
    }

    /// The id of an event of a topic.
    fn id(&self, member: usize, sequence: u64) -> EventId {
        let none = EventId { epoch: 0, sequence };
        let branch = self.channel.branch(member);
        branch.map_or(none, |it| it.topic().id(sequence))
    }

    fn put(&mut self, member: usize, id: EventId) -> Option<Reset> {
        if let Some(place) = self.places.get_mut(member) {
            *place = id;
        }
        None
    }

    /// The newest snapshot comes first. Before that the subscriber is nowhere.
    fn want_newest(&mut self, member: usize, last: EventId) -> Option<Reset> {
        self.newest.push(member);
        self.put(
            member,
            EventId {
                sequence: 0,
                ..last
            },
        )
    }

    /// Begins elsewhere than was wanted: with the newest snapshot, or the oldest event.
    async fn reset(
        &mut self,
        member: usize,
        (reason, requested): (&'static str, String),
    ) -> Result<Reset, StreamEnd> {
        let channel = Rc::clone(&self.channel);
        let last = channel.last(member).ok_or(StreamEnd::Failed)?;
        let oldest = oldest(&self.channel, member, last.epoch).await?;
        let id = |sequence| channel.id_text(member, self.id(member, sequence));
        let reset = Reset {
            reason,
            requested,
            first: id(oldest),
            next: id(channel.last(member).unwrap_or(last).sequence + 1),
        };
        if let Some(branch) = channel.branch(member) {
            branch.counts().resets.fetch_add(1, Ordering::Relaxed);
        }
        match payload(&self.channel, member) {
            Payload::Snapshot => self.want_newest(member, last),
            Payload::Event => {
                let before = self.id(member, oldest - 1);
                self.put(member, before)
            }
        };
        Ok(reset)
    }

    fn write_reset(&mut self, member: usize, reset: &Reset) {
        let channel = Rc::clone(&self.channel);
        let before = self.out.len();
        channel.write_reset(member, &self.places, reset, &mut self.out);
        self.note_share(member, before);
    }

    /// Where the ring has all that comes next, if it has; what has not been written yet comes
    /// before.
    fn settle(&mut self) -> Option<u64> {
        if self.channel.has_expressions() && !self.newest.is_empty() {
            // Some have not been evaluated yet.
            return None;
        }
        self.settle_newest();
        if self.channel.width() > 1 {
            return self.settle_several();
        }
        let Some(member) = self.behind() else {
            return Some(self.channel.end_of_ring());
        };
        let place = self.places.get(member)?;
        self.channel.find(place.sequence + 1)
    }

    /// Writes the newest snapshots that it has to get, where there are expressions, until there is
    /// enough to be written: what a subscriber waits with does not count in the memory that all
    /// have. Meanwhile there may be newer ones, which it gets like all others then.
    async fn evaluate_newest(&mut self) -> Result<(), StreamEnd> {
        if !self.channel.has_expressions() {
            return Ok(());
        }
        let channel = Rc::clone(&self.channel);
        while !self.newest.is_empty() && !self.has_enough() {
            let member = self.newest.remove(0);
            let latest = channel.latest(member);
            let place = latest.as_ref().map(|it| it.id).or(channel.last(member));
            if let Some(place) = place {
                self.put(member, place);
            }
            let before = self.out.len();
            if let Some(latest) = latest {
                let (places, out) = (&self.places, &mut self.out);
                channel
                    .write_newest_evaluated(member, &latest, places, out)
                    .await?;
            }
            self.note_newest(member, before);
        }
        Ok(())
    }

    /// Counts the newest snapshot of a topic, which has been written behind that.
    fn note_newest(&mut self, member: usize, before: usize) {
        let is_any = self.out.len() > before;
        self.channel.count_events(member, u64::from(is_any));
        self.note_share(member, before);
        let first = self.places.first().map(|it| it.sequence);
        self.acknowledge(first.unwrap_or_default());
    }

    /// Writes the newest snapshots that it has to get.
    fn settle_newest(&mut self) {
        for member in std::mem::take(&mut self.newest) {
            let last = self.channel.last(member);
            if let (Some(last), Some(place)) = (last, self.places.get_mut(member)) {
                *place = last;
            }
            let before = self.out.len();
            let channel = &self.channel;
            channel.write_newest(member, Some(&self.places), &mut self.out);
            self.note_newest(member, before);
        }
    }

    /// The same for several topics: the ring has one order of their events, and a subscriber can
    /// join it only where it has just as much of each topic as its readers there. Such a place is
    /// chosen, the history is read up to it, and events may come behind it meanwhile.
    fn settle_several(&mut self) -> Option<u64> {
        let is_of_use = self.target.as_ref().is_some_and(|target| {
            let places = self.places.iter().zip(&target.places);
            let mut passed = places.filter(|(place, target)| place.sequence > target.sequence);
            self.channel.holds(target.at) && passed.next().is_none()
        });
        if !is_of_use {
            self.target = Some(self.channel.now());
        }
        let target = self.target.as_ref()?;
        let mut places = self.places.iter().zip(&target.places);
        let has_all = places.all(|(place, target)| place.sequence == target.sequence);
        has_all.then_some(target.at)
    }

    /// The last event of a topic before the place in the ring that it is on its way to.
    fn goal(&self, member: usize) -> Option<EventId> {
        match &self.target {
            Some(target) => target.places.get(member).copied(),
            None => self.channel.last(member),
        }
    }

    /// The first topic of which something is missing.
    fn behind(&self) -> Option<usize> {
        let mut places = self.places.iter().enumerate();
        let is_behind = |(member, place): (usize, &EventId)| {
            let goal = self.goal(member);
            goal.is_some_and(|goal| place.sequence < goal.sequence)
        };
        places.find(|it| is_behind(*it)).map(|it| it.0)
    }

    /// Reads more of the history of a topic of which something is missing.
    async fn read_on(&mut self) -> Result<(), StreamEnd> {
        let channel = Rc::clone(&self.channel);
        let member = self.behind().ok_or(StreamEnd::Failed)?;
        let branch = channel.branch(member).ok_or(StreamEnd::Failed)?;
        let place = *self.places.get(member).ok_or(StreamEnd::Failed)?;
        let from = EventId {
            sequence: place.sequence + 1,
            ..place
        };
        let piece = match channel.has_expressions() {
            true => PIECE_EVALUATED,
            false => PIECE,
        };
        let history = branch.topic().history(from, piece).await;
        let history = history.map_err(|fault| {
            tracing::warn!(target: "topics", topic = branch.name(), %fault, "history");
            StreamEnd::Failed
        })?;
        let reason = match history {
            History::Events(events) => {
                let last = self.goal(member).ok_or(StreamEnd::Failed)?.sequence;
                let last = self.most.map_or(last, |most| most.min(last));
                let fit = events.iter().take_while(|it| it.id.sequence <= last);
                let (mut count, before) = (0, self.out.len());
                for event in fit {
                    self.put(member, event.id);
                    let (places, out) = (&self.places, &mut self.out);
                    if channel.has_expressions() {
                        let written = channel.write_past_evaluated(member, event, places, out);
                        written.await?;
                    } else {
                        channel.write_past(member, event, places, out);
                    }
                    count += 1;
                    if channel.has_expressions() && self.has_enough() {
                        break;
                    }
                }
                channel.count_events(member, count);
                self.note_share(member, before);
                // What the channel has had must be there.
                return if count == 0 {
                    Err(StreamEnd::Failed)
                } else {
                    Ok(())
                };
            }
            History::Gone { .. } => "gone",
            History::OtherEpoch => "other-epoch",
            History::Ahead => "ahead",
        };
        let requested = channel.id_text(member, place);
        let reset = self.reset(member, (reason, requested)).await?;
        self.write_reset(member, &reset);
        Ok(())
    }
}

fn payload(channel: &Channel, member: usize) -> Payload {
    let branch = channel.branch(member);
    branch.map_or(Payload::Event, |it| it.topic().settings().payload)
}

/// The oldest event of a topic that is kept; the next one when there is none.
async fn oldest(channel: &Channel, member: usize, epoch: u64) -> Result<u64, StreamEnd> {
    let branch = channel.branch(member).ok_or(StreamEnd::Failed)?;
    let from = EventId { epoch, sequence: 1 };
    let history = branch.topic().history(from, 1).await;
    let history = history.map_err(|fault| {
        tracing::warn!(target: "topics", topic = branch.name(), %fault, "history");
        StreamEnd::Failed
    })?;
    Ok(match history {
        History::Gone { first, .. } => first.max(1),
        _ => 1,
    })
}
