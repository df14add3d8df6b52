//! The suites of `intertie-bench`: stub, system under test and load generator on different cores,
//! systems taking turns, and a report of what they reached.

mod ask;
mod awake;
mod body;
mod clock;
mod csv;
mod faults;
mod folder;
mod glu;
mod http;
mod load;
mod machine;
mod mapping;
mod memory;
mod net;
mod outcome;
mod pacer;
mod plan;
mod process;
mod progress;
mod published;
mod publisher;
mod push;
mod relay;
mod report;
mod results;
mod runner;
mod sample;
mod scenario;
mod stats;
mod streams;
mod suite;
mod system;
mod table;
mod template;
mod tokens;
mod ussd;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;

use faults::FaultArgs;
use plan::Plan;
use plan::glu::GluArgs;
use plan::http::HttpArgs;
use plan::map::MapArgs;
use plan::ussd::UssdArgs;
use push::{Push, PushArgs};
use results::Results;
use streams::{StreamArgs, Streams};
use system::Programs;

/// Measures Intertie beside other systems, and writes reports.
#[derive(Debug, clap::Parser)]
#[command(name = "intertie-bench", version, arg_required_else_help = true)]
pub struct Args {
    /// The Intertie that is measured; when not given, `intertie` in the folder of this program.
    #[arg(long, alias = "binary", value_name = "FILE", global = true)]
    intertie: Option<PathBuf>,
    /// Keep the cores awake, so that no latency or CPU time holds what a virtual machine needs to
    /// wake a core. `faults` has no use for it.
    #[arg(long, global = true)]
    awake: bool,
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
    /// Measure USSD menus: dialogues of five steps, with SQL, REST, SOAP and RabbitMQ behind them,
    /// and with a slow service behind three queues.
    ///
    /// RabbitMQ and PostgreSQL are looked for as `glu` does.
    Ussd(Box<UssdArgs>),
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
    /// Measure push delivery: webhooks and a WebSub hub, open loop, every delivery and signature
    /// checked.
    ///
    /// A sink (`intertie stub webhook-sink`) takes all deliveries. No other server takes part: the
    /// published rows stand beside ours, and a loop that sends and signs the same.
    Push(Box<PushArgs>),
    /// Write the report of earlier results again, as report.html or as a small table.
    Report {
        /// A results.json.
        results: PathBuf,
        /// The folder for report.html.
        #[arg(long, value_name = "DIR", default_value = "target/bench")]
        out: PathBuf,
        /// Write the medians of all rows to this file, as comma-separated values, instead.
        #[arg(long, value_name = "FILE")]
        csv: Option<PathBuf>,
        /// Print a table in Markdown instead.
        #[arg(long, conflicts_with = "csv")]
        markdown: bool,
    },
    /// Copy bytes between connections: the floor of the comparison.
    #[command(hide = true)]
    Relay(relay::RelayArgs),
    /// Spin until standard input ends: what `--awake` starts.
    #[command(hide = true)]
    Spin,
    /// Write what is posted to every subscriber: the floor of fan-out.
    #[command(hide = true)]
    WriteLoop(streams::WriteLoopArgs),
    /// Send what is posted to endpoints, and sign it: the floor of push delivery.
    #[command(hide = true)]
    PushLoop(push::PushLoopArgs),
    /// The back ends of `intertie stub`: the same for every Intertie that is measured.
    #[command(hide = true)]
    Stub(crate::stub::Args),
}

/// Does what the arguments say. The exit code is 1 when Intertie could not be measured, or when a
/// reply of it was wrong.
///
/// # Errors
/// When the machine has too few cores, or files cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let programs = || programs(args.intertie, args.awake);
    match args.suite {
        Suite::Http(arguments) => measure(programs()?, |programs| arguments.plan(programs)),
        Suite::Map(arguments) => measure(programs()?, |programs| arguments.plan(programs)),
        Suite::Glu(arguments) => measure(programs()?, |programs| arguments.plan(programs)),
        Suite::Ussd(arguments) => measure(programs()?, |_| Ok(arguments.plan())),
        Suite::Faults(arguments) => Ok(exit_code(faults::run(&arguments, programs)?)),
        Suite::Streams(arguments) => Ok(exit_code(streams::run(&arguments, programs)?)),
        Suite::Push(arguments) => Ok(exit_code(push::run(&arguments, programs)?)),
        Suite::Report {
            results,
            out,
            csv,
            markdown,
        } => {
            let form = match csv {
                Some(file) => Form::Csv(file),
                None if markdown => Form::Markdown,
                None => Form::Page(out),
            };
            rewrite(&results, &form)?;
            Ok(ExitCode::SUCCESS)
        }
        Suite::Relay(arguments) => {
            relay::run(&arguments)?;
            Ok(ExitCode::SUCCESS)
        }
        Suite::Spin => {
            awake::spin()?;
            Ok(ExitCode::SUCCESS)
        }
        Suite::WriteLoop(arguments) => {
            streams::write_loop(&arguments)?;
            Ok(ExitCode::SUCCESS)
        }
        Suite::PushLoop(arguments) => {
            push::push_loop(&arguments)?;
            Ok(ExitCode::SUCCESS)
        }
        Suite::Stub(arguments) => crate::stub::run(arguments),
    }
}

