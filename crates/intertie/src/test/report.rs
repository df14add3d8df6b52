//! What people and programs read of the tests.

use std::fmt::Write;
use std::time::Duration;

use config::{Sources, Span};
use serde_json::json;

use super::coverage::{Count, Coverage};
use super::diff::Line;
use super::suite::{CaseResult, Failure};

/// How text is written.
#[derive(Clone, Copy)]
pub(super) struct Style {
    /// Whether it goes to a terminal.
    pub color: bool,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        match self.color {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        }
    }
}

/// A length of time for people.
pub(super) fn time(time: Duration) -> String {
    match time.is_zero() {
        true => "0ms".to_owned(),
        false => format!("{time:?}"),
    }
}

/// A length of time in seconds.
pub(super) fn seconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64())
}

/// A place as editors understand it.
pub(super) fn place(span: Span, sources: &Sources) -> String {
    let (line, _) = sources.position(span.source, span.start);
    format!("{}:{line}", sources.name(span.source))
}

/// One test: a line, and below it everything that is not as expected.
pub(super) fn case(result: &CaseResult, sources: &Sources, style: Style) -> String {
    let name = format!("{}: {}", result.flow, result.name);
    let took = style.paint("2", &format!("({})", time(result.took)));
    if result.failures.is_empty() {
        return format!("{}      {} {took}\n", style.paint("32", "ok"), safe(&name));
    }
    let failed = style.paint("1;31", "FAILED");
    let mut text = format!("{failed}  {} {took}\n", safe(&name));
    for failure in &result.failures {
        let what = style.paint("1", &safe(&failure.what));
        // Writing to a string does not fail.
        let _ = writeln!(text, "    {}: {what}", place(failure.span, sources));
        for line in &failure.lines {
            text.push_str(&shown(line, style));
        }
    }
    text
}

/// One failure without colours.
pub(super) fn plain(failure: &Failure, sources: &Sources) -> String {
    let mut text = format!("{}: {}\n", place(failure.span, sources), failure.what);
    for line in &failure.lines {
        text.push_str(&shown(line, Style { color: false }));
    }
    text
}

fn shown(line: &Line, style: Style) -> String {
    let line = match line {
        Line::Same(text) => format!("  {}", safe(text)),
        Line::Expected(text) => style.paint("32", &format!("- {}", safe(text))),
        Line::Found(text) => style.paint("31", &format!("+ {}", safe(text))),
        Line::Gap => style.paint("2", "  ..."),
        Line::Note(text) => safe(text),
    };
    format!("      {line}\n")
}

/// Text of messages, which must not steer a terminal.
fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => out.extend(character.escape_debug()),
            false => out.push(character),
        }
    }
    out
}

/// How many tests there were and what they have reached.
pub(super) fn summary(results: &[CaseResult], coverage: &Coverage, style: Style) -> String {
    let failed = results.iter().filter(|it| !it.failures.is_empty()).count();
    let all = results.len();
    let plural = if all == 1 { "" } else { "s" };
    let verdict = match failed {
        0 => style.paint("32", "all ok"),
        failed => style.paint("1;31", &format!("{failed} failed")),
    };
    let (steps, branches) = coverage.counts();
    let part = |count: Count, name: &str| {
        let Count { reached, all } = count;
        format!("{} % of {name} ({reached} of {all})", count.percent())
    };
    let legend = match failed {
        0 => "",
        _ => "- expected, + found\n",
    };
    format!(
        "\n{legend}{all} test{plural}, {verdict}; reached {}, {}\n",
        part(steps, "steps"),
        part(branches, "branches")
    )
}

/// The places that no test has reached.
pub(super) fn missed(coverage: &Coverage, sources: &Sources) -> String {
    let mut text = String::new();
    for (flow, missed) in coverage.missed() {
        let kind = match (missed.is_step, missed.label.is_empty()) {
            (true, _) => format!("step {}", missed.label),
            (false, true) => "its steps".to_owned(),
            (false, false) => format!("branch {}", missed.label),
        };
        let place = place(missed.span, sources);
        let _ = writeln!(text, "not reached: {place}: {flow}: {kind}");
    }
    text
}

/// One test as a line of JSON.
pub(super) fn json_case(result: &CaseResult, sources: &Sources) -> String {
    let failures = result.failures.iter().map(|failure| {
        let lines = failure
            .lines
            .iter()
            .map(|it| shown(it, Style { color: false }));
        let lines: Vec<String> = lines.map(|it| it.trim_end().to_owned()).collect();
        json!({
            "place": place(failure.span, sources),
            "what": failure.what,
            "lines": lines.iter().map(|it| it.get(6..).unwrap_or_default()).collect::<Vec<_>>(),
        })
    });
    let line = json!({
        "flow": &*result.flow,
        "test": result.name,
        "place": place(result.span, sources),
        "ok": result.failures.is_empty(),
        "took_ms": result.took.as_millis() as u64,
        "failures": failures.collect::<Vec<_>>(),
    });
    format!("{line}\n")
}

/// The sums as a line of JSON.
pub(super) fn json_summary(results: &[CaseResult], coverage: &Coverage) -> String {
    let failed = results.iter().filter(|it| !it.failures.is_empty()).count();
    let (steps, branches) = coverage.counts();
    let count = |count: Count| json!({ "reached": count.reached, "all": count.all });
    let line = json!({
        "tests": results.len(),
        "failed": failed,
        "steps": count(steps),
        "branches": count(branches),
    });
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!(time(Duration::ZERO), "0ms");
        assert_eq!(time(Duration::from_millis(300)), "300ms");
        assert_eq!(time(Duration::from_millis(30_200)), "30.2s");
        assert_eq!(seconds(Duration::from_millis(30_200)), "30.200");
    }

    #[test]
    fn what_was_found_cannot_steer_a_terminal() {
        assert_eq!(safe("a\u{1b}[2J"), "a\\u{1b}[2J");
    }
}
