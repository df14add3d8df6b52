//! All flows together: which addresses they share, and whether any two take the same requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use component::access::{AccessPage, Door, Ways};
use component::document::{Declared, Entrance};
use component::edge::RouteEdge;
use component::plan::{ListenerPlan, RoutePlan, RouteTarget};
use component::tls::{ListenerTls, Protocol};
use component::trigger::{HttpTrigger, ListenAddress, Methods};
use config::{Report, Span};

use crate::codes::{DIFFERENT_TLS, LISTENER_TLS, OVERLAPPING_LISTENERS, ROUTE_CONFLICT};
use crate::compile::Flow;
use crate::listeners::Listeners;
use crate::trigger::Trigger;

/// Something that requests start: a flow or a document beside them.
#[derive(Clone, Copy)]
struct Routed<'a> {
    kind: &'a str,
    name: &'a Arc<str>,
    http: &'a HttpTrigger,
    tls: &'a Option<ListenerTls>,
    protocols: &'a Vec<Protocol>,
    door: &'a Option<Arc<dyn Door>>,
    reads_certificate: bool,
    edge: &'a RouteEdge,
    span: Span,
    /// Whether it is a page of access control, which no other route may hide.
    is_page: bool,
}

/// A page of access control on one listener.
struct ListenerPage {
    page: AccessPage,
    http: HttpTrigger,
    tls: Option<ListenerTls>,
    protocols: Vec<Protocol>,
}

/// The pages of access control, once on each listener: those that the doors of these routes need,
/// and the one with the keys of the identity header.
fn pages(flows: &[Flow], declared: &[Declared], ways: &dyn Ways) -> Vec<ListenerPage> {
    let mut known = BTreeSet::new();
    let mut all = Vec::new();
    let keys = ways.identities().map(|it| it.page());
    if let Some((Some(listen), page)) = keys.clone() {
        // Whoever listens there too says how.
        let mut others = routed(flows, declared).map(|(it, _)| it);
        let twin = others.find(|it| it.http.listen == listen);
        all.push(ListenerPage {
            http: trigger_of(&page, listen),
            tls: twin.and_then(|it| it.tls.clone()),
            protocols: twin.map_or_else(|| vec![Protocol::Http1], |it| it.protocols.clone()),
            page,
        });
    }
    // Also those of routes that share a handler with others.
    let asked = declared.iter().flat_map(|it| &it.routes).map(|route| {
        let Entrance {
            http,
            tls,
            protocols,
            ..
        } = &route.entrance;
        (http, tls, protocols, route.pages.clone())
    });
    let keys = keys.filter(|(listen, _)| listen.is_none());
    let guarded = routed(flows, declared).map(|(it, _)| {
        let pages = it.door.iter().flat_map(|door| door.pages());
        let keys = keys.iter().filter(|_| it.door.is_some());
        let pages = pages.chain(keys.map(|(_, page)| page.clone())).collect();
        (it.http, it.tls, it.protocols, pages)
    });
    for (http, tls, protocols, pages) in guarded.chain(asked) {
        for page in pages {
            let listen = http.listen.clone();
            if !known.insert((listen.clone(), Arc::clone(&page.way), page.path.shape())) {
                continue;
            }
            all.push(ListenerPage {
                http: trigger_of(&page, listen),
                tls: tls.clone(),
                protocols: protocols.clone(),
                page,
            });
        }
    }
    all
}

/// What leads to a page on a listener.
fn trigger_of(page: &AccessPage, listen: ListenAddress) -> HttpTrigger {
    HttpTrigger {
        methods: page.methods.clone(),
        listen,
        path: page.path.clone(),
        body_max: page.body_max,
        decode: None,
    }
}

/// The same as routes.
fn page_routes<'a>(
    pages: &'a [ListenerPage],
    (edge, door): (&'a RouteEdge, &'a Option<Arc<dyn Door>>),
) -> impl Iterator<Item = (Routed<'a>, Option<RouteTarget>)> {
    pages.iter().map(move |it| {
        let routed = Routed {
            kind: "way",
            name: &it.page.way,
            http: &it.http,
            tls: &it.tls,
            protocols: &it.protocols,
            door,
            reads_certificate: false,
            edge,
            span: it.page.span,
            is_page: true,
        };
        let target = RouteTarget::Handle {
            handler: Arc::clone(&it.page.handler),
            body_max: it.page.body_max,
        };
        (routed, Some(target))
    })
}

