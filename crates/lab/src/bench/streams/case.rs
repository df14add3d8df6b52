//! What is measured of streams: the rows of two published tables, and cases of our own.

use serde::{Deserialize, Serialize};

use crate::document::Shape;

/// How subscribers are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transport {
    #[default]
    Sse,
    WebSocket,
}

/// Where events come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Feed {
    /// The system polls documents that are renewed at each call.
    Poll,
    /// Each event is posted.
    #[default]
    Post,
    /// Clients send messages, and a service behind the system answers them.
    Echo,
    /// From nowhere: connections are idle.
    Nothing,
}

/// What subscribers get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// A document, then what changes of it.
    Patch,
    /// The whole document each time.
    Snapshot,
    /// Events that have nothing to do with each other.
    #[default]
    Event,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Patch => "patch",
            Self::Snapshot => "snapshot",
            Self::Event => "event",
        }
    }
}

/// Where an event is before its publisher is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Durability {
    /// On the disk.
    Disk,
    /// In memory.
    #[default]
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
    pub transport: Transport,
    pub feed: Feed,
    pub mode: Mode,
    pub durability: Durability,
    /// Subscribers, or clients.
    pub users: usize,
    pub topics: usize,
    /// The bytes of a document, an event's data or a message.
    pub bytes: usize,
    /// The distance between events of a topic, or between messages of a client; 0: as fast as they
    /// are taken.
    pub period_ms: f64,
    /// Users beside the others that never read.
    #[serde(default)]
    pub stalled: usize,
    /// How many events are on their way at once, without a period.
    #[serde(default)]
    pub window: usize,
    /// Credentials of others that expire in a minute.
    #[serde(default, skip_serializing_if = "is_none")]
    pub expiring: usize,
    /// Credentials of others that are revoked in a minute.
    #[serde(default, skip_serializing_if = "is_none")]
    pub revoked: usize,
    /// The number of users in the table, where one load core cannot have as many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled_from: Option<usize>,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

impl Case {
    /// The case in words, without the scenario.
    pub fn label(&self) -> String {
        let mut text = format!("{} users", self.users);
        if let Some(users) = self.scaled_from {
            text.push_str(&format!(" (SCALED from {users})"));
        }
        match self.transport {
            Transport::Sse => text.push_str(", SSE"),
            Transport::WebSocket => text.push_str(", WebSocket"),
        }
        match self.feed {
            Feed::Nothing => return text + ", idle",
            Feed::Echo => {}
            Feed::Poll | Feed::Post if self.topics == 1 => text.push_str(", 1 topic"),
            Feed::Poll | Feed::Post => text.push_str(&format!(", {} topics", self.topics)),
        }
        text.push_str(&format!(", {} B", self.bytes));
        match self.window {
            0 => text.push_str(&format!(", every {} ms", self.period_ms)),
            window => text.push_str(&format!(", {window} on the way")),
        }
        match self.feed {
            Feed::Poll => text.push_str(&format!(", polled, {}", self.mode.name())),
            Feed::Post if self.mode != Mode::Event => {
                text.push_str(&format!(", {}", self.mode.name()))
            }
            _ => {}
        }
        if self.feed != Feed::Echo {
            text.push_str(&format!(", {}", self.durability.name()));
        }
        if self.stalled > 0 {
            text.push_str(&format!(", {} beside them do not read", self.stalled));
        }
        if self.expiring > 0 {
            text.push_str(&format!(", {} credentials expire a minute", self.expiring));
        }
        if self.revoked > 0 {
            text.push_str(&format!(", {} are revoked", self.revoked));
        }
        text
    }

    /// How many deliveries, or answers, should come in a second; `None` without a period.
    pub fn offered(&self) -> Option<f64> {
        (self.period_ms > 0.0).then(|| self.users as f64 * 1e3 / self.period_ms)
    }

    /// Whether clients need credentials whoever serves them.
    pub fn is_locked(&self) -> bool {
        self.scenario == "turnover"
    }

    /// The same without credentials that end.
    pub fn without_turnover(&self) -> Self {
        Self {
            expiring: 0,
            revoked: 0,
            ..self.clone()
        }
    }

    /// The documents of the source.
    pub fn shape(&self) -> Shape {
        Shape::new(self.bytes, RENEWED)
    }

    /// The bytes that one delivery has about, without what is around it.
    pub fn delivery_bytes(&self) -> usize {
        match self.mode {
            Mode::Patch => self.shape().patch_bytes(),
            Mode::Snapshot | Mode::Event => self.bytes,
        }
    }

