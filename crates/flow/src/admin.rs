//! `engine.admin`: where the admin port is, who may read it and who may operate the engine by it.

use std::fmt;
use std::sync::Arc;

use component::access::{Door, DoorContext, Ways};
use component::evaluation::Evaluation;
use component::trigger::ListenAddress;
use component::upstream::UpstreamPlan;
use config::{AnyValue, Entry, Node, Report, Value};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::BAD_ADMIN;
use crate::trigger::parse_listen;

/// The admin port. `/health` and `/ready` need no credential, because probes have none; they only
/// report whether the engine is healthy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdminConfig {
    /// Where it listens: `host:port`, or `:port` for all interfaces. `intertie run --admin` takes
    /// its place.
    #[allow(dead_code, reason = "read from the tree, with the ways")]
    #[schemars(extend("default" = "127.0.0.1:9900"))]
    listen: Option<String>,
    /// Who may read `/metrics`, `/deny` and `/webhooks`: the name of an authentication method under
    /// `engine.auth`, a mapping as under `auth`, or a condition over `$auth`, for which
    /// `engine.auth` must have exactly one method. The default, and `none`, is everybody who
    /// reaches the port.
    #[allow(dead_code, reason = "read from the tree, with the ways")]
    view: Option<AnyValue>,
    /// Who may make changes (`POST /reload`, `POST /webhooks/...`, `POST` and `DELETE /deny`): the
    /// name of an authentication method under `engine.auth`, a mapping as under `auth`, or a
    /// condition over `$auth` that must hold for callers who may also view. By default nobody;
    /// `none` is everybody who reaches the port.
    #[allow(dead_code, reason = "read from the tree, with the ways")]
    operate: Option<AnyValue>,
    /// Further host names of the port, without ports, such as `intertie-admin.internal`. If no
    /// credential is needed to make changes or to read `/deny`, only requests to an IP address,
    /// `localhost`, the name under `listen` and these names are accepted: a page of another site
    /// could make its own host name resolve to this port (DNS rebinding).
    #[allow(dead_code, reason = "read from the tree, with the ways")]
    hosts: Option<Vec<String>>,
}

/// What `engine.admin` says.
#[derive(Clone, Default)]
pub struct AdminSettings {
    /// Where the admin port listens; where the application says when the file does not.
    pub listen: Option<ListenAddress>,
    /// What stands in front of what may be read; everybody may without.
    pub view: Option<Arc<dyn Door>>,
    /// Who may change something.
    pub operate: Operate,
    /// Names by which the port may be reached beside the usual ones, in lower case.
    pub hosts: Vec<String>,
    /// The systems that the doors ask.
    pub upstreams: Vec<Arc<UpstreamPlan>>,
}

/// Who may change something by the admin port.
#[derive(Clone, Default)]
pub enum Operate {
    /// Nobody: there is nothing to ask for.
    #[default]
    Nobody,
    /// Everybody who reaches the port.
    Everybody,
    /// Whoever this door lets in.
    Behind(Arc<dyn Door>),
}

impl fmt::Debug for AdminSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AdminSettings")
            .field("listen", &self.listen)
            .field("view", &self.view.is_some())
            .finish_non_exhaustive()
    }
}

/// Reads what stands under `admin` of the settings. Every problem goes into the report.
pub(crate) fn read(
    engine: Option<&Node>,
    ways: &dyn Ways,
    evaluation: &Evaluation,
    report: &mut Report,
) -> AdminSettings {
    let Some(admin) = engine.and_then(|it| it.get("admin")) else {
        return AdminSettings::default();
    };
    let names = engine.and_then(|it| it.get("auth")?.as_mapping());
    let names = names.unwrap_or_default().iter().map(|it| it.key.as_str());
    let mut reader = Reader {
        names: names.collect(),
        ways,
        evaluation,
        report,
    };
    let listen = admin.get("listen");
    let listen = listen.and_then(|node| reader.listen(node));
    let view = admin
        .get("view")
        .map(|node| reader.rule("view", node, None));
    let view = view.unwrap_or_default();
    let operate = admin.get("operate");
    let operate = match operate.map(|node| reader.rule("operate", node, view.auth.as_ref())) {
        None => Operate::Nobody,
        Some(Rule {
            door: Some(door), ..
        }) => Operate::Behind(door),
        // One with a problem is reported, and nothing is served then.
        Some(Rule { door: None, .. }) => Operate::Everybody,
    };
    let is_open = view.door.is_none() || matches!(operate, Operate::Everybody);
    let hosts = admin.entry("hosts");
    if let Some(entry) = hosts.filter(|_| !is_open) {
        let message =
            "`hosts` has no effect: callers need credentials, by whichever name they come";
        reader
            .report
            .error(BAD_ADMIN, entry.key_span, message)
            .hint("leave it out");
    }
    let hosts = hosts.map(|entry| reader.hosts(&entry.value));
    let is_locked = view.door.is_some() || matches!(operate, Operate::Behind(_));
    AdminSettings {
        listen,
        view: view.door,
        operate,
        hosts: hosts.unwrap_or_default(),
        upstreams: match is_locked {
            true => ways.upstreams(),
            false => Vec::new(),
        },
    }
}

/// Who may do something.
#[derive(Default)]
struct Rule {
    /// What stands in front of it; none for everybody.
    door: Option<Arc<dyn Door>>,
    /// The same as the value of an `auth`; none for everybody.
    auth: Option<Node>,
}

struct Reader<'a> {
    /// The names of all ways.
    names: Vec<&'a str>,
    ways: &'a dyn Ways,
    evaluation: &'a Evaluation,
    report: &'a mut Report,
}

