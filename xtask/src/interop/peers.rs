//! Real clients and real back ends, without the engine and with it between them: Node, Go, Java,
//! Python and curl ask Node, Go, nginx, Apache, lighttpd and Caddy. Each outcome, headers and what
//! the back end saw included, must be the same both ways, or differ as `explain` says. Each client
//! meets each back end, and each protocol of a client each protocol of each back end; `--full` asks
//! for every client with every back end in every protocol.
//!
//! `--part 2/6` does the second of six parts of the pairs; the table shows all parts that have been
//! run, and is kept in `peers` in the target folder, from where `--summary` shows it again, by the
//! explanations of that time. A whole run, at once or in parts, also fails when a row of `explain`
//! was not needed.
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
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::bench::{Bench, Extent};
use super::report::Report;
use crate::command::{Failure, target};
use backend::Backend;
use client::{Clients, Link, MODES, Mode};
use outcome::{Addresses, Difference, Outcome};
use scenario::Scenario;
use setup::Setup;
use table::{Cell, Noted, Table};

pub fn check(bench: &Bench, report: &mut Report) {
    if !bench.has_flows() {
        return report.add("peers", Ok("not asked: it has no flows".to_owned()));
    }
    let setup = match Setup::start(bench) {
        Ok(setup) => setup,
        Err(failure) => return report.add("peers", Err(failure)),
    };
    let chosen = Chosen::read();
    let kept = match Kept::new(&bench.root, bench.extent, &chosen) {
        Ok(kept) => chosen.pairs.is_empty().then_some(kept),
        Err(failure) => return report.add("peers", Err(failure)),
    };
    let mut peers = Peers {
        extent: bench.extent,
        chosen,
        kept,
        setup,
        table: Table::default(),
        natives: BTreeMap::new(),
    };
    let started = Instant::now();
    peers.small(report);
    let small = started.elapsed().as_secs();
    peers.large(bench.extent.size, report);
    let large = started.elapsed().as_secs() - small;
    println!("peers: {small} s for small requests, {large} s for large bodies");
    report.add("peers: the engine ends when told to", peers.setup.stop());
    peers.table.end();
    let shown = match &peers.kept {
        Some(kept) => kept
            .write(&peers.table)
            .and_then(|()| kept.conclude(report)),
        None => {
            println!("{}", peers.table.shown());
            Ok(())
        }
    };
    if let Err(failure) = shown {
        report.add("peers: the table", Err(failure));
    }
}

/// Shows the tables that runs have kept.
pub fn summary(root: &Path, extent: Extent) -> Result<(), Failure> {
    let mut report = Report::default();
    Kept::new(root, extent, &Chosen::read())?.conclude(&mut report)?;
    report.finish()
}

/// The tables of all parts of a run, in files of the target folder.
struct Kept {
    folder: PathBuf,
    name: String,
    extent: Extent,
    has_all_scenarios: bool,
}

impl Kept {
    fn new(root: &Path, extent: Extent, chosen: &Chosen) -> Result<Self, Failure> {
        let mut name = vec![extent.size.to_string()];
        name.extend(chosen.scenarios.iter().cloned());
        if extent.full {
            name.push("full".to_owned());
        }
        Ok(Self {
            folder: target(root)?.join("peers"),
            name: name.join("-").replace(' ', "_"),
            extent,
            has_all_scenarios: chosen.scenarios.is_empty(),
        })
    }

    fn file(&self, part: usize) -> PathBuf {
        let (name, count) = (&self.name, self.extent.part.1);
        self.folder.join(format!("{name}-{part}-of-{count}.tsv"))
    }

    fn write(&self, table: &Table) -> Result<(), Failure> {
        fs::create_dir_all(&self.folder)?;
        Ok(fs::write(self.file(self.extent.part.0), table.lines())?)
    }

    /// Shows what all parts have found. Of a whole run each row of the explanations must have been
    /// needed.
    fn conclude(&self, report: &mut Report) -> Result<(), Failure> {
        let mut table = Table::default();
        let count = self.extent.part.1;
        let files = (1..=count).map(|part| self.file(part));
        for file in files.filter(|file| file.is_file()) {
            let wrong = || Failure::new(format!("{} is no table", file.display()));
            table.read(&fs::read_to_string(&file)?).ok_or_else(wrong)?;
        }
        println!("{}", table.shown());
        let ended = table.ended();
        let name = format!("peers: all is explained in {ended} of {count} parts");
        report.add(&name, outcome_of(&table.unexplained(), String::new()));
        if ended == count && self.has_all_scenarios {
            let unused = explain::unused(&table.explained_by());
            let outcome = outcome_of(&unused, String::new());
            report.add("peers: every explanation is needed", outcome);
        }
        Ok(())
    }
}

/// The most KiB that the engine may hold while a large body goes through it.
const MEMORY_MAX: u64 = 64 * 1024;

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
    extent: Extent,
    chosen: Chosen,
    /// Where the table is kept, unless only some pairs are asked for.
    kept: Option<Kept>,
    setup: Setup,
    table: Table,
    /// What is known of back ends without the engine, by scenario.
    natives: BTreeMap<(usize, Link, &'static str), Outcome>,
}

