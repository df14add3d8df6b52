//! A run: cases, rounds in which the systems take turns, and results that are written as they come.

use std::io::{self, Write};
use std::time::Duration;

use super::folder::Folder;
use super::glu::Parts;
use super::plan::{Part, Plan};
use super::process::{self, Cores};
use super::progress::Progress;
use super::results::{Case, Figures, LeftOut, Method, Results, Row, RunFacts, SystemFacts, warn};
use super::sample::{Bench, Stubs};
use super::scenario::{Scenario, System, Work};
use super::system::Programs;
use super::{machine, table};
use crate::pki::Identity;

/// The part of a core's time that others may use in a sample.
const FOREIGN_MAX: f64 = 0.08;
/// How often a spoiled sample is taken again.
const REPEATS_MAX: usize = 3;
/// A sample of this length is taken once.
const LONG: Duration = Duration::from_secs(60);
/// A user needs a file in the generator and in the stub, and two in the proxy.
const FILES_EACH: u64 = 2;

/// Measures everything that a plan has. False when Intertie could not be measured
/// somewhere, or when a reply of it was wrong.
pub(super) fn run(plan: Plan, programs: Programs) -> anyhow::Result<bool> {
    let cores = Cores::of_machine()?;
    let files = process::allow_files()?;
    let folder = Folder::new("intertie-bench")?;
    let results = empty(&plan, &programs, &cores);
    process::pin(&cores.load)?;
    let parts = parts(&plan, &folder, &programs, &cores)?;
    let bench = Bench {
        identity: Identity::make(&folder)?,
        folder: folder.to_path_buf(),
        window: plan.options.window(),
        warm_up: plan.options.warm_up(),
        jvm_warm_up: plan.jvm_warm_up,
        programs,
        cores,
        parts,
    };
    let mut run = Run {
        plan: &plan,
        bench,
        results,
        progress: Progress::new(samples(&plan)),
    };
    for part in &plan.parts {
        run.leave_out(part.scenario);
        for case in &part.cases {
            check_files(case, files)?;
            run.case(part.scenario, case)?;
        }
    }
    table::print_end(left_out(&run.results), &plan.options.out)?;
    Ok(run.is_good())
}

/// Broker and database, when a scenario has them.
fn parts(
    plan: &Plan,
    folder: &Folder,
    programs: &Programs,
    cores: &Cores,
) -> anyhow::Result<Option<Parts>> {
    let works = || plan.parts.iter().map(|part| part.scenario.work);
    if !works().any(Work::has_broker) {
        return Ok(None);
    }
    let is_complex = works().any(|work| work == Work::Orchestrate);
    Parts::start(folder, cores, &programs.own, is_complex).map(Some)
}

fn check_files(case: &Case, files: u64) -> anyhow::Result<()> {
    let needed = case.streams.users() as u64 * FILES_EACH + 100;
    anyhow::ensure!(
        needed <= files,
        "{} users need {needed} open files, and this machine allows {files} (ulimit -Hn)",
        case.streams.users()
    );
    Ok(())
}

fn samples(plan: &Plan) -> usize {
    let of = |part: &Part| {
        let systems = plan.systems.iter();
        let able = systems.filter(|it| it.refuses(part.scenario).is_none());
        let rounds = able.map(|system| plan.options.rounds_of(*system));
        rounds.sum::<usize>() * part.cases.len()
    };
    plan.parts.iter().map(of).sum()
}

