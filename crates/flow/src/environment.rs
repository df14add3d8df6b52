//! `${ }` in strings: environment names are put in, everything else is refused.
//!
//! This version has no expressions, so a `${` that is not `${ $env.NAME }` is an error wherever it
//! stands; it is never passed on as text.

use config::{EnvLookup, Node, Report, Span, Value};

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
        let items = engine.and_then(|engine| engine.get("env")).and_then(Node::as_sequence);
        let mut names = Vec::new();
        for item in items.unwrap_or_default() {
            let Some(name) = item.as_str() else { continue };
            if !is_environment_name(name) {
                let shown = name.escape_debug();
                report
                    .error(ENVIRONMENT, item.span, format!("`{shown}` is not an environment name"))
                    .hint("a name has letters, digits and `_` and does not begin with a digit");
                continue;
            }
            let value = lookup(name);
            if value.is_none() {
                let message = format!("the environment variable {name} is not set");
                report
                    .error(ENVIRONMENT, item.span, message)
                    .hint(format!("set it before the start: {name}=... intertie run ..."));
            }
            names.push((name.to_owned(), value));
        }
        Self { names }
    }

    /// Puts values in for `${ $env.NAME }` in all string values, and refuses every other `${`.
    pub fn expand(&self, node: &mut Node, report: &mut Report) {
        refuse_expressions(node, report);
        config::expand_env(node, &|name| self.look_up(name), report);
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
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn refuse_expressions(node: &Node, report: &mut Report) {
    match &node.value {
        Value::String(text) => refuse_in_text(text, node.span, report),
        Value::Sequence(items) => {
            items.iter().for_each(|item| refuse_expressions(item, report));
        }
        Value::Mapping(entries) => {
            for entry in entries {
                if entry.key.contains("${") {
                    report
                        .error(EXPRESSION, entry.key_span, "`${ }` is not available in keys")
                        .hint("write the key as plain text");
                }
                refuse_expressions(&entry.value, report);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Reports the first hole that is not `${ $env.NAME }`.
fn refuse_in_text(text: &str, span: Span, report: &mut Report) {
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once("${") {
        let hole = behind.split_once('}');
        let name = hole.and_then(|(inside, _)| inside.trim().strip_prefix("$env."));
        match (name, hole) {
            (Some(name), Some((_, after))) if is_environment_name(name) => rest = after,
            _ => {
                let message = "expressions are not available in this version";
                report
                    .error(EXPRESSION, span, message)
                    .hint("the only `${ }` it knows is `${ $env.NAME }`");
                return;
            }
        }
    }
}
