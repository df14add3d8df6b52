//! The content of a message in whatever form it was last made: bytes off a connection, or a value
//! of an expression. The other form is made when somebody asks.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use expr::Value;
use expr::encoding::{self, NotText};
use expr::jq::{Expression, Limits};
use message::{Body, Fault, Field, Headers, HeadersView, Kind, Origin, Reply, Request};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::long_work::AT_ONCE;

/// The most levels of a body that is decoded.
const DEPTH_MAX: usize = 256;

const NULL: &Value = &Value::Null;

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Format {
    /// JSON: its value.
    Json,
    /// XML: an object with `@` for attributes and `#content` for text.
    Xml,
    /// `application/x-www-form-urlencoded`: an object.
    Form,
    /// CSV with a line of names: an array of objects.
    Csv,
    /// Text: a string.
    Text,
    /// Anything: bytes.
    Bytes,
}

/// What describes a content that steps have made.
#[derive(Debug, Default)]
pub struct ContentHead {
    /// Its `Content-Type`.
    pub content_type: Option<Bytes>,
    /// Its `Content-Encoding`.
    pub content_encoding: Option<Bytes>,
}

/// Fields with checksums of the body, wrong as soon as it changes (RFC 9530; RFC 2616, section
/// 14.15; RFC 3230).
const CHECKSUMS: [&str; 4] = ["Content-Digest", "Repr-Digest", "Content-MD5", "Digest"];

/// Whether a field describes the body, or is a checksum of it.
fn is_about_content(field: Field, name: &[u8]) -> bool {
    let is_name = |it: &&str| name.eq_ignore_ascii_case(it.as_bytes());
    match field {
        Field::ContentType | Field::ContentEncoding => true,
        Field::Other => CHECKSUMS.iter().any(is_name),
        _ => false,
    }
}

impl ContentHead {
    /// Writes it over what headers say of another content.
    pub fn put(&self, headers: &mut Headers) {
        headers.retain(|field, name| !is_about_content(field, name));
        if let Some(value) = &self.content_type {
            headers.append("Content-Type", value);
        }
        if let Some(value) = &self.content_encoding {
            headers.append("Content-Encoding", value);
        }
    }
}

/// The content of a message.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// The bytes; those of a value are not there before somebody asks.
    body: Option<Body>,
    /// The value; that of bytes is not there before somebody asks.
    value: Option<Value>,
    /// What describes it; absent for the content that came in, which the request's head describes.
    head: Option<Arc<ContentHead>>,
    /// The format of the bytes, when it does not go by the media type.
    format: Option<Format>,
    /// Whether another system has made it, and not whoever sent the message.
    is_foreign: bool,
}

impl Content {
    /// The content that a request came with.
    pub fn of_body(body: Body, format: Option<Format>) -> Self {
        Self {
            body: Some(body),
            value: None,
            head: None,
            format,
            is_foreign: false,
        }
    }

    /// A value. A text is `text/plain`, bytes are `application/octet-stream`, anything else but
    /// null is JSON.
    pub fn of_value(value: Value) -> Self {
        let media_type = match &value {
            Value::Null => None,
            Value::TStr(_) => Some("text/plain; charset=utf-8"),
            Value::BStr(_) => Some("application/octet-stream"),
            _ => Some("application/json"),
        };
        Self {
            body: None,
            value: Some(value),
            head: Some(known_head(media_type)),
            format: None,
            is_foreign: false,
        }
    }

    /// Bytes of this media type.
    pub fn of_bytes(body: impl Into<Body>, media_type: &str) -> Self {
        let head = ContentHead {
            content_type: Some(Bytes::copy_from_slice(media_type.as_bytes())),
            content_encoding: None,
        };
        Self {
            body: Some(body.into()),
            value: None,
            head: Some(Arc::new(head)),
            format: None,
            is_foreign: false,
        }
    }

    /// The content of a reply, with the fields that describe it.
    pub fn of_reply(reply: &Reply) -> Self {
        let field = |field| {
            let value = reply.headers.view().first(field)?;
            Some(Bytes::copy_from_slice(value))
        };
        let head = ContentHead {
            content_type: field(Field::ContentType),
            content_encoding: field(Field::ContentEncoding),
        };
        Self {
            body: Some(reply.body.clone()),
            value: None,
            head: Some(Arc::new(head)),
            format: None,
            is_foreign: false,
        }
    }

