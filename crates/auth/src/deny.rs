//! `engine.deny`: the deny list's file, and when the list is in force.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use access::deny::{Denied, FileEntries, Kind, parse_file};
use component::access::AccessNodes;
use component::audit::{Audit, Changes, EventKind};
use component::definition::Surroundings;
use component::handler::{LocalFuture, Services};
use component::source::SourcePlan;
use component::state::StateKey;
use config::{Report, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;

use crate::codes::BAD_AUTH;
use crate::key_file::{Content, WatchedFile, audit_change, audit_problem, read_file, shared_file};
use crate::revocation::Revocations;
use crate::source::{self, Periodic, Repeated};

/// How often the file is looked at, so that a large one, which takes a while to read, is in force
/// within a second, too.
const EVERY: Duration = Duration::from_millis(500);

/// The deny list: credentials that are rejected although they are valid. Entries made through the
/// admin API are kept in the data folder; those of the file are only in the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DenyConfig {
    /// A file with one entry per line, relative to the flow file's folder, such as
    /// `{"jti":"6f1c","exp":1800000000}`, `{"sub":"ann"}` or `{"key":"shop"}`. A change applies
    /// within a second.
    pub file: Option<Spanned<String>>,
}

/// The schema of the value under `engine.deny`.
pub(crate) fn schema() -> Json {
    let mut schema = config::schema_for::<DenyConfig>();
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("title");
    }
    schema
}

/// The entries of the file.
pub(crate) struct DenyListFile(Arc<FileEntries>);

impl Content for DenyListFile {
    const NAME: &'static str = "deny list";
    const CHANGED: EventKind = EventKind::DenyChanged;
    type Settings = ();

    fn parse(text: &str, (): &()) -> Result<Self, String> {
        let parsed = parse_file(text).map(|entries| Self(Arc::new(entries)));
        parsed.map_err(|problem| problem.to_string())
    }

    fn changes(&self, before: &Self) -> Changes {
        Changes::between(before.named(), self.named())
    }
}

impl DenyListFile {
    /// The entries by what they name.
    fn named(&self) -> impl Iterator<Item = (EntryName<'_>, &Denied)> {
        let entries = self.0.iter();
        entries.map(|it| (EntryName(it.kind, &it.name), it))
    }
}

/// What an entry names. It is shown such as `sub ann`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct EntryName<'a>(Kind, &'a str);

impl fmt::Display for EntryName<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.0.name(), self.1)
    }
}

/// What the audit stream calls the list.
const TARGET: &str = "deny list";

/// What has to be done for the deny list, if anything. Every problem is reported.
pub(crate) fn read(
    nodes: AccessNodes<'_>,
    surroundings: &Surroundings<'_>,
    report: &mut Report,
) -> Option<SourcePlan> {
    let revocations = Revocations::of(surroundings.states);
    let Some(node) = nodes.deny else {
        let is_on = revocations.is_on();
        return is_on.then(|| plan(DenyList::Off(revocations)));
    };
    let config: DenyConfig = config::decode(node, report)?;
    if nodes.ways.is_none() {
        let message = "`deny` has no effect without `auth`: no credentials are known";
        report
            .error(BAD_AUTH, node.span, message)
            .hint("leave it out, or describe ways to know a caller under `engine.auth`");
        return None;
    }
    let file = match &config.file {
        None => None,
        Some(name) => {
            let hint = "an entry is a line such as `{\"sub\":\"ann\",\"reason\":\"left\"}`";
            let entries = read_file::<DenyListFile>(name, &(), hint, surroundings, report)?;
            if !revocations.is_on() {
                // Before anything is served; later on the source does it.
                revocations.set_file(Arc::clone(&entries.0));
            }
            let path = surroundings.path(name);
            let key = StateKey::shared(&path.to_string_lossy(), "deny_list");
            let (content, states) = (((), entries), surroundings.states);
            Some(shared_file(TARGET, (key, path), content, states))
        }
    };
    Some(plan(DenyList::On {
        _needed: revocations.need(),
        revocations,
        file,
        audit: Audit::of(surroundings.states),
    }))
}

fn plan(list: DenyList) -> SourcePlan {
    source::plan("deny list".to_owned(), Arc::new(Repeated(list)))
}

/// Puts the list in force, follows its file and forgets what has expired; or puts it out of force
/// when a reload has taken it away.
enum DenyList {
    On {
        revocations: Arc<Revocations>,
        file: Option<Arc<WatchedFile<DenyListFile>>>,
        audit: Arc<Audit>,
        _needed: Arc<()>,
    },
    Off(Arc<Revocations>),
}

impl Periodic for DenyList {
    fn turn<'a>(
        &'a self,
        is_first: bool,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Option<Instant>> {
        Box::pin(async move {
            let (revocations, file, audit) = match self {
                Self::Off(revocations) => {
                    revocations.set_on(false);
                    return None;
                }
                Self::On {
                    revocations,
                    file,
                    audit,
                    ..
                } => (revocations, file, audit),
            };
            if is_first {
                match file {
                    None => revocations.set_file(Arc::default()),
                    Some(file) => {
                        file.forget();
                        revocations.set_file(Arc::clone(&file.content().0));
                    }
                }
                revocations.set_on(true);
            }
            let (revocations, file) = (Arc::clone(revocations), file.clone());
            let audit = Arc::clone(audit);
            let work = move || look(&revocations, file.as_deref(), &audit);
            services.blocking(Box::new(work)).await;
            Some(services.now() + EVERY)
        })
    }
}

/// Takes a changed file, and forgets what has expired. Blocks.
fn look(revocations: &Revocations, file: Option<&WatchedFile<DenyListFile>>, audit: &Audit) {
    let before = file.map(WatchedFile::content);
    match file.map(WatchedFile::look) {
        Some(Ok(true)) => {
            if let (Some(file), Some(before)) = (file, before) {
                let content = file.content();
                let entries = Arc::clone(&content.0);
                tracing::info!(target: "auth", entries = entries.len(), "the deny list was read");
                // In force first: to compare two large files takes a while.
                revocations.set_file(entries);
                audit_change(audit, TARGET, &*before, &*content);
            }
        }
        Some(Err(problem)) => {
            tracing::warn!(
                target: "auth", problem,
                "the file of the deny list cannot be used; its entries stay as they are"
            );
            audit_problem::<DenyListFile>(audit, TARGET, &problem);
        }
        Some(Ok(false)) | None => {}
    }
    revocations.forget();
}
