//! A line for each attack, the bounds that it has to keep, and the sum.

use std::time::Duration;

use super::attacks::{Attack, Sums};
use super::good::Phase;
use super::histogram::Histogram;
use super::processes::Held;
use crate::memory::Parts;

/// The bounds: the 99th percentile of the good client's latency, behind doors too, and what may be
/// kept of the memory.
pub const LATENCY_MAX: Duration = Duration::from_millis(50);
pub const LATENCY_MAX_DOORS: Duration = Duration::from_millis(20);
const KEPT_MAX_KIB: u64 = 30 * 1024;

/// A percentile above the bound is the machine's when it is at most so many halves of that of a
/// server that does nothing, under the same attack.
const MACHINE_HALVES: u32 = 3;

/// The largest steal time of a round that counts, in percent of its duration. With more of it a
/// high latency says nothing about the engine; nearly every round has less.
const STEAL_MAX: u32 = 2;

/// After an attack the good client is served in time before this has passed.
const RECOVERED: Duration = Duration::from_secs(2);

/// What one round has shown.
pub struct Round {
    pub attack: &'static Attack,
    /// The bound of the 99th percentile.
    pub latency_max: Duration,
    pub seconds: u64,
    pub sums: Sums,
    /// The good client while the attack lasted.
    pub phase: Phase,
    /// How long it took afterwards until the good client had its answers in time.
    pub recovery: Duration,
    /// The good client of the server that does nothing, under the same attack.
    pub idle: Phase,
    /// What the disk took for a few bytes while the attack lasted.
    pub disk: Histogram,
    /// The steal time of the servers' core meanwhile.
    pub steal: Duration,
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

/// What the 99th percentile of the good client's latency says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Latency {
    Kept,
    /// It is above the bound, but a server that does nothing was hardly faster.
    Machine,
    Broken,
}

impl Latency {
    fn of(engine: &Histogram, idle: &Histogram, most: Duration) -> Self {
        let (engine, idle) = (engine.percentile(99), idle.percentile(99));
        if engine < most {
            Self::Kept
        } else if engine * 2 <= idle * MACHINE_HALVES {
            Self::Machine
        } else {
            Self::Broken
        }
    }
}

