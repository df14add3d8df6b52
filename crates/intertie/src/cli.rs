//! The command line.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use component::state::States;

use crate::data::command::StoreCommand;
use crate::data::topics::TopicsCommand;
use crate::health::HealthArguments;
use crate::keys::KeysCommand;
use crate::load::{Purpose, TABLE};
use crate::named_files::NamedFiles;
use crate::secrets::command::SecretsCommand;
use crate::tls::LoadedTls;
use crate::{data, graph, health, keys, load, new, reference, run, secrets, test, ussd};

/// Semantic Versioning of what users write and see: keys of flow files, the command line, error
/// codes, metrics and the data folder. What is packaged names its commit.
const VERSION: &str = match option_env!("INTERTIE_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// Connects systems: proxies, transforms and orchestrates messages, from short YAML files.
#[derive(Debug, Parser)]
#[command(name = "intertie", version = VERSION, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the flows of files and folders until told to stop.
    ///
    /// SIGTERM or SIGINT stops accepting, lets requests in flight end, and exits with 0; a second
    /// one stops at once. SIGHUP reloads files, certificates and secrets.
    Run(RunArguments),
    /// Check files and folders: print all problems, and exit with 1 when there are any.
    Check {
        /// Files, and folders whose *.yaml and *.yml files are meant, subfolders included.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// How problems are printed.
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Run the tests of files and folders, with other systems mocked and without waiting.
    Test(test::TestArguments),
    /// Try a USSD menu in the terminal, or by a script.
    ///
    /// An engine is started for it, with a data folder that is removed at the end; other systems
    /// are those of the files. While it runs, `:help` lists what can be done beside replying.
    Ussd(ussd::UssdArguments),
    /// Draw flows and menus as a Mermaid flowchart.
    Graph {
        /// Files, and folders whose *.yaml and *.yml files are meant, subfolders included.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Write and read the encrypted file of secrets that `engine.secrets.file` names.
    ///
    /// Its key is the value of INTERTIE_SECRETS_KEY, or stands in the file that
    /// INTERTIE_SECRETS_KEY_FILE names.
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// Make, list and revoke API keys, and set the passwords of users.
    ///
    /// Files are written whole or not at all, and only their hashes are kept. Comments stay.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Look at the messages that steps `store` have kept, and decide on dead letters.
    ///
    /// Works while no engine runs on the data folder.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Look at the topics on the disk, and remove those that nobody needs.
    ///
    /// Works while no engine runs on the data folder.
    #[command(subcommand)]
    Topics(TopicsCommand),
    /// Start a back end to try or measure flows with.
    Stub(lab::stub::Args),
    /// Write a folder with flows that run, their tests, and the schema for editors.
    New {
        /// The folder; it is made, or is empty.
        folder: PathBuf,
    },
    /// Ask a running engine whether it is well: exit code 0 when it is.
    Health(HealthArguments),
    /// Print the JSON Schema of flow files, for editors.
    Schema,
    /// List the triggers, steps and connections there are.
    List,
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages, for packages.
    #[command(hide = true)]
    Man {
        /// The folder for them.
        folder: PathBuf,
    },
}

/// Arguments of `intertie run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArguments {
    /// Files, and folders whose *.yaml and *.yml files are meant, subfolders included.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Reload when a file changes, without dropping a request. Files with problems change nothing.
    #[arg(long)]
    pub watch: bool,
    /// How many worker threads; as many as there are cores when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// The folder for what has to outlive the process, such as the messages of steps `store`. It
    /// is made when a flow needs it.
    #[arg(long, value_name = "DIR", default_value = data::DEFAULT)]
    pub data: PathBuf,
    /// Start though files are missing, emptied or cut in the data folder: what they had is lost.
    /// Without it such a folder is refused.
    #[arg(long)]
    pub accept_data_loss: bool,
    /// Where /health, /ready and /metrics are served, or `off`. /health is 503, and names the
    /// worker, when one has not moved for 10 seconds. Without it `engine.admin.listen` says where;
    /// without that it is 127.0.0.1:9900.
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<Admin>,
}

/// Where the admin port is, if anywhere.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Admin {
    Off,
    On(SocketAddr),
}

