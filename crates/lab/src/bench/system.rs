//! How each system is configured and started.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::scenario::{Scenario, Side, System};
use super::template::Values;
use crate::pki::Identity;

const NGINX: &str = include_str!("../../peers/nginx.conf");
const HAPROXY: &str = include_str!("../../peers/haproxy.cfg");
const ENVOY: &str = include_str!("../../peers/envoy.yaml");
const INTERTIE: &str = include_str!("../../peers/intertie.yaml");

/// Where the programs are.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// This program: stub and floor.
    pub own: PathBuf,
    /// The binary under test.
    pub intertie: PathBuf,
}

impl Programs {
    /// The program of a system: what its variable names, or what is in the path.
    pub fn find(&self, system: System) -> Option<PathBuf> {
        match system {
            System::Intertie | System::Passthrough => Some(self.intertie.clone()),
            System::Floor | System::Direct => Some(self.own.clone()),
            System::Nginx => named("NGINX", "nginx"),
            System::HaProxy => named("HAPROXY", "haproxy"),
            System::Envoy => named("ENVOY", "envoy"),
        }
    }

    /// What a system says of its version.
    pub fn version(&self, system: System) -> String {
        let argument = match system {
            System::Floor | System::Direct => return "part of the lab".to_owned(),
            System::Nginx | System::HaProxy => "-v",
            System::Intertie | System::Passthrough | System::Envoy => "--version",
        };
        let output = self
            .find(system)
            .and_then(|program| Command::new(program).arg(argument).output().ok());
        let Some(output) = output else {
            return "unknown".to_owned();
        };
        let texts = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&texts);
        let line = text.lines().find(|line| !line.trim().is_empty());
        // Envoy's line begins with its path.
        let line = line.unwrap_or("unknown").trim();
        line.rsplit("version: ").next().unwrap_or(line).to_owned()
    }
}

fn named(variable: &str, name: &str) -> Option<PathBuf> {
    if let Some(chosen) = std::env::var_os(variable) {
        return Some(PathBuf::from(chosen)).filter(|file| file.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    places
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// A system that is ready to be started.
#[derive(Debug)]
pub(crate) struct Setup {
    pub command: Command,
    /// What it is configured with.
    pub config: String,
    pub address: SocketAddr,
}

/// What a system is set up for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub scenario: &'a Scenario,
    pub listen: SocketAddr,
    pub backend: SocketAddr,
    pub identity: &'a Identity,
    /// A folder of the system's own.
    pub folder: &'a Path,
}

/// Writes the configuration of a system, and says how to start it. [`System::Direct`] has none.
///
/// # Errors
/// When the program is not there or files cannot be written.
pub(crate) fn set_up(
    system: System,
    place: &Place<'_>,
    programs: &Programs,
) -> anyhow::Result<Setup> {
    fs::create_dir_all(place.folder)?;
    let program = programs
        .find(system)
        .with_context(|| format!("no program {} was found", system.name()))?;
    let mut command = Command::new(program);
    let (name, template) = match system {
        System::Intertie | System::Passthrough => ("flow.yaml", INTERTIE),
        System::Nginx => ("nginx.conf", NGINX),
        System::HaProxy => ("haproxy.cfg", HAPROXY),
        System::Envoy => ("envoy.yaml", ENVOY),
        System::Floor | System::Direct => {
            command.args(["bench", "relay", "--listen", &place.listen.to_string()]);
            command.args(["--to", &place.backend.to_string()]);
            return Ok(Setup {
                command,
                config: String::new(),
                address: place.listen,
            });
        }
    };
    let converts = place.scenario.converts && system != System::Passthrough;
    let config = values(place, converts).fill(template)?;
    let file = place.folder.join(name);
    fs::write(&file, &config)?;
    match system {
        System::Intertie | System::Passthrough => {
            let admin = super::process::free_address()?.to_string();
            command.arg("run").arg(&file);
            command.args(["--workers", "1", "--admin", &admin])
        }
        System::Nginx => command.arg("-p").arg(place.folder).arg("-c").arg(&file),
        System::HaProxy => command.arg("-db").arg("-f").arg(&file),
        _ => command.arg("-c").arg(&file).args([
            "--concurrency",
            "1",
            "--disable-hot-restart",
            "-l",
            "error",
        ]),
    };
    Ok(Setup {
        command,
        config,
        address: place.listen,
    })
}

fn values(place: &Place<'_>, converts: bool) -> Values {
    let Scenario { front, back, .. } = place.scenario;
    let lists = |side: &Side, separator: &str| side.offers().join(separator);
    let mut values = Values::default();
    values
        .text("listen", place.listen)
        .text("listen_host", place.listen.ip())
        .text("listen_port", place.listen.port())
        .text("backend", place.backend)
        .text("backend_host", place.backend.ip())
        .text("backend_port", place.backend.port())
        .text("folder", place.folder.display())
        .text("ca", place.identity.ca.display())
        .text("cert", place.identity.cert.display())
        .text("key", place.identity.key.display())
        .text("both", place.identity.both().display())
        .text("front_alpn", lists(front, ","))
        .text("back_alpn", lists(back, ","))
        .text("front_alpn_list", lists(front, ", "))
        .text("back_alpn_list", lists(back, ", "))
        .flag("converts", converts)
        .flag("front_tls", front.is_tls())
        .flag("front_h2", front.offers().contains(&"h2"))
        .flag("back_tls", back.is_tls())
        .flag("back_h1", matches!(back, Side::H1Clear | Side::H1Tls))
        .flag("back_h2", *back == Side::H2Tls)
        .flag("back_either", *back == Side::Downgrade);
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::scenario;

    #[test]
    fn all_templates_can_be_filled_for_all_scenarios() {
        let folder = std::env::temp_dir();
        let identity = Identity {
            ca: folder.join("ca.pem"),
            cert: folder.join("server.pem"),
            key: folder.join("server.key"),
        };
        for scenario in &scenario::ALL {
            let values = values(
                &Place {
                    scenario,
                    listen: "127.0.0.1:1".parse().unwrap(),
                    backend: "127.0.0.1:2".parse().unwrap(),
                    identity: &identity,
                    folder: &folder,
                },
                scenario.converts,
            );
            for template in [NGINX, HAPROXY, ENVOY, INTERTIE] {
                let text = values.fill(template).unwrap();
                assert!(text.contains("127.0.0.1") && !text.contains("${"), "{text}");
                let is_marked = |line: &str| line.starts_with(['?', '!']);
                assert!(!text.lines().any(is_marked), "{text}");
                let has_tls = text.contains("server.pem") || text.contains("both.pem");
                assert_eq!(
                    has_tls,
                    scenario.front.is_tls(),
                    "{}\n{text}",
                    scenario.name
                );
            }
        }
    }

    #[test]
    fn intertie_gets_a_flow() {
        let folder = std::env::temp_dir();
        let identity = Identity {
            ca: "ca.pem".into(),
            cert: "server.pem".into(),
            key: "server.key".into(),
        };
        let values = values(
            &Place {
                scenario: scenario::find("json-xml-tls").unwrap(),
                listen: "127.0.0.1:1".parse().unwrap(),
                backend: "127.0.0.1:2".parse().unwrap(),
                identity: &identity,
                folder: &folder,
            },
            true,
        );
        let text = values.fill(INTERTIE).unwrap();
        for part in [
            "  backend: { http: \"https://127.0.0.1:2\", tls: { ca: ca.pem }, protocols: [http/1.1] }",
            "tls: { cert: server.pem, key: server.key }, protocols: [http/1.1] }",
            "  - convert: { from: json, to: xml }\n  - forward: backend:/echo\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
