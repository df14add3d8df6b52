//! `decode`: reads the body as a format, whatever its media type says.

use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use component::content::{self, Content, Format};
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::long_work::{AT_ONCE, beside};
use component::step::{Next, Progress, Step};
use config::{ByteSize, Node, Spanned};
use expr::Value;
use message::{Body, Fault, Reply};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::encode::refuse_options;
use crate::range;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "decode",
    summary: "Reads the body as a given format.",
    documentation: include_str!("decode.md"),
    example: include_str!("decode.yaml"),
    schema: config::schema_for::<Forms>,
    build,
};

/// How many fields a body of CSV or a form may have: each takes many times its bytes.
const FIELDS_MAX: usize = 1_000_000;
/// The same for the fields of a form, which are compared with each other.
const FORM_FIELDS_MAX: usize = 10_000;

/// The mapping form of `decode`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DecodeConfig {
    /// The format.
    from: Source,
    /// For `csv`: whether the first line contains the column names. If not, each line becomes a
    /// list.
    #[schemars(extend("default" = true))]
    header: Option<Spanned<bool>>,
    /// For `gzip`: the largest decompressed size, from `1B` to `1GiB`.
    #[schemars(extend("default" = "64MiB"))]
    max: Option<Spanned<ByteSize>>,
}

/// The format of a body that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Source {
    /// JSON: its value.
    Json,
    /// XML: an object with `@` for attributes and `#content` for text.
    Xml,
    /// `application/x-www-form-urlencoded`: an object.
    Form,
    /// CSV: a list.
    Csv,
    /// Text: a string.
    Text,
    /// Anything: bytes.
    Bytes,
    /// Base64: bytes.
    Base64,
    /// Compressed bytes: what they were made of, with the media type that they have.
    Gzip,
}

/// The short form or the mapping, for the schema alone.
struct Forms;

impl JsonSchema for Forms {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Decode".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mapping = generator.subschema_for::<DecodeConfig>();
        let format = generator.subschema_for::<Source>();
        json_schema!({ "anyOf": [format, mapping] })
    }
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let report = &mut *context.report;
    let config = match &node.value {
        config::Value::Mapping(_) => config::decode(node, report)?,
        _ => DecodeConfig {
            from: config::decode(node, report)?,
            header: None,
            max: None,
        },
    };
    let before = report.diagnostics().len();
    refuse_options(node, config.from == Source::Csv, &["header"], report);
    refuse_options(node, config.from == Source::Gzip, &["max"], report);
    let max = range::size("max", config.max.as_ref(), range::ONE, 64 << 20, report);
    (report.diagnostics().len() == before).then(|| {
        let reading = Reading {
            from: config.from,
            header: config.header.is_none_or(|it| it.value),
        };
        Box::new(Decode { reading, max }) as Box<dyn Step>
    })
}

/// The step.
struct Decode {
    reading: Reading,
    max: usize,
}

/// How bytes become a value.
#[derive(Clone, Copy)]
struct Reading {
    from: Source,
    header: bool,
}

impl Decode {
    /// The bytes that are decoded, and their media type.
    fn input(&self, exchange: &mut Exchange) -> Result<(Bytes, Option<Bytes>), Fault> {
        let (body, content_type) = exchange.body()?;
        let bytes = match body {
            Body::Bytes(bytes) => bytes,
            Body::Empty | Body::Unread => Bytes::new(),
        };
        let encoding = exchange.content_encoding().unwrap_or_default();
        if self.reading.from != Source::Bytes && codings(&encoding).next().is_some() {
            let detail = "a body with a Content-Encoding cannot be read";
            return Err(Fault::invalid(detail).with_status(415));
        }
        Ok((bytes, content_type))
    }

    fn decode<'a>(&self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        let (bytes, content_type) = match self.input(exchange) {
            Ok(input) => input,
            Err(fault) => return Progress::Done(Err(fault)),
        };
        let reading = self.reading;
        let is_short = bytes.len() <= AT_ONCE || matches!(reading.from, Source::Bytes);
        if is_short {
            return Progress::Done(reading.read(&bytes, content_type.as_deref()).map(|value| {
                exchange.set_value(value);
                Next::Continue
            }));
        }
        Progress::Waits(Box::pin(async move {
            let read = move |_: &_| reading.read(&bytes, content_type.as_deref());
            exchange.set_large_value(beside(services, read).await??);
            Ok(Next::Continue)
        }))
    }
}

