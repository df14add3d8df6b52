//! What the streams of a flow may take: how many there are at a time, and how often messages pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use message::{Fault, Kind, Origin};

use crate::state::{Measure, State};

/// How exact waits are: those who wait are looked at about so often.
const SLACK: Duration = Duration::from_millis(10);

/// How many messages pass, and what becomes of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimit {
    /// How many in a period.
    pub count: u32,
    /// The period.
    pub per: Duration,
    /// How many of them may come at once.
    pub burst: u32,
    /// Whose messages are counted together.
    pub scope: Scope,
    /// What becomes of those above the limit.
    pub over: Over,
}

/// Whose messages are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of one connection, in both directions.
    Connection,
    /// Those of all connections of the flow.
    Flow,
}

/// What becomes of messages above the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// They wait: whoever sends them is read no faster.
    Delay,
    /// The stream ends.
    Close,
}

/// The settings of [`StreamLimits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSettings {
    /// The most streams at a time, of all workers together.
    pub connections: Option<usize>,
    /// How often messages pass.
    pub messages: Option<MessageLimit>,
}

/// What the streams of a flow may take. All workers share it.
#[derive(Debug)]
pub struct StreamLimits {
    settings: StreamSettings,
    open: AtomicUsize,
    /// The pace of all streams together.
    pace: Option<Arc<Pace>>,
    refused: AtomicU64,
    delayed: AtomicU64,
    closed: AtomicU64,
}

/// One stream among those that are counted, for as long as this lives.
#[derive(Debug)]
pub struct StreamPlace(Arc<StreamLimits>);

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl StreamLimits {
    /// Limits that nobody has used.
    pub fn new(settings: StreamSettings) -> Self {
        let shared = settings.messages.filter(|it| it.scope == Scope::Flow);
        Self {
            settings,
            open: AtomicUsize::new(0),
            pace: shared.map(|limit| Arc::new(Pace::new(limit))),
            refused: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
            closed: AtomicU64::new(0),
        }
    }

    /// Counts one more stream.
    ///
    /// # Errors
    /// `unavailable` when there are as many as may be.
    pub fn enter(self: &Arc<Self>) -> Result<StreamPlace, Fault> {
        let most = self.settings.connections.unwrap_or(usize::MAX);
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        let place = StreamPlace(Arc::clone(self));
        if before < most {
            return Ok(place);
        }
        drop(place);
        self.refused.fetch_add(1, Ordering::Relaxed);
        let fault = Fault::new(Kind::Unavailable, Origin::Engine, "too many streams");
        Err(fault.with_retry_after(Duration::from_secs(1)))
    }

    /// Whether there are as many streams as may be.
    pub fn is_full(&self) -> bool {
        let open = self.open.load(Ordering::Relaxed);
        self.settings.connections.is_some_and(|most| open >= most)
    }

    /// How often messages pass, if that is limited.
    pub fn messages(&self) -> Option<MessageLimit> {
        self.settings.messages
    }

    /// The pace of a new stream: its own, or that of all.
    pub fn pace(&self) -> Option<Arc<Pace>> {
        let limit = self.settings.messages?;
        let shared = self.pace.as_ref().map(Arc::clone);
        Some(shared.unwrap_or_else(|| Arc::new(Pace::new(limit))))
    }

    /// Notes that a message had to wait.
    pub fn note_delayed(&self) {
        self.delayed.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a message has ended its stream.
    pub fn note_closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }
}

impl State for StreamLimits {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        vec![
            Measure::count(
                "streams_refused_total",
                "Streams refused because there were too many.",
                &self.refused,
            ),
            Measure::count(
                "stream_messages_delayed_total",
                "Messages of streams that had to wait.",
                &self.delayed,
            ),
            Measure::count(
                "streams_over_limit_total",
                "Streams ended because of too many messages.",
                &self.closed,
            ),
        ]
    }
}

/// How often messages pass. The generic cell rate algorithm (ITU-T I.371, annex A).
#[derive(Debug)]
pub struct Pace {
    origin: Instant,
    /// Between two messages that come evenly, in nanoseconds.
    interval: u64,
    /// How far ahead of that messages may be.
    ahead: u64,
    /// When the next message would come if they came evenly, in nanoseconds from the origin.
    next: AtomicU64,
}

impl Pace {
    /// A pace at which nothing has passed. Waits are exact to [`SLACK`]: so far ahead messages may
    /// always be.
    pub fn new(limit: MessageLimit) -> Self {
        let interval = limit.per.as_nanos() / u128::from(limit.count.max(1));
        let interval = u64::try_from(interval).unwrap_or(u64::MAX).max(1);
        Self {
            origin: Instant::now(),
            interval,
            ahead: interval
                .saturating_mul(u64::from(limit.burst.saturating_sub(1)))
                .max(SLACK.as_nanos() as u64),
            next: AtomicU64::new(0),
        }
    }

    /// Lets one message pass, or says how long it has to wait before it may ask again.
    ///
    /// # Errors
    /// That time.
    pub fn take(&self, now: Instant) -> Result<(), Duration> {
        let now = now.saturating_duration_since(self.origin).as_nanos();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let mut next = self.next.load(Ordering::Relaxed);
        loop {
            let at = next.max(now);
            let early = (at - now).saturating_sub(self.ahead);
            if early > 0 {
                return Err(Duration::from_nanos(early));
            }
            let after = at.saturating_add(self.interval);
            let swapped =
                self.next
                    .compare_exchange_weak(next, after, Ordering::Relaxed, Ordering::Relaxed);
            match swapped {
                Ok(_) => return Ok(()),
                Err(other) => next = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: MessageLimit = MessageLimit {
        count: 10,
        per: Duration::from_secs(1),
        burst: 3,
        scope: Scope::Flow,
        over: Over::Delay,
    };

    #[test]
    fn a_burst_passes_then_messages_come_evenly() {
        let pace = Pace::new(LIMIT);
        let now = pace.origin + Duration::from_secs(7);
        for _ in 0..3 {
            assert_eq!(pace.take(now), Ok(()));
        }
        assert_eq!(pace.take(now), Err(Duration::from_millis(100)));
        assert_eq!(pace.take(now), Err(Duration::from_millis(100)));
        let later = now + Duration::from_millis(100);
        assert_eq!(pace.take(later), Ok(()));
        assert_eq!(pace.take(later), Err(Duration::from_millis(100)));
    }

    #[test]
    fn streams_are_counted_while_they_live() {
        let limits = Arc::new(StreamLimits::new(StreamSettings {
            connections: Some(2),
            messages: None,
        }));
        let first = limits.enter().unwrap();
        let second = limits.enter().unwrap();
        assert_eq!(limits.enter().unwrap_err().status, 503);
        drop(first);
        let third = limits.enter().unwrap();
        assert!(limits.enter().is_err());
        drop((second, third));
        assert!(limits.enter().is_ok());
        let refused = &limits.measures(Instant::now())[0];
        assert_eq!(
            (refused.name, refused.value),
            ("streams_refused_total", 2.0)
        );
    }

    #[test]
    fn the_pace_is_shared_when_the_flow_is_counted() {
        let limits = |scope| {
            StreamLimits::new(StreamSettings {
                connections: None,
                messages: Some(MessageLimit { scope, ..LIMIT }),
            })
        };
        let (shared, own) = (limits(Scope::Flow), limits(Scope::Connection));
        assert!(Arc::ptr_eq(
            &shared.pace().unwrap(),
            &shared.pace().unwrap()
        ));
        assert!(!Arc::ptr_eq(&own.pace().unwrap(), &own.pace().unwrap()));
    }
}
