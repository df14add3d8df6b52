//! The flows of the suite in the languages of the systems, and how each system is started.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;

use super::super::results::{Case, Variant};
use super::super::scenario::{Scenario, System, Work};
use super::super::system::{self, Programs, Setup};
use super::super::template::Values;
use super::parts::Parts;
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
    pub parts: &'a Parts,
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
    Some(match (system, work) {
        (System::Intertie, Work::Enqueue) => ("flow.yaml", peer!("intertie-straight.yaml")),
        (System::Intertie, Work::Await) => ("flow.yaml", peer!("intertie-latency.yaml")),
        (System::Intertie, Work::Orchestrate) => ("flow.yaml", peer!("intertie-complex.yaml")),
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

/// Writes what a system is configured with, and says how to start it. The file that the address is
/// looked for at is `address`.
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
    if place.parts.soap.is_some() {
        fs::write(place.folder.join("stock.wsdl"), WSDL)?;
    }
    let config = values(place).fill(template)?;
    fs::write(place.folder.join("order.schema.json"), SCHEMA)?;
    system::start_with(system, (name, config), place.listen, place.folder, programs)
}

/// What the straight line checks.
const SCHEMA: &str = include_str!("../../../peers/glu/order.schema.json");

fn values(place: &Place<'_>) -> Values {
    let in_flight = place.case.streams.users();
    let count = place.queues.len().max(1);
    let mut values = Values::default();
    values
        .text("listen", place.listen)
        .text("listen_port", place.listen.port())
        .text("backend", place.backend)
        .text("broker", place.parts.broker.url())
        .text("broker_port", place.parts.broker.address.port())
        .text("folder", place.folder.display())
        .text("schema", SCHEMA.trim_end())
        .text("users", in_flight)
        .text("in_flight", in_flight)
        .text("prefetch", in_flight.div_ceil(count))
        .flag("two", count > 1)
        .flag("three", count > 2)
        .flag("detached", place.case.variant == Variant::Detached);
    if let Some((_, address)) = &place.parts.soap {
        values.text("soap", address);
    }
    if let Some(database) = &place.parts.database {
        values.text("database", database.url());
        values.text("database_address", database.address);
    }
    let none = String::new();
    for (index, name) in NAMES.into_iter().enumerate() {
        values.text(name, place.queues.get(index).unwrap_or(&none));
    }
    values
}
