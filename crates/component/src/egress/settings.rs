//! `engine.egress` as files say it.

use std::sync::Arc;

use config::{Report, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;

use super::proxy::{self, ProxyConfig};
use super::{Policy, Scheme};
use crate::codes::BAD_EGRESS;
use crate::networks::NetworkList;
use crate::text::parse_authority;

/// The most ports that can be allowed.
const PORTS_MAX: usize = 1000;

/// The egress guard: which URLs may be called that users set, and by connections and steps with
/// `egress: guarded`. Public addresses are allowed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EgressConfig {
    /// Addresses and blocks of addresses that may be called although they are not public, such as
    /// `10.1.0.0/16`. An address of a metadata service must stand there by itself; unspecified,
    /// multicast and broadcast addresses are always refused.
    #[serde(default)]
    allow: Vec<Spanned<String>>,
    /// Addresses and blocks that are refused. An address that is in both lists is refused.
    #[serde(default)]
    deny: Vec<Spanned<String>>,
    /// The ports that may be called, each from 1 to 65535. The default is those of `schemes`: 443
    /// for `https`, 80 for `http`.
    ports: Option<Spanned<Vec<Spanned<u64>>>>,
    /// The schemes that may be called.
    #[schemars(extend("default" = ["https"]))]
    schemes: Option<Spanned<Vec<Scheme>>>,
    /// What the engine calls itself in `CDN-Loop` (RFC 8586), by which it knows requests that it
    /// has sent itself: a word or a host, the same for all engines behind one address. The default
    /// is a new one for each start.
    loop_id: Option<Spanned<String>>,
    /// A proxy that guarded requests go through.
    proxy: Option<ProxyConfig>,
}

impl Policy {
    /// Reads the settings. Every problem goes into the report.
    pub fn read(config: &EgressConfig, report: &mut Report) -> Arc<Self> {
        let schemes = match &config.schemes {
            None => vec![Scheme::Https],
            Some(schemes) => read_schemes(schemes, report),
        };
        let ports = match &config.ports {
            None => schemes.iter().map(|it| it.port()).collect(),
            Some(ports) => read_ports(ports, report),
        };
        let allow = networks(&config.allow, report);
        let deny = networks(&config.deny, report);
        let mut policy = Self::new(allow, deny, ports, schemes);
        if let Some(id) = &config.loop_id {
            policy.loop_id = read_loop_id(id, report);
        }
        if let Some(config) = &config.proxy {
            policy.proxy = proxy::read(config, report).map(Arc::new);
        }
        Arc::new(policy)
    }
}

fn read_schemes(schemes: &Spanned<Vec<Scheme>>, report: &mut Report) -> Vec<Scheme> {
    if schemes.value.is_empty() {
        let message = "an empty list would allow nothing";
        let diagnostic = report.error(BAD_EGRESS, schemes.span, message);
        diagnostic.hint("write `[https]`, or leave the list out");
    }
    schemes.value.clone()
}

fn read_loop_id(id: &Spanned<String>, report: &mut Report) -> Arc<str> {
    if !is_loop_id(&id.value) {
        let message = "this cannot stand in `CDN-Loop`";
        let diagnostic = report.error(BAD_EGRESS, id.span, message);
        diagnostic.hint("write a word such as `shop`, or a host such as `shop.example`");
    }
    id.value.as_str().into()
}

fn networks(texts: &[Spanned<String>], report: &mut Report) -> NetworkList {
    let mut list = NetworkList::default();
    list.add_all(texts, BAD_EGRESS, report);
    list
}

fn read_ports(ports: &Spanned<Vec<Spanned<u64>>>, report: &mut Report) -> Vec<u16> {
    if ports.value.is_empty() || ports.value.len() > PORTS_MAX {
        let message = format!("`ports` lists 1 to {PORTS_MAX} ports");
        let diagnostic = report.error(BAD_EGRESS, ports.span, message);
        diagnostic.hint("write `[443]`, or leave the list out");
    }
    let mut read = Vec::new();
    for port in &ports.value {
        match u16::try_from(port.value) {
            Ok(number @ 1..) => read.push(number),
            _ => {
                let message = format!("the port {} is out of range", port.value);
                let diagnostic = report.error(BAD_EGRESS, port.span, message);
                diagnostic.hint("a port is a number from 1 to 65535");
            }
        }
    }
    read
}

