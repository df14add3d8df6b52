//! Arguments of `intertie-bench glu`, and the cases that they mean.

use std::time::Duration;

use super::{Options, Part, Plan, peers};
use crate::bench::glu::ORDER_BYTES;
use crate::bench::results::{Case, Variant};
use crate::bench::scenario::{self, GLU, Scenario, System, Work};
use crate::bench::system::Programs;
use crate::units::{self, Streams};

/// Users of the published straight line.
const USERS: usize = 400;
/// Users of the complex scenario, for which none are published.
const USERS_COMPLEX: usize = 100;
/// Bytes of a message that waits.
const WAITING_BYTES: usize = 256;

/// Arguments of `intertie-bench glu`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct GluArgs {
    #[command(flatten)]
    pub options: Options,
    /// Only these scenarios.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = scenario::names(&GLU))]
    pub scenario: Vec<String>,
    /// Bytes of a request's body of the straight line.
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    pub sizes: Vec<usize>,
    /// How long the slow service of `latency` takes; 1000 messages are in flight below one second,
    /// 3000 from there on, unless --users says otherwise.
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = units::duration)]
    pub delays: Vec<Duration>,
    /// Other engines beside it, or `none`; all that are found when not given.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    #[arg(value_parser = ["redpanda-connect", "camel", "none"])]
    pub peers: Vec<String>,
    /// How long load runs before a sample of Camel, whose virtual machine compiles meanwhile; 20s
    /// for `short`, 60s for `full` when not given.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub jvm_warm_up: Option<Duration>,
}

impl GluArgs {
    /// What the arguments mean.
    ///
    /// # Errors
    /// When a peer was asked for and is not there.
    pub fn plan(&self, programs: &Programs) -> anyhow::Result<Plan> {
        let all = [System::RedpandaConnect, System::Camel];
        let (systems, missing) = match self.options.system.as_slice() {
            [] => {
                let (peers, missing) = peers(&all, &self.peers, programs)?;
                ([&[System::Intertie], peers.as_slice()].concat(), missing)
            }
            given => (given.to_vec(), Vec::new()),
        };
        let scenarios = scenario::chosen(&GLU, &self.scenario).into_iter();
        let parts = scenarios.map(|scenario| Part {
            scenario,
            cases: self.cases(scenario),
        });
        Ok(Plan {
            suite: scenario::GLU_SUITE,
            options: self.options(),
            parts: parts.collect(),
            systems,
            missing,
            jvm_warm_up: self.jvm_warm_up(),
        })
    }

    /// Samples are longer than elsewhere: a broker has its own rhythm.
    fn options(&self) -> Options {
        let mut options = self.options.clone();
        let (seconds, warm_up) = if options.is_full() {
            (10.0, 3)
        } else {
            (3.0, 2)
        };
        options.seconds.get_or_insert(seconds);
        options.warm_up.get_or_insert(Duration::from_secs(warm_up));
        options
    }

    fn jvm_warm_up(&self) -> Duration {
        let default = if self.options.is_full() { 60 } else { 20 };
        self.jvm_warm_up.unwrap_or(Duration::from_secs(default))
    }

    fn cases(&self, scenario: &Scenario) -> Vec<Case> {
        match scenario.work {
            Work::Enqueue => self.straight(scenario),
            Work::Await => self.latency(scenario),
            _ => self.complex(scenario),
        }
    }

    fn case(&self, scenario: &Scenario, users: usize, bytes: usize) -> Case {
        Case {
            scenario: scenario.name.to_owned(),
            streams: Streams::single(users),
            bytes,
            delay_ms: 0.0,
            rate: self.options.rate,
            variant: Variant::Plain,
        }
    }

    fn straight(&self, scenario: &Scenario) -> Vec<Case> {
        let options = &self.options;
        let sizes = options.or(&self.sizes, &[256, 1024], &[256, 1024, 10_240]);
        let users = options.or(&options.users, &[USERS], &[USERS]);
        let pairs = sizes
            .iter()
            .flat_map(|bytes| users.iter().map(move |users| (*users, *bytes)));
        pairs
            .map(|(users, bytes)| self.case(scenario, users, bytes))
            .collect()
    }

