//! Texts in files of their own, one for each language, for translators: `texts: ./texts` reads
//! `texts/en.json`, names with their texts. No YAML, which is a flow file wherever it lies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use component::definition::BuildContext;
use config::{Node, Report, Span};

use crate::codes::BAD_LANGUAGE;

/// The texts of all languages by their names.
pub(crate) struct Translations {
    folder: String,
    /// In the order of the menu's languages.
    languages: Vec<(Arc<str>, BTreeMap<String, String>)>,
    used: BTreeSet<String>,
    span: Span,
}

impl Translations {
    /// Reads the files of all languages. Every problem is reported.
    pub fn read(node: &Node, names: &[Arc<str>], context: &mut BuildContext<'_>) -> Option<Self> {
        let written = node.as_str()?;
        let folder = written.trim_start_matches("./").trim_end_matches('/');
        let mut languages = Vec::new();
        for name in names {
            let file = format!("{folder}/{name}.json");
            let bytes = (context.surroundings.files)(node.span.source, &file);
            let texts = bytes.and_then(|bytes| texts_of(&file, &bytes));
            match texts {
                Ok(texts) => languages.push((Arc::clone(name), texts)),
                Err(problem) => {
                    let message = format!("the texts in `{name}` cannot be read");
                    let diagnostic = context.report.error(BAD_LANGUAGE, node.span, message);
                    diagnostic.hint(problem);
                }
            }
        }
        (languages.len() == names.len()).then(|| Self {
            folder: folder.to_owned(),
            languages,
            used: BTreeSet::new(),
            span: node.span,
        })
    }

    /// The text of this name in each language. Every problem is reported.
    pub fn find(&mut self, name: &str, span: Span, report: &mut Report) -> Option<Vec<String>> {
        self.used.insert(name.to_owned());
        let mut found = Vec::new();
        for (language, texts) in &self.languages {
            match texts.get(name) {
                Some(text) => found.push(text.clone()),
                None => {
                    let file = format!("{}/{language}.json", self.folder);
                    let message = format!("there is no text `{}` in {file}", name.escape_debug());
                    let near = config::suggest(name, texts.keys().map(String::as_str));
                    let hint = match near {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => "add it there, or write the text in every language".to_owned(),
                    };
                    report.error(BAD_LANGUAGE, span, message).hint(hint);
                }
            }
        }
        (found.len() == self.languages.len()).then_some(found)
    }

    /// Warns about texts that the menu does not use.
    pub fn warn_unused(&self, report: &mut Report) {
        for (language, texts) in &self.languages {
            let unused: Vec<&str> = texts
                .keys()
                .filter(|name| !self.used.contains(*name))
                .map(String::as_str)
                .collect();
            if unused.is_empty() {
                continue;
            }
            let file = format!("{}/{language}.json", self.folder);
            let message = format!(
                "the menu does not use these texts of {file}: {}",
                unused.join(", ")
            );
            let diagnostic = report.warning(BAD_LANGUAGE, self.span, message);
            diagnostic.hint("remove them, or use them");
        }
    }
}

/// The texts of a file. Objects within others are part of the name, with points between.
fn texts_of(file: &str, bytes: &[u8]) -> Result<BTreeMap<String, String>, String> {
    let read: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| format!("{file}: {error}"))?;
    let mut texts = BTreeMap::new();
    let mut open = vec![(String::new(), &read)];
    while let Some((name, value)) = open.pop() {
        match value {
            serde_json::Value::String(text) if !name.is_empty() => {
                texts.insert(name, text.clone());
            }
            serde_json::Value::Object(members) => {
                open.extend(members.iter().map(|(key, value)| match name.is_empty() {
                    true => (key.clone(), value),
                    false => (format!("{name}.{key}"), value),
                }));
            }
            _ => return Err(format!("{file}: `{name}` is no text")),
        }
    }
    match texts.is_empty() {
        true => Err(format!(
            "{file} has no texts: write `{{ \"NAME\": \"TEXT\" }}`"
        )),
        false => Ok(texts),
    }
}
