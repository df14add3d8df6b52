//! `validate`: checks the body against a JSON Schema that is compiled when the flow is loaded.

mod check;
mod metered;

use std::sync::Arc;

use component::definition::{BuildContext, StepDefinition};
use component::exchange::Exchange;
use component::handler::Services;
use component::long_work::{AT_ONCE, note_long_piece, takes_turns, yield_now};
use component::step::{Next, Progress, Step};
use config::{Node, Span, Spanned, Value};
use jsonschema::{PatternOptions, Validator};
use message::Fault;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;

use self::check::{Schema, Slice, error_text};
use self::metered::MeteredJson;
use crate::codes::{BAD_FILE, BAD_SCHEMA};
use crate::range;
use config::AnyValue;

/// The definition of the step.
pub const DEFINITION: StepDefinition = StepDefinition {
    name: "validate",
    summary: "Validates the body against a JSON Schema.",
    documentation: include_str!("validate.md"),
    example: include_str!("validate.yaml"),
    schema: config::schema_for::<ValidateConfig>,
    build,
};

/// The most levels of a body; one that is decoded has fewer.
const DEPTH_MAX: usize = 512;
/// How often a pattern with look-around or back-references may be tried at a text.
const BACKTRACKS_MAX: usize = 100_000;

/// A schema, and how much is said about what does not fit it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ValidateConfig {
    /// The JSON Schema: the path of a JSON file, relative to the flow file, or the schema itself.
    /// Draft 4, 6, 7, 2019-09 or 2020-12, as its `$schema` says; without one, 2020-12. `$ref` works
    /// within the schema only.
    schema: AnyValue,
    /// The largest number of errors in the reply, from 1 to 1000.
    #[schemars(extend("default" = 10))]
    max_errors: Option<Spanned<u64>>,
}

fn build(node: &Node, context: &mut BuildContext<'_>) -> Option<Box<dyn Step>> {
    let config: ValidateConfig = config::decode(node, context.report)?;
    let _ = config.schema;
    let before = context.problems();
    let report = &mut *context.report;
    let max = range::count(
        "max_errors",
        config.max_errors.as_ref(),
        1..=1000,
        10,
        report,
    );
    let schema = node.get("schema")?;
    let compiled = match &schema.value {
        Value::String(name) => read_file(name, schema.span, context),
        Value::Mapping(_) | Value::Bool(_) => compile(&schema.to_json()).map_err(|problem| {
            let span = place(schema, &problem.pointer);
            refuse(problem.message, span, context);
        }),
        _ => {
            let message = format!(
                "a schema is a mapping or the path of a file, not {}",
                schema.type_name()
            );
            refuse(message, schema.span, context);
            return None;
        }
    };
    let Compiled {
        validator,
        has_slow_patterns,
    } = compiled.ok()?;
    (context.problems() == before).then(|| {
        Box::new(Validate(Arc::new(Schema {
            validator,
            has_slow_patterns,
            errors_max: max,
        }))) as Box<dyn Step>
    })
}

/// A schema as the library has it.
struct Compiled {
    validator: Validator<MeteredJson>,
    has_slow_patterns: bool,
}

fn refuse(message: String, span: Span, context: &mut BuildContext<'_>) {
    let diagnostic = context.report.error(BAD_SCHEMA, span, message);
    diagnostic.hint("see https://json-schema.org for what a schema may say");
}

/// Reads a schema of a file. Every problem is reported.
fn read_file(name: &str, span: Span, context: &mut BuildContext<'_>) -> Result<Compiled, ()> {
    let shown = name.escape_debug();
    let bytes = (context.surroundings.files)(span.source, name).map_err(|error| {
        let message = format!("cannot read `{shown}`: {error}");
        let diagnostic = context.report.error(BAD_FILE, span, message);
        diagnostic.hint("the path is relative to the flow file");
    })?;
    let schema: Json = serde_json::from_slice(&bytes).map_err(|error| {
        refuse(format!("`{shown}` is not JSON: {error}"), span, context);
    })?;
    compile(&schema).map_err(|problem| {
        let pointer = match problem.pointer.as_str() {
            "" => "at its top",
            pointer => pointer,
        };
        refuse(
            format!("`{shown}`, {pointer}: {}", problem.message),
            span,
            context,
        );
    })
}