fn reads_certificate(door: &Option<Arc<dyn Door>>) -> bool {
    door.as_ref().is_some_and(|it| it.reads_certificate())
}

/// What requests start, in the order of the files: flows whose trigger could be read, then the
/// documents beside them.
fn routed<'a>(
    flows: &'a [Flow],
    declared: &'a [Declared],
) -> impl Iterator<Item = (Routed<'a>, Option<RouteTarget>)> {
    let starts = flows.iter().filter_map(|flow| {
        let start = flow.trigger.as_ref().and_then(Trigger::start)?;
        Some((flow, start))
    });
    let started = starts.flat_map(|(flow, start)| {
        let routed = Routed {
            kind: "flow",
            name: &flow.name,
            http: &start.http,
            tls: &start.tls,
            protocols: &start.protocols,
            door: &flow.door,
            reads_certificate: reads_certificate(&flow.door),
            edge: &flow.edge,
            span: start.span,
            is_page: false,
        };
        let tickets = flow.tickets.as_ref().map(|it| {
            // It asks the door itself, which judges another request than this one.
            let routed = Routed {
                http: &it.http,
                door: &None,
                ..routed
            };
            (routed, Some(it.target.clone()))
        });
        [Some((routed, flow.target.clone())), tickets]
            .into_iter()
            .flatten()
    });
    let declared = declared.iter().flat_map(|it| {
        it.routes.iter().map(|route| {
            let entrance = &route.entrance;
            let routed = Routed {
                kind: it.declaration.kind,
                name: &it.declaration.name,
                http: &entrance.http,
                tls: &entrance.tls,
                protocols: &entrance.protocols,
                door: &route.door,
                reads_certificate: route.reads_certificate || reads_certificate(&route.door),
                edge: &route.edge,
                span: entrance.span,
                is_page: false,
            };
            let target = RouteTarget::Handle {
                handler: Arc::clone(&route.handler),
                body_max: entrance.http.body_max,
            };
            (routed, Some(target))
        })
    });
    started.chain(source_routes(flows)).chain(declared)
}

/// What sources of flows are called by, such as callbacks.
fn source_routes(flows: &[Flow]) -> impl Iterator<Item = (Routed<'_>, Option<RouteTarget>)> {
    flows.iter().flat_map(|flow| {
        flow.pages.iter().map(|page| {
            let entrance = &page.entrance;
            let routed = Routed {
                kind: "flow",
                name: &flow.name,
                http: &entrance.http,
                tls: &entrance.tls,
                protocols: &entrance.protocols,
                door: &None,
                reads_certificate: false,
                edge: &flow.edge,
                span: entrance.span,
                is_page: false,
            };
            let target = RouteTarget::Handle {
                handler: Arc::clone(&page.handler),
                body_max: entrance.http.body_max,
            };
            (routed, Some(target))
        })
    })
}

/// The same, of handlers that do the same the first one alone.
fn served<'a>(
    flows: &'a [Flow],
    declared: &'a [Declared],
) -> impl Iterator<Item = (Routed<'a>, Option<RouteTarget>)> {
    let mut shared = BTreeSet::new();
    routed(flows, declared).filter(move |(routed, target)| {
        let Some(RouteTarget::Handle { handler, .. }) = target else {
            return true;
        };
        handler
            .shares()
            .is_none_or(|what| shared.insert((what, &routed.http.listen, routed.http.path.shape())))
    })
}

/// Checks every route against those before it, and these listeners against all routes.
pub(crate) fn check(
    (flows, declared): (&[Flow], &[Declared]),
    ways: &dyn Ways,
    listeners: Option<&Listeners>,
    report: &mut Report,
) {
    let mut told = BTreeSet::new();
    for (routed, _) in routed(flows, declared) {
        // A topic has several addresses.
        if told.insert((routed.kind, routed.name, &routed.http.listen)) {
            check_certificates(routed, listeners, report);
        }
    }
    let (pages, open) = (pages(flows, declared, ways), (&RouteEdge::default(), &None));
    let routed = served(flows, declared).chain(page_routes(&pages, open));
    let routed: Vec<Routed<'_>> = routed.map(|(routed, _)| routed).collect();
    check_conflicts(&routed, report);
    check_listeners(&routed, report);
    // A trigger that could not be read may be the one that listens there.
    if let Some(listeners) = listeners.filter(|_| !report.has_errors()) {
        listeners.check_used(routed.iter().map(|it| &it.http.listen), report);
    }
}

