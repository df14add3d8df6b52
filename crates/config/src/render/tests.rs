//! Reports as people and programs read them.

use super::*;
use crate::{codes, parse};

fn sources(text: &str) -> (Sources, SourceId) {
    let mut sources = Sources::default();
    let id = sources
        .add("dir/flow.yaml", text.as_bytes(), &mut Report::default())
        .unwrap();
    (sources, id)
}

#[test]
fn a_problem_shows_its_line_with_a_caret_and_a_hint() {
    let (sources, source) = sources("flow: ä\nform: x\n");
    let mut report = Report::default();
    let span = Span {
        source,
        start: 9,
        end: 13,
    };
    report
        .error(codes::UNKNOWN_KEY, span, "unknown key `form`")
        .hint("did you mean `from`?")
        .also(
            Span {
                source,
                start: 0,
                end: 4,
            },
            "in this flow",
        );
    let expected = "\
error[IT0111]: unknown key `form`
 --> dir/flow.yaml:2:1
  |
2 | form: x
  | ^^^^
  |
 ::: dir/flow.yaml:1:1
  |
1 | flow: ä
  | ---- in this flow
  |
  = help: did you mean `from`?

1 error in 1 file
";
    assert_eq!(report.render(&sources, false), expected);
    assert!(
        report.render(&sources, true).contains("\u{1b}["),
        "colors are asked for"
    );
    let line: serde_json::Value = serde_json::from_str(&report.render_json(&sources)).unwrap();
    assert_eq!(line["file"], "dir/flow.yaml");
    assert_eq!((&line["line"], &line["column"]), (&2.into(), &1.into()));
    assert_eq!(line["related"][0]["message"], "in this flow");
}

#[test]
fn long_lines_and_many_problems_are_cut() {
    let text = format!("a: \"{}\" b\n", "x".repeat(100_000));
    let (sources, source) = sources(&text);
    let mut report = Report::default();
    parse(&sources, source, &mut report);
    assert!(report.has_errors());
    assert!(report.render(&sources, false).len() < 2000);
    let mut report = Report::default();
    for start in 0..1000 {
        report.error(
            codes::SYNTAX,
            Span {
                source,
                start,
                end: start + 1,
            },
            "odd",
        );
    }
    let text = report.render(&sources, false);
    assert!(text.contains("and 900 more") && text.contains("1000 errors in 1 file"));
}

#[test]
fn control_characters_are_made_visible() {
    let (sources, source) = sources("a: b\u{1b}[31m\n");
    let mut report = Report::default();
    report.error(
        codes::SYNTAX,
        Span {
            source,
            start: 0,
            end: 9,
        },
        "odd \u{7} text\u{1b}[31m",
    );
    let text = report.render(&sources, false);
    assert!(
        !text.contains('\u{1b}') && !text.contains('\u{7}'),
        "{text:?}"
    );
}
