//! Events about an endpoint for the operational topic (`webhooks.report`): that it is disabled,
//! that events are gone which it has not got, and dead letters.
//!
//! One event is published at a time for an endpoint. What happens meanwhile is counted, so that an
//! endpoint that refuses everything does not flood the topic; of one that a user has made there is
//! at most one event a minute.

use std::collections::VecDeque;

use bytes::Bytes;
use message::secret;
use serde_json::{Value, json};

use super::machine::{Span, Stopped};
use super::plan::{Destination, EndpointPlan};
use super::times::rfc3339;
use crate::event::EventId;
use crate::keys;

/// How long nothing is published of an endpoint that a user has made after an event of it, in
/// microseconds: what users do must not push events of others out of the topic.
const USER_PACE: u64 = 60_000_000;
/// How long nothing is published after that has failed.
const AGAIN: u64 = 5_000_000;

/// How many gaps of an endpoint are known again. There are seldom two at a time.
const KNOWN_GAPS: usize = 8;
/// How many runs of missing events are told apart, 16 bytes each. Beyond that the oldest are
/// forgotten, and counted again if they come again.
const RUNS_MAX: usize = 1024;

/// An event for the operational topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReportEvent {
    pub body: Bytes,
    /// The same when it is published again.
    pub key: Bytes,
    /// Since when the endpoint is disabled, if it says that: once it is published, the endpoint's
    /// record has that it was reported.
    pub disabled_since: Option<u64>,
}

/// Dead letters that have not been reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeadLetters {
    /// How many events have become dead letters.
    pub count: u64,
    /// The id of the last one, or of the last batch.
    pub event: String,
    pub reason: String,
    /// The store that has it; none when it is kept nowhere.
    pub store: Option<String>,
}

/// What has not been reported of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Reports {
    dead_letters: Option<DeadLetters>,
    /// Events that are gone.
    gap: Option<Span>,
    /// Which events these are, as far as that is known, in order: first and last of each run. A gap
    /// that grows before it is reported is found again with the events that it had.
    missing: Vec<(u64, u64)>,
    /// The last gaps that were found: each try to tell the endpoint is not another one.
    known_gaps: VecDeque<(u64, u64)>,
    /// What could not be published.
    unsent: Option<ReportEvent>,
    /// Whether something is being published.
    pub is_under_way: bool,
    /// When the next event may be published, in microseconds.
    next: u64,
}

impl Reports {
    /// These have become dead letters.
    pub fn add_dead_letters(&mut self, new: DeadLetters) {
        let before = self.dead_letters.take().map_or(0, |it| it.count);
        self.dead_letters = Some(DeadLetters {
            count: before + new.count,
            ..new
        });
    }

    /// The events of this span are gone but for those that are done: first and last of each run.
    pub fn add_gap(&mut self, span: Span, done: &[(u64, u64)]) {
        let place = (span.first, span.last);
        if self.known_gaps.contains(&place) {
            return;
        }
        if self.known_gaps.len() == KNOWN_GAPS {
            self.known_gaps.pop_front();
        }
        self.known_gaps.push_back(place);
        let new = self.add_missing(span, done);
        // Together with one that has not been reported yet.
        let waiting = self.gap.take();
        self.gap = Some(waiting.map_or(span, |it| joined(it, span, new)));
    }

