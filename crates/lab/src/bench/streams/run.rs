//! A run: cases, rounds in which the systems take turns, and results that are written as they come.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use super::case::{Case, Feed};
use super::results::{Figures, Results, Row, SUITE, warnings};
use super::sample::Bench;
use super::system::System;
use super::{StreamArgs, report, table};
use crate::bench;
use crate::bench::folder::Folder;
use crate::bench::outcome::{FOREIGN_MAX, Method, Series};
use crate::bench::process::{self, Cores};
use crate::bench::progress::Progress;
use crate::bench::system::Programs;
use crate::bench::table::print_end;
use crate::bench::tokens::{Algorithm, Issuer, KeyFiles};

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
    let cores = Cores::of_machine()?.awake(programs.is_awake, &programs.own)?;
    let files = process::allow_files()?;
    let folder = Folder::new("intertie-streams")?;
    let seconds = Duration::try_from_secs_f64(args.seconds.max(0.1))?;
    let method = Method {
        rounds: usize::from(args.rounds),
        seconds: seconds.as_secs_f64(),
        warm_up: args.warm_up.as_secs_f64(),
        jvm_warm_up: None,
        foreign_max: FOREIGN_MAX,
    };
    let versions = systems.iter().map(|it| (*it, it.version(&programs)));
    let results = Results::new(SUITE, &cores, method, versions);
    process::pin(&cores.load)?;
    let keys = KeyFiles::in_folder(&folder);
    let issuer = Issuer::make(Algorithm::Es256, &keys)?;
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
            issuer: Arc::new(issuer),
            keys,
        },
        results,
        progress: Progress::new(samples),
    };
    for case in &cases {
        run.leave_out(case, &systems, &missing);
        run.case(case, &systems)?;
    }
    print_end(run.results.left_out(), &args.out)?;
    Ok(run.is_good())
}

/// The samples of one system.
type Measured = Series<System, Figures>;

/// A run under way.
struct Run<'a> {
    args: &'a StreamArgs,
    bench: Bench,
    results: Results,
    progress: Progress,
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
            self.results
                .leave_out(&case.scenario, system, reason, false);
        }
    }

    fn case(&mut self, case: &Case, systems: &[System]) -> anyhow::Result<()> {
        self.check_files(case)?;
        let able = systems.iter().filter(|it| it.refuses(case).is_none());
        let mut series = Series::of(able.copied());
        for _ in 0..self.args.rounds {
            for series in series.iter_mut().filter(|series| !series.has_failed()) {
                self.turn(case, series);
            }
        }
        let rows = series.into_iter().filter_map(|it| it.row(case.clone()));
        let mut rows: Vec<Row> = rows.collect();
        for row in &mut rows {
            row.warnings = warnings(case, &row.median);
        }
        self.progress.clear();
        table::print_case(case, &rows, &self.results.rows)?;
        self.results.rows.extend(rows);
        bench::write(&self.args.out, &self.results, &report::html(&self.results))
    }

    /// Both ends of a proxied connection are files of the proxy.
    fn check_files(&self, case: &Case) -> anyhow::Result<()> {
        let each = if case.feed == Feed::Echo { 2 } else { 1 };
        let needed = (case.users + case.stalled + case.topics) as u64 * each;
        // Those whose credentials end are there for a part of a minute each.
        let needed = needed + (case.expiring + case.revoked) as u64 + FILES_OTHER;
        anyhow::ensure!(
            needed <= self.bench.files,
            "{} connections need {needed} open files, and this machine allows {} (ulimit -Hn)",
            case.users + case.stalled,
            self.bench.files
        );
        Ok(())
    }

    /// Takes a sample, again when others have used too much of a core meanwhile.
    fn turn(&mut self, case: &Case, series: &mut Measured) {
        let system = series.system;
        let what = format!("{} {}, {}", case.scenario, system.name(), case.label());
        self.progress.next(&what);
        let sampled = series.turn(REPEATS_MAX, || {
            let (figures, facts) = self.bench.sample(system, case)?;
            self.results.keep_facts(system, facts, &self.bench.folder);
            Ok(figures)
        });
        if let Err(error) = sampled {
            self.failed(case, system, &error);
        }
    }

    fn failed(&mut self, case: &Case, system: System, error: &anyhow::Error) {
        self.progress.clear();
        // A stderr that is closed has no reader to inform.
        let _ = writeln!(
            io::stderr(),
            "{} in {}, {}: {error:#}",
            system.name(),
            case.scenario,
            case.label()
        );
        let reason = format!("{}: {}", case.label(), error.root_cause());
        self.results.leave_out(&case.scenario, system, reason, true);
    }

    fn is_good(&self) -> bool {
        let is_ours = |it: System| matches!(it, System::Intertie | System::IntertieJwt);
        let is_bad = |row: &Row| is_ours(row.system) && !row.is_good();
        let mut left_out = self.results.left_out.iter();
        let has_failed = left_out.any(|it| it.is_failure && is_ours(it.system));
        !self.results.rows.iter().any(is_bad) && !has_failed
    }
}
