//! What is measured of push delivery: the rows of two published tables, and cases of our own.

use serde::{Deserialize, Serialize};

/// Who gets events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Endpoints that a file names.
    #[default]
    Webhooks,
    /// Subscribers of a WebSub hub.
    WebSub,
    /// Webhooks that users have made by REST, to which nothing is sent for a long time.
    Idle,
    /// Endpoints that a file names, and one more that comes back when many events wait for it.
    CatchUp,
}

/// Where an event is before its publisher is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Durability {
    #[default]
    Disk,
    Memory,
}

impl Durability {
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Memory => "memory",
        }
    }
}

/// One row: its systems are compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Case {
    pub scenario: String,
    pub kind: Kind,
    /// Endpoints of all topics together.
    pub endpoints: usize,
    pub topics: usize,
    /// The bytes of an event.
    pub bytes: usize,
    /// The distance between events of a topic; 0: as fast as they are delivered.
    pub period_ms: f64,
    /// How many events are on their way at once, without a period.
    #[serde(default)]
    pub window: usize,
    /// How many events wait for the endpoint that was away.
    #[serde(default)]
    pub backlog: u64,
    pub is_signed: bool,
    /// Whether the sink closes the connection behind each answer.
    #[serde(default)]
    pub closes: bool,
    #[serde(default)]
    pub is_tls: bool,
    pub durability: Durability,
}

impl Case {
    /// The case in words, without the scenario.
    pub fn label(&self) -> String {
        let what = match self.kind {
            Kind::Webhooks | Kind::CatchUp => "endpoints",
            Kind::WebSub => "subscribers",
            Kind::Idle => return format!("{} webhooks by REST, idle", self.endpoints),
        };
        let mut text = format!("{} {what}", self.endpoints);
        match self.topics {
            1 => text.push_str(", 1 topic"),
            topics => text.push_str(&format!(", {topics} topics")),
        }
        text.push_str(&format!(", {} B", self.bytes));
        match self.window {
            0 => text.push_str(&format!(", every {} ms", self.period_ms)),
            window => text.push_str(&format!(", {window} on the way")),
        }
        if self.kind == Kind::CatchUp {
            text.push_str(&format!(", {} for one that was away", self.backlog));
        }
        text.push_str(match self.is_signed {
            true => ", signed",
            false => ", unsigned",
        });
        if self.is_tls {
            text.push_str(", TLS");
        }
        if self.closes {
            text.push_str(", a new connection each");
        }
        text + ", " + self.durability.name()
    }

    /// How many endpoints each topic has.
    pub fn endpoints_each(&self) -> usize {
        self.endpoints / self.topics.max(1)
    }

    /// How many deliveries should come in a second; `None` without a period.
    pub fn offered(&self) -> Option<f64> {
        (self.period_ms > 0.0).then(|| self.endpoints as f64 * 1e3 / self.period_ms)
    }

    /// How many events a topic has in so many seconds, one at least.
    pub fn events_in(&self, seconds: f64) -> u64 {
        match self.period_ms {
            period if period > 0.0 => ((seconds * 1e3 / period) as u64).max(1),
            _ => 0,
        }
    }
}

/// A published row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Published {
    pub whose: &'static str,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
    pub throughput: Option<f64>,
    pub failed: Option<u64>,
}

const AXWAY: &str = include_str!("../../../published/axway-streams.csv");
const WSO2: &str = include_str!("../../../published/mware-esb.csv");

/// Everything that can be measured.
pub(crate) const SCENARIOS: [(&str, &str); 8] = [
    ("axway", "Axway Streams: documents posted, webhooks out"),
    ("hot-topic", "750 endpoints on one topic"),
    ("websub", "10,000 subscribers of a WebSub hub"),
    (
        "disturbed",
        "One endpoint that hangs, one that answers 500 and one that flaps, beside others",
    ),
    ("tls", "Webhooks over TLS"),
    (
        "cost",
        "As fast as it goes, beside a loop that sends and signs",
    ),
    (
        "catch-up",
        "An endpoint that comes back to millions of events, beside others",
    ),
    ("idle", "Webhooks of users to which nothing is sent"),
];

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    pub scenarios: Vec<String>,
    /// All published rows and all sizes, not a part of them.
    pub is_full: bool,
    pub durability: Option<Durability>,
    pub endpoints: Vec<usize>,
    pub topics: Vec<usize>,
    pub bytes: Vec<usize>,
    /// In milliseconds.
    pub periods: Vec<f64>,
}

