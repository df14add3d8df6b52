//! Documents beside flows and settings, such as a topic: how one kind is declared once, and what
//! comes of a document of that kind.

use std::any::Any;
use std::sync::Arc;

use config::{Code, Node, Report, Span, Spanned};

use crate::access::{AccessPage, Door, Ways};
use crate::connection::Connections;
use crate::definition::Surroundings;
use crate::edge::RouteEdge;
use crate::evaluation::Evaluation;
use crate::handler::Handler;
use crate::limits::Gate;
use crate::source::SourcePlan;
use crate::tls::{ListenerTls, Protocol};
use crate::trigger::{HttpTrigger, ListenAddress};
use crate::upstream::UpstreamPlan;

/// Where requests come in: a trigger with the settings of its listener.
#[derive(Clone)]
pub struct Entrance {
    /// Methods, address and path.
    pub http: HttpTrigger,
    /// TLS of the listener, when it speaks it.
    pub tls: Option<ListenerTls>,
    /// The protocols of the listener, the preferred one first.
    pub protocols: Vec<Protocol>,
    /// Where it is written.
    pub span: Span,
}

/// A listener alone: where something listens whose paths are made elsewhere.
#[derive(Clone)]
pub struct Listening {
    /// The address.
    pub address: ListenAddress,
    /// TLS, when it speaks it.
    pub tls: Option<ListenerTls>,
    /// The protocols that it takes, the preferred one first.
    pub protocols: Vec<Protocol>,
    /// What holds for all its requests.
    pub edge: RouteEdge,
}

/// A route of a document.
#[derive(Clone)]
pub struct DeclaredRoute {
    /// Where its requests come in.
    pub entrance: Entrance,
    /// What a client meets before the handler, without that of the listener.
    pub edge: RouteEdge,
    /// Who takes them.
    pub handler: Arc<dyn Handler>,
    /// What stands in front of it.
    pub door: Option<Arc<dyn Door>>,
    /// Who gets further than that.
    pub guard: Guard,
    /// What doors that the handler asks by itself need on the listener.
    pub pages: Vec<AccessPage>,
    /// Whether the handler has doors of its own of which one [reads
    /// certificates](Door::reads_certificate).
    pub reads_certificate: bool,
}

/// What is known of the access to a route beside its door, for warnings.
#[derive(Clone)]
pub struct Guard {
    /// What its requests do with what is declared, such as `subscribe to`.
    pub verb: &'static str,
    /// The doors that its handler asks by itself.
    pub doors: Vec<Arc<dyn Door>>,
    /// Whether the document has an `auth` for it, be it `none`.
    pub says_auth: bool,
    /// Whether clients publish by it.
    pub publishes: bool,
}

/// What a document declares under a name, for flows to use.
#[derive(Clone)]
pub struct Declaration {
    /// The kind of document, such as `topic`.
    pub kind: &'static str,
    /// The name.
    pub name: Arc<str>,
    /// Where the name stands.
    pub span: Span,
    /// What it is to those who know the kind.
    pub value: Arc<dyn Any + Send + Sync>,
}

/// What comes of a document.
pub struct Declared {
    /// Its name and what flows can do with it.
    pub declaration: Declaration,
    /// What it serves. The routes' metrics have the document's name.
    pub routes: Vec<DeclaredRoute>,
    /// What it has done by itself.
    pub sources: Vec<SourcePlan>,
    /// The systems that it sends to.
    pub upstreams: Vec<Arc<UpstreamPlan>>,
    /// Other documents that it names.
    pub mentions: Vec<Mention>,
}

/// Another document that a document names. It is looked up when all of them have been built,
/// whatever their order in the files.
pub struct Mention {
    /// The kind of the other one, such as `topic`.
    pub kind: &'static str,
    /// Its name, and where it is written.
    pub name: Spanned<String>,
    /// What it is called when there is none of this name.
    pub unknown: Code,
    /// Takes the other one. Every problem goes into the report.
    pub found: Box<TakeMentioned>,
}

/// Takes a document that another one names.
pub type TakeMentioned = dyn FnOnce(&Declared, &mut Report);

/// Reads the parts of a document that flows have too: the loader.
pub trait EntranceReader {
    /// Reads what stands under `http:` of a trigger: the short text or the mapping. Every problem
    /// goes into the report; `None` when there was one.
    fn read_http(&self, node: &Node, report: &mut Report) -> Option<Entrance>;

    /// Reads the keys `listen`, `tls` and `protocols` of a mapping that may have others too, or
    /// the default when there is no mapping.
    fn read_listening(&self, node: Option<&Node>, report: &mut Report) -> Option<Listening>;

    /// The `auth` of the listener at an address: it holds for what listens there and has none of
    /// its own.
    fn listener_auth(&self, address: &ListenAddress) -> Option<&Node>;

    /// `engine.public_url`: how others reach the engine, what stands before each path; without a
    /// `/` at its end.
    fn public_url(&self) -> Option<&str>;

    /// Reads the limits per caller under a key of a document of this name: `throttle`, `plan`, `by`
    /// and `headers`. Every problem goes into the report; `None` when there was one.
    fn read_gate(
        &self,
        node: &Node,
        name: (&str, &str),
        reading: (&Evaluation, &Surroundings<'_>),
        report: &mut Report,
    ) -> Option<Arc<Gate>>;

    /// The trigger for these methods (`GET`, `GET,POST`) and this path of a listener. The texts are
    /// the document's kind's own, `span` is where problems with them are shown.
    fn entrance(
        &self,
        methods: &str,
        path: (&str, Span),
        listening: &Listening,
        report: &mut Report,
    ) -> Option<Entrance>;
}

/// What a document may know of its surroundings while it is built.
pub struct DocumentContext<'a> {
    /// Where problems go.
    pub report: &'a mut Report,
    /// The connections of the engine and of the document's own `use:`.
    pub connections: &'a Connections,
    /// Reads triggers and listeners.
    pub entrances: &'a dyn EntranceReader,
    /// What its expressions may use, if it has any.
    pub evaluation: &'a Evaluation,
    /// How callers are known.
    pub ways: &'a dyn Ways,
    /// What the loader knows beside the files.
    pub surroundings: &'a Surroundings<'a>,
}

/// The declaration of one kind of document, so that loader, schema and reference pages read the
/// same table.
#[derive(Clone, Copy)]
pub struct DocumentDefinition {
    /// The key that such a document begins with.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// Prose for the reference page, in Markdown.
    pub documentation: &'static str,
    /// A complete file that shows it; a test loads it.
    pub example: &'static str,
    /// The JSON Schema of the whole document without `use:`. `{"$ref": "#/$defs/http-trigger"}`
    /// stands for what is under `http:` of a trigger, `#/$defs/listener-tls` for TLS of a listener,
    /// `#/$defs/protocols` for its protocols and `#/$defs/auth` for who may come in.
    pub schema: fn() -> serde_json::Value,
    /// Checks a document and makes what it declares. Every problem goes into the report; `None`
    /// only when there was one. Opens nothing.
    pub build: fn(&Node, &mut DocumentContext<'_>) -> Option<Declared>,
}
