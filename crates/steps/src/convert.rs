//! `convert`: turns a JSON body into XML or the other way round. The conversion itself is `expr`'s;
//! this file checks its options and says what a failure means to the client.

use std::sync::Arc;

use bytes::Bytes;
use component::content::{Content, charset, xml_in_utf8};
use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::long_work::{AT_ONCE, beside};
use component::step::{Next, Progress, Step};
use config::{Node, Report, Spanned};
use expr::convert::{ConvertError, ConvertErrorKind, JsonToXml, Root, XmlRoot, XmlToJson};
use message::{Body, Fault};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::{BAD_CONVERSION_OPTION, UNKNOWN_CONVERSION};

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "convert",
    summary: "Converts the body between JSON and XML.",
    documentation: include_str!("convert.md"),
    example: include_str!("convert.yaml"),
    schema: config::schema_for::<ConvertConfig>,
    build,
};

/// How much longer than the largest body that is taken the converted one may be.
const GROWTH_MAX: u64 = 16;

/// The largest body in flows that no request starts.
const BODY_MAX: u64 = 64 << 20;

/// The formats and the options of the conversion.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ConvertConfig {
    /// The format of the body: `json` or `xml`.
    from: Spanned<String>,
    /// The format to make of it: `xml` or `json`.
    to: Spanned<String>,
    /// To XML: `auto` (the default) wraps the result into `<root>` where XML needs one element,
    /// any other name always wraps it into that element. To JSON: `keep` (the default) makes the
    /// root element the one member of the result, `drop` makes its content the result.
    root: Option<Spanned<String>>,
    /// To XML: the element name for entries of an array that is inside another array or at the top
    /// level.
    #[schemars(extend("default" = "item"))]
    item: Option<Spanned<String>>,
    /// The prefix of members that are attributes in XML.
    #[schemars(extend("default" = "@"))]
    attribute_prefix: Option<Spanned<String>>,
    /// The name of the member with the text of an element that has attributes or children.
    #[schemars(extend("default" = "#content"))]
    text_key: Option<Spanned<String>>,
    /// To XML: whether the result begins with `<?xml version="1.0" encoding="UTF-8"?>`.
    #[schemars(extend("default" = false))]
    declaration: Option<Spanned<bool>>,
    /// To JSON: names of elements that always become arrays, even if there is only one.
    arrays: Option<Spanned<Vec<String>>>,
    /// To JSON: whether text that is a JSON number, `true` or `false` becomes such a value.
    #[schemars(extend("default" = false))]
    numbers: Option<Spanned<bool>>,
    /// The maximum nesting depth, from 1 to 512.
    #[schemars(extend("default" = 128))]
    depth_max: Option<Spanned<usize>>,
}

/// A conversion that is ready to run.
enum Conversion {
    JsonToXml(JsonToXml),
    XmlToJson(XmlToJson),
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let report = &mut *context.report;
    let config: ConvertConfig = config::decode(node, report)?;
    let before = report.diagnostics().len();
    // A flow without a trigger of its own has the engine's limit for bodies; it is not known here.
    let output_max = context
        .trigger
        .map_or(BODY_MAX, |trigger| trigger.body_max)
        .saturating_mul(GROWTH_MAX);
    let output_max = usize::try_from(output_max).unwrap_or(usize::MAX);
    check_common(&config, report);
    let conversion = match (config.from.value.as_str(), config.to.value.as_str()) {
        ("json", "xml") => {
            refuse_options("to XML", &to_json_only(&config, node), report);
            Conversion::JsonToXml(json_to_xml(config, output_max, report))
        }
        ("xml", "json") => {
            refuse_options("to JSON", &to_xml_only(&config, node), report);
            Conversion::XmlToJson(xml_to_json(config, output_max, report))
        }
        (from, to) => {
            refuse_pair(&config, from, to, report);
            return None;
        }
    };
    (report.diagnostics().len() == before)
        .then(|| Box::new(Convert::new(conversion)) as Box<dyn Step>)
}

fn refuse_pair(config: &ConvertConfig, from: &str, to: &str, report: &mut Report) {
    let (from, to) = (from.escape_debug(), to.escape_debug());
    report
        .error(
            UNKNOWN_CONVERSION,
            config.from.span,
            format!("no conversion from `{from}` to `{to}`"),
        )
        .also(config.to.span, "to this")
        .hint("there are `from: json, to: xml` and `from: xml, to: json`");
}

