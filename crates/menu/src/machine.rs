//! The session's state machine, without input and output: what a message of the gateway is to a
//! session, and what a key does on a screen. Whoever drives it runs steps, evaluates texts and
//! keeps the session.

use component::dialogue::{Screen, SessionEvent};

use crate::dial;
use crate::plan::ScreenId;

/// The most screens that can be gone back to.
const HISTORY_MAX: usize = 32;
/// What stands in place of secret characters in what was typed.
const MASK: char = '\u{1}';
/// What stands between inputs where a gateway sends all of them.
const SEPARATOR: char = '*';

/// What stands above a screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Nothing.
    #[default]
    None,
    /// That something else was expected.
    Choose,
    /// That the session goes on where an earlier one was dropped.
    Resumed,
}

/// Where a session is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub screen: ScreenId,
    /// The first screen of the session.
    pub home: ScreenId,
    /// The screens before, the latest last.
    pub history: Vec<ScreenId>,
    pub language: usize,
    /// The page that is shown, and how many there are.
    pub page: usize,
    pub pages: usize,
    pub notice: Notice,
    /// How often the input has been refused.
    pub tries: u32,
}

impl Position {
    /// The start of a session.
    pub fn start(screen: ScreenId) -> Self {
        Self {
            screen,
            home: screen,
            ..Self::default()
        }
    }

    /// Goes on to a screen.
    pub fn go(&mut self, screen: ScreenId) {
        self.history.push(self.screen);
        if self.history.len() > HISTORY_MAX {
            self.history.remove(0);
        }
        self.enter(screen);
    }

    /// Goes on to a screen without a way back to this one, which showed nothing.
    pub fn pass_on(&mut self, screen: ScreenId) {
        self.enter(screen);
    }

    fn enter(&mut self, screen: ScreenId) {
        self.screen = screen;
        (self.page, self.pages, self.tries) = (0, 0, 0);
        self.notice = Notice::None;
    }

    /// Shows the same screen with a notice above it.
    pub fn refuse(&mut self) {
        self.page = 0;
        self.notice = Notice::Choose;
    }

    /// Goes back to the screen before; false when there is none.
    fn back(&mut self) -> bool {
        match self.history.pop() {
            Some(screen) => {
                self.enter(screen);
                true
            }
            None => false,
        }
    }

    /// Goes back to the first screen.
    fn home(&mut self) {
        self.history.clear();
        self.enter(self.home);
    }

    /// What keys do here that are the menu's own, by what they are.
    pub fn shows(&self, key: MenuKey) -> bool {
        match key {
            MenuKey::More => self.page + 1 < self.pages,
            MenuKey::PageBack => self.page > 0,
            MenuKey::Back => self.page > 0 || !self.history.is_empty(),
            MenuKey::Home => self.screen != self.home,
            MenuKey::Exit => true,
        }
    }
}

/// A key that several screens have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MenuKey {
    More,
    /// The page before.
    PageBack,
    /// The page before, or the screen before.
    Back,
    Home,
    Exit,
}

/// What follows a key of the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    /// Another page of the screen.
    Page,
    /// Another screen is entered.
    Entered,
    /// The session ends.
    Exit,
}

impl Position {
    /// Does what a key of the menu does; `None` when it does nothing here.
    pub fn turn(&mut self, key: MenuKey) -> Option<Turned> {
        if !self.shows(key) {
            return None;
        }
        match key {
            MenuKey::More => {
                self.page += 1;
                Some(Turned::Page)
            }
            MenuKey::PageBack | MenuKey::Back if self.page > 0 => {
                self.page -= 1;
                Some(Turned::Page)
            }
            MenuKey::Back => self.back().then_some(Turned::Entered),
            MenuKey::PageBack => None,
            MenuKey::Home => {
                self.home();
                Some(Turned::Entered)
            }
            MenuKey::Exit => Some(Turned::Exit),
        }
    }
}

