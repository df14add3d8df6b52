//! `intertie check` and the other commands that only print.

use testkit::TempDir;

use crate::support::{output, repository};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn all_problems_of_all_files_are_told_at_once() {
    let folder = TempDir::new();
    folder.write(
        "a.yaml",
        "flow: a\nfrom: { http: GTE :1/x }\nsteps:\n  - foward: http://x\n",
    );
    folder.write("sub/b.yml", "flow: b\nfrom:\n  http: GET /x\nstep: []\n");
    folder.write("c.yaml", "flow: [\n");
    folder.write(".hidden.yaml", "nonsense: true\n");
    let result = output(&["check", folder.path().to_str().unwrap()]);
    assert_eq!(result.status.code(), Some(1));
    let report = text(&result.stdout);
    for expected in [
        "unknown step `foward`",
        "did you mean `forward`?",
        "unknown key `step`",
        "IT0103",
        "a.yaml:4:5",
        "sub/b.yml:4:1",
        "in 3 files",
    ] {
        assert!(report.contains(expected), "{expected} in {report}");
    }
    assert!(!report.contains("hidden"));
    let json = output(&["check", "--format", "json", folder.path().to_str().unwrap()]);
    let lines = text(&json.stdout);
    assert!(lines.lines().count() >= 4);
    for line in lines.lines() {
        let problem: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(
            problem["code"].as_str().unwrap().starts_with("IT"),
            "{line}"
        );
        assert!(
            problem["line"].is_u64() && problem["message"].is_string(),
            "{line}"
        );
    }
}

#[test]
fn nothing_is_opened_when_there_is_a_problem() {
    let folder = TempDir::new();
    let port = testkit::free_port();
    let good =
        format!("flow: a\nfrom: {{ http: GET :{port}/a }}\nsteps: [ reply: {{ body: a }} ]\n");
    folder.write("a.yaml", &good);
    folder.write("b.yaml", "flow: b\n");
    let result = output(&["run", "--admin", "off", folder.path().to_str().unwrap()]);
    assert_eq!(result.status.code(), Some(1));
    assert!(
        text(&result.stderr).contains("IT0113"),
        "{}",
        text(&result.stderr)
    );
}

#[test]
fn every_page_of_the_loaders_codes_shows_what_triggers_it() {
    let folder = repository().join("docs/errors");
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let code = path.file_stem().unwrap().to_str().unwrap().to_owned();
        // What the first two show does not fit into a page; the third is for values that pass the
        // schema and are refused all the same, which no key of this version has.
        if !code.starts_with("IT01") || ["IT0101", "IT0102", "IT0118"].contains(&code.as_str()) {
            continue;
        }
        let page = std::fs::read_to_string(&path).unwrap();
        let example = page
            .split("```yaml\n")
            .nth(1)
            .unwrap()
            .split("```")
            .next()
            .unwrap();
        let files = TempDir::new();
        let file = files.write("example.yaml", example);
        let result = output(&["check", "--format", "json", file.to_str().unwrap()]);
        let report = text(&result.stdout);
        assert!(
            report.contains(&format!("\"code\":\"{code}\"")),
            "{code}: {report}"
        );
        checked += 1;
    }
    assert!(checked >= 15, "{checked}");
}

#[test]
fn hostile_files_get_a_clear_error() {
    let laughs: String = (1..12)
        .map(|at| {
            format!(
                "a{at}: &a{at} [{}]\n",
                vec![format!("*a{}", at - 1); 9].join(",")
            )
        })
        .collect();
    let deep = format!(
        "flow:\n{}",
        (0..500)
            .map(|at| format!("{}- \n", " ".repeat(at)))
            .collect::<String>()
    );
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("IT0101", vec![b'a'; 10 * 1024 * 1024]),
        ("IT0102", b"flow: \xff\xfe".to_vec()),
        ("IT0104", "[".repeat(100_000).into_bytes()),
        ("IT0104", deep.into_bytes()),
        ("IT0105", format!("a0: &a0 x\n{laughs}").into_bytes()),
        ("IT0103", b"\"unfinished".to_vec()),
        ("IT0103", b"a: b: c".to_vec()),
    ];
    for (code, bytes) in cases {
        let folder = TempDir::new();
        let path = folder.path().join("hostile.yaml");
        std::fs::write(&path, &bytes).unwrap();
        let result = output(&["check", path.to_str().unwrap()]);
        let report = text(&result.stdout);
        assert_eq!(result.status.code(), Some(1), "{report}");
        assert!(report.contains(code), "{code}: {report}");
        assert!(report.len() < 20_000, "a report of {} bytes", report.len());
    }
}

#[test]
fn missing_files_are_told() {
    let result = output(&["check", "no/such/file.yaml"]);
    assert_eq!(result.status.code(), Some(1));
    assert!(text(&result.stderr).contains("no/such/file.yaml"));
    let folder = TempDir::new();
    let result = output(&["check", folder.path().to_str().unwrap()]);
    assert!(text(&result.stderr).contains("there is no *.yaml or *.yml file"));
}

#[test]
fn schema_list_and_completions_are_printed() {
    let schema: serde_json::Value =
        serde_json::from_slice(&output(&["schema"]).stdout).expect("the schema is JSON");
    assert!(schema["$schema"].is_string());
    let list = text(&output(&["list"]).stdout);
    for step in ["forward", "convert", "reply", "log"] {
        assert!(list.contains(step), "{list}");
    }
    assert!(text(&output(&["completions", "bash"]).stdout).contains("intertie"));
    assert_eq!(output(&["no-such-command"]).status.code(), Some(2));
}
