//! `cors:` in a file.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use config::{Report, Span, Spanned};
use message::Headers;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::{CorsPolicy, Origin, Origins};
use crate::codes::BAD_CORS;
use crate::text::{parse_authority, parse_method};

/// How long browsers may keep the reply to a preflight request unless the file says otherwise.
const MAX_AGE: u64 = 600;
/// The most entries of a list: an origin is compared with each.
const ENTRIES_MAX: usize = 1000;

/// `cors:` in a file: `"*"` or a mapping.
#[derive(Debug)]
pub enum CorsConfig {
    /// A text, which must be `*`.
    Text(String),
    /// The policy.
    Mapping(Box<CorsKeys>),
}

/// Which web pages may read replies (CORS).
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct CorsKeys {
    /// The origins of the pages: `https://shop.example`, `https://*.shop.example` for all hosts
    /// below a domain, `null` for sandboxed pages and local files, or `*` alone for all.
    origins: Spanned<Vec<Spanned<String>>>,
    /// The methods that pages may use. The default is those of the flows at the path.
    methods: Option<Spanned<Vec<Spanned<String>>>>,
    /// The request headers that pages may set beside those that they always may. The default is
    /// all.
    headers: Option<Spanned<Vec<Spanned<String>>>>,
    /// The reply headers that pages may read beside those that they always may, such as `ETag`.
    #[serde(default)]
    expose: Vec<Spanned<String>>,
    /// Whether pages may send cookies, client certificates and HTTP authentication, and read the
    /// replies.
    #[serde(default)]
    credentials: bool,
    /// How long browsers may keep the answer to a preflight request, from 0s to 24h.
    #[schemars(extend("default" = "10m"))]
    max_age: Option<Spanned<config::Duration>>,
    /// Whether public pages may ask an engine with a private address
    /// (`Access-Control-Allow-Private-Network`).
    #[serde(default)]
    private_network: bool,
}

impl<'de> Deserialize<'de> for CorsConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrMapping;
        impl<'de> Visitor<'de> for TextOrMapping {
            type Value = CorsConfig;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("`*` or a mapping with `origins`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<CorsConfig, E> {
                Ok(CorsConfig::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CorsConfig, A::Error> {
                let keys = CorsKeys::deserialize(MapAccessDeserializer::new(map))?;
                Ok(CorsConfig::Mapping(Box::new(keys)))
            }
        }
        deserializer.deserialize_any(TextOrMapping)
    }
}

impl JsonSchema for CorsConfig {
    fn schema_name() -> Cow<'static, str> {
        "Cors".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": "string" }, generator.subschema_for::<CorsKeys>()]
        })
    }
}

impl CorsConfig {
    /// Reads the policy. Every problem goes into the report; `None` when there was one.
    pub fn read(config: &Spanned<Self>, report: &mut Report) -> Option<Arc<CorsPolicy>> {
        let before = report.errors();
        let policy = match &config.value {
            Self::Text(text) => read_text(text, config.span, report),
            Self::Mapping(keys) => read_keys(keys, report),
        };
        (report.errors() == before).then(|| Arc::new(policy))
    }
}

fn read_text(text: &str, span: Span, report: &mut Report) -> CorsPolicy {
    if text != "*" {
        let message = format!("`{}` is no CORS policy", text.escape_debug());
        let hint = "write `\"*\"` for all pages, or `{ origins: [\"https://shop.example\"] }`";
        report.error(BAD_CORS, span, message).hint(hint);
    }
    CorsPolicy {
        origins: Origins::Any,
        methods: None,
        headers: None,
        expose: Vec::new(),
        credentials: false,
        max_age: MAX_AGE,
        private_network: false,
    }
}

fn read_keys(keys: &CorsKeys, report: &mut Report) -> CorsPolicy {
    let origins = read_origins(keys, report);
    let methods = keys.methods.as_ref().map(|methods| {
        refuse_empty("methods", methods, report);
        let checked = checked(&methods.value, report, |name| {
            parse_method(name).err().map(|error| error.message)
        });
        checked.join(", ")
    });
    let is_name = |name: &str| match name {
        "*" => Some(
            "`*` would leave `Authorization` out and means nothing to requests with \
                     credentials: leave `headers` out to allow all"
                .to_owned(),
        ),
        name if Headers::is_name(name) => None,
        name => Some(format!("`{}` is no header", name.escape_debug())),
    };
    let headers = keys.headers.as_ref();
    let headers = headers.map(|headers| checked(&headers.value, report, is_name));
    let expose = checked(&keys.expose, report, |name| match name {
        "*" if !keys.credentials => None,
        "*" => Some("`*` means nothing to requests with credentials: name the headers".to_owned()),
        name if Headers::is_name(name) => None,
        name => Some(format!("`{}` is no header", name.escape_debug())),
    });
    CorsPolicy {
        origins,
        methods,
        headers,
        expose,
        credentials: keys.credentials,
        max_age: read_max_age(keys, report),
        private_network: keys.private_network,
    }
}

