//! What stands under `poll:`, as it is written.

use super::codes::BAD_POLL;
use component::content::Format;
use component::resilience::Retry;
use config::{AnyValue, ByteSize, Node, Report, Spanned};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Asks another system again and again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PollConfig {
    /// What is asked: `https://host:port/path?query`, or `CONNECTION:/path?query` with a name of
    /// `use:`, which says who asks. `${ }` is possible in path and query; each value is encoded.
    #[allow(dead_code, reason = "read from the tree with the request")]
    pub url: String,
    /// The time from one request to the next, from 100ms to 1d. A late answer leaves requests out;
    /// there is never a second one under way.
    pub every: Spanned<config::Duration>,
    /// The longest time that each request is put off by chance, from 0s to `every`.
    #[schemars(extend("default" = "0s"))]
    pub jitter: Option<Spanned<config::Duration>>,
    /// The method. The default is `POST` with a `body`, else `GET`.
    #[allow(dead_code, reason = "read from the tree with the request")]
    pub method: Option<String>,
    /// Headers of the request, with `${ }` in their values.
    #[allow(dead_code, reason = "read from the tree with the request")]
    pub headers: Option<Anything>,
    /// Parameters of the query, with `${ }` in their values: a list becomes several, null none.
    #[allow(dead_code, reason = "read from the tree with the request")]
    pub query: Option<Anything>,
    /// The body, with `${ }` in its texts: a text is sent as it is, anything else as JSON, or as a
    /// form or XML when the `Content-Type` says so.
    #[allow(dead_code, reason = "read from the tree with the request")]
    pub body: Option<AnyValue>,
    /// TLS to an `https` URL.
    #[allow(dead_code, reason = "read from the tree with the request")]
    pub tls: Option<Anything>,
    /// The longest that one request may take, from 10ms to 1h.
    #[schemars(extend("default" = "10s"))]
    pub timeout: Option<Spanned<config::Duration>>,
    /// Whether a request that failed is tried again before the next one is due.
    pub retry: Option<RetryConfig>,
    /// How many redirects are followed, all on the same host. From 0 to 20.
    #[schemars(extend("default" = 5))]
    #[allow(dead_code, reason = "read from the tree with the request")]
    pub redirects: Option<u64>,
    /// How the answer's body is read, whatever its `Content-Type` says.
    #[serde(default)]
    pub decode: Decode,
    /// The part of the answer that is meant, as a JSON Pointer (RFC 6901) such as `/data/items`.
    pub pointer: Option<Spanned<String>>,
    /// A jq expression that makes the document of the answer. Null is no document: nothing happens.
    pub map: Option<Spanned<String>>,
    /// A jq expression for what `$last.kept` is at the next request, at most 16 KiB as JSON. It
    /// sees the whole answer, before `pointer` and `map`.
    pub keep: Option<Spanned<String>>,
    /// The answer comes in pages, whose items are put together in one list.
    pub pagination: Option<Spanned<PaginationConfig>>,
    /// Whether the answer is asked for only if it has changed, by the `ETag` or `Last-Modified` of
    /// the last one (RFC 9110, section 13.1). The default is `true` for a `GET` without
    /// `pagination`.
    pub conditional: Option<Spanned<bool>>,
    /// When requests are made.
    pub when: Option<When>,
    /// Whether the flow is started only for a document that differs from the last one.
    #[schemars(extend("default" = true))]
    pub changes: Option<bool>,
    /// The most bytes of an answer, of all its pages together: from 1B to 64MiB.
    #[schemars(extend("default" = "1MiB"))]
    pub body_max: Option<Spanned<ByteSize>>,
}

/// When requests are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum When {
    /// While somebody subscribes to the topic.
    #[default]
    Listened,
    /// Always.
    Always,
}

/// How bodies of answers are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum Decode {
    /// As JSON.
    #[default]
    Json,
    /// As XML, which becomes an object with `@` and `#content` members.
    Xml,
    /// As CSV with a line of names, which becomes a list of objects.
    Csv,
}

impl From<Decode> for Format {
    fn from(decode: Decode) -> Self {
        match decode {
            Decode::Json => Self::Json,
            Decode::Xml => Self::Xml,
            Decode::Csv => Self::Csv,
        }
    }
}

/// Further tries of a request that failed. While they last, requests that are due are left out.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryConfig {
    /// After which failures: kinds, `4xx`, `5xx`, statuses. The default is `500`, `503`, `504`,
    /// `connection` and `timeout`.
    pub on: Option<Spanned<Vec<OneName>>>,
    /// How often, beside the first try: from 0 to 100.
    #[schemars(extend("default" = 3))]
    pub times: Option<Spanned<u64>>,
    /// How long it waits before the first of them, from 1ms to 1d.
    #[schemars(extend("default" = "1s"))]
    pub delay: Option<Spanned<config::Duration>>,
    /// By what the wait grows each time: from 1 to 10.
    #[schemars(extend("default" = 2))]
    pub backoff: Option<Spanned<f64>>,
    /// The longest wait, from 1ms to 1d.
    #[schemars(extend("default" = "10s"))]
    pub max: Option<Spanned<config::Duration>>,
}

