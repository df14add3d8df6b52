//! Walks a tree against a JSON Schema and tells every difference, each at its place.

use serde_json::{Map, Value as Json};

use crate::codes;
use crate::node::{Entry, Node, Value};
use crate::report::Report;
use crate::schema::kept;
use crate::source::Span;
use crate::suggest::suggest;
use crate::units;

/// The keywords that this walk understands or may leave aside because they only describe. A
/// schema with another one is a mistake of ours, which a debug build tells.
const KEYWORDS: &[&str] = &[
    "$defs",
    "$ref",
    "$schema",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "default",
    "deprecated",
    "description",
    "enum",
    "examples",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "oneOf",
    "pattern",
    "properties",
    "required",
    "title",
    "type",
    "uniqueItems",
    "x-maximum",
    "x-minimum",
    "x-renamed",
];

/// Checks a tree against a JSON Schema of the kind [`crate::schema_for`] makes. True when it fits;
/// otherwise every problem is in the report.
pub fn check(node: &Node, schema: &Json, report: &mut Report) -> bool {
    let before = report.diagnostics().len();
    Walk {
        root: schema,
        report,
    }
    .node(node, schema);
    report.diagnostics().len() == before
}

/// The same for a schema that a function makes, which is kept for the next check: for kinds of
/// documents of which a start may have thousands.
pub fn check_kind(node: &Node, schema: fn() -> Json, report: &mut Report) -> bool {
    check(node, &kept(schema), report)
}

struct Walk<'a> {
    root: &'a Json,
    report: &'a mut Report,
}