    /// The same content as one that another system has made.
    pub fn of_another(mut self) -> Self {
        self.is_foreign = true;
        self
    }

    /// The same content for whoever keeps it longer than its message, and bounds what is kept: it
    /// shares nothing with the bodies that it was made of, so that these are dropped with their
    /// messages, and what is reserved for them is given back. A large value is left out, and made
    /// anew of the bytes.
    pub fn detached(mut self) -> Self {
        if let Some(body) = self.body {
            let is_small = body.as_bytes().len() <= AT_ONCE;
            self.value = self.value.filter(|_| is_small).map(|it| owned(&it));
            self.body = Some(body.detached());
        }
        self
    }

    /// The same content read in this format, whatever its media type says.
    pub fn in_format(mut self, format: Option<Format>) -> Self {
        if format.is_some() {
            self.format = format;
            self.value = None;
        }
        self
    }

    /// What describes it; `None` for the content that came in.
    pub fn head(&self) -> Option<&ContentHead> {
        self.head.as_deref()
    }

    /// Whether it has not been read from its connection.
    pub fn is_unread(&self) -> bool {
        matches!(self.body, Some(Body::Unread))
    }

    /// The bytes that came, without making them of a value.
    pub fn raw(&self) -> Option<&[u8]> {
        self.body.as_ref().map(Body::as_bytes)
    }

    /// The same, to be shared.
    pub fn raw_body(&self) -> Option<&Body> {
        self.body.as_ref()
    }

    /// The value, when somebody has asked for it before; else null.
    pub fn decoded(&self) -> &Value {
        self.value.as_ref().unwrap_or(NULL)
    }

    /// The value. `headers` describe a content that came in.
    pub(crate) fn value(&mut self, headers: HeadersView<'_>) -> Result<&Value, Fault> {
        if self.value.is_none() {
            let value = self.decode(headers);
            self.value = Some(value.map_err(|fault| self.blame(fault))?);
        }
        Ok(self.decoded())
    }

    /// Whether there are more bytes to decode than a worker may do at one go.
    pub(crate) fn is_long_to_decode(&self) -> bool {
        self.value.is_none() && self.raw().is_some_and(|bytes| bytes.len() > AT_ONCE)
    }

    /// How many bytes are still to be decoded.
    pub(crate) fn undecoded(&self) -> usize {
        match self.value {
            Some(_) => 0,
            None => self.raw().map_or(0, <[u8]>::len),
        }
    }