/// The name of a failure.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(super) enum OneName {
    /// A status.
    Status(u16),
    /// A kind or a class.
    Name(String),
}

/// How an answer comes in pages: one of `page`, `offset`, `cursor`, `link` and `next`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PaginationConfig {
    /// Pages have numbers.
    pub page: Option<PageConfig>,
    /// Pages begin at the number of an item.
    pub offset: Option<OffsetConfig>,
    /// Each page says by what the next one is asked for.
    pub cursor: Option<CursorConfig>,
    /// The `Link` header has the next page's URL with `rel="next"` (RFC 8288).
    #[serde(default)]
    pub link: bool,
    /// Where the body has the next page's URL: a JSON Pointer, or a jq expression. The last page
    /// has null, an empty text or nothing there.
    pub next: Option<Spanned<String>>,
    /// Where a page has its list of items, as a JSON Pointer. Without it the page is the list.
    pub items: Option<Spanned<String>>,
    /// The most pages, from 1 to 10000. An answer that has more is a failure, not cut off.
    #[schemars(extend("default" = 100))]
    pub max_pages: Option<Spanned<u64>>,
}

/// Pages have numbers. The last one has fewer items than `size`, or none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PageConfig {
    /// The query parameter with the number.
    #[schemars(extend("default" = "page"))]
    pub param: Option<Spanned<String>>,
    /// The query parameter with `size`, when the system wants to be told.
    pub size_param: Option<Spanned<String>>,
    /// How many items a full page has, from 1 to 100000. Without it the last page is an empty one.
    pub size: Option<Spanned<u64>>,
    /// The number of the first page.
    #[schemars(extend("default" = 1))]
    pub start: Option<u64>,
}

/// Pages begin at the number of an item. The last one has fewer items than `size`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OffsetConfig {
    /// The query parameter with the number of the first item.
    #[schemars(extend("default" = "offset"))]
    pub param: Option<Spanned<String>>,
    /// The query parameter with `size`.
    #[schemars(extend("default" = "limit"))]
    pub size_param: Option<Spanned<String>>,
    /// How many items a full page has, from 1 to 100000.
    #[schemars(extend("default" = 100))]
    pub size: Option<Spanned<u64>>,
    /// The number of the first item.
    #[schemars(extend("default" = 0))]
    pub start: Option<u64>,
}

/// Each page says by what the next one is asked for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CursorConfig {
    /// The query parameter with it; the first page is asked for without.
    #[schemars(extend("default" = "cursor"))]
    pub param: Option<Spanned<String>>,
    /// Where a page has it: a JSON Pointer, or a jq expression. The last page has null, false, an
    /// empty text or nothing there.
    pub next: Spanned<String>,
}

/// What is read from the tree elsewhere, for the schema alone: a mapping.
#[derive(Debug)]
pub(super) struct Anything;

impl<'de> Deserialize<'de> for Anything {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

impl JsonSchema for Anything {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Mapping".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}

/// The schema without the keys that have no meaning there.
pub(super) fn schema(without: &[&str]) -> serde_json::Value {
    let mut schema = config::schema_for::<PollConfig>();
    if let Some(serde_json::Value::Object(properties)) = schema.get_mut("properties") {
        without.iter().for_each(|key| {
            properties.remove(*key);
        });
    }
    schema
}

/// Reads the mapping. Every problem is reported; `None` when there was one.
pub(super) fn read(node: &Node, without: &[&str], report: &mut Report) -> Option<PollConfig> {
    let before = report.errors();
    if let Some(entry) = node.entry("auth") {
        let message = "who asks is said with a connection";
        let hint = "write `use: { shop: { http: https://shop.example, auth: ... } }` and `url: \
                    shop:/path`";
        let diagnostic = report.error(BAD_POLL, entry.key_span, message);
        diagnostic.hint(hint);
        return None;
    }
    config::check(node, &schema(without), report);
    if report.errors() > before {
        return None;
    }
    config::decode(node, report)
}

/// Further tries that are made when nothing is said.
pub(super) fn default_retry() -> Retry {
    use component::failure::Matcher;
    use message::Kind;
    use std::time::Duration;
    Retry {
        on: vec![
            Matcher::Status(500),
            Matcher::Status(503),
            Matcher::Status(504),
            Matcher::Kind(Kind::Connection),
            Matcher::Kind(Kind::Timeout),
        ],
        // To ask again is what a poll does.
        only_safe: false,
        times: 3,
        delay: Duration::from_secs(1),
        backoff: 2.0,
        delay_max: Duration::from_secs(10),
        jitter: 0.2,
        counts: std::sync::Arc::default(),
    }
}
