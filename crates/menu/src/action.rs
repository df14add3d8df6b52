//! Actions, such as a purchase, that happen once: what is noted of one, and what somebody meets who
//! comes to its screen or dials again. Without input and output.

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
    /// How often its result could not be shown.
    #[serde(rename = "f", default)]
    pub failures: u32,
}

/// How often it is tried to show a result: a file may be mended meanwhile, but whoever waits for it
/// can do nothing else.
const FAILURES_MAX: u32 = 3;

impl Action {
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
    /// Its result is shown.
    Show,
    /// A screen of the menu's choice finds out, or says that nobody knows.
    Unsure,
}

/// What is met. `runs` tells whether the steps of the noted action run anywhere; `heard` is the id
/// of the action whose `unsure` screen the session has shown.
pub(crate) fn meet(noted: Option<&Action>, runs: bool, heard: Option<&str>, at: At<'_>) -> Meeting {
    let Some(noted) = noted else {
        return match at {
            At::Elsewhere => Meeting::Nothing,
            At::Screen(_) => Meeting::Begin,
        };
    };
    let has_heard = heard == Some(&*noted.id);
    match (noted.progress, at) {
        (Progress::Begun, _) if runs => Meeting::Wait,
        (Progress::Done, _) => Meeting::Show,
        // It was said that nobody knows: whoever goes on from there decides.
        (Progress::Unsure, At::Elsewhere) if has_heard => Meeting::Nothing,
        (Progress::Unsure, At::Screen(name)) if has_heard => match *name == *noted.screen {
            true => Meeting::Repeat,
            false => Meeting::Begin,
        },
        (Progress::Begun | Progress::Unsure, _) => Meeting::Unsure,
    }
}

#[cfg(test)]
mod tests;
