//! Every rule has a sample that breaks it.

use super::*;

fn file(path: &str, text: &str) -> File {
    File {
        path: path.into(),
        text: text.to_owned(),
    }
}

fn messages(check: impl FnOnce(&mut Problems)) -> Vec<String> {
    let mut problems = Problems::default();
    check(&mut problems);
    problems
        .0
        .into_iter()
        .map(|problem| problem.message)
        .collect()
}

fn source(text: &str) -> Vec<String> {
    messages(|problems| sources::check_file(&file("crates/net/src/lib.rs", text), problems))
}

#[test]
fn a_good_file_has_no_problem() {
    assert_eq!(
        source("//! Good.\n\npub fn f() {\n    g();\n}\n"),
        Vec::<String>::new()
    );
}

#[test]
fn sizes_and_openings_are_checked() {
    assert!(source("fn f() {}\n")[0].contains("does not open"));
    let long = format!("//! Long.\nfn f() {{\n{}}}\n", "    g();\n".repeat(70));
    assert!(source(&long)[0].contains("72 lines"));
    let long = format!("//! Long.\n{}", "const A: u8 = 1;\n".repeat(801));
    assert!(source(&long)[0].contains("802 lines"));
    assert!(source(&format!("//! {}\n", "x".repeat(100)))[0].contains("columns"));
}

#[test]
fn panics_and_leftovers_are_refused_outside_tests() {
    assert!(source("//! P.\nlet a = b.unwrap();\n")[0].contains("a panic"));
    assert!(source("//! P.\n// invariant: x\nlet a = b.unwrap();\n").is_empty());
    assert!(source("//! P.\n#[cfg(test)]\nlet a = b.unwrap();\n").is_empty());
    assert!(source("//! P.\n// FIXME\n")[0].contains("may not stay"));
}

#[test]
fn walls_between_crates_hold() {
    let manifest = |dependencies: &str| {
        let inherited = ["version", "edition", "rust-version", "license", "publish"];
        let inherited: String = inherited
            .iter()
            .map(|key| format!("{key}.workspace = true\n"))
            .collect();
        let text = format!(
            "[package]\nname = \"proxy\"\n{inherited}\n[dependencies]\n{dependencies}\n\
             [lints]\nworkspace = true\n"
        );
        messages(|problems| crates::check(&[file("crates/proxy/Cargo.toml", &text)], problems))
    };
    assert!(manifest("net.workspace = true\n").is_empty());
    assert!(manifest("flow.workspace = true\n")[0].contains("proxy may not use flow"));
    assert!(manifest("httparse.workspace = true\n")[0].contains("lives only in net"));
    assert!(manifest("bytes = \"1\"\n")[0].contains("not the workspace's version"));
}

#[test]
fn every_code_has_a_page() {
    let codes = file("crates/flow/src/codes.rs", "A = \"IT0900\", B = \"IT0901\"");
    let page = file("docs/errors/IT0901.md", "");
    let stray = file("docs/errors/IT0902.md", "");
    let found = messages(|problems| docs::check_codes(&[codes, page, stray], problems));
    assert_eq!(
        found,
        ["the code has no page", "no source defines the code"]
    );
}

#[test]
fn places_of_one_machine_are_found() {
    let text = concat!("see /ho", "me/me/x");
    let found = messages(|problems| docs::check_places(&file("README.md", text), problems));
    assert_eq!(found.len(), 1);
}
