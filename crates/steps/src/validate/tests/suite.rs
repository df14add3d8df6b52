//! The JSON-Schema-Test-Suite: the required tests of all drafts that are supported, and those of
//! formats. What fails is listed with a reason in `exceptions.txt`, and what is listed fails.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::super::check::{Schema, Slice};
use super::super::compile;

const CASES: &str = include_str!("../../../tests/data/json-schema/cases.jsonl");
const EXCEPTIONS: &str = include_str!("../../../tests/data/json-schema/exceptions.txt");
const PAGE: &str = include_str!("../../../../../docs/conformance.md");

/// A schema and what is tried with it, as `cases.jsonl` has them: one a line, equal ones of several
/// drafts once.
#[derive(Deserialize)]
struct Group {
    drafts: Vec<String>,
    file: String,
    group: String,
    schema: Value,
    /// Description, instance, and whether it is valid.
    tests: Vec<(String, Value, bool)>,
}

/// `DRAFT | FILE | GROUP | TEST`; a test `*` is all tests of the group.
type Name = String;

fn uri(draft: &str) -> &'static str {
    match draft {
        "4" => "http://json-schema.org/draft-04/schema#",
        "6" => "http://json-schema.org/draft-06/schema#",
        "7" => "http://json-schema.org/draft-07/schema#",
        "2019-09" => "https://json-schema.org/draft/2019-09/schema",
        "2020-12" => "https://json-schema.org/draft/2020-12/schema",
        other => panic!("{other}"),
    }
}

/// The tests of a group that fail under a draft.
fn failures(group: &Group, draft: &str) -> Vec<Name> {
    let name = |test: &str| format!("{draft} | {} | {} | {test}", group.file, group.group);
    let mut schema = group.schema.clone();
    if let Value::Object(members) = &mut schema {
        let entry = members.entry("$schema");
        entry.or_insert_with(|| uri(draft).into());
    }
    let Ok(compiled) = compile(&schema) else {
        return vec![name("*")];
    };
    let schema = Schema {
        validator: compiled.validator,
        has_slow_patterns: compiled.has_slow_patterns,
        errors_max: 10,
    };
    let failed = group.tests.iter().filter(|(_, instance, is_valid)| {
        schema.check(instance, Slice::WHOLE).map(|it| it.is_ok()) != Some(*is_valid)
    });
    let failed: Vec<Name> = failed.map(|(test, ..)| name(test)).collect();
    match failed.len() > 1 && failed.len() == group.tests.len() {
        true => vec![name("*")],
        false => failed,
    }
}

#[test]
fn the_suite_passes_but_for_what_is_listed() {
    let listed = EXCEPTIONS.lines().filter(|it| !it.starts_with('#'));
    let mut reason = "";
    let mut expected = BTreeSet::new();
    for line in listed.map(str::trim).filter(|it| !it.is_empty()) {
        match line.strip_prefix("reason: ") {
            Some(text) => reason = text,
            None => {
                assert!(!reason.is_empty(), "no reason for {line}");
                assert!(expected.insert(line.to_owned()), "{line} stands twice");
            }
        }
    }
    let mut found = BTreeSet::new();
    let mut counts: BTreeMap<(String, bool), (usize, usize)> = BTreeMap::new();
    for line in CASES.lines() {
        let group: Group = serde_json::from_str(line).unwrap();
        for draft in &group.drafts {
            let failed = failures(&group, draft);
            let whole = failed.iter().any(|it| it.ends_with(" | *"));
            let count = if whole {
                group.tests.len()
            } else {
                failed.len()
            };
            let key = (draft.clone(), group.file.starts_with("format/"));
            let (passed, all) = counts.entry(key).or_default();
            *passed += group.tests.len() - count;
            *all += group.tests.len();
            found.extend(failed);
        }
    }
    let mut unpublished = Vec::new();
    for ((draft, is_format), (passed, all)) in &counts {
        let kind = if *is_format { "formats" } else { "required" };
        let row = format!("| draft {draft}, {kind} | {passed} of {all} |");
        println!("{row}");
        if !PAGE.contains(&row) {
            unpublished.push(row);
        }
    }
    let new: Vec<&Name> = found.difference(&expected).collect();
    let gone: Vec<&Name> = expected.difference(&found).collect();
    assert!(new.is_empty(), "these fail and are not listed:\n{new:#?}");
    assert!(gone.is_empty(), "these pass and are listed:\n{gone:#?}");
    let page = "docs/conformance.md";
    assert!(unpublished.is_empty(), "{page} says not: {unpublished:#?}");
}
