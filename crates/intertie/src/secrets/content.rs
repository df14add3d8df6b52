//! What is in the encrypted file: YAML, a mapping of names to texts.

use std::collections::BTreeMap;

use config::{Node, Report, Secrets, Sources};
use serde_json::Value as Json;

use super::{NAME_RULE, Problem};

/// Reads the mapping. What is wrong is told by line, never by content.
pub(super) fn parse(text: &str) -> Result<BTreeMap<String, String>, Problem> {
    let (mut sources, mut report) = (Sources::default(), Report::default());
    let id = sources.add("", text.as_bytes(), &mut report);
    let documents = id.map(|id| config::parse(&sources, id, &mut report));
    let line = |span: config::Span| sources.position(span.source, span.start).0;
    if let Some(problem) = report.diagnostics().first() {
        let code = problem.code();
        let known = config::codes::ALL.iter().find(|info| info.code == code);
        let title = known.map_or("it cannot be read", |info| info.title);
        let place = problem.span().map_or(0, line);
        let message = format!("line {place} of its content: {title}");
        return Err(Problem::new(message, SHAPE));
    }
    let document = match documents.as_deref().unwrap_or_default() {
        [] => return Ok(BTreeMap::new()),
        [one] => one,
        [_, second, ..] => {
            let line = line(second.span);
            let message = format!("line {line} of its content: a second document");
            return Err(Problem::new(message, SHAPE));
        }
    };
    let entries = document
        .as_mapping()
        .ok_or_else(|| Problem::new("its content is not a mapping", SHAPE))?;
    let values = entries.iter().map(|entry| {
        let place = format!("line {} of its content", line(entry.key_span));
        let Some(name) = Some(&entry.key).filter(|name| Secrets::is_name(name)) else {
            let message = format!("{place}: the key cannot be the name of a secret");
            return Err(Problem::new(message, NAME_RULE));
        };
        let value = Node::as_str(&entry.value).ok_or_else(|| {
            let message = format!("{place}: the value is {}", entry.value.type_name());
            Problem::new(message, "put the value between quotes")
        })?;
        Ok((name.clone(), value.to_owned()))
    });
    values.collect()
}

const SHAPE: &str =
    "its content is a mapping such as `CRM_TOKEN: \"value\"`, a line for each secret";

/// The mapping as YAML that [`parse`] reads: a line for each secret.
pub(super) fn print(values: &BTreeMap<String, String>) -> String {
    // Every JSON string is a YAML one.
    let line = |(name, value): (&String, &String)| {
        let quote = if name.eq_ignore_ascii_case("null") {
            "\""
        } else {
            ""
        };
        format!("{quote}{name}{quote}: {}\n", Json::from(&**value))
    };
    values.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_again() {
        let values = [
            "plain",
            "a\nb\\\"'\t",
            "é\u{7f}\u{1f600}\u{2028}",
            "null",
            "1",
            "${ .a }: #",
        ];
        let values = values.iter().enumerate();
        let values: BTreeMap<String, String> = values
            .map(|(at, value)| (format!("N{at}.x-y"), (*value).to_owned()))
            .chain(["null", "true", "y"].map(|name| (name.to_owned(), "text".to_owned())))
            .collect();
        assert_eq!(parse(&print(&values)).unwrap(), values);
        assert_eq!(parse("").unwrap(), BTreeMap::new());
        assert_eq!(parse("{\"A\": \"b\"}").unwrap()["A"], "b");
    }

    #[test]
    fn what_is_wrong_is_told_without_content() {
        for (text, expected) in [
            (
                "A: hidden\nA: hidden",
                "line 2 of its content: duplicate key",
            ),
            ("A: 'hidden", "line 1 of its content: the file is not YAML"),
            (
                "A: hidden\n---\nB: hidden",
                "line 3 of its content: a second document",
            ),
            ("- hidden", "its content is not a mapping"),
            (
                "hidden a: x",
                "line 1 of its content: the key cannot be the name of a secret",
            ),
            (
                "B: hidden\nA: 12345",
                "line 2 of its content: the value is a number",
            ),
            ("A: [hidden]", "line 1 of its content: the value is a list"),
        ] {
            assert_eq!(parse(text).unwrap_err().message, expected, "{text}");
        }
    }
}