    /// Decodes it somewhere else: what [`Content::value`] would give.
    pub(crate) fn decoder(
        &self,
        headers: HeadersView<'_>,
    ) -> impl FnOnce() -> Result<Value, Fault> + Send + 'static {
        let mut content = self.clone();
        if content.head.is_none() {
            let field = |field| headers.first(field).map(Bytes::copy_from_slice);
            content.head = Some(Arc::new(ContentHead {
                content_type: field(Field::ContentType),
                content_encoding: field(Field::ContentEncoding),
            }));
        }
        move || content.value(Headers::new().view()).cloned()
    }

    /// Takes what [`Content::decoder`] gave.
    pub(crate) fn set_decoded(&mut self, value: Value) {
        self.value = Some(value);
    }

    /// Writes it as bytes unless that is too much to do at one go. Otherwise, or when it fails,
    /// [`Content::body`] gives the result or the failure.
    pub(crate) fn encode_at_once(&mut self, size_max: usize) -> bool {
        if self.body.is_some() {
            return true;
        }
        let size_max_at_once = size_max.min(AT_ONCE);
        match encode(self.decoded(), size_max_at_once) {
            Ok(body) => {
                self.body = Some(body);
                true
            }
            Err(_) => size_max_at_once == size_max,
        }
    }

    /// Takes what [`Content::body`] of a copy gave.
    pub(crate) fn set_encoded(&mut self, body: Body) {
        self.body = Some(body);
    }

    /// What another system has made is not the fault of whoever sent the message.
    fn blame(&self, fault: Fault) -> Fault {
        if !self.is_foreign || fault.kind != Kind::Invalid {
            return fault;
        }
        let detail = "the upstream sent a reply body that cannot be read";
        Fault::new(Kind::Connection, Origin::Upstream, detail).with_cause(fault.detail)
    }

    /// The format of the bytes, their `Content-Encoding` and their `Content-Type`.
    fn described<'a>(
        &'a self,
        headers: HeadersView<'a>,
    ) -> (Format, Option<&'a [u8]>, Option<&'a [u8]>) {
        let (content_type, encoding) = match &self.head {
            Some(head) => (
                head.content_type.as_deref(),
                head.content_encoding.as_deref(),
            ),
            None => (
                headers.first(Field::ContentType),
                headers.first(Field::ContentEncoding),
            ),
        };
        let format = self.format.unwrap_or_else(|| format_of(content_type));
        (format, encoding, content_type)
    }

    /// The bytes of a JSON text that nobody has decoded yet.
    fn json_text(&self, headers: HeadersView<'_>) -> Option<&Bytes> {
        let Some(Body::Bytes(bytes)) = self.body.as_ref().filter(|_| self.value.is_none()) else {
            return None;
        };
        let (format, encoding, _) = self.described(headers);
        (format == Format::Json && encoding.is_none_or(is_identity)).then_some(bytes)
    }

    /// What an expression gives for a JSON text that nobody has decoded yet, where it only puts
    /// parts of it together: they are copied without making values of them.
    pub(crate) fn project(
        &self,
        expression: &Expression,
        limits: &Limits,
        headers: HeadersView<'_>,
    ) -> Option<Self> {
        let text = self.json_text(headers)?;
        let mut out = Vec::with_capacity(256);
        let done = expression.project(text, DEPTH_MAX, limits, &mut out);
        // A text or null is no JSON to whoever takes it; see `Content::of_value`.
        let is_json = matches!(out.first(), Some(b'{' | b'['));
        (done && is_json).then(|| Self {
            body: Some(Body::from(out)),
            value: None,
            head: Some(known_head(Some("application/json"))),
            format: None,
            is_foreign: false,
        })
    }

    fn decode(&self, headers: HeadersView<'_>) -> Result<Value, Fault> {
        let bytes = match &self.body {
            Some(Body::Bytes(bytes)) => bytes,
            Some(Body::Empty) | None => return Ok(Value::Null),
            Some(Body::Unread) => {
                return Err(Fault::expression("the body has not been read"));
            }
        };
        let (format, encoding, content_type) = self.described(headers);
        if format != Format::Bytes && !encoding.is_none_or(is_identity) {
            let detail = "a body with a Content-Encoding cannot be read";
            return Err(Fault::invalid(detail).with_status(415));
        }
        decode(bytes, format, content_type)
    }

    /// The request with this body and what describes the content.
    pub(crate) fn put_into(&self, mut request: Request, body: Body) -> Request {
        if let Some(head) = self.head() {
            head.put(&mut request.headers);
        }
        request.body = body;
        request
    }

    /// The bytes, at most `size_max` when they are made of a value.
    pub(crate) fn body(&mut self, size_max: usize) -> Result<Body, Fault> {
        if self.body.is_none() {
            self.body = Some(encode(self.decoded(), size_max)?);
        }
        Ok(self.body.clone().unwrap_or_default())
    }
}

/// A copy of a value whose texts are no parts of a body.
fn owned(value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Num(_) => value.clone(),
        Value::TStr(bytes) => Value::utf8_str(Bytes::copy_from_slice(bytes)),
        Value::BStr(bytes) => Value::byte_str(Bytes::copy_from_slice(bytes)),
        Value::Arr(items) => expr::value::array(items.iter().map(owned)),
        Value::Obj(members) => {
            let members = members.iter();
            Value::obj(
                members
                    .map(|(key, value)| (owned(key), owned(value)))
                    .collect(),
            )
        }
    }
}

fn known_head(media_type: Option<&'static str>) -> Arc<ContentHead> {
    Arc::new(ContentHead {
        content_type: media_type.map(|it| Bytes::from_static(it.as_bytes())),
        content_encoding: None,
    })
}

