//! Header fields that tell browsers to be careful with a reply, as the OWASP Secure Headers Project
//! and the OWASP REST Security Cheat Sheet list them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use config::{Node, Report, Span, Value};
use message::Headers;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::codes::BAD_SECURITY_HEADERS;

const HSTS: &str = "Strict-Transport-Security";

/// A name and its value.
type Constant = (&'static str, &'static str);

/// Those of both presets. `includeSubDomains` is left to the file: it is about other hosts, too.
const COMMON: [Constant; 3] = [
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    (HSTS, "max-age=31536000"),
];

/// For replies that programs read: nothing in them is to be shown, run or kept.
const API: [Constant; 3] = [
    ("Cache-Control", "no-store"),
    (
        "Content-Security-Policy",
        "default-src 'none'; frame-ancestors 'none'",
    ),
    ("Referrer-Policy", "no-referrer"),
];

/// For pages: scripts, styles and images of their own host only.
const PAGE: [Constant; 5] = [
    (
        "Content-Security-Policy",
        "default-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'; \
         object-src 'none'",
    ),
    ("Referrer-Policy", "strict-origin-when-cross-origin"),
    (
        "Permissions-Policy",
        "camera=(), geolocation=(), microphone=()",
    ),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
];

/// Fields that replies get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecurityHeaders {
    fields: Vec<(String, String)>,
    /// Whether they replace those of the back end or flow.
    pub replaces: bool,
}

impl SecurityHeaders {
    /// The fields of a reply. `Strict-Transport-Security` is meant for encrypted connections only
    /// (RFC 6797, section 7.2).
    pub fn fields(&self, is_secure: bool) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.fields.iter();
        let fields = fields.map(|(name, value)| (name.as_str(), value.as_str()));
        fields.filter(move |(name, _)| is_secure || !name.eq_ignore_ascii_case(HSTS))
    }

    fn put(&mut self, name: &str, value: &str) {
        self.fields.push((name.to_owned(), value.to_owned()));
    }

    fn drop_field(&mut self, name: &str) {
        self.fields
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    }
}

/// A set of fields that usually belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Preset {
    /// For replies that programs read.
    Api,
    /// For web pages.
    Page,
}

impl Preset {
    fn fields(self) -> impl Iterator<Item = &'static Constant> {
        let own: &[Constant] = match self {
            Self::Api => &API,
            Self::Page => &PAGE,
        };
        own.iter().chain(&COMMON)
    }
}

impl From<Preset> for SecurityHeaders {
    fn from(preset: Preset) -> Self {
        let mut headers = Self::default();
        for (name, value) in preset.fields() {
            headers.put(name, value);
        }
        headers
    }
}

/// `security_headers:` in a file: a preset, or a mapping.
#[derive(Debug)]
pub enum SecurityHeadersConfig {
    /// A preset as it is.
    Preset(Preset),
    /// A preset with changes.
    Mapping(SecurityHeadersKeys),
}

/// Headers of replies that tell browsers to be careful.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct SecurityHeadersKeys {
    /// The headers to start with: those for an API (`api`) or for web pages (`page`).
    preset: Option<Preset>,
    /// Headers by name, beside those of the preset or in their place; `null` leaves one of the
    /// preset out.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the places of the names"
    )]
    headers: Option<Fields>,
    /// Whether they replace those of the back end or flow. Otherwise theirs are kept.
    #[serde(default)]
    replace: bool,
}

/// A mapping of header names to texts.
#[derive(Debug)]
struct Fields;

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

impl JsonSchema for Fields {
    fn schema_name() -> Cow<'static, str> {
        "SecurityHeaderFields".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "additionalProperties": { "type": ["string", "null"] },
            "minProperties": 1
        })
    }
}

impl<'de> Deserialize<'de> for SecurityHeadersConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrMapping;
        impl<'de> Visitor<'de> for TextOrMapping {
            type Value = SecurityHeadersConfig;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("`api`, `page` or a mapping")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                let preset = de::value::StrDeserializer::<E>::new(text);
                Preset::deserialize(preset).map(SecurityHeadersConfig::Preset)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let keys = SecurityHeadersKeys::deserialize(MapAccessDeserializer::new(map))?;
                Ok(SecurityHeadersConfig::Mapping(keys))
            }
        }
        deserializer.deserialize_any(TextOrMapping)
    }
}

impl JsonSchema for SecurityHeadersConfig {
    fn schema_name() -> Cow<'static, str> {
        "SecurityHeaders".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                generator.subschema_for::<Preset>(),
                generator.subschema_for::<SecurityHeadersKeys>()
            ]
        })
    }
}

