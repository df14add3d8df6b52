//! The other side: a `stub webhook-sink` as a process of its own, and what it says has come.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Deserialize;

use super::case::Case;
use super::flow;
use crate::bench::ask::Connection;
use crate::bench::process::{Cores, Process};
use crate::pki::Identity;
use crate::stub::SinkReport;

/// How often a sink is asked while deliveries are waited for.
const LOOK: Duration = Duration::from_millis(5);
/// How long nothing may come before what is missing is taken to be lost.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// What is kept to check signatures with, in MiB: proofs, and each body once.
const KEEP: &str = "4096";

/// A sink under way.
pub(super) struct Sink {
    pub address: SocketAddr,
    process: Process,
    asked: Connection,
}

/// How many posts a sink has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Count {
    pub posts: u64,
    /// Those that were answered with 2xx.
    pub accepted: u64,
}

/// Which events a report is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The numbers of the first and the last event that each endpoint should have.
    pub first: u64,
    pub last: u64,
    pub endpoints: usize,
    /// Latencies count of events between these instants, in microseconds since 1970.
    pub from: u64,
    pub to: u64,
}

impl Sink {
    /// Starts one for a case at an address. Its certificate is in a folder where the case wants
    /// TLS.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn start(
        address: SocketAddr,
        own: &Path,
        cores: &Cores,
        case: &Case,
        folder: &Path,
        identity: Option<&Identity>,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(own);
        command.args(["stub", "webhook-sink", "--listen", &address.to_string()]);
        command.args(["--keep", KEEP]);
        if case.is_signed {
            command.args(["--secret", &flow::secret(case.kind, "{}")]);
        }
        let identity = identity.filter(|_| case.is_tls);
        if let Some(identity) = identity {
            command.arg("--cert").arg(&identity.cert);
            command.arg("--key").arg(&identity.key);
        }
        let log = folder.join(format!("sink-{}.log", address.port()));
        let process = Process::start(&mut command, &cores.stub, &cores.load, address, &log)?;
        let authority: Option<PathBuf> = identity.map(|it| it.ca.clone());
        Ok(Self {
            address,
            process,
            asked: Connection::open(address, authority.as_deref())?,
        })
    }

    /// Its process and those that it has started.
    pub fn family(&self) -> Vec<u32> {
        self.process.family()
    }

    /// How many posts have come.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn count(&mut self) -> anyhow::Result<Count> {
        let body = self.asked.get("/count").context("the sink")?.body_of(200)?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// Waits until so many posts have been accepted, or until nothing has come for ten seconds.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn wait(&mut self, accepted: u64) -> anyhow::Result<Count> {
        let mut last = self.count()?;
        let mut changed = Instant::now();
        while last.accepted < accepted && changed.elapsed() < SILENCE_MAX {
            thread::sleep(LOOK);
            let count = self.count()?;
            if count != last {
                (last, changed) = (count, Instant::now());
            }
        }
        Ok(last)
    }

    /// Waits until so many verifications of a hub have been answered.
    ///
    /// # Errors
    /// When it does not answer, or nothing has come for ten seconds.
    pub fn wait_verified(&mut self, wanted: u64) -> anyhow::Result<()> {
        let (mut last, mut changed) = (0, Instant::now());
        loop {
            let report = self.report(&Wanted::default())?;
            let count = report.verifications.get("subscribe").copied();
            let count = count.unwrap_or(0);
            if count >= wanted {
                return Ok(());
            }
            if count != last {
                (last, changed) = (count, Instant::now());
            }
            anyhow::ensure!(
                changed.elapsed() < SILENCE_MAX,
                "the hub has asked {count} of {wanted} subscribers only"
            );
            thread::sleep(LOOK);
        }
    }

    /// What has come, judged by what should have.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn report(&mut self, wanted: &Wanted) -> anyhow::Result<SinkReport> {
        let Wanted {
            first,
            last,
            endpoints,
            from,
            to,
        } = wanted;
        let path = match last {
            0 => "/report".to_owned(),
            _ => format!(
                "/report?first={first}&last={last}&endpoints={endpoints}&from={from}&to={to}"
            ),
        };
        let body = self.asked.get(&path).context("the sink")?.body_of(200)?;
        Ok(serde_json::from_slice(&body)?)
    }
}
