//! One `flow:` document: its name, what starts it, its limits and what happens to its messages.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use component::access::{Door, DoorContext, TicketTarget, Ways};
use component::block::Block;
use component::connection::Connections;
use component::cors::CorsConfig;
use component::definition::{BlockReader as _, BuildContext, FlowCall, Place, Surroundings};
use component::document::EntranceReader as _;
use component::edge::{self, RouteEdge};
use component::evaluation::Evaluation;
use component::exchange::FlowContext;
use component::failure::Handlers;
use component::flow_kind::FlowKind;
use component::forward::ForwardPlan;
use component::handler::Handler;
use component::networks::NetworksConfig;
use component::plan::RouteTarget;
use component::scope::Scope;
use component::security_headers::SecurityHeadersConfig;
use component::source::{SourceContext, SourcePage, SourcePlan, Started};
use component::trigger::HttpTrigger;
use component::upstream::UpstreamPlan;
use config::{Node, Report, Span};
use serde_json::json;

use crate::Table;
use crate::blocks::StepReader;
use crate::calls;
use crate::codes::{BAD_NAME, FLOW_NAME_TAKEN, NO_EFFECT};
use crate::connections;
use crate::enveloped::Enveloped;
use crate::kinds;
use crate::limits;
use crate::names::{NAME_RULE, is_name};
use crate::running::{FlowLimits, RunningFlow};
use crate::tests_section::TestCase;
use crate::tickets::{TicketRoute, Tickets};
use crate::trigger::{self, Defaults, HttpStart, Trigger};

/// A flow as far as it could be read.
pub(crate) struct Flow {
    pub name: Arc<str>,
    /// Where its name stands.
    pub name_span: Span,
    /// What starts it; absent when that has a problem.
    pub trigger: Option<Trigger>,
    /// The flow itself; absent when a part of it has a problem.
    pub running: Option<Arc<RunningFlow>>,
    /// What happens to the requests of an HTTP trigger.
    pub target: Option<RouteTarget>,
    /// What stands in front of it.
    pub door: Option<Arc<dyn Door>>,
    /// Whether it has an `auth` of its own, be it `none`.
    pub says_auth: bool,
    /// Where tickets for it are given.
    pub tickets: Option<TicketRoute>,
    /// What its source serves.
    pub pages: Vec<SourcePage>,
    /// What a client meets before it, without that of the listener.
    pub edge: RouteEdge,
    /// The systems that it sends to.
    pub upstreams: Vec<Arc<UpstreamPlan>>,
    /// Its own connections that this build cannot open, each with the reason.
    pub missing: Vec<(Span, String)>,
    /// The flows that it calls.
    pub calls: Vec<FlowCall>,
    /// The connections that it may use, those of the engine included.
    pub connections: Connections,
    /// The names of its expressions.
    pub scope: Scope,
    /// Its kind when it is no plain flow, such as `menu`: its messages are turns of a dialogue.
    pub kind: Option<&'static str>,
    /// Its tests.
    pub tests: Vec<Arc<TestCase>>,
    /// Its places by their numbers, for coverage.
    pub places: Vec<Place>,
}

/// What all flows are read with.
pub(crate) struct Reader<'a> {
    pub table: Table<'a>,
    /// The connections of the engine.
    pub shared: &'a Connections,
    pub defaults: &'a Defaults,
    /// What expressions outside steps may use.
    pub evaluation: &'a Evaluation,
    /// How callers are known.
    pub ways: &'a dyn Ways,
    pub surroundings: &'a Surroundings<'a>,
}

/// What steps have to know of how their flow is started.
struct FlowStart<'a> {
    /// The flow's name.
    name: &'a Arc<str>,
    http: Option<&'a HttpTrigger>,
    /// Whether the trigger is HTTP without a protocol on top, such as SOAP.
    is_plain: bool,
    /// Whether messages may have a known caller.
    may_have_caller: bool,
}

/// What a step list is built with and what building finds.
struct Workshop {
    scope: Scope,
    upstreams: Vec<Arc<UpstreamPlan>>,
    calls: Vec<FlowCall>,
    compiled: Vec<Span>,
    places: Vec<Place>,
}

