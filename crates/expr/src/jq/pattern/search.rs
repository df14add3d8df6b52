//! Searching. The deterministic automaton is made while it runs, and each byte that it looks at is
//! counted; the groups of a match are then found by another one, between its ends.

use regex_automata::hybrid::dfa::{self, DFA};
use regex_automata::nfa::thompson::pikevm;
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::{Anchored, Input};

use std::cell::RefMut;
use std::time::{Duration, Instant};

use super::{Caches, Pattern};
use crate::jq::meter::{self, Stopped};

/// Bytes that the automaton looks at in one step.
const BYTES: usize = 16;
/// Bytes between two looks at what is left to spend.
const CHUNK: usize = 1024;
/// Bytes of new states that are made in one step.
const MADE: usize = 64;
/// Places times bytes that the simulation looks at in one step.
const SIMULATED: usize = 4;
/// How long the simulation counts only what it has found: behind that, what it may look at.
const PATIENCE: Duration = Duration::from_millis(10);

/// Why a search ended early.
pub(in crate::jq) enum Failed {
    /// A limit of the evaluation was passed.
    Stopped(Stopped),
    /// It runs already on this thread.
    Busy,
}

impl From<Stopped> for Failed {
    fn from(stopped: Stopped) -> Self {
        Self::Stopped(stopped)
    }
}

type Result<T> = std::result::Result<T, Failed>;

/// What the automaton could not decide.
enum Half {
    Found(usize),
    Nothing,
    /// Ends of words beside characters that are no ASCII.
    Unknown,
}

/// The searches of a pattern through one text.
pub(in crate::jq) struct Search<'s> {
    pattern: &'s Pattern,
    caches: RefMut<'s, Caches>,
    text: &'s [u8],
    slots: Vec<Option<NonMaxUsize>>,
    simulated_since: Option<Instant>,
}

impl<'s> Search<'s> {
    pub fn new(pattern: &'s Pattern, text: &'s [u8]) -> Result<Self> {
        let caches = pattern.caches.try_borrow_mut().map_err(|_| Failed::Busy)?;
        let slots = vec![None; pattern.nfa.group_info().slot_len()];
        Ok(Self {
            pattern,
            caches,
            text,
            slots,
            simulated_since: None,
        })
    }

    /// The first match from there on; its groups are [`Search::group`]s then.
    pub fn find(&mut self, from: usize) -> Result<Option<(usize, usize)>> {
        let mut from = from;
        loop {
            let found = match self.forward(from)? {
                Half::Nothing => None,
                Half::Found(end) => self.start(from, end)?.map(|start| (start, end)),
                Half::Unknown => self.simulate(from, self.text.len(), Anchored::No)?,
            };
            match found {
                // Nothing, between the bytes of a character, is no match.
                Some((start, end)) if start == end && !is_boundary(self.text, start) => {
                    from = start + 1;
                }
                found => return Ok(found),
            }
        }
    }

    /// Finds the groups of a match.
    pub fn groups(&mut self, (start, end): (usize, usize)) -> Result<()> {
        if self.slots.len() > 2 {
            self.simulate(start, end, Anchored::Yes)?;
        } else if let [first, second] = self.slots.as_mut_slice() {
            (*first, *second) = (NonMaxUsize::new(start), NonMaxUsize::new(end));
        }
        Ok(())
    }

    /// Where a group of the last match begins and ends.
    pub fn group(&self, group: usize) -> Option<(usize, usize)> {
        let start = self.slots.get(group * 2).copied().flatten()?;
        let end = self.slots.get(group * 2 + 1).copied().flatten()?;
        Some((start.get(), end.get()))
    }

    fn forward(&mut self, from: usize) -> Result<Half> {
        let mut walk = Walk::new(&self.pattern.forward, &mut self.caches.forward);
        walk.run(self.text, from)
    }

