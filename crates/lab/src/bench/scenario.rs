//! The scenarios: those of the published table, by its names, and the mappings.

use serde::{Deserialize, Serialize};

use super::outcome::Contender;
use super::tokens::Algorithm;

/// What one side of a proxy speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// HTTP/1.1 in clear text.
    H1Clear,
    /// HTTP/1.1 over TLS.
    H1Tls,
    /// HTTP/2 in clear text, known beforehand.
    H2Clear,
    /// HTTP/2 over TLS.
    H2Tls,
    /// TLS with both offered by the proxy, of which the other side takes HTTP/1.1.
    Downgrade,
}

impl Side {
    /// Whether there is TLS.
    pub fn is_tls(self) -> bool {
        !matches!(self, Self::H1Clear | Self::H2Clear)
    }

    /// Whether requests go over HTTP/2.
    pub fn is_h2(self) -> bool {
        matches!(self, Self::H2Tls | Self::H2Clear)
    }

    /// What the proxy offers by ALPN.
    pub fn offers(self) -> &'static [&'static str] {
        match self {
            Self::H1Clear | Self::H2Clear => &[],
            Self::H1Tls => &["http/1.1"],
            Self::H2Tls => &["h2"],
            Self::Downgrade => &["h2", "http/1.1"],
        }
    }

    /// What the client or the back end offers by ALPN.
    pub fn other_offers(self) -> Vec<String> {
        let names: &[&str] = match self {
            Self::H2Tls | Self::H2Clear => &["h2"],
            _ => &["http/1.1"],
        };
        names.iter().map(|name| (*name).to_owned()).collect()
    }
}

/// What is done with a request's body on its way to the back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Nothing.
    Relay,
    /// Nothing, for clients with a token that is signed like this.
    Locked(Algorithm),
    /// JSON becomes XML.
    ToXml,
    /// An order becomes an object of ten fields, all of them copied.
    Map,
    /// The same with some of the fields computed.
    Compute,
    /// It is checked and put into a queue of a broker.
    Enqueue,
    /// It comes from a queue and goes to a slow back end.
    Await,
    /// Database, REST, SOAP, database and broker are asked one after the other.
    Orchestrate,
    /// A dialogue of a USSD menu, with this behind its last screen.
    Menu(Behind),
    /// Dialogues of a USSD menu that stand open before their last screens.
    Sessions,
}

/// What a menu does before its last screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// Nothing.
    Nothing,
    /// What [`Work::Orchestrate`] does.
    Orchestrate,
    /// It asks a slow back end through queues of a broker, and waits.
    Await,
}

impl Work {
    /// Whether JSON is mapped.
    pub fn maps(self) -> bool {
        matches!(self, Self::Map | Self::Compute)
    }

    /// How clients' tokens are signed, where they must have one.
    pub fn locked(self) -> Option<Algorithm> {
        match self {
            Self::Locked(algorithm) => Some(algorithm),
            _ => None,
        }
    }

    /// Whether it takes a broker.
    pub fn has_broker(self) -> bool {
        let is_menu = matches!(self, Self::Menu(behind) if behind != Behind::Nothing);
        is_menu || matches!(self, Self::Enqueue | Self::Await | Self::Orchestrate)
    }

    /// Whether it takes a database and a SOAP service.
    pub fn is_complex(self) -> bool {
        matches!(self, Self::Orchestrate | Self::Menu(Behind::Orchestrate))
    }
}

/// What a suite measures in one table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scenario {
    /// What the command line calls it.
    pub name: &'static str,
    /// What reports call it, and the published table.
    pub title: &'static str,
    /// What clients speak.
    pub front: Side,
    /// What the back end speaks.
    pub back: Side,
    pub work: Work,
}

impl Scenario {
    /// Where clients send their requests.
    pub fn path(&self) -> &'static str {
        match self.work {
            Work::Relay | Work::Locked(_) | Work::ToXml => "/passthrough",
            Work::Map | Work::Compute => "/map",
            Work::Enqueue | Work::Await | Work::Orchestrate => "/orders",
            Work::Menu(_) | Work::Sessions => "/ussd",
        }
    }
}

