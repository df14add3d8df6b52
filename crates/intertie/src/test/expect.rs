//! Whether everything is as a test expects when its flow has ended.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use component::content::{Format, format_of};
use component::dialogue::Screen;
use component::exchange::Exchange;
use component::failure::Matcher;
use component::value_template::ValueTemplate;
use config::{Span, Spanned};
use expr::{Value, value};
use flow::tests_section::{
    CallExpectation, Calls, ErrorExpectation, Field, MessageExpectation, TestCase, Turn,
};
use message::{Body, Fault, Headers, Reply};

use super::diff::{self, Line};
use super::mock;
use super::report::time;
use super::seen::Seen;
use super::services::{Made, Observed, TestServices};
use super::suite::Failure;

/// How deep bodies are that are looked at without a media type.
const DEPTH_MAX: usize = 256;

/// How a flow has ended.
pub(super) struct Ended<'a> {
    pub result: &'a Result<Reply, Fault>,
    /// How much of the test's time it took.
    pub took: Duration,
    pub observed: &'a Observed,
}

/// Everything that is not as the test expects.
pub(super) fn check(
    case: &TestCase,
    ended: &Ended<'_>,
    services: &TestServices<'_>,
) -> Vec<Failure> {
    let mut check = Check {
        case,
        ended,
        services,
        input: Seen::of_request(&case.request),
        failures: Vec::new(),
    };
    let reply = match ended.result {
        Ok(reply) => reply.clone(),
        Err(fault) => fault.to_reply(),
    };
    check.outcome(&reply);
    check.reply(&reply);
    for (name, calls) in &case.expect.calls {
        check.calls(name, calls);
    }
    check.variables();
    if let Some(error) = &case.expect.error {
        check.error(error, &reply);
    }
    check.took();
    check.failures
}

/// Everything that is not as a turn of a dialogue expects.
pub(super) fn turn(at: usize, turn: &Turn, reply: &Reply, failures: &mut Vec<Failure>) {
    let mut add = |span, what: &str, lines| {
        let what = format!("turn {}: {what}", at + 1);
        failures.push(Failure { span, what, lines });
    };
    let Some(screen) = Screen::from_reply(reply) else {
        let line = Line::Note(format!("the reply has status {} and no text", reply.status));
        return add(turn.span, "no screen", vec![line]);
    };
    if let Some(expected) = &turn.expect
        && expected.value != screen.text
    {
        let lines = diff::texts(&expected.value, &screen.text);
        add(expected.span, "the screen", lines);
    }
    if let Some(part) = &turn.contains
        && !screen.text.contains(&part.value)
    {
        let lines = diff::texts(&part.value, &screen.text);
        add(part.span, "the screen contains", lines);
    }
    if let Some(ends) = &turn.ends
        && ends.value != screen.ends
    {
        let lines = diff::texts(&ends.value.to_string(), &screen.ends.to_string());
        add(ends.span, "whether the session ends", lines);
    }
}

struct Check<'a> {
    case: &'a TestCase,
    ended: &'a Ended<'a>,
    services: &'a TestServices<'a>,
    /// The message that started the flow, which expected values may look at.
    input: Seen,
    failures: Vec<Failure>,
}

/// Headers and body of a message that was found.
struct Found<'a> {
    /// What messages call it, with a space behind: empty for the reply.
    what: &'a str,
    headers: &'a Headers,
    body: &'a Body,
}

