//! Files and folders to a checked plan.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use component::definition::{ConnectionDefinition, StepDefinition, Surroundings};
use component::endpoint::EndpointDefinition;
use component::source::SourceDefinition;
use component::state::States;
use config::{Node, Report, Sources, Span};
use flow::{KnownSecrets, Loaded};

use crate::audit::{self, PreparedAudit};
use crate::codes::{MISSING_DRIVER, NOT_A_TEST};
use crate::named_files::NamedFiles;
use crate::regular_file;
use crate::secrets::LoadedSecrets;
use crate::shown;
use crate::tls::LoadedTls;

/// The most files of all folders together.
const FILES_MAX: usize = 10_000;
/// The most bytes that are read of a file; `config` refuses far less.
const READ_MAX: u64 = 64 * 1024 * 1024;

/// The files that flows are read from, in a fixed order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Files(Vec<(PathBuf, Vec<u8>)>);

/// What is wrong with the files.
pub(crate) struct Problems {
    report: Report,
    sources: Sources,
}

impl Problems {
    pub fn new(report: Report, sources: Sources) -> Self {
        Self { report, sources }
    }

    pub fn is_empty(&self) -> bool {
        self.report.diagnostics().is_empty()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.report.diagnostics().len()
    }

    /// For people, without secrets.
    pub fn text(&self, color: bool) -> String {
        shown::text(&self.report.render(&self.sources, color))
    }

    /// For programs, without secrets.
    pub fn json(&self) -> String {
        shown::json(&self.report.render_json(&self.sources))
    }
}

/// Reads the files, and of folders all `*.yaml` and `*.yml` files within, hidden ones left out.
/// Files that hold only tests, `*.test.yaml`, are none to run.
///
/// # Errors
/// When one cannot be read, or there is none.
pub(crate) fn read(paths: &[PathBuf]) -> anyhow::Result<Files> {
    let mut names = find(paths)?;
    names.retain(|name| !holds_tests(name));
    match names.is_empty() {
        true => bail!("there are only tests in these files: `intertie test` runs them"),
        false => read_files(names),
    }
}

/// The same with the files that hold tests: beside a named `orders.yaml` its `orders.test.yaml` is
/// read, and the other way round.
///
/// # Errors
/// When one cannot be read, or there is none.
pub(crate) fn read_with_tests(paths: &[PathBuf]) -> anyhow::Result<Files> {
    let mut names = find(paths)?;
    for path in paths.iter().filter(|path| path.is_file()) {
        names.extend(companions(path));
    }
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    read_files(names)
}

/// Whether a file holds tests of the flows of other files.
fn holds_tests(name: &Path) -> bool {
    let stem = name.file_stem().map(Path::new);
    stem.and_then(Path::extension)
        .is_some_and(|it| it == "test")
}

/// The tests of a flow file, or the flows of a file with tests, where they are there.
fn companions(path: &Path) -> Vec<PathBuf> {
    let stem = match holds_tests(path) {
        true => path.with_extension("").with_extension(""),
        false => path.with_extension("test"),
    };
    let names = ["yaml", "yml"].map(|kind| {
        let mut name = stem.clone().into_os_string();
        name.push(".");
        name.push(kind);
        PathBuf::from(name)
    });
    names.into_iter().filter(|name| name.is_file()).collect()
}

/// The names of the files that are meant.
fn find(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for path in paths {
        if path.is_dir() {
            let before = names.len();
            collect(path, &mut names)?;
            if names.len() == before {
                bail!(
                    "{}: there is no *.yaml or *.yml file in this folder",
                    path.display()
                );
            }
        } else {
            names.push(path.clone());
        }
    }
    names.dedup();
    Ok(names)
}

fn read_files(names: Vec<PathBuf>) -> anyhow::Result<Files> {
    let files = names.into_iter().map(|name| {
        let bytes = read_file(&name).with_context(|| format!("{}", name.display()))?;
        Ok((name, bytes))
    });
    Ok(Files(files.collect::<anyhow::Result<_>>()?))
}

