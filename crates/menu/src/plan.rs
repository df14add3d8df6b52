//! A menu as it was read and checked: what the session's [machine](crate::machine) and the step
//! that drives it go by.

use std::sync::Arc;
use std::time::Duration;

use component::block::Block;
use component::key_value::KeyValueStore;
use config::Node;
use expr::jq::Expression;
use expr::template::Template;
use journal::Durability;

use crate::dial::Codes;
use crate::input::Rule;
use crate::text::Limit;

/// The number of a screen.
pub(crate) type ScreenId = usize;

/// One value for each language, in the order of the menu's languages.
#[derive(Clone, Debug)]
pub(crate) struct PerLanguage<T>(pub Vec<T>);

impl<T> PerLanguage<T> {
    /// That of a language; of the default where it lacks, which the loader has refused.
    pub fn of(&self, language: usize) -> Option<&T> {
        self.0.get(language).or_else(|| self.0.first())
    }
}

impl PerLanguage<String> {
    pub fn text(&self, language: usize) -> &str {
        self.of(language).map_or("", String::as_str)
    }
}

/// A menu.
pub(crate) struct Plan {
    pub languages: Vec<Arc<str>>,
    pub screens: Vec<Screen>,
    /// Whether a screen has an action.
    pub has_actions: bool,
    pub keys: Keys,
    pub messages: Messages,
    pub codes: Codes,
    pub limit: Limit,
    pub transliterates: bool,
    /// How long a session lasts without a key.
    pub timeout: Duration,
    /// How long a session that was dropped can be resumed.
    pub resume: Option<Duration>,
    /// What runs when the gateway has ended a session.
    pub on_end: Option<Block>,
    /// The most sessions in memory and data folder.
    pub sessions_max: usize,
    /// The most sessions of one subscriber that are known.
    pub per_subscriber: usize,
    /// What sessions in the data folder outlive.
    pub durability: Durability,
    /// The store that is shared with other engines and has the sessions in their place.
    pub sessions_in: Option<Arc<dyn KeyValueStore>>,
    /// How screens are sent that are not in the reply to the gateway's request.
    pub answers: Option<Answers>,
    /// How sessions are begun that the subscriber has not dialled for.
    pub push: Option<Push>,
    /// What stands between the lines of a screen that is sent.
    pub line_break: LineBreak,
    /// The calling code of numbers that begin with one 0.
    pub country: Option<String>,
    pub slots: Slots,
}

/// How screens are sent to the gateway in requests of their own.
pub(crate) struct Answers {
    /// What sends a screen, which is `.` there.
    pub send: Block,
    pub acknowledge: Acknowledge,
    /// The reply to the gateway's request.
    pub reply: Acknowledgement,
    /// How long it may take to send a screen, with all tries.
    pub timeout: Duration,
    /// The most requests that are acknowledged and not answered yet.
    pub max: usize,
}

/// When the gateway's request is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acknowledge {
    /// At once: the steps of the screen and its sending follow.
    Before,
    /// When the screen has been sent.
    After,
}

/// The reply that acknowledges a request.
pub(crate) struct Acknowledgement {
    pub status: u16,
    pub content_type: String,
    pub body: String,
}

/// How flows begin sessions.
pub(crate) struct Push {
    /// The screens at which they may, with the variables that they give values to.
    pub screens: Vec<(ScreenId, Arc<[Arc<str>]>)>,
    /// What sends the first screen, which is `.` there.
    pub send: Block,
    /// Where the id of the session is in what that has got, when the gateway chooses it.
    pub session: Option<Expression>,
    /// How long it may take to send the screen, with all tries.
    pub timeout: Duration,
}

/// What stands between the lines of a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineBreak {
    Lf,
    CrLf,
}

impl LineBreak {
    /// That of a trigger.
    pub fn of(ussd: &Node) -> Self {
        match ussd.get("line_breaks").and_then(Node::as_str) {
            Some("crlf") => Self::CrLf,
            _ => Self::Lf,
        }
    }

    /// A text with such lines.
    pub fn put_in(self, text: String) -> String {
        match self {
            Self::Lf => text,
            Self::CrLf => text.replace("\r\n", "\n").replace('\n', "\r\n"),
        }
    }