impl Reader<'_> {
    /// Reads all flows. What has a problem is reported and left out.
    pub fn read_all(&self, documents: &[Node], report: &mut Report) -> Vec<Flow> {
        let mut flows: Vec<Flow> = Vec::new();
        let mut names: HashMap<Arc<str>, Span> = HashMap::new();
        for document in documents {
            let flow = self.read(document, report);
            if let Some(first) = names.get(&flow.name) {
                let message = format!("a second flow named `{}`", flow.name);
                report
                    .error(FLOW_NAME_TAKEN, flow.name_span, message)
                    .also(*first, "the first one")
                    .hint("every flow needs a name of its own");
            } else {
                names.insert(Arc::clone(&flow.name), flow.name_span);
            }
            flows.push(flow);
        }
        calls::check(&flows, report);
        flows
    }

    fn read(&self, document: &Node, report: &mut Report) -> Flow {
        let kind = self.check_shape(document, report);
        let before = report.errors();
        let (name, name_span) = read_name(document, kind.map_or("flow", |it| it.name), report);
        let mut connections =
            connections::read(document, self.table.connections, self.surroundings, report);
        let mut upstreams = connections::upstreams(&connections);
        let missing = connections::missing(&connections, self.table.connections);
        connections.shared = Arc::clone(&self.shared.own);
        connections.declarations = Arc::clone(&self.shared.declarations);
        let trigger = self.read_trigger(document, (&name, &connections), report);
        let source = trigger.as_ref().and_then(Trigger::source);
        upstreams.extend(source.into_iter().flat_map(|it| it.upstreams()));
        let mut workshop = Workshop {
            scope: self.evaluation.scope(),
            upstreams: Vec::new(),
            calls: Vec::new(),
            compiled: Vec::new(),
            places: Vec::new(),
        };
        let http = trigger.as_ref().and_then(Trigger::http);
        let start = trigger.as_ref().and_then(Trigger::start);
        let is_plain = start.is_some_and(|start| start.envelope.is_none());
        let tickets = Tickets::read(document, trigger.as_ref(), report);
        let guarded = (document, trigger.as_ref());
        let door = self.read_door(guarded, (&name, tickets.target()), report);
        let is_open = self.is_open(guarded);
        let tickets = tickets.route((door.as_ref(), is_open), trigger.as_ref(), report);
        // A called flow has the caller of the one that calls it.
        let may_have_caller = door.is_some() || trigger.as_ref().is_some_and(Trigger::is_call);
        let start = FlowStart {
            name: &name,
            http,
            is_plain,
            may_have_caller,
        };
        let built = self.read_steps(document, start, &connections, &mut workshop, report);
        upstreams.append(&mut workshop.upstreams);
        let limits = {
            let reading = (&self.defaults.callers, self.evaluation, self.surroundings);
            limits::read(document, &name, reading, report)
        };
        let flow = Flow {
            running: None,
            target: None,
            door,
            says_auth: document.get("auth").is_some(),
            tickets,
            pages: Vec::new(),
            edge: RouteEdge::read(document, report),
            name,
            name_span,
            trigger,
            upstreams,
            missing,
            calls: workshop.calls,
            connections,
            scope: workshop.scope,
            kind: kind.map(|it| it.name),
            tests: Vec::new(),
            places: workshop.places,
        };
        let is_sound = report.errors() == before;
        match (built, limits) {
            (Some(built), Some(limits)) => {
                self.finish(flow, document, built, limits, is_sound, report)
            }
            _ => flow,
        }
    }

    /// Checks the keys of a document, and says which kind of flow it is if it is no plain one.
    fn check_shape(&self, document: &Node, report: &mut Report) -> Option<&FlowKind> {
        let kind = kinds::of(document, self.table.kinds);
        match kind {
            Some(kind) => kinds::check(document, kind, report),
            None => config::check_kind(document, outline, report),
        };
        kind
    }

    fn read_trigger(
        &self,
        document: &Node,
        (name, connections): (&Arc<str>, &Connections),
        report: &mut Report,
    ) -> Option<Trigger> {
        let mut context = SourceContext {
            report,
            flow: name,
            connections,
            read_http: &|node, report| self.defaults.read_http(node, report),
            evaluation: self.evaluation,
            surroundings: self.surroundings,
        };
        if let Some(kind) = kinds::of(document, self.table.kinds) {
            return trigger::read_of_kind(document.get("from")?, kind, self.defaults, &mut context);
        }
        let table = (self.table.sources, self.table.endpoints);
        trigger::read(document.get("from")?, table, self.defaults, &mut context)
    }

    /// Whether neither the flow nor its listener says who may call it.
    fn is_open(&self, (document, trigger): (&Node, Option<&Trigger>)) -> bool {
        let of_listener = || {
            let start = trigger?.start()?;
            self.defaults.listeners.auth(&start.http.listen)
        };
        let auth = document.get("auth").or_else(of_listener);
        auth.is_none_or(|it| it.as_str() == Some("none"))
    }

    /// Reads `auth`, which is for flows that requests start; without it that of the listener holds.
    fn read_door(
        &self,
        (document, trigger): (&Node, Option<&Trigger>),
        (name, tickets): (&str, Option<TicketTarget>),
        report: &mut Report,
    ) -> Option<Arc<dyn Door>> {
        let name = &format!("flow {name}");
        let Some(entry) = document.entry("auth") else {
            let listen = &trigger?.start()?.http.listen;
            let auth = self.defaults.listeners.auth(listen)?;
            let mut context = DoorContext {
                // Its problems are reported at the listener.
                report: &mut Report::default(),
                name,
                evaluation: self.evaluation,
                tickets,
            };
            return self.ways.door(auth, &mut context);
        };
        if trigger.is_some_and(|it| it.start().is_none()) {
            let message = "`auth` has no effect: no client starts the flow";
            report
                .error(NO_EFFECT, entry.key_span, message)
                .hint("leave it out");
            return None;
        }
        let mut context = DoorContext {
            report,
            name,
            evaluation: self.evaluation,
            tickets,
        };
        self.ways.door(&entry.value, &mut context)
    }

    fn read_steps(
        &self,
        document: &Node,
        start: FlowStart<'_>,
        connections: &Connections,
        workshop: &mut Workshop,
        report: &mut Report,
    ) -> Option<Built> {
        let steps = StepReader {
            definitions: self.table.steps,
            names: RefCell::default(),
        };
        let handlers = document.get("on_error");
        let mut context = BuildContext {
            report,
            flow: start.name,
            label: Arc::clone(start.name),
            path: String::new(),
            trigger: start.http,
            may_have_caller: start.may_have_caller,
            identities: self.ways.identities(),
            connections,
            is_last: true,
            // Nobody streams to a flow, a source or a protocol of its own.
            may_stream: handlers.is_none() && start.is_plain,
            scope: &mut workshop.scope,
            upstreams: &mut workshop.upstreams,
            calls: &mut workshop.calls,
            compiled: &mut workshop.compiled,
            places: &mut workshop.places,
            blocks: &steps,
            surroundings: self.surroundings,
        };
        // What is no list, or an empty one, has been reported with the document's shape.
        let is_list = |node: &&Node| node.as_sequence().is_some_and(|items| !items.is_empty());
        let items = document.get("steps").filter(is_list);
        let block = match kinds::of(document, self.table.kinds) {
            Some(kind) => kinds::read_block(document, kind, &mut context),
            None => items.and_then(|items| steps.read_block(items, true, &mut context)),
        };
        context.may_stream = false;
        let on_error = match handlers.filter(is_list) {
            Some(clauses) => Some(steps.read_handlers(clauses, &mut context)?),
            None => None,
        };
        Some(Built {
            block: block?,
            on_error,
        })
    }

    /// What all messages of a flow share.
    fn context(&self, flow: &Flow) -> FlowContext {
        let (env, secrets) = self.evaluation.values();
        FlowContext {
            env,
            secrets,
            slots: flow.scope.slots(),
            keeps_original: flow.scope.uses_original(),
            decode: flow.trigger.as_ref().and_then(Trigger::decode),
            limits: self.defaults.expressions,
            ..FlowContext::new(&flow.name)
        }
    }

    /// Makes the flow of its parts.
    fn finish(
        &self,
        mut flow: Flow,
        document: &Node,
        built: Built,
        limits: FlowLimits,
        is_sound: bool,
        report: &mut Report,
    ) -> Flow {
        let context = self.context(&flow);
        let http = flow.trigger.as_ref().and_then(Trigger::http);
        let envelope = start_of(&flow).and_then(|start| start.envelope.clone());
        if limits.streams.is_some() && !built.block.streams() {
            let opens = envelope.as_ref().is_some_and(|it| it.streams());
            limits::refuse_streams(document, opens, report);
        }
        let answers = http.is_some() && envelope.as_ref().is_none_or(|it| !it.streams());
        if limits.gate.as_ref().is_some_and(|it| it.headers) && !answers {
            limits::refuse_headers(document, report);
        }
        let ends = built.block.ends_flow();
        let reads_body = !ends
            || context.keeps_original
            || built.block.reads_body()
            || built.on_error.as_ref().is_some_and(Handlers::reads_body);
        let detach = document.entry("detach");
        let kind = kinds::of(document, self.table.kinds);
        // What a turn of a dialogue has begun is finished: a repeated request finds the result.
        let detaches = kind.is_some()
            || detach.is_some_and(|it| matches!(it.value.value, config::Value::Bool(true)));
        let is_plain = limits.suits_forward_path() && envelope.is_none();
        // The forward path reads no bodies and takes no tickets.
        let door = flow.door.as_ref();
        let judges_body = door.is_some_and(|door| door.reads_body() || door.rewrites_fields());
        let plain = only_forward(&built).filter(|_| is_plain && !judges_body);
        let running = Arc::new(RunningFlow {
            context: Arc::new(context),
            block: built.block,
            on_error: built.on_error,
            limits,
            detaches,
            reads_body,
        });
        let body_max = http.map_or(self.defaults.body_max, |http| http.body_max);
        flow.target = Some(match &plain {
            Some(plan) => RouteTarget::Forward(with_limits(plan, &running.limits)),
            None => RouteTarget::Handle {
                handler: match envelope {
                    Some(envelope) => Arc::new(Enveloped {
                        flow: Arc::clone(&running),
                        envelope,
                    }),
                    None => Arc::clone(&running) as Arc<dyn Handler>,
                },
                body_max,
            },
        });
        if is_sound {
            let has_envelope = start_of(&flow).is_some_and(|it| it.envelope.is_some());
            let reads_body = (reads_body && plain.is_none()) || has_envelope || judges_body;
            check_effects(&flow, (reads_body, plain.is_some()), detach, report);
            check_edge(&flow, document, report);
            self.check_guarded(&flow, kind, report);
        }
        if let Some(source) = flow.trigger.as_ref().and_then(Trigger::source) {
            flow.pages = source.pages(&(Arc::clone(&running) as Arc<dyn Started>));
        }
        flow.running = Some(running);
        flow
    }
}

