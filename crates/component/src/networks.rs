//! Blocks of addresses, and which clients may come from where.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use config::{Report, Spanned};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::codes::BAD_NETWORK;

/// The most entries of a list: an address is compared with each.
pub const NETWORKS_MAX: usize = 1000;

/// A list of blocks of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkList(Vec<Network>);

/// A block of addresses (RFC 4632; RFC 4291, section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    /// The first address. IPv4 as it is mapped into IPv6.
    first: u128,
    /// How many leading bits all addresses have in common, of 128.
    bits: u32,
}

/// Why a text is no block of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoNetwork {
    /// It is neither `ADDRESS` nor `ADDRESS/BITS`.
    Malformed,
    /// The address has bits behind the prefix. The block may be this one.
    HasHostBits(IpAddr, u32),
}

impl fmt::Display for NoNetwork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => formatter.write_str("this is no address and no block of addresses"),
            Self::HasHostBits(first, bits) => {
                write!(
                    formatter,
                    "the block begins with {first}: write `{first}/{bits}`"
                )
            }
        }
    }
}

impl NetworkList {
    /// Adds an address or a block: `10.0.0.7`, `10.0.0.0/8`, `2001:db8::/32`.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn add(&mut self, text: &str) -> Result<(), NoNetwork> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NoNetwork::Malformed)?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let is_number = |bits: &&str| bits.bytes().all(|byte| byte.is_ascii_digit());
        let own_bits = match bits {
            None => width,
            Some(bits) => Some(bits)
                .filter(is_number)
                .and_then(|bits| bits.parse().ok())
                .filter(|bits| *bits <= width)
                .ok_or(NoNetwork::Malformed)?,
        };
        let bits = own_bits + 128 - width;
        let number = number(address);
        let first = number & mask(bits);
        if first != number {
            let first = Ipv6Addr::from_bits(first).to_canonical();
            return Err(NoNetwork::HasHostBits(first, own_bits));
        }
        self.0.push(Network { first, bits });
        Ok(())
    }

    /// Adds all of a file's. Those that are none are reported.
    pub fn add_all(&mut self, texts: &[Spanned<String>], code: config::Code, report: &mut Report) {
        for (number, text) in texts.iter().enumerate() {
            if number == NETWORKS_MAX {
                let message = format!("there are more than {NETWORKS_MAX} addresses and blocks");
                let hint = "name larger blocks, such as `10.0.0.0/8`";
                report.error(code, text.span, message).hint(hint);
                break;
            }
            if let Err(why) = self.add(&text.value) {
                let message = format!("`{}`: {why}", text.value.escape_debug());
                let hint =
                    "write `10.0.0.7`, `10.0.0.0/8` or `2001:db8::/32`; names are not looked up";
                report.error(code, text.span, message).hint(hint);
            }
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them is all of IPv4 or IPv6.
    fn has_all(&self) -> bool {
        self.0
            .iter()
            .any(|it| it.bits == 0 || it.bits == 96 && it.first == IPV4)
    }

    /// Whether an address stands there by itself.
    pub fn names(&self, address: IpAddr) -> bool {
        let number = number(address);
        self.0.iter().any(|it| it.bits == 128 && it.first == number)
    }

    /// Whether an address is in one of them. IPv4 is the same address when it is mapped into IPv6.
    pub fn contains(&self, address: IpAddr) -> bool {
        let number = number(address);
        self.0.iter().any(|it| number & mask(it.bits) == it.first)
    }
}

/// The first address of IPv4 as it is mapped into IPv6 (RFC 4291, section 2.5.5.2).
const IPV4: u128 = 0xffff << 32;

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn mask(bits: u32) -> u128 {
    u128::MAX.checked_shl(128 - bits).unwrap_or_default()
}

/// From where clients may come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// Those that may; all when there is no such list.
    allow: Option<NetworkList>,
    /// Those that may not, whatever the other list says.
    deny: NetworkList,
}