fn empty(plan: &Plan, programs: &Programs, cores: &Cores) -> Results {
    let has_jvm = plan.systems.iter().any(|system| system.is_jvm());
    let facts = plan.systems.iter().map(|system| SystemFacts {
        system: *system,
        version: programs.version(*system),
        runs: Vec::new(),
    });
    Results {
        suite: plan.suite.to_owned(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        started: machine::now(),
        machine: machine::facts(cores),
        method: Method {
            rounds: plan.options.rounds(),
            seconds: plan.options.window().as_secs_f64(),
            warm_up: plan.options.warm_up().as_secs_f64(),
            jvm_warm_up: has_jvm.then_some(plan.jvm_warm_up.as_secs_f64()),
            foreign_max: FOREIGN_MAX,
        },
        systems: facts.collect(),
        rows: Vec::new(),
        left_out: Vec::new(),
    }
}

/// Scenario, system and reason of each that was left out.
fn left_out(results: &Results) -> impl Iterator<Item = [&str; 3]> {
    let left_out = results.left_out.iter();
    left_out.map(|it| [it.scenario.as_str(), it.system.name(), it.reason.as_str()])
}

/// A run under way.
struct Run<'a> {
    plan: &'a Plan,
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
    fn leave_out(&mut self, scenario: &Scenario) {
        for (system, reason) in &self.plan.missing {
            self.results.left_out.push(LeftOut {
                scenario: scenario.name.to_owned(),
                system: *system,
                reason: reason.clone(),
                is_failure: false,
            });
        }
        for system in &self.plan.systems {
            if *system == System::Passthrough {
                continue;
            }
            if let Some(reason) = system.refuses(scenario) {
                self.results.left_out.push(LeftOut {
                    scenario: scenario.name.to_owned(),
                    system: *system,
                    reason: reason.to_owned(),
                    is_failure: false,
                });
            }
        }
    }

    fn case(&mut self, scenario: &Scenario, case: &Case) -> anyhow::Result<()> {
        let stubs = self.bench.stubs(scenario, case)?;
        let systems = self.plan.systems.iter();
        let able = systems.filter(|it| it.refuses(scenario).is_none());
        let mut series: Vec<Series> = able
            .map(|system| Series {
                system: *system,
                rounds: Vec::new(),
                repeated: 0,
                has_failed: false,
            })
            .collect();
        for round in 0..self.plan.options.rounds() {
            for series in &mut series {
                let turns = self.plan.options.rounds_of(series.system);
                if round < turns && !series.has_failed {
                    self.turn(scenario, case, &stubs, series);
                }
            }
        }
        let rows = series.into_iter().filter(|it| !it.rounds.is_empty());
        let mut rows: Vec<Row> = rows.map(|series| row(case, series)).collect();
        warn(&mut rows, FOREIGN_MAX);
        self.progress.clear();
        table::print_case(scenario, case, &rows)?;
        self.results.rows.extend(rows);
        super::write(&self.plan.options.out, &self.results)
    }

    /// Takes a sample, again when others have used too much of a core meanwhile.
    fn turn(&mut self, scenario: &Scenario, case: &Case, stubs: &Stubs, series: &mut Series) {
        let system = series.system;
        let what = format!("{} {}, {}", scenario.name, system.name(), case.label());
        self.progress.next(&what);
        // What others did in the minutes of a long sample evens out, and its report says how much.
        let is_long = self.bench.window >= LONG;
        let repeats = if is_long { 0 } else { REPEATS_MAX };
        for repeat in 0..=repeats {
            let (figures, facts) = match self.bench.sample(system, scenario, case, stubs) {
                Ok(sample) => sample,
                Err(error) => {
                    series.has_failed = true;
                    return self.failed(scenario, system, &error);
                }
            };
            self.keep_facts(system, facts);
            if figures.foreign <= FOREIGN_MAX || repeat == repeats {
                series.rounds.push(figures);
                return;
            }
            series.repeated += 1;
        }
    }

    fn failed(&mut self, scenario: &Scenario, system: System, error: &anyhow::Error) {
        self.progress.clear();
        // Who does not listen is not told.
        let _ = writeln!(
            io::stderr(),
            "{} in {}: {error:#}",
            system.name(),
            scenario.name
        );
        let left_out = LeftOut {
            scenario: scenario.name.to_owned(),
            system,
            reason: reason(error),
            is_failure: true,
        };
        let is_same = |it: &LeftOut| it.scenario == scenario.name && it.system == system;
        if !self.results.left_out.iter().any(is_same) {
            self.results.left_out.push(left_out);
        }
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
        let has_errors = |row: &Row| is_ours(row.system) && row.median.errors > 0;
        let failed = |it: &LeftOut| is_ours(it.system) && it.is_failure;
        !self.results.rows.iter().any(has_errors) && !self.results.left_out.iter().any(failed)
    }
}

/// What a reader wants to know first: the error, and the first line that speaks of one in what the
/// program printed.
fn reason(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default().to_owned();
    let cause = lines.find(|line| line.to_ascii_lowercase().contains("error"));
    cause.map_or(first.clone(), |cause| format!("{first} {}", cause.trim()))
}

fn row(case: &Case, series: Series) -> Row {
    Row {
        case: case.clone(),
        system: series.system,
        median: Figures::median(&series.rounds),
        rounds: series.rounds,
        repeated: series.repeated,
        warnings: Vec::new(),
    }
}
