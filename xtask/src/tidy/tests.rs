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
    let shown = |problem: Problem| format!("{}: {}", problem.line, problem.message);
    problems.0.into_iter().map(shown).collect()
}

fn source(text: &str) -> Vec<String> {
    messages(|problems| sources::check_file(&file("crates/net/src/lib.rs", text), problems))
}

/// Checks that there is one problem, and that it is this one.
fn only(messages: &[String], line: usize, part: &str) {
    assert_eq!(messages.len(), 1, "{part}: {messages:?}");
    assert!(
        messages[0].starts_with(&format!("{line}: ")),
        "{messages:?}"
    );
    assert!(messages[0].contains(part), "{messages:?}");
}

#[test]
fn a_good_file_has_no_problem() {
    assert!(source("//! Good.\n\npub fn f() {\n    g();\n}\n").is_empty());
}

#[test]
fn sizes_and_openings_are_checked() {
    only(&source("fn f() {}\n"), 1, "does not open");
    let lines = |count| "    g();\n".repeat(count);
    let long = |head: &str| format!("//! Long.\n{head} {{\n{}}}\n", lines(69));
    only(&source(&long("fn f()")), 2, "71 lines");
    only(&source(&long("pub(crate) async fn f()")), 2, "71 lines");
    only(
        &source(&long("pub const fn f()\nwhere\n    A: B,\n")),
        2,
        "74 lines",
    );
    let fits = format!("//! Fits.\nfn f() {{\n{}}}\nfn g() {{}}\n", lines(68));
    assert!(source(&fits).is_empty());
    let declared = "//! T.\ntrait T {\n    fn f(\n        a: A,\n    ) -> [u8; 2];\n}\n";
    assert!(source(&format!("{declared}{}", "const A: u8 = 1;\n".repeat(90))).is_empty());
    let long = format!("//! Long.\n{}", "const A: u8 = 1;\n".repeat(800));
    only(&source(&long), 800, "801 lines");
    only(&source(&format!("//! {}\n", "x".repeat(100))), 1, "columns");
    only(
        &source(&format!("//! A.\nf(\"{}\");\n", "x".repeat(100))),
        2,
        "columns",
    );
    assert!(source(&format!("//! https://{}\n", "x".repeat(100))).is_empty());
}

#[test]
fn panics_are_refused_outside_tests() {
    for call in [
        "unwrap()",
        "expect(\"x\")",
        "unwrap_err()",
        "expect_err(\"x\")",
    ] {
        only(
            &source(&format!("//! P.\nlet a = b.{call};\n")),
            2,
            "a panic",
        );
    }
    only(
        &source("//! P.\nlet a = f(\"http://a\").unwrap();\n"),
        2,
        "a panic",
    );
    assert!(source("//! P.\n// invariant: x\nlet a = b.unwrap();\n").is_empty());
    assert!(source("//! P.\nlet a = b.unwrap(); // invariant: x\n").is_empty());
    assert!(source("//! P.\n// A comment: .unwrap()\nf(\".unwrap()\");\n").is_empty());
    assert!(
        source("//! P.\n#[cfg(test)]\nmod t {\n    fn f() {\n        b.unwrap();\n    }\n}\n")
            .is_empty()
    );
}

#[test]
fn servers_are_started_only_by_tests_that_run_after_their_installation() {
    let text = concat!("//! S.\nuse testkit::", "servers::Redis;\n");
    let at = |path| messages(|problems| sources::check_file(&file(path, text), problems));
    only(&at("crates/steps/src/tests.rs"), 2, "before servers");
    assert!(at("crates/connectors/src/tests.rs").is_empty());
    assert!(at("crates/steps/tests/it/main.rs").is_empty());
}

#[test]
fn a_line_that_names_a_test_module_exempts_nothing_else() {
    only(
        &source("//! P.\n#[cfg(test)]\nmod tests;\nlet a = b.unwrap();\n"),
        4,
        "a panic",
    );
    only(
        &source("//! P.\n#[cfg(test)]\nmod t {\n}\nlet a = b.unwrap();\n"),
        5,
        "a panic",
    );
}

#[test]
fn leftovers_are_refused_everywhere() {
    let words = ["TO-DO", "FIX-ME", "db-g!(", "to-do!(", "unimple-mented!("];
    for word in words.map(|word| word.replace('-', "")) {
        only(&source(&format!("//! P.\n// {word}\n")), 2, "may not stay");
        let test = file("crates/net/src/tests.rs", &format!("//! P.\n// {word}\n"));
        only(
            &messages(|it| sources::check_file(&test, it)),
            2,
            "may not stay",
        );
    }
}

