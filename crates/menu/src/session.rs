//! A session as it is kept: bytes with a version in front, so that another version of intertie
//! leaves them alone.

use std::sync::Arc;

use bytes::Bytes;
use component::dialogue::Screen;
use serde::{Deserialize, Serialize};

use crate::action::{Attempt, is_default};
use crate::machine::{Heard, Notice, Position};
use crate::plan::Plan;

/// The version of the bytes.
const VERSION: u8 = 1;
/// The most bytes of all variables of a session as JSON, with their names.
pub(crate) const VARIABLES_MAX: usize = 64 * 1024;
/// The most bytes of a session: variables are escaped once more, and as much again is left for what
/// was typed and answered.
pub(crate) const SIZE_MAX: usize = 3 * VARIABLES_MAX;

/// Values of variables by name, as JSON.
pub(crate) type Variables = Vec<(Arc<str>, Vec<u8>)>;

/// A session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    pub position: Position,
    pub heard: Heard,
    pub variables: Variables,
    /// The id of the last action.
    pub action: Option<String>,
    /// How often that had been begun again.
    pub repeats: u32,
    /// Whether it was said that nobody knows what became of that.
    pub is_unsure: bool,
    /// Whether it is over without having come to an end.
    pub is_dropped: bool,
    /// Whether a flow has begun it, and nobody has pressed a key yet.
    pub is_pushed: bool,
    /// Whether there may be an action although the menu has none: a reload has taken it away.
    pub had_actions: bool,
}

/// The form in which a session is kept. Screens and languages have their names: a reload may move
/// them. What is usual is left out, for there may be a million of them.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Kept<'a> {
    #[serde(rename = "s")]
    screen: &'a str,
    #[serde(rename = "h")]
    home: &'a str,
    #[serde(rename = "b", skip_serializing_if = "Vec::is_empty")]
    history: Vec<&'a str>,
    #[serde(rename = "l")]
    language: &'a str,
    #[serde(rename = "p", skip_serializing_if = "is_default")]
    page: usize,
    #[serde(rename = "n", skip_serializing_if = "is_default")]
    pages: usize,
    #[serde(rename = "e", skip_serializing_if = "is_default")]
    is_refused: bool,
    #[serde(rename = "w", skip_serializing_if = "is_default")]
    is_resumed: bool,
    #[serde(rename = "r", skip_serializing_if = "is_default")]
    tries: u32,
    /// Characters may be escaped.
    #[serde(rename = "t", skip_serializing_if = "is_default")]
    typed: String,
    #[serde(rename = "q", skip_serializing_if = "is_default")]
    sequence: Option<u64>,
    #[serde(rename = "a", skip_serializing_if = "Option::is_none")]
    answer: Option<Screen>,
    #[serde(rename = "o", skip_serializing_if = "is_default")]
    is_over: bool,
    #[serde(rename = "x", skip_serializing_if = "is_default")]
    told: Option<String>,
    #[serde(rename = "i", skip_serializing_if = "is_default")]
    action: Option<String>,
    #[serde(rename = "k", skip_serializing_if = "is_default")]
    repeats: u32,
    #[serde(rename = "u", skip_serializing_if = "is_default")]
    is_unsure: bool,
    #[serde(rename = "d", skip_serializing_if = "is_default")]
    is_dropped: bool,
    #[serde(rename = "f", skip_serializing_if = "is_default")]
    is_pushed: bool,
    #[serde(rename = "c", skip_serializing_if = "is_default")]
    had_actions: bool,
    #[serde(rename = "v", borrow, skip_serializing_if = "Vec::is_empty")]
    variables: Vec<(&'a str, String)>,
}

impl Session {
    /// Whether a session that was dropped has come anywhere, and not to its end.
    pub fn can_be_resumed(&self) -> bool {
        let position = &self.position;
        let has_begun = position.screen != position.home || !position.history.is_empty();
        has_begun && (!self.heard.is_over || self.is_dropped)
    }

    /// The last action, as far as the session knows of it.
    pub fn attempt(&self) -> Option<Attempt> {
        let id = self.action.clone()?;
        let repeats = self.repeats;
        Some(Attempt { id, repeats })
    }

