//! JUnit XML, as build servers read it: a suite for each flow.

use std::fmt::Write;

use super::report::{plain, seconds};
use super::suite::CaseResult;
use config::Sources;

/// The document of all results.
pub(super) fn document(results: &[CaseResult], sources: &Sources) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    push_open(&mut text, "<testsuites", "", results);
    let mut flows: Vec<&str> = Vec::new();
    for result in results {
        if !flows.contains(&&*result.flow) {
            flows.push(&result.flow);
        }
    }
    for flow in flows {
        let of_flow: Vec<&CaseResult> = results.iter().filter(|it| *it.flow == *flow).collect();
        push_open(&mut text, "  <testsuite", flow, of_flow.iter().copied());
        for result in of_flow {
            push_case(&mut text, result, sources);
        }
        text.push_str("  </testsuite>\n");
    }
    text.push_str("</testsuites>\n");
    text
}

fn push_open<'r>(
    text: &mut String,
    element: &str,
    name: &str,
    results: impl IntoIterator<Item = &'r CaseResult>,
) {
    let (mut tests, mut failures, mut time) = (0, 0, std::time::Duration::ZERO);
    for result in results {
        tests += 1;
        failures += usize::from(!result.failures.is_empty());
        time += result.took;
    }
    let name = match name {
        "" => String::new(),
        name => format!(" name=\"{}\"", escaped(name)),
    };
    let time = seconds(time);
    let line = format!(
        "{element}{name} tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" time=\"{time}\">\n"
    );
    text.push_str(&line);
}

fn push_case(text: &mut String, result: &CaseResult, sources: &Sources) {
    let (name, class) = (escaped(&result.name), escaped(&result.flow));
    let file = escaped(sources.name(result.span.source));
    let (line, _) = sources.position(result.span.source, result.span.start);
    let time = seconds(result.took);
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "    <testcase name=\"{name}\" classname=\"{class}\" file=\"{file}\" line=\"{line}\" \
         time=\"{time}\""
    );
    if result.failures.is_empty() {
        text.push_str("/>\n");
        return;
    }
    text.push_str(">\n");
    for failure in &result.failures {
        let message = escaped(&failure.what);
        let shown = escaped(&plain(failure, sources));
        text.push_str(&format!(
            "      <failure message=\"{message}\">{shown}</failure>\n"
        ));
    }
    text.push_str("    </testcase>\n");
}

/// Text for XML: markup escaped, and what XML cannot hold (XML 1.0, section 2.2) replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ if character.is_control() => out.push('\u{fffd}'),
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        assert_eq!(
            escaped("<a b=\"1\">&\u{1b}[31m\n"),
            "&lt;a b=&quot;1&quot;&gt;&amp;\u{fffd}[31m&#10;"
        );
    }

    #[test]
    fn a_document_without_tests_is_one() {
        let document = document(&[], &Sources::default());
        assert!(
            document.contains("<testsuites tests=\"0\" failures=\"0\""),
            "{document}"
        );
        assert!(document.ends_with("</testsuites>\n"));
    }
}
