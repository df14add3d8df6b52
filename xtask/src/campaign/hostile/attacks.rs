//! The attacks, by name. Each is one attempt, which is made again and again until the time is over.

mod bodies;
mod doors;
mod http1;
mod http2;
mod others;
mod services;
mod tls;
mod topics;
mod websocket;

use std::io;
use std::net::Ipv4Addr;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use super::attacker::{Attacker, Ports};
use super::processes::ending_with_this;
use crate::command::Failure;

/// After an attempt that failed because the server refuses connections.
const BREATH: Duration = Duration::from_millis(2);

pub struct Attack {
    pub name: &'static str,
    pub protocol: &'static str,
    /// What it sends, for those who read the report.
    pub sends: &'static str,
    /// How many attackers do the same at once.
    threads: u64,
    /// From how many addresses they come: below 127.0.1.0, or from the machine's own when none.
    addresses: u64,
    /// The least time in which it can show something.
    pub least: Duration,
    attempt: AttackKind,
}

/// An attempt.
type AttackKind = fn(&mut Attacker) -> io::Result<()>;

const fn attack(
    name: &'static str,
    protocol: &'static str,
    sends: &'static str,
    threads: u64,
    least: u64,
    attempt: fn(&mut Attacker) -> io::Result<()>,
) -> Attack {
    Attack {
        name,
        protocol,
        sends,
        threads,
        addresses: 0,
        least: Duration::from_secs(least),
        attempt,
    }
}

/// The attacks on doors.
pub fn doors() -> impl Iterator<Item = &'static Attack> {
    doors::ATTACKS.iter()
}

/// All others.
pub fn all() -> impl Iterator<Item = &'static Attack> {
    let groups = [
        http1::ATTACKS,
        http2::ATTACKS,
        tls::ATTACKS,
        bodies::ATTACKS,
        websocket::ATTACKS,
        topics::ATTACKS,
        services::ATTACKS,
        others::ATTACKS,
    ];
    groups.into_iter().flatten()
}

/// What an attack has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub sent: u64,
    /// Attempts and connections that the server has ended.
    pub cut: u64,
}

/// Attacks for so long, in this process.
pub fn play(attack: &Attack, ports: Ports, seed: u64, time: Duration) -> Sums {
    let mut random = Rng::with_seed(seed);
    let attackers: Vec<_> = (0..attack.threads)
        .map(|number| {
            let mut attacker = Attacker::new(ports, random.u64(..), time);
            if let Some(at) = number.checked_rem(attack.addresses) {
                attacker.address = Some(Ipv4Addr::new(127, 0, 1, at as u8 + 1));
            }
            let attempt = attack.attempt;
            thread::spawn(move || {
                while attacker.goes_on() {
                    if attempt(&mut attacker).is_err() {
                        attacker.cut += 1;
                        thread::sleep(BREATH);
                    }
                }
                (attacker.sent, attacker.cut)
            })
        })
        .collect();
    let mut sums = Sums::default();
    for attacker in attackers {
        // One that has panicked said so, and what it sent is not known.
        let (sent, cut) = attacker.join().unwrap_or_default();
        sums.sent += sent;
        sums.cut += cut;
    }
    sums
}

/// Attacks from a process of its own, on the attackers' core and behind everybody else there.
pub fn start(attack: &Attack, ports: Ports, seed: u64, time: Duration) -> Result<Child, Failure> {
    let numbers = [ports.http, ports.h2, ports.tls, ports.admin, ports.back_end];
    let child = ending_with_this("nice")
        .args(["-n", "19"])
        .arg(std::env::current_exe()?)
        .args(["campaign", "hostile-attacker", attack.name])
        .args(numbers.map(|port| port.to_string()))
        .args([seed.to_string(), time.as_millis().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    Ok(child)
}

/// The process that `start` has started: the name, the ports, the seed, milliseconds.
pub fn run(arguments: &[String]) -> Result<(), Failure> {
    let wrong = || Failure::new("an attacker is started by `cargo xtask campaign hostile`");
    let (name, numbers) = arguments.split_first().ok_or_else(wrong)?;
    let numbers: Result<Vec<u64>, _> = numbers.iter().map(|it| it.parse::<u64>()).collect();
    let numbers = numbers.map_err(|_| wrong())?;
    let &[http, h2, tls, admin, back_end, seed, millis] = numbers.as_slice() else {
        return Err(wrong());
    };
    let [http, h2, tls, admin, back_end] = [http, h2, tls, admin, back_end].map(|it| it as u16);
    let mut known = all().chain(doors());
    let attack = known.find(|it| it.name == *name).ok_or_else(wrong)?;
    let ports = Ports {
        http,
        h2,
        tls,
        admin,
        back_end,
    };
    let sums = play(attack, ports, seed, Duration::from_millis(millis));
    println!("{} {}", sums.sent, sums.cut);
    Ok(())
}

/// Reads what `run` has printed.
pub fn read(printed: &str) -> Option<Sums> {
    let (sent, cut) = printed.trim().split_once(' ')?;
    Some(Sums {
        sent: sent.parse().ok()?,
        cut: cut.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_one_word() {
        let every = || all().chain(doors());
        let names: BTreeSet<_> = every().map(|it| it.name).collect();
        assert_eq!(names.len(), every().count());
        assert!(names.iter().all(|name| !name.contains(' ')));
        assert!(names.len() > 50, "{}", names.len());
    }

    #[test]
    fn sums_are_read_as_they_are_printed() {
        assert_eq!(read("7 2\n"), Some(Sums { sent: 7, cut: 2 }));
        assert_eq!(read("7\n"), None);
    }
}
