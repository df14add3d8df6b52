//! `engine.deny`: the deny list's file, and when the list is in force.

use std::sync::Arc;

use access::FileProblem;
use access::deny::{Denied, parse_file};
use component::access::AccessNodes;
use component::definition::Surroundings;
use component::handler::{LocalFuture, Services};
use component::source::{Source, SourcePlan, Started};
use component::state::StateKey;
use config::{Report, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;

use crate::codes::BAD_AUTH;
use crate::key_file::{Content, EVERY, WatchedFile, read_file};
use crate::revocation::Revocations;
use crate::source::{self, wait_until};

/// Credentials that are refused although they are good. The entries of the admin API are kept in
/// the data folder; those of the file stand in the file alone.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DenyConfig {
    /// A file with an entry a line, relative to the flow file's folder, such as
    /// `{"jti":"6f1c","exp":1800000000}`, `{"sub":"ann"}` or `{"key":"shop"}`. A changed file is
    /// taken within a second.
    pub file: Option<Spanned<String>>,
}

/// The schema of the value under `engine.deny`.
pub(crate) fn schema() -> Json {
    config::schema_for::<DenyConfig>()
}

/// The entries of the file.
pub(crate) struct DeniedFile(Vec<Denied>);

impl Content for DeniedFile {
    const NAME: &'static str = "deny list";

    fn parse(text: &str) -> Result<Self, FileProblem> {
        parse_file(text).map(Self)
    }
}

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
            let entries = read_file::<DeniedFile>(name, hint, surroundings, report)?;
            if !revocations.is_on() {
                // Before anything is served; later on the source does it.
                revocations.set_file(entries.0.clone());
            }
            let path = surroundings.path(name);
            let key = StateKey::shared(&path.to_string_lossy(), "deny_list");
            let new = || WatchedFile::new(path, entries);
            Some(surroundings.states.get(key, new))
        }
    };
    Some(plan(DenyList::On {
        _needed: revocations.need(),
        revocations,
        file,
    }))
}

fn plan(list: DenyList) -> SourcePlan {
    source::plan("deny list".to_owned(), Arc::new(list))
}

/// Puts the list in force, follows its file and forgets what has expired; or puts it out of force
/// when a reload has taken it away.
enum DenyList {
    On {
        revocations: Arc<Revocations>,
        file: Option<Arc<WatchedFile<DeniedFile>>>,
        _needed: Arc<()>,
    },
    Off(Arc<Revocations>),
}

impl Source for DenyList {
    fn run<'a>(
        &'a self,
        _: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        mut stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            let (revocations, file) = match self {
                Self::Off(revocations) => {
                    revocations.set_on(false);
                    return stop.await;
                }
                Self::On {
                    revocations, file, ..
                } => (revocations, file),
            };
            match file {
                None => revocations.set_file(Vec::new()),
                Some(file) => {
                    file.forget();
                    revocations.set_file(file.content().0.clone());
                }
            }
            revocations.set_on(true);
            loop {
                let (revocations, file) = (Arc::clone(revocations), file.clone());
                let work = move || look(&revocations, file.as_deref());
                services.blocking(Box::new(work)).await;
                let next = services.now() + EVERY;
                if !wait_until(next, &mut stop, services).await {
                    return;
                }
            }
        })
    }
}

/// Takes a changed file, and forgets what has expired. Blocks.
fn look(revocations: &Revocations, file: Option<&WatchedFile<DeniedFile>>) {
    match file.map(WatchedFile::look) {
        Some(Ok(true)) => {
            if let Some(file) = file {
                let entries = file.content().0.clone();
                tracing::info!(target: "auth", entries = entries.len(), "the deny list was read");
                revocations.set_file(entries);
            }
        }
        Some(Err(problem)) => tracing::warn!(
            target: "auth", problem,
            "the file of the deny list cannot be used; its entries stay as they are"
        ),
        Some(Ok(false)) | None => {}
    }
    revocations.forget();
}
