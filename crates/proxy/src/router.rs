//! Which route a request belongs to: a tree of path segments for each listener.

mod ambiguous_path;
mod locks;

use std::borrow::Cow;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Arc;

use component::access::Door;
use component::edge::RouteEdge;
use component::forward::ForwardPlan;
use component::limits::Gate;
use component::observe::{FlowMetrics, Registry};
use component::plan::{ListenerPlan, RoutePlan, RouteTarget};
use component::trigger::{Methods, Segment};
use hashbrown::HashMap;
use message::Method;

use crate::client::session::normalize;
use crate::upstream::request_head::ForwardTarget;
use crate::upstream::upstreams::Upstreams;
use locks::Locks;

/// A route as one worker serves it.
pub(crate) struct Route {
    /// The flow's name.
    pub flow: Arc<str>,
    /// What a client meets before the target.
    pub edge: Option<Arc<RouteEdge>>,
    /// The methods that it takes.
    methods: Methods,
    /// What happens to its requests.
    pub target: Target,
    /// What stands in front of it.
    pub door: Option<Arc<dyn Door>>,
    /// Whether some of its requests are refused by their credentials, by the door or the handler,
    /// or were when the plan was taken over.
    is_locked: bool,
    /// What its requests have to pass before.
    pub gate: Option<Arc<Gate>>,
    /// This worker's counters of the flow.
    pub metrics: Arc<FlowMetrics>,
    /// The names of the path's parameters in order, `rest` last when the pattern ends with `*`.
    pub parameters: Vec<Box<str>>,
}

/// What happens to the requests of a route.
pub(crate) enum Target {
    /// The forward path.
    Forward(Rc<ForwardTarget>),
    /// The message path.
    Handle {
        /// Who takes the messages.
        handler: Arc<dyn component::handler::Handler>,
        /// The most bytes of a body.
        body_max: u64,
        /// The targets that the handler's messages have been forwarded to.
        forwards: Rc<ForwardTargets>,
    },
}

impl Route {
    /// Whether some of its requests are refused by their credentials now: a handler's answer may
    /// depend on topics of the plan before, which go only when this plan is served.
    fn is_locked_now(&self) -> bool {
        let is_locked = match &self.target {
            Target::Handle { handler, .. } => handler.is_locked(),
            Target::Forward(_) => false,
        };
        self.door.is_some() || is_locked
    }

    /// The parameters of the query that carry credentials: logs must not show them.
    pub fn secret_parameters(&self) -> Vec<Arc<str>> {
        let door = self.door.as_deref().map(Door::secret_parameters);
        let mut names = door.unwrap_or_default().to_vec();
        if let Target::Handle { handler, .. } = &self.target {
            names.extend(handler.secret_parameters());
        }
        names
    }

    /// The methods that it takes, one of them perhaps by `any` alone.
    pub fn allowed_methods(&self, method: &Method) -> String {
        let mut methods = allow(vec![&self.methods]);
        if !methods.split(", ").any(|known| known == method.as_str()) {
            methods = format!("{methods}, {method}");
        }
        methods
    }
}

/// Forward targets by plan, each made when it is first used. The keys are pointers, which no
/// client chooses, so the faster hash of `hashbrown` will do.
#[derive(Default)]
pub(crate) struct ForwardTargets(RefCell<HashMap<*const ForwardPlan, Rc<ForwardTarget>>>);

impl ForwardTargets {
    /// The target of a plan.
    pub fn get(&self, plan: &Arc<ForwardPlan>, pool: &Upstreams) -> Rc<ForwardTarget> {
        let mut targets = self.0.borrow_mut();
        // There are as many plans for URLs as there are messages: the upstreams are kept, by host
        // and port.
        if plan.upstream.template.is_some() {
            return Rc::new(ForwardTarget::new(plan, pool));
        }
        // The target keeps the plan, so that no other one has its address.
        let target = targets
            .entry(Arc::as_ptr(plan))
            .or_insert_with(|| Rc::new(ForwardTarget::new(plan, pool)));
        Rc::clone(target)
    }
}

/// The routes of one listener.
#[derive(Default)]
pub(crate) struct Table {
    root: Node,
    /// What holds where a route says nothing; absent when neither the listener nor any route says
    /// anything.
    edge: Option<RouteEdge>,
    /// What this engine calls itself where it may call itself.
    loop_id: Option<Arc<str>>,
    /// What keeps open routes from taking requests of those that have doors, where there are any.
    locks: Option<Box<Locks>>,
    /// The parameters of the query in which any of its routes expects credentials.
    secret_parameters: Vec<Arc<str>>,
}

#[derive(Default)]
struct Node {
    /// In order.
    literals: Vec<(Box<[u8]>, Node)>,
    parameter: Option<Box<Node>>,
    here: Vec<(Methods, Rc<Route>)>,
    rest: Vec<(Methods, Rc<Route>)>,
}

