//! The flows of the suite in the languages of the systems, and how each system is started.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;

use super::super::results::{Case, Variant};
use super::super::scenario::{Behind, Scenario, System, Work};
use super::super::system::{self, Programs, Setup};
use super::super::template::Values;
use super::parts::Addresses;
use crate::stub::WSDL;

/// The most queues of a case.
const QUEUES_MAX: usize = 3;
/// Names of the queues in templates.
const NAMES: [&str; QUEUES_MAX] = ["queue", "queue_2", "queue_3"];

/// What a system is set up for.
pub(super) struct Place<'a> {
    pub scenario: &'a Scenario,
    pub case: &'a Case,
    pub listen: SocketAddr,
    /// The REST service.
    pub backend: SocketAddr,
    pub addresses: Addresses,
    pub queues: &'a [String],
    /// A folder of the system's own.
    pub folder: &'a Path,
}

/// The name of a configuration's file, and its template.
fn template(system: System, work: Work) -> Option<(&'static str, &'static str)> {
    macro_rules! peer {
        ($name:literal) => {
            include_str!(concat!("../../../peers/glu/", $name))
        };
    }
    macro_rules! menu {
        ($name:literal) => {
            include_str!(concat!("../../../peers/ussd/", $name))
        };
    }
    // Both builds do the same work.
    let system = match system {
        System::Baseline => System::Intertie,
        other => other,
    };
    Some(match (system, work) {
        (System::Intertie, Work::Enqueue) => ("flow.yaml", peer!("intertie-straight.yaml")),
        (System::Intertie, Work::Await) => ("flow.yaml", peer!("intertie-latency.yaml")),
        (System::Intertie, Work::Orchestrate) => ("flow.yaml", peer!("intertie-complex.yaml")),
        (System::Intertie, Work::Menu(Behind::Orchestrate)) => ("flow.yaml", menu!("complex.yaml")),
        (System::Intertie, Work::Menu(Behind::Await)) => ("flow.yaml", menu!("latency.yaml")),
        (System::Camel, Work::Enqueue) => ("routes.yaml", peer!("camel-straight.yaml")),
        (System::Camel, Work::Await) => ("routes.yaml", peer!("camel-latency.yaml")),
        (System::Camel, Work::Orchestrate) => ("routes.yaml", peer!("camel-complex.yaml")),
        (System::RedpandaConnect, Work::Enqueue) => {
            ("config.yaml", peer!("redpanda-connect-straight.yaml"))
        }
        (System::RedpandaConnect, Work::Await) => {
            ("config.yaml", peer!("redpanda-connect-latency.yaml"))
        }
        _ => return None,
    })
}

/// Writes what a system is configured with, and says how to start it.
///
/// # Errors
/// When the program is not there or files cannot be written.
pub(super) fn set_up(
    system: System,
    place: &Place<'_>,
    programs: &Programs,
) -> anyhow::Result<Setup> {
    let found = template(system, place.scenario.work);
    let (name, template) = found.with_context(|| {
        let (system, scenario) = (system.name(), place.scenario.name);
        format!("{system} has no configuration for {scenario}")
    })?;
    fs::create_dir_all(place.folder)?;
    // What configurations name.
    fs::write(place.folder.join("stock.wsdl"), WSDL)?;
    fs::write(place.folder.join("order.schema.json"), SCHEMA)?;
    let config = values(place).fill(template)?;
    system::start_with(system, (name, config), place.listen, place.folder, programs)
}

/// What the straight line checks.
const SCHEMA: &str = include_str!("../../../peers/glu/order.schema.json");

