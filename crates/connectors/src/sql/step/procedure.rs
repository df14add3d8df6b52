//! `procedure`: calls of stored procedures, with what comes out of them.

use component::definition::BuildContext;
use config::{Node, Spanned};
use expr::{Value, value};

use crate::codes::BAD_PROCEDURE;
use crate::sql::session::{Done, Out, Procedure, Statement};
use crate::sql::{Database, drivers};

/// The most characters of a type.
const TYPE_MAX: usize = 100;

/// Reads a call. Every problem is reported.
pub(super) fn read(
    name: &Spanned<String>,
    node: &Node,
    database: &Database,
    context: &mut BuildContext<'_>,
) -> Option<Statement> {
    let before = context.problems();
    // Told here, with a better reason than that nobody reads it.
    context.compiled.push(name.span);
    let parts = name.value.split('.');
    if name.value.split('.').count() > 3 || !parts.into_iter().all(is_name) {
        context
            .report
            .error(BAD_PROCEDURE, name.span, "this is no name of a procedure")
            .hint("write letters, digits and `_`, with the schema before it: `billing.close_day`");
    }
    let given = node.get("args").and_then(Node::as_mapping);
    let mut arguments = Vec::new();
    for entry in given.unwrap_or_default() {
        check_name(&entry.key, entry.key_span, context);
        arguments.push(entry.key.clone());
    }
    let procedure = Procedure {
        name: name.value.clone(),
        arguments,
        outs: read_outs(node, context),
    };
    let text = match drivers::of(database.dialect) {
        Some(driver) => driver.call(&procedure),
        None => Ok((
            format!("call {}", procedure.name),
            procedure.arguments.clone(),
        )),
    };
    let (text, names) = match text {
        Ok(made) => made,
        Err(why) => {
            context
                .report
                .error(
                    BAD_PROCEDURE,
                    name.span,
                    "the procedure cannot be called so",
                )
                .hint(why);
            return None;
        }
    };
    (context.problems() == before).then_some(Statement {
        text,
        names,
        procedure: Some(procedure),
        ..Statement::default()
    })
}

fn read_outs(node: &Node, context: &mut BuildContext<'_>) -> Vec<Out> {
    let Some(out) = node.get("out") else {
        return Vec::new();
    };
    let hint = "write `out: { total: \"decimal(12,2)\" }`, as the procedure declares it";
    let Some(entries) = out.as_mapping() else {
        let message = format!(
            "`out` is a mapping of names to types, not {}",
            out.type_name()
        );
        context
            .report
            .error(BAD_PROCEDURE, out.span, message)
            .hint(hint);
        return Vec::new();
    };
    let mut outs = Vec::new();
    for entry in entries {
        check_name(&entry.key, entry.key_span, context);
        context.compiled.push(entry.value.span);
        let sql_type = entry.value.as_str().unwrap_or_default();
        if !is_type(sql_type) {
            context
                .report
                .error(
                    BAD_PROCEDURE,
                    entry.value.span,
                    "this is no type of the database",
                )
                .hint(hint);
        }
        outs.push(Out {
            name: entry.key.clone(),
            sql_type: sql_type.to_owned(),
        });
    }
    outs
}

fn check_name(name: &str, span: config::Span, context: &mut BuildContext<'_>) {
    if !is_name(name) {
        context
            .report
            .error(BAD_PROCEDURE, span, "this is no name of a parameter")
            .hint("write it as the procedure declares it, without `@`");
    }
}

fn is_name(name: &str) -> bool {
    let begins = |it: char| it.is_alphabetic() || it == '_';
    name.starts_with(begins) && name.chars().all(|it| it.is_alphanumeric() || it == '_')
}

fn is_type(text: &str) -> bool {
    let is_fine =
        |it: char| it.is_alphanumeric() || matches!(it, '_' | '(' | ')' | ',' | ' ' | '.');
    text.starts_with(char::is_alphabetic) && text.len() <= TYPE_MAX && text.chars().all(is_fine)
}

/// The result of a call: what came out, and the rows of each result set.
pub(super) fn result(done: Done, sets: Vec<Vec<Value>>) -> Value {
    let sets = sets.into_iter().map(value::array);
    value::object([
        ("out".to_owned(), value::object(done.outs)),
        ("results".to_owned(), value::array(sets)),
    ])
}