fn read_file(name: &Path) -> anyhow::Result<Vec<u8>> {
    regular_file::read(name, READ_MAX).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => anyhow::anyhow!("{error}; a flow file has at most 1 MiB"),
        _ => anyhow::Error::new(error).context("cannot be read"),
    })
}

fn collect(folder: &Path, names: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let cannot = || format!("{}: the folder cannot be read", folder.display());
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .with_context(cannot)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .with_context(cannot)?;
    entries.sort();
    for entry in entries {
        let is_hidden = entry
            .file_name()
            .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if is_hidden {
            continue;
        }
        // A linked folder could lead out of this one, or back into it.
        if entry.is_dir() && !entry.is_symlink() {
            collect(&entry, names)?;
        } else if entry
            .extension()
            .is_some_and(|kind| kind == "yaml" || kind == "yml")
        {
            if names.len() == FILES_MAX {
                bail!("{}: more than {FILES_MAX} files", folder.display());
            }
            names.push(entry);
        }
    }
    Ok(())
}

/// The folder of a flow file: relative paths in the file start here.
pub(crate) fn folder_of(flow_file: &str) -> &Path {
    Path::new(flow_file).parent().unwrap_or(Path::new("."))
}

/// Files that have been checked and can be run.
pub(crate) struct Sound {
    /// Flows and settings.
    pub flows: Loaded,
    /// The TLS that they need.
    pub tls: LoadedTls,
    /// The secrets that they use.
    pub secrets: LoadedSecrets,
    /// The audit stream, if there is one.
    pub audit: Option<PreparedAudit>,
}

/// Every step there is.
static STEPS: [StepDefinition; steps::ALL.len() + OTHERS.len()] = join(steps::ALL, &OTHERS);

const OTHERS: [StepDefinition; menu::STEPS.len() + EVENTS.len()] = join(menu::STEPS, &EVENTS);

const EVENTS: [StepDefinition; topics::STEPS.len() + connectors::ALL.len()] =
    join(topics::STEPS, connectors::ALL);

/// Every kind of connection there is.
static CONNECTIONS: [ConnectionDefinition;
    steps::CONNECTIONS.len() + connectors::CONNECTIONS.len()] =
    join(steps::CONNECTIONS, connectors::CONNECTIONS);

/// Every kind of source there is.
static SOURCES: [SourceDefinition;
    steps::SOURCES.len() + topics::SOURCES.len() + connectors::SOURCES.len()] =
    join(steps::SOURCES, &OTHER_SOURCES);

const OTHER_SOURCES: [SourceDefinition; topics::SOURCES.len() + connectors::SOURCES.len()] =
    join(topics::SOURCES, connectors::SOURCES);

/// Every kind of trigger with a protocol of its own within HTTP.
static ENDPOINTS: [EndpointDefinition; connectors::ENDPOINTS.len() + topics::ENDPOINTS.len()] =
    join(connectors::ENDPOINTS, topics::ENDPOINTS);

/// Where documents have expressions beside the steps.
static EVALUATED: [&str; topics::EVALUATED.len() + menu::EVALUATED.len()] =
    join(topics::EVALUATED, menu::EVALUATED);

/// Two tables as one.
const fn join<T: Copy, const N: usize>(first: &[T], second: &[T]) -> [T; N] {
    let mut all = [first[0]; N];
    let mut at = 0;
    while at < N {
        all[at] = match at < first.len() {
            true => first[at],
            false => second[at - first.len()],
        };
        at += 1;
    }
    all
}

/// The parts that flow files may use.
pub(crate) const TABLE: flow::Table<'static> = flow::Table {
    steps: &STEPS,
    connections: &CONNECTIONS,
    sources: &SOURCES,
    endpoints: &ENDPOINTS,
    documents: topics::DOCUMENTS,
    kinds: menu::KINDS,
    access: auth::DEFINITION,
    evaluated: &EVALUATED,
    secrets: topics::SECRETS,
};

/// The documents of all files.
pub(crate) struct Parsed {
    pub sources: Sources,
    pub documents: Vec<Node>,
    /// What is wrong so far.
    pub report: Report,
}

