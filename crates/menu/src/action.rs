//! Actions, such as a purchase, that happen once: what is noted of one, and what somebody meets who
//! comes to its screen or dials again. Without input and output.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How far an action has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Progress {
    /// Its steps were about to begin: they run, or nobody knows how far they have come.
    Begun,
    /// Its steps have succeeded, and nobody has seen the result.
    Done,
    /// Its steps have failed or were interrupted: it may have happened.
    Unsure,
}

/// What is noted of the action of a subscriber, who has one at a time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Action {
    #[serde(rename = "i")]
    pub id: String,
    /// The name of its screen: a reload may have moved it.
    #[serde(rename = "s")]
    pub screen: String,
    #[serde(rename = "p")]
    pub progress: Progress,
    /// The session at its screen: as it was before its steps, or is behind them.
    #[serde(rename = "v")]
    pub session: String,
    /// How often its steps have been begun again.
    #[serde(rename = "n", default, skip_serializing_if = "is_default")]
    pub repeats: u32,
    /// How often its result could not be shown.
    #[serde(rename = "f", default)]
    pub failures: u32,
    /// That its result has been given to the gateway.
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Told>,
}

/// Whether a value need not be kept, for it is what is read in its place.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// One of the times that the steps of an action are begun. What somebody has heard of one says
/// nothing about the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// The id of the action.
    pub id: String,
    /// How often it had been begun again.
    pub repeats: u32,
}

/// That the gateway has taken the result of an action. The phone may not have shown it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Told {
    /// The key of the session in which it was told.
    #[serde(rename = "s")]
    pub session: String,
    /// When, in milliseconds of the time of day.
    #[serde(rename = "a")]
    pub at: u64,
}

impl Told {
    /// Until when whoever dials again is told once more.
    pub fn again_until(&self) -> Duration {
        Duration::from_millis(self.at).saturating_add(TOLD_AGAIN)
    }
}

/// For how long whoever dials again is told a result once more, and no more than that: a session
/// that breaks off at its end is dialled again at once.
const TOLD_AGAIN: Duration = Duration::from_secs(30);

/// How often it is tried to show a result: a file may be mended meanwhile, but whoever waits for it
/// can do nothing else.
const FAILURES_MAX: u32 = 3;

impl Action {
    /// The attempt that it is noted of.
    pub fn attempt(&self) -> Attempt {
        Attempt {
            id: self.id.clone(),
            repeats: self.repeats,
        }
    }

    /// Whether this is the attempt.
    pub fn is(&self, attempt: &Attempt) -> bool {
        self.id == attempt.id && self.repeats == attempt.repeats
    }

    /// Whether the action is finished: the subscriber has seen the result of the current attempt,
    /// or has given up on it because its outcome is unknown. What was seen of an earlier attempt
    /// does not finish a later one.
    pub fn is_over(&self, seen: Option<&Attempt>, given_up: Option<&Attempt>) -> bool {
        let is = |attempt: Option<&Attempt>| attempt.is_some_and(|it| self.is(it));
        let may_be_seen = self.progress == Progress::Done || self.told.is_some();
        (may_be_seen && is(seen)) || (self.progress == Progress::Unsure && is(given_up))
    }

    /// Whether its subscriber has seen what became of it: a key of the session in which it was told
    /// shows that, and so does it that nobody has dialled again for a while. `shown` is the id of
    /// the action whose result the session had shown before this message, `dials` says whether this
    /// has begun it.
    pub fn is_seen(
        &self,
        (session, shown): (&str, Option<&str>),
        dials: bool,
        now: Duration,
    ) -> bool {
        if self.progress == Progress::Done && shown == Some(&*self.id) {
            return true;
        }
        let Some(told) = &self.told else { return false };
        let since = now.saturating_sub(Duration::from_millis(told.at));
        told.session == session || !dials || since >= TOLD_AGAIN
    }

    /// Notes that its result could not be shown; whether it is given up.
    pub fn fail_to_show(&mut self) -> bool {
        self.failures += 1;
        self.failures >= FAILURES_MAX
    }
}

/// Where somebody comes upon an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At<'a> {
    /// A code was dialled, or a key pressed in a session that has not seen what became of it.
    Elsewhere,
    /// A session has come to the screen of this name.
    Screen(&'a str),
    /// A session has come to a screen with an action, with other choices than the noted one has.
    OtherChoices,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// There is no action to hear of.
    Nothing,
    /// Its steps begin, with an id of their own.
    Begin,
    /// Its steps begin once more, with the id that it has.
    Repeat,
    /// It is waited for, for a while.
    Wait,
    /// What was waited for is over, and another session has its result.
    Gone,
    /// Its result is shown.
    Show,
    /// A screen of the menu's choice finds out, or says that nobody knows.
    Unsure,
}

/// What is met. `runs` tells whether steps of an action of the subscriber run anywhere,
/// `has_waited` whether this message has begun one or waited for one; `heard` is the attempt whose
/// `unsure` screen the session has shown.
pub(crate) fn meet(
    noted: Option<&Action>,
    (runs, has_waited): (bool, bool),
    heard: Option<&Attempt>,
    at: At<'_>,
) -> Meeting {
    match undisturbed(noted, runs, heard, at) {
        // The end of the one before has not been noted yet.
        Meeting::Begin | Meeting::Repeat if runs => Meeting::Wait,
        // One message begins one action.
        Meeting::Begin if has_waited && noted.is_none() => Meeting::Gone,
        met => met,
    }
}

fn undisturbed(noted: Option<&Action>, runs: bool, heard: Option<&Attempt>, at: At<'_>) -> Meeting {
    let Some(noted) = noted else {
        return match at {
            At::Elsewhere => Meeting::Nothing,
            At::Screen(_) | At::OtherChoices => Meeting::Begin,
        };
    };
    let has_heard = heard.is_some_and(|it| noted.is(it));
    match (noted.progress, at) {
        (Progress::Begun, _) if runs => Meeting::Wait,
        (Progress::Done, _) => Meeting::Show,
        // It was said that nobody knows: whoever goes on from there decides.
        (Progress::Unsure, At::Elsewhere) if has_heard => Meeting::Nothing,
        (Progress::Unsure, At::Screen(name)) if has_heard => match *name == *noted.screen {
            true => Meeting::Repeat,
            false => Meeting::Begin,
        },
        (Progress::Unsure, At::OtherChoices) if has_heard => Meeting::Begin,
        (Progress::Begun | Progress::Unsure, _) => Meeting::Unsure,
    }
}

#[cfg(test)]
mod tests;