    /// Where a match begins that ends there.
    fn start(&mut self, from: usize, end: usize) -> Result<Option<usize>> {
        meter::steps(1 + (end - from) / BYTES)?;
        let input = Input::new(self.text)
            .span(from..end)
            .anchored(Anchored::Yes);
        let (cache, backward) = (&mut self.caches.backward, &self.pattern.backward);
        let before = cache.memory_usage();
        let found = backward.try_search_rev(cache, &input);
        meter::steps(cache.memory_usage().saturating_sub(before) / MADE)?;
        match found {
            Ok(found) => Ok(found.map(|it| it.offset())),
            Err(_) => {
                let found = self.simulate(from, self.text.len(), Anchored::No)?;
                Ok(found.map(|it| it.0))
            }
        }
    }

    /// Simulates the automaton that is not deterministic: every place it can be at, at once.
    fn simulate(
        &mut self,
        from: usize,
        to: usize,
        anchored: Anchored,
    ) -> Result<Option<(usize, usize)>> {
        let places = self.pattern.places;
        let steps = |bytes: usize| 1 + bytes.saturating_mul(places) / SIMULATED;
        let since = *self.simulated_since.get_or_insert_with(Instant::now);
        // It may look at everything, and seldom does; who keeps it busy pays for all of it.
        let is_trusted = since.elapsed() <= PATIENCE;
        match is_trusted {
            true => meter::afford(steps(to - from))?,
            false => meter::steps(steps(to - from))?,
        }
        let input = Input::new(self.text).span(from..to).anchored(anchored);
        let Caches { captures, .. } = &mut *self.caches;
        let make = || pikevm::Cache::new(&self.pattern.captures);
        let cache = captures.get_or_insert_with(make);
        let found = self
            .pattern
            .captures
            .search_slots(cache, &input, &mut self.slots);
        let found = found.and_then(|_| self.group(0));
        let end = found.map_or(to, |it| it.1);
        if is_trusted {
            meter::steps(steps(end - from))?;
        }
        Ok(found)
    }
}

fn is_boundary(text: &[u8], at: usize) -> bool {
    text.get(at).is_none_or(|byte| byte & 0xc0 != 0x80)
}

/// One run of the deterministic automaton through a text.
struct Walk<'w> {
    dfa: &'w DFA,
    cache: &'w mut dfa::Cache,
    clears: usize,
    size: usize,
}

impl<'w> Walk<'w> {
    fn new(dfa: &'w DFA, cache: &'w mut dfa::Cache) -> Self {
        let (clears, size) = (cache.clear_count(), cache.memory_usage());
        Self {
            dfa,
            cache,
            clears,
            size,
        }
    }

    /// Counts bytes, and the states that were made for them.
    fn count(&mut self, bytes: usize) -> Result<()> {
        let size = self.cache.memory_usage();
        let clears = self.cache.clear_count();
        let made = (clears - self.clears) * super::STATES_MAX + size.saturating_sub(self.size);
        (self.clears, self.size) = (clears, size);
        Ok(meter::steps(1 + bytes / BYTES + made / MADE)?)
    }

    fn run(&mut self, text: &[u8], from: usize) -> Result<Half> {
        let input = Input::new(text).span(from..text.len());
        let Ok(mut state) = self.dfa.start_state_forward(self.cache, &input) else {
            return Ok(Half::Unknown);
        };
        let mut found = Half::Nothing;
        let rest = text.get(from..).unwrap_or_default();
        let mut at = from;
        for chunk in rest.chunks(CHUNK) {
            for byte in chunk {
                let Ok(next) = self.dfa.next_state(self.cache, state, *byte) else {
                    return Ok(Half::Unknown);
                };
                state = next;
                if state.is_tagged() {
                    if state.is_match() {
                        // A match is seen one byte behind its end.
                        found = Half::Found(at);
                    } else if state.is_dead() {
                        self.count((at - from) % CHUNK)?;
                        return Ok(found);
                    } else if state.is_quit() {
                        self.count((at - from) % CHUNK)?;
                        return Ok(Half::Unknown);
                    }
                }
                at += 1;
            }
            self.count(chunk.len())?;
        }
        match self.dfa.next_eoi_state(self.cache, state) {
            Ok(last) if last.is_match() => found = Half::Found(text.len()),
            Ok(last) if last.is_quit() => return Ok(Half::Unknown),
            Ok(_) => {}
            Err(_) => return Ok(Half::Unknown),
        }
        self.count(0)?;
        Ok(found)
    }
}
