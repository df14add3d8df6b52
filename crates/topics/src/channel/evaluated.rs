//! Channels whose subscribers have expressions: what these have made comes from an
//! [`Evaluator`](crate::expressions::Evaluator), later than the events themselves, and counts in
//! the memory that all such channels of a topic have together.

use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::{Channel, Member, StreamEnd};
use crate::branch::Branch;
use crate::event::{Content, Event, EventId};
use crate::expressions::{Evaluated, Expressions, Held};
use crate::frame::Kind;
use crate::seats::Lost;
use crate::view::{self, Mode, Shown};

/// The largest frame of what expressions make of the newest snapshot that is kept for others.
const NEWEST_MAX: usize = 16 * 1024;

impl Channel {
    /// Takes what expressions have made of an event into the ring, unless its readers have had the
    /// event before. How many bytes that are.
    pub fn take_evaluated(
        &self,
        branch: &Rc<Branch>,
        event: &Arc<Event>,
        evaluated: &Evaluated,
    ) -> usize {
        let found = self.member_of(branch).filter(|_| !self.is_over());
        let Some((at, member)) = found.filter(|it| it.1.last.get().sequence < event.id.sequence)
        else {
            return 0;
        };
        let shown = member
            .view
            .next_of(evaluated, &mut member.before.borrow_mut());
        if let Content::Snapshot { .. } = event.content {
            *member.latest.borrow_mut() = Some(Arc::clone(event));
        }
        self.take_shown(at, event.id, shown)
    }

    /// Tells the readers of events that they miss, for their expressions are too slow.
    pub fn take_gap(&self, branch: &Rc<Branch>, lost: Lost) {
        let found = self.member_of(branch).filter(|_| !self.is_over());
        let Some((at, member)) = found else {
            return;
        };
        // Those who came later have had some of them.
        let from = lost.from.max(member.last.get().sequence + 1);
        if from >= lost.behind {
            return;
        }
        let count = lost.behind - from;
        member.last.set(branch.topic().id(lost.behind - 1));
        *member.before.borrow_mut() = None;
        let dropped = &branch.counts().dropped;
        dropped.fetch_add(count * self.readers(), Ordering::Relaxed);
        let mut out = Vec::new();
        self.write_gap(
            at,
            Lost {
                from,
                count,
                ..lost
            },
            &mut out,
        );
        self.push(None, at, &mut out);
        self.ring.borrow_mut().leave_gap(lost.behind);
    }

    /// Whether it shows what these expressions make of a topic's events.
    pub fn shows(&self, branch: &Rc<Branch>, expressions: &Rc<Expressions>) -> bool {
        let own = |member: &Member| member.view.expressions.clone();
        let found = self.member_of(branch).and_then(|it| own(it.1));
        found.is_some_and(|it| Rc::ptr_eq(&it, expressions))
    }

    /// Whether a frame of this size may wait for its readers. When those with expressions have too
    /// much in memory, the channels end that have most of it, which may be this one.
    pub(super) fn has_memory(&self, length: usize) -> bool {
        if let (Some(_), Some(first)) = (&self.held, self.members.first()) {
            first.branch.make_room(length as u64);
        }
        self.held.is_none() || !self.is_over()
    }

    /// Counts what it has in memory, where there are expressions.
    pub(super) fn note_memory(&self) {
        let Some(held) = &self.held else {
            return;
        };
        // What is over is let go of by its readers as soon as they have their turn.
        let bytes = match self.is_over() {
            true => 0,
            false => {
                let members = self.members.iter().map(Member::size).sum::<usize>();
                let mut begun = self.begun.borrow_mut();
                begun.retain(|it| it.strong_count() > 0);
                let begun = begun.iter().filter_map(Weak::upgrade);
                let begun = begun.map(|it| it.allocated()).sum::<u64>();
                self.ring.borrow().allocated() + begun + self.own.get() + members as u64
            }
        };
        held.set(bytes);
    }

    /// How many bytes it has in memory, where there are expressions.
    pub fn held(&self) -> u64 {
        self.held.as_ref().map_or(0, Held::bytes)
    }

    /// Forgets what all have read.
    pub fn release(&self) {
        let slowest = self.seats.borrow().slowest();
        self.ring.borrow_mut().release(slowest);
        self.note_memory();
    }

