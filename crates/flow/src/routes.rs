//! All flows together: which addresses they share, and whether any two take the same requests.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use component::plan::{ListenerPlan, RoutePlan};
use component::trigger::{ListenAddress, Methods};
use config::Report;

use crate::codes::{DIFFERENT_TLS, OVERLAPPING_LISTENERS, ROUTE_CONFLICT};
use crate::compile::Flow;
use crate::trigger::{HttpStart, Trigger};

/// A flow whose trigger could be read.
#[derive(Clone, Copy)]
struct Routed<'a> {
    flow: &'a Flow,
    trigger: &'a HttpStart,
}

/// Checks every flow against those before it.
pub(crate) fn check(flows: &[Flow], report: &mut Report) {
    let routed: Vec<Routed<'_>> = flows
        .iter()
        .filter_map(|flow| {
            let trigger = flow.trigger.as_ref()?.start()?;
            Some(Routed { flow, trigger })
        })
        .collect();
    check_conflicts(&routed, report);
    check_listeners(&routed, report);
}

/// The listeners with their routes, addresses in order and routes in the order of the files.
pub(crate) fn group(flows: &[Flow]) -> Vec<ListenerPlan> {
    let mut listeners: BTreeMap<ListenAddress, ListenerPlan> = BTreeMap::new();
    for flow in flows {
        let start = flow.trigger.as_ref().and_then(Trigger::start);
        let (Some(trigger), Some(target)) = (start, &flow.target) else {
            continue;
        };
        listeners
            .entry(trigger.http.listen.clone())
            .or_insert_with(|| ListenerPlan {
                address: trigger.http.listen.clone(),
                tls: trigger.tls.clone().map(Arc::new),
                protocols: trigger.protocols.clone(),
                routes: Vec::new(),
            })
            .routes
            .push(RoutePlan {
                flow: flow.name.clone(),
                methods: trigger.http.methods.clone(),
                path: trigger.http.path.clone(),
                target: target.clone(),
            });
    }
    listeners.into_values().collect()
}

/// Same address, same shape, same method: nobody could say which flow is meant.
fn check_conflicts(routed: &[Routed<'_>], report: &mut Report) {
    let mut places: BTreeMap<(&ListenAddress, String), Vec<Routed<'_>>> = BTreeMap::new();
    for &this in routed {
        let http = &this.trigger.http;
        let others = places.entry((&http.listen, http.path.shape())).or_default();
        for other in others.iter() {
            let Some(shared) = overlap(&http.methods, &other.trigger.http.methods) else {
                continue;
            };
            let message = format!(
                "flow `{}` takes {shared} {}{}, which flow `{}` takes already",
                this.flow.name, http.listen, http.path, other.flow.name
            );
            report
                .error(ROUTE_CONFLICT, this.trigger.span, message)
                .also(other.trigger.span, format!("flow `{}`", other.flow.name))
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
    let mut seen: Vec<Routed<'_>> = Vec::new();
    for &this in routed {
        let listen = &this.trigger.http.listen;
        let twin = seen
            .iter()
            .find(|other| other.trigger.http.listen == *listen);
        match twin {
            Some(other)
                if other.trigger.tls != this.trigger.tls
                    || other.trigger.protocols != this.trigger.protocols =>
            {
                report_tls(this, *other, report);
            }
            Some(_) => {}
            None => {
                let clash = seen
                    .iter()
                    .find(|other| clashes(&other.trigger.http.listen, listen));
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
        "flows `{}` and `{}` listen on {} with different `tls` or \
         `protocols`",
        other.flow.name, this.flow.name, this.trigger.http.listen
    );
    report
        .error(DIFFERENT_TLS, this.trigger.span, message)
        .also(other.trigger.span, format!("flow `{}`", other.flow.name))
        .hint("give both the same, or two ports");
}

fn report_overlap(this: Routed<'_>, other: Routed<'_>, report: &mut Report) {
    let (listen, first) = (&this.trigger.http.listen, &other.trigger.http.listen);
    let message = format!("the addresses {listen} and {first} overlap");
    report
        .error(OVERLAPPING_LISTENERS, this.trigger.span, message)
        .also(
            other.trigger.span,
            format!("flow `{}` listens on {first}", other.flow.name),
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
