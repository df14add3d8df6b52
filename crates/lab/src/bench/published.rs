//! The published table of Ballerina: closed loop, 4 vCPU, a real network.

use super::results::Case;
use super::scenario;

const TABLE: &str = include_str!("../../published/ballerina.csv");

/// One row of the published table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Published {
    pub throughput: f64,
    pub mean: f64,
    pub stddev: f64,
    pub p99: f64,
    pub errors: f64,
    pub memory_mb: f64,
}

/// The published row of a case, if there is one.
pub(crate) fn find(case: &Case) -> Option<Published> {
    let title = scenario::find(&case.scenario)?.title;
    let users = case.streams.users().to_string();
    let bytes = case.bytes.to_string();
    let delay = case.delay_ms.to_string();
    TABLE.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        let is_it = case.rate.is_none()
            && matches!(fields.as_slice(), [name, u, b, d, ..]
                if *name == title && *u == users && *b == bytes && *d == delay);
        is_it.then(|| row(&fields)).flatten()
    })
}

fn row(fields: &[&str]) -> Option<Published> {
    let number = |index: usize| fields.get(index)?.trim().parse::<f64>().ok();
    Some(Published {
        errors: number(4)?,
        throughput: number(5)?,
        mean: number(6)?,
        stddev: number(7)?,
        p99: number(8)?,
        memory_mb: number(10)?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::results::Variant;
    use super::*;
    use crate::units::Streams;

    #[test]
    fn every_scenario_is_published() {
        // Nobody has published many clients over few connections.
        let own = |it: &&scenario::Scenario| it.back == scenario::Side::H2Clear;
        for scenario in scenario::HTTP.iter().filter(|it| !own(it)) {
            for (users, bytes) in [(100, 50), (300, 1024), (1000, 50)] {
                let case = Case {
                    scenario: scenario.name.to_owned(),
                    streams: Streams::single(users),
                    bytes,
                    delay_ms: 0.0,
                    rate: None,
                    variant: Variant::Plain,
                };
                assert!(find(&case).is_some(), "{case:?}");
                let other = Case { bytes: 51, ..case };
                assert_eq!(find(&other), None);
            }
        }
    }

    #[test]
    fn figures_are_those_of_the_table() {
        let case = Case {
            scenario: "json-xml".to_owned(),
            streams: "10x30".parse().unwrap(),
            bytes: 1024,
            delay_ms: 0.0,
            rate: None,
            variant: Variant::Plain,
        };
        let row = find(&case).unwrap();
        assert_eq!((row.throughput, row.mean, row.p99), (10512.62, 28.48, 94.0));
        assert_eq!((row.stddev, row.memory_mb, row.errors), (16.4, 24.497, 0.0));
    }
}
