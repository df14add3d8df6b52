//! Arguments of `intertie-bench http`, and the cases that they mean.

use std::time::Duration;

use super::{Options, Part, Plan, peers};
use crate::bench::results::{Case, Variant};
use crate::bench::scenario::{self, HTTP, JWT, Scenario, System, Work};
use crate::bench::system::Programs;
use crate::units::{self, Streams};

/// Arguments of `intertie-bench http`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct HttpArgs {
    #[command(flatten)]
    pub options: Options,
    /// Only these scenarios; those with JWT are measured where they are named.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = scenarios_parser())]
    pub scenario: Vec<String>,
    /// Bytes of a request's body.
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    pub sizes: Vec<usize>,
    /// How long the back end waits before each reply.
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = units::duration)]
    pub delays: Vec<Duration>,
    /// For HTTP/2, in place of --users: connections x requests at once on each.
    #[arg(long, value_name = "CxS", value_delimiter = ',')]
    pub streams: Vec<Streams>,
    /// Other proxies beside it, or `none`; all that are found when not given.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    #[arg(value_parser = ["nginx", "haproxy", "envoy", "none"])]
    pub peers: Vec<String>,
}

fn scenarios_parser() -> clap::builder::PossibleValuesParser {
    let all = HTTP.iter().chain(&JWT);
    all.map(|scenario| scenario.name).collect::<Vec<_>>().into()
}

impl HttpArgs {
    /// What the arguments mean.
    ///
    /// # Errors
    /// When a peer was asked for and is not there.
    pub fn plan(&self, programs: &Programs) -> anyhow::Result<Plan> {
        let parts = self.scenarios().into_iter().map(|scenario| Part {
            scenario,
            cases: self.cases(scenario),
        });
        Ok(Plan {
            suite: scenario::HTTP_SUITE,
            options: self.options.clone(),
            parts: parts.collect(),
            systems: self.systems(programs)?,
            missing: Vec::new(),
            jvm_warm_up: Duration::ZERO,
        })
    }

    fn scenarios(&self) -> Vec<&'static Scenario> {
        match self.scenario.as_slice() {
            [] => scenario::chosen(&HTTP, &[]),
            named => [&HTTP[..], &JWT]
                .into_iter()
                .flat_map(|all| scenario::chosen(all, named))
                .collect(),
        }
    }

    /// The systems, in the order of their turns.
    fn systems(&self, programs: &Programs) -> anyhow::Result<Vec<System>> {
        if !self.options.system.is_empty() {
            return Ok(self.options.system.clone());
        }
        let all = [System::HaProxy, System::Nginx, System::Envoy];
        // Whoever has none of them wants none: what is missing is not worth a line.
        let (peers, _) = peers(&all, &self.peers, programs)?;
        let own = [System::Intertie, System::Passthrough, System::Floor];
        Ok([own.as_slice(), &peers, &[System::Direct]].concat())
    }

    /// The cases of a scenario.
    fn cases(&self, scenario: &Scenario) -> Vec<Case> {
        let options = &self.options;
        let users = options.or(&options.users, &[100], &[100, 300, 1000]);
        let sizes = options.or(&self.sizes, &[50], &[50, 1024]);
        let delays = match self.delays.as_slice() {
            [] if options.is_full() => vec![Duration::ZERO, Duration::from_millis(30)],
            [] => vec![Duration::ZERO],
            given => given.to_vec(),
        };
        let variants: &[Variant] = match scenario.work {
            Work::Locked(_) => &[Variant::Warm, Variant::Cold],
            _ => &[Variant::Plain],
        };
        let mut cases = Vec::new();
        for delay in &delays {
            for streams in self.streams_of(scenario, &users) {
                for bytes in &sizes {
                    cases.extend(variants.iter().map(|variant| Case {
                        scenario: scenario.name.to_owned(),
                        streams,
                        bytes: *bytes,
                        delay_ms: delay.as_secs_f64() * 1e3,
                        rate: self.options.rate,
                        variant: *variant,
                    }));
                }
            }
        }
        cases
    }

    /// How users are spread over connections.
    fn streams_of(&self, scenario: &Scenario, users: &[usize]) -> Vec<Streams> {
        if !scenario.front.is_h2() {
            return users.iter().map(|count| Streams::single(*count)).collect();
        }
        if !self.streams.is_empty() {
            return self.streams.clone();
        }
        let spread = |users: &usize| {
            let ten = Streams {
                connections: 10,
                each: users.div_ceil(10),
            };
            match *users {
                count if count < 100 => vec![Streams::single(count)],
                count if count < 300 => vec![Streams::single(count), ten],
                _ => vec![ten],
            }
        };
        users.iter().flat_map(spread).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Profile;
    use super::*;

    #[test]
    fn profiles_have_their_cases() {
        let mut arguments = HttpArgs::default();
        let labels = |arguments: &HttpArgs, name: &str| {
            let cases = arguments.cases(scenario::find(name).unwrap());
            cases.iter().map(Case::label).collect::<Vec<_>>()
        };
        assert_eq!(labels(&arguments, "h1c"), ["100 users, 50 B"]);
        assert_eq!(
            labels(&arguments, "h2-h1"),
            ["100 users, 50 B", "100 users (10x10), 50 B"]
        );
        arguments.options.profile = Profile::Full;
        assert_eq!(labels(&arguments, "h1c").len(), 3 * 2 * 2);
        let h2 = labels(&arguments, "h2-h2");
        assert_eq!(h2.len(), 4 * 2 * 2);
        assert!(h2.contains(&"1000 users (10x100), 1024 B, delay 30 ms".to_owned()));
    }

    #[test]
    fn locked_scenarios_are_measured_where_they_are_named_with_known_and_new_tokens() {
        let mut arguments = HttpArgs::default();
        let locked = |it: &Scenario| it.work.locked().is_some();
        assert!(!arguments.scenarios().into_iter().any(locked));
        arguments.scenario = vec!["jwt-es256".to_owned(), "h1c".to_owned()];
        let scenarios = arguments.scenarios();
        assert_eq!(scenarios.len(), 2);
        let cases = arguments.cases(scenarios[1]);
        let labels: Vec<String> = cases.iter().map(Case::label).collect();
        let wanted = [
            "100 users, 50 B, 10000 tokens in turn, all known",
            "100 users, 50 B, a new token for each request",
        ];
        assert_eq!(labels, wanted);
    }

    #[test]
    fn arguments_narrow_the_cases() {
        let arguments = HttpArgs {
            scenario: vec!["h2-h2".to_owned()],
            streams: vec!["4x5".parse().unwrap()],
            sizes: vec![100],
            options: Options {
                rate: Some(9.0),
                ..Options::default()
            },
            ..HttpArgs::default()
        };
        let scenarios = arguments.scenarios();
        assert_eq!(scenarios.len(), 1);
        let cases = arguments.cases(scenarios[0]);
        assert_eq!(cases.len(), 1);
        assert_eq!(cases[0].label(), "20 users (4x5), 100 B, 9/s");
        assert_eq!(arguments.options.rounds(), 2);
    }
}