impl std::str::FromStr for Admin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() > 0 => Ok(Self::On(address)),
            _ => Err("expected an address and a port such as 127.0.0.1:9900, or off".to_owned()),
        }
    }
}

/// How problems are printed.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ReportFormat {
    /// With lines and carets, for people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}

impl Cli {
    /// Does what the command line says.
    ///
    /// # Errors
    /// When it cannot be done; what is wrong with flow files is printed, not returned.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Run(arguments) => run::run(&arguments),
            Command::Check { paths, format } => check(&paths, format),
            Command::Test(arguments) => test::run(arguments),
            Command::Ussd(arguments) => ussd::run(arguments),
            Command::Graph { paths } => graph::run(&paths),
            Command::Secrets(command) => secrets::command::run(&command),
            Command::Keys(command) => keys::run(&command),
            Command::Store(command) => data::command::run(&command),
            Command::Topics(command) => data::topics::run(&command),
            Command::Stub(arguments) => lab::stub::run(arguments),
            Command::New { folder } => print(&new::write(&folder)?),
            Command::Health(arguments) => health::run(&arguments),
            Command::Schema => print(&format!("{:#}\n", reference::schema())),
            Command::List => print(&list()),
            Command::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Self::command(), "intertie", &mut script);
                print(&String::from_utf8_lossy(&script))
            }
            Command::Man { folder } => {
                clap_mangen::generate_to(Self::command(), &folder)
                    .with_context(|| format!("cannot write to {}", folder.display()))?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

fn check(paths: &[PathBuf], format: ReportFormat) -> anyhow::Result<ExitCode> {
    let files = load::read_with_tests(paths)?;
    let states = States::default();
    let noted = (&states, &NamedFiles::default());
    let (loaded, problems) = load::load(&files, Purpose::Check, &LoadedTls::default(), noted);
    let text = match format {
        ReportFormat::Json => problems.json(),
        ReportFormat::Text if problems.is_empty() => {
            let count = loaded.as_ref().map_or(0, |loaded| loaded.flows.flows.len());
            let plural = if count == 1 { "" } else { "s" };
            format!("{count} flow{plural} checked, no problem\n")
        }
        ReportFormat::Text => problems.text(std::io::stdout().is_terminal()),
    };
    print(&text)?;
    Ok(if loaded.is_some() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn list() -> String {
    let steps = flow::schema::forms(TABLE.steps).into_iter().map(|forms| {
        let summaries: Vec<&str> = forms.iter().map(|step| step.summary).collect();
        let name = forms.first().map_or("", |step| step.name);
        (name, summaries.join(" "))
    });
    let connections = TABLE.connections.iter().map(|it| {
        let note = it.missing.map_or("", |_| " Only for `check` and `test`.");
        (it.name, format!("{}{note}", it.summary))
    });
    let http = ("http", "Takes HTTP requests.".to_owned());
    let call = ("call", "Other flows call it.".to_owned());
    let sources = TABLE.sources.iter();
    let sources = sources.map(|it| (it.name, it.summary.to_owned()));
    let endpoints = TABLE.endpoints.iter();
    let endpoints = endpoints.map(|it| (it.name, it.summary.to_owned()));
    let documents = TABLE.documents.iter();
    let documents = documents.map(|it| (it.name, it.summary.to_owned()));
    let kinds = TABLE.kinds.iter();
    let documents = documents.chain(kinds.map(|it| (it.name, it.summary.to_owned())));
    let triggers = [http].into_iter().chain(endpoints).chain(sources);
    let mut text = String::new();
    for (title, parts) in [
        ("triggers", triggers.chain([call]).collect()),
        ("steps", steps.collect::<Vec<_>>()),
        ("connections", connections.collect()),
        ("documents", documents.collect()),
    ] {
        let width = parts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        text.push_str(&format!("{title}:\n"));
        for (name, summary) in parts {
            text.push_str(&format!("  {name:width$}  {summary}\n"));
        }
    }
    text
}

/// Prints to stdout. A reader that has read enough is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<ExitCode> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        result => result.context("cannot print")?,
    }
    Ok(ExitCode::SUCCESS)
}
