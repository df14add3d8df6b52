//! What the kernel has counted at an instant: CPU time of the system and of the load, and how busy
//! cores were.

use std::time::Instant;

use crate::bench::process::{self, Cores};

/// Whose time is read.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub cores: Cores,
    /// The processes of the system.
    pub system: Vec<u32>,
    /// Those of stubs.
    pub stubs: Vec<u32>,
}

/// CPU time used so far, in seconds.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    at: Instant,
    system: f64,
    load: f64,
    stubs: f64,
    system_core: f64,
    beside_cores: Vec<f64>,
}

/// What came between two instants.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Used {
    pub seconds: f64,
    /// Seconds of CPU time that the system used.
    pub system: f64,
    /// The same for the load generator, without stubs.
    pub load: f64,
    /// The part that is busy of the busiest core of load and stubs.
    pub load_core: f64,
    /// The larger part of a core's time that others used.
    pub foreign: f64,
}

impl Watch {
    /// Asks the kernel.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn read(&self) -> anyhow::Result<Clock> {
        Ok(Clock {
            at: Instant::now(),
            system: process::run_time(&self.system),
            load: process::run_time(&[std::process::id()]),
            stubs: process::run_time(&self.stubs),
            system_core: self.cores.system_busy()?,
            beside_cores: self.cores.beside_busy()?,
        })
    }
}

impl Clock {
    /// What has been used since an earlier reading.
    pub fn since(&self, before: &Self) -> Used {
        let seconds = (self.at - before.at).as_secs_f64().max(f64::MIN_POSITIVE);
        let system = (self.system - before.system).max(0.0);
        let load = (self.load - before.load).max(0.0);
        let stubs = (self.stubs - before.stubs).max(0.0);
        let cores = self.beside_cores.iter().zip(&before.beside_cores);
        let busy: Vec<f64> = cores.map(|(after, before)| after - before).collect();
        let foreign_beside = busy.iter().sum::<f64>() - load - stubs;
        let foreign_system = self.system_core - before.system_core - system;
        let busiest = busy.iter().copied().fold(0.0, f64::max);
        Used {
            seconds,
            system,
            load,
            load_core: (busiest / seconds).min(1.0),
            foreign: foreign_beside.max(foreign_system).max(0.0) / seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_used_lies_between_readings() {
        let start = Instant::now();
        let clock = |seconds: u64, system: f64, load: f64, cores: [f64; 2]| Clock {
            at: start + Duration::from_secs(seconds),
            system,
            load,
            stubs: 0.0,
            system_core: cores[0],
            beside_cores: vec![cores[1]],
        };
        let used = clock(2, 2.5, 6.0, [11.5, 21.2]).since(&clock(0, 1.0, 5.0, [10.0, 20.0]));
        let near = |value: f64, wanted: f64| (value - wanted).abs() < 1e-6;
        assert!(near(used.system, 1.5) && near(used.load, 1.0), "{used:?}");
        assert!(
            near(used.load_core, 0.6) && near(used.foreign, 0.1),
            "{used:?}"
        );
    }
}