/// What a session knows of the requests that it had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// All that was typed, joined by `*`, where the gateway says so; secrets are masked.
    pub typed: String,
    /// The number of the last request, where the gateway counts them.
    pub sequence: Option<u64>,
    /// What the last request was answered with.
    pub answer: Option<Screen>,
    /// Whether the session is over, but for requests that are repeated.
    pub is_over: bool,
    /// The id of the action whose result the answer tells.
    pub told: Option<String>,
}

/// What a message is to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// The session begins: this was dialled.
    Begins(String),
    /// This was typed.
    Typed(String),
    /// This was typed: several inputs, or one that holds `*`.
    Several(String),
    /// It was here before: the last answer is given again.
    Again(Screen),
    /// The session is not known, or over: there is nothing to go on with.
    Unknown,
    /// The gateway has ended the session.
    Over,
}

/// Tells what a message is. `heard` is what is known of its session, if anything is.
pub(crate) fn receive(heard: Option<&Heard>, event: &SessionEvent) -> Received {
    match event {
        SessionEvent::End => Received::Over,
        // What begins a session is nothing within one.
        SessionEvent::Push(_) => Received::Unknown,
        SessionEvent::Dial(code) => match heard {
            // A second dial of one session is the first one, sent again or late: the phone keeps
            // the screen that it is at. One of a session that was over long ago is none.
            Some(heard) if !heard.is_over || heard.sequence.unwrap_or_default() <= 1 => {
                again(heard)
            }
            Some(_) => Received::Unknown,
            None => Received::Begins(code.clone()),
        },
        SessionEvent::Reply { text, sequence } => match heard {
            None => Received::Unknown,
            Some(heard) => match (sequence, heard.sequence) {
                (Some(now), Some(last)) if *now <= last => again(heard),
                _ if heard.is_over => Received::Unknown,
                _ => Received::Typed(text.clone()),
            },
        },
        SessionEvent::Typed { code, text } => match heard {
            None => Received::Begins(dial::joined(code, text)),
            Some(heard) => match new_part(&heard.typed, text) {
                None => again(heard),
                Some(_) if heard.is_over => Received::Unknown,
                // They are several when requests were lost between.
                Some(part) if part.contains(SEPARATOR) => Received::Several(part.to_owned()),
                Some(part) => Received::Typed(part.to_owned()),
            },
        },
    }
}

fn again(heard: &Heard) -> Received {
    heard
        .answer
        .clone()
        .map_or(Received::Unknown, Received::Again)
}

/// What stands behind all that was typed before. Inputs may hold `*`, so that only the part that is
/// known says where the new one begins. `None` when nothing does: the request is one of before.
fn new_part<'a>(before: &str, now: &'a str) -> Option<&'a str> {
    if before.is_empty() {
        return (!now.is_empty()).then_some(now);
    }
    let mut left = now.chars();
    for known in before.chars() {
        match left.next() {
            Some(character) if known == character || known == MASK => {}
            _ => return None,
        }
    }
    left.as_str().strip_prefix(SEPARATOR)
}

impl Heard {
    /// Notes a message that has been acted on.
    pub fn note(&mut self, event: &SessionEvent, is_secret: bool) {
        match event {
            SessionEvent::Typed { text, .. } => {
                // Behind something secret, or what may have been, nobody knows for certain what
                // screen the phone has shown.
                let is_secret = is_secret || self.typed.contains(MASK);
                let new = new_part(&self.typed, text).unwrap_or_default().len();
                let known = text.len() - new;
                let is_visible = |at: usize| !is_secret || at < known;
                // What was masked before stays so.
                let masked: Vec<bool> = self.typed.chars().map(|it| it == MASK).collect();
                let characters = text.char_indices().enumerate();
                self.typed = characters
                    .map(|(number, (at, character))| match masked.get(number) {
                        Some(true) => MASK,
                        _ if is_visible(at) => character,
                        _ => MASK,
                    })
                    .collect();
            }
            SessionEvent::Reply { sequence, .. } => self.sequence = *sequence,
            // Some gateways count the dial, and some begin with 0.
            SessionEvent::Dial(_) => self.sequence = Some(0),
            SessionEvent::End | SessionEvent::Push(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
