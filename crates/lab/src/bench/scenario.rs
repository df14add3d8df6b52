//! The scenarios: those of the published table, by its names.

use serde::{Deserialize, Serialize};

/// What one side of a proxy speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// HTTP/1.1 in clear text.
    H1Clear,
    /// HTTP/1.1 over TLS.
    H1Tls,
    /// HTTP/2 over TLS.
    H2Tls,
    /// TLS with both offered by the proxy, of which the other side takes HTTP/1.1.
    Downgrade,
}

impl Side {
    /// Whether there is TLS.
    pub fn is_tls(self) -> bool {
        self != Self::H1Clear
    }

    /// Whether requests go over HTTP/2.
    pub fn is_h2(self) -> bool {
        self == Self::H2Tls
    }

    /// What the proxy offers by ALPN.
    pub fn offers(self) -> &'static [&'static str] {
        match self {
            Self::H1Clear => &[],
            Self::H1Tls => &["http/1.1"],
            Self::H2Tls => &["h2"],
            Self::Downgrade => &["h2", "http/1.1"],
        }
    }

    /// What the client or the back end offers by ALPN.
    pub fn other_offers(self) -> Vec<String> {
        let names: &[&str] = match self {
            Self::H2Tls => &["h2"],
            _ => &["http/1.1"],
        };
        names.iter().map(|name| (*name).to_owned()).collect()
    }
}

/// One row of tests of the published table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scenario {
    /// What the command line calls it.
    pub name: &'static str,
    /// What the published table calls it.
    pub title: &'static str,
    /// What clients speak.
    pub front: Side,
    /// What the back end speaks.
    pub back: Side,
    /// Whether the request's body becomes XML.
    pub converts: bool,
}

/// All scenarios, in the order of the published table.
pub(crate) const ALL: [Scenario; 8] = [
    Scenario {
        name: "h1c",
        title: "Passthrough HTTP service (h1c -> h1c)",
        front: Side::H1Clear,
        back: Side::H1Clear,
        converts: false,
    },
    Scenario {
        name: "json-xml",
        title: "JSON to XML transformation HTTP service",
        front: Side::H1Clear,
        back: Side::H1Clear,
        converts: true,
    },
    Scenario {
        name: "h1",
        title: "Passthrough HTTPS service (h1 -> h1)",
        front: Side::H1Tls,
        back: Side::H1Tls,
        converts: false,
    },
    Scenario {
        name: "json-xml-tls",
        title: "JSON to XML transformation HTTPS service",
        front: Side::H1Tls,
        back: Side::H1Tls,
        converts: true,
    },
    Scenario {
        name: "h2-h1c",
        title: "Passthrough HTTP/2(over TLS) service (h2 -> h1c)",
        front: Side::H2Tls,
        back: Side::H1Clear,
        converts: false,
    },
    Scenario {
        name: "h2-h1",
        title: "Passthrough HTTP/2(over TLS) service (h2 -> h1)",
        front: Side::H2Tls,
        back: Side::H1Tls,
        converts: false,
    },
    Scenario {
        name: "downgrade",
        title: "HTTP/2 client and server downgrade service (h2 -> h2)",
        front: Side::Downgrade,
        back: Side::Downgrade,
        converts: false,
    },
    Scenario {
        name: "h2-h2",
        title: "Passthrough HTTP/2(over TLS) service (h2 -> h2)",
        front: Side::H2Tls,
        back: Side::H2Tls,
        converts: false,
    },
];

/// The scenario of this name.
pub(crate) fn find(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|scenario| scenario.name == name)
}

/// The names, for the command line.
pub(crate) fn names() -> [&'static str; ALL.len()] {
    ALL.each_ref().map(|scenario| scenario.name)
}

/// The systems that can be measured.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
pub(crate) enum System {
    /// The binary under test.
    Intertie,
    /// The binary under test without the conversion, where a scenario has one: what that costs.
    Passthrough,
    /// A relay that copies bytes and reads nothing: the least that a proxy can cost.
    Floor,
    /// nginx.
    Nginx,
    /// HAProxy.
    HaProxy,
    /// Envoy.
    Envoy,
    /// No proxy: what stub and generator reach alone.
    Direct,
}

impl System {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Intertie => "intertie",
            Self::Passthrough => "passthrough",
            Self::Floor => "floor",
            Self::Nginx => "nginx",
            Self::HaProxy => "haproxy",
            Self::Envoy => "envoy",
            Self::Direct => "direct",
        }
    }

    /// Why it has no part in a scenario, if it has none.
    pub fn refuses(self, scenario: &Scenario) -> Option<&'static str> {
        let is_mixed = scenario.front != scenario.back;
        match self {
            Self::Intertie | Self::Direct => None,
            Self::Passthrough if scenario.converts => None,
            Self::Passthrough => Some("is what is measured here anyway"),
            _ if scenario.converts => Some("does not convert JSON to XML"),
            Self::Floor if is_mixed => Some("copies bytes, and the two sides speak differently"),
            Self::Nginx if scenario.back == Side::H2Tls => Some("has no HTTP/2 to its back ends"),
            Self::Nginx if scenario.back == Side::Downgrade => {
                Some("offers no HTTP/2 to its back ends")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_take_part_where_they_can() {
        let count = |system: System| {
            let able = ALL.iter().filter(|it| system.refuses(it).is_none());
            able.count()
        };
        let systems = [
            System::Intertie,
            System::Passthrough,
            System::Floor,
            System::Nginx,
            System::HaProxy,
        ];
        assert_eq!(systems.map(count), [8, 2, 4, 4, 6]);
        assert_eq!(find("h2-h1").unwrap().back, Side::H1Tls);
        assert!(find("h3").is_none());
    }
}
