//! `intertie bench`: stub, system under test and load generator on different cores, systems taking
//! turns, and a report of what they reached.

mod body;
mod faults;
mod folder;
mod glu;
mod load;
mod machine;
mod mapping;
mod plan;
mod process;
mod progress;
mod published;
mod relay;
mod report;
mod results;
mod runner;
mod sample;
mod scenario;
mod stats;
mod streams;
mod system;
mod table;
mod template;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use faults::FaultArgs;
use plan::glu::GluArgs;
use plan::http::HttpArgs;
use plan::map::MapArgs;
use plan::{Options, Plan};
use results::Results;
use streams::StreamArgs;
use system::Programs;

/// Arguments of `intertie bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Debug, clap::Subcommand)]
enum Suite {
    /// Measure HTTP proxying and transformation beside other proxies.
    ///
    /// nginx, HAProxy and Envoy are looked for in the path, or where the variables NGINX, HAPROXY
    /// and ENVOY point.
    Http(Box<HttpArgs>),
    /// Measure the mapping of a JSON body beside other engines.
    ///
    /// Redpanda Connect is looked for in the path, or where the variable REDPANDA_CONNECT points;
    /// the jar of Apache Camel where CAMEL_JAR points.
    Map(Box<MapArgs>),
    /// Measure integration flows beside other engines: HTTP to RabbitMQ, RabbitMQ to a slow
    /// service, and an orchestration over SQL, REST, SOAP and RabbitMQ.
    ///
    /// RabbitMQ and, for `complex`, PostgreSQL are started with temporary folders; RABBITMQ_SERVER
    /// and POSTGRES_BIN name others than those that are installed. Redpanda Connect and Apache
    /// Camel are looked for as `map` does.
    Glu(Box<GluArgs>),
    /// Make faults under load and look for every acknowledged message.
    ///
    /// Broker, database, services and the engine itself are killed, stopped or made short of
    /// something; RabbitMQ and PostgreSQL are looked for as `glu` does, `rabbitmqctl` where
    /// RABBITMQCTL points.
    Faults(Box<FaultArgs>),
    /// Measure topics and WebSocket proxying beside other servers: many subscribers, open loop,
    /// every event checked.
    ///
    /// nginx with its module nchan is looked for as Debian has it, or where the variables NGINX and
    /// NCHAN_MODULE point; Mercure, Centrifugo and HAProxy in the path, or where MERCURE,
    /// CENTRIFUGO and HAPROXY point.
    Streams(Box<StreamArgs>),
    /// Write the report of earlier results again.
    Report {
        /// A results.json.
        results: PathBuf,
        /// The folder for report.html.
        #[arg(long, value_name = "DIR", default_value = ".")]
        out: PathBuf,
    },
    /// Copy bytes between connections: the floor of the comparison.
    #[command(hide = true)]
    Relay(relay::RelayArgs),
    /// Write what is posted to every subscriber: the floor of fan-out.
    #[command(hide = true)]
    WriteLoop(streams::WriteLoopArgs),
}

/// Does what the arguments say. The exit code is 1 when Intertie could not be measured, or when a
/// reply of it was wrong.
///
/// # Errors
/// When the machine has too few cores, or files cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.suite {
        Suite::Http(arguments) => measure(&arguments.options, |programs| arguments.plan(programs)),
        Suite::Map(arguments) => measure(&arguments.options, |programs| arguments.plan(programs)),
        Suite::Glu(arguments) => measure(&arguments.options, |programs| arguments.plan(programs)),
        Suite::Faults(arguments) => {
            let is_good = faults::run(&arguments, &programs(arguments.binary())?)?;
            Ok(ExitCode::from(u8::from(!is_good)))
        }
        Suite::Streams(arguments) => {
            let is_good = streams::run(&arguments, programs(arguments.binary())?)?;
            Ok(ExitCode::from(u8::from(!is_good)))
        }
        Suite::Report { results, out } => {
            rewrite(&results, &out)?;
            Ok(ExitCode::SUCCESS)
        }
        Suite::Relay(arguments) => {
            relay::run(&arguments)?;
            Ok(ExitCode::SUCCESS)
        }
        Suite::WriteLoop(arguments) => {
            streams::write_loop(&arguments)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Writes the report of earlier results, of whichever suite they are.
fn rewrite(file: &Path, out: &Path) -> anyhow::Result<()> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let no_results = || format!("{} holds no results", file.display());
    let any: serde_json::Value = serde_json::from_str(&text).with_context(no_results)?;
    fs::create_dir_all(out)?;
    if any
        .get("suite")
        .is_some_and(|suite| suite == streams::SUITE)
    {
        let results: streams::Results = serde_json::from_str(&text).with_context(no_results)?;
        return streams::write_report(out, &results);
    }
    let results: Results = serde_json::from_str(&text).with_context(no_results)?;
    write_report(out, &results)
}

fn measure(
    options: &Options,
    plan: impl FnOnce(&Programs) -> anyhow::Result<Plan>,
) -> anyhow::Result<ExitCode> {
    let programs = programs(options.binary.as_ref())?;
    let is_good = runner::run(plan(&programs)?, programs)?;
    Ok(ExitCode::from(u8::from(!is_good)))
}

/// This program, and the binary under test, which is the same when there is no other.
fn programs(binary: Option<&PathBuf>) -> anyhow::Result<Programs> {
    let own = std::env::current_exe()?;
    Ok(Programs {
        intertie: binary.cloned().unwrap_or_else(|| own.clone()),
        own,
    })
}

/// Writes results.json and report.html.
fn write(folder: &Path, results: &Results) -> anyhow::Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let text = serde_json::to_string_pretty(results)?;
    fs::write(folder.join("results.json"), text)?;
    write_report(folder, results)
}

fn write_report(folder: &Path, results: &Results) -> anyhow::Result<()> {
    write_page(folder, &report::html(results))
}

/// Writes report.html.
fn write_page(folder: &Path, page: &str) -> anyhow::Result<()> {
    let file = folder.join("report.html");
    fs::write(&file, page).with_context(|| format!("cannot write {}", file.display()))
}
