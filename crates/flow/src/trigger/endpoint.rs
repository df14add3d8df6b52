//! Triggers with a protocol of their own within HTTP: their own keys, and those that each has.

use component::endpoint::EndpointDefinition;
use component::source::SourceContext;
use component::tls::Protocol;
use component::trigger::Methods;
use config::{ByteSize, Node, Spanned, Value};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Defaults, HttpConfig, HttpStart, TlsConfig, start};
use crate::schema::endpoint_keys;

/// What every endpoint has.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CommonConfig {
    /// Where to listen: `:8080` for all interfaces, `127.0.0.1:8080`, `localhost:8080`. The default
    /// is `engine.listen`.
    listen: Option<Spanned<String>>,
    /// The path: literal segments, `{name}` for one segment, `*` at the end for the rest.
    path: Spanned<String>,
    /// The largest request body, from 1B to 1GiB; a larger one gets 413. The default is
    /// `engine.limits.body`.
    body_max: Option<Spanned<ByteSize>>,
    /// TLS. All flows on one address must have the same settings.
    tls: Option<Spanned<TlsConfig>>,
    /// The protocols to accept, the preferred one first. The default is `[h2, http/1.1]` with TLS
    /// and `[http/1.1]` without. All flows on one address must have the same.
    protocols: Option<Spanned<Vec<Protocol>>>,
}

/// The schema of what every endpoint of this kind has beside its own keys.
pub(crate) fn schema(definition: &EndpointDefinition) -> serde_json::Value {
    let mut schema = config::schema_for::<CommonConfig>();
    if !definition.has_body
        && let Some(keys) = schema["properties"].as_object_mut()
    {
        keys.remove("body_max");
    }
    schema
}

/// Reads an endpoint. Every problem is reported; `None` when there was one.
pub(super) fn read(
    definition: &EndpointDefinition,
    node: &Node,
    defaults: &Defaults,
    context: &mut SourceContext<'_>,
) -> Option<HttpStart> {
    if !config::check(node, &endpoint_keys(definition), context.report) {
        return None;
    }
    let entries = node.as_mapping()?;
    let own_schema = (definition.schema)();
    let is_own = |key: &str| own_schema["properties"].get(key).is_some();
    let (own, common) = entries
        .iter()
        .cloned()
        .partition(|entry| is_own(&entry.key));
    let part = |entries| Node {
        value: Value::Mapping(entries),
        span: node.span,
    };
    let (own, common) = (part(own), part(common));
    let before = context.report.errors();
    let envelope = (definition.build)(&own, context);
    let config: CommonConfig = config::decode(&common, context.report)?;
    let http = HttpConfig {
        method: None,
        listen: config.listen,
        path: config.path,
        body_max: config.body_max,
        decode: None,
        tls: config.tls,
        protocols: config.protocols,
    };
    let mut start = start(node, http, defaults, context.report)?;
    let envelope = envelope?;
    start.http.methods = Methods::Only(envelope.methods());
    start.http.decode = envelope.decode();
    start.envelope = Some(envelope);
    (context.report.errors() == before).then_some(start)
}