/// What the suites are called.
pub(crate) const HTTP_SUITE: &str = "http";
pub(crate) const MAP_SUITE: &str = "map";
pub(crate) const GLU_SUITE: &str = "glu";
pub(crate) const USSD_SUITE: &str = "ussd";

/// The scenarios of `intertie-bench http`, in the order of the published table.
pub(crate) const HTTP: [Scenario; 9] = [
    Scenario {
        name: "h1c",
        title: "Passthrough HTTP service (h1c -> h1c)",
        front: Side::H1Clear,
        back: Side::H1Clear,
        work: Work::Relay,
    },
    Scenario {
        name: "h1c-h2c",
        title: "Many clients over few connections (h1c -> h2c)",
        front: Side::H1Clear,
        back: Side::H2Clear,
        work: Work::Relay,
    },
    Scenario {
        name: "json-xml",
        title: "JSON to XML transformation HTTP service",
        front: Side::H1Clear,
        back: Side::H1Clear,
        work: Work::ToXml,
    },
    Scenario {
        name: "h1",
        title: "Passthrough HTTPS service (h1 -> h1)",
        front: Side::H1Tls,
        back: Side::H1Tls,
        work: Work::Relay,
    },
    Scenario {
        name: "json-xml-tls",
        title: "JSON to XML transformation HTTPS service",
        front: Side::H1Tls,
        back: Side::H1Tls,
        work: Work::ToXml,
    },
    Scenario {
        name: "h2-h1c",
        title: "Passthrough HTTP/2(over TLS) service (h2 -> h1c)",
        front: Side::H2Tls,
        back: Side::H1Clear,
        work: Work::Relay,
    },
    Scenario {
        name: "h2-h1",
        title: "Passthrough HTTP/2(over TLS) service (h2 -> h1)",
        front: Side::H2Tls,
        back: Side::H1Tls,
        work: Work::Relay,
    },
    Scenario {
        name: "downgrade",
        title: "HTTP/2 client and server downgrade service (h2 -> h2)",
        front: Side::Downgrade,
        back: Side::Downgrade,
        work: Work::Relay,
    },
    Scenario {
        name: "h2-h2",
        title: "Passthrough HTTP/2(over TLS) service (h2 -> h2)",
        front: Side::H2Tls,
        back: Side::H2Tls,
        work: Work::Relay,
    },
];

/// More scenarios of `intertie-bench http`, which are measured where they are named: the same
/// passthrough for clients with JSON Web Tokens, beside an open flow that gets the same requests.
pub(crate) const JWT: [Scenario; 3] = [
    locked(
        "jwt-rs256",
        "Passthrough behind JWT, RS256 (h1c -> h1c)",
        Algorithm::Rs256,
    ),
    locked(
        "jwt-es256",
        "Passthrough behind JWT, ES256 (h1c -> h1c)",
        Algorithm::Es256,
    ),
    locked(
        "jwt-eddsa",
        "Passthrough behind JWT, EdDSA with Ed25519 (h1c -> h1c)",
        Algorithm::EdDsa,
    ),
];

const fn locked(name: &'static str, title: &'static str, algorithm: Algorithm) -> Scenario {
    Scenario {
        name,
        title,
        front: Side::H1Clear,
        back: Side::H1Clear,
        work: Work::Locked(algorithm),
    }
}

/// The scenarios of `intertie-bench map`.
pub(crate) const MAP: [Scenario; 2] = [
    Scenario {
        name: "map",
        title: "Mapping of a JSON body: ten plain paths",
        front: Side::H1Clear,
        back: Side::H1Clear,
        work: Work::Map,
    },
    Scenario {
        name: "map-computed",
        title: "Mapping of a JSON body: six plain paths, four computed fields",
        front: Side::H1Clear,
        back: Side::H1Clear,
        work: Work::Compute,
    },
];

