//! What is generated is committed, and every piece of YAML in it does what is said of it.

mod docs;

use base64ct::{Base64, Encoding as _};
use std::fs;
use std::path::{Path, PathBuf};

use component::definition::Surroundings;
use component::state::States;
use config::{CodeInfo, Report, Sources};
use fastrand::Rng;

use super::files;
use crate::load::TABLE;
use crate::named_files::NamedFiles;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const ERP: &[u8] = include_bytes!("../../tests/data/failures/erp.wsdl");

/// A private key for the pages that name one.
fn client_key() -> bytes::Bytes {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
    use base64ct::{Base64, Encoding as _};
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let text = Base64::encode_string(pair.to_pkcs8v1().unwrap().as_ref());
    format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n").into()
}

/// A value for every secret that a text declares by name.
fn secrets_of(text: &str) -> flow::KnownSecrets {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let is_name = |word: &&str| word.contains('_') && word.chars().all(|it| !it.is_lowercase());
    let declares = text.contains("secrets:");
    let names = words.filter(|word| declares && is_name(word));
    // Some have to be Base64 of so many bytes.
    let value = |name: &str| Base64::encode_string(format!("secret of {name:-<20}").as_bytes());
    let values = names.map(|name| (name.to_owned(), value(name)));
    flow::KnownSecrets {
        values: config::Secrets::new(values.collect()),
        is_incomplete: false,
    }
}

/// Loads one text; the codes of its problems.
fn codes(name: &str, text: &str) -> Vec<&'static str> {
    let (mut sources, mut report) = (Sources::default(), Report::default());
    if let Some(source) = sources.add(name, text.as_bytes(), &mut report) {
        let documents = config::parse(&sources, source, &mut report);
        let secrets = secrets_of(text);
        let input = flow::Input {
            documents,
            table: TABLE,
            // What systemd sets for a service.
            environment: &|name| (name == "CREDENTIALS_DIRECTORY").then(|| "/run/it".into()),
            secrets: &secrets,
            surroundings: &Surroundings {
                files: &|source, name| match name {
                    // The service of all pages.
                    "erp.wsdl" | "./wsdl/erp.wsdl" | "wsdl/erp.wsdl" => Ok(ERP.into()),
                    "partners.keys" | "staff.users" => Ok("".into()),
                    "client.pem" => Ok(client_key()),
                    _ => NamedFiles::default().read(sources.name(source), name),
                },
                folder: &|source| crate::load::folder_of(sources.name(source)).to_owned(),
                states: &States::default(),
                dead_letters: steps::store::dead_letters,
            },
            is_part: false,
        };
        let loaded = flow::load(input, &mut report);
        assert_eq!(loaded.is_some(), !report.has_errors(), "{name}");
    }
    report
        .diagnostics()
        .iter()
        .map(|problem| problem.code().as_str())
        .collect()
}

/// The codes that loading flow files can give.
fn step_and_flow_codes() -> impl Iterator<Item = &'static CodeInfo> {
    let all = [
        component::codes::ALL,
        flow::codes::ALL,
        steps::codes::ALL,
        connectors::codes::ALL,
        auth::codes::ALL,
        menu::codes::ALL,
        topics::codes::ALL,
        topics::websocket::codes::ALL,
        topics::poll::codes::ALL,
        topics::websub::codes::ALL,
    ];
    all.into_iter().flatten()
}

