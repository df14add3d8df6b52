//! Puts values of the environment, and secrets, into the strings of a tree.

use crate::codes;
use crate::node::{Node, Value};
use crate::report::Report;
use crate::secrets::Secrets;
use crate::suggest::suggest;

/// What is known about an environment name.
pub enum EnvLookup {
    /// It may be used and has this value.
    Value(String),
    /// It may not be used: no flow file declares it.
    Undeclared,
    /// It may be used but has no value, which is reported where it is declared.
    Unset,
}

/// What stands in a `${ }` that is put in when files are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hole<'a> {
    /// `$env.NAME`.
    Env(&'a str),
    /// `$secret.NAME`, or `$secret["NAME"]` for names that have more than letters, digits and `_`.
    Secret(&'a str),
}

impl<'a> Hole<'a> {
    /// Reads what stands between the braces; none when it is another expression.
    pub fn read(inside: &'a str) -> Option<Self> {
        let inside = inside.trim();
        if let Some(name) = inside.strip_prefix("$env.") {
            return Some(Self::Env(name));
        }
        let behind = inside.strip_prefix("$secret")?;
        let quoted = behind
            .strip_prefix("[\"")
            .and_then(|behind| behind.strip_suffix("\"]"));
        if let Some(name) = quoted.filter(|name| Secrets::is_name(name)) {
            return Some(Self::Secret(name));
        }
        let name = behind.strip_prefix('.')?;
        let is_plain = Secrets::is_name(name) && !name.contains(['.', '-']);
        is_plain.then_some(Self::Secret(name))
    }
}

/// Replaces `${ $env.NAME }` in string values, never in keys. Text that is no such hole stays.
pub fn expand_env(node: &mut Node, lookup: &dyn Fn(&str) -> EnvLookup, report: &mut Report) {
    expand_names(node, lookup, None, report);
}

/// Replaces `${ $env.NAME }` and, where there are `secrets`, `${ $secret.NAME }` in string values,
/// never in keys. Text that is no such hole stays, and so does what values bring along: a `${` in
/// a value is plain text.
pub fn expand_names(
    node: &mut Node,
    lookup: &dyn Fn(&str) -> EnvLookup,
    secrets: Option<&Secrets>,
    report: &mut Report,
) {
    let span = node.span;
    match &mut node.value {
        Value::String(text) => {
            if text.contains("${") {
                *text = expand(text, lookup, secrets, &mut |code, message, hint| {
                    report.error(code, span, message).hint(hint);
                });
            }
        }
        Value::Sequence(items) => {
            items
                .iter_mut()
                .for_each(|item| expand_names(item, lookup, secrets, report));
        }
        Value::Mapping(entries) => {
            entries
                .iter_mut()
                .for_each(|entry| expand_names(&mut entry.value, lookup, secrets, report));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn expand(
    text: &str,
    lookup: &dyn Fn(&str) -> EnvLookup,
    secrets: Option<&Secrets>,
    problem: &mut dyn FnMut(codes::Code, String, String),
) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        expanded.push_str(before);
        let parts = behind.split_once('}');
        let hole = parts.and_then(|(inside, after)| Some((Hole::read(inside)?, after)));
        match (hole, secrets) {
            (Some((Hole::Env(name), after)), _) => {
                rest = after;
                expanded.push_str(&env_value(name, lookup, problem));
            }
            (Some((Hole::Secret(name), after)), Some(secrets)) => {
                rest = after;
                expanded.push_str(secret_value(name, secrets, problem));
            }
            _ => {
                expanded.push_str("${");
                rest = behind;
            }
        }
    }
    expanded.push_str(rest);
    expanded
}

fn env_value(
    name: &str,
    lookup: &dyn Fn(&str) -> EnvLookup,
    problem: &mut dyn FnMut(codes::Code, String, String),
) -> String {
    match lookup(name) {
        EnvLookup::Value(value) => return value,
        EnvLookup::Undeclared => {
            let shown = name.escape_debug();
            problem(
                codes::ENV_UNDECLARED,
                format!("the environment name {shown} is not declared"),
                format!("declare it in the `engine:` document: env: [{shown}]"),
            );
        }
        EnvLookup::Unset => {}
    }
    String::new()
}

fn secret_value<'a>(
    name: &str,
    secrets: &'a Secrets,
    problem: &mut dyn FnMut(codes::Code, String, String),
) -> &'a str {
    let value = secrets.get(name);
    if value.is_none() {
        let hint = match suggest(name, secrets.names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("declare it in the `engine:` document: secrets: {{ env: [{name}] }}"),
        };
        let message = format!("there is no secret {name}");
        problem(codes::SECRET_UNDECLARED, message, hint);
    }
    value.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Sources;

    fn expanded(text: &str) -> (String, Vec<&'static str>) {
        let (mut sources, mut report) = (Sources::default(), Report::default());
        let source = sources.add("f", b"", &mut report).unwrap();
        let span = crate::source::Span {
            source,
            start: 0,
            end: 0,
        };
        let mut node = Node {
            value: Value::String(text.to_owned()),
            span,
        };
        let values = [("A", "${ $env.B }"), ("tls.key", "${ $secret.A }")];
        let values = values.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let secrets = Secrets::new(values.into());
        let env = |name: &str| match name {
            "B" => EnvLookup::Value("${ $secret.A }".to_owned()),
            _ => EnvLookup::Undeclared,
        };
        expand_names(&mut node, &env, Some(&secrets), &mut report);
        let codes = report.diagnostics().iter().map(|it| it.code().as_str());
        (node.as_str().unwrap().to_owned(), codes.collect())
    }

    #[test]
    fn what_a_value_brings_along_is_plain_text() {
        let (text, codes) = expanded("${ $secret.A }|${$secret[\"tls.key\"]}|${ $env.B }");
        assert_eq!(text, "${ $env.B }|${ $secret.A }|${ $secret.A }");
        assert_eq!(codes, [""; 0]);
    }

    #[test]
    fn names_that_nobody_declares_are_told() {
        assert_eq!(
            expanded("${ $secret.X }${ $env.X }").1,
            ["IT0121", "IT0120"]
        );
        for other in [
            "${ $secret.a-b }",
            "${ $secret.A | length }",
            "${ $secret }",
        ] {
            assert_eq!(expanded(other), (other.to_owned(), vec![]), "{other}");
        }
    }
}