#[test]
fn files_that_no_module_names_are_found() {
    let files = [
        file("crates/a/src/lib.rs", "pub mod b;\n// mod e;\nmod c {}\n"),
        file("crates/a/src/b.rs", "pub(in crate::b) mod d;\n"),
        file("crates/a/src/b/d.rs", ""),
        file("crates/a/src/e.rs", "mod f;\n"),
        file("crates/a/src/e/f.rs", ""),
        file("crates/a/src/main.rs", "mod g;\n"),
        file("crates/a/src/g/mod.rs", "#[cfg(test)]\nmod tests;\n"),
        file("crates/a/src/g/tests.rs", "mod h;\n"),
        file("crates/a/src/g/tests/h.rs", ""),
        file("crates/a/src/g/tests/i.rs", ""),
        file("crates/a/tests/it/main.rs", "mod j;\n"),
        file("crates/a/tests/it/j.rs", ""),
        file("crates/a/tests/it/k.rs", ""),
    ];
    let mut problems = Problems::default();
    modules::check(&files, &mut problems);
    let dead: Vec<String> = problems
        .0
        .iter()
        .map(|it| it.path.display().to_string())
        .collect();
    let expected = [
        "src/e.rs",
        "src/e/f.rs",
        "src/g/tests/i.rs",
        "tests/it/k.rs",
    ];
    assert_eq!(dead, expected.map(|path| format!("crates/a/{path}")));
}

/// A manifest of a crate, in which everything is as it should be but for what is said here.
fn manifest(name: &str, changed: impl Fn(String) -> String) -> Vec<String> {
    let inherited = ["version", "edition", "rust-version", "license", "publish"];
    let inherited: String = inherited
        .iter()
        .map(|key| format!("{key}.workspace = true\n"))
        .collect();
    let text = format!("[package]\nname = \"{name}\"\n{inherited}\n[lints]\nworkspace = true\n");
    let manifest = file("crates/x/Cargo.toml", &changed(text));
    messages(|problems| crates::check(&[manifest], problems))
}

#[test]
fn crates_inherit_what_the_workspace_says() {
    assert!(manifest("proxy", |text| text).is_empty());
    for key in ["version", "edition", "rust-version", "license", "publish"] {
        let line = format!("\n{key}.workspace = true");
        only(&manifest("proxy", |text| text.replace(&line, "")), 1, key);
    }
    only(
        &manifest("proxy", |text| text.replace("[lints]", "[x]")),
        1,
        "lints",
    );
    only(&manifest("proxies", |text| text), 1, "not in xtask's table");
    only(
        &manifest("proxy", |text| text.replace("name =", "nome =")),
        1,
        "no name",
    );
}

#[test]
fn walls_between_crates_hold() {
    let uses = |name, section: &str, line: &str| {
        manifest(name, |text| format!("{text}[{section}]\n# Why.\n{line}\n"))
    };
    let line = 13;
    assert!(uses("proxy", "dependencies", "net.workspace = true").is_empty());
    assert!(uses("net", "dependencies", "httparse.workspace = true").is_empty());
    assert!(uses("flow", "dev-dependencies", "testkit.workspace = true").is_empty());
    assert!(uses("intertie", "dev-dependencies", "xtask.workspace = true").is_empty());
    let may_not = [
        (
            "proxy",
            "dependencies",
            "flow.workspace = true",
            "may not use flow",
        ),
        (
            "proxy",
            "dev-dependencies",
            "flow = { workspace = true }",
            "may not use flow",
        ),
        (
            "proxy",
            "build-dependencies",
            "flow.workspace = true",
            "may not use flow",
        ),
        (
            "proxy",
            "target.'cfg(unix)'.dependencies",
            "flow.workspace = true",
            "may not use",
        ),
        (
            "proxy",
            "dependencies",
            "testkit.workspace = true",
            "may not use testkit",
        ),
        (
            "proxy",
            "dependencies",
            "httparse.workspace = true",
            "lives only in net",
        ),
        (
            "proxy",
            "dependencies",
            "tokio-rustls.workspace = true",
            "lives only in net",
        ),
        (
            "flow",
            "dependencies",
            "serde_yaml.workspace = true",
            "lives only in config",
        ),
        (
            "flow",
            "dependencies",
            "saphyr-parser.workspace = true",
            "lives only in config",
        ),
        (
            "flow",
            "dependencies",
            "anyhow.workspace = true",
            "lives only in intertie",
        ),
        (
            "proxy",
            "dependencies",
            "bytes = \"1\"",
            "not the workspace's version",
        ),
    ];
    for (name, section, entry, said) in may_not {
        only(&uses(name, section, entry), line, said);
    }
    only(
        &uses("proxy", "dependencies.flow", "workspace = true"),
        line - 2,
        "on one line",
    );
}

#[test]
fn versions_are_bare_and_have_one_name() {
    let root = |line: &str| {
        let text = format!("[workspace.dependencies]\nnet = {{ path = \"crates/net\" }}\n{line}\n");
        messages(|problems| crates::check(&[file("Cargo.toml", &text)], problems))
    };
    assert!(root("a = { version = \"1\", default-features = false }").is_empty());
    only(&root("a = \"1\""), 3, "default features");
    let renamed = "a = { package = \"httparse\", version = \"1\", default-features = false }";
    only(&root(renamed), 3, "another name");
    only(&root("[workspace.dependencies.a]"), 3, "on one line");
}

