//! The keys and messages that all screens of a menu have.

use config::Node;

use super::Reading;
use crate::codes::BAD_MENU;
use crate::plan::{Keys, LabelledKey, Messages, PerLanguage};
use crate::text::{Footers, join_line};

impl Reading<'_, '_> {
    pub fn read_keys(&mut self, node: Option<&Node>) -> Option<Keys> {
        let mut read = |name: &str| {
            let node = node.and_then(|it| it.get(name))?;
            let key = node.get("key")?.as_str()?.to_owned();
            let text = self.fixed(node.get("text")?)?;
            Some(LabelledKey { key, text })
        };
        let (more, back, home, exit) = (read("more"), read("back"), read("home"), read("exit"));
        let keys = Keys {
            more: more.unwrap_or_else(|| default_key("98", "More")),
            page_back: back.clone().unwrap_or_else(|| default_key("99", "Back")),
            back,
            home,
            exit,
        };
        if let Some(node) = node {
            self.check_room(&keys, node);
        }
        Some(keys)
    }

    /// Labels leave half of the smallest page to the text.
    fn check_room(&mut self, keys: &Keys, node: &Node) {
        for (language, name) in self.languages.names.iter().enumerate() {
            let line = |key: &LabelledKey| key.line(language);
            let mut always = String::new();
            for key in [&keys.home, &keys.exit].into_iter().flatten() {
                join_line(&mut always, &line(key));
            }
            let (more, back) = (line(&keys.more), line(&keys.page_back));
            let footers = Footers {
                more: &more,
                back: &back,
                first: if keys.back.is_some() { &back } else { "" },
                always: &always,
            };
            if !footers.leave_room(self.limit) {
                let message = format!("the labels in `{name}` leave too little room for text");
                let diagnostic = self.context.report.error(BAD_MENU, node.span, message);
                diagnostic.hint("together they take at most half of a page, also in UCS-2");
            }
        }
    }

    pub fn read_messages(&mut self, node: Option<&Node>) -> Option<Messages> {
        let count = self.languages.names.len();
        let mut read = |name: &str, default: &str| {
            let node = node.and_then(|it| it.get(name));
            match node {
                Some(node) => self.message(node),
                None => Some(PerLanguage(vec![default.to_owned(); count])),
            }
        };
        let messages = Messages {
            choose: read("choose", "Please try again.")?,
            unknown: read("unknown", "The session is over. Please dial again.")?,
            failed: read(
                "failed",
                "The service is not available. Please try again later.",
            )?,
            exit: read("exit", "Goodbye.")?,
            pending: read("pending", "Please wait a moment, then dial again.")?,
            lost: read(
                "lost",
                "What became of your last request cannot be shown here. Please ask our service.",
            )?,
            resumed: read("resumed", "Welcome back.")?,
        };
        Some(messages)
    }
}

fn default_key(key: &str, text: &str) -> LabelledKey {
    LabelledKey {
        key: key.to_owned(),
        text: PerLanguage(vec![text.to_owned()]),
    }
}