impl Check<'_> {
    fn add(&mut self, span: Span, what: impl Into<String>, lines: Vec<Line>) {
        let what = what.into();
        self.failures.push(Failure { span, what, lines });
    }

    /// Compares two texts.
    fn equal(&mut self, span: Span, what: impl Into<String>, expected: &str, found: &str) {
        if expected != found {
            self.add(span, what, diff::texts(expected, found));
        }
    }

    /// What an expected value is; a failure of the test when it cannot be made.
    fn value(&mut self, template: &ValueTemplate, span: Span, what: &str) -> Option<Value> {
        match mock::evaluate(template, &self.input, self.services) {
            Ok(value) => Some(value),
            Err(error) => {
                self.add(span, what, vec![Line::Note(error)]);
                None
            }
        }
    }

    /// The status, and that the flow has not failed unless that is expected.
    fn outcome(&mut self, reply: &Reply) {
        let expect = &self.case.expect;
        let note = self.ended.observed.fault.as_ref().map(describe);
        if let Some(status) = &expect.status {
            if status.value != u64::from(reply.status) {
                let (expected, found) = (status.value.to_string(), reply.status.to_string());
                let mut lines = diff::texts(&expected, &found);
                lines.extend(note.map(Line::Note));
                self.add(status.span, "status", lines);
            }
        } else if (self.ended.result.is_err() || self.ended.observed.refused.is_some())
            && expect.error.is_none()
        {
            let lines = note.map(Line::Note).into_iter().collect();
            self.add(self.case.span, "the flow failed", lines);
        }
    }

    fn reply(&mut self, reply: &Reply) {
        let found = Found {
            what: "",
            headers: &reply.headers,
            body: &reply.body,
        };
        let expected = &self.case.expect.reply;
        self.message(expected, &found);
        let end = self.ended.observed.end.as_ref();
        let mut exchange = end.map_or_else(|| self.input.exchange(), Exchange::clone);
        exchange.fault = self.ended.observed.fault.clone().map(Rc::new);
        exchange.take_over(reply.clone());
        self.conditions(expected, exchange, "");
    }

    /// Headers and body.
    fn message(&mut self, expected: &MessageExpectation, found: &Found<'_>) {
        for field in &expected.headers {
            let lines = found.headers.view();
            let lines = lines
                .iter()
                .filter(|(_, name, _)| name.eq_ignore_ascii_case(field.name.as_bytes()));
            let lines = lines.map(|(_, _, line)| String::from_utf8_lossy(line).into_owned());
            let what = format!("{}header {}", found.what, field.name);
            self.field(field, lines.collect(), &what);
        }
        if let Some(body) = &expected.body {
            self.body(body, found);
        }
        if let Some(part) = &expected.contains {
            self.contains(part, found);
        }
        if let Some(file) = &expected.file {
            self.file(file, found);
        }
    }

    /// A header field or a parameter: its texts, or that it is not there.
    fn field(&mut self, field: &Field, found: Vec<String>, what: &str) {
        let expected = match &field.value {
            None => None,
            Some(template) => match self.value(template, field.span, what) {
                Some(value) => Some(mock::lines(&value).join(", ")),
                None => return,
            },
        };
        let found = (!found.is_empty()).then(|| found.join(", "));
        if expected == found {
            return;
        }
        let absent = || "(not there)".to_owned();
        let (expected, found) = (
            expected.unwrap_or_else(absent),
            found.unwrap_or_else(absent),
        );
        self.equal(field.span, what, &expected, &found);
    }

    fn body(&mut self, expected: &Spanned<ValueTemplate>, found: &Found<'_>) {
        let what = format!("{}body", found.what);
        let Some(wanted) = self.value(&expected.value, expected.span, &what) else {
            return;
        };
        if let Some(text) = value::as_text(&wanted).filter(|_| !found.is_json()) {
            return self.equal(expected.span, what, text, &found.text());
        }
        match self.decoded(found) {
            Ok(value) if value == wanted => {}
            Ok(value) => self.add(expected.span, what, diff::values(&wanted, &value)),
            Err(error) => {
                let mut lines = diff::texts(&diff::pretty(&wanted), &found.text());
                lines.push(Line::Note(error));
                self.add(expected.span, what, lines);
            }
        }
    }

    fn contains(&mut self, expected: &Spanned<ValueTemplate>, found: &Found<'_>) {
        let what = format!("{}body_contains", found.what);
        let Some(part) = self.value(&expected.value, expected.span, &what) else {
            return;
        };
        if let Some(text) = value::as_text(&part).filter(|_| !found.is_json()) {
            if !found.text().contains(text) {
                self.equal(expected.span, what, text, &found.text());
            }
            return;
        }
        match self.decoded(found) {
            Ok(value) if has(&value, &part) => {}
            Ok(value) => {
                let lines = diff::values(&part, &only(&value, &part));
                self.add(expected.span, what, lines);
            }
            Err(error) => self.add(expected.span, what, vec![Line::Note(error)]),
        }
    }

    fn file(&mut self, expected: &Spanned<Bytes>, found: &Found<'_>) {
        let bytes = &expected.value;
        if bytes[..] == *found.body.as_bytes() {
            return;
        }
        let what = format!("{}file", found.what);
        let body = Body::from(bytes.clone());
        let wanted = Found {
            body: &body,
            ..*found
        };
        let lines = match (self.decoded(&wanted), self.decoded(found)) {
            (Ok(Value::BStr(_) | Value::TStr(_)), _) | (Err(_), _) | (_, Err(_)) => {
                diff::texts(&wanted.text(), &found.text())
            }
            (Ok(left), Ok(right)) if left == right => return,
            (Ok(left), Ok(right)) => diff::values(&left, &right),
        };
        self.add(expected.span, what, lines);
    }

    /// The value of a body by its media type.
    fn decoded(&self, found: &Found<'_>) -> Result<Value, String> {
        let mut exchange = self.input.exchange();
        let mut reply = Reply::new(200);
        reply.headers = found.headers.clone();
        reply.body = found.body.clone();
        exchange.take_over(reply);
        match exchange.value() {
            // Without a media type JSON is still JSON.
            Ok(Value::BStr(bytes)) => {
                Ok(expr::json::parse(bytes, DEPTH_MAX)
                    .unwrap_or_else(|_| Value::BStr(bytes.clone())))
            }
            Ok(value) => Ok(value.clone()),
            Err(fault) => Err(mock::explain(&fault)),
        }
    }

    fn conditions(&mut self, expected: &MessageExpectation, exchange: Exchange, of: &str) {
        for condition in &expected.conditions {
            let mut exchange = exchange.clone();
            let text = condition.value.text().trim();
            let note = match exchange.holds(&condition.value, self.services) {
                Ok(true) => continue,
                Ok(false) => {
                    let input = exchange.value().map(diff::pretty);
                    let mut lines = vec![Line::Note(format!("does not hold: {text}"))];
                    let input = input.unwrap_or_default();
                    lines.extend(input.lines().map(|it| Line::Same(it.to_owned())));
                    lines
                }
                Err(fault) => vec![Line::Note(mock::explain(&fault))],
            };
            self.add(condition.span, format!("{of}where"), note);
        }
    }

    fn calls(&mut self, name: &str, expected: &Spanned<Calls>) {
        let observed = self.ended.observed;
        let made = observed.calls.iter();
        let made: Vec<&Made> = made
            .filter(|it| it.names.iter().any(|it| it == name))
            .collect();
        let lines = || {
            let lines = made.iter().map(|made| made.seen.line());
            lines.collect::<Vec<_>>()
        };
        let what = format!("calls of {name}");
        match &expected.value {
            Calls::Times(times) if *times == made.len() as u64 => {}
            Calls::Times(times) => {
                let mut shown = diff::texts(&times.to_string(), &made.len().to_string());
                shown.extend(lines().into_iter().map(Line::Note));
                self.add(expected.span, what, shown);
            }
            Calls::Each(calls) if calls.len() == made.len() => {
                for (number, (call, made)) in calls.iter().zip(&made).enumerate() {
                    let what = format!("call {} of {name}: ", number + 1);
                    self.call(call, &made.seen, &what);
                }
            }
            Calls::Each(calls) => {
                let expected_lines: Vec<String> =
                    calls.iter().map(|call| self.call_line(call)).collect();
                let joined = |lines: Vec<String>| match lines.is_empty() {
                    true => "(no call)".to_owned(),
                    false => lines.join("\n"),
                };
                let shown = diff::texts(&joined(expected_lines), &joined(lines()));
                self.add(expected.span, what, shown);
            }
        }
    }

    /// What is expected of a call, in one line.
    fn call_line(&self, call: &CallExpectation) -> String {
        let method = call.method.as_ref().map_or("*", |it| &it.value);
        let path = call.path.as_ref().and_then(|path| {
            let value = mock::evaluate(&path.value, &self.input, self.services).ok()?;
            Some(mock::lines(&value).concat())
        });
        format!("{method} {}", path.unwrap_or_else(|| "*".to_owned()))
    }

    fn call(&mut self, expected: &CallExpectation, seen: &Seen, what: &str) {
        if let Some(method) = &expected.method {
            let about = format!("{what}method");
            self.equal(method.span, about, &method.value, &seen.method);
        }
        if let Some(path) = &expected.path {
            let about = format!("{what}path");
            if let Some(value) = self.value(&path.value, path.span, &about) {
                self.equal(path.span, about, &mock::lines(&value).concat(), &seen.path);
            }
        }
        let query = seen.query_value();
        for field in &expected.query {
            let found = value::get(&query, &field.name).map(mock::lines);
            let about = format!("{what}query {}", field.name);
            self.field(field, found.unwrap_or_default(), &about);
        }
        let found = Found {
            what,
            headers: &seen.headers,
            body: &seen.body,
        };
        self.message(&expected.message, &found);
        self.conditions(&expected.message, seen.exchange(), what);
    }

    fn variables(&mut self) {
        let case = self.case;
        for (slot, field) in &case.expect.variables {
            let what = format!("${}", field.name);
            let wanted = match &field.value {
                Some(template) => self.value(template, field.span, &what),
                None => Some(Value::Null),
            };
            let Some(wanted) = wanted else { continue };
            let end = self.ended.observed.end.as_ref();
            let found = end.map(|end| end.slot(*slot)).unwrap_or_default();
            if wanted != found {
                self.add(field.span, what, diff::values(&wanted, &found));
            }
        }
    }

    fn error(&mut self, expected: &ErrorExpectation, reply: &Reply) {
        let Some(fault) = &self.ended.observed.fault else {
            let note = format!("it ended with status {}", reply.status);
            let what = "error: the flow did not fail";
            return self.add(expected.span, what, vec![Line::Note(note)]);
        };
        if let Some(kind) = &expected.kind
            && !Matcher::of_name(&kind.value).is_some_and(|it| it.fits(fault))
        {
            let mut lines = diff::texts(&kind.value, fault.name());
            lines.push(Line::Note(describe(fault)));
            self.add(kind.span, "error: kind", lines);
        }
        if let Some(status) = &expected.status {
            let found = fault.seen_status().to_string();
            self.equal(
                status.span,
                "error: status",
                &status.value.to_string(),
                &found,
            );
        }
        if let Some(step) = &expected.step {
            let found = fault.step.as_deref().unwrap_or_default();
            self.equal(step.span, "error: step", &step.value, found);
        }
        if let Some(detail) = &expected.detail {
            self.equal(detail.span, "error: detail", &detail.value, &fault.detail);
        }
    }

    fn took(&mut self) {
        let Some(expected) = &self.case.expect.took else {
            return;
        };
        let (least, most) = expected.value;
        let took = self.ended.took;
        if least.is_none_or(|it| took >= it) && most.is_none_or(|it| took <= it) {
            return;
        }
        let wanted = match (least, most) {
            (Some(least), Some(most)) if least == most => time(least),
            (Some(least), Some(most)) => format!("{} to {}", time(least), time(most)),
            (Some(least), None) => format!("at least {}", time(least)),
            (None, most) => format!("at most {}", time(most.unwrap_or_default())),
        };
        self.equal(expected.span, "took", &wanted, &time(took));
    }
}

