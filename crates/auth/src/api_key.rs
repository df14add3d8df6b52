//! API keys.

use std::sync::Arc;

use access::api_keys::{ApiKey, ApiKeys};
use component::access::{Caller, RequestHead};
use component::audit::Audit;
use component::definition::Surroundings;
use component::handler::Services;
use component::source::SourcePlan;
use component::state::StateKey;
use config::{Report, Spanned};
use message::{Field, Headers};

use crate::codes::BAD_WAY;
use crate::config::ApiKeyConfig;
use crate::credential::{Carrier, Credential};
use crate::failed_checks::Guesses;
use crate::in_force::InForce;
use crate::key_file::{WatchedFile, read_file, shared_file, source_name, watch_file};
use crate::revocation::{FileEntry, Revocations};
use crate::way::{Check, Checked, Properties, Rejection, Way};

/// API keys of a file.
pub(crate) struct ApiKeyWay {
    properties: Properties,
    file: Arc<WatchedFile<ApiKeys>>,
    in_force: InForce<Arc<WatchedFile<ApiKeys>>>,
    revocations: Arc<Revocations>,
    audit: Arc<Audit>,
    guesses: Arc<Guesses>,
}

impl ApiKeyWay {
    /// Reads the way and its file. Every problem is reported.
    pub fn read(
        name: &Arc<str>,
        config: &Spanned<ApiKeyConfig>,
        passes: bool,
        surroundings: &Surroundings<'_>,
        report: &mut Report,
    ) -> Option<Self> {
        let carrier = carrier(config, report);
        let hint = "`intertie keys add` makes the file and its entries";
        let keys = read_file(&config.value.keys, &(), hint, surroundings, report);
        let path = surroundings.path(&config.value.keys);
        let key = StateKey::shared(&path.to_string_lossy(), "api_keys");
        let states = surroundings.states;
        let file = shared_file(&source_name(name), (key, path), ((), keys?), states);
        Some(Self {
            properties: Properties {
                passes,
                ..Properties::new(name, carrier?)
            },
            file,
            in_force: InForce::of(name, "api_keys", states),
            revocations: Revocations::of(surroundings.states),
            audit: Audit::of(surroundings.states),
            guesses: Guesses::of(surroundings.states),
        })
    }

    fn find(&self, key: &[u8], now: u64) -> Checked {
        let keys = self.file.content();
        let entry = keys.find(key, now);
        let entry = entry.ok_or(Rejection::Invalid("unknown_key"))?;
        Ok(Arc::new(self.caller(entry)).into())
    }

    fn caller(&self, entry: &ApiKey) -> Caller {
        let mut caller = Caller::new(
            &self.properties.name,
            entry.id.as_str(),
            expr::value::object([]),
        );
        caller.scopes.clone_from(&entry.scopes);
        caller.plan = entry.plan.as_deref().map(Into::into);
        caller.expires = entry.expires;
        // Its streams end with any change of the entry: who comes back is judged by the new one.
        let (in_force, entry) = (self.in_force.clone(), entry.clone());
        let is_known = move || in_force.admits(|file| file.content().has(&entry));
        caller.revocable = Some(Arc::new(FileEntry {
            revocations: Arc::clone(&self.revocations),
            is_known,
        }));
        caller
    }
}

fn carrier(config: &Spanned<ApiKeyConfig>, report: &mut Report) -> Option<Carrier> {
    match (&config.value.header, &config.value.query) {
        (Some(_), Some(query)) => {
            let message = "a key comes by `header` or by `query`, not by both";
            report
                .error(BAD_WAY, query.span, message)
                .hint("write two ways, and name both under `any`");
            None
        }
        (None, Some(query)) if query.value.is_empty() => {
            let message = "`query` is no name of a parameter";
            report.error(BAD_WAY, query.span, message);
            None
        }
        (None, Some(query)) => Some(Carrier::Query(query.value.as_str().into())),
        (Some(header), None) => {
            let name = &header.value;
            let is_own =
                Field::of(name.as_bytes()) != Field::Other || name.eq_ignore_ascii_case("cookie");
            if !Headers::is_name(name) || is_own {
                let message = format!("`{}` is no header for keys", name.escape_debug());
                report
                    .error(BAD_WAY, header.span, message)
                    .hint("write a name of your own, such as `X-Api-Key`");
                return None;
            }
            Some(Carrier::Field(name.to_ascii_lowercase().into()))
        }
        (None, None) => Some(Carrier::Field("x-api-key".into())),
    }
}

impl Way for ApiKeyWay {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn check<'a>(
        &'a self,
        credential: Credential<'a>,
        head: RequestHead<'a>,
        services: &'a dyn Services,
    ) -> Check<'a> {
        let now = services.wall().as_secs();
        let found = self.find(&credential.value, now);
        // A right key is taken from addresses that send wrong ones too: to look costs little.
        Check::Ready(found.map_err(|rejection| {
            let now = services.now();
            match self.guesses.look(head.peer, now) {
                Err(limited) => limited,
                Ok(()) => {
                    self.guesses.failed(head.peer, now);
                    rejection
                }
            }
        }))
    }

    fn source(&self) -> Option<SourcePlan> {
        let (in_force, file) = (self.in_force.clone(), Arc::clone(&self.file));
        Some(watch_file(
            &self.properties.name,
            &self.file,
            (&self.revocations, &self.audit),
            move |revocations| in_force.set(&file, revocations),
        ))
    }
}