/// Options that both directions have.
fn check_common(config: &ConvertConfig, report: &mut Report) {
    for (name, text) in [
        ("attribute_prefix", &config.attribute_prefix),
        ("text_key", &config.text_key),
    ] {
        if let Some(text) = text.as_ref().filter(|text| text.value.trim().is_empty()) {
            report
                .error(
                    BAD_CONVERSION_OPTION,
                    text.span,
                    format!("`{name}` is empty"),
                )
                .hint("write at least one character that no name in the data begins with");
        }
    }
    if let Some(depth) = config
        .depth_max
        .as_ref()
        .filter(|depth| !(1..=512).contains(&depth.value))
    {
        report
            .error(
                BAD_CONVERSION_OPTION,
                depth.span,
                "`depth_max` is outside its range",
            )
            .hint("from 1 to 512");
    }
}

type OptionPlace<'a> = (&'static str, Option<&'a Node>);

fn to_json_only<'a>(config: &ConvertConfig, node: &'a Node) -> [OptionPlace<'a>; 2] {
    let place = |given: bool, name| (name, node.get(name).filter(|_| given));
    [
        place(config.arrays.is_some(), "arrays"),
        place(config.numbers.is_some(), "numbers"),
    ]
}

fn to_xml_only<'a>(config: &ConvertConfig, node: &'a Node) -> [OptionPlace<'a>; 2] {
    let place = |given: bool, name| (name, node.get(name).filter(|_| given));
    [
        place(config.item.is_some(), "item"),
        place(config.declaration.is_some(), "declaration"),
    ]
}

fn refuse_options(direction: &str, options: &[OptionPlace<'_>], report: &mut Report) {
    for (name, node) in options {
        if let Some(node) = node {
            let message = format!("a conversion {direction} has no option `{name}`");
            report
                .error(BAD_CONVERSION_OPTION, node.span, message)
                .hint("leave it out");
        }
    }
}

fn element_name(name: &str, text: &Spanned<String>, report: &mut Report) -> String {
    if !expr::convert::is_name(&text.value) {
        let shown = text.value.escape_debug();
        report
            .error(
                BAD_CONVERSION_OPTION,
                text.span,
                format!("`{shown}` is not an element name"),
            )
            .hint(format!("`{name}` is a name such as `order`"));
    }
    text.value.clone()
}

fn json_to_xml(config: ConvertConfig, output_max: usize, report: &mut Report) -> JsonToXml {
    let mut conversion = JsonToXml {
        output_max,
        ..JsonToXml::default()
    };
    if let Some(root) = config.root.filter(|root| root.value != "auto") {
        conversion.root = Root::Named(element_name("root", &root, report));
    }
    if let Some(item) = &config.item {
        conversion.item = element_name("item", item, report);
    }
    set(&mut conversion.attribute_prefix, config.attribute_prefix);
    set(&mut conversion.text_key, config.text_key);
    set(&mut conversion.declaration, config.declaration);
    set(&mut conversion.depth_max, config.depth_max);
    conversion
}

fn xml_to_json(config: ConvertConfig, output_max: usize, report: &mut Report) -> XmlToJson {
    let mut conversion = XmlToJson {
        output_max,
        ..XmlToJson::default()
    };
    if let Some(root) = &config.root {
        match root.value.as_str() {
            "keep" => conversion.root = XmlRoot::Keep,
            "drop" => conversion.root = XmlRoot::Drop,
            other => {
                let message = format!("`{}` is not a `root` of JSON", other.escape_debug());
                report
                    .error(BAD_CONVERSION_OPTION, root.span, message)
                    .hint("write `keep` or `drop`");
            }
        }
    }
    set(&mut conversion.arrays, config.arrays);
    set(&mut conversion.numbers, config.numbers);
    set(&mut conversion.attribute_prefix, config.attribute_prefix);
    set(&mut conversion.text_key, config.text_key);
    set(&mut conversion.depth_max, config.depth_max);
    conversion
}

fn set<T>(place: &mut T, value: Option<Spanned<T>>) {
    if let Some(value) = value {
        *place = value.value;
    }
}

/// The step.
struct Convert {
    conversion: Arc<Conversion>,
    /// The same with a short output, for the worker.
    at_once: Conversion,
}

impl Conversion {
    fn convert(&self, input: &Bytes, content_type: Option<&[u8]>) -> Result<Content, Failure> {
        let mut output = Vec::new();
        let media_type = match self {
            Self::JsonToXml(to_xml) => {
                to_xml.convert(input, &mut output)?;
                "application/xml"
            }
            Self::XmlToJson(to_json) => {
                let input = xml_in_utf8(input, content_type).map_err(Failure::Encoding)?;
                to_json.convert(&input, &mut output)?;
                "application/json"
            }
        };
        Ok(Content::of_bytes(output, media_type))
    }

    fn output_max(&self) -> usize {
        match self {
            Self::JsonToXml(to_xml) => to_xml.output_max,
            Self::XmlToJson(to_json) => to_json.output_max,
        }
    }

    /// The same with an output of at most so many bytes.
    fn up_to(&self, bytes: usize) -> Self {
        match self {
            Self::JsonToXml(to_xml) => Self::JsonToXml(JsonToXml {
                output_max: to_xml.output_max.min(bytes),
                ..to_xml.clone()
            }),
            Self::XmlToJson(to_json) => Self::XmlToJson(XmlToJson {
                output_max: to_json.output_max.min(bytes),
                ..to_json.clone()
            }),
        }
    }
}

impl Convert {
    fn new(conversion: Conversion) -> Self {
        Self {
            at_once: conversion.up_to(AT_ONCE),
            conversion: Arc::new(conversion),
        }
    }

    /// The content, unless it takes too long on the worker.
    fn convert(
        &self,
        input: &Bytes,
        content_type: Option<&[u8]>,
    ) -> Option<Result<Content, Fault>> {
        if input.len() > AT_ONCE {
            return None;
        }
        let is_cut = self.at_once.output_max() < self.conversion.output_max();
        match self.at_once.convert(input, content_type) {
            Ok(content) => Some(Ok(content)),
            Err(failure) if is_cut && failure.is_too_large() => None,
            Err(failure) => Some(Err(failure.fault())),
        }
    }
}

impl Step for Convert {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        let body = check_coding(exchange, &self.conversion).and_then(|()| exchange.body());
        let (body, content_type) = match body {
            Ok((Body::Bytes(body), content_type)) => (body, content_type),
            Ok(_) => return Progress::Done(Err(Fault::invalid("the body is empty"))),
            Err(fault) => return Progress::Done(Err(fault)),
        };
        if let Some(converted) = self.convert(&body, content_type.as_deref()) {
            return Progress::Done(converted.map(|content| {
                exchange.content = content;
                Next::Continue
            }));
        }
        let conversion = Arc::clone(&self.conversion);
        Progress::Waits(Box::pin(async move {
            let convert = move |_: &_| conversion.convert(&body, content_type.as_deref());
            let converted = beside(services, convert).await?;
            exchange.content = converted.map_err(Failure::fault)?;
            Ok(Next::Continue)
        }))
    }
}