/// The listeners with their routes, addresses in order and routes in the order of the files.
pub(crate) fn group(
    (flows, declared): (&[Flow], &[Declared]),
    ways: &dyn Ways,
    configured: &Listeners,
) -> Vec<ListenerPlan> {
    let mut listeners: BTreeMap<ListenAddress, ListenerPlan> = BTreeMap::new();
    let (pages, open) = (pages(flows, declared, ways), (&RouteEdge::default(), &None));
    for (routed, target) in served(flows, declared).chain(page_routes(&pages, open)) {
        let Some(target) = target else {
            continue;
        };
        let listener = listeners
            .entry(routed.http.listen.clone())
            .or_insert_with(|| ListenerPlan {
                address: routed.http.listen.clone(),
                tls: routed.tls.clone().map(Arc::new),
                protocols: routed.protocols.clone(),
                edge: configured.edge(&routed.http.listen),
                routes: Vec::new(),
            });
        let edge = routed.edge.within(&listener.edge.requests);
        // Its counters are no flow's.
        let name = match routed.is_page {
            true => format!("auth {}", routed.name).into(),
            false => routed.name.clone(),
        };
        listener.routes.push(RoutePlan {
            flow: name,
            methods: routed.http.methods.clone(),
            path: routed.http.path.clone(),
            edge: Some(edge).filter(|edge| !edge.is_empty()).map(Arc::new),
            target,
            door: routed.door.clone(),
        });
    }
    listeners.into_values().collect()
}

/// A door that knows callers by certificates where no client can show one.
fn check_certificates(this: Routed<'_>, listeners: Option<&Listeners>, report: &mut Report) {
    let asks = this.tls.as_ref().is_some_and(|it| it.clients.is_some());
    let listen = &this.http.listen;
    let is_told = listeners.is_none_or(|it| it.edge(listen).client_cert_header);
    if !this.reads_certificate || asks || is_told {
        return;
    }
    let message = format!(
        "`auth` of {} `{}` knows callers by certificates, and no client can show one to {listen}",
        this.kind, this.name
    );
    report.error(LISTENER_TLS, this.span, message).hint(
        "add `client_ca` to the `tls` of the trigger; behind proxies that end TLS, \
         `client_cert_header: true` to the address under `engine.listeners`",
    );
}