/// What is wrong with a schema, and where in it, as a JSON Pointer.
struct SchemaProblem {
    pointer: String,
    message: String,
}

fn compile(schema: &Json) -> Result<Compiled, SchemaProblem> {
    let options = jsonschema::options_for::<MeteredJson>()
        .offline()
        .should_validate_formats(true)
        .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS_MAX));
    let validator = options.build(schema).map_err(|error| SchemaProblem {
        pointer: error.instance_path().to_string(),
        message: error_text(&error),
    })?;
    Ok(Compiled {
        validator,
        has_slow_patterns: has_slow_patterns(schema),
    })
}

/// Whether a schema has patterns that may go back: those take up to [`BACKTRACKS_MAX`] tries
/// for a text, others are linear. Anything that looks like one counts, wherever it stands.
fn has_slow_patterns(schema: &Json) -> bool {
    match schema {
        Json::Object(members) => members.iter().any(|(name, it)| match (name.as_str(), it) {
            ("pattern", Json::String(pattern)) => may_go_back(pattern),
            ("patternProperties", Json::Object(patterns)) => {
                patterns.keys().any(|it| may_go_back(it)) || has_slow_patterns(it)
            }
            _ => has_slow_patterns(it),
        }),
        Json::Array(items) => items.iter().any(has_slow_patterns),
        _ => false,
    }
}

/// Whether a pattern has a look-around, a back-reference, an atomic group or a possessive
/// quantifier; sometimes when it has none of them.
fn may_go_back(pattern: &str) -> bool {
    let bytes = pattern.as_bytes();
    bytes
        .windows(3)
        .any(|it| it.starts_with(b"(?") && it != b"(?:")
        || bytes.windows(2).any(|it| match it {
            [b'\\', next] => next.is_ascii_digit() || b"kgKG".contains(next),
            [b'*' | b'+' | b'?' | b'}', b'+'] => true,
            _ => false,
        })
}

/// The place of a part of a schema that stands in the flow file.
fn place(schema: &Node, pointer: &str) -> Span {
    let mut node = schema;
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        let item = || {
            part.parse()
                .ok()
                .and_then(|at: usize| node.as_sequence()?.get(at))
        };
        let Some(found) = node.get(&part).or_else(item) else {
            break;
        };
        node = found;
    }
    node.span
}

/// The step.
struct Validate(Arc<Schema>);

impl Step for Validate {
    fn run<'a>(&'a self, exchange: &'a mut Exchange, services: &'a dyn Services) -> Progress<'a> {
        // A large body is no work for a worker, not even when it is valid.
        let is_long = exchange
            .content
            .raw()
            .is_some_and(|body| body.len() > AT_ONCE);
        let value = match exchange.value() {
            Ok(value) => value,
            Err(fault) => return Progress::Done(Err(fault)),
        };
        let takes_turns = !is_long && takes_turns();
        let slice = match takes_turns {
            true => Slice::SHORT,
            false => Slice::WHOLE,
        };
        if !is_long && let Some(result) = self.check(value, slice) {
            return Progress::Done(result.map(|()| Next::Continue));
        }
        let value = value.clone();
        Progress::Waits(Box::pin(async move {
            if takes_turns {
                yield_now().await;
                let slice = Slice::WHOLE.begun();
                if let Some(result) = self.check(&value, slice) {
                    return result.map(|()| Next::Continue);
                }
            }
            let schema = Arc::clone(&self.0);
            let result = schema.check_beside(value, services).await;
            result.map(|()| Next::Continue)
        }))
    }
}

impl Validate {
    /// Checks a value on the worker. `None` when that takes too long.
    fn check(&self, value: &expr::Value, slice: Slice) -> Option<Result<(), Fault>> {
        match json_at_once(value, slice.bytes) {
            Ok(Some(value)) => self.0.check(&value, slice),
            Ok(None) => None,
            Err(fault) => Some(Err(fault)),
        }
    }
}

