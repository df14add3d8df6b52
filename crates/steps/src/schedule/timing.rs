//! When runs are due.

use std::fmt;
use std::time::{Duration, Instant};

use croner::Cron;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// How many times that have passed are counted one by one.
const COUNTED_MAX: u64 = 1000;

/// How late a run may be.
const GRACE: Duration = Duration::from_secs(60);

/// How far the clock may be put back before the schedule begins anew: it was wrong before.
const BACK_MAX: SignedDuration = SignedDuration::from_hours(24);

/// When runs are due.
#[derive(Clone, Debug)]
pub(super) enum Timing {
    /// After equal times, by a clock that only goes forward.
    Every(Duration),
    /// By the time of day in a zone.
    Cron(Box<Cron>, TimeZone),
}

impl fmt::Display for Timing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(every) => write!(formatter, "{}", config::Duration(*every)),
            Self::Cron(cron, zone) => {
                let zone = zone.iana_name().unwrap_or_default();
                write!(formatter, "{} {zone}", cron.as_str())
            }
        }
    }
}

/// One moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// The clock that only goes forward.
    pub now: Instant,
    /// The time of day.
    pub wall: Timestamp,
}

/// Where a schedule is.
#[derive(Clone, Debug, Default)]
pub(super) struct Position {
    /// When the next run is due, for equal times.
    next: Option<Instant>,
    /// The times up to this one are dealt with, for the time of day.
    last: Option<Timestamp>,
    /// The first time behind it.
    coming: Option<Timestamp>,
}

/// Runs whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// The time of the last of them.
    pub scheduled: Timestamp,
    /// How many there are; at least 1.
    pub count: u64,
    /// Whether the last of them is more than a minute late too.
    pub is_late: bool,
}

impl Timing {
    /// Whether there is any time.
    pub fn ever_comes(&self) -> bool {
        self.after(Timestamp::UNIX_EPOCH).is_some()
    }

    /// The first time of day behind another.
    fn after(&self, last: Timestamp) -> Option<Timestamp> {
        let Self::Cron(cron, zone) = self else {
            return None;
        };
        let last = last.to_zoned(zone.clone());
        let next = cron.find_next_occurrence(&last, false).ok()?;
        Some(next.timestamp())
    }

    /// The last time of day that has come.
    fn before(&self, wall: Timestamp) -> Option<Timestamp> {
        let Self::Cron(cron, zone) = self else {
            return None;
        };
        let wall = wall.to_zoned(zone.clone());
        let last = cron.find_previous_occurrence(&wall, true).ok()?;
        Some(last.timestamp())
    }

    /// The time until the next run. Begins where nobody has begun yet.
    pub fn wait(&self, moment: Moment, position: &mut Position) -> Duration {
        match self {
            Self::Every(every) => {
                let next = position.next.get_or_insert(moment.now + *every);
                next.saturating_duration_since(moment.now)
            }
            Self::Cron(..) => {
                let last = *position.last.get_or_insert(moment.wall);
                if last.duration_since(moment.wall) > BACK_MAX {
                    tracing::warn!(
                        target: "flow",
                        "the clock was put back by more than a day: the schedule begins anew"
                    );
                    position.last = Some(moment.wall);
                    position.coming = None;
                }
                if position.coming.is_none() {
                    position.coming = self.after(position.last.unwrap_or(last));
                }
                let coming = position.coming.unwrap_or(Timestamp::MAX);
                let wait = coming.duration_since(moment.wall);
                Duration::try_from(wait).unwrap_or_default()
            }
        }
    }

    /// Takes the runs whose time has come by this moment.
    pub fn take(&self, moment: Moment, position: &mut Position) -> Option<Due> {
        match self {
            Self::Every(every) => {
                let next = position.next?;
                let past = moment.now.checked_duration_since(next)?;
                let more = past.as_nanos() / every.as_nanos().max(1);
                let late = Duration::from_nanos((past.as_nanos() % every.as_nanos().max(1)) as u64);
                position.next = Some(moment.now - late + *every);
                let scheduled = moment.wall - SignedDuration::try_from(late).unwrap_or_default();
                Some(Due {
                    scheduled,
                    count: u64::try_from(more).unwrap_or(u64::MAX).saturating_add(1),
                    is_late: late > GRACE,
                })
            }
            Self::Cron(..) => self.take_cron(moment.wall, position),
        }
    }

    fn take_cron(&self, wall: Timestamp, position: &mut Position) -> Option<Due> {
        let mut scheduled = position.coming.filter(|coming| *coming <= wall)?;
        let mut count = 1;
        let mut coming = self.after(scheduled);
        while let Some(next) = coming.filter(|next| *next <= wall) {
            if count == COUNTED_MAX {
                scheduled = self.before(wall).unwrap_or(next).max(next);
                coming = self.after(scheduled);
                break;
            }
            count += 1;
            scheduled = next;
            coming = self.after(scheduled);
        }
        position.last = Some(scheduled);
        position.coming = coming;
        let late = Duration::try_from(wall.duration_since(scheduled)).unwrap_or_default();
        Some(Due {
            scheduled,
            count,
            is_late: late > GRACE,
        })
    }

    /// A time as flows see it: in the zone of the schedule.
    pub fn show(&self, time: Timestamp) -> String {
        match self {
            Self::Cron(_, zone) if *zone != TimeZone::UTC => {
                let offset = zone.to_offset(time);
                time.display_with_offset(offset).to_string()
            }
            _ => time.to_string(),
        }
    }
}
