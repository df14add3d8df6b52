//! What stands under `subscribe.webhooks`, as it is written.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use component::resilience::{RetryConfig, RetryDefaults};
use config::{ByteSize, Spanned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steps::{FieldTexts, TlsConfig};

use super::envelope::CloudEvents;
use super::manage::config::ManageConfig;
use crate::source::Start;
use crate::view::Mode;

/// Webhooks: the topic's events are sent to endpoints as HTTP requests.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct WebhooksConfig {
    /// The endpoints by name. Cursor, pause and disablement belong to the name: they survive a
    /// restart and a change of the URL.
    #[serde(default)]
    pub endpoints: BTreeMap<String, EndpointConfig>,
    /// The operational topic: a topic of events that is told when an endpoint is disabled, when
    /// events are gone that it has not got, and of dead letters; also of webhooks that callers have
    /// made. Its own webhooks are reported nowhere.
    pub report: Option<Spanned<String>>,
    /// Lets callers of the topic have webhooks of their own by REST: `PATH/webhooks`. `keep: { for:
    /// webhooks }` holds no events for them.
    pub manage: Option<Spanned<ManageConfig>>,
}

/// An endpoint that gets a topic's events as HTTP requests (`POST`).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndpointConfig {
    /// Where requests go: `https://host:port/path`, or `CONNECTION:/path` with a name of `use:`,
    /// which adds authentication.
    pub url: Spanned<String>,
    /// The key that requests are signed with. For `standard`: Base64 with or without `whsec_`
    /// (HMAC-SHA256), or an Ed25519 private key in Base64 behind `whsk_`. For `github`: any text.
    pub secret: Option<Spanned<String>>,
    /// Several keys, in place of `secret`: each adds a signature, so that the receiver can change
    /// from one to another. Up to 10.
    pub secrets: Option<Spanned<Vec<Spanned<String>>>>,
    /// How requests are signed: `standard` (Standard Webhooks 1.0.0, `webhook-signature`), `github`
    /// (`X-Hub-Signature-256`) or `none`. Webhooks by REST are always signed as `standard`, with
    /// HMAC-SHA256.
    #[serde(default)]
    pub signature: Signature,
    /// Headers of the requests.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the place of each"
    )]
    pub headers: Option<FieldTexts>,
    /// TLS for an `https` URL.
    pub tls: Option<Spanned<TlsConfig>>,
    /// The time-out of a request, from 100ms to 5m.
    #[schemars(extend("default" = "20s"))]
    pub timeout: Option<Spanned<config::Duration>>,
    /// What the endpoint gets: `event` for a topic of events; for a topic of snapshots each whole
    /// document (`snapshot`, the default), or the changes (`patch`).
    pub mode: Option<Spanned<Mode>>,
    /// Which events the endpoint gets: a jq condition such as `.currency == "EUR"`.
    pub filter: Option<Spanned<String>>,
    /// What the endpoint gets of an event: a jq expression.
    pub select: Option<Spanned<String>>,
    /// Where a new endpoint starts: with events published from then on (`latest`), or with the
    /// oldest event that is kept (`earliest`).
    #[serde(default)]
    pub start: Start,
    /// Which events are kept in order: `true` for all, `by-key` for those with the same `key`,
    /// `false` for none. An event that is retried delays those behind it.
    #[schemars(extend("default" = true))]
    pub ordered: Option<Spanned<Ordered>>,
    /// The ordering key for `ordered: by-key`: a jq expression such as `.customer`. Events whose
    /// key is null wait for no others.
    pub key: Option<Spanned<String>>,
    /// The number of requests that may be in progress at a time, from 1 to 100; with `ordered:
    /// true` always 1. Endpoints on the same host have no common limit unless they name a
    /// connection with `connections`.
    #[schemars(extend("default" = 8))]
    pub concurrent: Option<Spanned<u64>>,
    /// Sends several events in one request, as a JSON array.
    pub batch: Option<Spanned<BatchConfig>>,
    /// Limits the rate of requests.
    pub throttle: Option<ThrottleConfig>,
    /// How failed requests are retried.
    #[serde(default)]
    pub retry: RetryConfig<OfWebhooks>,
    /// After how long of being down the endpoint is disabled, from 1s to 366d.
    #[schemars(extend("default" = "5d"))]
    pub disable_after: Option<Spanned<config::Duration>>,
    /// Sends events as CloudEvents 1.0: `structured` in a JSON object, or `binary` with headers
    /// `ce-...`.
    pub cloudevents: Option<Spanned<CloudEvents>>,
    /// The store for events that the endpoint refuses: a flow with the trigger `store` takes them.
    /// The default is `webhook-dead-letters` for a topic on the disk; for one in memory they are
    /// only logged.
    pub dead_letters: Option<Spanned<String>>,
}

/// How requests are signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Signature {
    /// As Standard Webhooks 1.0.0 has it.
    #[default]
    Standard,
    /// As GitHub does.
    GitHub,
    /// Not at all.
    None,
}

/// Which events wait for each other.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum Ordered {
    /// None or all.
    All(bool),
    /// Those of one key.
    By(ByKey),
}

/// Those of one key.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) enum ByKey {
    /// Those of one key.
    #[serde(rename = "by-key")]
    ByKey,
}

/// Several events in one request: it is sent when one of the limits is reached.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct BatchConfig {
    /// The largest number of events, from 1 to 1000.
    #[schemars(extend("default" = 100))]
    pub count: Option<Spanned<u64>>,
    /// The approximate size of all events, from 1KiB to 16MiB.
    #[schemars(extend("default" = "256KiB"))]
    pub bytes: Option<Spanned<ByteSize>>,
    /// How long the first event waits for others, from 1ms to 1h.
    #[schemars(extend("default" = "1s"))]
    pub time: Option<Spanned<config::Duration>>,
}

/// How often requests are made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct ThrottleConfig {
    /// The number of requests in a period, from 1 to 1000000.
    pub requests: Spanned<u64>,
    /// The period, from 1ms to 1d.
    #[schemars(extend("default" = "1s"))]
    pub per: Option<Spanned<config::Duration>>,
    /// How many of them may come at once, from 1 to `requests`.
    #[schemars(extend("default" = 1))]
    pub burst: Option<Spanned<u64>>,
}

/// `retry:` of webhooks.
#[derive(Debug)]
pub(crate) struct OfWebhooks;

impl RetryDefaults for OfWebhooks {
    const SUMMARY: &'static str = "How failed requests are retried. An endpoint that is down (no \
                                   connection, a time-out, 5xx, 408, 429, a redirect) is tried \
                                   again with these delays until it is back or disabled; an event \
                                   that is refused (another 4xx) `times` times.";
    const ON: Option<(&'static [&'static str], &'static str)> = None;
    const TIMES: (RangeInclusive<u32>, u32, &'static str) = (
        0..=1000,
        5,
        "The number of retries of an event that the endpoint refuses; then it becomes a dead \
         letter.",
    );
    const DELAY: Duration = Duration::from_secs(5);
    const FACTOR: f64 = 3.0;
    const DELAY_MAX: Duration = Duration::from_secs(3600);
    const DELAY_MAX_MEANING: &'static str =
        "The longest delay, also one that the endpoint asks for with `Retry-After`.";
}
