//! How each system is configured and started.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::mapping;
use super::outcome::RunFacts;
use super::scenario::{Scenario, Side, System, Work};
use super::template::Values;
use super::tokens::{self, Algorithm, KeyFiles};
use crate::pki::Identity;

const NGINX: &str = include_str!("../../peers/nginx.conf");
const HAPROXY: &str = include_str!("../../peers/haproxy.cfg");
const ENVOY: &str = include_str!("../../peers/envoy.yaml");
const INTERTIE: &str = include_str!("../../peers/intertie.yaml");
const MENU: &str = include_str!("../../peers/ussd/menu.yaml");
const REDPANDA_CONNECT: &str = include_str!("../../peers/redpanda-connect/config.yaml");
const CAMEL: &str = include_str!("../../peers/camel/route.yaml");

/// What a virtual machine is told: the collector that costs least on one core, and a heap that is
/// there from the start.
const JAVA: [&str; 3] = ["-XX:+UseSerialGC", "-Xms512m", "-Xmx512m"];

/// Where the programs are.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// This program: stub and floor.
    pub own: PathBuf,
    /// The binary under test.
    pub intertie: PathBuf,
    /// Whether cores are kept awake while something is measured.
    pub is_awake: bool,
}

impl Programs {
    /// How the binary under test was built, as far as this program knows.
    pub fn build(&self) -> &'static str {
        let is_beside = self.intertie.parent() == self.own.parent();
        match is_beside {
            false => "another binary",
            true if cfg!(debug_assertions) => "a build for debugging",
            true => "an optimised build",
        }
    }

    /// The program of a system: what its variable names, or what is in the path.
    pub fn find(&self, system: System) -> Option<PathBuf> {
        match system {
            System::Intertie | System::Passthrough => Some(self.intertie.clone()),
            System::Baseline => std::env::var_os("INTERTIE_BASELINE").map(PathBuf::from),
            System::Floor | System::Direct => Some(self.own.clone()),
            System::Nginx => named("NGINX", "nginx"),
            System::HaProxy => named("HAPROXY", "haproxy"),
            System::Envoy => named("ENVOY", "envoy"),
            System::RedpandaConnect => named("REDPANDA_CONNECT", "redpanda-connect"),
            System::Camel => named("CAMEL_JAR", "camel-peer.jar"),
        }
    }

    /// What starts a system.
    fn command(&self, system: System) -> Option<Command> {
        let program = self.find(system)?;
        if !system.is_jvm() {
            return Some(Command::new(program));
        }
        let mut command = Command::new(named("JAVA", "java")?);
        command.args(JAVA).arg("-jar").arg(program);
        Some(command)
    }

    /// What a system says of its version.
    pub fn version(&self, system: System) -> String {
        let argument = match system {
            System::Floor | System::Direct => return "part of the lab".to_owned(),
            System::Nginx | System::HaProxy => "-v",
            _ => "--version",
        };
        let output = self
            .command(system)
            .and_then(|mut command| command.arg(argument).output().ok());
        let Some(output) = output else {
            return "unknown".to_owned();
        };
        let texts = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&texts);
        let line = text.lines().find(|line| !line.trim().is_empty());
        let line = line.unwrap_or("unknown").trim();
        // Envoy's line begins with its path.
        let version = line.rsplit("version: ").next().unwrap_or(line);
        version.trim_start_matches("Version: ").to_owned()
    }
}

fn named(variable: &str, name: &str) -> Option<PathBuf> {
    super::process::program(variable, &[], name)
}

/// A system that is ready to be started.
#[derive(Debug)]
pub(crate) struct Setup {
    pub command: Command,
    /// What it is configured with.
    pub config: String,
    pub address: SocketAddr,
}

impl Setup {
    /// Its command line and configuration, for a scenario.
    pub fn facts(&self, scenario: &Scenario) -> RunFacts {
        RunFacts {
            scenario: scenario.name.to_owned(),
            command: format!("{:?}", self.command).replace('"', ""),
            config: self.config.clone(),
        }
    }
}

