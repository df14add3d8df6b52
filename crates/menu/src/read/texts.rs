//! The texts of a menu, one for each language.

use std::sync::Arc;

use config::{Node, Spanned};
use expr::template::{Part, Template};

use super::Reading;
use crate::codes::{BAD_LANGUAGE, BAD_MENU, OUTSIDE_ALPHABET};
use crate::plan::PerLanguage;
use crate::text::{measure, outside_alphabet, transliterate};

/// The most characters of a text in the file.
const TEXT_MAX: usize = 4000;

/// The languages of a menu, the default first.
pub(crate) struct Languages {
    pub names: Vec<Arc<str>>,
}

impl Reading<'_, '_> {
    /// Texts with `${ }`.
    pub fn templates(&mut self, node: &Node) -> Option<PerLanguage<Template>> {
        let texts = self.bounded(node)?;
        let mut read = Vec::new();
        for text in &texts {
            let template = self.context.template(text)?;
            if let Some(slot) = template
                .variables()
                .iter()
                .find(|it| self.secret.contains(it))
            {
                let mut declared = self.context.scope.declared();
                let name = declared.find(|(_, known)| known == slot);
                let name = name.map_or("", |(name, _)| name).to_owned();
                let message = format!("`${name}` is a PIN: it cannot be shown");
                self.context.report.error(BAD_MENU, text.span, message);
            }
            for part in template.parts() {
                if let Part::Text(fixed) = part {
                    self.warn_outside(fixed, text);
                }
            }
            read.push(template);
        }
        Some(PerLanguage(read))
    }

    /// Texts without `${ }` that are a screen by themselves, or stand above one: each is on one
    /// page.
    pub fn message(&mut self, node: &Node) -> Option<PerLanguage<String>> {
        let texts = self.fixed(node)?;
        for (language, text) in texts.0.iter().enumerate() {
            if self.limit.holds_all(text) {
                continue;
            }
            let name = self.languages.names.get(language);
            let name = name.map_or("", |it| it);
            let message = format!("this is longer than a page in `{name}`");
            let (encoding, units) = measure(text);
            let most = self.limit.units(encoding);
            let hint =
                format!("it has {units} characters, and a page holds {most} of this alphabet");
            let diagnostic = self.context.report.error(BAD_MENU, node.span, message);
            diagnostic.hint(hint);
        }
        Some(texts)
    }

    /// Texts without `${ }`, as they are shown.
    pub fn fixed(&mut self, node: &Node) -> Option<PerLanguage<String>> {
        let texts = self.bounded(node)?;
        let mut read = Vec::new();
        for text in &texts {
            self.warn_outside(&text.value, text);
            read.push(match self.transliterates {
                true => transliterate(&text.value).into_owned(),
                false => text.value.clone(),
            });
        }
        Some(PerLanguage(read))
    }

    /// A text for each language, none of them longer than texts may be.
    fn bounded(&mut self, node: &Node) -> Option<Vec<Spanned<String>>> {
        let texts = self.texts(node)?;
        let is_long = |it: &&Spanned<String>| it.value.chars().count() > TEXT_MAX;
        for text in texts.iter().filter(is_long) {
            let message = format!("a text has at most {TEXT_MAX} characters");
            self.context.report.error(BAD_MENU, text.span, message);
        }
        Some(texts)
    }

    /// A text for each language: that of a name where the texts are in files, the same one where
    /// only one is written and the menu has one language.
    fn texts(&mut self, node: &Node) -> Option<Vec<Spanned<String>>> {
        let report = &mut *self.context.report;
        let names = &self.languages.names;
        if let (Some(name), Some(translations)) = (node.as_str(), &mut self.translations) {
            let found = translations.find(name, node.span, report)?;
            let span = node.span;
            let texts = found.into_iter().map(|value| Spanned { value, span });
            return Some(texts.collect());
        }
        if let Some(text) = node.as_str() {
            if names.len() > 1 {
                let all: Vec<String> = names.iter().map(|it| format!("{it}: …")).collect();
                let diagnostic = report.error(
                    BAD_LANGUAGE,
                    node.span,
                    "a text for one language, and the menu has several",
                );
                diagnostic.hint(format!("write `{{ {} }}`", all.join(", ")));
                return None;
            }
            let value = text.to_owned();
            let span = node.span;
            return Some(vec![Spanned { value, span }]);
        }
        let entries = node.as_mapping()?;
        for entry in entries
            .iter()
            .filter(|it| !names.iter().any(|name| **name == *it.key))
        {
            let message = format!("the menu has no language `{}`", entry.key.escape_debug());
            let diagnostic = report.error(BAD_LANGUAGE, entry.key_span, message);
            diagnostic.hint("the languages of a menu are listed under `languages`");
        }
        let mut found = Vec::new();
        for name in names {
            let Some(text) = node.get(name) else {
                let message = format!("the text lacks the language `{name}`");
                report.error(BAD_LANGUAGE, node.span, message);
                continue;
            };
            let value = text.as_str()?.to_owned();
            let span = text.span;
            found.push(Spanned { value, span });
        }
        (found.len() == names.len()).then_some(found)
    }

    /// Warns about a character that makes a page UCS-2.
    fn warn_outside(&mut self, fixed: &str, text: &Spanned<String>) {
        let shown = match self.transliterates {
            true => transliterate(fixed),
            false => fixed.into(),
        };
        let Some(character) = outside_alphabet(&shown) else {
            return;
        };
        let message = format!(
            "`{}` is not in the GSM alphabet: its page is UCS-2 and holds 80 characters",
            character.escape_debug()
        );
        let hint = match transliterate(&character.to_string()) == character.to_string() {
            true => "write it otherwise where 80 characters are too few",
            false => "say `transliterate: true`, or write it otherwise",
        };
        let report = &mut *self.context.report;
        report
            .warning(OUTSIDE_ALPHABET, text.span, message)
            .hint(hint);
    }
}
