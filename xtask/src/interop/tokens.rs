//! The tokens of `crates/access/tests/it/attacks.rs` before two other libraries: what they take and
//! we refuse, or the other way round, must be on a list here with its reason, and everything on the
//! list must occur.

use std::collections::BTreeSet;
use std::path::Path;

use super::bench::Bench;
use super::report::{Outcome, Report};
use super::run::{Ran, run};
use super::tools;
use crate::command::{Failure, program};

const SECONDS: u32 = 120;

/// Who judges otherwise than we do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Jose,
    Joserfc,
    Both,
}

/// How the names of tokens begin, who judges them otherwise, and why we do as we do.
const DIFFERENCES: &[(&str, Who, &str)] = &[
    (
        "no kid:",
        Who::Joserfc,
        "it wants to be told the key; a few are tried here",
    ),
    (
        "an extension:",
        Who::Both,
        "none is known, however it is announced (RFC 7515, 4.1.11)",
    ),
    (
        "not one object:",
        Who::Both,
        "two readers would see two headers (RFC 7515, 4)",
    ),
    (
        "two subjects",
        Who::Both,
        "two readers would see two callers (RFC 7519, 4)",
    ),
    (
        "another kind:",
        Who::Both,
        "no other kind is an access token (RFC 8725, 3.11)",
    ),
    (
        "claims {\"events\"",
        Who::Both,
        "logout and security events are no access tokens",
    ),
    (
        "padding at the end",
        Who::Jose,
        "base64url has no padding (RFC 7515, 2)",
    ),
    (
        "a line break",
        Who::Jose,
        "base64url has no line breaks (RFC 7515, 2)",
    ),
    (
        "a tab behind",
        Who::Jose,
        "base64url has no white space (RFC 7515, 2)",
    ),
    (
        "bits that no byte has",
        Who::Jose,
        "bytes have one spelling (RFC 4648, 3.5)",
    ),
    (
        "claims {\"exp\"",
        Who::Both,
        "a time later than the year 9999 is no end",
    ),
    (
        "exp is above every number",
        Who::Jose,
        "it is no number that anybody can hold",
    ),
    ("claims {\"nbf\"", Who::Both, "a time before 1970 is none"),
    (
        "claims {\"iat\"",
        Who::Both,
        "a time before 1970, or to come, is none",
    ),
    (
        "claims {\"aud\"",
        Who::Jose,
        "an audience is a text (RFC 7519, 4.1.3)",
    ),
    (
        "claims {\"sub\"",
        Who::Jose,
        "a subject is a text (RFC 7519, 4.1.2)",
    ),
    (
        "claims {\"jti\"",
        Who::Jose,
        "an identifier is a text (RFC 7519, 4.1.7)",
    ),
    (
        "claims {\"cnf\"",
        Who::Both,
        "the token is its holder's, not a bearer's (RFC 7800)",
    ),
];

/// A token: its name, and whether we and another library take it.
#[derive(Clone, Debug)]
struct Judged {
    name: String,
    ours: bool,
    theirs: bool,
}

/// Has both judge the list.
pub fn check(bench: &Bench, report: &mut Report) {
    let file = bench.file("attacks.json");
    if let Err(failure) = write_list(&file) {
        return report.add("tokens", Err(failure));
    }
    let judged = jose(bench, &file).and_then(|it| compare(&it, Who::Jose));
    report.add("tokens jose", judged);
    let judged = joserfc(bench, &file).and_then(|it| compare(&it, Who::Joserfc));
    report.add("tokens joserfc", judged);
}

fn write_list(file: &str) -> Result<(), Failure> {
    let words = [
        "test",
        "--quiet",
        "-p",
        "access",
        "--test",
        "it",
        "every_attack",
    ];
    program("cargo").args(words).env("ATTACKS_FILE", file).run()
}

fn jose(bench: &Bench, file: &str) -> Result<Vec<Judged>, Failure> {
    let packages = tools::node(&bench.root)?;
    let script = bench.script("tokens_jose.mjs");
    let words = [script.as_path(), Path::new(file), packages.as_path()];
    judged(&run(SECONDS, "node", words)?)
}

fn joserfc(bench: &Bench, file: &str) -> Result<Vec<Judged>, Failure> {
    let script = bench.script("tokens_joserfc.py");
    let words = [script.as_path(), Path::new(file)];
    judged(&run(SECONDS, &bench.python, words)?)
}

/// Reads the lines of a script.
fn judged(ran: &Ran) -> Result<Vec<Judged>, Failure> {
    let read = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let mut is_taken = || match words.next() {
            Some("taken") => Some(true),
            Some("refused") => Some(false),
            _ => None,
        };
        let (ours, theirs) = (is_taken()?, is_taken()?);
        let name = words.next()?.to_owned();
        Some(Judged { name, ours, theirs })
    };
    let text = ran.text();
    let all: Option<Vec<Judged>> = text.lines().map(read).collect();
    match all.filter(|it| ran.succeeded && !it.is_empty()) {
        Some(all) => Ok(all),
        None => Err(Failure::new(format!(
            "it ended with {text:.200}\n{}",
            ran.stderr
        ))),
    }
}

/// Every difference must be explained, and every explanation needed.
fn compare(list: &[Judged], by: Who) -> Outcome {
    let is_of = |who: Who| who == by || who == Who::Both;
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for Judged { name, ours, theirs } in list {
        if ours == theirs {
            continue;
        }
        let mut explanations = DIFFERENCES.iter();
        match explanations.position(|(begin, who, _)| is_of(*who) && name.starts_with(begin)) {
            Some(at) => drop(used.insert(at)),
            None => wrong.push(format!("{name}: we say {ours}, they say {theirs}")),
        }
    }
    for (at, (begin, who, reason)) in DIFFERENCES.iter().enumerate() {
        if is_of(*who) && !used.contains(&at) {
            wrong.push(format!(
                "nothing needs the explanation of {begin:?}: {reason}"
            ));
        }
    }
    match wrong.is_empty() {
        true => Ok(format!("{} tokens", list.len())),
        false => Err(Failure::new(wrong.join("\n"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_needs_an_explanation_and_an_explanation_a_difference() {
        let judged = |name: &str| Judged {
            name: name.to_owned(),
            ours: false,
            theirs: true,
        };
        let of_jose = DIFFERENCES
            .iter()
            .filter(|(_, who, _)| *who != Who::Joserfc);
        let mut list: Vec<Judged> = of_jose.map(|(begin, ..)| judged(begin)).collect();
        assert!(compare(&list, Who::Jose).is_ok());
        let first = list.remove(0).name;
        let unneeded = compare(&list, Who::Jose).unwrap_err().to_string();
        assert!(unneeded.contains("nothing needs") && unneeded.contains(&first));
        list.push(judged(&first));
        list.push(judged("another"));
        let unexplained = compare(&list, Who::Jose).unwrap_err().to_string();
        assert!(unexplained.starts_with("another: we say false"));
    }

    #[test]
    fn lines_are_read_or_refused() {
        let ran = |text: &str| Ran {
            succeeded: true,
            stdout: text.as_bytes().to_vec(),
            stderr: String::new(),
        };
        let all = judged(&ran("taken refused claims {\"a b\"}\nrefused taken x\n")).unwrap();
        assert!(all[0].ours && !all[0].theirs && all[0].name == "claims {\"a b\"}");
        assert!(!all[1].ours && all[1].theirs);
        for text in ["", "taken\n", "taken maybe x\n", "Error: no such file\n"] {
            assert!(judged(&ran(text)).is_err(), "{text:?}");
        }
    }
}