/// What a system is set up for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub scenario: &'a Scenario,
    pub listen: SocketAddr,
    pub backend: SocketAddr,
    pub identity: &'a Identity,
    /// The public key of the issuer, where clients must have a token.
    pub keys: &'a KeyFiles,
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
    let has_menu = matches!(place.scenario.work, Work::Menu(_) | Work::Sessions);
    let (name, template) = match system {
        System::Intertie | System::Baseline if has_menu => ("flow.yaml", MENU),
        System::Intertie | System::Passthrough | System::Baseline => ("flow.yaml", INTERTIE),
        System::Nginx => ("nginx.conf", NGINX),
        System::HaProxy => ("haproxy.cfg", HAPROXY),
        System::Envoy => ("envoy.yaml", ENVOY),
        System::RedpandaConnect => ("config.yaml", REDPANDA_CONNECT),
        System::Camel => ("route.yaml", CAMEL),
        System::Floor | System::Direct => {
            let mut command = Command::new(&programs.own);
            command.args(["relay", "--listen", &place.listen.to_string()]);
            command.args(["--to", &place.backend.to_string()]);
            return Ok(Setup {
                command,
                config: String::new(),
                address: place.listen,
            });
        }
    };
    let work = match system {
        System::Passthrough => Work::Relay,
        _ => place.scenario.work,
    };
    if work.locked().is_some() {
        place.keys.copy_jwks(place.folder)?;
    }
    let config = values(place, work).fill(template)?;
    start_with(system, (name, config), place.listen, place.folder, programs)
}

/// Writes a configuration, a name and a text, into a folder, and says how to start a system
/// with it.
///
/// # Errors
/// When the program is not there or the file cannot be written.
pub(crate) fn start_with(
    system: System,
    (name, config): (&str, String),
    listen: SocketAddr,
    folder: &Path,
    programs: &Programs,
) -> anyhow::Result<Setup> {
    let missing = || format!("{} was not found: {}", system.name(), system.advice());
    let mut command = programs.command(system).with_context(missing)?;
    let file = folder.join(name);
    fs::write(&file, &config)?;
    add_arguments(&mut command, system, folder, &file)?;
    Ok(Setup {
        command,
        config,
        address: listen,
    })
}

/// How a program is told where its configuration is, and that it has one core.
fn add_arguments(
    command: &mut Command,
    system: System,
    folder: &Path,
    file: &Path,
) -> anyhow::Result<()> {
    match system {
        System::Intertie | System::Passthrough | System::Baseline => {
            let admin = super::process::free_address()?.to_string();
            // What an earlier sample has left there is none of this one's.
            let data = folder.join("data");
            if data.exists() {
                fs::remove_dir_all(&data)?;
            }
            command.arg("run").arg(file).arg("--data").arg(data);
            command.args(["--workers", "1", "--admin", &admin]);
        }
        System::Nginx => {
            command.arg("-p").arg(folder).arg("-c").arg(file);
        }
        System::HaProxy => {
            command.arg("-db").arg("-f").arg(file);
        }
        System::Envoy => {
            command.arg("-c").arg(file);
            command.args(["--concurrency", "1", "--disable-hot-restart", "-l", "error"]);
        }
        System::RedpandaConnect => {
            command.arg("run").arg(file);
        }
        System::Camel => {
            command.arg(file);
        }
        System::Floor | System::Direct => {}
    }
    Ok(())
}