    /// The same bursts for the write loop: as many topics with as many subscribers, and events as
    /// large as these.
    pub fn for_floor(&self) -> Self {
        let mut case = self.clone();
        if self.feed == Feed::Poll {
            case.bytes = self.delivery_bytes();
            case.feed = Feed::Post;
        }
        case.mode = Mode::Event;
        case.durability = Durability::Memory;
        case
    }

    /// Leaves users out that one load core could not read, a million bytes a second at most.
    fn fitted(mut self, most: f64) -> Self {
        let each = self.delivery_bytes() as f64 / 1e6;
        let Some(offered) = self.offered() else {
            return self;
        };
        let part = most / (offered * each).max(f64::MIN_POSITIVE);
        if part < 1.0 {
            let users = (self.users as f64 * part) as usize;
            self.scaled_from = Some(self.users);
            self.users = (users / self.topics.max(1)).max(1) * self.topics.max(1);
        }
        self
    }
}

/// How many percent of a document are new at each poll, as in Axway's tests.
pub(crate) const RENEWED: u8 = 20;

/// A published row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Published {
    pub whose: &'static str,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
    pub throughput: Option<f64>,
    pub failed: Option<u64>,
    pub error_percent: Option<f64>,
}

const AXWAY: &str = include_str!("../../../published/axway-streams.csv");
const WSO2: &str = include_str!("../../../published/mware-esb.csv");

/// Everything that can be measured.
pub(crate) const SCENARIOS: [(&str, &str); 9] = [
    (
        "axway-sse",
        "Axway Streams: documents polled, subscribers by SSE",
    ),
    ("wso2-sse", "WSO2: 5,000 subscribers by SSE"),
    (
        "wso2-websocket",
        "WSO2: WebSocket messages through to a service that reverses them",
    ),
    ("hot-topic", "Everybody on one topic"),
    ("saturation", "One topic as fast as it goes"),
    ("idle", "Connections on which nothing happens"),
    ("stalled", "Readers that stop reading, beside good ones"),
    (
        "turnover",
        "Credentials that expire and are revoked, beside subscribers that stay",
    ),
    ("floor", "Bursts, compared with a bare write loop"),
];

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    pub scenarios: Vec<String>,
    pub mode: Option<Mode>,
    pub durability: Option<Durability>,
    pub users: Vec<usize>,
    pub topics: Vec<usize>,
    pub bytes: Vec<usize>,
    /// In milliseconds.
    pub periods: Vec<f64>,
    /// What one load core can read, in millions of bytes a second.
    pub load_max: f64,
}

impl Choice {
    /// The cases, in the order of the scenarios.
    pub fn cases(&self) -> Vec<Case> {
        let is_chosen = |name: &str| {
            self.scenarios.is_empty() || self.scenarios.iter().any(|chosen| chosen == name)
        };
        let names = SCENARIOS.iter().map(|(name, _)| *name);
        let cases = names
            .filter(|name| is_chosen(name))
            .flat_map(|name| self.of(name));
        cases.map(|case| case.fitted(self.load_max)).collect()
    }

    fn of(&self, scenario: &str) -> Vec<Case> {
        match scenario {
            "axway-sse" => self.rows(axway()),
            "wso2-sse" | "wso2-websocket" => self.rows(wso2(scenario)),
            "hot-topic" => self.hot_topic(),
            "saturation" => self.each(&[2000], &[82], &[0.0], |case| case.window = 4),
            "idle" => self.idle(),
            "stalled" => self.stalled(),
            "turnover" => self.turnover(),
            _ => self.each(&[100, 1000, 3000, 5000], &[82, 20_000], &[1000.0], |_| {}),
        }
        .into_iter()
        .map(|case| Case {
            scenario: scenario.to_owned(),
            ..case
        })
        .collect()
    }

    /// Published rows that are asked for.
    fn rows(&self, rows: Vec<Case>) -> Vec<Case> {
        let has = |wanted: &[usize], it: usize| wanted.is_empty() || wanted.contains(&it);
        let rows = rows.into_iter().filter(|case| {
            has(&self.users, case.users)
                && has(&self.bytes, case.bytes)
                && has(&self.topics, case.topics)
                && (self.periods.is_empty() || self.periods.contains(&case.period_ms))
        });
        rows.map(|mut case| {
            if case.feed == Feed::Poll {
                case.mode = self
                    .mode
                    .filter(|mode| *mode != Mode::Event)
                    .unwrap_or(case.mode);
            }
            case.durability = self.durability.unwrap_or(case.durability);
            case
        })
        .collect()
    }

