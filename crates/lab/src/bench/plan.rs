//! Arguments of `intertie bench http`, and the cases that they mean.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;

use super::results::Case;
use super::scenario::{self, ALL, Scenario, System};
use super::system::Programs;
use crate::units::{self, Streams};

/// Arguments of `intertie bench http`.
#[derive(Debug, Default, clap::Args)]
pub(super) struct HttpArgs {
    /// `short` ends in two minutes; `full` has all published cases, and takes hours.
    #[arg(long, value_enum, default_value_t)]
    pub profile: Profile,
    /// Only these scenarios.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = scenario::names())]
    pub scenario: Vec<String>,
    /// Users at once, each with one request at a time.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub users: Vec<usize>,
    /// Bytes of a request's body.
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    pub sizes: Vec<usize>,
    /// How long the back end waits before each reply.
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = units::duration)]
    pub delays: Vec<Duration>,
    /// For HTTP/2, in place of --users: connections x requests at once on each.
    #[arg(long, value_name = "CxS", value_delimiter = ',')]
    pub streams: Vec<Streams>,
    /// How often each system takes its turn.
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// The length of a sample.
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// How long load runs before a sample.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub warm_up: Option<Duration>,
    /// Requests a second whatever the replies do; latency counts from when each was due.
    #[arg(long, value_name = "N")]
    pub rate: Option<f64>,
    /// Other proxies beside it, or `none`; all that are found when not given.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    #[arg(value_parser = ["nginx", "haproxy", "envoy", "none"])]
    pub peers: Vec<String>,
    /// Only these systems; `direct` is stub and generator alone.
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    pub system: Vec<System>,
    /// The Intertie that is measured; this one when not given.
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
    /// The folder for results.json and report.html.
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    pub out: PathBuf,
}

/// How much is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Profile {
    /// 100 users, 50 B, no delay, samples of 0.8 s.
    #[default]
    Short,
    /// 100, 300 and 1000 users, 50 B and 1 KB, without and with a delay.
    Full,
}

impl HttpArgs {
    pub fn rounds(&self) -> usize {
        let default = if self.is_full() { 3 } else { 2 };
        self.rounds.unwrap_or(default).max(1)
    }

    pub fn window(&self) -> Duration {
        let default = if self.is_full() { 3.0 } else { 0.8 };
        let seconds = self.seconds.unwrap_or(default);
        Duration::try_from_secs_f64(seconds)
            .unwrap_or(Duration::from_secs(1))
            .max(Duration::from_millis(100))
    }

    pub fn warm_up(&self) -> Duration {
        let default = if self.is_full() { 1000 } else { 250 };
        self.warm_up.unwrap_or(Duration::from_millis(default))
    }

    fn is_full(&self) -> bool {
        self.profile == Profile::Full
    }

    /// How often stub and generator are measured alone in a case: they vary little, and a short run
    /// has no time.
    pub fn direct_rounds(&self) -> usize {
        if self.is_full() { self.rounds() } else { 1 }
    }

    pub fn scenarios(&self) -> Vec<&'static Scenario> {
        let is_meant = |it: &&Scenario| self.scenario.is_empty() || self.is_named(it.name);
        ALL.iter().filter(is_meant).collect()
    }

    fn is_named(&self, name: &str) -> bool {
        self.scenario.iter().any(|chosen| chosen == name)
    }

    /// The systems, in the order of their turns.
    ///
    /// # Errors
    /// When a peer was asked for and is not there.
    pub fn systems(&self, programs: &Programs) -> anyhow::Result<Vec<System>> {
        if !self.system.is_empty() {
            return Ok(self.system.clone());
        }
        let mut systems = vec![System::Intertie, System::Passthrough, System::Floor];
        for peer in [System::HaProxy, System::Nginx, System::Envoy] {
            let is_asked = self.peers.iter().any(|name| name == peer.name());
            let is_there = programs.find(peer).is_some();
            if is_asked && !is_there {
                let name = peer.name();
                let variable = name.to_uppercase();
                bail!("{name} was not found: put it into the path, or name its file in {variable}");
            }
            if is_there && (is_asked || self.peers.is_empty()) {
                systems.push(peer);
            }
        }
        systems.push(System::Direct);
        Ok(systems)
    }

    /// The cases of a scenario.
    pub fn cases(&self, scenario: &Scenario) -> Vec<Case> {
        let full = self.is_full();
        let or = |given: &[usize], short: &[usize], long: &[usize]| match given {
            [] if full => long.to_vec(),
            [] => short.to_vec(),
            _ => given.to_vec(),
        };
        let users = or(&self.users, &[100], &[100, 300, 1000]);
        let sizes = or(&self.sizes, &[50], &[50, 1024]);
        let delays = match self.delays.as_slice() {
            [] if full => vec![Duration::ZERO, Duration::from_millis(30)],
            [] => vec![Duration::ZERO],
            given => given.to_vec(),
        };
        let mut cases = Vec::new();
        for delay in &delays {
            for streams in self.streams_of(scenario, &users) {
                for bytes in &sizes {
                    cases.push(Case {
                        scenario: scenario.name.to_owned(),
                        streams,
                        bytes: *bytes,
                        delay_ms: delay.as_secs_f64() * 1e3,
                        rate: self.rate,
                    });
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
        arguments.profile = Profile::Full;
        assert_eq!(labels(&arguments, "h1c").len(), 3 * 2 * 2);
        let h2 = labels(&arguments, "h2-h2");
        assert_eq!(h2.len(), 4 * 2 * 2);
        assert!(h2.contains(&"1000 users (10x100), 1024 B, delay 30 ms".to_owned()));
    }

    #[test]
    fn arguments_narrow_the_cases() {
        let arguments = HttpArgs {
            scenario: vec!["h2-h2".to_owned()],
            streams: vec!["4x5".parse().unwrap()],
            sizes: vec![100],
            rate: Some(9.0),
            ..HttpArgs::default()
        };
        let scenarios = arguments.scenarios();
        assert_eq!(scenarios.len(), 1);
        let cases = arguments.cases(scenarios[0]);
        assert_eq!(cases.len(), 1);
        assert_eq!(cases[0].label(), "20 users (4x5), 100 B, 9/s");
        assert_eq!(arguments.rounds(), 2);
    }
}