fn exit_code(is_good: bool) -> ExitCode {
    ExitCode::from(u8::from(!is_good))
}

/// What earlier results are written as.
enum Form {
    /// report.html in this folder.
    Page(PathBuf),
    /// Comma-separated values in this file.
    Csv(PathBuf),
    /// A table on stdout.
    Markdown,
}

/// Writes the report of earlier results, of whichever suite they are.
fn rewrite(file: &Path, form: &Form) -> anyhow::Result<()> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let no_results = || format!("{} holds no results", file.display());
    let any: serde_json::Value = serde_json::from_str(&text).with_context(no_results)?;
    if let Form::Csv(csv) = form {
        return fs::write(csv, csv::table(&any))
            .with_context(|| format!("cannot write {}", csv.display()));
    }
    match any.get("suite").and_then(serde_json::Value::as_str) {
        Some(streams::SUITE) => {
            let results: streams::Results = serde_json::from_str(&text).with_context(no_results)?;
            return rewrite_suite::<Streams>(&results, form);
        }
        Some(push::SUITE) => {
            let results: push::Results = serde_json::from_str(&text).with_context(no_results)?;
            return rewrite_suite::<Push>(&results, form);
        }
        _ => {}
    }
    let results: Results = serde_json::from_str(&text).with_context(no_results)?;
    match form {
        Form::Page(out) => write_page(out, &report::html(&results)),
        _ => table::print(&table::markdown_of(&results)),
    }
}

fn rewrite_suite<S: suite::Suite>(results: &suite::Results<S>, form: &Form) -> anyhow::Result<()> {
    match form {
        Form::Page(out) => write_page(out, &suite::html::<S>(results)),
        _ => table::print(&suite::markdown_of::<S>(results)),
    }
}

fn measure(
    programs: Programs,
    plan: impl FnOnce(&Programs) -> anyhow::Result<Plan>,
) -> anyhow::Result<ExitCode> {
    Ok(exit_code(runner::run(plan(&programs)?, programs)?))
}

/// This program, and the binary under test: the one that was named, or the one beside this program.
fn programs(named: Option<PathBuf>, is_awake: bool) -> anyhow::Result<Programs> {
    let own = std::env::current_exe()?;
    let intertie = named.unwrap_or_else(|| own.with_file_name("intertie"));
    anyhow::ensure!(
        intertie.is_file(),
        "there is no {}: build it in the same profile (cargo build --profile dist), or name one \
         with --intertie",
        intertie.display()
    );
    Ok(Programs {
        own,
        intertie,
        is_awake,
    })
}

/// Writes results.json and report.html.
fn write(folder: &Path, results: &impl Serialize, page: &str) -> anyhow::Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let text = serde_json::to_string_pretty(results)?;
    fs::write(folder.join("results.json"), text)?;
    write_page(folder, page)
}

/// Writes report.html.
fn write_page(folder: &Path, page: &str) -> anyhow::Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let file = folder.join("report.html");
    fs::write(&file, page).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_under_test_is_named_or_stands_beside_this_program() {
        let own = std::env::current_exe().unwrap();
        let named = programs(Some(own.clone()), false).unwrap();
        assert_eq!((&named.own, &named.intertie), (&own, &own));
        let error = programs(Some(PathBuf::from("nowhere/intertie")), false).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("there is no nowhere/intertie"), "{text}");
        // Tests are built into `deps`, where the product is not.
        let text = programs(None, false).unwrap_err().to_string();
        assert!(text.contains("--intertie"), "{text}");
    }

    #[test]
    fn the_option_stands_on_either_side_of_the_suite() {
        use clap::Parser;
        for line in [
            ["intertie-bench", "--intertie", "one", "http"],
            ["intertie-bench", "http", "--binary", "one"],
        ] {
            let args = Args::try_parse_from(line).unwrap();
            assert_eq!(args.intertie, Some(PathBuf::from("one")));
        }
    }
}
