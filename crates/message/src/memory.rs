//! The memory of bodies that are held: one budget for the whole process, so that many messages,
//! each within its own limit, cannot use up the machine together.
//!
//! A body takes part from [`FREE`] bytes on, so a small message touches nothing that threads share.
//! What is reserved stays with the bytes: it is given back when the last copy of them is dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::{Fault, Kind, Origin, Retry};

mod intake;

pub use intake::{Intake, NoRoom};

/// Bytes of one body that are not counted: the connection, its buffers and its task cost as much.
pub const FREE: usize = 64 * 1024;
/// Bytes that are reserved at a time.
const STEP: usize = 64 * 1024;

static BODIES: Budget = Budget::new(u64::MAX);

/// The budget for bodies of this process. Without a limit until [`Budget::set_limit`] is called.
pub fn bodies() -> &'static Budget {
    &BODIES
}

/// The failure of a step whose answer has no room, `unavailable`, in the words of what has none.
/// What was asked for may have been done.
pub fn no_room(detail: &'static str) -> Fault {
    Fault::new(Kind::Unavailable, Origin::Engine, detail)
        .with_status(503)
        .with_retry(Retry::IfRepeatable)
        .with_retry_after(Duration::from_secs(1))
        .with_cause("`limits.body_memory` is used up")
}

/// A number of bytes that may be held at a time, by all threads together.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicU64,
    used: AtomicU64,
    refused: AtomicU64,
}

/// The budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// Bytes that are reserved in a budget until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: &'static Budget,
    bytes: u64,
}

impl Budget {
    /// A budget of so many bytes.
    pub const fn new(limit: u64) -> Self {
        Self {
            limit: AtomicU64::new(limit),
            used: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Changes the limit. What is held above a smaller one stays until it is dropped.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// The most bytes that may be held.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// How many bytes are held.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// How many bodies were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Reserves room for a body of this size. One of up to [`FREE`] bytes needs none.
    ///
    /// # Errors
    /// When the budget does not have it; that is counted as a refusal.
    pub fn reserve(&'static self, size: usize) -> Result<Option<Reservation>, Exhausted> {
        if size <= FREE {
            return Ok(None);
        }
        let mut reservation = self.empty();
        reservation.add(size as u64)?;
        Ok(Some(reservation))
    }

    /// Reserves so many bytes, however few: for what is counted by its parts.
    ///
    /// # Errors
    /// When the budget does not have them; that is counted as a refusal.
    pub fn take(&'static self, bytes: u64) -> Result<Reservation, Exhausted> {
        let mut reservation = self.empty();
        reservation.add(bytes)?;
        Ok(reservation)
    }

    /// Looks whether a body of an announced size has room, without reserving any.
    ///
    /// # Errors
    /// When it has none; that is counted as a refusal.
    pub fn check(&self, size: u64) -> Result<(), Exhausted> {
        if size <= FREE as u64 || size <= self.limit().saturating_sub(self.used()) {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(Exhausted)
    }

    /// Whether a body of this size never has room, however little is held: there is no use in
    /// sending it again.
    pub fn never_has(&self, size: u64) -> bool {
        size > FREE as u64 && size > self.limit()
    }

    /// Reserves bytes that are in memory already and cannot be refused any more, such as a message
    /// that has been taken out of a queue: more may be held than the limit then, and the next ones
    /// are refused.
    pub fn take_anyway(&'static self, bytes: u64) -> Reservation {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Reservation {
            budget: self,
            bytes,
        }
    }

    fn empty(&'static self) -> Reservation {
        Reservation {
            budget: self,
            bytes: 0,
        }
    }
}

impl Reservation {
    fn add(&mut self, bytes: u64) -> Result<(), Exhausted> {
        self.add_below(self.budget.limit(), bytes)
    }

    fn add_below(&mut self, limit: u64, bytes: u64) -> Result<(), Exhausted> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= limit);
        let (order, used) = (Ordering::Relaxed, &self.budget.used);
        if used.fetch_update(order, order, fits).is_err() {
            self.budget.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Exhausted);
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Takes so many bytes out of it, or as many as it has, to be given back by themselves.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self {
            budget: self.budget,
            bytes,
        }
    }

