//! A run: cases, rounds in which the systems take turns, and results that are written as they come.

use std::fs;
use std::io::{self, Write};
use std::time::Duration;

use anyhow::Context;

use super::case::{Case, Feed};
use super::results::{Facts, Figures, LeftOut, Results, Row, SUITE, warnings};
use super::sample::Bench;
use super::system::System;
use super::{StreamArgs, table};
use crate::bench::folder::Folder;
use crate::bench::machine;
use crate::bench::process::{self, Cores};
use crate::bench::progress::Progress;
use crate::bench::results::{Method, RunFacts};
use crate::bench::system::Programs;
use crate::bench::table::print_end;

/// The part of a core's time that others may use in a sample.
const FOREIGN_MAX: f64 = 0.08;
/// How often a spoiled sample is taken again.
const REPEATS_MAX: usize = 2;
/// Files of a process beside its connections.
const FILES_OTHER: u64 = 200;

/// Measures all cases. False when Intertie was not measured somewhere, or did something wrong.
///
/// # Errors
/// When the machine has too few cores, or files cannot be written.
pub(super) fn run(
    args: &StreamArgs,
    programs: Programs,
    cases: Vec<Case>,
    systems: Vec<System>,
    missing: Vec<System>,
) -> anyhow::Result<bool> {
    let cores = Cores::of_machine()?;
    let files = process::allow_files()?;
    let folder = Folder::new("intertie-streams")?;
    let facts = systems.iter().map(|system| Facts {
        system: *system,
        version: system.version(&programs),
        runs: Vec::new(),
    });
    let seconds = Duration::try_from_secs_f64(args.seconds.max(0.1))?;
    let results = Results {
        suite: SUITE.to_owned(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        started: machine::now(),
        machine: machine::facts(&cores),
        method: Method {
            rounds: usize::from(args.rounds),
            seconds: seconds.as_secs_f64(),
            warm_up: args.warm_up.as_secs_f64(),
            jvm_warm_up: None,
            foreign_max: FOREIGN_MAX,
        },
        systems: facts.collect(),
        rows: Vec::new(),
        left_out: Vec::new(),
    };
    process::pin(&cores.load)?;
    let able = |case: &Case| {
        systems
            .iter()
            .filter(|it| it.refuses(case).is_none())
            .count()
    };
    let samples = cases.iter().map(able).sum::<usize>() * usize::from(args.rounds);
    let mut run = Run {
        args,
        bench: Bench {
            programs,
            cores,
            folder: folder.to_path_buf(),
            window: seconds,
            warm_up: args.warm_up,
            files,
        },
        results,
        progress: Progress::new(samples),
    };
    for case in &cases {
        run.leave_out(case, &systems, &missing);
        run.case(case, &systems)?;
    }
    print_end(left_out(&run.results), &args.out)?;
    Ok(run.is_good())
}

/// Scenario, system and reason of each that was left out.
fn left_out(results: &Results) -> impl Iterator<Item = [&str; 3]> {
    let left_out = results.left_out.iter();
    left_out.map(|it| [it.scenario.as_str(), it.system.name(), it.reason.as_str()])
}

/// A run under way.
struct Run<'a> {
    args: &'a StreamArgs,
    bench: Bench,
    results: Results,
    progress: Progress,
}

/// The samples of one system in one case.
struct Series {
    system: System,
    rounds: Vec<Figures>,
    repeated: usize,
    has_failed: bool,
}

