//! What differs between two values or texts, line by line.

use expr::Value;
use expr::value;

/// How many equal lines are shown around those that differ.
const AROUND: usize = 2;
/// Above this many pairs of lines no longest common part is looked for.
const PAIRS_MAX: usize = 1_000_000;

/// A line of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// In both.
    Same(String),
    /// Only expected.
    Expected(String),
    /// Only found.
    Found(String),
    /// Equal lines are left out here.
    Gap,
    /// Something to be said beside.
    Note(String),
}

/// The lines of two texts, those that are equal and far from a difference left out.
pub(super) fn texts(expected: &str, found: &str) -> Vec<Line> {
    let expected: Vec<&str> = expected.split('\n').collect();
    let found: Vec<&str> = found.split('\n').collect();
    shorten(align(&expected, &found))
}

/// The lines of two values, written as JSON with their members in order.
pub(super) fn values(expected: &Value, found: &Value) -> Vec<Line> {
    let found = spelled_as(expected, found);
    texts(&pretty(expected), &pretty(&found))
}

/// All lines of both in order, by the longest common part.
fn align(expected: &[&str], found: &[&str]) -> Vec<Line> {
    let start = expected.iter().zip(found).take_while(|(a, b)| a == b);
    let start = start.count();
    let (head, expected) = expected.split_at(start);
    let found = found.get(start..).unwrap_or_default();
    let ends = expected.iter().rev().zip(found.iter().rev());
    let end = ends.take_while(|(a, b)| a == b).count();
    let (expected, tail) = expected.split_at(expected.len() - end);
    let found = found.get(..found.len() - end).unwrap_or_default();
    let same = |line: &&str| Line::Same((*line).to_owned());
    let mut lines: Vec<Line> = head.iter().map(same).collect();
    lines.extend(middle(expected, found));
    lines.extend(tail.iter().map(same));
    lines
}

fn middle(expected: &[&str], found: &[&str]) -> Vec<Line> {
    let width = found.len() + 1;
    if expected.len() * found.len() > PAIRS_MAX {
        let expected = expected.iter().map(|it| Line::Expected((*it).to_owned()));
        let found = found.iter().map(|it| Line::Found((*it).to_owned()));
        return expected.chain(found).collect();
    }
    // The length of the longest common part of what is left from each pair of lines on.
    let mut common = vec![0u32; (expected.len() + 1) * width];
    let at = |row: usize, column: usize| row * width + column;
    for row in (0..expected.len()).rev() {
        for column in (0..found.len()).rev() {
            common[at(row, column)] = if expected[row] == found[column] {
                common[at(row + 1, column + 1)] + 1
            } else {
                common[at(row + 1, column)].max(common[at(row, column + 1)])
            };
        }
    }
    let (mut row, mut column) = (0, 0);
    let mut lines = Vec::new();
    while let (Some(left), right) = (expected.get(row), found.get(column)) {
        if right == Some(left) {
            lines.push(Line::Same((*left).to_owned()));
            (row, column) = (row + 1, column + 1);
            continue;
        }
        match right {
            Some(right) if common[at(row + 1, column)] < common[at(row, column + 1)] => {
                lines.push(Line::Found((*right).to_owned()));
                column += 1;
            }
            _ => {
                lines.push(Line::Expected((*left).to_owned()));
                row += 1;
            }
        }
    }
    let rest = found.get(column..).unwrap_or_default();
    lines.extend(rest.iter().map(|it| Line::Found((*it).to_owned())));
    lines
}

/// Leaves equal lines out that are far from a difference.
fn shorten(lines: Vec<Line>) -> Vec<Line> {
    let is_same: Vec<bool> = lines.iter().map(|it| matches!(it, Line::Same(_))).collect();
    let is_near = |at: usize| {
        let from = at.saturating_sub(AROUND);
        let to = (at + AROUND + 1).min(is_same.len());
        is_same
            .get(from..to)
            .is_some_and(|near| near.contains(&false))
    };
    let mut shown = Vec::new();
    for (at, line) in lines.into_iter().enumerate() {
        if is_near(at) {
            shown.push(line);
        } else if shown.last() != Some(&Line::Gap) {
            shown.push(Line::Gap);
        }
    }
    shown
}

