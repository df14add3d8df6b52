//! The arguments of a statement: those that it has, those that are given, and what can be bound.

use component::definition::BuildContext;
use component::value_template::ValueTemplate;
use config::{Node, Spanned};
use expr::{Value, value};
use message::Fault;

use crate::codes::{BAD_ARGUMENTS, BAD_QUERY};
use crate::sql::Database;
use crate::sql::query::{self, Argument};

pub(super) fn read_args(
    node: &Node,
    takes_lists: bool,
    context: &mut BuildContext<'_>,
) -> Option<ValueTemplate> {
    let Some(entries) = node.as_mapping() else {
        let message = format!("`args` is a mapping of names, not {}", node.type_name());
        context
            .report
            .error(BAD_ARGUMENTS, node.span, message)
            .hint("write `args: { id: \"${ .id }\" }`");
        return None;
    };
    for entry in entries.iter().filter(|_| !takes_lists) {
        if entry.value.as_mapping().is_some() || entry.value.as_sequence().is_some() {
            let kind = entry.value.type_name();
            let message = format!("an argument is one value, not {kind}");
            context
                .report
                .error(BAD_ARGUMENTS, entry.value.span, message)
                .hint("write it as text: `\"${ .lines | tojson }\"`");
        }
    }
    context.value(node)
}

pub(super) fn read_places(
    query: &Spanned<String>,
    database: &Database,
    context: &mut BuildContext<'_>,
) -> Option<Vec<Argument>> {
    match query::arguments(&query.value, database.dialect) {
        Ok(places) => Some(places),
        Err(problem) => {
            let end = (problem.at + 1).min(query.value.len());
            context
                .report
                .error(BAD_QUERY, query.span, problem.message)
                .within(problem.at..end)
                .hint(problem.hint);
            None
        }
    }
}

/// Every argument of the statement is given, and every given one is used.
pub(super) fn check_arguments(
    query: &Spanned<String>,
    places: &[Argument],
    args: Option<&Node>,
    context: &mut BuildContext<'_>,
) {
    let given = args.and_then(Node::as_mapping).unwrap_or_default();
    let mut told: Vec<&str> = Vec::new();
    for place in places {
        let name = place.name.as_str();
        if told.contains(&name) || given.iter().any(|entry| entry.key == name) {
            continue;
        }
        told.push(name);
        let near = config::suggest(name, given.iter().map(|entry| entry.key.as_str()));
        let hint = match near {
            Some(near) => format!("did you mean `:{near}`?"),
            None => format!("add it: `args: {{ {name}: \"${{ .{name} }}\" }}`"),
        };
        let message = format!("the statement's `:{name}` has no argument");
        context
            .report
            .error(BAD_ARGUMENTS, query.span, message)
            .within(place.at.clone())
            .hint(hint);
    }
    for entry in given {
        if places.iter().any(|place| place.name == entry.key) {
            continue;
        }
        let shown = entry.key.escape_debug();
        let message = format!("the statement does not use the argument `{shown}`");
        let hint = format!("write `:{shown}` where it belongs, without quotes, or leave it out");
        context
            .report
            .error(BAD_ARGUMENTS, entry.key_span, message)
            .hint(hint);
    }
}

/// What can be bound: no lists and no objects.
pub(super) fn check_values(args: &Value) -> Result<(), Fault> {
    for (name, argument) in value::members(args).into_iter().flatten() {
        if matches!(argument, Value::Arr(_) | Value::Obj(_)) {
            let kind = value::kind(argument);
            return Err(Fault::invalid(format!(
                "the argument `{name}` is one value, not {kind}"
            )));
        }
    }
    Ok(())
}