impl Run<'_> {
    fn leave_out(&mut self, case: &Case, systems: &[System], missing: &[System]) {
        let missing = missing
            .iter()
            .filter(|system| system.refuses(case).is_none());
        let missing = missing.map(|it| (*it, format!("not found: {}", it.advice())));
        let refused = systems
            .iter()
            .filter_map(|it| Some((*it, it.refuses(case)?.to_owned())));
        for (system, reason) in missing.chain(refused) {
            self.left_out(case, system, reason, false);
        }
    }

    fn left_out(&mut self, case: &Case, system: System, reason: String, is_failure: bool) {
        let left_out = LeftOut {
            scenario: case.scenario.clone(),
            system,
            reason,
            is_failure,
        };
        if !self.results.left_out.contains(&left_out) {
            self.results.left_out.push(left_out);
        }
    }

    fn case(&mut self, case: &Case, systems: &[System]) -> anyhow::Result<()> {
        self.check_files(case)?;
        let able = systems.iter().filter(|it| it.refuses(case).is_none());
        let mut series: Vec<Series> = able
            .map(|system| Series {
                system: *system,
                rounds: Vec::new(),
                repeated: 0,
                has_failed: false,
            })
            .collect();
        for _ in 0..self.args.rounds {
            for series in series.iter_mut().filter(|series| !series.has_failed) {
                self.turn(case, series);
            }
        }
        let rows = series.into_iter().filter(|it| !it.rounds.is_empty());
        let rows: Vec<Row> = rows.map(|series| row(case, series)).collect();
        self.progress.clear();
        table::print_case(case, &rows)?;
        self.results.rows.extend(rows);
        self.write()
    }

    fn write(&self) -> anyhow::Result<()> {
        let folder = &self.args.out;
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let text = serde_json::to_string_pretty(&self.results)?;
        fs::write(folder.join("results.json"), text)?;
        super::write_report(folder, &self.results)
    }

    /// Both ends of a proxied connection are files of the proxy.
    fn check_files(&self, case: &Case) -> anyhow::Result<()> {
        let each = if case.feed == Feed::Echo { 2 } else { 1 };
        let needed = (case.users + case.stalled + case.topics) as u64 * each + FILES_OTHER;
        anyhow::ensure!(
            needed <= self.bench.files,
            "{} connections need {needed} open files, and this machine allows {} (ulimit -Hn)",
            case.users + case.stalled,
            self.bench.files
        );
        Ok(())
    }

    /// Takes a sample, again when others have used too much of a core meanwhile.
    fn turn(&mut self, case: &Case, series: &mut Series) {
        let system = series.system;
        let what = format!("{} {}, {}", case.scenario, system.name(), case.label());
        self.progress.next(&what);
        for repeat in 0..=REPEATS_MAX {
            let (figures, facts) = match self.bench.sample(system, case) {
                Ok(sample) => sample,
                Err(error) => {
                    series.has_failed = true;
                    return self.failed(case, system, &error);
                }
            };
            self.keep_facts(system, facts);
            if figures.foreign <= FOREIGN_MAX || repeat == REPEATS_MAX {
                series.rounds.push(figures);
                return;
            }
            series.repeated += 1;
        }
    }

    fn failed(&mut self, case: &Case, system: System, error: &anyhow::Error) {
        self.progress.clear();
        // Who does not listen is not told.
        let _ = writeln!(
            io::stderr(),
            "{} in {}, {}: {error:#}",
            system.name(),
            case.scenario,
            case.label()
        );
        let reason = format!("{}: {}", case.label(), error.root_cause());
        self.left_out(case, system, reason, true);
    }

    /// Keeps the first command line and configuration of a system in each scenario.
    fn keep_facts(&mut self, system: System, mut facts: RunFacts) {
        let folder = self.bench.folder.display().to_string();
        facts.config = facts.config.replace(&folder, "FOLDER");
        facts.command = facts.command.replace(&folder, "FOLDER");
        let of_system = self.results.systems.iter_mut();
        for known in of_system.filter(|known| known.system == system) {
            if !known.runs.iter().any(|run| run.scenario == facts.scenario) {
                known.runs.push(facts.clone());
            }
        }
    }

    fn is_good(&self) -> bool {
        let is_ours = |system: System| system == System::Intertie;
        let is_bad = |row: &Row| is_ours(row.system) && !row.is_good();
        let failed = |it: &LeftOut| is_ours(it.system) && it.is_failure;
        !self.results.rows.iter().any(is_bad) && !self.results.left_out.iter().any(failed)
    }
}

fn row(case: &Case, series: Series) -> Row {
    let median = Figures::median(&series.rounds);
    Row {
        case: case.clone(),
        system: series.system,
        warnings: warnings(case, &median, FOREIGN_MAX),
        median,
        rounds: series.rounds,
        repeated: series.repeated,
    }
}
