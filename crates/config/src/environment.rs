//! Puts values of the environment into the strings of a tree.

use crate::codes;
use crate::node::{Node, Value};
use crate::report::Report;

/// What is known about an environment name.
pub enum EnvLookup {
    /// It may be used and has this value.
    Value(String),
    /// It may not be used: no flow file declares it.
    Undeclared,
    /// It may be used but has no value, which is reported where it is declared.
    Unset,
}

/// Replaces `${ $env.NAME }` in string values, never in keys. Text that is no such hole stays.
pub fn expand_env(node: &mut Node, lookup: &dyn Fn(&str) -> EnvLookup, report: &mut Report) {
    let span = node.span;
    match &mut node.value {
        Value::String(text) => {
            if text.contains("${") {
                *text = expand(text, lookup, &mut |code, message, hint| {
                    report.error(code, span, message).hint(hint);
                });
            }
        }
        Value::Sequence(items) => {
            items
                .iter_mut()
                .for_each(|item| expand_env(item, lookup, report));
        }
        Value::Mapping(entries) => {
            entries
                .iter_mut()
                .for_each(|entry| expand_env(&mut entry.value, lookup, report));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn expand(
    text: &str,
    lookup: &dyn Fn(&str) -> EnvLookup,
    problem: &mut dyn FnMut(codes::Code, String, String),
) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        expanded.push_str(before);
        let hole = behind.split_once('}');
        let name = hole.and_then(|(inside, _)| inside.trim().strip_prefix("$env."));
        let (Some(name), Some((_, after))) = (name, hole) else {
            expanded.push_str("${");
            rest = behind;
            continue;
        };
        rest = after;
        let shown = name.escape_debug();
        match lookup(name) {
            EnvLookup::Value(value) => expanded.push_str(&value),
            EnvLookup::Undeclared => problem(
                codes::ENV_UNDECLARED,
                format!("the environment name {shown} is not declared"),
                format!("declare it in the `engine:` document: env: [{shown}]"),
            ),
            EnvLookup::Unset => {}
        }
    }
    expanded.push_str(rest);
    expanded
}
