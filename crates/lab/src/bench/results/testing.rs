//! Rows for tests.
#![cfg(test)]

use super::{Case, Figures, Row, Variant};
use crate::bench::outcome::Sample;
use crate::bench::scenario::System;
use crate::bench::stats::Latency;
use crate::units::Streams;

/// A row of the first scenario with these CPU times, one a round.
pub(crate) fn row(system: System, cpu: &[f64]) -> Row {
    let round = |cpu: Option<f64>| Figures {
        throughput: 50_000.0,
        latency: Latency {
            mean: 2.0,
            stddev: 0.5,
            percentiles: vec![1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0],
            max: 6.0,
        },
        cpu,
        core: cpu.map(|_| 0.99),
        load_core: 0.9,
        memory_peak: cpu.map(|_| 12 << 20),
        memory_settled: cpu.map(|_| 10 << 20),
        ..Figures::default()
    };
    let mut rounds: Vec<Figures> = cpu.iter().map(|cpu| round(Some(*cpu))).collect();
    if rounds.is_empty() {
        rounds.push(round(None));
    }
    Row {
        case: Case {
            scenario: "h1c".to_owned(),
            streams: Streams::single(100),
            bytes: 50,
            delay_ms: 0.0,
            rate: None,
            variant: Variant::Plain,
        },
        system,
        median: Figures::median(&rounds),
        rounds,
        repeated: 1,
        warnings: Vec::new(),
    }
}
