//! A run: cases, rounds in which the systems take turns, and results that are written as they come.

use std::io::{self, Write};
use std::time::Duration;

use super::folder::Folder;
use super::glu::Parts;
use super::outcome::{FOREIGN_MAX, Method, Series};
use super::plan::{Part, Plan};
use super::process::{self, Cores};
use super::progress::Progress;
use super::results::{Case, Figures, Results, Row, warn};
use super::sample::{Bench, Stubs};
use super::scenario::{Scenario, System, Work};
use super::system::Programs;
use super::{report, table};
use crate::pki::Identity;

/// How often a spoiled sample is taken again.
const REPEATS_MAX: usize = 3;
/// A sample of this length is taken once.
const LONG: Duration = Duration::from_secs(60);
/// A user needs a file in the generator and in the stub, and two in the proxy.
const FILES_EACH: u64 = 2;

/// Measures everything that a plan has. False when Intertie could not be measured
/// somewhere, or when a reply of it was wrong.
pub(super) fn run(plan: Plan, programs: Programs) -> anyhow::Result<bool> {
    let cores = Cores::of_machine()?.awake(programs.is_awake, &programs.own)?;
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
    table::print_end(run.results.left_out(), &plan.options.out)?;
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
    let is_complex = works().any(Work::is_complex);
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
    let method = Method {
        rounds: plan.options.rounds(),
        seconds: plan.options.window().as_secs_f64(),
        warm_up: plan.options.warm_up().as_secs_f64(),
        jvm_warm_up: has_jvm.then_some(plan.jvm_warm_up.as_secs_f64()),
        foreign_max: FOREIGN_MAX,
    };
    let systems = plan.systems.iter();
    let versions = systems.map(|system| (*system, programs.version(*system)));
    Results::new(plan.suite, cores, method, versions)
}

/// The samples of one system.
type Measured = Series<System, Figures>;

/// A run under way.
struct Run<'a> {
    plan: &'a Plan,
    bench: Bench,
    results: Results,
    progress: Progress,
}

impl Run<'_> {
    fn leave_out(&mut self, scenario: &Scenario) {
        let missing = self.plan.missing.iter().cloned();
        let systems = self.plan.systems.iter();
        let systems = systems.filter(|system| **system != System::Passthrough);
        let refused = systems.filter_map(|it| Some((*it, it.refuses(scenario)?.to_owned())));
        for (system, reason) in missing.chain(refused) {
            self.results.leave_out(scenario.name, system, reason, false);
        }
    }

    fn case(&mut self, scenario: &Scenario, case: &Case) -> anyhow::Result<()> {
        let stubs = self.bench.stubs(scenario, case)?;
        let systems = self.plan.systems.iter();
        let able = systems.filter(|it| it.refuses(scenario).is_none());
        let mut series = Series::of(able.copied());
        for round in 0..self.plan.options.rounds() {
            for series in &mut series {
                let turns = self.plan.options.rounds_of(series.system);
                if round < turns && !series.has_failed() {
                    self.turn(scenario, case, &stubs, series);
                }
            }
        }
        let series = series.into_iter();
        let mut rows: Vec<Row> = series.filter_map(|it| it.row(case.clone())).collect();
        warn(&mut rows);
        self.progress.clear();
        table::print_case(scenario, case, &rows)?;
        self.results.rows.extend(rows);
        super::write(
            &self.plan.options.out,
            &self.results,
            &report::html(&self.results),
        )
    }

    /// Takes a sample, again when others have used too much of a core meanwhile.
    fn turn(&mut self, scenario: &Scenario, case: &Case, stubs: &Stubs, series: &mut Measured) {
        let system = series.system;
        let what = format!("{} {}, {}", scenario.name, system.name(), case.label());
        self.progress.next(&what);
        // What others did in the minutes of a long sample evens out, and its report says how much.
        let is_long = self.bench.window >= LONG;
        let repeats = if is_long { 0 } else { REPEATS_MAX };
        let sampled = series.turn(repeats, || {
            let (figures, facts) = self.bench.sample(system, scenario, case, stubs)?;
            self.results.keep_facts(system, facts, &self.bench.folder);
            Ok(figures)
        });
        if let Err(error) = sampled {
            self.failed(scenario, system, &error);
        }
    }

    fn failed(&mut self, scenario: &Scenario, system: System, error: &anyhow::Error) {
        self.progress.clear();
        // A stderr that is closed has no reader to inform.
        let _ = writeln!(
            io::stderr(),
            "{} in {}: {error:#}",
            system.name(),
            scenario.name
        );
        let reason = reason(error);
        self.results.leave_out(scenario.name, system, reason, true);
    }

    fn is_good(&self) -> bool {
        let has_errors = |row: &Row| row.system == System::Intertie && row.median.errors > 0;
        !self.results.rows.iter().any(has_errors) && !self.results.has_failed()
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
