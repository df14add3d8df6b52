//! What stands under `subscribe.websub`, as it is written.

use std::ops::RangeInclusive;
use std::time::Duration;

use component::resilience::{RetryConfig, RetryDefaults};
use config::Spanned;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use steps::TlsConfig;
use websub::signature::Method;

/// A WebSub hub for the topic: subscribers register callbacks at `/hub` of the listener, and get
/// the content of the topic as HTTP requests. `websub: {}` has all defaults. It needs
/// `engine.public_url`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct WebSubHubConfig {
    /// The lease of subscribers that ask for none.
    #[schemars(extend("default" = "10d"))]
    pub lease: Option<Spanned<config::Duration>>,
    /// The shortest lease, from 1s to 366d; who asks for less gets this.
    #[schemars(extend("default" = "1m"))]
    pub lease_min: Option<Spanned<config::Duration>>,
    /// The longest lease, up to 366d; who asks for more gets this.
    #[schemars(extend("default" = "90d"))]
    pub lease_max: Option<Spanned<config::Duration>>,
    /// How deliveries to subscribers with a secret are signed.
    #[serde(default)]
    pub signature: Signature,
    /// The media type of the content. With any other than JSON, an event that is a string is
    /// delivered as the text that it has.
    #[schemars(extend("default" = "application/json"))]
    pub content_type: Option<Spanned<String>>,
    /// The URL of the topic, where it is not served by this engine. A ping of its publisher
    /// (`hub.mode=publish`) has it fetched, behind the egress guard, and published to the topic
    /// when it has changed.
    pub url: Option<Spanned<String>>,
    /// Whether publishers may send content to the hub: `POST /hub?hub.mode=publish&hub.topic=URL`.
    /// Who may is said by `publish.auth` of the topic.
    #[serde(default)]
    pub publish: bool,
    /// The time-out of each request to a subscriber or to `url`, from 100ms to 30s.
    #[schemars(extend("default" = "10s"))]
    pub timeout: Option<Spanned<config::Duration>>,
    /// How failed deliveries are retried.
    #[serde(default)]
    pub retry: RetryConfig<OfHub>,
    /// TLS for `https` callbacks and `url`.
    pub tls: Option<Spanned<TlsConfig>>,
}

/// `retry:` of a hub.
#[derive(Debug)]
pub(crate) struct OfHub;

impl RetryDefaults for OfHub {
    const SUMMARY: &'static str = "How failed deliveries are retried: any answer but 2xx and 410, \
                                   and none at all. The next content waits for the one before it.";
    const ON: Option<(&'static [&'static str], &'static str)> = None;
    const TIMES: (RangeInclusive<u32>, u32, &'static str) = (
        0..=1000,
        5,
        "The number of retries of content that a subscriber refuses (4xx but 408, 410 and 429); \
         then the subscriber does not get it.",
    );
    const DELAY: Duration = Duration::from_secs(5);
    const FACTOR: f64 = 3.0;
    const DELAY_MAX: Duration = Duration::from_secs(3600);
    const DELAY_MAX_MEANING: &'static str =
        "The longest delay, also one that the subscriber asks for with `Retry-After`.";
    const TIME: Option<(Duration, &'static str)> = Some((
        Duration::from_secs(24 * 3600),
        "How long content is retried whose delivery fails in any other way; then the subscriber \
         does not get it, and the next content is tried.",
    ));
}

/// A way to sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Signature {
    /// HMAC-SHA-1: only for subscribers that know nothing else.
    Sha1,
    /// HMAC-SHA-256.
    #[default]
    Sha256,
    /// HMAC-SHA-384.
    Sha384,
    /// HMAC-SHA-512.
    Sha512,
}

impl From<Signature> for Method {
    fn from(signature: Signature) -> Self {
        match signature {
            Signature::Sha1 => Self::Sha1,
            Signature::Sha256 => Self::Sha256,
            Signature::Sha384 => Self::Sha384,
            Signature::Sha512 => Self::Sha512,
        }
    }
}

/// Takes away that it may be null: nothing under the key would switch nothing on.
pub(crate) fn complete_schema(subscribe: &mut Json) {
    if let Some(Json::Object(place)) = subscribe.pointer_mut("/properties/websub")
        && let Some(Json::Array(mut any)) = place.remove("anyOf")
        && let Json::Object(first) = any.swap_remove(0)
    {
        let description = place.remove("description");
        place.extend(first);
        place.extend(description.map(|it| ("description".to_owned(), it)));
    }
}
