//! Arguments of `intertie-bench ussd`, and the cases that they mean.

use std::time::Duration;

use super::{Options, Part, Plan};
use crate::bench::results::{Case, Variant};
use crate::bench::scenario::{self, Behind, Scenario, System, USSD, Work};
use crate::bench::ussd::{self, GATEWAYS};
use crate::units::{self, Streams};

/// Subscribers at once without a back end, and with all of them.
const USERS: usize = 100;
/// Sessions that stand open.
const SESSIONS: usize = 100_000;
/// Steps a second at which the latency of a menu is looked at.
const RATE: f64 = 5000.0;

/// Arguments of `intertie-bench ussd`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct UssdArgs {
    #[command(flatten)]
    pub options: Options,
    /// Only these scenarios.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = scenario::names(&USSD))]
    pub scenario: Vec<String>,
    /// How long the slow service of `menu-latency` takes; 200 subscribers wait below one second,
    /// 3000 from there on, unless --users says otherwise.
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = units::duration)]
    pub delays: Vec<Duration>,
    /// How long subscribers think before each key, in one more case of `menu`.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = units::duration)]
    pub think: Duration,
    /// How many sessions stand open in `menu-sessions`.
    #[arg(long, value_name = "N", default_value_t = SESSIONS)]
    pub sessions: usize,
}

impl UssdArgs {
    /// What the arguments mean.
    pub fn plan(&self) -> Plan {
        let systems = match self.options.system.as_slice() {
            [] => vec![System::Intertie],
            given => given.to_vec(),
        };
        let scenarios = scenario::chosen(&USSD, &self.scenario).into_iter();
        let parts = scenarios.map(|scenario| Part {
            scenario,
            cases: self.cases(scenario),
        });
        let mut options = self.options.clone();
        let (seconds, warm_up) = match options.is_full() {
            true => (10.0, 3),
            false => (3.0, 1),
        };
        options.seconds.get_or_insert(seconds);
        options.warm_up.get_or_insert(Duration::from_secs(warm_up));
        Plan {
            suite: scenario::USSD_SUITE,
            options,
            parts: parts.collect(),
            systems,
            missing: Vec::new(),
            jvm_warm_up: Duration::ZERO,
        }
    }

    fn cases(&self, scenario: &Scenario) -> Vec<Case> {
        let options = &self.options;
        let behind = match scenario.work {
            Work::Menu(behind) => behind,
            Work::Sessions => Behind::Nothing,
            _ => return Vec::new(),
        };
        let case = |users: usize| Case {
            scenario: scenario.name.to_owned(),
            streams: Streams::single(users),
            bytes: ussd::bytes(behind),
            delay_ms: 0.0,
            rate: options.rate,
            variant: Variant::Plain,
        };
        if scenario.work == Work::Sessions {
            return vec![Case {
                rate: None,
                variant: Variant::Sessions(self.sessions),
                ..case(GATEWAYS)
            }];
        }
        let users = options.or(&options.users, &[USERS], &[USERS]);
        match behind {
            Behind::Orchestrate => users.into_iter().map(case).collect(),
            Behind::Nothing => {
                let mut cases: Vec<Case> = users.into_iter().map(case).collect();
                let think = self.think.as_millis() as u64;
                cases.push(Case {
                    rate: Some(options.rate.unwrap_or(RATE)),
                    ..case(USERS)
                });
                // As many subscribers as press so many keys.
                let subscribers = (RATE * self.think.as_secs_f64()).ceil().max(1.0);
                cases.push(Case {
                    variant: Variant::Think(think),
                    ..case(subscribers as usize)
                });
                cases
            }
            Behind::Await => {
                let delays = match self.delays.as_slice() {
                    [] => vec![
                        Duration::ZERO,
                        Duration::from_millis(100),
                        Duration::from_secs(3),
                    ],
                    given => given.to_vec(),
                };
                let waiting = |delay: &Duration| match delay.as_millis() {
                    0 => USERS,
                    // As many as one core serves: each has two screens for a wait.
                    1..1000 => 200,
                    _ => 3000,
                };
                let cases = delays.iter().flat_map(|delay| {
                    let users = options.or(&options.users, &[waiting(delay)], &[waiting(delay)]);
                    users.into_iter().map(move |users| Case {
                        delay_ms: delay.as_secs_f64() * 1e3,
                        variant: Variant::Queues(3),
                        ..case(users)
                    })
                });
                cases.collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_have_their_cases() {
        let arguments = UssdArgs {
            think: Duration::from_millis(200),
            sessions: SESSIONS,
            ..UssdArgs::default()
        };
        let plan = arguments.plan();
        let cases = plan.parts.into_iter().flat_map(|part| part.cases);
        let labels: Vec<String> = cases
            .map(|case| format!("{}: {}", case.scenario, case.label()))
            .collect();
        assert_eq!(
            labels,
            [
                "menu: 100 users, 120 B",
                "menu: 100 users, 120 B, 5000/s",
                "menu: 1000 users, 120 B, 200 ms before each key",
                "menu-sessions: 32 users, 120 B, 100000 sessions",
                "menu-complex: 100 users, 116 B",
                "menu-latency: 100 in flight, 104 B, 3 queues",
                "menu-latency: 200 in flight, 104 B, delay 100 ms, 3 queues",
                "menu-latency: 3000 in flight, 104 B, delay 3000 ms, 3 queues",
            ]
        );
    }
}