/// The YAML blocks of a page.
fn blocks(markdown: &str) -> Vec<&str> {
    markdown
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```").map(|(block, _)| block))
        .collect()
}

/// A piece of YAML as a flow file: steps alone are put into a flow.
fn whole(block: &str) -> String {
    if block.starts_with("on_error:") {
        let from = "flow: around\nfrom: { http: POST /around }\nsteps: [ reply: {} ]\n";
        return format!("{from}{block}");
    }
    if block.starts_with("engine:") && !block.contains("\nflow:") {
        return format!("{block}---\nflow: around\nfrom: call\nsteps: [ map: . ]\n");
    }
    if !block.starts_with("- ") {
        return block.to_owned();
    }
    let steps: String = block.lines().map(|line| format!("  {line}\n")).collect();
    let called = "flow: price-order\nfrom: call\nsteps: [ map: . ]\n";
    format!(
        "flow: around\nuse: {{ crm: {{ http: 'http://127.0.0.1:1' }} }}\n\
         from: {{ http: POST /around }}\nsteps:\n{steps}---\n{called}"
    )
}

/// Every flow file under `examples/`.
fn examples() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in fs::read_dir(repository().join("examples")).unwrap() {
        for file in fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let name = path.to_string_lossy();
            if name.ends_with(".yaml") && !name.ends_with(".test.yaml") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn the_committed_files_are_fresh() {
    let folder = repository().join("docs/reference");
    let update = std::env::var_os("UPDATE").is_some();
    let files = files();
    let mut stale = Vec::new();
    for (name, text) in &files {
        let path = folder.join(name);
        if fs::read_to_string(&path).ok().as_ref() != Some(text) {
            if update {
                fs::write(&path, text).unwrap();
            }
            stale.push(name.clone());
        }
    }
    for file in fs::read_dir(&folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        if !files.iter().any(|(known, _)| *known == name) {
            stale.push(format!("{name} (nobody makes it)"));
        }
    }
    let advice = "run UPDATE=1 cargo test -p intertie reference";
    assert!(update || stale.is_empty(), "stale: {stale:?}; {advice}");
}

#[test]
fn every_example_of_the_reference_loads() {
    for (name, text) in files() {
        for block in blocks(&text) {
            assert_eq!(codes(&name, &whole(block)), [""; 0], "{name}:\n{block}");
        }
    }
    for step in TABLE.steps {
        assert_eq!(codes(step.name, step.example), [""; 0], "{}", step.name);
        assert!(
            step.example.contains(&format!("- {}:", step.name)),
            "{}",
            step.name
        );
    }
}

#[test]
fn every_example_of_a_source_loads() {
    for source in TABLE.sources {
        let name = source.name;
        assert_eq!(codes(name, source.example), [""; 0], "{name}");
        assert!(source.example.contains(&format!("{name}:")), "{name}");
    }
}

#[test]
fn every_example_of_an_endpoint_loads() {
    for endpoint in TABLE.endpoints {
        let name = endpoint.name;
        assert_eq!(codes(name, endpoint.example), [""; 0], "{name}");
        assert!(endpoint.example.contains(&format!("{name}:")), "{name}");
    }
}

#[test]
fn every_example_of_a_document_loads() {
    for document in TABLE.documents {
        let name = document.name;
        assert_eq!(codes(name, document.example), [""; 0], "{name}");
        assert!(document.example.contains(&format!("{name}:")), "{name}");
    }
}

#[test]
fn every_example_of_a_kind_of_flow_loads() {
    for kind in TABLE.kinds {
        let name = kind.name;
        assert_eq!(codes(name, kind.example), [""; 0], "{name}");
        assert!(kind.example.contains(&format!("{name}:")), "{name}");
    }
}

#[test]
fn every_example_of_a_connection_loads() {
    for connection in TABLE.connections {
        let name = connection.name;
        assert_eq!(codes(name, connection.example), [""; 0], "{name}");
        assert!(connection.example.contains(&format!("{name}:")), "{name}");
    }
}

#[test]
fn every_example_folder_loads() {
    let examples = examples();
    assert!(examples.len() >= 4, "{examples:?}");
    for (path, text) in examples {
        let name = path.display().to_string();
        assert_eq!(codes(&name, &text), [""; 0], "{name}");
        assert!(
            path.with_file_name("README.md").exists(),
            "{}",
            path.display()
        );
    }
}

#[test]
fn every_code_has_a_page_whose_example_triggers_it() {
    for info in step_and_flow_codes() {
        let code = info.code.as_str();
        let path = repository().join(format!("docs/errors/{code}.md"));
        let page = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{code}: {error}"));
        let title = format!("# {code}: {}\n", info.title);
        assert!(page.starts_with(&title), "{code}: the title is not {title}");
        let blocks = blocks(&page);
        let first = blocks
            .first()
            .unwrap_or_else(|| panic!("{code}: no example"));
        let found = codes(code, first);
        assert!(
            found.contains(&code),
            "{code}: its example triggers {found:?}"
        );
    }
}

#[test]
fn every_page_of_these_codes_has_its_code() {
    let known: Vec<&str> = step_and_flow_codes()
        .chain(crate::codes::ALL)
        .map(|info| info.code.as_str())
        .collect();
    let mut sorted = known.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), known.len(), "a code stands twice");
    for file in fs::read_dir(repository().join("docs/errors")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        if let Some(code) = name
            .strip_suffix(".md")
            .filter(|code| code.starts_with("IT02") || code.starts_with("IT03"))
        {
            assert!(
                known.contains(&code),
                "{name} explains a code that nobody has"
            );
        }
    }
}

#[test]
fn the_schema_takes_what_the_loader_takes() {
    let schema = super::schema();
    let texts = examples().into_iter().map(|(_, text)| text);
    let connections = TABLE.connections.iter().map(|it| it.example.to_owned());
    let sources = TABLE.sources.iter().map(|it| it.example.to_owned());
    let texts = texts.chain(connections).chain(sources);
    for text in texts.chain(TABLE.steps.iter().map(|step| step.example.to_owned())) {
        let (mut sources, mut report) = (Sources::default(), Report::default());
        let source = sources
            .add("example", text.as_bytes(), &mut report)
            .unwrap();
        for document in config::parse(&sources, source, &mut report) {
            assert!(
                config::check(&document, &schema, &mut report),
                "{text}\n{report:?}"
            );
        }
    }
    let wrong = [
        "flow: a",
        "flow: a b\nfrom: { http: / }\nsteps: []",
        "engine: { lisen: x }",
    ];
    for text in wrong {
        let (mut sources, mut report) = (Sources::default(), Report::default());
        let source = sources.add("wrong", text.as_bytes(), &mut report).unwrap();
        let documents = config::parse(&sources, source, &mut report);
        assert!(
            !config::check(&documents[0], &schema, &mut report),
            "{text}"
        );
    }
}

/// One random change: bytes replaced, taken out, put in or moved.
fn mutate(text: &mut Vec<u8>, random: &mut Rng) {
    const PIECES: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ":",
        "-",
        "\n",
        " ",
        "'",
        "\"",
        "*",
        "&a",
        "!!x",
        "${",
        "}",
        "null",
        "0",
        "-1",
        "1e9",
        "é",
        "\u{0}",
        "\t",
        "---\n",
        "http",
        "GET,",
        "%",
        "/..",
        "9999999999",
        "name: x",
        "<<: ",
        "|",
        ">",
        "#",
        ",",
        "::",
        "${ $env.X }",
        "\r",
    ];
    let at = random.usize(..=text.len());
    let length = random.usize(..12).min(text.len() - at);
    let piece = match random.u8(..4) {
        0 => Vec::new(),
        1 => text[at..at + length].iter().rev().copied().collect(),
        2 => {
            let from = random.usize(..text.len().max(1));
            text[from..(from + 20).min(text.len())].to_vec()
        }
        _ => PIECES[random.usize(..PIECES.len())].as_bytes().to_vec(),
    };
    let replaced = if random.bool() { length } else { 0 };
    text.splice(at..at + replaced, piece);
}

#[test]
fn no_mutation_of_an_example_makes_the_loader_panic() {
    let mut seeds: Vec<String> = examples().into_iter().map(|(_, text)| text).collect();
    seeds.extend(TABLE.steps.iter().map(|step| step.example.to_owned()));
    seeds.extend(TABLE.connections.iter().map(|it| it.example.to_owned()));
    seeds.extend(TABLE.sources.iter().map(|it| it.example.to_owned()));
    for info in step_and_flow_codes() {
        let path = repository().join(format!("docs/errors/{}.md", info.code));
        seeds.extend(
            blocks(&fs::read_to_string(path).unwrap())
                .into_iter()
                .map(str::to_owned),
        );
    }
    let mut random = Rng::with_seed(7);
    let (mut sound, mut broken) = (0, 0);
    for round in 0..4000 {
        let mut text = seeds[round % seeds.len()].clone().into_bytes();
        for _ in 0..random.u8(1..=6) {
            mutate(&mut text, &mut random);
        }
        match codes("mutated", &String::from_utf8_lossy(&text)).is_empty() {
            true => sound += 1,
            false => broken += 1,
        }
    }
    assert!(
        sound > 50 && broken > 1000,
        "{sound} sound, {broken} broken: mutations too weak"
    );
}
