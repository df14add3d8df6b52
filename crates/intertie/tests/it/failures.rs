//! A step never fails silently: every failure that a step can have is forced by a test of a flow in
//! `tests/data/failures`, and no step of the table is missing there.

use std::fs;

use crate::support::{command, output, repository};

/// Steps that cannot fail the flow, and why.
const CANNOT: [(&str, &str); 1] = [(
    "wiretap",
    "its copies fail in the background, where they are logged and counted",
)];

#[test]
fn every_failure_of_every_step_is_told() {
    let folder = repository().join("crates/intertie/tests/data/failures");
    let result = command().arg("test").arg(&folder).output().unwrap();
    let text = String::from_utf8_lossy(&result.stdout);
    assert!(result.status.success(), "{text}");
    let mut files = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        files.push_str(&fs::read_to_string(entry.unwrap().path()).unwrap());
    }
    let listed = output(&["list"]);
    let listed = String::from_utf8_lossy(&listed.stdout);
    let steps = listed.split("steps:\n").nth(1).unwrap();
    let steps = steps.lines().take_while(|line| line.starts_with("  "));
    let mut checked = 0;
    for line in steps {
        let step = line.split_whitespace().next().unwrap();
        let is_forced =
            files.contains(&format!("({step})")) || files.contains(&format!("- {step}:"));
        let cannot = CANNOT.iter().any(|(known, _)| *known == step);
        assert!(is_forced || cannot, "no failure of `{step}` is forced");
        checked += 1;
    }
    assert!(checked >= 19, "{checked}");
}
