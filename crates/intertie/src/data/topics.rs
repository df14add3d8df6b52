//! `intertie topics`: what an operator does with topics on the disk.

use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal, Write as _};
use std::path::Path;
use std::process::ExitCode;

use ::topics::upkeep::{self, Listed};
use anyhow::{Context, bail};
use journal::Streams;
use message::secret::redact;

use super::command::{Data, time};
use crate::cli::print;

/// What to do with topics on the disk.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum TopicsCommand {
    /// List the topics that have something on the disk, whether a flow file declares them or not.
    List {
        #[command(flatten)]
        data: Data,
    },
    /// Remove a topic for good: its events, how far flows have come in it, and what polling for it
    /// has learnt.
    ///
    /// Asks before, on a terminal. The next topic of this name is another one: subscribers that
    /// come back with an id of this one are told so.
    Remove {
        /// The topic.
        name: String,
        /// Do not ask. Needed where nobody can be asked.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        data: Data,
    },
}

/// Does it.
///
/// # Errors
/// When it cannot be done, for instance because an engine runs on the folder.
pub(crate) fn run(command: &TopicsCommand) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.context("cannot start the runtime")?;
    match command {
        TopicsCommand::List { data } => {
            let streams = open(&data.folder)?;
            let text = table(&upkeep::list(&streams));
            runtime.block_on(streams.close());
            print(&redact(&text))
        }
        TopicsCommand::Remove { name, yes, data } => {
            let streams = open(&data.folder)?;
            let listed = find(&streams, name)?;
            if !yes && !is_agreed(&listed)? {
                bail!("nothing has been removed");
            }
            let cursors = runtime.block_on(remove(&data.folder, &streams, name))?;
            let Listed { events, bytes, .. } = listed;
            let text = format!(
                "topic {name} removed: events {events}, bytes {bytes}, cursors of flows {cursors}\n"
            );
            print(&redact(&text))
        }
    }
}

/// Opens the topics of a folder that is there.
fn open(folder: &Path) -> anyhow::Result<Streams> {
    if !folder.join("topics").is_dir() {
        bail!(
            "there are no topics in {}: say where with --data",
            folder.display()
        );
    }
    super::streams(folder)
}

fn find(streams: &Streams, name: &str) -> anyhow::Result<Listed> {
    let mut all = upkeep::list(streams);
    if let Some(at) = all.iter().position(|it| it.name == name) {
        return Ok(all.swap_remove(at));
    }
    let name = name.escape_debug();
    let known: Vec<String> = all.iter().map(|it| shown(&it.name)).collect();
    match known.is_empty() {
        true => bail!("there is no topic `{name}`: nothing is on the disk"),
        false => bail!("there is no topic `{name}`; there are {}", known.join(", ")),
    }
}

async fn remove(folder: &Path, streams: &Streams, name: &str) -> anyhow::Result<usize> {
    let keyed = super::keyed(folder)?;
    let removed = upkeep::remove(streams, &keyed, name).await;
    streams.close().await;
    keyed.close().await;
    removed.with_context(|| format!("topic {name}: its events may be removed, more is not"))
}

/// Whether whoever sits at the terminal wants it.
///
/// # Errors
/// When nobody does.
fn is_agreed(topic: &Listed) -> anyhow::Result<bool> {
    let (input, mut output) = (io::stdin(), io::stderr());
    if !input.is_terminal() {
        bail!("nobody can be asked whether to remove it: say --yes");
    }
    let (name, events) = (shown(&topic.name), topic.events);
    write!(
        output,
        "Remove topic {name} with {events} events for good? [y/N] "
    )
    .and_then(|()| output.flush())
    .context("cannot ask")?;
    let mut answer = String::new();
    let read = input.lock().read_line(&mut answer);
    read.context("cannot read the answer")?;
    let answer = answer.trim();
    Ok(answer.eq_ignore_ascii_case("y") || answer.eq_ignore_ascii_case("yes"))
}

fn shown(name: &str) -> String {
    name.escape_debug().to_string()
}

fn table(topics: &[Listed]) -> String {
    let mut text = format!(
        "{:24} {:>10} {:>12}  {:24}  {}\n",
        "TOPIC", "EVENTS", "BYTES", "LAST", "PUBLISHED"
    );
    for topic in topics {
        let (name, events, bytes) = (shown(&topic.name), topic.events, topic.bytes);
        let last = topic
            .last
            .map_or_else(|| "-".to_owned(), |it| it.to_string());
        let published = match &topic.at_ms {
            Ok(at) => time(*at),
            Err(why) => why.clone(),
        };
        // Writing to a text does not fail.
        let _ = writeln!(
            text,
            "{name:24} {events:>10} {bytes:>12}  {last:24}  {published}"
        );
    }
    text
}
