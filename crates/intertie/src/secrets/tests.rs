//! Reading from the three sources, and what is told when one cannot be read.

use std::os::unix::fs::symlink;

use testkit::TempDir;

use super::*;

/// A folder with a flow file, the files that secrets are in, and an environment.
struct Case {
    folder: TempDir,
    environment: Vec<(&'static str, String)>,
}

impl Case {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = TempDir::new();
        for (name, text) in files {
            folder.write(name, text);
        }
        Self {
            folder,
            environment: Vec::new(),
        }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// Reads what this `secrets:` says; the report as `CODE:column message`.
    fn read(&self, secrets: &str) -> (LoadedSecrets, Vec<String>) {
        let (mut sources, mut report) = (Sources::default(), Report::default());
        let name = self.folder.path().join("flow.yaml").display().to_string();
        let text = format!("engine: {{ secrets: {secrets} }}");
        let source = sources.add(name, text.as_bytes(), &mut report).unwrap();
        let documents = config::parse(&sources, source, &mut report);
        let environment = |name: &str| {
            let mut known = self.environment.iter();
            known.find(|(it, _)| *it == name).map(|(_, it)| it.clone())
        };
        let declared = flow::secret_sources(&documents, &environment);
        let loaded = LoadedSecrets::read(&declared, &environment, &sources, &mut report);
        let told = report.diagnostics().iter().map(|problem| {
            let span = problem.span().unwrap();
            let column = sources.position(span.source, span.start).1;
            format!("{}:{column} {}", problem.code(), problem.message())
        });
        let told: Vec<String> = told.collect();
        assert_eq!(loaded.known.is_incomplete, !told.is_empty());
        (loaded, told)
    }

    fn seal(&self, name: &str, text: &str, key: &str) {
        let sealed = envelope::seal(text, &Key::new(key)).unwrap();
        self.folder.write(name, &sealed);
    }
}

fn names(loaded: &LoadedSecrets) -> Vec<&str> {
    loaded.known.values.names().collect()
}

#[test]
fn secrets_come_from_three_sources_and_are_redacted_from_then_on() {
    let case = Case::new(&[
        ("run/FILE_ONE", "reader-file-one\n"),
        ("run/tls.key", "reader-line-1\r\n"),
        ("run/.hidden", "x"),
        ("run/sub/other", "x"),
    ]);
    let case = case
        .with("VAR_ONE", "reader-var-one\n")
        .with(key::KEY, "reader-key-of-16");
    case.seal("s.enc", "SEALED: reader-sealed-1", "reader-key-of-16");
    let (loaded, told) = case.read("{ env: [VAR_ONE], folder: run, file: ./s.enc }");
    assert_eq!(told, [""; 0]);
    assert_eq!(names(&loaded), ["FILE_ONE", "SEALED", "VAR_ONE", "tls.key"]);
    let value = |name| loaded.known.values.get(name).unwrap();
    assert_eq!(value("FILE_ONE"), "reader-file-one");
    assert_eq!(value("tls.key"), "reader-line-1");
    assert_eq!(value("VAR_ONE"), "reader-var-one\n");
    let text = "reader-file-one reader-line-1 reader-var-one reader-sealed-1 reader-key-of-16";
    assert_eq!(secret::redact(text), "*** *** *** *** ***");
    assert!(!loaded.has_changed());
}

#[test]
fn the_folder_of_a_kubernetes_secret_is_read_and_its_change_noticed() {
    let case = Case::new(&[
        ("k/..1/TOKEN", "kube-token-1"),
        ("k/..2/TOKEN", "kube-token-2"),
    ]);
    let folder = case.folder.path().join("k");
    symlink("..1", folder.join("..data")).unwrap();
    symlink("..data/TOKEN", folder.join("TOKEN")).unwrap();
    let (mut loaded, told) = case.read("{ folder: k }");
    assert_eq!(
        (told.len(), loaded.known.values.get("TOKEN")),
        (0, Some("kube-token-1"))
    );
    assert!(!loaded.has_changed());
    symlink("..2", folder.join("..new")).unwrap();
    fs::rename(folder.join("..new"), folder.join("..data")).unwrap();
    assert!(loaded.has_changed());
    loaded.accept(loaded.look());
    assert!(!loaded.has_changed());
    fs::remove_file(folder.join("..data")).unwrap();
    assert!(loaded.has_changed());
}

#[test]
fn a_changed_file_or_key_is_noticed() {
    let case = Case::new(&[("key", "the-key-in-a-file\n")]);
    let path = case.folder.path().join("key").display().to_string();
    let case = case.with(key::KEY_FILE, path);
    case.seal("s.enc", "A: sealed-again-1", "the-key-in-a-file");
    let (loaded, told) = case.read("{ file: s.enc }");
    assert_eq!(
        (told.len(), loaded.known.values.get("A")),
        (0, Some("sealed-again-1"))
    );
    assert!(!loaded.has_changed());
    case.folder.write("key", "another-key-in-a-file\n");
    assert!(loaded.has_changed());
    let (loaded, told) = case.read("{ file: s.enc }");
    let wrong = "IT0303:28 `s.enc`: its key is another one, or the file was changed";
    assert_eq!(told, [wrong]);
    case.seal("s.enc", "A: sealed-again-2", "another-key-in-a-file");
    assert!(loaded.has_changed());
    let (loaded, _) = case.read("{ file: s.enc }");
    assert_eq!(loaded.known.values.get("A"), Some("sealed-again-2"));
}

#[test]
fn what_cannot_be_read_is_told_without_content() {
    type Files = &'static [(&'static str, &'static str)];
    let cases: &[(Files, &str, &str)] = &[
        (
            &[],
            "{ env: [NONE] }",
            "IT0303:28 the environment variable NONE is not set to a text",
        ),
        (
            &[],
            "{ env: [TINY] }",
            "IT0303:28 the secret TINY has fewer than 4 characters",
        ),
        (
            &[],
            "{ env: [LONG, LONG] }",
            "IT0304:34 the secret LONG is given twice",
        ),
        (
            &[],
            "{ folder: no }",
            "IT0303:30 `no` cannot be read: No such file",
        ),
        (
            &[("r/a b", "hidden-x")],
            "{ folder: r }",
            "IT0303:30 `r/a b`: the file's name cannot",
        ),
        (
            &[("r/A", "abc\n")],
            "{ folder: r }",
            "IT0303:30 the secret A has fewer than 4",
        ),
        (
            &[("r/LONG", "hidden-x")],
            "{ env: [LONG], folder: r }",
            "IT0304:43 the secret LONG is",
        ),
        (
            &[],
            "{ file: s.enc }",
            "IT0303:28 `s.enc` cannot be read: No such file",
        ),
        (
            &[("r/A", "")],
            "{ file: r }",
            "IT0303:28 `r` cannot be read: it is not a regular file",
        ),
        (
            &[("f", "A: hidden-x")],
            "{ file: f }",
            "IT0303:28 `f`: it is no encrypted file",
        ),
    ];
    for (files, secrets, expected) in cases {
        let case = Case::new(files)
            .with("TINY", "abc")
            .with("LONG", "hidden-long");
        let case = case.with(key::KEY, "the-key-of-what-cannot");
        let (_, told) = case.read(secrets);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with(expected), "{told:?}");
        assert!(!told[0].contains("hidden"), "{told:?}");
    }
}