impl Networks {
    /// Whether only some clients may come: a list of those that may not leaves all others.
    pub fn are_listed(&self) -> bool {
        self.allow.as_ref().is_some_and(|it| !it.has_all())
    }

    /// Whether a client with this address may come.
    pub fn admits(&self, address: IpAddr) -> bool {
        let is_allowed = self.allow.as_ref().is_none_or(|it| it.contains(address));
        is_allowed && !self.deny.contains(address)
    }
}

/// `networks:` in a file: a list of networks that are allowed, or both lists.
#[derive(Debug, Default)]
pub struct NetworksConfig(Lists);

/// Who may connect: addresses and blocks of addresses such as `10.0.0.0/8`.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Lists {
    /// The networks that are allowed. Without it all are.
    allow: Option<Spanned<Vec<Spanned<String>>>>,
    /// The networks that are refused. A client that is in both lists is refused.
    deny: Option<Spanned<Vec<Spanned<String>>>>,
}

impl<'de> Deserialize<'de> for NetworksConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListOrMapping;
        impl<'de> Visitor<'de> for ListOrMapping {
            type Value = NetworksConfig;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of networks, or `allow` and `deny`")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<NetworksConfig, A::Error> {
                let value = Vec::<Spanned<String>>::deserialize(SeqAccessDeserializer::new(list))?;
                let span = value.first().map(|first| first.span);
                Ok(NetworksConfig(Lists {
                    // The schema refuses an empty list.
                    allow: span.map(|span| Spanned { value, span }),
                    deny: None,
                }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NetworksConfig, A::Error> {
                Lists::deserialize(MapAccessDeserializer::new(map)).map(NetworksConfig)
            }
        }
        deserializer.deserialize_any(ListOrMapping)
    }
}

impl JsonSchema for NetworksConfig {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Networks".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "array", "items": { "type": "string" }, "minItems": 1 },
                generator.subschema_for::<Lists>()
            ]
        })
    }
}