impl Reader<'_> {
    /// Refuses a flow of a kind that must not be open to everybody, where it is.
    fn check_guarded(&self, flow: &Flow, kind: Option<&FlowKind>, report: &mut Report) {
        if let (Some(kind), Some(start)) = (kind, start_of(flow)) {
            let place = (&start.http.listen, start.span);
            let listener = self.defaults.listeners.edge(&start.http.listen);
            let edges = [&flow.edge, &listener.requests];
            kinds::check_guarded(kind, place, flow.door.is_some(), edges, report);
        }
    }
}

/// The HTTP trigger of a flow.
fn start_of(flow: &Flow) -> Option<&HttpStart> {
    flow.trigger.as_ref().and_then(Trigger::start)
}

/// The steps of a flow and what happens when they fail.
struct Built {
    block: Block,
    on_error: Option<Handlers>,
}

/// The plan of a flow that does nothing but forward: its requests take the forward path.
fn only_forward(built: &Built) -> Option<Arc<ForwardPlan>> {
    let [only] = built.block.steps.as_slice() else {
        return None;
    };
    let is_plain = only.condition.is_none() && built.on_error.is_none();
    only.step.forwards().filter(|_| is_plain).map(Arc::clone)
}

fn with_limits(plan: &Arc<ForwardPlan>, limits: &FlowLimits) -> Arc<ForwardPlan> {
    if limits.time.is_none() && limits.streams.is_none() && limits.gate.is_none() {
        return Arc::clone(plan);
    }
    let mut plan = ForwardPlan::clone(plan);
    plan.timeouts.total = limits.time;
    plan.streams.clone_from(&limits.streams);
    plan.gate.clone_from(&limits.gate);
    if limits.counts_messages() {
        // Events of a compressed stream could not be told apart.
        plan.request_fields
            .remove
            .push("Accept-Encoding".to_owned());
    }
    Arc::new(plan)
}

