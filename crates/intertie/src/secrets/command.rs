//! `intertie secrets`: writes and reads the encrypted file.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use config::Secrets;
use message::secret;

use super::key::Key;
use super::{NAME_RULE, Problem, TOTAL_MAX, content, envelope, without_newline};
use crate::cli::print;
use crate::{regular_file, replaced_file};

/// What to do with the encrypted file.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SecretsCommand {
    /// Encrypt secrets: a YAML mapping of names to texts, from stdin or a file.
    Encrypt {
        /// The encrypted file, which is written anew.
        file: PathBuf,
        /// Where the secrets are read from; stdin when not given.
        #[arg(long, value_name = "PLAIN")]
        from: Option<PathBuf>,
    },
    /// Print the names of an encrypted file's secrets.
    Decrypt {
        /// The encrypted file.
        file: PathBuf,
        /// Print the values, too, as YAML that `encrypt` reads.
        #[arg(long)]
        show: bool,
    },
    /// Set one secret of an encrypted file, which is made when there is none.
    ///
    /// The value is read from stdin; one newline at its end is dropped.
    Set {
        /// The encrypted file.
        file: PathBuf,
        /// The secret's name.
        name: String,
    },
}

/// Does it.
///
/// # Errors
/// When it cannot be done; the file is as it was then.
pub(crate) fn run(command: &SecretsCommand) -> anyhow::Result<ExitCode> {
    let environment = |name: &str| std::env::var(name).ok();
    let key = Key::find(&environment).map_err(told)?;
    match command {
        SecretsCommand::Encrypt { file, from } => {
            let text = match from {
                Some(path) => regular_file::read(path, TOTAL_MAX)
                    .map_err(anyhow::Error::from)
                    .and_then(|bytes| String::from_utf8(bytes).context("it is not UTF-8"))
                    .with_context(|| path.display().to_string())?,
                None => read_stdin("secrets, a line `NAME: \"value\"` for each")?,
            };
            let values = content::parse(&text).map_err(told)?;
            write(file, &values, &key)?;
        }
        SecretsCommand::Decrypt { file, show } => {
            let values = read(file, &key)?;
            if *show {
                return print(&content::print(&values));
            }
            let names = values.keys().map(|name| format!("{name}\n"));
            return print(&names.collect::<String>());
        }
        SecretsCommand::Set { file, name } => {
            if !Secrets::is_name(name) {
                bail!("this cannot be the name of a secret: {NAME_RULE}");
            }
            let text = read_stdin("the value")?;
            let lock = replaced_file::lock(file);
            let _lock = lock.with_context(|| file.display().to_string())?;
            let mut values = match fs::symlink_metadata(file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
                _ => read(file, &key)?,
            };
            values.insert(name.clone(), without_newline(&text).to_owned());
            write(file, &values, &key)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn told(problem: Problem) -> anyhow::Error {
    anyhow::anyhow!("{} ({})", problem.message, problem.hint)
}

fn read_stdin(what: &str) -> anyhow::Result<String> {
    if io::stdin().is_terminal() {
        eprintln!("{what}, then Ctrl-D on a line of its own; what you type is seen:");
    }
    let mut text = String::new();
    io::stdin()
        .take(TOTAL_MAX + 1)
        .read_to_string(&mut text)
        .context("stdin cannot be read")?;
    if text.len() as u64 > TOTAL_MAX {
        bail!("there is more than 1 MiB on stdin");
    }
    Ok(text)
}

fn read(file: &Path, key: &Key) -> anyhow::Result<BTreeMap<String, String>> {
    let name = || file.display().to_string();
    let bytes = regular_file::read(file, TOTAL_MAX).with_context(name)?;
    let text = envelope::open(&bytes, key).map_err(told);
    let text = text.with_context(name)?;
    content::parse(&text).map_err(told).with_context(name)
}

fn write(file: &Path, values: &BTreeMap<String, String>, key: &Key) -> anyhow::Result<()> {
    secret::register_all(values.values().map(String::as_str));
    key.check().map_err(told)?;
    for (name, value) in values {
        if !secret::is_long_enough(value) {
            let least = secret::SHORTEST;
            bail!(
                "the secret {name} has fewer than {least} characters: it could not be kept out \
                 of logs"
            );
        }
    }
    match regular_file::read(file, TOTAL_MAX) {
        Ok(bytes) if !envelope::is_one(&bytes) => bail!(
            "{}: there is a file that holds no encrypted secrets; it is left as it is",
            file.display()
        ),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| file.display().to_string());
        }
        Ok(_) | Err(_) => {}
    }
    let sealed = envelope::seal(&content::print(values), key).map_err(told)?;
    if sealed.len() as u64 > TOTAL_MAX {
        bail!("the encrypted file would have more than 1 MiB");
    }
    replaced_file::replace(file, sealed.as_bytes()).with_context(|| file.display().to_string())
}