/// The bounds of latency and errors that were not kept. `idle` is what the server that does nothing
/// took meanwhile.
fn judge(phase: &Phase, idle: &Histogram, most: Duration) -> Vec<String> {
    let mut broken = Vec::new();
    if phase.errors > 0 {
        broken.push(format!(
            "{} errors: {}",
            phase.errors,
            phase.shown.join("; ")
        ));
    }
    if Latency::of(&phase.latencies, idle, most) == Latency::Broken {
        let p99 = phase.latencies.percentile(99);
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
        let mut broken = judge(&self.phase, &self.idle.latencies, self.latency_max);
        if self.recovery >= RECOVERED {
            let seconds = self.recovery.as_secs();
            broken.push(format!(
                "{seconds} s until the good client was served in time"
            ));
        }
        broken.extend(self.end.clone());
        broken
    }

    /// Whether it does not count, and why: only the latency is above its bound, and so is the steal
    /// time, or what a few bytes took to get on the disk.
    pub fn void(&self) -> Option<String> {
        let is_late_only = self.phase.errors == 0 && self.end.is_none();
        if !is_late_only || self.latency() != Latency::Broken {
            return None;
        }
        let disk = self.disk.percentile(99);
        if self.steal > Duration::from_secs(self.seconds) * STEAL_MAX / 100 {
            let steal = self.steal.as_millis();
            return Some(format!("the host had the core for {steal} ms"));
        }
        let is_slow = disk > self.latency_max;
        is_slow.then(|| format!("the disk took {} ms for ten bytes", millis(disk)))
    }

    fn latency(&self) -> Latency {
        let idle = &self.idle.latencies;
        Latency::of(&self.phase.latencies, idle, self.latency_max)
    }

    fn line(&self) -> String {
        let latencies = &self.phase.latencies;
        let [p50, p99] = [50, 99].map(|it| millis(latencies.percentile(it)));
        let sums = self.sums;
        format!(
            "{:<20} {:<6} {:>3} {:>9} {:>7} {:>6} {:>4} {:>6} {:>7} {:>7} {:>7} \
             {:>7} {:>5}/{:>5}/{:>5} {:>5}/{:>5}/{:>5} {:>6}",
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
            millis(self.disk.percentile(99)),
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
        let [idle, disk] = [&self.idle.latencies, &self.disk].map(|it| millis(it.percentile(99)));
        if self.latency() == Latency::Machine {
            println!(
                "    THE MACHINE: at most 1.5 times the p99 of {idle} ms of a server that does \
                 nothing"
            );
        }
        for broken in self.broken() {
            println!(
                "    BROKEN: {broken}; beside it p99 {idle} ms of a server that does nothing, \
                 {disk} ms of the disk, {} ms taken by the host ({})",
                self.steal.as_millis(),
                self.attack.sends
            );
        }
    }

    /// Prints the line of a round that does not count.
    pub fn print_void(&self, why: &str) {
        println!("{}\n    PLAYED AGAIN: {why}", self.line());
    }
}

pub fn print_head() {
    println!(
        "latencies in ms, idle and disk are p99 of a server that does nothing and of the disk;\n\
         memory in MiB and descriptors of the engine: before, highest, after\n\
         {:<20} {:<6} {:>3} {:>9} {:>7} {:>6} {:>4} \
         {:>6} {:>7} {:>7} {:>7} {:>7} {:>17} {:>17} {:>6}",
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
        "disk",
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

/// Prints what the memory is, so that one who sees it grow knows where to look.
pub fn print_parts([before, after]: [Parts; 2]) {
    let row = |name: &str, before: u64, after: u64| {
        let (before, after) = (mib(before), mib(after));
        println!("  memory in {name}: {before} to {after} MiB");
    };
    row("pages of files", before.files, after.files);
    row("the allocator's arenas", before.arenas, after.arenas);
    row("stacks and others", before.others, after.others);
}

/// What all rounds have come to.
#[derive(Default)]
pub struct Verdict {
    rounds: usize,
    latency_max: Duration,
    good: Phase,
    /// The rounds whose latency, errors, recovery and engine were not as they have to be.
    late: Vec<String>,
    /// Those in which the machine was late.
    machine: Vec<String>,
    failed: usize,
    slow: usize,
    ended: usize,
    /// How many were played again.
    pub void: usize,
}

impl Verdict {
    pub fn add(&mut self, round: &Round) {
        self.rounds += 1;
        let latencies = &round.phase.latencies;
        let [p99, idle, disk] =
            [latencies, &round.idle.latencies, &round.disk].map(|it| millis(it.percentile(99)));
        let line = format!("{} {p99} (idle {idle}, disk {disk})", round.attack.name);
        self.latency_max = round.latency_max;
        match round.latency() {
            Latency::Kept => {}
            Latency::Machine => self.machine.push(line),
            Latency::Broken => self.late.push(line),
        }
        self.failed += usize::from(round.phase.errors > 0);
        self.slow += usize::from(round.recovery >= RECOVERED);
        self.ended += usize::from(round.end.is_some());
        self.good.add(round.phase.clone());
    }

    /// Prints a row for each bound.
    pub fn print(&self, took: Duration, before: Held, after: Held) {
        let word = |is_kept: bool| if is_kept { "kept" } else { "BROKEN" };
        let row = |name: &str, is_kept: bool, value: String| {
            println!("{name:<34} {:<7} {value}", word(is_kept));
        };
        let (rounds, minutes) = (self.rounds, took.as_secs_f64() / 60.0);
        println!("verdict on {rounds} rounds in {minutes:.1} minutes");
        if self.void > 0 {
            let void = self.void;
            println!("  {void} rounds were played again: the machine was too slow");
        }
        let (count, errors) = (self.good.latencies.count(), self.good.errors);
        let value = format!("{errors} of {count}, in {} rounds", self.failed);
        row("errors of the good client: none", errors == 0, value);
        let late = &self.late;
        let value = match late.is_empty() {
            true => format!("{} ms of all", millis(self.good.latencies.percentile(99))),
            false => format!("{} rounds: {}", late.len(), late.join(", ")),
        };
        let bound = format!(
            "p99 of each round: under {} ms",
            self.latency_max.as_millis()
        );
        row(&bound, late.is_empty(), value);
        if !self.machine.is_empty() {
            let (count, rounds) = (self.machine.len(), self.machine.join(", "));
            println!(
                "  above it, but the machine: at most 1.5 times as slow as the server that does \
                 nothing: {count} rounds: {rounds}"
            );
        }
        let value = format!("{} rounds were not", self.slow);
        row("in time again: within 2 s", self.slow == 0, value);
        let value = format!("{} times", self.ended);
        row("engine ended: never", self.ended == 0, value);
        let kept = after.memory_kib.saturating_sub(before.memory_kib);
        let value = format!(
            "{} to {} MiB",
            mib(before.memory_kib),
            mib(after.memory_kib)
        );
        row("memory kept: 30 MiB", kept <= KEPT_MAX_KIB, value);
        let value = format!("{} to {}", before.descriptors, after.descriptors);
        let is_kept = after.descriptors <= before.descriptors;
        row("descriptors leaked: none", is_kept, value);
    }
}

/// What is broken at the end, in words.
pub fn judge_end(phase: &Phase, most: Duration, before: Held, after: Held) -> Vec<String> {
    let mut broken = judge(phase, &Histogram::default(), most);
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
    use crate::campaign::hostile::attacks;

    fn phase(millis: u64, errors: u64) -> Phase {
        let mut phase = Phase {
            errors,
            ..Phase::default()
        };
        phase.latencies.record(Duration::from_millis(millis));
        phase
    }

    #[test]
    fn latency_and_errors_have_bounds() {
        let idle = phase(1, 0).latencies;
        assert!(judge(&phase(49, 0), &idle, LATENCY_MAX).is_empty());
        assert_eq!(judge(&phase(60, 0), &idle, LATENCY_MAX), ["p99 60.0 ms"]);
        assert_eq!(judge(&phase(40, 2), &idle, LATENCY_MAX), ["2 errors: "]);
    }

    #[test]
    fn what_a_server_that_does_nothing_takes_is_the_machine_but_an_error_is_not() {
        let of = |engine, idle| {
            let [engine, idle] = [engine, idle].map(|it| phase(it, 0).latencies);
            Latency::of(&engine, &idle, LATENCY_MAX)
        };
        assert_eq!(of(150, 100), Latency::Machine);
        assert_eq!(of(151, 100), Latency::Broken);
        assert_eq!(of(49, 1), Latency::Kept);
        assert_eq!(of(60, 0), Latency::Broken);
        let slow = phase(100, 0).latencies;
        assert_eq!(judge(&phase(150, 1), &slow, LATENCY_MAX), ["1 errors: "]);
    }

    #[test]
    fn a_round_does_not_count_when_it_is_late_and_nothing_else_beside_host_or_disk() {
        let void = |millis, errors, (steal, disk), end: Option<&str>| {
            let round = Round {
                attack: attacks::all().next().unwrap(),
                latency_max: LATENCY_MAX,
                seconds: 10,
                sums: Sums::default(),
                phase: phase(millis, errors),
                recovery: Duration::ZERO,
                idle: phase(1, 0),
                disk: phase(disk, 0).latencies,
                steal: Duration::from_millis(steal),
                before: Held::default(),
                peak: Held::default(),
                left: Held::default(),
                log_kib: 0,
                end: end.map(str::to_owned),
            };
            round.void()
        };
        let host = Some("the host had the core for 210 ms".to_owned());
        assert_eq!(void(60, 0, (210, 1), None), host);
        assert_eq!(void(60, 0, (200, 40), None), None);
        let disk = void(60, 0, (0, 90), None).unwrap();
        assert!(disk.starts_with("the disk took ") && disk.ends_with(" ms for ten bytes"));
        assert_eq!(void(49, 0, (500, 90), None), None);
        assert_eq!(void(60, 1, (500, 90), None), None);
        assert_eq!(void(60, 0, (500, 90), Some("the engine has ended")), None);
    }

    #[test]
    fn memory_and_descriptors_are_given_back() {
        let held = |mib: u64, descriptors| Held {
            memory_kib: mib * 1024,
            descriptors,
        };
        let good = phase(1, 0);
        assert!(judge_end(&good, LATENCY_MAX, held(40, 20), held(70, 20)).is_empty());
        assert!(judge_end(&good, LATENCY_MAX, held(40, 20), held(10, 19)).is_empty());
        let broken = judge_end(&good, LATENCY_MAX, held(40, 20), held(71, 22));
        assert_eq!(broken, ["31 MiB of memory kept", "2 descriptors leaked"]);
    }
}