impl SecurityHeadersConfig {
    /// Reads the value under `security_headers`. Every problem goes into the report; `None` when
    /// there was one.
    pub fn read(node: &Node, report: &mut Report) -> Option<Arc<SecurityHeaders>> {
        let config: Self = config::decode(node, report)?;
        let before = report.errors();
        let (preset, replaces) = match &config {
            Self::Preset(preset) => (Some(*preset), false),
            Self::Mapping(keys) => (keys.preset, keys.replace),
        };
        let mut headers = preset.map(SecurityHeaders::from).unwrap_or_default();
        headers.replaces = replaces;
        let own = node.get("headers").and_then(Node::as_mapping);
        for entry in own.unwrap_or_default() {
            headers.set(&entry.key, entry.key_span, &entry.value, report);
        }
        if headers.fields.is_empty() && report.errors() == before {
            report
                .error(
                    BAD_SECURITY_HEADERS,
                    node.span,
                    "`security_headers` has no effect",
                )
                .hint("write `api` or `page`, or name headers");
        }
        (report.errors() == before).then(|| Arc::new(headers))
    }
}

impl SecurityHeaders {
    /// Sets one of the file's own.
    fn set(&mut self, name: &str, name_span: Span, value: &Node, report: &mut Report) {
        let is_known = self.fields.iter().any(|it| it.0.eq_ignore_ascii_case(name));
        self.drop_field(name);
        let text = match &value.value {
            Value::Null if is_known => return,
            Value::Null => {
                let message = format!("`{}` is no header of the preset", name.escape_debug());
                let hint = "leave it out";
                report
                    .error(BAD_SECURITY_HEADERS, name_span, message)
                    .hint(hint);
                return;
            }
            _ => value.as_str().unwrap_or_default(),
        };
        let field = message::Field::of(name.as_bytes());
        let belongs_elsewhere = field.is_framing()
            || field.is_hop_by_hop()
            || name.eq_ignore_ascii_case("Vary")
            || name.eq_ignore_ascii_case("Set-Cookie")
            || crate::cors::FIELDS
                .iter()
                .any(|it| it.eq_ignore_ascii_case(name));
        if !Headers::is_name(name) {
            let message = format!("`{}` is not a header", name.escape_debug());
            report.error(BAD_SECURITY_HEADERS, name_span, message);
        } else if belongs_elsewhere {
            let message = format!("`{name}` cannot be set here");
            report
                .error(BAD_SECURITY_HEADERS, name_span, message)
                .hint("these are headers that are the same for all replies");
        } else if text.is_empty() || !Headers::is_value(text.as_bytes()) {
            let message = format!("this is no value of the header `{name}`");
            report.error(BAD_SECURITY_HEADERS, value.span, message);
        } else {
            self.put(name, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<Arc<SecurityHeaders>, Vec<String>> {
        crate::testing::read_value(yaml, SecurityHeadersConfig::read)
    }

    fn names(headers: &SecurityHeaders, is_secure: bool) -> Vec<&str> {
        headers.fields(is_secure).map(|it| it.0).collect()
    }

    #[test]
    fn presets_are_changed_by_name_and_hsts_needs_tls() {
        let api = read("api").unwrap();
        let expected = [
            "Cache-Control",
            "Content-Security-Policy",
            "Referrer-Policy",
            "X-Content-Type-Options",
            "X-Frame-Options",
        ];
        assert_eq!(names(&api, false), expected);
        assert_eq!(names(&api, true).last(), Some(&HSTS));
        assert_eq!(names(&read("page").unwrap(), true).len(), 8);
        let own = read(
            "{ preset: api, replace: true, headers: { content-security-policy: \"sandbox\", \
             X-Frame-Options: null, X-Robots-Tag: noindex, Strict-Transport-Security: max-age=1 } }",
        );
        let own = own.unwrap();
        assert!(own.replaces);
        let expected = [
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("content-security-policy", "sandbox"),
            ("X-Robots-Tag", "noindex"),
            (HSTS, "max-age=1"),
        ];
        assert_eq!(own.fields(true).collect::<Vec<_>>(), expected);
        assert_eq!(own.fields(false).count(), 5);
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        let elsewhere = |name: &str| format!("IT0238 `{name}` cannot be set here");
        for (yaml, expected) in [
            ("{}", "IT0238 `security_headers` has no effect".to_owned()),
            (
                "{ preset: api, headers: { X-Own: null } }",
                "IT0238 `X-Own` is no header of the preset".to_owned(),
            ),
            (
                "{ headers: { \"a b\": c } }",
                "IT0238 `a b` is not a header".to_owned(),
            ),
            ("{ headers: { Set-Cookie: c } }", elsewhere("Set-Cookie")),
            ("{ headers: { vary: Origin } }", elsewhere("vary")),
            (
                "{ headers: { Content-Length: \"1\" } }",
                elsewhere("Content-Length"),
            ),
            (
                "{ headers: { access-control-allow-origin: \"*\" } }",
                elsewhere("access-control-allow-origin"),
            ),
            (
                "{ headers: { X-Own: \"a\\r\\nb: c\" } }",
                "IT0238 this is no value of the header `X-Own`".to_owned(),
            ),
        ] {
            assert_eq!(read(yaml).unwrap_err(), [expected], "{yaml}");
        }
        assert!(read("strict").is_err());
        assert!(read("{ preset: strict }").is_err());
    }
}