/// The scenarios of `intertie-bench glu`.
pub(crate) const GLU: [Scenario; 3] = [
    Scenario {
        name: "straight",
        title: "Straight line: HTTP to RabbitMQ, checked, persistent and confirmed",
        front: Side::H1Clear,
        back: Side::H1Clear,
        work: Work::Enqueue,
    },
    Scenario {
        name: "latency",
        title: "Latency: RabbitMQ to a slow REST service",
        front: Side::H1Clear,
        back: Side::H1Clear,
        work: Work::Await,
    },
    Scenario {
        name: "complex",
        title: "Complex: HTTP to SQL, REST, SOAP, SQL and RabbitMQ, and a reply",
        front: Side::H1Clear,
        back: Side::H1Clear,
        work: Work::Orchestrate,
    },
];

/// The scenarios of `intertie-bench ussd`.
pub(crate) const USSD: [Scenario; 4] = [
    Scenario {
        name: "menu",
        title: "USSD menu: five screens, no back end",
        front: Side::H1Clear,
        back: Side::H1Clear,
        work: Work::Menu(Behind::Nothing),
    },
    Scenario {
        name: "menu-sessions",
        title: "USSD menu: sessions that stand open, and a start with all of them",
        front: Side::H1Clear,
        back: Side::H1Clear,
        work: Work::Sessions,
    },
    Scenario {
        name: "menu-complex",
        title: "USSD menu, SQL, REST, SOAP, SQL and RabbitMQ behind its last screen",
        front: Side::H1Clear,
        back: Side::H1Clear,
        work: Work::Menu(Behind::Orchestrate),
    },
    Scenario {
        name: "menu-latency",
        title: "USSD menu, three queues of RabbitMQ in turn, a slow REST service behind them",
        front: Side::H1Clear,
        back: Side::H1Clear,
        work: Work::Menu(Behind::Await),
    },
];

/// The scenarios of all suites.
pub(crate) fn all() -> impl Iterator<Item = &'static Scenario> {
    let integration = GLU.iter().chain(&USSD);
    HTTP.iter().chain(&JWT).chain(&MAP).chain(integration)
}

/// The scenario of this name.
pub(crate) fn find(name: &str) -> Option<&'static Scenario> {
    all().find(|scenario| scenario.name == name)
}

/// The names, for the command line.
pub(crate) fn names<const N: usize>(scenarios: &[Scenario; N]) -> [&'static str; N] {
    scenarios.each_ref().map(|scenario| scenario.name)
}

/// Those of some scenarios that are named; all of them when none is.
pub(crate) fn chosen(all: &'static [Scenario], names: &[String]) -> Vec<&'static Scenario> {
    let is_named = |it: &Scenario| names.iter().any(|name| name == it.name);
    let chosen = all.iter().filter(|it| names.is_empty() || is_named(it));
    chosen.collect()
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
    /// The binary under test without the conversion, the mapping or the lock, where a scenario has
    /// one: what that costs.
    Passthrough,
    /// Another build of Intertie, named in INTERTIE_BASELINE: what a change has cost.
    Baseline,
    /// A relay that copies bytes and reads nothing: the least that a proxy can cost.
    Floor,
    /// nginx.
    Nginx,
    /// HAProxy.
    HaProxy,
    /// Envoy.
    Envoy,
    /// Redpanda Connect, with a mapping in Bloblang.
    #[serde(rename = "redpanda-connect")]
    #[value(name = "redpanda-connect")]
    RedpandaConnect,
    /// Apache Camel, with a mapping in jq.
    Camel,
    /// No proxy: what stub and generator reach alone.
    Direct,
}

impl Contender for System {
    const INTERTIE: Self = Self::Intertie;

    fn name(self) -> &'static str {
        Self::name(self)
    }
}