impl Peers {
    /// All clients with all back ends, the protocols between engine and back end in turn.
    fn all_pairs(&self) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for link in Link::ALL {
            let modes: Vec<Mode> = MODES.into_iter().filter(|it| it.link == link).collect();
            let turns = match self.extent.full {
                true => modes.len() * Link::ALL.len(),
                false => modes.len().max(Link::ALL.len()),
            };
            for backend in 0..self.setup.backends.len() {
                for turn in 0..turns {
                    let shift = if self.extent.full {
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
        pairs
    }

    /// The pairs that are asked for by name.
    fn chosen_pairs(&self) -> Vec<Pair> {
        let mut pairs = self.all_pairs();
        pairs.retain(|it| self.chosen.has_pair(&self.title(*it)));
        pairs
    }

    /// Of each pairing of protocols and back ends the first pair.
    fn pairings(&self) -> Vec<Pair> {
        let mut seen = Vec::new();
        let mut pairs = self.chosen_pairs();
        pairs.retain(|pair| {
            let key = (pair.mode.link, pair.backend, pair.to);
            let is_new = !seen.contains(&key);
            seen.push(key);
            is_new || self.extent.full
        });
        pairs
    }

    /// The part of the pairs that is asked for.
    fn part(&self, pairs: Vec<Pair>) -> Vec<Pair> {
        let (part, count) = self.extent.part;
        pairs.into_iter().skip(part - 1).step_by(count).collect()
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
        for pair in self.part(self.chosen_pairs()) {
            let mut failures = Vec::new();
            for scenario in &scenarios {
                match self.compare(pair, scenario) {
                    Ok(cell) => {
                        failures.extend(cell.unexplained());
                        self.table.add(cell);
                    }
                    Err(failure) => failures.push(format!("{}: {failure}", scenario.name)),
                }
            }
            let name = format!("peers {}", self.title(pair));
            self.add(report, &name, &failures, String::new());
        }
    }

    /// Reports a pair, and keeps the table: a run that is stopped has its beginning.
    fn add(&self, report: &mut Report, name: &str, failures: &[String], note: String) {
        let kept = self.kept.as_ref().map(|kept| kept.write(&self.table));
        let outcome = outcome_of(failures, note);
        report.add(name, kept.unwrap_or(Ok(())).and(outcome));
    }

    /// The large bodies, in every pairing of protocols and back ends. They need no comparison while
    /// all is as it must be.
    fn large(&mut self, size: u64, report: &mut Report) {
        let scenarios = self.wanted(scenario::large(size));
        for pair in self.part(self.pairings()) {
            let (mut failures, mut notes) = (Vec::new(), Vec::new());
            for scenario in &scenarios {
                let streams = self.backend(pair).is_some_and(Backend::streams_both_ways);
                if scenario.name == "echo" && !streams {
                    continue;
                }
                match self.large_measured(pair, scenario) {
                    Ok((found, note)) => {
                        failures.extend(found);
                        notes.push(format!("{} {note}", scenario.name));
                    }
                    Err(failure) => failures.push(format!("{}: {failure}", scenario.name)),
                }
            }
            let name = format!("peers large {}", self.title(pair));
            self.add(report, &name, &failures, notes.join(", "));
        }
    }

    /// What is wrong with a large body, and how long it took and what the engine held meanwhile.
    fn large_measured(
        &mut self,
        pair: Pair,
        scenario: &Scenario,
    ) -> Result<(Vec<String>, String), Failure> {
        self.setup.forget_peak()?;
        let started = Instant::now();
        let cell = self.large_one(pair, scenario)?;
        let seconds = started.elapsed().as_secs_f64();
        let peak = self.setup.peak_memory()?;
        let mut failures = cell.unexplained();
        if peak > MEMORY_MAX {
            failures.push(format!("{}: the engine held {peak} KiB", scenario.name));
        }
        self.table.note_peak(scenario.name, peak, &self.title(pair));
        self.table.add(cell);
        Ok((failures, format!("{seconds:.1} s {} MiB", peak / 1024)))
    }

    fn large_one(&mut self, pair: Pair, scenario: &Scenario) -> Result<Cell, Failure> {
        let proxied = self.proxied(pair, scenario)?;
        if proxied.contains_key("unsupported") {
            return Ok(self.unsupported(pair, scenario));
        }
        if self.setup.check(scenario, &proxied).is_ok() {
            return Ok(self.same(pair, scenario));
        }
        let direct = self.direct(pair, scenario)?;
        self.cell(pair, scenario, &direct, &proxied)
    }

    /// Without the engine and with it.
    fn compare(&mut self, pair: Pair, scenario: &Scenario) -> Result<Cell, Failure> {
        let direct = self.direct(pair, scenario)?;
        if direct.contains_key("unsupported") {
            return Ok(self.unsupported(pair, scenario));
        }
        let proxied = self.proxied(pair, scenario)?;
        self.cell(pair, scenario, &direct, &proxied)
    }

    fn cell(
        &mut self,
        pair: Pair,
        scenario: &Scenario,
        direct: &Outcome,
        proxied: &Outcome,
    ) -> Result<Cell, Failure> {
        let differences = self.differences(scenario, direct, proxied);
        let native = match differences.is_empty() {
            true => Outcome::new(),
            false => self.native(pair, scenario)?,
        };
        let noted = |difference: Difference| Noted {
            native: native.get(&difference.key).cloned(),
            difference,
        };
        Ok(Cell {
            differences: differences.into_iter().map(noted).collect(),
            ..self.same(pair, scenario)
        })
    }

    /// A cell without differences.
    fn same(&self, pair: Pair, scenario: &Scenario) -> Cell {
        Cell {
            backend: self.name(pair),
            client: pair.mode.name.to_owned(),
            scenario: scenario.name.to_owned(),
            ..Cell::default()
        }
    }

    fn unsupported(&self, pair: Pair, scenario: &Scenario) -> Cell {
        Cell {
            is_unsupported: true,
            ..self.same(pair, scenario)
        }
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