impl Choice {
    /// The cases, in the order of the scenarios.
    pub fn cases(&self) -> Vec<Case> {
        let is_chosen = |name: &str| {
            self.scenarios.is_empty() || self.scenarios.iter().any(|chosen| chosen == name)
        };
        let names = SCENARIOS.iter().map(|(name, _)| *name);
        let named = |name: &'static str| {
            let cases = self.of(name).into_iter();
            cases.map(move |case| Case {
                scenario: name.to_owned(),
                durability: self.durability.unwrap_or(case.durability),
                ..case
            })
        };
        names
            .filter(|name| is_chosen(name))
            .flat_map(named)
            .collect()
    }

    fn of(&self, scenario: &str) -> Vec<Case> {
        match scenario {
            "axway" => self.rows(),
            "hot-topic" => [true, false]
                .into_iter()
                .flat_map(|is_signed| {
                    let sizes = [20_000, 50_000];
                    self.each(750, &sizes, 1000.0, |case| case.is_signed = is_signed)
                })
                .collect(),
            "websub" => [false, true]
                .into_iter()
                .flat_map(|closes| {
                    self.each(10_000, &[8000], 2000.0, |case| {
                        case.kind = Kind::WebSub;
                        case.is_signed = true;
                        case.closes = closes;
                    })
                })
                .collect(),
            "disturbed" => self.each(200, &[20_000], 200.0, |case| case.is_signed = true),
            "tls" => self.each(750, &[20_000], 1000.0, |case| {
                case.is_signed = true;
                case.is_tls = true;
            }),
            "cost" => self.each(100, &[400, 20_000, 50_000], 0.0, |case| {
                case.is_signed = true;
                case.window = 4;
            }),
            "catch-up" => self.each(50, &[400], 50.0, |case| {
                case.kind = Kind::CatchUp;
                case.is_signed = true;
                case.backlog = if self.is_full { 3_600_000 } else { 400_000 };
            }),
            _ => {
                let count = if self.is_full { 100_000 } else { 10_000 };
                // Their secrets are the engine's, so that the sink cannot check signatures.
                self.each(count, &[400], 0.0, |case| case.kind = Kind::Idle)
            }
        }
    }

    /// Published rows that are asked for; of a short run those with the most endpoints.
    fn rows(&self) -> Vec<Case> {
        let has = |wanted: &[usize], it: usize| wanted.is_empty() || wanted.contains(&it);
        let filters = [&self.endpoints, &self.bytes, &self.topics];
        let is_asked = filters.iter().any(|it| !it.is_empty()) || !self.periods.is_empty();
        let rows = axway().into_iter().filter(|case| {
            has(&self.endpoints, case.endpoints)
                && has(&self.bytes, case.bytes)
                && has(&self.topics, case.topics)
                && (self.periods.is_empty() || self.periods.contains(&case.period_ms))
                && (self.is_full || is_asked || is_telling(case))
        });
        rows.collect()
    }

    /// Cases on one topic, or as many as were asked for, for all sizes.
    fn each(
        &self,
        endpoints: usize,
        bytes: &[usize],
        period: f64,
        change: impl Fn(&mut Case),
    ) -> Vec<Case> {
        let or = |given: &[usize], usual: &[usize]| match given {
            [] => usual.to_vec(),
            _ => given.to_vec(),
        };
        let mut cases = Vec::new();
        for endpoints in or(&self.endpoints, &[endpoints]) {
            for bytes in or(&self.bytes, bytes) {
                let mut case = Case {
                    endpoints,
                    bytes,
                    topics: 1,
                    period_ms: period,
                    ..Case::default()
                };
                change(&mut case);
                if let Some(period) = self.periods.first().filter(|_| period > 0.0) {
                    case.period_ms = *period;
                }
                if !cases.contains(&case) {
                    cases.push(case);
                }
            }
        }
        cases
    }
}

/// Whether a short run has a published row: the largest of each kind.
fn is_telling(case: &Case) -> bool {
    let telling = [
        (750, 1, 20_000, 1000.0),
        (200, 200, 20_000, 1000.0),
        (750, 1, 50_000, 2000.0),
        (500, 500, 50_000, 2000.0),
    ];
    telling.contains(&(case.endpoints, case.topics, case.bytes, case.period_ms))
}