    /// Adds the events of a gap that are not in the one that waits; how many these are.
    fn add_missing(&mut self, span: Span, done: &[(u64, u64)]) -> usize {
        if span.count == 0 {
            return 0;
        }
        let parts = outside((span.first, span.last), done).into_iter();
        let new: Vec<(u64, u64)> = parts.flat_map(|it| outside(it, &self.missing)).collect();
        let count: u64 = new.iter().map(|(first, last)| last + 1 - first).sum();
        self.missing.extend(new);
        self.missing.sort_unstable();
        let more = self.missing.len().saturating_sub(RUNS_MAX);
        self.missing.drain(..more);
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// Nobody serves the endpoint from here on: each driver counts time from its own beginning.
    pub fn stop_clock(&mut self, now: u64) {
        self.next = self.next.saturating_sub(now);
    }

    /// Somebody serves it again.
    pub fn start_clock(&mut self, now: u64) {
        self.next = self.next.saturating_add(now);
    }

    /// When an event may be published, if one waits besides those that `has_stop` means.
    pub fn due(&self, has_stop: bool) -> Option<u64> {
        let waits =
            has_stop || self.dead_letters.is_some() || self.gap.is_some() || self.unsent.is_some();
        (waits && !self.is_under_way).then_some(self.next)
    }

    /// The event that is published now. `stop` is why the endpoint is disabled and since when, if
    /// the topic does not know; `id` are the ids of events by their numbers.
    pub fn take(
        &mut self,
        subject: &Subject<'_>,
        stop: Option<(Stopped, u64)>,
        id: impl Fn(u64) -> EventId,
    ) -> Option<ReportEvent> {
        let made = match self.unsent.take() {
            Some(again) => Some(again),
            None => match (stop, self.gap.take()) {
                (Some(stop), gap) => {
                    self.gap = gap;
                    Some(subject.disabled(stop))
                }
                (None, Some(gap)) => {
                    self.missing.clear();
                    Some(subject.gap(gap, id))
                }
                (None, None) => self.dead_letters.take().map(|it| subject.dead_letters(&it)),
            },
        };
        self.is_under_way = made.is_some();
        made
    }

    /// What has come of it: the event if it could not be published. That the endpoint is disabled
    /// is noted of it, and found there again.
    pub fn published(&mut self, failed: Option<ReportEvent>, (now, is_of_user): (u64, bool)) {
        self.is_under_way = false;
        self.next = match (&failed, is_of_user) {
            (Some(_), _) => now + AGAIN,
            (None, true) => now + USER_PACE,
            (None, false) => 0,
        };
        self.unsent = failed.filter(|it| it.disabled_since.is_none());
    }
}

/// The parts of a range that lie outside these runs, which are in order: first and last of each.
fn outside((first, last): (u64, u64), runs: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let (mut parts, mut next) = (Vec::new(), first);
    for (from, to) in runs.iter().filter(|it| it.0 <= last && it.1 >= first) {
        if next < *from {
            parts.push((next, *from - 1));
        }
        next = next.max(*to + 1);
    }
    if next <= last {
        parts.push((next, last));
    }
    parts
}

/// Two gaps as one; the other has so many events that the first does not have. The count is unknown
/// when one of theirs is.
fn joined(one: Span, other: Span, new: usize) -> Span {
    let is_known = one.count > 0 && other.count > 0;
    Span {
        first: one.first.min(other.first),
        last: one.last.max(other.last),
        count: if is_known { one.count + new } else { 0 },
        is_batch: false,
    }
}

/// The endpoint that an event is about, the time, and its last failure.
pub(super) struct Subject<'a> {
    pub plan: &'a EndpointPlan,
    /// In milliseconds since 1970.
    pub now_ms: u64,
    pub failure: &'a str,
}

impl Subject<'_> {
    fn event(&self, kind: &str, at_ms: u64, more: &[(&str, Value)]) -> Value {
        let state = &self.plan.state;
        let mut event = json!({
            "type": kind,
            "time": rfc3339(at_ms),
            "topic": &**state.topic(),
            "webhook": &*state.name,
            "managed_by": if self.plan.is_of_user() { "api" } else { "file" },
        });
        let Some(members) = event.as_object_mut() else {
            return event;
        };
        if let Destination::Subscribed(it) = &self.plan.destination {
            let owner = &it.subscription.owner;
            let owner = json!({ "way": &*owner.way, "id": &*owner.id });
            members.insert("owner".to_owned(), owner);
        }
        let more = more.iter().cloned();
        members.extend(more.map(|(name, value)| (name.to_owned(), value)));
        event
    }

    fn disabled(&self, (stopped, since): (Stopped, u64)) -> ReportEvent {
        let reason = match stopped {
            Stopped::Gone => "gone",
            Stopped::Down | Stopped::Paused => "down",
        };
        let state = &self.plan.state;
        let cursor = state.cursor();
        let more = [
            ("reason", reason.into()),
            ("detail", secret::redact(self.failure).into()),
            ("cursor", cursor.into()),
        ];
        // What is said of it may be less after a crash. It is the same event.
        let of = format!("{}\0{}\0{since}", state.topic(), state.name);
        ReportEvent {
            key: key(of.as_bytes()),
            body: text(&self.event("webhook.disabled", since, &more)),
            disabled_since: Some(since),
        }
    }

    fn gap(&self, span: Span, id: impl Fn(u64) -> EventId) -> ReportEvent {
        let is_known = span.count > 0;
        let from = is_known.then(|| id(span.first).to_string());
        let more = [
            ("from", from.into()),
            ("to", id(span.last).to_string().into()),
            ("count", is_known.then_some(span.count).into()),
        ];
        let body = text(&self.event("webhook.gap", self.now_ms, &more));
        ReportEvent {
            key: key(&body),
            body,
            disabled_since: None,
        }
    }

    fn dead_letters(&self, dead_letters: &DeadLetters) -> ReportEvent {
        let more = [
            ("event", dead_letters.event.as_str().into()),
            ("count", dead_letters.count.into()),
            ("reason", secret::redact(&dead_letters.reason).into()),
            ("store", dead_letters.store.clone().into()),
        ];
        let body = text(&self.event("webhook.dead_letter", self.now_ms, &more));
        ReportEvent {
            key: key(&body),
            body,
            disabled_since: None,
        }
    }
}

fn text(event: &Value) -> Bytes {
    event.to_string().into_bytes().into()
}

