//! A line for each attack, the bounds that it has to keep, and the sum.

use std::time::Duration;

use super::attacks::{Attack, Sums};
use super::good::Phase;
use super::processes::Held;

/// The bounds: the 99th percentile of the good client's latency, and what may be kept of the
/// memory.
const LATENCY_MAX: Duration = Duration::from_millis(50);
const KEPT_MAX_KIB: u64 = 30 * 1024;
/// From here on the machine is busy: the latency of the server that does nothing is added.
const MACHINE: Duration = Duration::from_millis(25);

/// After an attack the good client is served in time before this has passed.
const RECOVERED: Duration = Duration::from_secs(2);

/// What one round has shown.
pub struct Round {
    pub attack: &'static Attack,
    pub seconds: u64,
    pub sums: Sums,
    /// The good client while the attack lasted.
    pub phase: Phase,
    /// How long it took afterwards until the good client had its answers in time.
    pub recovery: Duration,
    /// The good client of the server that does nothing, under the same attack.
    pub idle: Phase,
    pub before: Held,
    pub peak: Held,
    pub left: Held,
    /// What the engine has written into its log.
    pub log_kib: u64,
    /// Why the engine had to be started again.
    pub end: Option<String>,
}

fn millis(of: Duration) -> String {
    format!("{:.1}", of.as_secs_f64() * 1000.0)
}

fn mib(kib: u64) -> u64 {
    kib.div_ceil(1024)
}

/// The bounds of latency and errors that were not kept.
fn judge(phase: &Phase, idle: Option<&Phase>) -> Vec<String> {
    let mut broken = Vec::new();
    if phase.errors > 0 {
        broken.push(format!(
            "{} errors: {}",
            phase.errors,
            phase.shown.join("; ")
        ));
    }
    let p99 = phase.latencies.percentile(99);
    let machine = idle.map_or(Duration::ZERO, |it| it.latencies.percentile(99));
    let allowed = match machine < MACHINE {
        true => LATENCY_MAX,
        false => LATENCY_MAX + machine,
    };
    if p99 >= allowed {
        let worst = phase
            .worst
            .map(|(name, p99)| format!(", {name} {}", millis(p99)));
        let worst = worst.unwrap_or_default();
        broken.push(format!("p99 {} ms{worst}", millis(p99)));
    }
    broken
}

impl Round {
    pub fn broken(&self) -> Vec<String> {
        let mut broken = judge(&self.phase, Some(&self.idle));
        if self.recovery >= RECOVERED {
            let seconds = self.recovery.as_secs();
            broken.push(format!(
                "{seconds} s until the good client was served in time"
            ));
        }
        broken.extend(self.end.clone());
        broken
    }

    fn line(&self) -> String {
        let latencies = &self.phase.latencies;
        let [p50, p99] = [50, 99].map(|it| millis(latencies.percentile(it)));
        let sums = self.sums;
        format!(
            "{:<20} {:<6} {:>3} {:>9} {:>7} {:>6} {:>4} {:>6} {:>7} {:>7} {:>7} \
             {:>5}/{:>5}/{:>5} {:>5}/{:>5}/{:>5} {:>6}",
            self.attack.name,
            self.attack.protocol,
            self.seconds,
            sums.sent,
            sums.cut,
            latencies.count(),
            self.phase.errors,
            p50,
            p99,
            millis(latencies.max()),
            millis(self.idle.latencies.percentile(99)),
            mib(self.before.memory_kib),
            mib(self.peak.memory_kib),
            mib(self.left.memory_kib),
            self.before.descriptors,
            self.peak.descriptors,
            self.left.descriptors,
            self.log_kib,
        )
    }

    /// Prints the line, and below it what was broken.
    pub fn print(&self) {
        println!("{}", self.line());
        for broken in self.broken() {
            println!("    BROKEN: {broken} ({})", self.attack.sends);
        }
    }
}

pub fn print_head() {
    println!(
        "latencies in ms; memory in MiB and descriptors of the engine: before, highest, after\n\
         {:<20} {:<6} {:>3} {:>9} {:>7} {:>6} {:>4} {:>6} {:>7} {:>7} {:>7} {:>17} {:>17} {:>6}",
        "attack",
        "on",
        "s",
        "sent",
        "cut",
        "good",
        "err",
        "p50",
        "p99",
        "max",
        "idle",
        "memory",
        "descriptors",
        "logkiB"
    );
}

/// The good client alone: before all attacks, or for a minute after them.
pub fn print_alone(when: &str, phase: &Phase, held: Held) {
    let latencies = &phase.latencies;
    let [p50, p99] = [50, 99].map(|it| millis(latencies.percentile(it)));
    println!(
        "{when}: good client alone, {} requests, {} errors, p50 {p50} ms, p99 {p99} ms, \
         max {} ms; memory {} MiB, {} descriptors",
        latencies.count(),
        phase.errors,
        millis(latencies.max()),
        mib(held.memory_kib),
        held.descriptors
    );
}

/// What is broken at the end, in words.
pub fn judge_end(phase: &Phase, before: Held, after: Held) -> Vec<String> {
    let mut broken = judge(phase, None);
    let kept = after.memory_kib.saturating_sub(before.memory_kib);
    if kept > KEPT_MAX_KIB {
        broken.push(format!("{} MiB of memory kept", mib(kept)));
    }
    if after.descriptors > before.descriptors {
        let leaked = after.descriptors - before.descriptors;
        broken.push(format!("{leaked} descriptors leaked"));
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(millis: u64, errors: u64) -> Phase {
        let mut phase = Phase {
            errors,
            ..Phase::default()
        };
        phase.latencies.record(Duration::from_millis(millis));
        phase
    }

    #[test]
    fn latency_has_a_bound_to_which_that_of_a_busy_machine_is_added() {
        assert!(judge(&phase(49, 0), None).is_empty());
        assert_eq!(judge(&phase(60, 0), None), ["p99 60.0 ms"]);
        assert_eq!(judge(&phase(60, 0), Some(&phase(24, 0))).len(), 1);
        assert!(judge(&phase(60, 0), Some(&phase(30, 0))).is_empty());
        assert_eq!(judge(&phase(90, 0), Some(&phase(30, 0))).len(), 1);
        assert_eq!(judge(&phase(60, 2), Some(&phase(30, 0))), ["2 errors: "]);
    }

    #[test]
    fn memory_and_descriptors_are_given_back() {
        let held = |mib: u64, descriptors| Held {
            memory_kib: mib * 1024,
            descriptors,
        };
        let good = phase(1, 0);
        assert!(judge_end(&good, held(40, 20), held(70, 20)).is_empty());
        assert!(judge_end(&good, held(40, 20), held(10, 19)).is_empty());
        let broken = judge_end(&good, held(40, 20), held(71, 22));
        assert_eq!(broken, ["31 MiB of memory kept", "2 descriptors leaked"]);
    }
}