/// Reads the YAML of the files.
pub(crate) fn parse(files: &Files) -> Parsed {
    let mut sources = Sources::default();
    let mut report = Report::default();
    let mut ids = Vec::new();
    for (name, bytes) in &files.0 {
        let id = sources.add(name.display().to_string(), bytes, &mut report);
        ids.extend(id.map(|id| (id, holds_tests(name))));
    }
    let mut documents = Vec::new();
    for (id, holds_tests) in ids {
        let found = config::parse(&sources, id, &mut report);
        let others = found
            .iter()
            .filter(|it| holds_tests && it.get("test").is_none());
        for other in others {
            let span = other.as_mapping().and_then(|entries| entries.first());
            let span = span.map_or(other.span, |entry| entry.key_span);
            let message = "in a file `*.test.yaml` every document is `test: FLOW`";
            report
                .error(NOT_A_TEST, span, message)
                .hint("move it to a file with another name: this one is not there when flows run");
        }
        documents.extend(found);
    }
    Parsed {
        sources,
        documents,
        report,
    }
}

/// Loads the flows of documents: of all, or of a part that a test needs.
pub(crate) fn load_flows(
    (documents, is_part): (Vec<Node>, bool),
    sources: &Sources,
    environment: &dyn Fn(&str) -> Option<String>,
    secrets: &KnownSecrets,
    (states, named): (&States, &NamedFiles),
    report: &mut Report,
) -> Option<Loaded> {
    let input = flow::Input {
        documents,
        table: TABLE,
        environment,
        secrets,
        surroundings: &Surroundings {
            files: &|source, name| named.read(sources.name(source), name),
            folder: &|source| folder_of(sources.name(source)).to_owned(),
            states,
            dead_letters: steps::store::dead_letters,
        },
        is_part,
    };
    flow::load(input, report)
}

/// What files are loaded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be looked at: what this build cannot open is a warning.
    Check,
    /// To be run: what this build cannot open is an error.
    Run,
}

/// Checks the files. The plan is there exactly when there is no error. TLS that was there `before`
/// is used again where nothing about it has changed. What the files name is noted in `named`.
pub(crate) fn load(
    files: &Files,
    purpose: Purpose,
    before: &LoadedTls,
    (states, named): (&States, &NamedFiles),
) -> (Option<Sound>, Problems) {
    let Parsed {
        sources,
        documents,
        mut report,
    } = parse(files);
    let environment = |name: &str| std::env::var(name).ok();
    let declared = flow::secret_sources(&documents, &environment);
    let secrets = LoadedSecrets::read(&declared, &environment, &sources, &mut report);
    let (look_up, known) = (&environment, &secrets.known);
    let flows = load_flows(
        (documents, false),
        &sources,
        look_up,
        known,
        (states, named),
        &mut report,
    );
    let missing = flows.as_ref().map_or(&[][..], |flows| &flows.missing);
    tell_missing(missing, purpose, &mut report);
    let sound = flows.map(|flows| Sound {
        tls: LoadedTls::of_plan(&flows.plan, before, &sources, &mut report),
        flows,
        secrets,
        audit: None,
    });
    let sound = sound.filter(|_| !report.has_errors()).map(|mut sound| {
        // The last, for it makes a file.
        sound.audit = audit::prepare(sound.flows.audit.as_ref(), purpose, &mut report);
        sound
    });
    let sound = sound.filter(|_| !report.has_errors());
    (sound, Problems::new(report, sources))
}

/// Tells which connections this build cannot open.
fn tell_missing(missing: &[(Span, String)], purpose: Purpose, report: &mut Report) {
    for (span, message) in missing {
        let diagnostic = match purpose {
            Purpose::Run => report.error(MISSING_DRIVER, *span, message),
            Purpose::Check => report.warning(MISSING_DRIVER, *span, message),
        };
        diagnostic.hint(match purpose {
            Purpose::Run => "`intertie check` checks the flows all the same",
            Purpose::Check => "`intertie run` refuses the flows as long as it is there",
        });
    }
}