    /// The id of the action whose result the session has shown. A session that was told to wait, or
    /// that the result cannot be shown, has ended, so a session that goes on has shown it.
    pub fn shown_action(&self) -> Option<&str> {
        self.action.as_deref().filter(|_| !self.is_unsure)
    }

    /// The size of all variables as JSON, with their names, in bytes.
    pub fn variables_size(&self) -> usize {
        let variables = self.variables.iter();
        variables.map(|(name, json)| name.len() + json.len()).sum()
    }

    /// Its bytes; `None` when they, or those of its variables, are too many.
    pub fn encode(&self, plan: &Plan) -> Option<Bytes> {
        if self.variables_size() > VARIABLES_MAX {
            return None;
        }
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(self.to_text(plan)?.as_bytes());
        (bytes.len() <= SIZE_MAX).then(|| bytes.into())
    }

    /// The same as text without a version, for what is kept within something else.
    pub fn to_text(&self, plan: &Plan) -> Option<String> {
        let name = |id: usize| plan.screen(id).map_or("", |screen| &*screen.name);
        let language = plan.languages.get(self.position.language);
        let mut variables = Vec::new();
        for (name, json) in &self.variables {
            variables.push((&**name, String::from_utf8(json.clone()).ok()?));
        }
        let kept = Kept {
            screen: name(self.position.screen),
            home: name(self.position.home),
            history: self.position.history.iter().map(|id| name(*id)).collect(),
            language: language.map_or("", |it| it),
            page: self.position.page,
            pages: self.position.pages,
            is_refused: self.position.notice == Notice::Choose,
            is_resumed: self.position.notice == Notice::Resumed,
            tries: self.position.tries,
            typed: self.heard.typed.clone(),
            sequence: self.heard.sequence,
            answer: self.heard.answer.clone(),
            is_over: self.heard.is_over,
            told: self.heard.told.clone(),
            action: self.action.clone(),
            repeats: self.repeats,
            is_unsure: self.is_unsure,
            is_dropped: self.is_dropped,
            is_pushed: self.is_pushed,
            had_actions: self.had_actions || plan.has_actions,
            variables,
        };
        serde_json::to_string(&kept).ok()
    }

    /// The session of these bytes; `None` when they are of another version, or of a menu without
    /// its screens.
    pub fn decode(bytes: &[u8], plan: &Plan) -> Option<Self> {
        let (version, json) = bytes.split_first()?;
        if *version != VERSION {
            return None;
        }
        Self::of_text(std::str::from_utf8(json).ok()?, plan)
    }

    /// The session of a text, under the same conditions.
    pub fn of_text(json: &str, plan: &Plan) -> Option<Self> {
        let kept: Kept<'_> = serde_json::from_str(json).ok()?;
        let mut languages = plan.languages.iter();
        let history = kept.history.iter().filter_map(|name| plan.find(name));
        let variables = kept.variables.iter().filter_map(|(name, value)| {
            let mut names = plan.slots.kept.iter();
            let (name, _) = names.find(|(known, _)| **known == **name)?;
            Some((Arc::clone(name), value.clone().into_bytes()))
        });
        Some(Self {
            position: Position {
                screen: plan.find(kept.screen)?,
                home: plan.find(kept.home)?,
                history: history.collect(),
                // A language that the menu has no more is no reason to end anything.
                language: (languages.position(|it| **it == *kept.language)).unwrap_or_default(),
                page: kept.page,
                pages: kept.pages,
                notice: match (kept.is_refused, kept.is_resumed) {
                    (true, _) => Notice::Choose,
                    (false, true) => Notice::Resumed,
                    (false, false) => Notice::None,
                },
                tries: kept.tries,
            },
            variables: variables.collect(),
            action: kept.action,
            repeats: kept.repeats,
            is_unsure: kept.is_unsure,
            is_dropped: kept.is_dropped,
            is_pushed: kept.is_pushed,
            had_actions: kept.had_actions,
            heard: Heard {
                typed: kept.typed,
                sequence: kept.sequence,
                answer: kept.answer,
                is_over: kept.is_over,
                told: kept.told,
            },
        })
    }
}
