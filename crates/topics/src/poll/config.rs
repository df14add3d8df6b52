//! What stands under `poll:`, as it is written.

use std::ops::RangeInclusive;
use std::time::Duration;

use component::content::Format;
use component::resilience::{RetryConfig, RetryDefaults};
use config::{AnyValue, ByteSize, Node, Report, Spanned};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::codes::BAD_POLL;

/// Asks another system again and again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PollConfig {
    /// The URL to poll: `https://host:port/path?query`, or `CONNECTION:/path?query` with a name of
    /// `use:`, which adds authentication. `${ }` is possible in path and query; each value is
    /// encoded.
    #[allow(dead_code, reason = "read from the tree with the request")]
    pub url: String,
    /// The interval between requests, from 100ms to 1d. Requests that fall due while one is in
    /// progress are skipped.
    pub every: Spanned<config::Duration>,
    /// Each request is delayed by a random time up to this, from 0s to `every`.
    #[schemars(extend("default" = "0s"))]
    pub jitter: Option<Spanned<config::Duration>>,
    /// The method. The default is `POST` with a `body`, else `GET`.
    #[allow(dead_code, reason = "read from the tree with the request")]
    pub method: Option<String>,
    /// Headers of the request, with `${ }` in their values.
    #[allow(dead_code, reason = "read from the tree with the request")]
    pub headers: Option<Anything>,
    /// Query parameters, with `${ }` in their values: a list becomes several parameters, null is
    /// omitted.
    #[allow(dead_code, reason = "read from the tree with the request")]
    pub query: Option<Anything>,
    /// The body, with `${ }` in its strings: a string is sent as it is, anything else as JSON, or
    /// as a form or XML if the `Content-Type` says so.
    #[allow(dead_code, reason = "read from the tree with the request")]
    pub body: Option<AnyValue>,
    /// TLS for an `https` URL.
    #[allow(dead_code, reason = "read from the tree with the request")]
    pub tls: Option<Anything>,
    /// The time-out of a request, from 10ms to 1h.
    #[schemars(extend("default" = "10s"))]
    pub timeout: Option<Spanned<config::Duration>>,
    /// How failed requests are retried before the next one is due.
    #[serde(default)]
    pub retry: RetryConfig<OfPoll>,
    /// How many redirects are followed, on the same host only, from 0 to 20.
    #[schemars(extend("default" = 5))]
    #[allow(dead_code, reason = "read from the tree with the request")]
    pub redirects: Option<u64>,
    /// How the answer's body is decoded, whatever its `Content-Type`.
    #[serde(default)]
    pub decode: Decode,
    /// The part of the answer to use, as a JSON Pointer (RFC 6901) such as `/data/items`.
    pub pointer: Option<Spanned<String>>,
    /// A jq expression that computes the document from the answer. Null means that there is no
    /// document, and nothing happens.
    pub map: Option<Spanned<String>>,
    /// A jq expression for what `$last.kept` is at the next request, at most 16 KiB as JSON. It
    /// sees the whole answer, before `pointer` and `map`.
    pub keep: Option<Spanned<String>>,
    /// How to read an answer that comes in pages; their items are joined into one list.
    pub pagination: Option<Spanned<PaginationConfig>>,
    /// Whether requests are conditional on the `ETag` or `Last-Modified` of the last answer (RFC
    /// 9110, section 13.1). The default is `true` for a `GET` without `pagination`.
    pub conditional: Option<Spanned<bool>>,
    /// When requests are made.
    pub when: Option<When>,
    /// Whether the flow is started only if the document differs from the last one.
    #[schemars(extend("default" = true))]
    pub changes: Option<bool>,
    /// The largest answer, all pages together, from 1B to 64MiB.
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

/// `retry:` of polling.
#[derive(Debug)]
pub(super) struct OfPoll;

impl RetryDefaults for OfPoll {
    const SUMMARY: &'static str =
        "How failed requests are retried. While they are, requests that are due are left out.";
    const ON: Option<(&'static [&'static str], &'static str)> = Some((
        &["500", "503", "504", "connection", "timeout"],
        "The failures to retry: kinds, `4xx`, `5xx`, statuses. The default is `500`, `503`, `504`, \
         `connection` and `timeout`.",
    ));
    const TIMES: (RangeInclusive<u32>, u32, &'static str) =
        (0..=100, 3, "The number of retries after the first attempt.");
    const DELAY: Duration = Duration::from_secs(1);
    const FACTOR: f64 = 2.0;
    const DELAY_MAX: Duration = Duration::from_secs(10);
    const DELAY_MAX_MEANING: &'static str =
        "The longest delay. A `Retry-After` that asks for more ends the retries.";
}

/// How an answer comes in pages: one of `page`, `offset`, `cursor`, `link` and `next`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PaginationConfig {
    /// Pages are numbered.
    pub page: Option<PageConfig>,
    /// Pages are addressed by the index of their first item.
    pub offset: Option<OffsetConfig>,
    /// Each page contains a cursor for the next one.
    pub cursor: Option<CursorConfig>,
    /// The `Link` header contains the URL of the next page, with `rel="next"` (RFC 8288).
    #[serde(default)]
    pub link: bool,
    /// Where the body contains the URL of the next page: a JSON Pointer or a jq expression. On the
    /// last page it is null, an empty string or missing.
    pub next: Option<Spanned<String>>,
    /// Where a page contains its list of items, as a JSON Pointer. Without it, the page itself is
    /// the list.
    pub items: Option<Spanned<String>>,
    /// The largest number of pages, from 1 to 10000. More pages are a failure; the list is never
    /// truncated.
    #[schemars(extend("default" = 100))]
    pub max_pages: Option<Spanned<u64>>,
}

/// Pages have numbers. The last one has fewer items than `size`, or none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PageConfig {
    /// The query parameter with the page number.
    #[schemars(extend("default" = "page"))]
    pub param: Option<Spanned<String>>,
    /// The query parameter with `size`, if the API has one.
    pub size_param: Option<Spanned<String>>,
    /// The number of items on a full page, from 1 to 100000. Without it, paging ends with an empty
    /// page.
    pub size: Option<Spanned<u64>>,
    /// The number of the first page.
    #[schemars(extend("default" = 1))]
    pub start: Option<u64>,
}

/// Pages begin at the number of an item. The last one has fewer items than `size`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OffsetConfig {
    /// The query parameter with the index of the first item.
    #[schemars(extend("default" = "offset"))]
    pub param: Option<Spanned<String>>,
    /// The query parameter with `size`.
    #[schemars(extend("default" = "limit"))]
    pub size_param: Option<Spanned<String>>,
    /// The number of items on a full page, from 1 to 100000.
    #[schemars(extend("default" = 100))]
    pub size: Option<Spanned<u64>>,
    /// The index of the first item.
    #[schemars(extend("default" = 0))]
    pub start: Option<u64>,
}

/// Each page contains a cursor for the next one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CursorConfig {
    /// The query parameter with the cursor; the request for the first page does not have it.
    #[schemars(extend("default" = "cursor"))]
    pub param: Option<Spanned<String>>,
    /// Where a page contains the cursor: a JSON Pointer or a jq expression. On the last page it is
    /// null, false, an empty string or missing.
    pub next: Spanned<String>,
}

/// What is read from the tree elsewhere, for the schema alone: a mapping.
#[derive(Debug)]
pub(crate) struct Anything;

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