#[test]
fn sizes_are_bounded() {
    let case = Case::new(&[
        ("r/A", &"x".repeat(64 * 1024)),
        ("r/B", &"x".repeat(64 * 1024 + 1)),
    ]);
    let (_, told) = case.read("{ folder: r }");
    assert_eq!(
        told,
        ["IT0303:30 `r/B` cannot be read: it has more than 64KiB"]
    );
    let case = Case::new(&[]);
    for number in 0..=FILES_MAX {
        case.folder.write(&format!("r/N{number}"), "value");
    }
    let (_, told) = case.read("{ folder: r }");
    assert_eq!(
        told,
        ["IT0303:30 `r` cannot be read: it has more than 1000 files"]
    );
    let case = Case::new(&[]);
    for number in 0..17 {
        let text = format!("{number:05}").repeat(64 * 1024 / 5);
        case.folder.write(&format!("r/N{number}"), &text);
    }
    let (_, told) = case.read("{ folder: r }");
    assert_eq!(told, ["IT0303:30 all secrets together have 1114095 bytes"]);
}

#[test]
fn a_link_to_nothing_and_bytes_that_are_no_text_are_told() {
    let case = Case::new(&[("r/A", "")]);
    fs::write(case.folder.path().join("r/A"), b"hidden\xff").unwrap();
    let (_, told) = case.read("{ folder: r }");
    assert_eq!(told, ["IT0303:30 `r/A` is not UTF-8"]);
    symlink("nowhere", case.folder.path().join("r/B")).unwrap();
    let (_, told) = case.read("{ folder: r }");
    assert!(
        told[0].starts_with("IT0303:30 `r/B` cannot be read: No such file"),
        "{told:?}"
    );
}

#[test]
fn the_key_comes_from_one_place() {
    let told = |variables: &[(&str, &str)]| {
        let environment = |name: &str| {
            let mut known = variables.iter();
            known
                .find(|(it, _)| *it == name)
                .map(|(_, it)| (*it).to_owned())
        };
        Key::find(&environment).map(|_| ()).unwrap_err().message
    };
    assert!(told(&[]).starts_with("its key is missing: set INTERTIE_SECRETS_KEY or "));
    assert!(told(&[(key::KEY, "")]).contains("its key is empty"));
    let both = [(key::KEY, "a"), (key::KEY_FILE, "b")];
    assert!(told(&both).starts_with("both INTERTIE_SECRETS_KEY and "));
    let file = told(&[(key::KEY_FILE, "no/such/file")]);
    assert!(file.contains("cannot be read: No such file"), "{file}");
}