/// Same address, same shape, same method: nobody could say which flow is meant.
fn check_conflicts(routed: &[Routed<'_>], report: &mut Report) {
    let mut places: BTreeMap<(&ListenAddress, String), Vec<Routed<'_>>> = BTreeMap::new();
    for &this in routed {
        let http = this.http;
        let others = places.entry((&http.listen, http.path.shape())).or_default();
        for other in others.iter() {
            let is_page = this.is_page || other.is_page;
            let hidden = || is_page.then(|| "requests for".to_owned());
            let overlap = overlap(&http.methods, &other.http.methods);
            let Some(shared) = overlap.or_else(hidden) else {
                continue;
            };
            let message = format!(
                "{} `{}` takes {shared} {}{}, which {} `{}` takes already",
                this.kind, this.name, http.listen, http.path, other.kind, other.name
            );
            report
                .error(ROUTE_CONFLICT, this.span, message)
                .also(other.span, format!("{} `{}`", other.kind, other.name))
                .hint("change the path, the method or the listening address of one of them");
        }
        others.push(this);
    }
}

/// The methods that both take. A named method wins over `any`, so these two do not collide.
fn overlap(left: &Methods, right: &Methods) -> Option<String> {
    match (left, right) {
        (Methods::Any, Methods::Any) => Some("any".to_owned()),
        (Methods::Only(left), Methods::Only(right)) => {
            let shared: Vec<&str> = left
                .iter()
                .filter(|method| right.contains(method))
                .map(|method| method.as_str())
                .collect();
            (!shared.is_empty()).then(|| shared.join(","))
        }
        _ => None,
    }
}

/// One report for each pair of an address and the first other address or TLS setting it meets.
fn check_listeners(routed: &[Routed<'_>], report: &mut Report) {
    // By port: no other address can take the same connections.
    let mut by_port: HashMap<u16, Vec<Routed<'_>>> = HashMap::new();
    for &this in routed {
        let listen = &this.http.listen;
        let seen = by_port.entry(listen.port).or_default();
        let twin = seen.iter().find(|other| other.http.listen == *listen);
        match twin {
            Some(other) if other.tls != this.tls || other.protocols != this.protocols => {
                report_tls(this, *other, report);
            }
            Some(_) => {}
            None => {
                let clash = seen
                    .iter()
                    .find(|other| clashes(&other.http.listen, listen));
                if let Some(other) = clash {
                    report_overlap(this, *other, report);
                }
                seen.push(this);
            }
        }
    }
}

fn report_tls(this: Routed<'_>, other: Routed<'_>, report: &mut Report) {
    let message = format!(
        "{} listen on {} with different `tls` or `protocols`",
        pair(other, this),
        this.http.listen
    );
    report
        .error(DIFFERENT_TLS, this.span, message)
        .also(other.span, format!("{} `{}`", other.kind, other.name))
        .hint("give both the same, or two ports");
}

/// What two are called.
fn pair(first: Routed<'_>, second: Routed<'_>) -> String {
    let (kind, name, other) = (first.kind, first.name, second.name);
    match second.kind {
        same if same == kind => format!("{kind}s `{name}` and `{other}`"),
        different => format!("{kind} `{name}` and {different} `{other}`"),
    }
}

fn report_overlap(this: Routed<'_>, other: Routed<'_>, report: &mut Report) {
    let (listen, first) = (&this.http.listen, &other.http.listen);
    let message = format!("the addresses {listen} and {first} overlap");
    report
        .error(OVERLAPPING_LISTENERS, this.span, message)
        .also(
            other.span,
            format!("{} `{}` listens on {first}", other.kind, other.name),
        )
        .hint("write the same address in both flows; `:PORT` listens on all interfaces");
}

/// Whether two different addresses take the same connections: the system would then decide which
/// flow gets which. `localhost` may stand for either loop-back address.
fn clashes(left: &ListenAddress, right: &ListenAddress) -> bool {
    if left.port != right.port {
        return false;
    }
    let is_local = |address: &ListenAddress| address.host.as_deref() == Some("localhost");
    is_all(left)
        || is_all(right)
        || (is_local(left) && (is_loopback(right) || is_local(right)))
        || (is_local(right) && is_loopback(left))
}

fn is_all(address: &ListenAddress) -> bool {
    ip(address).map_or(address.host.is_none(), |ip| ip.is_unspecified())
}

fn is_loopback(address: &ListenAddress) -> bool {
    ip(address).is_some_and(|ip| ip.is_loopback())
}

fn ip(address: &ListenAddress) -> Option<IpAddr> {
    address.host.as_deref().and_then(|host| host.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trigger::parse_listen;

    #[test]
    fn addresses_that_take_the_same_connections_clash() {
        let cases = [
            (":80", "127.0.0.1:80", true),
            (":80", "localhost:80", true),
            ("0.0.0.0:80", ":80", true),
            ("[::]:80", "10.0.0.1:80", true),
            ("localhost:80", "127.0.0.1:80", true),
            ("[::1]:80", "localhost:80", true),
            ("127.0.0.1:80", "[::1]:80", false),
            (":80", ":81", false),
            ("10.0.0.1:80", "10.0.0.2:80", false),
            ("localhost:80", "10.0.0.1:80", false),
        ];
        for (left, right, clash) in cases {
            let (one, other) = (parse_listen(left).unwrap(), parse_listen(right).unwrap());
            assert_eq!(clashes(&one, &other), clash, "{left} {right}");
            assert_eq!(clashes(&other, &one), clash, "{right} {left}");
        }
    }
}