/// Why a body is not converted.
enum Failure {
    /// It cannot be read in its encoding.
    Encoding(Fault),
    /// It has no counterpart in the other format.
    Conversion(ConvertError),
}

impl From<ConvertError> for Failure {
    fn from(error: ConvertError) -> Self {
        Self::Conversion(error)
    }
}

impl Failure {
    fn is_too_large(&self) -> bool {
        matches!(self, Self::Conversion(error) if error.kind == ConvertErrorKind::TooLarge)
    }

    /// What it means to whoever sent the body.
    fn fault(self) -> Fault {
        let error = match self {
            Self::Encoding(fault) => return fault,
            Self::Conversion(error) => error,
        };
        let status = match error.kind {
            ConvertErrorKind::Syntax => 400,
            ConvertErrorKind::TooLarge => 413,
            ConvertErrorKind::Stopped => 503,
            ConvertErrorKind::Unmappable
            | ConvertErrorKind::TooDeep
            | ConvertErrorKind::Forbidden => 422,
        };
        Fault::invalid(error.to_string()).with_status(status)
    }
}

/// Refuses a compressed body, and JSON in an encoding other than UTF-8, which `us-ascii` is a part
/// of (RFC 9110, section 15.5.16; RFC 8259, section 8.1).
fn check_coding(exchange: &Exchange, conversion: &Conversion) -> Result<(), Fault> {
    if !exchange
        .content_encoding()
        .is_none_or(|value| is_identity(&value))
    {
        let detail = "a body with a Content-Encoding cannot be converted";
        return Err(Fault::invalid(detail).with_status(415));
    }
    let is_json = matches!(conversion, Conversion::JsonToXml(_));
    if is_json && !exchange.content_type().is_none_or(|value| is_utf8(&value)) {
        let detail = "JSON whose charset is not UTF-8 cannot be converted";
        return Err(Fault::invalid(detail).with_status(415));
    }
    Ok(())
}

fn is_identity(value: &[u8]) -> bool {
    value
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity"))
}

/// Whether a `Content-Type` names no charset, or one that is UTF-8.
fn is_utf8(content_type: &[u8]) -> bool {
    charset(content_type).is_none_or(|it| {
        let mut known = ["utf-8", "utf8", "us-ascii"].iter();
        known.any(|known| it.eq_ignore_ascii_case(known))
    })
}

#[cfg(test)]
mod tests;
