//! Flow files: any bytes give a plan or a report, never a panic.

#![no_main]

use component::definition::Surroundings;
use component::state::States;
use config::{Report, Sources};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut sources = Sources::default();
    let mut report = Report::default();
    let id = sources.add("fuzz.yaml", bytes, &mut report);
    let documents = id
        .map(|id| config::parse(&sources, id, &mut report))
        .unwrap_or_default();
    let environment = |name: &str| (name == "SET").then(|| "value".to_owned());
    let verbs = [steps::ALL, topics::STEPS, connectors::ALL].concat();
    let sources_of_flows = [steps::SOURCES, topics::SOURCES].concat();
    let connections = [steps::CONNECTIONS, connectors::CONNECTIONS].concat();
    let endpoints = [connectors::ENDPOINTS, topics::ENDPOINTS].concat();
    let evaluated = [topics::EVALUATED, menu::EVALUATED].concat();
    let table = flow::Table {
        steps: &verbs,
        connections: &connections,
        sources: &sources_of_flows,
        endpoints: &endpoints,
        documents: topics::DOCUMENTS,
        kinds: menu::KINDS,
        access: auth::DEFINITION,
        evaluated: &evaluated,
        secrets: topics::SECRETS,
    };
    let _ = flow::secret_sources(&documents, &environment);
    let values = [("SET".to_owned(), "http://secret:9".to_owned())];
    let secrets = flow::KnownSecrets {
        values: config::Secrets::new(values.into()),
        is_incomplete: false,
    };
    let input = flow::Input {
        documents,
        table,
        environment: &environment,
        secrets: &secrets,
        surroundings: &Surroundings {
            files: &|_, _| Err("there are no files".to_owned()),
            folder: &|_| std::path::PathBuf::new(),
            states: &States::default(),
            dead_letters: steps::store::dead_letters,
        },
        is_part: false,
    };
    let loaded = flow::load(input, &mut report);
    assert_eq!(loaded.is_some(), !report.has_errors());
    let text = report.render(&sources, false);
    assert!(
        text.len() < 1 << 20,
        "the report is far larger than the file"
    );
    let _ = report.render_json(&sources);
});