fn values(place: &Place<'_>) -> Values {
    let in_flight = place.case.streams.users();
    let count = place.queues.len().max(1);
    // Not more of all queues together than may be in flight.
    let each = (in_flight / count).max(1);
    let mut values = Values::default();
    values
        .text("listen", place.listen)
        .text("backend", place.backend)
        .text("broker", place.addresses.broker_url())
        .text("folder", place.folder.display())
        .text("schema", SCHEMA.trim_end())
        .text("users", in_flight)
        .text("in_flight", in_flight)
        .text("each", each)
        // The broker has to share its core: it sends in bursts.
        .text("prefetch", (4 * each).min(usize::from(u16::MAX)))
        .flag("two", count > 1)
        .flag("three", count > 2)
        .flag("detached", place.case.variant == Variant::Detached);
    if let Some(address) = place.addresses.soap {
        values.text("soap", address);
    }
    if let Some(address) = place.addresses.database {
        values.text("database_address", address);
    }
    if let Some(url) = place.addresses.database_url() {
        values.text("database", url);
    }
    let none = String::new();
    for (index, name) in NAMES.into_iter().enumerate() {
        values.text(name, place.queues.get(index).unwrap_or(&none));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::super::super::results::testing::row;
    use super::super::super::scenario::GLU;
    use super::*;

    fn filled(system: System, scenario: &Scenario, variant: Variant) -> Option<String> {
        let (_, template) = template(system, scenario.work)?;
        let case = Case {
            scenario: scenario.name.to_owned(),
            variant,
            ..row(system, &[]).case
        };
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let count = match variant {
            Variant::Queues(count) => count,
            _ => 1,
        };
        let queues: Vec<String> = (1..=count).map(|queue| format!("q-{queue}")).collect();
        let place = Place {
            scenario,
            case: &case,
            listen: address(1),
            backend: address(2),
            addresses: Addresses {
                broker: address(3),
                database: Some(address(4)),
                soap: Some(address(5)),
            },
            queues: &queues,
            folder: Path::new("folder"),
        };
        Some(values(&place).fill(template).unwrap())
    }

    #[test]
    fn all_configurations_can_be_filled() {
        for scenario in &GLU {
            for system in [System::Intertie, System::Camel, System::RedpandaConnect] {
                for variant in [Variant::Plain, Variant::Detached, Variant::Queues(3)] {
                    let text = filled(system, scenario, variant);
                    let is_able = system.refuses(scenario).is_none();
                    assert_eq!(
                        text.is_some(),
                        is_able,
                        "{} {}",
                        system.name(),
                        scenario.name
                    );
                    let Some(text) = text else { continue };
                    assert!(text.contains("127.0.0.1:1"), "{text}");
                    assert!(text.contains("127.0.0.1:3"), "{text}");
                    assert!(
                        !text.lines().any(|line| line.starts_with(['?', '!'])),
                        "{text}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_baseline_gets_the_configuration_of_intertie() {
        for scenario in &GLU {
            let [new, old] = [System::Intertie, System::Baseline]
                .map(|system| filled(system, scenario, Variant::Plain));
            assert!(new.is_some() && new == old, "{}", scenario.name);
            assert_eq!(System::Baseline.refuses(scenario), None);
        }
    }

    #[test]
    fn variants_change_what_they_should() {
        let latency =
            |count: usize| filled(System::Intertie, &GLU[1], Variant::Queues(count)).unwrap();
        let one = latency(1);
        assert!(
            one.contains("queue: q-1, concurrent: 100, prefetch: 400"),
            "{one}"
        );
        assert!(!one.contains("process-2"), "{one}");
        let three = latency(3);
        assert!(
            three.contains("queue: q-3, concurrent: 33, prefetch: 132"),
            "{three}"
        );
        let complex = |variant: Variant| filled(System::Intertie, &GLU[2], variant).unwrap();
        let plain = complex(Variant::Plain);
        assert!(plain.contains("  - publish: { to: mq"), "{plain}");
        assert!(plain.contains("\"${ .customer }\""), "{plain}");
        let detached = complex(Variant::Detached);
        assert!(detached.contains("  - wiretap: {"), "{detached}");
        assert!(!detached.contains("  - publish: {"), "{detached}");
    }
}