fn key(of: &[u8]) -> Bytes {
    let digest = keys::digest(of);
    let text: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(first: u64, last: u64) -> Span {
        Span {
            first,
            last,
            count: (last + 1 - first) as usize,
            is_batch: false,
        }
    }

    fn dead_letters(count: u64, event: &str) -> DeadLetters {
        DeadLetters {
            count,
            event: event.to_owned(),
            reason: "status 404".to_owned(),
            store: None,
        }
    }

    #[test]
    fn parts_outside_of_runs_are_found() {
        let runs = [(0, 1), (4, 5), (10, 12), (20, 30)];
        assert_eq!(outside((1, 10), &runs), [(2, 3), (6, 9)]);
        assert_eq!(outside((2, 14), &runs), [(2, 3), (6, 9), (13, 14)]);
        assert!(outside((4, 5), &runs).is_empty());
        assert_eq!(outside((4, 5), &[]), [(4, 5)]);
    }

    #[test]
    fn dead_letters_that_come_meanwhile_are_counted() {
        let mut reports = Reports::default();
        assert_eq!(reports.due(false), None);
        reports.add_dead_letters(dead_letters(1, "1-1"));
        reports.add_dead_letters(dead_letters(3, "1-5"));
        assert_eq!(reports.dead_letters, Some(dead_letters(4, "1-5")));
        assert_eq!(reports.due(false), Some(0));
        reports.is_under_way = true;
        assert_eq!(reports.due(false), None, "one at a time");
    }

    #[test]
    fn a_gap_is_told_once_though_the_endpoint_is_told_again_and_again() {
        let mut reports = Reports::default();
        reports.add_gap(span(1, 4), &[]);
        assert_eq!(reports.gap.take(), Some(span(1, 4)));
        reports.add_gap(span(1, 4), &[]);
        assert_eq!(reports.due(false), None);
        reports.add_gap(span(5, 9), &[]);
        assert_eq!(reports.gap, Some(span(5, 9)));
        reports.gap = None;
        reports.add_gap(span(1, 4), &[]);
        assert_eq!(reports.gap, None, "in turns with another one");
    }

    #[test]
    fn a_gap_that_is_found_before_the_last_one_is_told_is_told_with_it() {
        let mut reports = Reports::default();
        reports.add_gap(span(5, 9), &[]);
        reports.add_gap(span(12, 13), &[]);
        let both = Span {
            count: 7,
            ..span(5, 13)
        };
        assert_eq!(reports.gap, Some(both));
        // The same events again, and more of them.
        reports.add_gap(span(5, 20), &[]);
        assert_eq!(reports.gap, Some(span(5, 20)));
        let unknown = Span {
            count: 0,
            ..span(4, 4)
        };
        reports.add_gap(unknown, &[]);
        let all = Span {
            count: 0,
            ..span(4, 20)
        };
        assert_eq!(reports.gap, Some(all));
    }

    #[test]
    fn an_event_that_is_missing_in_two_gaps_is_counted_once() {
        let counted = |count, (first, last)| Span {
            count,
            ..span(first, last)
        };
        let mut reports = Reports::default();
        reports.add_gap(counted(3, (5, 9)), &[(6, 7)]);
        let grown = counted(9, (5, 20));
        reports.add_gap(grown, &[(6, 7), (10, 14)]);
        assert_eq!(reports.gap, Some(grown));
        reports.add_gap(span(5, 6), &[]);
        assert_eq!(reports.gap, Some(counted(10, (5, 20))), "6 is new");

        let mut reports = Reports::default();
        reports.add_gap(span(1, 10), &[]);
        reports.add_gap(counted(10, (8, 20)), &[(11, 13)]);
        assert_eq!(reports.gap, Some(counted(17, (1, 20))));

        // The endpoint has been told of the second one, which is done then.
        let mut reports = Reports::default();
        reports.add_gap(span(5, 9), &[]);
        reports.add_gap(span(12, 13), &[]);
        reports.add_gap(counted(9, (10, 20)), &[(12, 13)]);
        assert_eq!(reports.gap, Some(span(5, 20)));
    }

    #[test]
    fn what_is_left_of_a_wait_is_waited_for_by_the_next_driver() {
        let mut reports = Reports::default();
        reports.add_dead_letters(dead_letters(1, "1-1"));
        reports.published(None, (20, true));
        reports.stop_clock(20 + USER_PACE - 7);
        reports.start_clock(1000);
        assert_eq!(reports.due(false), Some(1007));
        reports.stop_clock(5000);
        reports.start_clock(3);
        assert_eq!(reports.due(false), Some(3), "the wait is over");
    }

    #[test]
    fn what_could_not_be_published_is_tried_again_and_users_wait_for_a_minute() {
        let event = ReportEvent {
            body: Bytes::from_static(b"{}"),
            key: Bytes::from_static(b"key"),
            disabled_since: None,
        };
        let mut reports = Reports::default();
        reports.published(Some(event), (10, false));
        assert_eq!(reports.due(false), Some(10 + AGAIN));
        reports.unsent = None;
        reports.published(None, (20, true));
        assert_eq!(reports.due(false), None);
        assert_eq!(reports.due(true), Some(20 + USER_PACE));
        reports.published(None, (20, false));
        assert_eq!(reports.due(true), Some(0));
    }
}
