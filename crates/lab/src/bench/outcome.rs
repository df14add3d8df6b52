//! What all suites share: the results of a run as JSON keeps them, and series of samples.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::machine;
use super::process::Cores;
use super::scenario::HTTP_SUITE;
use super::stats::{median, median_interval};

/// The part of a core's time that others may use in a sample.
pub(crate) const FOREIGN_MAX: f64 = 0.08;

/// A system that a suite measures.
pub(crate) trait Contender: Copy + PartialEq {
    /// The binary under test.
    const INTERTIE: Self;

    /// The name in tables.
    fn name(self) -> &'static str;
}

/// The figures of one sample.
pub(crate) trait Sample: Sized {
    /// The part of a core's time that others used.
    fn foreign(&self) -> f64;

    /// Microseconds of a core for each reply or delivery; none without a system.
    fn cpu(&self) -> Option<f64>;

    /// The figures of all rounds in one: medians of what is measured, sums of what is counted.
    fn median(rounds: &[Self]) -> Self;
}

/// Everything that a report needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Results<S, R> {
    /// Which suite it was.
    #[serde(default = "http_suite")]
    pub suite: String,
    /// What the command was.
    pub command: String,
    /// When it began, in UTC.
    pub started: String,
    pub machine: Machine,
    pub method: Method,
    pub systems: Vec<SystemFacts<S>>,
    pub rows: Vec<R>,
    pub left_out: Vec<LeftOut<S>>,
}

/// The suite of results from before there was another.
fn http_suite() -> String {
    HTTP_SUITE.to_owned()
}

/// Where it was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub kernel: String,
    pub processor: String,
    pub cores: usize,
    pub memory_mib: u64,
    /// Which cores had what.
    pub layout: String,
}

/// How it was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Method {
    pub rounds: usize,
    pub seconds: f64,
    pub warm_up: f64,
    /// The warm-up of systems on a virtual machine that compiles, where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jvm_warm_up: Option<f64>,
    /// The part of a core's time above which a sample is taken again.
    pub foreign_max: f64,
}

/// What a system is, and how it was run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SystemFacts<S> {
    pub system: S,
    pub version: String,
    /// The first command line and configuration in each scenario.
    pub runs: Vec<RunFacts>,
}

/// A command line and configuration, by scenario.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RunFacts {
    pub scenario: String,
    pub command: String,
    pub config: String,
}

/// Why a system has no row in a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeftOut<S> {
    pub scenario: String,
    pub system: S,
    pub reason: String,
    /// Whether it was meant to take part.
    pub is_failure: bool,
}

/// One system in one case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row<S, C, F> {
    #[serde(flatten)]
    pub case: C,
    pub system: S,
    /// The median of each figure.
    pub median: F,
    pub rounds: Vec<F>,
    /// How many samples were taken again.
    pub repeated: usize,
    pub warnings: Vec<String>,
}

/// The CPU time of one system for that of another, per reply or delivery.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    /// The median over rounds of neighbours in time, for what else went on in the machine was
    /// common to them.
    pub median: f64,
    /// Its 95 % interval, when there are enough rounds for one.
    pub interval: Option<(f64, f64)>,
}

impl fmt::Display for Ratio {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, interval } = self;
        match interval {
            Some((low, high)) => write!(formatter, "{median:.3} [{low:.3}, {high:.3}]"),
            None => write!(formatter, "{median:.2}"),
        }
    }
}

impl<S, C, F: Sample> Row<S, C, F> {
    /// What this system needs for what another one needs.
    pub fn cpu_for(&self, other: &Self) -> Option<Ratio> {
        let pairs = self.rounds.iter().zip(&other.rounds);
        let ratios = pairs.filter_map(|(one, other)| {
            let (one, other) = (one.cpu()?, other.cpu()?);
            (other > 0.0).then_some(one / other)
        });
        let ratios: Vec<f64> = ratios.collect();
        (!ratios.is_empty()).then(|| Ratio {
            median: median(ratios.iter().copied()),
            interval: median_interval(ratios),
        })
    }
}

