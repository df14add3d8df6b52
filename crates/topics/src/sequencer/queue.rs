//! Publications that wait, by who publishes them to which topic. Publishers are served by turns
//! (deficit round robin, weighed by bytes), so that one who floods a topic delays nobody else by
//! more than a turn. What one client publishes to one topic stays in order.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use super::Submission;

/// How many bytes a publisher has in its turn.
pub(super) const TURN: usize = 64 << 10;
/// The room for publishers that is kept when none waits.
const ROOM_KEPT: usize = 256;

/// A client, or the engine's own flows and polls, that publishes to a topic: the address of its log
/// in memory, which the submission keeps there.
type Publisher = (usize, Option<IpAddr>);

fn publisher(submission: &Submission) -> Publisher {
    (Arc::as_ptr(&submission.log).addr(), submission.client)
}

#[derive(Default)]
struct Waiting {
    submissions: VecDeque<Submission>,
    /// The bytes that it has had in this turn, those above a turn's included.
    used: usize,
}

#[derive(Default)]
pub(super) struct Queue {
    publishers: HashMap<Publisher, Waiting>,
    /// Each of them once, the next one first.
    turns: VecDeque<Publisher>,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub fn push(&mut self, submission: Submission) {
        self.of(&submission).push_back(submission);
    }

    /// Puts one back before all others of its publisher.
    pub fn push_front(&mut self, submission: Submission) {
        self.of(&submission).push_front(submission);
    }

    fn of(&mut self, submission: &Submission) -> &mut VecDeque<Submission> {
        let publisher = publisher(submission);
        let waiting = self.publishers.entry(publisher).or_insert_with(|| {
            self.turns.push_back(publisher);
            Waiting::default()
        });
        &mut waiting.submissions
    }

    /// The next publication.
    pub fn pop(&mut self) -> Option<Submission> {
        let waiting = loop {
            let publisher = self.turns.front()?;
            let Some(waiting) = self.publishers.get_mut(publisher) else {
                self.turns.pop_front();
                continue;
            };
            if waiting.used < TURN || self.turns.len() == 1 {
                break waiting;
            }
            waiting.used -= TURN;
            self.turns.rotate_left(1);
        };
        let submission = waiting.submissions.pop_front();
        waiting.used += submission.as_ref().map_or(0, |it| it.place.size);
        if waiting.submissions.is_empty() {
            if let Some(publisher) = self.turns.pop_front() {
                self.publishers.remove(&publisher);
            }
            if self.turns.is_empty() {
                self.publishers.shrink_to(ROOM_KEPT);
                self.turns.shrink_to(ROOM_KEPT);
            }
        }
        submission
    }
}