/// From this on a copy may take a millisecond.
const LONG_COPY: usize = AT_ONCE / 4;
/// What a node takes of the bytes that are copied at one go: about the time of so many.
const NODE: usize = 8;

/// Why a value has not been copied.
enum CopyError {
    Unfit(Fault),
    /// It has more bytes than were to be copied.
    TooLarge,
}

impl CopyError {
    fn invalid(detail: &'static str) -> Self {
        Self::Unfit(Fault::invalid(detail))
    }
}

/// A value as the validator takes it, where it is no more than a worker may copy at one go: the
/// value may be large though no body was, and a copy of it costs more than most schemas.
fn json_at_once(value: &expr::Value, bytes: usize) -> Result<Option<Json>, Fault> {
    let mut left = bytes;
    match copy(value, DEPTH_MAX, &mut left) {
        Ok(value) => {
            if bytes - left > LONG_COPY {
                note_long_piece();
            }
            Ok(Some(value))
        }
        Err(CopyError::TooLarge) => Ok(None),
        Err(CopyError::Unfit(fault)) => Err(fault),
    }
}

/// A value as the validator takes it, however large.
fn json(value: &expr::Value) -> Result<Json, Fault> {
    copy(value, DEPTH_MAX, &mut { usize::MAX }).map_err(|error| match error {
        CopyError::Unfit(fault) => fault,
        CopyError::TooLarge => Fault::invalid("the body is too large to check against the schema"),
    })
}

/// Copies a value of at most `depth_left` levels and about `left` bytes.
fn copy(value: &expr::Value, depth_left: usize, left: &mut usize) -> Result<Json, CopyError> {
    let Some(depth_left) = depth_left.checked_sub(1) else {
        return Err(CopyError::invalid("the body is nested too deep"));
    };
    take(left, NODE)?;
    Ok(match value {
        expr::Value::Null => Json::Null,
        expr::Value::Bool(value) => Json::Bool(*value),
        expr::Value::Num(_) => number(value).map_err(CopyError::Unfit)?,
        expr::Value::TStr(bytes) => {
            take(left, bytes.len())?;
            match std::str::from_utf8(bytes) {
                Ok(text) => Json::String(text.to_owned()),
                Err(_) => return Err(CopyError::invalid("a text of the body is not UTF-8")),
            }
        }
        expr::Value::BStr(_) => {
            let detail = "the body is bytes, not JSON, XML or text";
            return Err(CopyError::invalid(detail));
        }
        expr::Value::Arr(items) => {
            let mut copied = Vec::with_capacity(items.len().min(*left / NODE));
            for item in items.iter() {
                copied.push(copy(item, depth_left, left)?);
            }
            Json::Array(copied)
        }
        expr::Value::Obj(members) => {
            let mut copied = serde_json::Map::with_capacity(members.len().min(*left / NODE));
            for (key, value) in members.iter() {
                let Some(key) = expr::value::as_text(key) else {
                    return Err(CopyError::invalid("a name of a member is not text"));
                };
                take(left, key.len())?;
                copied.insert(key.to_owned(), copy(value, depth_left, left)?);
            }
            Json::Object(copied)
        }
    })
}

fn take(left: &mut usize, bytes: usize) -> Result<(), CopyError> {
    *left = left.checked_sub(bytes).ok_or(CopyError::TooLarge)?;
    Ok(())
}

/// A number: exact when it is whole and has up to 64 bits, else the nearest of double precision.
fn number(value: &expr::Value) -> Result<Json, Fault> {
    // Most numbers: no text has to be made of them.
    if let expr::Value::Num(number) = value
        && let Some(whole) = number.as_isize().and_then(|it| i64::try_from(it).ok())
    {
        return Ok(whole.into());
    }
    let text = expr::value::scalar_text(value).unwrap_or_default();
    if let Ok(whole) = text.parse::<i64>() {
        return Ok(whole.into());
    }
    if let Ok(whole) = text.parse::<u64>() {
        return Ok(whole.into());
    }
    match text.parse::<f64>() {
        Ok(number) if !number.is_nan() => Ok(number.clamp(f64::MIN, f64::MAX).into()),
        _ => Err(Fault::expression("the body has a number that is none")),
    }
}

#[cfg(test)]
mod tests;