/// `cdn-id` of RFC 8586, section 2: a host with or without a port, or a word.
fn is_loop_id(text: &str) -> bool {
    let is_host = matches!(parse_authority(text), Ok((Some(_), _)));
    (is_host || message::Headers::is_name(text)) && text.len() <= 255 && !text.contains([',', ';'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<Arc<Policy>, Vec<String>> {
        crate::testing::read_value(yaml, |node, report| {
            let config = config::decode::<EgressConfig>(node, report)?;
            let before = report.errors();
            let policy = Policy::read(&config, report);
            (report.errors() == before).then_some(policy)
        })
    }

    #[test]
    fn settings_are_read() {
        let policy = read("{}").unwrap();
        assert_eq!(*policy, Policy::default());
        let policy = read("{ schemes: [http, https] }").unwrap();
        assert_eq!(policy.ports, [80, 443]);
        let policy = read("{ schemes: [http], ports: [8080] }").unwrap();
        assert!(policy.target("http://example.com:8080/").is_ok());
        assert!(policy.target("http://example.com/").is_err());
        let policy =
            read("{ allow: [10.1.0.0/16], deny: [10.1.2.0/24], loop_id: shop.example:8443 }")
                .unwrap();
        assert_eq!(&*policy.loop_id, "shop.example:8443");
        for (url, is_allowed) in [
            ("https://10.1.0.1/", true),
            ("https://10.1.2.1/", false),
            ("https://10.2.0.1/", false),
        ] {
            assert_eq!(policy.target(url).is_ok(), is_allowed, "{url}");
        }
    }

    #[test]
    fn a_proxy_is_read() {
        let proxy = |yaml: &str| read(&format!("{{ proxy: {yaml} }}")).unwrap().proxy.clone();
        let read = proxy("{ url: \"http://proxy.example:3128/\", user: u, password: \"p:w\" }");
        let read = read.unwrap();
        assert_eq!((&*read.host, read.port), ("proxy.example", 3128));
        assert_eq!(read.user_pass.as_deref(), Some("u:p:w"));
        assert_eq!(format!("{read:?}"), "EgressProxy(proxy.example:3128)");
        let read = proxy("{ url: \"http://[::1]:8080\" }").unwrap();
        assert_eq!((read.port, read.user_pass.clone()), (8080, None));
    }

    #[test]
    fn wrong_settings_are_told() {
        for (yaml, expected) in [
            (
                "{ allow: [internal.example] }",
                "IT0740 `internal.example`: this is no address and no block of addresses",
            ),
            (
                "{ deny: [10.1.0.0/8] }",
                "IT0740 `10.1.0.0/8`: the block begins with 10.0.0.0: write `10.0.0.0/8`",
            ),
            ("{ ports: [] }", "IT0740 `ports` lists 1 to 1000 ports"),
            ("{ ports: [0] }", "IT0740 the port 0 is out of range"),
            (
                "{ ports: [65536] }",
                "IT0740 the port 65536 is out of range",
            ),
            (
                "{ schemes: [] }",
                "IT0740 an empty list would allow nothing",
            ),
            (
                "{ loop_id: \"a, b\" }",
                "IT0740 this cannot stand in `CDN-Loop`",
            ),
            (
                "{ loop_id: \"\" }",
                "IT0740 this cannot stand in `CDN-Loop`",
            ),
        ] {
            assert_eq!(read(yaml).unwrap_err(), [expected], "{yaml}");
        }
        assert!(read("{ schemes: [ftp] }").is_err());
        for (proxy, expected) in [
            (
                "{ url: \"https://proxy:3128\" }",
                "`https://proxy:3128` is no proxy",
            ),
            ("{ url: \"http://proxy\" }", "`http://proxy` is no proxy"),
            (
                "{ url: \"http://proxy:1/a\" }",
                "`http://proxy:1/a` is no proxy",
            ),
            ("{ url: \"http://u:p@proxy:1\" }", "the URL is no proxy"),
            (
                "{ url: \"http://proxy:1\", user: u }",
                "`user` and `password` belong together",
            ),
            (
                "{ url: \"http://proxy:1\", user: \"a:b\", password: p }",
                "the user name has a colon, which ends it (RFC 7617)",
            ),
        ] {
            let yaml = format!("{{ proxy: {proxy} }}");
            assert_eq!(read(&yaml).unwrap_err(), [format!("IT0740 {expected}")]);
        }
    }
}
