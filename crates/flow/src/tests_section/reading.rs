//! The pieces that tests are made of: values, header fields, contents and conditions.

use bytes::Bytes;
use component::content::{Format, format_of};
use component::definition::compile_expression;
use component::scope::Scope;
use component::value_template::ValueTemplate;
use config::{Node, Report, SourceId, Span, Spanned, Value as Tree};
use expr::Value;
use expr::jq::Expression;
use message::Headers;

use super::names::Known;
use crate::codes::BAD_TEST;

/// The most bytes of a body that a test makes.
const BODY_MAX: usize = 64 * 1024 * 1024;

/// What a test is read with.
pub(super) struct Reading<'a> {
    pub report: &'a mut Report,
    /// Reads a file that a flow file names.
    pub files: &'a dyn Fn(SourceId, &str) -> Result<Bytes, String>,
    /// What the flow's tests may name.
    pub known: &'a Known,
    /// The names that mocks and values may use: those of every flow.
    pub scope: Scope,
    /// The names that conditions on the flow's end may use.
    pub names: Scope,
}

/// A header field, a parameter of a query or a name, with the value that it has or must have.
pub struct Field {
    /// Its name.
    pub name: String,
    /// Where its value stands.
    pub span: Span,
    /// The value; `None` when it must not be there.
    pub value: Option<ValueTemplate>,
}

/// The content of a message.
#[derive(Default)]
pub struct Payload {
    /// A value to be written; `None` when there is none.
    pub value: Option<ValueTemplate>,
    /// The bytes of a file, in place of a value.
    pub file: Option<Bytes>,
    /// The media type, when it does not go by the value.
    pub content_type: Option<String>,
}

/// The bytes of a value and its media type: a text as it is, anything else as JSON, or as XML or a
/// form when the media type says so.
///
/// # Errors
/// When the value cannot be written that way.
pub fn encode(value: &Value, media_type: Option<&str>) -> Result<(Bytes, Option<String>), String> {
    let given = |default: &str| Some(media_type.unwrap_or(default).to_owned());
    if let Value::TStr(bytes) | Value::BStr(bytes) = value {
        return Ok((Bytes::clone(bytes), given("text/plain; charset=utf-8")));
    }
    let written = match media_type.map(|it| format_of(Some(it.as_bytes()))) {
        _ if matches!(value, Value::Null) => return Ok((Bytes::new(), media_type.map(Into::into))),
        Some(Format::Xml) => expr::format::to_xml(value, BODY_MAX)?,
        Some(Format::Form) => expr::format::to_form(value, BODY_MAX)?,
        _ => {
            let mut out = Vec::new();
            expr::json::write(value, BODY_MAX, &mut out).map_err(|error| error.to_string())?;
            out
        }
    };
    Ok((written.into(), given("application/json")))
}

/// What stands under a key; null is as good as nothing.
pub(super) fn given<'n>(node: &'n Node, key: &str) -> Option<&'n Node> {
    node.get(key).filter(|it| !matches!(it.value, Tree::Null))
}