impl Reading {
    /// The value of these bytes.
    fn read(self, bytes: &Bytes, content_type: Option<&[u8]>) -> Result<Value, Fault> {
        Ok(match self.from {
            Source::Json => content::decode(bytes, Format::Json, content_type)?,
            Source::Xml => content::decode(bytes, Format::Xml, content_type)?,
            Source::Form => {
                bound(bytes, b"&", FORM_FIELDS_MAX)?;
                content::decode(bytes, Format::Form, content_type)?
            }
            Source::Csv => {
                bound(bytes, b",\n\r", FIELDS_MAX)?;
                let text = content::decode(bytes, Format::Text, content_type)?;
                let text = expr::value::as_text(&text).unwrap_or_default();
                expr::format::from_csv(text, self.header)
                    .map_err(|error| Fault::invalid(format!("the body is not CSV: {error}")))?
            }
            Source::Text => content::decode(bytes, Format::Text, content_type)?,
            Source::Base64 => expr::value::bytes(base64(bytes)?),
            Source::Bytes | Source::Gzip => expr::value::bytes(bytes.clone()),
        })
    }
}

impl Decode {
    async fn gunzip(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Next, Fault> {
        let (body, content_type) = exchange.preemptible(services, Exchange::body).await?;
        let encoding = exchange.content_encoding().unwrap_or_default();
        let mut codings: Vec<&[u8]> = codings(&encoding).collect();
        let last = codings.pop().unwrap_or(b"gzip");
        if ![&b"gzip"[..], b"x-gzip"]
            .iter()
            .any(|it| last.eq_ignore_ascii_case(it))
        {
            let detail = "the Content-Encoding of the body is not gzip";
            return Err(Fault::invalid(detail).with_status(415));
        }
        let max = self.max;
        // A short body can stand for a very long one, and a long one for nothing.
        let is_short = body.as_bytes().len() <= AT_ONCE;
        let tried = match is_short {
            true => inflate(body.as_bytes(), max.min(AT_ONCE), &AtomicBool::new(false))?,
            false => None,
        };
        let bytes = match tried {
            Some(bytes) => bytes,
            None if is_short && max <= AT_ONCE => return Err(too_large()),
            None => {
                let inflate = move |stop: &_| inflate(body.as_bytes(), max, stop);
                beside(services, inflate).await??.ok_or_else(too_large)?
            }
        };
        let mut reply = Reply::new(200);
        reply.body = bytes.into();
        if let Some(content_type) = content_type {
            reply.headers.append("Content-Type", content_type);
        }
        if !codings.is_empty() {
            reply
                .headers
                .append("Content-Encoding", codings.join(&b", "[..]));
        }
        exchange.content = Content::of_reply(&reply).in_format(exchange.context.decode);
        Ok(Next::Continue)
    }
}

/// The names in a `Content-Encoding`, but for `identity`.
fn codings(encoding: &[u8]) -> impl Iterator<Item = &[u8]> {
    let codings = encoding.split(|&byte| byte == b',');
    codings
        .map(<[u8]>::trim_ascii)
        .filter(|it| !it.is_empty() && !it.eq_ignore_ascii_case(b"identity"))
}

/// Refuses a body with too many fields, which would take far more memory than it has bytes.
fn bound(bytes: &[u8], ends: &[u8], max: usize) -> Result<(), Fault> {
    let fields = bytes.iter().filter(|byte| ends.contains(byte)).count();
    match fields > max {
        true => Err(Fault::invalid("the body has too many fields").with_status(413)),
        false => Ok(()),
    }
}

/// The bytes of Base64 (RFC 4648), with or without padding, in lines or not.
fn base64(bytes: &[u8]) -> Result<Bytes, Fault> {
    use base64::Engine as _;
    use base64::alphabet::STANDARD;
    use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
    let config = GeneralPurposeConfig::new();
    let config = config.with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let text: Vec<u8> = bytes
        .iter()
        .copied()
        .filter(|it| !it.is_ascii_whitespace())
        .collect();
    match GeneralPurpose::new(&STANDARD, config).decode(text) {
        Ok(bytes) => Ok(bytes.into()),
        Err(error) => Err(Fault::invalid(format!("the body is not Base64: {error}"))),
    }
}

/// What gzip was made of (RFC 1952), as long as it has at most so many bytes and nobody says stop.
fn inflate(bytes: &[u8], max: usize, stop: &AtomicBool) -> Result<Option<Vec<u8>>, Fault> {
    let mut out = Vec::new();
    let limit = max.saturating_add(1);
    let mut decoder = flate2::read::MultiGzDecoder::new(bytes);
    while out.len() < limit && !stop.load(Ordering::Relaxed) {
        let piece = limit.saturating_sub(out.len()).min(AT_ONCE);
        let piece = u64::try_from(piece).unwrap_or(u64::MAX);
        match decoder.by_ref().take(piece).read_to_end(&mut out) {
            Ok(0) => return Ok(Some(out)),
            Ok(_) => {}
            Err(error) => {
                return Err(Fault::invalid(format!("the body is not gzip: {error}")));
            }
        }
    }
    Ok(None)
}

fn too_large() -> Fault {
    Fault::invalid("the body is too large when it is unpacked").with_status(413)
}

impl Step for Decode {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        match self.reading.from {
            Source::Gzip => Progress::Waits(Box::pin(self.gunzip(exchange, services))),
            _ => self.decode(exchange, services),
        }
    }
}

#[cfg(test)]
mod tests;