impl Walk<'_> {
    fn node(&mut self, node: &Node, schema: &Json) {
        if let Some(schema) = schema.as_object() {
            self.object(node, schema);
        }
    }

    fn object(&mut self, node: &Node, schema: &Map<String, Json>) {
        debug_assert!(
            schema.keys().all(|key| KEYWORDS.contains(&key.as_str())),
            "unknown keyword among {:?}",
            schema.keys()
        );
        if let Some(target) = schema
            .get("$ref")
            .and_then(|target| resolve(self.root, target))
        {
            self.node(node, target);
        }
        for part in array(schema, "allOf") {
            self.node(node, part);
        }
        let branches = branches(self.root, schema);
        if !branches.is_empty() {
            return self.one_of(node, &branches);
        }
        if let Some(expected) = schema.get("type")
            && !fits_type(node, expected)
        {
            return self.wrong_type(node, &type_words(&[schema]), schema);
        }
        self.choices(node, schema);
        match &node.value {
            Value::String(text) => self.string(node.span, text, schema),
            Value::Number(number) => self.range(node.span, number.as_f64(), number.text(), schema),
            Value::Sequence(items) => self.sequence(node.span, items, schema),
            Value::Mapping(entries) => self.mapping(node.span, entries, schema),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Chooses the branch by the type of the value, so that what is told is about what was meant.
    fn one_of(&mut self, node: &Node, branches: &[&Map<String, Json>]) {
        let all_values = branches.iter().all(|branch| !allowed(branch).is_empty());
        if all_values {
            let values: Vec<&Json> = branches.iter().flat_map(|branch| allowed(branch)).collect();
            return self.choice(node, &values, &[]);
        }
        let fitting: Vec<_> = branches
            .iter()
            .filter(|branch| {
                self.target(branch)
                    .get("type")
                    .is_none_or(|of| fits_type(node, of))
            })
            .collect();
        match fitting.as_slice() {
            [] => {
                let targets: Vec<_> = branches.iter().map(|branch| self.target(branch)).collect();
                let words = type_words(&targets);
                let first = targets.first().copied().cloned().unwrap_or_default();
                self.wrong_type(node, &words, &first);
            }
            [only] => self.object(node, only),
            several => match several.iter().all(|branch| !allowed(branch).is_empty()) {
                // The values of an enumeration that may also be left out.
                true => {
                    let values = several.iter().flat_map(|branch| allowed(branch));
                    let mappings: Vec<String> = branches
                        .iter()
                        .filter_map(|branch| self.target(branch).get("properties")?.as_object())
                        .flat_map(|keys| keys.keys().map(|key| format!("`{{ {key}: ... }}`")))
                        .collect();
                    self.choice(node, &values.collect::<Vec<_>>(), &mappings);
                }
                false => self.best_of(node, several),
            },
        }
    }

    /// Takes the branch with the fewest problems.
    fn best_of(&mut self, node: &Node, branches: &[&&Map<String, Json>]) {
        let mut best: Option<Report> = None;
        for branch in branches {
            let mut scratch = Report::default();
            Walk {
                root: self.root,
                report: &mut scratch,
            }
            .object(node, branch);
            let fewer = best
                .as_ref()
                .is_none_or(|best| scratch.diagnostics().len() < best.diagnostics().len());
            if fewer {
                best = Some(scratch);
            }
        }
        if let Some(best) = best {
            self.report.append(best);
        }
    }

    fn target<'s>(&'s self, schema: &'s Map<String, Json>) -> &'s Map<String, Json> {
        let target = schema
            .get("$ref")
            .and_then(|target| resolve(self.root, target));
        target.and_then(Json::as_object).unwrap_or(schema)
    }

    fn wrong_type(&mut self, node: &Node, expected: &str, schema: &Map<String, Json>) {
        let message = format!("expected {expected}, found {}", node.type_name());
        let format = schema
            .get("format")
            .and_then(Json::as_str)
            .unwrap_or_default();
        let (code, hint) = match (&node.value, format) {
            (Value::Number(number), "duration") => {
                let hint = format!("say which unit: `{0}s` or `{0}ms`", number.text());
                (codes::BAD_DURATION, Some(hint))
            }
            (Value::Number(number), "byte-size") => {
                let hint = format!("say which unit: `{0}B` or `{0}KiB`", number.text());
                (codes::BAD_SIZE, Some(hint))
            }
            (Value::Number(number), "percentage") => {
                let hint = format!("write `{}%`", number.text());
                (codes::BAD_PERCENTAGE, Some(hint))
            }
            (Value::Number(number), _) if expected.contains("a string") => (
                codes::WRONG_TYPE,
                Some(format!("put it in quotes: \"{}\"", number.text())),
            ),
            (Value::Bool(value), _) if expected.contains("a string") => (
                codes::WRONG_TYPE,
                Some(format!("put it in quotes: \"{value}\"")),
            ),
            (Value::Null, _) => (codes::WRONG_TYPE, Some("the value is missing".to_owned())),
            _ => (codes::WRONG_TYPE, None),
        };
        let diagnostic = self.report.error(code, node.span, message);
        if let Some(hint) = hint {
            diagnostic.hint(hint);
        }
    }

    fn choices(&mut self, node: &Node, schema: &Map<String, Json>) {
        let values = allowed(schema);
        if !values.is_empty() {
            self.choice(node, &values, &[]);
        }
    }

    /// Reports a value that is not among the allowed ones. `mappings` are shown as a hint: they are
    /// allowed instead of a value.
    fn choice(&mut self, node: &Node, values: &[&Json], mappings: &[String]) {
        let found = node.to_json();
        if values.iter().any(|value| **value == found) {
            return;
        }
        let names: Vec<String> = values.iter().map(|value| words_of(value)).collect();
        let shown = match &node.value {
            Value::String(text) => format!("`{}`", short(text)),
            _ => node.type_name().to_owned(),
        };
        let message = format!("{shown} is not one of {}", list(&names));
        let near = node
            .as_str()
            .and_then(|text| suggest(text, names.iter().map(String::as_str)));
        let diagnostic = self.report.error(codes::NOT_ONE_OF, node.span, message);
        if let Some(near) = near {
            diagnostic.hint(format!("did you mean `{near}`?"));
        } else if !mappings.is_empty() {
            diagnostic.hint(format!("or write {}", mappings.join(" or ")));
        }
    }

    fn string(&mut self, span: Span, text: &str, schema: &Map<String, Json>) {
        let format = schema
            .get("format")
            .and_then(Json::as_str)
            .unwrap_or_default();
        match units::read_format(format, text) {
            Some(Ok(value)) => self.format_range(span, value, text, schema),
            Some(Err(message)) => {
                let code = match format {
                    "duration" => codes::BAD_DURATION,
                    "percentage" => codes::BAD_PERCENTAGE,
                    _ => codes::BAD_SIZE,
                };
                self.report.error(code, span, message);
            }
            None => {}
        }
        let length = text.chars().count() as u64;
        self.bound(
            span,
            length,
            schema,
            ("minLength", "maxLength"),
            "characters",
        );
    }

    /// Bounds of a duration, a size or a percentage: `x-minimum` and `x-maximum`, for JSON Schema
    /// has bounds for numbers only. Editors leave them aside.
    fn format_range(&mut self, span: Span, value: f64, text: &str, schema: &Map<String, Json>) {
        let format = schema.get("format").and_then(Json::as_str);
        let bound = |key| {
            let text = schema.get(key).and_then(Json::as_str)?;
            let value = units::read_format(format.unwrap_or_default(), text)?.ok()?;
            Some((value, text))
        };
        let (least, most) = (bound("x-minimum"), bound("x-maximum"));
        let is_below = least.is_some_and(|(least, _)| value < least);
        let is_above = most.is_some_and(|(most, _)| value > most);
        let message = match (least, most) {
            _ if !is_below && !is_above => return,
            (Some((_, least)), Some((_, most))) => {
                format!("`{text}` is not from {least} to {most}")
            }
            (Some((_, least)), None) => format!("`{text}` is less than {least}"),
            (None, most) => {
                let most = most.map_or("", |(_, most)| most);
                format!("`{text}` is more than {most}")
            }
        };
        self.report.error(codes::OUT_OF_RANGE, span, message);
    }

    fn range(&mut self, span: Span, value: f64, text: &str, schema: &Map<String, Json>) {
        let (least, most) = (number(schema, "minimum"), number(schema, "maximum"));
        if least.is_some_and(|least| value < least) || most.is_some_and(|most| value > most) {
            let message = match (least, most) {
                (Some(least), Some(most)) => format!("{text} is not from {least} to {most}"),
                (Some(least), None) => format!("{text} is less than {least}"),
                (None, most) => format!("{text} is more than {}", most.unwrap_or_default()),
            };
            self.report.error(codes::OUT_OF_RANGE, span, message);
        }
    }

    fn sequence(&mut self, span: Span, items: &[Node], schema: &Map<String, Json>) {
        self.bound(
            span,
            items.len() as u64,
            schema,
            ("minItems", "maxItems"),
            "items",
        );
        if let Some(item_schema) = schema.get("items") {
            for item in items {
                self.node(item, item_schema);
            }
        }
        if schema.get("uniqueItems") == Some(&Json::Bool(true)) {
            let values: Vec<Json> = items.iter().map(Node::to_json).collect();
            for (at, item) in items.iter().enumerate() {
                let earlier = values
                    .iter()
                    .take(at)
                    .position(|value| Some(value) == values.get(at));
                if let Some(first) = earlier.and_then(|first| items.get(first)) {
                    self.report
                        .error(codes::BAD_VALUE, item.span, "the same item stands twice")
                        .also(first.span, "the first one");
                }
            }
        }
    }

    fn mapping(&mut self, span: Span, entries: &[Entry], schema: &Map<String, Json>) {
        let none = Map::new();
        let known = schema
            .get("properties")
            .and_then(Json::as_object)
            .unwrap_or(&none);
        let count = entries.len() as u64;
        self.bound(
            span,
            count,
            schema,
            ("minProperties", "maxProperties"),
            "entries",
        );
        for entry in entries {
            match (known.get(&entry.key), schema.get("additionalProperties")) {
                (Some(schema), _) => self.node(&entry.value, schema),
                (None, Some(Json::Bool(false))) => self.unknown_key(entry, known, schema),
                (None, Some(others)) => self.node(&entry.value, others),
                (None, None) => {}
            }
        }
        for key in array(schema, "required").iter().filter_map(Json::as_str) {
            if !entries.iter().any(|entry| entry.key == key) {
                self.report
                    .error(codes::MISSING_KEY, span, format!("`{key}` is missing"));
            }
        }
    }

    fn unknown_key(
        &mut self,
        entry: &Entry,
        known: &Map<String, Json>,
        schema: &Map<String, Json>,
    ) {
        let names = || known.keys().map(String::as_str);
        let renamed = schema.get("x-renamed").and_then(|it| it.get(&entry.key));
        let hint = match suggest(&entry.key, names()) {
            _ if let Some(Json::String(name)) = renamed => format!("it is called `{name}` now"),
            Some(near) => format!("did you mean `{near}`?"),
            None if known.is_empty() => "nothing may stand here".to_owned(),
            None => format!("known here: {}", names().collect::<Vec<_>>().join(", ")),
        };
        let message = format!("unknown key `{}`", short(&entry.key));
        self.report
            .error(codes::UNKNOWN_KEY, entry.key_span, message)
            .hint(hint);
    }

    fn bound(
        &mut self,
        span: Span,
        count: u64,
        schema: &Map<String, Json>,
        (least, most): (&str, &str),
        what: &str,
    ) {
        let limit = |key| schema.get(key).and_then(Json::as_u64);
        let message = match (limit(least), limit(most)) {
            (Some(least), _) if count < least => {
                format!("{count} {what}; at least {least} are needed")
            }
            (_, Some(most)) if count > most => {
                format!("{count} {what}; at most {most} are allowed")
            }
            _ => return,
        };
        self.report.error(codes::OUT_OF_RANGE, span, message);
    }
}

fn resolve<'a>(root: &'a Json, target: &Json) -> Option<&'a Json> {
    let pointer = target.as_str()?.strip_prefix('#')?;
    match pointer.strip_prefix("/$defs/") {
        // What `schema_for` makes, without the copies that `pointer` makes of each part.
        Some(name) if !name.contains(['/', '~']) => root.get("$defs")?.get(name),
        _ => root.pointer(pointer),
    }
}