fn read_max_age(keys: &CorsKeys, report: &mut Report) -> u64 {
    let Some(time) = &keys.max_age else {
        return MAX_AGE;
    };
    let seconds = time.value.0.as_secs();
    let is_whole = time.value.0.subsec_nanos() == 0;
    if seconds > 24 * 3600 || !is_whole {
        report
            .error(BAD_CORS, time.span, "`max_age` is outside its range")
            .hint("whole seconds, from 0s to 24h; no browser keeps it longer");
    }
    seconds
}

fn refuse_empty(key: &str, list: &Spanned<Vec<Spanned<String>>>, report: &mut Report) {
    if list.value.is_empty() {
        let message = format!("`{key}` is empty: no page could do anything");
        let hint = format!("name some, or leave `{key}` out");
        report.error(BAD_CORS, list.span, message).hint(hint);
    }
}

/// The entries of a list, each once. What `why_not` says of one is reported.
fn checked(
    list: &[Spanned<String>],
    report: &mut Report,
    why_not: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut seen = HashSet::new();
    for entry in list {
        if let Some(message) = why_not(&entry.value) {
            report.error(BAD_CORS, entry.span, message);
        } else if !seen.insert(entry.value.to_ascii_lowercase()) {
            let message = format!("`{}` stands twice", entry.value);
            report.error(BAD_CORS, entry.span, message);
        }
    }
    list.iter().map(|entry| entry.value.clone()).collect()
}

fn read_origins(keys: &CorsKeys, report: &mut Report) -> Origins {
    let list = &keys.origins;
    refuse_empty("origins", list, report);
    if list.value.len() > ENTRIES_MAX {
        let message = format!("there are more than {ENTRIES_MAX} origins");
        report.error(BAD_CORS, list.span, message);
    }
    let all = list.value.iter().find(|origin| origin.value == "*");
    if let Some(all) = all {
        if keys.credentials {
            let message = "`*` with `credentials: true` would let every page act for its visitor";
            report
                .error(BAD_CORS, all.span, message)
                .hint("list the origins that may, or leave `credentials` out");
        }
        if list.value.len() > 1 {
            let message = "`*` stands for all origins: the others have no effect";
            let hint = "write `*` alone, or leave it out";
            report.error(BAD_CORS, all.span, message).hint(hint);
        }
        return Origins::Any;
    }
    let null = list.value.iter().find(|origin| origin.value == "null");
    if let Some(null) = null.filter(|_| keys.credentials) {
        let message = "`null` with `credentials: true` would let every page act for its visitor";
        let hint = "every page can make a sandboxed frame, whose origin is `null`: leave it out";
        report.error(BAD_CORS, null.span, message).hint(hint);
    }
    let entries = checked(&list.value, report, |text| {
        let message = || format!("`{}` is not the origin of a web page", text.escape_debug());
        parse_origin(text)
            .map_err(|hint| format!("{}: {hint}", message()))
            .err()
    });
    let entries = entries.iter().filter_map(|text| parse_origin(text).ok());
    Origins::Listed(entries.collect())
}

/// Reads an origin as browsers write it (RFC 6454, section 6.2), or a pattern.
fn parse_origin(text: &str) -> Result<Origin, &'static str> {
    if text == "null" {
        return Ok(Origin::Exact(text.to_owned()));
    }
    let usual = match text.split_once("://") {
        Some(("https", _)) => 443,
        Some(("http", _)) => 80,
        _ => return Err("write scheme and host, such as `https://shop.example`"),
    };
    let (scheme, authority) = text.split_at(text.find("//").map_or(0, |at| at + 2));
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err("browsers write it in lower case");
    }
    let below = authority.strip_prefix("*.");
    let host = below.unwrap_or(authority);
    if host.contains('*') {
        return Err("`*` stands for the first parts of a host only: `https://*.shop.example`");
    }
    let (name, port) = parse_authority(host)
        .map_err(|_| "write scheme, host and perhaps a port, and nothing behind them")?;
    let name = name.ok_or("the host is missing")?;
    if port == Some(usual) {
        return Err("browsers leave the usual port out, so this one would never be met");
    }
    if below.is_none() {
        return Ok(Origin::Exact(text.to_owned()));
    }
    if name.parse::<std::net::IpAddr>().is_ok() {
        return Err("an address has no hosts below it");
    }
    Ok(Origin::Below {
        scheme: scheme.to_owned(),
        domain: format!(".{host}"),
    })
}