    /// Events that are posted, for all combinations.
    fn each(
        &self,
        users: &[usize],
        bytes: &[usize],
        periods: &[f64],
        change: impl Fn(&mut Case),
    ) -> Vec<Case> {
        let or = |given: &[usize], default: &[usize]| match given {
            [] => default.to_vec(),
            _ => given.to_vec(),
        };
        let periods = match self.periods.as_slice() {
            [] => periods,
            given => given,
        };
        let topics = self.topics.first().copied().unwrap_or(1);
        let mut cases = Vec::new();
        for users in or(&self.users, users) {
            for bytes in or(&self.bytes, bytes) {
                for period_ms in periods {
                    let mut case = Case {
                        users,
                        bytes,
                        topics,
                        period_ms: *period_ms,
                        durability: self.durability.unwrap_or_default(),
                        ..Case::default()
                    };
                    change(&mut case);
                    cases.push(case);
                }
            }
        }
        cases
    }

    fn hot_topic(&self) -> Vec<Case> {
        let modes = match self.mode {
            Some(mode) => vec![mode],
            None => vec![Mode::Patch, Mode::Event],
        };
        let of = |mode: Mode| {
            self.each(&[3000], &[20_000, 50_000], &[500.0, 1000.0], |case| {
                case.mode = mode;
                if mode != Mode::Event {
                    case.feed = Feed::Poll;
                }
            })
        };
        modes.into_iter().flat_map(of).collect()
    }

    fn idle(&self) -> Vec<Case> {
        let of = |transport: Transport| {
            self.each(&[15_000], &[0], &[0.0], |case| {
                case.feed = Feed::Nothing;
                case.transport = transport;
            })
        };
        [Transport::Sse, Transport::WebSocket]
            .into_iter()
            .flat_map(of)
            .collect()
    }

    fn stalled(&self) -> Vec<Case> {
        let of = |part: usize| {
            self.each(&[1000], &[2000], &[50.0], |case| {
                case.stalled = case.users * part
            })
        };
        [0, 1].into_iter().flat_map(of).collect()
    }
}

impl Choice {
    /// The same subscribers alone, beside credentials that expire, and beside some that are revoked
    /// too.
    fn turnover(&self) -> Vec<Case> {
        let of = |(expiring, revoked): (usize, usize)| {
            self.each(&[5000], &[82], &[100.0], |case| {
                case.expiring = expiring;
                case.revoked = revoked;
            })
        };
        [(0, 0), (1000, 0), (1000, 100)]
            .into_iter()
            .flat_map(of)
            .collect()
    }
}

fn lines(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    table.lines().skip(1).map(|line| line.split(',').collect())
}

fn cell<T: std::str::FromStr>(line: &[&str], column: usize) -> Option<T> {
    line.get(column)?.parse().ok()
}

fn axway() -> Vec<Case> {
    let rows = lines(AXWAY).filter(|line| line.first() == Some(&"sse-http-poller"));
    let case = |line: Vec<&str>| {
        Some(Case {
            feed: Feed::Poll,
            mode: Mode::Patch,
            durability: Durability::Disk,
            users: cell(&line, 1)?,
            topics: cell(&line, 2)?,
            bytes: cell(&line, 3)?,
            period_ms: cell(&line, 4)?,
            ..Case::default()
        })
    };
    rows.filter_map(case).collect()
}

fn wso2(scenario: &str) -> Vec<Case> {
    let kind = scenario.trim_start_matches("wso2-");
    let rows = lines(WSO2).filter(|line| line.first() == Some(&kind));
    let case = |line: Vec<&str>| {
        let rate: f64 = cell(&line, 2)?;
        let (transport, feed) = match kind {
            "sse" => (Transport::Sse, Feed::Post),
            _ => (Transport::WebSocket, Feed::Echo),
        };
        Some(Case {
            transport,
            feed,
            users: cell(&line, 1)?,
            topics: 1,
            bytes: cell(&line, 3)?,
            period_ms: 1e3 / rate,
            ..Case::default()
        })
    };
    let mut cases: Vec<Case> = rows.filter_map(case).collect();
    if kind == "websocket" {
        // More than anybody has published.
        cases.extend(cases.last().cloned().map(|last| Case {
            users: 1000,
            bytes: 500,
            ..last
        }));
    }
    cases
}

