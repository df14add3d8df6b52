//! The test cases of jq and jaq. `tests/data/*.test` are theirs; `excluded.txt` names those that do
//! not hold here, each with its reason, and a case that is named there must not hold.

use std::collections::BTreeMap;

use bytes::Bytes;
use expr::{Expression, Limits, Value, json};

use super::support::World;

struct Case {
    name: String,
    program: String,
    input: String,
    outputs: Vec<String>,
}

/// Cases are a program, an input and outputs up to a blank line; `%%FAIL` cases say what must not
/// compile.
fn cases(name: &str, text: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let case_name = format!("{name}:{}", number + 1);
        let fails = line.starts_with("%%FAIL");
        let program = match fails {
            true => lines.next().map(|it| it.1).unwrap_or_default(),
            false => line,
        };
        let mut rest: Vec<String> = Vec::new();
        while let Some((_, line)) = lines.next_if(|it| !it.1.trim().is_empty()) {
            if !line.starts_with('#') {
                rest.push(line.to_owned());
            }
        }
        let input = if fails || rest.is_empty() {
            "%%FAIL".to_owned()
        } else {
            rest.remove(0)
        };
        cases.push(Case {
            name: case_name,
            program: program.to_owned(),
            input,
            outputs: rest,
        });
    }
    cases
}

fn parsed(text: &str) -> Result<Value, String> {
    let text = text.trim_start_matches('\u{feff}');
    let text = Bytes::copy_from_slice(text.as_bytes());
    json::parse(&text, 512).map_err(|error| format!("{error}"))
}

fn holds(case: &Case) -> Result<(), String> {
    let compiled = Expression::compile(&case.program, &World);
    if case.input == "%%FAIL" {
        return compiled.map_or(Ok(()), |_| Err("it compiled".to_owned()));
    }
    let compiled = compiled.map_err(|errors| errors[0].to_string())?;
    let input = parsed(&case.input)?;
    let (results, outcome) = compiled.evaluate_all(&input, &World, &Limits::default());
    let expected = case.outputs.iter().map(|it| parsed(it));
    let expected = expected.collect::<Result<Vec<_>, _>>()?;
    if results == expected {
        return Ok(());
    }
    let shown: Vec<String> = results.iter().map(ToString::to_string).collect();
    let error = outcome.err().map(|error| error.to_string());
    Err(format!(
        "gave {} {}",
        shown.join(" "),
        error.unwrap_or_default()
    ))
}

#[test]
fn the_cases_of_jq_and_jaq_hold() {
    let suites = [
        ("jq", include_str!("../data/jq.test")),
        ("onig", include_str!("../data/onig.test")),
        ("base64", include_str!("../data/base64.test")),
        ("jaq", include_str!("../data/jaq.test")),
    ];
    let excluded: BTreeMap<&str, &str> = include_str!("../data/excluded.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .collect();
    let mut wrong = Vec::new();
    let (mut count, mut seen) = (0, 0);
    for (name, text) in suites {
        for case in cases(name, text) {
            count += 1;
            let reason = excluded.get(case.name.as_str());
            seen += usize::from(reason.is_some());
            match (holds(&case), reason) {
                (Err(error), None) => {
                    wrong.push(format!(
                        "{} {} | {} -> {error}",
                        case.name, case.program, case.input
                    ));
                }
                (Ok(()), Some(_)) => wrong.push(format!("{} is excluded and holds", case.name)),
                _ => {}
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert_eq!(seen, excluded.len(), "excluded cases that do not exist");
    assert!(count > 800, "{count}");
}