/// The outcome of a search.
pub(crate) enum Found {
    /// This route. The captures hold its parameters.
    Route(Rc<Route>),
    /// There are routes for the path, but for other methods: these.
    OtherMethods(String),
    /// The request is about the server as a whole: `OPTIONS *` (RFC 9110, section 9.3.7).
    Server,
    /// There is no route for the path.
    Nothing,
    /// The path can be read in more than one way, and some route of the listener has a door.
    Ambiguous,
}

/// So many literals are looked at one after the other.
const FEW: usize = 8;

/// The order of routes by their paths. Of one path, those with doors come first: two spellings of
/// it can stand in the files. Others stay as they stand there.
fn in_order(one: &RoutePlan, other: &RoutePlan) -> Ordering {
    fn literals(route: &RoutePlan) -> impl Iterator<Item = Option<Cow<'_, [u8]>>> {
        let segments = route.path.segments.iter();
        segments.map(|segment| match segment {
            Segment::Literal(text) => Some(literal(text)),
            Segment::Parameter(_) => None,
        })
    }
    let by_path = literals(one).cmp(literals(other));
    by_path.then(one.door.is_none().cmp(&other.door.is_none()))
}

/// A literal of a pattern as it comes in requests, whose paths are normalized before they are
/// routed.
fn literal(text: &str) -> Cow<'_, [u8]> {
    match normalize(text.as_bytes()) {
        None => Cow::Borrowed(text.as_bytes()),
        Some(normal) => Cow::Owned(normal),
    }
}

/// Whether a client meets anything before the route's target. Handlers that share a route decide
/// for each request.
fn has_edge(route: &RoutePlan) -> bool {
    let shares = match &route.target {
        RouteTarget::Handle { handler, .. } => handler.shares().is_some(),
        RouteTarget::Forward(_) => false,
    };
    shares || route.edge.is_some()
}

/// Where parameters lie in the path.
pub(crate) type Captures = Vec<(u32, u32)>;

impl Table {
    /// The table of a listener. Upstreams are shared by all routes of the worker.
    pub fn new(plan: &ListenerPlan, worker: usize, registry: &Registry, pool: &Upstreams) -> Self {
        let mut table = Self::default();
        let listener = &plan.edge.requests;
        let asks = listener.cors.is_some() || listener.security_headers.is_some();
        table.loop_id = pool.loop_id();
        if asks || table.loop_id.is_some() || plan.routes.iter().any(has_edge) {
            table.edge = Some(listener.clone());
        }
        let mut routes: Vec<&RoutePlan> = plan.routes.iter().collect();
        routes.sort_by(|one, other| in_order(one, other));
        let mut added = Vec::new();
        for plan in routes {
            let route = table.add(plan, worker, registry, pool);
            for name in route.secret_parameters() {
                if !table.secret_parameters.contains(&name) {
                    table.secret_parameters.push(name);
                }
            }
            added.push((&plan.path, &plan.methods, route));
        }
        table.locks = Locks::new(added);
        table
    }

    fn add(
        &mut self,
        plan: &RoutePlan,
        worker: usize,
        registry: &Registry,
        pool: &Upstreams,
    ) -> Rc<Route> {
        let target = match &plan.target {
            RouteTarget::Forward(forward) => {
                Target::Forward(Rc::new(ForwardTarget::new(forward, pool)))
            }
            RouteTarget::Handle { handler, body_max } => {
                let forwards = Rc::default();
                Target::Handle {
                    handler: Arc::clone(handler),
                    body_max: *body_max,
                    forwards,
                }
            }
        };
        let mut parameters = Vec::new();
        let mut node = &mut self.root;
        for segment in &plan.path.segments {
            node = match segment {
                Segment::Literal(text) => node.literal(&literal(text)),
                Segment::Parameter(name) => {
                    parameters.push(name.as_str().into());
                    node.parameter.get_or_insert_default()
                }
            };
        }
        let leaf = if plan.path.rest {
            parameters.push("rest".into());
            &mut node.rest
        } else {
            &mut node.here
        };
        let metrics = registry.flow(worker, &plan.flow);
        let (gate, is_locked) = match &plan.target {
            RouteTarget::Forward(forward) => (forward.gate.as_ref(), false),
            RouteTarget::Handle { handler, .. } => (handler.gate(), handler.is_locked()),
        };
        let route = Rc::new(Route {
            flow: Arc::clone(&plan.flow),
            edge: plan.edge.clone(),
            methods: plan.methods.clone(),
            gate: gate.map(Arc::clone),
            target,
            is_locked: plan.door.is_some() || is_locked,
            door: plan.door.clone(),
            metrics,
            parameters,
        });
        leaf.push((plan.methods.clone(), Rc::clone(&route)));
        route
    }

    /// What clients meet at this listener, where anything is asked of any of them.
    #[inline]
    pub fn edge(&self) -> Option<&RouteEdge> {
        self.edge.as_ref()
    }

