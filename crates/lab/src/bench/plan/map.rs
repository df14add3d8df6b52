//! Arguments of `intertie-bench map`, and the cases that they mean.

use std::time::Duration;

use super::{Options, Part, Plan, peers};
use crate::bench::mapping;
use crate::bench::results::{Case, Variant};
use crate::bench::scenario::{self, MAP, Scenario, System};
use crate::bench::system::Programs;
use crate::units::{self, Streams};

/// Arguments of `intertie-bench map`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct MapArgs {
    #[command(flatten)]
    pub options: Options,
    /// Only these scenarios.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = scenario::names(&MAP))]
    pub scenario: Vec<String>,
    /// Other engines beside it, or `none`; all that are found when not given.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    #[arg(value_parser = ["redpanda-connect", "camel", "none"])]
    pub peers: Vec<String>,
    /// How long load runs before a sample of Camel, whose virtual machine compiles meanwhile; 20s
    /// for `short`, 60s for `full` when not given.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub jvm_warm_up: Option<Duration>,
}

impl MapArgs {
    /// What the arguments mean.
    ///
    /// # Errors
    /// When a peer was asked for and is not there.
    pub fn plan(&self, programs: &Programs) -> anyhow::Result<Plan> {
        let all = [System::RedpandaConnect, System::Camel];
        let (systems, missing) = match self.options.system.as_slice() {
            [] => {
                let (peers, missing) = peers(&all, &self.peers, programs)?;
                let own = [System::Intertie, System::Passthrough];
                (
                    [own.as_slice(), &peers, &[System::Direct]].concat(),
                    missing,
                )
            }
            given => (given.to_vec(), Vec::new()),
        };
        let scenarios = scenario::chosen(&MAP, &self.scenario).into_iter();
        let parts = scenarios.map(|scenario| Part {
            scenario,
            cases: self.cases(scenario),
        });
        Ok(Plan {
            suite: scenario::MAP_SUITE,
            options: self.options.clone(),
            parts: parts.collect(),
            systems,
            missing,
            jvm_warm_up: self.jvm_warm_up(),
        })
    }

    fn jvm_warm_up(&self) -> Duration {
        let default = if self.options.is_full() { 60 } else { 20 };
        self.jvm_warm_up.unwrap_or(Duration::from_secs(default))
    }

    fn cases(&self, scenario: &Scenario) -> Vec<Case> {
        let options = &self.options;
        let users = options.or(&options.users, &[100], &[1, 100]);
        let case = |users: usize| Case {
            scenario: scenario.name.to_owned(),
            streams: Streams::single(users),
            bytes: mapping::BYTES,
            delay_ms: 0.0,
            rate: options.rate,
            variant: Variant::Plain,
        };
        users.into_iter().map(case).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Profile;
    use super::*;

    /// Programs that are all there: their files are this test.
    fn programs() -> Programs {
        let own = std::env::current_exe().unwrap();
        Programs {
            intertie: own.clone(),
            own,
            is_awake: false,
        }
    }

    #[test]
    fn profiles_have_their_cases() {
        let mut arguments = MapArgs::default();
        let labels = |arguments: &MapArgs| {
            let plan = arguments.plan(&programs()).unwrap();
            let cases = plan.parts.into_iter().flat_map(|part| part.cases);
            cases
                .map(|case| format!("{}: {}", case.scenario, case.label()))
                .collect::<Vec<_>>()
        };
        let short = ["map: 100 users, 1024 B", "map-computed: 100 users, 1024 B"];
        assert_eq!(labels(&arguments), short);
        arguments.options.profile = Profile::Full;
        assert_eq!(labels(&arguments).len(), 4);
        arguments.scenario.push("map".to_owned());
        arguments.options.users = vec![7];
        assert_eq!(labels(&arguments), ["map: 7 users, 1024 B"]);
    }

    #[test]
    fn own_systems_are_always_measured() {
        let arguments = MapArgs {
            peers: vec!["none".to_owned()],
            ..MapArgs::default()
        };
        let plan = arguments.plan(&programs()).unwrap();
        let own = [System::Intertie, System::Passthrough, System::Direct];
        assert_eq!(plan.systems, own);
        assert!(plan.missing.is_empty());
    }

    #[test]
    fn peers_that_are_not_there_are_told() {
        // Whoever runs this test may have them.
        let plan = MapArgs::default().plan(&programs()).unwrap();
        for peer in [System::RedpandaConnect, System::Camel] {
            let is_missing = plan.missing.iter().any(|(system, _)| *system == peer);
            assert_ne!(plan.systems.contains(&peer), is_missing);
        }
        assert!(
            plan.missing
                .iter()
                .all(|(_, advice)| advice.contains("crates/lab/peers/"))
        );
    }
}
