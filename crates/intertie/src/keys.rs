//! `intertie keys`: makes, lists and revokes API keys, and sets the passwords of users.

mod password;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use access::FileProblem;
use access::api_keys::{ApiKey, ApiKeys, NoKey};
use access::basic::{User, Users, is_user};
use anyhow::{Context, bail};
use jiff::Timestamp;
use serde_json::json;

use crate::cli::print;
use crate::{regular_file, replaced_file};

/// The most bytes of a file of keys or users.
const FILE_MAX: u64 = 256 * 1024 * 1024;

/// What to do with a file of API keys or of users.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum KeysCommand {
    /// Make an API key and print it. It is shown this once: the file has its hash only.
    Add {
        /// The file of keys; it is made when there is none.
        #[arg(long)]
        file: PathBuf,
        /// Who gets the key, as it is seen in logs: no two keys share it.
        #[arg(long)]
        id: String,
        /// What the key may do; may be repeated.
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
        /// The plan of `engine.plans` by which its use is limited.
        #[arg(long)]
        plan: Option<String>,
        /// When it ends, such as 90d; without it the key is good until it is revoked.
        #[arg(long, value_name = "DURATION")]
        expires: Option<config::Duration>,
    },
    /// List the keys of a file, without their hashes.
    List {
        /// The file of keys.
        #[arg(long)]
        file: PathBuf,
        /// Print one JSON object a line, for programs.
        #[arg(long)]
        json: bool,
    },
    /// Remove a key from its file: it is refused as soon as the engine has read the file again.
    Revoke {
        /// The file of keys.
        #[arg(long)]
        file: PathBuf,
        /// Whose key.
        #[arg(long)]
        id: String,
    },
    /// Set the password of a user of `Basic` authentication, or remove the user.
    ///
    /// The password is asked for on a terminal, or is the one line on stdin. The file is one of
    /// htpasswd: `name:hash`, by Argon2id.
    User {
        /// The file of users; it is made when there is none.
        #[arg(long)]
        file: PathBuf,
        /// The user's name.
        #[arg(long)]
        name: String,
        /// What the user may do; may be repeated. A user who is there keeps scopes and plan, if
        /// none are given.
        #[arg(long = "scope", value_name = "SCOPE", conflicts_with = "remove")]
        scopes: Vec<String>,
        /// The plan of `engine.plans` by which the use is limited.
        #[arg(long, conflicts_with = "remove")]
        plan: Option<String>,
        /// Remove the user.
        #[arg(long)]
        remove: bool,
    },
}

/// Does it.
///
/// # Errors
/// When it cannot be done; the file is as it was then.
pub(crate) fn run(command: &KeysCommand) -> anyhow::Result<ExitCode> {
    match command {
        KeysCommand::Add {
            file,
            id,
            scopes,
            plan,
            expires,
        } => add(file, id, scopes, plan.as_ref(), *expires),
        KeysCommand::List { file, json } => list(file, *json),
        KeysCommand::Revoke { file, id } => {
            change(file, false, keys_of, |text, keys| {
                if !keys.entries().iter().any(|it| it.id == *id) {
                    bail!("there is no key of `{id}`");
                }
                Ok(without(text, |line| is_key_of(line, id)))
            })?;
            Ok(ExitCode::SUCCESS)
        }
        KeysCommand::User {
            file,
            name,
            remove: true,
            ..
        } => {
            change(file, false, users_of, |text, users| {
                if !users.entries().any(|it| it.id == *name) {
                    bail!("there is no user `{name}`");
                }
                Ok(without(text, |line| {
                    user_of(line).is_some_and(|it| it.id == *name)
                }))
            })?;
            Ok(ExitCode::SUCCESS)
        }
        KeysCommand::User {
            file,
            name,
            scopes,
            plan,
            ..
        } => set_user(file, name, scopes, plan.as_ref()),
    }
}

fn add(
    file: &Path,
    id: &str,
    scopes: &[String],
    plan: Option<&String>,
    expires: Option<config::Duration>,
) -> anyhow::Result<ExitCode> {
    if expires.is_some_and(|it| it.0.as_secs() == 0) {
        bail!("a key is good for a second at least");
    }
    let now = now()?;
    let (key, mut entry) = ApiKey::generate(id, now).map_err(|problem| {
        anyhow::anyhow!(match problem {
            NoKey::Id => "an id has 1 to 200 printable characters without spaces",
            NoKey::Length | NoKey::Random => "the system has no random bytes",
        })
    })?;
    entry.scopes = scopes.to_vec();
    entry.plan = plan.cloned();
    entry.expires = expires.map(|it| now.saturating_add(it.0.as_secs()));
    change(file, true, keys_of, |text, known| {
        if known.entries().iter().any(|it| it.id == id) {
            bail!("there is a key of `{id}` already: revoke it first, or give another id");
        }
        Ok(with(text, &entry.to_line()))
    })?;
    // Nobody else has it: that it could not be shown must not look like success.
    let mut stdout = io::stdout();
    let written = stdout.write_all(format!("{key}\n").as_bytes());
    let written = written.and_then(|()| stdout.flush());
    written.with_context(|| format!("the key cannot be printed: revoke `{id}` and add it anew"))?;
    Ok(ExitCode::SUCCESS)
}