impl Reading<'_> {
    pub fn refuse(&mut self, span: Span, message: impl Into<String>, hint: &str) {
        let diagnostic = self.report.error(BAD_TEST, span, message);
        if !hint.is_empty() {
            diagnostic.hint(hint);
        }
    }

    /// The text of a string, number or boolean.
    pub fn text(&mut self, node: &Node) -> String {
        match &node.value {
            Tree::String(text) => text.clone(),
            Tree::Number(number) => number.text().to_owned(),
            Tree::Bool(value) => value.to_string(),
            _ => String::new(),
        }
    }

    /// A value that may have `${ }` in its texts.
    pub fn value(&mut self, node: &Node) -> Option<ValueTemplate> {
        ValueTemplate::read(node, &self.scope, self.report)
    }

    /// A value without `${ }`.
    pub fn fixed(&mut self, node: &Node) -> Option<Value> {
        match self.value(node)? {
            ValueTemplate::Fixed(value) => Some(value),
            _ => {
                let message = "no expression can stand here";
                self.refuse(node.span, message, "write the value itself");
                None
            }
        }
    }

    /// Names with values.
    pub fn fields(&mut self, node: Option<&Node>) -> Vec<Field> {
        let mut read = Vec::new();
        for entry in node.and_then(Node::as_mapping).unwrap_or_default() {
            let value = match &entry.value.value {
                Tree::Null => None,
                _ => self.value(&entry.value),
            };
            read.push(Field {
                name: entry.key.clone(),
                span: entry.value.span,
                value,
            });
        }
        read
    }

    /// Header fields.
    pub fn headers(&mut self, node: Option<&Node>) -> Vec<Field> {
        for entry in node.and_then(Node::as_mapping).unwrap_or_default() {
            if !Headers::is_name(&entry.key) {
                let message = format!("`{}` is no header name", entry.key.escape_debug());
                self.refuse(entry.key_span, message, "");
            }
        }
        self.fields(node)
    }

    /// The content that `body`, `file` and `content_type` say.
    pub fn payload(&mut self, node: &Node) -> Payload {
        let content_type = given(node, "content_type").map(|node| self.text(node));
        let body = given(node, "body");
        let value = body.and_then(|body| self.value(body));
        let Some(name) = given(node, "file") else {
            return Payload {
                value,
                file: None,
                content_type,
            };
        };
        let file = match node.entry("body") {
            Some(body) => {
                let message = "`body` beside `file`";
                self.refuse(body.key_span, message, "leave one of them out");
                None
            }
            None => self.file(name),
        };
        let by_name = media_type(name.as_str().unwrap_or_default()).to_owned();
        Payload {
            value: None,
            file,
            content_type: Some(content_type.unwrap_or(by_name)),
        }
    }

    /// The bytes of a file.
    pub fn file(&mut self, name: &Node) -> Option<Bytes> {
        let text = name.as_str().unwrap_or_default();
        match (self.files)(name.span.source, text) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                let message = format!("`{}` cannot be read: {error}", text.escape_debug());
                self.refuse(name.span, message, "");
                None
            }
        }
    }

    /// A condition on a request, or on the flow's end.
    pub fn condition(&mut self, node: &Node, at_end: bool) -> Option<Spanned<Expression>> {
        let text = node.as_str().unwrap_or_default();
        let scope = if at_end { &self.names } else { &self.scope };
        let value = compile_expression(text, node.span, scope, self.report)?;
        let span = node.span;
        Some(Spanned { value, span })
    }

    /// One condition or a list of them.
    pub fn conditions(&mut self, node: Option<&Node>, at_end: bool) -> Vec<Spanned<Expression>> {
        let Some(node) = node else {
            return Vec::new();
        };
        let one = std::slice::from_ref(node);
        let nodes = node.as_sequence().unwrap_or(one).iter();
        nodes
            .filter_map(|node| self.condition(node, at_end))
            .collect()
    }
}

/// The media type that the end of a file's name stands for.
fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "json" => "application/json",
        "xml" => "application/xml",
        "txt" => "text/plain; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_by_their_media_type() {
        let value = expr::value::object([("a".to_owned(), expr::value::integer(1))]);
        for (media_type, bytes, written_as) in [
            (None, "{\"a\":1}", "application/json"),
            (Some("application/xml"), "<a>1</a>", "application/xml"),
            (
                Some("application/x-www-form-urlencoded"),
                "a=1",
                "application/x-www-form-urlencoded",
            ),
        ] {
            let (found, found_type) = encode(&value, media_type).unwrap();
            assert_eq!(
                (&found[..], found_type.as_deref()),
                (bytes.as_bytes(), Some(written_as))
            );
        }
        let text = encode(&expr::value::text("a"), Some("application/xml")).unwrap();
        assert_eq!(
            (&text.0[..], text.1.as_deref()),
            (&b"a"[..], Some("application/xml"))
        );
        assert_eq!(encode(&Value::Null, None).unwrap(), (Bytes::new(), None));
        assert_eq!(media_type("./a.b/order.xml"), "application/xml");
    }
}
