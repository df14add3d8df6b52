//! Header fields that flow files set or remove, checked when they are loaded.
//!
//! They are read from the YAML tree, which knows the place of each name and keeps the text of
//! numbers; [`FieldTexts`] only describes them to the schema.

use std::borrow::Cow;

use component::block::needs_body;
use component::definition::BuildContext;
use component::exchange::Exchange;
use component::handler::Services;
use config::{Entry, Node, Report, Span, Spanned, Value};
use expr::template::Template;
use message::{Fault, Field, Headers};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};

use crate::codes::{BAD_FIELD, RESERVED_FIELD};

/// A mapping of header names to texts, numbers or booleans, for the schema: it is read from the
/// tree.
#[derive(Debug)]
pub struct FieldTexts;

impl<'de> Deserialize<'de> for FieldTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

impl JsonSchema for FieldTexts {
    fn schema_name() -> Cow<'static, str> {
        "HeaderFields".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "additionalProperties": { "type": ["string", "number", "boolean"] }
        })
    }
}

/// Why a field belongs to the engine, and what to do instead.
pub(crate) type Reserved<'a> = &'a dyn Fn(Field) -> Option<&'static str>;

/// Fields that decide how a message is framed and passed on: only the engine writes them.
pub(crate) fn framing(field: Field) -> Option<&'static str> {
    match field {
        Field::Host => Some("the host that is sent is set by `host:` of `forward`"),
        Field::Expect => Some("the engine answers expectations itself"),
        field if field.is_framing() || field.is_hop_by_hop() => {
            Some("the engine writes it for each connection")
        }
        _ => None,
    }
}

/// Reads a mapping of names and values. Every problem is reported.
pub(crate) fn read_set(
    node: Option<&Node>,
    reserved: Reserved<'_>,
    report: &mut Report,
) -> Vec<(String, String)> {
    let mut lines: Vec<(String, String)> = Vec::new();
    for entry in node.and_then(Node::as_mapping).unwrap_or_default() {
        check_name(&entry.key, entry.key_span, reserved, report);
        if lines
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case(&entry.key))
        {
            refuse_twice(entry, report);
        }
        if let Some(text) = read_text(&entry.value, report) {
            lines.push((entry.key.clone(), text));
        }
    }
    lines
}

/// Header lines whose values may have `${ }` in them.
#[derive(Default)]
pub(crate) struct FieldTemplates(Vec<(String, Template)>);

/// Whether a text needs the body in memory.
pub(crate) fn reads_body(template: &Template) -> bool {
    needs_body(template.uses_input(), template.variables())
}

impl FieldTemplates {
    /// The names of the lines.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The lines for this message. One whose value is nothing but a `${ }` that gives null is left
    /// out.
    ///
    /// # Errors
    /// `invalid` for a value that cannot be sent in a header, and what an expression says that
    /// fails.
    pub fn make(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Vec<(String, String)>, Fault> {
        let mut lines = Vec::with_capacity(self.0.len());
        for (name, template) in &self.0 {
            let value = exchange.fill(template, services)?;
            if matches!(value, expr::Value::Null) {
                continue;
            }
            let Some(text) = expr::value::scalar_text(&value) else {
                let kind = expr::value::kind(&value);
                return Err(Fault::invalid(format!(
                    "the header {name} is a text, not {kind}"
                )));
            };
            if !Headers::is_value(text.as_bytes()) {
                let detail = format!("the header {name} cannot have this value");
                return Err(Fault::invalid(detail));
            }
            lines.push((name.clone(), text.into_owned()));
        }
        Ok(lines)
    }

    /// Whether a value needs the body in memory.
    pub fn reads_body(&self) -> bool {
        self.0.iter().any(|(_, template)| reads_body(template))
    }
}

/// Reads a mapping of names and values with `${ }` in them. Every problem is reported.
pub(crate) fn read_templates(
    node: Option<&Node>,
    reserved: Reserved<'_>,
    context: &mut BuildContext<'_>,
) -> FieldTemplates {
    let mut lines: Vec<(String, Template)> = Vec::new();
    for entry in node.and_then(Node::as_mapping).unwrap_or_default() {
        check_name(&entry.key, entry.key_span, reserved, context.report);
        if lines
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case(&entry.key))
        {
            refuse_twice(entry, context.report);
        }
        let has_holes = entry.value.as_str().is_some_and(Template::has_holes);
        let text = match has_holes {
            true => entry.value.as_str().map(str::to_owned),
            false => read_text(&entry.value, context.report),
        };
        let span = entry.value.span;
        let template = text.and_then(|value| context.template(&Spanned { value, span }));
        lines.extend(template.map(|template| (entry.key.clone(), template)));
    }
    FieldTemplates(lines)
}

fn refuse_twice(entry: &Entry, report: &mut Report) {
    let message = format!("the header `{}` stands twice", entry.key.escape_debug());
    report
        .error(BAD_FIELD, entry.key_span, message)
        .hint("names of headers are the same in capitals and small letters");
}

/// Reads a list of names. Every problem is reported.
pub(crate) fn read_remove(
    node: Option<&Node>,
    reserved: Reserved<'_>,
    report: &mut Report,
) -> Vec<String> {
    let items = node.and_then(Node::as_sequence).unwrap_or_default();
    let names = items
        .iter()
        .filter_map(|item| item.as_str().map(|name| (name, item.span)));
    names
        .map(|(name, span)| {
            check_name(name, span, reserved, report);
            name.to_owned()
        })
        .collect()
}

/// Checks the name of a field that a file sets or removes.
pub(crate) fn check_name(name: &str, span: Span, reserved: Reserved<'_>, report: &mut Report) {
    let shown = name.escape_debug();
    if !Headers::is_name(name) {
        report
            .error(BAD_FIELD, span, format!("`{shown}` is not a header name"))
            .hint("a name has letters, digits and `-`, without spaces or a colon");
    } else if let Some(reason) = reserved(Field::of(name.as_bytes())) {
        report
            .error(
                RESERVED_FIELD,
                span,
                format!("the header `{shown}` belongs to the engine"),
            )
            .hint(reason);
    }
}

/// The text of a value; its type has been checked against the schema.
fn read_text(node: &Node, report: &mut Report) -> Option<String> {
    let text = match &node.value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.text().to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Null | Value::Sequence(_) | Value::Mapping(_) => return None,
    };
    if Headers::is_value(text.as_bytes()) {
        return Some(text);
    }
    report
        .error(
            BAD_FIELD,
            node.span,
            "this value cannot be sent in a header",
        )
        .hint("a value is one line, without control characters and without white space around it");
    None
}