/// Refuses settings that the flow makes nothing of.
fn check_effects(
    flow: &Flow,
    (reads_body, is_plain): (bool, bool),
    detach: Option<&config::Entry>,
    report: &mut Report,
) {
    let body_max = flow.trigger.as_ref().and_then(Trigger::start);
    let body_max = body_max.and_then(|start| start.body_max_span);
    if let Some(span) = body_max.filter(|_| !reads_body) {
        let message = "`body_max` has no effect: no step of the flow reads the body";
        report
            .error(NO_EFFECT, span, message)
            .hint("leave it out: the body is streamed and never held in memory");
    }
    if let Some(detach) = detach.filter(|_| is_plain) {
        let message = "`detach` has no effect: the flow only forwards";
        report
            .error(NO_EFFECT, detach.key_span, message)
            .hint("leave it out");
    }
    let is_http = flow
        .trigger
        .as_ref()
        .is_none_or(|trigger| trigger.http().is_some());
    if let Some(detach) = detach.filter(|_| !is_http) {
        let message = "`detach` has no effect: no client starts the flow";
        report
            .error(NO_EFFECT, detach.key_span, message)
            .hint("leave it out");
    }
}

/// Refuses what is asked of clients where there are none.
fn check_edge(flow: &Flow, document: &Node, report: &mut Report) {
    let start = flow.trigger.as_ref().and_then(Trigger::start);
    for key in edge::KEYS {
        let Some(entry) = document.entry(key).filter(|_| start.is_none()) else {
            continue;
        };
        let message = format!("`{key}` has no effect: no request starts the flow");
        report
            .error(NO_EFFECT, entry.key_span, message)
            .hint("leave it out");
    }
    let opens_streams = |start: &HttpStart| start.envelope.as_ref().is_some_and(|it| it.streams());
    if let Some(entry) = document.entry("cors")
        && start.is_some_and(opens_streams)
    {
        let message = "`cors` has no effect: browsers let every page open a WebSocket";
        report
            .error(NO_EFFECT, entry.key_span, message)
            .hint("list the origins that may connect under `origins` of the trigger");
    }
}