    /// What this engine calls itself, where requests that it has sent may come back.
    pub fn loop_id(&self) -> Option<&str> {
        self.loop_id.as_deref()
    }

    /// The parameters of the query that logs must not show of a request that no route takes: it may
    /// have been meant for any of them.
    pub fn secret_parameters(&self) -> &[Arc<str>] {
        &self.secret_parameters
    }

    /// The most specific route that takes this method and path: a literal segment goes before a
    /// parameter, a parameter before `*`, a named method before `any`.
    pub fn find(&self, method: &Method, path: &[u8], captures: &mut Captures) -> Found {
        captures.clear();
        if path == b"*" && *method == Method::Options {
            return Found::Server;
        }
        if path.first() != Some(&b'/') {
            return Found::Nothing;
        }
        let mut others = Vec::new();
        if let Some(route) = self.root.find(method, path, 0, captures, &mut others) {
            let locks = self.locks.as_ref();
            return match locks.is_some_and(|locks| locks.refuse(route, method, path)) {
                true => Found::Ambiguous,
                false => Found::Route(Rc::clone(route)),
            };
        }
        if others.is_empty() {
            Found::Nothing
        } else {
            Found::OtherMethods(allow(others))
        }
    }
}

impl Node {
    /// The node of a literal, made when it is missing. Literals come in order.
    fn literal(&mut self, text: &[u8]) -> &mut Self {
        let is_last = |(known, _): &(Box<[u8]>, Self)| **known == *text;
        if !self.literals.last().is_some_and(is_last) {
            self.literals.push((text.into(), Self::default()));
        }
        let last = self.literals.len() - 1;
        &mut self.literals[last].1
    }

    fn find_literal(&self, text: &[u8]) -> Option<&Self> {
        if self.literals.len() <= FEW {
            let mut literals = self.literals.iter();
            return literals.find(|(known, _)| **known == *text).map(|it| &it.1);
        }
        let found = self.literals.binary_search_by(|it| (*it.0).cmp(text));
        self.literals.get(found.ok()?).map(|it| &it.1)
    }

    /// `at` is where the next slash stands, or the end of the path.
    fn find<'a>(
        &'a self,
        method: &Method,
        path: &[u8],
        at: usize,
        captures: &mut Captures,
        others: &mut Vec<&'a Methods>,
    ) -> Option<&'a Rc<Route>> {
        let is_root = at == 0;
        if at == path.len() || (is_root && path == b"/") {
            if let Some(route) = choose(&self.here, method, others) {
                return Some(route);
            }
            if at == path.len() {
                return None;
            }
        }
        let start = at + 1;
        let tail = path.get(start..)?;
        let end = tail
            .iter()
            .position(|&byte| byte == b'/')
            .map_or(path.len(), |at| start + at);
        let segment = path.get(start..end)?;
        if let Some(node) = self.find_literal(segment)
            && let Some(route) = node.find(method, path, end, captures, others)
        {
            return Some(route);
        }
        if let Some(node) = self.parameter.as_ref().filter(|_| !segment.is_empty()) {
            captures.push((start as u32, end as u32));
            if let Some(route) = node.find(method, path, end, captures, others) {
                return Some(route);
            }
            captures.pop();
        }
        let route = choose(&self.rest, method, others)?;
        captures.push((start as u32, path.len() as u32));
        Some(route)
    }
}

fn choose<'a>(
    leaf: &'a [(Methods, Rc<Route>)],
    method: &Method,
    others: &mut Vec<&'a Methods>,
) -> Option<&'a Rc<Route>> {
    let named = |wanted: &Method| {
        leaf.iter().find(|(methods, _)| match methods {
            Methods::Only(list) => list.contains(wanted),
            Methods::Any => false,
        })
    };
    let any = || {
        let mut leaf = leaf.iter();
        let found = leaf.find(|(methods, _)| *methods == Methods::Any);
        found.filter(|_| *method != Method::Trace)
    };
    let implied = || {
        if *method == Method::Head {
            named(&Method::Get)
        } else {
            None
        }
    };
    let found = named(method).or_else(implied).or_else(any);
    if found.is_none() {
        others.extend(leaf.iter().map(|(methods, _)| methods));
    }
    found.map(|(_, route)| route)
}

/// The value of an `Allow` field (RFC 9110, section 10.2.1).
fn allow(others: Vec<&Methods>) -> String {
    // Those of RFC 9110 and RFC 5789 that `any` takes; it takes others, too.
    const ANY: [&str; 7] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];
    let mut names: Vec<&str> = Vec::new();
    for methods in others {
        match methods {
            Methods::Any => names.extend(ANY),
            Methods::Only(list) => {
                for method in list {
                    names.push(method.as_str());
                    if *method == Method::Get {
                        names.push("HEAD");
                    }
                }
            }
        }
    }
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

#[cfg(test)]
mod tests;