impl Reader<'_> {
    fn listen(&mut self, node: &Node) -> Option<ListenAddress> {
        // What is no text has been reported with the other settings.
        match parse_listen(node.as_str()?) {
            Ok(address) => Some(address),
            Err(problem) => {
                problem.put(node.span, self.report);
                None
            }
        }
    }

    /// Reads names of hosts. What is no list of texts has been reported with the other settings.
    fn hosts(&mut self, node: &Node) -> Vec<String> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let mut hosts = Vec::new();
        for node in node.as_sequence().unwrap_or_default() {
            let name = node.as_str().unwrap_or_default();
            if name.is_empty() || !name.bytes().all(is_part) {
                let message = format!("`{}` is no name of a host", name.escape_debug());
                self.report
                    .error(BAD_ADMIN, node.span, message)
                    .hint("write it without scheme and port, such as `admin.internal`");
            }
            hosts.push(name.to_ascii_lowercase());
        }
        hosts
    }

    /// Reads who may do something. A condition holds beside what `base` demands.
    fn rule(&mut self, key: &str, node: &Node, base: Option<&Node>) -> Rule {
        let before = self.report.errors();
        let mut auth = node.clone();
        if node.as_str().is_some_and(is_condition) {
            let Some(ways) = self.ways_of_condition(key, node, base) else {
                return Rule::default();
            };
            // Alone first: a problem is shown where it stands.
            auth = require(ways, node);
            drop(self.door(key, &auth, true));
            if self.report.errors() > before {
                return Rule::default();
            }
            auth = base.map_or(auth, |base| with_condition(base, node));
            let door = self.door(key, &auth, false);
            self.refuse_what_is_not_there(door.as_ref(), node);
            return Rule {
                door,
                auth: Some(auth),
            };
        }
        let door = self.door(key, &auth, true);
        self.refuse_what_is_not_there(door.as_ref(), node);
        Rule {
            auth: door.is_some().then_some(auth),
            door,
        }
    }

    /// Refuses ways that know nobody here: the port reads no signed bodies, speaks no TLS and has
    /// no pages to log in by.
    fn refuse_what_is_not_there(&mut self, door: Option<&Arc<dyn Door>>, node: &Node) {
        let Some(door) = door else {
            return;
        };
        let message = match () {
            () if door.reads_body() => "the admin port does not read signed bodies",
            () if door.reads_certificate() => {
                "the admin port speaks no TLS: nobody has a certificate"
            }
            () if !door.pages().is_empty() => "nobody can log in at the admin port",
            () => return,
        };
        self.report
            .error(BAD_ADMIN, node.span, message)
            .hint("use a way whose credential stands in the head, such as `jwt` or `api_key`");
    }

    fn door(&mut self, key: &str, auth: &Node, reports: bool) -> Option<Arc<dyn Door>> {
        let mut silent = Report::default();
        let mut context = DoorContext {
            report: if reports {
                &mut *self.report
            } else {
                &mut silent
            },
            name: &format!("admin {key}"),
            evaluation: self.evaluation,
            tickets: None,
        };
        self.ways.door(auth, &mut context)
    }

    /// The names of the ways by which callers are known for whom a condition is to hold.
    fn ways_of_condition(&mut self, key: &str, node: &Node, base: Option<&Node>) -> Option<Node> {
        if let Some(base) = base {
            return match base.get("any") {
                Some(any) => Some(any.clone()),
                None => Some(sequence(base.clone())),
            };
        }
        if let [only] = self.names.as_slice() {
            return Some(sequence(text(node, only)));
        }
        let message = format!("`{key}` is a condition over `$auth`, but no way says who calls");
        self.report.error(BAD_ADMIN, node.span, message).hint(
            "write `{ any: [staff], require: ... }`, with the name of a way under `engine.auth`",
        );
        None
    }
}

/// Whether a text is a condition: the name of a way has no `$auth` in it.
fn is_condition(text: &str) -> bool {
    text.contains("$auth")
}

/// The `auth` of those whom `base` lets in and for whom a condition holds.
fn with_condition(base: &Node, condition: &Node) -> Node {
    let own = condition.as_str().unwrap_or_default();
    let Some(entries) = base.as_mapping() else {
        return require(sequence(base.clone()), condition);
    };
    let mut entries: Vec<Entry> = entries.to_vec();
    match entries.iter_mut().find(|it| it.key == "require") {
        Some(entry) => {
            let first = entry.value.as_str().unwrap_or_default();
            // The line breaks end what comments there are.
            entry.value = text(condition, &format!("({first}\n) and ({own}\n)"));
        }
        None => entries.push(Entry {
            key: "require".to_owned(),
            key_span: condition.span,
            value: condition.clone(),
        }),
    }
    Node {
        value: Value::Mapping(entries),
        span: base.span,
    }
}

/// A text that stands where another node does.
fn text(place: &Node, text: &str) -> Node {
    Node {
        value: Value::String(text.to_owned()),
        span: place.span,
    }
}

fn sequence(item: Node) -> Node {
    Node {
        span: item.span,
        value: Value::Sequence(vec![item]),
    }
}

/// The `auth` of those whom these ways know and for whom a condition holds.
fn require(ways: Node, condition: &Node) -> Node {
    let entry = |key: &str, value: Node| Entry {
        key: key.to_owned(),
        key_span: value.span,
        value,
    };
    let entries = vec![entry("any", ways), entry("require", condition.clone())];
    Node {
        value: Value::Mapping(entries),
        span: condition.span,
    }
}
