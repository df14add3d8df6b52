//! Real clients and real back ends, without the engine and with it between them: Node, Go, Java,
//! Python and curl ask Node, Go, nginx, Apache, lighttpd and Caddy. Each outcome, headers and what
//! the back end saw included, must be the same both ways, or differ as `explain` says. Each client
//! meets each back end, and each protocol of a client each protocol of each back end; `--full` asks
//! for every client with every back end in every protocol.
//!
//! `PEERS_PAIRS` chooses those whose name, as in `go-h1 -> nginx h2`, contains one of these texts,
//! and `PEERS_SCENARIOS` the scenarios by name; commas stand between.

mod backend;
mod client;
mod explain;
mod outcome;
mod scenario;
mod setup;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Instant;

use super::bench::Bench;
use super::report::Report;
use crate::command::Failure;
use backend::Backend;
use client::{Clients, Link, MODES, Mode};
use explain::Found;
use outcome::{Addresses, Difference, Outcome};
use scenario::Scenario;
use setup::Setup;
use table::{Cell, Table};

pub fn check(bench: &Bench, report: &mut Report) {
    if !bench.has_flows() {
        return report.add("peers", Ok("not asked: it has no flows".to_owned()));
    }
    let setup = match Setup::start(bench) {
        Ok(setup) => setup,
        Err(failure) => return report.add("peers", Err(failure)),
    };
    let mut peers = Peers {
        full: bench.extent.full,
        chosen: Chosen::read(),
        setup,
        table: Table::default(),
        natives: BTreeMap::new(),
    };
    let started = Instant::now();
    peers.small(report);
    let small = started.elapsed().as_secs();
    peers.large(bench.extent.size, report);
    let large = started.elapsed().as_secs() - small;
    println!("{}", peers.table.shown());
    println!("peers: {small} s for small requests, {large} s for large bodies");
    report.add("peers: the engine ends when told to", peers.setup.stop());
}

/// A client, a back end, and how the engine speaks to it.
#[derive(Clone, Copy)]
struct Pair {
    mode: Mode,
    /// An index into the back ends.
    backend: usize,
    to: Link,
}

/// What the environment chooses; all where it is silent.
struct Chosen {
    pairs: Vec<String>,
    scenarios: Vec<String>,
}

impl Chosen {
    fn read() -> Self {
        let list = |name| {
            let texts = std::env::var(name).unwrap_or_default();
            let texts = texts.split(',').filter(|it| !it.is_empty());
            texts.map(str::to_owned).collect()
        };
        Self {
            pairs: list("PEERS_PAIRS"),
            scenarios: list("PEERS_SCENARIOS"),
        }
    }

    fn has_pair(&self, name: &str) -> bool {
        self.pairs.is_empty() || self.pairs.iter().any(|it| name.contains(it))
    }

    fn has_scenario(&self, scenario: &Scenario) -> bool {
        self.scenarios.is_empty() || self.scenarios.iter().any(|it| it == scenario.name)
    }
}

struct Peers {
    full: bool,
    chosen: Chosen,
    setup: Setup,
    table: Table,
    /// What is known of back ends without the engine, by scenario.
    natives: BTreeMap<(usize, Link, &'static str), Outcome>,
}

impl Peers {
    /// All clients with all back ends, the protocols between engine and back end in turn.
    fn pairs(&self) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for link in Link::ALL {
            let modes: Vec<Mode> = MODES.into_iter().filter(|it| it.link == link).collect();
            let turns = match self.full {
                true => modes.len() * Link::ALL.len(),
                false => modes.len().max(Link::ALL.len()),
            };
            for backend in 0..self.setup.backends.len() {
                for turn in 0..turns {
                    let shift = if self.full {
                        turn / modes.len()
                    } else {
                        backend
                    };
                    let to = Link::ALL.into_iter().cycle().nth(turn + shift);
                    let mode = modes.iter().cycle().nth(turn);
                    if let (Some(mode), Some(to)) = (mode, to) {
                        let mode = *mode;
                        pairs.push(Pair { mode, backend, to });
                    }
                }
            }
        }
        pairs.retain(|it| self.chosen.has_pair(&self.title(*it)));
        pairs
    }

    /// The scenarios that are asked for.
    fn wanted(&self, scenarios: impl IntoIterator<Item = Scenario>) -> Vec<Scenario> {
        let scenarios = scenarios.into_iter();
        scenarios
            .filter(|it| self.chosen.has_scenario(it))
            .collect()
    }

    fn small(&mut self, report: &mut Report) {
        let scenarios = self.wanted(scenario::small());
        for pair in self.pairs() {
            let mut failures = Vec::new();
            for scenario in &scenarios {
                match self.compare(pair, scenario) {
                    Ok(cell) => {
                        failures.extend(cell.unexplained());
                        self.table
                            .add(pair.mode.name, &self.name(pair), scenario.name, cell);
                    }
                    Err(failure) => failures.push(format!("{}: {failure}", scenario.name)),
                }
            }
            let name = format!("peers {}", self.title(pair));
            report.add(&name, outcome_of(&failures, String::new()));
        }
    }

