//! Triggers and listeners of documents beside flows.

use std::sync::Arc;

use component::definition::Surroundings;
use component::document::{Entrance, EntranceReader, Listening};
use component::evaluation::Evaluation;
use component::limits::Gate;
use component::tls::Protocol;
use component::trigger::{HttpTrigger, ListenAddress};
use config::{Node, Report, Span, Spanned, Value};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::gates::{GateConfig, GateReader};

use super::{Defaults, HttpStart, TlsConfig, methods, parse_listen, path, put_all, read_http, tls};

/// The keys of a listener.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListeningConfig {
    listen: Option<Spanned<String>>,
    tls: Option<Spanned<TlsConfig>>,
    protocols: Option<Spanned<Vec<Protocol>>>,
}

/// The schemas of limits per caller, of TLS of a listener, and of its protocols.
pub(crate) fn schemas() -> [(&'static str, serde_json::Value); 3] {
    [
        ("caller-limits", crate::gates::schema()),
        ("listener-tls", config::schema_for::<TlsConfig>()),
        ("protocols", config::schema_for::<Vec<Protocol>>()),
    ]
}

impl From<HttpStart> for Entrance {
    fn from(start: HttpStart) -> Self {
        Self {
            http: start.http,
            tls: start.tls,
            protocols: start.protocols,
            span: start.span,
        }
    }
}

impl EntranceReader for Defaults {
    fn read_http(&self, node: &Node, report: &mut Report) -> Option<Entrance> {
        read_http(node, self, report).map(Entrance::from)
    }

    fn read_listening(&self, node: Option<&Node>, report: &mut Report) -> Option<Listening> {
        let config = match node {
            None => ListeningConfig::default(),
            Some(node) => config::decode(&only_listening(node), report)?,
        };
        let address = match &config.listen {
            None => Some(self.listen.clone()),
            Some(listen) => {
                let parsed = parse_listen(&listen.value).map_err(|problem| vec![problem]);
                put_all(parsed, listen.span, report)
            }
        };
        let tls = config.tls.as_ref().map(|config| tls::read(config, report));
        let protocols = tls::read_protocols(config.protocols.as_ref(), tls.is_some(), report);
        let address = address?;
        Some(Listening {
            edge: self.listeners.edge(&address).requests,
            address,
            tls,
            protocols,
        })
    }

    fn listener_auth(&self, address: &ListenAddress) -> Option<&Node> {
        self.listeners.auth(address)
    }

    fn public_url(&self) -> Option<&str> {
        self.public_url.as_deref()
    }

    fn read_gate(
        &self,
        node: &Node,
        (name, place): (&str, &str),
        (evaluation, surroundings): (&Evaluation, &Surroundings<'_>),
        report: &mut Report,
    ) -> Option<Arc<Gate>> {
        let config: GateConfig = config::decode(node, report)?;
        let reader = GateReader {
            name,
            place,
            limits: &self.callers,
            evaluation,
            surroundings,
        };
        reader.read(node, &config, report).map(Arc::new)
    }

    fn entrance(
        &self,
        methods: &str,
        (path, span): (&str, Span),
        listening: &Listening,
        report: &mut Report,
    ) -> Option<Entrance> {
        let methods = put_all(methods::parse(methods), span, report);
        let path = put_all(path::parse(path), span, report);
        let http = HttpTrigger {
            methods: methods?,
            listen: listening.address.clone(),
            path: path?,
            body_max: self.body_max,
            decode: None,
        };
        Some(Entrance {
            http,
            tls: listening.tls.clone(),
            protocols: listening.protocols.clone(),
            span,
        })
    }
}

/// The mapping without its other keys.
fn only_listening(node: &Node) -> Node {
    let entries = node.as_mapping().unwrap_or_default().iter();
    let is_ours = |key: &str| matches!(key, "listen" | "tls" | "protocols");
    let ours = entries.filter(|it| is_ours(&it.key)).cloned().collect();
    Node {
        value: Value::Mapping(ours),
        span: node.span,
    }
}