/// Reads a body of this format.
///
/// # Errors
/// `invalid` when it is not of that format.
pub fn decode(bytes: &Bytes, format: Format, content_type: Option<&[u8]>) -> Result<Value, Fault> {
    let invalid = |what: &str, error: String| Fault::invalid(format!("{what}: {error}"));
    match format {
        Format::Json => expr::json::parse(bytes, DEPTH_MAX)
            .map_err(|error| invalid("the body is not JSON", error.to_string())),
        Format::Xml => {
            let xml = xml_in_utf8(bytes, content_type)?;
            expr::format::from_xml(&xml, DEPTH_MAX)
                .map_err(|error| invalid("the body is not XML", error))
        }
        Format::Form => {
            expr::format::from_form(bytes).map_err(|error| invalid("the body is not a form", error))
        }
        Format::Csv => expr::format::from_csv(&text(bytes, content_type)?, true)
            .map_err(|error| invalid("the body is not CSV", error)),
        Format::Text => Ok(expr::value::text(text(bytes, content_type)?)),
        Format::Bytes => Ok(expr::value::bytes(bytes.clone())),
    }
}

/// The bytes of a value as [`Content::of_value`] describes them.
fn encode(value: &Value, size_max: usize) -> Result<Body, Fault> {
    match value {
        Value::Null => Ok(Body::Empty),
        Value::TStr(bytes) | Value::BStr(bytes) => Ok(Body::from(Bytes::clone(bytes))),
        value => {
            let mut out = Vec::with_capacity(256);
            expr::json::write(value, size_max, &mut out).map_err(Fault::expression)?;
            Ok(Body::from(out))
        }
    }
}

/// The format that a `Content-Type` stands for (RFC 9110, section 8.3; RFC 6839 for the suffixes).
pub fn format_of(content_type: Option<&[u8]>) -> Format {
    let essence = content_type
        .and_then(|it| it.split(|&byte| byte == b';').next())
        .map(<[u8]>::trim_ascii)
        .unwrap_or_default();
    let is = |text: &str| essence.eq_ignore_ascii_case(text.as_bytes());
    let ends = |suffix: &str| {
        let at = essence.len().saturating_sub(suffix.len());
        let end = essence.get(at..).unwrap_or_default();
        end.eq_ignore_ascii_case(suffix.as_bytes())
    };
    let begins = |prefix: &str| {
        let start = essence.get(..prefix.len()).unwrap_or_default();
        start.eq_ignore_ascii_case(prefix.as_bytes())
    };
    // As nearly everybody writes it: two comparisons of eight bytes.
    if essence == b"application/json" || is("application/json") || ends("+json") {
        Format::Json
    } else if is("application/xml") || is("text/xml") || ends("+xml") {
        Format::Xml
    } else if is("application/x-www-form-urlencoded") {
        Format::Form
    } else if begins("text/") {
        Format::Text
    } else {
        Format::Bytes
    }
}

/// The text of a body, in UTF-8 unless its `Content-Type` says otherwise.
fn text(bytes: &[u8], content_type: Option<&[u8]>) -> Result<String, Fault> {
    let text = encoding::to_text(bytes, content_type.and_then(charset));
    text.map(Cow::into_owned).map_err(not_text)
}

/// An XML document in UTF-8, whatever the charset of its media type and its declaration say.
///
/// # Errors
/// `invalid`: 415 when the encoding is not known, 400 when the bytes are not of it.
pub fn xml_in_utf8(xml: &Bytes, content_type: Option<&[u8]>) -> Result<Bytes, Fault> {
    encoding::xml_to_utf8(xml, content_type.and_then(charset)).map_err(not_text)
}

fn not_text(error: NotText) -> Fault {
    let fault = Fault::invalid(format!("the body cannot be read: {error}"));
    match error {
        NotText::Unknown(_) => fault.with_status(415),
        NotText::Malformed(_) => fault,
    }
}

/// The `charset` parameter of a media type (RFC 9110, section 8.3.2), in whatever case.
pub fn charset(content_type: &[u8]) -> Option<&str> {
    let parameters = content_type.split(|&byte| byte == b';').skip(1);
    let mut values = parameters.filter_map(|parameter| {
        let parameter = std::str::from_utf8(parameter).ok()?;
        let (name, value) = parameter.split_once('=')?;
        let is_charset = name.trim().eq_ignore_ascii_case("charset");
        is_charset.then(|| value.trim().trim_matches('"'))
    });
    values.next()
}

fn is_identity(encoding: &[u8]) -> bool {
    let encoding = encoding.trim_ascii();
    encoding.is_empty() || encoding.eq_ignore_ascii_case(b"identity")
}