    /// The large bodies, in every pairing of protocols and back ends. They need no comparison while
    /// all is as it must be.
    fn large(&mut self, size: u64, report: &mut Report) {
        let scenarios = self.wanted(scenario::large(size));
        let mut seen = Vec::new();
        for pair in self.pairs() {
            let key = (pair.mode.link, pair.backend, pair.to);
            if !self.full && seen.contains(&key) {
                continue;
            }
            seen.push(key);
            let (mut failures, mut notes) = (Vec::new(), Vec::new());
            for scenario in &scenarios {
                let streams = self.backend(pair).is_some_and(Backend::streams_both_ways);
                if scenario.name == "echo" && !streams {
                    continue;
                }
                let started = Instant::now();
                match self.large_one(pair, scenario) {
                    Ok(cell) => {
                        failures.extend(cell.unexplained());
                        self.table
                            .add(pair.mode.name, &self.name(pair), scenario.name, cell);
                    }
                    Err(failure) => failures.push(format!("{}: {failure}", scenario.name)),
                }
                notes.push(format!(
                    "{} {:.1} s",
                    scenario.name,
                    started.elapsed().as_secs_f64()
                ));
            }
            let name = format!("peers large {}", self.title(pair));
            report.add(&name, outcome_of(&failures, notes.join(", ")));
        }
    }

    fn large_one(&mut self, pair: Pair, scenario: &Scenario) -> Result<Cell, Failure> {
        let proxied = self.proxied(pair, scenario)?;
        if proxied.contains_key("unsupported") {
            return Ok(Cell::unsupported());
        }
        match self.setup.check(scenario, &proxied) {
            Ok(()) => Ok(Cell::same()),
            Err(_) => self.compare(pair, scenario),
        }
    }

    /// Without the engine and with it.
    fn compare(&mut self, pair: Pair, scenario: &Scenario) -> Result<Cell, Failure> {
        let direct = self.direct(pair, scenario)?;
        if direct.contains_key("unsupported") {
            return Ok(Cell::unsupported());
        }
        let proxied = self.proxied(pair, scenario)?;
        let differences = self.differences(scenario, &direct, &proxied);
        let backend = self.name(pair);
        let native = match differences.is_empty() {
            true => Outcome::new(),
            false => self.native(pair, scenario)?,
        };
        let explained = differences.into_iter().map(|difference| {
            let found = Found {
                scenario: scenario.name,
                client: pair.mode.name,
                backend: &backend,
                difference: &difference,
                native: native.get(&difference.key).map(String::as_str),
            };
            let reason = explain::reason(&found);
            (difference, reason)
        });
        Ok(Cell::new(scenario.name, explained.collect()))
    }

    fn differences(
        &self,
        scenario: &Scenario,
        direct: &Outcome,
        proxied: &Outcome,
    ) -> Vec<Difference> {
        match self.setup.check(scenario, direct) {
            Ok(()) => outcome::differences(direct, proxied),
            Err(problem) => {
                let proxied_problem = self.setup.check(scenario, proxied).err();
                outcome::differences_alone((direct, problem), (proxied, proxied_problem))
            }
        }
    }

    /// What Go's client gets by the protocol that the engine speaks to the back end.
    fn native(&mut self, pair: Pair, scenario: &Scenario) -> Result<Outcome, Failure> {
        let key = (pair.backend, pair.to, scenario.name);
        if let Some(known) = self.natives.get(&key) {
            return Ok(known.clone());
        }
        let mode = MODES
            .into_iter()
            .find(|it| it.language == "go" && it.link == pair.to);
        let mode = mode.unwrap_or(pair.mode);
        let outcome = self.direct(Pair { mode, ..pair }, scenario)?;
        self.natives.insert(key, outcome.clone());
        Ok(outcome)
    }

    fn direct(&mut self, pair: Pair, scenario: &Scenario) -> Result<Outcome, Failure> {
        let url = self.backend(pair).map(|it| it.direct(pair.mode.link));
        self.ask(pair, scenario, &url.unwrap_or_default())
    }

    fn proxied(&mut self, pair: Pair, scenario: &Scenario) -> Result<Outcome, Failure> {
        let url = self
            .backend(pair)
            .map(|it| it.proxied(pair.mode.link, pair.to));
        self.ask(pair, scenario, &url.unwrap_or_default())
    }

    fn ask(&mut self, pair: Pair, scenario: &Scenario, url: &str) -> Result<Outcome, Failure> {
        let (line, seconds) = scenario.line(pair.mode.name, url);
        let Setup {
            clients, folder, ..
        } = &mut self.setup;
        let found = Clients::ask(clients, pair.mode.language, folder, &line, seconds)?;
        let backend = self
            .backend(pair)
            .map(Backend::addresses)
            .unwrap_or_default();
        let addresses = Addresses {
            asked: url.split("://").nth(1).unwrap_or_default(),
            backend: &backend,
        };
        Ok(outcome::normalize(scenario, found, addresses))
    }

    fn backend(&self, pair: Pair) -> Option<&Backend> {
        self.setup.backends.get(pair.backend)
    }

    fn title(&self, pair: Pair) -> String {
        format!("{} -> {}", pair.mode.name, self.name(pair))
    }

    fn name(&self, pair: Pair) -> String {
        let name = self.backend(pair).map_or("?", |it| it.name);
        format!("{name} {}", pair.to.name())
    }
}

fn outcome_of(failures: &[String], note: String) -> super::report::Outcome {
    match failures.is_empty() {
        true => Ok(note),
        false => Err(Failure::new(failures.join("\n"))),
    }
}
