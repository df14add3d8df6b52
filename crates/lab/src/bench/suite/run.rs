//! A run: cases, rounds in which the systems take turns, and results that are written as they come.

use std::io::{self, Write};
use std::path::Path;

use super::{Results, Row, Suite, page, table};
use crate::bench;
use crate::bench::outcome::{Contender, RunFacts, Series};
use crate::bench::progress::Progress;
use crate::bench::table::print_end;

/// How often a spoiled sample is taken again.
const REPEATS_MAX: usize = 2;

/// What is measured, and where results go.
pub(in crate::bench) struct Plan<'a, S: Suite> {
    pub cases: Vec<S::Case>,
    pub systems: Vec<S::System>,
    /// Systems that are not there, though nobody said that they may be left out.
    pub missing: Vec<S::System>,
    pub rounds: usize,
    /// The folder for results.json and report.html.
    pub out: &'a Path,
    /// The temporary folder, whose name is left out of the results.
    pub folder: &'a Path,
    /// Results without a row.
    pub results: Results<S>,
}

/// Measures all cases with a function that takes a sample. False when Intertie was not measured
/// somewhere, or did something wrong.
///
/// # Errors
/// When files cannot be written.
pub(in crate::bench) fn run<S: Suite>(
    plan: Plan<'_, S>,
    sample: impl FnMut(S::System, &S::Case) -> anyhow::Result<(S::Figures, RunFacts)>,
) -> anyhow::Result<bool> {
    let able = |case: &S::Case| {
        let systems = plan.systems.iter();
        systems
            .filter(|it| S::refuses(**it, case).is_none())
            .count()
    };
    let samples = plan.cases.iter().map(able).sum::<usize>() * plan.rounds;
    let cases = plan.cases.clone();
    let mut run = Run {
        plan,
        progress: Progress::new(samples),
        sample,
    };
    for case in &cases {
        run.leave_out(case);
        run.case(case)?;
    }
    let Plan { results, out, .. } = &run.plan;
    print_end(results.left_out(), out)?;
    Ok(run.is_good())
}

/// A run under way.
struct Run<'a, S: Suite, F> {
    plan: Plan<'a, S>,
    progress: Progress,
    sample: F,
}

impl<S: Suite, F> Run<'_, S, F>
where
    F: FnMut(S::System, &S::Case) -> anyhow::Result<(S::Figures, RunFacts)>,
{
    fn leave_out(&mut self, case: &S::Case) {
        let Plan {
            systems, missing, ..
        } = &self.plan;
        let missing = missing.iter().filter(|it| S::refuses(**it, case).is_none());
        let missing = missing.map(|it| (*it, format!("not found: {}", S::advice(*it))));
        let meant = systems.iter().filter(|it| S::is_meant(**it, case));
        let refused = meant.filter_map(|it| Some((*it, S::refuses(*it, case)?.to_owned())));
        let reasons: Vec<(S::System, String)> = missing.chain(refused).collect();
        for (system, reason) in reasons {
            let results = &mut self.plan.results;
            results.leave_out(S::scenario(case), system, reason, false);
        }
    }

    fn case(&mut self, case: &S::Case) -> anyhow::Result<()> {
        let systems = self.plan.systems.iter().copied();
        let mut series = Series::of(systems.filter(|it| S::refuses(*it, case).is_none()));
        for _ in 0..self.plan.rounds {
            for series in series.iter_mut().filter(|series| !series.has_failed()) {
                self.turn(case, series);
            }
        }
        let rows = series.into_iter().filter_map(|it| it.row(case.clone()));
        let mut rows: Vec<Row<S>> = rows.collect();
        for row in &mut rows {
            row.warnings = S::warnings(case, &row.median);
        }
        self.progress.clear();
        let results = &mut self.plan.results;
        table::print_case::<S>(case, &rows, &results.rows)?;
        results.rows.extend(rows);
        bench::write(self.plan.out, results, &page::html::<S>(results))
    }

    /// Takes a sample, again when others have used too much of a core meanwhile.
    fn turn(&mut self, case: &S::Case, series: &mut Series<S::System, S::Figures>) {
        let system = series.system;
        let (scenario, label) = (S::scenario(case), S::label(case));
        self.progress
            .next(&format!("{scenario} {}, {label}", system.name()));
        let Plan {
            results, folder, ..
        } = &mut self.plan;
        let sample = &mut self.sample;
        let sampled = series.turn(REPEATS_MAX, || {
            let (figures, facts) = sample(system, case)?;
            results.keep_facts(system, facts, folder);
            Ok(figures)
        });
        if let Err(error) = sampled {
            self.failed(case, system, &error);
        }
    }

    fn failed(&mut self, case: &S::Case, system: S::System, error: &anyhow::Error) {
        self.progress.clear();
        let (scenario, label) = (S::scenario(case), S::label(case));
        // A stderr that is closed has no reader to inform.
        let _ = writeln!(
            io::stderr(),
            "{} in {scenario}, {label}: {error:#}",
            system.name()
        );
        let reason = format!("{label}: {}", error.root_cause());
        let results = &mut self.plan.results;
        results.leave_out(scenario, system, reason, true);
    }

    fn is_good(&self) -> bool {
        let results = &self.plan.results;
        let is_bad = |row: &Row<S>| S::is_ours(row.system) && S::faults(&row.median) > 0;
        let mut left_out = results.left_out.iter();
        let has_failed = left_out.any(|it| it.is_failure && S::is_ours(it.system));
        !results.rows.iter().any(is_bad) && !has_failed
    }
}