    /// How many characters it is.
    pub fn width(self) -> usize {
        match self {
            Self::Lf => 1,
            Self::CrLf => 2,
        }
    }
}

/// Where the values of names lie.
pub(crate) struct Slots {
    pub msisdn: usize,
    pub ussd: usize,
    /// What lasts for a session, by name: all but what is secret.
    pub kept: Vec<(Arc<str>, usize)>,
    /// The names of what subscribers choose: inputs, options, and what stands in codes.
    pub chosen: Vec<Arc<str>>,
    /// What is not kept.
    pub secret: Vec<usize>,
}

impl Plan {
    pub fn screen(&self, id: ScreenId) -> Option<&Screen> {
        self.screens.get(id)
    }

    /// The screen of a name, as sessions are kept by names: a reload may have moved it.
    pub fn find(&self, name: &str) -> Option<ScreenId> {
        self.screens.iter().position(|screen| *screen.name == *name)
    }
}

/// A key that several screens have, and what stands beside it.
#[derive(Clone, Debug)]
pub(crate) struct LabelledKey {
    pub key: String,
    pub text: PerLanguage<String>,
}

impl LabelledKey {
    /// Its line on a screen.
    pub fn line(&self, language: usize) -> String {
        format!("{}. {}", self.key, self.text.text(language))
    }
}

/// Keys that several screens have.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub more: LabelledKey,
    /// The page before.
    pub page_back: LabelledKey,
    /// The screen before, where the menu has that: then it is also the page before.
    pub back: Option<LabelledKey>,
    pub home: Option<LabelledKey>,
    pub exit: Option<LabelledKey>,
}

/// Texts of the menu itself.
#[derive(Clone, Debug)]
pub(crate) struct Messages {
    pub choose: PerLanguage<String>,
    pub unknown: PerLanguage<String>,
    pub failed: PerLanguage<String>,
    pub exit: PerLanguage<String>,
    pub pending: PerLanguage<String>,
    pub lost: PerLanguage<String>,
    pub resumed: PerLanguage<String>,
}

/// A screen.
pub(crate) struct Screen {
    pub name: Arc<str>,
    /// Its number for coverage.
    pub place: u32,
    /// What runs when it is entered.
    pub work: Option<Block>,
    /// How that happens once.
    pub once: Option<Once>,
    /// What is shown; none of a screen that goes on at once.
    pub text: Option<PerLanguage<Template>>,
    pub then: Then,
}

/// How the steps of a screen happen once.
pub(crate) struct Once {
    /// How long the subscriber waits for them.
    pub wait: Duration,
    /// How long they may take.
    pub timeout: Duration,
    /// The screen when nobody knows what became of them.
    pub unsure: ScreenId,
}

/// What follows a screen.
pub(crate) enum Then {
    /// What can be chosen.
    Options(Vec<Choice>),
    /// What is typed, and the screen behind it.
    Input(Box<Input>, Vec<Target>),
    /// Another screen at once.
    Go(Vec<Target>),
    /// Nothing: the session ends.
    End,
}

/// A screen that follows where a condition holds.
pub(crate) struct Target {
    pub condition: Option<Expression>,
    pub screen: ScreenId,
}

/// An option, or one for each item of a value.
pub(crate) struct Choice {
    /// Without one it is numbered.
    pub key: Option<String>,
    pub text: PerLanguage<Template>,
    /// Its number for coverage.
    pub place: u32,
    pub go: ScreenId,
    pub condition: Option<Expression>,
    /// The language of the session from then on.
    pub language: Option<usize>,
    pub each: Option<Each>,
}

/// A value of which each item is an option.
pub(crate) struct Each {
    pub items: Expression,
    /// The variable that is the item.
    pub slot: usize,
}

/// What is typed.
pub(crate) struct Input {
    pub slot: usize,
    pub rule: Rule,
    /// Whether a text is one of the wanted form.
    pub pattern: Option<Expression>,
    /// A condition on the value.
    pub condition: Option<Expression>,
    pub invalid: Option<PerLanguage<String>>,
    pub tries: Option<u32>,
    /// Without one the session ends behind the last try.
    pub after_tries: Option<ScreenId>,
}
