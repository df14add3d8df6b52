//! `${ $env.NAME }` in strings: the values are put in when flow files are loaded.
//!
//! Outside steps, where no message is there to be asked, every other `${` is an error; it is never
//! passed on as text. In steps the others are left to whoever compiles expressions.

use config::{EnvLookup, Node, Report, Span, Value as Tree};
use expr::Value;

use crate::codes::{ENVIRONMENT, EXPRESSION};

/// The names that flow files may use, with their values.
pub(crate) struct Environment {
    /// Names of `engine.env` in order; without a value when the name is unset, which has been
    /// reported where it is declared.
    names: Vec<(String, Option<String>)>,
}

impl Environment {
    /// Reads `engine.env`. Its shape is checked with the other settings.
    pub fn read(
        engine: Option<&Node>,
        lookup: &dyn Fn(&str) -> Option<String>,
        report: &mut Report,
    ) -> Self {
        let items = engine
            .and_then(|engine| engine.get("env"))
            .and_then(Node::as_sequence);
        let mut names = Vec::new();
        for item in items.unwrap_or_default() {
            let Some(name) = item.as_str() else { continue };
            if !is_environment_name(name) {
                let shown = name.escape_debug();
                report
                    .error(
                        ENVIRONMENT,
                        item.span,
                        format!("`{shown}` is not an environment name"),
                    )
                    .hint("a name has letters, digits and `_` and does not begin with a digit");
                continue;
            }
            let value = lookup(name);
            if value.is_none() {
                let message = format!("the environment variable {name} is not set");
                report.error(ENVIRONMENT, item.span, message).hint(format!(
                    "set it before the start: {name}=... intertie run ..."
                ));
            }
            names.push((name.to_owned(), value));
        }
        Self { names }
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|(name, _)| name.as_str())
    }

    /// The names and values as expressions see them.
    pub fn value(&self) -> Value {
        let members = self.names.iter();
        expr::value::object(members.map(|(name, value)| {
            let value = value.as_deref().unwrap_or_default();
            (name.clone(), expr::value::text(value))
        }))
    }

    /// Puts values in for the texts of steps that have no other `${` than `${ $env.NAME }`.
    pub fn expand_plain(&self, node: &mut Node, spoiled: &mut Vec<Span>, report: &mut Report) {
        match &mut node.value {
            Tree::String(text) if text.contains("${") && environment_names(text).is_some() => {
                if !self.expand_text(node, report) {
                    spoiled.push(node.span);
                }
            }
            Tree::Sequence(items) => {
                items
                    .iter_mut()
                    .for_each(|item| self.expand_plain(item, spoiled, report));
            }
            Tree::Mapping(entries) => {
                for entry in entries {
                    self.expand_plain(&mut entry.value, spoiled, report);
                }
            }
            _ => {}
        }
    }

    /// Puts values in for `${ $env.NAME }` in all string values, and refuses every other `${`.
    /// The places where that failed go into `spoiled`: what else is wrong there follows from it.
    pub fn expand(&self, node: &mut Node, spoiled: &mut Vec<Span>, report: &mut Report) {
        match &mut node.value {
            Tree::String(text) if text.contains("${") => {
                if !self.expand_text(node, report) {
                    spoiled.push(node.span);
                }
            }
            Tree::Sequence(items) => {
                items
                    .iter_mut()
                    .for_each(|item| self.expand(item, spoiled, report));
            }
            Tree::Mapping(entries) => {
                for entry in entries {
                    if entry.key.contains("${") {
                        report
                            .error(
                                EXPRESSION,
                                entry.key_span,
                                "`${ }` is not available in keys",
                            )
                            .hint("write the key as plain text");
                        spoiled.push(entry.key_span);
                    }
                    self.expand(&mut entry.value, spoiled, report);
                }
            }
            Tree::String(_) | Tree::Null | Tree::Bool(_) | Tree::Number(_) => {}
        }
    }

    /// False when the text has a `${` that nothing could be put in for.
    fn expand_text(&self, node: &mut Node, report: &mut Report) -> bool {
        let Some(names) = node.as_str().and_then(environment_names) else {
            report
                .error(EXPRESSION, node.span, "no expression can stand here")
                .hint("the only `${ }` that can is `${ $env.NAME }`");
            return false;
        };
        let is_set = |name: &String| matches!(self.look_up(name), EnvLookup::Value(_));
        let sound = names.iter().all(is_set);
        config::expand_env(node, &|name| self.look_up(name), report);
        sound
    }

    fn look_up(&self, name: &str) -> EnvLookup {
        match self.names.iter().find(|(known, _)| known == name) {
            None => EnvLookup::Undeclared,
            Some((_, None)) => EnvLookup::Unset,
            Some((_, Some(value))) => EnvLookup::Value(value.clone()),
        }
    }
}

fn is_environment_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The names in a text whose every `${` is `${ $env.NAME }`; `None` when one is not.
fn environment_names(text: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once("${") {
        let (inside, after) = behind.split_once('}')?;
        let name = inside.trim().strip_prefix("$env.")?;
        if !is_environment_name(name) {
            return None;
        }
        names.push(name.to_owned());
        rest = after;
    }
    Some(names)
}