fn array<'a>(schema: &'a Map<String, Json>, key: &str) -> &'a [Json] {
    schema
        .get(key)
        .and_then(Json::as_array)
        .map_or(&[], Vec::as_slice)
}

fn number(schema: &Map<String, Json>, key: &str) -> Option<f64> {
    schema.get(key).and_then(Json::as_f64)
}

/// The branches of `anyOf` and `oneOf`, those of branches that are only such lists included.
fn branches<'a>(root: &'a Json, schema: &'a Map<String, Json>) -> Vec<&'a Map<String, Json>> {
    let mut found = Vec::new();
    for branch in array(schema, "anyOf").iter().chain(array(schema, "oneOf")) {
        let Some(branch) = branch.as_object() else {
            continue;
        };
        let target = branch.get("$ref").and_then(|target| resolve(root, target));
        let target = target.and_then(Json::as_object).unwrap_or(branch);
        let inner = branches(root, target);
        if inner.is_empty() {
            found.push(target)
        } else {
            found.extend(inner)
        }
    }
    found
}

/// The only values that a schema allows, when it lists them.
fn allowed(schema: &Map<String, Json>) -> Vec<&Json> {
    let mut values: Vec<&Json> = array(schema, "enum").iter().collect();
    values.extend(schema.get("const"));
    values
}

