//! What stands under `from: websub`, as it is written.

use config::{AnyValue, Spanned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use steps::{EgressConfig, TlsConfig};
use websub::signature::Method;

/// Subscribes to a topic of a WebSub hub.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WebSubConfig {
    /// The URL of the topic, such as `https://news.example/feed`.
    pub topic: Spanned<String>,
    /// Where the hub delivers.
    pub callback: Spanned<CallbackConfig>,
    /// The URL of the hub. Without it the topic is asked for its hub, by its `Link` headers, else
    /// by its `<link>` elements in HTML, Atom or RSS.
    pub hub: Option<Spanned<String>>,
    /// Other origins, such as `https://hub.example`, to which redirects of the topic or the hub,
    /// and hubs that the topic names, may lead. Those of `topic` and `hub` are always allowed.
    #[serde(default)]
    pub origins: Vec<Spanned<String>>,
    /// The lease to ask for, from 1m to 366d. The hub decides; the subscription is renewed after
    /// two thirds of what it grants.
    #[schemars(extend("default" = "10d"))]
    pub lease: Option<Spanned<config::Duration>>,
    /// The secret that deliveries are signed with, 16 to 199 bytes. Without it one is made at
    /// random.
    pub secret: Option<Spanned<String>>,
    /// The weakest signature that is taken. Deliveries without it are ignored.
    #[serde(default)]
    pub signature: Signature,
    /// Whether there shall be a subscription. With `false` an existing one is ended; the callback
    /// has to be served for that.
    #[schemars(extend("default" = true))]
    pub active: Option<bool>,
    /// The time-out of each request to the topic and the hub, from 10ms to 1h.
    #[schemars(extend("default" = "10s"))]
    pub timeout: Option<Spanned<config::Duration>>,
    /// TLS for `https` URLs.
    pub tls: Option<Spanned<TlsConfig>>,
    /// `guarded`: topic and hub are connected to only at addresses, ports and schemes that
    /// `engine.egress` allows (the egress guard), for redirects and hubs that the topic names too.
    /// Without it to all that `origins` allows.
    pub egress: Option<Spanned<EgressConfig>>,
}

/// Where the hub delivers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct CallbackConfig {
    /// Where to listen, such as `POST :8080/hooks/news`: written like an `http` trigger, for
    /// `POST`. A random segment follows the path, which only the hub knows. `GET` is taken too: the
    /// hub verifies subscriptions by it.
    #[allow(dead_code, reason = "read from the tree, as triggers are")]
    pub http: AnyValue,
    /// How the hub reaches that: what stands before the path, such as `https://api.example`.
    pub public_url: Spanned<String>,
}

/// A way to sign, the weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum Signature {
    /// HMAC-SHA-1: only for hubs that have nothing else.
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

/// The JSON Schema of the value under the key.
pub(super) fn schema() -> serde_json::Value {
    let mut schema = config::schema_for::<WebSubConfig>();
    // What the loader reads.
    if let Some(http) = schema.pointer_mut("/properties/callback/properties/http") {
        *http = json!({ "$ref": "#/$defs/http-trigger", "description": http["description"] });
    }
    schema
}