#[test]
fn every_code_has_a_page() {
    let files = [
        file("crates/flow/src/codes.rs", "A = \"IT0900\", B = \"IT0901\""),
        file("crates/flow/src/check.rs", "// See IT0903 and XIT0904."),
        file("docs/errors/IT0901.md", ""),
        file("docs/errors/IT0902.md", ""),
        file("docs/errors/README.md", ""),
    ];
    let mut problems = Problems::default();
    docs::check_codes(&files, &mut problems);
    let shown = |it: &Problem| format!("{} {}", it.path.display(), it.message);
    let found: Vec<String> = problems.0.iter().map(shown).collect();
    let expected = [
        "docs/errors/IT0900.md the code has no page",
        "docs/errors/IT0903.md the code has no page",
        "docs/errors/IT0902.md no source defines the code",
    ];
    assert_eq!(found, expected);
}

#[test]
fn places_of_one_machine_are_found() {
    let found = |text: &str| {
        let text = text.replace('~', "");
        messages(|problems| docs::check_places(&file("README.md", &text), problems))
    };
    let places = [
        "see /ho~me/me/x",
        "cd /ro~ot",
        "`/wo~rk/main`",
        "at \"/wo~rk\"",
        "https://index.crates~.io/a",
        "static.crates~.io",
        "proxy.golang~.org",
        "registry.npmjs~.org",
        "pypi.o~rg",
    ];
    for place in places {
        only(&found(place), 1, "names a place");
    }
    for fine in [
        "<root>a</ro~ot>",
        "GET /ho~me HTTP/1.1",
        "/wo~rker/a",
        "a/wo~rk/b",
        "/ro~ot.xml",
    ] {
        assert!(found(fine).is_empty(), "{fine}");
    }
    let lock = file("Cargo.lock", concat!("static.crates", ".io"));
    assert!(messages(|problems| docs::check_places(&lock, problems)).is_empty());
}

#[test]
fn links_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = |path: &str, text: &str| {
        messages(|problems| docs::check_links(root, &file(path, text), problems))
    };
    let good = "[a](Cargo.toml) [b](src/main.rs#x) [c](https://a.example/b) [d](#here)\n\
                `[e](none)`\n```\n[f](none)\n```\n[g]: src/main.rs\n[mail](mailto:a@b.example)\n";
    assert!(found("README.md", good).is_empty());
    only(
        &found("README.md", "A\n[a](none.md)\n"),
        2,
        "none.md leads nowhere",
    );
    only(
        &found("README.md", "[a](none.md \"Title\")\n"),
        1,
        "none.md leads nowhere",
    );
    only(
        &found("README.md", "[a](Cargo.toml) ![b](none.png)\n"),
        1,
        "none.png leads nowhere",
    );
    only(
        &found("README.md", "[a]: none.md\n"),
        1,
        "none.md leads nowhere",
    );
    only(
        &found("docs/README.md", "[a](Cargo.toml)\n"),
        1,
        "Cargo.toml leads nowhere",
    );
}

#[test]
fn unresolved_merge_conflicts_are_refused() {
    let text = format!(
        "a\n{} HEAD\nb\n=======\nc\n{} topic\n",
        "<".repeat(7),
        ">".repeat(7)
    );
    let found = messages(|problems| docs::check_conflicts(&file("docs/a.md", &text), problems));
    assert_eq!(found.len(), 2, "{found:?}");
    let heading = "Title\n=======\n";
    assert!(messages(|it| docs::check_conflicts(&file("a.md", heading), it)).is_empty());
}

#[test]
fn the_architecture_stays_short() {
    let found = |lines| {
        let file = file("ARCHITECTURE.md", &"A.\n".repeat(lines));
        messages(|problems| docs::check(Path::new(""), &[file], problems))
    };
    assert!(found(300).is_empty());
    only(&found(301), 300, "more than 300 lines");
}

#[test]
fn what_nobody_reads_is_refused() {
    let found = |path: &str, bytes: u64| {
        let known = artefacts::LARGE.iter();
        let known = known.map(|(path, _)| (PathBuf::from(path), 100_000));
        let sizes: Vec<_> = known.chain([(path.into(), bytes)]).collect();
        messages(|problems| artefacts::check(&sizes, problems))
    };
    for (path, bytes, part) in [
        ("crates/intertie/erl_crash.dump", 10, "left this behind"),
        ("core", 10, "left this behind"),
        ("docs/results/http.html", 10, "written below target/"),
        (
            "docs/results/streams/idle.json",
            10,
            "written below target/",
        ),
        ("crates/net/data", 65_537, "65537 bytes; at most 65536"),
    ] {
        only(&found(path, bytes), 1, part);
    }
    assert!(found("docs/results/http.csv", 65_536).is_empty());
    assert!(found("xtask/interop/page.html", 10).is_empty());
    let gone = messages(|problems| artefacts::check(&[], problems));
    assert_eq!(gone.len(), artefacts::LARGE.len(), "{gone:?}");
}