#[cfg(test)]
mod tests {
    use message::memory::{Budget, Collected};

    use super::*;

    fn headers(content_type: &str) -> Headers {
        let mut headers = Headers::new();
        headers.append("Content-Type", content_type);
        headers
    }

    fn value(content_type: &str, body: &[u8]) -> Result<String, Fault> {
        let headers = headers(content_type);
        let mut content = Content::of_body(body.to_vec().into(), None);
        content.value(headers.view()).map(expr::value::shown)
    }

    #[test]
    fn a_body_is_read_by_its_media_type() {
        for (content_type, body, expected) in [
            ("application/json", "{\"a\": 1.50}", "{\"a\":1.50}"),
            ("application/problem+json; charset=utf-8", "[1]", "[1]"),
            (
                "text/xml",
                "<a x=\"1\">t</a>",
                "{\"a\":{\"@x\":\"1\",\"#content\":\"t\"}}",
            ),
            (
                "application/x-www-form-urlencoded",
                "a=1&b=x+y",
                "{\"a\":\"1\",\"b\":\"x y\"}",
            ),
            ("text/plain", "plain", "\"plain\""),
            ("application/json", "", "null"),
        ] {
            assert_eq!(
                value(content_type, body.as_bytes()).unwrap(),
                expected,
                "{content_type}"
            );
        }
        assert_eq!(
            value("text/plain; charset=ISO-8859-1", b"\xe9").unwrap(),
            "\"é\""
        );
    }

    #[test]
    fn what_cannot_be_read_is_the_clients_fault() {
        for (content_type, body, status) in [
            ("application/json", &b"{"[..], 400),
            ("text/xml", b"<a>", 400),
            ("text/plain", b"\xff", 400),
            ("text/plain; charset=klingon", b"a", 415),
        ] {
            let fault = value(content_type, body).unwrap_err();
            assert_eq!(
                (fault.name(), fault.status),
                ("invalid", status),
                "{content_type}"
            );
        }
    }

    #[test]
    fn a_value_is_written_by_its_kind() {
        let mut text = Content::of_value(expr::value::text("a"));
        assert_eq!(text.body(100).unwrap().as_bytes(), b"a");
        let mut list = Content::of_value(expr::value::array([expr::value::integer(1)]));
        assert_eq!(list.body(100).unwrap().as_bytes(), b"[1]");
        let head = list.head().unwrap();
        assert_eq!(head.content_type.as_deref(), Some(&b"application/json"[..]));
        assert!(list.clone().body(100).is_ok() && Content::of_value(Value::Null).head().is_some());
        let mut long = Content::of_value(expr::value::array([expr::value::text("long text")]));
        assert_eq!(long.body(5).unwrap_err().name(), "expression");
    }

    #[test]
    fn a_detached_content_holds_nothing_in_the_budget_of_bodies() {
        for (format, text) in [
            (
                Format::Json,
                format!("{{\"id\":[\"a\"],\"b\":\"{}\"}}", "x".repeat(200_000)),
            ),
            (
                Format::Json,
                format!("[{}\"a\"]", "\"xxx\",".repeat(100_000)),
            ),
            (Format::Text, "x".repeat(200_000)),
            (Format::Bytes, "x".repeat(200_000)),
        ] {
            let budget: &'static Budget = Box::leak(Box::new(Budget::new(1 << 30)));
            let mut body = Collected::new(budget);
            body.extend(text.as_bytes()).unwrap();
            let mut content = Content::of_body(Body::from(body.into_bytes()), Some(format));
            let none = Headers::new();
            let value = content.value(none.view()).unwrap().clone();
            assert!(budget.used() > 0);
            let mut kept = content.detached();
            // The content of an expression shares a part of the body, however short.
            let part = match &value {
                Value::Obj(_) => expr::value::get(&value, "id").unwrap().clone(),
                _ => value.clone(),
            };
            let mut part = Content::of_value(part);
            part.body(1 << 30).unwrap();
            let part = part.detached();
            let shown = expr::value::shown(&value);
            drop(value);
            assert_eq!(budget.used(), 0, "{format:?}");
            assert_eq!(kept.raw(), Some(text.as_bytes()));
            assert_eq!(expr::value::shown(kept.value(none.view()).unwrap()), shown);
            assert!(part.raw().is_some());
        }
    }
}
