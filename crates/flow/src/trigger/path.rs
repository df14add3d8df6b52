//! Path patterns: `/orders`, `/orders/{id}`, `/files/*`.

use component::text::check_segment;
use component::trigger::{PathPattern, Segment};

use crate::codes::BAD_PATH;
use crate::problem::Problem;

/// Reads a path pattern.
pub(super) fn parse(text: &str) -> Result<PathPattern, Vec<Problem>> {
    let Some(inner) = text.strip_prefix('/') else {
        return Err(vec![Problem::new(BAD_PATH, "a path begins with `/`")]);
    };
    if let Some(mark) = text
        .chars()
        .find(|character| matches!(character, '?' | '#'))
    {
        let part = if mark == '?' { "query" } else { "fragment" };
        let problem = Problem::new(BAD_PATH, format!("a path pattern has no {part}"));
        return Err(vec![
            problem.with_hint(format!("leave out `{mark}` and what follows it")),
        ]);
    }
    let mut pattern = PathPattern {
        segments: Vec::new(),
        rest: false,
    };
    let mut problems = Vec::new();
    let mut segments = inner.split('/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match read_segment(segment, is_last, &pattern.segments) {
            Ok(Part::Segment(segment)) => pattern.segments.push(segment),
            Ok(Part::Rest) => pattern.rest = true,
            Err(problem) => problems.push(problem),
        }
    }
    if matches!(pattern.segments.as_slice(), [Segment::Literal(text)] if text.is_empty()) {
        pattern.segments.clear();
    }
    if problems.is_empty() {
        Ok(pattern)
    } else {
        Err(problems)
    }
}

enum Part {
    Segment(Segment),
    Rest,
}

fn read_segment(text: &str, is_last: bool, before: &[Segment]) -> Result<Part, Problem> {
    match text {
        "*" if is_last => return Ok(Part::Rest),
        "*" => {
            let problem = Problem::new(BAD_PATH, "`*` is not the last segment");
            return Err(problem.with_hint("for one segment write `{name}`; `*` takes all the rest"));
        }
        "" if !is_last => return Err(Problem::new(BAD_PATH, "an empty segment in the path")),
        _ => {}
    }
    if text.contains(['{', '}']) {
        return read_parameter(text, before).map(Part::Segment);
    }
    if text.contains('*') {
        let problem = Problem::new(BAD_PATH, format!("`{}` holds a `*`", text.escape_debug()));
        return Err(problem.with_hint("`*` stands alone as the last segment"));
    }
    check_segment(text).map_err(|error| Problem::of_text(BAD_PATH, error))?;
    Ok(Part::Segment(Segment::Literal(text.to_owned())))
}

fn read_parameter(text: &str, before: &[Segment]) -> Result<Segment, Problem> {
    let shown = text.escape_debug();
    let name = text
        .strip_prefix('{')
        .and_then(|inner| inner.strip_suffix('}'))
        .filter(|name| !name.contains(['{', '}']));
    let Some(name) = name else {
        let problem = Problem::new(BAD_PATH, format!("`{shown}` is not a whole `{{name}}`"));
        return Err(problem.with_hint("a parameter fills its segment, as in `/orders/{id}`"));
    };
    if name.is_empty() {
        return Err(Problem::new(BAD_PATH, "the parameter `{}` has no name"));
    }
    if !is_parameter_name(name) {
        let problem = Problem::new(BAD_PATH, format!("`{shown}` is not a parameter"));
        let hint = "a name has letters, digits and `_`; all the rest of a path is `*`";
        return Err(problem.with_hint(hint));
    }
    if name == "rest" {
        let problem = Problem::new(BAD_PATH, "the parameter name `rest` belongs to `*`");
        return Err(problem.with_hint("choose another name"));
    }
    if before
        .iter()
        .any(|segment| matches!(segment, Segment::Parameter(other) if other == name))
    {
        return Err(Problem::new(
            BAD_PATH,
            format!("the parameter `{shown}` stands twice"),
        ));
    }
    Ok(Segment::Parameter(name.to_owned()))
}

fn is_parameter_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_read_back_as_they_were_written() {
        let patterns = [
            "/",
            "/a",
            "/a/",
            "/a/b.c",
            "/*",
            "/a/*",
            "/{id}",
            "/a/{id}/b",
            "/{a}/{b_2}/*",
            "/%7Ex",
            "/a:b@c;d=e",
            "/a/{id}/",
        ];
        for text in patterns {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        assert!(parse("/").unwrap().segments.is_empty());
        assert_eq!(parse("/a/").unwrap().segments.len(), 2);
    }

    #[test]
    fn what_is_wrong_is_told() {
        let cases = [
            ("", "a path begins with `/`"),
            ("a", "a path begins with `/`"),
            ("/a?b", "a path pattern has no query"),
            ("/a#b", "a path pattern has no fragment"),
            ("/*/a", "`*` is not the last segment"),
            ("/a*", "`a*` holds a `*`"),
            ("/**", "`**` holds a `*`"),
            ("//", "an empty segment in the path"),
            ("/a//b", "an empty segment in the path"),
            ("/{a", "`{a` is not a whole `{name}`"),
            ("/a}", "`a}` is not a whole `{name}`"),
            ("/a{b}", "`a{b}` is not a whole `{name}`"),
            ("/{a}{b}", "`{a}{b}` is not a whole `{name}`"),
            ("/{}", "the parameter `{}` has no name"),
            ("/{1}", "`{1}` is not a parameter"),
            ("/{a-b}", "`{a-b}` is not a parameter"),
            ("/{*x}", "`{*x}` is not a parameter"),
            ("/{rest}", "the parameter name `rest` belongs to `*`"),
            ("/{a}/{a}", "the parameter `{a}` stands twice"),
            ("/a b", "` ` is not allowed in the path"),
            ("/a/../b", "`..` as a segment of the path"),
            ("/%zz", "malformed percent-encoding in the path"),
            ("/é", "`é` is not allowed in the path"),
        ];
        for (text, message) in cases {
            let problems = parse(text).expect_err(text);
            assert_eq!(problems[0].message, message, "{text}");
        }
        assert_eq!(parse("/a b/%/{}/..").unwrap_err().len(), 4);
    }
}