/// Where flows stand, by their names: the first one of each name.
pub(crate) fn by_name(flows: &[Flow]) -> HashMap<Arc<str>, usize> {
    let mut places = HashMap::new();
    for (at, flow) in flows.iter().enumerate() {
        places.entry(Arc::clone(&flow.name)).or_insert(at);
    }
    places
}

/// The flows that sources start.
pub(crate) fn sources(flows: &[Flow]) -> Vec<SourcePlan> {
    let plans = flows.iter().filter_map(|flow| {
        let source = flow.trigger.as_ref().and_then(Trigger::source)?;
        let running = Arc::clone(flow.running.as_ref()?);
        Some(SourcePlan {
            flow: running as Arc<dyn Started>,
            source: Arc::clone(source),
        })
    });
    plans.collect()
}

/// What is below the keys of a flow document, as schemas.
pub(crate) struct Parts {
    pub connections: serde_json::Value,
    pub from: serde_json::Value,
    pub step: serde_json::Value,
    pub clause: serde_json::Value,
    pub limits: serde_json::Value,
    pub auth: serde_json::Value,
    pub edge: [serde_json::Value; 3],
    pub test: serde_json::Value,
}

impl Default for Parts {
    /// Anything: what is below is checked by those who read it.
    fn default() -> Self {
        let anything = || json!({});
        Self {
            connections: anything(),
            from: anything(),
            step: anything(),
            clause: anything(),
            limits: anything(),
            auth: anything(),
            edge: [anything(), anything(), anything()],
            test: anything(),
        }
    }
}

