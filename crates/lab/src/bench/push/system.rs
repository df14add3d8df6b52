//! Who delivers: builds of Intertie, a loop that sends and signs, and Svix.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::case::{Case, Kind};
use super::flow;
use super::svix;
use crate::bench::outcome::Contender;
use crate::bench::system::Programs;
use crate::bench::tokens::KeyFiles;
use crate::bench::{self, process};

/// The file of the authority beside the flow file.
pub(super) const AUTHORITY: &str = "ca.pem";

/// Who is measured.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum System {
    Intertie,
    /// Intertie with three endpoints more: one hangs, one answers 500, one flaps.
    Disturbed,
    /// Another build of Intertie, named in INTERTIE_BASELINE: what a change has cost.
    Baseline,
    /// A loop that sends and signs the same bodies over kept connections.
    Floor,
    /// The open-source server of Svix, named in INTERTIE_SVIX.
    Svix,
}

/// All of them, in the order of their turns.
pub(crate) const ALL: [System; 5] = [
    System::Intertie,
    System::Disturbed,
    System::Baseline,
    System::Floor,
    System::Svix,
];

impl Contender for System {
    const INTERTIE: Self = Self::Intertie;

    fn name(self) -> &'static str {
        match self {
            Self::Intertie => "intertie",
            Self::Disturbed => "disturbed",
            Self::Baseline => "baseline",
            Self::Floor => "floor",
            Self::Svix => "svix",
        }
    }
}

impl System {
    /// Whether a reader may wonder why it has no part in a case.
    pub fn is_meant(self, case: &Case) -> bool {
        match self {
            Self::Disturbed => case.scenario == "disturbed",
            Self::Svix => case.scenario == "cost",
            Self::Intertie | Self::Baseline | Self::Floor => true,
        }
    }

    /// Why a system has no part in a case, or nothing.
    pub fn refuses(self, case: &Case) -> Option<&'static str> {
        match (self, case.kind) {
            (Self::Intertie | Self::Baseline, _) => None,
            (Self::Disturbed, _) => {
                (case.scenario != "disturbed").then_some("no endpoint fails here")
            }
            (Self::Svix, _) => (case.scenario != "cost").then_some("it is set up for `cost` only"),
            (Self::Floor, Kind::WebSub) => Some("it is no hub"),
            (Self::Floor, Kind::Idle | Kind::CatchUp) => Some("it keeps nothing"),
            (Self::Floor, Kind::Webhooks) => case.is_tls.then_some("it sends in clear text"),
        }
    }

    /// Whether an endpoint gets events in the order in which they were published.
    pub fn keeps_order(self) -> bool {
        self != Self::Svix
    }

    /// Where its program is.
    pub fn find(self, programs: &Programs) -> Option<PathBuf> {
        match self {
            Self::Intertie | Self::Disturbed => Some(programs.intertie.clone()),
            Self::Baseline => programs.find(bench::scenario::System::Baseline),
            Self::Floor => Some(programs.own.clone()),
            Self::Svix => process::program("INTERTIE_SVIX", &[], "svix-server"),
        }
    }

    /// What to do when it is not there.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Baseline => bench::scenario::System::Baseline.advice(),
            Self::Svix => {
                "set INTERTIE_SVIX to the program svix-server (its source is \
                 github.com/svix/svix-webhooks, folder server)"
            }
            _ => "it is part of this program",
        }
    }

    /// What it says of its version.
    pub fn version(self, programs: &Programs) -> String {
        use bench::scenario::System as Known;
        programs.version(match self {
            Self::Svix => return svix::version(self.find(programs)),
            Self::Intertie | Self::Disturbed => Known::Intertie,
            Self::Baseline => Known::Baseline,
            Self::Floor => Known::Floor,
        })
    }
}

/// A system that is ready to be started.
#[derive(Debug)]
pub(super) struct Setup {
    pub command: Command,
    /// What it is configured with.
    pub config: String,
    /// Where Intertie has its metrics.
    pub admin: SocketAddr,
}