    /// Adds another one of the same budget.
    pub fn merge(&mut self, mut other: Self) {
        debug_assert!(std::ptr::eq(self.budget, other.budget));
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Bytes that keep the reservation until their last copy is dropped.
    pub fn hold(self, content: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Held {
            content,
            _reservation: self,
        })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What is reserved for bytes that become more and more.
#[derive(Debug)]
pub struct Cover {
    /// How many bytes there may be before more is reserved.
    covered: usize,
    budget: &'static Budget,
    reservation: Option<Reservation>,
}

impl Default for Cover {
    fn default() -> Self {
        Self::new(bodies())
    }
}

impl Cover {
    /// Reserves nothing yet.
    pub fn new(budget: &'static Budget) -> Self {
        Self {
            covered: FREE,
            budget,
            reservation: None,
        }
    }

    /// Makes sure that so many bytes are covered.
    ///
    /// # Errors
    /// When the budget is used up. What has been reserved stays.
    #[inline]
    pub fn cover(&mut self, length: usize) -> Result<(), Exhausted> {
        match length > self.covered {
            true => self.reserve(length),
            false => Ok(()),
        }
    }

    /// Gives everything back when no more than [`FREE`] bytes are left.
    #[inline]
    pub fn uncover(&mut self, length: usize) {
        if length <= FREE && self.covered > FREE {
            self.covered = FREE;
            self.reservation = None;
        }
    }

    #[cold]
    fn reserve(&mut self, length: usize) -> Result<(), Exhausted> {
        let covered = length.next_multiple_of(STEP);
        let budget = self.budget;
        let reservation = self.reservation.get_or_insert_with(|| budget.empty());
        reservation.add(covered as u64 - reservation.bytes)?;
        self.covered = covered;
        Ok(())
    }

    /// The bytes, with what is reserved for them.
    pub fn hold(self, content: Vec<u8>) -> Bytes {
        match self.reservation {
            None => Bytes::from(content),
            Some(reservation) => reservation.hold(content),
        }
    }
}

/// A body that is being collected, within a budget.
#[derive(Debug, Default)]
pub struct Collected {
    content: Vec<u8>,
    cover: Cover,
}

impl Collected {
    /// An empty body.
    pub fn new(budget: &'static Budget) -> Self {
        Self {
            content: Vec::new(),
            cover: Cover::new(budget),
        }
    }

    /// Takes address space for a body of this size. Nothing is reserved in the budget: a size that
    /// a peer has announced costs memory only when the bytes come.
    pub fn reserve(&mut self, size: usize) {
        self.content.reserve(size);
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// When the budget is used up. What has been collected stays.
    #[inline]
    pub fn extend(&mut self, bytes: &[u8]) -> Result<(), Exhausted> {
        self.cover.cover(self.content.len() + bytes.len())?;
        self.content.extend_from_slice(bytes);
        Ok(())
    }

    /// How many bytes there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.content.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.content.is_empty()
    }

    /// The bytes, with what is reserved for them.
    pub fn into_bytes(self) -> Bytes {
        self.cover.hold(self.content)
    }
}

/// Bytes, and what is reserved for them.
struct Held<T> {
    content: T,
    _reservation: Reservation,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        self.content.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(limit: usize) -> &'static Budget {
        Box::leak(Box::new(Budget::new(limit as u64)))
    }

    #[test]
    fn small_bodies_do_not_touch_the_budget() {
        let budget = budget(0);
        let mut body = Collected::new(budget);
        for _ in 0..FREE / 16 {
            body.extend(&[7; 16]).unwrap();
        }
        assert_eq!(budget.reserve(FREE).map(|it| it.is_none()), Ok(true));
        assert_eq!((body.into_bytes().len(), budget.used()), (FREE, 0));
        assert_eq!(budget.refused(), 0);
    }

    #[test]
    fn room_is_given_back_with_the_last_copy_of_the_bytes() {
        let budget = budget(1 << 20);
        let mut body = Collected::new(budget);
        body.reserve(1 << 20);
        assert_eq!(budget.used(), 0, "an announced size reserves nothing");
        body.extend(&vec![7; 200_000]).unwrap();
        assert_eq!(budget.used(), 4 * STEP as u64);
        let bytes = body.into_bytes();
        let part = bytes.slice(10..20);
        drop(bytes);
        assert_eq!(budget.used(), 4 * STEP as u64);
        assert_eq!(&part[..], [7; 10]);
        drop(part);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_buffer_that_has_been_emptied_gives_its_room_back() {
        let budget = budget(4 * STEP);
        let mut cover = Cover::new(budget);
        assert_eq!(cover.cover(3 * STEP), Ok(()));
        assert_eq!(cover.cover(5 * STEP), Err(Exhausted));
        cover.uncover(FREE + 1);
        assert_eq!(budget.used(), 3 * STEP as u64);
        cover.uncover(FREE);
        assert_eq!(budget.used(), 0);
        assert_eq!(cover.cover(4 * STEP), Ok(()));
        drop(cover);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_body_that_is_dropped_at_any_size_gives_its_room_back() {
        let budget = budget(1 << 20);
        for size in (0..(1 << 20)).step_by(30_011) {
            let mut body = Collected::new(budget);
            for piece in vec![1; size].chunks(7_001) {
                body.extend(piece).unwrap();
            }
            assert_eq!(body.len(), size);
            assert!(budget.used() as usize + FREE >= size);
            drop(body);
            assert_eq!(budget.used(), 0, "{size}");
        }
    }

    #[test]
    fn a_budget_that_is_used_up_refuses_and_keeps_what_is_held() {
        let budget = budget(4 * STEP);
        let first = budget.reserve(3 * STEP).unwrap();
        let mut body = Collected::new(budget);
        body.extend(&[1; STEP]).unwrap();
        assert_eq!(body.extend(&[2; STEP]), Err(Exhausted));
        assert_eq!(budget.reserve(2 * STEP).map(|_| ()), Err(Exhausted));
        assert_eq!(budget.check(STEP as u64 + 1), Err(Exhausted));
        assert_eq!(budget.check(STEP as u64), Ok(()));
        assert_eq!((budget.refused(), body.len()), (3, STEP));
        drop(first);
        body.extend(&[2; STEP]).unwrap();
        assert_eq!(body.into_bytes().len(), 2 * STEP);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_body_above_the_limit_never_has_room() {
        let budget = budget(2 * STEP);
        let held = budget.reserve(2 * STEP).unwrap();
        assert!(!budget.never_has(2 * STEP as u64) && budget.never_has(2 * STEP as u64 + 1));
        drop(held);
        assert!(budget.never_has(2 * STEP as u64 + 1));
        budget.set_limit(0);
        assert!(!budget.never_has(FREE as u64));
    }

    #[test]
    fn a_smaller_limit_holds_for_what_comes_next() {
        let budget = budget(8 * STEP);
        let held = budget.reserve(6 * STEP).unwrap();
        budget.set_limit(4 * STEP as u64);
        assert_eq!(budget.reserve(2 * STEP).map(|_| ()), Err(Exhausted));
        drop(held);
        assert!(budget.reserve(2 * STEP).is_ok());
    }

    #[test]
    fn threads_together_never_hold_more_than_the_limit() {
        let budget = budget(5 * STEP);
        std::thread::scope(|scope| {
            for seed in 1..=4_usize {
                scope.spawn(move || {
                    for round in 0..2_000 {
                        let size = (round * seed * 7919) % (4 * STEP);
                        let held = budget.reserve(size);
                        assert!(budget.used() <= budget.limit());
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(budget.used(), 0);
    }
}