impl Found<'_> {
    fn is_json(&self) -> bool {
        format_of(self.headers.get("Content-Type")) == Format::Json
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(self.body.as_bytes()).into_owned()
    }
}

/// A failure of a flow, for people.
fn describe(fault: &Fault) -> String {
    let step = fault.step.as_deref();
    let step = step
        .map(|step| format!(" at step {step}"))
        .unwrap_or_default();
    let status = fault.seen_status();
    format!(
        "the flow failed{step}: {} {status}: {}",
        fault.name(),
        mock::explain(fault)
    )
}

/// Whether a value has everything that another one says: members of objects, items of lists.
fn has(found: &Value, part: &Value) -> bool {
    match (found, part) {
        (Value::Obj(_), Value::Obj(_)) => {
            let mut members = value::members(part).into_iter().flatten();
            members.all(|(key, part)| value::get(found, key).is_some_and(|it| has(it, part)))
        }
        (Value::Arr(items), Value::Arr(parts)) => parts
            .iter()
            .all(|part| items.iter().any(|item| has(item, part))),
        _ => found == part,
    }
}

/// What a value says of the things that another one names.
fn only(found: &Value, part: &Value) -> Value {
    match (found, part) {
        (Value::Obj(_), Value::Obj(_)) => {
            let members = value::members(part).into_iter().flatten();
            let members = members.filter_map(|(key, part)| {
                let found = value::get(found, key)?;
                Some((key.to_owned(), only(found, part)))
            });
            value::object(members)
        }
        _ => found.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Value {
        expr::json::parse(&Bytes::copy_from_slice(text.as_bytes()), 64).unwrap()
    }

    #[test]
    fn a_value_has_its_parts() {
        let found = json(r#"{"a": {"b": 1, "c": 2}, "d": [{"e": 1, "f": 2}, 3]}"#);
        for part in [
            "{}",
            r#"{"a": {"b": 1}}"#,
            r#"{"d": [3]}"#,
            r#"{"d": [3, {"e": 1.0}]}"#,
            r#"{"d": []}"#,
        ] {
            assert!(has(&found, &json(part)), "{part}");
        }
        for part in [
            r#"{"a": {"b": 2}}"#,
            r#"{"d": [4]}"#,
            r#"{"x": null}"#,
            "[]",
        ] {
            assert!(!has(&found, &json(part)), "{part}");
        }
        let projected = only(&found, &json(r#"{"a": {"b": 2}, "x": 1}"#));
        assert_eq!(projected, json(r#"{"a": {"b": 1}}"#));
    }
}
