//! `engine.audit`: where the audit stream is written, and what must hold for a topic that it is
//! written to.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use component::definition::Surroundings;
use component::document::{Declaration, Declared};
use config::{Node, Report, Span, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::bounds::Bounds;
use crate::codes::{BAD_AUDIT, OPEN_TO_ALL};
use crate::document::Documents;
use crate::exposure::is_local;
use crate::listeners::Listeners;
use crate::suggest::did_you_mean;

/// The kind of document that the key `topic` names.
const TOPIC: &str = "topic";

/// How many refusals are written in a second.
const REFUSALS: Bounds<u64> = Bounds {
    least: 1,
    greatest: 10_000,
};

/// The audit stream: one JSON object for each refusal and each change of keys, plans, the deny list
/// and the configuration. Exactly one of `file` and `topic`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditConfig {
    /// A file to which a line is appended for each event (JSON Lines), relative to the flow file's
    /// folder. It is made with mode 0600 if it is not there, and opened anew within a second when
    /// it was renamed or removed.
    file: Option<Spanned<String>>,
    /// The topic to which each event is published: the name of a `topic:` document with
    /// `payload: event`, to which no client publishes.
    topic: Option<Spanned<String>>,
    /// The largest number of refusals that are written in a second, from 1 to 10000. Others are
    /// counted, and the counts are written.
    #[schemars(extend("default" = 10))]
    refusals: Option<Spanned<u64>>,
}

/// What `engine.audit` says.
#[derive(Clone)]
pub struct AuditSettings {
    /// Where events are written.
    pub target: AuditTarget,
    /// The most refusals that are written in a second.
    pub refusals: u32,
    /// Where the target is named.
    pub span: Span,
    /// What the files say, for telling what a reload has changed.
    pub fingerprints: Fingerprints,
}

/// Where events of the audit stream are written.
#[derive(Clone)]
pub enum AuditTarget {
    /// To this file.
    File(PathBuf),
    /// To this topic.
    Topic(Declaration),
}

impl fmt::Debug for AuditSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AuditSettings")
            .field("refusals", &self.refusals)
            .finish_non_exhaustive()
    }
}

/// Hashes of named parts of the files, by which those are found that a reload has changed. The
/// parts themselves may hold secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprints {
    /// Flows, topics and the like, such as `flow orders`, and the keys of the engine document, such
    /// as `engine.limits`.
    pub parts: BTreeMap<String, u64>,
    /// Plans of callers.
    pub plans: BTreeMap<String, u64>,
    /// Ways to know a caller.
    pub ways: BTreeMap<String, u64>,
}

impl Fingerprints {
    fn of(documents: &Documents, settings: &Node) -> Self {
        let mut all = Self {
            parts: entries(settings, "engine."),
            ..Self::default()
        };
        let flows = documents.flows.iter().map(|it| (it, "flow"));
        let others = documents.declared.iter();
        for (document, kind) in flows.chain(others.map(|(it, kind)| (it, kind.name))) {
            if let Some(name) = document.get(kind).and_then(Node::as_str) {
                let part = format!("{kind} {name}");
                all.parts.insert(part, fingerprint(document));
            }
        }
        let of = |key: &str| settings.get(key).map(|it| entries(it, ""));
        all.plans = of("plans").unwrap_or_default();
        all.ways = of("auth").unwrap_or_default();
        all
    }
}

fn entries(mapping: &Node, prefix: &str) -> BTreeMap<String, u64> {
    let entries = mapping.as_mapping().unwrap_or_default().iter();
    entries
        .map(|it| (format!("{prefix}{}", it.key), fingerprint(&it.value)))
        .collect()
}

fn fingerprint(node: &Node) -> u64 {
    let mut hasher = DefaultHasher::new();
    node.to_json().to_string().hash(&mut hasher);
    hasher.finish()
}

/// What the settings of the audit stream are read with.
pub(crate) struct Reading<'a> {
    pub documents: &'a Documents,
    pub declared: &'a [Declared],
    pub listeners: &'a Listeners,
    pub surroundings: &'a Surroundings<'a>,
}

