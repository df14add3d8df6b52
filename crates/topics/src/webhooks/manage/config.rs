//! What stands under `subscribe.webhooks.manage`, as it is written.

use component::resilience::RetryConfig;
use config::{ByteSize, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::webhooks::config::OfWebhooks;

/// Lets callers of the topic have webhooks of their own by REST: `PATH/webhooks`, described by
/// `PATH/webhooks/openapi.json`. For topics on the disk whose `subscribe.auth` says who calls.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct ManageConfig {
    /// The keys that secrets of webhooks are encrypted with on the disk (AES-256-GCM): 32 bytes in
    /// Base64 each, as `openssl rand -base64 32` makes them. The first encrypts; all of them
    /// decrypt, so that one can take the place of another.
    pub secrets_key: Spanned<KeysConfig>,
    /// Who sees and manages the webhooks of everybody: a condition over `$auth`, such as
    /// `$auth.claims.groups | index("ops")`. Without it nobody does.
    pub operators: Option<Spanned<String>>,
    /// The most webhooks of a caller, from 1 to 1000000. One more is refused with 403.
    #[schemars(extend("default" = 20))]
    pub per_caller: Option<Spanned<u64>>,
    /// The most webhooks of all callers of the topic together, from 1 to 1000000. One more is
    /// refused with 503 and `Retry-After`, until one is deleted. Each takes about 1 KiB of memory.
    #[schemars(extend("default" = 100_000))]
    pub total: Option<Spanned<u64>>,
    /// The most requests that a webhook may have in progress at a time (`concurrent`), from 1 to
    /// 100.
    #[schemars(extend("default" = 10))]
    pub concurrent_max: Option<Spanned<u64>>,
    /// The most memory that batches of a webhook in progress may take, from 1MiB to 1GiB: `bytes`
    /// of its `batch` times `concurrent`.
    #[schemars(extend("default" = "4MiB"))]
    pub batch_max: Option<Spanned<ByteSize>>,
    /// Whether a URL has to answer a challenge before it gets its first event. Without it callers
    /// can have events sent to systems that have not asked for them.
    #[schemars(extend("default" = true))]
    pub challenge: Option<bool>,
    /// The time-out of a request, from 100ms to 5m.
    #[schemars(extend("default" = "20s"))]
    pub timeout: Option<Spanned<config::Duration>>,
    /// How failed requests are retried.
    #[serde(default)]
    pub retry: RetryConfig<OfWebhooks>,
    /// After how long of being down a webhook is disabled, from 1s to 366d.
    #[schemars(extend("default" = "5d"))]
    pub disable_after: Option<Spanned<config::Duration>>,
    /// The store for events that receivers refuse: a flow with the trigger `store` takes them. When
    /// it is full they are lost, and counted.
    #[schemars(extend("default" = "webhook-user-dead-letters"))]
    pub dead_letters: Option<Spanned<String>>,
}

/// One key or several.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum KeysConfig {
    /// One.
    One(String),
    /// Several, the one that encrypts first.
    Several(Vec<String>),
}
