//! Which events are to be sent again, as a request says it.

use std::sync::Arc;

use message::Fault;

use super::machine::Range;
use super::members::{check_rest, object, take_text};
use super::times;
use crate::event::EventId;
use crate::log::Log;

/// Where a range begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Event(EventId),
    /// In milliseconds since 1970.
    Time(u64),
}

/// Which events are to be sent again: from one to another, all from one on, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    from: Option<Bound>,
    to: Option<Bound>,
}

fn bound(name: &str, text: &str) -> Result<Bound, Fault> {
    if let Ok(id) = text.parse() {
        return Ok(Bound::Event(id));
    }
    times::parse(text).map(Bound::Time).ok_or_else(|| {
        Fault::invalid(format!(
            "`{name}` is the id of an event or a time such as 2026-11-24T12:00:00Z"
        ))
    })
}

/// What is said of an event that is not there.
fn missing() -> Fault {
    Fault::invalid("there are no such events: they are not kept, or were never published")
        .with_status(404)
}

impl Wanted {
    /// Reads the body of a request: `{"event": ID}`, or `{"from": ..., "to": ...}` with ids or
    /// times, each of which may be left out.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(body: &[u8]) -> Result<Self, Fault> {
        let mut given = object(body)?;
        if let Some((name, _)) = given.iter().find(|it| it.1.is_null()) {
            // A null is more likely a lost id than a wish for all events.
            let detail = format!("`{name}` is null: leave it out where it does not matter");
            return Err(Fault::invalid(detail));
        }
        let mut text = |name| take_text(&mut given, name);
        let (event, from, to) = (text("event")?, text("from")?, text("to")?);
        check_rest(&given)?;
        let wanted = match event {
            Some(_) if from.is_some() || to.is_some() => {
                let detail = "`event` stands alone: a range has `from` and `to`";
                return Err(Fault::invalid(detail));
            }
            Some(event) => {
                let unknown = |_| Fault::invalid("`event` is the id of an event");
                let id = Bound::Event(event.parse().map_err(unknown)?);
                Self {
                    from: Some(id),
                    to: Some(id),
                }
            }
            None => Self {
                from: from.map(|it| bound("from", &it)).transpose()?,
                to: to.map(|it| bound("to", &it)).transpose()?,
            },
        };
        Ok(wanted)
    }

    /// Whether not all from some event on are wanted.
    pub fn has_end(&self) -> bool {
        self.to.is_some()
    }

    /// The events. May block: times are looked up on the disk.
    ///
    /// # Errors
    /// When they are not kept, or there are none.
    pub fn find(self, log: &Log) -> Result<Range, Fault> {
        let (oldest, next) = (log.first(), log.next().sequence);
        let known = |id: EventId| {
            let located = log.locate(id).map_err(|_| missing())?.sequence;
            let is_kept = (oldest..next).contains(&located);
            is_kept.then_some(located).ok_or_else(missing)
        };
        let first = match self.from {
            None => oldest,
            Some(Bound::Event(id)) => known(id)?,
            Some(Bound::Time(ms)) => first_since(log, (oldest, next), ms),
        };
        let last = match self.to {
            None => u64::MAX,
            Some(Bound::Event(id)) => known(id)?,
            Some(Bound::Time(ms)) => {
                let behind = first_since(log, (oldest, next), ms.saturating_add(1));
                behind.saturating_sub(1)
            }
        };
        match first < next && first <= last {
            true => Ok(Range { first, last }),
            false => Err(missing()),
        }
    }

    /// The same beside the worker.
    ///
    /// # Errors
    /// As [`Wanted::find`].
    pub async fn found(self, log: &Arc<Log>) -> Result<Range, Fault> {
        let log = Arc::clone(log);
        let found = tokio::task::spawn_blocking(move || self.find(&log)).await;
        found.unwrap_or_else(|_| Err(missing()))
    }
}

/// The first of these events that was published at this time or later.
fn first_since(log: &Log, (oldest, next): (u64, u64), ms: u64) -> u64 {
    // The times of events never go back.
    let (mut from, mut to) = (oldest, next);
    while from < to {
        let middle = from + (to - from) / 2;
        match log.time_of(middle).is_none_or(|it| it >= ms) {
            true => to = middle,
            false => from = middle + 1,
        }
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_say_one_a_range_or_all() {
        let read = |body: &str| Wanted::read(body.as_bytes()).map_err(|it| it.status);
        let id = |sequence| {
            let event = EventId {
                epoch: 0xab,
                sequence,
            };
            Some(Bound::Event(event))
        };
        let all = Wanted {
            from: None,
            to: None,
        };
        assert_eq!(read("{}"), Ok(all));
        let one = Wanted {
            from: id(3),
            to: id(3),
        };
        assert_eq!(read(r#"{"event":"ab-3"}"#), Ok(one));
        let some = Wanted {
            from: Some(Bound::Time(1000)),
            to: id(3),
        };
        let body = r#"{"from":"1970-01-01T00:00:01Z","to":"ab-3"}"#;
        assert_eq!(read(body), Ok(some));
        for wrong in [
            "",
            "[]",
            r#"{"event":"x"}"#,
            r#"{"event":null}"#,
            r#"{"from":"ab-3","to":null}"#,
            r#"{"event":"ab-3","to":"ab-4"}"#,
            r#"{"from":"yesterday"}"#,
            r#"{"from":"1960-01-01T00:00:00Z"}"#,
            r#"{"from":3}"#,
            r#"{"events":"ab-3"}"#,
            r#"{"from":"ab-1","from":"ab-2"}"#,
        ] {
            assert_eq!(read(wrong), Err(400), "{wrong}");
        }
    }
}