fn list(file: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let text = read(file)?.with_context(|| format!("{}: there is no file", file.display()))?;
    let keys = keys_of(&text).with_context(|| file.display().to_string())?;
    let now = now()?;
    print(&match as_json {
        true => keys.entries().iter().map(|it| json_line(it, now)).collect(),
        false => table(keys.entries(), now),
    })
}

fn json_line(key: &ApiKey, now: u64) -> String {
    let line = json!({ "id": key.id, "scopes": key.scopes, "plan": key.plan,
        "created": key.created, "expires": key.expires, "expired": is_expired(key, now) });
    format!("{line}\n")
}

fn table(keys: &[ApiKey], now: u64) -> String {
    let or_dash = |text: String| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    };
    let day = |seconds: u64| match seconds {
        0 => "-".to_owned(),
        _ => i64::try_from(seconds)
            .ok()
            .and_then(|it| Timestamp::from_second(it).ok())
            .map_or_else(|| "-".to_owned(), |it| it.to_string()),
    };
    let row = |key: &ApiKey| {
        let mut expires = day(key.expires.unwrap_or(0));
        if is_expired(key, now) {
            expires.push_str(" (expired)");
        }
        [
            key.id.clone(),
            or_dash(key.scopes.join(" ")),
            or_dash(key.plan.clone().unwrap_or_default()),
            day(key.created),
            expires,
        ]
    };
    let titles = ["ID", "SCOPES", "PLAN", "CREATED", "EXPIRES"].map(str::to_owned);
    let rows: Vec<[String; 5]> = [titles].into_iter().chain(keys.iter().map(row)).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let [ids, scopes, plans, created] = [0, 1, 2, 3].map(width);
    let mut text = String::new();
    for [id, scope, plan, begin, end] in &rows {
        // Writing to a text does not fail.
        let _ = writeln!(
            text,
            "{id:ids$}  {scope:scopes$}  {plan:plans$}  {begin:created$}  {end}"
        );
    }
    text
}

fn is_expired(key: &ApiKey, now: u64) -> bool {
    key.expires.is_some_and(|end| now >= end)
}

fn set_user(
    file: &Path,
    name: &str,
    scopes: &[String],
    plan: Option<&String>,
) -> anyhow::Result<ExitCode> {
    if !is_user(name) {
        bail!("a name has 1 to 200 printable characters without spaces and without `:`");
    }
    let password = password::read(name)?;
    let told = |it: access::basic::NoHash| anyhow::anyhow!(it.explanation());
    let mut user = User::new(name, &password).map_err(told)?;
    change(file, true, users_of, |text, known| {
        let before = known.entries().find(|it| it.id == name);
        user.scopes = match (before, scopes.is_empty()) {
            (Some(before), true) => before.scopes.clone(),
            _ => scopes.to_vec(),
        };
        user.plan = plan.or(before.and_then(|it| it.plan.as_ref())).cloned();
        let rest = without(text, |line| user_of(line).is_some_and(|it| it.id == name));
        Ok(with(&rest, &user.to_line()))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Replaces a file by what its text becomes, if that can be read by `check` again, while no other
/// command changes it. Unless it may be made it has to be there.
fn change<T>(
    file: &Path,
    is_made: bool,
    check: fn(&str) -> anyhow::Result<T>,
    new: impl FnOnce(&str, T) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let name = || file.display().to_string();
    let lock = replaced_file::lock(file).with_context(name)?;
    let text = match read(file)? {
        None if is_made => String::new(),
        None => bail!("{}: there is no file", name()),
        Some(text) => text,
    };
    let known = check(&text).with_context(name)?;
    let new = new(&text, known).with_context(name)?;
    check(&new).with_context(name)?;
    replaced_file::replace(file, new.as_bytes()).with_context(name)?;
    drop(lock);
    Ok(())
}

/// The text of a file, if it is there.
fn read(file: &Path) -> anyhow::Result<Option<String>> {
    let name = || file.display().to_string();
    let bytes = match regular_file::read(file, FILE_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        result => result.with_context(name)?,
    };
    let text = String::from_utf8(bytes).context("it is not UTF-8");
    text.map(Some).with_context(name)
}

fn keys_of(text: &str) -> anyhow::Result<ApiKeys> {
    ApiKeys::parse(text).map_err(told)
}

fn users_of(text: &str) -> anyhow::Result<Users> {
    Users::parse(text).map_err(told)
}

fn told(problem: FileProblem) -> anyhow::Error {
    anyhow::anyhow!("{problem}")
}

fn is_key_of(line: &str, id: &str) -> bool {
    let keys = ApiKeys::parse(line);
    keys.is_ok_and(|it| it.entries().iter().any(|it| it.id == id))
}

fn user_of(line: &str) -> Option<User> {
    Users::parse(line).ok()?.entries().next().cloned()
}

/// The text with one line more.
fn with(text: &str, line: &str) -> String {
    let end = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    format!("{text}{end}{line}\n")
}

/// The text without some of its lines; the others stay as they are.
fn without(text: &str, is_left_out: impl Fn(&str) -> bool) -> String {
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !is_left_out(line)).collect()
}

fn now() -> anyhow::Result<u64> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Ok(since.context("the clock is before 1970")?.as_secs())
}
