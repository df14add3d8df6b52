//! A WebSocket client that somebody else has made: `websockets` of PyPI.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::Process;
use crate::servers::python;

/// Connects to an address and prints what comes: a line with what has been agreed on about
/// extensions, one for each message, and `closed CODE` at the end. Messages are compressed when
/// `deflate` says that the client offers it.
pub fn websocket_reader(url: &str, authority: &Path, deflate: bool) -> Process {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/websocket_reader.py");
    let mut command = Command::new(python());
    command.arg(script).arg(url).arg(authority);
    command.arg(if deflate { "deflate" } else { "none" });
    Process::start(&mut command)
}