/// The published row of a case, if there is one.
pub(crate) fn published(case: &Case) -> Option<Published> {
    let users = case.scaled_from.unwrap_or(case.users);
    match case.scenario.as_str() {
        "axway-sse" => lines(AXWAY).find_map(|line| {
            let is_it = line.first() == Some(&"sse-http-poller")
                && cell(&line, 1) == Some(users)
                && cell(&line, 2) == Some(case.topics)
                && cell(&line, 3) == Some(case.bytes)
                && cell(&line, 4) == Some(case.period_ms);
            is_it.then(|| Published {
                whose: "Axway Streams",
                p99_ms: cell(&line, 5),
                max_ms: cell(&line, 6),
                throughput: cell(&line, 7),
                ..Published::default()
            })
        }),
        "wso2-sse" | "wso2-websocket" => lines(WSO2).find_map(|line| {
            let kind = case.scenario.trim_start_matches("wso2-");
            let is_it = line.first() == Some(&kind)
                && cell(&line, 1) == Some(users)
                && cell(&line, 3) == Some(case.bytes)
                && cell::<f64>(&line, 2).map(|rate| 1e3 / rate) == Some(case.period_ms);
            is_it.then(|| Published {
                whose: "WSO2",
                failed: cell(&line, 4),
                error_percent: cell(&line, 5),
                ..Published::default()
            })
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(scenarios: &[&str]) -> Choice {
        Choice {
            scenarios: scenarios.iter().map(|name| (*name).to_owned()).collect(),
            load_max: 200.0,
            ..Choice::default()
        }
    }

    #[test]
    fn published_rows_are_all_there() {
        let cases = choice(&["axway-sse"]).cases();
        assert_eq!(cases.len(), 16);
        assert!(
            cases
                .iter()
                .all(|case| published(case).is_some_and(|row| row.p99_ms.is_some()))
        );
        let first = published(&cases[0]).unwrap();
        assert_eq!((first.p99_ms, first.max_ms), (Some(21.0), Some(250.0)));
        assert_eq!(choice(&["wso2-sse"]).cases().len(), 1);
        let grid = choice(&["wso2-websocket"]).cases();
        let (last, grid) = grid.split_last().unwrap();
        assert_eq!(grid.len(), 22);
        assert!(
            grid.iter()
                .all(|case| published(case).is_some_and(|row| row.failed.is_some()))
        );
        assert_eq!(grid.last().unwrap().offered(), Some(6000.0));
        assert_eq!((last.offered(), last.bytes), (Some(10_000.0), 500));
        assert!(published(last).is_none());
    }

    #[test]
    fn what_is_too_much_is_scaled_and_told() {
        let mut choice = choice(&["axway-sse"]);
        choice.mode = Some(Mode::Snapshot);
        let first = &choice.cases()[0];
        assert_eq!((first.users, first.scaled_from), (2000, Some(3000)));
        assert!(
            first.label().contains("2000 users (SCALED from 3000)"),
            "{}",
            first.label()
        );
        assert!(published(first).is_some());
        choice.mode = None;
        assert_eq!(choice.cases()[0].scaled_from, None);
    }

    #[test]
    fn rows_are_chosen() {
        let mut choice = choice(&["axway-sse", "saturation"]);
        choice.users = vec![100];
        choice.bytes = vec![20_000];
        let cases = choice.cases();
        assert_eq!(cases.len(), 5, "{cases:?}");
        let label = cases[4].label();
        assert_eq!(
            label,
            "100 users, SSE, 1 topic, 20000 B, 4 on the way, memory"
        );
    }

    #[test]
    fn all_scenarios_have_cases_with_names_of_their_own() {
        let cases = choice(&[]).cases();
        for (name, _) in SCENARIOS {
            assert!(cases.iter().any(|case| case.scenario == name), "{name}");
        }
        let mut labels: Vec<String> = cases
            .iter()
            .map(|case| format!("{} {}", case.scenario, case.label()))
            .collect();
        labels.sort();
        let count = labels.len();
        labels.dedup();
        assert_eq!(labels.len(), count);
    }

    #[test]
    fn the_floor_writes_the_same_burst() {
        let case = &choice(&["axway-sse"]).cases()[0];
        let floor = case.for_floor();
        assert_eq!(
            (floor.users, floor.topics, floor.feed),
            (3000, 100, Feed::Post)
        );
        assert!((12_000..16_000).contains(&floor.bytes));
    }
}