fn lines(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    table.lines().skip(1).map(|line| line.split(',').collect())
}

fn cell<T: std::str::FromStr>(line: &[&str], column: usize) -> Option<T> {
    line.get(column)?.parse().ok()
}

/// Their users are the endpoints of all topics together.
fn axway() -> Vec<Case> {
    let rows = lines(AXWAY).filter(|line| line.first() == Some(&"webhook-http-post"));
    let case = |line: Vec<&str>| {
        Some(Case {
            endpoints: cell(&line, 1)?,
            topics: cell(&line, 2)?,
            bytes: cell(&line, 3)?,
            period_ms: cell(&line, 4)?,
            ..Case::default()
        })
    };
    rows.filter_map(case).collect()
}

/// The published row of a case, if there is one. Those of Axway are of webhooks without a
/// signature.
pub(crate) fn published(case: &Case) -> Option<Published> {
    match case.scenario.as_str() {
        "axway" | "hot-topic" | "tls" => lines(AXWAY).find_map(|line| {
            let is_it = line.first() == Some(&"webhook-http-post")
                && cell(&line, 1) == Some(case.endpoints)
                && cell(&line, 2) == Some(case.topics)
                && cell(&line, 3) == Some(case.bytes)
                && cell(&line, 4) == Some(case.period_ms);
            is_it.then(|| Published {
                whose: "Axway Streams",
                p99_ms: cell(&line, 5),
                max_ms: cell(&line, 6),
                throughput: cell(&line, 7),
                failed: None,
            })
        }),
        "websub" => lines(WSO2).find_map(|line| {
            let is_it = line.first() == Some(&"websub")
                && cell(&line, 1) == Some(case.endpoints)
                && cell(&line, 3) == Some(case.bytes);
            is_it.then(|| Published {
                whose: "MWARE ESB",
                failed: cell(&line, 4),
                ..Published::default()
            })
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(scenarios: &[&str], is_full: bool) -> Choice {
        Choice {
            scenarios: scenarios.iter().map(|name| (*name).to_owned()).collect(),
            is_full,
            ..Choice::default()
        }
    }

    #[test]
    fn published_rows_are_all_there() {
        let cases = choice(&["axway"], true).cases();
        assert_eq!(cases.len(), 22);
        let p99 = |case: &Case| published(case).and_then(|row| row.p99_ms);
        assert!(cases.iter().all(|case| p99(case).is_some()));
        assert!(cases.iter().all(|case| case.endpoints % case.topics == 0));
        assert_eq!(
            (p99(&cases[0]), cases[0].offered()),
            (Some(76.0), Some(50.0))
        );
        assert_eq!(choice(&["axway"], false).cases().len(), 4);
        let websub = &choice(&["websub"], false).cases()[0];
        assert_eq!(published(websub).and_then(|row| row.failed), Some(0));
    }

    #[test]
    fn rows_are_chosen() {
        let mut choice = choice(&["axway", "cost"], false);
        choice.endpoints = vec![500];
        choice.bytes = vec![20_000];
        let cases = choice.cases();
        let labels: Vec<String> = cases.iter().map(Case::label).collect();
        let wanted = [
            "500 endpoints, 500 topics, 20000 B, every 2000 ms, unsigned, disk",
            "500 endpoints, 1 topic, 20000 B, 4 on the way, signed, disk",
        ];
        assert_eq!(labels, wanted);
    }

    #[test]
    fn all_scenarios_have_cases_with_names_of_their_own() {
        for is_full in [false, true] {
            let cases = choice(&[], is_full).cases();
            for (name, _) in SCENARIOS {
                assert!(cases.iter().any(|case| case.scenario == name), "{name}");
            }
            let label = |case: &Case| format!("{} {}", case.scenario, case.label());
            let mut labels: Vec<String> = cases.iter().map(label).collect();
            labels.sort();
            let count = labels.len();
            labels.dedup();
            assert_eq!(labels.len(), count);
        }
    }

    #[test]
    fn a_sample_has_one_event_at_least() {
        let case = Case {
            period_ms: 2000.0,
            ..Case::default()
        };
        assert_eq!((case.events_in(0.5), case.events_in(5.0)), (1, 2));
    }
}