impl NetworksConfig {
    /// Reads the lists. Every problem goes into the report; `None` when there was one.
    pub fn read(config: &Spanned<Self>, report: &mut Report) -> Option<Arc<Networks>> {
        let before = report.errors();
        let Lists { allow, deny } = &config.value.0;
        if allow.is_none() && deny.is_none() {
            report
                .error(BAD_NETWORK, config.span, "`networks` has no list")
                .hint("write `[10.0.0.0/8]`, `{ allow: [...] }` or `{ deny: [...] }`");
        }
        let mut read = |list: &Option<Spanned<Vec<Spanned<String>>>>, meaning: &str| {
            let texts = list.as_ref()?;
            if texts.value.is_empty() {
                let message = format!("an empty list {meaning}");
                let hint = "name networks, or leave the list out";
                report.error(BAD_NETWORK, texts.span, message).hint(hint);
            }
            let mut networks = NetworkList::default();
            networks.add_all(&texts.value, BAD_NETWORK, report);
            Some(networks)
        };
        let networks = Networks {
            allow: read(allow, "would allow nobody"),
            deny: read(deny, "has no effect").unwrap_or_default(),
        };
        (report.errors() == before).then(|| Arc::new(networks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> NetworkList {
        let mut list = NetworkList::default();
        for text in texts {
            list.add(text).unwrap();
        }
        list
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_are_in_their_blocks() {
        let blocks = list(&["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::1"]);
        for address in [
            "10.0.0.1",
            "10.255.255.255",
            "192.0.2.7",
            "2001:db8:1::1",
            "::1",
        ] {
            assert!(blocks.contains(ip(address)), "{address}");
        }
        assert!(blocks.contains(ip("::ffff:10.1.1.1")), "mapped into IPv6");
        for address in ["11.0.0.1", "192.0.2.8", "2001:db9::1", "::2", "::a00:1"] {
            assert!(!blocks.contains(ip(address)), "{address}");
        }
        assert!(list(&["0.0.0.0/0"]).contains(ip("203.0.113.1")));
        assert!(!list(&["0.0.0.0/0"]).contains(ip("2001:db8::1")));
        assert!(list(&["::/0"]).contains(ip("203.0.113.1")));
        assert!(!list(&[]).contains(ip("127.0.0.1")));
    }

    #[test]
    fn a_list_of_all_networks_is_none() {
        let networks = |allow: Option<&[&str]>, deny: &[&str]| Networks {
            allow: allow.map(list),
            deny: list(deny),
        };
        assert!(networks(Some(&["10.0.0.0/8", "0.0.0.0/1"]), &[]).are_listed());
        assert!(networks(Some(&[]), &[]).are_listed());
        assert!(!networks(None, &["10.0.0.0/8"]).are_listed());
        for all in ["0.0.0.0/0", "::/0"] {
            assert!(
                !networks(Some(&["10.0.0.0/8", all]), &[]).are_listed(),
                "{all}"
            );
        }
    }

    #[test]
    fn what_is_no_block_is_refused() {
        let mut blocks = NetworkList::default();
        for text in [
            "",
            "a",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0/8",
            "::/129",
            "/8",
        ] {
            assert_eq!(blocks.add(text), Err(NoNetwork::Malformed), "{text}");
        }
        let error = blocks.add("10.1.2.3/8").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the block begins with 10.0.0.0: write `10.0.0.0/8`"
        );
        let error = blocks.add("2001:db8::1/32").unwrap_err();
        assert!(
            error.to_string().ends_with("write `2001:db8::/32`"),
            "{error}"
        );
        assert!(blocks.is_empty());
    }

    #[test]
    fn deny_goes_before_allow_and_mapped_addresses_are_the_same() {
        let both = Networks {
            allow: Some(list(&["10.0.0.0/8", "2001:db8::/32"])),
            deny: list(&["10.1.0.0/16", "2001:db8:bad::/48"]),
        };
        for (address, is_admitted) in [
            ("10.0.0.1", true),
            ("10.1.0.1", false),
            ("11.0.0.1", false),
            ("::ffff:10.0.0.1", true),
            ("::ffff:10.1.0.1", false),
            ("::ffff:11.0.0.1", false),
            ("2001:db8::1", true),
            ("2001:db8:bad::1", false),
            ("::1", false),
        ] {
            assert_eq!(both.admits(ip(address)), is_admitted, "{address}");
        }
        let denied = Networks {
            allow: None,
            deny: list(&["::ffff:10.0.0.0/104"]),
        };
        assert!(!denied.admits(ip("10.9.9.9")));
        assert!(denied.admits(ip("192.0.2.1")));
        assert!(denied.admits(ip("::1")));
    }

    #[test]
    fn lists_of_a_file_are_checked() {
        let read = |yaml: &str| {
            crate::testing::read_value(yaml, |node, report| {
                let config = config::decode::<Spanned<NetworksConfig>>(node, report)?;
                NetworksConfig::read(&config, report)
            })
        };
        let short = read("[10.0.0.0/8, \"::1\"]").unwrap();
        assert_eq!(short, read("{ allow: [10.0.0.0/8, \"::1\"] }").unwrap());
        assert!(short.admits(ip("::1")) && !short.admits(ip("192.0.2.1")));
        for (yaml, expected) in [
            ("{}", "IT0236 `networks` has no list"),
            ("{ allow: [] }", "IT0236 an empty list would allow nobody"),
            ("{ deny: [] }", "IT0236 an empty list has no effect"),
            (
                "{ deny: [example.com] }",
                "IT0236 `example.com`: this is no address and no block of addresses",
            ),
            (
                "[10.1.0.0/8]",
                "IT0236 `10.1.0.0/8`: the block begins with 10.0.0.0: write `10.0.0.0/8`",
            ),
        ] {
            assert_eq!(read(yaml).unwrap_err(), [expected], "{yaml}");
        }
        assert!(read("[]").is_err());
        assert!(read("10.0.0.0/8").is_err());
    }
}
