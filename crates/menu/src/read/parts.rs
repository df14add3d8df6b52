//! The keys and messages that all screens of a menu have.

use config::Node;

use super::Reading;
use super::defaults::{self, Defaults};
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
            more: more.unwrap_or_else(|| self.default_key("98", |it| it.more)),
            page_back: (back.clone()).unwrap_or_else(|| self.default_key("99", |it| it.back)),
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
                ends: false,
            };
            if !footers.leave_room(self.limit) {
                let message = format!("the labels in `{name}` leave too little room for text");
                let diagnostic = self.context.report.error(BAD_MENU, node.span, message);
                diagnostic.hint("together they take at most half of a page, also in UCS-2");
            }
        }
    }

    pub fn read_messages(&mut self, node: Option<&Node>) -> Option<Messages> {
        let mut read = |name: &str, default: fn(&Defaults) -> &'static str| match node
            .and_then(|it| it.get(name))
        {
            Some(node) => self.message(node),
            None => Some(self.default_of(default)),
        };
        Some(Messages {
            choose: read("choose", |it| it.choose)?,
            unknown: read("unknown", |it| it.unknown)?,
            failed: read("failed", |it| it.failed)?,
            exit: read("exit", |it| it.exit)?,
            pending: read("pending", |it| it.pending)?,
            lost: read("lost", |it| it.lost)?,
            resumed: read("resumed", |it| it.resumed)?,
        })
    }

    /// A text that nobody has written, in each language.
    fn default_of(&self, text: fn(&Defaults) -> &'static str) -> PerLanguage<String> {
        let names = self.languages.names.iter();
        PerLanguage(names.map(|it| text(defaults::of(it)).to_owned()).collect())
    }

    fn default_key(&self, key: &str, text: fn(&Defaults) -> &'static str) -> LabelledKey {
        LabelledKey {
            key: key.to_owned(),
            text: self.default_of(text),
        }
    }
}