fn fits_type(node: &Node, expected: &Json) -> bool {
    let fits = |name: &str| match &node.value {
        Value::Null => name == "null",
        Value::Bool(_) => name == "boolean",
        Value::Number(number) => {
            name == "number" || (name == "integer" && number.as_i64().is_some())
        }
        Value::String(_) => name == "string",
        Value::Sequence(_) => name == "array",
        Value::Mapping(_) => name == "object",
    };
    match expected {
        Json::Array(names) => names.iter().filter_map(Json::as_str).any(fits),
        name => name.as_str().is_none_or(fits),
    }
}

/// What is expected, in words: `a string or a mapping`.
fn type_words(schemas: &[&Map<String, Json>]) -> String {
    let mut words = Vec::new();
    for schema in schemas {
        let names = match schema.get("type") {
            Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).collect(),
            name => name.and_then(Json::as_str).into_iter().collect::<Vec<_>>(),
        };
        let format = schema
            .get("format")
            .and_then(Json::as_str)
            .unwrap_or_default();
        for name in names {
            let word = match (name, format) {
                ("string", "duration") => "a duration such as `5s`",
                ("string", "byte-size") => "a size such as `1MiB`",
                ("string", "percentage") => "a percentage such as `20%`",
                ("string", _) => "a string",
                ("integer", _) => "an integer",
                ("number", _) => "a number",
                ("boolean", _) => "`true` or `false`",
                ("array", _) => "a list",
                ("object", _) => "a mapping",
                // That a value may be left out helps nobody who has written one.
                _ => continue,
            };
            if !words.contains(&word) {
                words.push(word);
            }
        }
    }
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        Some((last, _)) => (*last).to_owned(),
        None => "nothing".to_owned(),
    }
}

fn words_of(value: &Json) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn list(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// Text from a file, made fit for a message.
fn short(text: &str) -> String {
    let cut: String = text.chars().take(60).collect();
    let dots = if cut.len() < text.len() { "..." } else { "" };
    format!("{}{dots}", cut.escape_debug())
}
