//! `encode`: writes the body in a format, whatever it would be written as by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use component::content::Content;
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::long_work::{AT_ONCE, beside};
use component::step::{Next, Progress, Step};
use config::{Node, Report, Spanned, Value};
use expr::convert::{JsonToXml, Root};
use message::{Body, Fault, Reply};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::codes::BAD_FORMAT;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "encode",
    summary: "Writes the body as JSON, XML, CSV, a form, text, Base64 or gzip.",
    documentation: include_str!("encode.md"),
    example: include_str!("encode.yaml"),
    schema: config::schema_for::<Forms>,
    build,
};

/// Bytes of a body that are compressed on the worker: about a millisecond.
const COMPRESSED_AT_ONCE: usize = 64 * 1024;

/// The mapping form of `encode`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EncodeConfig {
    /// The format.
    to: To,
    /// For `xml`: the root element. The default is the only member of the body, or `<root>` if
    /// there is not exactly one element.
    root: Option<Spanned<String>>,
    /// For `xml`: whether the result begins with `<?xml version="1.0" encoding="UTF-8"?>`.
    #[schemars(extend("default" = false))]
    declaration: Option<Spanned<bool>>,
    /// For `csv`: whether rows that are objects are preceded by a line with the column names.
    #[schemars(extend("default" = true))]
    header: Option<Spanned<bool>>,
}

/// The format of a body that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum To {
    /// JSON, also of a text; `application/json`.
    Json,
    /// XML of an object; `application/xml`.
    Xml,
    /// A form of an object; `application/x-www-form-urlencoded`.
    Form,
    /// CSV of a list of objects or lists; `text/csv; charset=utf-8`.
    Csv,
    /// The text of a text, number or boolean; `text/plain; charset=utf-8`.
    Text,
    /// The bytes of the body as Base64; `text/plain; charset=utf-8`.
    Base64,
    /// The bytes of the body compressed; the media type stays, `Content-Encoding` is `gzip`.
    Gzip,
}

/// The short form or the mapping, for the schema alone.
struct Forms;

impl JsonSchema for Forms {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Encode".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mapping = generator.subschema_for::<EncodeConfig>();
        let format = generator.subschema_for::<To>();
        json_schema!({ "anyOf": [format, mapping] })
    }
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let report = &mut *context.report;
    let config = match &node.value {
        Value::Mapping(_) => config::decode(node, report)?,
        _ => EncodeConfig {
            to: config::decode(node, report)?,
            root: None,
            declaration: None,
            header: None,
        },
    };
    let before = report.diagnostics().len();
    refuse_options(node, config.to == To::Xml, &["root", "declaration"], report);
    refuse_options(node, config.to == To::Csv, &["header"], report);
    let mut xml = JsonToXml::default();
    if let Some(root) = &config.root {
        if !expr::convert::is_name(&root.value) {
            let message = format!("`{}` is not an element name", root.value.escape_debug());
            let diagnostic = report.error(BAD_FORMAT, root.span, message);
            diagnostic.hint("write a name such as `order`");
        }
        xml.root = Root::Named(root.value.clone());
    }
    xml.declaration = config.declaration.is_some_and(|it| it.value);
    (report.diagnostics().len() == before).then(|| {
        Box::new(Encode(Arc::new(Writing {
            to: config.to,
            xml,
            header: config.header.is_none_or(|it| it.value),
        }))) as Box<dyn Step>
    })
}

/// Refuses options of another format.
pub(crate) fn refuse_options(node: &Node, is_theirs: bool, names: &[&str], report: &mut Report) {
    for entry in names.iter().filter_map(|name| node.entry(name)) {
        if !is_theirs {
            let message = format!("the format has no option `{}`", entry.key);
            let diagnostic = report.error(BAD_FORMAT, entry.key_span, message);
            diagnostic.hint("leave it out");
        }
    }
}

/// The step.
struct Encode(Arc<Writing>);

/// How a content becomes bytes.
struct Writing {
    to: To,
    xml: JsonToXml,
    header: bool,
}

/// What is written: the value of the content, or its bytes.
enum Input {
    Value(expr::Value),
    Bytes(Body),
}

impl Writing {
    fn input(&self, exchange: &mut Exchange) -> Result<Input, Fault> {
        Ok(match self.to {
            To::Base64 | To::Gzip => Input::Bytes(exchange.body()?.0),
            _ => Input::Value(exchange.value()?.clone()),
        })
    }