    /// Ends all streams, for the readers are too slow, and forgets what waits for them.
    pub fn cut(&self) {
        self.finish(StreamEnd::Slow);
        self.ring.borrow_mut().clear();
        self.note_memory();
    }

    /// Notes that other bytes wait for one reader alone.
    pub fn hold_own(&self, before: u64, now: u64) {
        if self.held.is_none() {
            return;
        }
        let own = self.own.get().saturating_sub(before);
        self.own.set(own.saturating_add(now));
        self.note_memory();
        if now > before {
            self.has_memory(0);
        }
    }

    /// The newest snapshot for a reader that has missed some, where there are expressions: what
    /// they have made of it is there already.
    pub(super) fn beyond_evaluated(&self, key: u32, only: &Member) -> (Bytes, u64) {
        let conflated = &only.branch.counts().conflated;
        conflated.fetch_add(1, Ordering::Relaxed);
        if let Some(before) = &*only.before.borrow() {
            let mut out = Vec::new();
            let shown = Shown::Part(Kind::Snapshot, before.text().as_ref().into());
            self.write_shown(0, shown, None, (&mut String::new(), &mut out));
            return (self.sealed_of(out, &[]), self.end_of_ring());
        }
        let last = self.ring.borrow().last_event();
        let at = last.unwrap_or_else(|| {
            self.seats.borrow_mut().finish_one(key, StreamEnd::Slow);
            self.end_of_ring()
        });
        (Bytes::new(), at)
    }

    /// The same where there are expressions: this snapshot, which the reader's places are behind.
    ///
    /// # Errors
    /// When the reader has to wait for too long.
    pub async fn write_newest_evaluated(
        &self,
        member: usize,
        latest: &Arc<Event>,
        places: &[EventId],
        out: &mut Vec<u8>,
    ) -> Result<(), StreamEnd> {
        let Some(of) = self.members.get(member) else {
            return Ok(());
        };
        let is_shared = self.members.len() == 1;
        if let Some((_, frame)) = of.newest.borrow().as_ref().filter(|it| it.0 == latest.id) {
            out.extend_from_slice(frame);
            return Ok(());
        }
        let evaluated = self.evaluate(of, latest).await?;
        let start = out.len();
        let shown = of.view.whole_of(&evaluated);
        self.write_shown(member, shown, Some(places), (&mut String::new(), out));
        let made = out.get(start..).unwrap_or_default();
        let is_kept = is_shared && made.len() <= NEWEST_MAX;
        *of.newest.borrow_mut() = is_kept.then(|| (latest.id, Bytes::copy_from_slice(made)));
        // The next event can be a patch of what all who are here have.
        if let Evaluated::Document(document) = &evaluated
            && of.view.mode == Mode::Patch
            && of.last.get() == latest.id
        {
            let mut before = of.before.borrow_mut();
            *before = before.take().or_else(|| view::patched(document));
        }
        self.note_memory();
        Ok(())
    }

    /// What expressions make of an event for one reader alone.
    async fn evaluate(&self, of: &Member, event: &Arc<Event>) -> Result<Evaluated, StreamEnd> {
        let Some(expressions) = &of.view.expressions else {
            return Err(StreamEnd::Failed);
        };
        let evaluator = of.branch.evaluator();
        let evaluated = evaluator.evaluate_for_one(expressions, event).await;
        evaluated.ok_or(StreamEnd::Slow)
    }

    /// The same as [`Channel::write_past`] where there are expressions.
    ///
    /// # Errors
    /// When the reader has to wait for too long.
    pub async fn write_past_evaluated(
        &self,
        member: usize,
        event: &Arc<Event>,
        places: &[EventId],
        out: &mut Vec<u8>,
    ) -> Result<(), StreamEnd> {
        let Some(of) = self.members.get(member) else {
            return Ok(());
        };
        let evaluated = self.evaluate(of, event).await?;
        let shown = of.view.whole_of(&evaluated);
        self.write_shown(member, shown, Some(places), (&mut String::new(), out));
        Ok(())
    }

    /// Whether its readers have expressions.
    pub fn has_expressions(&self) -> bool {
        self.held.is_some()
    }

    /// The newest snapshot of a topic that its readers have.
    pub fn latest(&self, member: usize) -> Option<Arc<Event>> {
        let of = self.members.get(member)?;
        match self.held {
            Some(_) => of.latest.borrow().clone(),
            None => of.branch.latest(),
        }
    }
}