/// What a system is set up for.
pub(super) struct Place<'a> {
    pub case: &'a Case,
    pub listen: SocketAddr,
    pub sink: SocketAddr,
    /// A sink for endpoints that fail.
    pub failing: Option<SocketAddr>,
    /// Where the endpoint will be that is away.
    pub away: Option<SocketAddr>,
    /// A folder of the system's own.
    pub folder: &'a Path,
    /// The authority that certifies the sink, where it speaks TLS.
    pub authority: Option<&'a Path>,
    /// The public key of the issuer of tokens.
    pub keys: &'a KeyFiles,
    /// The URL of a PostgreSQL, for those who need one.
    pub database: Option<&'a str>,
}

/// Writes the configuration of a system, and says how to start it.
///
/// # Errors
/// When the program is not there or files cannot be written.
pub(super) fn set_up(
    system: System,
    place: &Place<'_>,
    programs: &Programs,
) -> anyhow::Result<Setup> {
    fs::create_dir_all(place.folder)?;
    let program = system.find(programs);
    let program = program.with_context(|| format!("not found: {}", system.advice()))?;
    let admin = process::free_address()?;
    if system == System::Svix {
        let database = place.database.context("Svix has no database")?;
        let config = svix::settings(place.listen, database);
        fs::write(place.folder.join(svix::SETTINGS), &config)?;
        let mut command = svix::command(&program, place.folder)?;
        command.arg("--run-migrations");
        return Ok(Setup {
            command,
            config,
            admin,
        });
    }
    let mut command = Command::new(program);
    if system == System::Floor {
        floor(&mut command, place);
        return Ok(Setup {
            command,
            config: String::new(),
            admin,
        });
    }
    if let Some(authority) = place.authority {
        fs::copy(authority, place.folder.join(AUTHORITY))?;
    }
    if place.case.kind == Kind::Idle {
        place.keys.copy_jwks(place.folder)?;
    }
    let config = flow::text(&flow::Place {
        case: place.case,
        listen: place.listen,
        sink: place.sink,
        failing: place.failing.filter(|_| system == System::Disturbed),
        away: place.away,
        authority: AUTHORITY,
    });
    let file = place.folder.join("push.yaml");
    fs::write(&file, &config)?;
    command.arg("run").arg(file);
    command.args(["--workers", "1", "--admin", &admin.to_string()]);
    command.arg("--data").arg(place.folder.join("data"));
    Ok(Setup {
        command,
        config,
        admin,
    })
}

fn floor(command: &mut Command, place: &Place<'_>) {
    let case = place.case;
    command.args(["push-loop", "--listen", &place.listen.to_string()]);
    command.args(["--to", &place.sink.to_string()]);
    command.args(["--endpoints", &case.endpoints.to_string()]);
    command.args(["--topics", &case.topics.to_string()]);
    if case.is_signed {
        command.arg("--sign");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_take_part_who_can() {
        let able = |case: &Case| -> Vec<&str> {
            let able = ALL.iter().filter(|system| system.refuses(case).is_none());
            able.map(|system| system.name()).collect()
        };
        let mut case = Case::default();
        assert_eq!(able(&case), ["intertie", "baseline", "floor"]);
        assert!(!System::Disturbed.is_meant(&case) && System::Floor.is_meant(&case));
        assert!(!System::Svix.is_meant(&case));
        "cost".clone_into(&mut case.scenario);
        assert_eq!(able(&case), ["intertie", "baseline", "floor", "svix"]);
        assert!(System::Svix.is_meant(&case));
        "disturbed".clone_into(&mut case.scenario);
        assert_eq!(able(&case), ["intertie", "disturbed", "baseline", "floor"]);
        case.scenario.clear();
        for kind in [Kind::WebSub, Kind::Idle, Kind::CatchUp] {
            case.kind = kind;
            assert_eq!(able(&case), ["intertie", "baseline"]);
        }
        (case.kind, case.is_tls) = (Kind::Webhooks, true);
        assert_eq!(able(&case), ["intertie", "baseline"]);
    }
}