/// A value as it was found, with what is equal to what was expected spelled in the same way: `1.0`
/// and `1` are equal, and no difference to be shown.
fn spelled_as(expected: &Value, found: &Value) -> Value {
    if expected == found {
        return expected.clone();
    }
    match (expected, found) {
        (Value::Arr(left), Value::Arr(right)) => {
            let items = right
                .iter()
                .enumerate()
                .map(|(at, item)| match left.get(at) {
                    Some(left) => spelled_as(left, item),
                    None => item.clone(),
                });
            value::array(items)
        }
        (Value::Obj(_), Value::Obj(_)) => {
            let members = value::members(found).into_iter().flatten();
            let members = members.map(|(key, member)| {
                let member = match value::get(expected, key) {
                    Some(left) => spelled_as(left, member),
                    None => member.clone(),
                };
                (key.to_owned(), member)
            });
            value::object(members)
        }
        _ => found.clone(),
    }
}

/// A value as JSON with a line for each member, in the order of their names.
pub(super) fn pretty(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, &mut text);
    text
}

fn write(value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth + 1);
    let end = "  ".repeat(depth);
    match value {
        Value::Arr(items) if !items.is_empty() => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "\n" } else { ",\n" });
                out.push_str(&indent);
                write(item, depth + 1, out);
            }
            out.push_str(&format!("\n{end}]"));
        }
        Value::Obj(members) if !members.is_empty() => {
            let mut members: Vec<_> = value::members(value).into_iter().flatten().collect();
            members.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (at, (key, member)) in members.into_iter().enumerate() {
                out.push_str(if at == 0 { "\n" } else { ",\n" });
                out.push_str(&format!("{indent}{}: ", quoted(key)));
                write(member, depth + 1, out);
            }
            out.push_str(&format!("\n{end}}}"));
        }
        Value::TStr(_) => match value::as_text(value) {
            Some(text) => out.push_str(&quoted(text)),
            None => out.push_str(&value::shown(value)),
        },
        other => match value::scalar_text(other) {
            Some(text) => out.push_str(&text),
            None => out.push_str(&value::shown(other)),
        },
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Value {
        expr::json::parse(&bytes::Bytes::copy_from_slice(text.as_bytes()), 64).unwrap()
    }

    fn shown(lines: &[Line]) -> Vec<String> {
        let lines = lines.iter().map(|line| match line {
            Line::Same(text) => format!("  {text}"),
            Line::Expected(text) => format!("- {text}"),
            Line::Found(text) => format!("+ {text}"),
            Line::Gap => "...".to_owned(),
            Line::Note(text) => text.clone(),
        });
        lines.collect()
    }

    #[test]
    fn only_what_differs_is_shown() {
        let expected = json(r#"{"a": 1, "b": 2, "c": 3, "d": [1, 2], "e": "x", "z": 1.50}"#);
        let found = json(r#"{"z": 1.5, "a": 1.0, "b": 2, "c": 3, "d": [1, 2, 3], "e": "x"}"#);
        let lines = shown(&values(&expected, &found));
        let expected = [
            "...",
            "    \"d\": [",
            "      1,",
            "-     2",
            "+     2,",
            "+     3",
            "    ],",
            "    \"e\": \"x\",",
            "...",
        ];
        assert_eq!(lines, expected);
        assert_eq!(shown(&values(&json("1"), &json("2"))), ["- 1", "+ 2"]);
    }

    #[test]
    fn lines_are_aligned() {
        let lines = texts("a\nb\nc\nd", "a\nc\nx\nd");
        assert_eq!(shown(&lines), ["  a", "- b", "  c", "+ x", "  d"]);
        assert_eq!(shown(&texts("a", "a\nb")), ["  a", "+ b"]);
        assert_eq!(shown(&texts("a", "b")), ["- a", "+ b"]);
        assert_eq!(shown(&texts("", "b\na")), ["- ", "+ b", "+ a"]);
    }

    #[test]
    fn nothing_breaks_a_line() {
        assert_eq!(pretty(&json(r#"["a\nb"]"#)), "[\n  \"a\\nb\"\n]");
        assert_eq!(pretty(&json("{}")), "{}");
    }
}