impl<S: Contender, R> Results<S, R> {
    /// Results without a row.
    pub fn new(
        suite: &str,
        cores: &Cores,
        method: Method,
        systems: impl Iterator<Item = (S, String)>,
    ) -> Self {
        let facts = systems.map(|(system, version)| SystemFacts {
            system,
            version,
            runs: Vec::new(),
        });
        Self {
            suite: suite.to_owned(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            started: machine::now(),
            machine: machine::facts(cores),
            method,
            systems: facts.collect(),
            rows: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Notes why a system has no row in a scenario, each reason once.
    pub fn leave_out(&mut self, scenario: &str, system: S, reason: String, is_failure: bool) {
        let left_out = LeftOut {
            scenario: scenario.to_owned(),
            system,
            reason,
            is_failure,
        };
        if !self.left_out.contains(&left_out) {
            self.left_out.push(left_out);
        }
    }

    /// Scenario, system and reason of each that was left out.
    pub fn left_out(&self) -> impl Iterator<Item = [&str; 3]> {
        let left_out = self.left_out.iter();
        left_out.map(|it| [it.scenario.as_str(), it.system.name(), it.reason.as_str()])
    }

    /// Whether Intertie could not be measured somewhere.
    pub fn has_failed(&self) -> bool {
        let is_ours = |it: &LeftOut<S>| it.system == S::INTERTIE && it.is_failure;
        self.left_out.iter().any(is_ours)
    }

    /// Keeps the first command line and configuration of a system in each scenario, without the
    /// name of the temporary folder.
    pub fn keep_facts(&mut self, system: S, mut facts: RunFacts, folder: &Path) {
        let folder = folder.display().to_string();
        facts.config = facts.config.replace(&folder, "FOLDER");
        facts.command = facts.command.replace(&folder, "FOLDER");
        let of_system = self.systems.iter_mut();
        for known in of_system.filter(|known| known.system == system) {
            if !known.runs.iter().any(|run| run.scenario == facts.scenario) {
                known.runs.push(facts.clone());
            }
        }
    }
}

/// The samples of one system in one case.
pub(crate) struct Series<S, F> {
    pub system: S,
    rounds: Vec<F>,
    repeated: usize,
    has_failed: bool,
}

impl<S: Contender, F: Sample> Series<S, F> {
    /// An empty series for each system.
    pub fn of(systems: impl Iterator<Item = S>) -> Vec<Self> {
        let empty = systems.map(|system| Self {
            system,
            rounds: Vec::new(),
            repeated: 0,
            has_failed: false,
        });
        empty.collect()
    }

    /// Whether a sample of it has failed: no others are taken.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Takes a sample, and again up to `repeats` times when others used too much of a core
    /// meanwhile.
    ///
    /// # Errors
    /// That of the sample.
    pub fn turn(
        &mut self,
        repeats: usize,
        mut sample: impl FnMut() -> anyhow::Result<F>,
    ) -> anyhow::Result<()> {
        for repeat in 0..=repeats {
            let figures = sample().inspect_err(|_| self.has_failed = true)?;
            if figures.foreign() <= FOREIGN_MAX || repeat == repeats {
                self.rounds.push(figures);
                break;
            }
            self.repeated += 1;
        }
        Ok(())
    }

    /// The row of this series, when there is a sample.
    pub fn row<C>(self, case: C) -> Option<Row<S, C, F>> {
        (!self.rounds.is_empty()).then(|| Row {
            case,
            system: self.system,
            median: F::median(&self.rounds),
            rounds: self.rounds,
            repeated: self.repeated,
            warnings: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Only;

    impl Contender for Only {
        const INTERTIE: Self = Self;

        fn name(self) -> &'static str {
            "only"
        }
    }

    impl Sample for f64 {
        fn foreign(&self) -> f64 {
            *self
        }

        fn cpu(&self) -> Option<f64> {
            (*self > 0.0).then_some(*self)
        }

        fn median(rounds: &[Self]) -> Self {
            rounds.iter().sum()
        }
    }

    #[test]
    fn a_disturbed_sample_is_taken_again_and_the_last_one_counts() {
        let mut series = Series::<Only, f64>::of([Only].into_iter()).remove(0);
        let mut samples = [0.5, 0.01, 0.4, 0.3].into_iter();
        for _ in 0..2 {
            let turn = series.turn(1, || samples.next().ok_or_else(|| anyhow::anyhow!("none")));
            turn.unwrap();
        }
        let row = series.row("case").unwrap();
        assert_eq!((row.rounds, row.repeated), (vec![0.01, 0.3], 2));
        assert!((row.median - 0.31).abs() < 1e-9);
    }

    #[test]
    fn ratios_are_medians_of_neighbours_with_an_interval_of_six_and_more() {
        let row = |rounds: &[f64]| Row {
            case: (),
            system: Only,
            median: 0.0,
            rounds: rounds.to_vec(),
            repeated: 0,
            warnings: Vec::new(),
        };
        // What disturbs the machine disturbs both: the ratios of neighbours stay.
        let old = row(&[10.0, 20.0, 10.0, 40.0, 10.0, 10.0]);
        let new = row(&[10.0, 20.4, 10.1, 41.2, 10.0, 9.9]);
        let ratio = new.cpu_for(&old).unwrap();
        assert_eq!(ratio.to_string(), "1.005 [0.990, 1.030]");
        let few = row(&[11.0]).cpu_for(&old).unwrap();
        assert_eq!((few.interval, few.to_string()), (None, "1.10".to_owned()));
        assert_eq!(new.cpu_for(&row(&[0.0])), None, "no system, no ratio");
    }

    #[test]
    fn a_series_whose_sample_fails_says_so_and_has_no_row() {
        let mut series = Series::<Only, f64>::of([Only].into_iter()).remove(0);
        series.turn(1, || anyhow::bail!("cut")).unwrap_err();
        assert!(series.has_failed());
        assert!(series.row("case").is_none());
    }

    #[test]
    fn a_reason_is_noted_once_and_only_a_failure_fails_the_run() {
        let mut results = Results::<Only, ()> {
            suite: String::new(),
            command: String::new(),
            started: String::new(),
            machine: Machine::default(),
            method: Method::default(),
            systems: Vec::new(),
            rows: Vec::new(),
            left_out: Vec::new(),
        };
        for _ in 0..2 {
            results.leave_out("h1c", Only, "not found".to_owned(), false);
        }
        let left_out: Vec<_> = results.left_out().collect();
        assert_eq!(left_out, [["h1c", "only", "not found"]]);
        assert!(!results.has_failed());
        results.leave_out("h1c", Only, "refused".to_owned(), true);
        assert!(results.has_failed());
    }
}