    /// The bytes, at most so many, and their media type.
    fn write(&self, input: &Input, size_max: usize) -> Result<(Vec<u8>, &'static str), Fault> {
        let value = match input {
            Input::Value(value) => value,
            Input::Bytes(body) => {
                use base64::Engine as _;
                let bytes = body.as_bytes();
                if bytes.len().div_ceil(3).saturating_mul(4) > size_max {
                    return Err(too_large());
                }
                let text = base64::engine::general_purpose::STANDARD.encode(bytes);
                return Ok((text.into_bytes(), "text/plain; charset=utf-8"));
            }
        };
        let (bytes, media_type) = match self.to {
            To::Xml => {
                let json = json(value, size_max)?;
                let (mut xml, mut out) = (self.xml.clone(), Vec::new());
                xml.output_max = size_max;
                xml.convert(&json, &mut out).map_err(Fault::expression)?;
                (out, "application/xml")
            }
            To::Form => {
                let form = expr::format::to_form(value, size_max);
                let form = form.map_err(Fault::expression)?;
                (form, "application/x-www-form-urlencoded")
            }
            To::Csv => {
                let csv = expr::format::to_csv(value, self.header, size_max);
                let csv = csv.map_err(Fault::expression)?;
                (csv.into_bytes(), "text/csv; charset=utf-8")
            }
            To::Text => {
                let text = expr::value::scalar_text(value).ok_or_else(|| {
                    let kind = expr::value::kind(value);
                    Fault::expression(format_args!("a text is needed, not {kind}"))
                })?;
                if text.len() > size_max {
                    return Err(too_large());
                }
                let text = text.into_owned().into_bytes();
                (text, "text/plain; charset=utf-8")
            }
            To::Json | To::Base64 | To::Gzip => (json(value, size_max)?, "application/json"),
        };
        match bytes.len() > size_max {
            true => Err(too_large()),
            false => Ok((bytes, media_type)),
        }
    }
}

fn too_large() -> Fault {
    Fault::expression("the body is too large")
}

impl Encode {
    fn encode<'a>(&self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        let input = match self.0.input(exchange) {
            Ok(input) => input,
            Err(fault) => return Progress::Done(Err(fault)),
        };
        let size_max = exchange.context.body_max;
        match self.0.write(&input, size_max.min(AT_ONCE)) {
            Ok((bytes, media_type)) => {
                exchange.content = Content::of_bytes(bytes, media_type);
                return Progress::Done(Ok(Next::Continue));
            }
            Err(fault) if size_max <= AT_ONCE => return Progress::Done(Err(fault)),
            // The beginning was too long for the worker, or the failure comes again.
            Err(_) => {}
        }
        let writing = Arc::clone(&self.0);
        Progress::Waits(Box::pin(async move {
            let write = move |_: &_| writing.write(&input, size_max);
            let (bytes, media_type) = beside(services, write).await??;
            exchange.content = Content::of_bytes(bytes, media_type);
            Ok(Next::Continue)
        }))
    }
}

fn json(value: &expr::Value, size_max: usize) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::with_capacity(256);
    expr::json::write(value, size_max, &mut out).map_err(Fault::expression)?;
    Ok(out)
}

/// Compresses the body.
async fn gzip(exchange: &mut Exchange, services: &dyn Services) -> Result<Next, Fault> {
    let (body, content_type) = exchange.preemptible(services, Exchange::body).await?;
    let encoding = exchange.content_encoding();
    let length = body.as_bytes().len();
    let compress = move |stop: &AtomicBool| {
        use std::io::Write as _;
        let level = flate2::Compression::default();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
        for piece in body.as_bytes().chunks(AT_ONCE) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            encoder.write_all(piece)?;
        }
        encoder.finish()
    };
    let bytes = match length < COMPRESSED_AT_ONCE {
        true => compress(&AtomicBool::new(false)),
        false => beside(services, compress).await?,
    };
    let bytes = bytes.map_err(Fault::expression)?;
    let mut reply = Reply::new(200);
    reply.body = bytes.into();
    if let Some(content_type) = content_type {
        reply.headers.append("Content-Type", content_type);
    }
    // The codings in the order in which they were applied (RFC 9110, section 8.4).
    let mut codings = encoding.map(|it| it.to_vec()).unwrap_or_default();
    if !codings.is_empty() {
        codings.extend(b", ");
    }
    codings.extend(b"gzip");
    reply.headers.append("Content-Encoding", codings);
    exchange.content = Content::of_reply(&reply);
    Ok(Next::Continue)
}

impl Step for Encode {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        match self.0.to {
            To::Gzip => Progress::Waits(Box::pin(gzip(exchange, services))),
            _ => self.encode(exchange, services),
        }
    }
}

#[cfg(test)]
mod tests;
