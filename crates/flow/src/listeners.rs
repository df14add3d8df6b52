//! `engine.listeners`: what all flows that share an address share.

use std::collections::BTreeMap;
use std::sync::Arc;

use component::access::{DoorContext, Ways};
use component::cors::CorsConfig;
use component::edge::{ListenerEdge, ProxyProtocol, RouteEdge};
use component::evaluation::Evaluation;
use component::networks::NetworksConfig;
use component::security_headers::SecurityHeadersConfig;
use component::trigger::ListenAddress;
use component::trusted_proxies::TrustedProxies;
use config::{AnyValue, Node, Report, Span, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::{BAD_LISTENER, BAD_PROXY};
use crate::suggest::did_you_mean;
use crate::trigger::parse_listen;

/// What all flows and topics on one address share.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListenerConfig {
    /// The proxies in front of this address, in place of `engine.trusted_proxies`; `[]` for none.
    trusted_proxies: Option<Vec<Spanned<String>>>,
    /// Every connection begins with a header of the PROXY protocol, which says who the client is:
    /// version 1 (`v1`), 2 (`v2`) or either (`any`). Connections without it are closed, and so are
    /// those from others than `trusted_proxies` if there are any.
    proxy_protocol: Option<Spanned<ProxyProtocol>>,
    /// Whether the proxies in front of this address end TLS and say in `Client-Cert` which
    /// certificate a client has shown them (RFC 9440). Only if they replace what clients send in
    /// that field. It needs `trusted_proxies`, here or of the engine.
    client_cert_header: Option<Spanned<bool>>,
    /// The `auth` of all flows and topics on this address that have none of their own. A flow or
    /// topic with `auth: none` is public.
    #[allow(dead_code, reason = "read from the tree, as in flows")]
    auth: Option<AnyValue>,
    /// From where clients may connect: a list of networks that are allowed, or `allow` and `deny`.
    /// Connections of others are closed before TLS.
    #[allow(dead_code, reason = "read from the tree, as in flows")]
    networks: Option<NetworksConfig>,
    /// Which web pages may read replies (CORS). Flows and topics may have their own.
    #[allow(dead_code, reason = "read from the tree, as in flows")]
    cors: Option<CorsConfig>,
    /// Security headers of all replies: `api`, `page` or a mapping. Flows and topics may have their
    /// own.
    #[allow(dead_code, reason = "read from the tree, as in flows")]
    security_headers: Option<SecurityHeadersConfig>,
}

/// The listeners that the engine document names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listeners(BTreeMap<ListenAddress, Listener>);

#[derive(Clone, Debug)]
struct Listener {
    /// Where its address stands.
    span: Span,
    edge: ListenerEdge,
    auth: Option<Node>,
}

impl Listeners {
    /// Reads them. Every problem goes into the report.
    pub fn read(
        configs: &BTreeMap<String, ListenerConfig>,
        node: Option<&Node>,
        proxies: Option<&TrustedProxies>,
        report: &mut Report,
    ) -> Self {
        let mut listeners: BTreeMap<ListenAddress, Listener> = BTreeMap::new();
        for entry in node.and_then(Node::as_mapping).unwrap_or_default() {
            let Some(config) = configs.get(&entry.key) else {
                continue;
            };
            let edge = read_edge(config, &entry.value, proxies, report);
            let address = match parse_listen(&entry.key) {
                Ok(address) => address,
                Err(problem) => {
                    problem.put(entry.key_span, report);
                    continue;
                }
            };
            if let Some(first) = listeners.get(&address) {
                report
                    .error(
                        BAD_LISTENER,
                        entry.key_span,
                        format!("{address} stands twice"),
                    )
                    .also(first.span, "the first one")
                    .hint("write one entry for each address");
            }
            let span = entry.key_span;
            let auth = entry.value.get("auth").cloned();
            listeners.insert(address, Listener { span, edge, auth });
        }
        Self(listeners)
    }

    /// What holds at an address.
    pub fn edge(&self, address: &ListenAddress) -> ListenerEdge {
        self.0
            .get(address)
            .map(|it| it.edge.clone())
            .unwrap_or_default()
    }

    /// The value of `auth` at an address.
    pub fn auth(&self, address: &ListenAddress) -> Option<&Node> {
        self.0.get(address)?.auth.as_ref()
    }

    /// Reports what is wrong with the `auth` of each listener, here and only here: all flows and
    /// topics that share a listener read its `auth` again.
    pub fn check_auth(&self, ways: &dyn Ways, evaluation: &Evaluation, report: &mut Report) {
        for (address, listener) in &self.0 {
            let Some(auth) = &listener.auth else {
                continue;
            };
            let mut context = DoorContext {
                report,
                name: &format!("listener {address}"),
                evaluation,
                tickets: None,
            };
            // What shares the address makes doors with its own names.
            drop(ways.door(auth, &mut context));
        }
    }

    /// Reports those that nothing listens on.
    pub fn check_used<'a>(
        &self,
        used: impl Iterator<Item = &'a ListenAddress> + Clone,
        report: &mut Report,
    ) {
        for (address, listener) in &self.0 {
            if used.clone().any(|it| it == address) {
                continue;
            }
            let names: Vec<String> = used.clone().map(ListenAddress::to_string).collect();
            let near = did_you_mean(&address.to_string(), names.iter().map(String::as_str));
            let message = format!("no flow or topic listens on {address}");
            report
                .error(BAD_LISTENER, listener.span, message)
                .hint(near.unwrap_or_else(|| {
                    "write the address as the flows do: `:8080` and `127.0.0.1:8080` are two".into()
                }));
        }
    }
}

fn read_edge(
    config: &ListenerConfig,
    node: &Node,
    of_engine: Option<&TrustedProxies>,
    report: &mut Report,
) -> ListenerEdge {
    let proxies = config.trusted_proxies.as_ref().map(|texts| {
        let mut trusted = TrustedProxies::default();
        trusted.add_all(texts, BAD_PROXY, report);
        if let Some(protocol) = config.proxy_protocol.as_ref().filter(|_| texts.is_empty()) {
            let message = "`trusted_proxies` is empty: nobody could send the PROXY protocol header";
            report
                .error(BAD_LISTENER, protocol.span, message)
                .hint("name the load balancers in `trusted_proxies`");
        }
        Arc::new(trusted)
    });
    let has_nobody = proxies.is_none() && of_engine.is_none();
    let is_on = |it: &&Spanned<bool>| it.value;
    let header = config.client_cert_header.as_ref().filter(is_on);
    let trusts_nobody = proxies
        .as_ref()
        .map_or(of_engine.is_none(), |it| it.is_empty());
    if let Some(header) = header.filter(|_| trusts_nobody) {
        let message = "`client_cert_header` has no effect: no proxy is trusted here";
        report
            .error(BAD_LISTENER, header.span, message)
            .hint("name the proxies that end TLS in `trusted_proxies`");
    }
    if let Some(protocol) = config.proxy_protocol.as_ref().filter(|_| has_nobody) {
        let message = "whoever reaches this address may say who it is by the PROXY protocol";
        report
            .warning(BAD_LISTENER, protocol.span, message)
            .hint("name the load balancers in `trusted_proxies`");
    }
    ListenerEdge {
        trusted_proxies: proxies,
        client_cert_header: header.is_some(),
        proxy_protocol: config.proxy_protocol.as_ref().map(|it| it.value),
        requests: RouteEdge::read(node, report),
    }
}