/// The schemas of what a client meets before the flow.
pub(crate) fn edge_schemas() -> [serde_json::Value; 3] {
    let described = |mut schema: serde_json::Value, text: &str| {
        if let Some(object) = schema.as_object_mut() {
            object.remove("$schema");
            object.remove("title");
            object.insert("description".to_owned(), text.into());
        }
        schema
    };
    [
        described(
            config::schema_for::<CorsConfig>(),
            "Which web pages may read replies (CORS): `\"*\"` for all, or a mapping. In place of \
             that of the listener.",
        ),
        described(
            config::schema_for::<NetworksConfig>(),
            "From where clients may come: a list of networks that are allowed, or `allow` and \
             `deny`. Others get 403.",
        ),
        described(
            config::schema_for::<SecurityHeadersConfig>(),
            "Security headers of all replies: `api`, `page` or a mapping. In place of those of the \
             listener.",
        ),
    ]
}

/// The schema of a flow document, with anything below its keys.
fn outline() -> serde_json::Value {
    shape(Parts::default())
}

/// The schema of a flow document.
pub(crate) fn shape(parts: Parts) -> serde_json::Value {
    let [cors, networks, security_headers] = parts.edge;
    json!({
        "type": "object",
        "description": "A flow: a trigger and the steps that run for each message.",
        "properties": {
            "flow": { "type": "string", "description": "The flow's name, unique in all files." },
            "doc": { "type": "string", "description": "What the flow is for, in prose." },
            "use": parts.connections,
            "from": parts.from,
            "auth": parts.auth,
            "tickets": {
                "type": "boolean",
                "default": false,
                "description": "Whether `POST PATH/ticket` gives whoever `auth` lets in a ticket \
                                for 30 seconds, with which a browser's `EventSource` or \
                                `WebSocket`, which set no headers, is let in once: \
                                `PATH?ticket=TICKET`. Then a cookie lets it in again until the \
                                credential expires."
            },
            "cors": cors,
            "networks": networks,
            "security_headers": security_headers,
            "limits": parts.limits,
            "detach": {
                "type": "boolean",
                "default": false,
                "description": "Whether the flow continues when the client disconnects."
            },
            "steps": {
                "type": "array",
                "description": "The steps, in order.",
                "items": parts.step,
                "minItems": 1
            },
            "on_error": {
                "type": "array",
                "description": "Failure handlers: the first clause that matches is run. \
                                Without one the reply is a problem document (RFC 9457).",
                "items": parts.clause,
                "minItems": 1
            },
            "tests": {
                "type": "array",
                "description": "Tests of the flow, run by `intertie test`.",
                "items": parts.test
            }
        },
        "required": ["flow", "from", "steps"],
        "additionalProperties": false
    })
}

/// The flow's name as far as it can be told, and where it stands.
fn read_name(document: &Node, key: &str, report: &mut Report) -> (Arc<str>, Span) {
    let Some(node) = document.get(key) else {
        return ("".into(), document.span);
    };
    match node.as_str() {
        Some(name) if is_name(name) => return (name.into(), node.span),
        Some(name) => {
            let message = format!("`{}` is not a name for a {key}", name.escape_debug());
            report.error(BAD_NAME, node.span, message).hint(NAME_RULE);
        }
        None => {}
    }
    // Told apart by place, so that two flows without a name are not two of one name.
    (format!("#{}", node.span.start).into(), node.span)
}
