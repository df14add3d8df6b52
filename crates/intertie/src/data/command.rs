//! `intertie store`: what an operator does with stored messages.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use jiff::Timestamp;
use journal::{Listed, Outbox};
use message::secret::redact;

use crate::cli::print;

/// What to do with stored messages.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum StoreCommand {
    /// List the stores, or the dead letters of one.
    List {
        /// The store.
        name: Option<String>,
        /// List the messages that wait instead.
        #[arg(long, requires = "name")]
        waiting: bool,
        #[command(flatten)]
        data: Data,
    },
    /// Print a message as JSON. Values of header fields that look like secrets are masked.
    Show {
        /// The store.
        name: String,
        /// The message's number.
        id: String,
        #[command(flatten)]
        data: Data,
    },
    /// Have dead letters delivered again, with all their tries.
    Retry(Dead),
    /// Drop dead letters for good.
    Drop(Dead),
}

/// Which dead letters are meant.
#[derive(Debug, clap::Args)]
pub(crate) struct Dead {
    /// The store.
    name: String,
    /// Their numbers.
    #[arg(required_unless_present = "all")]
    ids: Vec<String>,
    /// All of the store.
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    #[command(flatten)]
    data: Data,
}

/// Where it is kept.
#[derive(Debug, clap::Args)]
pub(crate) struct Data {
    /// The folder that the engine was started with.
    #[arg(long = "data", value_name = "DIR", default_value = super::DEFAULT)]
    pub(super) folder: PathBuf,
}

/// Does it.
///
/// # Errors
/// When it cannot be done, for instance because an engine runs on the folder.
pub(crate) fn run(command: &StoreCommand) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let text = runtime.block_on(answer(command))?;
    print(&redact(&text))
}

async fn answer(command: &StoreCommand) -> anyhow::Result<String> {
    match command {
        StoreCommand::List {
            name: None, data, ..
        } => Ok(stores(&open(&data.folder)?)),
        StoreCommand::List {
            name: Some(name),
            waiting,
            data,
        } => {
            let outbox = open_with(&data.folder, name)?;
            Ok(table(&outbox.list(name, !waiting).await?))
        }
        StoreCommand::Show { name, id, data } => {
            let outbox = open_with(&data.folder, name)?;
            show(&outbox, name, read_id(id)?).await
        }
        StoreCommand::Retry(dead) => decide(dead, true).await,
        StoreCommand::Drop(dead) => decide(dead, false).await,
    }
}

/// Opens the store of a folder that is there.
fn open(folder: &Path) -> anyhow::Result<Outbox> {
    if !folder.join("store").is_dir() {
        bail!(
            "there are no stored messages in {}: say where with --data",
            folder.display()
        );
    }
    super::outbox(folder)
}

fn open_with(folder: &Path, name: &str) -> anyhow::Result<Outbox> {
    let outbox = open(folder)?;
    let stores = outbox.all_stats();
    if !stores.contains_key(name) {
        let known: Vec<&str> = stores.keys().map(String::as_str).collect();
        match known.is_empty() {
            true => bail!("there is no store `{name}`: nothing is stored"),
            false => bail!("there is no store `{name}`; there are {}", known.join(", ")),
        }
    }
    Ok(outbox)
}

/// A message's number, alone or as flows see it.
fn read_id(text: &str) -> anyhow::Result<u64> {
    let number = text.rsplit('-').next().and_then(|it| it.parse().ok());
    number.with_context(|| format!("`{text}` is no number of a message"))
}

fn stores(outbox: &Outbox) -> String {
    let mut text = format!(
        "{:24} {:>10} {:>10} {:>12}  {}\n",
        "STORE", "WAITING", "DEAD", "BYTES", "OLDEST"
    );
    for (name, stats) in outbox.all_stats() {
        let oldest = stats.oldest.map_or_else(|| "-".to_owned(), time);
        let (waiting, dead, bytes) = (stats.waiting, stats.dead, stats.bytes);
        // Writing to a text does not fail.
        let _ = writeln!(
            text,
            "{name:24} {waiting:>10} {dead:>10} {bytes:>12}  {oldest}"
        );
    }
    text
}

fn table(listed: &[Listed]) -> String {
    let mut text = format!(
        "{:>10}  {:24} {:>8} {:>12}  {}\n",
        "ID", "STORED", "TRIES", "BYTES", "WHY"
    );
    for message in listed {
        let (id, stored, tries, size) = (
            message.id,
            time(message.stored),
            message.attempts,
            message.size,
        );
        let why = why(message);
        let _ = writeln!(text, "{id:>10}  {stored:24} {tries:>8} {size:>12}  {why}");
    }
    text
}

/// Why a message is where it is, on one line.
fn why(message: &Listed) -> String {
    match &message.dead {
        Some(why) => why.escape_debug().to_string(),
        None if message.due > now() => format!("next try at {}", time(message.due)),
        None => "-".to_owned(),
    }
}

async fn show(outbox: &Outbox, name: &str, id: u64) -> anyhow::Result<String> {
    let (listed, bytes) = match outbox.read(name, id).await {
        Err(journal::Refusal::Gone) => bail!("the store `{name}` has no message {id}"),
        read => read?,
    };
    let stored = steps::store::describe(&bytes);
    let stored = stored.map_err(|why| anyhow::anyhow!("the message cannot be read: {why}"))?;
    let shown = serde_json::json!({
        "id": listed.name,
        "stored": time(listed.stored),
        "tries": listed.attempts,
        "dead": listed.dead,
        "message": stored,
    });
    Ok(format!("{shown:#}\n"))
}

async fn decide(dead: &Dead, is_retry: bool) -> anyhow::Result<String> {
    let Dead {
        name,
        ids,
        all,
        data,
    } = dead;
    let outbox = open_with(&data.folder, name)?;
    let there = outbox.list(name, true).await?;
    let there: Vec<u64> = there.iter().map(|message| message.id).collect();
    let meant = match all {
        true => there,
        false => {
            let ids: anyhow::Result<Vec<u64>> = ids.iter().map(|id| read_id(id)).collect();
            let ids = ids?;
            if let Some(missing) = ids.iter().find(|id| !there.contains(id)) {
                bail!("the store `{name}` has no dead letter {missing}; nothing has been done");
            }
            ids
        }
    };
    let (count, done) = match is_retry {
        true => (outbox.revive(name, meant).await?, "will be delivered again"),
        false => (outbox.drop_dead(name, meant).await?, "dropped"),
    };
    let plural = if count == 1 { "" } else { "s" };
    Ok(format!("{count} dead letter{plural} {done}\n"))
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

pub(super) fn time(milliseconds: u64) -> String {
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds));
    let time = time.and_then(|time| Timestamp::try_from(time).ok());
    time.unwrap_or(Timestamp::MAX).to_string()
}