    fn latency(&self, scenario: &Scenario) -> Vec<Case> {
        let delays = match self.delays.as_slice() {
            [] => vec![Duration::from_millis(100), Duration::from_secs(3)],
            given => given.to_vec(),
        };
        let mut cases = Vec::new();
        for delay in delays {
            let in_flight = if delay < Duration::from_secs(1) {
                1000
            } else {
                3000
            };
            let users = self
                .options
                .or(&self.options.users, &[in_flight], &[in_flight]);
            for (users, queues) in users.iter().flat_map(|users| [(*users, 1), (*users, 3)]) {
                cases.push(Case {
                    delay_ms: delay.as_secs_f64() * 1e3,
                    rate: None,
                    variant: Variant::Queues(queues),
                    ..self.case(scenario, users, WAITING_BYTES)
                });
            }
        }
        cases
    }

    fn complex(&self, scenario: &Scenario) -> Vec<Case> {
        let options = &self.options;
        let users = options.or(&options.users, &[USERS_COMPLEX], &[USERS_COMPLEX]);
        let variants = [Variant::Plain, Variant::Detached];
        let pairs = users
            .iter()
            .flat_map(|users| variants.map(|variant| (*users, variant)));
        pairs
            .map(|(users, variant)| Case {
                variant,
                ..self.case(scenario, users, ORDER_BYTES)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Profile;
    use super::*;

    fn programs() -> Programs {
        let own = std::env::current_exe().unwrap();
        Programs {
            intertie: own.clone(),
            own,
            is_awake: false,
        }
    }

    fn labels(arguments: &GluArgs) -> Vec<String> {
        let plan = arguments.plan(&programs()).unwrap();
        let cases = plan.parts.into_iter().flat_map(|part| part.cases);
        cases
            .map(|case| format!("{}: {}", case.scenario, case.label()))
            .collect()
    }

    #[test]
    fn profiles_have_their_cases() {
        let mut arguments = GluArgs::default();
        let order = format!("complex: 100 users, {ORDER_BYTES} B");
        let detached = format!("{order}, last leg detached");
        let wanted = [
            "straight: 400 users, 256 B",
            "straight: 400 users, 1024 B",
            "latency: 1000 in flight, 256 B, delay 100 ms, 1 queue",
            "latency: 1000 in flight, 256 B, delay 100 ms, 3 queues",
            "latency: 3000 in flight, 256 B, delay 3000 ms, 1 queue",
            "latency: 3000 in flight, 256 B, delay 3000 ms, 3 queues",
            &order,
            &detached,
        ];
        assert_eq!(labels(&arguments), wanted);
        arguments.options.profile = Profile::Full;
        assert_eq!(labels(&arguments).len(), 9);
        arguments.scenario = vec!["latency".to_owned()];
        arguments.delays = vec![Duration::from_millis(50)];
        arguments.options.users = vec![60];
        let wanted = "latency: 60 in flight, 256 B, delay 50 ms, 3 queues";
        assert_eq!(labels(&arguments)[1], wanted);
    }

    #[test]
    fn samples_are_longer_unless_said_otherwise() {
        let mut arguments = GluArgs::default();
        assert_eq!(arguments.options().window(), Duration::from_secs(3));
        arguments.options.seconds = Some(600.0);
        assert_eq!(arguments.options().window(), Duration::from_secs(600));
        assert_eq!(arguments.options().warm_up(), Duration::from_secs(2));
    }

    #[test]
    fn systems_can_be_chosen() {
        let arguments = GluArgs {
            peers: vec!["none".to_owned()],
            ..GluArgs::default()
        };
        let plan = arguments.plan(&programs()).unwrap();
        assert_eq!(plan.systems, [System::Intertie]);
    }
}