/// Reads what stands under `audit` of the settings. Every problem goes into the report, but for
/// those that have been reported with the other settings.
pub(crate) fn read(
    settings: Option<&Node>,
    reading: &Reading<'_>,
    report: &mut Report,
) -> Option<AuditSettings> {
    let (settings, node) = (settings?, settings?.get("audit")?);
    let config: AuditConfig = config::decode(node, &mut Report::default())?;
    let refusals = match &config.refusals {
        None => 10,
        Some(count) => REFUSALS.check_count("refusals", count, report)?,
    };
    let (target, span) = match (&config.file, &config.topic) {
        (Some(file), None) => {
            let path = reading.surroundings.path(file);
            (AuditTarget::File(path), file.span)
        }
        (None, Some(topic)) => (
            AuditTarget::Topic(reading.topic(topic, report)?),
            topic.span,
        ),
        _ => {
            let message = "`audit` has exactly one of `file` and `topic`";
            report
                .error(BAD_AUDIT, node.span, message)
                .hint("write `audit: { file: audit.jsonl }`");
            return None;
        }
    };
    Some(AuditSettings {
        target,
        // Within the bounds.
        refusals: u32::try_from(refusals).unwrap_or(u32::MAX),
        span,
        fingerprints: Fingerprints::of(reading.documents, settings),
    })
}

impl Reading<'_> {
    fn topic(&self, name: &Spanned<String>, report: &mut Report) -> Option<Declaration> {
        let of_kind = |it: &&Declared| it.declaration.kind == TOPIC;
        let mut topics = self.declared.iter().filter(of_kind);
        let Some(topic) = topics.find(|it| *it.declaration.name == *name.value) else {
            self.refuse_unknown(name, report);
            return None;
        };
        let before = report.errors();
        let span = topic.declaration.span;
        if topic.routes.iter().any(|it| it.guard.publishes) || !topic.sources.is_empty() {
            let message = format!(
                "clients publish to topic `{}`: what they write could be taken for audit events",
                name.value
            );
            report
                .error(BAD_AUDIT, name.span, message)
                .also(span, "the topic")
                .hint("leave `publish` of the topic out, and `websocket.publish` and `profile`");
        }
        self.check_readers(topic, name, report);
        (report.errors() == before).then(|| topic.declaration.clone())
    }

    fn refuse_unknown(&self, name: &Spanned<String>, report: &mut Report) {
        let of_kind = self
            .documents
            .declared
            .iter()
            .filter(|it| it.1.name == TOPIC);
        let names = || {
            of_kind
                .clone()
                .filter_map(|(it, _)| it.get(TOPIC)?.as_str())
        };
        // One with a problem of its own has been reported.
        if names().any(|it| it == name.value) {
            return;
        }
        let hint = did_you_mean(&name.value, names());
        let hint = hint.unwrap_or_else(|| {
            "declare it in a document with `topic: NAME` and `payload: event`".to_owned()
        });
        let message = format!("there is no topic `{}`", name.value.escape_debug());
        report.error(BAD_AUDIT, name.span, message).hint(hint);
    }

    /// The stream says who calls from where: not everybody beyond this machine may read it.
    fn check_readers(&self, topic: &Declared, name: &Spanned<String>, report: &mut Report) {
        for route in &topic.routes {
            let listen = &route.entrance.http.listen;
            let is_behind = route.door.is_some() || !route.guard.doors.is_empty();
            let requests = &self.listeners.edge(listen).requests;
            let is_bounded = requests.lists_networks() || route.edge.lists_networks();
            if is_behind || is_bounded || is_local(listen) {
                continue;
            }
            let message = format!("everybody who reaches {listen} may read the audit stream");
            let name_of = format!("topic `{}`", name.value);
            let is_meant = route.guard.says_auth || self.listeners.auth(listen).is_some();
            match is_meant {
                true => report.warning(OPEN_TO_ALL, name.span, message),
                false => report.error(BAD_AUDIT, name.span, message),
            }
            .also(topic.declaration.span, name_of)
            .hint("name a way to know its readers under `subscribe.auth`, or listen on 127.0.0.1");
            return;
        }
    }
}
