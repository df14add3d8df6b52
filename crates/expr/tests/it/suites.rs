//! The test cases of jq, gojq and jaq. `tests/data/*.test` and `gojq.json` are theirs: the latter
//! has those of gojq's `cli/test.yaml` of April 2026 that have no flags but `-c`, `-n` and `-M` and
//! need no files. `excluded.txt` names the cases that fail here, each with its reason. A case that
//! is named there and passes fails the test, so that the list stays true.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use expr::{Expression, Limits, Value, json};

use super::support::{World, assert_published};

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

/// A case of gojq: a program, inputs, and what it writes before it fails or ends.
#[derive(Debug)]
struct GojqCase {
    name: String,
    program: String,
    inputs: Vec<String>,
    outputs: Vec<String>,
    fails: bool,
}

fn gojq_cases(text: &str) -> Vec<GojqCase> {
    let cases: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
    let text = |it: &serde_json::Value| it.as_str().unwrap().to_owned();
    let texts = |it: &serde_json::Value| it.as_array().unwrap().iter().map(text).collect();
    let cases = cases.iter().map(|case| GojqCase {
        name: format!("gojq:{}", text(&case["name"]).replace(' ', "-")),
        program: text(&case["program"]),
        inputs: texts(&case["inputs"]),
        outputs: texts(&case["outputs"]),
        fails: case["fails"].as_bool().unwrap(),
    });
    cases.collect()
}

/// All results of a program for inputs one after another, and whether it failed.
fn gojq_run(case: &GojqCase) -> (Vec<Value>, Option<String>) {
    let mut all = Vec::new();
    let compiled = match Expression::compile(&case.program, &World) {
        Ok(compiled) => compiled,
        Err(errors) => return (all, Some(errors[0].to_string())),
    };
    for input in &case.inputs {
        let input = match parsed(input) {
            Ok(input) => input,
            Err(error) => return (all, Some(error)),
        };
        let (results, outcome) = compiled.evaluate_all(&input, &World, &Limits::default());
        all.extend(results);
        if let Err(error) = outcome {
            return (all, Some(error.to_string()));
        }
    }
    (all, None)
}

fn gojq_holds(case: &GojqCase) -> Result<(), String> {
    let (results, error) = gojq_run(case);
    let expected = case.outputs.iter().map(|it| parsed(it));
    let expected = expected.collect::<Result<Vec<_>, _>>()?;
    if results == expected && error.is_some() == case.fails {
        return Ok(());
    }
    let shown: Vec<String> = results.iter().map(ToString::to_string).collect();
    Err(format!("gave {} {error:?}", shown.join(" ")))
}

/// The cases that are expected to fail, each by its name with the reason, and which of them have
/// been run.
struct Excluded<'a> {
    reasons: BTreeMap<&'a str, &'a str>,
    seen: BTreeSet<String>,
    wrong: Vec<String>,
}

impl<'a> Excluded<'a> {
    fn read(text: &'a str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self {
            reasons: lines.filter_map(|line| line.split_once(' ')).collect(),
            seen: BTreeSet::new(),
            wrong: Vec::new(),
        }
    }

    /// Counts one case; says whether it holds.
    fn case(&mut self, name: &str, program: &str, outcome: Result<(), String>) -> usize {
        let reason = self.reasons.get(name);
        if reason.is_some() {
            self.seen.insert(name.to_owned());
        }
        match (&outcome, reason) {
            (Err(error), None) => self.wrong.push(format!("{name} {program} -> {error}")),
            (Ok(()), Some(_)) => self.wrong.push(format!("{name} is excluded and holds")),
            // Shown by `cargo test -p expr --test it suites -- --nocapture`.
            (Err(error), Some(reason)) => println!("{name} {reason}: {program} -> {error}"),
            (Ok(()), None) => {}
        }
        usize::from(outcome.is_ok())
    }
}

const SUITES: [(&str, &str); 8] = [
    ("jq", include_str!("../data/jq.test")),
    ("man", include_str!("../data/man.test")),
    ("manonig", include_str!("../data/manonig.test")),
    ("onig", include_str!("../data/onig.test")),
    ("uri", include_str!("../data/uri.test")),
    ("optional", include_str!("../data/optional.test")),
    ("base64", include_str!("../data/base64.test")),
    ("jaq", include_str!("../data/jaq.test")),
];

#[test]
fn the_cases_of_jq_gojq_and_jaq_hold() {
    let mut excluded = Excluded::read(include_str!("../data/excluded.txt"));
    let mut rates = Vec::new();
    for (name, text) in SUITES {
        let cases = cases(name, text);
        let hold = cases.iter().map(|it| {
            let program = format!("{} | {}", it.program, it.input);
            excluded.case(&it.name, &program, holds(it))
        });
        rates.push((name, hold.sum::<usize>(), cases.len()));
    }
    let cases = gojq_cases(include_str!("../data/gojq.json"));
    let hold = cases.iter().map(|it| {
        let program = format!("{} | {}", it.program, it.inputs.join(" "));
        excluded.case(&it.name, &program, gojq_holds(it))
    });
    rates.push(("gojq", hold.sum(), cases.len()));
    let all: usize = rates.iter().map(|(.., all)| all).sum();
    let (wrong, listed) = (&excluded.wrong, excluded.reasons.len());
    assert!(
        wrong.is_empty(),
        "{} of {all}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert_eq!(
        excluded.seen.len(),
        listed,
        "excluded cases that do not exist"
    );
    assert!(all > 1_900, "{all}");
    let holding = rates.iter().map(|(_, hold, _)| hold).sum();
    for (name, hold, all) in rates {
        assert_published(name, hold, all);
    }
    assert_published("all of jq", holding, all);
}