impl System {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Intertie => "intertie",
            Self::Passthrough => "passthrough",
            Self::Baseline => "baseline",
            Self::Floor => "floor",
            Self::Nginx => "nginx",
            Self::HaProxy => "haproxy",
            Self::Envoy => "envoy",
            Self::RedpandaConnect => "redpanda-connect",
            Self::Camel => "camel",
            Self::Direct => "direct",
        }
    }

    /// What helps when it is not found.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Nginx => "put it into the path, or name its file in NGINX",
            Self::HaProxy => "put it into the path, or name its file in HAPROXY",
            Self::Envoy => "put it into the path, or name its file in ENVOY",
            Self::RedpandaConnect => {
                "build it (crates/lab/peers/redpanda-connect, for AMQP crates/lab/peers/benthos), \
                 and name its file in REDPANDA_CONNECT"
            }
            Self::Camel => "build it (crates/lab/peers/camel), and name its jar in CAMEL_JAR",
            Self::Baseline => "name its file in INTERTIE_BASELINE",
            Self::Intertie | Self::Passthrough | Self::Floor | Self::Direct => {
                "it is part of this program"
            }
        }
    }

    /// Whether it runs on a virtual machine that compiles what it finds busy.
    pub fn is_jvm(self) -> bool {
        self == Self::Camel
    }

    /// Why it has no part in a scenario, if it has none.
    pub fn refuses(self, scenario: &Scenario) -> Option<&'static str> {
        let is_mixed = scenario.front != scenario.back;
        if matches!(scenario.work, Work::Menu(_) | Work::Sessions) {
            return match self {
                Self::Intertie | Self::Baseline => None,
                _ => Some("has no menus"),
            };
        }
        if scenario.work.has_broker() {
            return match self {
                Self::Intertie | Self::Baseline | Self::Camel => None,
                Self::RedpandaConnect if scenario.work != Work::Orchestrate => None,
                Self::RedpandaConnect => Some("has no SOAP"),
                _ => Some("has no connection to brokers"),
            };
        }
        match self {
            Self::Intertie | Self::Baseline | Self::Direct => None,
            Self::Passthrough if scenario.work != Work::Relay => None,
            Self::Passthrough => Some("is what is measured here anyway"),
            Self::RedpandaConnect | Self::Camel if scenario.work.maps() => None,
            Self::RedpandaConnect | Self::Camel => Some("is set up for mappings only"),
            _ if scenario.work.maps() => Some("does not map JSON"),
            _ if scenario.work == Work::ToXml => Some("does not convert JSON to XML"),
            Self::Nginx if scenario.work.locked().is_some() => {
                Some("verifies no tokens in the version that is free")
            }
            Self::HaProxy if scenario.work == Work::Locked(Algorithm::EdDsa) => {
                Some("does not verify EdDSA")
            }
            Self::Floor if is_mixed => Some("copies bytes, and the two sides speak differently"),
            Self::Nginx if scenario.back.is_h2() => Some("has no HTTP/2 to its back ends"),
            Self::HaProxy | Self::Envoy if scenario.back == Side::H2Clear => {
                Some("is not set up for it")
            }
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
            let able = all().filter(|it| system.refuses(it).is_none());
            able.count()
        };
        let systems = [
            System::Intertie,
            System::Passthrough,
            System::Floor,
            System::Nginx,
            System::HaProxy,
            System::RedpandaConnect,
            System::Camel,
        ];
        assert_eq!(systems.map(count), [21, 7, 7, 4, 8, 4, 5]);
        assert_eq!(find("h2-h1").unwrap().back, Side::H1Tls);
        assert!(find("h3").is_none());
    }

    #[test]
    fn names_are_those_of_results_and_of_the_command_line() {
        use clap::ValueEnum;
        for system in System::value_variants() {
            let value = system.to_possible_value().unwrap();
            assert_eq!(value.get_name(), system.name());
            assert_eq!(serde_json::to_value(system).unwrap(), system.name());
        }
        assert_eq!(names(&MAP), ["map", "map-computed"]);
        assert_eq!(chosen(&MAP, &["map".to_owned()]).len(), 1);
        assert_eq!(chosen(&HTTP, &[]).len(), 9);
    }
}
