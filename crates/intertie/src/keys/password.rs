//! Reads a password: typed twice on a terminal, which does not show it, or a line on stdin. Never
//! an argument, which every user of the machine could see.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};

use access::credentials::BASIC_MAX;
use anyhow::{Context, bail};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// The password for this user.
///
/// # Errors
/// When there is none, there is more than one line, or the two that were typed differ.
pub(super) fn read(name: &str) -> anyhow::Result<Vec<u8>> {
    if io::stdin().is_terminal() {
        return ask(name);
    }
    let mut bytes = Vec::new();
    let bound = BASIC_MAX as u64 + 2;
    let read = io::stdin().take(bound).read_to_end(&mut bytes);
    read.context("stdin cannot be read")?;
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.contains(&b'\n') {
        bail!("there is more than one line on stdin");
    }
    Ok(line.to_vec())
}

fn ask(name: &str) -> anyhow::Result<Vec<u8>> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty");
    let terminal = terminal
        .as_mut()
        .map_err(|error| anyhow::anyhow!("{error}"));
    let terminal = terminal.context("the terminal cannot be opened")?;
    let first = line(terminal, &format!("Password of {name}: "))?;
    let second = line(terminal, "The same again: ")?;
    match first == second {
        true => Ok(first),
        false => bail!("the two passwords differ"),
    }
}

/// Shows what is typed again when it is dropped.
struct Hidden<'a>(&'a File, Termios);

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that is gone.
        let _ = tcsetattr(self.0, OptionalActions::Flush, &self.1);
    }
}

fn line(mut terminal: &File, prompt: &str) -> anyhow::Result<Vec<u8>> {
    let before = tcgetattr(terminal).context("the terminal cannot be read")?;
    let mut hidden = before.clone();
    hidden.local_modes -= LocalModes::ECHO;
    hidden.local_modes |= LocalModes::ECHONL;
    let hide = tcsetattr(terminal, OptionalActions::Flush, &hidden);
    hide.context("the terminal cannot hide what is typed")?;
    let _shown = Hidden(terminal, before);
    terminal.write_all(prompt.as_bytes())?;
    let mut typed = Vec::new();
    let mut reader = BufReader::new(terminal.take(BASIC_MAX as u64 + 2));
    reader.read_until(b'\n', &mut typed)?;
    match typed.strip_suffix(b"\n") {
        Some(line) => Ok(line.to_vec()),
        None => bail!("there is no password, or one that is too long"),
    }
}