fn values(place: &Place<'_>, work: Work) -> Values {
    let Scenario { front, back, .. } = place.scenario;
    let lists = |side: &Side, separator: &str| side.offers().join(separator);
    let mut values = Values::default();
    values
        .text("path", place.scenario.path())
        .text("jq", mapping::jq(work))
        .text("bloblang", mapping::bloblang(work))
        .text("listen", place.listen)
        .text("listen_host", place.listen.ip())
        .text("listen_port", place.listen.port())
        .text("backend", place.backend)
        .text("backend_host", place.backend.ip())
        .text("backend_port", place.backend.port())
        .text("folder", place.folder.display())
        .text("jwks", place.keys.jwks.display())
        .text("issuer_pem", place.keys.pem.display())
        .text("issuer", tokens::ISSUER)
        .text("audience", tokens::AUDIENCE)
        .text("tokens", 2 * tokens::IN_TURN)
        .text("algorithm", work.locked().map_or("", Algorithm::name))
        .flag("locked", work.locked().is_some())
        .text("ca", place.identity.ca.display())
        .text("cert", place.identity.cert.display())
        .text("key", place.identity.key.display())
        .text("both", place.identity.both().display())
        .text("front_alpn", lists(front, ","))
        .text("back_alpn", lists(back, ","))
        .text("front_alpn_list", lists(front, ", "))
        .text("back_alpn_list", lists(back, ", "))
        .flag("converts", work == Work::ToXml)
        .flag("maps", work.maps())
        .flag("front_tls", front.is_tls())
        .flag("front_h2", front.offers().contains(&"h2"))
        .flag("back_tls", back.is_tls())
        .flag("back_h1", matches!(back, Side::H1Clear | Side::H1Tls))
        .flag("back_h2", *back == Side::H2Tls)
        .flag("back_h2_clear", *back == Side::H2Clear)
        .flag("back_plain", *back == Side::H1Clear)
        .flag("back_either", *back == Side::Downgrade);
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::scenario;

    fn identity() -> Identity {
        Identity {
            ca: "ca.pem".into(),
            cert: "server.pem".into(),
            key: "server.key".into(),
        }
    }

    fn filled(template: &str, scenario: &Scenario) -> String {
        let place = Place {
            scenario,
            listen: "127.0.0.1:1".parse().unwrap(),
            backend: "127.0.0.1:2".parse().unwrap(),
            identity: &identity(),
            keys: &KeyFiles::in_folder(Path::new("keys")),
            folder: Path::new("folder"),
        };
        values(&place, scenario.work).fill(template).unwrap()
    }

    #[test]
    fn all_templates_can_be_filled_for_all_scenarios() {
        let peers = [NGINX, HAPROXY, ENVOY, REDPANDA_CONNECT, CAMEL];
        for scenario in scenario::all() {
            for template in [peers.as_slice(), &[INTERTIE]].concat() {
                let text = filled(template, scenario);
                assert!(text.contains("127.0.0.1") && !text.contains("${"), "{text}");
                let is_marked = |line: &str| line.starts_with(['?', '!']);
                assert!(!text.lines().any(is_marked), "{text}");
                let is_proxy = ![REDPANDA_CONNECT, CAMEL].contains(&template);
                let has_tls = text.contains("server.pem") || text.contains("both.pem");
                let wanted = scenario.front.is_tls() && is_proxy;
                assert_eq!(has_tls, wanted, "{}\n{text}", scenario.name);
            }
        }
    }

    #[test]
    fn intertie_gets_a_flow() {
        let text = filled(INTERTIE, scenario::find("json-xml-tls").unwrap());
        for part in [
            "  backend: { http: \"https://127.0.0.1:2\", tls: { ca: ca.pem }, protocols: [http/1.1] }",
            "tls: { cert: server.pem, key: server.key }, protocols: [http/1.1] }",
            "  - convert: { from: json, to: xml }\n  - forward: backend:/echo\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn systems_that_verify_tokens_get_the_key_of_the_issuer() {
        let scenario = scenario::find("jwt-es256").unwrap();
        for (template, parts) in [
            (INTERTIE, ["jwks: jwks.json", "\nauth: callers\n"]),
            (HAPROXY, ["keys/issuer.pem", "-m str ES256"]),
            (ENVOY, ["filename: keys/jwks.json", "jwt_cache_size: 20000"]),
        ] {
            let text = filled(template, scenario);
            for part in [parts.as_slice(), &[tokens::ISSUER]].concat() {
                assert!(text.contains(part), "{part}\n{text}");
            }
            let open = filled(template, scenario::find("h1c").unwrap());
            assert!(!open.contains("jwks") && !open.contains("jwt"), "{open}");
        }
    }

    #[test]
    fn engines_get_the_mapping_of_the_scenario() {
        let text = filled(INTERTIE, scenario::find("map").unwrap());
        for part in [
            "path: /map }\nsteps:\n  - map: |\n      {\n        id: .order.id,\n",
            "\n        note: .note\n      }\n  - forward: http://127.0.0.1:2/echo\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let computed = scenario::find("map-computed").unwrap();
        let text = filled(REDPANDA_CONNECT, computed);
        let wanted = "    - mapping: |\n        root.id = this.order.id\n        root.reference";
        assert!(text.contains(wanted), "{text}");
        assert!(
            text.contains("\n        root.skus = this.lines.map_each"),
            "{text}"
        );
        let text = filled(CAMEL, computed);
        let wanted = "            jq: |\n              {\n                id: .order.id,\n";
        assert!(text.contains(wanted), "{text}");
    }
}
